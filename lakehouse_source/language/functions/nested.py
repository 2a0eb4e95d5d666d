"""Pure. Functions of structs and arrays, paths into values of VARIANT, and casts of these values.

Source: Spark's `VariantGet`, `VariantPathParser` and `Variant`.
"""

from __future__ import annotations

import re
from datetime import tzinfo
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.language.functions.casts import cast_kernel
from lakehouse_source.language.functions.entry import (
    INT,
    NEVER,
    TEXT,
    Builder,
    Context,
    Function,
)
from lakehouse_source.language.functions.rows import (
    Bound,
    Kernel,
    Rows,
    flat,
    literal,
    scatter,
    strict,
    unlisted,
)
from lakehouse_source.language.functions.text import to_re2
from lakehouse_source.language.nodes import Call, Literal, Name, Node
from lakehouse_source.language.types import (
    INSTANT,
    WALL,
    common,
    is_atomic,
    is_float,
    is_moment,
    is_number,
    spark_name,
)
from lakehouse_source.language.values import Failure
from lakehouse_source.schema.fields import is_list_like
from lakehouse_source.schema.variant import METADATA, STORAGE, VALUE, VARIANT, is_variant, of_stored
from lakehouse_source.schema.variant_bytes import Finder, decode_json, is_json_null, leaf_of
from lakehouse_source.schema.variant_values import encode_json


def struct(context: Context, call: Call, given: list[Bound]) -> Bound:
    """A struct of values; a value without a name is named by its place, `col1` for the first."""
    if call.name == "named_struct":
        if len(given) % 2:
            raise Failure("named_struct takes names and values in turn")
        names, given = [_field_name(node) for node in call.arguments[::2]], given[1::2]
    else:
        names = [
            node.parts[-1] if isinstance(node, Name) else f"col{place}"
            for place, node in enumerate(call.arguments, start=1)
        ]
    if len({name.lower() for name in names}) < len(names):
        raise Failure("two fields of a struct have the same name")
    type_ = pa.struct([pa.field(name, value.type) for name, value in zip(names, given)])

    def run(rows: Rows) -> pa.Array:
        return pa.StructArray.from_arrays([value.run(rows) for value in given], fields=list(type_))

    return Bound(call, type_, run, any(value.can_fail for value in given))


def _field_name(node: Node) -> str:
    if not isinstance(node, Literal) or not isinstance(node.value, str):
        raise Failure("the names of fields are literal texts")
    return node.value


def array(context: Context, call: Call, given: list[Bound]) -> Bound:
    """A list of values of one type."""
    values = context.alike(given)
    width, type_ = len(values), pa.list_(values[0].type)

    def run(rows: Rows) -> pa.Array:
        count = rows.count
        columns = pa.concat_arrays([value.run(rows) for value in values])
        order = pa.array([c * count + r for r in range(count) for c in range(width)], pa.int64())
        offsets = pa.array(range(0, count * width + 1, width), pa.int32())
        return pa.ListArray.from_arrays(offsets, flat(columns.take(order)), type=type_)

    return Bound(call, type_, run, any(value.can_fail for value in values))


def size(context: Context, call: Call, given: list[Bound]) -> Bound:
    """How many elements a list has, or entries a map. For NULL it is NULL, as in ANSI mode."""
    type_ = given[0].type
    if not (is_list_like(type_) or pa.types.is_map(type_)):
        raise Failure(f"{spark_name(type_)} stands where an array or a map should")

    def counted(values: pa.Array) -> pa.Array:
        if not pa.types.is_map(type_):
            return pc.list_value_length(values).cast(pa.int32())
        counts = pc.subtract(values.offsets[1:], values.offsets[:-1])
        return pc.if_else(pc.is_valid(values), counts, pa.scalar(None, pa.int32()))

    return strict(call, pa.int32(), given, counted, can_fail=False)


def _elements(arrays: pa.Array) -> tuple[list[int | None], pa.Array]:
    """The length of each array, None for NULL, and all elements in their order."""
    return pc.list_value_length(arrays).to_pylist(), flat(arrays.flatten())


def _element_type(value: Bound) -> pa.DataType:
    if not is_list_like(value.type):
        raise Failure(f"{spark_name(value.type)} stands where an array should")
    return value.type.value_type


def at(*, first: int) -> Builder:
    """`element_at` counts from 1, or from the end, and fails outside; `get` is NULL there."""

    def build(context: Context, call: Call, given: list[Bound]) -> Bound:
        type_ = _element_type(given[0])

        def kernel(arrays: pa.Array, places: pa.Array) -> pa.Array:
            lengths, elements = _elements(arrays)
            chosen, begin = list[int | None](), 0
            for length, place in zip(lengths, places.to_pylist()):
                found = None
                if length is not None and place is not None:
                    index = place - first if place >= 0 or not first else length + place
                    if 0 <= index < length and (place or not first):
                        found = begin + index
                    elif first:
                        raise Failure(f"an array of {length} elements has none at {place}")
                chosen.append(found)
                begin += length or 0
            return elements.take(pa.array(chosen, pa.int64()))

        values = [given[0], INT.of(context, given[1])]
        return strict(call, type_, values, kernel, can_fail=bool(first))

    return build


def searched(result: pa.DataType) -> Builder:
    """`array_contains` and `array_position`: elements that equal a value."""

    def build(context: Context, call: Call, given: list[Bound]) -> Bound:
        element = _element_type(given[0])
        is_text = pa.string() in (element, given[1].type) and element != given[1].type
        if not is_atomic(element) or is_text or common(element, given[1].type) != element:
            shown = f"{spark_name(given[1].type)} in an array of {spark_name(element)}"
            raise Failure(f"a search of {shown} is not supported: cast it")

        def kernel(arrays: pa.Array, wanted: pa.Array) -> pa.Array:
            lengths, elements = _elements(arrays)
            rows = [row for row, length in enumerate(lengths) for _ in range(length or 0)]
            sought = wanted.take(pa.array(rows, pa.int64()))
            same = pc.equal(elements, sought)
            if is_float(element):
                same = pc.or_(same, pc.and_(pc.is_nan(elements), pc.is_nan(sought)))
            answers, found, begin = same.to_pylist(), list[Any](), 0
            for length, value in zip(lengths, wanted.is_valid().to_pylist()):
                mine = answers[begin : begin + (length or 0)]
                begin += len(mine)
                if length is None or not value:
                    found.append(None)
                    continue
                place = mine.index(True) + 1 if True in mine else 0
                unknown = not place and None in mine
                found.append(place if result != pa.bool_() else None if unknown else place > 0)
            return pa.array(found, result)

        values = [given[0], context.cast(given[1], element)]
        return strict(call, result, values, kernel, can_fail=False)

    return build


def split(context: Context, call: Call, given: list[Bound]) -> Bound:
    """Parts of a text between matches of a literal pattern, which matches no empty text."""
    pattern, limit = (literal(value) for value in [*given[1:], context.bind(_NO_LIMIT)][:2])
    if pattern is None or not isinstance(pattern.value, str):
        raise Failure("the pattern of split has to be a literal text")
    if limit is None or not isinstance(limit.value, int):
        raise Failure("the limit of split has to be a literal number")
    written, parts = to_re2(pattern.value), limit.value
    anchored = pattern.value.startswith("^") or pattern.value.endswith("$")
    empty = pc.match_substring_regex(pa.array([""]), written)[0].as_py()
    if anchored or empty:
        raise Failure("a pattern of split with an anchor, or of an empty text, is not supported")

    def kernel(texts: pa.Array) -> pa.Array:
        if parts == 1:
            offsets = pa.array(range(len(texts) + 1), pa.int32())
            return pa.ListArray.from_arrays(offsets, texts, mask=pc.is_null(texts))
        most = parts - 1 if parts > 1 else None
        return pc.split_pattern_regex(texts, written, max_splits=most)

    text = TEXT.of(context, given[0])
    return strict(call, pa.list_(pa.string()), [text], kernel, can_fail=False)


_NO_LIMIT = Literal(-1, pa.int32())
_PLACE = "ARRAY and INT"
_SOUGHT = "ARRAY and a value"
FUNCTIONS: dict[str, Function] = {
    "struct": Function(1, None, struct, "any", "STRUCT", nulls=NEVER),
    "named_struct": Function(2, None, struct, "names and values in turn", "STRUCT", nulls=NEVER),
    "array": Function(1, None, array, "values of one type", "ARRAY", nulls=NEVER),
    "array_contains": Function(
        2,
        2,
        searched(pa.bool_()),
        _SOUGHT,
        "BOOLEAN",
        nulls="NULL where an argument is NULL, or the array has a NULL and not the value",
    ),
    "array_position": Function(2, 2, searched(pa.int64()), _SOUGHT, "BIGINT"),
    "element_at": Function(
        2, 2, at(first=1), _PLACE, "its element", nulls="NULL where an argument or the element is"
    ),
    "get": Function(
        2, 2, at(first=0), _PLACE, "its element", nulls="NULL where an argument or the element is"
    ),
    "split": Function(2, 3, split, "STRING, a literal pattern, a literal limit", "ARRAY<STRING>"),
    **dict.fromkeys(("size", "cardinality"), Function(1, 1, size, "ARRAY or MAP", "INT")),
}


_STEP = re.compile(
    r"\.([^.\[]+)|\[([0-9]{1,9})\]|\['([^']*)'\]|\[\"([^\"]*)\"\]", re.DOTALL | re.ASCII
)
# The types of leaves, by the names that `leaf_of` gives them.
_TYPES = {
    "bool": pa.bool_(),
    "int": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "text": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "instant": INSTANT,
    "wall": WALL,
}
_WHOLE = ("object", "array")
# As many seconds as a timestamp in microseconds may have.
_SECONDS = (2**63 - 1) // 1_000_000


def steps(path: str) -> list[str | int]:
    """The names and places of a path: `$.a[0]['b c']`.

    Raises:
        Failure: it is no path.
    """
    found, at = list[str | int](), 1
    while path[:1] == "$" and at < len(path):
        match = _STEP.match(path, at)
        if match is None:
            break
        name, place, *quoted = match.groups()
        at = match.end()
        found.append(int(place) if place else name or next((q for q in quoted if q), ""))
    if path[:1] != "$" or at < len(path):
        raise Failure(f"{path!r} is no path of VARIANT, such as $.a[0]['b c']")
    return found


def _parts(values: pa.Array) -> zip[tuple[bytes | None, bytes | None]]:
    """`metadata` and `value` of each row; None for NULL."""
    return zip(*(part.to_pylist() for part in values.storage.flatten()))


def _get(context: Context, call: Call, given: list[Bound]) -> Bound:
    """The value at a path, as VARIANT; NULL where there is none."""
    _check(given[0])
    path = literal(given[1])
    if path is None or not isinstance(path.value, str):
        raise Failure("the path is a literal text")
    way = steps(path.value)

    names = [one for one in way if isinstance(one, str)]

    def kernel(values: pa.Array) -> pa.Array:
        if len(names) == len(way):
            from lakehouse_source.schema.variant_columns import parts_at  # imports numpy

            found = parts_at(values.storage, names)
            if found is not None:
                return of_stored(found)
        find = Finder(way)
        rows = []
        for metadata, value in _parts(values):
            part = None if metadata is None or value is None else find(metadata, value)
            rows.append(None if part is None else {METADATA: metadata, VALUE: part})
        return of_stored(pa.array(rows, STORAGE))

    return strict(call, VARIANT, given[:1], kernel, can_fail=False)


def _check(value: Bound) -> None:
    if not is_variant(value.type):
        raise Failure(f"{spark_name(value.type)} stands where a VARIANT should")


def _is_json_null(context: Context, call: Call, given: list[Bound]) -> Bound:
    _check(given[0])

    def run(rows: Rows) -> pa.Array:
        parts = _parts(given[0].run(rows))
        return pa.array([one is not None and is_json_null(one) for _, one in parts], pa.bool_())

    return Bound(call, pa.bool_(), run, given[0].can_fail)


def _parsed(context: Context, call: Call, given: list[Bound]) -> Bound:
    def one(text: str | None) -> dict[str, bytes] | None:
        if text is None:
            return None
        try:
            metadata, value = encode_json(text)
        except InvalidOptionError as error:
            if call.name == "try_parse_json":
                return None
            raise Failure(error.reason) from None
        return {METADATA: metadata, VALUE: value}

    def kernel(texts: pa.Array) -> pa.Array:
        return of_stored(pa.array([one(text) for text in texts.to_pylist()], STORAGE))

    text = TEXT.of(context, given[0])
    return strict(call, VARIANT, [text], kernel, can_fail=call.name == "parse_json")


def cast(node: Node, value: Bound, to: pa.DataType, zone: tzinfo, *, safe: bool) -> Bound:
    """Values of VARIANT cast to a type of single values. JSON's null becomes NULL.

    Raises:
        Failure: no cast to the type is supported.
    """
    if not is_atomic(to):
        raise Failure(f"a cast from VARIANT to {spark_name(to)} is not supported")
    return strict(node, to, [value], _kernel_of_cast(to, zone, safe), can_fail=not safe)


def _kernel_of_cast(to: pa.DataType, zone: tzinfo, safe: bool) -> Kernel:

    def kernel(values: pa.Array) -> pa.Array:
        from lakehouse_source.schema.variant_columns import by_type  # imports numpy

        groups = by_type(values.storage)
        if groups is None:
            return one_by_one(values)
        parts = []
        for rows, alike in groups:
            places = pa.array(rows)
            if alike is None:
                parts.append((places, one_by_one(values.take(places))))
            else:
                parts.append((places, _cast_alike(alike, to, zone, safe)))
        return scatter(parts, to)

    def one_by_one(values: pa.Array) -> pa.Array:
        places: dict[pa.DataType, list[int]] = {}
        found: dict[pa.DataType, list[Any]] = {}
        for row, (metadata, value) in enumerate(_parts(values)):
            type_, one = pa.null(), None
            if metadata is not None and value is not None:
                type_, one = _typed(metadata, value, to)
            places.setdefault(type_, []).append(row)
            found.setdefault(type_, []).append(one)
        parts = []
        for type_, rows in places.items():
            cast = _cast_alike(unlisted(found[type_], type_), to, zone, safe)
            parts.append((pa.array(rows, pa.int64()), cast))
        return scatter(parts, to)

    return kernel


def _typed(metadata: bytes, value: bytes, to: pa.DataType) -> tuple[pa.DataType, Any]:
    """A value as one of another type, as `rows.listed` gives it; NULL has the type of NULL."""
    name, one = leaf_of(metadata, value)
    if name == "null":
        return pa.null(), None
    if name == "decimal":
        return pa.decimal128(38, max(0, -one.as_tuple().exponent)), one
    if name in _TYPES:
        return _TYPES[name], one
    if to == pa.string() and name in _WHOLE:
        # Marked as bytes, because the text of an object is cast to nothing else.
        return pa.large_string(), decode_json(metadata, value)
    if name in _WHOLE:
        return pa.large_string(), name
    raise Failure(f"a {name} in a VARIANT is not cast here")


def _cast_alike(given: pa.Array, to: pa.DataType, zone: tzinfo, safe: bool) -> pa.Array:
    values = given
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), to)
    if values.type == pa.large_string() and to == pa.string():
        return values.cast(to)
    if values.type == to:
        return values
    if values.type == pa.large_string() or not _has_cast(values.type, to):
        cast = pa.nulls(len(values), to)
    else:
        if pa.types.is_integer(values.type) and pa.types.is_timestamp(to):
            # Seconds too great for a timestamp fail; a cast of a BIGINT takes the greatest one.
            fits = pc.and_(pc.less_equal(values, _SECONDS), pc.greater_equal(values, -_SECONDS))
            values = pc.if_else(fits, values, None)
        cast = flat(cast_kernel(values.type, to, zone, safe=True)[0](values))
    if cast.null_count and not safe:
        first = given[next(n for n, one in enumerate(cast) if not one.is_valid)]
        raise Failure(f"the value {first} in a VARIANT cannot be cast to {spark_name(to)}")
    return cast


def _has_cast(from_: pa.DataType, to: pa.DataType) -> bool:
    """Tell whether Spark casts between two types at all (`Cast.canAnsiCast`)."""
    if pa.string() in (from_, to):
        return True
    if is_number(to):
        return is_number(from_) or from_ in (pa.bool_(), INSTANT)
    if to == pa.bool_():
        return is_number(from_)
    return is_moment(to) and (is_moment(from_) or (to == INSTANT and is_number(from_)))


_SOMETIMES = "NULL where an argument is NULL, or there is nothing at the path"
_PATH = Function(2, 2, _get, "VARIANT, a literal path", "VARIANT", nulls=_SOMETIMES)
OF_VARIANT: dict[str, Function] = {
    "variant_get": _PATH,
    "try_variant_get": _PATH,
    "is_variant_null": Function(1, 1, _is_json_null, "VARIANT", "BOOLEAN", nulls=NEVER),
    "parse_json": Function(1, 1, _parsed, "STRING", "VARIANT"),
    "try_parse_json": Function(
        1, 1, _parsed, "STRING", "VARIANT", nulls="NULL where the argument is NULL or not JSON"
    ),
}

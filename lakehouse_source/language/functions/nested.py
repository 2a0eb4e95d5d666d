"""Pure. Functions that make structs and arrays, and those of arrays."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.language.functions.entry import (
    INT,
    NEVER,
    TEXT,
    Builder,
    Context,
    Function,
)
from lakehouse_source.language.functions.rows import Bound, Rows, flat, literal, strict
from lakehouse_source.language.functions.text import to_re2
from lakehouse_source.language.nodes import Call, Literal, Name, Node
from lakehouse_source.language.types import common, is_atomic, is_float, spark_name
from lakehouse_source.language.values import Failure
from lakehouse_source.schema.fields import is_list_like


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

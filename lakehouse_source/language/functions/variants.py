"""Pure. Paths into values of VARIANT, and casts of these values to other types.

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
from lakehouse_source.language.functions.entry import NEVER, TEXT, Context, Function
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
from lakehouse_source.language.nodes import Call, Node
from lakehouse_source.language.types import (
    INSTANT,
    WALL,
    is_atomic,
    is_moment,
    is_number,
    spark_name,
)
from lakehouse_source.language.values import Failure
from lakehouse_source.schema.variant import METADATA, STORAGE, VALUE, VARIANT, is_variant, of_stored
from lakehouse_source.schema.variant_bytes import Finder, decode_json, is_json_null, leaf_of
from lakehouse_source.schema.variant_values import encode_json

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
FUNCTIONS: dict[str, Function] = {
    "variant_get": _PATH,
    "try_variant_get": _PATH,
    "is_variant_null": Function(1, 1, _is_json_null, "VARIANT", "BOOLEAN", nulls=NEVER),
    "parse_json": Function(1, 1, _parsed, "STRING", "VARIANT"),
    "try_parse_json": Function(
        1, 1, _parsed, "STRING", "VARIANT", nulls="NULL where the argument is NULL or not JSON"
    ),
}

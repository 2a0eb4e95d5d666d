"""Pure. The structs that files and Spark have for VARIANT, as columns of VARIANT.

A shredded column has some paths of its values as columns of their own types (`typed_value`), and
what does not fit them as bytes (`value`). The parts are turned into bytes column by column, and put
together row by row. A whole number gets the narrowest type, as when Spark reads it.

Source: Parquet format, VariantShredding.md.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.errors import SchemaMismatchError
from lakehouse_source.schema.variant import (
    METADATA,
    TYPED_VALUE,
    VALUE,
    VARIANT,
    holds_variant,
    of_stored,
    struct_like,
)
from lakehouse_source.schema.variant_bytes import BrokenValue, Names, checked
from lakehouse_source.schema.variant_values import (
    array_bytes,
    leaf_bytes,
    object_bytes,
    primitive,
)

t = pa.types

# The bytes of each row's value; None: there is none at this place.
Parts: TypeAlias = "list[bytes | None]"
_JSON_NULL = primitive(0)
_TYPES = {"float": 14, "date": 11, "time": 17, "us UTC": 12, "us": 13, "ns UTC": 18, "ns": 19}


def from_struct(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray | None:
    """A column from the struct that files or Spark have for it; None: it is another type.

    Raises:
        SchemaMismatchError: a value lacks one of them.
    """
    type_ = column.type
    if not holds_variant(type_):
        return None
    if any(one.name == TYPED_VALUE for one in type_):
        return pa.chunked_array([whole(chunk) for chunk in column.chunks], VARIANT)
    places = {one.name: at for at, one in enumerate(type_)}
    chunks = []
    for chunk in column.chunks:
        # `flatten` makes a field NULL where the struct is NULL.
        given = chunk.flatten()
        parts = [given[places[part]].cast(pa.binary()) for part in (METADATA, VALUE)]
        if any(part.null_count > chunk.null_count for part in parts):
            raise SchemaMismatchError(
                column=name,
                expected=VARIANT,
                reason="has a value of VARIANT without its bytes",
                hint="Make the column with lake.variant.",
            )
        chunks.append(of_stored(struct_like(parts, chunk)))
    return pa.chunked_array(chunks, VARIANT)


def whole(array: pa.Array) -> pa.Array:
    """A shredded column, a struct of `metadata`, `value` and `typed_value`, as VARIANT.

    Raises:
        CorruptDatasetError: the parts are no values of VARIANT.
    """
    with checked():
        given = dict(zip((field.name for field in array.type), array.flatten()))
        known: dict[bytes, Names] = {}
        names: list[Names] = []
        for metadata in given[METADATA].to_pylist():
            # A row that is NULL has no metadata.
            found = b"\x01\0\0" if metadata is None else metadata
            if found not in known:
                known[found] = Names(found)
            names.append(known[found])
        parts = _group(given.get(VALUE), given[TYPED_VALUE], names)
        rows = [
            {METADATA: one.metadata, VALUE: _JSON_NULL if part is None else part} if valid else None
            for valid, one, part in zip(array.is_valid().to_pylist(), names, parts)
        ]
    return pa.array(rows, VARIANT)


def _group(value: pa.Array | None, typed: pa.Array | None, names: Sequence[Names]) -> Parts:
    """The values of one place: `value`, `typed_value`, or an object with fields in both."""
    rest: Parts = [None] * len(names) if value is None else value.to_pylist()
    if typed is None:
        return rest
    if isinstance(typed.type, pa.BaseExtensionType):
        typed = typed.storage
    if t.is_struct(typed.type):
        return _objects(rest, typed, names)
    own = (
        _arrays(typed, names)
        if t.is_list(typed.type) or t.is_large_list(typed.type)
        else _leaves(typed)
    )
    for one, other in zip(rest, own):
        if one is not None and other is not None:
            raise BrokenValue("a value is there twice, shredded and not")
    return [one if other is None else other for one, other in zip(rest, own)]


def _objects(rest: Parts, typed: pa.Array, names: Sequence[Names]) -> Parts:
    shredded = [
        (field.name, _of_field(part, names)) for field, part in zip(typed.type, typed.flatten())
    ]
    found = list(rest)
    for row, valid in enumerate(typed.is_valid().to_pylist()):
        if not valid:
            continue
        left = rest[row]
        fields = {} if left is None else names[row].fields(left)
        for name, parts in shredded:
            part = parts[row]
            if part is not None:
                if name in fields:
                    raise BrokenValue(f"its field {name!r} is there twice, shredded and not")
                fields[name] = part
        ordered = sorted(fields.items(), key=lambda one: one[0].encode())
        found[row] = object_bytes([(names[row].id(name), part) for name, part in ordered])
    return found


def _of_field(group: pa.Array, names: Sequence[Names]) -> Parts:
    """The values of a field or an element, which is a group of its own."""
    if not t.is_struct(group.type):
        raise BrokenValue(f"a shredded field is {group.type}, not a group")
    given = dict(zip((field.name for field in group.type), group.flatten()))
    return _group(given.get(VALUE), given.get(TYPED_VALUE), names)


def _arrays(typed: pa.Array, names: Sequence[Names]) -> Parts:
    lengths = pc.list_value_length(typed).to_pylist()
    above = [one for one, size in zip(names, lengths) for _ in range(size or 0)]
    elements = iter(_of_field(typed.flatten(), above))
    found: Parts = []
    for size in lengths:
        if size is None:
            found.append(None)
            continue
        parts = [next(elements) for _ in range(size)]
        found.append(array_bytes([_JSON_NULL if part is None else part for part in parts]))
    return found


def _leaves(typed: pa.Array) -> Parts:
    """The values of a shredded leaf, each of the narrowest type, as Spark puts them together."""
    type_ = typed.type
    if t.is_float32(type_):
        return _packed(typed, _TYPES["float"], struct.Struct("<f").pack)
    if t.is_date32(type_):
        return _packed(typed.cast(pa.int32()), _TYPES["date"], struct.Struct("<i").pack)
    if t.is_time(type_) and type_.unit == "us":
        return _packed(typed.cast(pa.int64()), _TYPES["time"], struct.Struct("<q").pack)
    if t.is_timestamp(type_) and type_.unit in ("us", "ns"):
        name = type_.unit + (" UTC" if type_.tz is not None else "")
        return _packed(typed.cast(pa.int64()), _TYPES[name], struct.Struct("<q").pack)
    if t.is_fixed_size_binary(type_) and type_.byte_width == 16:
        return _packed(typed, 20, bytes)
    if (
        t.is_boolean(type_)
        or t.is_signed_integer(type_)
        or t.is_float64(type_)
        or t.is_decimal(type_)
        or type_ in (pa.string(), pa.binary(), pa.large_string(), pa.large_binary())
    ):
        return [None if one is None else leaf_bytes(one) for one in typed.to_pylist()]
    raise BrokenValue(f"it is shredded as {type_}, which the format does not have")


def _packed(values: pa.Array, type_: int, pack: Callable[..., bytes]) -> Parts:
    return [None if one is None else primitive(type_, pack(one)) for one in values.to_pylist()]

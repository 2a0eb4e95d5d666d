"""Pure. Parts of many values of VARIANT at once: what is at a path, and values by their types.

A rule for one value stands in `variant_bytes.py`. What is not answered here, because a value is
rare or its bytes are broken, is left to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.errors import CorruptDatasetError
from lakehouse_source.schema.variant import struct_like
from lakehouse_source.schema.variant_arrays import (
    Dictionaries,
    Numbers,
    Parts,
    Truths,
    masked,
    unsigned,
    value_sizes,
)
from lakehouse_source.schema.variant_bytes import checked
from lakehouse_source.schema.variant_paths import KINDS
from lakehouse_source.schema.variant_shredding import KIND_OF_HEAD, NUMBER_OF, leaf_array
from lakehouse_source.schema.variant_values import DECIMAL4, DECIMAL8, NULL

_SCALED = {DECIMAL4: 4, DECIMAL8: 8}
_MOST_SCALE = 18


def parts_at(storage: pa.StructArray, names: Sequence[str]) -> pa.Array | None:
    """What is at a path of names, as `metadata` and `value`; None: look at each value."""
    with suppress(CorruptDatasetError), checked():
        metadata, value = storage.flatten()
        known, parts = Dictionaries(metadata), Parts.of(value)
        for name in names:
            fields = known.fields(parts, known.codes)
            parts = parts.of_fields(fields, np.flatnonzero(fields.names == known.number(name)))
        found = parts.array()
        return struct_like([metadata, found], found)
    return None


def by_type(storage: pa.StructArray) -> Iterator[tuple[Numbers, pa.Array | None]] | None:
    """Rows, and their values in an array of their type; None: look at each value of these rows.

    The rows of NULL and of JSON's null have values of the type of NULL. None instead of all: the
    bytes of a value are broken.
    """
    with suppress(CorruptDatasetError), checked():
        parts = Parts.of(storage.flatten()[1])
        rows = np.flatnonzero(parts.present)
        if (value_sizes(parts.data, parts.starts[rows]) == parts.sizes[rows]).all():
            return iter([*_groups(parts)])
    return None


def _groups(parts: Parts) -> Iterator[tuple[Numbers, pa.Array | None]]:
    heads = parts.heads()
    kinds = np.where(parts.present, KIND_OF_HEAD[heads], -1)
    kinds[parts.present & (heads == NULL << 2)] = -1
    missing = np.flatnonzero(kinds == -1)
    yield missing, pa.nulls(len(missing))
    for kind, type_ in KINDS.items():
        if kind != "DECIMAL" and (kinds == NUMBER_OF[kind]).any():
            values, fits = leaf_array(parts, type_)
            kinds[fits] = -1
            yield np.flatnonzero(fits), values.filter(pa.array(fits))
    decimals = kinds == NUMBER_OF["DECIMAL"]
    for fits, numbers, scale in _decimals(parts, decimals):
        kinds[fits] = -1
        whole = np.stack([numbers[fits], numbers[fits] >> 63], 1)
        every = np.ones(len(whole), np.bool_)
        yield np.flatnonzero(fits), masked(pa.decimal128(38, scale), whole, every)
    others = np.flatnonzero(kinds != -1)
    yield others, None


def _decimals(parts: Parts, wanted: Truths) -> Iterator[tuple[Truths, Numbers, int]]:
    """Decimals of up to 64 bits without zeros at the end, by their scales."""
    heads = parts.heads()
    numbers, scales = np.zeros((2, len(heads)), np.int64)
    known = np.zeros(len(heads), np.bool_)
    for type_, width in _SCALED.items():
        rows = np.flatnonzero(wanted & (heads == type_ << 2))
        scales[rows] = parts.data[parts.starts[rows] + 1]
        shift = 64 - 8 * width
        numbers[rows] = unsigned(parts.data, parts.starts[rows] + 2, width) << shift >> shift
        known[rows] = True
    known &= scales <= _MOST_SCALE
    scales[numbers == 0] = 0
    while (zeros := known & (scales > 0) & (numbers % 10 == 0)).any():
        numbers[zeros] //= 10
        scales[zeros] -= 1
    for scale in np.unique(scales[known]):
        yield known & (scales == scale), numbers, int(scale)


_TEXT = pa.scalar(b"\x03", pa.binary())
_RANKS = {pa.bool_(): 1, pa.date32(): 4, KINDS["TIMESTAMP"]: 5, KINDS["TIMESTAMP_NTZ"]: 6}
_NUMBER = 2


def order_keys(storage: pa.StructArray, names: Sequence[str]) -> pa.Array:
    """Bytes that order rows by what is at a path: by its type, then by its value.

    Numbers of all types are compared, as floats. NULL: there is nothing that has an order.
    """
    found = parts_at(storage, names)
    groups = None if found is None else by_type(found)
    if groups is None:
        return pa.nulls(len(storage), pa.binary())
    rows, keys = [], []
    for at, values in groups:
        rows.append(at)
        keys.append(pa.nulls(len(at), pa.binary()) if values is None else _keys(values))
    every = np.concatenate(rows)
    places = np.empty_like(every)
    places[every] = np.arange(len(every))
    return pa.concat_arrays(keys).take(pa.array(places))


def number_or_text_keys(numbers: pa.Array, texts: pa.Array) -> pa.Array:
    """The keys of rows whose values were cast to DOUBLE and, where that is NULL, to STRING."""
    keys = _keys(numbers.fill_null(0.0))
    return pc.if_else(numbers.is_valid(), keys, _keys(texts.cast(pa.string())))


def _keys(values: pa.Array) -> pa.Array:
    if pa.types.is_null(values.type):
        return values.cast(pa.binary())
    if pa.types.is_string(values.type):
        return pc.binary_join_element_wise(_TEXT, values.cast(pa.binary()), b"")
    rank = _RANKS.get(values.type, _NUMBER)
    if pa.types.is_temporal(values.type):
        values = values.view(pa.int32() if pa.types.is_date32(values.type) else pa.int64())
    elif pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    numbers = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False) + 0.0
    bits = np.where(np.isnan(numbers), np.nan, numbers).view(np.uint64)  # NaN is the greatest
    sign = np.uint64(1 << 63)
    ordered = np.where(bits & sign, ~bits, bits | sign).astype(">u8")
    lines = np.empty((len(ordered), 9), np.uint8)
    lines[:, 0], lines[:, 1:] = rank, ordered.view(np.uint8).reshape(-1, 8)
    return pa.Array.from_buffers(pa.binary(9), len(lines), [None, pa.py_buffer(lines)]).cast(
        pa.binary()
    )

"""Pure. Parts of many values of VARIANT at once: what is at a path, and values by their types.

A rule for one value stands in `variant_bytes.py`. What is not answered here, because a value is
rare or its bytes are broken, is left to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

import numpy as np
import pyarrow as pa

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

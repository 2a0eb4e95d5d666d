"""Verb. Which files may hold one of many keys: the keys are looked for in all files at once.

The keys are in the order of their first column, so those within the bounds of a file are
neighbours. The bloom filters of a file are asked for these alone.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.language.functions.rows import flat
from lakehouse_source.model import ColumnBounds, Ordinal, ScanTask
from lakehouse_source.parquet.bloom import KeptFilter, RowGroupFilters, hashes_of, kept_filters
from lakehouse_source.schema.ordinal import domain, to_ordinal
from lakehouse_source.storage import Storage

# A file with fewer rows than this for each key to look for is read: it costs as much.
ROWS_PER_KEY = 8
# How many files of an object store are opened at the same time.
_FILES_AT_ONCE = 16


class KeySearch:
    """Keys of new rows. `keys` has the columns of the key, whose ids are `ids`, and no NULL."""

    def __init__(self, keys: pa.Table, ids: Sequence[int]) -> None:
        self.keys = keys.take(pc.sort_indices(keys.column(0)))
        self.ids = tuple(ids)
        self._types = dict(zip(ids, keys.schema.types))
        self._ordinals: dict[int, list[Any]] = {
            id: _ordinals(flat(one)) for id, one in zip(ids, self.keys.columns)
        }
        self._hashes: dict[tuple[int, pa.DataType, str], list[int] | None] = {}

    def within(self, bounds: Mapping[int, ColumnBounds]) -> Sequence[int]:
        """The places of the keys that are within the bounds of a file."""
        first, *others = self.ids
        known, values = bounds.get(first), self._ordinals[first]
        begin, end = 0, len(values)
        if known is not None and known.lower is not None:
            begin = bisect_left(values, known.lower)
        if known is not None and known.upper is not None:
            end = bisect_right(values, known.upper)
        found: Sequence[int] = range(begin, end)
        for id in others:
            known, values = bounds.get(id), self._ordinals[id]
            if known is not None and known.lower is not None and known.upper is not None:
                low, high = known.lower, known.upper  # of the type of the values
                found = [one for one in found if low <= values[one] <= high]
        return found

    def filtered(
        self,
        storage: Storage,
        reads: Sequence[tuple[ScanTask, Sequence[int]]],
        schemas: Mapping[int, pa.Schema],
    ) -> list[Sequence[int]]:
        """The keys of each file, without those that its bloom filters rule out."""

        def one(read: tuple[ScanTask, Sequence[int]]) -> Sequence[int]:
            task, places = read
            if len(places) * ROWS_PER_KEY > task.file_row_count:
                return places
            groups = kept_filters(storage, task, schemas[task.schema_version], self.ids)
            if not groups:
                return places
            wanted = range(len(groups)) if task.row_groups is None else task.row_groups
            left = [self._left(places, groups[index]) for index in wanted]
            return left[0] if len(left) == 1 else sorted({*chain.from_iterable(left)})

        if storage.is_local or len(reads) < 2:
            return [one(read) for read in reads]
        with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
            return [*pool.map(one, reads)]

    def _left(self, places: Sequence[int], filters: RowGroupFilters) -> Sequence[int]:
        """The keys that may be in a row group."""
        for id, one in filters.items():
            hashes = self._hashes_of(id, one)
            if hashes is not None:
                places = one.bloom.left(places, hashes)
        return places

    def _hashes_of(self, id: int, one: KeptFilter) -> list[int] | None:
        """The hashes of a column's values as a file stores them; None: they are not known."""
        key = id, one.written, one.physical
        if key not in self._hashes:
            values, now = self._ordinals[id], self._types[id]
            self._hashes[key] = hashes_of(values, one.written, now, one.physical)
        return self._hashes[key]


def _ordinals(values: pa.Array) -> list[Ordinal]:
    type_, kind = values.type, domain(values.type).kind
    if kind == "decimal":
        return [to_ordinal(value, type_) for value in values.to_pylist()]
    if kind in ("date", "timestamp", "time"):
        values = values.view(pa.int32() if type_.bit_width == 32 else pa.int64())
    elif kind == "string":
        values = values.cast(pa.binary())
    elif kind == "bool":
        values = values.cast(pa.int8())
    found: list[Ordinal] = values.to_pylist()
    return found

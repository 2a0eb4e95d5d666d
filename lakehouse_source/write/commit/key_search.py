"""Verb. Which files may hold one of many keys: the keys are looked for in all files at once.

The keys are in the order of their first column, so those within the bounds of a file are
neighbours. The bloom filters of a file are asked for these alone. What is known of files stays in
the process: with a thousand files, a step in Python for each would take as long as the commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import accumulate, islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.catalog.sql.reader import CatalogReader
from lakehouse_source.language import BoundPredicate
from lakehouse_source.language.functions.rows import flat
from lakehouse_source.model import ColumnBounds, FileRecord
from lakehouse_source.parquet.bloom import (
    HOLDS_ALL,
    FilterKind,
    Hashes,
    KeyFilter,
    Places,
    hashes_of,
    key_filters,
    may_hold,
    side_by_side,
)
from lakehouse_source.parquet.checked_footer import Remembered
from lakehouse_source.pruning.search import search
from lakehouse_source.read.candidates import RECORDS_OF_FILES, bounds_of_files
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.schema.fields import field_id
from lakehouse_source.schema.ordinal import domain, to_ordinal
from lakehouse_source.storage import Storage

# Up to this many new keys are looked up by their values, more by the range that they are in.
MOST_VALUES = 1_000_000
# A file with fewer rows than this for each key to look for is read: it costs as much.
ROWS_PER_KEY = 8
# How many files of an object store are opened at the same time.
_FILES_AT_ONCE = 16
# So many keys of all files are looked up at a time: their blocks fit into the processor's cache.
_KEYS_AT_ONCE = 16_384
# So many files' filters are put side by side: a step for each file takes as long as 30 keys.
_LOOSE_FILES = 64
# To look for one key among a file's takes as long as to ask for the marks of so many of these.
_KEYS_PER_STEP = 8
# The table of marks has 2 to this power: one key in 100 has the mark of one of 10,000 others.
_MARKS = 20
_SPREAD = np.uint64(0x9E3779B97F4A7C15)  # 2**64 by the golden ratio: neighbours lie far apart

ANY_PLACE: Places = np.zeros(0, np.int64)  # keys are not looked for one by one


@dataclass(slots=True)
class KeyFile:
    """A file: its bounds in the columns of a key, and once they were read their bloom filters.

    `values` are its keys in order, once they were read: they answer exactly, filters do not.
    `loose`: its filters are not side by side with those of others.
    """

    record: FileRecord
    bounds: Mapping[int, ColumnBounds]
    filters: Mapping[int, Sequence[KeyFilter]] = field(default_factory=dict)
    size_bytes: int = 1000
    values: Places | None = None
    loose: bool = True


# The files of keys by the history, the schema and the columns that they were looked up for. Files
# never change, so what was read once is right. A filter has two to four bytes for each row: those
# of 100 million rows are kept.
_KEPT_BYTES = 400 * 1024 * 1024
_KEPT: Remembered[tuple[object, ...], Mapping[int, KeyFile]] = Remembered(_KEPT_BYTES)


class KeyFiles:
    """The files of a snapshot that may hold rows of a condition, as the catalog's index tells.

    With `given`, these files alone: files of a transaction that writes, too, because a file is
    known by its path.
    """

    def __init__(
        self,
        reader: CatalogReader,
        snapshot: Snapshot,
        bound: BoundPredicate,
        given: Sequence[FileRecord] | None = None,
    ) -> None:
        self._key = snapshot.history, snapshot.schema_version, *bound.column_ids
        self._known = {} if snapshot.history is None else _KEPT.get(self._key) or {}
        if given is not None:
            ids = [file.id for file in given]
        elif bound.never_true:
            ids = []
        else:
            narrowed = None if bound.always_true else search(bound, snapshot.indexed)
            ids = reader.file_ids(snapshot.dataset.id, snapshot.version, narrowed)
        records = {file.id: file for file in given or ()}
        known = {id: self._known[id].record.path for id in records.keys() & self._known.keys()}
        others = {id for id, path in known.items() if records[id].path != path}
        new = [id for id in ids if id not in self._known or id in others]
        for start in range(0, len(new), RECORDS_OF_FILES):
            part = new[start : start + RECORDS_OF_FILES]
            some = [records[id] for id in part] if records else reader.files_by_id(part)
            found = files_with_bounds(reader, snapshot, bound, some)
            self._known = {**self._known, **{file.record.id: file for file in found}}
        self.files = [self._known[id] for id in ids]

    def keep(self) -> None:
        """Let the next commit know what was read of the files, as far as there is room."""
        if self._key[0] is None:
            return
        known = self._known
        size = sum(file.size_bytes for file in known.values())
        if size > _KEPT_BYTES:  # others may be gone from the dataset
            sizes = accumulate(file.size_bytes for file in self.files)
            known = {f.record.id: f for f, end in zip(self.files, sizes) if end <= _KEPT_BYTES}
            size = sum(file.size_bytes for file in known.values())
            for file in known.values():  # copied, so that the filters of the others leave memory
                file.loose = True
        _put_side_by_side([file for file in known.values() if file.loose and file.filters])
        _KEPT.put(self._key, known, size)


def _put_side_by_side(files: Sequence[KeyFile]) -> None:
    """Put the filters of files next to each other, if they are many."""
    if len(files) < _LOOSE_FILES:
        return
    together = {
        id: iter(side_by_side([one for file in files for one in file.filters[id]]))
        for id in files[0].filters
    }
    for file in files:
        found = {id: [*islice(together[id], len(of))] for id, of in file.filters.items()}
        file.filters, file.loose = found, False


def files_with_bounds(
    reader: CatalogReader, snapshot: Snapshot, bound: BoundPredicate, files: Sequence[FileRecord]
) -> list[KeyFile]:
    """Some files, with their bounds in the columns of a condition."""
    known = bounds_of_files(reader, snapshot, bound.column_ids, files)
    return [KeyFile(file, one) for file, one in zip(files, known)]


class KeySearch:
    """Keys of new rows. `keys` has the columns of the key, whose ids are `ids`, and no NULL."""

    def __init__(self, keys: pa.Table, ids: Sequence[int]) -> None:
        self.keys = keys.take(pc.sort_indices(keys.column(0)))
        self.ids = tuple(ids)
        self._types = dict(zip(ids, keys.schema.types))
        self._ordinals = {id: _ordinals(flat(one)) for id, one in zip(ids, self.keys.columns)}
        self._places: Places = np.arange(keys.num_rows)
        # What each kind of filter is asked for, by column. None: nothing, because it is not known.
        self._hashes: dict[int, dict[FilterKind, Hashes | None]] = {id: {} for id in ids}
        self._no_hashes: Hashes = np.zeros(keys.num_rows, np.uint64)
        self._marks: npt.NDArray[np.bool_] | None = None
        # Whether the keys of files can be remembered as numbers.
        self.is_numeric = len(ids) == 1 and self._ordinals[ids[0]].dtype != object

    @classmethod
    def of(cls, keys: pa.Table, schema: pa.Schema) -> KeySearch | None:
        """The search in files under a schema; None: a column has another type there."""
        fields = [schema.field(name) for name in keys.column_names]
        ids = [field_id(field) for field in fields]
        if not keys.num_rows or None in ids or keys.schema.types != [one.type for one in fields]:
            return None
        return cls(keys, [id for id in ids if id is not None])

    def within(self, files: Iterable[KeyFile]) -> list[tuple[KeyFile, Places]]:
        """The files that may hold keys by their bounds, each with the places of these keys."""
        files = [*files]
        first, *others = self.ids
        values = self._ordinals[first]
        known = [file.bounds.get(first) for file in files]
        least = [None if one is None else one.lower for one in known]
        most = [None if one is None else one.upper for one in known]
        # A bound that is not known is no bound.
        lower = np.array([values[0] if one is None else one for one in least], values.dtype)
        upper = np.array([values[-1] if one is None else one for one in most], values.dtype)
        begin = np.searchsorted(values, lower, "left").tolist()
        end = np.searchsorted(values, upper, "right").tolist()
        places = self._places
        found = [(file, places[a:b]) for file, a, b in zip(files, begin, end) if a < b]
        for id in others:
            found = [(file, self._between(id, file.bounds.get(id), at)) for file, at in found]
        return [one for one in found if len(one[1])] if others else found

    def _between(self, id: int, known: ColumnBounds | None, places: Places) -> Places:
        if known is None or known.lower is None or known.upper is None:
            return places
        values = self._ordinals[id][places]
        # In an array: NumPy takes the NULs from the end of bytes that are compared with one.
        lower, upper = (np.array([end], values.dtype) for end in (known.lower, known.upper))
        return places[(values >= lower) & (values <= upper)]

    def left(
        self,
        storage: Storage,
        files: Sequence[tuple[KeyFile, Places]],
        schemas: Mapping[int, pa.Schema],
    ) -> list[tuple[KeyFile, Places]]:
        """The same, without the keys that a file has not, as its keys or its filters tell."""
        known = self.among([one for one in files if one[0].values is not None])
        return [*known, *self._by_filters(storage, files, schemas)]

    def among_known(
        self, storage: Storage, files: Sequence[KeyFile], schemas: Mapping[int, pa.Schema]
    ) -> list[KeyFile]:
        """The files that may have a key as far as this process knows; none is opened."""
        may = self.within(files)
        known = [one for one in may if one[0].filters or one[0].values is not None]
        left = {file.record.id for file, _ in self.left(storage, known, schemas)}
        left.update(file.record.id for file, _ in may if not file.filters and file.values is None)
        return [file for file, _ in may if file.record.id in left]

    def remember(self, file: KeyFile, keys: Sequence[pa.Array]) -> None:
        """Remember all keys of a file."""
        file.values = np.sort(
            np.concatenate([self._places[:0], *(_ordinals(one.drop_null()) for one in keys)])
        )
        file.size_bytes += file.values.nbytes

    def among(self, files: Sequence[tuple[KeyFile, Places]]) -> list[tuple[KeyFile, Places]]:
        """The same, without the keys that a file has not whose keys are remembered."""
        mine, found = self._ordinals[self.ids[0]], []
        for file, places in files:
            theirs = file.values
            if theirs is not None:
                if len(places) * _KEYS_PER_STEP > len(theirs) and not self._may_have(theirs):
                    continue
                at = np.searchsorted(theirs, mine[places])
                inside = at < len(theirs)
                places = places[inside][theirs[at[inside]] == mine[places[inside]]]
            if len(places):
                found.append((file, places))
        return found

    def _may_have(self, values: Places) -> bool:
        """Tell whether one of the keys may be among some values. A key is a mark in a table."""
        mine = self._ordinals[self.ids[0]]
        if self._marks is None:
            self._marks = np.zeros(1 << _MARKS, bool)
            self._marks[_mark_of(mine)] = True
        few = values[self._marks[_mark_of(values)]]
        at = np.searchsorted(mine, few)
        return bool((mine[at.clip(max=len(mine) - 1)] == few).any())

    def _by_filters(
        self,
        storage: Storage,
        files: Sequence[tuple[KeyFile, Places]],
        schemas: Mapping[int, pa.Schema],
    ) -> list[tuple[KeyFile, Places]]:
        files = [one for one in files if one[0].values is None]
        if not files:
            return []

        def read(file: KeyFile) -> None:
            schema = schemas[file.record.schema_version]
            file.filters = key_filters(storage, file.record, schema, self.ids)
            file.size_bytes += sum(one.size_bytes for of in file.filters.values() for one in of)

        new = [file for file, _ in files if not file.filters]
        if storage.is_local or len(new) < 2:
            for file in new:
                read(file)
        else:
            with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
                [*pool.map(read, new)]
        sizes = [len(places) * len(file.filters[self.ids[0]]) for file, places in files]
        ends = np.cumsum(sizes)
        cuts = np.searchsorted(ends, np.arange(0, ends[-1], _KEYS_AT_ONCE)).tolist()
        parts = [slice(a, b) for a, b in zip(cuts, [*cuts[1:], len(files)]) if a < b]
        left = [self._places[:0], *(self._left(files, part) for part in parts)]
        found = np.unique(np.concatenate(left))
        owner, place = np.divmod(found, len(self._places))
        starts = np.flatnonzero(np.diff(owner, prepend=-1))
        each = zip(owner[starts], np.split(place, starts[1:]))
        return [(files[number][0], part) for number, part in each]

    def _left(self, files: Sequence[tuple[KeyFile, Places]], part: slice) -> Places:
        """For each key that may be in a file: the number of the file times all keys, and its place.

        Each row group is asked for the keys of its file.
        """
        first, some = self.ids[0], files[part]
        each = [places for file, places in some for _ in file.filters[first]]
        groups = [len(file.filters[first]) for file, _ in some]
        number = np.repeat(np.arange(part.start, part.stop), groups)
        group = np.repeat(np.arange(len(each)), [len(places) for places in each])
        place = np.concatenate(each)
        for column in self.ids:
            filters = [one for file, _ in some for one in file.filters[column]]
            known = self._hashes[column]
            for kind in {one.kind for one in filters}.difference(known):
                values, now = self._ordinals[column], self._types[column]
                known[kind] = hashes_of(values, kind.written, now, kind.physical)
            hashes = [self._no_hashes if one is None else one for one in known.values()]
            kinds = {kind: number for number, kind in enumerate(known)}
            kind_of = np.array([kinds[one.kind] for one in filters])
            asked = [HOLDS_ALL if known[one.kind] is None else one for one in filters]
            counts = np.bincount(group, minlength=len(each)).tolist()
            held = may_hold(asked, counts, np.stack(hashes)[kind_of[group], place])
            place, group = place[held], group[held]
        found: Places = number[group] * len(self._places) + place
        return found


def _mark_of(values: Places) -> Places:
    marks: Places = ((values.view(np.uint64) * _SPREAD) >> np.uint64(64 - _MARKS)).view(np.int64)
    return marks


def _ordinals(values: pa.Array) -> npt.NDArray[Any]:
    """The values in the form of bounds, as numbers where these have 64 bits."""
    type_, kind = values.type, domain(values.type).kind
    if domain(type_).temporal:
        values = values.view(pa.int32() if type_.bit_width == 32 else pa.int64())
    elif kind == "bool":
        values = values.cast(pa.int8())
    if pa.types.is_integer(values.type) and not pa.types.is_uint64(values.type):
        numbers: Places = values.cast(pa.int64()).to_numpy()
        return numbers
    if kind == "string":
        values = values.cast(pa.binary())
    found = values.to_pylist()
    if kind == "decimal":
        found = [to_ordinal(value, type_) for value in found]
    return np.array(found, object)

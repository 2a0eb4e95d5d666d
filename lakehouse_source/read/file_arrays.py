"""Verb. All live files of a version as arrays of numbers, for decisions about the whole layout.

The records of a million files would not fit into memory.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.catalog.sql.reader import CatalogReader
from lakehouse_source.errors import CorruptDatasetError
from lakehouse_source.model import FileRecord
from lakehouse_source.pruning.keys import EMPTY_LOWER
from lakehouse_source.read.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class LiveFiles:
    """The files of a version, ordered by version and id; each array has one number per file.

    `groups` has a number for each partition; None: the dataset has no partition columns.
    """

    ids: pa.Array
    sizes: pa.Array
    rows: pa.Array
    versions: pa.Array
    groups: pa.Array | None

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class Ranges:
    """The keys of a column in files of `LiveFiles`: those whose column has a value.

    `files` are the places of the files in the arrays of `LiveFiles`.
    """

    files: pa.Array
    lower: pa.Array
    upper: pa.Array


_NOT_RECORDED = object()


def live_files(reader: CatalogReader, snapshot: Snapshot) -> LiveFiles:
    """The files of the version, with their sizes, rows, versions and partitions."""
    ids, sizes, rows, versions, groups = (array("q") for _ in range(5))
    codes: dict[tuple[object, ...], int] = {}
    for page in reader.sweep_files(snapshot.dataset.id, snapshot.version):
        for place, numbers in ((0, ids), (1, sizes), (2, rows), (4, versions)):
            numbers.extend([row[place] for row in page])
        if snapshot.partition_by:
            groups.extend(_groups(reader, snapshot, page, codes))
    return LiveFiles(
        _array(ids),
        _array(sizes),
        _array(rows),
        _array(versions),
        _array(groups) if snapshot.partition_by else None,
    )


def _array(numbers: array[int]) -> pa.Array:
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])


def _groups(
    reader: CatalogReader,
    snapshot: Snapshot,
    page: Sequence[Sequence[int]],
    codes: dict[tuple[object, ...], int],
) -> list[int]:
    """A number for the partition of each file of a page; `codes` are those given so far."""
    texts = snapshot.partition_texts()
    by_key: dict[str, dict[int, str | None]] = {}
    ids = [row[0] for row in page]  # the write that began first may have ended last
    for id, key, value in reader.sweep_partitions(
        snapshot.dataset.id, snapshot.version, min(ids), max(ids)
    ):
        by_key.setdefault(key, {})[id] = value
    keys = tuple(sorted(by_key))
    values = [by_key[key] for key in keys]
    numbers = []
    for id, size, count, schema_version, version in page:
        # Many files share the same recorded values.
        recorded = (schema_version, keys, *[one.get(id, _NOT_RECORDED) for one in values])
        number = codes.get(recorded)
        if number is None:
            own = {key: one[id] for key, one in zip(keys, values) if id in one}
            file = FileRecord(id, "", size, count, schema_version, version, own, True)
            number = codes[recorded] = codes.setdefault(("values", *texts(file)), len(codes))
        numbers.append(number)
    return numbers


def ranges(reader: CatalogReader, snapshot: Snapshot, files: LiveFiles, column_id: int) -> Ranges:
    """The ranges of a column in the files, from the search index.

    Raises:
        CorruptDatasetError: the ends of a range are in the wrong order.
    """
    ids = array("q")
    lower, upper = list[pa.Array](), list[pa.Array]()
    for page in reader.sweep_bounds(snapshot.dataset.id, column_id):
        ids.extend([row[3] for row in page])
        upper.append(pa.array([row[1] for row in page], pa.binary()))
        lower.append(pa.array([row[2] for row in page], pa.binary()))
    places = pc.index_in(_array(ids), value_set=files.ids).cast(pa.int64())
    begins, ends = (pa.chunked_array(one, pa.binary()) for one in (lower, upper))
    # Skips files of other versions, and files in which every value is NULL.
    live = pc.and_(pc.is_valid(places), pc.not_equal(begins, EMPTY_LOWER))
    found = Ranges(*(_one(pc.filter(one, live)) for one in (places, begins, ends)))
    if pc.any(pc.greater(found.lower, found.upper)).as_py():
        raise CorruptDatasetError(
            path=snapshot.uri,
            reason=f"a bound of the column with id {column_id} is above the other end of its range",
        )
    del places, begins, ends, lower, upper, live
    # Frees the memory of the pages, before the caller needs memory for the ranges.
    pa.default_memory_pool().release_unused()
    return found


def _one(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(column, pa.Array):
        return column
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)

"""Verb. All live files of a version as arrays of numbers: what decides about the whole layout.

A record of each file would not fit into memory where a dataset has a million of them.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.catalog.sql.reader import CatalogReader
from lakehouse_source.model import FileRecord
from lakehouse_source.pruning.keys import EMPTY_LOWER
from lakehouse_source.read.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class LiveFiles:
    """The files of a version, ordered by id, each array with a number of each.

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


def live_files(reader: CatalogReader, snapshot: Snapshot) -> LiveFiles:
    """The files of the version, with their sizes, rows, versions and partitions."""
    ids, sizes, rows, versions, groups = (array("q") for _ in range(5))
    codes: dict[tuple[object, ...], int] = {}
    for page in reader.sweep_files(snapshot.dataset.id, snapshot.version):
        for id, size, count, _, version in page:
            ids.append(id)
            sizes.append(size)
            rows.append(count)
            versions.append(version)
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
    found: dict[int, list[tuple[str, str | None]]] = {}
    first, last = page[0][0], page[-1][0]
    for id, key, value in reader.sweep_partitions(
        snapshot.dataset.id, snapshot.version, first, last
    ):
        found.setdefault(id, []).append((key, value))
    numbers = []
    for id, size, count, schema_version, version in page:
        # Most files share what they record with many others.
        recorded = (schema_version, *found.get(id, ()))
        if recorded not in codes:
            file = FileRecord(
                id, "", size, count, schema_version, version, dict(found.get(id, ())), True
            )
            codes[recorded] = codes.setdefault(("values", *texts(file)), len(codes))
        numbers.append(codes[recorded])
    return numbers


def ranges(reader: CatalogReader, snapshot: Snapshot, files: LiveFiles, column_id: int) -> Ranges:
    """The ranges of a column in the files, from the search index."""
    pages = []
    for page in reader.sweep_bounds(snapshot.dataset.id, column_id):
        _, upper, lower, ids = zip(*page)
        places = pc.index_in(pa.array(ids, pa.int64()), value_set=files.ids)
        table = pa.table(
            {
                "file": places.cast(pa.int64()),
                "lower": pa.array(lower, pa.binary()),
                "upper": pa.array(upper, pa.binary()),
            }
        )
        # Files of other versions, and those in which every value is NULL.
        live = pc.and_(pc.is_valid(places), pc.not_equal(table["lower"], EMPTY_LOWER))
        pages.append(table.filter(live))
    if not any(page.num_rows for page in pages):
        return Ranges(pa.array([], pa.int64()), *(pa.array([], pa.binary()) for _ in range(2)))
    whole = pa.concat_tables(pages).combine_chunks()
    return Ranges(*(_one(whole[name]) for name in ("file", "lower", "upper")))


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)

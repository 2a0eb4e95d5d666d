"""Verb. All live files of a version as arrays of numbers, and which of them to sort together.

The records of a million files would not fit into memory.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.catalog.sql.reader import CatalogReader
from lakehouse_source.errors import CorruptDatasetError, InvalidOptionError
from lakehouse_source.layout import PlacedFiles, depth_of_boxes, merges, ranks
from lakehouse_source.model import FileRecord
from lakehouse_source.pruning.keys import EMPTY_LOWER
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.schema.fields import Leaf
from lakehouse_source.schema.paths import order_leaves
from lakehouse_source.schema.variant_paths import KINDS


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
    pages: list[list[pa.Array]] = []
    codes: dict[object, int] = {}
    for page in reader.sweep_files(snapshot.dataset.id, snapshot.version):
        ids, sizes, rows, _, versions = page
        groups = [_groups(reader, snapshot, page, codes)] if snapshot.partition_by else []
        pages.append([ids, sizes, rows, versions, *groups])
    nothing = [pa.array([], pa.int64())] * (5 if snapshot.partition_by else 4)
    ids, sizes, rows, versions, *groups = map(pa.concat_arrays, zip(nothing, *pages))
    del pages
    files = LiveFiles(ids, sizes, rows, versions, groups[0] if groups else None)
    return files if _are_ordered(files) else _ordered(files)


def _are_ordered(files: LiveFiles) -> bool:
    """Tell whether files are in the order of versions and ids."""
    if len(files) < 2:
        return True
    (ids, later), (versions, above) = ((one[:-1], one[1:]) for one in (files.ids, files.versions))
    follows = pc.and_(pc.equal(versions, above), pc.less(ids, later))
    return bool(pc.all(pc.or_(pc.less(versions, above), follows)).as_py())


def _ordered(files: LiveFiles) -> LiveFiles:
    keys = pa.table([files.versions, files.ids], ["version", "id"])
    order = pc.sort_indices(keys, [("version", "ascending"), ("id", "ascending")])
    groups = None if files.groups is None else files.groups.take(order)
    columns = (files.ids, files.sizes, files.rows, files.versions)
    ids, sizes, rows, versions = (one.take(order) for one in columns)
    return LiveFiles(ids, sizes, rows, versions, groups)


def _groups(
    reader: CatalogReader,
    snapshot: Snapshot,
    page: Sequence[pa.Array],
    codes: dict[object, int],
) -> pa.Array:
    """A number for the partition of each file of a page; `codes` are those given so far."""
    texts = snapshot.partition_texts()
    ids, schema_versions = page[0], page[3]
    by_key: dict[str, tuple[list[object], list[pa.Array]]] = {}
    for key, value, some in reader.sweep_partitions(snapshot.dataset.id, snapshot.version, ids):
        values, files = by_key.setdefault(key, ([_NOT_RECORDED], []))
        values.append(value)
        files.append(some)
    keys = tuple(sorted(by_key))
    # Many files share the same recorded values. `shared` has a number for each combination of them,
    # from 0 on: a column more multiplies it by the number of the column's values at most.
    shared = schema_versions.dictionary_encode().indices.cast(pa.int64())
    chosen = []
    for key in keys:
        values, files = by_key[key]
        ends = pa.array(accumulate(len(some) for some in files), pa.int64())
        numbers = pa.array(range(1, len(values)), pa.int64())
        each = pc.run_end_decode(pa.RunEndEncodedArray.from_arrays(ends, numbers))
        places = pc.index_in(ids, value_set=pa.concat_arrays(files))
        chosen.append(pc.fill_null(each.take(places), 0))
        both = pc.add(pc.multiply(shared, len(values)), chosen[-1])
        shared = both.dictionary_encode().indices.cast(pa.int64())
    combinations = pa.array(range((pc.max(shared).as_py() or 0) + 1), pa.int64())
    examples = pc.index_in(combinations, value_set=shared)
    columns = (one.take(examples).to_pylist() for one in (*page, *chosen))
    found = []
    for id, size, count, schema_version, version, *numbers in zip(*columns):
        recorded = [by_key[key][0][number] for key, number in zip(keys, numbers)]
        own = {key: one for key, one in zip(keys, recorded) if one is not _NOT_RECORDED}
        file = FileRecord(id, "", size, count, schema_version, version, own, True)
        found.append(codes.setdefault(tuple(texts(file)), len(codes)))
    return pa.array(found, pa.int64()).take(shared)


def ranges(reader: CatalogReader, snapshot: Snapshot, files: LiveFiles, column_id: int) -> Ranges:
    """The ranges of a column in the files, from the search index.

    Raises:
        CorruptDatasetError: the ends of a range are in the wrong order.
    """
    pages = list(zip(*reader.sweep_bounds(snapshot.dataset.id, column_id)))
    ids, begins, ends = map(pa.chunked_array, pages)
    places = pc.index_in(ids, value_set=files.ids).cast(pa.int64())
    # Skips files of other versions, and files in which every value is NULL.
    live = pc.and_(pc.is_valid(places), pc.not_equal(begins, EMPTY_LOWER))
    found = Ranges(*(_one(pc.filter(one, live)) for one in (places, begins, ends)))
    if pc.any(pc.greater(found.lower, found.upper)).as_py():
        raise CorruptDatasetError(
            path=snapshot.uri,
            reason=f"a bound of the column with id {column_id} is above the other end of its range",
        )
    del pages, ids, places, begins, ends, live
    # Frees the memory of the pages, before the caller needs memory for the ranges.
    pa.default_memory_pool().release_unused()
    return found


def ranges_of(reader: CatalogReader, snapshot: Snapshot, files: LiveFiles, leaf: Leaf) -> Ranges:
    """The ranges of what rows are ordered by, from the search index.

    A file has a range in the one type in which it has the values of a path of VARIANT. Ranges of
    different types do not overlap.
    """
    if leaf.column_id is None:
        return ranges(reader, snapshot, files, leaf.id)
    found = [ranges(reader, snapshot, files, leaf.id + kind) for kind in range(len(KINDS))]
    ends = [
        [
            pc.binary_join_element_wise(pa.scalar(bytes([kind]), pa.binary()), one, b"")
            for kind, one in enumerate(side)
        ]
        for side in ([one.lower for one in found], [one.upper for one in found])
    ]
    return Ranges(pa.concat_arrays([one.files for one in found]), *map(pa.concat_arrays, ends))


def _one(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(column, pa.Array):
        return column
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


# --- Which files are to be sorted together, from the catalog alone: no file is opened.


# The metadata key of a commit whose files are one run: the field ids of the sort columns.
CLUSTERED = "clustered_by"
# Files of a commit that the history lacks are a run if at most this many hold the same value.
_RUN_DEPTH = 3


@dataclass(frozen=True, slots=True)
class Piece:
    """Files of one partition to sort together, by their ids, and their bytes."""

    file_ids: tuple[int, ...]
    size_bytes: int


def clustering_columns(snapshot: Snapshot) -> list[Leaf]:
    """The columns that the dataset is clustered by, without those of its partitions."""
    names = snapshot.dataset.properties.layout.cluster_by or ()
    known = order_leaves(snapshot.schema)
    columns = [known[name] for name in names if known[name].path[0] not in snapshot.partition_by]
    if not columns:
        raise InvalidOptionError(
            option="cluster_by",
            reason=f"is not set for {snapshot.uri}, beside its partition columns. Choose one to "
            "four columns: dataset.set_properties(cluster_by=[...]).",
        )
    for leaf in columns:
        if leaf.id not in snapshot.indexed:
            raise InvalidOptionError(
                option="cluster_by",
                value=".".join(leaf.path),
                reason="is not in the search index, which tells how files overlap. Add it: "
                "dataset.set_properties(index_columns=[...]).",
            )
    return columns


def find_pieces(
    reader: CatalogReader, snapshot: Snapshot, columns: Sequence[Leaf], *, full: bool = False
) -> list[Piece]:
    """What to sort in the newest version, the smallest piece first; with `full` all files.

    The result is empty if there is nothing to do.
    """
    files = live_files(reader, snapshot)
    if full:
        return sorted((_piece(files, some) for some in _by_partition(files)), key=_size)
    found = []
    candidates = [some for some in _by_partition(files) if len(some) > 1]
    if candidates:
        placed = _placed(reader, snapshot, files, columns)
        for some in candidates:
            mine = _of(placed, some)
            found += [_piece(files, [some[place] for place in piece]) for piece in merges(mine)]
    return sorted(found, key=_size)


def _size(piece: Piece) -> int:
    return piece.size_bytes


def _piece(files: LiveFiles, some: Sequence[int]) -> Piece:
    chosen = pa.array(some, pa.int64())
    return Piece(
        tuple(files.ids.take(chosen).to_pylist()), pc.sum(files.sizes.take(chosen)).as_py()
    )


def _by_partition(files: LiveFiles) -> Iterator[list[int]]:
    """The places of the files of each partition."""
    if files.groups is None:
        if len(files):
            yield list(range(len(files)))
        return
    found: dict[int, list[int]] = {}
    for place, group in enumerate(files.groups.to_pylist()):
        found.setdefault(group, []).append(place)
    yield from found.values()


def _placed(
    reader: CatalogReader, snapshot: Snapshot, files: LiveFiles, columns: Sequence[Leaf]
) -> PlacedFiles:
    """All files with their ranges; a run is one file, or the files of one commit."""
    lower, upper = [], []
    everywhere = pa.array(range(len(files)), pa.int64())
    for leaf in columns:
        found = ranges_of(reader, snapshot, files, leaf)
        low, high = ranks(found.lower, found.upper)
        own = pc.index_in(everywhere, value_set=found.files)
        # A column without a value in a file is NULL in all rows, and NULL comes first.
        lower.append(pc.fill_null(low.take(own), 0))
        upper.append(pc.fill_null(high.take(own), 0))
    ids = [leaf.id for leaf in columns]
    runs = _runs(reader, snapshot, files, ids, lower, upper)
    return PlacedFiles(files.sizes.to_pylist(), runs, lower, upper)


def _of(placed: PlacedFiles, some: Sequence[int]) -> PlacedFiles:
    chosen = pa.array(some, pa.int64())
    return PlacedFiles(
        [placed.sizes[place] for place in some],
        [placed.runs[place] for place in some],
        [low.take(chosen) for low in placed.lower],
        [high.take(chosen) for high in placed.upper],
    )


def _runs(
    reader: CatalogReader,
    snapshot: Snapshot,
    files: LiveFiles,
    column_ids: Sequence[int],
    lower: Sequence[pa.Array],
    upper: Sequence[pa.Array],
) -> list[int]:
    """A number per file: the version of its commit if that is one run, else a number of its own."""
    versions = files.versions.to_pylist()
    counts = pc.value_counts(files.versions).to_pylist()
    several = {one["values"] for one in counts if one["counts"] > 1}
    known = {}
    for one in reader.transactions(snapshot.dataset.id) if several else ():
        known[one.version] = list(one.metadata.get(CLUSTERED, ())) == list(column_ids)
    runs = {version for version in several if known.get(version)}
    for version in several - known.keys():
        # The commit was expired and left the history: the ranges of its files decide.
        mine = pc.indices_nonzero(pc.equal(files.versions, version))
        boxes = [(low.take(mine), high.take(mine)) for low, high in zip(lower, upper)]
        groups = None if files.groups is None else files.groups.take(mine)
        if depth_of_boxes(boxes, groups).most <= _RUN_DEPTH:
            runs.add(version)
    return [version if version in runs else -1 - place for place, version in enumerate(versions)]


def neighbours(
    reader: CatalogReader, snapshot: Snapshot, groups: Sequence[Sequence[int]]
) -> list[list[int]]:
    """Groups of files, by ids, each of one partition, divided where another file lies between.

    A file lies between two files if its values of the first clustering column are above the values
    of one file and below those of the other.
    """
    columns = clustering_columns(snapshot)[:1]
    files = live_files(reader, snapshot)
    placed = _placed(reader, snapshot, files, columns)
    ids, (lower, upper) = files.ids.to_pylist(), (placed.lower[0], placed.upper[0])
    low, high = (dict(zip(ids, one.to_pylist())) for one in (lower, upper))
    wanted = {id: number for number, group in enumerate(groups) for id in group}
    found: list[list[int]] = []
    for some in _by_partition(files):
        mine = [ids[place] for place in some]
        numbers = {wanted[id] for id in mine if id in wanted}
        for number in sorted(numbers):
            group = sorted(groups[number], key=lambda id: (low[id], high[id]))
            others = sorted((low[id], high[id]) for id in set(mine).difference(group))
            found += _divided(group, low, high, others)
    return found


def _divided(
    group: Sequence[int],
    low: Mapping[int, int],
    high: Mapping[int, int],
    others: Sequence[tuple[int, int]],
) -> Iterator[list[int]]:
    begins = [one[0] for one in others]
    reaches = list(accumulate((one[1] for one in others), max))
    now: list[int] = []
    reach = 0
    for id in group:
        before = bisect_left(begins, low[id])  # others that begin below this file
        if now and before and low[id] > reach and reaches[before - 1] > reach:
            yield now
            now = []
        reach = max(reach, high[id]) if now else high[id]
        now.append(id)
    if now:
        yield now

"""Verb. Which files are to be sorted together, from the catalog alone: no file is opened."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.catalog.sql.reader import CatalogReader
from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.layout.depth import depth_of_boxes, ranks
from lakehouse_source.layout.merges import PlacedFiles, merges
from lakehouse_source.read.file_arrays import LiveFiles, live_files, ranges
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.schema.fields import Leaf, leaves
from lakehouse_source.schema.paths import leaf_paths

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
    by_path = {leaf.path: leaf for leaf in leaves(snapshot.schema)}
    columns = [
        by_path[path]
        for path in leaf_paths(names, snapshot.schema)
        if path[0] not in snapshot.partition_by
    ]
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
        found = ranges(reader, snapshot, files, leaf.id)
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

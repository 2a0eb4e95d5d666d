"""Verb. How well the files of a dataset are laid out, and what upkeep would do about it.

All of it is in the catalog: no file is opened. Sizes are in bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.catalog.sql.reader import CatalogReader
from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.layout import MOST_RUNS, Depth, depth_of_boxes, depth_of_ranges
from lakehouse_source.parquet.read_write_specs import TARGET_FILE_SIZE_BYTES
from lakehouse_source.read.drawable import Drawable
from lakehouse_source.read.file_arrays import (
    LiveFiles,
    Ranges,
    clustering_columns,
    find_pieces,
    live_files,
    ranges_of,
)
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.schema.fields import Leaf
from lakehouse_source.schema.paths import order_leaves

if TYPE_CHECKING:
    from lakehouse_source.pictures.markup import Markup

# A file of less than this share of the target size is small. A larger one is left alone: rewriting
# it would cost more than one file less saves.
SMALL_SHARE = 0.5
# The most columns that are measured by default; the others must be named.
_COLUMNS = 4
# A compaction is worth its work where it leaves at most this share of the files, and an expiry or
# a rewrite of files with deleted rows where it frees at least this share of the bytes or rows.
_FEWER_FILES = 0.8
_WORTH_SHARE = 0.2
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class SizeClass:
    """Files of at most `up_to_bytes` bytes (None: any larger size)."""

    up_to_bytes: int | None
    files: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Suggestion:
    """What one call of upkeep would do: how many files and bytes it would rewrite or delete."""

    action: str
    files: int
    size_bytes: int
    is_worth_it: bool
    reason: str


@dataclass(frozen=True, slots=True)
class HealthReport(Drawable):
    """What `health()` found; prints as a table, and as pictures in notebooks.

    `rows` counts all rows of the files, deleted ones included; `deleted_rows` counts the deleted
    ones. `depths` has the overlap of files by columns.
    """

    dataset: str
    version: int
    files: int
    size_bytes: int
    rows: int
    deleted_rows: int
    small_files: int
    small_bytes: int
    sizes: tuple[SizeClass, ...]
    depths: Mapping[str, Depth]
    suggestions: tuple[Suggestion, ...]
    draw: Callable[[], Markup] | None = field(default=None, repr=False, compare=False)

    @property
    def is_good(self) -> bool:
        """Tell whether nothing is worth doing."""
        return not any(one.is_worth_it for one in self.suggestions)

    def table(self) -> Iterator[tuple[str, str, int | None, int | None, float | None, str]]:
        """Rows of: measure, what of, files, bytes, value, and what the value means."""
        yield "files", "", self.files, self.size_bytes, float(self.rows), "rows"
        share = self.deleted_rows / self.rows if self.rows else 0.0
        yield "deleted", "", None, None, share, "share of the rows"
        for one in self.sizes:
            limit = "larger" if one.up_to_bytes is None else f"up to {one.up_to_bytes:,} bytes"
            yield "size", limit, one.files, one.size_bytes, None, ""
        yield "small", "", self.small_files, self.small_bytes, None, "less than half of the target"
        for column, depth in self.depths.items():
            yield "average depth", column, depth.files, None, depth.average, "files at a value"
            yield "greatest depth", column, depth.files, None, float(depth.most), "files at a value"
            for most, files in depth.histogram.items():
                what = f"{column}, at most {most}"
                yield "depth", what, files, None, float(most), "files at a value"
        for step in self.suggestions:
            worth = 1.0 if step.is_worth_it else 0.0
            yield step.action, "", step.files, step.size_bytes, worth, step.reason

    def __str__(self) -> str:
        worth = ", ".join(one.action for one in self.suggestions if one.is_worth_it)
        verdict = "nothing is worth doing" if self.is_good else f"worth doing: {worth}"
        lines = [f"{self.dataset}, version {self.version}: {verdict}"]
        for measure, what, files, size, value, note in self.table():
            cells = [measure, what]
            cells += [] if files is None else [f"{files:,} files"]
            cells += [] if size is None else [f"{size:,} bytes"]
            cells += [] if value is None else [f"{value:,.4g}"]
            lines.append("  " + "  ".join(one for one in (*cells, note) if one))
        return "\n".join(lines)


def health(
    reader: CatalogReader, snapshot: Snapshot, columns: Sequence[str] | None = None
) -> HealthReport:
    """Look at the files of the newest version.

    The overlap is measured for `columns`: by default for the clustering columns, together and each
    alone; else for those of `sort_by`; else for the first of the index.

    Raises:
        InvalidOptionError: a column is not in the search index.
    """
    files = live_files(reader, snapshot)
    small = pc.less(files.sizes, small_limit(snapshot))
    rows = pc.sum(files.rows).as_py() or 0
    size = pc.sum(files.sizes).as_py() or 0
    deleted = max(0, rows - snapshot.summary.get("live_rows", rows))
    return HealthReport(
        dataset=snapshot.uri,
        version=snapshot.version,
        files=len(files),
        size_bytes=size,
        rows=rows,
        deleted_rows=deleted,
        small_files=pc.sum(small).as_py() or 0,
        small_bytes=pc.sum(files.sizes.filter(small)).as_py() or 0,
        sizes=_sizes(files.sizes),
        depths=_depths(reader, snapshot, files, columns),
        suggestions=(
            *_clustering(reader, snapshot),
            _compaction(files, small, target_size(snapshot)),
            *_deletions(deleted, rows, size),
            *_old(reader, snapshot, size),
        ),
    )


def target_size(snapshot: Snapshot) -> int:
    """How many bytes a file of the dataset should have."""
    return snapshot.dataset.properties.layout.target_file_size_bytes or TARGET_FILE_SIZE_BYTES


def small_limit(snapshot: Snapshot) -> int:
    """A file with fewer bytes is small."""
    return max(1, int(target_size(snapshot) * SMALL_SHARE))


def _sizes(sizes: pa.Array) -> tuple[SizeClass, ...]:
    found = []
    below: int | None = 0
    for limit in (_MIB, 16 * _MIB, 64 * _MIB, 256 * _MIB, 1024 * _MIB, None):
        mine = pc.greater(sizes, below)
        if limit is not None:
            mine = pc.and_(mine, pc.less_equal(sizes, limit))
        some = sizes.filter(mine)
        if len(some):
            found.append(SizeClass(limit, len(some), pc.sum(some).as_py()))
        below = limit
    return tuple(found)


# --- overlap ---------------------------------------------------------------------------


def _depths(
    reader: CatalogReader, snapshot: Snapshot, files: LiveFiles, columns: Sequence[str] | None
) -> dict[str, Depth]:
    known = {
        name: leaf
        for name, leaf in order_leaves(snapshot.schema).items()
        if leaf.id in snapshot.indexed
    }
    is_usual = columns is None
    if columns is None:
        columns = usual_columns(snapshot, known)
    by_case = {name.lower(): name for name in known}
    together = is_usual and snapshot.dataset.properties.layout.cluster_by and len(columns) > 1
    found: list[Ranges] = []
    depths = {}
    for column in columns:
        name = by_case.get(column.lower())
        if name is None:
            raise InvalidOptionError(
                option="columns", value=column, reason="is not in the search index.", known=known
            )
        one = ranges_of(reader, snapshot, files, known[name])
        groups = None if files.groups is None else files.groups.take(one.files)
        depths[name] = depth_of_ranges(one.lower, one.upper, groups)
        if together:  # otherwise the ranges of only one column are in memory at a time
            found.append(one)
    if together:
        depths[", ".join(depths)] = _together(files, found)
    return depths


def _together(files: LiveFiles, columns: Sequence[Ranges]) -> Depth:
    """The depth by several columns together, of the files that have a value in each column."""
    places = columns[0].files
    for one in columns[1:]:
        places = places.filter(pc.is_in(places, value_set=one.files))
    boxes = []
    for one in columns:
        own = pc.index_in(places, value_set=one.files)
        boxes.append((one.lower.take(own), one.upper.take(own)))
    return depth_of_boxes(boxes, None if files.groups is None else files.groups.take(places))


def usual_columns(snapshot: Snapshot, known: Mapping[str, Leaf]) -> list[str]:
    """The columns whose overlap is measured by default; `known` are the indexed ones."""
    layout = snapshot.dataset.properties.layout
    own = [name for name in layout.cluster_by or layout.sort_by or () if name in known]
    others = [name for name, leaf in known.items() if leaf.path[0] not in snapshot.partition_by]
    return own or others[:_COLUMNS]


# --- what upkeep would do ------------------------------------------------------------------


def _clustering(reader: CatalogReader, snapshot: Snapshot) -> Iterator[Suggestion]:
    """What the first look of `cluster()` finds; nothing without clustering columns."""
    try:
        columns = clustering_columns(snapshot)
    except InvalidOptionError:
        return
    pieces = find_pieces(reader, snapshot, columns)
    yield Suggestion(
        "cluster",
        sum(len(piece.file_ids) for piece in pieces),
        sum(piece.size_bytes for piece in pieces),
        bool(pieces),
        f"files that overlap: more than {MOST_RUNS} hold one value",
    )


def _compaction(files: LiveFiles, small: pa.Array, target: int) -> Suggestion:
    """The small files of partitions that have several, as `compact()` takes them."""
    groups = files.groups
    if groups is None:
        groups = pa.repeat(pa.scalar(0, pa.int64()), len(files))
    table = pa.table({"group": groups, "size": files.sizes}).filter(small)
    by_group = table.group_by("group").aggregate([("size", "count"), ("size", "sum")])
    several = by_group.filter(pc.greater_equal(by_group["size_count"], 2))
    count = pc.sum(several["size_count"]).as_py() or 0
    size = pc.sum(several["size_sum"]).as_py() or 0
    after = several.num_rows + size // target
    left = len(files) - count + after
    return Suggestion(
        "compact",
        count,
        size,
        count > 0 and left <= _FEWER_FILES * len(files),
        f"about {left:,} {'file' if left == 1 else 'files'} would be left of {len(files):,}",
    )


def _deletions(deleted: int, rows: int, size: int) -> Iterator[Suggestion]:
    """A rewrite of files with deleted rows; the catalog tells rows, and bytes are estimated."""
    if deleted:
        share = deleted / rows
        reason = f"{deleted:,} deleted rows of {rows:,} would leave the files"
        yield Suggestion(
            "compact(rewrite_deleted=True)", 0, int(size * share), share >= _WORTH_SHARE, reason
        )


def _old(reader: CatalogReader, snapshot: Snapshot, size: int) -> Iterator[Suggestion]:
    """What a vacuum frees now, and what it would free if only the newest version was kept."""
    (expired, expired_bytes), (older, older_bytes) = reader.old_files(snapshot.dataset)
    yield Suggestion(
        "vacuum",
        expired,
        expired_bytes,
        expired > 0,
        "files that only expired versions have; orphans are not counted",
    )
    yield Suggestion(
        "expire_versions",
        older,
        older_bytes,
        older_bytes > 0 and older_bytes >= _WORTH_SHARE * size,
        "files that only older versions have, without a tag",
    )

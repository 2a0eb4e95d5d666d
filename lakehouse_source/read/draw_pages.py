"""Verb. Pages of pictures, from the catalog alone: of `health()`, and of a scan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow.compute as pc

from lakehouse_source.catalog.sql.reader import CatalogReader
from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.language import BoundPredicate
from lakehouse_source.model import Ordinal
from lakehouse_source.pictures.figures import Share, Version, boxes, shares, sizes, versions
from lakehouse_source.pictures.markup import Markup
from lakehouse_source.pictures.page import PIECES, Figure, Group, Listing, fragment
from lakehouse_source.pictures.ranges import Column, Files, intervals, overlap
from lakehouse_source.pictures.scale import size_text
from lakehouse_source.read.candidates import candidates
from lakehouse_source.read.draw import column_of, files_of
from lakehouse_source.read.file_arrays import (
    LiveFiles,
    Piece,
    clustering_columns,
    find_pieces,
    live_files,
)
from lakehouse_source.read.health import HealthReport, small_limit, target_size, usual_columns
from lakehouse_source.read.plan import Pruning, kept_by_partition, partition_ids
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.schema.fields import Leaf, leaves

# --- The page of `health()`: overlap and sizes of files, versions, what `cluster` changes.


_MOST_HEALTH_COLUMNS = 8  # so that a page of many files stays small


def health_page(reader: CatalogReader, snapshot: Snapshot, report: HealthReport) -> Markup:
    """The picture of what `health` found."""
    found = live_files(reader, snapshot)
    by_name = {".".join(leaf.path): leaf for leaf in leaves(snapshot.schema)}
    # The depth of several columns together is named by all of them.
    names = [name for name in report.depths if name in by_name][:_MOST_HEALTH_COLUMNS]
    columns = [column_of(reader, snapshot, found, by_name[name]) for name in names]
    state = "Nothing is worth doing." if report.is_good else "Worth doing: " + ", ".join(
        one.action for one in report.suggestions if one.is_worth_it
    )  # fmt: skip
    return fragment(
        f"Health of {report.dataset}",
        f"Version {report.version}: {report.files:,} files, {size_text(report.size_bytes)}, "
        f"{report.rows:,} rows of which {report.deleted_rows:,} are deleted. {state}",
        [_upkeep(report), *_health_figures(reader, snapshot, report, found, columns)],
    )


def _upkeep(report: HealthReport) -> Listing:
    return Listing(
        "What upkeep would do",
        ("call", "worth doing", "files", "bytes", "because"),
        [
            (
                one.action,
                "yes" if one.is_worth_it else "no",
                one.files,
                one.size_bytes,
                one.reason,
            )
            for one in report.suggestions
        ],
    )


def _health_figures(
    reader: CatalogReader,
    snapshot: Snapshot,
    report: HealthReport,
    found: LiveFiles,
    columns: Sequence[Column],
) -> Iterator[Figure]:
    small = pc.less(found.sizes, small_limit(snapshot)).to_pylist()
    kinds = (Group("small", "small"), Group("read", "not small"))
    ids = found.ids.to_pylist()
    files = files_of(
        reader, snapshot, found, kinds, {id: 0 for id, is_small in zip(ids, small) if is_small}, 1
    )
    yield sizes(found.sizes.to_pylist(), small, *kinds)
    for column in columns:
        yield intervals(files, column)
        depth = report.depths[column.name]
        yield overlap(
            f"Overlap along {column.name}",
            f"How many files hold a value. In one partition {depth.average:.3g} on average, and "
            f"at most {depth.most:,}.",
            [(Group("read", "files that hold a value"), column)],
        )
    if len(columns) > 1 and not snapshot.dataset.properties.layout.cluster_by:
        yield boxes(files, columns[0], columns[1])  # else `_clustering` draws them
    yield versions(
        [
            Version(
                one.version,
                one.timestamp,
                one.operation,
                one.summary.get("rows_added", 0),
                one.summary.get("rows_removed", 0),
                one.summary.get("live_rows"),
            )
            for one in reversed(reader.transactions(snapshot.dataset.id))
        ]
    )
    yield from _clustering(reader, snapshot, found)


def _clustering(reader: CatalogReader, snapshot: Snapshot, found: LiveFiles) -> Iterator[Figure]:
    """What `cluster` would sort, and the overlap that is expected after it."""
    try:
        chosen = clustering_columns(snapshot)
    except InvalidOptionError:
        return
    pieces = find_pieces(reader, snapshot, chosen)
    groups = [
        Group(f"p{number % PIECES}", f"sorted together, set {number + 1}")
        for number in range(min(len(pieces), PIECES))
    ]
    if len(pieces) > PIECES:
        groups[-1] = replace(groups[-1], text=f"sorted, sets {PIECES} to {len(pieces)}")
    group_of = {
        id: min(number, PIECES - 1) for number, one in enumerate(pieces) for id in one.file_ids
    }
    others = Group("rest", "left as they are")
    files = files_of(reader, snapshot, found, [*groups, others], group_of, len(groups))
    columns = [column_of(reader, snapshot, found, leaf) for leaf in chosen[:2]]
    if len(columns) > 1:
        yield _named(boxes(files, *columns), chosen)
        return
    yield _named(intervals(files, columns[0]), chosen)
    if pieces:
        after = _expected(snapshot, found, pieces, columns[0])
        yield overlap(
            "Expected overlap after one run of cluster",
            "Each set becomes files that do not overlap one another. A further run may find more.",
            [(Group("rest", "now"), columns[0]), (Group("read", "after one run"), after)],
        )


def _named(figure: Figure, chosen: Sequence[Leaf]) -> Figure:
    names = ", ".join(".".join(leaf.path) for leaf in chosen)
    return replace(
        figure,
        title="What a run of cluster would change",
        caption=f"Clustered by {names}. {figure.caption}",
    )


def _expected(
    snapshot: Snapshot, found: LiveFiles, pieces: Sequence[Piece], column: Column
) -> Column:
    """The ranges of a column after one run, if the values of a piece are spread evenly."""
    moved = {id for piece in pieces for id in piece.file_ids}
    ids = found.ids.to_pylist()
    at_of = {ids[file]: at for at, file in enumerate(column.files)}
    stay = [at for id, at in at_of.items() if id not in moved]
    lower: list[Ordinal | None] = [column.lower[at] for at in stay]
    upper: list[Ordinal | None] = [column.upper[at] for at in stay]
    for piece in pieces:
        mine = [at_of[id] for id in piece.file_ids if id in at_of]
        ends = sorted(
            end for at in mine for end in (column.lower[at], column.upper[at]) if end is not None
        )
        count = max(1, round(piece.size_bytes / target_size(snapshot)))
        if not ends:
            continue
        # Neighbours do not share an end, which would count twice.
        for number in range(count):
            first = ends[number * len(ends) // count]
            last = ends[max((number + 1) * len(ends) // count - 1, number * len(ends) // count)]
            lower.append(first)
            upper.append(last)
    return replace(column, files=range(len(lower)), lower=lower, upper=upper)


# --- The page of a scan: which files it reads, which it leaves out, and why.


_MOST_COLUMNS = 3
_READ, _PART, _PARTITION, _STATISTICS = range(4)
GROUPS = (
    Group("read", "read"),
    Group("part", "read, some of its row groups"),
    Group("partition", "left out by its partition"),
    Group("statistics", "left out by statistics"),
)


def scan_page(
    reader: CatalogReader,
    snapshot: Snapshot,
    bound: BoundPredicate,
    pruning: Pruning,
) -> Markup:
    """The picture of a scan of a version with a condition."""
    found = live_files(reader, snapshot)
    group_of = {
        one.file.id: _READ if one.whole else _PART for one in candidates(reader, snapshot, bound)
    }
    in_partitions = None if bound.always_true else kept_by_partition(reader, snapshot, bound)
    if in_partitions is not None:
        for id in found.ids.to_pylist():
            if id not in in_partitions:
                group_of.setdefault(id, _PARTITION)
    files = files_of(reader, snapshot, found, GROUPS, group_of, _STATISTICS)
    columns = [
        column_of(reader, snapshot, found, leaf, bound) for leaf in _columns(snapshot, bound)
    ]
    first, *others = _figures(pruning, files, columns, found)
    return fragment(
        f"Scan where {pruning.predicate}",
        f"{pruning.dataset}, version {pruning.version}",
        [first, *_why(pruning), *others],
        notes=[
            *(f"Pruned by: {text}" for text in pruning.conditions_read_as),
            *(f"Not used for pruning: {text}" for text in pruning.conditions_not_used),
        ],
    )


def _why(pruning: Pruning) -> Iterator[Listing]:
    if pruning.details is not None:
        yield Listing(
            "Why, by row groups",
            ("", "by", "condition", "row groups", "files", "rows", "for example"),
            [
                (
                    "kept" if one.is_kept else "left out",
                    one.decided_by,
                    one.condition,
                    one.row_groups,
                    one.files,
                    one.rows,
                    one.example,
                )
                for one in pruning.details.kinds
            ],
        )


def _columns(snapshot: Snapshot, bound: BoundPredicate) -> list[Leaf]:
    """The columns of the condition that the index covers, those of partitions last."""
    own = partition_ids(snapshot)
    known = {leaf.id: leaf for leaf in leaves(snapshot.schema) if leaf.id in snapshot.indexed}
    if bound.always_true:
        by_name = {".".join(leaf.path): leaf for leaf in known.values()}
        return [by_name[name] for name in usual_columns(snapshot, by_name)][:_MOST_COLUMNS]
    named = [known[id] for id in bound.column_ids if id in known]
    return sorted(named, key=lambda leaf: leaf.id in own)[:_MOST_COLUMNS]


def _figures(
    pruning: Pruning, files: Files, columns: list[Column], found: LiveFiles
) -> Iterator[Figure]:
    yield shares(
        "What has to be read",
        f"Files left out by their partition: {pruning.files_pruned_by_partition:,}, by "
        f"statistics: {pruning.files_pruned_by_statistics:,}.",
        [
            Share("files", pruning.files_total, pruning.files_read),
            Share("row groups", pruning.row_groups_total, pruning.row_groups_read),
            Share("rows", pruning.rows_total, pruning.rows_read),
            Share("bytes", pruning.bytes_total, pruning.bytes_read, is_bytes=True),
            Share("columns", pruning.columns_total, pruning.columns_read),
        ],
    )
    for column in columns:
        yield intervals(files, column)
        yield overlap(
            f"Overlap along {column.name}",
            "How many files hold a value. A query for one value reads this many, if nothing else "
            "rules them out.",
            [(Group("rest", "all files"), column), (Group("read", "files to read"),
                                                    only(column, files, (_READ, _PART)))],
        )  # fmt: skip
    if len(columns) > 1:
        yield boxes(files, columns[0], columns[1])
    yield sizes(
        found.sizes.to_pylist(),
        [group in (_READ, _PART) for group in files.group_of],
        Group("read", "read"),
        Group("rest", "left out"),
    )


def only(column: Column, files: Files, groups: tuple[int, ...]) -> Column:
    """A column's ranges in the files of some groups alone."""
    chosen = [at for at, file in enumerate(column.files) if files.group_of[file] in groups]
    return replace(
        column,
        files=[column.files[at] for at in chosen],
        lower=[column.lower[at] for at in chosen],
        upper=[column.upper[at] for at in chosen],
    )

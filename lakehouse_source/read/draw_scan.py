"""Verb. The page of a scan: which files it reads, which it leaves out, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lakehouse_source.catalog.sql.reader import CatalogReader
from lakehouse_source.language import BoundPredicate
from lakehouse_source.pictures.bars import Share, shares, sizes
from lakehouse_source.pictures.boxes import boxes
from lakehouse_source.pictures.frame import Figure, Group
from lakehouse_source.pictures.markup import Markup
from lakehouse_source.pictures.overlap import overlap
from lakehouse_source.pictures.page import Listing, fragment
from lakehouse_source.pictures.ranges import Column, Files, intervals
from lakehouse_source.read.candidates import candidates
from lakehouse_source.read.draw import column_of, files_of
from lakehouse_source.read.file_arrays import LiveFiles, live_files
from lakehouse_source.read.health import usual_columns
from lakehouse_source.read.plan import Pruning, kept_by_partition, partition_ids
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.schema.fields import Leaf, leaves

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

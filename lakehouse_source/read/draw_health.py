"""Verb. The page of `health()`: overlap and sizes of files, versions, what `cluster` changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow.compute as pc

from lakehouse_source.catalog.sql.reader import CatalogReader
from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.model import Ordinal
from lakehouse_source.pictures.bars import Version, sizes, versions
from lakehouse_source.pictures.boxes import boxes
from lakehouse_source.pictures.frame import Figure, Group
from lakehouse_source.pictures.markup import Markup
from lakehouse_source.pictures.overlap import overlap
from lakehouse_source.pictures.page import PIECES, Listing, fragment
from lakehouse_source.pictures.ranges import Column, intervals
from lakehouse_source.pictures.scale import size_text
from lakehouse_source.read.cluster_plan import Piece, clustering_columns, find_pieces
from lakehouse_source.read.draw import column_of, files_of
from lakehouse_source.read.file_arrays import LiveFiles, live_files
from lakehouse_source.read.health import HealthReport, small_limit, target_size
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.schema.fields import Leaf, leaves

_MOST_COLUMNS = 8  # so that a page of many files stays small


def health_page(reader: CatalogReader, snapshot: Snapshot, report: HealthReport) -> Markup:
    """The picture of what `health` found."""
    found = live_files(reader, snapshot)
    by_name = {".".join(leaf.path): leaf for leaf in leaves(snapshot.schema)}
    # The depth of several columns together is named by all of them.
    names = [name for name in report.depths if name in by_name][:_MOST_COLUMNS]
    columns = [column_of(reader, snapshot, found, by_name[name]) for name in names]
    state = "Nothing is worth doing." if report.is_good else "Worth doing: " + ", ".join(
        one.action for one in report.suggestions if one.is_worth_it
    )  # fmt: skip
    return fragment(
        f"Health of {report.dataset}",
        f"Version {report.version}: {report.files:,} files, {size_text(report.size_bytes)}, "
        f"{report.rows:,} rows of which {report.deleted_rows:,} are deleted. {state}",
        [_upkeep(report), *_figures(reader, snapshot, report, found, columns)],
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


def _figures(
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

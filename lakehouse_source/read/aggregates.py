"""Verb. Counts, minima and maxima from the catalog alone, where it knows them exactly.

For pruning, bounds may be wider than the data. Here bounds are answers, so only bounds that are
values of rows are used: no cut text, no float whose bounds may hide NaN or the sign of zero, no
column that was promoted after the file was written, no text with a collation, whose order is not
that of its bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakehouse_source.catalog.sql.reader import CatalogReader
from lakehouse_source.language import BoundPredicate
from lakehouse_source.model import ColumnBounds, FileRecord, Ordinal
from lakehouse_source.parquet.names import is_foreign
from lakehouse_source.pruning.bounds import Statistics, is_a_value
from lakehouse_source.pruning.keys import Search
from lakehouse_source.pruning.search import certain, search
from lakehouse_source.read.candidates import Candidate, candidates
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.schema.fields import Leaf, has_collation, leaves
from lakehouse_source.schema.partitions import partition_ordinal


@dataclass(frozen=True, slots=True)
class Aggregate:
    """`function` is count, min or max; `column` a top-level column, None: count rows."""

    function: str
    column: str | None


Row = tuple[Ordinal | None, ...]


def aggregate(
    reader: CatalogReader,
    snapshot: Snapshot,
    bound: BoundPredicate,
    group_by: Sequence[str],
    aggregates: Sequence[Aggregate],
) -> list[Row] | None:
    """One row per group that has rows (without `group_by` always one row), or None.

    A row holds the group's values and then the aggregates: counts as int, the others
    as ordinals of the columns' types, None for NULL. The answer is None if a file would
    have to be read: the condition matches only part of a row group, or a bound is not a
    value of a row.
    """
    by_name = {leaf.path[0]: leaf for leaf in leaves(snapshot.schema) if len(leaf.path) == 1}
    named = [*group_by, *(one.column for one in aggregates if one.column is not None)]
    if any(name not in by_name or by_name[name].in_list for name in named):
        return None
    collated = {field.name for field in snapshot.schema if has_collation(field)}
    ordered = {one.column for one in aggregates if one.function != "count"}
    if collated & {*group_by, *ordered}:
        return None
    groups = [by_name[name] for name in group_by]
    if not set(group_by) <= set(snapshot.partition_by) or any(map(_is_float, groups)):
        return None
    rows_only = all(one.column is None for one in aggregates)
    if bound.always_true and rows_only and not groups and "live_rows" in snapshot.summary:
        return [(snapshot.summary["live_rows"],) * len(aggregates)]
    found: dict[Row, list[_Tally]] = {}
    if not groups:
        found[()] = [_Tally(one) for one in aggregates]
    values = _Values(snapshot, groups)
    if bound.always_true and rows_only:
        vectors = _vectors(reader, snapshot)
        for file in reader.files(snapshot.dataset.id, snapshot.version):
            tallies = found.setdefault(values(file), [_Tally(one) for one in aggregates])
            for tally in tallies:
                tally.count += file.row_count - vectors.get(file.id, 0)
        return _rows(found)
    statistics = snapshot.statistics()
    for candidate in candidates(reader, snapshot, bound, statistics=not rows_only):
        if not candidate.always:
            return None
        group = values(candidate.file)
        tallies = found.setdefault(group, [_Tally(one) for one in aggregates])
        for tally in tallies:
            name = tally.asked.column
            leaf = None if name is None else by_name[name]
            partition = leaf is not None and leaf.path[0] in snapshot.partition_by
            if candidate.deleted is not None:
                # The bounds cover the deleted rows too.
                if leaf is not None or candidate.row_count is None:
                    return None
                tally.count += candidate.row_count
                continue
            if leaf is not None and not partition:
                if is_foreign(candidate.file.path):
                    return None  # other writers may cut a bound or widen it
                promoted = statistics.is_promoted(candidate.file, leaf.id)
                if promoted and tally.asked.function != "count":
                    return None
            for bounds in _bounds(candidate, leaf, statistics):
                if not tally.add(bounds, leaf):
                    return None
    return _rows(found)


def count_certain(
    reader: CatalogReader, snapshot: Snapshot, bound: BoundPredicate
) -> tuple[int, Search | None]:
    """The rows of the files in which the search index says that every row matches.

    No record of these files is read. The returned search is for a plan `without` these files.
    """
    if bound.always_true or bound.never_true:
        return 0, None
    narrowed, sure = search(bound, snapshot.indexed), certain(bound, snapshot.indexed)
    if narrowed is None or sure is None:
        return 0, None
    rows = reader.count_certain_rows(snapshot.dataset.id, snapshot.version, narrowed, sure)
    return rows, sure


def _vectors(reader: CatalogReader, snapshot: Snapshot) -> dict[int, int]:
    """How many rows of files are deleted, by file id."""
    if not snapshot.has_vectors:
        return {}
    found = reader.all_vectors(snapshot.dataset.id, snapshot.version)
    return {one.file_id: one.vector.cardinality for one in found}


def _rows(found: dict[Row, list[_Tally]]) -> list[Row]:
    return [group + tuple(tally.result for tally in tallies) for group, tallies in found.items()]


class _Values:
    """The values of a file in some of the partition columns, as ordinals."""

    def __init__(self, snapshot: Snapshot, columns: Sequence[Leaf]) -> None:
        self._texts = snapshot.partition_texts()
        self._wanted = [(snapshot.partition_by.index(leaf.path[0]), leaf) for leaf in columns]

    def __call__(self, file: FileRecord) -> Row:
        texts = self._texts(file)
        return tuple(partition_ordinal(texts[place], leaf.type) for place, leaf in self._wanted)


def _bounds(candidate: Candidate, leaf: Leaf | None, statistics: Statistics) -> list[ColumnBounds]:
    """The bounds of a column per kept row group; without a column, the row counts."""
    if leaf is None:
        return [ColumnBounds(None, None, 0, g.row_count, False) for g in candidate.row_groups]
    return [statistics.of(candidate.file, g)(leaf.id) for g in candidate.row_groups]


def _is_float(leaf: Leaf) -> bool:
    return bool(pa.types.is_floating(leaf.type))


@dataclass(slots=True)
class _Tally:
    """One aggregate over the row groups that were added so far."""

    asked: Aggregate
    count: int = 0
    extreme: Ordinal | None = None

    def add(self, bounds: ColumnBounds, leaf: Leaf | None) -> bool:
        """Add a row group. False: its bounds do not give the aggregate."""
        if bounds.null_count is None:
            return False
        present = bounds.row_count - bounds.null_count
        self.count += present
        if self.asked.function == "count" or present == 0:
            return True
        smallest = self.asked.function == "min"
        bound = bounds.lower if smallest else bounds.upper
        if bound is None or leaf is None or not is_a_value(bound, bounds, leaf.type):
            return False
        if self.extreme is None or (bound < self.extreme if smallest else bound > self.extreme):  # type: ignore[operator]
            self.extreme = bound
        return True

    @property
    def result(self) -> Ordinal | None:
        return self.count if self.asked.function == "count" else self.extreme

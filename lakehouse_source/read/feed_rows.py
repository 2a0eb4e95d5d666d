"""Verb. The rows that a commit changed: deleted, inserted, or updated, by their identities.

A row that a commit took away and brought again is an update if its values differ. If they do
not, nothing is told of it. Rows whose identity and version of the last change are the same were
only moved: their values are not compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from itertools import groupby

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.deletion.vector import Positions, as_array, positions_of
from lakehouse_source.model import ScanTask
from lakehouse_source.parquet.read_write_specs import ReadSpec
from lakehouse_source.parquet.reader import read_all, read_each
from lakehouse_source.read.feed_plan import Changed, FeedPlan, Side
from lakehouse_source.schema.equal_rows import equal_rows
from lakehouse_source.storage import Storage


class Kind(Enum):
    """What the feed tells of a row. The values are those of Delta and of Spark."""

    INSERT = "insert"
    DELETE = "delete"
    UPDATE_PREIMAGE = "update_preimage"
    UPDATE_POSTIMAGE = "update_postimage"


def changed_rows(
    plan: FeedPlan, parts: Sequence[Changed], storage: Storage
) -> Iterator[tuple[Changed, Kind, pa.Table]]:
    """The rows that parts of a plan changed, with the columns of `plan.spec_of(part)`.

    The images of an update before and after it come one after the other. The images before
    updates are held in memory, and the identities of rows that were moved.
    """
    for is_paired, several in groupby(parts, lambda part: part.is_paired):
        if not is_paired:
            yield from _unpaired_rows(plan, tuple(several), storage)
            continue
        for part in several:
            for kind, rows in _paired_rows(plan, part, storage):
                yield part, kind, rows


def _unpaired_rows(
    plan: FeedPlan, parts: tuple[Changed, ...], storage: Storage
) -> Iterator[tuple[Changed, Kind, pa.Table]]:
    """As `changed_rows`. The files of all parts are read side by side: there may be thousands."""
    tasks: list[ScanTask] = []
    told: dict[int, tuple[Changed, Kind]] = {}
    for part in parts:
        for kind, side in ((Kind.DELETE, part.before), (Kind.INSERT, part.after)):
            tasks += side.tasks
            told |= {id(task): (part, kind) for task in side.tasks}
    for task, rows in read_each(plan.narrow_spec, tasks, storage):
        yield *told[id(task)], rows


def _paired_rows(
    plan: FeedPlan, part: Changed, storage: Storage
) -> Iterator[tuple[Kind, pa.Table]]:
    moved = _Moved.of(plan.identity_spec, part, storage)
    spec = plan.spec_of(part)
    befores: list[pa.Table] = []
    for table in _rows(spec, part.before, storage):
        alone, updated = moved.split(table)
        if alone.num_rows:
            yield Kind.DELETE, alone
        if updated.num_rows:
            befores.append(updated)
    before = pa.concat_tables([spec.output_schema.empty_table(), *befores])
    ids = _identities(before).combine_chunks()
    met = Positions()
    for table in _rows(spec, part.after, storage):
        alone, updated = moved.split(table)
        if alone.num_rows:
            yield Kind.INSERT, alone
        if not updated.num_rows:
            continue
        places = pc.index_in(_identities(updated), value_set=ids)
        # The condition can hold for one image of a row and not for the other.
        lonely = updated.filter(pc.is_null(places))
        both = updated.filter(pc.is_valid(places))
        places = pc.drop_null(places)
        met |= positions_of(_identities(both))
        images = before.take(places)
        differs = pc.invert(equal_rows(_values(images), _values(both)))
        for kind, rows in (
            (Kind.UPDATE_PREIMAGE, images.filter(differs)),
            (Kind.UPDATE_POSTIMAGE, both.filter(differs)),
            (Kind.UPDATE_POSTIMAGE, lonely),
        ):
            if rows.num_rows:
                yield kind, rows
    left = before.filter(pc.invert(_is_among(_identities(before), met)))
    if left.num_rows:
        yield Kind.UPDATE_PREIMAGE, left


class _Moved:
    """Rows that a commit took away and brought again, by their identities.

    `kept` are those that nothing changed, `updated` the others.
    """

    def __init__(self, kept: Positions, updated: Positions) -> None:
        self.kept = kept
        self._updated = updated

    @classmethod
    def of(cls, spec: ReadSpec, part: Changed, storage: Storage) -> _Moved:
        if not part.is_paired:
            return cls(Positions(), Positions())
        before, after = part.before.identities, part.after.identities
        gone = list(read_all(spec, before, storage))
        taken = pa.concat_tables([spec.output_schema.empty_table(), *gone])
        brought = _wanted(spec, after, positions_of(taken.column(0)), storage)
        if not brought.num_rows:
            return cls(Positions(), Positions())
        both = positions_of(brought.column(0))
        taken = taken.filter(_is_among(taken.column(0), both))
        # The same identities on both sides, each once: sorted, the rows are the same.
        taken, brought = (one.sort_by(one.column_names[0]) for one in (taken, brought))
        kept = positions_of(brought.column(0).filter(pc.equal(taken.column(1), brought.column(1))))
        return cls(kept, both - kept)

    def split(self, table: pa.Table) -> tuple[pa.Table, pa.Table]:
        """The rows that have no counterpart, and those that may have been updated."""
        if not (self.kept or self._updated):
            return table, table.slice(0, 0)
        ids = _identities(table)
        updated = _is_among(ids, self._updated)
        alone = pc.invert(pc.or_(updated, _is_among(ids, self.kept)))
        return table.filter(alone), table.filter(updated)


def _rows(spec: ReadSpec, side: Side, storage: Storage) -> Iterator[pa.Table]:
    return read_all(spec, side.tasks, storage)


def _wanted(
    spec: ReadSpec, tasks: tuple[ScanTask, ...], wanted: Positions, storage: Storage
) -> pa.Table:
    """Identities and versions of those rows whose identity is wanted."""
    tables = read_all(spec, tasks, storage)
    found = [table.filter(_is_among(table.column(0), wanted)) for table in tables]
    return pa.concat_tables([spec.output_schema.empty_table(), *found])


def _is_among(ids: pa.ChunkedArray, wanted: Positions) -> pa.ChunkedArray:
    """Which of the identities are wanted."""
    return pc.is_in(ids, value_set=as_array(positions_of(ids) & wanted))


def _identities(table: pa.Table) -> pa.ChunkedArray:
    return table.column(table.num_columns - 2)


def _values(table: pa.Table) -> pa.Table:
    return table.select(range(table.num_columns - 2))


def last_versions(
    plan: FeedPlan, ids: Positions, storage: Storage
) -> Iterator[tuple[int, Positions]]:
    """The version of the last commit that changed each of these rows, and did not only move it."""
    left = ids.copy()
    for part in reversed(plan.parts):
        if not left:
            return
        found = Positions()
        for tasks in (part.before.identities, part.after.identities):
            for table in read_all(plan.identity_spec, tasks, storage):
                found |= positions_of(table.column(0))
        found &= left
        if found:
            found -= _Moved.of(plan.identity_spec, part, storage).kept
        if found:
            yield part.version, found
            left -= found

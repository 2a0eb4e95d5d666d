"""Verb. The files and row groups of a version that may hold rows of a condition.

Files are pruned in three steps, and none of them loses a match. The catalog's index finds
files by the ranges of the condition. Then the bounds of each file decide whether none, all or
some of its rows may match. If some may, the statistics of its row groups are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from lakehouse_source.catalog.sql.reader import CatalogReader
from lakehouse_source.generated import with_generated
from lakehouse_source.language import BoundPredicate
from lakehouse_source.model import ColumnBounds, DeletionVector, FileRecord, RowGroupMetadata
from lakehouse_source.pruning import bounds
from lakehouse_source.pruning.evaluate import evaluate, evaluate_each
from lakehouse_source.pruning.keys import Search
from lakehouse_source.pruning.search import search
from lakehouse_source.read.snapshot import KnownColumns, KnownFile, Snapshot, known_files

# How many files' row groups are read in one query.
RECORDS_OF_FILES = 1000
# Of a dataset with more files, a scan without a condition keeps nothing for later plans.
_MOST_WHOLE = 10_000


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file that may hold matches, and those of its row groups that may.

    `always`: every row of these row groups matches. `whole`: they are all row groups of
    the file. `known`, where bounds decided, is kept with the file for later plans. `deleted` marks
    rows of the file that the snapshot does not have; they count in the row groups.
    """

    file: FileRecord
    row_groups: tuple[RowGroupMetadata, ...]
    always: bool
    whole: bool
    known: KnownColumns | None = None
    deleted: DeletionVector | None = None

    @property
    def row_count(self) -> int | None:
        """How many rows the row groups have; None: only the vector's positions tell."""
        count = sum(group.row_count for group in self.row_groups)
        if self.deleted is None:
            return count
        return count - self.deleted.cardinality if self.whole else None


def candidates(
    reader: CatalogReader,
    snapshot: Snapshot,
    bound: BoundPredicate,
    files: Sequence[FileRecord] | None = None,
    *,
    at_once: int = RECORDS_OF_FILES,
    statistics: bool = False,
    without: Search | None = None,
) -> Iterator[Candidate]:
    """The files (default: all of the snapshot) that may hold a row that matches.

    Records of row groups are large, so the records of `at_once` files are read at a time, when the
    caller needs them. They have statistics only if the caller asks for statistics. `without` leaves
    out files as `CatalogReader.iter_files` does.
    """
    bound = with_generated(bound, snapshot.schema)
    if bound.never_true:
        return
    portions: Iterable[Sequence[FileRecord]]
    # A scan of everything keeps what it learns where that is little: to keep it takes a third of
    # the time of reading it, and to have it saves two thirds.
    is_large = bound.always_true and snapshot.summary.get("live_files", 0) > _MOST_WHOLE
    keep = files is None and not is_large and snapshot.history is not None
    if files is None:
        portions = _portions(reader, snapshot, bound, at_once, without, keep)
    else:
        portions = (files[start : start + at_once] for start in range(0, len(files), at_once))
    for some in portions:
        found = _of_portion(reader, snapshot, bound, some, keep, statistics)
        if not snapshot.has_vectors:
            yield from found
            continue
        vectors = reader.vectors([file.id for file in some], snapshot.version)
        for one in found:
            yield replace(one, deleted=vectors.get(one.file.id))


def _of_portion(
    reader: CatalogReader,
    snapshot: Snapshot,
    bound: BoundPredicate,
    some: Sequence[FileRecord],
    keep: bool,
    statistics: bool,
) -> Iterator[Candidate]:
    """The candidates among some files, without their deletion vectors."""
    if bound.always_true and (statistics or not keep):
        groups = reader.row_groups([file.id for file in some], statistics=statistics)
        for file in some:
            if groups[file.id]:
                yield Candidate(file, tuple(groups[file.id]), True, True)
    elif statistics:
        yield from _by_records(reader, snapshot, bound, some)
    else:
        yield from _by_known_bounds(reader, snapshot, bound, some, keep)


def bounds_of_files(
    reader: CatalogReader,
    snapshot: Snapshot,
    column_ids: Sequence[int],
    files: Sequence[FileRecord],
) -> list[Mapping[int, ColumnBounds]]:
    """The bounds of columns over each of some files."""
    found = known_files.of(None, files)
    _Known(reader, snapshot, column_ids).bounds_of_files(found)
    return [file.in_schema(snapshot.schema_version).whole for file in found]


def _portions(
    reader: CatalogReader,
    snapshot: Snapshot,
    bound: BoundPredicate,
    at_once: int,
    without: Search | None,
    keep: bool,
) -> Iterator[list[FileRecord]]:
    narrowed = None if bound.always_true else search(bound, snapshot.indexed)
    known = None
    if keep and snapshot.history is not None:
        known = partial(known_files.records, snapshot.history)
    return reader.iter_files(
        snapshot.dataset.id, snapshot.version, narrowed, at_once, without=without, known=known
    )


def _by_records(
    reader: CatalogReader,
    snapshot: Snapshot,
    bound: BoundPredicate,
    files: Sequence[FileRecord],
) -> Iterator[Candidate]:
    """The candidates among `files`, their row groups with the catalog's statistics."""
    statistics = snapshot.statistics()
    groups = reader.row_groups([file.id for file in files])
    for file in files:
        outcomes = [evaluate(bound, statistics.of(file, group)) for group in groups[file.id]]
        kept = [n for n, outcome in enumerate(outcomes) if outcome.may_match]
        if kept:
            yield Candidate(
                file,
                tuple(groups[file.id][n] for n in kept),
                all(outcomes[n].always for n in kept),
                len(kept) == len(outcomes),
            )


def _by_known_bounds(
    reader: CatalogReader,
    snapshot: Snapshot,
    bound: BoundPredicate,
    files: Sequence[FileRecord],
    keep: bool,
) -> Iterator[Candidate]:
    """The same candidates; row groups have no statistics, and each bound is read only once."""
    history = snapshot.history if keep else None
    known = _Known(reader, snapshot, bound.column_ids)
    found = known_files.of(history, files)
    learned = known.bounds_of_files(found)
    known_columns = [file.in_schema(snapshot.schema_version) for file in found]
    outcomes = [evaluate(bound, columns.whole.__getitem__) for columns in known_columns]
    matching = [file for file, outcome in zip(found, outcomes) if outcome.always]
    undecided = [
        file for file, outcome in zip(found, outcomes) if outcome.may_match and not outcome.always
    ]
    learned += known.row_groups(matching)
    learned += known.bounds_of_row_groups(undecided)
    if learned:
        known_files.keep(history, {file.record.id: file for file in learned}.values())
    for file, columns, outcome in zip(found, known_columns, outcomes):
        if not outcome.may_match:
            continue
        if outcome.always:
            groups = file.row_groups or ()
            if groups and file.has_empty_row_groups:
                kept = tuple(group for group in groups if group.row_count)
                if kept:
                    yield Candidate(file.record, kept, True, False, columns)
            elif groups:
                yield Candidate(file.record, groups, True, True, columns)
        else:
            yield from _of_row_groups(bound, file, columns)


def _of_row_groups(
    bound: BoundPredicate, file: KnownFile, columns: KnownColumns
) -> Iterator[Candidate]:
    """The candidate made of a file, if the bounds of its row groups allow a match."""
    groups = file.row_groups or ()
    outcomes = evaluate_each(bound, columns.groups, len(groups))
    kept: list[RowGroupMetadata] = []
    always = True
    for group, outcome in zip(groups, outcomes):
        if outcome.may_match:
            kept.append(group)
            always = always and outcome.always
    if kept:
        yield Candidate(file.record, tuple(kept), always, len(kept) == len(groups), columns)


class _Known:
    """Reads what is not yet known of files. Each method returns the files that it read about."""

    def __init__(
        self, reader: CatalogReader, snapshot: Snapshot, column_ids: Sequence[int]
    ) -> None:
        self._reader = reader
        self._statistics = snapshot.statistics()
        self._schema_version = snapshot.schema_version
        self._ids = column_ids
        self._id_set = frozenset(column_ids)
        # The value of a partition column is in the record of the file.
        self._indexed = [
            id
            for id in column_ids
            if id in snapshot.indexed and id not in self._statistics.partition_ids
        ]

    def bounds_of_files(self, files: Sequence[KnownFile]) -> list[KnownFile]:
        """The bounds of the columns over each file."""
        version = self._schema_version
        if not self._ids:
            return []
        unknown = [
            file for file in files if not file.in_schema(version).whole.keys() >= self._id_set
        ]
        if unknown:
            rows = self._reader.file_bounds([file.record.id for file in unknown], self._indexed)
            for file in unknown:
                record = file.record
                look_up = self._statistics.of_file(record, rows.get(record.id, {}))
                whole = file.in_schema(version).whole
                for id in self._ids:
                    whole[id] = look_up(id)
        return unknown

    def row_groups(self, files: Sequence[KnownFile]) -> list[KnownFile]:
        """The row groups of each file, without statistics."""
        unknown = [file for file in files if file.row_groups is None]
        if unknown:
            ids = [file.record.id for file in unknown]
            groups = self._reader.row_groups(ids, statistics=False)
            for file in unknown:
                file.row_groups = tuple(groups[file.record.id])
        return unknown

    def bounds_of_row_groups(self, files: Sequence[KnownFile]) -> list[KnownFile]:
        """The row groups of each file, and the bounds of the columns over each of them."""
        version = self._schema_version
        unknown = [
            file for file in files if not file.in_schema(version).groups.keys() >= self._id_set
        ]
        if unknown:
            rows = self._reader.row_groups([file.record.id for file in unknown])
            for file in unknown:
                self._decode(file, rows[file.record.id])
        return unknown

    def _decode(self, file: KnownFile, groups: Sequence[RowGroupMetadata]) -> None:
        look_ups = [self._statistics.of(file.record, group) for group in groups]
        columns = file.in_schema(self._schema_version)
        for id in self._ids:
            parts = tuple(look_up(id) for look_up in look_ups)
            if id not in self._indexed:  # nothing was known of the file before
                columns.whole[id] = bounds.over_all(parts)
            columns.groups[id] = parts
        file.row_groups = tuple(without_statistics(group) for group in groups)


def without_statistics(group: RowGroupMetadata) -> RowGroupMetadata:
    """A row group's counts and sizes alone."""
    return RowGroupMetadata(
        group.index,
        group.row_count,
        "{}",
        "{}",
        "{}",
        "{}",
        group.total_byte_size,
        group.compressed_byte_size,
    )

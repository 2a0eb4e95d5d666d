"""Verb. Turns a version and a condition into scan tasks, and reports what was pruned.

Runs on the driver: it reads the catalog and opens no data file.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated

import pyarrow as pa

from lakehouse_source.catalog.sql.reader import CatalogReader
from lakehouse_source.generated import with_generated
from lakehouse_source.language import BoundPredicate, PredicateSet
from lakehouse_source.language.bounds.bound import TRUE, render_bound
from lakehouse_source.model import ColumnBounds, FilePlace, FileRecord, ScanTask
from lakehouse_source.parquet.read_write_specs import ReadSpec, Where
from lakehouse_source.progress import PLAN, milliseconds
from lakehouse_source.pruning import bounds
from lakehouse_source.pruning.keys import Search
from lakehouse_source.pruning.search import search
from lakehouse_source.read.candidates import RECORDS_OF_FILES, Candidate, candidates
from lakehouse_source.read.drawable import Drawable
from lakehouse_source.read.snapshot import Snapshot, resolve_columns
from lakehouse_source.schema.fields import (
    METADATA_COLUMNS,
    hidden_columns,
    leaves,
    with_metadata_columns,
)
from lakehouse_source.schema.partitions import PartitionTexts

if TYPE_CHECKING:
    from lakehouse_source.pictures.markup import Markup
    from lakehouse_source.read.row_group_decisions import Details

# How many files' row groups are read in one query, for a scan with a limit.
_RECORDS_OF_FEW = 100


@dataclass(frozen=True, slots=True)
class Pruning(Drawable):
    """How much of a dataset a scan has to read. Prints as a table, and as pictures in notebooks.

    `conditions_read_as` has, for each SQL condition on more than plain columns, the condition on
    columns that prunes in its place: `is` if both are equal, `implies` if rows decide the rest.
    `conditions_not_used` are parts of expressions that filter rows and cannot prune. `details`,
    if requested, has the reason for each row group.
    """

    dataset: str
    version: Annotated[int, "the version that a scan reads"]
    predicate: Annotated[str, "the condition, as plake understood it"]
    files_total: Annotated[int, "files of the version"]
    files_read: Annotated[int, "files that may hold a matching row"]
    files_pruned_by_partition: Annotated[int, "files that their partition values rule out"]
    files_pruned_by_statistics: Annotated[int, "files that their statistics rule out"]
    row_groups_total: Annotated[int, "row groups of the version"]
    row_groups_read: Annotated[int, "row groups that may hold a matching row"]
    rows_total: Annotated[int, "rows of the version"]
    rows_read: Annotated[int, "rows of the row groups to read"]
    rows_deleted: Annotated[int, "rows of the files to read that are deleted"]
    bytes_total: Annotated[int, "bytes of the version's files"]
    bytes_read: Annotated[int, "bytes of the columns and row groups to read"]
    columns_total: int
    columns_read: int
    conditions_not_used: tuple[str, ...] = ()
    conditions_read_as: tuple[str, ...] = ()
    details: Details | None = field(default=None, repr=False)
    draw: Callable[[], Markup] | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        rows = [
            ("files", self.files_total, self.files_read),
            ("row groups", self.row_groups_total, self.row_groups_read),
            ("rows", self.rows_total, self.rows_read),
            ("bytes", self.bytes_total, self.bytes_read),
            ("columns", self.columns_total, self.columns_read),
        ]
        width = max(14, *(len(f"{total:,}") + 2 for _, total, _ in rows))
        lines = [
            f"scan of {self.dataset} at version {self.version} where {self.predicate}",
            f"{'':<12}{'total':>{width}}{'to read':>{width}}{'pruned':>{width}}",
        ]
        for name, total, read in rows:
            cells = "".join(f"{one:>{width},}" for one in (total, read, total - read))
            lines.append(f"{name:<12}{cells}")
        lines.append(
            f"files pruned by partition: {self.files_pruned_by_partition:,}, "
            f"by statistics: {self.files_pruned_by_statistics:,}"
        )
        if self.rows_deleted:
            lines.append(f"rows of these files deleted by vectors: {self.rows_deleted:,}")
        lines += [f"pruned by: {text}" for text in self.conditions_read_as]
        lines += [f"not used for pruning: {text}" for text in self.conditions_not_used]
        if self.details is not None:
            lines += ["why:", *(f"  {line}" for line in str(self.details).splitlines())]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """What a scan reads: the tasks, and `spec` for all of them. Picklable without the catalog.

    `known`, if requested, holds for each task the bounds of its rows, by leaf id.
    """

    spec: ReadSpec
    tasks: tuple[ScanTask, ...]
    pruning: Pruning
    known: tuple[Mapping[int, ColumnBounds], ...] = ()


def plan(
    reader: CatalogReader,
    snapshot: Snapshot,
    *,
    read_uri: Where | None = None,
    predicates: PredicateSet | None = None,
    columns: Sequence[str] | None = None,
    account: bool = False,
    statistics: bool | Collection[int] = False,
    time_zone: str = "UTC",
    limit: int | None = None,
    without: Search | None = None,
    metadata: Sequence[pa.Field] = METADATA_COLUMNS,
    files: Sequence[FileRecord] | None = None,
    checksums: bool = False,
) -> ScanPlan:
    """Plan the reading of `columns` of the rows that match `predicates`.

    `read_uri` is where executors find the files (default: the dataset's URI).
    With `account` the pruning also counts the files that partition values alone prune; this takes a
    second query of the index. With `statistics` the plan holds the bounds of each task's rows: for
    the leaves with these ids, or for all that `_known` names. With a `limit` planning ends when the
    tasks surely give that many rows. `without` leaves out files as `CatalogReader.iter_files` does.
    `columns` may name fields of `metadata` too, where the dataset has no column of that name. Only
    `files` are planned, if they are given; then the counts of the whole dataset mean nothing. With
    `checksums` the tasks have the checksums of their files.
    """
    begin = time.perf_counter()
    schema = with_metadata_columns(snapshot.schema, columns, metadata)
    wanted = resolve_columns(schema, columns)
    bound = (predicates or PredicateSet.of(None)).bind(snapshot.schema, timezone=time_zone)
    at_once = RECORDS_OF_FILES if limit is None else _RECORDS_OF_FEW
    found: Iterable[Candidate] = candidates(
        reader,
        snapshot,
        bound,
        files,
        at_once=at_once,
        statistics=bool(statistics),
        without=without,
    )
    if limit is not None:
        found = _enough(found, limit)
    known: tuple[Mapping[int, ColumnBounds], ...] = ()
    if statistics:
        found = list(found)
        known = _known(snapshot, found, None if statistics is True else statistics)
    task_of = _Tasks(snapshot.partition_texts(), with_places=schema is not snapshot.schema)
    if checksums:
        found = list(found)
        known_sums = reader.checksums([one.file.id for one in found])
        tasks = tuple(replace(task_of(one), sha256=known_sums.get(one.file.id)) for one in found)
    else:
        tasks = tuple(task_of(one) for one in found)
    spec = ReadSpec(
        uri=read_uri or snapshot.uri,
        schema=schema,
        columns=wanted,
        partition_by=snapshot.partition_by,
        file_schemas={
            number: snapshot.file_schemas[number]
            for number in sorted({task.schema_version for task in tasks})
        },
        predicate=None if bound.always_true else bound,
    )
    by_partition = 0
    if account:
        narrowed = with_generated(bound, snapshot.schema)
        by_partition = _pruned_by_partition(reader, snapshot, narrowed)
    account_ = _account(snapshot, predicates, bound, wanted, tasks, by_partition)
    if PLAN.isEnabledFor(logging.DEBUG):
        counts = (account_.files_read, account_.files_total, account_.bytes_read)
        text = "%s at version %d: %d of %d files, %d bytes, %.1f ms"
        PLAN.debug(text, account_.dataset, account_.version, *counts, milliseconds(begin))
    return ScanPlan(spec, tasks, account_, known)


def _enough(found: Iterable[Candidate], limit: int) -> Iterator[Candidate]:
    """The first files that together surely hold `limit` matching rows, or all files."""
    sure = 0
    for one in found:
        if sure >= limit:
            return
        yield one
        if one.always:
            sure += one.row_count or 0


class _Tasks:
    """Makes tasks. Tasks share objects for equal parts, so that a million tasks fit into memory."""

    def __init__(self, partition_texts: PartitionTexts, *, with_places: bool) -> None:
        self._partition_texts = partition_texts
        self._with_places = with_places
        self._row_groups: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._partitions: dict[tuple[str | None, ...], tuple[str | None, ...]] = {}

    def __call__(self, found: Candidate) -> ScanTask:
        task = self._shared(found)
        if found.deleted is None and not self._with_places:
            return task
        file = found.file
        place = FilePlace(file.id, file.first_row_id, file.version) if self._with_places else None
        return replace(task, deleted=found.deleted, place=place)

    def _shared(self, found: Candidate) -> ScanTask:
        """The part of a task that all versions share; deleted rows differ between versions."""
        if found.known is None or not (found.always and found.whole):
            return self._task(found)
        if found.known.task is None:
            found.known.task = self._task(found)
        return found.known.task

    def _task(self, found: Candidate) -> ScanTask:
        file, kept = found.file, found.row_groups
        row_groups = tuple(group.index for group in kept)
        partitions = self._partition_texts(file)
        rows = sum(group.row_count for group in kept)
        return ScanTask(
            path=file.path,
            size_bytes=file.size_bytes,
            file_row_count=file.row_count,
            row_count=file.row_count if rows == file.row_count else rows,
            byte_count=sum(group.compressed_byte_size for group in kept),
            schema_version=file.schema_version,
            row_groups=self._row_groups.setdefault(row_groups, row_groups),
            partitions=self._partitions.setdefault(partitions, partitions),
            filtered=not found.always,
        )


def _known(
    snapshot: Snapshot, found: Sequence[Candidate], wanted: Collection[int] | None
) -> tuple[Mapping[int, ColumnBounds], ...]:
    """Per file: bounds over the kept row groups, for the leaves with the ids `wanted`.

    None: for every leaf that the search index covers, and for floats, which may hold NaN.
    """
    statistics = snapshot.statistics()
    if wanted is None:
        wanted = [
            leaf.id
            for leaf in leaves(snapshot.schema)
            if not leaf.in_list and (leaf.id in snapshot.indexed or pa.types.is_floating(leaf.type))
        ]
    result = []
    for one in found:
        look_ups = [statistics.of(one.file, group) for group in one.row_groups]
        result.append({id: bounds.over_all([look_up(id) for look_up in look_ups]) for id in wanted})
    return tuple(result)


def keep_others(
    reader: CatalogReader, snapshot: Snapshot, condition: PredicateSet, read_uri: Where
) -> tuple[list[FileRecord], tuple[ScanTask, ...], ReadSpec]:
    """The files that may hold rows of `condition`, and the tasks that read their other rows.

    A file whose rows all match needs no task: none of its rows stays. Other rows are read with the
    hidden columns, which keep the rows' identities.
    """
    bound = condition.bind(snapshot.schema)
    found = list(candidates(reader, snapshot, bound))
    task_of = _Tasks(snapshot.partition_texts(), with_places=True)
    tasks = tuple(
        replace(task_of(one), row_groups=None, filtered=True)
        for one in found
        if not (one.whole and one.always)
    )
    schema = pa.schema([*snapshot.schema, *hidden_columns(snapshot.schema)])
    spec = ReadSpec(
        uri=read_uri,
        schema=schema,
        columns=tuple(schema.names),
        partition_by=snapshot.partition_by,
        file_schemas=snapshot.file_schemas,
        predicate=bound,
        unmatched=True,
    )
    return [one.file for one in found], tasks, spec


def partition_ids(snapshot: Snapshot) -> frozenset[int]:
    """The ids of the columns by which a version is partitioned."""
    names = set(snapshot.partition_by)
    return frozenset(leaf.id for leaf in leaves(snapshot.schema) if leaf.path[0] in names)


def _partition_search(snapshot: Snapshot, bound: BoundPredicate) -> Search | None:
    """The search for the conditions on partition columns alone; None: it leaves no file out."""
    if bound.always_true or bound.never_true:
        return None
    return search(bound, partition_ids(snapshot))


def kept_by_partition(
    reader: CatalogReader, snapshot: Snapshot, bound: BoundPredicate
) -> set[int] | None:
    """The ids of the files that remain after the conditions on partition columns alone.

    None: all.
    """
    narrowed = _partition_search(snapshot, bound)
    if narrowed is None:
        return None
    pages = reader.iter_files(snapshot.dataset.id, snapshot.version, narrowed, RECORDS_OF_FILES)
    return {file.id for page in pages for file in page}


def _pruned_by_partition(reader: CatalogReader, snapshot: Snapshot, bound: BoundPredicate) -> int:
    """How many files are pruned by the conditions on partition columns alone."""
    narrowed = _partition_search(snapshot, bound)
    if narrowed is None:
        return 0
    kept = reader.count_files(snapshot.dataset.id, snapshot.version, narrowed)
    return snapshot.summary.get("live_files", kept) - kept


def _account(
    snapshot: Snapshot,
    predicates: PredicateSet | None,
    bound: BoundPredicate,
    wanted: Sequence[str],
    tasks: Sequence[ScanTask],
    by_partition: int,
) -> Pruning:
    total = snapshot.summary
    files = total.get("live_files", 0)
    return Pruning(
        dataset=snapshot.uri,
        version=snapshot.version,
        predicate=str(predicates) if predicates is not None else "TRUE",
        files_total=files,
        files_read=len(tasks),
        files_pruned_by_partition=by_partition,
        files_pruned_by_statistics=files - by_partition - len(tasks),
        row_groups_total=total.get("live_row_groups", 0),
        row_groups_read=sum(len(task.row_groups or ()) for task in tasks),
        rows_total=total.get("live_rows", 0),
        rows_read=sum(task.row_count for task in tasks),
        bytes_total=total.get("live_bytes", 0),
        bytes_read=sum(task.byte_count for task in tasks),
        columns_total=len(snapshot.schema),
        columns_read=len(wanted),
        conditions_not_used=bound.unused,
        conditions_read_as=tuple(
            f"{one.text} {'is' if one.whole else 'implies'} {render_bound(one.condition)}"
            for one in bound.meanings
            if one.condition != TRUE
        ),
        rows_deleted=sum(task.deleted.cardinality for task in tasks if task.deleted is not None),
    )

"""Verb. What a commit computes and records before it holds the lock of its dataset.

Index rows are computed from JSON, and inserting the rows of many files takes longer than
everything that a commit does under the lock. Both are done before the lock is taken,
because other writers wait from then on.

In a stream of small commits, each registers the next write ahead. A write is registered before its
first byte, so that vacuum leaves its files alone. That is a database transaction of its own, which
takes as long as the commit of a small write. Where commits of one process follow one another
closely, each commit therefore registers the next write in its own transaction. A reservation that
no write takes is a pending write without files; it is abandoned later, like the write of a process
that died.

Spark commits in another process than the one in which its statements begin. There it is the
begins that follow one another closely, and one of them registers the writes of the next ones.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from weakref import WeakKeyDictionary

import pyarrow as pa
import uuid6

from lakehouse_source.catalog.base import Catalog
from lakehouse_source.catalog.sql.history_reader import Current
from lakehouse_source.catalog.sql.writer import CatalogTransaction
from lakehouse_source.errors import CommitConflictError
from lakehouse_source.failpoints import reach
from lakehouse_source.model import DatasetRecord, FileBounds, FileMetadata, FileRecord
from lakehouse_source.pruning import bounds, keys
from lakehouse_source.schema.fields import Leaf, leaves, leaves_of_file
from lakehouse_source.schema.partitions import partition_ordinal, partition_text
from lakehouse_source.write.commit.chosen_paths import with_ids_of
from lakehouse_source.write.commit.options import StagedWrite
from lakehouse_source.write.commit.row_changes import PreparedRows

# A stream is at least this many commits, each at most this long after the one before.
STREAM_COMMITS = 8
STREAM_SECONDS = 1.0
# As many begins, each at most STREAM_SECONDS after the one before, are followed by more; then so
# many are registered with one.
STREAM_BEGINS = 4
BEGINS_AHEAD = 8
# How long a reservation can be used; far below the age at which a pending write is abandoned.
RESERVED_SECONDS = 10.0


@dataclass(slots=True)
class _Stream:
    """Commits, or begins, that follow one another; the last one, and the last registration."""

    commits: int = 0
    last: float = 0.0
    registered: float = 0.0
    # Write ids: one for each thread that commits at the same time, or for each begin that follows.
    reserved: list[str] = field(default_factory=list)

    def note(self, now: float) -> None:
        self.commits = self.commits + 1 if now - self.last < STREAM_SECONDS else 1
        self.last = now


_lock = threading.Lock()
_process = os.getpid()
# By catalog object and dataset key: a stream is one writer that keeps its catalog open.
_streams: WeakKeyDictionary[Catalog, dict[str, _Stream]] = WeakKeyDictionary()
# By the catalog's URL and dataset key: begins of statements, each of which opens its catalog.
_begins: dict[tuple[str, str], _Stream] = {}


def _stream(catalog: Catalog, key: str, ahead: bool) -> _Stream | None:
    return _begins.get((catalog.url, key)) if ahead else _streams.get(catalog, {}).get(key)


def take(catalog: Catalog, key: str, ahead: bool = False) -> tuple[str | None, list[str]]:
    """The id of a write that is registered already, and the ids that are too old to use.

    The caller deletes the old registrations from the catalog. `ahead`: a begin registered it.
    """
    with _guard():
        stream = _stream(catalog, key, ahead)
        if stream is None or not stream.reserved:
            return None, []
        if time.monotonic() - stream.registered < RESERVED_SECONDS:
            return stream.reserved.pop(), []
        stale, stream.reserved = stream.reserved, []
        return None, stale


def give_back(catalog: Catalog, key: str, reserved: str, ahead: bool = False) -> None:
    """Return a reservation: the write that took it did not begin."""
    with _guard():
        stream = _stream(catalog, key, ahead)
        if stream is not None:
            stream.reserved.append(reserved)


def begins_ahead(catalog: Catalog, key: str) -> list[str]:
    """Note a begin; new ids of the writes that it should register for those that follow."""
    now = time.monotonic()
    with _guard():
        for old in [one for one, of in _begins.items() if now - of.last >= RESERVED_SECONDS]:
            if old != (catalog.url, key):  # its reservations are told by `take`
                del _begins[old]
        stream = _begins.setdefault((catalog.url, key), _Stream())
        stream.note(now)
        wanted = stream.commits >= STREAM_BEGINS and not stream.reserved
    return [str(uuid6.uuid7()) for _ in range(BEGINS_AHEAD)] if wanted else []


def registered_ahead(catalog: Catalog, key: str, write_ids: Sequence[str]) -> None:
    """Note that a begin registered the writes of the begins that follow it."""
    with _guard():
        stream = _begins.get((catalog.url, key))
        if stream is not None and write_ids:
            stream.registered = time.monotonic()
            stream.reserved.extend(write_ids)


def is_wanted(catalog: Catalog, key: str) -> bool:
    """Tell whether the commit under way should register the next write."""
    with _guard():
        stream = _streams.get(catalog, {}).get(key)
        return (
            stream is not None
            and not stream.reserved
            and stream.commits >= STREAM_COMMITS
            and time.monotonic() - stream.last < STREAM_SECONDS
        )


def committed(catalog: Catalog, key: str, reserved: str | None) -> None:
    """Note that a write was committed, together with the registration of the next one."""
    now = time.monotonic()
    with _guard():
        stream = _streams.setdefault(catalog, {}).setdefault(key, _Stream())
        stream.note(now)
        stream.registered = now
        if reserved is not None:
            stream.reserved.append(reserved)


def _guard() -> threading.Lock:
    global _lock, _process, _streams, _begins
    process = os.getpid()
    if process != _process:
        # A forked child: the reservations belong to its parent.
        _lock, _process, _streams = threading.Lock(), process, WeakKeyDictionary()
        _begins = {}
    return _lock


IndexRows = Mapping[str, Sequence[FileBounds]]


@dataclass(frozen=True, slots=True)
class PreparedCommit:
    """A write that lacks only its database transaction.

    `files` are the files to add. `encoded` are the same files with their partition values
    as the catalog stores them (JSON texts); `index_rows` has their rows of the search
    index by path, over the columns with the ids `indexed`. `rewritten` are the files in which this
    write replaces the rows of its condition, with their numbers of row groups by file id. `rows`
    are the rows of existing files that the write takes out.
    """

    staged: StagedWrite
    files: tuple[FileMetadata, ...]
    encoded: tuple[FileMetadata, ...]
    indexed: frozenset[int]
    index_rows: IndexRows
    rewritten: tuple[FileRecord, ...]
    rewritten_row_groups: Mapping[int, int]
    rows: PreparedRows | None = None


def prepare_files(
    staged: StagedWrite,
    files: Sequence[FileMetadata],
    rewritten: Sequence[FileRecord],
    rewritten_row_groups: Mapping[int, int],
    rows: PreparedRows | None = None,
) -> PreparedCommit:
    """Compute what the catalog will store about files, under the schema as the write began."""
    schema = staged.spec.schema
    encoded = tuple(replace(file, partitions=encode_partitions(file, schema)) for file in files)
    indexed = frozenset(staged.indexed)
    return PreparedCommit(
        staged=staged,
        files=tuple(files),
        encoded=encoded,
        indexed=indexed,
        index_rows=compute_index_rows(encoded, schema, indexed, staged.spec.partition_by),
        rewritten=tuple(rewritten),
        rewritten_row_groups=rewritten_row_groups,
        rows=rows,
    )


@dataclass(frozen=True, slots=True)
class PrerecordedFiles:
    """The files that a commit recorded before it had the dataset's lock.

    `current` is the dataset as the commit saw it, and `version` the next version, for which the
    files were recorded. Without `file_ids` nothing is recorded yet.
    """

    current: Current
    version: int
    file_ids: Sequence[int] = ()


def prerecord_files(tx: CatalogTransaction, commit: PreparedCommit) -> PrerecordedFiles:
    """Record the files of a commit for the next version, before the dataset is locked.

    No other transaction sees the rows before this one is committed, and
    `rebase_prerecorded` corrects them where another commit takes the lock first. Nothing
    is locked here that other writers wait for: a foreign key takes a shared lock on the
    dataset's row, which conflicts only with a change of its key.

    Raises:
        CommitConflictError: the dataset is no longer in the catalog.
    """
    reach("transaction begun")
    staged = commit.staged
    current, ids = tx.current_with_new_file_ids(staged.key, len(commit.encoded))
    if current is None:
        raise removed_from_catalog(staged)
    version = current.dataset.current_version + 1
    unchanged = current.schema is not None and current.schema.equals(
        staged.spec.schema, check_metadata=True
    )
    own_ids = with_ids_of(commit.encoded, staged.spec.schema) is commit.encoded
    fits = own_ids and _fits(current.dataset, staged.spec.schema, commit)
    if not (commit.encoded and unchanged and fits):
        return PrerecordedFiles(current, version)
    tx.record_file_metadata(
        current.dataset,
        version,
        commit.encoded,
        schema_version=current.schema_version,
        bounds=lambda file: commit.index_rows[file.path],
        ids=ids,
    )
    reach("files recorded")
    return PrerecordedFiles(current, version, ids)


def rebase_prerecorded(
    tx: CatalogTransaction,
    record: DatasetRecord,
    version: int,
    schema: pa.Schema,
    commit: PreparedCommit,
    prerecorded: PrerecordedFiles,
    schema_is_same: bool,
) -> bool:
    """Correct the rows of prerecorded files under the lock; False if no rows are left.

    The rows move to `version`. If the schema or the indexed columns differ from those that the rows
    were computed for, the rows are deleted.
    """
    if not prerecorded.file_ids:
        return False
    if not schema_is_same or not _fits(record, schema, commit):
        tx.forget_files(prerecorded.file_ids)
        return False
    if version != prerecorded.version:
        taken = record.next_row_id - prerecorded.current.dataset.next_row_id
        tx.move_files(version, taken, prerecorded.file_ids)
        reach("files moved")
    return True


def record_files(
    tx: CatalogTransaction,
    record: DatasetRecord,
    version: int,
    schema_version: int,
    schema: pa.Schema,
    commit: PreparedCommit,
) -> None:
    """Record the files of a commit at a version whose schema is given."""
    rows = commit.index_rows
    files = with_ids_of(commit.encoded, schema)
    if files is not commit.encoded or not _fits(record, schema, commit):
        indexed = _indexed(record, schema)
        rows = compute_index_rows(files, schema, indexed, record.properties.partition_by)
    tx.record_file_metadata(
        record,
        version,
        files,
        schema_version=schema_version,
        bounds=lambda file: rows[file.path],
    )


def _indexed(record: DatasetRecord, schema: pa.Schema) -> set[int]:
    return {leaf.id for leaf in leaves(schema)}.intersection(record.properties.indexed_columns)


def _fits(record: DatasetRecord, schema: pa.Schema, commit: PreparedCommit) -> bool:
    """Tell whether the prepared index rows cover the columns that the index covers now."""
    ids = {leaf.id for leaf in leaves(schema)}
    return ids.intersection(record.properties.indexed_columns) == commit.indexed & ids


def compute_index_rows(
    files: Sequence[FileMetadata],
    schema: pa.Schema,
    indexed: AbstractSet[int],
    partition_by: Sequence[str],
    types: Mapping[int, pa.DataType] | None = None,
    others: Iterable[pa.Schema] = (),
) -> dict[str, list[FileBounds]]:
    """The index rows of files, by path. Partition values of the files are JSON texts.

    `schema` is the one the files were written under; `others` may have paths of VARIANT that it
    lacks, of which nothing is known then. `types` gives, by field id, the types
    that columns were promoted to since then: keys have the encoding of the promoted type.
    """
    later = [leaf for one in others for leaf in leaves(one)]
    columns = [leaf for leaf in leaves_of_file(schema, later) if leaf.id in indexed]
    in_files = [leaf for leaf in columns if leaf.path[0] not in partition_by]
    in_folders = [leaf for leaf in columns if leaf.path[0] in partition_by]
    present: dict[int, list[Leaf]] = {}  # most files share one schema object

    def rows_of(file: FileMetadata) -> list[FileBounds]:
        if id(file.schema) not in present:
            ids = {leaf.id for leaf in leaves_of_file(file.schema, in_files)}
            present[id(file.schema)] = [leaf for leaf in in_files if leaf.id in ids]
        rows = bounds.file_bounds(file.row_groups, present[id(file.schema)], types)
        for leaf in in_folders:
            value = partition_ordinal(file.partitions[leaf.path[0]], leaf.type)
            now = leaf.type if types is None else types.get(leaf.id, leaf.type)
            row = bounds.constant_bounds(leaf, value, file.row_count)[1]
            if keys.encoding(now) != keys.encoding(leaf.type):
                row = replace(row, lower=keys.UNBOUNDED_LOWER, upper=keys.UNBOUNDED_UPPER)
            rows.append(row)
        return rows

    return {file.path: rows_of(file) for file in files}


def encode_partitions(file: FileMetadata, schema: pa.Schema) -> dict[str, str | None]:
    """Partition values as the catalog stores them: JSON text, None for NULL."""
    return {
        name: partition_text(value, schema.field(name).type)
        for name, value in file.partitions.items()
    }


def removed_from_catalog(staged: StagedWrite) -> CommitConflictError:
    """The error of a commit whose dataset is no longer in the catalog."""
    return staged.conflict(0, "the dataset was removed from the catalog")

"""Verb. What a commit does under the lock of its dataset, inside its database transaction.

The commit checks whether this write was committed already and whether newer commits conflict, finds
the files that it replaces, and records the new version.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from lakehouse_source.catalog.sql.reader import CatalogReader
from lakehouse_source.catalog.sql.writer import CatalogTransaction, LockedDataset
from lakehouse_source.errors import DatasetExistsError
from lakehouse_source.failpoints import reach
from lakehouse_source.model import DatasetRecord, FileRecord, TransactionRecord, WriteResult
from lakehouse_source.storage import Storage
from lakehouse_source.write.commit.apply_rows import (
    AppliedRows,
    RewriteOutdated,
    RowConflict,
    StorageNeeded,
    apply_rows,
    with_storage,
)
from lakehouse_source.write.commit.conflicts import PUT_BACK, Change, conflict
from lakehouse_source.write.commit.evolution import (
    record_schema,
    schema_to_commit,
    schema_version_of,
)
from lakehouse_source.write.commit.newer_commits import (
    check_newer_commits,
    check_not_live,
    in_partitions_of,
)
from lakehouse_source.write.commit.options import WriteOptions
from lakehouse_source.write.commit.prerecord import (
    PreparedCommit,
    PrerecordedFiles,
    rebase_prerecorded,
    record_files,
    removed_from_catalog,
)
from lakehouse_source.write.commit.summary import summary, with_rows, write_result


def apply_commit(
    tx: CatalogTransaction, commit: PreparedCommit, prerecorded: PrerecordedFiles
) -> WriteResult:
    """Add the files of a write, and remove those that it replaces, as the next version.

    If this write, or another write with the same idempotency pair, was committed already, nothing
    is changed and the result is that of the first commit. For another write its `metadata` is
    empty.

    Raises:
        RewriteOutdated, StorageNeeded: the write needs more before it can be committed.
    """
    staged, options = commit.staged, commit.staged.options
    locked = tx.lock_for(prerecorded.current, staged.write_id, _pair(options))
    reach("dataset locked")
    if locked is None or locked.dataset.id != staged.dataset_id:
        raise removed_from_catalog(staged)
    record = locked.dataset
    done = locked.claim.done or locked.claim.repeated
    if done is not None:
        return _first_result(tx, commit, prerecorded, record, done)
    check_may_commit(staged.uri, record, options)
    _check_base(tx, commit, locked)
    if options.register_as is not None:
        tx.names.give(options.register_as, record.id)
    if options.managed and record.current_version == 0:
        tx.set_managed(record.id)
    newer = check_newer_commits(tx, commit, record, prerecorded)
    reach("conflicts checked")
    version = record.current_version + 1
    known = prerecorded.current
    schema_version, before = locked.schema or (known.schema_version, known.schema)
    schema = _schema_to_commit(tx, record, before, commit)
    if schema is not before:
        schema_version = version
        record = record_schema(tx, record, version, schema, before, staged)
        reach("schema written")
    # This must come before the live files are listed: if another commit took the version that files
    # were prerecorded for, these files would be listed as live.
    same = locked.schema is None and schema is before
    recorded = rebase_prerecorded(tx, record, version, schema, commit, prerecorded, same)
    check_not_live(tx, record, commit)
    rows = _apply_rows(tx, record, commit, newer)
    removed = _files_to_remove(tx, record, commit) if rows is None else rows.removed
    counts = _counts(tx, record, commit, removed, rows, locked.last)
    tx.insert_transaction(
        record.id,
        version,
        options.operation,
        options.commit_metadata,
        counts,
        staged.write_id,
        txn_app_id=options.txn_app_id,
        txn_version=options.txn_version,
        claim=locked.claim,
        new_rows=sum(file.row_count for file in commit.files),
        committer=_committer(options),
    )
    reach("transaction written")
    if not recorded:
        written_under = schema_version
        if schema is not staged.spec.schema:  # others may have changed it since the write began
            written_under = schema_version_of(tx, record, staged) or schema_version
        record_files(tx, record, version, written_under, schema, commit)
    reach("files written")
    tx.remove_files(record.id, version, [file.id for file in removed])
    reach("files removed")
    if rows is not None:
        tx.set_vectors(record.id, version, rows.vectors)
        reach("vectors recorded")
    return write_result(version, schema_version, commit.files, staged.write_id, counts)


def committed_before(
    reader: CatalogReader, record: DatasetRecord, options: WriteOptions
) -> TransactionRecord | None:
    """The commit that a write repeats: its application committed this number or a later one."""
    pair = _pair(options)
    return None if pair is None else reader.repeated(record.id, *pair)


def _committer(options: WriteOptions) -> Mapping[str, str]:
    """What the writer tells of itself; the process knows the engine if it is not DuckDB."""
    return {"engine": "duckdb" if options.writer == "duckdb" else "", **options.committer}


def _pair(options: WriteOptions) -> tuple[str, int] | None:
    if options.txn_app_id is None or options.txn_version is None:
        return None
    return options.txn_app_id, options.txn_version


def check_may_commit(uri: str, record: DatasetRecord, options: WriteOptions) -> None:
    """Check what the caller demands of the dataset's version."""
    expected = options.expected_version
    if expected is not None and record.current_version != expected:
        raise conflict(uri, expected, record.current_version, f"version {expected} was expected")
    if options.mode == "error" and record.current_version:
        raise DatasetExistsError(dataset=uri)


def _first_result(
    tx: CatalogTransaction,
    commit: PreparedCommit,
    prerecorded: PrerecordedFiles,
    record: DatasetRecord,
    done: TransactionRecord,
) -> WriteResult:
    """Undo what was recorded for a repeated write; return the result of the first commit."""
    tx.forget_files(prerecorded.file_ids)
    tx.finish_pending(commit.staged.write_id)
    schema_version = tx.schema_at(record.id, done.version)[0]
    skipped = done.write_id != commit.staged.write_id
    own = () if skipped else commit.files
    found = write_result(done.version, schema_version, own, done.write_id, done.summary)
    return replace(found, skipped=skipped)


def _check_base(tx: CatalogTransaction, commit: PreparedCommit, locked: LockedDataset) -> None:
    """Check that the version on which the write is based has not been given to another commit."""
    base, record = commit.staged.base, locked.dataset
    write_id = None if locked.last is None else locked.last.write_id
    if base.version < record.current_version:
        write_id = tx.write_id_of(record.id, base.version)
    if base.is_gone(record.current_version, write_id):
        raise commit.staged.conflict(record.current_version, PUT_BACK)


def _counts(
    tx: CatalogTransaction,
    record: DatasetRecord,
    commit: PreparedCommit,
    removed: Sequence[FileRecord],
    rows: AppliedRows | None,
    last: TransactionRecord | None,
) -> dict[str, int]:
    """The summary of the commit. `last` is the commit before it."""
    counts = summary(
        tx,
        record,
        commit.files,
        removed,
        commit.rewritten_row_groups,
        last=last,
        deleted_by_vectors=0 if rows is None else rows.rows_by_vectors,
    )
    if rows is not None:
        counts = with_rows(counts, commit, rows)
    if commit.staged.options.change is Change.REWRITE:
        # Streams skip the commit: it moves rows, and adds and removes none.
        counts = {**counts, "rows_added": 0, "rows_removed": 0, "data_change": 0}
    return counts


def _schema_to_commit(
    tx: CatalogTransaction, record: DatasetRecord, before: pa.Schema | None, commit: PreparedCommit
) -> pa.Schema:
    if commit.staged.options.change is not Change.DELETE or before is None:
        return schema_to_commit(tx, record, before, commit.staged)
    # Deleted rows need no schema. Rewritten rows have the schema of the base version.
    if commit.files and not before.equals(commit.staged.spec.schema, check_metadata=True):
        raise RewriteOutdated
    return before


def _apply_rows(
    tx: CatalogTransaction,
    record: DatasetRecord,
    commit: PreparedCommit,
    newer: Sequence[TransactionRecord],
) -> AppliedRows | None:
    rows, staged = commit.rows, commit.staged
    if rows is None:
        return None
    storage = Storage(staged.spec.uri)
    while True:
        try:
            return apply_rows(tx, rows, staged.base_version, newer, storage)
        except StorageNeeded as needed:
            if not rows.under_lock:
                raise
            rows = with_storage(rows, needed, staged.write_id, storage)
        except RowConflict as error:
            raise staged.conflict(record.current_version, error.collision) from error


def _files_to_remove(
    tx: CatalogTransaction, record: DatasetRecord, commit: PreparedCommit
) -> Sequence[FileRecord]:
    staged = commit.staged
    if staged.options.change is Change.APPEND or record.current_version == 0:
        return ()
    if staged.options.overwrite_where is not None or staged.options.change is Change.REWRITE:
        return commit.rewritten
    live = tx.files(record.id, record.current_version)
    if staged.options.dynamic_partitions:
        return in_partitions_of(tx, commit, record, live)
    return live

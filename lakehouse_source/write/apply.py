"""Verb. What a commit does under the lock of its dataset, inside its database transaction.

It looks whether this write was committed already, whether newer commits conflict, and
which files it replaces; then it records the new version.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from lakehouse_source.catalog.reader import CatalogReader
from lakehouse_source.catalog.writer import CatalogTransaction
from lakehouse_source.errors import CommitConflictError, DatasetExistsError, InvalidPredicateError
from lakehouse_source.failpoints import reach
from lakehouse_source.model import (
    DatasetRecord,
    FileMetadata,
    FileRecord,
    TransactionRecord,
    WriteResult,
)
from lakehouse_source.parquet.names import own_name
from lakehouse_source.predicate import PredicateSet
from lakehouse_source.pruning.indexed import same_index_columns
from lakehouse_source.read.candidates import candidates
from lakehouse_source.read.snapshot import open_snapshot
from lakehouse_source.schema.partitions import PartitionTexts
from lakehouse_source.storage import Storage
from lakehouse_source.write import conflicts
from lakehouse_source.write.conflicts import Change, Verdict
from lakehouse_source.write.evolution import (
    record_schema,
    schema_to_commit,
    schema_version_of,
)
from lakehouse_source.write.options import StagedWrite, WriteOptions
from lakehouse_source.write.prerecord import (
    PreparedCommit,
    PrerecordedFiles,
    rebase_prerecorded,
    record_files,
    removed_from_catalog,
)
from lakehouse_source.write.row_changes import (
    AppliedRows,
    RewriteOutdated,
    RowConflict,
    apply_rows,
)


def apply_commit(
    tx: CatalogTransaction, commit: PreparedCommit, prerecorded: PrerecordedFiles
) -> WriteResult:
    """Add the files of a write, and remove those that it replaces, as the next version.

    Where this write, or one with the same idempotency pair, was committed already, nothing
    is changed and the result is that of the first commit; in the second case its
    `metadata` is empty.

    Raises:
        CommitConflictError, DatasetExistsError
    """
    staged, options = commit.staged, commit.staged.options
    locked = tx.lock_for(prerecorded.current, staged.write_id)
    reach("dataset locked")
    if locked is None or locked.dataset.id != staged.dataset_id:
        raise removed_from_catalog(staged)
    record = locked.dataset
    done = locked.claim.done or committed_before(tx, record, options)
    if done is not None:
        return _first_result(tx, commit, prerecorded, record, done)
    check_may_commit(staged.uri, record, options)
    if options.register_as is not None:
        tx.names.give(options.register_as, record.id)
    newer = _check_conflicts(tx, commit, record, prerecorded)
    reach("conflicts checked")
    version = record.current_version + 1
    known = prerecorded.current
    schema_version, before = locked.schema or (known.schema_version, known.schema)
    schema = _schema_to_commit(tx, record, before, commit)
    if schema is not before:
        schema_version = version
        record = record_schema(tx, record, version, schema, before, staged)
        reach("schema written")
    # Before the live files are listed: if another commit took the version that files were
    # prerecorded for, they would be listed as live.
    same = locked.schema is None and schema is before
    recorded = rebase_prerecorded(tx, record, version, schema, commit, prerecorded, same)
    _check_not_live(tx, record, commit)
    rows = _apply_rows(tx, record, commit, newer)
    removed = _files_to_remove(tx, record, commit) if rows is None else rows.removed
    counts = summary(
        tx,
        record,
        commit.files,
        removed,
        commit.rewritten_row_groups,
        last=locked.last,
        deleted_by_vectors=0 if rows is None else rows.rows_by_vectors,
    )
    if rows is not None:
        counts = _with_rows(counts, commit, rows)
    if options.change is Change.REWRITE:
        # Streams skip the commit: it moves rows, and adds and removes none.
        counts = {**counts, "rows_added": 0, "rows_removed": 0, "data_change": 0}
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
    return write_result(version, schema_version, commit.files)


def write_result(version: int, schema_version: int, files: Sequence[FileMetadata]) -> WriteResult:
    """The result of a commit that added files."""
    rows = sum(file.row_count for file in files)
    return WriteResult(version, len(files), rows, schema_version, tuple(files))


def committed_before(
    reader: CatalogReader, record: DatasetRecord, options: WriteOptions
) -> TransactionRecord | None:
    """The commit that a write repeats: of the same application, with its number or a later one."""
    if options.txn_app_id is None or options.txn_version is None:
        return None
    last = reader.last_txn_version(record.id, options.txn_app_id)
    if last is None or last < options.txn_version:
        return None
    return reader.transaction_by_txn(record.id, options.txn_app_id, options.txn_version) or (
        reader.transaction_by_txn(record.id, options.txn_app_id, last)
    )


def check_may_commit(uri: str, record: DatasetRecord, options: WriteOptions) -> None:
    """Check what the caller demands of the dataset's version.

    Raises:
        CommitConflictError: the dataset is not at `expected_version`.
        DatasetExistsError: the mode is "error" and the dataset has a version.
    """
    expected = options.expected_version
    if expected is not None and record.current_version != expected:
        raise CommitConflictError(
            dataset=uri,
            base_version=expected,
            current_version=record.current_version,
            reason=f"version {expected} was expected",
        )
    if options.mode == "error" and record.current_version:
        raise DatasetExistsError(dataset=uri)


def _first_result(
    tx: CatalogTransaction,
    commit: PreparedCommit,
    prerecorded: PrerecordedFiles,
    record: DatasetRecord,
    done: TransactionRecord,
) -> WriteResult:
    """Undo what was recorded for a repetition; answer what the first commit did."""
    tx.forget_files(prerecorded.file_ids)
    tx.finish_pending(commit.staged.write_id)
    schema_version = tx.schema_at(record.id, done.version)[0]
    own = commit.files if done.write_id == commit.staged.write_id else ()
    return write_result(done.version, schema_version, own)


# --- conflicts ---------------------------------------------------------------------


def _check_conflicts(
    tx: CatalogTransaction,
    commit: PreparedCommit,
    record: DatasetRecord,
    prerecorded: PrerecordedFiles,
) -> list[TransactionRecord]:
    """Check what was committed since the write began; answers these commits."""
    staged = commit.staged
    if record.current_version == staged.base_version:
        return []

    def conflict(reason: str) -> CommitConflictError:
        return CommitConflictError(
            dataset=staged.uri,
            base_version=staged.base_version,
            current_version=record.current_version,
            reason=reason,
        )

    partition_by = record.properties.partition_by
    replaces = staged.options.overwrite_schema
    if partition_by != staged.spec.partition_by and not replaces:
        # After this write began, another writer created the dataset with other columns, or
        # renamed one.
        raise conflict(f"its partition columns are ({', '.join(partition_by)}) now")
    names = staged.options.index_columns
    if staged.base_version == 0 and names is not None:
        schema = tx.schema_at(record.id, record.current_version)[1]
        if not same_index_columns(schema, names, record.properties, partition_by):
            raise conflict("the dataset has other columns in its index")
    check_added = check_mine = False
    change = staged.options.change
    commits = tx.transactions_since(record.id, staged.base_version)
    for newer in commits:
        theirs = conflicts.change_of(newer.operation)
        if theirs is None:
            raise conflict(
                f"version {newer.version} did {newer.operation!r}, unknown to this release"
            )
        found = conflicts.verdict(change, theirs)
        if found is Verdict.CHECK_ADDED:
            check_added = True
        elif found is Verdict.CHECK_ROWS:
            assert commit.rows is not None  # the others are checked by `_apply_rows`
            check_added = conflicts.checks_added(change, commit.rows.changes.isolation)
        elif found is Verdict.CHECK_MINE:
            check_mine = True
        elif found is Verdict.CONFLICT:
            raise conflict(f"version {newer.version} did {newer.operation!r}")
    if check_added:
        own = set(prerecorded.file_ids)
        newer_files = tx.files_added_since(record.id, staged.base_version)
        # A rewrite adds no row: its rows are in files of the base version, or in others here.
        rewrites = {
            newer.version
            for newer in commits
            if conflicts.change_of(newer.operation) is Change.REWRITE
        }
        added = [
            file for file in newer_files if file.id not in own and file.version not in rewrites
        ]
        touched = _first_replaced(tx, record, commit, added)
        if touched is not None:
            what = "replaced" if commit.rows is None else "matched by the condition"
            raise conflict(f"{touched.path}, added by version {touched.version}, may be {what}")
    if check_mine:
        reason = _touched_by_others(tx, commit)
        if reason is not None:
            raise conflict(reason)
    return commits


def _touched_by_others(tx: CatalogTransaction, commit: PreparedCommit) -> str | None:
    """Why a rewrite would undo another commit: it removed a file that is rewritten, or rows."""
    paths = {file.id: file.path for file in commit.rewritten}
    gone = paths.keys() - tx.live_among(list(paths))
    if gone:
        return f"{paths[min(gone)]} was removed, and this write rewrites it"
    since = tx.vectors_since(list(paths), commit.staged.base_version)
    if since:
        return f"rows of {paths[since[0].file_id]} were deleted, and this write rewrites it"
    return None


def _schema_to_commit(
    tx: CatalogTransaction, record: DatasetRecord, before: pa.Schema | None, commit: PreparedCommit
) -> pa.Schema:
    if commit.staged.options.change is not Change.DELETE or before is None:
        return schema_to_commit(tx, record, before, commit.staged)
    # Deleted rows need no schema. Rows that were written anew have the one of the base version.
    if commit.files and not before.equals(commit.staged.spec.schema, check_metadata=True):
        raise RewriteOutdated
    return before


def _apply_rows(
    tx: CatalogTransaction,
    record: DatasetRecord,
    commit: PreparedCommit,
    newer: Sequence[TransactionRecord],
) -> AppliedRows | None:
    if commit.rows is None:
        return None
    staged = commit.staged
    try:
        return apply_rows(
            tx,
            record,
            commit.rows,
            staged.base_version,
            newer,
            staged.write_id,
            Storage(staged.spec.uri),
        )
    except RowConflict as error:
        raise CommitConflictError(
            dataset=staged.uri,
            base_version=staged.base_version,
            current_version=record.current_version,
            reason=str(error),
        ) from error


def _with_rows(
    counts: Mapping[str, int], commit: PreparedCommit, rows: AppliedRows
) -> dict[str, int]:
    """The summary of a commit that changes rows. Rows that it only copies are not counted."""
    assert commit.rows is not None
    return {
        **counts,
        "rows_added": counts["rows_added"] - rows.copied,
        "rows_removed": counts["rows_removed"] - rows.copied,
        "rows_deleted": rows.deleted,
        "rows_updated": rows.updated,
        "rows_inserted": commit.rows.changes.inserted,
        "vectors_written": len(rows.vectors),
    }


def _check_not_live(tx: CatalogTransaction, record: DatasetRecord, commit: PreparedCommit) -> None:
    """Check that no file that is added where it stands is in the dataset already.

    A name that plake gave is new. Any other file another commit may have added before.

    Raises:
        CommitConflictError
    """
    mine = {file.path for file in commit.files if own_name(file.path) is None}
    if not mine or record.current_version == 0:
        return
    for file in tx.files(record.id, record.current_version):
        if file.path in mine:
            raise CommitConflictError(
                dataset=commit.staged.uri,
                base_version=commit.staged.base_version,
                current_version=record.current_version,
                reason=f"{file.path} is in the dataset since version {file.version}",
            )
    rewritten = mine & tx.rewritten_paths(record.id, conflicts.MOVE_ROWS, conflicts.KEEP_ROWS)
    if rewritten:
        raise CommitConflictError(
            dataset=commit.staged.uri,
            base_version=commit.staged.base_version,
            current_version=record.current_version,
            reason=f"the rows of {min(rewritten)} are in the dataset: a compaction has written "
            "them to other files",
        )


def _first_replaced(
    tx: CatalogTransaction,
    record: DatasetRecord,
    commit: PreparedCommit,
    added: Sequence[FileRecord],
) -> FileRecord | None:
    """The first of the files that others added that may hold a row that this write replaces."""
    staged = commit.staged
    if staged.options.dynamic_partitions:
        mine = _partitions_of(commit)
        texts = _partition_texts(tx, record, staged)
        return next((file for file in added if texts(file) in mine), None)
    if commit.rows is None:
        condition = staged.options.overwrite_where
        assert condition is not None
    else:
        condition = commit.rows.changes.condition or PredicateSet.of(None)
    snapshot = open_snapshot(tx, staged.key, staged.uri, "")
    try:
        bound = condition.bind(snapshot.schema)
    except InvalidPredicateError:
        # Another commit renamed or dropped a column of the condition: any row may match.
        bound = PredicateSet.of(None).bind(snapshot.schema)
    return next((found.file for found in candidates(tx, snapshot, bound, added)), None)


# --- what a commit replaces, and what it leaves --------------------------------------


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
        mine = _partitions_of(commit)
        texts = _partition_texts(tx, record, staged)
        return [file for file in live if texts(file) in mine]
    return live


def _partitions_of(commit: PreparedCommit) -> set[tuple[str | None, ...]]:
    """The partitions that a commit adds files to, as tuples of JSON texts."""
    names = commit.staged.spec.partition_by
    return {tuple(file.partitions[name] for name in names) for file in commit.encoded}


def _partition_texts(
    tx: CatalogTransaction, record: DatasetRecord, staged: StagedWrite
) -> PartitionTexts:
    """Finds the partition values of files that are recorded already."""
    return PartitionTexts(staged.spec.partition_by, staged.spec.schema, tx.schemas(record.id))


def summary(
    tx: CatalogTransaction,
    record: DatasetRecord,
    files: Sequence[FileMetadata],
    removed: Sequence[FileRecord],
    removed_row_groups: Mapping[int, int] | None = None,
    *,
    last: TransactionRecord | None = None,
    returned_by_vectors: int = 0,
    deleted_by_vectors: int = 0,
) -> dict[str, int]:
    """The summary of a commit (see `TransactionRecord`), from that of the commit before it.

    `removed_row_groups` has the numbers of row groups that are known already, by file id;
    `last` is the commit before this one, read from the catalog where it is not given.
    `returned_by_vectors` counts the rows that the commit brings back in files that stay, less
    the rows of `files` that are deleted in them; `deleted_by_vectors` counts the rows that it
    deletes in files that stay.
    """
    if last is None and record.current_version:
        last = tx.transaction(record.id, record.current_version)
    before: Mapping[str, int] = {} if last is None else last.summary
    if removed and len(removed) == before.get("live_files") and "live_rows" in before:
        groups = before.get("live_row_groups", 0)  # every file is removed
        removed_rows = before["live_rows"]
    else:
        known = removed_row_groups or {}
        unknown = [file.id for file in removed if file.id not in known]
        groups = sum(known.get(file.id, 0) for file in removed)
        groups += sum(len(found) for found in tx.row_groups(unknown).values())
        vectors = tx.vectors([file.id for file in removed], record.current_version)
        removed_rows = sum(file.row_count for file in removed)
        removed_rows -= sum(vector.cardinality for vector in vectors.values())
    added_rows = sum(file.row_count for file in files) + returned_by_vectors
    removed_rows += deleted_by_vectors
    change = {
        "files_added": len(files),
        "files_removed": len(removed),
        "rows_added": added_rows,
        "rows_removed": removed_rows,
    }
    if last is not None and "live_rows" not in before:
        return change  # what is live cannot be told from a summary that lacks it
    return {
        **change,
        "live_files": before.get("live_files", 0) + len(files) - len(removed),
        "live_rows": before.get("live_rows", 0) + added_rows - removed_rows,
        "live_row_groups": before.get("live_row_groups", 0)
        + sum(len(file.row_groups) for file in files)
        - groups,
        "live_bytes": before.get("live_bytes", 0)
        + sum(file.file_size_bytes for file in files)
        - sum(file.size_bytes for file in removed),
    }

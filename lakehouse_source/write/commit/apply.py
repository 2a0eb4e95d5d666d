"""Verb. What a commit does under the lock of its dataset, inside its database transaction.

The commit checks whether this write was committed already and whether newer commits conflict, finds
the files that it replaces, and records the new version.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import pyarrow as pa

from lakehouse_source.catalog.sql.reader import CatalogReader
from lakehouse_source.catalog.sql.writer import CatalogTransaction, LockedDataset
from lakehouse_source.constraints import missing
from lakehouse_source.errors import CommitConflictError, DatasetExistsError, InvalidPredicateError
from lakehouse_source.failpoints import reach
from lakehouse_source.generated import lanes
from lakehouse_source.language import PredicateSet
from lakehouse_source.model import (
    DatasetRecord,
    FileMetadata,
    FileRecord,
    TransactionRecord,
    WriteResult,
)
from lakehouse_source.parquet.names import own_name
from lakehouse_source.pruning.keys import same_index_columns
from lakehouse_source.read.candidates import candidates
from lakehouse_source.read.plan import plan
from lakehouse_source.read.snapshot import open_snapshot
from lakehouse_source.schema.fields import field_id
from lakehouse_source.schema.partitions import PartitionTexts
from lakehouse_source.storage import Storage
from lakehouse_source.write.commit import conflicts
from lakehouse_source.write.commit.chosen_paths import rebuild_index, with_chosen_paths
from lakehouse_source.write.commit.conflicts import (
    PUT_BACK,
    Change,
    Collision,
    Isolation,
    Verdict,
    conflict,
)
from lakehouse_source.write.commit.evolution import (
    record_schema,
    schema_to_commit,
    schema_version_of,
)
from lakehouse_source.write.commit.key_search import KeySearch
from lakehouse_source.write.commit.options import StagedWrite, WriteOptions
from lakehouse_source.write.commit.prerecord import (
    PreparedCommit,
    PrerecordedFiles,
    rebase_prerecorded,
    record_files,
    removed_from_catalog,
)
from lakehouse_source.write.commit.row_changes import (
    AddedFiles,
    AppliedRows,
    PreparedRows,
    RewriteOutdated,
    RowConflict,
    StorageNeeded,
    apply_rows,
    with_storage,
)
from lakehouse_source.write.commit.transaction import Read

# `NewKeys.check_newer` of `keys.py`, which imports this module.
KeyCheck: TypeAlias = Callable[
    [CatalogTransaction, DatasetRecord, Sequence[TransactionRecord], Collection[int]], None
]

# --- Whether a commit conflicts with those that came after its write began.
#
# It runs under the lock of the dataset, inside the database transaction of the commit. The table in
# `conflicts` decides; what the table leaves open is looked up in the catalog.


def check_newer_commits(
    tx: CatalogReader,
    commit: PreparedCommit,
    record: DatasetRecord,
    own: Collection[int] = (),
) -> list[TransactionRecord]:
    """Check the commits since the write began; returns these commits.

    `own` are the ids of the commit's own files. `apply_rows`, not this function, checks which rows
    a statement and other commits changed.
    """
    staged = commit.staged
    if record.current_version == staged.base_version:
        return []
    _check_layout(tx, commit, record)
    change = staged.options.change
    commits = tx.all_since(record, staged.base_version)
    if commits is None:
        raise _conflict(commit, record, conflicts.FORGOTTEN)
    verdicts = {_verdict(commit, record, newer) for newer in commits}
    replaces = Verdict.CHECK_REPLACED in verdicts
    looks_at_added = replaces or Verdict.CHECK_ADDED in verdicts
    if replaces and staged.options.dynamic_partitions:
        _check_taken(tx, commit, record, commits)
    if Verdict.CHECK_ROWS in verdicts:
        assert commit.rows is not None
        looks_at_added |= conflicts.checks_added(change, commit.rows.changes.isolation)
        unknown = commit.rows.changes.read is None
        if unknown and commit.rows.changes.isolation is Isolation.SERIALIZABLE:
            _check_taken(tx, commit, record, commits)
    if looks_at_added:
        _check_added(tx, commit, record, own, commits)
    if replaces or Verdict.CHECK_MINE in verdicts:
        touched = _touched_by_others(tx, commit)
        if touched is not None:
            raise _conflict(commit, record, touched)
    return commits


def _conflict(
    commit: PreparedCommit, record: DatasetRecord, collision: Collision
) -> CommitConflictError:
    return commit.staged.conflict(record.current_version, collision)


def _check_layout(tx: CatalogReader, commit: PreparedCommit, record: DatasetRecord) -> None:
    """Check that the files have the partition columns and the index of the dataset as it is now."""
    staged = commit.staged
    partition_by = record.properties.partition_by
    if partition_by != staged.spec.partition_by and not staged.options.overwrite_schema:
        # After this write began, another writer created the dataset with other columns, or
        # renamed one.
        now = Collision("its partition columns are ({columns}) now", columns=tuple(partition_by))
        raise _conflict(commit, record, now)
    names = staged.options.index_columns
    if staged.base_version == 0 and names is not None:
        schema = tx.schema_at(record.id, record.current_version)[1]
        if not same_index_columns(schema, names, record.properties, partition_by):
            other = Collision("the dataset has other columns in its index")
            raise _conflict(commit, record, other)


def _verdict(commit: PreparedCommit, record: DatasetRecord, newer: TransactionRecord) -> Verdict:
    did = partial(conflicts.committed_first, newer.version, newer.operation)
    theirs = conflicts.change_of(newer.operation)
    if theirs is None:
        raise _conflict(commit, record, did(", unknown to this release"))
    options = commit.staged.options
    found = conflicts.verdict(options.change, theirs)
    replaces_all = options.change is Change.OVERWRITE and conflicts.changes_rows(theirs)
    if options.reads_own_rows and (replaces_all or found is Verdict.CHECK_REPLACED):
        before = ", and the rows that replace the dataset's were computed from those before it"
        raise _conflict(commit, record, did(before))
    if found is Verdict.CONFLICT:
        raise _conflict(commit, record, did())
    return found


def _check_added(
    tx: CatalogReader,
    commit: PreparedCommit,
    record: DatasetRecord,
    own: Collection[int],
    commits: Iterable[TransactionRecord],
) -> None:
    """Check that no file that others added can hold a row that this write replaces."""
    added = _added_since(tx, record, commit.staged.base_version, commits, own)
    if commit.rows is None:
        touched = _first_replaced(tx, record, commit, added)
    else:
        touched = _first_matched(tx, commit, commit.rows, added)
    if touched is not None:
        what = "replaced" if commit.rows is None else "matched by the condition"
        text = "{path}, added by version {version}, may be " + what
        raise _conflict(commit, record, Collision(text, touched.version, path=touched.path))


def _first_matched(
    tx: CatalogReader, commit: PreparedCommit, rows: PreparedRows, files: Sequence[FileRecord]
) -> FileRecord | None:
    """The first of some files with a row that satisfies the condition of a statement.

    Raises:
        StorageNeeded: files have to be read.
    """
    staged = commit.staged
    files = [file for file in files if rows.looked_into.get(file.path, True)]
    if not files:
        return None
    snapshot = open_snapshot(tx, staged.key, staged.uri, "")
    condition = rows.changes.condition or PredicateSet.of(None)
    storage = Storage(staged.spec.uri)
    search = None
    try:
        if rows.changes.keys is not None:
            search = KeySearch.of(rows.changes.keys, snapshot.schema)
        if search is not None:
            of_base = replace(snapshot, history=rows.history)
            bound = condition.bind(snapshot.schema)
            added = AddedFiles.with_keys(tx, of_base, bound, files, search, storage)
        else:
            found = plan(
                tx,
                snapshot,
                read_uri=staged.spec.uri,
                predicates=condition,
                columns=(),
                files=files,
            )
            added = AddedFiles(found.spec, found.tasks)
    except InvalidPredicateError:
        return files[0]  # another commit renamed or dropped a column of the condition
    tasks = added.tasks
    unread = [task for task in tasks if task.path not in rows.looked_into and task.filtered]
    if unread and len(unread) == len(tasks):
        needed = StorageNeeded(added=replace(added, tasks=tuple(unread)))
        if not rows.may_use(storage, needed):
            raise needed
        rows = with_storage(rows, needed, staged.write_id, storage)
        return _first_matched(tx, commit, rows, files)
    paths = {task.path for task in tasks}
    return next((file for file in files if file.path in paths), None)


def _check_taken(
    tx: CatalogReader,
    commit: PreparedCommit,
    record: DatasetRecord,
    commits: Iterable[TransactionRecord],
) -> None:
    """Check that others changed no row that this write replaces or may have read."""
    if all(newer.operation in conflicts.KEEP_ROWS for newer in commits):
        return
    touched = _changed_since(tx, record, commit.staged.base_version)
    found = _first_replaced(tx, record, commit, touched)
    if found is not None:
        did = "replaces" if commit.rows is None else "may have read"
        text = f"rows of {{path}}, which this write {did}, were changed"
        raise _conflict(commit, record, Collision(text, path=found.path))


def _first_replaced(
    tx: CatalogReader,
    record: DatasetRecord,
    commit: PreparedCommit,
    added: Sequence[FileRecord],
) -> FileRecord | None:
    """The first of some files that may hold a row that this write replaces or has read."""
    staged = commit.staged
    if staged.options.dynamic_partitions:
        return next(iter(in_partitions_of(tx, commit, record, added)), None)
    if commit.rows is None:
        condition = staged.options.overwrite_where
        assert condition is not None
    else:
        condition = commit.rows.changes.condition or PredicateSet.of(None)
    return _first_match(tx, staged.key, staged.uri, condition, added)


def _first_match(
    tx: CatalogReader, key: str, uri: str, condition: PredicateSet, files: Sequence[FileRecord]
) -> FileRecord | None:
    """The first of some files that may hold a row of a condition."""
    snapshot = open_snapshot(tx, key, uri, "")
    try:
        bound = condition.bind(snapshot.schema)
    except InvalidPredicateError:
        # Another commit renamed or dropped a column of the condition: any row may match.
        bound = PredicateSet.of(None).bind(snapshot.schema)
    return next((found.file for found in candidates(tx, snapshot, bound, files)), None)


def _added_since(
    tx: CatalogReader,
    record: DatasetRecord,
    base: int,
    commits: Iterable[TransactionRecord],
    own: Iterable[int] = (),
) -> list[FileRecord]:
    """The files with rows that others added since a version.

    A rewrite adds no row: its rows are in files of the base version, or in files that are here.
    """
    rewrites = {one.version for one in commits if one.operation in conflicts.MOVE_ROWS}
    return [
        file
        for file in tx.files_added_since(record.id, base)
        if file.id not in own and file.version not in rewrites
    ]


def _changed_since(tx: CatalogReader, record: DatasetRecord, base: int) -> list[FileRecord]:
    """The files of a version of which others took rows since."""
    files = {file.id: file for file in tx.files(record.id, base)}
    live = tx.live_among(list(files))
    with_vectors = {found.file_id for found in tx.vectors_since(list(files), base)}
    return [file for id, file in files.items() if id not in live or id in with_vectors]


def check_read(tx: CatalogTransaction, read: Read) -> Collision | None:
    """What changed the rows that a transaction has read, or added such rows."""
    record = tx.dataset(read.key)
    if record is None:
        return Collision("the dataset was removed")
    base = read.seen.version
    if read.seen.is_gone(record.current_version, tx.write_id_of(record.id, base)):
        return PUT_BACK
    commits = tx.all_since(record, base)
    if commits is None:
        return conflicts.FORGOTTEN
    for newer in commits:
        if conflicts.change_of(newer.operation) is None:
            because = ", unknown to this release"
            return conflicts.committed_first(newer.version, newer.operation, because)
    if all(newer.operation in (*conflicts.MOVE_ROWS, *conflicts.NO_ROWS) for newer in commits):
        return None
    for files in (_added_since(tx, record, base, commits), _changed_since(tx, record, base)):
        found = _first_match(tx, read.key, read.uri, read.condition, files)
        if found is not None:
            text = "rows of {path}, which this transaction may have read, were changed or added"
            return Collision(text, path=found.path)
    return None


def in_partitions_of(
    tx: CatalogReader,
    commit: PreparedCommit,
    record: DatasetRecord,
    files: Iterable[FileRecord],
) -> list[FileRecord]:
    """The files that are in a partition to which the commit adds files."""
    spec = commit.staged.spec
    names = spec.partition_by
    mine = {tuple(file.partitions[name] for name in names) for file in commit.encoded}
    texts = PartitionTexts(names, spec.schema, tx.schemas(record.id))
    return [file for file in files if texts(file) in mine]


def _touched_by_others(tx: CatalogReader, commit: PreparedCommit) -> Collision | None:
    """Why a rewrite would undo another commit, which removed a rewritten file or rows of it."""
    paths = {file.id: file.path for file in commit.rewritten}
    gone = paths.keys() - tx.live_among(list(paths))
    if gone:
        text = "{path} was removed, and this write rewrites it"
        return Collision(text, path=paths[min(gone)])
    since = tx.vectors_since(list(paths), commit.staged.base_version)
    if since:
        text = "rows of {path} were deleted, and this write rewrites it"
        return Collision(text, since[0].version, path=paths[since[0].file_id])
    return None


def check_not_live(tx: CatalogTransaction, record: DatasetRecord, commit: PreparedCommit) -> None:
    """Check that the dataset has none of the files that are added in place.

    A name that plake gave is new. Another commit may have added any other file.
    """
    mine = {file.path for file in commit.files if own_name(file.path) is None}
    if not mine or record.current_version == 0:
        return
    for file in tx.files(record.id, record.current_version):
        if file.path in mine:
            text = "{path} is in the dataset since version {version}"
            raise _conflict(commit, record, Collision(text, file.version, path=file.path))
    rewritten = mine & tx.rewritten_paths(record.id, conflicts.MOVE_ROWS, conflicts.KEEP_ROWS)
    if rewritten:
        text = "the rows of {path} are in the dataset: a compaction has written them to other files"
        raise _conflict(commit, record, Collision(text, path=min(rewritten)))


# --- What a commit did, for the history and for the caller: counts of files and rows.


def write_result(
    version: int,
    schema_version: int,
    files: Sequence[FileMetadata],
    write_id: str,
    counts: Mapping[str, int],
) -> WriteResult:
    """The result of a commit that added files."""
    rows = sum(file.row_count for file in files)
    return WriteResult(
        version, len(files), rows, schema_version, tuple(files), write_id, dict(counts)
    )


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

    `removed_row_groups` has the numbers of row groups that are known already, by file id; `last` is
    the commit before this one, by default read from the catalog. `returned_by_vectors` counts the
    rows that the commit brings back in files that stay, minus the deleted rows of `files`;
    `deleted_by_vectors` counts the rows that the commit deletes in files that stay.
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
        return change  # a summary without live counts does not tell what is live
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


def with_rows(
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


def apply_commit(
    tx: CatalogTransaction,
    commit: PreparedCommit,
    prerecorded: PrerecordedFiles,
    check_keys: KeyCheck | None = None,
) -> WriteResult:
    """Add the files of a write, and remove those that it replaces, as the next version.

    If this write, or another write with the same idempotency pair, was committed already, nothing
    is changed and the result is that of the first commit. For another write its `metadata` is
    empty. `check_keys` compares the keys of new rows with those of newer commits.

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
    _check_constraints(commit, record)
    _give_back_numbers(tx, commit)
    if options.register_as is not None:
        tx.names.give(options.register_as, record.id)
    if options.managed and record.current_version == 0:
        tx.set_managed(record.id)
    newer = check_newer_commits(tx, commit, record, prerecorded.file_ids)
    reach("conflicts checked")
    version = record.current_version + 1
    known = prerecorded.current
    schema_version, before = locked.schema or (known.schema_version, known.schema)
    written = _schema_to_commit(tx, record, before, commit)
    schema = written
    if staged.spec.choice is not None:
        most = staged.spec.choice.most
        schema = with_chosen_paths(tx, record, written, commit.files, most)
    if schema is not before:
        schema_version = version
        old, record = record, record_schema(tx, record, version, schema, before, staged)
        if schema is not written:
            rebuild_index(tx, old, schema, record.properties)
        reach("schema written")
    # This must come before the live files are listed: if another commit took the version that files
    # were prerecorded for, these files would be listed as live.
    same = locked.schema is None and schema is before
    recorded = rebase_prerecorded(tx, record, version, schema, commit, prerecorded, same)
    check_not_live(tx, record, commit)
    rows = _apply_rows(tx, record, commit, newer)
    if check_keys is not None and newer:
        check_keys(tx, record, newer, prerecorded.file_ids)
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
        # The process knows the engine if it is not DuckDB.
        committer={"engine": "duckdb" if options.writer == "duckdb" else "", **options.committer},
    )
    reach("transaction written")
    if not recorded:
        written_under = schema_version
        if not written.equals(staged.spec.schema, check_metadata=True):  # others changed it
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


def _check_constraints(commit: PreparedCommit, record: DatasetRecord) -> None:
    """Check that the rows of the files were checked against the constraints as they are now.

    A commit that moves rows, or takes them out, adds none.
    """
    staged = commit.staged
    replaced = staged.options.constraints is not None
    if replaced or staged.options.change in (Change.REWRITE, Change.DELETE):
        return
    for name in missing(record.properties.constraints, staged.spec.constraints):
        raise staged.conflict(record.current_version, conflicts.unchecked(name))


def _give_back_numbers(tx: CatalogTransaction, commit: PreparedCommit) -> None:
    """Give back the numbers of identity columns that the write did not use.

    Raises:
        CommitConflictError: another write got the numbers, because this one was taken for dead.
    """
    staged = commit.staged
    for one in staged.spec.numbers:
        id = str(field_id(staged.spec.schema.field(one.name)))
        groups = (group for file in commit.files for group in file.row_groups)
        last = [
            json.loads(group.stats_max_json if one.how.step > 0 else group.stats_min_json).get(id)
            for group in groups
        ]
        next = one.used(last) - one.lane * lanes(one.how)[0]
        if not tx.settle_lane(one.how.sequence, one.lane, staged.write_id, next):
            what = f"another write got the numbers of the column {one.name!r}"
            raise staged.conflict(commit.staged.base_version, what)


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


def look_ahead(reader: CatalogReader, commit: PreparedCommit) -> None:
    """Check a statement against the commits that came first, before the lock is taken.

    What is not yet known of these commits is found while no other commit waits.

    Raises:
        StorageNeeded, RewriteOutdated, CommitConflictError: as the commit itself would.
    """
    staged = commit.staged
    record = reader.dataset(staged.key)
    if record is None or record.id != staged.dataset_id:
        return  # the commit tells
    if record.current_version <= staged.base_version or is_committed(reader, record, staged):
        return
    _apply_rows(reader, record, commit, check_newer_commits(reader, commit, record))


def is_committed(reader: CatalogReader, record: DatasetRecord, staged: StagedWrite) -> bool:
    """Tell whether the write, or what it repeats, was committed: the commit finds it then."""
    if reader.transaction_by_write_id(staged.write_id) is not None:
        return True
    return committed_before(reader, record, staged.options) is not None


def _apply_rows(
    tx: CatalogReader,
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
            if not rows.may_use(storage, needed):
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

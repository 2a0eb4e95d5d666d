"""Verb. Whether a commit conflicts with those that came after its write began.

It runs under the lock of the dataset, inside the database transaction of the commit. The table
in `conflicts` decides; what the table leaves open is looked up in the catalog.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from lakehouse_source.catalog.sql.writer import CatalogTransaction
from lakehouse_source.errors import CommitConflictError, InvalidPredicateError
from lakehouse_source.language import PredicateSet
from lakehouse_source.model import DatasetRecord, FileRecord, TransactionRecord
from lakehouse_source.parquet.names import own_name
from lakehouse_source.pruning.indexed import same_index_columns
from lakehouse_source.read.candidates import candidates
from lakehouse_source.read.snapshot import open_snapshot
from lakehouse_source.schema.partitions import PartitionTexts
from lakehouse_source.write.commit import conflicts
from lakehouse_source.write.commit.conflicts import Change, Collision, Isolation, Verdict
from lakehouse_source.write.commit.prerecord import PreparedCommit, PrerecordedFiles


def check_newer_commits(
    tx: CatalogTransaction,
    commit: PreparedCommit,
    record: DatasetRecord,
    prerecorded: PrerecordedFiles,
) -> list[TransactionRecord]:
    """Check the commits since the write began; returns these commits.

    `apply_rows`, not this function, checks which rows a statement and other commits changed.
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
        _check_added(tx, commit, record, prerecorded, commits)
    if replaces or Verdict.CHECK_MINE in verdicts:
        touched = _touched_by_others(tx, commit)
        if touched is not None:
            raise _conflict(commit, record, touched)
    return commits


def _conflict(
    commit: PreparedCommit, record: DatasetRecord, collision: Collision
) -> CommitConflictError:
    return commit.staged.conflict(record.current_version, collision)


def _check_layout(tx: CatalogTransaction, commit: PreparedCommit, record: DatasetRecord) -> None:
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
    tx: CatalogTransaction,
    commit: PreparedCommit,
    record: DatasetRecord,
    prerecorded: PrerecordedFiles,
    commits: Iterable[TransactionRecord],
) -> None:
    """Check that no file that others added can hold a row that this write replaces."""
    own = set(prerecorded.file_ids)
    # A rewrite adds no row: its rows are in files of the base version, or in files checked here.
    rewrites = {
        newer.version for newer in commits if conflicts.change_of(newer.operation) is Change.REWRITE
    }
    added = [
        file
        for file in tx.files_added_since(record.id, commit.staged.base_version)
        if file.id not in own and file.version not in rewrites
    ]
    touched = _first_replaced(tx, record, commit, added)
    if touched is not None:
        what = "replaced" if commit.rows is None else "matched by the condition"
        text = "{path}, added by version {version}, may be " + what
        raise _conflict(commit, record, Collision(text, touched.version, path=touched.path))


def _check_taken(
    tx: CatalogTransaction,
    commit: PreparedCommit,
    record: DatasetRecord,
    commits: Iterable[TransactionRecord],
) -> None:
    """Check that others changed no row that this write replaces or may have read."""
    if all(newer.operation in conflicts.KEEP_ROWS for newer in commits):
        return
    base = commit.staged.base_version
    files = {file.id: file for file in tx.files(record.id, base)}
    live = tx.live_among(list(files))
    with_vectors = {found.file_id for found in tx.vectors_since(list(files), base)}
    touched = [file for id, file in files.items() if id not in live or id in with_vectors]
    found = _first_replaced(tx, record, commit, touched)
    if found is not None:
        did = "replaces" if commit.rows is None else "may have read"
        text = f"rows of {{path}}, which this write {did}, were changed"
        raise _conflict(commit, record, Collision(text, path=found.path))


def _first_replaced(
    tx: CatalogTransaction,
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
    snapshot = open_snapshot(tx, staged.key, staged.uri, "")
    try:
        bound = condition.bind(snapshot.schema)
    except InvalidPredicateError:
        # Another commit renamed or dropped a column of the condition: any row may match.
        bound = PredicateSet.of(None).bind(snapshot.schema)
    return next((found.file for found in candidates(tx, snapshot, bound, added)), None)


def in_partitions_of(
    tx: CatalogTransaction,
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


def _touched_by_others(tx: CatalogTransaction, commit: PreparedCommit) -> Collision | None:
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

"""Verb. The end of a write: its files become a version, or the write is given up.

The order of events makes a crash harmless at every point. A write is registered as pending, and its
files are written under unique names. One database transaction then makes the new files, and the
removal of those that they replace, visible. A crash before this transaction leaves files that
belong to no version; a crash after it leaves the new version.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import uuid6

from lakehouse_source.catalog.base import (
    PATIENCE_SECONDS,
    Catalog,
    CatalogTransaction,
    in_transaction,
)
from lakehouse_source.errors import CatalogUnavailableError, PlakeError, StorageError
from lakehouse_source.failpoints import reach
from lakehouse_source.iceberg.metadata import export_after
from lakehouse_source.model import FileMetadata, FileRecord, WriteResult
from lakehouse_source.parquet.names import is_of_write
from lakehouse_source.progress import COMMIT
from lakehouse_source.read.address import Address
from lakehouse_source.storage import Storage
from lakehouse_source.write.commit import prerecord
from lakehouse_source.write.commit.apply import apply_commit, look_ahead
from lakehouse_source.write.commit.keys import KeysOutdated, NewKeys, new_keys
from lakehouse_source.write.commit.options import StagedWrite
from lakehouse_source.write.commit.prerecord import PreparedCommit, prepare_files, prerecord_files
from lakehouse_source.write.commit.rewrite import prepare_rows, rewrite_matching
from lakehouse_source.write.commit.row_changes import (
    RewriteOutdated,
    RowChanges,
    StorageNeeded,
    with_storage,
)
from lakehouse_source.write.commit.transaction import TransactionCatalog

# How often vectors are read and written without the lock while other commits come first. After that
# this is done under the lock, so that other commits cannot starve a statement.
_TRIES_WITHOUT_LOCK = 4
# How many files' sizes are requested from an object store at the same time.
CHECKS_AT_ONCE = 16


def commit(
    catalog: Catalog,
    staged: StagedWrite,
    files: Sequence[FileMetadata],
    rows: RowChanges | None = None,
) -> WriteResult:
    """Make the files of a write, and the removal of what they replace, one new version.

    `rows` are the rows of existing files that the write takes out. A write that was committed
    before gets the result of its first commit.

    Raises:
        CommitConflictError: a newer commit conflicts.
        StorageError: a file is no longer what was written.
        CommitUnknownError: the catalog was lost and cannot be asked. After any other error
            nothing was committed, and the write has been given up (see `abort`).
    """
    if rows is None:
        return commit_all(catalog, [(staged, files)])[0]
    return _commit_rows(catalog, staged, files, rows)


def _commit_rows(
    catalog: Catalog, staged: StagedWrite, files: Sequence[FileMetadata], rows: RowChanges
) -> WriteResult:
    """Commit a write that takes rows out of existing files."""
    reach("commit begun")
    written: list[FileMetadata] = []  # beside `files`
    try:
        _check_stored(staged, files)
        reach("files checked")
        try:
            prepared = prepare_rows(catalog, staged, files, rows, written)
            keys = _checked_keys(catalog, prepared, len(files))
            prepared = _looked_ahead(catalog, prepared)
            result = _commit_prepared_rows(catalog, prepared, keys)
        except RewriteOutdated:
            # Another commit changed a row of a file whose other rows were rewritten to save space.
            # Now the file's deletion vector grows instead.
            _delete(staged, written)
            written.clear()
            prepared = prepare_rows(catalog, staged, files, rows, written, rewrite=False)
            prepared = _looked_ahead(catalog, prepared)
            result = _commit_prepared_rows(catalog, prepared, keys)
    except BaseException as failure:
        abort(catalog, staged, (*files, *written), failure=failure)
        raise
    if result.skipped:
        report_skipped(staged, result.version)
        abort(catalog, staged, (*files, *written))
    return result


def _looked_ahead(catalog: Catalog, prepared: PreparedCommit) -> PreparedCommit:
    """The commit with what it has to know of the commits that came first.

    They are looked at again under the lock, where few are left to look at.
    """
    rows = prepared.rows
    if isinstance(catalog, TransactionCatalog) or rows is None:
        return prepared
    storage = Storage(prepared.staged.spec.uri)
    for _ in range(_TRIES_WITHOUT_LOCK):
        try:
            with catalog.read() as reader:
                look_ahead(reader, replace(prepared, rows=rows))
            break
        except StorageNeeded as needed:
            rows = with_storage(rows, needed, prepared.staged.write_id, storage)
    reach("looked ahead")
    return replace(prepared, rows=replace(rows, quickly=True))


def _commit_prepared_rows(
    catalog: Catalog, prepared: PreparedCommit, keys: NewKeys | None
) -> WriteResult:
    """Commit. No other commit waits while vectors are read from storage or written."""
    storage = Storage(prepared.staged.spec.uri)
    tries = 0
    while True:
        try:
            return _commit_prepared(catalog, [prepared], [keys])[0]
        except StorageNeeded as needed:
            # The transaction was rolled back, and the write was not committed before.
            tries += 1
            assert prepared.rows is not None
            rows = with_storage(prepared.rows, needed, prepared.staged.write_id, storage)
            rows = replace(rows, under_lock=tries == _TRIES_WITHOUT_LOCK)
            prepared = replace(prepared, rows=rows)


def commit_all(
    catalog: Catalog, writes: Sequence[tuple[StagedWrite, Sequence[FileMetadata]]]
) -> list[WriteResult]:
    """Commit writes to different datasets of one catalog in one database transaction.

    Returns one result per write, in order. If an error is raised, no write is committed.

    Raises:
        CommitConflictError, StorageError, CommitUnknownError: as `commit` does, for any of
            the writes.
    """
    if not writes:
        return []
    reach("commit begun")
    # Files that preparing a write makes are appended, so that a failure deletes them too.
    owned = [(staged, list(files)) for staged, files in writes]
    try:
        counts = [len(files) for _, files in owned]
        prepared = [prepare_commit(catalog, staged, files) for staged, files in owned]
        keys = [_checked_keys(catalog, one, count) for one, count in zip(prepared, counts)]
        results = _commit_prepared(catalog, prepared, keys)
    except BaseException as failure:
        for staged, files in owned:
            abort(catalog, staged, files, failure=failure)
        raise
    for (staged, files), result in zip(owned, results):
        if result.skipped:
            report_skipped(staged, result.version)
            if files:
                abort(catalog, staged, files)
    return results


def report_skipped(staged: StagedWrite, version: int) -> None:
    """Log that a write was skipped. Spark repeats the last batch of a stream after each crash."""
    options = staged.options
    level = logging.INFO if "query" in options.committer else logging.WARNING
    COMMIT.log(
        level,
        "%s: skipped, and nothing committed: txn_app_id %r committed txn_version %d, or a higher "
        "one, as version %d. To load rows again, give a higher txn_version",
        staged.uri,
        options.txn_app_id,
        options.txn_version,
        version,
    )


def commit_rewrite(
    catalog: Catalog,
    staged: StagedWrite,
    files: Sequence[FileMetadata],
    replaced: Sequence[FileRecord],
    row_groups: Mapping[int, int],
) -> WriteResult:
    """Replace files by others with the same rows, as one new version.

    `row_groups` has the number of row groups of each replaced file, by file id.

    Raises:
        CommitConflictError: another commit removed one of the files, or rows of one.
        StorageError, CommitUnknownError: as `commit` does.
    """
    reach("commit begun")
    try:
        _check_stored(staged, files)
        reach("files checked")
        prepared = prepare_files(staged, files, replaced, row_groups)
        return _commit_prepared(catalog, [prepared])[0]
    except BaseException as failure:
        abort(catalog, staged, (*files,), failure=failure)
        raise


def prepare_commit(
    catalog: Catalog, staged: StagedWrite, files: list[FileMetadata]
) -> PreparedCommit:
    """Do everything of a commit that needs no database transaction.

    Appends to `files` the files with the rows that an overwrite of a condition keeps.

    Raises:
        StorageError: a file is no longer what was written.
    """
    written = tuple(files)
    rewrite = rewrite_matching(catalog, staged)
    files += rewrite.files
    _check_stored(staged, written)
    reach("files checked")
    return prepare_files(staged, files, rewrite.removed, rewrite.row_groups)


def _checked_keys(catalog: Catalog, prepared: PreparedCommit, files: int) -> NewKeys | None:
    """The keys of a commit, compared with those of the dataset; `files` have new rows."""
    keys = new_keys(prepared, files)
    if keys is not None:
        keys.check(catalog)
        reach("keys checked")
    return keys


def _commit_prepared(
    catalog: Catalog,
    prepared: Sequence[PreparedCommit],
    keys: Sequence[NewKeys | None] = (None,),
) -> list[WriteResult]:
    if isinstance(catalog, TransactionCatalog):
        return [_add(catalog, one, key) for one, key in zip(prepared, keys)]
    # In a stream of small commits each one also registers the write that follows it.
    successors = {
        one.staged.key: str(uuid6.uuid7())
        for one in prepared
        if prerecord.is_wanted(catalog, one.staged.key)
    }

    def apply_all(tx: CatalogTransaction) -> list[WriteResult]:
        # All files are recorded before the first dataset is locked.
        prerecorded = [prerecord_files(tx, one) for one in prepared]
        for one, seen in zip(prepared, prerecorded):
            if one.staged.key in successors:
                tx.register_pending(successors[one.staged.key], seen.current.dataset.id)
        # Every transaction locks in the order of dataset ids. Two transactions that lock the same
        # datasets in different orders would wait for each other.
        order = sorted(range(len(prepared)), key=lambda i: prerecorded[i].current.dataset.id)
        checks = [None if one is None else one.check_newer for one in keys]
        results = {i: apply_commit(tx, prepared[i], prerecorded[i], checks[i]) for i in order}
        return [results[i] for i in range(len(prepared))]

    first = prepared[0].staged
    while True:
        try:
            results = in_transaction(
                catalog, first.uri, first.write_id, apply_all, patience_seconds=PATIENCE_SECONDS
            )
            break
        except KeysOutdated as outdated:  # the transaction was rolled back
            outdated.keys.check_again(catalog)
    reach("after COMMIT")
    for one in prepared:
        prerecord.committed(catalog, one.staged.key, successors.get(one.staged.key))
    for one in prepared:
        if one.staged.iceberg_metadata:
            uri, key = one.staged.spec.uri, one.staged.key
            export_after(catalog, Address.registered(uri, key, catalog))
    return results


def _add(
    catalog: TransactionCatalog, prepared: PreparedCommit, keys: NewKeys | None
) -> WriteResult:
    """Let a commit wait for the end of its transaction."""
    staged, rows = prepared.staged, prepared.rows
    # Rows are fitted to other commits, if at all, at the end, where nothing else can be done.
    waiting = replace(prepared, rows=None if rows is None else replace(rows, under_lock=True))
    check_keys = None if keys is None else keys.under_lock().check_newer
    is_new = True

    def apply(tx: CatalogTransaction) -> WriteResult:
        try:
            return apply_commit(tx, waiting, prerecord_files(tx, waiting), check_keys)
        except RewriteOutdated:
            if is_new:
                raise
            text = "it changed rows of a file that this transaction rewrites"
            raise staged.conflict(staged.base_version + 1, text) from None

    def undo(failure: BaseException | None) -> None:
        abort(catalog.database, staged, prepared.files, failure=failure)

    result = catalog.add(staged.key, staged.uri, staged.write_id, apply, undo)
    is_new = False
    if staged.iceberg_metadata:
        where = Address.registered(staged.spec.uri, staged.key, catalog.database)
        catalog.after(lambda database: export_after(database, where))
    return result


def abort(
    catalog: Catalog,
    staged: StagedWrite,
    files: Iterable[FileMetadata],
    *,
    failure: BaseException | None = None,
) -> bool:
    """Give a write up: fence it, so that it can never commit, and then delete its files.

    Files that were added where they stand are never deleted.

    This is the only place that decides whether files are deleted after a failure. The files are
    deleted only when the catalog has fenced the write. They stay, and the result is False, if the
    write was committed, if the catalog cannot be asked, or if `failure`, the error that led here,
    leaves open whether the write was committed. Vacuum deletes them later if they belong to no
    version.
    """
    reach("abort begun")
    if isinstance(failure, PlakeError) and failure.outcome_unknown:
        return False

    def fence(tx: CatalogTransaction) -> bool:
        fenced = tx.fence_write(staged.write_id)
        reach("write fenced")
        return fenced

    try:
        fenced = in_transaction(catalog.database, staged.uri, staged.write_id, fence, resolve=False)
    except CatalogUnavailableError:
        return False
    reach("fence committed")
    if fenced:
        _delete(staged, files)
    reach("aborted")
    return fenced


def _delete(staged: StagedWrite, files: Iterable[FileMetadata]) -> None:
    storage = Storage(staged.spec.uri)
    for file in files:
        if not is_of_write(file.path, staged.write_id):
            continue  # added in place: the file belongs to somebody else
        try:
            storage.delete(file.path)
            reach("file deleted")
        except StorageError:
            # Vacuum deletes it later. The caller reports the failure that led here.
            continue


def _check_stored(staged: StagedWrite, files: Sequence[FileMetadata]) -> None:
    """Check that files have the sizes that were written, before a version names them."""
    storage = Storage(staged.spec.uri)

    def check(file: FileMetadata) -> None:
        size = storage.size(file.path)
        if size == file.file_size_bytes:
            return
        found = "it is not there any more" if size is None else f"it has {size} bytes now"
        raise StorageError(
            path=storage.display(file.path),
            reason=f"{file.file_size_bytes} bytes were written and {found}. Nothing was committed",
        )

    if storage.is_local or len(files) < 2:
        for file in files:
            check(file)
        return
    with ThreadPoolExecutor(CHECKS_AT_ONCE) as pool:
        for _ in pool.map(check, files):
            pass

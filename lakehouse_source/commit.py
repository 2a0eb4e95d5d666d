"""Verb. One write from its first byte to its version: begin, commit, retry, abort.

The order of events makes a crash harmless at every point: the write is
registered as pending, files are written under names nobody else can have, and
one database transaction makes them, and everything they replace, visible at
once. Before it there are files that no version knows; after it there is the new
version.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TypeVar

import pyarrow as pa
import uuid6

from lakehouse_source import reservations
from lakehouse_source.catalog.base import Catalog, CatalogReader, CatalogTransaction
from lakehouse_source.catalog.reader import Current
from lakehouse_source.catalog.transient import CommitOutcomeUnknown, is_transient
from lakehouse_source.errors import (
    CatalogUnavailableError,
    CommitConflictError,
    CommitUnknownError,
    DatasetExistsError,
    InvalidOptionError,
    PlakeError,
    StorageError,
    VersionNotFoundError,
)
from lakehouse_source.failpoints import reach
from lakehouse_source.landing import (
    check_expected,
    committed_before,
    described,
    land,
    merged,
    result,
    summary,
)
from lakehouse_source.model import DatasetRecord, FileMetadata, FileRecord, WriteResult
from lakehouse_source.parquet.reader import read_all
from lakehouse_source.parquet.writer import write_files
from lakehouse_source.partitioning import check_partition_columns
from lakehouse_source.pruning.indexed import check_index_columns
from lakehouse_source.recording import Prepared, prepare, record_ahead, record_files
from lakehouse_source.scan import keep_others
from lakehouse_source.schema import initial, leaves, storage_schema
from lakehouse_source.snapshot import open_snapshot
from lakehouse_source.storage import Storage
from lakehouse_source.write_options import StagedWrite, WriteOptions, WriteSpec

ATTEMPTS = 20
# How long a commit, whose files are written, waits for a server that went away.
PATIENCE_SECONDS = 30.0
# Size checks of files in an object store at a time: each is a request.
CHECKS_AT_ONCE = 16


def begin(
    catalog: Catalog, uri: str, key: str, write_uri: str, incoming: pa.Schema, options: WriteOptions
) -> StagedWrite:
    """Register a write and work out how its files have to look.

    `key` is the dataset's name in the catalog, `write_uri` where files go.

    Raises:
        DatasetExistsError, SchemaMismatchError, InvalidOptionError,
        InvalidPredicateError, CommitConflictError: `expected_version` is past.
    """
    options.check()
    incoming = storage_schema(incoming)
    # Before the catalog is touched: a mistake in the call must not leave one behind.
    check_partition_columns(incoming, options.partition_by or ())
    reserved, stale = reservations.take(catalog, key)
    if reserved is not None:
        begun = _begin_reserved(catalog, uri, key, write_uri, incoming, options, reserved)
        if begun is not None:
            return begun
    write_id = str(uuid6.uuid7())

    def register(tx: CatalogTransaction) -> StagedWrite:
        current = tx.current(key)
        if current is None:
            tx.register_dataset(key, uri.rstrip("/").rsplit("/", 1)[-1])
            current = tx.current(key)
            assert current is not None  # as `register_dataset` says
        staged = _staged(tx, current, uri, key, write_uri, incoming, options, write_id)
        tx.register_pending(write_id, current.dataset.id)
        for unused in stale:
            tx.finish_pending(unused)
        reach("pending written")
        return staged

    reach("begin")
    staged = in_transaction(catalog, uri, write_id, register, resolve=False)
    reach("pending committed")
    return staged


def _begin_reserved(
    catalog: Catalog,
    uri: str,
    key: str,
    write_uri: str,
    incoming: pa.Schema,
    options: WriteOptions,
    write_id: str,
) -> StagedWrite | None:
    """Begin a write that is registered already: reading is enough. None: it is not, after all."""
    try:
        with catalog.glance() as reader:
            current = reader.current(key, write_id)
            if current is None or current.write_state != "pending":
                return None
            return _staged(reader, current, uri, key, write_uri, incoming, options, write_id)
    except PlakeError as error:
        if is_transient(error):
            return None
        reservations.give_back(catalog, key, write_id)
        raise


def _staged(
    reader: CatalogReader,
    current: Current,
    uri: str,
    key: str,
    write_uri: str,
    incoming: pa.Schema,
    options: WriteOptions,
    write_id: str,
) -> StagedWrite:
    """What a write into the dataset as it is now has to look like."""
    record = current.dataset
    # A repetition answers what the first time did, whatever came after that.
    if committed_before(reader, record, options) is None:
        check_expected(uri, record, options)
        if options.mode == "error" and record.current_version:
            raise DatasetExistsError(dataset=uri)
    if current.schema is None:
        schema = initial(incoming)
        partition_by = check_partition_columns(schema, options.partition_by or ())
        check_index_columns(schema, options.index_columns, None, partition_by, uri)
        properties = described(
            record.properties, schema, None, partition_by, options.index_columns
        )[0]
    else:
        schema = merged(record, current.schema, incoming, options, uri)
        partition_by = _same_partitioning(record, current.schema, options, uri)
        properties = dict(record.properties)
        check_index_columns(schema, options.index_columns, properties, partition_by, uri)
        if schema is not current.schema:
            properties = described(properties, schema, current.schema, partition_by)[0]
    must_match = None
    if options.overwrite_where is not None:
        must_match = options.overwrite_where.bind(schema)
    if options.dynamic_partitions and not partition_by:
        raise InvalidOptionError(
            option="partitionOverwriteMode",
            value="dynamic",
            reason=f"needs a partitioned dataset, and {uri} has no partition columns.",
        )
    spec = WriteSpec(
        uri=write_uri,
        write_id=write_id,
        schema=schema,
        partition_by=partition_by,
        row_group_rows=options.row_group_rows,
        target_file_size_bytes=options.target_file_size_bytes,
        compression=options.compression,
        sort_by=_names(schema, options.sort_by, "sortBy"),
        bloom_filter_columns=_names(schema, options.bloom_filter_columns, "bloomFilterColumns"),
        must_match=must_match,
    )
    indexed = tuple(properties.get("indexed_columns", ()))
    return StagedWrite(uri, key, record.current_version, incoming, options, spec, indexed)


def commit(catalog: Catalog, staged: StagedWrite, files: Sequence[FileMetadata]) -> WriteResult:
    """Make the files of a write, and what they replace, one new version.

    The same write committed again answers what the first time did.

    Raises:
        CommitConflictError: a newer commit collides; nothing is visible.
        CommitUnknownError: the catalog was lost and cannot be asked.
    """
    reach("commit begun")
    ready = make_ready(catalog, staged, files)
    following: str | None = None
    if reservations.is_wanted(catalog, staged.key):
        following = str(uuid6.uuid7())

    def land_files(tx: CatalogTransaction) -> WriteResult:
        ahead = record_ahead(tx, staged, ready.prepared)
        if following is not None:
            tx.register_pending(following, ahead.current.dataset.id)
        return land(tx, staged, ready.files, ready.removed, ready.prepared, ahead)

    try:
        landed = in_transaction(
            catalog, staged.uri, staged.write_id, land_files, patience_seconds=PATIENCE_SECONDS
        )
    except CommitUnknownError:
        raise
    except PlakeError:
        # The caller gives its own files up; those made here nobody else knows.
        if len(ready.files) > len(files):
            abort(catalog, staged, ready.files[len(files) :])
        raise
    reach("after COMMIT")
    reservations.committed(catalog, staged.key, following)
    if ready.files and not landed.metadata:
        # An earlier write with the same idempotency pair stands for this one.
        abort(catalog, staged, ready.files)
    return landed


@dataclass(frozen=True, slots=True)
class Ready:
    """A write that needs nothing any more but its database transaction."""

    staged: StagedWrite
    files: tuple[FileMetadata, ...]
    removed: tuple[FileRecord, ...]
    prepared: Prepared


def make_ready(catalog: Catalog, staged: StagedWrite, files: Sequence[FileMetadata]) -> Ready:
    """Do everything of a commit that can be done before its database transaction.

    The answer's files are those given, and then those with the rows that stay.

    Raises:
        StorageError: a file is not as it was written; nothing can be committed any more.
    """
    replacement = _Replacement((), ())
    if staged.options.overwrite_where is not None and staged.base_version > 0:
        replacement = _replace_matching(catalog, staged)
    everything = (*files, *replacement.files)
    try:
        _check_stored(staged, files)
        reach("files checked")
        prepared = prepare(staged, everything, replacement.removed_groups)
    except PlakeError:
        if replacement.files:
            abort(catalog, staged, replacement.files)
        raise
    return Ready(staged, everything, replacement.removed, prepared)


def abort(catalog: Catalog, staged: StagedWrite, files: Iterable[FileMetadata]) -> bool:
    """Give a write up: make sure that it can never commit, then delete its files.

    False, and nothing is deleted, where it turns out to have been committed, or
    where the catalog cannot be asked: vacuum finds the files later. What led here
    is the error to tell.
    """
    reach("abort begun")

    def close(tx: CatalogTransaction) -> bool:
        closed = tx.close_write(staged.write_id)
        reach("door closed")
        return closed

    try:
        closed = in_transaction(catalog, staged.uri, staged.write_id, close, resolve=False)
    except CatalogUnavailableError:
        return False
    reach("door committed")
    if closed:
        _delete(staged, files)
    reach("aborted")
    return closed


def _check_stored(staged: StagedWrite, files: Sequence[FileMetadata]) -> None:
    """See that the files are still there as they were written, before a version names them.

    Raises:
        StorageError: one is missing or has another size.
    """
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


def _delete(staged: StagedWrite, files: Iterable[FileMetadata]) -> None:
    storage = Storage(staged.spec.uri)
    for file in files:
        try:
            storage.delete(file.path)
            reach("file deleted")
        except StorageError:
            # Left as an orphan for vacuum; the failure that led here is the one to tell.
            continue


# --- database transactions, with bounded retry --------------------------------

T = TypeVar("T")


def in_transaction(
    catalog: Catalog,
    uri: str,
    write_id: str,
    work: Callable[[CatalogTransaction], T],
    *,
    resolve: bool = True,
    patience_seconds: float = 0.0,
) -> T:
    """Run `work` in one database transaction, again where the database says to.

    `work` must do nothing where it finds that it was carried out already: when
    the outcome of a COMMIT is unknown, it is run again, on a new connection, to
    find out. A server that went away is waited for as long as `patience_seconds`.

    Raises:
        CommitUnknownError: a commit was sent and the catalog cannot be asked
            whether it was carried out.
    """
    give_up = time.monotonic() + patience_seconds
    lost: CommitOutcomeUnknown | None = None
    for attempt in range(ATTEMPTS):
        failure: PlakeError
        try:
            with catalog.write() as tx:
                done = work(tx)
                reach("before COMMIT")
            return done
        except CommitOutcomeUnknown as error:
            # Only `work` can tell, and it looks its write up under the lock: a
            # COMMIT that is still on its way holds that lock.
            failure = error
            if resolve:
                lost = error
                give_up = max(give_up, time.monotonic() + PATIENCE_SECONDS / 2)
        except PlakeError as error:
            away = _server_is_away(error)
            if not (is_transient(error) or (away and time.monotonic() < give_up)):
                if lost is not None and isinstance(error, CatalogUnavailableError):
                    # Nobody answered: what was sent before may have been carried out.
                    raise CommitUnknownError(dataset=uri, write_id=write_id) from error
                raise
            failure = error
        if attempt < ATTEMPTS - 1:
            time.sleep(min(1.0, 0.005 * 2**attempt) * random.uniform(0.5, 1.5))
    if lost is not None:
        raise CommitUnknownError(dataset=uri, write_id=write_id) from failure
    if isinstance(failure, CommitOutcomeUnknown):
        reason = f"it is lost again and again: {failure.reason}"
        raise CatalogUnavailableError(catalog=catalog.redacted_url, reason=reason) from None
    raise failure


def _server_is_away(error: PlakeError) -> bool:
    """Tell whether the catalog tried, more than once, to reach a server and could not."""
    tried = error.__context__
    return isinstance(error, CatalogUnavailableError) and tried is not None and is_transient(tried)


# --- replacing the rows of a condition ---------------------------------------------


@dataclass(frozen=True, slots=True)
class _Replacement:
    """Files that go, and files that keep those of their rows that stay."""

    removed: tuple[FileRecord, ...]
    files: tuple[FileMetadata, ...]
    removed_groups: Mapping[int, int] = field(default_factory=dict)


def _replace_matching(catalog: Catalog, staged: StagedWrite) -> _Replacement:
    """Find the files that hold rows of the condition; write their other rows anew."""
    assert staged.options.overwrite_where is not None
    with catalog.read() as reader:
        if reader.transaction_by_write_id(staged.write_id) is not None:
            return _Replacement((), ())  # committed before: `land` finds it too
        try:
            snapshot = open_snapshot(
                reader, staged.key, staged.uri, "", version=staged.base_version
            )
        except VersionNotFoundError as error:
            raise CommitConflictError(
                dataset=staged.uri,
                base_version=staged.base_version,
                current_version=error.last,
                reason="the version it is based on was expired",
            ) from error
        removed, tasks, spec = keep_others(
            reader, snapshot, staged.options.overwrite_where, staged.spec.uri
        )
        groups = reader.row_groups([file.id for file in removed])
    counts = {file_id: len(found) for file_id, found in groups.items()}
    reach("rows to keep found")
    if not tasks:
        return _Replacement(tuple(removed), (), counts)
    storage = Storage(staged.spec.uri)
    kept = write_files(
        replace(staged.spec, must_match=None),
        (batch for table in read_all(spec, tasks, storage) for batch in table.to_batches()),
        storage,
    )
    reach("rows to keep written")
    return _Replacement(tuple(removed), tuple(kept), counts)


def _names(schema: pa.Schema, given: Sequence[str], option: str) -> tuple[str, ...]:
    """Column names in the schema's spelling."""
    spelled = {name.lower(): name for name in schema.names}
    for name in given:
        if name.lower() not in spelled:
            raise InvalidOptionError(
                option=option, value=name, reason="is not a column.", known=schema.names
            )
    return tuple(spelled[name.lower()] for name in given)


def _same_partitioning(
    record: DatasetRecord, schema: pa.Schema, options: WriteOptions, uri: str
) -> tuple[str, ...]:
    existing = tuple(record.properties.get("partition_by", ()))
    if options.partition_by is None:
        return existing
    given = check_partition_columns(schema, options.partition_by)
    if given != existing:
        has = ", ".join(existing) if existing else "none"
        raise InvalidOptionError(
            option="partitionBy",
            value=", ".join(options.partition_by),
            reason=f"does not match the partition columns of {uri} ({has}). Leave the option out.",
        )
    return existing


def restore(catalog: Catalog, uri: str, key: str, version: int) -> WriteResult:
    """Commit a version whose files and schema are those of an old one.

    Raises:
        DatasetNotFoundError, VersionNotFoundError
    """
    write_id = str(uuid6.uuid7())

    def land_old(tx: CatalogTransaction) -> WriteResult:
        record = tx.lock_dataset(key)
        done = tx.transaction_by_write_id(write_id)
        target = open_snapshot(tx, key, uri, catalog.redacted_url, version=version)
        if record is None or done is not None:
            new_version = target.dataset.current_version if done is None else done.version
            return result(new_version, target.schema_version, ())
        current = record.current_version
        live = {file.path: file for file in tx.files(record.id, current)}
        wanted = {file.path: file for file in tx.files(record.id, version)}
        removed = [file for path, file in live.items() if path not in wanted]
        returning = [file for path, file in wanted.items() if path not in live]
        groups = tx.row_groups([file.id for file in returning])
        files: dict[int, list[FileMetadata]] = {}
        for file in returning:
            schema = target.file_schemas[file.schema_version]
            files.setdefault(file.schema_version, []).append(
                FileMetadata(
                    path=file.path,
                    row_count=file.row_count,
                    file_size_bytes=file.size_bytes,
                    schema=pa.schema([f for f in schema if f.name not in target.partition_by]),
                    row_groups=tuple(groups.get(file.id, ())),
                    partitions=file.partitions,
                    stats_complete=file.stats_complete,
                )
            )
        new_version = current + 1
        schema_now = tx.schema_at(record.id, current)[1]
        schema_version = target.schema_version
        if not target.schema.equals(schema_now, check_metadata=True):
            tx.insert_schema(record.id, new_version, target.schema)
            # Files that stay have keys in the encoding that is given up.
            for column_id in described(
                record.properties, target.schema, schema_now, target.partition_by
            )[1]:
                tx.unbound_column(record.id, column_id)
            schema_version = new_version
        everything = [file for some in files.values() for file in some]
        tx.insert_transaction(
            record.id,
            new_version,
            "restore",
            {"restored_version": version},
            summary(tx, record, everything, removed),
            write_id,
        )
        # A column may have been promoted between the file and the version restored.
        types = {leaf.id: leaf.type for leaf in leaves(target.schema)}
        for written_under, some in files.items():
            schema = target.file_schemas[written_under]
            record_files(tx, record, new_version, written_under, schema, some, types=types)
        tx.remove_files(record.id, new_version, [file.id for file in removed])
        return result(new_version, schema_version, everything)

    return in_transaction(catalog, uri, write_id, land_old)

"""Verb. One write from its first byte to its version: begin, commit, abort.

The order of events makes a crash harmless at every point: the write is
registered as pending, files are written under names nobody else can have, and
one database transaction makes them, and everything they replace, visible at
once. Before it there are files that no version knows; after it there is the new
version.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import pyarrow as pa
import uuid6

from lakehouse_source.catalog.base import Catalog, CatalogReader, CatalogTransaction
from lakehouse_source.catalog.reader import Current
from lakehouse_source.catalog.retry import PATIENCE_SECONDS, in_transaction
from lakehouse_source.catalog.transient import is_transient
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
from lakehouse_source.model import DatasetRecord, FileMetadata, FileRecord, WriteResult
from lakehouse_source.parquet.reader import read_all
from lakehouse_source.parquet.spec import WriteSpec
from lakehouse_source.parquet.writer import write_files
from lakehouse_source.pruning.indexed import check_index_columns
from lakehouse_source.read.plan import keep_others
from lakehouse_source.read.snapshot import open_snapshot
from lakehouse_source.schema.fields import find_name, initial, storage_schema
from lakehouse_source.schema.partitions import check_partition_columns
from lakehouse_source.storage import Storage
from lakehouse_source.write import reservations
from lakehouse_source.write.apply import (
    check_expected,
    committed_before,
    described,
    land,
    merged,
)
from lakehouse_source.write.options import StagedWrite, WriteOptions
from lakehouse_source.write.prerecord import Prepared, prepare, record_ahead

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
        schema = merged(reader, record, current.schema, incoming, options, uri)
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
    """Column names as the schema has them."""
    names: list[str] = []
    for name in given:
        found = find_name(name, schema.names)
        if found is None:
            raise InvalidOptionError(
                option=option, value=name, reason="is not a column.", known=schema.names
            )
        names.append(found)
    return tuple(names)


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

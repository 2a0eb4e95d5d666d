"""Verb. What a commit does inside its one database transaction.

Its files are recorded first. Then, under the dataset's lock: has this write landed
already, does a newer commit collide, what does it replace, and the new version.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from lakehouse_source.catalog.reader import CatalogReader
from lakehouse_source.catalog.writer import CatalogTransaction
from lakehouse_source.errors import (
    CommitConflictError,
    DatasetExistsError,
    SchemaMismatchError,
)
from lakehouse_source.failpoints import reach
from lakehouse_source.model import (
    DatasetRecord,
    FileMetadata,
    FileRecord,
    TransactionRecord,
    WriteResult,
)
from lakehouse_source.pruning import keys
from lakehouse_source.pruning.indexed import is_wanted, same_index_columns
from lakehouse_source.read.plan import candidates
from lakehouse_source.read.snapshot import open_snapshot
from lakehouse_source.schema.fields import leaves, max_id
from lakehouse_source.schema.merge import merge
from lakehouse_source.write import conflicts
from lakehouse_source.write.conflicts import Change, Verdict
from lakehouse_source.write.options import StagedWrite, WriteOptions
from lakehouse_source.write.prerecord import (
    Ahead,
    Prepared,
    encode_partitions,
    mend,
    record_files,
    removed_from_catalog,
)
from lakehouse_source.write.stored_values import stored_values_fit


def land(
    tx: CatalogTransaction,
    staged: StagedWrite,
    files: Sequence[FileMetadata],
    rewritten: Sequence[FileRecord],
    prepared: Prepared,
    ahead: Ahead,
) -> WriteResult:
    """Make the files of a write, and the removal of those rewritten, the next version.

    Answers what the first time did where the write, or one with the same
    idempotency pair, has landed already: without metadata in the second case.

    Raises:
        CommitConflictError, DatasetExistsError
    """
    options, uri = staged.options, staged.uri
    locked = tx.lock_for(ahead.current, staged.write_id)
    reach("dataset locked")
    if locked is None:
        raise removed_from_catalog(staged)
    record = locked.dataset
    done = locked.claim.done or committed_before(tx, record, options)
    if done is not None:
        tx.forget_files(ahead.file_ids)
        tx.finish_pending(staged.write_id)
        schema_version = tx.schema_at(record.id, done.version)[0]
        own = files if done.write_id == staged.write_id else ()
        return result(done.version, schema_version, own)
    check_expected(uri, record, options)
    if options.mode == "error" and record.current_version:
        raise DatasetExistsError(dataset=uri)
    _check_conflicts(tx, staged, record, files, ahead)
    reach("conflicts checked")
    version = record.current_version + 1
    schema_version, schema_before = locked.schema or (
        ahead.current.schema_version,
        ahead.current.schema,
    )
    schema = staged.spec.schema
    if schema_before is not None:
        schema = _remerged(tx, record, schema_before, staged)
    if schema is not schema_before:
        schema_version = version
        tx.insert_schema(record.id, version, schema)
        record = _describe(tx, record, schema, schema_before, staged)
        reach("schema written")
    # Before the live files are looked at, which these must not seem to be among.
    unchanged = locked.schema is None and schema is schema_before
    recorded = mend(tx, record, version, ahead, schema, unchanged, prepared)
    removed = _removed(tx, record, staged, prepared.files, rewritten)
    counts = summary(tx, record, files, removed, prepared.removed_groups, last=locked.last)
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
    )
    reach("transaction written")
    if not recorded:
        record_files(tx, record, version, schema_version, schema, prepared.files, prepared=prepared)
    reach("files written")
    tx.remove_files(record.id, version, [file.id for file in removed])
    reach("files removed")
    return result(version, schema_version, files)


def result(version: int, schema_version: int, files: Sequence[FileMetadata]) -> WriteResult:
    rows = sum(file.row_count for file in files)
    return WriteResult(version, len(files), rows, schema_version, tuple(files))


def committed_before(
    tx: CatalogReader, record: DatasetRecord, options: WriteOptions
) -> TransactionRecord | None:
    """The transaction that makes this one a repetition: same application, same or later number."""
    if options.txn_app_id is None or options.txn_version is None:
        return None
    last = tx.last_txn_version(record.id, options.txn_app_id)
    if last is None or last < options.txn_version:
        return None
    return tx.transaction_by_txn(record.id, options.txn_app_id, options.txn_version) or (
        tx.transaction_by_txn(record.id, options.txn_app_id, last)
    )


def check_expected(uri: str, record: DatasetRecord, options: WriteOptions) -> None:
    expected = options.expected_version
    if expected is not None and record.current_version != expected:
        raise CommitConflictError(
            dataset=uri,
            base_version=expected,
            current_version=record.current_version,
            reason=f"version {expected} was expected",
        )


def _check_conflicts(
    tx: CatalogTransaction,
    staged: StagedWrite,
    record: DatasetRecord,
    files: Sequence[FileMetadata],
    ahead: Ahead,
) -> None:
    if record.current_version == staged.base_version:
        return

    def collide(reason: str) -> CommitConflictError:
        return CommitConflictError(
            dataset=staged.uri,
            base_version=staged.base_version,
            current_version=record.current_version,
            reason=reason,
        )

    theirs_by = tuple(record.properties.get("partition_by", ()))
    if theirs_by != staged.spec.partition_by:
        # Two writers made the dataset at once, each in its own way.
        raise collide(f"the dataset was made with partition columns ({', '.join(theirs_by)})")
    names = staged.options.index_columns
    if staged.base_version == 0 and names is not None:
        schema = tx.schema_at(record.id, record.current_version)[1]
        if not same_index_columns(schema, names, record.properties, theirs_by):
            raise collide("the dataset was made with other columns in its index")
    check_added = False
    for newer in tx.transactions_since(record.id, staged.base_version):
        theirs = conflicts.change_of(newer.operation)
        if theirs is None:
            raise collide(f"version {newer.version} did {newer.operation!r}, unknown here")
        found = conflicts.verdict(staged.options.change, theirs)
        if found is Verdict.CHECK_ADDED:
            check_added = True
        elif found in (Verdict.CONFLICT, Verdict.CHECK_MINE):
            raise collide(f"version {newer.version} did {newer.operation!r}")
    if check_added:
        own = set(ahead.file_ids)
        added = [
            file
            for file in tx.files_added_since(record.id, staged.base_version)
            if file.id not in own
        ]
        touched = _touching(tx, staged, record, added, files)
        if touched is not None:
            raise collide(f"{touched.path}, added by version {touched.version}, may be replaced")


def _touching(
    tx: CatalogTransaction,
    staged: StagedWrite,
    record: DatasetRecord,
    added: Sequence[FileRecord],
    files: Sequence[FileMetadata],
) -> FileRecord | None:
    """The first of the files others added that may hold a row that this write replaces."""
    if staged.options.dynamic_partitions:
        schema = staged.spec.schema
        mine = {_key(encode_partitions(file, schema), staged) for file in files}
        return next((file for file in added if _key(file.partitions, staged) in mine), None)
    assert staged.options.overwrite_where is not None
    snapshot = open_snapshot(tx, staged.key, staged.uri, "")
    bound = staged.options.overwrite_where.bind(snapshot.schema)
    return next((found.file for found in candidates(tx, snapshot, bound, added)), None)


def _removed(
    tx: CatalogTransaction,
    record: DatasetRecord,
    staged: StagedWrite,
    files: Sequence[FileMetadata],
    rewritten: Sequence[FileRecord],
) -> Sequence[FileRecord]:
    if staged.options.change is Change.APPEND or record.current_version == 0:
        return ()
    if staged.options.overwrite_where is not None:
        return rewritten
    live = tx.files(record.id, record.current_version)
    if staged.options.dynamic_partitions:
        mine = _partition_keys(staged, files)
        return [file for file in live if _key(file.partitions, staged) in mine]
    return live


def _partition_keys(
    staged: StagedWrite, files: Sequence[FileMetadata]
) -> set[tuple[str | None, ...]]:
    """The partitions that files are for; their values are JSON texts."""
    return {_key(file.partitions, staged) for file in files}


def _key(partitions: Mapping[str, str | None], staged: StagedWrite) -> tuple[str | None, ...]:
    return tuple(partitions[name] for name in staged.spec.partition_by)


def merged(
    reader: CatalogReader,
    record: DatasetRecord,
    current: pa.Schema,
    incoming: pa.Schema,
    options: WriteOptions,
    uri: str,
) -> pa.Schema:
    """The schema that takes in the data of a write.

    Raises:
        SchemaMismatchError: a column does not fit, or a partition column would become
            another kind of value than the catalog holds for the files so far.
    """
    result = merge(
        current,
        incoming,
        add_columns=options.schema_merge,
        promote_to_string=options.promote_to_string,
        next_id=int(record.properties.get("last_field_id", max_id(current))) + 1,
        dataset=uri,
        stored_values_fit=stored_values_fit(reader, record),
    )
    for name in record.properties.get("partition_by", ()):
        before, after = current.field(name).type, result.field(name).type
        if keys.encoding(before) != keys.encoding(after):
            raise SchemaMismatchError(
                column=name,
                expected=before,
                got=after,
                dataset=uri,
                reason=f"is a partition column of type {before} and cannot become {after}",
                hint="Cast the data.",
            )
    return result


def _remerged(
    reader: CatalogReader, record: DatasetRecord, current: pa.Schema, staged: StagedWrite
) -> pa.Schema:
    """The schema after this write, given the schema now; the files are written already."""
    if record.current_version == staged.base_version:
        if current.equals(staged.spec.schema, check_metadata=True):
            return current
        return staged.spec.schema

    def collide(reason: str) -> CommitConflictError:
        return CommitConflictError(
            dataset=staged.uri,
            base_version=staged.base_version,
            current_version=record.current_version,
            reason=f"the schema changed: {reason}",
        )

    try:
        schema = merged(reader, record, current, staged.incoming, staged.options, staged.uri)
    except SchemaMismatchError as error:
        # It did fit when the write began.
        raise collide(str(error)) from error
    mine = {leaf.id: leaf for leaf in leaves(schema)}
    for leaf in leaves(staged.spec.schema):
        now = mine.get(leaf.id)
        if now is None or now.type != leaf.type or now.path != leaf.path:
            name = ".".join(leaf.path)
            raise collide(f"column {name!r} is not what it was when this write began")
    return schema


def _describe(
    tx: CatalogTransaction,
    record: DatasetRecord,
    schema: pa.Schema,
    before: pa.Schema | None,
    staged: StagedWrite,
) -> DatasetRecord:
    """Bring the dataset's properties up to a new schema: ids in use, columns indexed."""
    properties, changed = described(
        record.properties, schema, before, staged.spec.partition_by, staged.options.index_columns
    )
    for column_id in changed:
        # Keys written so far have another encoding: every file counts as unknown.
        tx.unbound_column(record.id, column_id)
    tx.set_properties(record.id, properties)
    return replace(record, properties=properties)


def described(
    properties: Mapping[str, Any],
    schema: pa.Schema,
    before: pa.Schema | None,
    partition_by: tuple[str, ...],
    index_columns: tuple[str, ...] | None = None,
) -> tuple[dict[str, Any], list[int]]:
    """A dataset's properties under a new schema, and the columns whose old keys say nothing.

    `index_columns` counts for a new dataset (`before` is None) only.
    """
    properties = dict(properties)
    if before is None and index_columns is not None:
        properties["index_columns"] = list(index_columns)
    old = {} if before is None else {leaf.id: leaf for leaf in leaves(before)}
    indexed = list(properties.get("indexed_columns", ()))
    names = properties.get("index_columns")
    unknown: list[int] = []
    for leaf in leaves(schema):
        was = old.get(leaf.id)
        changed = was is not None and keys.encoding(was.type) != keys.encoding(leaf.type)
        if changed and leaf.id in indexed:
            unknown.append(leaf.id)
            if keys.encoding(leaf.type) is None:
                indexed.remove(leaf.id)
        elif was is None and is_wanted(leaf, names, len(indexed), partition_by):
            indexed.append(leaf.id)
    properties["indexed_columns"] = indexed
    properties["partition_by"] = list(partition_by)
    properties["last_field_id"] = max(int(properties.get("last_field_id", 0)), max_id(schema))
    return properties, unknown


def summary(
    tx: CatalogTransaction,
    record: DatasetRecord,
    files: Sequence[FileMetadata],
    removed: Sequence[FileRecord],
    removed_groups: Mapping[int, int] | None = None,
    *,
    last: TransactionRecord | None = None,
) -> dict[str, int]:
    """What the commit does, and what is live after it, so that nobody has to count.

    `removed_groups` has the numbers of row groups that are known already, by file id;
    `last` is the commit before this one, looked up where it is not given.
    """
    if last is None and record.current_version:
        last = tx.transaction(record.id, record.current_version)
    before: Mapping[str, int] = {} if last is None else last.summary
    if removed and len(removed) == before.get("live_files"):
        groups = before.get("live_row_groups", 0)  # everything goes
    else:
        known = removed_groups or {}
        unknown = [file.id for file in removed if file.id not in known]
        groups = sum(known.get(file.id, 0) for file in removed)
        groups += sum(len(found) for found in tx.row_groups(unknown).values())
    added_rows = sum(file.row_count for file in files)
    removed_rows = sum(file.row_count for file in removed)
    return {
        "files_added": len(files),
        "files_removed": len(removed),
        "rows_added": added_rows,
        "rows_removed": removed_rows,
        "live_files": before.get("live_files", 0) + len(files) - len(removed),
        "live_rows": before.get("live_rows", 0) + added_rows - removed_rows,
        "live_row_groups": before.get("live_row_groups", 0)
        + sum(len(file.row_groups) for file in files)
        - groups,
        "live_bytes": before.get("live_bytes", 0)
        + sum(file.file_size_bytes for file in files)
        - sum(file.size_bytes for file in removed),
    }

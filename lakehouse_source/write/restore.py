"""Verb. An old version becomes the newest: a commit with its files and its schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import uuid6

from lakehouse_source.catalog.base import Catalog, CatalogTransaction
from lakehouse_source.catalog.retry import in_transaction
from lakehouse_source.model import DatasetRecord, FileMetadata, FileRecord, WriteResult
from lakehouse_source.read.address import Address
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.schema.fields import leaves
from lakehouse_source.write.apply import summary, write_result
from lakehouse_source.write.evolution import evolve_properties, with_names_of
from lakehouse_source.write.prerecord import compute_index_rows


def restore(catalog: Catalog, address: Address, version: int) -> WriteResult:
    """Commit a version whose files and schema are those of an old one.

    Raises:
        DatasetNotFoundError, VersionNotFoundError
    """
    write_id = str(uuid6.uuid7())

    def apply_restore(tx: CatalogTransaction) -> WriteResult:
        record = tx.lock_dataset(address.key)
        done = tx.transaction_by_write_id(write_id)
        target = address.snapshot(catalog, tx, version)
        assert record is not None  # `snapshot` raises where there is no dataset
        if done is not None:
            schema_version = tx.schema_at(record.id, done.version)[0]
            counts = done.summary
            return WriteResult(
                done.version, counts["files_added"], counts["rows_added"], schema_version
            )
        returning, removed = _changes(tx, record, version)
        files = _metadata_by_schema(tx, target, returning)
        everything = [file for some in files.values() for file in some]
        new_version = record.current_version + 1
        schema_version = _record_schema(tx, record, target, new_version)
        tx.insert_transaction(
            record.id,
            new_version,
            "restore",
            {"restored_version": version},
            summary(tx, record, everything, removed),
            write_id,
        )
        _record_files(tx, record, target, new_version, files)
        tx.remove_files(record.id, new_version, [file.id for file in removed])
        return write_result(new_version, schema_version, everything)

    return in_transaction(catalog, address.uri, write_id, apply_restore)


def _changes(
    tx: CatalogTransaction, record: DatasetRecord, version: int
) -> tuple[list[FileRecord], list[FileRecord]]:
    """The files of a version that are no longer live, and the live files that it lacks."""
    live = {file.path: file for file in tx.files(record.id, record.current_version)}
    wanted = {file.path: file for file in tx.files(record.id, version)}
    returning = [file for path, file in wanted.items() if path not in live]
    removed = [file for path, file in live.items() if path not in wanted]
    return returning, removed


def _metadata_by_schema(
    tx: CatalogTransaction, target: Snapshot, files: Sequence[FileRecord]
) -> dict[int, list[FileMetadata]]:
    """Files as their writers described them, by the version of the schema they have."""
    groups = tx.row_groups([file.id for file in files])
    keys = target.partition_texts().keys
    found: dict[int, list[FileMetadata]] = {}
    for file in files:
        schema = target.file_schemas[file.schema_version]
        found.setdefault(file.schema_version, []).append(
            FileMetadata(
                path=file.path,
                row_count=file.row_count,
                file_size_bytes=file.size_bytes,
                schema=pa.schema([f for f in schema if f.name not in keys(file.schema_version)]),
                row_groups=tuple(groups.get(file.id, ())),
                partitions=file.partitions,
                stats_complete=file.stats_complete,
            )
        )
    return found


def _record_schema(
    tx: CatalogTransaction, record: DatasetRecord, target: Snapshot, new_version: int
) -> int:
    """Put the old schema into force where it differs; answers the version it is in force since."""
    schema_now = tx.schema_at(record.id, record.current_version)[1]
    if target.schema.equals(schema_now, check_metadata=True):
        return target.schema_version
    tx.insert_schema(record.id, new_version, target.schema)
    # Keys of files that stay live have the encoding of the schema that is replaced.
    for column_id in evolve_properties(
        record.properties, target.schema, schema_now, target.partition_by
    )[1]:
        tx.invalidate_bounds(record.id, column_id)
    properties = with_names_of(record.properties, schema_now, target.schema)
    if properties != record.properties:
        tx.set_properties(record.id, properties)
    return new_version


def _record_files(
    tx: CatalogTransaction,
    record: DatasetRecord,
    target: Snapshot,
    new_version: int,
    files: Mapping[int, Sequence[FileMetadata]],
) -> None:
    # A column may have been promoted after the file was written, up to the old version.
    types = {leaf.id: leaf.type for leaf in leaves(target.schema)}
    indexed = frozenset(record.properties.indexed_columns)
    keys = target.partition_texts().keys
    for schema_version, some in files.items():
        schema = target.file_schemas[schema_version]
        rows = compute_index_rows(some, schema, indexed, keys(schema_version), types)
        tx.record_file_metadata(
            record,
            new_version,
            some,
            schema_version=schema_version,
            bounds=lambda file, rows=rows: rows[file.path],  # type: ignore[misc]
        )

"""Verb. An old version made the newest: its files and its schema, as a commit of their own."""

from __future__ import annotations

import pyarrow as pa
import uuid6

from lakehouse_source.catalog.base import Catalog, CatalogTransaction
from lakehouse_source.catalog.retry import in_transaction
from lakehouse_source.model import FileMetadata, WriteResult
from lakehouse_source.read.snapshot import open_snapshot
from lakehouse_source.schema.fields import leaves
from lakehouse_source.write.apply import described, result, summary
from lakehouse_source.write.prerecord import record_files


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
                tx.invalidate_bounds(record.id, column_id)
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

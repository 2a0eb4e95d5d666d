"""Verb. An old version becomes the newest: a commit with its files and its schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import pyarrow as pa
import uuid6

from lakehouse_source.catalog.base import Catalog, CatalogTransaction
from lakehouse_source.errors import CorruptDatasetError, InvalidOptionError, StorageError
from lakehouse_source.model import (
    DatasetRecord,
    DeletionVector,
    FileMetadata,
    FileRecord,
    WriteResult,
)
from lakehouse_source.parquet.open_file import deleted_rows
from lakehouse_source.progress import COMMIT
from lakehouse_source.read.address import Address
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.schema.fields import leaves
from lakehouse_source.schema.partitions import partitioned_anew
from lakehouse_source.storage import Storage
from lakehouse_source.write.commit.apply import summary, write_result
from lakehouse_source.write.commit.evolution import encoded_anew, evolve_properties, with_names_of
from lakehouse_source.write.commit.metadata_commit import commit_version
from lakehouse_source.write.commit.prerecord import compute_index_rows
from lakehouse_source.write.commit.stored_rows import check_older, check_unchanged

# How often vectors are read while other commits may change them. After that they are read under the
# lock, so that other commits cannot starve a restore.
_READS_WITHOUT_LOCK = 4


def restore(
    catalog: Catalog,
    address: Address,
    version: int | None,
    timestamp: datetime | str | None = None,
) -> WriteResult:
    """Commit a version whose files and schema are those of an old one."""
    if version is None and timestamp is None:
        reason = "is missing: name the one to restore, or a timestamp."
        raise InvalidOptionError(option="version", reason=reason)
    write_id = str(uuid6.uuid7())
    storage = Storage(address.location)
    known: dict[_ReplacedVector, tuple[int, int]] = {}
    reads_left = _READS_WITHOUT_LOCK
    checked = check_older(catalog, address, version, timestamp)

    def apply_restore(tx: CatalogTransaction) -> WriteResult:
        record = tx.lock_dataset(address.key)
        target = address.snapshot(catalog, tx, version, timestamp)
        assert record is not None  # `snapshot` raises where there is no dataset
        check_unchanged(record, address.uri, checked)
        changes = _changes(tx, record, target.version)
        unread = [one for one in changes.replaced if one.is_in_storage and one not in known]
        if unread and reads_left:
            raise _VectorsUnread(unread)
        differing = [known.get(one) or _differing_rows(one, storage) for one in changes.replaced]
        removed = changes.removed
        files = _metadata_by_schema(tx, target, changes.returning)
        everything = [file for some in files.values() for file in some]
        new_version = record.current_version + 1
        schema_version = _record_schema(tx, record, target, new_version)
        counts = summary(
            tx,
            record,
            everything,
            removed,
            returned_by_vectors=sum(back for back, _ in differing)
            - sum(one.cardinality for one in changes.vectors_of_returning.values()),
            deleted_by_vectors=sum(gone for _, gone in differing),
        )
        details = {"restored_version": target.version}
        tx.insert_transaction(record.id, new_version, "restore", details, counts, write_id)
        ids = _record_files(tx, record, target, new_version, files, changes)
        tx.remove_files(record.id, new_version, [file.id for file in removed])
        vectors: dict[int, DeletionVector | None]
        vectors = {ids[path]: vector for path, vector in changes.vectors_of_returning.items()}
        vectors |= {one.file_id: one.after for one in changes.replaced}
        tx.set_vectors(record.id, new_version, vectors)
        made = write_result(new_version, schema_version, everything, write_id, counts)
        return replace(made, pairs_left=tx.pairs_after(record.id, target.version))

    while True:
        try:
            result = commit_version(catalog, address, write_id, apply_restore, alone=True)
            if result.pairs_left:
                COMMIT.warning(
                    "%s: the restore took back what these wrote, and they stay committed: %s. To "
                    "load it again, give higher numbers, or another txn_app_id",
                    address.uri,
                    ", ".join(describe_pairs(result.pairs_left)),
                )
            return result
        except _VectorsUnread as error:
            # The transaction was rolled back: no other commit waits while storage is read.
            known |= {one: _differing_rows(one, storage) for one in error.unread}
            reads_left -= 1


def describe_pairs(pairs: Mapping[str, int]) -> list[str]:
    """Idempotency pairs as people read them."""
    return [f"txn_app_id {name!r} up to txn_version {last}" for name, last in pairs.items()]


@dataclass(frozen=True, slots=True)
class _ReplacedVector:
    """A file that stays live, its present deletion vector, and the old one that it gets back."""

    file_id: int
    path: str
    row_count: int
    before: DeletionVector | None
    after: DeletionVector | None

    @property
    def is_in_storage(self) -> bool:
        """Tell whether storage has to be read to compare the two vectors."""
        pair = (self.before, self.after)
        return None not in pair and any(one is not None and one.blob is None for one in pair)


class _VectorsUnread(Exception):
    """The restore needs these deletion vectors from storage, which is not read under the lock."""

    def __init__(self, unread: Sequence[_ReplacedVector]) -> None:
        super().__init__(f"{len(unread)} deletion vectors were not read yet")
        self.unread = unread


@dataclass(frozen=True, slots=True)
class _Changes:
    """What a restore changes.

    `returning` are the files of the old version that are no longer live, and
    `vectors_of_returning` has their deletion vectors, by path. `removed` are the live files that
    the old version lacks. `replaced` are the vectors of files that stay live.
    """

    returning: list[FileRecord]
    removed: list[FileRecord]
    vectors_of_returning: dict[str, DeletionVector]
    replaced: list[_ReplacedVector]


def _changes(tx: CatalogTransaction, record: DatasetRecord, version: int) -> _Changes:
    live = {_identity(file): file for file in tx.files(record.id, record.current_version)}
    wanted = {_identity(file): file for file in tx.files(record.id, version)}
    returning = [file for key, file in wanted.items() if key not in live]
    removed = [file for key, file in live.items() if key not in wanted]
    then = {one.file_id: one.vector for one in tx.all_vectors(record.id, version)}
    now = {one.file_id: one.vector for one in tx.all_vectors(record.id, record.current_version)}
    of_returning = {file.path: then[file.id] for file in returning if file.id in then}
    replaced = []
    for key, file in live.items():
        if key not in wanted:
            continue
        before, after = now.get(file.id), then.get(wanted[key].id)
        if before != after:
            replaced.append(_ReplacedVector(file.id, file.path, file.row_count, before, after))
    return _Changes(returning, removed, of_returning, replaced)


def _differing_rows(replaced: _ReplacedVector, storage: Storage) -> tuple[int, int]:
    """How many rows of a file come back, and how many are deleted, with another vector.

    After several restores, neither of the two vectors need contain the other.
    """
    pair = (replaced.before, replaced.after)
    before, after = (0 if one is None else one.cardinality for one in pair)
    if 0 in (before, after):
        return before, after
    try:
        old, new = (deleted_rows(one, replaced.path, replaced.row_count, storage) for one in pair)
    except (StorageError, CorruptDatasetError):
        # A restore repairs a damaged vector, so it must not need to read the damaged one.
        return before, after
    return len(old - new), len(new - old)


def _identity(file: FileRecord) -> tuple[str, int, int]:
    """A key that is equal for two records of one file with the same columns and identities of rows.

    A file that was restored has another id than before. A file of somebody else can be removed
    and added again, under another schema; its rows then have other identities.
    """
    return file.path, file.schema_version, file.first_row_id


def _metadata_by_schema(
    tx: CatalogTransaction, target: Snapshot, files: Sequence[FileRecord]
) -> dict[int, list[FileMetadata]]:
    """Files as their writers described them, by the version of the schema they have."""
    ids = [file.id for file in files]
    groups, checksums = tx.row_groups(ids), tx.checksums(ids)
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
                sha256=checksums.get(file.id),
            )
        )
    return found


def _record_schema(
    tx: CatalogTransaction, record: DatasetRecord, target: Snapshot, new_version: int
) -> int:
    """Put the old schema into force if it differs.

    Returns the version that the schema begins at.
    """
    schema_now = tx.schema_at(record.id, record.current_version)[1]
    if target.schema.equals(schema_now, check_metadata=True):
        return target.schema_version
    tx.insert_schema(record.id, new_version, target.schema)
    # Keys of files that stay live have the encoding of the schema that is replaced, or, of a
    # column that was dropped, that of any schema before.
    _properties, unsearchable = evolve_properties(
        record.properties, target.schema, schema_now, target.partition_by
    )
    present = {leaf.id for leaf in leaves(schema_now)}
    unsearchable += set(encoded_anew(tx.schemas(record.id).values())) - present
    for column_id in unsearchable:
        tx.invalidate_bounds(record.id, column_id)
    named = with_names_of(record.properties, schema_now, target.schema)
    properties = partitioned_anew(
        replace(named, partition_by=record.properties.partition_by),
        new_version,
        schema_now,
        target.partition_by,
        target.schema,
    )
    if properties != record.properties:
        tx.set_properties(record.id, properties)
    return new_version


def _record_files(
    tx: CatalogTransaction,
    record: DatasetRecord,
    target: Snapshot,
    new_version: int,
    files: Mapping[int, Sequence[FileMetadata]],
    changes: _Changes,
) -> dict[str, int]:
    """Record the files that return; returns their new ids by path."""
    first_row_ids = {file.path: file.first_row_id for file in changes.returning}
    ids: dict[str, int] = {}
    # A column may have been promoted between the writing of the file and the old version.
    types = {leaf.id: leaf.type for leaf in leaves(target.schema)}
    indexed = frozenset(record.properties.indexed_columns)
    keys = target.partition_texts().keys
    for schema_version, some in files.items():
        schema = target.file_schemas[schema_version]
        named = keys(schema_version)
        rows = compute_index_rows(some, schema, indexed, named, types, [target.schema])
        new_ids = tx.record_file_metadata(
            record,
            new_version,
            some,
            schema_version=schema_version,
            bounds=lambda file, rows=rows: rows[file.path],  # type: ignore[misc]
            first_row_ids=[first_row_ids[file.path] for file in some],
        )
        ids |= {file.path: id for file, id in zip(some, new_ids)}
    return ids

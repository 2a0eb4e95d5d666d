"""Verb. What the catalog is told of a commit's files: worked out and recorded before the lock.

Index rows are worked out from JSON, and inserting the rows of many files takes longer
than all that a commit has to do under its dataset's lock. Both come first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

import pyarrow as pa

from lakehouse_source.catalog.reader import Current
from lakehouse_source.catalog.writer import CatalogTransaction
from lakehouse_source.errors import CommitConflictError
from lakehouse_source.failpoints import reach
from lakehouse_source.model import DatasetRecord, FileBounds, FileMetadata
from lakehouse_source.pruning import bounds, keys
from lakehouse_source.schema.fields import Leaf, leaves
from lakehouse_source.schema.partitions import partition_ordinal, partition_text
from lakehouse_source.write.options import StagedWrite


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a commit knows of its files before it locks the dataset.

    Others wait while the lock is held, and index rows are worked out from JSON.
    `files` have their partition values as the catalog keeps them; `rows` are their
    rows of the search index over the columns `indexed`; `removed_groups` counts the
    row groups of files that may go.
    """

    files: tuple[FileMetadata, ...]
    indexed: frozenset[int] = frozenset()
    rows: Mapping[str, Sequence[FileBounds]] = field(default_factory=dict)
    removed_groups: Mapping[int, int] = field(default_factory=dict)


def prepare(
    staged: StagedWrite,
    files: Sequence[FileMetadata],
    removed_groups: Mapping[int, int] | None = None,
) -> Prepared:
    """Work out what the catalog will be told of files, for the schema the write began with."""
    schema = staged.spec.schema
    encoded = tuple(replace(file, partitions=encode_partitions(file, schema)) for file in files)
    indexed = frozenset(staged.indexed)
    rows = _index_rows(encoded, schema, indexed, staged.spec.partition_by)
    return Prepared(encoded, indexed, rows, removed_groups or {})


@dataclass(frozen=True, slots=True)
class Ahead:
    """What a commit recorded of its files before it had the dataset's lock.

    `version` is the one that they get where no other commit comes first. No `file_ids`:
    nothing is recorded yet.
    """

    current: Current
    version: int
    file_ids: Sequence[int] = ()


def record_ahead(tx: CatalogTransaction, staged: StagedWrite, prepared: Prepared) -> Ahead:
    """Record the files of a write for the version that comes next, as it seems, without a lock.

    Nobody sees the rows before the transaction is committed, and `land` mends what others
    changed until it has the lock. They take most of the time of a commit, and others wait
    only from the lock on. Nothing is locked that they wait for: a foreign key shares its
    dataset's row with everybody who does not change its key.

    Raises:
        CommitConflictError: there is no such dataset any more.
    """
    reach("transaction begun")
    current, ids = tx.current_with_new_file_ids(staged.key, len(prepared.files))
    if current is None:
        raise removed_from_catalog(staged)
    record = current.dataset
    version = record.current_version + 1
    own = {leaf.id for leaf in leaves(staged.spec.schema)}
    unchanged = current.schema is not None and current.schema.equals(
        staged.spec.schema, check_metadata=True
    )
    if not (prepared.files and unchanged and _indexed(record, own) == prepared.indexed & own):
        return Ahead(current, version)
    tx.record_file_metadata(
        record,
        version,
        prepared.files,
        schema_version=current.schema_version,
        bounds=lambda file: prepared.rows[file.path],
        ids=ids,
    )
    reach("files recorded")
    return Ahead(current, version, ids)


def mend(
    tx: CatalogTransaction,
    record: DatasetRecord,
    version: int,
    ahead: Ahead,
    schema: pa.Schema,
    unchanged: bool,
    prepared: Prepared,
) -> bool:
    """Make right what was recorded ahead; False where nothing is recorded now."""
    if not ahead.file_ids:
        return False
    own = {leaf.id for leaf in leaves(schema)}
    if not unchanged or _indexed(record, own) != prepared.indexed & own:
        # The rows are others now, or their keys have another encoding.
        tx.forget_files(ahead.file_ids)
        return False
    if version != ahead.version:
        tx.move_files(version, ahead.file_ids)
        reach("files moved")
    return True


def record_files(
    tx: CatalogTransaction,
    record: DatasetRecord,
    version: int,
    schema_version: int,
    schema: pa.Schema,
    files: Sequence[FileMetadata],
    *,
    prepared: Prepared | None = None,
    types: Mapping[int, pa.DataType] | None = None,
) -> None:
    """Persist files with their row groups, partitions (JSON texts here) and index rows.

    `types` gives, by id, the types of columns that were promoted since the files
    were written; keys have the encoding of those.
    """
    own = {leaf.id for leaf in leaves(schema)}
    indexed = _indexed(record, own)
    if prepared is not None and prepared.indexed & own == indexed:
        rows = prepared.rows
    else:
        partition_by = tuple(record.properties.get("partition_by", ()))
        rows = _index_rows(files, schema, indexed, partition_by, types)
    tx.record_file_metadata(
        record,
        version,
        files,
        schema_version=schema_version,
        bounds=lambda file: rows[file.path],
    )


def _indexed(record: DatasetRecord, own: set[int]) -> set[int]:
    return own.intersection(record.properties.get("indexed_columns", ()))


def _index_rows(
    files: Sequence[FileMetadata],
    schema: pa.Schema,
    indexed: AbstractSet[int],
    partition_by: Sequence[str],
    types: Mapping[int, pa.DataType] | None = None,
) -> dict[str, list[FileBounds]]:
    """The index rows of files, by path; `schema` is the one they were written under."""
    columns = [leaf for leaf in leaves(schema) if leaf.id in indexed]
    in_files = [leaf for leaf in columns if leaf.path[0] not in partition_by]
    in_folders = [leaf for leaf in columns if leaf.path[0] in partition_by]
    present: dict[int, list[Leaf]] = {}  # most files share one schema object

    def rows_of(file: FileMetadata) -> list[FileBounds]:
        if id(file.schema) not in present:
            ids = {leaf.id for leaf in leaves(file.schema)}
            present[id(file.schema)] = [leaf for leaf in in_files if leaf.id in ids]
        rows = bounds.file_bounds(file.row_groups, present[id(file.schema)], types)
        for leaf in in_folders:
            value = partition_ordinal(file.partitions[leaf.path[0]], leaf.type)
            now = leaf.type if types is None else types.get(leaf.id, leaf.type)
            row = bounds.constant_bounds(leaf, value, file.row_count)[1]
            if keys.encoding(now) != keys.encoding(leaf.type):
                row = replace(row, lower=keys.UNBOUNDED_LOWER, upper=keys.UNBOUNDED_UPPER)
            rows.append(row)
        return rows

    return {file.path: rows_of(file) for file in files}


def encode_partitions(file: FileMetadata, schema: pa.Schema) -> dict[str, str | None]:
    """Partition values as the catalog keeps them: JSON text, None for NULL."""
    return {
        name: partition_text(value, schema.field(name).type)
        for name, value in file.partitions.items()
    }


def removed_from_catalog(staged: StagedWrite) -> CommitConflictError:
    """What to raise where the dataset of a write is not there any more."""
    return CommitConflictError(
        dataset=staged.uri,
        base_version=staged.base_version,
        current_version=0,
        reason="the dataset was removed from the catalog",
    )

"""Verb. What a commit computes and records before it holds the lock of its dataset.

Index rows are computed from JSON, and inserting the rows of many files takes longer than
everything that a commit does under the lock. Both are done before the lock is taken,
because other writers wait from then on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

import pyarrow as pa

from lakehouse_source.catalog.sql.history_reader import Current
from lakehouse_source.catalog.sql.writer import CatalogTransaction
from lakehouse_source.errors import CommitConflictError
from lakehouse_source.failpoints import reach
from lakehouse_source.model import DatasetRecord, FileBounds, FileMetadata, FileRecord
from lakehouse_source.pruning import bounds, keys
from lakehouse_source.schema.fields import Leaf, leaves, leaves_of_file
from lakehouse_source.schema.partitions import partition_ordinal, partition_text
from lakehouse_source.write.commit.chosen_paths import with_ids_of
from lakehouse_source.write.commit.options import StagedWrite
from lakehouse_source.write.commit.row_changes import PreparedRows

IndexRows = Mapping[str, Sequence[FileBounds]]


@dataclass(frozen=True, slots=True)
class PreparedCommit:
    """A write that lacks only its database transaction.

    `files` are the files to add. `encoded` are the same files with their partition values
    as the catalog stores them (JSON texts); `index_rows` has their rows of the search
    index by path, over the columns with the ids `indexed`. `rewritten` are the files in which this
    write replaces the rows of its condition, with their numbers of row groups by file id. `rows`
    are the rows of existing files that the write takes out.
    """

    staged: StagedWrite
    files: tuple[FileMetadata, ...]
    encoded: tuple[FileMetadata, ...]
    indexed: frozenset[int]
    index_rows: IndexRows
    rewritten: tuple[FileRecord, ...]
    rewritten_row_groups: Mapping[int, int]
    rows: PreparedRows | None = None


def prepare_files(
    staged: StagedWrite,
    files: Sequence[FileMetadata],
    rewritten: Sequence[FileRecord],
    rewritten_row_groups: Mapping[int, int],
    rows: PreparedRows | None = None,
) -> PreparedCommit:
    """Compute what the catalog will store about files, under the schema as the write began."""
    schema = staged.spec.schema
    encoded = tuple(replace(file, partitions=encode_partitions(file, schema)) for file in files)
    indexed = frozenset(staged.indexed)
    return PreparedCommit(
        staged=staged,
        files=tuple(files),
        encoded=encoded,
        indexed=indexed,
        index_rows=compute_index_rows(encoded, schema, indexed, staged.spec.partition_by),
        rewritten=tuple(rewritten),
        rewritten_row_groups=rewritten_row_groups,
        rows=rows,
    )


@dataclass(frozen=True, slots=True)
class PrerecordedFiles:
    """The files that a commit recorded before it had the dataset's lock.

    `current` is the dataset as the commit saw it, and `version` the next version, for which the
    files were recorded. Without `file_ids` nothing is recorded yet.
    """

    current: Current
    version: int
    file_ids: Sequence[int] = ()


def prerecord_files(tx: CatalogTransaction, commit: PreparedCommit) -> PrerecordedFiles:
    """Record the files of a commit for the next version, before the dataset is locked.

    No other transaction sees the rows before this one is committed, and
    `rebase_prerecorded` corrects them where another commit takes the lock first. Nothing
    is locked here that other writers wait for: a foreign key takes a shared lock on the
    dataset's row, which conflicts only with a change of its key.

    Raises:
        CommitConflictError: the dataset is no longer in the catalog.
    """
    reach("transaction begun")
    staged = commit.staged
    current, ids = tx.current_with_new_file_ids(staged.key, len(commit.encoded))
    if current is None:
        raise removed_from_catalog(staged)
    version = current.dataset.current_version + 1
    unchanged = current.schema is not None and current.schema.equals(
        staged.spec.schema, check_metadata=True
    )
    own_ids = with_ids_of(commit.encoded, staged.spec.schema) is commit.encoded
    fits = own_ids and _fits(current.dataset, staged.spec.schema, commit)
    if not (commit.encoded and unchanged and fits):
        return PrerecordedFiles(current, version)
    tx.record_file_metadata(
        current.dataset,
        version,
        commit.encoded,
        schema_version=current.schema_version,
        bounds=lambda file: commit.index_rows[file.path],
        ids=ids,
    )
    reach("files recorded")
    return PrerecordedFiles(current, version, ids)


def rebase_prerecorded(
    tx: CatalogTransaction,
    record: DatasetRecord,
    version: int,
    schema: pa.Schema,
    commit: PreparedCommit,
    prerecorded: PrerecordedFiles,
    schema_is_same: bool,
) -> bool:
    """Correct the rows of prerecorded files under the lock; False if no rows are left.

    The rows move to `version`. If the schema or the indexed columns differ from those that the rows
    were computed for, the rows are deleted.
    """
    if not prerecorded.file_ids:
        return False
    if not schema_is_same or not _fits(record, schema, commit):
        tx.forget_files(prerecorded.file_ids)
        return False
    if version != prerecorded.version:
        taken = record.next_row_id - prerecorded.current.dataset.next_row_id
        tx.move_files(version, taken, prerecorded.file_ids)
        reach("files moved")
    return True


def record_files(
    tx: CatalogTransaction,
    record: DatasetRecord,
    version: int,
    schema_version: int,
    schema: pa.Schema,
    commit: PreparedCommit,
) -> None:
    """Record the files of a commit at a version whose schema is given."""
    rows = commit.index_rows
    files = with_ids_of(commit.encoded, schema)
    if files is not commit.encoded or not _fits(record, schema, commit):
        indexed = _indexed(record, schema)
        rows = compute_index_rows(files, schema, indexed, record.properties.partition_by)
    tx.record_file_metadata(
        record,
        version,
        files,
        schema_version=schema_version,
        bounds=lambda file: rows[file.path],
    )


def _indexed(record: DatasetRecord, schema: pa.Schema) -> set[int]:
    return {leaf.id for leaf in leaves(schema)}.intersection(record.properties.indexed_columns)


def _fits(record: DatasetRecord, schema: pa.Schema, commit: PreparedCommit) -> bool:
    """Tell whether the prepared index rows cover the columns that the index covers now."""
    ids = {leaf.id for leaf in leaves(schema)}
    return ids.intersection(record.properties.indexed_columns) == commit.indexed & ids


def compute_index_rows(
    files: Sequence[FileMetadata],
    schema: pa.Schema,
    indexed: AbstractSet[int],
    partition_by: Sequence[str],
    types: Mapping[int, pa.DataType] | None = None,
    others: Iterable[pa.Schema] = (),
) -> dict[str, list[FileBounds]]:
    """The index rows of files, by path. Partition values of the files are JSON texts.

    `schema` is the one the files were written under; `others` may have paths of VARIANT that it
    lacks, of which nothing is known then. `types` gives, by field id, the types
    that columns were promoted to since then: keys have the encoding of the promoted type.
    """
    later = [leaf for one in others for leaf in leaves(one)]
    columns = [leaf for leaf in leaves_of_file(schema, later) if leaf.id in indexed]
    in_files = [leaf for leaf in columns if leaf.path[0] not in partition_by]
    in_folders = [leaf for leaf in columns if leaf.path[0] in partition_by]
    present: dict[int, list[Leaf]] = {}  # most files share one schema object

    def rows_of(file: FileMetadata) -> list[FileBounds]:
        if id(file.schema) not in present:
            ids = {leaf.id for leaf in leaves_of_file(file.schema, in_files)}
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
    """Partition values as the catalog stores them: JSON text, None for NULL."""
    return {
        name: partition_text(value, schema.field(name).type)
        for name, value in file.partitions.items()
    }


def removed_from_catalog(staged: StagedWrite) -> CommitConflictError:
    """The error of a commit whose dataset is no longer in the catalog."""
    return staged.conflict(0, "the dataset was removed from the catalog")

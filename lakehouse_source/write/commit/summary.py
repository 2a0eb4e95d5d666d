"""Verb. What a commit did, for the history and for the caller: counts of files and rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lakehouse_source.catalog.sql.writer import CatalogTransaction
from lakehouse_source.model import (
    DatasetRecord,
    FileMetadata,
    FileRecord,
    TransactionRecord,
    WriteResult,
)
from lakehouse_source.write.commit.apply_rows import AppliedRows
from lakehouse_source.write.commit.prerecord import PreparedCommit


def write_result(
    version: int,
    schema_version: int,
    files: Sequence[FileMetadata],
    write_id: str,
    counts: Mapping[str, int],
) -> WriteResult:
    """The result of a commit that added files."""
    rows = sum(file.row_count for file in files)
    return WriteResult(
        version, len(files), rows, schema_version, tuple(files), write_id, dict(counts)
    )


def summary(
    tx: CatalogTransaction,
    record: DatasetRecord,
    files: Sequence[FileMetadata],
    removed: Sequence[FileRecord],
    removed_row_groups: Mapping[int, int] | None = None,
    *,
    last: TransactionRecord | None = None,
    returned_by_vectors: int = 0,
    deleted_by_vectors: int = 0,
) -> dict[str, int]:
    """The summary of a commit (see `TransactionRecord`), from that of the commit before it.

    `removed_row_groups` has the numbers of row groups that are known already, by file id; `last` is
    the commit before this one, by default read from the catalog. `returned_by_vectors` counts the
    rows that the commit brings back in files that stay, minus the deleted rows of `files`;
    `deleted_by_vectors` counts the rows that the commit deletes in files that stay.
    """
    if last is None and record.current_version:
        last = tx.transaction(record.id, record.current_version)
    before: Mapping[str, int] = {} if last is None else last.summary
    if removed and len(removed) == before.get("live_files") and "live_rows" in before:
        groups = before.get("live_row_groups", 0)  # every file is removed
        removed_rows = before["live_rows"]
    else:
        known = removed_row_groups or {}
        unknown = [file.id for file in removed if file.id not in known]
        groups = sum(known.get(file.id, 0) for file in removed)
        groups += sum(len(found) for found in tx.row_groups(unknown).values())
        vectors = tx.vectors([file.id for file in removed], record.current_version)
        removed_rows = sum(file.row_count for file in removed)
        removed_rows -= sum(vector.cardinality for vector in vectors.values())
    added_rows = sum(file.row_count for file in files) + returned_by_vectors
    removed_rows += deleted_by_vectors
    change = {
        "files_added": len(files),
        "files_removed": len(removed),
        "rows_added": added_rows,
        "rows_removed": removed_rows,
    }
    if last is not None and "live_rows" not in before:
        return change  # a summary without live counts does not tell what is live
    return {
        **change,
        "live_files": before.get("live_files", 0) + len(files) - len(removed),
        "live_rows": before.get("live_rows", 0) + added_rows - removed_rows,
        "live_row_groups": before.get("live_row_groups", 0)
        + sum(len(file.row_groups) for file in files)
        - groups,
        "live_bytes": before.get("live_bytes", 0)
        + sum(file.file_size_bytes for file in files)
        - sum(file.size_bytes for file in removed),
    }


def with_rows(
    counts: Mapping[str, int], commit: PreparedCommit, rows: AppliedRows
) -> dict[str, int]:
    """The summary of a commit that changes rows. Rows that it only copies are not counted."""
    assert commit.rows is not None
    return {
        **counts,
        "rows_added": counts["rows_added"] - rows.copied,
        "rows_removed": counts["rows_removed"] - rows.copied,
        "rows_deleted": rows.deleted,
        "rows_updated": rows.updated,
        "rows_inserted": commit.rows.changes.inserted,
        "vectors_written": len(rows.vectors),
    }

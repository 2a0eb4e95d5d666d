"""Edge. Values as rows of the catalog's tables, in the order of the columns in `statements`.

Values that the database cannot store are refused here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from lakehouse_source.catalog.sql.session import Row
from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.model import DeletionVector, FileBounds, FileMetadata
from lakehouse_source.pruning.index_levels import level

# A file and the id that it has in the catalog.
NumberedFile: TypeAlias = tuple[int, FileMetadata]


def of_files(
    dataset_id: int,
    version: int,
    schema_version: int,
    files: Sequence[NumberedFile],
    first_row_ids: Sequence[int],
) -> list[Row]:
    """Rows of `files`. `first_row_ids` are the identities of the first rows of the files."""
    return [
        (
            file_id,
            dataset_id,
            version,
            schema_version,
            without_nul(file.path, "path"),
            file.file_size_bytes,
            file.row_count,
            file.stats_complete,
            first_row_id,
            file.sha256,
        )
        for (file_id, file), first_row_id in zip(files, first_row_ids)
    ]


def of_partitions(files: Sequence[NumberedFile]) -> list[Row]:
    """Rows of `partitions`: one for each file and partition column."""
    return [
        (file_id, key, value) for file_id, file in files for key, value in file.partitions.items()
    ]


def of_row_groups(files: Sequence[NumberedFile]) -> list[Row]:
    """Rows of `row_groups`, with the statistics that the catalog keeps."""
    return [
        (
            file_id,
            group.index,
            group.row_count,
            group.stats_min_json,
            group.stats_max_json,
            group.null_counts_json,
            group.nan_json,
            group.total_byte_size,
            group.compressed_byte_size,
        )
        for file_id, file in files
        for group in file.row_groups
    ]


def of_bounds(dataset_id: int, bounds: Iterable[tuple[int, FileBounds]]) -> list[Row]:
    """Rows of `column_bounds`, the search index. Each bound comes with the id of its file."""
    rows = [
        (
            dataset_id,
            bound.column_id,
            level(bound.lower, bound.upper),
            bound.upper,
            bound.lower,
            file_id,
            bound.null_count,
            bound.row_count,
            bound.may_contain_nan,
        )
        for file_id, bound in bounds
    ]
    # In the order of the primary key: neighbours are written to one page.
    rows.sort(key=lambda row: row[:6])
    return rows


def of_vectors(
    dataset_id: int, version: int, vectors: Mapping[int, DeletionVector | None]
) -> list[Row]:
    """Rows of `deletion_vectors`, by file id; a file without a vector has none."""
    return [
        (
            dataset_id,
            file_id,
            version,
            without_nul(vector.path, "path"),
            vector.size_bytes,
            vector.offset,
            vector.length,
            vector.cardinality,
            vector.blob,
            vector.sha256,
        )
        for file_id, vector in sorted(vectors.items())
        if vector is not None
    ]


def idempotency_pair(app_id: str | None, number: int | None) -> tuple[str, int] | None:
    """An application's id and the number of its transaction: both or neither."""
    if app_id is None and number is None:
        return None
    if app_id is None or number is None:
        raise InvalidOptionError(
            option="txnVersion", reason="goes with txnAppId: give both or none."
        )
    if not 0 <= number < 2**63:
        raise InvalidOptionError(
            option="txnVersion", value=number, reason="must be between 0 and 2^63 - 1."
        )
    return without_nul(app_id, "txnAppId"), number


def without_nul(value: str, option: str) -> str:
    """A text for a column, checked: PostgreSQL refuses NUL in text."""
    if "\0" in value:
        raise InvalidOptionError(option=option, value=value, reason="holds a NUL character.")
    return value


def json_text(document: Mapping[str, Any], option: str) -> str:
    """A JSON document for a column."""
    try:
        return json.dumps(dict(document), allow_nan=False)
    except (TypeError, ValueError) as exc:
        raise InvalidOptionError(
            option=option, reason=f"cannot be written as JSON: {exc}."
        ) from exc

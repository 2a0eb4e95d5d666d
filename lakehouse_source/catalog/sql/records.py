"""Edge. Rows of the catalog as values, and values as rows; its timestamps.

Equal rows of a description are parsed once in a process. The rows hold everything that the result
is made of, so a cached result is never out of date.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from typing import Any, TypeAlias

import pyarrow as pa

from lakehouse_source.catalog.sql.statements import Row
from lakehouse_source.errors import CorruptDatasetError, InvalidOptionError
from lakehouse_source.model import (
    DatasetRecord,
    DeletionVector,
    FileBounds,
    FileMetadata,
    FileRecord,
    RowGroupMetadata,
    SchemasByVersion,
    TransactionRecord,
    VectorRecord,
)
from lakehouse_source.properties import DatasetProperties
from lakehouse_source.pruning.keys import level

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)
# Of one file. All positions of such a file as a bitmap take 50 MB.
_MOST_ROWS = 1 << 36


def to_datetime(microseconds: int) -> datetime:
    """The instant (UTC) of a catalog timestamp."""
    try:
        return _EPOCH + microseconds * _MICROSECOND
    except OverflowError as exc:
        raise CorruptDatasetError(
            path="the catalog", reason=f"{microseconds} microseconds since 1970 are no time"
        ) from exc


def to_microseconds(instant: datetime) -> int:
    """The catalog timestamp of an instant."""
    if instant.utcoffset() is None:
        raise InvalidOptionError(
            option="timestamp", value=instant, reason="has no time zone; give it one."
        )
    return (instant - _EPOCH) // _MICROSECOND


@dataclass(frozen=True, slots=True, eq=False)
class Description:
    """A dataset, all of its schemas by their version, and the summary of one version.

    `write_id` is the id of the write that made the newest version, None before the first, and
    `version_write_id` that of the one version; None: there is none, or its record was removed.
    `has_vectors`: a version of the dataset has, or had, a file with deleted rows.
    """

    dataset: DatasetRecord
    schemas: dict[int, pa.Schema]
    summary: dict[str, Any]
    write_id: str | None
    has_vectors: bool
    version_write_id: str | None


@lru_cache(maxsize=64)
def description(rows: tuple[Row, ...], catalog: str) -> Description:
    """The answer to `statements.DESCRIPTION`, at least one row."""
    first = rows[0]
    schemas = {row[8]: schema(row[9], catalog) for row in rows if row[8]}
    return Description(
        dataset_record(first[:7], catalog),
        SchemasByVersion(sorted(schemas.items())),
        {} if first[7] is None else document(first[7], catalog),
        first[10],
        bool(first[11]),
        first[12],
    )


@lru_cache(maxsize=64)  # a commit reads them three times, and they seldom change
def _properties(text: str, catalog: str) -> DatasetProperties:
    return DatasetProperties.from_json(document(text, catalog))


def dataset_record(row: Sequence[Any], catalog: str) -> DatasetRecord:
    """A row of `datasets`."""
    identity, name, base_uri, current_version, properties, oldest, next_row_id = row
    try:
        parsed = _properties(properties, catalog)
    except (TypeError, ValueError) as exc:
        raise CorruptDatasetError(
            path=catalog, reason=f"the properties of dataset {base_uri} cannot be read: {exc}"
        ) from exc
    return DatasetRecord(identity, name, base_uri, current_version, parsed, oldest, next_row_id)


@lru_cache(maxsize=64)  # the commits of a program tell the same
def _texts(json_text: str, catalog: str) -> dict[str, str]:
    return {name: str(value) for name, value in document(json_text, catalog).items()}


def transaction_records(rows: Iterable[Row], catalog: str) -> list[TransactionRecord]:
    """Rows of `transactions`."""
    return [
        TransactionRecord(
            version,
            to_datetime(timestamp),
            operation,
            document(metadata, catalog),
            document(summary, catalog),
            write_id,
            txn_app_id,
            txn_version,
            committed_by,
            {} if committer is None else dict(_texts(committer, catalog)),
            *others,
        )
        for (
            version, timestamp, operation, metadata, summary, write_id, txn_app_id, txn_version,
            committed_by, committer, *others,
        ) in rows
    ]  # fmt: skip


_NOTHING: Mapping[str, str | None] = {}


def file_record(row: Sequence[Any], partitions: Mapping[str, str | None] | None) -> FileRecord:
    """A row of `files`, and the file's rows of `partitions`."""
    identity, path, size_bytes, row_count, schema_version, version, stats_complete, first = row
    _check_row_count(row_count)
    return FileRecord(
        identity,
        path,
        size_bytes,
        row_count,
        schema_version,
        version,
        _NOTHING if partitions is None else partitions,
        bool(stats_complete),
        first,
    )


def _check_row_count(rows: int) -> None:
    """Memory is taken by the rows of a file or a row group."""
    if not 0 <= rows <= _MOST_ROWS:
        raise CorruptDatasetError(path="the catalog", reason=f"a file has {rows:,} rows")


def row_group(row: Sequence[Any]) -> RowGroupMetadata:
    """A row of `row_groups` without its file."""
    group = RowGroupMetadata(*row)
    _check_row_count(group.row_count)
    if not 0 <= group.index < 1 << 31:
        raise CorruptDatasetError(
            path="the catalog", reason=f"a row group is number {group.index:,}"
        )
    return group


def stored_bytes(value: object) -> bytes:
    """A value of a column of bytes.

    SQLite keeps any value there: `bytes(10**10)` would be 10 GB.
    """
    if not isinstance(value, (bytes, memoryview, bytearray)):
        raise CorruptDatasetError(
            path="the catalog", reason=f"a value of type {type(value).__name__} stands for bytes"
        )
    return bytes(value)


def vector_record(row: Sequence[Any]) -> VectorRecord:
    """A row of `deletion_vectors`."""
    file_id, version, path, size_bytes, offset, length, cardinality, blob, sha256 = row
    content, digest = (None if one is None else stored_bytes(one) for one in (blob, sha256))
    vector = DeletionVector(path, size_bytes, offset, length, cardinality, content, digest)
    return VectorRecord(file_id, version, vector)


@lru_cache(maxsize=64)
def schema(raw: bytes, catalog: str) -> pa.Schema:
    """A schema as `schema_versions` has it."""
    try:
        return pa.ipc.read_schema(pa.py_buffer(raw))
    except (pa.ArrowException, OSError, TypeError) as exc:
        raise CorruptDatasetError(path=catalog, reason=f"a schema cannot be read: {exc}") from exc


def document(text: str, catalog: str) -> dict[str, Any]:
    """A JSON object."""
    try:
        found = json.loads(text)
    except (ValueError, TypeError, RecursionError) as exc:
        raise CorruptDatasetError(
            path=catalog, reason=f"a JSON document cannot be read: {exc}"
        ) from exc
    if not isinstance(found, dict):
        raise CorruptDatasetError(path=catalog, reason="a JSON document is not an object")
    return found


# --- Values as rows of the catalog's tables, in the order of the columns in `statements`.
#
# Values that the database cannot store are refused here.


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

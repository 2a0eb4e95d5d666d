"""Pure. Frozen values that cross rooms and processes; they decide nothing.

Everything here is small and pickles: Spark carries these values between the
driver, its planning workers and the executors. `None` always means unknown,
never zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

import pyarrow as pa

# A value of a leaf column on a totally ordered Python type: int for booleans,
# integers, temporal types (count of the column's unit since its epoch) and
# decimals (unscaled, at the column's scale), float for floats, bytes for
# strings (UTF-8) and binaries. Comparing ordinals of one column type is
# comparing values, NaN apart.
Ordinal: TypeAlias = int | float | bytes


@dataclass(frozen=True, slots=True)
class ColumnBounds:
    """What is known of one leaf column over some rows (a file or a row group).

    `lower` and `upper` are inclusive and may be wider than the data; None means
    unknown. They speak of the values that are neither null nor NaN.
    `may_contain_nan` is False only where NaN is known to be absent (always for
    columns that are not floats).
    """

    lower: Ordinal | None
    upper: Ordinal | None
    null_count: int | None
    row_count: int
    may_contain_nan: bool


@dataclass(frozen=True, slots=True)
class FileBounds:
    """One row of the search index: byte keys of one leaf column over one file."""

    column_id: int
    lower: bytes
    upper: bytes
    null_count: int | None
    row_count: int
    may_contain_nan: bool


@dataclass(frozen=True, slots=True)
class RowGroupMetadata:
    """One row group as the catalog records it.

    The three JSON documents map field ids (as strings) to a value: readable
    with any SQL client. A column that is absent from a document is unknown.
    `nan_json` maps ids of float columns to whether NaN occurs.
    """

    index: int
    row_count: int
    stats_min_json: str
    stats_max_json: str
    null_counts_json: str
    nan_json: str = "{}"
    total_byte_size: int = 0
    compressed_byte_size: int = 0


@dataclass(frozen=True, slots=True)
class FileMetadata:
    """One data file as its writer describes it.

    `path` is relative to the dataset's base URI. `partitions` maps partition
    column names to values of Python types (None for NULL). `schema` is the
    physical schema of the file, field ids included; `parquet_metadata` is the
    footer, where it is at hand (it does not travel in Spark's commit messages).
    """

    path: str
    row_count: int
    file_size_bytes: int
    schema: pa.Schema
    row_groups: tuple[RowGroupMetadata, ...]
    partitions: Mapping[str, Any] = field(default_factory=dict)
    parquet_metadata: Any = field(default=None, compare=False, repr=False)
    stats_complete: bool = True


@dataclass(frozen=True, slots=True)
class WriteResult:
    """What a write committed. `version` is the dataset's new version."""

    version: int
    files: int
    row_count: int
    schema_version: int
    metadata: tuple[FileMetadata, ...] = field(repr=False, default=())


# --- what the catalog tells -------------------------------------------------


@dataclass(frozen=True, slots=True)
class DatasetRecord:
    """A row of `datasets`. `current_version` 0: registered, nothing committed yet.

    Versions below `oldest_version` were expired: history knows them, nobody reads them.
    """

    id: int
    name: str
    base_uri: str
    current_version: int
    properties: Mapping[str, Any]
    oldest_version: int = 1


@dataclass(frozen=True, slots=True)
class TransactionRecord:
    """A row of `transactions`: one committed version.

    `summary` counts what the commit did and left: files_added, files_removed,
    rows_added, rows_removed, live_files, live_row_groups, live_rows, live_bytes.
    """

    version: int
    timestamp: datetime
    operation: str
    metadata: Mapping[str, Any]
    summary: Mapping[str, int]
    write_id: str
    txn_app_id: str | None = None
    txn_version: int | None = None


@dataclass(frozen=True, slots=True)
class FileRecord:
    """A data file of some version. `partitions` maps names to JSON texts or None (NULL)."""

    id: int
    path: str
    size_bytes: int
    row_count: int
    schema_version: int
    version: int
    partitions: Mapping[str, str | None]
    stats_complete: bool


@dataclass(frozen=True, slots=True)
class ExpiredFile:
    """A row of `files` that no readable version has any more, since `expired_at`."""

    id: int
    path: str
    size_bytes: int
    expired_at: datetime


# --- what the catalog is asked ----------------------------------------------


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Keys between `lower` and `upper`, both inclusive; None is unbounded."""

    lower: bytes | None
    upper: bytes | None


@dataclass(frozen=True, slots=True)
class SearchRanges:
    """Files whose bounds of `column_id` overlap at least one of `ranges`.

    A file without a row in the index for that column does not match: it holds
    no value of the column at all.
    """

    column_id: int
    ranges: tuple[KeyRange, ...]


@dataclass(frozen=True, slots=True)
class SearchAll:
    """Files that match every one of `terms` (at least one)."""

    terms: tuple[Search, ...]


@dataclass(frozen=True, slots=True)
class SearchAny:
    """Files that match at least one of `terms` (at least one)."""

    terms: tuple[Search, ...]


Search: TypeAlias = SearchRanges | SearchAll | SearchAny


# --- what executors are told ------------------------------------------------


@dataclass(frozen=True, slots=True)
class ScanTask:
    """Row groups of one file that a reader has to read; no schema, no statistics.

    `row_groups` None means all of them. `filtered` False: every row matches, the
    row filter is not needed. `partitions` holds the values that the file itself
    does not, in the order of the dataset's partition columns.
    """

    path: str
    size_bytes: int
    file_row_count: int
    row_count: int
    byte_count: int
    schema_version: int
    row_groups: tuple[int, ...] | None
    partitions: tuple[Any, ...]
    filtered: bool

"""Pure. Frozen values that several rooms and processes share; they decide nothing.

Every value is small and picklable: Spark sends them between the driver, its planning
workers and the executors. `None` always means unknown, never zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Annotated, Any, TypeAlias

import pyarrow as pa

from lakehouse_source.errors import CorruptDatasetError
from lakehouse_source.properties import DatasetProperties

# A value of a leaf column as a Python type with a total order: int for booleans,
# integers, temporal types (count of the column's unit since its epoch) and
# decimals (unscaled, at the column's scale), float for floats, bytes for
# strings (UTF-8) and binaries. Two ordinals of one column type compare as the
# values do, except NaN.
Ordinal: TypeAlias = int | float | bytes


class SchemasByVersion(dict[int, pa.Schema]):
    """Schemas by version. It is an error if a file has a schema that the catalog lacks."""

    def __missing__(self, version: int) -> pa.Schema:
        raise CorruptDatasetError(
            path="the catalog", reason=f"it has no schema of version {version}, which a file has"
        )


@dataclass(frozen=True, slots=True)
class ColumnBounds:
    """What is known of one leaf column over some rows (a file or a row group).

    `lower` and `upper` are inclusive and may be wider than the data; None means
    unknown. They bound the values that are neither null nor NaN. `may_contain_nan`
    is False only where NaN is known to be absent; it is False for every column that
    is not a float.
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

    `index` is the row group's position in its file. The JSON documents map field ids
    (as strings) to a value, so that any SQL client can read them; a column that is
    absent from a document is unknown. `nan_json` maps ids of float columns to whether
    NaN occurs. `total_byte_size` and `compressed_byte_size` are bytes, before and after
    compression.

    >>> group = lake.write_dataset(flights, "/data/copy").metadata[0].row_groups[0]
    >>> group.index, group.row_count, group.stats_min_json, group.null_counts_json
    (0, 4, '{"1":1,"2":"AA","3":762}', '{"1":0,"2":0,"3":0}')
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

    `path` is relative to the dataset's base URI. `partitions` maps partition column names
    to Python values (None for NULL). `schema` is the physical schema of the file with its
    field ids. `parquet_metadata` is the footer, or None where it was not kept: Spark's
    commit messages leave it out. `stats_complete` fills the catalog's column of that name:
    every writer records True, and no read depends on it. `sha256` is that of the file's bytes, None
    where plake did not write them itself. `ascending` has the first and the last value of the keys
    of one column in which each row has a greater value than the row before.

    >>> file = lake.write_dataset(flights, "/data/flights").metadata[0]
    >>> file.row_count, file.partitions, len(file.row_groups)
    (2, {'month': 1}, 1)
    """

    path: str
    row_count: int
    file_size_bytes: int
    schema: pa.Schema
    row_groups: tuple[RowGroupMetadata, ...]
    partitions: Mapping[str, Any] = field(default_factory=dict)
    parquet_metadata: Any = field(default=None, compare=False, repr=False)
    stats_complete: bool = True
    sha256: bytes | None = field(default=None, repr=False)
    ascending: Mapping[str, pa.Array] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class WriteResult:
    """What a write committed.

    `metadata` has one entry per file. `skipped`: nothing was committed, because the
    application committed this idempotency pair, or a higher number, as `version` before; the
    rest is empty. After a restore, `pairs_left` has the highest number of each application that
    wrote what was taken back: writes up to that number are skipped. After a write of rows,
    `write_id` and `summary` are those of the commit in the history.

    >>> result = lake.write_dataset(flights, "/data/flights")
    >>> result
    WriteResult(version=2, files=3, row_count=4, schema_version=1)
    >>> sum(file.row_count for file in result.metadata)
    4
    """

    version: Annotated[int, "the version that is the newest now"]
    files: Annotated[int, "files that the version added"]
    row_count: Annotated[int, "rows that the version added"]
    schema_version: Annotated[int, "the version at which the schema came into force"]
    metadata: tuple[FileMetadata, ...] = field(repr=False, default=())
    write_id: str = field(repr=False, compare=False, default="")
    summary: Mapping[str, int] = field(repr=False, compare=False, default_factory=dict)
    skipped: bool = False
    pairs_left: Mapping[str, int] = field(repr=False, compare=False, default_factory=dict)

    def __repr__(self) -> str:
        return (
            f"WriteResult(version={self.version}, files={self.files}, row_count={self.row_count}, "
            f"schema_version={self.schema_version}{', skipped=True' if self.skipped else ''})"
        )


@dataclass(frozen=True, slots=True)
class ChangeResult:
    """What a statement that changes rows did.

    `version` is the dataset's new version, or the old one where no row was changed. A moved
    row (updated) is not among the deleted and inserted ones. `files_added` and
    `files_removed` count data files, `vectors_written` the files that got a deletion vector.
    `skipped`: nothing was committed, because the application committed this idempotency pair, or
    a higher number, as `version` before, of which the counts are.

    >>> dataset.delete("carrier = 'UA'")
    ChangeResult(version=2, rows_deleted=2, rows_updated=0, rows_inserted=0, ...)
    """

    version: int
    rows_deleted: int = 0
    rows_updated: int = 0
    rows_inserted: int = 0
    files_added: int = 0
    files_removed: int = 0
    vectors_written: int = 0
    skipped: bool = False


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """What a compaction did.

    Where nothing was to be done, `version` is the old one.

    >>> more = lake.write_dataset({"month": [1], "carrier": ["B6"], "miles": [9]}, dataset.uri)
    >>> dataset.compact()
    CompactionResult(version=3, files_removed=2, files_added=1, bytes_removed=..., ...)
    """

    version: Annotated[int, "the version that is the newest now"]
    files_removed: Annotated[int, "files whose rows were rewritten"] = 0
    files_added: Annotated[int, "files with these rows"] = 0
    bytes_removed: Annotated[int, "bytes of the files that were removed"] = 0
    bytes_added: Annotated[int, "bytes that were written"] = 0
    groups: Annotated[int, "groups of files that were rewritten, each of one partition"] = 0


@dataclass(frozen=True, slots=True)
class SeenVersion:
    """A version that was read. `write_id` is that of the write that made it; None: unknown.

    A catalog that is put back to a backup gives the numbers of lost versions again, and a
    dataset that is made anew at a place begins with 1. No write id is given again.
    """

    version: int
    write_id: str | None = None

    def is_replaced_by(self, write_id: str | None) -> bool:
        """Tell whether the version of this number, which a write made, is another one."""
        return None not in (self.write_id, write_id) and self.write_id != write_id

    def is_gone(self, newest: int, write_id: str | None) -> bool:
        """Tell whether there is no version of this number, or another one, which a write made."""
        return self.version > newest or self.is_replaced_by(write_id)


# --- what the catalog answers -----------------------------------------------


@dataclass(frozen=True, slots=True)
class DatasetRecord:
    """A row of `datasets`. `current_version` 0: registered, nothing committed yet.

    Versions below `oldest_version` were expired: the history lists them, and they can no
    longer be read. `next_row_id` is the identity that the next new row gets.
    """

    id: int
    name: str
    base_uri: str
    current_version: int
    properties: DatasetProperties
    oldest_version: int = 1
    next_row_id: int = 0


@dataclass(frozen=True, slots=True)
class TransactionRecord:
    """A row of `transactions`: one committed version.

    `summary` counts what the commit did (files_added, files_removed, rows_added,
    rows_removed) and what is live after it (live_files, live_row_groups, live_rows,
    live_bytes). `committed_by` is the login of the catalog's database, by its own word, or the
    system user where it has none; `committer` is what the client told: its `user`, `host`,
    `engine`, `engine_version`, and Spark's `application` and `query`. `metadata` are the claims
    of the caller. Commits of releases before 0.2 have None and nothing.
    """

    version: int
    timestamp: datetime
    operation: str
    metadata: Mapping[str, Any]
    summary: Mapping[str, int]
    write_id: str
    txn_app_id: str | None = None
    txn_version: int | None = None
    committed_by: str | None = None
    committer: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FileRecord:
    """A row of `files`. `version` is the version that added the file.

    `partitions` maps partition columns to values as JSON texts, None for NULL. The catalog
    has them under the names that the columns had in the schema of `schema_version`.
    `row_count` counts the rows in the file, those that a deletion vector marks too. The row
    at position `p` of the file has the identity `first_row_id + p`, unless the file stores
    another one.
    """

    id: int
    path: str
    size_bytes: int
    row_count: int
    schema_version: int
    version: int
    partitions: Mapping[str, str | None]
    stats_complete: bool
    first_row_id: int = 0


@dataclass(frozen=True, slots=True)
class DeletionVector:
    """Where the deletion vector of a data file is. Sizes and offsets are in bytes.

    `path` is that of a Puffin file of `size_bytes`, relative to the dataset. The blob with the
    positions is at `offset`. `cardinality` counts the deleted rows. `blob` is a copy of a
    small blob, so that nobody has to open the Puffin file for it. `sha256` is that of the whole
    Puffin file.
    """

    path: str
    size_bytes: int
    offset: int
    length: int
    cardinality: int
    blob: bytes | None = field(default=None, repr=False)
    sha256: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class VectorRecord:
    """A row of `deletion_vectors`: a vector of a file, and the version that committed it."""

    file_id: int
    version: int
    vector: DeletionVector


@dataclass(frozen=True, slots=True)
class Consumer:
    """A reader of the change feed that comes back. Its work is done up to `version`; 0: none.

    It holds back expiry until `expires_at`: `keep_seconds` after `advanced_at`, by the catalog's
    clock. Times are in UTC.
    """

    name: str
    version: int
    keep_seconds: int
    created_at: datetime
    advanced_at: datetime

    @property
    def expires_at(self) -> datetime:
        """When the consumer holds back expiry no more."""
        return self.advanced_at + timedelta(seconds=self.keep_seconds)


@dataclass(frozen=True, slots=True)
class ExpiredFile:
    """A row of `files` that no readable version contains, since `expired_at` (UTC)."""

    id: int
    path: str
    size_bytes: int
    expired_at: datetime


# --- what executors receive -------------------------------------------------


@dataclass(frozen=True, slots=True)
class RemovedFile:
    """A file that a version removed, and the identities that its rows had in it."""

    path: str
    first_row_id: int
    row_count: int


@dataclass(frozen=True, slots=True)
class FilePlace:
    """What metadata columns need of a file: `id`, `first_row_id` and `version` of its record."""

    id: int
    first_row_id: int
    version: int


@dataclass(frozen=True, slots=True)
class ScanTask:
    """Row groups of one file that a reader has to read; no schema, no statistics.

    `row_groups` None means all of them; `row_count` and `byte_count` count those to read.
    `filtered` False means that every row matches, so that no row filter is needed.
    `partitions` holds the partition values, which the file itself does not contain, in
    the order of the dataset's partition columns. The rows that `deleted` marks are not
    read; the counts include them. `place` is there if metadata columns are read: a million
    tasks have to fit into memory. `sha256` is there if the file is to be compared with it.
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
    deleted: DeletionVector | None = None
    place: FilePlace | None = None
    sha256: bytes | None = field(default=None, repr=False)

    @classmethod
    def whole(
        cls,
        file: FileRecord,
        partitions: tuple[Any, ...],
        deleted: DeletionVector | None,
        filtered: bool = False,
    ) -> ScanTask:
        """All rows of a file but those that a vector marks, with what metadata columns need."""
        return cls(
            path=file.path,
            size_bytes=file.size_bytes,
            file_row_count=file.row_count,
            row_count=file.row_count,
            byte_count=file.size_bytes,
            schema_version=file.schema_version,
            row_groups=None,
            partitions=partitions,
            filtered=filtered,
            deleted=deleted,
            place=FilePlace(file.id, file.first_row_id, file.version),
        )

    @property
    def certain_row_count(self) -> int | None:
        """How many rows the task gives; None where the file has to be read to know it."""
        if self.filtered:
            return None
        if self.deleted is None:
            return self.row_count
        whole = self.row_count == self.file_row_count
        return self.row_count - self.deleted.cardinality if whole else None

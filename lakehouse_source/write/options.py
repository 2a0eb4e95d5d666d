"""Pure. What the caller asked a write to do, and a write that has begun.

These are values that Spark sends from the driver to executors and back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.parquet.spec import (
    COMPRESSION,
    ROW_GROUP_ROWS,
    TARGET_FILE_SIZE_BYTES,
    WriteSpec,
)
from lakehouse_source.predicate import PredicateSet
from lakehouse_source.write.conflicts import Change

CODECS = ("zstd", "snappy", "lz4", "gzip", "brotli", "none")


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """What the caller asked for. Sizes are in bytes and rows; None means the default.

    `index_columns` are the columns that the search index of a new dataset covers; a struct
    stands for all its fields.
    """

    mode: str = "append"
    partition_by: tuple[str, ...] | None = None
    schema_merge: bool = False
    promote_to_string: bool = False
    overwrite_where: PredicateSet | None = None
    dynamic_partitions: bool = False
    expected_version: int | None = None
    txn_app_id: str | None = None
    txn_version: int | None = None
    commit_metadata: Mapping[str, Any] = field(default_factory=dict)
    target_file_size_bytes: int = TARGET_FILE_SIZE_BYTES
    row_group_rows: int = ROW_GROUP_ROWS
    compression: str = COMPRESSION
    sort_by: tuple[str, ...] = ()
    bloom_filter_columns: tuple[str, ...] = ()
    index_columns: tuple[str, ...] | None = None

    def check(self) -> None:
        """Check the values and their combinations.

        Raises:
            InvalidOptionError
        """
        if self.mode not in ("append", "overwrite", "error"):
            raise InvalidOptionError(
                option="mode",
                value=self.mode,
                reason="is not a way to write.",
                known=("append", "overwrite", "error"),
            )
        if self.overwrite_where is not None and self.mode != "overwrite":
            raise InvalidOptionError(
                option="overwrite_where", reason="needs mode 'overwrite'.", value=self.mode
            )
        if self.dynamic_partitions and self.overwrite_where is not None:
            raise InvalidOptionError(
                option="partitionOverwriteMode",
                value="dynamic",
                reason="cannot be combined with overwriteWhere.",
            )
        for name, number in (
            ("targetFileSize", self.target_file_size_bytes),
            ("rowGroupRows", self.row_group_rows),
        ):
            if number < 1:
                raise InvalidOptionError(option=name, value=number, reason="must be at least 1.")
        codec = self.compression.lower()
        if codec not in CODECS or (codec != "none" and not pa.Codec.is_available(codec)):
            raise InvalidOptionError(
                option="compression",
                value=self.compression,
                reason="is not a codec of this PyArrow.",
                known=CODECS,
            )
        if (self.txn_app_id is None) != (self.txn_version is None):
            raise InvalidOptionError(
                option="txnAppId", reason="and txnVersion go together: give both or none."
            )

    @property
    def change(self) -> Change:
        """What this write does to the dataset, for the conflict table."""
        if self.mode != "overwrite":
            return Change.APPEND
        partial = self.overwrite_where is not None or self.dynamic_partitions
        return Change.OVERWRITE_WHERE if partial else Change.OVERWRITE

    @property
    def operation(self) -> str:
        """The name of this write in the history."""
        if self.dynamic_partitions:
            return "overwrite partitions"
        return self.change.value


@dataclass(frozen=True, slots=True)
class StagedWrite:
    """A write that has begun. Picklable; knows no catalog and no password.

    `uri` is that of its dataset's address, `key` the dataset's key in the catalog.
    `base_version` is the version that the write is based on, `incoming` the schema of its
    rows as the caller gave them.
    `indexed` are the field ids of the columns that the search index covers when the write
    commits, unless another commit changes them first.
    """

    uri: str
    key: str
    base_version: int
    incoming: pa.Schema
    options: WriteOptions
    spec: WriteSpec
    indexed: tuple[int, ...] = ()

    @property
    def write_id(self) -> str:
        return self.spec.write_id

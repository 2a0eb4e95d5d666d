"""Pure. What the caller asked a write to do, and a write that has begun.

These are values that Spark sends from the driver to executors and back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from lakehouse_source.arguments import flag, text, whole_number
from lakehouse_source.catalog.qualified_names import QualifiedName
from lakehouse_source.errors import CommitConflictError, InvalidOptionError
from lakehouse_source.language import PredicateSet
from lakehouse_source.model import SeenVersion
from lakehouse_source.parquet.read_write_specs import WriteSpec
from lakehouse_source.properties import Layout
from lakehouse_source.write.commit.conflicts import Change, Collision, conflict
from lakehouse_source.write.commit.file_layout import check_layout


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """What the caller asked for.

    The dataset's properties decide what `layout` does not choose. The layout of the first write
    becomes the dataset's. `index_columns` are the columns that the search index of a new
    dataset covers; a struct stands for all its fields. `row_change` is DELETE, UPDATE or MERGE
    where the write takes rows out of existing files, REWRITE where it moves rows to other
    files; then the mode is "append".

    `overwrite_schema`: with mode "overwrite", the schema and the partition columns are replaced
    like the rows; the new columns have new ids, even if they keep their names. `register_as` is a
    name (namespace and name) that the dataset gets in the same transaction. `managed`: plake chose
    the location of the dataset, which is made by this write. `table_properties` are those of a
    dataset that is created or whose schema is replaced. `reads_own_rows`: the rows of an overwrite
    were computed from those of the base version. An overwrite of the whole dataset then conflicts
    with every later commit that changed rows. `must_exist`: a missing dataset is not made.
    `statement` is the name of the operation in the history, if it differs from that of the change.
    `committer` is what a door tells about the committer, besides what the process is.
    """

    mode: str = "append"
    partition_by: tuple[str, ...] | None = None
    schema_merge: bool = False
    overwrite_where: PredicateSet | None = None
    dynamic_partitions: bool = False
    expected_version: int | None = None
    txn_app_id: str | None = None
    txn_version: int | None = None
    commit_metadata: Mapping[str, Any] = field(default_factory=dict)
    writer: str = "pyarrow"
    layout: Layout = field(default_factory=Layout)
    index_columns: tuple[str, ...] | None = None
    row_change: Change | None = None
    overwrite_schema: bool = False
    register_as: QualifiedName | None = None
    managed: bool = False
    table_properties: Mapping[str, str] | None = None
    statement: str | None = None
    committer: Mapping[str, str] = field(default_factory=dict)
    reads_own_rows: bool = False
    must_exist: bool = False

    def check(self) -> None:
        """Check the values and their combinations."""
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
        if flag("overwrite_schema", self.overwrite_schema) and self.change is not Change.OVERWRITE:
            raise InvalidOptionError(
                option="overwriteSchema",
                reason="replaces the whole dataset. It needs mode 'overwrite', and neither "
                "overwriteWhere nor partitionOverwriteMode 'dynamic'.",
            )
        check_layout(self.layout)
        if self.expected_version is not None:
            whole_number("expected_version", self.expected_version)
        if (self.txn_app_id is None) != (self.txn_version is None):
            raise InvalidOptionError(
                option="txnAppId", reason="and txnVersion go together: give both or none."
            )
        if self.txn_app_id is not None:
            text("txn_app_id", self.txn_app_id)
            whole_number("txn_version", self.txn_version)

    @property
    def change(self) -> Change:
        """What this write does to the dataset, for the conflict table."""
        if self.row_change is not None:
            return self.row_change
        if self.mode != "overwrite":
            return Change.APPEND
        partial = self.overwrite_where is not None or self.dynamic_partitions
        return Change.OVERWRITE_WHERE if partial else Change.OVERWRITE

    @property
    def operation(self) -> str:
        """The name of this write in the history."""
        if self.statement is not None:
            return self.statement
        if self.dynamic_partitions:
            return "overwrite partitions"
        return self.change.value


@dataclass(frozen=True, slots=True)
class StagedWrite:
    """A write that has begun. Picklable; knows no catalog and no password.

    `uri` is that of its dataset's address, `key` the dataset's key in the catalog, and
    `dataset_id` its id there: another dataset may get the key.
    `base` is the version that the write is based on, `incoming` the schema of its
    rows as the caller gave them.
    `indexed` are the field ids of the columns that the search index covers when the write
    commits, unless another commit changes them first. `compact_min_files` is the number of
    small files from which they are compacted after the commit; None: they never are.
    `iceberg_metadata`: metadata for readers of Iceberg is written after the commit.
    """

    uri: str
    key: str
    dataset_id: int
    base: SeenVersion
    incoming: pa.Schema
    options: WriteOptions
    spec: WriteSpec
    indexed: tuple[int, ...] = ()
    compact_min_files: int | None = None
    iceberg_metadata: bool = False

    @property
    def write_id(self) -> str:
        return self.spec.write_id

    @property
    def base_version(self) -> int:
        return self.base.version

    def conflict(self, current_version: int, what: Collision | str) -> CommitConflictError:
        """The error of this write if the version that it found does not allow the write."""
        return conflict(self.uri, self.base_version, current_version, what)

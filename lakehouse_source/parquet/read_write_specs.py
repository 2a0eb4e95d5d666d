"""Pure. What a read must produce and how the files of a write must look.

Only values, which travel from the driver to executors.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import pyarrow as pa

from lakehouse_source.constraints import Constraint
from lakehouse_source.generated import Defaults, Generated, Numbers
from lakehouse_source.language import BoundPredicate
from lakehouse_source.schema.defaults import default_sql, write_default
from lakehouse_source.schema.fields import hidden_columns, without_metadata
from lakehouse_source.schema.variant_paths import Choice
from lakehouse_source.storage import StorageLocation

# Rows of a row group, and the codec. Measured by integration/benchmarks/row_group_rows.py on
# 3M rows x 8 columns with zstd: a full scan takes 0.29 s at 32k rows per group, 0.18 s at 131k
# and 0.15 s at 524k; a point lookup 7, 12 and 30 ms. Snappy files were 1.6 times as large and
# no faster to read or write.
ROW_GROUP_ROWS = 131_072
TARGET_FILE_SIZE_BYTES = 256 * 1024 * 1024
COMPRESSION = "zstd"
MAX_OPEN_FILES = 100


# Where files are: a URI without options, or a location with its options.
Where: TypeAlias = str | StorageLocation


@dataclass(frozen=True, slots=True)
class WriteSpec:
    """How rows become files; small, travels to executors.

    `schema` is the dataset's schema (with ids) that the files are written under.
    `must_match` is the condition of an `overwrite where`: a row that does not satisfy it is
    refused, and so is a row that breaks one of `constraints`, or has another value in a column of
    `generated`, whose missing values are computed. `numbers` are those of identity columns,
    `defaults` what default expressions gave when the write began.
    `moved_rows`: rows come from other files, and the batches have the hidden columns too.
    `cluster_by` are paths of columns: rows that are gathered together are put in this order, and
    the rows of each row group are then sorted by `sort_by`. `ordered_by` are such paths where all
    rows arrive in this order. With one path, a row group ends at a change of its value, if one is
    near, so that two files do not share the value at the end of one file.
    `choice`: how files choose paths of columns of VARIANT that have none; None: they choose none.
    `compression`: of all files; None: `COMPRESSION`, and none of files with few bytes.
    """

    uri: Where
    write_id: str
    schema: pa.Schema
    partition_by: tuple[str, ...] = ()
    row_group_rows: int = ROW_GROUP_ROWS
    target_file_size_bytes: int = TARGET_FILE_SIZE_BYTES
    compression: str | None = None
    sort_by: tuple[str, ...] = ()
    cluster_by: tuple[tuple[str, ...], ...] = ()
    ordered_by: tuple[tuple[str, ...], ...] = ()
    bloom_filter_columns: tuple[str, ...] = ()
    choice: Choice | None = None
    must_match: BoundPredicate | None = None
    constraints: tuple[Constraint, ...] = ()
    generated: tuple[Generated, ...] = ()
    numbers: tuple[Numbers, ...] = ()
    defaults: Defaults = field(default_factory=dict)
    max_open_files: int = MAX_OPEN_FILES
    moved_rows: bool = False

    def default(self, field: pa.Field) -> pa.Scalar | None:
        """The value of a field in rows from data that lacks it; None: NULL."""
        return write_default(field) if default_sql(field) is None else self.defaults[field.name]

    def of_rows_as_they_are(self) -> WriteSpec:
        """For rows that the dataset has: they are not checked again, and keep their identities."""
        return dataclasses.replace(
            self, must_match=None, constraints=(), generated=(), numbers=(), moved_rows=True
        )

    def of_task(self, partition: int) -> WriteSpec:
        """For the task of Spark that writes a partition: its numbers are its own."""
        mine = tuple(dataclasses.replace(one, task=partition) for one in self.numbers)
        return dataclasses.replace(self, numbers=mine) if mine else self

    @property
    def row_schema(self) -> pa.Schema:
        """The columns of the rows that are written: those of the dataset, and hidden ones."""
        hidden = hidden_columns(self.schema) if self.moved_rows else ()
        return pa.schema([*self.schema, *hidden])

    @property
    def file_schema(self) -> pa.Schema:
        """The physical schema of data files: partition columns live in the catalog only."""
        return pa.schema([f for f in self.row_schema if f.name not in self.partition_by])


@dataclass(frozen=True, slots=True)
class ReadSpec:
    """The common part of all tasks of one scan; pickled once, not per task.

    `schema` is the dataset's schema (with ids) at the version read, `columns`
    the top-level columns to return, `file_schemas` the schemas that data files
    were written under, by schema version. `verify_checksums`: compare each page that is read
    with its checksum. `verify_files`: first compare each file that is read, and each file of
    deletion vectors, with its checksum in the catalog. `asks_filters`: look for values in bloom
    filters first; whoever planned may have done so.
    """

    uri: Where
    schema: pa.Schema
    columns: tuple[str, ...]
    partition_by: tuple[str, ...]
    file_schemas: Mapping[int, pa.Schema]
    predicate: BoundPredicate | None = None
    # True: return the rows for which the predicate is FALSE or NULL.
    unmatched: bool = False
    verify_checksums: bool = False
    verify_files: bool = False
    asks_filters: bool = True
    # Structs that are read in part: by name, the field with only the requested children.
    narrowed: Mapping[str, pa.Field] = dataclasses.field(default_factory=dict)

    @property
    def target(self) -> pa.Schema:
        """The columns to return, with ids."""
        return pa.schema(
            [self.narrowed.get(name, self.schema.field(name)) for name in self.columns]
        )

    @property
    def output_schema(self) -> pa.Schema:
        """The schema of every table that a task returns."""
        return without_metadata(self.target)

"""Door. The procedures of Spark's catalog: `CALL plake.system.vacuum(table => 'sales.orders')`.

`PROCEDURES` is the one list of them: what they take and which columns their rows have. What they do
is in `procedure_work.py`. `procedure_calls.py` tells Java, and Spark checks and casts the arguments
by that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader

from lakehouse_source.catalog.base import ABANDONED_SECONDS
from lakehouse_source.maintenance.vacuum_plan import RETENTION_SECONDS
from lakehouse_source.spark import procedure_work as work
from lakehouse_source.spark.catalog_request import Place
from lakehouse_source.spark.compact_tasks import CompactionReader
from lakehouse_source.spark.procedure_work import Call

_TEXT, _LONG, _INT, _FLAG = pa.string(), pa.int64(), pa.int32(), pa.bool_()
_DOUBLE, _TEXTS = pa.float64(), pa.list_(pa.string())
_NULL = "NULL"


@dataclass(frozen=True, slots=True)
class Parameter:
    """What a procedure takes. `default` is SQL; None: an argument must be given."""

    name: str
    type: pa.DataType
    comment: str
    default: str | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a procedure's rows."""

    name: str
    type: pa.DataType
    comment: str


@dataclass(frozen=True, slots=True)
class Procedure:
    """A procedure. Its first parameter is the table that it is about.

    `needs_path`: the table must be given by its path, because it does not exist yet. `tasks` is the
    reader of the frame whose tasks do the work; `run` then gets their messages. `changes_rows`: the
    table may show other rows after it, so that Spark must read anew what it has cached of it.
    """

    name: str
    description: str
    parameters: tuple[Parameter, ...]
    columns: tuple[Column, ...]
    run: Callable[[Call], Iterable[Sequence[Any]]]
    needs_path: bool = False
    tasks: Callable[[Place, Mapping[str, Any]], DataSourceReader] | None = None
    changes_rows: bool = False


_TABLE = Parameter("table", _TEXT, "the table's name, or its path or URI")
_VERSION = Column("version", _LONG, "the version that is the newest now")
_WRITTEN = (
    _VERSION,
    Column("files", _LONG, "files that the version added"),
    Column("row_count", _LONG, "rows that the version added"),
    Column("schema_version", _LONG, "the version at which the schema came into force"),
)
_PARTITIONING = Parameter(
    "partitioning", _TEXT, "'hive': folders are named key=value; 'none': without meaning", "'hive'"
)
_PRUNING = (
    Column("version", _LONG, "the version that a scan reads"),
    Column("predicate", _TEXT, "the condition, as plake understood it"),
    Column("files_total", _LONG, "files of the version"),
    Column("files_read", _LONG, "files that may hold a matching row"),
    Column("files_pruned_by_partition", _LONG, "files that their partition values rule out"),
    Column("files_pruned_by_statistics", _LONG, "files that their statistics rule out"),
    Column("row_groups_total", _LONG, "row groups of the version"),
    Column("row_groups_read", _LONG, "row groups that may hold a matching row"),
    Column("rows_total", _LONG, "rows of the version"),
    Column("rows_read", _LONG, "rows of the row groups to read"),
    Column("rows_deleted", _LONG, "rows of the files to read that are deleted"),
    Column("bytes_total", _LONG, "bytes of the version's files"),
    Column("bytes_read", _LONG, "bytes of the columns and row groups to read"),
)

_ALL = (
    Procedure(
        "add_files",
        "Adds Parquet files, whoever wrote them, as one version, without a rewrite.",
        (
            _TABLE,
            Parameter("path", _TEXT, "a file or a folder", _NULL),
            Parameter("paths", _TEXTS, "files or folders, where it is not one path", _NULL),
            _PARTITIONING,
            Parameter("schema_merge", _FLAG, "add columns, and promote types", "false"),
            Parameter("copy", _FLAG, "copy files from outside of the table's folder", "false"),
        ),
        _WRITTEN,
        work.add_files,
        changes_rows=True,
    ),
    Procedure(
        "compact",
        "Writes small files of each partition anew as few large ones.",
        (
            _TABLE,
            Parameter("where", _TEXT, "only files that may hold a row of this condition", _NULL),
            Parameter("target_file_size", _LONG, "bytes of a large file", _NULL),
            Parameter(
                "max_concurrent",
                _INT,
                "partitions that are written at a time; by default as many as Spark has cores",
                _NULL,
            ),
        ),
        (
            _VERSION,
            Column("files_removed", _LONG, "small files"),
            Column("files_added", _LONG, "large files"),
            Column("bytes_removed", _LONG, "bytes of the small files"),
            Column("bytes_added", _LONG, "bytes of the large files"),
        ),
        work.compact,
        tasks=CompactionReader,
    ),
    Procedure(
        "convert",
        "Makes a table of a folder of Parquet files, where it stands. CREATE TABLE ... LOCATION "
        "gives it a name.",
        (
            Parameter("path", _TEXT, "the folder, or its URI"),
            _PARTITIONING,
            Parameter("index_columns", _TEXTS, "columns of the search index", _NULL),
        ),
        (
            Column("uri", _TEXT, "where the table is"),
            Column("version", _LONG, "its first version"),
            Column("files", _LONG, "its files"),
            Column("row_count", _LONG, "its rows"),
            Column("partition_by", _TEXTS, "its partition columns"),
        ),
        work.convert,
        needs_path=True,
    ),
    Procedure(
        "create_branch",
        "Makes a branch, which is the table `<table>.branch_<name>`. What is written to it, the "
        "table does not show until fast_forward.",
        (
            _TABLE,
            Parameter("name", _TEXT, "the branch"),
            Parameter("version", _LONG, "what it begins as; by default the newest", _NULL),
        ),
        (Column("name", _TEXT, "the branch"), Column("version", _LONG, "its version")),
        work.create_branch,
    ),
    Procedure(
        "create_tag",
        "Gives a name to a version. VERSION AS OF 'name' reads it, and expire_versions keeps it.",
        (
            _TABLE,
            Parameter("name", _TEXT, "the tag"),
            Parameter("version", _LONG, "the version; by default the newest", _NULL),
        ),
        (Column("name", _TEXT, "the tag"), Column("version", _LONG, "its version")),
        work.create_tag,
    ),
    Procedure(
        "drop_branch",
        "Removes a branch, with the versions that the table did not take over.",
        (_TABLE, Parameter("name", _TEXT, "the branch")),
        (Column("name", _TEXT, "the branch"), Column("version", _LONG, "its newest version")),
        work.drop_branch,
    ),
    Procedure(
        "drop_tag",
        "Removes a tag. Its version stays until it is expired.",
        (_TABLE, Parameter("name", _TEXT, "the tag")),
        (Column("name", _TEXT, "the tag"), Column("version", _LONG, "the version that it had")),
        work.drop_tag,
    ),
    Procedure(
        "expire_versions",
        "Expires the versions that are older than both limits. vacuum deletes their files later.",
        (
            _TABLE,
            Parameter(
                "keep_seconds",
                _DOUBLE,
                "keep each version that was the newest at some time during the last so many "
                "seconds",
                _NULL,
            ),
            Parameter("keep_last", _INT, "keep so many of the newest versions", _NULL),
        ),
        (
            Column("expired", pa.list_(_LONG), "the versions that were expired"),
            Column("oldest_version", _LONG, "the oldest version that can be read"),
            Column("newest_version", _LONG, "the newest version"),
            Column("files", _LONG, "files that only expired versions have"),
            Column("size_bytes", _LONG, "bytes of these files"),
        ),
        work.expire_versions,
    ),
    Procedure(
        "explain",
        "Tells how much of a table a scan with a condition has to read. Reads no file.",
        (
            _TABLE,
            Parameter("where", _TEXT, "the condition of the scan, as SQL", _NULL),
            Parameter("columns", _TEXTS, "the columns that it reads; by default all", _NULL),
            Parameter("version", _LONG, "the version; by default the newest", _NULL),
        ),
        _PRUNING,
        partial(work.explain, names=[column.name for column in _PRUNING]),
    ),
    Procedure(
        "fast_forward",
        "Commits to a table what was committed to one of its branches, if nothing else was.",
        (_TABLE, Parameter("branch", _TEXT, "the branch")),
        (
            Column("branch", _TEXT, "the branch"),
            Column("version_before", _LONG, "the version that was the newest"),
            _VERSION,
        ),
        work.fast_forward,
        changes_rows=True,
    ),
    Procedure(
        "restore",
        "Commits a new version with the rows and the schema of an old one.",
        (_TABLE, Parameter("version", _LONG, "the old version")),
        _WRITTEN,
        work.restore,
        changes_rows=True,
    ),
    Procedure(
        "set_index_columns",
        "Chooses the columns of which plake keeps statistics to search by.",
        (_TABLE, Parameter("columns", _TEXTS, "the columns; NULL: as by default", _NULL)),
        (_VERSION, Column("index_columns", _TEXTS, "the columns; NULL: as by default")),
        work.set_index_columns,
    ),
    Procedure(
        "vacuum",
        "Deletes files that no version needs any more.",
        (
            _TABLE,
            Parameter(
                "retention_seconds",
                _DOUBLE,
                "delete files of versions that were expired at least so long ago, and files of "
                "writes that were never committed and are at least as old",
                f"{RETENTION_SECONDS:.1f}D",
            ),
            Parameter("dry_run", _FLAG, "delete nothing, tell what would be deleted", "false"),
            Parameter("allow_short_retention", _FLAG, "allow ages below one hour", "false"),
            Parameter(
                "abandoned_after_seconds",
                _DOUBLE,
                "a write that sent no heartbeat for so long is abandoned",
                f"{ABANDONED_SECONDS:.1f}D",
            ),
        ),
        (
            Column("action", _TEXT, "removed, would remove, or left"),
            Column("what", _TEXT, "which files these are"),
            Column("count", _LONG, "how many"),
            Column("size_bytes", _LONG, "their bytes"),
            Column("examples", _TEXTS, "some of their paths"),
        ),
        work.vacuum,
    ),
    Procedure(
        "verify",
        "Compares the files of a version with the catalog. One row for each difference, or one "
        "where there is none.",
        (
            _TABLE,
            Parameter("version", _LONG, "the version; by default the newest", _NULL),
            Parameter("checksums", _FLAG, "read and decode every page too", "false"),
        ),
        (
            Column("ok", _FLAG, "whether there is no difference"),
            Column("version", _LONG, "the version"),
            Column("files", _LONG, "its files"),
            Column("size_bytes", _LONG, "their bytes"),
            Column("path", _TEXT, "the file that differs"),
            Column("what", _TEXT, "the property that differs"),
            Column("expected", _TEXT, "what the catalog says"),
            Column("found", _TEXT, "what was found"),
        ),
        work.verify,
    ),
)
PROCEDURES: Mapping[str, Procedure] = {procedure.name: procedure for procedure in _ALL}

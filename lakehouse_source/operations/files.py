"""Verb. Operations on files that anybody wrote."""

from __future__ import annotations

from typing import Any

from lakehouse_source.errors import DatasetNotFoundError, InvalidOptionError
from lakehouse_source.operations.entry import (
    TABLE,
    WRITTEN,
    Call,
    Column,
    Operation,
    Parameter,
    Rows,
    Subject,
    Type,
)

_PARTITIONING = Parameter(
    "partitioning",
    Type.TEXT,
    "'hive': folders are named key=value; 'none': without meaning",
    "hive",
)


def _add_files(call: Call) -> Rows:
    arguments = dict(call.arguments)
    path, paths = arguments.pop("path", None), arguments.pop("paths", None)
    if (path is None) == (paths is None):
        raise InvalidOptionError(option="path", reason="or paths must be given, and not both.")
    result = call.dataset().add_files(
        paths if path is None else path,
        partitioning=_partitioning(arguments),
        progress=call.progress,
        **arguments,
    )
    yield result.version, result.files, result.row_count, result.schema_version


def _convert(call: Call) -> Rows:
    from lakehouse_source.functions import convert_files

    address, arguments = call.target.address(), dict(call.arguments)
    partitioning = _partitioning(arguments)
    # Nothing is read after the commit: the catalog may be unavailable by then.
    made = convert_files(address, partitioning=partitioning, progress=call.progress, **arguments)
    yield address.uri, made.version, made.files, made.row_count, list(made.metadata[0].partitions)


def _files(call: Call) -> Rows:
    dataset = call.dataset()
    for file in dataset.inspect.files(call.arguments.get("version")).to_pylist():
        yield (
            file["file_path"],
            file["file_size_bytes"],
            file["row_count"],
            file["deleted_rows"],
            dict(file["partitions"]),
            file["version"],
        )


def _import(call: Call) -> Rows:
    from lakehouse_source.dataset import Dataset
    from lakehouse_source.functions import write_at
    from lakehouse_source.operations.column_texts import column_text, columns_of
    from lakehouse_source.operations.input_files import import_batches
    from lakehouse_source.read.address import Address
    from lakehouse_source.write.rows.stage import write_options

    arguments = dict(call.arguments)
    reading = {name: arguments.pop(name, None) for name in ("format", "delimiter")}
    paths, texts = arguments.pop("paths"), arguments.pop("schema", None)
    given = None if texts is None else columns_of(texts, "schema")
    address, known = call.target.address(), None
    try:
        known = Dataset(address).schema
    except DatasetNotFoundError:
        if not call.target.is_path:
            name = arguments["register_as"] = call.target.name()
            with call.target.names() as catalog:
                address = Address(catalog.new_location(name), address.catalog)
    schema, batches, inferred = import_batches(
        paths, address.location, known=known, given=given, **reading
    )
    options = write_options(**arguments)
    result = write_at(address, batches, options, schema=schema, progress=call.progress)
    shown = {name: column_text(type_) for name, type_ in inferred.items()}
    yield result.version, result.files, result.row_count, result.schema_version, shown


def _partitioning(arguments: dict[str, Any]) -> str | None:
    """'none' means Python's None, because NULL means that nothing was chosen."""
    chosen = arguments.pop("partitioning", "hive")
    return None if chosen == "none" else chosen


ADD_FILES = Operation(
    "add_files",
    "Adds Parquet files, whoever wrote them, as one version, without a rewrite.",
    (
        TABLE,
        Parameter("path", Type.TEXT, "a file or a folder"),
        Parameter("paths", Type.TEXTS, "files or folders, where it is not one path"),
        _PARTITIONING,
        Parameter("schema_merge", Type.FLAG, "add columns, and promote types", False),
        Parameter("copy", Type.FLAG, "copy files from outside of the table's folder", False),
    ),
    WRITTEN,
    _add_files,
    changes_rows=True,
)
CONVERT = Operation(
    "convert",
    "Makes a table of a folder of Parquet files, where it stands. CREATE TABLE ... LOCATION "
    "gives it a name.",
    (
        Parameter("path", Type.TEXT, "the folder, or its URI", required=True),
        _PARTITIONING,
        Parameter("index_columns", Type.TEXTS, "columns of the search index"),
    ),
    (
        Column("uri", Type.TEXT, "where the table is"),
        Column("version", Type.LONG, "its first version"),
        Column("files", Type.LONG, "its files"),
        Column("row_count", Type.LONG, "its rows"),
        Column("partition_by", Type.TEXTS, "its partition columns"),
    ),
    _convert,
    subject=Subject.FOLDER,
)
FILES = Operation(
    "files",
    "Lists the data files of a version.",
    (TABLE, Parameter("version", Type.LONG, "the version; by default the newest")),
    (
        Column("path", Type.TEXT, "where it is, from the dataset's URI on"),
        Column("size_bytes", Type.LONG, "its bytes"),
        Column("row_count", Type.LONG, "its rows, deleted ones too"),
        Column("deleted_rows", Type.LONG, "those of them that are deleted"),
        Column("partitions", Type.JSON, "the value of each partition column"),
        Column("version", Type.LONG, "the version that added it"),
    ),
    _files,
    is_called=False,
)
IMPORT = Operation(
    "import",
    "Writes the rows of CSV, JSON or Parquet files as one version. A missing dataset is made.",
    (
        TABLE,
        Parameter("paths", Type.TEXTS, "the files", required=True),
        Parameter(
            "format",
            Type.TEXT,
            "csv, json (objects in lines or in one array) or parquet; by default as the file's "
            "name says",
        ),
        Parameter(
            "schema",
            Type.TEXTS,
            "name TYPE of columns of CSV and JSON whose type is not to be inferred, as in SQL",
        ),
        Parameter("delimiter", Type.TEXT, "what separates fields of CSV; by default a comma"),
        Parameter("mode", Type.TEXT, "append, overwrite, or error: it must be new", "append"),
        Parameter("partition_by", Type.TEXTS, "the partition columns of a new dataset"),
        Parameter("schema_merge", Type.FLAG, "add columns, and promote types", False),
    ),
    (
        *WRITTEN,
        Column("inferred", Type.JSON, "the types that were chosen by values, by column"),
    ),
    _import,
    subject=Subject.NEW,
    changes_rows=True,
    is_called=False,
)

"""Verb. Operations on files that anybody wrote."""

from typing import Annotated, Any

from lakehouse_source.errors import DatasetNotFoundError, InvalidOptionError
from lakehouse_source.operations.entry import Call, Rows, Subject, Table, operation
from lakehouse_source.result_tables import Column, Type

_Partitioning = Annotated[str, "'hive': folders are named key=value; 'none': without meaning"]
_SchemaMerge = Annotated[bool, "add columns, and promote types"]


@operation("model.WriteResult", changes_rows=True)
def add_files(
    table: Table,
    path: Annotated[str | None, "a file or a folder"] = None,
    paths: Annotated[list[str] | None, "files or folders, where it is not one path"] = None,
    partitioning: _Partitioning = "hive",
    schema_merge: _SchemaMerge = False,
    copy: Annotated[bool, "copy files from outside of the table's folder"] = False,
) -> object:
    """Adds Parquet files, whoever wrote them, as one version, without a rewrite."""
    given = [one for one in (path, paths) if one is not None]
    if len(given) != 1:
        raise InvalidOptionError(option="path", reason="or paths must be given, and not both.")
    return table.dataset().add_files(
        given[0],
        partitioning=_partitioning(partitioning),
        schema_merge=schema_merge,
        copy=copy,
        progress=table.progress,
    )


@operation(
    Column("uri", Type.TEXT, "where the table is"),
    Column("version", Type.LONG, "its first version"),
    Column("files", Type.LONG, "its files"),
    Column("row_count", Type.LONG, "its rows"),
    Column("partition_by", Type.TEXTS, "its partition columns"),
)
def convert(
    path: Annotated[Call, Subject.FOLDER, "the folder, or its URI"],
    partitioning: _Partitioning = "hive",
    index_columns: Annotated[list[str] | None, "columns of the search index"] = None,
    format: Annotated[str | None, "parquet or delta; by default as the folder is"] = None,
    version: Annotated[int | None, "of a Delta table; by default the newest"] = None,
    partitioned_by: Annotated[
        list[str] | None, "name TYPE of partition columns, whose type is not to be inferred"
    ] = None,
) -> Rows:
    """Makes a table of a folder of Parquet files, or of a Delta table, where it stands.
    CREATE TABLE ... LOCATION gives it a name.
    """
    from lakehouse_source.functions import convert_files
    from lakehouse_source.operations.column_texts import columns_of

    address = path.target.address()
    columns = columns_of(partitioned_by or (), "partitioned_by")
    # Nothing is read after the commit: the catalog may be unavailable by then.
    made = convert_files(
        address,
        format=format,
        version=version,
        partitioning=_partitioning(partitioning),
        partition_types={field.name: field.type for field in columns},
        index_columns=index_columns,
        progress=path.progress,
    )
    partitions = [] if not made.metadata else list(made.metadata[0].partitions)
    yield address.uri, made.version, made.files, made.row_count, partitions


@operation(
    Column("path", Type.TEXT, "where it is, from the dataset's URI on"),
    Column("size_bytes", Type.LONG, "its bytes"),
    Column("row_count", Type.LONG, "its rows, deleted ones too"),
    Column("deleted_rows", Type.LONG, "those of them that are deleted"),
    Column("partitions", Type.JSON, "the value of each partition column"),
    Column("version", Type.LONG, "the version that added it"),
    is_called=False,
)
def files(
    table: Table, version: Annotated[int | None, "the version; by default the newest"] = None
) -> Rows:
    """Lists the data files of a version."""
    for file in table.dataset().inspect.files(version).to_pylist():
        path, size_bytes = file["file_path"], file["file_size_bytes"]
        yield {
            **file,
            "path": path,
            "size_bytes": size_bytes,
            "partitions": dict(file["partitions"]),
        }


@operation(
    "model.WriteResult",
    Column("inferred", Type.JSON, "the types that were chosen by values, by column"),
    changes_rows=True,
    is_called=False,
)
def import_(
    table: Annotated[Call, Subject.NEW, "the table's name, or its path or URI"],
    paths: Annotated[list[str], "the files"],
    format: Annotated[
        str | None,
        "csv, json (objects in lines or in one array) or parquet; by default as the file's name "
        "says",
    ] = None,
    schema: Annotated[
        list[str] | None,
        "name TYPE of columns of CSV and JSON whose type is not to be inferred, as in SQL",
    ] = None,
    delimiter: Annotated[str | None, "what separates fields of CSV; by default a comma"] = None,
    mode: Annotated[str, "append, overwrite, or error: it must be new"] = "append",
    partition_by: Annotated[list[str] | None, "the partition columns of a new dataset"] = None,
    schema_merge: _SchemaMerge = False,
) -> Rows:
    """Writes the rows of CSV, JSON or Parquet files as one version. A missing dataset is made."""
    from lakehouse_source.dataset import Dataset
    from lakehouse_source.functions import write_at
    from lakehouse_source.operations.column_texts import column_text, columns_of
    from lakehouse_source.operations.input_files import import_batches
    from lakehouse_source.read.address import Address
    from lakehouse_source.write.rows import write_options

    chosen: dict[str, Any] = {
        "mode": mode,
        "partition_by": partition_by,
        "schema_merge": schema_merge,
    }
    given = None if schema is None else columns_of(schema, "schema")
    address, known = table.target.address(), None
    try:
        known = Dataset(address).schema
    except DatasetNotFoundError:
        if not table.target.is_path:
            name = chosen["register_as"] = table.target.name()
            with table.target.names() as catalog:
                address = Address(catalog.new_location(name), address.catalog)
    found, batches, inferred = import_batches(
        paths, address.location, known=known, given=given, format=format, delimiter=delimiter
    )
    options = write_options(**chosen)
    result = write_at(address, batches, options, schema=found, progress=table.progress)
    shown = {name: column_text(type_) for name, type_ in inferred.items()}
    yield result.version, result.files, result.row_count, result.schema_version, shown


def _partitioning(chosen: str) -> str | None:
    """'none' means Python's None, because NULL means that nothing was chosen."""
    return None if chosen == "none" else chosen

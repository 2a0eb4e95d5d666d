"""Verb. Operations that list, describe, make and name datasets."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.operations.entry import Call, Rows, Subject, Table, operation
from lakehouse_source.result_tables import Column, Type

if TYPE_CHECKING:
    import pyarrow as pa

    from lakehouse_source.dataset import Dataset

_Name = Annotated[Call, Subject.NAME, "the name in the catalog"]


@operation(
    Column("namespace", Type.TEXT, "the namespace"),
    Column("name", Type.TEXT, "the name in it"),
    Column("type", Type.TEXT, "TABLE or VIEW"),
    Column("uri", Type.TEXT, "where the dataset is; NULL: a view"),
    Column("version", Type.LONG, "its newest version; NULL: a view"),
    is_called=False,
)
def list_(
    call: Call, namespace: Annotated[str | None, "the namespace; by default all"] = None
) -> Rows:
    """Lists the datasets and the views that have a name in the catalog."""
    with call.target.names() as catalog:
        found = catalog.datasets(namespace)
        views = catalog.views(namespace)
    yield from ((one.namespace, one.name, "TABLE", one.uri, one.version) for one in found)
    yield from ((*name, "VIEW", None, None) for name in views)


@operation(
    Column("uri", Type.TEXT, "where it is"),
    Column("version", Type.LONG, "the version that is described"),
    Column("columns", Type.JSON, "name, type, nullable and comment of each"),
    Column("partition_by", Type.TEXTS, "the partition columns"),
    Column("files", Type.LONG, "its files"),
    Column("row_count", Type.LONG, "its rows"),
    Column("size_bytes", Type.LONG, "bytes of its files"),
    Column("properties", Type.JSON, "the properties that plake reads"),
    Column("table_properties", Type.JSON, "the notes of users"),
    Column("tags", Type.JSON, "the version of each tag"),
    Column("branches", Type.JSON, "the newest version of each branch"),
    is_called=False,
)
def describe(
    table: Table, version: Annotated[int | None, "the version; by default the newest"] = None
) -> Rows:
    """Tells what a dataset is: columns, partitions, size, properties, tags and branches."""
    dataset = table.dataset()
    version = dataset.version if version is None else version
    files = dataset.files(version)
    scan = dataset.scan(version=version)
    schema, comments = scan.head(0).schema, dataset.comments
    columns = [
        {
            "name": field.name,
            "type": str(field.type),
            "nullable": field.nullable,
            "comment": comments.get(field.name),
        }
        for field in schema
    ]
    yield {
        "uri": dataset.uri,
        "version": version,
        "columns": columns,
        "partition_by": dataset.partition_by,
        "files": len(files),
        "row_count": scan.count_rows(),
        "size_bytes": sum(file.size_bytes for file in files),
        "properties": {k: v for k, v in dataset.properties.items() if k != "table_properties"},
        "table_properties": dict(dataset.table_properties),
        "tags": dict(dataset.tags()),
        "branches": dict(dataset.branches()),
    }


@operation(
    Column("uri", Type.TEXT, "where it is"),
    Column("version", Type.LONG, "its first version"),
    is_called=False,
)
def create(
    table: Annotated[Call, Subject.NEW, "its name, or its path or URI"],
    columns: Annotated[list[str] | None, "name TYPE [NOT NULL] of each column, as in SQL"] = None,
    like: Annotated[str | None, "a Parquet file with the columns"] = None,
    partition_by: Annotated[list[str] | None, "the partition columns"] = None,
    location: Annotated[str | None, "its folder; by default one in the warehouse"] = None,
    comment: Annotated[str | None, "the table property comment"] = None,
) -> Rows:
    """Makes an empty dataset, under a name in the catalog or at a path."""
    schema = _schema(columns, like)
    given: dict[str, Any] = {"partition_by": partition_by, "location": location, "comment": comment}
    options = {name: value for name, value in given.items() if value is not None}
    if not table.target.is_path:
        with table.target.names() as catalog:
            made = catalog.create_dataset(table.target.name(), schema, **options)
            yield made.uri, made.version
        return
    from lakehouse_source.functions import write_at
    from lakehouse_source.schema.arrow_arrays import empty
    from lakehouse_source.write.rows import write_options

    for name in ("location", "comment"):
        if name in options:
            raise InvalidOptionError(
                option=name, reason="is for datasets with a name, and this is a path."
            )
    address = table.target.address()
    checked = write_options(mode="error", **options)
    yield address.uri, write_at(address, empty(schema), checked).version


@operation(
    Column("uri", Type.TEXT, "where it is"),
    Column("version", Type.LONG, "its first version"),
    Column("files", Type.LONG, "files of that version"),
    Column("rows", Type.LONG, "rows of that version"),
)
def clone(
    table: Table,
    to: Annotated[str, "the new table: its name, or its path or URI"],
    version: Annotated[int | None, "what it begins as; by default the newest"] = None,
    timestamp: Annotated[datetime | None, "or a time: the version that was the newest then"] = None,
    deep: Annotated[bool, "copy the files; by default both tables have the same files"] = False,
    replace: Annotated[bool, "take the name from the table that has it"] = False,
    exist_ok: Annotated[bool, "do nothing where there is one"] = False,
    location: Annotated[str | None, "its folder, for a name; by default in the warehouse"] = None,
) -> Rows:
    """Makes a table that begins as a version of another one. Each goes on alone."""
    from lakehouse_source.dataset import Dataset
    from lakehouse_source.read.address import Address

    source, target = table.target.address(), table.target.other(to)
    given: dict[str, Any] = {
        "version": version,
        "timestamp": timestamp,
        "deep": deep,
        "replace": replace,
        "exist_ok": exist_ok,
        "location": location,
        "progress": table.progress,
        "storage_options": table.target.storage_options() or None,
    }
    if target.is_path:
        yield _cloned(Dataset(source).clone(target.address().location.given, **given))
        return
    with target.names() as catalog:  # which has the warehouse
        dataset = Dataset(Address(source.uri, catalog, given["storage_options"]))
        yield _cloned(dataset.clone(target.name(), **given))


def _cloned(made: "Dataset") -> tuple[Any, ...]:
    counts = made.history(1)[0].summary
    return made.uri, made.version, counts["live_files"], counts["live_rows"]


def _schema(columns: list[str] | None, like: str | None) -> "pa.Schema":
    if (columns is None) == (like is None):
        raise InvalidOptionError(option="columns", reason="or like must be given, and not both.")
    if like is not None:
        from lakehouse_source.operations.input_files import parquet_schema

        return parquet_schema(like)
    from lakehouse_source.operations.column_texts import columns_of

    return columns_of(columns or (), "columns")


@operation(Column("uri", Type.TEXT, "where it is, or was"), is_called=False)
def drop(
    table: _Name,
    purge: Annotated[bool, "delete it, with its files and all versions"] = False,
) -> Rows:
    """Takes the name away from a dataset, or deletes the dataset."""
    name = table.target.name()
    with table.target.names() as catalog:
        uri = catalog.locate(name)
        catalog.drop(name, purge=purge)
    yield (uri,)


@operation(Column("uri", Type.TEXT, "where it is"), is_called=False)
def rename(table: _Name, name: Annotated[str, "the new name"]) -> Rows:
    """Gives another name to a dataset. Its files stay where they are."""
    with table.target.names() as catalog:
        catalog.rename(table.target.name(), name)
        yield (catalog.locate(name),)

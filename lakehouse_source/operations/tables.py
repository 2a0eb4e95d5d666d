"""Verb. Operations that list, describe, make and name datasets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.operations.entry import (
    TABLE,
    Call,
    Column,
    Operation,
    Parameter,
    Rows,
    Subject,
    Type,
)

if TYPE_CHECKING:
    import pyarrow as pa

_ENTRY = (
    Column("namespace", Type.TEXT, "the namespace"),
    Column("name", Type.TEXT, "the name in it"),
    Column("type", Type.TEXT, "TABLE or VIEW"),
    Column("uri", Type.TEXT, "where the dataset is; NULL: a view"),
    Column("version", Type.LONG, "its newest version; NULL: a view"),
)
_NAME = Parameter("table", Type.TEXT, "the name in the catalog", required=True)


def _list(call: Call) -> Rows:
    namespace = call.arguments.get("namespace")
    with call.target.names() as catalog:
        found = catalog.datasets(namespace)
        views = catalog.views(namespace)
    yield from ((one.namespace, one.name, "TABLE", one.uri, one.version) for one in found)
    yield from ((*name, "VIEW", None, None) for name in views)


def _describe(call: Call) -> Rows:
    dataset = call.dataset()
    version = call.arguments.get("version", dataset.version)
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
    properties = {k: v for k, v in dataset.properties.items() if k != "table_properties"}
    yield (
        dataset.uri,
        version,
        columns,
        dataset.partition_by,
        len(files),
        scan.count_rows(),
        sum(file.size_bytes for file in files),
        properties,
        dict(dataset.table_properties),
        dict(dataset.tags()),
        dict(dataset.branches()),
    )


def _create(call: Call) -> Rows:
    arguments = dict(call.arguments)
    schema = _schema(arguments.pop("columns", None), arguments.pop("like", None))
    if call.target.is_path:
        from lakehouse_source.functions import write_at
        from lakehouse_source.write.rows.stage import write_options

        for name in ("location", "comment"):
            if name in arguments:
                raise InvalidOptionError(
                    option=name, reason="is for datasets with a name, and this is a path."
                )
        address = call.target.address()
        options = write_options(mode="error", **arguments)
        yield address.uri, write_at(address, schema.empty_table(), options).version
        return
    with call.target.names() as catalog:
        made = catalog.create_dataset(call.target.name(), schema, **arguments)
        yield made.uri, made.version


def _schema(columns: list[str] | None, like: str | None) -> pa.Schema:
    if (columns is None) == (like is None):
        raise InvalidOptionError(option="columns", reason="or like must be given, and not both.")
    if like is not None:
        from lakehouse_source.operations.input_files import parquet_schema

        return parquet_schema(like)
    from lakehouse_source.operations.column_texts import columns_of

    return columns_of(columns or (), "columns")


def _drop(call: Call) -> Rows:
    name = call.target.name()
    with call.target.names() as catalog:
        uri = catalog.locate(name)
        catalog.drop(name, purge=call.arguments.get("purge", False))
    yield (uri,)


def _rename(call: Call) -> Rows:
    new = call.arguments["name"]
    with call.target.names() as catalog:
        catalog.rename(call.target.name(), new)
        yield (catalog.locate(new),)


LIST = Operation(
    "list",
    "Lists the datasets and the views that have a name in the catalog.",
    (Parameter("namespace", Type.TEXT, "the namespace; by default all"),),
    _ENTRY,
    _list,
    subject=Subject.NONE,
    is_called=False,
)
DESCRIBE = Operation(
    "describe",
    "Tells what a dataset is: columns, partitions, size, properties, tags and branches.",
    (TABLE, Parameter("version", Type.LONG, "the version; by default the newest")),
    (
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
    ),
    _describe,
    is_called=False,
)
CREATE = Operation(
    "create",
    "Makes an empty dataset, under a name in the catalog or at a path.",
    (
        Parameter("table", Type.TEXT, "its name, or its path or URI", required=True),
        Parameter("columns", Type.TEXTS, "name TYPE [NOT NULL] of each column, as in SQL"),
        Parameter("like", Type.TEXT, "a Parquet file with the columns"),
        Parameter("partition_by", Type.TEXTS, "the partition columns"),
        Parameter("location", Type.TEXT, "its folder; by default one in the warehouse"),
        Parameter("comment", Type.TEXT, "the table property comment"),
    ),
    (
        Column("uri", Type.TEXT, "where it is"),
        Column("version", Type.LONG, "its first version"),
    ),
    _create,
    subject=Subject.NEW,
    is_called=False,
)
DROP = Operation(
    "drop",
    "Takes the name away from a dataset, or deletes the dataset.",
    (_NAME, Parameter("purge", Type.FLAG, "delete it, with its files and all versions", False)),
    (Column("uri", Type.TEXT, "where it is, or was"),),
    _drop,
    subject=Subject.NAME,
    is_called=False,
)
RENAME = Operation(
    "rename",
    "Gives another name to a dataset. Its files stay where they are.",
    (_NAME, Parameter("name", Type.TEXT, "the new name", required=True)),
    (Column("uri", Type.TEXT, "where it is"),),
    _rename,
    subject=Subject.NAME,
    is_called=False,
)

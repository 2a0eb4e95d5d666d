"""Verb. Operations on datasets as a whole: they are listed, made, described, named and set."""

import json
import os
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

from lakehouse_source.arguments import column_names
from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.operations.entry import VERSION, Call, Rows, Subject, Table, operation
from lakehouse_source.result_tables import CONSTRAINTS, Column, Type

if TYPE_CHECKING:
    import pyarrow as pa

    from lakehouse_source.catalog.copy import CopyReport
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


_COPIED = (
    Column("catalog", Type.TEXT, "the new catalog"),
    Column("table", Type.TEXT, "a table of it"),
    Column("rows", Type.LONG, "rows that were copied, and read back and compared"),
)


@operation(*_COPIED, is_called=False)
def backup_catalog(call: Call, file: Annotated[str, "the new file"]) -> Rows:
    """Writes a copy of the catalog, of whatever database, to a new SQLite file. Writers go on."""
    from lakehouse_source.catalog.copy import copy_catalog

    return _copied(call, f"sqlite:///{quote(os.path.abspath(file))}", copy_catalog)


@operation(*_COPIED, is_called=False)
def copy_catalog(call: Call, to: Annotated[str, "the URL of the new catalog"]) -> Rows:
    """Copies the catalog to another database, which has none: all versions, branches, tags and ids.
    From then on only the copy is written to.
    """
    from lakehouse_source.catalog.copy import move_catalog

    return _copied(call, to, move_catalog)


def _copied(call: Call, url: str, copy: "Callable[..., CopyReport]") -> Rows:
    from lakehouse_source.catalog import open_catalog

    with call.target.names() as source, open_catalog(url, create=True) as target:
        report = copy(source.database, target, progress=call.progress)
        for table, rows in report.rows.items():
            yield target.redacted_url, table, rows


@operation(Column("catalog", Type.TEXT, "the catalog that is written to again"), is_called=False)
def unfence_catalog(call: Call, copy: Annotated[str, "the copy, as the error names it"]) -> Rows:
    """Lets a catalog be written to again that was copied to another database."""
    from lakehouse_source.catalog.copy import unfence_catalog

    with call.target.names() as catalog:
        unfence_catalog(catalog.database, copy)
        yield (catalog.redacted_url,)


@operation(
    Column("url", Type.TEXT, "where it is, without a password"),
    Column("database", Type.TEXT, "the database"),
    Column("format", Type.LONG, "the format of its tables"),
    Column("warehouse", Type.TEXT, "where datasets without a location are made"),
    Column("namespaces", Type.TEXTS, "its namespaces"),
    Column("datasets", Type.LONG, "its datasets and branches"),
    Column("names", Type.LONG, "those that have a name"),
    Column("versions", Type.LONG, "the sum of their newest versions"),
    is_called=False,
)
def describe_catalog(call: Call) -> Rows:
    """Tells what is in the catalog."""
    from lakehouse_source.catalog.sql.migrations import LATEST

    with call.target.names() as catalog:
        warehouse, namespaces = catalog.warehouse, catalog.namespaces()
        with catalog.read() as reader:
            records = reader.datasets()
            named = reader.names.datasets(None)
    database = type(catalog.database).__name__.removesuffix("Catalog")
    versions = sum(record.current_version for record in records)
    counts = len(records), len(named), versions
    yield catalog.redacted_url, database, LATEST, warehouse, namespaces, *counts


@operation(
    Column("namespace", Type.TEXT, "the namespace that the table was in"),
    Column("name", Type.TEXT, "the name that it had"),
    Column("uri", Type.TEXT, "where it is"),
    Column("version", Type.LONG, "its newest version"),
)
def dropped(call: Call) -> Rows:
    """Lists the dropped tables that can still be brought back, the newest drop first."""
    with call.target.names() as catalog:
        return catalog.dropped()


@operation(Column("uri", Type.TEXT, "where the table is"))
def undrop(table: Annotated[Call, Subject.NAME, "the name that the table had"]) -> Rows:
    """Brings back the last table that was dropped under a name, unless it was dropped with
    PURGE.
    """
    name = table.target.name()
    with table.target.names() as catalog:
        catalog.undrop(name)
        yield (catalog.locate(name),)


@operation(
    Column("name", Type.TEXT, "the property"),
    Column("value", Type.JSON, "its value"),
    Column("kind", Type.TEXT, "'plake': its rules read it; 'user': a note of users"),
    is_called=False,
)
def properties(table: Table) -> Rows:
    """Lists the properties of a dataset."""
    dataset = table.dataset()
    for name, value in dataset.properties.items():
        if name != "table_properties":
            yield name, value, "plake"
    for name, text in dataset.table_properties.items():
        yield name, text, "user"


@operation(*CONSTRAINTS, is_called=False)
def constraints(table: Table) -> Any:
    """Lists the constraints of a dataset."""
    return table.dataset().inspect.constraints().to_pylist()


@operation(VERSION)
def add_constraint(
    table: Table,
    name: Annotated[str, "the constraint"],
    expression: Annotated[str, "a condition, FALSE on no row; or PRIMARY KEY (a, b) or UNIQUE (a)"],
) -> object:
    """Refuses rows for which a condition is FALSE, or whose key another row has, from now on. The
    rows that are there are checked first, by statistics or by reading them.
    """
    return table.dataset().add_constraint(name, expression)


@operation(VERSION)
def drop_constraint(table: Table, name: Annotated[str, "the constraint"]) -> object:
    """Takes a constraint back."""
    return table.dataset().drop_constraint(name)


@operation(VERSION, is_called=False)
def set_properties(
    table: Table,
    set: Annotated[list[str] | None, "name=value; a value is JSON, or else a text"] = None,
    unset: Annotated[list[str] | None, "names of properties to set back"] = None,
    user: Annotated[bool, "notes of users, not properties of plake"] = False,
) -> object:
    """Sets properties of a dataset, and takes them away, as one commit."""
    texts = dict(map(_assigned, set or ()))
    values = {name: text if user else _value(text) for name, text in texts.items()}
    values |= dict.fromkeys(unset or ())
    if not values:
        raise InvalidOptionError(option="set", reason="or unset must name a property.")
    dataset = table.dataset()
    return dataset.set_table_properties(values) if user else dataset.set_properties(**values)


def _assigned(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise InvalidOptionError(option="set", value=text, reason="must be name=value.")
    return name.strip(), value


def _value(text: str) -> Any:
    """A value of a property: JSON, or else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


@operation(VERSION, Column("index_columns", Type.TEXTS, "the columns; NULL: the default"))
def set_index_columns(
    table: Table, columns: Annotated[list[str] | None, "the columns; NULL: the default"] = None
) -> Rows:
    """Chooses the columns of which plake keeps statistics to search by."""
    # Not read back: it is committed, and the catalog may not be there any more.
    names = column_names("columns", columns)
    yield table.dataset().set_properties(index_columns=names).version, names

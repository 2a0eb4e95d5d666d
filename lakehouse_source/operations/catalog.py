"""Verb. Operations on the names in a catalog."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

from lakehouse_source.operations.entry import Call, Rows, Subject, operation
from lakehouse_source.result_tables import Column, Type

if TYPE_CHECKING:
    from lakehouse_source.catalog.copy import CopyReport

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

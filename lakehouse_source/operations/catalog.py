"""Verb. Operations on the names in a catalog."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import quote

from lakehouse_source.operations.entry import (
    Call,
    Column,
    Operation,
    Parameter,
    Rows,
    Subject,
    Type,
)

if TYPE_CHECKING:
    from lakehouse_source.catalog.copy import CopyReport


def _dropped(call: Call) -> Rows:
    with call.target.names() as catalog:
        for one in catalog.dropped():
            yield one.namespace, one.name, one.uri, one.version


def _undrop(call: Call) -> Rows:
    name = call.target.name()
    with call.target.names() as catalog:
        catalog.undrop(name)
        yield (catalog.locate(name),)


def _info(call: Call) -> Rows:
    from lakehouse_source.catalog.sql.migrations import LATEST

    with call.target.names() as catalog:
        warehouse, namespaces = catalog.warehouse, catalog.namespaces()
        with catalog.read() as reader:
            records = reader.datasets()
            named = reader.names.datasets(None)
    yield (
        catalog.redacted_url,
        type(catalog.database).__name__.removesuffix("Catalog"),
        LATEST,
        warehouse,
        namespaces,
        len(records),
        len(named),
        sum(record.current_version for record in records),
    )


def _copy(call: Call) -> Rows:
    from lakehouse_source.catalog.copy import move_catalog

    yield from _copied(call, call.arguments["to"], move_catalog)


def _copied(call: Call, url: str, copy: Callable[..., CopyReport]) -> Rows:
    from lakehouse_source.catalog import open_catalog

    with call.target.names() as source, open_catalog(url, create=True) as target:
        report = copy(source.database, target, progress=call.progress)
        for table, rows in report.rows.items():
            yield target.redacted_url, table, rows


def _backup(call: Call) -> Rows:
    from lakehouse_source.catalog.copy import copy_catalog

    path = os.path.abspath(call.arguments["file"])
    yield from _copied(call, f"sqlite:///{quote(path)}", copy_catalog)


def _unfence(call: Call) -> Rows:
    from lakehouse_source.catalog.copy import unfence_catalog

    with call.target.names() as catalog:
        unfence_catalog(catalog.database, call.arguments["copy"])
        yield (catalog.redacted_url,)


COPIED = (
    Column("catalog", Type.TEXT, "the new catalog"),
    Column("table", Type.TEXT, "a table of it"),
    Column("rows", Type.LONG, "rows that were copied, and read back and compared"),
)
BACKUP = Operation(
    "backup_catalog",
    "Writes a copy of the catalog, of whatever database, to a new SQLite file. Writers go on.",
    (Parameter("file", Type.TEXT, "the new file", required=True),),
    COPIED,
    _backup,
    subject=Subject.NONE,
    is_called=False,
)
COPY = Operation(
    "copy_catalog",
    "Copies the catalog to another database, which has none: all versions, branches, tags and ids. "
    "From then on only the copy is written to.",
    (Parameter("to", Type.TEXT, "the URL of the new catalog", required=True),),
    COPIED,
    _copy,
    subject=Subject.NONE,
    is_called=False,
)
UNFENCE = Operation(
    "unfence_catalog",
    "Lets a catalog be written to again that was copied to another database.",
    (Parameter("copy", Type.TEXT, "the copy, as the error names it", required=True),),
    (Column("catalog", Type.TEXT, "the catalog that is written to again"),),
    _unfence,
    subject=Subject.NONE,
    is_called=False,
)
INFO = Operation(
    "describe_catalog",
    "Tells what is in the catalog.",
    (),
    (
        Column("url", Type.TEXT, "where it is, without a password"),
        Column("database", Type.TEXT, "the database"),
        Column("format", Type.LONG, "the format of its tables"),
        Column("warehouse", Type.TEXT, "where datasets without a location are made"),
        Column("namespaces", Type.TEXTS, "its namespaces"),
        Column("datasets", Type.LONG, "its datasets and branches"),
        Column("names", Type.LONG, "those that have a name"),
        Column("versions", Type.LONG, "the sum of their newest versions"),
    ),
    _info,
    subject=Subject.NONE,
    is_called=False,
)
DROPPED = Operation(
    "dropped",
    "Lists the dropped tables that can still be brought back, the newest drop first.",
    (),
    (
        Column("namespace", Type.TEXT, "the namespace that the table was in"),
        Column("name", Type.TEXT, "the name that it had"),
        Column("uri", Type.TEXT, "where it is"),
        Column("version", Type.LONG, "its newest version"),
    ),
    _dropped,
    subject=Subject.NONE,
)
UNDROP = Operation(
    "undrop",
    "Brings back the last table that was dropped under a name, unless it was dropped with PURGE.",
    (Parameter("table", Type.TEXT, "the name that the table had", required=True),),
    (Column("uri", Type.TEXT, "where the table is"),),
    _undrop,
    subject=Subject.NAME,
)

"""Door. Answers the requests of Spark's catalog: the Python end of the channel.

The catalog in the JVM (`planner/src/io/plake/spark/core/Channel.java`) does not know plake's data.
It puts a request into the envelope of a data source's options (`Message.REQUEST`), and Spark asks
the source for its schema, in a planning worker on the driver. The answer is in the metadata of an
extra last column. A table that is loaded comes with its columns, and the same instance of the data
source reads it: one request opens a table at one version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StringType, StructField, StructType

from lakehouse_source.constraints import primary_key
from lakehouse_source.errors import (
    DatasetExistsError,
    DatasetNotFoundError,
    InvalidOptionError,
    NamespaceExistsError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    PlakeError,
    constraint_sql,
)
from lakehouse_source.generated import defaults_of
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.schema.defaults import (
    clause,
    computed_columns,
    default_sql,
    document_of,
    write_default,
)
from lakehouse_source.schema.fields import leaves
from lakehouse_source.schema.ordinal import to_ordinal
from lakehouse_source.spark.protocol import messages
from lakehouse_source.spark.protocol.vocabulary import (
    Computed,
    Envelope,
    Failure,
    Message,
    RequestKey,
    RequestKind,
    ResponseKey,
)
from lakehouse_source.spark.reading.rows_frame import RowsFrame
from lakehouse_source.spark.session.catalog_request import Place, Request, place_of
from lakehouse_source.spark.session.options import STREAM_ONLY_OPTIONS, TAKES
from lakehouse_source.spark.tables.table_properties import shown
from lakehouse_source.spark.types import literal_sql, quoted, spark_schema
from lakehouse_source.storage import canonical_uri

if TYPE_CHECKING:
    from lakehouse_source.spark.reading.changes_frame import ChangesFrame

_HERE = __name__.rpartition(".")[0]
# Spark keeps a column's default value as SQL in its metadata.
_SPARK_DEFAULT = "CURRENT_DEFAULT"
# Options of a frame that change its columns.
_COLUMNS = {"columns", "metadatacolumns"}
_STREAMS = {name.lower() for name in STREAM_ONLY_OPTIONS}
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


# Where each request is answered, as module and function: only that module is imported.
READS = {
    RequestKind.EXISTS: "catalog_names.exists",
    RequestKind.LIST_TABLES: "catalog_names.list_tables",
    RequestKind.LIST_RELATIONS: "catalog_names.list_relations",
    RequestKind.LIST_NAMESPACES: "catalog_names.list_namespaces",
    RequestKind.LOAD_NAMESPACE: "catalog_names.load_namespace",
    RequestKind.STAGE: "catalog_tables.stage",
    RequestKind.LIST_PARTITIONS: "catalog_tables.list_partitions",
    RequestKind.LIST_PROCEDURES: "procedures.list_procedures",
    RequestKind.LOAD_PROCEDURE: "procedures.load_procedure",
    RequestKind.LIST_VIEWS: "catalog_names.list_views",
    RequestKind.LOAD_VIEW: "catalog_names.load_view",
}
CHANGES = {
    RequestKind.TRUNCATE: "catalog_tables.truncate",
    RequestKind.CREATE_NAMESPACE: "catalog_names.create_namespace",
    RequestKind.ALTER_NAMESPACE: "catalog_names.alter_namespace",
    RequestKind.DROP_NAMESPACE: "catalog_names.drop_namespace",
    RequestKind.CREATE: "catalog_tables.create",
    RequestKind.ALTER: "alter_table.alter",
    RequestKind.DROP: "catalog_tables.drop",
    RequestKind.RENAME: "catalog_tables.rename",
    RequestKind.CALL: "procedures.call",
    RequestKind.PUT_VIEW: "catalog_names.put_view",
    RequestKind.DROP_VIEW: "catalog_names.drop_view",
    RequestKind.RENAME_VIEW: "catalog_names.rename_view",
}

# Changes that a transaction of the session takes.
_OF_TRANSACTIONS = (RequestKind.TRUNCATE, RequestKind.ALTER)
# Requests whose answer opens the table.
_TABLES = (RequestKind.LOAD, RequestKind.EVOLVE, RequestKind.CREATE, RequestKind.ALTER)

_FAILURES = (
    (DatasetNotFoundError, Failure.NO_TABLE),
    (DatasetExistsError, Failure.TABLE_EXISTS),
    (NamespaceNotFoundError, Failure.NO_NAMESPACE),
    (NamespaceExistsError, Failure.NAMESPACE_EXISTS),
    (NamespaceNotEmptyError, Failure.NAMESPACE_NOT_EMPTY),
)


class ResponseFrame:
    """The answer to a request, as the schema of a frame. Asked once.

    If it opens a table, the frame is that table, with the answer in a further last column.
    `may_change`: a statement asks, not a read.
    """

    def __init__(
        self, body: Mapping[str, Any], options: Mapping[str, str], *, may_change: bool
    ) -> None:
        self._table: RowsFrame | ChangesFrame | None = None
        try:
            response = self._respond(Request.of(body, options), may_change)
            self._response = messages.encode_response(response)
        except PlakeError as error:
            kind = next((kind for one, kind in _FAILURES if isinstance(error, one)), Failure.OTHER)
            self._response = messages.encode_error(error, kind)

    def _respond(self, request: Request, may_change: bool) -> dict[str, Any]:
        response = respond(request, may_change=may_change)
        command = request.body[RequestKey.COMMAND]
        if command == RequestKind.LOAD_CHANGES:
            from lakehouse_source.spark.reading.changes_frame import ChangesFrame

            frame = {**request.frame, **place_of(request).options()}
            self._table = changes = ChangesFrame(frame, is_batch=True)
            return {**response, ResponseKey.AT: changes.request.end}
        if command not in _TABLES:
            return response
        try:
            place = place_of(request)
            options = _frame_options(request, place)
            table = RowsFrame(options)
            if command == RequestKind.EVOLVE:
                from lakehouse_source.spark.writing.column_changes import evolved

                changes = request.body[RequestKey.CHANGES]
                table.show(evolved(place.address(), table.snapshot(), changes))
            found = _table(request, place, table.snapshot())
        except PlakeError:
            if not may_change:
                raise
            # The change was committed, and Spark's CREATE and ALTER TABLE do not use the table.
            return _unread_table(request)
        # The request has the version. A stream of the table has the same options, but begins where
        # its own options say.
        options.pop("versionasof", None)
        self._table = table
        return found

    @property
    def version(self) -> int | None:
        return None if self._table is None else self._table.version

    @property
    def partition_by(self) -> tuple[str, ...] | None:
        """The partition columns of the table, for the planner extension."""
        return self._table.partition_by if isinstance(self._table, RowsFrame) else None

    def pinned(self) -> RowsFrame | ChangesFrame | ResponseFrame:
        """The table: other processes do not need the answer."""
        return self if self._table is None else self._table.pinned()

    def schema(self) -> StructType:
        """The columns of the table, and one column with the envelope of the answer."""
        fields = [] if self._table is None else _columns(self._table).fields
        mark = {Envelope.NAME: self._response}
        return StructType([*fields, StructField("response", StringType(), True, mark)])

    def reader(self, schema: StructType) -> DataSourceReader:
        assert self._table is not None
        return self._table.reader(schema)

    def stream_reader(self, schema: StructType) -> DataSourceStreamReader:
        assert self._table is not None
        return self._table.stream_reader(schema)


def respond(request: Request, *, may_change: bool) -> dict[str, Any]:
    """Do what a request asks, except opening a table, which comes later.

    `may_change`: a statement asks, not a read.

    Raises:
        PlakeError: an error that `failed` turns into an answer.
    """
    command = request.body[RequestKey.COMMAND]
    if command in (RequestKind.LOAD, RequestKind.EVOLVE):
        return {}
    if command != RequestKind.LOAD_VIEW:
        request.require_table()
    if command == RequestKind.LOAD_CHANGES:
        return {ResponseKey.TABLE: request.shown}
    place = READS.get(command)
    changes = place is None or command == RequestKind.STAGE
    if changes and request.body.get(Message.TRANSACTION) and command not in _OF_TRANSACTIONS:
        raise InvalidOptionError(
            option="transaction", value=command, reason=f"is not for one. {TAKES}."
        )
    if place is None and not may_change:
        raise InvalidOptionError(
            option="request", value=command, reason="changes what is stored: no read does."
        )
    return answering(place or CHANGES[command])(request)


def answering(place: str) -> Callable[[Request], dict[str, Any]]:
    """The function that answers a request."""
    module, _, name = place.partition(".")
    found: Callable[[Request], dict[str, Any]] = getattr(import_module(f"{_HERE}.{module}"), name)
    return found


# --- tables --------------------------------------------------------------------


def _frame_options(request: Request, place: Place) -> dict[str, str]:
    """The options of the frame that reads a table at the requested version."""
    for option in _COLUMNS & request.frame.keys():
        raise InvalidOptionError(
            option=option, reason="is not for tables of Spark's catalog: select the columns."
        )
    if "version" in request.frame:
        raise InvalidOptionError(
            option="version",
            value=request.frame["version"],
            reason="is for load(). Of a table of Spark's catalog give versionAsOf.",
        )
    options = dict(request.frame) | place.options()
    if request.metadata_table is not None:
        options["metadatatable"] = request.metadata_table
    version = request.body.get(RequestKey.VERSION)
    moment = request.body.get(RequestKey.MICROSECONDS)
    # Not for a stream, which starts where its own options say.
    if version is not None and not _STREAMS & options.keys():
        options["versionasof"] = version
    if moment is not None:
        options["timestampasof"] = (_EPOCH + timedelta(microseconds=moment)).isoformat()
    return options


def _clustered_by(snapshot: Snapshot) -> list[str]:
    """The clustering columns as Spark parses them; a path of VARIANT is one name."""
    known = {".".join(leaf.path) for leaf in leaves(snapshot.schema)}
    names = snapshot.dataset.properties.layout.cluster_by or ()
    return [name if name in known else quoted(name) for name in names]


def _table(request: Request, place: Place, snapshot: Snapshot) -> dict[str, Any]:
    """What Spark's catalog shows of a table besides its columns."""
    return {
        ResponseKey.TABLE: request.shown,
        ResponseKey.AT: snapshot.version,
        ResponseKey.OPTIONS: place.options(),
        ResponseKey.PARTITION_BY: [] if request.metadata_table else list(snapshot.partition_by),
        ResponseKey.CLUSTER_BY: [] if request.metadata_table else _clustered_by(snapshot),
        ResponseKey.IS_METADATA: request.metadata_table is not None,
        ResponseKey.PROPERTIES: _properties(snapshot) | _of_warehouse(request, snapshot),
        ResponseKey.CONSTRAINTS: {} if request.metadata_table else _constraints(snapshot),
        ResponseKey.PRIMARY_KEY: list(primary_key(snapshot.dataset.properties.constraints)),
        ResponseKey.COMPUTED: {} if request.metadata_table else _computed(snapshot),
        ResponseKey.DEFAULTS: {} if request.metadata_table else _defaults(snapshot),
    }


def _unread_table(request: Request) -> dict[str, Any]:
    """The answer for a table that could not be read after a change. Version 0 has no rows."""
    return {
        ResponseKey.TABLE: request.shown,
        ResponseKey.AT: 0,
        ResponseKey.OPTIONS: {},
        ResponseKey.PARTITION_BY: [],
        ResponseKey.CLUSTER_BY: [],
        ResponseKey.IS_METADATA: False,
        ResponseKey.PROPERTIES: {},
        ResponseKey.CONSTRAINTS: {},
        ResponseKey.PRIMARY_KEY: [],
        ResponseKey.COMPUTED: {},
        ResponseKey.DEFAULTS: {},
    }


def _properties(snapshot: Snapshot) -> dict[str, str]:
    return {**shown(snapshot.dataset.properties), "provider": "plake", "location": snapshot.uri}


def _constraints(snapshot: Snapshot) -> dict[str, str]:
    found = snapshot.dataset.properties.constraints
    return {name: constraint_sql(one.expression) for name, one in found.items()}


def _computed(snapshot: Snapshot) -> dict[str, Any]:
    found = computed_columns(snapshot.schema)
    return {
        name: {
            **document_of(how),
            Computed.SQL: clause(how),
            Computed.NULLABLE: snapshot.schema.field(name).nullable,
        }
        for name, how in found.items()
    }


def _defaults(snapshot: Snapshot) -> dict[str, str]:
    """Spark would evaluate an expression for each column and clause of a statement anew."""
    found = defaults_of(snapshot.schema)
    return {
        name: _sql(value, snapshot.schema.field(name))
        for name, value in found.items()
        if value.is_valid
    }


def _of_warehouse(request: Request, snapshot: Snapshot) -> dict[str, str]:
    """The property that hides a location chosen by the catalog from `SHOW CREATE TABLE`."""
    if request.is_path or request.warehouse is None:
        return {}
    folder = canonical_uri(request.warehouse).rstrip("/") + "/"
    return {"is_managed_location": "true"} if snapshot.uri.startswith(folder) else {}


def _columns(table: RowsFrame | ChangesFrame) -> StructType:
    """The columns of a table, with their default values as Spark keeps them."""
    if not isinstance(table, RowsFrame) or table.request.metadata_table is not None:
        return table.schema()
    snapshot = table.snapshot()
    fields = []
    for field, stored in zip(spark_schema(snapshot.schema).fields, snapshot.schema):
        value, sql = write_default(stored), default_sql(stored)
        if value is not None:
            sql = _sql(value, stored)
        if sql is not None:
            metadata = dict(field.metadata or {}) | {_SPARK_DEFAULT: sql}
            field = StructField(field.name, field.dataType, field.nullable, metadata)
        fields.append(field)
    return StructType(fields)


def _sql(value: pa.Scalar, field: pa.Field) -> str:
    """A default value as SQL. A float is passed unchanged: ordinals have no negative zero."""
    if pa.types.is_floating(field.type):
        return literal_sql(float(value.as_py()), field.type)
    return literal_sql(to_ordinal(value, field.type), field.type)

"""Door. Answers the questions of Spark's catalog: the Python end of the channel.

The catalog in the JVM (`planner/src/io/plake/spark/core/Channel.java`) does not know plake's data.
It puts a question into the envelope of a data source's options (`Told.QUESTION`), and Spark asks
the source for its schema, in a planning worker on the driver. The answer is in the metadata of an
extra last column. A table that is loaded comes with its columns, and the same instance of the data
source reads it: one question opens a table at one version.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StringType, StructField, StructType

from lakehouse_source.errors import (
    DatasetExistsError,
    DatasetNotFoundError,
    InvalidOptionError,
    NamespaceExistsError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    PlakeError,
)
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.schema.defaults import write_default
from lakehouse_source.schema.fields import without_metadata
from lakehouse_source.schema.ordinal import to_ordinal
from lakehouse_source.spark.protocol import envelope
from lakehouse_source.spark.protocol.vocabulary import Answer, Ask, Envelope, Failure, Question
from lakehouse_source.spark.session.catalog_request import Place, Request, knows, place_of
from lakehouse_source.spark.session.options import (
    SETTINGS,
    STREAM_ONLY_OPTIONS,
    Options,
    on_branch,
    with_settings,
)
from lakehouse_source.spark.tables import (
    alter_table,
    catalog_names,
    catalog_partitions,
    catalog_tables,
    catalog_views,
    procedure_calls,
)
from lakehouse_source.spark.tables.table_properties import shown
from lakehouse_source.spark.types.spark_types import spark_schema
from lakehouse_source.spark.types.to_spark_sql import literal_sql
from lakehouse_source.spark.writing.commit_options import commit_options
from lakehouse_source.storage import canonical_uri
from lakehouse_source.write.commit.begin import begin
from lakehouse_source.write.commit.commit import commit
from lakehouse_source.write.commit.conflicts import Isolation
from lakehouse_source.write.statements.row_statement import isolation_of

# Spark keeps a column's default value as SQL in its metadata.
_SPARK_DEFAULT = "CURRENT_DEFAULT"
# Options of a frame that change its columns.
_COLUMNS = {"columns", "metadatacolumns"}
_STREAMS = {name.lower() for name in STREAM_ONLY_OPTIONS}
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


_FAILURES = (
    (DatasetNotFoundError, Failure.NO_TABLE),
    (DatasetExistsError, Failure.TABLE_EXISTS),
    (NamespaceNotFoundError, Failure.NO_NAMESPACE),
    (NamespaceExistsError, Failure.NAMESPACE_EXISTS),
    (NamespaceNotEmptyError, Failure.NAMESPACE_NOT_EMPTY),
)


def opens_table(request: Request) -> bool:
    """Tell whether the table's columns belong to the answer."""
    return request.question[Question.COMMAND] in (Ask.LOAD, Ask.CREATE, Ask.ALTER)


def answer(request: Request, *, may_change: bool) -> dict[str, Any]:
    """Do what a question asks, except opening a table, which comes later.

    `may_change`: a statement asks, not a read.

    Raises:
        PlakeError: an error that `failed` turns into an answer.
    """
    command = request.question[Question.COMMAND]
    if command == Ask.LOAD:
        return {}
    request.require_table()
    if command == Ask.LOAD_CHANGES:
        return {Answer.TABLE: request.shown}
    if command in QUESTIONS:
        return QUESTIONS[command](request)
    if not may_change:
        raise InvalidOptionError(
            option="question", value=command, reason="changes what is stored: no read does."
        )
    return CHANGES[command](request)


def failed(error: PlakeError) -> str:
    """The envelope for a question that failed."""
    kind = next((kind for one, kind in _FAILURES if isinstance(error, one)), Failure.OTHER)
    return envelope.failed(error, kind)


def answered(told: str, columns: StructType | None = None) -> StructType:
    """The schema that carries an envelope: the columns of a table, and one column with it."""
    fields = [] if columns is None else list(columns.fields)
    mark = {Envelope.NAME: told}
    return StructType([*fields, StructField("answer", StringType(), True, mark)])


# --- tables --------------------------------------------------------------------


def frame_options(request: Request, place: Place) -> dict[str, str]:
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
    version = request.question.get(Question.VERSION)
    moment = request.question.get(Question.MICROSECONDS)
    # Not for a stream, which starts where its own options say.
    if version is not None and not _STREAMS & options.keys():
        options["versionasof"] = version
    if moment is not None:
        options["timestampasof"] = (_EPOCH + timedelta(microseconds=moment)).isoformat()
    return options


def table(request: Request, place: Place, snapshot: Snapshot) -> dict[str, Any]:
    """What Spark's catalog shows of a table besides its columns."""
    return {
        Answer.TABLE: request.shown,
        Answer.AT: snapshot.version,
        Answer.OPTIONS: place.options(),
        Answer.PARTITION_BY: [] if request.metadata_table else list(snapshot.partition_by),
        Answer.IS_METADATA: request.metadata_table is not None,
        Answer.PROPERTIES: _properties(snapshot) | _of_warehouse(request, snapshot),
    }


def unread_table(request: Request) -> dict[str, Any]:
    """The answer for a table that could not be read after a change. Version 0 has no rows."""
    return {
        Answer.TABLE: request.shown,
        Answer.AT: 0,
        Answer.OPTIONS: {},
        Answer.PARTITION_BY: [],
        Answer.IS_METADATA: False,
        Answer.PROPERTIES: {},
    }


def _properties(snapshot: Snapshot) -> dict[str, str]:
    return {**shown(snapshot.dataset.properties), "provider": "plake", "location": snapshot.uri}


def _of_warehouse(request: Request, snapshot: Snapshot) -> dict[str, str]:
    """The property that hides a location chosen by the catalog from `SHOW CREATE TABLE`."""
    if request.is_path or request.warehouse is None:
        return {}
    folder = canonical_uri(request.warehouse).rstrip("/") + "/"
    return {"is_managed_location": "true"} if snapshot.uri.startswith(folder) else {}


def columns(snapshot: Snapshot) -> StructType:
    """The columns of a table, with their default values as Spark keeps them."""
    fields = []
    for field, stored in zip(spark_schema(snapshot.schema).fields, snapshot.schema):
        value = write_default(stored)
        if value is not None:
            metadata = dict(field.metadata or {}) | {_SPARK_DEFAULT: _sql(value, stored)}
            field = StructField(field.name, field.dataType, field.nullable, metadata)
        fields.append(field)
    return StructType(fields)


def _sql(value: pa.Scalar, field: pa.Field) -> str:
    """A default value as SQL. A float is passed unchanged: ordinals have no negative zero."""
    if pa.types.is_floating(field.type):
        return literal_sql(float(value.as_py()), field.type)
    return literal_sql(to_ordinal(value, field.type), field.type)


def truncate(request: Request) -> dict[str, Any]:
    """Remove all rows, as one commit, by the settings of the session.

    Raises:
        InvalidOptionError: there is no such setting, or its value is wrong.
        CommitConflictError: `expectedVersion` is another version.
    """
    told = with_settings({}, request.question.get(Question.SETTINGS, {}))
    given = Options(told, SETTINGS, "truncating")
    isolation_of(given.text("isolation") or Isolation.WRITE_SERIALIZABLE.value)
    options = replace(commit_options(given), mode="overwrite")
    address = place_of(request).address()
    with address.open() as catalog:
        with catalog.read() as reader:
            schema = without_metadata(address.snapshot(catalog, reader).schema)
        commit(catalog, begin(catalog, address, schema, options), [])
    return {}


def exists(request: Request) -> dict[str, Any]:
    """Tell whether there is a dataset at a path.

    Raises:
        DatasetExistsError: there is a dataset, and there must be none.
    """
    (path,) = request.identifier
    path = on_branch(path, request.frame.get("branch"))
    place = Place(path, request.catalog, request.storage)
    found = knows(place)
    if found and request.question[Question.MUST_BE_NEW]:
        raise DatasetExistsError(dataset=place.address().uri)
    return {Answer.EXISTS: found, Answer.OPTIONS: place.options()}


QUESTIONS: dict[str, Callable[[Request], dict[str, Any]]] = {
    Ask.EXISTS: exists,
    Ask.LIST_TABLES: catalog_names.list_tables,
    Ask.LIST_NAMESPACES: catalog_names.list_namespaces,
    Ask.LOAD_NAMESPACE: catalog_names.load_namespace,
    Ask.STAGE: catalog_tables.stage,
    Ask.LIST_PARTITIONS: catalog_partitions.list_partitions,
    Ask.LIST_PROCEDURES: procedure_calls.list_procedures,
    Ask.LOAD_PROCEDURE: procedure_calls.load_procedure,
    Ask.LIST_VIEWS: catalog_views.list_views,
    Ask.LOAD_VIEW: catalog_views.load_view,
}
CHANGES: dict[str, Callable[[Request], dict[str, Any]]] = {
    Ask.TRUNCATE: truncate,
    Ask.CREATE_NAMESPACE: catalog_names.create_namespace,
    Ask.ALTER_NAMESPACE: catalog_names.alter_namespace,
    Ask.DROP_NAMESPACE: catalog_names.drop_namespace,
    Ask.CREATE: catalog_tables.create,
    Ask.ALTER: alter_table.alter,
    Ask.DROP: catalog_tables.drop,
    Ask.RENAME: catalog_tables.rename,
    Ask.CALL: procedure_calls.call,
    Ask.PUT_VIEW: catalog_views.put_view,
    Ask.DROP_VIEW: catalog_views.drop_view,
    Ask.RENAME_VIEW: catalog_views.rename_view,
}

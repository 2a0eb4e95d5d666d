"""Door. What Spark's catalog asks to create, rename and drop tables.

The partitions of a table, as `SHOW PARTITIONS` shows them.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from lakehouse_source.catalog.qualified_names import quoted
from lakehouse_source.catalog.sql.names import NamedDataset
from lakehouse_source.datasets import DatasetCatalog
from lakehouse_source.errors import (
    DatasetExistsError,
    DatasetNotFoundError,
    InvalidOptionError,
)
from lakehouse_source.generated import defaults_of
from lakehouse_source.language import PredicateSet
from lakehouse_source.schema.defaults import declared, with_write_default
from lakehouse_source.schema.fields import without_metadata
from lakehouse_source.schema.partitions import partition_ordinal
from lakehouse_source.schema.types import card
from lakehouse_source.spark.protocol.vocabulary import (
    Computed,
    RequestKey,
    ResponseKey,
    Stage,
)
from lakehouse_source.spark.reading.pushdown import decode, literal_value
from lakehouse_source.spark.session.catalog_request import (
    Place,
    Request,
    has_own_catalog,
    knows,
    names_of,
    place_of,
    qualified,
)
from lakehouse_source.spark.session.options import SETTINGS, Options, with_settings
from lakehouse_source.spark.tables.table_properties import (
    LOCATION,
    RESERVED,
    check_provider,
    divided,
)
from lakehouse_source.spark.types import arrow_schema, as_text
from lakehouse_source.spark.writing.begin_write import commit_options, with_table
from lakehouse_source.write.commit.begin import begin
from lakehouse_source.write.commit.commit import commit
from lakehouse_source.write.commit.conflicts import Isolation, isolation_of
from lakehouse_source.write.commit.evolution import has_no_file
from lakehouse_source.write.commit.options import WriteOptions, layout_of


def list_partitions(request: Request) -> dict[str, Any]:
    """The values of the partition columns of all files of a version, each combination once.

    Raises:
        InvalidOptionError: Spark has no exact values for a column.
    """
    address = place_of(request).address()
    with address.open() as catalog, catalog.read() as reader:
        snapshot = address.snapshot(catalog, reader, int(request.body[RequestKey.VERSION]))
        texts = snapshot.partition_texts()
        files = reader.files(snapshot.dataset.id, snapshot.version)
        found = dict.fromkeys(tuple(texts(file)) for file in files)
    types = [snapshot.schema.field(name).type for name in snapshot.partition_by]
    for name, type_ in zip(snapshot.partition_by, types):
        if not card(type_).text:
            raise InvalidOptionError(
                option="SHOW PARTITIONS",
                value=name,
                reason=f"cannot show values of type {type_}: query the table {request.shown}"
                ".partitions.",
            )
    return {
        ResponseKey.ROWS: [
            [as_text(partition_ordinal(text, type_), type_) for text, type_ in zip(values, types)]
            for values in found
        ]
    }


_OPTION = "option."


# --- create --------------------------------------------------------------------


def create(request: Request) -> dict[str, Any]:
    """Create a table without rows, or give a name to an existing dataset."""
    _refuse_branch(request)
    check_provider(request.body[RequestKey.PROPERTIES], request.body[RequestKey.CATALOG])
    location = request.body[RequestKey.PROPERTIES].get(LOCATION)
    spark = _columns(request)
    if not spark.fields and location is not None and not request.is_path:
        _refuse_other_catalog(request, location)
        if request.body.get(RequestKey.CONSTRAINTS):
            raise InvalidOptionError(
                option="CONSTRAINT",
                reason="is not for a dataset that is there: use ALTER TABLE after that.",
            )
        with names_of(request) as catalog:
            catalog.register(request.name, location)
        return {}
    place, staged = _staged(request)
    options = with_table(WriteOptions(), staged)
    address = place.address()
    with address.open(create=True) as catalog:
        columns = declared(arrow_schema(spark).remove_metadata(), request.body[RequestKey.COMPUTED])
        begun = begin(catalog, address, columns, options)
        schema = _with_defaults(request, begun.spec.schema)
        commit(catalog, replace(begun, spec=replace(begun.spec, schema=schema)), [])
    return {}


def stage(request: Request) -> dict[str, Any]:
    """The options of the write that creates or replaces a table.

    Nothing changes before this write.
    """
    check_provider(request.body[RequestKey.PROPERTIES], request.body[RequestKey.CATALOG])
    place, staged = _staged(request)
    return {
        ResponseKey.TABLE: request.shown,
        ResponseKey.OPTIONS: place.options(),
        ResponseKey.STAGED: staged,
    }


def _staged(request: Request) -> tuple[Place, dict[str, Any]]:
    """The place of a table that is created or replaced, and what else a write needs to know.

    Raises:
        DatasetExistsError, DatasetNotFoundError: the name exists or not, against the kind of stage.
        DatasetExistsError: the name is new, and the location has a dataset.
    """
    _refuse_branch(request)
    kind = request.body.get(RequestKey.STAGE, Stage.CREATE)
    given = request.body[RequestKey.PROPERTIES]
    properties = {
        key: text
        for key, text in given.items()
        if key not in RESERVED and not key.startswith(_OPTION)
    }
    own, texts = divided(properties)
    index = own.pop("index_columns", None)
    if own.pop("expire_rows", None) is not None:
        raise InvalidOptionError(
            option="expire_rows",
            reason="is for a table that is there: ALTER TABLE ... SET TBLPROPERTIES.",
        )
    staged: dict[str, Any] = {
        "layout": layout_of(own).to_json(),
        "index_columns": None if index is None else list(index),
        "partition_by": request.body[RequestKey.PARTITION_BY],
        "cluster_by": request.body[RequestKey.CLUSTER_BY],
        "properties": texts,
        "constraints": request.body.get(RequestKey.CONSTRAINTS, {}),
    }
    if request.is_path:
        place = place_of(request)
        replaces = _replaces(kind, knows(place), request.shown, request)
        return place, staged | {"register": None, "replaces": replaces, "managed": False}
    with names_of(request) as catalog:
        with catalog.read() as reader:
            reader.names.namespace(request.name[0])
            named = reader.names.find(request.name)
        replaces = _replaces(kind, named is not None, quoted(request.name), request)
        path = _location(catalog, request, named, given.get(LOCATION))
    place = Place(path, request.catalog, request.storage)
    if named is None and LOCATION in given and knows(place):
        raise DatasetExistsError(
            dataset=place.address().uri,
            hint="CREATE TABLE with this LOCATION, without columns and AS, gives it a name.",
        )
    managed = named is None and LOCATION not in given
    return place, staged | {
        "register": list(request.name),
        "replaces": replaces,
        "managed": managed,
    }


def _replaces(kind: str, found: bool, name: str, request: Request) -> bool:
    if found and kind == Stage.CREATE:
        raise DatasetExistsError(dataset=name, hint="Use IF NOT EXISTS or CREATE OR REPLACE TABLE.")
    if not found and kind == Stage.REPLACE:
        raise DatasetNotFoundError(dataset=name, catalog=request.body[RequestKey.CATALOG])
    return found


def _location(
    catalog: DatasetCatalog, request: Request, named: NamedDataset | None, given: str | None
) -> str:
    if named is None:
        return catalog.new_location(request.name, given)
    uri = catalog.locate(request.name)
    if given is not None and Place(given, None, {}).address().uri != uri:
        raise InvalidOptionError(
            option="LOCATION", value=given, reason=f"cannot change: the table is at {uri}."
        )
    return uri


def _columns(request: Request) -> StructType:
    return StructType.fromJson(json.loads(request.body[RequestKey.SCHEMA]))


def _with_defaults(request: Request, schema: pa.Schema) -> pa.Schema:
    """The schema of a new table with the default values of its columns."""
    for text in request.body[RequestKey.DEFAULTS]:
        value = json.loads(text)
        at = schema.names.index(value[RequestKey.FIELD])
        field = schema.field(at)
        sql = value.get(Computed.EXPRESSION)
        default = None if sql else literal_value(value[RequestKey.VALUE], field.type)
        schema = schema.set(at, with_write_default(field, default, sql))
    defaults_of(schema)
    return schema


# --- rename, drop ------------------------------------------------------------


def rename(request: Request) -> dict[str, Any]:
    """Give a table another name."""
    _require_name(request, "ALTER TABLE ... RENAME TO")
    with names_of(request) as catalog:
        renamed = request.body[RequestKey.RENAMED]
        if len(renamed) == 3 and renamed[0] == request.body[RequestKey.CATALOG]:
            renamed = renamed[1:]  # Spark takes the catalog's name for a namespace here
        catalog.rename(request.name, qualified(renamed))
    return {}


def drop(request: Request) -> dict[str, Any]:
    """Take a table's name away; with PURGE delete the dataset. Returns whether it existed."""
    _require_name(request, "DROP TABLE")
    with names_of(request) as catalog:
        try:
            catalog.drop(
                request.name,
                purge=request.body[RequestKey.PURGE],
                storage_options=request.storage or None,
            )
        except DatasetNotFoundError:
            return {ResponseKey.EXISTS: False}
    return {ResponseKey.EXISTS: True}


def _refuse_branch(request: Request) -> None:
    if request.branch is not None:
        raise InvalidOptionError(
            option="table",
            value=request.shown,
            reason="is a branch. It is made and dropped by CALL ...system.create_branch and "
            "drop_branch, or by dataset.branch(name) and dataset.drop_branch(name).",
        )


def _refuse_other_catalog(request: Request, location: str) -> None:
    """Explain how to use a dataset of the folder's own catalog: only that catalog can name it."""
    if has_own_catalog(location) and not knows(Place(location, request.catalog, request.storage)):
        by_path = f"{request.body[RequestKey.CATALOG]}.`{location}`"
        raise InvalidOptionError(
            option="LOCATION",
            value=location,
            reason="has a dataset of the folder's own catalog, which this catalog cannot name. "
            f"Use it by its path, {by_path}, or copy it: CREATE TABLE {request.shown} AS "
            f"SELECT * FROM {by_path}.",
        )


def _require_name(request: Request, statement: str) -> None:
    _refuse_branch(request)
    if request.is_path:
        raise InvalidOptionError(
            option="table",
            value=request.shown,
            reason=f"is known by its path: {statement} is for tables with a name.",
        )


# --- rows --------------------------------------------------------------------


def truncate(request: Request) -> dict[str, Any]:
    """Remove all rows, or those of a condition, as one commit, by the settings of the session.

    There is no commit where the table has no file.

    Raises:
        InvalidOptionError: there is no such setting, or its value is wrong.
        CommitConflictError: `expectedVersion` is another version.
    """
    settings = with_settings({}, request.body.get(RequestKey.SETTINGS, {}))
    given = Options(settings, SETTINGS, "truncating")
    isolation_of(given.text("isolation") or Isolation.WRITE_SERIALIZABLE.value)
    options = commit_options(given, mode="overwrite")
    address = place_of(request).address()
    with address.open() as catalog:
        with catalog.read() as reader:
            base = address.snapshot(catalog, reader)
            if options.expected_version is None and has_no_file(reader, base.dataset):
                return {}
            schema = without_metadata(base.schema)
        if terms := request.body.get(RequestKey.ROWS):
            where = PredicateSet.of([decode(term, schema) for term in terms])
            options = replace(options, overwrite_where=where)
        commit(catalog, begin(catalog, address, schema, options), [])
    return {}

"""Door. Creates, changes, renames and drops tables for Spark's catalog."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.types import DataType, StructField, StructType
from pyspark.sql.types import _parse_datatype_json_value as parse_type

from lakehouse_source.catalog.qualified_names import quoted
from lakehouse_source.catalog.sql.names import NamedDataset
from lakehouse_source.dataset import Dataset
from lakehouse_source.datasets import DatasetCatalog
from lakehouse_source.errors import (
    DatasetExistsError,
    DatasetNotFoundError,
    InvalidOptionError,
)
from lakehouse_source.language import Timestamp
from lakehouse_source.model import Layout
from lakehouse_source.schema.defaults import with_write_default
from lakehouse_source.spark.protocol.vocabulary import (
    Answer,
    Change,
    Key,
    Question,
    Stage,
)
from lakehouse_source.spark.reading.decode_conditions import VALUES
from lakehouse_source.spark.session.catalog_request import (
    Place,
    Request,
    has_own_catalog,
    knows,
    names_of,
    place_of,
    qualified,
)
from lakehouse_source.spark.tables.table_properties import divided
from lakehouse_source.spark.types.spark_types import arrow_schema
from lakehouse_source.write.commit.begin import begin
from lakehouse_source.write.commit.commit import commit
from lakehouse_source.write.commit.file_layout import layout_of
from lakehouse_source.write.commit.options import WriteOptions
from lakehouse_source.write.metadata.schema_change import SchemaUpdate
from lakehouse_source.write.metadata.set_properties import set_properties, set_table_properties

# Spark's own keys among the properties of a table.
_LOCATION, _COMMENT = "location", "comment"
_RESERVED = {_LOCATION, "provider", "external", "is_managed_location", "table_type", "owner"}
_OPTION = "option."


# --- create --------------------------------------------------------------------


def create(request: Request) -> dict[str, Any]:
    """Create a table without rows, or give a name to an existing dataset."""
    _refuse_branch(request)
    _check_provider(request)
    location = request.question[Question.PROPERTIES].get(_LOCATION)
    spark = _columns(request)
    if not spark.fields and location is not None and not request.is_path:
        _refuse_other_catalog(request, location)
        with names_of(request) as catalog:
            catalog.register(request.name, location)
        return {}
    place, staged = _staged(request)
    options = with_table(WriteOptions(), staged)
    address = place.address()
    with address.open(create=True) as catalog:
        begun = begin(catalog, address, arrow_schema(spark).remove_metadata(), options)
        schema = _with_defaults(request, begun.spec.schema)
        commit(catalog, replace(begun, spec=replace(begun.spec, schema=schema)), [])
    return {}


def stage(request: Request) -> dict[str, Any]:
    """The options of the write that creates or replaces a table.

    Nothing changes before this write.
    """
    _check_provider(request)
    place, staged = _staged(request)
    return {
        Answer.TABLE: request.shown,
        Answer.OPTIONS: place.options(),
        Answer.STAGED: staged,
    }


def with_table(options: WriteOptions, staged: Mapping[str, Any]) -> WriteOptions:
    """The options of a write that also creates or replaces a table, from `stage`.

    Raises:
        InvalidOptionError: the user gave an option that the statement decides.
    """
    for option, given in (
        ("partitionBy", options.partition_by),
        ("overwriteWhere", options.overwrite_where),
        ("expectedVersion", options.expected_version),
    ):
        if given is not None:
            raise InvalidOptionError(
                option=option,
                reason="is not for a write that creates or replaces a table, as saveAsTable does. "
                "To write to one that exists: df.write.insertInto(table), or df.writeTo(table).",
            )
    if options.dynamic_partitions and staged["replaces"]:
        raise InvalidOptionError(
            option="partitionOverwriteMode",
            value="dynamic",
            reason="is not for a write that replaces a table with its partitioning, comment and "
            "properties, as saveAsTable does. To replace the partitions of the rows: "
            "df.writeTo(table).overwritePartitions().",
        )
    register = staged["register"]
    layout = options.layout.over(Layout.from_json(staged["layout"]))
    index = staged["index_columns"]
    return replace(
        options,
        mode="overwrite" if staged["replaces"] else "error",
        overwrite_schema=staged["replaces"],
        schema_merge=False,
        dynamic_partitions=False,
        partition_by=tuple(staged["partition_by"]) or None,
        register_as=None if register is None else (register[0], register[1]),
        managed=staged["managed"],
        table_properties=staged["properties"],
        statement="replace" if staged["replaces"] else "create",
        layout=replace(layout, cluster_by=tuple(staged["cluster_by"]) or layout.cluster_by),
        index_columns=tuple(index)
        if options.index_columns is None and index is not None
        else options.index_columns,
    )


def _staged(request: Request) -> tuple[Place, dict[str, Any]]:
    """The place of a table that is created or replaced, and what else a write needs to know.

    Raises:
        DatasetExistsError, DatasetNotFoundError: the name exists or not, against the kind of stage.
        DatasetExistsError: the name is new, and the location has a dataset.
    """
    _refuse_branch(request)
    kind = request.question.get(Question.STAGE, Stage.CREATE)
    given = request.question[Question.PROPERTIES]
    properties = {
        key: text
        for key, text in given.items()
        if key not in _RESERVED and not key.startswith(_OPTION)
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
        "partition_by": request.question[Question.PARTITION_BY],
        "cluster_by": request.question[Question.CLUSTER_BY],
        "properties": texts,
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
        path = _location(catalog, request, named, given.get(_LOCATION))
    place = Place(path, request.catalog, request.storage)
    if named is None and _LOCATION in given and knows(place):
        raise DatasetExistsError(
            dataset=place.address().uri,
            hint="CREATE TABLE with this LOCATION, without columns and AS, gives it a name.",
        )
    managed = named is None and _LOCATION not in given
    return place, staged | {
        "register": list(request.name),
        "replaces": replaces,
        "managed": managed,
    }


def _replaces(kind: str, found: bool, name: str, request: Request) -> bool:
    if found and kind == Stage.CREATE:
        raise DatasetExistsError(dataset=name, hint="Use IF NOT EXISTS or CREATE OR REPLACE TABLE.")
    if not found and kind == Stage.REPLACE:
        raise DatasetNotFoundError(dataset=name, catalog=request.question[Question.CATALOG])
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
    return StructType.fromJson(json.loads(request.question[Question.SCHEMA]))


def _with_defaults(request: Request, schema: pa.Schema) -> pa.Schema:
    """The schema of a new table with the default values of its columns."""
    for text in request.question[Question.DEFAULTS]:
        value = json.loads(text)
        at = schema.names.index(value[Question.FIELD])
        field = schema.field(at)
        schema = schema.set(at, with_write_default(field, _value(value, field.type)))
    return schema


def _value(value: Mapping[str, Any], type_: pa.DataType) -> pa.Scalar | None:
    """A default value, which is sent as a condition that a column equals the value."""
    text = value[Question.VALUE]
    if text is None:
        return None
    term = json.loads(text)
    if term.get(Key.NULL) or not term.get(Key.VALUES):
        return None
    decoded = VALUES[term[Key.TYPE]](term[Key.VALUES][0])
    if isinstance(decoded, Timestamp):
        decoded = decoded.nanoseconds // 1000
    return pa.scalar(decoded, type_)


# --- change --------------------------------------------------------------------


def alter(request: Request) -> dict[str, Any]:
    """Change columns or properties, as one commit."""
    address = place_of(request).address()
    changes: list[Mapping[str, Any]] = request.question[Question.CHANGES]
    kinds = {change[Question.CHANGE] for change in changes}
    dataset = Dataset(address)
    if kinds == {Change.PROPERTY}:
        texts = {change[Question.FIELD]: change[Question.VALUE] for change in changes}
        for key in texts.keys() & _RESERVED:
            raise InvalidOptionError(option=key, reason="of a table of plake cannot be changed.")
        own, others = divided(texts)
        with address.open() as catalog:
            with catalog.read() as reader:
                base = address.snapshot(catalog, reader)
            # Earlier releases noted plake's own names as texts that did nothing.
            noted = base.dataset.properties.table_properties
            others |= {name: None for name in texts if name.lower() in own and name in noted}
            if own:
                set_properties(catalog, address, base, own, others)
            else:
                set_table_properties(catalog, address, base, others)
    elif kinds == {Change.CLUSTER} and len(changes) == 1:
        with address.open() as catalog:
            with catalog.read() as reader:
                base = address.snapshot(catalog, reader)
            set_properties(
                catalog, address, base, {"cluster_by": changes[0][Question.VALUE] or None}
            )
    elif kinds & {Change.PROPERTY, Change.CLUSTER}:
        raise InvalidOptionError(
            option="ALTER TABLE", reason="changes columns and properties: use two statements."
        )
    else:
        _check_columns_stay(dataset, changes)
        with dataset.update_schema() as schema:
            for change in changes:
                _change_column(schema, dataset, change)
    return {}


def _check_columns_stay(dataset: Dataset, changes: Sequence[Mapping[str, Any]]) -> None:
    """Refuse REPLACE COLUMNS, which Spark spells as dropping all columns and adding others."""
    dropped = {
        change[Question.FIELD][0].lower()
        for change in changes
        if change[Question.CHANGE] == Change.DELETE and len(change[Question.FIELD]) == 1
    }
    added = any(change[Question.CHANGE] == Change.ADD for change in changes)
    if added and dropped == {name.lower() for name in dataset.schema.names}:
        raise InvalidOptionError(
            option="ALTER TABLE ... REPLACE COLUMNS",
            reason="would drop all columns with their values, those of the same name too. Use ADD "
            "COLUMN, RENAME COLUMN, ALTER COLUMN and DROP COLUMN, or CREATE OR REPLACE TABLE.",
        )


def _change_column(schema: SchemaUpdate, dataset: Dataset, change: Mapping[str, Any]) -> None:
    path: tuple[str, ...] = tuple(change[Question.FIELD])
    kind = change[Question.CHANGE]
    if kind == Change.ADD:
        spark, field = _type(change, path)
        schema.add_column(
            path,
            field.type,
            default=_default(change, field.type),
            nullable=change[Question.NULLABLE],
            comment=change[Question.COMMENT],
        )
        if field.metadata:
            schema.set_spark_type(path, spark.simpleString(), field.metadata)
        _move(schema, path, change)
    elif kind == Change.RENAME:
        schema.rename_column(path, change[Question.VALUE])
    elif kind == Change.DELETE:
        schema.drop_column(path)
    elif kind == Change.WIDEN:
        spark, field = _type(change, path)
        schema.promote_column(path, field.type)
        schema.set_spark_type(path, spark.simpleString(), field.metadata or {})
    elif kind == Change.NULLABILITY:
        schema.set_nullable(path, change[Question.NULLABLE])
    elif kind == Change.COMMENT:
        schema.set_comment(path, change[Question.COMMENT] or None)
    elif kind == Change.MOVE:
        _move(schema, path, change)
    else:
        assert kind == Change.DEFAULT, kind
        names = [name.lower() for name in dataset.schema.names]
        type_ = dataset.schema.field(names.index(path[0].lower())).type
        schema.set_default(path, _default(change, type_))


def _move(schema: SchemaUpdate, path: Sequence[str], change: Mapping[str, Any]) -> None:
    """Spark names a neighbour in the same struct; no neighbour means the first place."""
    if Question.AFTER in change:
        after = change[Question.AFTER]
        place = None if after is None else (*path[:-1], after)
        schema.reorder_columns([path], after=place)


def _default(change: Mapping[str, Any], type_: pa.DataType) -> pa.Scalar | None:
    text = change.get(Question.VALUE)
    return None if text is None else _value(json.loads(text), type_)


def _type(change: Mapping[str, Any], path: Sequence[str]) -> tuple[DataType, pa.Field]:
    """The type that a change gives to a column, and the field in which it is stored."""
    spark: DataType = parse_type(json.loads(change[Question.TYPE]))
    whole = spark
    for name in reversed(path[1:]):
        # A nested field gets its Spark type from the struct around it.
        whole = StructType([StructField(name, whole)])
    field = arrow_schema(StructType([StructField(path[0], whole)])).field(0)
    for _ in path[1:]:
        field = field.type.field(0)
    return spark, field


def rename(request: Request) -> dict[str, Any]:
    """Give a table another name."""
    _require_name(request, "ALTER TABLE ... RENAME TO")
    with names_of(request) as catalog:
        renamed = request.question[Question.RENAMED]
        if len(renamed) == 3 and renamed[0] == request.question[Question.CATALOG]:
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
                purge=request.question[Question.PURGE],
                storage_options=request.storage or None,
            )
        except DatasetNotFoundError:
            return {Answer.EXISTS: False}
    return {Answer.EXISTS: True}


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
        by_path = f"{request.question[Question.CATALOG]}.`{location}`"
        raise InvalidOptionError(
            option="LOCATION",
            value=location,
            reason="has a dataset of the folder's own catalog, which this catalog cannot name. "
            f"Use it by its path, {by_path}, or copy it: CREATE TABLE {request.shown} AS "
            f"SELECT * FROM {by_path}.",
        )


def _check_provider(request: Request) -> None:
    """Refuse a table of another format, which would silently become one of plake."""
    provider = request.question[Question.PROPERTIES].get("provider", "plake")
    if provider.lower() != "plake":
        raise InvalidOptionError(
            option="USING",
            value=provider,
            reason=f"is not for the catalog {request.question[Question.CATALOG]}: its tables are "
            "plake's. Leave USING out, or create the table in another catalog of Spark.",
        )


def _require_name(request: Request, statement: str) -> None:
    _refuse_branch(request)
    if request.is_path:
        raise InvalidOptionError(
            option="table",
            value=request.shown,
            reason=f"is known by its path: {statement} is for tables with a name.",
        )

"""Door. Changes of columns as Spark names them, of ALTER TABLE and of writes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.types import DataType, StructField, StructType
from pyspark.sql.types import _parse_datatype_json_value as parse_type

from lakehouse_source.read.address import Address
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.spark.protocol.vocabulary import Change, Computed, RequestKey
from lakehouse_source.spark.reading.pushdown import literal_value
from lakehouse_source.spark.types import arrow_schema
from lakehouse_source.write.metadata.schema_change import SchemaUpdate


def evolved(address: Address, base: Snapshot, changes: Sequence[Mapping[str, Any]]) -> Snapshot:
    """A version under the schema that it has with a statement's changes, which are not committed.

    Other plans must not use what plans of it know: its types are not those of its schema version.
    """
    update = SchemaUpdate(address, base, lambda: None)
    for change in changes:
        change_column(update, base.schema, change)
    return replace(base, schema=update.schema, history=None)


def change_column(schema: SchemaUpdate, before: pa.Schema, change: Mapping[str, Any]) -> None:
    path: tuple[str, ...] = tuple(change[RequestKey.FIELD])
    kind = change[RequestKey.CHANGE]
    if kind == Change.ADD:
        spark, field = _type(change, path)
        schema.add_column(
            path,
            field.type,
            default=_default(change, field.type),
            nullable=change[RequestKey.NULLABLE],
            comment=change[RequestKey.COMMENT],
        )
        if field.metadata:
            schema.set_spark_type(path, spark.simpleString(), field.metadata)
        _move(schema, path, change)
    elif kind == Change.RENAME:
        schema.rename_column(path, change[RequestKey.VALUE])
    elif kind == Change.DELETE:
        schema.drop_column(path)
    elif kind == Change.WIDEN:
        spark, field = _type(change, path)
        schema.promote_column(path, field.type)
        schema.set_spark_type(path, spark.simpleString(), field.metadata or {})
    elif kind == Change.NULLABILITY:
        schema.set_nullable(path, change[RequestKey.NULLABLE])
    elif kind == Change.COMMENT:
        schema.set_comment(path, change[RequestKey.COMMENT] or None)
    elif kind == Change.MOVE:
        _move(schema, path, change)
    else:
        assert kind == Change.DEFAULT, kind
        names = [name.lower() for name in before.names]
        type_ = before.field(names.index(path[0].lower())).type
        given = json.loads(change.get(RequestKey.VALUE) or "{}")
        if Computed.EXPRESSION in given:
            schema.set_default(path, sql=given[Computed.EXPRESSION])
        else:
            schema.set_default(path, _default(change, type_))


def _move(schema: SchemaUpdate, path: Sequence[str], change: Mapping[str, Any]) -> None:
    """Spark names a neighbour in the same struct; no neighbour means the first place."""
    if RequestKey.AFTER in change:
        after = change[RequestKey.AFTER]
        place = None if after is None else (*path[:-1], after)
        schema.reorder_columns([path], after=place)


def _default(change: Mapping[str, Any], type_: pa.DataType) -> pa.Scalar | None:
    text = change.get(RequestKey.VALUE)
    return None if text is None else literal_value(json.loads(text)[RequestKey.VALUE], type_)


def _type(change: Mapping[str, Any], path: Sequence[str]) -> tuple[DataType, pa.Field]:
    """The type that a change gives to a column, and the field in which it is stored."""
    spark: DataType = parse_type(json.loads(change[RequestKey.TYPE]))
    whole = spark
    for name in reversed(path[1:]):
        # A nested field gets its Spark type from the struct around it.
        whole = StructType([StructField(name, whole)])
    field = arrow_schema(StructType([StructField(path[0], whole)])).field(0)
    for _ in path[1:]:
        field = field.type.field(0)
    return spark, field

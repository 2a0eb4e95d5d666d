"""Door. Writes bound conditions and ordinals as Spark SQL with exactly the same meaning.

A bound condition has a fixed meaning. Every literal is written in the type of its
column, so Spark converts nothing. Text and bytes are written in hexadecimal, because a
setting decides how Spark reads a backslash.
"""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa

from lakehouse_source.model import Ordinal
from lakehouse_source.predicate import (
    BoundAnd,
    BoundColumn,
    BoundCompare,
    BoundConstant,
    BoundExpression,
    BoundIn,
    BoundIsNull,
    BoundLike,
    BoundNode,
    BoundNot,
    BoundOr,
    BoundPredicate,
    BoundText,
    IfPresent,
)
from lakehouse_source.schema.ordinal import domain, from_ordinal
from lakehouse_source.spark.types import readable, spark_schema

# From 1900-01-02 and from 1582-10-15 up to the year 10000. `ChooseReader.java` has them too.
_MICROSECONDS = range(-2_208_902_400_000_000, 253_402_300_800_000_000)
_DAYS = range(-141_427, 2_932_897)
_TEXT = {"prefix": "startswith", "suffix": "endswith", "contains": "contains"}


def condition_sql(predicate: BoundPredicate) -> str:
    """The condition, for a frame with the names and types of the schema that it is bound to."""
    return _sql(predicate.root)


def _sql(node: BoundNode) -> str:
    if isinstance(node, (BoundAnd, BoundOr)):
        joint = " AND " if isinstance(node, BoundAnd) else " OR "
        return "(" + joint.join(_sql(term) for term in node.terms) + ")"
    if isinstance(node, BoundNot):
        return f"(NOT {_sql(node.term)})"
    if isinstance(node, BoundConstant):
        return {True: "TRUE", False: "FALSE", None: "CAST(NULL AS BOOLEAN)"}[node.value]
    assert not isinstance(node, BoundExpression)  # Spark gives conditions as SQL
    column = column_sql(node.column)
    if isinstance(node, BoundIsNull):
        return f"({column} IS NULL)"
    if isinstance(node, IfPresent):
        unknown = "CAST(NULL AS BOOLEAN)"
        if node.truth:
            return f"({column} IS NOT NULL OR {unknown})"
        return f"({column} IS NULL AND {unknown})"
    if isinstance(node, BoundCompare):
        function = _unpushed(node.column.type, node.value)
        if function is not None:
            return f"({function}({column}) {node.op} {_count(node.value, node.column)})"
        return f"({column} {node.op} {literal_sql(node.value, node.column.type)})"
    if isinstance(node, BoundIn):
        return _in(node, column)
    if isinstance(node, BoundText):
        text = literal_sql(node.text, node.column.type)
        return f"{_TEXT[node.form]}({column}, {text})"
    assert isinstance(node, BoundLike)
    pattern = rf"(?s)\A(?:{node.regex})\z".encode()
    return f"({column} RLIKE {literal_sql(pattern, pa.string())})"


def _unpushed(type_: pa.DataType, *ordinals: Ordinal | None) -> str | None:
    """The function that makes a number of a column, where a constant is not safe to push down.

    Spark makes the filters of its Parquet reader of `java.sql` values. Constants after the year
    9999 overflow. Early ones are counted in the Julian calendar and in local time: 1582-10-10
    becomes 1582-10-15 (measured on Spark 4.3). A function of a column is not pushed down.
    """
    if pa.types.is_date(type_):
        safe, function = _DAYS, "unix_date"
    elif pa.types.is_timestamp(type_) and type_.tz is not None:
        safe, function = _MICROSECONDS, "unix_micros"
    else:
        return None
    found = (one for one in ordinals if isinstance(one, int))
    return None if all(_number(one, type_) in safe for one in found) else function


def _number(ordinal: int, type_: pa.DataType) -> int:
    """Days of a date or microseconds of a timestamp, as the functions of `_unpushed` tell them."""
    return ordinal if pa.types.is_date(type_) else ordinal * domain(type_).unit_ns // 1000


def _count(ordinal: Ordinal | None, column: BoundColumn) -> str:
    """The SQL of a `_number`."""
    assert isinstance(ordinal, int)
    kind = "INT" if pa.types.is_date(column.type) else "BIGINT"
    return f"CAST({_number(ordinal, column.type)} AS {kind})"


def _in(node: BoundIn, column: str) -> str:
    function = _unpushed(node.column.type, *node.values)
    if function is not None:
        column = f"{function}({column})"
        values = [_count(value, node.column) for value in node.values]
    else:
        values = [literal_sql(value, node.column.type) for value in node.values]
    if node.has_nan:
        values.append(literal_sql(float("nan"), node.column.type))
    if node.column.is_float:
        # In long lists Spark looks numbers up by their bits, and those of -0.0 and 0.0 differ.
        terms = [f"{column} = {value}" for value in values]
        terms += ["CAST(NULL AS BOOLEAN)"] if node.has_null else []
        return "(" + " OR ".join(terms) + ")"
    values += ["NULL"] if node.has_null else []
    return f"({column} IN ({', '.join(values)}))"


def column_sql(column: BoundColumn) -> str:
    """The column. A float is written in a form that Spark does not push into Parquet.

    Spark's Parquet reader skips row groups by footer statistics, which leave NaN out,
    and by dictionaries, in which -0.0 differs from 0.0. Both lose rows (measured on
    Spark 4.3).
    """
    name = ".".join(map(quoted, column.path))
    return f"nanvl({name}, {name})" if column.is_float else name


def quoted(name: str) -> str:
    """A name in backquotes, with any characters in it."""
    return "`" + name.replace("`", "``") + "`"


def literal_sql(ordinal: Ordinal | None, type_: pa.DataType) -> str:
    """An ordinal of an Arrow type as a constant of the Spark type of the column. None is NULL."""
    own = spark_schema(pa.schema([pa.field("value", readable(type_))]))[0].dataType
    name = own.simpleString()
    if ordinal is None:
        return f"CAST(NULL AS {name})"
    kind = domain(type_)
    if isinstance(ordinal, bytes):
        constant = f"X'{ordinal.hex()}'"
        return constant if kind.kind == "binary" else f"CAST({constant} AS STRING)"
    if kind.kind == "float":
        return f"CAST('{float_text(float(ordinal))}' AS {name})"
    assert not isinstance(ordinal, float)
    if kind.kind == "bool":
        return "TRUE" if ordinal else "FALSE"
    if kind.kind == "int":
        return f"CAST({ordinal} AS {name})"
    if kind.kind == "decimal":
        value = from_ordinal(ordinal, type_)
        assert isinstance(value, Decimal)
        return f"CAST('{value:f}' AS {name})"
    if kind.kind == "date":
        return f"date_from_unix_date({ordinal})"
    microseconds = ordinal * kind.unit_ns // 1000
    if kind.kind == "timestamp" and kind.zoned:
        return f"timestamp_micros({microseconds})"
    span = f"({microseconds} * INTERVAL '0.000001' SECOND)"
    return f"(TIMESTAMP_NTZ'1970-01-01' + {span})" if kind.kind == "timestamp" else span


def float_text(value: float) -> str:
    """A float as text that Spark and Java parse."""
    if value != value:
        return "NaN"
    return {float("inf"): "Infinity", -float("inf"): "-Infinity"}.get(value) or repr(value)

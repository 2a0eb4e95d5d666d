"""Pure. A card for each type, and the one table that tells which type's values fit another type."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

import pyarrow as pa

from lakehouse_source.schema.fields import is_nested
from lakehouse_source.schema.ordinal import UNIT_NS, domain
from lakehouse_source.schema.variant import VARIANT, is_variant

t = pa.types


@dataclass(frozen=True, slots=True)
class Card:
    """What others know of a type whose values are stored.

    Args:
        sql: its names in Spark's SQL, the one that is shown first.
        iceberg: its name in Iceberg; None: no type there has the same values in Parquet.
        duckdb: the name that DuckDB itself returns; None: it has no type for exactly these values.
        engines: every engine reads the same values from Parquet.
        spark: Spark's own reader gives the same values.
        text: each value has one text, from which Spark makes the same value.
        digits: how many digits of a second SQL may write in parentheses after the name; that is
            then another type, which is not supported. 0: the name takes no number.
    """

    sql: tuple[str, ...] = ()
    iceberg: str | None = None
    duckdb: str | None = None
    engines: bool = False
    spark: bool = False
    text: bool = False
    digits: int = 0


def _plain(sql: str, iceberg: str, duckdb: str, *, text: bool = True) -> Card:
    return Card(tuple(sql.split()), iceberg, duckdb, True, True, text)


# Spark's reader has no unsigned integers and truncates nanoseconds. Files of others may hold
# nanoseconds as INT96. What is left out of `engines` some engines lack, or read as another type.
CARDS = {
    pa.bool_(): _plain("BOOLEAN", "boolean", "BOOLEAN"),
    pa.int8(): _plain("TINYINT BYTE", "int", "TINYINT"),
    pa.int16(): _plain("SMALLINT SHORT", "int", "SMALLINT"),
    pa.int32(): _plain("INT INTEGER", "int", "INTEGER"),
    pa.int64(): _plain("BIGINT LONG", "long", "BIGINT"),
    pa.uint8(): Card((), "int", "UTINYINT", engines=True, text=True),
    pa.uint16(): Card((), "int", "USMALLINT", engines=True, text=True),
    pa.uint32(): Card((), None, "UINTEGER", engines=True, text=True),
    pa.uint64(): Card((), None, "UBIGINT", engines=True, text=True),
    pa.float16(): Card(text=True),
    pa.float32(): _plain("FLOAT REAL", "float", "FLOAT"),
    pa.float64(): _plain("DOUBLE", "double", "DOUBLE"),
    # Spark casts to CHAR(3) as to STRING.
    pa.string(): _plain("STRING CHAR CHARACTER VARCHAR", "string", "VARCHAR"),
    pa.binary(): _plain("BINARY", "binary", "BLOB", text=False),
    pa.date32(): _plain("DATE", "date", "DATE"),
    pa.time64("us"): Card(("TIME",), "time", "TIME", digits=6),
    pa.timestamp("ms"): Card((), "timestamp", "TIMESTAMP_MS", text=True),
    pa.timestamp("us"): _plain("TIMESTAMP_NTZ", "timestamp", "TIMESTAMP"),
    pa.timestamp("ns"): Card((), None, "TIMESTAMP_NS"),
    pa.timestamp("ms", "UTC"): Card((), "timestamptz", text=True),
    pa.timestamp("us", "UTC"): Card(
        *(("TIMESTAMP", "TIMESTAMP_LTZ"), "timestamptz", "TIMESTAMP WITH TIME ZONE"),
        *(True, True, True),
    ),
    # Files hold it as a group with an annotation, which each reader takes for its own VARIANT.
    VARIANT: Card(("VARIANT",), spark=True),
}
_UNKNOWN = Card()


@lru_cache(maxsize=1024)
def card(type_: pa.DataType) -> Card:
    """The card of a type without fields; nobody knows a type that no dataset stores."""
    if t.is_decimal128(type_) and 0 <= type_.scale <= type_.precision:
        digits = (type_.precision, type_.scale)
        sql = "DECIMAL({},{})".format(*digits)
        return _plain(sql, "decimal({}, {})".format(*digits), sql)
    if t.is_fixed_size_binary(type_):
        return Card(iceberg=f"fixed[{type_.byte_width}]")
    return Card(text=True) if t.is_decimal(type_) else CARDS.get(type_, _UNKNOWN)


# --- The one table that tells which type's values fit another type.
#
# It serves two questions. May a column change its type? Only if every value of the old type
# survives exactly, because files are not rewritten. May data be written into a column of another
# type? Yes, even if only some values survive: the writer checks each cast and refuses the write if
# a value does not fit. A float never becomes a decimal, nor a decimal a float: the conversion may
# round.


# Bits of precision by width of the float: integers up to 2**bits are exact (IEEE 754, table 3.5).
_FLOAT_PRECISION = {16: 11, 32: 24, 64: 53}


class Fit(Enum):
    """How many values of one type are exact in another."""

    EVERY = "every value is exact"
    CHECKED = "values in the range of the other type are exact, and a cast checks the range"
    NONE = "not comparable, or a cast may round"


@dataclass(frozen=True, slots=True)
class Rule:
    """The rule for two families of types. `source` gives the reason."""

    narrow: Callable[[pa.DataType], bool]
    wide: Callable[[pa.DataType], bool]
    fit: Callable[[pa.DataType, pa.DataType], Fit]
    source: str


def _every_if(condition: bool) -> Fit:
    return Fit.EVERY if condition else Fit.NONE


def _integers(narrow: pa.DataType, wide: pa.DataType) -> Fit:
    mine, theirs = domain(narrow), domain(wide)
    return _every_if(theirs.low <= mine.low and mine.high <= theirs.high)


def _integer_to_float(narrow: pa.DataType, wide: pa.DataType) -> Fit:
    if max(-domain(narrow).low, domain(narrow).high) <= 1 << _FLOAT_PRECISION[wide.bit_width]:
        return Fit.EVERY
    # Arrow's cast to half floats rounds without a check.
    return Fit.NONE if wide.bit_width == 16 else Fit.CHECKED


def _integer_to_decimal(narrow: pa.DataType, wide: pa.DataType) -> Fit:
    digits = len(str(domain(narrow).high))
    return _every_if(wide.precision - wide.scale >= digits)


def _floats(narrow: pa.DataType, wide: pa.DataType) -> Fit:
    return _every_if(narrow.bit_width <= wide.bit_width)


def _decimals(narrow: pa.DataType, wide: pa.DataType) -> Fit:
    digits = wide.precision - wide.scale >= narrow.precision - narrow.scale
    return _every_if(wide.scale >= narrow.scale and digits)


def _temporal(narrow: pa.DataType, wide: pa.DataType) -> Fit:
    """Dates, times of day, timestamps and durations: a finer unit has a shorter range."""
    mine, theirs = domain(narrow), domain(wide)
    if mine.zoned != theirs.zoned or mine.unit_ns < theirs.unit_ns:
        return Fit.NONE
    factor = mine.unit_ns // theirs.unit_ns
    if theirs.low <= mine.low * factor and mine.high * factor <= theirs.high:
        return Fit.EVERY
    return Fit.CHECKED


def _times(narrow: pa.DataType, wide: pa.DataType) -> Fit:
    return _every_if(UNIT_NS[narrow.unit] >= UNIT_NS[wide.unit])


RULES = (
    Rule(
        t.is_null,
        lambda _: True,
        lambda _narrow, _wide: Fit.EVERY,
        "Arrow columnar format, Null layout: the type has no value but NULL.",
    ),
    Rule(
        t.is_integer,
        t.is_integer,
        _integers,
        "Arrow columnar format, Int: two's complement, the ranges decide.",
    ),
    Rule(
        t.is_integer,
        t.is_floating,
        _integer_to_float,
        "IEEE 754, section 3.4: integers of up to 11, 24 or 53 bits are exact. Arrow's cast of "
        "larger ones to float32 and float64 refuses what is outside of that range.",
    ),
    Rule(
        t.is_integer,
        t.is_decimal,
        _integer_to_decimal,
        "Parquet, LogicalTypes.md, DECIMAL: precision - scale digits before the point. Arrow's "
        "cast asks for room for all digits of the integer type.",
    ),
    Rule(
        t.is_floating,
        t.is_floating,
        _floats,
        "IEEE 754, section 5.4.2: conversions to a wider format are exact.",
    ),
    Rule(
        t.is_decimal,
        t.is_decimal,
        _decimals,
        "Parquet, LogicalTypes.md, DECIMAL: unscaled * 10**-scale; both the digits before and "
        "those after the point need room.",
    ),
    Rule(
        t.is_date32,
        t.is_timestamp,
        _temporal,
        "Arrow Schema.fbs, Date and Timestamp: a date32 reaches year 5.8 million; timestamps reach "
        "year 292 million in ms, 292 thousand in us and 2262 in ns.",
    ),
    Rule(
        t.is_timestamp,
        t.is_timestamp,
        _temporal,
        "Arrow Schema.fbs, Timestamp: int64 counts of the unit since the epoch.",
    ),
    Rule(
        t.is_duration,
        t.is_duration,
        _temporal,
        "Arrow Schema.fbs, Duration: int64 counts of the unit.",
    ),
    Rule(
        t.is_time,
        t.is_time,
        _times,
        "Arrow Schema.fbs, Time: counts from 0 up to 86,400 seconds, which fit every unit's width.",
    ),
    Rule(
        t.is_fixed_size_binary,
        t.is_binary,
        lambda _narrow, _wide: Fit.EVERY,
        "Arrow columnar format: the same bytes with their length beside them.",
    ),
)


def fit(narrow: pa.DataType, wide: pa.DataType) -> Fit:
    """How many values of the storage type `narrow` are exact in the storage type `wide`."""
    if narrow == wide:
        return Fit.EVERY
    for rule in RULES:
        if rule.narrow(narrow) and rule.wide(wide):
            return rule.fit(narrow, wide)
    return Fit.NONE


def is_provable(narrow: pa.DataType, wide: pa.DataType) -> bool:
    """Tell whether bounds of stored values can show that a column may change its type.

    This is true for dates, timestamps and durations. A column of int64 does not become
    float64: the next append with a larger integer would be refused.
    """
    return fit(narrow, wide) is Fit.CHECKED and t.is_temporal(narrow)


def prints_as_string(type_: pa.DataType) -> bool:
    """Tell whether `promote_to_string` can turn values of the type into text."""
    return not is_nested(type_) and not t.is_binary(type_) and not is_variant(type_)

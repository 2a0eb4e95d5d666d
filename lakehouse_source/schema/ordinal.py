"""Pure. Values of leaf columns as ordinals: integers, floats or bytes that order as values do.

    booleans, integers   the number
    decimals             the unscaled number, at the type's scale
    dates                days since 1970-01-01
    timestamps, times,   count of the type's unit (since the epoch in UTC, since
    durations            the epoch on the wall clock, since midnight)
    floats               the number as a double, -0.0 folded into 0.0
    strings, binaries    the bytes (UTF-8 order is code point order)

Python's own temporal values have only microseconds and the years 1 to 9999. Ordinals do not have
these limits, so integers are accepted wherever a count makes sense.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Context, Decimal
from functools import lru_cache
from typing import Any, TypeAlias

import pyarrow as pa

from lakehouse_source.model import Ordinal

UNIT_NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
DAY_NS = 86_400 * 10**9
# The calendar repeats after these years, which have these days.
YEARS = 400
YEARS_DAYS = 146_097
EPOCH = datetime(1970, 1, 1)
EPOCH_DATE = date(1970, 1, 1)
# Wide enough for decimal256; the default context rounds to 28 digits.
EXACT = Context(prec=200, Emax=10**6, Emin=-(10**6))

# What `from_ordinal` returns: int for temporal values that Python's types cannot hold.
PythonValue: TypeAlias = (
    bool | int | float | Decimal | str | bytes | date | datetime | time | timedelta
)


# Kinds of values that have ordinals, with Python's types for them.
PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "bool": (bool,),
    "int": (int,),
    "float": (float, int),
    "decimal": (Decimal, int),
    "date": (date,),
    "timestamp": (datetime,),
    "time": (time,),
    "duration": (timedelta,),
    "string": (str,),
    "binary": (bytes, bytearray, memoryview),
}
# Kinds whose ordinals count units of time, and what Arrow's values are views of.
_TEMPORAL = ("date", "timestamp", "time", "duration")
_NO_KEYS = ("float", "duration", "null", "other")


@dataclass(frozen=True, slots=True)
class Domain:
    """What ordinals of a type mean.

    `kind` is one of `PYTHON_TYPES`, null or other. `low` and `high` bound integer ordinals.
    """

    kind: str
    low: int = 0
    high: int = 0
    scale: int = 0
    unit_ns: int = 1
    zoned: bool = False
    bits: int = 64

    @property
    def ordered(self) -> bool:
        """Tell whether the type has ordinals."""
        return self.kind in PYTHON_TYPES

    @property
    def temporal(self) -> bool:
        """Tell whether values are stored as counts of days or of a unit."""
        return self.kind in _TEMPORAL

    @property
    def may_be_key(self) -> bool:
        """Tell whether values that are equal are the same to every expression and engine.

        0.0 equals -0.0 and NaN equals NaN, so people find floats equal that look different, and
        other engines find them different.
        """
        return self.kind not in _NO_KEYS


_SIGNED = {n: (-(1 << (n - 1)), (1 << (n - 1)) - 1) for n in (8, 16, 32, 64)}


@lru_cache(maxsize=1024)
def domain(type_: pa.DataType) -> Domain:
    """The domain of a type."""
    t = pa.types
    if t.is_boolean(type_):
        return Domain("bool", 0, 1)
    if t.is_integer(type_):
        bits = type_.bit_width
        if t.is_unsigned_integer(type_):
            return Domain("int", 0, (1 << bits) - 1, bits=bits)
        return Domain("int", *_SIGNED[bits], bits=bits)
    if t.is_floating(type_):
        return Domain("float", bits=type_.bit_width)
    if t.is_decimal(type_):
        most = 10**type_.precision - 1
        return Domain("decimal", -most, most, type_.scale, bits=type_.bit_width)
    if t.is_date32(type_):
        return Domain("date", *_SIGNED[32], unit_ns=DAY_NS)
    if t.is_timestamp(type_):
        unit = UNIT_NS[type_.unit]
        return Domain("timestamp", *_SIGNED[64], unit_ns=unit, zoned=type_.tz is not None)
    if t.is_time(type_):
        unit = UNIT_NS[type_.unit]
        return Domain("time", *_SIGNED[64], unit_ns=unit)
    if t.is_duration(type_):
        return Domain("duration", *_SIGNED[64], unit_ns=UNIT_NS[type_.unit])
    if t.is_string(type_) or t.is_large_string(type_) or t.is_string_view(type_):
        return Domain("string")
    if (
        t.is_binary(type_)
        or t.is_large_binary(type_)
        or t.is_fixed_size_binary(type_)
        or t.is_binary_view(type_)
    ):
        return Domain("binary")
    if t.is_dictionary(type_):
        return domain(type_.value_type)
    return Domain("null" if t.is_null(type_) else "other")


# --- temporal arithmetic ----------------------------------------------------


def wall_ns(value: datetime) -> int:
    """Nanoseconds from 1970-01-01 to a datetime, its time zone ignored."""
    # A pandas Timestamp is a datetime too; its difference to EPOCH keeps the nanoseconds.
    return timedelta_ns(value.replace(tzinfo=None) - EPOCH)


def instant_ns(value: datetime) -> int:
    """Nanoseconds from the epoch to a datetime; without a zone it is in UTC."""
    offset = value.utcoffset()
    return wall_ns(value) - (0 if offset is None else timedelta_ns(offset))


def timedelta_ns(value: timedelta) -> int:
    """Nanoseconds in a timedelta, exact also for those of pandas."""
    whole = (value.days * 86_400 + value.seconds) * 10**6 + value.microseconds
    return whole * 1000 + int(getattr(value, "nanoseconds", 0))


def time_ns(value: time) -> int:
    """Nanoseconds from midnight to a time of day."""
    seconds = value.hour * 3600 + value.minute * 60 + value.second
    return seconds * 10**9 + value.microsecond * 1000


# --- values to ordinals -----------------------------------------------------


def to_ordinal(value: Any, type_: pa.DataType) -> Ordinal:
    """The ordinal of a value of the type, given as a Python value or an Arrow scalar.

    Temporal values may be given as counts of the type's unit. Aware datetimes
    are instants; naive ones in a zoned column are in UTC.
    """
    kind = domain(type_)
    if isinstance(value, pa.Scalar):
        value = _unwrap(value, kind)
    name = kind.kind
    if name == "string":
        if isinstance(value, str):
            return value.encode()
        if isinstance(value, bytes):
            return value
    elif name == "binary":
        if isinstance(value, (bytes, bytearray, memoryview)):
            return bytes(value)
        if isinstance(value, str):
            return value.encode()
    elif name == "float":
        if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
            return float(value) + 0.0
    elif name == "bool":
        if isinstance(value, bool) or value in (0, 1):
            return int(value)
    elif name == "decimal":
        # An int is refused: it could mean a number or an ordinal, which differ by the scale.
        if isinstance(value, Decimal):
            return _unscaled(value, kind.scale)
    elif name == "int":
        if isinstance(value, int) and not isinstance(value, bool):
            return int(value)
    elif kind.temporal:
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        return _count(value, kind)
    raise ValueError(f"{value!r} ({type(value).__name__}) is not a value of type {type_}")


def _count(value: Any, kind: Domain) -> int:
    nanoseconds: int | None = None
    if kind.kind == "date":
        if isinstance(value, date) and not isinstance(value, datetime):
            return (value - EPOCH_DATE).days
    elif kind.kind == "timestamp":
        if isinstance(value, datetime):
            nanoseconds = instant_ns(value) if kind.zoned else wall_ns(value)
        elif isinstance(value, date):
            return (value - EPOCH_DATE).days * DAY_NS // kind.unit_ns
    elif kind.kind == "time":
        if isinstance(value, time):
            nanoseconds = time_ns(value)
    elif isinstance(value, timedelta):
        nanoseconds = timedelta_ns(value)
    if nanoseconds is None:
        raise ValueError(f"{value!r} ({type(value).__name__}) is not a {kind.kind}")
    count, rest = divmod(nanoseconds, kind.unit_ns)
    if rest:
        raise ValueError(f"{value!r} is finer than the column's unit of {kind.unit_ns} ns")
    return count


def _unscaled(value: Decimal, scale: int) -> int:
    shifted = value.scaleb(scale, context=EXACT)
    whole = int(shifted)
    if whole != shifted:
        raise ValueError(f"{value} has more than {scale} digits after the point")
    return whole


def _unwrap(scalar: pa.Scalar, kind: Domain) -> Any:
    """The value of an Arrow scalar in a form that `to_ordinal` takes for the target kind."""
    if not scalar.is_valid:
        raise ValueError("null has no ordinal")
    if isinstance(scalar, pa.DictionaryScalar):
        return _unwrap(scalar.value, kind)
    source = domain(scalar.type)
    if source.kind in ("timestamp", "time", "duration") and kind.kind == source.kind:
        count, rest = divmod(scalar.value * source.unit_ns, kind.unit_ns)
        if rest:
            raise ValueError(f"{scalar} is finer than the column's unit of {kind.unit_ns} ns")
        return count
    if source.kind == "date" and kind.kind == "date":
        return scalar.value
    return scalar.as_py()


# --- ordinals to values -----------------------------------------------------


def from_ordinal(ordinal: Ordinal, type_: pa.DataType) -> PythonValue:
    """The Python value of an ordinal.

    Temporal values that Python's types cannot hold (years outside of 1 to 9999, parts
    of a microsecond) stay counts of the type's unit. Zoned timestamps are aware, in UTC.
    """
    kind = domain(type_)
    name = kind.kind
    if isinstance(ordinal, bytes):
        return ordinal.decode() if name == "string" else ordinal
    if isinstance(ordinal, float) or name == "float":
        return float(ordinal)
    if name == "bool":
        return bool(ordinal)
    if name == "decimal":
        return Decimal(ordinal).scaleb(-kind.scale, context=EXACT)
    if name == "int":
        return ordinal
    try:
        return _temporal_value(ordinal, kind)
    except OverflowError:
        return ordinal


def _temporal_value(ordinal: int, kind: Domain) -> PythonValue:
    if kind.kind == "date":
        return EPOCH_DATE + timedelta(days=ordinal)
    micros, rest = divmod(ordinal * kind.unit_ns, 1000)
    if rest:
        return ordinal
    if kind.kind == "duration":
        return timedelta(microseconds=micros)
    if kind.kind == "time":
        if not 0 <= micros < 86_400 * 10**6:
            return ordinal
        return (EPOCH + timedelta(microseconds=micros)).time()
    moment = EPOCH + timedelta(microseconds=micros)
    return moment.replace(tzinfo=timezone.utc) if kind.zoned else moment


def to_scalar(ordinal: Ordinal, type_: pa.DataType) -> pa.Scalar:
    """The Arrow scalar of an ordinal."""
    if domain(type_).kind in ("decimal", "bool", "string"):
        return pa.scalar(from_ordinal(ordinal, type_), type_)
    return pa.scalar(ordinal, type_)

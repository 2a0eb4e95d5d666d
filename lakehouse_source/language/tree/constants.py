"""Pure. Values in conditions and expressions: from Python and Arrow, and as SQL."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, TypeAlias

import pyarrow as pa

from lakehouse_source.errors import InvalidPredicateError
from lakehouse_source.language.limits import check_number
from lakehouse_source.schema.moment_texts import timestamp_text
from lakehouse_source.schema.ordinal import (
    UNIT_NS,
    domain,
    instant_ns,
    timedelta_ns,
)


@dataclass(frozen=True, slots=True)
class Timestamp:
    """A point in time to the nanosecond, in any year.

    `zoned`: nanoseconds from the epoch to an instant. Otherwise: nanoseconds from
    1970-01-01 00:00 on a wall clock whose time zone is not known.
    """

    nanoseconds: int
    zoned: bool


Literal: TypeAlias = (
    bool | int | float | Decimal | str | bytes | date | datetime | time | timedelta | Timestamp
)


def literal(value: Any) -> Literal | None:
    """A value as a literal; scalars of Arrow, NumPy and pandas become Python's.

    Raises:
        InvalidPredicateError: no column can be compared with the value, or it is beyond a bound.
    """
    if type(value) in (int, Decimal):
        check_number(value)
        return value  # type: ignore[no-any-return]
    if value is None or type(value) in (bool, float, str, bytes, Timestamp):
        return value  # type: ignore[no-any-return]
    if isinstance(value, pa.Scalar):
        return _of_scalar(value)
    if isinstance(value, (datetime, timedelta)):
        return _of_temporal(value)
    if isinstance(value, (date, time)):
        return value
    module = type(value).__module__
    if module == "numpy":
        if type(value).__name__ in ("datetime64", "timedelta64"):
            return _of_scalar(pa.scalar(value))
        return literal(value.item())
    if type(value).__name__ == "NAType" and module.startswith("pandas"):
        return None
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    bases: tuple[Any, ...] = (str, int, float, bytes, Decimal)
    for base in bases:
        if isinstance(value, base):
            return literal(base(value))
    raise InvalidPredicateError(
        reason=f"{value!r} ({type(value).__name__}) cannot be compared with a column"
    )


def _of_temporal(value: datetime | timedelta) -> Literal | None:
    if value != value:  # pandas' NaT
        return None
    if isinstance(value, timedelta):
        nanoseconds = timedelta_ns(value)
        if nanoseconds % 1000:
            raise InvalidPredicateError(reason=f"{value!r} is finer than a microsecond")
        return timedelta(microseconds=nanoseconds // 1000)
    if getattr(value, "nanosecond", 0):
        zoned = value.tzinfo is not None
        return Timestamp(instant_ns(value), zoned)
    return value


def _of_scalar(scalar: pa.Scalar) -> Literal | None:
    if not scalar.is_valid:
        return None
    if isinstance(scalar, pa.DictionaryScalar):
        return _of_scalar(scalar.value)
    kind = domain(scalar.type)
    if kind.kind == "timestamp":
        return Timestamp(scalar.value * UNIT_NS[scalar.type.unit], kind.zoned)
    if kind.kind in ("time", "duration") and scalar.value * kind.unit_ns % 1000:
        raise InvalidPredicateError(reason=f"{scalar} is finer than a microsecond")
    if not kind.ordered:
        raise InvalidPredicateError(reason=f"a literal of type {scalar.type} cannot be compared")
    return literal(scalar.as_py())


def spell(value: Literal | None) -> str:
    """A literal as SQL."""
    if value is None or isinstance(value, bool):
        return {None: "NULL", True: "TRUE", False: "FALSE"}[value]
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace("'", "\\'")
        return f"'{escaped}'"
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            return f"CAST('{value}' AS DOUBLE)"
        return repr(value) if "e" in repr(value) else f"{value!r}D"
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, bytes):
        return f"X'{value.hex().upper()}'"
    if isinstance(value, Timestamp):
        return _spell_timestamp(value)
    if isinstance(value, datetime):
        return _spell_timestamp(Timestamp(instant_ns(value), value.tzinfo is not None))
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, time):
        return f"TIME '{value.isoformat()}'"
    if isinstance(value, timedelta):
        seconds = Decimal(timedelta_ns(value)).scaleb(-9)
        return f"INTERVAL '{seconds:f}' SECOND"
    return str(value)


def _spell_timestamp(value: Timestamp) -> str:
    text = timestamp_text(value.nanoseconds, 1)
    return f"TIMESTAMP '{text}+00:00'" if value.zoned else f"TIMESTAMP_NTZ '{text}'"

"""Pure. Values of NumPy and pandas as those of Python."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any

from lakehouse_source.schema.ordinal import EPOCH


def plain(value: Any) -> Any:
    """A value of NumPy or pandas as Python's: arrays are lists, what is missing is None.

    Raises:
        ValueError: Python has no such moment or time span; the message says why.
    """
    type_ = type(value)
    if type_.__module__ == "builtins":
        return value
    if type_.__name__ in ("NaTType", "NAType") and type_.__module__.startswith("pandas"):
        return None
    if type_.__module__ != "numpy" or not hasattr(value, "dtype"):
        return value
    if value.ndim:
        return list(value)
    kind = value.dtype.kind
    if kind not in "mM":
        return value.item()
    if value != value:  # NaT
        return None
    found = value.item()
    if isinstance(found, (date, timedelta)):
        return found
    # NumPy counts what is finer than microseconds, beyond Python's years, or no fixed time.
    if kind == "m":
        return _span(value[()])
    moment, nanos = moment_of(value[()])
    if nanos:
        raise ValueError("is finer than a microsecond")
    return moment


def moment_of(value: Any) -> tuple[datetime, int]:
    """A datetime64 of NumPy as a datetime, and the nanoseconds that this has not.

    Raises:
        ValueError: it is no count of nanoseconds in 64 bits.
    """
    count = value.astype("M8[ns]")
    if count.astype(value.dtype) != value:
        raise ValueError("is neither of the years 1 to 9999 nor a count of nanoseconds")
    micros, nanos = divmod(int(count.astype("i8")), 1000)
    return EPOCH + timedelta(microseconds=micros), nanos


def _span(value: Any) -> timedelta:
    micros = None if value.dtype.str.rstrip("]")[-1] in "YM" else value.astype("m8[us]")
    if micros is None or micros.astype(value.dtype) != value:
        raise ValueError("is no time span in whole microseconds")
    found = micros.item()
    if not isinstance(found, timedelta):
        raise ValueError("is longer than a time span of Python")
    return found

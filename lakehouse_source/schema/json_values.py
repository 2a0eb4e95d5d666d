"""Pure. Values as objects of Python, and as JSON for the catalog's record of row groups.

Partitions are recorded so, too.
Without a limit, values are read back exactly. With a limit, values are bounds, and cutting a bound
only widens it: a lower bound becomes smaller, an upper bound larger. A bound that cannot be written
is left out, which means unknown.
"""

from __future__ import annotations

import base64
import json
import math
from datetime import date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, TypeAlias

import pyarrow as pa

from lakehouse_source.errors import CorruptDatasetError
from lakehouse_source.model import Ordinal
from lakehouse_source.schema.ordinal import EPOCH, EPOCH_DATE, EXACT, Domain, domain

JsonValue: TypeAlias = "bool | int | float | str | dict[str, str]"


def parsed(text: str) -> Any:
    """What a JSON text of the catalog says."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise CorruptDatasetError(
            path="the catalog", reason=f"{text[:80]!r} stands for JSON: {exc}"
        ) from exc


def parsed_object(text: str) -> dict[str, Any]:
    """As `parsed`, for a text that must be an object."""
    found = parsed(text)
    if not isinstance(found, dict):
        raise CorruptDatasetError(
            path="the catalog", reason=f"{text[:80]!r} stands for a JSON object"
        )
    return found


def to_json_value(
    ordinal: Ordinal, type_: pa.DataType, *, upper: bool = False, limit: int | None = None
) -> JsonValue | None:
    """A value as JSON; with a `limit` a bound, or None where there is no bound.

    Text and bytes longer than `limit` are cut; a cut upper bound is raised above the value.
    Temporal values are ISO text, or counts of the unit where Python has no name for the year.
    Decimals are text, bytes an object with base64 in it.
    """
    return json_of(ordinal, domain(type_), upper, limit)


def json_of(ordinal: Ordinal, kind: Domain, upper: bool, limit: int | None) -> JsonValue | None:
    """`to_json_value`, of a value of a domain."""
    if isinstance(ordinal, bytes):
        if kind.kind == "string":
            return _json_text(ordinal, upper, limit)
        return _json_bytes(ordinal, upper, limit)
    name = kind.kind
    if name == "float":
        return _json_float(float(ordinal))
    if isinstance(ordinal, float):
        return None
    if name == "int":
        return ordinal
    if name == "bool":
        return bool(ordinal)
    if name == "decimal":
        return f"{Decimal(ordinal).scaleb(-kind.scale, context=EXACT):f}"
    if name == "duration":
        return ordinal
    try:
        return _iso(ordinal, kind)
    except OverflowError:
        return ordinal


def _json_float(value: float) -> JsonValue | None:
    if math.isfinite(value):
        return value + 0.0
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _iso(ordinal: int, kind: Domain) -> str | int:
    if kind.kind == "date":
        return (EPOCH_DATE + timedelta(days=ordinal)).isoformat()
    seconds, rest = divmod(ordinal * kind.unit_ns, 10**9)
    fraction = f".{rest:09}".rstrip("0").rstrip(".")
    if kind.kind == "time":
        if not 0 <= seconds < 86_400:
            return ordinal
        return (EPOCH + timedelta(seconds=seconds)).time().isoformat() + fraction
    text = (EPOCH + timedelta(seconds=seconds)).isoformat() + fraction
    return text + "Z" if kind.zoned else text


def _json_text(ordinal: bytes, upper: bool, limit: int | None) -> str | None:
    try:
        text = ordinal.decode()
    except UnicodeDecodeError:  # cut in the middle of a character by its writer
        return None
    if limit is None or len(text) <= limit:
        return text
    return _raised_text(text[:limit]) if upper else text[:limit]


def _raised_text(cut: str) -> str | None:
    """The least text of that length above all texts that begin with `cut`; None: there is none."""
    last = ord(cut[-1]) + 1
    if last > 0x10FFFF:
        return None
    return cut[:-1] + chr(0xE000 if 0xD800 <= last < 0xE000 else last)


def _json_bytes(ordinal: bytes, upper: bool, limit: int | None) -> dict[str, str] | None:
    if limit is not None and len(ordinal) > limit:
        ordinal = ordinal[:limit]
        if upper:
            if ordinal[-1] == 0xFF:
                return None
            ordinal = ordinal[:-1] + bytes((ordinal[-1] + 1,))
    return {"base64": base64.b64encode(ordinal).decode("ascii")}


def from_json_value(value: Any, type_: pa.DataType) -> Ordinal | None:
    """The ordinal of a value that `to_json_value` wrote; None for any other value.

    Values written before a promotion are read in today's type: an integer as a decimal, a date as
    its midnight.
    """
    return ordinal_of(value, domain(type_))


def ordinal_of(value: Any, kind: Domain) -> Ordinal | None:
    """`from_json_value`, of a domain."""
    name = kind.kind
    try:
        if name == "int" or name == "duration":
            return value if type(value) is int else None
        if name == "float":
            if isinstance(value, str):
                return float(value)
            return float(value) + 0.0 if type(value) in (int, float) else None
        if name == "bool":
            return int(value) if isinstance(value, bool) else None
        if name == "string":
            return value.encode() if isinstance(value, str) else None
        if name == "binary":
            return base64.b64decode(value["base64"], validate=True)
        if name == "decimal":
            return _unscaled(value, kind.scale)
        if type(value) is int:
            return value if kind.temporal else None
        return _from_iso(value, kind) if isinstance(value, str) else None
    except (ValueError, TypeError, KeyError, OverflowError, InvalidOperation):
        return None


def _unscaled(value: Any, scale: int) -> int | None:
    if type(value) is not int and not isinstance(value, str):
        return None
    shifted = Decimal(value).scaleb(scale, context=EXACT)
    whole = int(shifted)
    return whole if shifted == whole else None


def _from_iso(text: str, kind: Domain) -> int | None:
    if kind.kind == "date":
        return (datetime.fromisoformat(text) - EPOCH).days if len(text) == 10 else None
    text = text.removesuffix("Z")
    if kind.kind == "time":
        text = "1970-01-01T" + text
    elif len(text) == 10:
        text += "T00:00:00"
    gone = datetime.fromisoformat(text[:19]) - EPOCH
    rest = int(text[20:].ljust(9, "0")) if len(text) > 20 else 0
    count, finer = divmod((gone.days * 86_400 + gone.seconds) * 10**9 + rest, kind.unit_ns)
    return None if finer else count


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

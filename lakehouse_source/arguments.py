"""Pure. Checks the kind of each argument, with errors that name the argument and the value.

Without these checks Python accepts values that were not meant: the text "false" is true, `True` is
the number 1, and an iterator of names is empty when it is asked for the second time.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, TypeVar

from lakehouse_source.errors import InvalidOptionError

K = TypeVar("K")
V = TypeVar("V")
_BYTES = {"": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 24 * 3600}
_LONGEST_NAME = 255
_UNIT = re.compile(r"([0-9]{1,18})\s*([a-z]*)", re.ASCII)


def flag(option: str, value: Any) -> bool:
    """A truth value, also one of NumPy; 0 and 1 are accepted."""
    if isinstance(value, int) and value in (0, 1):
        return bool(value)
    if type(value).__name__ in ("bool", "bool_"):  # NumPy's, by its names in NumPy 2 and 1
        return bool(value)
    raise InvalidOptionError(option=option, value=value, reason="must be True or False.")


def whole_number(option: str, value: Any) -> int:
    """A whole number, also one of NumPy; no database keeps one of more than 64 bits."""
    if isinstance(value, bool) or not hasattr(type(value), "__index__"):
        raise InvalidOptionError(option=option, value=value, reason="must be a whole number.")
    number = operator.index(value)
    if number.bit_length() > 63:
        raise InvalidOptionError(option=option, reason="must be a whole number of 64 bits at most.")
    return number


def number_of_seconds(option: str, value: Any, most: float) -> float:
    """A number of seconds from 0 to `most`."""
    found: float = -1
    if type(value) in (int, float):
        found = value
    elif hasattr(value, "__float__") and not isinstance(value, bool):
        with suppress(TypeError, ValueError):  # an array of NumPy with several elements
            found = float(value)
    if not 0 <= found <= most:
        raise InvalidOptionError(
            option=option, value=value, reason="must be a number of seconds from 0."
        )
    return found


def size_in_bytes(option: str, value: Any) -> int:
    """A number of bytes from 1, or a text with a unit: `128m`, `128MB`, `1GiB`."""
    number, unit = _with_unit(value)
    unit = unit.removesuffix("ib")
    unit = unit.removesuffix("b") if len(unit) > 1 else unit
    if unit not in _BYTES or number == 0:
        raise InvalidOptionError(
            option=option,
            value=value,
            reason="must be a size in bytes such as 134217728 or 128m.",
        )
    return number * _BYTES[unit]


def interval(option: str, value: Any) -> float:
    """A number of seconds from 1, or a text with a unit: `90s`, `10m`, `1h`, `7d`."""
    number, unit = _with_unit(value)
    found = value if isinstance(value, float) else float(number * _SECONDS.get(unit, 0))
    if not 1 <= found <= 366 * _SECONDS["d"]:
        raise InvalidOptionError(
            option=option,
            value=value,
            reason="must be a time from one second to a year, such as 90s, 10m, 1h or 7d.",
        )
    return found


def _with_unit(value: Any) -> tuple[int, str]:
    """The number and the unit of a text; 0: it is none."""
    text = "" if isinstance(value, bool) else str(value).strip().lower()
    found = _UNIT.fullmatch(text)
    return (int(found[1]), found[2]) if found else (0, "")


def column_names(option: str, names: Any) -> tuple[str, ...] | None:
    """Column names as a tuple; a text is one name, None stays None."""
    if names is None:
        return None
    if isinstance(names, str):
        return (names,)
    if isinstance(names, Iterable):
        found = tuple(names)
        if all(isinstance(name, str) for name in found):
            return found
        names = found if not isinstance(names, bytes) else names
    raise InvalidOptionError(
        option=option, value=names, reason="must be a column name or a list of column names."
    )


def text(option: str, value: Any) -> str:
    """A text."""
    if not isinstance(value, str):
        raise InvalidOptionError(option=option, value=value, reason="must be a text.")
    return value


def name_text(option: str, value: Any) -> str:
    """A name of a tag or a consumer."""
    if not text(option, value).strip() or len(value) > _LONGEST_NAME or "\0" in value:
        reason = f"must be a text of 1 to {_LONGEST_NAME} characters without NUL."
        raise InvalidOptionError(option=option, value=value, reason=reason)
    return str(value)


def path_text(option: str, value: Any) -> str:
    """A path or URI as text."""
    text = value if isinstance(value, str) else getattr(value, "__fspath__", lambda: None)()
    if not isinstance(text, str):
        reason = "must be a path or URI: a text or a pathlib.Path."
        raise InvalidOptionError(option=option, value=value, reason=reason)
    return text


def mapping(option: str, value: Mapping[K, V]) -> Mapping[K, V]:
    """A mapping, such as a dict."""
    if not isinstance(value, Mapping):
        raise InvalidOptionError(option=option, value=value, reason="must be a mapping.")
    return value


def moment(option: str, value: Any) -> datetime:
    """A date and a time."""
    if not isinstance(value, datetime) or value != value:  # pandas' NaT
        raise InvalidOptionError(
            option=option,
            value=value,
            reason="must be a datetime, or a text such as '2026-01-31 13:00:00'.",
        )
    return value

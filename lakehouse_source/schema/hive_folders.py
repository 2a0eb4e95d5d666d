"""Pure. Reads partition values from the names of Hive-style folders, `key=value`.

This is done once, when files that plake did not write are added. Names are percent-decoded once, as
Spark, Hive, PyArrow and DuckDB write them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.schema.ordinal import domain, to_ordinal
from lakehouse_source.schema.partitions import HIVE_NULL

# The end of a long value's name as `partition_folder` cuts it.
_CUT = re.compile(r".{150}~[0-9a-f]{16}$")
_INTEGER = re.compile(r"[+-]?[0-9]{1,38}")
# Python takes digits of any script, and `_` between them.
_DECIMAL = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
# `datetime` has microseconds and cuts off the digits after them.
_BELOW_MICROSECONDS = re.compile(r"[.,][0-9]{6}[0-9]*[1-9]")


def folder_values(folders: Sequence[str], path: str) -> dict[str, str | None]:
    """The keys and values (None for NULL) in names of folders, outermost first.

    Folders without `=` are skipped. `path` names the file in errors.

    Raises:
        InvalidOptionError: a key is empty or occurs twice, a name is not UTF-8, or a long
            value was cut.
    """
    values: dict[str, str | None] = {}
    for folder in folders:
        key, equals, text = folder.partition("=")
        if not equals:
            continue
        try:
            name = unquote(key, errors="strict")
            value = None if text == HIVE_NULL else unquote(text, errors="strict")
        except UnicodeDecodeError as error:
            raise _refused(path, f"is in folder {folder!r}, whose name is not UTF-8.") from error
        if _CUT.search(text):
            raise _refused(path, f"is in folder {folder!r}, whose value is cut.")
        if not name:
            raise _refused(path, f"is in folder {folder!r}, which has no key.")
        if any(name.lower() == other.lower() for other in values):
            raise _refused(path, f"is below two folders with the key {name!r}.")
        values[name] = value
    return values


def typed_value(text: str | None, type_: pa.DataType, key: str, path: str) -> Any:
    """The value in a folder's name as a Python value of a partition column's type.

    Timestamps without a zone are in UTC where the column has a zone.

    Raises:
        InvalidOptionError: the text is not a value of the type.
    """
    if text is None:
        return None
    try:
        value = _parsed(text, type_)
        ordinal = to_ordinal(value, type_)
        kind = domain(type_)
        if isinstance(ordinal, int) and not kind.low <= ordinal <= kind.high:
            raise ValueError("out of range")
    except (ValueError, InvalidOperation, OverflowError) as error:
        raise _refused(
            path, f"is in a folder with {key}={text!r}, which is not a value of type {type_}."
        ) from error
    return value


def _parsed(text: str, type_: pa.DataType) -> Any:
    t = pa.types
    if t.is_string(type_):
        return text
    if t.is_boolean(type_):
        known = {"true": True, "false": False}.get(text.lower())
        if known is None:
            raise ValueError("neither true nor false")
        return known
    if t.is_integer(type_):
        if not _INTEGER.fullmatch(text):
            raise ValueError("no integer")
        return int(text)
    if t.is_date(type_):
        if not _DATE.fullmatch(text):
            raise ValueError("no date")
        return date.fromisoformat(text)
    if t.is_timestamp(type_):
        if _BELOW_MICROSECONDS.search(text):
            raise ValueError("digits below a microsecond")
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
        if moment.tzinfo is not None and type_.tz is None:
            raise ValueError("a zone in a column without one")
        return moment
    if t.is_decimal(type_):
        if not _DECIMAL.fullmatch(text):
            raise ValueError("no decimal")
        return Decimal(text)
    raise ValueError("no type of a partition column")


def inferred_type(texts: Iterable[str | None]) -> pa.DataType:
    """The type of a partition column by all its values: int32, int64, date32 or string.

    As Spark infers it, except that Spark has further types. `01` is the integer 1.
    """
    present = [text for text in texts if text is not None]
    if not present:
        return pa.string()
    if all(_INTEGER.fullmatch(text) for text in present):
        numbers = [int(text) for text in present]
        for type_ in (pa.int32(), pa.int64()):
            kind = domain(type_)
            if kind.low <= min(numbers) and max(numbers) <= kind.high:
                return type_
        return pa.string()
    if all(_is_date(text) for text in present):
        return pa.date32()
    return pa.string()


def _is_date(text: str) -> bool:
    if not _DATE.fullmatch(text):
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def same_keys(found: Mapping[str, Mapping[str, str | None]]) -> tuple[str, ...]:
    """The partition keys of all files, given by path, in the order of the first file's folders.

    Raises:
        InvalidOptionError: two files do not have the same keys.
    """
    keys: tuple[str, ...] | None = None
    for path, values in found.items():
        if keys is None:
            keys = tuple(values)
        elif set(values) != set(keys):
            expected, got = (", ".join(some) or "no key" for some in (keys, values))
            raise _refused(
                path,
                f"is in folders with {got}, and another file has {expected}. With "
                "partitioning=None the folders' names do not count.",
            )
    return keys or ()


def _refused(path: str, reason: str) -> InvalidOptionError:
    return InvalidOptionError(option="paths", value=path, reason=reason)

"""Pure. Partition columns: their types, their values, and Hive-style folders.

Folder names are for people and other tools. Values are never read from them: they
come from the catalog, exact and typed.
"""

from __future__ import annotations

import datetime
import decimal
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from datetime import datetime as DateTime
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import pyarrow as pa

from lakehouse_source.errors import CorruptDatasetError, InvalidOptionError, SchemaMismatchError
from lakehouse_source.model import FileRecord, Ordinal
from lakehouse_source.properties import DatasetProperties
from lakehouse_source.schema import json_values
from lakehouse_source.schema.fields import field_id, find_field, has_collation
from lakehouse_source.schema.ordinal import domain, to_ordinal, to_scalar
from lakehouse_source.schema.types import card

# Hive writes this text for NULL, and every reader of Hive-style folders knows it.
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
# File systems allow 255 bytes in a name; the others are for the key and the hash.
_LONGEST_VALUE = 160


def partition_folder(values: Mapping[str, Any]) -> str:
    """`key=value/key=value`, percent-encoded; empty without partition columns.

    A value that equals the NULL marker is encoded differently. A value too long for a file name is
    cut and gets a hash of the whole value.
    """
    return "/".join(f"{_encode(key)}={_folder_value(value)}" for key, value in values.items())


def partition_text(value: Any, type_: pa.DataType) -> str | None:
    """A partition value as the catalog stores it: JSON text, None for NULL."""
    if value is None:
        return None
    exact = json_values.to_json_value(to_ordinal(value, type_), type_, limit=None)
    return json.dumps(exact, ensure_ascii=False)


@lru_cache(maxsize=1024)
def partition_ordinal(text: str | None, type_: pa.DataType) -> Ordinal | None:
    """The ordinal of the value that `partition_text` wrote, None for NULL."""
    if text is None:
        return None
    ordinal = json_values.from_json_value(json_values.parsed(text), type_)
    if ordinal is None:
        raise CorruptDatasetError(
            path="catalog", reason=f"the partition value {text} is not a value of type {type_}"
        )
    return ordinal


@lru_cache(maxsize=1024)
def text_in_type(text: str | None, written: pa.DataType, now: pa.DataType) -> str | None:
    """The text of `partition_text` for a value in the type that a column was promoted to.

    A date and its midnight have different texts. The text of a value that does not fit the new type
    stays as it is.

    Raises:
        CorruptDatasetError: the text is not a value of the type `written`.
    """
    ordinal = partition_ordinal(text, written)
    source, target = domain(written), domain(now)
    if not isinstance(ordinal, int) or source.unit_ns == target.unit_ns:
        return text
    count, finer = divmod(ordinal * source.unit_ns, target.unit_ns)
    if finer:
        return text
    return json.dumps(json_values.to_json_value(count, now, limit=None), ensure_ascii=False)


def partition_value(text: str | None, type_: pa.DataType) -> pa.Scalar | None:
    """The value that `partition_text` wrote, None for NULL.

    Raises:
        CorruptDatasetError: the text is not a value of the type.
    """
    ordinal = partition_ordinal(text, type_)
    return None if ordinal is None else to_scalar(ordinal, type_)


class PartitionTexts:
    """Finds the partition values of files, even of files older than the name of a column.

    The catalog records the values of a file under the names and in the types that the columns
    had in the schema that the file was written with. Field ids give these names. Equal values have
    equal texts here, whatever the type was.

    Args:
        partition_by: names of the partition columns in `schema`.
        file_schemas: the schemas that files were written with, by schema version.
    """

    def __init__(
        self,
        partition_by: Sequence[str],
        schema: pa.Schema,
        file_schemas: Mapping[int, pa.Schema],
    ) -> None:
        self._partition_by = tuple(partition_by)
        self._schema = schema
        self._file_schemas = file_schemas
        self._columns: dict[int, tuple[_Recorded, ...]] = {}

    def __call__(self, file: FileRecord) -> tuple[str | None, ...]:
        """The values as JSON texts, None for NULL, in the order of the partition columns."""
        found = []
        for key, written, now in self._columns_in(file.schema_version):
            text = None if key is None else file.partitions.get(key)
            if written is not None and now is not None:
                text = text_in_type(text, written, now)
            found.append(text)
        return tuple(found)

    def keys(self, schema_version: int) -> tuple[str, ...]:
        """The names of the partition columns in files of a schema version."""
        return tuple(key for key, _, _ in self._columns_in(schema_version) if key is not None)

    def _columns_in(self, schema_version: int) -> tuple[_Recorded, ...]:
        """What files of a schema version record about each partition column.

        If the schema was replaced, an older column of the same name is another column.
        """
        found = self._columns.get(schema_version)
        if found is None:
            by_id = {field_id(field): field for field in self._file_schemas[schema_version]}
            columns = []
            for name in self._partition_by:
                now = self._schema.field(name)
                written = by_id.get(field_id(now))
                if written is None:
                    columns.append(_Recorded(None))
                elif written.type.equals(now.type):
                    columns.append(_Recorded(written.name))
                else:
                    columns.append(_Recorded(written.name, written.type, now.type))
            found = self._columns[schema_version] = tuple(columns)
        return found


class _Recorded(NamedTuple):
    """A partition column in files: its name there; None: the files lack it.

    `written` and `now` are its types then and today, if these differ.
    """

    key: str | None
    written: pa.DataType | None = None
    now: pa.DataType | None = None


def partition_columns_at(
    properties: DatasetProperties, version: int, schema: pa.Schema, newest_schema: pa.Schema
) -> tuple[str, ...]:
    """The partition columns of a version, by their names in its schema."""
    for before, ids in properties.partitioned_before:
        if version < before:
            by_id = {field_id(field): field.name for field in schema}
            return tuple(by_id[identity] for identity in ids if identity in by_id)
    return same_columns(properties.partition_by, newest_schema, schema)


def partitioned_anew(
    properties: DatasetProperties,
    version: int,
    before: pa.Schema,
    partition_by: tuple[str, ...],
    after: pa.Schema,
) -> DatasetProperties:
    """The properties of a dataset whose partition columns are replaced at a version.

    `before` is the schema in force until then, `after` the one that has `partition_by`.
    """
    was = _ids(properties.partition_by, before)
    if was == _ids(partition_by, after):
        return replace(properties, partition_by=partition_by)
    past = (*properties.partitioned_before, (version, was))
    return replace(properties, partition_by=partition_by, partitioned_before=past)


def _ids(names: Sequence[str], schema: pa.Schema) -> tuple[int, ...]:
    return tuple(field_id(schema.field(name)) or 0 for name in names)


def same_columns(names: Sequence[str], schema: pa.Schema, other: pa.Schema) -> tuple[str, ...]:
    """The names in `other` of the top-level columns that have `names` in `schema`.

    A column that `other` lacks keeps its name.
    """
    by_id = {field_id(field): field.name for field in other}
    return tuple(by_id.get(field_id(schema.field(name)), name) for name in names)


def _folder_value(value: Any) -> str:
    if value is None:
        return HIVE_NULL
    if isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, datetime.datetime):
        text = value.replace(tzinfo=None).isoformat(sep=" ")
    elif isinstance(value, decimal.Decimal):
        text = format(value, "f")
    else:
        text = str(value)
    encoded = _encode(text)
    if encoded == HIVE_NULL:
        return "%5F" + HIVE_NULL[1:]
    if len(encoded) > _LONGEST_VALUE:
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        return encoded[:_LONGEST_VALUE].rsplit("%", 1)[0] + "~" + digest
    return encoded


def _encode(text: str) -> str:
    encoded = quote(text, safe=" !@$^&()[]{},;+-_~".replace("~", ""))
    # A name that starts with a dot is hidden, and `.` and `..` are other folders.
    return "%2E" + encoded[1:] if encoded.startswith(".") else encoded


def check_partition_columns(schema: pa.Schema, partition_by: tuple[str, ...]) -> tuple[str, ...]:
    """The partition columns, named as in the schema."""
    chosen: list[str] = []
    for name in partition_by:
        found = find_field(name, schema)
        if found is None:
            raise SchemaMismatchError(
                column=name,
                reason="is in partition_by and not in the data",
                hint=f"The data has: {', '.join(schema.names)}.",
            )
        if not card(found.type).text or pa.types.is_floating(found.type):
            raise SchemaMismatchError(
                column=name,
                expected=None,
                got=found.type,
                reason=f"has type {found.type}, which cannot partition a dataset",
                hint="Partition by boolean, integer, string, date, timestamp (up to "
                "microseconds) or decimal columns.",
            )
        if has_collation(found):
            raise SchemaMismatchError(
                column=name,
                reason="has a collation: texts that are equal by it would be in two partitions",
                hint="Partition by a column whose texts compare by their bytes (UTF8_BINARY).",
            )
        if found.name in chosen:
            raise SchemaMismatchError(
                column=name, reason="is given twice in partition_by", hint="Name it once."
            )
        chosen.append(found.name)
    if chosen and len(chosen) == len(schema):
        raise SchemaMismatchError(
            column=chosen[-1],
            reason="and all other columns are partition columns: files would have no column",
            hint="Leave at least one column out of partition_by.",
        )
    return tuple(chosen)


# --- Reads partition values from the names of Hive-style folders, `key=value`.
#
# This is done once, when files that plake did not write are added. Names are percent-decoded once,
# as Spark, Hive, PyArrow and DuckDB write them.


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
        moment = DateTime.fromisoformat(text.replace("Z", "+00:00"))
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

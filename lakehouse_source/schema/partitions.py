"""Pure. Partition columns: which types they may have, and Hive-style folder names.

Folder names are for people and other tools. Values are never read from them: they
come from the catalog, exact and typed.
"""

from __future__ import annotations

import datetime
import decimal
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import quote

import pyarrow as pa

from lakehouse_source.errors import CorruptDatasetError, SchemaMismatchError
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

"""Pure. Columns that no user wrote: the place of a row, and its identity.

    _file            the path of the row's data file, relative to the dataset
    _pos             the row's position in the file, from 0, across row groups
    _row_id          the row's identity, which an update and a rewrite keep
    _commit_version  the version that last changed the row

Each can be read by its name, unless the dataset has a column of that name. The identity and the
version of a row that was moved are stored in its new file, in two hidden columns. If a file lacks
these columns, or they are NULL, the identity is the file's first identity plus the position, and
the version is the one that added the file.

Source: Apache Iceberg, table specification, "reserved field ids" and "row lineage".
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pyarrow as pa

from lakehouse_source.schema.fields import FIELD_ID, field_id, find_field, find_name

FILE_ID = 2147483646
POSITION_ID = 2147483645
ROW_ID = 2147483540
# Iceberg's `_last_updated_sequence_number`.
VERSION_ID = 2147483539
# Iceberg reserves the ids above this one.
_LAST_ID_OF_USERS = 2147483447


def _field(name: str, type_: pa.DataType, id: int, nullable: bool = False) -> pa.Field:
    return pa.field(name, type_, nullable, {FIELD_ID: str(id).encode()})


FILE = _field("_file", pa.string(), FILE_ID)
POSITION = _field("_pos", pa.int64(), POSITION_ID)
ROW = _field("_row_id", pa.int64(), ROW_ID)
VERSION = _field("_commit_version", pa.int64(), VERSION_ID)
METADATA_COLUMNS = (FILE, POSITION, ROW, VERSION)
# As files store them.
_HIDDEN = (
    _field("_row_id", pa.int64(), ROW_ID, nullable=True),
    _field("_last_updated_version", pa.int64(), VERSION_ID, nullable=True),
)


def is_reserved(id: int) -> bool:
    """Tell whether a field id is reserved: no column of a user gets it."""
    return id > _LAST_ID_OF_USERS


def is_metadata(field: pa.Field) -> bool:
    """Tell whether a field is one of these columns, by its id."""
    id = field_id(field)
    return id is not None and is_reserved(id)


def with_metadata(
    schema: pa.Schema,
    names: Sequence[str] | None,
    columns: Sequence[pa.Field] = METADATA_COLUMNS,
) -> pa.Schema:
    """The schema with the named metadata columns, unless it has columns of these names."""
    for column in columns if names is not None else ():
        if find_field(column.name, schema) is None and find_name(column.name, names or ()):
            schema = schema.append(column)
    return schema


def unused_names(columns: Sequence[pa.Field], taken: Collection[str]) -> list[pa.Field]:
    """The same columns, under names that differ from all in `taken` by more than case."""
    lowered = {name.lower() for name in taken}
    found = []
    for column in columns:
        name = column.name
        while name.lower() in lowered:
            name = f"_{name}"
        found.append(column.with_name(name))
    return found


def hidden_columns(schema: pa.Schema) -> list[pa.Field]:
    """The hidden columns of files with moved rows, for a dataset of a schema."""
    return unused_names(_HIDDEN, schema.names)


def may_be_hidden(name: str) -> bool:
    """Tell whether a file may store a hidden column under this name."""
    bare = name.lower().lstrip("_")
    return any(bare == column.name.lstrip("_") for column in _HIDDEN)

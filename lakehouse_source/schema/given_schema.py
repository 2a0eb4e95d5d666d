"""Pure. The schema that somebody's rows come with, and the one in which a dataset stores them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from lakehouse_source.errors import SchemaMismatchError
from lakehouse_source.schema.fields import (
    assign_ids,
    children,
    is_nested,
    nullable_field,
    rebuild,
    storage_field,
)

# Expressions that Spark runs for rows without a value.
_SPARK_DEFAULTS = (b"CURRENT_DEFAULT", b"EXISTS_DEFAULT")
# Marks the schema of a DataFrame, whose NOT NULL columns nobody declared on purpose.
_FROM = b"plake:from"
_FROM_DATAFRAME = {_FROM: b"dataframe"}
_FROM_VALUES = {_FROM: b"values"}


def without_own_metadata(schema: pa.Schema) -> pa.Schema:
    """The schema of a caller's rows, without metadata that only plake's catalog may have.

    This is plake's own keys, and the expressions that Spark runs as defaults of columns.
    """

    def cleaned(field: pa.Field) -> pa.Field:
        type_ = field.type
        if is_nested(type_):
            inside = [cleaned(child) for child in children(type_)]
            if pa.types.is_list_view(type_):
                type_ = pa.list_view(inside[0])
            elif pa.types.is_large_list_view(type_):
                type_ = pa.large_list_view(inside[0])
            elif inside:  # a type of Arrow that no dataset stores
                type_ = rebuild(type_, inside)
        kept = {key: text for key, text in (field.metadata or {}).items() if not _is_own(key)}
        return pa.field(field.name, type_, field.nullable, kept or None)

    return pa.schema(
        [cleaned(field) for field in schema],
        {key: text for key, text in (schema.metadata or {}).items() if not _is_own(key)} or None,
    )


def _is_own(key: bytes) -> bool:
    return key.lower().startswith(b"plake") or key.upper() in _SPARK_DEFAULTS


def dataframe_schema(schema: pa.Schema) -> pa.Schema:
    """The schema, marked as that of a DataFrame: new columns made from it are nullable.

    A DataFrame's columns are NOT NULL by accident (`spark.range`), which must not make a dataset
    refuse NULLs. The fields stay as they are: such a column can be written to a NOT NULL column of
    the dataset, which stays NOT NULL.
    """
    return schema.with_metadata({**(schema.metadata or {}), **_FROM_DATAFRAME})


def comes_from_dataframe(schema: pa.Schema) -> bool:
    """Tell whether `dataframe_schema` marked the schema."""
    return _FROM_DATAFRAME.items() <= (schema.metadata or {}).items()


def schema_of_values(schema: pa.Schema) -> pa.Schema:
    """The schema that Arrow gave to values of Python, whose integers have no width."""
    return schema.with_metadata({**(schema.metadata or {}), **_FROM_VALUES})


def comes_from_values(schema: pa.Schema) -> bool:
    """Tell whether `schema_of_values` marked the schema."""
    return _FROM_VALUES.items() <= (schema.metadata or {}).items()


def check_name(name: str, path: str) -> None:
    """Check that a column, or a field in one, may have a name. `path` is what errors call it."""
    if not name:
        raise SchemaMismatchError(
            column=path, reason="has an empty name", hint="Name every column."
        )
    if "\0" in name:
        raise SchemaMismatchError(
            column=path,
            reason="has a NUL character in its name, which no engine reads",
            hint="Choose another name.",
        )


def storage_schema(schema: pa.Schema) -> pa.Schema:
    """The schema in which data of `schema` is stored, without ids.

    The marks of `dataframe_schema` and `schema_of_values` stay.
    """
    if len(schema) == 0:
        raise SchemaMismatchError(
            column="", reason="is missing: the data has no columns", hint="Give it at least one."
        )

    def check(fields: Sequence[pa.Field], above: str) -> None:
        seen: dict[str, str] = {}
        for field in fields:
            name = above + field.name
            check_name(field.name, name)
            other = seen.get(field.name.lower())
            seen[field.name.lower()] = field.name
            if other is not None:
                raise SchemaMismatchError(
                    column=name,
                    reason=f"collides with {above + other!r}: two names must differ by more "
                    "than case",
                    hint="Rename one of them.",
                )
            if pa.types.is_struct(field.type):
                check(children(field.type), name + ".")

    def check_characters(fields: Iterable[pa.Field]) -> None:
        for field in fields:
            if field.name:
                check_name(field.name, field.name)
            check_characters(children(field.type))

    check(list(schema), "")
    check_characters(schema)
    mark = (schema.metadata or {}).get(_FROM)
    kept = None if mark is None else {_FROM: mark}
    return pa.schema([storage_field(field) for field in schema], metadata=kept)


def initial(schema: pa.Schema, first_id: int = 1) -> pa.Schema:
    """The schema of a new dataset: `storage_schema` with ids from `first_id`.

    Columns of a DataFrame become nullable.
    """
    numbers = iter(range(first_id, 1 << 31))
    fields = list(storage_schema(schema))
    if comes_from_dataframe(schema):
        fields = [nullable_field(field) for field in fields]
    return pa.schema([assign_ids(field, numbers) for field in fields])

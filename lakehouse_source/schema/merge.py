"""Pure. The schema that rows come with, and the schema that a dataset has after their write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakehouse_source.errors import SchemaMismatchError
from lakehouse_source.schema.defaults import computed, has_write_default, promoted
from lakehouse_source.schema.fields import (
    assign_ids,
    children,
    find_field,
    is_nested,
    is_same_kind,
    max_id,
    nullable_field,
    rebuild,
    storage_field,
)
from lakehouse_source.schema.types import Fit, fit, is_provable, prints_as_string

# --- The schema that somebody's rows come with, and the one in which a dataset stores them.


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


# Tells whether all stored values of a column (a field with an id) fit a type.
StoredValuesFit = Callable[[pa.Field, pa.DataType], bool]


def merge(
    current: pa.Schema,
    incoming: pa.Schema,
    *,
    add_columns: bool = False,
    promote_to_string: bool = False,
    next_id: int | None = None,
    dataset: str | None = None,
    stored_values_fit: StoredValuesFit = lambda _field, _type: False,
) -> pa.Schema:
    """`current` (with ids), changed as needed so that data of `incoming` can be written.

    Returns `current` itself if nothing has to change. Columns match without regard to case
    and keep their names. The data may lack columns that are nullable or have a default.

    Args:
        add_columns: add new columns (nullable), promote types, and let a NOT NULL column become
            nullable if the data's column is. Otherwise the data must fit the dataset's types.
        promote_to_string: make a column a string if its type cannot be promoted.
        next_id: the first unused id. The default is one above the highest in
            `current`; a dataset that dropped columns has to give its own.
        stored_values_fit: decides about a promotion that is exact for only some values of the old
            type. By default such promotions are refused.

    Raises:
        SchemaMismatchError: a column does not fit.
    """
    data = storage_schema(incoming)
    numbers = iter(range(next_id or max_id(current) + 1, 1 << 31))
    merger = _Merger(
        add_columns,
        promote_to_string,
        dataset,
        numbers,
        comes_from_dataframe(incoming),
        comes_from_values(incoming),
        stored_values_fit,
    )
    merged = merger.fields(list(current), list(data), "")
    return current if merged is None else pa.schema(merged)


@dataclass(frozen=True, slots=True)
class _Merger:
    """One merge: its options, and the ids that new fields get."""

    add_columns: bool
    promote_to_string: bool
    dataset: str | None
    next_id: Iterator[int]
    from_dataframe: bool
    from_values: bool
    stored_values_fit: StoredValuesFit

    def fields(
        self, old: Sequence[pa.Field], new: Sequence[pa.Field], above: str
    ) -> list[pa.Field] | None:
        """The merged fields, or None if they equal `old`."""
        added = list(new)
        result: list[pa.Field] = []
        for mine in old:
            theirs = find_field(mine.name, added)
            if theirs is not None:
                added.remove(theirs)
                result.append(self.field(mine, theirs, above + mine.name))
            elif mine.nullable or has_write_default(mine) or computed(mine) is not None:
                result.append(mine)
            else:
                raise SchemaMismatchError(
                    column=above + mine.name,
                    expected=mine.type,
                    dataset=self.dataset,
                    reason="is not nullable and the data does not have it",
                    hint="Add it to the data.",
                )
        result += self._added(added, above)
        unchanged = len(result) == len(old) and all(a is b for a, b in zip(result, old))
        return None if unchanged else result

    def _added(self, fields: Iterable[pa.Field], above: str) -> Iterator[pa.Field]:
        for field in fields:
            if not self.add_columns:
                raise SchemaMismatchError(
                    column=above + field.name,
                    got=field.type,
                    dataset=self.dataset,
                    reason=f"({field.type}) is in the data and not in the dataset",
                    hint="Drop it, or write with schema_merge=True (Spark: option mergeSchema) "
                    "to add it.",
                )
            yield self._new(field)

    def _new(self, field: pa.Field) -> pa.Field:
        if self.from_dataframe:
            field = nullable_field(field)
        return assign_ids(field.with_nullable(True), self.next_id)

    def field(self, mine: pa.Field, theirs: pa.Field, path: str) -> pa.Field:
        """The dataset's field, merged with that of the data."""
        type_ = self._type(mine, theirs, path)
        # Datasets of earlier releases have NOT NULL columns that nobody wanted.
        nullable = mine.nullable or (self.add_columns and theirs.nullable)
        if type_ is mine.type and nullable == mine.nullable:
            return mine
        return promoted(mine, type_).with_nullable(nullable)

    def _type(self, mine: pa.Field, theirs: pa.Field, path: str) -> pa.DataType:
        if is_nested(mine.type) and is_nested(theirs.type):
            merged = self._nested_type(mine.type, theirs.type, path)
        else:
            merged = self._leaf_type(mine, theirs)
        if merged is None:
            raise self._mismatch(mine.type, theirs.type, path)
        return merged

    def _nested_type(self, mine: pa.DataType, theirs: pa.DataType, path: str) -> pa.DataType | None:
        """The merged type, or None where the two are of different kinds."""
        old, new = children(mine), children(theirs)
        if pa.types.is_struct(mine) and pa.types.is_struct(theirs):
            merged = self.fields(old, new, path + ".")
            return mine if merged is None else rebuild(mine, merged)
        sizes = [getattr(one, "list_size", -1) for one in (mine, theirs)]
        if not is_same_kind(mine, theirs) or sizes[0] != sizes[1]:
            return None
        merged = [self.field(a, b, f"{path}.{a.name}") for a, b in zip(old, new)]
        return mine if all(a is b for a, b in zip(merged, old)) else rebuild(mine, merged)

    def _leaf_type(self, mine: pa.Field, theirs: pa.Field) -> pa.DataType | None:
        """The type that holds the values of both, or None if there is none."""
        text = self.promote_to_string and prints_as_string(theirs.type)
        if fit(theirs.type, mine.type) is not Fit.NONE or (text and pa.types.is_string(mine.type)):
            return mine.type
        integer = pa.types.is_integer
        widened = self.from_values and integer(mine.type) and integer(theirs.type)
        if widened and not self.add_columns:
            return mine.type  # each value is checked when it is converted
        if self.add_columns and self._can_become(mine, theirs.type):
            return self._new(theirs).type if is_nested(theirs.type) else theirs.type
        if text and prints_as_string(mine.type):
            return pa.string()
        return None

    def _can_become(self, mine: pa.Field, type_: pa.DataType) -> bool:
        """Tell whether every value that files may hold survives a promotion exactly."""
        if fit(mine.type, type_) is Fit.EVERY:
            return True
        return is_provable(mine.type, type_) and self.stored_values_fit(mine, type_)

    def _mismatch(self, mine: pa.DataType, theirs: pa.DataType, path: str) -> SchemaMismatchError:
        reason = None
        hint = "Cast it."
        if is_provable(mine, theirs) and self.add_columns:
            reason = (
                f"is {mine} and cannot become {theirs}: the statistics of its files do not show "
                "that every value fits"
            )
        elif fit(mine, theirs) is Fit.EVERY or is_provable(mine, theirs):
            hint = "Cast it, or write with schema_merge=True to promote the column."
        elif prints_as_string(mine) and prints_as_string(theirs):
            hint = "Cast it, or write with promote_to_string=True."
        return SchemaMismatchError(
            column=path,
            expected=mine,
            got=theirs,
            dataset=self.dataset,
            reason=reason,
            hint=hint,
        )

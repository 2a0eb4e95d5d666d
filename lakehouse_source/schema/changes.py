"""Pure. Changes of a dataset's schema: columns added, renamed, dropped, promoted, moved.

A change is a value that is applied to an Arrow schema whose fields have ids. No file is
rewritten: readers find the columns of a file by their ids, so a renamed column keeps its
id, and a new column gets an id that no column had before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from lakehouse_source.errors import SchemaMismatchError
from lakehouse_source.schema.defaults import (
    checked_default,
    cut_repr,
    promoted,
    with_defaults,
    with_write_default,
    without_default,
)
from lakehouse_source.schema.fields import assign_ids, field_id, find_field, is_nested
from lakehouse_source.schema.merge import check_name, storage_schema
from lakehouse_source.schema.paths import (
    Path,
    Place,
    field_at,
    find,
    parent_of,
    shown,
    walk,
    with_children,
    with_field,
)
from lakehouse_source.schema.spark_metadata import commented, typed
from lakehouse_source.schema.types import Fit, fit, is_provable, prints_as_string


@dataclass(frozen=True, slots=True)
class Facts:
    """What a change has to know about the dataset, besides its schema.

    Attributes:
        next_id: gives ids that no column of the dataset ever had.
        partition_ids: ids of the partition columns.
        keeps_partitions: tells whether the recorded values of a partition column can be read
            in another type.
        stored_values_fit: tells whether all stored values of a field fit a type.
        holds_no_null: tells whether no stored row has a NULL in a field.
        holds_no_file: tells whether the version has no file.
    """

    next_id: Iterator[int]
    partition_ids: frozenset[int | None] = frozenset()
    keeps_partitions: Callable[[pa.DataType, pa.DataType], bool] = lambda _old, _new: False
    stored_values_fit: Callable[[pa.Field, pa.DataType], bool] = lambda _field, _type: False
    holds_no_null: Callable[[pa.Field], bool] = lambda _field: False
    holds_no_file: Callable[[], bool] = lambda: False


class SchemaChange(Protocol):
    """One change. Its text is what the history shows."""

    def apply(self, schema: pa.Schema, facts: Facts) -> tuple[pa.Schema, tuple[int | None, ...]]:
        """The changed schema, and the ids of the fields that the change named.

        Raises:
            SchemaMismatchError: the schema has no such field, or does not allow the change.
        """


@dataclass(frozen=True, slots=True)
class AddColumn:
    """A new column, the last one of its schema or struct.

    Existing rows have the default, an exact value of the storage type, or NULL without one.
    A column that is not nullable needs a default.
    """

    path: Path
    type: pa.DataType
    comment: str | None = None
    default: pa.Scalar | None = None
    nullable: bool = True

    def apply(self, schema: pa.Schema, facts: Facts) -> tuple[pa.Schema, tuple[int | None, ...]]:
        parent, name = parent_of(schema, self.path)
        field = storage_schema(pa.schema([pa.field(name, self.type)])).field(0)
        if self.comment is not None:
            field = commented(field, self.comment)
        if self.default is not None:
            field = with_defaults(field, self.default)
        elif not self.nullable:
            raise SchemaMismatchError(
                column=shown(self.path),
                reason="cannot be added as NOT NULL without a default: rows that were written "
                "before would have NULL in it",
                hint="Give default=.",
            )
        added = assign_ids(field.with_nullable(self.nullable), facts.next_id)

        def add(fields: list[pa.Field]) -> list[pa.Field]:
            _check_name(name, fields, self.path)
            return [*fields, added]

        above = (field_id(field_at(schema, parent)),) if parent else ()
        return with_children(schema, parent, add), above

    def __str__(self) -> str:
        text = f"add {shown(self.path)} {self.type}"
        text += "" if self.nullable else " NOT NULL"
        return text if self.default is None else f"{text} default {cut_repr(self.default)}"


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """Another name for a column. Its id, data, statistics and partitions stay."""

    path: Path
    name: str

    def apply(self, schema: pa.Schema, facts: Facts) -> tuple[pa.Schema, tuple[int | None, ...]]:
        place = find(schema, self.path)
        _check_in_struct(schema, place, self.path, "renamed")
        renamed = field_at(schema, place)

        def rename(fields: list[pa.Field]) -> list[pa.Field]:
            others = [field for i, field in enumerate(fields) if i != place[-1]]
            _check_name(self.name, others, self.name)
            fields[place[-1]] = renamed.with_name(self.name)
            return fields

        return with_children(schema, place[:-1], rename), (field_id(renamed),)

    def __str__(self) -> str:
        return f"rename {shown(self.path)} to {self.name}"


@dataclass(frozen=True, slots=True)
class DropColumn:
    """A column is removed. Older versions still have it. Its id is not used again."""

    path: Path

    def apply(self, schema: pa.Schema, facts: Facts) -> tuple[pa.Schema, tuple[int | None, ...]]:
        place = find(schema, self.path)
        _check_in_struct(schema, place, self.path, "dropped")
        dropped = field_at(schema, place)
        hint = "Write the rows to a new dataset that is not partitioned by it."
        _check_no_partition_column(dropped, place, self.path, facts, "be dropped", hint)

        def drop(fields: list[pa.Field]) -> list[pa.Field]:
            del fields[place[-1]]
            if all(field_id(field) in facts.partition_ids for field in fields):
                raise SchemaMismatchError(
                    column=shown(self.path),
                    reason="is the only field of its struct, or the only column that files store",
                    hint="Add another one first, or drop the struct.",
                )
            return fields

        return with_children(schema, place[:-1], drop), (field_id(dropped),)

    def __str__(self) -> str:
        return f"drop {shown(self.path)}"


@dataclass(frozen=True, slots=True)
class PromoteColumn:
    """Another type for a column, which holds every stored value exactly.

    Where the version has no file any type does: the column is then a new one of that name.
    """

    path: Path
    type: pa.DataType

    def apply(self, schema: pa.Schema, facts: Facts) -> tuple[pa.Schema, tuple[int | None, ...]]:
        place = find(schema, self.path)
        field = field_at(schema, place)
        wanted = storage_schema(pa.schema([pa.field("c", self.type)])).field(0).type
        ids = (field_id(field),)
        if wanted.equals(field.type):
            return schema, ids
        try:
            self._check(field, wanted, place, facts)
        except SchemaMismatchError:
            if len(place) > 1 or not facts.holds_no_file():
                raise
            new = assign_ids(without_default(field).with_type(wanted), facts.next_id)
            return with_field(schema, place, new), ids
        return with_field(schema, place, promoted(field, wanted)), ids

    def _check(self, field: pa.Field, wanted: pa.DataType, place: Place, facts: Facts) -> None:
        def refused(reason: str, hint: str) -> SchemaMismatchError:
            return SchemaMismatchError(
                column=shown(self.path),
                expected=field.type,
                got=wanted,
                reason=f"is {field.type} and cannot become {wanted}: {reason}",
                hint=hint,
            )

        if is_nested(field.type) or is_nested(wanted):
            raise refused("one of them is nested", "Add, promote or drop single fields instead.")
        is_partition = _is_partition_column(field, place, facts)
        if is_partition and not facts.keeps_partitions(field.type, wanted):
            raise refused(
                "it is a partition column, and its recorded values have another form in that type",
                "Write the rows to a new dataset.",
            )
        if fit(field.type, wanted) is Fit.EVERY:
            return
        text = pa.types.is_string(wanted) and prints_as_string(field.type)
        if text and len(place) == 1:
            return
        if not is_provable(field.type, wanted):
            hint = "Add a new column of that type."
            raise refused("not every value survives that exactly", hint)
        if not facts.stored_values_fit(field, wanted):
            raise refused(
                "the statistics of its files do not show that every value fits",
                "Choose a coarser unit.",
            )

    def __str__(self) -> str:
        return f"promote {shown(self.path)} to {self.type}"


@dataclass(frozen=True, slots=True)
class SetSparkType:
    """The Spark type of a column, if Arrow has no name for the type; history shows `type`.

    `metadata` is that of a field that was made from the type. Without such metadata, a column has
    the Spark type of its Arrow type.
    """

    path: Path
    type: str
    metadata: Mapping[bytes, bytes]

    def apply(self, schema: pa.Schema, facts: Facts) -> tuple[pa.Schema, tuple[int | None, ...]]:
        place = find(schema, self.path)
        field = field_at(schema, place)
        return with_field(schema, place, typed(field, self.metadata)), (field_id(field),)

    def __str__(self) -> str:
        return f"type of {shown(self.path)} in Spark: {self.type}"


@dataclass(frozen=True, slots=True)
class ReorderColumns:
    """Columns of one schema or struct in another order.

    The named columns come first, or after the column `after`. The others follow in their present
    order.
    """

    paths: tuple[Path, ...]
    after: Path | None = None

    def apply(self, schema: pa.Schema, facts: Facts) -> tuple[pa.Schema, tuple[int | None, ...]]:
        named = [*self.paths, *(() if self.after is None else (self.after,))]
        places = [find(schema, path) for path in named]
        for path, place in zip(named, places):
            _check_in_struct(schema, place, path, "moved")
            if place[:-1] != places[0][:-1]:
                raise SchemaMismatchError(
                    column=shown(path),
                    reason=f"is not in the struct of {shown(named[0])}",
                    hint="Name fields of one struct, or top-level columns.",
                )
            if places.count(place) > 1:
                raise SchemaMismatchError(
                    column=shown(path), reason="is named twice", hint="Name it once."
                )
        moved = [place[-1] for place in places[: len(self.paths)]]

        def reorder(fields: list[pa.Field]) -> list[pa.Field]:
            rest = [i for i in range(len(fields)) if i not in moved]
            at = 0 if self.after is None else rest.index(places[-1][-1]) + 1
            return [fields[i] for i in [*rest[:at], *moved, *rest[at:]]]

        ids = tuple(field_id(field_at(schema, place)) for place in places)
        return with_children(schema, places[0][:-1], reorder), ids

    def __str__(self) -> str:
        names = ", ".join(map(shown, self.paths))
        return f"move {names} " + ("first" if self.after is None else f"after {shown(self.after)}")


@dataclass(frozen=True, slots=True)
class SetNullable:
    """From now on, NULL is allowed in a column, or refused."""

    path: Path
    nullable: bool

    def apply(self, schema: pa.Schema, facts: Facts) -> tuple[pa.Schema, tuple[int | None, ...]]:
        place = find(schema, self.path)
        field = field_at(schema, place)
        ids = (field_id(field),)
        if field.nullable == self.nullable:
            return schema, ids
        above = [field_at(schema, place[: i + 1]) for i in range(len(place) - 1)]
        if above and pa.types.is_map(above[-1].type) and place[-1] == 0:
            raise SchemaMismatchError(
                column=shown(self.path),
                reason="is the key of a map, which is never NULL",
                hint="Leave it as it is.",
            )
        if not self.nullable:
            in_struct = all(pa.types.is_struct(one.type) for one in above)
            counted = not is_nested(field.type) or pa.types.is_struct(field.type)
            if not (in_struct and counted and facts.holds_no_null(field)):
                raise SchemaMismatchError(
                    column=shown(self.path),
                    reason="cannot become NOT NULL: the statistics of the files do not show that "
                    "no row has a NULL in it",
                    hint="Overwrite the rows that have a NULL. Lists, maps and what is in them "
                    "stay nullable.",
                )
        return with_field(schema, place, field.with_nullable(self.nullable)), ids

    def __str__(self) -> str:
        return f"set {shown(self.path)} {'nullable' if self.nullable else 'NOT NULL'}"


@dataclass(frozen=True, slots=True)
class SetDefault:
    """The value that new rows get in a column where the data of the write lacks the column.

    None: such rows have NULL. Rows that were written before stay as they are.
    """

    path: Path
    value: Any
    sql: str | None = None

    def apply(self, schema: pa.Schema, facts: Facts) -> tuple[pa.Schema, tuple[int | None, ...]]:
        place = find(schema, self.path)
        _check_in_struct(schema, place, self.path, "given a default")
        field = field_at(schema, place)
        hint = "Give the column in the data."
        _check_no_partition_column(field, place, self.path, facts, "have a default", hint)
        value = self.value
        if value is not None:
            value = checked_default(value, field.type, shown(self.path))
        if self.sql is not None and len(place) > 1:
            raise SchemaMismatchError(
                column=shown(self.path),
                reason=f"is in a struct and cannot have the default {self.sql}",
                hint="Give a value, or write the column with the rows.",
            )
        changed = with_write_default(field, value, self.sql)
        return with_field(schema, place, changed), (field_id(field),)

    def __str__(self) -> str:
        value = cut_repr(self.value) if self.sql is None else self.sql
        return f"set default of {shown(self.path)} to {value}"


@dataclass(frozen=True, slots=True)
class SetComment:
    """A text about a column, for people. Spark shows it too. None removes it."""

    path: Path
    text: str | None

    def apply(self, schema: pa.Schema, facts: Facts) -> tuple[pa.Schema, tuple[int | None, ...]]:
        place = find(schema, self.path)
        field = field_at(schema, place)
        return with_field(schema, place, commented(field, self.text)), (field_id(field),)

    def __str__(self) -> str:
        return f"comment on {shown(self.path)}"


def apply_all(
    schema: pa.Schema, changes: Sequence[SchemaChange], facts: Facts
) -> tuple[pa.Schema, tuple[tuple[int | None, ...], ...]]:
    """The schema after all changes, and for each change the ids of the fields that it named.

    Raises:
        SchemaMismatchError: a change cannot be made.
    """
    named = []
    for change in changes:
        schema, ids = change.apply(schema, facts)
        named.append(ids)
    return schema, tuple(named)


def renamed(names: Sequence[str], before: pa.Schema, after: pa.Schema) -> tuple[str, ...]:
    """Dotted names of fields of `before`, as `after` names the fields with the same ids.

    A name that only one of the schemas has stays as it is.
    """
    ids = {".".join(path).lower(): field_id(field) for path, field in walk(before)}
    paths = {field_id(field): ".".join(path) for path, field in walk(after)}
    return tuple(paths.get(ids.get(name.lower()), name) for name in names)


def _is_partition_column(field: pa.Field, place: Place, facts: Facts) -> bool:
    return len(place) == 1 and field_id(field) in facts.partition_ids


def _check_no_partition_column(
    field: pa.Field, place: Place, path: Path, facts: Facts, what: str, hint: str
) -> None:
    if _is_partition_column(field, place, facts):
        raise SchemaMismatchError(
            column=shown(path), reason=f"is a partition column and cannot {what}", hint=hint
        )


def _check_in_struct(schema: pa.Schema, place: Place, path: Path, what: str) -> None:
    if len(place) > 1 and not pa.types.is_struct(field_at(schema, place[:-1]).type):
        raise SchemaMismatchError(
            column=shown(path),
            reason=f"is a part of a list or map and cannot be {what}",
            hint="Change the list or map itself, or a field of a struct in it.",
        )


def _check_name(name: str, others: Sequence[pa.Field], path: Path) -> None:
    """Check that a field may get a name beside others."""
    check_name(name, shown(path))
    taken = find_field(name, others)
    if taken is not None:
        raise SchemaMismatchError(
            column=shown(path),
            reason=f"collides with {taken.name!r}: two names must differ by more than case",
            hint="Choose another name.",
        )

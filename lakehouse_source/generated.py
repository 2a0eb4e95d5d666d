"""Pure. Generated and identity columns: the gate where rows get values, and given ones are checked.

Rows that are written go through `completed`, in the process that writes their file. A value that
data lacks, or has as NULL, is computed. Rows in files of others are looked for by `broken`, like
those that break a constraint. Wall clocks and dates are read in UTC, whoever writes.

Defaults of columns that are expressions are what rows get that a write has no value for.
`current_timestamp()` and the like are evaluated once, when the write begins, so that all its rows
have one value, as SQL says. Functions with another value in each row are refused, as in Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.errors import (
    GeneratedColumnError,
    InvalidExpressionError,
    InvalidPredicateError,
    SchemaMismatchError,
)
from lakehouse_source.language import (
    BoundPredicate,
    BoundValue,
    Name,
    PredicateSet,
    all_of,
    assign,
    is_in,
    negated,
    require_assignable,
)
from lakehouse_source.language.bounds.bound import BoundAnd, BoundCompare, BoundIn, conjunction
from lakehouse_source.language.expression import Expression, at_one_time, scope_of
from lakehouse_source.language.nodes import names
from lakehouse_source.model import Ordinal
from lakehouse_source.schema.align import align, by_name
from lakehouse_source.schema.arrow_arrays import shown_row
from lakehouse_source.schema.defaults import Identity, computed, computed_columns, default_sql
from lakehouse_source.schema.fields import field_id, has_collation, is_nested
from lakehouse_source.schema.ordinal import domain, to_scalar
from lakehouse_source.schema.spark_metadata import fitted

_ZONE = "UTC"


@dataclass(frozen=True, eq=False)
class Generated:
    """A column over the schema of its dataset. Picklable: it is bound again where rows are."""

    name: str
    expression: str
    schema: pa.Schema

    def __getstate__(self) -> dict[str, Any]:
        return {one: getattr(self, one) for one in ("name", "expression", "schema")}

    @property
    def bound(self) -> BoundValue:
        """The expression over the schema."""
        known: BoundValue | None = self.__dict__.get("_value")
        if known is None:
            known = Expression.parse(self.expression).bind(scope_of(self.schema, _ZONE))
            self.__dict__["_value"] = known
        return known

    @property
    def broken(self) -> BoundPredicate:
        """The condition on rows with another value than the expression gives."""
        same = PredicateSet.of(f"{Name((self.name,))} <=> ({self.expression})")
        return PredicateSet(negated(same.root)).bind(self.schema, _ZONE)

    def values(self, rows: pa.Table) -> pa.ChunkedArray:
        """What the expression gives on rows, as the column stores it.

        Raises:
            GeneratedColumnError: it has no value on a row, or one that the column does not hold.
        """
        field = self.schema.field(self.name).with_nullable(True)
        try:
            return fitted(assign(self.bound.evaluate({"": rows}, rows.num_rows), field), field)
        except (InvalidExpressionError, SchemaMismatchError) as error:
            raise self.without_value(error) from error

    def of_rows(self, rows: pa.Table) -> pa.ChunkedArray:
        """The values that rows have, or else get.

        Raises:
            GeneratedColumnError: a row has another value than the expression gives.
        """
        given, wanted = rows.column(self.name), self.values(rows)
        if given.null_count == len(given):
            return wanted
        differ = pc.not_equal(given, wanted)
        if pa.types.is_floating(given.type):
            differ = pc.and_not(differ, pc.and_(pc.is_nan(given), pc.is_nan(wanted)))
        differ = pc.if_else(pc.is_valid(differ), differ, pc.is_valid(given))
        if pc.any(differ).as_py():
            raise self.violation(rows.slice(pc.index(differ, True).as_py(), 1))
        return pc.if_else(pc.is_null(given), wanted, given) if given.null_count else given

    def violation(self, rows: pa.Table) -> GeneratedColumnError:
        """The error of rows with another value, which shows the first one."""
        row = rows.slice(0, 1).select(self.schema.names)
        read = [column for _, column in self.bound.columns]
        wanted = pa.table({self.name: self.values(row)})
        return GeneratedColumnError(
            column=self.name,
            expression=self.expression,
            row=shown_row(row, 0, [self.name, *read]),
            expected=shown_row(wanted, 0, ()),
        )

    def without_value(
        self, error: InvalidExpressionError | InvalidPredicateError | SchemaMismatchError
    ) -> GeneratedColumnError:
        """The error of a row on which the expression cannot be computed."""
        return GeneratedColumnError(
            column=self.name, expression=self.expression, reason=error.reason or str(error)
        )


# --- identity columns
#
# A number is start + step * n. A write holds a lane, a range of n that the catalog gave to it
# alone, and gives back what it did not use. Tasks of Spark do not ask the catalog: each takes
# blocks of the lane that belong to its partition. Attempts of one task give the same numbers; one
# of them is committed.

_LANE = 1 << 44
_TASKS = 1 << 16
_BLOCK = 1 << 20
_LIMIT = 1 << 63


def lanes(how: Identity) -> tuple[int, int]:
    """How many numbers a lane has, and how many lanes fit into 64 bits."""
    room = _LIMIT - 1 - how.start if how.step > 0 else how.start + _LIMIT
    room = room // abs(how.step) + 1
    size = max(1, min(_LANE, room >> 10))
    return size, room // size


@dataclass(frozen=True, slots=True)
class Numbers:
    """The numbers of one write: `first` to before `end` are its n. `task` is that of Spark.

    None: one process writes all rows.
    """

    name: str
    how: Identity
    lane: int
    first: int
    end: int
    task: int | None = None

    def values(self, taken: int, count: int) -> pa.Array:
        """The next numbers, after so many.

        Raises:
            SchemaMismatchError: there are no more.
        """
        parts: list[pa.Array] = []
        begin, left = taken, count if (self.task or 0) < _TASKS else 0
        while left:
            n, some = begin, left
            if self.task is not None:
                size = max(1, min(_BLOCK, lanes(self.how)[0] >> 20))
                block, inside = divmod(begin, size)
                n, some = (block * _TASKS + self.task) * size + inside, min(left, size - inside)
            n += self.first
            if n + some > self.end:
                break
            parts.append(self._series(n, some))
            begin, left = begin + some, left - some
        if parts and not left:
            return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
        raise SchemaMismatchError(
            column=self.name,
            reason="has no more numbers for this write"
            if self.task is None
            else f"has no more numbers for task {self.task}",
            hint=f"Write fewer rows at once, or in more tasks, at most {_TASKS:,}.",
        )

    def _series(self, n: int, count: int) -> pa.Array:
        """So many numbers from n on."""
        start, step = self.how.start + n * self.how.step, self.how.step
        end = start + count * step
        if -_LIMIT <= end < _LIMIT:
            return pa.arange(start, end, step)
        return pc.add(pc.multiply(pa.arange(0, count), step), start)  # the last are at the limit

    def used(self, values: Iterable[int | None]) -> int:
        """Before which n the lane is used, where files have these last numbers.

        None: a file does not tell.
        """
        found = self.first
        for value in values:
            n = self.end if value is None else (value - self.how.start) // self.how.step + 1
            found = max(found, min(n, self.end))
        return found


@dataclass(slots=True)
class Counter:
    """The numbers of the rows that one process writes, one batch after the other."""

    columns: Sequence[Numbers]
    taken: dict[str, int] = field(default_factory=dict)

    def fill(self, rows: pa.Table, moved: str | None) -> pa.Table:
        """Rows with numbers where they lack one. `moved`: the column that is NULL in new rows.

        Raises:
            SchemaMismatchError: a new row brings a number and must not.
        """
        for one in self.columns:
            at = rows.schema.get_field_index(one.name)
            given = rows.column(at)
            if one.how.always and given.null_count < len(given):
                self._check(one, rows, given, moved)
            lacking = given.null_count
            if not lacking:
                continue
            taken = self.taken.get(one.name, 0)
            numbers = one.values(taken, lacking)
            self.taken[one.name] = taken + lacking
            if lacking < len(given):
                flags = pc.is_null(given).combine_chunks()
                numbers = pc.replace_with_mask(given.combine_chunks(), flags, numbers)
            rows = rows.set_column(at, rows.schema.field(at), numbers)
        return rows

    def _check(
        self, one: Numbers, rows: pa.Table, given: pa.ChunkedArray, moved: str | None
    ) -> None:
        brings = pc.is_valid(given)
        if moved is not None:
            brings = pc.and_(brings, pc.is_null(rows.column(moved)))
        if pc.any(brings).as_py():
            value = given[pc.index(brings, True).as_py()]
            raise SchemaMismatchError(
                column=one.name,
                reason=f"is {one.how.sql}, and a row brings {value}",
                hint="Leave the column out, or make it BY DEFAULT.",
            )


def generated(schema: pa.Schema) -> tuple[Generated, ...]:
    """The generated columns of a dataset."""
    return tuple(
        Generated(name, how, schema)
        for name, how in computed_columns(schema).items()
        if isinstance(how, str)
    )


def completed(rows: pa.Table, columns: Sequence[Generated], schema: pa.Schema) -> pa.Table:
    """Rows that are about to be written, with the values of generated columns.

    Raises:
        GeneratedColumnError: a row has another value than the expression gives.
        SchemaMismatchError: a column that is not nullable has a NULL.
    """
    for one in columns:
        at = rows.schema.get_field_index(one.name)
        rows = rows.set_column(at, rows.schema.field(at), one.of_rows(rows))
    if not columns:  # the numbers of identity columns are not NULL
        return pa.Table.from_arrays(rows.columns, schema=schema)
    return align(rows, schema, rows.schema, by_name)


def lacking(schema: pa.Schema, columns: Iterable[Generated | Numbers]) -> pa.Schema:
    """The schema of rows whose generated columns may lack values."""
    for one in columns:
        at = schema.get_field_index(one.name)
        schema = schema.set(at, schema.field(at).with_nullable(True))
    return schema


_MOST_VALUES = 1000


def with_generated(condition: BoundPredicate, schema: pa.Schema) -> BoundPredicate:
    """The condition, and what it says of generated columns. The gate of whatever prunes.

    Every row that satisfies the one satisfies the other.
    """
    more = through_generated(condition, schema)
    if more is None:
        return condition
    root = conjunction([condition.root, more.bind(schema, _ZONE).root])
    return replace(condition, root=root)


def through_generated(condition: BoundPredicate, schema: pa.Schema) -> PredicateSet | None:
    """What a condition says of generated columns, so that their bounds prune; None: nothing.

    Where it names the values of all columns that an expression reads, the generated column has the
    values of the expression.
    """
    root = condition.root
    fixed: dict[str, tuple[pa.DataType, Sequence[Ordinal]]] = {}
    for term in root.terms if isinstance(root, BoundAnd) else (root,):
        if isinstance(term, BoundIn) and not term.has_nan and len(term.values) <= _MOST_VALUES:
            values: Sequence[Ordinal] = term.values
        elif isinstance(term, BoundCompare) and term.op in ("=", "<=>"):
            values = (term.value,)
        else:
            continue
        column = term.column
        name, *inside = column.path
        is_one = domain(column.type).may_be_key  # a value, for every expression
        if not inside and is_one and not has_collation(schema.field(name)):
            fixed[name] = column.type, values
    terms = []
    for one in generated(schema) if fixed else ():
        read = [name for _, name in one.bound.columns]
        several = [name for name in read if len(fixed.get(name, ((), ()))[1]) != 1]
        if not read or len(several) > 1 or not fixed.keys() >= {*read}:
            continue
        count = len(fixed[several[0]][1]) if several else 1
        try:
            rows = {name: _scalars(*fixed[name], count) for name in read}
            found = pc.unique(one.values(pa.table(rows)))
            given = found.to_pylist()
        except (GeneratedColumnError, OverflowError, ValueError):  # or a year that Python has not
            continue
        if found.null_count == 0 and domain(found.type).may_be_key:
            terms.append(is_in(Name((one.name,)), given))
    return PredicateSet(all_of(terms)) if terms else None


def _scalars(type_: pa.DataType, values: Sequence[Ordinal], count: int) -> pa.Array:
    found = pa.array([to_scalar(value, type_) for value in values], type_)
    return pa.repeat(found[0], count) if len(found) == 1 else found


def checked_new(schema: pa.Schema) -> pa.Schema:
    """The schema of a new dataset, whose generated columns can be computed.

    Raises:
        SchemaMismatchError: an expression cannot be read, does not fit the schema, reads a
            generated column, or may have another value later.
    """
    for name, how in computed_columns(schema).items():
        column = schema.field(name)
        if isinstance(how, Identity):
            if not column.type.equals(pa.int64()):
                raise SchemaMismatchError(
                    column=name,
                    got=column.type,
                    reason=f"is {how.sql} and of the type {column.type}",
                    hint="Make it a BIGINT (int64).",
                )
            continue
        one = Generated(name, how, schema)
        try:
            root = Expression.parse(one.expression).root
            if is_nested(column.type):
                raise _refused(one, "only columns that are not nested can be generated")
            if str(at_one_time(root, scope_of(schema, _ZONE))) != str(root):
                raise _refused(one, "it has another value at another time")
            for path, _ in _read(one, schema):
                if isinstance(computed(schema.field(path[0].name)), str):  # numbers come first
                    raise _refused(one, f"it reads {path[0].name!r}, which is generated too")
            require_assignable(one.bound.type, column)
        except InvalidExpressionError as error:
            raise _refused(one, error.reason) from error
    return schema


def check_sources(before: pa.Schema, after: pa.Schema) -> None:
    """Check that a change of the schema leaves generated columns what they are.

    Raises:
        SchemaMismatchError: a column that an expression reads would get another name or type, or
            be dropped; so would the generated column itself but for its name.
    """
    ids = {field_id(field): field for field in after}
    for name, how in computed_columns(before).items():
        now = ids.get(field_id(before.field(name)))
        if isinstance(how, Identity) and now is not None and not now.type.equals(pa.int64()):
            raise SchemaMismatchError(
                column=name, reason=f"is {how.sql}: its type stays", hint="Drop it first."
            )
    for one in generated(before):
        now = ids.get(field_id(before.field(one.name)))
        if now is None or computed(now) is None:
            continue
        same = now.type.equals(before.field(one.name).type)
        changed = one.name if not same else None
        try:
            found = list(_read(Generated(now.name, one.expression, after), after))
        except InvalidExpressionError:
            found = []
        for number, (path, shown) in enumerate(_read(one, before)):
            later = found[number][0] if number < len(found) else []
            ids_now = [field_id(field) for field in later]
            kept = ids_now == [field_id(field) for field in path]
            if changed is None and not (kept and later[-1].type.equals(path[-1].type)):
                changed = shown
        if changed is not None:
            raise SchemaMismatchError(
                column=changed,
                reason=f"cannot be renamed, dropped or get another type: {one.name!r} is "
                f"GENERATED ALWAYS AS ({one.expression})",
                hint=f"Drop {one.name!r} first.",
            )


def _read(one: Generated, schema: pa.Schema) -> Iterator[tuple[Sequence[pa.Field], str]]:
    """The fields down to each one that an expression names, and the name."""
    scope = scope_of(schema, _ZONE)
    for name in names(Expression.parse(one.expression).root):
        yield scope.find(Name(name.parts)).path, str(name)


def _refused(one: Generated, reason: str) -> SchemaMismatchError:
    return SchemaMismatchError(
        column=one.name,
        reason=f"cannot be GENERATED ALWAYS AS ({one.expression}): {reason}",
        hint="Compute it from other columns of the row, such as CAST(ts AS DATE).",
    )


# Wall clocks and dates are read in UTC, whoever writes, as in generated columns.

# The value of all rows of a write, by column.
Defaults = Mapping[str, pa.Scalar]


def defaults_of(schema: pa.Schema) -> Defaults:
    """The defaults of a write that begins now.

    Raises:
        SchemaMismatchError: one is no expression without columns, or has another type.
    """
    now = datetime.now(timezone.utc)
    found = ((field, default_sql(field)) for field in schema)
    return {field.name: _value(field, sql, now) for field, sql in found if sql is not None}


def _value(field: pa.Field, sql: str, now: datetime) -> pa.Scalar:
    try:
        if is_nested(field.type):
            raise InvalidExpressionError(reason="only columns that are not nested have defaults")
        bound = Expression.parse(sql).bind(scope_of(pa.schema([]), _ZONE, now))
        require_assignable(bound.type, field)
        nullable = field.with_nullable(True)
        return assign(bound.evaluate({"": pa.table({})}, 1), nullable)[0]
    except InvalidExpressionError as error:
        raise SchemaMismatchError(
            column=field.name,
            reason=f"is {field.type} and cannot have the default {sql}: {error.reason}",
            hint="Give an expression without columns, such as current_timestamp().",
        ) from error

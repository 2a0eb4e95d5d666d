"""Pure. What each row of a dataset satisfies: its constraints. The one gate of all writers.

Rows that are written go through `check_rows`, in the process that writes their file. Rows that are
in files already are looked for by `broken`, a condition that prunes and filters like any other.
NULL counts as satisfied, as in SQL. Wall clocks and dates are read in UTC, whoever writes.

A key is a constraint of the text `PRIMARY KEY (a, b)` or `UNIQUE (a, b)`. No single row tells
whether its key is there twice: `write/commit/keys.py` is the gate for that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.errors import (
    ConstraintViolationError,
    InvalidExpressionError,
    InvalidOptionError,
    InvalidPredicateError,
    SchemaMismatchError,
    constraint_sql,
)
from lakehouse_source.language import BoundPredicate, PredicateSet, negated
from lakehouse_source.language.expression import Expression, at_one_time, scope_of
from lakehouse_source.language.nodes import Call, Name, any_of, constant, is_null, names
from lakehouse_source.language.row_filter import matching_mask
from lakehouse_source.properties import Check
from lakehouse_source.schema.arrow_arrays import shown_row
from lakehouse_source.schema.fields import field_id, find_field, find_name, has_collation
from lakehouse_source.schema.ordinal import domain

# Characters of a constraint's name.
_LONGEST_NAME = 255
_ZONE = "UTC"

_KEY = re.compile(r"\s*(PRIMARY\s+KEY|UNIQUE)\s*(\(.*\))\s*", re.IGNORECASE | re.DOTALL)
_PRIMARY = "PRIMARY KEY"


@lru_cache(maxsize=256)
def key_columns(expression: str) -> tuple[str, ...]:
    """The columns of a key, from the text of a constraint; none: it is a CHECK.

    Raises:
        InvalidOptionError: the text begins like a key and names no columns.
    """
    match = _KEY.fullmatch(expression)
    if match is None:
        return ()
    try:
        root = Expression.parse("struct" + match[2]).root
    except InvalidExpressionError:
        root = None
    found = root.arguments if isinstance(root, Call) and root.name == "struct" else ()
    if not found or not all(isinstance(one, Name) and len(one.parts) == 1 for one in found):
        reason = "does not name columns: PRIMARY KEY (a, b)."
        raise InvalidOptionError(option="constraint", value=expression, reason=reason)
    return tuple(one.parts[0] for one in found if isinstance(one, Name))


def is_primary(expression: str) -> bool:
    """Tell whether the text of a constraint is that of a primary key."""
    return expression.startswith(f"{_PRIMARY} (")


def ascending_ends(values: pa.Array) -> pa.Array | None:
    """The first and the last of values, each greater than the one before. None: they are not."""
    if values.null_count or not len(values):
        return None
    if not pc.all(pc.less(values[:-1], values[1:]), min_count=0).as_py():
        return None
    return values[:1] if len(values) == 1 else pa.concat_arrays([values[:1], values[-1:]])


def may_ascend(constraint: Constraint, schema: pa.Schema) -> bool:
    """Tell whether keys that ascend, as Arrow compares them, are all different."""
    if len(constraint.unique) != 1 or constraint.unique[0] not in schema.names:
        return False
    kind = domain(schema.field(constraint.unique[0]).type).kind
    return kind in ("int", "date", "timestamp", "string")


def primary_key(checks: Mapping[str, Check]) -> tuple[str, ...]:
    """The columns of the primary key; none: there is no primary key."""
    texts = (one.expression for one in checks.values())
    return next((key_columns(text) for text in texts if is_primary(text)), ())


def _key_of(name: str, expression: str, schema: pa.Schema) -> str:
    """The text of a key, its columns as the schema spells them. Other texts stay as they are."""
    columns = []
    for given in key_columns(expression):
        field = find_field(given, schema)
        if field is None:
            reason = f"of constraint {name!r} is not a column."
            raise InvalidOptionError(option="key", value=given, reason=reason, known=schema.names)
        if field.name in columns:
            reason = f"is twice in constraint {name!r}."
            raise InvalidOptionError(option="key", value=given, reason=reason)
        if not domain(field.type).may_be_key or has_collation(field):
            reason = (
                f"of constraint {name!r} has type {field.type}, whose values are no keys: take "
                "whole numbers, decimals, texts, bytes, booleans, dates or times."
            )
            raise InvalidOptionError(option="key", value=given, reason=reason)
        columns.append(field.name)
    if not columns:
        return expression
    kind = _PRIMARY if expression.lstrip()[0] in "pP" else "UNIQUE"
    return f"{kind} ({', '.join(str(Name((one,))) for one in columns)})"


@dataclass(frozen=True, slots=True)
class Constraint:
    """A constraint over one schema; `broken` is TRUE on the rows that break it. Picklable.

    `unique` are the columns of a key, no two rows of which are equal. NULL equals nothing, and
    breaks a primary key.
    """

    name: str
    expression: str
    broken: BoundPredicate
    unique: tuple[str, ...] = ()

    @classmethod
    def of(cls, name: str, expression: Any, schema: pa.Schema) -> Constraint:
        """The constraint with this name and SQL text.

        Raises:
            InvalidOptionError: the name cannot be one, the condition may have another value
                later, or a column cannot be in a key.
            InvalidPredicateError: the condition cannot be read, or does not fit the schema.
        """
        if not isinstance(name, str) or not name.strip() or len(name) > _LONGEST_NAME:
            reason = f"is not a name of 1 to {_LONGEST_NAME} characters."
            raise InvalidOptionError(option="constraint", value=name, reason=reason)
        if "\0" in name:
            raise InvalidOptionError(option="constraint", value=name, reason="has a NUL.")
        if not isinstance(expression, str):
            reason = f"of constraint {name!r} is not a text of SQL."
            raise InvalidOptionError(option="expression", value=expression, reason=reason)
        expression = _key_of(name, expression, schema)
        constraint = cls._bound(name, expression, schema)
        if constraint.unique:
            return constraint
        root = PredicateSet.of(expression).root
        if str(at_one_time(root, scope_of(schema, _ZONE))) != str(root):
            raise InvalidOptionError(
                option="expression",
                value=expression,
                reason=f"of constraint {name!r} has another value at another time. Compare columns "
                "with columns and constants.",
            )
        return constraint

    @classmethod
    def _bound(cls, name: str, expression: str, schema: pa.Schema) -> Constraint:
        unique = key_columns(expression)
        if unique and _key_of(name, expression, schema) != expression:
            raise InvalidPredicateError(reason="a column of the key has another name")
        return cls(name, expression, _breaking(expression).bind(schema, _ZONE), unique)

    @property
    def breaking(self) -> PredicateSet:
        """The condition on rows that break the constraint."""
        return _breaking(self.expression)

    def violation(self, rows: pa.Table) -> ConstraintViolationError:
        """The error of rows that break the constraint, which shows the first one."""
        text = shown_row(rows, 0, self.broken.columns)
        return ConstraintViolationError(constraint=self.name, expression=self.expression, row=text)

    def violation_of(self, row: str, twin: str) -> ConstraintViolationError:
        """The error of a row whose key another row has too."""
        return ConstraintViolationError(
            constraint=self.name, expression=self.expression, row=row, twin=twin
        )

    def without_value(
        self, error: InvalidExpressionError | InvalidPredicateError
    ) -> ConstraintViolationError:
        """The error of a row on which the condition cannot be computed."""
        return ConstraintViolationError(
            constraint=self.name, expression=self.expression, reason=error.reason
        )


@lru_cache(maxsize=256)
def _breaking(expression: str) -> PredicateSet:
    unique = key_columns(expression)
    if unique:
        nulls = any_of([is_null(Name((one,))) for one in unique])
        return PredicateSet(nulls if is_primary(expression) else constant(False))
    return PredicateSet(negated(PredicateSet.of(expression).root))


def of_new(given: Mapping[str, str], schema: pa.Schema) -> tuple[Constraint, ...]:
    """The constraints that a dataset is created with.

    Raises:
        InvalidOptionError, InvalidPredicateError: as `Constraint.of` does.
    """
    for number, name in enumerate(given):
        if find_name(name, list(given)[:number]) is not None:
            raise InvalidOptionError(option="constraint", value=name, reason="is there twice.")
    found = tuple(Constraint.of(name, text, schema) for name, text in given.items())
    for second in [one.name for one in found if is_primary(one.expression)][1:]:
        reason = "is a second primary key."
        raise InvalidOptionError(option="constraint", value=second, reason=reason)
    return found


def bound(checks: Mapping[str, Check], schema: pa.Schema) -> tuple[Constraint, ...]:
    """The constraints of a dataset over a schema.

    Raises:
        SchemaMismatchError: the schema does not fit a constraint.
    """
    found = []
    for name, check in checks.items():
        try:
            found.append(Constraint._bound(name, check.expression, schema))
        except (InvalidOptionError, InvalidPredicateError) as error:
            raise _does_not_fit(name, check, error.reason.rstrip(".")) from error
    return tuple(found)


def check_rows(rows: pa.Table, constraints: Sequence[Constraint]) -> None:
    """Check that rows which are about to be written break no constraint.

    Raises:
        ConstraintViolationError: names the first row that does.
    """
    first: tuple[int, Constraint] | None = None
    for one in constraints:
        try:
            broken = matching_mask(rows, one.broken)
        except (InvalidExpressionError, InvalidPredicateError) as error:
            raise one.without_value(error) from error
        if pc.any(broken).as_py():  # ten times as fast as to look for the first one
            at = pc.index(broken, True).as_py()
            first = min(first or (at, one), (at, one), key=lambda found: found[0])
    if first is not None:
        raise first[1].violation(rows.slice(first[0], 1))


def missing(required: Mapping[str, Check], checked: Iterable[Constraint]) -> tuple[str, ...]:
    """The names of constraints that are not among those that were checked."""
    done = {(one.name, one.expression) for one in checked}
    return tuple(name for name, one in required.items() if (name, one.expression) not in done)


def retyped(
    checks: Mapping[str, Check], before: pa.Schema, after: pa.Schema
) -> tuple[Constraint, ...]:
    """The constraints whose columns have another type after a change of the schema.

    Raises:
        SchemaMismatchError: a column of a constraint is gone, or a name means another one.
    """
    found = []
    for constraint, check in zip(bound(checks, after), checks.values()):
        for (was, old), (now, new) in zip(_read(check, before), _read(check, after)):
            if was != now:
                raise _does_not_fit(constraint.name, check, "a name means another column")
            if not old.equals(new) and constraint not in found:
                found.append(constraint)
    return tuple(found)


def _read(check: Check, schema: pa.Schema) -> Iterator[tuple[list[int | None], pa.DataType]]:
    """The ids and the type of each field that a constraint names."""
    scope = scope_of(schema, _ZONE)
    for name in _names(check):
        path = scope.find(Name(name.parts)).path
        yield [field_id(field) for field in path], path[-1].type


def _names(check: Check) -> list[Name]:
    """The columns that a constraint reads."""
    unique = key_columns(check.expression)
    return [Name((one,)) for one in unique] or names(PredicateSet.of(check.expression).root)


def _does_not_fit(name: str, check: Check, reason: str) -> SchemaMismatchError:
    found = _names(check)
    return SchemaMismatchError(
        column=", ".join(dict.fromkeys(map(str, found))),
        reason=f"is read by the constraint {name!r}, {constraint_sql(check.expression)}, which "
        f"the new schema does not fit: {reason}",
        hint="Drop the constraint first: dataset.drop_constraint(name).",
    )

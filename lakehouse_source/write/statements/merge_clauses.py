"""Pure. The WHEN clauses of a MERGE: which one applies to a row, and what it does.

Clauses of a kind are tried in their order. The first one whose condition is TRUE applies; a
row to which none applies stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.language import BoundValue, Expression, Scope, mask, require_condition
from lakehouse_source.write.statements.assignments import Assignments


class Kind(Enum):
    """The rows that a clause is for."""

    MATCHED = "when matched"
    NOT_MATCHED = "when not matched"
    NOT_MATCHED_BY_SOURCE = "when not matched by source"


class Action(Enum):
    """What a clause does with a row."""

    UPDATE = "update"
    DELETE = "delete"
    INSERT = "insert"


@dataclass(frozen=True, slots=True)
class Clause:
    """A clause as the caller wrote it. `values` None: all columns, from the source."""

    kind: Kind
    action: Action
    predicate: Any = None
    values: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class BoundClause:
    """A clause over the columns of a statement."""

    clause: Clause
    condition: BoundValue | None
    assigned: Assignments | None

    def columns(self, qualifier: str) -> list[str]:
        """The columns of a table that the clause reads."""
        condition = () if self.condition is None else self.condition.columns
        found = [name for table, name in condition if table == qualifier]
        if self.assigned is not None:
            found += self.assigned.columns(qualifier)
        return list(dict.fromkeys(found))


@dataclass(slots=True)
class Clauses:
    """The clauses of a MERGE in their order, by kind."""

    given: list[Clause] = field(default_factory=list)

    def add(self, clause: Clause) -> None:
        """Add a clause."""
        for earlier in self.of(clause.kind):
            if earlier.predicate is None:
                raise InvalidOptionError(
                    option=clause.kind.value,
                    reason="follows a clause without a condition, which applies to every row. "
                    "Give only the last clause of a kind no condition.",
                )
        self.given.append(clause)

    def of(self, kind: Kind) -> list[Clause]:
        return [clause for clause in self.given if clause.kind is kind]

    @property
    def needs_unique_matches(self) -> bool:
        """Tell whether two source rows for one target row are an error.

        Two source rows are allowed if the only clause for matched rows deletes the row.
        Source: Spark, `RewriteMergeIntoTable.isCardinalityCheckNeeded`.
        """
        matched = self.of(Kind.MATCHED)
        if not matched:
            return False
        only = matched[0]
        return len(matched) > 1 or only.action is not Action.DELETE or only.predicate is not None


def bound_clause(
    clause: Clause, schema: pa.Schema, scope: Scope, target: str, everything: Mapping[str, Any]
) -> BoundClause:
    """Bind a clause. `target` qualifies the dataset; `everything` assigns all columns."""
    condition = None
    if clause.predicate is not None:
        condition = Expression.of(clause.predicate).bind(scope)
        require_condition(condition)
    assigned = None
    if clause.action is not Action.DELETE:
        values = everything if clause.values is None else clause.values
        row = None if clause.kind is Kind.NOT_MATCHED else target
        assigned = Assignments.of(values, schema, scope, row, target)
    return BoundClause(clause, condition, assigned)


def chosen(
    clauses: Sequence[BoundClause], tables: Mapping[str, pa.Table], rows: int
) -> Iterator[tuple[BoundClause, pa.Array]]:
    """For each clause the places of the rows to which it applies.

    A condition is evaluated only on the rows to which no earlier clause applied.
    """
    left = pa.arange(0, rows)
    for clause in clauses:
        if not len(left):
            return
        if clause.condition is None:
            yield clause, left
            return
        some = {name: _taken(table, left, rows) for name, table in tables.items()}
        applies = mask(clause.condition, some, len(left)).combine_chunks()
        yield clause, left.filter(applies)
        left = left.filter(pc.invert(applies))


def _taken(table: pa.Table, places: pa.Array, rows: int) -> pa.Table:
    return table if len(places) == rows else table.take(places)

"""Verb. MERGE: rows of a source update, delete and insert rows of a dataset, in one commit.

The source is in memory. The target is read file by file, only files that can have a match: first
the key columns, then all columns of the rows that match.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from enum import Enum
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.catalog.base import Catalog
from lakehouse_source.deletion import Positions
from lakehouse_source.errors import AmbiguousMergeError, InvalidOptionError
from lakehouse_source.language import (
    BoundValue,
    Expression,
    PredicateSet,
    Scope,
    any_of,
    mask,
    require_condition,
)
from lakehouse_source.model import ChangeResult
from lakehouse_source.read.address import Address
from lakehouse_source.schema.fields import find_field, hidden_columns, without_metadata
from lakehouse_source.write.commit.conflicts import Change, Isolation
from lakehouse_source.write.commit.key_search import MOST_VALUES
from lakehouse_source.write.commit.row_changes import TouchedFiles
from lakehouse_source.write.statements.assignments import Assignments, assembled, everything_from
from lakehouse_source.write.statements.merge_source import (
    JoinCondition,
    Names,
    SourceRows,
    may_match,
)
from lakehouse_source.write.statements.row_statement import FoundRows, RowStatement, of_expression

# --- The WHEN clauses of a MERGE: which one applies to a row, and what it does.
#
# Clauses of a kind are tried in their order. The first one whose condition is TRUE applies; a row
# to which none applies stays as it is.


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

    given: list[Clause] = dataclass_field(default_factory=list)

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


@dataclass(frozen=True, slots=True)
class MergeRequest:
    """What a MERGE was asked to do."""

    source: pa.Table
    condition: str
    clauses: Clauses
    names: Names
    merge_schema: bool = False


def merge_rows(
    catalog: Catalog,
    address: Address,
    request: MergeRequest,
    *,
    isolation: str,
    further: Mapping[str, Any],
) -> ChangeResult:
    """Carry out a MERGE in one commit.

    Raises:
        AmbiguousMergeError: several rows of the source match one row of the target.
        SchemaMismatchError: a column does not take the values.
        CommitConflictError: another commit changed one of the rows, or added rows that may
            match.
    """
    if not request.clauses.given:
        raise InvalidOptionError(
            option="merge",
            reason="has no clause: say what happens to rows, for example with "
            "when_matched_update_all().",
        )
    if request.names.target.lower() == request.names.source.lower():
        raise InvalidOptionError(
            option="source_alias", value=request.names.source, reason="is the target's alias too."
        )

    def extended(target: pa.Schema) -> pa.Schema:
        return _extended(target, request.source.schema)

    extend = extended if request.merge_schema else None
    statement = RowStatement(catalog, address, Change.MERGE, isolation, further, extend=extend)
    try:
        merge = _Merge(statement, request)
        statement.write(merge.new_rows(), moved_rows=True)
    except BaseException as failure:
        statement.give_up(failure)
        raise
    return statement.commit(
        merge.touched.found,
        inserted=merge.inserted,
        condition=merge.of_interest(statement.isolation),
        read=merge.read,
        compared=merge.compared(request),
        keys=merge.keys,
    )


def _extended(target: pa.Schema, source: pa.Schema) -> pa.Schema:
    """The schema of the target, and after it the columns that only the source has."""
    new = [field for field in source if find_field(field.name, target) is None]
    bare = without_metadata(target)
    for field in new:
        bare = bare.append(field.with_nullable(True))
    return bare


class _Merge:
    """One MERGE over the version that its statement is based on."""

    def __init__(self, statement: RowStatement, request: MergeRequest) -> None:
        self.statement = statement
        self.names = names = request.names
        self.touched = TouchedFiles()
        self.inserted = 0
        # Matched rows by path, if matched rows prevent inserts of source rows.
        self.read: dict[str, Positions] = {}
        # The columns of the rows to write; `stored` lacks the columns that this statement adds.
        self.schema = statement.staged.spec.schema
        self.stored = statement.snapshot.schema
        self.row_id = hidden_columns(self.schema)[0].name
        self.scope = scope = Scope({names.target: self.stored, names.source: request.source.schema})
        self.clauses = {kind: self._bound(kind, request) for kind in Kind}
        self.unique = request.clauses.needs_unique_matches
        self.condition = JoinCondition(Expression.parse(request.condition), scope, names)
        self.source: SourceRows = self.condition.prepare(request.source)
        self.may_match = may_match(self.condition, self.source, self.stored, scope, names)
        self.matched = _Marks(request.source.num_rows)
        self.keys = self._keys()

    def _bound(self, kind: Kind, request: MergeRequest) -> list[BoundClause]:
        names = self.names
        visible = {
            Kind.MATCHED: (names.target, names.source),
            Kind.NOT_MATCHED: (names.source,),
            Kind.NOT_MATCHED_BY_SOURCE: (names.target,),
        }[kind]
        schemas = {name: self.scope.schemas[name] for name in visible}
        scope = Scope(schemas, now=self.scope.now)
        clauses = request.clauses.of(kind)
        everything: dict[str, Expression] = {}
        if any(one.values is None and one.action is not Action.DELETE for one in clauses):
            everything = everything_from(self.schema, request.source.schema, names.source)
        return [bound_clause(one, self.schema, scope, names.target, everything) for one in clauses]

    # --- reading the target

    def _to_read(self) -> tuple[PredicateSet, list[str]]:
        """The rows of the target that the statement looks at, and their columns."""
        names = self.names
        clauses = [*self.clauses[Kind.MATCHED], *self.clauses[Kind.NOT_MATCHED_BY_SOURCE]]
        columns = list(self.condition.target_columns)
        for one in clauses:
            columns += one.columns(names.target)
            if one.assigned is not None:
                # Assigned columns are not read: an update of all columns reads only the keys.
                columns += [n for n in self.stored.names if n not in one.assigned.values]
        where = self.may_match
        for one in self.clauses[Kind.NOT_MATCHED_BY_SOURCE]:
            if one.clause.predicate is None:
                where = PredicateSet.of(None)
                break
            own = Scope({names.target: self.stored}, now=self.scope.now)
            asked = of_expression(Expression.of(one.clause.predicate), self.stored, own)
            where = PredicateSet(any_of((where.root, asked.root)))
        return where, list(dict.fromkeys(columns))

    def _keys(self) -> pa.Table | None:
        """Keys of the dataset, of which every row that the statement looks at has one."""
        source = self.source.table
        equal = self.condition.equal_columns(self.stored, source.schema)
        if self.clauses[Kind.NOT_MATCHED_BY_SOURCE] or source.num_rows > MOST_VALUES:
            return None
        for one in self.statement.staged.spec.constraints:
            if one.unique and equal.issuperset(one.unique):
                fields = [find_field(name, source.schema) for name in one.unique]
                keys = source.select([field.name for field in fields if field is not None])
                # NULL has no place in a filter, and may equal NULL.
                nulls = any(column.null_count for column in keys.columns)
                return None if nulls else keys.rename_columns([*one.unique])
        return None

    def of_interest(self, isolation: Isolation) -> PredicateSet:
        """The rows of the target that other commits must not have added meanwhile."""
        if isolation is Isolation.SERIALIZABLE:
            return self._to_read()[0]  # including rows that clauses for rows without a match change
        return self.may_match

    def compared(self, request: MergeRequest) -> frozenset[str]:
        """The columns of the condition, where each row written has those of its match or has none.

        So it is in an upsert: all columns are assigned, and the condition is their equality.
        """
        whole = all(
            one.values is None and one.kind is not Kind.NOT_MATCHED_BY_SOURCE
            for one in request.clauses.given
        )
        if not whole:
            return frozenset()
        return self.condition.equal_columns(self.stored, request.source.schema)

    def new_rows(self) -> Iterator[pa.RecordBatch]:
        """The rows to write: updated rows, and after the whole target was read, new rows."""
        if (
            self.clauses[Kind.MATCHED]
            or self.clauses[Kind.NOT_MATCHED_BY_SOURCE]
            or (self.clauses[Kind.NOT_MATCHED] and self.source.table.num_rows)
        ):
            where, columns = self._to_read()
            for found in self.statement.rows(where, columns, self.keys):
                for table in self._of_target(found):
                    yield from table.to_batches()
        for table in self._inserted():
            yield from table.to_batches()

    def _of_target(self, found: FoundRows) -> Iterator[pa.Table]:
        names, source = self.names, self.source
        left, right = self.condition.pairs(source, found.table)
        self.matched.add(right)
        serializable = self.statement.isolation is Isolation.SERIALIZABLE
        if serializable and self.clauses[Kind.NOT_MATCHED] and len(left):
            for path, positions in found.take(left).positions():
                self.read.setdefault(path, Positions()).update(positions)
        if self.unique and len(left) and pc.count_distinct(left).as_py() < len(left):
            raise AmbiguousMergeError(key=self._key_of_duplicate(found.table, left))
        clauses = self.clauses[Kind.MATCHED]
        if clauses and len(left):
            sides = {
                names.target: found.table.take(left),
                names.source: source.table.take(right),
            }
            yield from self._changed(clauses, found, left, sides)
        clauses = self.clauses[Kind.NOT_MATCHED_BY_SOURCE]
        if clauses:
            alone = _all_but(left, found.table.num_rows)
            sides = {names.target: found.table.take(alone)}
            yield from self._changed(clauses, found, alone, sides)

    def _changed(
        self,
        clauses: Sequence[BoundClause],
        found: FoundRows,
        places: pa.Array,
        sides: Mapping[str, pa.Table],
    ) -> Iterator[pa.Table]:
        """Apply clauses to rows; `sides` has the row at each of `places` of `found`."""
        for clause, some in chosen(clauses, sides, len(places)):
            rows = found.take(places.take(some))
            if not rows.table.num_rows:
                continue
            took = self.touched.delete if clause.assigned is None else self.touched.update
            for path, positions in rows.positions():
                took(path, positions)
            if clause.assigned is None:
                continue
            tables = {name: table.take(some) for name, table in sides.items()}
            values = clause.assigned.evaluate(tables, rows.table.num_rows)
            known = set(self.stored.names)
            stored = pa.schema([f for f in self.schema if f.name in known])
            columns = {**assembled(stored, rows.table, values), **values}
            columns[self.row_id] = rows.row_ids
            yield pa.table(columns)

    def _inserted(self) -> Iterator[pa.Table]:
        clauses = self.clauses[Kind.NOT_MATCHED]
        if not clauses:
            return
        places = self.matched.others()
        sides = {self.names.source: self.source.table.take(places)}
        for clause, some in chosen(clauses, sides, len(places)):
            if not len(some):
                continue
            assert clause.assigned is not None
            tables = {name: table.take(some) for name, table in sides.items()}
            values = clause.assigned.evaluate(tables, len(some))
            self.inserted += len(some)
            columns = assembled(self.schema, None, values)
            yield pa.table({**columns, self.row_id: pa.nulls(len(some), pa.int64())})

    def _key_of_duplicate(self, target: pa.Table, left: pa.Array) -> str:
        counts = pc.value_counts(left)
        places = counts.field("values").filter(pc.greater(counts.field("counts"), 1))
        row = target.take(places.slice(0, 1)).select(self.condition.target_columns).to_pylist()[0]
        return ", ".join(f"{name} = {value!r}" for name, value in row.items()) or "any key"


class _Marks:
    """Which rows of the source have a match."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._marked = bytearray(rows)

    def add(self, rows: pa.Array) -> None:
        for row in pc.unique(rows).to_pylist():
            self._marked[row] = 1

    def others(self) -> pa.Array:
        """The rows without a match."""
        buffer = pa.py_buffer(bytes(self._marked))
        flags = pa.Array.from_buffers(pa.uint8(), self._rows, [None, buffer])
        return pc.indices_nonzero(pc.equal(flags, 0)).cast(pa.int64())


def _all_but(places: pa.Array, rows: int) -> pa.Array:
    """The places from 0 to `rows` that are not among `places`."""
    everything = pa.arange(0, rows)
    return everything.filter(pc.invert(pc.is_in(everything, value_set=places)))

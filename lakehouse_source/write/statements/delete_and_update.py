"""Verb. DELETE and UPDATE: rows of a condition leave, or get new values; rows that are too old."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

import pyarrow as pa

from lakehouse_source.arguments import text
from lakehouse_source.catalog.base import Catalog
from lakehouse_source.deletion import Positions, positions_of
from lakehouse_source.errors import InvalidExpressionError, InvalidOptionError
from lakehouse_source.language import Expression, PredicateSet, Scope
from lakehouse_source.model import ChangeResult
from lakehouse_source.parquet.reader import read_each
from lakehouse_source.read.address import Address
from lakehouse_source.read.plan import plan
from lakehouse_source.read.scan import Predicates
from lakehouse_source.schema.fields import POSITION, hidden_columns, unused_names
from lakehouse_source.storage import Storage
from lakehouse_source.write.commit.conflicts import Change
from lakehouse_source.write.commit.row_changes import TouchedFiles
from lakehouse_source.write.statements.assignments import Assignments, assembled
from lakehouse_source.write.statements.row_statement import (
    RowStatement,
    of_expression,
    row_condition,
)

# --- UPDATE: the rows of a condition get new values, and keep their identities.


TARGET = "target"


def update_rows(
    catalog: Catalog,
    address: Address,
    /,
    updates: Mapping[str, Any],
    where: Predicates,
    *,
    isolation: str,
    **further: Any,
) -> ChangeResult:
    """Assign new values to columns of the rows of a condition, of all rows without one.

    The rows are written to new files, and their old places are marked as deleted.

    Raises:
        SchemaMismatchError: a column does not take the values.
        CommitConflictError: another commit changed one of the rows.
    """
    statement = RowStatement(catalog, address, Change.UPDATE, isolation, further)
    touched = TouchedFiles()
    try:
        schema = statement.snapshot.schema
        scope = Scope({TARGET: schema})
        assigned = Assignments.of(updates, schema, scope, TARGET)
        condition = row_condition(where, schema, scope)
        row_id = hidden_columns(schema)[0].name

        def moved() -> Iterator[pa.RecordBatch]:
            for rows in statement.rows(condition, schema.names):
                for path, positions in rows.positions():
                    touched.update(path, positions)
                values = assigned.evaluate({TARGET: rows.table}, rows.table.num_rows)
                columns = assembled(schema, rows.table, values)
                columns[row_id] = rows.row_ids
                yield from pa.table(columns).to_batches()

        statement.write(moved(), moved_rows=True)
    except BaseException as failure:
        statement.give_up(failure)
        raise
    columns = frozenset(assigned.values)
    return statement.commit(touched.found, condition=condition, assigned=columns)


# --- DELETE: the rows of a condition leave the dataset.


def delete_rows(
    catalog: Catalog,
    address: Address,
    /,
    where: Predicates,
    *,
    isolation: str,
    find: Callable[[pa.Schema], PredicateSet] | None = None,
    **further: Any,
) -> ChangeResult:
    """Delete the rows of a condition, all rows without one.

    `find` gives the condition for the schema of the version, in place of `where`.

    A file in which every row matches is not read. Of other files the condition's columns are read.

    Raises:
        CommitConflictError: another commit changed one of the rows.
    """
    statement = RowStatement(catalog, address, Change.DELETE, isolation, further)
    touched = TouchedFiles()
    try:
        schema = statement.snapshot.schema
        if find is not None:
            condition = find(schema)
        else:
            condition = row_condition(where, schema, Scope({TARGET: schema}))
        spec, tasks, (position, _row) = statement.tasks(condition, ())
        unsure = []
        for task in tasks:
            certain = task.deleted is None and task.certain_row_count == task.file_row_count
            if certain:
                touched.delete(task.path, Positions(range(task.file_row_count)))
            else:
                unsure.append(task)
        for task, table in statement.read(spec, unsure):
            touched.delete(task.path, positions_of(table.column(position)))
    except BaseException as failure:
        statement.give_up(failure)
        raise
    return statement.commit(touched.found, condition=condition)


# --- Rows that are too old: the property `expire_rows`, a condition with `now()`.


def expired_rows(condition: str, schema: pa.Schema, now: datetime) -> PredicateSet:
    """The condition of `expire_rows`, at a time of the database's clock."""
    try:
        expression = Expression.parse(text("expire_rows", condition))
        if not expression.columns:
            raise InvalidOptionError(
                option="expire_rows",
                value=condition,
                reason="names no column: it would delete all rows, or none.",
            )
        return of_expression(expression, schema, Scope({TARGET: schema}, now=now))
    except InvalidExpressionError as error:
        raise InvalidOptionError(
            option="expire_rows",
            value=condition,
            reason=f"is not a condition on the newest columns, such as "
            f'"ts < now() - interval 30 days": {error}',
        ) from error


def delete_expired(catalog: Catalog, address: Address, condition: str) -> ChangeResult:
    """Delete the rows of `expire_rows`, as one commit; the condition is evaluated once.

    Raises:
        InvalidOptionError: a column of the condition is gone.
        CommitConflictError: another commit changed one of the rows.
    """
    with catalog.read() as reader:
        now = reader.now()
    return delete_rows(
        catalog,
        address,
        None,
        isolation="write-serializable",
        find=lambda schema: expired_rows(condition, schema, now),
        commit_metadata={"expire_rows": condition},
    )


def count_expired(catalog: Catalog, address: Address, condition: str) -> int:
    """How many rows `expire_rows` would delete now."""
    storage = Storage(address.location)
    with catalog.read() as reader:
        snapshot = address.snapshot(catalog, reader)
        found = expired_rows(condition, snapshot.schema, reader.now())
        (position,) = unused_names((POSITION,), snapshot.schema.names)
        planned = plan(
            reader,
            snapshot,
            read_uri=storage.location,
            predicates=found,
            columns=[position.name],
            metadata=(position,),
        )
    count = 0
    for _, table in read_each(planned.spec, planned.tasks, storage):
        count += table.num_rows
    return count

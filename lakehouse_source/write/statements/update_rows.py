"""Verb. UPDATE: the rows of a condition get new values, and keep their identities."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from lakehouse_source.catalog.base import Catalog
from lakehouse_source.deletion.vector import positions_of
from lakehouse_source.language import Scope
from lakehouse_source.model import ChangeResult
from lakehouse_source.read.address import Address
from lakehouse_source.read.scan import Predicates
from lakehouse_source.schema.metadata_columns import hidden_columns
from lakehouse_source.write.commit.conflicts import Change
from lakehouse_source.write.commit.row_changes import TouchedFiles
from lakehouse_source.write.statements.assignments import Assignments, assembled
from lakehouse_source.write.statements.row_condition import row_condition
from lakehouse_source.write.statements.row_statement import RowStatement

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
                if not rows.table.num_rows:
                    continue
                touched.update(rows.path, positions_of(rows.positions))
                values = assigned.evaluate({TARGET: rows.table}, rows.table.num_rows)
                columns = assembled(schema, rows.table, values)
                columns[row_id] = rows.row_ids
                yield from pa.table(columns).to_batches()

        statement.write(moved(), moved_rows=True)
    except BaseException as failure:
        statement.give_up(failure)
        raise
    return statement.commit(touched.found, condition=condition)

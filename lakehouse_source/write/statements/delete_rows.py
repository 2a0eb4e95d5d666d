"""Verb. DELETE: the rows of a condition leave the dataset."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from lakehouse_source.catalog.base import Catalog
from lakehouse_source.deletion.vector import Positions, positions_of
from lakehouse_source.language import PredicateSet, Scope
from lakehouse_source.model import ChangeResult
from lakehouse_source.read.address import Address
from lakehouse_source.read.scan import Predicates
from lakehouse_source.write.commit.conflicts import Change
from lakehouse_source.write.commit.row_changes import TouchedFiles
from lakehouse_source.write.statements.row_condition import row_condition
from lakehouse_source.write.statements.row_statement import RowStatement
from lakehouse_source.write.statements.update_rows import TARGET


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

"""Verb. DELETE: the rows of a condition leave the dataset."""

from __future__ import annotations

from typing import Any

from lakehouse_source.catalog.base import Catalog
from lakehouse_source.deletion.vector import Positions
from lakehouse_source.expression import Scope
from lakehouse_source.model import ChangeResult
from lakehouse_source.read.address import Address
from lakehouse_source.read.scan import Predicates
from lakehouse_source.write.conflicts import Change
from lakehouse_source.write.row_condition import RowCondition
from lakehouse_source.write.row_statement import RowStatement, TouchedFiles, positions_of
from lakehouse_source.write.update_rows import TARGET


def delete_rows(
    catalog: Catalog, address: Address, where: Predicates, *, isolation: str, **further: Any
) -> ChangeResult:
    """Delete the rows of a condition, all rows without one.

    Of files in which every row matches, none is read. Of others the condition's columns are.

    Raises:
        DatasetNotFoundError, InvalidPredicateError, InvalidExpressionError, InvalidOptionError
        CommitConflictError: another commit changed one of the rows.
    """
    statement = RowStatement(catalog, address, Change.DELETE, isolation, further)
    touched = TouchedFiles()
    try:
        schema = statement.snapshot.schema
        condition = RowCondition.of(where, schema, Scope({TARGET: schema}))
        columns = condition.columns(TARGET)
        spec, tasks, (position, _row) = statement.tasks(condition.pruning, columns)
        unsure = []
        for task in tasks:
            certain = task.deleted is None and task.certain_row_count == task.file_row_count
            if certain and not condition.rest:
                touched.delete(task.path, Positions(range(task.file_row_count)))
            else:
                unsure.append(task)
        for task, table in statement.read(spec, unsure):
            matching = condition.matching(table, TARGET)
            positions = table.column(position)
            found = positions if matching is None else positions.filter(matching)
            touched.delete(task.path, positions_of(found))
    except BaseException as failure:
        statement.give_up(failure)
        raise
    return statement.commit(touched.found, condition=condition.pruning)

"""Verb. DELETE: the rows of a condition leave the dataset."""

from __future__ import annotations

from typing import Any

from lakehouse_source.catalog.base import Catalog
from lakehouse_source.deletion.vector import Positions
from lakehouse_source.model import ChangeResult
from lakehouse_source.parquet.reader import read_each
from lakehouse_source.predicate import PredicateSet
from lakehouse_source.read.address import Address
from lakehouse_source.read.scan import Predicates
from lakehouse_source.write.conflicts import Change
from lakehouse_source.write.row_statement import RowStatement, TouchedFiles, positions_of


def delete_rows(
    catalog: Catalog, address: Address, where: Predicates, *, isolation: str, **further: Any
) -> ChangeResult:
    """Delete the rows of a condition, all rows without one.

    Of files in which every row matches, none is read. Of others the condition's columns are.

    Raises:
        DatasetNotFoundError, InvalidPredicateError, InvalidOptionError
        CommitConflictError: another commit changed one of the rows.
    """
    condition = PredicateSet.of(where)
    statement = RowStatement(catalog, address, Change.DELETE, isolation, further)
    touched = TouchedFiles()
    try:
        spec, tasks, (position, _row) = statement.tasks(condition, ())
        unsure = []
        for task in tasks:
            if task.deleted is None and task.certain_row_count == task.file_row_count:
                touched.delete(task.path, Positions(range(task.file_row_count)))
            else:
                unsure.append(task)
        for task, table in read_each(spec, unsure, statement.storage):
            touched.delete(task.path, positions_of(table.column(position)))
    except BaseException as failure:
        statement.give_up(failure)
        raise
    return statement.commit(touched.found, condition=condition)

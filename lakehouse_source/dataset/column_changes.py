"""Verb. What changes the schema of an open dataset."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec

from lakehouse_source.dataset.opened import OpenDataset
from lakehouse_source.model import WriteResult
from lakehouse_source.write.metadata.schema_change import SchemaUpdate

Given = ParamSpec("Given")


def _as_one_commit(
    change: Callable[Concatenate[SchemaUpdate, Given], None],
) -> Callable[Concatenate[ColumnChanges, Given], WriteResult]:
    """Turn a schema change into a method, with the same docstring, that commits the change."""

    @wraps(change)
    def commit(
        dataset: ColumnChanges, /, *arguments: Given.args, **keywords: Given.kwargs
    ) -> WriteResult:
        with dataset.update_schema() as schema:
            change(schema, *arguments, **keywords)
        return schema.committed

    return commit


class ColumnChanges(OpenDataset):
    """Changes of columns; no data file is read or written."""

    def update_schema(self) -> SchemaUpdate:
        """Several schema changes as one commit; moves to the new version.

        `SchemaUpdate` has the changes. Each change is a method of the dataset too, which commits
        this change alone and returns the result.

        Raises (each method, or the end of the block; nothing is committed then):
            SchemaMismatchError: a change cannot be made.
            InvalidOptionError: an argument is wrong.
            CommitConflictError: the schema was changed since this version; see `refresh()`.
            CommitUnknownError: the catalog was lost during the commit.

        >>> with dataset.update_schema() as schema:
        ...     schema.rename_column("miles", "distance")
        ...     schema.add_column("note", pa.string(), comment="written by hand")
        >>> dataset.version, dataset.schema.names, dataset.comments
        (2, ['month', 'carrier', 'distance', 'note'], {'note': 'written by hand'})
        >>> dataset.drop_column("note").version
        3
        """
        return SchemaUpdate(self._address, self._snapshot, self._committed)

    add_column = _as_one_commit(SchemaUpdate.add_column)
    set_default = _as_one_commit(SchemaUpdate.set_default)
    rename_column = _as_one_commit(SchemaUpdate.rename_column)
    drop_column = _as_one_commit(SchemaUpdate.drop_column)
    promote_column = _as_one_commit(SchemaUpdate.promote_column)
    reorder_columns = _as_one_commit(SchemaUpdate.reorder_columns)
    set_nullable = _as_one_commit(SchemaUpdate.set_nullable)
    set_comment = _as_one_commit(SchemaUpdate.set_comment)

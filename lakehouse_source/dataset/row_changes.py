"""Verb. What changes rows of an open dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from lakehouse_source.arguments import column_names, flag
from lakehouse_source.dataset.opened import OpenDataset
from lakehouse_source.model import ChangeResult
from lakehouse_source.read.scan import Predicates
from lakehouse_source.write.statements.assignments import checked_columns, equal_columns
from lakehouse_source.write.statements.delete_rows import delete_rows
from lakehouse_source.write.statements.merge_builder import MergeBuilder
from lakehouse_source.write.statements.merge_source import Names
from lakehouse_source.write.statements.update_rows import update_rows


class RowChanges(OpenDataset):
    """DELETE, UPDATE and MERGE, each one commit."""

    def delete(
        self, where: Predicates = None, *, isolation: str = "write-serializable", **further: Any
    ) -> ChangeResult:
        """Delete the rows of a condition; without one, all rows.

        A file is removed if all its rows match. If only some match, the file gets a deletion
        vector, a small file that marks these rows. If more than `rewrite_threshold` of the rows (a
        property, see `set_properties`) would be marked, the other rows are written to a new file.

        Args:
            where: a condition in any form that `scan` takes.
            isolation: which commits of others, made meanwhile, conflict. "write-serializable" and
                "snapshot": those that changed a row that is deleted here. "serializable": also
                those that added rows that may match, so that statements have the result of some
                order, one after the other.
            further: `commit_metadata`, `expected_version`, `txn_app_id` and `txn_version`, as
                in `write_dataset`.

        Raises:
            InvalidPredicateError, InvalidOptionError
            CommitConflictError: another commit changed one of the rows.

        >>> dataset.delete("carrier = 'UA'")
        ChangeResult(version=2, rows_deleted=2, rows_updated=0, rows_inserted=0, ...)
        >>> dataset.scan().count_rows(), dataset.scan(version=1).count_rows()
        (2, 4)
        """
        return self._commit(delete_rows, where, isolation=isolation, **further)

    def update(
        self,
        updates: Mapping[str, Any],
        where: Predicates = None,
        *,
        isolation: str = "write-serializable",
        **further: Any,
    ) -> ChangeResult:
        """Assign new values to columns of the rows of a condition; without one, of all rows.

        The rows are written to new files and keep their `_row_id`.

        Args:
            updates: by column, an SQL expression over the row's old values, with Spark's
                meaning; a value that is not a text is used as it is. `"address.city"` is a field
                of a struct, whose other fields stay as they are.
            where, isolation, further: as in `delete`.

        Raises:
            InvalidPredicateError, InvalidExpressionError, InvalidOptionError
            SchemaMismatchError: a column does not exist, or does not take the values.
            CommitConflictError: another commit changed one of the rows.

        >>> dataset.update({"miles": "miles + 1", "carrier": "lower(carrier)"}, "month = 1")
        ChangeResult(version=2, rows_deleted=0, rows_updated=2, rows_inserted=0, ...)
        >>> dataset.scan("month = 1", columns=["carrier", "miles"]).to_table().to_pylist()
        [{'carrier': 'ua', 'miles': 1401}, {'carrier': 'aa', 'miles': 1417}]
        """
        return self._commit(update_rows, updates, where, isolation=isolation, **further)

    def merge(
        self,
        source: Any,
        condition: str,
        *,
        source_alias: str = "source",
        target_alias: str = "target",
        schema: pa.Schema | None = None,
        merge_schema: bool = False,
        isolation: str = "write-serializable",
        **further: Any,
    ) -> MergeBuilder:
        """A MERGE of a source into this dataset. Add clauses, then call `execute()`.

        Args:
            source: any data that `write_dataset` takes. It is read into memory. The target is
                not: only files that can hold a match are read.
            condition: when a row of the source matches a row of the target: an SQL expression
                over `target.column` and `source.column`.
            source_alias, target_alias: other names for the two in expressions.
            schema: the schema of the source, as in `write_dataset`.
            merge_schema: add columns that only the source has.
            isolation: "write-serializable" refuses where other commits added rows that may
                match; "serializable" also where a clause for rows without a match may change such
                rows, or where other commits changed a matching row that this merge left alone;
                "snapshot" ignores added rows.
            further: as in `delete`.

        >>> changes = {"month": [1, 9], "carrier": ["UA", "UA"], "miles": [7, 8]}
        >>> on = "target.month = source.month AND target.carrier = source.carrier"
        >>> merge = dataset.merge(changes, on)
        >>> merge = merge.when_matched_update_all().when_not_matched_insert_all()
        >>> merge.execute()
        ChangeResult(version=2, rows_deleted=0, rows_updated=1, rows_inserted=1, ...)
        """
        return MergeBuilder(
            self._address,
            source,
            condition,
            names=Names(target_alias, source_alias),
            schema=schema,
            merge_schema=merge_schema,
            isolation=isolation,
            further=further,
            done=self._committed,
        )

    def upsert(
        self,
        source: Any,
        on: str | Sequence[str],
        *,
        nulls_equal: bool = False,
        **further: Any,
    ) -> ChangeResult:
        """Update the rows that have a row with the same key in the source; insert the others.

        Args:
            source: any data that `write_dataset` takes, with all columns of the dataset.
            on: the columns of the key. A NULL equals nothing: its row is inserted.
            nulls_equal: a NULL in the key equals a NULL.
            further: keywords of `merge`.

        Raises:
            AmbiguousMergeError: the source has a key several times, and the key matches a row.
            Everything else that `MergeBuilder.execute` raises.

        >>> new = {"month": [2, 9], "carrier": ["DL", "DL"], "miles": [7, 8]}
        >>> dataset.upsert(new, on=["month", "carrier"])
        ChangeResult(version=2, rows_deleted=0, rows_updated=0, rows_inserted=2, ...)
        """
        keys = checked_columns(column_names("on", on) or (), self._snapshot.schema, "on")
        equal = flag("nulls_equal", nulls_equal)
        condition = equal_columns(keys, "target", "source", nulls_equal=equal)
        merge = self.merge(source, condition, **further)
        return merge.when_matched_update_all().when_not_matched_insert_all().execute()

"""Verb. A MERGE that a caller puts together clause by clause."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from lakehouse_source.arguments import flag, text
from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.model import ChangeResult
from lakehouse_source.read.address import Address
from lakehouse_source.schema.align import align, by_name
from lakehouse_source.schema.merge import storage_schema
from lakehouse_source.write.rows import to_reader
from lakehouse_source.write.statements.merge_rows import (
    Action,
    Clause,
    Clauses,
    Kind,
    MergeRequest,
    merge_rows,
)
from lakehouse_source.write.statements.merge_source import Names


class MergeBuilder:
    """A MERGE into a dataset; `Dataset.merge` makes it. Nothing happens before `execute()`.

    Clauses of a kind are tried in their order: the first one whose `predicate` is TRUE for a
    row applies to it. Predicates and values are SQL expressions over `target.column` and
    `source.column`, with Spark's meaning; a value that is not a text is used as it is.

    >>> changes = {"carrier": ["UA", "WN"], "miles": [5, 6], "gone": [True, False]}
    >>> merge = dataset.merge(changes, "target.carrier = source.carrier")
    >>> merge.when_matched_delete("source.gone").execute().rows_deleted
    2
    """

    def __init__(
        self,
        address: Address,
        data: Any,
        condition: str,
        *,
        names: Names,
        schema: pa.Schema | None,
        merge_schema: bool,
        isolation: str,
        further: Mapping[str, Any],
        done: Callable[[], Any],
    ) -> None:
        self._address = address
        self._data = data
        self._condition = text("condition", condition)
        self._names = names
        self._schema = schema
        self._merge_schema = flag("merge_schema", merge_schema)
        self._isolation = isolation
        self._further = further
        self._done = done
        self._clauses = Clauses()

    def when_matched_update(
        self, updates: Mapping[str, Any], predicate: Any = None, *, condition: Any = None
    ) -> MergeBuilder:
        """Assign values to columns of a row that a row of the source matches.

        `predicate` says of which rows, in this clause and in all others; `condition` is the same.

        >>> merge = dataset.merge({"m": [1]}, "target.month = source.m")
        >>> merge.when_matched_update({"miles": "target.miles + 1"}).execute().rows_updated
        2
        """
        return self._add(Kind.MATCHED, Action.UPDATE, _one_of(predicate, condition), updates)

    def when_matched_update_all(
        self, predicate: Any = None, *, condition: Any = None
    ) -> MergeBuilder:
        """Assign every column of a row from the column of the same name in the source.

        >>> change = {"month": [2], "carrier": ["DL"], "miles": [1]}
        >>> merge = dataset.merge(change, "target.month = source.month")
        >>> merge.when_matched_update_all().execute().rows_updated
        1
        """
        return self._add(Kind.MATCHED, Action.UPDATE, _one_of(predicate, condition), None)

    def when_matched_delete(self, predicate: Any = None, *, condition: Any = None) -> MergeBuilder:
        """Delete a row that a row of the source matches.

        >>> merge = dataset.merge({"m": [1]}, "target.month = source.m")
        >>> merge.when_matched_delete("target.carrier = 'AA'").execute().rows_deleted
        1
        """
        return self._add(Kind.MATCHED, Action.DELETE, _one_of(predicate, condition))

    def when_not_matched_insert(
        self, updates: Mapping[str, Any], predicate: Any = None, *, condition: Any = None
    ) -> MergeBuilder:
        """Insert a row for a row of the source that matches none. Other columns get defaults.

        >>> merge = dataset.merge({"m": [9]}, "target.month = source.m")
        >>> merge.when_not_matched_insert({"month": "source.m"}).execute().rows_inserted
        1
        """
        return self._add(Kind.NOT_MATCHED, Action.INSERT, _one_of(predicate, condition), updates)

    def when_not_matched_insert_all(
        self, predicate: Any = None, *, condition: Any = None
    ) -> MergeBuilder:
        """Insert a row of the source that matches none, with all of its columns.

        >>> new = {"month": [9], "carrier": ["DL"], "miles": [1]}
        >>> merge = dataset.merge(new, "target.month = source.month")
        >>> merge.when_not_matched_insert_all().execute().rows_inserted
        1
        """
        return self._add(Kind.NOT_MATCHED, Action.INSERT, _one_of(predicate, condition), None)

    def when_not_matched_by_source_update(
        self, updates: Mapping[str, Any], predicate: Any = None, *, condition: Any = None
    ) -> MergeBuilder:
        """Assign values to columns of a row that no row of the source matches.

        >>> merge = dataset.merge({"m": [1]}, "target.month = source.m")
        >>> merge.when_not_matched_by_source_update({"miles": 0}).execute().rows_updated
        2
        """
        return self._add(
            Kind.NOT_MATCHED_BY_SOURCE, Action.UPDATE, _one_of(predicate, condition), updates
        )

    def when_not_matched_by_source_delete(
        self, predicate: Any = None, *, condition: Any = None
    ) -> MergeBuilder:
        """Delete a row that no row of the source matches.

        >>> merge = dataset.merge({"m": [1]}, "target.month = source.m")
        >>> merge.when_not_matched_by_source_delete("target.month = 3").execute().rows_deleted
        1
        """
        return self._add(Kind.NOT_MATCHED_BY_SOURCE, Action.DELETE, _one_of(predicate, condition))

    def execute(self) -> ChangeResult:
        """Carry out the MERGE in one commit. The source is read into memory.

        Raises:
            AmbiguousMergeError: several rows of the source match one row of the target.
            InvalidExpressionError: an expression cannot be read, or fails on a row.
            SchemaMismatchError: a column does not exist, or does not take the values.
            CommitConflictError: another commit changed one of the rows, or added rows that may
                match.

        >>> merge = dataset.merge({"m": [1, 1]}, "target.month = source.m")
        >>> merge.when_matched_update({"miles": 0}).execute()
        Traceback (most recent call last):
        lakehouse_source.errors.AmbiguousMergeError: the row of the target with month = 1 ...
        """
        source = to_reader(self._data, self._schema).read_all()
        # In the types that plake stores, because Arrow computes with few other types.
        stored = storage_schema(source.schema)
        request = MergeRequest(
            align(source, stored, source.schema, by_name),
            self._condition,
            self._clauses,
            self._names,
            self._merge_schema,
        )
        with self._address.open() as catalog:
            result = merge_rows(
                catalog, self._address, request, isolation=self._isolation, further=self._further
            )
        self._done()
        return result

    def _add(
        self,
        kind: Kind,
        action: Action,
        predicate: Any,
        values: Mapping[str, Any] | None = None,
    ) -> MergeBuilder:
        if values is not None and not isinstance(values, Mapping):
            raise InvalidOptionError(
                option="updates", value=values, reason="must be values by column: {'a': '1'}."
            )
        self._clauses.add(Clause(kind, action, predicate, values))
        return self


def _one_of(predicate: Any, condition: Any) -> Any:
    if predicate is not None and condition is not None:
        raise InvalidOptionError(
            option="condition", value=condition, reason="is predicate by another name: give one."
        )
    return condition if predicate is None else predicate

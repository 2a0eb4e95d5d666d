"""Verb. Rows that are too old: the property `expire_rows`, a condition with `now()`."""

from __future__ import annotations

from datetime import datetime

import pyarrow as pa

from lakehouse_source.arguments import text
from lakehouse_source.catalog.base import Catalog
from lakehouse_source.errors import InvalidExpressionError, InvalidOptionError
from lakehouse_source.language import Expression, PredicateSet, Scope
from lakehouse_source.model import ChangeResult
from lakehouse_source.parquet.reader import read_each
from lakehouse_source.read.address import Address
from lakehouse_source.read.plan import plan
from lakehouse_source.schema.metadata_columns import POSITION, unused_names
from lakehouse_source.storage import Storage
from lakehouse_source.write.statements.delete_rows import delete_rows
from lakehouse_source.write.statements.row_condition import of_expression
from lakehouse_source.write.statements.update_rows import TARGET


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

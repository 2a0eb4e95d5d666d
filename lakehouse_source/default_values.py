"""Pure. Defaults of columns that are expressions: what rows get that a write has no value for.

`current_timestamp()` and the like are evaluated once, when the write begins, so that all its rows
have one value, as SQL says. Functions with another value in each row are refused, as in Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone

import pyarrow as pa

from lakehouse_source.errors import InvalidExpressionError, SchemaMismatchError
from lakehouse_source.language import assign, require_assignable
from lakehouse_source.language.expression import Expression, scope_of
from lakehouse_source.schema.defaults import default_sql
from lakehouse_source.schema.fields import is_nested

# Wall clocks and dates are read in UTC, whoever writes, as in generated columns.
_ZONE = "UTC"

# The value of all rows of a write, by column.
Defaults = Mapping[str, pa.Scalar]


def defaults_of(schema: pa.Schema) -> Defaults:
    """The defaults of a write that begins now.

    Raises:
        SchemaMismatchError: one is no expression without columns, or has another type.
    """
    now = datetime.now(timezone.utc)
    found = ((field, default_sql(field)) for field in schema)
    return {field.name: _value(field, sql, now) for field, sql in found if sql is not None}


def _value(field: pa.Field, sql: str, now: datetime) -> pa.Scalar:
    try:
        if is_nested(field.type):
            raise InvalidExpressionError(reason="only columns that are not nested have defaults")
        bound = Expression.parse(sql).bind(scope_of(pa.schema([]), _ZONE, now))
        require_assignable(bound.type, field)
        nullable = field.with_nullable(True)
        return assign(bound.evaluate({"": pa.table({})}, 1), nullable)[0]
    except InvalidExpressionError as error:
        raise SchemaMismatchError(
            column=field.name,
            reason=f"is {field.type} and cannot have the default {sql}: {error.reason}",
            hint="Give an expression without columns, such as current_timestamp().",
        ) from error

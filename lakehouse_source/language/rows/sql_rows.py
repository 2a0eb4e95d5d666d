"""Pure. An SQL condition that is evaluated on the rows of one table.

It can be pickled: a condition that is bound to a schema is bound again where rows are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone

import pyarrow as pa

from lakehouse_source.language.rows.expression import (
    BoundValue,
    Expression,
    mask,
    require_condition,
)
from lakehouse_source.language.rows.scope import Scope
from lakehouse_source.language.tree.nodes import Call, Literal, Node, mapped

_NOW = frozenset({"now", "current_timestamp", "current_date", "curdate"})
_TABLE = ""


@dataclass(frozen=True, eq=False)
class SqlRows:
    """A condition over columns of one table, `fields`; `text` is its SQL.

    `zone` is the time zone of its wall clocks.
    """

    node: Node
    text: str
    fields: pa.Schema
    zone: str

    def equals(self, other: object) -> bool:
        """Tell whether both are the same condition. Their texts tell -0.0 from 0.0."""
        return (
            isinstance(other, SqlRows)
            and (str(self.node), self.zone) == (str(other.node), other.zone)
            and self.fields.equals(other.fields)
        )

    def __str__(self) -> str:
        return self.text

    def __getstate__(self) -> Mapping[str, object]:
        return {name: getattr(self, name) for name in ("node", "text", "fields", "zone")}

    def matching(self, rows: pa.Table) -> pa.ChunkedArray:
        """True for the rows on which the condition is TRUE, false for the others.

        Raises:
            InvalidExpressionError: the condition has no value on a row, as in an overflow.
        """
        return mask(self._bound(), {_TABLE: rows}, rows.num_rows)

    def values(self, rows: pa.Table) -> pa.ChunkedArray:
        """TRUE, FALSE or NULL for each row.

        Raises:
            InvalidExpressionError: it has no value on a row.
        """
        return self._bound().evaluate({_TABLE: rows}, rows.num_rows).cast(pa.bool_())

    def _bound(self) -> BoundValue:
        known = self.__dict__.get("_value")
        if known is None:
            known = Expression(self.node, self.text).bind(scope_of(self.fields, self.zone))
            require_condition(known)
            self.__dict__["_value"] = known
        return known


def scope_of(fields: pa.Schema, zone: str, now: datetime | None = None) -> Scope:
    """The scope of a condition on one table."""
    return Scope({_TABLE: fields}, zone, now or datetime.now(timezone.utc))


def at_one_time(node: Node, scope: Scope) -> Node:
    """The node with literals in place of `now()` and the like."""

    def fixed(part: Node) -> Node:
        if not isinstance(part, Call) or part.name not in _NOW or part.arguments:
            return part
        value = Expression(part, str(part)).bind(scope).evaluate({}, 1).combine_chunks()
        count = pa.int32() if pa.types.is_date(value.type) else pa.int64()
        return Literal(value.view(count)[0].as_py(), value.type)

    return mapped(node, fixed)

"""Pure. Bound conditions as SQL for people, as `explain()` shows them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from lakehouse_source.language.bounds.bound import (
    BoundAnd,
    BoundColumn,
    BoundColumns,
    BoundCompare,
    BoundConstant,
    BoundExpression,
    BoundIn,
    BoundIsNull,
    BoundNode,
    BoundNot,
    BoundOr,
    BoundText,
    IfPresent,
)
from lakehouse_source.language.tree import like
from lakehouse_source.language.tree.constants import Timestamp, spell
from lakehouse_source.language.tree.spelling import spell_name
from lakehouse_source.model import Ordinal
from lakehouse_source.schema.moment_texts import date_text
from lakehouse_source.schema.ordinal import domain, from_ordinal

# At most this many terms of a condition are shown.
_MOST_TERMS = 12
_FORMS = {"prefix": "startswith", "suffix": "endswith", "contains": "contains"}


def spell_bound(node: BoundNode) -> str:
    """The condition as text. Long ones are cut."""
    if isinstance(node, (BoundAnd, BoundOr)):
        terms = [_inside(term, node) for term in node.terms[:_MOST_TERMS]]
        terms += ["…"] if len(node.terms) > _MOST_TERMS else []
        return (" AND " if isinstance(node, BoundAnd) else " OR ").join(terms)
    if isinstance(node, BoundNot):
        if isinstance(node.term, BoundIsNull):
            return f"{_name(node.term.column)} IS NOT NULL"
        return f"NOT ({spell_bound(node.term)})"
    if isinstance(node, BoundConstant):
        return spell(node.value)
    if isinstance(node, BoundExpression):
        return str(node.expression)
    if isinstance(node, BoundColumns):
        return f"{_name(node.left)} {node.op} {_name(node.right)}"
    column = _name(node.column)
    if isinstance(node, BoundIsNull):
        return f"{column} IS NULL"
    if isinstance(node, IfPresent):
        return f"{column} IS NOT NULL" if node.truth else "FALSE"
    if isinstance(node, BoundCompare):
        return f"{column} {node.op} {_value(node.value, node.column)}"
    if isinstance(node, BoundIn):
        values = [_value(one, node.column) for one in node.values[:_MOST_TERMS]]
        values += ["NaN"] if node.has_nan else []
        values += ["NULL"] if node.has_null else []
        values += ["…"] if len(node.values) > _MOST_TERMS else []
        return f"{column} IN ({', '.join(values)})"
    if isinstance(node, BoundText):
        return f"{_FORMS[node.form]}({column}, {_value(node.text, node.column)})"
    return f"{column} RLIKE {spell(like.regex(node.pieces))}"


def _inside(node: BoundNode, above: BoundNode) -> str:
    mixed = isinstance(node, (BoundAnd, BoundOr)) and type(node) is not type(above)
    return f"({spell_bound(node)})" if mixed else spell_bound(node)


def _name(column: BoundColumn) -> str:
    return spell_name(column.path)


def _value(ordinal: Ordinal, column: BoundColumn) -> str:
    kind = domain(column.type)
    if kind.kind == "date" and isinstance(ordinal, int) and pa.types.is_date32(column.type):
        return f"DATE '{date_text(ordinal)}'"
    if kind.kind == "timestamp" and isinstance(ordinal, int):
        return spell(Timestamp(ordinal * kind.unit_ns, kind.zoned))
    value: Any = from_ordinal(ordinal, column.type)
    return spell(value)

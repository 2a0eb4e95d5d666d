"""Pure. The language of conditions and expressions, as others use it.

A condition is a boolean expression. Rows are decided by it; files, row groups and pages are
pruned by what it implies about bounds.

    tree            what texts become: names, literals, calls, types
    functions       what operators, casts and functions do
    syntax          SQL texts become trees
    rows            trees decide rows
    conditions      SQL texts, triples and Arrow expressions, before a schema is known
    bounds          conditions over a schema, and what they imply about the bounds of columns
    predicate_set   a condition in any of its spellings
    row_filter      rows that satisfy a condition over a schema

Nodes, triples and SQL text mean what Spark SQL means by them: NULL is unknown, NaN
equals NaN and is greater than every number, -0.0 equals 0.0, strings compare as UTF-8
bytes. An Arrow expression keeps the meaning that Arrow gives it.
"""

from lakehouse_source.language.bounds.bound import (
    BoundAnd,
    BoundColumn,
    BoundColumns,
    BoundCompare,
    BoundConstant,
    BoundExpression,
    BoundIn,
    BoundIsNull,
    BoundLike,
    BoundNode,
    BoundNot,
    BoundOr,
    BoundPredicate,
    BoundText,
    IfPresent,
)
from lakehouse_source.language.conditions.nodes import (
    And,
    Column,
    Compare,
    Constant,
    Contains,
    EndsWith,
    In,
    IsNull,
    Like,
    Node,
    Not,
    Or,
    SqlExpression,
    StartsWith,
)
from lakehouse_source.language.predicate_set import NotUsed, PredicateSet, for_pruning
from lakehouse_source.language.rows.expression import (
    BoundValue,
    Equality,
    Expression,
    conjuncts,
    equality,
    mask,
    only_of,
    require_condition,
)
from lakehouse_source.language.rows.scope import Scope
from lakehouse_source.language.rows.store_assignment import assign, require_assignable
from lakehouse_source.language.tree.constants import Literal, Timestamp

__all__ = [
    "And", "BoundAnd", "BoundColumn", "BoundColumns", "BoundCompare", "BoundConstant",
    "BoundExpression", "BoundIn", "BoundIsNull", "BoundLike", "BoundNode", "BoundNot", "BoundOr",
    "BoundPredicate", "BoundText", "BoundValue", "Column", "Compare", "Constant", "Contains",
    "EndsWith", "Equality", "Expression", "IfPresent", "In", "IsNull", "Like", "Literal", "Node",
    "Not", "NotUsed", "Or", "PredicateSet", "Scope", "SqlExpression", "StartsWith", "Timestamp",
    "assign", "conjuncts", "equality", "for_pruning", "mask", "only_of", "require_assignable",
    "require_condition",
]  # fmt: skip

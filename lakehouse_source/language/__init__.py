"""Pure. The language of conditions and expressions, as others use it.

A condition is a boolean expression. It decides about rows; what it implies about bounds prunes
files, row groups and pages.

    limits          how long, deep and large what is parsed may be
    tree            what texts become: names, literals, calls, types
    functions       what operators, casts and functions do
    syntax          SQL texts become trees
    rows            trees decide rows
    conditions      triples, Arrow expressions and what Python builds become trees
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
from lakehouse_source.language.conditions.build import (
    all_of,
    any_of,
    compare,
    constant,
    is_in,
    is_null,
    like,
    matches,
    negated,
)
from lakehouse_source.language.predicate_set import NotUsed, PredicateSet, for_pruning
from lakehouse_source.language.rows.expression import (
    BoundValue,
    Expression,
    conjuncts,
    mask,
    only_of,
    require_condition,
)
from lakehouse_source.language.rows.keys import Equality, equality
from lakehouse_source.language.rows.scope import Scope
from lakehouse_source.language.rows.store_assignment import assign, require_assignable
from lakehouse_source.language.tree.constants import Literal, Timestamp
from lakehouse_source.language.tree.nodes import Name, Node

__all__ = [
    "BoundAnd", "BoundColumn", "BoundColumns", "BoundCompare", "BoundConstant", "BoundExpression",
    "BoundIn", "BoundIsNull", "BoundLike", "BoundNode", "BoundNot", "BoundOr", "BoundPredicate",
    "BoundText", "BoundValue", "Equality", "Expression", "IfPresent", "Literal", "Name", "Node",
    "NotUsed", "PredicateSet", "Scope", "Timestamp", "all_of", "any_of", "assign", "compare",
    "conjuncts", "constant", "equality", "for_pruning", "is_in", "is_null", "like", "mask",
    "matches", "negated", "only_of", "require_assignable", "require_condition",
]  # fmt: skip

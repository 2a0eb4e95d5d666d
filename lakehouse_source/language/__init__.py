"""Pure. The language of conditions and expressions, as others use it.

A condition is a boolean expression. It decides about rows; what it implies about bounds prunes
files, row groups and pages.

    values, types   constants, moments and types, and how large what is parsed may be
    nodes           what texts become: names, literals, calls
    functions       what operators, casts and functions do
    tokens, parse   SQL texts become trees
    bind            names become columns of tables
    expression      trees decide rows
    keys            when two keys are equal
    bounds          conditions over a schema, and what they imply about the bounds of columns
    predicate_set   a condition in any of its spellings
    row_filter      rows that satisfy a condition over a schema

Nodes, triples and SQL text mean what Spark SQL means by them: NULL is unknown, NaN
equals NaN and is greater than every number, -0.0 equals 0.0, strings compare as UTF-8
bytes. An Arrow expression keeps the meaning that Arrow gives it.
"""

from lakehouse_source.language.bind import Scope
from lakehouse_source.language.bounds.bound import BoundColumn, BoundPredicate
from lakehouse_source.language.expression import (
    BoundValue,
    Expression,
    conjuncts,
    mask,
    only_of,
    require_condition,
)
from lakehouse_source.language.functions.casts import assign, require_assignable
from lakehouse_source.language.keys import Equality, equality
from lakehouse_source.language.nodes import (
    Name,
    Node,
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
from lakehouse_source.language.values import Literal, Timestamp

__all__ = [
    "BoundColumn", "BoundPredicate", "BoundValue", "Equality", "Expression", "Literal", "Name",
    "Node", "NotUsed", "PredicateSet", "Scope", "Timestamp", "all_of", "any_of", "assign",
    "compare", "conjuncts", "constant", "equality", "for_pruning", "is_in", "is_null", "like",
    "mask", "matches", "negated", "only_of", "require_assignable", "require_condition",
]  # fmt: skip

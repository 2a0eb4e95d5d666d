"""Pure. SQL texts as conditions: what the expression of each conjunct says, as nodes.

A conjunct that compares bare columns with literals becomes nodes of its own. Any other stays
the expression that it is.
"""

from __future__ import annotations

from lakehouse_source.errors import InvalidPredicateError
from lakehouse_source.language.conditions.nodes import And, Node, SqlExpression
from lakehouse_source.language.conditions.plain import plain
from lakehouse_source.language.syntax.parse import read_conjuncts, refused_part


def parse(text: str) -> Node:
    """The condition that `text` holds.

    Raises:
        InvalidPredicateError: it is not a condition, or not a supported one.
    """
    terms = read_conjuncts(text)
    for term in terms:
        refused = refused_part(term)
        if refused is not None:
            raise InvalidPredicateError(reason=refused.reason, text=text, position=refused.position)
    written = text.strip() if len(terms) == 1 else ""
    found = tuple(_condition(SqlExpression(term, written)) for term in terms)
    return found[0] if len(found) == 1 else And(found)


def parse_conjuncts(text: str) -> tuple[list[Node], list[tuple[str, str]]]:
    """The terms of the outermost AND: those that are supported, and the others.

    The others are given as their text and the reason why they are not supported.

    Raises:
        InvalidPredicateError: the text as a whole is not SQL.
    """
    known, unknown = list[Node](), list[tuple[str, str]]()
    for term in read_conjuncts(text):
        refused = refused_part(term)
        if refused is None:
            known.append(_condition(SqlExpression(term)))
        else:
            unknown.append((str(term), refused.reason))
    return known, unknown


def _condition(term: SqlExpression) -> Node:
    return plain(term.root, term) or term

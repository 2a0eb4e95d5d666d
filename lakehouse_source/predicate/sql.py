"""Pure. Reads conditions written as SQL text, with Spark's grammar as sqlglot knows it.

A conjunct that compares bare columns, or casts of columns, with literals becomes nodes of its
own. Any other is kept as an expression. What neither knows, such as a subquery, is refused by
name and position: nothing is read approximately.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import Any, NoReturn

from sqlglot import expressions as sql

from lakehouse_source.errors import InvalidExpressionError, InvalidPredicateError
from lakehouse_source.expression.constants import Literal
from lakehouse_source.expression.dialect import PlakeSpark
from lakehouse_source.expression.failures import Failure
from lakehouse_source.expression.functions import check_functions
from lakehouse_source.expression.parse import read_tree
from lakehouse_source.expression.sql_text import Tree, tree_of, whole_text
from lakehouse_source.predicate.casts import cast_literal
from lakehouse_source.predicate.nodes import (
    And,
    Cast,
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

_FLIPPED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<=", "<=>": "<=>"}
_COMPARISONS: dict[type, str] = {
    sql.EQ: "=",
    sql.NEQ: "!=",
    sql.LT: "<",
    sql.LTE: "<=",
    sql.GT: ">",
    sql.GTE: ">=",
    sql.NullSafeEQ: "<=>",
}
# The parts of a node that are read. A node with any other part is refused.
_OPERANDS = frozenset({"this", "expression"})
_PARTS: dict[type, frozenset[str]] = {
    sql.In: frozenset({"this", "expressions", "query", "unnest", "field"}),
    sql.Between: frozenset({"this", "low", "high"}),
    sql.Like: frozenset({"this", "expression", "negate"}),
    sql.Column: frozenset({"this", "table", "db", "catalog"}),
    sql.Literal: frozenset({"this", "is_string"}),
    sql.Interval: frozenset({"this", "unit"}),
    sql.Concat: frozenset({"expressions", "safe", "coalesce"}),
    sql.Cast: frozenset({"this", "to", "safe", "requires_string"}),
    sql.TryCast: frozenset({"this", "to", "safe", "requires_string"}),
    sql.Anonymous: frozenset({"this", "expressions"}),
}
_READ = frozenset(
    {
        *_COMPARISONS,
        *_PARTS,
        *(sql.And, sql.Or, sql.Not, sql.Boolean, sql.Null, sql.Is, sql.NullSafeNEQ, sql.Escape),
        *(sql.StartsWith, sql.EndsWith, sql.Contains, sql.Neg, sql.HexString, sql.RawString),
        sql.Dot,
    }
)
_TEXTS: dict[type, Callable[[Column, Any], Node]] = {
    sql.StartsWith: StartsWith,
    sql.EndsWith: EndsWith,
    sql.Contains: Contains,
}


def parse(text: str) -> Node:
    """The condition that `text` holds.

    Raises:
        InvalidPredicateError: it is not a condition, or not a supported one.
    """
    with whole_text(text):
        terms = [read() for _, read in _terms(text)]
    return terms[0] if len(terms) == 1 else And(tuple(terms))


def parse_conjuncts(text: str) -> tuple[list[Node], list[tuple[str, str]]]:
    """The terms of the outermost AND: those that are supported, and the others.

    The others are given as their text and the reason why they are not supported.

    Raises:
        InvalidPredicateError: the text as a whole is not SQL.
    """
    known, unknown = list[Node](), list[tuple[str, str]]()
    with whole_text(text):
        for tree, read in _terms(text):
            try:
                known.append(read())
            except InvalidPredicateError as exc:
                unknown.append((tree.sql("spark"), exc.reason))
            except RecursionError:
                unknown.append((text, "it is nested too deeply"))
    return known, unknown


def _terms(text: str) -> list[tuple[Tree, Callable[[], Node]]]:
    """The terms of the outermost AND, and what reads each."""
    trees = _conjuncts(tree_of(text))
    others = list[Tree]()

    def read(place: int) -> Node:
        try:
            return _Reader(text, place).condition(trees[place])
        except InvalidPredicateError as error:
            # Another dialect, which leaves functions as they are written, gives the same terms.
            if not others:
                others.extend(_conjuncts(tree_of(text, PlakeSpark)))
            return _expression(text, others[place], len(others) == 1, error)

    return [(tree, partial(read, place)) for place, tree in enumerate(trees)]


def as_expression(text: str, place: int) -> SqlExpression:
    """A conjunct of a text, by its number, as an expression.

    Raises:
        InvalidExpressionError: it is none.
    """
    trees = _conjuncts(tree_of(text, PlakeSpark))
    root = read_tree(text, trees[place])
    return SqlExpression(root, text.strip() if len(trees) == 1 else str(root))


def _conjuncts(tree: Tree) -> list[Tree]:
    while isinstance(tree, sql.Paren):
        tree = tree.this
    return _chain(tree) if isinstance(tree, sql.And) else [tree]


def _expression(text: str, tree: Tree, whole: bool, error: InvalidPredicateError) -> Node:
    """A term as an expression; `error` is why it is no comparison of a column with literals."""
    try:
        root = read_tree(text, tree)
        check_functions(root)
    except Failure as exc:
        raise InvalidPredicateError(reason=str(exc), text=text, position=error.position) from exc
    except InvalidExpressionError:
        raise error from None
    return SqlExpression(root, text.strip() if whole else str(root))


class _Reader:
    """Reads a conjunct of a text, by its number."""

    def __init__(self, text: str, place: int) -> None:
        self._text = text
        self._origin = (text, place)

    def _refuse(self, tree: Tree, reason: str) -> NoReturn:
        positions = [
            node.meta["start"] for node in tree.walk() if node.meta.get("start") is not None
        ]
        raise InvalidPredicateError(
            reason=reason, text=self._text, position=min(positions, default=None)
        )

    def _bare(self, tree: Tree) -> Tree:
        """The expression inside parentheses, refused if it has a part that is not read here.

        sqlglot keeps modifiers as parts of its nodes (`NOT LIKE` is a LIKE with `negate`)
        and adds new ones between versions.
        """
        while isinstance(tree, sql.Paren):
            tree = tree.this
        known = _PARTS.get(type(tree), _OPERANDS)
        unread = [name for name, value in tree.args.items() if value and name not in known]
        if unread and type(tree) in _READ:
            self._refuse(tree, f"{_name(tree)} with {unread[0]} is not supported")
        return tree

    # --- conditions ---

    def condition(self, tree: Tree) -> Node:
        tree = self._bare(tree)
        op = _COMPARISONS.get(type(tree))
        if op is not None:
            return self._compare(tree, tree.this, op, tree.expression)
        if isinstance(tree, (sql.And, sql.Or)):
            terms = tuple(self.condition(term) for term in _chain(tree))
            return And(terms) if isinstance(tree, sql.And) else Or(terms)
        if isinstance(tree, sql.Not):
            return Not(self.condition(tree.this))
        if isinstance(tree, sql.Boolean):
            return Constant(bool(tree.this))
        if isinstance(tree, sql.Null):
            return Constant(None)
        if _is_name(tree):
            return Compare(self._column(tree), "=", True)
        if isinstance(tree, sql.Is):
            return self._is(tree)
        if isinstance(tree, sql.NullSafeNEQ):
            return Not(self._compare(tree, tree.this, "<=>", tree.expression))
        if isinstance(tree, sql.In):
            return self._in(tree)
        if isinstance(tree, sql.Between):
            return self._between(tree)
        if isinstance(tree, sql.Like):
            return self._like(tree, "\\")
        if isinstance(tree, sql.Escape) and isinstance(tree.this, sql.Like):
            return self._like(self._bare(tree.this), self._string(tree.expression))
        build = _TEXTS.get(type(tree))
        if build is not None:
            return build(self._column(tree.this), self._text_literal(tree.expression))
        if isinstance(tree, sql.Anonymous) and len(tree.expressions) == 1:
            name = str(tree.this).lower()
            if name in ("isnull", "isnotnull"):
                null = IsNull(self._column(tree.expressions[0]))
                return null if name == "isnull" else Not(null)
        return self._refuse(tree, f"{_name(tree)} is not supported as a condition")

    def _compare(self, tree: Tree, left: Tree, op: str, right: Tree) -> Node:
        left, right = self._bare(left), self._bare(right)
        for side in (left, right):
            if not self._is_column(side) and side.find(sql.Column) is not None:
                self._refuse(
                    side, f"{_name(side)} is not supported: only bare columns are compared"
                )
        if self._is_column(left):
            if self._is_column(right):
                self._refuse(
                    tree,
                    f"columns {self._column(left)} and {self._column(right)} are compared with "
                    "each other; only a column and a literal can be",
                )
            return Compare(self._column(left), op, self._literal(right))
        if self._is_column(right):
            return Compare(self._column(right), _FLIPPED[op], self._literal(left))
        return self._fold(tree, self._literal(left), op, self._literal(right))

    def _fold(self, tree: Tree, left: Literal | None, op: str, right: Literal | None) -> Node:
        """A comparison of two literals, such as the `1 = 1` of generated SQL."""
        if op == "<=>" and (left is None or right is None):
            return Constant(left is right)
        if left is None or right is None:
            return Constant(None)
        numbers = all(
            isinstance(side, (int, Decimal)) and not isinstance(side, bool)
            for side in (left, right)
        )
        if not numbers and not (type(left) is type(right) and isinstance(left, (bool, str, bytes))):
            self._refuse(tree, "two literals of these types are compared with each other")
        a: Any = left.encode() if isinstance(left, str) else left
        b: Any = right.encode() if isinstance(right, str) else right
        return Constant(
            {
                "=": a == b,
                "<=>": a == b,
                "!=": a != b,
                "<": a < b,
                "<=": a <= b,
                ">": a > b,
                ">=": a >= b,
            }[op]
        )

    def _is(self, tree: Tree) -> Node:
        column, what = self._column(tree.this), self._bare(tree.expression)
        if isinstance(what, sql.Null):
            return IsNull(column)
        if isinstance(what, sql.Boolean):
            return Compare(column, "<=>", bool(what.this))
        return self._refuse(tree, f"IS {_name(what)} is not supported")

    def _in(self, tree: Tree) -> Node:
        if tree.args.get("query") or tree.args.get("unnest") or tree.args.get("field"):
            self._refuse(tree, "IN takes a list of literals")
        if not tree.expressions:
            self._refuse(tree, "IN takes at least one literal")
        return In(self._column(tree.this), tuple(self._literal(item) for item in tree.expressions))

    def _between(self, tree: Tree) -> Node:
        low = self._compare(tree, tree.this, ">=", tree.args["low"])
        return And((low, self._compare(tree, tree.this, "<=", tree.args["high"])))

    def _like(self, tree: Tree, escape: str) -> Node:
        like = Like(self._column(tree.this), self._string_or_null(tree.expression), escape)
        return Not(like) if tree.args.get("negate") else like

    # --- columns ---

    def _is_column(self, tree: Tree) -> bool:
        """Tell whether a tree is a column or the cast of one."""
        if isinstance(tree, sql.Cast):
            tree = self._bare(tree.this)
        return _is_name(tree)

    def _column(self, tree: Tree) -> Column:
        tree = self._bare(tree)
        if isinstance(tree, sql.Cast) and self._is_column(tree):
            column = self._column(tree.this)
            cast = Cast(*_type_name(tree.to), tree.sql("spark"))
            return Column(column.path, cast=cast, sql=self._origin)
        if isinstance(tree, sql.Dot):  # five names and more
            parts, inner = [], tree
            while isinstance(inner, sql.Dot):
                parts.append(inner.expression)
                inner = inner.this
            names = [*(inner.parts if isinstance(inner, sql.Column) else [inner]), *parts[::-1]]
        elif isinstance(tree, sql.Column):
            names = tree.parts
        else:
            self._refuse(tree, f"{_name(tree)} is used as a column; only bare columns are compared")
        if not all(isinstance(name, sql.Identifier) for name in names):
            self._refuse(tree, f"{_name(tree)} is not the name of a column")
        return Column(tuple(name.name for name in names), sql=self._origin)

    # --- literals ---

    def _string(self, tree: Tree) -> str:
        value = self._literal(tree)
        if not isinstance(value, str):
            self._refuse(tree, f"{_name(tree)} stands where text should")
        return value

    def _string_or_null(self, tree: Tree) -> str | None:
        return None if isinstance(self._bare(tree), sql.Null) else self._string(tree)

    def _text_literal(self, tree: Tree) -> str | bytes | None:
        value = self._literal(tree)
        if value is not None and not isinstance(value, (str, bytes)):
            self._refuse(tree, f"{_name(tree)} stands where text should")
        return value

    def _literal(self, tree: Tree) -> Literal | None:
        tree = self._bare(tree)
        if isinstance(tree, sql.Literal):
            return str(tree.this) if tree.is_string else _number(str(tree.this))
        if isinstance(tree, sql.Null):
            return None
        if isinstance(tree, sql.Boolean):
            return bool(tree.this)
        if isinstance(tree, sql.Neg):
            value = self._literal(tree.this)
            if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
                return value.copy_negate() if isinstance(value, Decimal) else -value
        if isinstance(tree, sql.HexString):
            digits = str(tree.this)
            return bytes.fromhex(digits if len(digits) % 2 == 0 else "0" + digits)
        if isinstance(tree, sql.RawString):
            return str(tree.this)
        if isinstance(tree, sql.Concat):
            return self._adjacent(tree)
        if isinstance(tree, sql.Interval):
            return self._interval(tree)
        if isinstance(tree, sql.Cast):
            return self._cast(tree)
        return self._refuse(tree, f"{_name(tree)} is used as a literal; compute it beforehand")

    def _adjacent(self, tree: Tree) -> str:
        """Adjacent strings, which are one string in SQL."""
        parts = tree.expressions
        if not all(isinstance(part, sql.Literal) and part.is_string for part in parts):
            self._refuse(tree, "function concat is not supported")
        return "".join(str(part.this) for part in parts)

    def _interval(self, tree: Tree) -> timedelta:
        unit = str(tree.args["unit"] or "").upper().removesuffix("S")
        seconds = {"DAY": 86_400, "HOUR": 3600, "MINUTE": 60, "SECOND": 1}.get(unit)
        number = re.fullmatch(r"\s*[+-]?\d+(\.\d+)?\s*", str(getattr(tree.this, "this", "")))
        if seconds is None or number is None:
            self._refuse(
                tree, "only intervals of a number of days, hours, minutes or seconds are supported"
            )
        micros = Decimal(number[0].strip()) * seconds * 10**6
        if micros != int(micros):
            self._refuse(tree, "the interval is finer than a microsecond")
        return timedelta(microseconds=int(micros))

    # --- casts of literals ---

    def _cast(self, tree: Tree) -> Literal | None:
        value, to = self._literal(tree.this), tree.to
        try:
            cast = cast_literal(value, *_type_name(to))
        except (ValueError, ArithmeticError) as exc:
            self._refuse(tree, f"{value!r} cannot be cast to {to.sql('spark')}: {exc}")
        if cast is NotImplemented:
            self._refuse(tree, f"a cast to {to.sql('spark')} is not supported")
        return cast  # type: ignore[no-any-return]


def _number(text: str) -> int | float | Decimal:
    """A bare number: an integer, a decimal with a point, a double with an exponent."""
    if "e" in text.lower():
        return float(text)
    return int(text) if text.isdigit() else Decimal(text)


def _chain(tree: Tree) -> list[Tree]:
    """The terms of `a AND b AND c`, which sqlglot nests to the left; no recursion."""
    terms: list[Tree] = []
    stack = [tree]
    while stack:
        top = stack.pop()
        inner = top
        while isinstance(inner, sql.Paren):
            inner = inner.this
        if type(inner) is type(tree):
            stack += [inner.expression, inner.this]
        else:
            terms.append(top)
    return terms


def _type_name(to: Tree) -> tuple[str, tuple[int, ...]]:
    """A type's name in capitals and the numbers in parentheses behind it."""
    return to.this.value.upper(), tuple(int(p.name) for p in to.expressions)


def _is_name(tree: Tree) -> bool:
    """Tell whether a tree is the name of a column; sqlglot reads five parts and more as dots."""
    while isinstance(tree, sql.Dot) and isinstance(tree.expression, sql.Identifier):
        tree = tree.this
    return isinstance(tree, sql.Column)


def _name(tree: Tree) -> str:
    """What a construct is called, in an error."""
    if isinstance(tree, sql.Cast):  # sqlglot reads Spark's CAST as a TRY_CAST
        return str(tree.sql("spark"))
    if isinstance(tree, sql.Anonymous):
        return f"function {str(tree.this).lower()}"
    if isinstance(tree, sql.Func) and not isinstance(tree, (sql.Cast, sql.Case, sql.Exists)):
        return f"function {tree.sql_name().lower()}"
    return f"{tree.key.upper()} ({tree.sql('spark')})"

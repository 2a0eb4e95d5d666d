"""Pure. Reads expressions written as SQL text, with Spark's grammar as sqlglot knows it.

sqlglot gives operators, literals, casts and CASE; functions stay names with arguments, so
that what a function means is decided in one place, `functions`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any, NoReturn

import pyarrow as pa
from sqlglot import expressions as sql

from lakehouse_source.errors import InvalidExpressionError, InvalidPredicateError
from lakehouse_source.language.functions.table import check_known
from lakehouse_source.language.syntax.dialect import SUFFIXED
from lakehouse_source.language.syntax.sql_text import Tree, tree_of, whole_text
from lakehouse_source.language.tree.failures import Failure
from lakehouse_source.language.tree.literals import decimal_literal, integer_literal
from lakehouse_source.language.tree.nodes import (
    Call,
    Case,
    Cast,
    Interval,
    Literal,
    Name,
    Node,
    below,
)
from lakehouse_source.language.tree.types import CAST_FUNCTIONS, named_type

_BINARY: dict[type, str] = {
    sql.Add: "+",
    sql.Sub: "-",
    sql.Mul: "*",
    sql.Div: "/",
    sql.Mod: "%",
    sql.IntDiv: "div",
    sql.EQ: "=",
    sql.NullSafeEQ: "<=>",
    sql.NEQ: "!=",
    sql.LT: "<",
    sql.LTE: "<=",
    sql.GT: ">",
    sql.GTE: ">=",
    sql.DPipe: "concat",
    sql.ILike: "ilike",
    sql.RegexpLike: "rlike",
}
# The parts of a node that are read. A node with any other part is refused.
_OPERANDS = frozenset({"this", "expression", "safe", "typed"})
_PARTS: dict[type, frozenset[str]] = {
    sql.In: frozenset({"this", "expressions"}),
    sql.Between: frozenset({"this", "low", "high"}),
    sql.Like: frozenset({"this", "expression", "negate"}),
    sql.Column: frozenset({"this", "table", "db", "catalog"}),
    sql.Literal: frozenset({"this", "is_string"}),
    sql.Interval: frozenset({"this", "unit"}),
    sql.Concat: frozenset({"expressions", "safe", "coalesce"}),
    sql.Cast: frozenset({"this", "to", "safe", "requires_string"}),
    sql.TryCast: frozenset({"this", "to", "safe", "requires_string"}),
    sql.Anonymous: frozenset({"this", "expressions"}),
    sql.Case: frozenset({"this", "ifs", "default"}),
    sql.If: frozenset({"this", "true", "false"}),
}
# Spark has one level for all comparisons, and another one for the predicates above it.
_PREDICATES = frozenset(
    {
        *(sql.EQ, sql.NullSafeEQ, sql.NEQ, sql.NullSafeNEQ, sql.LT, sql.LTE, sql.GT, sql.GTE),
        *(sql.Is, sql.In, sql.Between, sql.Like, sql.ILike, sql.RegexpLike, sql.Escape, sql.Not),
        *(sql.And, sql.Or),
    }
)
_OPERATORS = frozenset({*_BINARY, *_PREDICATES, sql.Neg} - {sql.And, sql.Or, sql.Not, sql.Escape})
_NO_PARENTHESES: dict[type, str] = {
    sql.CurrentDate: "current_date",
    sql.CurrentTimestamp: "current_timestamp",
}
_TRUE, _FALSE = Literal(True, pa.bool_()), Literal(False, pa.bool_())
NULL = Literal(None, pa.null())
_FUNCTION = re.compile(r"[a-z_][a-z0-9_]*")
_PLAIN = re.compile(r"\d+(\.\d*)?", re.ASCII)
_SECONDS = {"DAY": 86_400, "HOUR": 3600, "MINUTE": 60, "SECOND": 1}


def parse(text: str) -> Node:
    """The expression that `text` holds.

    Raises:
        InvalidExpressionError: it is not an expression, or not a supported one.
    """
    try:
        with whole_text(text):
            return _Reader(text).read(tree_of(text))
    except InvalidPredicateError as exc:
        raise InvalidExpressionError(
            reason=exc.reason.replace("a condition", "an expression"),
            text=text,
            position=exc.position,
        ) from exc


def read_conjuncts(text: str) -> list[tuple[Callable[[], str], Callable[[], Node]]]:
    """The terms of the outermost AND of a text: what tells how each is written, and what reads it.

    A term that is not supported is an InvalidExpressionError when it is read.

    Raises:
        InvalidPredicateError: the text is no SQL.
    """
    tree, reader = tree_of(text), _Reader(text)
    while isinstance(tree, sql.Paren):
        tree = tree.this
    terms = _chain(tree) if isinstance(tree, sql.And) else [tree]
    return [(partial(term.sql, "spark"), partial(reader.read, term)) for term in terms]


def _chain(tree: Tree) -> list[Tree]:
    """The terms of `a AND b AND c`, which sqlglot nests to the left; no recursion."""
    terms: list[Tree] = []
    stack = [tree]
    while stack:
        top = stack.pop()
        while isinstance(top, sql.Paren):
            top = top.this
        if type(top) is type(tree):
            stack += [top.expression, top.this]
        else:
            terms.append(top)
    return terms


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text

    def _refuse(self, tree: Tree, reason: str) -> NoReturn:
        starts = [node.meta["start"] for node in tree.walk() if node.meta.get("start") is not None]
        raise InvalidExpressionError(
            reason=reason, text=self._text, position=min(starts, default=None)
        )

    def read(self, tree: Tree) -> Node:
        while isinstance(tree, sql.Paren):
            tree = tree.this
        kind = type(tree)
        read = _READERS.get(kind)
        if read is None and kind not in _BINARY and kind not in _NO_PARENTHESES:
            self._refuse(tree, f"{tree.key.upper()} ({tree.sql('spark')}) is not supported")
        known = _PARTS.get(kind, _OPERANDS)
        unread = [name for name, value in tree.args.items() if value and name not in known]
        if unread:
            self._refuse(tree, f"{tree.key.upper()} with {unread[0]} is not supported")
        self._require_parentheses(tree)
        if kind in _NO_PARENTHESES:
            return Call(_NO_PARENTHESES[kind], ())
        if read is None:
            return Call(_BINARY[kind], self._both(tree))
        return read(self, tree)

    def _require_parentheses(self, tree: Tree) -> None:
        """Refuse text that Spark and sqlglot group differently, such as `a = b IS NULL`."""
        if type(tree) not in _OPERATORS:
            return
        for name in ("this", "expression", "low", "high"):
            part = tree.args.get(name)
            mixed = isinstance(tree, sql.DPipe) and isinstance(part, (sql.Add, sql.Sub))
            if type(part) in _PREDICATES or (mixed and name == "expression"):
                self._refuse(part, f"put parentheses around {part.sql('spark')}")

    def _both(self, tree: Tree) -> tuple[Node, ...]:
        return (self.read(tree.this), self.read(tree.expression))

    # --- truth ---

    def chain(self, tree: Tree) -> Node:
        name = "and" if isinstance(tree, sql.And) else "or"
        terms: list[Node] = []
        for part in _chain(tree):
            term = self.read(part)
            inner = isinstance(term, Call) and term.name == name
            terms += below(term) if inner else (term,)  # BETWEEN is an AND
        return Call(name, tuple(terms))

    def negation(self, tree: Tree) -> Node:
        return Call("not", (self.read(tree.this),))

    def unequal(self, tree: Tree) -> Node:
        return Call("not", (Call("<=>", self._both(tree)),))

    def is_(self, tree: Tree) -> Node:
        value, what = self.read(tree.this), tree.expression
        if isinstance(what, sql.Null):
            return Call("isnull", (value,))
        if isinstance(what, sql.Boolean):
            return Call("<=>", (value, _TRUE if what.this else _FALSE))
        return self._refuse(tree, f"IS {what.sql('spark')} is not supported")

    def in_(self, tree: Tree) -> Node:
        if not tree.expressions:
            self._refuse(tree, "IN takes at least one value")
        values = (tree.this, *tree.expressions)
        return Call("in", tuple(self.read(value) for value in values))

    def between(self, tree: Tree) -> Node:
        value = self.read(tree.this)
        low = Call(">=", (value, self.read(tree.args["low"])))
        return Call("and", (low, Call("<=", (value, self.read(tree.args["high"])))))

    def like(self, tree: Tree, escape: str = "\\") -> Node:
        found = Call("like", (*self._both(tree), Literal(escape, pa.string())))
        return Call("not", (found,)) if tree.args.get("negate") else found

    def ilike(self, tree: Tree, escape: str = "\\") -> Node:
        return Call("ilike", (*self._both(tree), Literal(escape, pa.string())))

    def escape(self, tree: Tree) -> Node:
        mark = self.read(tree.expression)
        if not isinstance(mark, Literal) or not isinstance(mark.value, str):
            self._refuse(tree, "ESCAPE takes one character")
        read = {sql.Like: self.like, sql.ILike: self.ilike}.get(type(tree.this))
        if read is None:
            self._refuse(tree, "ESCAPE belongs to LIKE")
        return read(tree.this, mark.value)

    # --- branches and functions ---

    def case(self, tree: Tree) -> Node:
        subject = None if tree.this is None else self.read(tree.this)
        branches = []
        for branch in tree.args["ifs"]:
            condition = self.read(branch.this)
            if subject is not None:
                condition = Call("=", (subject, condition))
            branches.append((condition, self.read(branch.args["true"])))
        return Case(tuple(branches), self._or_null(tree.args.get("default")))

    def if_(self, tree: Tree) -> Node:
        if tree.args.get("false") is None:
            self._refuse(tree, "IF takes three arguments")
        branch = (self.read(tree.this), self.read(tree.args["true"]))
        return Case((branch,), self.read(tree.args["false"]))

    def _or_null(self, tree: Tree | None) -> Node:
        return NULL if tree is None else self.read(tree)

    def function(self, tree: Tree) -> Node:
        name = str(tree.this).lower()
        if not _FUNCTION.fullmatch(name) or name in ("and", "or", "in"):
            self._refuse(tree, f"{name!r} is not the name of a function")
        if name in CAST_FUNCTIONS and len(tree.expressions) == 1:
            return Cast(self.read(tree.expressions[0]), CAST_FUNCTIONS[name])
        if name != "negative":  # the minus sign
            try:
                check_known(name)
            except Failure as exc:
                self._refuse(tree, str(exc))
        return Call(name, tuple(self.read(each) for each in tree.expressions))

    def cast(self, tree: Tree) -> Node:
        kind, inner = tree.to.this.value.upper(), tree.this
        if kind in SUFFIXED:
            return self._suffixed(tree, int(inner.this), SUFFIXED[kind])
        to = _cast_type(tree.to)
        if to is None:
            self._refuse(tree, f"a cast to {tree.to.sql('spark')} is not supported")
        if isinstance(inner, sql.Literal) and not isinstance(tree, sql.TryCast):
            text = str(inner.this)
            if pa.types.is_decimal(to) and inner.is_string and _PLAIN.fullmatch(text):  # 1.5BD
                found = decimal_literal(Decimal(text))
                if found.type == to:
                    return found
            if pa.types.is_float64(to) and not inner.is_string:  # 1.5D
                return Literal(float(text), to)
        return Cast(self.read(inner), to, isinstance(tree, sql.TryCast))

    # --- columns ---

    def column(self, tree: Tree) -> Node:
        parts: list[Tree] = []
        while isinstance(tree, sql.Dot):
            parts.append(tree.expression)
            tree = tree.this
        if not isinstance(tree, sql.Column):
            self._refuse(tree, f"a field of {tree.sql('spark')} is not supported")
        names = [*tree.parts, *parts[::-1]]
        if not all(isinstance(name, sql.Identifier) for name in names):
            self._refuse(tree, f"{tree.sql('spark')} is not the name of a column")
        return Name(tuple(name.name for name in names))

    # --- literals ---

    def literal(self, tree: Tree, sign: str = "") -> Node:
        text = str(tree.this)
        if tree.is_string:
            if any(0xD800 <= ord(character) < 0xE000 for character in text):
                self._refuse(tree, f"the text {text!r} holds half a surrogate pair")
            return Literal(text, pa.string())
        if not text.replace(".", "", 1).isdigit():
            value = float(sign + text)
            if value in (float("inf"), float("-inf")):
                self._refuse(tree, f"{text} is out of range of a double")
            return Literal(value, pa.float64())
        return self._number(tree, sign + text)

    def _number(self, tree: Tree, text: str) -> Literal:
        try:
            if "." not in text:
                return integer_literal(int(text))
            return decimal_literal(Decimal(text) or Decimal(text).copy_abs())
        except InvalidExpressionError as exc:
            self._refuse(tree, exc.reason)

    def _suffixed(self, tree: Tree, value: int, type_: pa.DataType) -> Node:
        if not _fits(value, type_):
            self._refuse(tree, f"{value} is out of range of {type_}")
        return Literal(value, type_)

    def negative(self, tree: Tree) -> Node:
        inner = tree.this
        # The sign belongs to the literal: 2147483648 is no INT and -2147483648 is.
        if isinstance(inner, sql.Literal) and not inner.is_string:
            return self.literal(inner, "-")
        if isinstance(inner, sql.Cast) and inner.to.this.value.upper() in SUFFIXED:
            return self._suffixed(
                inner, -int(inner.this.this), SUFFIXED[inner.to.this.value.upper()]
            )
        value = self.read(inner)
        if isinstance(inner, sql.Cast) and isinstance(value, Literal):  # 1.5BD or 1.5D
            if isinstance(value.value, float):
                return Literal(-value.value, value.type)
            return Literal(value.value.copy_negate() if value.value else value.value, value.type)
        return Call("negative", (value,))

    def boolean(self, tree: Tree) -> Node:
        return _TRUE if tree.this else _FALSE

    def null(self, tree: Tree) -> Node:
        return NULL

    def bytes_(self, tree: Tree) -> Node:
        digits = str(tree.this)
        return Literal(bytes.fromhex("0" * (len(digits) % 2) + digits), pa.binary())

    def raw(self, tree: Tree) -> Node:
        return Literal(str(tree.this), pa.string())

    def adjacent(self, tree: Tree) -> Node:
        """Adjacent strings, which are one string in SQL."""
        return Literal("".join(str(part.this) for part in tree.expressions), pa.string())

    def interval(self, tree: Tree) -> Node:
        unit = str(tree.args["unit"] or "").upper().removesuffix("S")
        number = re.fullmatch(r"\s*[+-]?\d+(\.\d+)?\s*", str(getattr(tree.this, "this", "")))
        if unit not in _SECONDS or number is None or (number[1] and unit != "SECOND"):
            self._refuse(
                tree, "only intervals of a number of days, hours, minutes or seconds are supported"
            )
        micros = Decimal(number[0].strip()) * _SECONDS[unit] * 10**6
        if micros != int(micros) or not _fits(int(micros), pa.int64()):
            self._refuse(tree, "the interval is too long, or finer than a microsecond")
        return Interval(int(micros), unit == "DAY")


def _fits(value: int, type_: pa.DataType) -> bool:
    bound = 1 << (int(type_.bit_width) - 1)
    return -bound <= value < bound


def _cast_type(to: Tree) -> pa.DataType | None:
    kind = to.this.value.upper()
    if not all(p.name.isdigit() for p in to.expressions):
        return None
    if kind == "TEXT" or kind == "VARCHAR":  # Spark casts to CHAR(3) as to STRING
        return pa.string()
    found = named_type(kind, tuple(int(p.name) for p in to.expressions))
    if found is not None and pa.types.is_decimal(found) and found.scale > found.precision:
        return None
    return found


_READERS: dict[type, Callable[[_Reader, Any], Node]] = {
    sql.And: _Reader.chain,
    sql.Or: _Reader.chain,
    sql.Not: _Reader.negation,
    sql.NullSafeNEQ: _Reader.unequal,
    sql.Is: _Reader.is_,
    sql.In: _Reader.in_,
    sql.Between: _Reader.between,
    sql.Like: _Reader.like,
    sql.ILike: _Reader.ilike,
    sql.Escape: _Reader.escape,
    sql.Case: _Reader.case,
    sql.If: _Reader.if_,
    sql.Anonymous: _Reader.function,
    sql.Cast: _Reader.cast,
    sql.TryCast: _Reader.cast,
    sql.Column: _Reader.column,
    sql.Dot: _Reader.column,
    sql.Literal: _Reader.literal,
    sql.Neg: _Reader.negative,
    sql.Boolean: _Reader.boolean,
    sql.Null: _Reader.null,
    sql.HexString: _Reader.bytes_,
    sql.RawString: _Reader.raw,
    sql.Concat: _Reader.adjacent,
    sql.Interval: _Reader.interval,
}

"""Pure. SQL texts become trees, by Spark's grammar.

A text is read completely, or refused at the first token that does not fit. A part that belongs to
the grammar but is not supported becomes a `Refused`, so that other conjuncts can still prune.
Functions stay names with arguments; only `functions` gives them a meaning.

Source: Spark's `SqlBaseParser.g4`, from `booleanExpression` down.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pyarrow as pa

from lakehouse_source.errors import InvalidExpressionError, InvalidPredicateError
from lakehouse_source.language.functions import check_known
from lakehouse_source.language.nodes import (
    Call,
    Case,
    Cast,
    Literal,
    Name,
    Node,
    Refused,
    below,
    joined,
)
from lakehouse_source.language.tokens import Literals, Token, name_of
from lakehouse_source.language.types import CAST_FUNCTIONS
from lakehouse_source.language.values import Failure, check_count, check_depth, check_length

# The functions of binary operators and how strongly they bind. "": not supported.
_BINARY = {
    **{sign: (sign, 1) for sign in ("=", "<=>", "!=", "<", "<=", ">", ">=")},
    "==": ("=", 1),
    "<>": ("!=", 1),
    "|": ("", 2),
    "^": ("", 3),
    "&": ("", 4),
    **dict.fromkeys(("<<", ">>", ">>>"), ("", 5)),
    "+": ("+", 6),
    "-": ("-", 6),
    "||": ("concat", 6),
    "*": ("*", 7),
    "/": ("/", 7),
    "%": ("%", 7),
    "DIV": ("div", 7),
}
# Words that end or join expressions. Spark takes some of them as names too.
_RESERVED = {
    *("AND", "OR", "NOT", "IN", "IS", "BETWEEN", "LIKE", "ILIKE", "RLIKE", "REGEXP", "ESCAPE"),
    *("WHEN", "THEN", "ELSE", "END", "AS", "FROM", "DIV", "SELECT", "WHERE", "DISTINCT"),
}
_NULL = Literal(None, pa.null())
_CONSTANTS = {
    "NULL": _NULL,
    "TRUE": Literal(True, pa.bool_()),
    "FALSE": Literal(False, pa.bool_()),
}
_FUNCTION = re.compile(r"[a-z_][a-z0-9_]*")


def parse(text: str) -> Node:
    """The expression that `text` holds.

    Raises:
        InvalidExpressionError: it is not an expression, or not a supported one.
    """
    try:
        node = read(text)
    except InvalidPredicateError as exc:
        raise InvalidExpressionError(reason=exc.reason, text=text, position=exc.position) from exc
    refused = refused_part(node)
    if refused is not None:
        raise InvalidExpressionError(reason=refused.reason, text=text, position=refused.position)
    return node


def refused_part(node: Node) -> Refused | None:
    """The first part of a node that is not supported."""
    if isinstance(node, Refused):
        return node
    return next((found for one in below(node) if (found := refused_part(one)) is not None), None)


def read(text: str) -> Node:
    """The expression that `text` holds, with `Refused` for what is not supported.

    Raises:
        InvalidPredicateError: the text is no expression.
    """
    if not text.strip():
        raise InvalidPredicateError(reason="it is empty", text=text)
    try:
        check_length(text)
        found = _Reader(text).whole()
        _check_size(found, text)
        return found
    except RecursionError:
        raise InvalidPredicateError(reason="it is nested too deeply", text=text) from None
    except InvalidPredicateError as exc:
        if exc.text:
            raise
        raise InvalidPredicateError(reason=exc.reason, text=text) from None  # beyond a bound


def _check_size(node: Node, text: str) -> None:
    """Refuse a tree that is too deep to walk, or that repeats parts too often.

    BETWEEN and CASE of a value repeat this value: each level of nesting doubles the number of
    copies.
    """
    sizes: dict[int, int] = {}

    def size(part: Node, depth: int) -> int:
        check_depth(depth)
        if id(part) not in sizes:
            sizes[id(part)] = 1 + sum(size(one, depth + 1) for one in below(part))
        return sizes[id(part)]

    if size(node, 0) > 1000 + 20 * len(sizes):
        raise InvalidPredicateError(
            reason="values of BETWEEN or CASE are nested too deeply", text=text
        )


class _Reader(Literals):
    # --- truth: the grammar, by the names that it has in Spark ---

    def whole(self) -> Node:
        found = self._expression()
        if self._see().kind != "end":
            self._fail("an operator or the end is expected")
        return found

    def _expression(self) -> Node:
        return self._chain("or", lambda: self._chain("and", self._negation))

    def _chain(self, name: str, read: Callable[[], Node]) -> Node:
        terms = [read()]
        while self._take(name.upper()):
            terms.append(read())
        return joined(name, terms)

    def _negation(self) -> Node:
        count = 0
        while self._take("NOT", "!"):
            count += 1
        found = self._predicate(self._value())
        for _ in range(count):
            found = Call("not", (found,))
        return found

    def _predicate(self, value: Node) -> Node:
        if self._take("IS"):
            negated = self._take("NOT")
            if self._take("DISTINCT"):
                self._expect("FROM")
                found: Node = Call("<=>", (value, self._value()))
                negated = not negated
            else:
                found = self._is(value)
            return Call("not", (found,)) if negated else found
        negated = self._take("NOT")
        if self._take("BETWEEN"):
            low = self._value()
            self._expect("AND")
            found = Call("and", (Call(">=", (value, low)), Call("<=", (value, self._value()))))
        elif self._take("IN"):
            self._expect("(")
            found = Call("in", (value, *self._list_or_query()))
        elif self._see().upper in ("LIKE", "ILIKE"):
            found = self._like(value)
        elif self._take("RLIKE", "REGEXP"):
            found = Call("rlike", (value, self._value()))
        elif negated:
            self._fail("BETWEEN, IN or LIKE is expected")
        else:
            return value
        return Call("not", (found,)) if negated else found

    def _is(self, value: Node) -> Node:
        word = self._see().upper
        self._expect("NULL", "TRUE", "FALSE", "UNKNOWN")
        if word in ("TRUE", "FALSE"):
            return Call("<=>", (value, _CONSTANTS[word]))
        return Call("isnull", (value,))

    def _like(self, value: Node) -> Node:
        name = self._step().upper.lower()
        first = self._see()
        if self._take("ANY", "ALL", "SOME"):
            self._expect("(")
            self._list_or_query()
            return self._refused(first, f"{name.upper()} {first.upper} is not supported")
        pattern, escape = self._value(), "\\"
        if self._take("ESCAPE"):
            mark = self._see()
            escape = self._unescaped(mark) if mark.kind == "text" else ""
            if len(escape) != 1:
                self._fail("a text of one character is expected")
            self._next += 1
        return Call(name, (value, pattern, Literal(escape, pa.string())))

    # --- values ---

    def _value(self, least: int = 1) -> Node:
        """A value of operators that bind at least this strongly, from the left within a level."""
        first = self._see()
        found = self._operand()
        while (operator := _BINARY.get(self._see().upper, ("", 0)))[1] >= least:
            name, level = operator
            sign = self._step()
            other = self._value(level + 1)
            if name:
                found = Call(name, (found, other))
            else:
                found = self._refused(first, f"the operator {sign.written} is not supported")
        return found

    def _operand(self) -> Node:
        first = self._see()
        if self._take("+"):
            # Before anything except a number, + is an error of types.
            if self._see().kind != "number" and self._see().upper not in ("+", "-"):
                self._fail("a number is expected after the sign +")
            return self._operand()
        if self._take("~"):
            self._operand()
            return self._refused(first, "the operator ~ is not supported")
        if self._take("-"):
            number = self._see()
            # The sign belongs to the literal: 2147483648 is no INT and -2147483648 is.
            if number.kind == "number" and number.written[-1] not in "fF":
                return self._fields(first, self._number("-"))
            return Call("negative", (self._operand(),))
        return self._fields(first, self._primary())

    def _fields(self, first: Token, value: Node) -> Node:
        """A value, with the field or element that signs after it select."""
        while True:
            if self._take("."):
                if self._see().kind not in ("word", "quoted"):
                    self._fail("the name of a field is expected")
                name = name_of(self._step())
                if isinstance(value, Name) and self._tokens[self._next - 3].upper != ")":
                    value = Name((*value.parts, name))
                else:
                    value = self._refused(first, f"a field of {value} is not supported")
            elif self._take("["):
                self._value()
                self._expect("]")
                value = self._refused(first, "an element in [ ] is not supported")
            elif self._take("::"):
                value = self._cast(first, value, safe=False)
            elif self._take(":"):
                value = Call("variant_get", (value, Literal(self._path(), pa.string())))
            else:
                return value

    def _path(self) -> str:
        """The path after a colon: `a.b[0]['c d']`."""
        found = "$"
        while True:
            if self._take("["):
                token = self._step()
                if token.kind == "text":
                    found += f"['{self._unescaped(token)}']"
                elif token.kind == "number":
                    found += f"[{token.written}]"
                else:
                    self._fail("a name in quotes or a whole number is expected")
                self._expect("]")
            elif len(found) == 1 or self._take("."):
                if self._see().kind not in ("word", "quoted"):
                    self._fail("the name of a field is expected")
                name = name_of(self._step())
                found += f".{name}" if re.fullmatch(r"\w+", name) else f"['{name}']"
            else:
                return found

    def _primary(self) -> Node:
        token = self._see()
        if token.kind == "text":
            return self._text_literal()
        if token.kind == "number":
            return self._number()
        if token.kind == "quoted":
            self._next += 1
            return self._function(token) if self._take("(") else Name((name_of(token),))
        if self._take("("):
            found = self._list_or_query()
            if len(found) == 1:
                return found[0]
            return self._refused(token, "several values in parentheses are not supported")
        if token.kind != "word" or token.upper in _RESERVED:
            self._fail("a value is expected")
        self._next += 1
        return self._case() if token.upper == "CASE" else self._word(token)

    def _word(self, token: Token) -> Node:
        word, following = token.upper, self._see()
        if word == "INTERVAL" and (
            following.kind in ("text", "number") or following.upper in ("+", "-")
        ):
            return self._interval(token)
        if following.kind == "text":
            return self._typed(word)
        if following.upper != "(":
            if word in ("EXISTS", "CAST", "TRY_CAST"):
                self._fail("( is expected")
            if word in ("CURRENT_DATE", "CURRENT_TIMESTAMP"):
                return Call(word.lower(), ())
            return _CONSTANTS.get(word) or Name((token.written,))
        if word in _CONSTANTS or word == "INTERVAL":
            self._fail("an operator or the end is expected")
        self._next += 1
        if word not in ("CAST", "TRY_CAST"):
            return self._function(token)
        value = self._expression()
        self._expect("AS")
        found = self._cast(token, value, safe=word == "TRY_CAST")
        self._expect(")")
        return found

    def _case(self) -> Node:
        subject = None if self._see().upper == "WHEN" else self._expression()
        branches = list[tuple[Node, Node]]()
        self._expect("WHEN")
        while True:
            condition = self._expression()
            if subject is not None:
                condition = Call("=", (subject, condition))
            self._expect("THEN")
            branches.append((condition, self._expression()))
            if not self._take("WHEN"):
                break
        otherwise = self._expression() if self._take("ELSE") else _NULL
        self._expect("END")
        return Case(tuple(branches), otherwise)

    # --- functions and lists ---

    def _function(self, token: Token) -> Node:
        """A function whose opening parenthesis was read."""
        name, arguments = name_of(token).lower(), list[Node]()
        first = self._see()
        if self._take("DISTINCT"):
            self._list_or_query()
            arguments = [self._refused(first, "DISTINCT is not supported")]
        elif first.upper == "*" and self._see(1).upper == ")":
            self._next += 2
            arguments = [self._refused(first, "* is not supported")]
        elif not self._take(")"):
            arguments = self._list_or_query()
        if name == "if" and len(arguments) == 3:
            return Case(((arguments[0], arguments[1]),), arguments[2])
        if name in CAST_FUNCTIONS and len(arguments) == 1:
            return Cast(arguments[0], CAST_FUNCTIONS[name])
        if name in ("variant_get", "try_variant_get") and len(arguments) == 3:
            return self._variant_get(token, arguments, safe=name == "try_variant_get")
        if not _FUNCTION.fullmatch(name):
            return self._refused(token, f"{name!r} is not the name of a function")
        try:
            if name != "negative":  # the minus sign
                check_known(name)
        except Failure as exc:
            return self._refused(token, str(exc))
        return Call(name, tuple(arguments))

    def _variant_get(self, first: Token, arguments: list[Node], *, safe: bool) -> Node:
        """`variant_get(value, path, type)`, which is a cast of what is at the path."""
        *of, named = arguments
        if not isinstance(named, Literal) or not isinstance(named.value, str):
            return self._refused(first, "the type of variant_get is a literal text")
        reader = _Reader(named.value)
        to = reader._type()
        if reader._see().kind != "end":
            self._fail("the name of one type is expected in variant_get")
        if to is None:
            return self._refused(first, f"a cast to {named.value} is not supported")
        return Cast(Call("variant_get", tuple(of)), to, safe)

    def _list_or_query(self) -> list[Node]:
        """What follows an opening parenthesis: expressions, or a query, which is not read."""
        first = self._see()
        if first.upper not in ("SELECT", "WITH", "VALUES"):
            return self._list()
        depth = 1
        while depth:
            if self._see().kind == "end":
                self._fail(") is expected")
            depth += (self._see().upper == "(") - (self._see().upper == ")")
            self._next += 1
        self._next -= 1
        found = self._refused(first, "a query inside of an expression is not supported")
        self._next += 1
        return [found]

    def _list(self) -> list[Node]:
        found = list[Node]()
        while True:
            first = self._see()
            is_lambda = self._see(1).upper == "->"
            self._next += 2 * is_lambda
            value = self._expression()
            found.append(self._refused(first, "-> is not supported") if is_lambda else value)
            check_count(len(found))
            if not self._take(","):
                break
        self._expect(")")
        return found

    def _cast(self, first: Token, value: Node, *, safe: bool) -> Node:
        start = self._see()
        to = self._type()
        if to is not None:
            return Cast(value, to, safe)
        return self._refused(first, f"a cast to {self._since(start)} is not supported")

"""Pure. Whether a text is one whole expression by Spark's grammar, and where it is not.

sqlglot is lenient: it drops an empty argument, a sign, or what follows a literal. So a text is
held against the grammar before sqlglot makes a tree of it. Functions, subqueries and other
constructs that plake does not read pass here, and the readers refuse them by name.

Source: Spark's `SqlBaseLexer.g4` and `SqlBaseParser.g4`, from `booleanExpression` down.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, NamedTuple, NoReturn

from lakehouse_source.errors import InvalidPredicateError
from lakehouse_source.language.tree.moments import parse_date, parse_time, parse_timestamp

_TOKEN = re.compile(
    r"""
    (?P<space>[ \t\r\n]+ | --[^\r\n]*)
  | (?P<comment>/\*)
  | (?P<text>[rR]'[^']*' | [rR]"[^"]*"
        | '(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*")
  | (?P<quoted>`(?:[^`]|``)+`)
  | (?P<number>(?:[0-9]+[LSY]
        | (?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:E[+-]?[0-9]+)?(?:BD|[DF])?)(?![\w.]))
  | (?P<word>\w+)
  | (?P<sign><=>|<=|<>|<<|>>>|>>|>=|!=|==|\|\||::|->|[-+*/%=<>!~&|^.,()\[\]])
    """,
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_BINARY = _words("+ - * / % || << >> >>> & ^ | = == <=> <> != < <= > >= DIV")
# Words that end or join expressions. Spark takes some of them as names too, sqlglot does not.
_RESERVED = _words(
    "AND OR NOT IN IS BETWEEN LIKE ILIKE RLIKE REGEXP ESCAPE WHEN THEN ELSE END AS FROM DIV "
    "CASE SELECT WHERE DISTINCT"
)
_CONSTANTS = frozenset({"NULL", "TRUE", "FALSE"})
# What reads the text behind the name of a type; a value that it has not is no literal.
_TYPED: dict[str, Callable[[str], Any]] = {
    "DATE": parse_date,
    "TIME": parse_time,
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ"), parse_timestamp),
    "X": lambda digits: int(f"0{digits}", 16),
}
_ONE_CHARACTER = re.compile(r"""(['"])(?:[^\\]|\\.|''|"")\1""", re.DOTALL)
_COMMENT = re.compile(r"/\*|\*/")
_BITS = {"L": 64, "S": 16, "Y": 8}
_UNITS = _words("YEAR MONTH WEEK DAY HOUR MINUTE SECOND MILLISECOND MICROSECOND")
# How many numbers in parentheses may follow a type.
_TYPES = {
    **dict.fromkeys(
        _words(
            "BOOLEAN TINYINT BYTE SMALLINT SHORT INT INTEGER BIGINT LONG FLOAT REAL DOUBLE DATE "
            "TIMESTAMP TIMESTAMP_NTZ TIMESTAMP_LTZ STRING BINARY VOID VARIANT"
        ),
        range(1),
    ),
    **dict.fromkeys(_words("DECIMAL DEC NUMERIC"), range(3)),
    **dict.fromkeys(_words("CHAR CHARACTER VARCHAR"), range(1, 2)),
    "TIME": range(2),
}
_NESTED_TYPES = frozenset({"ARRAY", "MAP", "STRUCT", "INTERVAL"})


class _Token(NamedTuple):
    kind: str  # of the groups of `_TOKEN`; "end" behind the last one
    written: str
    start: int
    upper: str  # as keywords are written; empty where it can be no keyword, as a quoted name


def check_syntax(text: str) -> None:
    """Check that all of `text` is one expression.

    Raises:
        InvalidPredicateError: it is not. The error has the position of the first token that
            does not fit.
        RecursionError
    """
    _Grammar(text).whole()


def _refuse(text: str, reason: str, position: int) -> NoReturn:
    raise InvalidPredicateError(reason=reason, text=text, position=position)


def _tokens(text: str) -> list[_Token]:
    found, place = list[_Token](), 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            what = "is not closed" if text[place] in "'\"`" else "has no meaning here"
            _refuse(text, f"{text[place]!r} {what}", place)
        kind, end = str(match.lastgroup), match.end()
        if kind == "comment":
            end = _end_of_comment(text, place)
        elif kind == "word":
            _check_word(text, match[0], place)
        if kind not in ("space", "comment"):
            upper = match[0].upper() if kind in ("word", "sign") else ""
            found.append(_Token(kind, match[0], place, upper))
        elif match[0].startswith("--") and match[0].endswith("\\"):  # goes on in Spark only
            _refuse(text, "a comment ends its line with a backslash", place)
        place = end
    return [*found, *[_Token("end", "", len(text), "")] * 2]  # one may be looked at ahead


def _check_word(text: str, word: str, place: int) -> None:
    if not all(c.isalpha() or c in "_0123456789" for c in word):
        _refuse(text, f"{word!r} is not a name: put it in backquotes", place)
    if "0" <= word[0] <= "9":  # to sqlglot some are numbers, such as 1e
        _refuse(text, f"{word!r} is not a number, and as a name it needs backquotes", place)


def _fit(kind: str, numbers: list[int]) -> bool:
    """Tell whether numbers may stand in parentheses behind the name of a type."""
    if kind in ("DECIMAL", "DEC", "NUMERIC"):  # digits, and of these behind the point
        return sorted([*numbers, 38], reverse=True) == [38, *numbers]
    return kind != "TIME" or all(number <= 6 for number in numbers)


def _end_of_comment(text: str, start: int) -> int:
    """Where a comment ends, in which others may be nested."""
    if text.startswith("/*+", start):
        _refuse(text, "hints are not supported", start)
    depth = 0
    for mark in _COMMENT.finditer(text, start):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return mark.end()
    _refuse(text, "the comment is not closed", start)


class _Grammar:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens(text)
        self._next = 0

    # --- tokens ---

    def _see(self, ahead: int = 0) -> _Token:
        return self._tokens[self._next + ahead]

    def _take(self, *words: str) -> bool:
        """Step over the next token if it is one of some words or signs."""
        found = self._tokens[self._next].upper in words
        self._next += found
        return found

    def _expect(self, *words: str) -> None:
        if not self._take(*words):
            self._fail(f"{' or '.join(words)} is expected")

    def _fail(self, expected: str) -> NoReturn:
        token = self._see()
        found = "the text ends" if token.kind == "end" else f"{token.written!r} is found"
        _refuse(self._text, f"{found} where {expected}", token.start)

    # --- the grammar, by the names that it has in Spark ---

    def whole(self) -> None:
        self._expression()
        if self._see().kind != "end":
            self._fail("an operator or the end is expected")

    def _expression(self) -> None:
        while True:
            while self._take("NOT", "!"):
                pass
            self._value()
            self._predicate()
            if not self._take("AND", "OR"):
                return

    def _predicate(self) -> None:
        if self._take("IS"):
            self._take("NOT")
            if self._take("DISTINCT"):
                self._expect("FROM")
                self._value()
            else:
                self._expect("NULL", "TRUE", "FALSE", "UNKNOWN")
            return
        negated = self._take("NOT")
        if self._take("BETWEEN"):
            self._value()
            self._expect("AND")
            self._value()
        elif self._take("IN"):
            self._expect("(")
            self._list_or_query()
        elif self._take("LIKE", "ILIKE"):
            if self._take("ANY", "ALL", "SOME"):
                self._expect("(")
                self._list_or_query()
                return
            self._value()
            if self._take("ESCAPE"):
                if not _ONE_CHARACTER.fullmatch(self._see().written):
                    self._fail("a text of one character is expected")
                self._next += 1
        elif self._take("RLIKE", "REGEXP"):
            self._value()
        elif negated:
            self._fail("BETWEEN, IN or LIKE is expected")

    def _value(self) -> None:
        self._operand()
        while self._see().upper in _BINARY:
            self._next += 1
            self._operand()

    def _operand(self) -> None:
        while self._see().upper in ("-", "+", "~"):
            plus = self._take("+")
            # sqlglot drops the sign, and before anything but a number it is an error of types.
            if plus and self._see().kind != "number" and self._see().upper not in ("+", "-"):
                self._fail("a number is expected after the sign +")
            self._take("-", "~")
        self._primary()
        while True:
            if self._take("."):
                if self._see().kind not in ("word", "quoted"):
                    self._fail("the name of a field is expected")
                self._next += 1
            elif self._take("["):
                self._value()
                self._expect("]")
            elif self._take("::"):
                self._type()
            else:
                return

    def _primary(self) -> None:
        token, word = self._see(), self._see().upper
        if token.kind == "text":
            while self._see().kind == "text":
                self._next += 1
        elif token.kind == "number":
            self._number()
        elif token.kind == "quoted":
            self._next += 1
            if self._take("("):
                self._arguments()
        elif self._take("("):
            self._list_or_query()
        elif token.kind != "word" or (word in _RESERVED and word != "CASE"):
            self._fail("a value is expected")
        elif self._take("CASE"):
            self._case()
        else:
            self._word(word)

    def _word(self, word: str) -> None:
        self._next += 1
        following = self._see()
        if word == "INTERVAL" and following.kind in ("text", "number", "sign"):
            if following.kind != "sign" or following.written in "+-":
                self._interval()
        elif following.kind == "text":
            self._typed(word)
        elif self._take("("):
            if word in ("CAST", "TRY_CAST"):
                self._expression()
                self._expect("AS")
                self._type()
                self._expect(")")
            elif word in _CONSTANTS or word == "INTERVAL":
                self._next -= 1
                self._fail("an operator or the end is expected")
            else:
                self._arguments()
        elif word in ("EXISTS", "CAST", "TRY_CAST"):
            self._fail("( is expected")

    def _typed(self, word: str) -> None:
        """A text behind the name of its type."""
        token = self._see()
        if word not in _TYPED:
            self._fail("an operator or the end is expected")
        try:
            _TYPED[word](token.written[1:-1])
        except ValueError:
            self._fail(f"a value of {word} is expected")
        self._next += 1

    def _number(self) -> None:
        """Check that Spark has a value for a number."""
        token = self._see()
        written = token.written.upper()
        digits = written.rstrip("BDFLSY")
        suffix = written[len(digits) :]
        if suffix in _BITS:
            end = 1 << (_BITS[suffix] - 1)
            negative = self._next > 0 and self._tokens[self._next - 1].upper == "-"
            fits = len(digits) < 30 and int(digits) < end + negative
        elif suffix in ("D", "F") or (not suffix and "E" in digits):
            largest = 3.4028235677973366e38 if suffix == "F" else math.inf
            fits = float(digits) < largest
        else:
            _, all_digits, exponent = Decimal(digits).as_tuple()
            assert isinstance(exponent, int)
            fits = max(len(all_digits) + max(exponent, 0), -exponent) <= 38
        if not fits:
            _refuse(self._text, f"{token.written} is out of range", token.start)
        self._next += 1

    def _interval(self) -> None:
        self._take("-", "+")
        if self._see().kind not in ("text", "number"):
            self._fail("the length of an interval is expected")
        text = self._see().kind == "text"
        self._next += 1
        while self._see().upper.removesuffix("S") in _UNITS:
            self._next += 1
            if self._take("TO"):
                if self._see().upper not in _UNITS:
                    self._fail("the unit of an interval is expected")
                self._next += 1
                return
            if self._see().kind not in ("text", "number"):
                return
            text = self._see().kind == "text"
            self._next += 1
        if not text:
            self._fail("the unit of an interval is expected")

    def _case(self) -> None:
        if self._see().upper != "WHEN":
            self._expression()
        self._expect("WHEN")
        while True:
            self._expression()
            self._expect("THEN")
            self._expression()
            if not self._take("WHEN"):
                break
        if self._take("ELSE"):
            self._expression()
        self._expect("END")

    def _type(self) -> None:
        name = self._see()
        if name.upper in _NESTED_TYPES:  # refused by the readers
            while self._see().kind != "end" and self._see().upper != ")":
                self._next += 1
            return
        if name.upper not in _TYPES:
            self._fail("the name of a type is expected")
        self._next += 1
        numbers = list[int]()
        if self._take("("):
            while True:
                if not re.fullmatch("[0-9]{1,9}", self._see().written):
                    self._fail("a whole number is expected")
                numbers.append(int(self._see().written))
                self._next += 1
                if not self._take(","):
                    break
            self._expect(")")
        if len(numbers) not in _TYPES[name.upper] or not _fit(name.upper, numbers):
            _refuse(self._text, f"{name.written} does not take these numbers", name.start)

    # --- lists ---

    def _list_or_query(self) -> None:
        """What follows an opening parenthesis: expressions, or a query, which is not read."""
        if self._see().upper not in ("SELECT", "WITH", "VALUES"):
            self._list()
            return
        depth = 1
        while depth:
            if self._see().kind == "end":
                self._fail(") is expected")
            depth += (self._see().upper == "(") - (self._see().upper == ")")
            self._next += 1

    def _arguments(self) -> None:
        """What follows the opening parenthesis of a function."""
        if self._take(")"):
            return
        self._take("DISTINCT")
        if self._see().upper == "*" and self._see(1).upper == ")":
            self._next += 2
        else:
            self._list_or_query()

    def _list(self) -> None:
        while True:
            if self._see(1).upper == "->":  # a lambda, which the readers refuse
                self._next += 2
            self._expression()
            if not self._take(","):
                break
        self._expect(")")

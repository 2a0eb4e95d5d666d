"""Pure. SQL texts as tokens, and the literals and names of types in them."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import NamedTuple, NoReturn

import pyarrow as pa

from lakehouse_source.errors import InvalidExpressionError, InvalidPredicateError
from lakehouse_source.language.nodes import (
    Cast,
    Interval,
    Literal,
    Node,
    Refused,
    decimal_literal,
    integer_literal,
)
from lakehouse_source.language.types import NAMED
from lakehouse_source.language.values import READ_TYPED
from lakehouse_source.schema.types import card

# --- SQL texts as tokens, and the value of a token of text.
#
# Source: Spark's `SqlBaseLexer.g4` and `SparkParserUtils.unescapeSQLString`.


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
  | (?P<sign><=>|<=|<>|<<|>>>|>>|>=|!=|==|\|\||::|:(?!=)|->|[-+*/%=<>!~&|^.,()\[\]])
    """,
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
_COMMENT = re.compile(r"/\*|\*/")
_HEX = "[0-9A-Fa-f]"
_ESCAPED = re.compile(
    rf"\\(?:u({_HEX}{{4}})|U({_HEX}{{8}})|([01][0-7]{{2}})|(.))|(''|\"\")", re.DOTALL
)
_ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}


class Token(NamedTuple):
    """`kind` is a group of `_TOKEN`, or "end" after the last token.

    `upper` is the text in upper case; it is empty if the token cannot be a keyword, as a quoted
    name.
    """

    kind: str
    written: str
    start: int
    upper: str


def refuse(text: str, reason: str, position: int) -> NoReturn:
    """Raise the error of a text that is not SQL."""
    raise InvalidPredicateError(reason=reason, text=text, position=position)


def tokens(text: str) -> list[Token]:
    """The tokens of a text, without spaces and comments.

    Raises:
        InvalidPredicateError: a character has no meaning where it stands.
    """
    found, place = list[Token](), 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            what = "is not closed" if text[place] in "'\"`" else "has no meaning here"
            refuse(text, f"{text[place]!r} {what}", place)
        kind, end = str(match.lastgroup), match.end()
        if kind == "comment":
            end = _end_of_comment(text, place)
        elif kind == "word":
            _check_word(text, match[0], place)
        if kind not in ("space", "comment"):
            upper = match[0].upper() if kind in ("word", "sign") else ""
            found.append(Token(kind, match[0], place, upper))
        elif match[0].startswith("--") and match[0].endswith("\\"):  # continues in Spark only
            refuse(text, "a comment ends its line with a backslash", place)
        place = end
    return [*found, *[Token("end", "", len(text), "")] * 2]  # one may be looked at ahead


def _check_word(text: str, word: str, place: int) -> None:
    if not all(c.isalpha() or c in "_0123456789" for c in word):
        refuse(text, f"{word!r} is not a name: put it in backquotes", place)
    if "0" <= word[0] <= "9":
        refuse(text, f"{word!r} is not a number, and as a name it needs backquotes", place)


def _end_of_comment(text: str, start: int) -> int:
    """The end of a comment, in which others may be nested."""
    if text.startswith("/*+", start):
        refuse(text, "hints are not supported", start)
    depth = 0
    for mark in _COMMENT.finditer(text, start):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return mark.end()
    refuse(text, "the comment is not closed", start)


def unescaped(written: str) -> str:
    """The value of a text in quotes. Half a surrogate pair is a question mark, as in Java.

    Raises:
        ValueError: the text has an escape for a character that does not exist.
    """
    found = written[2:-1] if written[0] in "rR" else _ESCAPED.sub(_escaped, written[1:-1])
    whole = found.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    return whole.encode(errors="replace").decode()


def _escaped(match: re.Match[str]) -> str:
    short, long, octal, character, doubled = match.groups()
    if doubled:
        return str(doubled[0])
    if character is None:
        return chr(int(octal, 8) if octal else int(short or long, 16))
    if character in "%_":  # LIKE reads them with the backslash
        return f"\\{character}"
    return _ESCAPES.get(character, str(character))


def name_of(token: Token) -> str:
    """The name that a word or a text in backquotes means."""
    quoted = token.kind == "quoted"
    return token.written[1:-1].replace("``", "`") if quoted else token.written


class Tokens:
    """The tokens of a text, read one after another."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokens(text)
        self._next = 0

    def _see(self, ahead: int = 0) -> Token:
        return self._tokens[self._next + ahead]

    def _step(self) -> Token:
        self._next += 1
        return self._tokens[self._next - 1]

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
        refuse(self._text, f"{found} where {expected}", token.start)

    def _refused(self, first: Token, reason: str) -> Refused:
        """The part that was read from a token on, as not supported."""
        return Refused(self._since(first), reason, first.start)

    def _since(self, first: Token) -> str:
        """The text from a token to the last one that was read."""
        last = self._tokens[self._next - 1]
        return self._text[first.start : last.start + len(last.written)]


# --- Literals and the names of types in SQL texts: numbers, texts, dates, intervals.


_SUFFIXED = {"L": pa.int64(), "S": pa.int16(), "Y": pa.int8()}
_LARGEST_FLOAT = 3.4028235677973366e38
_SECONDS = {"DAY": 86_400, "HOUR": 3600, "MINUTE": 60, "SECOND": 1}
_UNITS = {*_SECONDS, "YEAR", "MONTH", "WEEK", "MILLISECOND", "MICROSECOND"}
_LENGTH = re.compile(r"\s*([+-]?\d{1,28}(\.\d{1,28})?)\s*(?:([A-Za-z]+)\s*)?", re.ASCII)
# How many numbers in parentheses may follow a type; other types take none.
_NUMBERS = {
    **dict.fromkeys(("DECIMAL", "DEC", "NUMERIC"), range(3)),
    **dict.fromkeys(("CHAR", "CHARACTER", "VARCHAR"), range(1, 2)),
}
_NESTED_TYPES = ("ARRAY", "MAP", "STRUCT", "INTERVAL")


class Literals(Tokens):
    """Reads literals and types."""

    def _unescaped(self, token: Token) -> str:
        try:
            return unescaped(token.written)
        except ValueError:
            refuse(self._text, f"{token.written} holds what is no character", token.start)

    def _text_literal(self) -> Literal:
        """Texts side by side are one text in SQL."""
        parts = list[str]()
        while self._see().kind == "text":
            parts.append(self._unescaped(self._step()))
        return Literal("".join(parts), pa.string())

    def _typed(self, word: str) -> Node:
        """A text after the name of its type."""
        type_ = NAMED.get(word)
        if type_ not in READ_TYPED and word != "X":
            self._fail("an operator or the end is expected")
        text = self._unescaped(self._see())
        try:
            if word == "X":
                found: Node = Literal(bytes.fromhex("0" * (len(text) % 2) + text), pa.binary())
            else:
                READ_TYPED[type_](text)
                found = Cast(Literal(text, pa.string()), type_)
        except ValueError:
            self._fail(f"a value of {word} is expected")
        self._next += 1
        return found

    def _number(self, sign: str = "") -> Node:
        token = self._step()
        written = token.written.upper()
        digits = written.rstrip("BDFLSY")
        suffix = written[len(digits) :]
        try:
            return _number(sign + digits, suffix)
        except (ValueError, InvalidExpressionError):
            refuse(self._text, f"{token.written} is out of range", token.start)

    def _interval(self, first: Token) -> Node:
        sign = -1 if self._take("-") else 1
        self._take("+")
        if self._see().kind not in ("text", "number"):
            self._fail("the length of an interval is expected")
        start = self._next
        length = self._step()
        text = length.kind == "text"
        while self._see().upper.removesuffix("S") in _UNITS:
            self._next += 1
            if self._take("TO"):
                if self._see().upper not in _UNITS:
                    self._fail("the unit of an interval is expected")
                self._next += 1
                break
            if self._see().kind not in ("text", "number"):
                break
            text = self._step().kind == "text"
        else:
            if not text:
                self._fail("the unit of an interval is expected")
        written = self._unescaped(length) if length.kind == "text" else length.written
        match = _LENGTH.fullmatch(written)
        units = [one.upper for one in self._tokens[start + 1 : self._next]]
        units += [match[3].upper()] if match is not None and match[3] else []
        unit = units[0].removesuffix("S") if len(units) == 1 else ""
        if match is None or unit not in _SECONDS or (match[2] and unit != "SECOND"):
            reason = "only intervals of a number of days, hours, minutes or seconds are supported"
            return self._refused(first, reason)
        micros = Decimal(match[1]) * _SECONDS[unit] * 10**6 * sign
        if micros != int(micros) or not _fits(int(micros), pa.int64()):
            return self._refused(first, "the interval is too long, or finer than a microsecond")
        return Interval(int(micros), unit == "DAY")

    def _type(self) -> pa.DataType | None:
        """A type; None: it is not supported."""
        token = self._see()
        if token.upper in _NESTED_TYPES:
            return self._nested_type()
        if token.upper not in NAMED and token.upper != "VOID":
            self._fail("the name of a type is expected")
        self._next += 1
        numbers = list[int]()
        if self._take("("):
            while True:
                if not re.fullmatch("[0-9]{1,9}", self._see().written):
                    self._fail("a whole number is expected")
                numbers.append(int(self._step().written))
                if not self._take(","):
                    break
            self._expect(")")
        known = NAMED.get(token.upper)
        digits = 0 if known is None else card(known).digits
        is_decimal = token.upper in ("DECIMAL", "DEC", "NUMERIC")
        fit = len(numbers) in _NUMBERS.get(token.upper, range(1))
        if is_decimal:  # digits, and of these behind the point
            precision, scale = [*numbers, *(10, 0)[len(numbers) :]][:2]
            fit = fit and 1 <= precision <= 38 and scale <= precision
        elif digits:
            fit = len(numbers) < 2 and all(number <= digits for number in numbers)
        if not fit:
            refuse(self._text, f"{token.written} does not take these numbers", token.start)
        if is_decimal:
            return pa.decimal128(precision, scale)
        return None if digits and numbers else known

    def _nested_type(self) -> pa.DataType | None:
        """No cast to a type with fields is supported, so that its name is not read."""
        while self._see().kind != "end" and self._see().upper != ")":
            self._next += 1
        return None


def _number(digits: str, suffix: str) -> Node:
    """A number with its sign; the letters after the number give its type.

    Raises:
        ValueError, InvalidExpressionError: its type has no such value.
    """
    if suffix in _SUFFIXED:
        type_ = _SUFFIXED[suffix]
        if len(digits) > 30 or not _fits(int(digits), type_):
            raise ValueError
        return Literal(int(digits), type_)
    if suffix == "F":
        if float(digits) >= _LARGEST_FLOAT:
            raise ValueError
        return Cast(_number(digits, ""), pa.float32())
    if suffix == "D" or (not suffix and "E" in digits):
        if math.isinf(float(digits)):
            raise ValueError
        return Literal(float(digits), pa.float64())
    if not suffix and "." not in digits and len(digits) < 50:
        return integer_literal(int(digits))
    value = Decimal(digits)
    return decimal_literal(value or value.copy_abs())  # a decimal has no -0


def _fits(value: int, type_: pa.DataType) -> bool:
    bound = 1 << (int(type_.bit_width) - 1)
    return -bound <= value < bound

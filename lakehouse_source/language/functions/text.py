"""Pure. Functions of strings, which count characters; LIKE; regular expressions."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.errors import InvalidPredicateError
from lakehouse_source.language.functions.entry import (
    INT,
    TEXT,
    Builder,
    Context,
    Function,
    by_row,
    function,
)
from lakehouse_source.language.functions.rows import Bound, Kernel, each, literal, strict
from lakehouse_source.language.nodes import Call, Literal
from lakehouse_source.language.values import Failure

# --- LIKE patterns taken apart.


# The marks of wildcards: texts that cannot be a piece of a pattern.
ANY_TEXT, ONE_CHARACTER = "\udc00%", "\udc00_"


def pieces(pattern: str, escape: str) -> list[str]:
    """A LIKE pattern as plain texts and the marks `ANY_TEXT` and `ONE_CHARACTER`.

    Raises:
        InvalidPredicateError: an escape character stands before something else
            than `%`, `_` or itself, as in Spark; or it is not one character.
    """
    if len(escape) != 1:
        raise InvalidPredicateError(reason=f"ESCAPE takes one character, not {escape!r}")
    try:
        pattern.encode()
    except UnicodeEncodeError:
        raise InvalidPredicateError(
            reason=f"the text {pattern!r} holds half a surrogate pair"
        ) from None
    found: list[str] = []
    plain: list[str] = []

    def flush() -> None:
        if plain:
            found.append("".join(plain))
            plain.clear()

    at = 0
    while at < len(pattern):
        character = pattern[at]
        if character == escape:
            at += 1
            if at == len(pattern) or pattern[at] not in ("%", "_", escape):
                raise InvalidPredicateError(
                    reason=f"in the pattern {pattern!r} the escape character {escape!r} must "
                    "stand before %, _ or itself",
                    position=at - 1,
                )
            plain.append(pattern[at])
        elif character == "%":
            flush()
            if found[-1:] != [ANY_TEXT]:
                found.append(ANY_TEXT)
        elif character == "_":
            flush()
            found.append(ONE_CHARACTER)
        else:
            plain.append(character)
        at += 1
    flush()
    return found


def regex(pieces: Sequence[str]) -> str:
    """The pieces of a pattern as one regular expression for RE2.

    Python's `re` would read it alike, but its time grows exponentially with the wildcards.
    """
    wildcards = {ANY_TEXT: ".*", ONE_CHARACTER: "."}
    return "".join(wildcards.get(piece) or _plain(piece) for piece in pieces)


def matches(pieces: Sequence[str], text: str) -> bool:
    """Tell whether the whole text matches, in at most as many steps as pieces times characters.

    If a piece does not match, only the last `%` takes one more character: each earlier `%` took the
    least that lets the pieces between match, so more characters would not help.
    """
    piece = at = 0
    after_any = -1  # the piece after the last `%`, and where its text ends
    taken = 0
    while piece < len(pieces) or at < len(text):
        wanted = pieces[piece] if piece < len(pieces) else None
        if wanted == ANY_TEXT:
            piece += 1
            if piece == len(pieces):
                return True
            after_any, taken = piece, at
        elif wanted == ONE_CHARACTER and at < len(text):
            piece, at = piece + 1, at + 1
        elif wanted is not None and text.startswith(wanted, at):
            piece, at = piece + 1, at + len(wanted)
        elif after_any < 0 or taken >= len(text):
            return False
        else:
            taken += 1
            piece, at = after_any, taken
    return True


def _plain(text: str) -> str:
    return "".join(c if c.isalnum() or ord(c) > 127 else rf"\x{ord(c):02x}" for c in text)


# --- Translates Java's regular expressions to RE2's syntax, as far as both mean the same.
#
# Literal characters, `.`, classes of ASCII characters, groups, alternatives, quantifiers, `^` at
# the start and `$` at the end are translated; everything else is refused. Whether a pattern matches
# somewhere does not depend on which of several matches is found first.
#
# Source: `java.util.regex.Pattern`; https://github.com/google/re2/wiki/Syntax.


_TERMINATORS = r"\n\r\x{85}\x{2028}\x{2029}"
_END = rf"(?:\r\n|[{_TERMINATORS}])?\z"
_CLASSES = {
    "d": "[0-9]",
    "D": "[^0-9]",
    "w": "[0-9A-Za-z_]",
    "W": "[^0-9A-Za-z_]",
    "s": r"[\t\n\x0b\f\r ]",
    "S": r"[^\t\n\x0b\f\r ]",
}
_ESCAPES = {"t": r"\t", "n": r"\n", "r": r"\r", "f": r"\f"}
_PLAIN = re.compile(r"[A-Za-z0-9_ ,:;@#%&=!~<>/'\"-]|[^\x00-\x7f]")
_CLASS_BODY = re.compile(r"\^?(?:[A-Za-z0-9_ ,.:;@#%=!~<>/+*?$()|{}-])+")
_QUANTIFIER = re.compile(r"[*+?]|\{\d{1,3}(?:,\d{0,3})?\}")


def to_re2(pattern: str) -> str:
    """The pattern in RE2's syntax.

    Raises:
        Failure: a part of the pattern is not supported.
    """
    found: list[str] = []
    at, quantifiable, depth = 0, False, 0
    while at < len(pattern):
        character = pattern[at]
        quantifier = _QUANTIFIER.match(pattern, at)
        if quantifier is not None:
            if not quantifiable:
                raise _unsupported(pattern, quantifier[0])
            found.append(quantifier[0])
            at, quantifiable = quantifier.end(), False
            continue
        if character == "\\":
            piece, at = _escape(pattern, at)
        elif character == "[":
            piece, at = _class(pattern, at)
        else:
            piece, depth = _single(pattern, at, depth)
            at += 1
        found.append(piece)
        quantifiable = character not in "^$(|"
    if depth:
        raise _unsupported(pattern, "(")
    return "".join(found)


def _single(pattern: str, at: int, depth: int) -> tuple[str, int]:
    character = pattern[at]
    if character == "^" and at == 0:
        # An anchor beside alternatives would apply to one alternative only, in Java as here.
        return r"\A", depth
    if character == "$" and at == len(pattern) - 1:
        return _END, depth
    if character == ".":
        return f"[^{_TERMINATORS}]", depth
    if character == "(" and pattern[at + 1 : at + 2] != "?":
        return "(?:", depth + 1
    if character == ")" and depth:
        return ")", depth - 1
    if character == "|":
        return "|", depth
    if _PLAIN.match(character):
        return re.escape(character) if character.isascii() else character, depth
    raise _unsupported(pattern, character)


def _escape(pattern: str, at: int) -> tuple[str, int]:
    character = pattern[at + 1 : at + 2]
    if character in _CLASSES:
        return _CLASSES[character], at + 2
    if character in _ESCAPES:
        return _ESCAPES[character], at + 2
    if character and character.isascii() and not character.isalnum():
        return rf"\x{ord(character):02x}", at + 2
    raise _unsupported(pattern, "\\" + character)


def _class(pattern: str, at: int) -> tuple[str, int]:
    end = pattern.find("]", at)
    body = pattern[at + 1 : end]
    if end < 0 or not _CLASS_BODY.fullmatch(body) or "&&" in body or "--" in body:
        raise _unsupported(pattern, pattern[at : end + 1])
    return f"[{body}]", end + 1


def _unsupported(pattern: str, part: str) -> Failure:
    return Failure(f"{part!r} is not supported in the regular expression {pattern!r}")


STRING, BOOLEAN = pa.string(), pa.bool_()
# Python and Java may know different versions of Unicode. Scripts with case that later versions add
# lie below this character; old scripts may lie above.
_FIRST_WITHOUT_CASE = 0x1F000
# Unicode 16 gave these an upper case.
_LATE_UPPER_CASE = frozenset("\u019b\u0264\ua7d3\ua7d5")


def change_case(function: Callable[[str], str], ascii_kernel: Callable[..., Any]) -> Kernel:
    """`upper` or `lower`. Python's rules for single characters and for final sigma are Java's."""

    def one(text: str) -> str:
        for character in text:
            if character in _LATE_UPPER_CASE or (
                ord(character) < _FIRST_WITHOUT_CASE and unicodedata.category(character) == "Cn"
            ):
                raise Failure(f"Python and Java may know another upper case of {character!r}")
        return function(text)

    by_python = each(one, STRING)

    def kernel(values: pa.Array) -> pa.Array:
        if pc.all(pc.string_is_ascii(values)).as_py() is not False:
            return ascii_kernel(values)
        return by_python(values)

    return kernel


def length(values: pa.Array) -> pa.Array:
    in_bytes = pa.types.is_binary(values.type) or _is_ascii(values)
    count = pc.binary_length if in_bytes else pc.utf8_length
    return count(values).cast(pa.int32())


def _is_ascii(texts: pa.Array) -> bool:
    """Tell whether each byte is a character: a tenth of the time of Arrow's `string_is_ascii`."""
    if texts.type != STRING:
        return False
    _, offsets, data = texts.buffers()
    if offsets is None or data is None:
        return False  # there is no character
    ends = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    return bool(np.frombuffer(data, np.uint8)[ends[0] : ends[-1]].max(initial=0) < 0x80)


def concat(*values: pa.Array) -> pa.Array:
    if len(values) == 1:
        return values[0]
    between = pa.scalar(b"" if pa.types.is_binary(values[0].type) else "", values[0].type)
    return pc.binary_join_element_wise(*values, between, null_handling="emit_null")


# --- parts ------------------------------------------------------------------


def substring(text: str, position: int, count: int) -> str:
    """Spark's `substring`: it counts from 1, 0 means 1, and negative positions from the end."""
    start = position - 1 if position > 0 else len(text) + position if position < 0 else 0
    end = start + count
    return text[max(start, 0) : max(end, 0)] if count > 0 else ""


def literal_substring(position: int, count: int = 2**31 - 1) -> Kernel:
    """`substring` from a known place."""
    if position < 0:
        return each(lambda text: substring(text, position, count), STRING)
    start = max(position - 1, 0)
    stop = start + max(count, 0)
    return lambda values: pc.utf8_slice_codeunits(values, start=start, stop=stop)


def right(text: str, count: int) -> str:
    return text[max(len(text) - count, 0) :] if count > 0 else ""


def lpad(text: str, size: int, filling: str) -> str:
    return _padding(text, size, filling) + text[: max(size, 0)]


def rpad(text: str, size: int, filling: str) -> str:
    return text[: max(size, 0)] + _padding(text, size, filling)


_LONGEST_PADDING = 10**7


def _padding(text: str, size: int, filling: str) -> str:
    missing = size - len(text)
    if missing <= 0 or not filling:
        return ""
    if missing > _LONGEST_PADDING:
        raise Failure(f"{size} characters are too many for a padded string")
    return (filling * (missing // len(filling) + 1))[:missing]


# --- search -----------------------------------------------------------------


# RE2's time grows with the square of an expression's length, and then RE2 refuses it.
_LONGEST_REGEX = 10_000


def matching_like(values: pa.Array | pa.ChunkedArray, pieces: Sequence[str]) -> Any:
    """Which of the values match a LIKE pattern: decided by Arrow, except for very long patterns."""
    if sum(map(len, pieces)) <= _LONGEST_REGEX:
        return pc.match_substring_regex(values, pattern=rf"(?s)\A(?:{regex(pieces)})\z")
    found = (None if text is None else matches(pieces, text) for text in values.to_pylist())
    return pa.array(found, BOOLEAN)


def like_kernel(pattern: Bound, escape: str) -> Kernel:
    """LIKE with one escape character; a literal pattern is searched by Arrow."""
    found = literal(pattern)
    if found is not None and found.value is not None:
        pieces = _pieces(found.value, escape)
        return lambda values, _: matching_like(values, pieces)
    return each(lambda text, wanted: _matches(text, wanted, escape), pa.bool_())


def regex_kernel(pattern: Bound) -> Kernel:
    """RLIKE of a literal pattern: does it match anywhere?"""
    found = literal(pattern)
    if found is None or found.value is None:
        raise Failure("RLIKE takes a literal text")
    if len(found.value) > _LONGEST_REGEX:
        raise Failure(f"RLIKE takes at most {_LONGEST_REGEX:,} characters")
    expression = to_re2(found.value)

    def kernel(values: pa.Array, _: pa.Array) -> pa.Array:
        try:
            return pc.match_substring_regex(values, pattern=expression)
        except pa.ArrowInvalid as exc:
            raise Failure(f"the regular expression {found.value!r} is not supported") from exc

    return kernel


@lru_cache(maxsize=1024)
def _pieces(pattern: str, escape: str) -> Sequence[str]:
    try:
        return pieces(pattern, escape)
    except InvalidPredicateError as exc:
        raise Failure(exc.reason) from exc


def _matches(text: str, pattern: str, escape: str) -> bool:
    return matches(_pieces(pattern, escape), text)


# --- types and entries ------------------------------------------------------


def _case(kernel: Kernel) -> Builder:
    def build(context: Context, call: Call, given: list[Bound]) -> Bound:
        # Spark's optimiser replaces `lower(upper(s))` by `lower(s)`, which differs for 'ﬁ'.
        inner = call.arguments[0]
        while isinstance(inner, Call) and inner.name in ("upper", "ucase", "lower", "lcase"):
            inner = inner.arguments[0]
        value = TEXT.of(context, context.bind(inner))
        return strict(call, STRING, [value], kernel, can_fail=True)

    return build


def _length(context: Context, call: Call, given: list[Bound]) -> Bound:
    value = given[0] if given[0].type == pa.binary() else TEXT.of(context, given[0])
    return strict(call, pa.int32(), [value], length, can_fail=False)


def _concat(context: Context, call: Call, given: list[Bound]) -> Bound:
    if not given:
        return context.bind(Literal("", STRING))
    if all(value.type == pa.binary() for value in given):
        return strict(call, pa.binary(), given, concat, can_fail=False)
    values = [TEXT.of(context, value) for value in given]
    return strict(call, STRING, values, concat, can_fail=False)


def _substring(context: Context, call: Call, given: list[Bound]) -> Bound:
    if len(given) == 2:
        given = [*given, context.bind(Literal(2**31 - 1, pa.int32()))]
    values = [one.of(context, value) for one, value in zip((TEXT, INT, INT), given)]
    places = [found.value for one in given[1:] if (found := literal(one)) is not None]
    if len(places) < 2 or None in places:
        return strict(call, STRING, values, each(substring, STRING), can_fail=False)
    return strict(call, STRING, values[:1], literal_substring(*places), can_fail=False)


def _search(by_row: Callable[[Any, Any], bool], by_arrow: Callable[..., Any]) -> Builder:
    """A literal is searched by Arrow."""

    def build(context: Context, call: Call, given: list[Bound]) -> Bound:
        values = given
        if not all(value.type == pa.binary() for value in given):
            values = [TEXT.of(context, value) for value in given]
        found = literal(values[1])
        if found is None or not found.value:
            return strict(call, BOOLEAN, values, each(by_row, BOOLEAN), can_fail=False)
        kernel = partial(by_arrow, pattern=found.value)
        return strict(call, BOOLEAN, values, lambda texts, _: kernel(texts), can_fail=False)

    return build


def _like(context: Context, call: Call, given: list[Bound]) -> Bound:
    escape = call.arguments[2]
    if not isinstance(escape, Literal) or not isinstance(escape.value, str):
        raise Failure("ESCAPE takes one character")
    values = [TEXT.of(context, value) for value in given[:2]]
    kernel = like_kernel(values[1], escape.value)
    return strict(call, BOOLEAN, values, kernel, can_fail=literal(values[1]) is None)


def _ilike(context: Context, call: Call, given: list[Bound]) -> Bound:
    low = [Call("lower", (argument,)) for argument in call.arguments[:2]]
    return context.bind(Call("like", (*low, call.arguments[2])))


def _rlike(context: Context, call: Call, given: list[Bound]) -> Bound:
    values = [TEXT.of(context, value) for value in given]
    return strict(call, BOOLEAN, values, regex_kernel(values[1]), can_fail=False)


_PREFIX = "a range, where the part begins at the first character"
_ITS_COLUMN = "a range of a column, or of its first characters"
_UPPER = Function(1, 1, _case(change_case(str.upper, pc.ascii_upper)), "STRING", "STRING")
_LOWER = Function(1, 1, _case(change_case(str.lower, pc.ascii_lower)), "STRING", "STRING")
_LENGTH = Function(1, 1, _length, "STRING or BINARY", "INT")
_SUBSTRING = Function(2, 3, _substring, "STRING, INT, INT", "STRING", prunes=_PREFIX)
_RLIKE = Function(2, 2, _rlike, "STRING, STRING", "BOOLEAN")
_JOINED = "a range, where a column ends the text"
_SEARCHED = "two STRING or two BINARY"

FUNCTIONS: dict[str, Function] = {
    **dict.fromkeys(("upper", "ucase"), _UPPER),
    **dict.fromkeys(("lower", "lcase"), _LOWER),
    # Only spaces are removed, no other white space.
    "trim": function(partial(pc.utf8_trim, characters=" "), STRING, TEXT),
    "ltrim": function(partial(pc.utf8_ltrim, characters=" "), STRING, TEXT),
    "rtrim": function(partial(pc.utf8_rtrim, characters=" "), STRING, TEXT),
    **dict.fromkeys(("length", "len", "char_length", "character_length"), _LENGTH),
    "concat": Function(0, None, _concat, "STRING or BINARY", "STRING or BINARY", prunes=_JOINED),
    **dict.fromkeys(("substring", "substr"), _SUBSTRING),
    "left": by_row(lambda text, count: text[: max(count, 0)], STRING, TEXT, INT, prunes=_PREFIX),
    "right": by_row(right, STRING, TEXT, INT),
    "replace": by_row(
        lambda text, old, new: text.replace(old, new) if old else text,
        STRING,
        *(TEXT, TEXT, TEXT),
        defaults=("",),
    ),
    "lpad": by_row(lpad, STRING, TEXT, INT, TEXT, defaults=(" ",), can_fail=True),
    "rpad": by_row(rpad, STRING, TEXT, INT, TEXT, defaults=(" ",), can_fail=True),
    "startswith": Function(
        2,
        2,
        _search(lambda text, part: text.startswith(part), pc.starts_with),
        _SEARCHED,
        "BOOLEAN",
        prunes=_ITS_COLUMN,
    ),
    "endswith": Function(
        2, 2, _search(lambda text, part: text.endswith(part), pc.ends_with), _SEARCHED, "BOOLEAN"
    ),
    "contains": Function(
        2, 2, _search(lambda text, part: part in text, pc.match_substring), _SEARCHED, "BOOLEAN"
    ),
    "like": Function(3, 3, _like, "STRING, STRING, one character", "BOOLEAN", prunes=_ITS_COLUMN),
    "ilike": Function(3, 3, _ilike, "STRING, STRING, one character", "BOOLEAN"),
    **dict.fromkeys(("rlike", "regexp", "regexp_like"), _RLIKE),
}

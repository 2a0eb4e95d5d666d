"""Pure. Translates Java's regular expressions to RE2's syntax, as far as both mean the same.

Literal characters, `.`, classes of ASCII characters, groups, alternatives, quantifiers, `^` at
the start and `$` at the end are translated; everything else is refused. Whether a pattern
matches somewhere does not depend on which of several matches is found first.

Source: `java.util.regex.Pattern`; https://github.com/google/re2/wiki/Syntax.
"""

from __future__ import annotations

import re

from lakehouse_source.language.tree.failures import Failure

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

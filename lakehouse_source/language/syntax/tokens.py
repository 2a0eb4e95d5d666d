"""Pure. SQL texts as tokens, and the value of a token of text.

Source: Spark's `SqlBaseLexer.g4` and `SparkParserUtils.unescapeSQLString`.
"""

from __future__ import annotations

import re
from typing import NamedTuple, NoReturn

from lakehouse_source.errors import InvalidPredicateError
from lakehouse_source.language.tree.nodes import Refused

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

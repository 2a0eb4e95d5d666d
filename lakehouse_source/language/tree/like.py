"""Pure. LIKE patterns taken apart."""

from __future__ import annotations

from collections.abc import Sequence

from lakehouse_source.errors import InvalidPredicateError

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

"""How the name of a dataset is written: its namespace and its name, read, quoted and compared."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import TypeAlias

from lakehouse_source.arguments import text
from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.storage import RESERVED_FOLDER
from lakehouse_source.storage.uris import decoded as _decoded

DEFAULT_NAMESPACE = "default"
# A namespace, and a name in it.
QualifiedName: TypeAlias = tuple[str, str]
# "namespace.name" (`default` where there is no namespace), or both in a tuple.
NameLike: TypeAlias = "str | tuple[str, str] | Sequence[str]"


def parse_name(name: NameLike) -> QualifiedName:
    """The namespace and the name in what a user gave."""
    if isinstance(name, str):
        parts = split_name(name)
    else:
        parts = [*name] if isinstance(name, Sequence) else []
        parts = parts if all(isinstance(part, str) for part in parts) else []
    if len(parts) == 1:
        return DEFAULT_NAMESPACE, parts[0]
    if len(parts) == 2:
        return parts[0], parts[1]
    raise InvalidOptionError(
        option="name",
        value=name,
        reason="must be a name, or a namespace and a name. Put parts that hold a dot in "
        "backticks, or give a tuple.",
    )


def split_name(text: str) -> list[str]:
    """The parts of a dotted name; within backticks a dot is a letter, and two backticks are one."""
    parts: list[str] = []
    part, quoting, at = "", False, 0
    while at < len(text):
        letter = text[at]
        if letter == "`" and quoting and text[at + 1 : at + 2] == "`":
            part, at = part + "`", at + 1
        elif letter == "`":
            quoting = not quoting
        elif letter == "." and not quoting:
            parts, part = [*parts, part], ""
        else:
            part += letter
        at += 1
    if quoting:
        raise InvalidOptionError(option="name", value=text, reason="has an open backtick.")
    return [*parts, part]


def lookup(part: str) -> str:
    """A namespace or a name in the form in which it is compared."""
    return part.lower()


def quoted(name: QualifiedName) -> str:
    """A name as Spark's SQL writes it."""
    return ".".join(
        part if part.replace("_", "a").isalnum() else "`" + part.replace("`", "``") + "`"
        for part in name
    )


def check_name(name: QualifiedName) -> None:
    """Check both parts of a name.

    Raises:
        InvalidOptionError: a part is empty, too long or cannot be the name of a folder.
    """
    check_part(name[0], "namespace")
    check_part(name[1], "name")


def check_part(part: str, option: str) -> None:
    """Check a namespace, or a name in one; the error calls it `option`."""
    # A folder gets the name, which some stores and tools decode, even twice.
    decoded = _decoded(text(option, part))
    reason = None
    if not part.strip():
        reason = "is empty."
    elif len(part) > 255:
        reason = "is longer than 255 characters."
    elif any(letter in "/\\" or unicodedata.category(letter) == "Cc" for letter in decoded):
        reason = "holds a slash, a backslash or a control character."
    elif decoded.strip() in ("", ".", "..", RESERVED_FOLDER):
        reason = "cannot be the name of a folder."
    if reason is not None:
        raise InvalidOptionError(option=option, value=part, reason=reason)

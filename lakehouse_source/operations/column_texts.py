"""Verb. Columns as text: `name TYPE [NOT NULL]`, as in SQL."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pyarrow as pa

from lakehouse_source.errors import InvalidOptionError, InvalidPredicateError
from lakehouse_source.language.tokens import Literals, Token
from lakehouse_source.language.types import spark_name
from lakehouse_source.schema.fields import children, is_list_like
from lakehouse_source.schema.types import CARDS

_KNOWN = [
    *(one.sql[0].lower() for one in CARDS.values() if one.sql),
    *("decimal(p, s)", "array<type>", "map<type, type>", "struct<name: type, …>"),
]
_TOKEN = re.compile(r"\s*(`(?:[^`]|``)+`|[<>(),:]|[^\s`<>(),:]+|\S)")


def columns_of(texts: Iterable[str], option: str) -> pa.Schema:
    """The columns that texts name; a text may name several, with commas.

    Raises:
        InvalidOptionError: a text is no column, or its type is not known.
    """
    return pa.schema([one for text in texts for one in _Reader(text, option).columns("")])


def column_text(type_: pa.DataType) -> str:
    """A type as it is written behind a name; Arrow's name where SQL has none."""
    below = children(type_)
    if pa.types.is_struct(type_):
        return f"STRUCT<{', '.join(f'{one.name}: {column_text(one.type)}' for one in below)}>"
    if pa.types.is_map(type_) or is_list_like(type_):
        kind = "MAP" if pa.types.is_map(type_) else "ARRAY"
        return f"{kind}<{', '.join(column_text(one.type) for one in below)}>"
    return spark_name(type_)


# How `Literals` knows a word. A length of text would be lost.
_UPPER = {"TEXT": "STRING", "CHAR": "", "CHARACTER": "", "VARCHAR": ""}


class _Reader(Literals):
    def __init__(self, text: str, option: str) -> None:
        self._text, self._option, self._next = text, option, 0
        words = [*(match[1] for match in _TOKEN.finditer(text)), ""]
        uppers = [_UPPER.get(word.upper(), word.upper()) for word in words]
        self._tokens = [Token("word", word, 0, upper) for word, upper in zip(words, uppers)]

    def columns(self, end: str) -> list[pa.Field]:
        """Columns with commas up to a token, or up to the end of the text."""
        found = [self._column()]
        while self._take(","):
            found.append(self._column())
        if self._see().written != end:
            raise self._wrong()
        self._next += 1
        return found

    def _column(self) -> pa.Field:
        name = self._see().written
        if len(name) > 2 and name.startswith("`"):
            name = name[1:-1].replace("``", "`")
        elif not name or name in "`<>(),:":
            raise self._wrong()
        self._next += 1
        self._take(":")
        type_ = self._type()
        required = self._take("NOT")
        if required and not self._take("NULL"):
            raise self._wrong()
        return pa.field(name, type_, nullable=not required)

    def _type(self) -> pa.DataType:
        if self._see().written in ("", ",", ">", ")"):
            raise self._wrong()
        try:
            found = super()._type()
        except InvalidPredicateError:
            found = None
        if found is None:
            raise self._wrong(_KNOWN)
        return found

    def _nested_type(self) -> pa.DataType | None:
        name = self._step().upper
        if name == "INTERVAL" or not self._take("<"):
            return None
        if name == "STRUCT":
            return pa.struct(self.columns(">"))
        first = self._type()
        second = self._type() if name == "MAP" and self._take(",") else None
        if not self._take(">") or (name == "MAP") == (second is None):
            return None
        return pa.list_(first) if second is None else pa.map_(first, second)

    def _wrong(self, known: list[str] | None = None) -> InvalidOptionError:
        reason = "has a type that is not known here."
        if known is None:
            reason = "must be a name, a type and maybe NOT NULL."
        return InvalidOptionError(option=self._option, value=self._text, reason=reason, known=known)

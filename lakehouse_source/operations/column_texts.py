"""Verb. Columns as text: `name TYPE [NOT NULL]`, as in SQL."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pyarrow as pa

from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.language.tree.types import NAMED, spark_name
from lakehouse_source.schema.fields import children, is_list_like

# A length of text would be lost.
_TYPES = {
    **{
        name: type_ for name, type_ in NAMED.items() if name not in ("CHAR", "CHARACTER", "VARCHAR")
    },
    "TEXT": pa.string(),
}
_KNOWN = [
    *("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal(p, s)"),
    *("string", "binary", "date", "time", "timestamp", "timestamp_ntz"),
    *("array<type>", "map<type, type>", "struct<name: type, …>"),
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


class _Reader:
    def __init__(self, text: str, option: str) -> None:
        self._text, self._option = text, option
        self._left = [match[1] for match in _TOKEN.finditer(text)][::-1]

    def columns(self, end: str) -> list[pa.Field]:
        """Columns with commas up to a token, or up to the end of the text."""
        found = [self._column()]
        while self._take(","):
            found.append(self._column())
        if (self._left.pop() if self._left else "") != end:
            raise self._refused("must be a name, a type and maybe NOT NULL.")
        return found

    def _column(self) -> pa.Field:
        name = self._left.pop() if self._left else ""
        if len(name) > 2 and name.startswith("`"):
            name = name[1:-1].replace("``", "`")
        elif not name or name in "`<>(),:":
            raise self._refused("must be a name, a type and maybe NOT NULL.")
        self._take(":")
        type_ = self._type()
        required = self._take("NOT")
        if required and not self._take("NULL"):
            raise self._refused("must be a name, a type and maybe NOT NULL.")
        return pa.field(name, type_, nullable=not required)

    def _type(self) -> pa.DataType:
        name = (self._left.pop() if self._left else "").upper()
        if name in ("ARRAY", "MAP", "STRUCT") and self._take("<"):
            if name == "STRUCT":
                return pa.struct(self.columns(">"))
            first = self._type()
            second = self._type() if name == "MAP" and self._take(",") else None
            if self._take(">") and (name == "ARRAY" or second is not None):
                return pa.list_(first) if second is None else pa.map_(first, second)
        elif name in _TYPES:
            numbers = self._numbers()
            if not numbers:
                return _TYPES[name]
            precision, scale = [*numbers, 0][:2]
            if pa.types.is_decimal(_TYPES[name]) and scale <= precision and 0 < precision <= 38:
                return pa.decimal128(precision, scale)
        elif name in ("", ",", ">", ")"):
            raise self._refused("must be a name, a type and maybe NOT NULL.")
        raise self._refused("has a type that is not known here.", known=_KNOWN)

    def _numbers(self) -> list[int]:
        found = list[int]()
        if self._take("("):
            while self._left and re.fullmatch("[0-9]{1,2}", self._left[-1]) and len(found) < 2:
                found.append(int(self._left.pop()))
                self._take(",")
            if not found or not self._take(")"):
                raise self._refused("has a type that is not known here.", known=_KNOWN)
        return found

    def _take(self, token: str) -> bool:
        if self._left and self._left[-1].upper() == token:
            self._left.pop()
            return True
        return False

    def _refused(self, reason: str, known: list[str] | None = None) -> InvalidOptionError:
        return InvalidOptionError(option=self._option, value=self._text, reason=reason, known=known)

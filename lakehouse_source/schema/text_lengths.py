"""Pure. Enforces the lengths of texts in columns of type CHAR and VARCHAR, as Spark does.

All rows that are new pass here, whoever writes them: Spark itself checks lengths in batch writes
to tables of its catalog only, neither in streams nor in `save`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.errors import SchemaMismatchError
from lakehouse_source.schema.fields import (
    CHAR_VARCHAR,
    SPARK_METADATA,
    SPARK_TYPE,
    children,
    find_field,
    is_list_like,
)

_LENGTH = re.compile(r"(var)?char\((\d+)\)")


@dataclass(frozen=True, slots=True)
class _Text:
    """Texts of one type in a column. `path` has the names of the child fields that lead to them."""

    column: str
    path: tuple[str, ...]
    type: str
    most: int

    @property
    def is_char(self) -> bool:
        return self.type.startswith("char")

    def sql(self, text: str) -> str:
        """The form of a text in SQL, for texts that are not too long."""
        text = f"CAST({text} AS STRING)"
        return f"rpad({text}, {self.most})" if self.is_char else f"left({text}, {self.most})"


def fitted_texts(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows in the types of `schema`, with texts in the form of its columns.

    Trailing spaces of a text that is too long are cut, and CHAR is padded with spaces, also inside
    structs, lists and maps: conditions of statements compare stored texts.

    Raises:
        SchemaMismatchError: a text is too long.
    """
    for field in schema:
        if has_lengths(field) and field.name in table.schema.names:
            at = table.schema.get_field_index(field.name)
            table = table.set_column(at, table.field(at), fitted(table.column(at), field))
    return table


def fitted(values: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    """One column of `fitted_texts`."""
    for text in _texts(field):
        chunks = [_fitted_inside(chunk, text.path, text) for chunk in values.chunks]
        values = pa.chunked_array(chunks, values.type)
    return values


def fitted_sql(name: str, field: pa.Field) -> str:
    """SQL for the form that the texts of another column, `name`, have in a column `field`."""
    return next((text.sql(name) for text in _texts(field) if not text.path), name)


def has_lengths(field: pa.Field) -> bool:
    """Tell whether texts in a column have a length."""
    return next(_texts(field), None) is not None


def _texts(field: pa.Field) -> Iterator[_Text]:
    kept = json.loads((field.metadata or {}).get(SPARK_METADATA, b"{}")).get(CHAR_VARCHAR)
    yield from _text(field.name, field, (), kept)

    def inside(type_: pa.DataType, above: tuple[str, ...]) -> Iterator[_Text]:
        for child in children(type_):
            path = (*above, child.name)
            marked = json.loads((child.metadata or {}).get(SPARK_TYPE, b"null"))
            yield from _text(field.name, child, path, marked)
            yield from inside(child.type, path)

    yield from inside(field.type, ())


def _text(column: str, field: pa.Field, path: tuple[str, ...], name: object) -> Iterator[_Text]:
    found = _LENGTH.fullmatch(name) if isinstance(name, str) else None
    if found is not None and pa.types.is_string(field.type):
        yield _Text(column, path, found[0], int(found[2]))


def _fitted_values(values: pa.Array, text: _Text) -> pa.Array:
    most = text.most
    rest = pc.utf8_slice_codeunits(values, most)
    if pc.any(pc.not_equal(pc.utf8_trim(rest, " "), "")).as_py():
        raise _too_long(text)
    values = pc.utf8_slice_codeunits(values, 0, most)
    return pc.utf8_rpad(values, most) if text.is_char else values


def _fitted_inside(values: pa.Array, path: tuple[str, ...], text: _Text) -> pa.Array:
    """The values, with the texts at `path` in the form of their column."""
    type_ = values.type
    if not path:
        return _fitted_values(values, text)
    name, rest = path[0], path[1:]
    if values.offset:
        # The code below ignores the offset of buffers, so a slice needs buffers of its own.
        values = pa.concat_arrays([values, values.slice(0, 0)])
    own = 2  # the validity, and the offsets
    if pa.types.is_struct(type_):
        below = children(type_)
        found = find_field(name, below)
        assert found is not None
        inner = [values.field(i) for i in range(len(below))]
        at = below.index(found)
        inner[at] = _fitted_inside(inner[at], rest, text)
        own = 1
    elif pa.types.is_map(type_):
        pair = [values.keys, values.items]
        at = 0 if name == "key" else 1
        pair[at] = _fitted_inside(pair[at], rest, text)
        inner = [pa.StructArray.from_arrays(pair, fields=[type_.key_field, type_.item_field])]
    elif is_list_like(type_):
        inner = [_fitted_inside(values.values, rest, text)]
    else:
        return values
    return pa.Array.from_buffers(
        type_, len(values), values.buffers()[:own], values.null_count, 0, inner
    )


def _too_long(text: _Text) -> SchemaMismatchError:
    return SchemaMismatchError(
        column=text.column,
        reason=f"has the type {text.type}, and a text is longer",
        hint="Cut it, with left(...) for example, or make the column a STRING.",
    )

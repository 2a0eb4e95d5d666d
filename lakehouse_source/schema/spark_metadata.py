"""Pure. Spark's metadata of columns: comments, types unknown to Arrow, and lengths of texts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.errors import SchemaMismatchError
from lakehouse_source.schema.arrow_arrays import parts, with_parts, without_offset
from lakehouse_source.schema.fields import (
    CHAR_VARCHAR,
    SPARK_METADATA,
    SPARK_TYPE,
    children,
    find_field,
    with_metadata,
)
from lakehouse_source.schema.paths import walk


def comments(schema: pa.Schema) -> dict[str, str]:
    """The comments of columns and nested fields, by dotted path."""
    found = {}
    for path, field in walk(schema):
        document = json.loads((field.metadata or {}).get(SPARK_METADATA, b"{}"))
        if "comment" in document:
            found[".".join(path)] = str(document["comment"])
    return found


def commented(field: pa.Field, text: str | None) -> pa.Field:
    """A field with a comment; None removes the comment."""
    document = json.loads((field.metadata or {}).get(SPARK_METADATA, b"{}"))
    document.pop("comment", None)
    if text is not None:
        document["comment"] = text
    if document:
        return with_metadata(field, {SPARK_METADATA: json.dumps(document).encode()})
    kept = {k: v for k, v in (field.metadata or {}).items() if k != SPARK_METADATA}
    return field.with_metadata(kept)


def typed(field: pa.Field, metadata: Mapping[bytes, bytes]) -> pa.Field:
    """A field whose Spark type `metadata` gives, taken from a field made from Spark's type.

    Without such metadata, the Arrow type gives the Spark type.
    """
    kept = {key: value for key, value in (field.metadata or {}).items() if key != SPARK_TYPE}
    if SPARK_TYPE in metadata:
        kept[SPARK_TYPE] = metadata[SPARK_TYPE]
    document = json.loads(kept.pop(SPARK_METADATA, b"{}"))
    document.pop(CHAR_VARCHAR, None)
    document |= json.loads(metadata.get(SPARK_METADATA, b"{}"))
    if document:
        kept[SPARK_METADATA] = json.dumps(document).encode()
    return field.with_metadata(kept)


# --- Enforces the lengths of texts in columns of type CHAR and VARCHAR, as Spark does.
#
# All rows that are new pass here, whoever writes them: Spark itself checks lengths in batch writes
# to tables of its catalog only, neither in streams nor in `save`.


_LENGTH = re.compile(r"(var)?char\((\d+)\)")


@dataclass(frozen=True, slots=True)
class _Text:
    """Texts of one type in a column.

    `path` leads to them: names of fields of structs, and places in `children` of other types.
    """

    column: str
    path: tuple[str | int, ...]
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

    def inside(type_: pa.DataType, above: tuple[str | int, ...]) -> Iterator[_Text]:
        for place, child in enumerate(children(type_)):
            path = (*above, child.name if pa.types.is_struct(type_) else place)
            marked = json.loads((child.metadata or {}).get(SPARK_TYPE, b"null"))
            yield from _text(field.name, child, path, marked)
            yield from inside(child.type, path)

    yield from inside(field.type, ())


def _text(
    column: str, field: pa.Field, path: tuple[str | int, ...], name: object
) -> Iterator[_Text]:
    found = _LENGTH.fullmatch(name) if isinstance(name, str) else None
    if found is not None and pa.types.is_string(field.type):
        yield _Text(column, path, found[0], int(found[2]))


def _fitted_values(values: pa.Array, text: _Text) -> pa.Array:
    most = text.most
    rest = pc.utf8_slice_codeunits(values, most)
    if pc.any(pc.not_equal(pc.utf8_trim(rest, " "), "")).as_py():
        raise SchemaMismatchError(
            column=text.column,
            reason=f"has the type {text.type}, and a text is longer",
            hint="Cut it, with left(...) for example, or make the column a STRING.",
        )
    values = pc.utf8_slice_codeunits(values, 0, most)
    return pc.utf8_rpad(values, most) if text.is_char else values


def _fitted_inside(values: pa.Array, path: tuple[str | int, ...], text: _Text) -> pa.Array:
    """The values, with the texts at `path` in the form of their column."""
    if not path:
        return _fitted_values(values, text)
    values = without_offset(values)
    inner = parts(values)
    at, below = path[0], children(values.type)
    if isinstance(at, str):
        at = below.index(find_field(at, below))
    inner[at] = _fitted_inside(inner[at], path[1:], text)
    return with_parts(values, values.type, inner)

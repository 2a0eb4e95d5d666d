"""Door. Enforces the lengths of texts in columns of type CHAR and VARCHAR, as Spark does.

Spark checks lengths in batch writes to tables of its catalog, but neither in streams nor in `save`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import CharType, VarcharType

from lakehouse_source.errors import SchemaMismatchError
from lakehouse_source.schema.fields import children, find_field, is_list_like
from lakehouse_source.spark.types.spark_types import text_types


@dataclass(frozen=True, slots=True)
class _Text:
    """Texts of one type in a column. `path` has the names of the child fields that lead to them."""

    column: str
    path: tuple[str, ...]
    type: CharType | VarcharType


def fitted_texts(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The batches with texts in the form of the dataset's columns.

    Trailing spaces of a text that is too long are cut, and CHAR is padded with spaces, also inside
    structs, lists and maps: conditions of statements compare stored texts.

    Raises:
        SchemaMismatchError: a text is too long.
    """
    texts = [
        _Text(field.name, path, type_) for field in schema for path, type_ in text_types(field)
    ]
    return (_fitted(batch, texts) for batch in batches) if texts else batches


def _fitted(batch: pa.RecordBatch, texts: list[_Text]) -> pa.RecordBatch:
    for text in texts:
        given = find_field(text.column, batch.schema)
        if given is None:
            continue
        at = batch.schema.get_field_index(given.name)
        batch = batch.set_column(at, given, _fitted_inside(batch.column(at), text.path, text))
    return batch


def _fitted_values(values: pa.Array, text: _Text) -> pa.Array:
    most = text.type.length
    rest = pc.utf8_slice_codeunits(values, most)
    if pc.any(pc.not_equal(pc.utf8_trim(rest, " "), "")).as_py():
        raise _too_long(text)
    values = pc.utf8_slice_codeunits(values, 0, most)
    return pc.utf8_rpad(values, most) if isinstance(text.type, CharType) else values


def _fitted_inside(values: pa.Array, path: tuple[str, ...], text: _Text) -> pa.Array:
    """The values, with the texts at `path` in the form of their column."""
    type_ = values.type
    if not path:
        return _fitted_values(values, text) if _is_text(type_) else values
    name, rest = path[0], path[1:]
    if values.offset:
        # The code below ignores the offset of buffers, so a slice needs buffers of its own.
        values = pa.concat_arrays([values, values.slice(0, 0)])
    own = 2  # the validity, and the offsets
    if pa.types.is_struct(type_):
        below = children(type_)
        found = find_field(name, below)
        if found is None:
            return values
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


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def _too_long(text: _Text) -> SchemaMismatchError:
    return SchemaMismatchError(
        column=text.column,
        reason=f"has the type {text.type.simpleString()}, and a text is longer",
        hint="Cut it in the query, with left(...), or make the column a STRING.",
    )

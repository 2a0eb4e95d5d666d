"""Door. Lengths of texts in columns of type CHAR and VARCHAR, as Spark keeps them.

Spark checks them in batch writes to tables of its catalog, and neither in streams nor in `save`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import CharType, VarcharType

from lakehouse_source.errors import SchemaMismatchError
from lakehouse_source.schema.fields import children, find_field
from lakehouse_source.spark.types import text_types


@dataclass(frozen=True, slots=True)
class _Text:
    """Texts of one type in a column. `path` leads through the names of its child fields to them."""

    column: str
    path: tuple[str, ...]
    type: CharType | VarcharType


def fitted_texts(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The batches with texts as the columns of a dataset have them.

    Spaces at the end of what is too long are cut off, and CHAR is filled up with spaces. Inside
    of structs, lists and maps texts are only checked: readers fill CHAR up too.

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
        values = batch.column(at)
        if text.path:
            _check_inside(values, text)
        elif _is_text(values.type):
            fitted = _fitted_values(values, text)
            batch = batch.set_column(at, given, fitted)
    return batch


def _fitted_values(values: pa.Array, text: _Text) -> pa.Array:
    most = text.type.length
    rest = pc.utf8_slice_codeunits(values, most)
    if pc.any(pc.not_equal(pc.utf8_trim(rest, " "), "")).as_py():
        raise _too_long(text)
    values = pc.utf8_slice_codeunits(values, 0, most)
    return pc.utf8_rpad(values, most) if isinstance(text.type, CharType) else values


def _check_inside(values: pa.Array, text: _Text) -> None:
    for name in text.path:
        below = children(values.type)
        if pa.types.is_struct(values.type):
            found = find_field(name, below)
            if found is None:
                return
            values = values.flatten()[below.index(found)]
        elif pa.types.is_map(values.type):
            values = values.keys if name == "key" else values.items
        elif below:
            values = values.flatten()
        else:
            return
    if (
        _is_text(values.type)
        and pc.any(pc.greater(pc.utf8_length(values), text.type.length)).as_py()
    ):
        raise _too_long(text)


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def _too_long(text: _Text) -> SchemaMismatchError:
    return SchemaMismatchError(
        column=text.column,
        reason=f"has the type {text.type.simpleString()}, and a text is longer",
        hint="Cut it in the query, with left(...), or make the column a STRING.",
    )

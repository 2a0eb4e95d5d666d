"""Pure. VARIANT as files hold it, in columns and inside of structs, lists and maps.

Arrays are rebuilt from their buffers: only the values of VARIANT are copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from lakehouse_source.schema.arrow_arrays import parts, with_parts, without_offset
from lakehouse_source.schema.fields import (
    children,
    is_list_like,
    is_nested,
    map_children,
    rebuild,
)
from lakehouse_source.schema.variant import (
    STORAGE,
    VARIANT,
    Tree,
    holds_variant,
    is_variant,
    shredded_type,
    struct_like,
)

# The source field from which a target field is read (`schema/align.py`).
Match = Callable[[pa.Field, Sequence[pa.Field]], "pa.Field | None"]


def has_variant(fields: Iterable[pa.Field]) -> bool:
    """Tell whether one of the fields, or one inside of them, is VARIANT."""
    for field in fields:  # a loop: each file and row group asks for each column
        type_ = field.type
        if is_variant(type_) or (type_.num_fields > 0 and has_variant(children(type_))):
            return True
    return False


def variant_paths(fields: Iterable[pa.Field]) -> Iterator[tuple[str, ...]]:
    """Where a Parquet file has its groups of VARIANT: the names from the column to the group."""
    for field in fields:
        if is_variant(field.type):
            yield (field.name,)
            continue
        for child, names in zip(children(field.type), names_below(field.type)):
            for path in variant_paths([child]):
                yield (field.name, *names, *path[1:])


def names_below(type_: pa.DataType) -> list[tuple[str, ...]]:
    """The names that Parquet has between a field and each of its child fields, and of these."""
    if pa.types.is_map(type_):
        return [("key_value", "key"), ("key_value", "value")]
    if is_list_like(type_):
        return [("list", "element")]
    return [(one.name,) for one in children(type_)]


def stored_field(field: pa.Field, tree: Tree | None = None) -> pa.Field:
    """The field as files hold it, with the paths of a tree as columns."""
    if is_variant(field.type):
        return field.with_type(STORAGE if tree is None else shredded_type(tree))
    return field.with_type(map_children(field.type, stored_field))


def stored(schema: pa.Schema, trees: Mapping[str, Tree] = {}) -> pa.Schema:
    """The columns as files hold them, which is what Arrow's Parquet reader and writer are given."""
    if not has_variant(schema):
        return schema
    fields = [stored_field(field, trees.get(field.name)) for field in schema]
    return pa.schema(fields, schema.metadata)


def stored_table(table: pa.Table, trees: Mapping[str, Tree] = {}) -> pa.Table:
    """The rows as files hold them.

    Raises:
        CorruptDatasetError: bytes of a column that is shredded are no values of VARIANT.
    """
    for at, field in enumerate(table.schema):
        tree = trees.get(field.name)
        if tree is not None:
            from lakehouse_source.schema.variant_shredding import shredded  # imports numpy

            field = stored_field(field, tree)
            chunks = [shredded(chunk.storage, tree) for chunk in table.column(at).chunks]
            table = table.set_column(at, field, pa.chunked_array(chunks, field.type))
        elif has_variant([field]):
            table = _with_column(table, at, stored_field(field), _as_struct)
    return table


def as_json(table: pa.Table) -> pa.Table:
    """The rows with JSON texts for VARIANT, for who has no such type."""
    for at, field in enumerate(table.schema):
        if has_variant([field]):
            table = _with_column(table, at, _with_texts(field), _as_text)
    return table


# Arrow's own type of VARIANT, of which PyArrow 26 has no class: DuckDB takes and gives it.
_MARK = {b"ARROW:extension:name": b"arrow.parquet.variant", b"ARROW:extension:metadata": b""}


def as_arrows(table: pa.Table) -> pa.Table:
    """The rows with Arrow's own type for VARIANT."""
    for at, field in enumerate(table.schema):
        if has_variant([field]):
            table = _with_column(table, at, _marked(field), _as_struct)
    return table


def from_arrows(table: pa.Table) -> pa.Table:
    """The rows with VARIANT for Arrow's own type.

    Raises:
        CorruptDatasetError: a value lacks its bytes.
    """
    for at, field in enumerate(table.schema):
        known = _unmarked(field)
        if has_variant([known]):
            column, known = with_variants(table.column(at), field, known, _of_name)
            table = table.set_column(at, known, column)
    return table


def _marked(field: pa.Field) -> pa.Field:
    if is_variant(field.type):
        return field.with_type(STORAGE).with_metadata({**(field.metadata or {}), **_MARK})
    return field.with_type(map_children(field.type, _marked))


def _unmarked(field: pa.Field) -> pa.Field:
    kept = {name: one for name, one in (field.metadata or {}).items() if name not in _MARK}
    if (field.metadata or {}).get(b"ARROW:extension:name") == _MARK[b"ARROW:extension:name"]:
        return field.with_type(VARIANT).with_metadata(kept)
    return field.with_type(map_children(field.type, _unmarked))


def _of_name(target: pa.Field, sources: Sequence[pa.Field]) -> pa.Field | None:
    return next((one for one in sources if one.name == target.name), None)


def _with_column(
    table: pa.Table, at: int, field: pa.Field, change: Callable[[pa.Array], pa.Array]
) -> pa.Table:
    """The table with a column under another type, its values of VARIANT changed."""
    chunks = [_without_variants(chunk, field.type, change) for chunk in table.column(at).chunks]
    return table.set_column(at, field, pa.chunked_array(chunks, field.type))


def _with_texts(field: pa.Field) -> pa.Field:
    if is_variant(field.type):
        return field.with_type(pa.string())
    return field.with_type(map_children(field.type, _with_texts))


def _as_text(array: pa.Array) -> pa.Array:
    return pa.array([one.to_json() for one in array], pa.string())


def _as_struct(array: pa.Array) -> pa.Array:
    # Parquet's writer refuses a NULL in a required field, under a NULL struct too.
    return struct_like(array.storage.flatten(), array) if array.null_count else array.storage


def _without_variants(
    array: pa.Array, type_: pa.DataType, change: Callable[[pa.Array], pa.Array]
) -> pa.Array:
    if is_variant(array.type):
        return change(array)
    if not has_variant(children(array.type)):
        return array
    array = without_offset(array)
    below = zip(parts(array), children(type_))
    inner = [_without_variants(one, field.type, change) for one, field in below]
    return with_parts(array, type_, inner)


def with_variants(
    column: pa.ChunkedArray, source: pa.Field, target: pa.Field, match: Match
) -> tuple[pa.ChunkedArray, pa.Field]:
    """The column and its field, with VARIANT for the structs that hold it for the target.

    Raises:
        SchemaMismatchError: a value lacks its bytes.
        CorruptDatasetError: the parts of a shredded value are no values of VARIANT.
    """
    if not is_variant(target.type) and not has_variant([source]) and not has_variant([target]):
        return column, source
    chunks = column.chunks or [pa.nulls(0, column.type)]
    done = [_wrapped(chunk, source, target, match) for chunk in chunks]
    return pa.chunked_array([array for array, _ in done]), done[0][1]


def _wrapped(
    array: pa.Array, source: pa.Field, target: pa.Field | None, match: Match
) -> tuple[pa.Array, pa.Field]:
    if is_variant(source.type) or (target is not None and is_variant(target.type)):
        if holds_variant(array.type):
            from lakehouse_source.schema.variant_shredding import from_struct  # imports numpy

            made = from_struct(pa.chunked_array([array]), source.name)
            array = array if made is None else made.chunk(0)
            return array, source.with_type(array.type)
        return array, source
    below = children(source.type)
    if not below or not is_nested(array.type):
        return array, source
    wanted = {} if target is None else _pairs(below, source.type, target.type, match)
    array = without_offset(array)
    done = [
        _wrapped(one, field, wanted.get(field.name), match)
        for one, field in zip(parts(array), below)
    ]
    if all(made is one for (made, _), one in zip(done, parts(array))):
        return array, source
    inner = [made for made, _ in done]
    fields = [field.with_type(one.type) for field, one in zip(children(array.type), inner)]
    named = rebuild(source.type, [field for _, field in done])
    return with_parts(array, rebuild(array.type, fields), inner), source.with_type(named)


def _pairs(
    below: list[pa.Field], source: pa.DataType, target: pa.DataType, match: Match
) -> dict[str, pa.Field]:
    """The target fields of the fields of a source."""
    if pa.types.is_struct(source) and pa.types.is_struct(target):
        pairs = [(match(one, below), one) for one in children(target)]
        return {found.name: one for found, one in pairs if found is not None}
    return {one.name: other for one, other in zip(below, children(target))}

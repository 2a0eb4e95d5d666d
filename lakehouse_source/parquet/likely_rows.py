"""Edge. The rows that may satisfy a condition on paths of VARIANT, by the columns that a file has.

Values that are shredded are put together before a condition is evaluated, which takes far longer
than to compare a column. What the condition implies of the column rules most rows out first.
"""

from __future__ import annotations

from typing import get_args

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.language.bounds.bound import (
    BoundAnd,
    BoundConstant,
    BoundExpression,
    BoundLeaf,
    BoundNode,
    BoundPredicate,
    parts,
)
from lakehouse_source.language.row_filter import true_by_ids
from lakehouse_source.parquet.checked_footer import CheckedFooter
from lakehouse_source.schema.variant import TYPED_VALUE, VALUE
from lakehouse_source.schema.variant_paths import KINDS, TypedPath, typed_paths

_TESTS = get_args(BoundLeaf)
# Fewer rows are put together sooner than they are looked at.
_FEWEST = 500
# More likely rows than one in so many are not picked out of the others.
_SHARE = 8


class LikelyRows:
    """The likely rows of one file. `file_schema` names its columns as its writer recorded them."""

    def __init__(
        self, predicate: BoundPredicate, footer: CheckedFooter, file_schema: pa.Schema
    ) -> None:
        self._paths: list[tuple[str, TypedPath]] = []
        for field in file_schema:
            if field.name in footer.names:
                stored = footer.arrow_schema.field(field.name).type
                self._paths += ((field.name, one) for one in typed_paths(field, stored, 0))
        known = {id for _, path in self._paths for id in path.ids}
        root = predicate.root
        self._terms = [
            term.implied
            for term in (root.terms if isinstance(root, BoundAnd) else (root,))
            if isinstance(term, BoundExpression) and _is_about(term.implied, known)
        ]
        asked = {id for term in self._terms for id in BoundPredicate(term).column_ids}
        self._paths = [one for one in self._paths if not asked.isdisjoint(one[1].ids)]

    def among(self, stored: pa.Table) -> pa.Array | None:
        """True for each row that may match; None: it is not known, or they are too many.

        The rows with the least and the greatest value at a path are among them: if a cast to a
        smaller type fails, it fails there, as it does where all rows are evaluated.
        """
        if not self._terms or stored.num_rows < _FEWEST:
            return None
        columns: dict[int, pa.Array] = {}
        others: list[pa.Array] = []
        ends: list[int] = []
        for name, path in self._paths:
            found = _values(stored, name, path)
            if found is None:
                return None
            value, typed = found
            others.append(value.is_valid())
            columns |= {
                id: pa.nulls(len(typed), type_) for id, type_ in zip(path.ids, KINDS.values())
            }
            columns[path.id] = typed
            if pa.types.is_primitive(typed.type) or pa.types.is_decimal(typed.type):
                least = pc.min_max(typed)
                ends += (pc.index(typed, least[end]).as_py() for end in ("min", "max"))
        likely = None
        for term in self._terms:
            one = true_by_ids(term, columns, stored.num_rows)
            likely = one if likely is None else pc.and_(likely, one)
        for one in others:
            likely = pc.or_(likely, one)
        rows = pa.arange(0, stored.num_rows)
        likely = pc.or_(likely, pc.is_in(rows, value_set=pa.array(ends, rows.type)))
        return likely if likely.true_count * _SHARE <= stored.num_rows else None


def placed(mask: pa.BooleanArray | pa.ChunkedArray, likely: pa.BooleanArray) -> pa.BooleanArray:
    """What `mask` says of the likely rows, for all rows; false for the others."""
    found = mask.combine_chunks() if isinstance(mask, pa.ChunkedArray) else mask
    return pc.replace_with_mask(likely, likely, found)


def _is_about(implied: BoundNode, ids: set[int]) -> bool:
    """Tell whether a condition is about columns with some ids, and about nothing else."""
    tests = [one for one in parts(implied) if not isinstance(one, BoundConstant)]
    return bool(tests) and all(isinstance(one, _TESTS) and one.column.id in ids for one in tests)


def _values(stored: pa.Table, name: str, path: TypedPath) -> tuple[pa.Array, pa.Array] | None:
    """What is at a path: values of other types, and those of the path's own type."""
    if name not in stored.column_names:
        return None
    found = stored.column(name)
    for step in path.path:
        for part in (TYPED_VALUE, step):
            if not pa.types.is_struct(found.type) or found.type.get_field_index(part) < 0:
                return None
            found = pc.struct_field(found, [part])
    value, typed = (
        pc.struct_field(found, [part]).combine_chunks() for part in (VALUE, TYPED_VALUE)
    )
    try:
        return value, typed.cast(path.indexed_type)
    except pa.ArrowInvalid:
        return None  # a decimal that the index has no room for

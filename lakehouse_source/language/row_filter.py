"""Pure. Decides for each row of a table in memory whether it satisfies a bound condition.

Conditions have Spark's meaning; an Arrow expression has Arrow's. This is only for tables and
batches: with a filter in a scan of files, PyArrow would prune row groups, which loses rows with
NaN.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.language.bounds.arrow_expressions import on_rows
from lakehouse_source.language.bounds.bound import (
    BoundAnd,
    BoundColumn,
    BoundColumns,
    BoundCompare,
    BoundConstant,
    BoundExpression,
    BoundIn,
    BoundIsNull,
    BoundJoined,
    BoundLeaf,
    BoundNode,
    BoundNot,
    BoundPredicate,
    BoundText,
    IfPresent,
    conjunction,
)
from lakehouse_source.language.expression import SqlRows
from lakehouse_source.language.functions.comparison import COMPARISONS
from lakehouse_source.language.functions.text import matching_like
from lakehouse_source.model import Ordinal
from lakehouse_source.schema.ordinal import to_scalar

# Arrays, chunked arrays and scalars: the kernels take all of them.
Values: TypeAlias = Any

_TEXT = {"prefix": pc.starts_with, "suffix": pc.ends_with, "contains": pc.match_substring}
# An IN of at most this many values compares with each value.
_FEW_VALUES = 4
# To compare fewer rows with each of few values takes longer than to look them up.
_FEWEST_ROWS = 16_384


def matching_mask(
    batch: pa.RecordBatch | pa.Table, predicate: BoundPredicate
) -> pa.BooleanArray | pa.ChunkedArray:
    """True for each row that matches and false for the others; never null.

    Raises:
        InvalidPredicateError: an Arrow expression cannot be evaluated on a row.
    """
    arrays: dict[tuple[str, ...], Values] = {}

    def column_of(column: BoundColumn) -> Values:
        found = arrays.get(column.path)
        if found is None:
            found = batch.column(column.path[0])
            for name in column.path[1:]:
                found = pc.struct_field(found, pc.field(name))
            arrays[column.path] = found
        return found

    root, later = _in_turn(predicate.root)
    mask = _Builder(batch, column_of).build(root)
    if isinstance(mask, pa.Scalar):
        mask = pa.repeat(pa.scalar(mask.as_py() is True), batch.num_rows)
    mask = pc.fill_null(mask, False)
    for term in later:
        mask = _where_true(mask, term, batch)
    return mask


def true_by_ids(node: BoundNode, columns: Mapping[int, Values], count: int) -> pa.BooleanArray:
    """True for each of `count` rows on which a condition is TRUE, false for the others.

    `columns` are by the ids of their fields. The condition has no part that rows decide.
    """
    found = _Builder(pa.table({}), lambda column: columns[column.id]).build(node)
    if isinstance(found, pa.Scalar):
        found = pa.repeat(found, count)
    return pc.fill_null(found, False)


def _in_turn(root: BoundNode) -> tuple[BoundNode, list[SqlRows]]:
    """The terms of an AND for every row, and the terms for the rows that are left.

    The latter may have no value, as in a division by zero, on a row that the former rule out.
    """
    first: list[BoundNode] = []
    later: list[SqlRows] = []
    for term in root.terms if isinstance(root, BoundAnd) else (root,):
        if isinstance(term, BoundExpression) and isinstance(term.expression, SqlRows):
            if not term.expression.is_true:
                later.append(term.expression)
        else:
            first.append(term)
    return conjunction(first), later


def _where_true(
    mask: pa.BooleanArray | pa.ChunkedArray, term: SqlRows, batch: pa.RecordBatch | pa.Table
) -> pa.BooleanArray:
    """The mask with false where `term` is not TRUE; it is evaluated only where the mask is true."""
    if isinstance(mask, pa.ChunkedArray):
        mask = mask.combine_chunks()
    rows = _part(batch, term.fields.names)
    if mask.true_count == len(mask):
        return term.matching(rows).combine_chunks()
    return pc.replace_with_mask(mask, mask, term.matching(rows.filter(mask)).combine_chunks())


def _part(batch: pa.RecordBatch | pa.Table, names: Sequence[str]) -> pa.Table:
    part = batch.select(list(names))
    return pa.Table.from_batches([part]) if isinstance(part, pa.RecordBatch) else part


def _computed(expression: pc.Expression | SqlRows, rows: pa.Table) -> pa.ChunkedArray:
    if isinstance(expression, SqlRows):
        return expression.values(rows)
    return on_rows(expression, rows)


class _Builder:
    """Computes a condition with Arrow's kernels."""

    def __init__(
        self, batch: pa.RecordBatch | pa.Table, column_of: Callable[[BoundColumn], Values]
    ) -> None:
        self._batch = batch
        self._column_of = column_of

    def build(self, node: BoundNode) -> Values:
        if isinstance(node, BoundJoined):
            combine = pc.and_kleene if isinstance(node, BoundAnd) else pc.or_kleene
            return _balanced(combine, [self.build(term) for term in node.terms])
        if isinstance(node, BoundNot):
            return pc.invert(self.build(node.term))
        if isinstance(node, BoundConstant):
            return _truth(node.value)
        if isinstance(node, BoundExpression):
            if isinstance(node.expression, SqlRows) and node.expression.is_true:
                return _truth(True)
            names = dict.fromkeys(column.path[0] for column in node.columns)
            return _computed(node.expression, _part(self._batch, list(names)))
        assert not isinstance(node, BoundColumns)  # implied conditions do not decide rows
        return self._leaf(node)

    def _leaf(self, node: BoundLeaf) -> Values:
        column = self._comparable(node.column)
        if isinstance(node, BoundIsNull):
            return pc.is_null(column)
        if isinstance(node, IfPresent):
            return pc.if_else(pc.is_valid(column), _truth(node.truth), _truth(None))
        if isinstance(node, BoundCompare):
            if node.op != "<=>":
                return self._compare(node, column, node.op)
            return pc.and_kleene(pc.is_valid(column), self._compare(node, column, "="))
        if isinstance(node, BoundIn):
            return self._in(node, column)
        if isinstance(node, BoundText):
            return _TEXT[node.form](column, pattern=node.text)
        return matching_like(column, node.pieces)

    def _comparable(self, column: BoundColumn) -> Values:
        """The column in a type that the kernels compare."""
        found = self._column_of(column)
        stand_in = _stand_in(column.type)
        return found if stand_in is column.type else found.cast(stand_in)

    def _compare(self, node: BoundCompare, column: Values, op: str) -> Values:
        if node.value != node.value:  # NaN
            is_nan = pc.is_nan(column)
            return is_nan if op == "=" else pc.invert(is_nan)
        scalar = to_scalar(node.value, _stand_in(node.column.type))
        result = COMPARISONS[op](column, scalar)
        if node.column.is_float and op in (">", ">="):
            return pc.or_kleene(result, pc.is_nan(column))
        return result

    def _in(self, node: BoundIn, column: Values) -> Values:
        found = _among(node, node.values, column)
        if node.has_nan:
            found = pc.or_kleene(found, pc.is_nan(column))
        missed = _truth(None if node.has_null else False)
        # The hash table gives false for NULL.
        if node.has_null:
            return pc.if_else(pc.and_kleene(pc.is_valid(column), found), _truth(True), missed)
        return pc.if_else(pc.is_valid(column), found, _truth(None))


def _among(node: BoundIn, values: tuple[Ordinal, ...], column: Values) -> Values:
    """True where a column has one of some values of an IN."""
    near = _values_near(node, values, column)
    type_ = _stand_in(node.column.type)
    if not near:
        return pa.repeat(_truth(False), len(column))
    if len(near) <= _FEW_VALUES:
        # Comparing with a few values is many times faster than looking up a hash table.
        return _balanced(pc.or_, [pc.equal(column, to_scalar(one, type_)) for one in near])
    half = len(column) // 2
    are_sparse = len(near) * _FEWEST_ROWS <= _FEW_VALUES * len(column)
    if len(near) < len(values) and are_sparse:
        # Neighbouring rows have neighbouring values: the halves may need fewer.
        halves = [_among(node, near, part) for part in (column[:half], column[half:])]
        return pa.chunked_array([one for part in halves for one in _chunks(part)])
    both_zeros = node.column.is_float and 0.0 in near
    return pc.is_in(column, value_set=_value_set(near, type_, both_zeros))


def _values_near(node: BoundIn, values: tuple[Ordinal, ...], column: Values) -> tuple[Ordinal, ...]:
    """The values that an integer column can hold."""
    if not pa.types.is_integer(node.column.type) or len(values) <= _FEW_VALUES:
        return values
    least, most = pc.min_max(column).values()
    if not least.is_valid:
        return ()
    first = bisect_left(values, least.as_py())
    return values[first : bisect_right(values, most.as_py())]


def _chunks(values: pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    return values.chunks if isinstance(values, pa.ChunkedArray) else [values]


def _truth(value: bool | None) -> pa.BooleanScalar:
    return pa.scalar(value, pa.bool_())


def _stand_in(type_: pa.DataType) -> pa.DataType:
    """The type in which values are compared: kernels lack half floats and fixed-size binaries."""
    if pa.types.is_float16(type_):
        return pa.float32()
    return pa.binary() if pa.types.is_fixed_size_binary(type_) else type_


def _balanced(combine: Callable[[Values, Values], Values], terms: list[Values]) -> Values:
    """Terms combined pairwise: thousands of them one after another would nest too deeply."""
    while len(terms) > 1:
        pairs = [combine(a, b) for a, b in zip(terms[::2], terms[1::2])]
        terms = pairs + terms[len(pairs) * 2 :]
    return terms[0]


@lru_cache(maxsize=64)
def _value_set(values: tuple[Ordinal, ...], type_: pa.DataType, both_zeros: bool) -> pa.Array:
    """The values of an IN, cached: every row group needs them, and making them takes long."""
    scalars = [to_scalar(value, type_) for value in values]
    if both_zeros:
        scalars.append(pa.scalar(-0.0, type_))
    return pa.array(scalars, type_)

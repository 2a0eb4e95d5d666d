"""Pure. The source of a MERGE in memory, and which of its rows match rows of the target."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.errors import InvalidExpressionError, InvalidPredicateError
from lakehouse_source.language import (
    BoundValue,
    Equality,
    Expression,
    Name,
    PredicateSet,
    Scope,
    all_of,
    any_of,
    compare,
    conjuncts,
    constant,
    equality,
    is_in,
    is_null,
    mask,
    only_of,
    require_condition,
)
from lakehouse_source.language.functions.rows import flat
from lakehouse_source.schema.fields import find_field
from lakehouse_source.schema.spark_metadata import has_lengths
from lakehouse_source.write.statements.row_statement import as_predicate

# How many pairs of rows are compared at a time, if there is no equality to join by.
_PAIRS_AT_ONCE = 1 << 20
# Up to this many target rows are looked up one by one, in a source of up to this many rows.
_FEW_ROWS = 10_000
_FEW_SOURCE_ROWS = 100_000


@dataclass(frozen=True, slots=True)
class Names:
    """The qualifiers of a MERGE's two tables."""

    target: str
    source: str


@dataclass(frozen=True, slots=True)
class Key:
    """One equality of the condition, by which rows are joined, and the values of its sides."""

    equality: Equality
    target: BoundValue
    source: BoundValue


class JoinCondition:
    """The ON condition of a MERGE, taken apart.

    `target_terms` read the target only: a row of it that does not satisfy them has no match.
    """

    def __init__(self, condition: Expression, scope: Scope, names: Names) -> None:
        require_condition(condition.bind(scope))
        self._names = names
        self.keys: list[Key] = []
        self.target_terms: list[Expression] = []
        self._source_terms: list[BoundValue] = []
        self._others: list[BoundValue] = []
        for term in conjuncts(condition):
            found = equality(term, scope)
            if found is not None:
                sides = (found.of(one).value.bind(scope) for one in (names.target, names.source))
                self.keys.append(Key(found, *sides))
            elif only_of(term, scope, names.target) and not only_of(term, scope, names.source):
                self.target_terms.append(term)
                self._others.append(term.bind(scope))
            elif only_of(term, scope, names.source):
                self._source_terms.append(term.bind(scope))
            else:
                self._others.append(term.bind(scope))

    @property
    def target_columns(self) -> list[str]:
        """The target's columns that matching reads."""
        bound = [*(key.target for key in self.keys), *self._others]
        columns = (column for one in bound for column in one.columns)
        return list(dict.fromkeys(name for table, name in columns if table == self._names.target))

    def equal_columns(self, target: pa.Schema, source: pa.Schema) -> frozenset[str]:
        """The columns of the target, where the condition is that they equal the source's own.

        Values of another type, or that are filled with spaces, may be equal only when stored.
        """
        names = set()
        for key in self.keys:
            sides = (key.equality.of(one).node for one in (self._names.target, self._names.source))
            named = [one.parts[1] for one in sides if isinstance(one, Name) and len(one.parts) == 2]
            if len(named) < 2 or named[0].lower() != named[1].lower():
                return frozenset()
            mine, theirs = find_field(named[0], target), find_field(named[1], source)
            if mine is None or theirs is None or mine.type != theirs.type or has_lengths(mine):
                return frozenset()
            names.add(mine.name)
        return frozenset() if self._others or self._source_terms else frozenset(names)

    def prepare(self, source: pa.Table) -> SourceRows:
        """Compute what joining needs of the source, once."""
        names = self._names
        eligible = pa.arange(0, source.num_rows)
        for term in self._source_terms:
            rows = source.take(eligible)
            eligible = eligible.filter(flat(mask(term, {names.source: rows}, rows.num_rows)))
        rows = source.take(eligible) if len(eligible) < source.num_rows else source
        values = [key.source.evaluate({names.source: rows}, rows.num_rows) for key in self.keys]
        return SourceRows(self, source, *_joinable(values, eligible, self.keys, names.source))

    def pairs(self, source: SourceRows, target: pa.Table) -> tuple[pa.Array, pa.Array]:
        """The pairs of rows that satisfy the condition: positions in `target` and in the source."""
        if not target.num_rows or not len(source.rows):
            return _nothing(), _nothing()
        if self.keys:
            found = self._joined(source, target)
            return self._satisfying(source, target, *found)
        parts = [
            self._satisfying(source, target, *some)
            for some in _all_pairs(target.num_rows, source.rows)
        ]
        left, right = zip(*parts)
        return pa.concat_arrays(left), pa.concat_arrays(right)

    def _joined(self, source: SourceRows, target: pa.Table) -> tuple[pa.Array, pa.Array]:
        tables = {self._names.target: target}
        values = [key.target.evaluate(tables, target.num_rows) for key in self.keys]
        places = pa.arange(0, target.num_rows)
        columns, rows = _joinable(values, places, self.keys, self._names.target)
        if len(rows) <= _FEW_ROWS and len(source.rows) <= _FEW_SOURCE_ROWS:
            return _looked_up(source.places, columns, rows)
        names = [f"k{i}" for i in range(len(columns))]
        mine = pa.table([*columns, rows], [*names, "target"])
        joined = mine.join(source.keys, names, join_type="inner")
        joined = joined.sort_by([("target", "ascending"), ("source", "ascending")])
        return flat(joined.column("target")), flat(joined.column("source"))

    def _satisfying(
        self, source: SourceRows, target: pa.Table, left: pa.Array, right: pa.Array
    ) -> tuple[pa.Array, pa.Array]:
        """The pairs that satisfy the terms that are not equalities."""
        for term in self._others:
            if not len(left):
                break
            sides = pair_tables(self._names, term, target, source.table, left, right)
            keep = flat(mask(term, sides, len(left)))
            left, right = left.filter(keep), right.filter(keep)
        return left, right


@dataclass(frozen=True)
class SourceRows:
    """The source rows that can match at all, and their join columns.

    `rows` are their positions in `table`.
    """

    condition: JoinCondition
    table: pa.Table
    columns: Sequence[pa.Array]
    rows: pa.Array

    @property
    def keys(self) -> pa.Table:
        names = [f"k{i}" for i in range(len(self.columns))]
        return pa.table([*self.columns, self.rows], [*names, "source"])

    @cached_property
    def places(self) -> dict[tuple[Any, ...], list[int]]:
        """The positions of rows by their key."""
        found: dict[tuple[Any, ...], list[int]] = {}
        keys = zip(*(column.to_pylist() for column in self.columns))
        for key, row in zip(keys, self.rows.to_pylist()):
            found.setdefault(key, []).append(row)
        return found


def pair_tables(
    names: Names,
    bound: BoundValue,
    target: pa.Table,
    source: pa.Table,
    left: pa.Array,
    right: pa.Array,
) -> dict[str, pa.Table]:
    """The columns that an expression reads, of pairs of rows."""
    found: dict[str, pa.Table] = {}
    for name, table, rows in ((names.target, target, left), (names.source, source, right)):
        columns = [column for qualifier, column in bound.columns if qualifier == name]
        found[name] = table.select(columns).take(rows)
    return found


def _looked_up(
    places: Mapping[tuple[Any, ...], list[int]], columns: Sequence[pa.Array], rows: pa.Array
) -> tuple[pa.Array, pa.Array]:
    """The pairs of a join of few rows; Arrow's join would take longer to start."""
    left: list[int] = []
    right: list[int] = []
    keys = zip(*(column.to_pylist() for column in columns))
    for key, row in zip(keys, rows.to_pylist()):
        for place in places.get(key, ()):
            left.append(row)
            right.append(place)
    return pa.array(left, pa.int64()), pa.array(right, pa.int64())


def _joinable(
    values: Sequence[pa.ChunkedArray], rows: pa.Array, keys: Sequence[Key], table: str
) -> tuple[list[pa.Array], pa.Array]:
    """Keys of a table in the form that Arrow joins, and the rows that can have a partner.

    A NULL equals nothing unless the equality is null-safe.
    """
    forms = [key.equality.of(table).form(flat(column)) for column, key in zip(values, keys)]
    present = None
    for (column, *_), key in zip(forms, keys):
        if not key.equality.null_safe and column.null_count:
            valid = pc.is_valid(column)
            present = valid if present is None else pc.and_(present, valid)
    if present is not None:
        forms = [[column.filter(present) for column in form] for form in forms]
        rows = rows.filter(present)
    found: list[pa.Array] = []
    for form, key in zip(forms, keys):
        if key.equality.null_safe:
            # As values and a flag, because Arrow does not join NULL with NULL.
            found += [pc.fill_null(column, _any_value(column.type)) for column in form]
            found.append(pc.is_valid(form[0]).cast(pa.int8()))
        else:
            found += form
    return found, rows


def _any_value(type_: pa.DataType) -> pa.Scalar:
    return pa.scalar({pa.string(): "", pa.binary(): b""}.get(type_, 0), type_)


def _all_pairs(targets: int, sources: pa.Array) -> Iterator[tuple[pa.Array, pa.Array]]:
    """Every pair of a row of the target and one of the source, some at a time."""
    step = max(1, _PAIRS_AT_ONCE // len(sources))
    for start in range(0, targets, step):
        count = min(step, targets - start)
        at = pa.arange(0, count * len(sources))
        left = pc.add(pc.divide(at, len(sources)), start)
        right = pc.subtract(at, pc.multiply(pc.divide(at, len(sources)), len(sources)))
        yield left, sources.take(right)


def _nothing() -> pa.Array:
    return pa.array([], pa.int64())


# --- Which rows of a MERGE's target can match a row of its source: a condition for scans.


# If there are more distinct values, only the smallest and the largest are used.
MOST_VALUES = 50_000


def may_match(
    condition: JoinCondition, source: SourceRows, schema: pa.Schema, scope: Scope, names: Names
) -> PredicateSet:
    """A condition that every target row with a match satisfies."""
    if not len(source.rows):
        return PredicateSet(constant(False))
    found = PredicateSet.of(None)
    for term in condition.target_terms:
        part = as_predicate(term, schema, scope)
        if part is not None:
            found = found & part
    rows = source.table.take(source.rows)
    for key in condition.keys:
        column = key.equality.of(names.target).node
        if isinstance(column, Name):
            values = key.source.evaluate({names.source: rows}, rows.num_rows)
            part = _among(scope.find(column).path, key.equality, names.source, values)
            part = None if part is None else _bindable(part, schema)
            found = found if part is None else found & part
    return found


def _among(
    path: Sequence[pa.Field], equality: Equality, source: str, values: pa.ChunkedArray
) -> PredicateSet | None:
    """The rows whose column has one of the values, or at least lies between them."""
    column, side = Name(tuple(field.name for field in path)), equality.of(source)
    distinct = pc.drop_null(pc.unique(values))
    many = len(distinct) > MOST_VALUES
    literals = equality.sought(path[-1].type, side, _ends(distinct) if many else distinct)
    unordered = many and pa.types.is_string(distinct.type) != pa.types.is_string(path[-1].type)
    if literals is None or unordered:
        return None
    if many:
        node = all_of([compare(column, op, end) for op, end in zip((">=", "<="), literals)])
    else:
        node = is_in(column, literals) if literals else constant(False)
    if equality.null_safe and values.null_count:
        node = any_of((node, is_null(column)))
    return PredicateSet(node)


def _ends(values: pa.Array) -> pa.Array:
    """The least and the greatest value; NaN is greater than every number."""
    order = pc.array_sort_indices(values)
    return values.take(pa.concat_arrays([order[:1], order[-1:]]))


def _bindable(part: PredicateSet, schema: pa.Schema) -> PredicateSet | None:
    try:
        part.bind(schema)
    except (InvalidPredicateError, InvalidExpressionError):
        return None
    return part

"""Pure. Bound nodes, the rows they are evaluated on, and rows taken apart and put together.

Spark evaluates lazily: a branch that a row does not take cannot fail there. So a part that can fail
is evaluated only on the rows that need its value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.errors import InvalidExpressionError
from lakehouse_source.language.nodes import Literal, Node
from lakehouse_source.language.values import Failure

# A qualifier, a column of its table, and the places of the fields inside it from the top down.
Key: TypeAlias = tuple[str, str, tuple[int, ...]]
Kernel: TypeAlias = Callable[..., pa.Array]


def fail(node: Node, reason: str) -> NoReturn:
    """Raise the error of an expression, which names its part `node`."""
    raise InvalidExpressionError(reason=reason, text=str(node))


class Rows:
    """Rows of several tables side by side. Columns are loaded when they are first asked for."""

    def __init__(self, count: int, load: Callable[[Key], pa.Array]) -> None:
        self.count = count
        self._load = load
        self._columns: dict[Key, pa.Array] = {}

    def column(self, key: Key) -> pa.Array:
        found = self._columns.get(key)
        if found is None:
            found = self._columns[key] = self._load(key)
        return found

    def take(self, indices: pa.Array) -> Rows:
        """Some of the rows."""
        return Rows(len(indices), lambda key: self.column(key).take(indices))


@dataclass(frozen=True, slots=True, eq=False)
class Bound:
    """A node with a type.

    `can_fail`: `run` raises an error for some values. `constant`: the node reads no column.
    """

    node: Node
    type: pa.DataType
    run: Callable[[Rows], pa.Array]
    can_fail: bool
    constant: bool = False


def no_column(key: Key) -> pa.Array:
    """How a constant loads its columns: it has none."""
    raise AssertionError(f"a constant reads the column {key}")


def once(bound: Bound) -> Bound:
    """A value without columns, computed when a row first needs it."""
    known: list[pa.Scalar] = []

    def run(rows: Rows) -> pa.Array:
        if not rows.count:
            return nulls(0, bound.type)
        if not known:
            known.append(bound.run(Rows(1, no_column))[0])
        return pa.repeat(known[0], rows.count)

    return replace(bound, run=run, constant=True)


def literal(bound: Bound) -> Literal | None:
    """The literal of a value; None: the value was cast to another type and is not NULL."""
    node = bound.node
    if isinstance(node, Literal) and (node.type == bound.type or node.value is None):
        return node
    return None


def flat(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """One array; kernels sometimes return a chunked array."""
    if isinstance(values, pa.ChunkedArray):
        if values.num_chunks == 1:
            return values.chunk(0)  # not copied
        return pa.concat_arrays(values.chunks) if values.num_chunks else nulls(0, values.type)
    return values


def nulls(count: int, type_: pa.DataType) -> pa.Array:
    return pa.nulls(count, type_)


def scatter(parts: Sequence[tuple[pa.Array, pa.Array]], type_: pa.DataType) -> pa.Array:
    """Values of disjoint sets of rows, given with their indices, in the order of all rows."""
    parts = [part for part in parts if len(part[0])]
    if not parts:
        return nulls(0, type_)
    if len(parts) == 1:
        return parts[0][1]
    order = pc.array_sort_indices(pa.concat_arrays([indices for indices, _ in parts]))
    return flat(pa.concat_arrays([values for _, values in parts]).take(order))


def indices_where(mask: pa.Array) -> pa.Array:
    return pc.indices_nonzero(pc.fill_null(mask, False))


def run_where(bound: Bound, rows: Rows, wanted: pa.Array) -> pa.Array:
    """The values on the rows where `wanted` is true, NULL on the others."""
    inside = indices_where(wanted)
    if len(inside) == rows.count:
        return bound.run(rows)
    outside = indices_where(pc.invert(pc.fill_null(wanted, False)))
    found = [(outside, nulls(len(outside), bound.type))]
    if len(inside):
        found.append((inside, bound.run(rows.take(inside))))
    return scatter(found, bound.type)


def run_strict(rows: Rows, arguments: Sequence[Bound], order: Sequence[int]) -> list[pa.Array]:
    """The arguments of a function that is NULL where one of them is.

    They are evaluated in Spark's order, each only where the earlier ones are not NULL.
    """
    found: dict[int, pa.Array] = {}
    for index in order:
        argument = arguments[index]
        gone = [values for values in found.values() if values.null_count]
        if argument.can_fail and gone:
            wanted = pc.is_valid(gone[0])
            for values in gone[1:]:
                wanted = pc.and_(wanted, pc.is_valid(values))
            found[index] = run_where(argument, rows, wanted)
        else:
            found[index] = argument.run(rows)
    return [found[index] for index in range(len(arguments))]


def strict(
    node: Node,
    type_: pa.DataType,
    arguments: Sequence[Bound],
    kernel: Kernel,
    *,
    can_fail: bool,
    order: Sequence[int] | None = None,
) -> Bound:
    """A function that is NULL where one of its arguments is NULL."""
    places = order or range(len(arguments))

    def run(rows: Rows) -> pa.Array:
        values = run_strict(rows, arguments, places)
        try:
            return flat(kernel(*values))
        except Failure as exc:
            fail(node, str(exc))

    return Bound(node, type_, run, can_fail or any(a.can_fail for a in arguments))


# --- values one by one ------------------------------------------------------


def listed(values: pa.Array) -> list[Any]:
    """Python values; dates and timestamps are counts, which have any year."""
    if pa.types.is_date32(values.type):
        return values.view(pa.int32()).to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_timestamp(values.type):
        return values.view(pa.int64()).to_pylist()  # type: ignore[no-any-return]
    return values.to_pylist()  # type: ignore[no-any-return]


def unlisted(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """The array of values as `listed` gives them."""
    if pa.types.is_date32(type_):
        return pa.array(values, pa.int32()).view(type_)
    if pa.types.is_timestamp(type_):
        return pa.array(values, pa.int64()).view(type_)
    return pa.array(values, type_)


def each(function: Callable[..., Any], type_: pa.DataType) -> Kernel:
    """A kernel that calls a Python function for each row without NULL; equal rows share a call."""

    def kernel(*arrays: pa.Array) -> pa.Array:
        found: list[Any] = []
        if len(arrays) == 1:
            known: dict[Any, Any] = {}
            # Signed zeros are equal but not identical.
            share = not pa.types.is_floating(arrays[0].type)
            for value in listed(arrays[0]):
                if value is None:
                    found.append(None)
                elif share:
                    if value not in known:
                        known[value] = function(value)
                    found.append(known[value])
                else:
                    found.append(function(value))
        else:
            rows = zip(*(listed(array) for array in arrays))
            found += [None if None in values else function(*values) for values in rows]
        return unlisted(found, type_)

    return kernel

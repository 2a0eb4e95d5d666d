"""Pure. `struct`, `named_struct` and `array`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from lakehouse_source.language.functions.rows import Bound, Rows, flat
from lakehouse_source.language.tree.failures import Failure
from lakehouse_source.language.tree.nodes import Call, Literal, Name, Node


class Context(Protocol):
    """What is needed of the binder here."""

    def alike(self, values: Sequence[Bound]) -> list[Bound]: ...


def struct(context: Context, call: Call, given: list[Bound]) -> Bound:
    """A struct of values; one without a name is called by its place, `col1` for the first."""
    if call.name == "named_struct":
        if len(given) % 2:
            raise Failure("named_struct takes names and values in turn")
        names, given = [_field_name(node) for node in call.arguments[::2]], given[1::2]
    else:
        names = [
            node.parts[-1] if isinstance(node, Name) else f"col{place}"
            for place, node in enumerate(call.arguments, start=1)
        ]
    if len({name.lower() for name in names}) < len(names):
        raise Failure("two fields of a struct have the same name")
    type_ = pa.struct([pa.field(name, value.type) for name, value in zip(names, given)])

    def run(rows: Rows) -> pa.Array:
        return pa.StructArray.from_arrays([value.run(rows) for value in given], fields=list(type_))

    return Bound(call, type_, run, any(value.can_fail for value in given))


def _field_name(node: Node) -> str:
    if not isinstance(node, Literal) or not isinstance(node.value, str):
        raise Failure("the names of fields are literal texts")
    return node.value


def array(context: Context, call: Call, given: list[Bound]) -> Bound:
    """A list of values of one type."""
    values = context.alike(given)
    width, type_ = len(values), pa.list_(values[0].type)

    def run(rows: Rows) -> pa.Array:
        count = rows.count
        columns = pa.concat_arrays([value.run(rows) for value in values])
        order = pa.array([c * count + r for r in range(count) for c in range(width)], pa.int64())
        offsets = pa.array(range(0, count * width + 1, width), pa.int32())
        return pa.ListArray.from_arrays(offsets, flat(columns.take(order)), type=type_)

    return Bound(call, type_, run, any(value.can_fail for value in values))

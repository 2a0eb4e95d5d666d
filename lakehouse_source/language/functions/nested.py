"""Pure. `struct`, `named_struct`, `array` and `size`."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.language.functions.entry import NEVER, Context, Function
from lakehouse_source.language.functions.rows import Bound, Rows, flat, strict
from lakehouse_source.language.tree.failures import Failure
from lakehouse_source.language.tree.nodes import Call, Literal, Name, Node
from lakehouse_source.language.tree.types import spark_name
from lakehouse_source.schema.fields import is_list_like


def struct(context: Context, call: Call, given: list[Bound]) -> Bound:
    """A struct of values; a value without a name is named by its place, `col1` for the first."""
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


def size(context: Context, call: Call, given: list[Bound]) -> Bound:
    """How many elements a list has, or entries a map. For NULL it is NULL, as in ANSI mode."""
    type_ = given[0].type
    if not (is_list_like(type_) or pa.types.is_map(type_)):
        raise Failure(f"{spark_name(type_)} stands where an array or a map should")

    def counted(values: pa.Array) -> pa.Array:
        if not pa.types.is_map(type_):
            return pc.list_value_length(values).cast(pa.int32())
        counts = pc.subtract(values.offsets[1:], values.offsets[:-1])
        return pc.if_else(pc.is_valid(values), counts, pa.scalar(None, pa.int32()))

    return strict(call, pa.int32(), given, counted, can_fail=False)


FUNCTIONS: dict[str, Function] = {
    "struct": Function(1, None, struct, "any", "STRUCT", nulls=NEVER),
    "named_struct": Function(2, None, struct, "names and values in turn", "STRUCT", nulls=NEVER),
    "array": Function(1, None, array, "values of one type", "ARRAY", nulls=NEVER),
    **dict.fromkeys(("size", "cardinality"), Function(1, 1, size, "ARRAY or MAP", "INT")),
}

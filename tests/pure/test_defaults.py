"""Default values of columns: their record in a schema, and the rows that are given them."""

from __future__ import annotations

import copy
import pickle
import struct
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse_source.errors import SchemaMismatchError
from lakehouse_source.schema import fields as schemas
from lakehouse_source.schema.align import align, by_id, by_name
from lakehouse_source.schema.changes import AddColumn, Facts, PromoteColumn, SetDefault, apply_all
from lakehouse_source.schema.defaults import (
    checked_default,
    initial_default,
    initial_ordinals,
    promoted,
    with_defaults,
    write_default,
)
from lakehouse_source.schema.merge import initial, merge
from tests.strategies import TYPES, pool

LEAF_TYPES = [type_ for type_ in dict.fromkeys(TYPES) if not pa.types.is_null(type_)]


def same_scalar(one: pa.Scalar, other: pa.Scalar) -> bool:
    if one.type != other.type:
        return False
    if pa.types.is_floating(one.type):
        pack = lambda scalar: struct.pack("<d", float(scalar.as_py()))  # noqa: E731
        return bool(pack(one) == pack(other))
    return bool(one.equals(other))


@pytest.mark.parametrize("type_", LEAF_TYPES, ids=str)
def test_a_schema_keeps_a_default_of_every_type_exactly(type_: pa.DataType) -> None:
    for value in pool(type_):
        scalar = pa.array([value], type_)[0]
        field = with_defaults(pa.field("c", type_), checked_default(scalar, type_, "c"))
        stored = pa.ipc.read_schema(pa.schema([field]).serialize()).field(0)
        for found in (initial_default(stored), write_default(pickle.loads(pickle.dumps(stored)))):
            assert found is not None
            assert same_scalar(found, scalar), (value, stored.metadata)
        assert len(initial_ordinals(initial(pa.schema([field])))) == 0  # not from data


UTC = timezone.utc
EXACT: list[tuple[Any, pa.DataType]] = [
    (True, pa.bool_()),
    (2**64 - 1, pa.uint64()),
    (np.int16(5), pa.int64()),
    (0.1, pa.float64()),
    (np.float32(0.1), pa.float32()),
    (2**53, pa.float64()),
    (-0.0, pa.float32()),
    (float("nan"), pa.float16()),
    (float("-inf"), pa.float32()),
    (Decimal("1.50"), pa.decimal128(5, 2)),
    (7, pa.decimal128(5, 2)),
    ("", pa.string()),
    ("a\0ü\U0001f600", pa.string()),
    (b"\xff\0", pa.binary()),
    (bytearray(b"abc"), pa.binary(3)),
    (date(1, 1, 1), pa.date32()),
    (datetime(2020, 1, 1, 12, 0, 0, 1), pa.timestamp("us")),
    (datetime(2020, 1, 1, tzinfo=timezone(timedelta(hours=2))), pa.timestamp("us", "UTC")),
    (time(23, 59, 59), pa.time32("ms")),
    (timedelta(days=-1, microseconds=5), pa.duration("us")),
    (pa.scalar(5, pa.int8()), pa.int64()),
    (pa.scalar("x").cast(pa.large_string()), pa.string()),
    (pa.scalar(0.5, pa.float64()), pa.float32()),
    (pa.array(["x"]).dictionary_encode()[0], pa.string()),
]


@pytest.mark.parametrize(("value", "type_"), EXACT, ids=str)
def test_a_value_that_the_type_holds_is_taken(value: Any, type_: pa.DataType) -> None:
    found = checked_default(value, type_, "c")
    assert found.type == type_
    if isinstance(value, pa.DictionaryScalar):
        value = value.value
    given_ = value.as_py() if isinstance(value, pa.Scalar) else value
    back = found.as_py()
    assert back == given_ or (back != back and given_ != given_)
    if isinstance(back, float):
        assert repr(back) == repr(float(given_))


def test_a_moment_of_numpy_is_one_of_python() -> None:
    moment = datetime(2020, 1, 1, 12, 0, 0, 1)
    found = checked_default(np.datetime64(moment, "ns"), pa.timestamp("us"), "c")
    assert found.as_py() == moment


REFUSED: list[tuple[Any, pa.DataType, str]] = [
    (np.datetime64("2020-01-01", "ns"), pa.int64(), "type datetime"),
    (np.datetime64(1, "ns"), pa.timestamp("us"), "it is finer"),
    (np.timedelta64(1, "ns"), pa.int64(), "it is no time span"),
    (1, pa.bool_(), "type int"),
    (True, pa.int32(), "type bool"),
    (2**31, pa.int32(), "out of range"),
    (-1, pa.uint8(), "out of range"),
    (1.0, pa.int32(), "type float"),
    ("1", pa.int32(), "type str"),
    (0.1, pa.float32(), "rounded"),
    (2**53 + 1, pa.float64(), "rounded"),
    (70_000.0, pa.float16(), "."),
    (1e300, pa.float32(), "."),
    (Decimal("1.555"), pa.decimal128(5, 2), "more than 2 digits"),
    (Decimal(1000), pa.decimal128(5, 2), "out of range"),
    (Decimal("NaN"), pa.decimal128(5, 2), "."),
    (Decimal("Infinity"), pa.decimal128(5, 2), "."),
    (1.5, pa.decimal128(5, 2), "type float"),
    (b"x", pa.string(), "type bytes"),
    ("\ud800", pa.string(), "surrogates"),
    ("x", pa.binary(), "type str"),
    (b"ab", pa.binary(3), "."),
    (datetime(2020, 1, 1), pa.date32(), "type datetime"),
    (18_000, pa.date32(), "type int"),
    (date(2020, 1, 1), pa.timestamp("us"), "type date"),
    (datetime(2020, 1, 1), pa.timestamp("us", "UTC"), "no time zone"),
    (datetime(2020, 1, 1, tzinfo=UTC), pa.timestamp("us"), "has a time zone"),
    (datetime(2020, 1, 1, 0, 0, 0, 1), pa.timestamp("ms"), "finer"),
    (datetime(2300, 1, 1), pa.timestamp("ns"), "out of range"),
    (time(1, tzinfo=UTC), pa.time64("us"), "has a time zone"),
    (pa.scalar(None, pa.int32()), pa.int32(), "NULL"),
    (pa.scalar("5"), pa.int32(), "it is string"),
    (pa.scalar(0, pa.timestamp("us")), pa.timestamp("us", "UTC"), "it is timestamp"),
    (pa.scalar(0, pa.timestamp("us", "UTC")), pa.timestamp("us"), "it is timestamp"),
    (pa.scalar(0.1), pa.float32(), "rounded"),
    (pa.scalar(300), pa.int8(), "."),
    ([1], pa.list_(pa.int64()), "not nested"),
    ({"a": 1}, pa.struct([("a", pa.int64())]), "not nested"),
    (1, pa.null(), "has no values"),
]


@pytest.mark.parametrize(("value", "type_", "why"), REFUSED, ids=str)
def test_a_value_that_the_type_does_not_hold_is_refused_by_column_value_and_type(
    value: Any, type_: pa.DataType, why: str
) -> None:
    with pytest.raises(SchemaMismatchError, match=why) as refused:
        checked_default(value, type_, "the.column")
    assert refused.value.column == "the.column"
    assert f"{type_} and cannot have the default" in str(refused.value)


PROMOTIONS = [
    (pa.int32(), pa.int64()),
    (pa.uint32(), pa.float64()),
    (pa.int16(), pa.decimal128(9, 2)),
    (pa.float32(), pa.float64()),
    (pa.float16(), pa.float32()),
    (pa.decimal128(5, 2), pa.decimal128(9, 3)),
    (pa.timestamp("ms"), pa.timestamp("us")),
    (pa.date32(), pa.timestamp("ms")),
    (pa.time32("ms"), pa.time64("ns")),
    (pa.duration("ms"), pa.duration("us")),
    (pa.binary(3), pa.binary()),
]


@pytest.mark.parametrize(("old", "new"), PROMOTIONS, ids=str)
def test_a_promotion_converts_a_default_as_it_converts_stored_values(
    old: pa.DataType, new: pa.DataType
) -> None:
    for value in pool(old):
        column = pa.array([value], old)
        try:
            expected = column.cast(new)[0]
        except pa.ArrowInvalid:
            expected = None  # the new unit does not reach so far
        field = with_defaults(pa.field("c", old), column[0])
        if expected is None:
            with pytest.raises(SchemaMismatchError, match="does not fit"):
                promoted(field, new)
            continue
        for found in (initial_default(promoted(field, new)), write_default(promoted(field, new))):
            assert found is not None
            assert same_scalar(found, expected)


def test_a_number_that_became_text_has_its_default_as_text() -> None:
    field = with_defaults(pa.field("c", pa.int32()), pa.scalar(5, pa.int32()))
    assert initial_default(promoted(field, pa.string())) == pa.scalar("5")


# --- schemas --------------------------------------------------------------------


def schema_with(*changes: Any, start: pa.Schema | None = None) -> pa.Schema:
    start = start or initial(pa.schema([("a", pa.int32())]))
    numbers = iter(range(schemas.max_id(start) + 1, 1000))
    return apply_all(start, changes, Facts(numbers))[0]


FIVE = pa.scalar(5, pa.int32())


def test_a_later_default_leaves_the_initial_one() -> None:
    schema = schema_with(AddColumn("b", pa.int32(), default=FIVE), SetDefault("b", 7))
    assert initial_default(schema.field("b")) == FIVE
    assert write_default(schema.field("b")) == pa.scalar(7, pa.int32())
    schema = schema_with(SetDefault("b", None), start=schema)
    assert initial_default(schema.field("b")) == FIVE
    assert write_default(schema.field("b")) is None


def test_a_merge_that_promotes_a_column_keeps_its_defaults_in_the_new_type() -> None:
    schema = schema_with(AddColumn("b", pa.int32(), default=FIVE))
    data = pa.schema([("a", pa.int32()), ("b", pa.int64())])
    merged = merge(schema, data, add_columns=True)
    for found in (initial_default(merged.field("b")), write_default(merged.field("b"))):
        assert found == pa.scalar(5, pa.int64())


def test_data_may_lack_a_column_that_is_not_null_only_while_it_has_a_default() -> None:
    added = AddColumn("b", pa.int32(), default=FIVE, nullable=False)
    schema = schema_with(added)
    data = pa.schema([("a", pa.int32())])
    assert merge(schema, data) is schema
    without = schema_with(SetDefault("b", None), start=schema)
    with pytest.raises(SchemaMismatchError, match="is not nullable and the data does not have it"):
        merge(without, data)
    with pytest.raises(SchemaMismatchError, match="without a default"):
        schema_with(AddColumn("c", pa.int32(), nullable=False))


def test_a_default_in_the_metadata_of_data_does_not_count() -> None:
    field = with_defaults(pa.field("b", pa.int32()), FIVE)
    assert initial_default(initial(pa.schema([field])).field("b")) is None


def test_a_default_that_is_no_value_of_the_type_is_an_error() -> None:
    field = pa.field("b", pa.int32(), metadata={b"plake:initial_default": b'"x"'})
    with pytest.raises(SchemaMismatchError, match="recorded default"):
        initial_default(field)


def test_promoting_a_nested_field_converts_its_default() -> None:
    start = initial(pa.schema([("s", pa.struct([("x", pa.int32())]))]))
    schema = schema_with(
        AddColumn("s.y", pa.int32(), default=FIVE), PromoteColumn("s.y", pa.int64()), start=start
    )
    assert initial_default(schema.field("s").type.field("y")) == pa.scalar(5, pa.int64())


# --- rows -----------------------------------------------------------------------

LEAVES = st.sampled_from(["x", "y", "z"])


@st.composite
def nested_types(draw: st.DrawFn, depth: int = 2) -> pa.DataType:
    """Structs of int32, in lists, fixed lists, maps and structs."""
    names = draw(st.lists(LEAVES, min_size=1, max_size=3, unique=True))
    inner = []
    for name in names:
        deeper = depth and draw(st.integers(0, 2)) == 0
        inner.append(pa.field(name, draw(nested_types(depth - 1)) if deeper else pa.int32()))
    type_ = pa.struct(inner)
    kind = draw(st.sampled_from(["struct", "list", "fixed", "map", "large"]))
    return {
        "struct": type_,
        "list": pa.list_(type_),
        "large": pa.list_(type_),
        "fixed": pa.list_(type_, 2),
        "map": pa.map_(pa.int32(), type_),
    }[kind]


def values_of(type_: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_struct(type_):
        given_ = {field.name: values_of(field.type) for field in type_}
        return st.one_of(st.none(), st.fixed_dictionaries(given_))
    if pa.types.is_map(type_):
        pairs = st.tuples(st.integers(0, 9), values_of(type_.item_type))
        return st.one_of(st.none(), st.lists(pairs, max_size=2))
    if schemas.is_list_like(type_):
        size = getattr(type_, "list_size", None)
        some = st.lists(values_of(type_.value_type), min_size=size or 0, max_size=size or 2)
        return st.one_of(st.none(), some)
    return st.one_of(st.none(), st.integers(0, 9))


def struct_paths(type_: pa.DataType, above: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The paths of all structs in a type."""
    if pa.types.is_struct(type_):
        below = [(field.type, (*above, field.name)) for field in type_]
        return [above, *(path for inner, at in below for path in struct_paths(inner, at))]
    if pa.types.is_map(type_):
        return struct_paths(type_.item_type, (*above, "value"))
    if schemas.is_list_like(type_):
        return struct_paths(type_.value_type, (*above, "element"))
    return []


def with_added(value: Any, type_: pa.DataType, path: tuple[str, ...], name: str) -> Any:
    """The value with a field of 77 in the structs at a path; the obvious way."""
    if value is None:
        return None
    if pa.types.is_struct(type_):
        if not path:
            return {**value, name: 77}
        inner = type_.field(path[0]).type
        return {**value, path[0]: with_added(value[path[0]], inner, path[1:], name)}
    if pa.types.is_map(type_):
        return [(k, with_added(v, type_.item_type, path[1:], name)) for k, v in value]
    return [with_added(one, type_.value_type, path[1:], name) for one in value]


@given(data=st.data())
def test_nested_fields_that_data_lacks_have_their_default_where_their_struct_is_not_null(
    data: st.DataObject,
) -> None:
    type_ = data.draw(nested_types())
    rows = data.draw(st.lists(values_of(type_), max_size=5))
    path = data.draw(st.sampled_from(struct_paths(type_, ("c",))))
    start = initial(pa.schema([("c", type_)]))
    default = pa.scalar(77, pa.int32())
    target = schema_with(AddColumn((*path, "new"), pa.int32(), default=default), start=start)
    skip = data.draw(st.integers(0, len(rows)))
    column = pa.chunked_array([pa.array(rows, type_).slice(skip)], type_)
    expected = [with_added(copy.deepcopy(row), type_, path[1:], "new") for row in rows[skip:]]
    for how, source, value in (
        (by_id, start, initial_default),
        (by_name, pa.schema([("c", type_)]), write_default),
    ):
        found = align(pa.Table.from_arrays([column], ["c"]), target, source, how, value)
        found.validate(full=True)
        assert found.column(0).to_pylist() == expected


def test_a_new_field_with_the_name_and_type_of_a_dropped_one_has_its_default() -> None:
    """`pyarrow.Field` objects that differ in their ids only are equal."""
    stored = initial(pa.schema([("s", pa.struct([("x", pa.int32()), ("y", pa.int32())]))]))
    fields = [stored.field("s").type.field("x"), stored.field("s").type.field("y")]
    renewed = with_defaults(
        fields[1].with_metadata({schemas.FIELD_ID: b"9"}), pa.scalar(5, pa.int32())
    )
    target = pa.schema([stored.field("s").with_type(pa.struct([fields[0], renewed]))])
    table = pa.table({"s": pa.array([{"x": 1, "y": 2}, None], stored.field("s").type)})
    found = align(table, target, stored, by_id, initial_default)
    assert found.column(0).to_pylist() == [{"x": 1, "y": 5}, None]

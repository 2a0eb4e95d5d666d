"""Schemas: storage types, ids, merge and promotion."""

from __future__ import annotations

import decimal
import itertools

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse_source.errors import SchemaMismatchError
from lakehouse_source.schema.fields import (
    field_id,
    initial,
    leaves,
    max_id,
    merge,
    storage_schema,
    storage_type,
    strip,
    widens,
)

NUMBERS = [
    pa.int8(), pa.int16(), pa.int32(), pa.int64(),
    pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(),
    pa.float16(), pa.float32(), pa.float64(),
    pa.decimal128(3, 0), pa.decimal128(10, 2), pa.decimal128(38, 10),
]  # fmt: skip


def test_every_field_gets_an_id_nested_ones_too() -> None:
    schema = initial(
        pa.schema(
            [
                ("a", pa.int32()),
                ("s", pa.struct([("x", pa.int8()), ("l", pa.list_(pa.int32()))])),
                ("m", pa.map_(pa.string(), pa.float32())),
            ]
        )
    )
    found = [(leaf.path, leaf.id, leaf.in_list) for leaf in leaves(schema)]
    assert found == [
        (("a",), 1, False),
        (("s", "x"), 3, False),
        (("s", "l", "item"), 5, True),
        (("m", "key"), 7, True),
        (("m", "value"), 8, True),
    ]
    assert max_id(schema) == 8
    assert strip(schema).field("s").type == pa.struct(
        [("x", pa.int8()), ("l", pa.list_(pa.int32()))]
    )


@pytest.mark.parametrize(
    ("given_type", "kept"),
    [
        (pa.large_string(), pa.string()),
        (pa.string_view(), pa.string()),
        (pa.dictionary(pa.int8(), pa.string()), pa.string()),
        (pa.large_binary(), pa.binary()),
        (pa.date64(), pa.date32()),
        (pa.timestamp("s"), pa.timestamp("ms")),
        (pa.timestamp("us", "Asia/Kolkata"), pa.timestamp("us", "UTC")),
        (pa.large_list(pa.large_string()), pa.list_(pa.string())),
        (pa.run_end_encoded(pa.int32(), pa.int64()), pa.int64()),
        (pa.time32("s"), pa.time32("ms")),
    ],
)
def test_one_spelling_of_each_type_is_kept(given_type: pa.DataType, kept: pa.DataType) -> None:
    assert storage_type(given_type, "c").equals(kept)


@pytest.mark.parametrize("type_", [pa.month_day_nano_interval(), pa.dense_union([])])
def test_what_parquet_cannot_hold_is_refused_by_name(type_: pa.DataType) -> None:
    with pytest.raises(SchemaMismatchError, match="Parquet cannot hold") as caught:
        storage_schema(pa.schema([("odd", type_)]))
    assert caught.value.column == "odd"


@pytest.mark.parametrize("names", [["a", "A"], ["Straße", "STRAßE"], ["a", "a"]])
def test_names_may_not_collide_by_case(names: list[str]) -> None:
    with pytest.raises(SchemaMismatchError, match="collides"):
        storage_schema(pa.schema([(name, pa.int8()) for name in names]))


def test_no_columns_and_empty_names_are_refused() -> None:
    with pytest.raises(SchemaMismatchError, match="no columns"):
        storage_schema(pa.schema([]))
    with pytest.raises(SchemaMismatchError, match="empty name"):
        storage_schema(pa.schema([("", pa.int8())]))


def _extremes(type_: pa.DataType) -> list[int | decimal.Decimal]:
    if pa.types.is_integer(type_):
        bits = type_.bit_width
        if pa.types.is_unsigned_integer(type_):
            return [0, 2**bits - 1]
        return [-(2 ** (bits - 1)), 2 ** (bits - 1) - 1]
    top = decimal.Decimal(10**type_.precision - 1).scaleb(-type_.scale, decimal.Context(prec=80))
    return [top.copy_negate(), top]


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        pair
        for pair in itertools.product(NUMBERS, NUMBERS)
        if not any(pa.types.is_floating(t) for t in pair)
    ],
)
def test_a_type_widens_exactly_where_its_extremes_survive(
    narrow: pa.DataType, wide: pa.DataType
) -> None:
    """Arrow's own checked cast is the oracle."""
    array = pa.array(_extremes(narrow), narrow)
    try:
        back = array.cast(wide).cast(narrow)
        survives = back.equals(array)
    except pa.ArrowInvalid:
        survives = False
    if pa.types.is_decimal(narrow) and pa.types.is_integer(wide):
        survives = False  # a promotion never goes from decimals to integers
    if survives != widens(narrow, wide):
        # Arrow wants room for all digits of an integer type; so do we, and no less.
        assert not widens(narrow, wide)
        assert pa.types.is_integer(narrow)
        assert pa.types.is_decimal(wide)


def test_merge_answers_the_same_object_when_nothing_changes() -> None:
    schema = initial(pa.schema([("a", pa.int64()), ("s", pa.struct([("x", pa.int8())]))]))
    assert merge(schema, strip(schema)) is schema
    assert merge(schema, pa.schema([("A", pa.int8())])) is schema


def test_merge_adds_columns_at_every_depth_with_new_ids() -> None:
    schema = initial(pa.schema([("s", pa.struct([("x", pa.int8())]))]))
    incoming = pa.schema(
        [("s", pa.struct([("y", pa.string()), ("X", pa.int16())])), ("n", pa.bool_())]
    )
    merged = merge(schema, incoming, add_columns=True, next_id=10)
    found = {leaf.path: (leaf.id, leaf.type) for leaf in leaves(merged)}
    assert found == {
        ("s", "x"): (2, pa.int16()),
        ("s", "y"): (10, pa.string()),
        ("n",): (11, pa.bool_()),
    }
    assert field_id(merged.field("s")) == 1


@pytest.mark.parametrize("nested", [pa.list_(pa.int8()), pa.map_(pa.string(), pa.int8())])
def test_elements_of_lists_and_maps_are_promoted(nested: pa.DataType) -> None:
    schema = initial(pa.schema([("c", nested)]))
    wider = pa.list_(pa.int32()) if pa.types.is_list(nested) else pa.map_(pa.string(), pa.int32())
    merged = merge(schema, pa.schema([("c", wider)]), add_columns=True)
    assert [leaf.type for leaf in leaves(merged)][-1] == pa.int32()
    assert [leaf.id for leaf in leaves(merged)] == [leaf.id for leaf in leaves(schema)]


@pytest.mark.parametrize(
    ("mine", "theirs", "hint"),
    [
        (pa.int32(), pa.int64(), "schema_merge=True to promote"),
        (pa.int32(), pa.string(), "promote_to_string=True"),
        (pa.list_(pa.int8()), pa.int8(), "Cast it"),
        (pa.struct([("x", pa.int8())]), pa.list_(pa.int8()), "Cast it"),
        (pa.timestamp("us"), pa.timestamp("us", "UTC"), "promote_to_string=True"),
    ],
)
def test_a_mismatch_names_both_types_and_what_to_do(
    mine: pa.DataType, theirs: pa.DataType, hint: str
) -> None:
    schema = initial(pa.schema([("c", mine)]))
    with pytest.raises(SchemaMismatchError, match=hint) as caught:
        merge(schema, pa.schema([("c", theirs)]), dataset="file:///d")
    assert caught.value.expected == mine
    assert caught.value.got == theirs
    assert "file:///d" in str(caught.value)


def test_a_column_that_must_not_be_null_cannot_be_missing() -> None:
    schema = initial(pa.schema([pa.field("a", pa.int8(), nullable=False), ("b", pa.int8())]))
    with pytest.raises(SchemaMismatchError, match="not nullable and the data does not have it"):
        merge(schema, pa.schema([("b", pa.int8())]))


@given(st.lists(st.sampled_from(NUMBERS), min_size=2, max_size=5))
def test_promotion_never_narrows(types: list[pa.DataType]) -> None:
    """Whatever the order of writes, every type written so far still fits."""
    schema = initial(pa.schema([("c", types[0])]))
    seen = [types[0]]
    for type_ in types[1:]:
        try:
            schema = merge(schema, pa.schema([("c", type_)]), add_columns=True)
        except SchemaMismatchError:
            continue
        seen.append(type_)
        assert all(widens(one, schema.field("c").type) for one in seen)

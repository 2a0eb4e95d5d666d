"""Schemas: storage types, ids, merge and promotion."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakehouse_source.errors import SchemaMismatchError
from lakehouse_source.schema.fields import (
    field_id,
    find_field,
    find_name,
    leaves,
    max_id,
    storage_type,
    without_metadata,
)
from lakehouse_source.schema.merge import dataframe_schema, initial, merge, storage_schema


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
    assert without_metadata(schema).field("s").type == pa.struct(
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


@pytest.mark.parametrize(
    "type_",
    [
        pa.month_day_nano_interval(),
        pa.dense_union([]),
        pa.struct([]),
        pa.list_(pa.int32(), 0),  # Arrow writes it, and cannot read the file
        pa.binary(0),
        pa.decimal128(5, -2),
        pa.decimal32(3, 4),
    ],
)
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


def test_merge_answers_the_same_object_when_nothing_changes() -> None:
    schema = initial(pa.schema([("a", pa.int64()), ("s", pa.struct([("x", pa.int8())]))]))
    assert merge(schema, without_metadata(schema)) is schema
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


def test_a_name_is_found_whatever_its_case_the_exact_one_first() -> None:
    names = ["ID", "id", "Straße"]
    assert find_name("id", names) == "id"
    assert find_name("Id", names) == "ID"
    assert find_name("STRAßE", names) == "Straße"
    assert find_name("i", names) is None
    schema = pa.schema([("A", pa.int8()), ("a", pa.int16())])
    assert find_field("a", schema) == schema.field(1)
    assert find_field("b", schema) is None


REQUIRED = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("l", pa.list_(pa.field("item", pa.int8(), nullable=False)), nullable=False),
        pa.field("s", pa.struct([pa.field("x", pa.int8(), nullable=False)])),
        pa.field("m", pa.map_(pa.string(), pa.field("value", pa.int8(), nullable=False))),
    ]
)
OPTIONAL = pa.schema(
    [
        ("id", pa.int64()),
        ("l", pa.list_(pa.int8())),
        ("s", pa.struct([("x", pa.int8())])),
        ("m", pa.map_(pa.string(), pa.int8())),
    ]
)


def test_columns_of_a_frame_are_nullable_and_those_of_an_arrow_schema_as_declared() -> None:
    assert without_metadata(initial(REQUIRED)) == REQUIRED
    of_frame = initial(storage_schema(dataframe_schema(REQUIRED)))
    assert without_metadata(of_frame) == OPTIONAL
    assert of_frame.field("m").type.key_field.nullable is False


def test_a_frame_adds_nullable_columns_and_leaves_the_others_as_they_are() -> None:
    mine = pa.schema([REQUIRED.field("id"), ("s", pa.struct([("y", pa.int8())]))])
    for current in (initial(mine), initial(OPTIONAL)):
        merged = merge(current, dataframe_schema(REQUIRED), add_columns=True)
        assert merged.field("id").nullable is current.field("id").nullable
        for name in ("l", "m"):
            assert without_metadata(merged).field(name) == OPTIONAL.field(name)
        assert merged.field("s").type.field("x").nullable


def test_a_nullable_column_takes_in_one_that_is_not() -> None:
    current = initial(OPTIONAL)
    assert merge(current, REQUIRED, add_columns=True) is current

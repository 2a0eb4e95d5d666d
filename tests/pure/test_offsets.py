"""Arrays without a buffer of offsets, as Spark 4.1 sends them inside lists that are all empty."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import lakehouse_source as lake
from lakehouse_source.schema.arrow_arrays import with_offsets

INT = pa.int32()
NO_BYTES = pa.py_buffer(b"")


def empty(type_: pa.DataType, offsets: pa.Buffer | None) -> pa.Array:
    """An array of no values whose offsets are missing: no buffer, or one of no bytes."""
    if pa.types.is_string(type_):
        return pa.Array.from_buffers(type_, 0, [None, offsets, NO_BYTES])
    if pa.types.is_struct(type_):
        children = [empty(type_.field(i).type, offsets) for i in range(type_.num_fields)]
        return pa.Array.from_buffers(type_, 0, [None], children=children)
    if pa.types.is_map(type_):
        entries = pa.struct([type_.key_field, type_.item_field])
        return pa.Array.from_buffers(type_, 0, [None, offsets], children=[empty(entries, offsets)])
    if pa.types.is_list(type_):
        return pa.Array.from_buffers(
            type_, 0, [None, offsets], children=[empty(type_.value_type, offsets)]
        )
    return pa.array([], type_)


def empty_lists(value_type: pa.DataType, missing: pa.Buffer | None) -> pa.Array:
    """Three lists: two that are empty, and NULL."""
    offsets = pa.py_buffer(bytes(4 * 4))
    validity = pa.py_buffer(bytes([0b011]))
    return pa.Array.from_buffers(
        pa.list_(value_type), 3, [validity, offsets], children=[empty(value_type, missing)]
    )


TYPES = [
    pa.list_(INT),
    pa.string(),
    pa.struct([("a", pa.list_(INT)), ("b", pa.string())]),
    pa.map_(pa.string(), pa.list_(INT)),
    pa.list_(pa.list_(pa.map_(pa.string(), INT))),
]


@pytest.mark.parametrize("missing", [None, NO_BYTES], ids=["no buffer", "no bytes"])
@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_lists_that_are_all_empty_are_written(
    type_: pa.DataType, missing: pa.Buffer | None, tmp_path: Any
) -> None:
    batch = pa.record_batch({"n": [1, 2, 3], "lists": empty_lists(type_, missing)})
    lake.write_dataset(batch, tmp_path, partition_by="n")
    found = lake.read_dataset(tmp_path).sort_by("n")
    assert found["lists"].to_pylist() == [[], [], None]


@pytest.mark.parametrize("missing", [None, NO_BYTES], ids=["no buffer", "no bytes"])
@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_a_struct_around_such_lists_keeps_its_values(
    type_: pa.DataType, missing: pa.Buffer | None
) -> None:
    inner = pa.StructArray.from_arrays([empty_lists(type_, missing)], ["lists"])
    batch = with_offsets(pa.record_batch({"s": inner}))
    batch.validate(full=True)
    assert batch.nbytes >= 0
    assert batch["s"].to_pylist() == [{"lists": []}, {"lists": []}, {"lists": None}]


@pytest.mark.parametrize("missing", [None, NO_BYTES], ids=["no buffer", "no bytes"])
def test_every_offset_is_there(missing: pa.Buffer | None) -> None:
    lists = with_offsets(pa.record_batch({"a": empty_lists(pa.list_(INT), missing)}))["a"]
    assert lists.values.buffers()[1].size >= 4
    no_rows = pa.record_batch({"a": empty(pa.string(), missing)})
    assert with_offsets(no_rows)["a"].buffers()[1].size >= 4


def test_a_batch_with_offsets_stays_as_it_is() -> None:
    batch = pa.record_batch({"a": [[1], []], "b": [{"x": "y"}, None]})
    assert with_offsets(batch) is batch

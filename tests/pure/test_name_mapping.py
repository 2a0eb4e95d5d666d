"""Columns of files that plake did not write: found by name."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakehouse_source.errors import SchemaMismatchError
from lakehouse_source.parquet.names import copy_name, is_foreign, is_of_write, own_name
from lakehouse_source.schema.fields import field_id, leaves
from lakehouse_source.schema.merge import initial
from lakehouse_source.schema.paths import check_reads_exactly, with_ids_by_name

LOGICAL = initial(
    pa.schema(
        [
            ("a", pa.int64()),
            ("s", pa.struct([("x", pa.int64()), ("y", pa.string())])),
            ("m", pa.map_(pa.string(), pa.struct([("z", pa.int64())]))),
            ("l", pa.list_(pa.int64())),
        ]
    )
)


def ids(schema: pa.Schema) -> dict[str, int]:
    return {".".join(leaf.path): leaf.id for leaf in leaves(schema)}


def test_fields_get_the_ids_of_fields_of_the_same_name() -> None:
    theirs = {b"PARQUET:field_id": b"1"}
    physical = pa.schema(
        [
            pa.field("L", pa.large_list(pa.field("item", pa.int32(), metadata=theirs))),
            pa.field("other", pa.string(), metadata=theirs),
            pa.field("S", pa.struct([("Y", pa.string()), ("w", pa.int8()), ("x", pa.int8())])),
            pa.field("m", pa.map_(pa.string(), pa.struct([("q", pa.int8()), ("Z", pa.int8())]))),
            pa.field("A", pa.int8(), metadata=theirs),
        ]
    )
    found = with_ids_by_name(physical, LOGICAL)
    known = {name.lower(): number for name, number in ids(LOGICAL).items()}
    assert [field.type for field in found] == [field.type for field in physical]
    assert found.names == physical.names
    assert field_id(found.field("other")) is None
    expected = {"l.item", "s.y", "s.x", "m.key", "m.value.z", "a"}
    got = {name.lower(): number for name, number in ids(found).items()}
    # The element of a list has no name of its own: it is found by position.
    renamed = {**known, "l.item": next(v for k, v in known.items() if k.startswith("l."))}
    assert got == {name: renamed[name] for name in expected}


def test_of_two_spellings_the_datasets_own_is_meant() -> None:
    logical = initial(pa.schema([("a", pa.int64()), ("b", pa.int64())]))
    physical = pa.schema([("A", pa.int64()), ("a", pa.int64())])
    assert [field_id(field) for field in with_ids_by_name(physical, logical)] == [None, 1]


def test_a_column_that_was_renamed_since_is_found_by_its_old_name() -> None:
    """A file keeps the version of the schema that it was added under."""
    found = with_ids_by_name(pa.schema([("a", pa.int64())]), LOGICAL)
    assert field_id(found.field("a")) == field_id(LOGICAL.field("a"))


@pytest.mark.parametrize(
    ("field", "fits"),
    [
        (pa.field("a", pa.int32()), True),
        (pa.field("a", pa.uint64()), False),
        (pa.field("a", pa.struct([("x", pa.int64())])), False),
        (pa.field("s", pa.struct([("X", pa.int8())])), True),
        (pa.field("s", pa.struct([("q", pa.int8())])), False),
        (pa.field("s", pa.list_(pa.int8())), False),
        (pa.field("l", pa.large_list(pa.int8())), True),
        (pa.field("l", pa.list_(pa.string())), False),
        (pa.field("m", pa.map_(pa.string(), pa.struct([("z", pa.int8())]))), True),
        (pa.field("m", pa.map_(pa.int64(), pa.struct([("z", pa.int8())]))), False),
        (pa.field("new", pa.int64()), False),
    ],
)
def test_only_types_whose_values_all_fit_are_taken(field: pa.Field, fits: bool) -> None:
    if fits:
        assert check_reads_exactly([field], list(LOGICAL)) == []
        return
    with pytest.raises(SchemaMismatchError, match=field.name):
        check_reads_exactly([field], list(LOGICAL))


def test_names_tell_who_wrote_a_file() -> None:
    write = "0190f5f2-7a3b-7c4d-8e5f-0123456789ab"
    own, copied = f"k=1/{write}-{write}.parquet", f"k=1/{copy_name(write)}"
    assert (is_foreign(own), is_foreign(copied), is_foreign("part-0.parquet")) == (
        False,
        True,
        True,
    )
    assert is_of_write(own, write)
    assert is_of_write(copied, write)
    assert not is_of_write(own, write.replace("0190", "0191"))
    assert own_name(f"x{write}-{write}.parquet") is None
    assert own_name("part-0.parquet") is None

"""Bringing columns to a schema, and the folders that partition values make."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse_source.errors import CorruptDatasetError, SchemaMismatchError
from lakehouse_source.model import FileRecord
from lakehouse_source.schema.align import align, by_id, by_name
from lakehouse_source.schema.arrow_arrays import relabel
from lakehouse_source.schema.fields import SPARK_TYPE, children, rebuild, without_metadata
from lakehouse_source.schema.merge import initial
from lakehouse_source.schema.partitions import (
    HIVE_NULL,
    PartitionTexts,
    check_partition_columns,
    partition_folder,
    partition_text,
    partition_value,
)
from tests.nested_nulls import NESTED_NULLS


def aligned(table: pa.Table, target: pa.Schema) -> pa.Table:
    return align(table, target, table.schema, by_name)


class TestAlign:
    def test_names_match_whatever_their_case_the_exact_one_first(self) -> None:
        table = pa.table({"B": [1], "a": [2]})
        target = pa.schema([("A", pa.int64()), ("b", pa.int32()), ("c", pa.string())])
        assert aligned(table, target).to_pylist() == [{"A": 2, "b": 1, "c": None}]

    def test_nested_fields_are_renamed_reordered_added_and_cast(self) -> None:
        rows = [{"Y": "y", "X": 1}, None, {"Y": None, "X": 3}]
        table = pa.table({"s": pa.array(rows)}).slice(1)
        inner = [("x", pa.int64()), ("y", pa.string()), ("z", pa.int8())]
        result = aligned(table, pa.schema([("s", pa.struct(inner))]))
        assert result["s"].to_pylist() == [None, {"x": 3, "y": None, "z": None}]

    @pytest.mark.parametrize(
        ("type_", "renamed", "value"),
        [
            (
                pa.list_(pa.struct([("A", pa.int8())])),
                pa.list_(pa.struct([("a", pa.int8())])),
                [{"A": 1}, None],
            ),
            (
                pa.map_(pa.string(), pa.struct([("A", pa.int8())])),
                pa.map_(pa.string(), pa.struct([("a", pa.int8())])),
                [("k", {"A": 1}), ("l", None)],
            ),
            (
                pa.list_(pa.struct([("A", pa.int8())]), 2),
                pa.list_(pa.struct([("a", pa.int8())]), 2),
                [{"A": 1}, {"A": 2}],
            ),
        ],
    )
    def test_relabelling_touches_no_value(
        self, type_: pa.DataType, renamed: pa.DataType, value: object
    ) -> None:
        array = pa.array([value, None, value, value], type_).slice(1, 2)
        result = relabel(array, renamed)
        result.validate(full=True)
        assert result.type.equals(renamed)
        assert repr(result.to_pylist()) == repr(array.to_pylist()).replace("'A'", "'a'")

    @pytest.mark.parametrize("kind", [pa.large_list, pa.list_view, pa.large_list_view, pa.list_])
    def test_lists_of_every_layout_keep_their_elements(
        self, kind: Callable[[pa.DataType], pa.DataType]
    ) -> None:
        """Large lists were read with the offsets of small ones: rows shifted, or a crash."""
        element = pa.struct([("A", kind(pa.int16()))])
        rows = [[{"A": [1, 2]}, None], None, [], [{"A": None}, {"A": []}], [{"A": [3]}], [None]]
        array = pa.array(rows, kind(element))
        target = pa.schema(
            [("c", pa.list_(pa.struct([("a", pa.list_(pa.int64()))]))), ("s", pa.struct(
                [("x", pa.list_(pa.struct([("a", pa.list_(pa.int64()))])))]
            ))]
        )  # fmt: skip
        nested = pa.StructArray.from_arrays([array], names=["X"])
        for start, count in ((0, 6), (1, 4), (3, 2), (5, 1), (0, 0)):
            table = pa.table({"c": array, "s": nested}).slice(start, count)
            found = aligned(table, target)
            found.validate(full=True)
            want = repr(rows[start : start + count]).replace("'A'", "'a'")
            assert repr(found["c"].to_pylist()) == want
            assert repr([row["x"] for row in found["s"].to_pylist()]) == want

    def test_columns_follow_their_ids_through_a_rename(self) -> None:
        then = initial(pa.schema([("old", pa.int32()), ("other", pa.int32())]))
        now = pa.schema([then.field("old").with_name("new")])
        table = pa.table({"old": pa.array([1], pa.int32()), "other": pa.array([2], pa.int32())})
        assert align(table, now, then, by_id).to_pylist() == [{"new": 1}]

    def test_a_value_that_does_not_fit_is_refused(self) -> None:
        with pytest.raises(SchemaMismatchError, match="does not fit"):
            aligned(pa.table({"a": [300]}), pa.schema([("a", pa.int8())]))

    @pytest.mark.parametrize(
        "target",
        [
            pa.schema([pa.field("a", pa.int64(), nullable=False)]),
            pa.schema([("l", pa.list_(pa.field("item", pa.int64(), nullable=False)))]),
        ],
    )
    def test_nulls_where_none_may_be_are_refused(self, target: pa.Schema) -> None:
        table = pa.table({"a": [1, None], "l": [[1, None], []]})
        with pytest.raises(SchemaMismatchError, match="not nullable"):
            aligned(table, target)


VALUES = [
    (None, pa.string(), HIVE_NULL),
    ("", pa.string(), ""),
    (HIVE_NULL, pa.string(), "%5F_HIVE_DEFAULT_PARTITION__"),
    ("a b/c=d%", pa.string(), "a b%2Fc%3Dd%25"),
    ("..", pa.string(), "%2E."),
    ("é", pa.string(), "%C3%A9"),
    ("nul\x00", pa.string(), "nul%00"),
    (True, pa.bool_(), "true"),
    (-5, pa.int8(), "-5"),
    (datetime.date(1, 1, 1), pa.date32(), "0001-01-01"),
    (
        datetime.datetime(2020, 1, 2, 3, 4, 5, 6),
        pa.timestamp("us"),
        "2020-01-02 03%3A04%3A05.000006",
    ),
    (decimal.Decimal("1E+1"), pa.decimal128(4, 1), "10"),
]


NAN = float("nan")
DAY, NOON = datetime.datetime(1899, 12, 31), datetime.datetime(1899, 12, 31, 12)
INNER = pa.struct([("f", pa.float64()), ("g", pa.int8())])
NARROW = pa.struct([("f", pa.float32()), ("g", pa.int8())])


class TestCastsThatArrowDoesNotCheck:
    """As of rows that were written after a promotion that a restore took back."""

    @pytest.mark.parametrize(
        ("values", "source", "target", "named"),
        [
            ([DAY, NOON, None], pa.timestamp("ms"), pa.date32(), "1899-12-31 12:00:00"),
            ([1.5, None, 1.1], pa.float64(), pa.float32(), "1.1"),
            ([1e300], pa.float64(), pa.float32(), r"1e\+300"),
            ([{"f": 1.1, "g": 1}], INNER, NARROW, "1.1"),
            ([None, [1.5], [1.5, 1.1]], pa.list_(pa.float64()), pa.list_(pa.float32()), "1.1"),
            (
                [[("k", {"f": 1.1})]],
                pa.map_(pa.string(), INNER),
                pa.map_(pa.string(), NARROW),
                "1.1",
            ),
        ],
    )
    def test_a_value_that_would_be_rounded_is_refused(
        self, values: list[object], source: pa.DataType, target: pa.DataType, named: str
    ) -> None:
        table = pa.table(
            {"c": pa.chunked_array([pa.array(values[:1], source), pa.array(values[1:], source)])}
        )
        with pytest.raises(SchemaMismatchError, match=f"value {named}.* does not fit"):
            aligned(table, pa.schema([("c", target)]))

    @pytest.mark.parametrize(
        ("values", "source", "target"),
        [
            ([DAY, None], pa.timestamp("ms"), pa.date32()),
            ([1.5, NAN, None, -0.0, float("inf")], pa.float64(), pa.float32()),
            ([{"f": NAN, "g": 1}, None, {"f": None}], INNER, NARROW),
            ([[1.5, NAN], None, []], pa.list_(pa.float64()), pa.list_(pa.float32())),
            ([], pa.float64(), pa.float32()),
        ],
    )
    def test_values_that_fit_are_taken(
        self, values: list[object], source: pa.DataType, target: pa.DataType
    ) -> None:
        table = pa.table({"c": pa.array(values, source)})
        expected = pa.table({"c": pa.array(values, source).cast(target)})
        assert repr(aligned(table, expected.schema).to_pydict()) == repr(expected.to_pydict())

    def test_a_hidden_value_under_a_null_does_not_count(self) -> None:
        hidden = pa.StructArray.from_arrays(
            [pa.array([1.1, 1.5]), pa.array([1, 2], pa.int8())],
            fields=list(INNER),
            mask=pa.array([True, False]),
        )
        found = aligned(pa.table({"c": hidden}), pa.schema([("c", NARROW)]))
        assert found["c"].to_pylist() == [None, {"f": 1.5, "g": 2}]


class TestPartitions:
    @pytest.mark.parametrize(("value", "type_", "folder"), VALUES)
    def test_folders_and_values(self, value: object, type_: pa.DataType, folder: str) -> None:
        assert partition_folder({"k": value}) == f"k={folder}"
        back = partition_value(partition_text(value, type_), type_)
        assert back == (None if value is None else pa.scalar(value, type_))

    def test_a_value_too_long_for_a_file_name_is_cut_and_stays_unique(self) -> None:
        one, two = partition_folder({"k": "x" * 400}), partition_folder({"k": "x" * 401})
        assert one != two
        assert len(one) < 255

    @given(st.text(max_size=60), st.text(max_size=60))
    def test_two_values_never_share_a_folder(self, left: str, right: str) -> None:
        same = partition_folder({"k": left}) == partition_folder({"k": right})
        assert same == (left == right)
        assert "/" not in partition_folder({"k": left})

    def test_a_text_that_is_no_value_of_the_type(self) -> None:
        with pytest.raises(CorruptDatasetError, match="not a value of type"):
            partition_value('"x"', pa.int32())

    @pytest.mark.parametrize(
        ("columns", "message"),
        [
            (("nope",), "in partition_by and not in the data"),
            (("a", "A"), "given twice"),
            (("f",), "cannot partition"),
            (("l",), "cannot partition"),
            (("c",), "has a collation"),
        ],
    )
    def test_columns_that_cannot_partition(self, columns: tuple[str, ...], message: str) -> None:
        collated = {SPARK_TYPE: b'"string collate UTF8_LCASE"'}
        schema = pa.schema([("a", pa.int8()), ("f", pa.float64()), ("l", pa.list_(pa.int8()))])
        schema = schema.append(pa.field("c", pa.string(), metadata=collated))
        with pytest.raises(SchemaMismatchError, match=message):
            check_partition_columns(schema, columns)

    def test_something_must_be_left_for_the_files(self) -> None:
        with pytest.raises(SchemaMismatchError, match="files would have no column"):
            check_partition_columns(pa.schema([("a", pa.int8())]), ("a",))


def with_leaf(type_: pa.DataType, leaf: pa.DataType) -> pa.DataType:
    """The type with a type for nested NULLs that have none, and wider integers."""
    if pa.types.is_null(type_):
        return leaf
    below = [field.with_type(with_leaf(field.type, leaf)) for field in children(type_)]
    return rebuild(type_, below) if below else {pa.int32(): pa.int64()}.get(type_, type_)


LEAVES = (pa.null(), pa.int64(), pa.string(), pa.decimal128(5, 2), pa.list_(pa.int8()))


@pytest.mark.parametrize("leaf", LEAVES, ids=str)
def test_a_slice_with_nested_nulls_without_a_type(leaf: pa.DataType) -> None:
    """A raw error of Arrow, or the end of the process: its casts miscount such NULLs."""
    for name, whole in NESTED_NULLS.items():
        stored = without_metadata(initial(pa.schema([("x", whole.type)])))
        target = pa.schema([("x", with_leaf(stored.field("x").type, leaf))])
        for first, count in ((0, 3), (1, 2), (2, 1), (1, 0)):
            found = aligned(pa.table({"x": whole.slice(first, count)}), target)
            found.validate(full=True)
            assert found["x"].to_pylist() == whole.to_pylist()[first : first + count], name


def test_a_nested_field_that_was_dropped_and_added_again_is_another_one():
    """Same name, same type, another id: the old values belong to nobody."""

    def struct(*fields: tuple[str, int]) -> pa.Field:
        inner = [
            pa.field(name, pa.int64(), metadata={b"PARQUET:field_id": str(id_).encode()})
            for name, id_ in fields
        ]
        return pa.field("st", pa.struct(inner), metadata={b"PARQUET:field_id": b"1"})

    stored = pa.table({"st": [{"x": 1, "y": 2}, None, {"x": 3, "y": 4}]})
    old, new = struct(("x", 2), ("y", 3)), struct(("x", 2), ("y", 4))
    found = align(stored, pa.schema([new]), pa.schema([old]), by_id)
    assert found["st"].to_pylist() == [{"x": 1, "y": None}, None, {"x": 3, "y": None}]
    swapped = struct(("y", 2), ("x", 3))  # each was given the name of the other
    found = align(stored, pa.schema([swapped]), pa.schema([old]), by_id)
    assert found["st"].to_pylist() == [{"y": 1, "x": 2}, None, {"y": 3, "x": 4}]
    same = align(stored, pa.schema([old]), pa.schema([old]), by_id)
    assert same["st"].to_pylist() == stored["st"].to_pylist()


def test_a_partition_column_has_no_value_of_another_one_that_had_its_name() -> None:
    """It had, in files of a schema that was replaced as a whole."""
    fields = [("a", pa.int64()), ("p", pa.string())]
    schemas = {1: initial(pa.schema(fields)), 5: initial(pa.schema(fields), 3)}
    texts = PartitionTexts(("p",), schemas[5], schemas)
    old, new = (FileRecord(1, "f", 1, 1, at, at, {"p": '"x"'}, True, 0) for at in (1, 5))
    assert (texts(old), texts.keys(1)) == ((None,), ())
    assert (texts(new), texts.keys(5)) == (('"x"',), ("p",))

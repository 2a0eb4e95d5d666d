"""Partition values in the names of folders."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.schema.ordinal import to_ordinal
from lakehouse_source.schema.partitions import (
    folder_values,
    inferred_type,
    partition_folder,
    same_keys,
    typed_value,
)

VALUES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.string(), st.text(max_size=20)),
    (pa.int8(), st.integers(-128, 127)),
    (pa.uint64(), st.integers(0, 2**64 - 1)),
    (pa.bool_(), st.booleans()),
    (pa.date32(), st.dates()),
    (pa.timestamp("us"), st.datetimes()),
    (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(timezone.utc))),
    (pa.decimal128(9, 3), st.decimals(-(10**5), 10**5, places=3)),
]


@given(data=st.data())
def test_a_folder_that_plake_names_is_read_as_the_value(data: st.DataObject) -> None:
    """The folder's name is that of the writer; values are short enough to be there whole."""
    type_, values = data.draw(st.sampled_from(VALUES))
    key = data.draw(st.text(min_size=1, max_size=5).filter(lambda text: text.isprintable()))
    value = data.draw(st.none() | values)
    folder = partition_folder({key: value})
    (text,) = folder_values([folder], "f").values()
    assert folder_values([folder], "f") == {key: text}
    found = typed_value(text, type_, key, "f")
    assert found is value or to_ordinal(found, type_) == to_ordinal(value, type_)


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ("k=a%20b", {"k": "a b"}),
        ("k=a b+c", {"k": "a b+c"}),
        ("k=%2541", {"k": "%41"}),
        ("k=a=b", {"k": "a=b"}),
        ("k=", {"k": ""}),
        ("k=__HIVE_DEFAULT_PARTITION__", {"k": None}),
        ("%C3%BC=%zz", {"ü": "%zz"}),
        ("plain", {}),
    ],
)
def test_names_of_folders_are_decoded_once(folder: str, expected: dict[str, str | None]) -> None:
    assert folder_values(["2024", folder], "f") == expected


@pytest.mark.parametrize("folders", [["=x"], ["k=1", "K=2"], ["k=%FF"]])
def test_names_that_give_no_value_are_refused(folders: list[str]) -> None:
    with pytest.raises(InvalidOptionError, match="the file"):
        folder_values(folders, "the file")


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("", pa.int32()),
        ("1.0", pa.int32()),
        ("1_0", pa.int32()),
        ("٣", pa.int32()),
        ("128", pa.int8()),
        ("-1", pa.uint8()),
        ("yes", pa.bool_()),
        ("2024-1-1", pa.date32()),
        ("2024-02-30", pa.date32()),
        ("noon", pa.timestamp("us")),
        ("2024-01-01 00:00:00.5", pa.timestamp("s")),
        ("2024-01-01 00:00:00.1234567", pa.timestamp("us")),
        ("2024-01-01 00:00:00.123456001", pa.timestamp("us", "UTC")),
        ("2024-01-01 00:00:00+01:00", pa.timestamp("us")),
        ("1.2345", pa.decimal128(9, 3)),
        ("1234567", pa.decimal128(9, 3)),
        ("NaN", pa.decimal128(9, 3)),
        ("1_0", pa.decimal128(9, 3)),
        ("٣", pa.decimal128(9, 3)),
        (" 1", pa.decimal128(9, 3)),
        ("1", pa.float64()),
    ],
)
def test_a_text_that_is_no_value_of_the_type_is_refused(text: str, type_: pa.DataType) -> None:
    with pytest.raises(InvalidOptionError, match="not a value of type"):
        typed_value(text, type_, "k", "f")


def test_a_long_value_that_plake_cut_is_refused() -> None:
    with pytest.raises(InvalidOptionError, match="cut"):
        folder_values([partition_folder({"k": "x" * 500})], "f")


def test_values_are_of_the_columns_type() -> None:
    assert typed_value("007", pa.int32(), "k", "f") == 7
    assert typed_value("2024-01-02", pa.date32(), "k", "f") == date(2024, 1, 2)
    moment = datetime(2024, 1, 2, 3, 4, 5)
    assert typed_value("2024-01-02 03:04:05", pa.timestamp("us"), "k", "f") == moment
    assert typed_value("1.5", pa.decimal128(9, 3), "k", "f") == Decimal("1.5")
    assert typed_value(None, pa.int32(), "k", "f") is None


@pytest.mark.parametrize(
    ("texts", "type_"),
    [
        ([None], pa.string()),
        (["1", None], pa.int32()),
        (["2147483647"], pa.int32()),
        (["2147483648"], pa.int64()),
        (["9223372036854775808"], pa.string()),
        (["2024-01-01"], pa.date32()),
        (["2024-01-01", "1"], pa.string()),
    ],
)
def test_the_type_fits_every_value(texts: list[str | None], type_: pa.DataType) -> None:
    assert inferred_type(texts) == type_


def test_all_files_need_the_same_keys() -> None:
    assert same_keys({"a": {"k": "1", "j": None}, "b": {"j": "2", "k": "3"}}) == ("k", "j")
    with pytest.raises(InvalidOptionError, match="partitioning=None"):
        same_keys({"a": {"k": "1"}, "b": {}})

"""`suggest_layout()` tells about what `explain()` says of a dataset that is laid out so."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakehouse_source as lake
from lakehouse_source.errors import InvalidOptionError, InvalidPredicateError
from lakehouse_source.read import suggest_layout
from lakehouse_source.read.suggest_layout import LayoutChoice, Sample
from lakehouse_source.schema.fields import Leaf

pytestmark = pytest.mark.slow

SMALL: dict[str, Any] = {"row_group_rows": 400, "target_file_size_bytes": 30_000}
ROWS = 16_000


def rows() -> pa.Table:
    rng = random.Random(4)
    return pa.table(
        {
            "a": pa.array([rng.randrange(5000) for _ in range(ROWS)], pa.int32()),
            "b": [
                None if rng.random() < 0.1 else f"name {rng.randrange(900):05}" for _ in range(ROWS)
            ],
            "s": [{"x": rng.choice([rng.random(), float("nan")])} for _ in range(ROWS)],
            "p": [rng.choice("wxyz") for _ in range(ROWS)],
            "key": [rng.randrange(10**12) for _ in range(ROWS)],
        }
    )


def read_when_laid_out(uri: Path, choice: LayoutChoice, conditions: Sequence[str]) -> list[int]:
    """What the catalog says of a dataset that has the layout."""
    by = {"partition_by": choice.partition_by or None, "cluster_by": choice.cluster_by or None}
    lake.write_dataset(rows(), uri, **SMALL, **by)
    dataset = lake.open_dataset(uri)
    if choice.cluster_by:
        dataset.cluster(full=True)
    return [dataset.scan(one).explain().bytes_read for one in conditions]


@pytest.mark.long
def test_estimates_are_near_what_the_layouts_read(tmp_path: Path) -> None:
    conditions = [
        "a BETWEEN 1000 AND 1100",
        "b = 'name 00077'",
        "b IS NULL AND a < 2500",
        "p = 'x' AND a > 4900",
        "s.x < 0.01",
        "year(current_date()) > 1990 AND a = 7",
    ]
    lake.write_dataset(rows(), tmp_path / "d", **SMALL)
    dataset = lake.open_dataset(tmp_path / "d")
    advice = dataset.suggest_layout(conditions)
    assert dataset.refresh().version == advice.version == 1
    assert advice.sampled_rows == ROWS
    now = advice.choices[0]
    assert now.is_now
    assert list(now.bytes_by_condition) == [
        dataset.scan(one).explain().bytes_read for one in conditions
    ]
    tried = [one for one in advice.choices[1:] if not one.bloom_filter_columns]
    assert len({one.cluster_by for one in tried}) > 3
    assert any(one.partition_by == ("p",) for one in tried)
    for number, choice in enumerate(tried[:6]):
        found = read_when_laid_out(tmp_path / str(number), choice, conditions)
        assert choice.bytes_read == pytest.approx(sum(found), rel=0.15)
    assert not advice.is_good
    least = min(one.bytes_read for one in advice.choices)
    assert least <= advice.best.bytes_read < least / 0.9 < now.bytes_read / 2
    assert advice.best.cluster_by[0] in ("a", "b")


def test_a_layout_that_fits_is_kept(tmp_path: Path) -> None:
    lake.write_dataset(rows().sort_by("a"), tmp_path / "d", **SMALL)
    advice = lake.open_dataset(tmp_path / "d").suggest_layout("a = 77")
    assert advice.is_good
    assert "as it is, best" in str(advice)


def test_a_sample_stands_for_all_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several files of unequal size, in part deleted, partitioned already."""
    monkeypatch.setattr(suggest_layout, "_PLACES", 40)
    monkeypatch.setattr(suggest_layout, "_ROWS", 90)
    whole, uri = rows(), tmp_path / "d"
    for start, count in ((0, 10_000), (10_000, 500), (10_500, 5500)):
        lake.write_dataset(whole.slice(start, count), uri, **SMALL, partition_by="p")
    dataset = lake.open_dataset(uri)
    dataset.delete("key < 100000000000")
    advice = dataset.suggest_layout(["a BETWEEN 1000 AND 1100"])
    assert 2000 < advice.sampled_rows < 6000
    by_a = [one for one in advice.choices if one.cluster_by == ("a",)]
    assert sorted(one.partition_by for one in by_a) == [(), ("p",)]
    for one in by_a:
        found = read_when_laid_out(tmp_path / str(one.partition_by), one, advice.conditions)
        assert one.bytes_read == pytest.approx(sum(found), rel=0.5)


@pytest.mark.long
def test_values_that_a_sample_lacks_are_somewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every third value is between those of two parts of three rows."""
    for name, value in (("_PLACES", 40), ("_ROWS", 90), ("_PART_ROWS", 3)):
        monkeypatch.setattr(suggest_layout, name, value)
    lake.write_dataset(rows(), tmp_path / "d", **SMALL | {"row_group_rows": 10})
    keys = rows()["key"].to_pylist()[:30]
    choices = lake.open_dataset(tmp_path / "d").suggest_layout([f"key = {k}" for k in keys]).choices
    by_key = next(one for one in choices if one.cluster_by == ("key",))
    assert all(size > 0 for size in by_key.bytes_by_condition)


def test_distinct_values_are_estimated() -> None:
    leaf = Leaf(("v",), 1, pa.int64(), False)
    draw = random.Random(3)
    for values, expected in (
        (range(1000), 100_000),  # all differ
        ([n % 10 for n in range(1000)], 10),
        ([draw.randrange(2000) for _ in range(1000)], 2000),
        ([None] * 5, 1),
    ):
        sample = Sample(pa.table({"v": pa.array(values, pa.int64())}), [leaf], 100_000, 1.0)
        assert sample.distinct(1) == pytest.approx(expected, rel=0.2)


def test_bloom_filters_are_for_values_that_are_anywhere(tmp_path: Path) -> None:
    key = rows()["key"][5].as_py()
    lake.write_dataset(rows(), tmp_path / "d", **SMALL)
    dataset = lake.open_dataset(tmp_path / "d")
    # Every column of its own, so that clustering by all of them helps each little.
    conditions = [f"key = {key}", "a = 5", "b = 'name 00077'", "s.x = 0.5", "p = 'x' AND a < 9"]
    best = dataset.suggest_layout(conditions).best
    assert "key" in best.bloom_filter_columns
    dataset.set_properties(bloom_filter_columns=["key"])
    known = dataset.suggest_layout([f"key = {key}"])
    assert known.choices[0].bloom_filter_columns == ("key",)
    assert known.choices[0].bytes_read < dataset.scan(f"key = {key}").explain().bytes_read / 4
    # A value that every row group has is not ruled out by a filter.
    assert not dataset.suggest_layout(["p = 'x'"]).best.bloom_filter_columns[1:]


ODD: dict[str, tuple[pa.DataType, list[Any], str]] = {
    "all null": (pa.int64(), [None], "v = 1"),
    "floats": (pa.float64(), [float("nan"), -0.0, None, float("inf")], "v > 1"),
    "far dates": (pa.date32(), [2**31 - 1, -(2**31)], "v = DATE'2020-01-01'"),
    "far times": (pa.timestamp("us", "UTC"), [2**63 - 1, None], "v > '2020-01-01'"),
    "decimals": (pa.decimal128(38, 3), [Decimal(10) ** 34, Decimal(1)], "v = 1"),
    "binary": (pa.binary(), [b"", b"\xff" * 90], "v IS NOT NULL"),
    "booleans": (pa.bool_(), [True, False, None], "v = true"),
    "lists": (pa.list_(pa.int64()), [[1], None], "v IS NULL"),
    "dates": (pa.date32(), [date(2020, 1, 1)], "year(v) = 2020"),
}


@pytest.mark.parametrize("odd", ODD)
def test_odd_values_are_sampled(tmp_path: Path, odd: str) -> None:
    type_, values, condition = ODD[odd]
    drawn = pa.array([values[n % len(values)] for n in range(900)], type_)
    lake.write_dataset({"v": drawn, "w": range(900)}, tmp_path / "d", row_group_rows=100)
    advice = lake.open_dataset(tmp_path / "d").suggest_layout([condition, "w = 5"])
    assert advice.choices[0].bytes_by_condition[1] <= advice.size_bytes / 5
    assert all(one.bytes_read >= 0 for one in advice.choices)


def test_an_empty_dataset_and_conditions_without_columns_are_left_alone(tmp_path: Path) -> None:
    lake.write_dataset(pa.table({"v": pa.array([], pa.int64())}), tmp_path / "d")
    dataset = lake.open_dataset(tmp_path / "d")
    assert dataset.suggest_layout("v = 1").is_good
    assert dataset.suggest_layout(["TRUE"]).choices[0].bytes_read == 0


def test_a_sample_of_large_values_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suggest_layout, "_BYTES", 3_000_000)
    for number in range(5):
        values = [f"{number}-{n}" + "x" * 10_000 for n in range(100)]
        lake.write_dataset({"v": values}, tmp_path / "d", **SMALL)
    dataset = lake.open_dataset(tmp_path / "d")
    assert dataset.suggest_layout("v = 'a'").sampled_rows == 200
    dataset.delete("v >= ''")
    assert dataset.suggest_layout("v = 'a'").sampled_rows == 0


def test_wrong_conditions_are_refused(tmp_path: Path) -> None:
    lake.write_dataset({"v": [1]}, tmp_path / "d")
    dataset = lake.open_dataset(tmp_path / "d")
    wrong: Any
    for wrong in ([], ["v = 1"] * 101, [1]):
        with pytest.raises(InvalidOptionError, match="must be 1 to 100 conditions as SQL"):
            dataset.suggest_layout(wrong)
    for wrong in ("v =", "nothing = 1"):
        with pytest.raises(InvalidPredicateError):
            dataset.suggest_layout(wrong)

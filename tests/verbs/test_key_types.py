"""Upserts and merges by keys of other types than the dataset's: what matches, and what is read."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import lakehouse_source as lake
from lakehouse_source.write.statements import merge_source, row_statement
from tests.key_types import KEYS, MOMENT_TYPES, NUMBER_TYPES, compared, matches

DAYS = [datetime(2024, 1, 1) + timedelta(hours=n) for n in range(6)]


def dataset_of(values: pa.Array, path: Path, **options: Any) -> lake.Dataset:
    """A dataset with a row for each key, each in a row group of its own."""
    table = pa.table({"k": values, "row": range(len(values))})
    lake.write_dataset(table, path, row_group_rows=1, **options)
    return lake.open_dataset(path)


def matched(dataset: lake.Dataset, source: pa.Array, op: str = "=") -> set[tuple[int, int]]:
    """The pairs of rows that a MERGE finds equal: it writes the source's row into the target's."""
    found = set()
    before = dataset.version
    for place in range(len(source)):
        one = pa.table({"k": source.slice(place, 1), "place": [place]})
        merge = dataset.merge(one, f"target.k {op} source.k")
        merge.when_matched_update({"row": "-1 - target.row"}).execute()
        rows = dataset.scan("row < 0", columns=["row"]).to_table()["row"].to_pylist()
        found |= {(-1 - row, place) for row in rows}
        if rows:
            dataset.restore(before)
    return found


# --- symptoms ---------------------------------------------------------------------


def test_a_pandas_frame_finds_the_rows_of_python_datetimes(tmp_path: Path) -> None:
    """Every run inserted all rows once more: pandas counts nanoseconds, and Python microseconds."""
    lake.write_dataset({"at": DAYS, "v": [0] * 6}, tmp_path / "data")
    dataset = lake.open_dataset(tmp_path / "data")
    frame = pd.DataFrame({"at": pd.to_datetime(DAYS).as_unit("ns"), "v": range(6)})
    for _ in range(2):
        found = dataset.upsert(frame, on="at")
        assert (found.rows_updated, found.rows_inserted) == (6, 0)
    merge = dataset.merge(frame, "target.at = source.at").when_not_matched_by_source_delete()
    assert merge.execute().rows_deleted == 0
    assert dataset.scan().count_rows() == 6


def test_five_microseconds_are_not_five_milliseconds(tmp_path: Path) -> None:
    values = pa.array([5], pa.timestamp("ms"))
    dataset = dataset_of(values, tmp_path / "data")
    for unit, count in (("us", 0), ("ns", 0), ("ms", 1)):
        merge = dataset.merge({"k": pa.array([5], pa.timestamp(unit))}, "target.k = source.k")
        assert merge.when_matched_update({"row": "0"}).execute().rows_updated == count


@pytest.mark.parametrize("op", ["=", "<=>"])
@pytest.mark.parametrize("key", ["decimal128(4, 2)", "binary(1)"])
def test_null_safe_keys_of_every_type(key: str, op: str, tmp_path: Path) -> None:
    """`<=>` of DECIMAL(4,2) and of fixed-size binary ended in an error of Arrow."""
    values = KEYS[key][1]
    dataset = dataset_of(values, tmp_path / "data")
    assert matched(dataset, values, op) == matches(key, key)[op == "<=>"]


def test_a_key_of_several_moments_and_a_number(tmp_path: Path) -> None:
    zoned = [day.replace(tzinfo=timezone.utc) for day in DAYS]
    table = pa.table({"at": DAYS, "of": zoned, "n": pa.array(range(6), pa.int32())})
    lake.write_dataset(table, tmp_path / "data", partition_by="at")
    dataset = lake.open_dataset(tmp_path / "data")
    source = pa.table(
        {
            "at": table["at"].cast(pa.timestamp("ns")),
            "of": table["of"].cast(pa.timestamp("ms", "Asia/Tokyo")),
            "n": pa.array([0, 1, 2, 3, 4, 9], pa.uint64()),
        }
    )
    found = dataset.upsert(source, on=["at", "of", "n"])
    assert (found.rows_updated, found.rows_inserted) == (5, 1)


def test_years_that_nanoseconds_do_not_have(tmp_path: Path) -> None:
    values = pa.array([-(2**62), 0, 2**62], pa.timestamp("ms"))
    dataset = dataset_of(values, tmp_path / "data")
    source = pa.array([0, 1, -(2**63)], pa.timestamp("ns"))
    assert matched(dataset, source) == {(1, 0)}
    assert matched(dataset, values.cast(pa.timestamp("ms", "UTC"))) == {(0, 0), (1, 1), (2, 2)}


def test_text_is_compared_with_nanoseconds_to_the_last_digit(tmp_path: Path) -> None:
    counts = [1_700_000_000_123_456_789, 1_700_000_000_123_456_000, -1]
    dataset = dataset_of(pa.array(counts, pa.timestamp("ns")), tmp_path / "data")
    texts = ["2023-11-14 22:13:20.123456789", "2023-11-14T22:13:20.123456"]
    source = pa.array([*texts, "1969-12-31 23:59:59.999999999"])
    assert matched(dataset, source) == {(0, 0), (1, 1), (2, 2)}


def test_decimals_that_are_equal_because_their_common_type_rounds(tmp_path: Path) -> None:
    """As in Spark (`test_key_types_in_spark`): the rows are read although their bounds differ."""
    values = pa.array([Decimal("0.4"), Decimal("0.6"), Decimal(0)], pa.decimal128(38, 38))
    dataset = dataset_of(values, tmp_path / "data")
    assert matched(dataset, pa.array([Decimal(0)], pa.decimal128(38, 0))) == {(0, 0), (2, 0)}


def test_types_that_are_not_compared_are_named(tmp_path: Path) -> None:
    dataset = dataset_of(KEYS["bool"][1], tmp_path / "data")
    merge = dataset.merge({"k": [1]}, "target.k = source.k").when_matched_delete()
    with pytest.raises(lake.InvalidExpressionError, match="BOOLEAN and BIGINT are not compared"):
        merge.execute()


# --- what is read, and what conflicts ---------------------------------------------


@pytest.mark.parametrize("most", [50_000, 1])
def test_a_merge_by_another_unit_reads_only_files_that_can_match(
    most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge_source, "MOST_VALUES", most)
    for day in DAYS:
        lake.write_dataset({"k": [day], "row": [0]}, tmp_path / "data")
    dataset = lake.open_dataset(tmp_path / "data")
    keep = {task.path for task in dataset.scan(f"k <= TIMESTAMP_NTZ '{DAYS[1]}'").plan().tasks}
    for file in dataset.files():
        if file.path not in keep:
            (tmp_path / "data" / file.path).unlink()  # a file that is opened would be missing
    source = pa.table({"k": pa.array(DAYS[:2], pa.timestamp("ns")), "row": [1, 1]})
    assert dataset.upsert(source, on="k").rows_updated == 2


@pytest.mark.parametrize(("added", "conflicts"), [(DAYS[1], True), (DAYS[2], False)])
def test_a_row_that_another_commit_adds_conflicts_by_its_moment(
    added: datetime, conflicts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.write_dataset({"k": [DAYS[0]], "row": [0]}, tmp_path / "data")
    dataset = lake.open_dataset(tmp_path / "data")
    real = row_statement.commit

    def commit(*arguments: Any) -> Any:
        lake.write_dataset({"k": [added], "row": [9]}, tmp_path / "data")
        return real(*arguments)

    monkeypatch.setattr(row_statement, "commit", commit)
    source = pa.table({"k": pa.array(DAYS[:2], pa.timestamp("ns")), "row": [1, 1]})
    if conflicts:
        with pytest.raises(lake.CommitConflictError):
            dataset.upsert(source, on="k")
    else:
        dataset.upsert(source, on="k")
        assert sorted(dataset.refresh().scan().to_table()["row"].to_pylist()) == [1, 1, 9]


# --- every type against every type ------------------------------------------------

STORED = [str(type_) for type_ in (*MOMENT_TYPES, *NUMBER_TYPES)]
SAMPLE = ("date32[day]", "timestamp[us]", "timestamp[ns, tz=UTC]", "decimal128(4, 2)", "uint64")
LAYOUTS = ("row groups", "bloom filters", "partitions")
CASES = [
    pytest.param(left, layout, marks=() if sampled else pytest.mark.long)
    for place, left in enumerate(STORED)
    for number, layout in enumerate(LAYOUTS)
    for sampled in [left in SAMPLE and place % 3 == number]
    # No dataset is partitioned by a nanosecond or a fraction.
    if layout != "partitions" or not left.startswith(("timestamp[ns", "float", "double", "half"))
]


@pytest.mark.parametrize(("left", "layout"), CASES)
def test_a_merge_matches_the_rows_with_equal_keys(left: str, layout: str, tmp_path: Path) -> None:
    values = KEYS[left][1]
    options: dict[str, Any] = {
        "row groups": {},
        "bloom filters": {"bloom_filter_columns": ["k"]},
        "partitions": {"partition_by": "k"},
    }[layout]
    dataset = dataset_of(values, tmp_path / "data", **options)
    others = [right for right in KEYS if compared(left, right)]
    for place, right in enumerate(others):
        op = ("=", "<=>")[place % 2]
        merge = dataset.merge({"k": KEYS[right][1]}, f"target.k {op} source.k")
        merge.when_matched_delete().execute()
        kept = dataset.scan(columns=["row"]).to_table()["row"].to_pylist()
        gone = set(range(len(values))) - set(kept)
        assert gone == {row for row, _ in matches(left, right)[op == "<=>"]}, (right, op)
        if gone:
            dataset.restore(1)

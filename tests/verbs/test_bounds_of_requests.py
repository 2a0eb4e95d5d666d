"""What a text, a number or a list may cost is bounded where it is read, at every door."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakehouse_source as lake
from lakehouse_source.language import values as limits
from tests.doors.plake_command import plake


@pytest.fixture
def dataset(tmp_path: Path) -> lake.Dataset:
    whole = pa.array([1, 2], pa.int64())
    rows = {"i": whole, "d": whole.cast(pa.decimal128(19, 0)), "f": [1.0, 2.0], "s": ["a", "b"]}
    lake.write_dataset(rows, tmp_path / "t")
    return lake.open_dataset(tmp_path / "t")


NUMBERS = [Decimal("1E+999999999"), Decimal("-1E-999999999"), Decimal("9" * 2000), 10**5000]
LONG = "i = 1" + " " * limits.MOST_CHARACTERS
DEEP = "NOT " * 300 + "i = 1"
TEXTS = [LONG, DEEP, "i = 1E999999999BD", f"i = {'9' * 5000}", "i + " * 300 + "1 = 1"]

# Each door of Python that takes a condition.
DOORS: dict[str, Callable[[lake.Dataset, Any], Any]] = {
    "PredicateSet": lambda _, one: lake.PredicateSet.of(one),
    "scan": lambda dataset, one: dataset.scan(one),
    "explain": lambda dataset, one: dataset.scan(one).explain(),
    "to_duckdb": lambda dataset, one: dataset.scan(one).to_duckdb(),
    "delete": lambda dataset, one: dataset.delete(one),
    "update": lambda dataset, one: dataset.update({"f": 0.0}, one),
    "changes": lambda dataset, one: dataset.changes(1, where=one).to_table(),
    "overwrite_where": lambda dataset, one: lake.write_dataset(
        {"i": [1]}, dataset.uri, mode="overwrite", overwrite_where=one
    ),
}


@pytest.mark.parametrize("door", DOORS)
def test_conditions_beyond_a_bound_are_refused_where_they_are_read(
    dataset: lake.Dataset, door: str
) -> None:
    started = time.monotonic()
    for text in TEXTS:
        with pytest.raises((lake.InvalidPredicateError, lake.InvalidExpressionError)):
            DOORS[door](dataset, text)
    for number in NUMBERS:
        for column in "idfs":
            for triple in ((column, "=", number), (column, "in", [number]), (column, "<", number)):
                with pytest.raises(lake.InvalidPredicateError, match="out of range"):
                    DOORS[door](dataset, [triple])
    assert time.monotonic() - started < 8


def test_trees_of_arrow_have_the_depth_of_texts(dataset: lake.Dataset) -> None:
    def nested(depth: int) -> pc.Expression:
        found = pc.field("i") == 1
        for _ in range(depth):
            found = ~found
        return found

    assert dataset.scan(nested(100)).to_table().num_rows == 1
    with pytest.raises(lake.InvalidPredicateError, match="nested too deep"):
        dataset.scan(nested(limits.DEEPEST)).to_table()


def test_lists_have_a_bound(dataset: lake.Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_VALUES", 10)
    values = range(11)
    for condition in (
        f"i IN ({', '.join(map(str, values))})",
        [("i", "in", values)],
        [("i", "not in", list(values))],
    ):
        with pytest.raises(lake.InvalidPredicateError, match="11 values: 10 at most"):
            dataset.scan(condition)
    assert dataset.scan([("i", "in", range(10))]).to_table().num_rows == 2


@pytest.mark.parametrize(
    ("text", "rows"),
    [("d = round(d, -1000000000)", 0), ("f = round(f, -1000000000)", 0), ("i = round(i, -500)", 0)],
)
def test_rounding_to_a_coarse_place_is_no_error_of_decimals(
    dataset: lake.Dataset, text: str, rows: int
) -> None:
    assert dataset.scan(text).to_table().num_rows == rows


@pytest.mark.parametrize("length", ["'" + "9" * 100_000 + "' DAY", "9" * 100_000 + " DAY"])
def test_a_long_interval_is_refused(dataset: lake.Dataset, length: str) -> None:
    with pytest.raises(lake.InvalidPredicateError, match="interval"):
        dataset.scan(f"TIMESTAMP '2026-01-31' = TIMESTAMP '2026-01-31' + INTERVAL {length}")


@pytest.mark.parametrize(
    "number", [10**5000, -(10**5000), 2**63], ids=["5001 digits", "negative", "64 bits"]
)
def test_numbers_of_arguments_have_64_bits(dataset: lake.Dataset, number: int) -> None:
    for ask in (
        lambda: dataset.scan(version=number).to_table(),
        lambda: dataset.scan(limit=number),
        lambda: dataset.restore(number),
        lambda: dataset.changes(number).to_table(),
        lambda: dataset.expire_versions(keep_last=number),
        lambda: lake.write_dataset({"i": [1]}, dataset.uri, expected_version=number),
        lambda: lake.write_dataset({"i": [1]}, dataset.uri, txn_app_id="a", txn_version=number),
    ):
        with pytest.raises(lake.InvalidOptionError):
            ask()


@pytest.mark.parametrize(
    "given",
    [
        ["scan", "t", "--where", DEEP],
        ["scan", "t", "--where", "i = 1E999999999BD"],
        ["scan", "t", "--version", "9" * 5000],
        ["changes", "t", "--start", "9" * 5000],
        ["scan", "t", "--columns", 'i,"a'],
        ["scan", "t", "--columns", "i\nnone"],
        ["delete", "t", "--where", DEEP, "--yes"],
    ],
)
def test_the_command_line_says_what_is_wrong(
    dataset: lake.Dataset, tmp_path: Path, given: list[str]
) -> None:
    done = plake(*given, folder=str(tmp_path))
    assert done.code in (1, 2)
    assert "Traceback" not in done.err


def test_columns_may_stand_on_several_lines(dataset: lake.Dataset, tmp_path: Path) -> None:
    """A line break in `--columns` ended in a traceback."""
    done = plake("scan", "t", "--columns", "i\ns", "--output", "csv", folder=str(tmp_path))
    assert (done.code, done.out.split()) == (0, ["i,s", "1,a", "2,b"])


# --- pages ----------------------------------------------------------------------------


def test_a_page_is_written_to_a_pipe_and_a_device(dataset: lake.Dataset, tmp_path: Path) -> None:
    """They were replaced by a file."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    found: list[str] = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_text()))
    reader.start()
    dataset.health().to_html(pipe)
    reader.join(20)
    assert found[0].startswith("<!DOCTYPE html>")
    assert pipe.is_fifo()
    null = tmp_path / "null"
    null.symlink_to("/dev/null")
    dataset.scan().explain().to_html(null)
    assert null.is_symlink()
    assert Path("/dev/null").is_char_device()
    page, link = tmp_path / "page.html", tmp_path / "link.html"
    page.write_text("old")
    link.symlink_to(page)
    dataset.health().to_html(link)
    assert link.is_symlink()
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert not list(tmp_path.glob("*.part"))


LARGE = f"json_set(properties_json, '$.target_file_size_bytes', json('1{'0' * 30}'))"

# --- catalogs --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "planted",
    [
        "UPDATE column_bounds SET upper = x''",
        "UPDATE column_bounds SET upper = x'00'",
        "UPDATE column_bounds SET lower = x'ffffffffffffffffffffffff'",
        f"UPDATE datasets SET properties_json = {LARGE}",
    ],
)
def test_health_of_extreme_values_names_the_catalogs_fault(tmp_path: Path, planted: str) -> None:
    """Arrow's own errors came out."""
    url = f"sqlite:///{tmp_path}/c.db"
    for number in range(3):
        lake.write_dataset({"i": [number, number + 1]}, tmp_path / "t", catalog=url)
    with closing(sqlite3.connect(tmp_path / "c.db")) as catalog, catalog:
        catalog.execute(planted)
    catalog.close()
    with pytest.raises(lake.CorruptDatasetError):
        lake.open_dataset(tmp_path / "t", catalog=url).health()

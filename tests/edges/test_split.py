"""Rows are divided by partition values; what a plain loop finds is the truth."""

from __future__ import annotations

import datetime
import decimal
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakehouse_source as lake
from lakehouse_source.errors import SchemaMismatchError
from lakehouse_source.parquet import writer
from lakehouse_source.parquet.writer import split

VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "text": (pa.string(), [None, "", "a", "b c", "é"]),
    "number": (pa.int64(), [None, 0, -1, 2**63 - 1, -(2**63)]),
    "truth": (pa.bool_(), [None, True, False]),
    "day": (pa.date32(), [None, datetime.date(1, 1, 1), datetime.date(9999, 12, 31)]),
    "wall": (pa.timestamp("us"), [None, datetime.datetime(1850, 1, 1), datetime.datetime.max]),
    "money": (pa.decimal128(20, 2), [None, decimal.Decimal("-0.01"), decimal.Decimal(10**17)]),
}


@pytest.mark.parametrize(
    "names", [["text"], ["truth", "text"], ["number", "day", "wall", "money", "text", "truth"]]
)
def test_every_row_goes_where_its_values_say_in_the_order_it_came(names: list[str]) -> None:
    draw = random.Random(len(names))
    rows = 3000
    drawn = {name: [draw.choice(VALUES[name][1]) for _ in range(rows)] for name in names}
    columns = {name: pa.array(drawn[name], VALUES[name][0]) for name in names}
    whole = pa.table({**columns, "n": list(range(rows))})
    table = pa.concat_tables([whole.slice(0, 7), whole.slice(7, 2000), whole.slice(2007)])
    expected = defaultdict(list)
    for number, key in enumerate(zip(*drawn.values())):
        expected[key].append(number)
    found = {key: part["n"].to_pylist() for key, part in split(table, tuple(names))}
    assert found == expected


def test_many_values_in_many_columns_are_not_confused() -> None:
    """Six columns of 3,000 values each: their numbers, multiplied, pass 64 bits."""
    draw = random.Random(1)
    names = [f"c{i}" for i in range(6)]
    columns = {name: [draw.randrange(10**6) for _ in range(3000)] for name in names}
    expected = dict(zip(zip(*columns.values()), range(3000)))
    table = pa.table({**columns, "n": list(range(3000))})
    parts = list(split(table, tuple(names)))
    assert len(parts) == 3000
    assert {key: part["n"].to_pylist() for key, part in parts} == {
        key: [number] for key, number in expected.items()
    }


@pytest.mark.parametrize("limit", ["SPLIT_ROWS", "BUFFERED_BYTES"])
def test_rows_are_divided_in_portions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    portions = []
    inner = writer.split

    def watched(table: pa.Table, by: tuple[str, ...]) -> Any:
        portions.append(table.num_rows)
        return inner(table, by)

    monkeypatch.setattr(writer, "split", watched)
    monkeypatch.setattr(writer, limit, 8000)
    table = pa.table({"p": [i % 3 for i in range(950)], "n": list(range(950))})
    reader = pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=10))
    lake.write_dataset(reader, tmp_path / "data", partition_by="p")
    assert sum(portions) == 950
    assert portions == [950] if limit == "SPLIT_ROWS" else len(portions) > 10
    found = lake.read_dataset(tmp_path / "data").sort_by("n")
    assert found.equals(table)


@pytest.mark.parametrize(
    "values",
    [
        pa.array([0, 3_000_000], pa.date32()),
        pa.array([-10_000_000], pa.date32()),
        pa.array([1, None, -(2**62)], pa.timestamp("us")),
        pa.array([2**60], pa.timestamp("us", "UTC")),
        pa.array([2**60], pa.timestamp("ms", "America/New_York")),
    ],
)
def test_a_date_outside_of_the_years_1_to_9999_is_refused_by_name(values: pa.Array) -> None:
    with pytest.raises(SchemaMismatchError, match="'d' has a value outside of the years 1 to 9999"):
        list(split(pa.table({"id": range(len(values)), "d": values}), ("d",)))

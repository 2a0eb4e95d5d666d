"""What statements do grows with the number of columns, not with its square."""

from __future__ import annotations

import cProfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import lakehouse_source as lake

pytestmark = pytest.mark.slow


def rows(columns: int, keys: list[int]) -> pa.Table:
    return pa.table({"Key": keys, **{f"Column{n}": keys for n in range(columns)}})


def upsert(dataset: lake.Dataset, columns: int) -> object:
    return dataset.upsert(rows(columns, [1]), on="Key")


def upsert_in_lower_case(dataset: lake.Dataset, columns: int) -> object:
    source = rows(columns, [1])
    return dataset.upsert(source.rename_columns([n.lower() for n in source.column_names]), on="key")


def update(dataset: lake.Dataset, columns: int) -> object:
    return dataset.update({f"Column{n}": "Key + 1" for n in range(columns)}, "Key = 1")


def append(dataset: lake.Dataset, columns: int) -> object:
    return lake.write_dataset(rows(columns, [1]).to_pylist(), dataset.uri)


def read(dataset: lake.Dataset, columns: int) -> object:
    names = [f"column{n}" for n in range(columns)]
    return dataset.scan([(name, "<", 9) for name in names], names).to_table()


@pytest.mark.parametrize("statement", [upsert, upsert_in_lower_case, update, append, read])
@pytest.mark.sampled(3)
def test_a_statement_is_linear_in_the_columns(
    tmp_path: Path, statement: Callable[[lake.Dataset, int], object]
) -> None:
    """An upsert into 2,000 columns took 20 times as long as into 500."""
    calls = []
    for columns in (200, 800):
        uri = str(tmp_path / str(columns))
        lake.write_dataset(rows(columns, [0, 1, 2]), uri)
        dataset = lake.open_dataset(uri)
        with cProfile.Profile() as profile:
            statement(dataset, columns)
        calls.append(sum(one.callcount for one in profile.getstats()))  # type: ignore[attr-defined]
    # 4 times as many columns; searches through all would be 16 times as many calls.
    assert calls[1] < 5 * calls[0]

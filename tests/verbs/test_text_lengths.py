"""The lengths of texts in CHAR and VARCHAR columns hold for every door of Python."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import lakehouse_source as lake
from lakehouse_source.schema.fields import SPARK_METADATA, SPARK_TYPE

# As Spark's CREATE TABLE t (id BIGINT, c CHAR(4), v VARCHAR(3), s STRUCT<l: ARRAY<CHAR(2)>>).
_ELEMENT = pa.field("element", pa.string(), metadata={SPARK_TYPE: b'"char(2)"'})


def _column(name: str, type_: str) -> pa.Field:
    told = b'{"__CHAR_VARCHAR_TYPE_STRING":"%s"}' % type_.encode()
    return pa.field(name, pa.string(), metadata={SPARK_METADATA: told})


SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        _column("c", "char(4)"),
        _column("v", "varchar(3)"),
        pa.field("s", pa.struct([pa.field("l", pa.list_(_ELEMENT))])),
    ]
)
_LISTS = pa.struct([("l", pa.list_(pa.string()))])
PLAIN = pa.schema([("id", pa.int64()), ("c", pa.string()), ("v", pa.string()), ("s", _LISTS)])
ROW = {"id": 1, "c": "ab", "v": "xyz  ", "s": {"l": ["a", None]}}
STORED = {"id": 1, "c": "ab  ", "v": "xyz", "s": {"l": ["a ", None]}}
TOO_LONG: tuple[dict[str, Any], ...] = ({"c": "abcde"}, {"v": "äöüx"}, {"s": {"l": ["abc"]}})


@pytest.fixture
def dataset(tmp_path: Path) -> lake.Dataset:
    catalog = lake.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "warehouse")
    return catalog.create_dataset("t", SCHEMA)


def table(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), PLAIN)


def write(dataset: lake.Dataset, data: Any, **options: Any) -> None:
    lake.write_dataset(data, dataset.uri, catalog=dataset._address.catalog, **options)


def by_update(dataset: lake.Dataset, row: dict[str, Any]) -> None:
    write(dataset, {"id": [row["id"]]})
    texts = ", ".join("NULL" if text is None else f"'{text}'" for text in row["s"]["l"])
    values = {name: f"'{row[name]}'" for name in ("c", "v")}
    values["s"] = f"named_struct('l', array({texts}))"
    dataset.refresh().update(values, where=f"id = {row['id']}")


def merged(dataset: lake.Dataset, row: dict[str, Any]) -> Any:
    return dataset.refresh().merge(table(row), "target.id = source.id")


def by_merge_update(dataset: lake.Dataset, row: dict[str, Any]) -> None:
    write(dataset, {"id": [row["id"]]})
    merged(dataset, row).when_matched_update_all().execute()


DOORS: dict[str, Callable[[lake.Dataset, dict[str, Any]], None]] = {
    "table": lambda dataset, row: write(dataset, table(row)),
    "Polars": lambda dataset, row: write(dataset, pl.from_arrow(table(row))),
    "dicts": lambda dataset, row: write(dataset, [row]),
    "categories": lambda dataset, row: write(
        dataset,
        table(row).set_column(1, "c", table(row)["c"].dictionary_encode()),
    ),
    "DuckDB's writer": lambda dataset, row: write(dataset, table(row), writer="duckdb"),
    "DuckDB relation": lambda dataset, row: write(
        dataset, duckdb.connect().from_arrow(table(row)), writer="duckdb"
    ),
    "overwrite": lambda dataset, row: write(dataset, table(row), mode="overwrite"),
    "update": by_update,
    "merge, update": by_merge_update,
    "merge, insert": lambda dataset, row: (
        merged(dataset, row).when_not_matched_insert_all().execute()
    ),
    "upsert": lambda dataset, row: dataset.upsert(table(row), on="id"),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("door", DOORS)
def test_texts_have_the_form_of_their_column(door: str, dataset: lake.Dataset) -> None:
    DOORS[door](dataset, ROW)
    dataset.refresh()
    assert dataset.scan().to_table().to_pylist() == [STORED]
    version = dataset.version
    for wrong in TOO_LONG:
        before = dataset.refresh().version
        with pytest.raises(lake.SchemaMismatchError, match=r"char\(\d\), and a text is longer"):
            DOORS[door](dataset, {**ROW, "id": 2, **wrong})
        done = dataset.refresh().scan("c IS NOT NULL", columns=["id"]).to_table()
        assert done["id"].to_pylist() == [1], (wrong, before)
    assert dataset.version >= version


def test_an_upsert_finds_its_rows_by_a_key_of_char_and_varchar(dataset: lake.Dataset) -> None:
    """A text without the spaces of its column was another key, and each run inserted it again."""
    rows = table(ROW, {**ROW, "id": 2, "c": "cd  ", "v": "x"})
    for run in range(2):
        found = dataset.upsert(rows, on=["c", "v"])
        assert (found.rows_updated, found.rows_inserted) == ((0, 2), (2, 0))[run]


@pytest.mark.skipif(
    int(pa.__version__.split(".")[0]) < 26,
    reason="older PyArrow reads no list of a fixed size with NULL",
)
def test_texts_in_a_list_of_a_fixed_size_are_padded(tmp_path: Path) -> None:
    """They raised ValueError: such a list has no offsets."""
    catalog = lake.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "warehouse")
    pairs = pa.field("pair", pa.list_(_ELEMENT, 2))
    dataset = catalog.create_dataset("t", pa.schema([pa.field("id", pa.int64()), pairs]))
    given = pa.array([["a", None], None], pa.list_(pa.string(), 2))
    write(dataset, pa.table({"id": [1, 2], "pair": given}))
    assert dataset.refresh().scan().to_table()["pair"].to_pylist() == [["a ", None], None]


@pytest.mark.long
def test_texts_that_an_update_does_not_assign_stay(tmp_path: Path, dataset: lake.Dataset) -> None:
    """Files that were written before lengths held, or by others, can still be changed."""
    write(dataset, table(ROW))
    dataset.refresh().update({"id": "id + 1"})
    assert dataset.scan().to_table().to_pylist() == [{**STORED, "id": 2}]

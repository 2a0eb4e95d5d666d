"""What the schema of somebody's rows or files says to Spark or to plake stays outside."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakehouse_source as lake

CANARY = b"CANARY-30b9"
SPARK = b'{"CURRENT_DEFAULT": "reflect(\'%s\')", "EXISTS_DEFAULT": "1", "comment": "x"}' % CANARY
THEIRS = {
    b"plake:spark_metadata": SPARK,
    b"plake:spark_type": b'"%s"' % CANARY,
    b"plake:initial_default": b'"%s"' % CANARY,
    b"plake:write_default": b'"%s"' % CANARY,
    b"PLAKE:anything": CANARY,
    b"CURRENT_DEFAULT": CANARY,
    b"EXISTS_DEFAULT": CANARY,
}


def _table() -> pa.Table:
    def field(name: str, type_: pa.DataType) -> pa.Field:
        return pa.field(name, type_, metadata=THEIRS)

    inner = pa.struct([field("a", pa.string())])
    schema = pa.schema(
        [
            field("id", pa.int64()),
            field("name", pa.string()),
            field("one", inner),
            field("many", pa.list_(field("item", inner))),
            field("named", pa.map_(pa.string(), field("value", inner))),
            field("viewed", pa.list_view(field("item", pa.int64()))),
        ],
        metadata=THEIRS,
    )
    row = {"id": 1, "name": "n", "one": {"a": "x"}, "many": [{"a": "y"}], "viewed": [1]}
    rows = [{**row, "named": [("k", {"a": "z"})]}]
    return pa.table([pa.array([r[f.name] for r in rows], f.type) for f in schema], schema=schema)


class Stream:
    """Nothing but the Arrow stream interface."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return _table().__arrow_c_stream__(requested_schema)


INPUTS: dict[str, Callable[[], dict[str, Any]]] = {
    "table": lambda: {"data": _table()},
    "reader": lambda: {"data": _table().to_reader()},
    "batch": lambda: {"data": _table().to_batches()[0]},
    "batches": lambda: {"data": iter(_table().to_batches())},
    "stream": lambda: {"data": Stream()},
    "Polars": lambda: {"data": pl.from_arrow(_table().drop_columns(["viewed", "named"]))},
    "rows": lambda: {
        "data": _table().drop_columns(["named"]).to_pylist(),
        "schema": _table().drop_columns(["named"]).schema,
    },
}


@pytest.mark.parametrize("kind", INPUTS)
def test_the_catalog_keeps_nothing_of_it(kind: str, tmp_path: Path) -> None:
    catalog = f"sqlite://{tmp_path}/catalog.db"
    lake.write_dataset(**INPUTS[kind](), dataset_uri=str(tmp_path / "d"), catalog=catalog)
    with lake.transaction(catalog) as tx:
        given = INPUTS[kind]()
        tx.write(given.pop("data"), str(tmp_path / "t"), **given)
    _check(tmp_path)
    dataset = lake.open_dataset(str(tmp_path / "d"), catalog=catalog)
    assert dataset.scan().to_table()["id"].to_pylist() == [1]
    assert dataset.scan("id = 1").to_table().to_pylist() == dataset.scan().to_table().to_pylist()


def test_a_new_column_brings_none_of_it(tmp_path: Path) -> None:
    catalog = f"sqlite://{tmp_path}/catalog.db"
    where = str(tmp_path / "d")
    lake.write_dataset(pa.table({"id": [1]}), where, catalog=catalog)
    lake.write_dataset(_table(), where, catalog=catalog, schema_merge=True)
    lake.open_dataset(where, catalog=catalog).upsert(_table(), on="id")
    _check(tmp_path)


@pytest.mark.parametrize("stored", [True, False])
def test_files_that_are_added_bring_none_of_it(stored: bool, tmp_path: Path) -> None:
    catalog = f"sqlite://{tmp_path}/catalog.db"
    (tmp_path / "files").mkdir()
    table = _table().drop_columns(["viewed"])
    pq.write_table(table, tmp_path / "files" / "a.parquet", store_schema=stored)
    dataset = lake.convert(str(tmp_path / "files"), catalog=catalog)
    table = table.append_column(pa.field("new", pa.string(), metadata=THEIRS), [["n"]])
    pq.write_table(table, tmp_path / "files" / "b.parquet", store_schema=stored)
    dataset.add_files([str(tmp_path / "files" / "b.parquet")], schema_merge=True)
    _check(tmp_path)


def _check(folder: Path) -> None:
    assert CANARY not in (folder / "catalog.db").read_bytes()

"""The doors of Python by which rows of the columns `id`, `v` and `p` come into a dataset."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

import lakehouse_source as lake


def _file(dataset: lake.Dataset, table: pa.Table, statistics: bool, copy: bool) -> None:
    base = Path(dataset.uri.removeprefix("file://"))
    folder = (base.parent if copy else base) / "exports"
    for value in (0, 1):
        (folder / f"p={value}").mkdir(parents=True, exist_ok=True)
        part = table.filter(pa.compute.equal(table["p"], value)).drop_columns("p")
        pq.write_table(part, folder / f"p={value}" / "1.parquet", write_statistics=statistics)
    dataset.add_files(folder, copy=copy)


def _transaction(dataset: lake.Dataset, table: pa.Table) -> None:
    catalog = f"sqlite://{dataset.uri.removeprefix('file://')}/_plake/catalog.db"
    with lake.transaction(catalog=catalog) as transaction:
        transaction.write(table, dataset.uri)


def _merge(dataset: lake.Dataset, table: pa.Table) -> None:
    merge = dataset.merge(table, "target.id = source.id + 100000")
    merge.when_matched_delete().when_not_matched_insert_all().execute()


def _branch(dataset: lake.Dataset, table: pa.Table) -> None:
    lake.write_dataset(table, dataset.branch("b").uri)


ADDING: dict[str, Callable[[lake.Dataset, pa.Table], Any]] = {
    "append": lambda d, t: lake.write_dataset(t, d.uri),
    "stream": lambda d, t: lake.write_dataset(iter(t.to_batches(2)), d.uri, schema=None),
    "more columns": lambda d, t: lake.write_dataset(
        t.append_column("w", t["v"]), d.uri, schema_merge=True
    ),
    "duckdb": lambda d, t: lake.write_dataset(t, d.uri, writer="duckdb"),
    "duckdb relation": lambda d, t: lake.write_dataset(
        duckdb.connect().from_arrow(t), d.uri, writer="duckdb"
    ),
    "transaction": _transaction,
    "merge inserts": _merge,
    "add_files": lambda d, t: _file(d, t, True, False),
    "add_files without statistics": lambda d, t: _file(d, t, False, False),
    "add_files copies": lambda d, t: _file(d, t, True, True),
    "branch": _branch,
}

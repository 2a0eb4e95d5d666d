"""The tables that are read: made once, kept in the data folder."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import lakehouse_source as lake
from integration import flights, tpch
from integration.benchmarks.row_group_rows import table as eight_columns


def lineitem(folder: Path, scale: float) -> Path:
    """TPC-H lineitem (6M rows x 16 columns at scale 1) as one Parquet file."""
    path = folder / f"tpch-{scale:g}" / "lineitem.parquet"
    if not path.exists():
        command = Path(sys.executable).with_name("tpchgen-cli")
        subprocess.run(
            [
                str(command), "parquet", "-s", f"{scale:g}", "--tables=lineitem",
                f"--output-dir={path.parent}",
            ],
            check=True,
        )  # fmt: skip
    return path


def lineitem_plake(folder: Path, scale: float) -> Path:
    """The same as a dataset, in files of 32 MiB."""
    source = lineitem(folder, scale)

    def make(target: Path) -> None:
        reader = pq.ParquetFile(source)
        stream = pa.RecordBatchReader.from_batches(reader.schema_arrow, reader.iter_batches())
        lake.write_dataset(stream, target, target_file_size_bytes=32 * 2**20)

    return _once(folder / f"lineitem-plake-{scale:g}", make)


def tpch_plake(folder: Path, scale: float) -> dict[str, Path]:
    """The eight tables of TPC-H as datasets, by name."""
    datasets = folder / f"tpch-plake-{scale:g}"
    datasets.mkdir(parents=True, exist_ok=True)
    return tpch.to_plake(tpch.generate(folder / f"tpch-all-{scale:g}", scale), datasets)


def order_batches(folder: Path, scale: float) -> Path:
    """The order keys of lineitem as a dataset, in 100 batches that ascend with the keys."""
    source = lineitem(folder, scale)

    def make(target: Path) -> None:
        keys = pq.read_table(source, columns=["l_orderkey"])["l_orderkey"].unique().sort()
        batches = [f"batch {100 * n // len(keys):02d}" for n in range(len(keys))]
        lake.write_dataset(pa.table({"o_orderkey": keys, "o_batch": batches}), target)

    return _once(folder / f"order-batches-{scale:g}", make)


def lineitem_delta(folder: Path, scale: float) -> Path:
    """The same as a Delta table, in the same order and as many files as delta-rs makes."""
    source = lineitem(folder, scale)

    def make(target: Path) -> None:
        from deltalake import write_deltalake

        reader = pq.ParquetFile(source)
        stream = pa.RecordBatchReader.from_batches(reader.schema_arrow, reader.iter_batches())
        write_deltalake(str(target), stream, target_file_size=32 * 2**20)

    return _once(folder / f"lineitem-delta-{scale:g}", make)


def wide(folder: Path, rows: int) -> Path:
    """A dataset with 100 columns of doubles."""
    name = "wide-plake" if rows == 600_000 else f"wide-plake-{rows}"

    def make(target: Path) -> None:
        generator = random.Random(3)
        base = pa.array([generator.random() for _ in range(rows)])
        lake.write_dataset(pa.table({f"c{i:03d}": base for i in range(100)}), target)

    return _once(folder / name, make)


def small_files(folder: Path, scale: float, count: int) -> tuple[Path, Path]:
    """The first rows of lineitem in many small files, for Spark's reader and for plake."""
    suffix = f"{count}" if scale == 1 else f"{count}-{scale:g}"

    def rows() -> tuple[pa.Table, int]:
        # Generated in the order of l_orderkey.
        table = pq.ParquetFile(lineitem(folder, scale)).read_row_group(0)
        return table, max(1, min(500, table.num_rows // count))

    def native(target: Path) -> None:
        table, size = rows()
        target.mkdir()
        for number in range(count):
            pq.write_table(table.slice(number * size, size), target / f"{number:05d}.parquet")

    def ours(target: Path) -> None:
        table, size = rows()
        layout = {"target_file_size_bytes": 1, "row_group_rows": size}
        lake.write_dataset(table.slice(0, count * size), target, **layout)

    return _once(folder / f"small-{suffix}", native), _once(folder / f"small-plake-{suffix}", ours)


def one_file(folder: Path, rows: int) -> Path:
    """A dataset of one file: eight columns, `id` ascends."""
    name = "point5m" if rows == 5_000_000 else f"point-{rows}"
    layout = {"target_file_size_bytes": 2**40}
    return _once(
        folder / name, lambda target: lake.write_dataset(eight_columns(rows), target, **layout)
    )


def one_file_delta(folder: Path, rows: int) -> Path:
    """The same as a Delta table of one file."""

    def make(target: Path) -> None:
        from deltalake import write_deltalake

        write_deltalake(str(target), eight_columns(rows), target_file_size=2**40)

    return _once(folder / f"point-delta-{rows}", make)


def flights_plake(folder: Path) -> Path:
    """The flights of 2013, a folder for each month."""
    return _once(
        folder / "flights-plake",
        lambda target: lake.write_dataset(flights.load(), target, partition_by="month"),
    )


def lineitem_served(folder: Path, scale: float) -> tuple[str, Path]:
    """Lineitem with the name `lineitem` in a catalog: the catalog's URL, and the dataset."""
    source = lineitem(folder, scale)
    place = folder / f"lineitem-served-{scale:g}"
    url = f"sqlite:///{place}/catalog.db"

    def make(target: Path) -> None:
        target.mkdir()
        reader = pq.ParquetFile(source)
        stream = pa.RecordBatchReader.from_batches(reader.schema_arrow, reader.iter_batches())
        layout = {"target_file_size_bytes": 32 * 2**20}
        lake.write_dataset(stream, target / "lineitem", catalog=url, **layout)
        with lake.open_catalog(url) as catalog:
            catalog.register("lineitem", target / "lineitem")

    return url, _once(place, make) / "lineitem"


def paths(dataset: Path, catalog: str | None = None) -> list[str]:
    """The data files of a dataset's newest version."""
    files = lake.open_dataset(dataset, catalog=catalog).files()
    return [f"{dataset}/{file.path}" for file in files]


def _once(target: Path, make: Callable[[Path], object]) -> Path:
    """Make it if it is not there; what an interrupted run left is no data."""
    mark = target.parent / f".making-{target.name}"
    if mark.exists():
        shutil.rmtree(target, ignore_errors=True)
    if not target.exists():
        mark.touch()
        make(target)
    mark.unlink(missing_ok=True)
    return target

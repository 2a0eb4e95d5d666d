"""TPC-H: the 22 queries by Spark over plake, with each reader, and over the very files as Parquet.

Every answer is compared with DuckDB's over the tables that `tpchgen-cli` wrote. Then the queries
are timed, in rounds in which the ways follow each other. The frames are made before; each query
plans anew. With `--clustered` the ways are the files as Parquet, and plake over the same rows with
lineitem clustered by (l_shipdate, l_partkey) and orders by (o_orderdate, o_custkey).

    python integration/tpch.py [--scale 1] [--rounds 5] [--only 1,6] [--folder /tmp/tpch]
        [--clustered]
"""

from __future__ import annotations

import argparse
import datetime
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeAlias

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[1]))

import lakehouse_source as lake
from lakehouse_source.spark.protocol.vocabulary import Reader, Setting

Row: TypeAlias = tuple[Any, ...]
TABLES = ("customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier")
NATIVE = "native Parquet"
CLUSTERED = "clustered"
KEYS = {"lineitem": ["l_shipdate", "l_partkey"], "orders": ["o_orderdate", "o_custkey"]}
FILE_BYTES = 32 * 2**20


def queries() -> dict[int, str]:
    """The SQL of each query by its number. Spark and DuckDB both take it as it is."""
    text = Path(__file__).with_name("tpch.sql").read_text()
    parts = re.split(r"^-- Q(\d+)$", text, flags=re.MULTILINE)[1:]
    return {int(n): sql.strip().rstrip(";") for n, sql in zip(parts[::2], parts[1::2])}


def generate(folder: Path, scale: float) -> dict[str, Path]:
    """Each table as one Parquet file."""
    if not folder.exists():
        command = str(Path(sys.executable).with_name("tpchgen-cli"))
        made = folder.with_name(f"{folder.name}.partial")
        shutil.rmtree(made, ignore_errors=True)
        done = [command, "parquet", "-s", f"{scale:g}", f"--output-dir={made}"]
        subprocess.run(done, check=True)
        made.rename(folder)
    return {name: folder / f"{name}.parquet" for name in TABLES}


def to_plake(sources: Mapping[str, Path], folder: Path) -> dict[str, Path]:
    """The tables as datasets."""
    for name, source in sources.items():
        if not (folder / name).exists():
            reader = pq.ParquetFile(source)
            stream = pa.RecordBatchReader.from_batches(reader.schema_arrow, reader.iter_batches())
            made = folder / f"{name}.partial"
            shutil.rmtree(made, ignore_errors=True)
            lake.write_dataset(stream, made, target_file_size_bytes=FILE_BYTES)
            made.rename(folder / name)
    return {name: folder / name for name in sources}


def to_clustered(datasets: Mapping[str, Path], folder: Path) -> dict[str, Path]:
    """The tables as datasets, those of `KEYS` copied and clustered."""
    for name, columns in KEYS.items():
        if not (folder / name).exists():
            made = folder / f"{name}.partial"
            shutil.rmtree(made, ignore_errors=True)
            rows = lake.open_dataset(datasets[name]).scan().to_batches()
            schema = lake.open_dataset(datasets[name]).schema
            stream = pa.RecordBatchReader.from_batches(schema, rows)
            lake.write_dataset(stream, made, target_file_size_bytes=FILE_BYTES, cluster_by=columns)
            lake.open_dataset(made).cluster(full=True)
            made.rename(folder / name)
    return {**datasets, **{name: folder / name for name in KEYS}}


def of_duckdb(sources: Mapping[str, Path]) -> Callable[[str], list[Row]]:
    """What asks DuckDB over plain Parquet."""
    connection = duckdb.connect()
    for name, source in sources.items():
        connection.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{source}')")
    return lambda sql: connection.execute(sql).fetchall()


def of_spark(session: Any, datasets: Mapping[str, Path], native: bool) -> Callable[[str], Any]:
    """What asks a session over the datasets, or over their files."""
    for name, dataset in datasets.items():
        if native:
            files = [f"{dataset}/{file.path}" for file in lake.open_dataset(dataset).files()]
            frame = session.read.parquet(*files)
        else:
            frame = session.read.format("plake").load(str(dataset))
        frame.createOrReplaceTempView(name)
    return lambda sql: session.sql(sql).collect()


def sessions(clustered: bool) -> dict[str, Any]:
    """By name: a session without the extension, and one for each choice of the reader."""
    from integration.benchmarks.spark_scan import session, with_extension

    made = {NATIVE: session()}
    if clustered:
        return {**made, CLUSTERED: with_extension(made[NATIVE])}
    for reader in (Reader.AUTO, Reader.PYTHON):
        made[reader] = with_extension(made[NATIVE])
        made[reader].conf.set(Setting.READER, reader)
    return made


def comparable(rows: Sequence[Any]) -> list[Row]:
    """Rows with one type of number, in an order that does not depend on their last digits."""

    def plain(value: Any) -> Any:
        if isinstance(value, datetime.datetime):
            return value.date()
        return float(value) if isinstance(value, (Decimal, float, int)) else value

    def key(row: Row) -> list[str]:
        return [f"{value:.6g}" if isinstance(value, float) else str(value) for value in row]

    return sorted((tuple(map(plain, row)) for row in rows), key=key)


def differences(rows: Sequence[Any], expected: Sequence[Any]) -> list[str]:
    """What differs between two answers: averages are decimals in Spark and doubles in DuckDB."""
    ours, theirs = comparable(rows), comparable(expected)
    if len(ours) != len(theirs):
        return [f"{len(ours)} rows, and not {len(theirs)}"]

    def is_same(one: Any, other: Any) -> bool:
        if isinstance(one, float) and isinstance(other, float):
            return math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-6)
        return bool(one == other)

    return [
        f"{ours[i]}, and not {theirs[i]}"
        for i in range(len(ours))
        if not all(map(is_same, ours[i], theirs[i])) or len(ours[i]) != len(theirs[i])
    ]


def readers_of(session: Any, sql: str) -> str:
    """Who reads each scan of plake, and how many files, from the plan."""
    plan = str(session.sql(sql)._jdf.queryExecution().sparkPlan().toString())
    found = [f"Spark ({text})" for text in re.findall(r"read by Spark \(([^)]*)\)", plan)]
    found += [
        f"Python ({text.strip()})"
        for text in re.findall(r"Reader: Python, (.*?)(?: RuntimeFilters|[\n,\]])", plan)
    ]
    texts = [f"{count} x {text}" for text, count in Counter(found).items()]
    return "scans by " + "; ".join(texts) if texts else "answered from the catalog"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="numbers of queries, with commas")
    parser.add_argument("--folder", type=Path, help="keep the data here")
    parser.add_argument("--clustered", action="store_true")
    arguments = parser.parse_args()
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="plake-tpch-"))
    (folder / f"plake-{arguments.scale:g}").mkdir(parents=True, exist_ok=True)
    sources = generate(folder / f"parquet-{arguments.scale:g}", arguments.scale)
    datasets = to_plake(sources, folder / f"plake-{arguments.scale:g}")
    places = dict.fromkeys((NATIVE, Reader.AUTO, Reader.PYTHON), datasets)
    if arguments.clustered:
        clustered = folder / f"clustered-{arguments.scale:g}"
        clustered.mkdir(exist_ok=True)
        places[CLUSTERED] = to_clustered(datasets, clustered)
    made = sessions(arguments.clustered)
    ways = {name: of_spark(one, places[name], name == NATIVE) for name, one in made.items()}
    shown = CLUSTERED if arguments.clustered else Reader.AUTO
    oracle = of_duckdb(sources)
    wanted = {int(n) for n in arguments.only.split(",") if n}
    totals = dict.fromkeys(ways, 0.0)
    failed = False
    print(f"load {os.getloadavg()[0]:.1f}; medians of {arguments.rounds} rounds, in seconds")
    for number, sql in queries().items():
        if wanted and number not in wanted:
            continue
        expected = oracle(sql)
        for name, ask in ways.items():
            for difference in differences(ask(sql), expected)[:3]:
                failed = True
                print(f"Q{number} by {name}: {difference}")
        times: dict[str, list[float]] = {name: [] for name in ways}
        for place in range(arguments.rounds):
            order = list(ways)[place % len(ways) :] + list(ways)[: place % len(ways)]
            for name in order:
                start = time.perf_counter()
                ways[name](sql)
                times[name].append(time.perf_counter() - start)
        if arguments.rounds:
            print(line(f"Q{number}", times), readers_of(made[shown], sql), flush=True)
        for name, values in times.items():
            totals[name] += statistics.median(values) if values else 0.0
    if arguments.rounds:
        print(line("total", {name: [total] for name, total in totals.items()}))
    made[NATIVE].stop()
    if arguments.folder is None:
        shutil.rmtree(folder)
    sys.exit("answers differ" if failed else None)


def line(title: str, times: Mapping[str, Sequence[float]]) -> str:
    """Medians, and the medians of the rounds' ratios to native Parquet with their spread."""
    texts = [f"{title:6}"]
    for name, values in times.items():
        ratios = [a / b for a, b in zip(values, times[NATIVE])]
        spread = f" ({min(ratios):.2f} to {max(ratios):.2f})" if len(values) > 1 else ""
        shown = "" if name == NATIVE else f" = {statistics.median(ratios):.2f}{spread}"
        texts.append(f"{name} {statistics.median(values):.3f}{shown}")
    return "; ".join(texts) + ";"


if __name__ == "__main__":
    main()

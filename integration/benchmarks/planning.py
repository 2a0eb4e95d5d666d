"""How long planning takes over many files: `explain()` of five kinds of condition.

The catalog is synthetic, no data file exists: planning opens none. Each time
holds opening the catalog. Cold is the first plan of a new process (imports done,
the SQL parser's 45 ms among them), warm the median of later ones. Prints a
Markdown table. Run it with
`python integration/benchmarks/planning.py [files] [sqlite|postgres …]`.
"""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[2]))

import lakehouse_source as lake
from lakehouse_source.catalog.sql.writer import CatalogTransaction
from lakehouse_source.model import DatasetRecord, FileBounds, FileMetadata, RowGroupMetadata
from lakehouse_source.pruning.keys import key
from lakehouse_source.schema.fields import leaves

GROUPS = 10
ROWS = 100_000  # per row group
REGIONS = 100
CUSTOMERS = 2**31 - 1
BATCH = 20_000
WARM_ROUNDS = 9
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("at", pa.timestamp("us")),
        ("customer", pa.int32()),
        ("region", pa.string()),
    ]
)
# Files have names that plake gives: of others it would read the footers for readers of Iceberg.
_WRITE = "01900000-0000-7000-8000-000000000000"
EPOCH_US = 1_577_836_800_000_000  # 2020


def conditions(files: int) -> dict[str, str]:
    """By kind."""
    draw = random.Random(3)
    rows = files * GROUPS * ROWS
    some = ", ".join(str(draw.randrange(rows)) for _ in range(100))
    day = "2020-01-01 {:02}:{:02}:00"
    return {
        "clustered point": f"id = {rows // 2 + 12_345}",
        "clustered point, low key": f"id = {rows // 1000}",
        # One file a second: four minutes are 240 files.
        "clustered range": f"at BETWEEN TIMESTAMP_NTZ '{day.format(3, 0)}' "
        f"AND TIMESTAMP_NTZ '{day.format(3, 4)}'",
        "IN of 100": f"id IN ({some})",
        "partition": f"region = 'r042' AND id < {rows // 10}",
        "scattered column": f"customer = {CUSTOMERS // 3}",
    }


def synthetic(start: int, stop: int, ids: dict[str, int]) -> Iterator[FileMetadata]:
    """Files `start` to `stop`: `id` and `at` ascend, `customer` is anywhere in narrow ranges."""
    draw = random.Random(start)
    i, a, c = ids["id"], ids["at"], ids["customer"]
    nulls = f'{{"{i}":0,"{a}":0,"{c}":0}}'
    for number in range(start, stop):
        groups = []
        customer = draw.randrange(CUSTOMERS - CUSTOMERS // 1000)
        for index in range(GROUPS):
            first = (number * GROUPS + index) * ROWS
            second = EPOCH_US + number * 1_000_000 + index * 100_000
            low = customer + index * 100
            groups.append(
                RowGroupMetadata(
                    index,
                    ROWS,
                    f'{{"{i}":{first},"{a}":{second},"{c}":{low}}}',
                    f'{{"{i}":{first + ROWS - 1},"{a}":{second + 99_999},"{c}":{low + 2_000_000}}}',
                    nulls,
                    "{}",
                    4_000_000,
                    1_000_000,
                )
            )
        region = json.dumps(f"r{number % REGIONS:03}")
        yield FileMetadata(
            f"region={region[1:-1]}/{_WRITE}-{_WRITE[:24]}{number:012}.parquet",
            ROWS * GROUPS,
            10_000_000,
            SCHEMA,
            tuple(groups),
            {"region": region},
        )


def index_rows(file: FileMetadata, ids: dict[str, int]) -> Iterator[FileBounds]:
    lower, upper = (
        [json.loads(getattr(group, name)) for group in file.row_groups]
        for name in ("stats_min_json", "stats_max_json")
    )
    for name in ("id", "at", "customer"):
        type_, number = SCHEMA.field(name).type, ids[name]
        low, high = (
            key(end(one[str(number)] for one in side), type_)
            for end, side in ((min, lower), (max, upper))
        )
        yield FileBounds(number, low, high, 0, file.row_count, False)
    text = json.loads(file.partitions["region"]).encode()
    yield FileBounds(ids["region"], text, text, 0, file.row_count, False)


def fill(url: str, uri: str, files: int, storage: Mapping[str, str] | None = None) -> None:
    """Record the files in commits of `BATCH`."""
    lake.write_dataset(
        SCHEMA.empty_table(), uri, catalog=url, partition_by="region", storage_options=storage
    )
    with lake.open_catalog(url) as catalog:
        for start in range(0, files, BATCH):
            stop = min(start + BATCH, files)
            with catalog.write() as transaction:
                dataset = _locked(transaction)
                ids = {
                    leaf.path[0]: leaf.id
                    for leaf in leaves(
                        transaction.schema_at(dataset.id, dataset.current_version)[1]
                    )
                }
                version = dataset.current_version + 1
                summary = {
                    "live_files": stop,
                    "live_row_groups": stop * GROUPS,
                    "live_rows": stop * GROUPS * ROWS,
                    "live_bytes": stop * 10_000_000,
                }
                transaction.insert_transaction(
                    dataset.id, version, "append", {}, summary, f"synthetic-{start}", None, None
                )
                transaction.record_file_metadata(
                    dataset,
                    version,
                    list(synthetic(start, stop, ids)),
                    schema_version=transaction.schema_at(dataset.id, version)[0],
                    bounds=lambda file, ids=ids: index_rows(file, ids),
                )


def _locked(transaction: CatalogTransaction) -> DatasetRecord:
    (dataset,) = transaction.datasets()
    locked = transaction.lock_dataset(dataset.base_uri)
    assert locked is not None
    return locked


def plan(url: str, uri: str, condition: str) -> tuple[float, int, int]:
    """Milliseconds, files and row groups to read."""
    started = time.perf_counter()
    pruning = lake.open_dataset(uri, catalog=url).scan(condition).explain()
    took = 1000 * (time.perf_counter() - started)
    return took, pruning.files_read, pruning.row_groups_read


def measure(url: str, uri: str, condition: str) -> None:
    """In a process of its own; prints one JSON line."""
    lake.PredicateSet.of("a = 1")  # loads the SQL parser
    cold, files, groups = plan(url, uri, condition)
    warm = statistics.median(plan(url, uri, condition)[0] for _ in range(WARM_ROUNDS))
    print(json.dumps([cold, warm, files, groups]))


def run(backend: str, url: str, uri: str, files: int) -> None:
    started = time.perf_counter()
    fill(url, uri, files)
    print(f"\n{backend}: {files:,} files x {GROUPS} row groups, filled in "
          f"{time.perf_counter() - started:.0f} s\n")  # fmt: skip
    print("| condition | files to read | row groups to read | cold ms | warm ms |")
    print("|---|---|---|---|---|")
    for kind, condition in conditions(files).items():
        command = [sys.executable, __file__, "--measure", url, uri, condition]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        cold, warm, kept, groups = json.loads(done.stdout)
        print(f"| {kind} | {kept:,} | {groups:,} | {cold:.1f} | {warm:.1f} |", flush=True)


def main() -> None:
    if sys.argv[1:2] == ["--measure"]:
        measure(*sys.argv[2:5])
        return
    words = sys.argv[1:]
    files = int(next((word for word in words if word.isdigit()), "100000"))
    backends = [word for word in words if word in ("sqlite", "postgres")] or ["sqlite", "postgres"]
    with tempfile.TemporaryDirectory(prefix="plake-planning-") as folder:
        uri = f"{folder}/things"
        if "sqlite" in backends:
            run("SQLite", f"sqlite:///{folder}/catalog.db", uri, files)
        if "postgres" in backends:
            from tests.postgres_server import PostgresServer

            server = PostgresServer()
            try:
                run("PostgreSQL", server.fresh_database(), uri, files)
            finally:
                server.stop()


if __name__ == "__main__":
    main()

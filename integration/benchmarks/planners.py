"""One system that plans, as a process: builds synthetic metadata, then answers plans.

Runs in the environment of its system, so it imports nothing of plake's unless it is
plake. A request is a line of JSON on stdin, its answer one on stdout:

    {"build": "files.parquet"}         -> {"seconds": 1.2}
    {"open": true}                     -> {"seconds": 0.1}
    {"plan": [["id", "=", 5]]}         -> {"seconds": 0.003, "found": 1}

`found` is the number of files to be read, or with DuckLake the path of the first.
`files.parquet` has a row per data file: its path, region, and the lowest and highest
id, at (microseconds since 1970) and customer. The data files themselves do not exist:
planning opens none. The table is opened before the first plan and stays open. plake's is
opened by the first plan, and moves to the newest version before each later one.

    python integration/benchmarks/planners.py SYSTEM FOLDER [CATALOG]
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import struct
import sys
import time
from datetime import datetime, timedelta
from typing import Any

ROWS, SIZE_BYTES = 1_000_000, 10_000_000  # of each file
BATCH = 20_000
EPOCH = datetime(1970, 1, 1)
Condition = list[tuple[str, str, Any]]
File = dict[str, Any]


def moment(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)


def sql(condition: Condition, timestamp: str) -> str:
    """As text; `timestamp` is the word before a timestamp literal."""
    return " AND ".join(f"{name} {op} {_literal(name, value, timestamp)}"
                        for name, op, value in condition)  # fmt: skip


def _literal(name: str, value: Any, timestamp: str) -> str:
    if isinstance(value, list):
        return f"({', '.join(str(one) for one in value)})"
    if name == "at":
        return f"{timestamp}'{moment(value).isoformat()}'"
    return f"'{value}'" if isinstance(value, str) else str(value)


class Plake:
    def __init__(self, folder: str, catalog: str) -> None:
        sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(__file__))))
        import lakehouse_source

        self.lake, self.uri, self.catalog = lakehouse_source, folder, catalog
        self.dataset: Any = None
        lakehouse_source.open_dataset  # noqa: B018  # loads the modules that reading needs
        lakehouse_source.PredicateSet.of("a = 1")  # loads the SQL parser
        if catalog and catalog.startswith("postgres"):
            import lakehouse_source.catalog.backends.postgres  # loads psycopg

    def plan(self, condition: Condition) -> int:
        text = sql(condition, "TIMESTAMP_NTZ ")
        if self.dataset is None:
            self.dataset = self.lake.open_dataset(self.uri, catalog=self.catalog)
        return len(self.dataset.refresh().scan(text).plan().tasks)


class Delta:
    """Commits as JSON and a checkpoint, as delta-rs makes them."""

    def __init__(self, folder: str) -> None:
        import deltalake
        import pyarrow.dataset

        self.lake, self.ds, self.folder = deltalake, pyarrow.dataset, folder
        self.table: Any = None

    def build(self, files: list[File]) -> None:
        import pyarrow as pa

        fields = [("id", pa.int64()), ("at", pa.timestamp("us")), ("customer", pa.int32())]
        schema = pa.schema([*fields, ("region", pa.string())])
        self.lake.DeltaTable.create(self.folder, schema=schema, partition_by=["region"])
        for version, start in enumerate(range(0, len(files), BATCH), 1):
            with open(f"{self.folder}/_delta_log/{version:020}.json", "w") as log:
                log.writelines(self._add(file) for file in files[start : start + BATCH])
        self.lake.DeltaTable(self.folder).create_checkpoint()

    def _add(self, file: File) -> str:
        low, high = (
            {
                "id": file[f"id_{end}"],
                "at": moment(file[f"at_{end}"]).isoformat(timespec="microseconds"),
                "customer": file[f"customer_{end}"],
            }
            for end in ("low", "high")
        )
        nulls = dict.fromkeys(low, 0)
        stats = {"numRecords": ROWS, "minValues": low, "maxValues": high, "nullCount": nulls}
        add = {
            "path": file["path"],
            "partitionValues": {"region": file["region"]},
            "size": SIZE_BYTES,
            "modificationTime": 1_577_836_800_000,
            "dataChange": True,
            "stats": json.dumps(stats),
        }
        return json.dumps({"add": add}) + "\n"

    def open(self) -> None:
        self.table = self.lake.DeltaTable(self.folder)

    def plan(self, condition: Condition) -> int:
        """What engines have used so far: the fragments of the dataset that pass the filter."""
        wanted = None
        for name, op, value in condition:
            field = self.ds.field(name)
            operand = moment(value) if name == "at" else value
            term = {
                "=": field.__eq__, "<": field.__lt__, "<=": field.__le__, ">=": field.__ge__,
                "IN": field.isin,
            }[op](operand)  # fmt: skip
            wanted = term if wanted is None else wanted & term
        return sum(1 for _ in self.table.to_pyarrow_dataset().get_fragments(filter=wanted))


class DeltaPredicate(Delta):
    """The predicate goes to delta-rs itself, which later versions offer."""

    def plan(self, condition: Condition) -> int:
        return len(self.table.file_uris(file_pruning_predicate=sql(condition, "")))


class Iceberg:
    """Fast appends of `DataFile` entries through a SQL catalog in SQLite."""

    def __init__(self, folder: str) -> None:
        from pyiceberg.catalog.sql import SqlCatalog

        os.makedirs(folder, exist_ok=True)
        self.folder = folder
        self.catalog = SqlCatalog(
            "bench", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/data"
        )
        self.table: Any = None

    def build(self, files: list[File]) -> None:
        from pyiceberg.partitioning import PartitionField, PartitionSpec
        from pyiceberg.schema import Schema
        from pyiceberg.transforms import IdentityTransform
        from pyiceberg.types import IntegerType, LongType, NestedField, StringType, TimestampType

        types = {"id": LongType(), "at": TimestampType(), "customer": IntegerType(),
                 "region": StringType()}  # fmt: skip
        schema = Schema(*(NestedField(n, *item) for n, item in enumerate(types.items(), 1)))
        partitions = PartitionSpec(PartitionField(4, 1000, IdentityTransform(), "region"))
        self.catalog.create_namespace("bench")
        table = self.catalog.create_table("bench.things", schema, partition_spec=partitions)
        for start in range(0, len(files), BATCH):
            with table.transaction() as tx, tx.update_snapshot().fast_append() as append:
                for file in files[start : start + BATCH]:
                    append.append_data_file(self._entry(file))

    def _entry(self, file: File) -> Any:
        from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
        from pyiceberg.typedef import Record

        region = file["region"].encode()
        low, high = (
            {
                1: struct.pack("<q", file[f"id_{end}"]),
                2: struct.pack("<q", file[f"at_{end}"]),
                3: struct.pack("<i", file[f"customer_{end}"]),
                4: region,
            }
            for end in ("low", "high")
        )
        entry = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"file://{self.folder}/data/{file['path']}",
            file_format=FileFormat.PARQUET,
            partition=Record(file["region"]),
            record_count=ROWS,
            file_size_in_bytes=SIZE_BYTES,
            value_counts=dict.fromkeys(low, ROWS),
            null_value_counts=dict.fromkeys(low, 0),
            lower_bounds=low,
            upper_bounds=high,
        )
        entry.spec_id = 0
        return entry

    def open(self) -> None:
        self.table = self.catalog.load_table("bench.things")

    def plan(self, condition: Condition) -> int:
        return sum(1 for _ in self.table.scan(row_filter=sql(condition, "")).plan_files())


class DuckLake:
    """Rows in DuckLake's own metadata tables, in SQLite.

    `EXPLAIN` does not look for files, so a plan here is a query that ends where it
    opens the first file, which does not exist: the plan and nothing else.
    """

    def __init__(self, folder: str) -> None:
        import duckdb
        from duckdb_extensions import import_extension

        for name in ("ducklake", "sqlite_scanner"):
            import_extension(name)
        os.makedirs(folder, exist_ok=True)
        self.folder, self.errors = folder, duckdb.IOException
        self.connection = duckdb.connect()
        for name in ("ducklake", "sqlite_scanner"):
            self.connection.execute(f"LOAD {name}")

    def build(self, files: list[File]) -> None:
        self._attach(f"DATA_PATH '{self.folder}/data', DATA_INLINING_ROW_LIMIT 0")
        run = self.connection.execute
        run('CREATE TABLE lake.t (id BIGINT, "at" TIMESTAMP, customer INTEGER, region VARCHAR)')
        run("ALTER TABLE lake.t SET PARTITIONED BY (region)")
        run("INSERT INTO lake.t VALUES (1, TIMESTAMP '2020-01-01', 1, 'r000')")
        run("DETACH lake")
        with sqlite3.connect(f"{self.folder}/meta.sqlite") as tables:
            self._copy(tables, "ducklake_data_file", files, self._data_file)
            self._copy(tables, "ducklake_file_partition_value", files, self._partition)
            for column, name in enumerate(("id", "at", "customer", "region"), 1):
                self._copy(tables, "ducklake_file_column_stats", files,
                           lambda n, file, c=column, m=name: self._stats(n, file, c, m),
                           keep=column > 1)  # fmt: skip
                bounds = [self._bounds(file, name) for file in files]
                low, high = (f(b[i] for b in (map(self._ordered, bounds)))
                             for i, f in enumerate((min, max)))  # fmt: skip
                tables.execute(
                    "UPDATE ducklake_table_column_stats SET min_value = ?, max_value = ? "
                    "WHERE column_id = ?",
                    (str(low), str(high), column),
                )
            total = len(files)
            tables.execute(
                "UPDATE ducklake_table_stats SET record_count = ?, next_row_id = ?, "
                "file_size_bytes = ?",
                (total * ROWS, total * ROWS, total * SIZE_BYTES),
            )
            tables.execute("UPDATE ducklake_snapshot SET next_file_id = ?", (total,))
        tables.close()

    def _copy(self, tables: sqlite3.Connection, name: str, files: list[File], row: Any,
              keep: bool = False) -> None:  # fmt: skip
        """Replace a table's rows by one for each file, like the one that is there."""
        cursor = tables.execute(f"SELECT * FROM {name}")
        columns = [column[0] for column in cursor.description]
        self.sample = dict(zip(columns, cursor.fetchone()))
        if not keep:
            tables.execute(f"DELETE FROM {name}")
        marks = ", ".join("?" * len(columns))
        rows = ({**self.sample, **row(n, file)} for n, file in enumerate(files))
        values = ([one[column] for column in columns] for one in rows)
        tables.executemany(f"INSERT INTO {name} VALUES ({marks})", values)

    def _data_file(self, number: int, file: File) -> dict[str, Any]:
        return {
            "data_file_id": number, "path": file["path"], "record_count": ROWS,
            "file_size_bytes": SIZE_BYTES, "row_id_start": number * ROWS,
        }  # fmt: skip

    def _partition(self, number: int, file: File) -> dict[str, Any]:
        return {"data_file_id": number, "partition_value": file["region"]}

    def _stats(self, number: int, file: File, column: int, name: str) -> dict[str, Any]:
        low, high = self._bounds(file, name)
        return {
            "data_file_id": number, "column_id": column, "value_count": ROWS,
            "min_value": low, "max_value": high,
        }  # fmt: skip

    def _bounds(self, file: File, name: str) -> tuple[str, str]:
        if name == "region":
            return file["region"], file["region"]
        ends = [file[f"{name}_{end}"] for end in ("low", "high")]
        low, high = (str(moment(end) if name == "at" else end) for end in ends)
        return low, high

    def _ordered(self, bounds: tuple[str, str]) -> tuple[Any, Any]:
        """Numbers compare as numbers."""
        low, high = (int(text) if text.isdigit() else text for text in bounds)
        return low, high

    def _attach(self, options: str) -> None:
        self.connection.execute(
            f"ATTACH 'ducklake:sqlite:{self.folder}/meta.sqlite' AS lake ({options})"
        )

    def open(self) -> None:
        self._attach("READ_ONLY")

    def plan(self, condition: Condition) -> str:
        """The path of the file that was to be opened."""
        text = sql(condition, "TIMESTAMP ").replace("at ", '"at" ')
        try:
            self.connection.execute(f"SELECT * FROM lake.t WHERE {text}").fetchall()
        except self.errors as error:
            opened = re.search(r"annot open file \"([^\"]+)\"", str(error))
            if opened is None:
                raise
            return opened.group(1)
        raise RuntimeError(f"no file was looked for: {text}")


SYSTEMS: dict[str, Any] = {
    "plake": Plake, "delta": Delta, "delta-predicate": DeltaPredicate, "iceberg": Iceberg,
    "ducklake": DuckLake,
}  # fmt: skip


def answer(system: Any, request: dict[str, Any]) -> dict[str, Any]:
    if "build" in request:
        import pyarrow.parquet as pq

        files = pq.read_table(request["build"]).to_pylist()
        started = time.perf_counter()
        system.build(files)
        return {"seconds": time.perf_counter() - started}
    if request.get("open"):
        started = time.perf_counter()
        system.open()
        return {"seconds": time.perf_counter() - started}
    condition = [(name, op, value) for name, op, value in request["plan"]]
    started = time.perf_counter()
    found = system.plan(condition)
    return {"seconds": time.perf_counter() - started, "found": found}


def main() -> None:
    kind, folder, *catalog = sys.argv[1:]
    system = SYSTEMS[kind](folder, *catalog)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        try:
            print(json.dumps(answer(system, json.loads(line))), flush=True)
        except Exception as error:  # each system has errors of its own
            print(json.dumps({"error": f"{type(error).__name__}: {error}"[:500]}), flush=True)


if __name__ == "__main__":
    main()

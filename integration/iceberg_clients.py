"""Other engines read plake's tables: rows equal to plake's own, or what docs/engines.md lists.

    python integration/iceberg_clients.py [--clients FOLDER] [--only ENGINE,…]

The clients are installed from pip into an environment in FOLDER, which is kept (Iceberg's Spark
runtime into one of its own); tables and questions are those of integration/iceberg_tables.py. Each
engine runs in a process of its own, over exported metadata and, where its name says so, by name
through a server that runs here. A line is printed for each question, and a table at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import time
import venv
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "integration" / ".iceberg_clients"
DUCKDB = "1.5.5"
EXTENSIONS = [f"duckdb-extension-{name}=={DUCKDB}" for name in ("avro", "httpfs", "iceberg")]
PACKAGES = [f"duckdb=={DUCKDB}", *EXTENSIONS, "polars", "daft", "pyiceberg[pyarrow]", "chdb"]
BY_MANIFESTS, BY_PLAN = "PyIceberg by name", "PyIceberg by /plan"
SPARK, JARS = "Spark", "PLAKE_ICEBERG_JARS"
ENGINES = (
    *("PyIceberg", BY_MANIFESTS, BY_PLAN, "DuckDB", "DuckDB by name"),
    *("Polars", "Polars by name", "Daft", "Daft by name", "ClickHouse", SPARK),
)
# What docs/engines.md lists, by engine, the beginning of a table's name, a condition if it is about
# one, and what may come of it. Anything else must be equal.
KNOWN = (
    ("Daft", "vectors", None, "error"),
    ("Daft", "references", None, "error"),
    ("Daft", "added files", None, "error"),
    ("ClickHouse", "vectors", None, "error"),
    ("ClickHouse", "references", None, "error"),
    ("ClickHouse", "all types", None, "differs or error"),
    ("ClickHouse", "evolved", "c is null", "differs"),
    (BY_PLAN, "by ", None, "error"),
    (SPARK, "all types", None, "error"),
)
Read = Callable[[dict[str, Any], dict[str, Any]], Any]


def environment(folder: Path) -> Path:
    """The Python of an environment with the clients, which is made where it lacks."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *PACKAGES], check=True)
    return python


# --- here: the tables and a server ------------------------------------------------------


@contextmanager
def served(tables: list[dict[str, Any]]) -> Iterator[None]:
    """Serve each table, by the name `default.t`, below a path of its own; notes its address."""
    import uvicorn

    import lakehouse_source as lake

    with ExitStack() as stack:
        applications = {}
        for number, one in enumerate(tables):
            url = f"sqlite:///{quote(one['root'])}/_plake/catalog.db"
            catalog = stack.enter_context(lake.open_catalog(url))
            catalog.register("t", one["root"])
            applications[f"t{number}"] = lake.server.app(catalog, newest_versions=100)

        async def dispatch(scope: Any, receive: Any, send: Any) -> None:
            first, _, rest = scope["path"].removeprefix("/").partition("/")
            await applications[first]({**scope, "path": f"/{rest}"}, receive, send)

        config = uvicorn.Config(dispatch, port=0, lifespan="off", log_level="error")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        for number, one in enumerate(tables):
            one["uri"] = f"http://127.0.0.1:{port}/t{number}"
        yield
        server.should_exit = True
        thread.join()


# --- in the environment of the clients --------------------------------------------------


def comparable(table: Any) -> list[str]:
    """The rows in one spelling of times and maps, in an order that does not matter."""
    import pyarrow as pa

    columns = {}
    for name in sorted(table.column_names):
        column, type_ = table[name], table.schema.field(name).type
        if pa.types.is_timestamp(type_):
            column = column.cast(pa.timestamp("us", type_.tz)).cast(pa.int64())
        values = column.to_pylist()
        if pa.types.is_map(type_):
            values = [None if one is None else sorted(dict(one).items()) for one in values]
        columns[name] = values
    return sorted(repr(row) for row in zip(*columns.values()))


def reader(engine: str) -> Read:
    """What asks an engine a question about a table."""
    if engine.startswith("PyIceberg"):
        return _pyiceberg(engine)
    if engine.startswith("DuckDB"):
        return _duckdb(by_name=engine.endswith("name"))
    if engine == "ClickHouse":
        return _clickhouse()
    if engine == SPARK:
        return _spark()
    return (_polars if engine.startswith("Polars") else _daft)(by_name=engine.endswith("name"))


def _loaded(table: dict[str, Any], mode: str | None) -> Any:
    """A table of PyIceberg, by its name with a way to plan, or by its file."""
    from pyiceberg.catalog import load_catalog
    from pyiceberg.table import StaticTable

    if mode is None:
        return StaticTable.from_metadata(table["path"])
    options = {"type": "rest", "uri": table["uri"], "scan-planning-mode": mode}
    return load_catalog("plake", **options).load_table("default.t")


def _pyiceberg(engine: str) -> Read:
    def load(table: dict[str, Any]) -> Any:
        return _loaded(table, {"PyIceberg": None, BY_PLAN: "server"}.get(engine, "client"))

    def read(table: dict[str, Any], question: dict[str, Any]) -> Any:
        fields = tuple(question.get("columns", ("*",)))
        options: dict[str, Any] = {"selected_fields": fields}
        if "where" in question:
            options["row_filter"] = question["where"]
        if "ref" in question:
            return load(table).scan(**options).use_ref(question["ref"]).to_arrow()
        loaded = load(table)
        snapshot = question.get("snapshot")
        if "time" in question:
            snapshot = loaded.snapshot_as_of_timestamp(question["time"]).snapshot_id
        scan = loaded.scan(snapshot_id=snapshot, **options)
        found = scan.to_arrow()
        assert scan.count() == found.num_rows, "count() is another number"
        return found

    return read


def duckdb_connection() -> Any:
    """A connection with the extensions that pip installed."""
    import importlib

    import duckdb

    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    for name in ("httpfs", "avro", "iceberg"):
        package = Path(str(importlib.import_module(f"duckdb_extension_{name}").__file__)).parent
        (file,) = package.rglob(f"{name}.duckdb_extension")
        connection.execute(f"LOAD '{file}'")
    connection.execute("SET timezone = 'UTC'")
    return connection


def attached(connection: Any, uri: str, name: str) -> None:
    """Attach a REST catalog without a token."""
    connection.execute(
        f"ATTACH '' AS {name} (TYPE iceberg, ENDPOINT '{uri}', AUTHORIZATION_TYPE 'none', "
        "ACCESS_DELEGATION_MODE 'none')"
    )


def _select(source: str, question: dict[str, Any]) -> str:
    columns = ", ".join(f'"{one}"' for one in question.get("columns", ())) or "*"
    condition = f" WHERE {question['where']}" if "where" in question else ""
    return f"SELECT {columns} FROM {source}{condition}"


def _duckdb(*, by_name: bool) -> Read:
    connection = duckdb_connection()
    names: dict[str, str] = {}

    def source(table: dict[str, Any], question: dict[str, Any]) -> str:
        snapshot = question.get("snapshot")
        if by_name:
            if table["uri"] not in names:
                names[table["uri"]] = f"c{len(names)}"
                attached(connection, table["uri"], names[table["uri"]])
            at = "" if snapshot is None else f" AT (VERSION => {snapshot})"
            if "time" in question:
                at = f" AT (TIMESTAMP => make_timestamp_ms({question['time']}))"
            return f"{names[table['uri']]}.default.t{at}"
        quoted = table["path"].replace("'", "''")
        at = "" if snapshot is None else f", snapshot_from_id => {snapshot}"
        return f"iceberg_scan('{quoted}'{at})"

    def read(table: dict[str, Any], question: dict[str, Any]) -> Any:
        query = _select(source(table, question), question)
        return connection.execute(query).to_arrow_table()

    return read


def _polars(*, by_name: bool) -> Read:
    import polars

    def read(table: dict[str, Any], question: dict[str, Any]) -> Any:
        found = _loaded(table, "client") if by_name else table["path"]
        frame = polars.scan_iceberg(found, snapshot_id=question.get("snapshot"))
        if "where" in question:
            frame = frame.filter(polars.sql_expr(question["where"]))
        if "columns" in question:
            frame = frame.select(question["columns"])
        return frame.collect().to_arrow()

    return read


def _daft(*, by_name: bool) -> Read:
    import daft

    def read(table: dict[str, Any], question: dict[str, Any]) -> Any:
        found = _loaded(table, "client" if by_name else None)
        frame = daft.read_iceberg(found, snapshot_id=question.get("snapshot"))
        if "where" in question:
            frame = frame.where(daft.sql_expr(question["where"]))
        if "columns" in question:
            frame = frame.select(*question["columns"])
        return frame.to_arrow()

    return read


def _clickhouse() -> Read:
    import chdb

    os.chdir("/")  # it reads files below the working folder only

    def read(table: dict[str, Any], question: dict[str, Any]) -> Any:
        folder = str(Path(table["path"]).parent.parent).replace("'", "\\'")
        query = _select(f"icebergLocal('{folder}')", question)
        if "snapshot" in question:
            query += f" SETTINGS iceberg_snapshot_id = {question['snapshot']}"
        return chdb.query(query, "ArrowTable")

    return read


def _spark() -> Read:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    extension = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "OFF")
        .config("spark.jars", os.environ[JARS])
        .config("spark.sql.extensions", extension)
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )

    def read(table: dict[str, Any], question: dict[str, Any]) -> Any:
        reader = spark.read.format("iceberg")
        if "time" in question:
            reader.option("as-of-timestamp", str(question["time"]))
        elif "snapshot" in question:
            reader.option("snapshot-id", str(question["snapshot"]))
        frame = reader.load(table["path"])
        if "where" in question:
            frame = frame.where(question["where"])
        if "columns" in question:
            frame = frame.select(*(f"`{one}`" for one in question["columns"]))
        batches = frame._collect_as_arrow()
        if not batches:
            return pa.table({name: [] for name in frame.columns})
        return pa.Table.from_batches(batches)

    return read


def is_known(engine: str, table: str, question: dict[str, Any], said: str) -> bool:
    """Tell whether docs/engines.md lists an answer that is not equal."""
    return any(
        engine.removesuffix(" by name") == one
        and table.startswith(beginning)
        and where in (None, question.get("where"))
        and said.partition(":")[0] in may
        for one, beginning, where, may in KNOWN
    )


def read_all(folder: Path, engine: str) -> int:
    """Read every table with one engine and print a line for each question; answers failures."""
    read = reader(engine)
    failures = 0
    for table in pickle.loads((folder / "tables.pickle").read_bytes()):
        for question, wanted in table["wanted"]:
            try:
                equal = comparable(read(table, question)) == comparable(wanted)
                said = "equal" if equal else "differs"
            except Exception as error:
                said = f"error: {type(error).__name__}: {str(error)[:160]!r}"
            right = said == "equal" or is_known(engine, table["name"], question, said)
            failures += not right
            line = [engine, table["name"], question, said, "ok" if right else "WRONG"]
            print(json.dumps(line, ensure_ascii=False), flush=True)
    return failures


# --- the table --------------------------------------------------------------------------


def markdown(lines: list[list[Any]]) -> str:
    """A row for each table, a column for each engine: how many questions had which answer."""
    found: dict[tuple[str, str], Counter[str]] = {}
    for engine, table, _question, said, _right in lines:
        found.setdefault((table, engine), Counter())[said.partition(":")[0]] += 1
    engines = list(dict.fromkeys(line[0] for line in lines))
    rows = [f"| table | {' | '.join(engines)} |", "|---|" + "---|" * len(engines)]
    for table in dict.fromkeys(line[1] for line in lines):
        counts = [found.get((table, engine), Counter()) for engine in engines]
        cells = [", ".join(f"{n} {said}" for said, n in one.items()) for one in counts]
        rows.append(f"| {table} | {' | '.join(cells)} |")
    return "\n".join(rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=Path, default=FOLDER)
    parser.add_argument("--only", default=",".join(ENGINES))
    parser.add_argument("--read", nargs=2, metavar=("FOLDER", "ENGINE"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.read:
        return read_all(Path(given.read[0]), given.read[1])
    sys.path.insert(0, str(ROOT))
    from integration import iceberg_tables
    from integration.benchmarks import rivals

    python = environment(given.clients)
    failures, lines = 0, []
    with tempfile.TemporaryDirectory() as name:
        tables = iceberg_tables.make(Path(name))
        failures += iceberg_tables.refusals(Path(name))
        with served(tables):
            (Path(name) / "tables.pickle").write_bytes(pickle.dumps(tables))
            for engine in given.only.split(","):
                used, settings = str(python), dict(os.environ)
                if engine == SPARK:
                    used, settings[JARS] = rivals.iceberg_spark()
                    settings["PYSPARK_PYTHON"] = used
                command = [used, __file__, "--read", name, engine]
                with subprocess.Popen(
                    command, stdout=subprocess.PIPE, text=True, env=settings
                ) as process:
                    assert process.stdout is not None
                    for line in process.stdout:
                        print(line, end="", flush=True)
                        if line.startswith("["):
                            lines.append(json.loads(line))
                failures += process.returncode
    print(markdown(lines))
    return min(failures, 100)


if __name__ == "__main__":
    sys.exit(main())

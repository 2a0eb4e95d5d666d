"""Other engines read exported tables: rows equal to plake's own, or what docs/engines.md lists.

    python integration/iceberg_clients.py [--clients FOLDER]

The clients are installed from pip into an environment in FOLDER, which is kept. Tables and
conditions are those of tests/verbs/test_iceberg.py.
"""

from __future__ import annotations

import argparse
import json
import pickle
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
DUCKDB = "1.5.5"
EXTENSIONS = [f"duckdb-extension-{name}=={DUCKDB}" for name in ("avro", "httpfs", "iceberg")]
PACKAGES = [f"duckdb=={DUCKDB}", *EXTENSIONS, "polars", "daft", "pyiceberg[pyarrow]", "chdb"]
ENGINES = ("pyiceberg", "duckdb", "polars", "daft", "clickhouse")
CONDITIONS = {
    "all types": ["id = 2", "i is null"],
    "vectors": ["id > 1005", "v = 2"],
    "by int": ["p = 2", "p is null"],
    "by string": ["p = ''"],
    "evolved": ["a > 5"],
}
# What docs/engines.md lists: anything else must be equal.
KNOWN = {
    ("daft", "vectors"): "error",
    ("daft", "added files"): "error",
    ("clickhouse", "vectors"): "error",
    ("clickhouse", "all types"): "differs or error",
}


def make_tables(folder: Path) -> None:
    """Write the tables, export them, and keep what plake reads of them."""
    from tests.verbs.test_iceberg import TABLES

    tables: list[dict[str, Any]] = []
    for number, (name, make) in enumerate(TABLES.items()):
        dataset = make(str(folder / f"t{number}"))
        path = dataset.export_iceberg()
        wanted = [(None, dataset.scan().to_table())]
        wanted += [(one, dataset.scan(one).to_table()) for one in CONDITIONS.get(name, [])]
        tables.append({"name": name, "path": path, "wanted": wanted})
    (folder / "tables.pickle").write_bytes(pickle.dumps(tables))


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


def reader(engine: str) -> Any:
    """What reads a table, by the path of its metadata, with a condition or without."""
    if engine == "pyiceberg":
        from pyiceberg.table import StaticTable

        return lambda path, where: (
            StaticTable.from_metadata(path).scan(where or "true").to_arrow()
            if where
            else StaticTable.from_metadata(path).scan().to_arrow()
        )
    if engine == "duckdb":
        return _duckdb()
    if engine == "polars":
        import polars

        def by_polars(path: str, where: str | None) -> Any:
            frame = polars.scan_iceberg(path)
            found = frame if where is None else frame.filter(polars.sql_expr(where))
            return found.collect().to_arrow()

        return by_polars
    if engine == "daft":
        import daft
        from pyiceberg.table import StaticTable

        def by_daft(path: str, where: str | None) -> Any:
            frame = daft.read_iceberg(StaticTable.from_metadata(path))
            return (frame if where is None else frame.where(daft.sql_expr(where))).to_arrow()

        return by_daft
    import os

    import chdb

    os.chdir("/")  # it reads files below the working folder only

    def by_clickhouse(path: str, where: str | None) -> Any:
        folder = str(Path(path).parent.parent).replace("'", "\\'")
        query = f"SELECT * FROM icebergLocal('{folder}')" + (f" WHERE {where}" if where else "")
        return chdb.query(query, "ArrowTable")

    return by_clickhouse


def _duckdb() -> Any:
    import importlib

    import duckdb

    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    for name in ("httpfs", "avro", "iceberg"):
        package = Path(str(importlib.import_module(f"duckdb_extension_{name}").__file__)).parent
        (file,) = package.rglob(f"{name}.duckdb_extension")
        connection.execute(f"LOAD '{file}'")
    connection.execute("SET timezone = 'UTC'")

    def read(path: str, where: str | None) -> Any:
        quoted = path.replace("'", "''")
        query = f"SELECT * FROM iceberg_scan('{quoted}')" + (f" WHERE {where}" if where else "")
        return connection.execute(query).to_arrow_table()

    return read


def read_all(folder: Path, engine: str) -> int:
    """Read every table with one engine and print a line for each question; answers failures."""
    read = reader(engine)
    failures = 0
    for one in pickle.loads((folder / "tables.pickle").read_bytes()):
        for where, wanted in one["wanted"]:
            try:
                equal = comparable(read(one["path"], where)) == comparable(wanted)
                said = "equal" if equal else "differs"
            except Exception as error:
                said = f"error: {type(error).__name__}: {str(error)[:120]!r}"
            known = KNOWN.get((engine, one["name"]), "")
            right = said == "equal" or said.partition(":")[0] in known
            failures += not right
            print(json.dumps([engine, one["name"], where, said, "ok" if right else "WRONG"]))
    return failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", default=str(ROOT / "integration" / ".iceberg_clients"))
    parser.add_argument("--read", nargs=2, metavar=("FOLDER", "ENGINE"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.read:
        return read_all(Path(given.read[0]), given.read[1])
    sys.path.insert(0, str(ROOT))
    python = Path(given.clients) / "bin" / "python"
    if not python.exists():
        venv.create(given.clients, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *PACKAGES], check=True)
    with tempfile.TemporaryDirectory() as name:
        make_tables(Path(name))
        command = [str(python), __file__, "--read", name]
        return sum(subprocess.run([*command, engine]).returncode for engine in ENGINES)


if __name__ == "__main__":
    sys.exit(main())

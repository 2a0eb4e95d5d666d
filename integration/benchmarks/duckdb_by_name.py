"""DuckDB over a table by its name in a REST catalog, and over the same files, in one process.

Started by rest_catalog.py in an environment that has DuckDB's extensions; it imports nothing of
plake. A JSON of what to do comes in, one of the seconds of each round goes out.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from integration.iceberg_clients import attached, duckdb_connection


def _rounded(value: Any) -> Any:
    return f"{value:.9g}" if isinstance(value, float) else value


def main() -> None:
    request = json.load(sys.stdin)
    connection = duckdb_connection()
    attached(connection, request["uri"], "plake")
    files = "[" + ", ".join("'" + file.replace("'", "''") + "'" for file in request["files"]) + "]"
    views = {
        "DuckDB over the files": f"SELECT * FROM read_parquet({files}, hive_partitioning = false)",
        "DuckDB through the server": "SELECT * FROM plake.default.lineitem",
    }
    found: dict[str, Any] = {}
    for question, sql in request["queries"].items():
        answers, times = {}, {system: [] for system in views}
        for number in range(request["rounds"] + 1):
            order = list(views) if number % 2 else list(reversed(views))
            for system in order:
                started = time.perf_counter()
                connection.execute(f"CREATE OR REPLACE TEMP VIEW t AS {views[system]}")
                rows = connection.execute(sql).fetchall()
                if number:  # the first one warms up
                    times[system].append(time.perf_counter() - started)
                # The average of doubles depends on the order of the rows.
                answers[system] = sorted(repr([_rounded(one) for one in row]) for row in rows)
        assert len(set(map(tuple, answers.values()))) == 1, answers
        found[question] = times
    print(json.dumps(found))


if __name__ == "__main__":
    main()

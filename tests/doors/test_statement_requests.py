"""How often Spark's statements ask Python on the driver: each time costs some milliseconds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

import lakehouse_source as lake

pytestmark = [
    pytest.mark.spark("own"),
    pytest.mark.slow,
    pytest.mark.skipif(
        pyspark.__version__.startswith("4.1."), reason="Spark 4.1 has no views in such catalogs"
    ),
]

# Runs in Spark's daemons. A worker calls this once for each request, before it answers.
COUNTED = """
import os, sys

def count():
    from pyspark.sql.worker import utils
    asked = utils.check_python_version

    def noted(given):
        asked(given)
        with open(os.environ["ASKED"], "a") as file:
            print(sys.orig_argv[-1].rpartition(".")[2], file=file)

    utils.check_python_version = noted

if "pyspark.daemon" in sys.orig_argv:
    os.register_at_fork(after_in_child=count)
"""
ASKING = """
import json, os, sys
from pyspark.sql import SparkSession
import lakehouse_source as lake

folder = sys.argv[1]
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
catalog, warehouse = f"sqlite:///{folder}/catalog.db", f"{folder}/warehouse"
spark = lake.spark.configure(builder, catalog, warehouse=warehouse).getOrCreate()
spark.sql("CREATE NAMESPACE plake.shop")
rows = "SELECT id, id % 3 AS g, id % 2 AS p FROM range(10)"
for name, clause in (("a", ""), ("b", ""), ("c", "PARTITIONED BY (p)")):
    spark.sql(f"CREATE TABLE plake.shop.{name} {clause} AS {rows}")
spark.sql("CREATE VIEW plake.shop.v AS SELECT 1 AS x")
frame = spark.read.format("plake").load(f"{folder}/data")
frame.createOrReplaceTempView("frame")
found = []
for statement in json.loads(sys.argv[2]):
    open(os.environ["ASKED"], "w").close()
    rows = [list(row) for row in spark.sql(statement).collect()]
    found.append((sorted(rows), open(os.environ["ASKED"]).read().split()))
print(json.dumps(found))
"""
PLAN, WRITE, COMMIT = "plan_data_source_read", "write_into_data_source", "commit_data_source_write"
TABLES = [["shop", name, False] for name in "abcv"]
STATEMENTS = {
    # Spark would load each table to tell of what type it is.
    "SHOW TABLES IN plake.shop": (TABLES, [PLAN]),
    # The table, and who reads it.
    "SELECT id FROM plake.shop.a WHERE id = 7": ([[7]], [PLAN] * 2),
    # The catalog knows nothing of groups by another column than a partition column.
    "SELECT g, count(*) FROM plake.shop.a GROUP BY g": ([[0, 4], [1, 3], [2, 3]], [PLAN] * 2),
    "SELECT g, p, count(*) FROM plake.shop.c WHERE g = 0 GROUP BY g, p": (
        [[0, 0, 2], [0, 1, 2]],
        [PLAN] * 2,
    ),
    "SELECT g, count(*) FROM frame GROUP BY g": ([[0, 2], [1, 1]], [PLAN]),
    # Answered by the catalog: no scan is planned.
    "SELECT p, count(*) FROM plake.shop.c GROUP BY p": ([[0, 5], [1, 5]], [PLAN] * 2),
    "SELECT count(*), max(id) FROM plake.shop.a": ([[10, 9]], [PLAN] * 2),
    "INSERT INTO plake.shop.b VALUES (10, 1, 0)": ([], [PLAN, WRITE, COMMIT]),
}


def test_statements_ask_python_no_more_often_than_they_need(tmp_path: Path) -> None:
    lake.write_dataset({"id": [1, 2, 3], "g": [0, 0, 1]}, str(tmp_path / "data"))
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "sitecustomize.py").write_text(COUNTED)
    path = f"{tmp_path / 'path'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": path,
        "ASKED": str(tmp_path / "asked"),
    }
    command = [sys.executable, "-c", ASKING, str(tmp_path), json.dumps([*STATEMENTS])]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert dict(zip(STATEMENTS, map(tuple, found))) == STATEMENTS

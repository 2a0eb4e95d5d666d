"""Tables of plake in a Hive metastore: Spark's session catalog outlives the session."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.long]

SESSION = """
import os, sys
from pyspark.sql import SparkSession
import lakehouse_source as lake

folder = os.getcwd()
builder = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.log.level", "ERROR")
    .config("spark.sql.shuffle.partitions", "1")
    .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
    .config(
        "spark.hadoop.javax.jdo.option.ConnectionURL",
        f"jdbc:derby:;databaseName={folder}/metastore;create=true",
    )
    .enableHiveSupport()
)
spark = lake.spark.configure(builder).getOrCreate()
assert spark.conf.get("spark.sql.catalogImplementation") == "hive"

def rows(query):
    return sorted(tuple(row) for row in spark.sql(query).collect())
"""


def run(script: str, folder: Path) -> None:
    """Run a script in a process of its own: support of Hive is chosen as the JVM starts."""
    file = folder / "script.py"
    file.write_text(SESSION + textwrap.dedent(script) + "\nspark.stop()\n")
    done = subprocess.run(
        [sys.executable, str(file)],
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=550,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_tables_of_a_hive_metastore_are_there_in_the_next_session(tmp_path: Path) -> None:
    run(
        """
        spark.sql("CREATE TABLE hive_table (id INT, s STRING) STORED AS PARQUET")
        spark.sql("INSERT INTO hive_table VALUES (1, 'h'), (5, 'k')")
        spark.sql(
            "CREATE TABLE t (id INT, s STRING, p STRING) USING plake PARTITIONED BY (p) "
            f"LOCATION '{folder}/t'"
        )
        spark.sql("INSERT INTO t VALUES (1, 'a', 'x'), (2, 'b', 'y')")
        spark.sql("INSERT OVERWRITE t PARTITION (p = 'x') VALUES (9, 'n')")
        spark.sql("UPDATE t SET s = 'U' WHERE id = 2")
        spark.sql("DELETE FROM t WHERE id = 9")
        spark.sql(
            "MERGE INTO t USING hive_table AS h ON t.id = h.id "
            "WHEN NOT MATCHED THEN INSERT (id, s, p) VALUES (h.id, h.s, 'z')"
        )
        assert rows("SELECT * FROM t VERSION AS OF 2") == [(1, "a", "x"), (2, "b", "y")]
        spark.sql("ALTER TABLE t ADD COLUMN k INT")
        spark.sql("ALTER TABLE t RENAME COLUMN s TO text")
        spark.sql("ALTER TABLE t RENAME TO renamed")
        spark.sql("CREATE VIEW v AS SELECT id, p FROM renamed WHERE id > 1")
        spark.sql("CREATE TABLE copied USING plake AS SELECT * FROM hive_table")
        spark.range(3).write.format("plake").saveAsTable("saved")
        spark.sql("CREATE DATABASE other")
        spark.sql("CREATE TABLE other.t USING plake AS SELECT 1 AS a")
        spark.sql("DROP DATABASE other CASCADE")
        """,
        tmp_path,
    )
    run(
        """
        tables = [name for _, name, _ in rows("SHOW TABLES")]
        assert tables == ["copied", "hive_table", "renamed", "saved", "v"], tables
        expected = [(1, "h", "z", None), (2, "U", "y", None), (5, "k", "z", None)]
        assert rows("SELECT id, text, p, k FROM renamed") == expected
        assert rows("SELECT * FROM v") == [(2, "y"), (5, "z")]
        assert rows("SELECT * FROM copied") == rows("SELECT * FROM hive_table")
        query = "SELECT h.id, r.p FROM renamed AS r JOIN hive_table AS h USING (id)"
        assert rows(query) == [(1, "z"), (5, "z")]
        spark.range(3, 5).write.format("plake").mode("append").saveAsTable("saved")
        assert rows("SELECT * FROM saved") == [(i,) for i in range(5)]
        spark.sql("DROP TABLE renamed")
        spark.sql("DROP TABLE copied")
        assert [name for _, name, _ in rows("SHOW TABLES")] == ["hive_table", "saved", "v"]
        # A table with a location of its own keeps its data.
        assert lake.open_dataset(f"{folder}/t").scan().count_rows() == 3
        """,
        tmp_path,
    )

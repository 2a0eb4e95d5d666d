"""Processes die while Spark runs statements: each statement is carried out once, or not at all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

TESTS = Path(__file__).parents[1]

# The oracle is the same statement over a temporary table of rows, by plain Python.
SCRIPT = """
import json, os, sys
from pathlib import Path
from pyspark.sql import SparkSession
import lakehouse_source as lake

folder, fault = Path(sys.argv[1]), Path(os.environ["PLAKE_FAULT"])
builder = (
    SparkSession.builder.master("local[2, 4]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.log.level", "OFF")
)
spark = lake.spark.configure(builder).getOrCreate()
STATEMENTS = {
    "DELETE FROM t WHERE id % 10 = 3": lambda rows: {
        i: v for i, v in rows.items() if i % 10 != 3
    },
    "UPDATE t SET v = -id WHERE id % 10 = 4": lambda rows: {
        i: -i if i % 10 == 4 else v for i, v in rows.items()
    },
    "MERGE INTO t USING (SELECT id * 7 AS k FROM range(60)) s ON t.id = s.k "
    "WHEN MATCHED AND k % 2 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET v = 1000 "
    "WHEN NOT MATCHED THEN INSERT (id, v, p) VALUES (k, 2000, 9)": lambda rows: {
        **{
            i: 1000 if i % 7 == 0 and i < 420 else v
            for i, v in rows.items()
            if not (i % 7 == 0 and i < 420 and i % 2 == 0)
        },
        **{i: 2000 for i in range(0, 420, 7) if i not in rows},
    },
}
FAULTS = json.loads(sys.argv[2])
for number, (point, where) in enumerate(FAULTS):
    for kind, (text, oracle) in enumerate(STATEMENTS.items()):
        uri = str(folder / f"{number}-{kind}")
        rows = {i: i for i in range(300)}
        columns = {"id": list(rows), "v": list(rows), "p": [i % 3 for i in rows]}
        lake.write_dataset(columns, uri, partition_by="p", target_file_size_bytes=1000)
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW t USING plake OPTIONS (path '{uri}')")
        fault.write_text(f"{point} {where}")
        error = ""
        try:
            spark.sql(text)
        except Exception as failure:
            error = type(failure).__name__
        fault.unlink(missing_ok=True)
        deaths = Path(f"{fault}.deaths")
        died = deaths.read_text().count("\\n") if deaths.exists() else 0
        deaths.unlink(missing_ok=True)
        dataset = lake.open_dataset(uri)
        found = dataset.scan().to_table()
        seen = dict(zip(found["id"].to_pylist(), found["v"].to_pylist()))
        in_spark = spark.sql("SELECT count(*), sum(v) FROM t").collect()[0]
        verified = dataset.verify(checksums=True).ok
        report = dataset.vacuum(retention_seconds=0, allow_short_retention=True)
        kept = dataset.refresh().scan(columns=["id", "v"]).to_table()
        again = dict(zip(kept["id"].to_pylist(), kept["v"].to_pylist()))
        print("RESULT " + json.dumps({
            "point": point, "where": where, "statement": text.split()[0], "error": error,
            "died": died, "versions": dataset.version - 1, "rows": found.num_rows,
            "unchanged": seen == rows, "changed": seen == oracle(rows), "verified": verified,
            "in_spark": list(in_spark) == [len(seen), sum(seen.values())],
            "orphans": report.files_removed, "same_after_vacuum": again == seen,
            "unique": len(seen) == found.num_rows,
        }))
spark.stop()
"""

# Executors write files; what comes after them is done by processes of the driver.
IN_TASKS = ("file opened", "row group written", "file closed", "files closed")
ON_DRIVER = ("commit begun", "vectors written", "dataset locked", "before COMMIT", "after COMMIT")
EVERY = (*((point, "task") for point in IN_TASKS), *((point, "driver") for point in ON_DRIVER))


@pytest.mark.long
def test_a_statement_whose_processes_die_is_carried_out_once_or_not_at_all(
    tmp_path: Path,
) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    paths = [str(TESTS / "faulty_workers"), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path), json.dumps(EVERY)],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path for path in paths if path),
            "PLAKE_FAULT": str(tmp_path / "fault"),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        cwd=TESTS.parent,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    lines = [line.removeprefix("RESULT ") for line in done.stdout.splitlines()]
    results = [json.loads(line) for line in lines if line.startswith("{")]
    assert len(results) == 3 * len(EVERY), done.stderr[-3000:]
    for one in results:
        for fact in ("verified", "in_spark", "unique", "same_after_vacuum"):
            assert one[fact], one
        done_once = one["changed"] and one["versions"] == 1
        if one["where"] == "task":
            # The second attempt of the task does the work; a DELETE writes no file in tasks.
            assert done_once, one
            assert not one["error"], one
            assert one["died"] >= (0 if one["statement"] == "DELETE" else 1), one
            continue
        assert one["died"] == 1, one
        if one["point"] == "after COMMIT":
            assert done_once, one
        else:
            assert one["error"], one
            assert one["unchanged"], one
            assert one["versions"] == 0, one

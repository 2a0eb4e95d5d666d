"""What drivers run on the cluster, each in a process of its own.

    python -m integration.cluster.jobs '{"name": "main", ...}'

A job is a function of a `Job`. What it found it leaves in `found`, which is printed as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[2]
ROWS = 120_000
PATHS = f"{CHECKOUT}{os.pathsep}{CHECKOUT / 'spark_conf'}"
CATALOG = "PLAKE_CLUSTER_CATALOG"


@dataclass
class Job:
    """One job: its session, where it works, and what it found."""

    spark: Any
    uri: str
    options: dict[str, str]
    given: dict[str, Any]
    found: dict[str, Any] = field(default_factory=dict)

    def read(self) -> Any:
        return self.spark.read.format("plake").options(**self.options).load(self.uri)

    def append(self, frame: Any, **further: str) -> None:
        writer = frame.write.format("plake").mode("append")
        writer.options(**further, **self.options).save(self.uri)

    def first(self, query: str) -> list[Any]:
        return list(self.spark.sql(query).collect()[0])


def main_job(job: Job) -> None:
    """Reads, statements and a join over one dataset."""
    import lakehouse_source as lake

    spark, found = job.spark, job.found
    frame = spark.range(ROWS).selectExpr(
        "id", "id % 7 AS p", "id * 3 AS v", "cast(id AS STRING) AS s"
    )
    job.append(frame, partitionBy="p")
    found["count"] = job.read().count()
    found["point"] = job.read().where("id = 77").select("v").collect()[0][0]
    found["range"] = job.read().where("p = 3 AND id BETWEEN 1000 AND 2000").count()
    found["sum"] = job.read().where("s LIKE '99%'").agg({"v": "sum"}).collect()[0][0]
    listed = ", ".join(f"`{key}` '{value}'" for key, value in job.options.items())
    spark.sql(f"CREATE TEMPORARY VIEW t USING plake OPTIONS (path '{job.uri}', {listed})")
    _change_rows(job, "t")
    found["after"] = job.first("SELECT count(*), sum(v), sum(id) FROM t")
    joined = job.read().join(spark.range(0, ROWS, 997).toDF("id"), "id")
    found["join"] = joined.count()
    found["batches"] = "ColumnarToRow" in job.read()._jdf.queryExecution().toString()
    found["status"] = lake.spark.status(spark).is_enabled


def _change_rows(job: Job, table: str) -> None:
    job.spark.sql(f"DELETE FROM {table} WHERE id % 1000 = 3")
    job.spark.sql(f"UPDATE {table} SET v = -1 WHERE id % 1000 = 4")
    job.spark.sql(
        f"MERGE INTO {table} t USING (SELECT id * 100 AS k FROM range(1300)) s ON t.id = s.k "
        "WHEN MATCHED THEN UPDATE SET v = 5 "
        "WHEN NOT MATCHED THEN INSERT (id, p, v, s) VALUES (k, 9, 6, 'new')"
    )


def tables(job: Job) -> None:
    """Tables by name, statements on them, and a stream from one to another."""
    spark, found = job.spark, job.found
    space = f"plake.{job.given['namespace']}"
    spark.sql(f"CREATE NAMESPACE {space}")
    spark.sql(
        f"CREATE TABLE {space}.t (id BIGINT, p BIGINT, v BIGINT, s STRING) PARTITIONED BY (p)"
    )
    copied = f"{space}.copied"
    checkpoint = job.given["checkpoint"]

    def stream() -> None:
        frame = spark.readStream.option("maxFilesPerTrigger", 3).table(f"{space}.t")
        writer = frame.writeStream.option("checkpointLocation", checkpoint)
        writer.trigger(availableNow=True).toTable(copied).awaitTermination()

    rows = "SELECT id, id % 7 AS p, id * 3 AS v, cast(id AS STRING) AS s"
    spark.sql(f"INSERT INTO {space}.t {rows} FROM range({ROWS // 4})")
    stream()
    spark.sql(f"INSERT INTO {space}.t {rows} FROM range({ROWS // 4}, {ROWS // 2})")
    stream()
    counts = "SELECT count(*), count(DISTINCT id), sum(v), max(s)"
    found["streamed"] = job.first(f"{counts} FROM {copied}")
    _change_rows(job, f"{space}.t")
    found["after"] = job.first(f"{counts} FROM {space}.t")
    found["travel"] = job.first(f"{counts} FROM {space}.t VERSION AS OF 2")
    spark.sql(f"CREATE TABLE {space}.made AS SELECT * FROM {space}.t WHERE p = 3")
    found["made"] = job.first(f"{counts} FROM {space}.made")
    found["grouped"] = [
        list(row)
        for row in spark.sql(
            f"SELECT t.p, count(*), sum(c.v) FROM {space}.t JOIN {copied} c USING (id) "
            "GROUP BY t.p ORDER BY t.p"
        ).collect()
    ]
    found["names"] = sorted(row[1] for row in spark.sql(f"SHOW TABLES IN {space}").collect())


def clustering(job: Job) -> None:
    """A table by name, clustered by two columns: shuffled appends, `CALL cluster`, `health`."""
    spark, found = job.spark, job.found
    called = f"{job.given['namespace']}.c"
    table = f"plake.{called}"
    spark.sql(f"CREATE NAMESPACE plake.{job.given['namespace']}")
    spark.sql(
        f"CREATE TABLE {table} (id BIGINT, a BIGINT, b BIGINT, s STRING) CLUSTER BY (a, b) "
        "TBLPROPERTIES ('row_group_rows' = '2048', 'target_file_size_bytes' = '524288')"
    )
    for number in range(8):
        spark.sql(
            f"INSERT INTO {table} SELECT id, id * 7919 % {ROWS} AS a, id * 104729 % {ROWS} AS b, "
            f"repeat(sha2(cast(id AS STRING), 256), 4) AS s "
            f"FROM range({number * ROWS // 8}, {(number + 1) * ROWS // 8})"
        )
    rows = f"SELECT count(*), sum(id), sum(a * b % 1000), max(s) FROM {table}"
    part = f"SELECT count(*), sum(id) FROM {table} WHERE {{}} BETWEEN 60000 AND 61199"

    def look(when: str) -> None:
        health = spark.sql(f"CALL plake.system.health('{called}')").collect()
        depths = [row["value"] for row in health if row["measure"] == "greatest depth"]
        found[f"depth {when}"] = max(depths)
        found[f"rows {when}"] = job.first(rows)
        for column in ("a", "b"):
            found[f"{column} {when}"] = job.first(part.format(column))
            condition = f"{column} BETWEEN 60000 AND 61199"
            plan = spark.sql(f"CALL plake.system.explain('{called}', '{condition}')")
            found[f"bytes {column} {when}"] = plan.collect()[0]["bytes_read"]

    look("before")
    for when in ("first", "second"):
        call = spark.sql(f"CALL plake.system.cluster('{called}')")
        found[f"{when} run"] = call.collect()[0].asDict()
    look("after")
    found["rows at version 9"] = job.first(rows + " VERSION AS OF 9")


def append(job: Job) -> None:
    """Many small appends, each tried again until it is committed."""
    for who in job.given["who"].split(","):
        for number in range(int(job.given["appends"])):
            numbers = job.spark.range(number * 100, number * 100 + 100)
            _append_once(job, numbers.selectExpr("id", f"'{who}' AS who"), who, number)


def _append_once(job: Job, frame: Any, who: str, number: int) -> None:
    for _attempt in range(40):
        try:
            job.append(frame, txnAppId=who, txnVersion=str(number))
            return
        except Exception:
            job.found["errors"] = job.found.get("errors", 0) + 1
            time.sleep(0.5)
    raise SystemExit("40 attempts failed")


def slow(job: Job) -> None:
    """Tasks that take long enough to be killed in."""
    from pyspark.sql.functions import udf

    def slowly(i: int) -> int:
        if i % 500 == 0:
            time.sleep(0.25)
        return i

    frame = job.spark.range(0, ROWS // 4, 1, 8).select(udf(slowly, "long")("id").alias("id"))
    print("started", flush=True)
    job.append(frame)


def scale(job: Job) -> None:
    """A job of many tasks, each with several files."""
    tasks, files = int(job.given["tasks"]), int(job.given["files"])
    each = files // tasks
    frame = job.spark.range(0, files * 5, 1, tasks).selectExpr("id", f"id % {each} AS p")
    begun = time.monotonic()
    job.append(frame, partitionBy="p")
    job.found["seconds"] = time.monotonic() - begun
    job.found["driver_mib"] = _driver_mib()
    begun = time.monotonic()
    job.found["count"] = job.read().where("id % 2 = 0").count()
    job.found["read_seconds"] = time.monotonic() - begun


def plan(job: Job) -> None:
    """Plan a scan of every file into tasks, and a selective one."""
    begun = time.monotonic()
    job.found["partitions"] = job.read().rdd.getNumPartitions()
    job.found["seconds"] = time.monotonic() - begun
    begun = time.monotonic()
    job.found["some"] = job.read().where(job.given["condition"]).rdd.getNumPartitions()
    job.found["some_seconds"] = time.monotonic() - begun
    job.found["driver_mib"] = _driver_mib()


def _driver_mib() -> dict[str, int]:
    """The most memory that each process of the driver had at a time, by its program."""
    session = os.getsid(0)
    peaks: dict[str, int] = {}
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.getsid(int(process)) != session:
                continue
            text = Path(f"/proc/{process}/status").read_text()
        except OSError:
            continue
        named = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
        if "VmHWM" in named:
            name = named["Name"].strip()
            peaks[name] = max(peaks.get(name, 0), int(named["VmHWM"].split()[0]) // 1024)
    return peaks


JOBS = {
    "main": main_job, "tables": tables, "clustering": clustering, "append": append, "slow": slow,
    "scale": scale, "plan": plan,
}  # fmt: skip


def run(given: dict[str, Any]) -> None:
    from pyspark.sql import SparkSession

    import lakehouse_source as lake

    settings = {
        "spark.executor.memory": "900m",
        "spark.executor.cores": "1",
        "spark.cores.max": given.get("cores", "2"),
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.executorEnv.PYTHONPATH": PATHS,
        "spark.sql.shuffle.partitions": "4",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": f"file://{Path.cwd() / 'events'}",
        "spark.ui.enabled": str("ui" in given).lower(),
        "spark.ui.port": str(given.get("ui", 4040)),
        "spark.log.level": "WARN",
        **{f"spark.sql.catalog.plake.{key}": value for key, value in given["storage"].items()},
        **given.get("settings", {}),
    }
    builder = SparkSession.builder.master(given["master"]).appName(given["name"])
    for name, value in settings.items():
        builder = builder.config(name, value)
    builder = lake.spark.configure(builder, f"env:{CATALOG}", warehouse=given["warehouse"])
    spark = builder.getOrCreate()
    job = Job(spark, given["uri"], {"catalog": f"env:{CATALOG}", **given["storage"]}, given)
    JOBS[given["name"]](job)
    if "ui" in given:
        # What the session leaves is looked at while it runs.
        print(json.dumps(job.found), flush=True)
        sys.stdin.readline()
    spark.stop()
    print(json.dumps(job.found), flush=True)


if __name__ == "__main__":
    run(json.loads(sys.argv[1]))

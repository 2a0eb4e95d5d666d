"""plake on a standalone Spark cluster, with PostgreSQL as catalog and S3 as storage.

    python integration/cluster.py [--appends N] [--kills N]

Starts, all on loopback: a PostgreSQL server, an S3 server behind a proxy that can fail, a Spark
master and two workers of one core each, from the pip package. Then drivers run jobs on it, in
processes of their own, each compared with DuckDB over the same rows, while executors, drivers and
the database are killed and the store fails. Prints one line per check; the exit code is 1 if one
is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT))

PASSWORD = "canary-in-the-catalog-url"
KEYS = {"access_key": "user", "secret_key": "canary-secret"}
ROWS = 120_000
# What a driver runs. `spark`, `lake`, `uri` and `options` are there; it prints one JSON object.
JOBS: dict[str, str] = {
    "main": """
frame = spark.range(ROWS).selectExpr("id", "id % 7 AS p", "id * 3 AS v", "cast(id AS STRING) AS s")
frame.write.format("plake").mode("append").options(partitionBy="p", **options).save(uri)
read = lambda: spark.read.format("plake").options(**options).load(uri)
found["count"] = read().count()
found["point"] = read().where("id = 77").select("v").collect()[0][0]
found["range"] = read().where("p = 3 AND id BETWEEN 1000 AND 2000").count()
found["sum"] = read().where("s LIKE '99%'").agg({"v": "sum"}).collect()[0][0]
listed = ", ".join(f"`{key}` '{value}'" for key, value in options.items())
spark.sql(f"CREATE TEMPORARY VIEW t USING plake OPTIONS (path '{uri}', {listed})")
spark.sql("DELETE FROM t WHERE id % 1000 = 3")
spark.sql("UPDATE t SET v = -1 WHERE id % 1000 = 4")
spark.sql("MERGE INTO t USING (SELECT id * 100 AS k FROM range(1300)) s ON t.id = s.k "
          "WHEN MATCHED THEN UPDATE SET v = 5 "
          "WHEN NOT MATCHED THEN INSERT (id, p, v, s) VALUES (k, 9, 6, 'new')")
found["after"] = list(spark.sql("SELECT count(*), sum(v), sum(id) FROM t").collect()[0])
joined = read().join(spark.range(0, ROWS, 997).toDF("id"), "id")
found["join"] = joined.count()
found["batches"] = "ColumnarToRow" in read()._jdf.queryExecution().toString()
found["status"] = lake.spark.status(spark).is_enabled
""",
    "append": """
for number in range(int(job["appends"])):
    frame = spark.range(number * 100, number * 100 + 100).selectExpr("id", f"'{job['who']}' AS who")
    pair = {"txnAppId": job["who"], "txnVersion": str(number)}
    for attempt in range(40):
        try:
            frame.write.format("plake").mode("append").options(**pair, **options).save(uri)
            break
        except Exception as error:
            found["errors"] = found.get("errors", 0) + 1
            time.sleep(0.5)
    else:
        raise SystemExit("40 attempts failed")
""",
    "slow": """
from pyspark.sql.functions import udf
def slowly(i):
    if i % 500 == 0:
        time.sleep(0.25)
    return i
frame = spark.range(0, ROWS // 4, 1, 8).select(udf(slowly, "long")("id").alias("id"))
print("started", flush=True)
frame.write.format("plake").mode("append").options(**options).save(uri)
""",
}


@dataclass
class Cluster:
    """What runs, and how drivers reach it."""

    folder: Path
    master: str
    catalog: str
    store: dict[str, str]
    proxy: Any
    server: Any
    wrong: list[str] = field(default_factory=list)

    def check(self, what: str, good: bool, detail: object = "") -> None:
        print(f"{'ok   ' if good else 'WRONG'} {what} {detail}".rstrip(), flush=True)
        if not good:
            self.wrong.append(what)

    @property
    def options(self) -> dict[str, str]:
        """Options of a frame: no secret stands in them, only names of environment variables."""
        return {"catalog": "env:PLAKE_CLUSTER_CATALOG"} | {
            f"storage.{name}": value for name, value in self.store.items()
        }

    def start(self, name: str, uri: str, **job: Any) -> subprocess.Popen[str]:
        """A driver that runs one of `JOBS`, in a process group of its own."""
        job = {"name": name, "uri": uri, "options": self.options, "master": self.master, **job}
        return subprocess.Popen(
            [sys.executable, __file__, "--driver", json.dumps(job)],
            env={
                **os.environ,
                "PLAKE_CLUSTER_CATALOG": self.catalog,
                "PLAKE_CLUSTER_KEY": KEYS["access_key"],
                "PLAKE_CLUSTER_SECRET": KEYS["secret_key"],
                "PYTHONPATH": f"{CHECKOUT}{os.pathsep}{CHECKOUT / 'spark_conf'}",
                "PYSPARK_PYTHON": sys.executable,
                "SPARK_LOCAL_IP": "127.0.0.1",
            },
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=(self.folder / "drivers.log").open("a"),
            text=True,
            start_new_session=True,
        )

    def finish(self, driver: subprocess.Popen[str], seconds: float = 600) -> dict[str, Any]:
        """What a driver found."""
        printed, _ = driver.communicate(timeout=seconds)
        lines = [line for line in printed.splitlines() if line.startswith("{")]
        if driver.returncode or not lines:
            return {"failed": driver.returncode}
        return dict(json.loads(lines[-1]))

    def open(self, uri: str) -> Any:
        import lakehouse_source as lake

        return lake.open_dataset(uri, catalog=self.catalog, storage_options=self.store | KEYS)

    def is_clean(self, uri: str) -> tuple[bool, int]:
        """Verify every version, vacuum, verify again; answers how many orphans there were."""
        dataset = self.open(uri)
        before = dataset.verify(checksums=True).ok
        report = dataset.vacuum(
            retention_seconds=0, allow_short_retention=True, abandoned_after_seconds=0
        )
        second = dataset.vacuum(
            retention_seconds=0, allow_short_retention=True, abandoned_after_seconds=0
        )
        after = dataset.refresh().verify(checksums=True).ok
        return before and after and second.files_removed == 0, report.files_removed


def driver(job: dict[str, Any]) -> None:
    """Run one job, in a process that `Cluster.start` made."""
    from pyspark.sql import SparkSession

    import lakehouse_source as lake

    folder = Path.cwd()
    builder = (
        SparkSession.builder.master(job["master"])
        .appName(job["name"])
        .config("spark.executor.memory", "900m")
        .config("spark.executor.cores", "1")
        .config("spark.cores.max", job.get("cores", "2"))
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.executorEnv.PYTHONPATH", f"{CHECKOUT}{os.pathsep}{CHECKOUT / 'spark_conf'}")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.compress", "false")
        .config("spark.eventLog.dir", f"file://{folder / 'events'}")
        .config("spark.ui.enabled", str(job.get("ui", False)).lower())
        .config("spark.ui.port", "4040")
        .config("spark.log.level", "WARN")
    )
    spark = lake.spark.configure(builder).getOrCreate()
    found: dict[str, Any] = {}
    scope = {
        "spark": spark, "lake": lake, "uri": job["uri"], "options": job["options"], "job": job,
        "found": found, "ROWS": ROWS, "time": time,
    }  # fmt: skip
    exec(JOBS[job["name"]], scope)
    if job.get("ui"):
        found["ui"] = _pages()
        found["environment"] = _environments_of_executors()
    spark.stop()
    print(json.dumps(found), flush=True)


def _pages() -> str:
    """What Spark's UI shows."""
    from urllib.request import urlopen

    text = ""
    for page in ("environment", "SQL", "jobs", "stages", "executors"):
        with urlopen(f"http://127.0.0.1:4040/{page}/") as answer:
            text += answer.read().decode()
    for number in range(12):
        with urlopen(f"http://127.0.0.1:4040/SQL/execution/?id={number}") as answer:
            text += answer.read().decode()
    return text


def _environments_of_executors() -> str:
    """The environment and command line of every process that an executor is or has started."""
    text = ""
    for process in _executors():
        for name in ("environ", "cmdline"):
            text += Path(f"/proc/{process}/{name}").read_text(errors="replace")
        listed = subprocess.run(
            ["pgrep", "-P", str(process)], capture_output=True, text=True, check=False
        )
        for child in listed.stdout.split():
            text += Path(f"/proc/{child}/environ").read_text(errors="replace")
    return text


def _executors() -> list[int]:
    listed = subprocess.run(
        ["pgrep", "-f", "CoarseGrainedExecutorBackend"], capture_output=True, text=True, check=False
    )
    return [int(line) for line in listed.stdout.split()]


# --- the checks -------------------------------------------------------------------------


def check_main_job(cluster: Cluster) -> None:
    """The main job gives what DuckDB gives, and no secret leaves the driver."""
    import duckdb

    uri = "s3://plake/main"
    found = cluster.finish(cluster.start("main", uri, ui=True))
    cluster.check("the main job ends", "failed" not in found, found.get("failed", ""))
    if "failed" in found:
        return
    oracle = duckdb.connect()
    oracle.execute(
        "CREATE TABLE t AS SELECT range AS id, range % 7 AS p, range * 3 AS v, "
        f"range::VARCHAR AS s FROM range({ROWS})"
    )

    def answer(query: str) -> list[Any]:
        return [int(value) for value in oracle.execute(query).fetchall()[0]]

    for name, query in {
        "count": "SELECT count(*) FROM t",
        "point": "SELECT v FROM t WHERE id = 77",
        "range": "SELECT count(*) FROM t WHERE p = 3 AND id BETWEEN 1000 AND 2000",
        "sum": "SELECT sum(v) FROM t WHERE s LIKE '99%'",
    }.items():
        cluster.check(f"{name} equals DuckDB's", [found[name]] == answer(query), found[name])
    oracle.execute("DELETE FROM t WHERE id % 1000 = 3")
    oracle.execute("UPDATE t SET v = -1 WHERE id % 1000 = 4")
    oracle.execute("UPDATE t SET v = 5 WHERE id % 100 = 0 AND id < 130000")
    oracle.execute(
        "INSERT INTO t SELECT range * 100, 9, 6, 'new' FROM range(1300) "
        "WHERE range * 100 NOT IN (SELECT id FROM t)"
    )
    expected = answer("SELECT count(*), sum(v), sum(id) FROM t")
    cluster.check("DELETE, UPDATE and MERGE equal DuckDB's", found["after"] == expected, expected)
    keys = f"(SELECT range AS id FROM range(0, {ROWS}, 997))"
    joined = answer(f"SELECT count(*) FROM t JOIN {keys} USING (id)")
    cluster.check("a join equals DuckDB's", [found["join"]] == joined, joined)
    cluster.check("executors have the extension: batches", bool(found["batches"]))
    cluster.check("every part of the extension works", bool(found["status"]))
    cluster.check("the main job leaves a clean dataset", cluster.is_clean(uri)[0])
    places = {
        "the UI": found["ui"],
        "the environment of executors": found["environment"],
        "the event log": _texts(cluster.folder / "events"),
        "logs and work folders of workers": _texts(cluster.folder / "work"),
        "the drivers' log": (cluster.folder / "drivers.log").read_text(errors="replace"),
    }
    for place, text in places.items():
        cluster.check(f"no password in {place}", bool(text) and PASSWORD not in text, len(text))
    cluster.check("no key of the store in the UI", KEYS["secret_key"] not in found["ui"])


def check_two_drivers(cluster: Cluster, appends: int) -> None:
    """Two drivers append to one dataset, while the database restarts and the store fails."""
    uri = "s3://plake/appends"
    both = [cluster.start("append", uri, appends=appends, who=who, cores="1") for who in ("a", "b")]
    cluster.proxy.probability = 0.05
    time.sleep(25)
    cluster.server.restart()
    results = [cluster.finish(one) for one in both]
    cluster.proxy.probability = 0.0
    cluster.check("two drivers end", all("failed" not in one for one in results), results)
    print(f"      {cluster.proxy.failed} of {cluster.proxy.requests} requests to S3 failed")
    dataset = cluster.open(uri)
    rows = dataset.scan().to_table()
    seen = sorted(zip(rows["who"].to_pylist(), rows["id"].to_pylist()))
    expected = sorted((who, i) for who in "ab" for i in range(appends * 100))
    cluster.check("each row is there once", seen == expected, len(seen))
    versions = [one.version for one in dataset.history()]
    cluster.check("the history is serial", versions == list(range(2 * appends, 0, -1)))
    clean, orphans = cluster.is_clean(uri)
    cluster.check("the dataset is clean", clean, f"{orphans} orphans deleted")


def check_killed_executor(cluster: Cluster) -> None:
    """An executor dies in the middle of a task: the tasks are run again."""
    uri = "s3://plake/executor"
    running = cluster.start("slow", uri)
    assert running.stdout is not None
    while "started" not in running.stdout.readline():
        time.sleep(0.1)
    time.sleep(6)
    victims = _executors()
    if victims:
        os.kill(victims[0], signal.SIGKILL)
    result = cluster.finish(running)
    cluster.check("a job survives a killed executor", "failed" not in result, len(victims))
    ids = sorted(cluster.open(uri).scan().to_table()["id"].to_pylist())
    cluster.check("each row is there once", ids == list(range(ROWS // 4)), len(ids))
    clean, orphans = cluster.is_clean(uri)
    cluster.check("the dataset is clean", clean, f"{orphans} orphans deleted")


def check_killed_drivers(cluster: Cluster, kills: int) -> None:
    """A driver dies at a random moment of its appends: each commit is whole or absent."""
    uri = "s3://plake/drivers"
    cluster.finish(cluster.start("append", uri, appends=1, who="first"))
    draw = random.Random(7)
    torn = 0
    for number in range(kills):
        running = cluster.start("append", uri, appends=50, who=f"k{number}")
        # In the middle of its commits, or of its start where the machine is too busy.
        give_up = time.monotonic() + 120
        while not _commits(cluster, uri, f"k{number}") and time.monotonic() < give_up:
            time.sleep(0.5)
        time.sleep(draw.uniform(0, 4))
        os.killpg(running.pid, signal.SIGKILL)
        running.communicate()
        rows = cluster.open(uri).scan().to_table()
        counts: dict[tuple[str, int], int] = {}
        for who, i in zip(rows["who"].to_pylist(), rows["id"].to_pylist()):
            counts[who, i // 100] = counts.get((who, i // 100), 0) + 1
        torn += sum(count != 100 for count in counts.values())
        print(f"      killed driver {number}: {_commits(cluster, uri, f'k{number}')} commits")
    cluster.check(f"no half commit after {kills} killed drivers", torn == 0)
    clean, orphans = cluster.is_clean(uri)
    cluster.check("the dataset is clean", clean, f"{orphans} orphans deleted")


def _commits(cluster: Cluster, uri: str, who: str) -> int:
    return [one.txn_app_id for one in cluster.open(uri).history()].count(who)


def _texts(folder: Path) -> str:
    return "".join(path.read_text(errors="replace") for path in folder.rglob("*") if path.is_file())


# --- what has to run --------------------------------------------------------------------


class Database:
    """A PostgreSQL server on a Unix socket that can be restarted."""

    def __init__(self, folder: Path) -> None:
        from tests.postgres_server import PostgresServer

        self._server = PostgresServer()
        self.url = self._server.fresh_database(password=PASSWORD)
        self.stop = self._server.stop

    def restart(self) -> None:
        """End all sessions, as a restart does, and refuse new ones for two seconds."""
        name = self.url.split("@/")[1].split("?")[0]
        self._server.run(f"ALTER DATABASE {name} WITH ALLOW_CONNECTIONS false")
        self._server.run(
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
        )
        time.sleep(2)
        self._server.run(f"ALTER DATABASE {name} WITH ALLOW_CONNECTIONS true")


@contextmanager
def spark_class(folder: Path, *arguments: str) -> Iterator[None]:
    """A process of the standalone cluster."""
    import pyspark

    home = Path(pyspark.__file__).parent
    name = arguments[0].rsplit(".", 1)[1].lower()
    with (folder / f"{name}.log").open("a") as log:
        process = subprocess.Popen(
            [str(home / "bin" / "spark-class"), *arguments],
            env={**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"},
            cwd=folder,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(30)


@contextmanager
def cluster() -> Iterator[Cluster]:
    """Start everything."""
    import pyarrow.fs as pafs

    from tests.edges.failing_proxy import FailingProxy
    from tests.edges.object_stores import free_port, s3_server

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="plake-cluster-")))
        for name in ("events", "work"):
            (folder / name).mkdir()
        database = Database(folder)
        stack.callback(database.stop)
        port = stack.enter_context(s3_server())
        proxy = stack.enter_context(FailingProxy(port, 0.0))
        store = {
            "access_key": "env:PLAKE_CLUSTER_KEY",
            "secret_key": "env:PLAKE_CLUSTER_SECRET",
            "region": "us-east-1",
            "endpoint_override": f"http://127.0.0.1:{proxy.port}",
        }
        client = pafs.S3FileSystem(allow_bucket_creation=True, **(store | KEYS))
        client.create_dir("plake")
        where = free_port()
        master = f"spark://127.0.0.1:{where}"
        package = "org.apache.spark.deploy"
        stack.enter_context(
            spark_class(
                folder, f"{package}.master.Master", "--host", "127.0.0.1",
                "--port", str(where), "--webui-port", "0",
            )
        )  # fmt: skip
        for number in range(2):
            work = folder / "work" / str(number)
            stack.enter_context(
                spark_class(
                    folder, f"{package}.worker.Worker", "-c", "1", "-m", "2g",
                    "--webui-port", "0", "--work-dir", str(work), master,
                )
            )  # fmt: skip
        yield Cluster(folder, master, database.url, store, proxy, database)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--appends", type=int, default=20, help="of each of two drivers")
    parser.add_argument("--kills", type=int, default=5, help="drivers that are killed")
    parser.add_argument("--driver", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.driver:
        driver(json.loads(arguments.driver))
        return 0
    checks: list[Callable[[Cluster], None]] = [
        check_main_job,
        lambda found: check_two_drivers(found, arguments.appends),
        check_killed_executor,
        lambda found: check_killed_drivers(found, arguments.kills),
    ]
    with cluster() as running:
        for check in checks:
            started = time.monotonic()
            check(running)
            print(f"      {time.monotonic() - started:.0f} s", flush=True)
    print(f"{len(running.wrong)} wrong")
    return 1 if running.wrong else 0


if __name__ == "__main__":
    sys.exit(main())

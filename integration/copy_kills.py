"""Kills drivers that keep copies of tables equal by streams of changes and MERGE.

    python integration/copy_kills.py [--kills 100] [--minutes N]

Each driver runs, for each of several tables, the query of docs/spark.md, which merges the changes
of a table into its copy, and one that appends the changes to a log. All tables are changed before
and while a driver runs. A driver and its Python processes get SIGKILL when one of them comes to a
point of a commit, or at any moment; each kill counts for every query. After it the copy must be
what the table was at some version, never an older one than before, and the log must have the
changes of the first commits, each once. A last driver reads the rest: the copy is the table, and
the log is its feed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT))

TABLES = 4
ANY = "any moment"
POINTS = (ANY, "before COMMIT", ANY, "after COMMIT", ANY, "files written", ANY, "row group written")
GIVE_UP_SECONDS = 900


# --- what runs in a driver --------------------------------------------------------------


def merge_into(copy: str) -> Callable[[Any, int], None]:
    """The function that merges a batch of changes into a copy. A batch may come again."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    import lakehouse_source as lake

    # A batch has whole commits. Of those that changed one key, the last one counts; of a delete
    # and an insert of a key in one commit, the insert.
    last_first = Window.partitionBy("id").orderBy(
        F.desc("_commit_version"), F.col("_change_type") == "delete"
    )

    def merge(changes: Any, _: int) -> None:
        last = (
            changes.where("_change_type <> 'update_preimage'")
            .withColumn("number", F.row_number().over(last_first))
            .where("number = 1")
            .alias("s")
        )
        (
            lake.spark.open(changes.sparkSession, copy)
            .merge(last, "target.id = s.id")
            .whenMatchedDelete("s._change_type = 'delete'")
            .whenMatchedUpdate(set={"v": "s.v"})
            .whenNotMatchedInsert(
                condition="s._change_type <> 'delete'", values={"id": "s.id", "v": "s.v"}
            )
            .execute()
        )

    return merge


def driver(job: dict[str, Any]) -> None:
    """Run the queries: until they are killed, or until they have read everything."""
    from pyspark.sql import SparkSession

    import lakehouse_source as lake

    spark = (
        lake.spark.configure(SparkSession.builder)
        .master("local[4]")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "OFF")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.driver.memory", "1g")
        .getOrCreate()
    )

    def start(folder: str, name: str) -> Any:
        frame = (
            spark.readStream.format("plake")
            .option("readChangeFeed", "true")
            .option("startingVersion", 1)
            .option("maxFilesPerTrigger", 4)
            .load(f"{folder}/table")
        )
        writer = frame.writeStream.option("checkpointLocation", f"{folder}/of-{name}")
        if name == "copy":
            query = writer.foreachBatch(merge_into(f"{folder}/copy")).start()
        else:
            query = writer.format("plake").start(f"{folder}/log")
        # One after the other: Spark gives the Python process of each ten seconds to start.
        while query.isActive and query.status["message"].startswith("Initializing"):
            time.sleep(0.05)
        return query

    places = [(folder, name) for folder in job["tables"] for name in ("copy", "log")]
    queries = [start(*place) for place in places]
    print("started", flush=True)
    while not (job["ends"] and all(_is_done(query) for query in queries)):
        for number, query in enumerate(queries):
            if not query.isActive:
                if "failed to connect back" not in str(query.exception()):
                    raise SystemExit(f"{places[number]} ended: {query.exception()}")
                queries[number] = start(*places[number])
        time.sleep(0.2)
    for query in queries:
        query.stop()
    spark.stop()


def _is_done(query: Any) -> bool:
    """Tell whether a query has read everything. Nothing is changed meanwhile."""
    try:
        query.processAllAvailable()
    except Exception:
        return False  # its exception is looked at next
    return True


# --- the tables -------------------------------------------------------------------------


@dataclass
class Copied:
    """A table, its copy and the log of its changes."""

    folder: Path
    draw: random.Random
    next_id: int = 0
    seen: int = 0  # the version that the copy was, after the last kill

    def open(self, name: str) -> Any:
        import lakehouse_source as lake

        return lake.open_dataset(self.folder / name)

    def begin(self) -> None:
        import lakehouse_source as lake

        self.folder.mkdir()
        lake.write_dataset(self._rows(40), self.folder / "table", rewrite_threshold=0.3)
        lake.write_dataset(self.open("table").scan("id < 0").to_table(), self.folder / "copy")

    def _rows(self, count: int) -> dict[str, list[Any]]:
        ids = list(range(self.next_id, self.next_id + count))
        self.next_id += count
        return {"id": ids, "v": [self.draw.choice("abc") for _ in ids]}

    def change(self) -> None:
        """Two commits of any kind."""
        import lakehouse_source as lake

        for _ in range(2):
            table = self.open("table")
            low = self.draw.randrange(self.next_id)
            some = f"id BETWEEN {low} AND {low + 5}"
            kind = self.draw.choice(["append", "update", "delete", "upsert", "compact", "replace"])
            if kind == "append":
                lake.write_dataset(self._rows(5), self.folder / "table")
            elif kind == "update":
                table.update({"v": "v || 'x'"}, where=some)
            elif kind == "delete":
                table.delete(some)
            elif kind == "upsert":
                ids = list(range(low, low + 4))
                table.upsert({"id": ids, "v": ["u"] * 4}, on="id")
            elif kind == "compact":
                table.compact(rewrite_deleted=True)
            else:  # new rows in the place of others with the same keys
                rows = table.scan(some).to_table()
                lake.write_dataset(
                    rows, self.folder / "table", mode="overwrite", overwrite_where=some
                )

    def rows(self, name: str, version: int | None = None) -> Counter[tuple[int, str]]:
        table = self.open(name).scan(version=version).to_table()
        return Counter(zip(table["id"].to_pylist(), table["v"].to_pylist()))

    def problem(self, ended: bool) -> str | None:
        """What is wrong after a kill, or when everything was read."""
        copy, table = self.rows("copy"), self.open("table")
        newest = table.version
        versions = [newest] if ended else range(self.seen, newest + 1)
        same = (one for one in versions if copy == (self.rows("table", one) if one else Counter()))
        found = next(same, None)
        if found is None:
            return f"the copy is none of the versions {list(versions)}"
        self.seen = found
        if not self.open("copy").verify(checksums=ended).ok:
            return "verify of the copy is not clean"
        return self._problem_of_log(newest, ended)

    def _problem_of_log(self, newest: int, ended: bool) -> str | None:
        import lakehouse_source as lake

        names = ["id", "v", "_change_type", "_commit_version"]
        told: list[Any] = []
        try:
            told = self.open("log").scan(columns=names).to_table().to_pylist()
        except lake.DatasetNotFoundError:
            if ended:
                return "there is no log"
        through = max((row["_commit_version"] for row in told), default=0)
        feed = self.open("table").changes(1, newest, columns=["id", "v"]).to_table().select(names)
        wanted = [row for row in feed.to_pylist() if ended or row["_commit_version"] <= through]
        if Counter(map(str, told)) != Counter(map(str, wanted)):
            return f"the log has {len(told)} changes up to version {through}, not {len(wanted)}"
        return None


# --- the kills --------------------------------------------------------------------------


@dataclass
class Run:
    """All tables, and what went wrong with them."""

    folder: Path
    tables: list[Copied]
    problems: list[str] = field(default_factory=list)

    def start(self, ends: bool, point: str | None) -> subprocess.Popen[bytes]:
        from lakehouse_source import failpoints

        paths = (CHECKOUT, CHECKOUT / "tests" / "warm_workers")
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto",
        }
        if point is not None and point != ANY:
            hold = {failpoints.VARIABLE: point, failpoints.HOLD: str(self.folder / "hold")}
            environment |= hold
        job = {"tables": [str(one.folder) for one in self.tables], "ends": ends}
        with (self.folder / "output").open("w") as output:
            return subprocess.Popen(
                [sys.executable, __file__, "--driver", json.dumps(job)],
                env=environment,
                cwd=self.folder,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def output(self) -> str:
        return (self.folder / "output").read_text()

    def kill(self, point: str, draw: random.Random) -> None:
        """Run a driver until it comes to a point, and kill it."""
        from tests.doors.stream_driver import kill_session

        hold = self.folder / "hold"
        hold.unlink(missing_ok=True)
        for one in self.tables:
            one.change()
        running = self.start(False, point)
        give_up = time.monotonic() + GIVE_UP_SECONDS
        moment = None
        try:
            while moment is None or time.monotonic() < moment:
                if running.poll() is not None:
                    self.problems.append(f"{point}: the driver ended: {self.output()[-3000:]}")
                    return
                if time.monotonic() > give_up:
                    self.problems.append(f"nothing came to {point!r}")
                    return
                is_there = "started" in self.output() if point == ANY else hold.exists()
                if moment is None and is_there:
                    for one in self.tables:
                        one.change()
                    moment = time.monotonic() + draw.uniform(0, 40 if point == ANY else 3)
                time.sleep(0.05)
        finally:
            kill_session(running.pid)
            running.wait()
        self.check(point, ended=False)

    def finish(self) -> None:
        """Let the queries read the rest."""
        running = self.start(True, None)
        if running.wait(GIVE_UP_SECONDS):
            self.problems.append(f"the last driver: {self.output()[-3000:]}")
        self.check("the end", ended=True)

    def check(self, when: str, ended: bool) -> None:
        for number, one in enumerate(self.tables):
            problem = one.problem(ended)
            if problem is not None:
                self.problems.append(f"{when}, table {number}: {problem}")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--kills", type=int, default=100, help="queries that are killed")
    parser.add_argument("--minutes", type=float, default=120, help="begin no driver after these")
    parser.add_argument("--tables", type=int, default=TABLES)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--driver", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.driver:
        driver(json.loads(options.driver))
        return 0
    draw = random.Random(options.seed)
    killed, end = 0, time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory(prefix="plake-copies-") as folder:
        tables = [
            Copied(Path(folder) / str(number), random.Random(draw.random()))
            for number in range(options.tables)
        ]
        run = Run(Path(folder), tables)
        for one in tables:
            one.begin()
        for point in POINTS * options.kills:
            if killed >= options.kills or time.monotonic() > end or run.problems:
                break
            began = time.monotonic()
            run.kill(point, draw)
            killed += 2 * options.tables
            seen = [f"{one.seen}/{one.open('table').version}" for one in tables]
            print(f"{killed:>4} {point:18} {time.monotonic() - began:.0f} s, copies at {seen}")
            sys.stdout.flush()
        if not run.problems:
            run.finish()
        commits = sum(one.open("table").version for one in tables)
        print(f"{killed} queries killed over {commits} commits of {len(tables)} tables")
        for problem in run.problems:
            print(problem)
    return 1 if run.problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

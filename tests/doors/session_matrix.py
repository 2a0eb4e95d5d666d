"""Spark sessions one after the other in one process, with the whole main job in each but the first.

    python -m tests.doors.session_matrix          # every sequence, as a table
    python -m tests.doors.session_matrix "enable stop configure"

A sequence names how sessions are made, and `stop` or `keep` between two of them: whether the one
before is stopped. A Spark process is started for each sequence: what its class loader once has,
it keeps.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pyspark

from tests import java_classes

ROOT = Path(__file__).parents[2]
MODE = "spark.sql.sources.partitionOverwriteMode"

# The row counts of the main job, by an oracle of arithmetic: 50 rows, ids 0 to 49, p = id % 5.
BY_PATH = {
    "read": 1,
    "setting": 41,  # 9 + 1 rows of p = 1 are replaced by one row: 50 - 10 + 1
    "option": 41,
    "static": 1,
    "stream": 50,
}
BY_NAME = {"insert": 50, "delete": 49, "merge": 50, "call": 2, "dynamic": 41, "table stream": 50}
EQUIPPED = {**BY_PATH, "pruned": True, **BY_NAME}
# A session that did not ask for the extension: right by its paths, and refused by name.
STOCK = {**BY_PATH, "pruned": False}

ASKED = ("plain", "configure", "enable")
# Spark 4.1 creates sessions by Connect only.
CREATE = ("create",) if tuple(map(int, pyspark.__version__.split(".")[:2])) >= (4, 2) else ()
# These need the client of Spark Connect (`integration/spark_connect.py` has it).
CONNECT = ("connect keep connect", "plain stop connect", "enable stop connect")


def sequences() -> list[str]:
    """Every sequence of the matrix; the last word makes the session that counts."""
    stopped = [" stop ".join(three) for three in itertools.product(ASKED, repeat=3)]
    kept = [
        f"{first} keep {second}"
        for first in ASKED
        for second in (*ASKED, "newSession", "cloneSession", *CREATE)
    ]
    defaults = [
        f"defaults:plain {rest}"
        for rest in ("keep newSession", "stop plain", "stop configure", "stop enable")
    ]
    return [*stopped, *kept, *defaults]


def is_equipped(sequence: str, at: int) -> bool:
    """Whether session `at` of a sequence asked for the extension, itself or through another one.

    Spark hands `spark.jars` of a JVM to each of its sessions, and extensions to sisters.
    """
    words = sequence.split()
    kinds, joins = words[::2], words[1::2]
    kind = kinds[at].partition(":")[2] or kinds[at]
    if sequence.startswith("defaults:") or kind in ("configure", "enable", "connect"):
        return True
    if any(kinds[n] == "configure" and (n == 0 or joins[n - 1] == "stop") for n in range(at)):
        return True  # the jar is in Spark's class loader
    return at > 0 and joins[at - 1] == "keep" and kind != "create" and is_equipped(sequence, at - 1)


# --- in the process of the sessions ---------------------------------------------------


def sessions(sequence: str, folder: Path, names: Iterable[str]) -> list[dict[str, Any]]:
    """Make the sessions of a sequence; what the job did in each but the first."""
    words = sequence.split()
    spark: Any = None
    found = []
    for at, kind in enumerate(words[::2]):
        if at and words[2 * at - 1] == "stop":
            spark.stop()
        place = folder / str(at)
        place.mkdir()
        spark = made(kind.partition(":")[2] or kind, spark, place)
        assert spark.range(3).count() == 3
        if at:
            found.append(job(spark, place, names))
    return found


def made(kind: str, before: Any, folder: Path) -> Any:
    from pyspark.sql import SparkSession

    import lakehouse_source as lake

    catalog = {"catalog": f"sqlite:///{folder}/lake.db", "warehouse": f"{folder}/warehouse"}
    builder = SparkSession.builder.config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "1").config("spark.log.level", "OFF")
    if kind == "connect":
        if before is not None and "connect" in type(before).__module__:
            return before.newSession()
        builder = at_a_free_port(builder).remote("local[1]")
        return lake.spark.configure(builder, **catalog).getOrCreate()
    builder = builder.master("local[1]")
    if kind == "newSession":
        return before.newSession()
    if kind == "cloneSession":
        return SparkSession(before.sparkContext, before._jsparkSession.cloneSession())
    if kind == "create":
        return builder.create()
    if kind == "configure":
        return lake.spark.configure(builder, **catalog).getOrCreate()
    spark = builder.getOrCreate()
    return lake.spark.enable(spark, **catalog) if kind == "enable" else spark


def at_a_free_port(builder: Any) -> Any:
    """Spark's own server has port 15002, which may be taken, and its client no setting for it."""
    from pyspark.sql.connect.client import DefaultChannelBuilder

    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = int(free.getsockname()[1])
    DefaultChannelBuilder.default_port = staticmethod(lambda: port)
    return builder.config("spark.connect.grpc.binding.port", str(port))


def job(spark: Any, folder: Path, names: Iterable[str]) -> dict[str, Any]:
    """What each step of the main job answered, or the first lines of its error."""
    steps = Steps(spark, folder)
    if spark.conf.get("spark.sql.catalog.plake", None) is None:
        # A session that nobody asked plake for gets its catalog by hand, as a notebook sets it.
        spark.conf.set("spark.sql.catalog.plake", "io.plake.spark.PlakeCatalog")
    spark.conf.set("spark.sql.catalog.plake.catalog", f"sqlite:///{folder}/lake.db")
    spark.conf.set("spark.sql.catalog.plake.warehouse", f"{folder}/warehouse")
    found: dict[str, Any] = {}
    for name in names:
        try:
            found[name] = getattr(steps, name.replace(" ", "_"))()
        except Exception as error:
            # The second line of an error of Java has its cause.
            found[name] = " ".join((str(error).strip() or repr(error)).splitlines()[:2])
    return found


class Steps:
    """The steps of the main job, each a method that returns what it counts."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.spark = spark
        self.folder = folder

    def _rows(self) -> Any:
        return self.spark.range(50).selectExpr("id", "CAST(id % 5 AS INT) AS p")

    def _frame(self, path: str) -> Any:
        return self.spark.read.format("plake").load(path)

    def _overwritten(self, name: str, setting: str | None, **options: str) -> int:
        """How many rows are left of 50 after an overwrite by path with one row."""
        path = f"{self.folder}/{name}"
        rows = self._rows().write.format("plake").mode("append")
        rows.option("partitionBy", "p").save(path)
        if setting is not None:
            self.spark.conf.set(MODE, setting)
        try:
            row = self.spark.sql("SELECT 100L AS id, 1 AS p")
            row.write.format("plake").mode("overwrite").options(**options).save(path)
        finally:
            self.spark.conf.unset(MODE)
        return int(self._frame(path).count())

    def read(self) -> int:
        rows = self._rows().write.format("plake").mode("append")
        rows.option("partitionBy", "p").save(f"{self.folder}/read")
        return int(self._frame(f"{self.folder}/read").where("p = 3 AND id = 13").count())

    def pruned(self) -> bool:
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown):
            self._frame(f"{self.folder}/read").where("p = 3 AND id = 13").explain()
        return "1 of 5 files" in shown.getvalue() or "p = 3" in shown.getvalue()

    def setting(self) -> int:
        return self._overwritten("setting", "dynamic")

    def option(self) -> int:
        return self._overwritten("option", None, partitionOverwriteMode="dynamic")

    def static(self) -> int:
        return self._overwritten("static", None)

    def _streamed(self, stream: Any, target: str, start: Callable[[Any], Any]) -> None:
        checkpoint = f"{self.folder}/{target}-checkpoint"
        writer = stream.writeStream.option("checkpointLocation", checkpoint)
        query = start(writer.trigger(availableNow=True))
        assert query.awaitTermination(240), "the stream did not end"

    def stream(self) -> int:
        target = f"{self.folder}/streamed"
        stream = self.spark.readStream.format("plake").load(f"{self.folder}/read")
        self._streamed(stream, "path", lambda writer: writer.format("plake").start(target))
        return int(self._frame(target).count())

    def _count(self) -> int:
        return int(self.spark.table("plake.s.t").count())

    def insert(self) -> int:
        self.spark.sql("CREATE NAMESPACE plake.s")
        self.spark.sql("CREATE TABLE plake.s.t (id BIGINT, p INT) PARTITIONED BY (p)")
        self.spark.sql("INSERT INTO plake.s.t SELECT id, CAST(id % 5 AS INT) FROM range(50)")
        return self._count()

    def delete(self) -> int:
        self.spark.sql("DELETE FROM plake.s.t WHERE id = 3")
        return self._count()

    def merge(self) -> int:
        self.spark.sql(
            "MERGE INTO plake.s.t AS t USING (SELECT id, CAST(id % 5 AS INT) AS p FROM range(4)) AS"
            " s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
        return self._count()

    def call(self) -> int:
        """How many versions were made by rows of other kinds than INSERT's."""
        self.spark.sql("CALL plake.system.vacuum('s.t')").collect()
        history = self.spark.sql("SELECT operation FROM plake.s.t.history").collect()
        return sum(one.operation in ("delete", "merge") for one in history)

    def dynamic(self) -> int:
        self.spark.conf.set(MODE, "dynamic")
        try:
            self.spark.sql("INSERT OVERWRITE plake.s.t SELECT 100L, 1")
        finally:
            self.spark.conf.unset(MODE)
        return self._count()

    def table_stream(self) -> int:
        self.spark.sql("CREATE TABLE plake.s.u AS SELECT id FROM range(50)")
        stream = self.spark.readStream.table("plake.s.u")
        self._streamed(stream, "name", lambda writer: writer.toTable("plake.s.v"))
        return int(self.spark.table("plake.s.v").count())


# --- outside ---------------------------------------------------------------------------


def run(sequence: str, folder: Path, names: Iterable[str] = EQUIPPED) -> list[dict[str, Any]]:
    """What the job did in each session of a sequence but the first, in a new process."""
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    for name in ("SPARK_CONNECT_MODE_ENABLED", "SPARK_REMOTE", "SPARK_LOCAL_REMOTE"):
        environment.pop(name, None)  # of a caller's own client
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), environment.get("PYTHONPATH", "")])
    if sequence.startswith("defaults:"):
        from lakehouse_source.spark import planner_jar

        (folder / "conf").mkdir()
        (folder / "conf/spark-defaults.conf").write_text(f"spark.jars {planner_jar()}\n")
        environment["SPARK_CONF_DIR"] = str(folder / "conf")
    done = subprocess.run(
        [sys.executable, "-m", __spec__.name, "--in-process", sequence, str(folder), *names],
        capture_output=True, text=True, env=environment, cwd=folder, check=False, timeout=900,
    )  # fmt: skip
    marked = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    assert marked, done.stdout[-2000:] + done.stderr[-4000:]
    found: list[dict[str, Any]] = json.loads(marked[0].removeprefix("FOUND "))
    return found


def wrong(sequence: str, at: int, found: Mapping[str, Any]) -> dict[str, Any]:
    """The steps of a session that did not do what they should."""
    if is_equipped(sequence, at):
        return {name: one for name, one in found.items() if one != EQUIPPED[name]}
    bad = {name: found[name] for name in STOCK if found[name] != STOCK[name]}
    refusal = str(found["insert"])
    if "lakehouse_source.spark.enable(spark)" not in refusal and "CANNOT_LOAD" not in refusal:
        bad["insert"] = refusal
    return bad


def table(rows: Iterable[tuple[str, int, Mapping[str, Any]]]) -> str:
    """The matrix as text: a line for each session, with the rows that each step counted."""
    heads = ["sessions", "should be", *EQUIPPED, "wrong"]
    lines = [heads]
    for sequence, at, found in rows:
        words = sequence.split()[: 2 * at + 1]
        should = "equipped" if is_equipped(sequence, at) else "stock"
        cells = [str(v) if isinstance(v, int) else "refused" for v in found.values()]
        bad = wrong(sequence, at, found)
        lines.append(
            [" ".join(words), should, *cells, "; ".join(f"{k}: {v}" for k, v in bad.items())]
        )
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads) - 1)]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(line, widths)), line[-1]]).rstrip()
        for line in lines
    )


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--in-process"]:
        print(
            "FOUND " + json.dumps(sessions(arguments[1], Path(arguments[2]), arguments[3:])),
            flush=True,
        )
        return 0
    java_classes.set_options()
    rows = []
    for sequence in arguments or sequences():
        with tempfile.TemporaryDirectory() as folder:
            for at, found in enumerate(run(sequence, Path(folder)), 1):
                rows.append((sequence, at, found))
                print(table(rows[-1:]).splitlines()[1], flush=True)
    print("\n" + table(rows))
    return int(any(wrong(*row) for row in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Kills drivers of streaming queries at named points: in the end each row is there once.

    python integration/stream_kills.py [--kills 300] [--minutes N] [--venvs FOLDER]

Each driver runs eight queries, each from one dataset to another, with a checkpoint of its own. All
of them come to the point (a step of the write, of the commit or of the compaction after it) and
wait there. Then the driver and all of its Python processes get SIGKILL, and the last files of some
checkpoints are deleted or cut short, as a torn file system leaves them. The next driver goes on
from there, and is killed at another point. After each kill the target must hold the first rows of
its source, without a gap and each once, and `verify` must be clean. A last driver reads the rest:
all rows, each once, one version for each batch, and after vacuum no file but those of the newest
version.

Spark itself refuses a log file that is cut short. An administrator deletes such a file; here the
driver does it and starts the query again. A lost file of offsets makes Spark plan the batch anew,
which is the same batch only where the limit per trigger makes it so. Hence offsets of a batch that
the sink has already are lost only where there are limits (4.2 and newer).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT))

QUERIES = 8  # of one driver: a driver costs as much as five queries
ROWS = 5  # of each file of a source
ANY = "any moment"
# Of the sink, in the order in which a batch comes to them, and those of the compaction after it.
POINTS = (
    *("begin", "pending written", "pending committed"),
    *("file opened", "row group written", "file closed", "file synced", "file verified"),
    *("files closed", "folders synced", "commit begun", "files checked", "transaction begun"),
    *("dataset locked", "conflicts checked", "transaction written", "files written"),
    *("before COMMIT", "after COMMIT"),
    *("rows written anew", "files removed", "after COMMIT:2", ANY),
)
DAMAGES = (
    *("none", "commit deleted", "none", "commit torn"),
    *("offset deleted", "commit deleted", "commit emptied", "offset torn"),
)
GIVE_UP_SECONDS = 600


# --- what runs in a driver --------------------------------------------------------------


def driver(job: dict[str, Any]) -> None:
    """Run the queries: until they are killed, or until they have read everything."""
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master(f"local[{QUERIES}]")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "OFF")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.memory", "1g")
        .getOrCreate()
    )

    def start(one: dict[str, str]) -> Any:
        limit = {"maxFilesPerTrigger": one["limit"]}
        frame = spark.readStream.format("plake").options(**limit, **_catalog(one))
        # One task for each batch: only the process of a query that is at the point waits there.
        rows = frame.load(one["source"]).coalesce(1)
        writer = rows.writeStream.format("plake").options(**_catalog(one))
        query = writer.option("checkpointLocation", one["checkpoint"]).start(one["target"])
        # One after the other: Spark gives the Python process of each ten seconds to start.
        while query.isActive and query.status["message"].startswith("Initializing"):
            time.sleep(0.05)
        return query

    torn = [_torn_file(Path(one["checkpoint"])) for one in job["queries"]]
    running = [start(one) for one in job["queries"]]
    while not (job["ends"] and all(_is_done(query) for query in running)):
        for number, query in enumerate(running):
            if query.isActive:
                continue
            log_file, torn[number] = torn[number], None
            if log_file is not None:
                print("refused", flush=True)
                _forget(log_file)
            elif "failed to connect back" not in str(query.exception()):
                raise SystemExit(f"query {number} ended: {query.exception()}")
            running[number] = start(job["queries"][number])
        time.sleep(0.1)
    for query in running:
        query.stop()
    spark.stop()


def _is_done(query: Any) -> bool:
    """Tell whether a query has read everything. Nothing is added to its source meanwhile."""
    try:
        query.processAllAvailable()
    except Exception:
        return False  # its exception is looked at next
    return True


def _catalog(one: dict[str, str]) -> dict[str, str]:
    return {"catalog": one["catalog"]} if one["catalog"] else {}


def _torn_file(checkpoint: Path) -> Path | None:
    """The log file that was cut short, by the mark that `damage` left."""
    mark = checkpoint / "torn"
    return checkpoint / mark.read_text() if mark.exists() else None


def _forget(log_file: Path) -> None:
    """Delete a log file of a checkpoint, and what says that its batch ended."""
    checkpoint = log_file.parent.parent
    for folder in {log_file.parent.name, "commits"}:
        place = checkpoint / folder
        (place / log_file.name).unlink(missing_ok=True)
        (place / f".{log_file.name}.crc").unlink(missing_ok=True)
    (checkpoint / "torn").unlink(missing_ok=True)


# --- the kills --------------------------------------------------------------------------


@dataclass
class Chain:
    """A query that is killed again and again: its places, and how much its source has."""

    folder: Path
    catalog: str
    files: int = 0
    # A batch that Spark plans anew must get the limit that it had.
    lost_offset: bool = False

    def place(self, name: str) -> str:
        return str(self.folder / name)

    def job(self, ends: bool) -> dict[str, str]:
        """What a driver does. The last one reads the rest in few batches, where it may."""
        names = {name: self.place(name) for name in ("source", "target", "checkpoint")}
        limit = "1000" if ends and not self.lost_offset else "1"
        return {**names, "catalog": self.catalog, "limit": limit}

    def open(self, name: str) -> Any:
        import lakehouse_source as lake

        return lake.open_dataset(self.place(name), catalog=self.catalog or None)

    def feed(self) -> None:
        import lakehouse_source as lake

        first = self.files * ROWS
        rows = {"id": list(range(first, first + ROWS))}
        lake.write_dataset(rows, self.place("source"), catalog=self.catalog or None)
        self.files += 1

    def begin(self) -> None:
        import lakehouse_source as lake

        self.folder.mkdir()
        self.feed()
        # The target exists already, so that it has the property.
        empty = self.open("source").scan("id < 0").to_table()
        lake.write_dataset(
            empty, self.place("target"), catalog=self.catalog or None,
            auto_compact=True, auto_compact_min_files=2,
        )  # fmt: skip

    def ids(self) -> list[int]:
        return sorted(self.open("target").scan().to_table()["id"].to_pylist())

    def last_batch(self) -> int:
        """The newest batch that the sink has; -1: none."""
        found = [one.txn_version for one in self.open("target").history()]
        return max((number for number in found if number is not None), default=-1)

    def whole_problem(self) -> str | None:
        """What is wrong after a kill."""
        ids = self.ids()
        if ids != list(range(len(ids))) or len(ids) % ROWS:
            return f"not the first rows of the source, each once: {ids}"
        report = self.open("target").verify()
        return None if report.ok else f"verify: {report}"

    def end_problem(self) -> str | None:
        """What is wrong when everything was read."""
        ids = self.ids()
        if ids != list(range(self.files * ROWS)):
            return f"{len(ids)} of {self.files * ROWS} rows: {ids}"
        target = self.open("target")
        batches = Counter(one.txn_version for one in target.history() if one.txn_app_id)
        twice = [number for number, count in batches.items() if count > 1]
        if twice:
            return f"batches that were committed twice: {twice}"
        if not target.verify(checksums=True).ok:
            return "verify is not clean"
        target.expire_versions(keep_last=1)
        target.vacuum(retention_seconds=0, allow_short_retention=True, abandoned_after_seconds=0)
        live = {file.path for file in target.refresh().files()}
        there = {
            str(path.relative_to(self.place("target")))
            for path in Path(self.place("target")).rglob("*.parquet")
        }
        return None if there == live else f"orphans: {sorted(there - live)}"


@dataclass
class Lane:
    """A version of Spark and a kind of catalog, with its queries."""

    version: str
    kind: str
    python: str
    chains: list[Chain]
    problems: list[str] = field(default_factory=list)

    @property
    def has_limits(self) -> bool:
        return self.version != "4.1"


def start(lane: Lane, folder: Path, ends: bool, point: str | None) -> subprocess.Popen[bytes]:
    from lakehouse_source import failpoints

    paths = (CHECKOUT, CHECKOUT / "spark_conf", CHECKOUT / "tests" / "warm_workers")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "PYSPARK_PYTHON": lane.python,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto",
    }
    if point is not None and point != ANY:
        environment |= {failpoints.VARIABLE: point, failpoints.HOLD: str(folder / "hold")}
    job = {"queries": [chain.job(ends) for chain in lane.chains], "ends": ends}
    with (folder / "log").open("w") as log:
        return subprocess.Popen(
            [lane.python, __file__, "--driver", json.dumps(job)],
            env=environment,
            cwd=folder,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def kill(lane: Lane, folder: Path, point: str, draw: random.Random) -> str | None:
    """Run a driver until all its queries wait at a point, and kill it; what went wrong."""
    from tests.doors.stream_driver import kill_session

    hold = folder / "hold"
    hold.unlink(missing_ok=True)
    for chain in lane.chains:
        chain.feed()
    running = start(lane, folder, False, point)
    begun = fed = time.monotonic()
    moment = begun + draw.uniform(10, 60)
    feeds = 2
    try:
        while not (_lines(hold) >= QUERIES if point != ANY else time.monotonic() > moment):
            if running.poll() is not None:
                return f"the driver ended: {(folder / 'log').read_text()[-2000:]}"
            if time.monotonic() - begun > GIVE_UP_SECONDS:
                return f"{_lines(hold)} of {QUERIES} came to {point!r}"
            if feeds and time.monotonic() - fed > 60:
                # A repeated batch does not come to a point after the check that it is one.
                for chain in lane.chains:
                    chain.feed()
                feeds, fed = feeds - 1, time.monotonic()
            time.sleep(0.05)
    finally:
        kill_session(running.pid)
        running.wait()
    return None


def _lines(path: Path) -> int:
    return len(path.read_text().split()) if path.exists() else 0


def damage(chain: Chain, kind: str, has_limits: bool) -> str:
    """Take the last files from a checkpoint, or cut them short; what was done."""
    checkpoint = Path(chain.place("checkpoint"))
    log, _, how = kind.partition(" ")
    chain.lost_offset = False
    found = sorted(int(one.name) for one in (checkpoint / f"{log}s").glob("[0-9]*"))
    if kind == "none" or not found:
        return "none"
    last = checkpoint / f"{log}s" / str(found[-1])
    if log == "offset" and chain.last_batch() >= found[-1] and not has_limits:
        return "none"
    chain.lost_offset = log == "offset"
    if how == "deleted":
        _forget(last)
        return kind
    text = last.read_bytes()
    last.write_bytes(text[: 0 if how == "emptied" else len(text) // 2])
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)
    (checkpoint / "torn").write_text(f"{log}s/{last.name}")
    return kind


def finish(lane: Lane, folder: Path) -> int:
    """Let the queries read the rest; how many log files Spark refused."""
    running = start(lane, folder, True, None)
    try:
        code = running.wait(GIVE_UP_SECONDS)
    except subprocess.TimeoutExpired:
        code = -1
        os.killpg(running.pid, signal.SIGKILL)
    if code:
        lane.problems.append(f"the last driver: {(folder / 'log').read_text()[-2000:]}")
    for number, chain in enumerate(lane.chains):
        if problem := chain.end_problem():
            lane.problems.append(f"query {number} in the end: {problem}")
    return _refused(folder)


def _refused(folder: Path) -> int:
    return (folder / "log").read_text().count("refused")


# --- the report -------------------------------------------------------------------------


def table(counts: Counter[tuple[str, str]], lanes: Sequence[Lane]) -> Iterator[str]:
    """Kills per point, version and catalog, as Markdown."""
    names = [f"{lane.version} {lane.kind}" for lane in lanes]
    yield f"| killed at | {' | '.join(names)} |"
    yield "|---|" + "---:|" * len(names)
    for point in POINTS:
        cells = [str(counts[point, name]) for name in names]
        yield f"| {point} | {' | '.join(cells)} |"
    sums = [str(sum(counts[point, name] for point in POINTS)) for name in names]
    yield f"| **all** | {' | '.join(sums)} |"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--kills", type=int, default=300, help="queries that are killed")
    parser.add_argument("--minutes", type=float, default=240, help="begin no driver after these")
    parser.add_argument("--versions", nargs="*", default=["4.1", "4.3"])
    parser.add_argument("--venvs", type=Path, help="environments that spark_versions.py made")
    parser.add_argument("--first", type=int, default=0, help="the point to begin with")
    parser.add_argument("--driver", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.driver:
        driver(json.loads(options.driver))
        return 0
    return run(options)


def run(options: argparse.Namespace) -> int:
    from integration.spark_versions import environment
    from tests.postgres_server import PostgresServer

    draw = random.Random(14)
    counts: Counter[tuple[str, str]] = Counter()
    damages: Counter[str] = Counter()
    refused = 0
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="plake-kills-")))
        server = PostgresServer()
        stack.callback(server.stop)
        lanes = []
        for version in options.versions:
            home = (options.venvs or scratch) / f"spark-{version}"
            python = home / "bin" / "python"
            if not python.exists():
                python = environment(version, home.parent)
            for kind in ("SQLite", "PostgreSQL"):
                folder = scratch / f"{version}-{kind}"
                folder.mkdir()
                urls = [server.fresh_database() if kind != "SQLite" else "" for _ in range(QUERIES)]
                chains = [Chain(folder / str(number), url) for number, url in enumerate(urls)]
                for chain in chains:
                    chain.begin()
                lanes.append(Lane(version, kind, str(python), chains))
        done = 0
        end = time.monotonic() + 60 * options.minutes
        while done < options.kills and time.monotonic() < end:
            lane = lanes[done // QUERIES % len(lanes)]
            number = done // QUERIES
            # By turns from the beginning, the middle and the end of a write.
            point = POINTS[7 * (options.first + number) % len(POINTS)]
            folder = lane.chains[0].folder.parent
            started = time.monotonic()
            if problem := kill(lane, folder, point, draw):
                lane.problems.append(f"{point}: {problem}")
                break
            refused += _refused(folder)
            for slot, chain in enumerate(lane.chains):
                if problem := chain.whole_problem():
                    lane.problems.append(f"{point}, query {slot}: {problem}")
                kind = DAMAGES[(3 * number + slot) % len(DAMAGES)]
                damages[damage(chain, kind, lane.has_limits)] += 1
                counts[point, f"{lane.version} {lane.kind}"] += 1
            done += QUERIES
            seconds = time.monotonic() - started
            print(f"{done:>4} {lane.version} {lane.kind:10} {point:20} {seconds:.1f} s", flush=True)
            if lane.problems:
                break
        for lane in lanes:
            refused += finish(lane, lane.chains[0].folder.parent)
        wrong = [f"{one.version} {one.kind}: {text}" for one in lanes for text in one.problems]
        if wrong:
            kept = Path(tempfile.mkdtemp(prefix="plake-kills-kept-"))
            shutil.copytree(scratch, kept, dirs_exist_ok=True)
            wrong.append(f"the datasets are kept in {kept}")
    print("\n".join(table(counts, lanes)))
    print("checkpoints after the kill: " + ", ".join(f"{k} {n}" for k, n in damages.items()))
    print(f"log files that Spark refused: {refused}")
    print("\n".join(wrong) if wrong else "each row once, in the end of every query")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

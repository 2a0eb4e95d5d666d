"""Checks without faults: answers equal DuckDB's or a local session's; no secret is seen."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

from integration.cluster.jobs import ROWS
from integration.cluster.running import BUCKET, KEYS, PASSWORD, Cluster

_REST = ("jobs", "stages", "executors", "environment", "sql?details=true", "storage/rdd")
_PAGES = ("environment", "SQL", "jobs", "stages", "executors")


def main_job(cluster: Cluster) -> None:
    """The main job gives what DuckDB gives, and no secret leaves the driver."""
    from tests.edges.object_stores import free_port

    uri, port = f"{BUCKET}/main", free_port()
    driver = cluster.start("main", uri, ui=port)
    assert driver.stdout is not None
    first = driver.stdout.readline()
    if first.startswith("{"):
        _no_secrets(cluster, port)
    found = cluster.finish(driver)
    if not cluster.check("the main job ends", "failed" not in found, found.get("log", "")):
        return
    answer, after, joined = _oracle()
    for name, expected in answer.items():
        cluster.check(f"{name} equals DuckDB's", found[name] == expected, found[name])
    cluster.check("DELETE, UPDATE and MERGE equal DuckDB's", found["after"] == after, after)
    cluster.check("a join equals DuckDB's", found["join"] == joined, joined)
    cluster.check("executors have the extension: batches", bool(found["batches"]))
    cluster.check("every part of the extension works", bool(found["status"]))
    cluster.check("the main job leaves a clean dataset", cluster.tidy(uri)[0])


def _oracle() -> tuple[dict[str, int], list[int], int]:
    import duckdb

    oracle = duckdb.connect()
    oracle.execute(
        "CREATE TABLE t AS SELECT range AS id, range % 7 AS p, range * 3 AS v, "
        f"range::VARCHAR AS s FROM range({ROWS})"
    )

    def answer(query: str) -> list[int]:
        return [int(value) for value in oracle.execute(query).fetchall()[0]]

    queries = {
        "count": "SELECT count(*) FROM t",
        "point": "SELECT v FROM t WHERE id = 77",
        "range": "SELECT count(*) FROM t WHERE p = 3 AND id BETWEEN 1000 AND 2000",
        "sum": "SELECT sum(v) FROM t WHERE s LIKE '99%'",
    }
    before = {name: answer(query)[0] for name, query in queries.items()}
    oracle.execute("DELETE FROM t WHERE id % 1000 = 3")
    oracle.execute("UPDATE t SET v = -1 WHERE id % 1000 = 4")
    oracle.execute("UPDATE t SET v = 5 WHERE id % 100 = 0 AND id < 130000")
    oracle.execute(
        "INSERT INTO t SELECT range * 100, 9, 6, 'new' FROM range(1300) "
        "WHERE range * 100 NOT IN (SELECT id FROM t)"
    )
    keys = f"(SELECT range AS id FROM range(0, {ROWS}, 997))"
    joined = answer(f"SELECT count(*) FROM t JOIN {keys} USING (id)")[0]
    return before, answer("SELECT count(*), sum(v), sum(id) FROM t"), joined


def tables_and_streams(cluster: Cluster) -> None:
    """Tables by name, statements on them and a stream between them: as in a local session."""
    found = {}
    for where, master in (("cluster", cluster.master), ("local", "local[2]")):
        driver = cluster.start(
            "tables", BUCKET, master=master, namespace=where,
            checkpoint=str(cluster.folder / f"checkpoint-{where}"),
        )  # fmt: skip
        found[where] = cluster.finish(driver)
        failed = found[where].get("log", "")
        if not cluster.check(f"tables and a stream, {where}", not failed, failed):
            return
    for name, local in found["local"].items():
        cluster.check(f"{name}: as local", found["cluster"][name] == local, json.dumps(local)[:90])
    streamed = found["cluster"]["streamed"]
    half = ROWS // 2
    expected = [half, half, 3 * half * (half - 1) // 2, max(str(i) for i in range(half))]
    cluster.check("the stream wrote each row once", streamed == expected, streamed)
    for table in ("t", "copied", "made"):
        (uri,) = {
            f"{BUCKET}/{match[0]}"
            for path in cluster.objects(BUCKET)
            if (match := re.match(rf"warehouse/cluster/{table}(-[^/]*)?(?=/)", path))
        }
        cluster.check(f"table {table} is clean", cluster.tidy(uri)[0])


def clustering(cluster: Cluster) -> None:
    """`CALL cluster` by tasks on two workers: the same rows, fewer files for a range of a key."""
    found = cluster.finish(cluster.start("clustering", BUCKET, namespace="clustering"))
    if not cluster.check("clustering ends", "failed" not in found, found.get("log", "")):
        return
    parts = {"a": 7_919, "b": 104_729}
    for when in ("before", "after"):
        rows = found[f"rows {when}"]
        cluster.check(
            f"all rows {when} clustering", rows[:2] == [ROWS, ROWS * (ROWS - 1) // 2], rows
        )
        for column, factor in parts.items():
            expected = [i for i in range(ROWS) if 60_000 <= i * factor % ROWS < 61_200]
            answer = found[f"{column} {when}"]
            cluster.check(f"a range of {column} {when}", answer == [len(expected), sum(expected)])
    cluster.check("no row is changed", found["rows before"] == found["rows after"])
    cluster.check("the version before", found["rows before"] == found["rows at version 9"])
    first, second = found["first run"], found["second run"]
    cluster.check("a first run writes files", first["files_removed"] > 0, first)
    cluster.check("a second run writes none", second["files_removed"] == 0, second)
    depths = [found["depth before"], found["depth after"]]
    cluster.check("fewer files hold one value", depths[1] < depths[0], depths)
    for column in parts:
        sizes = [found[f"bytes {column} before"], found[f"bytes {column} after"]]
        cluster.check(f"fewer bytes for a range of {column}", sizes[1] * 3 < sizes[0], sizes)


# --- secrets ----------------------------------------------------------------------------


def _no_secrets(cluster: Cluster, port: int) -> None:
    """Look for the catalog's password wherever executors and users look, while the job runs."""
    executors = cluster.workers.executors()
    places: dict[str, Callable[[], str | bytes]] = {
        "the UI": lambda: _ui(port),
        "the UI's REST": lambda: _rest(port),
        "the environment of executors": lambda: _of_processes(executors, "environ"),
        "the command lines of executors": lambda: _of_processes(executors, "cmdline"),
        "the event log": lambda: _texts(cluster.folder / "events"),
        "logs and work folders of workers": lambda: _texts(cluster.folder / "work"),
        "the drivers' log": lambda: _texts(cluster.folder / "drivers.log"),
    }
    for place, read in places.items():
        found = read()
        text = found if isinstance(found, str) else found.decode(errors="replace")
        cluster.check(f"no password in {place}", bool(text) and PASSWORD not in text, len(text))
        if place not in ("the command lines of executors", "the environment of executors"):
            cluster.check(f"no key of the store in {place}", KEYS["secret_key"] not in text)
    # Whatever was pickled for them, and what they made of it. Tasks need the key of the store.
    seen = [_memory_has(process, PASSWORD.encode()) for process in executors]
    read_bytes = sum(size for _, size in seen)
    held = any(has for has, _ in seen)
    detail = f"{len(executors)} processes, {read_bytes >> 20} MiB"
    cluster.check("no password in the memory of executors", read_bytes > 0 and not held, detail)


def _ui(port: int) -> str:
    text = "".join(_page(f"http://127.0.0.1:{port}/{page}/") for page in _PAGES)
    for number in range(12):
        text += _page(f"http://127.0.0.1:{port}/SQL/execution/?id={number}")
    return text


def _rest(port: int) -> str:
    base = f"http://127.0.0.1:{port}/api/v1/applications"
    (application,) = json.loads(_page(base))
    return "".join(_page(f"{base}/{application['id']}/{what}") for what in _REST)


def _page(url: str) -> str:
    with suppress(HTTPError), urlopen(url) as answer:
        return str(answer.read().decode())
    return ""


def _of_processes(processes: list[int], name: str) -> str:
    text = ""
    for process in processes:
        with suppress(OSError):
            text += Path(f"/proc/{process}/{name}").read_text(errors="replace")
    return text


def _texts(place: Path) -> str:
    files = [place] if place.is_file() else [path for path in place.rglob("*") if path.is_file()]
    return "".join(path.read_text(errors="replace") for path in files)


def _memory_has(process: int, wanted: bytes) -> tuple[bool, int]:
    """Whether a process has some bytes in memory that it can write, and how much was read."""
    size, has = 0, False
    with suppress(OSError), open(f"/proc/{process}/mem", "rb", buffering=0) as memory:
        for line in Path(f"/proc/{process}/maps").read_text().splitlines():
            place, rights, *_ = line.split()
            if not rights.startswith("rw") or line.endswith(("[vvar]", "[vsyscall]")):
                continue
            start, end = (int(part, 16) for part in place.split("-"))
            with suppress(OSError, ValueError, OverflowError):
                memory.seek(start)
                while start < end and (data := memory.read(min(end - start, 1 << 24))):
                    has = has or wanted in data
                    size += len(data)
                    start += len(data)
    return has, size

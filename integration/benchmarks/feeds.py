"""What changed: plake's feed beside DuckLake's `table_changes` and delta-rs' `load_cdf`.

Each system makes the same history in a folder of its own, and is asked in a process of its own.

- update, scattered / together: 176,000 rows of a table of 6M rows x 6 columns in one commit, all
  over the table or one after the other; the feed of that commit. Delta's feed was switched on
  before: it reads files that the update wrote for it, whose size is told too.
- 1,000 commits of 100 rows: the feed of all of them; for plake beside reading the files alone.
- bytes: what plake read of files, beside what the commit added and the row groups that have newly
  marked rows.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

sys.path.insert(0, str(Path(__file__).parents[2]))

from integration.benchmarks import rivals
from integration.benchmarks.measure import ROOT, Result, Scale, run_folder, seconds

OURS, DELTA, DUCKLAKE = "plake", "delta-rs", "DuckLake"
ROWS, UPDATED, COMMITS, ROWS_OF_COMMIT = 6_000_000, 176_000, 1_000, 100
# DuckLake pairs the images of updates by a join that has not ended after nine minutes.
LONGEST_SECONDS = 120
QUESTIONS = {
    "feed of an update, scattered": "scattered",
    "feed of an update, together": "together",
    "feed of many commits": "commits",
}


def results(family: str, scale: Scale, rounds: int) -> Iterator[Result]:
    share = min(1.0, scale.tpch)
    pythons = {OURS: sys.executable, DELTA: sys.executable}
    try:
        pythons[DUCKLAKE] = rivals.ducklake_python()
    except RuntimeError as error:
        note = str(error)
        yield Result(family, "feed of many commits", DUCKLAKE, "s", (), note=note)
    for question, kind in QUESTIONS.items():
        folder = run_folder() / f"feed {kind}"
        size = f"{int(ROWS * share):,} rows"
        if kind == "commits":
            size = f"{int(COMMITS * share):,} commits of {ROWS_OF_COMMIT} rows"
        for system, python in pythons.items():
            _call(python, "make", kind, system, str(folder / system), str(share))
        values: dict[tuple[str, str], list[float]] = {}
        asked = dict(pythons)
        for number in range(rounds):
            order = list(asked)[:: 1 if number % 2 == 0 else -1]
            counts = set()
            for system in order:
                place = str(folder / system)
                try:
                    found = _call(asked[system], "ask", kind, system, place, str(share))
                except subprocess.TimeoutExpired:
                    note = f"no answer after {LONGEST_SECONDS} s"
                    yield Result(family, question, system, "s", (), size, note=note)
                    del asked[system]
                    continue
                counts.add(found.pop("rows"))
                for unit, value in found.items():
                    values.setdefault((system, unit), []).append(value)
            if len(counts) != 1:
                raise AssertionError(f"{question}: other numbers of changes: {counts}")
        for (system, unit), several in values.items():
            base = OURS if unit == "s" and system != OURS else None
            yield Result(family, question, system, unit, tuple(several), size, base)
        shutil.rmtree(folder)


def _call(python: str, *words: str) -> dict[str, Any]:
    command = [python, __file__, *words]
    longest = LONGEST_SECONDS if words[0] == "ask" else None
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, check=False, timeout=longest
    )
    if done.returncode:
        raise RuntimeError(f"{words}: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


# --- one system, in a process of its own --------------------------------------------------


def rows_of(first: int, count: int) -> pa.Table:
    ids = pa.array(range(first, first + count), pa.int64())
    key = pc.bit_wise_and(pc.multiply(ids, 2654435761), 0xFFFFF)
    return pa.table(
        {
            "id": ids,
            "key": key,
            "amount": pc.divide(pc.cast(key, pa.float64()), 7.0),
            "day": pc.cast(pc.cast(pc.divide(ids, 100_000), pa.int32()), pa.date32()),
            "label": pc.binary_join_element_wise("label", pc.cast(key, pa.string()), "-"),
            "v": pa.array([0] * count, pa.int64()),
        }
    )


def condition(kind: str, share: float) -> str:
    rows, updated = int(ROWS * share), int(UPDATED * share)
    if kind == "scattered":
        return f"id % {rows // updated} = 0 AND id < {rows // updated * updated}"
    return f"id >= {rows // 3} AND id < {rows // 3 + updated}"


def make(kind: str, system: str, folder: str, share: float) -> None:
    """Make the history of a question."""
    begin, append, update = {OURS: _plake, DELTA: _delta, DUCKLAKE: _ducklake}[system](folder)
    if kind == "commits":
        begin(rows_of(0, ROWS_OF_COMMIT))
        for number in range(1, int(COMMITS * share)):
            append(rows_of(number * ROWS_OF_COMMIT, ROWS_OF_COMMIT))
        print("{}")
        return
    begin(rows_of(0, int(ROWS * share)))
    update(condition(kind, share))
    print("{}")


Work = tuple[Callable[[pa.Table], Any], Callable[[pa.Table], Any], Callable[[str], Any]]


def _plake(folder: str) -> Work:
    import lakehouse_source as lake

    return (
        lambda rows: lake.write_dataset(rows, folder),
        lambda rows: lake.write_dataset(rows, folder),
        lambda where: lake.open_dataset(folder).update({"v": "v + 1"}, where),
    )


def _delta(folder: str) -> Work:
    from deltalake import DeltaTable, write_deltalake

    on = {"delta.enableChangeDataFeed": "true"}
    return (
        lambda rows: write_deltalake(folder, rows, configuration=on),
        lambda rows: write_deltalake(folder, rows, mode="append"),
        lambda where: DeltaTable(folder).update({"v": "v + 1"}, predicate=where),
    )


def _attached(folder: str) -> Any:
    import duckdb
    from duckdb_extensions import import_extension

    Path(folder).mkdir(parents=True, exist_ok=True)
    connection = duckdb.connect()
    for name in ("ducklake", "sqlite_scanner"):
        import_extension(name)
        connection.execute(f"LOAD {name}")
    # Rows in files, as in the other systems.
    options = f"DATA_PATH '{folder}/data', DATA_INLINING_ROW_LIMIT 0"
    connection.execute(f"ATTACH 'ducklake:sqlite:{folder}/meta.sqlite' AS lake ({options})")
    return connection


def _ducklake(folder: str) -> Work:
    connection = _attached(folder)

    def begin(rows: pa.Table) -> None:
        connection.register("rows", rows)
        connection.execute("CREATE TABLE lake.t AS SELECT * FROM rows")
        connection.unregister("rows")

    def append(rows: pa.Table) -> None:
        connection.register("rows", rows)
        connection.execute("INSERT INTO lake.t SELECT * FROM rows")
        connection.unregister("rows")

    return (
        begin,
        append,
        lambda where: connection.execute(f"UPDATE lake.t SET v = v + 1 WHERE {where}"),
    )


def ask(kind: str, system: str, folder: str, share: float) -> None:
    """Ask for the feed; print seconds, the peak of the resident memory, and the changes."""
    work = {OURS: _ask_plake, DELTA: _ask_delta, DUCKLAKE: _ask_ducklake}[system](kind, folder)
    counted: list[int] = []
    used = time.process_time()
    took = seconds(lambda: counted.append(work()))
    used = time.process_time() - used
    resident = Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]
    found = {"s": took, "CPU s": used, "MiB": int(resident) / 1024, "rows": counted[0]}
    if system == OURS:
        found |= _bytes(kind, folder, took)
    if system == DELTA:
        written = sum(one.stat().st_size for one in Path(folder).glob("_change_data/*"))
        found["MB written for the feed"] = written / 1e6
    print(json.dumps(found))


def _ask_plake(kind: str, folder: str) -> Callable[[], int]:
    import lakehouse_source as lake

    # Loads what is loaded when it is first used.
    assert lake.open_dataset(folder).changes(1, 1, where="id = 0").to_table().num_rows == 1
    start = 1 if kind == "commits" else 2
    return lambda: sum(
        one.num_rows for one in lake.open_dataset(folder).changes(start).to_batches()
    )


def _ask_delta(kind: str, folder: str) -> Callable[[], int]:
    from deltalake import DeltaTable

    start = 0 if kind == "commits" else 1

    def work() -> int:
        feed = DeltaTable(folder).load_cdf(starting_version=start)
        return sum(one.num_rows for one in pa.RecordBatchReader.from_stream(feed))

    return work


def _ask_ducklake(kind: str, folder: str) -> Callable[[], int]:
    connection = _attached(folder)
    (last,) = connection.execute("SELECT max(snapshot_id) FROM lake.snapshots()").fetchone()
    start = 0 if kind == "commits" else last

    def work() -> int:
        found = connection.execute(f"FROM lake.table_changes('t', {start}, {last})")
        reader = getattr(found, "to_arrow_reader", None) or found.fetch_record_batch
        return sum(one.num_rows for one in reader())

    return work


def _bytes(kind: str, folder: str, took: float) -> dict[str, float]:
    """What plake reads beside what it must; for many commits, its time beside the files' alone."""
    import pyarrow.parquet as pq

    import lakehouse_source as lake

    dataset = lake.open_dataset(folder)
    if kind == "commits":
        files = sorted(Path(folder).rglob("*.parquet"))
        alone = seconds(lambda: sum(pq.read_table(one).num_rows for one in files))
        return {"times the files alone": took / alone}
    before = _read_bytes()
    for _ in dataset.changes(2).to_batches():
        pass
    read = _read_bytes() - before
    plan = dataset.changes(2).planned().plan
    (part,) = plan.parts
    added = sum(one.size_bytes for one in dataset.files() if one.version == 2)
    marked = sum(task.byte_count for task in part.before.tasks)
    return {"times the bytes needed": read / (added + marked)}


def _read_bytes() -> int:
    return int(Path("/proc/self/io").read_text().split("rchar:")[1].split()[0])


if __name__ == "__main__":
    doing, asked, named, place, part = sys.argv[1:]
    (make if doing == "make" else ask)(asked, named, place, float(part))

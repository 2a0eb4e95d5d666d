"""Rows that change: DELETE and MERGE beside delta-rs, and what deleted rows cost readers.

TPC-H lineitem, 6M rows x 16 columns at scale 1. Each round changes fresh copies of the tables,
which share their data files with the originals by hard links. A statement runs in a process of
its own, so that its peak memory is its own; the time is that of the statement, without imports.

- delete: the rows of 1,500 scattered orders, 0.1 % of all. Delta-rs has no deletion vectors: it
  writes the files anew.
- merge: 6,000 rows, of which 5,900 have a partner and get new values, by order and line number.
- scan: all rows and columns, before and after 1 % of the rows of every file are deleted.
- count(*): after the deletion, from the catalog.
- feeds: what changed, beside DuckLake's `table_changes` and delta-rs' `load_cdf` (feeds.py).
- wide: one row is upserted into 500 and into 2,000 columns.
- MERGE in Spark SQL: the same rows, beside its join alone, over native Parquet, with the result
  counted; by the reader that plake chooses, and by Python.

    python -m integration.benchmarks --only changes
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

sys.path.insert(0, str(Path(__file__).parents[2]))

from integration.benchmarks import data, feeds, spark_merge
from integration.benchmarks.measure import (
    ROOT,
    Result,
    Scale,
    data_folder,
    interleaved,
    run_folder,
    seconds,
)

FAMILY, OURS, THEIRS = "changes", "plake", "delta-rs"
KEYS = ("l_orderkey", "l_linenumber")
ORDERS, SOURCE_ROWS, NEW_ROWS = 1500, 6000, 100
WIDE = (500, 2000)


def run(scale: Scale, rounds: int) -> Iterator[Result]:
    folder, size = data_folder(), f"TPC-H scale {scale.tpch:g}"
    tables = {
        OURS: data.lineitem_plake(folder, scale.tpch),
        THEIRS: data.lineitem_delta(folder, scale.tpch),
    }
    # First: what the statements write is still on its way to the disk afterwards.
    yield from _reads(tables[OURS], size, rounds)
    yield from _wide(rounds)
    yield from feeds.results(FAMILY, scale, rounds)
    source = _source(tables[OURS])
    for question in ("delete", "merge"):
        found = _statements(question, tables, source, rounds)
        for system, unit, values in found:
            base = THEIRS if system == OURS and unit != "MB of vectors" else None
            yield Result(FAMILY, question, system, unit, tuple(values), size, base)
    mine, rows = tables[OURS], _read_source(str(source))
    yield from spark_merge.results(FAMILY, mine, lambda copy: _copy(mine, copy), rows, size, rounds)


def _source(table: Path) -> Path:
    """The rows to merge: every so many of lineitem with another comment, and some new ones."""
    import lakehouse_source as lake

    rows = lake.read_dataset(table)
    step = rows.num_rows // (SOURCE_ROWS - NEW_ROWS)
    some = rows.take(pa.arange(0, step * (SOURCE_ROWS - NEW_ROWS), step))
    orders = pc.unique(rows["l_orderkey"])
    keys = orders.take(pa.arange(0, len(orders), len(orders) // ORDERS)).to_pylist()
    (run_folder() / "merge-source.keys").write_text(json.dumps(keys))
    new = rows.slice(0, NEW_ROWS)
    place = rows.schema.get_field_index("l_orderkey")
    far = pa.array([10**9 + n for n in range(NEW_ROWS)], rows.schema.field(place).type)
    new = new.set_column(place, rows.schema.field(place), far)
    changed = pa.concat_tables([some, new])
    place = rows.schema.get_field_index("l_comment")
    text = pa.array(["changed"] * changed.num_rows, rows.schema.field(place).type)
    changed = changed.set_column(place, rows.schema.field(place), text)
    target = run_folder() / "merge-source.arrow"
    with pa.OSFile(str(target), "wb") as sink, pa.ipc.new_file(sink, changed.schema) as writer:
        writer.write_table(changed)
    return target


def _statements(
    question: str, tables: dict[str, Path], source: Path, rounds: int
) -> list[tuple[str, str, list[float]]]:
    values: dict[tuple[str, str], list[float]] = {}
    for number in range(rounds):
        order = list(tables)[:: 1 if number % 2 == 0 else -1]
        for system in order:
            copy = run_folder() / "changed"
            shutil.rmtree(copy, ignore_errors=True)
            _copy(tables[system], copy)
            command = [sys.executable, __file__, question, system, str(copy), str(source)]
            done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
            for unit, value in json.loads(done.stdout.splitlines()[-1]).items():
                values.setdefault((system, unit), []).append(value)
            shutil.rmtree(copy)
    return [(system, unit, found) for (system, unit), found in values.items()]


def _copy(table: Path, copy: Path) -> None:
    """Data files are linked: no statement changes one in place. Catalogs and logs are copied."""

    def link_or_copy(source: str, target: str) -> None:
        if source.endswith(".parquet"):
            os.link(source, target)
        else:
            shutil.copy2(source, target)

    shutil.copytree(table, copy, copy_function=link_or_copy)


# --- one statement in a process of its own ------------------------------------------------


def statement(question: str, system: str, table: str, source: str) -> None:
    """Carry it out; print seconds, the peak of the resident memory, and bytes written."""
    work = {OURS: _plake, THEIRS: _delta}[system](question, table, source)
    before = _bytes_of(table)
    took = seconds(work)
    resident = Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]
    found = {
        "s": took,
        "MiB": int(resident) / 1024,
        "MB written": (_bytes_of(table) - before) / 1e6,
    }
    if system == OURS and question == "delete":
        found["MB of vectors"] = sum(f.stat().st_size for f in Path(table).glob("*.puffin")) / 1e6
    print(json.dumps(found))


def _bytes_of(table: str) -> int:
    return sum(path.stat().st_size for path in Path(table).rglob("*") if path.is_file())


def _read_source(source: str) -> pa.Table:
    with pa.OSFile(source) as file:
        return pa.ipc.open_file(file).read_all()


def _plake(question: str, table: str, source: str) -> Any:
    import lakehouse_source as lake

    # Loads what is loaded when it is first used, which is not what is measured.
    assert (
        lake.open_dataset(table).delete("l_orderkey < 0 AND l_orderkey % 2 = 2").rows_deleted == 0
    )
    lake.read_dataset(table, predicates="l_orderkey = -1")
    if question == "delete":
        listed = json.loads(Path(source).with_suffix(".keys").read_text())
        where = f"l_orderkey IN ({', '.join(map(str, listed))})"
        return lambda: lake.open_dataset(table).delete(where)
    rows = _read_source(source)
    return lambda: lake.open_dataset(table).upsert(rows, on=KEYS)


def _delta(question: str, table: str, source: str) -> Any:
    from deltalake import DeltaTable

    if question == "delete":
        listed = json.loads(Path(source).with_suffix(".keys").read_text())
        where = f"l_orderkey IN ({', '.join(map(str, listed))})"
        return lambda: DeltaTable(table).delete(where)
    rows = _read_source(source)
    on = " AND ".join(f"target.{name} = source.{name}" for name in KEYS)

    def merge() -> None:
        (
            DeltaTable(table)
            .merge(rows, on, source_alias="source", target_alias="target")
            .when_matched_update_all()
            .when_not_matched_insert_all()
            .execute()
        )

    return merge


# --- what deleted rows cost readers ---------------------------------------------------------


def _reads(table: Path, size: str, rounds: int) -> Iterator[Result]:
    import lakehouse_source as lake

    copy = run_folder() / "deleted"
    _copy(table, copy)
    dataset = lake.open_dataset(copy)
    whole = dataset.scan().count_rows()
    dataset.delete("l_orderkey % 100 = 7")  # about 1 % of the rows, all over the table
    left = dataset.scan().count_rows()
    before, after = lake.open_dataset(table), lake.open_dataset(copy)

    def rows(opened: Any) -> int:
        return sum(batch.num_rows for batch in opened.scan().to_batches())

    assert (rows(before), rows(after)) == (whole, left), "rows are missing"
    works = {"before": lambda: rows(before), "after": lambda: rows(after)}
    for name, values in interleaved(works, 3 * rounds).items():
        base = "before" if name == "after" else None
        yield Result(FAMILY, "scan, 1 % deleted", name, "s", values, size, base)
    counts = {
        "before": lambda: lake.open_dataset(table).scan().count_rows(),
        "after": lambda: lake.open_dataset(copy).scan().count_rows(),
    }
    for name, values in interleaved(counts, max(rounds, 20)).items():
        base = "before" if name == "after" else None
        milliseconds = tuple(1000 * value for value in values)
        yield Result(FAMILY, "count(*), 1 % deleted", name, "ms", milliseconds, size, base)
    shutil.rmtree(copy)


def _wide(rounds: int) -> Iterator[Result]:
    import lakehouse_source as lake

    def rows(columns: int, keys: list[int]) -> pa.Table:
        return pa.table({"key": keys, **{f"c{n}": keys for n in range(columns)}})

    opened = {}
    for columns in WIDE:
        folder = run_folder() / f"wide {columns}"
        lake.write_dataset(rows(columns, [0, 1, 2]), folder)
        opened[columns] = lake.open_dataset(folder)
    works = {
        str(columns): lambda columns=columns, to=to: to.upsert(rows(columns, [1]), on="key")
        for columns, to in opened.items()
    }
    for name, values in interleaved(works, rounds).items():
        base = None if name == str(WIDE[0]) else str(WIDE[0])
        yield Result(FAMILY, "upsert of a row, columns", name, "s", values, "3 rows", base)


def main() -> None:
    question, system, table, source = sys.argv[1:]
    statement(question, system, table, source)


if __name__ == "__main__":
    main()

"""Random programs of changes to rows, and DuckDB, which does the same to a table of its own.

After each statement: the rows, the counts of the catalog, older versions, and what engines read.
"""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

import lakehouse_source as lake

COLUMNS = ("tag", "k", "f", "s", "p", "n")
SCHEMA = pa.schema(
    [
        ("tag", pa.int64()),
        ("k", pa.int32()),
        ("f", pa.float64()),
        ("s", pa.string()),
        ("p", pa.int32()),
        ("n", pa.struct([("a", pa.int32()), ("b", pa.string())])),
    ]
)
DUCKDB_TYPES = (
    "tag BIGINT, k INTEGER, f DOUBLE, s VARCHAR, p INTEGER, n STRUCT(a INTEGER, b VARCHAR)"
)
FLOATS = (None, 0.0, -0.0, math.nan, math.inf, 1.5, -2.0)
TEXTS = (None, "", "a", "ä", "zz", "a'b")

# Conditions that both read alike.
CONDITIONS = (
    "k = 2",
    "k > 1 AND p = 1",
    "k IS NULL",
    "f = 0",
    "f > 1",
    "s = 'a' OR k = 0",
    "s IS NULL AND f IS NOT NULL",
    "p IN (0, 2)",
    "tag % 3 = 0",
    "k > p",
    "n.a = 1",
    "NOT (k = 1)",
    "tag < 4",
    "s >= 'a'",
)
CLUSTERINGS = (["k"], ["f", "s"], ["n.a", "k", "tag"])
UPDATES = (
    {"k": "k + 1"},
    {"s": "'new'"},
    {"p": "p + 1"},
    {"k": "coalesce(k, 7)", "s": "upper(s)"},
    {"f": "f * 2", "p": "0"},
    {"s": "NULL"},
    {"k": "p", "p": "coalesce(k, 1)"},
)


class Program:
    """A dataset, and a table in DuckDB that must always have the same rows.

    Statements go through plain Python; a subclass may carry them out through another door.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.draw = random.Random(seed)
        self.path = folder / "data"
        self.oracle = duckdb.connect()
        self.oracle.execute(f"CREATE TABLE t ({DUCKDB_TYPES})")
        self.tags = 0
        self.versions: dict[int, list[tuple[Any, ...]]] = {}
        self.steps: list[str] = []
        first = self.rows(self.draw.randint(0, 12))
        partitioned = self.draw.random() < 0.5
        lake.write_dataset(
            first,
            self.path,
            partition_by="p" if partitioned else None,
            row_group_rows=self.draw.choice([2, 3, 1000]),
            rewrite_threshold=self.draw.choice([0.0, 0.3, 0.6, 1.0]),
        )
        self.dataset = lake.open_dataset(self.path)
        self.insert_into_oracle(first)
        self.check()

    # --- data

    def rows(self, count: int) -> pa.Table:
        draw, found = self.draw, []
        for _ in range(count):
            self.tags += 1
            nested = None if draw.random() < 0.2 else {"a": draw.randint(0, 2), "b": "b"}
            found.append(
                {
                    "tag": self.tags,
                    "k": draw.choice([None, 0, 1, 2, 3]),
                    "f": draw.choice(FLOATS),
                    "s": draw.choice(TEXTS),
                    "p": draw.randint(0, 2),
                    "n": nested,
                }
            )
        return pa.Table.from_pylist(found, SCHEMA)

    def insert_into_oracle(self, table: pa.Table) -> None:
        self.oracle.register("incoming", table)
        self.oracle.execute("INSERT INTO t SELECT * FROM incoming")
        self.oracle.unregister("incoming")

    # --- statements

    def insert(self) -> None:
        table = self.rows(self.draw.randint(1, 6))
        lake.write_dataset(table, self.path)
        self.insert_into_oracle(table)

    def delete(self) -> None:
        condition = self.draw.choice(CONDITIONS)
        self.steps[-1] += f" {condition}"
        (expected,) = self.oracle.execute(f"SELECT count(*) FROM t WHERE {condition}").fetchone()
        found = self.run_delete(condition)
        self.oracle.execute(f"DELETE FROM t WHERE {condition}")
        assert found in (expected, None), self.steps

    def update(self) -> None:
        condition, updates = self.draw.choice(CONDITIONS), self.draw.choice(UPDATES)
        self.steps[-1] += f" {updates} {condition}"
        (expected,) = self.oracle.execute(f"SELECT count(*) FROM t WHERE {condition}").fetchone()
        found = self.run_update(updates, condition)
        values = ", ".join(f"{name} = {value}" for name, value in updates.items())
        self.oracle.execute(f"UPDATE t SET {values} WHERE {condition}")
        assert found in (expected, None), self.steps

    def merge(self) -> None:
        draw = self.draw
        on = draw.choice(
            [
                "target.tag = source.tag",
                "target.tag = source.tag AND target.k > 0",
                "target.tag = source.tag AND target.p = source.p",
                "target.tag = source.tag AND source.k = 1",
                "target.tag = source.tag AND target.k < source.k",
                "source.tag = target.tag + 1",
            ]
        )
        source = self.rows(draw.randint(0, 6))
        if source.num_rows:
            # Some rows of the source match: each tag at most once, so that none is ambiguous.
            tags = draw.sample(range(1, self.tags + 1), source.num_rows)
            source = source.set_column(0, "tag", pa.array(tags, pa.int64()))
        merge = self.dataset.merge(source, on)
        text = f"MERGE INTO t AS target USING source ON {on}"
        if draw.random() < 0.4:
            predicate = draw.choice(["source.k = 1", "target.f > 0", "target.s = source.s"])
            merge = merge.when_matched_delete(predicate)
            text += f" WHEN MATCHED AND {predicate} THEN DELETE"
        kind = draw.random()
        if kind < 0.4:
            merge = merge.when_matched_update({"s": "source.s", "k": "target.k + source.p"})
            text += " WHEN MATCHED THEN UPDATE SET s = source.s, k = target.k + source.p"
        elif kind < 0.7:
            merge = merge.when_matched_update_all("source.p = 1")
            values = ", ".join(f"{name} = source.{name}" for name in COLUMNS)
            text += f" WHEN MATCHED AND source.p = 1 THEN UPDATE SET {values}"
        else:
            merge = merge.when_matched_delete()
            text += " WHEN MATCHED THEN DELETE"
        if draw.random() < 0.5:
            merge = merge.when_not_matched_insert_all("source.k IS NOT NULL")
            values = ", ".join(f"source.{name}" for name in COLUMNS)
            text += (
                f" WHEN NOT MATCHED AND source.k IS NOT NULL THEN INSERT ({', '.join(COLUMNS)})"
                f" VALUES ({values})"
            )
        kind = draw.random()
        if kind < 0.2:
            merge = merge.when_not_matched_by_source_delete("target.p = 2")
            text += " WHEN NOT MATCHED BY SOURCE AND target.p = 2 THEN DELETE"
        elif kind < 0.4:
            merge = merge.when_not_matched_by_source_update({"s": "'alone'"}, "target.k = 2")
            text += " WHEN NOT MATCHED BY SOURCE AND target.k = 2 THEN UPDATE SET s = 'alone'"
        self.steps[-1] += f" {text}"
        self.oracle.register("source", source)
        self.oracle.execute(text)
        self.oracle.unregister("source")
        self.run_merge(merge, source, text)

    # --- how a statement is carried out; the answer is how many rows it changed, if that is told

    def run_delete(self, condition: str) -> int | None:
        return self.dataset.delete(condition).rows_deleted

    def run_update(self, updates: dict[str, str], condition: str) -> int | None:
        return self.dataset.update(updates, condition).rows_updated

    def run_merge(self, merge: lake.MergeBuilder, source: pa.Table, text: str) -> None:
        """Merge: `merge` is ready, and `text` is the same in SQL, from `source` into `t`."""
        merge.execute()

    def overwrite(self) -> None:
        table = self.rows(self.draw.randint(0, 8))
        lake.write_dataset(table, self.path, mode="overwrite")
        self.oracle.execute("DELETE FROM t")
        self.insert_into_oracle(table)

    def overwrite_where(self) -> None:
        condition = self.draw.choice(["p = 1", "k = 2", "k IS NULL"])
        self.steps[-1] += f" {condition}"
        lake.write_dataset(self.rows(0), self.path, mode="overwrite", overwrite_where=condition)
        self.oracle.execute(f"DELETE FROM t WHERE {condition}")

    def restore(self) -> None:
        version = self.draw.choice(list(self.versions))
        self.steps[-1] += f" {version}"
        self.dataset.restore(version)
        self.oracle.execute("DELETE FROM t")
        rows = [dict(zip(COLUMNS, row)) for row in self.versions[version]]
        self.insert_into_oracle(pa.Table.from_pylist(rows, SCHEMA))

    def rename(self) -> None:
        """To a name and back: files between have another name for the column."""
        self.dataset.rename_column("k", "kk")
        self.dataset.delete("kk = 99")
        self.dataset.rename_column("kk", "k")

    def vacuum(self) -> None:
        oldest = self.draw.choice(list(self.versions))
        newest = self.dataset.refresh().version
        self.dataset.expire_versions(keep_last=newest - oldest + 1)
        self.versions = {v: rows for v, rows in self.versions.items() if v >= oldest}
        self.dataset.vacuum(
            retention_seconds=0, allow_short_retention=True, abandoned_after_seconds=0
        )

    def lineage(self) -> Counter[str]:
        """Each row's identity, and the version that last changed it."""
        columns = ["tag", "_row_id", "_commit_version"]
        rows = self.dataset.refresh().scan(columns=columns).to_table().to_pylist()
        return Counter(map(repr, rows))

    def compact(self) -> None:
        """Each row keeps its identity and the version that last changed it."""
        before = self.lineage()
        self.dataset.compact(max_concurrent=self.draw.choice([1, 2]))
        assert self.lineage() == before, self.steps
        assert self.dataset.compact().files_removed == 0, self.steps

    def cluster(self) -> None:
        """The same, and the feed tells nothing of it."""
        columns = self.draw.choice(CLUSTERINGS)
        self.steps[-1] += f" {columns}"
        if self.dataset.refresh().properties.get("cluster_by") != columns:
            self.dataset.set_properties(cluster_by=columns)
        before, old = self.lineage(), self.dataset.version
        self.dataset.cluster(full=self.draw.random() < 0.5)
        assert self.lineage() == before, self.steps
        if self.dataset.version > old:
            assert not any(self.dataset.changes(old + 1).count_rows().values()), self.steps
        assert self.dataset.cluster().files_removed == 0, self.steps

    # --- running and checking

    def weighted(self) -> list[tuple[Callable[[], None], int]]:
        """The statements, and how often each one is chosen."""
        return [
            (self.insert, 4), (self.delete, 5), (self.update, 5), (self.merge, 6),
            (self.overwrite, 1), (self.overwrite_where, 1), (self.restore, 2), (self.rename, 1),
            (self.vacuum, 1), (self.compact, 2), (self.cluster, 2),
        ]  # fmt: skip

    def run(self, steps: int) -> None:
        choices, weights = zip(*self.weighted())
        for _ in range(steps):
            (step,) = self.draw.choices(choices, weights)
            self.steps.append(step.__name__)
            step()
            self.check()

    def check(self) -> None:
        dataset = self.dataset.refresh()
        expected = self.oracle.execute(f"SELECT {', '.join(COLUMNS)} FROM t").fetchall()
        self.versions[dataset.version] = expected
        table = dataset.scan(columns=[*COLUMNS, "_row_id", "_file", "_pos"]).to_table()
        rows = table.to_pylist()
        assert bag(row_of(row) for row in rows) == bag(expected), self.steps
        assert dataset.scan().count_rows() == len(expected), self.steps
        ids = [row["_row_id"] for row in rows]
        assert len(set(ids)) == len(ids), self.steps
        assert len({(row["_file"], row["_pos"]) for row in rows}) == len(rows)
        condition = self.draw.choice(CONDITIONS[:8])
        wanted = self.oracle.execute(f"SELECT * FROM t WHERE {condition}").fetchall()
        scan = dataset.scan(condition)
        assert bag(map(row_of, scan.to_table().to_pylist())) == bag(wanted), self.steps
        assert scan.count_rows() == len(wanted), self.steps
        self.check_door(scan, wanted)
        version = self.draw.choice(list(self.versions))
        then = dataset.scan(version=version)
        assert bag(map(row_of, then.to_table().to_pylist())) == bag(self.versions[version])
        assert then.count_rows() == len(self.versions[version]), self.steps

    def check_door(self, scan: Any, wanted: list[tuple[Any, ...]]) -> None:
        door = self.draw.choice(["duckdb", "polars", "arrow", "fragments"])
        if door == "duckdb":
            connection = duckdb.connect()
            scan.to_duckdb(connection, "v")
            found = connection.sql(f"SELECT {', '.join(COLUMNS)} FROM v").fetchall()
            assert bag(found) == bag(wanted), self.steps
        elif door == "polars":
            frame = scan.to_polars().select(COLUMNS).collect()
            assert bag(map(row_of, frame.to_dicts())) == bag(wanted), self.steps
        elif door == "arrow":
            tags = scan.to_dataset().to_table(columns=["tag"]).column("tag").to_pylist()
            assert Counter(tags) >= Counter(row[0] for row in wanted), self.steps
        else:
            count = sum(fragment.count_rows() for fragment in scan.fragments())
            assert count >= len(wanted), self.steps


def row_of(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in COLUMNS)


def bag(rows: Any) -> Counter[str]:
    """Rows as texts: NaN equals itself here. DuckDB keeps -0.0 where 0.0 is assigned to it."""
    return Counter(re.sub(r"-0\.0\b", "0.0", repr(row)) for row in rows)

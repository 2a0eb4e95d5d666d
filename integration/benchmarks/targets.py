"""The figures that plake set itself, and whether the results of a run meet them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from integration.benchmarks.measure import Result, ratio


@dataclass(frozen=True, slots=True)
class Target:
    """At most `limit`: of one system's median, or of its ratio to the system `against`."""

    text: str
    limit: float
    family: str
    question: str
    system: str
    unit: str
    size: str = ""
    against: str | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """`met` is None where the run holds no figure for it."""

    target: Target
    figure: str
    met: bool | None


def _planning(
    text: str, limit: float, size: str, system: str, against: str | None = None
) -> Target:
    return Target(text, limit, "planning", "clustered point", system, "ms", size, against)


def _spark(text: str, limit: float, question: str, system: str) -> Target:
    return Target(text, limit, "spark", question, system, "s", "TPC-H scale 1", "native Parquet")


def _statement(text: str, limit: float, question: str, unit: str = "ms") -> Target:
    return Target(text, limit, "statements", question, "plake", unit, "", "Spark's Parquet")


def _changes(text: str, limit: float, question: str, unit: str) -> Target:
    return Target(text, limit, "changes", question, "plake", unit, "TPC-H scale 1", "delta-rs")


def _layout(
    text: str, limit: float, question: str, system: str, unit: str, against: str | None = None
) -> Target:
    return Target(text, limit, "layout", question, system, unit, "", against)


def _served(text: str, limit: float, question: str, unit: str = "ms") -> Target:
    return Target(text, limit, "engines", question, "plake serve", unit, "10,000 files")


def _variant(text: str, limit: float, question: str, against: str) -> Target:
    size = "5,000,000 events"
    return Target(text, limit, "variant", question, "plake", "s", size, against)


def _by_name(question: str) -> Target:
    text = f"DuckDB through the REST catalog, {question}: at most 1.15 x DuckDB over the files"
    systems = ("DuckDB through the server", "DuckDB over the files")
    return Target(text, 1.15, "engines", question, systems[0], "s", "TPC-H scale 1", systems[1])


_HUNDRED, _MILLION = "100,000 files", "1,000,000 files"
_KEYED = "100,000,000 rows, 1,000 files"

TARGETS: tuple[Target, ...] = (
    _planning("plan a point among 100,000 files, SQLite, first plan of a process: at most 15 ms",
              15, _HUNDRED, "plake, SQLite, first"),
    _planning("the same, PostgreSQL: at most 15 ms", 15, _HUNDRED, "plake, PostgreSQL, first"),
    _planning("the same, at most 1/8 of DuckLake (attached already)",
              1 / 8, _HUNDRED, "plake, SQLite", "DuckLake"),
    _planning("the same, at most 1/500 of delta-rs (its dataset's fragments)",
              1 / 500, _HUNDRED, "plake, SQLite", "delta-rs, dataset"),
    _planning("plan a point among 1,000,000 files, SQLite, first plan of a process: at most 60 ms",
              60, _MILLION, "plake, SQLite, first"),
    _planning("the same, PostgreSQL: at most 60 ms", 60, _MILLION, "plake, PostgreSQL, first"),
    Target("append 1,000,000 rows under three CHECKs: at most 1.1 x without",
           1.1, "promises", "append", "three CHECKs", "s", "1,000,000 rows", "no constraint"),
    Target("append 10,000 rows with ascending keys under a PRIMARY KEY: at most 1.2 x without",
           1.2, "promises", "keys ascending", "PRIMARY KEY", "s", _KEYED, "no key"),
    Target("the same with keys anywhere between the others: at most 3 x without",
           3, "promises", "keys anywhere", "PRIMARY KEY", "s", _KEYED, "no key"),
    Target("8 writers upsert rows of the same keys: at most 20 ms for each commit, all together",
           20, "promises", "8 writers upsert", "PRIMARY KEY", "ms/commit, all together"),
    Target("append through Spark with an identity column: at most 1.05 x with numbers of Spark",
           1.05, "promises", "append through Spark", "identity column", "s", "10,000,000 rows",
           "numbers of Spark"),
    Target("driver memory to plan all of 1,000,000 files into tasks: at most 512 MiB",
           512, "memory", "plan all files", "plake, SQLite", "MiB", _MILLION),
    Target("memory of a process that writes a stream of 10 GiB: at most 512 MiB",
           512, "memory", "write a stream", "plake", "MiB", "10 GiB"),
    Target("the same, partitioned", 512, "memory", "write a stream, partitioned", "plake", "MiB",
           "10 GiB"),
    Target("the same, sorted", 512, "memory", "write a stream, sorted", "plake", "MiB", "10 GiB"),
    _spark("full scan through Spark: at most 1.05 x native Parquet",
           1.05, "full scan", "plake, extension"),
    _spark("count(*): at most 0.3 x native Parquet", 0.3, "count(*)", "plake, extension"),
    _spark("scan and aggregation (Q1): at most 0.95 x native Parquet",
           0.95, "Q1", "plake, extension"),
    _spark("selective scan (Q6): at most 0.8 x native Parquet", 0.8, "Q6", "plake, extension"),
    _spark("3 of 100 columns: at most 1.0 x native Parquet",
           1.0, "3 of 100 columns", "plake, extension"),
    _spark("IN of 100 keys: at most 0.5 x native Parquet",
           0.5, "IN of 100 keys", "plake, extension"),
    _spark("range of 1 % of the key: at most 0.5 x native Parquet",
           0.5, "range of 1 % of the key", "plake, extension"),
    _spark("join of lineitem with 1 % of orders: at most 0.5 x native Parquet",
           0.5, "join with 1 % of orders", "plake, extension"),
    _spark("TPC-H, all 22 queries: at most 0.9 x native Parquet",
           0.9, "TPC-H, all 22", "plake, extension"),
    _spark("point lookup over 2,000 files: at most 0.08 x native Parquet",
           0.08, "point lookup, 2,000 files", "plake, extension"),
    *(_statement(f"the {what} of a session: at most 1.5 x Spark's own Parquet", 1.5, what, "s")
      for what in ("first write", "first read", "first batch")),
    *(_statement(f"small table, {what}: at most {limit:g} x Spark's own Parquet", limit, what)
      for what, limit in (("SELECT of one row", 1.05), ("grouped count", 1.05),
                          ("INSERT of one row", 0.8), ("SHOW TABLES", 1.2))),
    Target("small table, DELETE of one row: at most 1.1 x an INSERT of one row",
           1.1, "statements", "DELETE of one row", "plake", "one-row INSERTs of plake"),
    Target("small table, MERGE of 10 rows: at most 2.2 x an INSERT of one row",
           2.2, "statements", "MERGE of 10 rows", "plake", "one-row INSERTs of plake"),
    Target("one row among 5,000,000 in one file, from Python: at most 6 ms",
           6, "python", "one row of 5,000,000", "plake", "ms"),
    Target("one order of lineitem, all 16 columns, from Python: at most 0.012 s",
           0.012, "python", "point lookup", "plake", "s", "TPC-H scale 1"),
    Target("IN of 100 keys of lineitem, from Python: at most 0.045 s",
           0.045, "python", "IN of 100 keys", "plake", "s", "TPC-H scale 1"),
    Target("DuckDB over plake, whole scan (Q1): at most 1.05 x DuckDB over the files",
           1.05, "python", "Q1, whole scan", "DuckDB over plake", "s", "engines, TPC-H scale 1",
           "DuckDB over the files"),
    Target("DuckDB over plake, a point among 2,000 files: faster than DuckDB over the files",
           1.0, "python", "point, pruned", "DuckDB over plake", "s", "engines, 2,000 files",
           "DuckDB over the files"),
    _served("GET of a table by the REST catalog, unchanged: at most 5 ms", 5, "GET, unchanged"),
    _served("the same, first, 10,000 files: at most 1,000 ms", 1000, "GET, first"),
    _served("the same, after one more commit: at most 50 ms", 50, "GET, one more commit"),
    Target("/plan of a point among 100,000 files: at most 15 ms",
           15, "engines", "/plan of a point", "plake serve", "ms", _HUNDRED),
    Target("PyIceberg's scan of it by /plan: at most 1/20 of that by manifests",
           1 / 20, "engines", "scan of a point", "PyIceberg by /plan", "s", _HUNDRED,
           "PyIceberg by manifests"),
    _by_name("Q1"),
    _by_name("Q6"),
    _served("16 clients, 200 requests a second: 99 % within 100 ms", 100, "load, 99 %"),
    _served("the same, memory of the server: at most 512 MiB", 512, "load, peak memory", "MiB"),
    *(Target(f"{question}, as a ratio to native Parquet: at most Iceberg's on its Spark",
             1.0, "iceberg", question, "plake", "x native Parquet", "", "Iceberg")
      for question in ("full scan", "point among 2,000 files", "append", "one-row INSERT",
                       "DELETE of 0.1 %", "MERGE of 6,000")),
    Target("Spark append, extension: at most 1.0 x a writer that discards its batches",
           1.0, "writes", "append", "plake, extension", "s", "10,000,000 rows",
           "discard"),
    Target("100 micro-batches of 1,000 rows into a sink: at most 2.7 s",
           2.7, "streams", "100 batches", "plake, SQLite", "s"),
    Target("the same, PostgreSQL", 2.7, "streams", "100 batches", "plake, PostgreSQL", "s"),
    Target("an idle trigger of a stream: at most 15 ms of catalog work",
           15, "streams", "idle trigger", "plake, SQLite", "ms"),
    Target("the same, PostgreSQL", 15, "streams", "idle trigger", "plake, PostgreSQL", "ms"),
    _changes("delete 0.1 % of 6M rows: at most 1/5 of delta-rs", 1 / 5, "delete", "s"),
    _changes("merge 6,000 rows into 6M: at most 1/5 of delta-rs", 1 / 5, "merge", "s"),
    Target("the same, peak memory: at most 1,024 MiB",
           1024, "changes", "merge", "plake", "MiB", "TPC-H scale 1"),
    Target("MERGE in Spark SQL: at most 1.5 x its join alone over native Parquet",
           1.5, "changes", "MERGE in Spark SQL", "plake", "s", "TPC-H scale 1", "join alone"),
    Target("scan after 1 % of each file's rows are deleted: at most 1.15 x the scan before",
           1.15, "changes", "scan, 1 % deleted", "after", "s", "TPC-H scale 1", "before"),
    _layout("clustered by one column, a point reads: at most 1.2 x an exact sort",
            1.2, "point of a, one column", "by a", "KiB", "exact sort"),
    _layout("the same, 1 % of the values", 1.2, "1 % of a, one column", "by a", "KiB",
            "exact sort"),
    *(_layout(f"clustered by two columns, a {what} reads: at most 1/8 of the shuffled files",
              1 / 8, what, "by a and b", "KiB", "shuffled")
      for what in ("point of a", "1 % of a", "point of b", "1 % of b")),
    _layout("40 appends, auto clustering, bytes rewritten: at most 4 x those appended",
            4, "40 appends", "auto clustering", "bytes rewritten ÷ appended"),
    _layout("the same, depth after each run: at most 4", 4, "40 appends", "average",
            "files at a value"),
    _layout("1 append to 40 clustered parts: at most 4 parts are rewritten",
            4, "1 append to 40", "cluster()", "parts rewritten"),
    Target("cluster() of lineitem: at most 3 x reading and writing it with PyArrow",
           3, "layout", "cluster all of lineitem", "cluster()", "s", "TPC-H scale 1",
           "read and write"),
    Target("the same, peak memory: at most 1,024 MiB",
           1024, "layout", "cluster all of lineitem", "cluster()", "MiB", "TPC-H scale 1"),
    *(_variant(f"VARIANT, {text}: at most {limit:g} x Spark's shredded Parquet", limit, question,
               "Spark's Parquet")
      for text, limit, question in (
          ("a point by a path in Spark", 0.1, "point, Spark"),
          ("a write through Spark", 1.1, "write through Spark"),
          ("a full scan that extracts three paths in Spark", 1.05, "three paths, Spark"))),
    _variant("VARIANT, a point by a path in Python: at most 0.2 x DuckDB over the files",
             0.2, "point, Python", "DuckDB"),
    Target("health() over 100,000 files, SQLite: at most 2 s",
           2, "layout", "health()", "plake, SQLite", "s", _HUNDRED),
    Target("health() over 1,000,000 files: at most 6 s",
           6, "layout", "health()", "plake, SQLite", "s", _MILLION),
    Target("the same, peak memory: at most 512 MiB",
           512, "layout", "health()", "plake, SQLite", "MiB", _MILLION),
)  # fmt: skip


def judge(results: Sequence[Result], targets: Sequence[Target] = TARGETS) -> list[Verdict]:
    return [_verdict(target, results) for target in targets]


def _verdict(target: Target, results: Sequence[Result]) -> Verdict:
    mine = _find(target, target.system, results)
    if mine is None:
        return Verdict(target, "not measured", None)
    if target.against is None:
        value = mine.median
        figure = f"{value:.3g} {target.unit}" if value < 1000 else f"{value:,.0f} {target.unit}"
        return Verdict(target, figure, value <= target.limit)
    theirs = _find(target, target.against, results)
    found = None if theirs is None else ratio(mine.values, theirs.values)
    if found is None:
        return Verdict(target, f"{target.against}: not measured", None)
    if target.limit < 0.05:
        # Small ratios read better the other way round.
        figure = f"1/{1 / found.median:,.0f} (1/{1 / found.low:,.0f} to 1/{1 / found.high:,.0f})"
    else:
        figure = f"{found.median:.2f} ({found.low:.2f} to {found.high:.2f})"
    return Verdict(target, figure, found.median <= target.limit)


def _find(target: Target, system: str, results: Sequence[Result]) -> Result | None:
    for one in results:
        place = (one.family, one.question, one.system, one.unit, one.size)
        if place == (target.family, target.question, system, target.unit, target.size):
            return one if one.values else None
    return None

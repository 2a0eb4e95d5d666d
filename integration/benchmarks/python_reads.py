"""The same questions as through Spark, from Python, in one process.

TPC-H lineitem (6M rows x 16 columns at scale 1) and the flights of 2013, partitioned by
month. The systems:

- plake: `open_dataset(…).scan(where, columns)`, opened anew each time; Q1 and Q6 are
  summed up by DuckDB over the rows that the scan gives.
- delta-rs, dataset: `DeltaTable(…).to_pyarrow_dataset()` with an Arrow filter, summed up
  by DuckDB too; delta-rs, engine: its `QueryBuilder`. Opened anew each time.
- DuckDB and DataFusion: SQL over the very Parquet files that plake wrote, without a catalog.

All give Arrow tables, but for sums. A second table says how much of the data plake's
catalog lets a question read, with its condition and without; a third compares engines over
plake's scans with the same engines over the files (engine_reads.py); a fourth asks for one
row of a single file of 5,000,000.

    python integration/benchmarks/python_reads.py
"""

from __future__ import annotations

import datetime
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

sys.path.insert(0, str(Path(__file__).parents[2]))

import lakehouse_source as lake
from integration.benchmarks import data, engine_reads, spark_scan
from integration.benchmarks.measure import FULL, Result, Scale, agree, data_folder, interleaved

FAMILY, OURS = "python", "plake"
# Engines differ in how many digits the average of decimals has.
Q1 = re.sub(r"avg\((\w+)\)", r"avg(CAST(\1 AS DOUBLE))", spark_scan.Q1)


@dataclass(frozen=True, slots=True)
class Question:
    """Rows of `columns` (None: all) where `where`, or with `sql` what it says over them.

    `expression` is the condition for Arrow's datasets.
    """

    name: str
    where: str | None = None
    columns: tuple[str, ...] | None = None
    expression: Any = None
    sql: str | None = None

    @property
    def text(self) -> str:
        """For engines that speak SQL, over a table `t`."""
        if self.sql is not None:
            return self.sql
        chosen = ", ".join(self.columns or ("*",))
        return f"SELECT {chosen} FROM t" + (f" WHERE {self.where}" if self.where else "")


def lineitem_questions() -> list[Question]:
    key = ds.field("l_orderkey")
    keys = [1 + 59_999 * n for n in range(100)]
    day = ds.field("l_shipdate")
    q6 = (
        (day >= datetime.date(1994, 1, 1))
        & (day < datetime.date(1995, 1, 1))
        & (ds.field("l_discount") >= Decimal("0.05"))
        & (ds.field("l_discount") <= Decimal("0.07"))
        & (ds.field("l_quantity") < Decimal(24))
    )
    listed = f"l_orderkey IN ({', '.join(map(str, keys))})"
    few = ("l_orderkey", "l_quantity")
    return [
        Question("full scan"),
        Question("count(*)", sql="SELECT count(*) AS n FROM t", columns=()),
        Question("Q1", "l_shipdate <= DATE '1998-09-02'", spark_scan.Q1_COLUMNS,
                 day <= datetime.date(1998, 9, 2), Q1),
        Question("Q6", spark_scan.Q6_WHERE, spark_scan.Q6_COLUMNS, q6,
                 "SELECT sum(l_extendedprice * l_discount) AS revenue FROM t "
                 f"WHERE {spark_scan.Q6_WHERE}"),
        Question("point lookup", "l_orderkey = 3000003", None, key == 3_000_003),
        Question("IN of 100 keys", listed, few, key.isin(keys)),
    ]  # fmt: skip


def flights_question() -> Question:
    return Question(
        "flights of United in March",
        "month = 3 AND carrier = 'UA'",
        ("dest", "arr_delay"),
        (ds.field("month") == 3) & (ds.field("carrier") == "UA"),
    )


# --- the systems ------------------------------------------------------------------


def plake(dataset: Path) -> Callable[[Question], Any]:
    def ask(question: Question) -> Any:
        opened = lake.open_dataset(dataset)
        if question.columns == ():
            return opened.scan(question.where).count_rows()
        table = opened.scan(question.where, question.columns).to_table()
        return table if question.sql is None else _duckdb_over(table, question.sql)

    return ask


def delta_dataset(table: Path) -> Callable[[Question], Any]:
    def ask(question: Question) -> Any:
        from deltalake import DeltaTable

        rows = DeltaTable(str(table)).to_pyarrow_dataset()
        if question.columns == ():
            return rows.count_rows(filter=question.expression)
        columns = None if question.columns is None else list(question.columns)
        found = rows.to_table(columns=columns, filter=question.expression)
        return found if question.sql is None else _duckdb_over(found, question.sql)

    return ask


def delta_engine(table: Path) -> Callable[[Question], Any]:
    def ask(question: Question) -> Any:
        from deltalake import DeltaTable, QueryBuilder

        query = QueryBuilder().register("t", DeltaTable(str(table))).execute(question.text)
        return pa.table(query.read_all())

    return ask


def duckdb_files(files: list[str], hive: bool = False) -> Callable[[Question], Any]:
    def ask(question: Question) -> Any:
        import duckdb

        with duckdb.connect() as connection:
            source = f"read_parquet({files!r}, hive_partitioning = {str(hive).lower()})"
            connection.execute(f"CREATE VIEW t AS SELECT * FROM {source}")
            return connection.execute(question.text).to_arrow_table()

    return ask


def datafusion_files(path: Path | str) -> Callable[[Question], Any]:
    """A folder that holds the Parquet files of one version only, or a file."""

    def ask(question: Question) -> Any:
        import datafusion

        context = datafusion.SessionContext()
        context.register_parquet("t", str(path))
        return context.sql(question.text).to_arrow_table()

    return ask


def _duckdb_over(t: pa.Table, sql: str) -> Any:
    import duckdb

    with duckdb.connect() as connection:
        connection.register("t", t)
        return connection.execute(sql).to_arrow_table()


def summary(answer: Any) -> Any:
    """What answers have in common whatever their types: the rows, as sorted text if few."""
    if isinstance(answer, int):
        return ((float(answer),),)
    if answer.num_rows > 100_000:
        return answer.num_rows
    rows = zip(*(column.to_pylist() for column in answer.columns))
    return tuple(sorted((tuple(_plain(value) for value in row) for row in rows), key=repr))


def _plain(value: Any) -> Any:
    if isinstance(value, (int, float, Decimal)):
        # Sums of decimals have another scale, averages other last digits.
        return float(f"{float(value):.9g}")
    return value


# --- the run ----------------------------------------------------------------------


def run(scale: Scale, rounds: int) -> Iterator[Result]:
    folder = data_folder()
    dataset = data.lineitem_plake(folder, scale.tpch)
    delta = data.lineitem_delta(folder, scale.tpch)
    files = data.paths(dataset)
    systems = {
        OURS: plake(dataset),
        "delta-rs, dataset": delta_dataset(delta),
        "delta-rs, engine": delta_engine(delta),
        "DuckDB": duckdb_files(files),
        "DataFusion": datafusion_files(dataset),
    }
    size = f"TPC-H scale {scale.tpch:g}"
    for question in lineitem_questions():
        yield from compare(question, systems, size, rounds)
    flown = data.flights_plake(folder)
    flight_systems = {
        OURS: plake(flown),
        "DuckDB": duckdb_files(data.paths(flown), hive=True),
    }
    yield from compare(flights_question(), flight_systems, "flights", rounds)
    for place, asked in ((dataset, lineitem_questions()), (flown, [flights_question()])):
        for question in asked:
            yield from amounts(place, question)
    yield from engine_reads.run(FAMILY, dataset, files, Q1, size, rounds, summary)
    _, many = data.small_files(folder, scale.tpch, scale.small_files)
    yield from engine_reads.run(
        FAMILY, many, data.paths(many), Q1, f"{scale.small_files:,} files", rounds, summary,
        engine_reads.OF_MANY_FILES,
    )  # fmt: skip
    yield from one_row(folder, scale.point_rows, rounds)


def compare(
    question: Question, systems: dict[str, Any], size: str, rounds: int
) -> Iterator[Result]:
    agree(question.name, {n: lambda s=s: summary(s(question)) for n, s in systems.items()})
    works = {name: lambda system=system: system(question) for name, system in systems.items()}
    for name, values in interleaved(works, rounds).items():
        base = None if name == OURS else OURS
        yield Result(FAMILY, question.name, name, "s", values, size, base)


def amounts(dataset: Path, question: Question) -> Iterator[Result]:
    """What a scan has to read, by plake's catalog."""
    opened = lake.open_dataset(dataset)
    columns = question.columns or None
    for kind, where in (("with its condition", question.where), ("without", None)):
        found = opened.scan(where, columns).explain()
        for what, count in (
            ("files", found.files_read),
            ("row groups", found.row_groups_read),
            ("MiB of all columns", found.bytes_read / 2**20),
        ):
            yield Result(FAMILY, question.name, f"{what} {kind}", "numbers", (float(count),))


def one_row(folder: Path, rows: int, rounds: int) -> Iterator[Result]:
    """One row by its ascending key, every column; several times in a round: it is short."""
    dataset = data.one_file(folder, rows)
    delta = data.one_file_delta(folder, rows)
    (file,) = data.paths(dataset)
    wanted = rows // 3
    question = Question("one row", f"id = {wanted}", None, ds.field("id") == wanted)
    systems = {
        OURS: plake(dataset),
        "delta-rs, dataset": delta_dataset(delta),
        "delta-rs, engine": delta_engine(delta),
        "Arrow dataset": lambda q: ds.dataset(file).to_table(filter=q.expression),
        "DuckDB": duckdb_files([file]),
        "DataFusion": datafusion_files(file),
    }
    agree(question.name, {n: lambda s=s: s(question).num_rows for n, s in systems.items()})
    works = {name: lambda system=system: system(question) for name, system in systems.items()}
    for name, values in interleaved(works, 3 * rounds).items():
        base = None if name == OURS else OURS
        milliseconds = tuple(1000 * value for value in values)
        yield Result(FAMILY, f"one row of {rows:,}", name, "ms", milliseconds, "", base)


def main() -> None:
    from integration.benchmarks import report

    print("\n\n".join(report.tables(list(run(FULL, 5)))))


if __name__ == "__main__":
    main()

"""Documents in columns of VARIANT, side by side with Spark's own Parquet and with DuckDB.

Events like those of GitHub, in 200 files: who did what to which repository, with a payload of a
size and some commits. All are parsed once; the actors ascend, so one file holds each. The systems:

- plake: the format `plake` with the planner extension, whose tasks choose the paths of files;
  from Python its scan, which gives whole documents.
- Spark's Parquet: Spark's own format, which shreds by `inferShreddingSchema`.
- DuckDB: over the very files that plake wrote.

Answers are compared before they are timed.

    python integration/benchmarks/variants.py [--rows 5000000] [--rounds 5] [--only point]
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import lakehouse_source as lake
from integration.benchmarks import data
from integration.benchmarks.measure import (
    FULL,
    Result,
    Scale,
    agree,
    data_folder,
    interleaved,
    rounds_for,
)
from integration.benchmarks.spark_scan import session, with_extension

FAMILY, OURS, SPARKS = "variant", "plake", "Spark's Parquet"
FILES = 200
SHREDDED = {
    "spark.sql.variant.writeShredding.enabled": "true",
    "spark.sql.variant.inferShreddingSchema": "true",
    "spark.sql.files.openCostInBytes": "128MB",  # a task for each file that is read
}
EVENT = """
to_json(named_struct(
    'type', element_at(array('PushEvent', 'IssuesEvent', 'WatchEvent'), CAST(id % 3 AS INT) + 1),
    'public', id % 11 != 0,
    'created_at', CAST(timestamp_seconds(1700000000 + id) AS STRING),
    'actor', named_struct('id', id, 'login', concat('user', id * 7919 % 100003)),
    'repo', named_struct('id', id * 31 % 5000, 'name', concat('repo', id * 31 % 5000)),
    'payload', named_struct('size', id % 17, 'ref', concat('refs/heads/', id % 5), 'commits',
        transform(sequence(0, id % 3), n -> named_struct('sha', sha1(CAST(id + n AS STRING)),
            'message', concat('change ', n)))))) AS text
"""
THREE = ("v:actor.id::bigint AS actor", "v:type::string AS type", "v:payload.size::int AS size")


def events(spark: Any, folder: Path, rows: int) -> Path:
    """The documents as Parquet of Spark that is not shredded, in as many files."""

    def make(target: Path) -> None:
        made = spark.range(0, rows, 1, FILES).selectExpr("id", EVENT)
        made.selectExpr("id", "parse_json(text) AS v").write.parquet(str(target))

    return data._once(folder / f"events-{rows}", make)


def run(scale: Scale, rounds: int, only: str = "") -> Iterator[Result]:
    rows = scale.point_rows
    size = f"{rows:,} events"
    spark = session(**SHREDDED)
    try:
        extended = with_extension(spark)
        source = events(spark, data_folder(), rows)
        with tempfile.TemporaryDirectory(prefix="plake-variant-", dir=data_folder()) as folder:
            yield from _questions(spark, extended, source, Path(folder), rows, size, rounds, only)
    finally:
        spark.stop()


def _questions(
    spark: Any, extended: Any, source: Path, folder: Path, rows: int, size: str, rounds: int,
    only: str,
) -> Iterator[Result]:  # fmt: skip
    numbers = itertools.count()

    def write(kept: Path | None, reader: Any, format_: str) -> None:
        target = kept or folder / f"w{next(numbers)}"
        reader.read.parquet(str(source)).write.mode("append").format(format_).save(str(target))
        if kept is None:
            shutil.rmtree(target)

    own, ours = folder / "own", folder / "ours"
    write(own, spark, "parquet")
    write(ours, extended, "plake")
    yield Result(FAMILY, "files", OURS, "MiB", (_mib(ours),), size)
    yield Result(FAMILY, "files", SPARKS, "MiB", (_mib(own),), size, OURS)
    frames = {
        SPARKS: spark.read.parquet(str(own)),
        OURS: extended.read.format("plake").load(str(ours)),
    }

    def both(ask: Callable[[Any], Any]) -> dict[str, Callable[[], Any]]:
        return {name: lambda frame=frame: ask(frame) for name, frame in frames.items()}

    actor = rows // 3
    files = sorted(map(str, ours.glob("*.parquet")))

    def duckdb_point() -> Any:
        import duckdb

        return duckdb.sql(
            f"SELECT id, v::JSON::VARCHAR FROM read_parquet({files}) WHERE v.actor.id = {actor}"
        ).fetchall()[0][0]

    def our_point() -> Any:
        scan = lake.open_dataset(ours).scan(f"v:actor.id::bigint = {actor}")
        (row,) = scan.to_table().to_pylist()
        return row["id"]

    def noop(frame: Any) -> None:
        frame.write.format("noop").mode("overwrite").save()

    works = {
        "write through Spark": {
            SPARKS: lambda: write(None, spark, "parquet"),
            OURS: lambda: write(None, extended, "plake"),
        },
        "point, Spark": both(
            lambda frame: frame.where(f"v:actor.id::bigint = {actor}").select("id").collect()
        ),
        "three paths, Spark": both(lambda frame: noop(frame.selectExpr(*THREE))),
        "sum of a path, Spark": both(
            lambda frame: frame.selectExpr("sum(v:payload.size::int)").collect()
        ),
        "whole documents, Spark": both(noop),
        "point, Python": {"DuckDB": duckdb_point, OURS: our_point},
    }
    for question, systems in works.items():
        if only in question:
            agree(question, systems)
            base = next(iter(systems))
            for name, values in interleaved(systems, rounds_for(systems[base], rounds)).items():
                yield Result(FAMILY, question, name, "s", values, size, base)


def _mib(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*.parquet")) / 2**20


def main() -> None:
    import dataclasses

    from integration.benchmarks import report

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=FULL.point_rows)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="questions whose name holds this")
    arguments = parser.parse_args()
    scale = dataclasses.replace(FULL, point_rows=arguments.rows)
    print("\n\n".join(report.tables(list(run(scale, arguments.rounds, arguments.only)))))


if __name__ == "__main__":
    main()

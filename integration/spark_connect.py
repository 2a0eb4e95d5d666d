"""Runs the queries of the planner extension through a Spark Connect server.

    python integration/spark_connect.py [--version 4.3] [--venvs FOLDER] [--master local[2]]

A virtual environment with that PySpark and what its Connect client needs, this
checkout installed as a wheel, and a Connect server in a process of its own that
loads the extension by `spark.jars`, as spark_conf/README.md tells administrators.
Every query is answered by plake and by plain Parquet, over the wire; random programs
that change rows are compared with DuckDB. A client tries to run code in the server by each way in
which a user gives options. The master
`local-cluster[1,2,2048]` has executors in processes of their own.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

PROGRAMS = 10
CHECKOUT = Path(__file__).resolve().parent.parent
CLIENT = (
    "grpcio>=1.67",
    "grpcio-status>=1.67",
    "googleapis-common-protos>=1.65",
    "zstandard>=0.25",
)


def inside(folder: Path, master: str) -> int:
    """Compare, in the environment that has the Connect client."""
    from pyspark.sql import SparkSession

    from lakehouse_source.spark.protocol.vocabulary import Reader, Setting
    from lakehouse_source.spark.session.configure import planner_jar
    from tests.doors import planner_queries as pq
    from tests.doors import session_matrix
    from tests.doors.planner_queries import multiset

    spark = (
        SparkSession.builder.remote(master)
        .config("spark.jars", str(planner_jar()))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.conf.set("spark.sql.catalog.plake", "io.plake.spark.PlakeCatalog")
    print(f"{attack(spark, folder)} attacks through Connect: all were refused")
    sides = pq.write_sides(spark, folder)
    ours, native = (pq.Side(spark, name, *sides[name], folder) for name in ("plake", "parquet"))

    wrong, asked = [], 0
    for text, rows in pq.truth_table(native).items():
        asked += 1
        found = ours.t.where(text).select("id", "g").collect()
        if multiset(found) != multiset(rows):
            wrong.append(text)
    for name, query in {**pq.QUERIES, **pq.VERSIONED}.items():
        try:
            expected = multiset(query(native))
        except Exception as error:  # what Connect does not have
            print(f"not there in Connect: {name} ({type(error).__name__})")
            continue
        asked += 1
        if multiset(query(ours)) != expected:
            wrong.append(name)
    # Without arrays: rows with arrays of numbers are copied out of batches.
    some = ours.t.where("id = 5 OR year(d) = 2023").select("id", "g", "d")
    if "read by Spark (" not in some._explain_string():  # type: ignore[operator]
        wrong.append("Spark's reader is not chosen")
    spark.conf.set(Setting.READER, Reader.PYTHON)
    pruned = some._explain_string()  # type: ignore[operator]
    spark.conf.unset(Setting.READER)
    if "PushedFilters: [((id = 5L) OR (year(d) = 2023))" not in pruned:
        wrong.append("the extension is not there: " + pruned)
    if "LocalTableScan" not in ours.t.groupBy().count()._explain_string():  # type: ignore[operator]
        wrong.append("no answer from the catalog")
    if "ColumnarToRow" not in pruned:
        wrong.append("rows are copied out of batches: " + pruned)
    if session_matrix.main(list(session_matrix.CONNECT)):
        wrong.append("sessions of one server")
    transact(spark, folder)
    documents(spark, folder)
    statements = change_rows(spark, folder)
    print(f"{statements} steps of programs that change rows: no difference from DuckDB")
    print(f"{asked} queries through Connect on Spark {spark.version}, {len(wrong)} wrong")
    for name in wrong:
        print("wrong:", name)
    return 1 if wrong or asked < 100 else 0


def attack(spark: Any, folder: Path) -> int:
    """Try to run code by options that the extension has for itself; answers how many tries.

    Raises:
        AssertionError: something was not refused, changed a table, or made the file that tells that
            a pickle was loaded.
    """
    import lakehouse_source as lake
    from lakehouse_source.spark.protocol.vocabulary import Message
    from tests.doors import test_own_options as options

    path = str(folder / "attacked")
    lake.write_dataset({"a": [1, 2, 3]}, path)
    doors = (*options.EVERYWHERE, *options.WITH_CATALOG)
    names = (Message.REQUEST, Message.COMMAND, Message.TASKS, Message.STATEMENT)
    for door in doors:
        for name in names:
            options.attacked(spark, door, path, name, folder)
    return 2 * len(doors) * len(names)


def transact(spark: Any, folder: Path) -> None:
    """Commit statements by name and by path together, and drop those of a block that fails.

    Raises:
        AssertionError: others saw a part of a block, or it did not see all of itself.
    """
    import lakehouse_source as lake

    url, paths = f"sqlite:///{folder}/transacted.db", [f"{folder}/transacted/{one}" for one in "ab"]
    for path in paths:
        lake.write_dataset({"id": [1, 2]}, path, catalog=url)

    def rows() -> list[int]:
        return [lake.read_dataset(path, catalog=url).num_rows for path in paths]

    def load(path: str) -> Any:
        return spark.read.format("plake").option("catalog", url).load(path)

    for fails in (True, False):
        try:
            with lake.spark.transaction(spark):
                lake.spark.open(spark, paths[0], catalog=url).delete("id = 2")
                writer = load(paths[0]).write.format("plake").mode("append")
                writer.option("catalog", url).save(paths[1])
                assert [load(path).count() for path in paths] == [1, 3]
                assert rows() == [2, 2]
                if fails:
                    raise KeyboardInterrupt
        except KeyboardInterrupt:
            assert fails
        assert rows() == ([2, 2] if fails else [1, 3])


def documents(spark: Any, folder: Path) -> None:
    """Write VARIANT, and ask for rows by its paths, with both readers.

    Raises:
        AssertionError: Spark's own Parquet has another answer, or a path prunes nothing.
    """
    import lakehouse_source as lake
    from lakehouse_source.spark.protocol.vocabulary import Reader, Setting
    from tests.doors import test_variant_in_spark as variants

    given, places = variants.frame(spark), [str(folder / f"documents-{one}") for one in "abc"]
    given.write.parquet(places[0])
    given.write.format("plake").option("variantPaths", "v:user.id,v:n").save(places[1])
    for user in (7, 8, 9):
        rows = spark.range(user * 100, user * 100 + 50, 1, 1)
        rows = rows.selectExpr("id", "parse_json(concat('{\"user\": {\"id\": ', id, '}}')) AS v")
        writer = rows.write.format("plake").option("variantPaths", "v:user.id")
        writer.mode("append").save(places[2])
    own = spark.read.parquet(places[0])
    wanted = sorted(map(str, own.selectExpr(f"struct({variants.ASKED}) AS r").collect()))
    for reader in (Reader.PYTHON, Reader.SPARK):
        spark.conf.set(Setting.READER, reader)
        found = spark.read.format("plake").load(places[1])
        answers = found.selectExpr(f"struct({variants.ASKED}) AS r").collect()
        assert sorted(map(str, answers)) == wanted
        assert variants.matches(found) == variants.matches(own)
        one = spark.read.format("plake").load(places[2]).where("v:user.id::int = 807")
        assert [row.id for row in one.select("id").collect()] == [807]
        sign = "(1 of 3 files)" if reader == Reader.SPARK else "PushedFilters: [v IS NOT NULL, ("
        assert sign in one.select("id")._explain_string()
    spark.conf.unset(Setting.READER)
    lake.spark.open(spark, places[2]).delete("v:user.id::int = 807")
    assert lake.open_dataset(places[2]).scan("v:user.id::int BETWEEN 806 AND 808").count_rows() == 2
    print("values of VARIANT, their paths and conditions: as in Spark's own Parquet")


def change_rows(spark: Any, folder: Path) -> int:
    """Run random programs of statements, through SQL and `spark.open`; answers how many steps.

    Raises:
        AssertionError: the rows differ from those of DuckDB.
    """
    from tests.doors.test_row_programs_in_spark import SparkProgram

    steps = 0
    for seed in range(PROGRAMS):
        place = folder / f"program-{seed}"
        place.mkdir()
        program = SparkProgram(place, seed, spark)
        program.run(6)
        steps += len(program.steps)
    return steps


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--version", default="4.3")
    parser.add_argument("--venvs", type=Path, help="keep the environment here")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside is not None:
        return inside(options.inside, options.master)
    sys.path.insert(0, str(CHECKOUT / "integration"))
    from spark_versions import environment

    with tempfile.TemporaryDirectory(prefix="plake-connect-") as scratch:
        python = environment(options.version, (options.venvs or Path(scratch)).resolve())
        subprocess.run([str(python), "-m", "pip", "--quiet", "install", *CLIENT], check=True)
        # Tests from the checkout, the package as it was installed.
        (Path(scratch) / "tests").symlink_to(CHECKOUT / "tests")
        (Path(scratch) / "rows").mkdir()
        clean = {**os.environ, "PYTHONPATH": scratch, "PYSPARK_PYTHON": str(python)}
        command = [str(python), __file__, "--inside", str(Path(scratch) / "rows")]
        command += ["--master", options.master]
        return subprocess.run(command, cwd=scratch, env=clean, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())

"""format("plake") where Spark's own jars have plake's: all save modes, partitionBy, Delta's names.

In a process of its own: what is among Spark's jars is there for all sessions of a JVM.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.doors.logged_session import run_logged

pytestmark = pytest.mark.spark("own")

SCRIPT = """
import json
from pyspark.sql import functions as F

root = sys.argv[1]
found = {}
frame = spark.range(6).selectExpr("id", "id % 2 AS p", "cast(id AS STRING) AS s")


def to(mode=None, rows=frame, **options):
    writer = rows.write.format("plake").options(**options)
    return writer if mode is None else writer.mode(mode)


def read(name, **options):
    return spark.read.format("plake").options(**options).load(f"{root}/{name}")


def note(name, work):
    try:
        found[name] = work()
    except Exception as error:
        found[name] = str(error)


note("default creates", lambda: (to().save(f"{root}/a"), read("a").count())[1])
note("default refuses", lambda: to().save(f"{root}/a"))
note("error refuses", lambda: to("error").save(f"{root}/a"))
note("ignore keeps", lambda: (to("ignore", frame.limit(1)).save(f"{root}/a"), read("a").count())[1])
note("ignore creates", lambda: (to("ignore").save(f"{root}/b"), read("b").count())[1])
note("refused leave nothing", lambda: lake.open_dataset(f"{root}/a").version)
note("partitionBy", lambda: to("append").partitionBy("p").save(f"{root}/c"))
note("partitionBy again", lambda: to("append").partitionBy("p").save(f"{root}/c"))
note("partitioned", lambda: lake.open_dataset(f"{root}/c").partition_by)
note("partitionBy twice", lambda: to("append", partitionBy="p").partitionBy("p").save(f"{root}/c"))
note("partitionBy other", lambda: to("append").partitionBy("s").save(f"{root}/c"))
note("new with partitionBy", lambda: to().partitionBy("p").save(f"{root}/d"))
note("clusterBy", lambda: to().clusterBy("s").save(f"{root}/e"))
note("clustered", lambda: lake.open_dataset(f"{root}/e").properties["cluster_by"])
"""
MORE = """
odd = frame.where("p = 1")
note("replaceWhere", lambda: to("overwrite", odd, replaceWhere="p = 1").save(f"{root}/c"))
note("replaced", lambda: read("c").groupBy("p").count().orderBy("p").collect())
note("two conditions", lambda: to("overwrite", odd, replaceWhere="p = 1", overwriteWhere="p = 1")
     .save(f"{root}/c"))
wide = frame.withColumn("n", F.lit(1))
note("no mergeSchema", lambda: to("append", wide).save(f"{root}/a"))
note("mergeSchema", lambda: to("append", wide, mergeSchema="true").save(f"{root}/a"))
note("merged", lambda: read("a").columns)
note("versionAsOf", lambda: read("a", versionAsOf="1").columns)
now = str(spark.sql("SELECT current_timestamp()").first()[0].astimezone().isoformat())
note("timestampAsOf", lambda: read("a", timestampAsOf=now).columns)
text = frame.selectExpr("cast(p AS STRING) AS p")
note("overwrite keeps the schema", lambda: to("overwrite", text).save(f"{root}/a"))
note("overwriteSchema", lambda: to("overwrite", text, overwriteSchema="true").save(f"{root}/a"))
note("overwritten", lambda: (read("a").dtypes, read("a", versionAsOf="1").count()))
given = spark.read.format("plake").schema("s STRING")
note("given schema", lambda: given.load(f"{root}/b").columns)
spark.sql(f"CREATE TEMPORARY VIEW v USING plake OPTIONS (path '{root}/b')")
spark.sql("INSERT INTO v VALUES (77, 1, 'x')")
spark.sql("DELETE FROM v WHERE id = 0")
note("view", lambda: spark.table("v").count())
days = spark.sql("SELECT INTERVAL '1' DAY AS i")
note("interval", lambda: (to("append", days).save(f"{root}/f"), read("f").count())[1])
note("interval default", lambda: to(None, days).save(f"{root}/g"))
note("unknown option", lambda: to("append", wher="1").save(f"{root}/b"))
note("no path", lambda: to().save())
note("no dataset", lambda: read("none"))
note("itself", lambda: (to("overwrite", read("b").where("id > 3")).save(f"{root}/b"),
                        read("b").count())[1])
note("stream", lambda: spark.readStream.format("plake").load(f"{root}/b").isStreaming)
plan = read("b").where("id = 4")._jdf.queryExecution().executedPlan().toString()
found["pruned"] = "read by Spark (" in plan and "EqualTo(id,4)" in plan
found["status"] = {part.name: part.works for part in lake.spark.status(spark).parts}
"""


def ran(script: str, folder: Path) -> Mapping[str, Any]:
    """What each write of the script did: its result, or its error."""
    script += 'print("FOUND " + json.dumps(found, default=str))'
    done = run_logged(script, [str(folder / "data")], os.environ, folder)
    (line,) = (one for one in done.printed.splitlines() if one.startswith("FOUND "))
    answer: Mapping[str, Any] = json.loads(line.removeprefix("FOUND "))
    return answer


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    return ran(SCRIPT, tmp_path_factory.mktemp("modes"))


@pytest.fixture(scope="module")
def more(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    return ran(SCRIPT + MORE, tmp_path_factory.mktemp("modes"))


def test_a_mode_that_creates_refuses_or_keeps_what_is_there(found: Mapping[str, Any]) -> None:
    assert found["default creates"] == found["ignore creates"] == 6
    for mode in ("default refuses", "error refuses"):
        assert found[mode].startswith("[PLAKE_DATASET_EXISTS] dataset file:///")
    assert found["ignore keeps"] == 6
    assert found["refused leave nothing"] == 1


def test_partition_by_names_the_columns_of_a_new_dataset(found: Mapping[str, Any]) -> None:
    assert (
        found["partitionBy"] is found["partitionBy again"] is found["new with partitionBy"] is None
    )
    assert found["partitioned"] == ["p"]
    assert "leave one out" in found["partitionBy twice"]
    assert "partition" in found["partitionBy other"]
    assert found["clustered"] == ["s"]


@pytest.mark.long
def test_the_names_that_delta_has_for_options(more: Mapping[str, Any]) -> None:
    assert more["replaceWhere"] is None
    assert more["replaced"] == [[0, 6], [1, 3]]
    assert "give one of them" in more["two conditions"]
    assert "mergeSchema" in more["no mergeSchema"] or "schema_merge" in more["no mergeSchema"]
    assert more["merged"] == ["id", "p", "s", "n"] == more["timestampAsOf"]
    assert more["versionAsOf"] == ["id", "p", "s"]
    assert "column 'p'" in more["overwrite keeps the schema"]
    assert more["overwritten"] == [[["p", "string"]], 6]


@pytest.mark.long
def test_all_else_is_as_with_the_python_source(more: Mapping[str, Any]) -> None:
    assert more["given schema"] == ["s"]
    assert more["view"] == 6
    assert more["interval"] == 1
    assert "cannot be written in the" in more["interval default"]
    assert more["unknown option"].startswith("[PLAKE_INVALID_OPTION] option 'wher': is not an")
    assert more["no dataset"].startswith("[PLAKE_DATASET_NOT_FOUND] no dataset at file:///")
    assert "option 'path': is missing" in more["no path"]
    assert more["itself"] == 3
    assert more["stream"] is True
    assert more["pruned"] is True
    assert all(more["status"].values())

"""Overwrites whose query reads what they replace: no commit of others is lost in between."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import lakehouse_source as lake

pytestmark = pytest.mark.spark

CONFLICT = "PLAKE_COMMIT_CONFLICT"


def some(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "p": pa.array([one % 2 for one in ids])})


def ids(path: str) -> list[int]:
    return sorted(lake.read_dataset(path)["id"].to_pylist())


def appends_once(path: str) -> Any:
    """A function of SQL that appends a row to a dataset while the query that calls it runs."""

    def append(one: int) -> int:
        if one == 1:
            lake.write_dataset(some(99), path)
        return one

    return F.udf(append, "bigint", useArrow=False)


@pytest.fixture
def path(tmp_path: Path) -> str:
    found = str(tmp_path / "t")
    lake.write_dataset(some(1, 2), found)
    return found


@pytest.fixture
def session(spark_catalog: SparkSession, path: str) -> SparkSession:
    spark_catalog.udf.register("append_once", appends_once(path))
    return spark_catalog


STATEMENTS = {
    "overwrite": "INSERT OVERWRITE {t} SELECT append_once(id), p FROM {t}",
    "subquery": "INSERT OVERWRITE {t} SELECT append_once(id), id FROM range(3) WHERE id IN "
    "(SELECT id FROM {t})",
    "replace": "CREATE OR REPLACE TABLE {t} AS SELECT append_once(id) AS id, p FROM {t}",
    "cte": "WITH c AS (SELECT * FROM {t}) INSERT OVERWRITE {t} SELECT append_once(id), p FROM c",
}


@pytest.mark.parametrize("statement", STATEMENTS.values(), ids=STATEMENTS)
def test_a_row_that_is_appended_while_a_table_is_overwritten_from_itself_is_not_lost(
    session: SparkSession, path: str, statement: str
) -> None:
    with pytest.raises(PySparkException, match=CONFLICT):
        session.sql(statement.format(t=f"plake.`{path}`"))
    assert ids(path) == [1, 2, 99]


def test_a_row_that_is_appended_to_a_partition_that_is_replaced_from_itself_is_not_lost(
    spark_catalog: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "parts")
    lake.write_dataset(some(1, 2), path, partition_by=["p"])
    spark_catalog.udf.register("append_once", appends_once(path))
    with pytest.raises(PySparkException, match=CONFLICT):
        spark_catalog.sql(
            f"INSERT OVERWRITE plake.`{path}` PARTITION (p = 1) "
            f"SELECT append_once(id) FROM plake.`{path}` WHERE p = 1"
        )
    assert ids(path) == [1, 2, 99]
    # Row 99 would be in another partition than the one that is replaced.
    spark_catalog.sql(
        f"INSERT OVERWRITE plake.`{path}` PARTITION (p = 0) "
        f"SELECT append_once(id - 1) + 10 FROM plake.`{path}` WHERE p = 0"
    )
    assert ids(path) == [1, 11, 99, 99]


def by_table(session: SparkSession, path: str) -> Callable[[], None]:
    frame = session.table(f"plake.`{path}`")
    return lambda: frame.write.insertInto(f"plake.`{path}`", overwrite=True)


def by_path(session: SparkSession, path: str) -> Callable[[], None]:
    frame = session.read.format("plake").load(path)
    return lambda: frame.write.format("plake").mode("overwrite").save(path)


@pytest.mark.parametrize("begin", [by_table, by_path])
def test_a_frame_does_not_overwrite_what_was_committed_after_it_was_made(
    spark_catalog: SparkSession, path: str, begin: Callable[..., Callable[[], None]]
) -> None:
    overwrite = begin(spark_catalog, path)
    overwrite()
    overwrite = begin(spark_catalog, path)
    lake.open_dataset(path).compact()
    lake.write_dataset(some(99), path)
    with pytest.raises(PySparkException, match=CONFLICT):
        overwrite()
    assert ids(path) == [1, 2, 99]


def test_a_version_that_the_user_names_replaces_what_came_after_it(
    session: SparkSession, path: str
) -> None:
    t = f"plake.`{path}`"
    lake.write_dataset(some(50), path)
    session.sql(f"INSERT OVERWRITE {t} SELECT append_once(id), p FROM {t} VERSION AS OF 1")
    assert ids(path) == [1, 2]
    old = session.read.format("plake").option("versionAsOf", 1).load(path)
    lake.write_dataset(some(51), path)
    old.write.format("plake").mode("overwrite").save(path)
    assert ids(path) == [1, 2]


def test_an_overwrite_from_another_table_replaces_what_was_committed_meanwhile(
    session: SparkSession, path: str, tmp_path: Path
) -> None:
    lake.write_dataset(some(1, 7), tmp_path / "other")
    session.sql(
        f"INSERT OVERWRITE plake.`{path}` SELECT append_once(id), p FROM plake.`{tmp_path}/other`"
    )
    assert ids(path) == [1, 7]


def test_a_frame_without_a_dataset_is_told_as_such_when_it_is_written(
    spark_catalog: SparkSession, path: str, tmp_path: Path
) -> None:
    missing = spark_catalog.read.format("plake").schema("id BIGINT, p BIGINT")
    found = r"PLAKE_DATASET_NOT_FOUND|DatasetNotFoundError"
    with pytest.raises(PySparkException, match=found):
        missing.load(f"{tmp_path}/none").write.format("plake").mode("overwrite").save(path)
    assert ids(path) == [1, 2]

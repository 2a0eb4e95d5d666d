"""Settings `spark.plake.statement.NAME` hold for every statement that writes, by every door."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import lakehouse_source as lake

pytestmark = pytest.mark.spark

Write = Callable[[SparkSession, str], object]


def sql(text: str) -> Write:
    return lambda spark, table: spark.sql(text.format(t=table))


WRITES: dict[str, Write] = {
    "insert": sql("INSERT INTO {t} VALUES (7, 7)"),
    "insert overwrite": sql("INSERT OVERWRITE {t} VALUES (7, 7)"),
    "replace where": sql("INSERT INTO {t} REPLACE WHERE i = 1 VALUES (1, 7)"),
    "truncate": sql("TRUNCATE TABLE {t}"),
    "delete": sql("DELETE FROM {t} WHERE i = 1"),
    "delete all": sql("DELETE FROM {t}"),
    "update": sql("UPDATE {t} SET v = v + 7"),
    "merge": sql(
        "MERGE INTO {t} USING (SELECT 1 i, 7 v) s ON {t}.i = s.i "
        "WHEN MATCHED THEN UPDATE SET v = {t}.v + s.v WHEN NOT MATCHED THEN INSERT *"
    ),
    "insert of a merge": sql(
        "MERGE INTO {t} USING (SELECT 9 i, 7 v) s ON {t}.i = s.i WHEN NOT MATCHED THEN INSERT *"
    ),
    "writeTo": lambda spark, table: (
        spark.range(1).selectExpr("7 AS i", "7 AS v").writeTo(table).append()
    ),
    "df.write": lambda spark, table: (
        spark.range(1).selectExpr("7 AS i", "7 AS v").write.insertInto(table)
    ),
}
CREATES: dict[str, Write] = {
    "ctas": sql("CREATE TABLE {t} AS SELECT 1 i, 2 v"),
    "rtas": sql("CREATE OR REPLACE TABLE {t} AS SELECT 1 i, 2 v"),
    "saveAsTable": lambda spark, table: spark.range(1).write.format("plake").saveAsTable(table),
}


@contextmanager
def settings(spark: SparkSession, **given: object) -> Iterator[None]:
    for name, value in given.items():
        spark.conf.set(f"spark.plake.statement.{name}", str(value))
    try:
        yield
    finally:
        for name in given:
            spark.conf.unset(f"spark.plake.statement.{name}")


@pytest.fixture(params=["name", "path"])
def table(
    request: pytest.FixtureRequest, spark_catalog: SparkSession, tmp_path: Path
) -> tuple[str, str]:
    """A table as SQL has it, and its folder."""
    path = str(tmp_path / "d")
    spark_catalog.sql("DROP TABLE IF EXISTS plake.default.settings")
    if request.param == "path":
        lake.write_dataset({"i": [1, 2], "v": [1, 2]}, path)
        return f"plake.`{path}`", path
    name = "plake.default.settings"
    spark_catalog.sql(f"CREATE TABLE {name} (i BIGINT, v BIGINT) LOCATION '{path}'")
    spark_catalog.sql(f"INSERT INTO {name} VALUES (1, 1), (2, 2)")
    return name, path


@pytest.mark.parametrize("door", ["append", "overwrite"])
def test_a_write_without_the_extension_refuses_a_setting_that_it_was_not_told(
    spark: SparkSession, tmp_path: Path, door: str
) -> None:
    """The setting did nothing, silently: the same rows were appended by every run of a job."""
    path = str(tmp_path / "d")
    lake.write_dataset({"i": [1, 2], "v": [1, 2]}, path)
    rows = spark.range(1).selectExpr("7L AS i", "7L AS v")
    pair = {"txnAppId": "job", "txnVersion": 1}

    def write(**options: object) -> None:
        rows.write.format("plake").mode(door).options(**options).save(path)

    with settings(spark, **pair):
        with pytest.raises(
            PySparkException, match=r"spark\.plake\.statement\.txn.*enable\(spark\)"
        ):
            write()
        assert lake.open_dataset(path).version == 1
        write(**pair)
    with settings(spark, isolation="serializable"):
        write()
    assert lake.open_dataset(path).version == 3


def history(spark: SparkSession, table: str) -> list[tuple[str, str]]:
    at = f"{table}.history" if "`" not in table else f"{table}.`history`"
    rows = spark.sql(f"SELECT version, txn_app_id, metadata FROM {at} ORDER BY version").collect()
    return [(row.txn_app_id, row.metadata) for row in rows]


@pytest.mark.parametrize("kind", WRITES)
def test_a_write_that_is_done_again_changes_nothing_and_tells_its_metadata(
    spark_catalog: SparkSession, table: tuple[str, str], kind: str
) -> None:
    name, _ = table
    before = len(history(spark_catalog, name))
    with settings(
        spark_catalog,
        txnAppId="job",
        txnVersion=3,
        commitMetadata='{"by": "me"}',
        isolation="serializable",
    ):
        WRITES[kind](spark_catalog, name)
        rows = sorted(spark_catalog.table(name).collect())
        WRITES[kind](spark_catalog, name)
    after = history(spark_catalog, name)
    assert len(after) == before + 1
    assert after[-1][0] == "job"
    assert '"me"' in after[-1][1]
    assert sorted(spark_catalog.table(name).collect()) == rows


@pytest.mark.long
@pytest.mark.parametrize("kind", WRITES)
def test_a_write_on_another_version_than_expected_is_refused(
    spark_catalog: SparkSession, table: tuple[str, str], kind: str
) -> None:
    name, _ = table
    before = history(spark_catalog, name)
    with (
        settings(spark_catalog, expectedVersion=77),
        pytest.raises(PySparkException, match="PLAKE_COMMIT_CONFLICT"),
    ):
        WRITES[kind](spark_catalog, name)
    for setting, value in (("isolation", "none"), ("path", "/tmp/elsewhere"), ("splitSize", "1")):
        with (
            settings(spark_catalog, **{setting: value}),
            pytest.raises(PySparkException, match=r"is not an isolation|is no setting"),
        ):
            WRITES[kind](spark_catalog, name)
    assert history(spark_catalog, name) == before


@pytest.mark.parametrize("kind", CREATES)
def test_a_table_is_created_with_the_settings(
    spark_catalog: SparkSession, tmp_path: Path, kind: str
) -> None:
    name = "plake.default.made"
    spark_catalog.sql(f"DROP TABLE IF EXISTS {name}")
    with settings(spark_catalog, txnAppId="make", txnVersion=1, commitMetadata='{"by": "me"}'):
        CREATES[kind](spark_catalog, name)
    assert history(spark_catalog, name)[-1][0] == "make"
    assert '"me"' in history(spark_catalog, name)[-1][1]
    spark_catalog.sql(f"DROP TABLE {name}")


def test_an_option_counts_more_than_a_setting(
    spark_catalog: SparkSession, table: tuple[str, str]
) -> None:
    name, path = table
    rows = spark_catalog.range(1).selectExpr("7 AS i", "7 AS v")
    with settings(spark_catalog, txnAppId="job", txnVersion=3):
        rows.writeTo(name).option("txnAppId", "mine").append()
        spark_catalog.sql(f"INSERT INTO {name} WITH (`txnAppId` = 'other') VALUES (8, 8)")
        if "`" in name:
            rows.write.format("plake").mode("append").option("TXNAPPID", "third").save(path)
    written = ["mine", "other", "third"] if "`" in name else ["mine", "other"]
    assert [app for app, _ in history(spark_catalog, name)][-len(written) :] == written


def test_a_write_by_path_and_an_insert_into_a_view_have_them_too(
    spark_catalog: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "d")
    lake.write_dataset({"i": [1], "v": [1]}, path)
    spark_catalog.sql(f"CREATE OR REPLACE TEMP VIEW v USING plake OPTIONS (path '{path}')")
    rows = spark_catalog.range(1).selectExpr("7L AS i", "7L AS v")
    with settings(spark_catalog, txnAppId="job", txnVersion=3):
        spark_catalog.sql("INSERT INTO v VALUES (7, 7)")
        spark_catalog.sql("INSERT INTO v VALUES (7, 7)")
        rows.write.format("plake").mode("append").save(path)
    assert lake.open_dataset(path).version == 2
    assert lake.open_dataset(path).scan().count_rows() == 2

"""Procedures of Spark's catalog: CALL, against plake's own functions on a twin of the dataset."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Row, SparkSession

import lakehouse_source as lake
from lakehouse_source.spark.tables.procedures import PROCEDURES

pytestmark = pytest.mark.spark


class Twins(NamedTuple):
    """Two datasets with the same history: one for CALL, one for Python."""

    path: str
    python: lake.Dataset


def make(folder: Path) -> str:
    """Four versions: two appends, a delete of one row, and an overwrite of one partition."""
    path = str(folder)
    lake.write_dataset(pa.table({"id": [1, 2, 3, 4], "p": [1, 1, 2, 2]}), path, partition_by="p")
    lake.write_dataset({"id": [5, 6], "p": [1, 2]}, path)
    lake.open_dataset(path).delete("id = 1")
    lake.write_dataset({"id": [7], "p": [2]}, path, mode="overwrite", overwrite_where="p = 2")
    return path


@pytest.fixture
def twins(tmp_path: Path) -> Twins:
    return Twins(make(tmp_path / "spark"), lake.open_dataset(make(tmp_path / "python")))


def call(spark: SparkSession, procedure: str, *arguments: Any, **named: Any) -> list[Row]:
    texts = [literal(value) for value in arguments]
    texts += [f"{name} => {literal(value)}" for name, value in named.items()]
    return spark.sql(f"CALL plake.system.{procedure}({', '.join(texts)})").collect()


def literal(value: Any) -> str:
    if isinstance(value, list):
        return f"array({', '.join(map(literal, value))})"
    if isinstance(value, str):
        return "'" + value.replace("'", "\\'") + "'"
    return "NULL" if value is None else str(value).lower()


def parquet_files(path: str) -> set[str]:
    return {str(file.relative_to(path)) for file in Path(path).rglob("*.parquet")}


def rows(path: str) -> list[dict[str, Any]]:
    return sorted(lake.read_dataset(path).to_pylist(), key=str)


def message(spark: SparkSession, statement: str) -> str:
    """The first line of an error, and Spark's condition."""
    with pytest.raises(AnalysisException) as caught:
        spark.sql(statement).collect()
    return f"{caught.value.getCondition()} {str(caught.value).splitlines()[0]}"


def test_they_are_listed_and_described(spark_catalog: SparkSession) -> None:
    found = spark_catalog.sql("SHOW PROCEDURES IN plake.system").collect()
    assert {row.procedure_name for row in found} == set(PROCEDURES)
    assert spark_catalog.sql("SHOW PROCEDURES IN plake.default").collect() == []
    (_, told) = spark_catalog.sql("DESCRIBE PROCEDURE plake.system.Restore").collect()
    assert told[0].splitlines()[1:4] == [
        "Parameters:",
        "  table STRING: the table's name, or its path or URI",
        "  version BIGINT DEFAULT NULL: the old version",
    ]


def test_restored_rows_of_a_cached_table_are_seen_by_the_next_query(
    spark_catalog: SparkSession, twins: Twins
) -> None:
    name = f"plake.`{twins.path}`"
    spark_catalog.sql(f"CACHE TABLE {name}")
    try:
        assert spark_catalog.table(name).count() == 3
        call(spark_catalog, "restore", twins.path, 1)
        found = spark_catalog.sql(f"SELECT id FROM {name}").collect()
        assert sorted(row.id for row in found) == [1, 2, 3, 4]
    finally:
        spark_catalog.catalog.clearCache()


def test_restore_commits_the_old_rows_once(spark_catalog: SparkSession, twins: Twins) -> None:
    (row,) = call(spark_catalog, "restore", twins.path, 2)
    expected = twins.python.restore(2)
    assert row.asDict() == {
        "version": expected.version,
        "files": expected.files,
        "row_count": expected.row_count,
        "schema_version": expected.schema_version,
        "rows_added": expected.summary["rows_added"],
        "rows_removed": expected.summary["rows_removed"],
        "files_removed": expected.summary["files_removed"],
        "pairs_left": [],
    }
    assert rows(twins.path) == rows(twins.python.uri)
    assert lake.open_dataset(twins.path).version == 5


@pytest.mark.long
def test_erased_rows_are_in_no_version_of_a_cached_table(
    spark_catalog: SparkSession, twins: Twins
) -> None:
    name = f"plake.`{twins.path}`"
    spark_catalog.sql(f"CACHE TABLE {name}")
    try:
        (row,) = call(spark_catalog, "erase", twins.path, "id = 2")
        report = twins.python.erase("id = 2")
        assert (row.version, row.rows, row.left) == (report.version, report.rows, [])
        assert report.rows == 1
        for version in range(1, report.version + 1):
            found = spark_catalog.sql(f"SELECT id FROM {name} VERSION AS OF {version}").collect()
            assert 2 not in {row.id for row in found}
        assert spark_catalog.table(name).where("id = 2").count() == 0
        assert rows(twins.path) == rows(twins.python.uri)
    finally:
        spark_catalog.catalog.clearCache()


def test_maintain_deletes_expired_rows_and_tells_each_step(
    spark_catalog: SparkSession, twins: Twins
) -> None:
    dataset = lake.open_dataset(twins.path)
    dataset.set_properties(expire_rows="id < 3 AND now() > '2020-01-01'")
    before = sorted(row["id"] for row in rows(twins.path))
    (dry, vacuumed) = call(spark_catalog, "maintain", twins.path, dry_run=True)
    count = sum(id < 3 for id in before)
    assert tuple(dry) == ("expire_rows", "rows would be deleted", count)
    assert vacuumed.step == "vacuum"
    found = call(spark_catalog, "maintain", twins.path, compact=True, keep_last=1)
    assert [row.step for row in found] == ["expire_rows", "compact", "expire_versions", "vacuum"]
    assert found[0]["count"] == count
    assert sorted(row["id"] for row in rows(twins.path)) == [id for id in before if id >= 3]


def test_vacuum_deletes_what_its_dry_run_told(spark_catalog: SparkSession, twins: Twins) -> None:
    (expired,) = call(spark_catalog, "expire_versions", twins.path, keep_last=1)
    report = twins.python.expire_versions(keep_last=1)
    assert expired.asDict() == {
        "expired": list(report.expired),
        "oldest_version": report.oldest_version,
        "newest_version": report.newest_version,
        "files": report.files,
        "size_bytes": report.size_bytes,
    }
    before = parquet_files(twins.path)
    now = {"retention_seconds": 0, "allow_short_retention": True}
    dry = call(spark_catalog, "vacuum", twins.path, dry_run=True, **now)
    assert parquet_files(twins.path) == before
    done = call(spark_catalog, "vacuum", table=twins.path, **now)
    gone = before - parquet_files(twins.path)
    removed = [row for row in done if row.action == "removed"]
    assert {path for row in removed for path in row.examples if path in before} == gone
    assert len(gone) == 3
    told = twins.python.vacuum(retention_seconds=0, allow_short_retention=True)
    assert [(row.what, row["count"], row.size_bytes) for row in removed] == [
        (tally.what, tally.files, tally.size_bytes) for tally in told.removed
    ]
    assert [row[1:4] for row in dry if row.action == "would remove"] == [
        row[1:4] for row in removed
    ]
    assert [row[1:4] for row in done if row.action == "left"] == [
        (tally.what, tally.files, tally.size_bytes) for tally in told.left
    ]


def test_vacuum_keeps_files_for_a_week_by_default(
    spark_catalog: SparkSession, twins: Twins
) -> None:
    call(spark_catalog, "expire_versions", twins.path, None, 1)
    before = parquet_files(twins.path)
    assert {row.action for row in call(spark_catalog, "vacuum", twins.path)} == {"left"}
    assert parquet_files(twins.path) == before
    assert "3600" in message(
        spark_catalog, f"CALL plake.system.vacuum('{twins.path}', retention_seconds => 60)"
    )


def test_verify_names_each_difference(spark_catalog: SparkSession, twins: Twins) -> None:
    (whole,) = call(spark_catalog, "verify", twins.path, checksums=True)
    report = twins.python.verify(checksums=True)
    assert whole.ok
    assert whole[1:] == (4, report.files, report.size_bytes, None, None, None, None)
    for path in (twins.path, twins.python.uri.removeprefix("file://")):
        gone, longer = sorted(f.path for f in lake.open_dataset(path).files(version=2))[:2]
        os.remove(Path(path) / gone)
        with open(Path(path) / longer, "ab") as file:
            file.write(b"more")
    found = call(spark_catalog, "verify", twins.path, version=2)
    expected = twins.python.verify(2).differences
    assert [(row.ok, row.what, row.expected, row.found) for row in found] == [
        (False, one.what, one.expected, one.found) for one in expected
    ]
    assert len(found) >= 2


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"where": "p = 1 AND id > 4"},
        {"where": "id BETWEEN 2 AND 3", "columns": ["id"], "version": 1},
    ],
)
def test_explain_tells_what_python_tells(
    spark_catalog: SparkSession, twins: Twins, asked: dict[str, Any]
) -> None:
    (row,) = call(spark_catalog, "explain", twins.path, **asked)
    arguments = dict(asked)
    pruning = twins.python.scan(arguments.pop("where", None), **arguments).explain()
    assert row.asDict() == {name: getattr(pruning, name) for name in row.asDict()}
    assert row.files_total == len(twins.python.files(row.version))


def test_explain_row_groups_tells_what_python_tells(
    spark_catalog: SparkSession, twins: Twins
) -> None:
    where = "p = 1 AND id BETWEEN 2 AND 3"
    pruning = twins.python.scan(where).explain(details=True)
    assert pruning.details is not None
    found = call(spark_catalog, "explain_row_groups", twins.path, where=where)
    told = list(pruning.details.rows())
    assert [tuple(row)[:-1] for row in found] == [row[:-1] for row in told]
    assert {row.decided_by for row in found if not row.is_kept} == {"partition", "statistics"}


def test_small_files_are_compacted(spark_catalog: SparkSession, twins: Twins) -> None:
    (row,) = call(spark_catalog, "compact", twins.path, where="p = 1")
    expected = twins.python.compact("p = 1")
    assert (row.version, row.files_removed, row.files_added) == (5, 2, 1)
    assert expected.files_removed == 2
    assert row.bytes_removed == expected.bytes_removed
    assert rows(twins.path) == rows(twins.python.uri)


IDENTITIES = "SELECT _row_id, _commit_version, id, p FROM plake.`{}` ORDER BY id"


@pytest.mark.long
def test_tasks_compact_as_python_does(
    spark_catalog: SparkSession, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    paths = [str(tmp_path / name) for name in ("spark", "python")]
    for path in paths:
        for number in range(6):
            rows = {"id": list(range(10 * number, 10 * number + 10)), "p": [number % 3] * 10}
            lake.write_dataset(rows, path, partition_by="p")
        lake.open_dataset(path).delete("id % 10 = 3")
        lake.open_dataset(path).update({"id": 1000}, "id = 7")
    before = [row.asDict() for row in spark_catalog.sql(IDENTITIES.format(paths[0])).collect()]
    context = spark_catalog.sparkContext
    context.setJobGroup(request.node.name, "")
    (row,) = call(spark_catalog, "compact", paths[0])
    jobs = context.statusTracker().getJobIdsForGroup(request.node.name)
    context.setLocalProperty("spark.jobGroup.id", None)
    infos = [context.statusTracker().getJobInfo(job) for job in jobs]
    stages = [stage for info in infos if info is not None for stage in info.stageIds]
    counts = [context.statusTracker().getStageInfo(stage) for stage in stages]
    assert [info.numTasks for info in counts if info is not None] == [3]  # a task per partition
    expected = lake.open_dataset(paths[1]).compact()
    assert row.asDict() == {name: getattr(expected, name) for name in row.asDict()}
    after = [row.asDict() for row in spark_catalog.sql(IDENTITIES.format(paths[0])).collect()]
    assert after == before
    one, two = (lake.open_dataset(path) for path in paths)
    assert [shape(file) for file in one.files()] == [shape(file) for file in two.files()]
    assert one.history()[0].summary == two.history()[0].summary
    assert one.inspect.deletion_vectors().num_rows == 0
    assert one.verify(checksums=True).ok
    (again,) = call(spark_catalog, "compact", paths[0], max_concurrent=1)
    assert (again.version, again.files_removed, again.files_added) == (row.version, 0, 0)
    assert len(parquet_files(paths[0])) == len(parquet_files(paths[1]))


def shape(file: Any) -> tuple[Any, ...]:
    return file.row_count, file.size_bytes, file.partitions


def test_tasks_of_a_compaction_are_as_many_as_asked(
    spark_catalog: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "dataset")
    for number in range(8):
        lake.write_dataset({"id": [number], "p": [number % 4]}, path, partition_by="p")
    with pytest.raises(PySparkException, match=r"\[PLAKE_INVALID_OPTION\].*max_concurrent"):
        call(spark_catalog, "compact", path, max_concurrent=0)
    (row,) = call(spark_catalog, "compact", path, max_concurrent=2)
    assert (row.files_removed, row.files_added) == (8, 4)
    assert sorted(lake.read_dataset(path)["id"].to_pylist()) == list(range(8))
    assert lake.open_dataset(path).verify().ok


@pytest.mark.long
def test_tasks_cluster_as_python_does(
    spark_catalog: SparkSession, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    paths = [str(tmp_path / name) for name in ("spark", "python")]
    for path in paths:
        for number in range(12):
            keys = [(7919 * (100 * number + n)) % 9973 for n in range(100)]
            rows = {"id": keys, "p": [number % 2] * 100}
            lake.write_dataset(rows, path, partition_by="p", cluster_by="id", row_group_rows=50)
        lake.open_dataset(path).delete("id % 10 = 3")
    one, two = (lake.open_dataset(path) for path in paths)
    before = [row.asDict() for row in spark_catalog.sql(IDENTITIES.format(paths[0])).collect()]
    planned = two.cluster(dry_run=True)
    (dry,) = call(spark_catalog, "cluster", paths[0], dry_run=True)
    assert dry.asDict() == {name: getattr(planned, name) for name in dry.asDict()}
    assert dry.files_removed == 12
    with pytest.raises(PySparkException, match=r"\[PLAKE_INVALID_OPTION\].*max_bytes"):
        call(spark_catalog, "cluster", paths[0], max_bytes=0)
    half = planned.bytes_removed * 6 // 10
    (row,) = call(spark_catalog, "cluster", paths[0], max_bytes=half)
    expected = two.cluster(max_bytes=half)
    assert row.asDict() == {name: getattr(expected, name) for name in row.asDict()}
    assert row.files_removed == 6  # one of two partitions
    context = spark_catalog.sparkContext
    context.setJobGroup(request.node.name, "")
    (row,) = call(spark_catalog, "cluster", paths[0], full=True)
    jobs = context.statusTracker().getJobIdsForGroup(request.node.name)
    context.setLocalProperty("spark.jobGroup.id", None)
    infos = [context.statusTracker().getJobInfo(job) for job in jobs]
    stages = [stage for info in infos if info is not None for stage in info.stageIds]
    counts = [context.statusTracker().getStageInfo(stage) for stage in stages]
    assert [info.numTasks for info in counts if info is not None] == [2]  # a task per piece
    expected = two.cluster(full=True)
    assert row.asDict() == {name: getattr(expected, name) for name in row.asDict()}
    after = [row.asDict() for row in spark_catalog.sql(IDENTITIES.format(paths[0])).collect()]
    assert after == before
    assert "clustered_by" in one.refresh().history()[0].metadata
    assert one.inspect.deletion_vectors().num_rows == 0
    assert one.verify(checksums=True).ok
    (again,) = call(spark_catalog, "cluster", paths[0])
    assert (again.version, again.files_removed, again.files_added) == (row.version, 0, 0)
    advice = call(spark_catalog, "suggest_layout", paths[0], ["id = 5", "p = 1"])
    assert [tuple(one) for one in advice] == list(two.suggest_layout(["id = 5", "p = 1"]).table())


def test_tags_are_made_and_dropped(spark_catalog: SparkSession, twins: Twins) -> None:
    assert call(spark_catalog, "create_tag", twins.path, "first", version=1) == [("first", 1)]
    assert call(spark_catalog, "create_tag", twins.path, "now") == [("now", 4)]
    assert lake.open_dataset(twins.path).tags() == {"first": 1, "now": 4}
    query = f"SELECT count(*) FROM plake.`{twins.path}` VERSION AS OF 'first'"
    assert spark_catalog.sql(query).collect() == [(4,)]
    assert call(spark_catalog, "drop_tag", twins.path, "first") == [("first", 1)]
    assert lake.open_dataset(twins.path).tags() == {"now": 4}


def test_consumers_are_added_advanced_and_dropped(
    spark_catalog: SparkSession, twins: Twins
) -> None:
    path = twins.path
    assert call(spark_catalog, "add_consumer", path, "new", version=0) == [("new", 0)]
    assert call(spark_catalog, "add_consumer", path, "now", keep_seconds=60) == [("now", 4)]
    assert call(spark_catalog, "advance_consumer", path, "new", 3) == [("new", 3)]
    shown = spark_catalog.sql(f"SELECT name, version FROM plake.`{path}`.consumers").collect()
    assert sorted(shown) == [("new", 3), ("now", 4)]
    assert lake.open_dataset(path).consumers()["now"].keep_seconds == 60
    assert call(spark_catalog, "drop_consumer", path, "new") == [("new", 3)]
    assert list(lake.open_dataset(path).consumers()) == ["now"]


def test_index_columns_are_chosen(spark_catalog: SparkSession, twins: Twins) -> None:
    assert call(spark_catalog, "set_index_columns", twins.path, ["id"]) == [(5, ["id"])]
    assert lake.open_dataset(twins.path).properties["index_columns"] == ["id"]
    assert call(spark_catalog, "set_index_columns", twins.path, None) == [(6, None)]
    assert "index_columns" not in lake.open_dataset(twins.path).properties


def test_a_folder_is_converted_and_files_are_added(
    spark_catalog: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "exports"
    for at in (1, 2):
        (folder / f"day={at}").mkdir(parents=True)
        pq.write_table(pa.table({"n": [at, at]}), folder / f"day={at}" / "a.parquet")
    (made,) = call(spark_catalog, "convert", str(folder))
    assert made.asDict() == {
        "uri": f"file://{folder}",
        "version": 1,
        "files": 2,
        "row_count": 4,
        "partition_by": ["day"],
    }
    (folder / "day=3").mkdir()
    pq.write_table(pa.table({"n": [9]}), folder / "day=3" / "b.parquet")
    added = call(spark_catalog, "add_files", str(folder), paths=[f"{folder}/day=3/b.parquet"])
    assert added == [(2, 1, 1, 1)]
    expected = pq.read_table(folder, partitioning="hive").to_pylist()
    query = f"SELECT n, day FROM plake.`{folder}`"
    found = [row.asDict() for row in spark_catalog.sql(query).collect()]
    assert sorted(found, key=str) == sorted(expected, key=str)
    assert "TABLE_OR_VIEW_ALREADY_EXISTS [PLAKE_DATASET_EXISTS]" in message(
        spark_catalog, f"CALL plake.system.convert('{folder}')"
    )
    for wrong in (f"'{folder}'", f"'{folder}', 'a', array('b')"):
        text = message(spark_catalog, f"CALL plake.system.add_files({wrong})")
        assert "option 'path': or paths must be given, and not both." in text
    assert "is not the path of a folder" in message(spark_catalog, "CALL plake.system.convert('x')")


@pytest.fixture
def named(spark_catalog: SparkSession) -> Iterator[str]:
    """A table in a namespace; the session is in Spark's own catalog again afterwards."""
    spark_catalog.sql("CREATE NAMESPACE IF NOT EXISTS plake.calls")
    spark_catalog.sql("CREATE OR REPLACE TABLE plake.calls.`a.b` AS SELECT id FROM range(3)")
    yield "calls.`a.b`"
    spark_catalog.sql("USE spark_catalog.default")


def test_a_table_is_named_as_in_sql(spark_catalog: SparkSession, named: str) -> None:
    described = spark_catalog.sql("DESCRIBE EXTENDED plake.calls.`a.b`").collect()
    (place,) = (row.data_type for row in described if row.col_name == "Location")
    for name in (named, f"plake.{named}", "CALLS.`A.B`", place, f"plake.`{place[7:]}`"):
        assert call(spark_catalog, "explain", name)[0].rows_total == 3
    spark_catalog.sql("USE plake.calls")
    assert spark_catalog.sql("CALL system.explain('`a.b`')").collect()[0].rows_total == 3


@pytest.mark.long
def test_wrong_calls_are_told_in_spark_s_words(spark_catalog: SparkSession, named: str) -> None:
    def told(statement: str) -> str:
        return message(spark_catalog, f"CALL plake.{statement}")

    missing = "TABLE_OR_VIEW_NOT_FOUND [PLAKE_DATASET_NOT_FOUND] no dataset at"
    assert told("system.vacuum('calls.none')").startswith(f"{missing} calls.none")
    assert told("system.vacuum('/no/where')").startswith(f"{missing} file:///no/where")
    assert told("system.vacuum('none.none')").startswith(
        "SCHEMA_NOT_FOUND [SCHEMA_NOT_FOUND] [PLAKE_NAMESPACE_NOT_FOUND] no namespace 'none'"
    )
    unknown = "ROUTINE_NOT_FOUND [ROUTINE_NOT_FOUND] The routine `plake`."
    assert told("system.vacum('x')").startswith(f"{unknown}`system`.`vacum` cannot be found.")
    assert "set_index_columns, suggest_layout, undrop, vacuum, vacuum_catalog, verify" in told(
        "system.vacum('x')"
    )
    assert told("vacuum('x')").startswith(f"{unknown}`vacuum` cannot be found.")
    assert told("system.vacuum()").startswith("REQUIRED_PARAMETER_NOT_FOUND ")
    assert told("system.vacuum(tabel => 'x')").startswith("UNRECOGNIZED_PARAMETER_NAME ")
    assert told("system.vacuum('x', dry_run => 3)").startswith("DATATYPE_MISMATCH.")
    with pytest.raises(PySparkException, match="CAST_INVALID_INPUT"):
        spark_catalog.sql("CALL plake.system.vacuum('x', 'soon')").collect()
    refused = "None [PLAKE_INVALID_OPTION] option "
    assert told("system.vacuum(NULL)") == f"{refused}'table': must not be NULL."
    assert told(f"system.vacuum('{named}', -1)").startswith(f"{refused}'retention_seconds'")
    assert "tells about a table" in told(f"system.vacuum('{named}.files')")
    assert "an open backtick" in told("system.vacuum('`x')")
    assert told(f"system.explain('{named}', 'nope = 1')").startswith(
        "None [PLAKE_INVALID_PREDICATE] invalid predicate: there is no column nope"
    )
    assert "must not hold NULL" in told(f"system.explain('{named}', columns => array('id', NULL))")


def test_a_call_that_is_explained_does_nothing(spark_catalog: SparkSession, twins: Twins) -> None:
    spark_catalog.sql(f"EXPLAIN CALL plake.system.restore('{twins.path}', 1)").collect()
    assert lake.open_dataset(twins.path).version == 4


def test_a_version_is_restored_by_its_time(spark_catalog: Any) -> None:
    """By the instant that Spark means, whatever the zone of its session."""
    spark = spark_catalog
    spark.sql("CREATE TABLE plake.default.timed (a INT)")
    for number in range(3):
        spark.sql(f"INSERT INTO plake.default.timed VALUES ({number})")
    (moment,) = spark.sql(
        "SELECT CAST(timestamp AS STRING) FROM plake.default.timed.history WHERE version = 3"
    ).collect()
    call = f"CALL plake.system.restore('default.timed', timestamp => TIMESTAMP '{moment[0]}')"
    (row,) = spark.sql(call).collect()
    assert row[0] == 5
    assert spark.table("plake.default.timed").count() == 2
    with pytest.raises(Exception, match="name the one to restore, or a timestamp"):
        spark.sql("CALL plake.system.restore('default.timed')")


@pytest.fixture
def lost(spark_catalog: SparkSession) -> Iterator[str]:
    """A namespace of its own: the catalog is shared."""
    spark_catalog.sql("CREATE NAMESPACE plake.lost")
    yield "plake.lost"
    spark_catalog.sql("USE spark_catalog.default")
    for table in spark_catalog.sql("SHOW TABLES IN plake.lost").collect():
        spark_catalog.sql(f"DROP TABLE plake.lost.{table.tableName} PURGE")
    spark_catalog.sql("DROP NAMESPACE plake.lost")


def names_lost(spark: SparkSession) -> list[str]:
    return [row.name for row in call(spark, "dropped") if row.namespace == "lost"]


def test_a_dropped_table_is_listed_and_taken_back_with_its_rows(
    spark_catalog: SparkSession, lost: str
) -> None:
    sql = spark_catalog.sql
    sql(f"CREATE TABLE {lost}.Orders AS SELECT 7 AS id")
    assert names_lost(spark_catalog) == []
    sql(f"DROP TABLE {lost}.orders")
    assert sql(f"SHOW TABLES IN {lost}").collect() == []
    listed = call(spark_catalog, "dropped")[0]
    assert (listed.namespace, listed.name, listed.version) == ("lost", "Orders", 1)
    (taken,) = call(spark_catalog, "undrop", table="plake.LOST.orders")
    assert taken.uri == listed.uri
    assert sql(f"SELECT id FROM {lost}.orders").collect() == [Row(id=7)]
    assert names_lost(spark_catalog) == []


@pytest.mark.long
def test_undrop_takes_only_a_name_that_a_table_lost_and_nothing_has(
    spark_catalog: SparkSession, lost: str, tmp_path: Path
) -> None:
    sql = spark_catalog.sql
    sql(f"CREATE TABLE {lost}.orders (id INT)")
    sql(f"DROP TABLE {lost}.orders")
    undrop = "CALL plake.system.undrop(table => '{}')"
    for wrong, reason in (
        ("lost.other", "lost.other"),
        ("lost.orders.branch_audit", "is not the name that a table had"),
        ("lost.orders.files", "tells about a table"),
        (tmp_path, "is not the name that a table had"),
    ):
        assert reason in message(spark_catalog, undrop.format(wrong))
    sql(f"CREATE TABLE {lost}.orders (other INT)")
    assert "EXISTS" in message(spark_catalog, undrop.format("lost.orders"))
    assert spark_catalog.table(f"{lost}.orders").columns == ["other"]
    assert names_lost(spark_catalog) == ["orders"]
    sql(f"ALTER TABLE {lost}.orders RENAME TO lost.newer")
    sql(f"USE {lost}")
    call(spark_catalog, "undrop", table="orders")
    assert spark_catalog.table(f"{lost}.orders").columns == ["id"]


@pytest.mark.long
def test_tables_without_a_location_are_freed_after_the_retention(
    spark_catalog: SparkSession, lost: str, tmp_path: Path
) -> None:
    """DROP TABLE kept their files for ever."""
    sql = spark_catalog.sql
    sql(f"CREATE TABLE {lost}.made (id INT)")
    sql(f"INSERT INTO {lost}.made VALUES (1), (2)")
    sql(f"CREATE TABLE {lost}.selected AS SELECT id FROM range(3)")
    spark_catalog.range(4).write.format("plake").saveAsTable(f"{lost}.saved")
    sql(f"CREATE TABLE {lost}.located (id INT) LOCATION '{tmp_path}/located'")
    sql(f"INSERT INTO {lost}.located VALUES (1)")
    uris = {}
    for name in ("made", "selected", "saved", "located"):
        described = sql(f"DESCRIBE EXTENDED {lost}.{name}").collect()
        (uris[name],) = (row.data_type for row in described if row.col_name == "Location")
        sql(f"DROP TABLE {lost}.{name}")
    in_folders = {name: parquet_files(uri.removeprefix("file://")) for name, uri in uris.items()}
    assert all(in_folders.values())

    def freed(**options: Any) -> dict[str, int]:
        rows = call(spark_catalog, "vacuum_catalog", **options)
        assert not [row for row in rows if row.action == "failed" and "/lost" in row.uri]
        return {row.uri: row["count"] for row in rows if row.what == "its table was dropped"}

    assert not freed().keys() & set(uris.values())  # the retention is a week
    assert {"made", "selected", "saved", "located"} == set(names_lost(spark_catalog))
    folder = tmp_path / "located"
    short = {"retention_seconds": 0, "allow_short_retention": True}
    told = freed(dry_run=True, **short)
    expected = {uris[n]: len(in_folders[n]) for n in ("made", "selected", "saved")}
    assert {uri: count for uri, count in told.items() if uri in uris.values()} == expected
    assert names_lost(spark_catalog)
    assert expected.items() <= freed(**short).items()
    assert names_lost(spark_catalog) == ["located"]
    assert not any(parquet_files(uri.removeprefix("file://")) for uri in expected)
    assert parquet_files(str(folder)) == in_folders["located"]

"""Streams into a dataset: every micro-batch is one version, once."""

from __future__ import annotations

import pickle
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import lakehouse_source as lake
from lakehouse_source.catalog.sql.write_states import WriteState
from lakehouse_source.errors import SchemaMismatchError
from lakehouse_source.parquet.writer import write_files
from lakehouse_source.spark import enable
from lakehouse_source.spark.reading.stream_read import HAS_LIMITS
from lakehouse_source.spark.writing.frame_writers import (
    BatchRefused,
    BatchWritten,
    PlakeStreamWriter,
)
from lakehouse_source.write.commit.options import WriteOptions
from tests.doors.conftest import unshared_session
from tests.doors.frames import data_files
from tests.doors.streams import Folder, forget_last_commit, ids, lose, run


def numbers(first: int, last: int) -> list[dict[str, object]]:
    return [{"id": number, "k": f"k{number % 3}"} for number in range(first, last)]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "incoming")


@pytest.fixture
def target(tmp_path: Path) -> str:
    return str(tmp_path / "target")


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")


@pytest.mark.long
@pytest.mark.spark
def test_each_batch_is_one_version_with_the_pair_of_query_and_batch(
    spark: SparkSession, folder: Folder, target: str, checkpoint: str
) -> None:
    for start in (0, 10, 20):
        folder.add(numbers(start, start + 10))
    query = run(folder.stream(spark), target, checkpoint, partitionBy="k", compression="snappy")
    dataset = lake.open_dataset(target)
    assert ids(target) == list(range(30))
    assert dataset.partition_by == ("k",)
    pairs = [(one.txn_app_id, one.txn_version) for one in dataset.history()]
    assert pairs == [(query, 2), (query, 1), (query, 0)]
    assert all(one.operation == "append" for one in dataset.history())
    assert {one.committer["query"] for one in dataset.history()} == {query}
    assert {one.committer["engine"] for one in dataset.history()} == {"spark"}
    # A restart goes on.
    folder.add(numbers(30, 35))
    assert run(folder.stream(spark), target, checkpoint) == query
    assert ids(target) == list(range(35))
    assert lake.open_dataset(target).version == 4


@pytest.mark.long
@pytest.mark.spark
def test_texts_have_the_length_of_their_column_in_streams_and_in_save(
    spark_catalog: SparkSession, tmp_path: Path, checkpoint: str
) -> None:
    spark = spark_catalog
    spark.sql("CREATE NAMESPACE IF NOT EXISTS plake.texts")
    spark.sql(
        "CREATE OR REPLACE TABLE plake.texts.t (id BIGINT, v VARCHAR(3), c CHAR(4), "
        "s STRUCT<x: INT, v: VARCHAR(2)>, m MAP<STRING, ARRAY<CHAR(2)>>)"
    )
    schema = "id BIGINT, v STRING, c STRING, s STRUCT<v: STRING, x: INT>, "
    schema += "m MAP<STRING, ARRAY<STRING>>"
    folder = Folder(tmp_path / "texts", schema)
    nested = {"s": {"v": "äö", "x": 1}, "m": [("long", ["ab", None])]}
    types = pa.schema(
        [
            *(("id", pa.int64()), ("v", pa.string()), ("c", pa.string())),
            ("s", pa.struct([("v", pa.string()), ("x", pa.int32())])),
            ("m", pa.map_(pa.string(), pa.list_(pa.string()))),
        ]
    )

    def given(rows: list[dict[str, object]]) -> pa.Table:
        return pa.Table.from_pylist([{**nested, **row} for row in rows], types)

    def write() -> None:
        query = folder.stream(spark).writeStream.option("checkpointLocation", checkpoint)
        started = query.trigger(availableNow=True).toTable("plake.texts.t")
        try:
            assert started.awaitTermination(240)
        finally:
            started.stop()

    folder.add(given([{"id": 1, "v": "äöü  ", "c": "ab"}, {"id": 2, "s": None, "m": None}]))
    write()
    found = spark.table("plake.texts.t").orderBy("id").collect()
    assert [(row.v, row.c, row.s and row.s.v) for row in found] == [
        ("äöü", "ab  ", "äö"),
        (None, None, None),
    ]
    described = spark.sql("DESCRIBE EXTENDED plake.texts.t").collect()
    place = next(row.data_type for row in described if row.col_name == "Location")
    options = {"catalog": spark.conf.get("spark.sql.catalog.plake.catalog")}
    # Statements compare what is stored: CHAR is filled up inside of maps, lists and structs too.
    short = {"id": 4, "s": {"v": "b  ", "x": 1}, "m": {"k": ["a", None], "l": None, "n": []}}
    frame = spark.createDataFrame([short, {"id": 5, "m": None}], schema)
    frame.write.format("plake").options(**options).mode("append").save(place)
    spark.sql("UPDATE plake.texts.t SET v = 'x' WHERE m['k'][0] = 'a ' AND s.v = 'b '")
    stored = lake.open_dataset(place, catalog=options["catalog"]).scan("id >= 4").to_table()
    assert [(row["id"], row["v"], row["s"], row["m"]) for row in stored.to_pylist()] == [
        (5, None, None, None),
        (4, "x", {"x": 1, "v": "b "}, [("k", ["a ", None]), ("l", None), ("n", [])]),
    ]
    spark.sql("DELETE FROM plake.texts.t WHERE id >= 4")
    for wrong in (
        {"v": "abcd"},
        {"c": "abcde"},
        {"s": {"v": "abc", "x": 1}},
        {"m": {"k": ["ab", "abc"]}},
    ):
        frame = spark.createDataFrame([{**nested, "m": {}, **wrong, "id": 3}], schema)
        with pytest.raises(Exception, match="a text is longer"):
            frame.write.format("plake").options(**options).mode("append").save(place)
    folder.add(given([{"id": 3, "v": "abcd"}]))
    with pytest.raises(StreamingQueryException, match=r"varchar\(3\), and a text is longer"):
        write()
    assert spark.table("plake.texts.t").count() == 2


@pytest.mark.long
@pytest.mark.spark
def test_a_replayed_batch_is_not_written_twice(
    spark: SparkSession, folder: Folder, target: str, checkpoint: str
) -> None:
    folder.add(numbers(0, 10))
    folder.add(numbers(10, 20))
    run(folder.stream(spark), target, checkpoint)
    files = data_files(target)
    # Another writer and an expiry come between the crash and the restart.
    lake.write_dataset(pa.Table.from_pylist(numbers(100, 105)), target)
    lake.open_dataset(target).expire_versions(keep_last=1)
    forget_last_commit(checkpoint)
    folder.add(numbers(20, 30))
    run(folder.stream(spark), target, checkpoint)
    assert ids(target) == [*range(30), *range(100, 105)]
    # The files of the repetition are gone: those of one write and one batch are new.
    assert len(data_files(target)) == len(files) + 2


@pytest.mark.long
@pytest.mark.spark
def test_two_queries_into_one_dataset_do_not_disturb_each_other(
    spark: SparkSession, tmp_path: Path, target: str
) -> None:
    folders = [Folder(tmp_path / "a"), Folder(tmp_path / "b")]
    for number, one in enumerate(folders):
        for batch in range(2):
            start = 100 * number + 10 * batch
            one.add(numbers(start, start + 10))
    queries = [
        one.stream(spark)
        .writeStream.format("plake")
        .option("checkpointLocation", str(tmp_path / f"checkpoint{number}"))
        .trigger(availableNow=True)
        .start(target)
        for number, one in enumerate(folders)
    ]
    for query in queries:
        assert query.awaitTermination(120)
    assert ids(target) == [*range(20), *range(100, 120)]
    # The same batch numbers of another query are new batches.
    lose(tmp_path / "checkpoint1")
    run(folders[1].stream(spark), target, tmp_path / "checkpoint1")
    assert ids(target) == sorted([*range(20), *range(100, 120), *range(100, 120)])


@pytest.mark.long
@pytest.mark.spark
def test_mode_complete_replaces_the_rows_in_each_batch(
    spark: SparkSession, folder: Folder, target: str, checkpoint: str
) -> None:
    folder.add(numbers(0, 10))
    folder.add(numbers(10, 15))
    counts = folder.stream(spark).groupBy("k").count()
    run(counts, target, checkpoint, outputMode="complete")
    forget_last_commit(checkpoint)
    run(counts, target, checkpoint, outputMode="complete")
    assert lake.open_dataset(target).version == 2

    def counted(version: int) -> dict[str, int]:
        rows = lake.read_dataset(target, version=version).to_pylist()
        return {row["k"]: row["count"] for row in rows}

    assert counted(1) == {"k0": 4, "k1": 3, "k2": 3}
    assert counted(2) == {"k0": 5, "k1": 5, "k2": 5}


def _updates(
    spark: SparkSession, folder: Folder, target: str, checkpoint: str, **options: str
) -> str:
    """Count the rows of each key in output mode update, into a table by its name or path."""
    counts = folder.stream(spark).groupBy("k").agg(F.count("id").alias("n"), F.max("id").alias("m"))
    writer = counts.writeStream.format("plake").outputMode("update").options(**options)
    writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    query = writer.start(target) if "/" in target else writer.toTable(target)
    try:
        assert query.awaitTermination(240), "the query runs on"
    finally:
        query.stop()
    return str(query.id)


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.parametrize("by", ["name", "path"])
def test_mode_update_upserts_by_the_primary_key_and_repeats_no_batch(
    by: str, spark_catalog: SparkSession, folder: Folder, tmp_path: Path
) -> None:
    spark, name, checkpoint = spark_catalog, f"plake.default.upserted_{by}", str(tmp_path / "c")
    spark.sql(
        f"CREATE OR REPLACE TABLE {name} (k STRING NOT NULL, n BIGINT CHECK (n < 9), m BIGINT, "
        "twice BIGINT GENERATED ALWAYS AS (n * 2), CONSTRAINT pk PRIMARY KEY (k))"
    )
    spark.sql(f"INSERT INTO {name} (k, n, m) VALUES ('k0', -1, -1), ('other', 1, 1)")
    target, options = name, {}
    if by == "path":
        described = spark.sql(f"DESCRIBE EXTENDED {name}").collect()
        target = next(row.data_type for row in described if row.col_name == "Location")
        options = {"catalog": spark.conf.get("spark.sql.catalog.plake.catalog")}

    def rows() -> dict[str, tuple[int, int, int]]:
        return {row.k: (row.n, row.m, row.twice) for row in spark.table(name).collect()}

    def version() -> int:
        return int(spark.sql(f"SELECT max(version) FROM {name}.history").first()[0])

    folder.add(numbers(0, 2))  # k0, k1
    folder.add(numbers(3, 4))  # k0
    query = _updates(spark, folder, target, checkpoint, **options)
    assert rows() == {"k0": (2, 3, 4), "k1": (1, 1, 2), "other": (1, 1, 2)}
    history = spark.sql(f"SELECT * FROM {name}.history ORDER BY version DESC LIMIT 2").collect()
    assert [(one.operation, one.committer["query"]) for one in history] == [("merge", query)] * 2
    assert [(one.rows_updated, one.rows_inserted) for one in history] == [(1, 0), (1, 1)]
    # A batch that Spark repeats after a crash changes nothing, whatever others did meanwhile.
    before = version()
    spark.sql(f"UPDATE {name} SET m = 77 WHERE k = 'k0'")
    forget_last_commit(checkpoint)
    folder.add(numbers(6, 9))  # k0, k1, k2
    for _ in range(1 if HAS_LIMITS else 2):
        assert _updates(spark, folder, target, checkpoint, **options) == query
    assert version() == before + 2
    after = {"k0": (3, 6, 6), "k1": (2, 7, 4), "k2": (1, 8, 2), "other": (1, 1, 2)}
    assert rows() == after
    # A batch that breaks a CHECK commits nothing.
    folder.add(numbers(10, 40))
    with pytest.raises(StreamingQueryException, match="n < 9"):
        _updates(spark, folder, target, checkpoint, **options)
    assert rows() == after
    for option in ("txnVersion", "sortBy"):
        with pytest.raises(StreamingQueryException, match=f"(?s){option}.*streaming"):
            _updates(spark, folder, target, checkpoint, **options, **{option: "1"})


@pytest.mark.long
@pytest.mark.spark
def test_mode_update_into_a_path_needs_a_dataset_with_a_primary_key(
    spark_catalog: SparkSession, folder: Folder, target: str, checkpoint: str
) -> None:
    folder.add(numbers(0, 10))
    with pytest.raises(StreamingQueryException, match=r"no dataset"):
        _updates(spark_catalog, folder, target, checkpoint)
    assert not Path(target).exists()
    lake.write_dataset(pa.table({"k": ["a"], "n": [1], "m": [1]}), target)
    with pytest.raises(StreamingQueryException, match=r"primary key.*ADD CONSTRAINT.*MERGE"):
        _updates(spark_catalog, folder, target, checkpoint)
    assert lake.open_dataset(target).version == 1


@pytest.mark.spark
def test_mode_update_is_an_upsert_and_refused_without_a_primary_key(
    spark_catalog: SparkSession, folder: Folder, tmp_path: Path
) -> None:
    name, checkpoint = "plake.default.updated", str(tmp_path / "checkpoint")
    folder.add(numbers(0, 10))
    spark_catalog.sql(f"CREATE OR REPLACE TABLE {name} (k STRING NOT NULL, n BIGINT, m BIGINT)")
    with pytest.raises(AnalysisException, match=r"outputMode 'update'.*primary key"):
        _updates(spark_catalog, folder, name, checkpoint)
    with pytest.raises(AnalysisException, match=r"Spark creates .* drop plake.default.missing if"):
        _updates(spark_catalog, folder, "plake.default.missing", checkpoint)
    spark_catalog.sql(f"ALTER TABLE {name} ADD CONSTRAINT pk PRIMARY KEY (k)")
    spark_catalog.sql(f"INSERT INTO {name} VALUES ('k0', -1, -1)")
    _updates(spark_catalog, folder, name, checkpoint)
    rows = {(row.k, row.n, row.m) for row in spark_catalog.table(name).collect()}
    assert rows == {("k0", 4, 9), ("k1", 3, 7), ("k2", 3, 8)}
    spark_catalog.sql("DROP TABLE plake.default.missing PURGE")
    assert not spark_catalog.streams.active


@pytest.mark.spark
def test_mode_update_in_a_catalog_without_views(
    spark: SparkSession, folder: Folder, tmp_path: Path
) -> None:
    """Where its class is PlakeCatalog, Spark planned the statement before plake had its target."""
    session = enable(unshared_session(spark))
    session.conf.set("spark.sql.catalog.plake", "io.plake.spark.PlakeCatalog")
    session.conf.set("spark.sql.catalog.plake.catalog", f"sqlite:///{tmp_path}/catalog.db")
    session.conf.set("spark.sql.catalog.plake.warehouse", f"{tmp_path}/warehouse")
    name = "plake.default.updated"
    session.sql(
        f"CREATE TABLE {name} (k STRING, n BIGINT, m BIGINT, CONSTRAINT pk PRIMARY KEY (k))"
    )
    folder.add(numbers(0, 10))
    _updates(session, folder, name, str(tmp_path / "checkpoint"))
    assert {(row.k, row.n) for row in session.table(name).collect()} == {
        ("k0", 4),
        ("k1", 3),
        ("k2", 3),
    }


@pytest.mark.long
@pytest.mark.spark
def test_batches_without_rows_make_no_version_but_the_first(
    spark: SparkSession, folder: Folder, target: str, checkpoint: str
) -> None:
    for start in (0, 5, 10):
        folder.add(numbers(start, start + 5))
    run(folder.stream(spark).where("id >= 10"), target, checkpoint)
    dataset = lake.open_dataset(target)
    # Batch 0 made the dataset, so that a stream from it can begin.
    assert [one.txn_version for one in dataset.history()] == [2, 0]
    assert ids(target) == list(range(10, 15))
    catalog = lake.open_catalog(f"sqlite:///{target}/_plake/catalog.db")
    with catalog, catalog.read() as reader:
        assert reader.silent_writes(-1) == {}


@pytest.mark.long
@pytest.mark.spark
def test_new_columns_come_in_with_merge_schema(
    spark: SparkSession, folder: Folder, target: str, checkpoint: str
) -> None:
    folder.add(numbers(0, 3))
    run(folder.stream(spark), target, checkpoint)
    folder.add(numbers(3, 5))
    wider = folder.stream(spark).selectExpr("*", "id * 2 AS twice")
    with pytest.raises(StreamingQueryException, match="SchemaMismatchError: column 'twice'"):
        run(wider, target, checkpoint)
    run(wider, target, checkpoint, mergeSchema="true")
    rows = lake.read_dataset(target, columns=["id", "twice"]).to_pylist()
    assert sorted((row["id"], row["twice"]) for row in rows) == [
        *((number, None) for number in range(3)),
        *((number, number * 2) for number in (3, 4)),
    ]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("option", "value"), [("txnAppId", "a"), ("txnVersion", "1"), ("expectedVersion", "1")]
)
def test_options_that_hold_for_one_commit_only_are_refused(
    spark: SparkSession, folder: Folder, target: str, checkpoint: str, option: str, value: str
) -> None:
    folder.add(numbers(0, 3))
    with pytest.raises(StreamingQueryException, match="not of streaming to it"):
        run(folder.stream(spark), target, checkpoint, **{option: value})


# --- steps of the writer, as Spark calls them ------------------------------------------


SCHEMA = pa.schema([("id", pa.int64())])


def written(writer: PlakeStreamWriter, rows: list[int]) -> BatchWritten:
    """What a task writes, without Spark."""
    _kind, (begun,) = writer.__reduce__()
    batch = pa.record_batch({"id": pa.array(rows, pa.int64())})
    files = write_files(begun.spec, iter([batch] if rows else []))
    return BatchWritten("query", begun, tuple(files))


def writer(target: str, mode: str = "append") -> PlakeStreamWriter:
    return PlakeStreamWriter(target, None, {}, SCHEMA, WriteOptions(mode=mode))


def test_an_abort_after_the_commit_deletes_nothing(target: str) -> None:
    message = written(writer(target), [1, 2])
    writer(target).commit([message, None], 0)
    writer(target).abort([message, None], 0)
    assert ids(target) == [1, 2]
    assert lake.open_dataset(target).verify(checksums=True).ok


def test_an_abort_before_the_commit_deletes_the_files_for_good(target: str) -> None:
    message = written(writer(target), [1, 2])
    [written_file] = data_files(target)
    writer(target).abort([message, None], 0)
    assert not written_file.exists()
    with pytest.raises(lake.StorageError, match="not there any more"):
        writer(target).commit([message], 0)
    writer(target).commit([written(writer(target), [3])], 0)
    assert ids(target) == [3]


def test_a_batch_with_rows_that_do_not_fit_is_given_up_as_a_whole(target: str) -> None:
    message = written(writer(target), [1, 2])
    wrong = SchemaMismatchError(column="id", hint="the data has 1 NULL values")
    refused = BatchRefused(message.begun, pickle.loads(pickle.dumps(wrong)))
    for messages in ([message, refused, None], [refused]):
        with pytest.raises(SchemaMismatchError, match="'id'"):
            writer(target).commit(messages, 0)
        assert not data_files(target) or messages[0] is message
        writer(target).abort(messages, 0)
        assert not data_files(target)
    with pytest.raises(lake.StorageError, match="not there any more"):
        writer(target).commit([message], 0)
    catalog = lake.open_catalog(f"sqlite:///{target}/_plake/catalog.db")
    with catalog, catalog.read() as reader:
        assert set(reader.silent_writes(-1).values()) <= {WriteState.FENCED}


def test_a_late_commit_of_an_older_batch_is_skipped(target: str) -> None:
    late = written(writer(target), [1])
    writer(target).commit([written(writer(target), [1])], 4)
    writer(target).commit([written(writer(target), [2])], 5)
    writer(target).commit([late], 4)
    assert ids(target) == [1, 2]


def test_a_replayed_batch_is_known_after_its_version_was_expired(target: str) -> None:
    writer(target).commit([written(writer(target), [1])], 0)
    late = written(writer(target), [1])
    dataset = lake.open_dataset(target)
    for number in range(3):
        lake.write_dataset({"id": [number + 10]}, target, mode="overwrite")
    dataset.expire_versions(keep_last=1)
    dataset.vacuum(retention_seconds=0, allow_short_retention=True)
    writer(target).commit([late], 0)
    assert ids(target) == [12]


@pytest.mark.long
def test_eight_queries_write_to_one_dataset_at_once_and_repeat_batches(target: str) -> None:
    def query(number: int) -> None:
        chance = random.Random(number)
        for batch in range(6):
            for _ in range(chance.randint(1, 2)):
                mine = writer(target)
                message = written(mine, [100 * number + batch])
                message = replace(message, query_id=f"query {number}")
                writer(target).commit([message], batch)
                if chance.random() < 0.3:
                    writer(target).abort([message], batch)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(query, range(8)))
    assert ids(target) == sorted(100 * number + batch for number in range(8) for batch in range(6))
    dataset = lake.open_dataset(target)
    assert dataset.version == 48
    assert dataset.verify(checksums=True).ok
    assert len(data_files(target)) == 48


@pytest.mark.long
def test_files_of_a_stream_stay_few_with_auto_compact(target: str) -> None:
    lake.write_dataset({"id": [0]}, target, auto_compact=True, auto_compact_min_files=4)
    for batch in range(20):
        writer(target).commit([written(writer(target), [batch + 1])], batch)
    assert ids(target) == list(range(21))
    assert len(lake.open_dataset(target).files()) <= 5


def test_a_batch_without_messages_appends_nothing_and_empties_in_mode_complete(target: str) -> None:
    writer(target).commit([written(writer(target), [1])], 0)
    writer(target).commit([], 1)
    writer(target).commit([None], 1)
    assert lake.open_dataset(target).version == 1
    writer(target, "overwrite").commit([], 2)
    assert ids(target) == []


def test_the_version_a_batch_is_based_on_is_that_of_its_own_beginning(target: str) -> None:
    writer(target).commit([written(writer(target), [1])], 0)
    narrow = writer(target)
    lake.open_dataset(target).add_column("note", pa.string())
    narrow.commit([written(writer(target), [2])], 1)
    assert lake.read_dataset(target).column_names == ["id", "note"]
    assert ids(target) == [1, 2]


@pytest.mark.long
@pytest.mark.spark
def test_a_table_that_is_dropped_under_a_stream_is_not_made_anew_without_a_name(
    spark_catalog: SparkSession, tmp_path: Path
) -> None:
    """The query went on and wrote to a dataset that no table named."""
    sql = spark_catalog.sql
    sql("CREATE NAMESPACE IF NOT EXISTS plake.sinks")
    sql("CREATE TABLE plake.sinks.source AS SELECT 1L id")
    sql("CREATE TABLE plake.sinks.target (id BIGINT)")
    query = (
        spark_catalog.readStream.table("plake.sinks.source")
        .writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        .toTable("plake.sinks.target")
    )
    try:
        query.processAllAvailable()
        sql("DROP TABLE plake.sinks.target PURGE")
        sql("INSERT INTO plake.sinks.source VALUES (2)")
        with pytest.raises(StreamingQueryException, match="no dataset at"):
            query.processAllAvailable()
    finally:
        query.stop()

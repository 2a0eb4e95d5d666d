"""Options of the planner extension are for the extension: every door refuses them from a user.

Each test is an attack: a user who may only write SQL, or options of a frame, tries to run code
by a pickle in `messages`, or to let a read change what is stored.
"""

from __future__ import annotations

import base64
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import lakehouse_source as lake
from lakehouse_source.spark.protocol.vocabulary import (
    Entry,
    Envelope,
    Message,
    Option,
    RequestKey,
    RequestKind,
)
from lakehouse_source.spark.session.catalog_request import Request
from lakehouse_source.spark.source import FromExtension, Maker, PlakeDataSource
from lakehouse_source.spark.tables import commands
from tests.doors.envelopes import encode_request
from tests.doors.frames import load

pytestmark = pytest.mark.spark

REFUSED = r"is set by plake's planner extension only|has the options catalog and storage.NAME only"
MINE = (Envelope.NAME, Envelope.NAME.upper(), Option.OWN + "whatever")


class Bomb:
    """Unpickled, it makes a file."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.mark,)


@pytest.fixture
def dataset(tmp_path: Path) -> str:
    path = str(tmp_path / "d")
    lake.write_dataset({"a": [1, 2, 3]}, path)
    return path


def truncation(path: str) -> dict[str, Any]:
    return {
        RequestKey.COMMAND: RequestKind.TRUNCATE,
        RequestKey.CATALOG: "plake",
        RequestKey.IDENTIFIER: [path],
    }


def execution(path: str, mark: Path) -> dict[str, Any]:
    bomb = base64.b64encode(pickle.dumps(Bomb(mark))).decode()
    return {
        RequestKey.COMMAND: RequestKind.CALL,
        RequestKey.CATALOG: "plake",
        RequestKey.PROCEDURE: "compact",
        RequestKey.ARGUMENTS: {"table": path},
        RequestKey.MESSAGES: [bomb],
    }


def quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


Door = Callable[[SparkSession, str, str, str], object]


def by_option(spark: SparkSession, path: str, name: str, value: str) -> object:
    return load(spark, path, **{name: value}).collect()


def by_view(spark: SparkSession, path: str, name: str, value: str) -> object:
    given = f"path {quoted(path)}, `{name}` {quoted(value)}"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW attack USING plake OPTIONS ({given})")
    return spark.sql("SELECT * FROM attack").collect()


def by_write(spark: SparkSession, path: str, name: str, value: str) -> object:
    frame = spark.range(1).selectExpr("id AS a")
    frame.write.format("plake").mode("append").option(name, value).save(path)
    return None


def by_stream(spark: SparkSession, path: str, name: str, value: str) -> object:
    return spark.readStream.format("plake").option(name, value).load(path).schema


def by_sink(spark: SparkSession, path: str, name: str, value: str) -> object:
    rows = spark.readStream.format("rate").load().selectExpr("value AS a")
    query = rows.writeStream.format("plake").option(name, value)
    started = query.option("checkpointLocation", path + "-c").trigger(availableNow=True).start(path)
    started.awaitTermination()
    return None


def by_table(spark: SparkSession, path: str, name: str, value: str) -> object:
    spark.sql("DROP TABLE IF EXISTS attack_table")
    given = f"`{name}` {quoted(value)}"
    try:
        spark.sql(
            f"CREATE TABLE attack_table USING plake OPTIONS ({given}) LOCATION {quoted(path)}"
        )
        return spark.sql("SELECT * FROM attack_table").collect()
    finally:
        spark.sql("DROP TABLE IF EXISTS attack_table")


def by_with(spark: SparkSession, path: str, name: str, value: str) -> object:
    return spark.sql(f"SELECT * FROM plake.`{path}` WITH (`{name}` = {quoted(value)})").collect()


def by_insert(spark: SparkSession, path: str, name: str, value: str) -> object:
    return spark.sql(
        f"INSERT INTO plake.`{path}` WITH (`{name}` = {quoted(value)}) VALUES (9)"
    ).collect()


def by_reader_of_the_catalog(spark: SparkSession, path: str, name: str, value: str) -> object:
    return spark.read.option(name, value).table(f"plake.`{path}`").collect()


def by_writer_of_the_catalog(spark: SparkSession, path: str, name: str, value: str) -> object:
    frame = spark.range(1).selectExpr("id AS a")
    frame.writeTo(f"plake.`{path}`").option(name, value).append()
    return None


def by_created_table(spark: SparkSession, path: str, name: str, value: str) -> object:
    frame = spark.range(1).selectExpr("id AS a")
    frame.writeTo(f"plake.`{path}-new`").option(name, value).create()
    return None


EVERYWHERE = (by_option, by_view, by_write, by_stream, by_sink)
WITH_CATALOG = (
    *(by_table, by_with, by_insert),
    *(by_reader_of_the_catalog, by_writer_of_the_catalog, by_created_table),
)


def attacked(spark: SparkSession, door: Door, path: str, key: str, tmp_path: Path) -> None:
    """Try both attacks through a door: it refuses them, and nothing has changed."""
    mark = tmp_path / "ran"
    name = Envelope.NAME.upper() if key == Message.COMMAND else Envelope.NAME
    for body in (truncation(path), execution(path, mark)):
        value = encode_request({key: body})
        with pytest.raises(PySparkException, match=REFUSED):
            door(spark, path, name, value)
        assert not mark.exists()
        assert lake.open_dataset(path).version == 1
        assert lake.open_dataset(path).scan().count_rows() == 3


@pytest.mark.parametrize("door", EVERYWHERE)
@pytest.mark.parametrize("key", [Message.REQUEST, Message.COMMAND])
def test_stock_spark_takes_none_of_them(
    spark: SparkSession, dataset: str, tmp_path: Path, door: Door, key: str
) -> None:
    attacked(spark, door, dataset, key, tmp_path)


@pytest.mark.parametrize("door", [*EVERYWHERE, *WITH_CATALOG])
@pytest.mark.parametrize("key", [Message.REQUEST, Message.COMMAND])
def test_the_extension_takes_none_of_a_user(
    spark_catalog: SparkSession, dataset: str, tmp_path: Path, door: Door, key: str
) -> None:
    attacked(spark_catalog, door, dataset, key, tmp_path)


@pytest.mark.parametrize("name", MINE)
def test_every_option_of_the_extension_is_refused(
    spark: SparkSession, spark_catalog: SparkSession, dataset: str, name: str
) -> None:
    for session, door in (
        (spark, by_option),
        (spark, by_write),
        (spark_catalog, by_with),
        (spark_catalog, by_insert),
    ):
        with pytest.raises(PySparkException, match=REFUSED):
            door(session, dataset, name, "[]")


def test_a_setting_of_the_catalog_gives_none(spark_catalog: SparkSession, dataset: str) -> None:
    session = spark_catalog.newSession()
    session.conf.set("spark.sql.catalog.odd", "io.plake.spark.PlakeCatalog")
    asked = encode_request({Message.REQUEST: truncation(dataset)})
    session.conf.set(f"spark.sql.catalog.odd.{Envelope.NAME}", asked)
    with pytest.raises(PySparkException, match=REFUSED):
        session.sql(f"SELECT * FROM odd.`{dataset}`").collect()
    assert lake.open_dataset(dataset).version == 1


@pytest.mark.long
def test_a_seal_that_was_seen_serves_for_no_other_option(
    spark_catalog: SparkSession, dataset: str, tmp_path: Path
) -> None:
    spark = spark_catalog
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW seen USING plake OPTIONS (path {quoted(dataset)})")
    rows = spark.sql(f"SELECT a FROM plake.`{dataset}`")
    command = f"INSERT OVERWRITE plake.`{dataset}` SELECT a FROM plake.`{dataset}`"
    plan = spark.sql(f"EXPLAIN EXTENDED {command}").first()[0]
    seals = re.findall(rf"{Option.SEAL}\W+(\w+)", plan)
    assert rows.count() == 3
    for seal in (*seals, "0" * 64, ""):
        for key in (Message.REQUEST, Message.COMMAND, Message.TASKS, Message.READS):
            asked = encode_request({key: truncation(dataset)})
            options = {"path": dataset, Option.SEAL: seal, Envelope.NAME: asked}
            with pytest.raises(PySparkException, match=REFUSED):
                spark.read.format("plake").options(**options).load()
            given = ", ".join(f"`{name}` = {quoted(value)}" for name, value in options.items())
            with pytest.raises(PySparkException, match=REFUSED):
                spark.sql(f"SELECT * FROM plake.`{dataset}` WITH ({given})").collect()
    assert lake.open_dataset(dataset).version == 1


def test_no_question_and_no_key_is_in_a_plan(spark_catalog: SparkSession, dataset: str) -> None:
    for statement in (
        f"SELECT * FROM plake.`{dataset}`",
        f"DELETE FROM plake.`{dataset}` WHERE a = 1",
        f"INSERT INTO plake.`{dataset}` VALUES (4)",
    ):
        plan = spark_catalog.sql(f"EXPLAIN EXTENDED {statement}").first()[0]
        for key in (Envelope.NAME, Message.REQUEST, Message.COMMAND, Message.TASKS):
            assert key not in plan


def made(told: dict[str, Any]) -> Any:
    """The data source that the extension makes."""
    return FromExtension({Envelope.NAME: encode_request(told)})


def test_an_extension_of_another_release_is_refused() -> None:
    text = encode_request({}).replace(f'"{Envelope.NUMBER}"', '"0"')
    with pytest.raises(lake.InvalidOptionError, match=r"of another release.*planner_jar"):
        FromExtension({Envelope.NAME: text})


def test_a_question_that_changes_is_refused_in_a_read(dataset: str) -> None:
    request = Request.of(truncation(dataset), {})
    for command in commands.CHANGES:
        asked = Request({**request.body, RequestKey.COMMAND: command}, None, None, {}, {})
        with pytest.raises(lake.InvalidOptionError, match="no read does"):
            commands.respond(asked, may_change=False)
    read = made({Message.REQUEST: truncation(dataset)})
    assert "no read does" in read.schema().fields[-1].metadata[Envelope.NAME]
    assert lake.open_dataset(dataset).version == 1
    made({Message.COMMAND: truncation(dataset)}).schema()
    assert lake.open_dataset(dataset).scan().count_rows() == 0


def test_every_question_has_its_function() -> None:
    for place in {**commands.READS, **commands.CHANGES}.values():
        assert commands.answering(place).__name__ == place.rpartition(".")[2]


def test_even_the_extension_runs_nothing_that_a_message_says(dataset: str, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    command = made({Message.COMMAND: execution(dataset, mark)})
    assert "are not those of tasks that compact" in command.schema().json()
    assert not mark.exists()


def test_the_entry_of_the_extension_is_no_source_that_spark_finds() -> None:
    for kind, name in ((FromExtension, Entry.CLASS), (Maker, Entry.MAKER)):
        assert (kind.__module__, kind.__name__) == (Entry.MODULE, name)
    question = made({Message.REQUEST: {RequestKey.COMMAND: RequestKind.LIST_PROCEDURES}})
    assert type(question) is PlakeDataSource
    again = pickle.loads(pickle.dumps(question))
    assert again._own == {}
    for name in MINE:
        with pytest.raises(lake.InvalidOptionError, match="planner extension only"):
            PlakeDataSource({name.upper(): "x"})


@pytest.mark.long
def test_no_option_of_a_frame_changes_rows(spark: SparkSession, dataset: str) -> None:
    """A frame named what happens to the rows of a dataset, for statements without the extension."""
    frame = spark.createDataFrame(
        [(1, "../../etc/passwd", 0, 0)],
        "__row_operation int, _file string, _pos long, _row_id long",
    )
    options = {"rowChanges": "delete", "baseVersion": "1"}
    with pytest.raises(PySparkException, match=r"(?i)rowchanges"):
        frame.write.format("plake").mode("append").options(**options).save(dataset)
    assert lake.open_dataset(dataset).version == 1

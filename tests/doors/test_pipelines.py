"""Spark's Declarative Pipelines with plake as the default catalog, Auto CDC against a model."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession

from tests.doors.pipelines import run

VERSION = tuple(map(int, pyspark.__version__.split(".")[:2]))
pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(VERSION < (4, 2), reason="views of a catalog are of Spark 4.2"),
]
of_43 = pytest.mark.skipif(
    VERSION < (4, 3), reason="SQL's AUTO CDC and pipelines of CLUSTER BY are of Spark 4.3"
)


@pytest.fixture
def space(spark_catalog: SparkSession, request: pytest.FixtureRequest) -> str:
    name = re.sub(r"\W+", "_", request.node.name.lower())
    spark_catalog.sql(f"CREATE NAMESPACE plake.{name}")
    return name


def rows(spark: SparkSession, query: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in spark.sql(query).collect()), key=repr)


# --- Auto CDC ------------------------------------------------------------------

CHANGES = (
    "CREATE STREAMING TABLE {to}; CREATE FLOW f{to} AS AUTO CDC INTO {to}"
    " FROM STREAM(plake.{space}.changes) KEYS (id) APPLY AS DELETE WHEN op = 'D'"
    " SEQUENCE BY {sequence} COLUMNS * EXCEPT (op, a, b) STORED AS SCD TYPE {type};"
)
Event = tuple[int, str, str, int, int]


def newest(events: list[Event]) -> list[tuple[Any, ...]]:
    """SCD type 1: of each key the event that comes last by its sequence, unless it deletes."""
    last: dict[int, Event] = {}
    for event in events:
        if event[0] not in last or event[3:] > last[event[0]][3:]:
            last[event[0]] = event
    return sorted((key, e[1]) for key, e in last.items() if e[2] != "D")


def periods(events: list[Event]) -> list[tuple[Any, ...]]:
    """SCD type 2: each value of a key with the sequence from which, and up to which, it was so."""
    found: list[tuple[Any, ...]] = []
    for key in {event[0] for event in events}:
        open_row: tuple[str, tuple[int, int]] | None = None
        for _, name, op, a, b in sorted((e for e in events if e[0] == key), key=lambda e: e[3:]):
            if open_row is not None and (op == "D" or open_row[0] != name):
                found.append((key, *open_row, (a, b)))
                open_row = None
            if op != "D" and open_row is None:
                open_row = (name, (a, b))
        if open_row is not None:
            found.append((key, *open_row, None))
    return sorted(found, key=repr)


def held(spark: SparkSession, table: str) -> list[tuple[Any, ...]]:
    """The rows of a table of SCD type 2, as `periods` has them."""
    found = [
        (
            row["id"],
            row["name"],
            tuple(row["__START_AT"]),
            row["__END_AT"] and tuple(row["__END_AT"]),
        )
        for row in spark.table(table).collect()
    ]
    return sorted(found, key=repr)


def drawn(seed: int, count: int) -> list[Event]:
    """Events in no order, several of a key in a batch, with sequences of two columns."""
    chance = random.Random(seed)
    places = chance.sample([(a, b) for a in range(count) for b in range(2)], count)
    return [
        (chance.randrange(4), chance.choice("xyz"), "D" if chance.random() < 0.25 else "U", a, b)
        for a, b in places
    ]


@of_43
@pytest.mark.parametrize(
    ("seed", "batches", "types"),
    [(1, 2, [1]), *(pytest.param(n, 5, [1, 2], marks=pytest.mark.long) for n in (1, 2, 3))],
    ids=str,
)
def test_auto_cdc_gives_the_rows_of_a_model_whatever_the_order_of_events(
    spark_catalog: SparkSession,
    space: str,
    tmp_path: Path,
    seed: int,
    batches: int,
    types: list[int],
) -> None:
    spark_catalog.sql(
        f"CREATE TABLE plake.{space}.changes (id INT, name STRING, op STRING, a INT, b INT)"
    )
    pipeline = "".join(
        CHANGES.format(to=f"scd{n}", type=n, space=space, sequence="struct(a, b)") for n in types
    )
    events = drawn(seed, batches * 8)
    for batch in range(batches):
        some = events[batch * 8 : batch * 8 + 8]
        spark_catalog.sql(
            f"INSERT INTO plake.{space}.changes VALUES " + ", ".join(str(one) for one in some)
        )
        assert run(spark_catalog, space, pipeline, tmp_path) == []
        told = events[: batch * 8 + 8]
        if 1 in types:
            assert rows(spark_catalog, f"SELECT id, name FROM plake.{space}.scd1") == newest(told)
        if 2 in types:
            assert held(spark_catalog, f"plake.{space}.scd2") == periods(told)


# --- tables --------------------------------------------------------------------


@of_43
def test_a_clustered_table_of_a_pipeline_is_updated_by_its_second_run(
    spark_catalog: SparkSession, space: str, tmp_path: Path
) -> None:
    """It failed: the table did not say that it is clustered (CANNOT_UPDATE_PARTITION_COLUMNS)."""
    spark_catalog.sql(f"CREATE TABLE plake.{space}.events AS SELECT 1 AS id, 'a' AS kind")
    pipeline = (
        f"CREATE STREAMING TABLE t CLUSTER BY (kind) AS SELECT * FROM STREAM(plake.{space}.events);"
    )
    assert run(spark_catalog, space, pipeline, tmp_path) == []
    spark_catalog.sql(f"INSERT INTO plake.{space}.events VALUES (2, 'b')")
    assert run(spark_catalog, space, pipeline, tmp_path) == []
    assert rows(spark_catalog, f"SELECT * FROM plake.{space}.t") == [(1, "a"), (2, "b")]
    shown = rows(spark_catalog, f"SHOW CREATE TABLE plake.{space}.t")[0][0]
    assert "PARTITIONED BY" not in shown
    assert "'cluster_by' = 'kind'" in shown


def test_another_format_on_plake_s_catalog_is_refused_and_a_type_may_change(
    spark_catalog: SparkSession, space: str, tmp_path: Path
) -> None:
    """`USING parquet` made a table of plake in silence; a type could not change."""
    view = f"CREATE MATERIALIZED VIEW v{{using}} AS SELECT {{value}} AS x FROM plake.{space}.one"
    spark_catalog.sql(f"CREATE TABLE plake.{space}.one AS SELECT 1 AS id")
    refused = run(spark_catalog, space, view.format(using=" USING parquet", value="'a'"), tmp_path)
    assert "'USING' (given: 'parquet')" in refused[0]
    for using, value, expected in (
        (" USING plake", "'a'", "a"),
        (" USING plake", "5L", 5),
        ("", "array(1)", [1]),
    ):
        assert run(spark_catalog, space, view.format(using=using, value=value), tmp_path) == []
        assert rows(spark_catalog, f"SELECT x FROM plake.{space}.v") == [(expected,)]
    again = run(spark_catalog, space, view.format(using=" USING orc", value="1"), tmp_path)
    assert "'USING' (given: 'orc')" in again[0]
    with pytest.raises(Exception, match=r"'USING' \(given: 'parquet'\)"):
        spark_catalog.sql(f"CREATE TABLE plake.{space}.p (a INT) USING parquet")
    spark_catalog.range(1).write.saveAsTable(f"plake.{space}.saved")  # names no format itself
    assert rows(spark_catalog, f"SELECT * FROM plake.{space}.saved") == [(0,)]


@pytest.mark.long
def test_views_flows_failures_refreshes_and_a_dry_run(
    spark_catalog: SparkSession, space: str, tmp_path: Path
) -> None:
    def has(query: str) -> list[tuple[Any, ...]]:
        return rows(spark_catalog, query.replace("@", f"plake.{space}."))

    spark_catalog.sql(f"CREATE TABLE plake.{space}.one AS SELECT 1 AS id, 'a' AS kind")
    spark_catalog.sql(f"CREATE TABLE plake.{space}.two AS SELECT 2 AS id")
    pipeline = f"""
        CREATE MATERIALIZED VIEW kinds PARTITIONED BY (kind) COMMENT 'by kind'
          TBLPROPERTIES ('team' = 'x')
          AS SELECT kind, count(*) AS n FROM plake.{space}.one GROUP BY kind;
        CREATE TEMPORARY VIEW many AS SELECT * FROM kinds WHERE n > 0;
        CREATE MATERIALIZED VIEW of_view AS SELECT kind FROM many;
        CREATE STREAMING TABLE both;
        CREATE FLOW f1 AS INSERT INTO both BY NAME SELECT id FROM STREAM(plake.{space}.one);
        CREATE FLOW f2 AS INSERT INTO both BY NAME SELECT id FROM STREAM(plake.{space}.two);
    """
    assert run(spark_catalog, space, pipeline, tmp_path, dry=True) == []
    for _ in range(2):
        assert run(spark_catalog, space, pipeline, tmp_path) == []
    assert has("SELECT * FROM @both") == [(1,), (2,)]
    assert has("SELECT kind FROM @of_view") == [("a",)]
    assert ("team", "x") in has("SHOW TBLPROPERTIES @kinds")
    spark_catalog.sql(f"INSERT INTO plake.{space}.one VALUES (3, 'b')")
    assert run(spark_catalog, space, pipeline, tmp_path, full_refresh=["both"]) == []
    assert has("SELECT * FROM @both") == [(1,), (2,), (3,)]
    odd = "CREATE MATERIALIZED VIEW odd AS SELECT CAST(raise_error('so') AS INT) AS x FROM kinds;"
    failures = run(spark_catalog, space, pipeline + odd, tmp_path, full_refresh=None)
    assert any("[USER_RAISED_EXCEPTION] so" in failure for failure in failures)
    assert has("SELECT * FROM @both") == [(1,), (2,), (3,)]
    assert has("SELECT kind FROM @kinds") == [("a",), ("b",)]


# --- sinks ---------------------------------------------------------------------


def test_a_stream_by_format_goes_into_a_table_by_its_name(
    spark_catalog: SparkSession, space: str, tmp_path: Path
) -> None:
    """A sink of a pipeline has options alone, and `tableName` was unknown."""
    spark_catalog.sql(f"CREATE TABLE plake.{space}.t AS SELECT 1 AS id")
    spark_catalog.sql(f"CREATE TABLE plake.{space}.copy (id INT)")

    def start(name: str, **more: str) -> None:
        stream = spark_catalog.readStream.table(f"plake.{space}.t").writeStream.format("plake")
        stream = stream.options(tableName=name, **more).trigger(availableNow=True)
        stream.option(
            "checkpointLocation", str(tmp_path / f"{name}{len(more)}")
        ).start().awaitTermination()

    start(f"plake.{space}.copy")
    assert rows(spark_catalog, f"SELECT * FROM plake.{space}.copy") == [(1,)]
    with pytest.raises(Exception, match="none"):
        start(f"plake.{space}.none")
    with pytest.raises(Exception, match=r"leave the option path out"):
        start(f"plake.{space}.copy", path=str(tmp_path / "other"))

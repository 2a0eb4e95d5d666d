"""Storage options in Spark: executors open files with them, and they come out nowhere."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle
from pyspark.sql.types import LongType, StructField, StructType

import lakehouse_source as lake
from lakehouse_source.spark.source import PlakeDataSource
from tests.doors.logged_session import run_logged
from tests.edges.object_stores import AZURE_KEY, s3

CANARY = "CANARY-95c2"
SCHEMA = StructType([StructField("id", LongType(), False)])

SCRIPT = """
    uri, catalog, endpoint, foreign = sys.argv[1:]
    options = {
        "access_key": "env:PLAKE_STORE_KEY",
        "secret_key": "env:PLAKE_STORE_SECRET",
        "ENDPOINT_URL": endpoint,
        "region": "us-east-1",
    }
    given = {f"storage.{name}": value for name, value in options.items()}
    given = {"path": uri, "catalog": catalog, **given}
    spark.range(3).write.format("plake").mode("append").options(**given).save()
    lake.spark.write(spark.range(3, 6), uri, catalog=catalog, storage_options=options)
    frame = spark.read.format("plake").options(**given).load()
    for mode in ("extended", "formatted"):
        frame.where("id >= 1").explain(mode=mode)
    print("rows", sorted(row.id for row in frame.where("id >= 1").collect()))
    listed = ", ".join(f"'{key}' '{value}'" for key, value in given.items())
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW v USING plake OPTIONS ({listed})")
    print("view", spark.sql("SELECT count(*) FROM v").first())
    taken = lake.spark.convert(spark, foreign, catalog=catalog, storage_options=options)
    print("taken", taken.scan().count_rows())
"""


def test_a_raw_secret_among_the_options_is_refused(tmp_path: Path) -> None:
    for uri, name in (
        ("s3://b/x", "secret_key"),
        ("s3://b/x", "AWS_SESSION_TOKEN"),
        ("s3://b/x", "misspelt"),
        ("abfs://c@a.dfs.core.windows.net/x", "account_key"),
        ("sftp://h/x", "password"),
    ):
        options = {"path": uri, "catalog": f"sqlite://{tmp_path}/c.db", f"storage.{name}": CANARY}
        source = PlakeDataSource(dict(options))
        for act in (lambda: source.writer(SCHEMA, False), source.schema):  # noqa: B023
            with pytest.raises(lake.InvalidOptionError, match="env:NAME") as caught:
                act()
            assert name in str(caught.value)
            assert CANARY not in str(caught.value) + repr(vars(caught.value))


def test_only_readers_and_writers_hold_the_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The data source has the variable's name, and what is printed has no value."""
    monkeypatch.setenv("PLAKE_STORE_SECRET", AZURE_KEY)
    monkeypatch.setenv("PLAKE_HOSTS_ALLOWED", "account.dfs.core.windows.net")
    # There is no such account whose folder could be looked at.
    monkeypatch.setattr("lakehouse_source.write.commit.begin.claim", lambda *_, **__: None)
    options = {
        "path": "abfs://container/x",
        "catalog": f"sqlite://{tmp_path}/catalog.db",
        "storage.account_name": "account",
        "storage.account_key": "env:PLAKE_STORE_SECRET",
    }
    source = PlakeDataSource(options)
    writer = source.writer(SCHEMA, False)
    monkeypatch.delenv("PLAKE_STORE_SECRET")
    there = cloudpickle.loads(cloudpickle.dumps(writer))
    assert there.staged.spec.uri.options["account_key"] == AZURE_KEY
    assert AZURE_KEY.encode() not in cloudpickle.dumps(source)
    for thing in (source.options, vars(source), vars(writer), writer.staged, there.staged.spec):
        assert AZURE_KEY not in repr(thing)
    assert AZURE_KEY.encode() not in (tmp_path / "catalog.db").read_bytes()


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.spark
def test_the_event_log_and_the_drivers_log_do_not_hold_the_secret(tmp_path: Path) -> None:
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
        "AWS_EC2_METADATA_DISABLED": "true",
        "PLAKE_HOSTS_ALLOWED": "127.0.0.1",
        "PLAKE_STORE_KEY": "user",
        "PLAKE_STORE_SECRET": CANARY,
    }
    with s3() as store:
        foreign = f"{store.root}/foreign"
        for number in range(3):
            pq.write_table(_table(number), f"{foreign}/{number}.parquet", filesystem=store.client)
        arguments = [f"{store.base}/data/things", f"sqlite://{tmp_path}/catalog.db"]
        arguments += [store.options["endpoint_override"], f"s3://{foreign}"]
        logged = run_logged(SCRIPT, arguments, environment, tmp_path)
        assert len(store.objects("data/things")) >= 2
    assert "rows [1, 2, 3, 4, 5]" in logged.printed
    assert "view Row(count(1)=6)" in logged.printed
    assert "taken 3" in logged.printed
    assert CANARY not in logged.output
    assert [line for line in logged.events if CANARY in line] == []
    assert CANARY.encode() not in (tmp_path / "catalog.db").read_bytes()


def _table(number: int) -> Any:
    import pyarrow as pa

    return pa.table({"id": [number]})

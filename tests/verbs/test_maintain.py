"""Rows that are too old go with the regular upkeep, by one clock."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakehouse_source as lake
from lakehouse_source.catalog.sql.history_reader import HistoryReader
from lakehouse_source.language import Scope
from lakehouse_source.write.statements.delete_and_update import expired_rows
from lakehouse_source.write.statements.row_statement import row_condition
from tests.verbs.conftest import catalog_of
from tests.verbs.test_erasure import holding

pytestmark = [pytest.mark.slow, pytest.mark.one_catalog]

catalog = catalog_of("sqlite", "postgres", "duckdb")
NOW = datetime.now(timezone.utc)
DAYS = [0, 1, 29, 31, 60, None]
INSTANT = pa.timestamp("us", "UTC")
CONDITION = "ts < now() - interval 30 days"


def events(type_: pa.DataType = INSTANT) -> pa.Table:
    moments = [None if days is None else NOW - timedelta(days=days) for days in DAYS]
    return pa.table(
        {
            "id": pa.array(range(len(DAYS)), pa.int64()),
            "ts": pa.array(moments, pa.timestamp("us", "UTC")).cast(type_),
            "who": [f"visitor-{n:05d}@example.org" for n in range(len(DAYS))],
        }
    )


@pytest.fixture
def dataset(tmp_path: Path, catalog: lake.Catalog) -> lake.Dataset:
    uri = str(tmp_path / "events")
    for row in range(len(DAYS)):  # a file for each
        lake.write_dataset(events().slice(row, 1), uri, catalog=catalog, compression="none")
    opened = lake.open_dataset(uri, catalog=catalog)
    opened.set_properties(expire_rows=CONDITION)
    return opened


def ids(dataset: lake.Dataset) -> list[int]:
    return sorted(dataset.refresh().scan().to_table()["id"].to_pylist())


def test_expired_rows_are_deleted_and_their_bytes_with_the_old_versions(
    dataset: lake.Dataset, tmp_path: Path
) -> None:
    dry = dataset.maintain(dry_run=True, compact=True, keep_last=1)
    assert (dry.rows_expired, dry.compaction, dry.expiry, dry.version) == (2, None, None, 7)
    assert ids(dataset) == [0, 1, 2, 3, 4, 5]
    report = dataset.maintain(
        compact=True, keep_last=1, retention_seconds=0, allow_short_retention=True
    )
    assert (report.rows_expired, report.version, dataset.version) == (2, 9, 9)
    assert report.compaction is not None
    assert report.compaction.files_removed == 4
    assert ids(dataset) == [0, 1, 2, 5]
    assert holding(tmp_path / "events", "visitor-00003@") == set()
    assert "2 deleted" in str(report)
    again = dataset.maintain()
    assert (again.rows_expired, again.compaction, again.expiry, again.version) == (0, None, None, 9)


def test_the_clock_is_that_of_the_database_and_asked_once(
    dataset: lake.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def now(self: HistoryReader) -> datetime:
        asked.append(1)
        return NOW + timedelta(days=10 * len(asked))

    monkeypatch.setattr(HistoryReader, "now", now)
    dataset.set_properties(expire_rows=f"{CONDITION} OR ts < now() - interval 720 hours")
    asked.clear()
    assert dataset.maintain().rows_expired == 3
    assert ids(dataset) == [0, 1, 5]
    assert dataset.history()[0].operation == "delete"
    assert "now()" in dataset.history()[0].metadata["expire_rows"]


@pytest.mark.long
def test_old_files_are_found_by_their_statistics(dataset: lake.Dataset) -> None:
    schema = dataset._snapshot.schema
    found = expired_rows(CONDITION, schema, NOW)
    assert dataset.scan(found).explain().files_read == 2


@pytest.mark.parametrize(
    ("type_", "condition", "left"),
    [
        (pa.timestamp("us"), CONDITION, [0, 1, 2, 5]),
        (pa.date32(), "ts < current_date() - interval 30 days", [0, 1, 2, 5]),
        (pa.timestamp("us", "UTC"), f"{CONDITION} AND id <> 4", [0, 1, 2, 4, 5]),
        (pa.timestamp("us", "UTC"), f"ts IS NULL OR {CONDITION}", [0, 1, 2]),
    ],
)
def test_conditions_of_other_types(
    tmp_path: Path, type_: pa.DataType, condition: str, left: list[int]
) -> None:
    uri = str(tmp_path / "events")
    lake.write_dataset(events(type_), uri)
    dataset = lake.open_dataset(uri)
    dataset.set_properties(expire_rows=condition)
    assert dataset.properties["expire_rows"] == condition
    assert dataset.maintain(dry_run=True).rows_expired == len(DAYS) - len(left)
    assert dataset.maintain().rows_expired == len(DAYS) - len(left)
    assert ids(dataset) == left


@pytest.mark.parametrize(
    "condition",
    [
        "TRUE",
        "now() > '2020-01-01'",
        "ts <",
        "nothing < now()",
        "ts + 1",
        "ts < now() - interval 1 month",
        "ts < now(); DROP TABLE x",
        "ts < (SELECT max(ts) FROM x)",
        "",
        3,
    ],
)
def test_what_is_no_condition_on_rows_is_refused(tmp_path: Path, condition: Any) -> None:
    uri = str(tmp_path / "events")
    lake.write_dataset(events(), uri)
    dataset = lake.open_dataset(uri)
    with pytest.raises(lake.InvalidOptionError, match="expire_rows"):
        dataset.set_properties(expire_rows=condition)
    assert dataset.refresh().version == 1


def test_a_renamed_column_ends_the_expiry_with_an_error_and_deletes_nothing(
    dataset: lake.Dataset,
) -> None:
    dataset.rename_column("ts", "at")
    with pytest.raises(lake.InvalidOptionError, match="expire_rows"):
        dataset.maintain()
    assert ids(dataset) == [0, 1, 2, 3, 4, 5]
    dataset.set_properties(expire_rows=None)
    assert "expire_rows" not in dataset.properties
    assert dataset.maintain().rows_expired is None


def test_moments_prune(tmp_path: Path) -> None:
    uri = str(tmp_path / "events")
    lake.write_dataset(events(), uri)
    schema = lake.open_dataset(uri)._snapshot.schema
    for text in ("ts < now() - interval 1 day", "ts >= now()", "ts < current_timestamp()"):
        scope = Scope({"target": schema}, now=NOW)
        found = row_condition(text, schema, scope)
        assert all(one.whole for one in found.bind(schema).meanings), text

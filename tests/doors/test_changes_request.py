"""Which range a frame of the change feed reads, and which commits a condition leaves of it."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

import lakehouse_source as lake
from lakehouse_source.spark.reading.changes_read import ChangesReader, ChangesRequest
from lakehouse_source.spark.reading.pushdown import Pushdown
from tests.doors.pushed import call, comparison


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """1: two rows; 2: another; 3: a delete of a file; 4: an update; 5: a column more."""
    uri = str(tmp_path_factory.mktemp("request") / "data")
    lake.write_dataset({"id": [1, 2]}, uri)
    lake.write_dataset({"id": [3]}, uri)
    dataset = lake.open_dataset(uri)
    dataset.delete("id = 3")
    dataset.update({"id": "10"}, where="id = 1")
    dataset.refresh().add_column("more", pa.int64())
    dataset.refresh().tag("third", 3)
    return uri


def request(path: str, **options: Any) -> ChangesRequest:
    given = {"path": path, **{name.lower(): str(value) for name, value in options.items()}}
    return ChangesRequest.of(given, {})


def bounds(path: str, **options: Any) -> tuple[int, int]:
    found = request(path, **options)
    return found.start, found.end


def moment(path: str, version: int) -> str:
    found = {one.version: one.timestamp for one in lake.open_dataset(path).history()}
    return found[version].isoformat()


def test_versions_are_included_unless_they_are_excluded(path: str) -> None:
    assert bounds(path, startingVersion=2) == (2, 5)
    assert bounds(path, startingVersion=2, endingVersion=3) == (2, 3)
    assert bounds(path, startingVersion="third") == (3, 5)
    out = {"startingBoundInclusive": "false"}
    assert bounds(path, startingVersion=2, endingVersion=4, **out) == (3, 4)
    out["endingBoundInclusive"] = "false"
    assert bounds(path, startingVersion=2, endingVersion=4, **out) == (3, 3)
    assert bounds(path, startingVersion="third", endingVersion=5, **out) == (4, 4)


def test_moments_are_included_unless_they_are_excluded(path: str) -> None:
    second, fourth = moment(path, 2), moment(path, 4)
    assert bounds(path, startingTimestamp=second, endingTimestamp=fourth) == (2, 4)
    out = {"startingBoundInclusive": "false"}
    assert bounds(path, startingTimestamp=second, endingTimestamp=fourth, **out) == (3, 4)
    out["endingBoundInclusive"] = "false"
    assert bounds(path, startingTimestamp=second, endingTimestamp=fourth, **out) == (3, 3)
    assert bounds(path, startingTimestamp="2200-01-01T00:00Z") == (6, 5)


@pytest.mark.parametrize(("start", "end"), [(3, 3), (3, 4), (1, 1)])
def test_a_range_of_which_all_is_excluded_is_empty(path: str, start: int, end: int) -> None:
    found = request(
        path,
        startingVersion=start,
        endingVersion=end,
        startingBoundInclusive="false",
        endingBoundInclusive="false",
    )
    assert found.start == found.end + 1
    assert ChangesReader(found, Pushdown(found.schema())).partitions() == []


def test_the_columns_are_those_of_the_last_version_of_the_range(path: str) -> None:
    assert request(path, startingVersion=1).columns == ("id", "more")
    assert request(path, startingVersion=1, endingVersion=4).columns == ("id",)
    out = {"endingBoundInclusive": "false"}
    assert request(path, startingVersion=1, endingVersion=5, **out).columns == ("id",)


def test_modes(path: str) -> None:
    assert not request(path, startingVersion=1).net
    assert request(path, startingVersion=1).updates
    for mode, net in (("none", False), ("DROPCARRYOVERS", False), ("netchanges", True)):
        assert request(path, startingVersion=1, deduplicationMode=mode).net is net
    assert not request(path, startingVersion=1, computeUpdates="false").updates


def told(path: str, *terms: dict[str, Any], **options: Any) -> list[tuple[int, str, int]]:
    """What the parts that are planned under conditions tell, without Spark's filter after that."""
    asked = request(path, startingVersion=1, **options)
    schema = StructType([asked.schema()["id"], *asked.schema().fields[-3:]])
    reader = ChangesReader(asked, Pushdown(schema, isolated=True, condition=terms))
    parts = [part for some in reader.partitions() for part in [some]]
    task = pickle.loads(pickle.dumps(reader))
    rows = [row for part in parts for batch in task.read(part) for row in batch.to_pylist()]
    return sorted((row["_commit_version"], row["_change_type"], row["id"]) for row in rows)


EVERYTHING = [
    *[(1, "insert", 1), (1, "insert", 2), (2, "insert", 3), (3, "delete", 3)],
    *[(4, "update_postimage", 10), (4, "update_preimage", 1)],
]


def test_conditions_on_the_columns_of_the_feed_leave_commits_out(path: str) -> None:
    assert told(path) == EVERYTHING
    version = comparison("_commit_version", "=", "bigint", "3")
    assert told(path, version) == [(3, "delete", 3)]
    deleted = comparison("_change_type", "=", "string", "delete")
    assert (3, "delete", 3) in told(path, deleted)
    assert (2, "insert", 3) not in told(path, deleted)
    inserted = comparison("_change_type", "=", "string", "insert")
    assert told(path, inserted)[:3] == EVERYTHING[:3]
    assert (3, "delete", 3) not in told(path, inserted)
    updated = comparison("_change_type", "startswith", "string", "update")
    assert told(path, updated) == EVERYTHING[4:]
    never = comparison("_commit_timestamp", "<", "timestamp", "0")
    assert told(path, never) == []


def test_conditions_on_rows_hold_for_each_image(path: str) -> None:
    one = comparison("id", "=", "bigint", "1")
    assert told(path, one) == [(1, "insert", 1), (4, "update_preimage", 1)]
    either = call("or", one, comparison("_commit_version", "=", "bigint", "3"))
    assert set(EVERYTHING) >= set(told(path, either)) >= {EVERYTHING[0], EVERYTHING[3]}


def test_net_changes_are_told_with_the_last_commit_of_each_row(path: str) -> None:
    net = [(1, "insert", 2), (4, "insert", 10)]
    assert told(path, deduplicationMode="netChanges") == net
    # The version of a row is not that of a part: nothing may be left out by it.
    version = comparison("_commit_version", "=", "bigint", "4")
    assert set(told(path, version, deduplicationMode="netChanges")) >= {net[1]}


def test_updates_without_images(path: str) -> None:
    without = [*EVERYTHING[:4], (4, "delete", 1), (4, "insert", 10)]
    assert told(path, computeUpdates="false") == without
    deleted = comparison("_change_type", "=", "string", "delete")
    assert {(3, "delete", 3), (4, "delete", 1)} <= set(told(path, deleted, computeUpdates="false"))

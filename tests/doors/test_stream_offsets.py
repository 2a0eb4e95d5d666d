"""Batches of a stream over random histories, without Spark: each appended row once.

`Engine` calls the reader as Spark's micro-batch engine does, in the order that was observed with
4.1 and 4.3, and is killed between its steps.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakehouse_source as lake
from lakehouse_source.model import SeenVersion, TransactionRecord
from lakehouse_source.read.address import Address
from lakehouse_source.spark.reading.stream_read import HAS_LIMITS, PlakeStreamReader, stream_request
from lakehouse_source.spark.source import PlakeDataSource
from lakehouse_source.spark.types import spark_schema
from lakehouse_source.streaming import Effect, Rules, effect_of, position_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not HAS_LIMITS, reason="PySpark 4.1 asks a source for no limits"),
]


class Killed(Exception):
    """The process of the query ends here."""


def new_reader(uri: str, **options: str) -> PlakeStreamReader:
    """The reader of a query that is loaded now."""
    address = Address(uri, None)
    with address.open() as catalog, catalog.read() as reader:
        newest = address.snapshot(catalog, reader)
    lowered = {"path": uri, **{name.lower(): text for name, text in options.items()}}
    request = stream_request(lowered, {}, newest.schema_version, None)
    return PlakeStreamReader(request, spark_schema(newest.schema))


def read(reader: PlakeStreamReader, start: Any, end: Any) -> list[int]:
    """The ids of the rows of a batch, in order."""
    found: list[int] = []
    for partition in reader.partitions(start, end):
        for batch in reader.read(partition):
            found += batch.column("id").to_pylist()
    return sorted(found)


class Engine:
    """One query with its checkpoint and a sink that takes each batch once."""

    def __init__(self, uri: str, spark: str, chance: random.Random, **options: str) -> None:
        self.uri, self.spark, self.chance, self.options = uri, spark, chance, options
        self.offsets: list[Any] = []  # the end of each batch
        self.committed = 0
        self.sink: dict[int, Any] = {}
        self.reader: PlakeStreamReader | None = None
        self.kills = 0.1

    def load(self) -> PlakeStreamReader:
        """What a user does after a restart."""
        return new_reader(self.uri, **self.options)

    def read(self, start: Any, end: Any) -> Any:
        """What the sink gets of a batch."""
        assert self.reader is not None
        return read(self.reader, start, end)

    def _step(self) -> None:
        if self.chance.random() < self.kills:
            self.reader = None
            raise Killed

    def trigger(self) -> bool:
        """One round of the query; False where there was nothing to do."""
        try:
            return self._trigger()
        except Killed:
            return True

    def _trigger(self) -> bool:
        if self.reader is None:
            self.reader = self.load()
            done = self.committed and self.committed == len(self.offsets)
            if self.spark == "4.1" and done and self.chance.random() < 0.5:
                assert self.reader.partitions(self.offsets[-1], self.offsets[-1]) == []
        if len(self.offsets) > self.committed:
            self._run(self.reader)
            return True
        last = self.offsets[-1] if self.offsets else None
        if self.spark == "4.1":
            end = self.reader.latestOffset()
            self._step()
            start = last or self.reader.initialOffset()
        else:
            start = last or self.reader.initialOffset()
            self._step()
            end = self.reader.latestOffset(start, self.reader.getDefaultReadLimit())
        if last is not None and end == last:
            return False
        self.offsets.append(json.loads(json.dumps(end)))
        self._step()
        self._run(self.reader)
        return True

    def _run(self, reader: PlakeStreamReader) -> None:
        batch = self.committed
        start = self.offsets[batch - 1] if batch else reader.initialOffset()
        rows = self.read(start, self.offsets[batch])
        self._step()
        self.sink.setdefault(batch, rows)
        self._step()
        self.committed += 1

    @property
    def rows(self) -> Counter[int]:
        return Counter(row for rows in self.sink.values() for row in rows)

    @property
    def snapshot(self) -> int:
        """The version whose rows the query read first."""
        first = self.offsets[0]
        return int(first["snapshot"] or first["version"] - 1)


class History:
    """Random commits; remembers which rows each version has and which it appended."""

    def __init__(self, uri: str, chance: random.Random) -> None:
        self.uri, self.chance = uri, chance
        self.next = 0
        self.live: dict[int, set[int]] = {0: set()}
        self.appended: dict[int, set[int]] = {}
        self.columns = ["id", "k"]
        self.partition_by = chance.choice([None, "k"])
        self.append()

    def _new(self) -> pa.Table:
        count = self.chance.randint(1, 4)
        ids = list(range(self.next, self.next + count))
        self.next += count
        table = pa.table({name: pa.array(ids, pa.int64()) for name in self.columns})
        return table.set_column(1, "k", pa.array([id % 2 for id in ids], pa.int64()))

    @property
    def version(self) -> int:
        return max(self.live)

    def _done(self, version: int, rows: set[int], appended: set[int] | None = None) -> None:
        if version > self.version:
            self.live[version] = rows
            if appended is not None:
                self.appended[version] = appended

    def append(self) -> None:
        table = self._new()
        rows = set(table["id"].to_pylist())
        result = lake.write_dataset(table, self.uri, partition_by=self.partition_by)
        self._done(result.version, self.live[self.version] | rows, rows)

    def overwrite(self) -> None:
        table = self._new()
        rows = set(table["id"].to_pylist())
        before = self.live[self.version]
        result = lake.write_dataset(table, self.uri, mode="overwrite")
        self._done(result.version, rows, None if before else rows)

    def delete(self) -> None:
        low = self.chance.randint(0, self.next)
        result = lake.open_dataset(self.uri).delete(f"id BETWEEN {low} AND {low + 3}")
        before = self.live[self.version]
        self._done(result.version, {row for row in before if not low <= row <= low + 3})

    def update(self) -> None:
        if len(self.columns) > 2:
            low = self.chance.randint(0, self.next)
            name = self.columns[2]
            dataset = lake.open_dataset(self.uri)
            result = dataset.update({name: f"{name} + 1"}, f"id BETWEEN {low} AND {low + 3}")
            self._done(result.version, self.live[self.version])

    def insert_by_merge(self) -> None:
        table = self._new()
        rows = set(table["id"].to_pylist())
        merge = lake.open_dataset(self.uri).merge(table, "target.id = source.id")
        result = merge.when_not_matched_insert_all().execute()
        self._done(result.version, self.live[self.version] | rows, rows)

    def restore(self) -> None:
        dataset = lake.open_dataset(self.uri)
        oldest = dataset.history().oldest_version
        version = self.chance.randint(oldest, self.version)
        result = dataset.restore(version)
        self.columns = lake.open_dataset(self.uri).schema.names
        self._done(result.version, self.live[version])

    def add_column(self) -> None:
        if len(self.columns) < 4:
            name = f"c{self.version}"
            result = lake.open_dataset(self.uri).add_column(name, pa.int64())
            self.columns.append(name)
            self._done(result.version, self.live[self.version])

    def set_properties(self) -> None:
        rows = self.chance.randint(1000, 2000)
        result = lake.open_dataset(self.uri).set_properties(row_group_rows=rows)
        self._done(result.version, self.live[self.version])

    def compact(self) -> None:
        result = lake.open_dataset(self.uri).compact()
        self._done(result.version, self.live[self.version])

    def any(self) -> None:
        steps = [self.append, self.append, self.append, self.overwrite, self.delete]
        steps += [self.update, self.insert_by_merge, self.restore, self.add_column]
        self.chance.choice([*steps, self.set_properties, self.compact, self.compact])()

    def expected(self, snapshot: int) -> Counter[int]:
        """The rows that a stream must have that began with a snapshot."""
        found = Counter(self.live[snapshot])
        for version, rows in self.appended.items():
            if version > snapshot:
                found.update(rows)
        return found


@pytest.mark.parametrize("spark", ["4.1", "4.3"])
@pytest.mark.parametrize("seed", range(6))
def test_each_appended_row_is_read_once_over_any_history_and_any_kills(
    seed: int, spark: str, tmp_path: Path
) -> None:
    chance = random.Random(seed)
    uri = str(tmp_path / "source")
    history = History(uri, chance)
    for _ in range(chance.randint(0, 3)):
        history.any()
    limit = str(chance.randint(1, 3))
    engine = Engine(uri, spark, chance, maxFilesPerTrigger=limit, skipChangeCommits="true")
    for _ in range(25):
        for _ in range(chance.randint(0, 2)):
            history.any()
        for _ in range(chance.randint(0, 3)):
            try:
                engine.trigger()
            except lake.StreamSchemaError:
                engine.reader = None  # its user loads it again
        if chance.random() < 0.1:
            # Expiry and vacuum, as far as the stream has come.
            dataset = lake.open_dataset(uri)
            read_to = engine.offsets[-1] if engine.offsets else None
            if read_to is not None and engine.committed == len(engine.offsets):
                first = read_to["snapshot"] or read_to["version"]
                keep = dataset.version - min(first, dataset.version) + 1
                dataset.expire_versions(keep_last=keep)
                dataset.vacuum(retention_seconds=0, allow_short_retention=True)
    engine.kills = 0
    for _ in range(200):
        try:
            if not engine.trigger():
                break
        except lake.StreamSchemaError:
            engine.reader = None
    else:
        raise AssertionError("the stream does not come to an end")
    assert engine.rows == history.expected(engine.snapshot)


# --- single rules --------------------------------------------------------------------


@pytest.fixture
def uri(tmp_path: Path) -> str:
    uri = str(tmp_path / "source")
    for number in range(3):
        lake.write_dataset({"id": [number]}, uri)
    return uri


def drain(reader: PlakeStreamReader, start: Any = None) -> tuple[list[list[int]], Any]:
    """The rows of each batch until there is nothing more, and the last offset."""
    batches = []
    start = reader.initialOffset() if start is None else start
    for _ in range(50):
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        if end == start:
            return batches, end
        batches.append(read(reader, start, end))
        start = end
    raise AssertionError("the stream does not come to an end")


def test_limits_of_files_and_bytes_hold_together(uri: str) -> None:
    assert drain(new_reader(uri))[0] == [[0, 1, 2]]
    assert drain(new_reader(uri, maxFilesPerTrigger="2"))[0] == [[0, 1], [2]]
    size = lake.open_dataset(uri).files()[0].size_bytes
    assert drain(new_reader(uri, maxBytesPerTrigger="1"))[0] == [[0], [1], [2]]
    assert drain(new_reader(uri, maxBytesPerTrigger=str(size + 1)))[0] == [[0, 1], [2]]
    both = {"maxBytesPerTrigger": str(size + 1), "maxFilesPerTrigger": "1"}
    assert drain(new_reader(uri, **both))[0] == [[0], [1], [2]]


def test_a_snapshot_is_that_of_the_first_batch_after_restarts_too(uri: str) -> None:
    reader = new_reader(uri, maxFilesPerTrigger="1")
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    lake.write_dataset({"id": [9]}, uri)
    # The first batch is repeated: its start is asked for anew.
    again = new_reader(uri, maxFilesPerTrigger="1")
    assert read(again, again.initialOffset(), end) == [0]
    assert drain(again, end)[0] == [[1], [2], [9]]
    lake.open_dataset(uri).compact()
    again = new_reader(uri, maxFilesPerTrigger="1")
    assert read(again, again.initialOffset(), end) == [0]
    assert drain(again, end)[0] == [[1], [2], [9]]
    whole = new_reader(uri)
    end = whole.latestOffset(whole.initialOffset(), whole.getDefaultReadLimit())
    lake.write_dataset({"id": [10]}, uri, mode="overwrite")
    again = new_reader(uri)
    assert sorted(read(again, again.initialOffset(), end)) == [0, 1, 2, 9]


def test_a_stream_begins_at_a_version_the_next_one_or_a_time(uri: str) -> None:
    assert drain(new_reader(uri, startingVersion="2"))[0] == [[1, 2]]
    moment = lake.open_dataset(uri).history()[0].timestamp.isoformat()
    assert drain(new_reader(uri, startingTimestamp=moment))[0] == [[2]]
    lake.open_dataset(uri).expire_versions(keep_last=1)
    with pytest.raises(lake.VersionNotFoundError, match="expired"):
        drain(new_reader(uri, startingVersion="1"))
    with pytest.raises(lake.VersionNotFoundError):
        drain(new_reader(uri, startingVersion="99"))
    with pytest.raises(lake.InvalidOptionError, match="startingTimestamp"):
        drain(new_reader(uri, startingVersion="2", startingTimestamp=moment))
    with pytest.raises(lake.InvalidOptionError, match=r"'startingTimestamp' .*not an ISO 8601"):
        drain(new_reader(uri, startingTimestamp="yesterday"))


@pytest.mark.parametrize(
    "options",
    [
        {"startingVersion": "latest"},
        {"startingVersion": "4"},
    ],
)
def test_a_stream_can_begin_after_all_that_is_there(uri: str, options: dict[str, str]) -> None:
    reader = new_reader(uri, **options)
    batches, end = drain(reader)
    assert batches == []
    lake.write_dataset({"id": [7]}, uri)
    assert drain(reader, end)[0] == [[7]]


def test_a_stream_can_begin_at_a_time_after_the_newest_version(uri: str) -> None:
    time.sleep(0.01)
    reader = new_reader(uri, startingTimestamp=datetime.now(timezone.utc).isoformat())
    batches, end = drain(reader)
    assert batches == []
    lake.write_dataset({"id": [7]}, uri)
    assert drain(reader, end)[0] == [[7]]


def test_a_stream_can_begin_in_the_millisecond_of_now(uri: str) -> None:
    """SQLite's clock drops the microseconds: such a time was refused as one in the future."""
    for _ in range(50):  # most of them ask within the millisecond of their time
        now = datetime.now(timezone.utc)
        assert drain(new_reader(uri, startingTimestamp=now.isoformat()))[0] == []


def test_a_stream_that_would_begin_in_the_future_is_refused(uri: str) -> None:
    """It read rows that were committed before that time."""
    with pytest.raises(lake.InvalidOptionError, match="in the future"):
        drain(new_reader(uri, startingTimestamp="2100-01-01T00:00Z"))


def test_a_stream_from_latest_keeps_its_place_over_a_restart(uri: str) -> None:
    reader = new_reader(uri, startingVersion="latest")
    start = reader.initialOffset()
    lake.write_dataset({"id": [7]}, uri)
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert end == start  # Spark runs the first batch all the same, and notes it
    again = new_reader(uri, startingVersion="latest")
    assert read(again, again.initialOffset(), end) == []
    assert drain(again, end)[0] == [[7]]


def test_changes_end_a_stream_after_the_rows_before_them(uri: str) -> None:
    reader = new_reader(uri)
    _, end = drain(reader)
    lake.write_dataset({"id": [3]}, uri)
    lake.open_dataset(uri).delete("id = 0")
    lake.write_dataset({"id": [4]}, uri)
    then = reader.latestOffset(end, reader.getDefaultReadLimit())
    assert read(reader, end, then) == [3]
    with pytest.raises(lake.StreamChangeError, match="ignoreDeletes") as raised:
        reader.latestOffset(then, reader.getDefaultReadLimit())
    assert (raised.value.version, raised.value.operation) == (5, "delete")
    assert drain(new_reader(uri, ignoreDeletes="true"), then)[0] == [[4]]
    lake.write_dataset({"id": [5]}, uri, mode="overwrite")
    with pytest.raises(lake.StreamChangeError, match="skipChangeCommits"):
        drain(new_reader(uri, ignoreDeletes="true"), then)
    assert drain(new_reader(uri, skipChangeCommits="true"), then)[0] == [[4]]


def test_rows_are_those_of_the_commit_though_they_were_deleted_since(uri: str) -> None:
    end = drain(new_reader(uri))[1]
    lake.write_dataset({"id": [3, 4, 5, 6]}, uri)
    lake.open_dataset(uri).delete("id = 4")
    reader = new_reader(uri, skipChangeCommits="true")
    assert drain(reader, end)[0] == [[3, 4, 5, 6]]
    lake.write_dataset({"id": [9]}, uri, mode="overwrite")
    assert drain(reader, end)[0] == [[3, 4, 5, 6]]
    # A snapshot has the rows that it had.
    reader = new_reader(uri)
    assert drain(reader)[0] == [[9]]


def test_a_changed_schema_ends_a_stream_until_it_is_loaded_again(uri: str) -> None:
    reader = new_reader(uri)
    end = drain(reader)[1]
    lake.write_dataset({"id": [3]}, uri)
    lake.write_dataset({"id": [4], "note": ["n"]}, uri, schema_merge=True)
    then = reader.latestOffset(end, reader.getDefaultReadLimit())
    assert read(reader, end, then) == [3]
    with pytest.raises(lake.StreamSchemaError, match="same checkpoint") as raised:
        reader.latestOffset(then, reader.getDefaultReadLimit())
    assert raised.value.version == 5
    assert drain(new_reader(uri), then)[0] == [[4]]


def test_a_changed_schema_names_the_columns_that_a_restore_took_away(uri: str) -> None:
    """A stream that lagged behind the restore was told that it would have the new columns."""
    reader = new_reader(uri)
    end = drain(reader)[1]
    lake.write_dataset({"id": [4], "note": ["n"]}, uri, schema_merge=True)
    wide = new_reader(uri, ignoreDeletes="true")
    lake.open_dataset(uri).restore(3)
    with pytest.raises(lake.StreamSchemaError, match=r"no note any more.*come without") as raised:
        reader.latestOffset(end, reader.getDefaultReadLimit())
    assert (raised.value.version, raised.value.gone) == (4, ("note",))
    then = wide.latestOffset(end, wide.getDefaultReadLimit())
    assert read(wide, end, then) == [4]
    with pytest.raises(lake.StreamSchemaError, match=r"no note any more.*come without") as raised:
        wide.latestOffset(then, wide.getDefaultReadLimit())
    assert raised.value.version == 5
    assert drain(new_reader(uri, ignoreDeletes="true"), end)[0] == [[4]]


def test_a_query_that_ended_before_its_first_batch_goes_on_without_what_was_expired(
    uri: str,
) -> None:
    lake.write_dataset({"id": [9]}, uri, mode="overwrite")
    dataset = lake.open_dataset(uri)
    dataset.expire_versions(keep_last=1)
    dataset.vacuum(retention_seconds=0, allow_short_retention=True)
    with pytest.raises(lake.VersionNotFoundError, match="expired"):
        new_reader(uri, startingVersion="2").initialOffset()
    options = {"failOnDataLoss": "false", "skipChangeCommits": "true"}
    reader = new_reader(uri, startingVersion="2", **options)
    start = reader.initialOffset()
    assert (start["version"], start["snapshot"]) == (2, None)
    lake.write_dataset({"id": [10]}, uri)
    assert drain(reader, start)[0] == [[10]]


@pytest.mark.parametrize("partition_by", [None, "k", "other"])
def test_a_stream_that_lags_behind_a_replaced_schema_has_its_partition_values(
    tmp_path: Path, partition_by: str | None
) -> None:
    """They were NULL: the partition columns were those of the newest version."""
    uri = str(tmp_path / "source")
    for number in range(2):
        lake.write_dataset({"id": [number], "k": [f"k{number}"]}, uri, partition_by="k")
    reader = new_reader(uri, startingVersion="1")
    start = reader.initialOffset()
    lake.write_dataset(
        {"id": [7], "k": ["x"], "other": [1]},
        uri,
        mode="overwrite",
        overwrite_schema=True,
        partition_by=partition_by,
    )
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    rows = [
        row
        for partition in reader.partitions(start, end)
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    ]
    assert sorted(rows, key=str) == [{"id": 0, "k": "k0"}, {"id": 1, "k": "k1"}]
    with pytest.raises(lake.StreamSchemaError):
        reader.latestOffset(end, reader.getDefaultReadLimit())


@pytest.mark.long
def test_a_stream_waits_for_a_dataset_that_does_not_exist_yet_or_fails(tmp_path: Path) -> None:
    uri = str(tmp_path / "later")

    def load(**options: str) -> list[str]:
        return PlakeDataSource({"path": uri, **options}).schema().names

    for options in ({}, {"waitForDataset": "0"}, {"waitForDataset": "1"}):
        with pytest.raises(lake.DatasetNotFoundError):
            load(**options)
    with pytest.raises(lake.InvalidOptionError, match="waitForDataset"):
        load(waitForDataset="-1")
    making = threading.Timer(1.0, lake.write_dataset, ({"id": [7]}, uri))
    making.start()
    assert load(waitForDataset="120") == ["id"]
    making.join()


def test_a_checkpoint_of_another_dataset_is_refused(uri: str, tmp_path: Path) -> None:
    end = drain(new_reader(uri))[1]
    other = str(tmp_path / "other")
    for number in range(3):
        lake.write_dataset({"id": [number]}, other)
    for call in (
        lambda: drain(new_reader(other), end),
        lambda: new_reader(other).partitions(end, end),
    ):
        with pytest.raises(lake.StreamCheckpointError, match="another dataset"):
            call()
    with pytest.raises(lake.StreamCheckpointError, match="no offset of plake"):
        drain(new_reader(uri), {"version": "x"})
    with pytest.raises(lake.StreamCheckpointError, match="older state"):
        drain(new_reader(uri), {**end, "version": 40})


def test_expired_versions_are_an_error_unless_nothing_of_them_is_missed(uri: str) -> None:
    _, end = drain(new_reader(uri))
    dataset = lake.open_dataset(uri)
    for _ in range(3):
        dataset.set_properties(row_group_rows=1000 + dataset.version)
    dataset.expire_versions(keep_last=1)
    reader = new_reader(uri)
    assert drain(reader, end)[0] == []  # only properties were changed since
    lake.write_dataset({"id": [3]}, uri)
    assert drain(reader, end)[0] == [[3]]
    lake.write_dataset({"id": [4]}, uri, mode="overwrite")
    lake.write_dataset({"id": [5]}, uri)
    dataset.expire_versions(keep_last=1)
    with pytest.raises(lake.StreamDataLossError, match="failOnDataLoss") as raised:
        drain(reader, end)
    assert (raised.value.version, raised.value.oldest) == (7, 9)
    loose = {"failOnDataLoss": "false", "skipChangeCommits": "true"}
    assert drain(new_reader(uri, **loose), end)[0] == [[3, 5]]
    dataset.vacuum(retention_seconds=0, allow_short_retention=True)
    assert drain(new_reader(uri, **loose), end)[0] == [[5]]


@pytest.mark.parametrize("vacuums", [False, True])
def test_rows_that_were_deleted_before_the_stream_began_do_not_return_with_lost_data(
    tmp_path: Path, vacuums: bool
) -> None:
    """They did, where vacuum had forgotten which rows the expired version lacks."""
    uri = str(tmp_path / "source")
    lake.write_dataset({"id": list(range(10))}, uri)
    lake.write_dataset({"id": list(range(10, 20))}, uri)
    dataset = lake.open_dataset(uri)
    dataset.delete("id = 0")
    reader = new_reader(uri, failOnDataLoss="false")
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    dataset.refresh().delete("id = 1")
    dataset.expire_versions(keep_last=1)
    if vacuums:
        dataset.vacuum(retention_seconds=0, allow_short_retention=True)
    # Row 1 was deleted after the stream began: it may be missing.
    assert set(read(reader, start, end)) | {1} == set(range(1, 20))


def test_where_prunes_files_before_they_count(uri: str) -> None:
    for number in range(3, 9):
        lake.write_dataset({"id": [number]}, uri)
    reader = new_reader(uri, where="id >= 4", maxFilesPerTrigger="2")
    batches, end = drain(reader)
    assert batches == [[4, 5], [6, 7], [8]]
    lake.write_dataset({"id": [1]}, uri)
    assert reader.latestOffset(end, reader.getDefaultReadLimit()) == end


def test_a_snapshot_without_rows_is_a_batch_of_its_own(uri: str) -> None:
    reader = new_reader(uri, where="id >= 7")
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert end["version"] == 4
    lake.write_dataset({"id": [7]}, uri)
    again = new_reader(uri, where="id >= 7")
    assert read(again, again.initialOffset(), end) == []
    assert drain(again, end)[0] == [[7]]


def test_a_long_time_without_rows_moves_the_checkpoint(uri: str) -> None:
    reader = new_reader(uri)
    _, end = drain(reader)
    dataset = lake.open_dataset(uri)
    offsets = set()
    for number in range(130):
        dataset.set_properties(row_group_rows=1000 + number)
        if number % 13 == 0:
            end = reader.latestOffset(end, reader.getDefaultReadLimit())
            offsets.add(end["version"])
    assert len(offsets) == 2


# --- the effect of a commit ------------------------------------------------------------


def commit(operation: str, **counts: int) -> TransactionRecord:
    from datetime import datetime, timezone

    return TransactionRecord(1, datetime.now(timezone.utc), operation, {}, counts, "w")


@pytest.mark.parametrize(
    ("operation", "counts", "effect"),
    [
        ("append", {"files_added": 1, "rows_added": 2}, Effect.APPENDS),
        ("append", {}, Effect.NOTHING),
        ("overwrite", {"files_added": 1, "rows_added": 2}, Effect.APPENDS),
        ("overwrite", {"rows_added": 2, "rows_removed": 1, "files_removed": 1}, Effect.CHANGES),
        ("overwrite", {"rows_removed": 1, "files_removed": 1}, Effect.DELETES),
        ("delete", {"files_added": 1, "rows_removed": 3, "files_removed": 1}, Effect.DELETES),
        ("delete", {"rows_removed": 3, "vectors_written": 1}, Effect.DELETES),
        ("update", {"rows_added": 3, "rows_removed": 3}, Effect.CHANGES),
        ("merge", {"rows_added": 3, "files_added": 1}, Effect.APPENDS),
        ("restore", {"rows_added": 3, "files_added": 1}, Effect.CHANGES),
        ("restore", {"rows_removed": 3, "files_removed": 1}, Effect.DELETES),
        ("schema change", {}, Effect.NOTHING),
        ("rewrite", {"files_added": 1, "files_removed": 4, "data_change": 0}, Effect.NOTHING),
    ],
)
def test_the_effect_of_a_commit_is_told_by_what_it_did(
    operation: str, counts: dict[str, int], effect: Effect
) -> None:
    assert effect_of(commit(operation, **counts)) is effect


@pytest.mark.parametrize("effect", list(Effect))
@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("ignore", [False, True])
def test_which_commits_end_a_stream(effect: Effect, skip: bool, ignore: bool) -> None:
    ends = Rules(skip, ignore).refuses(effect)
    deletes = effect is Effect.DELETES and not ignore and not skip
    assert ends == (deletes or (effect is Effect.CHANGES and not skip))


@pytest.mark.parametrize(
    "offset",
    [{}, {"dataset": "d", "version": -1, "file": 0}, {"dataset": "d", "version": True, "file": 0}],
)
def test_offsets_that_plake_did_not_write_are_refused(offset: dict[str, Any]) -> None:
    with pytest.raises(lake.StreamCheckpointError):
        position_of(offset, "d", "file:///d", SeenVersion(5), {}.get)

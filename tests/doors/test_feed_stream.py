"""Streams of changes over random histories, without Spark: each change once, no commit divided."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

import lakehouse_source as lake
from lakehouse_source.spark.reading.stream_read import HAS_LIMITS, PlakeStreamReader
from lakehouse_source.spark.source import PlakeDataSource
from tests.doors.test_stream_offsets import Engine
from tests.feed_model import History, Row, counted

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not HAS_LIMITS, reason="PySpark 4.1 asks a source for no limits"),
]
NOW: dict[str, Any] = {"retention_seconds": 0, "allow_short_retention": True}


def new_reader(uri: str, **options: str) -> PlakeStreamReader:
    """The reader of a query that is loaded now, as Spark makes it."""
    source = PlakeDataSource({"path": uri, "readchangefeed": "true", **options})
    reader = source.streamReader(source.schema())
    assert isinstance(reader, PlakeStreamReader)
    return reader


def batch(reader: PlakeStreamReader, start: Any, end: Any) -> pa.Table:
    """The changes of a batch."""
    found = [
        rows for one in reader.partitions(start, end) for rows in reader.read(one) if rows.num_rows
    ]
    return pa.Table.from_batches(found) if found else pa.table({})


def kinds(table: pa.Table) -> list[Row]:
    rows = table.to_pylist()
    return [(row["_commit_version"], row["_change_type"], row["id"]) for row in rows]


class FeedEngine(Engine):
    """A query over a history, which notes with each batch the version that it was loaded at."""

    def __init__(self, history: History, release: str, **options: str) -> None:
        super().__init__(history.uri, release, history.chance, **options)
        self.history = history
        self.loaded = 0

    def load(self) -> PlakeStreamReader:
        self.loaded = self.history.dataset.refresh().version
        names = ",".join(self.history.columns(self.loaded))
        return new_reader(self.uri, columns=names, **self.options)

    def read(self, start: Any, end: Any) -> Any:
        assert self.reader is not None
        return self.loaded, start, end, batch(self.reader, start, end)

    def check(self) -> None:
        """Compare each batch with the difference of the versions whose commits it has."""
        history, next_version = self.history, None
        for number in sorted(self.sink):
            loaded, _, end, table = self.sink[number]
            found = counted(history.told(table, loaded))
            if end["snapshot"] is not None or next_version is None:
                snapshot = end["snapshot"] or end["version"] - 1
                rows = history.state(snapshot, loaded)
                if self.options.get("startingversion"):
                    expected = self._of_commits(1, end["version"], loaded)
                else:
                    everything = [(snapshot, id, "insert", row) for id, row in rows.items()]
                    assert not found - counted(everything)
                    expected = found  # a part of the snapshot
            else:
                expected = self._of_commits(next_version, end["version"], loaded)
            assert found == expected, (number, loaded)
            next_version = end["version"] if end["snapshot"] is None else None

    def _of_commits(self, first: int, end: int, loaded: int) -> Counter[Row]:
        return counted(
            (version, *change)
            for version in range(first, end)
            for change in self.history.difference(version - 1, version, loaded)
        )


@pytest.mark.parametrize("release", ["4.1", "4.3"])
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.sampled(6)
def test_each_change_is_told_once_over_any_history_and_any_kills(
    seed: int, release: str, tmp_path: Path
) -> None:
    with lake.open_catalog(f"sqlite:///{tmp_path}/catalog.db") as catalog:
        _run(seed, release, str(tmp_path / "source"), catalog)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1_000, 1_200))
def test_each_change_is_told_once_over_many_histories(seed: int, tmp_path: Path) -> None:
    with lake.open_catalog(f"sqlite:///{tmp_path}/catalog.db") as catalog:
        _run(seed, "4.3", str(tmp_path / "source"), catalog)


def _run(seed: int, release: str, uri: str, catalog: lake.Catalog) -> None:
    history = History(seed, uri, catalog)
    begin = {"startingversion": "1"} if seed % 2 else {}
    limit = str(history.chance.randint(1, 6))
    engine = FeedEngine(history, release, catalog=catalog.url, maxfilespertrigger=limit, **begin)
    for _ in range(12):
        if history.chance.random() < 0.8:
            history.step()
        for _ in range(history.chance.randint(0, 3)):
            _trigger(engine)
        if history.chance.random() < 0.15:
            _expire(engine)
    engine.kills = 0
    for _ in range(300):
        if not _trigger(engine):
            break
    else:
        raise AssertionError("the stream does not come to an end")
    engine.check()
    last = engine.offsets[-1]
    assert last["snapshot"] is None
    changing = [v for v, *_ in history.feed(1, history.dataset.version) if v >= last["version"]]
    assert not changing, "changes that were not told"
    replayed = _replayed(engine)
    assert replayed is None or replayed == history.states[history.dataset.version].keys()


def _trigger(engine: FeedEngine) -> bool:
    try:
        return engine.trigger()
    except lake.StreamSchemaError as error:
        engine.reader = None  # its user loads it again
        if error.replaced:
            # No column of these rows is left: a user begins a stream after them.
            pytest.skip("the dataset was replaced before the stream had read it")
        return True


def _expire(engine: FeedEngine) -> None:
    """Expire versions as far as the stream has come, as a consumer would hold them."""
    if not engine.offsets or engine.committed < len(engine.offsets):
        return
    dataset, last = engine.history.dataset.refresh(), engine.offsets[-1]
    needed = last["snapshot"] or last["version"] - 1
    report = dataset.expire_versions(keep_last=dataset.version - max(1, needed) + 1)
    engine.history.oldest = report.oldest_version
    dataset.vacuum(**NOW)


def _replayed(engine: FeedEngine) -> Any:
    """The identities that are left after all batches; None: the stream began with no snapshot."""
    left: set[int] = set()
    for number in sorted(engine.sink):
        loaded, *_, table = engine.sink[number]
        for _, id, kind, _ in sorted(engine.history.told(table, loaded), key=lambda one: one[0]):
            if kind in ("delete", "update_preimage"):
                left.discard(id)
            else:
                left.add(id)
    return left


# --- single rules --------------------------------------------------------------------


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """Version 1: ids 1 to 3; 2: id 1 updated; 3: id 3 deleted; 4: id 4 appended."""
    uri = str(tmp_path / "data")
    lake.write_dataset({"id": [1, 2, 3], "v": ["a", "b", "c"]}, uri, rewrite_threshold=1.0)
    dataset = lake.open_dataset(uri)
    dataset.update({"v": "'A'"}, where="id = 1")
    dataset.delete("id = 3")
    lake.write_dataset({"id": [4], "v": ["d"]}, uri)
    return uri


EVERYTHING = [
    *((1, "insert", 1), (1, "insert", 2), (1, "insert", 3)),
    *((2, "update_preimage", 1), (2, "update_postimage", 1), (3, "delete", 3), (4, "insert", 4)),
]


def drain(reader: PlakeStreamReader, start: Any = None) -> tuple[list[list[Row]], Any]:
    """The changes of each batch until there is nothing more, and the last offset."""
    batches: list[list[Row]] = []
    start = reader.initialOffset() if start is None else start
    for _ in range(50):
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        if end == start:
            return batches, end
        batches.append(kinds(batch(reader, start, end)))
        start = end
    raise AssertionError("the stream does not come to an end")


def test_a_commit_is_never_divided_and_a_batch_has_one_at_least(uri: str) -> None:
    assert drain(new_reader(uri, startingversion="1"))[0] == [EVERYTHING]
    each = [EVERYTHING[:3], EVERYTHING[3:5], EVERYTHING[5:6], EVERYTHING[6:]]
    # The update reads two files.
    assert drain(new_reader(uri, startingversion="1", maxfilespertrigger="1"))[0] == each
    assert drain(new_reader(uri, startingversion="1", maxbytespertrigger="1"))[0] == each
    two = [EVERYTHING[:3], EVERYTHING[3:5], EVERYTHING[5:]]
    assert drain(new_reader(uri, startingversion="1", maxfilespertrigger="2"))[0] == two


def test_without_a_start_the_rows_of_the_newest_version_come_first_as_inserts(uri: str) -> None:
    reader = new_reader(uri)
    batches, end = drain(reader)
    assert [sorted(one) for one in batches] == [
        [(4, "insert", 1), (4, "insert", 2), (4, "insert", 4)]
    ]
    lake.open_dataset(uri).delete("id = 2")
    assert drain(reader, end)[0] == [[(5, "delete", 2)]]
    assert drain(new_reader(uri), end)[0] == [[(5, "delete", 2)]]
    assert drain(new_reader(uri, startingversion="latest"))[0] in ([], [[]])


def test_an_expired_start_is_refused_with_the_first_version_that_can_be_asked(uri: str) -> None:
    dataset = lake.open_dataset(uri)
    dataset.expire_versions(keep_last=2)  # 3 and 4
    for version in ("1", "2", "3"):
        with pytest.raises(lake.VersionNotFoundError, match="expired"):
            drain(new_reader(uri, startingversion=version))
    with pytest.raises(lake.VersionNotFoundError, match=r"changes of version 3 .*versions 4 to 4"):
        drain(new_reader(uri, startingversion="3"))
    assert drain(new_reader(uri, startingversion="4"))[0] == [[(4, "insert", 4)]]
    lenient = new_reader(uri, startingversion="1", failondataloss="false")
    assert drain(lenient)[0] == [[(4, "insert", 4)]]


def test_a_stream_that_fell_behind_expiry_is_refused_or_goes_on(uri: str) -> None:
    reader = new_reader(uri, startingversion="1", maxfilespertrigger="1")
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    dataset = lake.open_dataset(uri)
    dataset.expire_versions(keep_last=2)
    dataset.vacuum(**NOW)
    with pytest.raises(lake.StreamDataLossError, match="version 2"):
        reader.latestOffset(end, reader.getDefaultReadLimit())
    lenient = new_reader(uri, startingversion="1", failondataloss="false")
    assert drain(lenient, end)[0] == [[(4, "insert", 4)]]


def test_a_change_of_columns_ends_the_stream_until_it_is_loaded_again(uri: str) -> None:
    reader = new_reader(uri, startingversion="1")
    dataset = lake.open_dataset(uri)
    dataset.add_column("w", pa.int64(), default=7)
    dataset.delete("id = 2")
    batches, end = drain_until_refused(reader)
    assert batches == [EVERYTHING]
    assert drain(new_reader(uri), end)[0] == [[(6, "delete", 2)]]


def drain_until_refused(reader: PlakeStreamReader) -> tuple[list[list[Row]], Any]:
    batches: list[list[Row]] = []
    start = reader.initialOffset()
    while True:
        try:
            end = reader.latestOffset(start, reader.getDefaultReadLimit())
        except lake.StreamSchemaError:
            return batches, start
        batches.append(kinds(batch(reader, start, end)))
        start = end


def test_a_checkpoint_of_rows_is_no_checkpoint_of_changes(uri: str) -> None:
    rows = PlakeDataSource({"path": uri})
    of_rows = rows.streamReader(rows.schema())
    of_changes = new_reader(uri)
    with pytest.raises(lake.StreamCheckpointError, match="stream of rows"):
        of_changes.latestOffset(of_rows.initialOffset(), of_changes.getDefaultReadLimit())
    with pytest.raises(lake.StreamCheckpointError, match="stream of changes"):
        of_rows.partitions(of_changes.initialOffset(), of_changes.initialOffset())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"skipchangecommits": "true"}, "skipChangeCommits"),
        ({"ignoredeletes": "true"}, "ignoreDeletes"),
        ({"startingversion": "1", "endingversion": "2"}, "endingVersion"),
        ({"startingversion": "two"}, "startingVersion"),
        ({"columns": "nope"}, "nope"),
        ({"where": "nope = 1"}, "nope"),
        ({"startingversion": "1", "maxfilespertrigger": "1", "where": "nope = 1"}, "nope"),
        ({"maxfilespertrigger": "0"}, "maxFilesPerTrigger"),
    ],
)
def test_options_that_a_stream_of_changes_has_not_are_refused(
    uri: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(lake.PlakeError, match=f"(?i){message}"):
        new_reader(uri, **options)


def test_conditions_and_columns_are_those_of_a_feed(uri: str) -> None:
    reader = new_reader(uri, startingversion="1", where="v = 'A'", columns="id,_row_id")
    assert [one for one in drain(reader)[0] if one] == [[(2, "update_postimage", 1)]]
    assert new_reader(uri, columns="id,_row_id").schema.names == [
        *("id", "_row_id", "_change_type", "_commit_version", "_commit_timestamp")
    ]


# --- in Spark -------------------------------------------------------------------------


@pytest.mark.long
def test_a_copy_is_kept_equal_by_a_stream_of_changes_and_merge(
    spark_planner: SparkSession, tmp_path: Path
) -> None:
    """What the page says, by path; each run reads what came since the one before."""
    source, copy, log = (str(tmp_path / name) for name in ("source", "copy", "log"))
    rows = pa.table({"id": pa.array(range(20), pa.int64()), "v": pa.array(["a"] * 20)})
    lake.write_dataset(rows, source, rewrite_threshold=0.5)
    lake.write_dataset(rows.slice(0, 0), copy)

    def merge(changes: DataFrame, batch_number: int) -> None:
        latest = Window.partitionBy("id").orderBy(
            F.desc("_commit_version"), F.col("_change_type") == "delete"
        )
        last = changes.where("_change_type <> 'update_preimage'")
        last = last.withColumn("_n", F.row_number().over(latest)).where("_n = 1")
        (
            lake.spark.open(changes.sparkSession, copy)
            .merge(last.alias("s"), "target.id = s.id")
            .whenMatchedDelete("s._change_type = 'delete'")
            .whenMatchedUpdate(set={"v": "s.v"})
            .whenNotMatchedInsert(
                condition="s._change_type <> 'delete'", values={"id": "s.id", "v": "s.v"}
            )
            .execute()
        )

    def run() -> None:
        feed = spark_planner.readStream.format("plake").option("readChangeFeed", "true")
        frame = feed.load(source)
        to_log = frame.writeStream.format("plake").option("checkpointLocation", f"{log}-state")
        to_log.trigger(availableNow=True).start(log).awaitTermination()
        to_copy = frame.writeStream.option("checkpointLocation", f"{copy}-state")
        to_copy.foreachBatch(merge).trigger(availableNow=True).start().awaitTermination()

    dataset = lake.open_dataset(source)
    run()
    dataset.update({"v": "'b'"}, where="id < 5")
    dataset.delete("id IN (3, 9)")
    dataset.compact(rewrite_deleted=True)
    dataset.upsert(pa.table({"id": [3, 4, 99], "v": ["c", "b", "c"]}), "id")
    run()
    expected = sorted(lake.read_dataset(source).to_pylist(), key=str)
    assert sorted(lake.read_dataset(copy).to_pylist(), key=str) == expected
    told = lake.read_dataset(log, columns=["id", "_change_type", "_commit_version"])
    changes = dataset.refresh().changes(2, columns=["id"]).to_table()
    later = [row for row in told.to_pylist() if row["_commit_version"] > 1]
    names = ["id", "_change_type", "_commit_version"]
    assert Counter(map(str, later)) == Counter(map(str, changes.select(names).to_pylist()))
    assert len(later) + 20 == told.num_rows

"""The doors to the change feed in Spark, against what Spark reads of the versions themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyspark
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import lakehouse_source as lake
from lakehouse_source.spark.protocol.vocabulary import Setting
from tests.doors.streams import stream_rows

pytestmark = pytest.mark.spark

HAS_CHANGES = tuple(map(int, pyspark.__version__.split(".")[:2])) >= (4, 2)
TABLE, REGISTERED = "plake.feed.t", "registered_t"
FEED = ("_change_type", "_commit_version")

Door: TypeAlias = Callable[[SparkSession, str, int, int], DataFrame]


class History:
    """A table with every kind of change, and what its versions hold as Spark reads them."""

    def __init__(self, spark: SparkSession) -> None:
        self.url = spark.conf.get("spark.sql.catalog.plake.catalog")
        warehouse = spark.conf.get("spark.sql.catalog.plake.warehouse")
        self.catalog = lake.open_catalog(self.url, warehouse=warehouse)
        self.selects: list[str] = []
        self.path = self._made()
        spark.sql(
            f"CREATE TABLE {REGISTERED} USING plake OPTIONS (catalog '{self.url}')"
            f" LOCATION '{self.path}'"
        )
        self.version = len(self.selects)
        self.states: list[dict[int, dict[str, Any]]] = [{} for _ in range(self.version + 1)]
        for row in spark.sql(" UNION ALL ".join(self.selects)).collect():
            values = row.asDict()
            self.states[values.pop("at")][values.pop("_row_id")] = values

    def _note(self, w: str = "w", added: str = "added") -> None:
        """How Spark reads the newest version, with the columns that the last one has."""
        at = len(self.selects) + 1
        assert self.catalog.dataset("feed.t").version == at
        self.selects.append(
            f"SELECT {at} AS at, _row_id, CAST(id AS BIGINT) AS id, {w} AS w, p, {added} AS added"
            f" FROM {TABLE} VERSION AS OF {at}"
        )

    def _made(self) -> str:
        """Make the table. Each paragraph is one commit."""
        self.catalog.create_namespace("feed")
        schema = pa.schema(
            [("id", pa.int32()), ("v", pa.string()), ("p", pa.int32()), ("gone", pa.int32())]
        )
        t = self.catalog.create_dataset("feed.t", schema, partition_by="p")
        old = {"w": "v", "added": "7"}
        self._note(**old)
        ids = list(range(40))
        rows = {"id": ids, "v": ["a"] * 40, "p": [n % 3 for n in ids], "gone": [0] * 40}
        write: dict[str, Any] = {"catalog": self.catalog}
        lake.write_dataset(pa.table(rows, schema), t.uri, **write)
        self._note(**old)
        t.update({"v": "'b'"}, where="id < 8")
        self._note(**old)
        t.update({"v": "v"}, where="id < 4")
        self._note(**old)
        t.delete("id IN (0, 7, 14, 21)")
        self._note(**old)
        source = pa.table({"id": [1, 2, 100], "v": ["m"] * 3, "p": [1] * 3, "gone": [1] * 3})
        merge = t.merge(source, "target.id = source.id")
        merge = merge.when_matched_delete("source.id = 2").when_matched_update({"v": "source.v"})
        merge.when_not_matched_insert_all().execute()
        self._note(**old)
        t.rename_column("v", "w")
        self._note(added="7")
        t.update({"w": "'c'"}, where="id = 4")
        self._note(added="7")
        t.add_column("added", pa.int32(), default=7)
        self._note()
        t.update({"added": "8"}, where="id >= 10 AND id < 15")
        self._note()
        t.promote_column("id", pa.int64())
        self._note()
        rows = {"id": [5_000_000_000], "w": ["x"], "p": [2], "gone": [1], "added": [9]}
        lake.write_dataset(rows, t.uri, **write)
        self._note()
        t.compact(rewrite_deleted=True)
        self._note()
        t.drop_column("gone")
        self._note()
        t.delete("p = 0")
        self._note()
        t.restore(len(self.selects) - 1)
        self._note()
        kept = {"id": [100], "w": ["r"], "p": [1], "added": [1]}
        lake.write_dataset(kept, t.uri, mode="overwrite", overwrite_where="p = 1", **write)
        self._note()
        t.update({"p": "1"}, where="id < 10")
        self._note()
        rows = {"id": [1, 2, 3], "w": ["o"] * 3, "p": [1, 2, 2], "added": [None, 1, 2]}
        lake.write_dataset(rows, t.uri, mode="overwrite", **write)
        self._note()
        t.refresh().delete("id = 2")
        self._note()
        return t.uri.removeprefix("file://")

    def feed(self, start: int, end: int, *, net: bool = False) -> Counter[str]:
        """The difference of neighbouring versions, row by row; `net`: of the first and the last."""
        pairs = [(start - 1, end)] if net else [(at - 1, at) for at in range(start, end + 1)]
        changes = []
        for one, other in pairs:
            before, after = self.states[one], self.states[other]
            for id in {*before, *after}:
                if id not in before:
                    changes.append((after[id], "insert", other))
                elif id not in after:
                    changes.append((before[id], "delete", other))
                elif before[id] != after[id]:
                    changes.append((before[id], "update_preimage", other))
                    changes.append((after[id], "update_postimage", other))
        told = [{**row, "_change_type": kind, "_commit_version": at} for row, kind, at in changes]
        return Counter(_shown(row, net) for row in told)


def _shown(row: dict[str, Any], net: bool) -> str:
    return str(sorted((row | ({"_commit_version": 0} if net else {})).items()))


def counted(frame: DataFrame, *, net: bool = False) -> Counter[str]:
    found = frame.drop("_commit_timestamp").collect()
    return Counter(_shown(row.asDict(), net) for row in found)


@pytest.fixture(scope="module")
def history(spark_catalog: SparkSession) -> Iterator[History]:
    made = History(spark_catalog)
    yield made
    spark_catalog.sql(f"DROP TABLE {REGISTERED}")
    spark_catalog.sql(f"DROP TABLE {TABLE}")


def by_option(spark: SparkSession, table: str, start: int, end: int) -> DataFrame:
    reader = spark.read.option("readChangeFeed", True)
    reader = reader.options(startingVersion=start, endingVersion=end)
    return reader.format("plake").load(table) if "/" in table else reader.table(table)


def by_function(spark: SparkSession, table: str, start: int, end: int) -> DataFrame:
    return spark.sql(f"SELECT * FROM table_changes('{table}', {start}, {end})")


def by_clause(spark: SparkSession, table: str, start: int, end: int) -> DataFrame:
    if not HAS_CHANGES:
        pytest.skip("CHANGES FROM is of Spark 4.2")
    name = f"plake.`{table}`" if "/" in table else table
    return spark.sql(
        f"SELECT * FROM {name} CHANGES FROM VERSION {start} TO VERSION {end}"
        " WITH (computeUpdates = 'true')"
    )


def by_method(spark: SparkSession, table: str, start: int, end: int) -> DataFrame:
    if not HAS_CHANGES:
        pytest.skip("changes() is of Spark 4.2")
    name = f"plake.`{table}`" if "/" in table else table
    options = {"startingVersion": start, "endingVersion": end, "computeUpdates": True}
    return spark.read.options(**options).changes(name)


DOORS: list[Door] = [by_option, by_function, by_clause, by_method]


@pytest.mark.long
def test_every_kind_of_change_is_in_the_history(history: History) -> None:
    kinds = " ".join(history.feed(1, history.version))
    assert all(kind in kinds for kind in ("insert", "delete", "update_preimage"))
    told = history.catalog.dataset("feed.t").changes(1).to_table()
    found = told.drop_columns(["_commit_timestamp"]).to_pylist()
    assert Counter(str(sorted(row.items())) for row in found) == history.feed(1, history.version)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("table", [TABLE, REGISTERED])
def test_every_door_tells_the_difference_of_versions(
    spark_catalog: SparkSession, history: History, door: Door, table: str
) -> None:
    last = history.version
    ranges = [(1, last), (15, 16)] if table == TABLE else [(14, last)]
    for start, end in ranges:
        assert counted(door(spark_catalog, table, start, end)) == history.feed(start, end)


def test_tables_that_are_known_by_their_paths(spark_catalog: SparkSession, tmp_path: Path) -> None:
    lake.write_dataset({"id": [1, 2]}, tmp_path / "own")
    lake.open_dataset(tmp_path / "own").update({"id": "9"}, where="id = 1")
    expected = Counter({(1, "insert"): 1, (2, "insert"): 1, (1, "update_preimage"): 1})
    expected[(9, "update_postimage")] += 1
    for door in [by_option, by_function] + ([by_clause, by_method] if HAS_CHANGES else []):
        found = door(spark_catalog, str(tmp_path / "own"), 1, 2).select("id", "_change_type")
        assert Counter(map(tuple, found.collect())) == expected
    quoted = spark_catalog.sql(f"SELECT id FROM table_changes('plake.`{tmp_path}/own`', 2)")
    assert sorted(row.id for row in quoted.collect()) == [1, 9]


@pytest.mark.long
def test_bounds_and_modes_of_the_clause(spark_catalog: SparkSession, history: History) -> None:
    if not HAS_CHANGES:
        pytest.skip("CHANGES FROM is of Spark 4.2")
    last = history.version

    def asked(text: str, *, net: bool = False) -> Counter[str]:
        return counted(spark_catalog.sql(f"SELECT * FROM {TABLE} CHANGES FROM {text}"), net=net)

    images = "computeUpdates = 'true'"
    found = asked(f"VERSION 16 EXCLUSIVE TO VERSION 19 EXCLUSIVE WITH ({images})")
    assert found == history.feed(17, 18)
    assert asked("VERSION 16 EXCLUSIVE TO VERSION 17 EXCLUSIVE") == Counter()
    assert asked(f"VERSION {last} EXCLUSIVE") == Counter()
    for mode in ("none", "dropCarryovers"):
        found = asked(f"VERSION 15 WITH (deduplicationMode = '{mode}', {images})")
        assert found == history.feed(15, last)
    net = asked(f"VERSION 15 WITH (deduplicationMode = 'netChanges', {images})", net=True)
    assert net == history.feed(15, last, net=True)
    without = Counter()
    for text, count in history.feed(15, last).items():
        text = text.replace("update_preimage", "delete").replace("update_postimage", "insert")
        without[text] += count
    assert asked("VERSION 15") == without
    times = {one.version: one.timestamp for one in history.catalog.dataset("feed.t").history()}
    first, second = (f"{times[at]:%Y-%m-%d %H:%M:%S.%f}" for at in (16, 18))
    found = asked(f"TIMESTAMP '{first}' TO TIMESTAMP '{second}' WITH ({images})")
    assert found == history.feed(16, 18)
    found = asked(
        f"TIMESTAMP '{first}' EXCLUSIVE TO TIMESTAMP '{second}' EXCLUSIVE WITH ({images})"
    )
    assert found == history.feed(17, 17)


def test_the_function_takes_versions_tags_and_times(
    spark_catalog: SparkSession, history: History
) -> None:
    dataset = history.catalog.dataset("feed.t")
    times = {one.version: f"{one.timestamp:%Y-%m-%d %H:%M:%S.%f}" for one in dataset.history()}
    dataset.tag("third_last", history.version - 2)
    for bounds in (
        f"{history.version - 2}, {history.version}",
        f"'{history.version - 2}'",
        "'third_last', current_timestamp() + INTERVAL 1 DAY",
        f"'{times[history.version - 2]}', TIMESTAMP '{times[history.version]}'",
    ):
        found = spark_catalog.sql(f"SELECT * FROM table_changes('{TABLE}', {bounds})")
        assert counted(found) == history.feed(history.version - 2, history.version), bounds
    dataset.drop_tag("third_last")


def test_identities_and_versions_of_rows(spark_catalog: SparkSession, history: History) -> None:
    found = spark_catalog.sql(
        "SELECT c.id, c._row_id, c._last_changed_version, c._commit_version"
        f" FROM table_changes('{TABLE}', 15, 18) AS c WHERE c._change_type != 'insert'"
    ).collect()
    assert found
    for row in found:
        before = history.states[row["_commit_version"] - 1]
        after = history.states[row["_commit_version"]]
        assert row.id in (before[row["_row_id"]]["id"], after.get(row["_row_id"], {}).get("id"))
        assert row["_last_changed_version"] <= row["_commit_version"]
    narrow = spark_catalog.read.option("readChangeFeed", True).option("startingVersion", 15)
    frame = narrow.option("columns", "id,_row_id,_last_changed_version").table(TABLE)
    assert frame.columns[:3] == ["id", "_row_id", "_last_changed_version"]
    if HAS_CHANGES:
        reader = spark_catalog.read.option("startingVersion", 15).option("columns", "id,_row_id")
        assert reader.changes(TABLE).columns[:2] == ["id", "_row_id"]


@pytest.mark.long
@pytest.mark.parametrize("door", DOORS)
def test_what_no_condition_wants_is_not_read(
    spark_catalog: SparkSession, tmp_path: Path, door: Door
) -> None:
    """Files whose rows no query wants are gone: to open one would fail."""
    path = str(tmp_path / "pruned")
    for id in range(4):
        lake.write_dataset({"id": [id], "p": [id], "text": ["x" * id]}, path, partition_by="p")
    files = {}
    for row in lake.open_dataset(path).inspect.files().to_pylist():
        files[int(row["partitions"][0][1])] = Path(path) / row["file_path"]
    feed = door(spark_catalog, path, 1, 4)
    for id in (0, 1, 3):
        files[id].unlink()
    assert [row.id for row in feed.where("id = 2").select("id").collect()] == [2]
    assert [row.id for row in feed.where("p = 2 AND id < 9").select("id").collect()] == [2]
    assert [row.id for row in feed.where("_commit_version = 3").select("id").collect()] == [2]
    assert feed.where("_change_type = 'delete'").count() == 0
    with pytest.raises(PySparkException):
        feed.where("id = 1").collect()
    shown = feed.where("id = 2").select("text")._jdf.queryExecution().toString()
    assert "PushedFilters: [id IS NOT NULL, id = 2]" in shown
    assert "ReadSchema: struct<id:bigint,text:string>" in shown


def test_a_condition_means_the_column_that_the_frame_has(
    spark_catalog: SparkSession, tmp_path: Path
) -> None:
    rows = {"id": [1, 2], "_change_type": ["mine", "mine"], "_commit_version": [70, 70]}
    lake.write_dataset(rows, tmp_path / "named")
    reader = spark_catalog.read.format("plake").option("readChangeFeed", True)
    feed = reader.options(startingVersion=1, columns="id").load(str(tmp_path / "named"))
    assert feed.where("_change_type = 'insert' AND _commit_version = 1").count() == 2
    assert feed.where("_commit_version = 70").count() == 0
    either = feed.where("id = 1 OR _commit_version = 2")
    assert [row.id for row in either.collect()] == [1]
    with pytest.raises(PySparkException, match=r"(?s)_change_type.*columns"):
        by_option(spark_catalog, str(tmp_path / "named"), 1, 1).count()


def test_without_the_extension_turned_on_the_answers_are_the_same(
    spark_catalog: SparkSession, history: History
) -> None:
    spark_catalog.conf.set(Setting.PLANNER, "false")
    try:
        for door in [by_function] + ([by_clause] if HAS_CHANGES else []):
            found = door(spark_catalog, TABLE, 15, 18).where("id > 2").select("id", "_change_type")
            assert found.count() == found.where("id > 0").count() > 0
    finally:
        spark_catalog.conf.set(Setting.PLANNER, "true")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "startingVersion.*is missing"),
        ({"endingVersion": 3}, "startingVersion.*is missing"),
        ({"startingVersion": 5, "endingVersion": 3}, "startingVersion.*1 to 3"),
        ({"startingVersion": 4, "endingVersion": 3}, "endingVersion.*before the beginning"),
        ({"startingVersion": 77}, "has no version 77"),
        ({"startingVersion": 1, "endingVersion": 77}, "has no version 77"),
        ({"startingVersion": "nope"}, "neither a version nor a tag"),
        ({"startingVersion": 1, "startingTimestamp": "2020-01-01"}, "cannot be given together"),
        ({"startingTimestamp": "soon"}, "startingTimestamp.*ISO 8601"),
        (
            {"startingTimestamp": "2020-01-02", "endingTimestamp": "2020-01-01"},
            "endingTimestamp.*before the beginning",
        ),
        ({"startingVersion": 1, "versionAsOf": 2}, "versionAsOf"),
        ({"startingVersion": 1, "branch": "b"}, "branch"),
        ({"startingVersion": 1, "deduplicationMode": "all"}, "deduplicationMode.*netChanges"),
        ({"startingVersion": 1, "computeUpdates": "maybe"}, "computeUpdates"),
        ({"startingVersion": 1, "where": "nope = 1"}, "nope"),
        ({"startingVersion": 1, "columns": "nope"}, "nope"),
    ],
)
def test_ranges_that_are_none(
    spark_catalog: SparkSession, history: History, options: dict[str, Any], message: str
) -> None:
    reader = spark_catalog.read.option("readChangeFeed", True).options(**options)
    with pytest.raises(PySparkException, match=f"(?s){message}"):
        reader.table(TABLE).collect()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("'feed.t'", "table_changes takes"),
        ("'plake.feed.t'", "table_changes takes"),
        ("'plake.feed.nope', 1", "no table of plake that is named plake.feed.nope"),
        ("'plake.feed.t', NULL", "constant"),
        ("NULL, 1", "table_changes takes"),
        ("'plake.feed.t', 1.5", "constant"),
        ("'plake.feed.t', 5, 3", "startingVersion.*1 to 3"),
        ("'plake.feed.t.files', 1", "tells about a table"),
        ("'/no/such/folder', 1", "(?i)no dataset|does not exist"),
    ],
)
def test_calls_of_the_function_that_mean_nothing(
    spark_catalog: SparkSession, history: History, arguments: str, message: str
) -> None:
    with pytest.raises(PySparkException, match=f"(?s){message}"):
        spark_catalog.sql(f"SELECT * FROM table_changes({arguments})").collect()


@pytest.mark.parametrize("door", DOORS)
def test_an_expired_version_is_refused_with_the_first_that_can_be_asked(
    spark_catalog: SparkSession, tmp_path: Path, door: Door
) -> None:
    path = str(tmp_path / "expired")
    for id in range(5):
        lake.write_dataset({"id": [id]}, path)
        lake.open_dataset(path).delete(f"id = {id - 1}")
    lake.open_dataset(path).expire_versions(keep_last=3)
    oldest = lake.open_dataset(path).history().oldest_version
    with pytest.raises(PySparkException, match=f"(?s)expired.*{oldest + 1} to"):
        door(spark_catalog, path, 2, oldest + 1).collect()
    assert door(spark_catalog, path, oldest + 1, oldest + 1).count() == 1


STREAMED = "plake.default.streamed"


@pytest.fixture(scope="module")
def streamed(spark_catalog: SparkSession) -> Iterator[str]:
    """A table with 3 rows, of which one commit updates and one deletes; answers its path."""
    spark_catalog.sql(f"CREATE TABLE {STREAMED} (id BIGINT, v STRING)")
    spark_catalog.sql(f"INSERT INTO {STREAMED} VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    spark_catalog.sql(f"UPDATE {STREAMED} SET v = 'z' WHERE id = 2")
    spark_catalog.sql(f"DELETE FROM {STREAMED} WHERE id = 3")
    url = spark_catalog.conf.get("spark.sql.catalog.plake.catalog")
    with lake.open_catalog(url) as catalog:
        yield catalog.dataset("default.streamed").uri
    spark_catalog.sql(f"DROP TABLE {STREAMED}")


def changed(frame: DataFrame, folder: Path) -> list[tuple[int, str, int]]:
    names = ("_commit_version", "_change_type", "id")
    return sorted(tuple(row[name] for name in names) for row in stream_rows(frame, folder))


INSERTS = [(2, "insert", 1), (2, "insert", 2), (2, "insert", 3)]
UPDATE = [(3, "update_postimage", 2), (3, "update_preimage", 2)]
TWO = [(3, "delete", 2), (3, "insert", 2)]
DELETE = [(4, "delete", 3)]


@pytest.mark.long
def test_a_stream_of_changes_by_name_is_the_one_by_path(
    spark_catalog: SparkSession, streamed: str, tmp_path: Path
) -> None:
    """`readStream.table(t)` showed the rows of the table."""
    url = spark_catalog.conf.get("spark.sql.catalog.plake.catalog")
    reader = spark_catalog.readStream.option("readChangeFeed", True)
    snapshot = [(4, "insert", 1), (4, "insert", 2)]
    assert changed(reader.table(STREAMED), tmp_path / "snapshot") == snapshot
    reader = reader.option("startingVersion", 1)
    assert changed(reader.table(STREAMED), tmp_path / "name") == INSERTS + UPDATE + DELETE
    by_path = reader.format("plake").option("catalog", url).load(streamed)
    assert changed(by_path, tmp_path / "path") == INSERTS + UPDATE + DELETE


@pytest.mark.long
@pytest.mark.skipif(not HAS_CHANGES, reason="Spark has streams of changes from 4.2 on")
def test_streams_of_changes_take_the_options_of_spark(
    spark_catalog: SparkSession, streamed: str, tmp_path: Path
) -> None:
    """`readStream.changes(t)` died late, as a source without micro-batches."""

    def found(**options: Any) -> list[tuple[int, str, int]]:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        return changed(spark_catalog.readStream.options(**options).changes(STREAMED), folder)

    assert found() == [(4, "insert", 1), (4, "insert", 2)]
    assert found(startingVersion=1) == INSERTS + TWO + DELETE
    assert found(startingVersion=1, computeUpdates=True) == INSERTS + UPDATE + DELETE
    assert found(startingVersion=2, startingBoundInclusive=False) == TWO + DELETE
    with pytest.raises(Exception, match="deduplicationMode"):
        found(startingVersion=1, deduplicationMode="netChanges")
    with pytest.raises(Exception, match=r"(?i)endingVersion"):
        found(startingVersion=1, endingVersion=4)


@pytest.mark.long
def test_table_changes_takes_the_names_that_call_takes(
    spark_catalog: SparkSession, history: History
) -> None:
    expected = spark_catalog.sql(f"SELECT count(*) FROM table_changes('{TABLE}', 1)").first()
    for name in ("feed.t", "`feed`.t", REGISTERED):
        found = spark_catalog.sql(f"SELECT count(*) FROM table_changes('{name}', 1)").first()
        assert found == expected, name
    with pytest.raises(PySparkException, match=r"no table of plake that is named feed\.nope"):
        spark_catalog.sql("SELECT * FROM table_changes('feed.nope', 1)")


def test_the_advice_about_a_column_of_the_feeds_name_works_in_sql(
    spark_catalog: SparkSession,
) -> None:
    spark_catalog.sql("CREATE TABLE plake.feed.own (a BIGINT, b STRING, _commit_version BIGINT)")
    spark_catalog.sql("INSERT INTO plake.feed.own VALUES (1, 'x', 7)")
    with pytest.raises(PySparkException) as caught:
        spark_catalog.sql("SELECT * FROM table_changes('plake.feed.own', 1)")
    advice = str(caught.value).partition("Spark: ")[2].partition("')")[0] + "')"
    assert advice.startswith("SELECT * FROM t WITH (")
    rows = spark_catalog.sql(advice.replace("FROM t ", "FROM plake.feed.own ")).collect()
    assert [row.asDict()["_commit_version"] for row in rows] == [2]
    assert rows[0]["a"] == 1

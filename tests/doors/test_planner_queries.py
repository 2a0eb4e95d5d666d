"""Every query gives the same rows on plake and on Parquet, with the extension and without."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakehouse_source.spark import is_enabled
from lakehouse_source.spark.protocol.vocabulary import Envelope, Setting

from . import planner_queries as pq
from .planner_queries import frozen, multiset

pytestmark = pytest.mark.spark

Check = Callable[[str, pq.Side], None]
AT_ONCE = 12  # conditions in one Spark job
SAMPLE = 4  # of so many queries one is read by Spark's own reader in every run of the tests


@pytest.fixture(scope="module")
def paths(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The same rows as Parquet folders and as plake datasets of three appends."""
    folder = tmp_path_factory.mktemp("planner")
    return {"folder": folder, **pq.write_sides(spark, folder)}


def _side(spark: SparkSession, paths: dict[str, Any], format: str) -> pq.Side:
    facts, groups = paths[format]
    return pq.Side(spark, format, facts, groups, scratch=Path(paths["folder"]))


@pytest.fixture(scope="module")
def native(spark: SparkSession, paths: dict[str, Any]) -> pq.Side:
    return _side(spark, paths, "parquet")


@pytest.fixture(scope="module")
def check(native: pq.Side) -> Check:
    """Compares the answer to a query with Parquet's, which is known or asked once."""
    known = json.loads(pq.ANSWERS.read_text())["queries"]
    answers: dict[str, Counter[Any]] = {}

    def check(name: str, side: pq.Side) -> None:
        query = {**pq.QUERIES, **pq.VERSIONED}[name]
        found = multiset(query(side))
        if pq.digest(found) != known.get(name):  # of another Spark, another zone, or wrong
            if name not in answers:
                answers[name] = multiset(query(native))
            assert found == answers[name], name

    return check


@pytest.mark.long
@pytest.mark.skipif(time.timezone != 0, reason="PySpark's datetimes are local ones")
def test_the_known_answers_are_those_of_parquet(native: pq.Side) -> None:
    """Where they are not, `python -m tests.doors.planner_queries` writes them anew."""
    assert json.loads(pq.ANSWERS.read_text()) == pq.answers(native)


@pytest.fixture(scope="module")
def with_planner(spark_planner: SparkSession, paths: dict[str, Any]) -> pq.Side:
    return _side(spark_planner, paths, "plake")


@pytest.fixture(scope="module")
def by_spark(spark_reader: SparkSession, paths: dict[str, Any]) -> pq.Side:
    """Spark's own Parquet reader reads every scan, but those that only count rows."""
    return _side(spark_reader, paths, "plake")


@pytest.fixture(scope="module", params=["without planner", "with planner"])
def plake(request: pytest.FixtureRequest, paths: dict[str, Any]) -> pq.Side:
    if request.param == "with planner":
        return request.getfixturevalue("with_planner")
    spark = request.getfixturevalue("spark")
    assert not is_enabled(spark)
    return _side(spark, paths, "plake")


@pytest.fixture
def setting(with_planner: pq.Side) -> Iterator[Any]:
    """Sets a configuration of the session with the extension, for one test."""
    conf = with_planner.spark.conf
    before: dict[str, str | None] = {}

    def set_(key: str, value: str) -> None:
        before.setdefault(key, conf.get(key, None))
        conf.set(key, value)

    yield set_
    for key, value in before.items():
        conf.unset(key) if value is None else conf.set(key, value)


@pytest.fixture(scope="module")
def check_conditions(native: pq.Side) -> Any:
    """Compares what conditions select with what Parquet has in one pass without any pushdown."""
    known = json.loads(pq.ANSWERS.read_text())["conditions"]

    def check(found: dict[str, Counter[Any]]) -> None:
        if any(pq.digest(rows) != known[text].split()[1] for text, rows in found.items()):
            truth = pq.truth_table(native)
            assert found == {text: multiset(truth[text]) for text in found}

    return check


def test_the_conditions_are_not_all_alike() -> None:
    known = json.loads(pq.ANSWERS.read_text())["conditions"]
    assert list(known) == pq.CONDITIONS
    sizes = {text: int(told.split()[0]) for text, told in known.items()}
    empty = {text for text, size in sizes.items() if size == 0}
    never = (
        "cast(NULL AS BOOLEAN)",
        "k NOT IN (1, NULL)",
        "k = NULL",
        "void IS NOT NULL",
        "dec = 0.375",
        "false",
    )
    assert empty == set(never)
    assert len(set(sizes.values())) > 20


@pytest.mark.long
def test_conditions_equal_parquet_without_the_extension(
    spark: SparkSession, paths: dict[str, Any], check_conditions: Any
) -> None:
    found = pq.truth_table(_side(spark, paths, "plake"))
    check_conditions({text: multiset(rows) for text, rows in found.items()})


@pytest.mark.parametrize("reader", ["with_planner", "by_spark"])
@pytest.mark.parametrize("start", range(0, len(pq.CONDITIONS), AT_ONCE))
def test_conditions_equal_parquet(
    start: int, reader: str, request: pytest.FixtureRequest, check_conditions: Any
) -> None:
    """Each condition has a scan of its own; one Spark job runs several of the scans."""
    conditions = pq.CONDITIONS[start : start + AT_ONCE]
    t = request.getfixturevalue(reader).t
    scans = [t.where(c).select(F.lit(i), "id", "g") for i, c in enumerate(conditions)]
    found: dict[str, Counter[Any]] = {condition: Counter() for condition in conditions}
    for number, *row in reduce(DataFrame.unionAll, scans).collect():
        found[conditions[number]][frozen(row)] += 1
    check_conditions(found)


@pytest.mark.parametrize("name", pq.QUERIES)
@pytest.mark.cases(12)
def test_query_equals_parquet(name: str, plake: pq.Side, check: Check) -> None:
    check(name, plake)


def _some_now(queries: Iterable[str]) -> list[Any]:
    """The names of all queries: a sample for every run, and the others for long ones."""
    return [
        pytest.param(name, marks=[pytest.mark.long] if i % SAMPLE else [])
        for i, name in enumerate(queries)
    ]


@pytest.mark.parametrize("name", _some_now(pq.QUERIES))
def test_query_read_by_spark_equals_parquet(name: str, by_spark: pq.Side, check: Check) -> None:
    check(name, by_spark)


@pytest.mark.long
@pytest.mark.parametrize("name", _some_now(pq.VERSIONED))
def test_query_over_two_versions_read_by_spark_equals_parquet(
    name: str, by_spark: pq.Side, check: Check
) -> None:
    check(name, by_spark)


@pytest.mark.parametrize("name", pq.VERSIONED)
def test_query_over_two_versions_equals_parquet(name: str, plake: pq.Side, check: Check) -> None:
    check(name, plake)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("key", ["spark.sql.adaptive.enabled", "spark.sql.exchange.reuse"])
def test_joins_equal_parquet_under_another_planner_setting(
    key: str, with_planner: pq.Side, check: Check, setting: Any
) -> None:
    setting(key, "false")
    for name in pq.QUERIES:
        if "self" in name or "subquery" in name or "twice" in name:
            check(name, with_planner)


# --- what the extension does to a plan ------------------------------------------


def plan(frame: DataFrame, mode: str = "simple") -> str:
    jvm = frame.sparkSession._jvm
    return str(jvm.PythonSQLUtils.explainString(frame._jdf.queryExecution(), mode))


def scans(frame: DataFrame) -> list[str]:
    """The scan lines of the executed plan."""
    text = str(frame._jdf.queryExecution().executedPlan().toString())
    text = text.split("== Initial Plan ==")[0]
    return [line for line in text.splitlines() if "batchscan plake" in line.lower()]


def test_a_scan_shows_its_columns_and_filters(with_planner: pq.Side) -> None:
    frame = with_planner.t.where("k = 1 AND (g = 'a' OR id = 3)").select("s")
    (scan,) = scans(frame)
    assert "ReadSchema: struct<id:bigint,k:int,g:string,s:string>" in scan
    pushed = "PushedFilters: [k IS NOT NULL, k = 1, (g = 'a') OR (id = 3)]"
    assert pushed in scan
    formatted = plan(frame, "formatted")
    assert pushed in formatted
    assert "ReadSchema: struct<id:bigint,k:int,g:string,s:string>" in formatted


def test_spark_applies_every_filter_again(with_planner: pq.Side) -> None:
    assert "Filter (isnotnull(k#" in plan(with_planner.t.where("k = 1"))


def test_rows_alone_take_one_narrow_column(with_planner: pq.Side) -> None:
    (scan,) = scans(with_planner.t.selectExpr("1 AS one"))
    assert "ReadSchema: struct<ok:boolean>" in scan


def test_without_the_extension_a_scan_is_spark_s_own(
    spark: SparkSession, paths: dict[str, Any]
) -> None:
    (scan,) = scans(_side(spark, paths, "plake").t.where("k = 1").select("s"))
    assert "PushedFilters" not in scan


def test_the_switch_turns_pruning_off_and_on(with_planner: pq.Side, setting: Any) -> None:
    assert is_enabled(with_planner.spark)
    setting(Setting.PLANNER, "false")
    assert not is_enabled(with_planner.spark)
    assert "PushedFilters" not in scans(with_planner.t.where("k = 1"))[0]
    assert with_planner.t.where("k = 1").count() < with_planner.t.count()
    setting(Setting.PLANNER, "true")
    assert "PushedFilters" in scans(with_planner.t.where("k = 1"))[0]


@pytest.mark.long
@pytest.mark.parametrize("value", ["true", "false"])
def test_spark_s_own_setting_for_filter_pushdown_changes_nothing(
    value: str, with_planner: pq.Side, check: Check, setting: Any
) -> None:
    setting("spark.sql.python.filterPushdown.enabled", value)
    for name in ("filtered count then full count", "union of two filters"):
        check(name, with_planner)


@pytest.mark.long
def test_without_the_extension_the_pushdown_setting_loses_no_rows(
    spark: SparkSession, paths: dict[str, Any], check: Check
) -> None:
    key = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(key, "true")
    try:
        plain = _side(spark, paths, "plake")
        for name in ("filtered count then full count", "union of two filters"):
            check(name, plain)
    finally:
        spark.conf.unset(key)


@pytest.mark.long
def test_the_pushdown_setting_may_change_between_planning_and_running(
    with_planner: pq.Side, setting: Any
) -> None:
    frames = [with_planner.t.where("id = 5"), with_planner.t.where("id = 5 OR k IS NULL")]
    setting("spark.sql.python.filterPushdown.enabled", "true")
    plans = [plan(frame) for frame in frames]
    setting("spark.sql.python.filterPushdown.enabled", "false")
    assert all("BatchScan plake" in text for text in plans)
    assert frames[0].count() == 1
    assert len(frames[0].collect()) == 1
    assert {row["id"] for row in frames[1].collect()} > {5, 3}


def test_equal_scans_share_an_exchange(with_planner: pq.Side) -> None:
    once = with_planner.t.where("k = 1").groupBy("g").count()
    again = with_planner.t.where("k = 1").groupBy("g").count()
    both = once.union(again)
    assert len(both.collect()) == 2 * len(once.collect())
    assert "ReusedExchange" in plan(both)


def test_scans_with_different_filters_share_no_exchange(with_planner: pq.Side) -> None:
    # Spark evaluates both ORs above the scan: nothing but the pushed filter tells the two apart.
    one = with_planner.t.where("k = 1").groupBy("g").count()
    two = with_planner.t.where("k = 2").groupBy("g").count()
    both = one.union(two)
    assert multiset(both.collect()) == multiset([*one.collect(), *two.collect()])
    assert "ReusedExchange" not in plan(both)


@pytest.mark.long
def test_frames_loaded_apart_share_no_exchange(with_planner: pq.Side) -> None:
    """They may have pinned different versions."""
    one, two = (with_planner.load().where("k = 1").groupBy("g").count() for _ in range(2))
    both = one.union(two)
    both.collect()
    assert "ReusedExchange" not in plan(both)


def test_marks_reach_neither_the_frame_nor_its_plan_nor_a_file(
    with_planner: pq.Side, tmp_path: Path
) -> None:
    frame = with_planner.t.where("k = 1").select("id", "g")
    execution = frame._jdf.queryExecution()
    seen = [
        frame.schema.json(),
        execution.optimizedPlan().schema().json(),
        execution.executedPlan().schema().json(),
    ]
    frame.write.parquet(f"{tmp_path}/parquet")
    frame.write.format("plake").mode("append").save(f"{tmp_path}/plake")
    seen += [
        with_planner.spark.read.format(kind).load(f"{tmp_path}/{kind}").schema.json()
        for kind in ("parquet", "plake")
    ]
    for text in seen:
        assert Envelope.NAME not in text


def test_the_schema_of_a_frame_is_the_same_with_and_without(
    spark: SparkSession, with_planner: pq.Side, paths: dict[str, Any]
) -> None:
    assert _side(spark, paths, "plake").t.schema == with_planner.t.schema


@pytest.mark.long
def test_a_frame_read_with_the_extension_off_then_on_changes_its_plan_only(
    with_planner: pq.Side, setting: Any
) -> None:
    frame = with_planner.load()
    setting(Setting.PLANNER, "false")
    full = frame.count()
    setting(Setting.PLANNER, "true")
    assert frame.where("id = 5").count() == 1
    setting(Setting.PLANNER, "false")
    assert frame.count() == full


def test_an_upper_case_format_name_prunes_too(with_planner: pq.Side, paths: dict[str, Any]) -> None:
    frame = with_planner.spark.read.format("PLAKE").load(paths["plake"][0][0])
    assert "PushedFilters: [k IS NOT NULL, k = 1]" in scans(frame.where("k = 1"))[0]
    assert frame.where("id = 5").count() == 1


def test_a_file_dropped_by_pruning_is_not_opened(
    with_planner: pq.Side, paths: dict[str, Any], tmp_path: Path
) -> None:
    """A point query touches one of three files, so it survives the loss of the others."""
    import shutil

    from lakehouse_source import open_dataset

    copy = tmp_path / "facts"
    frame = with_planner.spark.createDataFrame(pq.fact_rows(0), pq.FACTS).coalesce(1)
    frame.write.format("plake").mode("append").save(str(copy))
    frame = with_planner.spark.createDataFrame(pq.fact_rows(1), pq.FACTS).coalesce(1)
    frame.write.format("plake").mode("append").save(str(copy))
    files = sorted(open_dataset(str(copy)).files(), key=lambda file: file.path)
    assert len(files) == 2
    loaded = with_planner.spark.read.format("plake").load(str(copy))
    moved = copy / files[1].path
    shutil.move(moved, tmp_path / "away")
    low, high = (loaded.where(f"id = {i}") for i in (5, 45))
    outcomes = []
    for point in (low, high):
        try:
            outcomes.append(point.count())
        except Exception:
            outcomes.append("failed")
    assert sorted(map(str, outcomes)) == ["1", "failed"]

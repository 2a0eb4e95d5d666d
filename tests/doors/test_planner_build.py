"""The committed jar belongs to the committed sources, and sessions load it in every way offered."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.spark import configure, enable, is_enabled, planner_jar, pushdown, session
from lakehouse_source.spark.planner import build

from .conftest import unshared_session


def entries(jar: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(jar) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


# --- the jar -------------------------------------------------------------------


def test_the_jar_was_built_from_the_sources_beside_it() -> None:
    assert build.recorded(planner_jar(), build.SOURCE_HASH) == build.source_hash()


def test_the_jar_runs_on_java_17_and_names_its_entry_point() -> None:
    content = entries(planner_jar())
    classes = {name: data for name, data in content.items() if name.endswith(".class")}
    assert {data[:8] for data in classes.values()} == {b"\xca\xfe\xba\xbe\0\0\0\x3d"}
    assert content[build.SERVICE].decode().strip() == build.EXTENSION == session.EXTENSION
    assert build.EXTENSION.replace(".", "/") + ".class" in classes
    assert planner_jar().stat().st_size < 115_000


@pytest.mark.slow
@pytest.mark.skipif(build.javac_version() is None, reason="needs a JDK")
def test_a_new_build_gives_the_committed_jar(tmp_path: Path) -> None:
    again = build.build(tmp_path / "again.jar")
    if build.javac_version() == build.recorded(planner_jar(), build.BUILD_JDK):
        assert again.read_bytes() == planner_jar().read_bytes()
    else:  # another compiler may arrange the same program differently
        assert entries(again).keys() == entries(planner_jar()).keys()


def test_a_change_of_a_source_changes_the_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "A.java").write_text("class A {}")
    monkeypatch.setattr(build, "SOURCES", tmp_path)
    before = build.source_hash()
    (tmp_path / "A.java").write_text("class A { }")
    assert build.source_hash() != before


def test_a_build_without_a_compiler_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "javac_version", lambda: None)
    with pytest.raises(build.BuildError, match="JDK"):
        build.build()


# --- the marks -----------------------------------------------------------------


def test_java_and_python_spell_the_marks_alike() -> None:
    (source,) = (file for file in build.source_files() if file.name == "ScanMarks.java")
    assert set(re.findall(r'= "(plake\.\w+)"', source.read_text())) == set(pushdown.MARKS)


def schema(**metadata: Any) -> StructType:
    first = StructField("a", IntegerType(), True, metadata)
    return StructType([first, StructField("b", StringType(), False, {"kept": 1})])


def test_a_schema_without_marks_is_not_isolated() -> None:
    given = schema(comment="mine")
    assert pushdown.read_isolation(given) == pushdown.Isolation(given)
    assert pushdown.read_isolation(StructType([])).isolated is False


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        ({}, {}),
        ({pushdown.ROWS_ONLY: True}, {"rows_only": True}),
        ({pushdown.LIMIT: 0}, {"limit": 0}),
        ({pushdown.CONDITION: [{"op": "true"}]}, {"condition": ({"op": "true"},)}),
        ({pushdown.AGGREGATE: {"group": []}}, {"aggregate": {"group": []}}),
    ],
)
def test_marks_are_read_and_removed(marks: dict[str, Any], expected: dict[str, Any]) -> None:
    given = schema(comment="mine", **{pushdown.ISOLATED: True}, **marks)
    found = pushdown.read_isolation(given)
    assert found == pushdown.Isolation(schema(comment="mine"), isolated=True, **expected)


def test_a_scan_that_is_not_isolated_asks_for_columns_alone() -> None:
    """Marks of something else, or of an extension that cannot isolate, count for nothing."""
    marks: dict[str, Any] = {
        pushdown.CONDITION: [{"op": "false"}],
        pushdown.ROWS_ONLY: True,
        pushdown.LIMIT: 1,
        pushdown.AGGREGATE: {},
    }
    given = schema(**marks)
    assert pushdown.read_isolation(given) == pushdown.Isolation(given)


# --- loading: new sessions ---------------------------------------------------------


class Builder:
    """As much of `SparkSession.builder` as `configure` uses."""

    def __init__(self, **options: str) -> None:
        self._options = {key.replace("__", "."): value for key, value in options.items()}

    def config(self, key: str, value: str) -> Builder:
        self._options[key] = value
        return self


def test_configure_adds_the_jar_and_redacts_the_catalog() -> None:
    builder = Builder()
    assert configure(builder) is builder
    assert builder._options == {
        "spark.jars": str(planner_jar()),
        "spark.sql.redaction.options.regex": "(?i)url|catalog",
    }


def test_configure_keeps_what_the_builder_has() -> None:
    builder = Builder(spark__jars="/a.jar,/b.jar", spark__sql__redaction__options__regex="secret")
    options = configure(configure(builder))._options
    assert options["spark.jars"] == f"/a.jar,/b.jar,{planner_jar()}"
    assert options["spark.sql.redaction.options.regex"] == "secret|(?i)catalog"


def test_configure_refuses_a_remote_server_without_showing_its_token() -> None:
    builder = Builder(spark__remote="sc://host:15002/;token=canary")
    with pytest.raises(InvalidOptionError, match=r"spark-defaults\.conf") as caught:
        configure(builder)
    assert "canary" not in str(caught.value)


def test_a_spark_connect_session_is_told_to_configure_its_server() -> None:
    class Remote:
        pass

    Remote.__module__ = "pyspark.sql.connect.session"
    for verb in (enable, is_enabled):
        with pytest.raises(InvalidOptionError, match=r"spark-defaults\.conf"):
            verb(Remote())


def test_importing_the_package_does_not_import_pyspark() -> None:
    code = "import lakehouse_source.spark, sys; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


_PROBE = """
import sys
from pyspark.sql import SparkSession
import lakehouse_source.spark as plake
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
if sys.argv[1] == "configure":
    builder = plake.configure(builder)
spark = builder.getOrCreate()
enabled = plake.is_enabled(spark)
spark.range(3).write.format("plake").mode("append").save(sys.argv[2])
frame = spark.read.format("plake").load(sys.argv[2])
counts = frame.where("id = 1").count(), frame.count()
shown = frame.where("id = 1")._jdf.queryExecution().executedPlan().toString()
spark.sql(f"CREATE TEMPORARY VIEW v USING plake OPTIONS (path '{sys.argv[2]}')")
print("RESULT", enabled, *counts, "PushedFilters" in shown)
"""


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("way", ["configure", "spark.jars"])
def test_spark_jars_alone_loads_the_extension(way: str, tmp_path: Path) -> None:
    arguments = f"--conf spark.jars={planner_jar()} pyspark-shell" if way == "spark.jars" else ""
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    environment.pop("PYSPARK_SUBMIT_ARGS", None)
    if arguments:
        environment["PYSPARK_SUBMIT_ARGS"] = arguments
    done = subprocess.run(
        [sys.executable, "-c", _PROBE, way, str(tmp_path / "data")],
        capture_output=True, text=True, env=environment, check=False,
    )  # fmt: skip
    assert "RESULT True 1 3 True" in done.stdout, done.stderr


# --- loading: running sessions --------------------------------------------------------


@pytest.mark.spark
def test_enable_twice_adds_one_rule(spark: SparkSession) -> None:
    fresh = unshared_session(spark)
    assert not is_enabled(fresh)
    for _ in range(2):
        assert enable(fresh) is fresh
    assert is_enabled(fresh)
    rules = fresh._jsparkSession.extensions().buildPreCBORules(fresh._jsparkSession)
    assert [rules.apply(i).ruleName() for i in range(rules.size())].count(session.RULE) == 1
    assert not is_enabled(spark)


@pytest.mark.spark
def test_a_new_session_shares_the_extension(spark_planner: SparkSession) -> None:
    assert is_enabled(spark_planner.newSession())


@pytest.mark.spark
def test_enable_hides_the_catalog_option(spark: SparkSession) -> None:
    fresh = enable(unshared_session(spark))
    regex = fresh.conf.get("spark.sql.redaction.options.regex")
    assert regex is not None
    assert re.search(regex, "Catalog")
    assert re.search(regex, "dbUrl")


@pytest.fixture
def dataset(spark: SparkSession, tmp_path: Path) -> str:
    path = str(tmp_path / "data")
    spark.range(20).coalesce(1).write.format("plake").mode("append").save(path)
    return path


@pytest.mark.spark
@pytest.mark.parametrize(
    "lost",
    ["IsolateScans$Swap", "IsolateScans$IsolatedTable", "IsolatedScanBuilder", "IsolatedSource",
     "ScanMarks", "IsolatedScan", "ConditionData"],
)  # fmt: skip
def test_a_spark_without_a_needed_class_reads_unpruned_and_right(
    lost: str, spark: SparkSession, dataset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A class of ours that cannot be linked stands for the class of Spark that it needs."""
    crippled = tmp_path / "crippled.jar"
    with zipfile.ZipFile(crippled, "w") as archive:
        for name, data in entries(planner_jar()).items():
            if name != f"io/plake/spark/{lost}.class":
                archive.writestr(name, data)
    monkeypatch.setattr(session, "planner_jar", lambda: crippled)
    fresh = enable(unshared_session(spark))
    frame = fresh.read.format("plake").load(dataset)
    assert [frame.where("id = 5").count(), frame.count()] == [1, 20]
    executed = frame.where("id = 5")._jdf.queryExecution().executedPlan().toString()
    assert "PushedFilters" not in executed

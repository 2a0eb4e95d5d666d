"""The committed jar belongs to the committed sources, and sessions load it in every way offered."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.spark import configure, enable, is_enabled, planner_jar, status
from lakehouse_source.spark.planner import build
from lakehouse_source.spark.planner.build import entries
from lakehouse_source.spark.protocol import vocabulary
from lakehouse_source.spark.protocol.vocabulary import (
    Envelope,
    Mark,
    Part,
    Reader,
    Setting,
    names,
)
from lakehouse_source.spark.reading.pushdown import Pushdown, read_pushdown
from lakehouse_source.spark.session import configure as session
from lakehouse_source.spark.session import planner_status
from lakehouse_source.spark.session.secrets import reveal
from tests.doors.envelopes import encode_request

from .conftest import unshared_session
from .disassembly import disassembled

pytestmark = [pytest.mark.slow, pytest.mark.sampled(3)]

# --- the jar -------------------------------------------------------------------


def test_the_jar_was_built_from_the_sources_beside_it() -> None:
    assert build.recorded(planner_jar(), build.SOURCE_HASH) == build.source_hash()


def test_the_jar_runs_on_java_17_and_names_its_entry_point() -> None:
    content = entries(planner_jar())
    classes = {name: data for name, data in content.items() if name.endswith(".class")}
    assert {data[:8] for data in classes.values()} == {b"\xca\xfe\xba\xbe\0\0\0\x3d"}
    assert content[build.SERVICE].decode().strip() == build.EXTENSION == planner_status.EXTENSION
    assert build.EXTENSION.replace(".", "/") + ".class" in classes


def test_the_jar_records_what_it_was_built_with() -> None:
    assert re.fullmatch(r"17\.[\d.]+", build.recorded(planner_jar(), build.BUILD_JDK))
    assert re.fullmatch(r"4\.\d+\.\d+", build.recorded(planner_jar(), build.BUILD_PYSPARK))


def without(content: dict[str, bytes], *, classes: bool) -> dict[str, bytes]:
    """The entries without those that record how the jar was made, and perhaps without classes."""
    made_with = (build.BUILD_JDK, build.BUILD_PYSPARK)
    return {
        name: data
        for name, data in content.items()
        if name not in made_with and not (classes and name.endswith(".class"))
    }


def compile_again(version: str, folder: Path) -> None:
    """Build the jar with the JDK of a version and compare it with the committed one."""
    committed, (javac, full) = planner_jar(), build.compilers()[version]
    again = build.build(folder / f"{version}.jar", javac)
    ours, new = entries(committed), entries(again)
    assert list(ours) == list(new)
    same_layout = version == build.feature(build.recorded(committed, build.BUILD_JDK))
    for name, data in without(new, classes=not same_layout).items():
        assert data == ours[name], f"{name}, compiled by javac {full}"
    if not same_layout:
        assert disassembled(committed, javac) == disassembled(again, javac)
    if all(ours[name] == new[name] for name in (build.BUILD_JDK, build.BUILD_PYSPARK)):
        assert again.read_bytes() == committed.read_bytes()


@pytest.mark.long  # `make test` compares the hash of the sources
@pytest.mark.slow
def test_a_new_build_gives_the_committed_jar(tmp_path: Path) -> None:
    """Byte for byte with a JDK of the recorded feature version, which integration/java.sh installs.

    JDKs of other versions lay constants out differently: their instructions are compared, as text.
    """
    found = build.compilers()
    assert found, "no JDK: run integration/java.sh"
    recorded = build.feature(build.recorded(planner_jar(), build.BUILD_JDK))
    compile_again(recorded if recorded in found else next(iter(found)), tmp_path)


@pytest.mark.long
@pytest.mark.slow
def test_every_jdk_that_is_here_gives_the_committed_jar(tmp_path: Path) -> None:
    for version in build.compilers():
        compile_again(version, tmp_path)


@pytest.mark.long
@pytest.mark.slow
def test_a_changed_instruction_shows_in_the_disassembly(tmp_path: Path) -> None:
    javac, _ = build.find_javac()
    texts = []
    bodies = ["if (a < 7) b++; b++; return b;", "if (a <= 7) b++; b++; return b;"]
    bodies += ["if (a < 8) b++; b++; return b;", "if (a < 7) { b++; b++; } return b;"]
    for number, body in enumerate(bodies):
        folder = tmp_path / str(number)
        folder.mkdir()
        source = folder / "A.java"
        source.write_text(f"class A {{ static int f(int a, int b) {{ {body} }} }}")
        subprocess.run([javac, "-d", str(folder), str(source)], check=True)
        with zipfile.ZipFile(folder / "a.jar", "w") as archive:
            archive.write(folder / "A.class", "A.class")
        texts.append(disassembled(folder / "a.jar", javac))
    assert len(set(texts)) == len(bodies)


def test_a_change_of_a_source_changes_the_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "A.java").write_text("class A {}")
    monkeypatch.setattr(build, "SOURCES", tmp_path)
    before = build.source_hash()
    (tmp_path / "A.java").write_text("class A { }")
    changed = build.source_hash()
    assert changed != before
    (tmp_path / build.START).write_text("import sys")
    assert build.source_hash() != changed


def test_a_build_without_a_compiler_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "javac_version", lambda javac: None)
    with pytest.raises(build.BuildError, match=r"javac was not found.*java\.sh"):
        build.build()


def test_the_compiler_of_the_wanted_version_is_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it is: bytes are compared only with one of the recorded feature version."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "25" / "bin"), prepend=os.pathsep)
    monkeypatch.setattr(build, "_JVM_FOLDERS", (str(tmp_path),))
    for version in ("11", "21", "25"):
        folder = tmp_path / version / "bin"
        folder.mkdir(parents=True)
        (folder / "javac").write_text(f"#!/bin/sh\necho javac {version}.0.1\n")
        (folder / "javac").chmod(0o755)
    assert build.find_javac() == (str(tmp_path / "25" / "bin" / "javac"), "25.0.1")
    monkeypatch.setattr(build, "RELEASE", "21")
    assert build.find_javac() == (str(tmp_path / "21" / "bin" / "javac"), "21.0.1")


# --- the vocabulary: a name that only one side has must fail here, not stop pruning ---------------


def java(name: str) -> str:
    (source,) = (file for file in build.source_files() if file.name == name)
    return source.read_text()


def test_a_change_of_the_vocabulary_changes_the_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    before = build.source_hash()
    monkeypatch.setattr(Mark, "LIMIT", "another_limit")
    assert 'LIMIT = "another_limit";' in build.vocabulary_source()
    assert build.source_hash() != before


@pytest.mark.parametrize("group", vocabulary.GROUPS, ids=lambda group: group.__name__)
def test_java_uses_every_name_of_the_vocabulary(group: type) -> None:
    sources = "".join(file.read_text() for file in build.source_files())
    used = set(re.findall(rf"\bVocabulary\.{group.__name__}\.(\w+)", sources))
    assert used == set(names(group))


def test_java_spells_no_shared_name_itself() -> None:
    """What else is spelled like shared names: values of settings, a source and a method of Spark,
    operations of the history.
    """
    spelled = {
        text
        for file in build.source_files()
        for text in re.findall(r'"([^"\n]*)"', re.sub(r"case \"[^\"]+\" ->", "", file.read_text()))
    }
    shared = {value for group in vocabulary.GROUPS for value in names(group).values()}
    others = {"true", "false", "text", "catalog", "delete", "merge", "update"}
    assert spelled & shared <= others


def test_only_the_envelope_reads_messages_and_nothing_opens_a_pickle() -> None:
    sources = {file.name: file.read_text() for file in build.source_files()}
    assert [name for name, text in sources.items() if "ObjectMapper" in text] == ["Envelope.java"]
    assert [name for name, text in sources.items() if "razorvine" in text] == []


def test_python_knows_every_part_of_the_extension() -> None:
    assert set(planner_status.EFFECTS) == set(names(Part).values())


# --- the marks -----------------------------------------------------------------


def schema(**metadata: Any) -> StructType:
    first = StructField("a", IntegerType(), True, metadata)
    return StructType([first, StructField("b", StringType(), False, {"kept": 1})])


def test_a_schema_without_marks_is_not_isolated() -> None:
    given = schema(comment="mine")
    assert read_pushdown(given) == Pushdown(given)
    assert read_pushdown(StructType([])).isolated is False


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        ({}, {}),
        ({Mark.ROWS_ONLY: True}, {"rows_only": True}),
        ({Mark.LIMIT: 0}, {"limit": 0}),
        ({Mark.READER: Reader.AUTO}, {"reader": "auto"}),
        ({Mark.CHANGED_FILES: True}, {"changed_files": True}),
        ({Mark.JOINED: True}, {"joined": True}),
        ({Mark.CONDITION: [{"op": "true"}]}, {"condition": ({"op": "true"},)}),
        ({Mark.JOIN_KEYS: [{"op": "true"}]}, {"join_keys": ({"op": "true"},)}),
        ({Mark.AGGREGATE: {"group": []}}, {"aggregate": {"group": []}}),
        ({Mark.PARALLELISM: 64}, {"parallelism": 64}),
    ],
)
def test_marks_are_read_and_removed(marks: dict[str, Any], expected: dict[str, Any]) -> None:
    given = schema(comment="mine", **{Envelope.NAME: encode_request(marks)})
    found = read_pushdown(given)
    assert found == Pushdown(schema(comment="mine"), isolated=True, **expected)


def test_a_question_of_another_release_is_refused() -> None:
    text = encode_request({}).replace(f'"{Envelope.NUMBER}"', '"0"')
    with pytest.raises(InvalidOptionError, match=r"of another release.*planner_jar"):
        read_pushdown(schema(**{Envelope.NAME: text}))


# --- loading: new sessions ---------------------------------------------------------


class Builder:
    """As much of `SparkSession.builder` as `configure` uses."""

    def __init__(self, **options: str) -> None:
        self._options = {key.replace("__", "."): value for key, value in options.items()}

    def config(self, key: str, value: str) -> Builder:
        self._options[key] = value
        return self


CATALOG = (
    "io.plake.spark.PlakeCatalog"
    if pyspark.__version__.startswith("4.1.")
    else "io.plake.spark.PlakeViewCatalog"
)


def test_configure_adds_the_jar_and_redacts_the_catalog() -> None:
    builder = Builder()
    assert configure(builder) is builder
    assert builder._options == {
        "spark.jars": str(planner_jar()),
        "spark.sql.redaction.options.regex": "(?i)url|catalog",
        "spark.sql.catalog.plake": CATALOG,
    }


def test_configure_names_a_catalog_and_conceals_its_password() -> None:
    url = "postgresql://me:canary@host/db"
    options = configure(Builder(), catalog=url, name="lake", warehouse="/data")._options
    assert options["spark.sql.catalog.lake"] == CATALOG
    assert options["spark.sql.catalog.lake.warehouse"] == "/data"
    assert "canary" not in str(options)
    assert reveal(options["spark.sql.catalog.lake.catalog"]) == url
    for name in ("a.b", "", "spark_catalog"):
        with pytest.raises(InvalidOptionError, match="cannot name a catalog of Spark"):
            configure(Builder(), name=name)


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


# --- loading: running sessions --------------------------------------------------------


@pytest.mark.spark
def test_enable_twice_adds_one_rule(spark: SparkSession) -> None:
    fresh = unshared_session(spark)
    assert not is_enabled(fresh)
    for _ in range(2):
        assert enable(fresh) is fresh
    assert is_enabled(fresh)
    rules = fresh._jsparkSession.extensions().buildPreCBORules(fresh._jsparkSession)
    assert [rules.apply(i).ruleName() for i in range(rules.size())].count(planner_status.RULE) == 1
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


# --- status ------------------------------------------------------------------------


def reasons(spark: SparkSession) -> dict[str, str]:
    """The parts that do not work, with the reason of each; save modes need the jar in spark.jars.

    Sessions of one JVM share what is among Spark's jars (`test_save_modes.py` has it).
    """
    parts = [part for part in status(spark).parts if part.name != Part.PROVIDER]
    if tuple(map(int, pyspark.__version__.split(".")[:2])) < (4, 2):
        parts = [part for part in parts if "needs Spark 4.2" not in (part.reason or "")]
    return {part.name: part.reason or "" for part in parts if part.works is not True}


@pytest.mark.spark
def test_every_part_works_in_a_session_with_the_extension(spark_planner: SparkSession) -> None:
    assert reasons(spark_planner) == {}
    assert str(status(spark_planner)).count("  works  ") == len(planner_status.EFFECTS) - 1
    assert "the jar is not in spark.jars" in (status(spark_planner)[Part.PROVIDER].reason or "")


@pytest.mark.spark
def test_status_says_what_is_not_loaded_or_switched_off(spark: SparkSession) -> None:
    fresh = unshared_session(spark)
    assert set(reasons(fresh)) == set(planner_status.EFFECTS) - {Part.PROVIDER}
    assert "enable(spark)" in reasons(fresh)[Part.PUSHDOWN]
    enable(fresh)
    fresh.conf.set(Setting.BATCHES, "false")
    assert reasons(fresh) == {Part.BATCHES: f"switched off by {Setting.BATCHES}"}
    assert is_enabled(fresh)
    fresh.conf.set(Setting.PLANNER, "false")
    assert set(reasons(fresh).values()) == {f"switched off by {Setting.PLANNER}"}
    assert not is_enabled(fresh)


def test_status_cannot_see_the_planner_of_a_connect_server() -> None:
    class Remote:
        pass

    Remote.__module__ = "pyspark.sql.connect.session"
    found = status(Remote())
    assert {part.works for part in found.parts} == {None}
    assert "server" in str(found)
    with pytest.raises(KeyError):
        found["no such part"]


@pytest.fixture
def dataset(spark: SparkSession, tmp_path: Path) -> str:
    path = str(tmp_path / "data")
    spark.range(20).coalesce(1).write.format("plake").mode("append").save(path)
    return path


@pytest.fixture
def crippled(
    spark_planner: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], SparkSession]:
    """A session whose extension lacks a class of ours, as if Spark lacked one that it needs.

    Executors have the whole jar, from `spark_planner`.
    """

    def without(lost: str) -> SparkSession:
        jar = tmp_path / "crippled.jar"
        parts = entries(planner_jar())
        if lost:
            del parts[f"io/plake/spark/{lost}.class"]
        with zipfile.ZipFile(jar, "w") as archive:
            for name, data in parts.items():
                archive.writestr(name, data)
        monkeypatch.setattr(session, "planner_jar", lambda: jar)
        return enable(unshared_session(spark_planner))

    return without


@pytest.mark.spark
@pytest.mark.parametrize(
    "lost",
    ["scan/IsolateScans$IsolatedTable", "scan/IsolatedScanBuilder", "scan/IsolatedSource",
     "scan/Pushdown", "scan/IsolatedScan", "scan/ConditionData"],
)  # fmt: skip
def test_a_spark_without_a_needed_class_reads_unpruned_and_right(
    lost: str, crippled: Callable[[str], SparkSession], dataset: str
) -> None:
    fresh = crippled(lost)
    frame = fresh.read.format("plake").load(dataset)
    assert [frame.where("id = 5").count(), frame.count()] == [1, 20]
    executed = frame.where("id = 5")._jdf.queryExecution().executedPlan().toString()
    assert "PushedFilters" not in executed
    assert lost.replace("/", ".") in reasons(fresh)[Part.PUSHDOWN].replace("/", ".")
    assert not is_enabled(fresh)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("lost", "part"),
    [
        ("scan/ExpressionData", Part.FUNCTIONS),
        ("scan/BatchReads$SparkReader", Part.BATCHES),
        ("format/RepinViews", Part.VIEWS),
        ("statements/RowOperation", Part.STATEMENTS),
        ("statements/StatementTable", Part.STATEMENTS),
        ("reader/ChooseReader$Hide", Part.READER),
        ("scan/ReaderResponse", Part.READER),
        ("reader/PlakeFiles", Part.READER),
    ],
)
def test_a_part_that_fails_is_told_and_the_others_work(
    lost: str, part: str, crippled: Callable[[str], SparkSession], dataset: str
) -> None:
    fresh = crippled(lost)
    fresh.conf.set(Setting.READER, Reader.SPARK if part == Part.READER else Reader.PYTHON)
    fresh.sql(f"CREATE OR REPLACE TEMPORARY VIEW part USING plake OPTIONS (path '{dataset}')")
    frame = fresh.table("part")
    rows = frame.selectExpr("id", "CAST(id AS DECIMAL(9, 2)) AS d").where("d >= 5 AND id < 15")
    assert [rows.count(), frame.selectExpr("max(id)").collect()] == [10, [(19,)]]
    # The metrics of a scan count what the answer about its reader says.
    others = {Part.METRICS} if lost == "scan/ReaderResponse" else set()
    assert set(reasons(fresh)) == {part, *others}
    assert lost.replace("/", ".") in reasons(fresh)[part].replace("/", ".")
    assert is_enabled(fresh)
    fresh.catalog.dropTempView("part")


@pytest.mark.spark
def test_a_jar_of_another_version_is_told(
    crippled: Callable[[str], SparkSession], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planner_status, "STATUS", "noSuchMethod")
    found = reasons(crippled(""))
    assert set(found) == set(planner_status.EFFECTS) - {Part.PROVIDER}
    assert "another plake" in found[Part.PUSHDOWN]

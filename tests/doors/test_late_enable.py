"""`enable` in a session that has run queries, as a notebook has: all works, or `status` tells."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import lakehouse_source as lake
from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.spark import configure, enable, status
from lakehouse_source.spark.protocol.vocabulary import Part
from lakehouse_source.spark.session import planner_status
from tests.doors.conftest import activate, unshared_session

pytestmark = pytest.mark.spark


@pytest.fixture
def used(spark: SparkSession) -> SparkSession:
    """A session that has analysed, optimized and run queries."""
    session = unshared_session(spark)
    assert session.sql("SELECT 1 + 1").first()[0] == 2
    assert session.range(3).count() == 3
    return session


def test_statements_views_and_tables_work_after_a_query(used: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "d")
    lake.write_dataset({"i": [1, 2, 3], "v": [1, 2, 3]}, path)
    frame = used.read.format("plake").load(path)
    assert frame.count() == 3
    assert enable(used) is used
    enable(used)
    assert not planner_status.are_missing(used)
    assert str(status(used)).count("does not work") == str(status(enable(used.newSession()))).count(
        "does not work"
    )
    used.sql(f"CREATE OR REPLACE TEMPORARY VIEW late USING plake OPTIONS (path '{path}')")
    for table in ("late", f"plake.`{path}`"):
        before = used.table(table).count()
        used.sql(f"DELETE FROM {table} WHERE i = (SELECT min(i) FROM {table})")
        used.sql(f"UPDATE {table} SET v = v + 10")
        used.sql(
            f"MERGE INTO {table} t USING (SELECT 3L i) s ON t.i = s.i "
            "WHEN MATCHED THEN UPDATE SET v = 0"
        )
        assert used.table(table).count() == before - 1
    assert used.sql(f"SELECT i, v FROM plake.`{path}`").collect() == [(3, 0)]
    used.sql(f"CREATE TABLE plake.`{path}-new` AS SELECT * FROM late")
    assert used.table(f"plake.`{path}-new`").count() == 1


def test_a_rule_is_added_once(used: SparkSession) -> None:
    enable(used)
    rules = used._jsparkSession.sessionState().analyzer().postHocResolutionRules()
    before = rules.size()
    enable(used)
    assert used._jsparkSession.sessionState().analyzer().postHocResolutionRules().size() == before


def test_a_sister_session_is_told_that_it_lacks_the_rules(used: SparkSession) -> None:
    sister = used.newSession()
    assert sister.range(2).count() == 2
    enable(used)
    part = status(sister)[Part.STATEMENTS]
    assert (part.works, "newSession()" in str(part.reason)) == (False, True)
    enable(sister)
    assert status(sister)[Part.STATEMENTS].works


def test_a_catalog_that_was_used_by_path_gets_its_names_later(
    used: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "d")
    lake.write_dataset({"i": [1, 2, 3]}, path)
    enable(used, name="late")
    assert used.sql(f"SELECT count(*) FROM late.`{path}`").first()[0] == 3
    with pytest.raises(AnalysisException, match=r"spark\.sql\.catalog\.late\.catalog"):
        used.sql("CREATE NAMESPACE late.s")
    url, warehouse = f"sqlite:///{tmp_path}/c.db", str(tmp_path / "w")
    enable(used, catalog=url, name="late", warehouse=warehouse)
    used.sql("CREATE NAMESPACE late.s")
    used.sql(f"CREATE TABLE late.s.t AS SELECT * FROM late.`{path}`")
    assert used.table("late.s.t").count() == 3
    assert (tmp_path / "w").is_dir()


def test_another_catalog_takes_effect_after_the_first_was_used(
    used: SparkSession, tmp_path: Path
) -> None:
    """The session went on reading and writing the first one, and `spark.conf` showed the other."""

    def enabled(name: str) -> None:
        enable(used, f"sqlite:///{tmp_path}/{name}.db", "late", str(tmp_path / f"{name}-warehouse"))

    def names() -> list[str]:
        return [row.tableName for row in used.sql("SHOW TABLES IN late.s").collect()]

    for name in ("dev", "prod"):
        enabled(name)
        used.sql("CREATE NAMESPACE late.s")
        used.sql(f"CREATE TABLE late.s.{name} AS SELECT '{name}' AS made_in")
        assert names() == [name]
        assert len(list((tmp_path / f"{name}-warehouse").rglob("*.parquet"))) == 1
    kept = used.table("late.s.prod")
    prefix = "spark.sql.catalog.late"
    used.conf.set(f"{prefix}.catalog", f"sqlite:///{tmp_path}/dev.db")
    used.conf.set(f"{prefix}.warehouse", str(tmp_path / "by-hand"))
    assert names() == ["dev"]
    used.sql("INSERT INTO late.s.dev VALUES ('by hand')")
    used.sql("CREATE TABLE late.s.more AS SELECT 1 AS one")
    assert list((tmp_path / "by-hand").rglob("*.parquet"))
    assert kept.collect() == [("prod",)]
    with lake.open_catalog(f"sqlite:///{tmp_path}/prod.db") as catalog:
        assert catalog.dataset("s.prod").version == 1
    used.conf.set(f"{prefix}.storage.no_such_option", "1")
    with pytest.raises(AnalysisException, match="no_such_option"):
        used.table("late.s.dev").collect()
    used.conf.unset(f"{prefix}.storage.no_such_option")
    used.conf.unset(f"{prefix}.catalog")
    with pytest.raises(AnalysisException, match=r"spark\.sql\.catalog\.late\.catalog"):
        names()


def test_tables_of_another_catalog_are_not_made_in_the_first_one_s_warehouse(
    used: SparkSession, tmp_path: Path
) -> None:
    dev, prod = f"sqlite:///{tmp_path}/dev.db", f"sqlite:///{tmp_path}/prod.db"
    enable(used, dev, "late", str(tmp_path / "w"))
    enable(used, dev, "late")
    running = SparkSession._instantiatedSession
    try:
        SparkSession._instantiatedSession = used
        for give in (
            lambda: enable(used, prod, "late"),
            lambda: configure(SparkSession.builder, prod, "late").getOrCreate(),
        ):
            with pytest.raises(InvalidOptionError, match="was given with another catalog"):
                give()
            assert used.conf.get("spark.sql.catalog.late.catalog") == dev
    finally:
        SparkSession._instantiatedSession = running
    used.conf.unset("spark.sql.catalog.late.warehouse")
    enable(used, prod, "late")


def test_a_catalog_keeps_to_the_settings_of_its_own_session(
    used: SparkSession, tmp_path: Path
) -> None:
    """Spark's settings of the moment are those of the session that is active, maybe of another."""
    sessions = {name: unshared_session(used) for name in ("dev", "prod")}
    for name, session in sessions.items():
        enable(session, f"sqlite:///{tmp_path}/{name}.db", "late", str(tmp_path / name))
        session.sql(f"CREATE NAMESPACE late.{name}")
    for other, session in zip(reversed(sessions), sessions.values()):
        activate(sessions[other])
        catalog = session._jsparkSession.sessionState().catalogManager().catalog("late")
        found = {".".join(one) for one in catalog.listNamespaces()}
        assert found & set(sessions) == set(sessions) - {other}


def test_a_catalog_without_the_extension_is_refused_with_the_line_to_add(
    used: SparkSession, tmp_path: Path
) -> None:
    """DELETE said "Table does not support deletes", nothing was pruned, and reads worked."""
    enable(unshared_session(used))  # Spark's class loader has the catalog's class from here on
    kind = used.conf.get("spark.sql.catalog.plake", None) or "io.plake.spark.PlakeCatalog"
    sister = unshared_session(used)
    sister.conf.set("spark.sql.catalog.late", kind)
    sister.conf.set("spark.sql.catalog.late.catalog", f"sqlite:///{tmp_path}/c.db")
    lake.write_dataset({"i": [1]}, str(tmp_path / "d"))
    for statement in (f"SELECT * FROM late.`{tmp_path}/d`", "SHOW NAMESPACES IN late"):
        with pytest.raises(AnalysisException, match=r"lakehouse_source\.spark\.enable\(spark\)"):
            sister.sql(statement)
    enable(sister)
    assert sister.sql(f"SELECT * FROM late.`{tmp_path}/d`").collect() == [(1,)]

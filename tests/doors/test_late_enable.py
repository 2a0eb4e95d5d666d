"""`enable` in a session that has run queries, as a notebook has: all works, or `status` tells."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import lakehouse_source as lake
from lakehouse_source.spark import enable, status
from lakehouse_source.spark.protocol.vocabulary import Part
from lakehouse_source.spark.session import late_rules
from tests.doors.conftest import unshared_session

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
    assert not late_rules.are_missing(used)
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
    enable(used, catalog=f"sqlite:///{tmp_path}/other.db", name="late")
    assert used.table("late.s.t").count() == 3
    assert not (tmp_path / "other.db").exists()

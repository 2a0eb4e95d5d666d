"""Statements of Spark under `serializable`: what they read and others changed is a conflict."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import lakehouse_source as lake
from lakehouse_source.spark.protocol.vocabulary import Setting
from tests.doors.test_row_statements import between_planning_and_write

pytestmark = pytest.mark.spark

SWAP = (
    "MERGE INTO t USING (SELECT explode(array({gone}, {new})) AS id) s ON t.id = s.id "
    "WHEN MATCHED AND s.id = {gone} THEN DELETE "
    "WHEN NOT MATCHED AND s.id = {new} THEN INSERT (id, v) VALUES (s.id, 1)"
)


def table(ids: Sequence[int], v: int = 0) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "v": pa.array([v] * len(ids), pa.int64())})


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Rows 3 and 5 in one file, 8 and 9 in another one."""
    found = str(tmp_path / "t")
    lake.write_dataset(table([3, 5]), found, rewrite_threshold=1.0)
    lake.write_dataset(table([8, 9]), found)
    return found


@pytest.fixture
def session(spark_planner: SparkSession, path: str) -> Iterator[SparkSession]:
    spark_planner.conf.set(Setting.STATEMENT + "isolation", "serializable")
    spark_planner.sql(f"CREATE OR REPLACE TEMPORARY VIEW t USING plake OPTIONS (path '{path}')")
    yield spark_planner
    spark_planner.conf.unset(Setting.STATEMENT + "isolation")


def commits(session: SparkSession, statement: str, meanwhile: Callable[[], Any]) -> bool:
    try:
        between_planning_and_write(session, statement, meanwhile)
    except Exception as error:
        if "PLAKE_COMMIT_CONFLICT" not in str(error):
            raise
        return False
    return True


def ids(path: str) -> list[int]:
    return sorted(lake.read_dataset(path)["id"].to_pylist())


@pytest.mark.parametrize(("gone", "new"), [(3, 5), (5, 3)])
def test_two_merges_that_read_what_the_other_deletes_do_not_both_commit(
    gone: int, new: int, session: SparkSession, path: str
) -> None:
    def theirs() -> None:
        session.sql(SWAP.format(gone=new, new=gone))

    assert not commits(session, SWAP.format(gone=gone, new=new), theirs)
    assert ids(path) == [gone, 8, 9]


def test_snapshot_takes_both_merges(session: SparkSession, path: str) -> None:
    session.conf.set(Setting.STATEMENT + "isolation", "snapshot")
    theirs = SWAP.format(gone=5, new=3)
    assert commits(session, SWAP.format(gone=3, new=5), lambda: session.sql(theirs))
    assert ids(path) == [8, 9]


MINE = {
    "delete": "DELETE FROM t WHERE id = 3",
    "update": "UPDATE t SET v = 1 WHERE id = 3",
    "subquery": "UPDATE t SET v = 1 WHERE id = 3 AND (SELECT sum(v) FROM t) = 0",
    "in": "DELETE FROM t WHERE id = 3 AND id IN (SELECT id - 2 FROM t)",
    "insert": "MERGE INTO t USING (SELECT explode(array(5, 6)) AS id) s ON t.id = s.id "
    "WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)",
    "part": "MERGE INTO t USING (SELECT explode(array(3, 4)) AS id) s ON t.id = s.id AND t.id < 5 "
    "WHEN MATCHED THEN UPDATE SET v = 2",
}


@pytest.mark.parametrize(
    ("mine", "theirs", "both"),
    [
        ("delete", "delete 5", True),
        ("delete", "insert 3", False),
        ("delete", "insert 30", True),
        ("update", "update 5", True),
        ("update", "insert 3", False),
        ("subquery", "update 5", False),  # write skew
        ("subquery", "update 9", False),
        ("in", "delete 5", False),
        ("insert", "delete 5", False),
        ("part", "delete 9", True),
        ("part", "insert 30", True),
        ("part", "delete 3", False),
    ],
)
def test_what_a_statement_read_and_another_commit_changed_conflicts(
    mine: str, theirs: str, both: bool, session: SparkSession, path: str
) -> None:
    verb, id = theirs.split()

    def act() -> None:
        if verb == "insert":
            lake.write_dataset(table([int(id)]), path)
        elif verb == "delete":
            lake.open_dataset(path).delete(f"id = {id}")
        else:
            lake.open_dataset(path).update({"v": 1}, f"id = {id}")

    assert commits(session, MINE[mine], act) is both
    assert lake.open_dataset(path).version == (4 if both else 3)

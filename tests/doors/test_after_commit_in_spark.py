"""The server is gone right after a COMMIT that it answered: the statement of Spark succeeds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession

import lakehouse_source as lake
from tests.postgres_server import PostgresServer
from tests.verbs.cutting_proxy import DOWN, CuttingProxy

pytestmark = pytest.mark.spark

TABLE = "cut.s.t"
# The statement, and the rows that it answers.
STATEMENTS: dict[str, tuple[str, list[tuple[object, ...]]]] = {
    "create": ("CREATE TABLE cut.s.new (id BIGINT) USING plake", []),
    "create as": ("CREATE TABLE cut.s.new AS SELECT * FROM range(3)", []),
    "replace": ("CREATE OR REPLACE TABLE cut.s.t AS SELECT * FROM range(3)", []),
    "insert": (f"INSERT INTO {TABLE} VALUES (7, 'g')", []),
    "delete": (f"DELETE FROM {TABLE} WHERE id = 1", []),
    "update": (f"UPDATE {TABLE} SET w = 'x' WHERE id = 1", []),
    "add a column": (f"ALTER TABLE {TABLE} ADD COLUMN more INT", []),
    "set a property": (f"ALTER TABLE {TABLE} SET TBLPROPERTIES ('team' = 'ann')", []),
    "rename": (f"ALTER TABLE {TABLE} RENAME TO s.u", []),
    "drop": (f"DROP TABLE {TABLE}", []),
    "truncate": (f"TRUNCATE TABLE {TABLE}", []),
    "set_index_columns": (
        "CALL cut.system.set_index_columns(table => 's.t', columns => array('id'))",
        [(3, ["id"])],
    ),
    "restore": ("CALL cut.system.restore(table => 's.t', version => 1)", [(3, 0, 0, 1)]),
    "create_tag": ("CALL cut.system.create_tag(table => 's.t', name => 'spring')", [("spring", 2)]),
    "create_branch": ("CALL cut.system.create_branch(table => 's.t', name => 'b')", [("b", 2)]),
    "add_files": (
        "CALL cut.system.add_files(table => 's.t', path => '{plain}', copy => true)",
        [(3, 1, 3, 1)],
    ),
    "convert": (
        "CALL cut.system.convert(path => '{plain}')",
        [("file://{plain}", 1, 1, 3, [])],
    ),
}

# Those that read the catalog again after their COMMIT; the others run with the long tests.
BRIEF = ("create", "add a column", "set_index_columns", "convert")


@dataclass
class Cut:
    spark: SparkSession
    proxy: CuttingProxy
    direct: lake.catalog.Catalog
    plain: str
    cut_at: int = 0


@pytest.fixture
def cut(spark: SparkSession, postgres_server: PostgresServer, tmp_path: Path) -> Iterator[Cut]:
    from tests.doors.conftest import unshared_session

    url = postgres_server.new_catalog()
    state: list[Cut] = []
    with (
        CuttingProxy(
            postgres_server.socket_folder,
            lambda number: DOWN if state and number == state[0].cut_at else None,
        ) as proxy,
        lake.open_catalog(url) as direct,
    ):
        session = lake.spark.enable(unshared_session(spark))
        session.conf.set("spark.sql.catalog.cut", "io.plake.spark.PlakeCatalog")
        session.conf.set(
            "spark.sql.catalog.cut.catalog", f"{url.partition('?')[0]}?host={proxy.folder}"
        )
        session.conf.set("spark.sql.catalog.cut.warehouse", str(tmp_path / "warehouse"))
        state.append(Cut(session, proxy, direct, str(tmp_path / "plain")))
        yield state[0]


def run(cut: Cut, folder: Path, name: str) -> tuple[list[Row], int]:
    """What a statement answers on a new table of two versions, and the COMMITs that it took."""
    cut.spark.sql("DROP NAMESPACE IF EXISTS cut.s CASCADE")
    cut.spark.sql("CREATE NAMESPACE cut.s")
    cut.spark.sql(f"CREATE TABLE {TABLE} AS SELECT id, 'a' AS w FROM range(0, 3, 1, 1)")
    cut.spark.sql(f"INSERT INTO {TABLE} VALUES (3, 'b')")
    cut.plain = str(folder)
    frame = cut.spark.sql("SELECT id, 'a' AS w FROM range(0, 3, 1, 1)")
    frame.write.parquet(cut.plain)
    before = cut.proxy.commits
    if cut.cut_at:
        cut.cut_at += before
    answered = cut.spark.sql(STATEMENTS[name][0].format(plain=cut.plain)).collect()
    return answered, cut.proxy.commits - before


@pytest.mark.parametrize(
    "name",
    [one if one in BRIEF else pytest.param(one, marks=pytest.mark.long) for one in STATEMENTS],
)
def test_a_statement_that_was_committed_succeeds(cut: Cut, tmp_path: Path, name: str) -> None:
    """CREATE and ALTER TABLE read the table after it, and failed as if they could be repeated."""

    def expected(folder: str) -> list[tuple[object, ...]]:
        return [
            tuple(v.format(plain=folder) if isinstance(v, str) else v for v in row)
            for row in STATEMENTS[name][1]
        ]

    answered, commits = run(cut, tmp_path / "first", name)
    assert [tuple(row) for row in answered] == expected(cut.plain)
    assert commits > 0
    cut.cut_at = commits  # the last one
    answered, _ = run(cut, tmp_path / "second", name)
    assert cut.proxy.down
    assert [tuple(row) for row in answered] == expected(cut.plain)
    cut.proxy.down = False

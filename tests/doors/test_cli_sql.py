"""`plake sql`: DuckDB over the catalog's tables, against DuckDB over the same rows in memory."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakehouse_source as lake
from lakehouse_source.cli.sql import make_views
from lakehouse_source.cli.sql_conditions import conditions
from tests.doors.plake_command import plake

pytestmark = pytest.mark.slow

DAYS = [date(2026, 1, 1) + timedelta(days=n) for n in range(40)]
ROWS = pa.table(
    {
        "id": list(range(40)),
        "p": [n // 10 for n in range(40)],
        "s": [None if n % 7 == 0 else "abcd"[n // 10] + str(n % 3) for n in range(40)],
        "d": DAYS,
        "f": [float("nan") if n % 5 == 0 else n / 2 for n in range(40)],
    }
)


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> lake.DatasetCatalog:
    folder = tmp_path_factory.mktemp("sql")
    found = lake.open_catalog(f"sqlite://{folder}/lake.db")
    found.create_namespace("sales")
    for name in ("default.t", "sales.t"):
        path = folder / name
        lake.write_dataset(ROWS, path, catalog=found, partition_by="p", sort_by=["id"])
        found.register(name, path)
        found.dataset(name).delete("id = 17")
    return found


def answer(query: str, catalog: lake.DatasetCatalog | None) -> tuple[Any, dict[str, int]]:
    """The rows of a query over the catalog, or over tables in memory, and the files read."""
    with duckdb.connect(config={"python_enable_replacements": "false"}) as connection:
        files: dict[str, int] = {}
        if catalog is None:
            here = ROWS.filter(pa.compute.field("id") != 17)
            connection.register("t", here)
            connection.execute("CREATE SCHEMA sales")
            connection.register("whole", here)
            connection.execute("CREATE VIEW sales.t AS SELECT * FROM whole")
        else:
            files = make_views(connection, query, catalog)
        # As texts: NaN is not equal to itself.
        return sorted(map(str, connection.execute(query).fetchall())), files


@pytest.mark.parametrize(
    ("query", "files"),
    [
        ("SELECT * FROM t", 4),
        ("SELECT * FROM t WHERE p = 1", 1),
        ("SELECT * FROM t AS x WHERE 2 <= x.p AND x.id > 0", 2),
        ("SELECT * FROM T WHERE \"P\" = 1", 1),
        ("SELECT * FROM t WHERE p IN (0, 3)", 2),
        ("SELECT * FROM t WHERE p BETWEEN 1 AND 2", 2),
        ("SELECT * FROM t WHERE d = DATE '2026-01-12'", 1),
        ("SELECT * FROM t WHERE d > '2026-02-05'", 1),
        ("SELECT * FROM t WHERE s = 'a1'", 1),
        ("SELECT * FROM t WHERE p = 1 OR p = 2", 4),
        ("SELECT * FROM t WHERE NOT p = 1", 4),
        ("SELECT * FROM t WHERE p + 1 = 1", 4),
        ("SELECT p AS id FROM t WHERE id = 39", 1),
        ("SELECT (SELECT max(id) FROM t WHERE p = 3) FROM t WHERE p = 0", 2),
        ("SELECT (SELECT max(id) FROM t) FROM t WHERE p = 0", 4),
        ("SELECT * FROM t a JOIN t b USING (id) WHERE a.p = 1 AND b.p = 1", 1),
        ("SELECT * FROM t a JOIN t b USING (id) WHERE a.p = 1", 4),
        ("SELECT * FROM t a LEFT JOIN sales.t b ON a.id = b.id AND b.p = 0 WHERE a.p = 1", 4),
        ("SELECT * FROM t a LEFT JOIN sales.t b ON a.id = b.id WHERE b.p = 1", 4),
        ("SELECT * FROM t a JOIN sales.t b ON a.id = b.id + 10 WHERE a.p = 1 AND b.p = 0", None),
        ("SELECT * FROM t POSITIONAL JOIN (SELECT range FROM range(40)) WHERE t.p = 1", 4),
        ("SELECT a.id FROM t a ANTI JOIN (SELECT 1 AS id) b USING (id) WHERE a.p = 1", 4),
        ("WITH t AS (SELECT 1 AS p) SELECT * FROM t WHERE p = 2", None),
        ("WITH x AS (SELECT * FROM t WHERE p = 2) SELECT * FROM x WHERE p = 2", 1),
        ("SELECT * FROM (SELECT * FROM t) WHERE p = 2", 4),
        ("SELECT * FROM t WHERE p = 1 UNION ALL SELECT * FROM t WHERE p = 2", 2),
        ("SELECT * FROM t WHERE p = 1 UNION ALL SELECT * FROM t", 4),
        ("SELECT p, count(*) FROM t WHERE p >= 1 GROUP BY p HAVING count(*) > 9", 3),
        ("SELECT count(*) FILTER (WHERE p = 1) FROM t", 4),
        ("SELECT * FROM t WHERE f > 1000", 4),
        ("SELECT * FROM t WHERE p = 1.5", 4),
        ("SELECT * FROM t WHERE id = '3'", 4),
        ("FROM t WHERE p = 3", 1),
        ("SELECT * FROM t WHERE p = 1 AND p = 2", 0),
        ("SELECT x.p FROM (SELECT 1 AS p) x WHERE EXISTS (SELECT * FROM t WHERE x.p = 1)", 4),
        ("SELECT x.p FROM (SELECT 9 AS p) x WHERE EXISTS (SELECT * FROM t y WHERE x.p = 9)", 4),
    ],
)  # fmt: skip
@pytest.mark.sampled(4)
def test_a_query_gives_what_duckdb_gives(
    query: str, files: int | None, catalog: lake.DatasetCatalog
) -> None:
    """`files`: those of `t` that are read, of four."""
    found, read = answer(query, catalog)
    assert found == answer(query, None)[0]
    if files is not None:
        assert read["t"] == files


OPERANDS = st.sampled_from(["p", "id", "x.p", "s", "d", "f", "x.id"])
LITERALS = st.one_of(
    st.integers(-1, 40).map(str),
    st.sampled_from(["'a1'", "'b'", "''", "DATE '2026-01-20'", "'2026-01-03'", "NULL", "1.5",
                     "-1", "'3'", "1 + 1", "TRUE"]),
)  # fmt: skip
SIMPLE = st.one_of(
    st.builds(
        "{} {} {}".format, OPERANDS, st.sampled_from(["=", "<", "<=", ">", ">=", "<>"]), LITERALS
    ),
    st.builds("{} {} {}".format, LITERALS, st.sampled_from(["=", "<", "<=", ">", ">="]), OPERANDS),
    st.builds("{} BETWEEN {} AND {}".format, OPERANDS, LITERALS, LITERALS),
    st.builds("{} IN ({}, {})".format, OPERANDS, LITERALS, LITERALS),
    st.builds("{} NOT IN ({}, {})".format, OPERANDS, LITERALS, LITERALS),
    st.builds("{} IS NOT NULL".format, OPERANDS),
)
CONDITIONS = st.recursive(
    SIMPLE,
    lambda inner: st.one_of(
        st.builds("({} AND {})".format, inner, inner),
        st.builds("{} AND {}".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("NOT ({})".format, inner),
    ),
    max_leaves=5,
)
FORMS = st.sampled_from(
    [
        "SELECT x.* FROM t x WHERE {}",
        "SELECT x.id FROM t x JOIN (SELECT id AS i FROM sales.t) y ON x.id = i WHERE {}",
        "SELECT x.id FROM t x LEFT JOIN sales.t y ON x.id = y.id AND y.p = 1 WHERE {}",
        "SELECT count(*) FROM t x WHERE {} UNION ALL SELECT id FROM t WHERE p = 2",
    ]
)


@pytest.mark.long
@given(FORMS, CONDITIONS)
def test_any_condition_gives_what_duckdb_gives(
    catalog: lake.DatasetCatalog, form: str, condition: str
) -> None:
    query = form.format(condition)
    try:
        expected = answer(query, None)[0]
    except duckdb.Error:  # types that do not fit, or a name that two tables have
        return
    assert answer(query, catalog)[0] == expected


def test_a_file_that_no_row_is_needed_of_is_not_opened(
    catalog: lake.DatasetCatalog, tmp_path: Path
) -> None:
    url = f"sqlite://{tmp_path}/lake.db"
    with lake.open_catalog(url) as own:
        lake.write_dataset(ROWS, tmp_path / "t", catalog=own, partition_by="p")
        own.register("t", tmp_path / "t")
        for path in (tmp_path / "t").glob("p=3/*"):
            path.unlink()
    query = "SELECT count(*) AS n FROM t WHERE p = {}"
    assert plake("sql", query.format(1), "--catalog", url, "-o", "json").rows == [{"n": 10}]
    assert plake("sql", query.format(3), "--catalog", url).err.startswith("PLAKE_STORAGE: ")


@pytest.mark.skipif(duckdb.__version__ < "2", reason="DuckDB 1.5 takes none from Arrow")
def test_values_of_variant_are_asked_and_shown(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/lake.db"
    with lake.open_catalog(url) as own:
        rows = {"id": [1, 2, 3], "v": lake.variant([{"a": [1.5]}, {"a": "x"}, None])}
        lake.write_dataset(rows, tmp_path / "t", catalog=own)
        own.register("t", tmp_path / "t")
    query = "SELECT v, v.a AS a, {'w': v} AS s FROM t WHERE id < 3 ORDER BY v.a = 'x'"
    done = plake("sql", query, "--catalog", url, "-o", "json")
    assert done.rows == [
        {"v": '{"a":[1.5]}', "a": "[1.5]", "s": {"w": '{"a":[1.5]}'}},
        {"v": '{"a":"x"}', "a": '"x"', "s": {"w": '{"a":"x"}'}},
    ]


def test_what_is_no_select_is_refused(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/lake.db"
    with lake.open_catalog(url) as catalog:
        catalog.create_namespace("sales")
    here = 7  # no table of this name is made of it
    for query in (
        "COPY (SELECT 1) TO '/tmp/plake-never'",
        "SELECT 1; SELECT 2",
        "CREATE TABLE x (i INT)",
        "SELEC",
        "SELECT * FROM here",
        "SELECT 1 AS a, 2 AS a",
        "ATTACH '/tmp/plake-never'",
    ):
        done = plake("sql", query, "--catalog", url)
        assert (done.code, done.out) == (1, ""), query
        assert done.err.count("\n") == 1
    assert here == 7
    assert not Path("/tmp/plake-never").exists()


def test_conditions_of_texts_that_only_duckdb_reads_are_none() -> None:
    schema = pa.schema([("p", pa.int64())])
    assert conditions("SELECT * FROM t WHERE p = 1", ("t",), schema) == [[("p", "=", 1)]]
    for query in (
        "SELECT ((",
        "SELECT * FROM t TABLESAMPLE 10% WHERE p = 1",
        "SELECT * FROM t WHERE p = 1 USING SAMPLE 1",
        "SELECT * FROM u.t WHERE p = 1",
    ):
        assert conditions(query, ("t",), schema) is None

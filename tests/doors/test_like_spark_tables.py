"""Statements on a table of plake's catalog and on Spark's own Parquet table: same rows or refusal.

A group is run statement by statement on both. Where they differ, `DIFFERENCES` says why.
"""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

# The columns of a group's table, what follows them, and the statements. Not among them is what
# Spark refuses for its own tables only: PARTITION that leaves out the last columns, or that has a
# value behind a column without one.
GROUPS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "partitions": (
        "a INT, p STRING, q INT",
        "PARTITIONED BY (p, q)",
        (
            "INSERT INTO {t} VALUES (1, 'x', 1), (2, 'x', 2), (3, 'y', 1), (4, NULL, NULL)",
            "INSERT INTO {t} PARTITION (p = 'z', q = 9) VALUES (5)",
            "INSERT INTO {t} PARTITION (p = 'z', q) VALUES (6, 10)",
            "INSERT INTO {t} PARTITION (a = 1) VALUES ('z', 1)",
            "INSERT INTO {t} PARTITION (nosuch = 1) VALUES ('z', 1)",
            "INSERT INTO {t} PARTITION (p = 'a b/c=%', q = 1) VALUES (8)",
            "INSERT INTO {t} PARTITION (p = 'x', q = '3') VALUES (9)",
            "INSERT INTO {t} PARTITION (p = 'x', q = 'no') VALUES (9)",
            "INSERT OVERWRITE {t} PARTITION (p = 'x', q = 1) VALUES (100)",
            "INSERT OVERWRITE {t} PARTITION (p = 'x', q) VALUES (101, 7)",
            "INSERT OVERWRITE {t} PARTITION (p = 'none', q = 1) VALUES (102)",
            "SET spark.sql.sources.partitionOverwriteMode = dynamic",
            "INSERT OVERWRITE {t} VALUES (200, 'x', 7), (201, 'new', 1)",
            "INSERT OVERWRITE {t} PARTITION (p = 'y', q) VALUES (202, 5)",
            "INSERT OVERWRITE {t} SELECT 1, 'x', 1 WHERE false",
            "SET spark.sql.sources.partitionOverwriteMode = static",
            "SELECT p, q, count(*) FROM {t} GROUP BY p, q",
            "SELECT a FROM {t} WHERE p IS NULL OR q > 6",
            "SELECT a FROM {t} WHERE p IN ('x', 'a b/c=%')",
            "INSERT OVERWRITE {t} VALUES (300, 'x', 1)",
            "INSERT OVERWRITE {t} SELECT 1, 'x', 1 WHERE false",
        ),
    ),
    "numbers": (
        "a TINYINT, b SMALLINT, c INT, d BIGINT, e FLOAT, f DOUBLE, g DECIMAL(5, 2)",
        "",
        (
            "INSERT INTO {t} VALUES (1, 2, 3, 4, 5.5, 6.5, 7.25)",
            "INSERT INTO {t} VALUES (NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
            (
                "INSERT INTO {t} VALUES (-128, -32768, -2147483648, -9223372036854775808, "
                "FLOAT('-Infinity'), DOUBLE('NaN'), -999.99)"
            ),
            "INSERT INTO {t} VALUES (128, 0, 0, 0, 0, 0, 0)",
            "INSERT INTO {t} VALUES (1L, 2L, 3L, 4L, 5L, 6L, 7L)",
            "INSERT INTO {t} VALUES (1, 1, 3000000000, 1, 1, 1, 1)",
            "INSERT INTO {t} VALUES (1.6, 1, 1.4, 1, 1, 1, 1.005)",
            "INSERT INTO {t} VALUES (1, 1, 1, 1, 1, 1, 1000)",
            "INSERT INTO {t} VALUES ('1', 1, 1, 1, 1, 1, 1)",
            "INSERT INTO {t} VALUES (true, 1, 1, 1, 1, 1, 1)",
            "INSERT INTO {t} VALUES (1, 2, 3)",
            "INSERT INTO {t} VALUES (1, 2, 3, 4, 5, 6, 7, 8)",
            "INSERT INTO {t} (d, c) VALUES (40, 30)",
            "INSERT INTO {t} (d, d) VALUES (40, 30)",
            "INSERT INTO {t} (nosuch) VALUES (1)",
            "INSERT INTO {t} BY NAME SELECT 5 AS c, 6L AS D",
            "INSERT INTO {t} BY NAME SELECT 5 AS c, 6 AS nosuch",
            "INSERT INTO {t} SELECT * FROM {t} WHERE c > 0",
            "INSERT INTO {t} TABLE {t}",
            "SELECT sum(a), sum(d), min(e), max(f), avg(g), count(*), count(c) FROM {t}",
            "SELECT c FROM {t} WHERE f = DOUBLE('NaN') OR g IS NULL",
            "SELECT a % 2 AS k, count(*) FROM {t} GROUP BY ALL HAVING count(*) > 1",
            "SELECT nosuch FROM {t}",
        ),
    ),
    "texts": (
        "s STRING, c CHAR(3), v VARCHAR(3), b BINARY, o BOOLEAN",
        "",
        (
            "INSERT INTO {t} VALUES ('', 'a', 'ab', X'00FF', true)",
            "INSERT INTO {t} VALUES ('ünïcødé 😀', 'abc', 'abc', CAST('x' AS BINARY), false)",
            "INSERT INTO {t} VALUES ('x', 'abcd', 'x', NULL, NULL)",
            "INSERT INTO {t} VALUES ('x', 'x', 'abcd', NULL, NULL)",
            "INSERT INTO {t} VALUES ('x', 'abc  ', 'abc  ', NULL, NULL)",
            "INSERT INTO {t} VALUES (1, 2, 3, NULL, NULL)",
            "INSERT INTO {t} VALUES (DATE'2024-01-02', 'x', 'y', NULL, NULL)",
            "INSERT INTO {t} VALUES ('x', 'x', 'x', 'x', NULL)",
            "INSERT INTO {t} VALUES ('x', 'x', 'x', NULL, 1)",
            "SELECT s FROM {t} WHERE c = 'a'",
            "SELECT s FROM {t} WHERE c = 'a  '",
            "SELECT s FROM {t} WHERE v LIKE 'a%' AND NOT o",
            "SELECT upper(s), length(c), hex(b) FROM {t}",
            "SELECT count(DISTINCT c), max(v) FROM {t}",
        ),
    ),
    "times": (
        "d DATE, t TIMESTAMP, n TIMESTAMP_NTZ",
        "",
        (
            (
                "INSERT INTO {t} VALUES (DATE'2024-02-29', TIMESTAMP'2024-02-29 12:00:00.123456', "
                "TIMESTAMP_NTZ'2024-02-29 12:00:00.654321')"
            ),
            (
                "INSERT INTO {t} VALUES (DATE'1850-01-01', TIMESTAMP'1850-01-01 00:00:00', "
                "TIMESTAMP_NTZ'1850-01-01 00:00:00')"
            ),
            "INSERT INTO {t} VALUES (DATE'9999-12-31', TIMESTAMP'9999-12-31 23:59:59', NULL)",
            (
                "INSERT INTO {t} VALUES (TIMESTAMP'2024-01-01 05:00:00', DATE'2024-01-01', "
                "DATE'2024-01-01')"
            ),
            "INSERT INTO {t} VALUES ('2024-01-01', NULL, NULL)",
            "INSERT INTO {t} VALUES (20240101, NULL, NULL)",
            "SELECT count(*) FROM {t} WHERE d >= DATE'2024-01-01'",
            "SELECT year(t), month(n), date_trunc('HOUR', t) FROM {t}",
            "SELECT d FROM {t} WHERE t < n",
        ),
    ),
    "names": (
        "`Größe` INT, `a.b` INT, `c d` STRING, `select` INT, `tick``` INT",
        "",
        (
            "INSERT INTO {t} VALUES (1, 2, 'x', 3, 4)",
            "INSERT INTO {t} (`a.b`, `größe`) VALUES (20, 10)",
            "INSERT INTO {t} BY NAME SELECT 5 AS `tick```, 'y' AS `C D`",
            "INSERT INTO {t} (a.b) VALUES (1)",
            "SELECT `Größe`, `A.B` FROM {t} WHERE `a.b` > 1",
            "SELECT a.b FROM {t}",
            "SELECT `select` + 1 AS `select`, `c d` FROM {t} WHERE `c d` = 'x'",
            "SELECT sum(`tick```) AS `s` FROM {t}",
            "ALTER TABLE {t} ADD COLUMNS (`new col` INT, `dötted.name` STRING)",
            "INSERT INTO {t} (`new col`, `dötted.name`) VALUES (7, 'd')",
            "ALTER TABLE {t} ADD COLUMNS (`SELECT` INT)",
            "SELECT `dötted.name`, `new col` FROM {t} WHERE `new col` = 7",
        ),
    ),
    "case": (
        "Id INT, userName STRING, S STRUCT<Aa: INT, bB: INT>",
        "",
        (
            "INSERT INTO {t} VALUES (1, 'x', named_struct('Aa', 1, 'bB', 2))",
            "INSERT INTO {t} (USERNAME, id) VALUES ('y', 2)",
            "INSERT INTO {t} BY NAME SELECT 3 AS ID, named_struct('BB', 5, 'AA', 4) AS s",
            "SELECT ID, USERNAME, s.AA FROM {t} WHERE iD >= 1 AND S.bb IS NOT NULL",
            "SET spark.sql.caseSensitive = true",
            "SELECT id FROM {t}",
            "SELECT Id, S.Aa FROM {t}",
            "INSERT INTO {t} (id) VALUES (4)",
            "INSERT INTO {t} BY NAME SELECT 5 AS Id, 'z' AS userName",
            "SET spark.sql.caseSensitive = false",
            "SELECT * FROM {t} ORDER BY ID",
        ),
    ),
    "nested": (
        (
            "s STRUCT<a: INT, b: STRUCT<c: STRING>>, l ARRAY<STRUCT<x: INT, y: STRING>>, "
            "m MAP<STRING, ARRAY<INT>>"
        ),
        "",
        (
            (
                "INSERT INTO {t} VALUES (named_struct('a', 1, 'b', named_struct('c', 'q')), "
                "array(named_struct('x', 1, 'y', 'z')), map('k', array(1, NULL)))"
            ),
            "INSERT INTO {t} VALUES (NULL, NULL, NULL)",
            "INSERT INTO {t} VALUES (named_struct('a', NULL, 'b', NULL), array(), map())",
            "INSERT INTO {t} (l) VALUES (array(NULL, named_struct('x', 5, 'y', NULL)))",
            "INSERT INTO {t} (s) VALUES (named_struct('z', 9, 'w', named_struct('v', 'pos')))",
            "INSERT INTO {t} (s) VALUES (named_struct('a', 9))",
            "INSERT INTO {t} (s) VALUES (named_struct('a', 9, 'b', struct('r'), 'd', 1))",
            "INSERT INTO {t} (s) VALUES (struct(1L, struct(5)))",
            "INSERT INTO {t} BY NAME SELECT named_struct('b', named_struct('c', 'n'), 'a', 3) AS s",
            "INSERT INTO {t} (m) VALUES (map('a', array('1')))",
            "SELECT s.a, s.b.c, l[0].x, m['k'][0] FROM {t}",
            "SELECT s FROM {t} WHERE s.b.c = 'q'",
            "SELECT count(s.b), count(s.b.c) FROM {t}",
            "SELECT explode(l) FROM {t}",
            "SELECT s.nosuch FROM {t}",
            "SELECT size(m), cardinality(l) FROM {t} WHERE l IS NOT NULL",
        ),
    ),
    "defaults": (
        "a INT DEFAULT 5, b STRING DEFAULT upper('x'), c DATE",
        "",
        (
            "INSERT INTO {t} VALUES (DEFAULT, DEFAULT, DEFAULT)",
            "INSERT INTO {t} (c) VALUES (DATE'2024-01-01')",
            "INSERT INTO {t} (a, b) VALUES (NULL, DEFAULT)",
            "INSERT INTO {t} VALUES (1, 'q', NULL), (DEFAULT, 'r', NULL)",
            "INSERT INTO {t} SELECT 1, DEFAULT, NULL",
            "ALTER TABLE {t} ADD COLUMNS (d INT DEFAULT 7)",
            "SELECT a, d FROM {t}",
            "INSERT INTO {t} (a) VALUES (8)",
            "ALTER TABLE {t} ALTER COLUMN b SET DEFAULT 'y'",
            "INSERT INTO {t} (a) VALUES (9)",
            "ALTER TABLE {t} ALTER COLUMN b DROP DEFAULT",
            "INSERT INTO {t} (a) VALUES (10)",
            "ALTER TABLE {t} ADD COLUMNS (e INT DEFAULT 'no')",
            "ALTER TABLE {t} ADD COLUMNS (a INT)",
            "SELECT sum(d) FROM {t}",
        ),
    ),
    "queries": (
        "id INT, g STRING, v DOUBLE",
        "",
        (
            (
                "INSERT INTO {t} VALUES (1, 'a', 1.5), (2, 'a', -0.0), (3, 'b', DOUBLE('NaN')), "
                "(4, NULL, NULL), (4, 'c', 0.0)"
            ),
            "SELECT id FROM {t} WHERE v = 0",
            "SELECT id FROM {t} WHERE v > 1e300",
            "SELECT id FROM {t} WHERE NOT (g = 'a')",
            "SELECT id FROM {t} WHERE g <=> NULL",
            "SELECT id FROM {t} WHERE g NOT IN ('a', 'c')",
            "SELECT id FROM {t} WHERE id IN (SELECT max(id) FROM {t})",
            "SELECT a.id, b.id FROM {t} a JOIN {t} b ON a.id = b.id AND a.g <> b.g",
            "SELECT id, row_number() OVER (PARTITION BY g ORDER BY id, v) FROM {t}",
            "SELECT g FROM {t} EXCEPT SELECT 'a'",
            "WITH x AS (SELECT * FROM {t}) SELECT count(*) FROM x UNION ALL SELECT id FROM x",
            "SELECT * FROM {t} ORDER BY id, g LIMIT 2 OFFSET 1",
            "SELECT g, sum(v) FROM {t} GROUP BY ROLLUP (g)",
            "SELECT * FROM {t} PIVOT (count(id) FOR g IN ('a', 'b'))",
            "SELECT * FROM {t} LATERAL VIEW explode(array(1, 2)) e AS n WHERE id = n",
            "TRUNCATE TABLE {t}",
            "SELECT max(id), count(*) FROM {t}",
            "INSERT INTO {t} REPLACE WHERE id = 1 SELECT 1, 'r', 2",
        ),
    ),
}

DIFFERENCES: dict[tuple[str, str], str] = {
    ("queries", "INSERT INTO {t} REPLACE WHERE id = 1 SELECT 1, 'r', 2"): (
        "Spark has it for tables of catalogs only"
    ),
}

ENDS = ("SET spark.sql.caseSensitive = false",)


def done(spark: SparkSession, table: str, statement: str) -> list[Any] | str:
    """The rows of a query, those of the table after a statement, or that it was refused."""
    try:
        found = spark.sql(statement.format(t=table)).collect()
        if not statement.startswith(("SELECT", "WITH", "SET")):
            found = spark.table(table).collect()
        return sorted(map(repr, found))
    except PySparkException:
        return "refused"


def test_there_are_enough_statements() -> None:
    assert sum(len(statements) for _, _, statements in GROUPS.values()) >= 110
    known = {(name, text) for name, (_, _, texts) in GROUPS.items() for text in texts}
    assert known >= DIFFERENCES.keys()


@pytest.mark.parametrize(
    "group",
    [
        pytest.param(name, marks=[] if name in ("names", "case") else [pytest.mark.long])
        for name in GROUPS
    ],
)
def test_a_table_of_plake_is_like_one_of_parquet(spark_catalog: SparkSession, group: str) -> None:
    columns, rest, statements = GROUPS[group]
    ours, theirs = f"plake.default.like_{group}", f"spark_catalog.default.like_{group}"
    found: dict[str, tuple[object, object]] = {}
    for table, form in ((ours, "plake"), (theirs, "parquet")):
        spark_catalog.sql(f"DROP TABLE IF EXISTS {table}")
        spark_catalog.sql(f"CREATE TABLE {table} ({columns}) USING {form} {rest}")
    try:
        for statement in statements:
            pair = done(spark_catalog, ours, statement), done(spark_catalog, theirs, statement)
            if pair[0] != pair[1]:
                found[statement] = pair
    finally:
        for statement in ENDS:
            spark_catalog.sql(statement)
    listed = {text for name, text in DIFFERENCES if name == group}
    assert {text: pair for text, pair in found.items() if text not in listed} == {}
    assert listed <= found.keys()

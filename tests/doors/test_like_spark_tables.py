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
    "conditions": (
        "id INT, s STRING, d DATE, t TIMESTAMP, f DOUBLE, b BOOLEAN",
        "",
        (
            (
                "INSERT INTO {t} VALUES (1, 'apple', DATE'2024-01-31', "
                "TIMESTAMP'2024-01-31 23:59:59', 1.5, true), (2, 'Äpfel', DATE'2024-02-29', "
                "TIMESTAMP'2024-02-29 00:00:00', -0.0, false), (3, '', DATE'1969-12-31', "
                "TIMESTAMP'1969-12-31 23:00:00.5', DOUBLE('NaN'), NULL)"
            ),
            (
                "INSERT INTO {t} VALUES (4, NULL, NULL, NULL, NULL, NULL), "
                "(5, 'a%_', NULL, NULL, 0, true)"
            ),
            "SELECT id FROM {t} WHERE s LIKE 'a%'",
            "SELECT id FROM {t} WHERE s LIKE '%e%'",
            "SELECT id FROM {t} WHERE s LIKE '_p%'",
            "SELECT id FROM {t} WHERE s LIKE 'a!%%' ESCAPE '!'",
            "SELECT id FROM {t} WHERE s NOT LIKE 'a%'",
            "SELECT id FROM {t} WHERE s ILIKE 'A%'",
            "SELECT id FROM {t} WHERE s RLIKE '^a.*e$'",
            "SELECT id FROM {t} WHERE startswith(s, 'Ä')",
            "SELECT id FROM {t} WHERE s = ''",
            "SELECT id FROM {t} WHERE s > 'apple'",
            "SELECT id FROM {t} WHERE length(s) BETWEEN 1 AND 5",
            "SELECT id FROM {t} WHERE s IN ('apple', '', NULL)",
            "SELECT id FROM {t} WHERE s NOT IN ('apple', '', NULL)",
            "SELECT id FROM {t} WHERE year(d) = 2024 AND month(d) > 1",
            "SELECT id FROM {t} WHERE year(d) < 1970 OR d IS NULL",
            "SELECT id FROM {t} WHERE d BETWEEN '2024-01-01' AND '2024-02-01'",
            "SELECT id FROM {t} WHERE CAST(t AS DATE) = DATE'2024-01-31'",
            "SELECT id FROM {t} WHERE t >= '2024-02-29'",
            "SELECT id FROM {t} WHERE date_trunc('MONTH', t) = TIMESTAMP'2024-02-01 00:00:00'",
            "SELECT id FROM {t} WHERE t < d",
            "SELECT id FROM {t} WHERE d + INTERVAL 1 DAY = DATE'2024-02-01'",
            "SELECT id FROM {t} WHERE f = 0.0",
            "SELECT id FROM {t} WHERE f < 1 OR isnan(f)",
            "SELECT id FROM {t} WHERE NOT (f > 0)",
            "SELECT id FROM {t} WHERE f <=> NULL",
            "SELECT id FROM {t} WHERE b",
            "SELECT id FROM {t} WHERE NOT b OR b IS NULL",
            "SELECT id FROM {t} WHERE b = (id = 1)",
            "SELECT id FROM {t} WHERE id = 1L",
            "SELECT id FROM {t} WHERE id = '1'",
            "SELECT id FROM {t} WHERE id > 2.5",
            "SELECT id FROM {t} WHERE id = 3000000000",
            "SELECT id FROM {t} WHERE id + 1 = 3",
            "SELECT id FROM {t} WHERE coalesce(s, 'x') = 'x'",
            "SELECT id FROM {t} WHERE CASE WHEN id > 2 THEN b ELSE NOT b END",
            "SELECT id FROM {t} WHERE true",
            "SELECT id FROM {t} WHERE NULL",
            "SELECT id FROM {t} WHERE id = 'x'",
        ),
    ),
    "joins": (
        "id INT, g STRING",
        "",
        (
            "INSERT INTO {t} VALUES (1, 'a'), (2, 'b'), (2, 'c'), (NULL, 'd'), (3, NULL)",
            "SELECT a.g, b.g FROM {t} a JOIN {t} b ON a.id = b.id",
            "SELECT a.g, b.g FROM {t} a LEFT JOIN {t} b ON a.id = b.id AND b.g > 'b'",
            "SELECT a.g, b.g FROM {t} a RIGHT JOIN {t} b ON a.id = b.id + 1",
            "SELECT a.g, b.g FROM {t} a FULL JOIN {t} b ON a.id = b.id + 1",
            "SELECT a.g FROM {t} a LEFT SEMI JOIN {t} b ON a.id = b.id + 1",
            "SELECT a.g FROM {t} a LEFT ANTI JOIN {t} b ON a.id = b.id + 1",
            "SELECT a.g, b.g FROM {t} a CROSS JOIN {t} b WHERE a.id < b.id",
            "SELECT * FROM {t} NATURAL JOIN (SELECT 2 AS id, 'q' AS h)",
            "SELECT * FROM {t} JOIN (SELECT 2 AS id, 'q' AS h) USING (id)",
            "SELECT a.g FROM {t} a JOIN {t} b ON a.id <=> b.id",
            "SELECT g FROM {t} WHERE EXISTS (SELECT 1 FROM {t} x WHERE x.id = {t}.id + 1)",
            "SELECT g FROM {t} a WHERE id = (SELECT max(id) FROM {t} b WHERE b.g > a.g)",
            "SELECT g FROM {t} WHERE id NOT IN (SELECT id FROM {t} WHERE id > 1)",
            "SELECT g, (SELECT count(*) FROM {t}) FROM {t}",
            "SELECT * FROM {t} a, LATERAL (SELECT a.id + 1 AS n)",
            "SELECT id FROM {t} UNION SELECT id FROM {t}",
            "SELECT id FROM {t} INTERSECT SELECT 2",
            "SELECT id FROM {t} MINUS SELECT 2",
            "SELECT a.nosuch FROM {t} a JOIN {t} b ON a.id = b.id",
            "SELECT g FROM {t} a JOIN {t} b ON a.id = b.id",
        ),
    ),
    "aggregates": (
        "id INT, g STRING, v DECIMAL(10, 2), f FLOAT",
        "",
        (
            (
                "INSERT INTO {t} VALUES (1, 'a', 1.10, 0.5), (2, 'a', 2.20, NULL), "
                "(3, 'b', NULL, FLOAT('NaN')), (4, NULL, 4.40, -1.5)"
            ),
            "SELECT count(*), count(v), count(DISTINCT g) FROM {t}",
            "SELECT min(id), max(id), min(g), max(g), min(v), max(v), min(f), max(f) FROM {t}",
            "SELECT sum(v), avg(v), stddev(id) FROM {t}",
            "SELECT g, count(*), max(v) FROM {t} GROUP BY g",
            "SELECT g, count(*) FROM {t} GROUP BY g HAVING max(id) > 2",
            "SELECT g, count(*) FILTER (WHERE id > 1) FROM {t} GROUP BY g",
            "SELECT g, sum(v) FROM {t} GROUP BY CUBE (g)",
            "SELECT g, id, sum(v) FROM {t} GROUP BY GROUPING SETS ((g), (id), ())",
            "SELECT sort_array(collect_list(id)), sort_array(collect_set(g)) FROM {t}",
            "SELECT id, sum(id) OVER (ORDER BY id) FROM {t}",
            "SELECT id, rank() OVER (ORDER BY g NULLS LAST), lag(id) OVER (ORDER BY id) FROM {t}",
            "SELECT g FROM {t} QUALIFY 1 = 1",
            "SELECT DISTINCT g FROM {t}",
            "SELECT count(*) FROM {t} WHERE id > 100",
            "SELECT max(id) FROM {t} WHERE id > 100",
            "SELECT any_value(1), bool_or(id = 1) FROM {t}",
            "SELECT percentile(id, 0.5), median(id) FROM {t}",
            "SELECT g, id FROM {t} GROUP BY g",
            "SELECT * FROM {t} TABLESAMPLE (100 PERCENT)",
            "SELECT id FROM {t} ORDER BY v DESC NULLS LAST LIMIT 1",
        ),
    ),
    "decimals": (
        "a DECIMAL(38, 0), b DECIMAL(38, 38), c DECIMAL(18, 6), d DECIMAL(1, 1)",
        "",
        (
            (
                "INSERT INTO {t} VALUES (99999999999999999999999999999999999999BD, "
                "0.99999999999999999999999999999999999999BD, 123456789012.345678, 0.9)"
            ),
            "INSERT INTO {t} VALUES (-1, -0.5, -0.000001, -0.1)",
            "INSERT INTO {t} VALUES (1e10, 0, 1.0000005, 0.05)",
            "INSERT INTO {t} VALUES (0, 0, 1234567890123, 0)",
            "INSERT INTO {t} VALUES (0, 0, 0, 1)",
            "INSERT INTO {t} VALUES (NULL, NULL, NULL, NULL)",
            "SELECT a + 1 FROM {t}",
            "SELECT a FROM {t} WHERE a > 99999999999999999999999999999999999998BD",
            "SELECT b FROM {t} WHERE b < 0",
            "SELECT c FROM {t} WHERE c IN (-0.000001, 1.000001)",
            "SELECT c FROM {t} WHERE c = 123456789012.345678",
            "SELECT sum(c), max(b), min(d) FROM {t}",
            "SELECT c * d, c / 3 FROM {t}",
            "SELECT CAST(c AS INT), CAST(c AS STRING), round(c, 2) FROM {t} WHERE c < 10",
        ),
    ),
    "arrays": (
        "id INT, l ARRAY<INT>, m MAP<STRING, DECIMAL(5, 2)>, n ARRAY<ARRAY<STRING>>",
        "",
        (
            "INSERT INTO {t} VALUES (1, array(1, 2, NULL), map('a', 1.5), array(array('x'), NULL))",
            "INSERT INTO {t} VALUES (2, array(), map(), array())",
            "INSERT INTO {t} VALUES (3, NULL, NULL, NULL)",
            "INSERT INTO {t} VALUES (4, array('1'), map('b', 2), array(array(1)))",
            "INSERT INTO {t} VALUES (5, array('no'), NULL, NULL)",
            "INSERT INTO {t} VALUES (6, 7, NULL, NULL)",
            "INSERT INTO {t} VALUES (6, NULL, map('a', 1000), NULL)",
            "INSERT INTO {t} VALUES (6, NULL, map('a', 1, 'a', 2), NULL)",
            "SELECT id FROM {t} WHERE l = array(1)",
            "SELECT id FROM {t} WHERE array_contains(l, 2)",
            "SELECT id, size(l), l[0], element_at(m, 'a') FROM {t}",
            "SELECT id, e FROM {t} LATERAL VIEW OUTER explode(l) x AS e",
            "SELECT id, k, v FROM {t} LATERAL VIEW explode(m) x AS k, v",
            "SELECT transform(l, e -> e + 1), filter(l, e -> e IS NOT NULL) FROM {t}",
            "SELECT map_keys(m), map_values(m) FROM {t}",
            "SELECT flatten(n) FROM {t}",
            "SELECT id FROM {t} WHERE m['a'] = 1.5",
            "SELECT id FROM {t} WHERE m = map('a', 1.5)",
            "SELECT id FROM {t} ORDER BY l",
            "SELECT DISTINCT l FROM {t}",
        ),
    ),
    "made": (
        "a INT, b STRING",
        "",
        (
            "INSERT INTO {t} VALUES (1, 'x')",
            "CREATE TABLE {t} (z INT) USING {f}",
            "CREATE TABLE IF NOT EXISTS {t} (z INT) USING {f}",
            "CREATE TABLE {t}_made USING {f} AS SELECT a AS n, b FROM {t}",
            "SELECT * FROM {t}_made",
            "CREATE TABLE {t}_made USING {f} AS SELECT 1 AS q",
            "CREATE TABLE IF NOT EXISTS {t}_made USING {f} AS SELECT 1 AS q",
            "SELECT n, b FROM {t}_made",
            "DROP TABLE {t}_made",
            "SELECT * FROM {t}_made",
            "DROP TABLE {t}_made",
            "DROP TABLE IF EXISTS {t}_made",
            "CREATE TABLE {t}_made USING {f} AS SELECT CAST(raise_error('stop') AS INT) AS n",
            "SELECT * FROM {t}_made",
            "CREATE TABLE {t}_made (x INT, X INT) USING {f}",
            "CREATE TABLE {t}_made (x INT) USING {f} PARTITIONED BY (y)",
            "CREATE TABLE {t}_made (x INT, y INT) USING {f} PARTITIONED BY (y, y)",
            "CREATE TABLE {t}_made USING {f} PARTITIONED BY (b) AS SELECT * FROM {t}",
            "SELECT * FROM {t}_made WHERE b = 'x'",
            "INSERT INTO {t}_made VALUES (2, NULL)",
            "SELECT a FROM {t}_made WHERE b IS NULL",
            "DROP TABLE {t}_made",
            "CREATE TABLE {t}_made USING {f} AS SELECT 1 AS n WHERE false",
            "SELECT * FROM {t}_made",
            "DROP TABLE {t}_made",
            "CREATE TEMPORARY VIEW {v} AS SELECT a, upper(b) AS c FROM {t}",
            "SELECT * FROM {v}",
            "INSERT INTO {t} VALUES (2, 'y')",
            "SELECT * FROM {v} WHERE c = 'Y'",
            "DROP VIEW {v}",
            "SELECT * FROM {v}",
            "WITH n AS (SELECT 3 AS a, 'w' AS b) INSERT INTO {t} SELECT * FROM n",
            (
                "FROM {t} INSERT INTO {t} SELECT a + 10, b WHERE a = 1 "
                "INSERT INTO {t} SELECT a, 'm' WHERE a = 2"
            ),
            "INSERT INTO {t} SELECT a.a, b.b FROM {t} a JOIN {t} b ON a.a = b.a",
            "INSERT INTO {t} VALUES (1), (2, 'x')",
            "ALTER TABLE {t} ALTER COLUMN b COMMENT 'text'",
            "ALTER TABLE {t} ADD COLUMNS (c STRUCT<x: INT, y: ARRAY<INT>> COMMENT 'new')",
            "INSERT INTO {t} VALUES (9, 'n', named_struct('x', 1, 'y', array(1)))",
            "SELECT a, c.x, c.y[0] FROM {t}",
            "ALTER TABLE {t} ADD COLUMNS (c INT)",
            "ALTER TABLE {t} ADD COLUMNS (d INT NOT NULL)",
            "ALTER TABLE {t} SET TBLPROPERTIES ('k' = 'v')",
            "SHOW COLUMNS IN {t}",
            "SELECT count(*) FROM {t}",
            "INSERT OVERWRITE {t} SELECT * FROM {t} WHERE a > 1",
        ),
    ),
    "sensitive": (
        "a INT, Bb STRING",
        "PARTITIONED BY (Bb)",
        (
            "INSERT INTO {t} VALUES (1, 'x'), (2, 'Y')",
            "INSERT OVERWRITE {t} PARTITION (bb = 'x') VALUES (3)",
            "SELECT A, BB FROM {t} WHERE bB = 'Y'",
            "SET spark.sql.caseSensitive = true",
            "SELECT A FROM {t}",
            "SELECT Bb FROM {t} WHERE bb = 'x'",
            "INSERT INTO {t} (a, bb) VALUES (4, 'z')",
            "INSERT INTO {t} (Bb, a) VALUES ('z', 4)",
            "INSERT INTO {t} PARTITION (BB = 'q') VALUES (5)",
            "INSERT INTO {t} BY NAME SELECT 6 AS a, 'w' AS Bb",
            "INSERT INTO {t} BY NAME SELECT 6 AS A, 'w' AS Bb",
            "SELECT a AS x, Bb AS X FROM {t} ORDER BY x",
            "ALTER TABLE {t} ADD COLUMNS (c INT)",
            "SELECT C FROM {t}",
            "SET spark.sql.caseSensitive = false",
            "SELECT C FROM {t}",
            "SELECT T.a FROM {t} AS t WHERE t.BB = 'z'",
        ),
    ),
}

DIFFERENCES: dict[tuple[str, str], str] = {
    ("queries", "INSERT INTO {t} REPLACE WHERE id = 1 SELECT 1, 'r', 2"): (
        "Spark has it for tables of catalogs only"
    ),
    ("made", "INSERT OVERWRITE {t} SELECT * FROM {t} WHERE a > 1"): (
        "Spark's own tables cannot be overwritten from themselves"
    ),
    ("sensitive", "ALTER TABLE {t} ADD COLUMNS (c INT)"): (
        "the partition columns of Spark's own tables stay the last ones"
    ),
}

ENDS = ("SET spark.sql.caseSensitive = false",)


def done(spark: SparkSession, table: str, form: str, statement: str) -> list[Any] | str:
    """The rows of a query, those of the table after a statement, or that it was refused."""
    text = statement.format(t=table, f=form, v=f"like_{form}")
    try:
        found = spark.sql(text).collect()
        if "INSERT" in text or not text.startswith(("SELECT", "WITH", "SET", "SHOW")):
            found = spark.table(table).collect()
        return sorted(map(repr, found))
    except PySparkException:
        return "refused"


def test_there_are_enough_statements() -> None:
    assert sum(len(statements) for _, _, statements in GROUPS.values()) >= 300
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
            pair = (
                done(spark_catalog, ours, "plake", statement),
                done(spark_catalog, theirs, "parquet", statement),
            )
            if pair[0] != pair[1]:
                found[statement] = pair
    finally:
        for statement in ENDS:
            spark_catalog.sql(statement)
    listed = {text for name, text in DIFFERENCES if name == group}
    assert {text: pair for text, pair in found.items() if text not in listed} == {}
    assert listed <= found.keys()

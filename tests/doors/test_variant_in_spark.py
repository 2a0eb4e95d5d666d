"""VARIANT in Spark: statements, paths, both readers, streams; Spark's own Parquet is the oracle."""

from __future__ import annotations

import functools
import json
import math
import random
from collections.abc import Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

import lakehouse_source as lake
from lakehouse_source.parquet import likely_rows
from lakehouse_source.spark.protocol.vocabulary import Reader, Setting
from tests.doors.frames import load, save
from tests.doors.plake_command import plake

TEXTS = [
    '{"user": {"id": 7}, "ts": 1.5, "n": 5, "tags": ["a", null]}',
    "null",
    '{"user": {"id": "8"}, "n": "5", "big": 123456789012345678901234567890}',
    '[1, {"n": 1e3}]',
    '"text"',
    '{"n": 5.0, "user": null}',
]
ASKED = (
    "id, to_json(v) AS json, v:user.id::string AS user, try_variant_get(v, '$.n', 'int') AS n, "
    "schema_of_variant(v) AS schema, v IS NULL AS missing, is_variant_null(v) AS json_null, "
    "to_json(s.v) AS field, s IS NULL AS nothing, to_json(l[1]) AS item, to_json(m['k']) AS value"
)
INSIDE = (
    *("id", "v", "IF(id = 3, NULL, named_struct('v', v, 'n', id)) AS s"),
    *("IF(id = 4, NULL, array(NULL, v)) AS l", "map('k', v) AS m"),
)
CONDITIONS = (
    "v IS NULL",
    "v IS NOT NULL AND NOT is_variant_null(v)",
    "try_variant_get(v, '$.n', 'int') = 5",
    "v:user.id::string = '8' OR id = 1",
    "s.v:user.id::int = 7",
    "s.v IS NULL",
)
SHREDDING = (
    "spark.sql.variant.writeShredding.enabled",
    "spark.sql.variant.inferShreddingSchema",
)


def frame(spark: SparkSession) -> Any:
    given = [*enumerate(TEXTS), (len(TEXTS), None)]
    rows = spark.createDataFrame(given, "id INT, text STRING").selectExpr(
        "id", "parse_json(text) AS v"
    )
    return rows.selectExpr(*INSIDE)


def matches(rows: DataFrame, conditions: Sequence[str] = CONDITIONS) -> list[tuple[int, int]]:
    """The conditions that each row satisfies, asked in one query."""
    parts = [
        rows.where(condition).selectExpr(f"{n} AS n", "id")
        for n, condition in enumerate(conditions)
    ]
    return sorted(map(tuple, functools.reduce(DataFrame.union, parts).collect()))


def test_values_and_paths_are_those_of_sparks_own_parquet(
    spark: SparkSession, spark_auto: SparkSession, tmp_path: Path
) -> None:
    save(frame(spark), tmp_path / "t")
    frame(spark).write.parquet(f"{tmp_path}/p")
    own = spark.read.parquet(f"{tmp_path}/p")
    answers = own.selectExpr(f"struct({ASKED}) AS r").collect()
    wanted, matched = sorted(map(str, answers)), matches(own)
    for reader in (Reader.PYTHON, Reader.SPARK):
        spark_auto.conf.set(Setting.READER, reader)
        found = load(spark_auto, tmp_path / "t")
        assert sorted(map(str, found.selectExpr(f"struct({ASKED}) AS r").collect())) == wanted
        assert matches(found) == matched
    spark_auto.conf.unset(Setting.READER)
    assert "read by Spark" in found._jdf.queryExecution().toString()
    texts = [row.r.json for row in answers]
    table = lake.read_dataset(tmp_path / "t")
    assert sorted(map(str, (one.to_json() for one in table["v"]))) == sorted(map(str, texts))
    rows = {"id": list(range(len(TEXTS))), "v": lake.variant(TEXTS, json=True)}
    lake.write_dataset(rows, tmp_path / "python")
    from_python = load(spark, tmp_path / "python").selectExpr("to_json(v) AS json").collect()
    assert sorted(row.json for row in from_python) == sorted(filter(None, texts))


@pytest.mark.long
def test_shredded_files_of_spark_are_taken_over_by_both_readers(
    spark: SparkSession, spark_auto: SparkSession, tmp_path: Path
) -> None:
    given = [
        f'{{"id": {n}, "s": "t{n}", "x": {n}.25, "a": [{n}, {{"b": true}}]}}' for n in range(50)
    ]
    # Spark shreds nothing where values are of different kinds.
    given += [f'{{"id": "{n}", "x": {text}, "a": {text}}}' for n, text in enumerate(TEXTS)]
    rows = spark.createDataFrame([(n, text) for n, text in enumerate([*given, None])])
    rows = rows.selectExpr("CAST(_1 AS INT) AS id", "parse_json(_2) AS v").coalesce(1)
    for key in SHREDDING:
        spark.conf.set(key, "true")
    try:
        rows.write.parquet(f"{tmp_path}/p")
    finally:
        for key in SHREDDING:
            spark.conf.unset(key)
    (path,) = (tmp_path / "p").glob("*.parquet")
    assert "typed_value" in str(pq.ParquetFile(path).schema)
    shown = sorted((row.id, row.j) for row in rows.selectExpr("id", "to_json(v) j").collect())
    save(rows.limit(0), tmp_path / "t")
    lake.open_dataset(tmp_path / "t").add_files([str(path)], copy=True)
    table = lake.read_dataset(tmp_path / "t").sort_by("id")
    assert list(zip(table["id"].to_pylist(), [v.to_json() for v in table["v"]])) == shown
    for reader in (Reader.PYTHON, Reader.SPARK):
        spark_auto.conf.set(Setting.READER, reader)
        found = load(spark_auto, tmp_path / "t").selectExpr("id", "to_json(v) j")
        assert sorted((row.id, row.j) for row in found.collect()) == shown
    spark_auto.conf.unset(Setting.READER)


LEAVES = (
    *("null", "true", "false", "0", "7", "-1", "128", "2147483648", "9223372036854775807"),
    *("1.0", "1.50", "0.1", "-2.5", "1e3", "1E-5", "1e300", "12345678901234567890", "0.005"),
    *('""', '"7"', '" 8 "', '"1.5"', '"1e3"', '"true"', '"NO"', '"2020-01-02"', '"abc"', '"é"'),
    *('"2020-01-02 03:04:05.5"', '"2020-01-02T03:04:05Z"', '"NaN"', '"{}"', '"9999999999"'),
)
PATHS = ("$", "$.a", "$.b", "$.a.b", "$.a[0]", "$.a[1].b", "$['c d']", "$.a['c d'].a", "$[0]")
ASKED_TYPES = {
    "int": ("7", "0", "1000", "-1"),
    "bigint": ("2147483648", "7", "9223372036854775807"),
    "smallint": ("7S", "1000S"),
    "double": ("1.5D", "7", "1e300", "double('NaN')"),
    "float": ("1.5F", "float('0.1')"),
    "decimal(10,2)": ("1.50", "0.01", "-2.5"),
    "decimal(38,0)": ("12345678901234567890", "7"),
    "string": ("'7'", "'true'", "'1.5'", "'2020-01-02'", "'{}'", "'1000.0'", "'[7]'"),
    "boolean": ("TRUE", "FALSE"),
    "date": ("DATE'2020-01-02'", "DATE'1970-01-01'"),
    "timestamp": ("TIMESTAMP'2020-01-02 03:04:05Z'", "TIMESTAMP'1970-01-01 00:00:07Z'"),
    "timestamp_ntz": ("TIMESTAMP_NTZ'2020-01-02 03:04:05.5'",),
}


# What JSON has not, with some of what it has.
TYPED = (
    *(None, True, 0, 7, -1, 128, 2**31, 1.5, 0.1, -0.0, 1e300, math.nan, math.inf),
    *(
        Decimal("1.50"),
        Decimal("0.005"),
        Decimal("12345678901234567890"),
        "7",
        "2020-01-02",
        "true",
    ),
    *(date(2020, 1, 2), date(1970, 1, 1), datetime(2020, 1, 2, 3, 4, 5, 500_000), b"7", b"\xff"),
    *(datetime(2020, 1, 2, 3, 4, 5, tzinfo=timezone.utc), datetime(1969, 12, 31, 23, 59, 59)),
)


def typed_document(dice: random.Random, depth: int = 0) -> Any:
    kind = dice.randrange(6)
    if depth == 3 or kind < 2:
        return dice.choice(TYPED)
    if kind < 5:
        names = dice.sample(("a", "b", "c d", "e"), dice.randint(1, 3))
        return {name: typed_document(dice, depth + 1) for name in names}
    return [typed_document(dice, depth + 1) for _ in range(dice.randrange(3))]


def document(dice: random.Random, depth: int = 0) -> str:
    kind = dice.randrange(8)
    if depth == 3 or kind < 3:
        return dice.choice(LEAVES)
    if kind < 6:
        names = dice.sample(("a", "b", "c d", "e"), dice.randint(0, 3))
        return "{" + ", ".join(f'"{name}": {document(dice, depth + 1)}' for name in names) + "}"
    return "[" + ", ".join(document(dice, depth + 1) for _ in range(dice.randrange(3))) + "]"


def condition(dice: random.Random) -> str:
    path = dice.choice(PATHS)
    quoted = path.replace("'", "\\'")
    kind = dice.randrange(8)
    if kind == 0:
        return f"variant_get(v, '{quoted}') IS NULL"
    if kind == 1:
        return f"is_variant_null(variant_get(v, '{quoted}'))"
    type_ = dice.choice(list(ASKED_TYPES))
    value = f"try_variant_get(v, '{quoted}', '{type_}')"
    if kind == 2:
        return f"{value} IS {dice.choice(('', 'NOT '))}NULL"
    literal = dice.choice(ASKED_TYPES[type_])
    if kind == 3:
        listed = ", ".join({literal, dice.choice(ASKED_TYPES[type_])})
        return f"{value} {dice.choice(('', 'NOT '))}IN ({listed})"
    return f"{value} {dice.choice(('=', '<', '>=', '!=', '<=>'))} {literal}"


def place(document: Any) -> str:
    """Puts documents with like values at the paths that are columns of files together."""
    at = document.get("b") if isinstance(document, dict) else None
    return f"{type(at).__name__} {at!r}"


def shredded(given: list[tuple[int, Any]], folder: Path, *, as_json: bool) -> lake.Dataset:
    """The documents in files that are sorted by kinds, with paths as columns of files."""

    def key(one: tuple[int, Any]) -> str:
        return place(json.loads(one[1]) if as_json and one[1] is not None else one[1])

    given = sorted(given, key=key)
    size = -(-len(given) // 4)
    for first in range(0, len(given), size):
        some = given[first : first + size]
        documents = lake.variant([document for _, document in some], json=as_json)
        table = {"id": [n for n, _ in some], "v": documents}
        paths = ["v:b", "v:a.b", "v:e.a"]
        layout = {"variant_paths": paths, "bloom_filter_columns": paths, "row_group_rows": 4}
        lake.write_dataset(table, folder, **layout)
    return lake.open_dataset(folder)


def disagreements(
    sessions: tuple[SparkSession, SparkSession],
    folder: Path,
    documents: int,
    conditions: int,
    seed: int = 0,
) -> list[str]:
    dice = random.Random(seed)
    given = [(n, document(dice) if n % 20 else None) for n in range(documents)]
    rows = (
        sessions[0]
        .createDataFrame(given, "id INT, text STRING")
        .selectExpr("id", "parse_json(text) AS v")
    )
    rows.coalesce(1).write.parquet(f"{folder}/p")
    dataset = shredded(given, folder / "t", as_json=True)
    return differing(sessions, folder, dataset, dice, documents, conditions)


def differing(
    sessions: tuple[SparkSession, SparkSession],
    folder: Path,
    dataset: lake.Dataset,
    dice: random.Random,
    documents: int,
    conditions: int,
) -> list[str]:
    """Conditions with other rows in the dataset than in Spark's Parquet in the folder `p`."""
    spark, with_extension = sessions
    own = spark.read.parquet(f"{folder}/p")
    # Spark reads the files as its own, and puts values together that are equal.
    shown = "id", "to_json(v) AS json"
    files = spark.read.parquet(*map(str, (folder / "t").glob("*.parquet")))
    assert "VariantType" in str(files.schema)
    same = files.selectExpr(*shown).exceptAll(own.selectExpr(*shown)).count()
    assert (same, files.count()) == (0, documents)
    pruned = 0
    asked = [condition(dice) for _ in range(conditions)]
    wrong, refused = [], 0
    for first in range(0, conditions, 100):
        some = asked[first : first + 100]
        answers = own.selectExpr("id", *(f"{one} AS c{n}" for n, one in enumerate(some))).collect()
        for n, one in enumerate(some):
            try:
                scan = dataset.scan(one, columns=["id"])
                mine = scan.to_table()["id"].to_pylist()
                explained = scan.explain()
                pruned += explained.row_groups_read < explained.row_groups_total
            except lake.InvalidExpressionError as error:
                if "is not supported" not in str(error):
                    raise
                refused += 1  # casts of fractions to TIMESTAMP
                continue
            if sorted(mine) != sorted(row.id for row in answers if row[n + 1]):
                wrong.append(one)
    assert refused < conditions // 10
    assert pruned > conditions // 20
    # The same by Spark, which hands conditions on to prune by them.
    some = asked[::10]
    found = matches(load(with_extension, folder / "t"), some)
    others = {n for n, _ in {*found} ^ {*matches(own, some)}}
    return wrong + [f"pushed down: {some[n]}" for n in others]


@pytest.fixture
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are ruled out by their columns in small row groups too."""
    monkeypatch.setattr(likely_rows, "_FEWEST", 1)
    monkeypatch.setattr(likely_rows, "_SHARE", 1)


@pytest.mark.usefixtures("few_are_many")
def test_conditions_on_paths_mean_what_they_mean_in_spark(
    spark: SparkSession, spark_auto: SparkSession, tmp_path: Path
) -> None:
    assert disagreements((spark, spark_auto), tmp_path, 120, 50) == []


@pytest.mark.long
@pytest.mark.usefixtures("few_are_many")
@pytest.mark.parametrize("seed", range(1, 41))
def test_twenty_thousand_conditions_on_paths_mean_what_they_mean_in_spark(
    spark: SparkSession, spark_auto: SparkSession, tmp_path: Path, seed: int
) -> None:
    assert disagreements((spark, spark_auto), tmp_path, 100, 500, seed) == []


@pytest.mark.long
@pytest.mark.usefixtures("few_are_many")
@pytest.mark.parametrize("seed", range(8))
def test_conditions_on_values_that_json_lacks_mean_what_they_mean_in_spark(
    spark: SparkSession, spark_auto: SparkSession, tmp_path: Path, seed: int
) -> None:
    dice = random.Random(seed)
    given = [(n, typed_document(dice) if n % 20 else None) for n in range(100)]
    rows = {"id": [n for n, _ in given], "v": lake.variant([v for _, v in given])}
    (tmp_path / "p").mkdir()
    written = lake.write_dataset(rows, tmp_path / "plain", variant_paths=[])
    assert written.row_count == 100
    (path,) = (tmp_path / "plain").glob("*.parquet")
    path.rename(tmp_path / "p" / "rows.parquet")
    dataset = shredded(given, tmp_path / "t", as_json=False)
    assert differing((spark, spark_auto), tmp_path, dataset, dice, 100, 200) == []


def test_spark_writes_paths_as_columns_of_files_and_prunes_by_them(
    spark: SparkSession, spark_auto: SparkSession, tmp_path: Path
) -> None:
    for user in (7, 8, 9):
        rows = spark.range(user * 100, user * 100 + 50, 1, 1).selectExpr(
            "id", 'parse_json(concat(\'{"user": {"id": \', id, \'}, "n": "x"}\')) AS v'
        )
        save(rows, tmp_path / "t", variantPaths="v:user.id,v:n")
    dataset = lake.open_dataset(tmp_path / "t")
    scan = dataset.scan("v:user.id::int = 807")
    assert scan.explain().files_read == 1
    assert scan.to_table()["id"].to_pylist() == [807]
    pushed = ("v:user.id::int = 807", "v:user.id::bigint BETWEEN 849 AND 901")
    for reader in (Reader.PYTHON, Reader.SPARK):
        spark_auto.conf.set(Setting.READER, reader)
        for condition, wanted in (
            (pushed[1], [849, 900, 901]),
            ("v:user.id::int = 807", [807]),
            ("variant_get(v, '$.user.id', 'bigint') IN (701, 949)", [701, 949]),
            ("try_variant_get(v, '$.n', 'int') IS NOT NULL", []),
        ):
            found = load(spark_auto, tmp_path / "t").where(condition)
            found = found.select("id")
            assert sorted(row.id for row in found.collect()) == wanted
            plan = found._jdf.queryExecution().toString()
            pruned = (
                f"({len({one // 100 for one in wanted})} of 3 files)",
                "PushedFilters: [v IS NOT NULL, (",
            )
            assert pruned[reader == Reader.PYTHON] in plan or condition not in pushed
            # Spark's reader reads what is at the path, and not whole documents.
            assert ("v:struct<0:" in plan) == (reader == Reader.SPARK)
    spark_auto.conf.unset(Setting.READER)
    # Tasks choose paths for themselves where nobody named some.
    rows = spark.range(0, 4000, 1, 4).selectExpr(
        "id", "parse_json(concat('{\"n\": ', id, ', \"of', id div 1000, '\": 1}')) AS v"
    )
    save(rows.limit(0), tmp_path / "u")
    save(rows, tmp_path / "u")
    dataset = lake.open_dataset(tmp_path / "u")
    assert dataset.properties["variant_paths"] == ["v:n", *(f"v:of{n}" for n in range(4))]
    scan = dataset.scan("v:n::int = 2007")
    assert (scan.explain().files_read, scan.count_rows()) == (1, 1)
    assert load(spark_auto, tmp_path / "u").where("v:n::int = 2007").count() == 1


def test_statements_of_a_named_table(spark_catalog: SparkSession, tmp_path: Path) -> None:
    sql = spark_catalog.sql

    def rows(query: str = "SELECT id, to_json(v) FROM plake.default.docs ORDER BY id") -> list[Any]:
        return [tuple(row) for row in sql(query).collect()]

    sql("CREATE TABLE plake.default.docs (id INT, v VARIANT)")
    assert ("v", "variant", None) in rows("DESCRIBE plake.default.docs")
    sql("INSERT INTO plake.default.docs VALUES (1, parse_json('{\"n\": 1}')), (2, NULL), (3, NULL)")
    sql("UPDATE plake.default.docs SET v = parse_json('{\"n\": 2}') WHERE id = 2")
    sql("UPDATE plake.default.docs SET v = NULL WHERE variant_get(v, '$.n', 'int') = 1")
    sql(
        "MERGE INTO plake.default.docs t USING (SELECT 3 AS id, parse_json('\"m\"') AS v UNION ALL "
        "SELECT 4, parse_json('[4]')) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * "
        "WHEN NOT MATCHED THEN INSERT *"
    )
    sql("ALTER TABLE plake.default.docs ADD COLUMN w VARIANT")
    sql("UPDATE plake.default.docs SET w = v WHERE id = 4")
    sql("ALTER TABLE plake.default.docs ADD COLUMN s STRUCT<v: VARIANT, m: MAP<STRING, VARIANT>>")
    sql("UPDATE plake.default.docs SET s = named_struct('v', v, 'm', map('k', v)) WHERE id > 2")
    sql("UPDATE plake.default.docs SET s.v = parse_json('[7]') WHERE id = 3")
    sql("ALTER TABLE plake.default.docs ADD COLUMN s.l ARRAY<VARIANT>")
    sql(
        "MERGE INTO plake.default.docs t USING (SELECT 4 AS id, array(parse_json('5')) AS l) s "
        "ON t.id = s.id WHEN MATCHED THEN UPDATE SET t.s.l = s.l"
    )
    sql("DELETE FROM plake.default.docs WHERE id = 1")
    expected = [(2, '{"n":2}'), (3, '"m"'), (4, "[4]")]
    assert rows() == expected
    assert rows("SELECT to_json(w) FROM plake.default.docs ORDER BY id") == [
        *((None,), (None,), ("[4]",))
    ]
    inside = "SELECT to_json(s.v), to_json(s.m['k']), to_json(s.l[0]) FROM"
    in_structs = [(None, None, None), ("[7]", '"m"', None), ("[4]", "[4]", "5")]
    assert rows(f"{inside} plake.default.docs ORDER BY id") == in_structs
    sql("CREATE TABLE plake.default.copied SHALLOW CLONE plake.default.docs")
    assert rows("SELECT id, to_json(v) FROM plake.default.copied ORDER BY id") == expected
    sql("CALL plake.system.compact(table => 'default.docs')")
    assert rows() == expected
    assert rows(f"{inside} plake.default.copied ORDER BY id") == in_structs
    assert rows("CALL plake.system.verify(table => 'default.docs')")[0][0] is True
    changed = spark_catalog.read.option("readChangeFeed", "true").option("startingVersion", 1)
    feed = changed.table("plake.default.docs").where("id = 4 AND _change_type != 'update_preimage'")
    shown = feed.selectExpr("_commit_version", "to_json(v)", "to_json(s.v)", "to_json(s.l[0])")
    found = [tuple(row)[1:] for row in sorted(shown.collect())]
    in_s = [(None, None), (None, None), ("[4]", None), ("[4]", "5")]
    assert found == [("[4]", *one) for one in in_s]
    with pytest.raises(AnalysisException, match="which cannot partition"):
        sql("CREATE TABLE plake.default.bad (v VARIANT) PARTITIONED BY (v)")
    with pytest.raises(AnalysisException, match="no values that can be ordered"):
        sql("CREATE TABLE plake.default.bad (id INT, v VARIANT) CLUSTER BY (v)")
    with pytest.raises(AnalysisException, match="begins with no column of VARIANT"):
        sql("ALTER TABLE plake.default.docs SET TBLPROPERTIES ('variant_paths' = 's.v:a')")
    sql("ALTER TABLE plake.default.docs SET TBLPROPERTIES ('variant_paths' = 'v:n')")
    shown = rows("SHOW TBLPROPERTIES plake.default.docs ('variant_paths')")
    assert shown == [("variant_paths", "v:n")]
    sql("INSERT INTO plake.default.docs (id, v) VALUES (50, parse_json('{\"n\": 50}'))")
    other = spark_catalog.newSession()
    for key in ("", ".catalog", ".warehouse"):
        name = f"spark.sql.catalog.plake{key}"
        other.conf.set(name, spark_catalog.conf.get(name))
    found = other.table("plake.default.docs").where("v:n::int = 50").select("id")
    assert [row.id for row in found.collect()] == [50]
    with pytest.raises(AnalysisException, match="VARIANT"):
        sql("ALTER TABLE plake.default.docs ALTER COLUMN v TYPE STRING")


def test_a_file_with_deleted_rows_is_read_by_spark(
    spark_auto: SparkSession, tmp_path: Path
) -> None:
    """Spark's reader failed: `Index 0 out of bounds for length 0`."""
    lake.write_dataset({"id": [0, 1, 2], "v": lake.variant([{"n": 5}, 7, "x"])}, tmp_path)
    lake.open_dataset(tmp_path).delete("id = 1")
    spark_auto.conf.set(Setting.READER, Reader.SPARK)
    found = load(spark_auto, tmp_path).selectExpr("id", "to_json(v)", "v:n::int").collect()
    spark_auto.conf.unset(Setting.READER)
    assert sorted(map(tuple, found)) == [(0, '{"n":5}', 5), (2, '"x"', None)]


@pytest.mark.long
def test_a_stream_carries_values(spark: SparkSession, tmp_path: Path) -> None:
    save(frame(spark), tmp_path / "from")
    stream = spark.readStream.format("plake").load(str(tmp_path / "from"))
    query = (
        stream.writeStream.format("plake")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "to"))
    )
    assert query.awaitTermination(120)
    tables = [lake.read_dataset(tmp_path / one).sort_by("id") for one in ("from", "to")]
    assert tables[0].equals(tables[1])


def test_the_command_line_shows_json_and_exports_the_type(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    (tmp_path / "x.jsonl").write_text('{"v": {"a": 1.5, "b": [1e400, null]}}\n{"v": null}\n')
    (tmp_path / "x.csv").write_text('v\n"{""a"": 12345678901234567890}"\n')
    assert plake("create", tmp_path / "i", "--columns", "v VARIANT").code == 0
    for name in ("x.jsonl", "x.csv"):
        assert plake("import", tmp_path / "i", tmp_path / name).code == 0
    shown = [one.to_json() for one in lake.read_dataset(tmp_path / "i")["v"]]
    assert shown == ['{"a":1.5,"b":["Infinity",null]}', None, '{"a":12345678901234567890}']
    (tmp_path / "y.csv").write_text("v\n{a\n")
    refused = plake("import", tmp_path / "i", tmp_path / "y.csv")
    assert (refused.code, "JSON is expected" in refused.err) == (1, True)
    assert "1" in plake("count", tmp_path / "i", "--where", "v:a::double = 1.5").out
    rows = {"id": [1, 2], "v": lake.variant([{"a": 1}, None])}
    lake.write_dataset(rows, tmp_path / "t")
    assert '{"a":1}' in plake("scan", tmp_path / "t").out
    out = tmp_path / "out.parquet"
    assert plake("scan", tmp_path / "t", "--to", out, "-o", "parquet").code == 0
    assert str(duckdb.sql(f"SELECT v FROM '{out}'").types[0]) == "VARIANT"

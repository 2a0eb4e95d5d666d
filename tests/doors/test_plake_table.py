"""`lake.spark.PlakeTable` and `lake.spark.open`; the oracles are DuckDB and Spark's own SQL."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

import lakehouse_source as lake
from lakehouse_source.spark import PlakeTable
from tests.doors.frames import data_files, load
from tests.doors.test_row_statements import (
    SOURCE,
    STATEMENTS,
    TARGET,
    identities,
    last,
    oracle,
    shown,
    table,
    write,
)

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def source(spark_planner: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = str(tmp_path_factory.mktemp("source"))
    lake.write_dataset(table(SOURCE), path)
    return load(spark_planner, path)


def delete(target: Any, source: Any) -> None:
    target.delete("x = 0")


def delete_all(target: Any, source: Any) -> None:
    target.delete()


def update(target: Any, source: Any) -> None:
    target.update("id % 2 = 1", {"s": "s || '!'", "t.x": F.col("x") * 2, "P": "k"})


def merge_some(target: Any, source: Any) -> None:
    merge = target.merge(source.alias("s"), "t.id = s.id").whenMatchedDelete("s.s = 'drop'")
    merge = merge.whenMatchedUpdate(set={"s": "s.s", "x": "s.x"})
    merge.whenNotMatchedInsertAll().execute()


def merge_all(target: Any, source: Any) -> None:
    (
        target.merge(source.alias("s"), F.expr("t.id = s.id"))
        .whenMatchedUpdateAll()
        .whenNotMatchedInsert("s.k > 23", {"id": "s.k", "s": F.lit("half")})
        .whenNotMatchedBySourceDelete("t.k = 2")
        .whenNotMatchedBySourceUpdate(F.expr("t.k < 2"), {"s": F.lit("gone"), "p": "8"})
        .execute()
    )


def merge_by_source(target: Any, source: Any) -> None:
    merge = target.merge(source.where("false").alias("s"), "t.id = s.id")
    merge.whenNotMatchedBySourceDelete("t.p = 2").execute()


CASES: list[tuple[Callable[[Any, Any], None], str]] = [
    (delete, "DELETE FROM t WHERE x = 0"),
    (delete_all, "DELETE FROM t"),
    (update, "UPDATE t SET s = s || '!', x = x * 2, p = k WHERE id % 2 = 1"),
    (merge_some, next(one for one in STATEMENTS if "drop" in one)),
    (merge_all, next(one for one in STATEMENTS if "'gone'" in one)),
    (merge_by_source, "DELETE FROM t WHERE p = 2"),
]


@pytest.mark.long
@pytest.mark.parametrize(("change", "statement"), CASES)
@pytest.mark.cases(2)
def test_a_change_does_what_duckdb_does(
    change: Callable[[Any, Any], None],
    statement: str,
    spark_planner: SparkSession,
    source: Any,
    tmp_path: Path,
) -> None:
    path = write(tmp_path / "t", partition_by="p")
    before = identities(path)
    change(lake.spark.open(spark_planner, path).alias("t"), source)
    after = identities(path)
    assert shown(after.values()) == shown(oracle([statement]))
    counts = last(path).summary
    gone, added = before.keys() - after.keys(), after.keys() - before.keys()
    assert (counts["rows_deleted"], counts["rows_inserted"]) == (len(gone), len(added))
    assert last(path).operation == change.__name__.split("_")[0]
    assert lake.open_dataset(path).verify().ok
    frame = lake.spark.open(spark_planner, path).toDF()
    assert shown(frame.collect()) == shown(oracle([statement]))


@pytest.mark.long
def test_a_row_that_several_source_rows_change_is_refused(
    spark_planner: SparkSession, source: Any, tmp_path: Path
) -> None:
    path = write(tmp_path / "t")
    files = data_files(path)
    twice = source.where("id = 3").union(source.where("id = 3")).alias("s")
    target = lake.spark.open(spark_planner, path)
    with pytest.raises(PySparkException, match="MERGE_CARDINALITY_VIOLATION"):
        target.merge(twice, "target.id = s.id").whenMatchedUpdateAll().execute()
    assert last(path).version == 2
    assert data_files(path) == files
    counts = target.merge(twice, "target.id = s.id").whenMatchedDelete().execute()
    assert counts.collect() == [(1, 0, 1, 0)]
    assert shown(identities(path).values()) == shown(oracle(["DELETE FROM t WHERE id = 3"]))


def test_a_merge_tells_what_it_changed(
    spark_planner: SparkSession, source: Any, tmp_path: Path
) -> None:
    """The counts are those of this statement, whatever was committed before or after."""
    path = write(tmp_path / "t")
    target = PlakeTable.forPath(spark_planner, path).alias("t")
    new = spark_planner.sql("SELECT 100 AS id UNION ALL SELECT 101 UNION ALL SELECT 1").alias("s")
    first = target.merge(new, "t.id = s.id").whenNotMatchedInsert(values={"id": "s.id"}).execute()
    again = target.merge(new, "t.id = s.id").whenMatchedDelete("s.id > 99")
    again = again.whenMatchedUpdate(set={"x": F.lit(0)}).execute()
    nothing = target.merge(new, "false").whenMatchedDelete().execute()
    assert [frame.collect() for frame in (first, again, nothing)] == [
        [(2, 0, 0, 2)],
        [(3, 1, 2, 0)],
        [(0, 0, 0, 0)],
    ]
    names = [f"num_{kind}_rows" for kind in ("affected", "updated", "deleted", "inserted")]
    assert [(one.name, one.dataType, one.nullable) for one in first.schema] == [
        (name, LongType(), False) for name in names
    ]
    assert target.history().count() == last(path).version == 4


STRINGS = "id INT, c CHAR(4), v VARCHAR(4), s STRUCT<v: VARCHAR(4)>, l ARRAY<VARCHAR(4)>"


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.cases(1)
def test_char_and_varchar_are_checked_and_padded(
    spark_catalog: SparkSession, tmp_path: Path, named: bool
) -> None:
    """Seven characters were stored in VARCHAR(4), and a short CHAR was stored unpadded."""
    name = "plake.default.strings" if named else f"plake.`{tmp_path}/t`"
    spark_catalog.sql(f"DROP TABLE IF EXISTS {name}")
    spark_catalog.sql(f"CREATE TABLE {name} ({STRINGS})")
    spark_catalog.sql(f"INSERT INTO {name} (id) VALUES (1)")
    target = PlakeTable.forName(spark_catalog, name).alias("t")
    row = spark_catalog.sql("SELECT 1 AS id, '1234567' AS long").alias("x")
    matched, new = target.merge(row, "t.id = x.id"), target.merge(row, "t.id = x.id + 1")
    for key, value in {
        "c": "long",
        "v": "long",
        "s.v": "long",
        "s": "named_struct('v', long)",
        "l": "array('a', long)",
    }.items():
        for act in (
            lambda: target.update(set={key: value.replace("long", "'1234567'")}),  # noqa: B023
            lambda: matched.whenMatchedUpdate(set={key: value}).execute(),  # noqa: B023
            lambda: new.whenNotMatchedInsert(values={"id": "7", key: value}).execute(),  # noqa: B023
        ):
            if key == "s.v" and act.__code__.co_names[:1] == ("whenNotMatchedInsert",):
                continue  # Spark inserts whole structs
            with pytest.raises(PySparkException, match=r"EXCEED_LIMIT_LENGTH|EXCEEDS_CHAR_VARCHAR"):
                act()
    target.update(set={"c": "'a'", "v": "'a'"})
    new.whenNotMatchedInsert(values={"id": "2", "c": "'b'"}).execute()
    assert lake.open_dataset(
        target.detail().first().location,
        catalog=spark_catalog.conf.get("spark.sql.catalog.plake.catalog"),
    ).scan(columns=["c", "v"]).to_table().to_pylist() == [
        {"c": "a   ", "v": "a"},
        {"c": "b   ", "v": None},
    ]


def test_a_required_field_of_a_struct_takes_a_nullable_value(
    spark_catalog: SparkSession, tmp_path: Path
) -> None:
    """Every source whose schema may have NULL there was refused: DATATYPE_MISMATCH."""
    name = f"plake.`{tmp_path}/t`"
    pair = pa.struct([pa.field("a", pa.int32(), nullable=False), pa.field("b", pa.string())])
    schema = pa.schema([("id", pa.int64()), ("s", pair)])
    lake.write_dataset(
        pa.Table.from_pylist([{"id": 1, "s": {"a": 1, "b": "x"}}], schema), tmp_path / "t"
    )
    target = PlakeTable.forName(spark_catalog, name).alias("t")
    target.update(set={"s": "named_struct('a', CAST(id + 1 AS INT), 'b', 'y')"})
    given = [(1, (3, "z")), (2, (4, "n"))]
    new = spark_catalog.createDataFrame(given, "id BIGINT, s STRUCT<a: INT, b: STRING>").alias("n")
    merge = target.merge(new, "t.id = n.id").whenMatchedUpdateAll().whenNotMatchedInsertAll()
    assert merge.execute().collect() == [(2, 1, 0, 1)]
    found = target.toDF().orderBy("id").collect()
    assert [(row.id, tuple(row.s)) for row in found] == given
    with pytest.raises(PySparkException, match=r"NOT_NULL_ASSERT_VIOLATION|may not be NULL|null"):
        target.update(set={"s": "named_struct('a', CAST(NULL AS INT), 'b', 'y')"})


@pytest.mark.parametrize(
    "key",
    ["`t`.`a b`", "t.`a b`", "T.`A B`", "`a b`", "s.`x y`", "`t`.`s`.`x y`", "T.S.`x y`", "`q``r`"],
)
@pytest.mark.cases(2)
def test_keys_are_names_as_spark_reads_them(
    spark_catalog: SparkSession, tmp_path: Path, key: str
) -> None:
    """Keys with backticks, and with the alias in other letters, were refused."""
    path = str(tmp_path / "t")
    field = pa.struct([("x y", pa.int64())])
    schema = pa.schema([("id", pa.int64()), ("a b", pa.int64()), ("s", field), ("q`r", pa.int64())])
    row = {"id": 1, "a b": 1, "s": {"x y": 1}, "q`r": 1}
    lake.write_dataset(pa.Table.from_pylist([row], schema), path)
    target = PlakeTable.forPath(spark_catalog, path).alias("t")
    source = spark_catalog.range(1, 2).alias("n")
    target.update(set={key: "7"})
    merge = target.merge(source, "t.id = n.id")
    merge.whenMatchedUpdate(set={key: f"{key} + n.id", "T.`id`": "`t`.`id` + 0"}).execute()
    (found,) = target.toDF().collect()
    values = {"a b": found["a b"], "x y": found.s["x y"], "q`r": found["q`r"]}
    assert sorted(values.values()) == [1, 1, 8]
    assert values["x y" if "x y" in key else "q`r" if "q" in key else "a b"] == 8
    with pytest.raises(AnalysisException, match=r"UNRESOLVED|cannot resolve|PARSE"):
        target.update(set={"none": "1"})


@pytest.mark.long
def test_columns_may_have_the_names_of_metadata_columns(
    spark_planner: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "t")
    lake.write_dataset(pa.table({"_file": [1, 2], "_POS": [1, 2], "a.b": [1, 2]}), path)
    target = lake.spark.open(spark_planner, path)
    target.update("_POS = 2", {"_file": "20", "`a.b`": "`a.b` + 1"})
    target.delete("_file = 1")
    assert [tuple(row) for row in target.toDF().collect()] == [(20, 2, 3)]


@pytest.mark.long
def test_fields_of_structs_are_set_by_name(spark_planner: SparkSession, tmp_path: Path) -> None:
    """A NULL struct becomes one whose other fields are NULL, as with Spark's UPDATE."""
    type_ = "struct<id: bigint, a: struct<city: string, geo: struct<x: double, y: int>>>"
    rows = [(1, ("A", (1.5, 1))), (2, None), (3, ("C", None))]
    frame = spark_planner.createDataFrame([(row,) for row in rows], f"r {type_}").select("r.*")
    lake.write_dataset(frame.toArrow(), tmp_path)
    target = lake.spark.open(spark_planner, tmp_path).alias("t")
    target.update("id < 3", {"a.City": "concat('new ', id)", "t.a.geo.y": F.lit(7)})
    expected = {1: ("new 1", (1.5, 7)), 2: ("new 2", (None, 7)), 3: ("C", None)}
    assert {row.id: row.a for row in load(spark_planner, tmp_path).collect()} == expected
    source = spark_planner.createDataFrame([(3, 9), (4, 9)], "id bigint, y int").alias("s")
    merge = target.merge(source, "t.id = s.id").whenMatchedUpdate(set={"a.geo.y": "s.y"})
    merge.whenNotMatchedInsert(values={"id": "s.id"}).execute()
    expected |= {3: ("C", (None, 9)), 4: None}
    assert {row.id: row.a for row in load(spark_planner, tmp_path).collect()} == expected


@pytest.mark.long
def test_a_condition_may_have_functions_of_python_and_subqueries(
    spark_planner: SparkSession, tmp_path: Path
) -> None:
    path = write(tmp_path / "t")
    odd = F.udf(lambda id: id is not None and id % 2 == 1, "boolean")
    spark_planner.range(3, 4).createOrReplaceTempView("three")
    target = PlakeTable.forPath(spark_planner, path)
    target.delete("id IN (SELECT id FROM three)")
    target.delete(odd("id"))
    statements = ["DELETE FROM t WHERE id = 3", "DELETE FROM t WHERE id % 2 = 1"]
    assert shown(identities(path).values()) == shown(oracle(statements))
    assert [row.operation for row in target.history(2).collect()] == ["DELETE", "DELETE"]


def test_options_of_its_statements(spark_planner: SparkSession, tmp_path: Path) -> None:
    path = write(tmp_path / "t")
    pair = {"txnAppId": "job", "txnVersion": 1, "commitMetadata": '{"why": "test"}'}
    target = lake.spark.open(spark_planner, path, **pair)
    target.update("id = 1", {"k": "7"})
    target.update("id = 1", {"k": "8"})  # of the same pair: done already
    target.delete("id = 1")
    assert last(path).version == 3
    assert last(path).metadata == {"why": "test"}
    assert "statement" not in last(path).committer
    stale = lake.spark.open(spark_planner, path, expectedVersion=2)
    with pytest.raises(PySparkException, match=r"CommitConflictError|PLAKE_COMMIT_CONFLICT"):
        stale.delete("id = 1")
    with pytest.raises(PySparkException, match="nothing"):
        lake.spark.open(spark_planner, path, nothing=2).delete("id = 1")


def test_a_clause_after_one_without_condition_is_refused_as_in_sql(
    spark_planner: SparkSession, tmp_path: Path
) -> None:
    """It was left out without a word."""
    path = write(tmp_path / "t")
    target = PlakeTable.forPath(spark_planner, path).alias("t")
    merge = target.merge(load(spark_planner, path).alias("s"), "t.id = s.id")
    with pytest.raises(ValueError, match="only the last"):
        merge.whenMatchedDelete().whenMatchedUpdate(set={"x": "1"})
    with pytest.raises(ParseException, match="only the last"):
        spark_planner.sql(
            f"MERGE INTO plake.`{path}` t USING plake.`{path}` s ON t.id = s.id"
            " WHEN MATCHED THEN DELETE WHEN MATCHED THEN UPDATE SET x = 1"
        )
    merge.whenMatchedDelete().whenNotMatchedBySourceDelete().whenNotMatchedInsertAll().execute()


def test_an_option_that_names_a_place_changes_no_other_table(
    spark_catalog: SparkSession, tmp_path: Path
) -> None:
    """A MERGE read the table of the name, and wrote its rows into the one of the option."""
    sql, other = spark_catalog.sql, str(tmp_path / "other")
    lake.write_dataset({"id": [1]}, other)
    sql("CREATE OR REPLACE TABLE plake.default.named (id BIGINT)")
    rows = sql("SELECT 2L AS id").alias("s")
    for options in ({"path": other}, {"PATH": other}, {"branch": "b"}, {"catalog": "sqlite:///x"}):
        table = PlakeTable.forName(spark_catalog, "plake.default.named", **options).alias("t")
        merge = table.merge(rows, "t.id = s.id").whenNotMatchedInsertAll()
        if "path" in map(str.lower, options):
            merge.execute()
            continue
        with pytest.raises(AnalysisException, match="The option"):
            merge.execute()
        with pytest.raises(AnalysisException, match="The option"):
            table.delete()
    assert lake.read_dataset(other)["id"].to_pylist() == [1]
    assert [row.id for row in sql("SELECT * FROM plake.default.named").collect()] == [2]


@pytest.mark.parametrize("option", ["alias", "command"])
def test_an_option_is_never_taken_for_a_part_of_the_statement(
    spark_catalog: SparkSession, option: str
) -> None:
    """An option `alias` named the target, and one named `command` was left out."""
    spark_catalog.sql("CREATE OR REPLACE TABLE plake.default.named (id BIGINT)")
    table = PlakeTable.forName(spark_catalog, "plake.default.named", **{option: "delete"})
    with pytest.raises(AnalysisException, match=option):
        table.update("id = 1", {"id": "2"})


def test_constraints_have_names_of_what_spark_shows_of_a_table(spark_catalog: SparkSession) -> None:
    """A table with a constraint `Provider` was told to be no table of plake."""
    names = ("Provider", "Catalog", "Namespace", "Table", "Location")
    kept = ", ".join(f"CONSTRAINT `{name}` CHECK (id > 0)" for name in names)
    spark_catalog.sql(f"CREATE OR REPLACE TABLE plake.default.kept (id INT, {kept})")
    PlakeTable.forName(spark_catalog, "plake.default.kept").delete()


def test_a_catalog_that_the_session_has_not(spark_planner: SparkSession, tmp_path: Path) -> None:
    url, path = f"sqlite://{tmp_path}/other.db", str(tmp_path / "t")
    lake.write_dataset({"id": [1, 2, 3]}, path, catalog=url)
    for target in (
        PlakeTable.forPath(spark_planner, path, catalog=url),
        lake.spark.open(spark_planner, path, url),
    ):
        target.delete(F.col("id") == target.toDF().agg({"id": "min"}).first()[0])
    assert lake.read_dataset(path, catalog=url)["id"].to_pylist() == [3]
    target.restoreToVersion(1)
    assert target.toDF().count() == 3
    new = spark_planner.sql("SELECT 1L AS id, 2 AS more").alias("s")
    merge = target.merge(new, "target.id = s.id").whenMatchedUpdateAll().withSchemaEvolution()
    merge.execute()
    assert target.toDF().columns == ["id", "more"]


def test_without_the_extension_it_says_what_to_add(spark: SparkSession, tmp_path: Path) -> None:
    path = write(tmp_path / "t")
    for opened in (
        lambda: lake.spark.open(spark, path),
        lambda: PlakeTable.forPath(spark, path),
        lambda: PlakeTable.forName(spark, "t"),
        lambda: PlakeTable.create(spark),
    ):
        with pytest.raises(lake.InvalidOptionError, match=r"lakehouse_source\.spark\.enable"):
            opened()


@pytest.mark.long
def test_tables_are_found_by_path_and_name(spark_catalog: SparkSession, tmp_path: Path) -> None:
    sql, found = spark_catalog.sql, PlakeTable.isPlakeTable
    path = write(tmp_path / "it's a `table")
    sql("CREATE NAMESPACE IF NOT EXISTS plake.`my db`")
    sql("CREATE TABLE IF NOT EXISTS plake.`my db`.`or.ders` (id INT)")
    sql(f"CREATE TABLE ours USING plake LOCATION '{write(tmp_path / 'ours')}'")
    sql("CREATE TABLE theirs (id INT) USING parquet")
    sql("CREATE TEMPORARY VIEW shown AS SELECT 1 AS id")
    try:
        names = ("plake.`my db`.`or.ders`", "spark_catalog.default.ours", "`ours`")
        for name in (*names, f"plake.`{path.replace('`', '``')}`"):
            assert found(spark_catalog, name)
            table = PlakeTable.forName(spark_catalog, name)
            table.delete()
            assert table.toDF().count() == 0
            assert table.detail().first().format == "plake"
            assert table.vacuum(1000).columns[0] == "action"
        assert PlakeTable.forPath(spark_catalog, str(path)).history(1).first().operation == "DELETE"
        names = ("`theirs`", "`shown`", "`none`", "plake.default.none", "plake.no.none", "no.none")
        names += ("x.y.z",)  # raised Spark's error about namespaces of spark_catalog
        for name in (*names, str(tmp_path / "no")):
            assert not found(spark_catalog, name)
        with pytest.raises(lake.InvalidOptionError, match="no table of plake"):
            PlakeTable.forName(spark_catalog, "theirs")
        with pytest.raises(AnalysisException, match="PLAKE_DATASET_NOT_FOUND"):
            PlakeTable.forPath(spark_catalog, str(tmp_path / "no"))
        with pytest.raises(lake.InvalidOptionError, match=r"storage\.NAME"):
            PlakeTable.forPath(spark_catalog, "s3://b/t", {"fs.s3a.access.key": "x"})
        options = {"fs.s3a.access.key": "x"}  # of stores: a local folder has none
        assert PlakeTable.forPath(spark_catalog, str(path), options).toDF().count() == 0
    finally:
        for name in ("spark_catalog.default.ours", "spark_catalog.default.theirs"):
            sql(f"DROP TABLE IF EXISTS {name}")
        sql("DROP VIEW IF EXISTS shown")


def test_a_table_of_spark_catalog_has_a_catalog_of_its_own(
    spark_catalog: SparkSession, tmp_path: Path
) -> None:
    sql, url = spark_catalog.sql, f"sqlite:///{tmp_path}/own.db"
    rows = lake.write_dataset({"id": [1, 2]}, tmp_path / "t", catalog=url)
    sql(f"CREATE TABLE own USING plake OPTIONS (catalog '{url}') LOCATION '{tmp_path}/t'")
    try:
        table = PlakeTable.forName(spark_catalog, "own").alias("t")
        source = spark_catalog.range(2, 4).alias("s")
        merge = table.merge(source, "t.id = s.id").whenMatchedDelete().whenNotMatchedInsertAll()
        assert merge.execute().first() == (2, 0, 1, 1)
        assert [row.version for row in table.history().collect()] == [2, 1]
        table.restoreToVersion(rows.version)
        assert sorted(row.id for row in table.toDF().collect()) == [1, 2]
        for name in ("own", "default.own", "spark_catalog.default.own"):
            assert sql(f"DESCRIBE DETAIL {name}").first().version == 3
            assert sql(f"OPTIMIZE {name}").first().version == 3
        sql("ALTER TABLE own CREATE TAG kept")
        assert "kept" in lake.open_dataset(tmp_path / "t", catalog=url).tags()
    finally:
        sql("DROP TABLE own")


@pytest.mark.long
def test_a_builder_makes_what_its_statement_makes(
    spark_catalog: SparkSession, tmp_path: Path
) -> None:
    name, path = "plake.default.built", str(tmp_path / "it's")
    spark_catalog.sql(f"DROP TABLE IF EXISTS {name}")
    city = StructField("c`ity", StringType(), False, {"comment": "it's a \\ name"})
    fields = StructType([StructField("s", StructType([city])), StructField("n", LongType(), False)])
    for place in ("tableName", "location"):
        where = {"tableName": name, "location": path}[place]

        def builder(verb: str) -> lake.spark.PlakeTableBuilder[PlakeTable]:
            return getattr(getattr(PlakeTable, verb)(spark_catalog), place)(where)  # noqa: B023

        with pytest.raises(AnalysisException, match=r"cannot be found|NOT_FOUND"):
            builder("replace").addColumn("id", "INT").execute()
        made = (
            builder("create")
            .addColumns(fields)
            .addColumn("day", "DATE", nullable=False, comment="the day's date")
            .addColumn("v", "VARCHAR(4)")
            .partitionedBy(["day"])
            .comment("it's")
            .property("o'wner", "me \\ you")
            .execute()
        )
        frame = made.toDF()
        assert frame.columns == ["s", "n", "day", "v"]
        assert [one.nullable for one in frame.schema] == [True, False, False, True]
        assert frame.schema["day"].metadata["comment"] == "the day's date"
        assert frame.schema["s"].dataType.fieldNames() == ["c`ity"]
        detail = made.detail().first()
        assert detail.partitionColumns == ["day"]
        assert detail.description == "it's"
        assert detail.properties == {"comment": "it's", "o'wner": "me \\ you"}
        with pytest.raises(AnalysisException, match="ALREADY_EXISTS"):
            builder("create").addColumn("id", "INT").execute()
        kept = builder("createIfNotExists").addColumn("id", "INT").execute()
        assert kept.toDF().columns == frame.columns
        replaced = builder("createOrReplace").addColumn("a", "INT").addColumn("b", "INT")
        assert replaced.clusterBy("b", "a").execute().toDF().columns == ["a", "b"]
        assert made.detail().first().clusteringColumns == ["b", "a"]
    numbers = lake.spark.IdentityGenerator(start=5, step=2)
    builder("replace").addColumn("id", "BIGINT", generatedByDefaultAs=numbers).addColumn(
        "g", "BIGINT", generatedAlwaysAs="id * 2"
    ).addColumn("v", "INT").execute()
    # The session's catalog has the folder; a path alone would name the folder's own catalog.
    url = spark_catalog.conf.get("spark.sql.catalog.plake.catalog")
    writer = spark_catalog.sql("SELECT 1 AS v").write.format("plake").option("catalog", url)
    writer.mode("append").save(path)
    assert tuple(made.toDF().first()) == (5, 10, 1)
    with pytest.raises(ValueError, match="name or location"):
        PlakeTable.create(spark_catalog).addColumn("id", "INT").execute()


@pytest.mark.long
def test_versions_and_upkeep(spark_catalog: SparkSession, tmp_path: Path) -> None:
    path = f"{tmp_path}/t"
    for at in range(3):
        rows = spark_catalog.range(at, at + 1).selectExpr("id", "id % 2 AS p")
        rows.write.format("plake").option("partitionBy", "p").mode("append").save(path)
    table = PlakeTable.forPath(spark_catalog, path)
    assert [row.version for row in table.history().collect()] == [3, 2, 1]
    moment = table.history().first().timestamp
    done = table.optimize().where("p = 0").executeCompaction().first()
    assert (done.metrics.numFilesAdded, done.metrics.numFilesRemoved) == (1, 2)
    assert table.optimize().executeZOrderBy(["id"]).first().metrics.numFilesAdded == 2
    table.delete()
    table.restoreToTimestamp(str(moment))
    assert table.toDF().count() == 3
    table.restoreToVersion(1)
    assert table.toDF().count() == 1
    with pytest.raises(ValueError, match=r"timestamp \('05/04/1999'\) cannot be converted"):
        table.restoreToTimestamp("05/04/1999")
    for absent in ("generate", "upgradeTableProtocol", "addFeatureSupport"):
        with pytest.raises(AttributeError, match=f"no {absent}"):
            getattr(table, absent)
    spark_catalog.range(3).selectExpr("id", "id AS p").write.partitionBy("p").parquet(path + "2")
    converted = PlakeTable.convertToPlake(spark_catalog, f"parquet.`{path}2`")
    assert converted.toDF().count() == 3


def test_arguments_are_checked_as_delta_checks_them(
    spark_planner: SparkSession, source: Any, tmp_path: Path
) -> None:
    path = write(tmp_path / "t")
    target = PlakeTable.forPath(spark_planner, path)
    merge, builder = target.merge(source, "true"), PlakeTable.create(spark_planner)
    wrong: list[tuple[type[Exception], str, Callable[[], Any]]] = [
        (ValueError, "cannot be None", lambda: target.update({"x": "1"})),
        (ValueError, "cannot be None", lambda: target.update("id = 1")),
        (ValueError, "cannot be empty", lambda: target.update(set={})),
        (TypeError, "must be a Spark SQL Column or a string", lambda: target.update(1, {})),
        (TypeError, "must be a dict", lambda: target.update(set=1)),
        (TypeError, "must be a Spark SQL Column or a string", lambda: target.update(1, {"x": "1"})),
        (TypeError, "must be a Spark SQL Column or a string", lambda: target.delete(1)),
        (TypeError, "Values of dict in .* must contain only", lambda: target.update(set={"x": 1})),
        (TypeError, "Keys of dict in .* must contain only", lambda: target.update(set={1: ""})),
        (ValueError, "'source' in merge cannot be None", lambda: target.merge(None, "true")),
        (TypeError, "must be DataFrame", lambda: target.merge(1, "true")),
        (ValueError, "'condition' in merge cannot be None", lambda: target.merge(source, None)),
        (TypeError, "must be a Spark SQL Column", lambda: merge.whenMatchedDelete(1)),
        (ValueError, "'values' in .* cannot be None", lambda: merge.whenNotMatchedInsert("true")),
        (TypeError, "must be a dict", lambda: merge.whenMatchedUpdate("true", 1)),
        (ValueError, "version needs to be an int", lambda: target.restoreToVersion("1")),
        (ValueError, "timestamp needs to be a string", lambda: target.restoreToTimestamp(1)),
        (TypeError, "Location must be str", lambda: builder.location(1)),
        (TypeError, "Clustering column must be str", lambda: builder.clusterBy([1])),
        (TypeError, "data type must be str or DataType", lambda: builder.addColumn("a", 1)),
        (ParseException, "PARSE", lambda: builder.addColumn("a", "1")),
        (TypeError, "must be string", lambda: builder.property("1", 1)),
        (
            ValueError,
            "step to be non-zero",
            lambda: builder.addColumn("a", "BIGINT", True, lake.spark.IdentityGenerator(1, 0)),
        ),
    ]
    for kind, text, act in wrong:
        with pytest.raises(kind, match=text):
            act()
    with pytest.raises(PySparkException):
        merge.execute()
    with pytest.raises(PySparkException):
        target.merge(source.select("id"), "true").whenMatchedUpdateAll().execute()
    assert last(path).version == 2


@pytest.mark.long
def test_threads_of_one_session_merge_into_tables_of_one_alias(
    spark_planner: SparkSession, tmp_path: Path
) -> None:
    def run(at: int) -> list[Any]:
        path = write(tmp_path / str(at))
        table = PlakeTable.forPath(spark_planner, path).alias("t")
        new = spark_planner.range(100, 100 + at).alias("s")
        merge = table.merge(new, "t.id = s.id").whenNotMatchedInsert(values={"t.id": "s.id"})
        return merge.execute().collect()

    with ThreadPool(3) as pool:
        assert pool.map(run, range(1, 4)) == [[(at, 0, 0, at)] for at in range(1, 4)]


@pytest.fixture(params=["stock", "extension"])
def session(request: pytest.FixtureRequest) -> SparkSession:
    name = "spark" if request.param == "stock" else "spark_planner"
    return request.getfixturevalue(name)


def test_metadata_columns_of_a_frame(session: SparkSession, tmp_path: Path) -> None:
    path = write(tmp_path / "t", partition_by="p")
    lake.open_dataset(path).delete("id = 2")
    names = ["_file", "_pos", "_row_id", "_commit_version"]
    frame = load(session, path, metadataColumns="true")
    found = frame.select("id", *names).collect()
    expected = lake.open_dataset(path).scan(columns=["id", *names]).to_table()
    assert shown(found) == shown([row.values() for row in expected.to_pylist()])
    assert frame.where("_pos = 0").count() == sum(row["_pos"] == 0 for row in found)
    assert frame.agg({"_row_id": "max"}).first() == (len(TARGET) - 1,)
    assert frame.where("_row_id = 3 AND p = 2").select("id").collect() == [(4,)]
    assert load(session, path, metadataColumns="true", columns="k").columns == ["k", *names]


@pytest.mark.long
def test_clones_are_tables_of_their_own(spark_catalog: SparkSession, tmp_path: Path) -> None:
    """The oracle is what was written into each version."""
    name = f"plake.`{tmp_path}/t`"
    spark_catalog.sql(f"CREATE TABLE {name} AS SELECT id FROM range(3)")
    spark_catalog.sql(f"INSERT INTO {name} VALUES (9)")
    target = PlakeTable.forName(spark_catalog, name)
    first, second = (row.timestamp for row in target.history().orderBy("version").collect())
    assert first < second

    def ids(of: PlakeTable) -> list[int]:
        return sorted(row.id for row in of.toDF().collect())

    shallow = target.clone(f"{tmp_path}/shallow", isShallow=True, properties={"it's": "a \\ b"})
    assert not data_files(str(tmp_path / "shallow"))
    assert ids(shallow) == [0, 1, 2, 9]
    shallow.delete("id = 9")
    assert (ids(shallow), ids(target)) == ([0, 1, 2], [0, 1, 2, 9])
    found = spark_catalog.sql(f"SHOW TBLPROPERTIES plake.`{tmp_path}/shallow`").collect()
    assert ("it's", "a \\ b") in [(row.key, row.value) for row in found]

    spark_catalog.sql("DROP TABLE IF EXISTS plake.default.deep")
    deep = target.cloneAtVersion(1, "plake.default.deep", False)
    assert ids(deep) == [0, 1, 2]
    with pytest.raises(PySparkException, match="exist"):
        target.cloneAtVersion(2, "plake.default.deep", False)
    replaced = target.cloneAtTimestamp(str(first), "plake.default.deep", True, replace=True)
    assert ids(replaced) == [0, 1, 2]
    assert ids(target.cloneAtTimestamp(str(second), "plake.default.deep", True, True)) == [
        0,
        1,
        2,
        9,
    ]
    for wrong in (
        lambda: target.clone(None, True),  # type: ignore[arg-type]
        lambda: target.clone("x", "yes"),  # type: ignore[arg-type]
        lambda: target.clone("x", True, properties={"a": 1}),  # type: ignore[dict-item]
        lambda: target.cloneAtVersion("1", "x", True),  # type: ignore[arg-type]
        lambda: target.cloneAtTimestamp(1, "x", True),  # type: ignore[arg-type]
    ):
        with pytest.raises(ValueError, match="needs to be"):
            wrong()

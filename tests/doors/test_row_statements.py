"""DELETE, UPDATE and MERGE of Spark SQL over plake; DuckDB runs the same texts as the oracle."""

from __future__ import annotations

import glob
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession

import lakehouse_source as lake
from lakehouse_source.spark.protocol.vocabulary import Setting
from tests.doors.frames import data_files

pytestmark = [pytest.mark.spark, pytest.mark.slow]

NAN = float("nan")
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("k", pa.int32()),
        ("x", pa.float64()),
        ("s", pa.string()),
        ("p", pa.int32()),
        ("st", pa.struct([("a", pa.int32()), ("b", pa.string())])),
    ]
)
# With NULL, NaN, both zeros and duplicates.
TARGET: list[tuple[Any, ...]] = [
    (1, 1, 0.5, "a", 1, {"a": 1, "b": "x"}),
    (2, 1, NAN, "b", 1, {"a": None, "b": "y"}),
    (3, 2, -0.0, None, 1, None),
    (4, 2, 0.0, "d", 2, {"a": 4, "b": None}),
    (4, 2, 0.0, "d", 2, {"a": 4, "b": None}),
    (5, None, None, "e", 2, {"a": 5, "b": "z"}),
    (6, 3, 1.5, "f", None, {"a": 6, "b": "w"}),
    (None, 3, 2.5, "g", None, {"a": 7, "b": "v"}),
    (8, 4, -1.0, "", 3, {"a": 8, "b": "u"}),
    (9, 5, NAN, "i", 3, {"a": 9, "b": "t"}),
]
PAIR = pa.struct([("a", pa.int32()), ("b", pa.int32())])
SOURCE: list[tuple[Any, ...]] = [
    (3, 20, NAN, "drop", 3, {"a": 30, "b": "n"}),
    (6, 21, -0.0, "new", 1, None),
    (9, 22, 9.5, None, None, {"a": 90, "b": "m"}),
    (20, 23, 0.0, "added", 2, {"a": 20, "b": None}),
    (None, 24, 1.0, "null", 9, {"a": 0, "b": "k"}),
]
STATEMENTS = [
    "DELETE FROM t WHERE k = 2",
    "DELETE FROM t WHERE x = 'NaN'",
    "DELETE FROM t WHERE x = 0",
    "DELETE FROM t WHERE id IN (SELECT id FROM s)",
    "DELETE FROM t WHERE NOT EXISTS (SELECT 1 FROM s WHERE s.id = t.id)",
    "DELETE FROM t WHERE id > (SELECT max(id) FROM s) - 15",
    "DELETE FROM t WHERE p = 2",
    "DELETE FROM t WHERE st.a > 4",
    "DELETE FROM t WHERE id IN (SELECT id + 1 FROM t)",
    "DELETE FROM t",
    "UPDATE t SET s = s || '!', x = x * 2 WHERE id % 2 = 1",
    "UPDATE t SET k = NULL",
    "UPDATE t SET p = 7 WHERE p = 1 OR p IS NULL",
    "UPDATE t SET id = id + 100 WHERE id IN (SELECT id FROM s)",
    "UPDATE t SET x = (SELECT max(id) FROM s) WHERE k = 2",
    (
        "MERGE INTO t USING s ON t.id = s.id WHEN MATCHED AND s.s = 'drop' THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET s = s.s, x = s.x WHEN NOT MATCHED THEN INSERT *"
    ),
    (
        "MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * "
        "WHEN NOT MATCHED AND s.k > 23 THEN INSERT (id, s) VALUES (s.k, 'half') "
        "WHEN NOT MATCHED BY SOURCE AND t.k = 2 THEN DELETE "
        "WHEN NOT MATCHED BY SOURCE AND t.k < 2 THEN UPDATE SET s = 'gone', p = 8"
    ),
    "MERGE INTO t USING s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *",
    "MERGE INTO t USING s ON t.id = s.id AND t.p = 3 WHEN MATCHED THEN DELETE",
    (
        "MERGE INTO t USING (SELECT * FROM s WHERE false) s ON t.id = s.id "
        "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT * "
        "WHEN NOT MATCHED BY SOURCE AND t.p = 2 THEN DELETE"
    ),
    (
        "MERGE INTO t USING (SELECT id, max(k) AS k FROM s GROUP BY id) q ON t.id = q.id "
        "WHEN MATCHED THEN UPDATE SET k = q.k + t.k WHEN NOT MATCHED THEN INSERT (k) VALUES (q.k)"
    ),
    (
        "MERGE INTO t USING s ON false WHEN NOT MATCHED THEN INSERT * "
        "WHEN NOT MATCHED BY SOURCE THEN DELETE"
    ),
]


def table(rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    columns = list(zip(*rows)) or [()] * len(SCHEMA)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA)], schema=SCHEMA)


def shown(rows: Sequence[Any]) -> list[str]:
    """Rows in no order, told apart by NULL, NaN and the sign of zero."""

    def plain(value: Any) -> Any:
        return value.asDict() if isinstance(value, Row) else value

    return sorted(repr(tuple(plain(value) for value in row)) for row in rows)


def write(path: Path | str, rows: Sequence[tuple[Any, ...]] = TARGET, **options: Any) -> str:
    """A dataset of two files; with partitions, of one or two for each."""
    half = len(rows) // 2
    lake.write_dataset(table(rows[:half]), str(path), **options)
    lake.write_dataset(table(rows[half:]), str(path), **options)
    return str(path)


def view(spark: SparkSession, path: str, name: str = "t", options: str = "") -> None:
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW {name} USING plake OPTIONS (path '{path}'{options})"
    )


@pytest.fixture(scope="module")
def source(spark_planner: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The source `s`, as plain Parquet."""
    path = str(tmp_path_factory.mktemp("source"))
    spark_planner.createDataFrame(
        [tuple(row) for row in table(SOURCE).to_pylist() for row in [row.values()]],
        "id long, k int, x double, s string, p int, st struct<a: int, b: string>",
    ).write.mode("overwrite").parquet(path)
    spark_planner.read.parquet(path).createOrReplaceTempView("s")


@pytest.fixture
def session(spark_planner: SparkSession, source: None) -> Iterator[SparkSession]:
    yield spark_planner
    for name in ("t", "u"):
        spark_planner.catalog.dropTempView(name)


def oracle(statements: Sequence[str], target: Sequence[tuple[Any, ...]] = TARGET) -> list[Any]:
    """The rows of the target after the statements, by DuckDB."""
    connection = duckdb.connect()
    connection.register("target", table(target))
    connection.register("source", table(SOURCE))
    connection.sql("CREATE TABLE t AS SELECT * FROM target")
    connection.sql("CREATE TABLE s AS SELECT * FROM source")
    for statement in statements:
        connection.sql(statement)
    return connection.sql("SELECT * FROM t").fetchall()


def identities(path: str, version: int | None = None) -> dict[int, tuple[Any, ...]]:
    """The rows by their identities."""
    rows = (
        lake.open_dataset(path).scan(columns=["_row_id", *SCHEMA.names], version=version).to_table()
    )
    return {one.pop("_row_id"): tuple(one.values()) for one in rows.to_pylist()}


def last(path: str) -> Any:
    return max(lake.open_dataset(path).history(), key=lambda one: one.version)


def check(spark: SparkSession, path: str, expected: list[Any]) -> None:
    """Every door shows the rows, and counts and aggregates follow them."""
    wanted = shown(expected)
    assert shown(spark.table("t").collect()) == wanted
    assert shown(spark.read.format("plake").load(path).collect()) == wanted
    dataset = lake.open_dataset(path)
    assert shown([row.values() for row in dataset.scan().to_table().to_pylist()]) == wanted
    assert spark.sql("SELECT count(*) FROM t").first() == (len(expected),)
    assert dataset.scan().count_rows() == len(expected)
    ids = [row[0] for row in expected if row[0] is not None]
    limits = (min(ids, default=None), max(ids, default=None), len(ids))
    assert spark.sql("SELECT min(id), max(id), count(id) FROM t").first() == limits
    assert spark.table("t").limit(3).count() == min(3, len(expected))
    assert last(path).summary["live_rows"] == len(expected)


@pytest.mark.parametrize(
    ("statement", "partitioned"),
    [*((one, True) for one in STATEMENTS), *((one, False) for one in STATEMENTS[::3])],
)
@pytest.mark.cases(4)
def test_a_statement_does_what_duckdb_does(
    statement: str, partitioned: bool, session: SparkSession, tmp_path: Path
) -> None:
    path = write(tmp_path / "t", **({"partition_by": "p"} if partitioned else {}))
    view(session, path)
    before = identities(path)
    session.sql(statement)
    expected = oracle([statement])
    check(session, path, expected)
    assert shown(identities(path, version=2).values()) == shown(
        [row.values() for row in table(TARGET).to_pylist()]
    )
    done = last(path)
    after = identities(path)
    command = statement.split()[0].lower()
    changed = sum(repr(before[id]) != repr(row) for id, row in after.items() if id in before)
    gone, added = before.keys() - after.keys(), after.keys() - before.keys()
    assert (done.version, done.operation) == (3, command)
    counts = done.summary
    assert (counts["rows_deleted"], counts["rows_inserted"]) == (len(gone), len(added))
    assert counts["rows_updated"] >= changed
    assert not added or min(added) > max(before)
    assert lake.open_dataset(path).verify().ok


@pytest.mark.long
def test_a_program_of_statements_and_appends(session: SparkSession, tmp_path: Path) -> None:
    path = write(tmp_path / "t", partition_by="p")
    view(session, path)
    program: list[str] = []
    for statement in (STATEMENTS[10], STATEMENTS[0], STATEMENTS[12], STATEMENTS[15]):
        session.sql(statement)
        program.append(statement)
        insert = "INSERT INTO t VALUES (50, 2, 0.0, 'more', 1, NULL)"
        session.sql(insert)
        program.append(insert)
        check(session, path, oracle(program))
    for statement in STATEMENTS[16:20]:
        session.sql(statement)
        program.append(statement)
        check(session, path, oracle(program))


@pytest.mark.long
def test_merge_into_an_empty_dataset(session: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    lake.write_dataset(table([]), path)
    view(session, path)
    statement = STATEMENTS[15]
    session.sql(statement)
    check(session, path, oracle([statement], []))


@pytest.mark.long
def test_a_statement_that_changes_nothing_commits_nothing(
    session: SparkSession, tmp_path: Path
) -> None:
    path = write(tmp_path / "t")
    view(session, path)
    files = data_files(path)
    session.sql("DELETE FROM t WHERE id = 12345")
    session.sql("UPDATE t SET k = 1 WHERE id = 12345")
    session.sql("MERGE INTO t USING s ON t.id = s.id + 100 WHEN MATCHED THEN DELETE")
    assert last(path).version == 2
    assert data_files(path) == files


@pytest.mark.long
def test_cte_aliases_and_merge_into_by_frames(session: SparkSession, tmp_path: Path) -> None:
    from pyspark.sql import functions as F

    path = write(tmp_path / "t")
    view(session, path)
    session.sql(
        "WITH c AS (SELECT id, k FROM s WHERE k < 22) MERGE INTO t AS a USING c AS b "
        "ON a.id = b.id WHEN MATCHED THEN UPDATE SET a.k = b.k"
    )
    frame = session.table("s").where("id = 9").alias("b")
    frame.mergeInto("t", F.expr("t.id = b.id")).whenMatched().delete().merge()
    session.sql("DELETE FROM t AS q WHERE q.id = 2")
    check(
        session,
        path,
        oracle(
            [
                "UPDATE t SET k = s.k FROM s WHERE t.id = s.id AND s.k < 22",
                "DELETE FROM t WHERE id = 9 OR id = 2",
            ]
        ),
    )


def test_a_view_of_a_frame_is_changed_while_it_is_the_newest(
    session: SparkSession, tmp_path: Path
) -> None:
    path = write(tmp_path / "t")
    session.read.format("plake").load(path).createOrReplaceTempView("t")
    session.sql("DELETE FROM t WHERE id = 1")
    assert last(path).version == 3
    with pytest.raises(PySparkException, match="newest version, which is 3"):
        session.sql("DELETE FROM t WHERE id = 2")
    for option in (", version '1'", ", versionAsOf '3'"):
        view(session, path, options=option)
        with pytest.raises(PySparkException, match="names another"):
            session.sql("DELETE FROM t WHERE id = 2")
    assert last(path).version == 3


@pytest.mark.parametrize("narrow", ["columns 'id, k'", "where 'id = 1'"])
def test_a_view_of_a_part_is_refused(narrow: str, session: SparkSession, tmp_path: Path) -> None:
    path = write(tmp_path / "t")
    view(session, path, options=", " + narrow)
    with pytest.raises(PySparkException, match="is an option of reading plake"):
        session.sql("UPDATE t SET id = 7")
    assert last(path).version == 2


@pytest.mark.long
def test_a_view_with_a_narrower_schema_cannot_write_rows_anew(
    session: SparkSession, tmp_path: Path
) -> None:
    """The columns that the view does not show would be lost."""
    path = write(tmp_path / "t")
    session.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW t (id bigint, st struct<a: int>) USING plake "
        f"OPTIONS (path '{path}')"
    )
    for statement in (
        "UPDATE t SET id = 7",
        "MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET id = 8",
        "MERGE INTO t USING s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id) VALUES (7)",
    ):
        with pytest.raises(PySparkException, match="PLAKE_SCHEMA_MISMATCH"):
            session.sql(statement)
    session.sql("DELETE FROM t WHERE id = 1")
    assert shown(identities(path).values()) == shown(oracle(["DELETE FROM t WHERE id = 1"]))


def test_schema_evolution_is_refused(session: SparkSession, tmp_path: Path) -> None:
    path = write(tmp_path / "t")
    view(session, path)
    with pytest.raises(PySparkException, match="cannot add columns"):
        session.sql(
            "MERGE WITH SCHEMA EVOLUTION INTO t USING s ON t.id = s.id WHEN MATCHED THEN DELETE"
        )
    assert last(path).version == 2


def test_two_source_rows_for_one_target_row_are_refused(
    session: SparkSession, tmp_path: Path
) -> None:
    path = write(tmp_path / "t")
    view(session, path)
    files = data_files(path)
    with pytest.raises(PySparkException, match="MERGE_CARDINALITY_VIOLATION"):
        session.sql(
            "MERGE INTO t USING (SELECT * FROM s UNION ALL SELECT * FROM s) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET *"
        )
    assert last(path).version == 2
    assert data_files(path) == files


@pytest.mark.long
def test_two_source_rows_may_delete_one_target_row(session: SparkSession, tmp_path: Path) -> None:
    path = write(tmp_path / "t")
    view(session, path)
    session.sql(
        "MERGE INTO t USING (SELECT * FROM s UNION ALL SELECT * FROM s) s ON t.id = s.id "
        "WHEN MATCHED THEN DELETE"
    )
    check(session, path, oracle(["DELETE FROM t WHERE id IN (3, 6, 9)"]))


@pytest.mark.long
def test_columns_may_have_the_names_of_metadata_columns(
    session: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "t")
    names = ["_file", "_POS", "_row_id", "__pos"]
    lake.write_dataset(pa.table({name: [1, 2, 3] for name in names}), path)
    view(session, path)
    session.sql("UPDATE t SET _file = 20, _row_id = 30 WHERE _POS = 2")
    session.sql("DELETE FROM t WHERE _file = 1")
    assert sorted(map(tuple, session.table("t").collect())) == [(3, 3, 3, 3), (20, 2, 30, 2)]


def test_a_column_named_as_the_operation_is_refused(session: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    lake.write_dataset(pa.table({"__row_operation": [1]}), path)
    view(session, path)
    with pytest.raises(PySparkException, match="a column named __row_operation"):
        session.sql("DELETE FROM t")


# --- concurrency ---------------------------------------------------------------------


def between_planning_and_write(
    spark: SparkSession, statement: str, meanwhile: Callable[[], Any]
) -> None:
    """Run a statement; something else happens after Spark has analysed it."""
    jvm: Any = spark._jvm
    state = spark._jsparkSession.sessionState()
    skip = jvm.org.apache.spark.sql.execution.CommandExecutionMode.SKIP()
    execution = state.executePlan(state.sqlParser().parsePlan(statement), skip)
    plan = execution.analyzed()
    meanwhile()
    jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan)


@pytest.mark.long
@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM t WHERE id = 1",
        "UPDATE t SET k = 70 WHERE id = 1",
        "MERGE INTO t USING s ON t.id = s.id - 2 WHEN MATCHED THEN UPDATE SET k = 70",
        "MERGE INTO t USING s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *",
    ],
)
def test_a_commit_between_planning_and_writing_is_not_lost(
    statement: str, session: SparkSession, tmp_path: Path
) -> None:
    path = write(tmp_path / "t")
    view(session, path)
    files = data_files(path)

    def meanwhile() -> None:
        lake.open_dataset(path).delete("id IN (1, 8)")
        lake.write_dataset(table(TARGET[:1]), path)

    if statement.startswith("DELETE"):
        between_planning_and_write(session, statement, meanwhile)
        # Both delete row 1; the row that was appended meanwhile stays.
        rows = oracle(["DELETE FROM t WHERE id IN (1, 8)"]) + oracle([], TARGET[:1])
        check(session, path, rows)
        assert last(path).version == 5
        return
    with pytest.raises(Exception, match="PLAKE_COMMIT_CONFLICT"):
        between_planning_and_write(session, statement, meanwhile)
    assert last(path).version == 4
    assert len(set(data_files(path)) - set(files)) == 2  # of the other two commits


@pytest.mark.long
def test_an_update_of_other_rows_of_the_same_file_commits(
    session: SparkSession, tmp_path: Path
) -> None:
    path = write(tmp_path / "t")
    view(session, path)
    between_planning_and_write(
        session,
        "UPDATE t SET k = 70 WHERE id = 1",
        lambda: lake.open_dataset(path).delete("id = 2"),
    )
    check(session, path, oracle(["UPDATE t SET k = 70 WHERE id = 1", "DELETE FROM t WHERE id = 2"]))


# --- options, pruning, failures --------------------------------------------------------


@pytest.mark.long
def test_settings_of_the_session_are_options_of_statements(
    session: SparkSession, tmp_path: Path
) -> None:
    path = write(tmp_path / "t")
    view(session, path)
    given = {"commitMetadata": json.dumps({"by": "me"}), "txnAppId": "app", "txnVersion": "1"}
    for name, value in given.items():
        session.conf.set(Setting.STATEMENT + name, value)
    try:
        session.sql("DELETE FROM t WHERE id = 1")
        session.sql("DELETE FROM t WHERE id = 2")  # a repetition, by its pair
        session.conf.set(Setting.STATEMENT + "isolation", "none")
        with pytest.raises(PySparkException, match="is not an isolation"):
            session.sql("DELETE FROM t WHERE id = 3")
    finally:
        for name in (*given, "isolation"):
            session.conf.unset(Setting.STATEMENT + name)
    assert last(path).version == 3
    assert dict(last(path).metadata) == {"by": "me"}
    check(session, path, oracle(["DELETE FROM t WHERE id = 1"]))


@pytest.mark.long
def test_the_scan_of_a_statement_is_pruned_and_narrow(
    session: SparkSession, tmp_path: Path
) -> None:
    path = write(tmp_path / "t", partition_by="p")
    view(session, path)
    statement = "DELETE FROM t WHERE p = 3 AND k = 4"
    plan = session.sql("EXPLAIN " + statement).first()[0]
    assert "PushedFilters: [p IS NOT NULL, k IS NOT NULL, p = 3, k = 4]" in plan
    assert "ReadSchema: struct<k:int,p:int,_file:string,_pos:bigint>" in plan
    # Files of other partitions are not opened.
    for file in glob.glob(f"{path}/p=[12]/*.parquet"):
        Path(file).rename(file + ".away")
    session.sql(statement)
    for file in glob.glob(f"{path}/p=[12]/*.away"):
        Path(file).rename(file.removesuffix(".away"))
    check(session, path, oracle([statement]))


def test_a_failed_task_leaves_no_file(session: SparkSession, tmp_path: Path) -> None:
    path = write(tmp_path / "t")
    view(session, path)
    files = data_files(path)
    with pytest.raises(PySparkException):
        session.sql("UPDATE t SET s = IF(id = 9, raise_error('no'), 'x')")
    assert last(path).version == 2
    assert data_files(path) == files


def test_without_the_extension_statements_are_refused_by_spark(
    session: SparkSession, tmp_path: Path
) -> None:
    path = write(tmp_path / "t")
    view(session, path)
    session.conf.set(Setting.PLANNER, "false")
    try:
        with pytest.raises(PySparkException, match="not support"):
            session.sql("DELETE FROM t WHERE id = 1")
    finally:
        session.conf.set(Setting.PLANNER, "true")
    assert last(path).version == 2


@pytest.mark.long
@pytest.mark.parametrize("by_source", ["", " WHEN NOT MATCHED BY SOURCE THEN UPDATE SET k = 0"])
def test_the_source_of_a_merge_may_be_random(
    session: SparkSession, tmp_path: Path, by_source: str
) -> None:
    path = write(tmp_path / "t")
    view(session, path)
    before = session.table("t").count()
    session.sql(
        "MERGE INTO t USING (SELECT 1000 + CAST(rand() * 0 AS INT) + id AS id, uuid() AS v "
        "FROM range(3) UNION ALL SELECT id, uuid() FROM t WHERE id = 1) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET k = -1 WHEN NOT MATCHED THEN INSERT (id, k) VALUES (s.id, 1)"
        + by_source
    )
    assert session.table("t").count() == before + 3
    assert session.table("t").where("id >= 1000 AND k = 1").count() == 3
    assert session.table("t").where("k = -1").count() == session.table("t").where("id = 1").count()


@pytest.mark.long
def test_structs_are_assigned_by_the_names_of_their_fields(
    session: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "t")
    schema = pa.schema([("id", pa.int64()), ("s", PAIR), ("l", pa.list_(PAIR))])
    pair = {"a": 1, "b": 2}
    rows = [{"id": id, "s": pair, "l": [pair]} for id in (1, 2)]
    lake.write_dataset(pa.Table.from_pylist(rows, schema), path)
    view(session, path)
    swapped = "named_struct('b', {0}, 'a', {1})"
    session.sql(
        f"SELECT id, {swapped.format(40, 30)} AS s, array({swapped.format(40, 30)}) AS l "
        "FROM range(2, 4)"
    ).createOrReplaceTempView("swapped")
    session.sql(
        f"UPDATE t SET s = {swapped.format(20, 10)}, l = array({swapped.format(20, 10)}) "
        "WHERE id = 1"
    )
    session.sql(
        "MERGE INTO t USING swapped s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    expected = {1: {"a": 10, "b": 20}, 2: {"a": 30, "b": 40}, 3: {"a": 30, "b": 40}}
    found = lake.read_dataset(path).to_pylist()
    assert {row["id"]: row["s"] for row in found} == expected
    assert {row["id"]: row["l"] for row in found} == {k: [v] for k, v in expected.items()}


def test_structs_are_assigned_by_name_where_a_cast_by_places_is_not_possible(
    session: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "t")
    pair = pa.struct([("a", pa.int32()), ("at", pa.timestamp("us", "UTC"))])
    old = {"a": 1, "at": None}
    row = {"s": old, "m": [("k", old)]}
    types = pa.schema([("s", pair), ("m", pa.map_(pa.string(), pair))])
    lake.write_dataset(pa.Table.from_pylist([row], types), path)
    view(session, path)
    swapped = "named_struct('at', timestamp'2024-01-01 00:00:00', 'a', 5)"
    session.sql(f"UPDATE t SET s = {swapped}, m = map('z', {swapped})")
    found = session.sql("SELECT s.a, m['z'].a, m['z'].at = s.at FROM t").collect()
    assert [tuple(one) for one in found] == [(5, 5, True)]

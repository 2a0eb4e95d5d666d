"""The statements and APIs that `statements.py` tries everywhere, with what is expected of each.

Expected rows are written by hand. A case has names of its own: `{t}` a table of plake's catalog,
`{s}` one of `spark_catalog`, `{path}` a folder, `{p}` the same folder as a table, `{n}` a word.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Rows = list[tuple[Any, ...]]
# A statement, or a function of the session and the names of the case.
Step = str | Callable[[Any, Mapping[str, str]], Any]


@dataclass(frozen=True)
class Case:
    """Something that a user types: what is there before, the step, a look at it afterwards.

    `refused`: the text of the refusal, by the version of Spark, by "Connect" or, where all refuse,
    by "". Without `check` the rows are those that the step itself gives; None: they are not looked
    at.
    """

    name: str
    before: tuple[Step, ...]
    step: Step
    rows: Rows | None
    check: Step | None = None
    refused: Mapping[str, str] = field(default_factory=dict)

    def refusal(self, version: str, client: str) -> str | None:
        """What the error says in one environment; None: it works there."""
        for key in (version, client, ""):
            if key in self.refused:
                return self.refused[key]
        return None


TABLE = "CREATE TABLE {t} AS SELECT * FROM VALUES (1, 'a'), (2, 'b'), (3, 'c') AS v(id, g)"
PARTED = (
    "CREATE TABLE {t} PARTITIONED BY (g) AS "
    "SELECT * FROM VALUES (1, 'a'), (2, 'b'), (3, 'c') AS v(id, g)"
)
PATH = "CREATE TABLE {p} AS SELECT * FROM VALUES (1, 'a'), (2, 'b'), (3, 'c') AS v(id, g)"
SOURCE = (
    "CREATE OR REPLACE TEMPORARY VIEW {n} AS SELECT * FROM VALUES (3, 'C'), (4, 'd') AS v(id, g)"
)
UPSERT = (
    "AS t USING {n} AS s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * "
    "WHEN NOT MATCHED THEN INSERT *"
)
ALL = "SELECT id, g FROM {t}"
ABC: Rows = [(1, "a"), (2, "b"), (3, "c")]
EVOLVED: Rows = [(1, "a", None), (2, "b", None), (3, "c", 5)]


def frame(spark: Any, rows: Rows, columns: str = "id INT, g STRING") -> Any:
    return spark.createDataFrame(rows, columns)


def save(mode: str | None = None, **options: str) -> Step:
    """`format("plake").save(path)` of two rows."""

    def step(spark: Any, names: Mapping[str, str]) -> None:
        writer = frame(spark, [(3, "C"), (4, "d")]).write.format("plake").options(**options)
        (writer if mode is None else writer.mode(mode)).save(names["path"])

    return step


def save_as_table(mode: str) -> Step:
    def step(spark: Any, names: Mapping[str, str]) -> None:
        frame(spark, [(4, "d")]).write.mode(mode).saveAsTable(names["t"])

    return step


def stream_to_table(spark: Any, names: Mapping[str, str]) -> None:
    stream = spark.readStream.table(names["t"]).writeStream.trigger(availableNow=True)
    stream = stream.option("checkpointLocation", names["path"] + "-checkpoint")
    stream.toTable(names["t"] + "_copy").awaitTermination()


def cached(spark: Any, names: Mapping[str, str]) -> Any:
    table = names["t"]
    spark.sql(f"CACHE TABLE {table}")
    spark.sql(f"INSERT INTO {table} VALUES (4, 'd')")
    spark.sql(f"REFRESH TABLE {table}")
    return spark.sql(f"SELECT count(*) FROM {table}")


def listed(spark: Any, names: Mapping[str, str]) -> Rows:
    catalog = spark.catalog
    table = names["t"].rpartition(".")[2]
    space = names["t"].rpartition(".")[0]
    tables = [one.name for one in catalog.listTables(space)]
    columns = [one.name for one in catalog.listColumns(names["t"])]
    return [
        (table in tables, catalog.tableExists(names["t"]), catalog.getTable(names["t"]).name),
        (catalog.databaseExists("plake.st"), *columns),
    ]


def pinned(spark: Any, names: Mapping[str, str]) -> Rows:
    """A frame keeps its version; a new one reads the newest."""
    old = spark.table(names["t"])
    before = old.count()  # a Connect client analyses a frame when it runs it
    spark.sql(f"INSERT INTO {names['t']} VALUES (4, 'd')")
    return [(before, spark.table(names["t"]).count())]


def timestamp_now(spark: Any, names: Mapping[str, str]) -> Any:
    moment = spark.sql(f"SELECT max(timestamp) FROM {names['t']}.history").first()[0]
    return spark.sql(f"SELECT count(*) FROM {names['t']} TIMESTAMP AS OF '{moment}'")


def publish(spark: Any, names: Mapping[str, str]) -> None:
    """Write, audit, publish: rows go to a branch, are looked at, and the table takes them over."""
    table = names["t"]
    spark.sql(f"INSERT INTO {table}.branch_audit VALUES (4, 'd')")
    assert spark.table(table).count() == 3
    assert spark.table(f"{table}.branch_audit").count() == 4
    spark.sql(f"CALL plake.system.fast_forward('{table}', 'audit')")


def call(procedure: str, arguments: str, columns: str = "*") -> Step:
    """The rows of a procedure. Spark has no `SELECT … FROM (CALL …)`."""

    def step(spark: Any, names: Mapping[str, str]) -> Any:
        text = arguments.format(**names)
        return spark.sql(f"CALL plake.system.{procedure}({text})").select(*columns.split(","))

    return step


def write_to(action: str) -> Step:
    def step(spark: Any, names: Mapping[str, str]) -> None:
        from pyspark.sql import functions as F

        writer = frame(spark, [(3, "C"), (4, "d")]).writeTo(names["t"])
        if action == "overwrite":
            writer.overwrite(F.col("id") > 2)
        elif action == "create":
            writer.using("plake").partitionedBy(F.col("g")).tableProperty("k", "v").create()
        else:
            getattr(writer, action)()

    return step


def with_option(name: str, value: str, table: str = "{t}") -> Step:
    def step(spark: Any, names: Mapping[str, str]) -> Any:
        return spark.read.option(name, value).table(table.format(**names)).select("id", "g")

    return step


def load(**options: str) -> Step:
    def step(spark: Any, names: Mapping[str, str]) -> Any:
        return spark.read.format("plake").options(**options).load(names["path"])

    return step


def described(key: str) -> Step:
    """One line of `DESCRIBE EXTENDED`."""

    def step(spark: Any, names: Mapping[str, str]) -> Any:
        return spark.sql(f"DESCRIBE EXTENDED {names['t']}").where(f"col_name = '{key}'")

    return step


def like(spark: Any, names: Mapping[str, str]) -> Any:
    table = f"{names['t']}_like"
    spark.sql(f"INSERT INTO {table} (id, g) VALUES (1, 'a')")
    assert spark.table(table).where("n = 7").count() == 1
    return spark.sql(f"SHOW PARTITIONS {table}")


def alter(change: str, *before: str, check: str | None = None, rows: Rows | None = None) -> Case:
    """A change of a table with the columns of `TABLE`."""
    return Case(
        f"ALTER TABLE … {change}",
        (TABLE, *before),
        f"ALTER TABLE {{t}} {change}",
        rows,
        check,
    )


def describe(statement: str, rows: Rows | None, check: Step | None = None, *before: Step) -> Case:
    shown = statement.replace("{t}", "t").replace("{n}", "n")
    return Case(shown, (TABLE, *before), check or statement, rows)


STATEMENTS = (
    Case("CREATE TABLE", (), "CREATE TABLE {t} (id INT, g STRING)", [], ALL),
    Case(
        "CREATE TABLE IF NOT EXISTS", (TABLE,), "CREATE TABLE IF NOT EXISTS {t} (x INT)", ABC, ALL
    ),
    Case(
        "CREATE TABLE, which exists",
        (TABLE,),
        "CREATE TABLE {t} (x INT)",
        None,
        refused={"": "TABLE_OR_VIEW_ALREADY_EXISTS"},
    ),
    Case(
        "CREATE OR REPLACE TABLE",
        (TABLE,),
        "CREATE OR REPLACE TABLE {t} (x INT)",
        [("x", "int", None)],
        "DESCRIBE {t}",
    ),
    Case("CREATE TABLE … AS", (), TABLE, ABC, ALL),
    Case(
        "CREATE TABLE … AS, whose query fails",
        (),
        "CREATE TABLE {t} AS SELECT CAST(raise_error('stop here') AS INT) AS a",
        None,
        refused={"": "stop here"},
    ),
    Case(
        "REPLACE TABLE … AS",
        (TABLE,),
        "REPLACE TABLE {t} AS SELECT max(id) AS id, 'm' AS g FROM {t}",
        [(3, "m")],
        ALL,
    ),
    Case(
        "CREATE TABLE … LIKE",
        ("CREATE TABLE {t} (id INT, n INT DEFAULT 7, g STRING) PARTITIONED BY (g)",),
        "CREATE TABLE {t}_like LIKE {t}",
        [("g=a",)],
        like,
        refused={"4.1": "PARSE_SYNTAX_ERROR"},
    ),
    Case(
        "PARTITIONED BY (column)",
        (PARTED,),
        "SHOW PARTITIONS {t}",
        [("g=a",), ("g=b",), ("g=c",)],
    ),
    Case(
        "PARTITIONED BY (days(column))",
        (),
        "CREATE TABLE {t} (d DATE) PARTITIONED BY (days(d))",
        None,
        refused={"": "days"},
    ),
    Case("CLUSTER BY", (), "CREATE TABLE {t} (id INT, g STRING) CLUSTER BY (g)", [], ALL),
    Case(
        "LOCATION, COMMENT, TBLPROPERTIES",
        (),
        "CREATE TABLE {t} (id INT) LOCATION '{path}' COMMENT 'all' TBLPROPERTIES ('k' = 'v')",
        [("k", "v")],
        "SHOW TBLPROPERTIES {t} ('k')",
    ),
    Case(
        "NOT NULL",
        ("CREATE TABLE {t} (id INT NOT NULL)",),
        "INSERT INTO {t} SELECT CAST(NULL AS INT)",
        None,
        refused={"": "NOT_NULL_ASSERT_VIOLATION"},
    ),
    Case(
        "DEFAULT",
        ("CREATE TABLE {t} (id INT, g STRING DEFAULT 'd')",),
        "INSERT INTO {t} (id) VALUES (1)",
        [(1, "d")],
        ALL,
    ),
    Case("DROP TABLE", (TABLE,), "DROP TABLE {t}", [], "SHOW TABLES IN plake.st LIKE '{n}'"),
    Case(
        "DROP TABLE PURGE",
        (TABLE,),
        "DROP TABLE {t} PURGE",
        [],
        "SHOW TABLES IN plake.st LIKE '{n}'",
    ),
    Case(
        "DROP TABLE, which is not there",
        (),
        "DROP TABLE {t}",
        None,
        refused={"": "TABLE_OR_VIEW_NOT_FOUND"},
    ),
    Case(
        "ALTER TABLE … RENAME TO",
        (TABLE,),
        "ALTER TABLE {t} RENAME TO plake.st.{n}_new",
        ABC,
        "SELECT * FROM {t}_new",
    ),
    alter(
        "ADD COLUMNS (n INT AFTER id)",
        check="SELECT * FROM {t} WHERE id = 1",
        rows=[(1, None, "a")],
    ),
    alter(
        "ADD COLUMNS (n INT DEFAULT 7)", check="SELECT * FROM {t} WHERE id = 1", rows=[(1, "a", 7)]
    ),
    alter("RENAME COLUMN g TO h", check="SELECT h FROM {t} WHERE id = 1", rows=[("a",)]),
    alter("DROP COLUMN g", check="SELECT * FROM {t}", rows=[(1,), (2,), (3,)]),
    alter("ALTER COLUMN g FIRST", check="SELECT * FROM {t} WHERE id = 1", rows=[("a", 1)]),
    Case(
        "ALTER TABLE … ADD, RENAME, DROP COLUMN of a struct",
        (
            "CREATE TABLE {t} AS SELECT named_struct('a', 1, 'b', 2) AS s",
            "ALTER TABLE {t} ADD COLUMNS (s.c INT FIRST)",
            "ALTER TABLE {t} RENAME COLUMN s.a TO d",
        ),
        "ALTER TABLE {t} DROP COLUMN s.b",
        [((None, 1),)],
        "SELECT s FROM {t}",
    ),
    alter(
        "ALTER COLUMN id TYPE BIGINT",
        check="DESCRIBE {t} id",
        rows=[("col_name", "id"), ("data_type", "bigint"), ("comment", "NULL")],
    ),
    alter(
        "ALTER COLUMN id SET NOT NULL",
        check="SELECT count(*) FROM {t} WHERE id IS NULL",
        rows=[(0,)],
    ),
    Case(
        "ALTER TABLE … ALTER COLUMN id SET NOT NULL, where it is NULL",
        (TABLE, "INSERT INTO {t} VALUES (NULL, 'n')"),
        "ALTER TABLE {t} ALTER COLUMN id SET NOT NULL",
        None,
        refused={"": "NULL"},
    ),
    Case(
        "ALTER TABLE … ALTER COLUMN id DROP NOT NULL",
        (
            "CREATE TABLE {t} (id INT NOT NULL, g STRING)",
            "ALTER TABLE {t} ALTER COLUMN id DROP NOT NULL",
        ),
        "INSERT INTO {t} VALUES (NULL, 'n')",
        [(None, "n")],
        ALL,
    ),
    alter(
        "ALTER COLUMN g COMMENT 'group'",
        check="DESCRIBE {t}",
        rows=[("id", "int", None), ("g", "string", "group")],
    ),
    alter("ALTER COLUMN g SET DEFAULT 'x'", check="SELECT count(*) FROM {t}", rows=[(3,)]),
    alter("SET TBLPROPERTIES ('k' = 'v')", check="SHOW TBLPROPERTIES {t} ('k')", rows=[("k", "v")]),
    Case(
        "ALTER TABLE … UNSET TBLPROPERTIES",
        (TABLE, "ALTER TABLE {t} SET TBLPROPERTIES ('k' = 'v', 'l' = 'w')"),
        "ALTER TABLE {t} UNSET TBLPROPERTIES ('k')",
        [("l", "w")],
        "SHOW TBLPROPERTIES {t} ('l')",
    ),
    Case(
        "COMMENT ON TABLE",
        (TABLE, "COMMENT ON TABLE {t} IS 'all'"),
        described("Comment"),
        [("Comment", "all", "")],
    ),
    describe("DESCRIBE {t}", [("id", "int", None), ("g", "string", None)]),
    Case("DESCRIBE EXTENDED", (TABLE,), described("Provider"), [("Provider", "plake", "")]),
    describe("SHOW TABLES", [("st", "{n}", False)], "SHOW TABLES IN plake.st LIKE '{n}'"),
    describe("SHOW NAMESPACES IN plake", [("default",), ("st",)]),
    describe(
        "SHOW CREATE TABLE {t}",
        [(True,)],
        lambda spark, names: [
            ("id INT" in spark.sql(f"SHOW CREATE TABLE {names['t']}").first()[0],)
        ],
    ),
    describe("SHOW TBLPROPERTIES {t}", None),
    describe("SHOW COLUMNS IN {t}", [("id",), ("g",)]),
    describe("USE", ABC, "SELECT * FROM {n}", "USE plake.st"),
    describe("ANALYZE TABLE {t} COMPUTE STATISTICS", []),
    describe("REFRESH TABLE", [(4,)], cached),
    describe("EXPLAIN SELECT … FROM {t}", None, "EXPLAIN SELECT * FROM {t} WHERE id = 1"),
    Case(
        "CREATE, COMMENT ON, DROP NAMESPACE",
        ("CREATE NAMESPACE plake.{n}", "COMMENT ON NAMESPACE plake.{n} IS 'x'"),
        "DROP NAMESPACE plake.{n}",
        [],
        "SHOW NAMESPACES IN plake LIKE '{n}'",
    ),
    Case("INSERT INTO", (TABLE,), "INSERT INTO {t} VALUES (4, 'd')", [*ABC, (4, "d")], ALL),
    Case(
        "INSERT INTO … BY NAME",
        (TABLE,),
        "INSERT INTO {t} BY NAME SELECT 'd' AS g, 4 AS id",
        [*ABC, (4, "d")],
        ALL,
    ),
    Case("INSERT OVERWRITE", (PARTED,), "INSERT OVERWRITE {t} VALUES (4, 'a')", [(4, "a")], ALL),
    Case(
        "INSERT OVERWRITE … PARTITION (value)",
        (PARTED,),
        "INSERT OVERWRITE {t} PARTITION (g = 'a') VALUES (4)",
        [(4, "a"), (2, "b"), (3, "c")],
        ALL,
    ),
    Case(
        "INSERT OVERWRITE (dynamic)",
        (PARTED, "SET spark.sql.sources.partitionOverwriteMode = dynamic"),
        "INSERT OVERWRITE {t} VALUES (4, 'a')",
        [(4, "a"), (2, "b"), (3, "c")],
        ALL,
    ),
    Case(
        "INSERT … REPLACE WHERE",
        (TABLE,),
        "INSERT INTO {t} REPLACE WHERE id > 1 VALUES (5, 'e')",
        [(1, "a"), (5, "e")],
        ALL,
    ),
    Case(
        "INSERT WITH SCHEMA EVOLUTION",
        (TABLE,),
        "INSERT WITH SCHEMA EVOLUTION INTO {t} BY NAME SELECT 4 AS id, 'd' AS g, 5 AS n",
        [*((*row, None) for row in ABC), (4, "d", 5)],
        "SELECT id, g, n FROM {t}",
        refused={"4.1": "PARSE_SYNTAX_ERROR"},
    ),
    Case("TRUNCATE TABLE", (TABLE,), "TRUNCATE TABLE {t}", [], ALL),
    Case("DELETE", (TABLE,), "DELETE FROM {t} WHERE id = 1 OR g = 'b'", [(3, "c")], ALL),
    Case(
        "DELETE with a subquery",
        (TABLE, SOURCE),
        "DELETE FROM {t} WHERE id IN (SELECT id FROM {n})",
        ABC[:2],
        ALL,
    ),
    Case(
        "UPDATE",
        (TABLE,),
        "UPDATE {t} SET g = upper(g) WHERE id > 1",
        [(1, "a"), (2, "B"), (3, "C")],
        ALL,
    ),
    Case(
        "MERGE",
        (TABLE, SOURCE),
        "MERGE INTO {t} USING {n} AS s ON {t}.id = s.id WHEN MATCHED THEN UPDATE SET * "
        "WHEN NOT MATCHED THEN INSERT * WHEN NOT MATCHED BY SOURCE AND g = 'a' THEN DELETE",
        [(2, "b"), (3, "C"), (4, "d")],
        ALL,
    ),
    Case(
        "MERGE WITH SCHEMA EVOLUTION",
        (TABLE, "CREATE OR REPLACE TEMPORARY VIEW {n} AS SELECT 3 AS id, 'c' AS g, 5 AS n"),
        "MERGE WITH SCHEMA EVOLUTION INTO {t} USING {n} AS s ON {t}.id = s.id "
        "WHEN MATCHED THEN UPDATE SET *",
        EVOLVED,
        "SELECT id, g, n FROM {t}",
    ),
    Case(
        "VERSION AS OF number", (TABLE, "DELETE FROM {t}"), "SELECT * FROM {t} VERSION AS OF 1", ABC
    ),
    Case(
        "VERSION AS OF 'tag'",
        (TABLE, "CALL plake.system.create_tag('{t}', 'first')", "DELETE FROM {t}"),
        "SELECT * FROM {t} VERSION AS OF 'first'",
        ABC,
    ),
    Case("TIMESTAMP AS OF", (TABLE,), timestamp_now, [(3,)]),
    Case(
        "TIMESTAMP AS OF current_timestamp()",
        (TABLE,),
        "SELECT * FROM {t} TIMESTAMP AS OF current_timestamp()",
        ABC,
    ),
    Case(
        "joins of plake, Parquet and temporary tables",
        (TABLE, SOURCE, "CREATE TABLE {s} USING parquet AS SELECT 3 AS id, 'p' AS h"),
        "SELECT a.id, a.g, b.g, c.h FROM {t} a JOIN {n} b ON a.id = b.id JOIN {s} c ON a.id = c.id",
        [(3, "c", "C", "p")],
    ),
)

FRAMES = (
    Case("spark.table", (TABLE,), lambda spark, names: spark.table(names["t"]), ABC),
    Case("a frame of spark.table, and a newer one", (TABLE,), pinned, [(3, 4)]),
    Case(
        'spark.read.option("versionAsOf", 1).table',
        (TABLE, "DELETE FROM {t}"),
        with_option("versionAsOf", "1"),
        ABC,
    ),
    Case("saveAsTable (error)", (), save_as_table("error"), [(4, "d")], ALL),
    Case(
        "saveAsTable (error), which exists",
        (TABLE,),
        save_as_table("error"),
        None,
        refused={"": "TABLE_OR_VIEW_ALREADY_EXISTS"},
    ),
    Case("saveAsTable (append)", (TABLE,), save_as_table("append"), [*ABC, (4, "d")], ALL),
    Case("saveAsTable (overwrite)", (TABLE,), save_as_table("overwrite"), [(4, "d")], ALL),
    Case("saveAsTable (ignore)", (TABLE,), save_as_table("ignore"), ABC, ALL),
    Case(
        "insertInto",
        (TABLE,),
        lambda spark, names: frame(spark, [(4, "d")]).write.insertInto(names["t"]),
        [*ABC, (4, "d")],
        ALL,
    ),
    Case("writeTo(…).create", (), write_to("create"), [(3, "C"), (4, "d")], ALL),
    Case("writeTo(…).replace", (TABLE,), write_to("replace"), [(3, "C"), (4, "d")], ALL),
    Case(
        "writeTo(…).createOrReplace",
        (TABLE,),
        write_to("createOrReplace"),
        [(3, "C"), (4, "d")],
        ALL,
    ),
    Case("writeTo(…).append", (TABLE,), write_to("append"), [*ABC, (3, "C"), (4, "d")], ALL),
    Case(
        "writeTo(…).overwrite", (TABLE,), write_to("overwrite"), [*ABC[:2], (3, "C"), (4, "d")], ALL
    ),
    Case(
        "writeTo(…).overwritePartitions",
        (PARTED, "INSERT INTO {t} VALUES (9, 'd')"),
        write_to("overwritePartitions"),
        [*ABC, (3, "C"), (4, "d")],
        ALL,
    ),
    Case(
        "mergeInto(…)",
        (TABLE, SOURCE),
        lambda spark, names: (
            spark.table(names["n"])
            .alias("s")
            .mergeInto(names["t"], spark_equal(names))
            .whenMatched()
            .updateAll()
            .whenNotMatched()
            .insertAll()
            .merge()
        ),
        [*ABC[:2], (3, "C"), (4, "d")],
        ALL,
    ),
    Case("spark.catalog.*", (TABLE,), listed, None),
    Case(
        "readStream.table, writeStream.toTable",
        (TABLE, "CREATE TABLE {t}_copy (id INT, g STRING)"),
        stream_to_table,
        ABC,
        "SELECT * FROM {t}_copy",
    ),
)


def spark_equal(names: Mapping[str, str]) -> Any:
    from pyspark.sql import functions as F

    return F.expr(f"{names['t']}.id = s.id")


PATHS = (
    Case("CREATE TABLE plake.`path` … AS", (), PATH, ABC, "SELECT * FROM {p}"),
    Case(
        "SELECT … FROM plake.`path` VERSION AS OF 1",
        (PATH, "DELETE FROM {p} WHERE id = 1"),
        "SELECT * FROM {p} VERSION AS OF 1",
        ABC,
    ),
    Case(
        "SELECT … FROM plake.`path` TIMESTAMP AS OF current_timestamp()",
        (PATH,),
        "SELECT * FROM {p} TIMESTAMP AS OF current_timestamp()",
        ABC,
    ),
    Case(
        "INSERT INTO plake.`path`",
        (PATH,),
        "INSERT INTO {p} VALUES (4, 'd')",
        [*ABC, (4, "d")],
        "SELECT * FROM {p}",
    ),
    Case(
        "UPDATE plake.`path`",
        (PATH,),
        "UPDATE {p} SET g = 'x' WHERE id < 3",
        [(1, "x"), (2, "x"), (3, "c")],
        "SELECT * FROM {p}",
    ),
    Case(
        "DELETE FROM plake.`path`",
        (PATH,),
        "DELETE FROM {p} WHERE id < 3",
        [(3, "c")],
        "SELECT * FROM {p}",
    ),
    Case(
        "MERGE INTO plake.`path`",
        (PATH, SOURCE),
        "MERGE INTO {p} " + UPSERT,
        [*ABC[:2], (3, "C"), (4, "d")],
        "SELECT * FROM {p}",
    ),
    Case(
        "ALTER TABLE plake.`path`",
        (PATH,),
        "ALTER TABLE {p} ADD COLUMNS (n INT)",
        [(3, 0)],
        "SELECT count(*), count(n) FROM {p}",
    ),
    Case(
        "DROP TABLE plake.`path`",
        (PATH,),
        "DROP TABLE {p}",
        None,
        refused={"": "is known by its path"},
    ),
    Case(
        "SELECT … FROM plake.`path`.`history`",
        (PATH,),
        "SELECT version, operation FROM {p}.history",
        [(1, "create")],
    ),
    Case(
        'format("plake").save (errorifexists)',
        (),
        save(),
        [(3, "C"), (4, "d")],
        "SELECT * FROM {p}",
    ),
    Case(
        'format("plake").save (errorifexists), which exists',
        (PATH,),
        save(),
        None,
        refused={"": "exists already"},
    ),
    Case('format("plake").save (ignore)', (PATH,), save("ignore"), ABC, "SELECT * FROM {p}"),
    Case(
        'format("plake").save (append)',
        (PATH,),
        save("append"),
        [*ABC, (3, "C"), (4, "d")],
        "SELECT * FROM {p}",
    ),
    Case(
        'format("plake").save (overwrite)',
        (PATH,),
        save("overwrite"),
        [(3, "C"), (4, "d")],
        "SELECT * FROM {p}",
    ),
    Case(
        'format("plake").partitionBy',
        (),
        lambda spark, names: (
            frame(spark, [(1, "a")]).write.format("plake").partitionBy("g").save(names["path"])
        ),
        [("g=a",)],
        "SHOW PARTITIONS {p}",
    ),
    Case(
        'format("plake").clusterBy',
        (),
        lambda spark, names: (
            frame(spark, [(1, "a")])
            .write.format("plake")
            .clusterBy("g")
            .mode("append")
            .save(names["path"])
        ),
        [(1, "a")],
        "SELECT * FROM {p}",
    ),
    Case(
        'format("plake").sortBy',
        (),
        lambda spark, names: (
            frame(spark, [(1, "a")])
            .write.format("plake")
            .sortBy("g")
            .mode("append")
            .save(names["path"])
        ),
        None,
        refused={"": "SORT_BY_WITHOUT_BUCKETING"},
    ),
    Case(
        "option replaceWhere",
        (PATH,),
        save("overwrite", replaceWhere="id > 2"),
        [*ABC[:2], (3, "C"), (4, "d")],
        "SELECT * FROM {p}",
    ),
    Case(
        "option overwriteSchema",
        ("CREATE TABLE {p} AS SELECT 1 AS x",),
        save("overwrite", overwriteSchema="true"),
        [(3, "C"), (4, "d")],
        "SELECT * FROM {p}",
    ),
    Case(
        "option mergeSchema",
        ("CREATE TABLE {p} AS SELECT 1 AS id",),
        save("append", mergeSchema="true"),
        [(1, None), (3, "C"), (4, "d")],
        "SELECT * FROM {p}",
    ),
    Case("option versionAsOf", (PATH, "DELETE FROM {p}"), load(versionAsOf="1"), ABC),
    Case("option metadataTable", (PATH,), load(metadataTable="partitions"), None),
)

SESSION_TABLE = "CREATE TABLE {s} USING plake LOCATION '{path}'"
SESSION_ALL = "SELECT * FROM {s}"
SESSION = (
    Case(
        "spark_catalog: CREATE TABLE … USING plake LOCATION",
        (PATH,),
        SESSION_TABLE,
        ABC,
        SESSION_ALL,
    ),
    Case(
        "spark_catalog: CREATE TABLE … USING plake",
        ("CREATE TABLE {s} (id INT, g STRING) USING plake",),
        "INSERT INTO {s} VALUES (1, 'a')",
        [(1, "a")],
        SESSION_ALL,
    ),
    Case(
        "spark_catalog: CREATE TABLE … USING plake AS",
        (),
        "CREATE TABLE {s} USING plake AS SELECT 1 AS id",
        [(1,)],
        SESSION_ALL,
    ),
    Case(
        "spark_catalog: INSERT",
        (PATH, SESSION_TABLE),
        "INSERT INTO {s} VALUES (4, 'd')",
        [*ABC, (4, "d")],
        SESSION_ALL,
    ),
    Case(
        "spark_catalog: UPDATE",
        (PATH, SESSION_TABLE),
        "UPDATE {s} SET g = 'x' WHERE id < 3",
        [(1, "x"), (2, "x"), (3, "c")],
        SESSION_ALL,
    ),
    Case(
        "spark_catalog: DELETE",
        (PATH, SESSION_TABLE),
        "DELETE FROM {s} WHERE id < 3",
        [(3, "c")],
        SESSION_ALL,
    ),
    Case(
        "spark_catalog: MERGE",
        (PATH, SESSION_TABLE, SOURCE),
        "MERGE INTO {s} " + UPSERT,
        [*ABC[:2], (3, "C"), (4, "d")],
        SESSION_ALL,
    ),
    Case(
        "spark_catalog: VERSION AS OF",
        (PATH, SESSION_TABLE, "DELETE FROM {s}"),
        "SELECT * FROM {s} VERSION AS OF 1",
        ABC,
    ),
    Case(
        "spark_catalog: ALTER TABLE … ADD COLUMNS",
        (PATH, SESSION_TABLE),
        "ALTER TABLE {s} ADD COLUMNS (n INT)",
        [(3, 0)],
        "SELECT count(*), count(n) FROM {s}",
    ),
    Case(
        "spark_catalog: saveAsTable",
        (),
        lambda spark, names: frame(spark, [(1, "a")]).write.format("plake").saveAsTable(names["s"]),
        [(1, "a")],
        SESSION_ALL,
    ),
    Case(
        "spark_catalog: DROP TABLE",
        (PATH, SESSION_TABLE, "DROP TABLE {s}"),
        SESSION_ALL,
        None,
        refused={"": "TABLE_OR_VIEW_NOT_FOUND"},
    ),
)

METADATA = (
    Case("t.history", (TABLE,), "SELECT version, operation FROM {t}.history", [(1, "create")]),
    Case("t.versions", (TABLE,), "SELECT count(*) FROM {t}.versions", [(1,)]),
    Case("t.files", (TABLE,), "SELECT sum(row_count) FROM {t}.files", [(3,)]),
    Case("t.row_groups", (TABLE,), "SELECT count(*) > 0 FROM {t}.row_groups", [(True,)]),
    Case("t.partitions", (PARTED,), "SELECT count(*) FROM {t}.partitions", [(3,)]),
    Case(
        "t.deletion_vectors",
        (TABLE, "DELETE FROM {t} WHERE id = 1"),
        "SELECT count(*) FROM {t}.deletion_vectors",
        None,
    ),
    Case(
        "t.refs",
        (TABLE, "CALL plake.system.create_tag('{t}', 'first')"),
        "SELECT count(*) FROM {t}.refs",
        None,
    ),
    Case(
        "hidden columns _file, _pos, _row_id",
        (TABLE,),
        "SELECT count(DISTINCT _row_id), count(_file), count(_pos) FROM {t}",
        [(3, 3, 3)],
    ),
)

CALLS = (
    Case("CALL vacuum", (TABLE,), call("vacuum", "table => '{t}', dry_run => true"), None),
    Case(
        "CALL expire_versions",
        (TABLE, "DELETE FROM {t}"),
        call("expire_versions", "table => '{t}', keep_last => 1", "oldest_version,newest_version"),
        [(2, 2)],
    ),
    Case("CALL restore", (TABLE, "DELETE FROM {t}", call("restore", "'{t}', 1")), ALL, ABC),
    Case("CALL verify", (TABLE,), call("verify", "'{t}'", "ok,version"), [(True, 1)]),
    Case(
        "CALL compact",
        (TABLE, "INSERT INTO {t} VALUES (4, 'd')", call("compact", "'{t}'")),
        ALL,
        [*ABC, (4, "d")],
    ),
    Case(
        "CALL convert",
        (lambda spark, names: frame(spark, ABC).coalesce(1).write.parquet(names["path"]),),
        call("convert", "path => '{path}'", "version,row_count"),
        [(1, 3)],
    ),
    Case(
        "CALL add_files",
        (
            TABLE,
            lambda spark, names: frame(spark, [(4, "d")]).coalesce(1).write.parquet(names["path"]),
        ),
        call("add_files", "table => '{t}', path => '{path}', copy => true", "version,row_count"),
        [(2, 1)],
    ),
    Case(
        "CALL explain",
        (PARTED,),
        call("explain", "table => '{t}', where => \"g = 'a'\"", "files_total,files_read"),
        [(3, 1)],
    ),
    Case(
        "CALL set_index_columns",
        (TABLE,),
        call("set_index_columns", "'{t}', array('id')", "index_columns"),
        [(["id"],)],
    ),
    Case("CALL create_tag", (TABLE,), call("create_tag", "'{t}', 'first'"), [("first", 1)]),
    Case(
        "CALL drop_tag",
        (TABLE, call("create_tag", "'{t}', 'first'")),
        call("drop_tag", "'{t}', 'first'"),
        [("first", 1)],
    ),
    Case("CALL create_branch", (TABLE,), call("create_branch", "'{t}', 'audit'"), [("audit", 1)]),
    Case(
        "CALL drop_branch",
        (TABLE, call("create_branch", "'{t}', 'audit'")),
        call("drop_branch", "'{t}', 'audit'"),
        None,
    ),
    Case(
        "CALL fast_forward, t.branch_audit",
        (TABLE, call("create_branch", "'{t}', 'audit'")),
        publish,
        [*ABC, (4, "d")],
        ALL,
    ),
    Case(
        "option branch of load()",
        (
            PATH,
            "CALL plake.system.create_branch('{path}', 'audit')",
            "INSERT INTO {p}.branch_audit VALUES (4, 'd')",
        ),
        load(branch="audit"),
        [*ABC, (4, "d")],
    ),
    Case(
        "option branch of a table",
        (
            TABLE,
            call("create_branch", "'{t}', 'audit'"),
            "INSERT INTO {t}.branch_audit VALUES (4, 'd')",
        ),
        with_option("branch", "audit"),
        None,
        refused={"": "A branch of a table is a table"},
    ),
    Case("SHOW PROCEDURES", (), "SHOW PROCEDURES IN plake.system", None),
    Case("DESCRIBE PROCEDURE", (), "DESCRIBE PROCEDURE plake.system.vacuum", None),
)

ERRORS = (
    Case(
        "SELECT from a table that is not there",
        (),
        "SELECT * FROM {t}",
        None,
        refused={"": "TABLE_OR_VIEW_NOT_FOUND"},
    ),
    Case(
        "VERSION AS OF a version that is not there",
        (TABLE,),
        "SELECT * FROM {t} VERSION AS OF 9",
        None,
        refused={"": "[PLAKE_VERSION_NOT_FOUND]"},
    ),
    Case(
        "CALL of a procedure that is not there",
        (),
        "CALL plake.system.nothing()",
        None,
        refused={"": "ROUTINE_NOT_FOUND"},
    ),
    Case(
        "CREATE TABLE in a namespace that is not there",
        (),
        "CREATE TABLE plake.nowhere.t (a INT)",
        None,
        refused={"": "[SCHEMA_NOT_FOUND] [PLAKE_NAMESPACE_NOT_FOUND]"},
    ),
    Case(
        "load() of a path that is not there",
        (),
        load(),
        None,
        refused={"": "[PLAKE_DATASET_NOT_FOUND]"},
    ),
)

FOUR: Rows = [*ABC, (4, "d")]
MORE = "INSERT INTO {t} VALUES (4, 'd')"


def shown(statement: str, *columns: str) -> Step:
    """Columns of the first row that a statement gives."""

    def step(spark: Any, names: Mapping[str, str]) -> Any:
        return spark.sql(statement.format(**names)).select(*columns).limit(1)

    return step


def folder_of(kind: str) -> Step:
    """A folder of Parquet files, or a table of Delta."""

    def step(spark: Any, names: Mapping[str, str]) -> None:
        if kind == "parquet":
            frame(spark, ABC).coalesce(1).write.parquet(names["path"])
            return
        import pyarrow as pa
        from deltalake import write_deltalake

        ids, groups = zip(*ABC)
        write_deltalake(names["path"], pa.table({"id": pa.array(ids, pa.int32()), "g": groups}))

    return step


CHECKED = (TABLE, "ALTER TABLE {t} ADD CONSTRAINT positive CHECK (id > 0)")
OF_DELTA = (
    Case("VACUUM … RETAIN", (TABLE,), "VACUUM {t} RETAIN 168 HOURS", ABC, ALL),
    Case(
        "VACUUM … RETAIN, too short",
        (TABLE,),
        "VACUUM {t} RETAIN 0.5 HOURS",
        None,
        refused={"": "allow_short_retention"},
    ),
    Case("VACUUM … DRY RUN", (TABLE,), "VACUUM {t} DRY RUN", ABC, ALL),
    Case("OPTIMIZE", (TABLE, MORE), "OPTIMIZE {t}", FOUR, ALL),
    Case("OPTIMIZE … WHERE", (PARTED, MORE), "OPTIMIZE {t} WHERE g = 'd'", FOUR, ALL),
    Case("OPTIMIZE … ZORDER BY", (TABLE, MORE), "OPTIMIZE {t} ZORDER BY (id, g)", FOUR, ALL),
    Case(
        "DESCRIBE HISTORY",
        (TABLE, MORE),
        shown("DESCRIBE HISTORY {t} LIMIT 1", "version", "operation"),
        [(2, "WRITE")],
    ),
    Case(
        "OPTIMIZE … WHERE … ZORDER BY",
        (PARTED, MORE),
        "OPTIMIZE {t} WHERE g = 'd' ZORDER BY (id)",
        FOUR,
        ALL,
    ),
    Case("OPTIMIZE, a path in quotes", (PATH,), "OPTIMIZE '{path}'", ABC, "SELECT * FROM {p}"),
    Case(
        "OPTIMIZE, in spark_catalog",
        (TABLE.replace("{t}", "{s} USING plake"),),
        "OPTIMIZE {s}",
        ABC,
        "SELECT * FROM {s}",
    ),
    Case("DESCRIBE DETAIL", (TABLE, MORE), shown("DESCRIBE DETAIL {t}", "numRows"), [(4,)]),
    Case("RESTORE TABLE", (TABLE, MORE), "RESTORE TABLE {t} TO VERSION AS OF 1", ABC, ALL),
    Case(
        "REORG TABLE",
        (TABLE, "DELETE FROM {t} WHERE id = 1"),
        "REORG TABLE {t} APPLY (PURGE)",
        ABC[1:],
        ALL,
    ),
    *(
        Case(
            f"CONVERT TO PLAKE {kind}.",
            (folder_of(kind),),
            f"CONVERT TO PLAKE {kind}.`{{path}}`",
            ABC,
            "SELECT id, g FROM {p}",
        )
        for kind in ("parquet", "delta")
    ),
    *(
        Case(
            f"{kind} CLONE",
            (TABLE, MORE),
            f"CREATE TABLE {{t}}_clone {kind} CLONE {{t}} VERSION AS OF 1",
            ABC,
            "SELECT * FROM {t}_clone",
        )
        for kind in ("SHALLOW", "DEEP")
    ),
    *(
        Case(
            f"ALTER TABLE … CREATE {kind}",
            (TABLE, f"ALTER TABLE {{t}} CREATE {kind} kept", MORE),
            f"SELECT id, g FROM {read}",
            ABC,
        )
        for kind, read in (("TAG", "{t} VERSION AS OF 'kept'"), ("BRANCH", "{t}.branch_kept"))
    ),
    *(
        Case(
            f"ALTER TABLE … DROP {kind}",
            (TABLE, f"ALTER TABLE {{t}} CREATE {kind} kept"),
            f"ALTER TABLE {{t}} DROP {kind} kept",
            [],
            "SELECT name FROM {t}.refs WHERE name = 'kept'",
        )
        for kind in ("TAG", "BRANCH")
    ),
    Case(
        "ALTER TABLE … CLUSTER BY",
        (TABLE, "ALTER TABLE {t} CLUSTER BY (g)"),
        shown("DESCRIBE DETAIL {t}", "clusteringColumns"),
        [(["g"],)],
    ),
    Case(
        "ALTER TABLE … ADD CONSTRAINT … CHECK",
        CHECKED,
        "INSERT INTO {t} VALUES (0, 'z')",
        None,
        refused={
            "": "An exception was thrown from the Python worker"
        },  # its last line has the name
    ),
    Case(
        "ALTER TABLE … DROP CONSTRAINT",
        (*CHECKED, "ALTER TABLE {t} DROP CONSTRAINT positive"),
        "INSERT INTO {t} VALUES (0, 'z')",
        [*ABC, (0, "z")],
        ALL,
    ),
)

GROUPS: Mapping[str, tuple[Case, ...]] = {
    "Statements": STATEMENTS,
    "DataFrames": FRAMES,
    'Paths and `format("plake")`': PATHS,
    "Spark's session catalog": SESSION,
    "Metadata tables": METADATA,
    "Procedures, tags and branches": CALLS,
    "Statements of Delta and Iceberg": OF_DELTA,
    "Errors": ERRORS,
}

"""What tests of several floors share: one Spark session, one PostgreSQL server."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
import uuid6

from tests.postgres_server import PostgresServer
from tests.strategies import register_profiles

pytest.register_assert_rewrite("tests.catalog_contract")
register_profiles()

# JVMs of tests live too briefly for the second compiler to pay: without it, and with the
# simplest garbage collector, the same queries take half the processor time. `spark-submit`
# reads the variable, so it holds for Spark sessions in child processes too.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


# Left out by `make test-quick`: other processes, servers and disks, or many cases.
SLOW = {
    f"test_{name}.py"
    for name in (
        *("add_public_files", "bad_files", "bloom_read", "catalog_duckdb"),
        *("catalog_postgres", "column_defaults", "commit_protocol", "compaction", "concurrency"),
        *("conditions", "crash_points", "disk_trouble", "engine_files", "engines"),
        *("index_columns", "known_files", "layout", "lost_acknowledgement"),
        *("maintenance", "model", "multi_dataset", "object_stores", "overtaken"),
        *("planner_build", "planning_cost", "promotion", "s3", "schema_changes"),
        *("read_changes", "spellings", "vacuum_races", "branches", "dataset_names"),
        *("row_change_conflicts", "row_change_crashes", "row_changes_model", "write_memory"),
        *("foreign_partition_columns", "inputs", "plain_parquet", "add_files", "aggregates"),
        *("damaged_files", "deleted_rows", "duckdb_writer", "encoding", "examples", "page_reads"),
        *("reader_answer", "stream_offsets", "tasks", "cli", "catalog_copy", "cli_sql", "cli_page"),
        *("after_commit", "catalog_sqlite", "change_feed", "checksums", "cluster"),
        *("cluster_beside_others", "consumers", "damage", "dataset", "dropped_tables"),
        *("engines_after_changes", "erasure", "erasure_traces", "explain_details"),
        *("expressions", "feed_beside_others", "feed_stream", "folder_owners"),
        *("forgotten_commits", "health", "iceberg", "maintain", "many_columns"),
        *("names_and_no_columns", "permitted", "postgres_tls", "processes_and_threads"),
        *("read_memory", "roles", "row_statements", "secrets_of_queries", "serializable"),
        *("server", "server_histories", "server_readers", "server_safety"),
        *("shared_connections", "small_doors", "sql_conditions", "storage", "suggest_layout"),
        *("supply", "tags_and_expiry", "wrong_values_in_catalogs"),
    )
}


# Matrices: `make test` runs some cases of a test, and `make integration` the others. The names of
# the cases choose, so that it is always the same ones.
#
# A case with Spark takes a second or more of both cores: one of each test, but of these more.
MORE_CASES_WITH_SPARK = {
    "test_query_equals_parquet": 12,
    "test_the_examples_of_a_docstring_run": 8,
    "test_the_examples_of_a_page_run": 3,
    "test_a_query_gives_what_plain_parquet_gives": 2,
    "test_reading": 4,
    "test_a_statement_does_what_duckdb_does": 4,
    "test_a_change_does_what_duckdb_does": 2,
    "test_where_is_applied_as_spark_would": 3,
    "test_rows_that_spark_keeps_outlive_their_batch": 2,
    "test_a_query_gives_what_duckdb_gives": 4,
    "test_the_catalog_answers": 4,
    "test_a_join_equals_parquet": 2,
    "test_each_session_does_the_main_job_or_refuses_it": 3,
    "test_every_type_comes_back_as_parquet_gives_it": 2,
    "test_every_type_is_read_as_parquet_gives_it": 2,
    "test_partition_values_are_those_of_the_catalog": 2,
}
# Without Spark: one case in so many of each test of these modules that has more than a few.
SAMPLED = {
    "test_cli.py": 2,
    "test_crash_points.py": 8,
    "test_row_change_crashes.py": 8,
    **dict.fromkeys(
        (
            *("test_lost_acknowledgement.py", "test_dataset_names.py"),
            "test_names_and_no_columns.py",
        ),
        4,
    ),
    **dict.fromkeys(
        (
            *("test_bloom_read.py", "test_index_columns.py", "test_plain_parquet.py"),
            *("test_planner_build.py", "test_spellings.py", "test_wrong_values_in_catalogs.py"),
        ),
        3,
    ),
    **dict.fromkeys(
        (
            *("test_branches.py", "test_column_defaults.py", "test_engine_files.py"),
            *("test_engines.py", "test_foreign_partition_columns.py", "test_known_files.py"),
            *("test_add_public_files.py", "test_maintenance.py", "test_multi_dataset.py"),
            *("test_object_stores.py", "test_read_changes.py", "test_row_change_conflicts.py"),
            *("test_schema_changes.py", "test_change_feed.py", "test_engines_after_changes.py"),
            *("test_forgotten_commits.py", "test_inputs.py", "test_roles.py"),
        ),
        2,
    ),
}
FEW_CASES = 3


def _kept_cases(test: pytest.Function, count: int) -> int:
    """How many of the cases of a test `make test` runs."""
    if test.get_closest_marker("spark") is not None:
        return MORE_CASES_WITH_SPARK.get(test.originalname, 1)
    if count > FEW_CASES and test.path.name in SAMPLED:
        return -(-count // SAMPLED[test.path.name])
    return count


def _sample(items: list[pytest.Item]) -> None:
    """Mark the cases that `make test` leaves out as long."""
    cases: dict[str, list[pytest.Function]] = {}
    for item in items:
        has_cases = isinstance(item, pytest.Function) and hasattr(item, "callspec")
        if has_cases and item.get_closest_marker("long") is None:
            assert isinstance(item, pytest.Function)
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for some in cases.values():
        some.sort(key=lambda item: crc32(item.callspec.id.encode()))
        for item in some[_kept_cases(some[0], len(some)) :]:
            item.add_marker(pytest.mark.long)


@pytest.hookimpl(tryfirst=True)  # before `-m` selects by markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that use the Spark session, slow ones, and those that `make test` omits."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
        if item.path.name in SLOW:
            item.add_marker(pytest.mark.slow)
    _sample(items)


@pytest.fixture(autouse=True)
def identifiers_follow_the_clock() -> None:
    """Let UUIDv7s begin at the present again: after a test with a future clock they would not."""
    uuid6._last_v7_timestamp = None


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A real PostgreSQL server, one for the whole test session; it starts when first used."""
    server = PostgresServer()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def spark(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    """One local Spark session for all tests, without the planner extension."""
    if "not spark" in request.config.getoption("markexpr"):
        pytest.fail("a test asks for Spark at run time and lacks the marker `spark`")
    from pyspark.sql import SparkSession

    # The planning workers must be this Python, where the package is.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    folders = (str(Path(__file__).with_name("warm_workers")), os.environ.get("PYTHONPATH"))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, folders))
    warehouse = tmp_path_factory.mktemp("warehouse")
    session = (
        SparkSession.builder.master("local[2]")
        .appName("plake tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(warehouse))
        .config("spark.driver.memory", "2g")
        .getOrCreate()
    )
    yield session
    session.stop()

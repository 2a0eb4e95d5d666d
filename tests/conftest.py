"""What tests of several floors share: one Spark session, one PostgreSQL server."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import uuid6

from tests.postgres_server import PostgresServer
from tests.strategies import register_profiles

pytest.register_assert_rewrite("tests.catalog_contract")
register_profiles()


@pytest.fixture(autouse=True)
def identifiers_follow_the_clock() -> None:
    """UUIDv7s never go back: after a test with a clock in the future they would stay there."""
    uuid6._last_v7_timestamp = None


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A real PostgreSQL server, one for the whole test session; it starts when first used."""
    server = PostgresServer()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One local Spark session for all tests, without the planner extension."""
    from pyspark.sql import SparkSession

    # The planning workers must be this Python, where the package is.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
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

"""The target of all suites of dbt, and which of their tests do not pass."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any

import pytest
from not_passed import NOT_PASSED

pytest_plugins = ["dbt.tests.fixtures.project"]
SETTINGS = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.driver.memory": "2g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for name, reason in NOT_PASSED.items():
            if name in item.nodeid:
                item.add_marker(pytest.mark.xfail(reason=reason, strict=True))


@pytest.fixture(scope="session")
def lake() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="plake-dbt-lake-") as folder:
        yield folder


@pytest.fixture(scope="class")
def dbt_profile_target(lake: str) -> dict[str, Any]:
    return {
        "type": "plake",
        "catalog": f"sqlite:///{lake}/lake.db",
        "warehouse": f"{lake}/warehouse",
        "server_side_parameters": SETTINGS,
    }


@pytest.fixture(scope="class")
def dbt_profile_data(
    unique_schema: str, dbt_profile_target: dict[str, Any], profiles_config_update: Any
) -> dict[str, Any]:
    """As dbt's fixture has it, with one thread: many tests count on an order."""
    target = {**dbt_profile_target, "schema": unique_schema, "threads": 1}
    return {
        "test": {"outputs": {"default": target}, "target": "default"},
        **(profiles_config_update or {}),
    }

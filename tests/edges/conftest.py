from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.postgres_server import PostgresServer

pytest.register_assert_rewrite("tests.catalog_contract")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A real PostgreSQL server, one for the whole test session."""
    server = PostgresServer()
    yield server
    server.stop()

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import lakehouse_source as lake
from tests.postgres_server import PostgresServer


@pytest.fixture(params=["sqlite", "postgres"])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[lake.Catalog]:
    """An empty catalog of each kind."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/catalog.db"
    else:
        server: PostgresServer = request.getfixturevalue("postgres_server")
        url = server.fresh_database()
    with lake.open_catalog(url) as opened:
        yield opened

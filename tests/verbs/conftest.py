from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import lakehouse_source as lake
from tests.postgres_server import PostgresServer


@contextmanager
def empty_catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[lake.Catalog]:
    """A new catalog of the kind that the fixture's parameter names."""
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        url = server.fresh_database()
    else:
        url = f"{request.param}:///{tmp_path}/catalog.db"
    with lake.open_catalog(url) as opened:
        yield opened


@pytest.fixture(params=["sqlite", "postgres"])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[lake.Catalog]:
    """An empty catalog of each kind that several processes can use."""
    with empty_catalog(request, tmp_path) as opened:
        yield opened

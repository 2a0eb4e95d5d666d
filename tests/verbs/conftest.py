from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import lakehouse_source as lake
from tests.made_catalogs import copy_of_new_catalog
from tests.postgres_server import PostgresServer


@contextmanager
def empty_catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[lake.Catalog]:
    """A new catalog of the kind that the fixture's parameter names."""
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        url = server.new_catalog()
        request.addfinalizer(lambda: server.drop(url))  # a test may go on with other processes
    else:
        url = copy_of_new_catalog(request.param, tmp_path / "catalog.db")
    with lake.open_catalog(url) as opened:
        yield opened


def catalog_of(*kinds: str) -> Any:
    """A fixture: an empty catalog of each of these kinds."""

    @pytest.fixture(params=kinds)
    def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[lake.Catalog]:
        with empty_catalog(request, tmp_path) as opened:
            yield opened

    return catalog


EVERY_KIND = ("sqlite", "postgres", "duckdb")
catalog = catalog_of("sqlite", "postgres")  # that several processes can use


# --- one catalog for all crash tests of a module --------------------------------------

CRASH_CATALOGS = ("sqlite", "postgres")


@pytest.fixture(scope="module", params=CRASH_CATALOGS)
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite://{tmp_path_factory.mktemp('catalogs')}/catalog.db"
    else:
        server: PostgresServer = request.getfixturevalue("postgres_server")
        yield server.fresh_database()


@pytest.fixture(scope="module")
def shared(url: str) -> Iterator[lake.Catalog]:
    with lake.open_catalog(url) as catalog:
        yield catalog

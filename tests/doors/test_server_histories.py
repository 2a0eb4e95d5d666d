"""Random histories, those of the change feed, through the REST catalog and PyIceberg."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import BadRequestError

import lakehouse_source as lake
from tests.doors.rest_server import TOKEN, client_catalog, client_of, served
from tests.feed_model import History
from tests.verbs.test_iceberg import rows_of

pytestmark = pytest.mark.slow

TABLE = "/v1/namespaces/default/tables/t"


def _history(tmp_path: Path, seed: int, catalog: lake.Catalog) -> History:
    history = History(seed, str(tmp_path / "data"), catalog)
    for _ in range(history.chance.randrange(3, 10)):
        history.step()
    catalog.register("t", history.uri)
    return history


def _refusal(catalog: lake.Catalog) -> str:
    """What the server says of a table that Iceberg cannot express; "": it says the table."""
    with client_of(catalog, newest_versions=100) as client:
        answer = client.get(TABLE)
    assert answer.status_code in (200, 400)
    return "" if answer.ok else str(answer.json()["error"]["message"])


def _check(history: History, versions: list[int], table: Any) -> None:
    """Each version has the rows that plake reads, and those that a condition chooses of them."""
    for version in versions:
        expected = history.dataset.scan(version=version).to_table()
        found = table.scan(snapshot_id=version)
        assert rows_of(found.to_arrow()) == rows_of(expected), version
        assert found.count() == expected.num_rows
        # A column of today may have had another name in the version.
        where = f"{history.named[version]['p']} = 1"
        if history.named[version] == history.named[history.dataset.version]:
            some = history.dataset.scan(where, version=version).to_table()
            chosen = table.scan(where, snapshot_id=version)
            assert rows_of(chosen.to_arrow()) == rows_of(some), (version, where)
            assert chosen.count() == some.num_rows, (version, where)


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(n, marks=pytest.mark.long) for n in range(4, 150))]
)
def test_every_version_is_what_plake_reads(tmp_path: Path, seed: int) -> None:
    url = f"sqlite:///{tmp_path}/lake.db"
    with lake.open_catalog(url) as catalog:
        history = _history(tmp_path, seed, catalog)
        said = _refusal(catalog)
        if said:  # a default that older files lack
            assert "'new'" in said or "default" in said, said
            # Written anew, as the error says, the newest version can be shown.
            history.dataset.compact()
            history.note()
            said = _refusal(catalog)
            assert not said or "default" in said
        if said:
            return
        with served(catalog, token=TOKEN, newest_versions=100) as uri:
            tables = [client_catalog(uri, mode).load_table("default.t") for mode in
                      ("client", "server")]  # fmt: skip
            versions = sorted(one.snapshot_id for one in tables[0].snapshots())
            assert versions[-1] == history.dataset.version
            _check(history, versions, tables[0])
            if history.partitioned:
                # docs/engines.md lists it: no plan of the server has NULL among its partitions.
                with suppress(BadRequestError):
                    _check(history, versions, tables[1])
            else:
                _check(history, versions, tables[1])

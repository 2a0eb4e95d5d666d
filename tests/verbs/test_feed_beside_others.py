"""The change feed while other processes write, compact, expire, vacuum and change the schema."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakehouse_source as lake
from tests import processes
from tests.postgres_server import PostgresServer

pytestmark = pytest.mark.slow

COMMITS = 24
NOW: dict[str, Any] = {"retention_seconds": 0, "allow_short_retention": True}


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        return server.new_catalog()
    return f"sqlite:///{tmp_path}/catalog.db"


# --- what the other processes do ------------------------------------------------------


def again(work: Any) -> None:
    """Repeat what lost against another commit, or whose files were vacuumed without retention."""
    for _ in range(50):
        try:
            work()
            return
        except lake.CommitConflictError:
            time.sleep(0.01)
        except lake.StorageError as error:
            if "vacuumed while an old version was read" not in error.reason:
                raise


def change(uri: str, url: str) -> None:
    chance = random.Random(1)
    for number in range(COMMITS):
        low = chance.randrange(60)
        some = f"id BETWEEN {low} AND {low + 6}"
        with lake.open_catalog(url) as catalog:
            opened = lake.open_dataset(uri, catalog=catalog)
            kind = chance.choice(["append", "update", "delete", "upsert"])
            rows = pa.table({"id": [low, 100 + number], "v": [f"n{number}"] * 2})
            if kind == "append":
                again(lambda r=rows, c=catalog: lake.write_dataset(r, uri, catalog=c))
            elif kind == "update":
                again(lambda o=opened, n=number, s=some: o.refresh().update({"v": f"'u{n}'"}, s))
            elif kind == "delete":
                again(lambda o=opened, s=some: o.refresh().delete(s))
            else:
                again(lambda o=opened, r=rows: merge(o.refresh(), r))


def merge(opened: lake.Dataset, rows: pa.Table) -> None:
    """An upsert of two of the columns."""
    (
        opened.merge(rows, "target.id = source.id")
        .when_matched_update({"v": "source.v"})
        .when_not_matched_insert({"id": "source.id", "v": "source.v"})
        .execute()
    )


def keep_house(uri: str, url: str) -> None:
    while not Path(f"{uri}-ends").exists():
        with lake.open_catalog(url) as catalog:
            opened = lake.open_dataset(uri, catalog=catalog)
            again(lambda o=opened: o.compact(rewrite_deleted=True))
            opened.expire_versions(keep_last=1)
            opened.vacuum(**NOW)


def change_schema(uri: str, url: str) -> None:
    for number in range(6):
        with lake.open_catalog(url) as catalog:
            opened = lake.open_dataset(uri, catalog=catalog)
            name = f"extra{number}"
            again(lambda o=opened, n=name: o.refresh().add_column(n, pa.int64(), default=7))
            again(lambda o=opened, n=name: o.refresh().rename_column(n, f"{n}b"))
        time.sleep(0.2)


@pytest.mark.slow
def test_a_consumer_gets_each_change_while_others_work(url: str, tmp_path: Path) -> None:
    uri = str(tmp_path / "data")
    first = pa.table({"id": range(60), "v": ["a"] * 60})
    with lake.open_catalog(url) as catalog:
        lake.write_dataset(first, uri, catalog=catalog, rewrite_threshold=0.5)
        dataset = lake.open_dataset(uri, catalog=catalog)
        dataset.add_consumer("reader", version=0)
        works = (change, keep_house, change_schema)
        others = {work: processes.start(work, uri, url) for work in works}
        rows: dict[int, tuple[int, str]] = {}
        reads = 0
        try:
            while True:
                ended = not any(others[work].is_alive() for work in (change, change_schema))
                through = dataset.refresh().version
                changes = dataset.changes(
                    end=through, consumer="reader", columns=["id", "v", "_row_id"]
                )
                reads += replay(rows, changes.to_table())
                dataset.advance_consumer("reader", through)
                if ended:
                    break
        finally:
            Path(f"{uri}-ends").touch()
            for other in others.values():
                other.join(120)
        assert [other.exitcode for other in others.values()] == [0, 0, 0]
        found = dataset.scan(version=through, columns=["id", "v", "_row_id"]).to_table()
        left = {row["_row_id"]: (row["id"], row["v"]) for row in found.to_pylist()}
        assert rows == left
        assert reads > 60
        assert dataset.refresh().history().oldest_version > 1, "nothing was expired meanwhile"


def replay(rows: dict[int, tuple[int, str]], table: pa.Table) -> int:
    """Carry changes out; each must fit what is there. Answers how many there are."""
    for row in table.to_pylist():
        id, values = row["_row_id"], (row["id"], row["v"])
        if row["_change_type"] in ("delete", "update_preimage"):
            assert rows.pop(id) == values
        else:
            assert id not in rows
            rows[id] = values
    return table.num_rows

"""Datasets as older releases wrote them, byte for byte: `tests/old_releases`."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import lakehouse_source as lake

FOLDER = Path(__file__).parents[1] / "old_releases"


@pytest.fixture
def dataset(tmp_path: Path) -> lake.Dataset:
    """Written by the last commit of catalog format 5.

    Version 1: three rows in the partitions p = 1 and 2; 2: one more; 3: `k` is renamed `kk`; 4: the
    column `n` with the default 7; 5: overwritten with a row in p = 3; 6: version 2 is restored.
    """
    target = tmp_path / "things"
    shutil.copytree(FOLDER / "format_5", target)
    script = (target / "catalog.sql").read_text()
    (target / "catalog.sql").unlink()
    (target / "_plake").mkdir()
    connection = sqlite3.connect(target / "_plake" / "catalog.db")
    connection.executescript(script)
    connection.close()
    return lake.open_dataset(target)


def rows(dataset: lake.Dataset, version: int, *columns: str) -> list[tuple[Any, ...]]:
    scan = dataset.scan(columns=list(columns), version=version)
    return sorted(tuple(row.values()) for row in scan.to_table().to_pylist())


def test_every_version_reads_as_before(dataset: lake.Dataset) -> None:
    assert rows(dataset, 1, "id", "p") == [(1, 1), (2, 1), (3, 2)]
    assert rows(dataset, 2, "id", "p") == [(1, 1), (2, 1), (3, 2), (4, 2)]
    assert rows(dataset, 4, "id", "n") == [(1, 7), (2, 7), (3, 7), (4, 7)]
    assert rows(dataset, 5, "id", "kk", "n") == [(5, "e", 8)]
    assert rows(dataset, 6, "id") == [(1,), (2,), (3,), (4,)]
    assert dataset.scan("p = 2").count_rows() == 2
    assert all(dataset.verify(version, checksums=True).ok for version in range(1, 7))


def test_its_rows_have_identities(dataset: lake.Dataset) -> None:
    """In the order in which their files were recorded; a restored file keeps them."""
    assert rows(dataset, 2, "id", "_row_id") == [(1, 0), (2, 1), (3, 2), (4, 3)]
    assert rows(dataset, 6, "id", "_row_id") == [(1, 0), (2, 1), (3, 2), (4, 3)]
    assert rows(dataset, 5, "id", "_row_id") == [(5, 4)]


def test_its_rows_can_be_changed(dataset: lake.Dataset) -> None:
    assert dataset.delete("id = 3").rows_deleted == 1
    assert dataset.update({"k": "'x'"}, "id = 1").rows_updated == 1
    assert dataset.upsert({"id": [4, 6], "k": ["y", "z"], "p": [2, 9]}, on="id").version == 9
    found = rows(dataset, 9, "id", "k", "p", "_row_id")
    assert found[:-1] == [(1, "x", 1, 0), (2, "b", 1, 1), (4, "y", 2, 3)]
    assert found[-1][:3] == (6, "z", 9)
    assert found[-1][3] > 4
    assert rows(dataset, 2, "id") == [(1,), (2,), (3,), (4,)]
    assert dataset.verify(checksums=True).ok


def test_nobody_knows_who_committed_before(dataset: lake.Dataset) -> None:
    dataset.set_table_properties({"owner": "ann"})
    told = [(one.committed_by is not None, bool(one.committer)) for one in dataset.history()]
    assert told == [(True, True)] + [(False, False)] * 6
    assert dataset.inspect.history()["committer"].to_pylist()[-1] == []

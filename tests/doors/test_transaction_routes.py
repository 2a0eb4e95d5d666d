"""Which dataset a path means in a transaction of a Spark session, without a JVM."""

from __future__ import annotations

from pathlib import Path

import pytest
import uuid6

import lakehouse_source as lake
from lakehouse_source.spark.session.secrets import session_folder
from lakehouse_source.spark.session.transaction import begin, end, routed


@pytest.fixture
def id() -> str:
    made = str(uuid6.uuid7())
    begin(made)
    return made


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/catalog.db"


def made(path: Path, url: str | None) -> str:
    for number in range(2):
        lake.write_dataset({"id": [number]}, path, catalog=url)
    return str(path)


def rows(path: str, url: str | None) -> list[int]:
    return sorted(lake.read_dataset(path, catalog=url)["id"].to_pylist())


def test_a_table_is_its_branch_from_the_first_statement_on(
    tmp_path: Path, url: str, id: str
) -> None:
    path = made(tmp_path / "t", url)
    branch = routed(id, path, url, {})
    assert branch == f"{path}#branch=transaction-{id}"
    assert routed(id, branch, url, {}) == branch
    lake.write_dataset({"id": [8]}, path, catalog=url)  # another writer
    lake.write_dataset({"id": [9]}, branch, catalog=url)
    assert routed(id, path, url, {}) == branch
    assert rows(branch, url) == [0, 1, 9]
    # Versions are those that the transaction sees; a tag and a time are asked of the table.
    for version, found in (("1", path), ("2", branch), ("3", branch), ("a tag", path)):
        assert routed(id, path, url, {}, version=version) == found
    assert routed(id, path, url, {}, time="2026-01-01") == path
    with pytest.raises(lake.CommitConflictError):
        end(id, True)
    assert rows(path, url) == [0, 1, 8]
    assert lake.open_dataset(path, catalog=url).branches() == {}


def test_a_table_under_two_spellings_is_one(
    tmp_path: Path, url: str, id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = made(tmp_path / "t", url)
    monkeypatch.setenv("PLAKE_HERE", url)
    (tmp_path / "link").symlink_to(tmp_path / "t")
    for where, catalog in ((path, url), (path, "env:PLAKE_HERE"), (f"file://{path}/", url)):
        branch = routed(id, where, catalog, {})
        lake.write_dataset({"id": [9]}, branch, catalog=catalog)
    end(id, True)
    assert rows(path, url) == [0, 1, 9, 9, 9]


def test_what_cannot_be_part_is_refused(tmp_path: Path, url: str, id: str) -> None:
    path, own = made(tmp_path / "t", url), made(tmp_path / "own", None)
    branch = routed(id, path, url, {})
    lake.write_dataset({"id": [9]}, branch, catalog=url)
    with pytest.raises(lake.InvalidOptionError, match=r"in another catalog than .*/t, and"):
        routed(id, own, None, {})
    with pytest.raises(lake.DatasetNotFoundError, match="on tables that exist"):
        routed(id, f"{tmp_path}/none", url, {})
    with pytest.raises(lake.InvalidOptionError, match="is a branch"):
        routed(id, f"{path}#branch=audit", url, {})
    for wrong in ("../x", "", str(uuid6.uuid8()), id.upper()):
        with pytest.raises(lake.InvalidOptionError, match="is not the id of a transaction"):
            routed(wrong, path, url, {})
    end(id, False)
    assert (rows(path, url), rows(own, None)) == ([0, 1], [0, 1])
    with pytest.raises(lake.DatasetNotFoundError, match=r"transaction .* has ended"):
        rows(branch, url)


def test_what_was_only_read_may_have_changed_unless_serializable(
    tmp_path: Path, url: str, id: str
) -> None:
    path, read = made(tmp_path / "t", url), made(tmp_path / "read", url)
    for serializable in (True, False):
        lake.write_dataset({"id": [9]}, routed(id, path, url, {}), catalog=url)
        routed(id, read, url, {})
        lake.write_dataset({"id": [8]}, read, catalog=url)
        begin(id)
        if serializable:
            with pytest.raises(lake.CommitConflictError, match="read"):
                end(id, True, serializable)
        else:
            assert end(id, True, serializable) == [read, path]
        assert rows(path, url) == ([0, 1] if serializable else [0, 1, 9])


def test_a_commit_whose_notes_are_gone_fails(tmp_path: Path, url: str, id: str) -> None:
    path = made(tmp_path / "t", url)
    lake.write_dataset({"id": [9]}, routed(id, path, url, {}), catalog=url)
    for note in session_folder().glob(f"transaction-{id}*"):
        note.unlink()
    with pytest.raises(lake.CatalogUnavailableError, match=r"are gone .* Nothing was committed"):
        end(id, True)
    assert rows(path, url) == [0, 1]

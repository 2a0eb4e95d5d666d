"""What the loggers `plake.…` tell of a commit, a conflict, a plan and a clean-up."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakehouse_source as lake
from lakehouse_source.write.commit import commit as committing


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, logger="plake")
    return caplog


def told(lines: pytest.LogCaptureFixture, logger: str) -> list[str]:
    return [one.getMessage() for one in lines.records if one.name == logger]


def test_a_commit_a_plan_and_a_cleanup_are_one_line_each(
    lines: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    uri = str(tmp_path / "n")
    lake.write_dataset({"n": [1, 2]}, uri)
    done = lake.write_dataset({"n": [3]}, uri, mode="overwrite")
    first, second = told(lines, "plake.commit")
    assert first.startswith(f"file://{uri} is at version 1, write ")
    text = f"file://{uri} is at version 2, write {done.write_id}, "
    assert re.fullmatch(re.escape(text) + r"\d+\.\d ms", second)
    dataset = lake.open_dataset(uri)
    dataset.scan("n = 3").to_table()
    (plan,) = told(lines, "plake.plan")
    assert re.fullmatch(rf"file://{uri} at version 2: 1 of 1 files, \d+ bytes, \d+\.\d ms", plan)
    dataset.expire_versions(keep_last=1)
    dataset.vacuum(retention_seconds=0, allow_short_retention=True, dry_run=True)
    dataset.vacuum(retention_seconds=0, allow_short_retention=True)
    expired, vacuumed = told(lines, "plake.vacuum")
    assert expired == f"file://{uri}: versions before 2 are expired"
    assert vacuumed.startswith(f"file://{uri}: 1 files deleted, ")


def test_a_conflict_of_rows_has_its_facts_as_fields_and_is_told(
    lines: pytest.LogCaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = str(tmp_path / "n {braces}")
    lake.write_dataset(pa.table({"n": list(range(100)), "v": [0] * 100}), uri)
    mine, theirs = lake.open_dataset(uri), lake.open_dataset(uri)
    (file,) = mine.files()
    commit = committing._commit_prepared

    def later(*arguments: Any) -> Any:
        monkeypatch.undo()
        theirs.update({"v": "9"}, "n >= 98")
        return commit(*arguments)

    monkeypatch.setattr(committing, "_commit_prepared", later)
    with pytest.raises(lake.CommitConflictError) as caught:
        mine.update({"v": "5"}, "n > 95")
    error = caught.value
    assert (error.version, error.path, error.rows) == (2, file.path, 2)
    assert error.reason == f"2 rows of {file.path} were changed by both commits"
    assert (error.base_version, error.current_version) == (1, 2)
    assert any(file.path in line for line in told(lines, "plake.commit"))


def test_a_conflict_of_schemas_names_the_commit(tmp_path: Path) -> None:
    uri = str(tmp_path / "n")
    lake.write_dataset({"n": [1], "v": [1]}, uri)
    old = lake.open_dataset(uri)
    lake.open_dataset(uri).rename_column("v", "w")
    with pytest.raises(lake.CommitConflictError) as caught:
        old.rename_column("v", "x")
    assert (caught.value.version, caught.value.operation) == (2, "schema change")
    assert caught.value.reason == "version 2 did 'schema change'"

"""The option `branch` and a branch in the path are one branch, without a JVM."""

from __future__ import annotations

from pathlib import Path

import pytest

import lakehouse_source as lake
from lakehouse_source.spark.protocol.vocabulary import RequestKey, ResponseKey
from lakehouse_source.spark.session.catalog_request import Request
from lakehouse_source.spark.session.options import on_branch
from lakehouse_source.spark.tables.catalog_names import exists


@pytest.mark.parametrize(
    ("path", "branch", "expected"),
    [
        ("/t", None, "/t"),
        ("/t", " ", "/t"),
        ("/t", "a", "/t#branch=a"),
        ("/t#branch=a", "a", "/t#branch=a"),
        ("/t#branch=a", None, "/t#branch=a"),
    ],
)
def test_a_branch_is_named_once(path: str, branch: str | None, expected: str) -> None:
    assert on_branch(path, branch) == expected


def test_two_branches_are_refused() -> None:
    with pytest.raises(lake.InvalidOptionError, match="is not that of the path: a"):
        on_branch("/t#branch=a", "b")


@pytest.mark.parametrize("suffix", ["", "#branch=audit"])
def test_a_save_mode_finds_the_branch_however_it_is_named(tmp_path: Path, suffix: str) -> None:
    lake.write_dataset({"id": [1]}, tmp_path / "t")
    lake.open_dataset(tmp_path / "t").branch("audit")
    asked = {
        RequestKey.CATALOG: "plake",
        RequestKey.IDENTIFIER: [f"{tmp_path}/t{suffix}"],
        RequestKey.MUST_BE_NEW: False,
    }
    request = Request.of(asked, {"branch": "audit"})
    assert exists(request)[ResponseKey.EXISTS]

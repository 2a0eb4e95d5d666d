"""Every `plake` line of the page about operations runs, in order, as a reader would type it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import lakehouse_source as lake
from tests.doors.plake_command import plake

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs/operations.md"
FLIGHTS = {"month": [1, 1, 2, 3], "carrier": ["UA", "AA", "UA", "DL"], "miles": [9, 8, 7, 6]}


def commands() -> list[list[str]]:
    """The arguments of each command in blocks of the shell."""
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("plake ")]


def test_the_commands_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    url = f"sqlite:///{tmp_path}/lake.db"
    with lake.open_catalog(url, warehouse=tmp_path / "warehouse") as catalog:
        catalog.set_warehouse(tmp_path / "warehouse")
        for _ in range(2):
            lake.write_dataset(FLIGHTS, tmp_path / "flights", catalog=catalog)
        catalog.register("flights", tmp_path / "flights")
    for number, name in enumerate(("january", "february"), 1):
        (tmp_path / f"{name}.csv").write_text(f"month,id\n{number},1\n")
    found = commands()
    assert len(found) > 25
    for arguments in found:
        here = [one.replace("/data/", f"{tmp_path}/").replace("////", "///") for one in arguments]
        done = plake(*here, folder=str(tmp_path), PLAKE_CATALOG=url)
        expected = {0, 3} if arguments[0] == "doctor" else {0}
        assert done.code in expected, (arguments, done)
    assert (tmp_path / "orders.csv").read_text() == "month,id\n1,1\n2,1\n"
    with lake.open_catalog(f"sqlite:///{tmp_path}/backup.db", create=False) as backup:
        assert backup.dataset("flights").verify().ok

"""The pages in a browser: nothing on its console, and the figures of `explain()` and `health()`.

`PLAKE_SCREENSHOTS=docs/pictures` writes the pictures of the documentation anew.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakehouse_source as lake
from integration.flights import load
from tests.doors.plake_command import plake

CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(CHROMIUM is None, reason="the package chromium is not installed"),
]
WEEK = (
    "time_hour >= TIMESTAMP '2013-07-01 00:00:00Z' AND time_hour < TIMESTAMP '2013-07-08 00:00:00Z'"
)
CLUSTER = "What a run of cluster would change"


@pytest.fixture(scope="module")
def flights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The flights as the demo writes them: a folder for each month, March with late flights."""
    uri = tmp_path_factory.mktemp("pages") / "flights"
    table = load().sort_by("time_hour")
    lake.write_dataset(table, uri, partition_by="month", row_group_rows=8192)
    late = table.filter((pc.field("month") == 3) & (pc.field("arr_delay") > 60))
    lake.write_dataset(late, uri, mode="overwrite", overwrite_where="month = 3")
    return uri


@pytest.fixture(scope="module")
def loads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The flights as 37 loads of some days each, with some flights of the weeks before."""
    uri = tmp_path_factory.mktemp("pages") / "loads"
    table = load().sort_by("time_hour")
    for number, start in enumerate(range(0, table.num_rows, 9_300)):
        before = max(0, start - 1_700 * (number * 7 % 23))
        rows = pa.concat_tables([table.slice(start, 9_300), table.slice(before, 400)])
        lake.write_dataset(rows, uri, cluster_by=["time_hour"])
    dataset = lake.open_dataset(uri)
    dataset.delete("carrier = 'OO'")
    dataset.update({"dep_delay": "0"}, where="dep_delay < 0 AND origin = 'LGA'")
    return uri


class Tables(HTMLParser):
    """The tables of a page as the browser has it: by the title of the figure, rows of cells."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, list[list[str]]] = {}
        self._inside = self._title = ""

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self._inside = tag
        if tag == "h2":
            self._title = ""
        elif tag == "tr":
            self.found.setdefault(self._title, []).append([])
        elif tag == "td":
            self.found[self._title][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "h2":
            self._title += data
        elif self._inside == "td":
            self.found[self._title][-1][-1] += data


def run(page: Path, *options: str) -> tuple[str, str]:
    """What Chromium shows of a page and logs, without a network."""
    assert CHROMIUM is not None
    done = subprocess.run(
        [
            CHROMIUM,
            *("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
            f"--user-data-dir={page.parent / 'profile'}",
            *("--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr", "--v=0"),
            *options,
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout, done.stderr


def opened(page: Path) -> dict[str, list[list[str]]]:
    """The tables of a page that Chromium opened, which had nothing to say on its console."""
    shown, log = run(page, "--dump-dom")
    assert "CONSOLE" not in log, log
    tables = Tables()
    tables.feed(shown)
    return {title: [row for row in rows if row] for title, rows in tables.found.items()}


def pictured(page: Path, name: str, height: int, *, dark: bool = False) -> None:
    """Take a picture of a page, which is kept where the variable says so."""
    target = Path(os.environ.get("PLAKE_SCREENSHOTS", page.parent)).absolute() / f"{name}.png"
    target.parent.mkdir(exist_ok=True)
    options = ["--blink-settings=preferredColorScheme=0"] if dark else []
    shown = page.with_name(f"shown_{page.name}")
    shown.write_text(page.read_text().replace(str(page.parent), "/data"))
    run(shown, f"--screenshot={target}", f"--window-size=1000,{height}", *options)
    data = target.read_bytes()
    assert data.startswith(b"\x89PNG")
    assert 20_000 < len(data) < 150_000, len(data)


def test_a_console_that_says_something_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "loud.html"
    page.write_text("<script>console.error('loud')</script>")
    with pytest.raises(AssertionError, match="loud"):
        opened(page)


def numbers(cells: list[str]) -> Iterator[int]:
    for cell in cells:
        if re.fullmatch(r"[\d,]+", cell):
            yield int(cell.replace(",", ""))


def check_scan(tables: dict[str, list[list[str]]], told: dict[str, Any]) -> None:
    rows = {name: list(numbers(cells)) for name, *cells in tables["What has to be read"]}
    for name in ("files", "row_groups", "rows", "bytes"):
        total, read = told[f"{name}_total"], told[f"{name}_read"]
        assert rows[name.replace("_", " ")] == [total, read, total - read]
    drawn = next(rows for title, rows in tables.items() if title.startswith("Files over"))
    reasons = [row[-1] for row in drawn]
    assert sum(one.startswith("read") for one in reasons) == told["files_read"]
    for by in ("partition", "statistics"):
        assert sum(by in one for one in reasons) == told[f"files_pruned_by_{by}"]


def asked(*arguments: object) -> Any:
    done = plake(*arguments, "-o", "json")
    assert done.code == 0, done.err
    return json.loads(done.out)


def test_a_scan_of_partitions(flights: Path) -> None:
    page = flights.parent / "scan.html"
    question = ("explain", flights, "--where", "carrier = 'UA' AND month = 3")
    (told,) = asked(*question, "--html", page)
    check_scan(opened(page), told)
    plake(*question, "--details", "--html", page)
    why = opened(page)["Why, by row groups"]
    assert sum(next(numbers(row[3:4])) for row in why) == told["row_groups_total"]
    pictured(page, "scan", 900)


def test_a_scan_of_a_range(loads: Path) -> None:
    page = loads.parent / "range.html"
    where = f"{WEEK} AND dep_delay > 300"
    (told,) = asked("explain", loads, "--where", where, "--html", page)
    assert told["files_pruned_by_statistics"] > 20
    check_scan(opened(page), told)
    pictured(page, "range", 1290, dark=True)


def test_health_and_clustering(loads: Path) -> None:
    page = loads.parent / "health.html"
    told = asked("health", loads, "--html", page)
    tables = opened(page)
    calls = {row["measure"]: row for row in told if not row["subject"]}
    for name, _, files, size, _ in tables["What upkeep would do"]:
        assert list(numbers([files, size])) == [calls[name]["files"], calls[name]["size_bytes"]]
    moved = [row for row in tables[CLUSTER] if "sorted" in row[-1]]
    assert len(moved) == calls["cluster"]["files"] > 0
    history = asked("history", loads)
    assert [list(numbers(row[3:5])) for row in tables["Versions"]] == [
        [one["rows_added"], one["rows_removed"]] for one in history
    ]
    pictured(page, "health", 1180)
    rest = loads.parent / "cluster.html"
    hidden = f".plake figure:nth-of-type(-n+{[*tables].index(CLUSTER)}){{display:none}}"
    rest.write_text(page.read_text().replace("</body>", f"<style>{hidden}</style></body>"))
    pictured(rest, "cluster", 960)


def test_two_columns(loads: Path) -> None:
    dataset = lake.open_dataset(loads)
    page = loads.parent / "two.html"
    pruning = dataset.scan("dep_delay > 1000 AND distance > 4900").explain()
    pruning.to_html(page)
    tables = opened(page)
    drawn = tables["Files over dep_delay and distance"]
    assert len(drawn) == pruning.files_total
    assert sum(row[-1].startswith("read") for row in drawn) == pruning.files_read


def test_a_dataset_without_rows(tmp_path: Path) -> None:
    lake.write_dataset(pa.schema([("v", pa.int64())]).empty_table(), tmp_path / "empty")
    dataset = lake.open_dataset(tmp_path / "empty")
    dataset.scan("v = 1").explain(details=True).to_html(tmp_path / "scan.html")
    dataset.health().to_html(tmp_path / "health.html")
    assert opened(tmp_path / "scan.html")["What has to be read"]
    assert opened(tmp_path / "health.html")["Versions"]


def test_what_a_notebook_shows_is_a_whole_of_its_own(flights: Path) -> None:
    shown = lake.open_dataset(flights).scan("month = 3").explain()._repr_html_()
    page = flights.parent / "notebook.html"
    page.write_text(f"<!DOCTYPE html><meta charset='utf-8'><body>before{shown}after</body>")
    assert opened(page)["What has to be read"]

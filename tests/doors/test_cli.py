"""The command `plake`, in processes of its own: commands, their JSON, errors and manners."""

from __future__ import annotations

import base64
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakehouse_source as lake
from lakehouse_source.cli.commands import CATALOG, CHOSEN, COMMANDS
from lakehouse_source.cli.group import PLAKE
from lakehouse_source.operations import OPERATIONS
from lakehouse_source.operations.entry import Subject
from lakehouse_source.result_tables import Type
from tests.doors.plake_command import Done, plake

pytestmark = [pytest.mark.slow, pytest.mark.sampled(2)]

COMMAND = [sys.executable, "-m", "lakehouse_source.cli"]
FLIGHTS = {"month": [1, 1, 2, 3], "carrier": ["UA", "AA", "UA", "DL"], "miles": [9, 8, 7, 6]}


class Place:
    """A catalog with the dataset `flights`, of three versions, the last of which deletes a row."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"sqlite://{folder}/lake.db"
        self.catalog = lake.open_catalog(self.url, warehouse=folder / "warehouse")
        self.catalog.set_warehouse(folder / "warehouse")
        self.path = str(folder / "flights")
        lake.write_dataset(FLIGHTS, self.path, catalog=self.catalog, partition_by="month")
        lake.write_dataset({**FLIGHTS, "miles": [1, 2, 3, 4]}, self.path, catalog=self.catalog)
        self.catalog.register("flights", self.path)
        self.dataset().delete("miles = 9")

    def dataset(self) -> lake.Dataset:
        return self.catalog.dataset("flights")

    def __call__(self, *arguments: object, **environment: str) -> Done:
        return plake(*arguments, **{"PLAKE_CATALOG": self.url, **environment})


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def fits(value: Any, type_: Type) -> bool:
    """Tell whether a value of JSON is of a column's type, or NULL."""
    if value is None:
        return True
    if type_ in (Type.TEXTS, Type.LONGS):
        kind = str if type_ is Type.TEXTS else int
        return isinstance(value, list) and all(type(one) is kind for one in value)
    if type_ is Type.TIMESTAMP:
        return datetime.fromisoformat(value.replace("Z", "+00:00")).tzinfo is not None
    if type_ is Type.JSON:
        return True
    kinds = {Type.TEXT: str, Type.FLAG: bool, Type.DOUBLE: float}
    return type(value) is kinds.get(type_, int)


# --- every command once, its JSON by the columns of its operation

Prepare = Callable[[Place], Sequence[object]]
CASES: dict[str, Prepare] = {
    "add-files": lambda p: ("add-files", "flights", exported(p)),
    "clone": lambda p: ("clone", "flights", "trial", "--version", 1),
    "cluster": lambda p: (clustered(p), "cluster", "flights")[1:],
    "compact": lambda p: ("compact", "flights", "--rewrite-deleted"),
    "convert": lambda p: ("convert", converted(p)),
    "count": lambda p: ("count", "flights", "--where", "month = 1"),
    "create": lambda p: ("create", "orders", "--columns", "id BIGINT NOT NULL", "--columns",
                         "`the day` DATE", "--columns", "p DECIMAL(10, 2)",
                         "--partition-by", "the day"),
    "diff": lambda p: ("diff", "flights", 1, 3),
    "drop": lambda p: ("drop", "flights", "--yes"),
    "dropped": lambda p: (p.catalog.drop("flights"), "dropped")[1:],
    "erase": lambda p: ("erase", "flights", "--where", "carrier = 'AA'", "--yes"),
    "expire": lambda p: ("expire", "flights", "--keep-last", 1, "--yes"),
    "explain": lambda p: ("explain", "flights", "--where", "month = 3"),
    "files": lambda p: ("files", "flights"),
    "health": lambda p: ("health", "flights", "--columns", "miles"),
    "history": lambda p: ("history", "flights"),
    "import": lambda p: ("import", "flights", csv_file(p)),
    "ls": lambda p: ("ls",),
    "maintain": lambda p: ("maintain", "flights", "--keep-last", 1, "--yes"),
    "rename": lambda p: ("rename", "flights", "trips"),
    "restore": lambda p: ("restore", "flights", "--version", 1),
    "show": lambda p: ("show", "flights"),
    "suggest-layout": lambda p: ("suggest-layout", "flights", "miles > 1000", "carrier = 'UA'"),
    "undrop": lambda p: (p.catalog.drop("flights"), "undrop", "flights")[1:],
    "vacuum": lambda p: ("vacuum", "flights", "--yes"),
    "vacuum-catalog": lambda p: ("vacuum-catalog", "--yes"),
    "verify": lambda p: ("verify", "flights", "--checksums"),
}  # fmt: skip
TESTED_BELOW = {
    "branch",
    "catalog",
    "changes",
    "completion",
    "constraint",
    "consumer",
    "doctor",
    "properties",
    "scan",
    "serve",  # tests/doors/test_server.py
    "sql",
    "tag",
}


def clustered(place: Place) -> None:
    place.dataset().set_properties(cluster_by=["miles"])


def exported(place: Place) -> Path:
    folder = Path(place.path) / "exports" / "month=4"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"carrier": ["WN"], "miles": [5]}), folder / "1.parquet")
    return folder.parent


def converted(place: Place) -> Path:
    folder = place.folder / "plain"
    folder.mkdir()
    pq.write_table(pa.table(FLIGHTS), folder / "1.parquet")
    return folder


def csv_file(place: Place) -> Path:
    path = place.folder / "more.csv"
    path.write_text("month,carrier,miles\n4,WN,5\n4,,\n")
    return path


def test_every_command_has_a_case() -> None:
    with click.Context(PLAKE) as context:
        listed = set(PLAKE.list_commands(context))
    assert listed == set(COMMANDS) | TESTED_BELOW
    assert set(CHOSEN) - TESTED_BELOW == set(CASES)


def test_every_operation_has_a_command() -> None:
    of_commands = [one.operations for one in (*COMMANDS.values(), *CATALOG.values())]
    assert set(OPERATIONS) == {"set_index_columns"}.union(*of_commands)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_shows_its_help(name: str) -> None:
    with click.Context(PLAKE) as context:
        command = PLAKE.get_command(context, name)
        assert command is not None
        text = command.get_help(click.Context(command, info_name=name, parent=context))
    assert f"plake {name}" in text.partition("Example:")[2]
    asked = OPERATIONS[COMMANDS[name].operation].subject is not Subject.NONE
    subjects = ("DATASET", "NAME", "FOLDER")
    usage = re.sub(r"[][]", "", text.splitlines()[0])  # `maintain` without DATASET is of all
    assert any(f" {word}" in usage for word in subjects) == asked or name == "ls"


@pytest.mark.parametrize("name", CASES)
def test_a_command_answers_json_of_its_columns(name: str, place: Place) -> None:
    done = place(*CASES[name](place), "--output", "json")
    assert (done.code, done.err) == (0, ""), done.err
    columns = OPERATIONS[COMMANDS[name].operation].columns
    assert done.rows or name.startswith("vacuum")
    for row in done.rows:
        assert list(row) == [column.name for column in columns]
        for column in columns:
            assert fits(row[column.name], column.type), (column, row[column.name])


def test_the_options_of_examples_are_known() -> None:
    for spec in COMMANDS.values():
        with click.Context(PLAKE) as context:
            command = PLAKE.get_command(context, spec.name)
        known = {text for param in command.params for text in param.opts}  # type: ignore[union-attr]
        assert set(re.findall(r"--[a-z-]+", spec.example)) <= known


# --- what commands do


def test_tables_csv_and_json_say_the_same(place: Place) -> None:
    assert place("history", "flights", "-o", "csv").out.splitlines()[1].startswith("3,")
    lines = place("history", "flights").out.splitlines()
    assert lines[0].split()[:3] == ["version", "timestamp", "operation"]
    assert [line.split()[0] for line in lines[2:]] == ["3", "2", "1"]
    versions = [row["version"] for row in place("history", "flights", "-o", "json").rows]
    assert versions == [3, 2, 1]
    assert len(place("history", "flights", "--limit", 1, "-o", "json").rows) == 1


def test_show_tells_what_python_tells(place: Place) -> None:
    dataset = place.dataset()
    dataset.tag("first", 1)
    (told,) = place("show", "flights", "-o", "json").rows
    assert told["uri"] == dataset.uri
    assert [one["name"] for one in told["columns"]] == dataset.schema.names
    assert told["row_count"] == dataset.scan().count_rows() == 7
    assert told["size_bytes"] == sum(file.size_bytes for file in dataset.files())
    assert (told["partition_by"], told["tags"]) == (["month"], {"first": 1})
    assert "carrier" in place("show", place.path).out


def test_explain_and_count_are_those_of_the_scan(place: Place) -> None:
    scan = place.dataset().scan("month = 1 AND miles > 1")
    (told,) = place("explain", "flights", "--where", "month = 1 AND miles > 1", "-o", "json").rows
    assert told == {name: getattr(scan.explain(), name) for name in told}
    (told,) = place("count", "flights", "--where", "month = 1 AND miles > 1", "-o", "json").rows
    assert told["row_count"] == scan.count_rows()


def test_explain_tells_why_in_words_and_for_each_row_group(place: Place) -> None:
    asked = ("explain", "flights", "--where", "month = 1 AND miles > 1", "--details")
    pruning = place.dataset().scan("month = 1 AND miles > 1").explain(details=True)
    assert pruning.details is not None
    assert place(*asked).out == f"{pruning}\n"
    rows = place(*asked, "-o", "json").rows
    columns = OPERATIONS["explain_row_groups"].columns
    assert [tuple(row.values()) for row in rows] == list(pruning.details.rows())
    assert len(rows) == pruning.row_groups_total
    for row in rows:
        assert list(row) == [column.name for column in columns]
        assert all(fits(row[column.name], column.type) for column in columns)
    assert len(place(*asked, "-o", "csv").out.splitlines()) == len(rows) + 1


@pytest.mark.parametrize(
    ("arguments", "title"),
    [
        (("explain", "flights", "--where", "month = 1"), "What has to be read"),
        (("explain", "flights", "--where", "month = 1", "--details"), "Why, by row groups"),
        (("health", "flights", "--columns", "miles"), "What upkeep would do"),
    ],
)
def test_a_page_is_written_beside_the_answer(
    place: Place, arguments: Sequence[str], title: str
) -> None:
    page = place.folder / "page.html"
    plain = place(*arguments)
    done = place(*arguments, "--html", page)
    assert (done.code, done.out) == (0, plain.out)
    assert done.err == f"wrote {page}\n"
    assert title in page.read_text()
    refused = place(*arguments, "--html", place.folder / "no" / "page.html")
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.startswith("PLAKE_STORAGE: ")


def test_scan_shows_the_rows_in_every_form(place: Place, tmp_path: Path) -> None:
    expected = place.dataset().scan("month = 1", ["carrier", "miles"]).to_table()
    common = ("scan", "flights", "--where", "month = 1", "--columns", "carrier,miles")
    assert place(*common, "-o", "json").rows == expected.to_pylist()
    lines = place(*common, "-o", "jsonl").out.splitlines()
    assert [json.loads(line) for line in lines] == expected.to_pylist()
    assert place(*common, "-o", "csv").out == "carrier,miles\n" + "".join(
        f"{row['carrier']},{row['miles']}\n" for row in expected.to_pylist()
    )
    target = tmp_path / "out.parquet"
    written = place(*common, "-o", "parquet", "--to", target)
    assert written == (0, "", f"wrote {target}\n")
    assert pq.read_table(target).equals(expected)
    again = place(*common, "-o", "parquet", "--to", target)
    assert again.code == 1
    assert "it is there already" in again.err
    assert not list(tmp_path.glob("*.part"))
    assert len(place("scan", "flights", "--limit", 2, "-o", "json").rows) == 2
    assert len(place("scan", "flights", "--version", 1, "-o", "json").rows) == 4


def test_values_that_json_and_csv_lack_come_as_texts(tmp_path: Path) -> None:
    table = pa.table(
        {
            "f": pa.array([float("nan"), float("-inf"), None]),
            "b": pa.array([b"\x00\xff", b"", None]),
            "d": pa.array([1, None, 3]).cast(pa.decimal128(21, 2)),
            "t": pa.array([253402300800_000000, 0, None], pa.timestamp("us", "UTC")),
            "n": pa.array([1, None, 2], pa.timestamp("ns")),
            "s": pa.array(["", 'a,"b"\n', None]),
            "l": pa.array([[1], [], None], pa.list_(pa.int64())),
        }
    )
    lake.write_dataset(table, tmp_path / "d")
    first, second, third = plake("scan", tmp_path / "d", "-o", "json").rows
    assert (first["f"], second["f"], third["f"]) == ("NaN", "-Infinity", None)
    assert base64.b64decode(first["b"]) == b"\x00\xff"
    assert (first["d"], second["d"]) == ("1.00", None)
    assert second["t"] == "1970-01-01T00:00:00Z"
    assert first["t"].startswith("+10000-01-01T00:00:00")
    assert first["n"] == "1970-01-01T00:00:00.000000001"
    assert (first["l"], second["l"], third["l"]) == ([1], [], None)
    csv = plake("scan", tmp_path / "d", "--columns", "s", "-o", "csv").out
    assert csv == 's\n""\n"a,""b""\n"\n\n'


def test_csv_that_scan_wrote_is_imported_as_it_was(place: Place, tmp_path: Path) -> None:
    texts = pa.table({"id": [1, 2, 3, 4], "s": ["", None, 'x,"y"\nz', " pad "]})
    lake.write_dataset(texts, tmp_path / "texts")
    out = tmp_path / "texts.csv"
    assert plake("scan", tmp_path / "texts", "-o", "csv", "--to", out).code == 0
    done = place("import", "copied", out, "-o", "json")
    assert done.code == 0, done.err
    assert place.catalog.dataset("copied").scan().to_table().equals(texts)


def test_import_reads_json_and_parquet_and_refuses_other_columns(
    place: Place, tmp_path: Path
) -> None:
    one, two = tmp_path / "1.jsonl", tmp_path / "2.jsonl"
    one.write_text('{"a": 1, "b": "x"}\n{"a": 2, "b": null}\n')
    two.write_text('{"b": "y", "a": 3}\n')
    assert place("import", tmp_path / "new", one, two).code == 0
    rows = lake.read_dataset(tmp_path / "new", catalog=place.catalog).to_pylist()
    assert rows == [{"a": 1, "b": "x"}, {"a": 2, "b": None}, {"a": 3, "b": "y"}]
    pq.write_table(pa.table({"a": [4], "b": ["z"]}), tmp_path / "3.parquet")
    assert place("import", tmp_path / "new", tmp_path / "3.parquet").code == 0
    two.write_text('{"a": 3, "c": "y"}\n')
    refused = place("import", tmp_path / "new", one, two)
    assert (refused.code, refused.err.split(":")[0]) == (1, "PLAKE_SCHEMA_MISMATCH")
    one.write_text('{"a": "no number", "b": "x"}\n')
    refused = place("import", tmp_path / "new", one)
    assert (refused.code, refused.err.split(":")[0]) == (1, "PLAKE_SCHEMA_MISMATCH")
    assert str(one) in refused.err
    assert place("import", tmp_path / "new", tmp_path / "missing.csv").err.startswith("PLAKE_STOR")
    assert "cannot be told" in place("import", tmp_path / "new", tmp_path / "x.xlsx").err
    assert lake.open_dataset(tmp_path / "new", catalog=place.catalog).version == 2


def test_diff_counts_what_changed(place: Place) -> None:
    place.dataset().add_column("note", pa.string())
    told = place("diff", "flights", 1, 4, "-o", "json").rows
    found = {(row["what"], row["name"]): (row["before"], row["after"]) for row in told}
    assert found["column", "note"] == (None, "string")
    assert found["rows", "all"] == ("4", "7")
    assert found["rows", "inserted"] == (None, "4")
    assert found["rows", "deleted"] == ("1", None)
    assert place("diff", "flights", 3, 1).code == 1


def test_changes_are_those_of_python(place: Place) -> None:
    rows = place("changes", "flights", "--start", 3, "--columns", "miles", "-o", "json").rows
    assert [(row["miles"], row["_change_type"]) for row in rows] == [(9, "delete")]
    assert (
        place("changes", "flights", "--start", 2, "--end", 2, "-o", "csv").out.count("insert") == 4
    )
    some = place("changes", "flights", "--start", 2, "--limit", 3, "-o", "json").rows
    assert len(some) == 3


def test_tags_branches_and_properties(place: Place) -> None:
    assert place("tag", "flights", "spring", "--version", 2).code == 0
    assert place("tag", "flights", "-o", "json").rows == [
        {"name": "spring", "type": "TAG", "version": 2}
    ]
    assert place("tag", "flights", "spring", "--drop").code == 0
    assert place("tag", "flights", "-o", "json").rows == []
    assert place("branch", "flights", "audit").code == 0
    assert place("import", f"{place.path}#branch=audit", csv_file(place)).code == 0
    assert place("branch", "flights", "audit", "--fast-forward").code == 0
    assert place.dataset().scan("carrier = 'WN'").count_rows() == 1
    assert place("branch", "flights", "audit", "--drop").code == 2
    assert place("branch", "flights", "audit", "--drop", "--yes").code == 0
    assert [row["name"] for row in place("branch", "flights", "-o", "json").rows] == ["main"]
    chosen = ("--set", 'sort_by=["carrier"]', "--set", "compression=snappy")
    assert place("properties", "flights", *chosen).code == 0
    told = {row["name"]: row["value"] for row in place("properties", "flights", "-o", "json").rows}
    assert (told["sort_by"], told["compression"]) == (["carrier"], "snappy")
    assert place("properties", "flights", "--unset", "compression").code == 0
    assert place("properties", "flights", "--user", "--set", "owner=ann").code == 0
    assert place.dataset().table_properties == {"owner": "ann"}
    assert "compression" not in place.dataset().properties


def test_a_catalog_is_described_backed_up_and_copied(place: Place, tmp_path: Path) -> None:
    (told,) = place("catalog", "info", "-o", "json").rows
    assert (told["database"], told["datasets"], told["names"]) == ("Sqlite", 1, 1)
    backup, other = tmp_path / "it's 100% safe.db", f"duckdb://{tmp_path}/other.duckdb"
    done = place("catalog", "backup", backup, "-o", "json")
    assert (done.code, done.err) == (0, "")
    assert {row["table"]: row["rows"] for row in done.rows}["transactions"] == 3
    assert place("catalog", "backup", backup).err.startswith("PLAKE_INVALID_OPTION: ")
    copied = place("catalog", "copy", place.url, other, "-o", "json")
    assert (copied.code, copied.rows[0]["catalog"]) == (0, other)
    assert "Only the new catalog is written to now" in copied.err
    for url in (other, f"sqlite:///{quote(str(backup))}"):
        assert plake("count", "flights", "--catalog", url, "-o", "json").rows == [{"row_count": 7}]
    for name in ("describe_catalog", "backup_catalog"):
        row = told if name == "describe_catalog" else done.rows[0]
        for column in OPERATIONS[name].columns:
            assert fits(row[column.name], column.type)


def test_health_is_a_check_where_it_is_asked(place: Place) -> None:
    assert place("health", "flights").code == 0
    assert place("health", "flights", "--check").code == 3  # small files
    lake.write_dataset({"a": [1]}, place.folder / "fine")
    assert plake("health", place.folder / "fine", "--check").code == 0


def test_consumers_are_added_advanced_and_dropped(place: Place) -> None:
    assert place("consumer", "flights", "billing", "--version", 0).code == 0
    assert place("consumer", "flights", "billing", "--advance").code == 2
    assert place("consumer", "flights", "billing", "--advance", "--version", 2).code == 0
    (told,) = place("consumer", "flights", "-o", "json").rows
    assert (told["name"], told["version"], told["versions_behind"]) == ("billing", 2, 1)
    for column in OPERATIONS["consumers"].columns:
        assert fits(told[column.name], column.type)
    assert place("consumer", "flights", "billing", "--drop").code == 0
    assert place("consumer", "flights", "-o", "json").rows == []


def test_constraints_are_added_listed_and_dropped(place: Place) -> None:
    assert place("constraint", "flights", "flies", "--expression", "miles > 0").code == 0
    assert place("constraint", "flights", "other").code == 2
    assert place("constraint", "flights", "--expression", "miles > 1").code == 2
    (told,) = place("constraint", "flights", "-o", "json").rows
    assert (told["name"], told["expression"]) == ("flies", "miles > 0")
    for column in OPERATIONS["constraints"].columns:
        assert fits(told[column.name], column.type)
    path = place.folder / "grounded.csv"
    path.write_text("month,carrier,miles\n4,WN,0\n")
    done = place("import", "flights", path)
    assert (done.code, "constraint 'flies'" in done.err) == (1, True)
    assert place("constraint", "flights", "flies", "--drop").code == 0
    assert place("constraint", "flights", "-o", "json").rows == []
    assert place("import", "flights", path).code == 0


def test_names_come_and_go(place: Place) -> None:
    assert place("rename", "flights", "trips").code == 0
    assert [row["name"] for row in place("ls", "-o", "json").rows] == ["trips"]
    assert place("ls", "default", "-o", "json").rows[0]["uri"] == f"file://{place.path}"
    assert place("drop", "trips", "--purge", "--yes").code == 0
    assert not list(Path(place.path).rglob("*.parquet"))
    assert place("create", place.folder / "d", "--columns", "id INT").code == 0
    assert place("create", "made", "--like", made_parquet(place)).code == 0
    assert place.catalog.dataset("made").schema == pa.schema([("a", pa.list_(pa.int8()))])
    done = place("create", "other", "--columns", "id NUMBER")
    assert (done.code, "type that is not known" in done.err) == (1, True)


def made_parquet(place: Place) -> Path:
    path = place.folder / "like.parquet"
    pq.write_table(pa.table({"a": pa.array([[1]], pa.list_(pa.int8()))}), path)
    return path


def test_a_dataset_with_its_own_catalog_needs_none(tmp_path: Path) -> None:
    lake.write_dataset(FLIGHTS, tmp_path / "d")
    done = plake("history", tmp_path / "d", "-o", "json")
    assert (done.code, len(done.rows)) == (0, 1)
    assert plake("ls").code == 1
    assert not (tmp_path / "nothing").exists()
    assert plake("ls", "--catalog", f"sqlite://{tmp_path}/none.db").code == 1
    assert not (tmp_path / "none.db").exists()


def test_the_doctor_says_what_is_there(place: Place) -> None:
    done = place("doctor", "-o", "json")
    told = {row["check"]: row for row in done.rows}
    assert told["catalog"]["ok"] is True
    assert "datasets with a name: 1" in told["catalog"]["found"]
    assert told["Python"]["ok"] is told["extension"]["ok"] is True
    assert all(row["advice"] for row in told.values() if row["ok"] is not True)
    broken = plake("doctor", "--catalog", "sqlite:////nothing/there.db", "-o", "json")
    assert broken.code == 3
    assert {row["check"]: row["ok"] for row in broken.rows}["catalog"] is False
    lost = place("doctor", "-o", "json", JAVA_HOME="/nothing")
    assert {row["check"]: row["ok"] for row in lost.rows}["Java"] is False


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete(shell: str) -> None:
    done = plake("completion", shell)
    assert (done.code, "_PLAKE_COMPLETE" in done.out) == (0, True)
    words = {"COMP_WORDS": "plake hist", "COMP_CWORD": "1"}
    found = plake(**words, _PLAKE_COMPLETE="bash_complete")
    assert "history" in found.out


# --- bad input


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("history", "/nothing/here"), 1, "PLAKE_DATASET_NOT_FOUND: "),
        (("history", "flights", "--catalog", "mysql://x/y"), 1, "PLAKE_INVALID_OPTION: "),
        (("ls", "--catalog", "env:HOME"), 1, "PLAKE_INVALID_OPTION: "),
        (("ls", "--catalog", "postgresql://nobody@127.0.0.1:1/x"), 1, "PLAKE_CATALOG_UNAVAILABLE"),
        (("scan", "flights", "--version", "99"), 1, "PLAKE_VERSION_NOT_FOUND: "),
        (("restore", "flights", "--version", "99"), 1, "PLAKE_VERSION_NOT_FOUND: "),
        (("restore", "flights", "--version", "x"), 2, "Invalid value"),
        (("scan", "flights", "--where", "month = "), 1, "PLAKE_INVALID_PREDICATE: "),
        (("count", "flights", "--where", "nothing = 1"), 1, "PLAKE_INVALID_PREDICATE: "),
        (("explain", "flights", "--where", "month = 'x' AND"), 1, "PLAKE_INVALID_PREDICATE: "),
        (("scan", "flights", "--columns", "nothing"), 1, "PLAKE_"),
        (("scan", "flights", "--output", "parquet"), 2, "--to FILE"),
        (("import", "flights", "/no/file.csv"), 1, "PLAKE_STORAGE: /no/file.csv: there is no"),
        (("scan", "flights", "--output", "xml"), 2, "Invalid value"),
        (("history",), 2, "Missing argument"),
        (("erase", "flights", "--yes"), 2, "Missing option '--where'"),
        (("nothing",), 2, "No such command"),
        (("history", "flights", "--nothing"), 2, "No such option"),
        (("history", "flights", "--storage", "x"), 2, "NAME=VALUE"),
        (("restore", "flights", "--timestamp", "yesterday"), 2, "is no time"),
        (("expire", "flights", "--yes"), 1, "PLAKE_INVALID_OPTION: "),
        (("vacuum", "flights"), 2, "Add --yes"),
        (("drop", "flights"), 2, "Add --yes"),
        (("drop", "/data/flights", "--yes"), 1, "must be a name"),
        (("properties", "flights", "--set", "nonsense=1"), 1, "PLAKE_INVALID_OPTION: "),
        (("vacuum", "flights", "--retention-seconds", "1", "--yes"), 1, "PLAKE_INVALID_OPTION: "),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_bad_input_is_one_line_with_a_code(
    place: Place, arguments: Sequence[str], code: int, text: str
) -> None:
    done = place(*arguments)
    assert done.code == code, done
    assert text in done.err
    assert done.out == ""
    if code == 1:
        assert done.err.count("\n") == 1
    assert place.dataset().version == 3


def test_verify_that_finds_something_ends_with_3(place: Place) -> None:
    file = place.dataset().files()[0].path
    (Path(place.path) / file).write_bytes(b"")
    done = place("verify", "flights", "-o", "json")
    assert done.code == 3
    assert {row["path"] for row in done.rows} == {file}
    assert not any(row["ok"] for row in done.rows)


@pytest.mark.long
def test_a_catalog_that_cannot_be_written_refuses_in_one_line(postgres_server: Any) -> None:
    """A role that may only read: files of root are writable whatever their mode says."""
    url = postgres_server.new_catalog()
    import psycopg

    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute("DROP ROLE IF EXISTS only_reads")
        owner.execute("CREATE ROLE only_reads LOGIN")
        owner.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO only_reads")
    with lake.open_catalog(url) as catalog:
        catalog.create_namespace("n")
    reading = url.replace("postgres@", "only_reads@")
    assert plake("ls", "--catalog", reading).code == 0
    done = plake("create", "n.t", "--columns", "i INT", "--location", "/tmp/never-made",
                 "--catalog", reading)  # fmt: skip
    assert (done.code, done.err.split(":")[0]) == (1, "PLAKE_ACCESS_DENIED")
    assert done.err.count("\n") == 1
    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute("DROP OWNED BY only_reads")
        owner.execute("DROP ROLE only_reads")


def test_without_click_it_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['click'] = None\nimport lakehouse_source.cli.main as m\nm.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert "pip install 'plake[cli]'" in done.stderr


def test_help_imports_nothing_that_takes_long() -> None:
    code = (
        "import sys\nsys.argv = ['plake', 'vacuum', '--help']\n"
        "from lakehouse_source.cli.main import main\n"
        "try:\n    main()\nfinally:\n"
        "    heavy = {'pyarrow', 'numpy', 'pandas', 'pyspark', 'duckdb', 'psycopg', 'rich'}\n"
        "    assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_history_imports_neither_pandas_nor_what_writes(place: Place) -> None:
    code = (
        f"import sys\nsys.argv = ['plake', 'history', {place.path!r}, '--catalog', {place.url!r}]\n"
        "from lakehouse_source.cli.main import main\n"
        "try:\n    main()\nfinally:\n"
        "    heavy = {'pandas', 'pyspark', 'duckdb', 'psycopg', 'rich', 'sqlite_utils'}\n"
        "    heavy |= {'pyarrow.compute', 'pyarrow.dataset', 'pyarrow.parquet'}\n"
        "    heavy |= {'sqlglot', 'lakehouse_source.write.commit.commit'}\n"
        "    heavy |= {'lakehouse_source.dataset'}\n"
        "    assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# --- terminals, pipes, signals


def in_terminal(arguments: Sequence[str], answer: str = "", **environment: str) -> tuple[int, str]:
    """Run a command in a pseudo terminal, type an answer, and give its code and what it showed."""
    process, terminal = pty.fork()
    if process == 0:
        os.environ.update(environment)
        os.execv(sys.executable, [*COMMAND, *arguments])
    shown = b""
    if answer:
        os.write(terminal, answer.encode())
    while True:
        try:
            some = os.read(terminal, 65536)
        except OSError:  # the other end is closed
            break
        if not some:
            break
        shown += some
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), shown.decode()


@pytest.mark.long
def test_a_question_is_asked_before_anything_is_deleted(place: Place) -> None:
    lake.write_dataset({"month": [9], "carrier": ["X"], "miles": [0]}, place.path, mode="overwrite",
                       catalog=place.catalog)  # fmt: skip
    place.dataset().expire_versions(keep_last=1)
    files = set(Path(place.path).rglob("*.parquet"))
    arguments = ["vacuum", place.path, "--catalog", place.url, "--retention-seconds", "0",
                 "--allow-short-retention"]  # fmt: skip
    code, shown = in_terminal(arguments, "n\n")
    assert code == 1
    assert "would remove" in shown
    assert "nothing was done" in shown
    assert set(Path(place.path).rglob("*.parquet")) == files
    code, shown = in_terminal(arguments, "y\n")
    assert code == 0, shown
    assert set(Path(place.path).rglob("*.parquet")) < files


HOSTILE = "\x1b]0;owned\x07\x1b[2J\r\n\x9b31m\u202e"


def test_texts_of_strangers_reach_no_terminal_raw(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/lake.db"
    name = "col\x1b[31m"
    lake.write_dataset(
        {name: [HOSTILE], "b": [1]}, tmp_path / "d", catalog=url, commit_metadata={"n": HOSTILE}
    )
    forbidden = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]")
    for arguments in (
        ("scan", tmp_path / "d", "--catalog", url),
        ("scan", tmp_path / "d", "--catalog", url, "-o", "json"),
        ("history", tmp_path / "d", "--catalog", url),
        ("show", tmp_path / "d", "--catalog", url),
        ("count", tmp_path / "d", "--catalog", url, "--where", f"`{HOSTILE}` = 1"),
    ):
        done = plake(*arguments)
        assert not forbidden.search(done.out), done.out
        assert not forbidden.search(done.err), done.err
    assert plake("scan", tmp_path / "d", "--catalog", url, "-o", "json").rows == [
        {name: HOSTILE, "b": 1}
    ]
    # To a file or a pipe CSV is exact; to a terminal it is escaped.
    assert HOSTILE.replace("\r\n", "") in plake(
        "scan", tmp_path / "d", "--catalog", url, "-o", "csv"
    ).out.replace("\r\n", "").replace("\n", "")
    for output in ("csv", "table", "jsonl"):
        _, shown = in_terminal(["scan", str(tmp_path / "d"), "--catalog", url, "-o", output])
        plain = re.sub("\x1b\\[[0-9;]*m", "", shown.replace("\r\n", "\n"))
        assert not forbidden.search(plain), (output, plain)


def test_colour_is_for_terminals(place: Place) -> None:
    assert "\x1b[" in in_terminal(["history", place.path, "--catalog", place.url])[1]
    assert "\x1b[" not in place("history", "flights").out


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    lake.write_dataset({"i": list(range(200_000))}, tmp_path / "d")
    process = subprocess.Popen(
        [*COMMAND, "scan", str(tmp_path / "d"), "-o", "csv"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"i\n"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 141


@pytest.mark.long
@pytest.mark.parametrize("point", ["commit begun", "before COMMIT"])
def test_an_interrupted_compaction_loses_nothing(place: Place, point: str) -> None:
    before = sorted(place.dataset().scan().to_table().to_pylist(), key=str)
    waits = place.folder / "waits"
    process = subprocess.Popen(
        [*COMMAND, "compact", place.path, "--catalog", place.url],
        env={**os.environ, "PLAKE_FAILPOINT": point, "PLAKE_FAILPOINT_HOLD": str(waits)},
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    end = time.monotonic() + 60
    while not waits.exists() and time.monotonic() < end:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors.lstrip()) == (130, "interrupted\n")
    dataset = place.dataset()
    assert dataset.version == 3
    assert sorted(dataset.scan().to_table().to_pylist(), key=str) == before
    assert dataset.verify(checksums=True).ok
    assert place("compact", "flights").code == 0
    assert sorted(dataset.refresh().scan().to_table().to_pylist(), key=str) == before
    assert dataset.verify(checksums=True).ok


def test_maintain_without_a_dataset_looks_after_the_whole_catalog(place: Place) -> None:
    page = Path(place.path).parent / "upkeep.html"
    place.dataset().set_properties(keep_versions=1)
    done = place("maintain", "--yes", "--html", page, "--output", "json")
    assert json.loads(done.out) == [
        {"table": "default.flights", "step": "expire_versions", "files": 1, "note": ""}
    ]
    assert "default.flights" in page.read_text()
    for arguments, code, reason in (
        (("--every", "10x", "--yes"), 1, "such as 90s, 10m, 1h or 7d"),
        (("--every", "10m"), 2, "Add --yes"),
        (("flights", "--every", "10m", "--yes"), 2, "--every is for a whole catalog"),
        (("--dry-run", "--yes"), 2, "--dry-run is for one DATASET"),
        (("--max-memory", "much", "--yes"), 1, "must be a size in bytes"),
    ):
        failed = place("maintain", *arguments)
        assert (failed.code, reason in failed.err) == (code, True), failed.err

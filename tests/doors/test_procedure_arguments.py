"""What a procedure's arguments mean, without a JVM: names of tables, NULL, defaults."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import lakehouse_source as lake
from lakehouse_source.spark.protocol.vocabulary import RequestKey, RequestKind, ResponseKey
from lakehouse_source.spark.session.catalog_request import Request
from lakehouse_source.spark.tables.procedures import PROCEDURES, call, load_procedure


def request(**question: Any) -> Request:
    return Request.of({RequestKey.CATALOG: "plake", **question}, {})


@pytest.mark.parametrize(
    ("text", "current", "parts"),
    [
        ("t", None, ["t"]),
        ("t", "sales", ["sales", "t"]),
        ("t", "`a.b`", ["a.b", "t"]),
        ("ns.t", "sales", ["ns", "t"]),
        ("plake.ns.t", "sales", ["ns", "t"]),
        ("other.ns.t", None, ["other", "ns", "t"]),
        ("plake.t", None, ["plake", "t"]),
        ("ns.`a.b/c`", None, ["ns", "a.b/c"]),
        ("/data/x.y", "sales", ["/data/x.y"]),
        ("data/x.y", "sales", ["data/x.y"]),
        ("s3://bucket/x.parquet", None, ["s3://bucket/x.parquet"]),
        ("plake.`/data/x.y`", "sales", ["/data/x.y"]),
        ("`/data/x.y`", "sales", ["/data/x.y"]),
    ],
)
def test_a_table_is_known_by_its_name_or_its_path(
    text: str, current: str | None, parts: list[str]
) -> None:
    about = request(**{RequestKey.CURRENT: current}).about(text)
    assert about.body[RequestKey.IDENTIFIER] == parts
    assert about.is_path == (len(parts) == 1 and "/" in parts[0])


@pytest.mark.parametrize("name", PROCEDURES)
def test_what_is_told_of_a_procedure_is_complete(name: str) -> None:
    told = load_procedure(request(**{RequestKey.PROCEDURE: name}))
    parameters = json.loads(told[ResponseKey.PARAMETERS])["fields"]
    columns = json.loads(told[ResponseKey.COLUMNS])["fields"]
    for one in (*parameters, *columns):
        assert one["metadata"]["comment"]
        assert f"  {one['name']} " in told[ResponseKey.DESCRIPTION]
    # Spark's syntax: after a parameter with a default all have one.
    has_default = ["default" in one["metadata"] for one in parameters]
    assert has_default == sorted(has_default)
    # What a procedure works on must be given; this one works on all tables.
    assert not any(has_default[:1]) or name == "vacuum_catalog"


def test_null_is_as_if_an_argument_was_not_given(tmp_path: Path) -> None:
    lake.write_dataset({"a": [1]}, tmp_path / "d")
    lake.write_dataset({"a": [2]}, tmp_path / "d")

    def run(procedure: str, **arguments: Any) -> Any:
        given = {"table": str(tmp_path / "d"), **arguments}
        question = {
            RequestKey.COMMAND: RequestKind.CALL,
            RequestKey.PROCEDURE: procedure,
            RequestKey.ARGUMENTS: given,
        }
        return call(request(**question))[ResponseKey.ROWS]

    assert run("verify", version=None, checksums=None) == run("verify")
    assert run("explain", where=None, columns=None, version=None) == run("explain")
    for procedure, arguments in (("erase", {"where": None}), ("verify", {"table": None})):
        with pytest.raises(lake.InvalidOptionError, match=r"must not be NULL"):
            run(procedure, **arguments)
    with pytest.raises(lake.InvalidOptionError, match="is missing"):
        run("restore", version=None)
    with pytest.raises(lake.InvalidOptionError, match="keep_"):
        run("expire_versions", keep_seconds=None, keep_last=None)
    assert lake.open_dataset(tmp_path / "d").version == 2


@pytest.mark.parametrize("seconds", ["NaN", "Infinity", "-Infinity"])
def test_seconds_that_are_no_number_are_refused(tmp_path: Path, seconds: str) -> None:
    """They were compared as texts: the error was one of Python."""
    lake.write_dataset({"a": [1]}, tmp_path / "d")
    for procedure, name in (("vacuum", "retention_seconds"), ("expire_versions", "keep_seconds")):
        question = {
            RequestKey.COMMAND: RequestKind.CALL,
            RequestKey.PROCEDURE: procedure,
            RequestKey.ARGUMENTS: {"table": str(tmp_path / "d"), name: seconds},
        }
        with pytest.raises(lake.InvalidOptionError, match=r"must be a number of seconds from 0"):
            call(request(**question))

"""Door. The commands that are one operation each, and what asks before it deletes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lakehouse_source.operations.entry import Operation, Subject
from lakehouse_source.operations.listing import OPERATIONS


@dataclass(frozen=True, slots=True)
class Command:
    """A command that runs one operation.

    `arguments` are the positional parameters after the dataset; the last one may take several
    values. `split` are lists that one option gives, with commas. `asks` is the text of the question
    before the work; an operation with `dry_run` first shows what it would do. `upright`: the
    result's one row is shown as a list. `finds` tells whether a row is something that a check
    found; with `checks_if_asked` the command is a check only with the option --check. `details` is
    the operation that runs with the option --details, which has the same parameters.
    """

    name: str
    operation: str
    example: str
    arguments: tuple[str, ...] = ()
    split: tuple[str, ...] = ()
    asks: str | None = None
    upright: bool = False
    finds: Callable[[Mapping[str, Any]], bool] | None = None
    checks_if_asked: bool = False
    details: str | None = None


def _is_call(row: Mapping[str, Any]) -> bool:
    """Tell whether a row of health is about a call of upkeep; the value 1 means: worth it."""
    return not row["subject"] and row["measure"] not in ("files", "deleted", "small")


_ALL = (
    Command(
        "add-files",
        "add_files",
        "plake add-files flights /data/flights/exports",
        arguments=("paths",),
    ),
    Command("cluster", "cluster", "plake cluster flights --dry-run"),
    Command("compact", "compact", 'plake compact flights --where "month = 3"'),
    Command("convert", "convert", "plake convert /data/exports", split=("index_columns",)),
    Command("count", "count", "plake count flights --where \"carrier = 'UA'\""),
    Command(
        "create",
        "create",
        "plake create sales.orders --columns 'id BIGINT NOT NULL' --columns 'day DATE' "
        "--partition-by day",
        split=("partition_by",),
    ),
    Command("diff", "diff", "plake diff flights 1 3", arguments=("version", "other_version")),
    Command(
        "drop",
        "drop",
        "plake drop sales.orders",
        asks="This takes the name away from the dataset, or deletes it with --purge.",
    ),
    Command("dropped", "dropped", "plake dropped"),
    Command(
        "erase",
        "erase",
        "plake erase flights --where \"tailnum = 'N14228'\"",
        asks="This erases the rows from every version and file. Nothing brings them back.",
        upright=True,
    ),
    Command(
        "expire",
        "expire_versions",
        "plake expire flights --keep-last 10",
        asks="Expired versions can be neither read nor restored.",
        upright=True,
    ),
    Command(
        "explain",
        "explain",
        "plake explain flights --where \"month = 3 AND carrier = 'UA'\" --html scan.html",
        split=("columns",),
        upright=True,
        details="explain_row_groups",
    ),
    Command("files", "files", "plake files flights --output csv"),
    Command(
        "health",
        "health",
        "plake health flights --columns carrier,dep_delay --check --html health.html",
        split=("columns",),
        finds=lambda row: _is_call(row) and row["value"] == 1,
        checks_if_asked=True,
    ),
    Command("history", "history", "plake history flights --limit 5"),
    Command(
        "import",
        "import",
        "plake import flights january.csv february.csv --partition-by month",
        arguments=("paths",),
        split=("partition_by",),
    ),
    Command("ls", "list", "plake ls --catalog sqlite:////data/lake.db", arguments=("namespace",)),
    Command(
        "maintain",
        "maintain",
        "plake maintain flights --keep-last 10",
        asks="This deletes rows of expire_rows, expires versions and deletes files.",
    ),
    Command("rename", "rename", "plake rename sales.orders sales.purchases", arguments=("name",)),
    Command("restore", "restore", "plake restore flights --version 3"),
    Command("show", "describe", "plake show flights", upright=True),
    Command(
        "suggest-layout",
        "suggest_layout",
        'plake suggest-layout flights "month = 3" "carrier = \'UA\' AND miles > 1000"',
        arguments=("conditions",),
    ),
    Command("undrop", "undrop", "plake undrop sales.orders"),
    Command(
        "vacuum",
        "vacuum",
        "plake vacuum flights --dry-run",
        asks="This deletes the files that it would remove.",
    ),
    Command(
        "vacuum-catalog",
        "vacuum_catalog",
        "plake vacuum-catalog --dry-run",
        asks="This deletes the files that it would remove, and what was dropped long ago.",
    ),
    Command(
        "verify", "verify", "plake verify flights --checksums", finds=lambda row: not row["ok"]
    ),
)
# Operations that `cli/refs.py` and `cli/catalogs.py` make commands of.
_ELSEWHERE = {
    *("add_consumer", "advance_consumer", "consumers", "drop_consumer"),
    *("backup_catalog", "copy_catalog", "describe_catalog", "unfence_catalog"),
    *("create_branch", "create_tag", "drop_branch", "drop_tag", "fast_forward", "refs"),
    *("properties", "set_properties", "set_index_columns"),
    *(one.details for one in _ALL if one.details is not None),
}
CHOSEN = {one.name: one for one in _ALL}


def _plain(operation: Operation) -> Command:
    """The command of an operation that has no choices of its own here."""
    name = operation.name.replace("_", "-")
    subject = "" if operation.subject is Subject.NONE else " flights"
    return Command(name, operation.name, f"plake {name}{subject}")


COMMANDS = CHOSEN | {
    one.name: one
    for one in map(_plain, OPERATIONS.values())
    if one.operation not in _ELSEWHERE | {chosen.operation for chosen in _ALL}
}

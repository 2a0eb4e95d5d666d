"""Door. The commands that run operations, and what asks before it deletes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lakehouse_source.operations import OPERATIONS
from lakehouse_source.operations.entry import Operation, Subject


@dataclass(frozen=True, slots=True)
class Flag:
    """An option by which a command runs another operation; `asks` is as in `Command`."""

    operation: str
    help: str
    confirms: str | None = None


@dataclass(frozen=True, slots=True)
class Command:
    """A command that runs one operation, or with a flag another one.

    `example` begins with the command's name; `runs` is the operation, if it has another name.
    `arguments` are the positional parameters after the dataset; the last one may take several
    values. `split` are lists that one option gives, with commas. `help`, `short_help`, `texts` (by
    parameter) and `metavars` stand in place of what the operation says. `asks` is the text of the
    question before the work; an operation with `dry_run` first shows what it would do. `upright`:
    the result's one row is shown as a list. `finds` tells whether a row is something that a check
    found; with `checks_if_asked` the command is a check only with the option --check.

    `misused` is the error for two flags, or for one that lacks a value. Where none of `needs` is
    given, the operation `lists` runs; of its rows those with the `kind` in the column `type` are
    shown. `has_source`: the catalog is the first argument. `done` is told at the end.
    """

    example: str
    runs: str = ""
    arguments: tuple[str, ...] = ()
    split: tuple[str, ...] = ()
    help: str = ""
    short_help: str | None = None
    texts: Mapping[str, str] = field(default_factory=dict)
    metavars: Mapping[str, str] = field(default_factory=dict)
    confirms: str | None = None
    upright: bool = False
    finds: Callable[[Mapping[str, Any]], bool] | None = None
    checks_on_request: bool = False
    flags: Mapping[str, Flag] = field(default_factory=dict)
    misused: str = ""
    needs: tuple[str, ...] = ()
    lists: str = ""
    kind: str | None = None
    has_source: bool = False
    done: str | None = None

    @property
    def name(self) -> str:
        """The name of the command, without that of its group."""
        return self.example.removeprefix("plake ").removeprefix("catalog ").split()[0]

    @property
    def operation(self) -> str:
        """The name of the operation that runs without a flag."""
        return self.runs or self.name.replace("-", "_")

    @property
    def operations(self) -> set[str]:
        """The names of all operations that the command may run."""
        others = (flag.operation for flag in self.flags.values())
        return {self.operation, self.lists or self.operation, *others}


def _is_call(row: Mapping[str, Any]) -> bool:
    """Tell whether a row of health is about a call of upkeep; the value 1 means: worth it."""
    return not row["subject"] and row["measure"] not in ("files", "deleted", "small")


def _by_name(*commands: Command) -> dict[str, Command]:
    return {one.name: one for one in commands}


CHOSEN = _by_name(
    Command("plake add-files flights /data/flights/exports", arguments=("paths",)),
    Command(
        "plake branch flights audit",
        "create_branch",
        arguments=("name",),
        short_help="List, make, fast-forward or remove branches",
        help="Make a branch NAME, which is the dataset `DATASET#branch=NAME`; without NAME, list "
        "them.",
        texts={"version": "The version that the branch begins with; by default the newest."},
        flags={
            "fast_forward": Flag("fast_forward", "Commit to the dataset what the branch has."),
            "drop": Flag(
                "drop_branch",
                "Remove the branch with its own versions.",
                "This removes the branch {name!r}, with versions that only it has.",
            ),
        },
        misused="--fast-forward and --drop cannot be given together.",
        needs=("name",),
        lists="refs",
        kind="BRANCH",
    ),
    Command("plake clone sales.orders sales.trial --version 3", arguments=("to",)),
    Command("plake cluster flights --dry-run"),
    Command('plake compact flights --where "month = 3"'),
    Command(
        "plake constraint flights flies --expression 'miles > 0'",
        "add_constraint",
        arguments=("name",),
        short_help="List, add or drop constraints",
        help="Refuse rows for which a condition is FALSE, or whose key another row has, under a "
        "NAME; without NAME, list the constraints.",
        flags={"drop": Flag("drop_constraint", "Drop the constraint.")},
        needs=("name", "expression"),
        lists="constraints",
    ),
    Command(
        "plake consumer flights billing --advance --version 12",
        "add_consumer",
        arguments=("name",),
        short_help="List, add, advance or remove consumers of the change feed",
        help="Note a reader NAME of the change feed, for which expiry keeps versions; without "
        "NAME, list.",
        texts={"keep_seconds": "Without an advance for this long, it keeps no version."},
        flags={
            "advance": Flag("advance_consumer", "It has processed the changes up to --version."),
            "drop": Flag("drop_consumer", "Remove it."),
        },
        misused="--advance needs --version, and no --drop.",
        needs=("name",),
        lists="consumers",
    ),
    Command("plake convert /data/exports", split=("index_columns",)),
    Command("plake count flights --where \"carrier = 'UA'\""),
    Command(
        "plake create sales.orders --columns 'id BIGINT NOT NULL' --columns 'day DATE' "
        "--partition-by day",
        split=("partition_by",),
    ),
    Command("plake diff flights 1 3", arguments=("version", "other_version")),
    Command(
        "plake drop sales.orders",
        confirms="This takes the name away from the dataset, or deletes it with --purge.",
    ),
    Command("plake dropped"),
    Command(
        "plake erase flights --where \"tailnum = 'N14228'\"",
        confirms="This erases the rows from every version and file. Nothing brings them back.",
        upright=True,
    ),
    Command(
        "plake expire flights --keep-last 10",
        "expire_versions",
        confirms="Expired versions can be neither read nor restored.",
        upright=True,
    ),
    Command(
        "plake explain flights --where \"month = 3 AND carrier = 'UA'\" --html scan.html",
        split=("columns",),
        upright=True,
        flags={
            "details": Flag(
                "explain_row_groups",
                "Tell why each row group is read or skipped; a table shows the ten that say most.",
            )
        },
    ),
    Command("plake files flights --output csv"),
    Command(
        "plake health flights --columns carrier,dep_delay --check --html health.html",
        split=("columns",),
        finds=lambda row: _is_call(row) and row["value"] == 1,
        checks_on_request=True,
    ),
    Command("plake history flights --limit 5"),
    Command(
        "plake import flights january.csv february.csv --partition-by month",
        arguments=("paths",),
        split=("partition_by",),
    ),
    Command("plake ls --catalog sqlite:////data/lake.db", "list", arguments=("namespace",)),
    Command(
        "plake maintain flights --keep-last 10",
        confirms="This deletes rows of expire_rows, expires versions and deletes files.",
    ),
    Command(
        "plake properties flights --set 'sort_by=[\"carrier\"]' --unset compression",
        "set_properties",
        short_help="List or set properties",
        help="List the properties of a dataset, or set some.",
        texts={
            "set": "Set a property; a value is JSON, or else a text.",
            "unset": "Set a property back to its default.",
            "user": "List or set notes of users, not properties of plake.",
        },
        metavars={"set": "NAME=VALUE", "unset": "NAME"},
        needs=("set", "unset"),
        lists="properties",
    ),
    Command("plake rename sales.orders sales.purchases", arguments=("name",)),
    Command("plake restore flights --version 3"),
    Command("plake show flights", "describe", upright=True),
    Command(
        'plake suggest-layout flights "month = 3" "carrier = \'UA\' AND miles > 1000"',
        arguments=("conditions",),
    ),
    Command(
        "plake tag flights before-summer --version 3",
        "create_tag",
        arguments=("name",),
        short_help="List, make or remove tags",
        help="Give a NAME to a version, which then does not expire; without NAME, list the tags.",
        flags={"drop": Flag("drop_tag", "Remove the tag. Its version stays until it is expired.")},
        needs=("name",),
        lists="refs",
        kind="TAG",
    ),
    Command("plake undrop sales.orders"),
    Command(
        "plake vacuum flights --dry-run", confirms="This deletes the files that it would remove."
    ),
    Command(
        "plake vacuum-catalog --dry-run",
        confirms="This deletes the files that it would remove, and what was dropped long ago.",
    ),
    Command("plake verify flights --checksums", finds=lambda row: not row["ok"]),
)
# The commands of the group `catalog`.
CATALOG = _by_name(
    Command(
        "plake catalog info --catalog sqlite:////data/lake.db",
        "describe_catalog",
        help="Tell what is in the catalog.",
        upright=True,
    ),
    Command(
        "plake catalog backup /backups/lake.db --catalog postgresql://user@host/lake",
        "backup_catalog",
        arguments=("file",),
        help="Write a copy of the catalog to a new SQLite FILE, while writers go on.",
    ),
    Command(
        "plake catalog copy sqlite:////data/lake.db postgresql://user@host/lake",
        "copy_catalog",
        arguments=("to",),
        help="Copy the catalog SOURCE to the database TARGET, which has no catalog; every row is "
        "compared.\n\nFrom then on only TARGET is written to.",
        metavars={"to": "TARGET"},
        has_source=True,
        done="Only the new catalog is written to now: writes to the old one are refused, and it "
        "can be read.",
    ),
    Command(
        "plake catalog unfence sqlite:////data/lake.db postgresql://user@host/lake",
        "unfence_catalog",
        arguments=("copy",),
        help="Let the catalog SOURCE be written to again, after it was copied to COPY.\n\n"
        "COPY is as the error names it. Write to one of both only: both own the same files.",
        has_source=True,
    ),
)
_NAMED = {name for one in (*CHOSEN.values(), *CATALOG.values()) for name in one.operations}


def _plain(operation: Operation) -> Command:
    """The command of an operation that has no choices of its own here."""
    subject = "" if operation.subject is Subject.NONE else " flights"
    return Command(f"plake {operation.name.replace('_', '-')}{subject}")


# `plake properties --set index_columns=…` chooses columns of the search index.
_LEFT = _NAMED | {"set_index_columns"}
COMMANDS = CHOSEN | _by_name(
    *(_plain(one) for name, one in OPERATIONS.items() if name not in _LEFT)
)

"""Door. The commands for tags, branches and properties: each lists, makes and removes."""

from __future__ import annotations

from typing import Any

import click

from lakehouse_source.cli.build import common, confirm, given
from lakehouse_source.cli.output import write_rows
from lakehouse_source.cli.target import Given
from lakehouse_source.operations.entry import Call
from lakehouse_source.operations.listing import OPERATIONS


def _run(operation: str, target: Given, output: str, **arguments: Any) -> None:
    chosen = {name: value for name, value in arguments.items() if value is not None}
    entry = OPERATIONS[operation]
    rows = [tuple(row) for row in entry.run(Call(target, chosen))]
    write_rows([column.name for column in entry.columns], rows, output)


def _list_refs(target: Given, output: str, kind: str) -> None:
    entry = OPERATIONS["refs"]
    rows = [row for row in entry.run(Call(target, {})) if row[1] == kind]
    write_rows([column.name for column in entry.columns], rows, output)


@click.command(short_help="List, make or remove tags")
@click.argument("dataset")
@click.argument("name", required=False)
@click.option("--version", type=int, help="The version; by default the newest.")
@click.option("--drop", is_flag=True, help="Remove the tag. Its version stays until it is expired.")
@common()
def tag(
    dataset: str,
    name: str | None,
    version: int | None,
    drop: bool,
    catalog: str | None,
    storage: tuple[str, ...],
    output: str,
    quiet: bool,
) -> None:
    """Give a NAME to a version, which then does not expire; without NAME, list the tags.

    \b
    Example:
      plake tag flights before-summer --version 3
    """
    target = given(dataset, catalog, storage)
    if name is None:
        _list_refs(target, output, "TAG")
    elif drop:
        _run("drop_tag", target, output, name=name)
    else:
        _run("create_tag", target, output, name=name, version=version)


@click.command(short_help="List, make, fast-forward or remove branches")
@click.argument("dataset")
@click.argument("name", required=False)
@click.option(
    "--version", type=int, help="The version that the branch begins with; by default the newest."
)
@click.option("--fast-forward", is_flag=True, help="Commit to the dataset what the branch has.")
@click.option("--drop", is_flag=True, help="Remove the branch with its own versions.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@common()
def branch(
    dataset: str,
    name: str | None,
    version: int | None,
    fast_forward: bool,
    drop: bool,
    yes: bool,
    catalog: str | None,
    storage: tuple[str, ...],
    output: str,
    quiet: bool,
) -> None:
    """Make a branch NAME, which is the dataset `DATASET#branch=NAME`; without NAME, list them.

    \b
    Example:
      plake branch flights audit
    """
    target = given(dataset, catalog, storage)
    if fast_forward and drop:
        raise click.UsageError("--fast-forward and --drop cannot be given together.")
    if name is None:
        _list_refs(target, output, "BRANCH")
    elif drop:
        confirm(f"This removes the branch {name!r}, with versions that only it has.", yes)
        _run("drop_branch", target, output, name=name)
    elif fast_forward:
        _run("fast_forward", target, output, branch=name)
    else:
        _run("create_branch", target, output, name=name, version=version)


@click.command(short_help="List, add, advance or remove consumers of the change feed")
@click.argument("dataset")
@click.argument("name", required=False)
@click.option("--version", type=int, help="What it has read; 0: nothing; by default all.")
@click.option(
    "--keep-seconds", type=int, help="After so many seconds without an advance it keeps no version."
)
@click.option("--advance", is_flag=True, help="It has done its work up to --version.")
@click.option("--drop", is_flag=True, help="Remove it.")
@common()
def consumer(
    dataset: str,
    name: str | None,
    version: int | None,
    keep_seconds: int | None,
    advance: bool,
    drop: bool,
    catalog: str | None,
    storage: tuple[str, ...],
    output: str,
    quiet: bool,
) -> None:
    """Note a reader NAME of the change feed, for which expiry keeps versions; without NAME, list.

    \b
    Example:
      plake consumer flights billing --advance --version 12
    """
    target = given(dataset, catalog, storage)
    if advance and (drop or version is None):
        raise click.UsageError("--advance needs --version, and no --drop.")
    if name is None:
        _run("consumers", target, output)
    elif drop:
        _run("drop_consumer", target, output, name=name)
    elif advance:
        _run("advance_consumer", target, output, name=name, version=version)
    else:
        _run("add_consumer", target, output, name=name, version=version, keep_seconds=keep_seconds)


@click.command(short_help="List or set properties")
@click.argument("dataset")
@click.option(
    "--set",
    "chosen",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set a property; a value is JSON, or else a text. May be repeated.",
)
@click.option(
    "--unset",
    multiple=True,
    metavar="NAME",
    help="Set a property back to its default. May be repeated.",
)
@click.option("--user", is_flag=True, help="Notes of users, and no properties of plake.")
@common()
def properties(
    dataset: str,
    chosen: tuple[str, ...],
    unset: tuple[str, ...],
    user: bool,
    catalog: str | None,
    storage: tuple[str, ...],
    output: str,
    quiet: bool,
) -> None:
    """List the properties of a dataset, or set some.

    \b
    Example:
      plake properties flights --set 'sort_by=["carrier"]' --unset compression
    """
    target = given(dataset, catalog, storage)
    if chosen or unset:
        _run("set_properties", target, output, set=list(chosen), unset=list(unset), user=user)
    else:
        _run("properties", target, output)

"""Door. The commands for tags, branches and properties: each lists, makes and removes."""

from __future__ import annotations

import click

from lakehouse_source.cli.build import Asked, common, confirm


@click.command(short_help="List, make or remove tags")
@click.argument("dataset")
@click.argument("name", required=False)
@click.option("--version", type=int, help="The version; by default the newest.")
@click.option("--drop", is_flag=True, help="Remove the tag. Its version stays until it is expired.")
@common()
def tag(
    asked: Asked,
    dataset: str,
    name: str | None,
    version: int | None,
    drop: bool,
) -> None:
    """Give a NAME to a version, which then does not expire; without NAME, list the tags.

    \b
    Example:
      plake tag flights before-summer --version 3
    """
    if name is None:
        asked.show("refs", dataset, of_type="TAG")
    elif drop:
        asked.show("drop_tag", dataset, name=name)
    else:
        asked.show("create_tag", dataset, name=name, version=version)


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
    asked: Asked,
    dataset: str,
    name: str | None,
    version: int | None,
    fast_forward: bool,
    drop: bool,
    yes: bool,
) -> None:
    """Make a branch NAME, which is the dataset `DATASET#branch=NAME`; without NAME, list them.

    \b
    Example:
      plake branch flights audit
    """
    if fast_forward and drop:
        raise click.UsageError("--fast-forward and --drop cannot be given together.")
    if name is None:
        asked.show("refs", dataset, of_type="BRANCH")
    elif drop:
        confirm(f"This removes the branch {name!r}, with versions that only it has.", yes)
        asked.show("drop_branch", dataset, name=name)
    elif fast_forward:
        asked.show("fast_forward", dataset, branch=name)
    else:
        asked.show("create_branch", dataset, name=name, version=version)


@click.command(short_help="List, add, advance or remove consumers of the change feed")
@click.argument("dataset")
@click.argument("name", required=False)
@click.option("--version", type=int, help="The last version read; 0: none; by default the newest.")
@click.option(
    "--keep-seconds", type=int, help="Without an advance for this long, it keeps no version."
)
@click.option("--advance", is_flag=True, help="It has processed the changes up to --version.")
@click.option("--drop", is_flag=True, help="Remove it.")
@common()
def consumer(
    asked: Asked,
    dataset: str,
    name: str | None,
    version: int | None,
    keep_seconds: int | None,
    advance: bool,
    drop: bool,
) -> None:
    """Note a reader NAME of the change feed, for which expiry keeps versions; without NAME, list.

    \b
    Example:
      plake consumer flights billing --advance --version 12
    """
    if advance and (drop or version is None):
        raise click.UsageError("--advance needs --version, and no --drop.")
    if name is None:
        asked.show("consumers", dataset)
    elif drop:
        asked.show("drop_consumer", dataset, name=name)
    elif advance:
        asked.show("advance_consumer", dataset, name=name, version=version)
    else:
        asked.show("add_consumer", dataset, name=name, version=version, keep_seconds=keep_seconds)


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
@click.option("--user", is_flag=True, help="List or set notes of users, not properties of plake.")
@common()
def properties(
    asked: Asked,
    dataset: str,
    chosen: tuple[str, ...],
    unset: tuple[str, ...],
    user: bool,
) -> None:
    """List the properties of a dataset, or set some.

    \b
    Example:
      plake properties flights --set 'sort_by=["carrier"]' --unset compression
    """
    if chosen or unset:
        asked.show("set_properties", dataset, set=list(chosen), unset=list(unset), user=user)
    else:
        asked.show("properties", dataset)

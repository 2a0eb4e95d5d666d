"""Door. The group of all commands; each is built when it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

import click

from lakehouse_source import __version__
from lakehouse_source.cli.build import command_of
from lakehouse_source.cli.commands import CATALOG, COMMANDS

# The modules of commands that are not just one operation; in its module, a function has the name of
# the command.
_OWN = {
    "changes": "rows",
    "completion": "completion",
    "doctor": "doctor",
    "maintain": "maintain",
    "scan": "rows",
    "serve": "serve",
    "sql": "sql",
}


def _catalog() -> click.Group:
    text = "Describe, back up or copy a whole catalog"
    shown = f"{text}.\n\n\b\nExample:\n  {CATALOG['copy'].example}"
    commands = [command_of(one) for one in CATALOG.values()]
    return click.Group("catalog", commands, help=shown, short_help=text)


class Lazy(click.Group):
    """A group that imports the module of a command when the command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*COMMANDS, *_OWN, "catalog"})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name == "catalog":
            return _catalog()
        if cmd_name not in _OWN:
            return command_of(COMMANDS[cmd_name]) if cmd_name in COMMANDS else None
        module = import_module(f"lakehouse_source.cli.{_OWN[cmd_name]}")
        found: click.Command = getattr(module, cmd_name)
        return found


def _version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        click.echo(f"plake {__version__}")
        ctx.exit()


def _group() -> Callable[[], None]:
    def plake() -> None:
        """Tables of plake at the terminal: `plake COMMAND DATASET [options]`.

        DATASET is a path, a URI, or a name in the catalog that --catalog or the variable
        PLAKE_CATALOG gives. `plake COMMAND --help` has an example of each command.
        """

    return plake


PLAKE = click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_version,
    help="Show the version and exit.",
)(click.group(name="plake", cls=Lazy)(_group()))

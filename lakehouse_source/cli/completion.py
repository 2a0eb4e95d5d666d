"""Door. The script by which a shell completes commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command(short_help="Print the completion script of a shell")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script by which a shell completes plake's commands and options.

    \b
    Example:
      plake completion bash > ~/.local/share/bash-completion/completions/plake
    """
    from lakehouse_source.cli.group import PLAKE

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(PLAKE, {}, "plake", "_PLAKE_COMPLETE").source())

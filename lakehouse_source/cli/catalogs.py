"""Door. The commands about a whole catalog: what is in it, a backup, a copy in another database."""

from __future__ import annotations

import click

from lakehouse_source.cli.build import common, given
from lakehouse_source.cli.output import write_rows
from lakehouse_source.operations.entry import Call
from lakehouse_source.operations.listing import OPERATIONS

_BOTH = (
    "Both catalogs own the same folders now: stop the writers of the old one, use only the new "
    "one, and then remove the old one."
)


@click.group(short_help="Describe, back up or copy a whole catalog")
def catalog() -> None:
    """Describe, back up or copy a whole catalog.

    \b
    Example:
      plake catalog copy sqlite:////data/lake.db postgresql://user@host/lake
    """


@catalog.command()
@common()
def info(catalog: str | None, storage: tuple[str, ...], output: str, quiet: bool) -> None:
    """Tell what is in the catalog.

    \b
    Example:
      plake catalog info --catalog sqlite:////data/lake.db
    """
    _run("describe_catalog", catalog, storage, output, quiet, upright=True)


@catalog.command()
@click.argument("file")
@common()
def backup(
    file: str, catalog: str | None, storage: tuple[str, ...], output: str, quiet: bool
) -> None:
    """Write a copy of the catalog to a new SQLite FILE, while writers go on.

    \b
    Example:
      plake catalog backup /backups/lake.db --catalog postgresql://user@host/lake
    """
    _run("backup_catalog", catalog, storage, output, quiet, file=file)


@catalog.command()
@click.argument("source")
@click.argument("target")
@common()
def copy(
    source: str,
    target: str,
    catalog: str | None,
    storage: tuple[str, ...],
    output: str,
    quiet: bool,
) -> None:
    """Copy the catalog SOURCE to the database TARGET, which has none; every row is compared.

    \b
    Example:
      plake catalog copy sqlite:////data/lake.db postgresql://user@host/lake
    """
    if catalog is not None:
        raise click.UsageError("SOURCE is the catalog: --catalog cannot be given too.")
    _run("copy_catalog", source, storage, output, quiet, to=target)
    click.echo(_BOTH, err=True)


def _run(
    name: str,
    url: str | None,
    storage: tuple[str, ...],
    output: str,
    quiet: bool,
    *,
    upright: bool = False,
    **arguments: str,
) -> None:
    operation = OPERATIONS[name]
    call = Call(given("", url, storage), arguments, False if quiet else None)
    rows = [tuple(row) for row in operation.run(call)]
    write_rows([column.name for column in operation.columns], rows, output, upright=upright)

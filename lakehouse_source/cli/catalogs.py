"""Door. The commands about a whole catalog: what is in it, a backup, a copy in another database."""

from __future__ import annotations

from dataclasses import replace

import click

from lakehouse_source.cli.build import Asked, common

_FENCED = (
    "Only the new catalog is written to now: writes to the old one are refused, and it can be read."
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
def info(asked: Asked) -> None:
    """Tell what is in the catalog.

    \b
    Example:
      plake catalog info --catalog sqlite:////data/lake.db
    """
    asked.show("describe_catalog", upright=True)


@catalog.command()
@click.argument("file")
@common()
def backup(asked: Asked, file: str) -> None:
    """Write a copy of the catalog to a new SQLite FILE, while writers go on.

    \b
    Example:
      plake catalog backup /backups/lake.db --catalog postgresql://user@host/lake
    """
    asked.show("backup_catalog", file=file)


@catalog.command()
@click.argument("source")
@click.argument("target")
@common()
def copy(asked: Asked, source: str, target: str) -> None:
    """Copy the catalog SOURCE to the database TARGET, which has no catalog; every row is compared.

    From then on only TARGET is written to.

    \b
    Example:
      plake catalog copy sqlite:////data/lake.db postgresql://user@host/lake
    """
    if asked.catalog is not None:
        raise click.UsageError("SOURCE is the catalog: --catalog cannot be given too.")
    replace(asked, catalog=source).show("copy_catalog", to=target)
    click.echo(_FENCED, err=True)


@catalog.command()
@click.argument("source")
@click.argument("copy")
@common()
def unfence(asked: Asked, source: str, copy: str) -> None:
    """Let the catalog SOURCE be written to again, after it was copied to COPY.

    COPY is as the error names it. Write to one of both only: both own the same files.

    \b
    Example:
      plake catalog unfence sqlite:////data/lake.db postgresql://user@host/lake
    """
    if asked.catalog is not None:
        raise click.UsageError("SOURCE is the catalog: --catalog cannot be given too.")
    replace(asked, catalog=source).show("unfence_catalog", copy=copy)

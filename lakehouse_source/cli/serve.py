"""Door. The command `plake serve`: a catalog over HTTP, for readers of Iceberg."""

from __future__ import annotations

import logging
import os
from typing import Any

import click

from lakehouse_source.errors import InvalidOptionError

_VARIABLE = "PLAKE_CATALOG"


@click.command(short_help="Serve a catalog to readers of Iceberg")
@click.option("--catalog", metavar="URL", help="The catalog; by default the one in PLAKE_CATALOG.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option("--port", default=8181, show_default=True, help="Where to listen.")
@click.option("--token", metavar="env:NAME", help="The variable with the token that clients give.")
@click.option(
    "--allowed-host",
    "allowed_hosts",
    multiple=True,
    metavar="NAME",
    help="A name by which clients may call this machine. Repeatable. Default: localhost without a "
    "token, any name with one.",
)
@click.option("--tls-cert", metavar="FILE", help="A certificate in PEM.")
@click.option("--tls-key", metavar="FILE", help="Its key in PEM.")
@click.option(
    "--storage",
    multiple=True,
    metavar="NAME=VALUE",
    help="A storage option of the server; env:NAME takes its value from a variable. Repeatable.",
)
@click.option(
    "--vend-credentials",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting that every client gets with each table. Repeatable. Default: none.",
)
@click.option(
    "--newest-versions",
    default=10,
    show_default=True,
    help="How many of the newest versions can be read without a tag.",
)
@click.option(
    "--maintain",
    metavar="EVERY",
    help="Also do the upkeep of all tables by their properties, such as every 10m. See /upkeep.",
)
def serve(catalog: str | None, **settings: Any) -> None:
    """Serve the named datasets of a catalog as a REST catalog of Iceberg, to be read.

    Without a token it listens on this machine only.

    \b
    Example:
      plake serve --catalog sqlite:////data/lake.db
    """
    from lakehouse_source.server.run import serve as run

    url = catalog or os.environ.get(_VARIABLE)
    if not url:
        raise InvalidOptionError(
            option="catalog", reason=f"is missing: give --catalog, or set {_VARIABLE}."
        )
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s")
    protocol = "https" if settings["tls_cert"] else "http"
    click.echo(f"serving on {protocol}://{settings['host']}:{settings['port']}", err=True)
    run(url, **settings)

"""Door. The commands that run until they are told to end: `plake maintain` and `plake serve`."""

from __future__ import annotations

import logging
import os
import signal
import threading
from typing import Any

import click

from lakehouse_source.cli.build import Shared, command_of, confirm
from lakehouse_source.cli.commands import COMMANDS
from lakehouse_source.cli.output import write_rows
from lakehouse_source.errors import InvalidOptionError

_OF_CATALOG = {
    "every": "Again and again: the time between two rounds over all tables, such as 10m.",
    "vacuum_every": "The time between two looks for files to delete.  [default: 1d]",
    "max_bytes_per_hour": "Rewrite no more bytes in an hour, such as 10g.",
    "max_memory": "End a rewriting that takes more memory, such as 2g.",
    "lease_seconds": "How long a process may be silent before another one takes over.  "
    "[default: 60]",
    "metrics_file": "A file for Prometheus, written anew after each round.",
    "html": "A page about what was done and what is behind, written anew after each round.",
}
_OF_DATASET = ("rewrite_deleted", "dry_run")


def _command() -> click.Command:
    command = command_of(COMMANDS["maintain"])
    of_dataset = command.callback
    assert of_dataset is not None
    dataset = next(one for one in command.params if isinstance(one, click.Argument))
    dataset.required, dataset.metavar = False, "[DATASET]"
    for name, text in _OF_CATALOG.items():
        kind = click.INT if name == "lease_seconds" else click.STRING
        command.params.append(click.Option([f"--{name.replace('_', '-')}"], type=kind, help=text))
    command.help = (
        "Deletes the rows of the property expire_rows, compacts, expires versions and vacuums.\n\n"
        "Without DATASET: all tables of the catalog by their properties, once, or with --every "
        "until the process is told to end; one process at a time does it.\n\n"
        "\b\nExample:\n  plake maintain flights --keep-last 10\n"
        "  plake maintain --every 10m --catalog sqlite:////data/lake.db --yes"
    )

    def run(**values: Any) -> None:
        of_catalog = {name: values.pop(name) for name in _OF_CATALOG}
        given = {name: value for name, value in of_catalog.items() if value is not None}
        if values[str(dataset.name)] is None:
            del values[str(dataset.name)]
            for name in _OF_DATASET:
                if values.pop(name):
                    raise click.UsageError(f"--{name.replace('_', '-')} is for one DATASET.")
            _all(**values, **given)
        elif given:
            name = next(iter(given)).replace("_", "-")
            raise click.UsageError(f"--{name} is for a whole catalog: leave DATASET out.")
        else:
            of_dataset(**values)

    command.callback = run
    return command


def _all(
    catalog: str | None,
    storage: tuple[str, ...],
    output: str,
    quiet: bool,
    yes: bool,
    **settings: Any,
) -> None:
    from lakehouse_source.upkeep.run import maintain as run

    confirm("This deletes rows of expire_rows, expires versions and deletes files.", yes)
    level = logging.WARNING if quiet else logging.INFO
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("plake.upkeep").setLevel(level)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    target = Shared(catalog, storage, output, quiet).target()
    state = run(catalog, stop=stop, storage_options=target.storage_options(), **settings)
    if not state.leads and not stop.is_set():
        click.echo(f"nothing was done: {state.other} does it", err=True)
    if "every" not in settings:
        write_rows(("table", "step", "files", "note"), list(state.rows()), output)


maintain = _command()


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

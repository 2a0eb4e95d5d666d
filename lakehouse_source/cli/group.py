"""Door. The group of all commands, built when asked for, and those that are not one operation."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import click
from click.shell_completion import get_completion_class

from lakehouse_source import __version__
from lakehouse_source.cli.build import FOUND_SOMETHING, Given, Shared, command_of, common, confirm
from lakehouse_source.cli.commands import CATALOG, COMMANDS
from lakehouse_source.cli.output import write_rows
from lakehouse_source.errors import InvalidOptionError, PlakeError

# The modules of commands that are not just one operation; in its module, a function has the name of
# the command.
_OWN = {
    "changes": "rows",
    "completion": "group",
    "doctor": "group",
    "maintain": "group",
    "scan": "rows",
    "serve": "group",
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


@click.command(short_help="Print the completion script of a shell")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script by which a shell completes plake's commands and options.

    \b
    Example:
      plake completion bash > ~/.local/share/bash-completion/completions/plake
    """

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(PLAKE, {}, "plake", "_PLAKE_COMPLETE").source())


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


_OLDEST_PYTHON = (3, 10)
_OLDEST_SPARK, _OLDEST_JAVA = (4, 1), 17
# check, whether it is well (None: it is not needed for everything), what was found, what to do
_Row = tuple[str, "bool | None", str, "str | None"]


@click.command(short_help="Check what is installed, and the catalog")
@common()
def doctor(shared: Shared) -> None:
    """Check Python, Java, Spark with its extension, and the catalog; say what to do.

    The exit code is 3 if a check fails that something needs.

    \b
    Example:
      plake doctor --catalog sqlite:////data/lake.db
    """
    rows = [*_python(), *_java(), *_spark(), *_catalog_rows(shared.catalog)]
    write_rows(("check", "ok", "found", "advice"), rows, shared.output)
    if any(ok is False for _, ok, _, _ in rows):
        raise click.exceptions.Exit(FOUND_SOMETHING)


def _python() -> Iterator[_Row]:
    found = ".".join(map(str, sys.version_info[:3]))
    fits = sys.version_info[:2] >= _OLDEST_PYTHON
    yield "Python", fits, found, None if fits else "Install Python 3.10 or newer."
    yield "plake", True, __version__, None
    yield "pyarrow", True, _version_of("pyarrow") or "unknown", None
    for package in ("duckdb", "polars", "datafusion"):
        found_version = _version_of(package)
        advice = None if found_version else f"For this engine: pip install 'plake[{package}]'."
        yield package, True if found_version else None, found_version or "not installed", advice


def _java() -> Iterator[_Row]:
    import shutil
    import subprocess

    home = os.environ.get("JAVA_HOME")
    program = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if program is None:
        yield "Java", None, "not found", "For Spark: install Java 17 or 21, and set JAVA_HOME."
        return
    try:
        printed = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as exc:
        yield "Java", False, f"{program}: {exc}", "Set JAVA_HOME to a folder with bin/java."
        return
    match = re.search(r'version "(\d+)', printed.stderr)
    number = int(match[1]) if match else 0
    fits = number >= _OLDEST_JAVA
    advice = None if fits else f"Spark 4 needs Java {_OLDEST_JAVA} or newer: set JAVA_HOME."
    yield "Java", fits, f"{number or 'unknown'} ({program})", advice


def _spark() -> Iterator[_Row]:
    found = _version_of("pyspark")
    if found is None:
        yield "PySpark", None, "not installed", "For Spark: pip install 'plake[spark]'."
        return
    fits = tuple(int(part) for part in re.findall(r"\d+", found)[:2]) >= _OLDEST_SPARK
    yield "PySpark", fits, found, None if fits else "Install PySpark 4.1 or newer."
    # The folder by the package's place: its module imports PySpark.
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    folder = os.path.join(here, "spark", "planner")
    jars = [name for name in os.listdir(folder) if name.endswith(".jar")]
    advice = None if jars else "Reinstall plake: without its jar Spark cannot prune."
    yield "extension", bool(jars), ", ".join(jars) or "no jar", advice
    in_place, advice = _is_configured(jars)
    yield "spark-defaults.conf", in_place, "has the extension" if in_place else "lacks it", advice


def _is_configured(jars: list[str]) -> tuple[bool | None, str | None]:
    """Tell whether Spark's configuration file names the extension. A session may do it too."""
    folder = os.environ.get("SPARK_CONF_DIR")
    home = os.environ.get("SPARK_HOME")
    folder = folder or (os.path.join(home, "conf") if home else None)
    try:
        with open(os.path.join(folder or "", "spark-defaults.conf"), encoding="utf-8") as file:
            text = file.read()
        if any(jar in text for jar in jars):
            return True, None
    except OSError:
        pass
    return None, "Call lake.spark.configure(builder) or lake.spark.enable(spark) in each session."


def _catalog_rows(url: str | None) -> Iterator[_Row]:
    if url is None and not os.environ.get("PLAKE_CATALOG"):
        yield "catalog", None, "none is set", "Set PLAKE_CATALOG, or give --catalog."
        return
    try:
        with Given("", url, {}).names() as catalog:
            count = len(catalog.datasets())
            yield "catalog", True, f"{catalog.redacted_url}: datasets with a name: {count}", None
    except PlakeError as error:
        yield "catalog", False, f"{error.code}: {error}", "Correct the URL, or start its server."


def _version_of(package: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None

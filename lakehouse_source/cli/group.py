"""Door. The group of all commands, built when asked for, and those that are not one operation."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from importlib import import_module

import click

from lakehouse_source import __version__
from lakehouse_source.cli.build import FOUND_SOMETHING, Given, Shared, command_of, common
from lakehouse_source.cli.commands import CATALOG, COMMANDS
from lakehouse_source.cli.output import write_rows
from lakehouse_source.errors import PlakeError

# The modules of commands that are not just one operation; in its module, a function has the name of
# the command.
_OWN = {
    "changes": "rows",
    "completion": "group",
    "doctor": "group",
    "maintain": "services",
    "scan": "rows",
    "serve": "services",
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

    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(PLAKE, {}, "plake", "_PLAKE_COMPLETE").source())


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

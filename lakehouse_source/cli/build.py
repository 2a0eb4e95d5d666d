"""Door. Makes a command of an operation: its dataset, arguments, options, help and question."""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import wraps
from io import StringIO
from typing import TYPE_CHECKING, Any

import click

from lakehouse_source.cli.commands import Command, Flag
from lakehouse_source.cli.output import write_rows
from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.operations import OPERATIONS
from lakehouse_source.operations.entry import Call, Operation, Parameter, Subject
from lakehouse_source.pictures.markup import visible
from lakehouse_source.result_tables import Type

if TYPE_CHECKING:
    from lakehouse_source.catalog.qualified_names import QualifiedName
    from lakehouse_source.dataset import Dataset
    from lakehouse_source.datasets import DatasetCatalog
    from lakehouse_source.read.address import Address


# --- What a command is about: a path, a URI, or a name in the catalog.


CATALOG = "PLAKE_CATALOG"


@dataclass(frozen=True, slots=True)
class Given:
    """A dataset as it was given, with the catalog and the storage options that were given.

    `creates`: a catalog that is not there is made.
    """

    text: str
    catalog: str | None
    storage: Mapping[str, str]
    creates: bool = False

    @property
    def is_path(self) -> bool:
        has_catalog = self.catalog is not None or bool(os.environ.get(CATALOG))
        return not has_catalog or any(c in self.text for c in "/:~") or self.text.startswith(".")

    def address(self) -> Address:
        from lakehouse_source.read.address import Address

        return Address.named(self.text, self.catalog, self.storage or None)

    def dataset(self) -> Dataset:
        """The dataset at its newest version."""
        from lakehouse_source.dataset import Dataset

        return Dataset(self.address())

    def name(self) -> QualifiedName:
        from lakehouse_source.catalog.qualified_names import parse_name

        if self.is_path:
            raise InvalidOptionError(
                option="DATASET",
                value=self.text,
                reason="must be a name in a catalog. Give the catalog by --catalog or the "
                f"variable {CATALOG}.",
            )
        return parse_name(self.text)

    def other(self, given: str) -> Given:
        return replace(self, text=given)

    def storage_options(self) -> Mapping[str, str] | None:
        return self.storage or None

    @contextmanager
    def names(self) -> Iterator[DatasetCatalog]:
        from lakehouse_source.datasets import open_catalog

        catalog = open_catalog(self.catalog, create=self.creates)
        try:
            yield catalog
        finally:
            catalog.release()


FOUND_SOMETHING = 3


class Moment(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A time in ISO 8601; one without a zone is in UTC."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        try:
            found = datetime.fromisoformat(str(value).replace("Z", "+00:00"))
        except ValueError:
            self.fail(f"{value!r} is no time such as 2026-11-24T02:00:00Z.", param, ctx)
        return found if found.tzinfo is not None else found.replace(tzinfo=timezone.utc)


_TYPES: Mapping[Type, Any] = {
    Type.TEXT: click.STRING,
    Type.TEXTS: click.STRING,
    Type.INT: click.INT,
    Type.LONG: click.INT,
    Type.DOUBLE: click.FLOAT,
    Type.TIMESTAMP: Moment(),
}


@dataclass(frozen=True, slots=True)
class Shared:
    """What was given for the options that every command has."""

    catalog: str | None
    storage: tuple[str, ...]
    output: str
    quiet: bool

    def target(self, text: str = "", *, creates: bool = False) -> Given:
        """The dataset that an argument of the command means."""
        options = {}
        for one in self.storage:
            name, equals, value = one.partition("=")
            if not equals:
                raise click.UsageError("--storage must be NAME=VALUE.")
            options[name] = value
        return Given(text, self.catalog, options, creates)


def common(
    outputs: tuple[str, ...] = ("table", "json", "csv"),
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The options that every command has, which a function gets as one value."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @wraps(function)
        def run(
            catalog: str | None, storage: tuple[str, ...], output: str, quiet: bool, **values: Any
        ) -> None:
            function(Shared(catalog, storage, output, quiet), **values)

        for option in (
            click.option("--quiet", "-q", is_flag=True, help="Show no progress."),
            click.option(
                "--output",
                "-o",
                type=click.Choice(outputs),
                default="table",
                show_default=True,
                help="How results are shown.",
            ),
            click.option(
                "--storage",
                multiple=True,
                metavar="NAME=VALUE",
                help="A storage option; env:NAME takes its value from a variable. Repeatable.",
            ),
            click.option(
                "--catalog",
                metavar="URL",
                help="The catalog, such as sqlite:////data/lake.db or env:PLAKE_NAME; by default "
                "the variable PLAKE_CATALOG, or the one in the dataset's folder.",
            ),
        ):
            run = option(run)
        return run

    return decorate


def confirm(what: str, yes: bool) -> None:
    """Ask before something is deleted, or refuse where nobody can answer."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{what} Add --yes to do it without a question.")
    if not click.confirm(f"{what} Go on?", err=True):
        click.echo("nothing was done", err=True)
        raise click.exceptions.Exit(1)


def listed(texts: tuple[str, ...]) -> list[str]:
    """The names in an option that takes several, with commas; one with a comma is quoted.

    Raises:
        UsageError: a quote is open, or a text holds what no name has.
    """
    found = list[str]()
    for text in texts:
        try:
            rows = list(csv.reader(StringIO(text, newline=""), skipinitialspace=True, strict=True))
        except csv.Error as exc:
            raise click.UsageError(f"{text!r} is no list of names: {exc}") from exc
        found += [name.strip() for row in rows for name in row]
    return found


def command_of(spec: Command) -> click.Command:
    """The command of an operation, and of those that run by its flags."""
    operation = OPERATIONS[spec.operation]
    parameters = list(operation.parameters)
    decorators: list[Callable[[Any], Any]] = []
    if spec.has_source:
        decorators.append(click.argument("source"))
    if operation.subject is not Subject.NONE:
        subject = operation.subject.name
        shown = subject if subject in ("NAME", "FOLDER") else "DATASET"
        decorators.append(click.argument(parameters.pop(0).name, metavar=shown))
    by_name = {one.name: one for one in parameters}
    decorators += [_argument(by_name.pop(name), spec) for name in spec.arguments]
    if "paths" in spec.arguments:
        by_name.pop("path", None)
    decorators += [_option(one, spec) for one in by_name.values()]
    decorators += [_flag(name, flag.help) for name, flag in spec.flags.items()]
    if spec.confirms is not None or any(flag.confirms for flag in spec.flags.values()):
        decorators.append(click.option("--yes", "-y", is_flag=True, help="Do not ask."))
    if operation.write_page is not None:
        text = "Also write a page with pictures to a file; an existing file is replaced."
        decorators.append(click.option("--html", metavar="FILE", help=text))
    if spec.checks_on_request:
        decorators.append(_flag("check", "End with the code 3 where upkeep is worth doing."))

    def run(shared: Shared, **values: Any) -> None:
        _run(spec, operation, shared, values)

    function: Any = common()(run)
    for decorator in reversed(decorators):
        function = decorator(function)
    help_text = f"{spec.help or operation.description}\n\n\b\nExample:\n  {spec.example}"
    short = operation.description.partition(". ")[0].rstrip(".")
    short_help = spec.short_help or (None if spec.help else short)
    return click.command(name=spec.name, help=help_text, short_help=short_help)(function)


def _argument(parameter: Parameter, spec: Command) -> Callable[[Any], Any]:
    name, several = parameter.name.upper(), parameter.type is Type.TEXTS
    required = (parameter.required or several) and parameter.name not in spec.needs
    shown = name.removesuffix("S") + "..." if several else name if required else f"[{name}]"
    return click.argument(
        parameter.name,
        type=_TYPES[parameter.type],
        nargs=-1 if several else 1,
        required=required,
        metavar=spec.metavars.get(parameter.name, shown),
    )


def _flag(name: str, text: str) -> Callable[[Any], Any]:
    return click.option(f"--{name.replace('_', '-')}", is_flag=True, help=text)


def _option(parameter: Parameter, spec: Command) -> Callable[[Any], Any]:
    name = f"--{parameter.name.replace('_', '-')}"
    text = f"{parameter.comment[:1].upper()}{parameter.comment[1:]}."
    text = spec.texts.get(parameter.name, text)
    if parameter.type is Type.FLAG:
        if parameter.default is not None:
            return _flag(parameter.name, text)
        return click.option(f"{name}/--no-{name[2:]}", default=None, help=text)
    several = parameter.type is Type.TEXTS
    if several:
        how = "With commas, or" if parameter.name in spec.split else "May be"
        text += f" {how} repeated."
    # A default of None would be a value, and no option would be missed.
    default = parameter.default
    shown: dict[str, Any] = {} if default is None else {"default": default, "show_default": True}
    return click.option(
        name,
        type=_TYPES[parameter.type],
        multiple=several,
        required=parameter.required and parameter.name not in spec.needs,
        metavar=spec.metavars.get(parameter.name),
        help=text,
        **shown,
    )


def _given(spec: Command, operation: Operation, values: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that were given for parameters of an operation."""
    types = {one.name: one.type for one in operation.parameters}
    found = {}
    for name, value in values.items():
        if types[name] is Type.TEXTS:
            value = listed(value) if name in spec.split else list(value)
            value = value or None
        if value is not None:
            found[name] = value
    return found


def _chosen(
    spec: Command, operation: Operation, arguments: dict[str, Any], flags: Sequence[Flag]
) -> tuple[Operation, dict[str, Any], str | None]:
    """The operation that runs, its arguments, and the question before it."""
    confirms = spec.confirms
    if flags:
        operation, confirms = OPERATIONS[flags[0].operation], flags[0].confirms
    if spec.lists and not flags and not any(name in arguments for name in spec.needs):
        return OPERATIONS[spec.lists], {}, None
    if "name" in arguments:  # whatever it is the name of
        arguments[operation.parameters[1].name] = arguments.pop("name")
    missing = [
        one.name
        for one in operation.parameters[1:]
        if one.required and one.name not in arguments and spec.needs
    ]
    if len(flags) > 1 or missing:
        raise click.UsageError(spec.misused or f"{' and '.join(missing)} must be given too.")
    known = {one.name for one in operation.parameters}
    return operation, {key: arguments[key] for key in arguments if key in known}, confirms


def _run(spec: Command, operation: Operation, shared: Shared, values: dict[str, Any]) -> None:
    yes, checks = values.pop("yes", False), values.pop("check", not spec.checks_on_request)
    html = values.pop("html", None)
    flags = [flag for name, flag in spec.flags.items() if values.pop(name)]
    if spec.has_source:
        if shared.catalog is not None:
            raise click.UsageError("SOURCE is the catalog: --catalog cannot be given too.")
        shared = replace(shared, catalog=values.pop("source"))
    subject = ""
    if operation.subject is not Subject.NONE:
        subject = values.pop(operation.parameters[0].name)
    target = shared.target(subject, creates=operation.subject is Subject.NEW)
    operation, arguments, confirms = _chosen(
        spec, operation, _given(spec, operation, values), flags
    )
    call = Call(target, arguments, False if shared.quiet else None)
    names = [column.name for column in operation.columns]
    if confirms is not None and not arguments.get("dry_run", False):
        can_try = any(one.name == "dry_run" for one in operation.parameters)
        if can_try and not yes and sys.stdin.isatty():
            would = operation.run(Call(target, {**arguments, "dry_run": True}, False))
            write_rows(names, list(would), "table", to=sys.stderr)
        confirm(confirms.format(**arguments), yes)
    if html is not None and operation.write_page is not None:
        operation.write_page(call, html)
        if not shared.quiet:
            click.echo(f"wrote {visible(html)}", err=True)
    if operation.text is not None and shared.output == "table":
        click.echo("\n".join(map(visible, operation.text(call).splitlines())))
        return
    rows = [tuple(row) for row in operation.run(call)]
    if operation.name == "refs":
        rows = [row for row in rows if row[names.index("type")] == spec.kind]
    write_rows(names, rows, shared.output, upright=spec.upright and not flags)
    if spec.done is not None:
        click.echo(spec.done, err=True)
    if checks and any(spec.finds(dict(zip(names, row))) for row in rows if spec.finds):
        raise click.exceptions.Exit(FOUND_SOMETHING)

"""Pure. How an operation is declared, as one function, and what a door gives to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from datetime import datetime
from enum import Enum
from functools import cache, partial
from importlib import import_module
from inspect import Parameter as Argument
from inspect import cleandoc, signature
from itertools import chain
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Protocol, get_args

from lakehouse_source.result_tables import Column, Type

if TYPE_CHECKING:  # PyArrow takes longer to import than help takes to show
    from lakehouse_source.catalog.qualified_names import QualifiedName
    from lakehouse_source.dataset import Dataset
    from lakehouse_source.datasets import DatasetCatalog
    from lakehouse_source.read.address import Address


class Subject(Enum):
    """What the first parameter of an operation is. NONE: it is about the catalog."""

    DATASET = "a dataset, by its name, path or URI"
    FOLDER = "a folder or URI, in which no dataset is yet"
    NAME = "a name in the catalog"
    NEW = "a new dataset, by its name or path"
    NONE = "nothing"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of an operation. `default` None: no value, unless the parameter is `required`."""

    name: str
    type: Type
    comment: str
    default: str | bool | float | None = None
    required: bool = False


class Target(Protocol):
    """What an operation is about, as a door found it."""

    @property
    def is_path(self) -> bool:
        """Tell whether the dataset is known by its path or URI, and not by its name."""

    def address(self) -> Address:
        """Where the dataset is; each call looks it up again.

        Raises:
            DatasetNotFoundError, InvalidOptionError
        """

    def name(self) -> QualifiedName:
        """The name that was given.

        Raises:
            InvalidOptionError: the text is not a name in the catalog.
        """

    def other(self, given: str) -> Target:
        """What a further argument names, in the same way."""

    def names(self) -> AbstractContextManager[DatasetCatalog]:
        """The catalog that has the names.

        Raises:
            InvalidOptionError: no catalog is set.
        """

    def storage_options(self) -> Mapping[str, Any] | None:
        """The storage options for the object stores of the catalog's datasets."""


@dataclass(frozen=True, slots=True)
class Call:
    """The subject of a call, and the other arguments that were given.

    `progress`: whether bars are shown, as in `write_dataset`.
    """

    target: Target
    arguments: Mapping[str, Any]
    progress: bool | None = False

    def dataset(self) -> Dataset:
        """The dataset at its newest version."""
        from lakehouse_source.dataset import Dataset

        return Dataset(self.target.address())


Rows = Iterable[Any]


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation. Its first parameter, where `subject` is not NONE, is what it is about.

    `run` returns rows with the values of `columns`. `changes_rows`: the dataset may show other rows
    after it. `is_called`: CALL offers it; Spark SQL has a statement, a query or a metadata table
    for each of the others. `text` returns what people see instead of many rows, and `write_page`
    writes pictures of the result to a file.
    """

    name: str
    description: str
    parameters: tuple[Parameter, ...]
    members: tuple[Column | str, ...]
    run: Callable[[Call], Rows]
    subject: Subject
    changes_rows: bool = False
    is_called: bool = True
    text: Callable[[Call], str] | None = None
    write_page: Callable[[Call, str], None] | None = None

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the rows."""
        found = (_reported(one) if isinstance(one, str) else (one,) for one in self.members)
        return tuple(chain.from_iterable(found))


# All operations that were declared. `listing` has them by name.
DECLARED: list[Operation] = []
_TYPES: Mapping[Any, Type] = {
    str: Type.TEXT,
    bool: Type.FLAG,
    int: Type.LONG,
    float: Type.DOUBLE,
    datetime: Type.TIMESTAMP,
    list[str]: Type.TEXTS,
    tuple[str, ...]: Type.TEXTS,
    tuple[int, ...]: Type.LONGS,
}


def operation(
    *columns: Column | str, **choices: Any
) -> Callable[[Callable[..., object]], Operation]:
    """Make an operation of the function that does its work.

    The first parameter is the call: its annotation names the subject and says what it is (`Table`);
    a plain `Call` is about the catalog. The annotation of each other parameter has the type and a
    comment; where None is the default, the verb's own default is taken. The module must not
    postpone annotations. The function returns rows, or one value with an attribute for each
    column; a row is a sequence, or a mapping by the names of columns. In place of columns stands
    the dataclass of a report, whose fields with comments they are: its module is imported late.
    `choices` are the other fields of `Operation`.
    """

    def declare(work: Callable[..., object]) -> Operation:
        first, *others = signature(work).parameters.values()
        subject, *comment = get_args(first.annotation)[1:] or (Subject.NONE,)
        about = [Parameter(first.name, Type.TEXT, one, required=True) for one in comment]

        def run(call: Call) -> Iterator[Sequence[Any]]:
            found = work(call, **call.arguments)
            for row in found if isinstance(found, Iterable) else (found,):
                if isinstance(row, Sequence):
                    yield row
                else:
                    by_name = row.__getitem__ if isinstance(row, Mapping) else partial(getattr, row)
                    yield [by_name(one.name) for one in entry.columns]

        entry = Operation(
            name=work.__name__.rstrip("_"),
            description=" ".join(cleandoc(work.__doc__ or "").split()),
            parameters=(*about, *map(_parameter, others)),
            members=columns,
            run=run,
            subject=subject,
            **choices,
        )
        DECLARED.append(entry)
        return entry

    return declare


def _parameter(argument: Argument) -> Parameter:
    required = argument.default is Argument.empty
    default = None if required else argument.default
    return Parameter(argument.name, *_declared(argument.annotation), default, required)


def _declared(annotation: Any) -> tuple[Type, str]:
    """The type and the comment of a parameter or a field."""
    kind, *types, comment = get_args(annotation)
    if isinstance(kind, UnionType):  # with None
        kind = get_args(kind)[0]
    return [*types, _TYPES[kind]][0], comment


@cache
def _reported(report: str) -> tuple[Column, ...]:
    """The fields of a report that have comments. Its module postpones annotations."""
    path, _, name = report.rpartition(".")
    module = import_module(f"lakehouse_source.{path}")
    found = ((one.name, str(one.type)) for one in fields(getattr(module, name)))
    return tuple(
        Column(name, *_declared(eval(annotation, vars(module))))
        for name, annotation in found
        if annotation.startswith("Annotated[")
    )


Table = Annotated[Call, Subject.DATASET, "the table's name, or its path or URI"]
VERSION = Column("version", Type.LONG, "the version that is the newest now")

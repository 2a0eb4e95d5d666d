"""Pure. An entry of the list of operations, and what a door gives to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:  # PyArrow takes longer to import than help takes to show
    from lakehouse_source.catalog.qualified_names import QualifiedName
    from lakehouse_source.dataset import Dataset
    from lakehouse_source.datasets import DatasetCatalog
    from lakehouse_source.read.address import Address


class Type(Enum):
    """The types of parameters and of columns, which each door translates."""

    TEXT = "text"
    FLAG = "true or false"
    INT = "integer of 32 bits"
    LONG = "integer of 64 bits"
    DOUBLE = "number"
    TIMESTAMP = "time with a zone, in microseconds"
    TEXTS = "list of texts"
    LONGS = "list of integers of 64 bits"
    JSON = "a value that JSON holds"


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


@dataclass(frozen=True, slots=True)
class Column:
    """A column of an operation's rows."""

    name: str
    type: Type
    comment: str


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


Rows = Iterable[Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation. Its first parameter, where `subject` is not NONE, is what it is about.

    `run` returns rows with the values of `columns`. `changes_rows`: the dataset may show other rows
    after it. `is_called`: CALL offers it; Spark SQL has a statement, a query or a metadata table
    for each of the others. `told` returns what people see instead of many rows, and `write_page`
    writes pictures of the result to a file.
    """

    name: str
    description: str
    parameters: tuple[Parameter, ...]
    columns: tuple[Column, ...]
    run: Callable[[Call], Rows]
    subject: Subject = Subject.DATASET
    changes_rows: bool = False
    is_called: bool = True
    told: Callable[[Call], str] | None = None
    write_page: Callable[[Call, str], None] | None = None


TABLE = Parameter("table", Type.TEXT, "the table's name, or its path or URI", required=True)
VERSION = Column("version", Type.LONG, "the version that is the newest now")
WRITTEN = (
    VERSION,
    Column("files", Type.LONG, "files that the version added"),
    Column("row_count", Type.LONG, "rows that the version added"),
    Column("schema_version", Type.LONG, "the version at which the schema came into force"),
)

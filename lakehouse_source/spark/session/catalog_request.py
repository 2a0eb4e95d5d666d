"""Door. The requests of Spark's catalog, and the places of their tables."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from lakehouse_source.catalog.locate import VARIABLE
from lakehouse_source.catalog.qualified_names import (
    DEFAULT_NAMESPACE,
    QualifiedName,
    split_name,
)
from lakehouse_source.catalog.same_place import default_catalog_path
from lakehouse_source.datasets import DatasetCatalog, open_catalog
from lakehouse_source.errors import (
    DatasetNotFoundError,
    InvalidOptionError,
    NamespaceNotFoundError,
)
from lakehouse_source.read.address import Address
from lakehouse_source.spark.protocol.vocabulary import Message, RequestKey, RequestKind
from lakehouse_source.spark.protocol.vocabulary import Place as Where
from lakehouse_source.spark.session.secrets import (
    PREFIX,
    catalog_of_query,
    check_no_secrets,
    split_storage_options,
)
from lakehouse_source.storage import canonical_uri, local_path, with_branch

_BRANCH = "branch_"


@dataclass(frozen=True)
class Request:
    """A request with the options of the catalog that asks it.

    `catalog`: the URL of plake's catalog, concealed if it holds a password. `frame`: options of
    one query. `storage`: storage options without their prefix.
    """

    body: Mapping[str, Any]
    catalog: str | None
    warehouse: str | None
    storage: Mapping[str, str]
    frame: Mapping[str, str]

    @classmethod
    def of(cls, body: Mapping[str, Any], options: Mapping[str, str]) -> Request:
        """The request in the options of a data source, whose names are in lower case."""
        others, storage = split_storage_options(options)
        frame = {k: v for k, v in others.items() if k not in (Where.CATALOG, Where.WAREHOUSE)}
        catalog, warehouse = others.get(Where.CATALOG), others.get(Where.WAREHOUSE)
        return cls(body, catalog or None, warehouse or None, storage, frame)

    @property
    def identifier(self) -> tuple[str, ...]:
        """The parts of the table's name, the namespace first, without a branch and later parts."""
        return self._parts[0]

    @property
    def branch(self) -> str | None:
        """The branch in the name: `audit` of `sales.orders.branch_audit`."""
        return self._parts[1]

    @property
    def metadata_table(self) -> str | None:
        """The metadata table in the name: `files` of `sales.orders.files` or `/path`.`files`."""
        return self._parts[2]

    @property
    def _parts(self) -> tuple[tuple[str, ...], str | None, str | None]:
        given = tuple(self.body.get(RequestKey.IDENTIFIER, [""]))
        count = _levels(given)
        parts, further = given[:count], list(given[count:])
        branch = metadata = None
        if further and further[0].lower().startswith(_BRANCH) and len(further[0]) > len(_BRANCH):
            branch = further.pop(0)[len(_BRANCH) :]
        if further and further[0].lower() in _metadata_tables():
            metadata = further.pop(0).lower()
        # There are more parts than levels, and an error names all parts.
        return ((*parts, *further), branch, metadata)

    @property
    def is_path(self) -> bool:
        """Tell whether the table is known by its path. `PlakeCatalog.java` has the same rule."""
        return len(self.identifier) == 1 and "/" in self.identifier[0]

    @property
    def name(self) -> QualifiedName:
        """The table's namespace and name.

        Raises:
            InvalidOptionError: the namespace has several levels.
        """
        return qualified(self.identifier)

    def require_table(self) -> None:
        """Refuse a metadata table.

        Raises:
            InvalidOptionError: the name is that of a metadata table.
        """
        if self.metadata_table is not None:
            raise InvalidOptionError(
                option="table",
                value=self.shown,
                reason="tells about a table. It can be read only.",
            )

    def about(self, table: str) -> Request:
        """The request about a table that an argument names, by its path or its name.

        A name is `name`, `namespace.name` or `catalog.namespace.name`, where the catalog is the
        asking catalog of Spark. A name alone is in the session's current namespace.

        Raises:
            InvalidOptionError: the name has an open backtick.
        """
        is_path = "/" in table and "`" not in table
        parts = [table] if is_path else split_name(table)
        last = parts[-1]
        if len(parts) == (2 if "/" in last else 3) and parts[0] == self.body[RequestKey.CATALOG]:
            parts = parts[1:]
        current = self.body.get(RequestKey.CURRENT)
        if len(parts) == 1 and "/" not in last and current:
            parts = [*split_name(current), *parts]
        return replace(self, body={**self.body, RequestKey.IDENTIFIER: parts})

    @property
    def shown(self) -> str:
        """The table's name as Spark shows it."""
        own = (self.body[RequestKey.CATALOG], *self.body[RequestKey.IDENTIFIER])
        parts = self.body.get(RequestKey.SHOWN, own)
        return ".".join(map(_quoted, parts))


@dataclass(frozen=True)
class Place:
    """Where a table is. `catalog` is concealed; None: the catalog of the path."""

    path: str
    catalog: str | None
    storage: Mapping[str, str]

    def address(self) -> Address:
        """The address for plake's own functions."""
        check_no_secrets(self.path, self.storage)
        return Address(self.path, catalog_of_query(self.catalog), self.storage)

    def options(self) -> dict[str, str]:
        """The options by which the data source finds the table."""
        found = {Where.PATH: self.path}
        if self.catalog is not None:
            found[Where.CATALOG] = self.catalog
        return found | {PREFIX + name: value for name, value in self.storage.items()}


def place_of(request: Request) -> Place:
    """Find a table; in a transaction of the session, its branch.

    Raises:
        DatasetNotFoundError, InvalidOptionError
    """
    place, id = _place_of(request), request.body.get(Message.TRANSACTION)
    if id is None or request.body[RequestKey.COMMAND] == RequestKind.LOAD_CHANGES:
        return place
    from lakehouse_source.spark.session.transaction import routed

    version, time = request.body.get(RequestKey.VERSION), request.body.get(RequestKey.MICROSECONDS)
    path = routed(
        id,
        place.path,
        place.catalog,
        place.storage,
        version=version or request.frame.get("versionasof"),
        time=time or request.frame.get("timestampasof"),
    )
    return replace(place, path=path)


def _place_of(request: Request) -> Place:
    _refuse_unknown_metadata_table(request)
    if request.is_path:
        return _place_of_path(request, with_branch(request.identifier[0], request.branch))
    with names_of(request) as catalog:
        path = with_branch(catalog.locate(request.name), request.branch)
        return Place(path, request.catalog, request.storage)


@contextmanager
def names_of(request: Request) -> Iterator[DatasetCatalog]:
    """The plake catalog of Spark's settings, which has the names.

    Raises:
        InvalidOptionError: the settings name no catalog.
    """
    if request.catalog is None and VARIABLE not in os.environ:
        spark_catalog = request.body[RequestKey.CATALOG]
        raise InvalidOptionError(
            option=f"spark.sql.catalog.{spark_catalog}.catalog",
            reason="is not set: tables have names in a catalog of plake. Set it to the URL of "
            "one, such as sqlite:///folder/catalog.db, or to env:NAME. Without it, tables are "
            f"known by their paths: {spark_catalog}.`/data/flights`.",
        )
    catalog = open_catalog(catalog_of_query(request.catalog), warehouse=request.warehouse)
    try:
        yield catalog
    finally:
        catalog.release()


def _refuse_unknown_metadata_table(request: Request) -> None:
    """Refuse a name that continues after the name of a table."""
    count = _levels(request.identifier)
    parts, further = request.identifier[:count], request.identifier[count:]
    if not further:
        return
    table = replace(request, body={**request.body, RequestKey.IDENTIFIER: parts})
    with suppress(DatasetNotFoundError, NamespaceNotFoundError):
        if knows(_place_of(table)):
            raise InvalidOptionError(
                option="table",
                value=request.shown,
                reason=f"the table has no metadata table {'.'.join(further)!r}.",
                known=_metadata_tables(),
            )


def _metadata_tables() -> Collection[str]:
    # Imported here: few names go on after that of a table.
    from lakehouse_source.read.inspect import SCHEMAS

    return SCHEMAS


def _levels(identifier: Sequence[str]) -> int:
    """How many parts the name of a table has: a path is one, a namespace and a name are two."""
    return 1 if "/" in identifier[0] else 2


def _place_of_path(request: Request, path: str) -> Place:
    """The dataset at a path: in the catalog of Spark's settings, else in the folder's own."""
    place = Place(path, request.catalog, request.storage)
    if request.catalog is not None and has_own_catalog(path) and not knows(place):
        return Place(path, None, request.storage)
    return place


def knows(place: Place) -> bool:
    """Tell whether the catalog of a place has a dataset there."""
    address = place.address()
    try:
        with address.open() as catalog, catalog.read() as reader:
            found = reader.dataset(address.key)
    except DatasetNotFoundError:  # the catalog's file does not exist yet
        return False
    return found is not None and found.current_version > 0


def has_own_catalog(path: str) -> bool:
    folder = local_path(canonical_uri(path))
    return folder is not None and os.path.exists(default_catalog_path(folder))


def _quoted(name: str) -> str:
    plain = name.replace("_", "").isalnum() and name.isascii()
    return name if plain else "`" + name.replace("`", "``") + "`"


def qualified(identifier: Sequence[str]) -> QualifiedName:
    """The namespace and the name of a table, from Spark's parts of the name.

    Raises:
        InvalidOptionError: the namespace has several levels.
    """
    if len(identifier) > 2:
        raise InvalidOptionError(
            option="table",
            value=".".join(map(_quoted, identifier)),
            reason="has too many parts: a table of plake is in one namespace.",
        )
    namespace, name = [DEFAULT_NAMESPACE, *identifier][-2:]
    return namespace, name

"""Door. Answers Spark's catalog about namespaces, the names in them, and views."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from lakehouse_source.catalog import CatalogTransaction
from lakehouse_source.catalog.base import in_transaction
from lakehouse_source.catalog.qualified_names import DEFAULT_NAMESPACE, quoted
from lakehouse_source.datasets import DatasetCatalog
from lakehouse_source.errors import (
    CorruptDatasetError,
    DatasetExistsError,
    DatasetNotFoundError,
    InvalidOptionError,
    NamespaceNotFoundError,
    SchemaMismatchError,
)
from lakehouse_source.spark.protocol.vocabulary import RequestKey, ResponseKey, Stage, View
from lakehouse_source.spark.session.catalog_request import (
    Place,
    Request,
    knows,
    names_of,
    qualified,
)
from lakehouse_source.spark.session.options import on_branch
from lakehouse_source.spark.types import names_a_class


def list_tables(request: Request) -> dict[str, Any]:
    """The names of the tables in a namespace."""
    with names_of(request) as catalog, catalog.read() as reader:
        return {ResponseKey.NAMES: reader.names.dataset_names(namespace_of(request))}


def list_relations(request: Request) -> dict[str, Any]:
    """The names of the tables and of the views in a namespace."""
    with names_of(request) as catalog, catalog.read() as reader:
        namespace, names = namespace_of(request), reader.names
        return {
            ResponseKey.NAMES: names.dataset_names(namespace),
            ResponseKey.VIEWS: names.view_names(namespace),
        }


def list_namespaces(request: Request) -> dict[str, Any]:
    """All namespaces; a namespace contains no others."""
    with names_of(request) as catalog:
        if request.body.get(RequestKey.NAMESPACE):
            catalog.namespace(namespace_of(request))
            return {ResponseKey.NAMES: []}
        return {ResponseKey.NAMES: catalog.namespaces()}


def load_namespace(request: Request) -> dict[str, Any]:
    """The properties of a namespace."""
    with names_of(request) as catalog:
        return {ResponseKey.PROPERTIES: dict(catalog.namespace(namespace_of(request)).properties)}


def create_namespace(request: Request) -> dict[str, Any]:
    """Make a namespace."""
    properties = request.body[RequestKey.PROPERTIES]
    if "location" in properties:
        raise InvalidOptionError(
            option="LOCATION",
            reason="is not for namespaces of plake: give tables a location, or the catalog a "
            "warehouse.",
        )
    with names_of(request) as catalog:
        catalog.create_namespace(namespace_of(request), properties=properties)
    return {}


def alter_namespace(request: Request) -> dict[str, Any]:
    """Set and remove properties of a namespace."""
    with names_of(request) as catalog:
        catalog.set_namespace_properties(namespace_of(request), request.body[RequestKey.PROPERTIES])
    return {}


def drop_namespace(request: Request) -> dict[str, Any]:
    """Remove a namespace."""
    with names_of(request) as catalog:
        catalog.drop_namespace(namespace_of(request), cascade=request.body[RequestKey.CASCADE])
    return {}


def namespace_of(request: Request) -> str:
    """The one level of a namespace.

    Raises:
        NamespaceNotFoundError: the namespace has several levels.
    """
    parts = request.body.get(RequestKey.NAMESPACE, [])
    if len(parts) > 1:
        raise NamespaceNotFoundError(
            namespace=".".join(parts), catalog=request.body[RequestKey.CATALOG]
        )
    return parts[0] if parts else DEFAULT_NAMESPACE


def exists(request: Request) -> dict[str, Any]:
    """Tell whether there is a dataset at a path.

    Raises:
        DatasetExistsError: there is a dataset, and there must be none.
    """
    (path,) = request.identifier
    path = on_branch(path, request.frame.get("branch"))
    place = Place(path, request.catalog, request.storage)
    found = knows(place)
    if found and request.body[RequestKey.MUST_BE_NEW]:
        raise DatasetExistsError(dataset=place.address().uri)
    return {ResponseKey.EXISTS: found, ResponseKey.OPTIONS: place.options()}


def list_views(request: Request) -> dict[str, Any]:
    """The names of the views in a namespace."""
    with names_of(request) as catalog, catalog.read() as reader:
        return {ResponseKey.NAMES: reader.names.view_names(namespace_of(request))}


def load_view(request: Request) -> dict[str, Any]:
    """The text of a view.

    Raises:
        SchemaMismatchError: Spark would make an object of a class that its columns name.
        CorruptDatasetError: the stored text is not a view.
    """
    if request.is_path or request.metadata_table or len(request.identifier) > 2:
        return {}
    with names_of(request) as catalog, catalog.read() as reader:
        view = reader.names.view(request.name)
        where, is_own = catalog.redacted_url, catalog.is_own()
    if view is None:
        return {}
    try:
        columns = json.loads(view[View.COLUMNS])
    except (KeyError, TypeError, ValueError) as exc:
        raise CorruptDatasetError(
            path=where, reason=f"the view {request.shown} has no columns: {exc}"
        ) from exc
    if names_a_class(columns):
        raise SchemaMismatchError(
            column=request.shown,
            reason="is a view with a column of a type of users",
            hint="Make the view again, with a query that casts the column.",
        )
    return {ResponseKey.VIEW: view, ResponseKey.IS_FOREIGN: not is_own}


def put_view(request: Request) -> dict[str, Any]:
    """Make a view, or replace the text of a view.

    Raises:
        DatasetExistsError, DatasetNotFoundError: the name exists or not, against the kind of stage.
    """
    _refuse_path(request)
    view, kind = request.body[RequestKey.VIEW], request.body[RequestKey.STAGE]

    def put(tx: CatalogTransaction) -> None:
        if kind == Stage.REPLACE and tx.names.view(request.name) is None:
            raise _no_view(request)
        tx.names.put_view(request.name, view, replace=kind != Stage.CREATE)

    with names_of(request) as catalog:
        _change(catalog, put)
    return {}


def drop_view(request: Request) -> dict[str, Any]:
    """Remove a view. Tells whether there was one."""
    if request.is_path:
        return {ResponseKey.EXISTS: False}
    found: list[bool] = []
    with names_of(request) as catalog:
        _change(catalog, lambda tx: found.append(tx.names.remove_view(request.name)))
    return {ResponseKey.EXISTS: found[-1]}


def rename_view(request: Request) -> dict[str, Any]:
    """Give a view another name."""
    _refuse_path(request)
    renamed = request.body[RequestKey.RENAMED]
    if len(renamed) == 3 and renamed[0] == request.body[RequestKey.CATALOG]:
        renamed = renamed[1:]  # as for tables

    def rename(tx: CatalogTransaction) -> None:
        view = tx.names.view(request.name)
        if view is None:
            raise _no_view(request)
        tx.names.remove_view(request.name)
        tx.names.put_view(qualified(renamed), view)

    with names_of(request) as catalog:
        _change(catalog, rename)
    return {}


def _change(catalog: DatasetCatalog, work: Callable[[CatalogTransaction], None]) -> None:
    in_transaction(catalog, catalog.redacted_url, "", work, resolve=False)


def _no_view(request: Request) -> DatasetNotFoundError:
    return DatasetNotFoundError(
        dataset=quoted(request.name), catalog=request.body[RequestKey.CATALOG]
    )


def _refuse_path(request: Request) -> None:
    if request.is_path:
        raise InvalidOptionError(
            option="view", value=request.shown, reason="is a path: views have names."
        )

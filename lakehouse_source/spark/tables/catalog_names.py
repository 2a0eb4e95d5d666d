"""Door. Answers Spark's catalog about namespaces and the names in them."""

from __future__ import annotations

from typing import Any

from lakehouse_source.catalog.qualified_names import DEFAULT_NAMESPACE
from lakehouse_source.errors import DatasetExistsError, InvalidOptionError, NamespaceNotFoundError
from lakehouse_source.spark.protocol.vocabulary import RequestKey, ResponseKey
from lakehouse_source.spark.session.catalog_request import Place, Request, knows, names_of
from lakehouse_source.spark.session.options import on_branch


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

"""Door. Answers Spark's catalog about views: texts that only Spark reads."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from lakehouse_source.catalog import CatalogTransaction
from lakehouse_source.catalog.base import in_transaction
from lakehouse_source.catalog.qualified_names import quoted
from lakehouse_source.datasets import DatasetCatalog
from lakehouse_source.errors import (
    CorruptDatasetError,
    DatasetNotFoundError,
    InvalidOptionError,
    SchemaMismatchError,
)
from lakehouse_source.spark.protocol.vocabulary import RequestKey, ResponseKey, Stage, View
from lakehouse_source.spark.session.catalog_request import Request, names_of, qualified
from lakehouse_source.spark.tables.catalog_names import namespace_of
from lakehouse_source.spark.types import names_a_class


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

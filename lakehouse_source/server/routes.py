"""Door. The paths of the REST catalog, and errors as its specification has them."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lakehouse_source.arguments import whole_number
from lakehouse_source.catalog import Catalog, open_catalog
from lakehouse_source.errors import (
    AccessDeniedError,
    CatalogUnavailableError,
    CommitConflictError,
    DatasetNotFoundError,
    ForeignFolderError,
    IcebergUnsupportedError,
    InvalidOptionError,
    InvalidPredicateError,
    NamespaceNotFoundError,
    PlakeError,
    VersionNotFoundError,
)
from lakehouse_source.iceberg.metadata import NEWEST_VERSIONS
from lakehouse_source.server.guard import HEALTH, LOG, Application, Guard, Metrics
from lakehouse_source.server.tables import Plans, Request, Settings, Tables

if TYPE_CHECKING:
    from lakehouse_source.upkeep.run import Upkeep

_NAMESPACE = "/v1/namespaces/{namespace}"
_TABLE = f"{_NAMESPACE}/tables/{{table}}"
_OFFERED = (
    "GET /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "HEAD /v1/{prefix}/namespaces/{namespace}",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/plan",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/tasks",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/metrics",
)
# Errors about the catalog name the catalog, which clients must not see.
_TEXTS = {
    "NoSuchTableException": "There is no such table.",
    "NoSuchNamespaceException": "There is no such namespace.",
    "NoSuchSnapshotException": "The table has no such snapshot, or it was expired.",
    "ForbiddenException": "The server may not do this in its catalog: see its log.",
    "ServiceUnavailableException": "The catalog cannot be used now: try again later.",
}
_READ_ONLY = "This catalog is read only for clients of Iceberg. Write with plake."
_MOST_PAGE = 1000
# The first that an error is an instance of.
_STATUS: Sequence[tuple[type[PlakeError], int, str]] = (
    (DatasetNotFoundError, 404, "NoSuchTableException"),
    (NamespaceNotFoundError, 404, "NoSuchNamespaceException"),
    (VersionNotFoundError, 404, "NoSuchSnapshotException"),
    (IcebergUnsupportedError, 400, "UnsupportedOperationException"),
    (InvalidPredicateError, 400, "BadRequestException"),
    (InvalidOptionError, 400, "BadRequestException"),
    (AccessDeniedError, 403, "ForbiddenException"),
    (ForeignFolderError, 403, "ForbiddenException"),
    (CatalogUnavailableError, 503, "ServiceUnavailableException"),
    (CommitConflictError, 503, "ServiceUnavailableException"),
)


def app(
    catalog: str | Catalog,
    *,
    token: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    vend_credentials: Mapping[str, str] | None = None,
    newest_versions: int = NEWEST_VERSIONS,
    allowed_hosts: Sequence[str] = (),
    upkeep: Upkeep | None = None,
) -> Application:
    """An ASGI application that serves the named datasets of a catalog, to be read.

    Args:
        catalog: a URL, or an open catalog, which the caller closes.
        token: what clients must give (`Authorization: Bearer …`). None: whoever reaches the server
            may read everything, so let it listen on the loopback interface only.
        storage_options: for datasets in object stores, where the server writes manifests.
        vend_credentials: settings that every client gets with every table, such as
            `s3.access-key-id`. None: none are handed out, and clients use their own. They need a
            token.
        newest_versions: how many of the newest versions are listed as snapshots.
        allowed_hosts: names in `Host` by which clients may call this server, besides those of the
            loopback interface. Empty, with a token: any name.
        upkeep: whose metrics and page are shown too; the caller runs it.

    Raises:
        CatalogUnavailableError: there is no such catalog.
    """
    try:
        from starlette.applications import Starlette
        from starlette.routing import Route
    except ImportError as error:
        raise InvalidOptionError(
            option="server", reason="needs starlette: pip install 'plake[server]'."
        ) from error
    if token is not None and (not isinstance(token, str) or not token.strip()):
        raise InvalidOptionError(option="token", reason="is empty.")
    if vend_credentials and token is None:
        raise InvalidOptionError(
            option="vend_credentials",
            reason="would give keys to whoever reaches the server: give --token env:NAME.",
        )
    whole_number("newest_versions", newest_versions)
    opened = open_catalog(catalog, create=False) if isinstance(catalog, str) else catalog
    settings = Settings(dict(storage_options or {}), dict(vend_credentials or {}), newest_versions)
    metrics = Metrics()
    answers = _Answers(Tables(opened, settings), metrics, upkeep)
    routes = [
        Route(path, answers.guarded(endpoint), methods=list(methods))
        for path, methods, endpoint in answers.paths()
    ]
    application = Starlette(routes=routes, exception_handlers=_handlers())
    return Guard(application, None if token is None else token.strip(), metrics, allowed_hosts)


class _Answers:
    """The answers to requests. Their functions run in threads of a pool."""

    def __init__(self, tables: Tables, metrics: Metrics, upkeep: Upkeep | None) -> None:
        self._tables = tables
        self._plans = Plans(tables)
        self._metrics = metrics
        self._upkeep = upkeep

    def paths(self) -> list[tuple[str, Sequence[str], Callable[..., Any]]]:
        page = [] if self._upkeep is None else [("/upkeep", ("GET",), self._show_upkeep)]
        return [
            *page,
            (HEALTH, ("GET",), self._health),
            ("/metrics", ("GET",), self._show_metrics),
            ("/v1/config", ("GET",), self._config),
            ("/v1/namespaces", ("GET",), self._namespaces),
            (_NAMESPACE, ("GET",), self._namespace),
            (f"{_NAMESPACE}/tables", ("GET",), self._list),
            (f"{_NAMESPACE}/views", ("GET",), self._views),
            (_TABLE, ("GET",), self._table),
            (f"{_TABLE}/plan", ("POST",), self._plan),
            (f"{_TABLE}/tasks", ("POST",), self._tasks),
            (f"{_TABLE}/metrics", ("POST",), self._report),
        ]

    def guarded(self, endpoint: Callable[..., Any]) -> Any:
        """An endpoint that reads the body first and answers errors as JSON."""
        from starlette.concurrency import run_in_threadpool

        async def answer(request: Any) -> Any:
            body = await request.body()
            try:
                return await run_in_threadpool(endpoint, request, body)
            except PlakeError as error:
                return _of_error(error)
            except Exception:  # its text may hold secrets
                LOG.exception("a request failed")
                return error_response(500, "InternalServerError", "See the log of the server.")

        return answer

    # --- the server

    def _health(self, _request: Any, _body: bytes) -> Any:
        self._tables.namespaces()
        return json_response({"status": "ok"})

    def _show_metrics(self, _request: Any, _body: bytes) -> Any:
        from starlette.responses import PlainTextResponse

        more = "" if self._upkeep is None else self._upkeep.metrics
        return PlainTextResponse(self._metrics.text() + more)

    def _show_upkeep(self, _request: Any, _body: bytes) -> Any:
        from starlette.responses import HTMLResponse

        return HTMLResponse("" if self._upkeep is None else self._upkeep.page)

    def _config(self, _request: Any, _body: bytes) -> Any:
        return json_response({"defaults": {}, "overrides": {}, "endpoints": list(_OFFERED)})

    # --- namespaces

    def _namespaces(self, request: Any, _body: bytes) -> Any:
        if request.query_params.get("parent"):
            self._tables.namespace(request.query_params["parent"])
            return json_response({"namespaces": []})
        names, more = _page(request, self._tables.namespaces())
        return json_response({"namespaces": [[name] for name in names], **more})

    def _namespace(self, request: Any, _body: bytes) -> Any:
        name = request.path_params["namespace"]
        properties = dict(self._tables.namespace(name))
        if request.method == "HEAD":
            return _empty()
        return json_response({"namespace": [name], "properties": properties})

    # --- tables

    def _list(self, request: Any, _body: bytes) -> Any:
        namespace = request.path_params["namespace"]
        names, more = _page(request, self._tables.names(namespace))
        identifiers = [{"namespace": [namespace], "name": name} for name in names]
        return json_response({"identifiers": identifiers, **more})

    def _views(self, request: Any, _body: bytes) -> Any:
        self._tables.namespace(request.path_params["namespace"])
        return json_response({"identifiers": []})

    def _address(self, request: Any) -> Any:
        return self._tables.address(
            (request.path_params["namespace"], request.path_params["table"])
        )

    def _table(self, request: Any, _body: bytes) -> Any:
        address = self._address(request)
        if request.method == "HEAD":
            return _empty()
        wanted = request.query_params.get("snapshots", "all")
        if wanted not in ("all", "refs"):
            raise InvalidOptionError(
                option="snapshots", value=wanted, reason="is unknown.", known=("all", "refs")
            )
        state = self._tables.state(address)
        tag = f'"{state.key[:32]}-{wanted}"'
        if tag in [one.strip() for one in request.headers.get("if-none-match", "").split(",")]:
            return _empty(304, {"ETag": tag})
        content = self._tables.loaded(address, state, refs_only=wanted == "refs")
        return raw_response(content, headers={"ETag": tag})

    def _plan(self, request: Any, body: bytes) -> Any:
        wanted = Request.of(_document(body))
        return json_response(self._plans.plan(self._address(request), wanted, _client(request)))

    def _tasks(self, request: Any, body: bytes) -> Any:
        token = _document(body).get("plan-task")
        return json_response(self._plans.tasks(self._address(request), token, _client(request)))

    def _report(self, request: Any, _body: bytes) -> Any:
        self._address(request)
        return _empty()


# --- requests -------------------------------------------------------------------------


def _client(request: Any) -> str:
    """What a client says that it is."""
    return " ".join(request.headers.get(one, "") for one in ("user-agent", "x-client-version"))


def _document(body: bytes) -> Mapping[str, Any]:
    """The JSON object in a body."""
    try:
        found = json.loads(body) if body.strip() else {}
    except (ValueError, RecursionError) as error:
        raise InvalidOptionError(option="body", reason="is no JSON.") from error
    if not isinstance(found, dict):
        raise InvalidOptionError(option="body", reason="is no object of JSON.")
    return found


def _page(request: Any, names: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """A page of names, and the token of the next one."""
    token, size = request.query_params.get("pageToken"), request.query_params.get("pageSize")
    ordered = sorted(names, key=lambda name: (name.lower(), name))
    if token is None and size is None:
        return ordered, {}
    try:
        most = _MOST_PAGE if size is None else int(size[:9])
        after = base64.b64decode(token or "", b"-_", validate=True).decode()
    except (ValueError, binascii.Error, UnicodeDecodeError) as error:
        raise InvalidOptionError(option="pageToken", reason="or pageSize is wrong.") from error
    if most < 1:
        raise InvalidOptionError(option="pageSize", value=most, reason="must be at least 1.")
    most = min(most, _MOST_PAGE)
    rest = [name for name in ordered if not after or (name.lower(), name) > (after.lower(), after)]
    page = rest[:most]
    if len(rest) <= most:
        return page, {}
    return page, {"next-page-token": base64.urlsafe_b64encode(page[-1].encode()).decode()}


# --- answers --------------------------------------------------------------------------


def json_response(document: Any, status: int = 200) -> Any:
    content = json.dumps(document, separators=(",", ":")).encode()
    return raw_response(content, status=status)


def raw_response(
    content: bytes, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Any:
    from starlette.responses import Response

    return Response(
        content, status_code=status, headers=dict(headers or {}), media_type="application/json"
    )


def _empty(status: int = 204, headers: Mapping[str, str] | None = None) -> Any:
    from starlette.responses import Response

    return Response(status_code=status, headers=dict(headers or {}))


def error_response(status: int, kind: str, text: str) -> Any:
    return json_response({"error": {"message": text, "type": kind, "code": status}}, status)


def _of_error(error: PlakeError) -> Any:
    for kind, status, name in _STATUS:
        if isinstance(error, kind):
            if status in (403, 503):
                LOG.warning("%s: %s", error.code, error)
            return error_response(status, name, _TEXTS.get(name, str(error)))
    LOG.error("%s: %s", error.code, error)
    return error_response(500, "InternalServerError", "See the log of the server.")


def _handlers() -> dict[Any, Any]:
    """The answer where no endpoint fits the request."""

    async def not_found(request: Any, _error: Exception) -> Any:
        if request.method in ("GET", "HEAD"):
            return error_response(404, "NotFoundException", "There is no such path.")
        return error_response(406, "UnsupportedOperationException", _READ_ONLY)

    async def wrong_method(_request: Any, _error: Exception) -> Any:
        return error_response(406, "UnsupportedOperationException", _READ_ONLY)

    return {404: not_found, 405: wrong_method}

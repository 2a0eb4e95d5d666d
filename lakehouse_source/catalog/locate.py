"""Catalog URLs: their default and their meaning."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl, quote, unquote

from lakehouse_source.catalog.backends.sqlite import SqliteCatalog
from lakehouse_source.catalog.base import Catalog, redact
from lakehouse_source.catalog.same_place import (
    CATALOG_FILE,
    OWN_KEY,
    default_catalog_path,
    same_place,
)
from lakehouse_source.errors import InvalidOptionError, needs_package
from lakehouse_source.storage import RESERVED_FOLDER, UriOfCatalog, local_path
from lakehouse_source.storage.options import how_to_permit, may_be_read, variable_named

VARIABLE = "PLAKE_CATALOG"
KNOWN = (
    "sqlite:///absolute/path.db",
    "postgresql://user@host/database",
    "duckdb:///absolute/path.db",
    "env:NAME",
)

_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*):")


@lru_cache(maxsize=64)  # every read opens its catalog
def _default_url(dataset_uri: str | None) -> str | None:
    """The URL of the catalog that a dataset has in its own folder by default."""
    if dataset_uri is None or not dataset_uri.startswith("file:///"):
        return None
    folder = (local_path(dataset_uri) or "").rstrip("/")
    return "sqlite://" + quote(default_catalog_path(folder), safe="/")


def _resolved(url: str | None, dataset_uri: str | None) -> tuple[str, str | None]:
    """The URL, and `env:NAME` if it came from a variable, whose value is not shown."""
    named = None
    if url is None:
        url = os.environ.get(VARIABLE) or None
        named = None if url is None else f"env:{VARIABLE}"
    if url is None:
        url = _default_url(dataset_uri)
        if url is None:
            raise InvalidOptionError(
                option="catalog",
                reason="is missing, and only local datasets have a default. Name one: option "
                f"'catalog', argument catalog=, or environment variable {VARIABLE}.",
                known=KNOWN,
            )
        return url, None
    if not isinstance(url, str):
        raise InvalidOptionError(
            option="catalog", value=url, reason="is not a catalog URL.", known=KNOWN
        )
    name = variable_named(url)
    if name is None:
        return url, named
    given = f"env:{name}"
    if not may_be_read(name):
        raise InvalidOptionError(
            option="catalog",
            value=given,
            reason=f"the environment variable {name!r} {how_to_permit(name)}",
        )
    value = os.environ.get(name, "")
    if not value or variable_named(value) is not None:
        raise InvalidOptionError(
            option="catalog",
            value=given,
            reason=f"the environment variable {name!r} holds no catalog URL.",
        )
    return value, given


def open_catalog(
    url: str | Catalog | None, *, dataset_uri: str | None = None, create: bool = True
) -> Catalog:
    """The catalog that a user names; it connects when it is first used.

    An open catalog is returned unchanged. Without a URL: the environment variable
    `PLAKE_CATALOG`, else, for a local `dataset_uri` (canonical), a SQLite file in
    the dataset's `_plake` folder. `env:NAME` reads the variable NAME, if it begins with
    `PLAKE_` or `PLAKE_ENV_ALLOWED` names it. libpq completes the URL of a PostgreSQL database with
    its variables and files (`PGPASSWORD`, `~/.pgpass`), because the calling program named the host.
    A URL that a query of Spark named is not completed. With `create` the catalog's tables (for
    SQLite its file, for the default its folder) are made when they are missing.

    Raises:
        InvalidOptionError: plake does not know this kind of URL.
        DatasetNotFoundError: `create` is False and the file is missing.

    >>> with lake.open_catalog("sqlite:////data/catalog.db") as catalog:
    ...     lake.write_dataset(flights, "/data/all", catalog=catalog).version
    1
    >>> lake.open_catalog("mysql://host/database")
    Traceback (most recent call last):
    lakehouse_source.errors.InvalidOptionError: option 'catalog' (given: 'mysql:...'): ...
    """
    if isinstance(url, Catalog):
        return url
    url, named = _resolved(url, dataset_uri)
    shown = named or redact(url)
    scheme = _scheme_of(url)
    if scheme in ("postgresql", "postgres") and url[len(scheme) :].startswith("://"):
        # Imported here: importing the driver takes longer than reading a local catalog.
        from lakehouse_source.catalog.backends.postgres import PostgresCatalog

        return PostgresCatalog(url, shown, create=create, dataset=dataset_uri)
    if scheme in ("sqlite", "duckdb"):
        path, busy_seconds = _file_parts(url, scheme, shown, dataset_uri)
        given: dict[str, Any] = {"create": create, "dataset": dataset_uri}
        given["shown"] = shown if named is None else None
        if busy_seconds is not None:
            given["busy_seconds"] = busy_seconds
        if scheme == "duckdb":
            return _duckdb_catalog(path, given)
        # Only a new catalog needs its folder made.
        make_folder = create and dataset_uri is not None and _is_default_file(path, dataset_uri)
        return SqliteCatalog(path, make_folder=make_folder, **given)
    reason = "is empty." if not url.strip() else "is not a catalog URL that plake knows."
    raise InvalidOptionError(option="catalog", value=shown, reason=reason, known=KNOWN)


def _duckdb_catalog(path: str, given: dict[str, Any]) -> Catalog:
    try:
        # Imported here: DuckDB is an optional extra and slow to import.
        from lakehouse_source.catalog.backends.duckdb import DuckDBCatalog
    except ModuleNotFoundError as exc:
        raise needs_package("catalog", "duckdb", "duckdb", "duckdb") from exc
    return DuckDBCatalog(path, **given)


def is_default_catalog(catalog: str | Catalog | None, dataset_uri: str) -> bool:
    """Tell whether a catalog is the SQLite file that a dataset has in its own folder by default.

    The file that its URL opens counts, not the spelling. `dataset_uri` is canonical.

    Raises:
        InvalidOptionError: plake does not know this kind of URL.
    """
    if local_path(dataset_uri) is None:
        return False
    if isinstance(catalog, Catalog):
        url, named = catalog.url, None
    else:
        url, named = _resolved(catalog, dataset_uri)
    if _scheme_of(url) != "sqlite":
        return False
    path, _ = _file_parts(url, "sqlite", named or redact(url), dataset_uri)
    return _is_default_file(path, dataset_uri)


def _is_default_file(path: str, dataset_uri: str) -> bool:
    folder = local_path(dataset_uri)
    return folder is not None and same_place(path, default_catalog_path(folder))


def folder_around(catalog: Catalog) -> str | None:
    """The URI of the folder whose default catalog this is; None: it is not known."""
    catalog = catalog.database
    if not isinstance(catalog, SqliteCatalog):
        return None
    inside = f"/{RESERVED_FOLDER}/{CATALOG_FILE}"
    for path in (catalog.path, os.path.realpath(catalog.path)):
        if path.endswith(inside):
            return "file://" + quote(path.removesuffix(inside), safe="/")
    return None


def uri_of(catalog: Catalog, key: str) -> str | None:
    """The URI of a dataset; None where it is the folder around the catalog, which nothing tells."""
    return folder_around(catalog) if key == OWN_KEY else UriOfCatalog(key)


@lru_cache(maxsize=64)
def _scheme_of(url: str) -> str:
    match = _SCHEME.match(url)
    return match.group(1).lower() if match else ""


def _file_parts(
    url: str, scheme: str, shown: str, dataset_uri: str | None
) -> tuple[str, float | None]:
    """The path of the file that a URL names, and the seconds to wait for a lock, if given."""
    path, busy_seconds, is_clear = _parsed_url(url, scheme, shown)
    if not (is_clear or url == _default_url(dataset_uri)):
        _check_not_relative(path, scheme, shown)
    return path, busy_seconds


@lru_cache(maxsize=64)  # every read opens its catalog
def _parsed_url(url: str, scheme: str, shown: str) -> tuple[str, float | None, bool]:
    """The path, the seconds, and whether the path is certainly an absolute one."""
    rest, _, query = url[len(scheme) + 1 :].partition("?")
    path = unquote(rest.removeprefix("//"))
    if not rest.startswith("///") or path.endswith("/") or "\0" in path:
        raise InvalidOptionError(
            option="catalog",
            value=shown,
            reason=f"needs an absolute path to a file: {scheme}:///folder/catalog.db.",
        )
    # Four slashes is how SQLAlchemy writes an absolute path, and three a relative one.
    is_clear = path.startswith("//")
    path = "/" + path.lstrip("/")
    busy_seconds: float | None = None
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name != "timeout":
            raise InvalidOptionError(
                option="catalog",
                value=shown,
                reason=f"has a parameter {name!r}.",
                known=("timeout (seconds to wait for a lock)",),
            )
        try:
            busy_seconds = float(value)
        except ValueError:
            busy_seconds = -1.0
        if not 0 <= busy_seconds <= 3600:
            raise InvalidOptionError(
                option="catalog",
                value=shown,
                reason="its timeout must be a number of seconds from 0 to 3600.",
            )
    return path, busy_seconds, is_clear


def _check_not_relative(path: str, scheme: str, shown: str) -> None:
    """Refuse a URL with three slashes whose path may be meant relative to the current folder.

    Three slashes and an absolute path count like four, except for a new file whose folder also
    exists relative to the current folder.
    """
    if os.path.lexists(path):
        return
    here = os.path.join(os.getcwd(), path[1:])
    in_root = os.path.dirname(path) == "/"
    if here != path and (in_root or os.path.isdir(os.path.dirname(here))):
        raise InvalidOptionError(
            option="catalog",
            value=shown,
            reason=f"may mean {path} or {here}. Write four slashes and the absolute path: "
            f"{scheme}:///{path} or {scheme}:///{here}.",
        )

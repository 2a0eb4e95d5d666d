"""Door. Keeps secrets on the driver, and away from hosts that the application did not name.

Spark pickles the data source, the reader and the writer into every task. They carry a
token instead of a URL with a password. The URL is on the driver, in a file of the session's private
folder, which is deleted with the session.

Only `catalog = env:NAME` hides a password completely, and stores nothing here: Spark prints the
options of a write in errors of its own analysis, without redaction.
"""

from __future__ import annotations

import hmac
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from lakehouse_source.catalog import redact
from lakehouse_source.catalog.base import UrlOfQuery
from lakehouse_source.errors import CatalogUnavailableError, InvalidOptionError
from lakehouse_source.read.address import Address
from lakehouse_source.spark.protocol.vocabulary import Place, Setting
from lakehouse_source.spark.session.options import Options
from lakehouse_source.spark.session.session_folder import (
    KEY,
    NotPrivateError,
    keep,
    kept,
    session_folder,
)
from lakehouse_source.storage.location import check_query, hosts_named
from lakehouse_source.storage.options import allow, gets_secrets, is_from_environment, may_be_secret
from lakehouse_source.storage.uris import scheme_of

_PREFIX = "plake-token:"
_TOKEN = re.compile(r"[0-9a-f]{32}")


def conceal(url: str | None) -> str | None:
    """The URL itself if it holds no password, else a token for it.

    One URL has one token in a session, because Spark compares options. The token is a MAC by a
    random key of the session, so that nobody finds the password by trying.

    Raises:
        CatalogUnavailableError: there is no private place for the URL.
    """
    if url is None or url.startswith((_PREFIX, "env:")) or redact(url) == url:
        return url
    try:
        folder = session_folder()
        token = hmac.digest((folder / KEY).read_bytes(), url.encode(), "sha256").hex()[:32]
        if not (folder / token).exists():
            keep(folder, token, url.encode())
    except (NotPrivateError, OSError) as error:
        raise CatalogUnavailableError(catalog="(concealed)", reason=str(error)) from error
    return _PREFIX + token


def reveal(url: str | None) -> str | None:
    """The URL of a token. Anything else is returned unchanged.

    Raises:
        CatalogUnavailableError: this machine does not have the URL: it is not the driver, or the
            session has ended.
    """
    if url is None or not url.startswith(_PREFIX):
        return url
    token = url[len(_PREFIX) :]
    try:
        found = kept(token) if _TOKEN.fullmatch(token) else None
    except (NotPrivateError, OSError) as error:
        raise CatalogUnavailableError(catalog="(concealed)", reason=str(error)) from error
    if found is None:
        raise CatalogUnavailableError(
            catalog="(concealed)",
            reason="its URL is known on the driver only, while the session lasts; put the URL into "
            "an environment variable of the driver and use catalog 'env:NAME'",
        )
    return found.decode()


# --- The hosts to which a query may send secrets: those that the application itself names.
#
# A query (SQL, options, `SET`) may name any host. The application's own configuration, which no
# query changes, and the environment name the hosts that may get secrets:
# `spark.plake.hosts.allowed`, and the hosts of Spark's configured catalogs. Planning workers get
# that configuration in their environment (`PlakeSource.java`), the program on the driver asks its
# `SparkConf`.


_CATALOGS = "spark.sql.catalog."
_STORAGE = "storage."
_SERVERS = ("postgresql://", "postgres://")


def take_configuration() -> None:
    """Permit what the static configuration of this application permits."""
    _take(_configuration())


def catalog_of_query(url: str | None) -> str | None:
    """The catalog's URL from an option, or from its token (`secrets`).

    The URL is marked (`UrlOfQuery`) unless the configuration names all of its hosts.

    Raises:
        CatalogUnavailableError: this machine does not have the URL: it is not the driver.
    """
    take_configuration()
    url = reveal(url)
    if url is None or not url.lower().startswith(_SERVERS):
        return url
    # Imported here: the driver of the database takes long to import.
    from lakehouse_source.catalog.backends.postgres_address import hosts_of

    hosts = hosts_of(url)
    return url if hosts and all(map(gets_secrets, hosts)) else UrlOfQuery(url)


def allow_hosts_of(spark: Any, url: str) -> None:
    """Add the hosts of a catalog that the program names to the configuration of a session."""
    if not url.lower().startswith(_SERVERS):
        return
    from lakehouse_source.catalog.backends.postgres_address import hosts_of

    conf = spark.sparkContext._jsc.sc().conf()
    listed = conf.get(Setting.HOSTS_ALLOWED, "").split(",")
    hosts = dict.fromkeys(one for one in (*listed, *(hosts_of(url) or ())) if one)
    conf.set(Setting.HOSTS_ALLOWED, ",".join(hosts))


def check_hosts(uri: str, storage: Mapping[str, str]) -> None:
    """Refuse to send secrets to a host that the configuration does not name.

    Raises:
        InvalidOptionError: the URI or an option names such a host.
    """
    take_configuration()
    check_query(uri, storage)


def _configuration() -> dict[str, str]:
    """The parts of the static configuration that name what is permitted."""
    text = os.environ.get(Setting.STATIC)
    if text is not None:
        found = json.loads(text)
        return found if isinstance(found, dict) else {}
    pyspark = sys.modules.get("pyspark")
    context = None if pyspark is None else pyspark.SparkContext._active_spark_context
    if context is None:
        return {}
    return {k: v for k, v in context.getConf().getAll() if k.startswith("spark.")}


def _take(configuration: Mapping[str, str]) -> None:
    allow(
        configuration.get(Setting.ENV_ALLOWED),
        ",".join([configuration.get(Setting.HOSTS_ALLOWED, ""), *_of_catalogs(configuration)]),
    )


def _of_catalogs(configuration: Mapping[str, str]) -> Iterable[str]:
    """The hosts of Spark's catalogs that the configuration sets."""
    catalogs: dict[str, dict[str, str]] = {}
    for key, value in configuration.items():
        name, _, rest = key.removeprefix(_CATALOGS).partition(".")
        if key.startswith(_CATALOGS) and rest:
            catalogs.setdefault(name, {})[rest] = value
    for settings in catalogs.values():
        url = reveal(settings.get(Place.CATALOG))
        if url is not None and url.lower().startswith(_SERVERS):
            from lakehouse_source.catalog.backends.postgres_address import hosts_of

            yield from hosts_of(url) or ()
        storage = {k.removeprefix(_STORAGE): v for k, v in settings.items() if _STORAGE in k}
        yield from hosts_named(settings.get(Place.WAREHOUSE, "/"), storage)


# --- Storage options as options of the data source: `.option("storage.region", "eu-west-1")`.
#
# Spark shows the options of a frame in plans, in its user interface and in errors of its own
# analysis. So a value that may be a secret must be given as `env:NAME`. The driver reads the
# variable; executors get the value in the pickled reader or writer, which Spark does not show or
# log.


PREFIX = "storage."


def split_storage_options(
    options: Mapping[str, str],
) -> tuple[dict[str, str], dict[str, str]]:
    """The options without storage options, and the storage options without their prefix."""
    others: dict[str, str] = {}
    storage: dict[str, str] = {}
    for name, value in options.items():
        if name.lower().startswith(PREFIX):
            storage[name[len(PREFIX) :]] = value
        else:
            others[name] = value
    return others, storage


def check_no_secrets(path: str, storage: Mapping[str, str]) -> None:
    """Refuse secrets among the options of a store, and hosts that may not get any.

    Raises:
        InvalidOptionError: a value may be a secret and is not `env:NAME`, or the application's
            configuration does not name a host that would get a secret.
    """
    for name, value in storage.items():
        if may_be_secret(scheme_of(path), name) and not is_from_environment(value):
            raise InvalidOptionError(
                option=PREFIX + name,
                reason="may be a secret, and Spark shows options in plans and errors. Put the "
                "value into an environment variable of the driver and give 'env:NAME'. Without "
                "this option the executors use what the store's client finds on their machines.",
            )
    check_hosts(path, storage)


def address_in(given: Options, storage: Mapping[str, str]) -> Address:
    """The dataset that the options of a frame name, on the driver.

    Raises:
        InvalidOptionError: there is no path, or see `check_no_secrets`.
        CatalogUnavailableError: this machine does not have the catalog's URL: it is not the driver.
    """
    path = given.path()
    check_no_secrets(path, storage)
    return Address(path, catalog_of_query(given.text("catalog")), storage)

"""Door. The hosts to which a query may send secrets: those that the application itself names.

A query (SQL, options, `SET`) may name any host. The application's own configuration, which no query
changes, and the environment name the hosts that may get secrets: `spark.plake.hosts.allowed`, and
the hosts of Spark's configured catalogs. Planning workers get that configuration in their
environment (`PlakeSource.java`), the program on the driver asks its `SparkConf`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from lakehouse_source.catalog.shown_url import UrlOfQuery
from lakehouse_source.spark.protocol.vocabulary import Place, Setting
from lakehouse_source.spark.session.secrets import reveal
from lakehouse_source.storage.hosts import check_query, hosts_named
from lakehouse_source.storage.permitted import allow, gets_secrets

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
    from lakehouse_source.catalog.backends.postgres.address import hosts_of

    hosts = hosts_of(url)
    return url if hosts and all(map(gets_secrets, hosts)) else UrlOfQuery(url)


def allow_hosts_of(spark: Any, url: str) -> None:
    """Add the hosts of a catalog that the program names to the configuration of a session."""
    if not url.lower().startswith(_SERVERS):
        return
    from lakehouse_source.catalog.backends.postgres.address import hosts_of

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
            from lakehouse_source.catalog.backends.postgres.address import hosts_of

            yield from hosts_of(url) or ()
        storage = {k.removeprefix(_STORAGE): v for k, v in settings.items() if _STORAGE in k}
        yield from hosts_named(settings.get(Place.WAREHOUSE, "/"), storage)

"""Door. Storage options as options of the data source: `.option("storage.region", "eu-west-1")`.

Spark shows the options of a frame in plans, in its user interface and in errors of its own
analysis. So a value that may be a secret must be given as `env:NAME`. The driver reads the
variable; executors get the value in the pickled reader or writer, which Spark does not show or log.
"""

from __future__ import annotations

from collections.abc import Mapping

from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.read.address import Address
from lakehouse_source.spark.session.options import Options
from lakehouse_source.spark.session.static_configuration import catalog_of_query, check_hosts
from lakehouse_source.storage.options import is_from_environment, may_be_secret
from lakehouse_source.storage.uris import scheme_of

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

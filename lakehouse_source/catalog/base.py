"""The catalog as callers see it.

Several threads may use one catalog: each transaction has its own connection.

One thread must not open a `write()` inside its own `read()`: on SQLite the write
would wait for that very read to end.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import NoReturn

from lakehouse_source.catalog.shown_url import redact
from lakehouse_source.catalog.sql.reader import CatalogReader
from lakehouse_source.catalog.sql.session import Session
from lakehouse_source.catalog.sql.writer import CatalogTransaction
from lakehouse_source.errors import (
    InvalidOptionError,
)

__all__ = [
    "Catalog",
    "CatalogReader",
    "CatalogTransaction",
]

# A write from Python has a heartbeat every ten minutes. Spark's executors know no catalog and
# have none: a Spark job may take this long between its first byte and its commit.
ABANDONED_SECONDS = 24 * 3600.0


class Catalog(ABC):
    """One catalog: many datasets, and their history, in one database.

    `url` may hold a password and is for `open_catalog` only; everything that
    people can see uses `redacted_url`. A catalog is not picklable, so that no
    password travels with it.

    >>> with lake.open_catalog("sqlite:////data/flights/_plake/catalog.db") as catalog:
    ...     with catalog.read() as reader:
    ...         [(record.name, record.current_version) for record in reader.datasets()]
    [('flights', 1)]
    """

    url: str
    redacted_url: str

    @property
    def database(self) -> Catalog:
        """The catalog that has the connections: this one, unless it was opened over another one."""
        return self

    # Connections to a server take long to make, and idle ones block nobody.
    is_server = False

    @abstractmethod
    def read(self) -> AbstractContextManager[CatalogReader]:
        """One consistent snapshot for all calls inside the block."""

    def read_autocommit(self) -> AbstractContextManager[CatalogReader]:
        """Like `read`, cheaper for a single call: each call has a snapshot of its own.

        A connection that was lost while idle is a `retryable` error here.
        """
        return self.read()

    @abstractmethod
    def write(self) -> AbstractContextManager[CatalogTransaction]:
        """One database transaction: committed when the block ends, rolled back when it raises.

        Raises:
            CommitAcknowledgementLostError: the connection was lost during COMMIT.
            CatalogUnavailableError: the catalog cannot be reached or locked;
                nothing was committed.
        """

    def still(self) -> AbstractContextManager[CatalogReader]:
        """One snapshot for long work, which does not make writers wait."""
        return self.read()

    def fill(self, ids: Mapping[str, int], work: Callable[[Session], None]) -> None:
        """Make this catalog with the rows that `work` inserts: all of it, or nothing.

        `ids` are the highest ids that were given in each table; later ones are higher.

        Raises:
            InvalidOptionError: there is a catalog already.
            CatalogUnavailableError
        """
        raise NotImplementedError

    def overwrite_free_pages(self) -> tuple[str, ...]:
        """Overwrite what deleted rows left in the database's files.

        Returns sentences about places where the database may still keep them.

        Raises:
            CatalogUnavailableError: other transactions keep the catalog busy.
        """
        return (f"free pages of {self.redacted_url}, which plake cannot overwrite",)

    def is_own(self) -> bool:
        """Tell whether the catalog belongs to who reads it: the user of this process, or a login.

        Texts in a catalog of others, such as views, do not run by themselves.
        """
        return False

    @abstractmethod
    def close(self) -> None:
        """Close the connections. A connection in use is closed when its transaction ends."""

    def release(self) -> None:
        """Close, but keep idle connections that make the next opening fast and disturb nobody."""
        self.close()

    def __enter__(self) -> Catalog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.redacted_url}>"

    def url_for_others(self) -> str:
        """The URL by which another process opens this catalog: `env:NAME` if that was given.

        Raises:
            InvalidOptionError: the URL holds a password, which must not travel.
        """
        if self.redacted_url.startswith("env:"):
            return self.redacted_url
        if redact(self.url) != self.url:
            raise InvalidOptionError(
                option="catalog",
                value=self.redacted_url,
                reason="holds a password, so that a dataset or a scan of it cannot be pickled. Put "
                "the URL into an environment variable of both processes and open the dataset "
                "with catalog='env:PLAKE_NAME'.",
            )
        return self.url

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{self!r} cannot be pickled: its URL may hold a password. Open the catalog again "
            "where it is needed."
        )

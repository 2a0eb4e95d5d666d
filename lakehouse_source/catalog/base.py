"""The catalog as callers see it, and the pool of connections that all backends share.

Several threads may use one catalog: each transaction has its own connection. After a
fork the child opens new connections and does not touch those of its parent.

One thread must not open a `write()` inside its own `read()`: on SQLite the write
would wait for that very read to end.
"""

from __future__ import annotations

import os
import random
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import Any, ClassVar, Generic, NoReturn, TypeVar

from lakehouse_source.catalog.shown_url import redact
from lakehouse_source.catalog.sql import migrations
from lakehouse_source.catalog.sql.reader import CatalogReader
from lakehouse_source.catalog.sql.session import Session
from lakehouse_source.catalog.sql.write_states import WriteState
from lakehouse_source.catalog.sql.writer import CatalogTransaction
from lakehouse_source.errors import (
    CatalogUnavailableError,
    CommitConflictError,
    DatasetNotFoundError,
    InvalidOptionError,
    PlakeError,
)
from lakehouse_source.logs import COMMIT

__all__ = [
    "Catalog",
    "CatalogReader",
    "CatalogTransaction",
    "PooledCatalog",
]

_MOST_IDLE = 4
_ATTEMPTS = 4
_RETRY_SECONDS = 5.0
_FIRST_PAUSE_SECONDS = 0.05
# A write from Python has a heartbeat every ten minutes. Spark's executors know no catalog and
# have none: a Spark job may take this long between its first byte and its commit.
ABANDONED_SECONDS = 24 * 3600.0

Connection = TypeVar("Connection")


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
        """The catalog that has the connections: this one, unless it is opened over another."""
        return self

    # Connections to a server take long to make, and idle ones block nobody.
    is_server = False

    @abstractmethod
    def read(self) -> AbstractContextManager[CatalogReader]:
        """One consistent snapshot for all calls inside the block."""

    def read_autocommit(self) -> AbstractContextManager[CatalogReader]:
        """Like `read`, cheaper for a single call: each call has a snapshot of its own.

        A connection that was lost while it was idle is an error here, a `retryable` one.
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
        """One snapshot for work that takes long: it holds up nobody who writes."""
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

        Answers, in sentences, where the database may keep it nevertheless.

        Raises:
            CatalogUnavailableError: somebody uses the catalog all the time.
        """
        return (f"free pages of {self.redacted_url}, which plake cannot overwrite",)

    @abstractmethod
    def close(self) -> None:
        """Close the connections. Those in use are closed when their transaction ends."""

    def release(self) -> None:
        """Close, but keep what makes opening the same catalog again fast and disturbs nobody."""
        self.close()

    def __enter__(self) -> Catalog:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.redacted_url}>"

    def url_for_others(self) -> str:
        """The URL by which another process opens this catalog: `env:NAME` where that was given.

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


class PooledCatalog(Catalog, Generic[Connection]):
    """A catalog over connections that are opened when needed and used again."""

    # What is wrong where there is no catalog and none may be made.
    absent: ClassVar[str]

    def __init__(
        self, url: str, redacted_url: str, *, create: bool, dataset: str | None = None
    ) -> None:
        self.url = url
        self.redacted_url = redacted_url
        self._create = create
        self._dataset = dataset
        self._idle: list[Connection] = []
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._closed = False
        self._recovered = False
        # For catalogs that nobody closes, such as that of a dataset held until the program ends.
        weakref.finalize(self, _close_idle, self._idle, self._disconnect, self._process)

    def _missing(self, reason: str) -> PlakeError:
        """The error where there is no catalog. Whoever opens a dataset is told of the dataset."""
        if self._dataset is None:
            return self._unavailable(reason)
        return DatasetNotFoundError(dataset=self._dataset, catalog=self.redacted_url)

    def _taken(self) -> InvalidOptionError:
        return InvalidOptionError(
            option="target",
            value=self.redacted_url,
            reason="has a catalog, or is in use by another program. Name a new one.",
        )

    def _unavailable(self, reason: str, *, retryable: bool = False) -> CatalogUnavailableError:
        return CatalogUnavailableError(
            catalog=self.redacted_url, reason=reason, retryable=retryable
        )

    def _refused_row(self, reason: object) -> CommitConflictError:
        """What to raise where a constraint of the catalog's tables is not met."""
        return CommitConflictError(
            dataset=self._dataset or self.redacted_url,
            base_version=0,
            current_version=0,
            reason=f"the catalog refused a row: {reason}",
        )

    def _check_format(self, connection: Connection) -> None:
        """Bring the tables to the newest format; where there are none, make them if allowed.

        Raises:
            CatalogUnavailableError: the format is newer than this version of plake.
        """
        found = self._format_of(connection)
        if found == 0 and not self._create:
            raise self._missing(self.absent)
        if found < migrations.LATEST:
            found = self._migrate(connection)
        refusal = migrations.refusal(found)
        if refusal is not None:
            raise self._unavailable(refusal)

    # --- what a backend says

    @abstractmethod
    def _format_of(self, connection: Connection) -> int:
        """The format of the catalog's tables; 0 where there are none."""

    @abstractmethod
    def _migrate(self, connection: Connection) -> int:
        """Run the migrations in one transaction; answer the format found when it began.

        Another process may have run them since the format was looked up.
        """

    @abstractmethod
    def _connect(self) -> Connection:
        """A new connection to a catalog whose tables are there and of a known format."""

    @staticmethod
    @abstractmethod
    def _disconnect(connection: Connection) -> None:
        """Close a connection; never raises."""

    def _is_current(self, connection: Connection) -> bool:
        """Tell whether an idle connection still leads to this catalog."""
        return True

    @abstractmethod
    def _begin(self, connection: Connection, read_only: bool) -> None:
        """Start a transaction."""

    @abstractmethod
    def _commit(self, connection: Connection, session: Session) -> None:
        """Run what was sent, and commit. Or raise.

        With `outcome_unknown` only where the COMMIT may have been carried out.
        """

    @abstractmethod
    def _rollback(self, connection: Connection) -> bool:
        """Roll the transaction back; False where the connection cannot be used again."""

    @abstractmethod
    def _session(self, connection: Connection) -> Session:
        """The open transaction on a connection."""

    @abstractmethod
    def _end_session(self, session: Session) -> None:
        """End a session: it refuses further statements of whoever kept it."""

    # --- transactions

    @contextmanager
    def read(self) -> Iterator[CatalogReader]:
        connection = self._start(read_only=True)
        session = self._session(connection)
        usable = False
        try:
            yield CatalogReader(session)
        finally:
            self._end_session(session)
            usable = self._rollback(connection)
            self._release(connection, usable)

    @contextmanager
    def write(self) -> Iterator[CatalogTransaction]:
        self._recover()
        connection = self._start(read_only=False)
        session = self._session(connection)
        committed = False
        try:
            yield CatalogTransaction(session)
            self._commit(connection, session)
            committed = True
        finally:
            self._end_session(session)
            self._release(connection, committed or self._rollback(connection))

    def close(self) -> None:
        with self._guard():
            self._closed = True
        self._drop_idle()

    # --- inside

    def _recover(self) -> None:
        """Before the first change, abandon writes that had no heartbeat for a day.

        In a transaction of its own: one that locks its dataset and also the rows of other
        writes could deadlock with them.
        """
        if self._recovered:
            return
        self._recovered = True
        with self.read() as reader:
            found = reader.silent_writes(ABANDONED_SECONDS)
        if WriteState.PENDING in found.values():
            with self.write() as transaction:
                transaction.mark_abandoned(ABANDONED_SECONDS)

    def _start(self, read_only: bool) -> Connection:
        """A connection with a transaction just begun.

        Nothing was asked of the database yet. A lost connection (it was idle for too long,
        or the server was restarted) is therefore replaced, and is no error.
        """
        give_up = time.monotonic() + _RETRY_SECONDS
        pause = _FIRST_PAUSE_SECONDS
        attempt = 0
        while True:
            attempt += 1
            try:
                return self._start_once(read_only)
            except CatalogUnavailableError as error:
                if not error.retryable:
                    raise
                self._drop_idle()  # most likely lost together with the one just tried
                if attempt == _ATTEMPTS or time.monotonic() + pause > give_up:
                    # Not `retryable`: nobody should multiply these attempts by their own.
                    raise CatalogUnavailableError(
                        catalog=self.redacted_url, reason=error.reason, attempts=attempt
                    ) from error
                COMMIT.info(
                    "attempt %d for %s failed: %s", attempt, self.redacted_url, error.reason
                )
            time.sleep(pause * random.uniform(0.5, 1.5))
            pause *= 3

    def _start_once(self, read_only: bool) -> Connection:
        connection = self._acquire()
        try:
            self._begin(connection, read_only)
        except BaseException:
            self._disconnect(connection)
            raise
        return connection

    def _acquire(self) -> Connection:
        with self._guard():
            if self._closed:
                raise self._unavailable("it was closed")
            connection = self._idle.pop() if self._idle else None
        if connection is None:
            return self._connect()
        if not self._is_current(connection):
            self._disconnect(connection)
            self._drop_idle()
            return self._connect()
        return connection

    def _drop_idle(self) -> None:
        with self._guard():
            idle, self._idle[:] = list(self._idle), []
        for connection in idle:
            self._disconnect(connection)

    def _release(self, connection: Connection, usable: bool) -> None:
        with self._guard():
            if usable and not self._closed and len(self._idle) < _MOST_IDLE:
                self._idle.append(connection)
                return
        self._disconnect(connection)

    def _guard(self) -> threading.Lock:
        process = os.getpid()
        if process != self._process:
            # This is a forked child. Closing a connection here would end the parent's
            # session or release its file locks. The old lock may be held by a thread
            # that does not exist in this process.
            _of_parents.append(list(self._idle))
            self._idle = []
            self._lock = threading.Lock()
            self._process = process
            weakref.finalize(self, _close_idle, self._idle, self._disconnect, process)
        return self._lock


# Connections of parent processes, kept so that nothing closes them here.
_of_parents: list[list[Any]] = []


def _close_idle(idle: list[Any], disconnect: Callable[[Any], None], process: int) -> None:
    if os.getpid() != process:
        _of_parents.append(list(idle))
        return
    while idle:
        disconnect(idle.pop())

"""The common part of all backends: a pool of connections, and transactions on a connection.

After a fork the child opens new connections and does not touch those of its parent.
"""

from __future__ import annotations

import os
import random
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Generic, TypeVar

from lakehouse_source.catalog.base import ABANDONED_SECONDS, Catalog
from lakehouse_source.catalog.sql import migrations
from lakehouse_source.catalog.sql.dialect import Dialect
from lakehouse_source.catalog.sql.reader import CatalogReader
from lakehouse_source.catalog.sql.session import Row, Statement
from lakehouse_source.catalog.sql.write_states import WriteState
from lakehouse_source.catalog.sql.writer import CatalogTransaction
from lakehouse_source.errors import (
    DATABASE_ANSWERS,
    CatalogUnavailableError,
    CommitConflictError,
    DatasetNotFoundError,
    InvalidOptionError,
    PlakeError,
)
from lakehouse_source.logs import COMMIT

_MOST_IDLE = 4
_ATTEMPTS = 4
_RETRY_SECONDS = 5.0
_FIRST_PAUSE_SECONDS = 0.05

Connection = TypeVar("Connection")


class OpenSession(ABC, Generic[Connection]):
    """The open transaction on one connection: a `Session` that runs each statement at once."""

    dialect: Dialect

    def __init__(
        self,
        catalog: PooledCatalog[Connection],
        connection: Connection,
        catalog_path: str | None = None,
    ) -> None:
        self.redacted_url = catalog.redacted_url
        self.catalog_path = catalog_path
        self.catalog = catalog
        # None after the transaction, so that further statements are refused.
        self.connection: Connection | None = connection

    def _open(self) -> Connection:
        if self.connection is None:
            raise RuntimeError("this catalog transaction has ended")
        return self.connection

    @abstractmethod
    def query(self, statement: str, values: Sequence[Any] = ()) -> list[Row]: ...

    def query_all(self, statements: Sequence[Statement]) -> list[list[Row]]:
        return [self.query(text, values) for text, values in statements]

    @abstractmethod
    def execute(self, statement: str, values: Sequence[Any] = ()) -> int: ...

    def send(self, statement: str, values: Sequence[Any] = ()) -> None:
        self.execute(statement, values)

    @abstractmethod
    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None: ...

    def flush(self) -> None:
        return None

    def id_list(self, ids: Iterable[int]) -> Any:
        return list(ids)


class PooledCatalog(Catalog, Generic[Connection]):
    """A catalog over connections that are opened when needed and used again."""

    # The reason in the error if there is no catalog and none may be made.
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
        # For catalogs that nobody closes, such as the catalog of a dataset that is never released.
        weakref.finalize(self, _close_idle, self._idle, self._disconnect, self._process)

    def _missing(self, reason: str) -> PlakeError:
        """The error if there is no catalog.

        When a dataset is opened, the error names the dataset.
        """
        if self._dataset is None:
            return self._unavailable(reason)
        return DatasetNotFoundError(dataset=self._dataset, catalog=self.redacted_url)

    def _taken(self) -> InvalidOptionError:
        return InvalidOptionError(
            option="target",
            value=self.redacted_url,
            reason="has a catalog, or is in use by another program. Name a new one.",
        )

    def _unavailable(
        self, reason: str, *, retryable: bool = False, later: str = ""
    ) -> CatalogUnavailableError:
        return CatalogUnavailableError(
            catalog=self.redacted_url, reason=reason, retryable=retryable, later=later
        )

    def _refused_row(self, reason: object) -> CommitConflictError:
        """The error if a constraint of the catalog's tables is violated."""
        return CommitConflictError(
            dataset=self._dataset or self.redacted_url,
            base_version=0,
            current_version=0,
            reason=f"the catalog refused a row: {reason}",
        )

    def _check_format(self, connection: Connection) -> None:
        """Bring the tables to the newest format; if there are none, make them if allowed.

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
        """The format of the catalog's tables; 0 if there are none."""

    @abstractmethod
    def _migrate(self, connection: Connection) -> int:
        """Run the migrations in one transaction; return the format at its beginning.

        Another process may have run them after the format was looked up.
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
    def _commit(self, connection: Connection, session: OpenSession[Connection]) -> None:
        """Run what was sent, and commit; or raise.

        The error has `outcome_unknown` only if the COMMIT may have been carried out.
        """

    @abstractmethod
    def _rollback(self, connection: Connection) -> bool:
        """Roll the transaction back; False if the connection cannot be used again."""

    @abstractmethod
    def _session(self, connection: Connection) -> OpenSession[Connection]:
        """The open transaction on a connection."""

    # --- what goes wrong

    # The errors of the database.
    _errors: ClassVar[type[Exception]]

    @abstractmethod
    def _translate(self, error: Any) -> PlakeError:
        """The error of plake for an error of the database."""

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except self._errors as error:
            raise self._translate(error) from error

    # --- transactions

    @contextmanager
    def read(self) -> Iterator[CatalogReader]:
        connection = self._start(read_only=True)
        session = self._session(connection)
        usable = False
        try:
            yield CatalogReader(session)
        finally:
            session.connection = None
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
            session.connection = None
            self._release(connection, committed or self._rollback(connection))

    def close(self) -> None:
        with self._guard():
            self._closed = True
        self._drop_idle()

    # --- inside

    def _recover(self) -> None:
        """Before the first change, abandon writes that had no heartbeat for a day.

        In a transaction of its own: a transaction that locks its dataset and also the rows of other
        writes could deadlock with these writes.
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

        No statement has run on the connection yet. So a lost connection (idle for too long, or the
        server was restarted) is replaced and is no error.
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
                    # Not `retryable`: callers must not repeat attempts that were repeated here.
                    raise CatalogUnavailableError(
                        catalog=self.redacted_url,
                        reason=error.reason,
                        attempts=attempt,
                        later=error.later or DATABASE_ANSWERS,
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
            # This is a forked child. Closing a connection here would end the parent's session or
            # release its file locks. A thread that does not exist in this process may hold the old
            # lock.
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

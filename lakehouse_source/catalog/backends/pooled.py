"""The common part of all backends: connections that are used again, and their transactions.

Columns of many rows leave the database as one value each: handing out a row of four values takes
SQLite and Python longer than finding the row in an index. So the database joins the values of a
column, and Arrow divides them again.
"""

from __future__ import annotations

import os
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, ClassVar, Generic, TypeAlias

import pyarrow as pa

from lakehouse_source.catalog.backends.pool import Connection, Pool
from lakehouse_source.catalog.base import ABANDONED_SECONDS, Catalog
from lakehouse_source.catalog.sql import migrations
from lakehouse_source.catalog.sql.reader import CatalogReader
from lakehouse_source.catalog.sql.statements import Dialect, Row, Statement
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
from lakehouse_source.progress import COMMIT

# Columns of integers and of bytes, by their names. None of the values is NULL.
Columns: TypeAlias = Sequence[tuple[str, pa.DataType]]

# Stands between values of bytes. It begins with the only byte of its kind in it, so that two
# occurrences never overlap: if there are as many as there are values less one, each of them was put
# there, and no value has it.
SEPARATOR = b"\xfdplake\x01\xfe"


def of_rows(columns: Columns, rows: Sequence[Row]) -> list[pa.Array]:
    """The columns of rows that were handed out one by one."""
    return [
        pa.array([row[place] for row in rows], type_) for place, (_, type_) in enumerate(columns)
    ]


def count_of(columns: Columns) -> str:
    """The number of rows, in SQL; NULL where bytes are NULL.

    A value with the separator in it would stand for another one that is NULL and left out.
    """
    whole = [f"count({name}) = count(*)" for name, type_ in columns if pa.types.is_binary(type_)]
    return f"CASE WHEN {' AND '.join(whole)} THEN count(*) END" if whole else "count(*)"


def unpack(columns: Columns, row: Row) -> list[pa.Array] | None:
    """The columns of a row that begins with `count_of` them, and has the values of each column.

    None: a value was not of its column's type, was NULL, or had the separator in it.
    """
    import pyarrow.compute as pc  # 10 ms, which most commands do not need

    count, *packed = row
    if count is None:
        return None
    found = []
    for (_, type_), values in zip(columns, packed):
        if not count:
            found.append(pa.array([], type_))
            continue
        if pa.types.is_binary(type_):
            # pa.array makes a copy of the value; a buffer does not.
            whole = pa.Array.from_buffers(
                pa.large_binary(), 1, [None, _ends(len(values)), pa.py_buffer(values)]
            )
            column = pc.split_pattern(whole, SEPARATOR).flatten().cast(type_)
        else:
            texts = pc.split_pattern(pa.array([values], pa.large_string()), ",").flatten()
            try:
                column = pc.cast(texts, type_)
            except pa.ArrowInvalid:
                return None
        if len(column) != count:
            return None
        found.append(column)
    return found


def _ends(size: int) -> pa.Buffer:
    return pa.array([0, size], pa.int64()).buffers()[1]


_ATTEMPTS = 4
_RETRY_SECONDS = 5.0
_FIRST_PAUSE_SECONDS = 0.05
# For how long a connection knows that abandoned writes were looked for.
_RECOVERED_SECONDS = 300.0


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

    def columns(self, columns: Columns, rest: str, values: Sequence[Any]) -> list[pa.Array]:
        names = ", ".join(name for name, _ in columns)
        return of_rows(columns, self.query(f"SELECT {names} {rest}", values))

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
    _pool: Pool[Connection]
    # What surrounds a transaction.
    _in_use: ClassVar[AbstractContextManager[None]] = nullcontext()
    # The group of this catalog's own idle connections.
    _own: Hashable = None

    def __init__(
        self, url: str, redacted_url: str, *, create: bool, dataset: str | None = None
    ) -> None:
        self.url = url
        self.redacted_url = redacted_url
        self._create = create
        self._dataset = dataset
        self._own = object()
        self._closed = False
        self._recovered = False

    def __del__(self) -> None:
        # Nobody closes the catalog of a dataset that is never released.
        self._pool.forget(self._own)

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
    def _kept_or_new(self, group: Hashable) -> Connection:
        """A connection to a catalog whose tables are there and of a known format."""

    def _group(self) -> Hashable:
        """The group whose idle connections this catalog uses."""
        return self._own

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

    def _translated(self) -> AbstractContextManager[None]:
        return _Translated(self)

    # --- transactions

    @contextmanager
    def read(self) -> Iterator[CatalogReader]:
        with self._in_use:
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
        with self._in_use:
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
        self._closed = True
        self._drop_idle()

    # --- inside

    def _recover(self) -> None:
        """Before the first change, abandon writes that had no heartbeat for a day.

        In a transaction of its own: a transaction that locks its dataset and also the rows of other
        writes could deadlock with these writes.
        """
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
        if not (read_only or self._recovered):
            self._recovered = True
            if time.monotonic() - connection.recovered > _RECOVERED_SECONDS:
                self._release(connection, True)
                self._recover()
                connection = self._acquire()
                connection.recovered = time.monotonic()
        try:
            self._begin(connection, read_only)
        except BaseException:
            self._release(connection, False)
            raise
        return connection

    def _acquire(self) -> Connection:
        if self._closed:
            raise self._unavailable("it was closed")
        group = self._group()
        hold = self._pool.hold(group)
        try:
            connection = self._kept_or_new(group)
        except BaseException:
            self._pool.free(hold)
            raise
        connection.group, connection.hold, connection.process = group, hold, os.getpid()
        return connection

    @contextmanager
    def _borrowed(self) -> Iterator[Connection]:
        """A connection outside of a transaction."""
        with self._in_use:
            connection, usable = self._acquire(), False
            try:
                yield connection
                usable = True
            finally:
                self._release(connection, usable)

    def _drop_idle(self) -> None:
        self._pool.close(self._group())

    def _release(self, connection: Connection, usable: bool) -> None:
        self._pool.give(connection, usable and not self._closed)


class _Translated:
    """A block whose errors of the database become errors of plake."""

    __slots__ = ("_catalog",)

    def __init__(self, catalog: PooledCatalog[Any]) -> None:
        self._catalog = catalog

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if isinstance(error, self._catalog._errors):
            raise self._catalog._translate(error) from error

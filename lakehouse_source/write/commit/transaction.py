"""Verb. Commits that wait for one another: one database transaction over any number of them.

A statement in a transaction writes its files and registers its write as any other does. What it
would do under the lock of its dataset is kept. Each read of the transaction then begins with all
that was kept, in a database transaction that is rolled back. So a read sees exactly what the commit
will make, and no other transaction waits for the block to end. At the end everything is done once
more, and committed.

The ids of files must be the same each time, because a later statement names files of an earlier
one. A dataset that is used again after the transaction wrote to it must stay as it was then: others
who commit to it meanwhile get the version that the later statement has built upon.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar, cast

from lakehouse_source.catalog.base import (
    PATIENCE_SECONDS,
    Catalog,
    CatalogReader,
    CatalogTransaction,
    in_transaction,
)
from lakehouse_source.catalog.sql.statements import NEW_FILE_IDS, Row, Session, Statement
from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.language import PredicateSet
from lakehouse_source.model import DatasetRecord, SeenVersion, WriteResult
from lakehouse_source.write.commit.conflicts import Collision, Isolation, conflict

T = TypeVar("T")
# As many ids as most statements need.
_IDS_AT_ONCE = 64
_USED = Collision("this transaction wrote to it, used it again, and another commit came then")
_ENDED = "has ended: open the dataset again, with its catalog"

Work = Callable[[CatalogTransaction], WriteResult]
# Checks a read, given the locked dataset: what it collides with, or None.
ReadCheck = Callable[[CatalogTransaction, "Read"], "Collision | None"]


@dataclass(frozen=True, slots=True)
class Read:
    """Rows that a transaction has read: those of a condition, of a dataset at a version."""

    key: str
    uri: str
    seen: SeenVersion
    condition: PredicateSet


@dataclass(slots=True)
class _Entry:
    """A commit that waits. `undo` gives its write up; `ids` are those of its files."""

    key: str
    uri: str
    write_id: str
    work: Work
    undo: Callable[[BaseException | None], object]
    ids: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Unseen:
    """A write whose work nobody needed yet: `act` adds it."""

    uri: str
    act: Callable[[], object]
    undo: Callable[[BaseException | None], object]


class _Done(Exception):
    """Rolls a database transaction back that has done its work."""

    def __init__(self, result: WriteResult | None = None) -> None:
        self.result = result


class _IdsNeeded(Exception):
    def __init__(self, count: int) -> None:
        self.count = count


class TransactionCatalog(Catalog):
    """A catalog over another one, in which commits wait until `commit_all`.

    `isolation` None: each statement has its own. `check` tells whether others changed what a read
    saw. A thread that reads gets the open reader where it reads again.
    """

    def __init__(
        self, database: Catalog, isolation: Isolation | None, check: ReadCheck | None
    ) -> None:
        self._inner: Catalog | None = database
        self.url, self.redacted_url = database.url, database.redacted_url
        self.is_server = database.is_server
        self.isolation = isolation
        self._check = check
        self._entries: list[_Entry] = []
        self._unseen: list[_Unseen] = []
        # Of a write, told where something else was asked.
        self._failure: BaseException | None = None
        self._reads: list[Read] = []
        self._later: list[Callable[[Catalog], object]] = []
        self._free_ids: list[int] = []
        # Datasets that are not to change any more, as others have left them.
        self._pinned: dict[str, SeenVersion] = {}
        # Of the last database transaction: the datasets as others left them, and what was done.
        self._heads: dict[str, SeenVersion] = {}
        self._results: list[WriteResult] = []
        self._open = threading.local()

    # --- what a catalog is for all rooms

    @property
    def database(self) -> Catalog:
        if self._inner is None:
            raise InvalidOptionError(option="transaction", reason=f"{_ENDED}.")
        return self._inner.database

    @contextmanager
    def read(self) -> Iterator[CatalogReader]:
        nested: CatalogReader | None = getattr(self._open, "reader", None)
        if nested is not None:
            yield nested
            return
        self._see()
        if not self._entries:
            with self.database.read() as reader:
                yield reader
            return
        try:
            with self._begun() as (tx, used):
                self._open.reader = tx
                yield tx
        finally:
            self._open.reader = None
        self._pin(used)

    def write(self) -> NoReturn:
        self._refused()

    def still(self) -> NoReturn:
        self._refused()

    def close(self) -> None:
        """The catalog below stays open."""

    def url_for_others(self) -> str:
        raise InvalidOptionError(
            option="transaction",
            reason="cannot be pickled: other processes do not see what it has written.",
        )

    def note_read(self, key: str, uri: str, seen: SeenVersion, condition: PredicateSet) -> None:
        # Where the transaction wrote before, nobody else may commit any more.
        if self._check is not None and all(one.key != key for one in self._entries):
            self._reads.append(Read(key, uri, seen, condition))

    def _refused(self) -> NoReturn:
        raise InvalidOptionError(
            option="transaction",
            reason="takes writes, DELETE, UPDATE, MERGE and changes of schemas, properties and "
            "constraints. Do this before it or after it.",
        )

    # --- commits that wait

    def has_changed(self, is_at: Callable[[str], bool]) -> bool:
        """Tell whether the transaction has changed a dataset, given a test of its URI."""
        return any(is_at(one.uri) for one in self._entries) or any(
            is_at(one.uri) for one in self._unseen
        )

    def only_writes(self) -> bool:
        """Tell whether there are only writes of `defer`: the caller then commits them as any."""
        if self._entries or self._reads or self._failure is not None:
            return False
        self._unseen.clear()
        return True

    def defer(
        self, uri: str, act: Callable[[], object], undo: Callable[[BaseException | None], object]
    ) -> None:
        """Add a write when something else is asked, if ever."""
        self._unseen.append(_Unseen(uri, act, undo))

    def _see(self) -> None:
        while self._unseen:
            try:
                self._unseen.pop(0).act()  # which gives the write up where it fails
            except BaseException as failure:
                self._failure = failure
                raise

    def add(
        self,
        key: str,
        uri: str,
        write_id: str,
        work: Work,
        undo: Callable[[BaseException | None], object] = lambda _failure: None,
        *,
        alone: bool = False,
    ) -> WriteResult:
        """Do the work of a commit, roll it back, and keep it; returns what it did.

        `undo` gives the write up. `alone`: others must not commit to the dataset from now on.

        Raises:
            PlakeError: the work cannot be done. Nothing is kept.
        """
        self._see()
        entry = _Entry(key, uri, write_id, work, undo)

        def attempt(tx: CatalogTransaction) -> NoReturn:
            replayed, used = self._replayed(tx, {key})
            result = self._run(replayed, entry, used)
            self._pin({*used, key})
            raise _Done(result)

        result = self._with_ids(lambda: self._attempted(entry, attempt))
        if result.skipped:
            entry = _Entry(key, uri, write_id, lambda _tx: result, lambda _failure: None)
        self._entries.append(entry)
        if alone:
            self._pin({key})
        return result

    def after(self, act: Callable[[Catalog], object]) -> None:
        """Call a function with the catalog below, when everything is committed."""
        self._later.append(act)

    def commit_all(self) -> list[WriteResult]:
        """Commit all that waits, in one database transaction; returns the versions, in order.

        Raises:
            CommitConflictError: a commit of another writer collides. Nothing is committed.
            CommitUnknownError: the catalog was lost, and cannot be asked.
        """
        self._see()
        if self._failure is not None:
            raise self._failure
        if not self._entries and not self._reads:
            return []
        last = (self._entries or self._reads)[-1]

        def work(tx: CatalogTransaction) -> list[WriteResult]:
            self._replayed(tx, ending=True)
            return self._results

        def carried_out(tx: CatalogTransaction, _: object) -> bool:
            locked(tx, {one.key for one in self._entries})  # a running COMMIT holds the locks
            return any(tx.transaction_by_write_id(one.write_id) for one in self._entries)

        found = self._with_ids(
            lambda: in_transaction(
                self.database,
                last.uri,
                self._entries[-1].write_id if self._entries else "",
                work,
                carried_out=carried_out,
                patience_seconds=PATIENCE_SECONDS,
            )
        )
        for entry, result in zip(self._entries, found):
            if result.skipped:  # another process has committed the same
                entry.undo(None)
        return found

    def end(self, failure: BaseException | None, *, committed: bool) -> None:
        """End: what was committed is followed up, and what was not is given up."""
        entries: list[_Entry | _Unseen] = [*self._entries, *self._unseen]
        self._entries, self._unseen = [], []
        database = self.database
        try:
            for act in self._later if committed else ():
                act(database)
            for entry in () if committed else entries:
                entry.undo(failure)
        finally:
            self._inner = None

    # --- inside

    def _attempted(
        self, entry: _Entry, attempt: Callable[[CatalogTransaction], NoReturn]
    ) -> WriteResult:
        try:
            in_transaction(self.database, entry.uri, entry.write_id, attempt, resolve=False)
        except _Done as done:
            return cast(WriteResult, done.result)

    @contextmanager
    def _begun(self) -> Iterator[tuple[CatalogTransaction, set[str]]]:
        """A database transaction with all that waits, which is rolled back."""
        while True:
            try:
                with self.database.write() as tx:
                    found = self._replayed(tx)
                    yield found
                    raise _Done
            except _IdsNeeded as needed:
                self._reserve(needed.count)
            except _Done:
                return

    def _replayed(
        self, tx: CatalogTransaction, further: Collection[str] = (), *, ending: bool = False
    ) -> tuple[CatalogTransaction, set[str]]:
        """The transaction after all that waits, and the datasets that it is asked for from now.

        `further` are datasets that it is going to lock.
        """
        keys = {*further, *(one.key for one in self._entries)}
        if ending:
            keys |= {one.key for one in self._reads}
        records = locked(tx, keys)
        found = (tx.current(record.base_uri) for record in records)
        self._heads = {
            now.dataset.base_uri: SeenVersion(now.dataset.current_version, now.write_id)
            for now in found
            if now is not None
        }
        for key, seen in self._pinned.items():
            self._refuse(key, key, seen, None if self._heads.get(key) == seen else _USED)
        for read in self._reads if ending else ():
            assert self._check is not None
            self._refuse(read.key, read.uri, read.seen, self._check(tx, read))
        self._results = [self._run(tx, entry, set()) for entry in self._entries]
        noted = _Noted(tx._session, set())
        return noted, noted.used

    def _refuse(self, key: str, uri: str, seen: SeenVersion, why: Collision | None) -> None:
        if why is not None:
            now = self._heads.get(key)
            raise conflict(uri, seen.version, 0 if now is None else now.version, why)

    def _run(self, tx: CatalogTransaction, entry: _Entry, used: set[str]) -> WriteResult:
        session = _SameIds(tx._session, entry.ids, self._free_ids)
        return entry.work(_Noted(cast(Session, session), used))

    def _pin(self, used: set[str]) -> None:
        written = {one.key for one in self._entries}
        for key in used & written & self._heads.keys():
            self._pinned.setdefault(key, self._heads[key])

    def _with_ids(self, act: Callable[[], T]) -> T:
        while True:
            try:
                return act()
            except _IdsNeeded as needed:
                self._reserve(needed.count)

    def _reserve(self, count: int) -> None:
        with self.database.write() as tx:
            self._free_ids += tx.reserve_file_ids(max(count, _IDS_AT_ONCE))


def locked(tx: CatalogTransaction, keys: Collection[str]) -> list[DatasetRecord]:
    """Lock datasets. Transactions that lock in different orders would wait for each other."""
    found = [record for record in map(tx.dataset, sorted(keys)) if record is not None]
    for record in sorted(found, key=lambda one: one.id):
        tx.lock_dataset(record.base_uri)
    return found


class _Noted(CatalogTransaction):
    """Notes the datasets that it is asked for."""

    def __init__(self, session: Session, used: set[str]) -> None:
        super().__init__(session)
        self.used = used

    def _rows_of(self, base_uri: str, ask: Callable[[str], list[Row]]) -> list[Row]:
        rows = super()._rows_of(base_uri, ask)
        self.used |= {row[2] for row in rows[:1]}
        return rows


class _SameIds:
    """The session of one commit that waits: new files get the same ids each time."""

    def __init__(self, session: Session, ids: list[int], free: list[int]) -> None:
        self._session, self._ids, self._free = session, ids, free
        self._given = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def query(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        return self.query_all([(statement, values)])[0]

    def query_all(self, statements: Sequence[Statement]) -> list[list[Row]]:
        asked = [one for one in statements if one[0] != NEW_FILE_IDS]
        answers = iter(self._session.query_all(asked) if asked else ())
        return [
            [(id,) for id in self._next(one[1][0])] if one[0] == NEW_FILE_IDS else next(answers)
            for one in statements
        ]

    def _next(self, count: int) -> list[int]:
        lacking = self._given + count - len(self._ids)
        if lacking > len(self._free):
            raise _IdsNeeded(lacking)
        for _ in range(lacking):
            self._ids.append(self._free.pop(0))
        self._given += count
        return self._ids[self._given - count : self._given]

"""Edge. The catalog as callers see it, and transactions that are repeated where that may help.

Several threads may use one catalog: each transaction has its own connection.

One thread must not open a `write()` inside its own `read()`: on SQLite the write
would wait for that very read to end.
"""

from __future__ import annotations

import logging
import random
import re
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any, NoReturn, TypeVar
from urllib.parse import unquote_plus

from lakehouse_source.catalog.sql.reader import CatalogReader
from lakehouse_source.catalog.sql.statements import Session
from lakehouse_source.catalog.sql.writer import CatalogTransaction
from lakehouse_source.errors import (
    DATABASE_ANSWERS,
    CatalogUnavailableError,
    CommitConflictError,
    CommitUnknownError,
    ForeignFolderError,
    InvalidOptionError,
    PlakeError,
)
from lakehouse_source.failpoints import reach
from lakehouse_source.model import SeenVersion, WriteResult
from lakehouse_source.progress import COMMIT, milliseconds
from lakehouse_source.storage import (
    Storage,
    UriOfCatalog,
    claim_folder,
    owner_files,
    redact_uri,
    release_folder,
)

# --- Catalog URLs in a form that may be shown, and URLs that a query named.


# Parameters of libpq whose values may be shown: they are not secret, and name no file that libpq
# reads a secret from or writes to. `timeout` is plake's own, for SQLite. Values of all other
# parameters are never shown.
HARMLESS = frozenset(
    {
        *("host", "hostaddr", "port", "dbname", "user", "application_name"),
        *("fallback_application_name", "client_encoding", "connect_timeout", "keepalives"),
        *("keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout"),
        *("sslmode", "sslnegotiation", "sslcompression", "sslrootcert", "sslsni", "sslcertmode"),
        *("ssl_min_protocol_version", "ssl_max_protocol_version", "min_protocol_version"),
        *("max_protocol_version", "channel_binding", "require_auth", "requirepeer"),
        *("gssencmode", "krbsrvname", "target_session_attrs", "load_balance_hosts", "timeout"),
    }
)

# For a server, everything from the second colon to the last `@`. Paths of files may have both too.
_USER_PASSWORD = re.compile(
    r"^((?!sqlite:|duckdb:)[^:]*:[^:]*|[^:/?#]*:/*[^:@/?#]*):.*@", re.DOTALL | re.IGNORECASE
)
_ASSIGNMENT = re.compile(
    r"(\w*(?:pass|pwd|secret|token|credential|(?:api|access|account|client|server)_?key)\w*\s*=\s*)"
    r"(?:'(?:[^'\\]|\\.)*'|[^&\s]*)",
    re.IGNORECASE,
)
# A user and a password in a value.
_LOGIN = re.compile(r":[^/]*@")
# How many times a text may be encoded.
_ENCODED_TIMES = 8


class UrlOfQuery(str):
    """A catalog's URL that a query named, not the program or its configuration.

    The variables and files of libpq must not be used for its host.
    """

    __slots__ = ()


# Every commit and every read asks for the same few URLs: that took 4 % of a small commit.
@lru_cache(maxsize=32)
def redact(url: str) -> str:
    """The URL with its password, and every parameter that may be secret, replaced by `***`.

    Everything up to the last `@` is replaced, even if this is too much: no parser correctly reads a
    URL whose password has unescaped characters. Names of parameters are decoded first, as libpq
    does: `%70assword` is a password. A decoded value or address that holds a password is replaced
    as a whole.
    """
    address, mark, query = _without_password(url).partition("?")
    shown = "&".join(map(_shown, query.split("&")))
    decoded = _decoded(address)
    if decoded != address and _without_secrets(_without_password(decoded)) != decoded:
        return address.partition(":")[0] + "://***" + mark + shown
    return _without_secrets(address) + mark + shown


def _without_password(url: str) -> str:
    return _USER_PASSWORD.sub(r"\1:***@", url)


def _without_secrets(text: str) -> str:
    return _ASSIGNMENT.sub(r"\1***", text)


def _decoded(text: str) -> str:
    """All readings of the text: decoded not at all, once, or several times."""
    for _ in range(_ENCODED_TIMES):
        before, text = text, unquote_plus(text)
        if text == before:
            break
    return text


def _shown(parameter: str) -> str:
    name, equals, value = parameter.partition("=")
    if not value and (equals or not name):
        return parameter
    if unquote_plus(name).strip().lower() not in HARMLESS:
        return f"{name}=***" if equals else "***"
    decoded = _decoded(value)
    # libpq may read a `dbname` as a URL, and `x%26password%3Dy` shows a password.
    if _LOGIN.search(decoded) or (decoded != value and _ASSIGNMENT.search(decoded)):
        return f"{name}=***"
    return name + equals + _without_secrets(value)


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

    @property
    def warehouse(self) -> str | None:
        """The folder or URI in which datasets without a location are made; None: none is stored."""
        with self.read() as reader:
            found = reader.names.setting(WAREHOUSE)
        return None if found is None else UriOfCatalog(found)

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

    def note_read(self, key: str, uri: str, seen: SeenVersion, condition: Any) -> None:
        """Rows of a condition are read of a dataset at a version. A transaction remembers it."""
        return

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


# --- Runs a database transaction, and repeats it if it may succeed the next time.
#
# The fields of an error decide, never its class or its cause: `retryable` and `outcome_unknown`. A
# COMMIT of unknown outcome is looked up: it is never repeated blindly, and never treated as a
# failure.


ATTEMPTS = 20
# How long a commit, whose files are written, waits for a lost server.
PATIENCE_SECONDS = 30.0

T = TypeVar("T")


def in_transaction(
    catalog: Catalog,
    uri: str,
    write_id: str,
    work: Callable[[CatalogTransaction], T],
    *,
    carried_out: Callable[[CatalogTransaction, T], bool] | None = None,
    resolve: bool = True,
    patience_seconds: float = 0.0,
) -> T:
    """Run `work` in one database transaction; repeat it if the error says that it may succeed.

    After a COMMIT whose acknowledgement was lost, the next attempt, on a new connection, asks
    `carried_out` first. `carried_out` gets the result of `work` and tells whether it was
    committed. If so, this result is returned, and `work` is not run again. Without `carried_out`,
    `work` itself must do nothing if it was carried out already. With `resolve`, an outcome that
    stays unknown is a `CommitUnknownError`. Without `resolve`, the error of the last attempt is
    raised, and the caller may repeat the call. `patience_seconds` is how long to wait for a server
    that cannot be reached.
    """
    give_up = time.monotonic() + patience_seconds
    lost: list[T] = []  # what `work` returned before each COMMIT without an acknowledgement
    asked_again = False
    begin = time.perf_counter()
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with catalog.write() as tx:
                if lost and carried_out is not None and carried_out(tx, lost[-1]):
                    return lost[-1]
                done = work(tx)
                reach("before COMMIT")
            _log(uri, write_id, done, begin)
            return done
        except PlakeError as error:
            failure = error
            if isinstance(failure, CommitConflictError):
                COMMIT.info("write %s: %s", write_id, failure)
        if failure.outcome_unknown:
            lost.append(done)
            if resolve:
                give_up = max(give_up, time.monotonic() + PATIENCE_SECONDS / 2)
        elif failure.retryable or (_was_tried(failure) and time.monotonic() < give_up):
            pass
        elif isinstance(failure, CatalogUnavailableError):
            if lost and resolve:
                # The server did not answer, so an earlier COMMIT may have been carried out.
                raise CommitUnknownError(dataset=uri, write_id=write_id) from failure
            raise failure
        elif lost and carried_out is not None and not asked_again:
            # The COMMIT may have been under way when `carried_out` looked. Then `work` waited for
            # the COMMIT's locks, and failed because of its own earlier changes.
            asked_again = True
        else:
            raise failure
        if attempt < ATTEMPTS:
            COMMIT.info("attempt %d for %s failed, another follows: %s", attempt, uri, failure)
            time.sleep(min(1.0, 0.0025 * 2**attempt) * random.uniform(0.5, 1.5))
    if lost and resolve:
        raise CommitUnknownError(dataset=uri, write_id=write_id) from failure
    if failure.outcome_unknown:
        raise CatalogUnavailableError(
            catalog=catalog.redacted_url,
            reason="the connection was lost during each COMMIT",
            attempts=ATTEMPTS,
            later=DATABASE_ANSWERS,
        ) from failure
    raise failure


def _log(uri: str, write_id: str, done: object, begin: float) -> None:
    results = done if isinstance(done, list) else [done]
    versions = [one.version for one in results if isinstance(one, WriteResult)]
    if versions and COMMIT.isEnabledFor(logging.INFO):
        shown = ", ".join(map(str, versions))
        took = milliseconds(begin)
        COMMIT.info("%s is at version %s, write %s, %.1f ms", uri, shown, write_id, took)


def is_committed(base_uri: str, write_id: str) -> Callable[[CatalogTransaction, object], bool]:
    """The `carried_out` of `work` that commits a version of a dataset with `write_id`."""

    def carried_out(tx: CatalogTransaction, _: object) -> bool:
        tx.lock_dataset(base_uri)  # a running COMMIT holds the lock
        return tx.transaction_by_write_id(write_id) is not None

    return carried_out


def _was_tried(error: PlakeError) -> bool:
    """Tell whether several attempts to reach the server, or to lock the file, have failed."""
    return isinstance(error, CatalogUnavailableError) and error.attempts > 1


# --- A folder belongs to one catalog; no other catalog writes to it or deletes from it.
#
# A catalog has a random id, which it keeps when it is copied or restored. The folder of a dataset
# gets a file with that id before the first commit (`storage/files.py`).


_SETTING = "catalog_id"
WAREHOUSE = "warehouse"
# Folders of origins of clones, and the catalogs that own them.
_origins: set[tuple[str, str]] = set()


def check_owner(catalog: Catalog, storage: Storage) -> None:
    """Make a folder this catalog's own, if no catalog owns it yet.

    Raises:
        ForeignFolderError: the folder belongs to another catalog.
        CorruptDatasetError, StorageError: the folder cannot be read, or written to.
    """
    other = claim_folder(storage, catalog_id(catalog))
    if other is not None:
        raise _of_another(storage, other)


def check_not_foreign(catalog: Catalog | None, storage: Storage) -> None:
    """Check that no other catalog owns a folder. None: this catalog does not exist yet."""
    mine = None if catalog is None else catalog_id(catalog)
    for path, owner in owner_files(storage).items():
        if owner != mine:
            raise _of_another(storage, path)


def _of_another(storage: Storage, owner: str) -> ForeignFolderError:
    return ForeignFolderError(
        folder=redact_uri(storage.uri),
        reason=f"it belongs to another catalog, as {owner} in it says. Use that catalog (option "
        "'catalog', environment variable PLAKE_CATALOG), or another folder. If that catalog is "
        "lost for good, delete that file",
    )


def check_origin(reader: CatalogReader, storage: Storage) -> None:
    """Check that a folder from which a catalog lets files be read says that it is the catalog's.

    Somebody else's catalog may name any folder. What a folder said once is not asked again.

    Raises:
        ForeignFolderError, StorageError
    """
    mine = reader.names.setting(_SETTING)
    if (storage.uri, mine) in _origins:
        return
    if mine is None or mine not in owner_files(storage).values():
        raise ForeignFolderError(
            folder=redact_uri(storage.uri),
            reason=f"catalog {reader.redacted_url} names it as the folder from which a dataset was "
            "cloned, and no owner file in it names the catalog",
        )
    _origins.add((storage.uri, mine))


def release_owner(catalog: Catalog, storage: Storage) -> None:
    """Release a folder, after its dataset was deleted."""
    release_folder(storage, catalog_id(catalog))


def catalog_id(catalog: Catalog) -> str:
    """The id of a catalog; the first call makes the id."""
    with catalog.read() as reader:
        found = reader.names.setting(_SETTING)
    if found is not None:
        return found

    def give(tx: CatalogTransaction) -> str:
        return tx.names.first_setting(_SETTING, secrets.token_hex(16))

    return in_transaction(catalog, catalog.redacted_url, "", give, resolve=False)

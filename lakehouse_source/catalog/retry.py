"""Verb. Runs a database transaction, and repeats it if it may succeed the next time.

The fields of an error decide, never its class or its cause: `retryable` and
`outcome_unknown`. A COMMIT of unknown outcome is looked up: it is never repeated blindly, and never
treated as a failure.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from typing import TypeVar

from lakehouse_source.catalog.base import Catalog, CatalogTransaction
from lakehouse_source.errors import (
    DATABASE_ANSWERS,
    CatalogUnavailableError,
    CommitConflictError,
    CommitUnknownError,
    PlakeError,
)
from lakehouse_source.failpoints import reach
from lakehouse_source.logs import COMMIT, milliseconds
from lakehouse_source.model import WriteResult

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

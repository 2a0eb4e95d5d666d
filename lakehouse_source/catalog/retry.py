"""Verb. Runs a database transaction, again where it may succeed the next time.

The fields of an error decide, never its class or its cause: `retryable` and
`outcome_unknown`. A COMMIT of unknown outcome is looked up: it is never carried out twice,
and never taken for a failure.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from lakehouse_source.catalog.base import Catalog, CatalogTransaction
from lakehouse_source.errors import CatalogUnavailableError, CommitUnknownError, PlakeError
from lakehouse_source.failpoints import reach

ATTEMPTS = 20
# How long a commit, whose files are written, waits for a server that went away.
PATIENCE_SECONDS = 30.0

T = TypeVar("T")


def in_transaction(
    catalog: Catalog,
    uri: str,
    write_id: str,
    work: Callable[[CatalogTransaction], T],
    *,
    resolve: bool = True,
    patience_seconds: float = 0.0,
) -> T:
    """Run `work` in one database transaction, again where the error says that it may succeed.

    `work` must do nothing where it finds that it was carried out already: after a COMMIT
    of unknown outcome it is run again, on a new connection, to find out. With `resolve`,
    what cannot be found out is a `CommitUnknownError`; without it, `work` may be repeated
    by anybody and a failure is enough. A server that cannot be reached is waited for as
    long as `patience_seconds`.

    Raises:
        CommitUnknownError: a commit was sent, and the catalog cannot be asked whether
            it was carried out.
    """
    give_up = time.monotonic() + patience_seconds
    lost = False
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with catalog.write() as tx:
                done = work(tx)
                reach("before COMMIT")
            return done
        except PlakeError as error:
            failure = error
        if failure.outcome_unknown:
            # Only `work` can tell: it looks its write up under the lock, which a COMMIT
            # that is still on its way holds.
            if resolve:
                lost = True
                give_up = max(give_up, time.monotonic() + PATIENCE_SECONDS / 2)
        elif not (failure.retryable or (_was_tried(failure) and time.monotonic() < give_up)):
            if lost and isinstance(failure, CatalogUnavailableError):
                # Nobody answered: what was sent before may have been carried out.
                raise CommitUnknownError(dataset=uri, write_id=write_id) from failure
            raise failure
        if attempt < ATTEMPTS:
            time.sleep(min(1.0, 0.0025 * 2**attempt) * random.uniform(0.5, 1.5))
    if lost:
        raise CommitUnknownError(dataset=uri, write_id=write_id) from failure
    if failure.outcome_unknown:
        raise CatalogUnavailableError(
            catalog=catalog.redacted_url,
            reason="the connection was lost during each COMMIT",
            attempts=ATTEMPTS,
        ) from failure
    raise failure


def _was_tried(error: PlakeError) -> bool:
    """Tell whether the catalog gave up a server, or a file's lock, after several attempts."""
    return isinstance(error, CatalogUnavailableError) and error.attempts > 1

"""Verb. Work in a database transaction, with as many attempts as are worth it.

Whatever a database says to try again is tried again, and a COMMIT whose answer was
lost is found out about: never carried out twice, never given up for lost.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from lakehouse_source.catalog.base import Catalog, CatalogTransaction
from lakehouse_source.catalog.transient import CommitOutcomeUnknown, is_transient
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
    """Run `work` in one database transaction, again where the database says to.

    `work` must do nothing where it finds that it was carried out already: when
    the outcome of a COMMIT is unknown, it is run again, on a new connection, to
    find out. A server that went away is waited for as long as `patience_seconds`.

    Raises:
        CommitUnknownError: a commit was sent and the catalog cannot be asked
            whether it was carried out.
    """
    give_up = time.monotonic() + patience_seconds
    lost: CommitOutcomeUnknown | None = None
    for attempt in range(ATTEMPTS):
        failure: PlakeError
        try:
            with catalog.write() as tx:
                done = work(tx)
                reach("before COMMIT")
            return done
        except CommitOutcomeUnknown as error:
            # Only `work` can tell, and it looks its write up under the lock: a
            # COMMIT that is still on its way holds that lock.
            failure = error
            if resolve:
                lost = error
                give_up = max(give_up, time.monotonic() + PATIENCE_SECONDS / 2)
        except PlakeError as error:
            away = _server_is_away(error)
            if not (is_transient(error) or (away and time.monotonic() < give_up)):
                if lost is not None and isinstance(error, CatalogUnavailableError):
                    # Nobody answered: what was sent before may have been carried out.
                    raise CommitUnknownError(dataset=uri, write_id=write_id) from error
                raise
            failure = error
        if attempt < ATTEMPTS - 1:
            time.sleep(min(1.0, 0.005 * 2**attempt) * random.uniform(0.5, 1.5))
    if lost is not None:
        raise CommitUnknownError(dataset=uri, write_id=write_id) from failure
    if isinstance(failure, CommitOutcomeUnknown):
        reason = f"it is lost again and again: {failure.reason}"
        raise CatalogUnavailableError(catalog=catalog.redacted_url, reason=reason) from None
    raise failure


def _server_is_away(error: PlakeError) -> bool:
    """Tell whether the catalog tried, more than once, to reach a server and could not."""
    tried = error.__context__
    return isinstance(error, CatalogUnavailableError) and tried is not None and is_transient(tried)

"""Tells errors that may pass when the work is done again from those that will not."""

from __future__ import annotations

import psycopg

from lakehouse_source.catalog.postgres import is_transient_error
from lakehouse_source.catalog.session import CommitOutcomeUnknown

__all__ = ["CommitOutcomeUnknown", "is_transient"]


def is_transient(error: BaseException) -> bool:
    """Tell whether a transaction that failed so may well succeed when run again.

    True for deadlocks, serialisation failures and lost connections; False for what
    was waited for and tried again already (a SQLite database that stayed locked, a
    server that could not be reached), and for a commit of unknown outcome, which
    must be looked up and never just repeated.
    """
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, CommitOutcomeUnknown):
            return False
        if isinstance(seen, psycopg.Error):
            return is_transient_error(seen)
        seen = seen.__cause__
    return False

"""What an error of PostgreSQL means: read from its SQLSTATE, never from its text."""

from __future__ import annotations

from contextlib import suppress

import psycopg

from lakehouse_source.catalog.shown_url import UrlOfQuery
from lakehouse_source.errors import CATALOG_ROLES, AccessDeniedError

_ACTIVE_ELSEWHERE = {"40001", "40P01"}
_SERVER_GONE = {"57P01", "57P02", "57P03", "53300", "25P03"}
LOCK_TIMEOUT = "55P03"
NO_RIGHT = "42501"
DISK_FULL = "53100"
_ROLES_OF_LOGIN = (
    "SELECT session_user, ARRAY(SELECT CAST(rolname AS TEXT) FROM pg_catalog.pg_roles "
    "WHERE rolname = ANY (%s) AND pg_has_role(session_user, oid, 'MEMBER') "
    "AND NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = session_user AND rolsuper))"
)

# After a failed wait for a row lock, the server no longer tells which transaction holds it. This
# query finds the oldest transaction that may hold the lock.
_HOLDER = (
    "SELECT a.pid, a.application_name, a.state, "
    "CAST(extract(epoch FROM clock_timestamp() - a.xact_start) AS BIGINT) "
    "FROM pg_catalog.pg_stat_activity AS a WHERE a.datname = current_database() "
    "AND a.pid IN (SELECT l.pid FROM pg_catalog.pg_locks AS l "
    "WHERE l.granted AND l.mode NOT IN ('AccessShareLock', 'ShareUpdateExclusiveLock') "
    "AND l.relation IN ('datasets'::regclass, 'pending_writes'::regclass)) "
    "ORDER BY a.xact_start NULLS LAST LIMIT 1"
)


def passes_by_itself(error: psycopg.Error) -> bool:
    """Tell whether the same transaction may well succeed when it is run again."""
    state = error.sqlstate
    if state is None:
        # Raised by the client library itself: no server, or the connection broke.
        return isinstance(error, psycopg.OperationalError)
    return connection_lost(error) or state in _ACTIVE_ELSEWHERE


def connection_lost(error: psycopg.Error) -> bool:
    state = error.sqlstate
    if state is None:
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return state.startswith("08") or state in _SERVER_GONE


def reason(error: psycopg.Error, url: str) -> str:
    """The text of an error, on one line."""
    text = " ".join(str(error).split())
    if isinstance(url, UrlOfQuery) and "password" in text:
        text += (
            ". A query named this host, so that no variable or file of libpq was used: allow "
            "it in spark.plake.hosts.allowed, in the application's configuration"
        )
    return text


def access_denied(
    error: psycopg.Error, url: str, conninfo: str, redacted_url: str
) -> AccessDeniedError:
    """Say which roles the login has, on a connection of its own."""
    login, roles = "", list[str]()
    with suppress(psycopg.Error), psycopg.connect(conninfo, autocommit=True) as asking:
        found = asking.execute(_ROLES_OF_LOGIN, (list(CATALOG_ROLES),)).fetchone()
        assert found is not None
        login, roles = found[0], [one for one in CATALOG_ROLES if one in found[1]]
    return AccessDeniedError(
        catalog=redacted_url,
        reason=error.diag.message_primary or reason(error, url),
        login=login,
        roles=tuple(roles),
    )


def holder_of_lock(conninfo: str) -> str:
    """Who may hold the lock that was waited for in vain; asked on a connection of its own."""
    with (
        suppress(psycopg.Error),
        psycopg.connect(conninfo, autocommit=True, prepare_threshold=None) as asking,
    ):
        holder = asking.execute(_HOLDER.encode()).fetchone()
        if holder is not None:
            pid, name, state, seconds = holder
            return (
                f". The oldest one is that of server process {pid} ({name or 'unnamed'}, "
                f"{state or 'of another user'}, {seconds or '?'} s old): where it is stuck, "
                f"end it with pg_terminate_backend({pid})"
            )
    return ""

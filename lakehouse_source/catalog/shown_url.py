"""Edge. Catalog URLs in a form that may be shown, and URLs that a query named."""

from __future__ import annotations

import re
from functools import lru_cache
from urllib.parse import unquote_plus

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

"""How the URL of a PostgreSQL database becomes the connection string that libpq gets."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from ipaddress import ip_address
from pathlib import Path

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from lakehouse_source.catalog.base import HARMLESS, UrlOfQuery
from lakehouse_source.catalog.committer import claims, system_user
from lakehouse_source.errors import InvalidOptionError

CONNECT_SECONDS = 10
_PORT = "5432"
# The longest name that PostgreSQL keeps.
_NAME_BYTES = 63
# Parameters that a query may give too: its own password, and settings of its session.
_OF_QUERIES = HARMLESS | {"password", "options"}
# Replaces what libpq would take from the environment and the home folder. Empty values do not fall
# back to a variable; a path below a plain file never exists. Kerberos tickets are ambient too.
_NOTHING_AMBIENT = {
    "password": "",
    "passfile": os.devnull + "/none",
    "hostaddr": "",
    "port": "",
    "sslcert": "",
    "sslkey": "",
    "sslcertmode": "disable",
    "gssencmode": "disable",
    "require_auth": "!gss,!sspi",
}
_FORCED = ("sslcertmode", "gssencmode", "require_auth")


def connection_string(url: str, redacted_url: str) -> str:
    """The URL as a connection string with our defaults.

    A host that is not local must prove that the URL names it: `sslmode` is `verify-full` unless the
    URL, or PGSSLMODE, says otherwise. For a URL that a query named (`UrlOfQuery`), libpq gets
    nothing from this machine.
    """
    # No error of libpq leaves this function: its texts quote the URL with the password.
    try:
        given = {name: str(value) for name, value in conninfo_to_dict(url).items()}
        understood = _is_as_meant(url, given)
    except (psycopg.Error, UnicodeError):
        understood = False
    if not understood:
        raise InvalidOptionError(
            option="catalog",
            value=redacted_url,
            reason="is not a PostgreSQL URL. Write special characters in the user and "
            "password percent-encoded ('@' as %40, '/' as %2F).",
        )
    added: dict[str, str] = {}
    if isinstance(url, UrlOfQuery):
        _check_query(given, redacted_url)
        if _hosts(given):
            kept = [name for name in given if name not in _FORCED]
            added = {k: v for k, v in _NOTHING_AMBIENT.items() if k not in kept and _known(k)}
    added = _secured({**_ambient(given, added), **given}, added)
    defaults = {
        "connect_timeout": str(CONNECT_SECONDS),
        "fallback_application_name": application_name(),
    }
    added |= {name: value for name, value in defaults.items() if name not in given}
    return make_conninfo(url, **added)


def hosts_of(url: str) -> list[str] | None:
    """The hosts and ports that a URL names, without those of the environment.

    None: the URL cannot be parsed.
    """
    try:
        return _hosts({name: str(value) for name, value in conninfo_to_dict(url).items()})
    except (psycopg.Error, UnicodeError):
        return None


def application_name() -> str:
    """`plake`, its version, the user and the application: the name that the server shows."""
    application = claims().get("application") or Path(sys.argv[0] or "python").name
    text = f"plake {_version()} {system_user()} {application}"
    plain = "".join(c if c.isascii() and c.isprintable() else "?" for c in text)
    return plain[:_NAME_BYTES]


@lru_cache(maxsize=1)
def _version() -> str:
    try:
        return version("plake")
    except PackageNotFoundError:  # the package was copied, not installed
        return "?"


def _check_query(given: Mapping[str, str], redacted_url: str) -> None:
    refused = sorted(set(given) - _OF_QUERIES)
    if refused:
        raise InvalidOptionError(
            option="catalog",
            value=redacted_url,
            reason=f"a query may not give {refused[0]!r}, which is about files or keys of this "
            "machine. Put the URL into an environment variable and give 'env:PLAKE_NAME'.",
        )
    if _hosts(given) and os.environ.get("PGSERVICE"):
        raise InvalidOptionError(
            option="catalog",
            value=redacted_url,
            reason="a query names the host, and PGSERVICE, which is set, would complete it. "
            "Allow the host in spark.plake.hosts.allowed, or put the URL into an environment "
            "variable and give 'env:PLAKE_NAME'.",
        )


def _ambient(given: Mapping[str, str], added: Mapping[str, str]) -> dict[str, str]:
    """The values that libpq takes from its variables, for parameters that matter here."""
    found = {}
    for name in ("host", "hostaddr", "service", "sslmode", "sslrootcert"):
        value = os.environ.get("PG" + name.upper())
        # The environment's mode is for the environment's server, not for the server of a query.
        if value and name not in given and name not in added and not added:
            found[name] = value
    return found


def _secured(known: Mapping[str, str], added: dict[str, str]) -> dict[str, str]:
    """Add `sslmode`, if nobody chose one, and the certificates that prove a host."""
    if "service" in known:
        return added  # the service file names the host, and how to reach it
    names = [known.get("host", ""), known.get("hostaddr", "")]
    if all(_is_local(one) for name in names for one in name.split(",")):
        return added | ({"sslmode": "prefer"} if added and "sslmode" not in known else {})
    mode = known.get("sslmode", "verify-full")
    secured = {**added, "sslmode": mode}
    own = Path.home() / ".postgresql" / "root.crt"
    if mode == "verify-full" and "sslrootcert" not in known and not own.exists():
        roots = _system_roots()
        if roots is not None:
            secured["sslrootcert"] = roots
    return secured


def _system_roots() -> str | None:
    """The certificates that this machine trusts; None: libpq finds none, and its error says so.

    The libpq in psycopg's wheels has an OpenSSL whose own folder does not exist, so `system` trusts
    no certificate (seen with psycopg 3.3). Python knows the file.
    """
    import ssl

    file = ssl.get_default_verify_paths().cafile
    if file is not None:
        return file
    return "system" if pq.version() >= 160000 else None


def _is_local(host: str) -> bool:
    if host.startswith(("/", "@")) or host.lower().rstrip(".") in ("", "localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:  # a name, which may lead anywhere
        return False


def _hosts(given: Mapping[str, str]) -> list[str]:
    ports = given.get("port", "").split(",")
    found = []
    for name in ("host", "hostaddr"):
        for number, one in enumerate(given[name].split(",") if given.get(name) else ()):
            port = (ports[number] if number < len(ports) > 1 else ports[0]) or _PORT
            shown = f"[{one}]" if ":" in one else one
            found.append(one if one.startswith(("/", "@")) else f"{shown}:{port}")
    return found


@lru_cache(maxsize=32)
def _known(option: str) -> bool:
    """Tell whether this libpq has a parameter."""
    return any(one.keyword == option.encode() for one in pq.Conninfo.get_defaults())


def _is_as_meant(url: str, parsed: Mapping[str, object]) -> bool:
    # libpq reads `u:pass/word@host` as host u, port pass. So parts of a password with unescaped
    # characters would appear in messages about hosts and ports.
    address = url.partition("?")[0]
    if address.count("@") > 1:
        return False
    if "@" in address and not ("user" in parsed or "password" in parsed):
        return False
    return all(part.isdecimal() or not part for part in str(parsed.get("port", "")).split(","))

"""Edge. Storage options, checked and converted, and what a text from outside may use here.

If PyArrow has a client for the store, the options are the keyword arguments of this client, or the
names of fsspec and delta-rs for them. A driver of fsspec takes its own options.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from enum import Enum, auto
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.storage.uris import AZURE_SCHEMES, GCS_SCHEMES, HADOOP_SCHEMES, S3_SCHEMES

# --- What a text from outside may use on this machine: variables by name, hosts for secrets.
#
# `env:NAME`, and the host that gets its value, stand in options, in settings and in SQL. A user who
# may write such a text must not be able to read every variable and send it anywhere. The
# environment of the process tells what is permitted; Spark's door adds the application's own
# configuration.


VARIABLES_SETTING = "PLAKE_ENV_ALLOWED"
HOSTS_SETTING = "PLAKE_HOSTS_ALLOWED"
_OURS = "PLAKE_*"
_ENVIRONMENT = "env:"
# A host that every client reads in the same way. Azure's authorities begin with a dot.
_HOST = re.compile(
    r"(?:[a-z][a-z0-9+.-]*://)?(?P<name>\.?[a-z0-9_][a-z0-9_.-]*|\[[0-9a-f:.]+\])"
    r"(?::(?P<port>[0-9]{1,5}))?(?:/[^\x00-\x20\\]*)?",
    re.ASCII | re.IGNORECASE,
)

_variables: set[str] = set()
_hosts: set[str] = set()


def allow(variables: str | None = None, hosts: str | None = None) -> None:
    """Permit more, for as long as this process lives: comma-separated, as in the environment."""
    _variables.update(_listed(variables))
    _hosts.update(one.lower() for one in _listed(hosts))


def variable_named(value: object) -> str | None:
    """NAME of `env:NAME`; None: the value is not such a text."""
    if isinstance(value, str) and value.startswith(_ENVIRONMENT):
        return value.removeprefix(_ENVIRONMENT)
    return None


def may_be_read(variable: str) -> bool:
    """Tell whether `env:` may read a variable: a variable of plake, or of the list."""
    patterns = (_OURS, *_listed(os.environ.get(VARIABLES_SETTING)), *_variables)
    return any(_matches(variable, pattern) for pattern in patterns)


def how_to_permit(variable: str) -> str:
    """The rest of an error, after the variable's name: what to do if it may not be read."""
    return (
        f"may not be read: only {_OURS} may. Rename it, or name it in the environment variable "
        f"{VARIABLES_SETTING}={variable} (in Spark also spark.plake.env.allowed, in the "
        "configuration of the application)."
    )


def gets_secrets(host: str, also: Iterable[str] = ()) -> bool:
    """Tell whether a host, with or without a port, is on the list of those that get secrets.

    An entry is `host`, `host:port` or `*.domain`. `also` are further entries.
    """
    name, port = split_host(host)
    if not name:
        return False
    for entry in (*_listed(os.environ.get(HOSTS_SETTING)), *_hosts, *also):
        domain = entry.startswith("*.")
        listed, listed_port = split_host(entry[1:] if domain else entry)
        if listed_port in ("", port) and (
            listed != "" and name.endswith(listed) and not name.startswith(("/", "@"))
            if domain
            else name == listed
        ):
            return True
    return False


def split_host(text: str) -> tuple[str, str]:
    """The name and the port, empty where there is none, of `host`, `host:port` or a URL of them.

    Both are empty for a text that clients may read in different ways: for `a:1@b`, the client of S3
    and Python disagree whether the host is a or b.
    """
    if text.startswith(("/", "@")):
        return text, ""  # the folder of a Unix socket
    match = _HOST.fullmatch(text)
    if match is not None:
        port = match["port"]
        return match["name"].strip("[]").lower().rstrip("."), str(int(port)) if port else ""
    try:
        return str(ip_address(text)), ""  # only an IPv6 address
    except ValueError:
        return "", ""


def _listed(text: str | None) -> list[str]:
    return [one.strip() for one in (text or "").split(",") if one.strip()]


def _matches(name: str, pattern: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


class Kind(Enum):
    """The type of an option's value. A SECRET is a text that must not be shown."""

    SECRET = auto()
    TEXT = auto()
    FLAG = auto()
    SECONDS = auto()
    TIME = auto()


@dataclass(frozen=True, slots=True)
class Store:
    """A kind of store. `aliases` are other names of options, in lower case."""

    name: str
    options: Mapping[str, Kind]
    aliases: Mapping[str, str]


_SECRET, _TEXT, _FLAG, _SECONDS = Kind.SECRET, Kind.TEXT, Kind.FLAG, Kind.SECONDS

S3 = Store(
    "S3",
    {
        "access_key": _SECRET,
        "secret_key": _SECRET,
        "session_token": _SECRET,
        "anonymous": _FLAG,
        "region": _TEXT,
        "scheme": _TEXT,
        "endpoint_override": _TEXT,
        "role_arn": _TEXT,
        "session_name": _TEXT,
        "external_id": _SECRET,
        "load_frequency": _SECONDS,
        "request_timeout": _SECONDS,
        "connect_timeout": _SECONDS,
        "proxy_options": _SECRET,
        "force_virtual_addressing": _FLAG,
        "background_writes": _FLAG,
        "allow_bucket_creation": _FLAG,
        "tls_ca_file_path": _TEXT,
    },
    {
        "key": "access_key",
        "secret": "secret_key",
        "token": "session_token",
        "anon": "anonymous",
        "endpoint_url": "endpoint_override",
        "aws_access_key_id": "access_key",
        "aws_secret_access_key": "secret_key",
        "aws_session_token": "session_token",
        "aws_region": "region",
        "aws_default_region": "region",
        "aws_endpoint_url": "endpoint_override",
    },
)
GCS = Store(
    "GCS",
    {
        "anonymous": _FLAG,
        "access_token": _SECRET,
        "credential_token_expiration": Kind.TIME,
        "target_service_account": _TEXT,
        "scheme": _TEXT,
        "endpoint_override": _TEXT,
        "project_id": _TEXT,
        "retry_time_limit": _SECONDS,
    },
    {"project": "project_id", "endpoint_url": "endpoint_override"},
)
AZURE = Store(
    "Azure",
    {
        "account_name": _TEXT,
        "account_key": _SECRET,
        "sas_token": _SECRET,
        "tenant_id": _TEXT,
        "client_id": _TEXT,
        "client_secret": _SECRET,
        "blob_storage_authority": _TEXT,
        "dfs_storage_authority": _TEXT,
        "blob_storage_scheme": _TEXT,
        "dfs_storage_scheme": _TEXT,
    },
    {
        "azure_storage_account_name": "account_name",
        "azure_storage_account_key": "account_key",
        "azure_storage_sas_token": "sas_token",
        "azure_tenant_id": "tenant_id",
        "azure_client_id": "client_id",
        "azure_client_secret": "client_secret",
    },
)
# Options of fsspec's drivers that say where a server is. All others may be secret.
_PLACES = frozenset({"host", "hostname", "port", "user", "username", "anon", "endpoint_url"})


def checked_options(scheme: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options with the names and values that the store's client takes.

    A value `env:NAME` is read from an environment variable, if that is permitted (`permitted`).

    Raises:
        InvalidOptionError: the store does not know an option, or its value is wrong. Values are
            not in the error.
    """
    store = _store(scheme)
    found: dict[str, Any] = {}
    spelled: dict[str, str] = {}
    for name, value in given.items():
        option = _name_in(store, name) if store is not None else _name_in_driver(scheme, name)
        if option in found:
            raise _refused(name, f"is another name of {spelled[option]!r}, which is given too.")
        spelled[option] = name
        value = _from_environment(name, value)
        if store is not None:
            value = _converted(name, value, store.options[option])
        found[option] = value
    if store in (S3, GCS) and "://" in found.get("endpoint_override", ""):
        _split_endpoint(spelled["endpoint_override"], found)
    if "sas_token" in found and store is AZURE:
        # PyArrow appends the text unchanged to a URL; other clients also take it without the
        # question mark.
        found["sas_token"] = "?" + found["sas_token"].removeprefix("?")
    if "access_token" in found and "credential_token_expiration" not in found:
        raise _refused("access_token", "needs credential_token_expiration too.")
    return found


def may_be_secret(scheme: str, name: str) -> bool:
    """Tell whether an option's value must not be shown, as for every unknown option."""
    store = _store(scheme)
    if store is None:
        return name.lower() not in _PLACES
    option = store.aliases.get(name.lower(), name.lower())
    return store.options.get(option, Kind.SECRET) is Kind.SECRET


def is_from_environment(value: object) -> bool:
    """Tell whether a value names an environment variable instead of being the value."""
    return variable_named(value) is not None


def resolved_texts(given: Mapping[str, Any]) -> tuple[str, ...]:
    """The values of environment variables in checked options, which must not be shown."""
    names = [name for name in map(variable_named, given.values()) if name is not None]
    return tuple(os.environ[name] for name in names if may_be_read(name) and name in os.environ)


def _store(scheme: str) -> Store | None:
    for schemes, store in ((S3_SCHEMES, S3), (GCS_SCHEMES, GCS), (AZURE_SCHEMES, AZURE)):
        if scheme in schemes:
            return store
    return None


def _name_in(store: Store, name: str) -> str:
    option = store.aliases.get(name.lower(), name.lower())
    if option not in store.options:
        raise _refused(
            name,
            f"is not a storage option of {store.name}.",
            known=(*store.options, *store.aliases),
        )
    return option


def _name_in_driver(scheme: str, name: str) -> str:
    """The name as the driver of fsspec spells it. Spark passes names in lower case.

    Drivers accept any name, so a name that is in no signature is passed on unchanged.
    """
    if scheme == "file" or scheme in HADOOP_SCHEMES:
        where = "A local folder" if scheme == "file" else "HDFS, which its own settings describe,"
        raise _refused(name, f"is not known. {where} takes no storage options.")
    import fsspec

    try:
        driver = fsspec.get_filesystem_class(scheme)
    except (ImportError, ValueError):
        return name  # opening the filesystem reports what is missing
    for base in driver.__mro__[:-1]:
        for known in inspect.signature(base.__init__).parameters:
            if known.lower() == name.lower():
                return known
    return name


def _from_environment(name: str, value: Any) -> Any:
    variable = variable_named(value)
    if variable is None:
        return value
    if not may_be_read(variable):
        raise _refused(name, f"the environment variable {variable!r} {how_to_permit(variable)}")
    found = os.environ.get(variable)
    if not found:
        raise _refused(name, f"needs the environment variable {variable!r}, which is not set.")
    return found


def _converted(name: str, value: Any, kind: Kind) -> Any:
    try:
        return _CONVERSIONS[kind](value)
    except (TypeError, ValueError):
        pass
    # Raised outside the handler, because the text of the failed conversion has the value.
    raise _refused(name, f"must be {_MUST_BE[kind]}.")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _flag(value: Any) -> bool:
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise TypeError
    return value


def _seconds(value: Any) -> float:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bool):
        raise TypeError
    return float(value)


def _time(value: Any) -> datetime:
    found = value if isinstance(value, datetime) else datetime.fromisoformat(_text(value))
    return found if found.tzinfo else found.replace(tzinfo=timezone.utc)


_MUST_BE = {
    Kind.SECRET: "a text",
    Kind.TEXT: "a text",
    Kind.FLAG: "true or false",
    Kind.SECONDS: "a number of seconds",
    Kind.TIME: "a datetime, or a time in ISO 8601",
}
_CONVERSIONS: Mapping[Kind, Callable[[Any], Any]] = {
    Kind.SECRET: _text,
    Kind.TEXT: _text,
    Kind.FLAG: _flag,
    Kind.SECONDS: _seconds,
    Kind.TIME: _time,
}


def _split_endpoint(name: str, found: dict[str, Any]) -> None:
    """Replace an endpoint that is a URL, as in fsspec and delta-rs, by scheme and host."""
    parts = urlsplit(found["endpoint_override"])
    if parts.path.strip("/") or parts.query or "@" in parts.netloc or not parts.netloc:
        raise _refused(name, "must be a host and a port, or a URL of them without a path.")
    if found.setdefault("scheme", parts.scheme) != parts.scheme:
        raise _refused(name, "has another scheme than the option 'scheme'.")
    found["endpoint_override"] = parts.netloc


def _refused(
    name: str, reason: str, known: tuple[str, ...] | list[str] | None = None
) -> InvalidOptionError:
    return InvalidOptionError(option=f"storage_options[{name!r}]", reason=reason, known=known)

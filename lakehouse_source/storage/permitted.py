"""Edge. What a text from outside may use on this machine: variables by name, hosts for secrets.

`env:NAME`, and the host that gets its value, stand in options, in settings and in SQL. A user who
may write such a text must not be able to read every variable and send it anywhere. The environment
of the process tells what is permitted; Spark's door adds the application's own configuration.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from ipaddress import ip_address

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

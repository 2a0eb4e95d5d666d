"""Who commits: what this process tells the catalog about itself, for the history.

All of this is what the client claims. The database's own SQL adds its login, which no client can
forge.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache

_LONGEST = 200  # characters of each text
_SPARK = "pyspark"
# What a door told about this process, which serves one application.
_claims: dict[str, str] = {}


def claim(**facts: str) -> None:
    """Note what only a door knows about this process."""
    _claims.update(facts)


def claims() -> Mapping[str, str]:
    """What the door told, for a write that another process commits."""
    return dict(_claims)


@lru_cache(maxsize=1)
def system_user() -> str:
    """The user that this process runs as, from the system and not from the environment."""
    found = str(os.getuid()) if hasattr(os, "getuid") else os.environ.get("USERNAME", "unknown")
    with suppress(ImportError, KeyError):  # no such module on Windows; a user without a name
        import pwd

        found = pwd.getpwuid(os.getuid()).pw_name
    return _short(found)


def committer(more: Mapping[str, str]) -> dict[str, str]:
    """The user, the host, the engine and its version, and what the writer tells about itself."""
    facts = {"user": system_user(), "host": _host(), "engine": _engine()}
    facts.update({name: _short(text) for name, text in {**_claims, **more}.items() if text})
    module = sys.modules.get({"spark": _SPARK}.get(facts["engine"], facts["engine"]))
    version = getattr(module, "__version__", None)
    if version is not None:
        facts["engine_version"] = _short(version)
    return facts


@lru_cache(maxsize=1)
def _host() -> str:
    return _short(platform.node())


def _engine() -> str:
    """Spark commits in a worker of its own, whose main module is one of PySpark's."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return "spark" if main is not None and main.name.startswith(f"{_SPARK}.") else "pyarrow"


def _short(text: object) -> str:
    return str(text).replace("\0", "")[:_LONGEST]

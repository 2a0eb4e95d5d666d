"""Checks that no lower bound, and no locked version, is known to be vulnerable.

    python integration/advisories.py

The bounds are those of pyproject.toml, the versions those of requirements.lock, and what is
known stands in integration/advisories.txt.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10; pytest brings it
    import tomli as tomllib

CHECKOUT = Path(__file__).resolve().parent.parent


class Advisory(NamedTuple):
    """What is known of the versions of a package below `fixed`."""

    package: str
    fixed: Version
    identity: str
    reason: str


def lines(text: str) -> Iterator[str]:
    """The lines that say something."""
    return (line for line in text.splitlines() if line.strip() and not line.startswith("#"))


def advisories(text: str) -> list[Advisory]:
    """The advisories of a file such as integration/advisories.txt."""
    found = []
    for line in lines(text):
        package, fixed, identity, reason = line.split(maxsplit=3)
        found.append(Advisory(canonicalize_name(package), Version(fixed), identity, reason))
    return found


def lowest(requirements: Iterable[str]) -> Iterator[tuple[str, Version]]:
    """The lowest version that each requirement allows; one without a bound allows all."""
    for text in requirements:
        one = Requirement(text)
        bounds = [Version(s.version) for s in one.specifier if s.operator in (">=", "==", "~=")]
        yield canonicalize_name(one.name), max(bounds, default=Version("0"))


def vulnerable(
    versions: Iterable[tuple[str, Version]], known: Iterable[Advisory]
) -> Iterator[tuple[str, Version, Advisory]]:
    """The versions that an advisory is about."""
    listed = list(known)
    for package, version in versions:
        for advisory in listed:
            if advisory.package == package and version < advisory.fixed:
                yield package, version, advisory


def required() -> list[str]:
    """All that pyproject.toml requires, the extras included, but the project itself."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    extras = [one for some in project["optional-dependencies"].values() for one in some]
    return [
        one
        for one in (*project["dependencies"], *extras)
        if Requirement(one).name != project["name"]
    ]


def locked() -> list[str]:
    """The versions that `make setup` installs; a package may have one for each Python."""
    text = (CHECKOUT / "requirements.lock").read_text()
    return [line.rstrip(" \\") for line in lines(text) if not line.startswith(" ")]


def main() -> int:
    known = advisories((CHECKOUT / "integration" / "advisories.txt").read_text())
    bad = 0
    for file, requirements in (("pyproject.toml", required()), ("requirements.lock", locked())):
        for package, version, advisory in vulnerable(lowest(requirements), known):
            bad += 1
            print(
                f"{file} allows {package} {version}, below {advisory.fixed}: "
                f"{advisory.reason} ({advisory.identity})"
            )
    print(f"{len(known)} advisories, {bad} versions are vulnerable")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

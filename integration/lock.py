"""Resolves requirements.lock anew, and its shares for the build and the demo. `make lock` runs it.

The locks name one version of each package for each Python from 3.10 to 3.14, on Linux and macOS,
x86-64 and arm64, with the hashes of its files and without addresses. Then every Python and
platform is asked for wheels, and packages without one there, which pip builds from their sources,
are printed.
"""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import product
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
UV = (sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--no-header", "--no-annotate")
LOCK = "requirements.lock"
SHARE = ("--constraint", LOCK)
BUILD = ("editables", "hatchling", "setuptools")  # the extra `build`
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
PLATFORMS = tuple(
    f"{machine}-{system}"
    for machine in ("x86_64", "aarch64")
    for system in ("unknown-linux-gnu", "apple-darwin")
)


def resolve(lock: str, *arguments: str, source: str = "pyproject.toml", text: str = "") -> None:
    """Write a lock file with the newest versions that `source`, or `text`, allows."""
    command = ("--universal", "--generate-hashes", "--python-version", PYTHONS[0], "--upgrade")
    subprocess.run(
        [*UV, *command, source, "--output-file", lock, *arguments],
        cwd=CHECKOUT,
        check=True,
        input=text.encode(),
        stdout=subprocess.DEVNULL,
    )


def built_from_source(python: str, platform: str) -> list[str]:
    """The packages of the lock that have no wheel for a Python on a platform."""
    found: list[str] = []
    while True:
        exceptions = [word for name in found for word in ("--no-binary", name)]
        asked = subprocess.run(
            [
                *(*UV, "--no-deps", "--only-binary", ":all:", *exceptions),
                *("--python-version", python, "--python-platform", platform, LOCK),
            ],
            cwd=CHECKOUT,
            capture_output=True,
            text=True,
        )
        if asked.returncode == 0:
            return found
        lacking = re.search(r"([\w.-]+)(?:\{[^}]*\})?==\S+ has no usable wheels", asked.stderr)
        if lacking is None:
            raise SystemExit(asked.stderr)
        found.append(lacking[1])


def main() -> None:
    resolve(LOCK, "--extra", "dev", "--extra", "bench")
    resolve("requirements-demo.lock", *SHARE, "--extra", "demo")
    resolve("requirements-build.lock", *SHARE, source="-", text="\n".join(BUILD))
    for python, platform in product(PYTHONS, PLATFORMS):
        names = ", ".join(built_from_source(python, platform))
        print(f"Python {python} on {platform}: built from source: {names}", flush=True)


if __name__ == "__main__":
    main()

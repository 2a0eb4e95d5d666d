"""mypy, as one of the tests: beside the others, and counted with them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


def test_the_types_are_right() -> None:
    pytest.importorskip("mypy")
    root = Path(__file__).parents[1]
    # Writing a cache takes a third of the time: `make types` makes one.
    cache = [] if (root / ".mypy_cache").exists() else ["--cache-dir", os.devnull]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *cache],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr

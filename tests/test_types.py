"""mypy, as one of the tests: beside the others, and counted with them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


def test_the_types_are_right() -> None:
    pytest.importorskip("mypy")
    root = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-m", "mypy"], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr

"""dbt's adapter, without dbt here. `integration/dbt_suites.py` runs dbt's suites on it."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SOURCES = Path(__file__).parents[2] / "spark_conf" / "dbt"


@pytest.mark.skipif(not SOURCES.exists(), reason="needs a checkout")
def test_without_dbt_the_adapter_says_what_to_install(tmp_path: Path) -> None:
    with suppress(PackageNotFoundError):
        pytest.skip(f"dbt {version('dbt-core')} is installed")
    code = "import dbt.adapters.plake"
    path = f"import sys; sys.path.insert(0, {str(SOURCES.parent)!r}); "
    run = subprocess.run(
        [sys.executable, "-c", path + code], capture_output=True, text=True, cwd=tmp_path
    )
    assert run.returncode == 1
    told = run.stderr.splitlines()[-1]
    assert told.startswith("ImportError: dbt's adapter for plake needs dbt.adapters.base")
    assert told.endswith("pip install 'plake[dbt]'")

"""An account of Azure that a catalog names, in a program that has no token for it."""

from __future__ import annotations

import os
import subprocess
import sys

_OPEN = """
from lakehouse_source.errors import StorageError
from lakehouse_source.storage import Storage
try:
    Storage("abfs://c@account.dfs.core.windows.net/x").open_input("a.parquet")
except StorageError as error:
    print("refused")
"""


def test_a_program_without_a_token_is_not_ended() -> None:
    """PyArrow opened the file, and its client called C++'s terminate."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("AZURE_")}
    environment["AZURE_AUTHORITY_HOST"] = "https://127.0.0.1:1"
    found = subprocess.run(
        [sys.executable, "-c", _OPEN], env=environment, capture_output=True, text=True, timeout=120
    )
    assert (found.returncode, found.stdout.strip()) == (0, "refused"), found.stderr

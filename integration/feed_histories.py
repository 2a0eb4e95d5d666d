"""Many random histories: the change feed of each range, against what the versions hold.

    nice .venv/bin/python -m integration.feed_histories --histories 10000

Each history (tests/feed_model.py) runs on SQLite; every tenth runs on PostgreSQL or DuckDB. Of
every tenth, all ranges are read, and of the others some. The data are in memory where the machine
has /dev/shm. A history that fails is named by its seed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
import traceback
from pathlib import Path

import lakehouse_source as lake
from tests.feed_model import check
from tests.made_catalogs import copy_of_new_catalog
from tests.postgres_server import PostgresServer


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--histories", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=10_000, help="the first seed")
    parser.add_argument("--ranges", type=int, default=4, help="of each history that is not whole")
    given = parser.parse_args()
    memory = Path("/dev/shm")
    root = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None))
    failed = []
    began = time.monotonic()
    server = PostgresServer()
    try:
        for number in range(given.histories):
            seed = given.first + number
            folder = root / "history"
            folder.mkdir()
            url = copy_of_new_catalog("sqlite", folder / "catalog.db")
            if number % 20 == 0:
                url = server.new_catalog()
            elif number % 20 == 10:
                url = copy_of_new_catalog("duckdb", folder / "catalog.db")
            try:
                with lake.open_catalog(url) as catalog:
                    check(
                        seed,
                        str(folder / "data"),
                        catalog,
                        None if number % 10 == 5 else given.ranges,
                    )
            except Exception:
                failed.append(seed)
                traceback.print_exc()
            shutil.rmtree(folder)
            if (number + 1) % 100 == 0:
                minutes = (time.monotonic() - began) / 60
                print(
                    f"{number + 1:,} histories in {minutes:.1f} min, failed: {failed}", flush=True
                )
    finally:
        server.stop()
        shutil.rmtree(root, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    os.environ.setdefault("TQDM_DISABLE", "1")
    raise SystemExit(main())

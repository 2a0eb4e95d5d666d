"""Runs `plake maintain` beside writers: no row is lost, and files, depth and folders stay small.

    python integration/upkeep.py [--minutes 15] [--catalogs sqlite,postgres]
        [--pause 0.15] [--disturb-every 12]    # at most so many seconds between two
For each catalog two writers append, update and delete rows of their own in three tables, and keep a
model of these rows. Two processes of upkeep run beside them with a short lease. Every some seconds
one of them gets SIGKILL, SIGTERM (it has to end with 0) or SIGSTOP for longer than its lease, and
another one is started. In the end each table must have the rows of the models, `verify` must be
clean, and after a last round the folders hold no other files than the catalog knows, and those of
killed processes, which stay for a day.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT))

WRITERS = 2
LEASE_SECONDS = 2
TABLES: dict[str, dict[str, Any]] = {
    "plain": {},
    "sorted": {"cluster_by": ["k"]},
    "parts": {},
}
# The writers themselves compact nothing: upkeep has --compact.
COMMON = {"auto_compact_min_files": 8, "keep_versions": 20}


def write(url: str, me: int, seconds: float, pause: float, answer: str) -> None:
    """Change rows until the time is up; write down the rows that there must be, by table."""
    import lakehouse_source as lake

    chance, end = random.Random(me), time.monotonic() + seconds
    rows: dict[str, dict[int, int]] = {name: {} for name in TABLES}
    done: Counter[str] = Counter()
    number = 0
    with lake.open_catalog(url) as catalog:
        while time.monotonic() < end:
            name = chance.choice(list(TABLES))
            dataset, mine = catalog.dataset(name), rows[name]
            verb = chance.choices(("append", "update", "delete"), (8, 1, 1))[0]
            some = chance.sample(sorted(mine), min(5, len(mine)))
            try:
                if verb == "append":
                    fresh = [WRITERS * (number + i) + me for i in range(chance.randrange(1, 60))]
                    number += len(fresh)
                    values = [chance.randrange(1000) for _ in fresh]
                    part = [one % 3 for one in fresh]
                    _ = lake.write_dataset(
                        {"id": fresh, "k": values, "p": part}, dataset.uri, catalog=catalog
                    )
                    mine.update(zip(fresh, values, strict=True))
                elif some:
                    among = f"id IN ({', '.join(map(str, some))})"
                    if verb == "update":
                        dataset.update({"k": "k + 1"}, among)
                        mine.update({one: mine[one] + 1 for one in some})
                    else:
                        dataset.delete(among)
                        for one in some:
                            del mine[one]
                done[verb] += 1
            except lake.CommitConflictError:
                done["conflict"] += 1
            time.sleep(chance.uniform(0.02, pause))
    Path(answer).write_text(json.dumps({"rows": rows, "done": done}))


class Run:
    """One catalog with its writers and its processes of upkeep."""

    def __init__(self, kind: str, url: str, folder: Path, seconds: float, pause: float) -> None:
        import pyarrow as pa

        import lakehouse_source as lake

        self.kind, self.url, self.folder = kind, url, folder
        self.catalog = lake.open_catalog(url, warehouse=folder / "warehouse")
        self.catalog.set_warehouse(folder / "warehouse")
        schema = pa.schema([("id", pa.int64()), ("k", pa.int64()), ("p", pa.int64())])
        for name, own in TABLES.items():
            self.catalog.create_dataset(
                name,
                schema,
                properties={**COMMON, **own},
                partition_by="p" if name == "parts" else None,
            )
        self.seen: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.started = 0
        self.upkeep = [self._start() for _ in range(2)]
        context = multiprocessing.get_context("spawn")
        self.writers = [
            context.Process(
                target=write, args=(url, me, seconds, pause, str(folder / f"writer{me}"))
            )
            for me in range(WRITERS)
        ]
        for one in self.writers:
            one.start()

    def _start(self) -> subprocess.Popen[bytes]:
        self.started += 1
        command = [
            *(sys.executable, "-m", "lakehouse_source.cli", "maintain", "--every", "2s", "--yes"),
            *("--catalog", self.url, "--lease-seconds", str(LEASE_SECONDS), "-q", "--compact"),
            *("--retention-seconds", "15", "--allow-short-retention", "--vacuum-every", "10s"),
            *("--metrics-file", str(self.folder / f"metrics{self.started}.prom")),
        ]
        log = (self.folder / "upkeep.log").open("ab")
        with closing(log):
            return subprocess.Popen(command, cwd=CHECKOUT, stderr=log)

    def disturb(self, chance: random.Random) -> None:
        """Kill, end or suspend a process of upkeep."""
        at = chance.randrange(len(self.upkeep))
        one, how = self.upkeep[at], chance.choice(("kill", "kill", "term", "stop"))
        assert one.poll() is None, f"upkeep ended by itself: {one.returncode}"
        if how == "stop":
            one.send_signal(signal.SIGSTOP)
            time.sleep(2.5 * LEASE_SECONDS)
            one.send_signal(signal.SIGCONT)
            self.seen["suspended"] += 1
        else:
            one.send_signal(signal.SIGKILL if how == "kill" else signal.SIGTERM)
            code = one.wait(60)
            # One that is just starting has no handler yet.
            expected = {-signal.SIGKILL} if how == "kill" else {0, -signal.SIGTERM}
            assert code in expected, f"{how}: {code}"
            self.seen[f"{how} ended with {code}"] += 1
            self.upkeep[at] = self._start()

    def look(self) -> None:
        """Note how much there is."""
        for name in TABLES:
            report = self.catalog.dataset(name).health(["k"])
            self._note(f"{name}: files", report.files)
            self._note(f"{name}: depth by k", report.depths["k"].most)
            stored = sum(1 for _ in (self.folder / "warehouse/default" / name).rglob("*.parquet"))
            self._note(f"{name}: files in the folder", stored)

    def _note(self, what: str, count: int) -> None:
        self.most[what] = max(self.most[what], count)

    def finish(self) -> dict[str, Any]:
        """Check everything; the figures."""
        import lakehouse_source as lake
        from lakehouse_source.parquet.names import own_name

        for writer in self.writers:
            writer.join(120)
            assert writer.exitcode == 0
        for one in self.upkeep:
            one.send_signal(signal.SIGTERM)
            assert one.wait(60) in (0, -signal.SIGTERM)
        found = [json.loads((self.folder / f"writer{me}").read_text()) for me in range(WRITERS)]
        versions, steps = {}, Counter[str]()
        for name in TABLES:
            dataset = self.catalog.dataset(name)
            table = dataset.scan().to_table()
            have = sorted(zip(table["id"].to_pylist(), table["k"].to_pylist(), strict=True))
            want = sorted((int(i), k) for one in found for i, k in one["rows"][name].items())
            assert have == want, f"{self.kind}, {name}: {len(have)} rows, not {len(want)}"
            assert dataset.verify(checksums=True).ok
            versions[name] = dataset.version
        time.sleep(16)
        last = lake.maintain(
            self.catalog, compact=True, retention_seconds=1, allow_short_retention=True
        )
        assert last.leads
        assert not any(one.error for one in last.tables.values())
        for name in TABLES:
            with self.catalog.read() as reader:
                id = self.catalog.dataset(name)._snapshot.dataset.id
                known = {one.path for one in reader.files_added_since(id, 0)}
                pending = set(reader.silent_writes(0.0))
            place = self.folder / "warehouse/default" / name
            stored = {str(one.relative_to(place)) for one in place.rglob("*.parquet")}
            assert known <= stored, f"{name}: {sorted(known - stored)[:5]} are gone"
            # What a killed process wrote stays until its write counts as dead, after a day.
            left = [
                one for one in stored - known if str((own_name(one) or [one])[0]) not in pending
            ]
            assert not left, f"{name}: {sorted(left)[:5]} are of no write"
            self._note(f"{name}: files of killed processes", len(stored - known))
        for path in self.folder.glob("metrics*.prom"):
            for line in path.read_text().splitlines():
                if line.startswith("plake_upkeep_steps_total{"):
                    label, _, count = line.partition(" ")
                    steps[label.split('"')[1]] += int(count)
        self.catalog.close()
        writes = sum((Counter(one["done"]) for one in found), Counter[str]())
        return {
            "catalog": self.kind,
            "writes": dict(writes),
            "versions": versions,
            "steps": dict(steps),
            "disturbed": dict(self.seen),
            "at most": dict(self.most),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=15)
    parser.add_argument("--catalogs", default="sqlite,postgres")
    parser.add_argument("--pause", type=float, default=0.15)
    parser.add_argument("--disturb-every", type=float, default=12)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    given = parser.parse_args()
    from tests.postgres_server import PostgresServer

    server, chance = PostgresServer(), random.Random(given.seed)
    begin = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(prefix="plake-upkeep-", dir=begin) as folder:
        runs = []
        for kind in given.catalogs.split(","):
            place = Path(folder, kind)
            place.mkdir()
            url = f"sqlite://{place}/lake.db" if kind == "sqlite" else server.fresh_database()
            runs.append(Run(kind, url, place, 60 * given.minutes, given.pause))
        end = time.monotonic() + 60 * given.minutes
        try:
            while time.monotonic() < end - 10:
                time.sleep(chance.uniform(0.25, 1) * given.disturb_every)
                for run in runs:
                    run.look()
                chance.choice(runs).disturb(chance)
            for run in runs:
                print(json.dumps(run.finish()), flush=True)
        finally:
            for run in runs:
                for one in [*run.upkeep, *run.writers]:
                    one.kill()
            server.stop()


if __name__ == "__main__":
    main()

"""plake on a standalone Spark cluster, with PostgreSQL as catalog and S3 as storage.

    python -m integration.cluster [CHECK ...] [--appends N] [--tasks N] [--files N] [--planned N]

Starts, all on loopback: a PostgreSQL server, an S3 server behind a proxy that can fail, a Spark
master and two workers of one core each, from the pip package. Then drivers run jobs on it, in
processes of their own, while workers, drivers and the database are killed and the store fails.
Prints a line for each check and a table of the faults; the exit code is 1 if one is wrong.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable

from integration.cluster import answers, faults, scale
from integration.cluster.running import Cluster, cluster


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--appends", type=int, default=12, help="of each of two drivers")
    parser.add_argument("--tasks", type=int, default=2_000, help="of the large job")
    parser.add_argument("--files", type=int, default=20_000, help="that the large job writes")
    parser.add_argument("--planned", type=int, default=100_000, help="files that a scan has")
    parser.add_argument("checks", nargs="*", metavar="CHECK", help="only these")
    arguments = parser.parse_args()
    checks: dict[str, Callable[[Cluster], None]] = {
        "main": answers.main_job,
        "tables": answers.tables_and_streams,
        "clustering": answers.clustering,
        "database": lambda found: faults.database_restarts(found, arguments.appends),
        "failing": lambda found: faults.store_fails(found, arguments.appends),
        "stalling": lambda found: faults.store_stalls(found, arguments.appends),
        "worker": faults.worker_dies,
        "drivers": faults.drivers_die,
        "late": faults.late_task,
        "planned": lambda found: scale.many_files(found, arguments.planned),
        "scale": lambda found: scale.many_tasks(found, arguments.tasks, arguments.files),
    }
    if unknown := set(arguments.checks) - set(checks):
        parser.error(f"no check {', '.join(unknown)}; there are {', '.join(checks)}")
    with cluster() as running:
        for name in arguments.checks or checks:
            started = time.monotonic()
            checks[name](running)
            took = time.monotonic() - started
            print(f"      {name}: {took:.0f} s, load {os.getloadavg()[0]:.0f}", flush=True)
    if running.faults:
        print("\n| fault | what ran | result | orphans |\n|---|---|---|---|")
        print("\n".join(running.faults))
    print(f"{len(running.wrong)} wrong")
    return 1 if running.wrong else 0


if __name__ == "__main__":
    sys.exit(main())

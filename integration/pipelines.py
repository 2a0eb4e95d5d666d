"""Auto CDC of Declarative Pipelines against a model in plain Python, with kills between.

    python integration/pipelines.py [--minutes N] [--kills N] [--catalog sqlite|postgres] [--seed N]

A driver adds random events to tables of changes, in no order, and runs a pipeline with a target of
SCD type 1 and one of type 2 for each. After each run both must have the rows of the model for all
events. Between two kills a driver makes some runs; then it and all of its processes get SIGKILL at
any moment, and the next driver has to come to the model's rows from what is left.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT))

EVENTS, SOURCES = 8, 2


def driver(url: str, folder: Path, seed: int, runs: int) -> None:
    """Run the pipeline again and again; a line for each run."""
    from pyspark.sql import SparkSession

    import lakehouse_source as lake
    from tests.doors import pipelines
    from tests.doors.test_pipelines import CHANGES, held, newest, periods, rows

    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "OFF")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.driver.memory", "1g")
    )
    spark = lake.spark.configure(builder, catalog=url, warehouse=f"{folder}/w").getOrCreate()
    spark.sql("CREATE NAMESPACE IF NOT EXISTS plake.cdc")
    sources = [f"changes{n}" for n in range(SOURCES)]
    text = ""
    for n, source in enumerate(sources):
        spark.sql(
            f"CREATE TABLE IF NOT EXISTS plake.cdc.{source} "
            "(id INT, name STRING, op STRING, a INT, b INT)"
        )
        for kind in (1, 2):
            text += CHANGES.format(
                to=f"scd{kind}_{n}", type=kind, space="cdc", sequence="struct(a, b)"
            ).replace("cdc.changes", f"cdc.{source}")
    chance = random.Random(seed)
    for number in range(runs):
        begin = time.monotonic()
        for source in sources:
            if number or not spark.table(f"plake.cdc.{source}").count():  # a kill is mended first
                spark.sql(f"INSERT INTO plake.cdc.{source} VALUES {drawn(spark, source, chance)}")
        print("run", flush=True)
        failures = pipelines.run(spark, "cdc", text, folder / "storage")
        assert failures == [], failures
        for n, source in enumerate(sources):
            told = [tuple(row) for row in spark.table(f"plake.cdc.{source}").collect()]
            first = rows(spark, f"SELECT id, name FROM plake.cdc.scd1_{n}")
            assert first == newest(told), (first, told)
            second = held(spark, f"plake.cdc.scd2_{n}")
            assert second == periods(told), (second, told)
        print(f"right {time.monotonic() - begin:.1f}", flush=True)
    print("done", flush=True)


def drawn(spark: Any, source: str, chance: random.Random) -> str:
    """Events whose sequences are new, anywhere between those before."""
    taken = {tuple(row) for row in spark.sql(f"SELECT a, b FROM plake.cdc.{source}").collect()}
    events = []
    while len(events) < EVENTS:
        place = (chance.randrange(400), chance.randrange(3))
        if place not in taken:
            taken.add(place)
            op = "D" if chance.random() < 0.25 else "U"
            events.append(str((chance.randrange(4), chance.choice("xyz"), op, *place)))
    return ", ".join(events)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=9)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--catalog", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--driver", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.driver:
        url, place, seed, runs = given.driver
        driver(url, Path(place), int(seed), int(runs))
        return
    from tests.postgres_server import PostgresServer

    server, chance = PostgresServer(), random.Random(given.seed)
    end = time.monotonic() + 60 * given.minutes
    kills, batches, seconds = 0, 0, []
    with tempfile.TemporaryDirectory(prefix="plake-cdc-", dir="/dev/shm") as folder:
        is_file = given.catalog == "sqlite"
        url = f"sqlite://{folder}/lake.db" if is_file else server.fresh_database()
        while time.monotonic() < end:
            runs = 3 if kills < given.kills else 1000
            command = [sys.executable, __file__, "--driver", url, folder, str(chance.random())[2:]]
            log = open(f"{folder}/log", "wb")  # noqa: SIM115
            process = subprocess.Popen(
                [*command, str(runs + 1)], stdout=subprocess.PIPE, stderr=log, text=True,
                start_new_session=True,
            )  # fmt: skip
            assert process.stdout is not None
            begun = 0
            for line in process.stdout:
                if line.startswith("run"):
                    begun += 1
                    if begun > runs and kills < given.kills:
                        time.sleep(chance.uniform(0, max(seconds, default=10.0)))
                        os.killpg(process.pid, signal.SIGKILL)
                        kills += 1
                        break
                elif line.startswith("right"):
                    batches += 2 * SOURCES
                    seconds.append(float(line.split()[1]))
                if time.monotonic() > end:
                    os.killpg(process.pid, signal.SIGKILL)
                    break
            else:
                if process.wait() != 0:
                    sys.exit(Path(folder, "log").read_text()[-3000:])
            process.wait()
        print(json.dumps({
            "catalog": given.catalog, "seed": given.seed, "batches": batches, "kills": kills,
            "seconds of a run": sorted(seconds)[len(seconds) // 2] if seconds else None,
        }))  # fmt: skip
    server.stop()


if __name__ == "__main__":
    main()

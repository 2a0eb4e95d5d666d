"""Auto CDC of Declarative Pipelines against a model in plain Python, with kills between.

    python integration/pipelines.py [--minutes N] [--kills N] [--batches N]
        [--catalog sqlite|postgres] [--seed N]

A driver commits batches of random events, in no order, to tables of changes, and runs a pipeline
with a target of SCD type 1 and one of type 2 for each: all streams at once, a commit a batch. Each
version of a target must have the rows of the model after some batch, and none those of an earlier
one than the version before; the last version those of all batches. Between two kills a driver makes
a run; then it and all of its processes get SIGKILL at any moment, and the next driver has to
come to the model's rows from what is left.
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

EVENTS, SOURCES, COMMITS = 8, 4, 4
TARGETS = [(kind, source) for source in range(SOURCES) for kind in (1, 2)]
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.log.level": "OFF",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.memory": "1500m",
    # Batches of few rows: compiling costs more than it saves.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def driver(url: str, folder: Path, seed: int, runs: int) -> None:
    """Run the pipeline again and again; a line for each run."""
    from pyspark.sql import SparkSession

    import lakehouse_source as lake
    from tests.doors import pipelines
    from tests.doors.test_pipelines import CHANGES

    builder = SparkSession.builder.master("local[2]").config(map=SETTINGS)
    spark = lake.spark.configure(builder, catalog=url, warehouse=f"{folder}/w").getOrCreate()
    spark.sql("CREATE NAMESPACE IF NOT EXISTS plake.cdc")
    text = ""
    for source in range(SOURCES):
        spark.sql(
            f"CREATE TABLE IF NOT EXISTS plake.cdc.changes{source} "
            "(id INT, name STRING, op STRING, a INT, b INT, batch INT)"
        )
    for kind, source in TARGETS:
        one = CHANGES.format(
            to=f"scd{kind}_{source}", type=kind, space="cdc", sequence="struct(a, b)"
        )
        text += one.replace("(op, a, b)", "(op, a, b, batch)").replace(
            "STREAM(plake.cdc.changes)",
            f"STREAM(plake.cdc.changes{source}) WITH ('maxFilesPerTrigger' = '1')",
        )
    chance = random.Random(seed)
    with lake.open_catalog(url) as catalog:
        told = {source: events(catalog, source) for source in range(SOURCES)}
        checked = dict.fromkeys(TARGETS, (0, 0))
        for number in range(runs):
            begin = time.monotonic()
            for source, batches in told.items():
                if number or not batches:  # a kill is mended first
                    for _ in range(COMMITS):
                        tell(catalog, source, batches, chance)
            print("run", flush=True)
            while failures := pipelines.run(spark, "cdc", text, folder / "storage"):
                # Spark gives a stream up whose Python process is late. The next run goes on.
                assert all("failed to connect back" in one for one in failures), failures
                print("late", flush=True)
            for kind, source in TARGETS:
                checked[kind, source] = check(catalog, kind, source, told, checked[kind, source])
            seconds = time.monotonic() - begin
            done = sum(2 * len(batches) for batches in told.values())
            print(f"right {seconds:.1f} {done}", flush=True)
    print("done", flush=True)


def events(catalog: Any, source: int) -> list[list[tuple[Any, ...]]]:
    """The batches of a table of changes."""
    found: dict[int, list[tuple[Any, ...]]] = {}
    for row in catalog.dataset(f"cdc.changes{source}").scan().to_table().to_pylist():
        *event, batch = row.values()
        found.setdefault(batch, []).append(tuple(event))
    return [found[batch] for batch in sorted(found)]


def tell(catalog: Any, source: int, batches: list[Any], chance: random.Random) -> None:
    """Commit a batch of events whose sequences are new, anywhere between those before."""
    import pyarrow as pa

    import lakehouse_source as lake

    taken, fresh = {event[3:] for batch in batches for event in batch}, []
    while len(fresh) < EVENTS:
        place = (chance.randrange(4000), chance.randrange(3))
        if place not in taken:
            taken.add(place)
            op = "D" if chance.random() < 0.25 else "U"
            fresh.append((chance.randrange(8), chance.choice("xyz"), op, *place))
    dataset = catalog.dataset(f"cdc.changes{source}")
    columns = [*zip(*fresh, strict=True), [len(batches)] * EVENTS]
    rows = pa.table(dict(zip(dataset.schema.names, columns, strict=True)))
    lake.write_dataset(rows.cast(dataset.schema), dataset.uri, catalog=catalog)
    batches.append(fresh)


def check(
    catalog: Any, kind: int, source: int, told: dict[int, list[Any]], since: tuple[int, int]
) -> tuple[int, int]:
    """Compare the versions of a target after one with the model; the last one, and its batch."""
    from tests.doors.test_pipelines import newest, periods

    last, batch = since
    dataset, batches = catalog.dataset(f"cdc.scd{kind}_{source}"), told[source]

    def model(count: int) -> list[tuple[Any, ...]]:
        some = [event for batch in batches[:count] for event in batch]
        return newest(some) if kind == 1 else periods(some)

    for version in range(last + 1, dataset.version + 1):
        have = rows(dataset.scan(version=version).to_table().to_pylist(), kind)
        where = (at for at in range(batch, len(batches) + 1) if model(at) == have)
        found = next(where, None)
        assert found is not None, (kind, source, version, batch, have, batches)
        batch = found
    assert model(batch) == model(len(batches)), (kind, source, batch, batches)
    return dataset.version, batch


def rows(found: list[dict[str, Any]], kind: int) -> list[tuple[Any, ...]]:
    """The rows of a target, as the model has them."""
    if kind == 1:
        return sorted((row["id"], row["name"]) for row in found)
    ends = [
        tuple(row[end] and tuple(row[end].values()) for end in ("__START_AT", "__END_AT"))
        for row in found
    ]
    both = zip(found, ends, strict=True)
    return sorted(((row["id"], row["name"], *its) for row, its in both), key=repr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--batches", type=int, default=1000)
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
    kills, late, batches, seconds = 0, 0, 0, []
    paths = (CHECKOUT, CHECKOUT / "tests" / "warm_workers")
    quick = {
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m",
    }
    with tempfile.TemporaryDirectory(prefix="plake-cdc-", dir="/dev/shm") as folder:
        is_file = given.catalog == "sqlite"
        url = f"sqlite://{folder}/lake.db" if is_file else server.fresh_database()
        while time.monotonic() < end and (batches < given.batches or kills < given.kills):
            runs = 1 if kills < given.kills else 1000
            command = [sys.executable, __file__, "--driver", url, folder, str(chance.random())[2:]]
            log = open(f"{folder}/log", "wb")  # noqa: SIM115
            process = subprocess.Popen(
                [*command, str(runs + 1)], stdout=subprocess.PIPE, stderr=log, text=True,
                start_new_session=True, env={**os.environ, **quick},
            )  # fmt: skip
            assert process.stdout is not None
            begun = 0
            for line in process.stdout:
                if line.startswith("run"):
                    begun += 1
                    if begun > runs and kills < given.kills:
                        time.sleep(chance.uniform(0, seconds[-1] if seconds else 10.0))
                        os.killpg(process.pid, signal.SIGKILL)
                        kills += 1
                        break
                elif line.startswith("late"):
                    late += 1
                elif line.startswith("right"):
                    _, took, done = line.split()
                    batches = int(done)
                    seconds.append(float(took))
                    print(line.strip(), kills, flush=True)
                    if batches >= given.batches and kills >= given.kills:
                        os.killpg(process.pid, signal.SIGKILL)
                        break
                if time.monotonic() > end:
                    os.killpg(process.pid, signal.SIGKILL)
                    break
            else:
                if process.wait() != 0:
                    sys.exit(Path(folder, "log").read_text()[-3000:])
            process.wait()
        print(json.dumps({
            "catalog": given.catalog, "seed": given.seed, "batches": batches, "kills": kills,
            "late runs": late,
            "seconds of a run": sorted(seconds)[len(seconds) // 2] if seconds else None,
        }))  # fmt: skip
    server.stop()


if __name__ == "__main__":
    main()

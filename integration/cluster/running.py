"""What has to run for the jobs: PostgreSQL, S3 behind a proxy that can fail, a master, workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from integration.cluster.jobs import CATALOG, PATHS

PASSWORD = "canary-in-the-catalog-url"
KEYS = {"access_key": "user", "secret_key": "canary-secret"}
BUCKET = "s3://plake"


class Database:
    """A PostgreSQL server with a database, which survives a crash of the server."""

    def __init__(self) -> None:
        from tests.postgres_server import PostgresServer

        self._server = PostgresServer()
        self.url = self.fresh()
        self._server.sync_to_disk(True)
        self.stop = self._server.stop
        self.restart = self._server.crash_and_restart

    def fresh(self) -> str:
        """The URL of another database."""
        return self._server.fresh_database(password=PASSWORD)


class Workers:
    """The workers of the cluster, one core each, with host names of their own.

    Spark runs a speculative copy of a task only on another host.
    """

    def __init__(self, folder: Path, master: str, page: int) -> None:
        self._folder = folder
        self._master = master
        self._page = page  # the port of the master's UI
        self.running = [self._start(number, {}) for number in range(2)]
        self._wait_for(2)

    def _start(self, number: int, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        return spark_class(
            self._folder,
            environment,
            *("worker.Worker", "-c", "1", "-m", "2g", "--host", f"127.0.0.{number + 1}"),
            *("--webui-port", "0", "--work-dir", str(self._folder / "work" / str(number))),
            self._master,
        )

    def kill(self, number: int) -> None:
        """Kill a worker with its executors, at once."""
        from tests.doors.stream_driver import kill_session

        kill_session(self.running[number].pid)
        self.running[number].wait()

    def start_again(self, number: int, environment: Mapping[str, str] | None = None) -> None:
        """Start a worker that was killed. Its executors get the environment."""
        self._wait_for(1)
        self.running[number] = self._start(number, environment or {})
        self._wait_for(2)

    def stop(self) -> None:
        for number in range(len(self.running)):
            self.kill(number)

    def _wait_for(self, count: int) -> None:
        """Wait until the master knows so many workers."""
        give_up = time.monotonic() + 180
        while time.monotonic() < give_up:
            with suppress(OSError), urlopen(f"http://127.0.0.1:{self._page}/json/") as answer:
                if json.loads(answer.read())["aliveworkers"] == count:
                    return
            time.sleep(0.5)
        raise SystemExit(f"there are not {count} workers")

    def executors(self) -> list[int]:
        """The processes of executors, and those that they started."""
        mine = {worker.pid for worker in self.running}
        found = []
        for process in map(int, filter(str.isdigit, os.listdir("/proc"))):
            with suppress(OSError):
                if os.getsid(process) in mine and process not in mine:
                    found.append(process)
        return found


def spark_class(
    folder: Path, environment: Mapping[str, str], name: str, *arguments: str
) -> subprocess.Popen[bytes]:
    """A process of the standalone cluster."""
    import pyspark

    home = Path(pyspark.__file__).parent
    with (folder / f"{name}.log").open("a") as log:
        return subprocess.Popen(
            [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments],
            env=os.environ
            | {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
            | dict(environment),
            cwd=folder,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


@dataclass
class Cluster:
    """What runs, how drivers reach it, and what was found wrong."""

    folder: Path
    master: str
    store: dict[str, str]
    proxy: Any
    database: Database
    workers: Workers
    wrong: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def check(self, what: str, good: bool, detail: object = "") -> bool:
        print(f"{'ok   ' if good else 'WRONG'} {what} {detail}".rstrip(), flush=True)
        if not good:
            self.wrong.append(what)
        return good

    def fault(self, what: str, happened: str, clean: bool, orphans: int) -> None:
        """Note a line of the fault table."""
        result = "each row once, verify clean" if clean else "**WRONG**"
        self.faults.append(f"| {what} | {happened} | {result} | {orphans} deleted, then none |")

    def start(self, name: str, uri: str, **given: Any) -> subprocess.Popen[str]:
        """A driver that runs a job, in a session of its own.

        `environment` has further variables, `catalog` is the URL of another database.
        """
        environment = given.pop("environment", {})
        catalog = given.pop("catalog", self.database.url)
        job = {
            "name": name, "uri": uri, "master": self.master, "warehouse": f"{BUCKET}/warehouse",
            "storage": {f"storage.{key}": value for key, value in self.store.items()}, **given,
        }  # fmt: skip
        return subprocess.Popen(
            [sys.executable, "-m", "integration.cluster.jobs", json.dumps(job)],
            env={
                **os.environ,
                CATALOG: catalog,
                "PLAKE_CLUSTER_KEY": KEYS["access_key"],
                "PLAKE_CLUSTER_SECRET": KEYS["secret_key"],
                "PLAKE_HOSTS_ALLOWED": "127.0.0.1",
                "PYTHONPATH": PATHS,
                "PYSPARK_PYTHON": sys.executable,
                "SPARK_LOCAL_IP": "127.0.0.1",
                **environment,
            },
            cwd=self.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(self.folder / "drivers.log").open("a"),
            text=True,
            start_new_session=True,
        )

    def finish(self, driver: subprocess.Popen[str], seconds: float = 1200) -> dict[str, Any]:
        """What a driver found; `failed` has its exit code and the end of the log."""
        printed, _ = driver.communicate(timeout=seconds)
        lines = [line for line in printed.splitlines() if line.startswith("{")]
        if driver.returncode or not lines:
            log = (self.folder / "drivers.log").read_text(errors="replace")
            return {"failed": driver.returncode, "log": log[-2000:]}
        return dict(json.loads(lines[-1]))

    def open(self, uri: str) -> Any:
        import lakehouse_source as lake

        return lake.open_dataset(uri, catalog=self.database.url, storage_options=self.store | KEYS)

    def tidy(self, uri: str) -> tuple[bool, int]:
        """Verify, vacuum, and verify again; whether all is clean, and how many orphans there were.

        What is left in the store must then be the files of the versions, and nothing else.
        """
        dataset = self.open(uri)
        clean = dataset.verify(checksums=True).ok
        limits = {"retention_seconds": 0, "abandoned_after_seconds": 0}
        report = dataset.vacuum(allow_short_retention=True, progress=False, **limits)
        again = dataset.vacuum(allow_short_retention=True, progress=False, **limits)
        clean = clean and dataset.refresh().verify(checksums=True).ok and not again.files_removed
        known = {
            file.path
            for version in range(1, dataset.version + 1)
            for file in dataset.files(version=version)
        }
        there = {path for path in self.objects(uri) if path.endswith(".parquet")}
        return clean and there == known, report.files_removed

    def objects(self, uri: str) -> list[str]:
        """The objects below a URI, as another client lists them; paths relative to it."""
        import pyarrow.fs as pafs

        client = pafs.S3FileSystem(**(self.store | KEYS))
        root = uri.removeprefix("s3://")
        found = client.get_file_info(pafs.FileSelector(root, recursive=True, allow_not_found=True))
        return [one.path[len(root) + 1 :] for one in found if one.type == pafs.FileType.File]


@contextmanager
def cluster() -> Iterator[Cluster]:
    """Start everything."""
    import pyarrow.fs as pafs

    from tests.doors.stream_driver import kill_session
    from tests.edges.failing_proxy import FailingProxy
    from tests.edges.object_stores import free_port, s3_server

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="plake-cluster-")))
        for name in ("events", "work"):
            (folder / name).mkdir()
        database = Database()
        stack.callback(database.stop)
        port = stack.enter_context(s3_server())
        proxy = stack.enter_context(FailingProxy(port, 0.0))
        store = {
            "access_key": "env:PLAKE_CLUSTER_KEY",
            "secret_key": "env:PLAKE_CLUSTER_SECRET",
            "region": "us-east-1",
            "endpoint_override": f"http://127.0.0.1:{proxy.port}",
        }
        pafs.S3FileSystem(allow_bucket_creation=True, **(store | KEYS)).create_dir("plake")
        where, page = free_port(), free_port()
        master = spark_class(
            folder,
            {},
            *("master.Master", "--host", "127.0.0.1", "--port", str(where)),
            *("--webui-port", str(page)),
        )
        stack.callback(master.wait)
        stack.callback(kill_session, master.pid)
        workers = Workers(folder, f"spark://127.0.0.1:{where}", page)
        stack.callback(workers.stop)
        yield Cluster(folder, f"spark://127.0.0.1:{where}", store, proxy, database, workers)

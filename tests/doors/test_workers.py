"""What plake does to the Python processes that Spark starts for it."""

from __future__ import annotations

import gc
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import LongType, StructField, StructType

import lakehouse_source as lake
from lakehouse_source.spark.reading import task_read
from lakehouse_source.spark.session.workers import acknowledge, freeze_gc
from lakehouse_source.spark.source import PlakeDataSource
from lakehouse_source.spark.writing import frame_writers, row_change_write

# Runs what a worker runs, and prints which rooms of the package that took.
WORKER = """
import pickle, sys
import pyarrow as pa
with open(sys.argv[1], "rb") as file:
    given = file.read()
{act}
ours = [name.split(".") for name in sys.modules if name.startswith("lakehouse_source.")]
print(*{{name[1] for name in ours}})
"""
READ = """
reader, source, partitions = pickle.loads(given)
assert sum(batch.num_rows for one in partitions for batch in reader.read(one)) == 3
"""
WRITE = """
[file] = pickle.loads(given).write(iter([pa.record_batch({"id": pa.array([4])})])).files
assert file.row_count == 1
"""
FILES = {
    "arguments",
    "constraints",
    "deletion",
    "errors",
    "generated",
    "language",
    "progress",
    "model",
    "parquet",
    "properties",
}
FILES |= {"pruning", "schema", "spark", "storage"}


def rooms(act: str, given: object, folder: Path) -> set[str]:
    """The rooms that a new process imports for a call on a pickled value."""
    (folder / "given").write_bytes(cloudpickle.dumps(given))
    command = [sys.executable, "-c", WORKER.format(act=act), str(folder / "given")]
    return set(subprocess.run(command, check=True, stdout=-1, text=True).stdout.split())


def test_tasks_import_what_files_need_and_no_catalog(tmp_path: Path) -> None:
    """Each Python worker of Spark imported all 377 modules, among them the database's."""
    path = str(tmp_path / "data")
    lake.write_dataset({"id": [1, 2, 3]}, path)
    source = PlakeDataSource({"path": path})
    reader = source.reader(source.schema())
    reading = rooms(READ, (reader, source, reader.partitions()), tmp_path)
    assert reading <= FILES
    stream = source.streamReader(source.schema())
    end = stream.latestOffset(stream.initialOffset())
    partitions = stream.partitions(stream.initialOffset(), end)
    assert rooms(READ, (stream, source, partitions), tmp_path) <= FILES
    writer = PlakeDataSource({"path": path}).writer(
        StructType([StructField("id", LongType())]), overwrite=False
    )
    assert rooms(WRITE, writer, tmp_path) <= FILES | {"failpoints", "layout"}
    assert rooms("import pyspark_plake", None, tmp_path) == {"errors", "spark"}


@pytest.mark.parametrize(
    ("module", "needless"),
    [
        ("spark.reading.batch_read", {"dataset", "write", "pictures", "maintenance"}),
        ("spark.tables.commands", {"dataset", "maintenance", "pictures", "iceberg", "erasure"}),
        ("spark.writing.begin_write", {"dataset", "maintenance", "pictures", "erasure"}),
        ("spark.writing.row_change_write", {"dataset", "maintenance", "pictures", "erasure"}),
        ("read.plan", {"dataset", "write", "pictures", "iceberg", "layout"}),
    ],
)
def test_what_plans_and_commits_imports_no_room_that_it_does_not_need(
    tmp_path: Path, module: str, needless: set[str]
) -> None:
    """The worker that plans imported 220 modules and no more 143: a third of its start."""
    assert not rooms(f"import lakehouse_source.{module}", None, tmp_path) & needless


def test_a_process_of_the_user_is_left_alone() -> None:
    before = gc.get_freeze_count()
    freeze_gc()
    assert gc.get_freeze_count() == before


@pytest.mark.spark
def test_workers_keep_modules_out_of_the_collection_after_each_task(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "data")
    spark.range(10).write.format("plake").mode("append").save(path)
    driver = os.getpid()

    def ask(rows):  # type: ignore[no-untyped-def]
        for _ in rows:
            freeze_gc()
            yield gc.get_freeze_count() if os.getpid() != driver else -1

    counts = spark.read.format("plake").load(path).rdd.mapPartitions(ask).collect()
    assert len(counts) == 10
    assert min(counts) > 10_000  # what modules hold; Python 3.12 begins with some hundreds


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="Linux has it")
@pytest.mark.parametrize("program", ["pyspark.daemon", "of.a.user"])
def test_a_worker_acknowledges_its_function_at_once_and_keeps_its_sockets(
    monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    main = sys.modules["__main__"]
    monkeypatch.setattr(main, "__spec__", ModuleSpec(program, None), raising=False)
    here, there = socket.socketpair()  # no TCP
    server = socket.create_server(("127.0.0.1", 0))
    spark = socket.create_connection(server.getsockname())
    worker, _ = server.accept()
    with here, there, server, spark, worker:
        for _ in range(5):  # questions with answers: the kernel waits for the next answer
            spark.sendall(b"function")
            worker.sendall(worker.recv(8))
            spark.recv(8)
        before = sorted(os.listdir("/proc/self/fd"))
        assert not worker.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK)
        acknowledge()
        is_quick = worker.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK)
        assert bool(is_quick) == (program == "pyspark.daemon")
        assert sorted(os.listdir("/proc/self/fd")) == before
        spark.sendall(b"rows")
        assert worker.recv(8) == b"rows"


class _Acknowledged(Exception):
    pass


@pytest.mark.parametrize(
    "writer",
    [frame_writers.PlakeWriter, frame_writers.TaskWriter, row_change_write.RowChangeWriter],
)
def test_a_task_waited_40_ms_for_its_rows(monkeypatch: pytest.MonkeyPatch, writer: Any) -> None:
    """Each of them acknowledges what it has before it asks for the first row."""

    def rows() -> Iterator[Any]:
        raise AssertionError("rows are read")
        yield

    def acknowledged() -> None:
        raise _Acknowledged

    for module in (frame_writers, row_change_write):
        monkeypatch.setattr(module, "acknowledge", acknowledged)
    with pytest.raises(_Acknowledged):
        writer.write(object(), rows())


def test_a_task_waited_40_ms_for_its_partition(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lake.write_dataset(pa.table({"id": [1]}), tmp_path / "data")
    source = PlakeDataSource({"path": str(tmp_path / "data")})
    function = cloudpickle.dumps(source.reader(source.schema()))
    calls: list[int] = []
    monkeypatch.setattr(task_read, "acknowledge", lambda: calls.append(1))
    cloudpickle.loads(function)
    assert calls == [1]


FIRST = """
import sys
from pyspark.sql import SparkSession
import lakehouse_source as lake

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = lake.spark.configure(builder).getOrCreate()
spark.range(10).write.format("plake").mode("append").save(sys.argv[1])
assert spark.read.format("plake").load(sys.argv[1]).where("id > 6").count() == 3
stream = spark.readStream.format("plake").load(sys.argv[1]).writeStream.format("plake")
stream = stream.option("checkpointLocation", sys.argv[1] + "-checkpoint").trigger(availableNow=True)
stream.start(sys.argv[1] + "-copy").awaitTermination()
assert spark.read.format("plake").load(sys.argv[1] + "-copy").count() == 10
for child in spark._jvm.java.lang.ProcessHandle.current().children().toArray():
    print("child:", child.info().commandLine().orElse(""))
"""


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.spark
def test_the_first_statements_wait_for_no_process_that_they_can_do_without(tmp_path: Path) -> None:
    """One looked for packages of other formats, and one made what the next one planned."""
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, "-c", FIRST, str(tmp_path / "data")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = [line.split()[-1] for line in done.stdout.splitlines() if "pyspark.daemon" in line]
    assert sorted(one.rpartition(".")[2] for one in found) == [
        "commit_data_source_write",
        "plan_data_source_read",
        "python_streaming_sink_runner",
        "worker",
        "write_into_data_source",
    ]


@pytest.mark.spark
def test_a_copy_of_a_session_has_the_formats_of_both_ways(spark_auto: SparkSession) -> None:
    """Spark copies a session for each stream, and there registered all formats anew."""

    class Other(DataSource):
        @classmethod
        def name(cls) -> str:
            return "registered_later"

    spark_auto.dataSource.register(Other)
    session = spark_auto._jsparkSession
    formats = session.cloneSession().cloneSession().sessionState().dataSourceManager()
    assert formats.getClass().getSimpleName() == "KnownFormats"
    names = ("plake", "registered_later", "not_there")
    assert [formats.dataSourceExists(name) for name in names] == [True, True, False]
    copied = session.cloneSession().sessionState().dataSourceManager()
    copied.registerDataSource("of_the_copy", formats.lookupDataSource("plake"))
    own = session.sessionState().dataSourceManager()
    assert (copied.dataSourceExists("of_the_copy"), own.dataSourceExists("of_the_copy")) == (
        True,
        False,
    )

"""What one task does, without a cluster: batches, their schema, pieces and attempts."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import replace
from decimal import Decimal
from inspect import signature
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import cloudpickle
from pyspark.sql import datasource as filters
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StructField, StructType

import lakehouse_source as lake
from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.model import ScanTask
from lakehouse_source.parquet import writer as parquet_writer
from lakehouse_source.parquet.read_write_specs import WriteSpec
from lakehouse_source.parquet.writer import write_files
from lakehouse_source.read.address import Address
from lakehouse_source.schema.merge import initial
from lakehouse_source.spark.reading.batch_read import PlakeReader
from lakehouse_source.spark.reading.frame_options import ReadRequest
from lakehouse_source.spark.reading.pushdown import Pushdown
from lakehouse_source.spark.reading.task_read import (
    FILE_COST_BYTES,
    ScanPartition,
    decimals_to_longs,
    decoded_share,
    pack,
)
from lakehouse_source.spark.source import PlakeDataSource
from lakehouse_source.spark.writing.frame_writers import FilesWritten, PlakeWriter
from lakehouse_source.storage import Storage
from tests.doors.frames import data_files
from tests.doors.pushed import call, column, comparison, literal

pytestmark = pytest.mark.slow

MEGABYTE = 1024 * 1024


def source(path: Path, **options: str) -> PlakeDataSource:
    made: PlakeDataSource = cloudpickle.loads(
        cloudpickle.dumps(PlakeDataSource({"path": str(path), **options}))
    )
    return made


def request(path: Path) -> ReadRequest:
    return ReadRequest(str(path), None, lake.open_dataset(path).version, None, None, None)


def batches(reader: Any, schema: StructType) -> list[pa.RecordBatch]:
    """What Spark does: plan, pickle the reader, read each partition elsewhere."""
    partitions = reader.partitions()
    task = cloudpickle.loads(cloudpickle.dumps(reader))
    # Spark 4.1 has no such keyword, and always uses UTC.
    zone = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    expected = to_arrow_schema(schema, **zone)
    found = [batch for partition in partitions for batch in task.read(partition)]
    for batch in found:
        assert batch.schema.equals(expected)
        assert [column.type for column in batch.columns] == expected.types
        batch.validate(full=True)
    return found


@pytest.fixture
def numbers(tmp_path: Path) -> Path:
    """Ten row groups of 100 rows; `v` is NaN in the last row group."""
    ids = pa.array(range(1000), pa.int64())
    values = pa.array([float("nan") if i >= 900 else float(i % 100) for i in range(1000)])
    lake.write_dataset(pa.table({"id": ids, "v": values}), tmp_path / "d", row_group_rows=100)
    return tmp_path / "d"


@pytest.mark.parametrize(
    ("where", "count"),
    [("id = 555", 1), ("id >= 950 OR id < 3", 53), ("v > 98", 109), ("id < 0", 0), (None, 1000)],
)
def test_only_rows_that_match_the_where_option_are_shipped(
    numbers: Path, where: str | None, count: int
) -> None:
    made = source(numbers, **({} if where is None else {"where": where}))
    found = batches(made.reader(made.schema()), made.schema())
    assert sum(batch.num_rows for batch in found) == count


def term(op: str, column: str, *values: str, type: str = "long", null: bool = False) -> Any:
    """A condition as the planner extension hands it over."""
    return comparison(column, op, type, *values, null=null)


def negated(inner: Any) -> Any:
    return call("not", inner)


@pytest.mark.parametrize(
    ("terms", "count"),
    [
        ([term("=", "id", "555")], 1),
        ([term(">", "v", "50.0", type="double"), term("<", "id", "200")], 98),
        ([term("in", "id", "1", "999", null=True)], 2),
        ([negated(term("in", "id", "1", "999", null=True))], 0),
        ([call("is_null", column("v", "double"))], 0),
        ([term("=", "ID", "7")], 1),
        ([call("or", term("=", "id", "7"), term(">=", "id", "990"))], 11),
        ([negated(call("and", term(">", "id", "4"), term("<=", "id", "9")))], 995),
        ([literal("boolean", "false")], 0),
    ],
)
def test_only_rows_that_match_the_pushed_conditions_are_shipped(
    numbers: Path, terms: list[Any], count: int
) -> None:
    schema = source(numbers).schema()
    reader = PlakeReader(request(numbers), Pushdown(schema, True, tuple(terms)))
    assert sum(batch.num_rows for batch in batches(reader, schema)) == count


def test_conditions_that_plake_has_no_word_for_are_left_to_spark(numbers: Path) -> None:
    schema = source(numbers).schema()
    unknown = (
        term("=", "id", "1", type="string"),  # the user gave a schema in which id is text
        call("soundex", column("id", "long")),
        term("=", "x", "1"),
    )
    reader = PlakeReader(request(numbers), Pushdown(schema, True, unknown))
    assert sum(batch.num_rows for batch in batches(reader, schema)) == 1000


@pytest.mark.parametrize(("limit", "partitions"), [(0, 1), (1, 1), (150, 1), (5000, 1)])
def test_no_more_rows_than_the_limit_are_shipped(
    numbers: Path, limit: int, partitions: int
) -> None:
    schema = source(numbers).schema()
    reader = PlakeReader(request(numbers), Pushdown(schema, True, limit=limit))
    assert len(reader.partitions()) <= partitions
    assert sum(batch.num_rows for batch in batches(reader, schema)) == min(limit, 1000)


def test_a_limit_leaves_files_out_that_are_not_needed(tmp_path: Path) -> None:
    for i in range(5):
        rows = pa.table({"id": pa.array(range(i * 10, i * 10 + 10), pa.int64())})
        lake.write_dataset(rows, tmp_path / "d")
    schema = source(tmp_path / "d").schema()

    def files(limit: int, *terms: Any) -> int:
        asked = Pushdown(schema, True, terms, limit=limit)
        return len(PlakeReader(request(tmp_path / "d"), asked).plan().tasks)

    assert [files(1), files(10), files(11), files(1000)] == [1, 1, 2, 5]
    # Row groups of which only some rows match are sure of nothing.
    assert files(1, term(">=", "id", "15")) == 2
    assert files(5, term(">=", "id", "20")) == 1


def test_a_reader_of_a_shared_plan_takes_no_filters(numbers: Path) -> None:
    made = source(numbers)
    reader = made.reader(made.schema())
    assert type(reader) is PlakeReader
    assert type(reader).pushFilters is filters.DataSourceReader.pushFilters


def test_a_partition_without_tasks_reads_nothing(numbers: Path) -> None:
    made = source(numbers, where="id < 0")
    reader = made.reader(made.schema())
    assert reader.partitions() == []
    task = pickle.loads(cloudpickle.dumps(reader))
    assert list(task.read(filters.InputPartition(None))) == []


def test_row_groups_of_one_file_are_spread_over_partitions_once_each(numbers: Path) -> None:
    made = source(numbers, splitSize="1100000")
    whole = made.reader(made.schema()).partitions()
    assert len(whole) == 1
    fine = source(numbers, splitSize="300")
    partitions = fine.reader(fine.schema()).partitions()
    assert all(isinstance(partition, ScanPartition) for partition in partitions)
    groups = [g for p in partitions for t in p.tasks for g in t.row_groups]
    assert sorted(groups) == list(range(10))
    assert sum(t.row_count for p in partitions for t in p.tasks) == 1000
    found = batches(fine.reader(fine.schema()), fine.schema())
    ids = pa.chunked_array([batch.column("id") for batch in found])
    assert sorted(ids.to_pylist()) == list(range(1000))


def test_counting_opens_no_file(numbers: Path) -> None:
    made = source(numbers)
    schema = StructType([made.schema()["id"]])
    reader = PlakeReader(request(numbers), Pushdown(schema, True, rows_only=True))
    for file in data_files(numbers):
        file.unlink()
    found = batches(reader, schema)
    assert sum(batch.num_rows for batch in found) == 1000


def test_tasks_are_small_when_pickled(tmp_path: Path) -> None:
    wide = pa.table({f"column_{i}": pa.array(range(20), pa.int64()) for i in range(200)})
    lake.write_dataset(wide, tmp_path, row_group_rows=1)
    made = source(tmp_path)
    (partition,) = made.reader(made.schema()).partitions()
    assert len(cloudpickle.dumps(partition)) < 2000


# --- writing ------------------------------------------------------------------


def writer(path: Path, *columns: str, **options: str) -> PlakeWriter:
    """A writer of columns of type long."""
    schema = StructType([StructField(name, LongType()) for name in columns])
    made = source(path, **options).writer(schema, overwrite=False)
    assert isinstance(made, PlakeWriter)
    return made


def elsewhere(made: PlakeWriter) -> PlakeWriter:
    copy: PlakeWriter = cloudpickle.loads(cloudpickle.dumps(made))
    return copy


def ids(*values: int) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"id": pa.array(values, pa.int64())})


def test_an_overwrite_that_cannot_know_the_session_s_setting_is_refused(tmp_path: Path) -> None:
    lake.write_dataset({"id": [1, 2], "p": [0, 1]}, tmp_path, partition_by="p")
    schema = StructType([StructField(name, LongType()) for name in ("id", "p")])

    def rows() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"id": pa.array([3]), "p": pa.array([1])})

    made = source(tmp_path).writer(schema, overwrite=True)
    assert isinstance(made, PlakeWriter)
    message = elsewhere(made).write(rows())
    assert isinstance(message, FilesWritten)
    assert message.session is None  # there is no task here
    with pytest.raises(InvalidOptionError, match="'dynamic' the partitions of the new rows"):
        elsewhere(made).commit([message])
    elsewhere(made).abort([message])
    known = replace(message, session={"spark.sql.sources.partitionOverwriteMode": "DYNAMIC"})
    with pytest.raises(InvalidOptionError, match="Spark did not tell"):
        elsewhere(made).commit([known, message])
    assert lake.open_dataset(tmp_path).version == 1
    for mode, left in (("dynamic", [1, 3]), ("static", [3])):
        told = source(tmp_path, partitionoverwritemode=mode).writer(schema, overwrite=True)
        assert isinstance(told, PlakeWriter)
        elsewhere(told).commit([elsewhere(told).write(rows())])
        assert sorted(lake.read_dataset(tmp_path)["id"].to_pylist()) == left


def test_only_files_named_in_messages_are_committed(tmp_path: Path) -> None:
    made = writer(tmp_path, "id")
    lost = elsewhere(made).write(ids(1, 2))  # its executor dies before it can answer
    kept = elsewhere(made).write(ids(1, 2))
    other = elsewhere(made).write(ids(3))
    elsewhere(made).commit([kept, None, other])
    assert sorted(lake.read_dataset(tmp_path).column("id").to_pylist()) == [1, 2, 3]
    assert len(data_files(tmp_path)) == 3
    assert lost != kept


def test_a_commit_that_runs_twice_makes_one_version(tmp_path: Path) -> None:
    made = writer(tmp_path, "id")
    message = elsewhere(made).write(ids(1))
    elsewhere(made).commit([message])
    elsewhere(made).commit([message])
    assert lake.open_dataset(tmp_path).version == 1
    # Spark aborts when it believes that a commit has failed: what is committed stays.
    elsewhere(made).abort([message])
    assert lake.read_dataset(tmp_path).num_rows == 1


def test_an_aborted_write_deletes_its_files_and_can_never_commit(tmp_path: Path) -> None:
    made = writer(tmp_path, "id")
    message = elsewhere(made).write(ids(1))
    elsewhere(made).abort([message, None])
    assert data_files(tmp_path) == []
    with pytest.raises(lake.PlakeError):
        elsewhere(made).commit([message])
    with pytest.raises(lake.DatasetNotFoundError):
        lake.open_dataset(tmp_path)


def test_a_task_that_fails_deletes_its_own_files(tmp_path: Path) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield from ids(*range(1000))
        raise RuntimeError("the source broke")

    made = writer(tmp_path, "id", rowGroupRows="10", targetFileSize="1")
    with pytest.raises(RuntimeError, match="the source broke"):
        elsewhere(made).write(broken())
    assert data_files(tmp_path) == []


def test_commit_messages_are_small(tmp_path: Path) -> None:
    names = [f"column_{i}" for i in range(100)]
    made = writer(tmp_path, *names)
    batch = pa.record_batch({name: pa.array([1], pa.int64()) for name in names})
    assert len(cloudpickle.dumps(elsewhere(made).write(iter([batch])))) < 20_000


class CountingStorage(Storage):
    """Knows how many files are open for writing at once."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self.sinks: list[pa.NativeFile] = []
        self.most = 0

    def open_output(self, relative: str) -> pa.NativeFile:
        sink = super().open_output(relative)
        self.sinks = [*(one for one in self.sinks if not one.closed), sink]
        self.most = max(self.most, len(self.sinks))
        return sink


def test_no_more_files_are_open_than_allowed_however_many_partition_values(
    tmp_path: Path,
) -> None:
    schema = initial(pa.schema([("p", pa.int64()), ("v", pa.int64())]))
    spec = WriteSpec(str(tmp_path), "w", schema, ("p",), row_group_rows=5, max_open_files=4)
    storage = CountingStorage(str(tmp_path))
    values = pa.array([i % 12 for i in range(600)], pa.int64())
    table = pa.table({"p": values, "v": pa.array(range(600), pa.int64())})
    files = write_files(spec, table.to_batches(max_chunksize=90), storage)
    assert storage.most == 4
    assert sum(file.row_count for file in files) == 600
    assert {file.partitions["p"] for file in files} == set(range(12))
    back = pq.ParquetDataset([str(tmp_path / file.path) for file in files], partitioning=None)
    assert sorted(back.read().column("v").to_pylist()) == list(range(600))


def test_rows_held_in_memory_are_bounded_for_any_number_of_partition_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cap = 4 * 1024 * 1024
    monkeypatch.setattr(parquet_writer, "BUFFERED_BYTES", cap)
    schema = initial(pa.schema([("p", pa.int64()), ("v", pa.string())]))
    spec = WriteSpec(str(tmp_path), "w", schema, ("p",), max_open_files=8)
    peak = 0
    before = pa.total_allocated_bytes()

    def wide() -> Iterator[pa.RecordBatch]:
        nonlocal peak
        for start in range(100):
            values = pa.array([(start + i) % 24 for i in range(1000)], pa.int64())
            texts = pa.array([f"{i:0500d}" for i in range(1000)])
            yield pa.record_batch({"p": values, "v": texts})
            peak = max(peak, pa.total_allocated_bytes() - before)

    files = write_files(spec, wide())  # 50 MB
    assert sum(file.row_count for file in files) == 100_000
    assert peak < 4 * cap


@pytest.mark.parametrize("incoming", [1, 999, 10_000, 50_000])
def test_row_groups_have_the_size_asked_for_whatever_the_batches(
    tmp_path: Path, incoming: int
) -> None:
    made = writer(tmp_path, "id", rowGroupRows="4096")
    table = pa.table({"id": pa.array(range(20_000 if incoming > 1 else 5000), pa.int64())})
    message = elsewhere(made).write(iter(table.to_batches(max_chunksize=incoming)))
    elsewhere(made).commit([message])
    (file,) = data_files(tmp_path)
    footer = pq.read_metadata(file)
    sizes = [footer.row_group(i).num_rows for i in range(footer.num_row_groups)]
    assert set(sizes[:-1]) == {4096}
    assert sum(sizes) == table.num_rows


def test_of_a_struct_only_the_fields_that_are_asked_for_are_read(tmp_path: Path) -> None:
    """The pages of the other field are ruined: whoever looks at them notices."""
    path = tmp_path / "d"
    rows = [{"a": i, "b": f"text {i * 7919 % 1000}"} for i in range(1000)]
    lake.write_dataset(pa.table({"st": rows}), path, compression="none")
    (file,) = data_files(path)
    chunk = pq.ParquetFile(file).metadata.row_group(0).column(1)
    assert chunk.path_in_schema == "st.b"
    data = bytearray(file.read_bytes())
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    data[start : start + chunk.total_compressed_size] = bytes(chunk.total_compressed_size)
    file.write_bytes(data)
    whole = source(path).schema()
    part = StructType([StructField("st", StructType([whole["st"].dataType["a"]]))])
    found = batches(PlakeReader(request(path), Pushdown(part, True)), part)
    assert [row["st"]["a"] for batch in found for row in batch.to_pylist()] == list(range(1000))
    with pytest.raises(lake.PlakeError, match=file.name):
        batches(PlakeReader(request(path), Pushdown(whole, True)), whole)


@pytest.mark.parametrize("precision", [1, 9, 18])
def test_decimals_as_longs_keep_their_digits(precision: int) -> None:
    most = 10**precision - 1
    values = [Decimal(v).scaleb(-1) for v in (0, most, -most, 1, -1)]
    column = pa.array([None, *values, None, *values], pa.decimal128(precision, 1))
    schema = pa.schema([pa.field("other", pa.int8()), pa.field("d", column.type, True)])
    batch = pa.record_batch([pa.array([1] * 12, pa.int8()), column], schema=schema)
    for part in (batch, batch.slice(1, 5), batch.slice(3, 9), batch.slice(12)):
        found = decimals_to_longs(part, ("d",))
        found.validate(full=True)
        assert found.schema.field("d") == pa.field("d", pa.int64(), True)
        expected = [None if v is None else int(v.scaleb(1)) for v in part["d"].to_pylist()]
        assert found["d"].to_pylist() == expected
        assert found["other"].equals(part["other"])


def test_a_write_opens_the_catalog_once_and_reads_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each instance of the data source resolved a read first, and kept its error."""
    opened = []
    real = Address.open

    def counted(self: Address, **arguments: Any) -> Any:
        opened.append(self.uri)
        return real(self, **arguments)

    monkeypatch.setattr(Address, "open", counted)
    monkeypatch.setattr(Address, "snapshot", None)
    made = PlakeDataSource({"path": str(tmp_path / "d"), "sortBy": "id"})
    assert opened == []
    writer = made.writer(StructType([StructField("id", LongType())]), overwrite=True)
    assert len(opened) == 1
    writer.commit([writer.write(ids(1))])
    assert len(opened) == 2


def test_loading_asks_the_catalog_once(numbers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    real = Address.snapshot

    def counted(self: Address, *arguments: Any) -> Any:
        asked.append(1)
        return real(self, *arguments)

    monkeypatch.setattr(Address, "snapshot", counted)
    made = PlakeDataSource({"path": str(numbers)})
    made.schema()
    assert len(asked) == 1
    assert made.schema() == cloudpickle.loads(cloudpickle.dumps(made)).schema()


def test_partitions_are_balanced_by_the_bytes_that_are_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    tasks = [
        ScanTask(
            path=f"{i}.parquet", size_bytes=1, file_row_count=groups * 10,
            row_count=groups * 10, byte_count=groups * 100 * MEGABYTE, schema_version=1,
            row_groups=tuple(range(groups)), partitions=(), filtered=False,
        )
        for i, groups in enumerate([3, 2])
    ]  # fmt: skip
    for needed, partitions in [(0.03, 2), (0.001, 1), (1.0, 4), (0.0, 1)]:
        packed = pack(tasks, None, needed)
        assert len(packed) == partitions
        groups = [(t.path, g) for p in packed for t in p.tasks for g in t.row_groups or ()]
        assert sorted(groups) == [(task.path, g) for task in tasks for g in task.row_groups or ()]


def whole_file(number: int, byte_count: int) -> ScanTask:
    """A file that cannot be divided."""
    return ScanTask(
        path=f"{number}.parquet", size_bytes=1, file_row_count=10, row_count=10,
        byte_count=byte_count, schema_version=1, row_groups=None, partitions=(), filtered=False,
    )  # fmt: skip


@given(st.lists(st.integers(0, 12), min_size=1, max_size=6), st.integers(1, 3))
def test_no_partition_costs_more_than_four_thirds_of_the_best_distribution(
    sizes: list[int], cores: int
) -> None:
    tasks = [whole_file(i, size * 8 * MEGABYTE) for i, size in enumerate(sizes)]
    packed = pack(tasks, None, parallelism=cores)

    def most(groups: Iterable[Iterable[ScanTask]]) -> int:
        return max(sum(task.byte_count + FILE_COST_BYTES for task in group) for group in groups)

    best = min(
        most([t for t, g in zip(tasks, chosen) if g == group] for group in range(len(packed)))
        for chosen in product(range(len(packed)), repeat=len(tasks))
    )
    assert best <= most(partition.tasks for partition in packed) <= best * 4 / 3


@pytest.mark.parametrize(
    ("parallelism", "cores", "partitions"), [(None, 2, 2), (None, 5, 5), (5, 2, 5), (2, 64, 2)]
)
def test_there_are_as_many_partitions_as_cores_of_the_cluster_not_of_the_driver(
    parallelism: int | None, cores: int, partitions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    tasks = [whole_file(i, 9 * MEGABYTE) for i in range(10)]
    packed = pack(tasks, None, parallelism=parallelism)
    assert len(packed) == partitions
    assert sorted(t.path for p in packed for t in p.tasks) == sorted(t.path for t in tasks)
    # A size that the user gives decides alone.
    assert len(pack(tasks, 50 * MEGABYTE, parallelism=parallelism)) == 2


def test_the_decoded_share_is_that_of_the_columns_that_are_decoded(tmp_path: Path) -> None:
    """Of 8 + 4 + 20 + (8 + 20) bytes; the partition column is in no file."""
    fields = pa.struct({"a": pa.int64(), "b": pa.string()})
    rows = pa.table(
        {
            "id": pa.array([1], pa.int64()),
            "n": pa.array([1], pa.int32()),
            "text": ["x"],
            "s": pa.array([{"a": 1, "b": "x"}], fields),
            "p": ["x"],
        }
    )
    lake.write_dataset(rows, tmp_path / "d", partition_by=["p"])
    schema = source(tmp_path / "d").schema()

    def share(names: list[str], **options: str) -> float:
        made = source(tmp_path / "d", **options)
        wanted = type(schema)([schema[name] for name in names])
        reader = made.reader(wanted)
        assert isinstance(reader, PlakeReader)
        return decoded_share(reader.plan().spec)

    assert share(["id", "n", "text", "s", "p"]) == 1.0
    assert share(["id"]) == pytest.approx(8 / 60)
    assert share(["p"]) == 0.0
    assert share(["n"], where="text = 'x'") == pytest.approx(24 / 60)

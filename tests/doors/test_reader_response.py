"""What planning answers to the question who should read a scan. No Spark runs."""

from __future__ import annotations

import datetime
import json
import pickle
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import LongType, StringType, StructField, StructType

import lakehouse_source as lake
from lakehouse_source.deletion import decode
from lakehouse_source.language import PredicateSet
from lakehouse_source.model import ColumnBounds
from lakehouse_source.spark.protocol.vocabulary import (
    Envelope,
    Files,
    MetadataColumn,
    Reader,
    ScanResponse,
)
from lakehouse_source.spark.reading import spark_files
from lakehouse_source.spark.reading.batch_read import PlakeReader
from lakehouse_source.spark.reading.pushdown import Pushdown
from lakehouse_source.spark.reading.spark_files import MOST_LAYOUTS, SparkFiles
from lakehouse_source.spark.reading.task_read import TaskReader
from lakehouse_source.spark.source import PlakeDataSource
from tests.doors.frames import data_files
from tests.doors.pushed import comparison

pytestmark = pytest.mark.slow


def told(partition: InputPartition) -> dict[str, Any]:
    """What the planner extension finds in the pickle of a partition."""
    found = re.search(
        rf"{Envelope.BEGIN}(\d{{12}})>(.*)", pickle.dumps(partition).decode("latin-1"), re.DOTALL
    )
    assert found is not None
    envelope = json.loads(found[2][: int(found[1])])
    assert envelope[Envelope.PROTOCOL] == Envelope.NUMBER
    answered: dict[str, Any] = envelope[Envelope.RESPONSE]
    return answered


def answer(
    path: Path,
    columns: Sequence[str] = (),
    *,
    reader: str | None = Reader.SPARK,
    options: dict[str, str] | None = None,
    **pushed: Any,
) -> dict[str, Any]:
    """What the first partition tells the planner extension."""
    source = PlakeDataSource({"path": str(path), **(options or {})})
    schema = source.schema()
    if columns:
        schema = StructType([schema[name] for name in columns])
    for name, kind in pushed.get("metadata", {}).items():
        if name not in schema.names:
            type_ = StringType() if kind == MetadataColumn.FILE else LongType()
            schema = StructType([*schema.fields, StructField(name, type_, False)])
    pushed = {"changed_files": True, **pushed}
    pushdown = Pushdown(schema, isolated=True, reader=reader, **pushed)
    partition = PlakeReader(source._frame.request, pushdown).partitions()[0]
    assert pickle.loads(pickle.dumps(partition)) is not None
    state = told(partition)
    assert isinstance(partition, SparkFiles) is (Files.PATHS in state)
    return state


def why(path: Path, columns: Sequence[str] = (), **pushed: Any) -> str:
    """Why Python reads the scan."""
    state = answer(path, columns, **pushed)
    assert Files.PATHS not in state
    return str(state[ScanResponse.NOTE])


def files_of(path: Path, columns: Sequence[str] = ()) -> list[str]:
    """The files that Spark reads."""
    return [Path(name).name for name in answer(path, columns)[Files.PATHS]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    lake.write_dataset(pa.table({"a": [1, 2, 3], "b": ["x", "y", "z"]}), tmp_path / "d")
    return tmp_path / "d"


def test_files_come_with_sizes_and_typed_values(tmp_path: Path) -> None:
    day = datetime.date(2024, 5, 1)
    table = pa.table({"p": ["a", None, "a"], "q": [day, day, None], "n": [1, 2, 3]})
    lake.write_dataset(table, tmp_path / "d", partition_by=["p", "q"])
    state = answer(tmp_path / "d", ["n", "q", "p"])
    assert state[Files.ROOT] == f"file:{tmp_path}/d"
    assert state[Files.PARTITIONED] == ["q", "p"]
    sizes = {str(file.relative_to(tmp_path / "d")): file.stat().st_size
             for file in data_files(tmp_path / "d")}  # fmt: skip
    assert dict(zip(state[Files.PATHS], state[Files.SIZES])) == sizes
    values = [state[Files.VALUES][place] for place in state[Files.VALUES_OF]]
    found = {}
    for name, value in zip(state[Files.PATHS], values):
        (n,) = pq.read_table(tmp_path / "d" / name, partitioning=None)["n"].to_pylist()
        found[n] = value
    days = str((day - datetime.date(1970, 1, 1)).days)
    assert found == {1: [days, "a"], 2: [days, None], 3: [None, "a"]}
    assert (state[ScanResponse.ROW_COUNT], state[ScanResponse.NOTE]) == (3, "3 of 3 files")


def test_files_that_cannot_match_are_left_out(tmp_path: Path) -> None:
    for n in range(3):
        lake.write_dataset(pa.table({"a": [n]}), tmp_path / "d")
    term = comparison("a", "=", "long", "1")
    state = answer(tmp_path / "d", condition=(term,))
    assert (len(state[Files.PATHS]), state[ScanResponse.NOTE]) == (1, "1 of 3 files")


def test_without_a_question_python_reads(path: Path) -> None:
    source = PlakeDataSource({"path": str(path)})
    plain = PlakeReader(source._frame.request, Pushdown(source.schema(), isolated=True))
    (partition,) = plain.partitions()
    assert told(partition)[ScanResponse.NOTE] is None


def test_no_task_takes_files_for_an_empty_partition(path: Path) -> None:
    source = PlakeDataSource({"path": str(path)})
    pushdown = Pushdown(source.schema(), isolated=True, reader=Reader.SPARK)
    reader = PlakeReader(source._frame.request, pushdown)
    (files,) = reader.partitions()
    task = pickle.loads(pickle.dumps(reader))
    assert isinstance(task, TaskReader)
    with pytest.raises(AssertionError):
        list(task.read(files))


def layouts(path: Path, columns: Sequence[str]) -> list[dict[str, list[str | None]]]:
    """How each file stores the columns, the oldest file first."""
    state = answer(path, columns)
    of_files = [state[Files.LAYOUTS][number] for number in state[Files.LAYOUT_OF]]
    return [of_files[i] for i in sorted(range(len(of_files)), key=state[Files.PATHS].__getitem__)]


def test_layouts_tell_renamed_promoted_and_added_columns(path: Path) -> None:
    dataset = lake.open_dataset(path)
    dataset.add_column("n", pa.int32())
    dataset.add_column("d", pa.int64(), default=7)
    dataset.add_column("x", pa.binary(), default=b"\xff")
    dataset.rename_column("b", "c")
    new = pa.table({"a": [4], "c": ["w"], "n": pa.array([1], pa.int32()), "d": [0], "x": [b""]})
    lake.write_dataset(new, path)
    # Spark's reader gives NULL for `n` in files that lack it, without being told.
    assert layouts(path, ["a", "n"]) == [{}, {}]
    assert layouts(path, ["a", "c", "d"]) == [{"c": ["b", None], "d": [None, "7"]}, {}]
    assert "x, which has a default" in why(path, ["x"])
    lake.open_dataset(path).promote_column("n", pa.int64())
    assert layouts(path, ["n"]) == [{}, {"n": ["n", None]}]
    assert "otherwise, and executors lack" in why(path, ["n"], changed_files=False)
    assert files_of(path, ["a"])


def test_columns_that_changed_names_with_each_other(tmp_path: Path) -> None:
    lake.write_dataset(pa.table({"a": [1], "b": [10], "c": [0]}), tmp_path / "d")
    dataset = lake.open_dataset(tmp_path / "d")
    for old, new in (("a", "t"), ("b", "a"), ("t", "b")):
        dataset.rename_column(old, new)
    assert layouts(tmp_path / "d", ["a", "b", "c"]) == [{"a": ["b", None], "b": ["a", None]}]
    assert layouts(tmp_path / "d", ["c"]) == [{}]


def test_a_column_that_others_had_under_its_name_is_null(path: Path) -> None:
    dataset = lake.open_dataset(path)
    dataset.drop_column("b")
    dataset.add_column("B", pa.string())
    dataset.add_column("_row_id", pa.int64())
    dataset.add_column("other", pa.int64())
    null = [None, None]
    # Files may hide a column `_row_id`.
    assert layouts(path, ["B", "_row_id", "other"]) == [{"B": null, "_row_id": null}]


@pytest.mark.parametrize(
    ("old", "new", "is_sparks"),
    [
        (pa.int8(), pa.int16(), True), (pa.int32(), pa.int64(), True),
        (pa.int32(), pa.float64(), True), (pa.int16(), pa.float32(), False),
        (pa.int32(), pa.decimal128(12, 2), True), (pa.int64(), pa.decimal128(20, 0), True),
        (pa.int64(), pa.decimal128(19, 0), False), (pa.float32(), pa.float64(), True),
        (pa.decimal128(9, 2), pa.decimal128(20, 3), True), (pa.date32(), pa.timestamp("us"), True),
        (pa.uint8(), pa.int16(), False), (pa.timestamp("ms"), pa.timestamp("us"), False),
    ],
    ids=str,
)  # fmt: skip
def test_promotions_that_sparks_reader_makes(
    tmp_path: Path, old: pa.DataType, new: pa.DataType, is_sparks: bool
) -> None:
    lake.write_dataset(pa.table({"a": pa.nulls(1, old)}), tmp_path / "d")
    lake.open_dataset(tmp_path / "d").promote_column("a", new)
    if is_sparks:
        assert layouts(tmp_path / "d", ["a"]) == [{"a": ["a", None]}]
    else:
        assert "column a as" in why(tmp_path / "d", ["a"])


def test_files_stored_in_many_ways_are_pythons(path: Path) -> None:
    for number in range(MOST_LAYOUTS):
        lake.open_dataset(path).rename_column("b", f"b{number}")
        lake.open_dataset(path).rename_column(f"b{number}", "b")
        lake.open_dataset(path).add_column(f"c{number}", pa.int64(), default=number)
        lake.write_dataset(pa.table({"a": [1], "b": ["x"]}), path)
    assert len(files_of(path, ["a", *(f"c{n}" for n in range(MOST_LAYOUTS - 1))])) == 33
    assert "in more than" in why(path)


def test_deleted_rows_come_with_the_files(path: Path) -> None:
    lake.open_dataset(path).set_properties(rewrite_threshold=1.0)
    lake.write_dataset(pa.table({"a": list(range(100)), "b": ["v"] * 100}), path)
    assert answer(path)[Files.DELETED] == [None, None]
    lake.open_dataset(path).delete("a = 7")
    state = answer(path)
    assert state[ScanResponse.NOTE] == "2 of 2 files, 1 with deleted rows"
    (found,) = filter(None, state[Files.DELETED])
    deleted, rows, puffin, offset, length, blob = found
    assert (deleted, rows) == (1, 100)
    stored = (path / puffin).read_bytes()[offset : offset + length]
    assert decode(stored, 1, 100) == decode(bytes.fromhex(blob), 1, 100) == BitMap64([7])
    assert "deleted rows, and executors lack" in why(path, changed_files=False)


def test_a_puffin_file_that_is_gone_is_pythons(path: Path) -> None:
    lake.open_dataset(path).set_properties(rewrite_threshold=1.0)
    lake.write_dataset(pa.table({"a": list(range(200_000)), "b": ["v"] * 200_000}), path)
    lake.open_dataset(path).delete("a * a % 3 = 1")
    blobs = [found[5] for found in answer(path)[Files.DELETED]]
    assert None in blobs  # too large for a copy in the catalog
    (puffin,) = path.rglob("*.puffin")
    puffin.unlink()
    assert "missing" in why(path)


def test_files_of_others_are_pythons(path: Path, tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [9], "b": ["q"]}), tmp_path / "foreign.parquet")
    lake.open_dataset(path).add_files([str(tmp_path / "foreign.parquet")], copy=True)
    assert "did not write" in why(path)


def test_changed_files_are_pythons(path: Path, tmp_path: Path) -> None:
    (file,) = data_files(path)
    content = file.read_bytes()
    file.write_bytes(content + b"x")
    assert "size" in why(path)
    file.write_bytes(content)
    assert files_of(path) == [file.name]
    file.rename(tmp_path / "away")
    assert "missing" in why(path)
    file.symlink_to(tmp_path / "away")
    assert "link" in why(path)


def test_a_folder_that_is_a_link_out_of_the_dataset_is_pythons(tmp_path: Path) -> None:
    path = tmp_path / "d"
    lake.write_dataset(pa.table({"p": ["a"], "n": [1]}), path, partition_by="p")
    (path / "p=a").rename(tmp_path / "elsewhere")
    (path / "p=a").symlink_to(tmp_path / "elsewhere")
    assert "link" in why(path)


def test_codecs_that_spark_lacks_are_pythons(path: Path) -> None:
    more = pa.table({"a": [1], "b": ["x"]})
    for codec in ("snappy", "gzip", "lz4", "none"):
        lake.write_dataset(more, path, compression=codec)
    assert len(files_of(path)) == 5
    lake.write_dataset(more, path, compression="brotli")
    assert "BROTLI" in why(path)


@pytest.mark.parametrize(
    "type_",
    [
        pa.uint8(), pa.uint64(), pa.float16(), pa.timestamp("ms"), pa.timestamp("ns", "UTC"),
        pa.duration("us"), pa.binary(3), pa.list_(pa.uint16()), pa.struct([("x", pa.uint8())]),
    ],
    ids=str,
)  # fmt: skip
def test_types_that_spark_sees_otherwise_are_pythons(tmp_path: Path, type_: pa.DataType) -> None:
    lake.write_dataset(pa.table({"a": [1], "odd": pa.nulls(1, type_)}), tmp_path / "d")
    assert "odd" in why(tmp_path / "d")
    assert files_of(tmp_path / "d", ["a"])


def test_what_only_plake_knows_is_pythons(path: Path) -> None:
    assert "condition of its own" in why(path, options={"where": "a > 1"})
    assert "splitSize" in why(path, options={"splitSize": "1m"})
    assert "places" in why(path, options={"metadataColumns": "true"})
    assert "places" in why(path, metadata={"_pos": "_pos"}, changed_files=False)
    assert "counted" in why(path, rows_only=True)
    as_long = Pushdown(StructType([StructField("b", LongType())]), isolated=True, reader="spark")
    source = PlakeDataSource({"path": str(path)})
    (partition,) = PlakeReader(source._frame.request, as_long).partitions()
    assert "read as bigint" in partition.response[ScanResponse.NOTE]


def test_the_places_of_rows_are_told_by_what_files_store_of_moved_rows(tmp_path: Path) -> None:
    lake.write_dataset({"a": [1, 2, 3]}, tmp_path / "d", rewrite_threshold=1.0)
    dataset = lake.open_dataset(tmp_path / "d")
    dataset.update({"a": "9"}, "a = 2")
    assert [file.row_count for file in dataset.refresh().files()] == [3, 1]
    places = {"f": "_file", "_pos": "_pos", "r": "_row_id", "_commit_version": "_commit_version"}
    found = answer(tmp_path / "d", metadata=places)
    assert found[Files.PLACES] == places
    # The first row's identity, the version that added the file, and its URI: none, as no
    # column reads it.
    assert found[Files.IDENTITIES] == [[0, 1, None], [3, 2, None]]
    assert found[Files.LAYOUT_OF] == [0, 0]
    assert found[Files.LAYOUTS] == [
        {
            "f": [None, None],
            "_pos": [None, None],
            "r": ["_row_id", None],
            "_commit_version": ["_last_updated_version", None],
        }
    ]
    assert "other columns" not in found[ScanResponse.NOTE]
    lake.write_dataset({"a": [1], "_Row_Id": [5]}, tmp_path / "d", schema_merge=True)
    assert "identity of a row" in why(tmp_path / "d", metadata=places)


def test_names_with_dots_are_not_pushed_into_parquet(tmp_path: Path) -> None:
    table = pa.table({"s": [{"x": 1, "a.b": 2}], "s.x": [1], "n": [1], "d.e": [1], "t": [{"x": 1}]})
    lake.write_dataset(table, tmp_path / "d")
    assert answer(tmp_path / "d")[Files.UNPUSHED] == ["d.e", "s", "s.x"]


# --- the faster reader -------------------------------------------------------------


@pytest.fixture
def nothing_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_files, "FEW_VALUES", 0)


def test_auto_looks_at_values_limits_and_matches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 400_000
    monkeypatch.setattr(spark_files, "FEW_VALUES", 3 * 60_000)
    ids = pa.array(range(size))
    mixed = pa.array([n * 7919 % size for n in range(size)])
    path = tmp_path / "d"
    lake.write_dataset(
        pa.table({"id": ids, "v": mixed, "p": pa.array(["x"] * size)}),
        path,
        row_group_rows=20_000,
        partition_by="p",
    )
    auto = {"reader": Reader.AUTO}

    def is_spark(**pushed: Any) -> bool:
        return Files.PATHS in answer(path, **auto, **pushed)

    def term(op: str, column: str, *values: int) -> dict[str, Any]:
        texts = [str(value) for value in values]
        return comparison(column, op, "long", *texts)

    assert is_spark()
    assert is_spark(condition=(term(">", "v", 5),))
    some = term("=", "v", size // 2)
    assert "few rows match" in why(path, **auto, condition=(some,))
    assert "few rows match" in why(path, **auto, condition=(term("in", "v", size // 2, size // 3),))
    assert is_spark(condition=(some, term("<", "id", 60_000)))
    assert "few rows match" in why(path, **auto, condition=(some, term("<", "id", 60_001)))
    assert is_spark(condition=(some,), limit=size)


@pytest.mark.usefixtures("nothing_is_small")
def test_keys_are_wanted_of_columns_by_which_rows_are_clustered(tmp_path: Path) -> None:
    size = 4_000
    table = pa.table({
        "id": range(size),
        "v": [n * 7919 % size for n in range(size)],
        "p": ["x"] * size,
        "s": [f"{n:05}" for n in range(size)],
    })  # fmt: skip
    path = tmp_path / "d"
    lake.write_dataset(table, path, row_group_rows=200, partition_by="p")

    def keys(columns: Sequence[str] = (), **pushed: Any) -> list[str] | None:
        found: list[str] | None = answer(path, columns, **pushed).get(ScanResponse.KEY_COLUMNS)
        return found

    assert keys() is None  # nobody asked
    for reader in (Reader.AUTO, None):
        assert keys(reader=reader, joined=True) == ["id", "p", "s"]
    assert keys(["v", "id"], reader=Reader.AUTO, joined=True) == ["id"]
    assert keys(["v", "id"], reader=None, joined=True) == ["id"]
    # Spark's reader leaves out files by the values of partition columns only.
    assert keys(reader=Reader.SPARK, joined=True) == ["p"]
    few = comparison("id", "<", "long", "400")
    assert keys(reader=Reader.AUTO, joined=True, condition=(few,)) == []


def test_keys_are_not_wanted_of_few_values(tmp_path: Path) -> None:
    """Spark has read them before the scan is planned again."""
    lake.write_dataset(
        {"id": range(4_000), "p": ["x"] * 4_000}, tmp_path, row_group_rows=200, partition_by="p"
    )
    found = answer(tmp_path, reader=Reader.AUTO, joined=True)
    assert Files.PATHS in found
    assert found[ScanResponse.KEY_COLUMNS] == ["p"]


def test_a_value_is_in_all_row_groups_unless_rows_are_clustered() -> None:
    def group(low: Any, high: Any, rows: int = 10) -> tuple[int, ColumnBounds]:
        return rows, ColumnBounds(low, high, 0, rows, False)

    share = spark_files.share_of_a_value
    assert share([group(n, n + 9) for n in range(0, 1000, 10)]) == pytest.approx(0.01)
    assert share([group(0, 99) for _ in range(100)]) == 1.0
    assert share([group(b"a", b"m", 30), group(b"n", b"z", 10)]) == pytest.approx(0.5)
    assert share([group(None, None), group(1, 2)]) == pytest.approx(1.0)
    assert share([]) == 1.0


@pytest.mark.parametrize(
    ("condition", "share"),
    [
        ("n = 5", 0.0005), ("n = 5000", 0.0), ("n IN (5, 6, 700)", 0.0015), ("s = 'a'", 1.0),
        ("n = 5 AND s = 'a'", 0.0005), ("n = 5 OR s = 'a'", 1.0), ("n > 5", 1.0),
        ("n = 1 OR n <=> 700", 0.001), ("n != 5", 1.0), ("n IS NULL", 1.0),
    ],
)  # fmt: skip
def test_matches_are_counted_between_the_bounds(condition: str, share: float) -> None:
    schema = pa.schema([("n", pa.int64()), ("s", pa.string())])
    schema = pa.schema([
        field.with_metadata({b"PARQUET:field_id": str(i).encode()})
        for i, field in enumerate(schema, 1)
    ])  # fmt: skip
    bound = PredicateSet.of(condition).bind(schema)

    def look_up(first: int) -> Callable[[int], ColumnBounds]:
        known = {1: ColumnBounds(first, first + 999, 0, 50, False),
                 2: ColumnBounds(b"a", b"z", 0, 50, False)}  # fmt: skip
        return lambda id: known[id]

    groups = [(50, look_up(0)), (50, look_up(1000))]
    assert spark_files.share_of_matches(bound.root, groups) == pytest.approx(share)
    assert spark_files.has_points(bound.root) is ("n =" in condition or "n IN" in condition)

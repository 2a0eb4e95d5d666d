"""Versions of a dataset as PyIceberg reads them: what plake answers, or a refusal that says why."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable

import lakehouse_source as lake
from lakehouse_source.iceberg.snapshots import MOST_ENTRIES, Manifest, Range, next_ranges

pytestmark = pytest.mark.slow

DAY = datetime.date(2026, 1, 31)
NOON = datetime.datetime(2026, 1, 31, 12, 30, 15, 123456)


def rows_of(table: pa.Table) -> list[str]:
    """The rows, in an order that does not matter; NaN and -0.0 as they print."""
    names = sorted(table.column_names)
    table = table.select(names)
    for at, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):  # PyIceberg has microseconds alone
            micros = table[field.name].cast(pa.timestamp("us", field.type.tz))
            table = table.set_column(at, field.name, micros.cast(pa.int64()))
    return sorted(repr([row[name] for name in names]) for row in table.to_pylist())


def opened(dataset: lake.Dataset, **options: Any) -> StaticTable:
    return StaticTable.from_metadata(dataset.export_iceberg(**options))


def check(dataset: lake.Dataset, condition: str | None = None) -> None:
    """The newest version, as PyIceberg reads it."""
    table = opened(dataset)
    scan = table.scan() if condition is None else table.scan(condition)
    assert rows_of(scan.to_arrow()) == rows_of(dataset.scan(condition).to_table())


def all_types(path: str) -> lake.Dataset:
    values = {
        "id": pa.array([1, 2, 3], pa.int64()),
        "tiny": pa.array([-1, None, 127], pa.int8()),
        "word": pa.array([0, 65535, None], pa.uint16()),
        "i": pa.array([1, None, -(2**31)], pa.int32()),
        "f": pa.array([float("nan"), -0.0, None], pa.float32()),
        "d": pa.array([1.5, float("nan"), float("inf")]),
        "dec": pa.array([Decimal("1.25"), None, Decimal("-99.99")], pa.decimal128(9, 2)),
        "wide": pa.array([Decimal("1"), Decimal(-(10**30)), None], pa.decimal128(38, 0)),
        "b": pa.array([True, None, False]),
        "s": pa.array(["", "é\U0001f600", "x" * 300]),
        "bytes": pa.array([b"\xff\x00", None, b""]),
        "fixed": pa.array([b"abcd", None, b"\xff\xff\xff\xff"], pa.binary(4)),
        "day": pa.array([DAY, None, datetime.date(1, 1, 1)]),
        "time": pa.array([datetime.time(1, 2, 3, 4), None, datetime.time()], pa.time64("us")),
        "ts": pa.array([NOON, None, datetime.datetime(1850, 1, 1)], pa.timestamp("us")),
        "tz": pa.array([NOON, None, NOON], pa.timestamp("us", "UTC")),
        "ms": pa.array([NOON.replace(microsecond=5000), None, None], pa.timestamp("ms")),
        "st": pa.array([{"x": 1, "y": {"z": "a"}}, None, {"x": None, "y": None}]),
        "l": pa.array([[1, None], [], None], pa.list_(pa.int64())),
        "ls": pa.array([[{"q": 1}], [None], []], pa.list_(pa.struct([("q", pa.int32())]))),
        "m": pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int64())),
    }
    lake.write_dataset(pa.table(values), path)
    return lake.open_dataset(path)


def partitioned(column: pa.Array) -> Callable[[str], lake.Dataset]:
    def make(path: str) -> lake.Dataset:
        table = pa.table({"p": column, "v": range(len(column))})
        lake.write_dataset(table, path, partition_by=["p"])
        lake.write_dataset(table, path)
        return lake.open_dataset(path)

    return make


def evolved(path: str) -> lake.Dataset:
    lake.write_dataset({"a": pa.array([1], pa.int32()), "b": ["x"], "c": [1.0]}, path)
    dataset = lake.open_dataset(path)
    dataset.promote_column("a", pa.int64())
    dataset.rename_column("b", "renamed")
    dataset.drop_column("c")
    dataset.add_column("c", pa.string())
    lake.write_dataset({"a": [2**40], "renamed": ["y"], "c": ["again"]}, path)
    return dataset.refresh()


def with_vectors(path: str) -> lake.Dataset:
    for start in (0, 1000):
        lake.write_dataset({"id": range(start, start + 1000), "v": [1] * 1000}, path)
    dataset = lake.open_dataset(path)
    dataset.delete("id % 7 = 3")
    dataset.update({"v": "v + 1"}, where="id BETWEEN 10 AND 1010")
    dataset.delete("id = 1999")
    return dataset


def odd_names(path: str) -> lake.Dataset:
    names = ["a.b", "with space", 'quo"te', "été", "select", "x'y"]
    table = pa.table({name: [number] for number, name in enumerate(names)})
    lake.write_dataset(table, os.path.join(path, "sp ace é 'q' %20"), partition_by=["with space"])
    return lake.open_dataset(os.path.join(path, "sp ace é 'q' %20"))


def added_files(path: str) -> lake.Dataset:
    lake.write_dataset({"a": [1], "s": [{"x": 1, "l": [1, 2]}]}, path)
    dataset = lake.open_dataset(path)
    pq.write_table(
        pa.table({"a": [2], "s": [{"x": 2, "l": [3]}]}), os.path.join(path, "two.parquet")
    )
    dataset.add_files(os.path.join(path, "two.parquet"))
    dataset.rename_column("a", "b")
    return dataset


def empty(path: str) -> lake.Dataset:
    lake.write_dataset(pa.table({"a": pa.array([], pa.int64())}), path)
    return lake.open_dataset(path)


def default_in_every_file(path: str) -> lake.Dataset:
    lake.write_dataset({"a": [1]}, path)
    dataset = lake.open_dataset(path)
    dataset.add_column("d", pa.int64(), default=7)
    lake.write_dataset({"a": [2], "d": [8]}, path)
    dataset.refresh().compact()
    return dataset


TABLES: dict[str, Callable[[str], lake.Dataset]] = {
    "all types": all_types,
    "evolved": evolved,
    "vectors": with_vectors,
    "odd names": odd_names,
    "added files": added_files,
    "empty": empty,
    "default, compacted": default_in_every_file,
    "by int": partitioned(pa.array([1, 2, None, -5])),
    "by string": partitioned(pa.array(["", "a b/c=%", "é\U0001f600", None])),
    "by bool": partitioned(pa.array([True, False, None])),
    "by date": partitioned(pa.array([DAY, None, datetime.date(1850, 1, 1)])),
    "by timestamp": partitioned(pa.array([NOON, None], pa.timestamp("us"))),
    "by instant": partitioned(pa.array([NOON, None], pa.timestamp("ms", "UTC"))),
    "by decimal": partitioned(pa.array([Decimal("-1.20"), None, Decimal("12.34")])),
}


@pytest.mark.parametrize("name", TABLES)
def test_pyiceberg_reads_what_plake_reads(tmp_path: Path, name: str) -> None:
    check(TABLES[name](str(tmp_path / "t")))


CONDITIONS = {
    "all types": ["id = 2", "d > 1.0", "d <= 1.5", "s = 'x'", "i is null", "day = '2026-01-31'"],
    "by string": ["p = ''", "p is null", "p > 'a' and v > 0"],
    "by int": ["p > -6", "p = 2"],
    "by decimal": ["p > 0"],
    "vectors": ["id > 1005", "v = 2", "id = 3"],
    "evolved": ["a > 5", "renamed = 'x'", "c is null"],
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("name", "condition"), [(name, one) for name, some in CONDITIONS.items() for one in some]
)
def test_pyiceberg_prunes_no_matching_row(tmp_path: Path, name: str, condition: str) -> None:
    dataset = TABLES[name](str(tmp_path / "t"))
    table = opened(dataset)
    rows = dataset.scan().to_table()
    # PyIceberg compares NaN as IEEE 754 does. What it reads of all rows is the oracle.
    from pyiceberg.expressions.parser import parse
    from pyiceberg.expressions.visitors import bind
    from pyiceberg.io.pyarrow import expression_to_pyarrow

    bound = bind(table.schema(), parse(condition), True)
    expected = rows.filter(expression_to_pyarrow(bound))
    assert rows_of(table.scan(condition).to_arrow()) == rows_of(expected)


@pytest.mark.parametrize("letter", ["a", "é", "\U0001f600", "\x7f", "\ud7ff"])
def test_texts_that_the_index_cuts_have_bounds_that_are_texts(tmp_path: Path, letter: str) -> None:
    for fill in range(4):  # the cut is within a character, or after one
        lake.write_dataset({"s": ["x" * fill + letter * 100], "n": [fill]}, tmp_path / "t")
    dataset = lake.open_dataset(tmp_path / "t")
    table = opened(dataset)
    (field,) = (one for one in table.schema().fields if one.name == "s")
    for manifest in table.inspect.files().to_pylist():
        low, high = (dict(manifest[name])[field.field_id] if field.field_id in
                     dict(manifest[name] or {}) else None
                     for name in ("lower_bounds", "upper_bounds"))  # fmt: skip
        (text,) = pq.read_table(manifest["file_path"])["s"].to_pylist()
        assert low is not None
        assert low.decode() <= text
        assert high is None or high.decode() >= text
    for fill in range(4):
        rows = table.scan(f"s = '{'x' * fill + letter * 100}'").to_arrow()
        assert rows["n"].to_pylist() == [fill]


def test_a_null_list_of_structs_is_an_empty_list_for_pyiceberg(tmp_path: Path) -> None:
    """Not plake's doing: docs/engines.md lists it. It fails once PyIceberg reads NULL."""
    lists = pa.array([[{"q": 1}], None], pa.list_(pa.struct([("q", pa.int32())])))
    lake.write_dataset(pa.table({"l": lists}), tmp_path / "t")
    dataset = lake.open_dataset(tmp_path / "t")
    assert opened(dataset).scan().to_arrow()["l"].to_pylist() == [[{"q": 1}], []]
    assert dataset.scan().to_table()["l"].to_pylist() == [[{"q": 1}], None]


REFUSED: dict[str, tuple[Callable[[str], Any], str]] = {
    "duration": (lambda p: lake.write_dataset({"c": pa.array([1], pa.duration("s"))}, p), "'c'"),
    "uint32": (lambda p: lake.write_dataset({"c": pa.array([1], pa.uint32())}, p), "uint32"),
    "uint64": (lambda p: lake.write_dataset({"c": pa.array([1], pa.uint64())}, p), "uint64"),
    "ns": (lambda p: lake.write_dataset({"c": pa.array([1], pa.timestamp("ns"))}, p), "ns"),
    "half": (lambda p: lake.write_dataset({"c": pa.array([1.0], pa.float16())}, p), "halffloat"),
    "in a list": (
        lambda p: lake.write_dataset({"c": pa.array([[1]], pa.list_(pa.uint64()))}, p),
        "'c.element'",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_iceberg_cannot_say_is_refused_by_column(tmp_path: Path, name: str) -> None:
    make, said = REFUSED[name]
    make(str(tmp_path / "t"))
    with pytest.raises(lake.IcebergUnsupportedError, match="Iceberg") as error:
        lake.open_dataset(tmp_path / "t").export_iceberg()
    assert said in str(error.value)
    assert not (tmp_path / "t" / "metadata").exists()


def _promoted(path: str) -> lake.Dataset:
    lake.write_dataset({"c": pa.array([1], pa.int32())}, path)
    dataset = lake.open_dataset(path)
    dataset.promote_column("c", pa.float64())
    return dataset


def _default(path: str) -> lake.Dataset:
    lake.write_dataset({"a": [1]}, path)
    dataset = lake.open_dataset(path)
    dataset.add_column("c", pa.int64(), default=7)
    return dataset


def _strange_ids(path: str) -> lake.Dataset:
    lake.write_dataset({"a": [1], "c": [2]}, path)
    dataset = lake.open_dataset(path)
    fields = [pa.field("a", pa.int64(), metadata={"PARQUET:field_id": "2"})]
    fields += [pa.field("c", pa.int64(), metadata={"PARQUET:field_id": "1"})]
    strange = pa.table([[10], [20]], schema=pa.schema(fields))
    pq.write_table(strange, os.path.join(path, "strange.parquet"))
    dataset.add_files(os.path.join(path, "strange.parquet"))
    return dataset


def _two_meanings(path: str) -> lake.Dataset:
    lake.write_dataset({"a": [0], "c": [0]}, path)
    dataset = lake.open_dataset(path)
    pq.write_table(pa.table({"a": [1], "c": [1]}), os.path.join(path, "one.parquet"))
    dataset.add_files(os.path.join(path, "one.parquet"))
    dataset.drop_column("c")
    dataset.add_column("c", pa.int64())
    pq.write_table(pa.table({"a": [2], "c": [2]}), os.path.join(path, "two.parquet"))
    dataset.add_files(os.path.join(path, "two.parquet"))
    return dataset


def _other_case(path: str) -> lake.Dataset:
    lake.write_dataset({"a": [0]}, path)
    dataset = lake.open_dataset(path)
    pq.write_table(pa.table({"A": [1]}), os.path.join(path, "one.parquet"))
    dataset.add_files(os.path.join(path, "one.parquet"))
    return dataset


@pytest.mark.parametrize("make", [_promoted, _default, _strange_ids, _two_meanings, _other_case])
def test_files_that_would_be_read_wrongly_are_refused(
    tmp_path: Path, make: Callable[[str], lake.Dataset]
) -> None:
    dataset = make(str(tmp_path / "t"))
    with pytest.raises(lake.IcebergUnsupportedError, match=r"'c'|file"):
        dataset.export_iceberg()
    assert not list((tmp_path / "t").glob("metadata/*.json"))


def test_versions_tags_and_branches(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    for number in range(6):
        lake.write_dataset({"n": [number]}, path)
    dataset = lake.open_dataset(path)
    dataset.tag("first", version=2)
    dataset.branch("work")
    lake.write_dataset({"n": [100]}, f"{path}#branch=work")
    dataset.branch("same")
    lake.write_dataset({"n": [200]}, path)
    dataset.refresh()
    table = opened(dataset, newest_versions=3)
    assert sorted(one.snapshot_id for one in table.snapshots())[:4] == [2, 5, 6, 7]
    read = {one: rows_of(table.scan(snapshot_id=one).to_arrow()) for one in (2, 5, 6, 7)}
    assert read == {one: rows_of(dataset.scan(version=one).to_table()) for one in read}
    refs = {name: table.scan().use_ref(name).to_arrow() for name in table.metadata.refs}
    assert set(refs) == {"main", "first", "work", "same"}
    assert rows_of(refs["first"]) == rows_of(dataset.scan(version=2).to_table())
    assert rows_of(refs["same"]) == rows_of(dataset.scan(version=6).to_table())
    work = lake.open_dataset(f"{path}#branch=work")
    assert rows_of(refs["work"]) == rows_of(work.scan().to_table())
    # The versions by which a time is looked up have no gap.
    assert [one.snapshot_id for one in table.history()] == [5, 6, 7]


def test_a_branch_with_another_schema_is_no_reference(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    lake.write_dataset({"n": [1]}, path)
    dataset = lake.open_dataset(path)
    dataset.branch("work")
    lake.open_dataset(f"{path}#branch=work").add_column("on_branch", pa.int64())
    dataset.add_column("on_main", pa.int64())
    assert set(opened(dataset).metadata.refs) == {"main"}


def test_metadata_after_each_commit(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    lake.write_dataset({"n": [1]}, path)
    dataset = lake.open_dataset(path)
    dataset.set_properties(iceberg_metadata=True)
    lake.write_dataset({"n": [2, 3]}, path)
    dataset.refresh().delete("n = 2")
    table = StaticTable.from_metadata(path)
    assert rows_of(table.scan().to_arrow()) == rows_of(dataset.scan().to_table())
    dataset.add_column("m", pa.string())
    table = StaticTable.from_metadata(path)
    assert rows_of(table.scan().to_arrow()) == rows_of(dataset.scan().to_table())


def test_a_hint_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    lake.write_dataset({"n": [1]}, tmp_path / "t")
    (tmp_path / "t" / "metadata").mkdir()
    (tmp_path / "t" / "metadata" / "version-hint.text").write_text("3")
    with pytest.raises(lake.InvalidOptionError, match="not written by plake"):
        lake.open_dataset(tmp_path / "t").export_iceberg()
    assert (tmp_path / "t" / "metadata" / "version-hint.text").read_text() == "3"


def _metadata_files(dataset: lake.Dataset) -> set[str]:
    folder = Path(dataset.uri.removeprefix("file://")) / "metadata"
    return {one.name for one in folder.iterdir() if one.suffix != ".text"}


def test_vacuum_keeps_what_a_readable_version_has_and_deletes_the_rest(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    lake.write_dataset({"n": [0]}, path)
    dataset = lake.open_dataset(path)
    for number in range(1, 5):
        lake.write_dataset({"n": [number]}, path)
        dataset.refresh().export_iceberg()
    kept = _metadata_files(dataset)
    dataset.vacuum(retention_seconds=0, allow_short_retention=True)
    assert _metadata_files(dataset) == kept
    dataset.expire_versions(keep_last=1)
    dataset.vacuum()  # expired a moment ago
    assert _metadata_files(dataset) == kept
    report = dataset.vacuum(retention_seconds=0, allow_short_retention=True)
    left = _metadata_files(dataset)
    assert left < kept
    assert report.files_removed >= len(kept - left)
    assert rows_of(StaticTable.from_metadata(path).scan().to_arrow()) == rows_of(
        dataset.scan().to_table()
    )
    # What is left is what the newest version has.
    url = f"sqlite:///{path}/_plake/catalog.db"
    with lake.open_catalog(url) as catalog, catalog.read() as reader:
        record = reader.dataset(".")
        assert record is not None
        rows = reader.iceberg.all(record.id)
    assert {one.version for one in rows} == {5}
    assert left == {path.rpartition("/")[2] for one in rows for path in one.paths}


def test_files_of_an_export_that_died_are_deleted_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lakehouse_source.iceberg import snapshots

    path = str(tmp_path / "t")
    lake.write_dataset({"n": [0]}, path)
    dataset = lake.open_dataset(path)

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(snapshots._Maker, "_record", dies)
        with pytest.raises(KeyboardInterrupt):
            dataset.export_iceberg()
    assert _metadata_files(dataset)
    dataset.vacuum(retention_seconds=0, allow_short_retention=True)
    assert _metadata_files(dataset)  # its write may still go on
    dataset.vacuum(retention_seconds=0, abandoned_after_seconds=0, allow_short_retention=True)
    assert not _metadata_files(dataset)
    check(dataset)


def test_an_erasure_leaves_no_bound_of_an_erased_row(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    lake.write_dataset({"name": ["ann", "secret-person"]}, path)
    lake.write_dataset({"name": ["bob"]}, path)
    dataset = lake.open_dataset(path)
    dataset.export_iceberg()
    before = _metadata_files(dataset)
    dataset.erase("name = 'secret-person'")
    assert not before & _metadata_files(dataset)
    check(dataset.refresh())
    for version in (1, 2):
        table = StaticTable.from_metadata(path).scan(snapshot_id=version).to_arrow()
        assert rows_of(table) == rows_of(dataset.scan(version=version).to_table())


def test_a_dataset_that_was_moved_names_its_files_where_they_are(tmp_path: Path) -> None:
    lake.write_dataset({"n": [1]}, tmp_path / "t")
    lake.open_dataset(tmp_path / "t").export_iceberg()
    (tmp_path / "t").rename(tmp_path / "moved")
    check(lake.open_dataset(tmp_path / "moved"))


def test_a_purge_deletes_the_files(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/c.db"
    with lake.open_catalog(url) as catalog:
        lake.write_dataset({"n": [1]}, tmp_path / "t", catalog=catalog)
        lake.open_dataset(tmp_path / "t", catalog=catalog).export_iceberg()
        catalog_names = list((tmp_path / "t" / "metadata").iterdir())
    assert len(catalog_names) == 4


def test_add_files_of_a_folder_ignores_exported_metadata(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    lake.write_dataset({"n": [1]}, path)
    dataset = lake.open_dataset(path)
    dataset.export_iceberg()
    pq.write_table(pa.table({"n": [2]}), os.path.join(path, "two.parquet"))
    dataset.add_files(path)
    check(dataset)


# --- ranges ------------------------------------------------------------------------------


def _manifest(one: Range) -> Manifest:
    return Manifest(
        "p", 1, one.first, one.last, one.entries, one.entries, 0, 0, 1, 1, 0, 1, 0, False
    )


@pytest.mark.long
def test_manifests_stay_few_and_each_file_is_written_a_few_times() -> None:
    live: dict[tuple[int, int], int] = {}
    manifests: list[Manifest] = []
    written = 0
    for version in range(1, 3001):
        added = [(version, version)]
        gone = list(live)[:3] if version % 100 == 0 else []
        ranges = next_ranges(manifests, gone, added)
        for key in gone:
            del live[key]
        live[added[0]] = 1
        written += sum(one.entries for one in ranges if one.manifest is None)
        for one, after in pairwise(ranges):
            assert one.last < after.first
        for one in ranges:
            assert one.entries <= MOST_ENTRIES
            assert one.entries == sum(one.first <= key <= one.last for key in live)
        manifests = [_manifest(one) for one in ranges]
    assert len(manifests) <= 40
    assert written <= 12 * 3000


def test_a_record_of_a_manifest_is_what_it_was() -> None:
    one = _manifest(Range((1, 2), (3, 4), 5))
    assert Manifest.from_json(one.to_json()) == one

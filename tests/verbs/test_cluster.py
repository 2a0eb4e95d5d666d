"""`cluster()` changes no row: values, identities, versions, old versions and the feed stay."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from datetime import date
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakehouse_source as lake
from lakehouse_source.errors import (
    CommitConflictError,
    InvalidOptionError,
    SchemaMismatchError,
    StorageError,
)
from lakehouse_source.failpoints import VARIABLE
from lakehouse_source.layout import MOST_RUNS, Curve, PlacedFiles, merges, sorted_places
from lakehouse_source.model import CompactionResult
from lakehouse_source.parquet.new_file import NewFile
from lakehouse_source.write.commit import rewrite
from tests.verbs.conftest import catalog_of

pytestmark = [pytest.mark.slow, pytest.mark.one_catalog]

catalog = catalog_of("sqlite", "postgres", "duckdb")
IDENTITY = ["_row_id", "_commit_version"]
SMALL: dict[str, Any] = {"row_group_rows": 100, "target_file_size_bytes": 2000}


def rows_of(dataset: lake.Dataset, version: int | None = None) -> pa.Table:
    """All rows with their identities, in the order of these."""
    names = [*dataset.schema.names, *IDENTITY]
    return dataset.scan(columns=names, version=version).to_table().sort_by("_row_id")


def appended(uri: Path, count: int, *, rows: int = 150, seed: int = 3, **options: Any) -> None:
    rng = random.Random(seed)
    for number in range(count):
        table = pa.table(
            {
                "part": [number % 2] * rows,
                "a": pa.array([rng.randrange(10_000) for _ in range(rows)], pa.int64()),
                "s": pa.array([{"x": rng.random()} for _ in range(rows)]),
            }
        )
        lake.write_dataset(table, uri, **SMALL, **options)


@pytest.mark.long
@pytest.mark.parametrize(("columns", "by"), [(["a"], None), (["a", "s.x"], "part")])
def test_clustering_changes_no_row(
    tmp_path: Path, catalog: lake.Catalog, columns: list[str], by: str | None
) -> None:
    uri = tmp_path / "d"
    appended(uri, 20, catalog=catalog, cluster_by=columns, partition_by=by)
    dataset = lake.open_dataset(uri, catalog=catalog)
    dataset.delete("a < 500")
    dataset.update({"a": "a + 1"}, "a > 9500")
    before, old = rows_of(dataset), dataset.version
    told = dataset.health()
    assert next(one for one in told.suggestions if one.action == "cluster").is_worth_it
    planned = dataset.cluster(dry_run=True)
    assert dataset.version == old
    done = dataset.cluster()
    assert (planned.files_removed, planned.bytes_removed) == (
        done.files_removed,
        done.bytes_removed,
    )
    assert done.files_removed > 0
    assert done.version == dataset.version > old
    assert rows_of(dataset).equals(before)
    assert rows_of(dataset, old).equals(before)
    assert dataset.verify(checksums=True).ok
    assert dataset.changes(old + 1, dataset.version).to_table().num_rows == 0
    assert dataset.health().suggestions[0].files == 0
    if len(columns) == 1:
        assert dataset.health(columns).depths[columns[0]].most <= MOST_RUNS
    assert dataset.cluster() == CompactionResult(dataset.version)
    dataset.compact()
    assert rows_of(dataset).equals(before)


def test_optimize_leaves_other_partitions_alone(tmp_path: Path) -> None:
    appended(tmp_path / "d", 3, rows=50, partition_by="part")
    dataset = lake.open_dataset(tmp_path / "d")
    before = rows_of(dataset)

    def paths() -> set[str]:
        files = dataset.inspect.files().to_pylist()
        return {one["file_path"] for one in files if dict(one["partitions"]) != {"part": "1"}}

    others = paths()
    done = dataset.optimize("part = 1", zorder_by=["a"])
    assert (done.groups, done.files_added, paths()) == (1, 1, others)
    assert dataset.history()[0].metadata["where"] == ["part"]
    assert rows_of(dataset).equals(before)
    assert dataset.optimize("part IN (0, 1)", full=True).groups == 2
    with pytest.raises(lake.InvalidOptionError, match="non-partition column 'a'"):
        dataset.optimize("a = 1")
    with pytest.raises(lake.InvalidOptionError, match="Part is a partition column"):
        dataset.optimize(zorder_by=["Part"])


def test_files_of_one_column_do_not_overlap_after_a_full_run(tmp_path: Path) -> None:
    appended(tmp_path / "d", 8, cluster_by=["a"])
    dataset = lake.open_dataset(tmp_path / "d")
    before = rows_of(dataset)
    dataset.cluster(full=True)
    ends = []
    for file in dataset.files():
        found = pc.min_max(pq.read_table(tmp_path / "d" / file.path)["a"]).as_py()
        ends += [(found["min"], 0), (found["max"], 1)]
    assert len(ends) > 8
    # Neighbours may share the value where one ends.
    ordered = sorted(ends)
    assert all(one[1] != following[1] for one, following in pairwise(ordered))
    assert rows_of(dataset).equals(before)


ODD: dict[str, tuple[pa.DataType, list[Any]]] = {
    "nulls": (pa.int64(), [None, 1, None, 2]),
    "all null": (pa.int64(), [None]),
    "floats": (pa.float64(), [float("nan"), -0.0, 0.0, None, float("inf"), -float("inf"), 1.5]),
    "constant": (pa.string(), ["x"]),
    "prefix": (pa.string(), [f"{'p' * 200}{n % 97:03}" for n in range(300)]),
    "skew": (pa.int32(), [7, *[7] * 150, *range(149)]),
    "far dates": (pa.date32(), [date(1, 1, 1), date(9999, 12, 31), None, date(1970, 1, 1)]),
    "decimals": (pa.decimal128(38, 3), [Decimal(10) ** 34 + Decimal(n) / 8 for n in range(9)]),
    "binary": (pa.binary(), [b"", b"\x00", b"\xff" * 40, None]),
    "booleans": (pa.bool_(), [True, False, None]),
}


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.sampled(3)
def test_odd_values_are_clustered(
    tmp_path: Path, odd: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewrite, "SORTED_BYTES", 2000)
    type_, values = ODD[odd]
    rng = random.Random(1)
    for _ in range(6):
        drawn = pa.array([rng.choice(values) for _ in range(150)], type_)
        other = pa.array([rng.randrange(100) for _ in range(150)])
        lake.write_dataset({"v": drawn, "w": other}, tmp_path / "d", **SMALL)
    dataset = lake.open_dataset(tmp_path / "d")
    before = rows_of(dataset)
    for columns in (["v"], ["v", "w"]):
        dataset.set_properties(cluster_by=columns)
        dataset.cluster(full=True)
        # NaN is equal to itself here.
        assert str(rows_of(dataset).to_pylist()) == str(before.to_pylist())
        assert dataset.cluster().files_removed == 0
    literal = None if before["v"].null_count == len(before) else before["v"].drop_null()[0].as_py()
    if literal is not None and not isinstance(literal, (bytes, Decimal)):
        found = dataset.scan(pc.field("v") == pa.scalar(literal, type_)).count_rows()
        plain = before["v"].to_pylist()
        assert found == sum(one == literal or str(one) == str(literal) for one in plain)


@given(
    values=st.lists(st.none() | st.integers(0, 30), max_size=300),
    others=st.integers(0, 5),
    two=st.booleans(),
)
def test_rows_that_do_not_fit_into_memory_are_sorted(
    values: list[int | None], others: int, two: bool
) -> None:
    table = pa.table(
        {
            "v": pa.array(values, pa.int64()),
            "w": pa.array([n % (others + 1) for n in range(len(values))], pa.int64()),
            "n": pa.array(range(len(values)), pa.int64()),
        }
    )
    paths = [("v",), ("w",)] if two else [("v",)]
    columns = [table[path[0]].combine_chunks() for path in paths]
    columns = [pa.concat_arrays(c.chunks) if isinstance(c, pa.ChunkedArray) else c for c in columns]
    curve = Curve.of(columns) if two else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rewrite, "SORTED_BYTES", 400)
        patch.setattr(rewrite, "_CUTS", 3)
        slices = [table.slice(start, 7) for start in range(0, len(table), 7)]
        found = list(rewrite.sorted_rows(slices, paths, curve))
    whole = pa.concat_tables(found) if found else table.slice(0, 0)
    assert sorted(whole["n"].to_pylist()) == list(range(len(values)))
    expected = table.take(sorted_places(columns, curve))
    if curve is None:
        assert whole["v"].to_pylist() == expected["v"].to_pylist()
    else:
        keys = [
            curve.keys([one[p[0]].combine_chunks() for p in paths]) for one in (whole, expected)
        ]
        assert keys[0].to_pylist() == keys[1].to_pylist()


def test_rows_are_sorted_within_row_groups_that_stay_clustered(tmp_path: Path) -> None:
    appended(tmp_path / "d", 20, cluster_by=["a"], sort_by=["part"])
    dataset = lake.open_dataset(tmp_path / "d")
    before = rows_of(dataset)
    dataset.cluster(full=True)
    assert rows_of(dataset).equals(before)
    spans, parts = [], []
    for file in dataset.files():
        parquet = pq.ParquetFile(tmp_path / "d" / file.path)
        for number in range(parquet.num_row_groups):
            group = parquet.read_row_group(number)
            found = pc.min_max(group["a"]).as_py()
            spans.append((found["min"], found["max"]))
            parts.append(group["part"].to_pylist())
    assert len(spans) >= 20
    assert all(group == sorted(group) for group in parts)
    spans.sort()
    assert all(one[1] <= following[0] for one, following in pairwise(spans))


@pytest.mark.parametrize("same", [1, 7, 12, 13, 150])
@pytest.mark.parametrize("type_", [pa.int64(), pa.string(), pa.decimal128(22, 2)])
@pytest.mark.sampled(4)
def test_files_of_one_sort_share_no_value(tmp_path: Path, same: int, type_: pa.DataType) -> None:
    """Unless more rows have it than an eighth of a row group, which is not cut as short as that."""
    numbers = [10_000 + number // same for number in range(1950)]
    random.Random(same).shuffle(numbers)
    values = pa.array([None] * 50 + numbers, pa.int64()).cast(type_)
    layout: dict[str, Any] = {"row_group_rows": 100, "target_file_size_bytes": 1}
    lake.write_dataset(pa.table({"v": values}), tmp_path / "d", **layout, cluster_by=["v"])
    dataset = lake.open_dataset(tmp_path / "d")
    before = rows_of(dataset)
    dataset.cluster(full=True)
    assert rows_of(dataset.refresh()) == before
    files = [pq.ParquetFile(tmp_path / "d" / file.path) for file in dataset.files()]
    assert len(files) > 3
    counts = [file.metadata.row_group(0).num_rows for file in files]
    assert max(counts) <= 100
    assert min(counts[:-1]) > 100 - 100 // 8 - 1
    ends = [pc.min_max(file.read()["v"]).as_py().values() for file in files]
    ordered = sorted(tuple(one) for one in ends if None not in one)
    if same <= 12:
        assert all(high < low for (_, high), (low, _) in pairwise(ordered))
        assert dataset.health("v").depths["v"].most == 1


@pytest.mark.long
@pytest.mark.parametrize("columns", [["v"], ["v", "w"]])
def test_rows_that_come_in_an_order_are_divided_once(
    columns: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were divided by the first ones, again and again: in quadratic time."""
    table = pa.table({"v": list(range(40_000)), "w": [n % 7 for n in range(40_000)]})
    paths = [(name,) for name in columns]
    curve = None
    if len(columns) > 1:
        curve = Curve.of([pa.array(table[name].to_pylist()) for name in columns])
    monkeypatch.setattr(rewrite, "SORTED_BYTES", 1600)  # 100 rows of 40,000
    monkeypatch.setattr(rewrite, "_NOTED_ROWS", 16)
    written = []
    write = rewrite._Spill._write

    def counted(spill: Any, code: int, rows: pa.Table) -> None:
        written.append(rows.num_rows)
        write(spill, code, rows)

    monkeypatch.setattr(rewrite._Spill, "_write", counted)
    slices = [table.slice(start, 50) for start in range(0, len(table), 50)]
    sample = table.take(pa.array(range(0, len(table), 100)))
    found = pa.concat_tables(rewrite.sorted_rows(slices, paths, curve, sample))
    assert sorted(found["v"].to_pylist()) == table["v"].to_pylist()
    # 32 parts of 1,250 rows, and each of these once more.
    assert sum(written) <= 3 * len(table)


def test_a_failed_write_ends_the_sort_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    appended(tmp_path / "d", 6, cluster_by=["a"])
    dataset = lake.open_dataset(tmp_path / "d")
    before, stored = rows_of(dataset), set(tmp_path.glob("d/*.parquet"))
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(rewrite, "SORTED_BYTES", 2000)
    monkeypatch.setattr(rewrite, "_READ_AHEAD_BYTES", 1)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    write, written = NewFile.write, []

    def full(file: NewFile, rows: pa.Table) -> None:
        written.append(len(list(temporary.iterdir())))
        if len(written) == 3:
            raise StorageError(path=file.path, reason="the disk is full")
        write(file, rows)

    with monkeypatch.context() as patch:
        patch.setattr(NewFile, "write", full)
        with pytest.raises(StorageError, match="the disk is full") as failure:
            dataset.cluster(full=True)
    assert written[-1]  # rows were on disk then
    assert failure.value.__traceback__  # which holds what the failed call had
    assert not list(temporary.iterdir())
    assert not [one for one in threading.enumerate() if one.name.startswith("plake-sort")]
    assert set(tmp_path.glob("d/*.parquet")) == stored
    dataset.cluster(full=True)
    assert rows_of(dataset.refresh()) == before


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 8), st.integers(1, 9)), max_size=30))
def test_merges_leave_few_runs_at_every_end(drawn: list[tuple[int, int, int]]) -> None:
    """Again and again, with each merge as one run, until nothing is found."""
    files = [(low, low + width, size, -1 - n) for n, (low, width, size) in enumerate(drawn)]
    for round_ in range(1, 40):
        placed = PlacedFiles(
            [size for _, _, size, _ in files],
            [run for *_, run in files],
            [pa.array([one[0] for one in files], pa.int64())],
            [pa.array([one[1] for one in files], pa.int64())],
        )
        found = list(merges(placed)) if files else []
        if not found:
            break
        taken = [place for piece in found for place in piece]
        assert len(set(taken)) == len(taken)
        after = [one for place, one in enumerate(files) if place not in taken]
        for number, piece in enumerate(found):
            assert len(piece) > 1
            some = [files[place] for place in piece]
            after.append(
                (
                    min(one[0] for one in some),
                    max(one[1] for one in some),
                    sum(one[2] for one in some),
                    round_ * 100 + number,
                )
            )
        files = after
    for low, _, _, _ in files:
        assert len({run for a, b, _, run in files if a <= low <= b}) <= MOST_RUNS


@pytest.mark.long
def test_few_bytes_are_written_again_by_many_appends(tmp_path: Path) -> None:
    """By 40 appends that all overlap; afterwards four runs at most hold any value.

    Rows are counted: rows that moved also store their ids, which are as wide as these narrow rows.
    """
    written = 0
    for number in range(40):
        appended(tmp_path / "d", 1, rows=500, seed=number, cluster_by=["a"])
        dataset = lake.open_dataset(tmp_path / "d")
        before = {file.path for file in dataset.files()}
        dataset.cluster()
        written += sum(one.row_count for one in dataset.files() if one.path not in before)
        assert dataset.health("a").depths["a"].average <= MOST_RUNS
        if number % 13 == 12:
            ends = [
                (*pc.min_max(pq.read_table(tmp_path / "d" / one.path)["a"]).as_py().values(), one)
                for one in dataset.files()
            ]
            for low, _, _ in ends:
                held = {one.version for least, most, one in ends if least <= low <= most}
                assert len(held) <= MOST_RUNS
    assert 0 < written <= 4 * 40 * 500


def test_one_append_to_many_clustered_files_costs_little(tmp_path: Path) -> None:
    appended(tmp_path / "d", 40, cluster_by=["a"])
    dataset = lake.open_dataset(tmp_path / "d")
    dataset.cluster()
    size = sum(file.size_bytes for file in dataset.files())
    appended(tmp_path / "d", 1, seed=99)
    assert dataset.refresh().cluster().bytes_added <= 4 * size / 40


def test_auto_compact_clusters_as_it_goes(tmp_path: Path) -> None:
    chosen: dict[str, Any] = {"auto_compact": True, "auto_compact_min_files": 4}
    appended(tmp_path / "d", 30, cluster_by=["a"], **chosen)
    dataset = lake.open_dataset(tmp_path / "d")
    assert dataset.scan().count_rows() == 30 * 150
    assert any("clustered_by" in one.metadata for one in dataset.history())
    assert dataset.health("a").depths["a"].average < 8


def test_compaction_makes_no_wide_file_of_narrow_ones(tmp_path: Path) -> None:
    large = pa.table({"a": range(1000, 9000), "pad": [f"{n:060}" for n in range(8000)]})
    options: dict[str, Any] = {"target_file_size_bytes": 40_000, "compression": "none"}
    lake.write_dataset(large, tmp_path / "d", cluster_by=["a"], row_group_rows=8000, **options)
    for low in (0, 10, 9500, 9510):
        lake.write_dataset({"a": [low, low + 5], "pad": ["", ""]}, tmp_path / "d", **options)
    dataset = lake.open_dataset(tmp_path / "d")
    assert dataset.health("a").depths["a"].most == 1
    done = dataset.compact()
    assert (done.files_removed, done.files_added) == (4, 2)
    assert dataset.health("a").depths["a"].most == 1


def test_a_run_is_bounded(tmp_path: Path) -> None:
    appended(tmp_path / "d", 20, cluster_by=["a"], partition_by="part")
    dataset = lake.open_dataset(tmp_path / "d")
    planned = dataset.cluster(dry_run=True).bytes_removed
    first = dataset.cluster(max_bytes=planned * 6 // 10)
    assert 0 < first.bytes_removed <= planned * 6 // 10
    assert dataset.cluster(max_bytes=1) == CompactionResult(dataset.version)
    rest = dataset.cluster()
    assert first.bytes_removed + rest.bytes_removed == planned
    with pytest.raises(InvalidOptionError, match="must be at least 1"):
        dataset.cluster(max_bytes=0)


def test_what_cannot_be_clustered_is_refused(tmp_path: Path) -> None:
    lake.write_dataset(
        {"a": [1], "b": [1], "l": [[1]], "p": [1]}, tmp_path / "d", index_columns=["a"],
        partition_by="p",
    )  # fmt: skip
    dataset = lake.open_dataset(tmp_path / "d")
    with pytest.raises(InvalidOptionError, match="is not set for"):
        dataset.cluster()
    for columns, reason in (
        (["none"], "is not a column"),
        (["l"], "has no values that can be ordered"),
        (["l.element"], "is not a column|has no values"),
        (["a", "b", "p", "l", "x"], "at most 4 columns"),
    ):
        with pytest.raises(InvalidOptionError, match=reason):
            dataset.set_properties(cluster_by=columns)
    dataset.set_properties(cluster_by=["B"])
    assert dataset.properties["cluster_by"] == ["b"]
    with pytest.raises(InvalidOptionError, match=r"'b'\): is not in the search index"):
        dataset.cluster()
    with pytest.raises(SchemaMismatchError, match="clustered by and cannot be dropped"):
        dataset.drop_column("b")
    dataset.set_properties(cluster_by=["p"])
    with pytest.raises(InvalidOptionError, match="beside its partition columns"):
        dataset.cluster()
    dataset.compact()
    dataset.set_properties(cluster_by=None)
    dataset.drop_column("b")


def test_key_columns_are_renamed_promoted_and_come_later(tmp_path: Path) -> None:
    uri = tmp_path / "d"
    rng = random.Random(2)
    for number in range(6):
        values = pa.array([rng.randrange(100) for _ in range(200)], pa.int32())
        lake.write_dataset({"k": values}, uri, cluster_by=["k"] if not number else None, **SMALL)
    dataset = lake.open_dataset(uri)
    dataset.rename_column("k", "key")
    wide = pa.table({"key": pa.array([2**40], pa.int64()), "new": ["x"]})
    lake.write_dataset(wide, uri, schema_merge=True)
    dataset.refresh()
    assert dataset.properties["cluster_by"] == ["key"]
    before = rows_of(dataset)
    assert dataset.cluster().files_removed > 0
    assert rows_of(dataset).equals(before)
    dataset.set_properties(cluster_by=["new", "key"])
    dataset.cluster(full=True)
    assert rows_of(dataset).equals(before)


# --- others at the same time ------------------------------------------------------------


def meanwhile(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None], times: int = 1) -> None:
    """Let `act` be done after the rows of a piece were written, and before its commit."""
    write, left = rewrite.Copy.write, [times]

    def wrapped(*arguments: Any) -> Any:
        files = write(*arguments)
        if left[0]:
            left[0] -= 1
            act()
        return files

    monkeypatch.setattr(rewrite.Copy, "write", wrapped)


def test_an_append_meanwhile_does_not_conflict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    appended(tmp_path / "d", 8, cluster_by=["a"])
    dataset = lake.open_dataset(tmp_path / "d")
    meanwhile(monkeypatch, lambda: appended(tmp_path / "d", 1, seed=50))
    done = dataset.cluster()
    assert done.version == 10
    assert dataset.scan().count_rows() == 9 * 150


@pytest.mark.parametrize("change", ["delete", "update"])
def test_rows_that_are_changed_meanwhile_stay_changed(
    tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    appended(tmp_path / "d", 8, cluster_by=["a"], rewrite_threshold=1.0)
    dataset = lake.open_dataset(tmp_path / "d")
    other = lake.open_dataset(tmp_path / "d")

    def act() -> None:
        if change == "delete":
            other.delete("a < 3000")
        else:
            other.update({"a": "-a"}, "a < 3000")

    meanwhile(monkeypatch, act)
    dataset.cluster()
    assert rows_of(dataset).equals(rows_of(dataset, other.version))
    assert dataset.scan("a >= 0 AND a < 3000").count_rows() == 0
    assert dataset.cluster() == CompactionResult(dataset.version)


def test_an_overwrite_meanwhile_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    appended(tmp_path / "d", 8, cluster_by=["a"])
    dataset = lake.open_dataset(tmp_path / "d")
    meanwhile(monkeypatch, lambda: appended(tmp_path / "d", 1, seed=50, mode="overwrite"))
    assert dataset.cluster() == CompactionResult(9)
    assert dataset.scan().count_rows() == 150


def test_a_run_that_never_wins_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    appended(tmp_path / "d", 8, cluster_by=["a"])
    dataset = lake.open_dataset(tmp_path / "d")
    paths = {file.path for file in dataset.files()}

    def act() -> None:
        lake.open_dataset(tmp_path / "d").set_properties(compression=next(codecs))

    codecs: Iterator[str] = iter(["none", "zstd"] * 9)
    meanwhile(monkeypatch, act, times=100)
    with pytest.raises(CommitConflictError):
        dataset.cluster()
    assert {file.path for file in dataset.refresh().files()} == paths


@pytest.mark.parametrize(
    "point",
    ["pending committed", "file closed", "rows written anew", "files recorded", "after COMMIT"],
)  # fmt: skip
@pytest.mark.sampled(3)
def test_a_run_that_is_killed_loses_nothing(tmp_path: Path, point: str) -> None:
    appended(tmp_path / "d", 20, cluster_by=["a"], partition_by="part")
    dataset = lake.open_dataset(tmp_path / "d")
    before, old = rows_of(dataset), dataset.version
    code = f"import lakehouse_source as lake; lake.open_dataset({str(tmp_path / 'd')!r}).cluster()"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, VARIABLE: point}, check=False
    )
    assert done.returncode == -signal.SIGKILL
    dataset.refresh()
    assert rows_of(dataset).equals(before)
    assert (dataset.version == old) == (point != "after COMMIT")
    assert dataset.cluster().files_removed > 0
    assert rows_of(dataset).equals(before)
    assert dataset.cluster() == CompactionResult(dataset.version)
    assert rows_of(dataset, old).equals(before)

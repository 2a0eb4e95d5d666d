"""Small things that users tried first: a few rows, pandas, a time to restore, whole numbers."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pytest

import lakehouse_source as lake
from lakehouse_source.parquet import reader as parquet_reader

pytestmark = pytest.mark.slow


@pytest.fixture
def dataset(tmp_path: Path) -> lake.Dataset:
    for start in (0, 100, 200):
        lake.write_dataset({"n": range(start, start + 100)}, tmp_path / "things")
    return lake.open_dataset(tmp_path / "things")


# --- a few rows ---------------------------------------------------------------------------


def test_a_limit_gives_the_first_matching_rows(dataset: lake.Dataset) -> None:
    everything = dataset.scan("n >= 50").to_table()["n"].to_pylist()
    for limit in (0, 1, 50, 51, 249, 250, 1000):
        scan = dataset.scan("n >= 50", limit=limit)
        assert scan.to_table()["n"].to_pylist() == everything[:limit]
        assert [n for batch in scan.to_batches() for n in batch["n"].to_pylist()] == (
            everything[:limit]
        )
        assert scan.count_rows() == min(limit, 250)
        assert list(scan.to_pandas()["n"]) == everything[:limit]
    assert dataset.scan(limit=0).to_table().schema == dataset.scan().to_table().schema
    assert dataset.scan("n > 7").head(3).to_pydict() == {"n": [8, 9, 10]}
    assert dataset.scan(limit=2).head(3).num_rows == 2
    assert dataset.scan().head().num_rows == 10


def test_a_limit_opens_only_the_files_that_it_needs(
    dataset: lake.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = []
    original = parquet_reader.read_all

    def counted(spec: object, given: object, *args: object, **more: object) -> object:
        tasks.append(len(given))  # type: ignore[arg-type]
        return original(spec, given, *args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr("lakehouse_source.read.scan.read_all", counted)
    assert dataset.scan().head(5).num_rows == 5
    assert dataset.scan(limit=150).to_table().num_rows == 150
    assert tasks == [1, 2]


def test_a_limit_is_refused_where_plake_does_not_read(dataset: lake.Dataset) -> None:
    with pytest.raises(lake.InvalidOptionError, match="limit"):
        dataset.scan(limit=3).to_polars()
    with pytest.raises(lake.InvalidOptionError, match="limit"):
        dataset.scan(limit=3).fragments()
    for wrong in (-1, 1.5, True, "3"):
        with pytest.raises(lake.InvalidOptionError, match="limit"):
            dataset.scan(limit=wrong)  # type: ignore[arg-type]
    with pytest.raises(lake.InvalidOptionError, match="rows"):
        dataset.scan().head(-1)


def test_spark_shows_what_it_has() -> None:
    assert set(lake.spark.__all__) <= set(dir(lake.spark))


# --- restore ------------------------------------------------------------------------------


def test_a_version_is_restored_by_its_time(dataset: lake.Dataset) -> None:
    moments = {one.version: one.timestamp for one in dataset.history()}
    assert dataset.restore(timestamp=moments[2]).version == 4
    assert dataset.scan().count_rows() == 200
    assert dataset.history()[0].metadata == {"restored_version": 2}
    assert dataset.restore(timestamp=moments[3].isoformat()).version == 5
    assert dataset.scan().count_rows() == 300
    for wrong in ({}, {"version": 1, "timestamp": moments[1]}, {"timestamp": "yesterday"}):
        with pytest.raises(lake.InvalidOptionError):
            dataset.restore(**wrong)
    with pytest.raises(lake.VersionNotFoundError):
        dataset.restore(timestamp=datetime.now(timezone.utc) - timedelta(days=1))


# --- whole numbers ------------------------------------------------------------------------


def test_integers_of_python_fit_a_narrow_column_value_by_value(tmp_path: Path) -> None:
    """They were int64 and refused, though each of them fits."""
    schema = pa.schema(
        [("id", pa.int32()), ("s", pa.struct([("a", pa.int8())])), ("u", pa.uint8())]
    )
    first = [{"id": 1, "s": {"a": 1}, "u": 1}]
    lake.write_dataset(first, tmp_path, schema=schema)
    rows = [{"id": 2, "s": {"a": -128}, "u": 255}]
    lake.write_dataset(rows, tmp_path)
    lake.write_dataset({"id": [3], "s": [{"a": 3}], "u": [3]}, tmp_path)
    dataset = lake.open_dataset(tmp_path)
    dataset.upsert(rows, on="id")
    assert lake.read_dataset(tmp_path).num_rows == 3
    assert dataset.schema == schema
    for wrong in ({"id": 1 << 31}, {"u": -1}, {"s": {"a": 128}}):
        with pytest.raises(lake.SchemaMismatchError, match="does not fit"):
            lake.write_dataset([{**rows[0], **wrong}], tmp_path)
    # Arrow data has the type that its maker gave it.
    with pytest.raises(lake.SchemaMismatchError, match="int64"):
        lake.write_dataset(pa.Table.from_pylist(rows), tmp_path)
    assert lake.open_dataset(tmp_path).version == 4


@pytest.mark.parametrize("text", ["1.0", "1e0", "", "a", "9223372036854775808", "1_0", "١"])
def test_a_text_that_is_no_whole_number_is_refused_as_spark_does(
    dataset: lake.Dataset, text: str
) -> None:
    """`n = '1.0'` matched, where Spark raises CAST_INVALID_INPUT."""
    for condition in (f"n = '{text}'", f"n IN ('{text}')", f"NOT n < '{text}'"):
        with pytest.raises(lake.InvalidPredicateError, match=r"whole number|out of range"):
            dataset.scan(condition).count_rows()


def test_a_text_that_is_a_whole_number_still_matches(dataset: lake.Dataset) -> None:
    for text in ("1", " 1 ", "+1", "001", "\\t1"):
        assert dataset.scan(f"n = '{text}'").count_rows() == 1
    assert dataset.scan("n > '-9223372036854775808'").count_rows() == 300


# --- files of catalogs --------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["sqlite", "duckdb"])
def test_three_slashes_are_never_silently_another_file(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`sqlite:///lake.db` is relative in SQLAlchemy, and was a file in the root folder."""
    monkeypatch.chdir(tmp_path)
    inside = tmp_path / str(tmp_path)[1:]
    for url in (f"{scheme}:///lake.db", f"{scheme}://{tmp_path}/lake.db"):
        if url.endswith(f"{tmp_path}/lake.db"):
            inside.mkdir(parents=True)
        with pytest.raises(lake.InvalidOptionError, match="four slashes") as refused:
            lake.open_catalog(url)
        assert str(tmp_path) in str(refused.value)
    four = f"{scheme}:///{tmp_path}/lake.db"
    with lake.open_catalog(four) as catalog:
        assert catalog.namespaces() == ["default"]
    # A file that is there is meant.
    with lake.open_catalog(f"{scheme}://{tmp_path}/lake.db", create=False) as catalog:
        assert catalog.namespaces() == ["default"]
    assert not (inside / "lake.db").exists()
    assert not Path("/lake.db").exists()


@pytest.mark.parametrize("scheme", ["sqlite", "duckdb"])
@pytest.mark.parametrize("shared", [None, "1"])
def test_a_catalog_is_of_its_maker_or_of_the_group_of_its_folder(
    scheme: str, shared: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.getuid() == 0:
        os.chown(tmp_path, -1, 1)
    if shared is not None:
        monkeypatch.setenv("PLAKE_CATALOG_SHARED", shared)
        if os.getuid() == 0:
            with (
                pytest.raises(lake.CatalogUnavailableError, match="PLAKE_TRUSTED_FOLDERS=/"),
                lake.open_catalog(f"{scheme}:///{tmp_path}/lake.db") as catalog,
            ):
                catalog.create_namespace("more")
            assert list(tmp_path.iterdir()) == []
        monkeypatch.setenv("PLAKE_TRUSTED_FOLDERS", str(tmp_path))
    with lake.open_catalog(f"{scheme}:///{tmp_path}/lake.db") as catalog:
        catalog.create_namespace("more")
    found = (tmp_path / "lake.db").stat()
    assert stat.S_IMODE(found.st_mode) == (0o660 if shared else 0o600)
    assert (found.st_gid == tmp_path.stat().st_gid) or shared is None


# --- Ctrl-C -------------------------------------------------------------------------------


INTERRUPTED = """
import os, signal, sys, threading
import lakehouse_source as lake
slow = "SELECT sum(a.i * b.i) FROM range(3000000) AS a (i), range(3000000) AS b (i)"
with lake.open_catalog(f"duckdb:///{sys.argv[1]}/lake.db") as catalog:
    try:
        with catalog.read() as reader:
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
            try:
                reader._session.query(slow)
            except Exception as error:
                print("swallowed", error)
    except KeyboardInterrupt:
        print("interrupted", catalog.namespaces())
"""


@pytest.mark.long
def test_ctrl_c_inside_of_a_duckdb_catalog_is_no_exception_that_is_caught(tmp_path: Path) -> None:
    """It came as a RuntimeError, so that `except Exception` swallowed it."""
    lake.open_catalog(f"duckdb:///{tmp_path}/lake.db").create_namespace("more")
    command = [sys.executable, "-c", INTERRUPTED, str(tmp_path)]
    told = []
    # DuckDB looks for signals only where the main thread does none of its work: try again.
    while not told:
        with contextlib.suppress(subprocess.TimeoutExpired):
            done = subprocess.run(command, capture_output=True, text=True, timeout=6)
            told.append(done.stdout or done.stderr)
    assert told == ["interrupted ['default', 'more']\n"]


def test_a_limit_counts_rows_without_columns(dataset: lake.Dataset) -> None:
    assert dataset.scan(columns=[], limit=150).to_table().num_rows == 150
    assert sum(one.num_rows for one in dataset.scan(columns=[], limit=150).to_batches()) == 150

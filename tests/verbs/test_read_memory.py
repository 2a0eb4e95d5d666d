"""Reading many files holds few decoded rows in memory, however large the files are."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import lakehouse_source as lake
from lakehouse_source.parquet.reader import in_order

pytestmark = pytest.mark.slow

ROWS, ROW_GROUP_ROWS, FILES = 80_000, 4_000, 8
# Of one file, decoded, and of one row group.
FILE_BYTES = ROWS * 208
ROW_GROUP_BYTES = ROW_GROUP_ROWS * 208


@pytest.fixture
def dataset(tmp_path: Path) -> lake.Dataset:
    texts = pa.array([f"{number:0200d}" for number in range(100)])
    chosen = texts.take(pa.array([number % 100 for number in range(ROWS)]))
    for file in range(FILES):
        numbers = pa.array(range(file * ROWS, (file + 1) * ROWS), pa.int64())
        rows = pa.table({"n": numbers, "text": chosen})
        lake.write_dataset(rows, tmp_path, row_group_rows=ROW_GROUP_ROWS)
    return lake.open_dataset(tmp_path)


@pytest.mark.long
def test_a_slow_reader_of_many_files_holds_few_decoded_rows(dataset: lake.Dataset) -> None:
    """All of 2 files for each core waited in memory."""
    limit = 4_000_000
    cores = max(2, pa.cpu_count())
    assert limit + (cores + 3) * ROW_GROUP_BYTES * 2 < 2 * FILE_BYTES
    before, most, following = pa.total_allocated_bytes(), 0, 0
    for number, batch in enumerate(dataset.scan().to_batches(buffer_bytes=limit)):
        assert batch.column("n")[0].as_py() == following
        following += batch.num_rows
        if number in (0, 1, 30, 70):
            time.sleep(0.5)  # as much as may be decoded is decoded
            most = max(most, pa.total_allocated_bytes() - before)
        del batch
    assert following == FILES * ROWS
    assert 0 < most < limit + (cores + 3) * ROW_GROUP_BYTES * 2


def test_without_a_buffer_all_rows_still_come_in_order(dataset: lake.Dataset) -> None:
    batches = dataset.scan("n >= 3", columns=["n"]).to_batches(buffer_bytes=0)
    assert pa.Table.from_batches(batches)["n"].to_pylist() == list(range(3, FILES * ROWS))


def test_a_reader_that_stops_early_leaves_no_thread(dataset: lake.Dataset) -> None:
    batches = dataset.scan().to_batches(buffer_bytes=1)
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    for thread in threading.enumerate():
        if thread.name.startswith("plake-read"):
            thread.join(60)
            assert not thread.is_alive()


def test_a_read_that_was_given_up_is_collected_while_its_threads_wait() -> None:
    """Python collects garbage in any thread, also under a lock that a thread of the read wants."""
    lock = threading.Lock()

    def stream(number: int) -> Iterator[pa.Table]:
        yield pa.table({"n": [number]})
        with lock:
            pass

    with lock:
        reading = in_order([0, 1], stream, width=2, buffer_bytes=1 << 20)
        next(reading)
        threads = [one for one in threading.enumerate() if one.name.startswith("plake-read")]
        cycle: list[object] = [reading]
        cycle.append(cycle)
        del reading, cycle
        collected = threading.Event()
        collector = threading.Thread(target=lambda: (gc.collect(), collected.set()), daemon=True)
        collector.start()
        assert collected.wait(60)
    for one in (*threads, collector):
        one.join(60)
        assert not one.is_alive()


def test_a_damaged_file_is_an_error_in_its_place(dataset: lake.Dataset) -> None:
    path = Path(dataset.uri.removeprefix("file://")) / dataset.files()[3].path
    path.write_bytes(path.read_bytes()[:-50])
    batches = dataset.scan().to_batches(buffer_bytes=1)
    for number in range(3 * ROWS // ROW_GROUP_ROWS):
        assert next(batches).column("n")[0].as_py() == number * ROW_GROUP_ROWS
    with pytest.raises(lake.CorruptDatasetError, match=path.name):
        next(batches)


def test_the_buffer_is_a_number_of_bytes(dataset: lake.Dataset) -> None:
    for value in (-1, "1", True):
        with pytest.raises(lake.InvalidOptionError, match="buffer_bytes"):
            dataset.scan().to_batches(buffer_bytes=value)  # type: ignore[arg-type]

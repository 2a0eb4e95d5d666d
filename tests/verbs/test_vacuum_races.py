"""Repeated vacuums beside writers and readers with wrong clocks and wrong file times."""

from __future__ import annotations

import os
import random
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

import lakehouse_source as lake
from lakehouse_source.parquet.writer import write_files
from lakehouse_source.read.address import Address
from lakehouse_source.storage import FoundFile, Storage
from lakehouse_source.write.commit.begin import begin
from lakehouse_source.write.commit.commit import commit
from lakehouse_source.write.commit.options import WriteOptions
from tests import processes

pytestmark = [pytest.mark.slow, pytest.mark.one_catalog]

SECONDS = 5.0
RETENTION: dict[str, Any] = {"retention_seconds": 3.0, "allow_short_retention": True}
DAY = 24 * 3600.0


def rows_of(writer: int, ids: list[int]) -> pa.Table:
    return pa.table({"writer": pa.array([writer] * len(ids), pa.int64()), "id": pa.array(ids)})


def write(url: str, uri: str, writer: int, clock_off: float, start: Any, answers: Any) -> None:
    """Append rows slowly, and overwrite this writer's own rows now and then."""
    real, real_ns = time.time, time.time_ns

    def wrong() -> float:
        return real() + clock_off

    def wrong_ns() -> int:
        return real_ns() + int(clock_off * 1e9)

    start.wait(60)
    until = real() + SECONDS
    mine: list[int] = []
    number = 0
    try:
        with (
            mock.patch("time.time", wrong),
            mock.patch("time.time_ns", wrong_ns),
            lake.open_catalog(url) as catalog,
        ):
            while real() < until:
                number += 1
                if number % 4:
                    address = Address(uri, catalog)
                    data = rows_of(writer, [number])
                    staged = begin(catalog, address, data.schema, WriteOptions())
                    files = write_files(staged.spec, data.to_batches())
                    time.sleep(random.random() * 0.2)  # the files are in flight
                    commit(catalog, staged, files)
                    mine.append(number)
                    continue
                try:
                    lake.write_dataset(
                        rows_of(writer, mine),
                        uri,
                        catalog=catalog,
                        mode="overwrite",
                        overwrite_where=[("writer", "=", writer)],
                    )
                except lake.CommitConflictError:
                    continue
        answers.put(("wrote", writer, mine))
    except BaseException:
        answers.put(("failed", writer, traceback.format_exc()))


def read(url: str, uri: str, start: Any, answers: Any) -> None:
    """Plan, wait, read: the rows must be those of the planned version."""
    start.wait(60)
    until = time.time() + SECONDS
    reads = 0
    try:
        with lake.open_catalog(url) as catalog:
            while time.time() < until:
                dataset = lake.open_dataset(uri, catalog=catalog)
                (newest,) = dataset.history(1)
                if newest.version != dataset.version:
                    continue
                batches = dataset.scan().to_batches()
                try:
                    first = next(batches)  # planned now
                except lake.VersionNotFoundError:
                    continue  # expired between open and plan
                time.sleep(random.random() * 0.3)
                rows = first.num_rows + sum(batch.num_rows for batch in batches)
                assert rows == newest.summary["live_rows"]
                reads += 1
        answers.put(("read", reads, None))
    except BaseException:
        answers.put(("failed", "reader", traceback.format_exc()))


@pytest.mark.slow
def test_nothing_live_retained_or_pending_is_deleted(tmp_path: Path, catalog: lake.Catalog) -> None:
    uri = str(tmp_path / "things")
    lake.write_dataset(rows_of(0, [0]), uri, catalog=catalog)
    answers = processes.CONTEXT.Queue()
    start = processes.CONTEXT.Barrier(4)
    arguments = [
        (write, (catalog.url, uri, 1, -30 * DAY, start, answers)),
        (write, (catalog.url, uri, 2, 30 * DAY, start, answers)),
        (read, (catalog.url, uri, start, answers)),
    ]
    running = [processes.start(target, *given) for target, given in arguments]
    start.wait(60)
    until = time.time() + SECONDS
    removed = 0
    dataset = lake.open_dataset(uri, catalog=catalog)
    rng = random.Random(5)
    # On a loaded machine the first versions expire late.
    while time.time() < until or (removed == 0 and time.time() < until + 60):
        for path in Path(uri).rglob("*.parquet"):
            moment = time.time() + rng.choice([-DAY, DAY])
            with suppress(FileNotFoundError):  # a writer gave it up
                os.utime(path, (moment, moment))
        dataset.expire_versions(keep_last=3)
        removed += dataset.vacuum(**RETENTION).files_removed
    found = [answers.get(timeout=60) for _ in running]
    for process in running:
        process.join(60)
    for kind, _who, text in found:
        assert kind != "failed", text
    assert removed > 0
    assert any(kind == "read" and count > 0 for kind, count, _ in found)

    expected = Counter({(0, 0): 1})
    for kind, writer, ids in found:
        if kind == "wrote":
            assert ids
            expected.update((writer, number) for number in ids)
    table = lake.read_dataset(uri, catalog=catalog)
    assert Counter(zip(table["writer"].to_pylist(), table["id"].to_pylist())) == expected
    dataset.refresh()
    history = dataset.history()
    for record in history:
        if history.is_readable(record):
            assert dataset.verify(record.version).ok
    # Files of the writer whose clock is ahead have names from the future: they stay young.
    dataset.vacuum(retention_seconds=0, allow_short_retention=True)
    reached = {
        file.path
        for record in history
        if history.is_readable(record)
        for file in dataset.files(record.version)
    }
    stored = {str(path.relative_to(uri)) for path in Path(uri).rglob("*.parquet")}
    assert reached <= stored
    with catalog.read() as reader:
        states = reader.write_states({name.rpartition("/")[2][:36] for name in stored - reached})
    assert {state.state.name for state in states.values()} <= {"COMMITTED", "FENCED"}


def test_first_files_that_are_committed_after_the_listing_do_not_end_a_vacuum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It said that none of the files was there, and to check the dataset's place."""
    uri = str(tmp_path / "things")
    lake.write_dataset(rows_of(0, [1]).slice(1), uri)
    listing = Storage.files

    def overtaken(self: Storage) -> Iterator[FoundFile]:
        monkeypatch.undo()
        yield from listing(self)
        lake.write_dataset(rows_of(0, [1]), uri)

    monkeypatch.setattr(Storage, "files", overtaken)
    lake.open_dataset(uri).vacuum(retention_seconds=0, allow_short_retention=True)
    assert lake.open_dataset(uri).scan().count_rows() == 1

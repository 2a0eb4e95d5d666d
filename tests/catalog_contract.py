"""What every catalog backend must do. A backend's test module subclasses `CatalogContract`."""

from __future__ import annotations

import os
import pickle
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from itertools import takewhile
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import uuid4

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakehouse_source as lake
from lakehouse_source.catalog import Catalog, open_catalog, redact
from lakehouse_source.catalog.backends.sqlite import idle_connections
from lakehouse_source.catalog.sql import migrations
from lakehouse_source.catalog.sql.write_states import TRANSITIONS, WriteState
from lakehouse_source.errors import (
    CatalogUnavailableError,
    CommitConflictError,
    ConstraintViolationError,
    CorruptDatasetError,
    DatasetNotFoundError,
    InvalidOptionError,
)
from lakehouse_source.model import (
    DatasetRecord,
    FileBounds,
    FileMetadata,
    FileRecord,
    RowGroupMetadata,
)
from lakehouse_source.properties import DatasetProperties
from lakehouse_source.pruning.keys import (
    EMPTY_LOWER,
    EMPTY_UPPER,
    UNBOUNDED_LOWER,
    UNBOUNDED_UPPER,
    KeyRange,
    Search,
    SearchAll,
    SearchAny,
    SearchRanges,
    level,
)
from tests import processes

COLUMNS_NEW_IN_FORMAT_10 = {
    "files": ("sha256",),
    "deletion_vectors": ("sha256",),
    "transactions": ("committed_by", "committer_json"),
    "datasets": ("claimed_at", "managed"),
}
NEW_IN_FORMAT_10 = ("dataset_views", "dataset_drops", "dataset_consumers", "iceberg_files")
NEW_IN_FORMAT_8 = ("dataset_branches",)
NEW_IN_FORMAT_7 = ("dataset_namespaces", "dataset_names", "dataset_tags", "catalog_settings")
URI = "file:///data/flights"
SCHEMA = pa.schema([pa.field("a", pa.int32(), metadata={"PARQUET:field_id": "1"})])


def key(number: int) -> bytes:
    return (number + (1 << 63)).to_bytes(8, "big")


# Keys that begin alike, so that files are on many levels of the index.
KEYS = st.tuples(
    st.sampled_from([b"", b"\x12", b"\x12\x34\x56", b"customer-0"]),
    st.lists(st.sampled_from([0x00, 0x0F, 0x10, 0x7F, 0x80, 0xFF]), max_size=4).map(bytes),
).map(b"".join)
_ENDS = st.one_of(st.none(), KEYS)
RANGES = st.one_of(KEYS.map(lambda key: (key, key)), st.tuples(_ENDS, _ENDS))


def point(column: int, *numbers: int) -> SearchRanges:
    return SearchRanges(column, tuple(KeyRange(key(n), key(n)) for n in numbers))


def group(index: int = 0, rows: int = 10) -> RowGroupMetadata:
    return RowGroupMetadata(
        index, rows, '{"1": 1}', '{"1": 9}', '{"1": 0}', '{"1": false}', 100 + index, 50 + index
    )


def digits_in_common(lower: bytes, upper: bytes) -> int:
    pairs = zip(lower.hex(), upper.hex())
    return len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))


def file_of(
    path: str, *, groups: int = 1, partitions: dict[str, str | None] | None = None
) -> FileMetadata:
    return FileMetadata(
        path, 10 * groups, 1000, SCHEMA, tuple(group(i) for i in range(groups)), partitions or {}
    )


def bound(column: int, low: int, high: int) -> FileBounds:
    return FileBounds(column, key(low), key(high), 0, 10, False)


def commit(
    catalog: Catalog,
    files: Sequence[tuple[FileMetadata, Sequence[FileBounds]]] = (),
    *,
    uri: str = URI,
    remove: Sequence[int] = (),
    write_id: str | None = None,
    txn: tuple[str, int] | None = None,
) -> DatasetRecord:
    """Commit one version the way the transaction room does; answer the dataset after it."""
    app_id, txn_version = txn or (None, None)
    bounds = {file.path: own for file, own in files}
    with catalog.write() as transaction:
        transaction.register_dataset(uri, uri.rpartition("/")[2])
        dataset = transaction.lock_dataset(uri)
        assert dataset is not None
        version = dataset.current_version + 1
        if version == 1:
            transaction.insert_schema(dataset.id, 1, SCHEMA)
        transaction.insert_transaction(
            dataset.id,
            version,
            "append",
            {"by": "contract"},
            {"files_added": len(files)},
            write_id or str(uuid4()),
            app_id,
            txn_version,
        )
        transaction.record_file_metadata(
            dataset,
            version,
            [file for file, _ in files],
            schema_version=1,
            bounds=lambda file: bounds[file.path],
        )
        transaction.remove_files(dataset.id, version, remove)
        changed = transaction.dataset(uri)
        assert changed is not None
        return changed


# The states of a write (None: unknown), and what each event makes of it, in the order of
# TRANSITIONS: register, heartbeat, abandon, commit, fence, forget.
_P, _A, _F, _C = WriteState
NO = "refused"
LIFE: dict[WriteState | None, tuple[WriteState | str | None, ...]] = {
    None: (_P, NO, NO, _C, _F, NO),
    _P: (NO, _P, _A, _C, _F, None),
    _A: (NO, _P, NO, _C, _F, None),
    _F: (NO, NO, NO, NO, _F, NO),
    _C: (NO, NO, NO, NO, NO, NO),
}


def apply_event(catalog: Catalog, event: str, write_id: str, dataset: DatasetRecord) -> bool | None:
    """Whether it was done, None where the event does not tell."""
    if event == "commit":
        try:
            commit(catalog, write_id=write_id)
        except CommitConflictError:
            return False
        return True
    with catalog.write() as transaction:
        if event == "register":
            transaction.register_pending(write_id, dataset.id)
        elif event == "heartbeat":
            return transaction.heartbeat(write_id)
        elif event == "abandon":
            transaction.mark_abandoned(-60)
        elif event == "fence":
            return transaction.fence_write(write_id)
        else:
            assert event == "forget"
            transaction.finish_pending(write_id)
    return None


def bring_to(
    catalog: Catalog, write_id: str, state: WriteState | None, dataset: DatasetRecord
) -> None:
    if state is not None:
        apply_event(catalog, "register", write_id, dataset)
    events = {_A: "abandon", _F: "fence", _C: "commit"}
    if state in events:
        apply_event(catalog, events[state], write_id, dataset)


def state_of(catalog: Catalog, write_id: str) -> WriteState | None:
    with catalog.read() as reader:
        found = reader.write_states([write_id]).get(write_id)
    return None if found is None else found.state


def paths(files: Sequence[FileRecord]) -> list[str]:
    return [file.path for file in files]


def live(catalog: Catalog, dataset_id: int, version: int, search: Search | None = None) -> set[str]:
    with catalog.read() as reader:
        return set(paths(reader.files(dataset_id, version, search)))


def _register_in_process(url: str, barrier: Any, answers: Any) -> None:
    with open_catalog(url) as catalog:
        barrier.wait(30)
        with catalog.write() as transaction:
            answers.put(transaction.register_dataset(URI, "flights").id)


def _use_inherited(catalog: Catalog, answers: Any) -> None:
    with catalog.read() as reader:
        answers.put(len(reader.datasets()))
    commit(catalog, uri=URI + "-child")
    catalog.close()


@contextmanager
def release_of_format(number: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Behave as a release whose catalogs have an older format."""
    with monkeypatch.context() as patched:
        patched.setattr(migrations, "LATEST", number)
        idle_connections.close_all()  # of this release; another process would have none
        yield
        idle_connections.close_all()


@contextmanager
def refused_in_release(number: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Behave as an older release, and expect that it refuses a catalog of this one."""
    refused = pytest.raises(CatalogUnavailableError, match=f"it has format {migrations.LATEST}")
    with release_of_format(number, monkeypatch), refused:
        yield


class CatalogContract:
    """Needs two fixtures: `url` (a new catalog) and `plant` (runs raw SQL in it)."""

    SEARCHES = 300  # of those drawn

    @pytest.fixture
    def url(self) -> str:
        raise NotImplementedError

    @pytest.fixture
    def plant(self, url: str) -> Callable[[str], None]:
        raise NotImplementedError

    @pytest.fixture
    def catalog(self, url: str) -> Iterator[Catalog]:
        with open_catalog(url) as catalog:
            yield catalog

    @pytest.fixture
    def other(self, url: str) -> Iterator[Catalog]:
        """A second catalog object: what others see."""
        with open_catalog(url) as catalog:
            yield catalog

    # --- datasets

    def test_a_new_catalog_is_empty(self, catalog: Catalog) -> None:
        with catalog.read() as reader:
            assert reader.datasets() == []
            assert reader.dataset(URI) is None

    def test_registering_twice_gives_the_same_dataset(self, catalog: Catalog) -> None:
        with catalog.write() as transaction:
            first = transaction.register_dataset(URI, "flights")
            assert transaction.register_dataset(URI, "other name") == first
        assert first == DatasetRecord(first.id, "flights", URI, 0, DatasetProperties())

    def test_threads_that_register_at_once_get_one_dataset(self, url: str) -> None:
        barrier = threading.Barrier(4)

        def register(_: int) -> int:
            with open_catalog(url) as catalog:
                barrier.wait(30)
                with catalog.write() as transaction:
                    return transaction.register_dataset(URI, "flights").id

        with ThreadPoolExecutor(4) as pool:
            assert len(set(pool.map(register, range(4)))) == 1

    @pytest.mark.slow
    def test_processes_that_register_at_once_get_one_dataset(self, url: str) -> None:
        barrier, answers = processes.CONTEXT.Barrier(2), processes.CONTEXT.Queue()
        running = [processes.start(_register_in_process, url, barrier, answers) for _ in range(2)]
        ids = {answers.get(timeout=60) for _ in running}
        for process in running:
            process.join()
        assert len(ids) == 1

    def test_properties_are_replaced(self, catalog: Catalog) -> None:
        unknown = {"of a later release": "nul \0, quote ', snow ☃"}
        properties = DatasetProperties(("a",), ("b", "c"), (3, 1), 7, unknown)
        with catalog.write() as transaction:
            dataset = transaction.register_dataset(URI, "flights")
            transaction.set_properties(dataset.id, properties)
        with catalog.read() as reader:
            found = reader.dataset(URI)
        assert found is not None
        assert found.properties == properties

    def test_datasets_come_in_the_order_of_registration(self, catalog: Catalog) -> None:
        for name in ("b", "a", "c"):
            commit(catalog, uri=f"file:///{name}")
        with catalog.read() as reader:
            assert [d.name for d in reader.datasets()] == ["b", "a", "c"]

    # --- commit

    def test_a_commit_is_read_back(self, catalog: Catalog) -> None:
        file = file_of("x.parquet", groups=3, partitions={"year": "2013", "note": None})
        dataset = commit(catalog, [(file, [bound(1, 1, 9)])], txn=("app", 7), write_id="w")
        assert dataset.current_version == 1
        with catalog.read() as reader:
            (found,) = reader.files(dataset.id, 1)
            assert found == FileRecord(
                found.id, "x.parquet", 1000, 30, 1, 1, {"year": "2013", "note": None}, True
            )
            assert reader.row_groups([found.id, 10**9]) == {
                found.id: list(file.row_groups),
                10**9: [],
            }
            (record,) = reader.transactions(dataset.id)
            assert record == reader.transaction(dataset.id, 1)
            assert record == reader.transaction_by_write_id("w")
            assert record == reader.transaction_by_txn(dataset.id, "app", 7)
            assert reader.transaction_by_write_id("nobody") is None
            assert (record.operation, record.metadata, record.summary, record.write_id) == (
                "append", {"by": "contract"}, {"files_added": 1}, "w",
            )  # fmt: skip
            assert record.timestamp.tzinfo is timezone.utc
            assert abs(record.timestamp - reader.now()) < timedelta(minutes=1)
            assert reader.schema_at(dataset.id, 1) == (1, SCHEMA)
            _, schema = reader.schema_at(dataset.id, 99)
            assert schema.equals(SCHEMA, check_metadata=True)
            assert reader.schemas(dataset.id) == {1: SCHEMA}

    def test_a_version_is_described_at_once(self, catalog: Catalog) -> None:
        dataset = commit(catalog, [(file_of("a"), [])])
        commit(catalog, uri="file:///another")
        later = pa.schema([("a", pa.int64())])
        with catalog.write() as transaction:
            transaction.insert_schema(dataset.id, 2, later)
        newest = commit(catalog)
        with catalog.read() as reader:
            assert reader.description("file:///nothing") is None
            for version, added in ((None, 0), (1, 1), (2, 0)):
                found = reader.description(URI, version)
                assert found is not None
                assert found.dataset == newest
                assert found.schemas == {1: SCHEMA, 2: later}
                assert found.schemas[1].equals(SCHEMA, check_metadata=True)
                assert found.summary == {"files_added": added}
            for version in (0, 3, -(10**30), 10**30):
                found = reader.description(URI, version)
                assert found is not None
                assert (found.dataset, found.summary) == (newest, {})
        with catalog.write() as transaction:
            transaction.register_dataset("file:///empty", "empty")
            found = transaction.description("file:///empty")
            assert found is not None
            assert (found.dataset.current_version, found.schemas, found.summary) == (0, {}, {})

    def test_history_is_ordered_and_limited(self, catalog: Catalog) -> None:
        for _ in range(4):
            dataset = commit(catalog)
        with catalog.read() as reader:
            versions = [t.version for t in reader.transactions(dataset.id)]
            assert versions == [4, 3, 2, 1]
            assert [t.version for t in reader.transactions(dataset.id, limit=2)] == [4, 3]
            assert [t.version for t in reader.transactions_since(dataset.id, 2)] == [3, 4]

    def test_the_schema_in_force_is_the_last_one_before(self, catalog: Catalog) -> None:
        dataset = commit(catalog)
        later = pa.schema([("a", pa.int64())])
        with catalog.write() as transaction:
            transaction.insert_schema(dataset.id, 5, later)
        with catalog.read() as reader:
            assert reader.schema_at(dataset.id, 4) == (1, SCHEMA)
            assert reader.schema_at(dataset.id, 5) == (5, later)
            with pytest.raises(CorruptDatasetError):
                reader.schema_at(dataset.id, 0)

    def test_a_rollback_leaves_nothing(self, catalog: Catalog, other: Catalog) -> None:
        dataset = commit(catalog)

        def write_and_fail() -> None:
            with catalog.write() as transaction:
                transaction.insert_transaction(dataset.id, 2, "append", {}, {}, "undone")
                transaction.record_file_metadata(
                    dataset, 2, [file_of("x")], schema_version=1, bounds=lambda _: [bound(1, 1, 2)]
                )
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            write_and_fail()
        with other.read() as reader:
            assert reader.dataset(URI) == dataset
            assert reader.files(dataset.id, 2) == []
            assert reader.files(dataset.id, 2, point(1, 1)) == []
            assert reader.transaction_by_write_id("undone") is None

    def test_others_see_nothing_before_the_commit(self, catalog: Catalog, other: Catalog) -> None:
        with catalog.write() as transaction:
            transaction.register_dataset(URI, "flights")
            with other.read() as reader:
                assert reader.dataset(URI) is None
        with other.read() as reader:
            assert reader.dataset(URI) is not None

    def test_the_version_must_follow_the_current_one(self, catalog: Catalog) -> None:
        dataset = commit(catalog)
        for version in (1, 3):
            with (
                pytest.raises(CommitConflictError) as caught,
                catalog.write() as transaction,
            ):
                transaction.insert_transaction(dataset.id, version, "append", {}, {}, "late")
            assert caught.value.dataset == URI
            assert caught.value.current_version == 1
            assert caught.value.base_version == version - 1

    def test_the_lock_makes_the_second_writer_see_the_first(
        self, catalog: Catalog, other: Catalog
    ) -> None:
        commit(catalog)
        holding, seen = threading.Event(), []

        def second() -> None:
            holding.wait(30)
            with other.write() as transaction:
                dataset = transaction.lock_dataset(URI)
                assert dataset is not None
                seen.append(dataset.current_version)

        thread = threading.Thread(target=second)
        thread.start()
        with catalog.write() as transaction:
            dataset = transaction.lock_dataset(URI)
            assert dataset is not None
            holding.set()
            thread.join(0.3)
            assert seen == []
            transaction.insert_transaction(dataset.id, 2, "append", {}, {}, "first")
        thread.join(30)
        assert seen == [2]

    def test_two_writers_at_once_lose_no_commit(self, url: str) -> None:
        def write(number: int) -> None:
            with open_catalog(url) as catalog:
                for turn in range(5):
                    commit(
                        catalog, [(file_of(f"{number}-{turn}"), [])], write_id=f"{number}/{turn}"
                    )

        with ThreadPoolExecutor(3) as pool:
            list(pool.map(write, range(3)))
        with open_catalog(url) as catalog, catalog.read() as reader:
            dataset = reader.dataset(URI)
            assert dataset is not None
            assert dataset.current_version == 15
            assert len(reader.files(dataset.id, 15)) == 15

    def test_a_write_id_commits_once(self, catalog: Catalog) -> None:
        commit(catalog, write_id="once")
        with pytest.raises(CommitConflictError, match="committed already, as version 1"):
            commit(catalog, write_id="once")
        with pytest.raises(CommitConflictError, match="committed already"):
            commit(catalog, write_id="once", uri="file:///another")

    def test_an_idempotency_pair_commits_once(self, catalog: Catalog) -> None:
        dataset = commit(catalog, txn=("app", 1))
        with pytest.raises(CommitConflictError, match="committed already, as version 1"):
            commit(catalog, txn=("app", 1))
        commit(catalog, txn=("app", 3))
        commit(catalog, txn=("other", 1))
        commit(catalog, txn=("app", 1), uri="file:///another")
        with catalog.read() as reader:
            found = {n: reader.repeated(dataset.id, "app", n) for n in (1, 2, 3, 4, 2**70)}
            versions = {n: done and done.version for n, done in found.items()}
            # Number 2 was never committed, and a later one was.
            assert versions == {1: 1, 2: 2, 3: 2, 4: None, 2**70: None}
            assert reader.repeated(dataset.id, "nobody", 1) is None

    @pytest.mark.parametrize("pair", [("app", None), (None, 1), ("app", -1), ("app", 2**63)])
    def test_half_or_impossible_idempotency_pairs_are_refused(
        self, catalog: Catalog, pair: tuple[str | None, int | None]
    ) -> None:
        dataset = commit(catalog)
        with pytest.raises(InvalidOptionError), catalog.write() as transaction:
            transaction.insert_transaction(dataset.id, 2, "append", {}, {}, "w2", *pair)

    def test_a_row_that_is_there_already_is_a_conflict(self, catalog: Catalog) -> None:
        dataset = commit(catalog)
        with pytest.raises(CommitConflictError), catalog.write() as transaction:
            transaction.insert_schema(dataset.id, 1, SCHEMA)

    def test_a_transaction_kept_beyond_its_block_is_dead(self, catalog: Catalog) -> None:
        with catalog.read() as reader:
            pass
        with pytest.raises(RuntimeError, match="ended"):
            reader.datasets()

    # --- fences

    def test_a_fenced_write_cannot_commit(self, catalog: Catalog, other: Catalog) -> None:
        dataset = commit(catalog)
        with catalog.write() as transaction:
            transaction.register_pending("late", dataset.id)
        with other.write() as transaction:
            assert transaction.fence_write("late")
            assert transaction.fence_write("never registered")
        for write_id in ("late", "never registered"):
            with pytest.raises(CommitConflictError, match="given up"):
                commit(catalog, write_id=write_id)
        with other.write() as transaction:
            transaction.finish_pending("late")
            assert transaction.fence_write("late")
        with pytest.raises(CommitConflictError, match="given up"):
            commit(catalog, write_id="late")

    def test_a_committed_write_cannot_be_fenced(self, catalog: Catalog) -> None:
        commit(catalog, write_id="done")
        with catalog.write() as transaction:
            assert not transaction.fence_write("done")
            assert transaction.silent_writes(-1) == {}

    def test_a_fence_waits_for_a_commit_under_way(self, catalog: Catalog, other: Catalog) -> None:
        dataset = commit(catalog)
        committing, answers = threading.Event(), []

        def close() -> None:
            committing.wait(30)
            with other.write() as transaction:
                answers.append(transaction.fence_write("slow"))

        thread = threading.Thread(target=close)
        thread.start()
        with catalog.write() as transaction:
            transaction.insert_transaction(dataset.id, 2, "append", {}, {}, "slow")
            committing.set()
            thread.join(0.3)
            assert answers == []
        thread.join(30)
        assert answers == [False]

    def test_a_commit_waits_for_a_fence_under_way(self, catalog: Catalog, other: Catalog) -> None:
        commit(catalog)
        closing, errors = threading.Event(), []

        def late() -> None:
            closing.wait(30)
            try:
                commit(other, write_id="slow")
            except CommitConflictError as exc:
                errors.append(exc)

        thread = threading.Thread(target=late)
        thread.start()
        with catalog.write() as transaction:
            assert transaction.fence_write("slow")
            closing.set()
            thread.join(0.3)
            assert errors == []
        thread.join(30)
        assert len(errors) == 1

    # --- the life of a write

    def test_every_transition_of_a_write_happens_and_no_other(self, catalog: Catalog) -> None:
        """Each event on a write in each state, by a table that stands here a second time."""
        dataset = commit(catalog)
        for before in LIFE:
            for number, transition in enumerate(TRANSITIONS):
                write_id = f"{before} {transition.name}"
                bring_to(catalog, write_id, before, dataset)
                assert state_of(catalog, write_id) is before
                wanted = LIFE[before][number]
                done = apply_event(catalog, transition.name, write_id, dataset)
                after = state_of(catalog, write_id)
                if isinstance(wanted, str):  # refused
                    assert (done in (False, None), after) == (True, before), write_id
                else:
                    assert (done in (True, None), after) == (True, wanted), write_id
                    assert after is transition.after
                assert (before in transition.before) is not isinstance(wanted, str)
        with catalog.read() as reader:
            assert [t.version for t in reader.transactions(dataset.id)] == [*range(10, 0, -1)]

    def test_a_registered_write_ends_with_its_commit(self, catalog: Catalog) -> None:
        dataset = commit(catalog)
        with catalog.write() as transaction:
            transaction.register_pending("one", dataset.id)
            transaction.register_pending("one", dataset.id)
            transaction.register_pending("two", dataset.id)
            assert transaction.silent_writes(60) == {}
            assert transaction.silent_writes(-60).keys() == {"one", "two"}
            assert transaction.write_states(["two"])["two"].dataset_id == dataset.id
        commit(catalog, write_id="one")
        with catalog.write() as transaction:
            assert transaction.silent_writes(-60).keys() == {"two"}

    def test_states_in_the_catalog_keep_their_names(
        self, catalog: Catalog, plant: Callable[[str], None]
    ) -> None:
        """Those of every catalog that was written so far."""
        commit(catalog)
        for state in ("pending", "abandoned", "closed"):
            plant(f"INSERT INTO pending_writes (write_id, state) VALUES ('{state}', '{state}')")
        with catalog.read() as reader:
            found = reader.write_states(["pending", "abandoned", "closed"])
        assert [one.state for one in found.values()] == [
            WriteState.PENDING, WriteState.ABANDONED, WriteState.FENCED,
        ]  # fmt: skip
        with pytest.raises(CommitConflictError, match="given up"):
            commit(catalog, write_id="closed")
        commit(catalog, write_id="abandoned")

    # --- time

    def test_timestamps_never_run_backwards(
        self, catalog: Catalog, plant: Callable[[str], None]
    ) -> None:
        dataset = commit(catalog)
        future = datetime(2100, 1, 1, tzinfo=timezone.utc)
        microseconds = (future - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(
            microseconds=1
        )
        plant(f"UPDATE transactions SET timestamp = {microseconds}")
        commit(catalog)
        commit(catalog)
        with catalog.read() as reader:
            steps = [t.timestamp - future for t in reader.transactions_since(dataset.id, 0)]
        assert steps == [timedelta(microseconds=n) for n in range(3)]

    def test_the_version_at_an_instant(self, catalog: Catalog) -> None:
        for _ in range(3):
            dataset = commit(catalog)
        commit(catalog, uri="file:///another")
        tick = timedelta(microseconds=1)
        with catalog.read() as reader:
            first, second, third = (t.timestamp for t in reader.transactions_since(dataset.id, 0))
            assert reader.version_at(dataset.id, first - tick) is None
            assert reader.version_at(dataset.id, first) == 1
            assert reader.version_at(dataset.id, second - tick) == 1
            assert reader.version_at(dataset.id, second) == 2
            elsewhere = third.astimezone(timezone(timedelta(hours=5, minutes=45)))
            assert reader.version_at(dataset.id, elsewhere) == 3
            assert reader.version_at(dataset.id, datetime.max.replace(tzinfo=timezone.utc)) == 3
            assert reader.version_at(dataset.id, datetime.min.replace(tzinfo=timezone.utc)) is None
            with pytest.raises(InvalidOptionError, match="time zone"):
                reader.version_at(dataset.id, datetime(2020, 1, 1))

    def test_versions_beyond_any_integer_find_nothing(self, catalog: Catalog) -> None:
        dataset = commit(catalog, [(file_of("x"), [])])
        with catalog.read() as reader:
            assert reader.transaction(dataset.id, 10**30) is None
            assert reader.files(dataset.id, -(10**30)) == []
            assert len(reader.files(dataset.id, 10**30)) == 1

    # --- files over time

    def test_removed_files_stay_in_their_versions(self, catalog: Catalog) -> None:
        dataset = commit(catalog, [(file_of("a"), [bound(1, 1, 1)]), (file_of("b"), [])])
        commit(catalog, [(file_of("c"), [bound(1, 1, 1)])])
        with catalog.read() as reader:
            first = reader.files(dataset.id, 1)[0]
        commit(catalog, [(file_of("d"), [])], remove=[first.id])
        assert live(catalog, dataset.id, 0) == set()
        assert live(catalog, dataset.id, 1) == {"a", "b"}
        assert live(catalog, dataset.id, 2) == {"a", "b", "c"}
        assert live(catalog, dataset.id, 3) == {"b", "c", "d"}
        assert live(catalog, dataset.id, 2, point(1, 1)) == {"a", "c"}
        assert live(catalog, dataset.id, 3, point(1, 1)) == {"c"}
        with catalog.read() as reader:
            assert paths(reader.files_added_since(dataset.id, 1)) == ["c", "d"]
            assert paths(reader.files_added_since(dataset.id, 0)) == ["a", "b", "c", "d"]

    def test_a_file_is_removed_once(self, catalog: Catalog) -> None:
        dataset = commit(catalog, [(file_of("a"), []), (file_of("b"), [])])
        another = commit(catalog, [(file_of("z"), [])], uri="file:///another")
        with catalog.read() as reader:
            ids = {f.path: f.id for f in reader.files(dataset.id, 1)}
            foreign = reader.files(another.id, 1)[0].id
        commit(catalog, remove=[ids["a"], ids["a"]])
        for gone in (ids["a"], foreign, 10**12):
            with pytest.raises(CommitConflictError, match="1 of the 2 files"):
                commit(catalog, remove=[ids["b"], gone])
        assert live(catalog, dataset.id, 2) == {"b"}

    def test_ids_are_never_given_twice(
        self, catalog: Catalog, plant: Callable[[str], None]
    ) -> None:
        dataset = commit(catalog, [(file_of("a"), [])])
        with catalog.read() as reader:
            first = reader.files(dataset.id, 1)[0].id
        plant("DELETE FROM row_groups")
        plant("DELETE FROM files")
        commit(catalog, [(file_of("b"), [])])
        with catalog.read() as reader:
            assert reader.files(dataset.id, 2)[0].id > first

    def test_row_groups_of_very_many_files(self, catalog: Catalog) -> None:
        dataset = commit(catalog, [(file_of(f"f{n}", groups=2), []) for n in range(50)])
        with catalog.read() as reader:
            ids = [f.id for f in reader.files(dataset.id, 1)]
            found = reader.row_groups([*ids, *range(10**9, 10**9 + 100_000)])
            assert reader.row_groups([]) == {}
        assert len(found) == 100_050
        assert all([g.index for g in found[i]] == [0, 1] for i in ids)

    def test_files_iterated_are_those_listed(self, catalog: Catalog) -> None:
        """Live ones only, in the same order, each once, at every size of a portion."""
        some = [
            (file_of(f"f{n}"), [FileBounds(1, key(n), key(n), None, 1, False)]) for n in range(7)
        ]
        dataset = commit(catalog, some[:4])
        with catalog.read() as reader:
            gone = [file.id for file in reader.files(dataset.id, 1)][1]
        commit(catalog, some[4:], remove=[gone])
        with catalog.read() as reader:
            for search in (None, point(1, 2), SearchRanges(1, (KeyRange(key(2), None),))):
                for version in (1, 2, 9):
                    whole = reader.files(dataset.id, version, search)
                    for at_once in (1, 2, 3, 6, 7, 100):
                        portions = list(reader.iter_files(dataset.id, version, search, at_once))
                        assert [file for portion in portions for file in portion] == whole
                        assert all(len(portion) <= at_once for portion in portions)
            assert len(reader.files(dataset.id, 2)) == 6

    def test_row_groups_without_their_statistics(self, catalog: Catalog) -> None:
        group_ = RowGroupMetadata(0, 5, '{"1": 1}', '{"1": 2}', '{"1": 0}', '{"1": true}', 70, 60)
        dataset = commit(catalog, [(FileMetadata("a", 5, 80, SCHEMA, (group_,)), [])])
        with catalog.read() as reader:
            (found,) = reader.files(dataset.id, 1)
            bare = reader.row_groups([found.id], statistics=False)
        assert bare == {found.id: [RowGroupMetadata(0, 5, "{}", "{}", "{}", "{}", 70, 60)]}

    def test_rows_of_files_within_a_search_are_counted_and_those_files_left_out(
        self, catalog: Catalog
    ) -> None:
        def file(n: int, low: bytes, high: bytes, nulls: int | None) -> Any:
            return file_of(f"f{n}"), [FileBounds(1, low, high, nulls, 10, False)]

        files = [
            file(0, key(0), key(9), 0),
            file(1, key(10), key(19), 0),
            file(2, key(12), key(12), 0),
            file(3, key(12), key(14), 1),  # with a NULL
            file(4, key(12), key(14), None),
            file(5, key(15), key(25), 0),
            file(6, UNBOUNDED_LOWER, UNBOUNDED_UPPER, 0),
            file(7, EMPTY_LOWER, EMPTY_UPPER, 10),
            (file_of("f8"), []),
            file(9, key(11), key(13), 0),
        ]
        dataset = commit(catalog, files)
        another = commit(catalog, [file(0, key(12), key(12), 0)], uri="file:///another")
        with catalog.read() as reader:
            gone = [one.id for one in reader.files(dataset.id, 1) if one.path == "f9"]
        commit(catalog, remove=gone)
        ten_to_19 = SearchRanges(1, (KeyRange(key(10), key(19)),))
        ten_up = SearchRanges(1, (KeyRange(key(10), None),))
        up_to_19 = SearchRanges(1, (KeyRange(None, key(19)),))
        for search, counted, left in (
            (ten_to_19, {"f1", "f2"}, {"f3", "f4", "f5", "f6"}),
            (ten_up, {"f1", "f2", "f5"}, {"f3", "f4", "f6"}),
            (up_to_19, {"f0", "f1", "f2"}, {"f3", "f4", "f5", "f6"}),
            (SearchAll((ten_up, up_to_19)), {"f1", "f2"}, {"f3", "f4", "f5", "f6"}),
            (SearchAny((point(1, 12), up_to_19)), {"f0", "f1", "f2"}, {"f3", "f4", "f5", "f6"}),
            (point(1, *range(0, 40, 2)), set(), {"f0", "f1", "f2", "f3", "f4", "f5", "f6"}),
        ):
            with catalog.read() as reader:
                rows = reader.count_certain_rows(dataset.id, 2, search, search)
                for at_once in (1, 2, 100):
                    found = reader.iter_files(dataset.id, 2, search, at_once, without=search)
                    assert {one.path for some in found for one in some} == left
                again = reader.count_certain_rows(dataset.id, 1, search, search)
            assert rows == 10 * len(counted), search
            assert again == rows + (0 if search == point(1, *range(0, 40, 2)) else 10)
        with catalog.read() as reader:
            assert reader.count_certain_rows(another.id, 1, point(1, 12), point(1, 12)) == 10

    def test_records_that_are_known_are_not_made_again(self, catalog: Catalog) -> None:
        dataset = commit(catalog, [(file_of(f"f{n}", partitions={"p": "1"}), []) for n in range(5)])
        with catalog.read() as reader:
            files = reader.files(dataset.id, 1)
            have = {file.id: file for file in files[1:4]}
            for at_once in (2, 100):
                found = [
                    file
                    for some in reader.iter_files(
                        dataset.id, 1, None, at_once, known=lambda ids: have
                    )
                    for file in some
                ]
                assert found == files
                assert [a is b for a, b in zip(found, files)] == [False, True, True, True, False]

    def test_the_bounds_of_files_are_those_recorded(self, catalog: Catalog) -> None:
        recorded = {
            (name, column): FileBounds(column, key(n), key(n + column), nulls, 10, column == 2)
            for n, (name, nulls) in enumerate([("a", 0), ("b", None), ("c", 3)])
            for column in (1, 2, 3)
        }
        dataset = commit(
            catalog,
            [
                (file_of(name), [row for (of, _), row in recorded.items() if of == name])
                for name in "abc"
            ],
        )
        with catalog.read() as reader:
            ids = {file.path: file.id for file in reader.files(dataset.id, 1)}
            found = reader.file_bounds([ids["a"], ids["b"], 10**9], [1, 3, 77])
            assert found == {
                ids[name]: {column: recorded[name, column] for column in (1, 3)} for name in "ab"
            }
            assert reader.file_bounds([], [1]) == reader.file_bounds([ids["a"]], []) == {}

    def test_texts_of_any_kind_survive(self, catalog: Catalog) -> None:
        nasty = 'a"b\\c%s {now} ? \u2028 ☃ 😀 \ud800'.encode("utf-16", "surrogatepass").decode(
            "utf-16", "replace"
        )
        group_ = RowGroupMetadata(0, 1, '{"1": "a\\u0000b"}', '{"1": "\\ttab"}', "{}", "{}")
        file = FileMetadata(
            f"part=%00/{nasty}\t\n.parquet", 1, 1, SCHEMA, (group_,), {nasty: '"\\u0000"'}
        )
        dataset = commit(catalog, [(file, [])])
        with catalog.read() as reader:
            (found,) = reader.files(dataset.id, 1)
            assert found.path == file.path
            assert found.partitions == file.partitions
            assert reader.row_groups([found.id])[found.id] == [group_]

    def test_nul_is_kept_in_metadata_and_refused_in_names(self, catalog: Catalog) -> None:
        with catalog.write() as transaction:
            dataset = transaction.register_dataset(URI, "flights")
            transaction.insert_transaction(dataset.id, 1, "append", {"k\0": "v\0"}, {}, "w")
        with catalog.read() as reader:
            assert reader.transactions(dataset.id)[0].metadata == {"k\0": "v\0"}
        with pytest.raises(InvalidOptionError, match="NUL"), catalog.write() as transaction:
            transaction.insert_transaction(dataset.id, 2, "append", {}, {}, "w2", "app\0", 1)

    def test_metadata_that_is_no_json_is_refused(self, catalog: Catalog) -> None:
        dataset = commit(catalog)
        with pytest.raises(InvalidOptionError, match="JSON"), catalog.write() as transaction:
            transaction.insert_transaction(dataset.id, 2, "append", {"k": object()}, {}, "w2")

    # --- snapshots

    def test_a_reader_keeps_its_snapshot_while_another_commits(
        self, catalog: Catalog, other: Catalog
    ) -> None:
        dataset = commit(catalog, [(file_of("a"), [])])
        thread = threading.Thread(target=lambda: commit(other, [(file_of("b"), [])]))
        with catalog.read() as reader:
            before = reader.dataset(URI)
            thread.start()
            thread.join(0.3)  # where readers block commits (a rollback journal), it goes on later
            assert reader.dataset(URI) == before
            assert paths(reader.files(dataset.id, 99)) == ["a"]
            assert len(reader.transactions(dataset.id)) == 1
        thread.join(30)
        with catalog.read() as reader:
            assert paths(reader.files(dataset.id, 99)) == ["a", "b"]

    def test_threads_share_a_catalog(self, catalog: Catalog) -> None:
        def work(number: int) -> int:
            dataset = commit(catalog, [(file_of(f"f{number}"), [])])
            with catalog.read() as reader:
                return len(reader.transactions(dataset.id))

        with ThreadPoolExecutor(4) as pool:
            assert max(pool.map(work, range(8))) == 8

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
    @pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
    def test_a_forked_child_opens_its_own_connection(self, catalog: Catalog) -> None:
        commit(catalog)
        with processes.forked(_use_inherited, catalog) as answers:
            assert answers.get(timeout=30) == 1
        commit(catalog)
        with catalog.read() as reader:
            assert len(reader.datasets()) == 2

    # --- the search index

    def test_search_finds_what_brute_force_finds(self, catalog: Catalog) -> None:
        rng = random.Random(7)
        keys = [b"", b"\x00", b"a", b"ab", b"b", b"\x7f", b"\x80", b"\xff", b"\xff\xff"]
        keys += [rng.randbytes(rng.randint(1, 3)) for _ in range(30)]
        model: dict[str, dict[int, tuple[bytes, bytes]]] = {}
        files = []
        for number in range(60):
            own: dict[int, tuple[bytes, bytes]] = {}
            for column in (1, 2, 3):
                if rng.random() < 0.85:
                    low, high = sorted(rng.choices(keys, k=2))
                    own[column] = (low, high)
            model[f"f{number}"] = own
            bounds = [
                FileBounds(c, low, high, None, 10, bool(c % 2)) for c, (low, high) in own.items()
            ]
            files.append((file_of(f"f{number}"), bounds))
        dataset = commit(catalog, files)

        def ranges() -> SearchRanges:
            chosen = []
            for _ in range(rng.choice([0, 1, 1, 1, 2, 5, 12])):
                low, high = rng.choices([*keys, None, None], k=2)
                if low is not None and high is not None and rng.random() < 0.9:
                    low, high = sorted((low, high))
                chosen.append(KeyRange(low, high))
            return SearchRanges(rng.choice([1, 2, 3, 4]), tuple(chosen))

        def tree(depth: int) -> Search:
            kind = rng.choice(["ranges", "all", "any"]) if depth else "ranges"
            if kind == "ranges":
                return ranges()
            terms = tuple(tree(depth - 1) for _ in range(rng.randint(1, 3)))
            return SearchAll(terms) if kind == "all" else SearchAny(terms)

        def matches(own: dict[int, tuple[bytes, bytes]], search: Search) -> bool:
            if isinstance(search, SearchAll):
                return all(matches(own, term) for term in search.terms)
            if isinstance(search, SearchAny):
                return any(matches(own, term) for term in search.terms)
            if search.column_id not in own:
                return False
            low, high = own[search.column_id]
            return any(
                (r.upper is None or r.upper >= low)
                and (r.lower is None or r.lower <= high)
                and (r.lower is None or r.upper is None or r.lower <= r.upper)
                for r in search.ranges
            )

        for _ in range(self.SEARCHES):
            search = tree(rng.choice([0, 1, 2, 3]))
            expected = {path for path, own in model.items() if matches(own, search)}
            with catalog.read() as reader:
                found = paths(reader.files(dataset.id, 1, search))
                assert reader.count_files(dataset.id, 1, search) == len(found)
            assert len(found) == len(set(found))
            assert set(found) == expected, search

    def test_a_search_finds_every_overlap_on_any_level(self, catalog: Catalog) -> None:
        """Bounds of all widths, at their own level or a lower one, and ranges of all kinds."""

        @settings(max_examples=20)
        @given(
            held=st.lists(st.tuples(KEYS, KEYS, st.integers(0, 12)), min_size=1),
            extremes=st.booleans(),
            wanted=st.lists(RANGES, min_size=1, max_size=20),
            looked_up=st.booleans(),
        )
        def check(
            held: list[tuple[bytes, bytes, int]],
            extremes: bool,
            wanted: list[tuple[bytes | None, bytes | None]],
            looked_up: bool,
        ) -> None:
            rows = {f"f{n}": (min(a, b), max(a, b)) for n, (a, b, _) in enumerate(held)}
            lowered = {(min(a, b), max(a, b)): less for a, b, less in held}
            if extremes:
                rows["all null"] = (EMPTY_LOWER, EMPTY_UPPER)
                rows["unknown"] = (UNBOUNDED_LOWER, UNBOUNDED_UPPER)

            def recorded(lower: bytes, upper: bytes) -> int:
                return max(0, level(lower, upper) - lowered.get((lower, upper), 0))

            files = [
                (file_of(name), [FileBounds(1, *pair, None, 10, False)])
                for name, pair in rows.items()
            ]
            with patch("lakehouse_source.catalog.sql.records.level", recorded):
                dataset = commit(catalog, files, uri=f"file:///{uuid4()}")
            if looked_up:  # so many ranges that their files are found first, each in the index
                wanted += [(b"\xf0" * 3 + bytes([n]),) * 2 for n in range(9)]
            found = {
                name
                for name, (lower, upper) in rows.items()
                for low, high in wanted
                if (high is None or (low or b"") <= high)
                and (low or b"") <= upper
                and (high is None or high >= lower)
            }
            search = SearchRanges(1, tuple(KeyRange(*pair) for pair in wanted))
            with patch(
                "lakehouse_source.catalog.sql.search._ROWS_PER_RANGE", 0 if looked_up else 10
            ):
                answer = live(catalog, dataset.id, 1, search)
            # "Up to x" and "from x on" together are every key, those of no value too.
            assert found <= answer <= found | {"all null"}
            if all(None not in ends for ends in wanted):
                assert answer == found

        check()

    def test_one_condition_with_ten_thousand_ranges(self, catalog: Catalog) -> None:
        dataset = commit(
            catalog, [(file_of(f"f{n}"), [bound(1, n * 10, n * 10 + 4)]) for n in range(200)]
        )
        even = point(1, *range(0, 20_000, 2))
        gaps = point(1, *range(5, 20_000, 10), *range(-10_000, 0))
        assert len(live(catalog, dataset.id, 1, even)) == 200
        assert live(catalog, dataset.id, 1, gaps) == set()
        both = SearchAll((even, point(1, 33, 42)))
        assert live(catalog, dataset.id, 1, both) == {"f3", "f4"}

    def test_conditions_with_very_many_terms(self, catalog: Catalog) -> None:
        dataset = commit(
            catalog, [(file_of(f"f{n}"), [bound(c, n, n) for c in (1, 2)]) for n in range(20)]
        )
        either = SearchAny(tuple(SearchAll((point(1, n % 7), point(2, n % 7))) for n in range(700)))
        assert live(catalog, dataset.id, 1, either) == {f"f{n}" for n in range(7)}
        every = SearchAll(tuple(SearchRanges(1, (KeyRange(key(0), None),)) for _ in range(700)))
        assert len(live(catalog, dataset.id, 1, every)) == 20

    def test_a_condition_that_many_terms_share_is_looked_up_once(self, catalog: Catalog) -> None:
        """Pairs of a key of two columns: three queries for each of them became one."""
        dataset = commit(
            catalog, [(file_of(f"f{n}"), [bound(1, 0, 9), bound(2, n, n)]) for n in range(30)]
        )
        pairs = SearchAny(tuple(SearchAll((point(1, 5), point(2, n))) for n in range(20)))
        with catalog.read() as reader:
            session = type(reader._session)
            with patch.object(session, "query", autospec=True, side_effect=session.query) as asked:
                found = paths(reader.files(dataset.id, 1, pairs))
        assert set(found) == {f"f{n}" for n in range(20)}
        assert asked.call_count < 2 * 20

    def test_an_and_of_conditions_that_many_files_match(self, catalog: Catalog) -> None:
        files = [(file_of(f"f{n}"), [bound(1, 0, n), bound(2, n, 5000)]) for n in range(2500)]
        dataset = commit(catalog, files)
        low = SearchRanges(1, (KeyRange(key(1000), None),))
        high = SearchRanges(2, (KeyRange(None, key(1999)),))
        listed = point(2, *range(1900, 2000))
        for few in ((1000, 20_000), (1000,), (10, 2000), (1,)):
            with patch("lakehouse_source.catalog.sql.search._FEW_FILES", few):
                found = live(catalog, dataset.id, 1, SearchAll((low, high)))
                assert found == {f"f{n}" for n in range(1000, 2000)}
                found = live(catalog, dataset.id, 1, SearchAll((low, high, point(1, 1998))))
                assert found == {"f1998", "f1999"}
                found = live(catalog, dataset.id, 1, SearchAll((low, listed)))
                assert found == {f"f{n}" for n in range(1000, 2000)}
                either = SearchAny((point(1, 2499), point(2, 2400)))
                found = live(catalog, dataset.id, 1, SearchAll((low, high, either)))
                assert found == {f"f{n}" for n in range(1000, 2000)}

    def test_two_datasets_with_equal_column_ids_do_not_mix(self, catalog: Catalog) -> None:
        """DuckLake #867: another table's statistics were used."""
        one = commit(catalog, [(file_of("one"), [bound(1, 1, 1), bound(2, 1, 1)])])
        two = commit(catalog, [(file_of("two"), [bound(1, 1, 1)])], uri="file:///two")
        for search in (point(1, 1), point(1, *range(1, 100, 2)), SearchAll((point(1, 1),))):
            assert live(catalog, one.id, 1, search) == {"one"}
            assert live(catalog, two.id, 1, search) == {"two"}

    def test_a_column_whose_encoding_changed_is_unbounded(self, catalog: Catalog) -> None:
        dataset = commit(
            catalog,
            [(file_of("a"), [bound(1, 1, 1), bound(2, 1, 1)]), (file_of("b"), [bound(2, 9, 9)])],
        )
        with catalog.write() as transaction:
            transaction.invalidate_bounds(dataset.id, 1)
        assert live(catalog, dataset.id, 1, point(1, 777)) == {"a"}
        assert live(catalog, dataset.id, 1, SearchRanges(1, (KeyRange(None, b""),))) == {"a"}
        assert live(catalog, dataset.id, 1, point(2, 777)) == set()

    # --- expiry

    def test_expired_versions_leave_files_that_nobody_can_read(self, catalog: Catalog) -> None:
        dataset = commit(catalog, [(file_of("a"), []), (file_of("b"), [])])
        with catalog.read() as reader:
            ids = {file.path: file.id for file in reader.files(dataset.id, 1)}
        commit(catalog, remove=[ids["a"]])
        commit(catalog, remove=[ids["b"]])
        with catalog.write() as transaction:
            transaction.expire(dataset.id, 2)
            now = transaction.now()
        with catalog.read() as reader:
            record = reader.dataset(URI)
            assert record is not None
            assert record.oldest_version == 2
            (expired,) = reader.expired_files(record)
            assert (expired.id, expired.path, expired.size_bytes) == (ids["a"], "a", 1000)
            assert abs(now - expired.expired_at) < timedelta(seconds=10)
            assert reader.paths(record) == ({"b"}, {"a", "b"})

    def test_the_oldest_version_never_goes_back(self, catalog: Catalog) -> None:
        for _ in range(3):
            dataset = commit(catalog)
        for oldest in (3, 1, 2):
            with catalog.write() as transaction:
                transaction.expire(dataset.id, oldest)
        with catalog.read() as reader:
            record = reader.dataset(URI)
            assert record is not None
            assert record.oldest_version == 3

    def test_the_time_of_expiry_is_the_first_one(
        self, catalog: Catalog, plant: Callable[[str], None]
    ) -> None:
        dataset = commit(catalog, [(file_of("a"), [])])
        with catalog.read() as reader:
            (file,) = reader.files(dataset.id, 1)
        commit(catalog, remove=[file.id])
        commit(catalog)
        with catalog.write() as transaction:
            transaction.expire(dataset.id, 2)
        plant("UPDATE files SET expired_at = 7")
        with catalog.write() as transaction:
            transaction.expire(dataset.id, 3)
        with catalog.read() as reader:
            record = reader.dataset(URI)
            assert record is not None
            (expired,) = reader.expired_files(record)
            assert expired.expired_at == datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(
                microseconds=7
            )

    def test_forgotten_files_leave_no_row(self, catalog: Catalog) -> None:
        file = file_of("a", groups=2, partitions={"k": "1"})
        dataset = commit(catalog, [(file, [bound(1, 1, 2)]), (file_of("b"), [bound(1, 1, 2)])])
        with catalog.read() as reader:
            ids = {file.path: file.id for file in reader.files(dataset.id, 1)}
        with catalog.write() as transaction:
            transaction.forget_files([ids["a"], 10**9])
            transaction.forget_files([])
        with catalog.read() as reader:
            assert paths(reader.files(dataset.id, 1)) == ["b"]
            assert reader.row_groups([ids["a"]]) == {ids["a"]: []}
            assert paths(reader.files(dataset.id, 1, point(1, 1))) == ["b"]

    # --- abandoned writes

    def test_a_silent_write_is_abandoned_and_may_come_back(
        self, catalog: Catalog, plant: Callable[[str], None]
    ) -> None:
        dataset = commit(catalog, write_id="done")
        with catalog.write() as transaction:
            transaction.register_pending("silent", dataset.id)
            transaction.register_pending("lively", dataset.id)
            assert transaction.fence_write("closed")
            assert transaction.silent_writes(3600) == {}
        plant("UPDATE pending_writes SET heartbeat_at = 1 WHERE write_id <> 'lively'")
        with catalog.write() as transaction:
            assert transaction.silent_writes(3600) == {"silent": WriteState.PENDING}
            transaction.mark_abandoned(3600)
        everybody = ["silent", "lively", "closed", "done", "unheard"]
        with catalog.write() as transaction:
            states = transaction.write_states(everybody)
            assert {name: found.state for name, found in states.items()} == {
                "silent": WriteState.ABANDONED, "lively": WriteState.PENDING,
                "closed": WriteState.FENCED, "done": WriteState.COMMITTED,
            }  # fmt: skip
            assert states["done"].dataset_id == states["silent"].dataset_id == dataset.id
            assert transaction.silent_writes(3600) == {"silent": WriteState.ABANDONED}
            assert transaction.heartbeat("silent")
            assert transaction.silent_writes(3600) == {}
            assert transaction.write_states(["silent"])["silent"].state is WriteState.PENDING
            assert not transaction.heartbeat("closed")

    def test_an_abandoned_write_can_commit_until_it_is_fenced(self, catalog: Catalog) -> None:
        dataset = commit(catalog)
        for name in ("late", "too late"):
            with catalog.write() as transaction:
                transaction.register_pending(name, dataset.id)
                transaction.mark_abandoned(-1)
        with catalog.write() as transaction:
            assert transaction.fence_write("too late")
        commit(catalog, write_id="late")
        with pytest.raises(CommitConflictError, match="given up"):
            commit(catalog, write_id="too late")
        with catalog.read() as reader:
            states = reader.write_states(["late", "too late"])
        assert [found.state for found in states.values()] == [
            WriteState.COMMITTED, WriteState.FENCED,
        ]  # fmt: skip

    # --- format

    def take_back_to_format(self, number: int, url: str, plant: Callable[[str], None]) -> None:
        """Undo what later formats add to the tables of a catalog. For the formats 3 to 12."""
        idle_connections.close_all()
        plant("DROP TABLE catalog_leases")
        plant("DROP TABLE identity_lanes")
        if number == 12:
            plant("UPDATE catalog_format SET version = 12")
            return
        plant("DROP TABLE dataset_clones")
        if number == 11:
            plant("UPDATE catalog_format SET version = 11")
            return
        plant("ALTER TABLE pending_writes DROP COLUMN login")
        if number == 10:
            plant("UPDATE catalog_format SET version = 10")
            return
        for table, columns in COLUMNS_NEW_IN_FORMAT_10.items():
            for column in columns if number >= 6 or table != "deletion_vectors" else ():
                plant(f"ALTER TABLE {table} DROP COLUMN {column}")
        added = (
            *NEW_IN_FORMAT_10,
            *(NEW_IN_FORMAT_8 if number < 8 else ()),
            *(NEW_IN_FORMAT_7 if number < 7 else ()),
        )
        for table in added:
            plant(f"DROP TABLE {table}")
        if number < 7:
            plant("ALTER TABLE datasets DROP COLUMN dropped_at")
        if number < 6:
            plant("DROP TABLE deletion_vectors")
            plant("ALTER TABLE files DROP COLUMN first_row_id")
            plant("ALTER TABLE datasets DROP COLUMN next_row_id")
        plant(f"UPDATE catalog_format SET version = {number}")

    def test_a_catalog_of_the_first_format_is_brought_up_to_date(
        self, url: str, plant: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(migrations, "LATEST", 1)
            with open_catalog(url) as old, old.read():
                pass
        plant(
            "INSERT INTO datasets (id, name, base_uri, current_version) "
            f"VALUES (1000, 'flights', '{URI}', 0)"
        )
        plant(
            "INSERT INTO files (id, dataset_id, version, schema_version, file_path, "
            "file_size_bytes, row_count) VALUES (1000, 1000, 1, 1, 'old', 1, 1)"
        )
        with open_catalog(url) as catalog:
            with catalog.read() as reader:
                record = reader.dataset(URI)
                assert record is not None
                assert record.oldest_version == 1
                assert paths(reader.files(1000, 1)) == ["old"]
                assert reader.expired_files(record) == []
            commit(catalog)
        with open_catalog(url) as catalog, catalog.read() as reader:
            assert len(reader.transactions(1000)) == 1

    @pytest.mark.one_catalog
    def test_a_catalog_of_the_third_format_stays_readable_and_its_readers_are_refused(
        self, url: str, plant: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """They would take the values of a renamed partition column for NULL."""
        with open_catalog(url) as old:
            dataset = commit(old, [(file_of("a"), [])])
        self.take_back_to_format(3, url, plant)
        with open_catalog(url) as catalog, catalog.read() as reader:
            assert paths(reader.files(dataset.id, 1)) == ["a"]
        with refused_in_release(3, monkeypatch), open_catalog(url) as old, old.read():
            pass

    @pytest.mark.one_catalog
    def test_a_catalog_of_the_fourth_format_stays_readable_and_its_readers_are_refused(
        self,
        url: str,
        plant: Callable[[str], None],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """They would show NULL where a column that a file lacks has a default."""
        uri = str(tmp_path / "data")
        lake.write_dataset(pa.table({"a": [1]}), uri, catalog=url)
        before = lake.open_dataset(uri, catalog=url)
        before.add_column("b", pa.int64())
        schema = before.schema
        self.take_back_to_format(4, url, plant)
        dataset = lake.open_dataset(uri, catalog=url)
        assert dataset.schema == schema
        assert dataset.version == 2
        assert dataset.scan().to_table().to_pylist() == [{"a": 1, "b": None}]
        dataset.add_column("c", pa.int64(), default=5)
        assert dataset.scan().to_table().to_pylist() == [{"a": 1, "b": None, "c": 5}]
        with refused_in_release(4, monkeypatch):
            lake.read_dataset(uri, catalog=url)

    @pytest.mark.one_catalog
    def test_rows_of_the_fifth_format_get_identities_and_its_readers_are_refused(
        self,
        url: str,
        plant: Callable[[str], None],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """They would show rows that a deletion vector deletes."""
        uri = str(tmp_path / "data")
        lake.write_dataset(pa.table({"a": [1, 2]}), uri, catalog=url)
        lake.write_dataset(pa.table({"a": [3]}), uri, catalog=url, mode="overwrite")
        lake.write_dataset(pa.table({"b": [7]}), tmp_path / "other", catalog=url)
        lake.open_dataset(uri, catalog=url).restore(1)  # the first file has two rows in `files`
        self.take_back_to_format(5, url, plant)
        for owner in tmp_path.glob("*/_plake/owner-*"):  # that release knew of none
            owner.unlink()
        dataset = lake.open_dataset(uri, catalog=url)

        def ids(version: int | None = None) -> list[tuple[int, int]]:
            scan = dataset.scan(columns=["a", "_row_id"], version=version)
            return sorted((row["a"], row["_row_id"]) for row in scan.to_table().to_pylist())

        assert ids(1) == ids(3) == ids() == [(1, 0), (2, 1)]
        assert ids(2) == [(3, 2)]
        lake.write_dataset(pa.table({"a": [4]}), uri, catalog=url)
        dataset.refresh()
        assert ids() == [(1, 0), (2, 1), (4, 3)]
        other = lake.open_dataset(tmp_path / "other", catalog=url)
        assert other.scan(columns=["_row_id"]).to_table().to_pylist() == [{"_row_id": 0}]
        with refused_in_release(5, monkeypatch):
            lake.read_dataset(uri, catalog=url)

    @pytest.mark.one_catalog
    def test_datasets_of_the_sixth_format_can_get_names_and_its_readers_are_refused(
        self,
        url: str,
        plant: Callable[[str], None],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """They would ignore tags, and read old versions with the newest partition columns."""
        uri = str(tmp_path / "data")
        lake.write_dataset(pa.table({"a": [1, 2]}), uri, catalog=url)
        lake.open_dataset(uri, catalog=url).delete("a = 1")
        self.take_back_to_format(6, url, plant)
        with lake.open_catalog(url) as catalog:
            assert catalog.datasets() == []
            catalog.register("things", uri)
            assert catalog.dataset("things").scan().to_table().to_pylist() == [{"a": 2}]
        with refused_in_release(6, monkeypatch):
            lake.read_dataset(uri, catalog=url)

    @pytest.mark.one_catalog
    def test_datasets_of_the_seventh_format_can_get_branches_and_its_readers_are_refused(
        self,
        url: str,
        plant: Callable[[str], None],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Their vacuum would delete the files of branches."""
        uri = str(tmp_path / "data")
        lake.write_dataset(pa.table({"a": [1, 2]}), uri, catalog=url)
        lake.open_dataset(uri, catalog=url).tag("first")
        self.take_back_to_format(7, url, plant)
        dataset = lake.open_dataset(uri, catalog=url)
        branch = dataset.branch("audit")
        lake.write_dataset(pa.table({"a": [3]}), branch.uri, catalog=url)
        assert dataset.branches() == {"audit": 2}
        assert dataset.tags() == {"first": 1}
        with refused_in_release(7, monkeypatch):
            lake.read_dataset(uri, catalog=url)

    @pytest.mark.one_catalog
    def test_a_catalog_of_the_eighth_format_stays_readable_and_its_writers_are_refused(
        self,
        url: str,
        plant: Callable[[str], None],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """They would miss conflicts with commits that a vacuum has forgotten."""
        uri = str(tmp_path / "data")
        for number in range(3):
            lake.write_dataset(pa.table({"a": [number]}), uri, catalog=url)
        self.take_back_to_format(8, url, plant)
        dataset = lake.open_dataset(uri, catalog=url)
        assert [record.version for record in dataset.history()] == [3, 2, 1]
        dataset.compact()
        dataset.expire_versions(keep_last=1)
        dataset.vacuum(retention_seconds=0, allow_short_retention=True)
        assert [record.version for record in dataset.history()] == [4, 1]
        with refused_in_release(8, monkeypatch):
            lake.write_dataset(pa.table({"a": [3]}), uri, catalog=url)

    @pytest.mark.one_catalog
    def test_a_catalog_of_the_ninth_format_stays_readable_and_its_writers_are_refused(
        self,
        url: str,
        plant: Callable[[str], None],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """They would record files without what later readers check them by."""
        uri = str(tmp_path / "data")
        lake.write_dataset(pa.table({"a": [1, 2]}), uri, catalog=url)
        lake.open_dataset(uri, catalog=url).delete("a = 1")
        self.take_back_to_format(9, url, plant)
        dataset = lake.open_dataset(uri, catalog=url)
        assert [record.version for record in dataset.history()] == [2, 1]
        lake.write_dataset(pa.table({"a": [3]}), uri, catalog=url)
        assert sorted(dataset.refresh().scan().to_table()["a"].to_pylist()) == [2, 3]
        with refused_in_release(9, monkeypatch):
            lake.write_dataset(pa.table({"a": [4]}), uri, catalog=url)

    @pytest.mark.one_catalog
    def test_writes_of_the_tenth_format_can_be_committed_and_its_writers_are_refused(
        self,
        url: str,
        plant: Callable[[str], None],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """They would write to a catalog that was fenced when it was copied."""
        uri = str(tmp_path / "data")
        lake.write_dataset(pa.table({"a": [1]}), uri, catalog=url)
        plant("INSERT INTO pending_writes (write_id, dataset_id) SELECT 'w', id FROM datasets")
        self.take_back_to_format(10, url, plant)
        with open_catalog(url) as catalog, catalog.write() as transaction:
            assert transaction.heartbeat("w")
        lake.write_dataset(pa.table({"a": [2]}), uri, catalog=url)
        with refused_in_release(10, monkeypatch):
            lake.write_dataset(pa.table({"a": [3]}), uri, catalog=url)

    @pytest.mark.one_catalog
    def test_datasets_of_the_eleventh_format_can_be_cloned_and_its_vacuums_are_refused(
        self,
        url: str,
        plant: Callable[[str], None],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """They would delete files that a clone still has."""
        uri = str(tmp_path / "data")
        lake.write_dataset(pa.table({"a": [1, 2]}), uri, catalog=url)
        lake.open_dataset(uri, catalog=url).branch("b")
        self.take_back_to_format(11, url, plant)
        dataset = lake.open_dataset(uri, catalog=url)
        clone = dataset.branch("b").clone(tmp_path / "clone")
        dataset.delete("a = 1")
        assert sorted(clone.scan().to_table()["a"].to_pylist()) == [1, 2]
        with refused_in_release(11, monkeypatch):
            lake.open_dataset(uri, catalog=url).vacuum()

    @pytest.mark.one_catalog
    def test_datasets_of_the_eleventh_format_can_get_constraints_and_its_writers_are_refused(
        self,
        url: str,
        plant: Callable[[str], None],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """They would commit rows that break a constraint."""
        uri = str(tmp_path / "data")
        lake.write_dataset(pa.table({"a": [1]}), uri, catalog=url)
        self.take_back_to_format(11, url, plant)
        lake.open_dataset(uri, catalog=url).add_constraint("positive", "a > 0")
        with pytest.raises(ConstraintViolationError, match="a = 0"):
            lake.write_dataset(pa.table({"a": [0]}), uri, catalog=url)
        with refused_in_release(11, monkeypatch):
            lake.write_dataset(pa.table({"a": [0]}), uri, catalog=url)

    @pytest.mark.one_catalog
    def test_datasets_of_the_twelfth_format_can_be_replaced_with_generated_columns(
        self,
        url: str,
        plant: Callable[[str], None],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Writers of that format would leave the columns empty: they are refused."""
        schema = pa.schema({"a": pa.int64(), "b": pa.int64()})
        with lake.open_catalog(url) as catalog:
            catalog.create_dataset("t", schema, location=tmp_path / "t")
        self.take_back_to_format(12, url, plant)
        with lake.open_catalog(url) as catalog:
            made = catalog.create_dataset("t", schema, replace=True, generated={"b": "a + 1"})
        lake.write_dataset(pa.table({"a": [1]}), made.uri, catalog=url)
        found = lake.open_dataset(made.uri, catalog=url)
        assert found.scan().to_table()["b"].to_pylist() == [2]
        with refused_in_release(12, monkeypatch):
            lake.write_dataset(pa.table({"a": [0]}), made.uri, catalog=url)

    def test_the_search_index_of_the_second_format_is_carried_over(
        self, url: str, plant: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(migrations, "LATEST", 2)
            with open_catalog(url) as old, old.read():
                pass
        plant(
            "INSERT INTO datasets (id, name, base_uri, current_version) "
            f"VALUES (1000, 'flights', '{URI}', 1)"
        )
        draw = random.Random(5)
        texts = [b"", b"a", b"customer-0", b"customer-00", b"\x12\x34", b"\x12\x3f", b"\xff" * 33]
        held = {
            1000 + n: sorted((draw.choice(texts), draw.choice(texts) + draw.randbytes(n % 3)))
            for n in range(60)
        }
        held[1060] = [UNBOUNDED_LOWER, UNBOUNDED_UPPER]
        held[1061] = [EMPTY_LOWER, EMPTY_UPPER]
        blob = "'\\x{}'::bytea" if url.startswith("postgres") else "x'{}'"
        if url.startswith("duckdb"):
            blob = "unhex('{}')"
        files = ", ".join(f"({file_id}, 1000, 1, 1, 'f{file_id}', 1, 1)" for file_id in held)
        plant(
            "INSERT INTO files (id, dataset_id, version, schema_version, file_path, "
            f"file_size_bytes, row_count) VALUES {files}"
        )
        rows = ", ".join(
            f"(1000, 1, {blob.format(upper.hex())}, {blob.format(lower.hex())}, {file_id}, 1, TRUE)"
            for file_id, (lower, upper) in held.items()
        )
        plant(
            "INSERT INTO column_bounds (dataset_id, column_id, upper, lower, file_id, row_count, "
            f"may_contain_nan) VALUES {rows}"
        )
        with open_catalog(url) as catalog:
            with catalog.read() as reader:
                levels = reader._session.query(
                    "SELECT file_id, level FROM column_bounds ORDER BY file_id"
                )
            assert dict(levels) == {
                file_id: digits_in_common(lower, upper) for file_id, (lower, upper) in held.items()
            }
            for low in texts:
                for high in [*texts, None]:
                    search = SearchRanges(1, (KeyRange(low, high),))
                    assert live(catalog, 1000, 1, search) == {
                        f"f{file_id}"
                        for file_id, (lower, upper) in held.items()
                        if low <= upper and (high is None or lower <= high >= low)
                    }
            with catalog.write() as transaction:
                transaction.forget_files([1000])
                transaction.invalidate_bounds(1000, 1)
            everything = {f"f{file_id}" for file_id in held if file_id != 1000}
            assert live(catalog, 1000, 1, point(1, 5)) == everything

    def test_a_catalog_of_a_newer_format_is_refused(
        self, catalog: Catalog, url: str, plant: Callable[[str], None]
    ) -> None:
        commit(catalog)
        plant("UPDATE catalog_format SET version = 99")
        with (
            open_catalog(url) as newer,
            pytest.raises(CatalogUnavailableError, match=r"format 99 .* Upgrade plake"),
            newer.read(),
        ):
            pass

    def test_tables_of_another_program_are_left_alone(
        self, url: str, plant: Callable[[str], None]
    ) -> None:
        plant("CREATE TABLE files (name TEXT)")
        with (
            open_catalog(url) as catalog,
            pytest.raises(CatalogUnavailableError, match=r"not plake's|another program"),
            catalog.write(),
        ):
            pass
        plant("INSERT INTO files VALUES ('mine')")
        with (
            open_catalog(url) as catalog,
            pytest.raises(CatalogUnavailableError),
            catalog.read(),
        ):
            pass

    def test_processes_may_create_the_tables_at_once(self, url: str) -> None:
        barrier = threading.Barrier(4)

        def first_use(_: int) -> int:
            with open_catalog(url) as catalog:
                barrier.wait(30)
                with catalog.read() as reader:
                    return len(reader.datasets())

        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(first_use, range(4))) == [0, 0, 0, 0]

    def test_rows_that_make_no_sense_are_told_as_such(
        self, catalog: Catalog, plant: Callable[[str], None]
    ) -> None:
        dataset = commit(catalog)
        plant("UPDATE transactions SET metadata_json = 'not json'")
        plant("UPDATE datasets SET properties_json = '[1]'")
        plant("UPDATE schema_versions SET arrow_schema = ''")
        with catalog.read() as reader:
            with pytest.raises(CorruptDatasetError, match="JSON"):
                reader.transactions(dataset.id)
            with pytest.raises(CorruptDatasetError, match="not an object"):
                reader.dataset(URI)
            with pytest.raises(CorruptDatasetError, match="schema"):
                reader.schemas(dataset.id)

    # --- the catalog object

    def test_without_create_a_missing_catalog_is_a_missing_dataset(self, url: str) -> None:
        with (
            pytest.raises(DatasetNotFoundError) as caught,
            open_catalog(url, dataset_uri=URI, create=False) as catalog,
            catalog.read(),
        ):
            pass
        assert caught.value.dataset == URI
        with open_catalog(url) as catalog, catalog.read() as reader:
            assert reader.datasets() == []
        with (
            open_catalog(url, dataset_uri=URI, create=False) as catalog,
            catalog.read() as reader,
        ):
            assert reader.dataset(URI) is None

    def test_a_closed_catalog_says_so(self, catalog: Catalog) -> None:
        commit(catalog)
        catalog.close()
        catalog.close()
        with pytest.raises(CatalogUnavailableError, match="closed"), catalog.read():
            pass

    def test_a_catalog_cannot_be_pickled(self, catalog: Catalog) -> None:
        commit(catalog)
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(catalog)

    def test_an_open_catalog_is_taken_as_it_is(self, catalog: Catalog) -> None:
        assert open_catalog(catalog) is catalog

    def test_its_url_opens_it_again(self, catalog: Catalog, url: str) -> None:
        commit(catalog)
        with open_catalog(catalog.url) as again, again.read() as reader:
            assert reader.dataset(URI) is not None
        assert redact(url) == catalog.redacted_url
        assert catalog.redacted_url in repr(catalog)

    def test_a_conflict_is_not_retryable(self, catalog: Catalog) -> None:
        commit(catalog, write_id="same")
        with pytest.raises(CommitConflictError) as caught:
            commit(catalog, write_id="same")
        assert (caught.value.retryable, caught.value.outcome_unknown) == (False, False)

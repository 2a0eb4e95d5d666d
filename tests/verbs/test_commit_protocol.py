"""The order of a commit's steps, which commits conflict, and bugs of other systems in this."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

import lakehouse_source as lake
from lakehouse_source.catalog.sql.writer import CatalogTransaction
from lakehouse_source.language import PredicateSet
from lakehouse_source.model import FileMetadata
from lakehouse_source.parquet.writer import write_files
from lakehouse_source.pruning import bounds
from lakehouse_source.read.address import Address
from lakehouse_source.write.commit import prerecord
from lakehouse_source.write.commit.begin import begin
from lakehouse_source.write.commit.commit import abort, commit, commit_all
from lakehouse_source.write.commit.options import StagedWrite, WriteOptions

pytestmark = pytest.mark.slow


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "things")


def stage(
    catalog: lake.Catalog, uri: str, table: pa.Table, **options: Any
) -> tuple[StagedWrite, list[FileMetadata]]:
    """A write whose files are written and that is not committed."""
    address = Address(uri, catalog)
    if "overwrite_where" in options:
        options["overwrite_where"] = PredicateSet.of(options["overwrite_where"])
    staged = begin(catalog, address, table.schema, WriteOptions(**options))
    return staged, write_files(staged.spec, table.to_batches())


def values(catalog: lake.Catalog, uri: str, column: str = "n", **more: Any) -> list[Any]:
    found = lake.read_dataset(uri, catalog=catalog, **more)[column].to_pylist()
    return sorted(found, key=lambda value: (value is None, value))


def numbers(*ns: int) -> pa.Table:
    return pa.table({"n": pa.array(ns, pa.int64())})


class TestConflictsBetweenRealWrites:
    def test_appends_and_overwrites_are_rebased(self, catalog: lake.Catalog, uri: str) -> None:
        lake.write_dataset(numbers(0), uri, catalog=catalog)
        append = stage(catalog, uri, numbers(1))
        overwrite = stage(catalog, uri, numbers(2), mode="overwrite")
        lake.write_dataset(numbers(3), uri, catalog=catalog)
        assert commit(catalog, *append).version == 3
        assert values(catalog, uri) == [0, 1, 3]
        assert commit(catalog, *overwrite).version == 4
        assert values(catalog, uri) == [2]

    def test_an_overwrite_where_is_rebased_over_rows_that_cannot_match(
        self, catalog: lake.Catalog, uri: str
    ) -> None:
        lake.write_dataset(numbers(1, 2, 3), uri, catalog=catalog)
        mine = stage(catalog, uri, numbers(2), mode="overwrite", overwrite_where="n = 2")
        lake.write_dataset(numbers(10, 20), uri, catalog=catalog)
        assert commit(catalog, *mine).version == 3
        assert values(catalog, uri) == [1, 2, 3, 10, 20]

    @pytest.mark.parametrize("theirs", ["append", "overwrite", "overwrite where", "restore"])
    def test_an_overwrite_where_collides_with_what_it_would_lose(
        self, catalog: lake.Catalog, uri: str, theirs: str
    ) -> None:
        lake.write_dataset(numbers(1, 2, 3), uri, catalog=catalog)
        mine = stage(
            catalog, uri, numbers(2), mode="overwrite", overwrite_where="n BETWEEN 2 AND 5"
        )
        if theirs == "restore":
            lake.open_dataset(uri, catalog=catalog).restore(1)
        else:
            options: dict[str, Any] = {"mode": theirs.split()[0]}
            if theirs == "overwrite where":
                options["overwrite_where"] = "n = 4"
            lake.write_dataset(numbers(4), uri, catalog=catalog, **options)
        before = values(catalog, uri)
        with pytest.raises(lake.CommitConflictError) as caught:
            commit(catalog, *mine)
        assert (caught.value.base_version, caught.value.current_version) == (1, 2)
        assert abort(catalog, *mine)
        assert values(catalog, uri) == before
        # None of its files is left, neither with its rows nor with those that it kept.
        dataset = lake.open_dataset(uri, catalog=catalog)
        known = {file.path for version in (1, 2) for file in dataset.files(version)}
        assert {str(p.relative_to(uri)) for p in Path(uri).rglob("*.parquet")} == known

    @pytest.mark.parametrize("theirs", ["append", "overwrite", "delete"])
    def test_an_overwrite_from_the_dataset_s_own_rows_collides_with_other_rows(
        self, catalog: lake.Catalog, uri: str, theirs: str
    ) -> None:
        lake.write_dataset(numbers(1, 2), uri, catalog=catalog)
        mine = stage(catalog, uri, numbers(10, 20), mode="overwrite", reads_own_rows=True)
        if theirs == "delete":
            lake.open_dataset(uri, catalog=catalog).delete("n = 1")
        else:
            lake.write_dataset(numbers(3), uri, catalog=catalog, mode=theirs)
        before = values(catalog, uri)
        with pytest.raises(lake.CommitConflictError, match="computed from those before it"):
            commit(catalog, *mine)
        assert abort(catalog, *mine)
        assert values(catalog, uri) == before

    def test_an_overwrite_from_the_dataset_s_own_rows_goes_over_commits_that_keep_all_rows(
        self, catalog: lake.Catalog, uri: str
    ) -> None:
        lake.write_dataset(numbers(1), uri, catalog=catalog)
        lake.write_dataset(numbers(2), uri, catalog=catalog)
        mine = stage(catalog, uri, numbers(10, 20), mode="overwrite", reads_own_rows=True)
        dataset = lake.open_dataset(uri, catalog=catalog)
        dataset.compact()
        dataset.add_column("more", pa.string())
        assert commit(catalog, *mine).version == 5
        assert values(catalog, uri) == [10, 20]

    @pytest.mark.parametrize("mode", ["append", "overwrite", "overwrite where"])
    def test_an_expected_version_turns_every_rebase_into_a_conflict(
        self, catalog: lake.Catalog, uri: str, mode: str
    ) -> None:
        lake.write_dataset(numbers(1), uri, catalog=catalog)
        more = {"overwrite_where": "n = 7"} if mode == "overwrite where" else {}
        mine = stage(catalog, uri, numbers(7), mode=mode.split()[0], expected_version=1, **more)
        lake.write_dataset(numbers(2), uri, catalog=catalog)
        with pytest.raises(lake.CommitConflictError, match="version 1 was expected"):
            commit(catalog, *mine)
        assert values(catalog, uri) == [1, 2]

    @pytest.mark.parametrize("mode", ["append", "overwrite"])
    def test_a_file_written_before_a_column_was_added(
        self, catalog: lake.Catalog, uri: str, mode: str
    ) -> None:
        lake.write_dataset(numbers(1), uri, catalog=catalog)
        mine = stage(catalog, uri, numbers(2), mode=mode)
        wider = pa.table({"n": [3], "new": ["x"]})
        lake.write_dataset(wider, uri, catalog=catalog, schema_merge=True)
        commit(catalog, *mine)
        table = lake.read_dataset(uri, catalog=catalog)
        assert table.column_names == ["n", "new"]
        assert values(catalog, uri, predicates="n = 2 AND new IS NULL") == [2]
        found = values(catalog, uri, predicates="new = 'x'")
        assert found == ([3] if mode == "append" else [])

    def test_two_writers_that_add_the_same_column(self, catalog: lake.Catalog, uri: str) -> None:
        """Ids cached by two writers (homer #810): both took the next one."""
        lake.write_dataset(numbers(0), uri, catalog=catalog)
        one = stage(catalog, uri, pa.table({"n": [1], "a": ["x"]}), schema_merge=True)
        two = stage(catalog, uri, pa.table({"n": [2], "b": [2.5]}), schema_merge=True)
        same = stage(catalog, uri, pa.table({"n": [3], "a": ["y"]}), schema_merge=True)
        commit(catalog, *one)
        with pytest.raises(lake.CommitConflictError, match="the schema changed"):
            commit(catalog, *two)
        commit(catalog, *same)
        assert lake.read_dataset(uri, catalog=catalog).sort_by("n").to_pylist() == [
            {"n": 0, "a": None},
            {"n": 1, "a": "x"},
            {"n": 3, "a": "y"},
        ]

    def test_a_file_written_before_its_column_was_promoted(
        self, catalog: lake.Catalog, uri: str
    ) -> None:
        lake.write_dataset(pa.table({"n": pa.array([1], pa.int32())}), uri, catalog=catalog)
        mine = stage(catalog, uri, pa.table({"n": pa.array([2], pa.int32())}))
        lake.write_dataset(numbers(2**40), uri, catalog=catalog, schema_merge=True)
        with pytest.raises(lake.CommitConflictError, match="the schema changed"):
            commit(catalog, *mine)

    def test_a_column_that_a_restore_took_away(self, catalog: lake.Catalog, uri: str) -> None:
        lake.write_dataset(numbers(1), uri, catalog=catalog)
        wider = pa.table({"n": [2], "new": ["x"]})
        lake.write_dataset(wider, uri, catalog=catalog, schema_merge=True)
        mine = stage(catalog, uri, wider)
        lake.open_dataset(uri, catalog=catalog).restore(1)
        with pytest.raises(lake.CommitConflictError, match="the schema changed"):
            commit(catalog, *mine)
        assert values(catalog, uri) == [1]

    def test_two_writers_that_make_one_dataset(self, catalog: lake.Catalog, uri: str) -> None:
        table = pa.table({"n": [1], "k": ["a"]})
        first = stage(catalog, uri, table, partition_by=("k",))
        same = stage(catalog, uri, table, partition_by=("k",))
        other = stage(catalog, uri, table)
        assert commit(catalog, *first).version == 1
        assert commit(catalog, *same).version == 2
        with pytest.raises(lake.CommitConflictError, match="partition columns"):
            commit(catalog, *other)
        assert values(catalog, uri, predicates="k = 'a'") == [1, 1]

    def test_a_delete_and_a_rewrite_of_one_file_are_never_both_committed(
        self, catalog: lake.Catalog, uri: str
    ) -> None:
        """iceberg #10720: deleted rows came back. Both orders."""
        for second_first in (False, True):
            folder = f"{uri}-{second_first}"
            lake.write_dataset(numbers(1, 2, 3), folder, catalog=catalog)
            pair = [
                stage(
                    catalog,
                    folder,
                    numbers(n),
                    mode="overwrite",
                    overwrite_where=f"n = {n}",
                )
                for n in (1, 3)
            ]
            first, second = reversed(pair) if second_first else pair
            commit(catalog, *first)
            with pytest.raises(lake.CommitConflictError):
                commit(catalog, *second)
            assert values(catalog, folder) == [1, 2, 3]


class TestFilesAfterAFailure:
    """Files are deleted when the catalog has fenced their write, and only then."""

    @pytest.mark.parametrize("where", [None, "n >= 2"])
    def test_a_commit_that_fails_deletes_its_files_and_those_with_the_rows_it_kept(
        self, catalog: lake.Catalog, uri: str, where: str | None
    ) -> None:
        lake.write_dataset(numbers(1, 2, 3), uri, catalog=catalog)
        more = {} if where is None else {"mode": "overwrite", "overwrite_where": where}
        mine = stage(catalog, uri, numbers(4), expected_version=1, **more)
        lake.write_dataset(numbers(0), uri, catalog=catalog)
        with pytest.raises(lake.CommitConflictError):
            commit(catalog, *mine)
        assert not (Path(uri) / mine[1][0].path).exists()
        assert len(list(Path(uri).rglob("*.parquet"))) == 2
        with pytest.raises(lake.PlakeError):
            commit(catalog, *mine)
        assert values(catalog, uri) == [0, 1, 2, 3]

    def test_one_write_that_fails_deletes_the_files_of_all(
        self, catalog: lake.Catalog, uri: str
    ) -> None:
        uris = [f"{uri}-{number}" for number in range(3)]
        for one in uris:
            lake.write_dataset(numbers(1), one, catalog=catalog)
        writes = [stage(catalog, one, numbers(2), expected_version=1) for one in uris]
        (Path(uris[1]) / writes[1][1][0].path).unlink()
        with pytest.raises(lake.StorageError, match="not there any more"):
            commit_all(catalog, writes)
        for one in uris:
            assert values(catalog, one) == [1]
            assert len(list(Path(one).rglob("*.parquet"))) == 1

    def test_they_stay_when_the_failure_leaves_the_outcome_open(
        self, catalog: lake.Catalog, uri: str
    ) -> None:
        lake.write_dataset(numbers(1), uri, catalog=catalog)
        staged, files = stage(catalog, uri, numbers(2))
        unknown = lake.CommitUnknownError(dataset=uri, write_id=staged.write_id)
        assert abort(catalog, staged, files, failure=unknown) is False
        assert commit(catalog, staged, files).version == 2
        assert values(catalog, uri) == [1, 2]

    def test_they_stay_when_the_write_was_committed(self, catalog: lake.Catalog, uri: str) -> None:
        mine = stage(catalog, uri, numbers(1))
        commit(catalog, *mine)
        assert abort(catalog, *mine, failure=KeyboardInterrupt()) is False
        assert values(catalog, uri) == [1]


class TestProperties:
    def test_those_of_a_later_release_survive_a_write_that_changes_the_schema(
        self, catalog: lake.Catalog, uri: str
    ) -> None:
        lake.write_dataset(numbers(1), uri, catalog=catalog)
        before = dict(lake.open_dataset(uri, catalog=catalog).properties)
        later = {**before, "clustering": {"by": ["n"]}}
        with catalog.write() as tx:
            tx._session.execute("UPDATE datasets SET properties_json = ?", (json.dumps(later),))
        wider = pa.table({"n": [2], "new": ["x"]})
        lake.write_dataset(wider, uri, catalog=catalog, schema_merge=True)
        after = lake.open_dataset(uri, catalog=catalog).properties
        assert after["clustering"] == {"by": ["n"]}
        assert after["last_field_id"] == before["last_field_id"] + 1
        assert after["indexed_columns"] == [*before["indexed_columns"], after["last_field_id"]]

    def test_a_new_column_never_gets_the_field_id_of_one_that_a_restore_took_away(
        self, catalog: lake.Catalog, uri: str
    ) -> None:
        lake.write_dataset(numbers(1), uri, catalog=catalog)
        lake.write_dataset(
            pa.table({"n": [2], "a": ["x"]}), uri, catalog=catalog, schema_merge=True
        )
        dataset = lake.open_dataset(uri, catalog=catalog)
        dataset.restore(1)
        lake.write_dataset(
            pa.table({"n": [3], "b": [2.5]}), uri, catalog=catalog, schema_merge=True
        )
        assert dataset.refresh().properties["last_field_id"] == 3

    def test_a_value_of_another_type_is_told(self, catalog: lake.Catalog, uri: str) -> None:
        lake.write_dataset(numbers(1), uri, catalog=catalog)
        with catalog.write() as tx:
            tx._session.execute(
                "UPDATE datasets SET properties_json = ?", ('{"indexed_columns": "1"}',)
            )
        with pytest.raises(lake.CorruptDatasetError, match="'indexed_columns' is not a list"):
            lake.open_dataset(uri, catalog=catalog)


class TestIdempotence:
    def test_committing_a_write_twice_answers_the_same(
        self, catalog: lake.Catalog, uri: str
    ) -> None:
        lake.write_dataset(numbers(1, 2), uri, catalog=catalog)
        mine = stage(catalog, uri, numbers(2), mode="overwrite", overwrite_where="n = 2")
        first = commit(catalog, *mine)
        again = commit(catalog, *mine)
        assert (first.version, again.version) == (2, 2)
        dataset = lake.open_dataset(uri, catalog=catalog)
        known = {file.path for version in (1, 2) for file in dataset.files(version)}
        assert {str(p.relative_to(uri)) for p in Path(uri).rglob("*.parquet")} == known
        assert abort(catalog, *mine) is False
        assert values(catalog, uri) == [1, 2]

    def test_a_repeated_pair_answers_even_where_the_version_moved_on(
        self, catalog: lake.Catalog, uri: str
    ) -> None:
        pair = {"txn_app_id": "loader", "txn_version": 1}
        lake.write_dataset(numbers(1), uri, catalog=catalog, mode="error", **pair)
        lake.write_dataset(numbers(2), uri, catalog=catalog)
        for more in ({"mode": "error"}, {"expected_version": 0}):
            again = lake.write_dataset(numbers(1), uri, catalog=catalog, **more, **pair)
            assert again.version == 1
        assert values(catalog, uri) == [1, 2]
        assert len(list(Path(uri).rglob("*.parquet"))) == 2

    def test_only_files_of_the_attempts_that_were_reported_count(
        self, catalog: lake.Catalog, uri: str
    ) -> None:
        """Speculative and retried tasks (SPARK-24552, SPARK-39195) write files of other names."""
        address = Address(uri, catalog)
        table = numbers(1, 2)
        staged = begin(catalog, address, table.schema, WriteOptions())
        reported = write_files(staged.spec, table.to_batches())
        lost = write_files(staged.spec, table.to_batches())
        assert reported[0].path != lost[0].path
        commit(catalog, staged, reported)
        assert values(catalog, uri) == [1, 2]
        # The other attempt's file belongs to no version; vacuum knows it by its name.
        assert os.path.basename(lost[0].path).startswith(staged.write_id)
        dataset = lake.open_dataset(uri, catalog=catalog)
        dataset.vacuum(retention_seconds=0, allow_short_retention=True)
        assert [p.name for p in Path(uri).rglob("*.parquet")] == [reported[0].path]


class TestRestore:
    def test_rows_are_found_after_a_restore_across_a_promotion(
        self, catalog: lake.Catalog, uri: str
    ) -> None:
        """Keys of the old encoding were written for a column of the new one."""
        lake.write_dataset(pa.table({"a": pa.array([5], pa.int32())}), uri, catalog=catalog)
        wide = pa.table({"a": pa.array(["7.50"]).cast(pa.decimal128(20, 2))})
        lake.write_dataset(wide, uri, catalog=catalog, schema_merge=True)
        lake.write_dataset(wide, uri, catalog=catalog, mode="overwrite")
        dataset = lake.open_dataset(uri, catalog=catalog)
        dataset.restore(2)
        for condition, count in (("a > 4", 2), ("a = 5", 1), ("a < 6", 1), ("a > 7", 1)):
            found = lake.read_dataset(uri, catalog=catalog, predicates=condition)
            assert found.num_rows == count, condition
        dataset.restore(1)
        assert lake.read_dataset(uri, catalog=catalog, predicates="a = 5").num_rows == 1


class TestOrderOfEvents:
    def test_nothing_is_worked_out_while_others_wait(
        self, catalog: lake.Catalog, uri: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lake.write_dataset(numbers(0), uri, catalog=catalog)
        locked: list[bool] = []
        lock = CatalogTransaction.lock_for
        file_bounds = bounds.file_bounds

        def locking(self: CatalogTransaction, *arguments: Any) -> Any:
            locked.append(True)
            return lock(self, *arguments)

        def counting(*arguments: Any) -> Any:
            assert not locked
            return file_bounds(*arguments)

        monkeypatch.setattr(CatalogTransaction, "lock_for", locking)
        monkeypatch.setattr(bounds, "file_bounds", counting)
        mine = stage(catalog, uri, numbers(1))
        commit(catalog, *mine)
        assert locked
        assert values(catalog, uri, predicates="n = 1") == [1]

    def test_a_clock_a_day_off_changes_nothing(
        self, catalog: lake.Catalog, uri: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """delta #2532: versions were ordered by the clocks of writers."""
        lake.write_dataset(numbers(1), uri, catalog=catalog)
        real = time.time_ns
        for days in (-1, 1):
            offset = days * 86_400 * 10**9
            monkeypatch.setattr(time, "time_ns", lambda offset=offset: real() + offset)
            monkeypatch.setattr(time, "time", lambda offset=offset: (real() + offset) / 1e9)
            lake.write_dataset(numbers(2), uri, catalog=catalog)
            monkeypatch.undo()
        history = list(lake.open_dataset(uri, catalog=catalog).history())
        stamps = [record.timestamp for record in history]
        assert stamps == sorted(stamps, reverse=True)
        assert max(stamps) - min(stamps) < timedelta(minutes=5)
        assert abs(datetime.now(timezone.utc) - stamps[0]) < timedelta(minutes=5)

    def test_a_failed_commit_tells_its_own_error_when_giving_up_fails_too(
        self, catalog: lake.Catalog, uri: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lake.write_dataset(numbers(1), uri, catalog=catalog)

        def unavailable(*_: Any) -> bool:
            raise lake.CatalogUnavailableError(catalog="it", reason="is gone")

        monkeypatch.setattr(CatalogTransaction, "fence_write", unavailable)
        with pytest.raises(lake.InvalidOptionError, match="JSON"):
            lake.write_dataset(numbers(2), uri, catalog=catalog, commit_metadata={"bad": {1}})
        # The catalog did not say that the write is not committed: its file stays for vacuum.
        assert len(list(Path(uri).rglob("*.parquet"))) == 2


class TestStreamsOfSmallCommits:
    @pytest.fixture
    def begun(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """The ids of the writes that were registered, in order."""
        seen: list[str] = []
        register = CatalogTransaction.register_pending

        def recorded(self: CatalogTransaction, write_id: str, dataset_id: int) -> None:
            seen.append(write_id)
            register(self, write_id, dataset_id)

        monkeypatch.setattr(CatalogTransaction, "register_pending", recorded)
        return seen

    def transactions(self, catalog: lake.Catalog, work: Callable[[], object]) -> int:
        """How many database transactions of `work` change the catalog."""
        kind = type(catalog.database)
        count = 0
        original = kind._commit  # type: ignore[attr-defined]

        def counted(self: Any, *arguments: Any) -> None:
            nonlocal count
            count += 1
            original(self, *arguments)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kind, "_commit", counted)
            work()
        return count

    def test_a_commit_of_a_stream_is_one_transaction(
        self, catalog: lake.Catalog, uri: str, begun: list[str]
    ) -> None:
        def append() -> object:
            return lake.write_dataset(numbers(1), uri, catalog=catalog)

        counts = [self.transactions(catalog, append) for _ in range(20)]
        assert counts[1:9] == [2] * 8  # the first one makes the folder the catalog's own
        assert counts[-5:] == [1] * 5
        history = lake.open_dataset(uri, catalog=catalog).history()
        assert {record.write_id for record in history} <= set(begun)
        with catalog.write() as tx:
            assert [*tx.silent_writes(-1)] == begun[-1:]

    def test_a_commit_of_two_datasets_is_one_transaction_too(
        self, catalog: lake.Catalog, uri: str
    ) -> None:
        def append() -> object:
            with lake.transaction(catalog) as tx:
                tx.write(numbers(1), f"{uri}-a")
                tx.write(numbers(1), f"{uri}-b")
            return tx.results

        counts = [self.transactions(catalog, append) for _ in range(20)]
        assert counts[1:9] == [3] * 8
        assert counts[-5:] == [1] * 5
        assert len(values(catalog, f"{uri}-b")) == 20
        pending = "SELECT count(*) FROM pending_writes WHERE state = 'pending'"
        with catalog.read() as reader:
            assert reader._session.query(pending) == [(2,)]

    @pytest.mark.parametrize("why", ["late", "given up", "another process"])
    def test_a_reservation_that_cannot_be_used(
        self,
        catalog: lake.Catalog,
        uri: str,
        begun: list[str],
        why: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        for _ in range(12):
            lake.write_dataset(numbers(1), uri, catalog=catalog)
        reserved = begun[-1]
        if why == "late":
            monkeypatch.setattr(prerecord, "RESERVED_SECONDS", -1.0)
        elif why == "given up":
            with catalog.write() as tx:
                assert tx.fence_write(reserved)
        else:
            monkeypatch.setattr(prerecord, "_process", -1)
        lake.write_dataset(numbers(2), uri, catalog=catalog)
        last = lake.open_dataset(uri, catalog=catalog).history()[0]
        assert (last.version, last.write_id != reserved) == (13, True)
        if why == "late":
            with catalog.write() as tx:
                assert reserved not in tx.silent_writes(-1)

    def test_threads_of_one_catalog_reserve_no_more_than_they_use(
        self, catalog: lake.Catalog, uri: str
    ) -> None:
        lake.write_dataset(numbers(0), uri, catalog=catalog)

        def append(_: int) -> None:
            lake.write_dataset(numbers(1), uri, catalog=catalog)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(append, range(60)))
        with catalog.write() as tx:
            assert len(tx.silent_writes(-1)) <= 4
        assert lake.open_dataset(uri, catalog=catalog).version == 61

    def test_a_write_that_is_refused_leaves_the_reservation_to_the_next(
        self, catalog: lake.Catalog, uri: str, begun: list[str]
    ) -> None:
        for _ in range(12):
            lake.write_dataset(numbers(1), uri, catalog=catalog)
        reserved = begun[-1]
        with pytest.raises(lake.SchemaMismatchError):
            lake.write_dataset(pa.table({"n": ["text"]}), uri, catalog=catalog)
        lake.write_dataset(numbers(2), uri, catalog=catalog)
        assert lake.open_dataset(uri, catalog=catalog).history()[0].write_id == reserved


class TestBeginsOfStatements:
    """Spark begins statements in one process, and commits them in another."""

    def start(self, catalog: lake.Catalog, uri: str, n: int) -> tuple[StagedWrite, pa.Table, bool]:
        """Begin a statement; tell whether it changed the catalog."""
        table = numbers(n)
        with lake.open_catalog(catalog.url) as own, pytest.MonkeyPatch.context() as patch:
            done: list[str] = []
            kind = type(own.database)
            original = kind._commit  # type: ignore[attr-defined]

            def noted(self: Any, *arguments: Any) -> None:
                done.append("committed")
                original(self, *arguments)

            patch.setattr(kind, "_commit", noted)
            staged = begin(own, Address(uri, own), table.schema, WriteOptions(), ahead=True)
        return staged, table, bool(done)

    def end(self, catalog: lake.Catalog, staged: StagedWrite, table: pa.Table) -> None:
        with lake.open_catalog(catalog.url) as own:
            commit(own, staged, write_files(staged.spec, table.to_batches()))

    def pending(self, catalog: lake.Catalog) -> set[str]:
        with catalog.read() as reader:
            return set(reader.silent_writes(-1))

    @pytest.fixture(autouse=True)
    def patient(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """However long a step takes here, the statements follow one another closely."""
        monkeypatch.setattr(prerecord, "STREAM_SECONDS", 60.0)
        monkeypatch.setattr(prerecord, "RESERVED_SECONDS", 60.0)

    def test_one_of_nine_registers(self, catalog: lake.Catalog, uri: str) -> None:
        lake.write_dataset(numbers(-1), uri, catalog=catalog)
        registers, seen = [], set()
        for n in range(14):
            staged, table, changed = self.start(catalog, uri, n)
            # Vacuum leaves the files of a registered write alone: it is, before the first byte.
            assert staged.write_id in self.pending(catalog)
            registers.append(changed)
            seen.add(staged.write_id)
            self.end(catalog, staged, table)
            assert staged.write_id not in self.pending(catalog)
        assert registers == [True] * 4 + [False] * 8 + [True] + [False]
        assert len(seen) == 14
        assert values(catalog, uri) == list(range(-1, 14))

    def test_statements_that_are_far_apart_register_themselves_only(
        self, catalog: lake.Catalog, uri: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(prerecord, "STREAM_SECONDS", 0.0)
        lake.write_dataset(numbers(-1), uri, catalog=catalog)
        for n in range(6):
            assert self.start(catalog, uri, n)[2]
        assert len(self.pending(catalog)) == 6

    def test_no_two_of_many_threads_get_the_same_write(
        self, catalog: lake.Catalog, uri: str
    ) -> None:
        lake.write_dataset(numbers(-1), uri, catalog=catalog)

        def begun(n: int) -> str:
            address = Address(uri, catalog)
            schema = numbers(n).schema
            return begin(catalog, address, schema, WriteOptions(), ahead=True).write_id

        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(begun, range(40)))
        assert len(set(found)) == 40
        assert set(found) <= self.pending(catalog)

    @pytest.mark.parametrize("why", ["late", "given up", "dropped", "another process"])
    def test_a_registration_that_cannot_be_used(
        self, catalog: lake.Catalog, uri: str, why: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lake.write_dataset(numbers(-1), uri, catalog=catalog)
        begun = {self.start(catalog, uri, n)[0].write_id for n in range(4)}
        ahead = self.pending(catalog) - begun
        assert len(ahead) == 8
        if why == "late":
            monkeypatch.setattr(prerecord, "RESERVED_SECONDS", -1.0)
        elif why == "given up":
            with catalog.write() as tx:
                assert all(tx.fence_write(one) for one in ahead)
        elif why == "dropped":
            with catalog.write() as tx:
                for one in ahead:
                    tx.finish_pending(one)
        else:
            monkeypatch.setattr(prerecord, "_process", -1)
        staged, table, changed = self.start(catalog, uri, 9)
        assert changed
        assert staged.write_id not in ahead
        self.end(catalog, staged, table)
        assert values(catalog, uri) == [-1, 9]
        if why == "late":
            assert not ahead & self.pending(catalog)

    def test_a_statement_that_is_refused_leaves_its_registration_to_the_next(
        self, catalog: lake.Catalog, uri: str
    ) -> None:
        lake.write_dataset(numbers(-1), uri, catalog=catalog)
        begun = {self.start(catalog, uri, n)[0].write_id for n in range(4)}
        ahead = self.pending(catalog) - begun
        wrong = pa.schema([("n", pa.string())])
        with pytest.raises(lake.SchemaMismatchError):
            begin(catalog, Address(uri, catalog), wrong, WriteOptions(), ahead=True)
        taken = {self.start(catalog, uri, n)[0].write_id for n in range(8)}
        assert taken == ahead


class TestErrorsOfPostgres:
    """SQLSTATE decides whether to retry, not English error texts (ducklake #1311)."""

    @pytest.mark.parametrize(
        ("state", "retryable"),
        [("40001", True), ("40P01", True), ("08006", True), ("57P01", True), ("23505", False)],
    )
    def test_by_sqlstate(self, postgres_server: Any, state: str, retryable: bool) -> None:
        error = psycopg.errors.lookup(state)("Schlüsselwert verletzt Unique-Constraint")
        with lake.open_catalog(postgres_server.url()) as catalog:
            assert catalog.database._translate(error).retryable is retryable  # type: ignore[attr-defined]

    def test_a_commit_is_repeated_under_another_language(
        self, postgres_server: Any, uri: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        url = postgres_server.fresh_database()
        name = url.rpartition("@/")[2].partition("?")[0]
        postgres_server.run(f"ALTER DATABASE {name} SET lc_messages = 'C'")
        failures = iter(["40001", "40P01"])
        insert = CatalogTransaction.insert_transaction

        def failing(self: CatalogTransaction, *arguments: Any, **more: Any) -> Any:
            state = next(failures, None)
            if state is not None:
                self._session.execute(
                    f"DO $$ BEGIN RAISE EXCEPTION 'konnte nicht' USING ERRCODE = '{state}'; END $$"
                )
            return insert(self, *arguments, **more)

        monkeypatch.setattr(CatalogTransaction, "insert_transaction", failing)
        with lake.open_catalog(url) as catalog:
            assert lake.write_dataset(numbers(1), uri, catalog=catalog).version == 1
            assert values(catalog, uri) == [1]
        assert next(failures, None) is None

    def test_a_registered_write_begins_though_its_connection_was_lost(
        self, postgres_server: Any, uri: str
    ) -> None:
        url = postgres_server.fresh_database()
        name = url.rpartition("@/")[2].partition("?")[0]
        with lake.open_catalog(url) as catalog:
            for _ in range(12):
                lake.write_dataset(numbers(1), uri, catalog=catalog)
            postgres_server.run(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
                f"WHERE datname = '{name}' AND pid <> pg_backend_pid()"
            )
            assert lake.write_dataset(numbers(2), uri, catalog=catalog).version == 13
            assert values(catalog, uri) == [1] * 12 + [2]

    def test_a_commit_that_waited_for_the_lock_sees_what_came_first(
        self, postgres_server: Any, uri: str
    ) -> None:
        """ducklake #1341: REPEATABLE READ, here the database's default, hid newer commits."""
        url = postgres_server.fresh_database()
        name = url.rpartition("@/")[2].partition("?")[0]
        postgres_server.run(
            f"ALTER DATABASE {name} SET default_transaction_isolation = 'repeatable read'"
        )
        with lake.open_catalog(url) as catalog:
            lake.write_dataset(numbers(1), uri, catalog=catalog)
            mine = stage(catalog, uri, numbers(2))
            lake.write_dataset(numbers(3), uri, catalog=catalog)
            assert commit(catalog, *mine).version == 3
            assert values(catalog, uri) == [1, 2, 3]


def test_a_write_never_begins_as_a_read_on_sqlite(tmp_path: Path, uri: str) -> None:
    """ducklake #1309: a read that turned into a write did not wait for the lock."""
    url = f"sqlite://{tmp_path}/c.db"
    begun: list[str] = []
    with lake.open_catalog(url) as catalog:
        lake.write_dataset(numbers(1), uri, catalog=catalog)
        connection = catalog.database._acquire()  # type: ignore[attr-defined]
        connection.set_trace_callback(begun.append)
        catalog.database._release(connection, True)  # type: ignore[attr-defined]
        lake.write_dataset(numbers(2), uri, catalog=catalog)
    writes = [text for text in begun if text.split()[0] in ("INSERT", "UPDATE", "DELETE", "BEGIN")]
    assert writes[0] == "BEGIN IMMEDIATE"
    deferred = [i for i, text in enumerate(writes) if text == "BEGIN"]
    assert all(i + 1 == len(writes) or writes[i + 1].startswith("BEGIN") for i in deferred)

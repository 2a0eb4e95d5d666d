"""Writing, reading and time travel, on both catalogs. The oracle is the source table."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import lakehouse_source as lake
from lakehouse_source.parquet import writer
from lakehouse_source.read.address import Address

pytestmark = [pytest.mark.slow, pytest.mark.one_catalog]

NAN = float("nan")


def sample() -> pa.Table:
    return pa.table(
        {
            "id": pa.array(range(10), pa.int64()),
            "k": pa.array(["a", "b", None, "a", "b", None, "a", "b", "", "é"]),
            "x": pa.array([0.0, NAN, None, -0.0, 4.5, NAN, 6.0, None, 8.0, float("inf")]),
            "st": pa.array([{"p": i, "q": [i, None]} if i % 3 else None for i in range(10)]),
        }
    )


def rows(table: pa.Table) -> list[str]:
    """Rows as a sorted list of texts, in which NaN is equal to NaN."""
    return sorted(repr(row) for row in table.to_pylist())


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "data" / "things")


class TestWriteAndRead:
    def test_what_is_written_is_read(self, uri: str, catalog: lake.Catalog) -> None:
        result = lake.write_dataset(sample(), uri, catalog=catalog)
        assert (result.version, result.row_count, result.files) == (1, 10, 1)
        assert result.metadata[0].parquet_metadata.num_rows == 10
        assert result.metadata[0].row_groups[0].row_count == 10
        table = lake.read_dataset(uri, catalog=catalog)
        assert table.schema == sample().schema
        assert rows(table) == rows(sample())

    def test_append_adds_and_overwrite_replaces(self, uri: str, catalog: lake.Catalog) -> None:
        lake.write_dataset(sample(), uri, catalog=catalog)
        lake.write_dataset(sample(), uri, catalog=catalog)
        assert lake.read_dataset(uri, catalog=catalog).num_rows == 20
        lake.write_dataset(sample().slice(0, 3), uri, catalog=catalog, mode="overwrite")
        assert rows(lake.read_dataset(uri, catalog=catalog)) == rows(sample().slice(0, 3))
        assert lake.read_dataset(uri, catalog=catalog, version=2).num_rows == 20

    def test_mode_error_wants_a_new_dataset(self, uri: str, catalog: lake.Catalog) -> None:
        lake.write_dataset(sample(), uri, catalog=catalog, mode="error")
        with pytest.raises(lake.DatasetExistsError):
            lake.write_dataset(sample(), uri, catalog=catalog, mode="error")
        assert lake.open_dataset(uri, catalog=catalog).version == 1

    def test_zero_rows_make_a_dataset_with_a_schema(self, uri: str, catalog: lake.Catalog) -> None:
        result = lake.write_dataset(sample().slice(0, 0), uri, catalog=catalog)
        assert (result.files, result.row_count) == (0, 0)
        assert lake.read_dataset(uri, catalog=catalog).schema == sample().schema

    def test_null_and_odd_partition_values_come_back(self, uri: str, catalog: lake.Catalog) -> None:
        lake.write_dataset(sample(), uri, catalog=catalog, partition_by="k")
        table = lake.read_dataset(uri, catalog=catalog)
        assert rows(table) == rows(sample())
        stored = pq.read_schema(next(Path(uri).rglob("*.parquet")))
        assert "k" not in stored.names
        found = lake.read_dataset(uri, catalog=catalog, predicates="k IS NULL")
        assert sorted(found["id"].to_pylist()) == [2, 5]
        assert lake.read_dataset(uri, catalog=catalog, predicates="k = ''").num_rows == 1

    def test_columns_and_their_order(self, uri: str, catalog: lake.Catalog) -> None:
        lake.write_dataset(sample(), uri, catalog=catalog, partition_by="k")
        table = lake.read_dataset(
            uri, catalog=catalog, columns=["X", "k"], predicates=[("id", ">=", 8)]
        )
        assert table.column_names == ["x", "k"]
        assert table["k"].to_pylist() == ["", "é"]


@pytest.mark.parametrize(
    "make",
    [
        lambda table: table,
        lambda table: table.to_batches()[0],
        lambda table: table.to_reader(),
        lambda table: table.to_pandas(),
        lambda table: ds.dataset(table),
        lambda table: duckdb.from_arrow(table),
        pytest.param(lambda table: _polars(table), id="polars"),
    ],
)
def test_any_tabular_data_can_be_written(uri: str, make: Callable[[pa.Table], Any]) -> None:
    table = pa.table({"id": [1, 2, 3], "name": ["a", "b", None]})
    lake.write_dataset(make(table), uri)
    assert rows(lake.read_dataset(uri)) == rows(table)


def _polars(table: pa.Table) -> Any:
    import polars

    return polars.from_arrow(table)


def found_by_duckdb(rows: pa.Table, condition: str) -> pa.Table:
    """The rows of DuckDB's own table: it may let PyArrow filter others, which loses NaN."""
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE things AS FROM rows")
        return connection.sql(f"FROM things WHERE {condition}").to_arrow_table()


class TestPredicates:
    CONDITIONS = (
        "x > 5",
        "x = 'NaN'",
        "NOT (x > 5)",
        "x <> 0",
        "k = 'a' OR id = 9",
        "k IN ('b', NULL)",
        "st.p = 4",
        "st.p IS NULL",
        "k LIKE 'é%' OR x IS NULL",
        "id BETWEEN 3 AND 5",
    )

    @pytest.mark.sampled(3)
    @pytest.mark.parametrize("condition", CONDITIONS)
    @pytest.mark.parametrize("partition_by", [None, "k"])
    def test_rows_are_those_that_duckdb_finds(
        self, uri: str, condition: str, partition_by: str | None
    ) -> None:
        lake.write_dataset(sample(), uri, partition_by=partition_by, row_group_rows=2)
        expected = found_by_duckdb(sample(), condition)
        scan = lake.open_dataset(uri).scan(condition)
        assert rows(scan.to_table()) == rows(expected)
        assert scan.count_rows() == expected.num_rows
        assert rows(pa.Table.from_batches(scan.to_batches(), sample().schema)) == rows(expected)

    def test_an_arrow_expression_filters_as_it_is(self, uri: str) -> None:
        lake.write_dataset(sample(), uri)
        expression = (pc.field("x") > 5) & (pc.field("id") < 9)
        table = lake.read_dataset(uri, predicates=expression, columns=["id"])
        assert table["id"].to_pylist() == [6, 8]
        assert lake.open_dataset(uri).scan(expression).count_rows() == 2

    def test_triples_must_all_hold(self, uri: str) -> None:
        lake.write_dataset(sample(), uri)
        table = lake.read_dataset(uri, predicates=[("k", "=", "a"), ("id", ">", 0)])
        assert table["id"].to_pylist() == [3, 6]

    def test_explain_counts_what_is_pruned(self, uri: str) -> None:
        lake.write_dataset(sample(), uri, partition_by="k", row_group_rows=1)
        explained = lake.open_dataset(uri).scan("k = 'a' AND id = 3").explain()
        assert (explained.files_total, explained.files_read) == (5, 1)
        assert (explained.row_groups_total, explained.row_groups_read) == (10, 1)
        assert explained.files_pruned_by_partition == 4
        assert "files pruned by partition: 4, by statistics: 0" in str(explained)


class TestTimeTravel:
    def test_versions_and_timestamps(self, uri: str, catalog: lake.Catalog) -> None:
        for number in range(3):
            lake.write_dataset(pa.table({"n": [number]}), uri, catalog=catalog)
        dataset = lake.open_dataset(uri, catalog=catalog)
        history = dataset.history()
        assert [record.version for record in history] == [3, 2, 1]
        for record in history:
            at = lake.read_dataset(uri, catalog=catalog, timestamp=record.timestamp)
            assert at.num_rows == record.version
        later = datetime.now(timezone.utc) + timedelta(days=1)
        assert lake.read_dataset(uri, catalog=catalog, timestamp=later).num_rows == 3

    def test_versions_out_of_range_say_the_range(self, uri: str, catalog: lake.Catalog) -> None:
        lake.write_dataset(sample(), uri, catalog=catalog)
        for version in (0, -1, 2, 10**18):
            with pytest.raises(lake.VersionNotFoundError, match="versions 1 to 1"):
                lake.read_dataset(uri, catalog=catalog, version=version)

    def test_what_is_no_number_of_a_version(self, uri: str, catalog: lake.Catalog) -> None:
        """A restore to 1.5 was committed: databases compare it with the numbers of versions."""
        lake.write_dataset(sample(), uri, catalog=catalog)
        dataset = lake.open_dataset(uri, catalog=catalog)
        for version in (1.5, 1.0, 10**30):
            with pytest.raises(lake.InvalidOptionError, match="not the number of a version"):
                dataset.restore(version)
        with pytest.raises(lake.InvalidOptionError, match="not the number of a version"):
            dataset.tag("x", version="newest")
        assert dataset.refresh().version == 1

    def test_a_timestamp_before_the_first_commit(self, uri: str, catalog: lake.Catalog) -> None:
        lake.write_dataset(sample(), uri, catalog=catalog)
        with pytest.raises(lake.VersionNotFoundError, match="the first committed at"):
            lake.read_dataset(uri, catalog=catalog, timestamp="2001-01-01")

    def test_a_timestamp_that_is_none(self, uri: str) -> None:
        lake.write_dataset(sample(), uri)
        with pytest.raises(lake.InvalidOptionError, match="ISO 8601"):
            lake.read_dataset(uri, timestamp="yesterday")

    def test_a_dataset_keeps_its_version_until_it_is_refreshed(self, uri: str) -> None:
        lake.write_dataset(sample(), uri)
        dataset = lake.open_dataset(uri)
        scan = dataset.scan()
        lake.write_dataset(sample(), uri)
        assert scan.count_rows() == dataset.scan().count_rows() == 10
        assert dataset.refresh().scan().count_rows() == 20

    def test_restore_brings_content_and_schema_back(self, uri: str, catalog: lake.Catalog) -> None:
        lake.write_dataset(sample(), uri, catalog=catalog, partition_by="k")
        wider = pa.table({"id": [99], "k": ["a"], "x": [1.0], "new": [True]})
        lake.write_dataset(wider, uri, catalog=catalog, mode="overwrite", schema_merge=True)
        dataset = lake.open_dataset(uri, catalog=catalog)
        result = dataset.restore(1)
        assert (result.version, dataset.version) == (3, 3)
        assert dataset.schema == sample().schema
        assert rows(dataset.scan().to_table()) == rows(sample())
        assert rows(dataset.scan("k = 'a' AND id < 5").to_table()) == rows(sample().take([0, 3]))
        assert dataset.history()[0].operation == "restore"
        # The column that was added keeps its id for itself: a new one gets another.
        again = pa.table({"id": [1], "k": ["a"], "new": ["text"]})
        lake.write_dataset(again, uri, catalog=catalog, schema_merge=True)
        assert lake.read_dataset(uri, catalog=catalog, version=2)["new"].to_pylist() == [True]
        assert lake.read_dataset(uri, catalog=catalog, predicates="new = 'text'").num_rows == 1


class TestOverwriteWhere:
    @pytest.mark.parametrize("partition_by", [None, "k"])
    @pytest.mark.parametrize("condition", ["k = 'a'", "x > 4", "id < 3", "x <=> NULL"])
    def test_other_rows_stay_unknown_ones_too(
        self, uri: str, catalog: lake.Catalog, condition: str, partition_by: str | None
    ) -> None:
        lake.write_dataset(
            sample(), uri, catalog=catalog, partition_by=partition_by, row_group_rows=3
        )
        duck = condition.replace("<=>", "IS NOT DISTINCT FROM")
        things = sample()  # noqa: F841 - DuckDB finds it by name
        kept = duckdb.sql(f"SELECT * FROM things WHERE ({duck}) IS NOT TRUE").to_arrow_table()
        new = duckdb.sql(f"SELECT * FROM things WHERE {duck} LIMIT 1").to_arrow_table()
        result = lake.write_dataset(
            new, uri, catalog=catalog, mode="overwrite", overwrite_where=condition
        )
        assert result.version == 2
        expected = rows(pa.concat_tables([kept, new]))
        assert rows(lake.read_dataset(uri, catalog=catalog)) == expected
        summary = lake.open_dataset(uri, catalog=catalog).history()[0].summary
        assert summary["live_rows"] == len(expected)

    def test_a_row_outside_the_condition_is_refused(self, uri: str) -> None:
        lake.write_dataset(sample(), uri)
        with pytest.raises(lake.SchemaMismatchError, match="incoming rows do not satisfy") as it:
            lake.write_dataset(sample(), uri, mode="overwrite", overwrite_where="k = 'a'")
        outside = next(row for row in sample().to_pylist() if row["k"] != "a")
        assert f"one with k = {outside['k']!r}" in str(it.value)
        assert "Bound" not in str(it.value)
        assert "\n" not in str(it.value)
        assert lake.open_dataset(uri).version == 1
        assert len(list(Path(uri).rglob("*.parquet"))) == 1

    def test_dynamic_partitions_replace_only_those_that_arrive(
        self, uri: str, catalog: lake.Catalog
    ) -> None:
        lake.write_dataset(sample(), uri, catalog=catalog, partition_by="k")
        new = sample().take([0, 2])  # k = 'a' and k IS NULL
        lake.write_dataset(
            new, uri, catalog=catalog, mode="overwrite", partition_overwrite_mode="dynamic"
        )
        table = lake.read_dataset(uri, catalog=catalog)
        assert sorted(table["id"].to_pylist()) == [0, 1, 2, 4, 7, 8, 9]


class TestConflicts:
    def test_expected_version(self, uri: str, catalog: lake.Catalog) -> None:
        lake.write_dataset(sample(), uri, catalog=catalog, expected_version=0)
        lake.write_dataset(sample(), uri, catalog=catalog, expected_version=1)
        with pytest.raises(lake.CommitConflictError) as caught:
            lake.write_dataset(sample(), uri, catalog=catalog, expected_version=1)
        assert caught.value.current_version == 2
        assert lake.read_dataset(uri, catalog=catalog).num_rows == 20

    def test_the_same_transaction_is_committed_once(self, uri: str, catalog: lake.Catalog) -> None:
        for _ in range(3):
            result = lake.write_dataset(
                sample(), uri, catalog=catalog, txn_app_id="loader", txn_version=7
            )
            assert result.version == 1
        lake.write_dataset(sample(), uri, catalog=catalog, txn_app_id="loader", txn_version=8)
        assert lake.read_dataset(uri, catalog=catalog).num_rows == 20
        assert len(list(Path(uri).rglob("*.parquet"))) == 2


class TestSchemaEvolution:
    def test_a_new_column_needs_schema_merge(self, uri: str, catalog: lake.Catalog) -> None:
        lake.write_dataset(pa.table({"a": [1]}), uri, catalog=catalog)
        wider = pa.table({"A": [2], "b": ["x"]})
        with pytest.raises(lake.SchemaMismatchError, match="schema_merge=True"):
            lake.write_dataset(wider, uri, catalog=catalog)
        lake.write_dataset(wider, uri, catalog=catalog, schema_merge=True)
        table = lake.read_dataset(uri, catalog=catalog)
        assert table.to_pylist() == [{"a": 1, "b": None}, {"a": 2, "b": "x"}]
        old = lake.read_dataset(uri, catalog=catalog, version=1)
        assert old.schema.names == ["a"]
        assert lake.read_dataset(uri, catalog=catalog, predicates="b IS NULL").num_rows == 1
        assert lake.read_dataset(uri, catalog=catalog, predicates="b = 'x'").num_rows == 1

    @pytest.mark.parametrize(
        ("narrow", "wide", "condition", "count"),
        [
            (pa.array([1, 127], pa.int8()), pa.array([300], pa.int64()), "a >= 127", 2),
            (pa.array([1.5], pa.float32()), pa.array([2.5], pa.float64()), "a > 1.25", 2),
            (pa.array([5], pa.int32()), pa.array(["7.50"]).cast(pa.decimal128(20, 2)), "a > 4", 2),
            (
                pa.array([0], pa.date32()),
                pa.array([1], pa.timestamp("us")),
                "a <= TIMESTAMP_NTZ '1970-01-01 00:00:00'",
                1,
            ),
        ],
    )
    def test_a_promoted_column_is_searched_in_old_and_new_files(
        self,
        uri: str,
        catalog: lake.Catalog,
        narrow: pa.Array,
        wide: pa.Array,
        condition: str,
        count: int,
    ) -> None:
        lake.write_dataset(pa.table({"a": narrow}), uri, catalog=catalog)
        lake.write_dataset(pa.table({"a": wide}), uri, catalog=catalog, schema_merge=True)
        dataset = lake.open_dataset(uri, catalog=catalog)
        assert dataset.schema.field("a").type == wide.type
        assert dataset.scan(condition).count_rows() == count
        assert dataset.scan(condition).to_table().num_rows == count
        # Data of the narrower type can still be written.
        lake.write_dataset(pa.table({"a": narrow}), uri, catalog=catalog)
        assert dataset.refresh().scan().to_table().num_rows == 2 * len(narrow) + len(wide)

    def test_what_cannot_be_promoted_becomes_text_when_asked(self, uri: str) -> None:
        lake.write_dataset(pa.table({"a": [1, None]}), uri)
        with pytest.raises(lake.SchemaMismatchError, match="promote_to_string=True"):
            lake.write_dataset(pa.table({"a": ["x"]}), uri)
        lake.write_dataset(pa.table({"a": ["x"]}), uri, promote_to_string=True)
        assert lake.read_dataset(uri)["a"].to_pylist() == ["1", None, "x"]
        assert lake.read_dataset(uri, predicates="a = '1'").num_rows == 1

    def test_a_partition_column_keeps_its_kind(self, uri: str) -> None:
        lake.write_dataset(
            pa.table({"k": pa.array([1], pa.int8()), "a": [1]}), uri, partition_by="k"
        )
        text = pa.table({"k": ["x"], "a": [2]})
        with pytest.raises(lake.SchemaMismatchError, match="partition column of type int8"):
            lake.write_dataset(text, uri, promote_to_string=True, schema_merge=True)
        wider = pa.table({"k": pa.array([300], pa.int64()), "a": [2]})
        lake.write_dataset(wider, uri, schema_merge=True)
        assert lake.read_dataset(uri, predicates="k >= 1")["k"].to_pylist() == [1, 300]
        assert lake.read_dataset(uri, predicates="k = 1")["a"].to_pylist() == [1]

    def test_a_value_that_does_not_fit_is_named(self, uri: str) -> None:
        schema = pa.schema([pa.field("a", pa.int64(), nullable=False)])
        lake.write_dataset(pa.table({"a": [1]}, schema=schema), uri)
        with pytest.raises(lake.SchemaMismatchError, match=r"not nullable.*1 NULL"):
            lake.write_dataset(pa.table({"a": pa.array([None], pa.int64())}), uri)
        assert lake.read_dataset(uri).schema.field("a").nullable is False


class TestWhereThingsAre:
    def test_a_dataset_with_its_own_catalog_can_be_moved(self, uri: str, tmp_path: Path) -> None:
        lake.write_dataset(sample(), uri, partition_by="k")
        moved = tmp_path / "elsewhere"
        shutil.move(uri, moved)
        assert rows(lake.read_dataset(str(moved))) == rows(sample())
        lake.write_dataset(sample(), f"file://{moved}")
        assert lake.open_dataset(moved).version == 2

    @pytest.mark.parametrize(
        "spelling", ["{}", "{}/", "file:{}", "file://{}", "file://localhost{}"]
    )
    def test_spellings_of_one_path(self, uri: str, catalog: lake.Catalog, spelling: str) -> None:
        lake.write_dataset(sample(), uri, catalog=catalog)
        other = lake.open_dataset(spelling.format(uri), catalog=catalog)
        assert other.scan().count_rows() == 10

    def test_a_catalog_named_by_the_environment(
        self, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PLAKE_CATALOG", f"sqlite:///{tmp_path}/all.db")
        lake.write_dataset(sample(), uri)
        assert (tmp_path / "all.db").exists()
        assert not (Path(uri) / "_plake" / "catalog.db").exists()

    def test_two_datasets_of_one_catalog_do_not_mix(
        self, tmp_path: Path, catalog: lake.Catalog
    ) -> None:
        for name, value in (("one", 1), ("two", 2)):
            table = pa.table({"a": [value]})
            lake.write_dataset(table, tmp_path / name, catalog=catalog)
        found = lake.read_dataset(tmp_path / "one", catalog=catalog, predicates="a >= 1")
        assert found["a"].to_pylist() == [1]

    def test_a_mistake_leaves_nothing_behind(self, uri: str) -> None:
        with pytest.raises(lake.SchemaMismatchError, match="partition_by and not in the data"):
            lake.write_dataset(sample(), uri, partition_by="nope")
        assert not Path(uri).exists()

    def test_nothing_there(self, tmp_path: Path, catalog: lake.Catalog) -> None:
        with pytest.raises(lake.DatasetNotFoundError, match="Write to it first"):
            lake.open_dataset(tmp_path / "none", catalog=catalog)
        with pytest.raises(lake.DatasetNotFoundError):
            lake.read_dataset(tmp_path / "none")
        assert not (tmp_path / "none").exists()


class TestEngines:
    def test_every_engine_gets_the_same_rows(self, uri: str) -> None:
        import datafusion

        lake.write_dataset(sample().drop_columns(["st"]), uri, partition_by="k", row_group_rows=2)
        scan = lake.open_dataset(uri).scan("x > 5")
        expected = rows(scan.to_table())
        with duckdb.connect() as connection:
            assert rows(scan.to_duckdb(connection).to_arrow_table()) == expected
        assert rows(scan.to_polars().collect().to_arrow().cast(scan.to_table().schema)) == expected
        frame = scan.to_datafusion(datafusion.SessionContext())
        assert rows(frame.to_arrow_table().cast(scan.to_table().schema)) == expected

    def test_a_dataset_of_fragments(self, uri: str) -> None:
        lake.write_dataset(sample(), uri, partition_by="k", row_group_rows=2)
        dataset = lake.read_dataset(uri, predicates="k = 'a'", as_dataset=True)
        assert isinstance(dataset, ds.FileSystemDataset)
        assert dataset.schema == sample().schema
        found = dataset.to_table(filter=pc.field("k") == "a")
        assert sorted(found["id"].to_pylist()) == [0, 3, 6]


@pytest.mark.parametrize("matching", [[0], [9], [4999], [0, 1, 2, 4999], [1234, 1235], [16_384]])
def test_few_rows_of_a_large_row_group(tmp_path: Path, matching: list[int]) -> None:
    """Files are read in portions, up to the last match."""
    rows = 20_000
    table = pa.table(
        {
            "p": ["x"] * rows,
            "id": list(range(rows)),
            "text": [f"text {i}" for i in range(rows)],
            "st": [{"a": i, "b": None if i % 3 else [i]} for i in range(rows)],
        }
    )
    path = tmp_path / "d"
    lake.write_dataset(table, path, partition_by=["p"])
    lake.write_dataset(
        table.slice(0, 1).append_column("late", pa.array([7])), path, schema_merge=True
    )
    found = lake.read_dataset(path, predicates=[("id", "in", [*matching, -1])])
    expected = [{**row, "late": None} for row in table.take(matching).to_pylist()]
    key = lambda row: (row["id"], row["late"] or 0)  # noqa: E731
    late = [{**table.slice(0, 1).to_pylist()[0], "late": 7}] if 0 in matching else []
    assert sorted(found.to_pylist(), key=key) == sorted([*expected, *late], key=key)
    only = lake.read_dataset(path, predicates=[("id", "=", matching[-1])], columns=["p", "late"])
    assert {"p": "x", "late": None} in only.to_pylist()


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_bloom_filters_that_pyarrow_cannot_write_are_refused_before_anything_is_written(
    uri: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyArrow 21 to 23 cannot; a newer one is told that it cannot."""
    monkeypatch.setattr(writer, "CAN_WRITE_BLOOM_FILTERS", False)
    with pytest.raises(lake.InvalidOptionError, match=r"needs PyArrow 24 .* leave the option out"):
        lake.write_dataset({"a": [1]}, uri, mode=mode, bloom_filter_columns=["a"])
    with pytest.raises(lake.DatasetNotFoundError):
        lake.open_dataset(uri)
    assert list(Path(uri).rglob("*.parquet")) == []
    assert lake.write_dataset({"a": [1]}, uri, mode=mode).version == 1


@pytest.mark.parametrize("as_dataset", [False, True])
def test_a_read_of_the_newest_version_does_not_see_that_one_expire(
    uri: str, as_dataset: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process commits and expires as soon as the catalog can be written to."""
    lake.write_dataset({"a": [1]}, uri)
    opened, left = Address.open, [True]

    @contextmanager
    def then_committed(self: Address, **options: bool) -> Iterator[lake.Catalog]:
        with opened(self, **options) as catalog:
            yield catalog
        if left:
            left.pop()
            lake.write_dataset({"a": [2]}, uri)
            lake.open_dataset(uri).expire_versions(keep_last=1)

    monkeypatch.setattr(Address, "open", then_committed)
    found = lake.read_dataset(uri, as_dataset=as_dataset)
    rows = found.to_table() if as_dataset else found
    assert rows["a"].to_pylist() in ([1], [1, 2])
    assert left == []

"""DuckDB, Polars, DataFusion and Arrow filter a dataset of fragments, and get the right rows."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import datafusion
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

import lakehouse_source as lake
from lakehouse_source.parquet.fragments import as_engines_mean
from tests.strategies import pool

pytestmark = [pytest.mark.slow, pytest.mark.sampled(2)]

NAN = float("nan")

PROMOTIONS = [
    (pa.int8(), pa.int64()),
    (pa.uint32(), pa.int64()),
    (pa.uint32(), pa.uint64()),
    (pa.int32(), pa.float64()),
    (pa.int16(), pa.float32()),
    (pa.int64(), pa.decimal128(22, 2)),
    (pa.float16(), pa.float64()),
    (pa.float32(), pa.float64()),
    (pa.decimal128(5, 2), pa.decimal128(9, 4)),
    (pa.decimal128(5, 2), pa.decimal256(50, 3)),
    (pa.date32(), pa.timestamp("us")),
    (pa.timestamp("ms"), pa.timestamp("us")),
    (pa.timestamp("ms", "UTC"), pa.timestamp("us", "UTC")),
    (pa.time32("ms"), pa.time64("us")),
    (pa.duration("ms"), pa.duration("us")),
    (pa.binary(3), pa.binary()),
    (pa.int64(), pa.string()),
]


def fits(value: Any, old: pa.DataType, new: pa.DataType) -> bool:
    if pa.types.is_string(new):
        return True
    try:
        pa.array([value], old).cast(new)
    except pa.ArrowInvalid:
        return False
    return True


def sample() -> pa.Table:
    """Row groups of three: one spans 1 to 1 and holds a NaN, one is all NaN, one all NULL."""
    noon = [datetime(2020, 1, 1, 12, 0, 0, i, tzinfo=timezone.utc) for i in range(12)]
    x = [1.0, NAN, 1.0, NAN, NAN, NAN, None, None, None, -0.0, 0.0, float("inf")]
    return pa.table(
        {
            "id": pa.array(range(12), pa.int64()),
            "x": pa.array(x),
            "y": pa.array([float(i) / 2 if i % 4 else None for i in range(12)]),
            "s": pa.array(
                ["a", None, "b", "é", "", "\U0001f600", "\uffee", "a", None, "b", "c", "d"]
            ),
            "t": pa.array(
                [None if i == 7 else t for i, t in enumerate(noon)], pa.timestamp("us", "UTC")
            ),
            "k": pa.array(["p", "p", "p", "q", "q", "q", None, None, None, "", "", ""]),
        }
    )


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    uri = str(tmp_path_factory.mktemp("engines") / "things")
    lake.write_dataset(sample(), uri, partition_by="k", row_group_rows=3)
    lake.write_dataset(sample().slice(1, 1), uri)
    return uri


def rows(table: pa.Table) -> list[str]:
    return sorted(repr(row) for row in table.select(sorted(table.column_names)).to_pylist())


def by_duckdb(data: Any, condition: str) -> list[str]:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        if isinstance(data, pa.Table):
            # DuckDB before 2.0 lets PyArrow filter a table, which loses NaN.
            connection.execute("CREATE TABLE things AS FROM data")
        else:
            connection.register("things", data)
        found = connection.execute(f"SELECT id, x, s, k FROM things WHERE {condition}")
        return sorted(map(repr, found.fetchall()))


CONDITIONS = [
    f"{negation}({condition})"
    for condition in (
        "x = 1", "x <> 1", "x < 5", "x <= 1", "x > 0.5", "x >= 1", "x IN (1, 2)", "x IS NULL",
        "isnan(x)", "x = 'NaN'", "x = 0.0", "x > -0.0", "x < 'NaN'", "x > 'inf'",
        "y < 2", "y <> 1.5", "y IN (0.5, 3.5)", "y IS NULL",
        "s = 'a'", "s <> 'a'", "s < 'b'", "s > 'é'", "s IN ('a', 'c')", "s IS NULL",
        "t = TIMESTAMPTZ '2020-01-01 12:00:00.000004Z'",
        "t > TIMESTAMPTZ '2020-01-01 12:00:00.000004Z'", "t IS NULL",
        "k = 'p'", "k <> 'p'", "k = ''", "k IS NULL", "k IN ('p', '')",
        "id > 3 AND x > 0.5", "x > 5 OR s = 'a'", "x <> 1 AND k = 'p'", "id IN (1, 4) OR isnan(x)",
    )
    for negation in ("", "NOT ")
]  # fmt: skip


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.sampled(6)
def test_duckdb_scans_the_dataset(uri: str, condition: str) -> None:
    whole = pa.concat_tables([sample(), sample().slice(1, 1)])
    dataset = lake.read_dataset(uri, as_dataset=True)
    assert isinstance(dataset, ds.FileSystemDataset)
    assert by_duckdb(dataset, condition) == by_duckdb(whole, condition)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("condition", CONDITIONS)
def test_datafusion_scans_the_dataset(uri: str, condition: str) -> None:
    condition = condition.replace("TIMESTAMPTZ ", "TIMESTAMP ")
    whole = pa.concat_tables([sample(), sample().slice(1, 1)])
    context = datafusion.SessionContext()
    context.register_dataset("scanned", lake.read_dataset(uri, as_dataset=True))
    context.register_record_batches("whole", [whole.to_batches()])
    scanned, expected = (
        rows(context.sql(f"SELECT id, x, s, k FROM {name} WHERE {condition}").to_arrow_table())
        for name in ("scanned", "whole")
    )
    assert scanned == expected


X, Y, S, K = (pl.col(name) for name in ("x", "y", "s", "k"))
MOMENT = datetime(2020, 1, 1, 12, 0, 0, 4, tzinfo=timezone.utc)
POLARS: dict[str, pl.Expr] = {
    "=": X == 1,
    "!=": X != 1,
    "<": X < 5,
    ">": X > 0.5,
    ">=": X >= 1,
    "in": X.is_in([1.0, 2.0]),
    "null": X.is_null(),
    "nan": X.is_nan(),
    "not nan": X.is_not_nan(),
    "= nan": X == NAN,
    "= 0": X == 0.0,
    "> -0": X > -0.0,
    "between": X.is_between(-1, 0.5),
    "y <": Y < 2,
    "y in": Y.is_in([0.5, 3.5]),
    "s =": S == "a",
    "s <": S < "b",
    "s in": S.is_in(["a", "c"]),
    "t >": pl.col("t") > MOMENT,
    "t =": pl.col("t") == MOMENT,
    "k =": K == "p",
    "k null": K.is_null(),
    "k in": K.is_in(["p", ""]),
    "both": (pl.col("id") > 3) & (X > 0.5),
    "nan and k": X.is_nan() & (K == "p"),
    "either": (X > 5) | (S == "a"),
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("pushed", [True, False])
@pytest.mark.parametrize("negated", [True, False])
@pytest.mark.parametrize("name", POLARS)
def test_polars_scans_the_dataset(uri: str, name: str, negated: bool, pushed: bool) -> None:
    condition = ~POLARS[name] if negated else POLARS[name]
    whole = pl.from_arrow(pa.concat_tables([sample(), sample().slice(1, 1)]))
    assert isinstance(whole, pl.DataFrame)
    dataset = lake.read_dataset(uri, as_dataset=True)
    scan = pl.scan_pyarrow_dataset(dataset, allow_pyarrow_filter=pushed)
    found = scan.filter(condition).collect()
    assert rows(found.to_arrow()) == rows(whole.filter(condition).to_arrow())


def test_arrow_filters_by_the_same_rules(uri: str) -> None:
    dataset = lake.read_dataset(uri, as_dataset=True)
    x, k = pc.field("x"), pc.field("k")

    def ids(expression: pc.Expression) -> list[int]:
        return sorted(dataset.to_table(filter=expression, columns=["id"])["id"].to_pylist())

    nans = [1, 1, 3, 4, 5]
    assert ids(pc.is_nan(x)) == nans
    assert ids(x != 1) == sorted([*nans, 9, 10, 11])
    assert ids(~(x < 5)) == sorted([*nans, 11])
    assert ids(x.isin([0.0])) == [9, 10]
    assert ids(~k.isin(["p"])) == [3, 4, 5, 9, 10, 11]
    assert dataset.count_rows(filter=x > 0.5) == 8
    assert dataset.filter(x > 0.5).filter(k == "p").count_rows() == 4
    assert dataset.filter(x > 0.5).to_table(filter=k == "p").num_rows == 4
    assert dataset.head(2, filter=pc.is_nan(x)).num_rows == 2
    assert dataset.to_table(filter=x > 0.5, columns={"twice": pc.field("id") * 2}).num_rows == 8
    again = pickle.loads(pickle.dumps(dataset))
    assert again.count_rows(filter=x > 0.5) == 8
    assert sum(part.count_rows(filter=x > 0.5) for part in dataset.get_fragments(k == "p")) == 4
    assert len(list(dataset.get_fragments())) == 5


def test_a_filter_that_is_not_understood_is_refused_where_nan_may_be(uri: str) -> None:
    dataset = lake.read_dataset(uri, as_dataset=True)
    with pytest.raises(lake.InvalidPredicateError, match="allow_pyarrow_filter=False"):
        dataset.to_table(filter=pc.field("x") * 2 > 3)
    assert dataset.to_table(filter=pc.field("id") * 2 > 18).num_rows == 2
    # No row group that is left holds a NaN.
    few = lake.read_dataset(uri, predicates="k = ''", as_dataset=True)
    assert few.to_table(filter=pc.field("x") * 2 > 3).num_rows == 1


def test_promises_hold_for_every_row(uri: str) -> None:
    dataset = lake.read_dataset(uri, as_dataset=True)
    promises = []
    for fragment in dataset.get_fragments():
        promise = fragment.partition_expression
        table = fragment.to_table(schema=dataset.schema)
        filled = table.set_column(
            table.schema.get_field_index("k"),
            "k",
            pa.repeat(ds.get_partition_keys(promise).get("k"), len(table)).cast(pa.string()),
        )
        assert filled.filter(promise).num_rows == table.num_rows
        promises.append(str(promise))
    text = "\n".join(promises)
    assert 'k == "p"' in text
    assert "is_null(k" in text
    assert "(id >= 9) and (id <= 11)" in text
    # Three rows without NaN: 0, 0 and infinity. NaN is in all others.
    assert text.count("x >=") == 1
    assert "s <=" in text


def test_promises_let_fragments_go(uri: str) -> None:
    dataset = lake.read_dataset(uri, as_dataset=True)
    assert len(list(dataset.get_fragments(pc.field("id") == 4))) == 1
    assert len(list(dataset.get_fragments(pc.field("x") > 1))) == 4
    assert len(list(dataset.get_fragments(pc.field("k") == "p"))) == 2


class TestFilesOfAnotherTime:
    """Columns that were promoted, dropped or renamed since a file was written."""

    def check(self, uri: str, conditions: list[str]) -> None:
        in_memory = lake.read_dataset(uri)
        dataset = lake.read_dataset(uri, as_dataset=True)
        assert isinstance(dataset, ds.FileSystemDataset)
        assert dataset.schema == in_memory.schema
        assert rows(dataset.to_table()) == rows(in_memory)
        for condition in conditions:
            with duckdb.connect() as connection:
                connection.execute("CREATE TABLE whole AS FROM in_memory")
                connection.register("scanned", dataset)
                scanned, expected = (
                    rows(connection.sql(f"FROM {name} WHERE {condition}").to_arrow_table())
                    for name in ("scanned", "whole")
                )
                assert scanned == expected, condition

    def test_promoted(self, tmp_path: Path) -> None:
        uri = str(tmp_path / "promoted")
        old = {
            "i": pa.array([1, None, 2**31 - 1], pa.int32()),
            "f": pa.array([0.1, NAN, None], pa.float32()),
            "n": pa.array([7, 8, None], pa.int32()),
            "d": pa.array([0, 1, None], pa.date32()),
        }
        new = {
            "i": pa.array([2**40, 1], pa.int64()),
            "f": pa.array([0.1, 1e300], pa.float64()),
            "n": pa.array(["7", "x"]),
            "d": pa.array([1, 86_400_000_000], pa.timestamp("us")),
            "late": ["new", None],
        }
        lake.write_dataset(pa.table(old), uri)
        lake.write_dataset(pa.table(new), uri, schema_merge=True, promote_to_string=True)
        self.check(
            uri,
            [
                "i = 1099511627776", "i > 2147483646", "i IN (1, 2147483647)", "i IS NULL",
                "f = 0.1", "f < 0.2", "isnan(f)", "NOT (f < 1)", "n = '7'", "n < '8'",
                "d = TIMESTAMP '1970-01-02'", "late IS NULL", "late = 'new'", "late <> 'x'",
            ],
        )  # fmt: skip

    def test_a_wider_integer_alone_is_left_to_arrow(self, tmp_path: Path) -> None:
        uri = str(tmp_path / "wider")
        lake.write_dataset(pa.table({"i": pa.array([1, None, -5], pa.int32())}), uri)
        lake.write_dataset(pa.table({"i": pa.array([2**40])}), uri, schema_merge=True)
        self.check(uri, ["i = 1", "i < 0", "i > 2147483647", "i IN (1, 1099511627776)"])
        dataset = lake.read_dataset(uri, as_dataset=True)
        assert all(path.endswith(".parquet") for path in dataset.files)

    @pytest.mark.parametrize(("old", "new"), PROMOTIONS, ids=str)
    def test_filters_on_a_promoted_column(
        self, tmp_path: Path, old: pa.DataType, new: pa.DataType
    ) -> None:
        uri = str(tmp_path / "promoted")
        values = [value for value in pool(old) if fits(value, old, new)]
        column = pa.array([*values, None], old)
        lake.write_dataset(pa.table({"c": column}), uri, row_group_rows=2)
        dataset = lake.open_dataset(uri)
        dataset.promote_column("c", new)
        expected = column if pa.types.is_string(new) else column.cast(new)
        if pa.types.is_string(new):
            expected = pa.array([None if v is None else str(v) for v in column.to_pylist()])
        arrow = dataset.scan().to_dataset()
        assert str(arrow.to_table()["c"].combine_chunks()) == str(expected)
        whole = pa.table({"c": expected})
        for value in expected:
            conditions = [pc.field("c") == value, pc.field("c") > value, pc.field("c").is_null()]
            for condition in conditions:
                if pa.types.is_floating(new):
                    condition = as_engines_mean(condition, whole.schema)[0]
                found = arrow.to_table(filter=condition)
                assert str(found["c"].combine_chunks()) == str(
                    whole.filter(condition)["c"].combine_chunks()
                ), condition

    def test_files_are_converted_on_the_only_thread_that_arrow_has(self, tmp_path: Path) -> None:
        """Threads of a pool that wait for others of the same pool would wait for ever."""
        uri = str(tmp_path / "many")
        for i in range(12):
            lake.write_dataset(pa.table({"n": [i], "m": [float(i)]}), uri)
        dataset = lake.open_dataset(uri)
        dataset.promote_column("n", pa.string())
        dataset.rename_column("m", "o")
        threads = pa.cpu_count(), pa.io_thread_count()
        pa.set_cpu_count(1)
        pa.set_io_thread_count(1)
        try:
            found = dataset.scan().to_dataset().to_table(filter=pc.field("o") > 2)
            with duckdb.connect() as connection:
                connection.register("d", dataset.scan().to_dataset())
                counted = connection.execute("SELECT count(*) FROM d WHERE n > '2'").fetchall()
        finally:
            pa.set_cpu_count(threads[0])
            pa.set_io_thread_count(threads[1])
        assert found.num_rows == 9
        assert counted == [(7,)]


@pytest.mark.parametrize(
    "hand_over",
    [
        lambda scan: scan.to_duckdb(duckdb.connect()).to_arrow_table(),
        lambda scan: scan.to_polars().collect().to_arrow(),
        lambda scan: scan.to_datafusion(datafusion.SessionContext()).to_arrow_table(),
    ],
    ids=["duckdb", "polars", "datafusion"],
)
@pytest.mark.parametrize(
    "condition", ["x > 0.5", "NOT (x = 1)", "k IS NULL", "x IS NULL OR s = ''"]
)
def test_scans_hand_over_the_matching_rows(
    uri: str, hand_over: Callable[[lake.Scan], pa.Table], condition: str
) -> None:
    scan = lake.open_dataset(uri).scan(condition)
    assert rows(hand_over(scan).cast(scan.to_table().schema)) == rows(scan.to_table())

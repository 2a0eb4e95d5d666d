"""Whatever holds rows can be written: every kind of input gives the same dataset."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import datafusion
import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import lakehouse_source as lake
from lakehouse_source.errors import DatasetNotFoundError, InvalidOptionError, SchemaMismatchError
from tests.nested_nulls import NESTED_NULLS
from tests.versions import has_null_arrays

pytestmark = [pytest.mark.slow, pytest.mark.sampled(2)]

ROWS = pa.table(
    {
        "id": pa.array([1, 2, None, 4], pa.int64()),
        "name": pa.array(["a", None, "ü", ""], pa.string()),
        "x": pa.array([0.5, -1.0, None, float("inf")], pa.float64()),
    }
)


def batches() -> Iterator[pa.RecordBatch]:
    yield from ROWS.to_batches(max_chunksize=2)


class Stream:
    """Nothing but the Arrow stream interface."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return ROWS.__arrow_c_stream__(requested_schema)


def from_datafusion() -> Any:
    context = datafusion.SessionContext()
    context.register_record_batches("t", [ROWS.to_batches()])
    return context.sql("SELECT * FROM t")


INPUTS: dict[str, Callable[[], Any]] = {
    "table": lambda: ROWS,
    "batch": lambda: ROWS.combine_chunks().to_batches()[0],
    "reader": lambda: ROWS.to_reader(max_chunksize=1),
    "Arrow dataset": lambda: ds.dataset(ROWS),
    "pandas": lambda: ROWS.to_pandas(types_mapper=pd.ArrowDtype),
    "Polars": lambda: pl.from_arrow(ROWS),
    "Polars, lazy": lambda: pl.from_arrow(ROWS).lazy(),
    "DuckDB relation": lambda: duckdb.connect().from_arrow(ROWS),
    "DataFusion frame": from_datafusion,
    "Arrow stream": Stream,
    "iterator of batches": batches,
    "list of batches": lambda: list(batches()),
    "iterator of tables": lambda: iter([ROWS.slice(0, 3), ROWS.slice(3)]),
    "list of dicts": ROWS.to_pylist,
    "dict of lists": ROWS.to_pydict,
}


def by_duckdb(scan: lake.Scan) -> pa.Table:
    with duckdb.connect() as connection:
        scan.to_duckdb(connection, "t")
        return connection.sql("FROM t").to_arrow_table()


def by_datafusion(scan: lake.Scan) -> pa.Table:
    context = datafusion.SessionContext()
    scan.to_datafusion(context, "t")
    return context.sql("SELECT * FROM t").to_arrow_table()


def bag(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


# Arrow's dataset has the files that may match, and is filtered by its own expressions.
CONDITIONS = {None: None, "x > 0 OR id IS NULL": (ds.field("x") > 0) | ds.field("id").is_null()}
ENGINES: dict[str, Callable[[lake.Scan], pa.Table]] = {
    "PyArrow": lambda scan: scan.to_table(),
    "Arrow batches": lambda scan: pa.Table.from_batches(list(scan.to_batches())),
    "pandas": lambda scan: pa.Table.from_pandas(
        scan.to_table().to_pandas(types_mapper=pd.ArrowDtype), preserve_index=False
    ),
    "DuckDB": by_duckdb,
    "Polars": lambda scan: scan.to_polars().collect().to_arrow(),
    "DataFusion": by_datafusion,
}


@pytest.mark.parametrize("partition_by", [None, "name"])
@pytest.mark.parametrize("writer", ["pyarrow", "duckdb"])
@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.sampled(12)
def test_each_input_by_each_writer_is_the_same_rows_in_each_engine(
    kind: str, writer: str, partition_by: str | None, tmp_path: Path
) -> None:
    result = lake.write_dataset(
        INPUTS[kind](), tmp_path / "d", writer=writer, partition_by=partition_by
    )
    assert result.row_count == 4
    dataset = lake.open_dataset(tmp_path / "d")
    assert dataset.schema.types == ROWS.schema.types
    for condition in CONDITIONS:
        # By DuckDB over the Arrow table that all inputs are made of.
        with duckdb.connect() as connection:
            connection.register("t", ROWS)
            wanted = connection.sql(f"FROM t WHERE {condition or True}").to_arrow_table()
        for engine, read in ENGINES.items():
            found = read(dataset.scan(condition)).select(ROWS.column_names).cast(ROWS.schema)
            assert bag(found) == bag(wanted), (engine, condition)
        found = dataset.scan(condition).to_dataset().to_table(filter=CONDITIONS[condition])
        assert bag(found) == bag(wanted), ("Arrow dataset", condition)


@pytest.mark.parametrize("kind", INPUTS)
def test_every_kind_of_input_can_be_appended_in_a_transaction(kind: str, tmp_path: Path) -> None:
    catalog = f"sqlite:///{tmp_path}/c.db"
    with lake.transaction(catalog) as tx:
        tx.write(ROWS, tmp_path / "d")
    with lake.transaction(catalog) as tx:
        tx.write(INPUTS[kind](), tmp_path / "d")
    found = lake.read_dataset(tmp_path / "d", catalog=catalog)
    assert found.to_pylist() == ROWS.to_pylist() * 2


@pytest.mark.parametrize("lazy", [False, True])
def test_categories_of_polars_are_texts(lazy: bool, tmp_path: Path) -> None:
    """Polars gives them as dictionaries of string views, which Arrow does not decode."""
    kind = pl.Categorical
    frame = pl.DataFrame(
        {
            "one": pl.Series(["x", "y", None], dtype=kind),
            "many": pl.Series([["y", None], None, []], dtype=pl.List(kind)),
            "in": pl.Series([{"e": "b"}, None, {"e": None}], dtype=pl.Struct({"e": kind})),
            "known": pl.Series(["b", None, "a"], dtype=pl.Enum(["a", "b"])),
        }
    )
    lake.write_dataset(frame.lazy() if lazy else frame, tmp_path)
    found = lake.read_dataset(tmp_path)
    assert found.to_pylist() == frame.to_dicts()
    assert found.schema.field("one").type == found.schema.field("known").type == pa.string()


@has_null_arrays
def test_categories_of_polars_in_arrays_are_texts(tmp_path: Path) -> None:
    pairs = pl.Series([["y", "x"], None, ["x", "x"]], dtype=pl.Array(pl.Categorical, 2))
    frame = pl.DataFrame({"pair": pairs})
    lake.write_dataset(frame, tmp_path)
    assert lake.read_dataset(tmp_path).to_pylist() == frame.to_dicts()


@pytest.mark.sampled(6)
@has_null_arrays
@pytest.mark.parametrize("name", NESTED_NULLS)
def test_nested_nulls_without_a_type_are_written(name: str, tmp_path: Path) -> None:
    """Sliced, in small batches, with types that come later, and as the source of an upsert."""
    table = pa.table({"id": [0, 1, 2], "x": NESTED_NULLS[name]})
    lake.write_dataset(table.slice(1), tmp_path)
    lake.write_dataset(iter(table.to_batches(max_chunksize=1)), tmp_path)
    dataset = lake.open_dataset(tmp_path)
    assert bag(dataset.scan().to_table()) == bag(pa.concat_tables([table.slice(1), table]))
    dataset.delete("id > 0")
    found = dataset.upsert(table.slice(0, 2), on="id")
    assert (found.rows_updated, found.rows_inserted) == (1, 1)
    assert bag(dataset.scan().to_table()) == bag(table.slice(0, 2))


def test_a_slice_of_a_polars_frame_with_nulls_in_lists_of_structs(tmp_path: Path) -> None:
    frame = pl.DataFrame({"x": [[{"a": 1, "n": None}], [{"a": 2, "n": None}] * 2]}).slice(1)
    lake.write_dataset(frame, tmp_path)
    assert lake.read_dataset(tmp_path).to_pylist() == frame.to_dicts()


@pytest.mark.long
def test_an_iterator_is_read_batch_by_batch(tmp_path: Path) -> None:
    """The writer holds a few batches at a time, never all of them."""
    before, held = pa.total_allocated_bytes(), []

    def source() -> Iterator[pa.RecordBatch]:
        for _ in range(50):
            yield pa.record_batch({"x": pa.array(range(200_000), pa.int64())})
            held.append(pa.total_allocated_bytes() - before)

    lake.write_dataset(source(), tmp_path / "d", row_group_rows=200_000)
    assert lake.open_dataset(tmp_path / "d").scan().count_rows() == 50 * 200_000
    assert max(held) < 10 * 200_000 * 8


def test_a_schema_gives_python_values_their_types(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int16()), ("tags", pa.list_(pa.string()))])
    lake.write_dataset([{"id": 1, "tags": ["a"]}, {"id": 2}], tmp_path / "d", schema=schema)
    lake.write_dataset([], tmp_path / "d", schema=schema)
    lake.write_dataset({"id": [3], "tags": [None]}, tmp_path / "d", schema=schema)
    assert lake.read_dataset(tmp_path / "d").to_pylist() == [
        {"id": 1, "tags": ["a"]},
        {"id": 2, "tags": None},
        {"id": 3, "tags": None},
    ]
    assert lake.read_dataset(tmp_path / "d").schema.field("id").type == pa.int16()


def test_an_empty_iterator_with_a_schema_makes_an_empty_dataset(tmp_path: Path) -> None:
    lake.write_dataset(iter(()), tmp_path / "d", schema=ROWS.schema)
    assert lake.read_dataset(tmp_path / "d").schema == ROWS.schema


def test_a_key_that_only_a_later_row_has_is_not_lost(tmp_path: Path) -> None:
    lake.write_dataset([{"a": 1}, {"a": 2, "b": "x"}], tmp_path / "d")
    assert lake.read_dataset(tmp_path / "d").to_pylist() == [
        {"a": 1, "b": None},
        {"a": 2, "b": "x"},
    ]


@pytest.mark.parametrize(
    ("data", "options", "says"),
    [
        (42, {}, "type int is not tabular"),
        ("text", {}, "type str is not tabular"),
        ([], {}, "empty list"),
        (iter(()), {}, "has no schema"),
        ([1, 2], {}, "gives type int"),
        ([{"a": 1}, {"a": "x"}], {}, "list of dicts that Arrow cannot take"),
        ({"a": [1], "b": [1, 2]}, {}, "dict of lists that Arrow cannot take"),
        ([{"b": 1}], {"schema": pa.schema([("a", pa.int64())])}, "keys that the schema lacks: b"),
        (ROWS, {"schema": pa.schema([("a", pa.int64())])}, "differs from the schema of the data"),
        ({"a": [1, 2**70]}, {}, "dict of lists that Arrow cannot take"),
        (pl.Series("a", [1]), {}, "is a Series, one column"),
        (pd.Series([1], name="a"), {}, "is a Series, one column"),
        (pl.DataFrame({"a": pl.Series([2**100], dtype=pl.Int128)}), {}, "type Int128"),
        (pl.LazyFrame({"a": pl.Series([2**100], dtype=pl.Int128)}), {}, "type Int128"),
    ],
)
def test_what_is_not_tabular_is_refused_by_name(
    data: Any, options: dict[str, Any], says: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidOptionError, match=says):
        lake.write_dataset(data, tmp_path / "d", **options)
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("lazy", [False, True])
def test_python_objects_in_polars_are_refused(lazy: bool, tmp_path: Path) -> None:
    """Polars gives their addresses in memory as binary values."""
    frame = pl.DataFrame({"n": [1], "o": pl.Series([object()], dtype=pl.Object)})
    with pytest.raises(InvalidOptionError, match="column 'o' of type Object"):
        lake.write_dataset(frame.lazy() if lazy else frame, tmp_path / "d")
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("writer", ["pyarrow", "duckdb"])
@pytest.mark.parametrize(
    "value",
    [
        "340282366920938463463374607431768211455::UHUGEINT",
        "'01:02:03+01'::TIMETZ",
        "[{'a': 1::UHUGEINT}]",
        "MAP {1: '01:02:03+01'::TIMETZ}",
        "'101'::BIT",
        "12345678901234567891::BIGNUM",
    ],
)
def test_what_duckdb_gives_arrow_as_other_values_is_refused(
    value: str, writer: str, tmp_path: Path
) -> None:
    """The largest number became -1, a time lost its zone, bits were what DuckDB has in memory."""
    relation = duckdb.connect().sql(f"SELECT {value} AS v, 'UHUGEINT' AS s")
    with pytest.raises(InvalidOptionError, match=r"'v' of type .*(UHUGEINT|TIME WITH|BIT|BIGNUM)"):
        lake.write_dataset(relation, tmp_path / "d", writer=writer)
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("writer", ["pyarrow", "duckdb"])
@pytest.mark.parametrize("form", ["{}", "[{}]", "{{'a': [{}]}}"])
def test_a_number_of_39_digits_is_refused(form: str, writer: str, tmp_path: Path) -> None:
    """DuckDB gives it to Arrow as decimal(38, 0), which has 38 digits."""
    most = "99999999999999999999999999999999999999::HUGEINT"
    fits = duckdb.connect().sql(f"SELECT {form.format(most)} AS v")
    lake.write_dataset(fits, tmp_path / "d", writer=writer)
    more = duckdb.connect().sql(f"SELECT {form.format(f'{most} + 1')} AS v")
    with pytest.raises(SchemaMismatchError, match=r"'v'.*10{38} does not fit in precision"):
        lake.write_dataset(more, tmp_path / "d", mode="append", writer=writer)
    assert lake.open_dataset(tmp_path / "d").scan().count_rows() == 1


def test_an_iterator_that_changes_its_schema_commits_nothing(tmp_path: Path) -> None:
    changing = iter([pa.record_batch({"a": [1]}), pa.record_batch({"a": ["x"]})])
    with pytest.raises(InvalidOptionError, match="different schemas"):
        lake.write_dataset(changing, tmp_path / "d")
    with pytest.raises(DatasetNotFoundError):
        lake.open_dataset(tmp_path / "d")


def test_an_error_of_the_iterator_is_raised_as_it_is(tmp_path: Path) -> None:
    class Broken(Exception):
        pass

    def source() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"a": [1]})
        raise Broken("half way")

    with pytest.raises(Broken, match="half way"):
        lake.write_dataset(source(), tmp_path / "d")
    assert list((tmp_path / "d").rglob("*.parquet")) == []


@pytest.mark.parametrize(("progress", "terminal", "shown"), [
    (True, False, True), (False, True, False), (None, True, True), (None, False, False),
])  # fmt: skip
def test_a_progress_bar_is_shown_on_a_terminal_or_when_asked(
    progress: bool | None,
    terminal: bool,
    shown: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return terminal

    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr("lakehouse_source.progress.SHOWN_AFTER_SECONDS", 0.0)
    lake.write_dataset(ROWS, tmp_path / "d", progress=progress)
    assert ("writing" in screen.getvalue()) == shown


def test_no_progress_bar_for_work_that_is_done_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr("lakehouse_source.progress.SHOWN_AFTER_SECONDS", 3600.0)
    lake.write_dataset(ROWS, tmp_path / "d")
    assert screen.getvalue() == ""


# --- the index of a pandas frame ----------------------------------------------------------


def sales() -> pd.DataFrame:
    return pd.DataFrame({"k": ["a", "b", "a"], "day": [1, 1, 2], "v": [1, 2, 3]})


def test_the_key_of_groupby_is_written(tmp_path: Path) -> None:
    """It was lost."""
    grouped = sales().groupby("k").sum()
    lake.write_dataset(grouped, tmp_path / "one")
    found = lake.read_dataset(tmp_path / "one").to_pylist()
    assert found == [{"day": 3, "v": 4, "k": "a"}, {"day": 1, "v": 2, "k": "b"}]
    lake.write_dataset(sales().groupby(["k", "day"]).sum(), tmp_path / "two")
    assert lake.read_dataset(tmp_path / "two").column_names == ["v", "k", "day"]
    # The same columns as pandas writes itself.
    grouped.to_parquet(tmp_path / "own.parquet")
    own = pq.read_schema(tmp_path / "own.parquet")
    assert own.names == lake.read_dataset(tmp_path / "one").column_names


def test_an_index_is_a_column_through_all_doors(tmp_path: Path) -> None:
    """NULL keys were written."""
    uri = tmp_path / "things"
    lake.write_dataset(sales(), uri)
    lake.write_dataset(sales().set_index("k"), uri)
    with lake.transaction(f"sqlite://{uri}/_plake/catalog.db") as tx:
        tx.write(sales().set_index(["day", "k"]), uri)
    dataset = lake.open_dataset(uri)
    assert dataset.scan("k IS NULL OR day IS NULL").count_rows() == 0
    schema = pa.schema([("v", pa.int32()), ("k", pa.string()), ("day", pa.int16())])
    frame = sales().set_index("k")
    lake.write_dataset(frame, tmp_path / "typed", schema=schema)
    assert lake.read_dataset(tmp_path / "typed")["k"].to_pylist() == ["a", "b", "a"]
    change = sales().drop_duplicates("k").set_index("k")
    dataset.delete("day = 2")
    dataset.delete("k = 'a' AND v = 1")
    result = dataset.upsert(change, on=["k", "day"])
    assert result.rows_inserted == 1


def test_numbers_of_rows_are_no_column(tmp_path: Path) -> None:
    frame = sales()
    for number, part in enumerate([frame, frame[frame.v > 1], frame.sample(frac=1), frame[:0]]):
        lake.write_dataset(part, tmp_path / str(number))
    for folder in tmp_path.iterdir():
        assert not {"index", "__index_level_0__"} & set(lake.open_dataset(folder).schema.names)


def test_an_index_that_fits_nothing_is_refused_by_name(tmp_path: Path) -> None:
    lake.write_dataset(sales(), tmp_path)
    frame = sales().rename_axis("shop")
    with pytest.raises(lake.SchemaMismatchError, match="'shop'"):
        lake.write_dataset(frame, tmp_path)
    with pytest.raises(lake.InvalidOptionError, match="both named 'v'"):
        lake.write_dataset(sales().rename_axis("v"), tmp_path)
    unnamed = sales()
    unnamed.index = pd.Index(["x", "y", "z"])
    with pytest.raises(lake.InvalidOptionError, match=r"'x' first\) and no name.*rename_axis"):
        lake.write_dataset(unnamed, tmp_path)
    assert lake.open_dataset(tmp_path).version == 1


def test_numbers_that_are_one_level_of_an_index_are_not_lost(tmp_path: Path) -> None:
    """A key of `groupby` without a name was taken for the numbers of rows."""
    frame = sales()
    grouped = frame.groupby(["k", frame["day"].to_numpy()]).sum()
    with pytest.raises(lake.InvalidOptionError, match=r"1.* first\) and no name.*rename_axis"):
        lake.write_dataset(grouped, tmp_path)
    lake.write_dataset(grouped.rename_axis(["k", "at"]), tmp_path)
    assert lake.read_dataset(tmp_path)["at"].to_pylist() == [1, 2, 1]


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("nested", [False, True])
def test_integers_of_128_bits_are_refused_by_their_column(
    lazy: bool, nested: bool, tmp_path: Path
) -> None:
    polars = pytest.importorskip("polars")
    values = polars.Series("i", [2**100], polars.Int128)
    frame = values.implode().to_frame() if nested else values.to_frame()
    with pytest.raises(lake.InvalidOptionError, match=r"column 'i' of type .*Int128"):
        lake.write_dataset(frame.lazy() if lazy else frame, tmp_path)


@pytest.mark.parametrize("text", ["2024-01-01", "2024-01", "2024-01-01T10"])
def test_a_moment_of_numpy_is_taken_or_named(text: str, tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    with pytest.raises(lake.InvalidOptionError, match=rf"datetime64\('{text}.*in the column 't'"):
        lake.write_dataset([{"t": numpy.datetime64(text)}], tmp_path)
    lake.write_dataset([{"t": numpy.datetime64(text).astype("datetime64[us]")}], tmp_path)


def test_extension_types_are_stored_as_what_they_are_made_of(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    table = pa.table(
        {
            "u": pa.array([b"0123456789abcdef"], pa.uuid()),
            "b": pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1], pa.int8())),
        }
    )
    lake.write_dataset(table, tmp_path / "arrow")
    assert lake.read_dataset(tmp_path / "arrow").schema.types == [pa.binary(16), pa.int8()]
    lake.write_dataset(pd.DataFrame({"p": [pd.Period("2024-01", "M")]}), tmp_path / "pandas")
    assert lake.read_dataset(tmp_path / "pandas").schema.types == [pa.int64()]

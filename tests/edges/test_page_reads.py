"""Reading rows of a file by its page indexes: the same rows, fewer pages."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import uuid6
from hypothesis import given
from hypothesis import strategies as st

import lakehouse_source as lake
from lakehouse_source.model import ScanTask
from lakehouse_source.parquet import reader
from lakehouse_source.parquet.byte_ranges import ByteRanges
from lakehouse_source.parquet.page_reader import PageReader
from lakehouse_source.parquet.reader import read_task
from lakehouse_source.parquet.spec import ReadSpec
from lakehouse_source.predicate import PredicateSet
from lakehouse_source.schema.fields import initial
from lakehouse_source.storage import Storage
from tests.oracle import decide
from tests.strategies import Rows, conditions, tables

SUITE = Path(__file__).parents[3] / "shared" / "testdata" / "parquet-testing" / "data"


@pytest.fixture(autouse=True)
def always_by_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it costs: the files here are small."""
    for_any_size(monkeypatch)


def for_any_size(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reader, "_FEWEST_ROWS_FOR_PAGES", 0)
    patch.setattr(reader, "_FRUITLESS_ROW_GROUPS", 1_000_000)
    patch.setattr(PageReader, "pays", lambda *_: True)


@pytest.fixture
def page_reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts what was read by pages: calls, rows cut out, bytes of pages."""
    counts: Counter[str] = Counter()
    read, fetch = PageReader.read, ByteRanges.read

    def counted(self: PageReader, row_group: int, columns: Any, rows: Any) -> pa.Table:
        found = read(self, row_group, columns, rows)
        counts["reads"] += 1
        counts["rows"] += found.num_rows
        return found

    def fetched(self: ByteRanges, ranges: Any) -> Any:
        found = fetch(self, ranges)
        counts["bytes"] += sum(map(len, found.values()))
        return found

    monkeypatch.setattr(PageReader, "read", counted)
    monkeypatch.setattr(ByteRanges, "read", fetched)
    return counts


def write(folder: Path, table: pa.Table, name: str | None = None, **options: Any) -> Path:
    path = folder / (name or f"{uuid6.uuid7()}-{uuid6.uuid7()}.parquet")
    options = {"write_page_index": True, "max_rows_per_page": 5, "write_batch_size": 1, **options}
    pq.write_table(table, path, **options)
    return path


def read(path: Path, schema: pa.Schema, condition: Any, columns: Any = None) -> pa.Table:
    """What a scan task gives; `schema` has ids and is that of the file too."""
    bound = PredicateSet.of(condition).bind(schema)
    return read_under(path, schema, schema, None if bound.always_true else bound, columns)


def read_under(
    path: Path, schema: pa.Schema, written: pa.Schema, bound: Any, columns: Any = None
) -> pa.Table:
    storage = Storage(str(path.parent))
    spec = ReadSpec(
        uri=storage.uri,
        schema=schema,
        columns=tuple(columns or schema.names),
        partition_by=(),
        file_schemas={1: written},
        predicate=bound,
    )
    rows = pq.read_metadata(path).num_rows
    size = path.stat().st_size
    task = ScanTask(path.name, size, rows, rows, size, 1, None, (), True)
    tables = list(read_task(spec, task, storage))
    return pa.concat_tables(tables) if tables else spec.output_schema.empty_table()


# --- any table, any condition, any layout ------------------------------------------


@st.composite
def layouts(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "max_rows_per_page": draw(st.integers(1, 7)),
        "row_group_size": draw(st.sampled_from([10, 25, 1000])),
        "use_dictionary": draw(st.booleans()),
        "data_page_version": draw(st.sampled_from(["1.0", "2.0"])),
        "compression": draw(st.sampled_from(["none", "zstd", "snappy", "gzip"])),
        "write_page_checksum": draw(st.booleans()),
        "store_decimal_as_integer": draw(st.booleans()),
        "write_statistics": draw(st.sampled_from([True, True, True, False])),
    }


@st.composite
def longer_tables(draw: st.DrawFn) -> Rows:
    """Few different rows in runs, so that pages have narrow bounds."""
    found = draw(tables())
    schema = pa.schema([field for field in found.schema if "." not in field.name])
    runs = draw(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 12)), min_size=1, max_size=10))
    if draw(st.booleans()):
        runs.sort()
    rows = (
        [row for at, times in runs for row in [found.rows[at % len(found.rows)]] * times]
        if (found.rows)
        else []
    )
    return Rows(schema, tuple(rows))


@st.composite
def questions(draw: st.DrawFn) -> tuple[Rows, Any, dict[str, Any]]:
    table = draw(longer_tables())
    return table, draw(conditions(table)), draw(layouts())


def test_rows_by_pages_are_those_that_the_oracle_keeps(
    tmp_path_factory: pytest.TempPathFactory, page_reads: Counter[str]
) -> None:
    folder = tmp_path_factory.mktemp("any")

    @given(questions())
    def property_(drawn: tuple[Rows, Any, dict[str, Any]]) -> None:
        rows, condition, layout = drawn
        numbered = rows.table().append_column("n", pa.array(range(len(rows.rows)), pa.int64()))
        schema = initial(pa.schema([field.remove_metadata() for field in numbered.schema]))
        path = write(folder, numbered.cast(schema), **layout)
        wanted = [
            n for n, row in enumerate(rows.rows) if decide(condition, row, rows.types) is True
        ]
        found = read(path, schema, condition)
        path.unlink()
        assert found.column("n").to_pylist() == wanted
        expected = numbered.take(pa.array(wanted, pa.int64())).cast(found.schema)
        for name in found.column_names:
            assert repr(found[name].to_pylist()) == repr(expected[name].to_pylist())

    property_()
    assert page_reads["reads"] > 30, "most questions were not answered by pages"


def ids(count: int = 400, **columns: Any) -> pa.Table:
    table = pa.table({"id": pa.array(range(count), pa.int64()), **columns})
    return table.cast(initial(table.schema))


def everything(count: int = 400) -> pa.Table:
    return ids(
        count,
        text=[f"text {n % 50}" if n % 9 else None for n in range(count)],
        alike=["same"] * count,
        struct=[None if n % 5 == 0 else {"a": n, "b": {"c": f"v{n}"}} for n in range(count)],
        list=[None if n % 6 == 0 else [n] * (n % 3) for n in range(count)],
        map=pa.array([[(f"k{n}", n)] for n in range(count)], pa.map_(pa.string(), pa.int32())),
        deep=[[{"x": [n, None] * (n % 4), "y": None}] for n in range(count)],
    )


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("condition", ["id = 123", "id IN (3, 99, 100, 399)", "id >= 397",
                                       "struct.a = 7", "id < 60 AND text IS NULL"])  # fmt: skip
def test_nested_columns_are_read_by_pages(
    tmp_path: Path, page_reads: Counter[str], version: str, condition: str
) -> None:
    table = everything()
    # Pages of different columns end at different rows.
    path = write(
        tmp_path, table, data_page_version=version, data_page_size=100, max_rows_per_page=13
    )
    found = read(path, table.schema, condition)
    whole = table.to_pylist()
    asked: dict[str, Any] = {
        "id = 123": lambda row: row["id"] == 123,
        "id IN (3, 99, 100, 399)": lambda row: row["id"] in (3, 99, 100, 399),
        "id >= 397": lambda row: row["id"] >= 397,
        "struct.a = 7": lambda row: row["struct"] is not None and row["struct"]["a"] == 7,
        "id < 60 AND text IS NULL": lambda row: row["id"] < 60 and row["text"] is None,
    }
    assert found.to_pylist() == [row for row in whole if asked[condition](row)]
    assert page_reads["reads"] >= 2


def test_a_part_of_a_struct_is_read_by_pages(tmp_path: Path, page_reads: Counter[str]) -> None:
    table = everything()
    lake.write_dataset(table, tmp_path / "d")
    with lake.open_catalog(f"sqlite://{tmp_path}/d/_plake/catalog.db") as catalog:
        found = lake.read_dataset(
            tmp_path / "d", catalog=catalog, predicates="id = 7", columns=["struct"]
        )
    assert found.to_pylist() == [{"struct": {"a": 7, "b": {"c": "v7"}}}]


def test_only_the_pages_that_may_match_are_fetched(
    tmp_path: Path, page_reads: Counter[str]
) -> None:
    count = 20_000
    table = ids(count, wide=[f"{n:0200d}" for n in range(count)])
    path = write(tmp_path, table, max_rows_per_page=100, use_dictionary=False, compression="none")
    assert read(path, table.schema, "id = 12345").num_rows == 1
    # One page of each column, and the indexes of 200 pages.
    assert page_reads["rows"] == 100 + 1
    assert page_reads["bytes"] < 100 * (8 + 204) + 2 * 200 * 20 + 200 * 24
    assert path.stat().st_size > 4_000_000

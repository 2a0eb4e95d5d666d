"""Reading rows of a file by its page indexes: the same rows, fewer pages."""

from __future__ import annotations

import io
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import uuid6
from hypothesis import given, settings
from hypothesis import strategies as st

import lakehouse_source as lake
from lakehouse_source.language import PredicateSet
from lakehouse_source.model import ScanTask
from lakehouse_source.parquet import open_file, reader
from lakehouse_source.parquet.page_reader import ChosenPages, PageReader
from lakehouse_source.parquet.read_write_specs import ReadSpec
from lakehouse_source.parquet.reader import read_task
from lakehouse_source.schema.merge import initial
from lakehouse_source.storage import Storage
from lakehouse_source.storage.files import ByteRanges, OutsideFile, merged
from tests.edges.parquet_edit import Node, fuzz
from tests.oracle import decide
from tests.strategies import Rows, conditions, tables

pytestmark = pytest.mark.slow

PUBLIC = sorted(Path("/work/shared/testdata/parquet-testing").rglob("*.parquet"))


@pytest.fixture(autouse=True)
def always_by_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it costs: the files here are small."""
    for_any_size(monkeypatch)


def for_any_size(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reader, "FEWEST_ROWS_FOR_PAGES", 0)
    patch.setattr(open_file, "_FRUITLESS_ROW_GROUPS", 1_000_000)
    patch.setattr(ChosenPages, "pays", True)


@pytest.fixture
def page_reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts what was read by pages: row groups, rows cut out, bytes of pages."""
    counts: Counter[str] = Counter()
    read, fetch = PageReader.read, ByteRanges.read

    def counted(self: PageReader, chosen: ChosenPages) -> pa.Table:
        found = read(self, chosen)
        counts["reads"] += len(chosen.whole)
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
    assert page_reads["reads"] > settings.default.max_examples // 3, (
        "most questions were not answered by pages"
    )


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


@pytest.mark.parametrize(("version", "row_group_size"), [("1.0", 400), ("2.0", 100)])
@pytest.mark.parametrize("condition", ["id = 123", "id IN (3, 99, 100, 399)", "id >= 397",
                                       "struct.a = 7", "id < 60 AND text IS NULL"])  # fmt: skip
def test_nested_columns_are_read_by_pages(
    tmp_path: Path,
    page_reads: Counter[str],
    version: str,
    row_group_size: int,
    condition: str,
) -> None:
    table = everything()
    # Pages of different columns end at different rows.
    layout = {"data_page_size": 100, "max_rows_per_page": 13, "row_group_size": row_group_size}
    path = write(tmp_path, table, data_page_version=version, **layout)
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


def test_pages_of_several_row_groups_are_read_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = everything(1000)
    path = write(tmp_path, table, row_group_size=100)
    read_pages, chosen = PageReader.read, list[list[int]]()

    def noted(self: PageReader, pages: ChosenPages) -> pa.Table:
        chosen.append([*pages.whole])
        return read_pages(self, pages)

    monkeypatch.setattr(PageReader, "read", noted)
    wanted = [3, 299, 300, 301, 702, 999]
    assert read(path, table.schema, [("id", "in", wanted)]) == table.take(wanted)
    assert chosen == [[0, 2, 3, 7, 9]] * 2  # the condition's column, then the others
    chosen.clear()
    # As many rows as this are decoded at once, whatever the file holds.
    monkeypatch.setattr(reader, "_ROWS_AT_ONCE", 10)
    assert read(path, table.schema, [("id", "in", wanted)]) == table.take(wanted)
    assert chosen == [[0, 2], [0, 2], [3, 7], [3, 7], [9], [9]]


def test_a_condition_that_rules_nothing_out_is_read_whole(
    tmp_path: Path, page_reads: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    table = ids(100_000, other=[n % 7 for n in range(100_000)])
    path = write(tmp_path, table, max_rows_per_page=1000, write_batch_size=1000)
    seen = []
    with monkeypatch.context() as patch:
        patch.setattr(PageReader, "read", lambda *_: seen.append(1))
        assert read(path, table.schema, "other = 3").num_rows == 14_286
        assert read(path, table.schema, "id >= 10").num_rows == 99_990
    assert not seen


@pytest.mark.parametrize(
    ("written", "now", "condition", "wanted"),
    [
        (pa.int32(), pa.int64(), "c = 77", [77]),
        (pa.int32(), pa.int64(), "c > 5000000000", []),
        (pa.int32(), pa.float64(), "c < 2.5", [0, 1, 2]),
        (pa.int32(), pa.decimal128(20, 3), "c IN (3.000, 5.5, 198)", [3, 198]),
        (pa.decimal128(9, 2), pa.decimal128(12, 4), "c = 44.0000", [44]),
        (pa.float32(), pa.float64(), "c BETWEEN 3.5 AND 5", [4, 5]),
        (pa.date32(), pa.timestamp("us"), "c >= '1970-07-17'", [197, 198, 199]),
        (pa.timestamp("ms"), pa.timestamp("us"), "c = '1970-01-01 00:00:00.050'", [50]),
        (pa.int32(), pa.string(), "c = '150'", [150]),
        (pa.timestamp("us"), pa.string(), "c IS NULL", []),
    ],
)
def test_bounds_of_a_promoted_column_are_converted(
    tmp_path: Path, written: pa.DataType, now: pa.DataType, condition: str, wanted: list[int]
) -> None:
    numbers = pa.array(range(200), pa.int32())
    column = numbers.cast(pa.int64()) if pa.types.is_timestamp(written) else numbers
    column = column.cast(pa.decimal128(12, 0)) if pa.types.is_decimal(written) else column
    table = ids(200, c=column.cast(written))
    path = write(tmp_path, table)
    fields = [table.schema.field(0), table.schema.field(1).with_type(now)]
    bound = PredicateSet.of(condition).bind(pa.schema(fields))
    found = read_under(path, pa.schema(fields), table.schema, bound)
    assert found["id"].to_pylist() == wanted
    assert found["c"].type == now


def test_a_column_without_an_index_may_have_any_value(
    tmp_path: Path, page_reads: Counter[str]
) -> None:
    table = ids(200, other=[n * 7 % 200 for n in range(200)])
    path = write(tmp_path, table, write_statistics=["id"])
    assert read(path, table.schema, "id = 3 OR other = 7")["id"].to_pylist() == [1, 3]
    assert read(path, table.schema, "id < 50 AND other = 7")["id"].to_pylist() == [1]
    assert page_reads["reads"] >= 2


def test_negative_numbers_beside_a_page_without_values(
    tmp_path: Path, page_reads: Counter[str]
) -> None:
    numbers = [None if 50 <= n < 55 else n - 100 for n in range(200)]
    table = ids(200, number=pa.array(numbers, pa.int32()))
    path = write(tmp_path, table)
    assert read(path, table.schema, "number = -98", ["number"])["number"].to_pylist() == [-98]
    assert page_reads["rows"] == 5
    assert read(path, table.schema, "number IS NULL")["id"].to_pylist() == list(range(50, 55))


def test_nan_is_in_no_bound_and_greater_than_every_number(
    tmp_path: Path, page_reads: Counter[str]
) -> None:
    table = ids(100, x=[float("nan") if n == 57 else -0.0 if n == 3 else n for n in range(100)])
    path = write(tmp_path, table)
    for condition, wanted in (
        ("x > 98.5", [57, 99]),
        ("x = 'NaN'", [57]),
        ("NOT (x <= 98)", [57, 99]),
        ("x = 0.0", [0, 3]),
        ("x IN (-0.0, 99)", [0, 3, 99]),
    ):
        assert read(path, table.schema, condition)["id"].to_pylist() == wanted
    assert page_reads["reads"] >= 5


def test_a_damaged_page_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    table = ids(2000, text=[f"some text {n}" for n in range(2000)])
    path = write(tmp_path, table, compression="none", use_dictionary=False,
                 write_page_checksum=True, max_rows_per_page=100)  # fmt: skip
    data = bytearray(path.read_bytes())
    at = data.index(b"some text 1234")
    data[at + 5] ^= 1
    path.write_bytes(data)
    assert read(path, table.schema, "id = 555")["text"].to_pylist() == ["some text 555"]
    with pytest.raises(lake.CorruptDatasetError, match=path.name):
        read(path, table.schema, "id = 1222")


# --- indexes that cannot be used ----------------------------------------------------


def with_index(data: bytes, position: int, field: int, change: Any) -> bytes | None:
    """The file with another index of a column: field 4 is the offset index, 6 the column index."""
    start, footer = fuzz.footer_of(data)
    tree = fuzz.Reader(footer).struct()
    chunk = Node(tree)[4][0][1][position]
    at, length = chunk[field], chunk[field + 1]
    index = fuzz.Reader(data[at : at + length]).struct()
    changed = change(index)
    if changed is None:
        return None
    chunk[field], chunk[field + 1] = start, len(changed)
    return bytes(fuzz.framed(data[:start] + changed, fuzz.write_struct(tree)))


def mutated(index: list[Any], rng: random.Random) -> bytes | None:
    """The index changed somewhere; None where only bounds changed: such lies cannot be seen."""
    before = [field.value for field in index if field.id in (2, 3, 5)]
    shapes = [len(value[1]) for value in before if isinstance(value, tuple)]
    fuzz.mutate_tree(index, rng)
    after = [field.value for field in index if field.id in (2, 3, 5)]
    is_column_index = len(shapes) > 0
    same = shapes == [len(value[1]) for value in after if isinstance(value, tuple)]
    if is_column_index and same and before != after:
        return None
    return bytes(fuzz.write_struct(index))


@pytest.mark.long
@pytest.mark.parametrize("field", [4, 6])
def test_mutants_of_an_index_never_give_other_rows(tmp_path: Path, field: int) -> None:
    table = everything(120).select(["id", "text", "list", "struct"])
    data = write(tmp_path, table).read_bytes()
    right = {n: table.slice(n, 1).to_pylist() for n in (0, 57, 119)}
    outcomes: Counter[str] = Counter()
    for seed in range(60):
        rng = random.Random(seed)
        # Bounds of `id` are used; places of pages of each column.
        position = 0 if field == 6 else rng.randrange(5)
        mutant = with_index(data, position, field, lambda index, rng=rng: mutated(index, rng))
        if mutant is None:
            continue
        path = tmp_path / f"{uuid6.uuid7()}-{uuid6.uuid7()}.parquet"
        path.write_bytes(mutant)
        for n, expected in right.items():
            # Whatever the index says, the data are there.
            assert read(path, table.schema, f"id = {n}").to_pylist() == expected, (seed, n)
            outcomes["rows"] += 1
        path.unlink()
    assert outcomes["rows"] > 50


def places_of(change: Any) -> Any:
    """A change of the list of page locations: each is [offset, size, first row]."""

    def act(index: list[Any]) -> bytes:
        change([Node(item.value) for item in index[0].value[1]])
        return bytes(fuzz.write_struct(index))

    return act


def later_rows(pages: list[Any]) -> None:
    pages[3][3] += 1


def longer_page(pages: list[Any]) -> None:
    pages[3][2] += 1


def shifted(pages: list[Any]) -> None:
    for page in pages:
        page[1] += 3


def outside(pages: list[Any]) -> None:
    pages[-1][2] = 1 << 40


@pytest.mark.parametrize("change", [later_rows, longer_page, shifted, outside])
@pytest.mark.parametrize("position", [0, 1, 2])
def test_wrong_places_of_pages_make_the_row_group_be_read_whole(
    tmp_path: Path, change: Any, position: int
) -> None:
    table = everything(60).select(["id", "text", "list"])
    path = write(tmp_path, table, use_dictionary=False)
    changed = with_index(path.read_bytes(), position, 4, places_of(change))
    assert changed is not None
    path.write_bytes(changed)
    for n in range(60):
        assert read(path, table.schema, f"id = {n}").to_pylist() == table.slice(n, 1).to_pylist()


def test_an_index_that_contradicts_the_statistics_is_not_used(tmp_path: Path) -> None:
    table = ids(60)
    path = write(tmp_path, table)

    def lowest_raised(index: list[Any]) -> bytes:
        Node(index)[2].fields[0].value = (2).to_bytes(8, "little")
        return bytes(fuzz.write_struct(index))

    changed = with_index(path.read_bytes(), 0, 6, lowest_raised)
    assert changed is not None
    path.write_bytes(changed)
    assert read(path, table.schema, "id = 0")["id"].to_pylist() == [0]


# --- files of others ----------------------------------------------------------------


def test_files_of_engines_that_write_no_index_are_read_whole(
    tmp_path: Path, page_reads: Counter[str]
) -> None:
    table = ids(50_000, text=[f"text {n % 500}" for n in range(50_000)])
    frame = polars.DataFrame(table)
    frame.write_parquet(tmp_path / "polars.parquet", data_page_size=1000)
    with duckdb.connect() as connection:
        connection.register("t", table)
        connection.execute(f"COPY t TO '{tmp_path}/duckdb.parquet' (FORMAT parquet)")
    for name in ("polars", "duckdb"):
        found = read(tmp_path / f"{name}.parquet", table.schema, "id = 4321")
        assert found.to_pylist() == [{"id": 4321, "text": "text 321"}]


def test_a_file_of_others_with_an_index_is_read_by_pages(
    tmp_path: Path, page_reads: Counter[str]
) -> None:
    count = 5000
    table = ids(
        count,
        t=pa.array([1000 * n for n in range(count)], pa.timestamp("ns")),
        d=pa.array([n % 10 for n in range(count)]).dictionary_encode(),
        s=pa.array([f"{n:05d}" for n in range(count)], pa.large_string()),
    )
    bare = pa.table({name: table[name] for name in table.column_names})
    (tmp_path / "d").mkdir()
    pq.write_table(
        bare,
        tmp_path / "d" / "theirs.parquet",
        write_page_index=True,
        max_rows_per_page=100,
        write_batch_size=100,
    )
    dataset = lake.convert(tmp_path / "d", partitioning=None)
    for condition in ("id = 777", "s = '00777'", "t = '1970-01-01 00:00:00.000777'"):
        found = dataset.scan(condition, ["id", "d", "s"]).to_table()
        assert found.to_pylist() == [{"id": 777, "d": 7, "s": "00777"}]
    assert page_reads["reads"] >= 6


@pytest.mark.sampled(3)
@pytest.mark.skipif(not PUBLIC, reason="the public test files are not here")
@pytest.mark.parametrize("path", PUBLIC, ids=lambda path: path.stem)
def test_public_files_have_the_same_rows_by_pages(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(path, tmp_path)
    try:
        dataset = lake.convert(tmp_path, partitioning=None)
        rows = dataset.scan().to_table()
    except lake.PlakeError:
        return  # tests of `add_files` say which files are refused
    asked: list[Any] = []
    for field in rows.schema:
        if pa.types.is_nested(field.type):
            continue
        asked.append(f"`{field.name}` IS NULL")
        if pa.types.is_integer(field.type) or pa.types.is_string(field.type):
            values = [value for value in rows[field.name].to_pylist() if value is not None]
            asked += [(field.name, "=", value) for value in values[len(values) // 2 :][:1]]
    if path.stem == "datapage_v1-corrupt-checksum":
        with pytest.raises(lake.CorruptDatasetError, match="checksum"):
            dataset.scan(asked[0]).to_table()
        return
    for condition in asked[:8]:
        paged = dataset.scan(condition).to_table()
        with monkeypatch.context() as patch:
            patch.setattr(reader, "FEWEST_ROWS_FOR_PAGES", 1 << 60)
            whole = dataset.scan(condition).to_table()
        assert repr(paged.to_pylist()) == repr(whole.to_pylist())


# --- bytes --------------------------------------------------------------------------


def test_ranges_that_are_close_become_one_request() -> None:
    assert merged([(0, 10), (10, 5), (30, 5), (100, 1)], 15) == [(0, 35), (100, 1)]
    assert merged([(0, 100), (10, 5), (101, 5)], 0) == [(0, 100), (101, 5)]


@pytest.mark.parametrize("is_local", [True, False])
def test_ranges_have_the_bytes_of_the_file(is_local: bool) -> None:
    data = random.Random(1).randbytes(500_000)
    source = ByteRanges(pa.PythonFile(io.BytesIO(data), mode="r"), is_local=is_local)
    wanted = [(0, 4), (4, 10), (2, 3), (200_000, 7), (499_999, 1), (499_000, 1000), (300_000, 0)]
    assert source.read(wanted) == {(at, size): data[at : at + size] for at, size in wanted}
    for outside in ((-1, 5), (499_999, 2), (0, -1)):
        with pytest.raises(OutsideFile):
            source.read([outside])

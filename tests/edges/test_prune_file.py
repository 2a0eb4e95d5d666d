"""Pruning one Parquet file: bloom filters and page indexes, ours and others'."""

from __future__ import annotations

import decimal
import random
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import lakehouse_source as lake
from lakehouse_source.parquet.bloom import BloomFilter, encodings_of
from tests.edges.parquet_edit import Node, chunk, edited, field, file_of, fuzz
from tests.versions import PYARROW, writes_bloom_filters

SUITE = Path(__file__).parents[3] / "shared" / "testdata" / "parquet-testing" / "data"
needs_suite = pytest.mark.skipif(not SUITE.is_dir(), reason="the public test files are not here")


def many(count: int = 2_000) -> pa.Table:
    rng = random.Random(5)
    return pa.table(
        {
            "n": pa.array(range(count), pa.int32()),
            "even": pa.array([2 * rng.randrange(10_000) for _ in range(count)]),
            "word": [
                f"w{rng.randrange(500)}" if rng.random() > 0.05 else None for _ in range(count)
            ],
            "x": [rng.choice([0.0, -0.0, float("nan"), None, 1.5, 2.5]) for _ in range(count)],
            "d": pa.array(
                [decimal.Decimal(rng.randrange(-500, 500)) / 100 for _ in range(count)],
                pa.decimal128(38, 2),
            ),
            "st": [{"a": rng.randrange(100)} if rng.random() > 0.1 else None for _ in range(count)],
        }
    )


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("prune") / "many.parquet"
    options = {name: {"ndv": 500, "fpp": 0.001} for name in ("even", "word", "d")}
    pq.write_table(
        many(),
        path,
        row_group_size=500,
        write_page_index=True,
        max_rows_per_page=50,
        **({"bloom_filter_options": options} if PYARROW >= 24 else {}),
    )
    return str(path)


CONDITIONS = [
    "n = 777",
    "n BETWEEN 480 AND 520",
    "even = 4001",
    "even IN (4001, 4003)",
    "word = 'nowhere'",
    "word = 'w7' OR n = 3",
    "NOT (word = 'nowhere')",
    "word <=> 'nowhere'",
    "word IS NULL AND n < 100",
    "x = 'NaN' AND n > 1900",
    "x = 0.0 AND n < 60",
    "NOT (x > 1) AND n < 60",
    "d = 1.23",
    "d = 9.99",
    "st.a = 42 AND n < 300",
    "n IN (1, 600, NULL)",
]


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("page_index", [True, False])
@pytest.mark.parametrize("bloom_filters", [True, False])
def test_no_matching_row_is_left_out(
    path: str, condition: str, page_index: bool, bloom_filters: bool
) -> None:
    pruned = lake.prune_file(path, condition, page_index=page_index, bloom_filters=bloom_filters)
    duck = condition.replace("<=>", "IS NOT DISTINCT FROM")
    matching = {n for (n,) in duckdb.sql(f"SELECT n FROM '{path}' WHERE {duck}").fetchall()}
    kept: set[int] = set()
    for group in pruned.row_groups:
        for first, end in group.row_ranges or ((0, 500),):
            kept |= set(range(500 * group.index + first, 500 * group.index + end))
    assert matching <= kept
    everything = sorted(
        [
            *(group.index for group in pruned.row_groups),
            *pruned.pruned_by_statistics,
            *pruned.pruned_by_bloom_filter,
            *pruned.pruned_by_page_index,
        ]
    )
    assert everything == list(range(pruned.row_groups_total))


@writes_bloom_filters
def test_a_bloom_filter_prunes_what_statistics_cannot(path: str) -> None:
    pruned = lake.prune_file(path, "even = 4001 AND n >= 0")
    assert pruned.row_groups == ()
    assert pruned.pruned_by_bloom_filter == (0, 1, 2, 3)
    assert [(w.condition, w.by_statistics, w.by_bloom_filter) for w in pruned.why] == [
        ("even = 4001", 0, 4),
        ("n >= 0", 0, 0),
    ]
    assert len(lake.prune_file(path, "even = 4001", bloom_filters=False).row_groups) == 4


def test_a_page_index_narrows_to_rows(path: str) -> None:
    pruned = lake.prune_file(path, "n BETWEEN 480 AND 520")
    assert [(g.index, g.row_ranges) for g in pruned.row_groups] == [
        (0, ((450, 500),)),
        (1, ((0, 50),)),
    ]


@pytest.mark.parametrize(
    "type_",
    [pa.int8(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.decimal128(12, 2)],
    ids=str,
)
def test_pages_of_numbers_of_both_signs(tmp_path: Path, type_: pa.DataType) -> None:
    path = tmp_path / "signs.parquet"
    numbers = pa.array(range(-100, 100), pa.int32()).cast(type_, safe=False)
    pq.write_table(pa.table({"n": numbers}), path, write_page_index=True, max_rows_per_page=10)
    for value in (-100, -1, 0, 99):
        (group,) = lake.prune_file(path, f"n = {value}").row_groups
        at = value + 100
        assert any(first <= at < end for first, end in group.row_ranges or ())
    (group,) = lake.prune_file(path, "n < -50").row_groups
    assert group.row_ranges == ((0, 50),)


def test_a_folder_whose_name_ends_with_a_space(tmp_path: Path) -> None:
    folder = tmp_path / "p= "
    folder.mkdir()
    pq.write_table(pa.table({"n": [1]}), folder / "f.parquet")
    assert lake.prune_file(folder / "f.parquet", "n = 2").row_groups == ()


@pytest.mark.parametrize(
    ("condition", "left_out"),
    [
        ("n = 777 AND my_function(word) = 'W7'", "my_function(word) = 'W7'"),
        ("n = 777 AND even IN (SELECT 1)", "even IN (SELECT 1)"),
        (["n = 777", ("st", "=", 1)], "st = 1"),
        ([("n", "=", 777), pc.field("n") < pc.field("even")], "less(n, even)"),
    ],
)
def test_a_conjunct_that_cannot_be_decided_is_left_out_and_reported(
    path: str, condition: Any, left_out: str
) -> None:
    pruned = lake.prune_file(path, condition)
    assert [group.index for group in pruned.row_groups] == [1]
    assert [one.condition for one in pruned.not_used] == [left_out]
    assert all(one.reason for one in pruned.not_used)


@pytest.mark.parametrize(
    "condition",
    ["n - 1 = 776", "floor(n / 1.0) = 777 AND upper(word) <> ''", "n BETWEEN 777 AND 7 * 111"],
)
def test_row_groups_are_pruned_by_what_an_expression_implies(path: str, condition: str) -> None:
    pruned = lake.prune_file(path, condition)
    assert [group.index for group in pruned.row_groups] == [1]
    assert pruned.not_used == ()


def test_columns_are_compared_by_their_bounds(tmp_path: Path) -> None:
    rows = pa.table({"a": range(100), "b": range(100, 0, -1)})
    pq.write_table(rows, tmp_path / "f.parquet", row_group_size=10)
    path = tmp_path / "f.parquet"
    assert [group.index for group in lake.prune_file(path, "a > b").row_groups] == [5, 6, 7, 8, 9]
    assert [group.index for group in lake.prune_file(path, "a = b").row_groups] == [5]
    assert len(lake.prune_file(path, "a != b").row_groups) == 10


@pytest.mark.parametrize("condition", ["nowhere = 1", pc.field("nowhere") == 1, "n = ", "n ="])
def test_a_mistake_in_a_condition_stays_an_error(path: str, condition: Any) -> None:
    with pytest.raises(lake.InvalidPredicateError):
        lake.prune_file(path, condition)


def test_an_arrow_expression_prunes_a_file(path: str) -> None:
    pruned = lake.prune_file(path, (pc.field("even") == 4001) | (pc.field("n") == 777))
    assert [group.index for group in pruned.row_groups] == [1]
    assert pruned.pruned_by_bloom_filter or PYARROW < 24
    assert pruned.not_used == ()


def test_a_footer_alone_gives_statistics(path: str) -> None:
    pruned = lake.prune_file(pq.read_metadata(path), "n = 777 AND even = 4001")
    assert [group.index for group in pruned.row_groups] == [1]
    assert pruned.pruned_by_bloom_filter == ()


def filter_offset(path: str, column: int) -> int | None:
    """Where DuckDB finds the bloom filter of a column in the first row group."""
    found = duckdb.execute(
        "SELECT bloom_filter_offset FROM parquet_metadata(?) "
        "WHERE row_group_id = 0 AND column_id = ?",
        [path, column],
    ).fetchall()
    return found[0][0]


def test_a_filter_written_by_duckdb_is_honoured(tmp_path: Path) -> None:
    path = str(tmp_path / "duck.parquet")
    duckdb.sql(
        f"COPY (SELECT 2 * (i % 100) AS even, 'w' || 2 * (i % 100) AS word FROM range(5000) t(i)) "
        f"TO '{path}' (FORMAT parquet)"
    )
    assert filter_offset(path, 0) is not None
    for value in range(0, 200, 2):
        assert lake.prune_file(path, f"even = {value} AND word = 'w{value}'").row_groups
    pruned = [
        lake.prune_file(path, condition).pruned_by_bloom_filter
        for value in range(1, 100, 2)
        for condition in (f"even = {value}", f"word = 'w1{value:02}'")
    ]
    # A filter may be wrong about a few.
    assert pruned.count((0,)) > 90


@needs_suite
@pytest.mark.parametrize(
    "name",
    ["data_index_bloom_encoding_stats.parquet", "data_index_bloom_encoding_with_length.parquet"],
)
def test_a_filter_of_another_writer_is_honoured(name: str) -> None:
    """A known answer: written by parquet-mr."""
    path = str(SUITE / name)
    present = pq.read_table(path)["String"].to_pylist()
    for word in present:
        assert len(lake.prune_file(path, [("String", "=", word)]).row_groups) == 1
    for word in ("NOT THERE", "Hellp", "quick"):
        pruned = lake.prune_file(path, [("String", "in", [word])])
        assert pruned.row_groups == ()
        by = pruned.pruned_by_bloom_filter or pruned.pruned_by_statistics
        assert by == (0,)


def test_a_page_index_that_calls_every_page_a_null_page(tmp_path: Path) -> None:
    """A writer without statistics did so, and counted -1 nulls in each page."""
    data = file_of(pa.table({"a": [1, 2, None]}), write_page_index=True)
    index = fuzz.write_struct(
        [
            field(fuzz.LIST, 1, (fuzz.TRUE, [field(fuzz.TRUE, 0, True)])),
            field(fuzz.LIST, 2, (fuzz.BINARY, [field(fuzz.BINARY, 0, b"")])),
            field(fuzz.LIST, 3, (fuzz.BINARY, [field(fuzz.BINARY, 0, b"")])),
            field(fuzz.I32, 4, 0),
            field(fuzz.LIST, 5, (fuzz.I64, [field(fuzz.I64, 0, -1)])),
        ]
    )

    def change(footer: Node) -> None:
        chunk(footer)[6], chunk(footer)[7] = fuzz.footer_of(data)[0], len(index)

    path = tmp_path / "lies.parquet"
    path.write_bytes(edited(data, change, appended=index))
    for condition in ("a IS NOT NULL", "a = 2", "a IS NULL"):
        assert len(lake.prune_file(path, condition).row_groups) == 1


@needs_suite
def test_a_page_index_that_lies_is_not_believed() -> None:
    """Its writer calls every page a null page and counts -1 nulls in each."""
    path = str(SUITE / "datapage_v1-snappy-compressed-checksum.parquet")
    assert len(lake.prune_file(path, "a IS NOT NULL").row_groups) == 1


@needs_suite
def test_files_of_the_public_suite_lose_no_row() -> None:
    read = 0
    for file in sorted(SUITE.glob("*.parquet")):
        try:
            table = pq.read_table(file)
        except (pa.ArrowException, OSError):
            continue
        read += 1
        for name in table.column_names:
            values = table[name].combine_chunks()
            for condition in (f"`{name}` IS NOT NULL", f"`{name}` IS NULL"):
                pruned = lake.prune_file(file, condition)
                holds = values.null_count < len(values) if "NOT" in condition else values.null_count
                assert not holds or pruned.row_groups, (file.name, condition)
    assert read > 20


@writes_bloom_filters
class TestDamagedFilters:
    """Whatever its bytes say, a filter that is damaged must not prune, or raise."""

    def read_at(self, data: bytes) -> Any:
        return lambda length, offset: data[offset : offset + length]

    def test_changed_bytes_of_the_header(self, path: str) -> None:
        whole = Path(path).read_bytes()
        offset = filter_offset(path, 1)
        assert offset is not None
        opened = 0
        for seed in range(200):
            data = bytearray(whole)
            rng = random.Random(seed)
            data[offset + rng.randrange(24)] = rng.randrange(256)
            found = BloomFilter.open(self.read_at(bytes(data)), len(data), offset)
            if found is not None:
                found.may_contain(b"x")
                opened += 1
        assert 0 < opened < 200

    def test_bytes_that_are_no_header_say_nothing(self) -> None:
        for data in (
            b"\x00" * 100,
            b"\xff" * 100,
            b"PAR1",
            # 2^31 bytes, or a length that is no multiple of a block.
            bytes.fromhex("1580808080100000") + b"\x00" * 60,
            bytes.fromhex("15421c1c00001c1c00001c1c000000") + b"\x00" * 60,
        ):
            padded = b"PAR1" + data
            for offset in (4, 10**6, -1, 0, None):
                assert BloomFilter.open(self.read_at(padded), len(padded), offset) is None

    def test_a_value_that_cannot_be_encoded_is_never_absent(self) -> None:
        assert encodings_of(float("nan"), pa.float64(), pa.float64(), "DOUBLE") is None
        assert encodings_of(5, pa.date32(), pa.timestamp("us"), "INT32") is None
        assert encodings_of(1, pa.bool_(), pa.bool_(), "BOOLEAN") is None
        assert len(encodings_of(0.0, pa.float64(), pa.float64(), "DOUBLE") or ()) == 2

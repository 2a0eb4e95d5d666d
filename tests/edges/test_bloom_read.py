"""Reading with bloom filters: the same rows, and row groups without a match stay closed."""

from __future__ import annotations

import decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash

import lakehouse_source as lake
from lakehouse_source.parquet import bloom, reader
from lakehouse_source.storage import Storage
from tests.versions import tells_bloom_filters, writes_bloom_filters

pytestmark = [writes_bloom_filters, pytest.mark.slow, pytest.mark.sampled(3)]

ROWS, GROUP = 4_000, 1_000


def things() -> pa.Table:
    return pa.table(
        {
            "n": pa.array(range(ROWS), pa.int32()),
            # Every row group spans the same bounds, and holds its own values.
            "even": pa.array([2 * (i * 7919 % ROWS) for i in range(ROWS)], pa.int32()),
            "word": [f"w{i * 31 % ROWS}" if i % 10 else None for i in range(ROWS)],
            "x": [
                0.0 if i == 1 else -0.0 if i == 2001 else float(i % 7) + 0.5 for i in range(ROWS)
            ],
            "d": pa.array(
                [decimal.Decimal(i * 13 % ROWS) / 100 for i in range(ROWS)], pa.decimal128(20, 2)
            ),
            "k": ["a" if i < ROWS // 2 else "b" for i in range(ROWS)],
        }
    )


@pytest.fixture
def uri(tmp_path: Path) -> str:
    path = str(tmp_path / "things")
    lake.write_dataset(
        things(), path, row_group_rows=GROUP, bloom_filter_columns=["even", "word", "x", "d"]
    )
    return path


@pytest.mark.parametrize("code", ["<i4", "<i8"])
def test_numbers_are_hashed_together_as_one_by_one(code: str) -> None:
    values = np.frombuffer(np.random.default_rng(7).bytes(8_000), code)
    type_, physical = {"<i4": (pa.int32(), "INT32"), "<i8": (pa.int64(), "INT64")}[code]
    found = bloom.hashes_of(values.astype(np.int64), type_, type_, physical)
    assert found is not None
    assert found.tolist() == [xxhash.xxh64_intdigest(value.tobytes()) for value in values]


def test_many_filters_answer_together_as_each_alone(uri: str) -> None:
    (path,) = Path(uri).glob("*.parquet")
    footer = pq.read_metadata(path)
    held = pq.read_table(path, columns=["even"])["even"].to_numpy()
    position = footer.schema.names.index("even")
    data = path.read_bytes()
    filters = []
    for index in range(footer.num_row_groups):
        offset = footer.row_group(index).column(position).bloom_filter_offset
        found = bloom.BloomFilter.open(lambda n, at: data[at : at + n], len(data), offset)
        assert found is not None
        assert found.words is not None
        filters.append(found)
    asked = np.arange(20_000, dtype=np.int64)
    hashes = bloom.hashes_of(asked, pa.int32(), pa.int32(), "INT32")
    assert hashes is not None
    assert len(filters) == ROWS // GROUP
    kind = bloom.FilterKind(pa.int32(), "INT32")
    apart = [bloom.KeyFilter.of(one.words, kind) for one in filters]
    times, asked = [20_000] * len(filters), np.tile(hashes, len(filters))
    places = bloom.may_hold(apart, times, asked)
    alone = [
        number * 20_000 + key
        for number, one in enumerate(filters)
        for key in range(20_000)
        if one.may_contain(key.to_bytes(4, "little"))
    ]
    assert places.tolist() == alone
    together = bloom.side_by_side(apart[1:])
    assert bloom.may_hold([apart[0], *together], times, asked).tolist() == alone
    assert {*held} <= {place % 20_000 for place in places.tolist()}
    assert len(alone) < 1.1 * ROWS


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The row groups of which anything was decoded, in order."""
    seen: list[int] = []
    original = reader._FileReader._row_group

    def spy(self: Any, group: Any) -> pa.Table:
        seen.append(group.index)
        return original(self, group)

    monkeypatch.setattr(reader._FileReader, "_row_group", spy)
    return seen


CONDITIONS = [
    "even = 4001",
    "even = 4000",
    "even IN (4001, 4003, 17)",
    "even IN (4000, 4001)",
    "even <=> 4001",
    "NOT (even = 4001)",
    "NOT (even <=> 4001) AND n < 5",
    "word = 'w5x'",
    "word = 'w31'",
    "word = 'w5x' OR n = 3",
    "word = 'w5x' OR word IS NULL",
    "word IN ('w5x', NULL)",
    "NOT (word IN ('w5x', 'w5y'))",
    "x = 0.0",
    "x = -0.0D",
    "x = 100.5",
    "x IN (0.0D, CAST('nan' AS DOUBLE))",
    "d = 1.30",
    "d = 1.305",
    "even = 4000 AND word = 'w5x'",
]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("condition", CONDITIONS)
def test_rows_are_the_same_with_filters_and_without(
    uri: str, tmp_path: Path, condition: str
) -> None:
    plain = str(tmp_path / "plain")
    lake.write_dataset(things(), plain, row_group_rows=GROUP)
    expected = lake.read_dataset(plain, predicates=condition)
    assert lake.read_dataset(uri, predicates=condition).equals(expected)
    assert lake.open_dataset(uri).scan(condition).count_rows() == expected.num_rows


@pytest.mark.parametrize(
    "condition", ["even = 4001", "even IN (4001, 4003)", "word = 'w5x' AND n >= 0"]
)
def test_row_groups_without_the_value_are_not_decoded(
    uri: str, decoded: list[int], condition: str
) -> None:
    assert lake.open_dataset(uri).scan(condition).explain().row_groups_read == 4
    assert lake.open_dataset(uri).scan(condition).count_rows() == 0
    assert len(decoded) <= 1  # a filter may be wrong about one


def test_only_the_row_group_with_the_value_is_decoded(uri: str, decoded: list[int]) -> None:
    (at,) = [i for i in range(ROWS) if 2 * (i * 7919 % ROWS) == 4000]
    found = lake.read_dataset(uri, predicates="even = 4000")
    assert found["n"].to_pylist() == [at]
    assert at // GROUP in decoded
    assert len(decoded) <= 2


def test_both_zeros_are_looked_for(uri: str) -> None:
    found = lake.read_dataset(uri, predicates="x = 0.0", columns=["n"])
    assert found["n"].to_pylist() == [1, 2001]


def test_a_column_promoted_since_the_file_was_written(tmp_path: Path, decoded: list[int]) -> None:
    uri = str(tmp_path / "promoted")
    old = things().select(["n", "even", "d"])
    lake.write_dataset(old, uri, row_group_rows=GROUP, bloom_filter_columns=["even", "d"])
    new = pa.table({"n": pa.array([-1], pa.int32()), "even": pa.array([2**40], pa.int64())})
    lake.write_dataset(new, uri, schema_merge=True, bloom_filter_columns=["even"])
    for value in (4000, 4001, 2**40):
        expected = [
            *(row["n"] for row in old.to_pylist() if row["even"] == value),
            *([-1] if value == 2**40 else []),
        ]
        found = lake.read_dataset(uri, predicates=f"even = {value}")
        assert found["n"].to_pylist() == expected
    decoded.clear()
    assert lake.open_dataset(uri).scan("even = 4001").count_rows() == 0
    assert len(decoded) <= 1
    wider = pa.table({"d": pa.array([decimal.Decimal("1.3000")], pa.decimal128(24, 4))})
    lake.write_dataset(wider, uri, schema_merge=True)
    assert lake.open_dataset(uri).scan("d = 1.3").count_rows() == 2


def test_a_delete_keeps_the_rows_that_filters_rule_out(uri: str) -> None:
    nothing = things().slice(0, 0)
    lake.write_dataset(nothing, uri, mode="overwrite", overwrite_where="word = 'w5x'")
    assert lake.open_dataset(uri).scan().count_rows() == ROWS
    lake.write_dataset(nothing, uri, mode="overwrite", overwrite_where="even = 4000")
    assert lake.open_dataset(uri).scan().count_rows() == ROWS - 1


def test_a_partition_column_shifts_no_filter(tmp_path: Path) -> None:
    uri = str(tmp_path / "parts")
    table = things().select(["k", "word", "even", "n"])
    lake.write_dataset(table, uri, partition_by="k", bloom_filter_columns=["even", "word"])
    for i in (0, 5, 1999, 2000, 3999):
        row = table.slice(i, 1).to_pylist()[0]
        found = lake.read_dataset(uri, predicates=[("even", "=", row["even"])])
        assert found.to_pylist() == [row]


@tells_bloom_filters
def test_a_corrupt_filter_is_ignored(uri: str) -> None:
    (path,) = Path(uri).glob("*.parquet")
    footer = pq.read_metadata(path)
    data = bytearray(path.read_bytes())
    for group in range(footer.num_row_groups):
        for column in range(footer.num_columns):
            offset = footer.row_group(group).column(column).bloom_filter_offset
            if offset is not None:
                data[offset : offset + 16] = b"\xff" * 16
    path.write_bytes(data)
    assert lake.open_dataset(uri).scan("even = 4000").count_rows() == 1
    assert lake.open_dataset(uri).scan("even = 4001").count_rows() == 0


def test_a_filter_that_cannot_be_read_is_ignored(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bloom, "_WHOLE_BYTES", 0)  # read block by block, when asked
    assert lake.open_dataset(uri).scan("even = 4000").count_rows() == 1

    def broken(*_: Any) -> bytes:
        raise OSError("gone")

    monkeypatch.setattr(bloom.BloomFilter, "_block", broken)
    assert lake.open_dataset(uri).scan("even = 4000").count_rows() == 1


def test_a_file_is_opened_once(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []
    original = Storage.open_input

    def spy(self: Storage, relative: str) -> pa.NativeFile:
        opened.append(relative)
        return original(self, relative)

    monkeypatch.setattr(Storage, "open_input", spy)
    assert lake.open_dataset(uri).scan("even = 4000").count_rows() == 1
    assert len(opened) == 1


def test_text_hidden_in_a_number_column_is_no_value() -> None:
    """A decimal kept as BYTE_ARRAY and read as text since: its bytes are no text."""
    assert bloom.encodings_of(b"1.5", pa.decimal128(5, 2), pa.string(), "BYTE_ARRAY") is None
    assert bloom.encodings_of(b"1.5", pa.string(), pa.string(), "BYTE_ARRAY") == (b"1.5",)

"""Which columns get a dictionary, which are written as differences, and that both come back."""

from __future__ import annotations

import decimal
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakehouse_source as lake

pytestmark = pytest.mark.slow

ROWS = 20_000


def encodings_of(uri: Path) -> dict[str, set[str]]:
    [path] = uri.glob("*.parquet")
    group = pq.ParquetFile(path).metadata.row_group(0)
    chunks = [group.column(i) for i in range(group.num_columns)]
    return {chunk.path_in_schema: set(chunk.encodings) for chunk in chunks}


def shuffled(values: list[int]) -> list[int]:
    random.Random(5).shuffle(values)
    return values


def test_a_dictionary_is_for_values_that_come_again(tmp_path: Path) -> None:
    few = shuffled([i % 100 for i in range(ROWS)])
    many = shuffled(list(range(ROWS)))
    table = pa.table(
        {
            "few": few,
            "many": many,
            "sorted pairs": sorted(i // 2 for i in range(ROWS)),
            "few texts": [f"text {i}" for i in few],
            "many texts": [f"text {i}" for i in many],
            "few floats": [i / 7 for i in few],
            "many floats": [i / 7 for i in many],
            "days": pa.array(many, pa.date32()),
            "moments": pa.array(many, pa.timestamp("us", "UTC")),
            "mostly null": [i if i < 10 else None for i in range(ROWS)],
            "nothing": pa.nulls(ROWS, pa.int64()),
            "truth": [i % 2 == 0 for i in few],
            "few bytes": pa.array([bytes([i]) for i in few]),
            "money": pa.array([decimal.Decimal(i) for i in many], pa.decimal128(9, 0)),
            "s": [{"few": a, "many.": b} for a, b in zip(few, many)],
            "list": [[i] for i in many],
        }
    )
    lake.write_dataset(table, tmp_path)
    assert lake.read_dataset(tmp_path).equals(table)
    found = encodings_of(tmp_path)
    by = {
        kind: {path for path, used in found.items() if kind in used}
        for kind in ("RLE_DICTIONARY", "DELTA_BINARY_PACKED")
    }
    assert by["RLE_DICTIONARY"] == {
        "few", "few texts", "few floats", "few bytes", "s.few", "list.list.element", "nothing",
    }  # fmt: skip
    assert by["DELTA_BINARY_PACKED"] == {
        "many", "sorted pairs", "days", "moments", "s.many.", "mostly null",
    }  # fmt: skip


@pytest.mark.parametrize(
    "type_",
    [
        pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(),
        pa.uint64(), pa.date32(), pa.timestamp("ms"), pa.timestamp("ns", "UTC"), pa.time32("ms"),
        pa.time64("ns"), pa.duration("us"),
    ],
    ids=str,
)  # fmt: skip
def test_whole_numbers_of_every_kind_come_back(tmp_path: Path, type_: pa.DataType) -> None:
    draw = random.Random(7)
    bits = type_.bit_width
    signed = not pa.types.is_unsigned_integer(type_)
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    if pa.types.is_time(type_):
        low, high = 0, 86_400_000 - 1
    values = [low, high, None, low, high, *(draw.randint(low, high) for _ in range(200))]
    column = pa.array(values, pa.int64() if signed else pa.uint64())
    if bits == 32 and not pa.types.is_integer(type_):
        column = column.cast(pa.int32())
    table = pa.table({"v": column.cast(type_)})
    lake.write_dataset(table, tmp_path)
    assert lake.read_dataset(tmp_path).equals(table)
    if bits > 16:
        assert "DELTA_BINARY_PACKED" in encodings_of(tmp_path)["v"]


def test_files_are_smaller_than_with_arrows_own_choice(tmp_path: Path) -> None:
    many = shuffled(list(range(ROWS)))
    table = pa.table({"id": list(range(ROWS)), "t": [f"text {i}" for i in many], "f": many})
    lake.write_dataset(table, tmp_path / "plake")
    pq.write_table(table, tmp_path / "arrow.parquet", compression="zstd")
    [written] = (tmp_path / "plake").glob("*.parquet")
    assert written.stat().st_size < 0.8 * (tmp_path / "arrow.parquet").stat().st_size


@pytest.mark.parametrize("field", [True, 1.5, "text", b"\x00", Decimal("1.5"), [1, 2], None])
@pytest.mark.parametrize("repeats", [False, True])
def test_two_columns_of_one_parquet_path_are_encoded_alike(
    tmp_path: Path, field: Any, repeats: bool
) -> None:
    """A column `s.a` beside field `a` of struct `s`: Arrow is told of them by one name."""
    numbers = [i % 3 if repeats else i * 7919 for i in range(ROWS)]
    type_ = pa.struct([("a", pa.int32() if field is None else pa.scalar(field).type)])
    structs = pa.array([{"a": field}] * ROWS, type_)
    for columns in ({"s": structs, "s.a": numbers}, {"s.a": numbers, "s": structs}):
        path = tmp_path / "-".join(columns)
        lake.write_dataset(pa.table(columns), path)
        assert lake.read_dataset(path).equals(pa.table(columns))

"""Deletion vectors and Puffin files, read back by a reader of the formats written for this test."""

from __future__ import annotations

import json
import random
import struct
import zlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyroaring import BitMap64

from lakehouse_source import deletion
from lakehouse_source.deletion import VectorError

ROWS = 200_000
# Single rows, runs, and so many rows of one 2^16 that Roaring changes the form of its container.
some_positions = st.sets(st.integers(0, ROWS - 1), max_size=30)
runs = st.tuples(st.integers(0, ROWS - 10_000), st.integers(1, 10_000)).map(
    lambda run: set(range(run[0], run[0] + run[1]))
)
every_nth = st.tuples(st.integers(0, 70_000), st.integers(2, 9)).map(
    lambda run: set(range(run[0], run[0] + 60_000, run[1]))
)
position_sets = st.one_of(some_positions, runs, every_nth, st.tuples(some_positions, runs).map(
    lambda both: both[0] | both[1]
)).filter(bool)  # fmt: skip


def roaring_positions(data: bytes) -> list[int]:
    """The numbers in a portable 64-bit Roaring bitmap, by its specification."""
    (count,) = struct.unpack_from("<Q", data)
    at, found = 8, []
    for _ in range(count):
        (high,) = struct.unpack_from("<I", data, at)
        at, low = _roaring_32(data, at + 4)
        found += [high << 32 | value for value in low]
    assert at == len(data)
    return found


def _roaring_32(data: bytes, begin: int) -> tuple[int, list[int]]:
    (cookie,) = struct.unpack_from("<I", data, begin)
    at, run_flags, offsets = begin + 4, b"", True
    if cookie & 0xFFFF == 12347:
        size = (cookie >> 16) + 1
        run_flags = data[at : at + (size + 7) // 8]
        at, offsets = at + len(run_flags), size >= 4
    else:
        assert cookie == 12346
        (size,) = struct.unpack_from("<I", data, at)
        at += 4
    keys = [struct.unpack_from("<HH", data, at + 4 * i) for i in range(size)]
    at += 4 * size + (4 * size if offsets else 0)
    found: list[int] = []
    for i, (key, cardinality_minus_1) in enumerate(keys):
        if run_flags and run_flags[i // 8] >> i % 8 & 1:
            (runs,) = struct.unpack_from("<H", data, at)
            pairs = [struct.unpack_from("<HH", data, at + 2 + 4 * n) for n in range(runs)]
            at += 2 + 4 * runs
            low = [value for start, more in pairs for value in range(start, start + more + 1)]
        elif cardinality_minus_1 + 1 <= 4096:
            low = list(struct.unpack_from(f"<{cardinality_minus_1 + 1}H", data, at))
            at += 2 * len(low)
        else:
            bits = int.from_bytes(data[at : at + 8192], "little")
            low = [n for n in range(1 << 16) if bits >> n & 1]
            at += 8192
        assert len(low) == cardinality_minus_1 + 1
        found += [key << 16 | value for value in low]
    return at, found


def plain_positions(blob: bytes) -> list[int]:
    """The numbers in a blob `deletion-vector-v1`, by Iceberg's specification."""
    (length,) = struct.unpack_from(">I", blob)
    body = blob[4 : 4 + length]
    assert body[:4].hex() == "d1d33964"
    assert blob[4 + length :] == zlib.crc32(body).to_bytes(4, "big")
    return roaring_positions(body[4:])


@given(position_sets)
def test_a_vector_is_what_the_specification_says(positions: set[int]) -> None:
    blob = deletion.encode(BitMap64(positions))
    assert plain_positions(blob) == sorted(positions)
    assert set(deletion.decode(blob, len(positions), ROWS)) == positions


def test_positions_beyond_32_bits() -> None:
    positions = {0, 2**32 - 1, 2**32, 2**33 + 5}
    blob = deletion.encode(BitMap64(positions))
    assert plain_positions(blob) == sorted(positions)
    assert set(deletion.decode(blob, 4, 2**34)) == positions


def test_a_vector_without_a_position_is_refused() -> None:
    with pytest.raises(VectorError, match="without a position"):
        deletion.encode(BitMap64())


@given(position_sets, st.data())
def test_damaged_bytes_are_an_error(positions: set[int], data: st.DataObject) -> None:
    blob = bytearray(deletion.encode(BitMap64(positions)))
    at = data.draw(st.integers(0, len(blob) - 1))
    blob[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(VectorError):
        deletion.decode(bytes(blob), len(positions), ROWS)
    with pytest.raises(VectorError):
        deletion.decode(bytes(blob[:at]), len(positions), ROWS)


def test_a_vector_that_does_not_fit_the_catalog_is_an_error() -> None:
    blob = deletion.encode(BitMap64([3, 7]))
    with pytest.raises(VectorError, match="2 positions and the catalog says 3"):
        deletion.decode(blob, 3, 10)
    with pytest.raises(VectorError, match="deletes row 7 of a file with 7 rows"):
        deletion.decode(blob, 2, 7)
    assert set(deletion.decode(blob, 2, 8)) == {3, 7}


@given(position_sets, st.integers(0, ROWS), st.integers(0, 3_000))
@example({5, 10}, 5, 5)  # the first row is deleted, and the row after the last
@example({4}, 5, 5)  # the row before the first
def test_live_rows_of_a_range(positions: set[int], begin: int, count: int) -> None:
    end = begin + count
    bitmap = BitMap64(positions)
    expected = [position not in positions for position in range(begin, end)]
    mask = deletion.live_mask(bitmap, begin, end)
    assert deletion.deleted_between(bitmap, begin, end) == expected.count(False)
    if all(expected):
        assert mask is None
    else:
        assert mask is not None
        assert mask.to_pylist() == expected


files = st.lists(
    st.tuples(st.text(min_size=1, max_size=20), some_positions.filter(bool)), max_size=6
)


@given(files)
def test_a_puffin_file_is_what_the_specification_says(content: list[tuple[str, set[int]]]) -> None:
    file = deletion.PuffinFile()
    blobs = [file.add(name, BitMap64(positions)) for name, positions in content]
    whole = file.finish()
    assert whole[:4] == whole[-4:] == b"PFA1"
    size, flags = struct.unpack("<II", whole[-12:-4])
    assert flags == 0
    assert whole[-12 - size - 4 : -12 - size] == b"PFA1"
    described = json.loads(whole[-12 - size : -12])["blobs"]
    assert len(described) == len(content)
    for one, (name, positions) in zip(described, content):
        blob = whole[one["offset"] : one["offset"] + one["length"]]
        assert plain_positions(blob) == sorted(positions)
        assert one["properties"] == {
            "referenced-data-file": name, "cardinality": str(len(positions))
        }  # fmt: skip
        assert (one["type"], one["fields"]) == ("deletion-vector-v1", [2147483645])
        assert (one["snapshot-id"], one["sequence-number"]) == (-1, -1)
    assert deletion.read_blobs(whole) == blobs


@given(files.filter(bool), st.data())
def test_a_damaged_footer_is_an_error_or_names_blobs_inside_the_file(
    content: list[tuple[str, set[int]]], data: st.DataObject
) -> None:
    file = deletion.PuffinFile()
    for name, positions in content:
        file.add(name, BitMap64(positions))
    whole = bytearray(file.finish())
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        blobs = deletion.read_blobs(bytes(whole))
    except VectorError:
        return
    assert all(0 < blob.offset <= blob.offset + blob.length < len(whole) for blob in blobs)


@pytest.mark.parametrize("number", [*range(300), 8073, 8687, 14_010, 14_811])
def test_a_forged_bitmap_with_the_right_checksum_is_refused_or_says_what_it_holds(
    number: int,
) -> None:
    """Whoever can write a vector can compute its checksum. pyroaring 1.0.1 died of 8073."""
    chance = random.Random(number)
    kinds = (
        range(0, 100_000, 3),
        range(5000),
        [1, 5, 70_000, 2**33, 2**40],
        [*range(100), *range(70_000, 140_000, 2)],
    )
    original = BitMap64(chance.choice(kinds))
    original.run_optimize()
    body = bytearray(original.serialize())
    for _ in range(chance.choice((1, 1, 2, 5))):
        at = chance.randrange(min(len(body), chance.choice((16, 64, len(body)))))
        body[at] = chance.randrange(256)
    if chance.random() < 0.2:
        del body[chance.randrange(len(body)) :]
    whole = deletion.MAGIC + bytes(body)
    blob = struct.pack(">I", len(whole)) + whole + struct.pack(">I", zlib.crc32(whole))
    try:
        found = deletion.decode(blob, len(original), 2**41)
    except VectorError:
        return
    positions = list(found)
    assert positions == sorted(set(positions))
    assert len(positions) == len(original)
    assert positions[-1] < 2**41

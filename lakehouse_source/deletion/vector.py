"""Pure. One deletion vector: the positions of the deleted rows of one data file.

A position counts the rows of the data file from 0, across its row groups. A vector is a
Roaring bitmap of such positions. Its bytes are a blob of the type `deletion-vector-v1`:

    length    4 bytes, big-endian: the size in bytes of magic and bitmap together
    magic     D1 D3 39 64
    bitmap    Roaring 64-bit, in the portable serialisation
    checksum  4 bytes, big-endian: CRC-32 of magic and bitmap

Source: Apache Iceberg, Puffin specification, "deletion-vector-v1 blob type"; Roaring format
specification, "extension for 64-bit implementations".
"""

from __future__ import annotations

import struct
import zlib
from typing import TypeAlias

import pyarrow as pa
from pyroaring import BitMap64

Positions: TypeAlias = BitMap64

MAGIC = b"\xd1\xd3\x39\x64"
_LENGTH = struct.Struct(">I")
_CHECKSUM = struct.Struct(">I")
# Length, magic, the count of an empty bitmap (8 bytes), checksum.
_SMALLEST_BYTES = _LENGTH.size + len(MAGIC) + 8 + _CHECKSUM.size


class VectorError(ValueError):
    """Bytes that are not a deletion vector. The caller knows the file and names it."""


def encode(positions: Positions) -> bytes:
    """The blob of a vector."""
    if not positions:
        raise VectorError("a deletion vector without a position")
    # A run of deleted rows takes a few bytes instead of up to 8 KiB.
    positions.run_optimize()
    body = MAGIC + positions.serialize()
    if len(body) > 0xFFFFFFFF:
        raise VectorError(f"a deletion vector of {len(body):,} bytes is over the limit of 4 GiB")
    return _LENGTH.pack(len(body)) + body + _CHECKSUM.pack(zlib.crc32(body))


def decode(blob: bytes, cardinality: int, row_count: int) -> Positions:
    """The positions in a blob. Every fact that can be checked is checked.

    `cardinality` is the number of deleted rows and `row_count` the number of rows of the data
    file, both as the catalog knows them.
    """
    if len(blob) < _SMALLEST_BYTES:
        raise VectorError(f"{len(blob)} bytes are too few for a deletion vector")
    (length,) = _LENGTH.unpack_from(blob)
    if length != len(blob) - _LENGTH.size - _CHECKSUM.size:
        raise VectorError(f"it says {length:,} bytes and has {len(blob) - 8:,}")
    body = blob[_LENGTH.size : -_CHECKSUM.size]
    if not body.startswith(MAGIC):
        raise VectorError(f"its magic bytes are {body[:4].hex()}, not {MAGIC.hex()}")
    (checksum,) = _CHECKSUM.unpack(blob[-_CHECKSUM.size :])
    if checksum != zlib.crc32(body):
        raise VectorError("its checksum is wrong")
    try:
        positions = BitMap64.deserialize(body[len(MAGIC) :])
    except ValueError as exc:
        raise VectorError("its bitmap cannot be read") from exc
    if len(positions) != cardinality:
        raise VectorError(
            f"it has {len(positions):,} positions and the catalog says {cardinality:,}"
        )
    if positions and positions.max() >= row_count:
        raise VectorError(f"it deletes row {positions.max():,} of a file with {row_count:,} rows")
    return positions


def deleted_between(positions: Positions, begin: int, end: int) -> int:
    """How many of the rows `begin` to `end - 1` of the file are deleted."""
    return int(positions.range_cardinality(begin, end))


def live_mask(positions: Positions, begin: int, end: int) -> pa.BooleanArray | None:
    """True for each of the rows `begin` to `end - 1` that is not deleted.

    None where no row of this range is deleted, so that the caller copies nothing.
    """
    count = deleted_between(positions, begin, end)
    if not count:
        return None
    rows = end - begin
    # The loop runs over the smaller part: the deleted rows, or the others.
    few_live = 2 * count > rows
    if few_live:
        within = Positions()
        within.add_range(begin, end)
        marked = within - positions
    else:
        before = deleted_between(positions, 0, begin)
        marked = positions[before : before + count]
    live = bytearray(rows) if few_live else bytearray(b"\x01") * rows
    flag = int(few_live)
    for position in marked.to_array():
        live[position - begin] = flag
    flags = pa.Array.from_buffers(pa.uint8(), len(live), [None, pa.py_buffer(live)])
    return flags.cast(pa.bool_())


def as_array(positions: Positions) -> pa.Int64Array:
    """The positions in ascending order."""
    # Not `pa.array`: it imports pandas.
    values = positions.to_array()
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])


def positions_of(column: pa.ChunkedArray | pa.Array) -> Positions:
    """A column of positions as a bitmap."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    found = Positions()
    for chunk in chunks:
        if len(chunk):
            raw = memoryview(chunk.buffers()[1]).cast("B")
            begin, end = chunk.offset * 8, (chunk.offset + len(chunk)) * 8
            found.update(Positions(raw[begin:end].cast("Q")))
    return found

"""Pure. Deletion vectors: which rows of a data file are deleted, and their form in a file."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
from pyroaring import BitMap64

from lakehouse_source.schema.fields import POSITION_ID

# --- One deletion vector: the positions of the deleted rows of one data file.
#
# A position counts the rows of the data file from 0, across its row groups. A vector is a Roaring
# bitmap of such positions. Its bytes are a blob of the type `deletion-vector-v1`:
#
#     length    4 bytes, big-endian: the size in bytes of magic and bitmap together
#     magic     D1 D3 39 64
#     bitmap    Roaring 64-bit, in the portable serialisation
#     checksum  4 bytes, big-endian: CRC-32 of magic and bitmap
#
# Source: Apache Iceberg, Puffin specification, "deletion-vector-v1 blob type"; Roaring format
# specification, "extension for 64-bit implementations".


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


# --- Puffin files: blobs one after the other, then a footer that says where each one is.
#
#     PFA1  blob ...  PFA1  footer (JSON)  length  flags  PFA1
#
# Plake writes one Puffin file for each commit that deletes rows, with a blob for each data file
# that the commit touches. Readers of plake find a blob by the offset and length in the catalog. The
# footer is for other programs, and for `verify`.
#
# Source: Apache Iceberg, Puffin specification (version 1).


PUFFIN_MAGIC = b"PFA1"
VECTOR_TYPE = "deletion-vector-v1"
# The size of the footer's JSON, four bytes of flags, the magic bytes; integers little-endian.
_TAIL = struct.Struct("<I4s4s")
_COMPRESSED_FOOTER = 0x01  # a bit of the first byte of flags


@dataclass(frozen=True, slots=True)
class Blob:
    """Where the deletion vector of one data file is in a Puffin file. Sizes are in bytes."""

    data_file: str
    offset: int
    length: int
    cardinality: int


class PuffinFile:
    """Gathers the blobs of one Puffin file. `add` each vector, then take `finish()`."""

    def __init__(self) -> None:
        self._parts = [PUFFIN_MAGIC]
        self._size = len(PUFFIN_MAGIC)
        self._blobs: list[Blob] = []

    def add(self, data_file: str, positions: Positions) -> Blob:
        """Append the vector of `data_file`, and tell where it is.

        Raises:
            VectorError: the vector is empty, or it is too large.
        """
        return self.add_content(data_file, encode(positions), len(positions))

    def add_content(self, data_file: str, content: bytes, cardinality: int) -> Blob:
        """Append a vector that is encoded already, and tell where it is."""
        blob = Blob(data_file, self._size, len(content), cardinality)
        self._parts.append(content)
        self._size += len(content)
        self._blobs.append(blob)
        return blob

    def finish(self) -> bytes:
        """The whole file."""
        payload = json.dumps(
            {"blobs": [_described(blob) for blob in self._blobs], "properties": {}},
            separators=(",", ":"),
        ).encode()
        return b"".join(
            [*self._parts, PUFFIN_MAGIC, payload, _TAIL.pack(len(payload), bytes(4), PUFFIN_MAGIC)]
        )


def _described(blob: Blob) -> dict[str, Any]:
    return {
        "type": VECTOR_TYPE,
        "fields": [POSITION_ID],
        # The specification asks for -1 if the writer cannot know these before the commit.
        "snapshot-id": -1,
        "sequence-number": -1,
        "offset": blob.offset,
        "length": blob.length,
        "properties": {
            "referenced-data-file": blob.data_file,
            "cardinality": str(blob.cardinality),
        },
    }


def read_blobs(content: bytes) -> list[Blob]:
    """The deletion vectors that the footer of a whole Puffin file names, in its order.

    Blobs of other types are left out.
    """
    if len(content) < 2 * len(PUFFIN_MAGIC) + _TAIL.size or not content.startswith(PUFFIN_MAGIC):
        raise VectorError("it is not a Puffin file")
    size, flags, magic = _TAIL.unpack(content[-_TAIL.size :])
    begin = len(content) - _TAIL.size - size
    if (
        magic != PUFFIN_MAGIC
        or begin < 2 * len(PUFFIN_MAGIC)
        or content[begin - len(PUFFIN_MAGIC) : begin] != PUFFIN_MAGIC
    ):
        raise VectorError("the footer of the Puffin file is damaged")
    if flags[0] & _COMPRESSED_FOOTER:
        raise VectorError("the footer of the Puffin file is compressed, which plake never does")
    end = begin - len(PUFFIN_MAGIC)
    try:
        described = json.loads(content[begin : begin + size])["blobs"]
        return [_blob(one, end) for one in described if one["type"] == VECTOR_TYPE]
    except (ValueError, KeyError, TypeError) as exc:
        if isinstance(exc, VectorError):
            raise
        raise VectorError("the footer of the Puffin file is damaged") from exc


def _blob(described: Mapping[str, Any], end: int) -> Blob:
    offset, length = described["offset"], described["length"]
    properties = described["properties"]
    if described.get("compression-codec") is not None:
        raise VectorError("a deletion vector of the Puffin file is compressed")
    if not (isinstance(offset, int) and isinstance(length, int)):
        raise VectorError("an offset or a length of the Puffin file is no number")
    if offset < len(PUFFIN_MAGIC) or length < 0 or offset + length > end:
        raise VectorError("a deletion vector is outside its Puffin file")
    return Blob(
        str(properties["referenced-data-file"]), offset, length, int(properties["cardinality"])
    )

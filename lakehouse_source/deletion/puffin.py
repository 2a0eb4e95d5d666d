"""Pure. Puffin files: blobs one after the other, then a footer that says where each one is.

    PFA1  blob ...  PFA1  footer (JSON)  length  flags  PFA1

Plake writes one Puffin file for each commit that deletes rows, with a blob for each data file
that the commit touches. Readers of plake find a blob by the offset and length in the catalog.
The footer is for other programs, and for `verify`.

Source: Apache Iceberg, Puffin specification (version 1).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lakehouse_source.deletion.vector import Positions, VectorError, encode
from lakehouse_source.schema.metadata_columns import POSITION_ID

MAGIC = b"PFA1"
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
        self._parts = [MAGIC]
        self._size = len(MAGIC)
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
        return b"".join([*self._parts, MAGIC, payload, _TAIL.pack(len(payload), bytes(4), MAGIC)])


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
    if len(content) < 2 * len(MAGIC) + _TAIL.size or not content.startswith(MAGIC):
        raise VectorError("it is not a Puffin file")
    size, flags, magic = _TAIL.unpack(content[-_TAIL.size :])
    begin = len(content) - _TAIL.size - size
    if magic != MAGIC or begin < 2 * len(MAGIC) or content[begin - len(MAGIC) : begin] != MAGIC:
        raise VectorError("the footer of the Puffin file is damaged")
    if flags[0] & _COMPRESSED_FOOTER:
        raise VectorError("the footer of the Puffin file is compressed, which plake never does")
    end = begin - len(MAGIC)
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
    if offset < len(MAGIC) or length < 0 or offset + length > end:
        raise VectorError("a deletion vector is outside its Puffin file")
    return Blob(
        str(properties["referenced-data-file"]), offset, length, int(properties["cardinality"])
    )

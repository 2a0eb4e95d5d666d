"""Edge. Reads many byte ranges of one file. A remote store gets few requests.

A request to an object store takes about as long as the transfer of 64 KiB within a region: ranges
closer than this become one request, and the requests run in parallel. A local file is read range by
range.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

import pyarrow as pa

# Offset and length.
ByteRange: TypeAlias = tuple[int, int]

SMALL_GAP_BYTES = 64 * 1024
_REQUESTS_AT_ONCE = 8


class OutsideFile(ValueError):
    """A byte range that is not in the file."""


class ByteRanges:
    """The bytes of one open file."""

    def __init__(self, file: pa.NativeFile, *, is_local: bool) -> None:
        self._file = file
        self._size: int = file.size()
        self._is_local = is_local

    def read(self, ranges: Iterable[ByteRange]) -> dict[ByteRange, bytes]:
        """The bytes of each range.

        Raises:
            OSError, ArrowException: the file cannot be read.
        """
        wanted = sorted(set(ranges))
        for offset, length in wanted:
            if offset < 0 or length < 0 or offset + length > self._size:
                raise OutsideFile(f"bytes {offset} to {offset + length} of {self._size}")
        if self._is_local:
            return {one: self._read_at(one) for one in wanted}
        requests = merged(wanted, SMALL_GAP_BYTES)
        if len(requests) <= 1:
            answers = [self._read_at(request) for request in requests]
        else:
            with ThreadPoolExecutor(min(len(requests), _REQUESTS_AT_ONCE)) as pool:
                answers = list(pool.map(self._read_at, requests))
        found: dict[ByteRange, bytes] = {}
        at = 0
        for offset, length in wanted:
            while offset + length > sum(requests[at]):
                at += 1
            start = offset - requests[at][0]
            found[offset, length] = answers[at][start : start + length]
        return found

    def _read_at(self, one: ByteRange) -> bytes:
        offset, length = one
        data: bytes = self._file.read_at(length, offset)
        if len(data) != length:
            raise OSError(f"{len(data)} bytes came, not {length}, from offset {offset}")
        return data


def merged(ranges: Iterable[ByteRange], gap_bytes: int) -> list[ByteRange]:
    """Ordered ranges; ranges that overlap or are at most `gap_bytes` apart are joined."""
    result: list[ByteRange] = []
    for offset, length in ranges:
        if result and offset - sum(result[-1]) <= gap_bytes:
            start = result[-1][0]
            result[-1] = (start, max(sum(result[-1]), offset + length) - start)
        else:
            result.append((offset, length))
    return result

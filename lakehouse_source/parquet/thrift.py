"""Edge. Reads the few Thrift structures of a Parquet file that PyArrow keeps to itself.

Only the compact protocol, only reading, only as far as bloom filter headers and
page indexes need: a structure becomes a dict from field id to value. Every
length is checked against the bytes that are there: a damaged file ends in a
`ThriftError`, never in a large allocation or a loop.

Source: Apache Thrift, "Thrift Compact protocol encoding".
"""

from __future__ import annotations

from typing import Any, TypeAlias

Struct: TypeAlias = "dict[int, Any]"

_STOP, _TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(
    13
)
_DEEPEST = 16


class ThriftError(ValueError):
    """Bytes that are no Thrift structure."""


def read_struct(data: bytes, start: int = 0) -> tuple[Struct, int]:
    """The structure at `start`, and the position after it.

    Raises:
        ThriftError: there is none.
    """
    reader = _Reader(data, start)
    return reader.struct(0), reader.position


class _Reader:
    def __init__(self, data: bytes, position: int) -> None:
        self.data = data
        self.position = position

    def struct(self, depth: int) -> Struct:
        if depth > _DEEPEST:
            raise ThriftError("nested too deeply")
        result: Struct = {}
        field = 0
        while True:
            head = self._byte()
            kind = head & 0x0F
            if kind == _STOP:
                return result
            delta = head >> 4
            field = field + delta if delta else _unzigzag(self._varint())
            result[field] = self._value(kind, depth)

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (_TRUE, _FALSE):
            return kind == _TRUE
        if kind == _BYTE:
            return self._byte()
        if kind in (_I16, _I32, _I64):
            return _unzigzag(self._varint())
        if kind == _DOUBLE:
            return self._take(8)
        if kind == _BINARY:
            return self._take(self._varint())
        if kind in (_LIST, _SET):
            return self._list(depth)
        if kind == _STRUCT:
            return self.struct(depth + 1)
        raise ThriftError(f"a field of kind {kind}")

    def _list(self, depth: int) -> list[Any]:
        head = self._byte()
        size, kind = head >> 4, head & 0x0F
        if size == 15:
            size = self._varint()
        if size > len(self.data) - self.position:
            raise ThriftError("a list longer than the data")
        if kind in (_TRUE, _FALSE):
            return [byte == _TRUE for byte in self._take(size)]
        return [self._value(kind, depth + 1) for _ in range(size)]

    def _byte(self) -> int:
        if self.position >= len(self.data):
            raise ThriftError("the data ends early")
        value = self.data[self.position]
        self.position += 1
        return value

    def _take(self, size: int) -> bytes:
        end = self.position + size
        if end > len(self.data):
            raise ThriftError("the data ends early")
        taken = self.data[self.position : end]
        self.position = end
        return taken

    def _varint(self) -> int:
        result = shift = 0
        while True:
            byte = self._byte()
            result |= (byte & 0x7F) << shift
            if byte < 0x80:
                return result
            shift += 7
            if shift > 63:
                raise ThriftError("a number too long")


def _unzigzag(value: int) -> int:
    return (value >> 1) ^ -(value & 1)

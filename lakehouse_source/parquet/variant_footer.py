"""Edge. The annotation by which readers know a group of a Parquet file as VARIANT.

PyArrow writes and reads a column of VARIANT as a struct. The annotation is written into the schema
of the finished footer, and found there.

Source: parquet.thrift, `SchemaElement` and `LogicalType`.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from lakehouse_source.parquet.thrift import (
    LIST,
    STOP,
    ThriftError,
    read_field_head,
    read_list_head,
    read_struct,
    skip_value,
)

_FRAME_BYTES = 8
_SCHEMA, _NAME, _CHILDREN, _LOGICAL_TYPE, _VARIANT = 2, 4, 5, 10, 16
_STRUCT = 12
# The field VARIANT of the union, with a structure whose specification_version is 1.
_ANNOTATION = bytes((_STRUCT, _VARIANT << 1, 0x13, 1, 0, 0))


def annotated_end(end: bytes, paths: Collection[Sequence[str]]) -> bytes:
    """The end of a file, from anywhere before its footer, whose groups at paths are annotated."""
    size = int.from_bytes(end[-_FRAME_BYTES:-4], "little")
    start = len(end) - _FRAME_BYTES - size
    footer = end[start:-_FRAME_BYTES]
    asked = {*map(tuple, paths)}
    wanted = [element for element in _elements(footer) if element[0] in asked]
    if len(wanted) != len(asked):
        raise ThriftError(f"the footer lacks one of the columns {', '.join(map('.'.join, paths))}")
    for _, last, stop, _ in reversed(wanted):
        if last >= _LOGICAL_TYPE:
            raise ThriftError("a column of VARIANT has another logical type already")
        head = bytes(((_LOGICAL_TYPE - last) << 4 | _STRUCT,))
        footer = b"".join((footer[:stop], head, _ANNOTATION, footer[stop:]))
    return b"".join((end[:start], footer, len(footer).to_bytes(4, "little"), end[-4:]))


def annotate(path: str, paths: Collection[Sequence[str]]) -> None:
    """Annotate groups of a finished file of this machine."""
    if not paths:
        return
    with open(path, "r+b") as file:
        file.seek(-_FRAME_BYTES, os.SEEK_END)
        size = int.from_bytes(file.read(4), "little") + _FRAME_BYTES
        start = file.seek(-size, os.SEEK_END)
        end = file.read()
        file.seek(start)
        file.write(annotated_end(end, paths))


def variant_groups(footer: bytes) -> frozenset[tuple[str, ...]]:
    """The paths of the groups that are annotated as VARIANT.

    Raises:
        ThriftError: the bytes are no footer.
    """
    return frozenset(
        path
        for path, _, _, element in _elements(footer)
        if _VARIANT in (element.get(_LOGICAL_TYPE) or {})
    )


def _elements(footer: bytes) -> Iterator[tuple[tuple[str, ...], int, int, dict[int, Any]]]:
    """The elements of a schema: path, last field of the element, its stop, itself."""
    at = field = 0
    while True:
        field, kind, at = read_field_head(footer, at, field)
        if kind == STOP:
            raise ThriftError("the footer has no schema")
        if (field, kind) == (_SCHEMA, LIST):
            break
        at = skip_value(footer, kind, at)
    count, _, at = read_list_head(footer, at)
    above: list[str] = []
    missing: list[int] = []  # elements that are still missing below each name, and below the root
    for number in range(count):
        element, end = read_struct(footer, at)
        at = end
        if number:
            name = element.get(_NAME)
            if not isinstance(name, bytes):
                raise ThriftError("a column has no name")
            above.append(name.decode(errors="replace"))
            yield (*above,), max(element), end - 1, element
        missing.append(int(element.get(_CHILDREN) or 0))
        while missing and not missing[-1]:
            missing.pop()
            if missing:
                above.pop()
                missing[-1] -= 1

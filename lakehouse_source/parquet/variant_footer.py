"""Edge. The annotation by which readers know a group of a Parquet file as VARIANT.

PyArrow writes and reads a column of VARIANT as a struct. The annotation is written into the schema
of the finished footer, and found there.

Source: parquet.thrift, `SchemaElement` and `LogicalType`.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
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


def annotated_end(end: bytes, names: Collection[str]) -> bytes:
    """The end of a file, from anywhere before its footer, whose top-level groups are annotated."""
    size = int.from_bytes(end[-_FRAME_BYTES:-4], "little")
    start = len(end) - _FRAME_BYTES - size
    footer = end[start:-_FRAME_BYTES]
    wanted = [element for element in _top_level(footer) if element[0] in names]
    if len(wanted) != len(names):
        raise ThriftError(f"the footer lacks one of the columns {', '.join(names)}")
    for _, last, stop, _ in reversed(wanted):
        if last >= _LOGICAL_TYPE:
            raise ThriftError("a column of VARIANT has another logical type already")
        head = bytes(((_LOGICAL_TYPE - last) << 4 | _STRUCT,))
        footer = b"".join((footer[:stop], head, _ANNOTATION, footer[stop:]))
    return b"".join((end[:start], footer, len(footer).to_bytes(4, "little"), end[-4:]))


def annotate(path: str, names: Collection[str]) -> None:
    """Annotate top-level groups of a finished file of this machine."""
    if not names:
        return
    with open(path, "r+b") as file:
        file.seek(-_FRAME_BYTES, os.SEEK_END)
        size = int.from_bytes(file.read(4), "little") + _FRAME_BYTES
        start = file.seek(-size, os.SEEK_END)
        end = file.read()
        file.seek(start)
        file.write(annotated_end(end, names))


def variant_columns(footer: bytes) -> frozenset[str]:
    """The names of the top-level columns that are annotated as VARIANT.

    Raises:
        ThriftError: the bytes are no footer.
    """
    return frozenset(
        name
        for name, _, _, element in _top_level(footer)
        if _VARIANT in (element.get(_LOGICAL_TYPE) or {})
    )


def _top_level(footer: bytes) -> Iterator[tuple[str, int, int, dict[int, Any]]]:
    """The top-level columns of a schema: name, last field of its element, its stop, itself."""
    at = field = 0
    while True:
        field, kind, at = read_field_head(footer, at, field)
        if kind == STOP:
            raise ThriftError("the footer has no schema")
        if (field, kind) == (_SCHEMA, LIST):
            break
        at = skip_value(footer, kind, at)
    count, _, at = read_list_head(footer, at)
    below = 0  # elements that are still missing below the top-level column
    for number in range(count):
        element, end = read_struct(footer, at)
        if number and not below:
            name = element.get(_NAME)
            if not isinstance(name, bytes):
                raise ThriftError("a column has no name")
            yield name.decode(errors="replace"), max(element), end - 1, element
            below = 1
        if number:
            below += int(element.get(_CHILDREN) or 0) - 1
        at = end

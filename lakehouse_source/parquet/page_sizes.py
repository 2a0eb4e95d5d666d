"""Edge. Checks the sizes in the headers of pages before anything decodes the pages.

A page of a few kilobytes may decompress to 2 GiB, and PyArrow allocates the size in the header.
"""

from __future__ import annotations

import pyarrow as pa

from lakehouse_source.parquet.checked_footer import CheckedFooter
from lakehouse_source.parquet.thrift import ThriftError, read_struct

# The limit if the catalog does not know the sizes.
LARGEST_PAGE_BYTES = 512 * 1024 * 1024
# How much larger a page may be than its row group in the catalog.
_SLACK_BYTES = 1 << 20
# A header has bounds of the page's values in it, which may be long texts.
_HEADER_BYTES = (256, 64 * 1024, 4 * 1024 * 1024)


def oversized_page(
    file: pa.NativeFile, footer: CheckedFooter, row_group: int, limit_bytes: int
) -> str | None:
    """What is wrong with the headers of a row group's pages; None: nothing.

    No header may declare more than `limit_bytes` of decompressed bytes.

    Raises:
        CorruptDatasetError: a column chunk contradicts the schema.
    """
    for position in range(footer.leaf_count):
        meta = footer.structure(row_group, position)[3]
        begins = [meta[id] for id in (9, 11) if isinstance(meta.get(id), int) and meta[id] > 0]
        at = min(begins, default=0)
        end = at + meta[7]
        if at < 0 or meta[7] < 0 or end > file.size():
            return f"column {position} is not in the file"
        while at < end:
            header, length = _header(file, at, end)
            decoded, stored = header.get(2), header.get(3)
            if not isinstance(decoded, int) or not isinstance(stored, int) or stored < 0:
                return f"a page of column {position} has no size"
            if not 0 <= decoded <= limit_bytes + _SLACK_BYTES:
                return f"a page of column {position} says that it has {decoded:,} bytes"
            at += length + stored
    return None


def _header(file: pa.NativeFile, at: int, end: int) -> tuple[dict[int, object], int]:
    for size in _HEADER_BYTES:
        data = file.read_at(min(size, end - at), at)
        try:
            return read_struct(data)
        except ThriftError:
            if len(data) == end - at:
                break
    return {}, 0

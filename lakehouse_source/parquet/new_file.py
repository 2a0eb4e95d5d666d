"""Edge. Writes one Parquet file: its encodings, its layout, its footer.

A closed file is durable, and its size and last bytes have been checked.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from itertools import takewhile
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakehouse_source.errors import StorageError
from lakehouse_source.failpoints import reach
from lakehouse_source.model import FileMetadata
from lakehouse_source.parquet.encoding import encodings
from lakehouse_source.parquet.footer import file_metadata
from lakehouse_source.parquet.read_write_specs import WriteSpec
from lakehouse_source.schema.fields import Leaf, leaves
from lakehouse_source.storage import HashedOutput, Storage

# A reader that looks for few rows decodes whole pages. Measured on TPC-H lineitem and on eight
# other columns, against pages of 20,000 rows: a point lookup takes 27 % less time, a full scan 1 to
# 4 % more, and file sizes change by -0.6 to +0.5 %. PyArrow 21 has no such option.
_PAGE_ROWS: dict[str, Any] = (
    {"max_rows_per_page": 8192}
    if "max_rows_per_page" in inspect.signature(pq.write_table).parameters
    else {}
)


class NewFile:
    """One Parquet file being written. Its first rows decide how its columns are encoded."""

    def __init__(
        self, spec: WriteSpec, storage: Storage, path: str, file_schema: pa.Schema, first: pa.Table
    ) -> None:
        self.storage = storage
        self.path = path
        self.schema = file_schema
        self.floats = [
            leaf
            for leaf in leaves(file_schema)
            if pa.types.is_floating(leaf.type) and not leaf.in_list
        ]
        self.nans: list[frozenset[int] | None] = []
        self.footers: list[pq.FileMetaData] = []
        self.kept_bytes = 0
        self.row_group_rows = spec.row_group_rows
        self.output = HashedOutput(storage.open_output(path))
        try:
            with storage.errors(path):
                self.writer = pq.ParquetWriter(
                    self.output.stream,
                    file_schema,
                    compression=spec.compression,
                    write_page_index=True,
                    **_PAGE_ROWS,
                    # Checksums cost nothing measurable, and only they detect a flipped bit.
                    write_page_checksum=True,
                    store_decimal_as_integer=True,
                    metadata_collector=self.footers,
                    **encodings(first, file_schema),
                    **_layout(spec, file_schema),
                )
        except BaseException:
            self.output.abandon()
            raise
        reach("file opened")

    @property
    def size_bytes(self) -> int:
        return int(self.output.stream.tell())

    def write(self, rows: pa.Table) -> None:
        rows = rows.select(self.schema.names)
        self.nans.append(frozenset(leaf.id for leaf in self.floats if has_nan(rows, leaf)))
        with self.storage.errors(self.path):
            self.writer.write_table(rows, row_group_size=self.row_group_rows)
        reach("row group written")

    def close(self, partitions: Mapping[str, Any]) -> FileMetadata:
        try:
            with self.storage.errors(self.path):
                self.writer.close()
                size = self.size_bytes
                sha256 = self.output.close()
        except BaseException:
            self.abandon()
            raise
        reach("file closed")
        verify_stored(self.storage, self.path, size)
        reach("file verified")
        return file_metadata(
            self.footers[0],
            path=self.path,
            file_size_bytes=size,
            schema=self.schema,
            partitions=partitions,
            nan_columns=self.nans,
            sha256=sha256,
        )

    def abandon(self) -> None:
        """Close the file, without publishing it if the store allows this."""
        # Otherwise PyArrow would write the footer when the writer is garbage-collected.
        self.writer.is_open = False
        try:
            self.output.abandon()
        except (OSError, pa.ArrowException):
            return


def verify_stored(storage: Storage, path: str, size_bytes: int) -> None:
    """Make a file durable; check its size and its end: stores have cut files (arrow#40502)."""
    storage.sync_file(path)
    reach("file synced")
    with storage.open_input(path) as stored, storage.errors(path):
        stored_size = stored.size()
        stored.seek(max(0, stored_size - 4))
        tail = stored.read(4)
    if stored_size != size_bytes or tail != b"PAR1":
        raise StorageError(
            path=storage.display(path),
            reason=f"{stored_size} bytes are stored of {size_bytes} written",
        )


def _layout(spec: WriteSpec, file_schema: pa.Schema) -> dict[str, Any]:
    extra: dict[str, Any] = {}
    names = list(takewhile(lambda name: not _is_float(file_schema, name), _sorted_by(spec)))
    if names:
        extra["sorting_columns"] = pq.SortingColumn.from_ordering(
            file_schema, [(name, "ascending") for name in names]
        )
    if spec.bloom_filter_columns:
        extra["bloom_filter_options"] = dict.fromkeys(spec.bloom_filter_columns, True)
    return extra


def _sorted_by(spec: WriteSpec) -> Iterator[str]:
    """The columns that the rows of a file are sorted by, without partition columns."""
    return (name for name in spec.sort_by if name not in spec.partition_by)


def _is_float(schema: pa.Schema, name: str) -> bool:
    """Tell whether a column has values that Parquet does not order: NaN and the two zeros."""
    return bool(pa.types.is_floating(schema.field(name).type))


def has_nan(rows: pa.Table, leaf: Leaf) -> bool:
    """Tell whether a float column holds a NaN."""
    return bool(pc.any(pc.is_nan(column_at(rows, leaf))).as_py())


def column_at(rows: pa.Table, leaf: Leaf) -> pa.ChunkedArray:
    """The values of a leaf that is not in a list."""
    column = rows.column(leaf.path[0])
    return column if len(leaf.path) == 1 else pc.struct_field(column, list(leaf.path[1:]))

"""Edge. The only place where a Parquet footer is opened. Any bytes give a footer or a `PlakeError`.

PyArrow is trusted to parse a footer: it raises for a footer that it cannot parse. PyArrow is not
trusted with the parsed footer. `RowGroupMetaData.column` and `ColumnChunkMetaData.statistics` call
`std::terminate`, which ends the process, when

    the physical type of a column chunk is not that of the schema,
    a row group has more column chunks than the schema has columns,
    a column chunk has no metadata, or encrypted metadata,
    a histogram of the size statistics does not have one entry per level, a bound in the statistics
    does not have the width of its type.

`CheckedFooter.chunk` looks at the Thrift structure of a column chunk first. PyArrow writes
that structure again from its own memory, so both look at the same fields whatever the
file's bytes were. Only the requested column chunks are checked: a footer of 100 row groups and 100
columns takes PyArrow 12 ms to parse, 8 ms to write again, and plake 140 ms, once, to find the
column chunks, and 0.05 ms for each requested one. `prune_file` always requests column chunks; a
reader does so only for bloom filters, for `=` and `IN`.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse_source.errors import CorruptDatasetError, StorageError
from lakehouse_source.parquet.footer_structure import (
    FooterLayout,
    bloom_filter_offset,
    chunk_problem,
    footer_layout,
    has_usable_statistics,
)
from lakehouse_source.parquet.thrift import Struct, ThriftError
from lakehouse_source.schema.fields import children, is_nested, names_hold

_MAGIC = b"PAR1"
_ENCRYPTED_MAGIC = b"PARE"
# After the footer: its length in four bytes, and the magic.
_FRAME_BYTES = 8
# Bytes read at once from the file's end; most footers are shorter.
_TAIL_BYTES = 64 * 1024
# A footer of 10,000 columns and 100 row groups has 100 MB. PyArrow needs about ten times as much
# memory for the parsed footer, so the footers of foreign files need a limit.
LARGEST_FOOTER_BYTES = 128 * 1024 * 1024
# PyArrow allocates a list before it reads the items, about a kilobyte for each. An item that
# occurs more often than once per few columns takes at least 8 bytes in a valid footer.
_ITEM_BYTES = 8
_SHORTEST_LIMIT = 1000
_LONGEST_LIMIT = 1_000_000


@dataclass(frozen=True, slots=True)
class Chunk:
    """What a footer says about one column chunk.

    `statistics` is None if there are none or they cannot be used.
    """

    physical_type: str
    statistics: pq.Statistics | None
    bloom_filter_offset: int | None


class CheckedFooter:
    """A footer whose column chunks are checked before PyArrow is asked for them.

    `path` names the file in errors. `arrow_schema` is the file's schema, whose names all can be
    read. `leaf_count` is the number of leaf columns, and of chunks in each row group.
    """

    def __init__(self, metadata: pq.FileMetaData, path: str, raw: bytes = b"\x00") -> None:
        self.path = path
        self.metadata = metadata
        self._raw = raw
        with _arrow_errors(path):
            self.arrow_schema = metadata.schema.to_arrow_schema()
            self.created_by: str | None = metadata.created_by
            _read_names(self.arrow_schema)
        self.row_count: int = metadata.num_rows
        self.leaf_count: int = metadata.num_columns
        self.row_counts = tuple(
            metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)
        )
        if self.row_count < 0 or min(self.row_counts, default=0) < 0:
            raise CorruptDatasetError(path=path, reason="its footer says a negative row count")
        if sum(self.row_counts) != self.row_count:
            raise CorruptDatasetError(
                path=path,
                reason=f"its footer says {self.row_count} rows, and its row groups have "
                f"{sum(self.row_counts)}",
            )
        self._chunks: dict[tuple[int, int], Chunk] = {}
        self._checked_structures: dict[tuple[int, int], Struct] = {}

    def chunk(self, row_group: int, position: int) -> Chunk:
        """The column chunk of the leaf column at `position`.

        Raises:
            CorruptDatasetError: the column chunk contradicts the schema, or is encrypted.
        """
        key = (row_group, position)
        if key not in self._chunks:
            self._chunks[key] = self._checked(row_group, position)
        return self._chunks[key]

    def structure(self, row_group: int, position: int) -> Struct:
        """The Thrift structure `ColumnChunk` of the leaf column at `position`.

        Raises:
            CorruptDatasetError: the column chunk contradicts the schema, or is encrypted.
        """
        key = (row_group, position)
        if key not in self._checked_structures:
            chunk_count = len(self._layout.row_groups[row_group])
            if chunk_count != self.leaf_count:
                raise self._corrupt(
                    f"row group {row_group} has {chunk_count} column chunks, not {self.leaf_count}"
                )
            try:
                raw = self._layout.chunk(row_group, position)
                problem = chunk_problem(raw, self.metadata.schema.column(position))
            except ThriftError as error:
                raise self._corrupt(str(error)) from error
            if problem is not None:
                raise self._corrupt(f"column {position} of row group {row_group} {problem}")
            self._checked_structures[key] = raw
        return self._checked_structures[key]

    def with_row_groups(self, row_groups: Sequence[bytes], row_count: int) -> bytes:
        """This footer with other row groups: each one the bytes of a `RowGroup` structure.

        The schema, the key-value metadata and the name of the writer are copied byte for byte.
        """
        return self._layout.with_row_groups(row_groups, row_count)

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of the top-level columns."""
        return frozenset(self.arrow_schema.names)

    @cached_property
    def leaf_paths(self) -> tuple[str, ...]:
        """The path of each leaf column, as Parquet spells it: names with dots between them."""
        schema = self.metadata.schema
        return tuple(schema.column(at).path for at in range(self.leaf_count))

    @cached_property
    def leaves_by_path(self) -> Mapping[str, tuple[int, ...]]:
        """The places of the leaf columns at and below each path."""
        found: dict[str, tuple[int, ...]] = {}
        for at, leaf_path in enumerate(self.leaf_paths):
            names = leaf_path.split(".")
            for depth in range(1, len(names) + 1):
                path = ".".join(names[:depth])
                found[path] = (*found.get(path, ()), at)
        return found

    @cached_property
    def has_dots(self) -> bool:
        """Tell whether a name in the schema has a dot, so that paths are ambiguous."""
        return names_hold(self.arrow_schema, ".")

    @cached_property
    def places(self) -> Mapping[tuple[str, ...], tuple[int, pa.DataType]]:
        """The place and type of each leaf column by its path. Empty where paths are ambiguous."""
        found: list[tuple[tuple[str, ...], pa.DataType]] = []

        def walk(field: pa.Field, above: tuple[str, ...]) -> None:
            path = (*above, field.name)
            if is_nested(field.type):
                for child in children(field.type):
                    walk(child, path)
            else:
                found.append((path, field.type))

        for field in self.arrow_schema:
            walk(field, ())
        places = {path: (place, type_) for place, (path, type_) in enumerate(found)}
        return places if len(places) == len(found) == self.leaf_count else {}

    @cached_property
    def _layout(self) -> FooterLayout:
        """The positions of structures in the footer as PyArrow understood it."""
        try:
            given = footer_layout(self._raw)
            sink = pa.BufferOutputStream()
            with _arrow_errors(self.path):
                self.metadata.write_metadata_file(sink)
            written: bytes = _between_frames(sink.getvalue().to_pybytes())
            # Most writers order a footer like PyArrow.
            return given if given.data == written else footer_layout(written)
        except ThriftError as error:
            raise self._corrupt(str(error)) from error

    def _checked(self, row_group: int, position: int) -> Chunk:
        raw = self.structure(row_group, position)
        column = self.metadata.schema.column(position)
        statistics = None
        if has_usable_statistics(raw, column):
            statistics = self.metadata.row_group(row_group).column(position).statistics
        return Chunk(
            physical_type=column.physical_type,
            statistics=statistics,
            bloom_filter_offset=bloom_filter_offset(raw),
        )

    def _corrupt(self, reason: str) -> CorruptDatasetError:
        return CorruptDatasetError(path=self.path, reason=reason)


def open_footer(file: pa.NativeFile, path: str, *, remembered: bool = False) -> CheckedFooter:
    """Read the footer of a Parquet file. `path` names the file in errors.

    With `remembered`, a footer is not parsed again if the same bytes were parsed lately.

    Raises:
        CorruptDatasetError: the file is not a Parquet file, or its footer is damaged or
            encrypted.
    """
    try:
        footer = _footer_bytes(file, path)
    except (OSError, pa.ArrowException) as error:
        raise StorageError(path=path, reason=str(error)) from error
    known = _REMEMBERED.get(path, footer) if remembered else None
    if known is not None:
        return known
    limit = min(max(len(footer) // _ITEM_BYTES, _SHORTEST_LIMIT), _LONGEST_LIMIT)
    framed = b"".join((_MAGIC, footer, len(footer).to_bytes(4, "little"), _MAGIC))
    with _arrow_errors(path):
        metadata = pq.ParquetFile(
            pa.BufferReader(framed),
            thrift_string_size_limit=len(framed),
            thrift_container_size_limit=limit,
        ).metadata
    checked = CheckedFooter(metadata, path, footer)
    if remembered:
        _REMEMBERED.put(path, footer, checked)
    return checked


class _Remembered:
    """The footers that were used last, by path and by all of their bytes.

    The bytes are read from the file each time, so that an old footer never stands in for a
    file that was replaced. PyArrow needs about ten times the bytes for a parsed footer.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._size_bytes = 0
        self._footers: OrderedDict[tuple[str, bytes], CheckedFooter] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, path: str, footer: bytes) -> CheckedFooter | None:
        with self._lock:
            found = self._footers.get((path, footer))
            if found is not None:
                self._footers.move_to_end((path, footer))
            return found

    def put(self, path: str, footer: bytes, checked: CheckedFooter) -> None:
        if len(footer) > self._limit_bytes:
            return
        with self._lock:
            if (path, footer) not in self._footers:
                self._footers[path, footer] = checked
                self._size_bytes += len(footer)
            while self._size_bytes > self._limit_bytes:
                (_, oldest), _ = self._footers.popitem(last=False)
                self._size_bytes -= len(oldest)


_REMEMBERED = _Remembered(2 * 1024 * 1024)


def _footer_bytes(file: pa.NativeFile, path: str) -> bytes:
    size = file.size()
    if size < len(_MAGIC) + _FRAME_BYTES:
        raise CorruptDatasetError(
            path=path, reason=f"it has {size} bytes, too few for a Parquet file"
        )
    start = max(0, size - _TAIL_BYTES)
    tail: bytes = file.read_at(size - start, start)
    magic = tail[-len(_MAGIC) :]
    if magic == _ENCRYPTED_MAGIC:
        raise CorruptDatasetError(path=path, reason="its footer is encrypted")
    if magic != _MAGIC:
        raise CorruptDatasetError(
            path=path, reason=f"it does not end as a Parquet file does, with {_MAGIC!r}"
        )
    length = int.from_bytes(tail[-_FRAME_BYTES : -len(_MAGIC)], "little")
    if length > size - len(_MAGIC) - _FRAME_BYTES:
        raise CorruptDatasetError(
            path=path, reason=f"it says that its footer has {length} bytes; the file has {size}"
        )
    if length > LARGEST_FOOTER_BYTES:
        raise CorruptDatasetError(
            path=path,
            reason=f"it says that its footer has {length:,} bytes; more than "
            f"{LARGEST_FOOTER_BYTES:,} are not read",
        )
    if length + _FRAME_BYTES > len(tail):
        tail = file.read_at(length + _FRAME_BYTES, size - length - _FRAME_BYTES)
    return _between_frames(tail)


def _between_frames(data: bytes) -> bytes:
    """The footer at the end of `data`, without its length and the magic."""
    end = len(data) - _FRAME_BYTES
    return data[end - int.from_bytes(data[end : end + 4], "little") : end]


@contextmanager
def _arrow_errors(path: str) -> Iterator[None]:
    """Name the file in any error that PyArrow raises for a footer."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, TypeError, LookupError) as error:
        # A name that is not UTF-8 is a ValueError, a type that PyArrow does not know a KeyError.
        raise CorruptDatasetError(path=path, reason=str(error)) from error


def _read_names(fields: Iterable[pa.Field]) -> None:
    """Read the name of every field: PyArrow decodes it only then."""
    for field in fields:
        _ = field.name
        _read_names(children(field.type))

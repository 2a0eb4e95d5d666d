"""Edge. Writes one Parquet file: its encodings, its layout, its footer.

A closed file is durable, and its size and last bytes have been checked.
"""

from __future__ import annotations

import inspect
import math
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import takewhile
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakehouse_source.constraints import ascending_ends, may_ascend
from lakehouse_source.errors import StorageError
from lakehouse_source.failpoints import reach
from lakehouse_source.language.functions.rows import flat
from lakehouse_source.model import FileMetadata
from lakehouse_source.parquet.footer import annotated_end, file_metadata, stored_positions
from lakehouse_source.parquet.read_write_specs import COMPRESSION, WriteSpec
from lakehouse_source.schema.fields import Leaf, leaves
from lakehouse_source.schema.ordinal import domain
from lakehouse_source.schema.variant import TYPED_VALUE, Tree
from lakehouse_source.schema.variant_paths import (
    CHOSEN_IDS,
    FEWEST_ROWS,
    KINDS,
    Choice,
    Path,
    paths_of,
    places,
    split,
    texts_of,
    with_paths,
    without_paths,
)
from lakehouse_source.schema.variant_storage import stored, stored_table, variant_paths
from lakehouse_source.storage import HashedOutput, Storage

# --- Decides from the first rows of a file how its columns are encoded.
#
# Measured on row groups of 131,072 rows under zstd (one column each: milliseconds of CPU to write,
# to read, kilobytes):
#
#     values in the row group        dictionary       without
#     1,000 different whole numbers    6   3   170    16   6   270
#     20,000                          12   4   320    10   4   480  delta
#     all different                   44   7  1100    12   4   730  delta
#     ascending numbers               39   9   390     4   3     1  delta
#     20,000 different floats         17   4   310    18   6   420
#     all different                   63   9  1240     9   6   990
#     20,000 different texts          27  14   300    27  14   380
#     all different                   43  18   770    31  16   660
#
# So a column gets a dictionary if each value occurs about five times. Whole numbers, dates and
# timestamps without a dictionary are written as differences, which Spark reads as fast as plain
# ones. Arrow's own choice, a dictionary for every column until the dictionary is too large, took
# twice the time, and the files were a quarter larger.


# Rows in the sample, evenly spread: neighbours in sorted rows are alike and would mislead.
SAMPLE_ROWS = 8192
# A dictionary pays when each value occurs at least this many times.
TIMES = 5


def encodings(rows: pa.Table, schema: pa.Schema, trees: Mapping[str, Tree] = {}) -> dict[str, Any]:
    """The options of `pq.ParquetWriter` that fit the columns, judged by the first row group."""
    sample = rows.take(_spread(rows.num_rows))
    scale = rows.num_rows / max(1, sample.num_rows)
    dictionary: list[str] = []
    differences: dict[str, str] = {}
    physical = stored(schema, trees)
    paths = _paths(physical)
    times = Counter(paths)
    columns = [leaf for leaf in leaves(schema) if leaf.column_id is None]
    positions = stored_positions(columns, physical)
    if trees:
        shredded = stored_table(sample.select([*trees]), trees)
        for leaf, place in zip(columns, positions):
            if leaf.path[0] in trees:
                column = shredded.column(leaf.path[0]).combine_chunks()
                for names, _, typed, type_ in places(column.type):
                    if _repeat(typed_values(column, names), scale):
                        dictionary.append(paths[place + typed])
                    elif _counts(type_):
                        differences[paths[place + typed]] = "DELTA_BINARY_PACKED"
    for leaf, place in zip(columns, positions):
        path = paths[place]
        # A column `a.b` has the same path as field `b` of a struct `a`, so both get the same
        # encoding. A dictionary suits every type.
        if leaf.in_list or times[path] > 1 or _repeats(sample, leaf, scale):
            dictionary.append(path)
        elif _counts(leaf.type):
            differences[path] = "DELTA_BINARY_PACKED"
    return {"use_dictionary": dictionary, "column_encoding": differences or None}


def _repeats(sample: pa.Table, leaf: Leaf, scale: float) -> bool:
    """Tell from a sample whether values repeat often enough in all rows for a dictionary."""
    column = sample.column(leaf.path[0])
    for name in leaf.path[1:]:
        column = pc.struct_field(column, pc.field(name))
    return _repeat(column, scale)


def typed_values(column: pa.StructArray, path: Iterable[str]) -> pa.Array:
    """The values of a path of a shredded column in the type that it has there."""
    for name in (*(part for step in path for part in (TYPED_VALUE, step)), TYPED_VALUE):
        column = column.flatten()[column.type.get_field_index(name)]
    return column


def _repeat(column: pa.Array, scale: float) -> bool:
    values = len(column) - column.null_count
    try:
        distinct = pc.count_distinct(column).as_py()
    except pa.ArrowNotImplementedError:
        return True
    if values == 0:
        return True
    # The expected number of distinct values in the sample, if all rows together hold `most` values
    # equally often.
    most = values * scale / TIMES
    return bool(distinct <= max(1.0, most * -math.expm1(-values / most)))


def _counts(type_: pa.DataType) -> bool:
    return domain(type_).temporal or domain(type_).kind == "int"


@lru_cache(maxsize=16)
def _spread(rows: int) -> pa.Array:
    # Not `pa.array`: it imports pandas, which takes longer than a small write.
    positions = array("q", range(0, rows, max(1, rows // SAMPLE_ROWS)))
    return pa.Array.from_buffers(pa.int64(), len(positions), [None, pa.py_buffer(positions)])


@lru_cache(maxsize=64)
def _paths(schema: pa.Schema) -> tuple[str, ...]:
    """The Parquet paths of the leaves, in schema order."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, schema):
        pass
    stored = pq.ParquetFile(sink.getvalue()).schema
    return tuple(stored.column(i).path for i in range(len(stored)))


# The share of absent values that a bloom filter lets through. One of ten thousand new keys that is
# let through costs as much as the test of a thousand. A filter has 16 to 32 bits for each row.
_FALSE_POSITIVES = 0.001
# A reader that looks for few rows decodes whole pages. Measured on TPC-H lineitem and on eight
# other columns, against pages of 20,000 rows: a point lookup takes 27 % less time, a full scan 1 to
# 4 % more, and file sizes change by -0.6 to +0.5 %. PyArrow 21 has no such option.
_PAGE_ROWS: dict[str, Any] = (
    {"max_rows_per_page": 8192}
    if "max_rows_per_page" in inspect.signature(pq.write_table).parameters
    else {}
)


# Zstd takes 40 µs for each page, to write and to read it, whatever its size. On a table of six
# columns, an append of 100 rows takes 311 µs in Arrow's writer and their scan 186; without it 142
# and 46, and 4 KiB more in the file. Other codecs take less than 2 µs for a page.
_FEWEST_BYTES_FOR_ZSTD = 2048


def _codec(spec: WriteSpec, first: pa.Table, columns: int) -> str:
    """The codec of a file with these leaf columns, where nobody chose one."""
    is_all = first.num_rows < spec.row_group_rows  # else more rows may follow
    is_small = is_all and first.nbytes < _FEWEST_BYTES_FOR_ZSTD * columns
    return spec.compression or ("none" if is_small else COMPRESSION)


class NewFile:
    """One Parquet file being written. Its first rows decide how its columns are encoded."""

    def __init__(
        self, spec: WriteSpec, storage: Storage, path: str, file_schema: pa.Schema, first: pa.Table
    ) -> None:
        self.storage = storage
        self.path = path
        if spec.choice is not None and first.num_rows >= FEWEST_ROWS:
            file_schema = _with_chosen_paths(first, file_schema, spec.choice)
        self.schema = file_schema
        self.floats = [
            leaf
            for leaf in leaves(file_schema)
            if pa.types.is_floating(leaf.type) and not leaf.in_list and leaf.column_id is None
        ]
        self.trees = {
            field.name: tree
            for field in file_schema
            if (paths := paths_of(field)) and (tree := _tree(first.column(field.name), [*paths]))
        }
        self.stored = stored(file_schema, self.trees)
        # The first and last values of keys, as long as they ascend.
        keys = [one.unique[0] for one in spec.constraints if may_ascend(one, file_schema)]
        self.ascending: dict[str, list[pa.Array]] = {name: [] for name in keys}
        self.nans: list[frozenset[int] | None] = []
        self.footers: list[pq.FileMetaData] = []
        self.kept_bytes = 0
        self.row_group_rows = spec.row_group_rows
        self.variants = list(variant_paths(file_schema))
        self.output = HashedOutput(storage.open_output(path))
        try:
            with storage.errors(path):
                self.writer = pq.ParquetWriter(
                    self.output.stream,
                    self.stored,
                    compression=_codec(spec, first, len(_paths(self.stored))),
                    write_page_index=True,
                    **_PAGE_ROWS,
                    # Checksums cost nothing measurable, and only they detect a flipped bit.
                    write_page_checksum=True,
                    store_decimal_as_integer=True,
                    metadata_collector=self.footers,
                    **encodings(first, file_schema, self.trees),
                    **_layout(spec, file_schema, self.trees, first.num_rows),
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
        for name in [*self.ascending]:
            ends = ascending_ends(flat(rows.column(name)))
            if ends is None:
                del self.ascending[name]
            else:
                self.ascending[name].append(ends)
        nans = {leaf.id for leaf in self.floats if has_nan(rows, leaf)}
        table = stored_table(rows, self.trees)
        for name in self.trees:
            nans.update(_paths_with_nan(self.schema.field(name), table.column(name)))
        self.nans.append(frozenset(nans))
        with self.storage.errors(self.path):
            self.writer.write_table(table, row_group_size=self.row_group_rows)
        reach("row group written")

    def close(self, partitions: Mapping[str, Any]) -> FileMetadata:
        try:
            with self.storage.errors(self.path):
                if self.variants:
                    self.output.hold()
                self.writer.close()
                if self.variants:
                    self.output.release(lambda end: annotated_end(end, self.variants))
                size = self.output.size_bytes
                sha256 = self.output.close()
        except BaseException:
            self.abandon()
            raise
        reach("file closed")
        verify_stored(self.storage, self.path, size)
        reach("file verified")
        together = {n: ascending_ends(pa.concat_arrays(ends)) for n, ends in self.ascending.items()}
        found = file_metadata(
            self.footers[0],
            path=self.path,
            file_size_bytes=size,
            schema=self.schema,
            stored=self.stored,
            partitions=partitions,
            nan_columns=self.nans,
            sha256=sha256,
        )
        return replace(found, ascending={n: e for n, e in together.items() if e is not None})

    def abandon(self) -> None:
        """Close the file, without publishing it if the store allows this."""
        # Otherwise PyArrow would write the footer when the writer is garbage-collected.
        self.writer.is_open = False
        try:
            self.output.abandon()
        except (OSError, pa.ArrowException):
            return


def _tree(column: pa.ChunkedArray, paths: list[Path]) -> Tree:
    from lakehouse_source.schema.variant_shredding import tree_of  # imports numpy

    return tree_of(column.combine_chunks().storage, paths)


def _with_chosen_paths(rows: pa.Table, schema: pa.Schema, choice: Choice) -> pa.Schema:
    """The schema with paths for columns of VARIANT that have none, from a sample of rows."""
    texts = []
    for field in without_paths(schema):
        from lakehouse_source.schema.variant_shredding import chosen_paths  # imports numpy

        sample = rows.column(field.name).take(_spread(rows.num_rows)).combine_chunks()
        paths = chosen_paths(sample.storage, choice)
        texts += [f"{field.name}:{'.'.join(path)}" for path in paths]
    return with_paths(schema, [*texts_of(schema), *texts], CHOSEN_IDS) if texts else schema


def _paths_with_nan(field: pa.Field, column: pa.ChunkedArray) -> Iterator[int]:
    """The ids of the paths of a shredded column that have a NaN."""
    number = [*KINDS].index("DOUBLE")
    for path, _, _, type_ in places(column.type):
        if pa.types.is_floating(type_) and any(
            pc.any(pc.is_nan(typed_values(chunk, path))).as_py() for chunk in column.chunks
        ):
            yield paths_of(field)[path] + number


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


def _layout(
    spec: WriteSpec, file_schema: pa.Schema, trees: Mapping[str, Tree], rows: int
) -> dict[str, Any]:
    """The options of `pq.ParquetWriter` for the order of rows and the bloom filters.

    `rows` is the size of the first row group: Arrow allocates filters for a million values, and
    folds them afterwards, which takes 16 ms of each row group of 10,000 rows.
    """
    extra: dict[str, Any] = {}
    names = list(takewhile(lambda name: _has_order(file_schema, name), _sorted_by(spec)))
    if names:
        extra["sorting_columns"] = pq.SortingColumn.from_ordering(
            file_schema, [(name, "ascending") for name in names]
        )
    if spec.bloom_filter_columns:
        sized = {"ndv": max(1, rows), "fpp": _FALSE_POSITIVES}
        columns = (
            name if name in file_schema.names else _parquet_path(name, trees)
            for name in spec.bloom_filter_columns
        )
        extra["bloom_filter_options"] = {name: sized for name in columns if name is not None}
    return extra


def _parquet_path(text: str, trees: Mapping[str, Tree]) -> str | None:
    """The leaf of a path of VARIANT; None: the file has none, or it can have no filter."""
    column, names = split(text) or (text, ())
    place = trees.get(column)
    for name in names:
        place = place.get(name) if isinstance(place, Mapping) else None
    if not isinstance(place, pa.DataType) or pa.types.is_boolean(place):
        return None
    return ".".join(
        (column, *(part for name in names for part in (TYPED_VALUE, name)), TYPED_VALUE)
    )


def _sorted_by(spec: WriteSpec) -> Iterator[str]:
    """The columns that the rows of a file are sorted by, without partition columns."""
    return (name for name in spec.sort_by if name not in spec.partition_by)


def _has_order(schema: pa.Schema, name: str) -> bool:
    """Tell whether Parquet orders a column: not NaN and the two zeros, and no path of VARIANT."""
    return name in schema.names and not pa.types.is_floating(schema.field(name).type)


def has_nan(rows: pa.Table, leaf: Leaf) -> bool:
    """Tell whether a float column holds a NaN."""
    return bool(pc.any(pc.is_nan(column_at(rows, leaf))).as_py())


def column_at(rows: pa.Table, leaf: Leaf) -> pa.ChunkedArray:
    """The values of a leaf that is not in a list."""
    column = rows.column(leaf.path[0])
    return column if len(leaf.path) == 1 else pc.struct_field(column, list(leaf.path[1:]))

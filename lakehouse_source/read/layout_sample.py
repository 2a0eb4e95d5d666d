"""Verb. A sample of a dataset's rows, laid out as a choice of columns would lay out all rows.

The sample is cut into parts that stand for row groups. The bounds of a part tell, like those of a
row group, which conditions have to read the part.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.catalog.sql.reader import CatalogReader
from lakehouse_source.layout.order import Curve, sorted_places
from lakehouse_source.model import ColumnBounds, RowGroupMetadata
from lakehouse_source.parquet.read_write_specs import Where
from lakehouse_source.parquet.reader import read_task
from lakehouse_source.read.file_arrays import live_files
from lakehouse_source.read.plan import ScanPlan, plan
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.schema.fields import Leaf, without_metadata
from lakehouse_source.schema.ordinal import to_ordinal
from lakehouse_source.storage import Storage

# The limits of the sample: places of the dataset, rows taken at each place, and bytes in all.
_PLACES = 128
_ROWS = 256
_BYTES = 256 * 1024 * 1024
# The fewest rows of a part: the bounds of fewer rows would be too narrow.
_PART_ROWS = 64


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the sample that stands for a row group: its bounds, by column id.

    `share` is the part's share of all rows.
    """

    share: float
    bounds: Mapping[int, ColumnBounds]


class Sample:
    """Rows of a dataset: the values of some leaf columns, and how many rows there are in all.

    `group_share` is the row groups' share of the files' bytes; the rest is footers and the like.
    """

    def __init__(
        self, rows: pa.Table, leaves: Sequence[Leaf], row_count: int, group_share: float
    ) -> None:
        self.rows = rows
        self.row_count = row_count
        self.group_share = group_share
        self.columns = {leaf.id: _values(rows, leaf) for leaf in leaves}
        self._leaves = leaves

    def distinct(self, column_id: int) -> float:
        """About how many distinct values the column has, NULL among them.

        Source: Haas and Stokes, "Estimating the number of classes in a finite population" (1998),
        the estimator Duj1, which PostgreSQL's ANALYZE uses too.
        """
        counts = pc.value_counts(self.columns[column_id]).field("counts")
        taken, found = len(self.rows), len(counts)
        if not taken:
            return 0.0
        once = pc.sum(pc.equal(counts, 1)).as_py() or 0
        share = taken / max(taken, self.row_count)
        return min(float(self.row_count), found / (1 - (1 - share) * once / taken))

    def laid_out(
        self, partition_by: Sequence[int], cluster_by: Sequence[int], group_rows: int
    ) -> list[Part]:
        """The parts, when rows are partitioned and sorted by columns as `cluster()` sorts them.

        They stand for row groups of `group_rows` rows, or for larger ones where the sample is
        small.
        """
        taken = len(self.rows)
        groups = max(1, -(-self.row_count // group_rows))
        size = max(_PART_ROWS if taken < self.row_count else 1, -(-taken // groups))
        order = pa.array(range(taken), pa.int64())
        if cluster_by and taken:
            columns = [self.columns[id] for id in cluster_by]
            order = sorted_places(columns, Curve.of(columns) if len(columns) > 1 else None)
        codes = [
            self.columns[id].dictionary_encode(null_encoding="encode").indices
            for id in partition_by
        ]
        for numbers in reversed(codes):
            order = order.take(pc.sort_indices(numbers.take(order)))  # stable
        ends = _ends([numbers.take(order) for numbers in codes], taken)
        cuts = [0]
        for end in ends:
            cuts += range(cuts[-1] + size, end, size)
            cuts.append(end)
        counts = [stop - start for start, stop in pairwise(cuts)]
        numbers = pa.array([part for part, count in enumerate(counts) for _ in range(count)])
        known = {
            leaf.id: _bounds(self.columns[leaf.id].take(order), numbers, counts, leaf.type)
            for leaf in self._leaves
        }
        return [
            Part(count / taken, {id: bounds[part] for id, bounds in known.items()})
            for part, count in enumerate(counts)
        ]


def _ends(partitions: Sequence[pa.Array], count: int) -> list[int]:
    """Where the rows of each partition end; all rows of a partition have the same numbers."""
    ends = pa.repeat(pa.scalar(False), max(0, count - 1))
    for numbers in partitions:
        ends = pc.or_(ends, pc.not_equal(numbers.slice(1), numbers.slice(0, max(0, count - 1))))
    return [place + 1 for place in pc.indices_nonzero(ends).to_pylist()] + [count]


def _values(rows: pa.Table, leaf: Leaf) -> pa.Array:
    column = rows.column(leaf.path[0])
    for name in leaf.path[1:]:
        column = pc.struct_field(column, name)
    column = column.combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks)
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _bounds(
    values: pa.Array, parts: pa.Array, counts: Sequence[int], type_: pa.DataType
) -> list[ColumnBounds]:
    """The bounds of a column over the rows of each part."""
    nans = pa.repeat(pa.scalar(False), len(values))
    if pa.types.is_floating(values.type):
        values = values.cast(pa.float64())
        nans = pc.fill_null(pc.is_nan(values), False)
    elif pa.types.is_temporal(values.type):  # Python has no date after the year 9999
        values = values.view(pa.int32() if type_.bit_width == 32 else pa.int64())
    table = pa.table({"part": parts, "value": pc.if_else(nans, None, values), "nan": nans})
    found = table.group_by("part", use_threads=False).aggregate(
        [("value", "min"), ("value", "max"), ("value", "count"), ("nan", "sum")]
    )
    names = ("part", "value_min", "value_max", "value_count", "nan_sum")
    bounds = []
    for part, low, high, count, nan in zip(*(found[name].to_pylist() for name in names)):
        lower, upper = (None if end is None else to_ordinal(end, type_) for end in (low, high))
        nulls = counts[part] - count - nan
        bounds.append(ColumnBounds(lower, upper, nulls, counts[part], nan > 0))
    return bounds


def sample_of(
    reader: CatalogReader, snapshot: Snapshot, leaves: Sequence[Leaf], read_uri: Where
) -> Sample:
    """Some rows of the version; reads one row group at each of at most `_PLACES` places."""
    files = live_files(reader, snapshot)
    names = list(dict.fromkeys(leaf.path[0] for leaf in leaves))
    begins = list(accumulate(files.rows.to_pylist(), initial=0))
    count = begins[-1]
    wanted: dict[int, list[int]] = {}
    for number in range(_PLACES):
        at = (2 * number + 1) * count // (2 * _PLACES)
        place = bisect_right(begins, at) - 1
        wanted.setdefault(files.ids[place].as_py(), []).append(at - begins[place])
    ids = list(wanted)
    records = {file.id: file for file in reader.files_by_id(ids)}
    groups = reader.row_groups(ids, statistics=False)
    schema = pa.schema([snapshot.schema.field(name) for name in names])
    tables, held = [without_metadata(schema).empty_table()], 0
    # In random order: if the values are large, only the first files are read.
    for id in random.Random(1).sample(ids, len(ids)):
        found = plan(reader, snapshot, read_uri=read_uri, columns=names, files=[records[id]])
        for table in _rows_at(found, groups[id], wanted[id]):
            held += table.nbytes
            if held <= _BYTES:
                tables.append(table)
    sizes = [sum(one.compressed_byte_size for one in groups[id]) for id in ids]
    whole = sum(record.size_bytes for record in records.values())
    rows = pa.concat_tables(tables).combine_chunks()
    return Sample(rows, leaves, count, sum(sizes) / max(1, whole))


def _rows_at(
    found: ScanPlan, groups: Sequence[RowGroupMetadata], places: Sequence[int]
) -> Iterator[pa.Table]:
    """Evenly spread rows of one file, from its row groups at these places."""
    starts = list(accumulate((one.row_count for one in groups), initial=0))
    times = Counter(bisect_right(starts, place) - 1 for place in places)
    storage = Storage(found.spec.uri)
    for task in found.tasks:
        for group, count in times.items():
            one = replace(task, row_groups=(groups[group].index,))
            for table in read_task(found.spec, one, storage):
                every = max(1, table.num_rows // (count * _ROWS))
                yield table.take(pa.array(range(0, table.num_rows, every), pa.int64()))

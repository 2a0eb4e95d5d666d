"""Verb. Suggests the layout with which given conditions read least, by statistics and a sample.

What a condition reads of today's files is in the catalog. What it would read with another layout is
estimated: a sample of the rows gets that layout, and its parts are pruned as row groups are. All
columns of the row groups count. Sizes are in bytes.
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
from lakehouse_source.errors import InvalidOptionError, SchemaMismatchError
from lakehouse_source.language import BoundPredicate, PredicateSet
from lakehouse_source.language.bounds.bound import BoundAnd, BoundCompare, BoundIn, BoundNode
from lakehouse_source.language.row_filter import matching_mask
from lakehouse_source.layout import MOST_COLUMNS, Curve, sorted_places
from lakehouse_source.model import ColumnBounds, RowGroupMetadata
from lakehouse_source.parquet.read_write_specs import ROW_GROUP_ROWS, TARGET_FILE_SIZE_BYTES, Where
from lakehouse_source.parquet.reader import read_task
from lakehouse_source.pruning.evaluate import evaluate
from lakehouse_source.pruning.keys import can_be_indexed
from lakehouse_source.read.file_arrays import live_files
from lakehouse_source.read.health import SMALL_SHARE
from lakehouse_source.read.plan import ScanPlan, plan
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.schema.arrow_arrays import empty
from lakehouse_source.schema.fields import Leaf, leaves, without_metadata
from lakehouse_source.schema.ordinal import to_ordinal
from lakehouse_source.schema.partitions import check_partition_columns
from lakehouse_source.storage import Storage

# --- A sample of a dataset's rows, laid out as a choice of columns would lay out all rows.
#
# The sample is cut into parts that stand for row groups. The bounds of a part tell, like those of a
# row group, which conditions have to read the part.


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
    tables, held = [empty(without_metadata(schema))], 0
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


MOST_CONDITIONS = 100
# How many columns are tried: those that, alone, let the conditions read least.
_MOST_COLUMNS = 6
_MOST_PARTITIONS = 3
# A choice is worth it if it reads at most this share of the bytes that a simpler choice reads.
_WORTH_SHARE = 0.9
# The share of false positives of a bloom filter.
_FALSE_POSITIVES = 0.05
_SHOWN = 12


@dataclass(frozen=True, slots=True)
class LayoutChoice:
    """A layout, and the bytes that the conditions would read, each and together.

    `is_now`: the layout of today's files, by the catalog; others are estimates.
    """

    partition_by: tuple[str, ...]
    cluster_by: tuple[str, ...]
    bloom_filter_columns: tuple[str, ...]
    bytes_by_condition: tuple[int, ...]
    is_now: bool = False

    @property
    def bytes_read(self) -> int:
        """Bytes of all conditions, each once."""
        return sum(self.bytes_by_condition)


@dataclass(frozen=True, slots=True)
class LayoutAdvice:
    """What `suggest_layout()` found; prints as a table.

    `choices` begins with today's layout; the others follow, the one that reads least first. `best`
    is one of the choices: more columns, or other partition columns, are chosen only if they read at
    least a tenth less. `sampled_rows` is the size of the sample.
    """

    dataset: str
    version: int
    conditions: tuple[str, ...]
    size_bytes: int
    sampled_rows: int
    choices: tuple[LayoutChoice, ...]
    best: LayoutChoice

    @property
    def is_good(self) -> bool:
        """Tell whether no other layout is worth it."""
        return self.best.is_now

    def table(self) -> Iterator[tuple[list[str], list[str], list[str], int, float, bool, bool]]:
        """Rows of: columns of partitions, clustering, bloom filters; bytes, and their share of all.

        Then whether the choice is today's layout, and whether it is the best one.
        """
        whole = max(1, self.size_bytes * len(self.conditions))
        for one in self.choices:
            yield (
                list(one.partition_by),
                list(one.cluster_by),
                list(one.bloom_filter_columns),
                one.bytes_read,
                one.bytes_read / whole,
                one.is_now,
                one is self.best,
            )

    def __str__(self) -> str:
        count = len(self.conditions)
        head = f"{self.dataset}, version {self.version}: what {count} conditions read"
        lines = [f"{head}, estimated from {self.sampled_rows:,} rows"]
        for partitions, clusters, blooms, size, share, is_now, is_best in self.table():
            texts = [
                f"{name}={names}"
                for name, names in (
                    ("partition_by", partitions),
                    ("cluster_by", clusters),
                    ("bloom_filter_columns", blooms),
                )
                if names
            ]
            notes = [*(["as it is"] if is_now else []), *(["best"] if is_best else [])]
            cells = [f"{size:>16,} bytes", f"{share:7.2%}", " ".join(texts), ", ".join(notes)]
            lines.append("  ".join(one for one in cells if one))
        return "\n".join(lines)


def suggest_layout(
    reader: CatalogReader, snapshot: Snapshot, conditions: str | Sequence[str], read_uri: Where
) -> LayoutAdvice:
    """Try layouts by the columns of the conditions, and tell which of them is best.

    Raises:
        InvalidPredicateError: a condition cannot be parsed, or names an unknown column.
        StorageError, CorruptDatasetError: the sample cannot be read.
    """
    conditions = (conditions,) if isinstance(conditions, str) else tuple(conditions)
    are_texts = all(isinstance(text, str) for text in conditions)
    if not (are_texts and 1 <= len(conditions) <= MOST_CONDITIONS):
        raise InvalidOptionError(
            option="conditions",
            value=len(conditions) if are_texts else conditions,
            reason=f"must be 1 to {MOST_CONDITIONS} conditions as SQL texts.",
        )
    given = [PredicateSet.of(text) for text in conditions]
    bound = [one.bind(snapshot.schema) for one in given]
    layout = snapshot.dataset.properties.layout
    now = LayoutChoice(
        snapshot.partition_by,
        layout.cluster_by or (),
        layout.bloom_filter_columns or (),
        tuple(plan(reader, snapshot, predicates=one).pruning.bytes_read for one in given),
        is_now=True,
    )
    named = {id for one in bound for id in one.column_ids}
    columns = [
        leaf
        for leaf in leaves(snapshot.schema)
        if (leaf.id in named or leaf.path[0] in snapshot.partition_by) and can_be_indexed(leaf)
    ]
    tried, taken = [now], 0
    if columns and snapshot.summary.get("live_rows"):
        sample = sample_of(reader, snapshot, columns, read_uri)
        taken = len(sample.rows)
        if taken:
            tried = list(_Trials(snapshot, sample, bound, columns, now).run())
    best = _best(tried)
    others = sorted(tried[1:], key=_cost)[:_SHOWN]
    if not best.is_now and best not in others:
        others.append(best)
    return LayoutAdvice(
        snapshot.uri,
        snapshot.version,
        conditions,
        snapshot.summary.get("live_bytes", 0),
        taken,
        (tried[0], *others),
        best,
    )


def _cost(choice: LayoutChoice) -> tuple[int, int]:
    return choice.bytes_read, len(choice.cluster_by) + len(choice.bloom_filter_columns)


def _best(tried: Sequence[LayoutChoice]) -> LayoutChoice:
    """The choice that reads least, unless a simpler one reads about as little."""
    now, *others = tried

    def effort(choice: LayoutChoice) -> tuple[int, ...]:
        return (
            int(choice.partition_by != now.partition_by),
            len(choice.cluster_by),
            len(choice.bloom_filter_columns),
            choice.bytes_read,
        )

    best = now
    for one in sorted(others, key=effort):
        if one.bytes_read < _WORTH_SHARE * best.bytes_read:
            best = one
    return best


class _Trials:
    """Lays the sample out by each choice of columns, and counts what conditions would read."""

    def __init__(
        self,
        snapshot: Snapshot,
        sample: Sample,
        conditions: Sequence[BoundPredicate],
        columns: Sequence[Leaf],
        now: LayoutChoice,
    ) -> None:
        layout = snapshot.dataset.properties.layout
        self._sample = sample
        self._conditions = conditions
        self._now = now
        self._size_bytes = snapshot.summary.get("live_bytes", 0) * sample.group_share
        self._group_rows = layout.row_group_rows or ROW_GROUP_ROWS
        target = layout.target_file_size_bytes or TARGET_FILE_SIZE_BYTES
        self._most_partitions = self._size_bytes / max(1, target * SMALL_SHARE)
        self._names = {leaf.id: ".".join(leaf.path) for leaf in columns}
        self._ids = {name: id for id, name in self._names.items()}
        self._schema = snapshot.schema

    def run(self) -> Iterator[LayoutChoice]:
        """The choices that were tried; today's layout, with its bloom filters, comes first."""
        now = self._filtered(self._now, self._now.bloom_filter_columns)
        mine = tuple(self._ids[name] for name in now.partition_by)
        singles = self._singles(mine, [id for id in self._names if id not in mine])
        useful = [self._ids[one.cluster_by[0]] for one in singles[:_MOST_COLUMNS]]
        found = [*singles, *self._longer(mine, useful, singles)]
        for partition in self._partitions(mine):
            ones = self._singles(partition, [id for id in useful if id not in partition])
            found += [self._try(partition, ()), *ones, *self._longer(partition, useful, ones)]
        yield now
        yield from found
        for one in (now, *sorted(found, key=_cost)[:3]):
            yield from self._with_filters(one)

    def _singles(self, partition: Sequence[int], columns: Sequence[int]) -> list[LayoutChoice]:
        return sorted((self._try(partition, (id,)) for id in columns), key=_cost)

    def _longer(
        self, partition: Sequence[int], columns: Sequence[int], singles: Sequence[LayoutChoice]
    ) -> Iterator[LayoutChoice]:
        """The best column, then adds the column that helps most, as long as one helps."""
        best = min(singles, key=_cost, default=None)
        while best is not None and len(best.cluster_by) < MOST_COLUMNS:
            chosen = tuple(self._ids[name] for name in best.cluster_by)
            more = [
                self._try(partition, (*chosen, id))
                for id in columns
                if id not in chosen and id not in partition
            ]
            yield from more
            longer = min(more, key=_cost, default=best)
            best = longer if longer.bytes_read < _WORTH_SHARE * best.bytes_read else None

    def _partitions(self, mine: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Other partition columns, if each value has the bytes of a file that is not small."""
        found = [
            self._try((id,), ())
            for id in self._names
            if (id,) != mine
            and self._can_partition(id)
            and 1 < self._sample.distinct(id) <= self._most_partitions
        ]
        best = sorted(found, key=_cost)[:_MOST_PARTITIONS]
        none = [()] if mine else []
        return [*none, *((self._ids[one.partition_by[0]],) for one in best)]

    def _can_partition(self, column_id: int) -> bool:
        name = self._names[column_id]
        try:
            return bool(check_partition_columns(self._schema, (name,)))
        except SchemaMismatchError:  # also of a field of a struct
            return False

    def _try(self, partition: Sequence[int], cluster: Sequence[int]) -> LayoutChoice:
        """What the conditions would read if all files had this layout."""
        parts = self._sample.laid_out(partition, cluster, self._group_rows)
        choice = LayoutChoice(
            tuple(self._names[id] for id in partition),
            tuple(self._names[id] for id in cluster),
            (),
            tuple(
                self._bytes(parts, condition, now)
                for condition, now in zip(self._conditions, self._now.bytes_by_condition)
            ),
        )
        return self._filtered(choice, self._now.bloom_filter_columns)

    def _bytes(self, parts: Sequence[Part], condition: BoundPredicate, now: int) -> int:
        share = 0.0
        for part in parts:

            def of(column_id: int, part: Part = part) -> ColumnBounds:
                return part.bounds.get(column_id) or ColumnBounds(None, None, None, 1, True)

            share += part.share if evaluate(condition, of).may_match else 0
        if not share and now:  # a value between those of the sample
            share = 1 / len(parts)
        return int(share * self._size_bytes)

    # --- bloom filters --------------------------------------------------------------------

    def _with_filters(self, choice: LayoutChoice) -> Iterator[LayoutChoice]:
        """The choice with bloom filters where they save enough; None: they never do."""
        best = choice
        named = {leaf.column.path[0] for one in self._conditions for leaf in _equalities(one)}
        for name in sorted(named - {*choice.bloom_filter_columns}):
            more = self._filtered(best, (name,))
            if more.bytes_read < _WORTH_SHARE * best.bytes_read:
                best = more
        if best is not choice:
            yield best

    def _filtered(self, choice: LayoutChoice, names: Sequence[str]) -> LayoutChoice:
        """What is read if the columns also have bloom filters."""
        group_bytes = self._size_bytes / self._groups
        sizes = []
        for condition, size in zip(self._conditions, choice.bytes_by_condition):
            share = 1.0
            for leaf in _equalities(condition):
                if leaf.column.path[0] in names:
                    share = min(share, self._share_with(leaf, size / max(1.0, group_bytes)))
            sizes.append(max(int(size * share), min(size, int(group_bytes))))
        columns = (*choice.bloom_filter_columns, *names)
        return replace(
            choice,
            bloom_filter_columns=tuple(dict.fromkeys(columns)),
            bytes_by_condition=tuple(sizes),
            is_now=choice.is_now and {*columns} == {*self._now.bloom_filter_columns},
        )

    @property
    def _groups(self) -> int:
        return max(1, -(-self._sample.row_count // self._group_rows))

    def _share_with(self, leaf: BoundCompare | BoundIn, groups: float) -> float:
        """The share of this many row groups that a filter does not rule out.

        The rows with the values are assumed to be spread at random over the row groups.
        """
        rows, values = (
            self._sample.row_count,
            1 if isinstance(leaf, BoundCompare) else len(leaf.values),
        )
        found = pc.sum(matching_mask(self._sample.rows, BoundPredicate(leaf))).as_py() or 0
        if found:
            matching = found * rows / len(self._sample.rows)
        else:
            matching = values * rows / max(1.0, self._sample.distinct(leaf.column.id))
        held = 1 - (1 - 1 / max(1.0, groups)) ** matching
        return float(min(1.0, held + values * _FALSE_POSITIVES))


def _equalities(condition: BoundPredicate) -> Iterator[BoundCompare | BoundIn]:
    """The conjuncts that compare columns with values, for columns that can have bloom filters."""
    root = condition.root
    terms: Sequence[BoundNode] = root.terms if isinstance(root, BoundAnd) else (root,)
    for term in terms:
        if isinstance(term, BoundCompare):
            asks = term.op in ("=", "<=>") and term.value == term.value
        else:
            asks = isinstance(term, BoundIn) and not term.has_nan
        if asks and isinstance(term, (BoundCompare, BoundIn)):
            column = term.column
            if len(column.path) == 1 and column.kind not in ("bool", "nested"):
                yield term

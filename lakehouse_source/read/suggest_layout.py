"""Verb. Suggests the layout with which given conditions read least, by statistics and a sample.

What a condition reads of today's files is in the catalog. What it would read with another layout is
estimated: a sample of the rows gets that layout, and its parts are pruned as row groups are. All
columns of the row groups count. Sizes are in bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow.compute as pc

from lakehouse_source.catalog.sql.reader import CatalogReader
from lakehouse_source.errors import InvalidOptionError, SchemaMismatchError
from lakehouse_source.language import (
    BoundAnd,
    BoundCompare,
    BoundIn,
    BoundNode,
    BoundPredicate,
    PredicateSet,
)
from lakehouse_source.language.row_filter import matching_mask
from lakehouse_source.layout.order import MOST_COLUMNS
from lakehouse_source.model import ColumnBounds
from lakehouse_source.parquet.read_write_specs import ROW_GROUP_ROWS, TARGET_FILE_SIZE_BYTES, Where
from lakehouse_source.pruning.evaluate import evaluate
from lakehouse_source.pruning.indexed import can_be_indexed
from lakehouse_source.read.health import SMALL_SHARE
from lakehouse_source.read.layout_sample import Part, Sample, sample_of
from lakehouse_source.read.plan import plan
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.schema.fields import Leaf, leaves
from lakehouse_source.schema.partitions import check_partition_columns

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

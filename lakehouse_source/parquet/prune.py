"""Edge. Which row groups of a Parquet file, and which of their rows, a condition needs.

This works for any Parquet file, whatever wrote or reads it. It uses row group statistics, then
bloom filters, then page indexes, and decodes no data.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse_source.arguments import path_text
from lakehouse_source.deletion import Positions, deleted_between
from lakehouse_source.errors import SchemaMismatchError
from lakehouse_source.language import BoundPredicate, NotUsed, for_pruning
from lakehouse_source.model import ColumnBounds, ScanTask
from lakehouse_source.parquet.bloom import ChunkFilters, FileFilters
from lakehouse_source.parquet.checked_footer import CheckedFooter, open_footer
from lakehouse_source.parquet.footer import chunk_bounds
from lakehouse_source.parquet.foreign import read_schema
from lakehouse_source.parquet.names import is_foreign
from lakehouse_source.parquet.open_file import deleted_rows
from lakehouse_source.parquet.page_index import (
    PageBounds,
    PageIndex,
    PagePruning,
    RowRange,
    matching_rows,
)
from lakehouse_source.parquet.read_write_specs import ReadSpec
from lakehouse_source.parquet.reader import FEWEST_ROWS_FOR_PAGES
from lakehouse_source.pruning.evaluate import asks_for_values, evaluate, without_absent
from lakehouse_source.schema.fields import (
    Leaf,
    assign_ids,
    children,
    is_nested,
    leaves,
    storage_field,
)
from lakehouse_source.storage import Storage
from lakehouse_source.storage.files import ByteRanges


@dataclass(frozen=True, slots=True)
class KeptRowGroup:
    """A row group that may hold matches.

    `row_ranges`: the rows that may match, as (first, end) with the end excluded,
    if the page index narrows them; None means all.
    """

    index: int
    row_ranges: tuple[RowRange, ...] | None


@dataclass(frozen=True, slots=True)
class ConditionPruning:
    """What one condition of an AND prunes alone: row groups, and rows by page index."""

    condition: str
    by_statistics: int
    by_bloom_filter: int
    rows_by_page_index: int


@dataclass(frozen=True, slots=True)
class FilePruning:
    """The row groups that remain, in file order, and what pruned the others; `why` by condition.

    `not_used`: the conjuncts that pruning cannot decide. They prune nothing.

    >>> pruned = lake.prune_file(f"/data/flights/{dataset.files()[0].path}", "miles > 2000")
    >>> pruned.row_groups, pruned.row_groups_total, pruned.pruned_by_statistics
    ((), 1, (0,))
    """

    row_groups: tuple[KeptRowGroup, ...]
    row_groups_total: int
    pruned_by_statistics: tuple[int, ...]
    pruned_by_bloom_filter: tuple[int, ...]
    pruned_by_page_index: tuple[int, ...]
    why: tuple[ConditionPruning, ...]
    not_used: tuple[NotUsed, ...] = ()


def prune_file(
    metadata_or_path: pq.FileMetaData | str | os.PathLike[str],
    predicate: Any,
    *,
    page_index: bool = True,
    bloom_filters: bool = True,
) -> FilePruning:
    """Tell which row groups of a Parquet file can hold rows that satisfy `predicate`.

    Args:
        metadata_or_path: a path or URI; or a footer, of which only the statistics
            are used. A footer of an encrypted file must not be given: PyArrow crashes when it
            writes this footer again.
        predicate: SQL text, triples, nodes or an Arrow expression, over the file's own
            columns. A conjunct that pruning cannot decide (a function, columns compared
            with each other) prunes nothing and is reported in `not_used`.
        page_index: narrow row groups to row ranges if the file has page indexes.
        bloom_filters: use bloom filters for `=` and `IN`.

    Raises:
        InvalidPredicateError: the condition does not fit the file's columns.
        StorageError: the file cannot be read.
        CorruptDatasetError: the file is not a Parquet file, is damaged or is encrypted.

    >>> path = f"/data/flights/{dataset.files()[0].path}"
    >>> [group.index for group in lake.prune_file(path, "miles > 1400").row_groups]
    [0]
    >>> lake.prune_file("/data/flights/_plake/catalog.db", "miles > 1400")
    Traceback (most recent call last):
    lakehouse_source.errors.CorruptDatasetError: file:///data/flights/_plake/catalog.db is not ...
    """
    if isinstance(metadata_or_path, pq.FileMetaData):
        footer = CheckedFooter(metadata_or_path, "the footer")
        return _Pruner(footer, None, predicate).prune()
    folder, name = os.path.split(path_text("path", metadata_or_path))
    # With a slash, because spaces at the end of a path count as typing errors.
    storage = Storage(os.path.join(folder, "") or ".")
    with storage.open_input(name) as file:
        footer = open_footer(file, storage.display(name))
        pages = None
        if page_index:
            pages = PageIndex(ByteRanges(file, is_local=storage.is_local), footer)
        source = _Source(file.read_at, file.size(), pages, bloom_filters)
        return _Pruner(footer, source, predicate).prune()


@dataclass(frozen=True, slots=True)
class _Source:
    """The file of a footer. `pages` is None if page indexes are not to be used."""

    read_at: Callable[[int, int], bytes]
    size_bytes: int
    pages: PageIndex | None
    bloom_filters: bool


class _Pruner:
    def __init__(self, footer: CheckedFooter, source: _Source | None, predicate: Any) -> None:
        self.footer = footer
        self.source = source
        schema, self.leaves = _file_leaves(footer)
        self.positions = {leaf.id: place for place, leaf in enumerate(self.leaves) if leaf}
        known = set(schema.names)
        unreadable = [f.name for f in footer.arrow_schema if f.name not in known]
        conditions = for_pruning(predicate, schema, unreadable)
        self.bound = conditions.together
        self.conditions = conditions.used
        self.not_used = conditions.not_used

    def prune(self) -> FilePruning:
        kept: list[KeptRowGroup] = []
        pruned: dict[str, list[int]] = {"statistics": [], "bloom filter": [], "page index": []}
        counts = [[0, 0, 0] for _ in self.conditions]
        for index, rows in enumerate(self.footer.row_counts):
            by, ranges = self._row_group(self.bound, index, rows)
            if by is None:
                kept.append(KeptRowGroup(index, ranges))
            else:
                pruned[by].append(index)
            for (_, condition), count in zip(self.conditions, counts):
                alone, ranges = self._row_group(condition, index, rows)
                count[0] += alone == "statistics"
                count[1] += alone == "bloom filter"
                left = sum(end - first for first, end in ranges or ())
                if alone == "page index" or (alone is None and ranges is not None):
                    count[2] += rows - left
        return FilePruning(
            row_groups=tuple(kept),
            row_groups_total=len(self.footer.row_counts),
            pruned_by_statistics=tuple(pruned["statistics"]),
            pruned_by_bloom_filter=tuple(pruned["bloom filter"]),
            pruned_by_page_index=tuple(pruned["page index"]),
            why=tuple(
                ConditionPruning(text, *count) for (text, _), count in zip(self.conditions, counts)
            ),
            not_used=self.not_used,
        )

    def _row_group(
        self, bound: BoundPredicate, index: int, rows: int
    ) -> tuple[str | None, tuple[RowRange, ...] | None]:
        """What prunes the row group (None: nothing), and the rows that are left in it."""

        def statistics(column_id: int) -> ColumnBounds:
            position = self.positions.get(column_id)
            leaf = None if position is None else self.leaves[position]
            if position is None or leaf is None or leaf.in_list:
                return ColumnBounds(None, None, None, rows, True)
            may_have_nan = pa.types.is_floating(leaf.type)
            chunk = self.footer.chunk(index, position)
            return chunk_bounds(chunk.statistics, leaf, rows, may_have_nan, self.footer.created_by)

        if not evaluate(bound, statistics).may_match:
            return "statistics", None
        source = self.source
        if source is None:
            return None, None
        if source.bloom_filters and asks_for_values(bound.root):
            columns = {
                column: (position, leaf.type)
                for column, position in self.positions.items()
                if (leaf := self.leaves[position]) is not None
            }
            filters = ChunkFilters(self.footer, index, source.read_at, source.size_bytes, columns)
            bound = without_absent(bound, filters.absent)
            if not evaluate(bound, statistics).may_match:
                return "bloom filter", None
        if source.pages is None:
            return None, None
        ranges = self._ranges(bound, index, rows, source.pages, statistics)
        return ("page index" if ranges == () else None), ranges

    def _ranges(
        self,
        bound: BoundPredicate,
        index: int,
        rows: int,
        page_index: PageIndex,
        statistics: Callable[[int], ColumnBounds],
    ) -> tuple[RowRange, ...] | None:
        """The rows that may match by the page indexes; None: the indexes rule out nothing."""
        columns: dict[int, tuple[int, Leaf]] = {}
        for column_id in bound.column_ids:
            position = self.positions.get(column_id)
            leaf = None if position is None else self.leaves[position]
            if position is not None and leaf is not None and not leaf.in_list:
                columns[column_id] = position, leaf
        page_index.load(index, (), (position for position, _ in columns.values()))
        pages: dict[int, Sequence[PageBounds]] = {}
        for column_id, (position, leaf) in columns.items():
            found = page_index.bounds(index, position, leaf)
            if found is not None:
                pages[column_id] = found
        if not pages:
            return None
        ranges = matching_rows(bound, rows, pages, statistics)
        return None if ranges == ((0, rows),) else ranges


def _file_leaves(footer: CheckedFooter) -> tuple[pa.Schema, list[Leaf | None]]:
    """The file's schema with ids, and the leaf behind each of its columns.

    A column whose type plake does not store is left out of the schema: a condition cannot name this
    column, and its place stays empty.
    """
    numbers = iter(range(1, 1 << 31))
    fields: list[pa.Field] = []
    found: list[Leaf | None] = []
    for field in footer.arrow_schema:
        try:
            kept = assign_ids(storage_field(field), numbers)
        except (SchemaMismatchError, ValueError):
            # ValueError: a required column of type null, which Arrow reads and does not build.
            found += [None] * _leaf_count([field])
            continue
        fields.append(kept)
        found += list(leaves(pa.schema([kept])))
    if len(found) != footer.leaf_count:
        # Arrow reads this structure differently, so nothing is known of any column.
        found = [None] * footer.leaf_count
    return pa.schema(fields), found


def _leaf_count(fields: Sequence[pa.Field]) -> int:
    return sum(
        _leaf_count(children(field.type)) if is_nested(field.type) else 1 for field in fields
    )


# --- What readers leave out because of information that only the file has.
#
# No data is decoded. Planning opens no file. A reader that opens a file finds what a bloom filter,
# a page index or a deletion vector also rules out; this module finds the same, to explain a scan.


@dataclass(frozen=True, slots=True)
class Skip:
    """A reader's decision about a row group: `by` rules it out; None: `rows` of it may match.

    `conjunct` is the number of the part of the condition that decides; None: the whole condition.
    """

    row_group: int
    by: str | None
    conjunct: int | None
    rows: int


def skips(
    spec: ReadSpec, task: ScanTask, storage: Storage, conjuncts: Sequence[BoundPredicate]
) -> Iterator[Skip]:
    """A reader's decision about each row group of a task with a condition on rows.

    Raises:
        StorageError, CorruptDatasetError: as a read of the file does.
    """
    with storage.open_input(task.path) as file, storage.errors(task.path):
        footer = open_footer(file, storage.display(task.path))
        schema = spec.file_schemas[task.schema_version]
        foreign = is_foreign(task.path)
        if foreign:
            schema = read_schema(pq.ParquetFile(file, metadata=footer.metadata), schema)
        whole = () if spec.predicate is None or not task.filtered else (spec.predicate,)
        filters, pages = [], []
        index = PageIndex(ByteRanges(file, is_local=storage.is_local), footer)
        for part in (*whole, *(conjuncts if whole else ())):
            if asks_for_values(part.root) and not foreign:
                filters.append((part, FileFilters(part, footer, schema, file)))
            if not footer.has_dots:
                pruning = PagePruning(part, spec.schema, schema, footer, index, is_foreign=foreign)
                pages.append((part, partial(pruning.rows, located=())))
        deleted = deleted_rows(task.deleted, task.path, task.file_row_count, storage)
        starts = list(accumulate(footer.row_counts, initial=0))
        number_of = {id(part): number for number, part in enumerate(conjuncts)}
        for group in task.row_groups or ():
            rows = footer.row_counts[group]
            gone = deleted_between(deleted, starts[group], starts[group + 1])
            found = Skip(group, None, None, rows - gone)
            by_filter = [part for part, one in filters if one.rule_out(group)]
            if by_filter:
                yield Skip(group, "bloom filter", _first(by_filter, number_of), 0)
                continue
            if gone == rows:
                yield Skip(group, "deletion vector", None, 0)
                continue
            if rows >= FEWEST_ROWS_FOR_PAGES:
                left = [(part, one(group)) for part, one in pages]
                by_pages = [part for part, ranges in left if ranges == ()]
                if by_pages:
                    yield Skip(group, "page index", _first(by_pages, number_of), 0)
                    continue
                ranges = left[0][1] if left else None
                if ranges is not None:
                    found = replace(found, rows=_live(deleted, starts[group], ranges))
            yield found


def _live(deleted: Positions, start: int, ranges: Sequence[RowRange]) -> int:
    """How many rows of ranges, of a row group that begins at a position, are not deleted."""
    return sum(
        end - first - deleted_between(deleted, start + first, start + end) for first, end in ranges
    )


def _first(parts: Sequence[BoundPredicate], number_of: dict[int, int]) -> int | None:
    """The number of the first part that is a conjunct of its own."""
    return next((number_of[id(one)] for one in parts if id(one) in number_of), None)

"""Edge. What readers leave out because of information that only the file has.

No data is decoded. Planning opens no file. A reader that opens a file finds what a bloom filter, a
page index or a deletion vector also rules out; this module finds the same, to explain a scan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate

import pyarrow.parquet as pq

from lakehouse_source.deletion.vector import Positions, deleted_between
from lakehouse_source.language import BoundPredicate
from lakehouse_source.model import ScanTask
from lakehouse_source.parquet.bloom import FileFilters
from lakehouse_source.parquet.byte_ranges import ByteRanges
from lakehouse_source.parquet.checked_footer import open_footer
from lakehouse_source.parquet.deleted_rows import deleted_rows
from lakehouse_source.parquet.foreign import read_schema
from lakehouse_source.parquet.names import is_foreign
from lakehouse_source.parquet.page_index import PageIndex, RowRange
from lakehouse_source.parquet.page_pruning import PagePruning
from lakehouse_source.parquet.read_write_specs import ReadSpec
from lakehouse_source.parquet.reader import FEWEST_ROWS_FOR_PAGES
from lakehouse_source.pruning.absent_values import asks_for_values
from lakehouse_source.storage import Storage


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

"""Edge. Which rows of a row group may match the condition of a scan, by the page indexes.

Sound, as pruning by statistics is: rows that are left out cannot match, if the index
tells the truth. A column without usable bounds in an index may have any value: a partition column,
a column that the file lacks, a column without an index or of a type whose bounds have no certain
meaning.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from lakehouse_source.errors import SchemaMismatchError
from lakehouse_source.language import BoundPredicate
from lakehouse_source.model import ColumnBounds
from lakehouse_source.parquet.checked_footer import CheckedFooter
from lakehouse_source.parquet.foreign import has_certain_order
from lakehouse_source.parquet.page_index import PageBounds, PageIndex, RowRange, matching_rows
from lakehouse_source.pruning.bounds import promoted
from lakehouse_source.schema.fields import Leaf, leaves, storage_type
from lakehouse_source.schema.ordinal import domain


class PagePruning:
    """The page indexes of one file that is read for a condition.

    `file_schema` has the columns of the file and `schema` those of the dataset, both with ids.
    `is_foreign` tells that plake did not write the file.
    """

    def __init__(
        self,
        predicate: BoundPredicate,
        schema: pa.Schema,
        file_schema: pa.Schema,
        footer: CheckedFooter,
        index: PageIndex,
        *,
        is_foreign: bool,
    ) -> None:
        self._predicate = predicate
        self._footer = footer
        self._index = index
        wanted = {leaf.id: leaf for leaf in leaves(schema) if leaf.id in predicate.column_ids}
        self._columns: dict[int, tuple[int, Leaf, pa.DataType]] = {}
        for leaf in leaves(file_schema):
            if leaf.id not in wanted or leaf.in_list or wanted[leaf.id].in_list:
                continue
            position, type_ = footer.places.get(leaf.path, (0, None))
            if type_ is not None and type_.equals(leaf.type):
                written = _bounds_type(footer, position, type_, is_foreign)
                now = wanted[leaf.id].type
                if written is not None and (written.equals(now) or _are_ordered(written, now)):
                    told = Leaf(leaf.path, leaf.id, written, False)
                    self._columns[leaf.id] = position, told, now

    def rows(self, row_group: int, located: Iterable[int]) -> tuple[RowRange, ...] | None:
        """The rows that may match; None: the indexes rule out nothing.

        Also reads the offset indexes of the leaf columns at the positions `located`.
        """
        if not self._columns:
            return None
        bounded = [position for position, _, _ in self._columns.values()]
        self._index.load(row_group, located, bounded)
        rows = self._footer.row_counts[row_group]
        pages: dict[int, Sequence[PageBounds]] = {}
        for column_id, (position, leaf, now) in self._columns.items():
            found = self._index.bounds(row_group, position, leaf)
            if found is not None:
                pages[column_id] = (
                    found
                    if leaf.type.equals(now)
                    else [
                        PageBounds(
                            page.first_row, page.end_row, promoted(page.bounds, leaf.type, now)
                        )
                        for page in found
                    ]
                )
        if not pages:
            return None
        unknown = ColumnBounds(None, None, None, rows, True)
        return matching_rows(self._predicate, rows, pages, lambda _: unknown)


def _bounds_type(
    footer: CheckedFooter, position: int, type_: pa.DataType, is_foreign: bool
) -> pa.DataType | None:
    """The type of a leaf column's bounds; None: the bounds have no certain meaning."""
    if not is_foreign:
        return type_
    try:
        stored = storage_type(type_, "")
    except SchemaMismatchError:
        return None
    return stored if has_certain_order(footer.metadata.schema.column(position), type_) else None


def _are_ordered(written: pa.DataType, now: pa.DataType) -> bool:
    return domain(written).ordered and domain(now).ordered

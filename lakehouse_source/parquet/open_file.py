"""Edge. A data file that is being read: its columns, whole or by pages."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse_source.parquet.checked_footer import CheckedFooter
from lakehouse_source.parquet.foreign import INT96_UNIT
from lakehouse_source.parquet.page_index import RowRange
from lakehouse_source.parquet.page_pruning import PagePruning
from lakehouse_source.parquet.page_reader import FileColumn, PageReader
from lakehouse_source.schema.fields import children

# Page indexes are no longer read after this many row groups in which they saved nothing.
_FRUITLESS_ROW_GROUPS = 1


class OpenFile:
    """A file whose footer was read. PyArrow opens it only if whole row groups are read."""

    def __init__(
        self,
        file: pa.NativeFile,
        footer: CheckedFooter,
        *,
        pre_buffer: bool,
        verify_checksums: bool,
    ) -> None:
        self.file = file
        self.footer = footer
        self._pre_buffer = pre_buffer
        self._verify_checksums = verify_checksums

    @cached_property
    def parquet(self) -> pq.ParquetFile:
        # In a remote store, requests for neighbouring column chunks are merged.
        return pq.ParquetFile(
            self.file,
            metadata=self.footer.metadata,
            pre_buffer=self._pre_buffer,
            coerce_int96_timestamp_unit=INT96_UNIT,
            page_checksum_verification=self._verify_checksums,
        )

    def column(self, field: pa.Field) -> FileColumn:
        """A field of the file's schema as leaf columns."""
        paths = tuple(leaf_paths(field))
        schema = self.footer.metadata.schema
        positions = tuple(at for path in paths for at in self.footer.leaves_by_path.get(path, ()))
        has_lists = any(schema.column(at).max_repetition_level for at in positions)
        return FileColumn(field.name, paths, positions, has_lists)


@dataclass(frozen=True, slots=True)
class ColumnSet:
    """Columns that are read together: as requested, as stored in the file, and as leaf columns."""

    wanted: pa.Schema
    physical: list[pa.Field]
    columns: list[FileColumn]


class PagesOfFile:
    """The page indexes of a file that is read for a condition, as long as they save work.

    `condition` are the condition's columns and `rest` the other columns to return.
    """

    def __init__(
        self, pruning: PagePruning, reader: PageReader, condition: ColumnSet, rest: ColumnSet
    ) -> None:
        self.condition = condition
        self.rest = rest
        self._pruning = pruning
        self._reader = reader
        self._fruitless = 0

    @property
    def are_worth_a_look(self) -> bool:
        return self._fruitless < _FRUITLESS_ROW_GROUPS

    def rows(self, row_group: int) -> tuple[RowRange, ...] | None:
        """The rows that may match; None: read the whole row group.

        Raises:
            UnusablePages: an index is wrong.
        """
        located = [at for column in self.rest.columns for at in column.positions]
        rows = self._pruning.rows(row_group, located)
        if rows == () or (
            rows is not None and self._reader.choose(row_group, self.condition.columns, rows).pays
        ):
            self._fruitless = 0
            return rows
        self._fruitless += 1
        return None

    def read(self, row_group: int, part: ColumnSet, rows: tuple[RowRange, ...]) -> pa.Table | None:
        """The rows of columns; None: reading whole columns costs less.

        Raises:
            UnusablePages: an index is wrong, and so perhaps the chosen rows are.
        """
        chosen = self._reader.choose(row_group, part.columns, rows)
        return self._reader.read(chosen) if chosen.pays else None


def leaf_paths(field: pa.Field) -> list[str]:
    """The leaves below a field, as Parquet spells their paths; lists and maps as a whole."""
    if not pa.types.is_struct(field.type):
        return [field.name]
    return [f"{field.name}.{path}" for child in children(field.type) for path in leaf_paths(child)]

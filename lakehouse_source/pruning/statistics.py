"""Pure. Bounds of a column over a row group: from statistics, or from partition values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeAlias

import pyarrow as pa

from lakehouse_source.errors import CorruptDatasetError
from lakehouse_source.model import ColumnBounds, FileBounds, FileRecord, RowGroupMetadata
from lakehouse_source.pruning import bounds
from lakehouse_source.schema.defaults import initial_ordinals
from lakehouse_source.schema.fields import Leaf, leaves
from lakehouse_source.schema.partitions import partition_ordinal

# Gets a row group, a column's id, its type in the file and its type now.
Decode: TypeAlias = Callable[[RowGroupMetadata, int, pa.DataType, pa.DataType], ColumnBounds]


class Statistics:
    """Looks up bounds of columns, converted to the types that they have in `schema`.

    `file_schemas` are the schemas that the files were written with, by schema version.
    """

    def __init__(
        self,
        schema: pa.Schema,
        file_schemas: Mapping[int, pa.Schema],
        partition_by: tuple[str, ...],
    ) -> None:
        self.partition_by = frozenset(partition_by)
        self.now = {leaf.id: leaf for leaf in leaves(schema)}
        self._defaults = initial_ordinals(schema)
        self.then: dict[int, dict[int, Leaf]] = {
            number: {leaf.id: leaf for leaf in leaves(one)} for number, one in file_schemas.items()
        }

    def of(
        self,
        file: FileRecord,
        group: RowGroupMetadata,
        decode: Decode = bounds.decode_row_group,
    ) -> Callable[[int], ColumnBounds]:
        """The bounds of columns, by id, over one row group.

        `decode` gives the bounds of a column that the file holds.
        """
        columns = self.then.get(file.schema_version)
        if columns is None:
            raise CorruptDatasetError(
                path=file.path, reason=f"there is no schema of version {file.schema_version}"
            )

        def look_up(column_id: int) -> ColumnBounds:
            leaf = self.now.get(column_id)
            if leaf is None or leaf.in_list:
                return ColumnBounds(None, None, None, group.row_count, True)
            written = columns.get(column_id)
            if leaf.path[0] in self.partition_by:
                # The catalog has the value under the name that the column had in the file.
                text = None if written is None else file.partitions.get(written.path[0])
                value = partition_ordinal(text, leaf.type)
                return bounds.constant_bounds(leaf, value, group.row_count)[0]
            if written is None:
                # The file was written before the column was added.
                return self._without_data(leaf, group.row_count)
            return decode(group, column_id, written.type, leaf.type)

        return look_up

    def of_file(
        self, file: FileRecord, index: Mapping[int, FileBounds]
    ) -> Callable[[int], ColumnBounds]:
        """The bounds of columns, by id, over a whole file; `index` has its rows of the index.

        They are at least as wide as those of all the file's row groups together.
        """

        def decode(
            whole: RowGroupMetadata, column_id: int, file_type: pa.DataType, type_: pa.DataType
        ) -> ColumnBounds:
            row = index.get(column_id)
            # The null count and the keys are for the column's type in the file.
            if row is None or not file_type.equals(type_):
                return ColumnBounds(None, None, None, whole.row_count, True)
            return bounds.of_index_row(row, type_, whole.row_count)

        return self.of(file, RowGroupMetadata(0, file.row_count, "", "", ""), decode)

    @property
    def partition_ids(self) -> frozenset[int]:
        """The ids of the partition columns."""
        return frozenset(id for id, leaf in self.now.items() if leaf.path[0] in self.partition_by)

    def _without_data(self, leaf: Leaf, row_count: int) -> ColumnBounds:
        """The bounds of a column over rows that lack it: they have its initial default or NULL."""
        known = bounds.constant_bounds(leaf, self._defaults.get(leaf.id), row_count)[0]
        if leaf.id in self._defaults and len(leaf.path) > 1:
            return replace(known, null_count=None)  # NULL where the struct is NULL
        return known

    def is_promoted(self, file: FileRecord, column_id: int) -> bool:
        """Tell whether a file holds a column in a type that is not its current one."""
        written = self.then[file.schema_version].get(column_id)
        return written is not None and not written.type.equals(self.now[column_id].type)

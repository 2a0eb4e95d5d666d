"""Verb. Whether rows of files that were removed are still in a dataset, in other files.

A compaction, an update, a merge or a delete may rewrite the rows of a file. The rows keep their
identities, which tell whether a row is still in the dataset.
"""

from __future__ import annotations

from collections.abc import Sequence

from lakehouse_source.catalog.sql.reader import CatalogReader
from lakehouse_source.deletion.vector import Positions, positions_of
from lakehouse_source.model import RemovedFile
from lakehouse_source.parquet.names import is_foreign
from lakehouse_source.parquet.reader import read_all
from lakehouse_source.read.plan import plan
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.schema.metadata_columns import ROW, unused_names
from lakehouse_source.storage import Storage


def file_with_rows_left(
    reader: CatalogReader, snapshot: Snapshot, removed: Sequence[RemovedFile], storage: Storage
) -> RemovedFile | None:
    """The first of the files that has a row in the version; reads one column.

    Raises:
        StorageError, CorruptDatasetError: a file of the version cannot be read.
    """
    if not removed:
        return None
    # Rows may have moved long before the file was removed. Files that plake did not write hold no
    # moved rows.
    live = reader.files(snapshot.dataset.id, snapshot.version)
    files = [file for file in live if not is_foreign(file.path)]
    (row,) = unused_names((ROW,), snapshot.schema.names)
    found = plan(
        reader,
        snapshot,
        read_uri=storage.location,
        columns=[row.name],
        metadata=(row,),
        files=files,
    )
    wanted = Positions()
    for one in removed:
        wanted.add_range(one.first_row_id, one.first_row_id + one.row_count)
    for table in read_all(found.spec, found.tasks, storage):
        left = positions_of(table.column(0)) & wanted
        if left:
            first = left.min()
            return next(one for one in removed if 0 <= first - one.first_row_id < one.row_count)
    return None

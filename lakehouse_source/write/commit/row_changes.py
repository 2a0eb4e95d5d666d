"""Verb. Rows of existing files are deleted or moved: deletion vectors of one commit.

A statement knows the rows by their positions in the files of the version that it is based on.
Before the commit, the vectors are made for that version and written. Under the lock they are fitted
to changes that other commits made meanwhile (`apply_rows`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from lakehouse_source.catalog.sql.reader import CatalogReader
from lakehouse_source.deletion.puffin import PuffinFile
from lakehouse_source.deletion.vector import Positions
from lakehouse_source.errors import CorruptDatasetError
from lakehouse_source.failpoints import reach
from lakehouse_source.language import PredicateSet
from lakehouse_source.model import (
    DeletionVector,
    FileRecord,
)
from lakehouse_source.parquet.deleted_rows import deleted_rows
from lakehouse_source.parquet.names import vector_file_name
from lakehouse_source.storage import Storage
from lakehouse_source.write.commit.conflicts import Isolation

# The catalog keeps a copy of smaller blobs, which travel with scan tasks.
SMALL_BLOB_BYTES = 4096


@dataclass(frozen=True, slots=True)
class TouchedRows:
    """Positions of the rows of one data file that a statement takes out of it.

    `updated` are the rows that the statement rewrites elsewhere, `deleted` the others.
    """

    deleted: Positions
    updated: Positions

    @property
    def all(self) -> Positions:
        return self.deleted | self.updated


class TouchedFiles:
    """Gathers the rows that a statement takes out of files, by path."""

    def __init__(self) -> None:
        self._rows: dict[str, TouchedRows] = {}

    def delete(self, path: str, positions: Positions) -> None:
        """Add rows that are deleted."""
        if positions:
            self._of(path).deleted.update(positions)

    def update(self, path: str, positions: Positions) -> None:
        """Add rows that are rewritten elsewhere."""
        if positions:
            self._of(path).updated.update(positions)

    def _of(self, path: str) -> TouchedRows:
        return self._rows.setdefault(path, TouchedRows(Positions(), Positions()))

    @property
    def found(self) -> dict[str, TouchedRows]:
        return self._rows


@dataclass(frozen=True, slots=True)
class RowChanges:
    """What a statement does to the rows of the version that it is based on.

    `touched` and `file_ids` are by the paths of the data files; `file_ids` has the known ids only.
    `inserted` counts rows that are in no old file. If `isolation` checks added files, a row of an
    added file conflicts if it may match `condition`. `read` are rows, by path, that this statement
    leaves alone but that other commits must not have changed; None: they are unknown.
    """

    touched: Mapping[str, TouchedRows]
    inserted: int = 0
    condition: PredicateSet | None = None
    isolation: Isolation = Isolation.WRITE_SERIALIZABLE
    file_ids: Mapping[str, int] = field(default_factory=dict)
    read: Mapping[str, Positions] | None = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FileChange:
    """A data file with touched rows. `before` are its deleted rows in the base version.

    `replaced`: the file's other rows are rewritten, and the file is removed.
    """

    file: FileRecord
    before: Positions
    rows: TouchedRows
    after: Positions
    replaced: bool = False

    @property
    def is_empty(self) -> bool:
        """Tell whether no row of the file is left."""
        return len(self.after) == self.file.row_count


@dataclass(frozen=True, slots=True)
class PreparedRows:
    """The changes to rows of a write that lacks only its database transaction.

    `read_files` are the files of `RowChanges.read`; their read rows stand as updated ones.
    `vectors` are the vectors of the files that stay, by file id, and `positions` the rows that
    these vectors delete. `read` are vectors of other commits that were read from storage.
    `under_lock`: storage may be used under the lock of the dataset.
    """

    changes: RowChanges
    files: tuple[FileChange, ...]
    vectors: Mapping[int, DeletionVector] = field(default_factory=dict)
    positions: Mapping[int, Positions] = field(default_factory=dict)
    read: Mapping[DeletionVector, Positions] = field(default_factory=dict)
    under_lock: bool = False
    read_files: tuple[FileChange, ...] = ()


def find_changes(
    reader: CatalogReader,
    changes: RowChanges,
    dataset_id: int,
    base_version: int,
    storage: Storage,
) -> list[FileChange]:
    """The changes of each touched file of the base version."""
    if changes.touched.keys() <= changes.file_ids.keys():
        files = reader.files_by_id([changes.file_ids[path] for path in changes.touched])
    else:
        files = reader.files(dataset_id, base_version)
    by_path = {file.path: file for file in files}
    unknown = [path for path in changes.touched if path not in by_path]
    if unknown:
        raise CorruptDatasetError(
            path=unknown[0], reason=f"rows of it are changed, and version {base_version} lacks it"
        )
    touched = [by_path[path] for path in sorted(changes.touched)]
    vectors = reader.vectors([file.id for file in touched], base_version)
    found = []
    for file in touched:
        rows = changes.touched[file.path]
        mine = rows.all
        if mine and mine.max() >= file.row_count:
            raise CorruptDatasetError(
                path=file.path,
                reason=f"row {mine.max():,} is changed, and it has {file.row_count:,} rows",
            )
        before = deleted_rows(vectors.get(file.id), file.path, file.row_count, storage)
        after = mine | before
        if mine:
            found.append(FileChange(file, before, rows, after))
    return found


def write_vectors(
    positions: Mapping[int, tuple[FileRecord, Positions]], write_id: str, storage: Storage
) -> dict[int, DeletionVector]:
    """Write one Puffin file with the vectors of files, by file id. It is durable afterwards."""
    if not positions:
        return {}
    puffin = PuffinFile()
    blobs = {id: puffin.add(file.path, rows) for id, (file, rows) in positions.items()}
    content = puffin.finish()
    sha256 = hashlib.sha256(content).digest()
    path = vector_file_name(write_id)
    with storage.open_output(path) as sink, storage.errors(path):
        sink.write(content)
    reach("vectors written")
    storage.sync_file(path)
    storage.sync_folders([path])
    reach("vectors synced")
    return {
        id: DeletionVector(
            path,
            len(content),
            blob.offset,
            blob.length,
            blob.cardinality,
            content[blob.offset : blob.offset + blob.length]
            if blob.length <= SMALL_BLOB_BYTES
            else None,
            sha256,
        )
        for id, blob in blobs.items()
    }

"""Verb. The files that an overwrite of a condition replaces, and the rows of them that stay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from lakehouse_source.catalog.base import Catalog
from lakehouse_source.failpoints import reach
from lakehouse_source.model import FileMetadata, FileRecord
from lakehouse_source.parquet.reader import read_all
from lakehouse_source.parquet.writer import write_files
from lakehouse_source.read.plan import keep_others
from lakehouse_source.storage import Storage
from lakehouse_source.write.base_version import base_snapshot
from lakehouse_source.write.options import StagedWrite


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Files to remove, and new files with those of their rows that stay.

    `row_groups` has the number of row groups of each removed file, by file id.
    """

    removed: tuple[FileRecord, ...] = ()
    files: tuple[FileMetadata, ...] = ()
    row_groups: Mapping[int, int] = field(default_factory=dict)


def rewrite_matching(catalog: Catalog, staged: StagedWrite) -> Rewrite:
    """Find the files that may hold rows of the condition, and write their other rows anew.

    Nothing is done for a write that overwrites no condition or was committed already.

    Raises:
        CommitConflictError: the version that the write is based on was expired.
    """
    if staged.options.overwrite_where is None or staged.base_version == 0:
        return Rewrite()
    with catalog.read() as reader:
        if reader.transaction_by_write_id(staged.write_id) is not None:
            return Rewrite()  # the commit finds this under the lock too
        snapshot = base_snapshot(reader, staged)
        removed, tasks, spec = keep_others(
            reader, snapshot, staged.options.overwrite_where, staged.spec.uri
        )
        groups = reader.row_groups([file.id for file in removed])
    counts = {file_id: len(found) for file_id, found in groups.items()}
    reach("rows to keep found")
    if not tasks:
        return Rewrite(tuple(removed), (), counts)
    storage = Storage(staged.spec.uri)
    kept = write_files(
        replace(staged.spec, must_match=None, moved_rows=True),
        (batch for table in read_all(spec, tasks, storage) for batch in table.to_batches()),
        storage,
    )
    reach("rows to keep written")
    return Rewrite(tuple(removed), tuple(kept), counts)

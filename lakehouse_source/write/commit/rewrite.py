"""Verb. The files that an overwrite of a condition replaces, and their rows that stay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from lakehouse_source.catalog.base import Catalog
from lakehouse_source.failpoints import reach
from lakehouse_source.model import FileMetadata, FileRecord, ScanTask
from lakehouse_source.parquet.read_write_specs import ReadSpec
from lakehouse_source.parquet.reader import read_all, read_each
from lakehouse_source.parquet.writer import write_files
from lakehouse_source.read.plan import keep_others
from lakehouse_source.storage import Storage
from lakehouse_source.write.commit.base_version import base_snapshot
from lakehouse_source.write.commit.options import StagedWrite


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Files to remove, and new files with the rows that stay.

    `row_groups` has the number of row groups of each removed file, by file id.
    """

    removed: tuple[FileRecord, ...] = ()
    files: tuple[FileMetadata, ...] = ()
    row_groups: Mapping[int, int] = field(default_factory=dict)


def rewrite_matching(catalog: Catalog, staged: StagedWrite) -> Rewrite:
    """Find the files that hold rows of the condition, and rewrite their other rows.

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
    storage = Storage(staged.spec.uri)
    untouched = _without_match(spec, tasks, storage)
    removed = [file for file in removed if file.path not in untouched]
    tasks = tuple(task for task in tasks if task.path not in untouched)
    if not tasks:
        return Rewrite(tuple(removed), (), counts)
    kept = write_files(
        replace(staged.spec, must_match=None, moved_rows=True),
        (batch for table in read_all(spec, tasks, storage) for batch in table.to_batches()),
        storage,
    )
    reach("rows to keep written")
    return Rewrite(tuple(removed), tuple(kept), counts)


def _without_match(spec: ReadSpec, tasks: tuple[ScanTask, ...], storage: Storage) -> set[str]:
    """The files in which no row matches, though their statistics leave it open.

    These files stay as they are. If they were rewritten, a commit that only adds rows would count
    as a commit that replaces rows, which streams skip or refuse. Only the columns of the condition
    are read.
    """
    assert spec.predicate is not None
    names = tuple(spec.predicate.columns) or spec.columns[:1]
    narrow = replace(spec, columns=names, unmatched=False)
    matched = {task.path for task, table in read_each(narrow, tasks, storage) if table.num_rows}
    return {task.path for task in tasks} - matched

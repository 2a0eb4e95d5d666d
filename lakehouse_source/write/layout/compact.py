"""Verb. Small files of each partition become few large ones: a commit that changes no row.

The rows of the small files of a partition are written one after the other, in the order of the
files, to files of the target size. Only the last of these can be small, so a second compaction
finds nothing to do. Rows keep their identities; deleted rows are left out. An append neither waits
for a compaction nor conflicts with it. A commit that removes one of the files, or rows of one,
conflicts with it: whichever commits second gives up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate

from lakehouse_source.catalog.base import Catalog
from lakehouse_source.catalog.sql.reader import CatalogReader
from lakehouse_source.errors import (
    InvalidOptionError,
)
from lakehouse_source.failpoints import reach
from lakehouse_source.language import PredicateSet
from lakehouse_source.model import CompactionResult, DeletionVector, FileMetadata, FileRecord
from lakehouse_source.parquet.read_write_specs import TARGET_FILE_SIZE_BYTES, WriteSpec
from lakehouse_source.properties import Layout
from lakehouse_source.read.address import Address
from lakehouse_source.read.candidates import candidates
from lakehouse_source.read.cluster_plan import neighbours
from lakehouse_source.read.health import SMALL_SHARE
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.schema.fields import without_metadata
from lakehouse_source.schema.given_schema import dataframe_schema
from lakehouse_source.storage import Storage
from lakehouse_source.write.commit.base_version import begin_after
from lakehouse_source.write.commit.commit import abort, commit_rewrite
from lakehouse_source.write.commit.conflicts import SCHEMA_CHANGED, Change, conflict
from lakehouse_source.write.commit.copy_rows import Copy, copy_of
from lakehouse_source.write.commit.options import StagedWrite, WriteOptions
from lakehouse_source.write.rows.stage import heartbeat_of, with_heartbeat

# A repeated compaction takes a file of at most this many times the bytes of all smaller ones
# together. The factor is above 1, so that two files of about the same size are taken.
REPEATED_SHARE = 1.25


@dataclass(frozen=True, slots=True)
class Work:
    """The small files of one version, a group for each partition, and their deletion vectors.

    `row_groups` has the number of row groups of each file, by file id.
    """

    snapshot: Snapshot
    groups: tuple[tuple[FileRecord, ...], ...]
    vectors: Mapping[int, DeletionVector]
    row_groups: Mapping[int, int]
    target_bytes: int

    @property
    def files(self) -> list[FileRecord]:
        return [file for group in self.groups for file in group]

    def copies(self, spec: WriteSpec) -> list[Copy]:
        """The copy of each group."""
        return [
            copy_of(
                spec,
                self.snapshot,
                [(file, self.vectors.get(file.id)) for file in group],
            )
            for group in self.groups
        ]


def compact(
    catalog: Catalog,
    address: Address,
    where: PredicateSet,
    *,
    target_file_size: int | None = None,
    max_concurrent: int = 1,
    min_files: int = 2,
    repeated: bool = False,
    rewrite_deleted: bool = False,
) -> CompactionResult:
    """Compact the small files that may hold a row of `where`, in partitions with `min_files`.

    With `rewrite_deleted` every file with deleted rows is rewritten too, of any size.

    A compaction that is `repeated` again and again leaves the larger of the small files alone
    until the smaller ones have as many bytes (see `worth_rewriting`).

    Raises:
        DatasetNotFoundError, InvalidOptionError, InvalidPredicateError
        CommitConflictError: another commit removed one of the files, or rows of one.
    """
    check_max_concurrent(max_concurrent)
    staged, work = begin_compaction(
        catalog,
        address,
        where,
        target_file_size=target_file_size,
        min_files=min_files,
        repeated=repeated,
        rewrite_deleted=rewrite_deleted,
    )
    if staged is None:
        return CompactionResult(work.snapshot.version)
    try:
        files = _write(catalog, staged, work, max_concurrent)
        reach("rows written anew")
    except BaseException as failure:
        abort(catalog, staged, (), failure=failure)  # `_write` deleted the files
        raise
    return commit_compaction(catalog, staged, files, work.files, work.row_groups)


def check_max_concurrent(count: int) -> None:
    """Check how many partitions are to be written at the same time.

    Raises:
        InvalidOptionError
    """
    if count < 1:
        raise InvalidOptionError(option="max_concurrent", value=count, reason="must be at least 1.")


def begin_compaction(
    catalog: Catalog,
    address: Address,
    where: PredicateSet,
    *,
    target_file_size: int | None = None,
    min_files: int = 2,
    repeated: bool = False,
    rewrite_deleted: bool = False,
) -> tuple[StagedWrite | None, Work]:
    """Find the work of a compaction and register its write; None where there is nothing to do.

    Raises:
        DatasetNotFoundError, InvalidOptionError, InvalidPredicateError
        CommitConflictError: another commit changed the schema as the write began.
    """
    options = WriteOptions(
        row_change=Change.REWRITE, layout=Layout(target_file_size_bytes=target_file_size)
    )
    options.check()
    with catalog.read() as reader:
        snapshot = address.snapshot(catalog, reader)
        work = _find(
            reader, snapshot, where, target_file_size, min_files, repeated, rewrite_deleted
        )
    if not work.groups:
        return None, work
    return begin_rewrite(catalog, address, snapshot, options), work


def commit_compaction(
    catalog: Catalog,
    staged: StagedWrite,
    files: Sequence[FileMetadata],
    replaced: Sequence[FileRecord],
    row_groups: Mapping[int, int],
) -> CompactionResult:
    """Commit the files that a compaction wrote.

    `row_groups` has the number of row groups of each replaced file, by file id.

    Raises:
        CommitConflictError: another commit removed one of the files, or rows of one.
        StorageError, CommitUnknownError: as `commit` does.
    """
    result = commit_rewrite(catalog, staged, files, replaced, row_groups)
    return CompactionResult(
        result.version,
        files_removed=len(replaced),
        files_added=len(files),
        bytes_removed=sum(file.size_bytes for file in replaced),
        bytes_added=sum(file.file_size_bytes for file in files),
    )


def begin_rewrite(
    catalog: Catalog, address: Address, snapshot: Snapshot, options: WriteOptions
) -> StagedWrite:
    """Begin to write the files of a version that was read before.

    Raises:
        CommitConflictError: another commit changed the schema since then.
    """
    incoming = dataframe_schema(without_metadata(snapshot.schema))
    staged = begin_after(catalog, address, snapshot, incoming, options)
    if not staged.spec.schema.equals(snapshot.schema, check_metadata=True):
        # The files would be recorded as if they had the columns of the newer schema.
        failure = conflict(address.uri, snapshot.version, staged.base_version, SCHEMA_CHANGED)
        abort(catalog, staged, (), failure=failure)
        raise failure
    return replace(staged, base=snapshot.seen)


def _find(
    reader: CatalogReader,
    snapshot: Snapshot,
    where: PredicateSet,
    target_bytes: int | None,
    min_files: int,
    repeated: bool,
    rewrite_deleted: bool = False,
) -> Work:
    """The small files of the newest version in partitions that have enough of them.

    With `rewrite_deleted` also the files with deleted rows, in every partition.
    """
    layout = snapshot.dataset.properties.layout
    target = target_bytes or layout.target_file_size_bytes or TARGET_FILE_SIZE_BYTES
    # At least 1, so that a target of one byte still finds nothing, and not everything.
    small = reader.small_files(snapshot.dataset.id, max(1, int(target * SMALL_SHARE)))
    marked: set[int] = set()
    if rewrite_deleted and snapshot.has_vectors:
        marked = {one.file_id for one in reader.all_vectors(snapshot.dataset.id, snapshot.version)}
        known = {file.id for file in small}
        small += reader.files_by_id(sorted(marked - known))
        small.sort(key=lambda file: (file.version, file.id))
    bound = where.bind(snapshot.schema)
    if not bound.always_true:
        matching = {one.file.id for one in candidates(reader, snapshot, bound, small)}
        small = [file for file in small if file.id in matching]
    texts = snapshot.partition_texts()
    by_partition: dict[tuple[str | None, ...], list[FileRecord]] = {}
    for file in small:
        by_partition.setdefault(texts(file), []).append(file)
    groups = tuple(
        tuple(group)
        for found in _beside_each_other(reader, snapshot, list(by_partition.values()))
        if len(group := worth_rewriting(found) if repeated else found) >= min_files
        or any(file.id in marked for file in group)
    )
    ids = [file.id for group in groups for file in group]
    row_groups = reader.row_groups(ids, statistics=False)
    return Work(
        snapshot,
        groups,
        reader.vectors(ids, snapshot.version) if snapshot.has_vectors else {},
        {id: len(found) for id, found in row_groups.items()},
        target,
    )


def _beside_each_other(
    reader: CatalogReader, snapshot: Snapshot, groups: Sequence[Sequence[FileRecord]]
) -> Sequence[Sequence[FileRecord]]:
    """The groups, divided so that no other file's values lie between, if the dataset is clustered.

    Otherwise a compaction would turn two narrow files into a wide file that overlaps all files
    between."""
    if not snapshot.dataset.properties.layout.cluster_by:
        return groups
    by_id = {file.id: file for group in groups for file in group}
    try:
        divided = neighbours(reader, snapshot, [[file.id for file in group] for group in groups])
    except InvalidOptionError:  # by partition columns alone, or by one outside the index
        return groups
    return [[by_id[id] for id in sorted(ids)] for ids in divided]


def worth_rewriting(files: Sequence[FileRecord]) -> list[FileRecord]:
    """The small files that a repeated compaction takes, in the order they are given.

    Without a limit every compaction would rewrite what the one before it wrote, until that file
    has the target size. So a file that is much larger than all smaller ones together is left
    alone: each time that a row is rewritten, its file becomes at least 1.8 times as large. This
    is the size ratio of RocksDB's universal compaction
    (https://github.com/facebook/rocksdb/wiki/Universal-Compaction).
    """
    by_size = sorted(files, key=lambda file: file.size_bytes)
    smaller = list(accumulate((file.size_bytes for file in by_size), initial=0))
    taken = max(
        (
            number + 1
            for number, file in enumerate(by_size)
            if file.size_bytes <= REPEATED_SHARE * smaller[number]
        ),
        default=0,
    )
    ids = {file.id for file in by_size[:taken]}
    return [file for file in files if file.id in ids]


def _write(
    catalog: Catalog, staged: StagedWrite, work: Work, max_concurrent: int
) -> list[FileMetadata]:
    """Write the rows of each group to new files. When it raises, these are deleted."""
    storage = Storage(staged.spec.uri)
    watch = partial(with_heartbeat, beat=heartbeat_of(catalog, staged))
    written: list[FileMetadata] = []
    with ThreadPoolExecutor(max_concurrent, thread_name_prefix="plake-compact") as pool:
        waiting = [pool.submit(copy.write, storage, watch) for copy in work.copies(staged.spec)]
        failure: BaseException | None = None
        for one in waiting:
            try:
                written += one.result()
            except BaseException as error:
                failure = failure or error
                for other in waiting:
                    other.cancel()
                if not isinstance(error, Exception):
                    break
    if failure is not None:
        abort(catalog, staged, written, failure=failure)
        raise failure
    return written

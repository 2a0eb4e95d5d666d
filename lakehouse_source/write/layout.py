"""Verb. Files are rewritten so that they are read faster; no row changes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate

from lakehouse_source.arguments import flag, whole_number
from lakehouse_source.catalog.base import Catalog
from lakehouse_source.catalog.sql.reader import CatalogReader
from lakehouse_source.errors import CommitConflictError, InvalidOptionError, PlakeError
from lakehouse_source.failpoints import reach
from lakehouse_source.language import PredicateSet
from lakehouse_source.model import (
    CompactionResult,
    DeletionVector,
    FileMetadata,
    FileRecord,
    WriteResult,
)
from lakehouse_source.parquet.read_write_specs import TARGET_FILE_SIZE_BYTES, WriteSpec
from lakehouse_source.progress import COMPACT
from lakehouse_source.properties import Layout
from lakehouse_source.read.address import Address
from lakehouse_source.read.candidates import candidates
from lakehouse_source.read.file_arrays import (
    CLUSTERED,
    Piece,
    clustering_columns,
    find_pieces,
    neighbours,
)
from lakehouse_source.read.health import SMALL_SHARE
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.schema.fields import Leaf, without_metadata
from lakehouse_source.schema.merge import dataframe_schema
from lakehouse_source.storage import Storage
from lakehouse_source.write.commit.begin import begin_after
from lakehouse_source.write.commit.commit import abort, commit_rewrite
from lakehouse_source.write.commit.conflicts import SCHEMA_CHANGED, Change, conflict
from lakehouse_source.write.commit.options import StagedWrite, WriteOptions
from lakehouse_source.write.commit.rewrite import Copy, copy_of
from lakehouse_source.write.commit.transaction import TransactionCatalog
from lakehouse_source.write.rows import heartbeat_of, with_heartbeat

# --- Small files of each partition become few large ones: a commit that changes no row.
#
# The rows of the small files of a partition are written one after the other, in the order of the
# files, to files of the target size. Only the last of these can be small, so a second compaction
# finds nothing to do. Rows keep their identities; deleted rows are left out. An append neither
# waits for a compaction nor conflicts with it. A commit that removes one of the files, or rows of
# one, conflicts with it: whichever commits second gives up.


# A repeated compaction takes a file of at most this many times the bytes of all smaller ones
# together. The factor is above 1, so that two files of about the same size are taken.
REPEATED_SHARE = 1.25

# In the metadata of the commit: the columns of the condition that chose the files.
WHERE = "where"
EVERYTHING = PredicateSet.of(None)


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
    max_bytes: int | None = None,
    check: Callable[[], object] = int,
) -> CompactionResult:
    """Compact the small files that may hold a row of `where`, in partitions with `min_files`.

    With `rewrite_deleted` every file with deleted rows is rewritten too, of any size. `max_bytes`
    is the most that is rewritten; `check` is called for each batch, and may raise to end it.

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
        max_bytes=max_bytes,
    )
    if staged is None:
        return CompactionResult(work.snapshot.version)
    try:
        files = _write(catalog, staged, work, max_concurrent, check)
        reach("rows written anew")
    except BaseException as failure:
        abort(catalog, staged, (), failure=failure)  # `_write` deleted the files
        raise
    count = len(work.groups)
    return commit_compaction(catalog, staged, files, work.files, work.row_groups, count)


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
    max_bytes: int | None = None,
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
        work = find_work(
            reader,
            snapshot,
            where,
            target_file_size,
            min_files=min_files,
            repeated=repeated,
            rewrite_deleted=rewrite_deleted,
            max_bytes=max_bytes,
        )
    if not work.groups:
        return None, work
    options = replace(options, commit_metadata=_chosen_by(where, snapshot))
    return begin_rewrite(catalog, address, snapshot, options), work


def _chosen_by(where: PredicateSet, snapshot: Snapshot) -> dict[str, list[str]]:
    """What the history keeps of a condition that chose files: its columns, and no value."""
    columns = where.bind(snapshot.schema).columns
    return {WHERE: list(columns)} if columns else {}


def commit_compaction(
    catalog: Catalog,
    staged: StagedWrite,
    files: Sequence[FileMetadata],
    replaced: Sequence[FileRecord],
    row_groups: Mapping[int, int],
    groups: int = 1,
) -> CompactionResult:
    """Commit the files that a compaction wrote.

    `row_groups` has the number of row groups of each replaced file, by file id. `groups`: in how
    many groups the files were rewritten.

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
        groups=groups,
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


def find_work(
    reader: CatalogReader,
    snapshot: Snapshot,
    where: PredicateSet | None = None,
    target_bytes: int | None = None,
    *,
    min_files: int,
    repeated: bool,
    rewrite_deleted: bool = False,
    max_bytes: int | None = None,
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
    bound = (where or PredicateSet.of(None)).bind(snapshot.schema)
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
    if max_bytes is not None:
        groups = _most(groups, max_bytes)
    ids = [file.id for group in groups for file in group]
    row_groups = reader.row_groups(ids, statistics=False)
    return Work(
        snapshot,
        groups,
        reader.vectors(ids, snapshot.version) if snapshot.has_vectors else {},
        {id: len(found) for id, found in row_groups.items()},
        target,
    )


def _most(
    groups: Sequence[tuple[FileRecord, ...]], max_bytes: int
) -> tuple[tuple[FileRecord, ...], ...]:
    """As many groups as `max_bytes` allows, and of the last one its smallest files."""
    kept, left = [], max_bytes
    for group in groups:
        by_size = sorted(group, key=lambda file: file.size_bytes)
        sizes = list(accumulate(file.size_bytes for file in by_size))
        some = by_size[: bisect_right(sizes, left)]
        if len(some) < len(group):
            some = worth_rewriting(some)
        if len(some) > 1 or len(some) == len(group):
            left -= sum(file.size_bytes for file in some)
            ids = {file.id for file in some}
            kept.append(tuple(file for file in group if file.id in ids))
    return tuple(kept)


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
    catalog: Catalog,
    staged: StagedWrite,
    work: Work,
    max_concurrent: int,
    check: Callable[[], object] = int,
) -> list[FileMetadata]:
    """Write the rows of each group to new files. When it raises, these are deleted."""
    storage = Storage(staged.spec.uri)
    watch = partial(with_heartbeat, beat=heartbeat_of(catalog, staged), check=check)
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


# --- Files that overlap are sorted into files that do not, in commits that change no row.
#
# If more than a few files hold the same values of the clustering columns, the smallest of these
# files are sorted together and rewritten (`layout`). These files are a piece, and each piece
# is a commit of its own. Rows keep their identities; deleted rows are left out. An append neither
# waits for a piece nor conflicts with it. If another commit changes rows of a piece first, the
# piece is done again.


# After this many attempts, a piece that other commits keep changing is left to the next run.
_TRIES = 5


def cluster(
    catalog: Catalog,
    address: Address,
    where: PredicateSet = EVERYTHING,
    *,
    max_bytes: int | None = None,
    full: bool = False,
    dry_run: bool = False,
) -> CompactionResult:
    """Sort files that overlap, piece by piece; return what all the commits did together.

    Args:
        where: only partitions that may hold a row of this condition on partition columns.
        max_bytes: begin no piece that would bring the bytes of the rewritten files above this.
        full: sort all files of each partition, whether they overlap or not.
        dry_run: only tell what the first look would rewrite.

    Raises:
        DatasetNotFoundError
        InvalidOptionError: the dataset has no clustering columns.
        CommitConflictError: other commits changed rows of a piece at every attempt.
    """
    check_max_bytes(max_bytes)
    full, dry_run = flag("full", full), flag("dry_run", dry_run)
    done, tries = CompactionResult(0), 0
    while True:
        before = done.bytes_removed
        found = look(catalog, address, where, full=full, max_bytes=max_bytes, before=before)
        done = replace(done, version=found.version)
        if dry_run:
            return replace(
                done,
                files_removed=sum(len(piece.file_ids) for piece in found.pieces),
                bytes_removed=sum(piece.size_bytes for piece in found.pieces),
            )
        for piece in found.pieces:
            try:
                sorted_ = sort_piece(catalog, address, found.columns, piece, where=where)
                done = together(done, sorted_)
                tries = 0
            except CommitConflictError:
                tries += 1
                if tries == _TRIES:
                    raise
                break  # look again
        else:
            if full or not found.pieces:
                return done


def check_max_bytes(max_bytes: int | None) -> None:
    """Check the largest number of bytes to rewrite.

    Raises:
        InvalidOptionError
    """
    if max_bytes is not None and whole_number("max_bytes", max_bytes) < 1:
        raise InvalidOptionError(option="max_bytes", value=max_bytes, reason="must be at least 1.")


@dataclass(frozen=True, slots=True)
class Look:
    """What is to be sorted in a version: by which columns, and which pieces."""

    version: int
    columns: tuple[Leaf, ...]
    pieces: tuple[Piece, ...]


def look(
    catalog: Catalog,
    address: Address,
    where: PredicateSet = EVERYTHING,
    *,
    full: bool,
    max_bytes: int | None,
    before: int = 0,
) -> Look:
    """The pieces of the newest version, as far as `max_bytes` allows after `before` bytes.

    Raises:
        DatasetNotFoundError
        InvalidOptionError: the dataset has no clustering columns.
    """
    with catalog.read() as reader:
        snapshot = address.snapshot(catalog, reader)
        columns = clustering_columns(snapshot)
        pieces = find_pieces(reader, snapshot, columns, full=full)
        bound = where.bind(snapshot.schema)
        if not bound.always_true:
            chosen = {one.file.id for one in candidates(reader, snapshot, bound)}
            pieces = [piece for piece in pieces if not chosen.isdisjoint(piece.file_ids)]
    return Look(snapshot.version, tuple(columns), tuple(_within(pieces, max_bytes, before)))


def _within(pieces: Sequence[Piece], max_bytes: int | None, before: int) -> list[Piece]:
    """The first pieces, as far as `max_bytes` allows."""
    if max_bytes is None:
        return list(pieces)
    kept, size = [], before
    for piece in pieces:
        size += piece.size_bytes
        if size > max_bytes:
            break
        kept.append(piece)
    return kept


def together(done: CompactionResult, more: CompactionResult) -> CompactionResult:
    """What two rewrites did, the second one after the first."""
    return CompactionResult(
        more.version,
        done.files_removed + more.files_removed,
        done.files_added + more.files_added,
        done.bytes_removed + more.bytes_removed,
        done.bytes_added + more.bytes_added,
        done.groups + more.groups,
    )


@dataclass(frozen=True, slots=True)
class BegunPiece:
    """A piece whose write is registered. `row_groups` has the number of row groups by file id."""

    staged: StagedWrite
    copy: Copy
    files: tuple[FileRecord, ...]
    row_groups: Mapping[int, int]


def begin_piece(
    catalog: Catalog,
    address: Address,
    columns: Sequence[Leaf],
    piece: Piece,
    where: PredicateSet = EVERYTHING,
) -> BegunPiece:
    """Register the write of a piece; `where` chose it.

    Raises:
        CommitConflictError: another commit removed one of the files, or changed the columns.
    """
    with catalog.read() as reader:
        snapshot = address.snapshot(catalog, reader)
        if clustering_columns(snapshot) != list(columns):
            raise _changed(snapshot, "the clustering columns changed")
        files, vectors, row_groups = _files(reader, snapshot, piece)
    options = WriteOptions(
        row_change=Change.REWRITE,
        commit_metadata={CLUSTERED: [leaf.id for leaf in columns], **_chosen_by(where, snapshot)},
    )
    staged = begin_rewrite(catalog, address, snapshot, options)
    copy = copy_of(staged.spec, snapshot, [(file, vectors.get(file.id)) for file in files])
    return BegunPiece(staged, copy, tuple(files), row_groups)


def sort_piece(
    catalog: Catalog,
    address: Address,
    columns: Sequence[Leaf],
    piece: Piece,
    check: Callable[[], object] = int,
    where: PredicateSet = EVERYTHING,
) -> CompactionResult:
    """Rewrite the rows of a piece, in their order, and commit them; `check` is as in `compact`.

    Raises:
        CommitConflictError: another commit removed one of the files, or rows of one.
    """
    begun = begin_piece(catalog, address, columns, piece, where)
    staged = begun.staged
    try:
        watch = partial(with_heartbeat, beat=heartbeat_of(catalog, staged), check=check)
        written = begun.copy.write(Storage(staged.spec.uri), watch)
        reach("rows written anew")
    except BaseException as failure:
        abort(catalog, staged, (), failure=failure)  # the writer deleted the files
        raise
    return commit_compaction(catalog, staged, written, begun.files, begun.row_groups)


def _files(
    reader: CatalogReader, snapshot: Snapshot, piece: Piece
) -> tuple[list[FileRecord], dict[int, DeletionVector], dict[int, int]]:
    """The files of a piece, with the vectors and the numbers of row groups by file id."""
    files = reader.files_by_id(piece.file_ids)
    live = reader.live_among(piece.file_ids)
    gone = [file.path for file in files if file.id not in live]
    if gone or len(files) < len(piece.file_ids):
        raise _changed(snapshot, f"{(gone or ['a file'])[0]} was removed")
    ids = [file.id for file in files]
    vectors = reader.vectors(ids, snapshot.version) if snapshot.has_vectors else {}
    groups = reader.row_groups(ids, statistics=False)
    return files, vectors, {id: len(found) for id, found in groups.items()}


def _changed(snapshot: Snapshot, reason: str) -> CommitConflictError:
    return conflict(snapshot.uri, snapshot.version, snapshot.version, reason)


# --- After a commit: compacts and clusters files, if the dataset's properties say so.


def compact_after(catalog: Catalog, staged: StagedWrite, result: WriteResult) -> None:
    """Compact the dataset of a write that was just committed, if it is wanted and due.

    A clustered dataset is clustered first.

    All writers take turns: `compact_min_files` files are made by about as many commits. The commit
    whose version is a multiple of this number looks for small files, in all partitions. So looking
    is cheap, and no partition is forgotten because several writers share it. An error here does not
    undo the commit: a conflict waits for the next time, and another error is logged.
    """
    if isinstance(catalog, TransactionCatalog):
        catalog.after(lambda database: compact_after(database, staged, result))
        return
    least, files = staged.compact_min_files, len(result.metadata)
    if least is None or not files or result.version % max(1, least // files):
        return
    try:
        address = Address.registered(staged.spec.uri, staged.key, catalog)
        if staged.spec.cluster_by:
            cluster(catalog, address)
        compact(catalog, address, PredicateSet.of(None), min_files=least, repeated=True)
    except CommitConflictError as error:
        COMPACT.debug("compaction of %s gave up: %s", staged.uri, error)
    except PlakeError as error:
        COMPACT.warning("compaction of %s failed: %s", staged.uri, error)

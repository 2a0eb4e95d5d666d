"""Verb. Files that overlap are sorted into files that do not, in commits that change no row.

If more than a few files hold the same values of the clustering columns, the smallest of these files
are sorted together and rewritten (`layout.merges`). These files are a piece, and each piece is a
commit of its own. Rows keep their identities; deleted rows are left out. An append neither waits
for a piece nor conflicts with it. If another commit changes rows of a piece first, the piece is
done again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from lakehouse_source.arguments import flag, whole_number
from lakehouse_source.catalog.base import Catalog
from lakehouse_source.catalog.sql.reader import CatalogReader
from lakehouse_source.errors import CommitConflictError, InvalidOptionError
from lakehouse_source.failpoints import reach
from lakehouse_source.model import CompactionResult, DeletionVector, FileRecord
from lakehouse_source.read.address import Address
from lakehouse_source.read.cluster_plan import (
    CLUSTERED,
    Piece,
    clustering_columns,
    find_pieces,
)
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.schema.fields import Leaf
from lakehouse_source.storage import Storage
from lakehouse_source.write.commit.commit import abort
from lakehouse_source.write.commit.conflicts import Change, conflict
from lakehouse_source.write.commit.copy_rows import Copy, copy_of
from lakehouse_source.write.commit.options import StagedWrite, WriteOptions
from lakehouse_source.write.layout.compact import begin_rewrite, commit_compaction
from lakehouse_source.write.rows.stage import heartbeat_of, with_heartbeat

# After this many attempts, a piece that other commits keep changing is left to the next run.
_TRIES = 5


def cluster(
    catalog: Catalog,
    address: Address,
    *,
    max_bytes: int | None = None,
    full: bool = False,
    dry_run: bool = False,
) -> CompactionResult:
    """Sort files that overlap, piece by piece; return what all the commits did together.

    Args:
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
        found = look(catalog, address, full=full, max_bytes=max_bytes, before=done.bytes_removed)
        done = replace(done, version=found.version)
        if dry_run:
            return replace(
                done,
                files_removed=sum(len(piece.file_ids) for piece in found.pieces),
                bytes_removed=sum(piece.size_bytes for piece in found.pieces),
            )
        for piece in found.pieces:
            try:
                done = together(done, _sort(catalog, address, found.columns, piece))
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
    catalog: Catalog, address: Address, *, full: bool, max_bytes: int | None, before: int = 0
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
    )


@dataclass(frozen=True, slots=True)
class BegunPiece:
    """A piece whose write is registered. `row_groups` has the number of row groups by file id."""

    staged: StagedWrite
    copy: Copy
    files: tuple[FileRecord, ...]
    row_groups: Mapping[int, int]


def begin_piece(
    catalog: Catalog, address: Address, columns: Sequence[Leaf], piece: Piece
) -> BegunPiece:
    """Register the write of a piece.

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
        commit_metadata={CLUSTERED: [leaf.id for leaf in columns]},
    )
    staged = begin_rewrite(catalog, address, snapshot, options)
    copy = copy_of(staged.spec, snapshot, [(file, vectors.get(file.id)) for file in files])
    return BegunPiece(staged, copy, tuple(files), row_groups)


def _sort(
    catalog: Catalog, address: Address, columns: Sequence[Leaf], piece: Piece
) -> CompactionResult:
    """Rewrite the rows of a piece, in their order, and commit them.

    Raises:
        CommitConflictError: another commit removed one of the files, or rows of one.
    """
    begun = begin_piece(catalog, address, columns, piece)
    staged = begun.staged
    try:
        watch = partial(with_heartbeat, beat=heartbeat_of(catalog, staged))
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

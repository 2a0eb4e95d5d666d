"""Verb. Existing Parquet files become part of a dataset; they are not rewritten.

First all footers are read, and a file that cannot be added is refused, before the catalog
is changed. Then one commit adds all files, as an append does. The files stay where they
are and are never deleted: not when the commit fails, and not by vacuum.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import pyarrow as pa

from lakehouse_source.arguments import flag
from lakehouse_source.catalog import Catalog
from lakehouse_source.catalog.sql.reader import CatalogReader
from lakehouse_source.deletion import Positions, positions_of
from lakehouse_source.errors import DatasetExistsError, DatasetNotFoundError, InvalidOptionError
from lakehouse_source.model import FileMetadata, FileRecord, RemovedFile, WriteResult
from lakehouse_source.parquet.foreign import FooterReader, ForeignFile
from lakehouse_source.parquet.names import is_foreign, own_name
from lakehouse_source.parquet.reader import read_all
from lakehouse_source.progress import counted
from lakehouse_source.read.address import Address
from lakehouse_source.read.plan import plan
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.schema.fields import ROW, unused_names
from lakehouse_source.schema.merge import dataframe_schema
from lakehouse_source.schema.partitions import (
    folder_values,
    partition_folder,
    partition_value,
    same_keys,
)
from lakehouse_source.storage import Storage, split_shared
from lakehouse_source.write.commit.apply import committed_before
from lakehouse_source.write.commit.begin import begin
from lakehouse_source.write.commit.commit import abort, commit
from lakehouse_source.write.commit.options import StagedWrite, WriteOptions
from lakehouse_source.write.commit.stored_rows import check_added_files
from lakehouse_source.write.found_files import (
    CheckedRecorder,
    FoundFile,
    GivenFile,
    Paths,
    find_files,
    named_in_errors,
    schema_in,
    schema_of_new,
)
from lakehouse_source.write.rows import heartbeat_of, with_heartbeat

# --- Whether rows of files that were removed are still in a dataset, in other files.
#
# A compaction, an update, a merge or a delete may rewrite the rows of a file. The rows keep their
# identities, which tell whether a row is still in the dataset.


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


# --- The commit.


# How many footers are read at the same time. Reads from a local disk do not wait, so threads only
# compete for Python's lock: 10,000 files of 9 columns took 16 s with one thread and 19 to 25 s with
# eight. Requests to an object store do wait.
_AT_ONCE_LOCAL = 1
_AT_ONCE_REMOTE = 16
_COPIED_BYTES = 8 << 20


# Returns the footer of each file, in the order of the files.
ReadFooters: TypeAlias = Callable[[Sequence[GivenFile]], Iterable[ForeignFile]]


def add_files(
    catalog: Catalog,
    address: Address,
    paths: Paths,
    options: WriteOptions,
    *,
    partitioning: str | None,
    partition_types: Mapping[str, pa.DataType] | None,
    copy: bool,
    progress: bool | None,
    is_new: bool,
    storage_options: Mapping[str, Any] | None = None,
    read_footers: ReadFooters | None = None,
) -> WriteResult:
    """Add files to a dataset in one commit; with `is_new` the commit makes the dataset.

    `storage_options` are for files outside of the dataset. `read_footers` reads the footers
    of the files, in their order; by default threads of this process do.

    Raises:
        DatasetExistsError: the dataset exists and `is_new`.
        DatasetNotFoundError: the dataset does not exist and not `is_new`.
        CorruptDatasetError, StorageError: a file is damaged or cannot be read.
        SchemaMismatchError: a file does not fit the dataset.
        CommitConflictError, CommitUnknownError: as `commit` raises them.
    """
    if partitioning not in ("hive", None):
        raise InvalidOptionError(
            option="partitioning",
            value=partitioning,
            reason="is not a way to name folders.",
            known=("'hive'", "None"),
        )
    copy = flag("copy", copy)
    snapshot = _snapshot(catalog, address, is_new)
    root = Storage(address.location)
    given = find_files(root, paths, copy=copy, storage_options=storage_options)
    if snapshot is not None:
        _check_not_there(catalog, snapshot, given, root, options)
    found = _inspect(given, partitioning, progress, read_footers or read_footers_here)
    if snapshot is None:
        added = schema_of_new(found, partition_types or {})
        options = replace(options, partition_by=added.partition_by)
    else:
        added = schema_in(snapshot, found, options, partition_types)
    staged = begin(catalog, address, dataframe_schema(added.schema), options)
    return commit(catalog, staged, _stage(catalog, staged, root, found, progress))


def _snapshot(catalog: Catalog, address: Address, is_new: bool) -> Snapshot | None:
    with catalog.read() as reader:
        try:
            snapshot = address.snapshot(catalog, reader)
        except DatasetNotFoundError:
            if is_new:
                return None
            raise
    if is_new:
        raise DatasetExistsError(dataset=address.uri)
    return snapshot


def _check_not_there(
    catalog: Catalog,
    snapshot: Snapshot,
    given: Sequence[GivenFile],
    storage: Storage,
    options: WriteOptions,
) -> None:
    """Refuse files that the dataset already has, or whose rows it has in another file.

    The commit checks again, under the lock, what other commits did meanwhile.
    """
    shown = {file.path: file.shown for file in given if not file.is_copied}
    with catalog.read() as reader:
        if committed_before(reader, snapshot.dataset, options) is not None:
            return  # the commit returns the result of the first one
        live = reader.live_paths(snapshot.dataset.id, snapshot.version)
        for path in shown:
            if path in live:
                raise InvalidOptionError(
                    option="paths", value=shown[path], reason="is in the dataset already."
                )
        removed = reader.removed_files(snapshot.dataset.id, list(shown))
        left = file_with_rows_left(reader, snapshot, removed, storage)
    if left is not None:
        raise InvalidOptionError(
            option="paths",
            value=shown[left.path],
            reason="is in the dataset already: later commits have written rows of it to other "
            "files.",
        )


def read_footer(reader: FooterReader, given: GivenFile) -> ForeignFile:
    """The footer of one file; errors name the file."""
    with named_in_errors(given):
        return reader.read(given.storage, given.path)


def read_footers_here(given: Sequence[GivenFile]) -> Iterator[ForeignFile]:
    reader = FooterReader()
    local = all(one.storage.is_local for one in given)
    width = _AT_ONCE_LOCAL if local else _AT_ONCE_REMOTE
    with ThreadPoolExecutor(width, thread_name_prefix="plake-footers") as pool:
        yield from pool.map(partial(read_footer, reader), given)


def _inspect(
    given: Sequence[GivenFile],
    partitioning: str | None,
    progress: bool | None,
    read_footers: ReadFooters,
) -> list[FoundFile]:
    # Checked first: folders with wrong names are refused before a footer is read.
    texts = [folder_values(one.folders, one.shown) if partitioning else {} for one in given]
    if partitioning:
        same_keys({one.shown: found for one, found in zip(given, texts)})
    footers = counted(
        read_footers(given), progress, label="reading footers", unit="files", total=len(given)
    )
    return [FoundFile(*found) for found in zip(given, footers, texts)]


def _stage(
    catalog: Catalog,
    staged: StagedWrite,
    root: Storage,
    found: Sequence[FoundFile],
    progress: bool | None,
) -> list[FileMetadata]:
    """The files as the catalog records them, copied where they have to be.

    Raises:
        PlakeError: the write was aborted.
    """
    files: list[FileMetadata] = []
    copies: list[FileMetadata] = []

    spec = staged.spec
    recorder = CheckedRecorder(staged.write_id, spec.schema, spec.partition_by)
    counting = counted(found, progress, label="adding", unit="files", total=len(found))
    try:
        for one in with_heartbeat(counting, heartbeat_of(catalog, staged)):
            with named_in_errors(one.given):
                described = recorder.describe(one)
            if one.given.is_copied:
                copies.append(described)
                given = one.given
                sha256 = copy_file(given.storage, given.path, root, described.path)
                described = replace(described, sha256=sha256)
            files.append(described)
        if copies:
            root.sync_folders(file.path for file in copies)
        check_added_files(staged.spec, files, root)
        return files
    except BaseException as failure:
        abort(catalog, staged, copies, failure=failure)
        raise


def folder_of_copy(file: FileRecord, schema: pa.Schema) -> str:
    """Where a dataset puts a copy of a file that it or another one has."""
    if own_name(file.path) is not None:
        return split_shared(file.path)[1].rpartition("/")[0]
    # The folder that plake itself would choose, so that a vacuum knows it.
    values = ((name, partition_value(text, schema.field(name).type))
              for name, text in file.partitions.items())  # fmt: skip
    return partition_folder({name: None if one is None else one.as_py() for name, one in values})


def copy_file(storage: Storage, given: str, root: Storage, path: str) -> bytes:
    """Copy a file; the SHA-256 of its bytes."""
    digest = hashlib.sha256()
    with (
        storage.open_input(given) as source,
        root.open_output(path) as sink,
        root.errors(path),
    ):
        while chunk := source.read(_COPIED_BYTES):
            sink.write(chunk)
            digest.update(chunk)
    root.sync_file(path)
    return digest.digest()

"""Verb. A version of a dataset begins a dataset of its own, with the same files or with copies.

Without `deep` nothing is written but rows of the catalog: the new dataset names the files where
they are, and no vacuum deletes them while it does (catalog/sql/refs.py). The work grows with the
number of files. Each dataset has later versions, a schema, tags and branches of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import uuid6

from lakehouse_source.arguments import flag, path_text
from lakehouse_source.catalog import Catalog, CatalogTransaction
from lakehouse_source.catalog.base import (
    PATIENCE_SECONDS,
    check_owner,
    in_transaction,
    is_committed,
)
from lakehouse_source.catalog.locate import VARIABLE, is_default_catalog
from lakehouse_source.catalog.qualified_names import QualifiedName, check_name, quoted
from lakehouse_source.catalog.sql.names import TAKEN
from lakehouse_source.errors import (
    CommitConflictError,
    CorruptDatasetError,
    DatasetExistsError,
    InvalidOptionError,
)
from lakehouse_source.failpoints import reach
from lakehouse_source.iceberg.metadata import export_if_wanted
from lakehouse_source.model import DatasetRecord, DeletionVector, FileMetadata, WriteResult
from lakehouse_source.parquet.names import copy_name, is_foreign
from lakehouse_source.parquet.open_file import deleted_rows
from lakehouse_source.progress import counted
from lakehouse_source.properties import DatasetProperties
from lakehouse_source.read.address import Address, PathLike, name_of, new_location
from lakehouse_source.read.snapshot import Snapshot, existing
from lakehouse_source.schema.fields import leaves, without_metadata
from lakehouse_source.storage import Storage
from lakehouse_source.write.add_files import copy_file, folder_of_copy
from lakehouse_source.write.commit.begin import begin
from lakehouse_source.write.commit.commit import abort
from lakehouse_source.write.commit.evolution import encoded_anew, evolve_properties, with_names_of
from lakehouse_source.write.commit.options import StagedWrite
from lakehouse_source.write.commit.row_changes import write_vectors
from lakehouse_source.write.commit.stored_rows import check_older, check_unchanged
from lakehouse_source.write.rows import heartbeat_of, with_heartbeat, write_options

OPERATION = "clone"


@dataclass(frozen=True, slots=True)
class Target:
    """Where a clone is made: its address, its name, and whether plake chose its folder."""

    address: Address
    name: QualifiedName | None = None
    managed: bool = False


@dataclass(slots=True)
class _Copies:
    """The copies of files, by the ids of the files, and of their deletion vectors."""

    files: dict[int, FileMetadata] = field(default_factory=dict)
    vectors: dict[int, DeletionVector] = field(default_factory=dict)


def clone(
    catalog: Catalog,
    source: Address,
    target: Target,
    *,
    version: int | str | None = None,
    timestamp: datetime | str | None = None,
    deep: bool = False,
    replace_name: bool = False,
    commit_metadata: Mapping[str, Any] | None = None,
    progress: bool | None = False,
) -> WriteResult:
    """Let a version begin a dataset of its own, in the same catalog. Its number stays.

    With `replace_name` a dataset that has the name loses it, as by `drop`.

    Raises:
        DatasetExistsError: the place or the name is taken.
        VersionNotFoundError: there is no such version, or it was expired.
        ConstraintViolationError: the version is older than a constraint, and a row breaks it.
        ForeignFolderError: one of the folders belongs to another catalog.
    """
    deep = flag("deep", deep)
    _check_catalog(source)
    with catalog.read() as reader:
        snapshot = source.snapshot(catalog, reader, version, timestamp)
        if target.name is not None and not replace_name and reader.names.find(target.name):
            raise DatasetExistsError(dataset=quoted(target.name), hint=TAKEN)
    if not deep:
        _check_store(source, target.address)
        # Readers of the clone check that the folder says so.
        check_owner(catalog, Storage(source.location))
    # A version before a constraint may have rows that break it, and the clone gets the constraint.
    checked = check_older(catalog, source, snapshot.seen)
    options = write_options(mode="error", commit_metadata=commit_metadata)
    staged = begin(catalog, target.address, without_metadata(snapshot.schema), options)
    copies = _Copies()

    def fill(tx: CatalogTransaction) -> WriteResult:
        record = existing(tx.lock_dataset(source.key), source.uri, catalog.redacted_url)
        reach("dataset locked")
        check_unchanged(record, source.uri, checked)
        # Again, under the lock: nobody expires the version or erases rows of it now.
        now = source.snapshot(catalog, tx, snapshot.seen)
        mine = tx.lock_dataset(target.address.key)
        if mine is None or mine.id != staged.dataset_id or mine.current_version:
            raise DatasetExistsError(dataset=target.address.uri)
        if deep and record.properties.erased_version != snapshot.dataset.properties.erased_version:
            raise CommitConflictError(
                dataset=source.uri,
                base_version=snapshot.version,
                current_version=record.current_version,
                reason="rows were erased meanwhile; clone again",
            )
        if target.name is not None:
            if replace_name and tx.names.find(target.name) is not None:
                tx.names.remove(target.name)
            tx.names.give(target.name, mine.id)
        if target.managed:
            tx.set_managed(mine.id)
        return _begin_as(tx, record, mine.id, now, staged, copies if deep else None)

    try:
        if deep:
            _copy(catalog, staged, snapshot, Storage(source.location), copies, progress)
        done = is_committed(target.address.key, staged.write_id)
        result = in_transaction(
            catalog,
            target.address.uri,
            staged.write_id,
            fill,
            carried_out=done,
            patience_seconds=PATIENCE_SECONDS,
        )
    except BaseException as failure:
        abort(catalog, staged, copies.files.values(), failure=failure)
        raise
    reach("after COMMIT")
    export_if_wanted(catalog, target.address)
    return result


def _begin_as(
    tx: CatalogTransaction,
    record: DatasetRecord,
    mine: int,
    snapshot: Snapshot,
    staged: StagedWrite,
    copies: _Copies | None,
) -> WriteResult:
    """Record the version as the first one of the clone."""
    version = snapshot.version
    schemas = {number: one for number, one in tx.schemas(record.id).items() if number <= version}
    # A vacuum keeps commits that begin a schema: this one tells which dataset it is.
    schemas[version] = snapshot.schema
    properties, unsearchable = _properties_at(tx, record, snapshot)
    if copies is not None:
        properties = replace(properties, origins=())
    ids = tx.insert_clone(record, mine, version, properties, schemas, shares=copies is None)
    if copies is not None:
        tx.set_paths({ids[one]: copy.path for one, copy in copies.files.items()})
        tx.set_vectors(mine, version, {ids[one]: each for one, each in copies.vectors.items()})
    for column_id in unsearchable:
        tx.invalidate_bounds(mine, column_id)
    live = {name: count for name, count in snapshot.summary.items() if name.startswith("live_")}
    counts = {
        "files_added": len(ids),
        "files_removed": 0,
        "rows_added": live.get("live_rows", 0),
        "rows_removed": 0,
        **live,
    }
    source = {"uri": snapshot.uri, "version": version, "deep": copies is not None}
    metadata = {**staged.options.commit_metadata, "cloned": source}
    tx.insert_transaction(mine, version, OPERATION, metadata, counts, staged.write_id)
    reach("transaction written")
    return WriteResult(
        version,
        len(ids),
        counts["rows_added"],
        version,
        write_id=staged.write_id,
        summary=counts,
    )


def _properties_at(
    tx: CatalogTransaction, record: DatasetRecord, snapshot: Snapshot
) -> tuple[DatasetProperties, set[int]]:
    """The properties for an old version, and the columns whose keys have another encoding now."""
    schema = tx.schema_at(record.id, record.current_version)[1]
    if snapshot.schema.equals(schema, check_metadata=True):
        return record.properties, set()
    named = with_names_of(record.properties, schema, snapshot.schema)
    evolved, unsearchable = evolve_properties(named, snapshot.schema, schema, snapshot.partition_by)
    present = {leaf.id for leaf in leaves(schema)}
    gone = set(encoded_anew(tx.schemas(record.id).values())) - present
    past = tuple(one for one in evolved.partitioned_before if one[0] <= snapshot.version)
    return replace(evolved, partitioned_before=past), gone | set(unsearchable)


def _copy(
    catalog: Catalog,
    staged: StagedWrite,
    snapshot: Snapshot,
    source: Storage,
    copies: _Copies,
    progress: bool | None,
) -> None:
    """Copy the files of a version, byte by byte, and write their deletion vectors anew."""
    target, write_id = Storage(staged.spec.uri), staged.write_id
    with catalog.read() as reader:
        files = reader.files(snapshot.dataset.id, snapshot.version)
        sums = reader.checksums([one.id for one in files])
        vectors = reader.all_vectors(snapshot.dataset.id, snapshot.version)
    counting = counted(files, progress, label="copying", unit="files", total=len(files))
    for file in with_heartbeat(counting, heartbeat_of(catalog, staged)):
        folder = folder_of_copy(file, snapshot.file_schemas[file.schema_version])
        name = (
            copy_name(write_id) if is_foreign(file.path) else f"{write_id}-{uuid6.uuid7()}.parquet"
        )
        path = f"{folder}/{name}" if folder else name
        copies.files[file.id] = FileMetadata(
            path, file.row_count, file.size_bytes, snapshot.schema, ()
        )
        found = copy_file(source, file.path, target, path)
        known = sums.get(file.id)
        size = target.size(path)
        if size != file.size_bytes or (known is not None and known != found):
            reason = "its bytes are not those that were committed"
            raise CorruptDatasetError(path=source.display(file.path), reason=reason)
        reach("file copied")
    target.sync_folders(one.path for one in copies.files.values())
    by_id = {one.id: one for one in files}
    marked = {
        one.file_id: (
            replace(by_id[one.file_id], path=copies.files[one.file_id].path),
            deleted_rows(one.vector, "", by_id[one.file_id].row_count, source),
        )
        for one in vectors
        if one.file_id in by_id
    }
    copies.vectors.update(write_vectors(marked, write_id, target))


# --- where a clone may be ---------------------------------------------------------------


def target_of(
    catalog: Catalog,
    source: Address,
    to: PathLike | QualifiedName,
    location: PathLike | None,
    storage_options: Mapping[str, Any] | None,
) -> Target:
    """The place that a user gave, by a name in the catalog, or by a path or URI."""
    name = to if isinstance(to, tuple) else name_of(path_text("path", to), source.catalog)
    if name is not None:
        check_name(name)
        uri = new_location(catalog, name, location)
    elif location is not None:
        raise InvalidOptionError(
            option="location", value=location, reason=f"is for a name, and {to} is a path."
        )
    else:
        assert not isinstance(to, tuple)
        uri = path_text("path", to)
    if storage_options is None and source.location.is_like(uri):
        storage_options = source.location.options
    return Target(Address(uri, catalog, storage_options), name, name is not None and not location)


def _check_catalog(source: Address) -> None:
    """Refuse a catalog that nobody gave: it is in the source's folder, where no clone looks."""
    if source.catalog is None and is_default_catalog(None, source.uri):
        raise InvalidOptionError(
            option="catalog",
            reason=f"is missing. That of {source.uri} is in its folder; a clone is in the same "
            "catalog and has a folder of its own. Open the dataset with catalog='sqlite:////…"
            f"/_plake/catalog.db', and the clone too; or use one catalog for all ({VARIABLE}).",
        )


def _check_store(source: Address, target: Address) -> None:
    """Refuse a store of another kind: one set of storage options has to open both folders."""
    others = (source.location, *source.location.origins.values())
    if not all(target.location.is_like(one.uri) for one in others):
        raise InvalidOptionError(
            option="to",
            value=target.location.uri,
            reason=f"is in a store of another kind than the files, which stay in {source.uri}. "
            "Choose a place in that store, or copy the files: deep=True.",
        )

"""Verb. A dataset as a table of Iceberg: schemas, snapshots, references; a file beside the data."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import uuid6

from lakehouse_source.catalog import Catalog, CatalogReader, CatalogTransaction
from lakehouse_source.catalog.base import check_owner, in_transaction
from lakehouse_source.catalog.sql.iceberg import METADATA, SNAPSHOT
from lakehouse_source.catalog.sql.refs import Branch
from lakehouse_source.errors import (
    IcebergUnsupportedError,
    InvalidOptionError,
    PlakeError,
    StorageError,
    VersionNotFoundError,
)
from lakehouse_source.iceberg.snapshots import (
    VersionFiles,
    base_path,
    make_version,
    parsed,
    put_file,
    snapshot_id,
    spec_id,
)
from lakehouse_source.iceberg.types import iceberg_schema, name_mapping, partition_spec
from lakehouse_source.model import DatasetRecord, TransactionRecord
from lakehouse_source.parquet.names import ICEBERG_FOLDER, iceberg_metadata_path, own_name
from lakehouse_source.read.address import Address
from lakehouse_source.read.snapshot import Snapshot, existing
from lakehouse_source.storage import Storage, local_path

# How many of the newest versions become snapshots without a request.
NEWEST_VERSIONS = 10
NAME_MAPPING = "schema.name-mapping.default"
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MILLISECOND = timedelta(milliseconds=1)
_MAIN = "main"


@dataclass(frozen=True, slots=True)
class TableState:
    """The state on which a table's metadata depends, from one read of the catalog."""

    record: DatasetRecord
    tags: Mapping[str, int]
    branches: Mapping[str, Branch]
    write_id: str | None

    @property
    def key(self) -> str:
        """A text that differs if the metadata may differ."""
        parts = (
            self.record.id, self.record.current_version, self.record.oldest_version,
            self.write_id, self.record.next_row_id, self.record.properties.to_json(),
            dict(self.tags), {name: (b.dataset_id, b.version) for name, b in self.branches.items()},
        )  # fmt: skip
        return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def table_state(catalog: Catalog, reader: CatalogReader, address: Address) -> TableState:
    """The state of a dataset."""
    record = existing(reader.dataset(address.key), address.uri, catalog.redacted_url)
    return TableState(
        record,
        reader.tags(record.id),
        reader.branches(record.id),
        reader.write_id_of(record.id, record.current_version),
    )


def table_metadata(
    catalog: Catalog,
    address: Address,
    *,
    refs_only: bool = False,
    newest_versions: int = NEWEST_VERSIONS,
) -> dict[str, Any]:
    """The metadata of a table, as JSON.

    Missing manifests are written. Snapshots are the newest versions, all readable versions that
    were snapshots before, those with a tag, and the newest of each branch. A version that Iceberg
    cannot express is left out, and so is a branch with another schema. With `refs_only`, snapshots
    are only the versions that a reference names.

    Raises:
        IcebergUnsupportedError: Iceberg cannot express the newest version.
    """
    return _Table(catalog, address, refs_only, newest_versions).metadata()


class _Table:
    def __init__(
        self, catalog: Catalog, address: Address, refs_only: bool, newest_versions: int
    ) -> None:
        self.catalog = catalog
        self.address = address
        self.refs_only = refs_only
        self.newest_versions = newest_versions
        self.base = base_path(address)
        with catalog.read() as reader:
            self.newest = address.snapshot(catalog, reader)
            self.state = table_state(catalog, reader, address)
            record = self.state.record
            self.made = reader.iceberg.listed(record, SNAPSHOT, self.base)
            first = reader.transactions_since(record.id, 0, 1)
        # The dataset's first commit stays in the history for ever.
        self.uuid = str(uuid5(NAMESPACE_URL, f"plake:{first[0].write_id if first else record.id}"))
        self.by_name: set[int] = set()
        self.versions: dict[int, VersionFiles] = {}
        self.of_branches: dict[str, tuple[Snapshot, VersionFiles]] = {}

    def metadata(self) -> dict[str, Any]:
        newest = self.newest
        iceberg_schema(newest.schema, newest.schema_version, newest.uri)
        # Oldest first: each version shares the manifests of those before it.
        found = [self._take(one) for one in sorted(self._wanted() - {newest.version})]
        self._keep(self._files(self.address, newest, None))
        for one in found:
            if one is not None:
                with suppress(IcebergUnsupportedError):
                    self._keep(one)
        self._take_branches()
        return self._document()

    # --- which versions

    def _wanted(self) -> set[int]:
        record, tags = self.state.record, set(self.state.tags.values())
        of_branches = {b.base_version for b in self.state.branches.values()}
        if self.refs_only:
            return self._readable(tags | of_branches)
        first = self.newest.version - self.newest_versions + 1
        newest = range(max(record.oldest_version, first), self.newest.version + 1)
        return self._readable({*newest, *tags, *of_branches, *self.made})

    def _readable(self, versions: Iterable[int]) -> set[int]:
        record, tags = self.state.record, set(self.state.tags.values())
        return {
            one
            for one in versions
            if one in tags or record.oldest_version <= one <= self.newest.version
        }

    def _take(self, version: int) -> VersionFiles | None:
        """The files of a version of the dataset.

        None: readers of Iceberg do not get the version.
        """
        with suppress(IcebergUnsupportedError, VersionNotFoundError):
            with self.catalog.read() as reader:
                snapshot = self.address.snapshot(self.catalog, reader, version)
            if spec_id(snapshot) == spec_id(self.newest):
                return self._files(self.address, snapshot, None)
        return None

    def _files(
        self, address: Address, snapshot: Snapshot, base_version: int | None
    ) -> VersionFiles:
        known = self.made.get(snapshot.version) if base_version is None else None
        if known is not None:
            return parsed(snapshot.version, snapshot.version, *known)
        return make_version(self.catalog, address, snapshot, base_version)

    def _keep(self, found: VersionFiles) -> None:
        """Make a version of the dataset a snapshot, if its files fit those of the others."""
        self._fits(found)
        self.versions[found.version] = found

    def _fits(self, found: VersionFiles) -> None:
        by_name = self.by_name | found.schema_versions(by_name=True)
        self._mapping(by_name)
        self.by_name = by_name

    def _mapping(self, by_name: set[int]) -> list[dict[str, Any]]:
        schemas = {one: self.newest.file_schemas[one] for one in sorted(by_name)}
        return name_mapping(schemas, self.newest.partition_by, self.newest.uri)

    def _take_branches(self) -> None:
        for name, branch in self.state.branches.items():
            if branch.version <= branch.base_version or name in self.state.tags or name == _MAIN:
                continue
            address = self.address.branch(name)
            try:
                with self.catalog.read() as reader:
                    snapshot = address.snapshot(self.catalog, reader)
                # A reader uses the table's schema for a branch too, and new columns of both may
                # have the same ids.
                same = snapshot.schema.equals(self.newest.schema, check_metadata=True)
                if same and spec_id(snapshot) == spec_id(self.newest):
                    found = self._files(address, snapshot, branch.base_version)
                    self._fits(found)
                    self.of_branches[name] = (snapshot, found)
            except IcebergUnsupportedError:
                continue

    # --- the document

    def _document(self) -> dict[str, Any]:
        newest, record = self.newest, self.state.record
        found = [*self.versions.values(), *(one for _, one in self.of_branches.values())]
        is_v3 = any(one.has_vectors for one in found)
        commits = self._commits()
        snapshots = [self._snapshot(one, commits) for _, one in sorted(self.versions.items())]
        snapshots += [self._snapshot_of_branch(*one) for one in self.of_branches.values()]
        spec = partition_spec(newest.schema, newest.partition_by)
        document = {
            "format-version": 3 if is_v3 else 2,
            "table-uuid": self.uuid,
            "location": self.base.rstrip("/"),
            "last-sequence-number": max(one.version for one in found),
            "last-updated-ms": max(one["timestamp-ms"] for one in snapshots),
            "last-column-id": record.properties.last_field_id,
            "current-schema-id": newest.schema_version,
            "schemas": self._schemas(snapshots),
            "default-spec-id": spec_id(newest),
            "partition-specs": [{"spec-id": spec_id(newest), "fields": spec}],
            "last-partition-id": 999 + len(spec),
            "default-sort-order-id": 0,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "properties": self._properties(),
            "current-snapshot-id": newest.version,
            "snapshots": snapshots,
            "snapshot-log": self._log(commits),
            "metadata-log": [],
            "refs": self._refs(),
        }
        if is_v3:
            document["next-row-id"] = record.next_row_id
        else:
            for one in snapshots:
                del one["first-row-id"], one["added-rows"]
        return document

    def _schemas(self, snapshots: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        ids = sorted({one["schema-id"] for one in snapshots} | {self.newest.schema_version})
        schemas = self.newest.file_schemas
        return [iceberg_schema(schemas[one], one, self.newest.uri) for one in ids]

    def _properties(self) -> dict[str, str]:
        texts = dict(self.newest.dataset.properties.table_properties)
        texts.pop(NAME_MAPPING, None)
        if self.by_name:
            texts[NAME_MAPPING] = json.dumps(self._mapping(self.by_name))
        return texts

    def _commits(self) -> dict[int, TransactionRecord]:
        wanted = sorted(self.versions)
        with self.catalog.read() as reader:
            id = self.state.record.id
            # Most of them follow each other.
            tail = [one for one in wanted if one >= self.newest.version - len(wanted)]
            found = reader.transactions_since(id, tail[0] - 1)
            commits = {one.version: one for one in found}
            for version in wanted:
                if version not in commits:
                    one = reader.transaction(id, version)
                    if one is not None:
                        commits[version] = one
        return commits

    def _snapshot(
        self, files: VersionFiles, commits: Mapping[int, TransactionRecord]
    ) -> dict[str, Any]:
        schemas = self.newest.file_schemas
        schema_version = max(one for one in schemas if one <= files.version)
        parent = files.version - 1
        return self._described(
            files,
            commits[files.version],
            schema_version,
            parent if parent in self.versions else None,
        )

    def _snapshot_of_branch(self, snapshot: Snapshot, files: VersionFiles) -> dict[str, Any]:
        with self.catalog.read() as reader:
            commit = reader.transaction(snapshot.dataset.id, files.version)
        assert commit is not None  # the newest version of the branch
        return self._described(files, commit, self.newest.schema_version, None)

    def _described(
        self,
        files: VersionFiles,
        commit: TransactionRecord,
        schema_version: int,
        parent: int | None,
    ) -> dict[str, Any]:
        added = sum(
            one.added_rows
            for one in files.manifests
            if one.version == files.version and not one.vectors
        )
        described = {
            "snapshot-id": files.snapshot_id,
            "sequence-number": files.version,
            "timestamp-ms": milliseconds(commit.timestamp),
            "manifest-list": self.base + files.list_path,
            "summary": _summary(commit),
            "schema-id": schema_version,
            "first-row-id": files.first_row_id,
            "added-rows": added,
        }
        if parent is not None:
            described["parent-snapshot-id"] = parent
        return described

    def _log(self, commits: Mapping[int, TransactionRecord]) -> list[dict[str, Any]]:
        """The versions for look-up by time: without a gap, up to the newest."""
        first = self.newest.version
        while first - 1 in self.versions:
            first -= 1
        return [
            {"snapshot-id": one, "timestamp-ms": milliseconds(commits[one].timestamp)}
            for one in range(first, self.newest.version + 1)
        ]

    def _refs(self) -> dict[str, Any]:
        refs: dict[str, Any] = {}
        for name, version in self.state.tags.items():
            if version in self.versions and name not in self.state.branches:
                refs[name] = {"snapshot-id": version, "type": "tag"}
        for name, branch in self.state.branches.items():
            if name in self.state.tags:
                continue  # the name has two meanings
            if name in self.of_branches:
                identity = snapshot_id(branch.dataset_id, branch.base_version, branch.version)
                refs[name] = {"snapshot-id": identity, "type": "branch"}
            elif branch.version <= branch.base_version and branch.version in self.versions:
                refs[name] = {"snapshot-id": branch.version, "type": "branch"}
        refs[_MAIN] = {"snapshot-id": self.newest.version, "type": "branch"}
        return refs


def milliseconds(moment: datetime) -> int:
    """A time as Iceberg has it."""
    return (moment - _EPOCH) // _MILLISECOND


def _summary(commit: TransactionRecord) -> dict[str, str]:
    summary = commit.summary
    only_adds = summary.get("files_removed", 0) == 0 and summary.get("rows_removed", 0) == 0
    operation = "append" if only_adds and summary.get("files_added", 0) else "overwrite"
    if commit.operation == "compact":
        operation = "replace"
    counts = {
        "added-data-files": "files_added",
        "deleted-data-files": "files_removed",
        "added-records": "rows_added",
        "total-records": "live_rows",
        "total-data-files": "live_files",
    }
    counted = {name: str(summary[key]) for name, key in counts.items() if key in summary}
    own = {"plake.operation": commit.operation, "plake.write-id": commit.write_id}
    return {"operation": operation, **counted, **own}


# --- The metadata of a table beside its data, for readers of Iceberg without a server.
#
# <dataset>/metadata/<version>-<write id>-<UUIDv7>.metadata.json
# <dataset>/metadata/version-hint.text      the name of the newest one, without its suffix


HINT = f"{ICEBERG_FOLDER}/version-hint.text"
_ENDING = ".metadata.json"
_LOG = logging.getLogger(__name__)


def export_iceberg(
    catalog: Catalog, address: Address, *, newest_versions: int = NEWEST_VERSIONS
) -> str:
    """Write the metadata of a table; returns the path or URI of the file.

    Raises:
        IcebergUnsupportedError: Iceberg cannot express the dataset.
        ForeignFolderError: the folder belongs to another catalog.
    """
    address.refuse_branch("Export the dataset: its branches are references of the table.")
    storage = Storage(address.location)
    check_owner(catalog, storage)
    _hinted(storage)
    document = table_metadata(catalog, address, newest_versions=newest_versions)
    version = document["current-snapshot-id"]
    write_id = str(uuid6.uuid7())
    path = iceberg_metadata_path(write_id, version)
    base = base_path(address)
    with catalog.read() as reader:
        record = existing(reader.dataset(address.key), address.uri, catalog.redacted_url)

    def register(tx: CatalogTransaction) -> None:
        tx.register_pending(write_id, record.id)

    def finish(tx: CatalogTransaction) -> None:
        tx.lock_dataset(address.key)
        tx.fence_write(write_id)
        tx.iceberg.insert(record, path, version, METADATA, base, {})
        # Under the lock, so that an export of an older version does not come last.
        if not _is_later(tx, record, _hinted(storage), version):
            _put_hint(storage, write_id, path)

    in_transaction(catalog, address.uri, "", register, resolve=False)
    put_file(storage, path, json.dumps(document).encode())
    storage.sync_folders([path])
    in_transaction(catalog, address.uri, "", finish, resolve=False)
    return base + path


def export_after(catalog: Catalog, address: Address) -> None:
    """Export the metadata of a table after a commit; an error does not undo the commit."""
    if address.is_branch:
        return
    try:
        export_iceberg(catalog, address)
    except PlakeError as error:
        _LOG.warning("Iceberg metadata of %s was not written: %s", address.uri, error)


def export_if_wanted(catalog: Catalog, address: Address) -> None:
    """Export the metadata after a commit, where the dataset's property says so."""
    if address.is_branch:
        return
    with suppress(PlakeError), catalog.read() as reader:
        record = reader.dataset(address.key)
        if record is None or not record.properties.layout.iceberg_metadata:
            return
    export_after(catalog, address)


def _is_later(tx: CatalogTransaction, record: DatasetRecord, hinted: str, version: int) -> bool:
    """Tell whether the hint names a file of a later version.

    If the catalog does not have the file, its version was lost when a backup was put back.
    """
    if not hinted or int(hinted.partition("-")[0]) <= version:
        return False
    path = f"{ICEBERG_FOLDER}/{hinted}{_ENDING}"
    return any(path == one.path for one in tx.iceberg.all(record.id))


def _hinted(storage: Storage) -> str:
    """The file that the hint names, as it names it; empty: there is no hint."""
    try:
        with storage.open_input(HINT) as hint:
            text = str(hint.read(1000).decode(errors="replace").strip())
    except StorageError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return ""
        raise
    if own_name(text + _ENDING) is None:
        raise InvalidOptionError(
            option="path",
            value=storage.display(HINT),
            reason="was not written by plake: the folder is another table of Iceberg, which "
            "would be hidden. Copy the dataset to another folder.",
        )
    return text


def _put_hint(storage: Storage, write_id: str, path: str) -> None:
    """Let the hint name a file. Readers see the old hint or the new one."""
    name = path.rpartition("/")[2].removesuffix(_ENDING).encode()
    root = local_path(storage.uri)
    if root is None:
        put_file(storage, HINT, name)
        return
    # Under a name that a vacuum knows, in case this process dies here.
    new = iceberg_metadata_path(write_id, 0)
    put_file(storage, new, name)
    storage.rename_local(new, HINT)
    storage.sync_folders([HINT])

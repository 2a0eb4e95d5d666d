"""Verb. The manifests of a version: shared with earlier versions, written once, and recorded.

Files are written under the id of a write that is registered before the first byte, and recorded
under the lock of the dataset. So a vacuum knows the owner of these files, whatever happens in
between.
"""

from __future__ import annotations

import bisect
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, TypeAlias

import uuid6

from lakehouse_source.catalog import Catalog, CatalogReader, CatalogTransaction
from lakehouse_source.catalog.base import check_owner, in_transaction
from lakehouse_source.catalog.sql.iceberg import SNAPSHOT
from lakehouse_source.errors import CommitConflictError
from lakehouse_source.failpoints import reach
from lakehouse_source.iceberg.manifests import (
    DATA,
    DELETES,
    Entries,
    absolute_path,
    avro_name,
    entry_schema,
    list_bytes,
    manifest_bytes,
)
from lakehouse_source.iceberg.types import (
    avro_type,
    check_files,
    iceberg_schema,
    partition_spec,
    same_bounds,
)
from lakehouse_source.model import FileRecord
from lakehouse_source.parquet.names import iceberg_path, is_foreign
from lakehouse_source.read.address import Address
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.storage import Storage

# --- Which manifests a version shares with an earlier version, and which are written again.
#
# A manifest has the files that were added from one key to another one; a key is the version that
# added a file and the file's id. A version shares the manifests of an earlier version, except those
# with a removed file. Small neighbours are merged, as a log-structured tree merges its runs: so
# each entry is written a few times, and a version has few manifests.


Key: TypeAlias = "tuple[int, int]"

MOST_ENTRIES = 2000
_FAN_OUT = 8


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest as the catalog records it, with each version that has the manifest.

    Sizes are in bytes. `version` wrote the manifest. `schemas` are the schema versions of its data
    files, `by_name` those of files without plake's field ids. `puffin` has its deletion vectors:
    each manifest has its own Puffin file, because PyIceberg treats every vector in an opened file
    as live.
    """

    path: str
    size_bytes: int
    first: Key
    last: Key
    entries: int
    rows: int
    added_entries: int
    added_rows: int
    version: int
    schema_version: int
    spec_id: int
    least_sequence: int
    first_row_id: int
    vectors: bool
    schemas: tuple[int, ...] = ()
    by_name: tuple[int, ...] = ()
    puffin: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Manifest:
        values = {one.name: document[one.name] for one in fields(cls)}
        for name in ("first", "last", "schemas", "by_name"):
            values[name] = tuple(values[name])
        return cls(**values)


@dataclass(frozen=True, slots=True)
class Range:
    """Files from one key to another one, both included. Without a manifest, it must be written."""

    first: Key
    last: Key
    entries: int
    manifest: Manifest | None = None


def next_ranges(
    manifests: Sequence[Manifest], gone: Sequence[Key], added: Sequence[Key]
) -> list[Range]:
    """The ranges of a version, from the manifests of an earlier one and what changed since.

    `gone` are keys that the manifests may have, `added` greater ones, in order.
    """
    ranges = [Range(one.first, one.last, one.entries, one) for one in manifests]
    ranges.sort(key=lambda one: one.first)
    starts = [one.first for one in ranges]
    for key in gone:
        at = bisect.bisect_right(starts, key) - 1
        if at >= 0 and key <= ranges[at].last:
            one = ranges[at]
            ranges[at] = replace(one, entries=one.entries - 1, manifest=None)
    ranges = [one for one in ranges if one.entries > 0]
    for start in range(0, len(added), MOST_ENTRIES):
        some = added[start : start + MOST_ENTRIES]
        ranges.append(Range(some[0], some[-1], len(some)))
    return _merged(ranges)


def _merged(ranges: list[Range]) -> list[Range]:
    """Merge runs of neighbours of one size class, until there is none."""
    at = 0
    while at + _FAN_OUT <= len(ranges):
        run = ranges[at : at + _FAN_OUT]
        entries = sum(one.entries for one in run)
        if entries <= MOST_ENTRIES and len({_size_class(one) for one in run}) == 1:
            ranges[at : at + _FAN_OUT] = [Range(run[0].first, run[-1].last, entries)]
            at = max(0, at - _FAN_OUT)
        else:
            at += 1
    return ranges


def _size_class(one: Range) -> int:
    size, count = 0, one.entries
    while count >= _FAN_OUT:
        size, count = size + 1, count // _FAN_OUT
    return size


# Snapshot ids of a branch's own versions, which are numbered like those of its dataset.
BRANCH_STEP = 1 << 40


@dataclass(frozen=True, slots=True)
class VersionFiles:
    """The files of a version for readers of Iceberg: its list of manifests, and the manifests."""

    version: int
    snapshot_id: int
    list_path: str
    manifests: tuple[Manifest, ...]
    first_row_id: int

    @property
    def has_vectors(self) -> bool:
        return any(one.vectors for one in self.manifests)

    def schema_versions(self, *, by_name: bool = False) -> set[int]:
        """The schema versions of the data files; `by_name`: of those without plake's ids."""
        return {
            one for each in self.manifests for one in (each.by_name if by_name else each.schemas)
        }


def base_path(address: Address) -> str:
    """The absolute path of the dataset's folder, as other engines read it, with a final slash."""
    return absolute_path(address.location, "")


def spec_id(snapshot: Snapshot) -> int:
    """The number of the partition columns that a version has."""
    return sum(
        1
        for version, _ids in snapshot.dataset.properties.partitioned_before
        if snapshot.version >= version
    )


def snapshot_id(dataset_id: int, base_version: int | None, version: int) -> int:
    """The id of a version's snapshot; `base_version` is that of a branch."""
    if base_version is None or version <= base_version:
        return version
    return dataset_id * BRANCH_STEP + version


def check_version(snapshot: Snapshot, schema_versions: set[int]) -> None:
    """Check that readers of Iceberg read files of these schemas rightly."""
    iceberg_schema(snapshot.schema, snapshot.schema_version, snapshot.uri)
    for version in schema_versions:
        check_files(snapshot.file_schemas[version], snapshot.schema, snapshot.uri)


def parsed(version: int, identity: int, path: str, document: Mapping[str, Any]) -> VersionFiles:
    """What the catalog recorded of a version."""
    manifests = tuple(Manifest.from_json(one) for one in document["manifests"])
    return VersionFiles(version, identity, path, manifests, document["first_row_id"])


def make_version(
    catalog: Catalog, address: Address, snapshot: Snapshot, base_version: int | None = None
) -> VersionFiles:
    """The files of a version; missing ones are written and recorded.

    `base_version` is the version at which a branch begins, None for a dataset.

    Raises:
        IcebergUnsupportedError: Iceberg cannot express the version.
        CommitConflictError: rows of the version were erased meanwhile.
        ForeignFolderError: files lack, and the folder belongs to another catalog.
    """
    maker = _Maker(catalog, address, snapshot, base_version)
    found = maker.known()
    return maker.make() if found is None else found


class _Maker:
    def __init__(
        self, catalog: Catalog, address: Address, snapshot: Snapshot, base_version: int | None
    ) -> None:
        self.catalog = catalog
        self.address = address
        self.snapshot = snapshot
        self.dataset = snapshot.dataset
        self.base = base_path(address)
        self.storage = Storage(address.location)
        self.spec_id = spec_id(snapshot)
        self.base_version = base_version
        self.entries = Entries(snapshot, self.storage, self._id)
        self.write_id = str(uuid6.uuid7())
        self.contents: dict[str, bytes] = {}

    def _id(self, version: int) -> int:
        return snapshot_id(self.dataset.id, self.base_version, version)

    def known(self) -> VersionFiles | None:
        """What is recorded of this version."""
        with self.catalog.read() as reader:
            return self._recorded(reader)

    def _recorded(self, reader: CatalogReader) -> VersionFiles | None:
        version = self.snapshot.version
        found = reader.iceberg.nearest(self.dataset, version, self.base)
        if found is None or found.version != version:
            return None
        return parsed(version, self._id(version), found.path, found.document)

    def make(self) -> VersionFiles:
        check_version(self.snapshot, set())
        check_owner(self.catalog, self.storage)
        # First in memory, so that a version that Iceberg cannot express is refused before a write
        # is registered.
        with self.catalog.read() as reader:
            made = self._plan(reader)

        def register(tx: CatalogTransaction) -> None:
            tx.register_pending(self.write_id, self.dataset.id)

        # Before the first byte: a vacuum leaves files of a registered write alone.
        in_transaction(self.catalog, self.address.uri, "", register, resolve=False)
        for path, content in self.contents.items():
            put_file(self.storage, path, content)
        self.storage.sync_folders(self.contents)
        reach("Iceberg files written")
        return self._record(made)

    def _record(self, made: VersionFiles) -> VersionFiles:
        document = {
            "manifests": [one.to_json() for one in made.manifests],
            "first_row_id": made.first_row_id,
        }

        def record(tx: CatalogTransaction) -> VersionFiles:
            now = tx.lock_dataset(self.address.key)
            erased = self.dataset.properties.erased_version
            if now is None or now.properties.erased_version != erased:
                raise CommitConflictError(
                    dataset=self.address.uri,
                    base_version=self.snapshot.version,
                    current_version=0 if now is None else now.current_version,
                    reason="rows were erased, or the dataset was dropped, meanwhile; try again",
                )
            others = self._recorded(tx)
            # The state is final, so a vacuum knows the owner of the files in any case.
            tx.fence_write(self.write_id)
            if others is not None:
                return others
            version = self.snapshot.version
            tx.iceberg.insert(self.dataset, made.list_path, version, SNAPSHOT, self.base, document)
            return made

        return in_transaction(self.catalog, self.address.uri, "", record, resolve=False)

    # --- what the version has

    def _plan(self, reader: CatalogReader) -> VersionFiles:
        files = self._ranges(reader, vectors=False)
        vectors = self._ranges(reader, vectors=True) if self.snapshot.has_vectors else []
        manifests = [self._manifest(reader, one, vectors=False) for one in files]
        manifests += [self._manifest(reader, one, vectors=True) for one in vectors]
        added = [one.first_row_id for one in manifests if one.added_entries and not one.vectors]
        path = self._put(self._list_bytes(manifests))
        version = self.snapshot.version
        return VersionFiles(
            version, self._id(version), path, tuple(manifests), min(added, default=0)
        )

    def _ranges(self, reader: CatalogReader, *, vectors: bool) -> list[Range]:
        version, dataset = self.snapshot.version, self.dataset
        earlier = reader.iceberg.nearest(dataset, version, self.base)
        shared: list[Manifest] = []
        since = 0
        if earlier is not None:
            found = parsed(earlier.version, 0, earlier.path, earlier.document)
            if all(one.spec_id == self.spec_id for one in found.manifests):
                shared = [one for one in found.manifests if one.vectors == vectors]
                since = earlier.version
        gone = reader.iceberg.gone(dataset.id, since, version, vectors=vectors) if since else []
        added = reader.iceberg.keys(dataset.id, since, version, vectors=vectors)
        return [self._usable(one) for one in next_ranges(shared, gone, added)]

    def _usable(self, one: Range) -> Range:
        """The range; it is rewritten if its bounds were written for other types."""
        if one.manifest is None or one.manifest.vectors:
            return one
        check_version(self.snapshot, set(one.manifest.schemas))
        then = self.snapshot.file_schemas.get(one.manifest.schema_version)
        if then is None or not same_bounds(then, self.snapshot.schema):
            return Range(one.first, one.last, one.entries)
        return one

    def _manifest(self, reader: CatalogReader, one: Range, *, vectors: bool) -> Manifest:
        if one.manifest is not None:
            return one.manifest
        if vectors:
            return self._vector_manifest(reader, one)
        files = self._files(reader, one)
        entries = list(self.entries.of_files(reader, files))
        schemas = sorted({file.schema_version for file in files})
        foreign = sorted({file.schema_version for file in files if is_foreign(file.path)})
        return self._put_manifest(one, entries, files, tuple(schemas), tuple(foreign))

    def _vector_manifest(self, reader: CatalogReader, one: Range) -> Manifest:
        found = reader.all_vectors(self.dataset.id, self.snapshot.version)
        mine = [v for v in found if one.first <= (v.version, v.file_id) <= one.last]
        files = {file.id: file for file in reader.files_by_id([v.file_id for v in mine])}
        puffin = iceberg_path(self.write_id, "puffin")
        entries, self.contents[puffin] = self.entries.of_vectors(files, mine, puffin)
        return self._put_manifest(one, entries, (), (), (), puffin=puffin)

    def _files(self, reader: CatalogReader, one: Range) -> list[FileRecord]:
        keys = reader.iceberg.keys(
            self.dataset.id, one.first[0] - 1, self.snapshot.version, vectors=False
        )
        ids = [id for version, id in keys if one.first <= (version, id) <= one.last]
        return reader.files_by_id(ids)

    # --- bytes

    def _put_manifest(
        self,
        one: Range,
        entries: Sequence[Any],
        files: Sequence[FileRecord],
        schemas: tuple[int, ...],
        by_name: tuple[int, ...],
        *,
        puffin: str = "",
    ) -> Manifest:
        content = manifest_bytes(entries, self._entry_schema(), self._header(bool(puffin)))
        path = self._put(content)
        added = [each for each in entries if each["status"]]
        return Manifest(
            path=path,
            size_bytes=len(content),
            first=one.first,
            last=one.last,
            entries=len(entries),
            rows=sum(each["data_file"]["record_count"] for each in entries),
            added_entries=len(added),
            added_rows=sum(each["data_file"]["record_count"] for each in added),
            version=self.snapshot.version,
            schema_version=self.snapshot.schema_version,
            spec_id=self.spec_id,
            least_sequence=min(each["sequence_number"] for each in entries),
            first_row_id=min((file.first_row_id for file in files), default=0),
            vectors=bool(puffin),
            schemas=schemas,
            by_name=by_name,
            puffin=puffin,
        )

    def _entry_schema(self) -> dict[str, Any]:
        schema, names = self.snapshot.schema, self.snapshot.partition_by
        return entry_schema(
            [(name, avro_type(schema.field(name).type, avro_name(name))) for name in names]
        )

    def _header(self, vectors: bool) -> dict[str, str]:
        snapshot = self.snapshot
        schema = iceberg_schema(snapshot.schema, snapshot.schema_version, snapshot.uri)
        spec = partition_spec(snapshot.schema, snapshot.partition_by)
        return {
            "schema": json.dumps(schema),
            "schema-id": str(snapshot.schema_version),
            "partition-spec": json.dumps(spec),
            "partition-spec-id": str(self.spec_id),
            "format-version": "3" if vectors else "2",
            "content": "deletes" if vectors else "data",
        }

    def _list_bytes(self, manifests: Sequence[Manifest]) -> bytes:
        identity = self._id(self.snapshot.version)
        rows = [
            {
                "manifest_path": self.base + one.path,
                "manifest_length": one.size_bytes,
                "partition_spec_id": one.spec_id,
                "content": DELETES if one.vectors else DATA,
                "sequence_number": one.version,
                "min_sequence_number": one.least_sequence,
                "added_snapshot_id": self._id(one.version),
                "added_files_count": one.added_entries,
                "existing_files_count": one.entries - one.added_entries,
                "deleted_files_count": 0,
                "added_rows_count": one.added_rows,
                "existing_rows_count": one.rows - one.added_rows,
                "deleted_rows_count": 0,
                "first_row_id": None if one.vectors else one.first_row_id,
            }
            for one in manifests
        ]
        header = {
            "snapshot-id": str(identity),
            "parent-snapshot-id": "null",
            "sequence-number": str(self.snapshot.version),
            "format-version": "3" if any(one.vectors for one in manifests) else "2",
        }
        return list_bytes(rows, header)

    def _put(self, content: bytes) -> str:
        path = iceberg_path(self.write_id, "avro")
        self.contents[path] = content
        return path


def put_file(storage: Storage, path: str, content: bytes) -> None:
    """Write a new file that survives a power cut once its folder is synced."""
    with storage.open_output(path) as output, storage.errors(path):
        output.write(content)
    storage.sync_file(path)

"""Verb. Data files and deletion vectors of a version as entries of manifests."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse_source.catalog import CatalogReader
from lakehouse_source.deletion.puffin import PuffinFile
from lakehouse_source.errors import IcebergUnsupportedError
from lakehouse_source.iceberg.avro import avro_name
from lakehouse_source.iceberg.types import check_files, refused
from lakehouse_source.iceberg.values import avro_value, bounds_encoder
from lakehouse_source.model import (
    ColumnBounds,
    DeletionVector,
    FileBounds,
    FileRecord,
    Ordinal,
    RowGroupMetadata,
    VectorRecord,
)
from lakehouse_source.parquet.names import is_foreign
from lakehouse_source.pruning import bounds
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.schema.defaults import initial_ordinals
from lakehouse_source.schema.fields import children, field_id, leaves
from lakehouse_source.schema.name_mapping import with_ids_by_name
from lakehouse_source.schema.partitions import partition_ordinal
from lakehouse_source.storage import Storage, check_relative

ADDED, EXISTING = 1, 0
_COUNTED = (
    *("value_counts", "null_value_counts", "nan_value_counts"),
    *("lower_bounds", "upper_bounds"),
)
DATA, DELETES = 0, 1
_DEFAULTS_HINT = "Rewrite the rows: compact(rewrite_deleted=True), or copy them."


class Entries:
    """Makes the entries of manifests that a version needs.

    `base` is the absolute path of the dataset's folder, with a final slash. `snapshot_id` gives
    the id of a version's snapshot.
    """

    def __init__(
        self, snapshot: Snapshot, storage: Storage, base: str, snapshot_id: Callable[[int], int]
    ) -> None:
        self._snapshot = snapshot
        self._storage = storage
        self._base = base
        self._snapshot_id = snapshot_id
        self._statistics = snapshot.statistics()
        self._indexed = sorted(snapshot.indexed)
        # Keyed by the schema versions that were checked.
        self._have_defaults: dict[int, bool] = {}
        self._stored: dict[int, tuple[int, ...] | None] = {}
        self._leaves = [
            (leaf.id, pa.types.is_floating(leaf.type), bounds_encoder(leaf.type))
            for leaf in leaves(snapshot.schema)
            if not leaf.in_list and leaf.path[0] not in snapshot.partition_by
        ]
        self._partition_types = [snapshot.schema.field(name).type for name in snapshot.partition_by]
        self._partition_names = [avro_name(name) for name in snapshot.partition_by]
        self._partition_texts = snapshot.partition_texts()

    def of_files(self, reader: CatalogReader, files: Sequence[FileRecord]) -> Iterator[Any]:
        """The entries of data files.

        Raises:
            IcebergUnsupportedError: a reader of Iceberg would read a file wrongly.
        """
        for start in range(0, len(files), 1000):
            some = files[start : start + 1000]
            index = reader.file_bounds([file.id for file in some], self._indexed)
            bounds = {file.id: index.get(file.id, {}) for file in some}
            others = [file.id for file in some if not self._is_enough(file, bounds[file.id])]
            groups = reader.row_groups(others)
            for file in some:
                self._check(file, groups.get(file.id, ()))
                data_file = self._data_file(file, groups.get(file.id), bounds[file.id])
                yield self._entry(file, data_file, file.version)

    def of_vectors(
        self, files: Mapping[int, FileRecord], vectors: Sequence[VectorRecord], puffin: str
    ) -> tuple[list[Any], bytes]:
        """The entries of deletion vectors, and a Puffin file with them, to be written to `puffin`.

        The Puffin files of plake name data files by relative paths. Readers of Iceberg look for the
        paths in manifests.
        """
        new = PuffinFile()
        blobs = [
            new.add_content(
                self._base + files[one.file_id].path, self._blob(one.vector), one.vector.cardinality
            )
            for one in vectors
        ]
        content = new.finish()
        entries = []
        for one, blob in zip(vectors, blobs):
            file = files[one.file_id]
            described = self._described(file, puffin, len(content), blob.cardinality)
            described |= {
                "content": DELETES,
                "file_format": "PUFFIN",
                "referenced_data_file": blob.data_file,
                "content_offset": blob.offset,
                "content_size_in_bytes": blob.length,
            }
            entries.append(self._entry(file, described, max(one.version, file.version)))
        return entries, content

    def _blob(self, vector: DeletionVector) -> bytes:
        if vector.blob is not None:
            return vector.blob
        with self._storage.open_input(vector.path) as source, self._storage.errors(vector.path):
            return bytes(source.read_at(vector.length, vector.offset))

    def partition(self, file: FileRecord) -> list[Ordinal | None]:
        """The partition values of a file, None for NULL."""
        texts = self._partition_texts(file)
        return [partition_ordinal(text, type_) for text, type_ in zip(texts, self._partition_types)]

    def _entry(self, file: FileRecord, data_file: dict[str, Any], version: int) -> dict[str, Any]:
        return {
            "status": ADDED if version == self._snapshot.version else EXISTING,
            "snapshot_id": self._snapshot_id(version),
            "sequence_number": version,
            "file_sequence_number": version,
            "data_file": data_file,
        }

    def _described(self, file: FileRecord, path: str, size_bytes: int, rows: int) -> dict[str, Any]:
        values = zip(self._partition_names, self._partition_types, self.partition(file))
        partition = {name: avro_value(value, type_) for name, type_, value in values}
        return {
            "content": DATA,
            "file_path": self._base + check_relative(path),
            "file_format": "PARQUET",
            "partition": partition,
            "record_count": rows,
            "file_size_in_bytes": size_bytes,
        }

    def _is_enough(self, file: FileRecord, index: Mapping[int, FileBounds]) -> bool:
        """Tell whether the index has all bounds of a file: records of row groups are large."""
        version = file.schema_version
        if version not in self._stored:
            then = self._statistics.then[version]
            ids = tuple(id for id, *_ in self._leaves if id in then)
            of_row_groups = bool(initial_ordinals(self._snapshot.file_schemas[version])) or any(
                self._statistics.is_promoted(file, id) for id in ids
            )
            self._stored[version] = None if of_row_groups else ids
        stored = self._stored[version]
        return stored is not None and all(id in index for id in stored)

    def _data_file(
        self,
        file: FileRecord,
        groups: Sequence[RowGroupMetadata] | None,
        index: Mapping[int, FileBounds],
    ) -> dict[str, Any]:
        """`groups` is None if the index is enough."""
        described = self._described(file, file.path, file.size_bytes, file.row_count)
        if file.first_row_id is not None:
            described["first_row_id"] = file.first_row_id
        if groups is None:
            described |= self._bounds(file, [self._statistics.of_file(file, index)])
        elif sum(group.row_count for group in groups) == file.row_count:
            look_ups = [self._statistics.of(file, group) for group in groups]
            described |= self._bounds(file, look_ups)
        return described

    def _bounds(
        self, file: FileRecord, look_ups: Sequence[Callable[[int], ColumnBounds]]
    ) -> dict[str, Any]:
        found: dict[str, list[dict[str, Any]]] = {name: [] for name in _COUNTED}
        stored = self._statistics.then[file.schema_version]
        for id, is_float, encoded in self._leaves:
            if id not in stored:
                continue
            parts = [look_up(id) for look_up in look_ups]
            known = parts[0] if len(parts) == 1 else bounds.over_all(parts)
            lower, upper = encoded(known)
            if known.null_count is not None:
                found["value_counts"].append({"key": id, "value": file.row_count})
                found["null_value_counts"].append({"key": id, "value": known.null_count})
            if is_float and not known.may_contain_nan:
                found["nan_value_counts"].append({"key": id, "value": 0})
            if lower is not None:
                found["lower_bounds"].append({"key": id, "value": lower})
            if upper is not None:
                found["upper_bounds"].append({"key": id, "value": upper})
        return found

    # --- files that would be read wrongly

    def _check(self, file: FileRecord, groups: Sequence[RowGroupMetadata]) -> None:
        snapshot = self._snapshot
        written = snapshot.file_schemas[file.schema_version]
        if file.schema_version not in self._have_defaults:
            check_files(written, snapshot.schema, snapshot.uri)
            has_defaults = bool(initial_ordinals(written))
            self._have_defaults[file.schema_version] = has_defaults
        if is_foreign(file.path):
            self._check_foreign(file, written)
        elif self._have_defaults[file.schema_version]:
            self._check_defaults(groups, written)

    def _check_defaults(self, groups: Sequence[RowGroupMetadata], written: pa.Schema) -> None:
        """A file that was written while a column with a default was added may lack the column."""
        with_default = initial_ordinals(written)
        for leaf in leaves(written):
            counted = [str(leaf.id) in json.loads(group.null_counts_json) for group in groups]
            if leaf.id in with_default and not leaf.in_list and not all(counted):
                reason = "has a default, and the catalog does not tell whether a file stores it"
                raise refused(self._snapshot.uri, leaf.path, reason, _DEFAULTS_HINT)

    def _check_foreign(self, file: FileRecord, written: pa.Schema) -> None:
        """Check the footer of a file that plake did not write: names, and field ids if it has any.

        Raises:
            StorageError: the file cannot be read.
        """
        with self._storage.open_input(file.path) as stream, self._storage.errors(file.path):
            physical = pq.read_schema(stream)
        wanted = with_ids_by_name(physical, written)
        partitions = self._snapshot.partition_by
        mine = [field for field in physical if field.name not in partitions]
        _same_ids(mine, [field for field in wanted if field.name not in partitions], file, self)
        names = {field.name for field in physical}
        defaults = initial_ordinals(written)
        for field in written:
            lower = {name.lower() for name in names}
            if field.name not in names and field.name.lower() in lower:
                raise self.foreign(file, f"spells column {field.name!r} in another case")
            if field.name not in names and field_id(field) in defaults:
                reason = "has a default for rows of files that lack it"
                raise refused(self._snapshot.uri, (field.name,), reason, _DEFAULTS_HINT)

    def foreign(self, file: FileRecord, reason: str) -> IcebergUnsupportedError:
        """The error for a foreign file that readers of Iceberg cannot read."""
        return IcebergUnsupportedError(
            dataset=self._snapshot.uri,
            reason=f"has the file {file.path}, which plake did not write and which {reason}",
            hint="Write its rows to the dataset instead of adding the file.",
        )


def _same_ids(
    physical: Sequence[pa.Field], wanted: Sequence[pa.Field], file: FileRecord, entries: Entries
) -> None:
    """Check that fields of a file have plake's ids, or none at all."""
    pairs = list(_pairs(physical, wanted))
    if any(one is not None for one, _ in pairs) and any(one != other for one, other in pairs):
        raise entries.foreign(file, "has field ids that are not those of the dataset")


def _pairs(
    physical: Sequence[pa.Field], wanted: Sequence[pa.Field]
) -> Iterator[tuple[int | None, int | None]]:
    for one, other in zip(physical, wanted):
        identity = field_id(one)
        yield (None if identity == -1 else identity), field_id(other)
        yield from _pairs(children(one.type), children(other.type))

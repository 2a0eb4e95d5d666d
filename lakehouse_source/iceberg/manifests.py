"""Verb. Data files and deletion vectors as entries of manifests, and these as Avro files."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse_source.catalog import CatalogReader
from lakehouse_source.deletion import PuffinFile
from lakehouse_source.errors import IcebergUnsupportedError, InvalidOptionError
from lakehouse_source.iceberg.types import avro_value, bounds_encoder, check_files, refused
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
from lakehouse_source.schema.partitions import partition_ordinal
from lakehouse_source.schema.paths import with_ids_by_name
from lakehouse_source.storage import (
    Storage,
    StorageLocation,
    check_relative,
    local_path,
    split_shared,
)

# --- Manifests and lists of manifests as Avro files: their schemas, and their bytes.
#
# Source: Apache Iceberg, table specification, "Manifests" and "Manifest Lists": the numbers are the
# field ids that it gives.


# Compressed little, because a reader waits for the first version's manifests.
_CODEC, _LEVEL = "deflate", 1


def _field(name: str, type_: Any, id: int, *, optional: bool = False) -> dict[str, Any]:
    field: dict[str, Any] = {"name": name, "type": type_, "field-id": id}
    if optional:
        field |= {"type": ["null", type_], "default": None}
    return field


def _map(name: str, value: str, id: int, key_id: int) -> dict[str, Any]:
    """A map from field ids: Avro's own maps have texts as keys."""
    record = {
        "type": "record",
        "name": f"k{key_id}_v{key_id + 1}",
        "fields": [_field("key", "int", key_id), _field("value", value, key_id + 1)],
    }
    pairs = {"type": "array", "items": record, "logicalType": "map"}
    return _field(name, pairs, id, optional=True)


def avro_name(name: str) -> str:
    """A name that Avro allows. Readers find fields by their ids."""
    safe = re.sub(r"[^A-Za-z0-9_]", lambda found: f"_x{ord(found[0]):X}", name)
    return f"_{safe}" if safe[:1].isdigit() else safe


def entry_schema(partition_types: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """The schema of a manifest's entries; `partition_types` are names and Avro types."""
    partition = {
        "type": "record",
        "name": "r102",
        "fields": [
            _field(avro_name(name), type_, 1000 + position, optional=True)
            for position, (name, type_) in enumerate(partition_types)
        ],
    }
    data_file = {
        "type": "record",
        "name": "r2",
        "fields": [
            _field("content", "int", 134),
            _field("file_path", "string", 100),
            _field("file_format", "string", 101),
            _field("partition", partition, 102),
            _field("record_count", "long", 103),
            _field("file_size_in_bytes", "long", 104),
            _map("value_counts", "long", 109, 119),
            _map("null_value_counts", "long", 110, 121),
            _map("nan_value_counts", "long", 137, 138),
            _map("lower_bounds", "bytes", 125, 126),
            _map("upper_bounds", "bytes", 128, 129),
            _field("sort_order_id", "int", 140, optional=True),
            _field("first_row_id", "long", 142, optional=True),
            _field("referenced_data_file", "string", 143, optional=True),
            _field("content_offset", "long", 144, optional=True),
            _field("content_size_in_bytes", "long", 145, optional=True),
        ],
    }
    return {
        "type": "record",
        "name": "manifest_entry",
        "fields": [
            _field("status", "int", 0),
            _field("snapshot_id", "long", 1, optional=True),
            _field("sequence_number", "long", 3, optional=True),
            _field("file_sequence_number", "long", 4, optional=True),
            _field("data_file", data_file, 2),
        ],
    }


_LIST_SCHEMA = {
    "type": "record",
    "name": "manifest_file",
    "fields": [
        _field("manifest_path", "string", 500),
        _field("manifest_length", "long", 501),
        _field("partition_spec_id", "int", 502),
        _field("content", "int", 517),
        _field("sequence_number", "long", 515),
        _field("min_sequence_number", "long", 516),
        _field("added_snapshot_id", "long", 503),
        _field("added_files_count", "int", 504),
        _field("existing_files_count", "int", 505),
        _field("deleted_files_count", "int", 506),
        _field("added_rows_count", "long", 512),
        _field("existing_rows_count", "long", 513),
        _field("deleted_rows_count", "long", 514),
        _field("first_row_id", "long", 520, optional=True),
    ],
}


def _fastavro() -> Any:
    try:
        import fastavro
    except ImportError as exc:
        raise InvalidOptionError(
            option="iceberg",
            reason="needs fastavro, which is not installed: pip install 'plake[server]'.",
        ) from exc
    return fastavro


@lru_cache(maxsize=1)
def _parsed_list_schema() -> Any:
    return _fastavro().parse_schema(_LIST_SCHEMA)


def manifest_bytes(
    entries: Iterable[Mapping[str, Any]], schema: Mapping[str, Any], metadata: Mapping[str, str]
) -> bytes:
    """The bytes of a manifest. `metadata` are the texts that its header has."""
    fastavro = _fastavro()
    return _written(fastavro, fastavro.parse_schema(dict(schema)), entries, metadata)


def list_bytes(manifests: Iterable[Mapping[str, Any]], metadata: Mapping[str, str]) -> bytes:
    """The bytes of a list of manifests."""
    return _written(_fastavro(), _parsed_list_schema(), manifests, metadata)


def entries_of(content: bytes) -> list[Any]:
    """The entries in the bytes of a manifest, in a form that takes bytes for each value.

    Avro takes the schema from the file, and by a schema of somebody else 193 bytes hold a list of
    30 million NULLs.

    Raises:
        ValueError: it has another schema than a manifest of plake.
    """
    fastavro = _fastavro()
    reader = fastavro.reader(io.BytesIO(content))
    found = reader.writer_schema
    (data_file,) = [one["type"] for one in found["fields"] if one["name"] == "data_file"]
    (partition,) = [one["type"] for one in data_file["fields"] if one["name"] == "partition"]
    types = [(one["name"], one["type"][1]) for one in partition["fields"]]
    if any(_kind(type_) in ("array", "map", "record") for _, type_ in types):
        raise ValueError("a partition value is nested")
    form = fastavro.schema.to_parsing_canonical_form
    if form(found) != form(entry_schema(types)):
        raise ValueError("it has another schema")
    return list(reader)


def _kind(type_: Any) -> Any:
    return type_["type"] if isinstance(type_, dict) else type_


def _written(
    fastavro: Any, schema: Any, records: Iterable[Mapping[str, Any]], metadata: Mapping[str, str]
) -> bytes:
    output = io.BytesIO()
    fastavro.writer(
        output,
        schema,
        records,
        codec=_CODEC,
        codec_compression_level=_LEVEL,
        metadata=dict(metadata),
    )
    return output.getvalue()


# --- Data files and deletion vectors of a version as entries of manifests.


ADDED, EXISTING = 1, 0
_COUNTED = (
    *("value_counts", "null_value_counts", "nan_value_counts"),
    *("lower_bounds", "upper_bounds"),
)
DATA, DELETES = 0, 1
_DEFAULTS_HINT = "Rewrite the rows: compact(rewrite_deleted=True), or copy them."


def absolute_path(location: StorageLocation, path: str) -> str:
    """The absolute path of a file of a dataset, as other engines read it.

    Paths of local files have no scheme: engines disagree on what is encoded in `file:` URIs.
    """
    origin, inside = split_shared(path)
    uri = (location if origin is None else location.origins[origin]).uri
    local = local_path(uri)
    return f"{(unquote(uri) if local is None else local).rstrip('/')}/{inside}"


class Entries:
    """Makes the entries of manifests that a version needs.

    `snapshot_id` gives the id of a version's snapshot.
    """

    def __init__(
        self, snapshot: Snapshot, storage: Storage, snapshot_id: Callable[[int], int]
    ) -> None:
        self._snapshot = snapshot
        self._storage = storage
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
                absolute_path(self._storage.location, files[one.file_id].path),
                self._blob(one.vector),
                one.vector.cardinality,
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
            "file_path": absolute_path(self._storage.location, check_relative(path)),
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

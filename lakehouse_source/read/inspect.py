"""Verb. What the catalog knows of a dataset, as Arrow tables: its metadata tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import pyarrow as pa

from lakehouse_source.catalog.sql.reader import CatalogReader
from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.model import FileRecord, RowGroupMetadata, SeenVersion
from lakehouse_source.read.address import Address
from lakehouse_source.read.health import health
from lakehouse_source.read.row_group_decisions import BOUNDS
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.result_tables import (
    CONSTRAINTS,
    CONSUMERS,
    HEALTH,
    HISTORY,
    REFS,
    Column,
    History,
    Type,
    row_of,
)
from lakehouse_source.schema.fields import Leaf, leaves
from lakehouse_source.schema.json_values import parsed, parsed_object

_TEXTS = pa.map_(pa.string(), pa.string())
ARROW_TYPES: Mapping[Type, pa.DataType] = {
    Type.TEXT: pa.string(),
    Type.FLAG: pa.bool_(),
    Type.INT: pa.int32(),
    Type.LONG: pa.int64(),
    Type.DOUBLE: pa.float64(),
    Type.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    Type.TEXTS: pa.list_(pa.string()),
    Type.LONGS: pa.list_(pa.int64()),
    Type.MAP: _TEXTS,
    Type.JSON: pa.string(),
}
_LIVE = ("live_files", "live_row_groups", "live_rows", "live_bytes")


def _schema(columns: Iterable[Column]) -> pa.Schema:
    return pa.schema([(one.name, ARROW_TYPES[one.type]) for one in columns])


SCHEMAS: Mapping[str, pa.Schema] = {
    "history": _schema(HISTORY),
    "versions": pa.schema(
        [
            ("version", pa.int64()),
            ("timestamp", ARROW_TYPES[Type.TIMESTAMP]),
            ("schema_version", pa.int64()),
            *((name, pa.int64()) for name in _LIVE),
            ("tags", pa.list_(pa.string())),
        ]
    ),
    "files": pa.schema(
        [
            ("file_path", pa.string()),
            ("file_size_bytes", pa.int64()),
            ("row_count", pa.int64()),
            ("deleted_rows", pa.int64()),
            ("partitions", _TEXTS),
            ("version", pa.int64()),
            ("schema_version", pa.int64()),
            ("first_row_id", pa.int64()),
            ("sha256", pa.string()),
        ]
    ),
    "row_groups": pa.schema(
        [
            ("file_path", pa.string()),
            ("row_group", pa.int32()),
            ("row_count", pa.int64()),
            ("total_byte_size", pa.int64()),
            ("compressed_byte_size", pa.int64()),
            ("bounds", BOUNDS),
        ]
    ),
    "partitions": pa.schema(
        [
            ("partitions", _TEXTS),
            ("files", pa.int64()),
            ("rows", pa.int64()),
            ("file_size_bytes", pa.int64()),
        ]
    ),
    "deletion_vectors": pa.schema(
        [
            ("file_path", pa.string()),
            ("vector_path", pa.string()),
            ("offset", pa.int64()),
            ("length", pa.int64()),
            ("cardinality", pa.int64()),
            ("version", pa.int64()),
        ]
    ),
    "detail": pa.schema(
        [
            ("location", pa.string()),
            ("version", pa.int64()),
            ("created_at", ARROW_TYPES[Type.TIMESTAMP]),
            ("last_modified", ARROW_TYPES[Type.TIMESTAMP]),
            ("partition_columns", pa.list_(pa.string())),
            ("clustering_columns", pa.list_(pa.string())),
            ("num_files", pa.int64()),
            ("num_rows", pa.int64()),
            ("size_bytes", pa.int64()),
            ("properties", _TEXTS),
        ]
    ),
    "health": _schema(HEALTH),
    "refs": _schema(REFS),
    "consumers": _schema(CONSUMERS),
    "constraints": _schema(CONSTRAINTS),
}


# Records, each with the values of a row that are not its attributes.
_Rows: TypeAlias = Iterable[tuple[object, Mapping[str, Any]]]


class Inspection:
    """The metadata tables of a dataset, each a `pa.Table`. Paths are relative to its URI.

    A method that takes a version or a tag shows what is live in that version, by default in the
    version of the opened dataset. Every method may raise VersionNotFoundError.

    >>> dataset.inspect.files().column_names[:3]
    ['file_path', 'file_size_bytes', 'row_count']
    """

    def __init__(self, address: Address, seen: SeenVersion) -> None:
        self._address = address
        self._seen = seen

    def table(self, name: str, version: int | str | None = None) -> pa.Table:
        """The metadata table with a name.

        Raises:
            InvalidOptionError: there is no such table.

        >>> dataset.inspect.table("refs").num_rows
        1
        """
        tables: Mapping[str, Callable[[CatalogReader, Snapshot], _Rows]] = {
            "history": _history,
            "versions": _versions,
            "files": _files,
            "row_groups": _row_groups,
            "partitions": _partitions,
            "deletion_vectors": _deletion_vectors,
            "detail": _detail,
            "health": _health,
            "refs": _refs,
            "consumers": _consumers,
            "constraints": _constraints,
        }
        if name not in tables:
            raise InvalidOptionError(
                option="table", value=name, reason="is not a metadata table.", known=SCHEMAS
            )
        names = SCHEMAS[name].names
        wanted = self._seen if version is None else version
        with self._address.open() as catalog, catalog.read() as reader:
            found = tables[name](reader, self._address.snapshot(catalog, reader, wanted))
            rows = [row_of(record, names, known) for record, known in found]
        return pa.Table.from_pylist(rows, SCHEMAS[name])

    def history(self) -> pa.Table:
        """Every commit, newest first; `is_readable` is false where it was expired.

        >>> dataset.inspect.history().select(["version", "operation", "rows_added"]).to_pylist()
        [{'version': 1, 'operation': 'append', 'rows_added': 4}]
        """
        return self.table("history")

    def versions(self) -> pa.Table:
        """Every version that can be read, newest first, with its size and its tags.

        >>> dataset.inspect.versions()["live_rows"].to_pylist()
        [4]
        """
        return self.table("versions")

    def files(self, version: int | str | None = None) -> pa.Table:
        """The data files of a version; `row_count` counts deleted rows too.

        `sha256` is that of all bytes of a file that plake wrote, in hexadecimal digits.

        >>> dataset.inspect.files()["partitions"].to_pylist()[0]
        [('month', '1')]
        """
        return self.table("files", version)

    def row_groups(self, version: int | str | None = None) -> pa.Table:
        """The row groups of a version; `bounds` has what is known of each column.

        A bound is a value as text; it may lie beyond the values of the rows.

        >>> dict(dataset.inspect.row_groups()["bounds"].to_pylist()[0])["miles"]["upper"]
        '1416'
        """
        return self.table("row_groups", version)

    def partitions(self, version: int | str | None = None) -> pa.Table:
        """The partitions of a version, with their live rows; one row if there are no columns.

        >>> dataset.inspect.partitions()["rows"].to_pylist()
        [2, 1, 1]
        """
        return self.table("partitions", version)

    def deletion_vectors(self, version: int | str | None = None) -> pa.Table:
        """The deletion vectors of a version; `version` is the one that wrote each.

        >>> dataset.inspect.deletion_vectors().num_rows
        0
        """
        return self.table("deletion_vectors", version)

    def detail(self) -> pa.Table:
        """One row: where the dataset is, how large, how it is laid out, and its table properties.

        `created_at` is the time of the oldest commit that the history still has.

        >>> dataset.inspect.detail().select(["num_files", "num_rows"]).to_pylist()
        [{'num_files': 3, 'num_rows': 4}]
        """
        return self.table("detail")

    def health(self) -> pa.Table:
        """The rows of `Dataset.health()`: sizes and overlap of files, and what is worth doing.

        >>> dataset.inspect.health()["measure"].to_pylist()[:2]
        ['files', 'deleted']
        """
        return self.table("health")

    def refs(self) -> pa.Table:
        """The newest version, which is `main`, those of the branches, and the tags.

        >>> dataset.inspect.refs().to_pylist()
        [{'name': 'main', 'type': 'BRANCH', 'version': 1}]
        """
        return self.table("refs")

    def consumers(self) -> pa.Table:
        """The consumers of the change feed; a consumer that `is_expired` no longer keeps a version.

        >>> dataset.add_consumer("billing", version=0)
        >>> dataset.inspect.consumers().select(["name", "version", "versions_behind"]).to_pylist()
        [{'name': 'billing', 'version': 0, 'versions_behind': 1}]
        """
        return self.table("consumers")

    def constraints(self) -> pa.Table:
        """The constraints of the dataset, whatever version is read.

        >>> dataset.add_constraint("flies", "miles > 0").version
        2
        >>> dataset.inspect.constraints().to_pylist()
        [{'name': 'flies', 'expression': 'miles > 0', 'since': 2}]
        """
        return self.table("constraints")


def _history(reader: CatalogReader, snapshot: Snapshot) -> _Rows:
    record = snapshot.dataset
    tagged = reader.tags(record.id).values()
    for row in History(reader.transactions(record.id), record.oldest_version, tagged).rows():
        metadata = json.dumps(dict(row["metadata"]))
        yield None, {**row, "committer": list(row["committer"].items()), "metadata": metadata}


def _versions(reader: CatalogReader, snapshot: Snapshot) -> _Rows:
    tags: dict[int, list[str]] = {}
    for name, version in reader.tags(snapshot.dataset.id).items():
        tags.setdefault(version, []).append(name)
    for one in reader.transactions(snapshot.dataset.id):
        if one.version >= snapshot.dataset.oldest_version or one.version in tags:
            schemas = (v for v in snapshot.file_schemas if v <= one.version)
            yield (
                one,
                {
                    **dict.fromkeys(_LIVE),
                    **one.summary,
                    "schema_version": max(schemas, default=None),
                    "tags": tags.get(one.version, []),
                },
            )


def _detail(reader: CatalogReader, snapshot: Snapshot) -> _Rows:
    properties = snapshot.dataset.properties
    commits = reader.transactions(snapshot.dataset.id)
    mine = next((one for one in commits if one.version == snapshot.version), None)
    summary = mine.summary if mine is not None else {}
    yield (
        None,
        {
            "location": snapshot.uri,
            "version": snapshot.version,
            "created_at": min((one.timestamp for one in commits), default=None),
            "last_modified": mine and mine.timestamp,
            "partition_columns": list(snapshot.partition_by),
            "clustering_columns": list(properties.layout.cluster_by or ()),
            "num_files": summary.get("live_files"),
            "num_rows": summary.get("live_rows"),
            "size_bytes": summary.get("live_bytes"),
            "properties": list(properties.table_properties.items()),
        },
    )


def _files(reader: CatalogReader, snapshot: Snapshot) -> _Rows:
    deleted = _deleted(reader, snapshot)
    files = _live(reader, snapshot)
    checksums = reader.checksums([file.id for file in files])
    for file in files:
        checksum = checksums.get(file.id)
        yield (
            file,
            {
                "file_path": file.path,
                "file_size_bytes": file.size_bytes,
                "deleted_rows": deleted.get(file.id, 0),
                "partitions": _partition_values(snapshot, file),
                "sha256": None if checksum is None else checksum.hex(),
            },
        )


def _row_groups(reader: CatalogReader, snapshot: Snapshot) -> _Rows:
    columns = {leaf.id: leaf.name for leaf in leaves(snapshot.schema)}
    present = {
        version: [leaf for leaf in leaves(schema) if leaf.id in columns]
        for version, schema in snapshot.file_schemas.items()
    }
    files = _live(reader, snapshot)
    for start in range(0, len(files), 1000):
        some = files[start : start + 1000]
        groups = reader.row_groups([file.id for file in some])
        for file in some:
            for group in groups[file.id]:
                bounds = list(_bounds(group, present[file.schema_version], columns))
                known = {"file_path": file.path, "row_group": group.index, "bounds": bounds}
                yield group, known


def _bounds(
    group: RowGroupMetadata, present: Iterable[Leaf], names: Mapping[int, str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """What a row group's record says of columns, as texts."""
    low, high = parsed_object(group.stats_min_json), parsed_object(group.stats_max_json)
    nulls, nans = parsed_object(group.null_counts_json), parsed_object(group.nan_json)
    for leaf in present:
        key = str(leaf.id)
        if any(key in document for document in (low, high, nulls, nans)):
            yield (
                names[leaf.id],
                {
                    "lower": _text(low.get(key)),
                    "upper": _text(high.get(key)),
                    "null_count": nulls.get(key),
                    "may_contain_nan": nans.get(key),
                },
            )


def _partitions(reader: CatalogReader, snapshot: Snapshot) -> _Rows:
    deleted = _deleted(reader, snapshot)
    found: dict[tuple[tuple[str, str | None], ...], list[int]] = {}
    for file in _live(reader, snapshot):
        counts = found.setdefault(tuple(_partition_values(snapshot, file)), [0, 0, 0])
        counts[0] += 1
        counts[1] += file.row_count - deleted.get(file.id, 0)
        counts[2] += file.size_bytes
    for values, counts in found.items():
        yield None, dict(zip(SCHEMAS["partitions"].names, (list(values), *counts)))


def _deletion_vectors(reader: CatalogReader, snapshot: Snapshot) -> _Rows:
    paths = {file.id: file.path for file in _live(reader, snapshot)}
    for one in reader.all_vectors(snapshot.dataset.id, snapshot.version):
        if one.file_id in paths:
            known = {"file_path": paths[one.file_id], "vector_path": one.vector.path}
            yield one.vector, {**known, "version": one.version}


def _health(reader: CatalogReader, snapshot: Snapshot) -> _Rows:
    names = SCHEMAS["health"].names
    for row in health(reader, snapshot).table():
        yield None, dict(zip(names, row))


def _refs(reader: CatalogReader, snapshot: Snapshot) -> _Rows:
    version = snapshot.dataset.current_version
    yield None, {"name": "main", "type": "BRANCH", "version": version}
    for branch in reader.branches(snapshot.dataset.id).values():
        yield branch, {"type": "BRANCH"}
    for name, version in reader.tags(snapshot.dataset.id).items():
        yield None, {"name": name, "type": "TAG", "version": version}


def _consumers(reader: CatalogReader, snapshot: Snapshot) -> _Rows:
    now = reader.now()
    for one in reader.consumers(snapshot.dataset.id).values():
        behind = snapshot.dataset.current_version - one.version
        yield one, {"versions_behind": behind, "is_expired": one.expires_at <= now}


def _constraints(_reader: CatalogReader, snapshot: Snapshot) -> _Rows:
    for name, check in snapshot.dataset.properties.constraints.items():
        yield check, {"name": name}


def _live(reader: CatalogReader, snapshot: Snapshot) -> list[FileRecord]:
    return reader.files(snapshot.dataset.id, snapshot.version)


def _deleted(reader: CatalogReader, snapshot: Snapshot) -> dict[int, int]:
    """How many rows deletion vectors delete, by file id."""
    found = reader.all_vectors(snapshot.dataset.id, snapshot.version)
    return {one.file_id: one.vector.cardinality for one in found}


def _partition_values(snapshot: Snapshot, file: FileRecord) -> list[tuple[str, str | None]]:
    texts = snapshot.partition_texts()(file)
    values = (None if text is None else _text(parsed(text)) for text in texts)
    return list(zip(snapshot.partition_by, values))


def _text(value: Any) -> str | None:
    """A value of the catalog's JSON documents, for people."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, dict):  # bytes
        return str(value.get("base64"))
    return json.dumps(value)

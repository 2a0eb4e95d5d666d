"""Verb. The snapshot: a dataset at one version. Every read begins with one.

One query of the catalog finds the version that a number or a time means (the newest
without either) and the schemas with which the files were written.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone, tzinfo
from functools import cached_property, lru_cache
from typing import Any

import pyarrow as pa

from lakehouse_source.arguments import moment, whole_number
from lakehouse_source.catalog.sql.reader import CatalogReader
from lakehouse_source.catalog.sql.records import Description
from lakehouse_source.catalog.sql.writer import CatalogTransaction
from lakehouse_source.errors import (
    CorruptDatasetError,
    DatasetNotFoundError,
    InvalidOptionError,
    SchemaMismatchError,
    VersionNotFoundError,
)
from lakehouse_source.model import (
    ColumnBounds,
    DatasetRecord,
    FileRecord,
    RowGroupMetadata,
    ScanTask,
    SeenVersion,
)
from lakehouse_source.pruning.bounds import Statistics
from lakehouse_source.schema.fields import find_field
from lakehouse_source.schema.partitions import PartitionTexts, partition_columns_at

# --- What plans have read and decoded of files, kept in this process for later plans.
#
# The catalog's rows of a committed file are read once: they never change, except those that say in
# which versions the file is live. After an erasure, which rewrites files, everything is read again.
# File ids mean nothing outside one history of one dataset: another catalog has the same ids, and so
# has a catalog that was deleted and made again, or one that was restored from a backup and then got
# other commits. A `History` therefore knows its commits by their write ids, which are unique.


# About as much memory as 20,000 files with ten row groups each take.
MOST_BYTES = 64 * 1024 * 1024
_MOST_HISTORIES = 64
_MOST_COMMITS = 64  # of one history

# Approximate sizes in memory.
_FILE_BYTES = 900
_ROW_GROUP_BYTES = 220
_BOUNDS_BYTES = 200


@dataclass(slots=True)
class KnownColumns:
    """Bounds of columns in the types of one schema version, by column id.

    `whole` is over a file, `groups` over each of its row groups. `task` reads all of them.
    """

    whole: dict[int, ColumnBounds] = field(default_factory=dict)
    groups: dict[int, tuple[ColumnBounds, ...]] = field(default_factory=dict)
    task: ScanTask | None = None


@dataclass(slots=True)
class KnownFile:
    """What is known of one file. `row_groups` have no statistics; None: they are not read yet."""

    record: FileRecord
    row_groups: tuple[RowGroupMetadata, ...] | None = None
    columns: dict[int, KnownColumns] = field(default_factory=dict)

    def in_schema(self, version: int) -> KnownColumns:
        """What is known of columns in the types of a schema version."""
        found = self.columns.get(version)
        if found is None:
            found = self.columns[version] = KnownColumns()
        return found

    @property
    def has_empty_row_groups(self) -> bool:
        """Tell whether a row group has no rows; only other writers make such row groups."""
        return 0 in [group.row_count for group in self.row_groups or ()]

    @property
    def size_bytes(self) -> int:
        """About how much memory this takes."""
        groups = len(self.row_groups or ())
        size = _FILE_BYTES + groups * _ROW_GROUP_BYTES
        for columns in self.columns.values():
            size += _BOUNDS_BYTES * (1 + len(columns.whole) + groups * len(columns.groups))
        return size


class History:
    """The commits of one dataset that this process has seen, by version."""

    __slots__ = ("write_ids",)

    def __init__(self, version: int, write_id: str) -> None:
        self.write_ids = {version: write_id}

    def saw(self, version: int, write_id: str) -> None:
        """Add a commit that comes after those that are known."""
        self.write_ids[version] = write_id
        while len(self.write_ids) > _MOST_COMMITS:
            del self.write_ids[min(self.write_ids)]


class KnownFiles:
    """Known files of all histories, within `most_bytes`. Those used least recently go first."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self.forget()

    def forget(self) -> None:
        """Forget everything, and use a new lock that no thread holds."""
        self._lock = threading.Lock()
        self._histories: OrderedDict[tuple[str, int, int], History] = OrderedDict()
        self._files: OrderedDict[tuple[History, int], tuple[KnownFile, int]] = OrderedDict()
        self.size_bytes = 0

    def history(self, reader: CatalogReader, found: Description) -> History | None:
        """The history of a dataset in a catalog; None: nothing of it may be kept.

        A transaction that writes sees rows of its own, which may never be committed.
        """
        if found.write_id is None or isinstance(reader, CatalogTransaction):
            return None
        erased = found.dataset.properties.erased_version
        key = (reader.redacted_url, found.dataset.id, erased)
        version, write_id = found.dataset.current_version, found.write_id
        with self._lock:
            known = self._histories.get(key)
            seen = {} if known is None else dict(known.write_ids)
        if known is None or seen.get(version) != write_id:
            last = max(seen, default=0)
            if known is None or reader.write_id_of(found.dataset.id, last) != seen[last]:
                known = History(version, write_id)
            with self._lock:
                known.saw(version, write_id)
                self._histories[key] = known
                self._histories.move_to_end(key)
                if len(self._histories) > _MOST_HISTORIES:
                    self._histories.popitem(last=False)
        return known

    def records(self, history: History, file_ids: Sequence[int]) -> Mapping[int, FileRecord]:
        """The records of those of the files that are known, by id."""
        with self._lock:
            keys = ((history, id) for id in file_ids)
            return {key[1]: self._files[key][0].record for key in keys if key in self._files}

    def of(self, history: History | None, records: Iterable[FileRecord]) -> list[KnownFile]:
        """What is known of files; for a new file, only its record."""
        if history is None:
            return [KnownFile(record) for record in records]
        result = []
        with self._lock:
            for record in records:
                key = (history, record.id)
                found = self._files.get(key)
                if found is None:
                    result.append(KnownFile(record))
                else:
                    self._files.move_to_end(key)
                    result.append(found[0])
        return result

    def keep(self, history: History | None, files: Iterable[KnownFile]) -> None:
        """Keep what was learned of files."""
        if history is None:
            return
        with self._lock:
            for file in files:
                key, size = (history, file.record.id), file.size_bytes
                before = self._files.pop(key, None)
                self._files[key] = (file, size)
                self.size_bytes += size - (0 if before is None else before[1])
            while self.size_bytes > self._most_bytes and self._files:
                _key, (_file, size) = self._files.popitem(last=False)
                self.size_bytes -= size


known_files = KnownFiles()
if hasattr(os, "register_at_fork"):
    # The lock may be held by a thread that does not exist in the child.
    os.register_at_fork(after_in_child=known_files.forget)


@dataclass(frozen=True)
class Snapshot:
    """A dataset at one version: what planning needs to know before it looks for files."""

    dataset: DatasetRecord
    uri: str
    version: int
    schema_version: int
    schema: pa.Schema
    file_schemas: Mapping[int, pa.Schema]
    summary: Mapping[str, int]
    # The partition columns, by their names in `schema`. The dataset's properties have the newest
    # names.
    partition_by: tuple[str, ...]

    # The history that the version belongs to. None: plans must not use what other plans read.
    history: History | None

    # False: no version of the dataset has ever had a file with deleted rows.
    has_vectors: bool = False

    # The write that made the version; None: the history does not have it any more.
    write_id: str | None = None

    @property
    def seen(self) -> SeenVersion:
        """What tells this version from another one that gets its number later."""
        return SeenVersion(self.version, self.write_id)

    def partition_texts(self) -> PartitionTexts:
        """Finds the partition values of files, in the order of `partition_by`."""
        return self._partition_texts

    def statistics(self) -> Statistics:
        """Looks up bounds of columns in the catalog's records."""
        return self._statistics

    def in_schema(self, schema_version: int) -> Snapshot:
        """The same files, read under the schema that came into force at another version."""
        schema = self.file_schemas[schema_version]
        newest_schema = self.file_schemas[max(self.file_schemas)]
        properties = self.dataset.properties
        return replace(
            self,
            schema_version=schema_version,
            schema=schema,
            partition_by=partition_columns_at(properties, schema_version, schema, newest_schema),
        )

    @cached_property
    def _partition_texts(self) -> PartitionTexts:
        return PartitionTexts(self.partition_by, self.schema, self.file_schemas)

    @cached_property
    def _statistics(self) -> Statistics:
        return Statistics(self.schema, self.file_schemas, self.partition_by)

    @cached_property
    def indexed(self) -> frozenset[int]:
        """Ids of the columns that the search index covers."""
        return frozenset(self.dataset.properties.indexed_columns)


def open_snapshot(
    reader: CatalogReader,
    key: str,
    uri: str,
    catalog: str,
    *,
    version: int | str | SeenVersion | None = None,
    timestamp: datetime | str | None = None,
) -> Snapshot:
    """The dataset registered as `key`, at a version (default: the newest).

    A text `version` is a tag, or a number in digits. A version that was seen before must be the
    same one still.
    """
    seen = version if isinstance(version, SeenVersion) else None
    if isinstance(version, SeenVersion):
        version = version.version
    elif isinstance(version, str):
        version = _tagged(reader, key, uri, catalog, version)
    elif version is not None:
        version = checked_version(version)
    found = reader.description(key, version)
    if found is None:
        raise DatasetNotFoundError(dataset=uri, catalog=catalog)
    record, commit = existing(found.dataset, uri, catalog), None
    if seen is not None:
        check_same(record, uri, seen, found.version_write_id)
    if version is not None and timestamp is not None:
        raise InvalidOptionError(
            option="version", value=version, reason="cannot be given together with a timestamp."
        )
    oldest, newest = record.oldest_version, record.current_version
    if timestamp is not None:
        moment = parse_timestamp(timestamp)
        version = reader.version_at(record.id, moment)
        if version is None or not is_readable(record, version, reader):
            first = reader.transaction(record.id, oldest)
            raise VersionNotFoundError(
                dataset=uri,
                requested=f"version at or before {moment.isoformat()}",
                first=oldest,
                last=newest,
                first_timestamp=None if first is None else first.timestamp.isoformat(),
                expired=version is not None,
            )
        commit = reader.transaction(record.id, version)
    if version is None:
        version = newest
    check_readable(record, uri, version, reader)
    snapshot = _snapshot(found, uri, catalog, version, known_files.history(reader, found))
    if timestamp is None:
        return snapshot
    summary, write_id = ({}, None) if commit is None else (commit.summary, commit.write_id)
    return replace(snapshot, summary=summary, write_id=write_id)


def _tagged(reader: CatalogReader, key: str, uri: str, catalog: str, name: str) -> int:
    """The version that a text means."""
    number = version_number(name)
    if number is not None:
        return number
    record = existing(reader.dataset(key), uri, catalog)
    version = reader.tags(record.id).get(name)
    if version is None:
        raise no_such_reference(record, uri, f"tag {name!r}")
    return version


def existing(record: DatasetRecord | None, uri: str, catalog: str) -> DatasetRecord:
    """The record of a dataset that has a version."""
    if record is None or record.current_version == 0:
        raise DatasetNotFoundError(dataset=uri, catalog=catalog)
    return record


def is_readable(record: DatasetRecord, version: int, reader: CatalogReader) -> bool:
    """Tell whether a dataset has a version that was not expired, or that has a tag."""
    if version >= record.oldest_version:
        return version <= record.current_version
    return version in reader.tags(record.id).values()


def no_such_version(
    record: DatasetRecord, uri: str, version: int, *, expired: bool = False
) -> VersionNotFoundError:
    """The error of a version that a dataset does not have, or no longer."""
    return VersionNotFoundError(
        dataset=uri,
        requested=f"version {version}",
        first=record.oldest_version,
        last=record.current_version,
        expired=expired,
    )


def check_readable(record: DatasetRecord, uri: str, version: int, reader: CatalogReader) -> None:
    """Check that a dataset has a version, and that it was not expired or has a tag.

    Raises:
        InvalidOptionError: the version is not a whole number; a database might compare it
            nevertheless.
    """
    version = checked_version(version)
    if not is_readable(record, version, reader):
        raise no_such_version(record, uri, version, expired=1 <= version < record.oldest_version)


def check_same(record: DatasetRecord, uri: str, seen: SeenVersion, write_id: str | None) -> None:
    """Check that a version is the one that was seen before. `write_id` is that of its number now.

    Raises:
        VersionNotFoundError: another version has its number, or none has it yet.
    """
    if seen.is_gone(record.current_version, write_id):
        raise VersionNotFoundError(
            dataset=uri,
            requested=f"version {seen.version}",
            first=record.oldest_version,
            last=record.current_version,
            replaced=True,
        )


def checked_version(version: Any) -> int:
    """The number of a version."""
    try:
        return whole_number("version", version)
    except InvalidOptionError as error:
        raise InvalidOptionError(
            option="version", value=error.value, reason="is not the number of a version."
        ) from error


def no_such_reference(record: DatasetRecord, uri: str, requested: str) -> VersionNotFoundError:
    """The error that a dataset has no such tag or branch."""
    return VersionNotFoundError(
        dataset=uri,
        requested=requested,
        first=record.oldest_version,
        last=record.current_version,
    )


def version_number(text: str) -> int | None:
    """The number of a version in a text, or None where the text can be a tag."""
    if not text.strip().lstrip("+-").isdecimal():
        return None
    try:
        return whole_number("version", int(text))
    except ValueError as error:
        raise InvalidOptionError(
            option="version", value=text, reason="is neither a number nor a tag."
        ) from error


@lru_cache(maxsize=64)
def _snapshot(
    found: Description, uri: str, catalog: str, version: int, history: History | None
) -> Snapshot:
    """A version of the dataset, as the catalog describes it. Equal rows share one description."""
    schema_version = max((number for number in found.schemas if number <= version), default=0)
    if schema_version == 0:
        raise CorruptDatasetError(path=catalog, reason=f"{uri} has no schema for version {version}")
    schema = found.schemas[schema_version]
    newest_schema = found.schemas[max(found.schemas)]
    return Snapshot(
        dataset=found.dataset,
        uri=uri,
        version=version,
        schema_version=schema_version,
        schema=schema,
        file_schemas=found.schemas,
        summary=found.summary,
        partition_by=partition_columns_at(found.dataset.properties, version, schema, newest_schema),
        history=history,
        has_vectors=found.has_vectors,
        write_id=found.version_write_id,
    )


def parse_timestamp(
    value: datetime | str, option: str = "timestamp", zone: tzinfo | None = timezone.utc
) -> datetime:
    """The moment that a text in ISO 8601 means, in `zone` if it has none.

    `option` is for errors. Without `zone`, the moment of such a text has no zone.
    """
    if isinstance(value, str):
        try:
            parsed = datetime.fromisoformat(value.strip().replace("Z", "+00:00"))
        except ValueError as error:
            raise InvalidOptionError(
                option=option,
                value=value,
                reason="is not an ISO 8601 timestamp such as '2026-01-31 13:00:00'.",
            ) from error
    else:
        parsed = moment(option, value)
    return parsed.replace(tzinfo=zone) if parsed.tzinfo is None else parsed


def resolve_columns(schema: pa.Schema, columns: Sequence[str] | None) -> tuple[str, ...]:
    """Top-level column names in the schema's spelling; None means all."""
    if columns is None:
        return tuple(schema.names)
    chosen: list[str] = []
    for name in columns:
        found = find_field(name, schema)
        if found is None:
            raise SchemaMismatchError(
                column=name,
                reason="is not in the dataset",
                hint=f"It has: {', '.join(schema.names)}.",
            )
        if found.name not in chosen:
            chosen.append(found.name)
    return tuple(chosen)

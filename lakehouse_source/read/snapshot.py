"""Verb. The snapshot: a dataset at one version. Every read begins with one.

One query of the catalog finds the version that a number or a time means (the newest
without either) and the schemas with which the files were written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone, tzinfo
from functools import cached_property, lru_cache
from typing import Any

import pyarrow as pa

from lakehouse_source.arguments import moment, whole_number
from lakehouse_source.catalog.sql.reader import CatalogReader
from lakehouse_source.catalog.sql.records import Description
from lakehouse_source.errors import (
    CorruptDatasetError,
    DatasetNotFoundError,
    InvalidOptionError,
    SchemaMismatchError,
    VersionNotFoundError,
)
from lakehouse_source.model import DatasetRecord, SeenVersion
from lakehouse_source.pruning.statistics import Statistics
from lakehouse_source.read.known_files import History, known_files
from lakehouse_source.schema.fields import find_field
from lakehouse_source.schema.partitions import (
    PartitionTexts,
    partition_columns_at,
)


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


def check_readable(record: DatasetRecord, uri: str, version: int, reader: CatalogReader) -> None:
    """Check that a dataset has a version, and that it was not expired or has a tag.

    Raises:
        InvalidOptionError: the version is not a whole number; a database might compare it
            nevertheless.
    """
    version = checked_version(version)
    oldest, newest = record.oldest_version, record.current_version
    if not is_readable(record, version, reader):
        raise VersionNotFoundError(
            dataset=uri,
            requested=f"version {version}",
            first=oldest,
            last=newest,
            expired=1 <= version < oldest,
        )


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

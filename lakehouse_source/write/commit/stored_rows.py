"""Verb. Whether rows that are in files already satisfy constraints.

Statistics decide where they suffice; else the rows that may break a constraint are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import pyarrow as pa

from lakehouse_source.catalog.base import Catalog
from lakehouse_source.catalog.sql.reader import CatalogReader
from lakehouse_source.constraints import Constraint, bound, missing
from lakehouse_source.errors import InvalidExpressionError, InvalidPredicateError
from lakehouse_source.model import DatasetRecord, FileMetadata, FileRecord, ScanTask, SeenVersion
from lakehouse_source.parquet.read_write_specs import ReadSpec, WriteSpec
from lakehouse_source.parquet.reader import read_all
from lakehouse_source.pruning.bounds import Statistics
from lakehouse_source.pruning.evaluate import evaluate
from lakehouse_source.read.address import Address
from lakehouse_source.read.plan import plan
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.schema.partitions import PartitionTexts
from lakehouse_source.storage import Storage, StorageLocation
from lakehouse_source.write.commit.conflicts import conflict, unchecked
from lakehouse_source.write.commit.prerecord import encode_partitions


@dataclass(frozen=True, slots=True)
class Suspects:
    """Rows that may break a constraint: how to read those that do.

    They are found in the catalog and read afterwards, so that no transaction waits for files.
    """

    constraint: Constraint
    read: ReadSpec
    tasks: tuple[ScanTask, ...]

    @classmethod
    def of(
        cls,
        reader: CatalogReader,
        snapshot: Snapshot,
        constraints: Iterable[Constraint],
        location: StorageLocation,
        schema: pa.Schema | None = None,
    ) -> list[Suspects]:
        """Those of a version, as it reads under another schema if one is given."""
        if schema is not None:
            snapshot = replace(snapshot, schema=schema, history=None)
        found = []
        for one in constraints:
            rows = plan(reader, snapshot, read_uri=location, predicates=one.breaking, limit=1)
            found.append(cls(one, rows.spec, rows.tasks))
        return found

    def check(self, storage: Storage) -> None:
        """Read rows until one breaks the constraint.

        Raises:
            ConstraintViolationError
        """
        try:
            for table in read_all(self.read, self.tasks, storage):
                if table.num_rows:
                    raise self.constraint.violation(table)
        except (InvalidExpressionError, InvalidPredicateError) as error:
            raise self.constraint.without_value(error) from error


def check_older(
    catalog: Catalog,
    address: Address,
    version: int | SeenVersion | None,
    timestamp: datetime | str | None = None,
) -> tuple[Constraint, ...]:
    """Check a version of which rows return, against the constraints as they are now.

    A constraint was checked already in the versions since it was added. Returns the constraints:
    whoever commits the rows has to compare them with those of the locked dataset.

    Raises:
        ConstraintViolationError: a row breaks a constraint.
        SchemaMismatchError: the version lacks a column of a constraint.
    """
    with catalog.read() as reader:
        snapshot = address.snapshot(catalog, reader, version, timestamp)
        checks = snapshot.dataset.properties.constraints
        constraints = bound(checks, snapshot.schema)
        newer = (one for one in constraints if checks[one.name].since > snapshot.version)
        suspects = Suspects.of(reader, snapshot, newer, address.location)
    for one in suspects:
        one.check(Storage(address.location))
    return constraints


def check_unchanged(record: DatasetRecord, uri: str, checked: Iterable[Constraint]) -> None:
    """Check under the lock that no constraint came after `check_older`.

    Raises:
        CommitConflictError: there is a constraint against which the rows were not checked.
    """
    for name in missing(record.properties.constraints, checked):
        now = record.current_version
        raise conflict(uri, now, now, unchecked(name))


def check_added_files(spec: WriteSpec, files: Sequence[FileMetadata], storage: Storage) -> None:
    """Check the rows of files that others wrote, before a commit adds the files.

    Raises:
        ConstraintViolationError: a row breaks a constraint.
    """
    schemas = {0: spec.schema}
    statistics = Statistics(spec.schema, schemas, spec.partition_by)
    texts = PartitionTexts(spec.partition_by, spec.schema, schemas)
    for one in spec.constraints:
        tasks = []
        for number, file in enumerate(files):
            record = FileRecord(
                id=number,
                path=file.path,
                size_bytes=file.file_size_bytes,
                row_count=file.row_count,
                schema_version=0,
                version=0,
                partitions=encode_partitions(file, spec.schema),
                stats_complete=file.stats_complete,
            )
            kept = [
                group.index
                for group in file.row_groups
                if evaluate(one.broken, statistics.of(record, group)).may_match
            ]
            if kept:
                task = ScanTask.whole(record, texts(record), None)
                tasks.append(replace(task, row_groups=tuple(kept), filtered=True))
        read = ReadSpec(
            uri=spec.uri,
            schema=spec.schema,
            columns=tuple(spec.schema.names),
            partition_by=spec.partition_by,
            file_schemas=schemas,
            predicate=one.broken,
        )
        Suspects(one, read, tuple(tasks)).check(storage)

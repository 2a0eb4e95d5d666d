"""Verb. Whether rows that are in files already satisfy constraints.

Statistics decide where they suffice; else the rows that may break a constraint are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import pyarrow as pa

from lakehouse_source.catalog.base import Catalog
from lakehouse_source.catalog.sql.reader import CatalogReader
from lakehouse_source.constraints import Constraint, bound, missing
from lakehouse_source.errors import (
    InvalidExpressionError,
    InvalidPredicateError,
    SchemaMismatchError,
)
from lakehouse_source.generated import Generated
from lakehouse_source.model import DatasetRecord, FileMetadata, ScanTask, SeenVersion
from lakehouse_source.parquet.read_write_specs import ReadSpec, WriteSpec
from lakehouse_source.parquet.reader import read_all
from lakehouse_source.pruning.bounds import Statistics
from lakehouse_source.pruning.evaluate import evaluate
from lakehouse_source.read.address import Address
from lakehouse_source.read.plan import plan
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.storage import Storage, StorageLocation
from lakehouse_source.write.commit.conflicts import conflict, unchecked
from lakehouse_source.write.commit.prerecord import encode_partitions
from lakehouse_source.write.commit.repeated_keys import (
    Join,
    first_repeated,
    new_file,
    read_new_files,
    row_at,
)


@dataclass(frozen=True, slots=True)
class Suspects:
    """Rows that may break a constraint: how to read those that do. Of a key: how to read all keys.

    They are found in the catalog and read afterwards, so that no transaction waits for files.
    """

    constraint: Constraint | Generated
    read: ReadSpec
    tasks: tuple[ScanTask, ...]
    keys: bool = False

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
            if one.unique:
                rows = plan(reader, snapshot, read_uri=location, columns=one.unique)
                found.append(cls(one, rows.spec, rows.tasks, keys=True))
        return found

    def check(self, storage: Storage) -> None:
        """Read rows until one breaks the constraint.

        Raises:
            ConstraintViolationError
        """
        if self.keys:
            self._check_keys(storage)
            return
        try:
            for table in read_all(self.read, self.tasks, storage):
                if table.num_rows:
                    raise self.constraint.violation(table)
        except (InvalidExpressionError, InvalidPredicateError) as error:
            raise self.constraint.without_value(error) from error

    def _check_keys(self, storage: Storage) -> None:
        assert isinstance(self.constraint, Constraint)
        demanded, unique = self.constraint, self.constraint.unique
        join = Join.of(unique, self.read.schema)

        def keys() -> Iterator[pa.Table]:
            begin = 0
            for table in read_all(self.read, self.tasks, storage):
                yield join.keys(table, begin=begin)
                begin += table.num_rows

        found = first_repeated(keys())
        if found is not None:
            row = row_at(self.read, self.tasks, storage, found, unique)
            raise demanded.violation_of(row, "another row")


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
        GeneratedColumnError: a row has another value in a generated column.
        SchemaMismatchError: the dataset has an identity column.
    """
    for numbers in spec.numbers:
        raise SchemaMismatchError(
            column=numbers.name,
            reason=f"is {numbers.how.sql}: files of others have no numbers of it",
            hint="Write their rows: pyarrow.dataset.dataset(folder) is data for write_dataset.",
        )
    statistics = Statistics(spec.schema, {0: spec.schema}, spec.partition_by)
    encoded = [replace(one, partitions=encode_partitions(one, spec.schema)) for one in files]
    read, whole = read_new_files(spec, encoded, spec.schema.names)
    demanded: tuple[Constraint | Generated, ...] = (*spec.constraints, *spec.generated)
    for one in demanded:
        broken = one.broken
        tasks = []
        for number, (file, task) in enumerate(zip(encoded, whole)):
            record = new_file(number, file)
            kept = [
                group.index
                for group in file.row_groups
                if evaluate(broken, statistics.of(record, group)).may_match
            ]
            if kept:
                tasks.append(replace(task, row_groups=tuple(kept), filtered=True))
        Suspects(one, replace(read, predicate=broken), tuple(tasks)).check(storage)

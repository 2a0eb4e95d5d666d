"""Verb. Whether rows that are in files already satisfy constraints, and whether keys are repeated.

Statistics decide where they suffice; else the rows that may break a constraint are read.

A key is compared in the form in which Arrow compares two tables of rows. The search for a key that
is there twice needs bounded memory: more keys than that are sorted on disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.catalog.base import Catalog
from lakehouse_source.catalog.sql.reader import CatalogReader
from lakehouse_source.constraints import Constraint, bound, missing
from lakehouse_source.errors import (
    InvalidExpressionError,
    InvalidPredicateError,
    SchemaMismatchError,
)
from lakehouse_source.generated import Generated
from lakehouse_source.language import (
    Equality,
    Expression,
    Name,
    PredicateSet,
    Scope,
    all_of,
    compare,
    equality,
    is_in,
)
from lakehouse_source.language.functions.rows import flat
from lakehouse_source.language.nodes import Call
from lakehouse_source.layout import row_keys
from lakehouse_source.model import DatasetRecord, FileMetadata, FileRecord, ScanTask, SeenVersion
from lakehouse_source.parquet.read_write_specs import ReadSpec, WriteSpec
from lakehouse_source.parquet.reader import read_all
from lakehouse_source.parquet.writer import column_arrays
from lakehouse_source.pruning.bounds import Statistics
from lakehouse_source.pruning.evaluate import evaluate
from lakehouse_source.read.address import Address
from lakehouse_source.read.plan import plan
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.schema.arrow_arrays import shown_row
from lakehouse_source.schema.partitions import PartitionTexts
from lakehouse_source.storage import Storage, StorageLocation
from lakehouse_source.write.commit.conflicts import conflict, unchecked
from lakehouse_source.write.commit.prerecord import encode_partitions
from lakehouse_source.write.commit.rewrite import SORTED_BYTES, sorted_rows

# The place of a row among all.
ROW = "row"
THEIRS, MINE = "theirs", "mine"


class Join:
    """The columns of a key in the form in which Arrow compares two tables of rows.

    `theirs` and `mine` are the schemas of the tables.
    """

    def __init__(self, columns: Sequence[str], theirs: pa.Schema, mine: pa.Schema) -> None:
        self.columns = tuple(columns)
        self._types = [theirs.field(name).type for name in columns]
        scope = Scope({THEIRS: theirs, MINE: mine})
        self._equalities: list[Equality] = []
        for name in columns:
            node = Call("=", (Name((THEIRS, name)), Name((MINE, name))))
            found = equality(Expression(node, str(node)), scope)
            assert found is not None  # constraints have no other types
            self._equalities.append(found)
        self._values = {
            table: [one.of(table).value.bind(scope) for one in self._equalities]
            for table in (THEIRS, MINE)
        }

    @staticmethod
    def of(columns: Sequence[str], schema: pa.Schema) -> Join:
        """For rows of one table."""
        fields = pa.schema([schema.field(name) for name in columns])
        return _of_one_table(tuple(columns), fields.serialize().to_pybytes())

    def keys(self, rows: pa.Table, table: str = MINE, begin: int = 0) -> pa.Table:
        """The keys of rows and the places of the rows, which are counted from `begin`.

        A row with a NULL in its key is left out: it equals none.
        """
        columns: list[pa.Array] = []
        for one, value in zip(self._equalities, self._values[table]):
            columns += one.of(table).form(flat(value.evaluate({table: rows}, rows.num_rows)))
        columns.append(pa.arange(begin, begin + rows.num_rows))
        names = [*(f"k{number}" for number in range(len(columns) - 1)), ROW]
        return pa.table(columns, names).drop_null()

    def sought(self, values: Mapping[str, pa.Array], *, ends: bool) -> PredicateSet:
        """A condition that each row of theirs with one of the keys satisfies.

        `values` are those of each column: all of them, or with `ends` the least and the greatest.
        """
        terms = []
        for name, type_, one in zip(self.columns, self._types, self._equalities):
            found = one.sought(type_, one.of(MINE), values[name])
            if found is None:
                continue
            column = Name((name,))
            if ends:
                terms += [compare(column, op, end) for op, end in zip((">=", "<="), found)]
            else:
                terms.append(is_in(column, found))
        return PredicateSet(all_of(terms)) if terms else PredicateSet.of(None)


@lru_cache(maxsize=64)  # a twentieth of the time of a small commit
def _of_one_table(columns: tuple[str, ...], fields: bytes) -> Join:
    schema = pa.ipc.read_schema(pa.py_buffer(fields))
    return Join(columns, schema, schema)


def first_repeated(keys: Iterable[pa.Table]) -> int | None:
    """The place of the first row whose key another row has too; None: all keys differ."""
    held: list[pa.Table] = []
    size, stream = 0, iter(keys)
    for table in stream:
        held.append(table)
        size += table.nbytes
        if size > SORTED_BYTES:
            return _repeated_in_order(chain(held, stream), pa.concat_tables(held))
    return _repeated(pa.concat_tables(held)) if held else None


def _repeated(keys: pa.Table) -> int | None:
    names = keys.column_names[:-1]
    if len(names) == 1 and pc.count_distinct(keys.column(0)).as_py() == keys.num_rows:
        return None
    counted = keys.group_by(names).aggregate([(ROW, "min"), (ROW, "count")])
    twice = counted.filter(pc.greater(counted[f"{ROW}_count"], 1))
    found: int | None = pc.min(twice[f"{ROW}_min"]).as_py()
    return found


def _repeated_in_order(keys: Iterable[pa.Table], sample: pa.Table) -> int | None:
    """The same for any number of rows: sorted by one column, equal keys are neighbours."""
    names = sample.column_names[:-1]
    best = max(names, key=lambda name: pc.count_distinct(sample[name]).as_py())
    left: pa.Table | None = None
    for part in sorted_rows(keys, [(best,)], None, sample):
        rows = part if left is None else pa.concat_tables([left, part])
        found = _repeated(rows)
        if found is not None:
            return found
        order = row_keys(column_arrays(rows, [(best,)]), None)
        left = rows.filter(pc.equal(order, order[-1]))
    return None


def row_at(
    spec: ReadSpec, tasks: Sequence[ScanTask], storage: Storage, place: int, first: Sequence[str]
) -> str:
    """The row at a place among all rows of tasks, as errors show it."""
    whole = replace(spec, columns=tuple(spec.schema.names))
    for table in read_all(whole, tuple(tasks), storage):
        if place < table.num_rows:
            return shown_row(table, place, first)
        place -= table.num_rows
    return "a key"  # the file changed meanwhile


def new_file(number: int, file: FileMetadata) -> FileRecord:
    """The record that the catalog does not have yet of a file with its partition values as JSON."""
    return FileRecord(
        id=number,
        path=file.path,
        size_bytes=file.file_size_bytes,
        row_count=file.row_count,
        schema_version=0,
        version=0,
        partitions=file.partitions,
        stats_complete=file.stats_complete,
    )


def read_new_files(
    spec: WriteSpec, files: Sequence[FileMetadata], columns: Sequence[str]
) -> tuple[ReadSpec, tuple[ScanTask, ...]]:
    """How to read files of a write, whose partition values are given as JSON."""
    texts = PartitionTexts(spec.partition_by, spec.schema, {0: spec.schema})
    records = [new_file(number, file) for number, file in enumerate(files)]
    tasks = tuple(ScanTask.whole(one, texts(one), None) for one in records)
    read = ReadSpec(
        uri=spec.uri,
        schema=spec.schema,
        columns=tuple(columns),
        partition_by=spec.partition_by,
        file_schemas={0: spec.schema},
    )
    return read, tasks


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

"""Verb. Finds the rows of stored files that a condition matches, in any version of the family."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from typing import Any, NamedTuple

import pyarrow as pa

from lakehouse_source.catalog import Catalog, CatalogReader
from lakehouse_source.deletion import Positions, positions_of
from lakehouse_source.errors import InvalidExpressionError, InvalidPredicateError
from lakehouse_source.language import PredicateSet, Scope
from lakehouse_source.model import DatasetRecord, FileRecord, VectorRecord
from lakehouse_source.parquet.reader import read_each
from lakehouse_source.read.address import Address
from lakehouse_source.read.plan import ScanPlan, plan
from lakehouse_source.read.snapshot import Snapshot, existing
from lakehouse_source.schema.defaults import without_default
from lakehouse_source.schema.fields import POSITION, ROW, field_id, unused_names
from lakehouse_source.storage import Storage
from lakehouse_source.write.statements.row_statement import row_condition

# --- A dataset and its branches, with the files of all their readable versions.
#
# Branches share files with their dataset, and a restored file has several rows in the catalog. So
# an erasure changes a file for every row that names it.


class Identity(NamedTuple):
    """A stored file, in which all catalog rows see the same columns, identities and version.

    A restored file has rows of another version, and becomes a file of its own.
    """

    path: str
    schema_version: int
    first_row_id: int
    version: int

    @classmethod
    def of(cls, file: FileRecord) -> Identity:
        return cls(file.path, file.schema_version, file.first_row_id, file.version)


@dataclass(frozen=True, slots=True)
class Named:
    """A row of `files`. A version before `removed` has the file; None: the newest has it too."""

    file: FileRecord
    removed: int | None

    def is_in(self, first: int, after: int | None) -> bool:
        """Tell whether a version from `first` on and before `after` (None: any) has the file."""
        ends_later = self.removed is None or self.removed > first
        return ends_later and (after is None or self.file.version < after)


@dataclass(frozen=True, slots=True)
class Member:
    """A dataset of the family, with the files and the vectors of its readable versions."""

    snapshot: Snapshot
    files: tuple[Named, ...]
    vectors: tuple[tuple[VectorRecord, int | None], ...]
    tagged: tuple[int, ...] = ()

    @property
    def record(self) -> DatasetRecord:
        return self.snapshot.dataset

    @property
    def schemas(self) -> Mapping[int, pa.Schema]:
        return self.snapshot.file_schemas


def family(catalog: Catalog, reader: CatalogReader, address: Address) -> list[Member]:
    """The dataset, which is the first, and its branches."""
    record = existing(reader.dataset(address.key), address.uri, catalog.redacted_url)
    found = []
    for one in (address, *map(address.branch, reader.branches(record.id))):
        snapshot = one.snapshot(catalog, reader)
        dataset = snapshot.dataset
        found.append(
            Member(
                snapshot,
                tuple(Named(*named) for named in reader.readable_files(dataset)),
                tuple(reader.readable_vectors(dataset)),
                tuple(sorted(set(reader.tags(dataset.id).values()))),
            )
        )
    return found


def versions_of(members: list[Member]) -> dict[int, tuple[int, ...]]:
    """The newest and the oldest versions by dataset, and the tagged versions.

    If these are unchanged, everything is unchanged.
    """
    return {
        one.record.id: (one.record.current_version, one.record.oldest_version, *one.tagged)
        for one in members
    }


# --- The meaning of a condition in versions whose columns differ from the newest version.
#
# A row is erased if the condition is TRUE for the row in a version that can be read. The names of
# the condition are looked up in the schema of each version. A name that the version lacks means the
# column with this name in the newest schema: the column may have been renamed since, and is NULL if
# the file lacks it. The newest schema is tried for all files too. A dropped column keeps its last
# name, because its values are still in the files. A version in which the condition does not fit the
# type of a column is left out.


TARGET = "target"


@dataclass(frozen=True, slots=True)
class View:
    """A schema under which files are read to find rows, and the condition bound to it.

    `snapshot` has this schema, and every row of the files, deleted or not. The view is for versions
    from `first` on and before `after`; None: no limit.
    """

    snapshot: Snapshot
    condition: PredicateSet
    first: int
    after: int | None

    @property
    def meaning(self) -> tuple[object, ...]:
        """Equal where the condition finds the same rows of the same file."""
        schema = self.snapshot.schema
        names = _columns(self.condition, schema)
        fields = pa.schema([schema.field(name).with_nullable(True) for name in names])
        partitions = tuple(name for name in self.snapshot.partition_by if name in names)
        return fields.serialize().to_pybytes(), partitions

    def files(self, member: Member) -> Iterator[Named]:
        """The files that a version of the view has."""
        return (named for named in member.files if named.is_in(self.first, self.after))


def views(member: Member, root: Member, where: Any) -> list[View]:
    """The schemas of a dataset under which the condition may match different rows.

    `root` is the dataset itself, or for a branch its dataset.

    Raises:
        InvalidPredicateError: the condition cannot be parsed, or no schema has a column of it.
    """
    newest = member.snapshot
    if member is not root:
        newest = _with_names_of(newest, member, root)
    known = _with_dropped(newest.schema, member.schemas)
    found: list[View] = []
    try:
        found.append(View(_bare(newest, known), _bound(where, known), 0, None))
    except (InvalidPredicateError, InvalidExpressionError):
        if member is root:
            raise
    meanings = {one.meaning for one in found}
    oldest = min(member.record.oldest_version, *member.tagged, member.record.current_version)
    current = member.record.current_version
    begins = sorted(member.schemas)
    for begin, after in zip(begins, [*begins[1:], None]):
        if begin > current or (after is not None and after <= oldest):
            continue  # no version with the schema can be read
        then = member.snapshot.in_schema(begin)
        names = {field.name.lower() for field in then.schema}
        others = [field for field in known if field.name.lower() not in names]
        schema = pa.schema([*then.schema, *others])
        try:
            condition = _bound(where, schema)
        except (InvalidPredicateError, InvalidExpressionError):
            continue
        view = View(_bare(then, schema), condition, begin, after)
        if view.meaning not in meanings:
            found.append(view)  # each has its own versions, so two equal ones both stay
    return found


def _bound(where: Any, schema: pa.Schema) -> PredicateSet:
    return row_condition(where, schema, Scope({TARGET: schema}))


def _bare(snapshot: Snapshot, schema: pa.Schema) -> Snapshot:
    """The snapshot under a schema, without vectors and without what other plans have cached."""
    return replace(snapshot, schema=schema, has_vectors=False, history=None)


def _with_dropped(newest: pa.Schema, schemas: Mapping[int, pa.Schema]) -> pa.Schema:
    """The newest schema, with the dropped columns under their last names.

    Files that lack a column have NULL there: the default is for versions that have the column.
    """
    fields = [without_default(field).with_nullable(True) for field in newest]
    ids = {field_id(field) for field in fields}
    names = {field.name.lower() for field in fields}
    for version in sorted(schemas, reverse=True):
        for field in schemas[version]:
            if field_id(field) not in ids and field.name.lower() not in names:
                fields.append(without_default(field).with_nullable(True))
                ids.add(field_id(field))
                names.add(field.name.lower())
    return pa.schema(fields)


def _with_names_of(snapshot: Snapshot, branch: Member, root: Member) -> Snapshot:
    """A branch in which shared columns have the dataset's present names.

    Columns that were added since the branch was made may have the same ids in both.
    """
    common = {
        field_id(field)
        for version, schema in branch.schemas.items()
        if version in root.schemas and schema.equals(root.schemas[version], check_metadata=True)
        for field in schema
    }
    theirs = _with_dropped(root.snapshot.schema, root.schemas)
    names = {field_id(field): field.name for field in theirs if field_id(field) in common}
    new = {field.name: names.get(field_id(field), field.name) for field in snapshot.schema}
    if len({name.lower() for name in new.values()}) < len(new):
        return snapshot  # the branch has a column of its own under such a name
    return replace(
        snapshot,
        schema=pa.schema([field.with_name(new[field.name]) for field in snapshot.schema]),
        partition_by=tuple(new[name] for name in snapshot.partition_by),
    )


def _columns(condition: PredicateSet, schema: pa.Schema) -> list[str]:
    return sorted(condition.bind(schema).columns)


@dataclass(frozen=True, slots=True)
class Matches:
    """The rows of one stored file that are erased: their positions, and their identities."""

    positions: Positions = dataclass_field(default_factory=Positions)
    row_ids: Positions = dataclass_field(default_factory=Positions)

    def add(self, other: Matches) -> None:
        self.positions.update(other.positions)
        self.row_ids.update(other.row_ids)


@dataclass(frozen=True, slots=True)
class _Look:
    """Files, by id, that were not read yet under one meaning of the condition."""

    view: View
    files: Mapping[int, Identity]
    planned: ScanPlan
    position: str
    row: str


class Finder:
    """Finds the rows of a condition, and reads each file only once under each meaning of it.

    If another commit came first, it is called again, and only new files are read.
    """

    def __init__(self, where: Any, storage: Storage) -> None:
        self._where = where
        self._storage = storage
        self._known: dict[tuple[Identity, object], Matches] = {}
        self._looks: list[_Look] = []
        self._wanted: list[tuple[Identity, object]] = []

    def plan(self, reader: CatalogReader, members: Sequence[Member]) -> None:
        """Plan to read the files of the family that may have rows of the condition."""
        self._looks, self._wanted = [], []
        planned: set[tuple[Identity, object]] = set()
        for member in members:
            for view in views(member, members[0], self._where):
                files = {Identity.of(named.file): named.file for named in view.files(member)}
                keys = [(identity, view.meaning) for identity in files]
                self._wanted += keys
                new = [key for key in keys if key not in self._known and key not in planned]
                planned.update(new)
                if new:
                    some = [files[identity] for identity, _ in new]
                    ids = {file.id: identity for file, (identity, _) in zip(some, new)}
                    position, row = unused_names((POSITION, ROW), view.snapshot.schema.names)
                    found = plan(
                        reader,
                        view.snapshot,
                        read_uri=self._storage.location,
                        predicates=view.condition,
                        columns=[position.name, row.name],
                        metadata=(position, row),
                        files=some,
                    )
                    self._looks.append(_Look(view, ids, found, position.name, row.name))

    def find(self) -> dict[Identity, Matches]:
        """Read the planned files; return the matches of each file that has some.

        Raises:
            StorageError, CorruptDatasetError: a file cannot be read.
        """
        for look in self._looks:
            meaning = look.view.meaning
            new: dict[tuple[Identity, object], Matches]
            new = {(identity, meaning): Matches() for identity in look.files.values()}
            spec, tasks = look.planned.spec, look.planned.tasks
            for task, table in read_each(spec, tasks, self._storage):
                assert task.place is not None
                matches = new[look.files[task.place.id], meaning]
                matches.positions.update(positions_of(table.column(look.position)))
                matches.row_ids.update(positions_of(table.column(look.row)))
            self._known |= new
        found: dict[Identity, Matches] = {}
        for key in self._wanted:
            if self._known[key].positions:
                found.setdefault(key[0], Matches()).add(self._known[key])
        return found

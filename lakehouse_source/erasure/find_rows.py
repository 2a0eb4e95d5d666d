"""Verb. Finds the rows of stored files that a condition matches, in any version of the family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lakehouse_source.catalog import CatalogReader
from lakehouse_source.deletion.vector import Positions, positions_of
from lakehouse_source.erasure.condition import View, views
from lakehouse_source.erasure.family import Identity, Member
from lakehouse_source.parquet.reader import read_each
from lakehouse_source.read.plan import ScanPlan, plan
from lakehouse_source.schema.metadata_columns import POSITION, ROW, unused_names
from lakehouse_source.storage import Storage


@dataclass(frozen=True, slots=True)
class Matches:
    """The rows of one stored file that are erased: their positions, and their identities."""

    positions: Positions = field(default_factory=Positions)
    row_ids: Positions = field(default_factory=Positions)

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

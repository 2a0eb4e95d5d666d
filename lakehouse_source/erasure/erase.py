"""Verb. Erases rows: from every version that can be read, from storage, and from the catalog.

The rows are found, their files are rewritten without them, and one transaction records the new
files. Then the old files are deleted, with all other files that no version needs, and the free
pages of the catalog are overwritten. A crash before the transaction leaves the dataset unchanged; a
crash after it leaves files that the catalog knows as expired. In both cases the next erasure or
vacuum deletes the leftover files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from lakehouse_source.arguments import mapping
from lakehouse_source.catalog import Catalog, CatalogReader, CatalogTransaction
from lakehouse_source.catalog.base import PATIENCE_SECONDS, in_transaction, is_committed
from lakehouse_source.deletion import Positions
from lakehouse_source.erasure.find_rows import (
    Finder,
    Identity,
    Matches,
    Member,
    family,
    versions_of,
)
from lakehouse_source.erasure.rewrite import (
    Erased,
    Vectors,
    erase_texts,
    numbers_of,
    record,
    repeats,
    texts_of,
    write_others,
)
from lakehouse_source.errors import ErasureIncompleteError, InvalidOptionError, PlakeError
from lakehouse_source.failpoints import reach
from lakehouse_source.maintenance.dataset_folder import lock_branches
from lakehouse_source.maintenance.reports import ErasureReport, VacuumReport
from lakehouse_source.maintenance.vacuum import (
    CLONED,
    PENDING,
    REFUSED,
    UNDELETED,
    UNKNOWN,
    VacuumOptions,
    vacuum_dataset,
)
from lakehouse_source.model import FileMetadata
from lakehouse_source.parquet.names import own_name
from lakehouse_source.read.address import Address
from lakehouse_source.schema.fields import without_metadata
from lakehouse_source.schema.merge import dataframe_schema
from lakehouse_source.storage import Storage, split_shared
from lakehouse_source.write.commit.begin import begin_after
from lakehouse_source.write.commit.commit import abort
from lakehouse_source.write.commit.conflicts import Change
from lakehouse_source.write.commit.options import StagedWrite, WriteOptions
from lakehouse_source.write.rows import heartbeat_of, with_heartbeat

# How often files are read and written without the lock while other commits come first. After that
# this is done under the lock, so that other commits cannot starve an erasure.
_TRIES_WITHOUT_LOCK = 4
FOREIGN = ("refuse", "rewrite")
# The most paths that an error or a report names.
_NAMED = 10


def erase(
    catalog: Catalog,
    address: Address,
    where: Any,
    *,
    foreign: str = "refuse",
    commit_metadata: Mapping[str, Any] | None = None,
) -> ErasureReport:
    """Erase the rows of a condition from a dataset and its branches.

    Raises:
        StorageError, CorruptDatasetError: a file cannot be read or written; nothing was erased.
        CommitUnknownError: the catalog was lost during the commit. Erase again.
    """
    address.refuse_branch("Erase in the dataset, which erases in its branches too.")
    if where is None:
        raise InvalidOptionError(option="where", reason="is missing: say which rows are erased.")
    if foreign not in FOREIGN:
        raise InvalidOptionError(
            option="foreign", value=foreign, reason="is unknown.", known=FOREIGN
        )
    metadata = dict(mapping("commit_metadata", commit_metadata or {}))
    work = _Erasure(catalog, address, where, foreign, metadata)
    try:
        work.commit()
    except BaseException as failure:
        if work.staged is not None:
            abort(catalog, work.staged, work.written, failure=failure)
        raise
    reach("after COMMIT")
    if work.staged is not None and not work.versions:
        abort(catalog, work.staged, work.written)  # others removed the rows before
    options = VacuumOptions(of_any_age=True)
    vacuumed = vacuum_dataset(catalog, address, options, progress=False)
    _check_deleted(address, vacuumed)
    try:
        notes = catalog.database.overwrite_free_pages()
    except PlakeError as error:
        raise ErasureIncompleteError(
            dataset=address.uri, left=(f"free pages of the catalog: {error}",)
        ) from error
    return work.report(vacuumed, notes)


class _Outdated(Exception):
    """Another commit came first: the files have to be looked at again."""


class _Erasure:
    """What an erasure has found and written so far, over all attempts."""

    def __init__(
        self,
        catalog: Catalog,
        address: Address,
        where: Any,
        foreign: str,
        metadata: Mapping[str, Any],
    ) -> None:
        self.catalog = catalog
        self.address = address
        self.foreign = foreign
        self.metadata = metadata
        self.storage = Storage(address.location)
        self.finder = Finder(where, self.storage)
        self.texts = texts_of(where)
        self.numbers = numbers_of(where)
        self.staged: StagedWrite | None = None
        self.written: list[FileMetadata] = []
        self.versions: dict[int, int] = {}
        self._others: dict[Identity, tuple[Positions, FileMetadata | None]] = {}
        self._members: list[Member] = []
        self._erased = Erased({}, {}, {}, {})
        self._notes = 0
        self._shared: Mapping[str, str] = {}

    def commit(self) -> None:
        """Find the rows, rewrite the files, and record them; repeat if other commits came first."""
        for tries_left in reversed(range(_TRIES_WITHOUT_LOCK + 1)):
            with self.catalog.read() as reader:
                self._plan(reader)
            vectors = self._write()
            if not tries_left and self.staged is None:
                # The write must be registered before the dataset is locked below.
                self.staged = self._begin()
            try:
                self._record(vectors, under_lock=not tries_left)
                return
            except _Outdated:
                continue

    def _plan(self, reader: CatalogReader) -> None:
        self._members = family(self.catalog, reader, self.address)
        self._shared = reader.shared_paths(self._members[0].record.id)
        self.finder.plan(reader, self._members)

    def _write(self, *, beat: bool = True) -> Vectors:
        """Write the other rows of the files with erased rows."""
        found = self.finder.find()
        reach("rows to keep found")
        self._check_foreign(found)
        self._check_clones(found)
        vectors = Vectors(self._members, self.storage)
        if not found:
            self._erased = Erased({}, {}, {}, {})
            return vectors
        if self.staged is None:
            self.staged = self._begin()
        of_file = {
            Identity.of(one.file): (member, one.file)
            for member in reversed(self._members)
            for one in member.files
        }
        wanted: Iterable[Identity] = [
            one
            for one, matches in found.items()
            if one not in self._others or self._others[one][0] != matches.positions
        ]
        if beat:
            wanted = with_heartbeat(wanted, heartbeat_of(self.catalog, self.staged))
        for identity in wanted:
            member, file = of_file[identity]
            matches = found[identity]
            new = write_others(self.staged.spec, member.snapshot, file, matches, self.storage)
            self._others[identity] = (Positions(matches.positions), new)
            if new is not None:
                self.written.append(new)
        files = {one: self._others[one][1] for one in found}
        moved = vectors.moved(found, files, self.staged.write_id)
        self._erased = Erased(found, files, moved, vectors.touched(found))
        reach("rows written anew")
        return vectors

    def _begin(self) -> StagedWrite:
        newest = self._members[0].snapshot
        incoming = dataframe_schema(without_metadata(newest.schema))
        options = WriteOptions(row_change=Change.REWRITE)
        return begin_after(self.catalog, self.address, newest, incoming, options)

    def _record(self, vectors: Vectors, *, under_lock: bool) -> None:
        uri, key = self.address.uri, self.address.key
        write_id = "" if self.staged is None else self.staged.write_id

        def apply(tx: CatalogTransaction) -> dict[int, int]:
            mine = vectors
            dataset = tx.lock_dataset(key)
            if dataset is not None:
                lock_branches(tx, dataset)
            reach("dataset locked")
            now = family(self.catalog, tx, self.address)
            clones = tx.shared_paths(now[0].record.id)
            if (versions_of(now), clones) != (versions_of(self._members), self._shared):
                if not under_lock:
                    raise _Outdated
                self._plan(tx)
                mine = self._write(beat=False)
            ids = [one.record.id for one in self._members]
            self._notes = erase_texts(tx, ids, self.texts)
            return record(tx, self._members, self._erased, mine, write_id, self.metadata)

        done = is_committed(key, write_id) if write_id else None
        self.versions = in_transaction(
            self.catalog,
            uri,
            write_id,
            apply,
            carried_out=done,
            resolve=bool(write_id),
            patience_seconds=PATIENCE_SECONDS,
        )

    def _check_foreign(self, found: Mapping[Identity, Matches]) -> None:
        """Check that plake may rewrite the files: it never deletes what others wrote."""
        names = sorted({one.path for one in found if own_name(one.path) is None})
        if names and self.foreign != "rewrite":
            raise InvalidOptionError(
                option="foreign",
                value=self.foreign,
                reason=f"does not erase rows of {len(names):,} files that plake did not write: "
                f"{_listed(names)}. With foreign='rewrite' the dataset gets copies without the "
                "rows. The originals stay where they are, and you delete them.",
            )

    def _check_clones(self, found: Mapping[Identity, Matches]) -> None:
        """Check that no clone has the rows: its versions would keep them, in files of this one."""
        clones = sorted({self._shared[one.path] for one in found if one.path in self._shared})
        if clones:
            raise InvalidOptionError(
                option="where",
                reason=f"finds rows of {self.address.uri} that clones have too. Erase them there "
                f"first: {_listed(clones)}. Nothing was erased.",
            )

    def report(self, vacuumed: VacuumReport, notes: Iterable[str]) -> ErasureReport:
        """What was erased, and what may still hold the values."""
        erased, members = self._erased, self._members
        seen: set[Identity] = set()
        rows = 0
        for member in members:
            # Identities of rows are unique in a dataset, but branches may give the same identities.
            new = {Identity.of(one.file) for one in erased.of(member)} - seen
            ids = Positions()
            for identity in new:
                ids |= erased.found[identity].row_ids
            rows += len(ids)
            seen |= new
        left = [f"{one} (yours to delete)" for one in sorted({f.path for f in seen})
                if own_name(one) is None]  # fmt: skip
        left += [f"{self.storage.display(one)} (of the dataset that this one was cloned from: "
                 "erase the rows there too; if it was dropped, lake.vacuum(catalog) deletes the "
                 "file once no clone has it)" for one in sorted({f.path for f in seen})
                 if split_shared(one)[0] is not None]  # fmt: skip
        left += [
            f"{tally.files:,} files, such as {tally.paths[0]} ({tally.what})"
            for tally in vacuumed.left
            if tally.what in (PENDING, UNKNOWN, CLONED)
        ]
        left += self._in_schemas()
        left += self._in_names()
        return ErasureReport(
            dataset=self.address.uri,
            version=self.versions.get(members[0].record.id, members[0].record.current_version),
            rows=rows,
            files_rewritten=sum(1 for one in erased.files.values() if one is not None),
            files_removed=vacuumed.files_removed,
            notes_changed=self._notes,
            left=(*left, *notes),
        )

    def _in_schemas(self) -> Iterable[str]:
        """Where texts of the condition are kept outside rows: defaults, comments, properties."""
        for member in self._members:
            kept = {f"schema of version {version}": schema.serialize().to_pybytes()
                    for version, schema in member.schemas.items()}  # fmt: skip
            properties = member.record.properties
            kept["table properties"] = repr(dict(properties.table_properties)).encode()
            kept["property expire_rows"] = (properties.expire_rows or "").encode()
            for place, content in kept.items():
                if any(text.encode() in content for text in self.texts):
                    yield f"a text of the condition, in the {place} (a default, or a comment)"

    def _in_names(self) -> Iterable[str]:
        """Where literals of the condition are kept beside the dataset: namespaces, views, notes.

        Numbers are too common to be erased from notes of commits.
        """
        with self.catalog.read() as reader:
            for space in reader.names.namespaces():
                kept = {f"the properties of namespace {space.name}": repr(dict(space.properties))}
                for name in reader.names.view_names(space.name):
                    view = reader.names.view((space.name, name))
                    kept[f"view {space.name}.{name}"] = json.dumps(view, ensure_ascii=False)
                for place, content in kept.items():
                    if any(text in content for text in self.texts):
                        yield f"a text of the condition, in {place}"
            for member in self._members:
                for commit in reader.transactions(member.record.id):
                    if self.numbers and repeats(commit.metadata, self.numbers):
                        version = f"version {commit.version}"
                        yield f"a number of the condition, in the notes of {version} of the catalog"


def _check_deleted(address: Address, vacuumed: VacuumReport) -> None:
    """Check that every old file is gone."""
    failed = [
        tally
        for tally in vacuumed.left
        if tally.what == REFUSED or tally.what.startswith(UNDELETED)
    ]
    if failed:
        left = tuple(f"{path} ({tally.what})" for tally in failed for path in tally.paths)
        raise ErasureIncompleteError(dataset=address.uri, left=left)


def _listed(names: list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more:,} more" if more > 0 else "")

"""Verb. The files and rows that commits appended, for streams and readers that continue later.

Runs on the driver, as planning does: it reads the catalog and opens no data file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import pyarrow as pa

from lakehouse_source.catalog.sql.reader import CatalogReader
from lakehouse_source.errors import (
    CorruptDatasetError,
    InvalidOptionError,
    PlakeError,
    StreamChangeError,
    StreamDataLossError,
    StreamSchemaError,
    VersionNotFoundError,
)
from lakehouse_source.language import PredicateSet
from lakehouse_source.model import DeletionVector, FileRecord, ScanTask, TransactionRecord
from lakehouse_source.parquet.read_write_specs import Where
from lakehouse_source.parquet.reader import read_all
from lakehouse_source.read.address import Address
from lakehouse_source.read.candidates import candidates
from lakehouse_source.read.plan import ScanPlan, plan
from lakehouse_source.read.snapshot import Snapshot, parse_timestamp, resolve_columns
from lakehouse_source.schema.arrow_arrays import batches
from lakehouse_source.schema.fields import find_field, leaves, without_metadata
from lakehouse_source.storage import Storage
from lakehouse_source.streaming import (
    Admission,
    Effect,
    Limits,
    Position,
    Rules,
    admit,
    batch_start,
    effect_of,
)

_COMMITS_AT_ONCE = 500
_FILES_AT_ONCE = 1000


def identity_of(reader: CatalogReader, dataset_id: int) -> str:
    """The identity of a dataset; a later dataset at the same place has another one.

    It is the id of the write that made the first version, 1 or that of a clone. The history keeps
    that for ever: a schema begins there.
    """
    first = reader.write_id_of(dataset_id, 1)
    others = sorted(reader.schemas(dataset_id)) if first is None else ()
    for write_id in (first, *(reader.write_id_of(dataset_id, one) for one in others)):
        if write_id is not None:
            return write_id
    raise CorruptDatasetError(
        path=reader.redacted_url, reason=f"dataset {dataset_id} has no first version"
    )


def starting_position(
    reader: CatalogReader,
    newest: Snapshot,
    current: int,
    version: int | str | None,
    timestamp: datetime | str | None,
    fail_on_data_loss: bool = True,
) -> Position:
    """Where a new stream begins: by default with the rows of version `current`.

    A version is the first one whose rows are read; "latest" means what comes after `current`. A
    timestamp means the first version committed at or after that time. Without `fail_on_data_loss`
    an expired version is accepted too: a query that ended before its first batch asks again.
    """
    oldest = newest.dataset.oldest_version
    if version is not None and timestamp is not None:
        raise InvalidOptionError(
            option="startingVersion",
            value=version,
            reason="cannot be given together with startingTimestamp.",
        )
    if timestamp is not None:
        moment = parse_timestamp(timestamp, "startingTimestamp")
        # SQLite's clock counts whole milliseconds: a time of this one is not in the future.
        if moment - reader.now() >= timedelta(milliseconds=1):
            # The stream would also read rows that are committed before that time.
            raise InvalidOptionError(
                option="startingTimestamp",
                value=timestamp,
                reason="is in the future. To read only later commits, give "
                "startingVersion='latest'.",
            )
        found = reader.first_version_from(newest.dataset.id, moment)
        version = "latest" if found is None else max(found, oldest)
    if version is None:
        return Position(0, 0, current)
    if version == "latest":
        return Position(current + 1)
    assert isinstance(version, int)
    first = oldest if fail_on_data_loss else 1
    if not first <= version <= current + 1:
        raise VersionNotFoundError(
            dataset=newest.uri,
            requested=f"version {version}",
            first=oldest,
            last=current,
            expired=1 <= version < oldest,
        )
    return Position(version)


class AppendedFiles:
    """The files that a stream reads, at the moment of one snapshot of the catalog.

    `newest` is the dataset as it is now. Rows are read under the schema of `schema_version`: its
    `columns`, or all for None.
    """

    def __init__(
        self,
        reader: CatalogReader,
        newest: Snapshot,
        schema_version: int,
        columns: Sequence[str] | None,
        where: PredicateSet,
        rules: Rules,
    ) -> None:
        self._reader = reader
        self._dataset = newest.dataset
        self._uri = newest.uri
        self._snapshot = newest.in_schema(schema_version)
        self._where = where
        self._bound = where.bind(self._snapshot.schema)
        self._rules = rules
        self._depends_on = None if columns is None else {*columns, *self._bound.columns}
        self._schema_changes = {
            version
            for version, schema in newest.file_schemas.items()
            if version > schema_version and self._differs(schema)
        }
        self._file_schemas = newest.file_schemas
        self._ids = {leaf.id for leaf in leaves(self._snapshot.schema)}

    def _differs(self, schema: pa.Schema) -> bool:
        """Tell whether the stream would have other columns under a schema than it has."""
        mine = self._snapshot.schema
        names = self._depends_on
        if names is None:
            names = {*mine.names, *schema.names}
        return any(_seen(schema, name) != _seen(mine, name) for name in names)

    def _schema_error(self, version: int) -> StreamSchemaError:
        """The error of a version that has other columns than the stream.

        The error names the columns that the newest version lacks after a drop or a restore: a
        reloaded stream would lack these columns.
        """
        newest = {leaf.id for leaf in leaves(self._file_schemas[max(self._file_schemas)])}
        gone: dict[str, None] = {}
        for schema in (self._snapshot.schema, self._file_schemas[version]):
            for field in schema:
                chosen = self._depends_on is None or field.name in self._depends_on
                if chosen and newest.isdisjoint(leaf.id for leaf in leaves(pa.schema([field]))):
                    gone[field.name] = None
        return StreamSchemaError(dataset=self._uri, version=version, gone=tuple(gone))

    def _is_replaced(self, version: int) -> bool:
        """Tell whether the stream has none of the columns that a version had."""
        then = max(number for number in self._file_schemas if number <= version)
        return self._ids.isdisjoint(leaf.id for leaf in leaves(self._file_schemas[then]))

    # --- how far a batch gets

    def advance(self, start: Position, limits: Limits, through: int) -> tuple[Position, bool]:
        """The end of a batch that begins at `start`, and whether it has files to read.

        A batch ends before a commit that the stream cannot read. It reads the rest of a snapshot,
        or what versions up to `through` appended.

        Raises:
            StreamChangeError, StreamSchemaError, StreamDataLossError: the next commit cannot be
                read.
        """
        admission = Admission(limits)
        if start.snapshot is not None:
            self._check_snapshot(start.snapshot)
            position, full = self._admit(start, start.snapshot, None, admission)
            return position if full else Position(start.snapshot + 1), admission.files > 0
        position = start
        while position.version <= through:
            last, versions, refusal = self._readable(position, through)
            position, full = self._admit(position, last, versions, admission)
            if full:
                return position, True
            position = Position(last + 1)
            if refusal is not None:
                if not admission.files:
                    raise refusal
                break
        return position, admission.files > 0

    def _admit(
        self, start: Position, through: int, versions: Collection[int] | None, admission: Admission
    ) -> tuple[Position, bool]:
        """How far a batch gets in the files after `start`, and whether it is full."""
        position = start
        for files in self._pages(start, through):
            some = [file for file in files if versions is None or file.version in versions]
            position, full = admit(some, self._wanted(some), admission, position)
            if full:
                return position, True
        return position, False

    def _wanted(self, files: Sequence[FileRecord]) -> dict[int, bool]:
        """Which files may hold rows of the condition; empty: all."""
        if self._bound.always_true or not files:
            return {}
        found = candidates(self._reader, self._snapshot, self._bound, files)
        return {**{file.id: False for file in files}, **{one.file.id: True for one in found}}

    # --- what a batch reads

    def plan(self, start: Position, end: Position, columns: Sequence[str], uri: Where) -> ScanPlan:
        """The tasks of a batch that begins after `start` and ends with `end`.

        Raises:
            StreamChangeError, StreamSchemaError, StreamDataLossError: a commit between the two
                cannot be read.
        """
        start = batch_start(start, end)
        if start.snapshot is not None:
            files = self._of_snapshot(start, end)
            snapshot = replace(self._snapshot, version=start.snapshot)
        else:
            files = self._appended(start, end)
            # A vector of an appended file is of a later commit.
            snapshot = replace(self._snapshot, has_vectors=False)
        files = self._without_lost(files, start, uri)
        found = plan(
            self._reader,
            snapshot,
            read_uri=uri,
            predicates=self._where,
            columns=columns,
            files=files,
        )
        if start.snapshot is None or start.snapshot >= self._dataset.oldest_version:
            return found
        tasks = self._with_later_vectors(found.tasks, files, start.snapshot)
        return replace(found, tasks=tasks)

    def by_commit(
        self, start: Position, through: int, columns: Sequence[str], uri: Where
    ) -> tuple[Position, list[tuple[int, ScanPlan]]]:
        """The next commits that appended rows, each with its tasks and the position after it.

        Raises:
            StreamChangeError, StreamSchemaError, StreamDataLossError: the first commit cannot be
                read.
        """
        last, versions, refusal = self._readable(start, through)
        if refusal is not None and last < start.version:
            raise refusal
        plans = [
            (version, self.plan(Position(version), Position(version + 1), columns, uri))
            for version in sorted(versions)
        ]
        return Position(last + 1), plans

    def _of_snapshot(self, start: Position, end: Position) -> list[FileRecord]:
        assert start.snapshot is not None
        self._check_snapshot(start.snapshot)
        found = (file for page in self._pages(start, start.snapshot) for file in page)
        if end.snapshot is None:
            return list(found)
        return [file for file in found if (file.version, file.id) <= (end.version, end.file)]

    def _appended(self, start: Position, end: Position) -> list[FileRecord]:
        # Position(v) is the end of version v - 1.
        through = end.version if end.file else end.version - 1
        files: list[FileRecord] = []
        position = start
        while position.version <= through:
            last, versions, refusal = self._readable(position, through)
            if refusal is not None:
                raise refusal
            for page in self._pages(position, last):
                files += [file for file in page if file.version in versions]
            position = Position(last + 1)
        return [
            file
            for file in files
            if file.version < end.version or (file.version == end.version and file.id <= end.file)
        ]

    def _without_lost(
        self, files: list[FileRecord], start: Position, uri: Where
    ) -> list[FileRecord]:
        """The files, except those that vacuum deleted after their versions were expired."""
        oldest = self._dataset.oldest_version
        if (start.version if start.snapshot is None else start.snapshot) >= oldest:
            return files
        storage = Storage(uri)
        return [
            file for file in files if file.version >= oldest or storage.size(file.path) is not None
        ]

    def _with_later_vectors(
        self, tasks: Sequence[ScanTask], files: Sequence[FileRecord], version: int
    ) -> tuple[ScanTask, ...]:
        """The tasks of an expired version; a task without a vector gets the file's next vector.

        Vacuum may have removed the record of the version's vector. A later vector contains it.
        """
        later = self._later_vectors(files, version)
        by_path = {file.path: later.get(file.id) for file in files}
        return tuple(
            replace(task, deleted=by_path[task.path]) if task.deleted is None else task
            for task in tasks
        )

    def _later_vectors(
        self, files: Sequence[FileRecord], version: int
    ) -> dict[int, DeletionVector]:
        """The next vectors that files got after a version, by file id."""
        later: dict[int, DeletionVector] = {}
        for one in self._reader.vectors_since([file.id for file in files], version):
            later.setdefault(one.file_id, one.vector)
        return later

    # --- which commits can be read

    def _readable(self, start: Position, through: int) -> tuple[int, set[int], PlakeError | None]:
        """The next commits, up to the last that can be read before one that ends the stream.

        Returns the version of this last commit, the versions whose rows are read, and the error of
        the following commit, if that commit ends the stream.
        """
        last = start.version - 1
        versions: set[int] = set()
        oldest = self._dataset.oldest_version
        found = self._reader.transactions_since(self._dataset.id, last, _COMMITS_AT_ONCE)
        for commit in found:
            if last + 1 < min(commit.version, oldest):
                # A vacuum has removed commits from the history, and all files that they added.
                if self._rules.fail_on_data_loss:
                    lost = StreamDataLossError(dataset=self._uri, version=last + 1, oldest=oldest)
                    return last, versions, lost
                last = min(commit.version - 1, through)
            if commit.version > through:
                break
            refusal = self._refusal(commit)
            if refusal is not None:
                return last, versions, refusal
            last = commit.version
            if self._is_read(commit):
                versions.add(last)
        if last < start.version:
            raise CorruptDatasetError(
                path=self._reader.redacted_url,
                reason=f"the history of {self._uri} lacks version {start.version}",
            )
        return last, versions, None

    def _is_read(self, commit: TransactionRecord) -> bool:
        """Tell whether the stream reads rows of a commit."""
        return effect_of(commit) is Effect.APPENDS

    def _is_lost(self, commit: TransactionRecord) -> bool:
        """Tell whether rows of a commit may be gone."""
        is_read = effect_of(commit) is Effect.APPENDS
        return is_read and commit.version < self._dataset.oldest_version

    def _refusal(self, commit: TransactionRecord) -> PlakeError | None:
        """The error that a commit ends the stream with."""
        effect, oldest = effect_of(commit), self._dataset.oldest_version
        if commit.version in self._schema_changes:
            return self._schema_error(commit.version)
        if self._rules.refuses(effect):
            option = "ignoreDeletes" if effect is Effect.DELETES else "skipChangeCommits"
            return StreamChangeError(
                dataset=self._uri,
                version=commit.version,
                operation=commit.operation,
                option=option,
            )
        if self._is_read(commit) and self._is_replaced(commit.version):
            return StreamSchemaError(dataset=self._uri, version=commit.version, replaced=True)
        if self._is_lost(commit) and self._rules.fail_on_data_loss:
            return StreamDataLossError(dataset=self._uri, version=commit.version, oldest=oldest)
        return None

    def _check_snapshot(self, version: int) -> None:
        """Check that the whole snapshot can be read, under the schema of the stream."""
        oldest = self._dataset.oldest_version
        if version < oldest and self._rules.fail_on_data_loss:
            raise StreamDataLossError(dataset=self._uri, version=version, oldest=oldest)
        for changed in sorted(self._schema_changes):
            if changed <= version:
                raise self._schema_error(changed)
        if self._is_replaced(version):
            raise StreamSchemaError(dataset=self._uri, version=version, replaced=True)

    def _pages(self, start: Position, through: int) -> Iterator[list[FileRecord]]:
        """The files after a position: those of its snapshot, or of all versions up to `through`."""
        version, file_id = start.version, start.file
        while version <= through:
            files = self._reader.files_following(
                self._dataset.id, version, file_id, through, _FILES_AT_ONCE, live_at=start.snapshot
            )
            if files:
                yield files
            if len(files) < _FILES_AT_ONCE:
                return
            version, file_id = files[-1].version, files[-1].id


def _seen(schema: pa.Schema, name: str) -> object:
    """What a stream depends on in a column: its type and nullability, by field ids."""
    field = find_field(name, schema)
    if field is None:
        return None
    bare = without_metadata(pa.schema([field])).field(0)
    return bare, tuple(leaf.id for leaf in leaves(pa.schema([field])))


# --- The rows that commits appended, as record batches.


def read_changes(
    address: Address,
    since_version: int,
    where: PredicateSet,
    columns: Sequence[str] | None,
    rules: Rules,
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows that each commit after a version appended, with the commit's version.

    Commits are read up to the version that is the newest at the first call, under its schema.

    Raises:
        StreamChangeError: a commit did not only add rows.
        StreamSchemaError: a commit added rows, and the schema was replaced since then.
        StreamDataLossError: a version was expired.
    """
    with address.open() as catalog, catalog.read() as reader:
        newest = address.snapshot(catalog, reader)
    through = newest.version
    if not 0 <= since_version <= through:
        raise VersionNotFoundError(
            dataset=address.uri,
            requested=f"version {since_version}",
            first=newest.dataset.oldest_version,
            last=through,
        )
    position = Position(since_version + 1)
    storage = Storage(address.location)
    wanted = resolve_columns(newest.schema, columns)
    while position.version <= through:
        with address.open() as catalog, catalog.read() as reader:
            appended = AppendedFiles(reader, newest, newest.schema_version, columns, where, rules)
            position, plans = appended.by_commit(position, through, wanted, address.location)
        for version, found in plans:
            for table in read_all(found.spec, found.tasks, storage):
                for batch in batches(table):
                    yield version, batch

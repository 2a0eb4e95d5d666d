"""Verb. The change feed: what each commit of a range changed, row by row.

Nothing is written for it. The rows are where the commits left them: in the files that they added
and removed, and under the deletion vectors that they wrote.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.arguments import column_names, flag
from lakehouse_source.catalog import Catalog
from lakehouse_source.catalog.sql.reader import CatalogReader
from lakehouse_source.deletion import Positions, as_array, positions_of
from lakehouse_source.errors import InvalidOptionError, SchemaMismatchError, VersionNotFoundError
from lakehouse_source.language import PredicateSet
from lakehouse_source.model import ScanTask, SeenVersion, TransactionRecord
from lakehouse_source.parquet.reader import read_all
from lakehouse_source.read.address import Address
from lakehouse_source.read.feed_plan import (
    Changed,
    FeedPlan,
    Kind,
    changed_rows,
    commits_that_change_rows,
    last_versions,
    plan_changes,
)
from lakehouse_source.read.snapshot import (
    Snapshot,
    checked_version,
    no_such_reference,
    parse_timestamp,
    resolve_columns,
    version_number,
)
from lakehouse_source.schema.fields import (
    ROW,
    VERSION,
    find_field,
    with_metadata_columns,
    without_metadata,
)
from lakehouse_source.schema.variant_storage import as_json
from lakehouse_source.storage import Storage
from lakehouse_source.streaming import Effect, effect_of

# A version by its number or tag, or the time of a commit.
Bound: TypeAlias = int | str | datetime


@dataclass(frozen=True, slots=True)
class After:
    """The first version that a consumer has not read."""

    consumer: str


CHANGE_TYPE = pa.field("_change_type", pa.string(), nullable=False)
COMMIT_VERSION = pa.field("_commit_version", pa.int64(), nullable=False)
COMMIT_TIMESTAMP = pa.field("_commit_timestamp", pa.timestamp("us", "UTC"), nullable=False)
FEED_COLUMNS = (CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP)
# Columns of a row that are told where they are named: its identity, and the version that changed
# it last, which `_commit_version` means everywhere else.
LAST_CHANGED = VERSION.with_name("_last_changed_version")
OF_ROWS = (ROW, LAST_CHANGED)

# Commits of few rows are told in one table, up to so many rows and bytes.
_ROWS_TOGETHER = 16_384
_BYTES_TOGETHER = 4 * 2**20

# How a feed without images of updates tells of them.
_WITHOUT_IMAGES = {Kind.UPDATE_PREIMAGE: Kind.DELETE, Kind.UPDATE_POSTIMAGE: Kind.INSERT}


@dataclass(frozen=True, slots=True)
class FeedCost:
    """What a feed has to read. Prints as a line.

    `bytes_read` counts the row groups that hold rows to tell of, compressed; a row group counts
    for each commit that needs it.
    """

    dataset: str
    start: int
    end: int
    commits: int
    files_read: int
    row_groups_read: int
    bytes_read: int

    def __str__(self) -> str:
        return (
            f"changes of {self.dataset} from version {self.start} to {self.end}: "
            f"{self.commits:,} commits changed rows; {self.files_read:,} files, "
            f"{self.row_groups_read:,} row groups and {self.bytes_read:,} bytes to read"
        )


@dataclass(frozen=True, slots=True)
class FeedBounds:
    """The first and the last version of a feed, its columns, and the dataset's at the last.

    `write_id` is that of the last version.
    """

    start: int
    end: int
    columns: tuple[str, ...]
    dataset_schema: pa.Schema
    write_id: str | None


@dataclass(frozen=True, slots=True)
class Feed:
    """A feed that is planned. It can be pickled, and reads its parts without the catalog.

    `columns` are those of the dataset that it gives, `schema` has those of the feed too, and
    `dataset_schema` is that of the dataset at version `end`. The changes of `plan` are told as
    `per_commit` made them, at `timestamps`.
    """

    dataset: str
    start: int
    end: int
    columns: tuple[str, ...]
    schema: pa.Schema
    dataset_schema: pa.Schema
    plan: FeedPlan
    per_commit: FeedPlan
    timestamps: Mapping[int, datetime]
    updates: bool

    def without_parts(self) -> Feed:
        """What tasks need beside the parts that they read."""
        plan = replace(self.plan, parts=())
        return replace(self, plan=plan, per_commit=plan)

    def tables(self, parts: Sequence[Changed], storage: Storage) -> Iterator[pa.Table]:
        """The changes of some parts of `plan`."""
        some: list[tuple[Kind, int, pa.Table]] = []
        count = size = 0
        for kind, version, rows in self._told(parts, storage):
            count, size = count + rows.num_rows, size + rows.nbytes
            alike = some and kind is some[0][0] and rows.schema.equals(some[0][2].schema)
            if some and (not alike or count > _ROWS_TOGETHER or size > _BYTES_TOGETHER):
                yield self._table(some)
                some, count, size = [], rows.num_rows, rows.nbytes
            some.append((kind, version, rows))
        if some:
            yield self._table(some)

    def _told(
        self, parts: Sequence[Changed], storage: Storage
    ) -> Iterator[tuple[Kind, int, pa.Table]]:
        """Rows, what the feed tells of them, and the version of the commit."""
        versions = None if self.plan is self.per_commit else _NetVersions(self, storage)
        for part, kind, rows in changed_rows(self.plan, parts, storage):
            stated = kind if self.updates else _WITHOUT_IMAGES.get(kind, kind)
            for version, some in [(part.version, rows)] if versions is None else versions(rows):
                yield stated, version, some

    def _table(self, some: Sequence[tuple[Kind, int, pa.Table]]) -> pa.Table:
        """Rows of commits, of which the feed tells the same. What takes long is done once."""
        rows = [one for *_, one in some]
        together = rows[0] if len(rows) == 1 else pa.concat_tables(rows).combine_chunks()
        kinds = pa.repeat(pa.scalar(some[0][0].value, CHANGE_TYPE.type), together.num_rows)
        own = [
            pa.concat_arrays(
                [
                    pa.repeat(pa.scalar(value, of.type), one.num_rows)
                    for value, one in zip(each, rows)
                ]
            )
            for of, each in (
                (COMMIT_VERSION, [version for _, version, _ in some]),
                (COMMIT_TIMESTAMP, [self.timestamps[version] for _, version, _ in some]),
            )
        ]
        values = _columns(together, self.columns, self.plan.hidden)
        return pa.Table.from_arrays([*values, kinds, *own], schema=self.schema)


class Changes:
    """The changes of a range of versions. Each method plans and reads on its own.

    >>> result = dataset.delete("carrier = 'UA' AND month = 1")
    >>> changes = dataset.refresh().changes(2)
    >>> changes.to_table().select(["carrier", "_change_type", "_commit_version"]).to_pylist()
    [{'carrier': 'UA', '_change_type': 'delete', '_commit_version': 2}]
    >>> dataset.changes(1).count_rows()
    {'insert': 4, 'delete': 1, 'update_preimage': 0, 'update_postimage': 0}
    >>> dataset.changes(1, columns=["miles"]).schema.names
    ['miles', '_change_type', '_commit_version', '_commit_timestamp']
    """

    def __init__(
        self,
        address: Address,
        start: Bound | After,
        end: Bound | SeenVersion | None,
        where: Any,
        columns: Sequence[str] | None,
        *,
        net: bool,
        updates: bool,
    ) -> None:
        self._address = address
        self._start = start
        self._end = end
        self._where = PredicateSet.of(where)
        self._columns = column_names("columns", columns)
        self._net = flag("net", net)
        self._updates = flag("updates", updates)

    def __repr__(self) -> str:
        return f"Changes({self._address.uri!r}, {self._start!r}, {self._end!r})"

    @property
    def schema(self) -> pa.Schema:
        """The columns of the feed: those of the last version, then those of the feed."""
        with self._address.open() as catalog, catalog.read() as reader:
            newest = self._address.snapshot(catalog, reader)
            last = self._last(catalog, reader, newest)
            return feed_schema(last.schema, self._columns)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The changes, commit by commit; the images of an update follow one another.

        The images before the updates of one commit are held in memory.

        Raises:
            VersionNotFoundError: a version of the range does not exist, or was expired.
            InvalidPredicateError, SchemaMismatchError

        >>> sum(batch.num_rows for batch in dataset.changes(1).to_batches())
        4
        """
        feed = self.planned()
        storage = Storage(feed.plan.spec.uri)
        for table in feed.tables(feed.plan.parts, storage):
            yield from table.to_batches()

    def to_table(self) -> pa.Table:
        """The changes as an Arrow table.

        >>> dataset.changes(1).to_table().num_rows
        4
        """
        batches = list(self.to_batches())
        return pa.Table.from_batches(batches, schema=batches[0].schema if batches else self.schema)

    def count_rows(self) -> dict[str, int]:
        """How many rows the feed tells of, by the kind of the change.

        >>> dataset.changes(1, where="month = 1").count_rows()["insert"]
        2
        """
        counts = {kind.value: 0 for kind in Kind}
        for batch in self.to_batches():
            if batch.num_rows:
                counts[batch.column(batch.num_columns - 3)[0].as_py()] += batch.num_rows
        return counts

    def explain(self) -> FeedCost:
        """How many files, row groups and bytes have to be read; opens no data file.

        Deletion vectors that the catalog has no copy of are read.

        >>> print(dataset.changes(1).explain())
        changes of file:///data/flights from version 1 to 1: 1 commits changed rows; 3 files, ...
        """
        feed = self.planned()
        tasks: list[ScanTask] = []
        for part in feed.plan.parts:
            tasks += [*part.before.tasks, *part.after.tasks]
        return FeedCost(
            dataset=feed.dataset,
            start=feed.start,
            end=feed.end,
            commits=len(feed.per_commit.parts),
            files_read=len({task.path for task in tasks}),
            row_groups_read=sum(len(task.row_groups or ()) for task in tasks),
            bytes_read=sum(task.byte_count for task in tasks),
        )

    def to_duckdb(self, connection: Any, name: str = "plake_changes") -> Any:
        """The changes as a view of a DuckDB connection; returns the relation.

        >>> import duckdb
        >>> connection = duckdb.connect()
        >>> changes = dataset.changes(1).to_duckdb(connection, "fed")
        >>> connection.sql("SELECT _change_type, count(*) FROM fed GROUP BY 1").fetchall()
        [('insert', 4)]
        """
        from lakehouse_source.engines.duckdb import ENGINE

        connection.register(name, ENGINE.rows(self.to_table()))
        return connection.table(name)

    def to_polars(self) -> Any:
        """The changes as a Polars LazyFrame.

        >>> dataset.changes(1).to_polars().select("miles").max().collect().item()
        1416
        """
        import polars

        return polars.LazyFrame(as_json(self.to_table()))

    def to_datafusion(self, context: Any, name: str = "plake_changes") -> Any:
        """The changes as a table of a DataFusion session; returns its data frame.

        >>> from datafusion import SessionContext
        >>> dataset.changes(1).to_datafusion(SessionContext()).count()
        4
        """
        return context.from_arrow(as_json(self.to_table()), name)

    # --- planning

    def bounds(self) -> FeedBounds:
        """The range that is read, and the columns; plans nothing.

        Raises:
            VersionNotFoundError, InvalidOptionError, InvalidPredicateError, SchemaMismatchError

        >>> dataset.changes("2020-01-01").bounds().start
        1
        """
        with self._address.open() as catalog, catalog.read() as reader:
            start, snapshot, _ = self._range(catalog, reader)
            self._where.bind(snapshot.schema)
            names = feed_schema(snapshot.schema, self._columns).names[: -len(FEED_COLUMNS)]
            shown, last = snapshot.schema, snapshot.seen
            return FeedBounds(start, last.version, tuple(names), shown, last.write_id)

    def planned(self) -> Feed:
        """The feed, planned: what it reads and where; opens no data file.

        >>> feed = dataset.changes(1).planned()
        >>> [part.version for part in feed.plan.parts]
        [1]
        """
        with self._address.open() as catalog, catalog.read() as reader:
            start, snapshot, commits = self._range(catalog, reader)
            where, uri = self._where, self._address.location
            schema = feed_schema(snapshot.schema, self._columns)
            columns = tuple(schema.names[: -len(FEED_COLUMNS)])
            own = [name for name in columns if name in snapshot.schema.names]
            each = [(one.version - 1, one.version) for one in commits]
            needed = self._net or not own or len(own) < len(columns)
            per_commit = plan = plan_changes(
                reader, snapshot, each, own, where, uri, with_identities=needed
            )
            if self._net and commits:
                net = [(start - 1, snapshot.version)]
                plan = plan_changes(reader, snapshot, net, own, where, uri)
            return Feed(
                dataset=snapshot.uri,
                start=start,
                end=snapshot.version,
                columns=columns,
                schema=schema,
                dataset_schema=snapshot.schema,
                plan=plan,
                per_commit=per_commit,
                timestamps={one.version: one.timestamp for one in commits},
                updates=self._updates,
            )

    def _range(
        self, catalog: Catalog, reader: CatalogReader
    ) -> tuple[int, Snapshot, list[TransactionRecord]]:
        """The first version, the last one, and the commits between them that changed rows."""
        newest = self._address.snapshot(catalog, reader)
        last = self._last(catalog, reader, newest)
        end, start = last.version, self._first(reader, newest)
        if start > newest.version + 1:
            raise VersionNotFoundError(
                dataset=newest.uri,
                requested=f"version {start}",
                first=newest.dataset.oldest_version,
                last=newest.version,
            )
        if not 1 <= start <= end + 1:
            raise InvalidOptionError(
                option="start",
                value=start,
                reason=f"is not a version from 1 to {end}, the last one of the range.",
            )
        commits = commits_that_change_rows(reader, newest.dataset.id, start, end)
        _check_not_expired(newest, start, commits)
        return start, last, commits

    def _last(self, catalog: Catalog, reader: CatalogReader, newest: Snapshot) -> Snapshot:
        end = self._end
        if not isinstance(end, SeenVersion):
            end = _version_of(reader, newest, end, "end")
        return self._address.snapshot(catalog, reader, end)

    def _first(self, reader: CatalogReader, newest: Snapshot) -> int:
        if not isinstance(self._start, After):
            return _version_of(reader, newest, self._start, "start")
        name = self._start.consumer
        found = reader.consumers(newest.dataset.id).get(name)
        if found is None:
            raise no_such_reference(newest.dataset, newest.uri, f"consumer {name!r}")
        return found.version + 1


def feed_schema(schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    """The columns of a feed: those that are chosen of the dataset's, then those of the feed.

    Raises:
        SchemaMismatchError: there is no such column, or the dataset has one of the feed's names.
    """
    named = with_metadata_columns(schema, columns, OF_ROWS)
    names = resolve_columns(named, columns)
    chosen = without_metadata(pa.schema([named.field(name) for name in names]))
    for own in FEED_COLUMNS:
        if find_field(own.name, chosen) is not None:
            raise SchemaMismatchError(
                column=own.name,
                reason="is a column of the dataset and one of the feed",
                hint="Name the others: columns=[...] in Python, or the option columns in Spark: "
                "SELECT * FROM t WITH (readChangeFeed = 'true', startingVersion = '1', "
                "columns = 'a, b').",
            )
    return pa.schema([*(one.with_nullable(True) for one in chosen), *FEED_COLUMNS])


class _NetVersions:
    """Divides rows by the last commit that took them away or brought them."""

    def __init__(self, feed: Feed, storage: Storage) -> None:
        ids = Positions()
        for part in feed.plan.parts:
            for tasks in (part.before.identities, part.after.identities):
                for table in read_all(feed.plan.identity_spec, tasks, storage):
                    ids |= positions_of(table.column(0))
        self._versions = list(last_versions(feed.per_commit, ids, storage))

    def __call__(self, rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        ids = rows.column(rows.num_columns - 2)
        present = positions_of(ids)
        for version, those in self._versions:
            among = present & those
            if among:
                present -= among
                yield version, rows.filter(pc.is_in(ids, value_set=as_array(among)))
        assert not present, "a commit that the feed does not know changed these rows"


def _columns(rows: pa.Table, names: Sequence[str], hidden: Sequence[str]) -> list[pa.ChunkedArray]:
    """Columns of the dataset, or of `OF_ROWS`, which the rows have under the names `hidden`."""
    own = rows.column_names
    places = {name: place for place, name in enumerate(own) if name not in hidden}
    for field, name in zip(OF_ROWS, hidden):
        if name in own:
            places.setdefault(field.name, own.index(name))
    return [rows.column(places[name]) for name in names]


def _version_of(reader: CatalogReader, newest: Snapshot, bound: Bound | None, option: str) -> int:
    """The version that a number, a tag or a time means; None: the newest.

    A time means the first commit at or after it where the range starts, and the last one at or
    before it where the range ends.
    """
    dataset = newest.dataset
    if bound is None:
        return newest.version
    if isinstance(bound, str):
        number = version_number(bound)
        tagged = reader.tags(dataset.id).get(bound) if number is None else number
        bound = parse_timestamp(bound, option) if tagged is None else tagged
    if not isinstance(bound, datetime):
        return checked_version(bound)
    moment = parse_timestamp(bound, option)
    if option == "start":
        found = reader.first_version_from(dataset.id, moment)
        return newest.version + 1 if found is None else found
    found = reader.version_at(dataset.id, moment)
    if found is None:
        raise VersionNotFoundError(
            dataset=newest.uri,
            requested=f"version at or before {moment.isoformat()}",
            first=dataset.oldest_version,
            last=newest.version,
        )
    return found


def _check_not_expired(newest: Snapshot, start: int, commits: Sequence[TransactionRecord]) -> None:
    """Check that the rows are there which the commits took away, of the version before too."""
    oldest = newest.dataset.oldest_version
    if start == oldest and (start == 1 or not commits or _only_appends(commits[0], start)):
        return
    if start <= oldest:
        raise expired_changes(newest, start)


def expired_changes(newest: Snapshot, start: int) -> VersionNotFoundError:
    """The error that the changes of a version cannot be told any more."""
    return VersionNotFoundError(
        dataset=newest.uri,
        requested=f"the changes of version {start}",
        first=newest.dataset.oldest_version + 1,
        last=newest.version,
        expired=True,
    )


def _only_appends(first: TransactionRecord, start: int) -> bool:
    return first.version > start or effect_of(first) is Effect.APPENDS

"""Door. Stream reads: first the rows of one version, then what each commit appended, or changed.

Spark keeps one process for the reader of a query, and asks it for the end of the next batch and for
its partitions. Another process, which does not know these, pickles the reader for the tasks: so the
partition of a task has everything that the task needs. Spark 4.1 has no limits for Python sources:
there, each batch reads all new rows, and `availableNow` runs one batch. If this batch repeats one
after a crash, a second run reads the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from lakehouse_source.catalog.sql.reader import CatalogReader
from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.language import PredicateSet
from lakehouse_source.read.address import Address
from lakehouse_source.read.changes import AppendedFiles, identity_of, starting_position
from lakehouse_source.read.feed import FEED_COLUMNS, Feed, feed_schema
from lakehouse_source.read.feed_plan import Changed
from lakehouse_source.read.feed_stream import ChangedRows, starting_change
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.schema.fields import ROW, with_metadata_columns
from lakehouse_source.spark.protocol.vocabulary import Changes
from lakehouse_source.spark.reading.changes_read import PARTITION_BYTES, changed_batches, packed
from lakehouse_source.spark.reading.frame_options import moment_of
from lakehouse_source.spark.reading.task_read import (
    StreamPartition,
    StreamTaskReader,
    decoded_share,
    pack,
)
from lakehouse_source.spark.session.options import (
    CHANGES_STREAM_OPTIONS,
    STREAM_READ_OPTIONS,
    STREAM_READING,
    Options,
    reads_changes,
    refuse_stream,
)
from lakehouse_source.spark.session.secrets import catalog_of_query
from lakehouse_source.spark.session.workers import freeze_gc
from lakehouse_source.spark.types import columns_for, narrowed_structs, spark_schema
from lakehouse_source.streaming import (
    MAX_FILES_PER_TRIGGER,
    Limits,
    Position,
    Rules,
    position_of,
)

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit

# A batch without rows costs little. It keeps the checkpoint near the newest version, out of reach
# of expiry, even if no commit appends rows for the stream.
VERSIONS_WITHOUT_ROWS = 100

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadMaxFiles,
        SupportsTriggerAvailableNow,
    )

    HAS_LIMITS = True
    _Bases: tuple[type, ...] = (DataSourceStreamReader, SupportsTriggerAvailableNow)
except ImportError:  # Spark 4.1
    HAS_LIMITS = False
    _Bases = (DataSourceStreamReader,)


@dataclass(frozen=True, slots=True)
class StreamRequest:
    """What a stream reads, and how. Its columns are those of `schema_version`."""

    path: str
    catalog: str | None
    storage_options: Mapping[str, str]
    schema_version: int
    columns: tuple[str, ...] | None
    where: str | None
    split_size_bytes: int | None
    limits: Limits
    rules: Rules
    changes: bool = False
    starting_version: int | str | None = None
    starting_timestamp: datetime | None = None
    updates: bool = True


@dataclass(frozen=True, slots=True)
class StreamedChanges:
    """The columns of a stream of changes, and the version of their schema."""

    schema_version: int
    columns: tuple[str, ...] | None
    schema: StructType

    @classmethod
    def of(cls, given: Options, newest: Snapshot) -> StreamedChanges:
        """The stream that the options describe.

        Raises:
            InvalidOptionError, SchemaMismatchError, InvalidPredicateError
        """
        columns = given.names("columns")
        shown = feed_schema(newest.schema, columns)
        PredicateSet.of(given.text("where")).bind(newest.schema)
        named = with_metadata_columns(newest.schema, columns, (ROW,))
        # The metadata of the dataset's own fields has the names of Spark's own types.
        own = [named.field(name).with_nullable(True) for name in shown.names[: -len(FEED_COLUMNS)]]
        schema = spark_schema(pa.schema([*own, *FEED_COLUMNS]))
        return cls(newest.schema_version, columns, schema)


def stream_request(
    options: Mapping[str, str],
    storage: Mapping[str, str],
    schema_version: int,
    columns: tuple[str, ...] | None,
) -> StreamRequest:
    """The options of `spark.readStream`, checked.

    Raises:
        InvalidOptionError
    """
    changes = reads_changes(options)
    known = CHANGES_STREAM_OPTIONS if changes else STREAM_READ_OPTIONS
    given = Options(options, known, STREAM_READING)
    refuse_stream(given.path())
    version: int | str | None = given.text("startingVersion")
    timestamp = moment_of(given, "startingTimestamp")
    excluded = changes and given.flag(Changes.STARTING_INCLUSIVE) is False
    if version is not None and str(version).lower() != "latest":
        version = given.number("startingVersion")
        if version is not None and excluded:
            version += 1
    if timestamp is not None and excluded:
        timestamp += timedelta(microseconds=1)
    max_files, max_bytes = given.number("maxFilesPerTrigger"), given.size("maxBytesPerTrigger")
    if max_files is not None and max_files < 1:
        raise InvalidOptionError(
            option="maxFilesPerTrigger", value=max_files, reason="must be at least 1."
        )
    if max_files is None and max_bytes is None:
        max_files = MAX_FILES_PER_TRIGGER
    loss = given.flag("failOnDataLoss")
    return StreamRequest(
        path=given.path(),
        catalog=given.text("catalog"),
        storage_options=storage,
        schema_version=schema_version,
        columns=columns,
        where=given.text("where"),
        split_size_bytes=given.size("splitSize"),
        limits=Limits(max_files, max_bytes),
        rules=Rules(
            skip_change_commits=bool(given.flag("skipChangeCommits")),
            ignore_deletes=bool(given.flag("ignoreDeletes")),
            fail_on_data_loss=True if loss is None else loss,
        ),
        changes=changes,
        starting_version=version.lower() if isinstance(version, str) else version,
        starting_timestamp=timestamp,
        updates=not changes or given.flag(Changes.COMPUTE_UPDATES) is not False,
    )


@dataclass(frozen=True)
class ChangesPartition(InputPartition):
    """Parts of a feed for one Spark partition. `feed` has no other parts."""

    feed: Feed
    parts: tuple[Changed, ...]

    def batches(self, schema: StructType) -> Iterator[pa.RecordBatch]:
        return changed_batches(self.feed, self.parts, schema, ())


@dataclass
class _Progress:
    """What the reader remembers about its query.

    `initial` is where a new query begins; `is_after_newest`: this position is after the newest
    version of that time, and no batch has begun there yet. `newest` is the newest version if Spark
    asked for the end before the beginning. `end` is where the last batch ended, and `through` the
    last version of a query that ends by itself. Between `looked_from` and `looked_to` nothing can
    be read: this is looked up once, for the history in which a write made the last of them.
    """

    initial: Position | None = None
    is_after_newest: bool = False
    newest: int | None = None
    end: Position | None = None
    through: int | None = None
    looked_from: Position | None = None
    looked_to: Position | None = None
    looked_write: str | None = None


@dataclass(frozen=True, slots=True)
class _Now:
    """The dataset as the catalog has it now."""

    request: StreamRequest
    address: Address
    reader: CatalogReader
    newest: Snapshot
    identity: str

    @property
    def schema(self) -> pa.Schema:
        """The schema under which the stream reads."""
        return self.newest.file_schemas[self.request.schema_version]

    def start(self, current: int) -> Position:
        """Where a new query begins if the newest version is `current`."""
        request = self.request
        version, timestamp = request.starting_version, request.starting_timestamp
        fails = request.rules.fail_on_data_loss
        begin = starting_change if request.changes else starting_position
        return begin(self.reader, self.newest, current, version, timestamp, fails)

    def position(self, offset: Mapping[str, Any]) -> Position:
        uri, newest, changes = self.address.uri, self.newest.seen, self.request.changes
        return position_of(offset, self.identity, uri, newest, self.write_id, changes)

    def offset(self, position: Position) -> dict[str, Any]:
        write_id = self.write_id(position.reached)
        return position.to_json(self.identity, write_id, self.request.changes)

    def write_id(self, version: int) -> str | None:
        """The write that made a version; None: the history does not have it."""
        if version == self.newest.version:
            return self.newest.write_id
        return self.reader.write_id_of(self.newest.dataset.id, version)

    def source(self) -> AppendedFiles:
        """What the stream reads; `ChangedRows` for a stream of changes."""
        request = self.request
        where = PredicateSet.of(request.where)
        of_all = self.reader, self.newest, request.schema_version, request.columns, where
        if not request.changes:
            return AppendedFiles(*of_all, request.rules)
        return ChangedRows(*of_all, request.rules.fail_on_data_loss, self.address.location)


class PlakeStreamReader(*_Bases):  # type: ignore[misc]
    """Reads a stream, on the driver. Pickled for the tasks it becomes a `StreamTaskReader`."""

    def __init__(self, request: StreamRequest, schema: StructType) -> None:
        self.request = request
        self.schema = schema
        self._address: Address | None = None
        self._progress = _Progress()

    def __reduce__(self) -> tuple[Any, ...]:
        return (StreamTaskReader, (self.schema,))

    @contextmanager
    def _now(self) -> Iterator[_Now]:
        request = self.request
        if self._address is None:
            made = Address(request.path, catalog_of_query(request.catalog), request.storage_options)
            # With a server, all batches use the same connection.
            self._address = made.kept_open()
        address = self._address
        with address.open() as catalog, catalog.read() as reader:
            newest = address.snapshot(catalog, reader)
            identity = identity_of(reader, newest.dataset.id)
            yield _Now(request, address, reader, newest, identity)

    # --- where batches begin and end

    def initialOffset(self) -> dict[str, Any]:
        progress = self._progress
        with self._now() as now:
            if progress.initial is None:
                seen = (progress.through, progress.newest, now.newest.version)
                current = next(version for version in seen if version is not None)
                progress.initial = now.start(current)
                progress.is_after_newest = progress.initial.version > current
            return now.offset(progress.initial)

    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        freeze_gc()
        progress = self._progress
        with self._now() as now:
            position = progress.end if start is None else now.position(start)
            if position is None:
                # Spark 4.1 gives no start, and calls this before it asks for the initial offset. So
                # it is not known whether this is a new query: `partitions` checks the commits.
                progress.newest = now.newest.version
                return now.offset(Position(progress.newest + 1))
            if progress.is_after_newest and position == progress.initial:
                # An empty batch, which records in the checkpoint where the query began. Without it,
                # a restart would begin after all later commits.
                progress.is_after_newest = False
                return now.offset(position)
            everything = start is None or (HAS_LIMITS and isinstance(limit, ReadAllAvailable))
            limits = Limits() if everything else self.request.limits
            return now.offset(self._advance(now, position, limits))

    def _advance(self, now: _Now, start: Position, limits: Limits) -> Position:
        """The end of the batch that begins at `start`.

        `start` itself if there is nothing to read.
        """
        progress = self._progress
        through = now.newest.version if progress.through is None else progress.through
        begin = start
        to = progress.looked_to
        same = progress.looked_from == start
        if to is not None and same and now.write_id(to.reached) == progress.looked_write:
            begin = to
        if begin.snapshot is None and begin.version > through:
            return start
        end, has_rows = now.source().advance(begin, limits, through)
        # A batch does not read both a snapshot and later commits, see `batch_start`.
        stale = end.version - start.version >= VERSIONS_WITHOUT_ROWS
        if has_rows or stale or start.snapshot is not None:
            return end
        progress.looked_from, progress.looked_to = start, end
        progress.looked_write = now.write_id(end.reached)
        return start

    def getDefaultReadLimit(self) -> ReadLimit:
        # Spark handles one limit at a time. It returns this limit, which means "as the options
        # say".
        return ReadMaxFiles(self.request.limits.max_files or MAX_FILES_PER_TRIGGER)

    def prepareForTriggerAvailableNow(self) -> None:
        with self._now() as now:
            self._progress.through = now.newest.version

    # --- what a batch reads

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        freeze_gc()
        with self._now() as now:
            first, last = now.position(start), now.position(end)
            self._progress.end = last
            if first == last:
                return []
            source = now.source()
            if isinstance(source, ChangedRows):
                return self._parts(source.feed(first, last, self.schema.names))
            columns = columns_for(self.schema, now.schema)
            found = source.plan(first, last, columns, now.address.location)
            spec = replace(found.spec, narrowed=narrowed_structs(self.schema, now.schema))
        packed = pack(found.tasks, self.request.split_size_bytes, decoded_share(spec))
        return [StreamPartition(spec, one.tasks) for one in packed]

    def _parts(self, feed: Feed) -> list[InputPartition]:
        parts = packed(feed.plan.parts, self.request.split_size_bytes or PARTITION_BYTES)
        bare = replace(feed.without_parts(), updates=self.request.updates)
        return [ChangesPartition(bare, some) for some in parts]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return StreamTaskReader(self.schema).read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: a finished batch leaves nothing to clean up."""

    def stop(self) -> None:
        self._address = None

"""Door. The change feed as a frame: `option("readChangeFeed", True)`.

The driver plans the feed. Executors read it: each commit of which rows may have been taken away
and brought again by one task, all others file by file.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.language import PredicateSet
from lakehouse_source.language.row_filter import matching_mask
from lakehouse_source.model import SeenVersion
from lakehouse_source.read.address import Address
from lakehouse_source.read.feed import FEED_COLUMNS, OF_ROWS, Bound, Changes, Feed, FeedBounds
from lakehouse_source.read.feed_plan import Changed, Kind, Side
from lakehouse_source.read.snapshot import version_number
from lakehouse_source.schema.fields import FIELD_ID, with_metadata_columns
from lakehouse_source.spark.protocol.vocabulary import Changes as Names
from lakehouse_source.spark.reading.frame_options import moment_of
from lakehouse_source.spark.reading.pushdown import Pushdown, decode_supported
from lakehouse_source.spark.reading.task_read import decimals_to_longs, exact_batches
from lakehouse_source.spark.session.options import CHANGES_OPTIONS, Options
from lakehouse_source.spark.session.secrets import address_in, catalog_of_query
from lakehouse_source.spark.session.workers import freeze_gc
from lakehouse_source.spark.types import batch_schema, spark_schema
from lakehouse_source.storage import Storage

# Bytes of one partition, as Spark's own file scans have them.
PARTITION_BYTES = 128 * 1024 * 1024

_NET = "netChanges"
# Values of `Names.DEDUPLICATION`, as Spark has them; the first is the default.
_MODES = ("dropCarryovers", "none", _NET)
_MICROSECOND = timedelta(microseconds=1)
# The columns of the feed as conditions find them: by field ids.
_TOLD = pa.schema(
    [field.with_metadata({FIELD_ID: str(at)}) for at, field in enumerate(FEED_COLUMNS, 1)]
)


@dataclass(frozen=True, slots=True)
class ChangesRequest:
    """Which changes a frame reads. Both versions are known when the frame is made.

    `net` and `updates` are those of `Changes`.
    """

    path: str
    catalog: str | None
    storage_options: dict[str, str]
    start: int
    end: int
    net: bool
    updates: bool
    columns: tuple[str, ...]
    where: str | None
    split_size_bytes: int | None
    dataset_schema: pa.Schema
    write_id: str | None  # of the last version

    @classmethod
    def of(cls, options: dict[str, str], storage: dict[str, str]) -> ChangesRequest:
        """The request that options name.

        Raises:
            InvalidOptionError, DatasetNotFoundError, VersionNotFoundError, InvalidPredicateError
        """
        given = Options(options, CHANGES_OPTIONS, "reading changes of")
        address = address_in(given, storage)
        columns, where = given.names("columns"), given.text("where")
        net, updates = is_net(given), given.flag(Names.COMPUTE_UPDATES) is not False
        found = _range(given, address, columns)
        PredicateSet.of(where).bind(found.dataset_schema)
        return cls(
            path=given.path(),
            catalog=given.text("catalog"),
            storage_options=storage,
            start=found.start,
            end=found.end,
            net=net,
            updates=updates,
            columns=found.columns,
            where=where,
            split_size_bytes=given.size("splitSize"),
            dataset_schema=found.dataset_schema,
            write_id=found.write_id,
        )

    def planned(self, where: PredicateSet, columns: Sequence[str]) -> Feed:
        """The feed of this request, of rows that satisfy a further condition."""
        address = Address(self.path, catalog_of_query(self.catalog), self.storage_options)
        where = PredicateSet.of(self.where) & where
        end = SeenVersion(self.end, self.write_id)
        return Changes(
            address, self.start, end, where, columns, net=self.net, updates=self.updates
        ).planned()

    def schema(self) -> StructType:
        """The columns of the frame."""
        named = with_metadata_columns(self.dataset_schema, self.columns, OF_ROWS)
        chosen = [named.field(name).with_nullable(True) for name in self.columns]
        return spark_schema(pa.schema([*chosen, *FEED_COLUMNS]))


def is_net(given: Options) -> bool:
    """Tell whether option `deduplicationMode` asks for what is left of each row.

    The feed has no rows that were carried over, so `none` and `dropCarryovers` are the same.

    Raises:
        InvalidOptionError: the value is none of Spark's.
    """
    mode = given.text(Names.DEDUPLICATION) or _MODES[0]
    if mode.lower() not in [one.lower() for one in _MODES]:
        raise InvalidOptionError(
            option=Names.DEDUPLICATION, value=mode, reason="is not a mode.", known=_MODES
        )
    return mode.lower() == _NET.lower()


def _range(given: Options, address: Address, columns: Sequence[str] | None) -> FeedBounds:
    """The range that options name."""
    start, end = _bound(given, "starting"), _bound(given, "ending")
    if start is None:
        raise InvalidOptionError(
            option=Names.STARTING_VERSION,
            reason="is missing: name the first version whose changes are read, or "
            "startingTimestamp.",
        )
    if isinstance(start, datetime) and isinstance(end, datetime) and start > end:
        raise _reversed(Names.ENDING_TIMESTAMP, end, start)
    found = _bounds(address, start, end, columns)
    first, last = found.start, found.end
    if first > last and not isinstance(start, datetime) and isinstance(end, (int, str)):
        raise _reversed(Names.ENDING_VERSION, end, start)
    # Bounds that are no part of the range: moments have been moved, versions are here.
    skipped = not isinstance(start, datetime) and not _is_included(given, "starting")
    cut = isinstance(end, (int, str)) and not _is_included(given, "ending")
    if first + skipped > last - cut:
        return replace(found, start=last + 1)
    if cut:
        found = _bounds(address, first, last - 1, columns)
    return replace(found, start=first + skipped)


def _bounds(
    address: Address, start: Bound, end: Bound | None, columns: Sequence[str] | None
) -> FeedBounds:
    """The versions that bounds mean. Errors name the options of the frame."""
    try:
        return Changes(address, start, end, None, columns, net=False, updates=True).bounds()
    except InvalidOptionError as error:
        option = {"start": Names.STARTING_VERSION, "end": Names.ENDING_VERSION}.get(error.option)
        if option is None:
            raise
        named = isinstance(start if error.option == "start" else end, str)
        reason = "is neither a version nor a tag of the dataset." if named else error.reason
        raise InvalidOptionError(option=option, value=error.value, reason=reason) from None


def _bound(given: Options, which: str) -> int | str | datetime | None:
    """A version by its number or tag, or a moment. An excluded moment is moved past itself."""
    version, time = given.text(f"{which}Version"), given.text(f"{which}Timestamp")
    if version is not None and time is not None:
        raise InvalidOptionError(
            option=f"{which}Version",
            value=version,
            reason=f"cannot be given together with {which}Timestamp.",
        )
    moment = moment_of(given, f"{which}Timestamp")
    if moment is not None:
        if _is_included(given, which):
            return moment
        return moment + _MICROSECOND if which == "starting" else moment - _MICROSECOND
    number = None if version is None else version_number(version)
    return version if number is None else number


def _is_included(given: Options, which: str) -> bool:
    return given.flag(f"{which}BoundInclusive") is not False


def _reversed(option: str, end: Any, start: Any) -> InvalidOptionError:
    return InvalidOptionError(
        option=option, value=str(end), reason=f"is before the beginning of the range, {start}."
    )


class ChangesReader(DataSourceReader):
    """Reads the feed of one frame. Aggregates are left to Spark."""

    def __init__(self, request: ChangesRequest, pushdown: Pushdown) -> None:
        self.request = request
        self.pushdown = pushdown
        self._feed: Feed | None = None

    def feed(self) -> Feed:
        """The feed, planned once."""
        if self._feed is None:
            request, pushed = self.request, self.pushdown
            # A column that the frame does not have may be called as one of the feed.
            shown = [field for field in request.dataset_schema if field.name in request.columns]
            condition = decode_supported(pushed.condition, pa.schema(shown))
            own = {*request.columns, *pushed.metadata}
            names = [name for name in pushed.schema.names if name in own]
            feed = request.planned(condition, names)
            if pushed.condition and not request.net:
                of_feed = decode_supported(pushed.condition, _TOLD)
                feed = _that_may_match(feed, of_feed)
            self._feed = feed
        return self._feed

    def __reduce__(self) -> tuple[Any, ...]:
        # Net changes are one partition, which needs the whole plan.
        feed = self.feed() if self.request.net else self.feed().without_parts()
        pushed = self.pushdown
        return TaskChangesReader, (feed, pushed.schema, pushed.unscaled)

    def partitions(self) -> list[InputPartition]:
        if self.pushdown.aggregate is not None:
            return [InputPartition(None)]  # no answer: Spark has to scan
        parts = self.feed().plan.parts
        if self.request.net:
            return [InputPartition(pickle.dumps(parts))] if parts else []
        size = self.request.split_size_bytes or PARTITION_BYTES
        return [InputPartition(pickle.dumps(some)) for some in packed(parts, size)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        pushed = self.pushdown
        return TaskChangesReader(self.feed(), pushed.schema, pushed.unscaled).read(partition)


def _that_may_match(feed: Feed, condition: PredicateSet) -> Feed:
    """The feed without commits, and without rows on one side of them, of which the kind, the
    version or the time does not satisfy a condition on the columns of the feed.
    """
    bound = condition.bind(_TOLD)
    parts = []
    for part in feed.plan.parts:
        rows = pa.table(
            [
                [kind.value for kind in Kind],
                [part.version] * len(Kind),
                [feed.timestamps[part.version]] * len(Kind),
            ],
            schema=_TOLD,
        )
        matching = set(rows.column(0).filter(matching_mask(rows, bound)).to_pylist())
        before, after = part.before, part.after
        if not part.is_paired:  # all of one side are deletes, and of the other inserts
            before = before if Kind.DELETE.value in matching else Side()
            after = after if Kind.INSERT.value in matching else Side()
        if matching and (before.tasks or after.tasks):
            parts.append(Changed(part.version, before, after))
    plan = replace(feed.plan, parts=tuple(parts))
    return replace(feed, plan=plan, per_commit=plan)


class TaskChangesReader(DataSourceReader):
    """Runs on executors, with what the partitions hold."""

    def __init__(self, feed: Feed, schema: StructType, unscaled: tuple[str, ...]) -> None:
        self.feed = feed
        self.schema = schema
        self.unscaled = unscaled

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        freeze_gc()
        # Where there is nothing to read, Spark makes a partition of its own.
        if partition is None or not isinstance(partition.value, bytes):
            return
        yield from changed_batches(
            self.feed, pickle.loads(partition.value), self.schema, self.unscaled
        )


def changed_batches(
    feed: Feed, parts: Sequence[Changed], schema: StructType, unscaled: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The changes of some parts of a feed, as batches of exactly Spark's schema."""
    freeze_gc()
    target = batch_schema(schema)
    storage = Storage(feed.plan.spec.uri)
    for table in feed.tables(parts, storage):
        for batch in exact_batches(table, target):
            yield decimals_to_longs(batch, unscaled)


def packed(parts: Sequence[Changed], size_bytes: int) -> Iterator[tuple[Changed, ...]]:
    """The parts in portions of about so many bytes."""
    portion: list[Changed] = []
    size = 0
    for part in parts:
        for piece in [part] if part.is_paired else _pieces(part):
            here = sum(task.byte_count for task in (*piece.before.tasks, *piece.after.tasks))
            if portion and size + here > size_bytes:
                yield tuple(portion)
                portion, size = [], 0
            portion.append(piece)
            size += here
    if portion:
        yield tuple(portion)


def _pieces(part: Changed) -> Iterator[Changed]:
    """A part without counterparts, file by file."""
    for task in part.before.tasks:
        yield Changed(part.version, Side((task,)), Side())
    for task in part.after.tasks:
        yield Changed(part.version, Side(), Side((task,)))

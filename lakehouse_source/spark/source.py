"""Door. The data source that Spark knows as `plake`.

Spark makes an instance from options, and says later what it wants of it: the columns of a frame,
a reader, a stream, a writer. The first of these calls chooses who answers, and only then are the
modules for it imported: each kind of Spark's Python workers starts with those that it needs. What
a frame reads is resolved when Spark makes it (`load()`), so every scan of the frame reads the same
version, even both sides of a self join. A write resolves nothing but the write.
"""

from __future__ import annotations

import base64
import json
import pickle
from collections.abc import Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql.datasource import (
    CaseInsensitiveDict,
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
)

from lakehouse_source.errors import InvalidOptionError, PlakeError
from lakehouse_source.spark.protocol.messages import decode_request, encode_response, for_pickle
from lakehouse_source.spark.protocol.vocabulary import (
    Entry,
    Envelope,
    Message,
    Option,
    ScanResponse,
)
from lakehouse_source.spark.session.workers import freeze_gc

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class Frame(Protocol):
    """What Spark reads through an instance: rows, changes, an answer, or the work of tasks."""

    @property
    def version(self) -> int | None:
        """The version of the rows, for the planner extension."""

    def schema(self) -> StructType: ...
    def reader(self, schema: StructType) -> DataSourceReader: ...
    def stream_reader(self, schema: StructType) -> DataSourceStreamReader: ...

    def pinned(self) -> Frame:
        """The frame for other processes, in which it reads what it reads here."""


class PlakeDataSource(DataSource):
    """`spark.read.format("plake")` and `df.write.format("plake")`."""

    def __init__(self, options: dict[str, str], own: Mapping[str, Any] | None = None) -> None:
        super().__init__(options)
        _refuse_own(self.options)
        # Options of the planner extension, which only `FromExtension` gives.
        self._own = dict(own or {})
        self._packed: bytes | None = None
        self._chosen: Frame | None = None
        # Executors get this object too, so from here on it holds no password.
        if "catalog" in self.options:
            from lakehouse_source.spark.session.secrets import conceal

            self.options["catalog"] = conceal(self.options["catalog"]) or ""
        if Message.CLAIMS in self._own:
            from lakehouse_source.catalog.committer import claim

            claim(**self._own[Message.CLAIMS])
        if Message.TRANSACTION in self._own:
            _route(self.options, self._own)

    @property
    def _frame(self) -> Frame:
        """What is read, chosen once."""
        if self._chosen is None and self._packed is not None:
            found = pickle.loads(self._packed)
            if isinstance(found, PlakeError):
                raise found
            self._chosen = found
        elif self._chosen is None:
            self._chosen = _frame_of(self.options, self._own)
            freeze_gc()
        return self._chosen

    def __getstate__(self) -> dict[str, Any]:
        found: Frame | PlakeError
        try:
            found = self._frame.pinned()
            version, location = found.version, getattr(found, "location", None)
            computed = getattr(self._frame, "computed", {})
            primary_key = getattr(self._frame, "primary_key", ())
            partition_by = getattr(self._frame, "partition_by", None)
        except PlakeError as error:
            # Told when the frame is read: an error of a pickle would hide why.
            found, version, location, computed, primary_key = error, None, None, {}, ()
            partition_by = None
        # The planner extension takes these from the envelope (`RowStatements.java` and others).
        told = {
            ScanResponse.VERSION: version,
            ScanResponse.LOCATION: location,
            ScanResponse.COMPUTED: computed,
            ScanResponse.PRIMARY_KEY: list(primary_key),
            ScanResponse.PARTITION_BY: partition_by,
            ScanResponse.REPEATS: getattr(found, "repeats", False),
        }
        envelope = for_pickle(encode_response(told))
        return {"envelope": envelope, "options": self.options, "packed": pickle.dumps(found)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Tasks get the instance with the reader, and use nothing of it.
        self.options, self._packed = state["options"], state["packed"]
        self._own, self._chosen = {}, None

    @classmethod
    def name(cls) -> str:
        return "plake"

    def schema(self) -> StructType:
        return self._frame.schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        return self._frame.reader(schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return self._frame.stream_reader(schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from lakehouse_source.spark.writing.begin_write import batch_writer

        freeze_gc()
        return batch_writer(self.options, self._own, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        from lakehouse_source.spark.writing.begin_write import stream_writer

        freeze_gc()
        return stream_writer(self.options, self._own, schema, overwrite)


class FromExtension(DataSource):
    """The entry of the planner extension: makes the data source with the extension's own options.

    Spark finds the data source `plake` by its name, and users choose its options. This class has no
    name that Spark knows: only the extension's Java uses it (`PlakeSource.java`), after it has
    checked with its seal that it set these options itself. A user who can name a Python class to
    Spark can run code anyway.
    """

    def __new__(cls, options: dict[str, str]) -> PlakeDataSource:  # type: ignore[misc]
        own = [options.pop(name) for name in list(options) if name.lower() == Envelope.NAME]
        return PlakeDataSource(options, decode_request(own[0]) if own else None)

    @classmethod
    def name(cls) -> str:
        return PlakeDataSource.name()


class Maker(DataSource, DataSourceReader):
    """Makes the data source in the worker that plans its reads: Spark would start one more for it.

    Only the extension's Java uses it (`PlakeSource.java`), as it uses `FromExtension`.
    """

    def __init__(self, given: str) -> None:
        self._given: dict[str, Any] = json.loads(base64.b64decode(given))

    def __reduce__(self) -> tuple[Any, ...]:
        return str, ()  # pickled for tasks, of which there are none

    @classmethod
    def name(cls) -> str:
        return PlakeDataSource.name()

    def reader(self, schema: StructType) -> DataSourceReader:
        return self

    def partitions(self) -> list[InputPartition]:
        from lakehouse_source.spark.reading.task_read import ResponsePartition

        kind: Any = FromExtension if self._given[Entry.SEALED] else PlakeDataSource
        made: PlakeDataSource = kind(CaseInsensitiveDict(self._given[Entry.OPTIONS]))
        told = {Entry.SCHEMA: made.schema().json()} if self._given[Entry.SCHEMA] else {}
        told[Entry.INSTANCE] = base64.b64encode(pickle.dumps(made)).decode()
        return [ResponsePartition(told)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        raise NotImplementedError


def _frame_of(options: Mapping[str, str], own: Mapping[str, Any]) -> Frame:
    """What is read by the options of an instance.

    Raises:
        InvalidOptionError: the value of `readChangeFeed` is neither true nor false.
    """
    from lakehouse_source.spark.session.options import reads_changes

    if Message.TASKS in own:
        from lakehouse_source.spark.tables.procedures import TasksFrame

        return TasksFrame(own[Message.TASKS], options)
    for key in (Message.REQUEST, Message.COMMAND):
        if key in own:
            from lakehouse_source.spark.tables.commands import ResponseFrame

            body = {**own[key], Message.TRANSACTION: own.get(Message.TRANSACTION)}
            return ResponseFrame(body, options, may_change=key == Message.COMMAND)
    if reads_changes(options):
        from lakehouse_source.spark.reading.changes_frame import ChangesFrame

        return ChangesFrame(options)
    from lakehouse_source.spark.reading.rows_frame import RowsFrame

    return RowsFrame(options)


def _route(options: MutableMapping[str, str], own: Mapping[str, Any]) -> None:
    """In a transaction of the session, let a path mean the branch of its table.

    Raises:
        PlakeError: the dataset cannot be in the transaction.
    """
    from lakehouse_source.spark.session.options import on_branch, reads_changes
    from lakehouse_source.spark.session.secrets import split_storage_options
    from lakehouse_source.spark.session.transaction import routed

    asks = Message.REQUEST in own or Message.COMMAND in own or Message.TASKS in own
    if asks or "path" not in options or reads_changes(options):
        return
    options["path"] = routed(
        own[Message.TRANSACTION],
        on_branch(options["path"], options.pop("branch", None)),
        options.get("catalog"),
        split_storage_options(options)[1],
        version=options.get("version") or options.get("versionasof"),
        time=options.get("timestampasof"),
    )


def _refuse_own(options: MutableMapping[str, str]) -> None:
    """Refuse options of the planner extension, except its mark of a view, which Python ignores."""
    for name in [name for name in options if name.lower().startswith(Option.OWN)]:
        if name.lower() not in (Option.VIEW, Option.SEAL):
            raise InvalidOptionError(
                option=name, reason="is set by plake's planner extension only. Leave it out."
            )
        del options[name]

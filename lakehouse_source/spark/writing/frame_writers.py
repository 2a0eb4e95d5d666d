"""Door. Writes of batches and streams: executors write files, and the driver commits them."""

from __future__ import annotations

import pickle
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from lakehouse_source.errors import InvalidOptionError, SchemaMismatchError
from lakehouse_source.model import FileMetadata
from lakehouse_source.parquet.read_write_specs import WriteSpec
from lakehouse_source.schema.variant_paths import paths_of
from lakehouse_source.spark.protocol.vocabulary import Setting
from lakehouse_source.spark.session.options import PARTITION_MODES
from lakehouse_source.spark.session.workers import acknowledge, freeze_gc

if TYPE_CHECKING:
    from lakehouse_source.read.address import Address
    from lakehouse_source.write.commit.options import StagedWrite, WriteOptions


# --- What the settings of a session say of a write, as the tasks of the write see them.
#
# Spark copies the settings of the session to the local properties of every task of a query
# (`SQLExecution.withSQLConfPropagated`), with and without the planner extension. What an overwrite
# replaces therefore depends on no rule of the extension. A write inside of another query, as in
# `foreachBatch`, also sees what that query's session has and its own does not: Spark adds settings,
# and removes none. Then only the extension knows, and without it the write is refused.


PARTITION_MODE = "spark.sql.sources.partitionOverwriteMode"
_IS_OF_OUTER_QUERY = "?"  # maybe, as far as a task can see
_QUERY, _OUTERMOST_QUERY = "spark.sql.execution.id", "spark.sql.execution.root.id"
_ALWAYS_SET = "spark.master"  # a task that lacks it did not get the session's settings


def seen_in_task() -> dict[str, str] | None:
    """The settings of the session that say something of a write; None: Spark does not tell."""
    context = TaskContext.get()
    properties = getattr(context, "_localProperties", None)
    if not properties or _ALWAYS_SET not in properties:
        return None
    found = {
        name: value
        for name, value in properties.items()
        if name == PARTITION_MODE or name.startswith(Setting.STATEMENT)
    }
    is_inner = properties.get(_QUERY) != properties.get(_OUTERMOST_QUERY)
    if is_inner and found.get(PARTITION_MODE, "static").lower() != "static":
        found[PARTITION_MODE] = _IS_OF_OUTER_QUERY
    return found


@dataclass(frozen=True, slots=True)
class Followed:
    """What a write already knows.

    `known`: the options of the write, in lower case; None: the extension told all settings.
    `partitions`: the session decides what the overwrite replaces, because nothing else says it.
    `session_mode`: what the extension says that the session sets; None: it did not say.
    """

    known: Collection[str] | None
    partitions: bool = False
    session_mode: str | None = None

    def applied(self, staged: StagedWrite, seen: Iterable[Mapping[str, str] | None]) -> StagedWrite:
        """The write as the session wants it. `seen`: what each task saw.

        Raises:
            InvalidOptionError: the session's setting is not known, or is one that this write
                cannot follow any more.
        """
        tasks = list(seen)
        settings = {name: one[name] for one in tasks if one is not None for name in one}
        for name in settings.keys() - {PARTITION_MODE}:
            option = name[len(Setting.STATEMENT) :]
            if self.known is not None and option.lower() not in self.known:
                raise InvalidOptionError(
                    option=name,
                    value=settings[name],
                    reason="is a setting of the session, of which only the planner extension tells "
                    "a write, and it did not: call lakehouse_source.spark.enable(spark), or give "
                    f"the option {option} to the write.",
                )
        if not self.partitions:
            return staged
        mode: str | None = settings.get(PARTITION_MODE, "static")
        if mode == _IS_OF_OUTER_QUERY:
            mode = self.session_mode
        if not tasks or None in tasks or mode is None:
            raise InvalidOptionError(
                option="partitionOverwriteMode",
                reason=f"is not given, and Spark did not tell what the session's {PARTITION_MODE} "
                "is. Give the option: with 'static' all rows are replaced, with 'dynamic' the "
                "partitions of the new rows.",
                known=PARTITION_MODES,
            )
        options = replace(staged.options, dynamic_partitions=mode.lower() == "dynamic")
        return replace(staged, options=options)


# --- A write as its tasks know it, and the files that they wrote in messages to the driver.


@dataclass(frozen=True, slots=True)
class BegunWrite:
    """A write on its way through tasks, which import only what `spec` needs."""

    spec: WriteSpec
    packed: bytes = field(repr=False)  # with the options of the store, which may be secret

    @classmethod
    def of(cls, staged: StagedWrite) -> BegunWrite:
        return cls(staged.spec, pickle.dumps(staged))

    @property
    def staged(self) -> StagedWrite:
        """The write, for its commit."""
        found: StagedWrite = pickle.loads(self.packed)
        return found


def of_task(spec: WriteSpec) -> WriteSpec:
    """How the files of this task are written."""
    context = TaskContext.get()
    return spec if context is None else spec.of_task(context.partitionId())


def shortened(files: Iterable[FileMetadata]) -> tuple[FileMetadata, ...]:
    """Files for a message, without what the driver does not need, or knows.

    Of the schema only columns with paths of VARIANT stay, which the file may have chosen.
    """
    return tuple(
        replace(
            file,
            schema=pa.schema([field for field in file.schema if paths_of(field)]),
            parquet_metadata=None,
        )
        for file in files
    )


def restored(files: Iterable[FileMetadata], schema: pa.Schema) -> list[FileMetadata]:
    """The files of messages, with the schema of the write."""
    found = []
    for file in files:
        own = {field.name: field for field in file.schema}
        fields = [own.get(field.name, field) for field in schema] if own else schema
        found.append(replace(file, schema=pa.schema(fields) if own else schema))
    return found


# --- Batch writes: executors write files, and the driver commits them as one version.
#
# Each method of a writer runs in a process of its own, which imports only what the method needs.


@dataclass(frozen=True)
class FilesWritten(WriterCommitMessage):
    """The files of one task attempt. Only files in a message can be committed."""

    files: tuple[FileMetadata, ...]
    session: Mapping[str, str] | None  # `seen_in_task`


class PlakeWriter(DataSourceArrowWriter):
    """Writes one frame. Spark pickles it: `commit` and `abort` each run in a new process.

    `catalog` is concealed.
    """

    def __init__(
        self, staged: StagedWrite, path: str, catalog: str | None, session: Followed
    ) -> None:
        self.begun = BegunWrite.of(staged)
        self.path = path
        self.catalog = catalog
        self.session = session

    @property
    def staged(self) -> StagedWrite:
        return self.begun.staged

    @property
    def spec(self) -> WriteSpec:
        """How new files are written."""
        return self.begun.spec

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        acknowledge()
        from lakehouse_source.parquet.writer import write_files

        freeze_gc()
        return FilesWritten(shortened(write_files(of_task(self.spec), iterator)), seen_in_task())

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        from lakehouse_source.spark.writing.on_driver import address_of, commit_in

        freeze_gc()
        written = (message for message in messages if isinstance(message, FilesWritten))
        staged = self.session.applied(self.staged, (one.session for one in written))
        with address_of(self.path, self.catalog).open() as catalog:
            commit_in(catalog, staged, self._files(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        from lakehouse_source.spark.writing.on_driver import abort, address_of

        freeze_gc()
        with address_of(self.path, self.catalog).open() as catalog:
            abort(catalog, self.staged, self._files(messages))

    def _files(self, messages: Sequence[WriterCommitMessage | None]) -> list[FileMetadata]:
        """The files of all tasks. The message of a task that failed is None."""
        written = [message for message in messages if isinstance(message, FilesWritten)]
        files = (file for message in written for file in message.files)
        return restored(files, self.spec.file_schema)


# --- Stream writes: each micro-batch becomes exactly one version.
#
# Spark makes a new writer for each step of a batch: on the driver to send it to the tasks, to
# commit, and to abort. The messages of the tasks carry what the steps share. An idempotency pair
# identifies a batch in the catalog: the id of the query, which its checkpoint keeps, and the number
# of the batch. Spark repeats a batch after a crash between the commit here and its own commit log.
# Then the catalog has the pair already, the files of the repeated batch are deleted, and nothing is
# committed.


# Spark sets this property in each task of a streaming query. Its value survives restarts.
QUERY_ID = "sql.streaming.queryId"


@dataclass(frozen=True)
class BatchWritten(WriterCommitMessage):
    """The files of one task attempt, and the write that they belong to.

    Only files in a message can be committed.
    """

    query_id: str
    begun: BegunWrite
    files: tuple[FileMetadata, ...]


@dataclass(frozen=True)
class BatchRefused(WriterCommitMessage):
    """Why the rows of one task attempt do not fit the dataset. Its files are deleted.

    The commit raises the error. If the task raised it, Spark would run the task again, in vain, and
    report an error of a task.
    """

    begun: BegunWrite
    error: SchemaMismatchError


class PlakeStreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of one query, on the driver.

    Spark pickles this writer once for the tasks of each batch, which turns it into a `TaskWriter`.
    The write of the batch begins then, on the version that is the newest at that time.
    """

    def __init__(
        self,
        path: str,
        catalog: str | None,
        storage_options: Mapping[str, str],
        incoming: pa.Schema,
        options: WriteOptions,
    ) -> None:
        self.path = path
        self.catalog = catalog
        self.storage_options = storage_options
        self.incoming = incoming
        self.options = options
        self._begun: BegunWrite | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        # Spark pickles the writer twice in the same process.
        if self._begun is None:
            from lakehouse_source.spark.writing.on_driver import begin

            address = self._address()
            with address.open(create=True) as catalog:
                staged = begin(catalog, address, self.incoming, self.options)
            self._begun = BegunWrite.of(staged)
        return (TaskWriter, (self._begun,))

    def _address(self) -> Address:
        from lakehouse_source.spark.writing.on_driver import address_of

        return address_of(self.path, self.catalog, self.storage_options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        raise AssertionError("tasks write with a TaskWriter")

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        from lakehouse_source.spark.writing.on_driver import commit_in

        freeze_gc()
        for message in messages:
            if isinstance(message, BatchRefused):
                raise message.error
        written = _written(messages)
        if not written:
            self._commit_no_message()
            return
        first = written[0]
        staged, files = first.begun.staged, _files(written)
        with self._address().open() as catalog:
            if not files and staged.base_version and staged.options.mode == "append":
                # An empty batch makes no version, except that the first batch gives the dataset its
                # schema.
                with catalog.write() as tx:
                    tx.finish_pending(staged.write_id)
                return
            options = replace(
                staged.options,
                txn_app_id=first.query_id,
                txn_version=batchId,
                committer={**staged.options.committer, "query": first.query_id},
            )
            commit_in(catalog, replace(staged, options=options), files)

    def _commit_no_message(self) -> None:
        """Commit a batch without messages of tasks, whose query id is therefore unknown.

        Spark runs at least one task for each batch. If it did not, there would be nothing to
        append. In mode complete the result is empty, and writing an empty result twice does no
        harm.
        """
        from lakehouse_source.spark.writing.on_driver import begin, commit_in

        if self.options.mode == "append":
            return
        address = self._address()
        with address.open(create=True) as catalog:
            commit_in(catalog, begin(catalog, address, self.incoming, self.options), ())

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Give a batch up, unless it is committed: Spark calls this after a failed commit too.

        Without a message the write is not known. Its tasks deleted their files, and its
        registration is abandoned later.
        """
        from lakehouse_source.spark.writing.on_driver import abort

        known = [one for one in messages if isinstance(one, BatchWritten | BatchRefused)]
        if known:
            written = _written(messages)
            with self._address().open() as catalog:
                abort(catalog, known[0].begun.staged, _files(written) if written else ())


class TaskWriter(DataSourceStreamArrowWriter):
    """Runs on executors. Writes the files of one task; knows no catalog."""

    def __init__(self, begun: BegunWrite) -> None:
        self.begun = begun

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        acknowledge()
        from lakehouse_source.parquet.writer import write_files

        freeze_gc()
        context = TaskContext.get()
        query_id = None if context is None else context.getLocalProperty(QUERY_ID)
        if not query_id:
            raise InvalidOptionError(
                option="writeStream",
                reason=f"needs the id of the query, and Spark did not set {QUERY_ID!r} in the "
                "task. Write each batch with foreachBatch instead, with the options txnAppId "
                "and txnVersion.",
            )
        try:
            files = write_files(of_task(self.begun.spec), iterator)
        except SchemaMismatchError as error:
            return BatchRefused(self.begun, error)
        return BatchWritten(query_id, self.begun, shortened(files))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        raise AssertionError("batches are committed by a PlakeStreamWriter")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        raise AssertionError("batches are given up by a PlakeStreamWriter")


def _written(messages: Sequence[WriterCommitMessage | None]) -> list[BatchWritten]:
    """What the tasks wrote. The message of a task that failed is None."""
    return [message for message in messages if isinstance(message, BatchWritten)]


def _files(written: Sequence[BatchWritten]) -> list[FileMetadata]:
    files = (file for message in written for file in message.files)
    return restored(files, written[0].begun.spec.file_schema)

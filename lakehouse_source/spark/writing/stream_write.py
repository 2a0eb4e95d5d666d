"""Door. Stream writes: each micro-batch becomes one version, once.

Spark makes the writer anew for each step of a batch: on the driver to send it to the tasks,
to commit, and to abort. What the steps have in common travels in the messages of the tasks.

A batch is known to the catalog by an idempotency pair: the id of the query, which its
checkpoint keeps, and the number of the batch. Spark repeats a batch after a crash between
the commit here and its own commit log. The catalog then has the pair already, the files of
the repetition are deleted, and nothing is committed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from lakehouse_source.errors import InvalidOptionError, SchemaMismatchError
from lakehouse_source.model import FileMetadata
from lakehouse_source.parquet.writer import write_files
from lakehouse_source.read.address import Address
from lakehouse_source.spark.session.freeze_gc import freeze_gc
from lakehouse_source.spark.session.static_configuration import catalog_of_query
from lakehouse_source.spark.types.text_lengths import fitted_texts
from lakehouse_source.spark.writing.task_files import restored, shortened
from lakehouse_source.write.commit.begin import begin
from lakehouse_source.write.commit.commit import abort, commit
from lakehouse_source.write.commit.options import StagedWrite, WriteOptions
from lakehouse_source.write.layout.after_commit import compact_after

# Spark sets it in each task of a streaming query. It is stable across restarts.
QUERY_ID = "sql.streaming.queryId"


@dataclass(frozen=True)
class BatchWritten(WriterCommitMessage):
    """The files of one task attempt, and the write that they belong to.

    Only files that a message names can be committed.
    """

    query_id: str
    staged: StagedWrite
    files: tuple[FileMetadata, ...]


@dataclass(frozen=True)
class BatchRefused(WriterCommitMessage):
    """Why the rows of one task attempt do not fit the dataset. Its files are deleted.

    The commit raises the error. Spark would run a task that raises it again, to no avail, and
    tell it as one of a task.
    """

    staged: StagedWrite
    error: SchemaMismatchError


class PlakeStreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of one query, on the driver.

    Pickled, which Spark does once for the tasks of each batch, it becomes a `TaskWriter`. The
    write of the batch begins then, on the version that is the newest at that time.
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
        self._staged: StagedWrite | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        # Spark pickles the writer twice in the same process.
        if self._staged is None:
            self._staged = self._begin()
        return (TaskWriter, (self._staged,))

    @property
    def _address(self) -> Address:
        return Address(self.path, catalog_of_query(self.catalog), self.storage_options)

    def _begin(self) -> StagedWrite:
        address = self._address
        with address.open(create=True) as catalog:
            return begin(catalog, address, self.incoming, self.options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        raise AssertionError("tasks write with a TaskWriter")

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        freeze_gc()
        for message in messages:
            if isinstance(message, BatchRefused):
                raise message.error
        written = _written(messages)
        if not written:
            self._commit_no_message()
            return
        first = written[0]
        staged, files = first.staged, _files(written)
        with self._address.open() as catalog:
            if not files and staged.base_version and staged.options.mode == "append":
                # No version for nothing. The dataset's first batch gives it its schema.
                with catalog.write() as tx:
                    tx.finish_pending(staged.write_id)
                return
            options = replace(
                staged.options,
                txn_app_id=first.query_id,
                txn_version=batchId,
                committer={**staged.options.committer, "query": first.query_id},
            )
            result = commit(catalog, replace(staged, options=options), files)
            compact_after(catalog, staged, result)

    def _commit_no_message(self) -> None:
        """Commit a batch of which no task tells anything, and so no query id is known.

        Spark runs at least one task for each batch. If it did not, there would be nothing to
        append. In mode complete the result is empty, and to write that twice does no harm.
        """
        if self.options.mode == "append":
            return
        with self._address.open(create=True) as catalog:
            commit(catalog, begin(catalog, self._address, self.incoming, self.options), ())

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Give a batch up, unless it is committed: Spark calls this after a failed commit too.

        Without a message the write is not known. Its tasks deleted their files, and its
        registration is abandoned in time.
        """
        known = [one for one in messages if isinstance(one, BatchWritten | BatchRefused)]
        if known:
            written = _written(messages)
            with self._address.open() as catalog:
                abort(catalog, known[0].staged, _files(written) if written else ())


class TaskWriter(DataSourceStreamArrowWriter):
    """Runs on executors. Writes the files of one task; knows no catalog."""

    def __init__(self, staged: StagedWrite) -> None:
        self.staged = staged

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
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
        spec = self.staged.spec
        try:
            files = write_files(spec, fitted_texts(iterator, spec.schema))
        except SchemaMismatchError as error:
            return BatchRefused(self.staged, error)
        return BatchWritten(query_id, self.staged, shortened(files))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        raise AssertionError("batches are committed by a PlakeStreamWriter")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        raise AssertionError("batches are given up by a PlakeStreamWriter")


def _written(messages: Sequence[WriterCommitMessage | None]) -> list[BatchWritten]:
    """What the tasks wrote. The message of a task that failed is None."""
    return [message for message in messages if isinstance(message, BatchWritten)]


def _files(written: Sequence[BatchWritten]) -> list[FileMetadata]:
    files = (file for message in written for file in message.files)
    return restored(files, written[0].staged.spec.file_schema)

"""Door. Batch writes: executors write files, and the driver commits them as one version."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from lakehouse_source.model import FileMetadata
from lakehouse_source.parquet.writer import write_files
from lakehouse_source.read.address import Address
from lakehouse_source.spark.session.freeze_gc import freeze_gc
from lakehouse_source.spark.session.secrets import conceal
from lakehouse_source.spark.session.static_configuration import catalog_of_query
from lakehouse_source.spark.writing.session_settings import Followed, seen_in_task
from lakehouse_source.spark.writing.task_files import restored, shortened
from lakehouse_source.write.commit.commit import abort, commit
from lakehouse_source.write.commit.options import StagedWrite
from lakehouse_source.write.layout.after_commit import compact_after


@dataclass(frozen=True)
class FilesWritten(WriterCommitMessage):
    """The files of one task attempt. Only files in a message can be committed."""

    files: tuple[FileMetadata, ...]
    session: Mapping[str, str] | None  # `seen_in_task`


class PlakeWriter(DataSourceArrowWriter):
    """Writes one frame. Spark pickles it: `commit` and `abort` each run in a new process."""

    def __init__(
        self, staged: StagedWrite, path: str, catalog: str | None, session: Followed
    ) -> None:
        self.staged = staged
        self.path = path
        self.catalog = conceal(catalog)
        self.session = session

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        freeze_gc()
        return FilesWritten(shortened(write_files(self.staged.spec, iterator)), seen_in_task())

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        written = (message for message in messages if isinstance(message, FilesWritten))
        staged = self.session.applied(self.staged, (one.session for one in written))
        with Address(self.path, catalog_of_query(self.catalog)).open() as catalog:
            result = commit(catalog, staged, self._files(messages))
            compact_after(catalog, staged, result)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        with Address(self.path, catalog_of_query(self.catalog)).open() as catalog:
            abort(catalog, self.staged, self._files(messages))

    def _files(self, messages: Sequence[WriterCommitMessage | None]) -> list[FileMetadata]:
        """The files of all tasks. The message of a task that failed is None."""
        written = [message for message in messages if isinstance(message, FilesWritten)]
        files = (file for message in written for file in message.files)
        return restored(files, self.staged.spec.file_schema)

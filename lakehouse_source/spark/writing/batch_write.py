"""Door. Batch writes: executors write files, and the driver commits them as one version.

Each method of a writer runs in a process of its own, which imports only what the method needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from lakehouse_source.model import FileMetadata
from lakehouse_source.parquet.read_write_specs import WriteSpec
from lakehouse_source.spark.session.freeze_gc import freeze_gc
from lakehouse_source.spark.writing.session_settings import Followed, seen_in_task
from lakehouse_source.spark.writing.task_files import BegunWrite, restored, shortened

if TYPE_CHECKING:
    from lakehouse_source.write.commit.options import StagedWrite


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
        from lakehouse_source.parquet.writer import write_files

        freeze_gc()
        return FilesWritten(shortened(write_files(self.spec, iterator)), seen_in_task())

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

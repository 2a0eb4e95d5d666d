"""Door. The change feed of a dataset as a frame: of a batch or of a stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from lakehouse_source.errors import PlakeError
from lakehouse_source.spark.reading.changes_read import ChangesReader, ChangesRequest
from lakehouse_source.spark.reading.frame_options import opened
from lakehouse_source.spark.reading.pushdown import read_pushdown
from lakehouse_source.spark.reading.stream_read import (
    PlakeStreamReader,
    StreamedChanges,
    stream_request,
)
from lakehouse_source.spark.session.options import (
    CHANGES_STREAM_OPTIONS,
    STREAM_READING,
    Options,
    is_stream,
)
from lakehouse_source.spark.session.secrets import split_storage_options
from lakehouse_source.spark.session.workers import freeze_gc

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
    from pyspark.sql.types import StructType

T = TypeVar("T")


class ChangesFrame:
    """The columns of a feed for a batch and a stream: Spark tells later which it is.

    `is_batch`: it is no stream.
    """

    version = None

    def __init__(self, options: Mapping[str, str], *, is_batch: bool = False) -> None:
        self.options, self.storage = split_storage_options(options)
        self.stream = None if is_batch else _tried(self._of_stream)
        self.batch = _tried(lambda: ChangesRequest.of(dict(self.options), self.storage))

    def _of_stream(self) -> StreamedChanges:
        given = Options(self.options, CHANGES_STREAM_OPTIONS, STREAM_READING)
        return StreamedChanges.of(given, opened(given, self.storage, None))

    @property
    def request(self) -> ChangesRequest:
        """What a batch reads.

        Raises:
            PlakeError: the options are not those of a batch, or cannot be followed.
        """
        if isinstance(self.batch, PlakeError):
            raise self.batch
        return self.batch

    def pinned(self) -> ChangesFrame:
        return self

    def schema(self) -> StructType:
        if isinstance(self.batch, PlakeError):
            if isinstance(self.stream, StreamedChanges):
                return self.stream.schema
            if self.stream is not None and is_stream(self.options):
                raise self.stream
        return self.request.schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        freeze_gc()
        reader = ChangesReader(self.request, read_pushdown(schema))
        reader.feed()
        return reader

    def stream_reader(self, schema: StructType) -> DataSourceStreamReader:
        if isinstance(self.stream, PlakeError):
            raise self.stream
        shown = self.stream
        assert shown is not None
        found = stream_request(self.options, self.storage, shown.schema_version, shown.columns)
        return PlakeStreamReader(found, schema)


def _tried(found: Callable[[], T]) -> T | PlakeError:
    try:
        return found()
    except PlakeError as error:
        return error

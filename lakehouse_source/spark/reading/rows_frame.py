"""Door. The rows of a dataset, or one of its metadata tables, as a frame."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import StructType

from lakehouse_source.constraints import primary_key
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.schema.defaults import computed_columns, document_of
from lakehouse_source.schema.fields import METADATA_COLUMNS, unused_names
from lakehouse_source.spark.reading.frame_options import ReadRequest, metadata_schema, resolve
from lakehouse_source.spark.reading.pushdown import read_pushdown
from lakehouse_source.spark.session.options import READ_OPTIONS, Options
from lakehouse_source.spark.session.secrets import split_storage_options
from lakehouse_source.spark.session.workers import freeze_gc
from lakehouse_source.spark.types import spark_schema

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader


class RowsFrame:
    """A frame of one version, which is resolved once."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = options
        self._request: ReadRequest | None = None
        self._snapshot: Snapshot | None = None
        self._schema_version = 0

    @property
    def request(self) -> ReadRequest:
        """What is read.

        Raises:
            PlakeError: the options are wrong, or there is no such dataset or version.
        """
        if self._request is None:
            self._request, self._snapshot = resolve(self.options)
            self._schema_version = self._snapshot.schema_version
        return self._request

    @property
    def version(self) -> int:
        return self.request.version

    @property
    def location(self) -> str | None:
        """The URI of the dataset; None where the rows are about it."""
        return None if self.request.metadata_table else self.request.address.uri

    @property
    def repeats(self) -> bool:
        """Whether a scan is planned the same way at any time: its version never changes.

        Rows of a metadata table may change with the catalog, and a condition of the frame may have
        `current_date()`.
        """
        return self.request.metadata_table is None and self.request.where is None

    @property
    def computed(self) -> dict[str, Any]:
        """How columns are computed, in the process that resolved the version."""
        found = {} if self._snapshot is None else computed_columns(self._snapshot.schema)
        return {name: document_of(how) for name, how in found.items()}

    @property
    def primary_key(self) -> tuple[str, ...]:
        """The columns of the primary key, in the process that resolved the version."""
        found = self._snapshot
        return () if found is None else primary_key(found.dataset.properties.constraints)

    @property
    def partition_by(self) -> tuple[str, ...] | None:
        """The partition columns, in the process that resolved the version; None in others."""
        return None if self._snapshot is None else self._snapshot.partition_by

    def snapshot(self) -> Snapshot:
        """The version, which only the process that resolved it has open already."""
        request = self.request
        if self._snapshot is None:
            with request.opened() as (_, self._snapshot, _):
                pass
        return self._snapshot

    def show(self, snapshot: Snapshot) -> None:
        """Read the rows under another schema of the same version."""
        self._request = replace(self.request, schema=snapshot.schema)
        self._snapshot = snapshot

    def pinned(self) -> RowsFrame:
        found = RowsFrame(self.options)
        found._request, found._schema_version = self.request, self._schema_version
        return found

    def schema(self) -> StructType:
        request = self.request
        if request.metadata_table is not None:
            return metadata_schema(request.metadata_table)
        snapshot = self.snapshot()
        everything = spark_schema(snapshot.schema)
        names = everything.names if request.columns is None else request.columns
        fields = [everything[name] for name in names]
        if request.metadata_columns:
            unused = unused_names(METADATA_COLUMNS, snapshot.schema.names)
            fields += spark_schema(pa.schema(unused)).fields
        return StructType(fields)

    def reader(self, schema: StructType) -> DataSourceReader:
        request = self.request
        # `resolve` accepted options of a stream, because the use of the frame was not known.
        Options(split_storage_options(self.options)[0], READ_OPTIONS, "reading")
        pushdown = read_pushdown(schema)
        if request.metadata_table is not None:
            from lakehouse_source.spark.reading.catalog_read import MetadataTableReader

            return MetadataTableReader(request, pushdown)
        if pushdown.aggregate is not None:
            from lakehouse_source.spark.reading.catalog_read import AggregateReader

            return AggregateReader(request, pushdown)
        from lakehouse_source.spark.reading.batch_read import PlakeReader

        freeze_gc()
        made = PlakeReader(request, pushdown)
        # Spark pickles the reader next, which needs the plan and would hide the plan's error.
        made.plan()
        return made

    def stream_reader(self, schema: StructType) -> DataSourceStreamReader:
        from lakehouse_source.spark.reading.stream_read import PlakeStreamReader, stream_request

        options, storage = split_storage_options(self.options)
        columns = self.request.columns
        found = stream_request(options, storage, self._schema_version, columns)
        return PlakeStreamReader(found, schema)

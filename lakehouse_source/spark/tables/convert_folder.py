"""Door. `convert`: makes a dataset of a folder with many Parquet files; Spark reads footers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakehouse_source.dataset import Dataset
from lakehouse_source.errors import PlakeError
from lakehouse_source.functions import convert_at
from lakehouse_source.parquet.foreign import (
    FooterReader,
    ForeignFile,
    ForeignRowGroup,
    ForeignSchema,
)
from lakehouse_source.read.address import Address, CatalogLike, PathLike
from lakehouse_source.spark.protocol.messages import ErrorMessage, from_json, to_json
from lakehouse_source.spark.session.secrets import take_configuration
from lakehouse_source.spark.session.workers import freeze_gc
from lakehouse_source.spark.tables.transaction import refuse
from lakehouse_source.storage import Storage
from lakehouse_source.write.add_files import read_footer
from lakehouse_source.write.found_files import GivenFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A footer takes 1 to 2 ms, and a Spark task 50 ms besides.
_FILES_PER_TASK = 200


def convert(
    spark: SparkSession,
    folder: PathLike,
    *,
    catalog: CatalogLike = None,
    format: str | None = None,
    version: int | None = None,
    partitioning: str | None = "hive",
    partition_types: Mapping[str, pa.DataType] | None = None,
    index_columns: str | Sequence[str] | None = None,
    commit_metadata: Mapping[str, Any] | None = None,
    progress: bool | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Dataset:
    """Make a dataset of Parquet files or of a Delta table, as `lakehouse_source.convert` does.

    The driver lists the folder, Spark tasks read the footers, and the driver commits. So the
    executors must reach the folder by the same path. This is worth it for more than about ten
    thousand files, or if requests to an object store are slow.

    The arguments, the result and the errors are those of `lakehouse_source.convert`. Executors get
    the storage options in the pickled function, which Spark does not show or log.

    >>> df = spark.read.format("plake").load("/data/flights")
    >>> df.write.parquet("/data/plain")
    >>> lake.spark.convert(spark, "/data/plain").scan().count_rows()
    4
    """
    refuse(spark, "convert")
    take_configuration()
    return convert_at(
        Address(folder, catalog, storage_options),
        format=format,
        version=version,
        partitioning=partitioning,
        partition_types=partition_types,
        index_columns=index_columns,
        commit_metadata=commit_metadata,
        progress=progress,
        read_footers=partial(_read_footers, spark),
    )


def _read_footers(spark: SparkSession, given: Sequence[GivenFile]) -> Iterator[ForeignFile]:
    """The footers of files below one folder, in their order.

    Raises:
        PlakeError: the error of the first file that has one.
    """
    starts = range(0, len(given), _FILES_PER_TASK)
    rows = [(at, [file.path for file in given[at : at + _FILES_PER_TASK]]) for at in starts]
    chunks = spark.createDataFrame(rows, "at long, paths array<string>").repartition(len(rows))
    # Not in a column, because Spark shows the columns of a plan.
    read = _FooterTask(given[0].storage)
    found = chunks.mapInArrow(read, "at long, footers string").collect()
    schemas = _Schemas()
    for row in sorted(found, key=lambda row: row.at):
        message = from_json(row.footers, Footers)
        yield from message.files(schemas)
        if message.error is not None:
            raise message.error.error()


@dataclass(frozen=True, slots=True)
class Footer:
    """The contents of a file's footer; `schema` is a place in `Footers.schemas`."""

    size_bytes: int
    row_count: int
    schema: int
    row_groups: tuple[ForeignRowGroup, ...]


@dataclass(frozen=True, slots=True)
class Footers:
    """A task's message about its files, in their order, up to the first error."""

    schemas: tuple[ForeignSchema, ...]
    footers: tuple[Footer, ...]
    error: ErrorMessage | None

    @classmethod
    def of(cls, files: Sequence[ForeignFile], error: PlakeError | None) -> Footers:
        """The message about files; files with equal schemas share one object."""
        places: dict[int, int] = {}
        schemas: list[ForeignSchema] = []
        footers = []
        for file in files:
            if id(file.described) not in places:
                places[id(file.described)] = len(schemas)
                schemas.append(file.described)
            place = places[id(file.described)]
            footers.append(Footer(file.size_bytes, file.row_count, place, file.row_groups))
        message = None if error is None else ErrorMessage.of(error)
        return cls(tuple(schemas), tuple(footers), message)

    def files(self, known: _Schemas) -> Iterator[ForeignFile]:
        """The files, whose equal schemas are shared objects, even between messages."""
        shared = [known.shared(schema) for schema in self.schemas]
        for one in self.footers:
            yield ForeignFile(one.size_bytes, one.row_count, shared[one.schema], one.row_groups)


class _FooterTask:
    """Runs on executors. Reads the footers of files; an error is a result too."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_gc()
        reader = FooterReader()
        for batch in batches:
            rows = [
                {"at": row["at"], "footers": to_json(self._footers(reader, row["paths"]))}
                for row in batch.to_pylist()
            ]
            schema = pa.schema([("at", pa.int64()), ("footers", pa.string())])
            yield pa.RecordBatch.from_pylist(rows, schema=schema)

    def _footers(self, reader: FooterReader, paths: Sequence[str]) -> Footers:
        found: list[ForeignFile] = []
        for path in paths:
            try:
                found.append(read_footer(reader, GivenFile(self._storage, path, (), False)))
            except PlakeError as error:
                return Footers.of(found, error)
        return Footers.of(found, None)


class _Schemas:
    """Makes files with equal schemas share one object, as `ForeignSchema` requires."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], ForeignSchema] = {}

    def shared(self, mine: ForeignSchema) -> ForeignSchema:
        """The first schema that equals the given one."""
        key = (
            mine.physical.serialize().to_pybytes(),
            mine.schema.serialize().to_pybytes(),
            mine.int96,
            mine.columns,
            mine.leaf_types,
        )
        return self._known.setdefault(key, mine)

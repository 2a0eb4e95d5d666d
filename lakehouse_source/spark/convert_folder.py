"""Door. `convert`: takes over a folder with very many Parquet files, whose footers Spark reads."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakehouse_source.dataset import Dataset
from lakehouse_source.errors import PlakeError
from lakehouse_source.functions import convert_with
from lakehouse_source.parquet.foreign import FooterReader, ForeignFile, ForeignSchema
from lakehouse_source.read.address import CatalogLike, PathLike
from lakehouse_source.spark.workers import freeze_gc
from lakehouse_source.storage import Storage
from lakehouse_source.write.add_files import read_footer
from lakehouse_source.write.find_files import GivenFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A footer takes 1 to 2 ms, and a Spark task 50 ms besides.
_FILES_PER_TASK = 200


def convert(
    spark: SparkSession,
    folder: PathLike,
    *,
    catalog: CatalogLike = None,
    partitioning: str | None = "hive",
    partition_types: Mapping[str, pa.DataType] | None = None,
    index_columns: str | Sequence[str] | None = None,
    commit_metadata: Mapping[str, Any] | None = None,
    progress: bool | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Dataset:
    """Make a dataset of a folder of Parquet files, as `lakehouse_source.convert` does.

    The driver lists the folder, Spark tasks read the footers, and the driver commits. So the
    folder must be one that the executors reach by the same path. Worth it from some ten
    thousand files, or where requests to an object store are slow.

    The arguments, the result and the errors are those of `lakehouse_source.convert`. Executors
    get the storage options inside of the pickled function, which Spark shows and logs nowhere.

    >>> df = spark.read.format("plake").load("/data/flights")
    >>> df.write.parquet("/data/plain")
    >>> lake.spark.convert(spark, "/data/plain").scan().count_rows()
    4
    """
    return convert_with(
        partial(_read_footers, spark),
        folder,
        catalog=catalog,
        partitioning=partitioning,
        partition_types=partition_types,
        index_columns=index_columns,
        commit_metadata=commit_metadata,
        progress=progress,
        storage_options=storage_options,
    )


def _read_footers(spark: SparkSession, given: Sequence[GivenFile]) -> Iterator[ForeignFile]:
    """The footers of files below one folder, in their order.

    Raises:
        PlakeError: that of the first file that has one.
    """
    starts = range(0, len(given), _FILES_PER_TASK)
    rows = [(at, [file.path for file in given[at : at + _FILES_PER_TASK]]) for at in starts]
    chunks = spark.createDataFrame(rows, "at long, paths array<string>").repartition(len(rows))
    # Not in a column: what Spark shows of a plan is columns.
    read = _FooterTask(given[0].storage)
    found = chunks.mapInArrow(read, "at long, footers binary").collect()
    schemas = _Schemas()
    for row in sorted(found, key=lambda row: row.at):
        for answer in pickle.loads(row.footers):
            if isinstance(answer, PlakeError):
                raise answer
            yield schemas.shared(answer)


class _FooterTask:
    """Runs on executors. Reads the footers of files; errors are answers too."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_gc()
        reader = FooterReader()
        for batch in batches:
            rows = [
                {"at": row["at"], "footers": pickle.dumps(self._answers(reader, row["paths"]))}
                for row in batch.to_pylist()
            ]
            schema = pa.schema([("at", pa.int64()), ("footers", pa.binary())])
            yield pa.RecordBatch.from_pylist(rows, schema=schema)

    def _answers(self, reader: FooterReader, paths: Sequence[str]) -> list[Any]:
        answers: list[ForeignFile | PlakeError] = []
        for path in paths:
            try:
                answers.append(read_footer(reader, GivenFile(self._storage, path, (), False)))
            except PlakeError as error:
                return [*answers, error]
        return answers


class _Schemas:
    """Makes files with equal schemas share one object, as `ForeignSchema` requires."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], ForeignSchema] = {}
        # Files of one task share theirs already. Kept with the key, so that no id is reused.
        self._seen: dict[int, tuple[ForeignSchema, ForeignSchema]] = {}

    def shared(self, file: ForeignFile) -> ForeignFile:
        mine = file.described
        if id(mine) not in self._seen:
            key = (
                mine.physical.serialize().to_pybytes(),
                mine.schema.serialize().to_pybytes(),
                mine.int96,
                mine.columns,
                mine.leaf_types,
            )
            self._seen[id(mine)] = (mine, self._known.setdefault(key, mine))
        return replace(file, described=self._seen[id(mine)][1])

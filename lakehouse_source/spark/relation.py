"""Door. Makes relations of Spark's own Parquet reader out of data files, through Py4J.

`HadoopFsRelation` and `InMemoryFileIndex` are not public; their constructors are the
same in Spark 4.1 to 4.3. They take typed partition values for each folder. The public
reader parses partition values from the names of folders instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any

from lakehouse_source.errors import CorruptDatasetError, InvalidOptionError, StorageError
from lakehouse_source.spark.planner_status import is_classic
from lakehouse_source.storage import Storage, canonical_uri, check_relative, local_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_THRESHOLD = "spark.sql.sources.parallelPartitionDiscovery.threshold"
_threshold = Lock()
# These replace the session's settings: a missing file is an error, and dates are not shifted
# from the Julian calendar.
_OPTIONS = {
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
}
# Spark's Parquet library looks dictionaries up by names joined with dots: it confuses the
# column `s.x` with the field `x` of the column `s` (measured on Spark 4.3).
_NO_DICTIONARY_FILTER = {"parquet.filter.dictionary.enabled": "false"}


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file. `path` is relative to the dataset, `values` are its partition values as Spark SQL."""

    path: str
    size_bytes: int
    values: tuple[str, ...]

    @property
    def folder(self) -> str:
        """The folder relative to the dataset, empty for the dataset's own folder."""
        return self.path.rpartition("/")[0]


class Location:
    """Where Spark finds a dataset. Local paths pass the same checks as in plake's own reads."""

    def __init__(self, uri: str) -> None:
        self.given = uri
        self.uri = canonical_uri(uri)
        path = local_path(self.uri)
        self.storage = None if path is None else Storage(self.uri)
        # Hadoop's name for the scheme of S3.
        remote = "s3a" + self.uri[2:] if self.uri.startswith("s3://") else self.uri
        self.root = remote if path is None else "file:" + path

    def path(self, relative: str) -> str:
        """A data file as Hadoop names it.

        Raises:
            CorruptDatasetError: the path leads out of the dataset.
        """
        if self.storage is None:
            return f"{self.root}/{check_relative(relative)}"
        self.storage.path(relative)
        return f"{self.root}/{relative}"

    def mismatch(self, files: Iterable[DataFile]) -> Exception:
        """The error for the first file that is missing or has not the size in the catalog."""
        storage = self.storage or Storage(self.given)
        for file in files:
            size = storage.size(file.path)
            shown = storage.display(file.path)
            if size is None:
                reason = "the file is missing: deleted by hand, or vacuumed with its version"
                return StorageError(path=shown, reason=reason)
            if size != file.size_bytes:
                reason = f"it has {size} bytes, not {file.size_bytes}"
                return CorruptDatasetError(path=shown, reason=reason)
        return StorageError(path=self.uri, reason="Spark does not find files that exist")


def relations(
    spark: SparkSession,
    location: Location,
    files: Sequence[DataFile],
    data: StructType,
    partitions: StructType,
    ambiguous_paths: bool = False,
) -> Iterator[DataFrame]:
    """Frames over the files: the columns of `data`, by name, and then those of `partitions`.

    There is more than one where a folder holds files with different partition values.
    `ambiguous_paths`: two columns of a file may have the same path when it is joined
    with dots.
    """
    options = _OPTIONS | _NO_DICTIONARY_FILTER if ambiguous_paths else _OPTIONS
    for group in _one_value_per_folder(files):
        yield _relation(spark, location, group, data, partitions, options)


def _one_value_per_folder(files: Sequence[DataFile]) -> Iterator[list[DataFile]]:
    """Groups in which all files of a folder have the same partition values, as Spark requires."""
    rest = list(files)
    while rest:
        values: dict[str, tuple[str, ...]] = {}
        chosen: list[DataFile] = []
        left: list[DataFile] = []
        for file in rest:
            fits = values.setdefault(file.folder, file.values) == file.values
            (chosen if fits else left).append(file)
        yield chosen
        rest = left


def _relation(
    spark: SparkSession,
    location: Location,
    files: Sequence[DataFile],
    data: StructType,
    partitions: StructType,
    options: dict[str, str],
) -> DataFrame:
    from pyspark.sql import DataFrame

    java = _Java(spark)
    index = java.index(location, files, java.partition_spec(location, files, partitions))
    if index.sizeInBytes() != sum(file.size_bytes for file in files):
        raise location.mismatch(files)
    made = java.datasources.HadoopFsRelation(
        index,
        java.schema(partitions),
        java.schema(data),
        java.none,
        java.datasources.parquet.ParquetFileFormat(),
        java.map(options),
        java.session,
    )
    return DataFrame(java.session.baseRelationToDataFrame(made), spark)


class _Java:
    """The JVM classes of a session that a relation needs."""

    def __init__(self, spark: Any) -> None:
        self.spark = spark
        self.jvm = spark._jvm
        self.session = spark._jsparkSession
        self.datasources = self.jvm.org.apache.spark.sql.execution.datasources
        self.none = self._scala_object(self.jvm.scala, "None")

    def _scala_object(self, package: Any, name: str) -> Any:
        """The instance of a Scala `object`."""
        return getattr(getattr(package, name + "$"), "MODULE$")

    def map(self, values: dict[str, str]) -> Any:
        return self.jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(values)

    def sequence(self, array: Any) -> Any:
        return self.jvm.scala.collection.immutable.ArraySeq.unsafeWrapArray(array)

    def schema(self, schema: StructType) -> Any:
        return self.jvm.org.apache.spark.sql.types.DataType.fromJson(schema.json())

    def paths(self, names: Iterable[str]) -> Any:
        """An array of Hadoop paths, in two calls of Py4J for any number of paths."""
        parts = self.jvm.java.util.regex.Pattern.compile("\0").split("\0".join(names))
        return self.jvm.org.apache.hadoop.util.StringUtils.stringToPath(parts)

    def index(self, location: Location, files: Sequence[DataFile], spec: Any) -> Any:
        paths = self.paths(location.path(file.path) for file in files)
        cache = self._scala_object(self.datasources, "NoopCache")
        # A remote store is slow to answer: there a Spark job lists files in parallel.
        with _listing_on_driver(self.spark, len(files) if location.storage is not None else 0):
            return self.datasources.InMemoryFileIndex(
                self.session,
                self.sequence(paths),
                self.map(_OPTIONS),
                self.none,
                cache,
                self.jvm.scala.Some(spec),
                self.none,
            )

    def partition_spec(
        self, location: Location, files: Sequence[DataFile], partitions: StructType
    ) -> Any:
        """The partition values of each folder. Empty: Spark parses no folder names."""
        folders = {file.folder: file.values for file in files} if len(partitions) else {}
        kind = self.datasources.PartitionPath
        gateway = self.spark.sparkContext._gateway
        array = gateway.new_array(kind, len(folders))
        if folders:
            rows = self._rows(folders.values())
            root = self._qualified(location.root)
            for i, folder in enumerate(folders):
                array[i] = kind.apply(rows[i], f"{root}/{folder}" if folder else root)
        return self.datasources.PartitionSpec(self.schema(partitions), self.sequence(array))

    def _rows(self, values: Iterable[tuple[str, ...]]) -> Any:
        """SQL constants as rows of Catalyst. Runs no job: Spark's planner evaluates them."""
        rows = ", ".join(f"({', '.join(row)})" for row in values)
        frame = self.spark.sql(f"SELECT * FROM VALUES {rows}")
        return frame._jdf.queryExecution().executedPlan().executeCollect()

    def _qualified(self, root: str) -> str:
        """The folder as Spark spells it in the paths of the files below it."""
        path = self.jvm.org.apache.hadoop.fs.Path(root)
        hadoop = self.session.sessionState().newHadoopConf()
        return str(path.getFileSystem(hadoop).makeQualified(path).toString()).rstrip("/")


@contextmanager
def _listing_on_driver(spark: SparkSession, count: int) -> Iterator[None]:
    """Let the driver look at `count` files itself: a Spark job takes seconds for 2,000."""
    with _threshold:
        before = spark.conf.get(_THRESHOLD, None)
        if count <= int(spark.conf.get(_THRESHOLD) or 0):
            yield
            return
        spark.conf.set(_THRESHOLD, count)
        try:
            yield
        finally:
            if before is None:
                spark.conf.unset(_THRESHOLD)
            else:
                spark.conf.set(_THRESHOLD, before)


def require_classic(spark: Any) -> None:
    """Refuse a Spark Connect session: its JVM is in another process.

    Raises:
        InvalidOptionError: it is one.
    """
    if not is_classic(spark):
        raise InvalidOptionError(
            option="spark",
            value=type(spark).__module__,
            reason="a Spark Connect client cannot give its server a list of files with their "
            "partition values. Use spark.read.format('plake') there.",
        )

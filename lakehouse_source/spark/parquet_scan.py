"""Door. `scan`: a version as a frame over Spark's own Parquet reader, for large scans.

The catalog knows the files, the schema that each was written with and its partition
values. Spark gets all of these, so it lists no folder and parses no path. Spark finds
columns by name, plake by field id. Files are therefore read with the names and types
that they were written with, one relation for all files with equal columns, and then
converted to the current schema.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import pyarrow as pa

from lakehouse_source.errors import InvalidOptionError, SchemaMismatchError
from lakehouse_source.model import DeletionVector, FileRecord, RowGroupMetadata
from lakehouse_source.parquet.deleted_rows import deleted_rows
from lakehouse_source.parquet.names import is_foreign
from lakehouse_source.predicate import BoundPredicate, PredicateSet
from lakehouse_source.read.address import Address, CatalogLike, PathLike
from lakehouse_source.read.candidates import candidates
from lakehouse_source.read.snapshot import Snapshot, resolve_columns
from lakehouse_source.schema.align import align, by_id, by_name
from lakehouse_source.schema.defaults import initial_default, initial_ordinal
from lakehouse_source.schema.fields import (
    CHAR_VARCHAR,
    children,
    field_id,
    is_nested,
    is_same_with_ids,
    leaves,
)
from lakehouse_source.schema.partitions import partition_ordinal
from lakehouse_source.spark.relation import DataFile, Location, relations, require_classic
from lakehouse_source.spark.to_spark_sql import condition_sql, literal_sql, quoted
from lakehouse_source.spark.types import batch_schema, spark_schema
from lakehouse_source.storage import Storage, check_relative

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

# How a stored column becomes a current one. `partition`: from the catalog, no file stores it.
# `lacking`: the files lack it, so that it is its initial default or NULL. `same`: no
# conversion. `cast`: Spark's CAST, where its result is known to equal plake's. `arrow`: only
# plake can convert it.
Step: TypeAlias = Literal["partition", "lacking", "same", "cast", "arrow"]


def scan(
    spark: SparkSession,
    uri: PathLike,
    where: Any = None,
    columns: Sequence[str] | None = None,
    version: int | None = None,
    catalog: CatalogLike = None,
    timestamp: datetime | str | None = None,
) -> DataFrame:
    """A version of a dataset as a frame that Spark reads with its own Parquet reader.

    The frame is as fast as `spark.read.parquet` over the same files: no Python runs in
    its tasks. When the frame is made, the catalog leaves out files that cannot hold rows
    of `where`. The rows are filtered exactly. Filters that are added to the frame skip
    row groups by the statistics in the files, as Spark does with any Parquet file.

    Args:
        where: a condition in any form that plake takes. Times without a zone are in the
            time zone of the session.
        columns: top-level columns to read. Default: all.
        version, timestamp: read an older version. The frame keeps the version that it
            was made with. When vacuum has deleted files of that version, reading raises
            Spark's error for missing files.

    Remote datasets need Hadoop's file system on Spark's class path (`hadoop-aws` for
    S3), with its own credentials. `s3://` is read as `s3a://`.

    Rows pass through Python where only plake can convert an old type into the current
    one (a number that became text, changes inside of structs).

    Raises:
        DatasetNotFoundError, VersionNotFoundError, InvalidPredicateError,
        CatalogUnavailableError, CorruptDatasetError, StorageError.
        SchemaMismatchError: a column does not exist, or Spark's Parquet reader cannot
            read its type (half floats, nanoseconds): use format `plake`.
        InvalidOptionError: a Spark Connect session, or files that plake did not write: use
            format `plake`.

    >>> frame = lake.spark.scan(spark, "/data/flights", where="month = 1", columns=["miles"])
    >>> frame.agg({"miles": "sum"}).first()[0]
    2816
    """
    require_classic(spark)
    address = Address(uri, catalog)
    zone = "UTC" if where is None else str(spark.conf.get("spark.sql.session.timeZone"))
    with address.open() as opened, opened.read() as reader:
        snapshot = address.snapshot(opened, reader, version, timestamp)
        wanted = resolve_columns(snapshot.schema, columns)
        bound = PredicateSet.of(where).bind(snapshot.schema, timezone=zone)
        found = list(candidates(reader, snapshot, bound, statistics=True))
    needed = tuple(dict.fromkeys([*wanted, *bound.columns]))
    target = pa.schema([snapshot.schema.field(name) for name in needed])
    groups = _FileGroups(snapshot, target)
    for one in found:
        groups.add(one.file, one.row_groups, one.deleted)
    location = Location(address.location.given)
    frame = groups.frame(spark, location, Storage(address.location))
    if not all(one.always for one in found):
        frame = _filtered(frame, bound)
    return frame.select(*[_named(name) for name in wanted])


def _filtered(frame: DataFrame, bound: BoundPredicate) -> DataFrame:
    from pyspark.sql import functions as F

    return frame.where(F.expr(condition_sql(bound)))


def _named(name: str) -> Column:
    from pyspark.sql import functions as F

    return F.col(quoted(name))


# --- files with equal columns ---------------------------------------------------


@dataclass(slots=True)
class _FileGroup:
    """Files in which the columns have the same names, types and field ids.

    `stored`: the field of each wanted column in these files. None: they lack it.
    `nan_ids`: columns that may hold NaN in one of them. `vectors`: the deletion vectors of
    some of the files, by path.
    """

    stored: tuple[pa.Field | None, ...]
    files: list[FileRecord] = field(default_factory=list)
    nan_ids: set[int] = field(default_factory=set)
    vectors: dict[str, DeletionVector] = field(default_factory=dict)


class _FileGroups:
    """Files, grouped by how they store the columns of `target`."""

    def __init__(self, snapshot: Snapshot, target: pa.Schema) -> None:
        self.snapshot = snapshot
        self.target = target
        self.groups: dict[tuple[bytes | None, ...], _FileGroup] = {}
        self._by_version: dict[int, _FileGroup] = {}
        # Field ids of columns that are floats in some file, whatever they are in others.
        self._float_ids = {
            leaf.id
            for schema in snapshot.file_schemas.values()
            for leaf in leaves(schema)
            if pa.types.is_floating(leaf.type) and not leaf.in_list
        }
        self._ambiguous_paths = any(map(_has_ambiguous_paths, snapshot.file_schemas.values()))

    def add(
        self,
        file: FileRecord,
        row_groups: Sequence[RowGroupMetadata],
        deleted: DeletionVector | None,
    ) -> None:
        if is_foreign(check_relative(file.path)):
            # Their types and names are known only from their footers.
            raise InvalidOptionError(
                option="path",
                value=file.path,
                reason="is a file that plake did not write, which lake.spark.scan does not read. "
                "Read the dataset with spark.read.format('plake').",
            )
        number = file.schema_version
        if number not in self._by_version:
            stored = self._stored(self.snapshot.file_schemas[number])
            self._by_version[number] = self.groups.setdefault(_key(stored), _FileGroup(stored))
        group = self._by_version[number]
        group.files.append(file)
        if deleted is not None:
            group.vectors[file.path] = deleted
        if self._float_ids:
            group.nan_ids.update(self._with_nan(row_groups))

    def _with_nan(self, row_groups: Sequence[RowGroupMetadata]) -> Iterator[int]:
        for group in row_groups:
            known = json.loads(group.nan_json)
            yield from (id for id in self._float_ids if known.get(str(id)) is not False)

    def _stored(self, schema: pa.Schema) -> tuple[pa.Field | None, ...]:
        """For each wanted column its field in files of a schema, or None where they lack it."""
        stored: list[pa.Field | None] = []
        for wanted in self.target:
            found = by_id(wanted, list(schema))
            if wanted.name in self.snapshot.partition_by:
                found = None
            if found is not None and pa.types.is_null(found.type):
                found = None
            if found is not None:
                _check_readable(found.type, wanted.name)
            elif initial_default(wanted) is not None:
                _check_readable(wanted.type, wanted.name)
            stored.append(found)
        return tuple(stored)

    def frame(self, spark: SparkSession, location: Location, storage: Storage) -> DataFrame:
        """The rows of all files as one frame with the columns of `target`."""
        result: DataFrame | None = None
        for group in self.groups.values():
            reader = _GroupReader(self.snapshot, self.target, group, self._ambiguous_paths)
            for frame in reader.frames(spark, location, storage):
                result = frame if result is None else result.union(frame)
        return spark.createDataFrame([], spark_schema(self.target)) if result is None else result


def _has_ambiguous_paths(schema: pa.Schema) -> bool:
    """Tell whether two leaves have the same path when it is joined with dots."""
    names = [".".join(leaf.path) for leaf in leaves(schema)]
    return len(names) > len(set(names))


def _key(stored: Sequence[pa.Field | None]) -> tuple[bytes | None, ...]:
    """A key that is equal for files with the same names, types and field ids."""
    return tuple(
        None if one is None else pa.schema([one]).serialize().to_pybytes() for one in stored
    )


def _check_readable(type_: pa.DataType, column: str) -> None:
    t = pa.types
    if is_nested(type_):
        for child in children(type_):
            _check_readable(child.type, column)
    elif (
        t.is_float16(type_)
        or t.is_time(type_)
        or (t.is_timestamp(type_) and type_.unit == "ns")
        # Parquet stores durations as integers, which Spark reads as microseconds.
        or (t.is_duration(type_) and type_.unit != "us")
    ):
        raise SchemaMismatchError(
            column=column,
            got=type_,
            reason=f"is stored as {type_}, which Spark's own Parquet reader cannot read",
            hint="Leave it out with columns=, or read with spark.read.format('plake').",
        )


class _GroupReader:
    """Reads one group of files as rows with the columns of `target`."""

    def __init__(
        self, snapshot: Snapshot, target: pa.Schema, group: _FileGroup, ambiguous_paths: bool
    ) -> None:
        self.ambiguous_paths = ambiguous_paths
        self.partition_by = snapshot.partition_by
        self.partition_texts = snapshot.partition_texts()
        self.target = target
        self.group = group
        self.wanted = spark_schema(target)
        self.steps: list[Step] = [
            "partition" if wanted.name in self.partition_by else _step(stored, wanted)
            for stored, wanted in zip(group.stored, target)
        ]
        taken = {stored.name.lower() for stored in group.stored if stored is not None}
        # Names in the relation. A file may use the name of a partition column for another column.
        self.names = []
        for stored, wanted in zip(group.stored, target):
            name = wanted.name if stored is None else stored.name
            while stored is None and name.lower() in taken:
                name += "_"
            self.names.append(name)

    def frames(
        self, spark: SparkSession, location: Location, storage: Storage
    ) -> Iterator[DataFrame]:
        """The rows of the files, with the columns and types of `target`."""
        from pyspark.sql.types import StructField, StructType

        data, partitions = StructType(), StructType()
        for name, stored, step, wanted in zip(
            self.names, self.group.stored, self.steps, self.wanted
        ):
            if step == "partition":
                partitions.add(StructField(name, wanted.dataType, wanted.nullable))
            elif stored is not None:
                type_, kept = _read_as(stored, step, wanted)
                data.add(StructField(name, type_, stored.nullable, kept))
        sql_values: dict[tuple[str | None, ...], tuple[str, ...]] = {}
        vectors = self.group.vectors
        # Files with deleted rows by themselves: the others need no join.
        for some in (
            [file for file in self.group.files if file.path not in vectors],
            [file for file in self.group.files if file.path in vectors],
        ):
            files = [self._data_file(file, sql_values) for file in some]
            deleted = _deleted_rows(spark, some, vectors, storage) if files else None
            for raw in relations(spark, location, files, data, partitions, self.ambiguous_paths):
                live = raw if deleted is None else _without(raw, deleted)
                yield (
                    self._convert_in_python(live)
                    if "arrow" in self.steps
                    else self._convert_in_spark(live)
                )

    def _data_file(
        self, file: FileRecord, sql_values: dict[tuple[str | None, ...], tuple[str, ...]]
    ) -> DataFile:
        parts = [field for step, field in zip(self.steps, self.target) if step == "partition"]
        known = dict(zip(self.partition_by, self.partition_texts(file)))
        texts = tuple(known[field.name] for field in parts)
        if texts not in sql_values:
            sql_values[texts] = tuple(
                literal_sql(partition_ordinal(text, field.type), field.type)
                for text, field in zip(texts, parts)
            )
        return DataFile(file.path, file.size_bytes, sql_values[texts])

    def _convert_in_spark(self, raw: DataFrame) -> DataFrame:
        columns = []
        for name, stored, step, wanted in zip(
            self.names, self.group.stored, self.steps, self.wanted
        ):
            if step == "lacking":
                column = self._constant(wanted)
            else:
                column = _named(name)
                if stored is not None:
                    column = _without_nan_pruning(column, stored, self.group.nan_ids)
                if step == "cast":
                    column = column.cast(wanted.dataType)
            columns.append(column.alias(wanted.name, metadata=wanted.metadata or {}))
        return raw.select(*columns)

    def _constant(self, wanted: Any) -> Column:
        from pyspark.sql import functions as F

        field = self.target.field(wanted.name)
        ordinal = initial_ordinal(field)
        if ordinal is None:
            return F.lit(None).cast(wanted.dataType)
        return F.expr(literal_sql(ordinal, field.type)).cast(wanted.dataType)

    def _convert_in_python(self, raw: DataFrame) -> DataFrame:
        """Rows with a column that only plake can convert. Partition values need no conversion."""
        present = [i for i, step in enumerate(self.steps) if step != "lacking"]
        stored = [self.group.stored[i] or self.target.field(i) for i in present]
        stored = [one.with_name(self.names[i]) for i, one in zip(present, stored)]
        convert = _Conversion(pa.schema(stored), self.target, self.wanted)
        columns = [_named(self.names[i]) for i in present]
        return raw.select(*columns).mapInArrow(convert, self.wanted)


# Columns of the relation of deleted rows, which no file has.
_NAME, _POSITION = "__plake_name", "__plake_position"


def _deleted_rows(
    spark: SparkSession,
    files: Sequence[FileRecord],
    vectors: Mapping[str, DeletionVector],
    storage: Storage,
) -> DataFrame | None:
    """The deleted rows of files: the file's name, and the row's position in it."""
    parts = []
    for file in files:
        if file.path in vectors:
            rows = deleted_rows(vectors[file.path], file.path, file.row_count, storage)
            positions = pa.array(rows.to_array(), pa.int64())
            name = pa.repeat(file.path.rpartition("/")[2], len(positions))
            parts.append(pa.table([name, positions], [_NAME, _POSITION]))
    return spark.createDataFrame(pa.concat_tables(parts)) if parts else None


def _without(raw: DataFrame, deleted: DataFrame) -> DataFrame:
    """The rows of files that are not deleted. Spark's reader tells where a row is."""
    from pyspark.sql import functions as F

    # A name is that of one file: plake gave it.
    same = (raw["_metadata.file_name"] == deleted[_NAME]) & (
        raw["_metadata.row_index"] == deleted[_POSITION]
    )
    return raw.join(F.broadcast(deleted), same, "left_anti")


def _step(stored: pa.Field | None, wanted: pa.Field) -> Step:
    """How a stored column becomes a current one that is no partition column."""
    if stored is None:
        return "lacking"
    if is_same_with_ids(stored.type, wanted.type):
        return "same"
    t = pa.types
    old, new = stored.type, wanted.type
    number = t.is_integer(old) or t.is_decimal(old)
    certain = (
        (t.is_integer(old) and t.is_integer(new))
        or (t.is_floating(old) and t.is_floating(new))
        or (number and t.is_decimal(new))
        or (t.is_date(old) and t.is_timestamp(new))
        or (t.is_timestamp(old) and t.is_timestamp(new))
        or ((t.is_integer(old) or t.is_boolean(old)) and t.is_string(new))
    )
    return "cast" if certain else "arrow"


def _read_as(stored: pa.Field, step: Step, wanted: Any) -> tuple[Any, dict[str, Any] | None]:
    """The Spark type to read a stored column with, and the metadata that belongs to the type."""
    if step != "same":
        return spark_schema(pa.schema([pa.field("stored", stored.type)]))[0].dataType, None
    # Spark pads values of char(n) when it reads them, and finds n in the metadata.
    kept = (wanted.metadata or {}).get(CHAR_VARCHAR)
    return wanted.dataType, None if kept is None else {CHAR_VARCHAR: kept}


def _without_nan_pruning(column: Column, stored: pa.Field, nan_ids: set[int]) -> Column:
    """The column, in a form that Spark does not push into Parquet where it may hold NaN.

    Spark's Parquet reader skips row groups by footer statistics, which leave NaN out:
    `x > 5` would skip a row group with 1, NaN, 1, although NaN is greater than 5.
    """
    from pyspark.sql import functions as F

    def may_hold(one: pa.Field) -> bool:
        if pa.types.is_struct(one.type):
            return any(may_hold(child) for child in children(one.type))
        return pa.types.is_floating(one.type) and field_id(one) in nan_ids

    def hidden(column: Column, one: pa.Field) -> Column:
        if not may_hold(one):
            return column
        if not pa.types.is_struct(one.type):
            return F.nanvl(column, column)
        parts = F.struct(
            *[hidden(column.getField(c.name), c).alias(c.name) for c in children(one.type)]
        )
        return F.when(column.isNotNull(), parts) if one.nullable else parts

    return hidden(column, stored)


@dataclass(frozen=True, slots=True)
class _Conversion:
    """Runs on executors. Converts stored rows to the current schema, as plake's reader does."""

    stored: pa.Schema
    target: pa.Schema
    wanted: StructType

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        output = batch_schema(self.wanted)
        for batch in batches:
            table = pa.Table.from_batches([batch])
            table = align(table, self.stored, table.schema, by_name)
            table = align(table, self.target, self.stored, by_id, initial_default)
            yield from align(table, output, table.schema, by_name).to_batches()

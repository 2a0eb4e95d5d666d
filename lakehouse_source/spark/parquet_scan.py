"""Door. `scan`: a version as a frame over Spark's own Parquet reader, for heavy scans.

The catalog says which files to read, under which schema each was written and
which partition values it has; Spark is told all of that and neither lists a
folder nor guesses from a path. Spark finds columns by name and plake by field id:
files are therefore read by the names and types that they were written with, one
relation for all files in which the columns look alike, and then brought to the
schema of today.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakehouse_source.errors import SchemaMismatchError
from lakehouse_source.model import FileRecord, RowGroupMetadata
from lakehouse_source.predicate import BoundPredicate, PredicateSet
from lakehouse_source.read.address import Address, CatalogLike, PathLike
from lakehouse_source.read.plan import candidates
from lakehouse_source.read.snapshot import Snapshot, resolve_columns
from lakehouse_source.schema.align import align, by_id, by_name
from lakehouse_source.schema.fields import children, field_id, is_nested, leaves
from lakehouse_source.schema.partitions import partition_ordinal
from lakehouse_source.spark.relation import DataFile, Location, relations, require_classic
from lakehouse_source.spark.to_spark_sql import condition_sql, literal_sql, quoted
from lakehouse_source.spark.types import CHAR_VARCHAR, batch_schema, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType


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

    The frame is as fast as `spark.read.parquet` over the same files; no Python runs
    in its tasks. Files that cannot hold rows of `where` are left out by the catalog,
    when the frame is made; the rows are filtered exactly. Filters put on the frame
    later are Spark's own: they skip row groups by the statistics in the files.

    Args:
        where: a condition in any of its spellings; times without a zone are in the
            session's.
        columns: top-level columns to read, all by default.
        version, timestamp: read an older version. The frame stays at the version that
            it was made with; once vacuum has deleted that version's files, Spark says
            so when it reads them.

    Remote datasets need Hadoop's file system on Spark's class path (`hadoop-aws` for
    S3), set up with credentials of its own; `s3://` is read as `s3a://`.

    A column whose old files hold a type that only plake can turn into today's (a
    number that became text, changes inside of structs) makes Spark pass the rows of
    those files through Python.

    Raises:
        DatasetNotFoundError, VersionNotFoundError, InvalidPredicateError,
        CatalogUnavailableError, CorruptDatasetError, StorageError.
        SchemaMismatchError: there is no such column, or Spark's Parquet reader does
            not know its type (half floats, nanoseconds): use format `plake`.
        InvalidOptionError: a Spark Connect session: use format `plake`.
    """
    require_classic(spark)
    address = Address(uri, catalog)
    zone = "UTC" if where is None else str(spark.conf.get("spark.sql.session.timeZone"))
    with address.open() as opened, opened.read() as reader:
        snapshot = address.snapshot(opened, reader, version, timestamp)
        wanted = resolve_columns(snapshot.schema, columns)
        bound = PredicateSet.of(where).bind(snapshot.schema, timezone=zone)
        found = list(candidates(reader, snapshot, bound))
    needed = tuple(dict.fromkeys([*wanted, *bound.columns]))
    target = pa.schema([snapshot.schema.field(name) for name in needed])
    shapes = _Shapes(snapshot, target)
    for one in found:
        shapes.add(one.file, one.row_groups)
    frame = shapes.frame(spark, Location(address.given))
    if not all(one.always for one in found):
        frame = _filtered(frame, bound)
    return frame.select(*[_named(name) for name in wanted])


def _filtered(frame: DataFrame, bound: BoundPredicate) -> DataFrame:
    from pyspark.sql import functions as F

    return frame.where(F.expr(condition_sql(bound)))


def _named(name: str) -> Column:
    from pyspark.sql import functions as F

    return F.col(quoted(name))


# --- files that look alike ------------------------------------------------------


@dataclass(slots=True)
class _Shape:
    """Files in which the columns have the same names and types."""

    stored: tuple[pa.Field | None, ...]
    files: list[FileRecord] = field(default_factory=list)
    nan_ids: set[int] = field(default_factory=set)


class _Shapes:
    """Files sorted by how they hold the columns of `target`."""

    def __init__(self, snapshot: Snapshot, target: pa.Schema) -> None:
        self.snapshot = snapshot
        self.target = target
        self.shapes: dict[tuple[bytes | None, ...], _Shape] = {}
        self._by_version: dict[int, _Shape] = {}
        # By their ids; a column that is a float in some files and text in others is one too.
        self._floats = {
            leaf.id
            for schema in snapshot.file_schemas.values()
            for leaf in leaves(schema)
            if pa.types.is_floating(leaf.type) and not leaf.in_list
        }
        self._dotted_twins = any(map(_has_dotted_twins, snapshot.file_schemas.values()))

    def add(self, file: FileRecord, row_groups: Sequence[RowGroupMetadata]) -> None:
        number = file.schema_version
        if number not in self._by_version:
            stored = self._stored(self.snapshot.file_schemas[number])
            self._by_version[number] = self.shapes.setdefault(_key(stored), _Shape(stored))
        shape = self._by_version[number]
        shape.files.append(file)
        if self._floats:
            shape.nan_ids.update(self._with_nan(row_groups))

    def _with_nan(self, row_groups: Sequence[RowGroupMetadata]) -> Iterator[int]:
        for group in row_groups:
            known = json.loads(group.nan_json)
            yield from (id for id in self._floats if known.get(str(id)) is not False)

    def _stored(self, schema: pa.Schema) -> tuple[pa.Field | None, ...]:
        """For each wanted column the field in files of a schema; None: there is none."""
        stored: list[pa.Field | None] = []
        for wanted in self.target:
            found = by_id(wanted, list(schema))
            if wanted.name in self.snapshot.partition_by:
                found = None
            if found is not None and pa.types.is_null(found.type):
                found = None
            if found is not None:
                _check_readable(found.type, wanted.name)
            stored.append(found)
        return tuple(stored)

    def frame(self, spark: SparkSession, location: Location) -> DataFrame:
        """All files as one frame of the target's columns."""
        result: DataFrame | None = None
        for shape in self.shapes.values():
            reading = _Reading(self.snapshot, self.target, shape, self._dotted_twins)
            for frame in reading.frames(spark, location):
                result = frame if result is None else result.union(frame)
        return spark.createDataFrame([], spark_schema(self.target)) if result is None else result


def _has_dotted_twins(schema: pa.Schema) -> bool:
    """Tell whether two leaves have the same name once their paths are joined with dots."""
    names = [".".join(leaf.path) for leaf in leaves(schema)]
    return len(names) > len(set(names))


def _key(stored: Sequence[pa.Field | None]) -> tuple[bytes | None, ...]:
    """Equal for files in which the columns are named, typed and numbered alike."""
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
        # Parquet has no durations: they are whole numbers, and Spark takes them for microseconds.
        or (t.is_duration(type_) and type_.unit != "us")
    ):
        raise SchemaMismatchError(
            column=column,
            got=type_,
            reason=f"is kept as {type_}, which Spark's own Parquet reader does not read",
            hint="Leave it out with columns=, or read with spark.read.format('plake').",
        )


class _Reading:
    """How files of one shape become rows of the target's columns."""

    def __init__(
        self, snapshot: Snapshot, target: pa.Schema, shape: _Shape, dotted_twins: bool
    ) -> None:
        self.dotted_twins = dotted_twins
        self.partition_by = snapshot.partition_by
        self.target = target
        self.shape = shape
        self.wanted = spark_schema(target)
        self.steps = [
            "partition" if wanted.name in self.partition_by else _step(stored, wanted)
            for stored, wanted in zip(shape.stored, target)
        ]
        taken = {stored.name.lower() for stored in shape.stored if stored is not None}
        # Names in the relation: a file may call another column as a partition column is called.
        self.names = []
        for stored, wanted in zip(shape.stored, target):
            name = wanted.name if stored is None else stored.name
            while stored is None and name.lower() in taken:
                name += "_"
            self.names.append(name)

    def frames(self, spark: SparkSession, location: Location) -> Iterator[DataFrame]:
        """The files' rows, in the target's columns and types."""
        from pyspark.sql.types import StructField, StructType

        data, partitions = StructType(), StructType()
        for name, stored, step, wanted in zip(
            self.names, self.shape.stored, self.steps, self.wanted
        ):
            if step == "partition":
                partitions.add(StructField(name, wanted.dataType, wanted.nullable))
            elif stored is not None:
                type_, kept = _read_as(stored, step, wanted)
                data.add(StructField(name, type_, stored.nullable, kept))
        spelled: dict[tuple[str | None, ...], tuple[str, ...]] = {}
        files = [self._data_file(file, spelled) for file in self.shape.files]
        for raw in relations(spark, location, files, data, partitions, self.dotted_twins):
            yield self._through_python(raw) if "arrow" in self.steps else self._as_wanted(raw)

    def _data_file(
        self, file: FileRecord, spelled: dict[tuple[str | None, ...], tuple[str, ...]]
    ) -> DataFile:
        parts = [field for step, field in zip(self.steps, self.target) if step == "partition"]
        texts = tuple(file.partitions.get(field.name) for field in parts)
        if texts not in spelled:
            spelled[texts] = tuple(
                literal_sql(partition_ordinal(text, field.type), field.type)
                for text, field in zip(texts, parts)
            )
        return DataFile(file.path, file.size_bytes, spelled[texts])

    def _as_wanted(self, raw: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        columns = []
        for name, stored, step, wanted in zip(
            self.names, self.shape.stored, self.steps, self.wanted
        ):
            if step == "null":
                column = F.lit(None).cast(wanted.dataType)
            else:
                column = _named(name)
                if stored is not None:
                    column = _without_nan_pruning(column, stored, self.shape.nan_ids)
                if step == "cast":
                    column = column.cast(wanted.dataType)
            columns.append(column.alias(wanted.name, metadata=wanted.metadata or {}))
        return raw.select(*columns)

    def _through_python(self, raw: DataFrame) -> DataFrame:
        """Rows that only plake turns into today's types. Values of partitions pass as they are."""
        present = [i for i, step in enumerate(self.steps) if step != "null"]
        stored = [self.shape.stored[i] or self.target.field(i) for i in present]
        stored = [one.with_name(self.names[i]) for i, one in zip(present, stored)]
        convert = _Conversion(pa.schema(stored), self.target, self.wanted)
        columns = [_named(self.names[i]) for i in present]
        return raw.select(*columns).mapInArrow(convert, self.wanted)


def _step(stored: pa.Field | None, wanted: pa.Field) -> str:
    """What makes a stored column today's.

    `null`: it is not in the files. `same`: nothing. `cast`: Spark's CAST, where it
    is known to give what plake gives. `arrow`: only plake knows.
    """
    if stored is None:
        return "null"
    if _alike(stored.type, wanted.type):
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


def _alike(old: pa.DataType, new: pa.DataType) -> bool:
    """Tell whether Spark, going by names, finds today's type in files of the old one."""
    if not is_nested(old) or not is_nested(new):
        return bool(old.equals(new))
    mine, theirs = children(old), children(new)
    return (
        type(old) is type(new)
        and len(mine) == len(theirs)
        and all(
            a.name == b.name and field_id(a) == field_id(b) and _alike(a.type, b.type)
            for a, b in zip(mine, theirs)
        )
    )


def _read_as(stored: pa.Field, step: str, wanted: Any) -> tuple[Any, dict[str, Any] | None]:
    """The Spark type, and what belongs to it in metadata, to read a stored column with."""
    if step != "same":
        return spark_schema(pa.schema([pa.field("stored", stored.type)]))[0].dataType, None
    # Spark pads values of char(n) where it reads them.
    kept = (wanted.metadata or {}).get(CHAR_VARCHAR)
    return wanted.dataType, None if kept is None else {CHAR_VARCHAR: kept}


def _without_nan_pruning(column: Column, stored: pa.Field, nan_ids: set[int]) -> Column:
    """The column in a form that Spark's Parquet filters do not see where NaN may be in it.

    They go by footer statistics, which leave NaN out: `x > 5` on 1, NaN, 1 would
    skip the row group, and the NaN with it.
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
    """Runs on executors: stored rows to today's, as plake's own reader does it."""

    stored: pa.Schema
    target: pa.Schema
    wanted: StructType

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        output = batch_schema(self.wanted)
        for batch in batches:
            table = pa.Table.from_batches([batch])
            table = align(table, self.stored, table.schema, by_name)
            table = align(table, self.target, self.stored, by_id)
            yield from align(table, output, table.schema, by_name).to_batches()

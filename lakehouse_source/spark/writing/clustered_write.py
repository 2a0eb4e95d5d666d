"""Door. `write`: clusters the rows of a frame for pruning, then writes with format `plake`.

A plain write moves no rows: each task writes a file for each of its partition values, and the
statistics of every file are as wide as the data. Here Spark first moves the rows of a partition,
and rows with similar values, into the same files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakehouse_source.arguments import column_names, path_text
from lakehouse_source.errors import DatasetNotFoundError, InvalidOptionError, SchemaMismatchError
from lakehouse_source.layout import Curve
from lakehouse_source.parquet.writer import column_arrays
from lakehouse_source.properties import DatasetProperties
from lakehouse_source.read.address import Address, PathLike
from lakehouse_source.schema.fields import find_name
from lakehouse_source.schema.variant_paths import split
from lakehouse_source.spark.session.options import on_branch
from lakehouse_source.spark.session.secrets import PREFIX, take_configuration
from lakehouse_source.spark.types import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


# --- Distributes the rows of a frame to Spark's tasks along a curve through several columns.


# The most rows of the sample for the curve: of each task of the frame, and of all tasks.
_TASK_ROWS = 2_000
_ROWS = 100_000
# A column of the frame while its rows are moved.
_KEY = "__plake_curve"


def leaf_columns(df: DataFrame) -> Mapping[str, tuple[str, ...]]:
    """The paths of columns and of fields of structs, by dotted path in lower case.

    Of a column of VARIANT only the column: see `_path_of`.
    """
    from pyspark.sql.types import StructType

    found: dict[str, tuple[str, ...]] = {}

    def walk(struct: StructType, above: tuple[str, ...]) -> None:
        for field in struct:
            path = (*above, field.name)
            if isinstance(field.dataType, StructType):
                walk(field.dataType, path)
            else:
                found.setdefault(".".join(path).lower(), path)

    walk(df.schema, ())
    return found


def along_curve(
    df: DataFrame, partitions: Sequence[str], paths: Sequence[tuple[str, ...]]
) -> DataFrame:
    """The frame with its rows divided among tasks, and sorted, by partitions and the curve.

    By one column without a curve: by its values.
    """
    from pyspark.sql import functions as F

    groups = [_columns_at(df, path) for path in paths]
    widths, columns = [*map(len, groups)], [column for group in groups for column in group]
    folders = [F.col(quoted(name)) for name in partitions]
    if len(groups) == 1:
        order = [*folders, *columns]
        return df.repartitionByRange(*order).sortWithinPartitions(*order)
    key = _key_of(_curve(df, columns, widths), widths)
    order = [*folders, F.col(_KEY)]
    moved = df.withColumn(_KEY, key(*columns)).repartitionByRange(*order)
    return moved.sortWithinPartitions(*order).drop(_KEY)


def _columns_at(df: DataFrame, path: tuple[str, ...]) -> list[Column]:
    """The column at a path; of what is in a VARIANT two, its value as a number and as a text."""
    from pyspark.sql import functions as F

    if df.schema[path[0]].dataType.typeName() != "variant":
        return [F.col(".".join(map(quoted, path)))]
    within = ".".join(("$", *path[1:]))
    return [F.try_variant_get(quoted(path[0]), within, type_) for type_ in ("double", "string")]


def _keys_of(columns: Sequence[pa.Array], widths: Sequence[int]) -> list[pa.Array]:
    """What is compared of the columns of each path."""
    from lakehouse_source.schema.variant_columns import number_or_text_keys  # imports numpy

    given = iter(columns)
    return [
        next(given) if width == 1 else number_or_text_keys(next(given), next(given))
        for width in widths
    ]


def _curve(df: DataFrame, columns: Sequence[Column], widths: Sequence[int]) -> Curve:
    """The curve for the frame, from sample rows of each of its tasks."""
    from pyspark.sql import functions as F

    names = [str(number) for number in range(len(columns))]
    narrow = df.select(*(column.alias(name) for column, name in zip(columns, names)))
    some = narrow.mapInArrow(some_rows, narrow.schema)
    drawn = some.orderBy(F.rand(1)).limit(_ROWS).toArrow()
    return Curve.of(_keys_of(column_arrays(drawn, [(name,) for name in names]), widths))


def some_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Evenly spread rows of a task: all of a small one, else 1 to 2 times `_TASK_ROWS`."""
    held: pa.Table | None = None
    step, skip = 1, 0  # one of `step` rows is taken, after `skip` rows
    for batch in batches:
        chosen = pa.array(range(skip, batch.num_rows, step), pa.int64())
        skip += len(chosen) * step - batch.num_rows
        taken = pa.Table.from_batches([batch]).take(chosen)
        held = taken if held is None else pa.concat_tables([held, taken])
        while held.num_rows > 2 * _TASK_ROWS:
            held = held.take(pa.array(range(0, held.num_rows, 2), pa.int64()))
            step *= 2
    if held is not None:
        yield from held.combine_chunks().to_batches()


def _key_of(curve: Curve, widths: Sequence[int]) -> Any:
    """A Spark function that computes the places of rows on the curve."""
    from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]

    def key(*columns: pa.Array) -> pa.Array:
        return curve.keys(_keys_of(columns, widths))

    return arrow_udf(key, "long")


def write(
    df: DataFrame,
    uri: PathLike,
    mode: str = "append",
    partition_by: str | Sequence[str] | None = None,
    sort_by: str | Sequence[str] | None = None,
    catalog: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    cluster_by: str | Sequence[str] | None = None,
    **options: Any,
) -> None:
    """Write a frame in few files with narrow statistics, as one new version.

    This costs one shuffle. With `sort_by` or `cluster_by` Spark also takes a sample, for which it
    computes the frame a second time; for several columns of `cluster_by`, a third time. So cache an
    expensive frame. Spark's adaptive execution sets the sizes of tasks, and so of files
    (`spark.sql.adaptive.advisoryPartitionSizeInBytes`).

    Args:
        mode: `"append"` or `"overwrite"`.
        partition_by: as the option `partitionBy`. Default: the partition columns of
            the existing dataset. A partition value with far more rows than others is
            divided among tasks.
        sort_by: columns by which the whole frame is sorted. The files of a partition
            value then do not overlap, so a condition on the first column reads only
            the few files that can match it. Default: the property `sort_by` of the
            existing dataset; an empty list: not sorted.
        cluster_by: one to four columns, nested ones by dotted path, by which the rows of the whole
            frame are placed, along a Hilbert curve if there are several; then `sort_by` only orders
            the rows in a row group. Default: the property `cluster_by` of the existing dataset,
            unless `sort_by` is given; an empty list: no columns.
        storage_options: as options `storage.NAME` of the format: secrets as `env:NAME`.
        options: options of `df.write.format("plake")` under the same names, such as
            `mergeSchema=True` or `targetFileSize="64m"`.

    Raises:
        InvalidOptionError: an unknown mode, or an option that is an argument here.
        SchemaMismatchError: the frame lacks a column of `partition_by`, `sort_by` or
            `cluster_by`.
        Everything that `df.write.format("plake").save()` raises.

    >>> df = spark.read.format("plake").load("/data/flights")
    >>> lake.spark.write(df, "/data/sorted", partition_by="month", sort_by=["miles"])
    >>> lake.read_dataset("/data/sorted").num_rows
    4
    """
    if mode not in ("append", "overwrite"):
        known = ("append", "overwrite")
        raise InvalidOptionError(
            option="mode", value=mode, reason="is not a way to write.", known=known
        )
    for name in options:
        if name.lower() in ("path", "catalog", "partitionby", "sortby", "clusterby"):
            reason = "is an argument here: uri, catalog, partition_by, sort_by or cluster_by."
            raise InvalidOptionError(option=name, reason=reason)
    take_configuration()
    chosen = column_names("partition_by", partition_by)
    sort_columns = column_names("sort_by", sort_by)
    cluster_columns = column_names("cluster_by", cluster_by)
    branch = next((value for name, value in options.items() if name.lower() == "branch"), None)
    here = on_branch(path_text("path", uri), None if branch is None else str(branch))
    existing = _existing_properties(here, catalog, storage_options)
    partitions = existing.partition_by if chosen is None else chosen
    clustered = _placed(df, existing, partitions, sort_columns, cluster_columns)
    writer = clustered.write.format("plake").mode(mode)
    for option, names in (
        ("partitionBy", chosen or None),
        ("sortBy", sort_columns),
        ("clusterBy", cluster_columns),
    ):
        if names is not None:
            writer = writer.option(option, ",".join(quoted(name) for name in names))
    if catalog is not None:
        writer = writer.option("catalog", catalog)
    for name, value in options.items():
        # None means the default, as in every function of plake.
        if value is not None:
            writer = writer.option(name, value)
    for name, value in (storage_options or {}).items():
        writer = writer.option(PREFIX + name, value)
    writer.save(path_text("path", uri))


_FLAT = "partition_by or sort_by"


def _placed(
    df: DataFrame,
    existing: DatasetProperties,
    partitions: Sequence[str],
    sort_columns: Sequence[str] | None,
    cluster_columns: Sequence[str] | None,
) -> DataFrame:
    """The frame with its rows moved to the tasks that write them, by the given columns.

    Without given columns, by those of the dataset; a column that the frame lacks is NULL in all
    rows.
    """
    layout = existing.layout
    in_folders = tuple(name for (name,) in _paths_of(df, partitions, _column_at, _FLAT))
    if cluster_columns is not None:
        paths = _paths_of(df, cluster_columns, _path_of, "cluster_by")
    else:
        names = () if sort_columns else layout.cluster_by or ()
        found = [_path_of(df, name) for name in names]
        paths = [path for path in found if path is not None]
    paths = [path for path in paths if path[0] not in in_folders]
    if sort_columns is None:
        sort_columns = [name for name in layout.sort_by or () if _sorted_at(df, name)]
    by = _paths_of(df, sort_columns, _sorted_at, _FLAT)
    return along_curve(df, in_folders, paths) if paths else _clustered(df, in_folders, by)


def _clustered(
    df: DataFrame, partitions: tuple[str, ...], by: Sequence[tuple[str, ...]]
) -> DataFrame:
    from pyspark.sql import functions as F

    columns = [F.col(quoted(name)) for name in partitions]
    columns += [column for path in by for column in _columns_at(df, path)]
    if not columns:
        return df
    # Ranges over all columns, so that the sort columns divide a large partition. Without an order,
    # adaptive execution divides large partitions and joins small ones.
    ranges = df.repartitionByRange(*columns) if by else df.hint("rebalance", *columns)
    # Needed without `sort_by` too: a task then has one file open at a time.
    return ranges.sortWithinPartitions(*columns)


def _existing_properties(
    uri: PathLike, catalog: str | None, storage_options: Mapping[str, str] | None
) -> DatasetProperties:
    """The properties of the dataset; empty ones if there is no dataset yet."""
    address = Address(uri, catalog, storage_options)
    try:
        with address.open() as opened, opened.read() as reader:
            return address.snapshot(opened, reader).dataset.properties
    except DatasetNotFoundError:
        return DatasetProperties()


def _paths_of(
    df: DataFrame,
    names: Sequence[str],
    find: Callable[[DataFrame, str], tuple[str, ...] | None],
    option: str,
) -> list[tuple[str, ...]]:
    """Where the columns are that an option names, as the frame spells them, each once."""
    paths: dict[tuple[str, ...], None] = {}
    for name in names:
        path = find(df, name)
        if path is None:
            known = map(".".join, leaf_columns(df).values()) if find is _path_of else df.columns
            raise SchemaMismatchError(
                column=name,
                reason=f"is named in {option} and is not in the frame",
                hint=f"It has: {', '.join(known)}.",
            )
        paths[path] = None
    return list(paths)


def _column_at(df: DataFrame, name: str) -> tuple[str, ...] | None:
    """A column; None: the frame lacks it."""
    found = find_name(name, df.columns)
    return None if found is None else (found,)


def _sorted_at(df: DataFrame, name: str) -> tuple[str, ...] | None:
    """A column, or what is in a VARIANT; None: the frame lacks it."""
    return _column_at(df, name) or (_path_of(df, name) if ":" in name else None)


def _path_of(df: DataFrame, name: str) -> tuple[str, ...] | None:
    """The path of a leaf column, or of what is in a VARIANT; None: the frame lacks it."""
    known = leaf_columns(df)
    parts = split(name)
    column = None if parts is None else known.get(parts[0].lower())
    if name.lower() in known or parts is None or column is None or len(column) > 1:
        return known.get(name.lower())
    is_variant = df.schema[column[0]].dataType.typeName() == "variant"
    return (*column, *parts[1]) if is_variant else None

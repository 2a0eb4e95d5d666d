"""Door. `write`: a frame is laid out for pruning, and then written by format `plake`.

A plain write leaves rows where they are: every task writes a file for every
partition value that it meets, with statistics as wide as the data. Here Spark
brings together first what belongs together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lakehouse_source.errors import DatasetNotFoundError, InvalidOptionError, SchemaMismatchError
from lakehouse_source.read.address import Address, PathLike
from lakehouse_source.schema.fields import find_name
from lakehouse_source.spark.to_spark_sql import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def write(
    df: DataFrame,
    uri: PathLike,
    mode: str = "append",
    partition_by: str | Sequence[str] | None = None,
    sort_by: str | Sequence[str] | None = None,
    catalog: str | None = None,
    **options: Any,
) -> None:
    """Write a frame in few files with narrow statistics, as one new version.

    Costs one shuffle; with `sort_by` also a look at a sample, for which Spark
    computes the frame once more (cache an expensive one). Sizes of tasks, and so of
    files, are those of Spark's adaptive execution
    (`spark.sql.adaptive.advisoryPartitionSizeInBytes`).

    Args:
        mode: `"append"` or `"overwrite"`.
        partition_by: as the option `partitionBy`. An existing dataset's own columns
            where it is not given. A partition value far larger than others is
            divided among tasks.
        sort_by: columns by which rows are sorted throughout: files (of one partition
            value) do not overlap, so that a condition on the first column reads the
            few files that can match it.
        options: options of `df.write.format("plake")` by their names there, such as
            `mergeSchema=True` or `targetFileSize="64m"`.

    Raises:
        InvalidOptionError: another mode, or an option that is given twice.
        SchemaMismatchError: the frame has no such column.
        Whatever `df.write.format("plake").save()` raises.
    """
    if mode not in ("append", "overwrite"):
        known = ("append", "overwrite")
        raise InvalidOptionError(
            option="mode", value=mode, reason="is not a way to write.", known=known
        )
    for name in options:
        if name.lower() in ("path", "catalog", "partitionby", "sortby"):
            raise InvalidOptionError(
                option=name, reason="is an argument here: uri, catalog, partition_by or sort_by."
            )
    chosen = _listed(partition_by)
    partitions = _own_partitions(uri, catalog) if chosen is None else chosen
    arranged = _arranged(df, _spelled(df, partitions), _spelled(df, _listed(sort_by) or ()))
    writer = arranged.write.format("plake").mode(mode)
    if chosen:
        writer = writer.option("partitionBy", ",".join(f"`{name}`" for name in chosen))
    if catalog is not None:
        writer = writer.option("catalog", catalog)
    for name, value in options.items():
        # None leaves the default, as everywhere.
        if value is not None:
            writer = writer.option(name, value)
    writer.save(Address(uri, catalog).given)


def _arranged(df: DataFrame, partitions: tuple[str, ...], sorted_by: tuple[str, ...]) -> DataFrame:
    from pyspark.sql import functions as F

    columns = [F.col(quoted(name)) for name in (*partitions, *sorted_by)]
    if not columns:
        return df
    # By both where there are both: what divides a large partition is what it is sorted by.
    # Without an order adaptive execution divides large partitions and puts small ones together.
    ranges = df.repartitionByRange(*columns) if sorted_by else df.hint("rebalance", *columns)
    # Also where only partitions count: a task then has one file open at a time.
    return ranges.sortWithinPartitions(*columns)


def _own_partitions(uri: PathLike, catalog: str | None) -> tuple[str, ...]:
    """The partition columns of the dataset, none where there is no dataset yet."""
    address = Address(uri, catalog)
    try:
        with address.open() as opened, opened.read() as reader:
            return address.snapshot(opened, reader).partition_by
    except DatasetNotFoundError:
        return ()


def _listed(names: str | Sequence[str] | None) -> tuple[str, ...] | None:
    if names is None:
        return None
    return (names,) if isinstance(names, str) else tuple(names)


def _spelled(df: DataFrame, names: Sequence[str]) -> tuple[str, ...]:
    """The frame's own spelling of columns, each once."""
    chosen: dict[str, None] = {}
    for name in names:
        found = find_name(name, df.columns)
        if found is None:
            raise SchemaMismatchError(
                column=name,
                reason="is to be arranged by and not in the frame",
                hint=f"It has: {', '.join(df.columns)}.",
            )
        chosen[found] = None
    return tuple(chosen)

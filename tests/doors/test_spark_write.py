"""`lake.spark.write`: few files with narrow statistics, and the same rows."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import lakehouse_source as lake
from tests.doors.frames import data_files, load, rows, save
from tests.doors.test_types import setting

pytestmark = pytest.mark.spark

ADVISED = "spark.sql.adaptive.advisoryPartitionSizeInBytes"


@pytest.fixture
def scattered(spark: SparkSession) -> DataFrame:
    """4,000 rows in four tasks; every task has every `p`, and `n` in no order."""
    return (
        spark.range(4000, numPartitions=4)
        .select((F.col("id") * 2654435761 % 4001).alias("n"), (F.col("id") % 10).alias("p"))
        .withColumn("pad", F.sha2(F.col("n").cast("string"), 512))
    )


def bounds(path: Path | str, column: str) -> list[tuple[Any, Any]]:
    """Least and greatest value of a column in each file, by its own footer, in order."""
    found = []
    for file in data_files(path):
        values = pq.ParquetFile(file).read(columns=[column])[column].to_pylist()
        found.append((min(values), max(values)))
    return sorted(found)


def overlap(ranges: list[tuple[Any, Any]]) -> bool:
    return any(high >= low for (_, high), (low, _) in pairwise(ranges))


@pytest.mark.long
def test_partition_values_are_brought_together(scattered: DataFrame, tmp_path: Path) -> None:
    scattered_files = data_files(save(scattered, tmp_path / "plain", partitionBy="p"))
    assert len(scattered_files) == 40
    lake.spark.write(scattered, tmp_path / "laid", partition_by="p")
    assert len(data_files(tmp_path / "laid")) == 10
    spark = scattered.sparkSession
    assert rows(load(spark, tmp_path / "laid")) == rows(scattered)
    # The dataset's own columns are used from now on.
    lake.spark.write(scattered, tmp_path / "laid")
    assert len(data_files(tmp_path / "laid")) == 20
    assert load(spark, tmp_path / "laid").count() == 8000


def test_more_partition_values_than_files_may_be_open(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(3000, numPartitions=2).select((F.col("id") % 300).alias("p"), "id")
    lake.spark.write(frame, tmp_path / "many", partition_by=["p"])
    assert len(data_files(tmp_path / "many")) == 300
    assert rows(load(spark, tmp_path / "many")) == rows(frame)


def test_sorted_files_do_not_overlap_and_a_point_query_reads_one(
    scattered: DataFrame, tmp_path: Path
) -> None:
    spark = scattered.sparkSession
    with setting(spark, "spark.sql.shuffle.partitions", "8"), setting(
        spark, "spark.sql.adaptive.coalescePartitions.enabled", "false"
    ):  # fmt: skip
        lake.spark.write(scattered, str(tmp_path / "laid"), sort_by="N")
    files = data_files(tmp_path / "laid")
    assert 3 <= len(files) <= 8
    assert not overlap(bounds(tmp_path / "laid", "n"))
    for file in files:
        values = pq.read_table(file)["n"].to_pylist()
        assert values == sorted(values)
    assert lake.open_dataset(tmp_path / "laid").scan("n = 1234").explain().files_read == 1
    assert rows(load(spark, tmp_path / "laid")) == rows(scattered)
    save(scattered, tmp_path / "plain")
    assert overlap(bounds(tmp_path / "plain", "n"))
    assert lake.open_dataset(tmp_path / "plain").scan("n = 1234").explain().files_read == 4


@pytest.mark.long
def test_the_dataset_says_by_what_frames_are_sorted(scattered: DataFrame, tmp_path: Path) -> None:
    spark, uri = scattered.sparkSession, tmp_path / "laid"
    with setting(spark, "spark.sql.shuffle.partitions", "4"), setting(
        spark, "spark.sql.adaptive.coalescePartitions.enabled", "false"
    ):  # fmt: skip
        lake.spark.write(scattered, uri, sort_by="N")
        dataset = lake.open_dataset(uri)
        assert dataset.properties["sort_by"] == ["n"]
        lake.spark.write(scattered, uri, mode="overwrite")
        live = [uri / file.path for file in dataset.refresh().files()]
        values = [pq.read_table(file)["n"].to_pylist() for file in live]
        assert len(live) >= 3
        assert all(one == sorted(one) for one in values)
        assert not overlap(sorted((one[0], one[-1]) for one in values))
        lake.spark.write(scattered, uri, mode="overwrite", sort_by=["pad"])
        lake.spark.write(scattered.drop("n"), uri)  # nothing to sort by: the column is NULL
    live = [uri / file.path for file in dataset.refresh().files() if file.version == 3]
    values = [pq.read_table(file)["pad"].to_pylist() for file in live]
    assert all(one == sorted(one) for one in values)
    assert dataset.properties["sort_by"] == ["n"]
    assert load(spark, uri).count() == 8000


@pytest.mark.long
@pytest.mark.parametrize("by", [None, "p"])
def test_files_of_a_frame_are_narrow_in_each_clustering_column(
    spark: SparkSession, tmp_path: Path, by: str | None
) -> None:
    frame = spark.range(20_000, numPartitions=4).select(
        (F.col("id") % 2).alias("p"),
        F.concat(F.lit("k"), F.lpad((F.col("id") * 7919 % 10_007).cast("string"), 6, "0")).alias(
            "k"
        ),
        F.struct(
            F.when(F.col("id") % 50 > 0, (F.col("id") * 104_729 % 10_009) / 8).alias("x")
        ).alias("s"),
    )
    with setting(spark, "spark.sql.shuffle.partitions", "16"), setting(
        spark, "spark.sql.adaptive.coalescePartitions.enabled", "false"
    ):  # fmt: skip
        lake.spark.write(frame, tmp_path / "laid", partition_by=by, cluster_by=["S.x", "K"])
        dataset = lake.open_dataset(tmp_path / "laid")
        assert dataset.properties["cluster_by"] == ["s.x", "k"]
        lake.spark.write(frame, tmp_path / "laid", mode="overwrite")  # as the dataset says
    dataset.refresh()
    assert rows(load(spark, tmp_path / "laid")) == rows(frame)
    every = len(dataset.files())
    assert every >= 12
    for condition in ("k = 'k005000'", "s.x = 500"):
        # A square of 16 cells has 4 along each side; curves through samples are less even.
        assert 1 <= dataset.scan(condition).explain().files_read <= every / 2
    with pytest.raises(lake.SchemaMismatchError, match="named in cluster_by"):
        lake.spark.write(frame, tmp_path / "laid", cluster_by=["s"])


def test_partitions_are_sorted_inside_and_large_ones_divided(
    spark: SparkSession, tmp_path: Path
) -> None:
    frame = spark.range(20_000, numPartitions=4).select(
        F.when(F.col("id") < 18_000, 0).otherwise(F.col("id") % 5).alias("p"),
        (F.col("id") * 7919 % 20_011).alias("n"),
    )
    with setting(spark, "spark.sql.shuffle.partitions", "8"), setting(
        spark, "spark.sql.adaptive.coalescePartitions.enabled", "false"
    ):  # fmt: skip
        lake.spark.write(frame, tmp_path / "laid", partition_by="p", sort_by=["n"])
    found = Counter(file.parent.name for file in data_files(tmp_path / "laid"))
    assert set(found) == {f"p={p}" for p in range(5)}
    assert found["p=0"] >= 5
    assert sum(found.values()) <= 8 + 5
    for p in range(5):
        assert not overlap(bounds(tmp_path / "laid" / f"p={p}", "n"))
    scan = lake.open_dataset(tmp_path / "laid").scan("p = 0 AND n = 7919")
    assert scan.explain().files_read == 1
    assert rows(load(spark, tmp_path / "laid")) == rows(frame)


def test_a_partition_far_larger_than_others_is_divided(spark: SparkSession, tmp_path: Path) -> None:
    frame = (
        spark.range(60_000, numPartitions=4)
        .select(F.when(F.col("id") < 57_000, 0).otherwise(F.col("id") % 5).alias("p"), "id")
        .withColumn("pad", F.sha2(F.col("id").cast("string"), 512))
    )
    with setting(spark, ADVISED, "1m"):
        lake.spark.write(frame, tmp_path / "skewed", partition_by="p")
    found = Counter(file.parent.name for file in data_files(tmp_path / "skewed"))
    assert found["p=0"] > 1
    assert all(found[f"p={p}"] == 1 for p in range(1, 5))
    assert load(spark, tmp_path / "skewed").count() == 60_000


@pytest.mark.long
def test_options_and_modes_are_those_of_the_format(scattered: DataFrame, tmp_path: Path) -> None:
    spark = scattered.sparkSession
    uri = tmp_path / "laid"
    where = {"catalog": f"sqlite:///{tmp_path}/own.db"}
    lake.spark.write(scattered, uri, partition_by="p", **where)
    more = scattered.withColumn("late", F.lit(1)).where("p = 3")
    lake.spark.write(more, uri, mergeSchema=True, commitMetadata='{"who": "me"}', **where)
    assert lake.open_dataset(uri, catalog=where["catalog"]).history()[0].metadata == {"who": "me"}
    lake.spark.write(
        more.limit(7), uri, mode="overwrite", overwriteWhere="p = 3", sort_by="n", **where
    )
    frame = load(spark, uri, **where)
    assert frame.where("p = 3").count() == 7
    assert frame.count() == 3607


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"mode": "error"}, "mode"),
        ({"sortBy": "n"}, "sortBy"),
        ({"clusterBy": "n"}, "clusterBy"),
        ({"PartitionBy": "p"}, "PartitionBy"),
        ({"path": "x"}, "path"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    scattered: DataFrame, tmp_path: Path, arguments: dict[str, str], named: str
) -> None:
    with pytest.raises(lake.InvalidOptionError, match=named):
        lake.spark.write(scattered, tmp_path / "refused", **arguments)
    assert not (tmp_path / "refused").exists()


def test_a_column_that_is_not_there_is_named(scattered: DataFrame, tmp_path: Path) -> None:
    with pytest.raises(lake.SchemaMismatchError, match="'q'"):
        lake.spark.write(scattered, tmp_path / "refused", sort_by=["n", "q"])


def test_awkward_column_names(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(20).select(
        (F.col("id") % 2).alias("a,b.c"), F.col("id").alias("x y"), F.col("id").alias("n")
    )
    lake.spark.write(frame, tmp_path / "odd", partition_by=["a,b.c"], sort_by=["x y"])
    assert lake.open_dataset(tmp_path / "odd").partition_by == ("a,b.c",)
    assert rows(load(spark, tmp_path / "odd")) == rows(frame)

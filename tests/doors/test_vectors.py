"""Vectors and matrices of Spark ML keep their types, so that models are fitted over a table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.ml.classification import LogisticRegression
from pyspark.ml.linalg import Matrices, MatrixUDT, Vectors, VectorUDT
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, StructType

import lakehouse_source as lake
from lakehouse_source.spark.protocol.vocabulary import Setting

pytestmark = pytest.mark.spark


@pytest.fixture
def frame(spark_catalog: SparkSession) -> DataFrame:
    rows = [
        (float(i % 2), Vectors.dense([i, -i]) if i % 3 else Vectors.sparse(2, [0], [i]))
        for i in range(40)
    ]
    vectors = spark_catalog.createDataFrame(rows, ["label", "features"])
    return vectors.selectExpr(
        "label", "features", "array(features) AS many", "named_struct('v', features) AS one"
    )


def catalog(spark: SparkSession) -> str:
    return spark.conf.get("spark.sql.catalog.plake.catalog") or ""


def by_path(frame: DataFrame, place: str) -> None:
    writer = frame.write.format("plake").option("catalog", catalog(frame.sparkSession))
    writer.mode("append").save(place)


def by_stream(frame: DataFrame, place: str) -> None:
    by_path(frame, f"{place}-source")
    url = catalog(frame.sparkSession)
    stream = frame.sparkSession.readStream.format("plake").option("catalog", url)
    writer = stream.load(f"{place}-source").writeStream.option("catalog", url)
    writer = writer.option("checkpointLocation", f"{place}-checkpoint")
    assert writer.trigger(availableNow=True).format("plake").start(place).awaitTermination(120)


def by_query(frame: DataFrame, place: str) -> None:
    frame.createOrReplaceTempView("vectors")
    frame.sparkSession.sql(f"CREATE TABLE plake.`{place}` AS SELECT * FROM vectors")


def by_insert(frame: DataFrame, place: str) -> None:
    by_query(frame.where("label = 0"), place)
    frame.where("label = 1").writeTo(f"plake.`{place}`").append()


def by_merge(frame: DataFrame, place: str) -> None:
    by_query(frame, place)
    frame.sparkSession.sql(f"UPDATE plake.`{place}` SET label = label WHERE label = 1")


WAYS = (by_path, by_stream, by_query, by_insert, by_merge)


@pytest.mark.long
@pytest.mark.parametrize("write", WAYS)
def test_a_model_is_fitted_over_vectors_that_were_written(
    frame: DataFrame, tmp_path: Path, write: Callable[[DataFrame, str], Any]
) -> None:
    spark, place = frame.sparkSession, f"{tmp_path}/vectors"
    write(frame, place)
    url = catalog(spark)
    options = f"path '{place}', catalog '{url}'"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW v USING plake OPTIONS ({options})")
    expected = sorted(map(str, frame.collect()))
    for reader in ("python", "spark"):
        spark.conf.set(Setting.READER, reader)
        try:
            by_name, view = spark.table(f"plake.`{place}`"), spark.table("v")
            by_path_too = spark.read.format("plake").option("catalog", url).load(place)
            for read in (by_path_too, by_name, view):
                types = [field.dataType for field in read.schema]
                assert types[1:3] == [VectorUDT(), ArrayType(VectorUDT(), True)]
                assert isinstance(types[3], StructType)
                assert types[3]["v"].dataType == VectorUDT()
                assert sorted(map(str, read.collect())) == expected
            assert LogisticRegression(maxIter=2).fit(by_name).coefficients.size == 2
        finally:
            spark.conf.unset(Setting.READER)


def test_matrices_and_vectors_of_the_older_library(
    spark_catalog: SparkSession, tmp_path: Path
) -> None:
    from pyspark.mllib.linalg import Vectors as OldVectors

    rows = [(Matrices.dense(1, 2, [1.0, 2.0]), OldVectors.dense([1.0])), (None, None)]
    frame = spark_catalog.createDataFrame(rows, ["m", "v"])
    frame.write.format("plake").mode("append").save(f"{tmp_path}/t")
    read = spark_catalog.read.format("plake").load(f"{tmp_path}/t")
    assert read.schema == frame.schema
    assert read.schema["m"].dataType == MatrixUDT()
    assert sorted(map(str, read.collect())) == sorted(map(str, frame.collect()))


def test_a_vector_that_got_a_field_is_a_struct(frame: DataFrame, tmp_path: Path) -> None:
    frame.write.format("plake").mode("append").save(f"{tmp_path}/t")
    lake.open_dataset(tmp_path / "t").rename_column("features.size", "length")
    read = frame.sparkSession.read.format("plake").load(f"{tmp_path}/t")
    assert "length" in read.schema["features"].dataType.simpleString()
    assert read.count() == 40

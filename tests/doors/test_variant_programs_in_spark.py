"""Random programs of changes to rows with VARIANT whose statements go through Spark SQL."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import lakehouse_source as lake
from lakehouse_source.spark.protocol.vocabulary import Reader, Setting
from tests.doors.frames import load
from tests.variant_programs import Program, Rows

pytestmark = pytest.mark.spark


class SparkProgram(Program):
    """Each statement goes through Spark SQL over a view, with either reader."""

    def __init__(self, folder: Path, seed: int, spark: SparkSession) -> None:
        self.spark = spark
        super().__init__(folder, seed)

    def sql(self, text: str) -> None:
        reader = self.draw.choice([Reader.AUTO, Reader.PYTHON])
        self.spark.conf.set(Setting.READER, reader)
        self.steps[-1] += f" [{reader}]"
        self.spark.sql(
            f"CREATE OR REPLACE TEMPORARY VIEW t USING plake OPTIONS (path '{self.path}')"
        )
        self.spark.sql(text)

    def run_delete(self, condition: str) -> None:
        self.sql(f"DELETE FROM t WHERE {condition}")

    def run_update(self, value: str, condition: str) -> None:
        self.sql(f"UPDATE t SET v = {value} WHERE {condition}")

    def run_merge(self, given: Rows) -> None:
        rows = self.spark.createDataFrame(self.texts(given), "id BIGINT, text STRING")
        rows.selectExpr("id", "parse_json(text) AS v").createOrReplaceTempView("source")
        self.sql(
            "MERGE INTO t AS target USING source ON target.id = source.id "
            "WHEN MATCHED AND try_variant_get(source.v, '$.n', 'int') = 7 THEN UPDATE SET * "
            "WHEN NOT MATCHED THEN INSERT *"
        )

    def insert(self) -> None:
        texts = self.texts(self.documents(3))
        rows = self.spark.createDataFrame(texts, "id BIGINT, text STRING")
        rows = rows.selectExpr("id", "parse_json(text) AS v").coalesce(1)
        rows.write.format("plake").mode("append").save(str(self.path))

    def check_condition(self, dataset: lake.Dataset, condition: str, wanted: list[int]) -> None:
        super().check_condition(dataset, condition, wanted)
        for reader in (Reader.PYTHON, Reader.SPARK):
            self.spark.conf.set(Setting.READER, reader)
            rows = load(self.spark, self.path).where(condition).select("id").collect()
            assert sorted(row.id for row in rows) == wanted, (self.steps, condition, reader)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(8))
def test_a_dataset_has_the_rows_of_the_model(
    spark_auto: SparkSession, tmp_path: Path, seed: int
) -> None:
    program = SparkProgram(tmp_path, seed, spark_auto)
    try:
        program.run(6)
    finally:
        spark_auto.conf.unset(Setting.READER)
    assert lake.open_dataset(tmp_path / "data").verify(checksums=True).ok

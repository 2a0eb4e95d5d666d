"""Random programs of changes to rows whose statements go through Spark SQL and `spark.open`."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import lakehouse_source as lake
from lakehouse_source.spark.protocol.vocabulary import Reader, Setting
from tests.row_programs import COLUMNS, CONDITIONS, Program, bag

pytestmark = pytest.mark.spark
THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "property"


class SparkProgram(Program):
    """Each statement goes through Spark SQL over a view, through `spark.open`, or Python."""

    def __init__(self, folder: Path, seed: int, spark: SparkSession) -> None:
        self.spark = spark
        super().__init__(folder, seed)

    def door(self) -> str:
        door = self.draw.choice(["sql", "sql", "open", "python"])
        reader = self.draw.choice([Reader.AUTO, Reader.PYTHON])
        self.spark.conf.set(Setting.READER, reader)
        self.steps[-1] += f" [{door}, {reader}]"
        if door == "sql":
            options = f"OPTIONS (path '{self.path}')"
            self.spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW t USING plake {options}")
        return door

    def run_delete(self, condition: str) -> int | None:
        door = self.door()
        if door == "python":
            return super().run_delete(condition)
        if door == "sql":
            self.spark.sql(f"DELETE FROM t WHERE {condition}")
        else:
            lake.spark.open(self.spark, str(self.path)).delete(condition)
        return None

    def run_update(self, updates: dict[str, str], condition: str) -> int | None:
        door = self.door()
        if door == "python":
            return super().run_update(updates, condition)
        if door == "sql":
            values = ", ".join(f"{name} = {value}" for name, value in updates.items())
            self.spark.sql(f"UPDATE t SET {values} WHERE {condition}")
        else:
            lake.spark.open(self.spark, str(self.path)).update(condition, updates)
        return None

    def run_merge(self, merge: lake.MergeBuilder, source: pa.Table, text: str) -> None:
        if self.door() != "sql":
            super().run_merge(merge, source, text)
            return
        self.spark.createDataFrame(source).createOrReplaceTempView("source")
        self.spark.sql(text)

    def check(self) -> None:
        super().check()
        frame = self.spark.read.format("plake").load(str(self.path)).select(*COLUMNS)
        condition = self.draw.choice(CONDITIONS)
        query = f"SELECT {', '.join(COLUMNS)} FROM t WHERE {condition}"
        wanted = self.oracle.execute(query).fetchall()
        found = frame.where(condition).collect()
        rows = [tuple(row.asDict(recursive=True).values()) for row in found]
        assert bag(rows) == bag(wanted), (self.steps, condition)
        assert frame.where(condition).count() == len(wanted), (self.steps, condition)


@pytest.mark.long
@pytest.mark.timeout(14400)
@settings(
    max_examples=200 if THOROUGH else 1,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
)
@given(seed=st.integers(0, 2**32))
def test_a_dataset_has_the_rows_of_the_model(
    seed: int, spark_auto: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> None:
    program = SparkProgram(tmp_path_factory.mktemp("program"), seed, spark_auto)
    try:
        program.run(program.draw.randint(3, 8))
    finally:
        spark_auto.conf.unset(Setting.READER)
    assert program.dataset.verify(checksums=True).ok

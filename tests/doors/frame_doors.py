"""Doors of Spark by which the rows of a frame come into a table of plake's catalog."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

import lakehouse_source as lake


def by_path(frame: DataFrame, dataset: lake.Dataset, **options: Any) -> None:
    writer = frame.write.format("plake").mode(options.pop("mode", "append"))
    catalog = frame.sparkSession.conf.get("spark.sql.catalog.plake.catalog")
    writer.options(catalog=catalog, **options).save(dataset.uri)


def by_stream(frame: DataFrame, dataset: lake.Dataset, table: str) -> None:
    folder = Path(dataset.uri[7:]).parent
    frame.write.mode("overwrite").parquet(f"{folder}/incoming")
    (
        frame.sparkSession.readStream.schema(frame.schema)
        .parquet(f"{folder}/incoming")
        .writeStream.option("checkpointLocation", f"{folder}/checkpoint-{frame.count()}")
        .trigger(availableNow=True)
        .toTable(table)
        .awaitTermination()
    )

"""Rows that Spark orders by paths of VARIANT: CLUSTER BY, procedures and `lake.spark.write`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import lakehouse_source as lake
from tests.doors.plake_command import plake

pytestmark = pytest.mark.slow

USER = "id * 7919 % 20000"
DOCUMENT = "named_struct('user', named_struct('id', {0}, 'name', concat('n', lpad({0}, 5, '0'))))"
EVENTS = (
    "CAST(id AS INT) AS id",
    f"parse_json(to_json({DOCUMENT.format('id * 7919 % 20000')})) AS v",
)
PROPERTIES = "'variant_paths' = 'v:user.id, v:user.name', 'row_group_rows' = '500'"
WHERE = "v:user.id::int BETWEEN 700 AND 719"


def reads(dataset: lake.Dataset, where: str = WHERE) -> tuple[int, int]:
    """The row groups that a condition reads, and the rows that it finds."""
    scan = dataset.scan(where)
    return scan.explain().row_groups_read, scan.count_rows()


def test_cluster_by_a_path_is_a_statement(spark_catalog: SparkSession) -> None:
    def rows(text: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in spark_catalog.sql(text).collect()]

    folder = spark_catalog.conf.get("spark.sql.catalog.plake.warehouse")
    url = spark_catalog.conf.get("spark.sql.catalog.plake.catalog")
    rows("CREATE NAMESPACE plake.by_path")
    rows(f"CREATE TABLE plake.by_path.t (id INT, v VARIANT) TBLPROPERTIES ({PROPERTIES})")
    # Spark itself refuses a name that is no column in CREATE TABLE, where the property stands.
    rows("ALTER TABLE plake.by_path.t CLUSTER BY (`v:user.id`)")
    more = f"TBLPROPERTIES ({PROPERTIES}, 'cluster_by' = 'v:user.name')"
    rows(f"CREATE TABLE plake.by_path.u (id INT, v VARIANT) {more}")
    for part in range(6):
        rows(f"INSERT INTO plake.by_path.t SELECT {', '.join(EVENTS)} FROM range({part}, 20000, 6)")
    with lake.open_catalog(url, warehouse=folder) as catalog:

        def table() -> lake.Dataset:
            return catalog.dataset(("by_path", "t"))

        assert table().properties["cluster_by"] == ["v:user.id"]
        other = catalog.dataset(("by_path", "u"))
        assert other.properties["cluster_by"] == ["v:user.name"]
        rows("CALL plake.system.cluster(table => 'plake.by_path.t')")
        assert rows(f"SELECT count(*) FROM plake.by_path.t WHERE {WHERE}") == [(20,)]
        assert reads(table()) == (1, 20)
        rows("ALTER TABLE plake.by_path.t CLUSTER BY (`v:user.name`)")
        rows("OPTIMIZE plake.by_path.t FULL")
        assert reads(table(), "v:user.name::string = 'n00700'") == (1, 1)
        with pytest.raises(AnalysisException, match="Name it in variant_paths too"):
            rows("ALTER TABLE plake.by_path.t CLUSTER BY (`v:user.zip`)")
        rows("ALTER TABLE plake.by_path.t RENAME COLUMN v TO w")
        assert table().properties["cluster_by"] == ["w:user.name"]
        with pytest.raises(AnalysisException, match="is clustered by and cannot be dropped"):
            rows("ALTER TABLE plake.by_path.t DROP COLUMN w")
        rows("INSERT INTO plake.by_path.t SELECT -1, NULL")
        rows("ALTER TABLE plake.by_path.t CLUSTER BY NONE")
        assert table().properties.get("cluster_by") is None
        assert rows("SELECT count(*), sum(id) FROM plake.by_path.t") == [(20_001, 199_989_999)]


@pytest.mark.parametrize("by", [["v:user.id"], ["v:user.id", "v:user.name"], ["V:user.name"]])
@pytest.mark.parametrize("kind", ["cluster_by", "sort_by"])
def test_a_frame_is_placed_by_paths(
    spark: SparkSession, by: list[str], kind: str, tmp_path: Path
) -> None:
    df = spark.range(0, 20_000, 1, 6).selectExpr(*EVENTS)
    options = {"variantPaths": "v:user.id, v:user.name", "rowGroupRows": "500"}
    for mode in ("overwrite", "append"):
        given = {kind: by, **options} if mode == "overwrite" else {}
        lake.spark.write(df, tmp_path, mode=mode, **given)
    dataset = lake.open_dataset(tmp_path)
    assert dataset.properties[kind] == [name.lower() for name in by]
    read, found = reads(dataset)
    assert found == 40
    assert read <= 12  # of 80
    shown = plake("properties", str(tmp_path))
    assert by[0].lower() in str(shown)

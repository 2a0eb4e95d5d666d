"""Arguments of the wrong kind are refused by name, and never read as something else."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lakehouse_source as lake


@pytest.fixture
def dataset(tmp_path: Path) -> lake.Dataset:
    uri = str(tmp_path / "d")
    for number in (1, 2):
        lake.write_dataset({"id": [number], "b": ["x"]}, uri)
    return lake.open_dataset(uri)


def test_columns_in_an_iterator_are_read(dataset: lake.Dataset) -> None:
    scan = dataset.scan(columns=(name for name in ["b", "id"]))
    assert scan.to_table().column_names == ["b", "id"]
    assert scan.count_rows() == 2
    assert [rows.to_pydict() for _, rows in dataset.read_changes(1, columns="id")] == [{"id": [2]}]


def test_numbers_of_numpy_are_ages(dataset: lake.Dataset) -> None:
    day: Any
    for day in (np.int64(86_400), np.float32(86_400), Decimal(86_400)):
        assert dataset.expire_versions(keep_seconds=day).expired == ()
        assert dataset.vacuum(retention_seconds=day, abandoned_after_seconds=day).removed == ()
        dataset.maintain(keep_seconds=day, retention_seconds=day)


WRONG: dict[str, Callable[[lake.Dataset], Any]] = {
    "path of read_dataset": lambda _: lake.read_dataset(None),  # type: ignore[arg-type]
    "path of open_dataset": lambda _: lake.open_dataset(None),  # type: ignore[arg-type]
    "version": lambda dataset: dataset.scan(version=True).to_table(),
    "version of restore": lambda dataset: dataset.restore(True),
    "no version of restore": lambda dataset: dataset.restore(None),  # type: ignore[arg-type]
    "version of verify": lambda dataset: dataset.verify(True),
    "checksums": lambda dataset: dataset.verify(checksums="no"),  # type: ignore[arg-type]
    "version of a tag": lambda dataset: dataset.tag("t", True),
    "timestamp": lambda dataset: dataset.scan(timestamp=5).to_table(),  # type: ignore[arg-type]
    "keep_last": lambda dataset: dataset.expire_versions(keep_last=True),
    "keep_seconds": lambda dataset: dataset.expire_versions(keep_seconds="0"),  # type: ignore[arg-type]
    "dry_run": lambda dataset: dataset.vacuum(dry_run="true"),  # type: ignore[arg-type]
    "allow_short_retention": lambda dataset: dataset.vacuum(
        retention_seconds=0,
        allow_short_retention="no",  # type: ignore[arg-type]
    ),
    "nullable": lambda dataset: dataset.set_nullable("id", None),  # type: ignore[arg-type]
    "updates": lambda dataset: dataset.update("id = 1"),  # type: ignore[arg-type]
    "condition": lambda dataset: dataset.merge({"id": [1]}, None),  # type: ignore[arg-type]
    "tag": lambda dataset: dataset.tag(1),  # type: ignore[arg-type]
    "branch": lambda dataset: dataset.branch(1),  # type: ignore[arg-type]
    "paths": lambda dataset: dataset.add_files(1),  # type: ignore[arg-type]
    "since_version": lambda dataset: list(dataset.read_changes(True)),
    "skip_change_commits": lambda dataset: list(
        dataset.read_changes(1, skip_change_commits="no")  # type: ignore[arg-type]
    ),
    "catalog": lambda dataset: lake.open_dataset(dataset.uri, catalog=Path("/c.db")),  # type: ignore[arg-type]
    "table_properties": lambda dataset: dataset.set_table_properties("x"),  # type: ignore[arg-type]
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("call", WRONG)
def test_an_argument_of_another_kind_is_refused_by_name(dataset: lake.Dataset, call: str) -> None:
    with pytest.raises(lake.InvalidOptionError) as refused:
        WRONG[call](dataset)
    assert refused.value.option in call.split()
    assert dataset.refresh().version == 2
    assert dataset.history()[-1].version == 1
    assert dataset.scan(version=1).count_rows() == 1


@pytest.mark.parametrize(
    "given",
    [
        {"schema_merge": "false"},
        {"expected_version": "2"},
        {"expected_version": True},
        {"txn_app_id": 1, "txn_version": 1},
        {"txn_app_id": "a", "txn_version": "1"},
        {"partition_by": 1},
        {"sort_by": [1]},
        {"index_columns": b"id"},
        {"commit_metadata": "x"},
        {"commit_metadata": {"a": float("nan")}},
        {"overwrite_schema": "no"},
        {"storage_options": "x"},
    ],
)
def test_an_option_of_a_write_of_another_kind_is_refused_by_name(
    dataset: lake.Dataset, given: dict[str, Any]
) -> None:
    with pytest.raises(lake.InvalidOptionError) as refused:
        lake.write_dataset({"id": [3], "b": ["y"]}, dataset.uri, **given)
    assert refused.value.option in given
    assert dataset.refresh().version == 2


def test_a_text_does_not_replace_or_purge_a_dataset(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64())])
    with lake.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "w") as catalog:
        made = catalog.create_dataset("orders", schema)
        wrong: list[Callable[[], Any]] = [
            lambda: catalog.create_dataset("orders", schema, replace="no"),  # type: ignore[arg-type]
            lambda: catalog.drop("orders", purge="false"),  # type: ignore[arg-type]
            lambda: catalog.drop_namespace("default", cascade="no"),  # type: ignore[arg-type]
            lambda: catalog.create_dataset("more", {"id": "long"}),  # type: ignore[arg-type]
            lambda: catalog.create_dataset(1, schema),  # type: ignore[arg-type]
            lambda: catalog.create_dataset("more", schema, comment=1),  # type: ignore[arg-type]
            lambda: catalog.create_namespace(1),  # type: ignore[arg-type]
            lambda: catalog.dataset(1),  # type: ignore[arg-type]
        ]
        for call in wrong:
            with pytest.raises(lake.InvalidOptionError):
                call()
        assert catalog.dataset("orders").version == made.version == 1
        assert [one.name for one in catalog.datasets()] == ["orders"]

"""UPDATE and MERGE assign fields of structs: the other fields keep their values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakehouse_source as lake

TYPE = pa.struct(
    [
        pa.field("city", pa.string()),
        pa.field("zip", pa.uint16()),
        pa.field("geo", pa.struct([pa.field("x", pa.float64()), pa.field("y.z", pa.int32())])),
        pa.field("tags", pa.list_(pa.int8())),
    ]
)
ROWS: list[dict[str, Any]] = [
    {"id": 1, "a": {"city": "A", "zip": 1, "geo": {"x": 1.5, "y.z": 1}, "tags": [1, None]}},
    {"id": 2, "a": {"city": "B", "zip": 2, "geo": None, "tags": None}},
    {"id": 3, "a": None},
    {"id": 4, "a": {"city": None, "zip": 65535, "geo": {"x": None, "y.z": 4}, "tags": []}},
]


@pytest.fixture
def dataset(tmp_path: Path) -> lake.Dataset:
    schema = pa.schema([("id", pa.int64()), ("a", TYPE), ("at", pa.list_(TYPE))])
    lake.write_dataset(pa.Table.from_pylist(ROWS, schema), tmp_path)
    return lake.open_dataset(tmp_path)


def found(dataset: lake.Dataset) -> list[dict[str, Any]]:
    return sorted(dataset.scan(None, ["id", "a"]).to_table().to_pylist(), key=lambda r: r["id"])


def with_field(row: dict[str, Any], path: list[str], value: Any) -> dict[str, Any]:
    """As Spark does it: a NULL struct becomes one whose other fields are NULL."""
    changed = {**(row["a"] or dict.fromkeys(field.name for field in TYPE))}
    if len(path) == 1:
        changed[path[0]] = value
    else:
        changed["geo"] = {**(changed["geo"] or {"x": None, "y.z": None}), path[1]: value}
    return {**row, "a": changed}


def test_an_update_keeps_the_other_fields(dataset: lake.Dataset) -> None:
    dataset.update({"A.City": "upper(concat(a.city, '!'))", "a.geo.y.z": "id * 10"}, "id <> 2")
    expected = []
    for row in ROWS:
        if row["id"] != 2:
            city = None if row["a"] is None or row["a"]["city"] is None else row["a"]["city"] + "!"
            row = with_field(with_field(row, ["city"], city), ["geo", "y.z"], row["id"] * 10)
        expected.append(row)
    assert found(dataset) == expected
    assert dataset.scan(None, ["at"]).to_table()["at"].null_count == 4


def test_a_merge_assigns_fields_of_matched_rows(dataset: lake.Dataset) -> None:
    source = pa.table({"id": [1, 3, 9], "town": ["X", "Y", "Z"]})
    (
        dataset.merge(source, "target.id = source.id")
        .when_matched_update({"a.city": "source.town", "a.zip": "7"})
        .when_not_matched_by_source_update({"a.tags": "NULL"})
        .execute()
    )
    expected = []
    for row in ROWS:
        if row["id"] in (1, 3):
            town = {1: "X", 3: "Y"}[row["id"]]
            expected.append(with_field(with_field(row, ["city"], town), ["zip"], 7))
        else:
            expected.append(with_field(row, ["tags"], None))
    assert found(dataset) == expected


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"a.city": "'x'", "a": "NULL"}, lake.InvalidOptionError, "assigned twice"),
        ({"a": "NULL", "a.city": "'x'"}, lake.InvalidOptionError, "assigned twice"),
        ({"a.geo": "NULL", "a.geo.x": "1"}, lake.InvalidOptionError, "assigned twice"),
        ({"a.geo.x": "1", "a.geo": "NULL"}, lake.InvalidOptionError, "assigned twice"),
        ({"a.city": "'x'", "a.CITY": "'y'"}, lake.InvalidOptionError, "assigned twice"),
        ({"a.town": "'x'"}, lake.SchemaMismatchError, "a.town.* is not in the dataset"),
        ({"at.element.city": "'x'"}, lake.SchemaMismatchError, "at.element.city"),
        ({"a.zip": "'many'"}, lake.SchemaMismatchError, "zip|many"),
        ({"a.city": "a.nothing"}, lake.InvalidExpressionError, "nothing"),
    ],
)
def test_what_is_refused(
    dataset: lake.Dataset, given: dict[str, str], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        dataset.update(given)
    assert found(dataset.refresh()) == ROWS


def test_an_insert_assigns_whole_columns(dataset: lake.Dataset) -> None:
    merge = dataset.merge({"id": [9]}, "target.id = source.id")
    with pytest.raises(lake.SchemaMismatchError, match="an insert assigns whole columns"):
        merge.when_not_matched_insert({"id": "source.id", "a.city": "'x'"}).execute()


def test_nanoseconds_are_not_cut_off(tmp_path: Path) -> None:
    type_ = pa.struct([("n", pa.int64()), ("at", pa.timestamp("ns"))])
    lake.write_dataset(pa.table({"s": pa.array([{"n": 1, "at": 1}], type_)}), tmp_path)
    dataset = lake.open_dataset(tmp_path)
    with pytest.raises(lake.InvalidExpressionError, match="would lose data"):
        dataset.update({"s.n": "2"})

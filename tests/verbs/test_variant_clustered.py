"""Rows ordered by paths of VARIANT: clustering, `sort_by`, and what then is read."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakehouse_source as lake
from lakehouse_source.schema.variant_columns import number_or_text_keys, order_keys
from tests.doors.plake_command import plake

pytestmark = pytest.mark.slow

PATHS = ["v:user.id", "v:user.name", "v:t"]
FILES, ROWS, GROUP = 10, 2000, 500
IDS = "v:user.id::int BETWEEN 700 AND 719"
NAMES = "v:user.name::string BETWEEN 'n00700' AND 'n00719'"


def shuffled(folder: Path, **layout: Any) -> lake.Dataset:
    """Each file has users from the whole range."""
    users = list(range(FILES * ROWS))
    random.Random(1).shuffle(users)
    for start in range(0, len(users), ROWS):
        some = users[start : start + ROWS]
        documents = [{"user": {"id": u, "name": f"n{u:05}"}, "t": u / 2} for u in some]
        rows = {"id": some, "v": lake.variant(documents)}
        lake.write_dataset(rows, folder, variant_paths=PATHS, row_group_rows=GROUP, **layout)
    return lake.open_dataset(folder)


def read(dataset: lake.Dataset, where: Any) -> tuple[int, int]:
    """The row groups that a condition reads, and the rows that it finds."""
    scan = dataset.scan(where)
    return scan.explain().row_groups_read, scan.count_rows()


def test_a_clustering_by_a_path_leaves_few_row_groups_to_read(tmp_path: Path) -> None:
    dataset = shuffled(tmp_path)
    assert read(dataset, IDS) == (40, 20)
    dataset.set_properties(cluster_by=["V:user.id"])
    assert dataset.refresh().properties["cluster_by"] == ["v:user.id"]
    assert dataset.cluster().files_removed == FILES
    assert read(dataset.refresh(), IDS) == (1, 20)
    expression = pc.field("v", "user", "id").cast("int64")
    assert read(dataset, (expression >= 700) & (expression < 720)) == (1, 20)
    assert dataset.cluster().files_removed == 0
    assert dataset.health().depths["v:user.id"].most == 1
    found = dataset.scan(columns=["id"]).to_table()["id"].to_pylist()
    assert sorted(found) == list(range(FILES * ROWS))


def test_a_curve_through_two_paths_and_a_column(tmp_path: Path) -> None:
    dataset = shuffled(tmp_path)
    dataset.set_properties(cluster_by=["v:t", "v:user.name"])
    assert dataset.refresh().cluster(full=True).files_removed == FILES
    for where in (IDS, NAMES, "v:t::double BETWEEN 350 AND 359.5"):
        groups, found = read(dataset.refresh(), where)
        assert found == 20
        assert groups <= 4
    dataset.set_properties(cluster_by=["id", "v:user.id"])
    dataset.refresh().cluster(full=True)
    assert read(dataset.refresh(), IDS)[0] <= 4


@pytest.mark.parametrize("layout", [{"sort_by": ["v:user.id"]}, {"cluster_by": ["v:user.name"]}])
def test_each_write_orders_its_rows(tmp_path: Path, layout: dict[str, Any]) -> None:
    dataset = shuffled(tmp_path, **layout)
    for where in (IDS, NAMES):
        groups, found = read(dataset, where)
        assert (groups, found) == (FILES, 20)  # one of the four of each file


def test_a_file_whose_values_have_other_types_loses_no_row(tmp_path: Path) -> None:
    kinds: Sequence[Any] = (
        lambda n: n, str, lambda n: n / 4, lambda n: Decimal(n) / 4, lambda n: None, lambda n: [n],
        lambda n: n % 2 == 0, lambda n: (n, str(n), None, {"a": n})[n % 4],
    )  # fmt: skip
    for number, made in enumerate(kinds):
        documents = [{"k": made(n)} for n in range(200)]
        rows = {"id": list(range(number * 200, number * 200 + 200)), "v": lake.variant(documents)}
        lake.write_dataset(rows, tmp_path, variant_paths=["v:k"], row_group_rows=50)
    dataset = lake.open_dataset(tmp_path)
    wanted = {
        where: sorted(dataset.scan(where).to_table()["id"].to_pylist())
        for where in (
            "try_variant_get(v, '$.k', 'int') = 7",
            "try_variant_get(v, '$.k', 'string') >= '77'",
            "try_variant_get(v, '$.k', 'double') < 3",
            "v:k IS NULL",
        )
    }
    for by in ("v:k", ["v:k", "id"], "id"):
        dataset.set_properties(cluster_by=by)
        dataset.refresh().cluster(full=True)
        dataset.refresh().compact()
        for where, ids in wanted.items():
            found = dataset.refresh().scan(where).to_table()["id"].to_pylist()
            assert sorted(found) == ids, (by, where)


def test_names_follow_the_schema(tmp_path: Path) -> None:
    dataset = shuffled(tmp_path, cluster_by=["v:user.name", "v:t"], sort_by=["v:user.id"])
    dataset.rename_column("v", "w")
    properties = dataset.refresh().properties
    assert properties["cluster_by"] == ["w:user.name", "w:t"]
    assert properties["sort_by"] == ["w:user.id"]
    with pytest.raises(lake.SchemaMismatchError, match="sorted by and cannot be dropped"):
        dataset.refresh().drop_column("w")
    dataset.set_properties(sort_by=None)
    with pytest.raises(lake.SchemaMismatchError, match="clustered by and cannot be dropped"):
        dataset.refresh().drop_column("w")
    for given, words in (
        ({"variant_paths": ["w:user.id"]}, "Name it in variant_paths too"),
        ({"cluster_by": ["w:zip"]}, "Name it in variant_paths too"),
        ({"sort_by": ["w:zip"]}, "Name it in variant_paths too"),
        ({"cluster_by": ["w"]}, "no values that can be ordered"),
        ({"cluster_by": ["id:a"]}, "is not a column"),
    ):
        with pytest.raises(lake.InvalidOptionError, match=words):
            dataset.refresh().set_properties(**given)
    ids = dataset.scan("id BETWEEN 700 AND 719", version=3).count_rows()
    assert dataset.scan(IDS, version=3).count_rows() == ids
    dataset.refresh().set_properties(cluster_by=None)
    assert dataset.refresh().drop_column("w").version > 0


def test_a_restored_version_has_its_own_paths(tmp_path: Path) -> None:
    dataset = shuffled(tmp_path)
    dataset.set_properties(variant_paths=["v:user.id", "v:x"], cluster_by=["v:x", "v:user.id"])
    dataset.refresh().restore(FILES)
    properties = dataset.refresh().properties
    assert properties["variant_paths"] == PATHS
    assert properties["cluster_by"] == ["v:user.id"]
    assert dataset.cluster(full=True).files_removed == FILES
    assert read(dataset.refresh(), IDS) == (1, 20)
    dataset.set_properties(cluster_by=["v:t"])
    assert dataset.refresh().properties["cluster_by"] == ["v:t"]


def test_the_command_names_paths_too(tmp_path: Path) -> None:
    shuffled(tmp_path / "t")
    done = plake("properties", tmp_path / "t", "--set", 'cluster_by=["v:user.id"]')
    assert done.code == 0, done
    assert plake("cluster", tmp_path / "t").code == 0
    assert read(lake.open_dataset(tmp_path / "t"), IDS) == (1, 20)


MOMENT = datetime(2024, 1, 1, tzinfo=timezone.utc)
# Values in their order; those of one tuple are equal.
ASCENDING: tuple[tuple[Any, ...], ...] = (
    (None, [1], {}, {"a": {"b": 1}}), (False,), (True,), (float("-inf"),), (-(2**62),), (-1.5,),
    (-1, -1.0, Decimal("-1.00")), (-0.25,), (0, 0.0, -0.0, Decimal(0)), (Decimal("0.5"), 0.5),
    (1, Decimal(1)), (2**40,), (float("inf"),), (float("nan"),), ("",), ("A",), ("a",), ("a" * 99,),
    ("b",), ("é",), (date(1969, 1, 1),), (date(2024, 1, 1),), (MOMENT,),
    (MOMENT.replace(year=2025),), (datetime(2024, 1, 1),),
)  # fmt: skip


def test_keys_have_the_order_of_the_values() -> None:
    flat = [(place, value) for place, values in enumerate(ASCENDING) for value in values]
    random.Random(3).shuffle(flat)
    documents = lake.variant([{"a": {"b": value}} for _, value in flat])
    keys = order_keys(documents.storage, ["a", "b"]).to_pylist()
    got = sorted(zip((key or b"" for key in keys), (place for place, _ in flat)))
    assert [place for _, place in got] == sorted(place for place, _ in flat)
    for one, first in zip(keys, flat):
        for other, second in zip(keys, flat):
            assert (one == other) == (first[0] == second[0]), (first, second)
    assert order_keys(documents.storage, ["zip"]).null_count == len(flat)
    assert order_keys(documents[:0].storage, ["a"]).to_pylist() == []


def test_keys_of_numbers_or_texts() -> None:
    numbers, texts = pa.array([2.0, None, None, 1.0, -0.0]), ["2", "b", None, "1", "0"]
    keys = number_or_text_keys(numbers, pa.array(texts)).to_pylist()
    assert keys[2] is None
    assert keys[4] < keys[3] < keys[0] < keys[1]

"""A name that is unknown, a view, a folder of Parquet files: each is told as what it is."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakehouse_source as lake
from tests.doors.plake_command import plake


@pytest.fixture
def url(tmp_path: Path) -> str:
    found = f"sqlite:///{tmp_path}/lake.db"
    with lake.open_catalog(found, warehouse=tmp_path / "warehouse") as catalog:
        catalog.create_dataset("orders", pa.schema([("a", pa.int64())]))
        with catalog.write() as tx:
            tx.names.put_view(("default", "recent"), {"sql": "SELECT 1"})
    return found


CALLS = {
    "open": lambda name, url: lake.open_dataset(name, catalog=url),
    "read": lambda name, url: lake.read_dataset(name, catalog=url),
    "delete": lambda name, url: lake.open_dataset(name, catalog=url).delete("a = 1"),
}


@pytest.mark.parametrize("call", CALLS)
def test_an_unknown_name_was_told_as_a_folder(call: str, url: str) -> None:
    with pytest.raises(lake.DatasetNotFoundError) as raised:
        CALLS[call]("ordres", url)
    assert raised.value.name == "ordres"
    assert str(raised.value).startswith(f"no dataset has the name 'ordres' in catalog {url}, and")


@pytest.mark.parametrize("call", CALLS)
def test_a_view_was_told_as_a_folder(call: str, url: str) -> None:
    with pytest.raises(lake.InvalidOptionError, match=r"'recent'.*is a view"):
        CALLS[call]("recent", url)


@pytest.mark.long
def test_the_command_line_tells_the_same(url: str) -> None:
    assert "no dataset has the name 'ordres'" in plake("count", "ordres", "--catalog", url).err
    assert "is a view" in plake("scan", "recent", "--catalog", url).err
    rows = plake("ls", "--catalog", url, "-o", "json").rows
    assert [(row["name"], row["type"]) for row in rows] == [("orders", "TABLE"), ("recent", "VIEW")]
    assert rows[1]["uri"] is None


def test_count_takes_a_tag(url: str) -> None:
    dataset = lake.open_dataset("orders", catalog=url)
    lake.write_dataset({"a": [1, 2]}, "orders", catalog=url)
    dataset.refresh().tag("now")
    lake.write_dataset({"a": [3]}, "orders", catalog=url)
    for version, rows in (("now", 2), ("3", 3)):
        done = plake("count", "orders", "--version", version, "--catalog", url, "-o", "json")
        assert done.rows == [{"row_count": rows}]


@pytest.mark.parametrize("inside", ["a.parquet", "month=1/day=2/a.parquet"])
def test_a_folder_of_parquet_files_names_convert(inside: str, tmp_path: Path) -> None:
    file = tmp_path / "exports" / inside
    file.parent.mkdir(parents=True)
    pq.write_table(pa.table({"a": [1]}), file)
    with pytest.raises(lake.DatasetNotFoundError, match=r"folder of Parquet files.*convert\("):
        lake.read_dataset(tmp_path / "exports")
    with pytest.raises(lake.DatasetNotFoundError, match="Write to it first"):
        lake.read_dataset(tmp_path / "none")


@pytest.mark.parametrize("slashes", ["///", "//"])
def test_a_url_of_a_catalog_is_shown_as_it_was_typed(slashes: str, tmp_path: Path) -> None:
    lake.write_dataset({"a": [1]}, tmp_path / "d", catalog=f"sqlite:{slashes}{tmp_path}/lake.db")
    typed = f"sqlite:{slashes}{tmp_path}/lake.db"
    with pytest.raises(lake.DatasetNotFoundError) as raised:
        lake.read_dataset(tmp_path / "none", catalog=typed)
    assert raised.value.catalog == typed

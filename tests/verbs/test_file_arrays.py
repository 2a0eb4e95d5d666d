"""Sizes, partitions and ranges of all files are those of the catalog's rows, read one by one."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakehouse_source as lake
from lakehouse_source.catalog.backends.pooled import SEPARATOR, unpack
from lakehouse_source.catalog.sql import reader
from lakehouse_source.errors import CorruptDatasetError
from lakehouse_source.layout import depth_of_ranges
from lakehouse_source.read.file_arrays import live_files, ranges
from lakehouse_source.schema.fields import leaves
from tests.verbs.conftest import catalog_of

pytestmark = [pytest.mark.slow, pytest.mark.one_catalog]

catalog = catalog_of("sqlite", "postgres", "duckdb")


def table(draw: random.Random, number: int) -> pa.Table:
    rows = draw.randrange(1, 5)
    columns: dict[str, tuple[Callable[[], Any], pa.DataType]] = {
        "p": (lambda: draw.choice([None, 1, 2]), pa.int32()),
        "q": (lambda: draw.choice([None, "", "a,'\u00e9", "a|b"]), pa.string()),
        "v": (lambda: draw.choice([None, draw.randrange(-9, 9)]), pa.int64()),
        "t": (lambda: "x" * draw.randrange(40), pa.string()),
        "b": (lambda: draw.choice([b"", SEPARATOR, SEPARATOR[:3], b"a\0b"]), pa.binary()),
    }
    made = {name: pa.array([one() for _ in range(rows)], t) for name, (one, t) in columns.items()}
    if number == 7:
        made["v"] = pa.nulls(rows, pa.int64())
    return pa.table(made)


@pytest.mark.parametrize(("seed", "page"), [(0, 1), (1, 7), (2, 1000)])
def test_arrays_of_all_files_are_those_of_their_records(
    tmp_path: Path, catalog: lake.Catalog, seed: int, page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "PAGE", page)
    monkeypatch.setattr(reader, "_MOST_OTHERS", seed % 2)  # with and without a look at the files
    draw = random.Random(seed)
    for number in range(10):
        lake.write_dataset(
            table(draw, number), tmp_path / "d", partition_by=["p", "q"], catalog=catalog
        )
        # Another dataset's files, between those of this one.
        lake.write_dataset(
            {"q": ["a|b"], "v": [5]}, tmp_path / "e", partition_by="q", catalog=catalog
        )
        if number == 5:
            lake.open_dataset(tmp_path / "d", catalog=catalog).delete("p = 1")
        if number == 6:
            lake.open_dataset(tmp_path / "d", catalog=catalog).rename_column("q", "Q2")
            lake.open_dataset(tmp_path / "d", catalog=catalog).rename_column("Q2", "q")
    dataset = lake.open_dataset(tmp_path / "d", catalog=catalog)
    with catalog.read() as found:
        snapshot = dataset._address.snapshot(catalog, found)
        files = live_files(found, snapshot)
        records = found.files(snapshot.dataset.id, snapshot.version)
        assert files.ids.to_pylist() == [one.id for one in records]
        assert files.sizes.to_pylist() == [one.size_bytes for one in records]
        assert files.rows.to_pylist() == [one.row_count for one in records]
        assert files.versions.to_pylist() == [one.version for one in records]
        assert files.groups is not None
        own = [tuple(snapshot.partition_texts()(one)) for one in records]
        numbers = list(dict.fromkeys(own))
        assert files.groups.to_pylist() == [numbers.index(one) for one in own]
        for leaf in leaves(snapshot.schema):
            rows = found._session.query(
                "SELECT file_id, lower, upper FROM column_bounds "
                "WHERE dataset_id = ? AND column_id = ?", (snapshot.dataset.id, leaf.id)
            )  # fmt: skip
            expected = sorted(
                (files.ids.index(id).as_py(), bytes(lower), bytes(upper))
                for id, lower, upper in rows
                if id in set(files.ids.to_pylist()) and bytes(lower) != b"\xff" * 40
            )
            arrays = ranges(found, snapshot, files, leaf.id)
            columns = (arrays.files, arrays.lower, arrays.upper)
            assert sorted(zip(*(one.to_pylist() for one in columns))) == expected
            assert len(expected) > 5


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("files.file_size_bytes", b"5"),
        ("files.row_count", "many"),
        ("files.version", 0.5),
        ("column_bounds.upper", "text"),
        ("column_bounds.lower", 7),
    ],
)
def test_a_value_of_another_type_is_refused(tmp_path: Path, column: str, value: object) -> None:
    lake.write_dataset({"v": [1]}, tmp_path / "d", catalog=f"sqlite:///{tmp_path}/catalog.db")
    name, column = column.split(".")
    with closing(sqlite3.connect(tmp_path / "catalog.db")) as connection, connection:
        connection.execute(f"UPDATE {name} SET {column} = ?", (value,))
    with pytest.raises(CorruptDatasetError, match=rf"{name}\.{column} has a value of type"):
        lake.open_dataset(tmp_path / "d", catalog=f"sqlite:///{tmp_path}/catalog.db").health()


def test_a_database_of_another_encoding_is_read_row_by_row(tmp_path: Path) -> None:
    """There SQLite would convert keys that it joins as texts."""
    lake.write_dataset({"v": [1, 900]}, tmp_path / "d", catalog=f"sqlite:///{tmp_path}/first.db")
    with (
        closing(sqlite3.connect(tmp_path / "first.db")) as old,
        closing(sqlite3.connect(tmp_path / "catalog.db", isolation_level=None)) as new,
    ):
        new.execute("PRAGMA encoding = 'UTF-16le'")
        new.execute("PRAGMA foreign_keys = OFF")
        for line in old.iterdump():
            new.execute(line)
    url = f"sqlite:///{tmp_path}/catalog.db"
    before = lake.open_dataset(tmp_path / "d", catalog=f"sqlite:///{tmp_path}/first.db").health("v")
    assert lake.open_dataset(tmp_path / "d", catalog=url).health("v") == before


def test_packed_columns_that_are_not_what_they_should_be() -> None:
    columns = [("n", pa.int64()), ("b", pa.binary())]
    good = unpack(columns, (2, "1,-2", b"x" + SEPARATOR))
    assert good is not None
    assert [one.to_pylist() for one in good] == [[1, -2], [b"x", b""]]
    assert unpack(columns, (2, "1", b"x" + SEPARATOR)) is None  # a NULL is left out
    assert unpack(columns, (2, "1,1.5", b"x" + SEPARATOR)) is None
    assert unpack(columns, (2, "1,2", b"x" + 2 * SEPARATOR)) is None
    assert unpack(columns, (None, "1,2", b"x" + SEPARATOR)) is None
    empty = unpack(columns, (0, None, None))
    assert empty is not None
    assert [len(one) for one in empty] == [0, 0]


@pytest.mark.parametrize("size", [1, 3, 8, 9, 12])
@pytest.mark.parametrize("prefix", [b"\x80", b"\x7f"])
def test_depth_of_keys_of_one_length_is_that_of_their_ranks(size: int, prefix: bytes) -> None:
    """Such keys are compared as integers: with groups, without, and where a prefix differs."""
    draw = random.Random(size)

    def key() -> bytes:
        first = draw.choice([b"\x80", prefix]) if size > 8 else draw.choice([b"\xff", b"\0"])
        return first + bytes(draw.randrange(3) for _ in range(size - 1))

    both = [sorted((key(), key())) for _ in range(60)]
    lower, upper = (pa.array([one[end] for one in both], pa.binary()) for end in (0, 1))
    groups = [draw.randrange(4) for _ in both]
    for own in (None, groups):
        ends = [
            sum(
                low <= point <= high and (own is None or own[mine] == own[other])
                for other, (low, high) in enumerate(both)
            )
            for mine, one in enumerate(both)
            for point in one
        ]
        depth = depth_of_ranges(lower, upper, None if own is None else pa.array(own))
        assert (depth.average, depth.most) == (sum(ends) / len(ends), max(ends))
        apart = depth_of_ranges(lower[5:], upper[5:], None if own is None else pa.array(own[5:]))
        assert apart.files == 55


def test_a_value_with_the_separator_does_not_stand_for_one_that_is_null(
    catalog: lake.Catalog,
) -> None:
    """Two values that are handed out as one text: one is left out, the other is divided."""
    whole = b"x" + SEPARATOR + b"y"
    spelling = {"sqlite": "X'{}'", "postgresql": "decode('{}', 'hex')", "duckdb": "unhex('{}')"}
    value = spelling[catalog.url.partition(":")[0]].format(whole.hex())
    with catalog.read() as session:
        rest = f"FROM (SELECT {value} AS b UNION ALL SELECT NULL AS b) AS two"
        (found,) = session._session.columns([("b", pa.binary())], rest, ())
    assert {*found.to_pylist()} == {None, whole}

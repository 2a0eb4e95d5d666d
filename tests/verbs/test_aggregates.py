"""Aggregates from the catalog: what a scan computes, or no answer."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakehouse_source as lake
from lakehouse_source.language import PredicateSet
from lakehouse_source.read.address import Address
from lakehouse_source.read.aggregates import Aggregate, aggregate
from lakehouse_source.schema.fields import SPARK_TYPE
from lakehouse_source.schema.ordinal import to_ordinal

pytestmark = pytest.mark.slow

COUNT = Aggregate("count", None)


def ask(path: Path, where: Any, group_by: list[str], *asked: Aggregate) -> Any:
    address = Address(str(path), None)
    with address.open() as catalog, catalog.read() as reader:
        snapshot = address.snapshot(catalog, reader, None)
        bound = PredicateSet.of(where).bind(snapshot.schema)
        return aggregate(reader, snapshot, bound, group_by, asked)


def of(column: str) -> tuple[Aggregate, ...]:
    return tuple(Aggregate(function, column) for function in ("count", "min", "max"))


@pytest.fixture
def facts(tmp_path: Path) -> Path:
    """Two files, each of row groups of ten, partitioned by `p`."""
    ids = list(range(40))
    table = pa.table(
        {
            "p": pa.array(["x" if i < 20 else None for i in ids]),
            "id": pa.array(ids, pa.int64()),
            "s": pa.array([None if i % 5 == 0 else f"s{i:02}" for i in ids]),
            "f": pa.array([float(i + 1) for i in ids]),
            "nan": pa.array([math.nan if i == 25 else 1.0 for i in ids]),
            "zero": pa.array([0.0 if i == 3 else 5.0 for i in ids]),
            "long": pa.array(["y" * 100 for _ in ids]),
            "d": pa.array([dt.date(2024, 1, 1) + dt.timedelta(days=i) for i in ids]),
            "m": pa.array([Decimal(i).scaleb(-2) for i in ids], pa.decimal128(9, 2)),
            "none": pa.nulls(40, pa.int32()),
        }
    )
    lake.write_dataset(table, tmp_path / "d", partition_by=["p"], row_group_rows=10)
    return tmp_path / "d"


def test_counts_and_extremes_of_the_whole(facts: Path) -> None:
    assert ask(facts, None, [], COUNT) == [(40,)]
    assert ask(facts, None, [], COUNT, *of("id")) == [(40, 40, 0, 39)]
    assert ask(facts, None, [], *of("s")) == [(32, b"s01", b"s39")]
    assert ask(facts, None, [], *of("f")) == [(40, 1.0, 40.0)]
    assert ask(facts, None, [], *of("m")) == [(40, 0, 39)]
    assert ask(facts, None, [], *of("none")) == [(0, None, None)]
    assert ask(facts, None, [], *of("p")) == [(20, b"x", b"x")]


def test_groups_by_partition_columns(facts: Path) -> None:
    found = ask(facts, None, ["p"], COUNT, *of("id"))
    assert sorted(found, key=repr) == sorted(
        [(b"x", 20, 20, 0, 19), (None, 20, 20, 20, 39)], key=repr
    )
    assert sorted(ask(facts, None, ["p"], COUNT), key=repr) == [(None, 20), (b"x", 20)]


def test_conditions_that_decide_row_groups_as_a_whole(facts: Path) -> None:
    assert ask(facts, "id >= 10 AND id < 30", [], COUNT, *of("id")) == [(20, 20, 10, 29)]
    assert ask(facts, "p = 'x'", [], COUNT) == [(20,)]
    assert ask(facts, "p IS NULL", ["p"], COUNT) == [(None, 20)]
    assert ask(facts, "id < 0", [], COUNT, *of("s")) == [(0, 0, None, None)]
    assert ask(facts, "id < 0", ["p"], COUNT) == []


@pytest.mark.parametrize(
    ("where", "group", "asked"),
    [
        ("id >= 5", [], (COUNT,)),  # decides some row group in part
        (None, ["id"], (COUNT,)),  # no partition column
        (None, [], of("nan")),
        (None, [], of("long")),
        (None, [], (Aggregate("min", "zero"),)),
        (None, [], of("unknown")),
    ],
)
def test_no_answer_where_a_file_would_have_to_be_read(
    facts: Path, where: str | None, group: list[str], asked: tuple[Aggregate, ...]
) -> None:
    assert ask(facts, where, group, *asked) is None


def test_counting_takes_what_extremes_refuse(facts: Path) -> None:
    assert ask(facts, None, [], Aggregate("count", "nan"), Aggregate("count", "long")) == [(40, 40)]


def test_a_promoted_column_has_counts_only(tmp_path: Path) -> None:
    path = tmp_path / "d"
    lake.write_dataset(pa.table({"a": pa.array([1, 2], pa.int32())}), path)
    lake.write_dataset(pa.table({"a": pa.array([3], pa.int64())}), path, schema_merge=True)
    assert ask(path, None, [], Aggregate("count", "a")) == [(3,)]
    assert ask(path, None, [], Aggregate("max", "a")) is None
    assert ask(path, "a = 3", [], Aggregate("max", "a")) == [(3,)]


def test_a_column_younger_than_a_file_is_null_there(tmp_path: Path) -> None:
    path = tmp_path / "d"
    lake.write_dataset(pa.table({"a": [1, 2]}), path)
    lake.write_dataset(pa.table({"a": [3], "b": [7]}), path, schema_merge=True)
    assert ask(path, None, [], *of("b")) == [(1, 7, 7)]


def test_text_with_a_collation_is_counted_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Only Spark may say so: from others it is dropped.
    monkeypatch.setattr("lakehouse_source.write.rows.without_own_metadata", lambda schema: schema)
    collated = {SPARK_TYPE: b'"string collate UTF8_LCASE"'}
    schema = pa.schema([pa.field("s", pa.string(), metadata=collated), ("n", pa.int64())])
    lake.write_dataset(pa.table({"s": ["m", "Z"], "n": [1, 2]}, schema), tmp_path / "d")
    assert ask(tmp_path / "d", None, [], Aggregate("count", "s"), Aggregate("max", "n")) == [(2, 2)]
    assert ask(tmp_path / "d", None, [], Aggregate("max", "s")) is None
    assert ask(tmp_path / "d", None, [], Aggregate("min", "s"), COUNT) is None


texts = st.text(
    st.sampled_from(["a", "z", "é", "\ud7ff", "\ue000", "\U0010ffff"]), min_size=0, max_size=3
).flatmap(lambda s: st.sampled_from([s, s * 22, s * 40, "a" * 63 + s, "\U0010ffff" * 70]))
values = {
    "i": (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    "f": (pa.float64(), st.sampled_from([0.0, -0.0, 1.5, -2.0, math.inf, -math.inf, math.nan])),
    "s": (pa.string(), texts),
    "b": (pa.bool_(), st.booleans()),
    "t": (pa.timestamp("us"), st.datetimes(dt.datetime(1800, 1, 1), dt.datetime(2200, 1, 1))),
}


@settings(deadline=None)
@given(data=st.data())
def test_an_answer_is_what_python_computes(data: st.DataObject, tmp_path_factory: Any) -> None:
    path = tmp_path_factory.mktemp("aggregates") / "d"
    column = data.draw(st.sampled_from(sorted(values)))
    type_, drawn = values[column]
    parts = data.draw(st.lists(st.lists(st.none() | drawn, max_size=6), min_size=1, max_size=3))
    for part in parts:
        groups = pa.array([i % 2 for i in range(len(part))], pa.int32())
        table = pa.table({"g": groups, "c": pa.array(part, type_)})
        lake.write_dataset(table, path, partition_by=["g"], row_group_rows=2)
    expected = {}
    for group in (0, 1):
        rows = [v for part in parts for i, v in enumerate(part) if i % 2 == group]
        if rows:
            present = [v for v in rows if v is not None]
            expected[group] = (len(rows), len(present), present)
    found = ask(path, None, ["g"], COUNT, *of("c"))
    if found is None:
        # Only questions that bounds cannot decide stay unanswered.
        assert column in ("f", "s")
        special = [v for rows in expected.values() for v in rows[2]]
        assert any(v == 0 or v != v if column == "f" else len(v) > 63 for v in special)
        return
    assert {row[0] for row in found} == set(expected)
    for group, rows, count, low, high in found:
        _rows, _count, present = expected[group]
        assert (rows, count) == (_rows, _count)
        ordinals = [to_ordinal(v, type_) for v in present]
        assert (low, high) == ((min(ordinals), max(ordinals)) if ordinals else (None, None))

"""Rows that a shredded column rules out are not put together; the others are found as before."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import lakehouse_source as lake
from lakehouse_source.parquet import likely_rows
from lakehouse_source.parquet.open_file import StoredColumns

PATHS = ["v:n", "v:s.t"]


def write(path: Path, documents: list[Any], **keywords: Any) -> lake.Dataset:
    rows = {"id": list(range(len(documents))), "v": lake.variant(documents)}
    lake.write_dataset(rows, path, **{"variant_paths": PATHS, **keywords})
    return lake.open_dataset(path)


@pytest.fixture
def assembled(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows were put together, for each time."""
    counts: list[int] = []
    inner = StoredColumns.assembled

    def counted(self: Any, stored: Any, physical: Any, wanted: Any, rows: Any) -> Any:
        counts.append(rows.count)
        return inner(self, stored, physical, wanted, rows)

    monkeypatch.setattr(StoredColumns, "assembled", counted)
    return counts


# Whole row groups are read of few rows, and pages of many.
@pytest.mark.parametrize(
    ("count", "columns"),
    [
        *((2_000, one) for one in (None, ["id"], ["v"])),
        (20_000, None),
        *(pytest.param(20_000, [one], marks=pytest.mark.long) for one in ("id", "v")),
    ],
)
def test_only_likely_rows_are_put_together(
    tmp_path: Path, assembled: list[int], count: int, columns: list[str] | None
) -> None:
    documents = [{"n": n * 7919 % count, "s": {"t": f"of {n}"}, "x": [n]} for n in range(count)]
    dataset = write(tmp_path, documents)
    found = dataset.scan("v:n::bigint IN (7, 8)", columns=columns).to_table()
    wanted = [n for n, one in enumerate(documents) if one["n"] in (7, 8)]
    if columns != ["v"]:
        assert found["id"].to_pylist() == wanted
    if columns != ["id"]:
        shown = found["v"].to_pylist()
        assert shown == [documents[n] for n in wanted]
    # Both, the rows with the least and the greatest value, and both once more as documents.
    assert sum(assembled) <= 6
    dataset.delete(f"id = {wanted[0]}")
    found = dataset.refresh().scan("v:n::bigint IN (7, 8)").to_table()
    assert found["id"].to_pylist() == wanted[1:]


def test_many_likely_rows_are_found_with_the_others(tmp_path: Path) -> None:
    documents = [{"n": n % 7, "s": {"t": str(n)}} for n in range(1_000)]
    scan = write(tmp_path, documents).scan("v:n::int < 5 AND v:s.t::string >= '5'")
    wanted = [n for n in range(1_000) if n % 7 < 5 and str(n) >= "5"]
    assert scan.to_table()["id"].to_pylist() == wanted


def test_values_of_another_type_at_the_path_are_looked_at(tmp_path: Path) -> None:
    odd: list[Any] = [{"n": "7"}, {"n": 7.0}, {"n": None}, {}, "7", None, {"n": {"n": 7}}]
    documents = [{"n": n + 100} for n in range(1_000)] + odd
    scan = write(tmp_path, documents, variant_paths=["v:n"]).scan
    equal = scan("try_variant_get(v, '$.n', 'int') = 7")
    assert equal.to_table()["id"].to_pylist() == [1_000, 1_001]
    missing = scan("try_variant_get(v, '$.n', 'int') IS NULL")
    assert missing.to_table()["id"].to_pylist() == [*range(1_002, 1_007)]


@pytest.mark.parametrize(
    ("odd", "cast", "count"),
    [
        (2**40, "int", 2_000),
        (-(2**40), "int", 2_000),
        (2**63 - 1, "decimal(10, 2)", 2_000),
        (300, "tinyint", 2_000),
        (-129, "tinyint", 20_000),
    ],
)
def test_a_cast_that_fails_on_a_row_is_an_error_still(
    tmp_path: Path, odd: int, cast: str, count: int
) -> None:
    documents = [{"n": n % 100} for n in range(count)]
    documents[5] = {"n": odd}
    for paths in (["v:n"], []):
        dataset = write(tmp_path / f"{len(paths)}", documents, variant_paths=paths)
        with pytest.raises(lake.InvalidExpressionError, match="cannot be cast"):
            dataset.scan(f"v:n::{cast} = 77").to_table()
        assert (
            dataset.scan(f"try_variant_get(v, '$.n', '{cast}') = 77").count_rows() == count // 100
        )


VALUES = (
    *(None, True, 0, 7, -1, 128, 2**40, 1.5, -0.0, 1e300, float("nan"), float("inf")),
    *("", "7", "1.5", "x", [7], {"b": 7}, {"b": "7"}, {"b": {"b": 1}}),
)
CONDITIONS = tuple(
    f"try_variant_get(v, '$.{path}', '{cast}') {test}"
    for path in ("a", "a.b", "c")
    for cast, tests in {
        "int": ("= 7", "> 0", "IN (7, 128)", "IS NULL", "!= 7", "<=> 7"),
        "double": ("= 1.5D", "< 0", ">= 1e300", "IS NOT NULL"),
        "decimal(10,2)": ("= 1.50", "<= 7"),
        "string": ("= '7'", "< '1'", "IS NULL"),
        "boolean": ("= TRUE", "IS NULL"),
        "bigint": ("= 1099511627776", "NOT IN (7, 128)"),
    }.items()
    for test in tests
)


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(n, marks=pytest.mark.long) for n in range(2, 30))]
)
def test_documents_of_all_kinds_match_as_where_nothing_is_shredded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    dice, documents = random.Random(seed), list[Any]()
    for kinds in (VALUES, VALUES[:8], VALUES[2:7], VALUES[7:12], VALUES[12:16], VALUES[17:]):
        for _ in range(60):
            keys = dice.sample(("a", "b", "c"), dice.randint(0, 3))
            documents.append({key: dice.choice(kinds) for key in keys})
    monkeypatch.setattr(likely_rows, "_FEWEST", 1)
    monkeypatch.setattr(likely_rows, "_SHARE", 1)
    plain = write(tmp_path / "plain", documents, variant_paths=[], row_group_rows=60)
    ours = write(tmp_path / "ours", documents, variant_paths=["v:a.b", "v:c"], row_group_rows=60)
    more = write(tmp_path / "more", documents, variant_paths=["v:a", "v:c"], row_group_rows=60)
    for condition in dice.sample(CONDITIONS, 5):
        both = f"{condition} AND {dice.choice(CONDITIONS)}"
        for one in (condition, both):
            wanted = plain.scan(one).to_table()
            assert ours.scan(one).to_table().equals(wanted), one
            assert more.scan(one).to_table().equals(wanted), one

"""Paths of VARIANT as columns of files: what is written, read back, and pruned."""

from __future__ import annotations

import json
import math
import random
import struct
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timezone
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import lakehouse_source as lake
from lakehouse_source.parquet import page_reader
from lakehouse_source.parquet.bloom import FileFilters
from lakehouse_source.parquet.page_reader import PageReader
from lakehouse_source.schema.variant import VARIANT
from lakehouse_source.schema.variant_shredding import shredded, tree_of, whole
from tests.verbs.test_variant import random_document

pytestmark = pytest.mark.slow

PATHS = ["event:user.id", "event:ts"]


def rows(*documents: Any) -> dict[str, Any]:
    return {"id": list(range(len(documents))), "event": lake.variant(documents)}


def events(path: Path, files: int = 20, **keywords: Any) -> lake.Dataset:
    ids = range(files * 10)
    some = [{"user": {"id": one, "name": "n"}, "ts": one / 4, "x": [one]} for one in ids]
    table = {**rows(*some), "file": [one // 10 for one in ids]}
    lake.write_dataset(table, path, partition_by="file", **keywords)
    return lake.open_dataset(path)


def files_read(dataset: lake.Dataset, condition: str) -> tuple[int, int]:
    scan = dataset.scan(condition)
    return scan.explain().files_read, scan.count_rows()


@pytest.mark.parametrize(
    ("condition", "wanted"),
    [
        ("event:user.id = 7", None),
        ("event:user.id::int = 7", (1, 1)),
        ("EVENT:user.id::int = 7", (1, 1)),
        ("variant_get(event, '$.user.id', 'bigint') = 7", (1, 1)),
        ("try_variant_get(event, '$.user.id', 'decimal(5, 1)') = 7.0", (1, 1)),
        ("event:user.id::double BETWEEN 15 AND 31", (3, 17)),
        ("event:user.id::int IN (3, 4, 199)", (2, 3)),
        ("event:user.id::int NOT IN (3) AND event:user.id::int < 5", (1, 4)),
        ("NOT (event:user.id::int >= 5)", (1, 5)),
        ("event:user.id::int + 1 = 8", (1, 1)),
        ("event:user.id::int IS NULL", (0, 0)),
        ("event:user.id::int IS NOT NULL", (20, 200)),
        ("event:ts::double > 49.5", (1, 1)),
        ("event:ts::int = 12", (2, 4)),
        ("event:ts::int = 3 AND event:user.id::int > 13", (1, 2)),
        ("event:user.id::int = 7 OR event:ts::int = 49", (2, 5)),
        # Paths that differ in case, and paths that were not named.
        ("event:USER.id::int IS NULL", (20, 200)),
        ("event:user.name::string = 'm'", (20, 0)),
    ],
)
def test_a_condition_on_a_path_reads_the_files_that_hold_it(
    tmp_path_factory: pytest.TempPathFactory, condition: str, wanted: tuple[int, int] | None
) -> None:
    path = tmp_path_factory.getbasetemp() / "events"
    dataset = lake.open_dataset(path) if path.exists() else events(path, variant_paths=PATHS)
    if wanted is None:
        with pytest.raises(lake.InvalidPredicateError):
            dataset.scan(condition).to_table()
        return
    assert files_read(dataset, condition) == wanted


def test_pages_are_read_that_hold_a_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    documents = [{"user": {"id": n}, "ts": n / 2} for n in range(20_000)]
    documents[9] = {"user": {"id": None}}
    documents[11] = {"ts": "7"}
    lake.write_dataset(rows(*documents), tmp_path, variant_paths=PATHS)
    read: list[int] = []
    real = PageReader.read

    def counted(self: Any, chosen: Any) -> Any:
        table = real(self, chosen)
        read.append(table.num_rows)
        return table

    monkeypatch.setattr(PageReader, "read", counted)
    # The columns of one path are small: to read them whole would cost less.
    monkeypatch.setattr(page_reader, "_ROW_GROUP_VALUES", 0)
    dataset = lake.open_dataset(tmp_path)
    assert dataset.scan("event:user.id::int = 15000").to_table()["id"].to_pylist() == [15_000]
    assert read
    assert max(read) <= 8192
    # In this row group a text stands among the numbers.
    assert dataset.scan("event:ts::int = 7").to_table()["id"].to_pylist() == [11, 14, 15]


@pytest.mark.parametrize(
    "condition",
    [
        pc.field("event", "user", "id") == 7,
        pc.field("event:user.id") == 7,
        pc.field("event") == 7,
        ("event:user.id", "=", 7),
    ],
    ids=["nested", "name", "whole", "comparison"],
)
def test_a_path_that_is_not_cast_is_refused(tmp_path: Path, condition: Any) -> None:
    dataset = events(tmp_path, 1, variant_paths=PATHS)
    for read in (dataset.scan, dataset.delete):
        with pytest.raises(lake.InvalidPredicateError, match="A path into a VARIANT is cast"):
            read(condition).to_table()


def test_explain_names_the_path(tmp_path: Path) -> None:
    dataset = events(tmp_path, 3, variant_paths=PATHS)
    assert "event:user.id::BIGINT = 7" in str(dataset.scan("event:user.id::int = 7").explain())


VALUES = (7, 8, "7", 7.0, Decimal("7.5"), True, None, {"a": 1}, [7], "x", 10**30, float("nan"))


@pytest.mark.parametrize("sizes", [(2,), pytest.param((1, 3, 5), marks=pytest.mark.long)])
def test_files_with_other_types_at_a_path_are_read(tmp_path: Path, sizes: tuple[int, ...]) -> None:
    conditions = [
        f"try_variant_get(event, '$.user.id', '{type_}') {op} {literal}"
        for type_, literal in (
            *(("int", "7"), ("double", "7.5D"), ("string", "'7'"), ("decimal(10, 2)", "7.5")),
            *(("boolean", "TRUE"), ("bigint", "NULL")),
        )
        for op in (("=", ">=", "!=") if sizes == (2,) else ("=", "<", ">=", "!=", "<=>"))
    ] + [
        "try_variant_get(event, '$.user.id', 'int') IS NULL",
        "event:user.id::string IS NULL",
        # More than the path is read of these.
        "try_variant_get(event, '$.user', 'string') = '7' OR event:ts::int = 3",
        "is_variant_null(event) OR event:ts::int = 3",
        "event IS NULL OR event:user.id::string = '7'",
    ]
    plain, dice, documents, files = tmp_path / "plain", random.Random(1), [], []
    for size in sizes:
        for first in range(len(VALUES)):
            some = [VALUES[(first + n * size) % len(VALUES)] for n in range(size)]
            documents += [{"user": {"id": one}, "ts": first} for one in some]
            documents += dice.sample([{}, {"user": 7}, {"user": {"id": 7}}, None, [1]], 2)
            files += [size * 100 + first] * (size + 2)
    table = {**rows(*documents), "file": files}
    lake.write_dataset(table, plain)
    shape = {"partition_by": "file", "variant_paths": PATHS, "bloom_filter_columns": PATHS}
    lake.write_dataset(table, tmp_path / "shredded", **shape)
    pruned = 0
    for condition in conditions:
        with suppress(lake.InvalidExpressionError):
            wanted = lake.open_dataset(plain).scan(condition).to_table()
            scan = lake.open_dataset(tmp_path / "shredded").scan(condition)
            found = scan.to_table()
            # Whole numbers and decimals of one path are all decimals when they are read back.
            assert sorted(found["id"].to_pylist()) == wanted["id"].to_pylist(), condition
            pruned += scan.explain().files_read < len(sizes) * len(VALUES)
    assert pruned > 3


def test_documents_come_back_as_they_were(tmp_path: Path) -> None:
    dice = random.Random(5)
    documents = [random_document(dice) for _ in range(400)] + [None, *VALUES[:-1]]
    paths = ["event:a", "event:b.c", "event:b.é", "event:zz"]
    dataset = lake.write_dataset(rows(*documents), tmp_path, variant_paths=paths)
    assert dataset.row_count == len(documents)
    (path,) = tmp_path.glob("*.parquet")
    assert "typed_value" in str(pq.read_schema(path))
    column = lake.read_dataset(tmp_path)["event"]
    assert column.to_pylist() == documents
    assert lake.open_dataset(tmp_path).verify().ok
    # DuckDB 1.5 crashes where it reads such a file.
    duckdb = pytest.importorskip("duckdb", minversion="2")
    found = duckdb.sql(f"SELECT event::JSON::VARCHAR FROM '{path}' ORDER BY id").fetchall()
    given = [json.loads(one.to_json() or "null") for one in column]
    assert [json.loads(one or "null") for (one,) in found] == given


def test_paths_that_are_named_later_lose_no_older_row(tmp_path: Path) -> None:
    for first in (0, 10, 20):
        some = [{"user": {"id": one}} for one in range(first, first + 10)]
        lake.write_dataset(rows(*some), tmp_path)
    dataset = lake.open_dataset(tmp_path)
    dataset.set_properties(variant_paths=PATHS)
    assert files_read(dataset.refresh(), "event:user.id::int = 7") == (3, 1)
    lake.write_dataset(rows({"user": {"id": 700}}), tmp_path)
    assert files_read(dataset.refresh(), "event:user.id::int = 7") == (3, 1)
    assert files_read(dataset, "event:user.id::int = 700") == (4, 1)
    dataset.delete("TRUE")
    dataset.restore(dataset.version - 1)
    assert files_read(dataset.refresh(), "event:user.id::int = 7") == (3, 1)
    dataset.compact()
    assert files_read(dataset.refresh(), "event:user.id::int = 7000") == (0, 0)
    dataset.set_properties(variant_paths=["event:ts"])
    assert files_read(dataset.refresh(), "event:user.id::int = 7") == (1, 1)
    old = lake.read_dataset(tmp_path, version=4, predicates="event:user.id::int = 7")
    assert old.num_rows == 1
    dataset.rename_column("event", "e")
    assert dataset.refresh().properties["variant_paths"] == ["e:ts"]
    assert files_read(dataset, "e:ts::int = 7000") == (0, 0)


def test_a_write_that_began_before_a_path_was_named_loses_no_row(tmp_path: Path) -> None:
    dataset = events(tmp_path, 1)
    table = pa.table({**rows({"user": {"id": 7000}}), "file": [9]})

    def batches() -> Iterator[pa.RecordBatch]:
        yield from table.to_batches()
        lake.open_dataset(tmp_path).set_properties(variant_paths=PATHS)

    lake.write_dataset(pa.RecordBatchReader.from_batches(table.schema, batches()), tmp_path)
    assert dataset.refresh().version == 3
    assert files_read(dataset.refresh(), "event:user.id::int = 7000")[1] == 1


@pytest.mark.parametrize(
    ("paths", "words"),
    [
        (["id:a"], "begins with no column of VARIANT"),
        (["nothing:a"], "begins with no column of VARIANT"),
        (["event"], "no path such as payload:user.id"),
        (["event:"], "no path such as"),
        (["event:a[0]"], "no path such as"),
        (["event:a", "event:a.b"], "leads into or out of a"),
        (["event:a.b", "event:A.c"], "by case only"),
        ([f"event:p{n}" for n in range(65)], "at most 64"),
    ],
)
def test_what_is_no_path_is_refused(tmp_path: Path, paths: list[str], words: str) -> None:
    with pytest.raises(lake.InvalidOptionError, match=words):
        lake.write_dataset(rows({}), tmp_path / "new", variant_paths=paths)
    lake.write_dataset(rows({}), tmp_path / "old")
    with pytest.raises(lake.InvalidOptionError, match=f"{words}|differs from the paths"):
        lake.write_dataset(rows({}), tmp_path / "old", variant_paths=paths)
    with pytest.raises(lake.InvalidOptionError, match=words):
        lake.open_dataset(tmp_path / "old").set_properties(variant_paths=paths)


def test_broken_bytes_are_an_error_when_they_are_shredded() -> None:
    dice, broken = random.Random(2), 0
    drawn = (random_document(dice) for _ in range(40))
    known = lake.variant([one for one in drawn if one is not None]).storage
    tree = tree_of(known, [("a",), ("b", "a"), ("c", "d")])
    for _ in range(300):
        metadata, value = map(bytearray, dice.choice(known.to_pylist()).values())
        part = dice.choice((metadata, value))
        for _ in range(dice.randint(1, 3)):
            at = dice.randrange(len(part))
            part[at] ^= 1 << dice.randrange(8)
        one = {"metadata": bytes(metadata), "value": bytes(value)}
        column = pa.array([one, *known[:3].to_pylist()], known.type)
        try:
            tree_of(column, [("a",), ("b", "a")])
            whole(shredded(column, tree))
        except lake.CorruptDatasetError:
            broken += 1
    assert 50 < broken < 300


def test_parts_that_overlap_take_no_memory_of_their_own() -> None:
    """Some kilobytes with one long text in each of 3,000 fields were copied as 180 MB."""
    count, text = 3_000, b"x" * 60_000
    four = struct.Struct("<I").pack
    ends = b"".join(four(5 * number) for number in range(count + 1))
    metadata = b"\xd1" + four(count) + ends + b"".join(b"%05d" % one for one in range(count))
    part = bytes([16 << 2]) + four(len(text)) + text
    ids = b"".join(map(four, range(count)))
    value = bytes([0x1F << 2 | 2]) + four(count) + ids + four(0) * count + four(len(part)) + part
    known = lake.variant([{"00001": "a"}]).storage
    column = pa.array([{"metadata": metadata, "value": value}], known.type)
    with pytest.raises(lake.CorruptDatasetError, match="overlap"):
        shredded(column, tree_of(known, [("00001",)]))


@pytest.mark.parametrize("paths", [["event:a"], []])
def test_seconds_too_great_for_a_timestamp_are_null(paths: list[str], tmp_path: Path) -> None:
    """Spark 4.3: a cast from VARIANT fails, where a cast of a BIGINT takes the greatest one."""
    most = 2**63 // 10**6
    seconds = [2**63 - 1, most + 1, most, -most, -most - 1, -(2**63)]
    rows = {"id": list(range(6)), "event": lake.variant([{"a": one} for one in seconds])}
    lake.write_dataset(rows, tmp_path / "t", variant_paths=paths)
    scan = lake.open_dataset(tmp_path / "t").scan(
        "try_variant_get(event, '$.a', 'timestamp') IS NULL", columns=["id"]
    )
    assert scan.to_table()["id"].to_pylist() == [0, 1, 4, 5]


# --- paths that files choose -----------------------------------------------------------

MANY = [
    {
        "user": {"id": n, "name": None if n % 3 else "n", "Case": n, "case": n},
        "mixed": n if n % 2 else str(n),
        "price": Decimal(n) / 4 if n % 2 else n,
        "rare": {"a": n} if n % 10 == 0 else {},
        "a b": n,
        "list": [n],
        "null": None,
        "object": {"x": n} if n % 2 else "text",
    }
    for n in range(2000)
]
CHOSEN = ["event:object.x", "event:price", "event:user.id", "event:user.name"]


@cache
def many() -> pa.Array:
    return lake.variant(MANY)


def of_many(first: int, count: int, files: int = 1) -> pa.Table:
    ids = list(range(first, first + count))
    names = [str(n * files // count) for n in range(count)]
    return pa.table({"id": ids, "event": many().slice(first, count), "file": names})


def test_paths_are_chosen_where_nobody_named_some(tmp_path: Path) -> None:
    lake.write_dataset(of_many(0, 2000, 2), tmp_path, partition_by="file")
    dataset = lake.open_dataset(tmp_path)
    assert dataset.properties["variant_paths"] == CHOSEN
    assert dataset.version == 1
    assert files_read(dataset, "event:user.id::int = 7") == (1, 1)
    assert files_read(dataset, "event:price::double > 1990") == (1, 4)
    assert files_read(dataset, "event:object.x::int = 7") == (1, 1)
    assert files_read(dataset, "try_variant_get(event, '$.mixed', 'int') = 7") == (2, 1)
    # Later files follow, small ones too, and rows that differ are found.
    other = [{"user": {"id": "7"}}, {"user": 7}, {"price": 1e300}]
    lake.write_dataset({**rows(*other), "file": ["2"] * 3}, tmp_path)
    assert files_read(dataset.refresh(), "event:user.id::int = 7") == (2, 2)
    dataset.set_properties(compression="snappy")
    assert dataset.properties["variant_paths"] == CHOSEN
    found = lake.read_dataset(tmp_path)["event"].to_pylist()
    assert found[:2000:50] + found[2000:] == [*MANY[::50], *other]


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        ({"variant_paths": []}, []),
        (
            {"variant_paths_most": 2, "variant_paths_share": 0.1},
            ["event:price", "event:user.id"],
        ),
        ({"variant_paths_depth": 1}, ["event:price"]),
        ({"variant_paths_share": 0.1}, sorted([*CHOSEN, "event:rare.a"])),
        ({"variant_paths_share": 1}, ["event:price", "event:user.id"]),
    ],
)
def test_limits_of_the_choice(tmp_path: Path, given: dict[str, Any], chosen: list[str]) -> None:
    lake.write_dataset(of_many(0, 1000), tmp_path, **given)
    assert lake.open_dataset(tmp_path).properties.get("variant_paths", []) == chosen


def test_a_compaction_chooses_for_files_that_were_too_small(tmp_path: Path) -> None:
    for first in range(0, 1200, 400):
        lake.write_dataset(of_many(first, 400), tmp_path, partition_by="file")
    dataset = lake.open_dataset(tmp_path)
    assert "variant_paths" not in dataset.properties
    lake.write_dataset({**rows(MANY[-1]), "file": ["8"]}, tmp_path)
    old = dataset.refresh().version
    dataset.compact("file = '0'")
    assert dataset.refresh().properties["variant_paths"] == CHOSEN
    # The file that was not rewritten may have any value.
    assert files_read(dataset, "event:user.id::int = 1999") == (1, 1)
    assert files_read(dataset, "event:user.id::int = 7") == (2, 1)
    assert (
        lake.read_dataset(tmp_path, version=old, predicates="event:user.id::int = 7").num_rows == 1
    )
    dataset.restore(old)
    assert files_read(dataset.refresh(), "event:user.id::int = 1999")[1] == 1
    dataset.set_properties(variant_paths=None)
    lake.write_dataset(of_many(0, 1000), tmp_path)
    assert dataset.refresh().properties["variant_paths"] == CHOSEN
    assert files_read(dataset, "event:user.id::int = 7")[1] == 2


@pytest.mark.parametrize("mine", [["event:a"], None])
@pytest.mark.parametrize(
    "theirs", [["event:b"], pytest.param(None, marks=pytest.mark.long)], ids=["named", "chosen"]
)
def test_two_first_writes_with_other_paths_lose_no_row(
    tmp_path: Path, mine: list[str] | None, theirs: list[str] | None
) -> None:
    """Both gave the same ids to their paths: the second write's bounds were those of the other."""
    first = pa.table(rows(*[{"a": 1, "b": 100}] * 1000))
    other = pa.table(rows(*[{"b": 100, "c": 5}] * 1000))

    def batches() -> Iterator[pa.RecordBatch]:
        yield from first.to_batches()
        lake.write_dataset(other, tmp_path, variant_paths=theirs)

    reader = pa.RecordBatchReader.from_batches(first.schema, batches())
    lake.write_dataset(reader, tmp_path, variant_paths=mine)
    dataset = lake.open_dataset(tmp_path)
    assert dataset.properties["variant_paths"] == (theirs or ["event:b", "event:c"])
    assert files_read(dataset, "event:b::int = 100") == (2, 2000)
    assert files_read(dataset, "event:b::int = 1") == (int(mine is not None), 0)
    assert files_read(dataset, "event:a::int = 1")[1] == 1000


@pytest.mark.long
def test_a_write_that_replaces_the_schema_chooses_again(tmp_path: Path) -> None:
    lake.write_dataset(of_many(0, 1000).drop(["file"]), tmp_path)
    table = {"id": [1] * 1000, "event": lake.variant([{"other": 1}] * 1000)}
    lake.write_dataset(table, tmp_path, mode="overwrite", overwrite_schema=True)
    dataset = lake.open_dataset(tmp_path)
    assert dataset.properties["variant_paths"] == ["event:other"]
    assert files_read(dataset, "event:other::int = 2") == (0, 0)
    assert lake.read_dataset(tmp_path, version=1, predicates="event:user.id::int = 7").num_rows == 1


def test_bloom_filters_of_paths_rule_files_out(tmp_path: Path) -> None:
    # Bounds of each file hold all numbers and texts; most of them are in one file only.
    ids = [n * 7919 % 4000 for n in range(4000)]
    documents = [{"id": one, "t": f"t{one}", "d": Decimal(one) / 4, "on": True} for one in ids]
    documents[0] = {"id": None}
    paths = [f"event:{name}" for name in ("id", "t", "d", "on")]
    table = {**rows(*documents), "file": [str(n // 1000) for n in range(4000)]}
    chosen = {"variant_paths": paths, "bloom_filter_columns": ["id", *paths]}
    lake.write_dataset(table, tmp_path, partition_by="file", **chosen)
    dataset = lake.open_dataset(tmp_path)
    for condition, place in (
        (f"event:id::int = {ids[1500]}", 1500),
        (f"event:t::string IN ('t{ids[2500]}', 'none')", 2500),
        (f"try_variant_get(event, '$.id', 'bigint') = {ids[3500]}", 3500),
    ):
        assert files_read(dataset, condition)[0] == 4
        assert dataset.scan(condition).to_table()["id"].to_pylist() == [place]
        assert groups_decoded(dataset, condition) == 1
    # A file with other values at a path is read for these.
    lake.write_dataset({**rows({"id": "77"}, *documents[1:9]), "file": ["9"] * 9}, tmp_path)
    condition = "try_variant_get(event, '$.id', 'int') = 77"
    assert dataset.refresh().scan(condition).count_rows() == 2
    dataset.set_properties(variant_paths=paths[1:], bloom_filter_columns=paths[1:])
    dataset.rename_column("event", "e")
    assert dataset.properties["bloom_filter_columns"] == ["e:t", "e:d", "e:on"]
    dataset.compact()
    assert dataset.scan("try_variant_get(e, '$.id', 'int') = 77").count_rows() == 2


def groups_decoded(dataset: lake.Dataset, condition: str) -> int:
    """How many row groups bloom filters leave."""
    real, found = FileFilters.rule_out, []

    def counted(self: Any, index: int) -> bool:
        found.append(real(self, index))
        return found[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FileFilters, "rule_out", counted)
        dataset.scan(condition).to_table()
    return found.count(False)


@pytest.mark.parametrize("named", ["bloom_filter_columns", "sort_by", "cluster_by"])
def test_a_path_that_files_lack_is_refused(tmp_path: Path, named: str) -> None:
    words = "Name it in variant_paths too"
    with pytest.raises(lake.InvalidOptionError, match=words):
        lake.write_dataset(rows({"a": 1}), tmp_path / "new", **{named: ["event:a"]})
    lake.write_dataset(rows({"a": 1}), tmp_path / "old", variant_paths=["event:b"])
    dataset = lake.open_dataset(tmp_path / "old")
    with pytest.raises(lake.InvalidOptionError, match=words):
        lake.write_dataset(rows({"a": 1}), tmp_path / "old", **{named: ["event:a"]})
    with pytest.raises(lake.InvalidOptionError, match=words):
        dataset.set_properties(**{named: ["event:a"]})
    if named == "bloom_filter_columns":
        dataset.set_properties(bloom_filter_columns=["event:b"])
        with pytest.raises(lake.InvalidOptionError, match=words):
            dataset.set_properties(variant_paths=["event:a"])
        assert dataset.properties["bloom_filter_columns"] == ["event:b"]


def test_a_generated_column_orders_rows_by_a_path(tmp_path: Path) -> None:
    schema = pa.schema([("event", VARIANT), ("user", pa.int64())])
    generated = {"user": "event:id::bigint"}
    layout = {"variant_paths": ["event:id"], "row_group_rows": 500, "cluster_by": ["user"]}
    layout["target_file_size_bytes"] = 1
    with lake.open_catalog(f"sqlite:///{tmp_path}/catalog.db") as catalog:
        dataset = catalog.create_dataset(
            "t", schema, location=tmp_path / "t", generated=generated, properties=layout
        )
        table = {"event": lake.variant([{"id": n * 7919 % 3000} for n in range(3000)])}
        lake.write_dataset(table, dataset.uri, catalog=catalog)
        assert files_read(dataset.refresh(), "event:id::int = 7") == (1, 1)


def test_paths_of_two_files_that_lead_into_each_other_are_one(tmp_path: Path) -> None:
    shapes = [{"a": 1, "K": 1}, {"a": {"b": 1}, "k": 2}, {"a": 2, "K": 1}]
    table = {**rows(*(shape for shape in shapes for _ in range(1000))), "file": []}
    table["file"] = [n // 1000 for n in range(3000)]
    lake.write_dataset(table, tmp_path, partition_by="file")
    dataset = lake.open_dataset(tmp_path)
    assert dataset.properties["variant_paths"] == ["event:K", "event:a"]
    for condition, wanted in (
        ("try_variant_get(event, '$.a', 'int') = 1", (2, 1000)),
        ("event:a.b::int = 1", (3, 1000)),
        ("event:k::int = 2", (3, 1000)),
        ("event:K::int = 2", (1, 0)),
    ):
        assert files_read(dataset, condition) == wanted, condition


# --- limits: the table in docs/limits.md -----------------------------------------------


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"a": value}
    return value


KEPT = [
    ({"b": 1, "a": {"z": 1, "y": 2}}, '{"a":{"y":2,"z":1},"b":1}'),
    ({"A": 2, "a": 1}, '{"A":2,"a":1}'),
    ({"a": None}, '{"a":null}'),
    ({}, "{}"),
    (None, None),
    ({"a": 2**63}, '{"a":9223372036854775808}'),
    ({"a": -(10**38) + 1}, '{"a":-' + "9" * 38 + "}"),
    ({"a": float("nan")}, '{"a":"NaN"}'),
    ({"a": datetime(1, 1, 1, tzinfo=timezone.utc)}, '{"a":"0001-01-01 00:00:00+00:00"}'),
    ({"a": datetime(9999, 12, 31, 23, 59, 59, 999_999)}, '{"a":"9999-12-31 23:59:59.999999"}'),
    ({"a": b"ab"}, '{"a":"YWI="}'),
]


@pytest.mark.parametrize("paths", [["event:a"], []])
def test_values_at_the_limits_come_back(tmp_path: Path, paths: list[str]) -> None:
    documents = [document for document, _ in KEPT]
    lake.write_dataset(rows(*documents), tmp_path, variant_paths=paths)
    column = lake.read_dataset(tmp_path)["event"]
    found = column.to_pylist()
    assert math.isnan(found[7].pop("a"))
    assert found == [{} if n == 7 else one for n, one in enumerate(documents)]
    shown = [(one.to_json(), text) for one, (_, text) in zip(column, KEPT) if text is not None]
    assert [one for one, _ in shown] == [text for _, text in shown]
    dataset = lake.open_dataset(tmp_path)
    for condition, wanted in (
        ("event IS NULL", [4]),
        ("variant_get(event, '$.a') IS NULL", [3, 4]),
        ("is_variant_null(variant_get(event, '$.a'))", [2]),
        ("try_variant_get(event, '$.a', 'string') IS NULL", [2, 3, 4]),
        ("try_variant_get(event, '$.A', 'int') = 2", [1]),
        ("id < 8 AND try_variant_get(event, '$.a', 'double') = double('NaN')", [7]),
        ("id < 8 AND try_variant_get(event, '$.a', 'decimal(38, 0)') > 9223372036854775807", [5]),
    ):
        assert dataset.scan(condition).to_table()["id"].to_pylist() == wanted, condition


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"a": "x" * (16 * 2**20)}, "at most 16,777,216"),
        (nested(201), "nested deeper than 200"),
        ({1: 2}, "a key of Python's type int"),
        ({"a": 10**38}, "more than 38 digits"),
        ({"a": Decimal("1e-39")}, "more than 38 digits"),
        ({"a": {1, 2}}, "which VARIANT has not"),
        ({"a": "\ud800"}, "half of a surrogate pair"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_values_beyond_the_limits_are_refused(value: Any, words: str) -> None:
    with pytest.raises(lake.InvalidOptionError, match=words):
        lake.variant([value])


@pytest.mark.long
@pytest.mark.parametrize("paths", [["event:a"], []])
def test_large_values_come_back(tmp_path: Path, paths: list[str]) -> None:
    many = {f"k{n}": n for n in range(70_000)}
    documents = [{"a": "x" * (16 * 2**20 - 64)}, nested(200), many]
    lake.write_dataset(rows(*documents), tmp_path, variant_paths=paths)
    found = lake.read_dataset(tmp_path)["event"].to_pylist()
    assert found[:2] == documents[:2]
    assert found[2] == many

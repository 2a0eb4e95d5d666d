"""Columns of VARIANT through every door of Python; DuckDB, which has the type, is the oracle."""

from __future__ import annotations

import json
import random
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import lakehouse_source as lake
from lakehouse_source.schema.variant_shredding import from_struct

duckdb = pytest.importorskip("duckdb")
needs_arrow = pytest.mark.skipif(
    duckdb.__version__ < "2", reason="DuckDB 1.5 neither shreds nor takes it from Arrow"
)

TEXTS = [
    '{"user": {"id": 7, "name": "é"}, "ts": 1.5, "tags": ["a", null]}',
    "null",
    None,
    '{"user": {"id": "8"}, "big": 12345678901234567890}',
    "[1, [2, {}]]",
    '"text"',
]


def write(path: Path, **keywords: Any) -> Any:
    rows = {"id": list(range(len(TEXTS))), "v": lake.variant(TEXTS, json=True)}
    lake.write_dataset(rows, path, **keywords)
    return lake.open_dataset(path)


def texts(table: pa.Table, column: str = "v") -> list[str | None]:
    return [one.to_json() for one in table.sort_by("id")[column]]


def data_file(path: Path) -> str:
    (found,) = path.glob("*.parquet")
    return str(found)


def test_duckdb_reads_the_files_as_its_own_variant(tmp_path: Path) -> None:
    dataset = write(tmp_path)
    found = duckdb.sql(f"SELECT v, v::JSON::VARCHAR FROM '{data_file(tmp_path)}' ORDER BY id")
    assert str(found.types[0]) == "VARIANT"
    given = [None if one is None else json.loads(one) for one in TEXTS]
    shown = [None if one is None else json.loads(one) for _, one in found.fetchall()]
    assert shown == given
    table = dataset.scan().to_table()
    assert [None if one is None else json.loads(one) for one in texts(table)] == given
    frame = dataset.scan("id = 0").to_pandas()
    assert frame["v"][0]["user"] == {"id": 7, "name": "é"}


def test_statements_of_rows_keep_values(tmp_path: Path) -> None:
    dataset = write(tmp_path)
    change = pa.table({"id": [5, 9], "v": lake.variant([{"new": True}, b"\0"])})
    merge = dataset.merge(change, "target.id = source.id")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    dataset.update({"v": None}, "id = 4")
    dataset.update({"id": "id + 100"}, "id = 3")
    dataset.delete("id = 1")
    expected = [
        *('{"tags":["a",null],"ts":1.5,"user":{"id":7,"name":"é"}}', None, None),
        *('{"new":true}', '"AA=="', '{"big":12345678901234567890,"user":{"id":"8"}}'),
    ]
    assert texts(dataset.scan().to_table()) == expected
    assert dataset.scan("v IS NULL").count_rows() == 2
    dataset.compact()
    assert texts(dataset.scan().to_table()) == expected
    assert dataset.verify().ok
    feed = dataset.changes(1).to_table()
    values = [one.to_json() for one in feed.filter(pc.field("id") == 9)["v"]]
    assert values == ['"AA=="']
    lake.write_dataset({"id": [0], "v": lake.variant(["x"])}, tmp_path, mode="overwrite")
    dataset.restore(1)
    assert len(texts(dataset.scan().to_table())) == len(TEXTS)


def test_the_catalog_knows_how_many_values_are_null_and_nothing_else(tmp_path: Path) -> None:
    dataset = write(tmp_path)
    bounds = dict(dataset.inspect.row_groups()["bounds"].to_pylist()[0])["v"]
    assert (bounds["null_count"], bounds["lower"], bounds["upper"]) == (1, None, None)
    lake.write_dataset({"id": [50], "v": lake.variant([None])}, tmp_path)
    assert dataset.scan("v IS NOT NULL").explain().files_read == 1


def test_a_column_that_is_added_later_is_null_in_old_rows(tmp_path: Path) -> None:
    dataset = write(tmp_path)
    dataset.add_column("w", lake.variant([]).type)
    dataset.update({"w": "v"}, "id = 0")
    assert texts(dataset.scan().to_table(), "w")[1:] == [None] * 5
    dataset.rename_column("w", "x")
    assert texts(dataset.scan("id = 0").to_table(), "x") == texts(dataset.scan("id = 0").to_table())


def test_partitions_and_many_row_groups(tmp_path: Path) -> None:
    rows = {"p": [n % 2 for n in range(500)], "id": list(range(500))}
    values = lake.variant([None if n % 7 == 0 else {"n": n} for n in range(500)])
    lake.write_dataset({**rows, "v": values}, tmp_path, partition_by="p", row_group_rows=64)
    table = lake.open_dataset(tmp_path).scan("id >= 490").to_table().sort_by("id")
    assert table["v"].to_pylist() == [None if n % 7 == 0 else {"n": n} for n in range(490, 500)]


def nested(ids: list[int]) -> pa.Table:
    """VARIANT in a struct, a list, a map, and a struct in a list, with NULL at each level."""
    count = len(ids)
    values = lake.variant([{"a": n, "s": "é" * n} if n % 3 else None for n in ids])
    numbers = pa.array(ids, pa.int32())
    mask = pa.array([n % 5 == 4 for n in ids])
    struct_ = pa.StructArray.from_arrays([values, numbers], ["v", "n"], mask=mask)
    ends = [*(None if n % 7 == 6 else n for n in range(count)), count]
    list_ = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), values)
    all_ends = pa.array(range(count + 1), pa.int32())
    map_ = pa.MapArray.from_arrays(all_ends, numbers.cast(pa.string()), values)
    inner = pa.StructArray.from_arrays([values], ["w"])
    deep = pa.ListArray.from_arrays(all_ends, inner)
    return pa.table({"id": ids, "s": struct_, "l": list_, "m": map_, "d": deep})


def test_values_inside_of_other_types(tmp_path: Path) -> None:
    given = nested(list(range(20)))
    lake.write_dataset(given, tmp_path / "t")
    dataset = lake.open_dataset(tmp_path / "t")
    assert dataset.scan().to_table().to_pylist() == given.to_pylist()
    path = data_file(tmp_path / "t")
    found = duckdb.sql(f"SELECT * FROM '{path}' ORDER BY id")
    kinds = "STRUCT(v VARIANT, n INTEGER) VARIANT[] MAP(VARCHAR, VARIANT) STRUCT(w VARIANT)[]"
    assert " ".join(map(str, found.types[1:])) == kinds
    maps = pa.table({"m": given["m"]}).to_pylist(maps_as_pydicts="strict")
    rows = [{**row, **map_} for row, map_ in zip(given.to_pylist(), maps)]
    assert [dict(zip(found.columns, row)) for row in found.fetchall()] == rows
    if duckdb.__version__ >= "2":
        view = dataset.scan().to_duckdb(duckdb.connect()).order("id")
        assert " ".join(map(str, view.types[1:])) == kinds
        assert [dict(zip(view.columns, row)) for row in view.fetchall()] == rows
    bounds = dict(dataset.inspect.row_groups()["bounds"].to_pylist()[0])
    assert (bounds["s.v"]["null_count"], bounds["s.n"]["null_count"]) == (10, 4)
    assert dataset.scan("s.v:a::int = 8").to_table()["id"].to_pylist() == [8]
    assert dataset.scan("s.v IS NULL").count_rows() == 10
    assert dataset.scan("s.v:a::int = 80").to_table().num_rows == 0
    assert dataset.scan("id = 8").to_pandas()["s"][0]["v"]["a"] == 8
    text = '{"a":2,"s":"éé"}'
    pytest.importorskip("polars")
    (shown,) = dataset.scan("id = 2").to_polars().collect().drop("id").rows()
    assert shown == ({"v": text, "n": 2}, [text], {"2": text}, [{"w": text}])
    for refused in ({"variant_paths": ["s.v:a"]}, {"sort_by": ["s.v"]}):
        with pytest.raises(lake.InvalidOptionError, match=r"s\.v"):
            dataset.set_properties(**refused)
    with pytest.raises(lake.IcebergUnsupportedError, match=r"s\.v.* type variant"):
        dataset.export_iceberg()
    dataset.update({"s.v": "parse_json('[7]')"}, "id = 2")
    dataset.update({"l": None}, "id = 3")
    dataset.upsert(nested([4, 30]), on=["id"])
    dataset.add_column("s.w", lake.variant([]).type)
    dataset.update({"s.w": "s.v"}, "id = 2")
    dataset.delete("id = 5")
    expected = {row["id"]: row for row in [*given.to_pylist(), *nested([4, 30]).to_pylist()]}
    del expected[5]
    for row in expected.values():
        row["s"] = row["s"] and {**row["s"], "w": None}
    expected[2]["s"] |= {"v": [7], "w": [7]}
    expected[3]["l"] = None
    dataset.compact()
    assert dataset.verify().ok
    table = dataset.refresh().scan().to_table().sort_by("id")
    assert table.to_pylist() == [expected[n] for n in sorted(expected)]
    assert dataset.changes(1).to_polars().collect().height > 20
    shutil.copy(path, tmp_path / "other.parquet")
    dataset.delete("TRUE")
    dataset.add_files([str(tmp_path / "other.parquet")], copy=True)
    back = dataset.scan(columns=given.column_names).to_table().drop("s")
    assert back.to_pylist() == given.drop("s").to_pylist()
    assert dataset.scan("s.v IS NULL").count_rows() == 10


def test_engines_without_the_type_get_json(tmp_path: Path) -> None:
    scan = write(tmp_path).scan("id = 0")
    text = '{"tags":["a",null],"ts":1.5,"user":{"id":7,"name":"é"}}'
    polars = pytest.importorskip("polars")
    assert scan.to_polars().collect()["v"].to_list() == [text]
    feed = lake.open_dataset(tmp_path).changes(1)
    assert feed.to_polars().filter(polars.col("id") == 0).collect()["v"].to_list() == [text]
    with pytest.raises(lake.SchemaMismatchError, match="Arrow's scanner has no type"):
        scan.to_dataset()


OBJECTS = [*lake.variant(TEXTS, json=True).to_pylist()]


@needs_arrow
def test_duckdb_gets_its_own_type(tmp_path: Path) -> None:
    """From files that it reads by itself, and from rows that plake hands over."""
    dataset, connection = write(tmp_path / "t"), duckdb.connect()
    view = dataset.scan().to_duckdb(connection, "t")
    handed = dataset.scan("v:user.id::int = 7 OR id > 0").to_duckdb(connection, "h")
    fed = dataset.changes(1).to_duckdb(connection, "f").order("id").project("id, v")
    for relation in (view, handed, fed):
        assert (str(relation.types[1]), relation.order("id").fetchall()) == (
            "VARIANT",
            list(enumerate(OBJECTS)),
        )
    assert "from memory" not in str(
        connection.sql("SELECT sql FROM duckdb_views() WHERE view_name = 't'")
    )
    assert connection.sql("SELECT id FROM h WHERE v.user.id = 7").fetchall() == [(0,)]
    assert connection.sql("SELECT id FROM t WHERE v.user.id = '8'").fetchall() == [(3,)]
    dataset.add_column("w", lake.variant([]).type)
    dataset.delete("id = 1")
    later = dataset.refresh().scan().to_duckdb(connection, "t")
    assert str(later.types[2]) == "VARIANT"
    kept = [(n, one, None) for n, one in enumerate(OBJECTS) if n != 1]
    assert later.order("id").fetchall() == kept


@pytest.mark.parametrize(
    "layout", ["partition_by", "sort_by", "cluster_by", "bloom_filter_columns", "index_columns"]
)
def test_no_layout_is_by_a_variant(tmp_path: Path, layout: str) -> None:
    with pytest.raises(lake.PlakeError, match=r"cannot partition|cannot have|no values that can"):
        write(tmp_path, **{layout: "v"})


@pytest.mark.parametrize(
    "condition", ["v = 1", "v < 'a'", "v IN (1)", "upper(v) = 'A'", "greatest(v, v) IS NULL"]
)
def test_values_are_not_compared(tmp_path: Path, condition: str) -> None:
    with pytest.raises(lake.InvalidPredicateError, match=r"(?i)variant"):
        write(tmp_path).scan(condition).to_table()


def test_what_cannot_hold_the_type_refuses_it_by_name(tmp_path: Path) -> None:
    dataset = write(tmp_path / "t")
    one = lake.variant([1])
    source, key = pa.table({"v": one}), "target.v = source.v"
    with pytest.raises(lake.InvalidExpressionError, match="values of VARIANT and VARIANT"):
        dataset.merge(source, key).when_matched_delete().execute()
    with pytest.raises(lake.SchemaMismatchError, match="DuckDB does not write exactly"):
        write(tmp_path / "d", writer="duckdb")
    with pytest.raises(lake.SchemaMismatchError, match="is variant and the data has string"):
        lake.write_dataset({"id": [1], "v": ["text"]}, tmp_path / "t", promote_to_string=True)
    with pytest.raises(lake.InvalidOptionError, match="has type variant, whose values are no keys"):
        dataset.add_constraint("key", "UNIQUE (v)")
    with pytest.raises(lake.IcebergUnsupportedError, match="type variant"):
        dataset.export_iceberg()


def test_files_of_others_are_taken_over_or_refused_by_name(tmp_path: Path) -> None:
    dataset = write(tmp_path / "t")
    write(tmp_path / "other")
    dataset.add_files([data_file(tmp_path / "other")], copy=True)
    assert texts(dataset.scan().to_table())[::2] == texts(dataset.scan().to_table())[1::2]
    assert dataset.verify().ok
    plain = str(tmp_path / "plain.parquet")
    struct = pa.array([{"metadata": b"\x01\0\0", "value": b"\0"}])
    pq.write_table(pa.table({"id": [1], "v": struct}), plain)
    with pytest.raises(lake.SchemaMismatchError, match="is variant and the data has struct"):
        dataset.add_files([plain], copy=True)


def random_document(dice: random.Random, depth: int = 0) -> Any:
    kind = dice.randrange(10 if depth < 3 else 6)
    if kind < 3:
        return dice.choice([None, True, 0, 7, -(10**12), 2**62, 1.5, -2.0, 1e300])
    if kind < 6:
        return dice.choice(["", "a", "é" * 40, "2020-01-01", "7"])
    if kind < 9:
        fields = dice.sample("abcde", dice.randrange(4))
        return {name: random_document(dice, depth + 1) for name in fields}
    return [random_document(dice, depth + 1) for _ in range(dice.randrange(4))]


@needs_arrow
def test_shredded_files_of_duckdb_are_read_whole(tmp_path: Path) -> None:
    dice = random.Random(5)
    documents = [random_document(dice) for _ in range(1000)]
    # Most rows of one shape: DuckDB shreds what is common.
    for n in range(0, 1000, 2):
        documents[n] = {"id": n, "user": {"id": dice.choice([n, str(n)])}, "b": documents[n]}
    given = [json.dumps(one) for one in documents]
    path = tmp_path / "shredded.parquet"
    connection = duckdb.connect()
    connection.execute(
        f"COPY (SELECT unnest(?) AS id, unnest(?)::JSON::VARIANT AS v, 'w' AS w) TO '{path}'",
        [list(range(1000)), given],
    )
    assert "typed_value" in str(pq.ParquetFile(path).schema)
    dataset = write(tmp_path / "t")
    dataset.delete("TRUE")
    dataset.add_files([str(path)], copy=True, schema_merge=True)
    # DuckDB makes NULL of JSON's null.
    shown = [json.loads(one or "null") for one in texts(dataset.scan().to_table())]
    assert [json.dumps(one, sort_keys=True) for one in shown] == [
        json.dumps(one, sort_keys=True) for one in documents
    ]
    bounds = dict(dataset.inspect.row_groups()["bounds"].to_pylist()[0])
    assert bounds["v"]["null_count"] == sum(one is None for one in documents)
    assert (bounds["w"]["lower"], bounds["w"]["upper"]) == ("w", "w")
    assert dataset.scan("v IS NULL").count_rows() == bounds["v"]["null_count"]
    dataset.compact()
    assert texts(dataset.scan("id < 10").to_table()) == [
        lake.variant([one])[0].to_json() for one in documents[:10]
    ]


def group(**parts: Any) -> pa.Array:
    """A shredded column of one row."""
    types = {"metadata": pa.binary(), "value": pa.binary()}
    arrays = [pa.array([part], types.get(name)) for name, part in parts.items()]
    return pa.StructArray.from_arrays(arrays, list(parts))


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"value": b"\x0c\1", "typed_value": 1}, "there twice"),
        ({"value": b"\x0c\1", "typed_value": {"a": {"typed_value": 1}}}, "is no object"),
        ({"value": b"\x02\x01\0\0\x02\x0c\1", "typed_value": {"a": {"typed_value": 1}}}, "'a'"),
        ({"value": None, "typed_value": {"a": 1}}, "not a group"),
        ({"value": None, "typed_value": timedelta(1)}, "which the format does not have"),
        ({"metadata": b"\x07", "value": None, "typed_value": 1}, "version 7"),
    ],
)
def test_shredded_parts_that_contradict_each_other_are_an_error(parts: Any, words: str) -> None:
    column = pa.chunked_array([group(**{"metadata": b"\x01\x01\0\x01a", **parts})])
    with pytest.raises(lake.CorruptDatasetError, match=words):
        from_struct(column, "v")


def test_broken_bytes_of_a_file_are_an_error_of_the_value(tmp_path: Path) -> None:
    broken = pa.array([{"metadata": b"\x01\0\0", "value": b"\x0c"}], lake.variant([]).type)
    lake.write_dataset({"v": broken}, tmp_path)
    scan = lake.open_dataset(tmp_path).scan()
    for read in (lambda: scan.to_table().to_pylist(), scan.to_pandas, scan.to_polars):
        with pytest.raises(lake.CorruptDatasetError, match="a value of VARIANT"):
            read()


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("v:user.id::int = 7", [0]),
        ("v:`user`.id::bigint IN (7, 8)", [0, 3]),
        ("variant_get(v, '$.user.name', 'string') = 'é'", [0]),
        ("v:tags[0]::string = 'a' AND v:ts::decimal(3, 1) > 1", [0]),
        ("v['user'] IS NULL", None),
        ("v:['user'].id IS NULL", [1, 2, 4, 5]),
        ("try_variant_get(v, '$', 'int') IS NULL", [0, 1, 2, 3, 4, 5]),
        ("v::string IS NULL", [1, 2]),
        ("is_variant_null(v)", [1]),
        ("is_variant_null(v:tags[1])", [0]),
        ("v::string = 'text' OR v:[0]::double = 1e0", [4, 5]),
        ("TRY_CAST(v:[0] AS DOUBLE) = 1 AND v:[1][1] IS NOT NULL", [4]),
        ("v:user.id = 7", None),
        ("variant_get(v, 'user', 'int') = 7", None),
        ("variant_get(v, '$.user', 'array<int>') IS NULL", None),
        ("id:a::int = 7", None),
        ("v:user.id::int > 6 AND v:user = 1", None),
    ],
)
def test_conditions_on_paths(tmp_path: Path, condition: str, ids: list[int] | None) -> None:
    scan = write(tmp_path).scan
    if ids is None:
        with pytest.raises(lake.PlakeError):
            scan(condition).to_table()
    else:
        assert scan(condition).to_table()["id"].to_pylist() == ids


def test_a_cast_to_null_is_not_taken_for_a_missing_value(tmp_path: Path) -> None:
    # No value of the column is NULL, which must not rule out the file.
    lake.write_dataset({"v": lake.variant([{"a": 1}, {"b": 2}])}, tmp_path)
    assert lake.open_dataset(tmp_path).scan("v:a::int IS NULL").count_rows() == 1
    assert lake.open_dataset(tmp_path).scan("NOT (v:a::int IS NOT NULL)").count_rows() == 1
    assert lake.open_dataset(tmp_path).scan("coalesce(v:a::int, 5) = 5").count_rows() == 1


def test_an_update_parses_json_and_a_constraint_reads_paths(tmp_path: Path) -> None:
    dataset = write(tmp_path)
    dataset.update({"v": "parse_json(concat('{\"n\": ', id, '}'))"}, "TRUE")
    assert dataset.scan("v:n::int = id").count_rows() == len(TEXTS)
    dataset.add_constraint("positive", "v:n::int >= 0")
    with pytest.raises(lake.ConstraintViolationError, match="positive"):
        lake.write_dataset({"id": [9], "v": lake.variant([{"n": -1}])}, tmp_path)
    with pytest.raises(lake.InvalidExpressionError, match="is not JSON"):
        dataset.update({"v": "parse_json('{')"}, "id = 0")
    dataset.update({"v": "try_parse_json('{')"}, "id = 0")
    assert dataset.scan("v IS NULL").count_rows() == 1


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("CASE WHEN id = 1 THEN NULL WHEN id = 2 THEN v END", [None, "2", None]),
        ("CASE WHEN v:n::int = 1 THEN parse_json('[]') ELSE v END", ["[]", "2", None]),
        ("if(id = 1, v, NULL)", ['{"n":1}', None, None]),
        ("coalesce(NULL, v, parse_json('[3]'))", ['{"n":1}', "2", "[3]"]),
        ("nvl(v:n, v)", ["1", "2", None]),
        ("nvl2(v, parse_json('0'), NULL)", ["0", "0", None]),
    ],
)
def test_one_of_several_values_is_taken(
    tmp_path: Path, value: str, wanted: list[str | None]
) -> None:
    lake.write_dataset({"id": [1, 2, 3], "v": lake.variant([{"n": 1}, 2, None])}, tmp_path)
    dataset = lake.open_dataset(tmp_path)
    assert dataset.scan(f"({value}) IS NULL").to_table()["id"].to_pylist() == [
        n for n, one in enumerate(wanted, 1) if one is None
    ]
    dataset.update({"v": value}, "id > 0")
    assert texts(dataset.refresh().scan().to_table().sort_by("id")) == wanted


@pytest.mark.parametrize(
    "value", ["coalesce(v, 1)", "CASE WHEN id = 1 THEN v ELSE 'x' END", "nullif(v, v)"]
)
def test_values_of_other_types_beside_it_are_refused(tmp_path: Path, value: str) -> None:
    lake.write_dataset({"id": [1], "v": lake.variant([1])}, tmp_path)
    with pytest.raises(lake.InvalidExpressionError, match=r"no common type of .*VARIANT"):
        lake.open_dataset(tmp_path).update({"v": value}, "TRUE")


def test_a_generated_column_prunes_by_a_path(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/lake.db"
    schema = pa.schema({"v": lake.variant([]).type, "user": pa.int64()})
    dataset = lake.open_catalog(url, warehouse=str(tmp_path)).create_dataset(
        "events", schema, generated={"user": "try_variant_get(v, '$.user.id', 'bigint')"}
    )
    for user in (7, "8", None, 7.5):
        rows = {"v": lake.variant([{"user": {"id": user}}, {}])}
        lake.write_dataset(rows, dataset.uri, catalog=url)
    scan = dataset.refresh().scan("user = 8")
    assert (scan.explain().files_read, scan.count_rows()) == (1, 1)
    assert sorted(map(str, dataset.refresh().scan().to_table()["user"].to_pylist())) == [
        *("7", "7", "8", "None", "None", "None", "None", "None")
    ]

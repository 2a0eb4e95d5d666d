"""Delta tables become datasets where they stand. What delta-rs or the protocol says is right."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from datetime import date, datetime, timezone
from decimal import Decimal
from importlib.metadata import version
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

import lakehouse_source as lake
from tests.verbs.conftest import EVERY_KIND, catalog_of
from tests.verbs.delta_tables import (
    add,
    bitmap,
    field,
    inline,
    log,
    metadata,
    parquet,
    protocol,
    said_by_delta,
    struct_of,
    vector_file,
    z85,
)

pytestmark = pytest.mark.slow
catalog = catalog_of(*EVERY_KIND)
ODD = ["a", "two words", "100%", "a=b", "ü€😀", "x/y", "%41", "a:b", None]
VECTORS = protocol("deletionVectors")
MAPPING = {"delta_columnMapping_mode": "name"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "table"
    path.mkdir()
    return path


def rows(table: pa.Table) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in table.to_pylist())


def contents(folder: Path) -> dict[str, bytes]:
    """The files, without a catalog."""
    files = (one for one in folder.rglob("*") if one.is_file() and one.parent.name != "_plake")
    return {str(one): one.read_bytes() for one in files}


def refused(
    folder: Path, error: type[lake.PlakeError] = lake.InvalidOptionError, **how: Any
) -> str:
    before = contents(folder)
    with pytest.raises(error) as caught:
        lake.convert(folder, **how)
    assert contents(folder) == before
    with pytest.raises(lake.DatasetNotFoundError):
        lake.open_dataset(folder)
    return str(caught.value)


def every_type(first: int) -> pa.Table:
    """Two rows with values and one of NULLs."""
    n = first
    utc = timezone.utc
    columns = {
        "bool": pa.array([True, False, None]),
        "byte": pa.array([-128, 127, None], pa.int8()),
        "short": pa.array([n, -32768, None], pa.int16()),
        "int": pa.array([n, 2**31 - 1, None], pa.int32()),
        "long": pa.array([n, -(2**63), None], pa.int64()),
        "float": pa.array([1.5, float("nan"), None], pa.float32()),
        "double": pa.array([-0.0, float("inf"), None]),
        "decimal": pa.array([Decimal("1.25"), Decimal("-99999999.99"), None], pa.decimal128(10, 2)),
        "text": pa.array(["", "ü€😀", None]),
        "bytes": pa.array([b"", b"\x00\xff", None]),
        "day": pa.array([date(1, 1, 1), date(9999, 12, 31), None]),
        "at": pa.array([datetime(1970, 1, 1, 0, 0, 0, 1, utc), datetime(2026, 2, 3, tzinfo=utc),
                        None], pa.timestamp("us", "UTC")),
        "local": pa.array([datetime(1960, 1, 1), datetime(2026, 2, 3, 4, 5), None],
                          pa.timestamp("us")),
        "list": pa.array([[1, None], [], None], pa.list_(pa.int32())),
        "map": pa.array([[("a", 1)], [], None], pa.map_(pa.string(), pa.int64())),
        "struct": pa.array([{"x": n, "y": {"z": "q"}}, {"x": None, "y": None}, None],
                           pa.struct([("x", pa.int32()), ("y", pa.struct([("z", pa.string())]))])),
    }  # fmt: skip
    return pa.table(columns)


def test_all_types_of_a_table_that_was_changed_evolved_and_checkpointed(folder: Path) -> None:
    write_deltalake(folder, every_type(1))
    write_deltalake(folder, every_type(2), mode="append")
    table = DeltaTable(folder)
    table.delete("int = 2")
    more = every_type(3).append_column("new", pa.array(["a", None, "c"]))
    write_deltalake(folder, more, mode="append", schema_mode="merge")
    DeltaTable(folder).create_checkpoint()
    DeltaTable(folder).update({"text": "'updated'"}, predicate="int = 3")
    before, expected = contents(folder), said_by_delta(folder)
    dataset = lake.convert(folder)
    assert rows(dataset.scan().to_table()) == rows(expected)
    assert dataset.version == 1
    assert dataset.history()[0].metadata == {"delta_version": DeltaTable(folder).version()}
    assert dataset.scan("new = 'c' OR struct.x = 1").to_table().num_rows == 2
    assert dataset.verify().ok
    assert {name: contents(folder)[name] for name in before} == before


def test_an_old_version_is_taken_over(folder: Path) -> None:
    for number in range(3):
        write_deltalake(folder, pa.table({"n": [number]}), mode="append")
    DeltaTable(folder).create_checkpoint()
    write_deltalake(folder, pa.table({"n": [9]}), mode="overwrite")
    assert "newest is 3" in refused(folder, version=4)
    assert "version" in refused(folder, version=-1)
    dataset = lake.convert(folder, format="delta", version=1)
    assert sorted(dataset.scan().to_table()["n"].to_pylist()) == [0, 1]


@pytest.mark.parametrize("at", ["odd", "n", "day", "moment", "decimal", "flag"])
def test_partition_values(folder: Path, at: str) -> None:
    utc = timezone.utc
    columns = {
        "odd": pa.array(ODD),
        "n": pa.array([*range(-4, 4), None], pa.int16()),
        "day": pa.array([*(date(2026, 1, one) for one in range(1, 9)), None]),
        "moment": pa.array([*(datetime(1969, 1, 1, one, 2, 3, one, utc) for one in range(8)), None],
                           pa.timestamp("us", "UTC")),
        "decimal": pa.array([*(Decimal(one) / 8 for one in range(8)), None], pa.decimal128(9, 3)),
        "flag": pa.array([True, False, None] * 3),
        "row": pa.array(range(9)),
    }  # fmt: skip
    write_deltalake(folder, pa.table(columns), partition_by=["flag", at][at == "flag" :])
    expected = said_by_delta(folder)
    dataset = lake.convert(folder)
    assert dataset.partition_by == (("flag",) if at == "flag" else ("flag", at))
    assert rows(dataset.scan().to_table()) == rows(expected)
    lake.write_dataset(expected.slice(0, 1), folder)
    assert dataset.refresh().scan().count_rows() == 10


def test_a_dataset_lives_on_and_the_table_stays_as_it_is(
    folder: Path, catalog: lake.Catalog
) -> None:
    """The old files stay, even when no version of the dataset has them."""
    write_deltalake(folder, pa.table({"id": range(100), "p": [0, 1] * 50}), partition_by=["p"])
    DeltaTable(folder).delete("id = 7")
    before, delta = contents(folder), said_by_delta(folder)
    dataset = lake.convert(folder, catalog=catalog)
    lake.write_dataset({"id": [100], "p": [2]}, folder, catalog=catalog)
    source = pa.table({"id": [1, 100, 101], "p": [5, 5, 5]})
    dataset.upsert(source, on=["id"])
    dataset.delete("id BETWEEN 50 AND 59")
    dataset.compact(rewrite_deleted=True)
    ids = [*(set(range(102)) - {7} - set(range(50, 60)))]
    assert sorted(dataset.scan().to_table()["id"].to_pylist()) == ids
    assert dataset.scan("p = 5").count_rows() == 3
    dataset.expire_versions(keep_last=1)
    dataset.vacuum(retention_seconds=0, allow_short_retention=True)
    assert sorted(dataset.scan().to_table()["id"].to_pylist()) == ids
    assert {name: data for name, data in contents(folder).items() if name in before} == before
    assert rows(said_by_delta(folder)) == rows(delta)


GONE = (3, 4, 7, 11, 18, 29)


def vector_at(kind: str, folder: Path) -> dict[str, Any]:
    """A vector; a file of it lies where an example of the protocol says, behind another vector."""
    if kind == "i":
        return inline(*GONE)
    data = bitmap(*GONE)
    path = folder / "ab" / "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    path.parent.mkdir()
    path.write_bytes(vector_file(bitmap(1), data))
    return {
        "storageType": kind,
        "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^" if kind == "u" else path.as_uri(),
        "offset": 1 + 8 + len(bitmap(1)),
        "sizeInBytes": len(data),
        "cardinality": len(GONE),
    }


@pytest.mark.parametrize("kind", ["i", "u", "p"])
def test_deletion_vectors_of_each_storage(folder: Path, kind: str) -> None:
    path = parquet(folder, "1.parquet", n=list(range(40)))
    log(folder, VECTORS, metadata([field("n", pa.int64())]), add(path, vector_at(kind, folder)))
    dataset = lake.convert(folder)
    left = sorted(set(range(40)) - set(GONE))
    assert dataset.scan().to_table()["n"].to_pylist() == left
    assert dataset.scan().count_rows() == dataset.history()[0].summary["live_rows"] == 34
    assert rows(said_by_delta(folder)) == rows(dataset.scan().to_table())
    dataset.delete("n = 5")
    assert 5 not in dataset.scan().to_table()["n"].to_pylist()
    assert lake.read_dataset(folder, version=1)["n"].to_pylist() == left
    assert dataset.verify().ok


def test_files_whose_rows_are_all_deleted_and_tables_without_files(folder: Path) -> None:
    one, two = (parquet(folder, f"{at}.parquet", n=list(range(6))) for at in (1, 2))
    all_six = inline(*range(6))
    log(folder, VECTORS, metadata([field("n", pa.int64())]), add(one, all_six), add(two))
    log(folder, {"remove": {"path": two, "dataChange": True, "deletionTimestamp": 1}}, number=1)
    assert lake.convert(folder).scan().to_table().num_rows == 0
    lake.write_dataset({"n": [7]}, folder)
    assert lake.read_dataset(folder)["n"].to_pylist() == [7]
    assert "/1.parquet" in "".join(contents(folder))


def mapped(folder: Path, mode: str, *files: Any) -> None:
    """A table whose columns `n`, `p` and `s.x` have other names in files; `late` came later."""
    inner = struct_of(field("x", pa.int32(), number=4, physical="col-4"))
    columns = [
        field("n", pa.int64(), number=1, physical="col-1"),
        field("p", pa.string(), number=2, physical="col-2"),
        field("s", inner, number=3, physical="col-3"),
        field("late", pa.string(), number=5, physical="n"),
    ]
    log(
        folder,
        protocol("columnMapping"),
        metadata(columns, ["p"], delta_columnMapping_mode=mode),
        *files,
    )


def with_ids(folder: Path, name: str, outer: str, inner: str) -> str:
    """A file; a column with the id 9 was dropped."""
    ids = {1: outer, 3: "col-3", 4: inner, 9: "gone"}
    x = pa.field(inner, pa.int32(), metadata={"PARQUET:field_id": "4"})
    types = {outer: pa.int64(), "col-3": pa.struct([x]), "gone": pa.bool_()}
    fields = [
        pa.field(text, types[text], metadata={"PARQUET:field_id": str(number)})
        for number, text in ids.items()
        if number != 4
    ]
    columns = [
        pa.array([1, 2]),
        pa.array([{inner: 5}, None], types["col-3"]),
        pa.array([True, False]),
    ]
    pq.write_table(pa.table(columns, schema=pa.schema(fields)), folder / name)
    return name


@pytest.mark.parametrize("mode", ["name", "id"])
def test_columns_that_have_other_names_in_files(
    folder: Path, mode: str, catalog: lake.Catalog
) -> None:
    one = with_ids(folder, "1.parquet", "col-1", "col-4")
    # By id, files of one table may have different names, and other columns may have these names.
    names = ("n", "odd") if mode == "id" else ("col-1", "col-4")
    two = with_ids(folder, "2.parquet", *names)
    mapped(folder, mode, add(one, **{"col-2": "a"}), add(two, **{"col-2": "b"}))
    dataset = lake.convert(folder, catalog=catalog)
    expected = [
        {"n": n, "p": p, "s": s, "late": None} for p in "ab" for n, s in ((1, {"x": 5}), (2, None))
    ]
    assert sorted(dataset.scan().to_table().to_pylist(), key=repr) == sorted(expected, key=repr)
    assert dataset.scan("s.x = 5 AND p = 'b'").to_table()["n"].to_pylist() == [1]
    assert dataset.scan("n = 3").explain().files_read == 0
    with duckdb.connect() as connection:
        dataset.scan().to_duckdb(connection, "t")
        assert connection.sql("SELECT sum(n), count(late) FROM t").fetchall() == [(6, 0)]
    more = pa.Table.from_pylist([expected[0] | {"late": "now"}], dataset.schema)
    lake.write_dataset(more, folder, catalog=catalog)
    with dataset.update_schema() as change:
        change.rename_column("n", "number")
    dataset.refresh().branch("b").delete("p = 'a'")
    assert lake.read_dataset(f"{folder}#branch=b", catalog=catalog).num_rows == 2
    assert dataset.refresh().scan("late = 'now' OR number = 2").count_rows() == 3
    dataset.delete("number = 2")
    dataset.restore(1)
    old = lake.read_dataset(folder, version=1, catalog=catalog)
    assert rows(dataset.refresh().scan().to_table()) == rows(old)
    dataset.delete("n = 2")
    dataset.compact(rewrite_deleted=True)
    assert dataset.scan("s.x = 5 AND p = 'b'").to_table()["n"].to_pylist() == [1]
    assert dataset.verify().ok


def test_files_without_ids_cannot_be_read_by_id(folder: Path) -> None:
    mapped(folder, "id", add(parquet(folder, "1.parquet", n=[1]), **{"col-2": "a"}))
    assert "have no ids" in refused(folder, lake.CorruptDatasetError)


@pytest.mark.skipif(version("deltalake") == "1.6.0", reason="deltalake 1.6.0 refuses such a table")
def test_a_mode_counts_only_where_the_protocol_has_the_feature(folder: Path) -> None:
    path = parquet(folder, "1.parquet", n=[1])
    columns = [field("n", pa.int64(), number=1, physical="x")]
    log(folder, protocol(reader=1), metadata(columns, delta_columnMapping_mode="name"), add(path))
    assert lake.convert(folder).scan().to_table()["n"].to_pylist() == [1]


WIDENED: list[tuple[pa.Array, pa.DataType]] = [
    (pa.array([-128, 127, None], pa.int8()), pa.int64()),
    (pa.array([-128, 127, None], pa.int8()), pa.decimal128(10, 0)),
    (pa.array([-32768, 5, None], pa.int16()), pa.int32()),
    (pa.array([-(2**31), 5, None], pa.int32()), pa.float64()),
    (pa.array([-(2**31), 5, None], pa.int32()), pa.decimal128(12, 2)),
    (pa.array([-(2**63), 5, None], pa.int64()), pa.decimal128(22, 2)),
    (pa.array([1.5, float("inf"), None], pa.float32()), pa.float64()),
    (pa.array([date(1, 1, 1), date(9999, 12, 31), None]), pa.timestamp("us")),
    (pa.array([Decimal("1.25"), None], pa.decimal128(4, 2)), pa.decimal128(9, 5)),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("old", "wide"), WIDENED, ids=lambda one: str(getattr(one, "type", one)))
def test_types_that_became_wider(folder: Path, old: pa.Array, wide: pa.DataType) -> None:
    """Every change that the protocol allows, also inside of structs and lists."""
    inner = pa.StructArray.from_arrays([old], ["x"])
    listed = pa.array([[one] for one in old.to_pylist()], pa.list_(old.type))
    is_date = old.type == pa.date32()  # below lists, no statistics show which dates fit
    path = parquet(folder, "1.parquet", v=old, **({} if is_date else {"s": inner, "l": listed}))
    array = {"type": "array", "elementType": field("", wide)["type"], "containsNull": True}
    columns = [field("v", wide), field("s", struct_of(field("x", wide))), field("l", array)]
    features = protocol("typeWidening", "timestampNtz")
    log(folder, features, metadata(columns[: 1 if is_date else 3]), add(path))
    dataset = lake.convert(folder)
    found = dataset.scan().to_table()
    assert found.schema.field("v").type == wide
    assert found["v"].to_pylist() == old.cast(wide).to_pylist()
    if not is_date:
        assert found["s"].to_pylist() == [{"x": one} for one in found["v"].to_pylist()]
        assert found["l"].to_pylist() == [[one] for one in found["v"].to_pylist()]
    lake.write_dataset(found, folder)
    assert dataset.refresh().scan().count_rows() == 2 * len(old)


def test_comments_and_lengths_of_texts_are_kept(folder: Path) -> None:
    document = field("v", pa.string())
    document["metadata"] = {"comment": "said", "__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"}
    log(
        folder, protocol(reader=1), metadata([document]), add(parquet(folder, "1.parquet", v=["a"]))
    )
    dataset = lake.convert(folder)
    assert dataset.comments == {"v": "said"}
    with pytest.raises(lake.SchemaMismatchError, match=r"varchar\(3\)"):
        lake.write_dataset({"v": ["long"]}, folder)


def test_what_stays_behind_is_logged(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    column = field("n", pa.int64())
    column["metadata"] = {"delta.generationExpression": "1 + 1", "CURRENT_DEFAULT": "3"}
    path = parquet(folder, "1.parquet", n=[1])
    log(folder, protocol(reader=1), metadata([column], delta_constraints_few="n < 5"), add(path))
    with caplog.at_level(logging.WARNING, "plake.commit"):
        lake.convert(folder)
    assert "CHECK constraints, defaults, generated columns" in caplog.text


# --- what is refused


@pytest.mark.parametrize("feature", ["variantType", "catalogManaged", "newFeature"])
def test_features_that_readers_must_know_are_refused_by_name(folder: Path, feature: str) -> None:
    path = parquet(folder, "1.parquet", n=[1])
    log(folder, protocol(feature), metadata([field("n", pa.int64())]), add(path))
    told = refused(folder, lake.PlakeError)
    assert feature.lower() in told.lower().replace("-", "")


SECRET = "canary7"
OUTSIDE: dict[str, Callable[[Path], str]] = {
    "above": lambda folder: "../other/1.parquet",
    "above, encoded": lambda folder: "%2e%2e/other/1.parquet",
    "above, in between": lambda folder: "a/../../other/1.parquet",
    "absolute": lambda folder: str(folder.parent / "other" / "1.parquet"),
    "file URI": lambda folder: (folder.parent / "other" / "1.parquet").as_uri(),
    "file URI, above": lambda folder: folder.as_uri() + "/../other/1.parquet",
    "other store": lambda folder: f"s3://key:{SECRET}@bucket/1.parquet",
    "other scheme": lambda folder: f"https://user:{SECRET}@host/1.parquet?token={SECRET}",
    "neighbour": lambda folder: str(folder) + "-2/1.parquet",
    "reads as a scheme": lambda folder: "a:b.parquet",
    "NUL": lambda folder: "a%00b.parquet",
    "nothing": lambda folder: "",
    "the folder": lambda folder: folder.as_uri(),
}


@pytest.mark.parametrize("which", OUTSIDE)
def test_the_log_leads_nowhere_else(folder: Path, which: str) -> None:
    """Neither by the path of a file, nor by that of a deletion vector; no secret is shown."""
    for other in (folder.parent / "other", Path(f"{folder}-2")):
        parquet(other, "1.parquet", n=[1])
    columns, text = metadata([field("n", pa.int64())]), OUTSIDE[which](folder)
    log(folder, protocol(reader=1), columns, add(text))
    assert SECRET not in refused(folder, lake.PlakeError)
    vector = {"storageType": "p", "pathOrInlineDv": text, "sizeInBytes": 9, "cardinality": 1}
    log(folder, VECTORS, columns, add(parquet(folder, "1.parquet", n=[1]), vector))
    assert SECRET not in refused(folder, lake.PlakeError)


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_a_checkpoint_names_no_part_elsewhere(folder: Path, form: str) -> None:
    """deltalake opened a part of a checkpoint by whatever path the checkpoint gave."""
    columns = metadata([field("n", pa.int64())])
    v2 = protocol("v2Checkpoint", writer=("v2Checkpoint",))
    log(folder, v2, columns, add(parquet(folder, "1.parquet", n=[7])))
    DeltaTable(folder).create_checkpoint()
    logs, outside = folder / "_delta_log", folder.parent / "outside"
    checkpoint = logs / f"{0:020d}.checkpoint.parquet"
    held = pq.read_table(checkpoint, columns=["add"])
    outside.mkdir()
    part = held.filter(held["add"].is_valid())
    pq.write_table(part, outside / "part.parquet")
    (logs / "_sidecars").mkdir()
    pq.write_table(part, logs / "_sidecars" / "part.parquet")
    for one in (checkpoint, logs / f"{0:020d}.json", *logs.glob("_last*")):
        one.unlink(missing_ok=True)
    log(folder, number=1)
    size = (outside / "part.parquet").stat().st_size

    def write(path: str) -> None:
        sidecar = {"path": path, "sizeInBytes": size, "modificationTime": 0}
        actions: list[Any] = [{"checkpointMetadata": {"version": 0}}, v2, columns]
        name = f"{0:020d}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.{form}"
        if form == "json":
            lines = [*actions, {"sidecar": sidecar}]
            (logs / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
        else:
            pq.write_table(pa.Table.from_pylist([{"sidecar": sidecar}]), logs / name)

    for path in (
        f"{outside}/part.parquet",
        f"file://{outside}/part.parquet",
        "../../../outside/part.parquet",
        "..%2f..%2f..%2foutside%2fpart.parquet",
        f"s3://key:{SECRET}@bucket/part.parquet",
    ):
        write(path)
        text = refused(folder, lake.CorruptDatasetError)
        assert "named without a folder" in text
        assert SECRET not in text
    if form == "json":
        write("part.parquet")
        assert lake.convert(folder).scan().to_table()["n"].to_pylist() == [7]


def test_links_and_files_by_names_of_plake_are_refused(folder: Path, tmp_path: Path) -> None:
    parquet(tmp_path, "outside.parquet", n=[1])
    (folder / "link.parquet").symlink_to(tmp_path / "outside.parquet")
    columns = metadata([field("n", pa.int64())])
    log(folder, protocol(reader=1), columns, add("link.parquet"))
    assert "link leads out" in refused(folder, lake.CorruptDatasetError)
    written = lake.write_dataset({"n": [1]}, tmp_path / "own").metadata[0].path
    name = parquet(folder, written, n=[1])
    log(folder, protocol(reader=1), columns, add(name))
    assert "only plake gives such names" in refused(folder, lake.CorruptDatasetError)
    (folder / "_delta_log" / f"{1:020d}.json").symlink_to(tmp_path / "outside.parquet")
    assert "link leads out" in refused(folder, lake.CorruptDatasetError)


def damaged(**changes: Any) -> dict[str, Any]:
    return inline(1, 3) | changes


DAMAGED: dict[str, dict[str, Any]] = {
    "too few rows": damaged(cardinality=1),
    "rows that the file lacks": inline(1, 6),
    "a digit": damaged(pathOrInlineDv="~" + inline(1, 3)["pathOrInlineDv"][1:]),
    "cut": damaged(pathOrInlineDv=inline(1, 3)["pathOrInlineDv"][:20]),
    "size": damaged(sizeInBytes=-1),
    "large size": damaged(sizeInBytes=2**31 - 1),
    "kind": damaged(storageType="q"),
    "no UUID": damaged(storageType="u", pathOrInlineDv="short", offset=1),
    "path": damaged(storageType="u", pathOrInlineDv="../x/" + z85(bytes(16)), offset=1),
    "no file": damaged(storageType="u", pathOrInlineDv=z85(bytes(16)), offset=1),
}


@pytest.mark.parametrize("which", DAMAGED)
def test_damaged_deletion_vectors_are_refused(folder: Path, which: str) -> None:
    """Rows that were deleted never come back because a vector cannot be read."""
    path = parquet(folder, "1.parquet", n=list(range(6)))
    log(folder, VECTORS, metadata([field("n", pa.int64())]), add(path, DAMAGED[which]))
    refused(folder, lake.PlakeError)


def test_a_checksum_of_a_vector_file_counts(folder: Path) -> None:
    vector = vector_at("u", folder)
    (path,) = (folder / "ab").iterdir()
    path.write_bytes(path.read_bytes()[:-1] + b"\x00")
    name = parquet(folder, "1.parquet", n=list(range(40)))
    log(folder, VECTORS, metadata([field("n", pa.int64())]), add(name, vector))
    assert "checksum" in refused(folder, lake.CorruptDatasetError)


def test_logs_that_say_nothing_certain_are_refused(folder: Path) -> None:
    columns = metadata([field("n", pa.int64())])
    path = parquet(folder, "1.parquet", n=list(range(6)))
    log(folder, protocol(reader=1), columns, add(path, inline(1)), add(path, inline(2)))
    refused(folder, lake.CorruptDatasetError)
    log(folder, columns, add(path))  # no protocol
    assert str(folder) in refused(folder, lake.CorruptDatasetError)
    log(folder, protocol(reader=1), columns, add("missing.parquet"))
    refused(folder, lake.StorageError)
    log(folder, protocol(reader=1), columns, add(path))
    log(folder, add(path), number=2)  # commit 1 is missing
    refused(folder, lake.CorruptDatasetError)
    (folder / "_delta_log" / f"{2:020d}.json").write_bytes(b"\xff{")
    refused(folder, lake.CorruptDatasetError)


@pytest.mark.parametrize("checkpoint", ["later", "in parts", "a part is missing"])
def test_rows_of_commits_that_were_cleaned_up_are_not_lost(folder: Path, checkpoint: str) -> None:
    """A commit that changed the protocol looks like the first one of a table."""
    columns = metadata([field("n", pa.int64())])
    first, last = (parquet(folder, f"{n}.parquet", n=[n] * 6) for n in (0, 3))
    log(folder, protocol(reader=1), columns, add(first))
    log(folder, protocol(reader=1, writer=()), columns, number=1)
    log(folder, add(last), number=2)
    DeltaTable(folder).create_checkpoint()
    log(folder, number=3)
    logs = folder / "_delta_log"
    (logs / f"{0:020d}.json").unlink()
    if checkpoint == "later":
        assert "commit 0 is missing" in refused(folder, lake.CorruptDatasetError, version=1)
    else:
        (logs / "_last_checkpoint").unlink()
        whole = logs / f"{2:020d}.checkpoint.parquet"
        held = pq.read_table(whole)
        for part in (1, 2):
            half = held.slice((part - 1) * 2, 2 if part == 1 else None)
            pq.write_table(half, logs / f"{2:020d}.checkpoint.{part:010d}.{2:010d}.parquet")
        whole.unlink()
        if checkpoint == "a part is missing":
            (logs / f"{2:020d}.checkpoint.{2:010d}.{2:010d}.parquet").unlink()
            assert "commit 0 is missing" in refused(folder, lake.CorruptDatasetError)
            return
    assert sorted(lake.convert(folder).scan().to_table()["n"].to_pylist()) == [0] * 6 + [3] * 6


def test_arguments_are_checked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = parquet(folder, "1.parquet", n=[1])
    assert "no Delta table" in refused(folder, format="delta")
    assert "is none" in refused(folder, format="iceberg")
    assert "have no versions" in refused(folder, version=0)
    columns = metadata([field("n", pa.int64()), field("p", pa.int32())], ["p"])
    log(folder, protocol(reader=1), columns, add(path, p="1"))
    assert "have no versions" in refused(folder, format="parquet", version=0)
    assert "Delta table" in refused(folder, format="parquet")
    assert "p int32" in refused(folder, partition_types={"p": pa.string()})
    assert "p int32" in refused(folder, partition_types={"n": pa.int64()})
    monkeypatch.setitem(sys.modules, "deltalake", None)
    assert "pip install 'plake[delta]'" in refused(folder)
    monkeypatch.undo()
    assert lake.convert(folder, partition_types={"P": pa.int32()}).partition_by == ("p",)
    with pytest.raises(lake.DatasetExistsError):
        lake.convert(folder)

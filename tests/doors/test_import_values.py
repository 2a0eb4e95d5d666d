"""What `plake scan` writes, `plake import` reads: the same values, for every type and format.

The oracle is the table itself. A value that a column cannot hold exactly is refused, with its file,
line and column, and nothing is written.
"""

from __future__ import annotations

import json
import re
import struct
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import lakehouse_source as lake
from lakehouse_source.cli.group import PLAKE
from lakehouse_source.cli.output import write_rows
from lakehouse_source.cli.rows import _rows
from lakehouse_source.errors import PlakeError
from lakehouse_source.operations.input_files import import_batches
from lakehouse_source.storage import StorageLocation

LONG = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=5) | st.sampled_from(
    ["", " ", "NULL", "NaN", "01234", "1.0", 'a,"b"\r\n', "\n", "\r", "[1]", "2024-01-01", "\x00"]
)
# Counts stand for moments, as Python has too few of them.
LEAVES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    **{
        type_: st.integers(-(2 ** (type_.bit_width - 1)), 2 ** (type_.bit_width - 1) - 1)
        for type_ in (pa.int8(), pa.int16(), pa.int32(), pa.int64())
    },
    **{
        type_: st.integers(0, 2**type_.bit_width - 1)
        for type_ in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
    },
    pa.float16(): st.floats(width=16),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.decimal128(38, 10): st.decimals(-(10**27), 10**27, places=10),
    pa.decimal128(5, 0): st.decimals(-99999, 99999, places=0),
    pa.decimal256(60, 30): st.decimals(-(10**29), 10**29, places=30),
    pa.string(): TEXTS,
    pa.binary(): st.binary(max_size=5),
    pa.binary(3): st.binary(min_size=3, max_size=3),
    pa.date32(): st.integers(-(2**31), 2**31 - 1),
    pa.time32("ms"): st.integers(0, 86_399_999),
    pa.time64("us"): st.integers(0, 86_399_999_999),
    pa.time64("ns"): st.integers(0, 86_399_999_999_999),
    **{pa.timestamp(unit): LONG for unit in ("ms", "us", "ns")},
    **{pa.timestamp(unit, "UTC"): LONG for unit in ("ms", "us", "ns")},
    **{pa.duration(unit): LONG for unit in ("s", "ms", "us", "ns")},
}


def values(type_: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_struct(type_):
        found: Any = st.fixed_dictionaries({one.name: values(one.type) for one in type_})
    elif pa.types.is_map(type_):
        pair = st.tuples(
            values(type_.key_type).filter(lambda key: key is not None), values(type_.item_type)
        )
        found = st.lists(pair, max_size=2)
    elif pa.types.is_fixed_size_list(type_):
        found = st.lists(values(type_.value_type), min_size=2, max_size=2)
    elif pa.types.is_nested(type_):
        found = st.lists(values(type_.value_type), max_size=2)
    else:
        found = LEAVES[type_]
    return st.none() | found


TYPES = st.recursive(
    st.sampled_from(list(LEAVES)),
    lambda inner: st.one_of(
        inner.map(pa.list_),
        inner.map(lambda one: pa.list_(one, 2)),
        st.tuples(st.sampled_from(list(LEAVES)), inner).map(lambda two: pa.map_(*two)),
        st.lists(inner, min_size=1, max_size=2).map(
            lambda some: pa.struct([(f"f {i}", one) for i, one in enumerate(some)])
        ),
    ),
    max_leaves=3,
)


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    count = draw(st.integers(0, 4))
    columns = {}
    for number in range(draw(st.integers(1, 3))):
        type_ = draw(TYPES)
        given_ = draw(st.lists(values(type_), min_size=count, max_size=count))
        columns[f"c,{number}"] = pa.array(given_, type_)
    return pa.table(columns)


def raw(scalar: pa.Scalar) -> Any:
    """A value that equals its like only: moments as counts, floats as bits."""
    if not scalar.is_valid:
        return None
    if isinstance(scalar, pa.StructScalar):
        return [raw(one) for one in scalar.values()]
    if isinstance(scalar, (pa.ListScalar, pa.FixedSizeListScalar, pa.MapScalar)):
        return [raw(one) for one in scalar.values]
    if pa.types.is_temporal(scalar.type):
        return scalar.value
    if pa.types.is_floating(scalar.type):
        found = float(scalar.as_py())
        return "NaN" if found != found else struct.pack("d", found)
    return scalar.as_py()


def raws(table: pa.Table) -> list[list[Any]]:
    return [[raw(one) for one in column] for column in table.columns]


def run(*arguments: object) -> Result:
    found = CliRunner().invoke(PLAKE, [*map(str, arguments), "--quiet"])
    if found.exception is not None and not isinstance(found.exception, (PlakeError, SystemExit)):
        raise found.exception
    return found


def done(*arguments: object) -> str:
    found = run(*arguments)
    assert found.exception is None, found.exception
    return found.stdout


def through_a_file(table: pa.Table, output: str, folder: Path) -> pa.Table:
    file = folder / f"rows.{output}"
    with open(file, "w", encoding="utf-8", newline="") as sink:
        write_rows(table.schema.names, _rows(table.to_batches()), output, to=sink)
    schema, batches, inferred = import_batches(
        [str(file)], StorageLocation.of("."), known=table.schema
    )
    assert not inferred
    return pa.Table.from_batches(batches, schema)


@pytest.mark.parametrize("output", ["csv", "json", "jsonl"])
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@example(pa.table({"only": pa.array([None, "", "x"], pa.string())}))
@example(pa.table({"d": pa.array([2.0**53 + 2, 5e-324, 1.7976931348623157e308, -0.0])}))
@example(pa.table({"b": pa.array([b"\xff", b"", None], pa.binary())}))
@example(pa.table({"l": pa.array([[None, {"a": 1}], None, []])}))
@example(pa.table({"t": pa.array([2**62, -(2**62)], pa.timestamp("ms", "UTC"))}))
@given(tables())
def test_a_table_comes_back_from_the_text_that_scan_writes(output: str, table: pa.Table) -> None:
    with TemporaryDirectory() as folder:
        assert raws(through_a_file(table, output, Path(folder))) == raws(table)


@pytest.mark.parametrize("output", ["csv", "json"])
def test_a_dataset_of_all_types_comes_back_from_the_file_that_scan_wrote(
    output: str, tmp_path: Path
) -> None:
    columns = {}
    for number, type_ in enumerate(LEAVES):
        rows: list[Any] = [None, 1, 0]
        if type_ == pa.bool_():
            rows = [None, True, False]
        if pa.types.is_decimal(type_):
            rows = [None, Decimal(1), Decimal(0)]
        if type_ in (pa.string(), pa.binary()):
            rows = [None, "", "é"]
        if type_ == pa.binary(3):
            rows = [None, b"abc", b"\0\0\0"]
        column = pa.array(rows, type_)
        columns[f"c{number}"] = column
        columns[f"l{number}"] = pa.ListArray.from_arrays([0, 2, 2, 3], column)
        columns[f"s{number}"] = pa.StructArray.from_arrays([column], ["x"])
    table = pa.table(columns)
    lake.write_dataset(table, tmp_path / "one")
    lake.write_dataset(table.slice(0, 0), tmp_path / "other")
    done("scan", tmp_path / "one", "--output", output, "--to", tmp_path / f"rows.{output}")
    done("import", tmp_path / "other", tmp_path / f"rows.{output}")
    assert raws(lake.read_dataset(tmp_path / "other")) == raws(table)


INFERRED = {
    "9007199254740993": (pa.int64(), 9007199254740993),
    "18446744073709551615": (pa.decimal128(38, 0), Decimal(18446744073709551615)),
    "0.1": (pa.float64(), 0.1),
    "0.10000000000000001": (pa.float64(), 0.1),
    "9007199254740993.5": (pa.decimal128(38, 1), Decimal("9007199254740993.5")),
    "1e23": (pa.float64(), 1e23),
}


@pytest.mark.parametrize("text", INFERRED)
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("format", ["csv", "json"])
def test_a_number_that_no_double_holds_was_rounded(
    text: str, nested: bool, format: str, tmp_path: Path
) -> None:
    type_, value = INFERRED[text]
    if format == "csv":
        if nested:
            return
        (tmp_path / "a.csv").write_text(f"n\n{text}\n")
    else:
        cell = f'[{{"x": {text}}}]' if nested else text
        (tmp_path / "a.json").write_text(f'{{"n": {cell}}}\n')
    done("import", tmp_path / "d", tmp_path / f"a.{format}")
    found = lake.read_dataset(tmp_path / "d")["n"]
    if nested:
        found = found.chunk(0).flatten().field(0)
    assert (found.type, found[0].as_py()) == (type_, value)


DOUBLES = pa.schema([("n", pa.float64()), ("l", pa.list_(pa.struct([("x", pa.float64())])))])
REFUSED = [
    # type, what CSV has, what JSON has, what the error says
    (pa.float64(), "9007199254740993", "9007199254740993", "9007199254740992"),
    (pa.float64(), "1e999", "1e999", "out of range"),
    (pa.float32(), "16777217", "16777217", "16777216"),
    (pa.int8(), "128", "128", "out of range"),
    (pa.int64(), "1.5", "1.5", "rounded"),
    (pa.int64(), "1e999999999", "1e999999999", "out of range"),
    (pa.int64(), "x", "true", "number"),
    (pa.decimal128(5, 2), "1.005", "1.005", "rounded"),
    (pa.bool_(), "maybe", '"maybe"', "true or false"),
    (pa.binary(), "no base64!", '"no base64!"', "base64"),
    (pa.binary(3), "AAE=", '"AAE="', "2 bytes"),
    (pa.date32(), "2024-02-30", '"2024-02-30"', "day"),
    (pa.date32(), "2024-02-01 10:00:00", '"2024-02-01 10:00:00"', "more than a date"),
    (pa.timestamp("us"), "2024-01-01T10:00:00+02:00", '"2024-01-01T10:00:00+02:00"', "a zone"),
    (pa.timestamp("us", "UTC"), "2024-01-01 10:00:00", '"2024-01-01 10:00:00"', "zone is missing"),
    (pa.timestamp("ms"), "2024-01-01 10:00:00.0001", '"2024-01-01 10:00:00.0001"', "finer"),
    (pa.timestamp("ns"), "2500-01-01 10:00:00", '"2500-01-01 10:00:00"', "out of range"),
    (pa.list_(pa.int8()), "[1]]", '{"a": 1}', "expected|Extra"),
    (pa.list_(pa.int8()), "[300]", "[300]", "out of range"),
    (pa.list_(pa.float64(), 2), "[1]", "[1]", "1 elements"),
    (pa.struct([("a", pa.int8())]), '"{""b"": 1}"', '{"b": 1}', "no such field"),
    (pa.map_(pa.string(), pa.int8()), '"[[null, 1]]"', "[[null, 1]]", "null"),
    (pa.string(), None, "5", "text is expected"),
    (pa.string(), None, r'"\ud800"', "surrogate"),
]


@pytest.mark.parametrize(("type_", "in_csv", "in_json", "says"), REFUSED)
@pytest.mark.parametrize("format", ["csv", "json"])
def test_a_value_that_does_not_fit_is_refused_with_file_line_and_column(
    type_: pa.DataType, in_csv: str | None, in_json: str, says: str, format: str, tmp_path: Path
) -> None:
    file = tmp_path / f"a.{format}"
    if format == "csv":
        if in_csv is None:
            return
        file.write_text(f'k,the n\n"a\nb",\n\nc,{in_csv}\n')
    else:
        file.write_text('{"k": "a"}\n\n\n{"k": \n"b"}{"k": "c", "the n": ' + in_json + "}\n")
    schema = pa.schema([("k", pa.string()), ("the n", type_)])
    lake.write_dataset(schema.empty_table(), tmp_path / "d")
    error = run("import", tmp_path / "d", file).exception
    assert isinstance(error, lake.SchemaMismatchError), error
    assert error.column.startswith("the n")
    assert f"in line 5 of {file}" in str(error)
    assert re.search(says, str(error)), str(error)
    assert lake.open_dataset(tmp_path / "d").version == 1


BROKEN = {
    "empty.json": "",
    "no end.json": '[{"a": 1},\n{"a": 2}',
    "half.json": '{"a": 1}\n{"a": ',
    "twice.json": '{"a": 1, "a": 2}',
    "text.json": '"a"',
    "comma.json": '[{"a": 1} {"a": 2}]',
    "after.json": '[{"a": 1}] {"a": 2}',
    "deep.json": '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "long.json": '{"a": ' + "9" * 5000 + "}",
    "empty.csv": "",
    "wide.csv": "a\n1,2\n",
    "not.parquet": "PAR1",
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_of_the_users_is_no_corrupt_dataset(name: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_text(BROKEN[name])
    error = run("import", tmp_path / "d", file).exception
    assert isinstance(error, lake.InvalidOptionError), error
    assert str(file) in str(error)
    assert not (tmp_path / "d" / "_plake").exists()


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    for name, content in (("a.csv", b"a\n\xff\n"), ("a.json", b'{"a": "\xff"}')):
        (tmp_path / name).write_bytes(content)
        assert isinstance(
            run("import", tmp_path / "d", tmp_path / name).exception, lake.InvalidOptionError
        )


@pytest.mark.parametrize("format", ["csv", "json"])
def test_moments_keep_their_zone_and_mixed_ones_stay_text(format: str, tmp_path: Path) -> None:
    cells = {
        "utc": ("2024-01-01T10:00:00Z", "2024-01-01T10:00:00.5Z"),
        "offsets": ("2024-01-01T10:00:00+02:00", "2024-01-01T10:00:00-05:00"),
        "mixed": ("2024-01-01T10:00:00Z", "2024-01-01T10:00:00"),
        "wall": ("2024-01-01 10:00:00", "2024-01-02"),
        "day": ("2024-01-01", "2024-01-02"),
        "clock": ("10:00:00", "11:00:00.5"),
        "code": ("01234", "00007"),
    }
    rows = [dict(zip(cells, row)) for row in zip(*cells.values())]
    file = tmp_path / f"a.{format}"
    if format == "csv":
        lines = [",".join(cells), *(",".join(row.values()) for row in rows)]
        file.write_text("\n".join(lines) + "\n")
    else:
        file.write_text("\n".join(map(json.dumps, rows)))
    inferred = json.loads(done("import", tmp_path / "d", file, "-o", "json"))[0]["inferred"]
    assert inferred == {
        "utc": "TIMESTAMP",
        "offsets": "TIMESTAMP",
        "mixed": "STRING",
        "wall": "TIMESTAMP_NTZ",
        "day": "DATE",
        "clock": "TIME",
        "code": "STRING",
    }
    offsets = lake.read_dataset(tmp_path / "d")["offsets"].cast(pa.int64()).to_pylist()
    assert offsets == [1704096000000000, 1704121200000000]


@pytest.mark.parametrize("later", ["01234", "x"])
def test_a_later_value_of_another_form_is_refused_and_not_changed(
    later: str, tmp_path: Path
) -> None:
    row = "1" * 100 + "\n"
    many = 9 * 1024 * 1024 // (len(row) + 2)
    text = "n,s\n" + f"5,{row}" * many + f"{later},x\n"
    (tmp_path / "a.csv").write_text(text)
    error = run("import", tmp_path / "d", tmp_path / "a.csv").exception
    assert isinstance(error, lake.SchemaMismatchError)
    assert f"{later!r}, in line {many + 2} of" in str(error)


def test_types_that_were_asked_for_are_used(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("zip,n,l\n12345,1,[1]\n00001,2,\n")
    told = done(
        *("import", tmp_path / "d", tmp_path / "a.csv", "-o", "json"),
        *("--schema", "zip STRING, n DECIMAL(5,2)", "--schema", "l ARRAY<INT>"),
    )
    assert json.loads(told)[0]["inferred"] == {}
    schema = lake.read_dataset(tmp_path / "d").schema
    assert schema.types == [pa.string(), pa.decimal128(5, 2), pa.list_(pa.int32())]
    error = run("import", tmp_path / "e", tmp_path / "a.csv", "--schema", "zap STRING").exception
    assert isinstance(error, lake.SchemaMismatchError)
    assert error.column == "zap"


def test_numbers_with_nan_are_doubles_and_other_mixtures_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text('[{"a": 1.5}, {"a": "NaN"}, {"a": "-Infinity"}, {"a": 2}]')
    done("import", tmp_path / "d", file)
    assert lake.read_dataset(tmp_path / "d")["a"].type == pa.float64()
    file.write_text('{"a": 1}\n{"a": "x"}')
    error = run("import", tmp_path / "e", file).exception
    assert isinstance(error, lake.SchemaMismatchError)
    assert f"in line 2 of {file}" in str(error)


@pytest.mark.parametrize("bare", ["NaN", "Infinity", "-Infinity"])
def test_a_bare_nan_of_json_is_no_traceback(tmp_path: Path, bare: str) -> None:
    file = tmp_path / "a.json"
    for text in (
        f'{{"a": {bare}}}',
        f'{{"a": 1}}\n{{"a": {bare}}}',
        f'{{"a": 1.5}}\n{{"a": {bare}}}',
    ):
        file.write_text(text)
        done("import", tmp_path / "d", file, "--mode", "overwrite")
        column = lake.read_dataset(tmp_path / "d")["a"]
        assert column.type == pa.float64()
        assert repr(column[-1].as_py()) == repr(float(bare))
    file.write_text(f'{{"a": {bare}}}')
    error = run("import", tmp_path / "e", file, "--schema", "a INT").exception
    assert isinstance(error, lake.SchemaMismatchError)


def test_files_without_rows(tmp_path: Path) -> None:
    lake.write_dataset({"a": [1]}, tmp_path / "d")
    for name, text in (("a.json", "[]"), ("b.jsonl", ""), ("c.csv", "a\n")):
        (tmp_path / name).write_text(text)
        done("import", tmp_path / "d", tmp_path / name)
    assert lake.open_dataset(tmp_path / "d").scan().count_rows() == 1

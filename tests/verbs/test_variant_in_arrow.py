"""Conditions on paths of VARIANT as Arrow expressions: `pc.field("v", "n").cast("int64") == 7`.

The oracle casts the documents in Python, and Arrow filters a table of what it got.
"""

from __future__ import annotations

import json
import operator
import pickle
import random
from collections.abc import Callable
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakehouse_source as lake
from tests.variant_programs import MISSING, at

VALUES = (
    *range(-2, 9), *range(-2, 9), 2**31, -(2**63), 2**53 + 1, 1.5, 2.0, -0.0, 0.0, float("nan"),
    Decimal("2.50"), Decimal("7.00"), "7", " 3 ", "x", "", "é", "7.5", "true", True, False, None,
    MISSING, MISSING, {"a": 1}, [7],
)  # fmt: skip
TYPED: tuple[tuple[Any, ...], ...] = (
    tuple(range(20)), tuple(n / 4 for n in range(20)), tuple("abcdefg"), (True, False),
    tuple(Decimal(n) / 4 for n in range(20)),
)  # fmt: skip
PATHS = (("n",), ("s", "t"), ("s", "u v"), ("it's",))
NAMED: tuple[list[str], ...] = ([], ["v:n"], ["v:n", "v:s.t"], ["v:s.t"])


def whole(value: Any, least: int, most: int) -> int | None:
    """A value as a whole number as `TRY_CAST` of Spark makes it."""
    if isinstance(value, str):
        value = value.strip()
        value = int(value) if value.lstrip("-").isdigit() and value.isascii() else None
    if not isinstance(value, (int, float, Decimal)) or value != value:
        return None
    return int(value) if least <= int(value) <= most else None


def double(value: Any) -> float | None:
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return None
    return float(value) if isinstance(value, (int, float, Decimal)) else None


def text(value: Any) -> str | None:
    if value is None or value is MISSING or isinstance(value, str):
        return value if isinstance(value, str) else None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (dict, list)):
        return json.dumps(value, separators=(",", ":"))
    if isinstance(value, float):
        return "NaN" if value != value else repr(value)
    # In a file with decimals at a path its whole numbers are decimals too: 7 is '7' in any case.
    return str(value) if isinstance(value, int) else format(value.normalize(), "f")


def truth(value: Any) -> bool | None:
    if isinstance(value, str):
        return {"true": True, "t": True, "f": False}.get(value)
    if isinstance(value, (int, float, Decimal)):
        return value != 0
    return None


def decimal(value: Any) -> Decimal | None:
    if isinstance(value, str):
        value = double(value)
    if isinstance(value, bool):
        value = int(value)
    if not isinstance(value, (int, float, Decimal)) or value != value or abs(value) >= 10**6:
        return None
    return round(Decimal(str(value)), 2)


CASTS: dict[pa.DataType, Callable[[Any], Any]] = {
    pa.int64(): lambda value: whole(value, -(2**63), 2**63 - 1),
    pa.int32(): lambda value: whole(value, -(2**31), 2**31 - 1),
    pa.int8(): lambda value: whole(value, -128, 127),
    pa.float64(): double,
    pa.string(): text,
    pa.large_string(): text,
    pa.bool_(): truth,
    pa.decimal128(8, 2): decimal,
}
COMPARED = tuple(getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge"))
Pair = tuple[pc.Expression, pc.Expression]  # over the documents, and over what the oracle got


def reference(path: tuple[str, ...], type_: pa.DataType) -> Pair:
    found = pc.field("v", *path).cast(type_, safe=False)
    return found, pc.field(f"{path}{type_}")


def constant(draw: random.Random, type_: pa.DataType) -> Any:
    if pa.types.is_integer(type_):
        return draw.choice((draw.randrange(-3, 20), draw.randrange(-3, 20), 2**31, 300))
    if pa.types.is_floating(type_):
        return draw.choice((draw.randrange(20) / 4, 7, float("nan"), 0.0, -0.0))
    if pa.types.is_boolean(type_):
        return draw.random() < 0.5
    if pa.types.is_decimal(type_):
        return pa.scalar(Decimal(draw.randrange(-8, 60)) / 4, type_)
    return draw.choice((*"abcdefg", "7", "", "x", "é", "true", "2"))


def one_test(draw: random.Random) -> Pair:
    path, type_ = draw.choice(PATHS), draw.choice(list(CASTS))
    ours, wanted = reference(path, type_)
    kind = draw.random()
    if kind < 0.15:
        nan = draw.random() < 0.5
        return ours.is_null(nan_is_null=nan), wanted.is_null(nan_is_null=nan)
    if kind < 0.25:
        return ours.is_valid(), wanted.is_valid()
    if kind < 0.3:  # where there is nothing, which JSON's null is not
        return pc.field("v", *path).is_null(), pc.field(f"{path}").is_null()
    if kind < 0.45 and type_ != pa.large_string():
        values = [constant(draw, type_) for _ in range(draw.randrange(4))]
        if pa.types.is_integer(type_):
            values = [one for one in values if one < 100]
        listed = pa.array([one.as_py() if isinstance(one, pa.Scalar) else one for one in values]
                          + [None] * (draw.random() < 0.2), type_)  # fmt: skip
        return ours.isin(listed), wanted.isin(listed)
    if kind < 0.5 and type_ == pa.string():
        begin = draw.choice(("", "a", "t", "7"))
        return pc.starts_with(ours, begin), pc.starts_with(wanted, begin)
    if kind < 0.55 and pa.types.is_boolean(type_):
        return ours, wanted
    if kind < 0.65:
        other = draw.randrange(300)
        return pc.field("id") < other, pc.field("id") < other
    compared, value = draw.choice(COMPARED), constant(draw, type_)
    if draw.random() < 0.2:
        return compared(pc.scalar(value), ours), compared(pc.scalar(value), wanted)
    return compared(ours, value), compared(wanted, value)


def condition(draw: random.Random, depth: int = 2) -> Pair:
    kind = draw.random()
    if not depth or kind < 0.35:
        return one_test(draw)
    if kind < 0.5:
        ours, wanted = condition(draw, depth - 1)
        return ~ours, ~wanted
    pairs = [condition(draw, depth - 1) for _ in range(draw.choice((2, 2, 3)))]
    joined = operator.and_ if kind < 0.8 else operator.or_
    return reduce(joined, (one for one, _ in pairs)), reduce(joined, (one for _, one in pairs))


def document(draw: random.Random, kinds: dict[tuple[str, ...], tuple[Any, ...]]) -> Any:
    if draw.random() < 0.05:
        return None
    found: dict[str, Any] = {}
    for path, values in kinds.items():
        value = draw.choice(VALUES if draw.random() < 0.05 else values)
        place = found
        for name in path[:-1]:
            place = place.setdefault(name, {})
        if value is not MISSING:
            place[path[-1]] = value
    return found


def made(folder: Path, draw: random.Random) -> tuple[lake.Dataset, pa.Table]:
    """Rows in several files, and what the oracle has of them."""
    documents: list[Any] = []
    for _ in range(draw.randrange(3, 9)):
        kinds = {path: draw.choice((VALUES, *TYPED, *TYPED)) for path in PATHS}
        some = [document(draw, kinds) for _ in range(draw.randrange(1, 40))]
        ids = range(len(documents), len(documents) + len(some))
        lake.write_dataset({"id": list(ids), "v": lake.variant(some)}, folder)
        if draw.random() < 0.5:
            lake.open_dataset(folder).set_properties(variant_paths=draw.choice(NAMED))
        documents += some
    columns: dict[str, Any] = {"id": pa.array(range(len(documents)), pa.int64())}
    for path in PATHS:
        found = [MISSING if one is None else at(one, *path) for one in documents]
        columns[f"{path}"] = [None if one is MISSING else 1 for one in found]
        for type_, cast in CASTS.items():
            columns[f"{path}{type_}"] = pa.array([cast(one) for one in found], type_)
    return lake.open_dataset(folder), pa.table(columns)


def check(folder: Path, seed: int, conditions: int) -> tuple[int, int]:
    """The files that conditions read, and those that there are."""
    draw = random.Random(seed)
    dataset, wanted = made(folder, draw)
    read = total = 0
    for _ in range(conditions):
        ours, oracles = condition(draw)
        scan = dataset.scan(ours, columns=["id"])
        ids = scan.to_table()["id"].to_pylist()
        assert sorted(ids) == wanted.filter(oracles)["id"].to_pylist(), (seed, ours)
        explained = scan.explain()
        read, total = read + explained.files_read, total + explained.files_total
    ours, oracles = condition(draw)
    dataset.delete(ours)
    kept = set(wanted["id"].to_pylist()) - set(wanted.filter(oracles)["id"].to_pylist())
    left = lake.read_dataset(folder, columns=["id"])["id"].to_pylist()
    assert sorted(left) == sorted(kept), (seed, ours)
    return read, total


USER, NAME = pc.field("v", "user", "id"), pc.field("v", "user", "name")


def in_ten_files(folder: Path) -> lake.Dataset:
    for file in range(10):
        ids = list(range(file * 10, file * 10 + 10))
        documents = [{"user": {"id": one, "name": f"n{one:03}"}, "ts": one / 4} for one in ids]
        rows = {"id": ids, "v": lake.variant(documents)}
        lake.write_dataset(rows, folder, variant_paths=["v:user.id", "v:user.name", "v:ts"])
    return lake.open_dataset(folder)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (USER.cast("int64") == 7, "v:user.id::bigint = 7"),
        (USER.cast("int32").isin([3, 77]), "v:user.id::int IN (3, 77)"),
        (~(USER.cast("int32") >= 5), "NOT (v:user.id::int >= 5)"),
        (USER.cast("float64") > 96.5, "v:user.id::double > 96.5"),
        (USER.cast(pa.decimal128(30, 1)) > pa.scalar(Decimal(96), pa.decimal128(30, 1)),
         "v:user.id::decimal(30, 1) > 96"),
        (USER.cast("int64").is_null(), "v:user.id::bigint IS NULL"),
        (NAME.cast("string") == "n042", "v:user.name::string = 'n042'"),
        (NAME.cast("large_string") == "n042", "v:user.name::string = 'n042'"),
        (pc.starts_with(NAME.cast("string"), "n04"), "startswith(v:user.name::string, 'n04')"),
        ((USER.cast("int64") > 60) & (pc.field("v", "ts").cast("float64") < 16),
         "v:user.id::bigint > 60 AND v:ts::double < 16"),
        ((USER.cast("int64") == 60) | (pc.field("id") == 3), "v:user.id::bigint = 60 OR id = 3"),
    ],
)  # fmt: skip
def test_an_expression_reads_the_files_that_the_text_reads(
    expression: pc.Expression, text: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "ten"
    dataset = lake.open_dataset(path) if path.exists() else in_ten_files(path)
    found, wanted = dataset.scan(expression), dataset.scan(text)
    assert found.to_table().equals(wanted.to_table())
    assert found.explain().files_read == wanted.explain().files_read < 10


def test_a_row_that_one_term_rules_out_is_not_cast_for_the_next(tmp_path: Path) -> None:
    documents = [{"kind": "number", "at": 7}, {"kind": "text", "at": "x"}]
    lake.write_dataset({"id": [1, 2], "v": lake.variant(documents)}, tmp_path)
    at_seven = pc.field("v", "at").cast("int32") == 7
    is_number = pc.field("v", "kind").cast("string") == "number"
    dataset = lake.open_dataset(tmp_path)
    assert dataset.scan(is_number & at_seven).to_table()["id"].to_pylist() == [1]
    with pytest.raises(
        lake.InvalidExpressionError, match="the value x in a VARIANT cannot be cast"
    ):
        dataset.scan(at_seven).to_table()
    lenient = pc.field("v", "at").cast("int32", safe=False) == 7
    assert dataset.scan(lenient).to_table()["id"].to_pylist() == [1]
    assert pickle.loads(pickle.dumps(dataset.scan(lenient))).count_rows() == 1


def test_a_constant_that_a_type_does_not_hold_is_not_rounded(tmp_path: Path) -> None:
    rows = {"v": lake.variant([{"f": 0.1}])}
    lake.write_dataset(rows, tmp_path, variant_paths=["v:f"])
    dataset, single = lake.open_dataset(tmp_path), pc.field("v", "f").cast("float32")
    # As a FLOAT, 0.1 is a little more than 0.1.
    assert dataset.scan(single > 0.1).count_rows() == 1
    assert dataset.scan(single > pa.scalar(0.1, pa.float32())).explain().files_read == 0


def test_places_in_fields_of_structs_and_whole_columns(tmp_path: Path) -> None:
    documents = lake.variant([{"n": 1}, {"n": 2}, None])
    inner = pa.StructArray.from_arrays([documents, pa.array([5, 6, 7])], ["v", "n"])
    lake.write_dataset(pa.table({"s": inner, "w": lake.variant([1, "2", None])}), tmp_path)
    dataset = lake.open_dataset(tmp_path)
    for expression, count in (
        (pc.field("s", "v", "n").cast("int64") == 2, 1),
        (pc.field("s", "v", "n").cast("int64") + pc.field("s", "n") == 8, 1),
        (pc.field("s", "v").is_null(), 1),
        (pc.field("s", "v", "m").is_null(), 3),
        (pc.field("w").cast("int64") == 2, 1),
        (pc.field("w").cast("uint8") == 2, 1),
        (pc.field("w").is_valid(), 2),
    ):
        assert dataset.scan(expression).count_rows() == count, expression


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        (USER.cast(pa.duration("s")).is_null(), "a cast from VARIANT to duration"),
        (USER.cast("int64"), "a condition is bool"),
        (pc.field("v", ".'\"").cast("int64") == 1, "no path of VARIANT leads to"),
        (pc.field("v", "a\nend: 'cast").is_null(), "A path into a VARIANT is cast"),
        (pc.list_element(pc.field("v"), 0) == 1, "A path into a VARIANT is cast"),
    ],
)
def test_what_has_no_meaning_is_refused(
    expression: pc.Expression, words: str, tmp_path: Path
) -> None:
    lake.write_dataset({"v": lake.variant([{"user": {"id": 1}}])}, tmp_path)
    with pytest.raises(lake.InvalidPredicateError, match=words):
        lake.open_dataset(tmp_path).scan(expression).to_table()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_random_conditions_find_the_rows_of_the_oracle(seed: int, tmp_path: Path) -> None:
    read, total = check(tmp_path, seed, 60)
    assert read < total

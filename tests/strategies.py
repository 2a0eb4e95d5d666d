"""What property tests draw: columns, rows, conditions, row groups with poorer statistics.

Values come from small pools of awkward ones, so that literals meet values and
both meet the ends of their types.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta, timezone
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from lakehouse_source.language import (
    Name,
    Node,
    Timestamp,
    all_of,
    any_of,
    compare,
    constant,
    is_in,
    is_null,
    like,
    matches,
    negated,
)
from lakehouse_source.model import ColumnBounds, RowGroupMetadata
from lakehouse_source.pruning.bounds import encode_row_group
from lakehouse_source.schema import fields as schemas
from lakehouse_source.schema.fields import Leaf
from lakehouse_source.schema.merge import initial

NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
WIDE = Context(prec=120)


def register_profiles() -> None:
    """Register `quick` (the default), `mutation` and `property`; load one.

    The environment variable HYPOTHESIS_PROFILE chooses.
    """
    calm = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
    for name, examples in (("quick", 20), ("mutation", 50)):  # the same ones every time
        settings.register_profile(
            name,
            max_examples=examples,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=calm,
        )
    settings.register_profile(
        "property", max_examples=10_000, deadline=None, print_blob=True, suppress_health_check=calm
    )
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


register_profiles()


# --- values -----------------------------------------------------------------


def single(value: float) -> float:
    """The nearest float32, as a Python float."""
    return struct.unpack("<f", struct.pack("<f", value))[0]


TEXTS = [
    "",
    "a",
    "ab",
    "abc",
    "aé",
    "az",
    "b",
    "a\nb",
    "a_%\\'b",
    "\x00",
    "\ud7ff",
    "\ue000",
    "\uffee",
    "\U0001f600",
    "\U0010ffff",
    "x" * 31 + "é",
    "x" * 40,
    "x" * 63 + "\ud7ff" + "y",
    "x" * 63 + "\U0010ffff" + "y",
    "\U0010ffff" * 70,
    "long" * 1250,
]
BINARIES = [
    b"",
    b"\x00",
    b"a",
    b"ab",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\xff\xff",
    b"\xff" * 32,
    b"\xff" * 33,
    b"\xff" * 70,
    b"a" * 31 + b"\xff\x01",
    b"b" * 64 + b"\x01",
]
DOUBLES = [
    float("nan"),
    float("inf"),
    float("-inf"),
    0.0,
    -0.0,
    1.0,
    1.1,
    -1.1,
    1.5,
    2.0,
    5e-324,
    -5e-324,
    1.7976931348623157e308,
    2.0**53,
    16777217.0,
]
# 1850, just before and after the epoch, 2020 and up to 999 µs later, the year 2200.
INSTANTS_US = [
    -3_786_825_600_000_000,
    -1,
    0,
    1,
    999,
    1_577_836_800_000_000,
    1_577_836_800_000_001,
    1_577_836_800_000_999,
    1_577_836_800_001_000,
    1_577_880_000_000_000,
    7_258_118_400_000_000,
]


def pool(type_: pa.DataType) -> list[Any]:
    """Awkward values of a type, as `oracle` takes them."""
    t = pa.types
    if t.is_boolean(type_):
        return [False, True]
    if t.is_integer(type_):
        bits = type_.bit_width
        low, high = (
            (0, 2**bits - 1)
            if t.is_unsigned_integer(type_)
            else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        )
        wanted = [low, low + 1, -2, -1, 0, 1, 2, 3, 5, 100, 2**31, 2**53 + 1, 2**63, high - 1, high]
        return [value for value in wanted if low <= value <= high]
    if t.is_float64(type_):
        return DOUBLES
    if t.is_floating(type_):
        largest = 3.0e38 if t.is_float32(type_) else 65504.0
        fit = [value for value in DOUBLES if not 65504 < abs(value) < float("inf")]
        small = [1.5, 0.25, largest if t.is_float16(type_) else single(largest)]
        if t.is_float32(type_):
            return [single(value) for value in fit] + small
        return [v for v in fit if v != v or struct.unpack("<e", struct.pack("<e", v))[0] == v] + [
            *small
        ]
    if t.is_decimal(type_):
        unit = Decimal(1).scaleb(-type_.scale)
        nines = Decimal("9" * type_.precision).scaleb(-type_.scale, context=WIDE)
        wanted = [
            Decimal(0),
            unit,
            -unit,
            Decimal("1.10"),
            Decimal("-1.10"),
            Decimal(2),
            Decimal(-3),
        ]
        return [*wanted, nines, nines.copy_negate()]
    if t.is_string(type_):
        return TEXTS
    if t.is_fixed_size_binary(type_):
        return [b"\x00\x00\x00", b"abc", b"ab\xff", b"\xff\xff\xff", b"\x7f\x80\x00"]
    if t.is_binary(type_):
        return BINARIES
    if t.is_date(type_):
        return [-(2**31), -43_830, -1, 0, 1, 18_262, 18_263, 2_932_896, 2**31 - 1]
    if t.is_timestamp(type_):
        unit = NS[type_.unit]
        whole = [value * 1000 // unit for value in INSTANTS_US]
        finer = [1_577_836_800_000_000_001] if type_.unit == "ns" else []
        return [*whole, *finer, -(2**63), 2**63 - 1]
    if t.is_time(type_):
        day = 86_400 * 10**9 // NS[type_.unit]
        return [0, 1, day // 2, day - 1]
    if t.is_duration(type_):
        return [-(2**63), -1, 0, 1, 10**9, 2**63 - 1]
    assert t.is_null(type_)
    return []


TYPES = [
    pa.bool_(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.uint8(),
    pa.uint32(),
    pa.uint64(),
    pa.float16(),
    pa.float32(),
    pa.float64(),
    pa.float64(),
    pa.decimal128(5, 2),
    pa.decimal128(38, 10),
    pa.decimal256(50, 3),
    pa.string(),
    pa.string(),
    pa.binary(),
    pa.binary(3),
    pa.date32(),
    pa.timestamp("ms"),
    pa.timestamp("us"),
    pa.timestamp("ns"),
    pa.timestamp("ms", "UTC"),
    pa.timestamp("us", "UTC"),
    pa.timestamp("ns", "UTC"),
    pa.time32("ms"),
    pa.time64("us"),
    pa.time64("ns"),
    pa.duration("ms"),
    pa.duration("ns"),
    pa.null(),
]


def values(type_: pa.DataType) -> st.SearchStrategy[Any]:
    """Values of a type, None among them."""
    found = pool(type_)
    return st.none() if not found else st.one_of(st.none(), st.sampled_from(found))


def same(value: Any, type_: pa.DataType) -> list[Any]:
    """Literals that spell a value of the column, where Python can."""
    t = pa.types
    if t.is_timestamp(type_):
        return [Timestamp(value * NS[type_.unit], type_.tz is not None)]
    try:
        if t.is_date(type_):
            return [date(1970, 1, 1) + timedelta(days=value)]
        if t.is_time(type_):
            moment = datetime(1970, 1, 1) + timedelta(microseconds=value * NS[type_.unit] // 1000)
            return [moment.time()]
        if t.is_duration(type_):
            return [timedelta(microseconds=value * NS[type_.unit] // 1000)]
    except OverflowError:
        return []
    return [value]


def literals(type_: pa.DataType) -> st.SearchStrategy[Any]:
    """Literals that a column can be compared with; many are no value of its type."""
    t = pa.types
    found = [literal for value in pool(type_) for literal in same(value, type_)]
    if t.is_integer(type_) or t.is_decimal(type_):
        found += [300, -300, 2**31, 2**63, 2**64, -(2**63) - 1, 10**40, -(10**60)]
        found += [Decimal("1.5"), Decimal("-0.001"), Decimal("1.10"), Decimal("2.0")]
        found += [1.5, 1.1, 2.0, 1e300, 2.0**53, 2.0**63, -0.0, *DOUBLES[:3], "5", "-1"]
    elif t.is_floating(type_):
        found += [*DOUBLES, 1, 0, 16777217, 2**53 + 1, Decimal("1.1"), Decimal("1.5"), "1.5"]
        found += [single(1.1), 1e39, -1e39, 65520.0]
    elif t.is_date(type_) or t.is_timestamp(type_):
        found += [date(2020, 1, 1), date(1850, 1, 1), date(1, 1, 1), date(9999, 12, 31)]
        if not t.is_date(type_):
            found += ["2020-01-01", "2020-01-01 00:00:00.000001", "2020-01-01T12:00:00"]
        found += [datetime(2020, 1, 1), datetime(2020, 1, 1, 12), datetime(2020, 1, 1, 0, 0, 0, 1)]
        if t.is_date(type_) or type_.tz is not None:
            offset = timezone(timedelta(hours=-5))
            found += [
                datetime(2020, 1, 1, tzinfo=timezone.utc),
                datetime(2020, 1, 1, tzinfo=offset),
            ]
        found += [Timestamp(1_577_836_800_000_000_001, False), Timestamp(10**22, False)]
    elif t.is_boolean(type_):
        found += ["true", "false"]
    elif t.is_time(type_):
        found += [time(12, 0, 0, 1)]
    elif t.is_null(type_):
        found += [1, "x"]
    elif t.is_binary(type_) or t.is_fixed_size_binary(type_):
        found += [b"abcd", "ab"]
    return st.one_of(st.sampled_from(found), st.none()) if found else st.none()


# --- tables -----------------------------------------------------------------


@dataclass(frozen=True)
class Rows:
    """Rows of some columns: the schema with ids, and values by column path.

    Column `st` is a struct with one field `x` and null in some rows; `st.x` is a
    plain column that only looks like it.
    """

    schema: pa.Schema
    rows: tuple[dict[tuple[str, ...], Any], ...]

    @property
    def types(self) -> dict[tuple[str, ...], pa.DataType]:
        found = {leaf.path: leaf.type for leaf in schemas.leaves(self.schema)}
        return {**found, **{(field.name,): field.type for field in self.schema}}

    @property
    def leaves(self) -> list[Leaf]:
        return list(schemas.leaves(self.schema))

    def table(self) -> pa.Table:
        arrays = []
        for field in self.schema:
            if pa.types.is_struct(field.type):
                inner = self._array((field.name, "x"), field.type.field(0).type)
                gone = pa.array([row[(field.name,)] is None for row in self.rows], pa.bool_())
                arrays.append(
                    pa.StructArray.from_arrays([inner], fields=[field.type.field(0)], mask=gone)
                )
            else:
                arrays.append(self._array((field.name,), field.type))
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def _array(self, path: tuple[str, ...], type_: pa.DataType) -> pa.Array:
        return pa.array([row[path] for row in self.rows], type_)

    def part(self, start: int, stop: int) -> Rows:
        return replace(self, rows=self.rows[start:stop])


@st.composite
def tables(draw: st.DrawFn, max_rows: int = 6) -> Rows:
    """Rows of one to three columns."""
    types = draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=2))
    fields = [pa.field(f"c{i}", type_) for i, type_ in enumerate(types)]
    nested = draw(st.booleans())
    if nested:
        inner = draw(st.sampled_from(TYPES[:20]))
        fields += [pa.field("st", pa.struct([("x", inner)])), pa.field("st.x", pa.int32())]
    schema = initial(pa.schema(fields))
    rows = []
    for _ in range(draw(st.integers(0, max_rows))):
        row: dict[tuple[str, ...], Any] = {}
        for field in schema:
            if pa.types.is_struct(field.type):
                there = draw(st.booleans())
                row[(field.name,)] = {} if there else None
                value = draw(values(field.type.field(0).type)) if there else None
                row[(field.name, "x")] = value
            else:
                row[(field.name,)] = draw(values(field.type))
        rows.append(row)
    return Rows(schema, tuple(rows))


# --- conditions -------------------------------------------------------------


def like_patterns() -> st.SearchStrategy[str]:
    pieces = [
        "a",
        "b",
        "x",
        "%",
        "_",
        "\\%",
        "\\_",
        "\\\\",
        "é",
        "\U0010ffff",
        "\n",
        "'",
        ".",
        "x" * 31,
    ]
    return st.lists(st.sampled_from(pieces), max_size=5).map("".join)


@st.composite
def leaf_conditions(draw: st.DrawFn, table: Rows) -> Node:
    paths = list(table.types)
    path = draw(st.sampled_from(paths))
    type_, column = table.types[path], Name(path)
    if pa.types.is_nested(type_):
        return is_null(column)
    forms = ["compare", "compare", "compare", "in", "null"]
    if pa.types.is_string(type_):
        forms += ["text", "like"]
    elif pa.types.is_binary(type_) or pa.types.is_fixed_size_binary(type_):
        forms += ["text"]
    form = draw(st.sampled_from(forms))
    if form == "null":
        return is_null(column)
    if form == "in":
        return is_in(column, draw(st.lists(literals(type_), max_size=4)))
    if form == "like":
        return like(column, draw(like_patterns()))
    if form == "text":
        form = draw(st.sampled_from(["startswith", "endswith", "contains"]))
        whole = draw(st.sampled_from(pool(type_)))
        start = draw(st.integers(0, 3))
        cut = whole[start : start + draw(st.integers(0, 3))]
        return matches(form, column, draw(st.sampled_from([whole, cut, whole[:1], whole[:33]])))
    op = draw(st.sampled_from(["=", "!=", "<", "<=", ">", ">=", "<=>"]))
    return compare(column, op, draw(literals(type_)))


def conditions(table: Rows) -> st.SearchStrategy[Node]:
    """Conditions on the columns of a table."""
    leaves = st.one_of(
        leaf_conditions(table),
        leaf_conditions(table),
        leaf_conditions(table),
        st.sampled_from([constant(True), constant(False), constant(None)]),
    )
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            inner.map(negated),
            st.lists(inner, min_size=1, max_size=3).map(all_of),
            st.lists(inner, min_size=1, max_size=3).map(any_of),
        ),
        max_leaves=5,
    )


@st.composite
def tables_and_conditions(draw: st.DrawFn, max_rows: int = 6) -> tuple[Rows, Node]:
    table = draw(tables(max_rows))
    return table, draw(conditions(table))


# --- statistics -------------------------------------------------------------


def ordinal(value: Any, type_: pa.DataType) -> Any:
    """A value's ordinal, worked out without the product."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, Decimal):
        return int(value.scaleb(type_.scale, context=WIDE))
    return int(value) if isinstance(value, bool) else value


def true_bounds(found: Sequence[Any], type_: pa.DataType) -> ColumnBounds:
    """What a perfect writer would say of some values."""
    present = [ordinal(value, type_) for value in found if value is not None]
    numbers = [value for value in present if value == value]
    return ColumnBounds(
        min(numbers, default=None),
        max(numbers, default=None),
        len(found) - len(present),
        len(found),
        len(numbers) < len(present),
    )


@st.composite
def poorer(draw: st.DrawFn, bounds: ColumnBounds, type_: pa.DataType) -> ColumnBounds:
    """Bounds that say less, as files of the world do."""
    blank = draw(st.sets(st.sampled_from(["lower", "upper", "null_count", "nan"]), max_size=2))
    if "lower" in blank:
        bounds = replace(bounds, lower=None)
    if "upper" in blank:
        bounds = replace(bounds, upper=None)
    if "null_count" in blank:
        bounds = replace(bounds, null_count=None)
    if "nan" in blank and pa.types.is_floating(type_):
        bounds = replace(bounds, may_contain_nan=True)
    return bounds


@st.composite
def row_groups(draw: st.DrawFn, table: Rows, *, perfect: bool = False) -> RowGroupMetadata:
    """The record of one row group that holds the table's rows."""
    described = []
    for leaf in table.leaves:
        bounds = true_bounds([row[leaf.path] for row in table.rows], leaf.type)
        if not perfect:
            bounds = draw(poorer(bounds, leaf.type))
        described.append((leaf, bounds))
    return RowGroupMetadata(0, len(table.rows), *encode_row_group(described))

"""The types of keys that the language compares, with values that are equal across types.

Expected matches come from DuckDB, which compares numbers and moments exactly, where its casts are
Spark's; where they are not, the query has the cast of Spark's rule.
"""

from __future__ import annotations

import math
from datetime import time
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa

from lakehouse_source.language import Expression, Scope
from lakehouse_source.language.row_filter import matching_mask
from lakehouse_source.schema.align import align, by_name
from lakehouse_source.schema.merge import initial
from lakehouse_source.write.statements.merge_source import JoinCondition, Names, may_match

# Nanoseconds since 1970, in units of which one is not a whole number of another.
MOMENTS_NS = (
    0, 1, -1, 5, 1_000, -1_000, 5_000, 5_000_000, 5_000_000_000, 5_000_001_000,
    86_400 * 10**9, -86_400 * 10**9, 1_700_000_000_123_456_789, 1_700_000_000_123_456_000,
    1_700_000_000_123_000_000, 1_700_000_000_000_000_000, 19_675 * 86_400 * 10**9,
)  # fmt: skip
NUMBERS = (
    Fraction(0), Fraction(1), Fraction(-1), Fraction(2), Fraction(3, 2), Fraction(1, 10),
    Fraction(127), Fraction(200), Fraction(-128), Fraction(40_000), Fraction(3_000_000_000),
    Fraction(2**24 + 1), Fraction(2**53), Fraction(2**53 + 1), Fraction(2**64 - 1),
)  # fmt: skip
TEXTS = ("", "a", "ä", "ab", "1", "0")
DAY_NS = 86_400 * 10**9
NAMES = Names("target", "source")
Pairs = frozenset[tuple[int, int]]
_ORACLE = duckdb.connect()


def _of_numbers(type_: pa.DataType) -> pa.Array:
    found: list[Any] = []
    if pa.types.is_integer(type_):
        bits = type_.bit_width - pa.types.is_signed_integer(type_)
        low = -(1 << bits) if pa.types.is_signed_integer(type_) else 0
        found = [int(n) for n in NUMBERS if n.denominator == 1 and low <= n < 1 << bits]
    elif pa.types.is_floating(type_):
        most = 65504 if type_.bit_width == 16 else math.inf
        found = [float(n) for n in NUMBERS if abs(n) <= most]
        doubles = pa.array([*found, -0.0, math.nan, math.inf, None], pa.float64())
        return doubles.cast(type_, safe=False)
    else:
        scaled = [n * 10**type_.scale for n in NUMBERS]
        fits = [n for n in scaled if n.denominator == 1 and abs(n) < 10**type_.precision]
        found = [Decimal(int(n)).scaleb(-type_.scale) for n in fits]
    return pa.array([*found, None], type_)


def _of_moments(type_: pa.DataType) -> pa.Array:
    unit = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
    step = DAY_NS if pa.types.is_date32(type_) else unit[type_.unit]
    counts = [n // step for n in MOMENTS_NS if n % step == 0]
    own = pa.int32() if pa.types.is_date32(type_) else pa.int64()
    return pa.array([*counts, None], own).view(type_)


def _of_texts(type_: pa.DataType) -> pa.Array:
    if pa.types.is_fixed_size_binary(type_):
        return pa.array([b"a", b"1", b"0", None], type_)
    return pa.array([*TEXTS, None], pa.string()).cast(type_)


NUMBER_TYPES = (
    pa.int8(), pa.int16(), pa.int32(), pa.int64(),
    pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(),
    pa.float16(), pa.float32(), pa.float64(),
    pa.decimal128(4, 2), pa.decimal128(20, 6), pa.decimal128(38, 10), pa.decimal256(12, 3),
)  # fmt: skip
MOMENT_TYPES = (
    pa.date32(),
    *(pa.timestamp(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC")),
    pa.timestamp("us", "Asia/Tokyo"),
)
KEYS: dict[str, tuple[str, pa.Array]] = {
    **{str(type_): ("number", _of_numbers(type_)) for type_ in NUMBER_TYPES},
    **{str(type_): ("moment", _of_moments(type_)) for type_ in MOMENT_TYPES},
    "string": ("text", _of_texts(pa.string())),
    "binary": ("bytes", _of_texts(pa.binary())),
    "binary(1)": ("bytes", _of_texts(pa.binary(1))),
    "bool": ("bool", pa.array([True, False, None])),
    "time": ("time", pa.array([time(0), time(1, 2, 3, 4), None], pa.time64("us"))),
    "text of numbers": ("text of numbers", pa.array(["0", "1", " 2", "127", "-1", None])),
    "text of moments": (
        "text of moments",
        pa.array(
            [
                "1970-01-01",
                "1970-01-01 00:00:00.000005",
                "1970-01-01T00:00:00.005",
                "1970-01-02 00:00:00",
                "2023-11-14 22:13:20.123456",
                None,
            ]
        ),
    ),
    "text of truth": ("text of truth", pa.array(["true", "f", None])),
}
# Which kinds are compared with each other, as Spark says (`test_key_types_in_spark`).
_COMPARED = {
    frozenset(pair)
    for pair in (
        ("number",), ("moment",), ("text",), ("bytes",), ("bool",), ("time",),
        ("text", "bytes"), ("number", "text of numbers"), ("moment", "text of moments"),
        ("bool", "text of truth"),
    )
}  # fmt: skip


def compared(left: str, right: str) -> bool | None:
    """Tell whether keys of two kinds are compared; None: a text may be of the other kind or not."""
    kinds = KEYS[left][0], KEYS[right][0]
    if frozenset(kinds) in _COMPARED:
        return True
    texts = [kind for kind in kinds if kind.startswith("text")]
    return None if texts and "time" not in kinds else False


@cache
def matches(left: str, right: str) -> tuple[Pairs, Pairs]:
    """The places of values of two of `KEYS` that DuckDB finds equal, by `=` and by `<=>`."""
    a, b = _plain(KEYS[left][1]), _plain(KEYS[right][1])
    if pa.binary() in (a.type, b.type):  # DuckDB reads escapes in text
        a, b = a.cast(pa.binary()), b.cast(pa.binary())
    x, y = "a.k", "b.k"
    cast = _spark_cast(a.type, b.type, KEYS[left][0], KEYS[right][0])
    if cast is not None:
        x, y = f"CAST({x} AS {cast})", f"CAST({y} AS {cast})"
    _ORACLE.register("a", pa.table({"k": a, "row": range(len(a))}))
    _ORACLE.register("b", pa.table({"k": b, "row": range(len(b))}))
    found = _ORACLE.execute(
        f"SELECT a.row, b.row, {x} = {y}, {x} IS NOT DISTINCT FROM {y} FROM a, b"
    ).fetchall()
    equal = frozenset((mine, theirs) for mine, theirs, is_equal, _ in found if is_equal)
    return equal, frozenset((mine, theirs) for mine, theirs, _, is_same in found if is_same)


def _plain(values: pa.Array) -> pa.Array:
    """The values in a type that DuckDB takes exactly; instants as wall clocks in UTC."""
    type_ = values.type
    if pa.types.is_timestamp(type_):
        return values.view(pa.int64()).view(pa.timestamp(type_.unit))
    if pa.types.is_float16(type_):
        return values.cast(pa.float32())
    if pa.types.is_decimal256(type_):
        return values.cast(pa.decimal128(type_.precision, type_.scale))
    if pa.types.is_fixed_size_binary(type_):
        return values.cast(pa.binary())
    return values


def _spark_cast(a: pa.DataType, b: pa.DataType, left: str, right: str) -> str | None:
    """The type in which Spark compares, where DuckDB has another rule."""
    if a != b and (pa.types.is_floating(a) or pa.types.is_floating(b)):
        return "DOUBLE"
    for type_, kind, other in ((a, left, right), (b, right, left)):
        if kind == "number" and other == "text of numbers":
            # Beyond BIGINT an integer is a DECIMAL, which is compared with text as a DOUBLE.
            is_long = pa.types.is_integer(type_) and type_ != pa.uint64()
            return "BIGINT" if is_long else "DOUBLE"
        if kind == "moment" and other == "text of moments":
            return "DATE" if pa.types.is_date(type_) else "TIMESTAMP_NS"
        if kind == "bool" and other == "text of truth":
            return "BOOLEAN"
    return None


# --- what plake finds -------------------------------------------------------------


def stored(values: pa.Array) -> pa.Table:
    table = pa.table({"k": values})
    return align(table, initial(table.schema), table.schema, by_name)


def joined(left: pa.Table, right: pa.Table, op: str) -> Pairs:
    """The places of the rows of two tables that a MERGE by their column `k` joins."""
    scope = Scope({"target": left.schema, "source": right.schema})
    condition = JoinCondition(Expression.parse(f"target.k {op} source.k"), scope, NAMES)
    source = condition.prepare(right)
    rows, partners = condition.pairs(source, left)
    found = frozenset(zip(rows.to_pylist(), partners.to_pylist()))
    # The condition by which files are chosen holds for the rows that match, and no others.
    chosen = may_match(condition, source, left.schema, scope, NAMES)
    kept = matching_mask(left, chosen.bind(left.schema)).to_pylist()
    assert {row for row, _ in found} <= {row for row, keep in enumerate(kept) if keep}
    return found

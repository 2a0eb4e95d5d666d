"""Rows of awkward values, and expressions over them: written by hand and drawn at random."""

from __future__ import annotations

import random
from decimal import Decimal

import pyarrow as pa

NAN, INF = float("nan"), float("inf")

COLUMNS: dict[str, tuple[pa.DataType, list[object]]] = {
    "y": (pa.int8(), [-128, -1, 0, 1, 2, 127]),
    "h": (pa.int16(), [-32768, -7, 0, 3, 32767]),
    "i": (pa.int32(), [-(2**31), -10, -1, 0, 1, 2, 5, 16777217, 2**31 - 1]),
    "l": (pa.int64(), [-(2**63), -1, 0, 1, 3, 10, 2**53 + 1, 2**63 - 1]),
    "f": (pa.float32(), [NAN, INF, -INF, 0.0, -0.0, 1.5, -2.5, 16777216.0, 0.1, 3e38, 1e-45]),
    "d": (
        pa.float64(),
        [NAN, INF, -INF, 0.0, -0.0, 1.0, -1.5, 2.5, 0.1, 1e10, 1e300, 5e-324, 2.0**53, 1.005],
    ),
    "c": (pa.decimal128(5, 2), [Decimal(v) for v in ("0", "-1.15", "2.50", "999.99", "-999.99")]),
    "e": (
        pa.decimal128(38, 10),
        [
            Decimal(f"{v}.0000000000")
            for v in ("0", "15", "-123456789", "9999999999999999999999999999", "2")
        ]
        + [Decimal("0.1234567890"), Decimal("-2.5000000000")],
    ),
    "w": (
        pa.decimal128(38, 0),
        [
            Decimal(v)
            for v in ("0", "1", "-7", "9" * 38, "-" + "9" * 38, "123456789012345678901234567890")
        ],
    ),
    "s": (
        pa.string(),
        [
            "",
            "a",
            "Abc",
            " pad ",
            "straße",
            "ŉ",
            "ıİ",
            "ΑΣ ΣΑΣ",
            "a%b_c\\d",
            "\U0001f600x",
            "é\n",
            "ǆ",
            "ﬁ",
            "\tx\u00a0",
            "~\uffee\U00010400",
        ],
    ),
    "n": (
        pa.string(),
        [
            "0",
            "12",
            "-7",
            "+5",
            " 42 ",
            "1.5",
            ".5",
            "1.",
            "1e3",
            "2147483648",
            "NaN",
            "-inf",
            "1e400",
            "true",
            "NO",
            "abc",
            "",
            "1d",
            "0x1F",
            "99999999999999999999",
            "1_000",
            "١٢",
            "3\u00a0",
        ],
    ),
    "m": (
        pa.string(),
        [
            "2024-02-29",
            "2023-02-29",
            "2024-1-5",
            "2024",
            "2024-07",
            "2024-01-31 12:30:00",
            "2024-01-31T12:30:00.123456789",
            " 2024-01-31 ",
            "2024-01-31 12:30:00+05:30",
            "2024-03-10 02:30:00 America/New_York",
            "x",
            "12:30",
            "+12024-01-01",
            "0001-01-01",
            "2024-01-31 24:00:00",
            "2024-01-31 1:2:3.4",
            "2024-01-31 12:30Z",
            "99999-01-01",
            "2024-01-31 ",
        ],
    ),
    "b": (pa.bool_(), [True, False]),
    "t": (pa.date32(), [0, -1, 19782, -719162, 2932896, 10957]),
    "z": (
        pa.timestamp("us", "UTC"),
        [0, -1, 1709210096123456, -62135596800000000, 253402300799999999, 1710055800000000],
    ),
    "k": (pa.timestamp("us"), [0, -1, 1709210096123456, 1710055800000000]),
    "x": (pa.binary(), [b"", b"a", b"\xff\x00", "é".encode()]),
}
ROWS = 24


def table(seed: int = 1) -> pa.Table:
    """Every value of a column at least once, NULL now and then."""
    draw = random.Random(seed)
    columns: dict[str, pa.Array] = {"id": pa.array(range(ROWS), pa.int32())}
    for name, (type_, values) in COLUMNS.items():
        filled = [*values, None, *(draw.choice([*values, None]) for _ in range(ROWS))][:ROWS]
        draw.shuffle(filled)
        if pa.types.is_temporal(type_):
            width = pa.int32() if pa.types.is_date32(type_) else pa.int64()
            columns[name] = pa.array(filled, width).view(type_)
        else:
            columns[name] = pa.array(filled, type_)
    return pa.table(columns)


# --- by hand ----------------------------------------------------------------

_NUMBERS = ("y", "h", "i", "l", "f", "d", "c", "e", "w")
_TYPES = (
    *("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(5,2)", "DECIMAL(38,10)"),
    *("STRING", "BOOLEAN", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "BINARY", "DECIMAL(3,0)"),
)


def written() -> list[str]:
    """Every operator over every pair of columns, every cast, every function."""
    found = [
        f"{a} {op} {b}"
        for a in _NUMBERS
        for b in (*_NUMBERS, "1", "2L", "0.5", "3.0D")
        for op in ("+", "-", "*", "/", "%")
    ]
    found += [f"{a} div {b}" for a in _NUMBERS for b in (*_NUMBERS, "2")]
    columns = [*COLUMNS, "NULL", "1", "1.5", "'2024-02-29'", "'7'"]
    found += [
        f"{a} {op} {b}" for a in COLUMNS for b in columns for op in ("=", "<", ">=", "<=>", "!=")
    ]
    found += [
        f"{word}({a} AS {to})" for a in COLUMNS for to in _TYPES for word in ("CAST", "TRY_CAST")
    ]
    for name in (
        *("upper", "lower", "trim", "ltrim", "rtrim", "length", "char_length", "abs", "floor"),
        *("ceil", "round", "sqrt", "isnan", "isnull", "isnotnull", "year", "month", "day", "hour"),
        *("minute", "second", "to_date", "to_timestamp", "-", "NOT "),
    ):
        found += [f"{name}({a})" for a in COLUMNS]
    for name in ("coalesce", "nvl", "nullif", "greatest", "least", "concat", "startswith"):
        found += [f"{name}({a}, {b})" for a in COLUMNS for b in columns]
    found += [f"IF(b, {a}, {b})" for a in COLUMNS for b in columns]
    found += [f"{a} IN ({b}, NULL)" for a in COLUMNS for b in columns]
    found += [f"round({a}, {n})" for a in _NUMBERS for n in (-3, -1, 0, 1, 2, 12)]
    found += [f"substring(s, {a}, {n})" for a in (-9, -2, -1, 0, 1, 2, 5) for n in (-1, 0, 1, 3, 9)]
    found += [
        f"{f}(s, {n}, {p})"
        for f in ("lpad", "rpad")
        for n in (-1, 0, 3, 9)
        for p in ("'xy'", "''", "s")
    ]
    found += [
        f"{f}(s, {n})" for f in ("left", "right", "substr", "lpad") for n in (-2, 0, 1, 2, 40, "y")
    ]
    found += _OTHERS
    return found


_OTHERS = [
    "s LIKE 'a%'", "s LIKE '%s%'", "s LIKE '_'", "s LIKE '%\\\\_c%'", "s LIKE s", "s LIKE n",
    "s LIKE '%x'", "s LIKE 'a!%b%' ESCAPE '!'", "s NOT LIKE '%a%'", "s ILIKE '%STRASSE%'",
    "s ILIKE 'ABC'", "i LIKE '1%'", "s RLIKE '^[a-z]+$'", "s RLIKE 'b|ß'",
    "n RLIKE '^[0-9]+(\\\\.[0-9]+)?$'", "s RLIKE 'a.b'", "i IN (1, 2L, 5.0)", "s IN ('a', NULL)",
    "d IN (1, 'NaN')", "c IN (2.5, 0)", "i NOT IN (1, 0)", "d IN (0, 1.5D)", "i BETWEEN 0 AND 5",
    "s BETWEEN 'a' AND 'b'", "d BETWEEN -1 AND 1", "t BETWEEN '2024-01-01' AND '2024-12-31'",
    "i != 0 AND 1 / i > 0.3", "i = 0 OR 10 div i > 2", "CASE WHEN l = 0 THEN 0 ELSE 10 div l END",
    "CASE i WHEN 1 THEN 'one' WHEN 2 THEN 'two' END", "CASE WHEN b THEN i ELSE c END",
    "CASE WHEN b THEN 1 ELSE 'x' END", "coalesce(nullif(i, 0), 1 / 0, 7)", "coalesce(i, l, d)",
    "nvl2(i, s, n)", "coalesce(c, w)", "coalesce(NULL, NULL, y)", "NOT b", "b AND NULL",
    "b OR NULL", "b IS TRUE", "b IS NOT FALSE", "b AND (i > 0 OR d IS NULL)", "b = (i > 0)",
    "1L + 2147483647", "127Y + 1", "1.5BD * c", "c + 1", "c + 1L", "c * i", "w * 0.1", "w + 0.5",
    "e * e", "e / 3", "c / c", "w / 7", "1 / 3.0", "2 / c", "w % 7", "e % 0.3", "-c", "- w",
    "1.10 = c", "c > 1", "w > l", "e = d", "d / 0.5", "10 % 3.5", "t + 1", "t - 3",
    "t + INTERVAL 2 DAY", "t + INTERVAL 3 HOURS", "z + INTERVAL 1 DAY", "z - INTERVAL 90 MINUTES",
    "INTERVAL '1.5' SECOND + k", "k - INTERVAL 1 DAY", "date_add(t, i)", "date_add(t, 30)",
    "date_sub(t, y)", "datediff(t, DATE '2024-01-01')", "t > z", "k = z", "t = k",
    "t < TIMESTAMP '2024-02-29 00:00:00'", "z > '2024-01-01'", "DATE '2024-02-29'",
    "TIMESTAMP '2024-02-29 12:00:00.5'", "TIMESTAMP_NTZ '2024-02-29 12:00:00'", "X'1F' = x",
    "x = s", "replace(s, 'a', 'bb')", "replace(s, '', 'z')", "replace(s, 's')",
    "contains(s, 'ß')", "contains(s, n)", "endswith(s, '')", "s || i || c", "concat(s, d)",
    "concat()", "concat(x, x)", "concat(x, s)", "s || NULL", "'a' || 1 || TRUE", "f || ''",
    "d || ''", "z || ''", "e || ''", "upper(i)", "length(i)", "length(x)", "power(i, 2)",
    "power(2, y)", "power(y, 0)", "pow(d, 1)", "mod(i, 3)", "floor(-0.5)", "ceil(c)", "ceil(w)",
    "floor(l)", "i + d", "f + i", "f + 1.5", "l = d", "l = f", "f = 0.1", "d = 0.1", "i = '5'",
    "d < '1.5'", "n = 12", "n = s", "b = 'true'", "y + NULL", "NULL = NULL", "NULL <=> i",
    "n + 1", "c + '1'", "d - '1'", "greatest(i, l, 3)", "greatest(d, f, 0)", "least(s, 'b', n)",
    "greatest(c, 1)", "least(t, z)", "greatest(d, -0.0D)", "named_struct('q', i, 'r', s)",
    "struct(i, s)", "array(i, l)", "year(k)", "hour(k)", "month(z)", "i = i = b", "- -i", "+i",
    "-i * 2", "CAST(-1.5D AS INT)", "CAST('1.25' AS DECIMAL(2,1))", "CAST(1.25 AS DECIMAL(2,1))",
    "CAST(c AS DECIMAL(4,1))", "'9' :: INT", "9223372036854775807", "9223372036854775808",
    "-9223372036854775808", "0.001", "1e-3", "1.", ".5", "1E2", "1.5F", "-128Y", "1e2BD",
    "NOT i = 1", "NOT b AND b", "b OR b AND NOT b", "i + l * 2 - y", "i - h - y", "l div 2 * 3",
    "s || n || 'x'", "size(array(i, l))",
    "size(split(s, ' '))", "size(split(s, 'a', 2))", "size(split(s, 'a', 1))",
    "element_at(split(n, '[.e]'), 1)", "element_at(split(m, '-'), -1)",
    "get(split(m, '[-T ]'), 1)", "element_at(array(l, i), 2)", "get(array(i, l), y)",
    "array_contains(array(i, 5), i)", "array_contains(array(d, 1.5D), d)",
    "array_contains(array(s, n), n)", "array_position(array(s, n), n)",
    "array_contains(split(s, 'b'), 'a')",
]  # fmt: skip


# --- at random --------------------------------------------------------------


class Generator:
    """Draws expressions of a wanted kind; one seed gives the same ones."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def expression(self, depth: int = 3) -> str:
        return getattr(self, self.random.choice(("number", "text", "truth", "truth", "moment")))(
            depth
        )

    def pick(self, *forms: str) -> str:
        return self.random.choice(forms)

    def number(self, depth: int) -> str:
        if depth <= 0 or self.random.random() < 0.15:
            return self.pick(
                *_NUMBERS, *_NUMBERS, "0", "1", "-3", "7L", "2.5", "0.10", "1e1", "100Y", "NULL"
            )
        a, b = self.number(depth - 1), self.number(depth - 1)
        return self.pick(
            f"({a} + {b})", f"({a} - {b})", f"({a} * {b})", f"({a} / {b})", f"({a} % {b})",
            f"abs({a})", f"round({a}, {self.random.randint(-2, 3)})", f"floor({a})", f"- ({a})",
            f"CASE WHEN {self.truth(depth - 1)} THEN {a} ELSE {b} END", f"coalesce({a}, {b})",
            f"greatest({a}, {b})", f"least({a}, {b})", f"nullif({a}, {b})",
            f"length({self.text(depth - 1)})", f"CAST({a} AS {self.pick(*_TYPES[:8])})",
            f"TRY_CAST({self.text(depth - 1)} AS {self.pick(*_TYPES[:8])})",
            f"IF({self.truth(depth - 1)}, {a}, {b})",
            f"datediff({self.date(depth - 1)}, {self.date(depth - 1)})",
            f"year({self.moment(depth - 1)})", f"TRY_CAST({a} AS {self.pick(*_TYPES[:8])})",
        )  # fmt: skip

    def text(self, depth: int) -> str:
        if depth <= 0 or self.random.random() < 0.2:
            return self.pick("s", "s", "n", "m", "'a'", "''", "'ß'", "'12'", "NULL")
        a, b = self.text(depth - 1), self.text(depth - 1)
        n = self.random.randint(-3, 4)
        return self.pick(
            f"upper({a})", f"lower({a})", f"trim({a})", f"({a} || {b})", f"concat({a}, {b}, 'z')",
            f"substring({a}, {n}, 2)", f"left({a}, 2)", f"right({a}, {n})",
            f"replace({a}, 'a', {b})", f"lpad({a}, 4, {b})",
            f"CAST({self.number(depth - 1)} AS STRING)", f"coalesce({a}, {b})",
            f"CASE WHEN {self.truth(depth - 1)} THEN {a} ELSE {b} END", f"least({a}, {b})",
            f"CAST({self.moment(depth - 1)} AS STRING)",
            f"CAST({self.truth(depth - 1)} AS STRING)",
        )  # fmt: skip

    def truth(self, depth: int) -> str:
        if depth <= 0 or self.random.random() < 0.1:
            return self.pick("b", "b", "TRUE", "FALSE", "NULL", "(i > 0)", "(d = d)", "(s IS NULL)")
        kind = self.pick("number", "number", "text", "moment")
        a, b = getattr(self, kind)(depth - 1), getattr(self, kind)(depth - 1)
        p, q = self.truth(depth - 1), self.truth(depth - 1)
        op = self.pick("=", "<=>", "!=", "<", "<=", ">", ">=")
        return self.pick(
            f"{a} {op} {b}", f"{a} {op} {b}", f"({p} AND {q})", f"({p} OR {q})", f"NOT ({p})",
            f"({a}) IS NULL", f"({a}) IS NOT NULL", f"({p}) IS TRUE", f"{a} IN ({b}, {a}, NULL)",
            f"({a} BETWEEN {b} AND {a})",
            f"{self.text(depth - 1)} LIKE '{self.pick('%a%', '_', 'a_%', '%')}'",
            f"contains({self.text(depth - 1)}, {self.text(depth - 1)})", f"({p} = {q})",
            f"{self.number(depth - 1)} {op} {self.text(depth - 1)}",
        ).join("()")  # fmt: skip

    def moment(self, depth: int) -> str:
        return self.pick(self.date(depth), self.instant(depth), self.instant(depth), "k")

    def date(self, depth: int) -> str:
        if depth <= 0 or self.random.random() < 0.3:
            return self.pick("t", "t", "DATE '2024-03-01'")
        n = self.random.randint(-40, 40)
        return self.pick(
            f"date_add({self.date(depth - 1)}, {n})", f"TRY_CAST({self.text(depth - 1)} AS DATE)",
            f"CAST({self.instant(depth - 1)} AS DATE)", f"coalesce({self.date(depth - 1)}, t)",
            f"greatest({self.date(depth - 1)}, t)",
        )  # fmt: skip

    def instant(self, depth: int) -> str:
        if depth <= 0 or self.random.random() < 0.3:
            return self.pick("z", "z", "TIMESTAMP '2024-03-10 02:30:00'")
        unit = self.pick("DAY", "HOUR", "MINUTE", "SECOND")
        n = self.random.randint(-40, 40)
        return self.pick(
            f"({self.instant(depth - 1)} + INTERVAL '{n}' {unit})",
            f"CAST({self.date(depth - 1)} AS TIMESTAMP)",
            f"TRY_CAST({self.text(depth - 1)} AS TIMESTAMP)", "CAST(k AS TIMESTAMP)",
            f"coalesce({self.instant(depth - 1)}, z)",
        )  # fmt: skip


def drawn(seed: int, count: int) -> list[str]:
    generator = Generator(seed)
    return [generator.expression() for _ in range(count)]

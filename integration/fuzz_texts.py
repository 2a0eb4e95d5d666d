"""Asks plake and Spark about random texts of conditions and expressions.

    python integration/fuzz_texts.py [--texts 100000] [--first 0] [--evaluated 5000] [--record]

A text is drawn from a grammar, and most are then damaged: a token or a character is dropped,
doubled, moved or put in. The number of a text decides everything about it. The exit code is 1
when plake raised anything but its own error, read what Spark refuses, or found another value
than Spark on one of the rows. Where an AND is decided by one term, an engine may leave out the
other, which would fail: of a thousand texts one may fail in Spark alone. `--record` writes a sample with Spark's verdicts to
`tests/pure/texts.json`, which the tests hold plake to without Spark.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import random
import re
import sys
import traceback
from collections import Counter
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from lakehouse_source.errors import PlakeError
from lakehouse_source.language import Expression, PredicateSet, Scope
from lakehouse_source.language.row_filter import matching_mask
from lakehouse_source.schema.merge import initial

RECORD = Path(__file__).parents[1] / "tests" / "pure" / "texts.json"
RECORDED = 3000
_SQL_TYPES = (
    "i INT, l BIGINT, d DOUBLE, n DECIMAL(10,2), s STRING, b BOOLEAN, day DATE, t TIMESTAMP"
)


def _utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=timezone.utc)


_ROWS: list[tuple[Any, ...]] = [
    (1, 1, 1.0, Decimal("1.00"), "1", True, date(2024, 2, 29), _utc("2024-02-29")),
    (0, 0, -0.0, Decimal("0.00"), "", False, date(1970, 1, 1), _utc("1970-01-01")),
    (-1, -1, math.nan, Decimal("-1.50"), "a", None, date(1, 1, 1), _utc("1969-12-31T23:59:59")),
    (2**31 - 1, 2**63 - 1, math.inf, Decimal("99999999.99"), "\U0001f600é", True, date.max, None),
    (-(2**31), -(2**63), -math.inf, None, "it's", False, None, _utc("2024-02-29T12:00:00")),
    (2, 2, 0.1, Decimal("0.10"), "a%b", None, date(2024, 3, 1), _utc("2024-03-01T00:00:00.000001")),
    (None, None, None, None, None, None, None, None),
    (3, 10, 1e300, Decimal("3.00"), " a\n", True, date(2023, 12, 31), _utc("2023-12-31")),
]
SCHEMA = initial(
    pa.schema(
        [
            ("i", pa.int32()),
            ("l", pa.int64()),
            ("d", pa.float64()),
            ("n", pa.decimal128(10, 2)),
            ("s", pa.string()),
            ("b", pa.bool_()),
            ("day", pa.date32()),
            ("t", pa.timestamp("us", "UTC")),
        ]
    )
)
_COLUMNS = SCHEMA.names
TABLE = pa.table([list(column) for column in zip(*_ROWS, strict=True)], schema=SCHEMA)
CONDITION, EXPRESSION = "condition", "expression"
# Spark takes `bigint < 9223372036854775808` for TRUE, where the column is NULL too.
_FOLDED = re.compile(r"922337203685477580[89]|[0-9]{20}")

_LITERALS = {
    "i": ["0", "1", "-1", "2147483647", "2147483648", "1L", "5S", "3Y", "1.5", "1e0", "- 1", "+1"],
    "l": ["1", "9223372036854775807", "-9223372036854775808", "1L", "9223372036854775808", "1e18"],
    "d": ["0.0", "-0.0D", "1e300", ".5", "5.", "1.5D", "1F", "CAST('NaN' AS DOUBLE)", "1e-5"],
    "n": ["1.00", "-1.5", "0.1BD", "1", "99999999.995", "1e2"],
    "s": ["'a'", '"a"', "''", "'it''s'", "r'a\\b'", "'a' 'b'", "'1'", "'\\n'", "'a\\%b'"],
    "b": ["true", "FALSE", "NULL"],
    "day": ["DATE '2024-02-29'", "'2024-2-29'", "date'1970-01-01'", "'2024'"],
    "t": ["TIMESTAMP '2024-02-29 12:00:00'", "'2024-02-29'", "TIMESTAMP'2024-03-01T00:00:00.5Z'"],
}  # fmt: skip
_ODD = [
    "NULL", "1e", "1e5", "1.e5", "X'1F'", "x'0'", "X'0G'", "b'1'", "N'a'", "u&'a'", "1_000",
    "0x1F", "INTERVAL 1 DAY", "INTERVAL '99999999999' DAY", "INTERVAL '1 day'",
    "INTERVAL '1' HOUR", "INTERVAL -1 SECOND", "INTERVAL '1-2' YEAR TO MONTH", "CAST(1 AS INT)",
    "CAST('x' AS INT)", "CAST(1 AS DECIMAL(50,2))", "CAST(i AS STRING)",
    "CAST('2024-01-01' AS DATE)", "CAST(1 AS text)", "CAST('1' AS INT64)",
    "TRY_CAST('x' AS INT)", "CAST(1e400 AS DOUBLE)", "CAST('1' AS VARCHAR(3))", "1e999",
    "9999999999999999999999999999999999999999", "'9' * 2", "DATE '2024-13-01'",
    "DATE '99999-01-01'", "TIME '12:00:00'", "'\\ud800'", "'\\", "'a\\'", "`i`", "`a``b`", "``",
    "?", ":p", "@x", "$1", "{d '2024-01-01'}", "current_date", "current_date()", "now(1)", "1:2",
    "i[0]", "i::int", "(1, 2)", "*", "t.*", "EXISTS (SELECT 1)", "(SELECT 1)", "x -> x",
    "DISTINCT i", "rand()", "1 AS x", "i x", "ARRAY(1, 2)", "MAP(1, 2)", "DATE i",
    "TIMESTAMP_NTZ '2024-01-01 00:00:00'", "int('5')", "date('2024-01-01')", "string(i)",
    "CAST(s AS INT)",
]  # fmt: skip
_TOKENS = [
    ",", "(", ")", "NOT", "AND", "OR", "=", "==", "<=>", "<>", "!=", "!", "<", "+", "-", "*",
    "/", "%", "||", "|", "&", "^", "~", ".", ";", "--", "/*", "*/", "/* x */", "/*+ x */", "IN",
    "IS", "NULL", "LIKE", "BETWEEN", "ESCAPE", "'", '"', "`", "1", "i", "'a'", "CASE", "WHEN",
    "THEN", "ELSE", "END", "AS", "::", "->", "=>", ":", ":=", "[", "]", "{", "}", "@", "#", "$",
    '\\', "ANY", "ALL", "SYMMETRIC", "DIV", "ILIKE", "RLIKE", "<<", ">>", "COLLATE",
    "UTF8_BINARY", "\x00", "\xa0", "é", "²", "INTERVAL", "DATE", "OVER ()",
    "FILTER (WHERE true)", "IGNORE NULLS", "DISTINCT", "ISNULL", "NOTNULL", "UNKNOWN", "XOR",
    "SIMILAR TO", "GLOB", "OVERLAPS", "IS DISTINCT FROM", "AT TIME ZONE 'UTC'", "&&", "~*", "^=",
    "<=>", "? ",
]  # fmt: skip
_CALLS = [
    ("coalesce", 1, 3), ("abs", 1, 1), ("upper", 1, 1), ("length", 1, 1), ("concat", 0, 3),
    ("nullif", 2, 2), ("nvl", 2, 2), ("if", 3, 3), ("substring", 2, 3), ("isnull", 1, 1),
    ("isnotnull", 1, 1), ("isnan", 1, 1), ("startswith", 2, 2), ("endswith", 2, 2),
    ("contains", 2, 2), ("greatest", 2, 3), ("least", 2, 3), ("year", 1, 1), ("date_add", 2, 2),
    ("round", 1, 2), ("floor", 1, 1), ("trim", 1, 1), ("replace", 3, 3), ("power", 2, 2),
    ("date_trunc", 2, 2), ("mod", 2, 2), ("lpad", 2, 3), ("instr", 2, 2), ("nvl2", 3, 3),
    ("to_date", 1, 1), ("struct", 1, 2), ("foo", 0, 2), ("left", 2, 2),
]  # fmt: skip
_TYPES = ["INT", "BIGINT", "STRING", "DOUBLE", "DECIMAL(10,2)", "DATE", "TIMESTAMP", "BOOLEAN"]
_TYPES += ["BINARY", "FLOAT", "SMALLINT"]


class Texts:
    """Draws one text."""

    def __init__(self, number: int) -> None:
        self._draw = random.Random(number)

    def text(self) -> str:
        """A text, whole or damaged."""
        draw = self._draw
        text = self.condition(2) if draw.random() < 0.7 else self.value(draw.choice(_COLUMNS), 2)
        for _ in range(draw.choice((0, 1, 1, 1, 2, 3))):
            text = self._damaged(text)
        return text

    def condition(self, depth: int) -> str:
        draw = self._draw
        if depth and draw.random() < 0.35:
            terms = [self.condition(depth - 1) for _ in range(2)]
            text = draw.choice((" AND ", " OR ", " or\n")).join(terms)
            return draw.choice(("{}", "({})", "NOT {}", "NOT ({})")).format(text)
        column = draw.choice(_COLUMNS)
        a = column if draw.random() < 0.7 else self.value(column, depth)
        b, c = self.literal(column, depth), self.literal(column, depth)
        no = draw.choice(("", "", "NOT "))
        return draw.choice(
            (
                f"{a} {draw.choice(('=', '==', '!=', '<>', '<', '<=', '>', '>=', '<=>'))} {b}",
                f"{b} {draw.choice(('=', '<', '>=', '<=>'))} {a}",
                f"{a} {no}IN ({b}, {c})",
                f"{a} {no}IN ({b})",
                f"{a} {no}BETWEEN {b} AND {c}",
                f"{a} IS {no}{draw.choice(('NULL', 'TRUE', 'false', 'DISTINCT FROM ' + b))}",
                f"s {no}LIKE {self.literal('s', 0)}",
                "s LIKE 'a!%b' ESCAPE " + draw.choice(("'!'", "1", '"/"')),
                f"{draw.choice(('startswith', 'endswith', 'contains'))}(s, {self.literal('s', 0)})",
                "b",
            )
        )

    def value(self, column: str, depth: int) -> str:
        draw = self._draw
        form = draw.random()
        if not depth or form < 0.3:
            return column
        if form < 0.4:
            return self.literal(column, 0)
        if form < 0.55:
            op = draw.choice(("+", "-", "*", "/", "%", "div", "||"))
            return f"{self.value(column, depth - 1)} {op} {self.literal(column, 0)}"
        if form < 0.65:
            return f"CAST({self.value(column, depth - 1)} AS {draw.choice(_TYPES)})"
        if form < 0.75:
            a, b = self.literal(column, 0), self.value(column, 0)
            return f"CASE WHEN {self.condition(0)} THEN {a} ELSE {b} END"
        if form < 0.8:
            return f"({self.value(column, depth - 1)})"
        name, least, most = draw.choice(_CALLS)
        count = draw.randint(least, most)
        return f"{name}({', '.join(self.value(column, depth - 1) for _ in range(count))})"

    def literal(self, column: str, depth: int) -> str:
        draw = self._draw
        form = draw.random()
        if form < 0.8:
            return draw.choice(_LITERALS[column])
        if form < 0.9 and depth:
            return self.value(column, depth - 1)
        return draw.choice(_ODD if form < 0.97 else _LITERALS[draw.choice(_COLUMNS)])

    def _damaged(self, text: str) -> str:
        draw = self._draw
        if draw.random() < 0.25 and text:
            place = draw.randrange(len(text))
            new = draw.choice(("", text[place] * 2, draw.choice("'\"`\\,()+-.eEL0 ;")))
            return text[:place] + new + text[place + 1 :]
        tokens = re.findall(r"\s+|\w+|'[^']*'|[^\w\s]", text)
        if not tokens:
            return draw.choice(_TOKENS)
        place = draw.randrange(len(tokens))
        kind = draw.random()
        if kind < 0.2:
            del tokens[place]
        elif kind < 0.35:
            tokens.insert(place, tokens[place])
        elif kind < 0.45:
            other = draw.randrange(len(tokens))
            tokens[place], tokens[other] = tokens[other], tokens[place]
        elif kind < 0.8:
            tokens.insert(place, f" {draw.choice(_TOKENS)} ")
        elif kind < 0.9:
            tokens[place] = draw.choice((*_TOKENS, *_ODD))
        else:
            tokens.insert(place, f" {draw.choice(_ODD)} ")
        return "".join(tokens)


def read_by_plake(room: str, text: str) -> list[Any] | PlakeError:
    """The values of a text on the rows, or plake's refusal."""
    try:
        if room == CONDITION:
            bound = PredicateSet.of(text).bind(SCHEMA)
            return list(matching_mask(TABLE, bound).to_pylist())
        scope = Scope({"r": SCHEMA})
        value = Expression.parse(text).bind(scope)
        found = value.evaluate({"r": TABLE}, TABLE.num_rows)
    except PlakeError as refusal:
        return refusal
    if pa.types.is_temporal(found.type):  # Python has no value for some
        found = found.cast(pa.int32() if pa.types.is_date32(found.type) else pa.int64())
    return list(found.to_pylist())


def bound_by_plake(room: str, text: str) -> bool:
    """Tell whether plake takes a text; values that have no result are another matter."""
    try:
        if room == CONDITION:
            PredicateSet.of(text).bind(SCHEMA)
        else:
            Expression.parse(text).bind(Scope({"r": SCHEMA}))
    except PlakeError:
        return False
    return True


class SparkVerdicts:
    """What Spark says of texts: one session, and a relation of the same rows without a job."""

    def __init__(self) -> None:
        from pyspark.sql import SparkSession

        self._spark = (
            SparkSession.builder.master("local[1]")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.session.timeZone", "UTC")
            .getOrCreate()
        )
        self._spark.sparkContext.setLogLevel("OFF")
        # Each refusal is one.
        logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
        jvm_session: Any = self._spark._jsparkSession
        self._parser = jvm_session.sessionState().sqlParser()
        names = [part.split()[0] for part in _SQL_TYPES.split(", ")]
        types = dict(part.split() for part in _SQL_TYPES.split(", "))
        rows = ", ".join(
            "(" + ", ".join(_written(v, types[n]) for v, n in zip(row, names, strict=True)) + ")"
            for row in _ROWS
        )
        self._frame = self._spark.sql(f"SELECT * FROM VALUES {rows} AS r({', '.join(names)})")

    def parses(self, text: str) -> bool:
        """Tell whether Spark's parser takes a text."""
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        try:
            self._parser.parseExpression(text)
        except (Py4JJavaError, PySparkException):
            return False
        return True

    def verdict(self, room: str, text: str) -> str:
        """`parse`, `analysis` or `run`: where Spark refuses it; else `taken`."""
        if not self.parses(text):
            return "parse"
        found = self.values(room, text)
        return found if isinstance(found, str) else "taken"

    def values(self, room: str, text: str) -> list[Any] | str:
        """The values of a text on the rows, or where Spark refuses it."""
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        try:
            if room == CONDITION:
                self._frame.where(f"true AND (\n{text}\n)")
                frame = self._frame.selectExpr(f"coalesce((\n{text}\n), false) AS v")
            else:
                frame = self._frame.selectExpr(text)
        except (Py4JJavaError, PySparkException):  # the first is an error inside of Spark
            return "analysis"
        number = {"timestamp": "unix_micros", "date": "unix_date"}
        function = number.get(frame.schema[0].dataType.typeName())
        if function is not None:
            frame = frame.toDF("v").selectExpr(f"{function}(v)")
        try:
            return [row[0] for row in frame.collect()]
        except Exception:  # the error of a value comes in many classes
            return "run"


def _written(value: Any, type_: str) -> str:
    if value is None:
        text = "NULL"
    elif isinstance(value, (datetime, date)):
        text = f"'{value.isoformat()}'"
    elif isinstance(value, float):
        text = f"'{value!r}'".replace("inf", "Infinity")
    elif isinstance(value, str):
        text = "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    else:
        text = str(value) if value != -(2**63) else "-9223372036854775808"
    return f"CAST({text} AS {type_})"


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):  # plake's are microseconds
        since = value.replace(tzinfo=timezone.utc) - _utc("1970-01-01")
        return since // timedelta(microseconds=1)
    if isinstance(value, float):
        return "NaN" if value != value else (value, math.copysign(1, value))
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return [_plain(one) for one in value.values()]
    return value


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--texts", type=int, default=100_000)
    arguments.add_argument("--first", type=int, default=0)
    arguments.add_argument("--evaluated", type=int, default=5_000)
    arguments.add_argument("--record", action="store_true")
    given = arguments.parse_args()
    spark = SparkVerdicts()
    counts: Counter[str] = Counter()
    evaluated: Counter[str] = Counter()
    recorded: dict[str, list[str]] = {}
    for number in range(given.first, given.first + given.texts):
        text = Texts(number).text()
        parses: bool | None = None
        for room in (CONDITION, EXPRESSION):
            try:
                found = read_by_plake(room, text)
                taken = isinstance(found, list) or bound_by_plake(room, text)
            except Exception:
                counts["raw error"] += 1
                print(f"{number} raw error in {room} {text!r}\n{traceback.format_exc(limit=-2)}")
                continue
            counts[f"{room} {'taken' if taken else 'refused'}"] += 1
            parses = spark.parses(text) if parses is None else parses
            if not taken:
                continue
            if not parses:
                counts["taken, and Spark's parser refuses"] += 1
                print(f"{number} Spark cannot parse the {room} {text!r}")
                continue
            if evaluated[room] >= given.evaluated:
                continue
            evaluated[room] += 1
            theirs = spark.values(room, text)
            if theirs == "analysis":
                counts["taken, and Spark's analysis refuses"] += 1
                print(f"{number} Spark's analysis refuses the {room} {text!r}")
            elif isinstance(found, PlakeError):  # it refuses to compute some values
                counts["a value fails"] += 1
            elif isinstance(theirs, str):
                counts["a value, and Spark's fails"] += 1
                print(f"{number} {room} {text!r}: plake {found!r:.200}, Spark {theirs!r:.200}")
            elif _plain(theirs) != _plain(found) and not _FOLDED.search(text):
                counts["another value"] += 1
                print(f"{number} {room} {text!r}\n  plake {found}\n  Spark {theirs}")
        if given.record and len(recorded) < RECORDED:
            where = [spark.verdict(room, text) for room in (CONDITION, EXPRESSION)]
            if where != ["taken", "taken"] and "run" not in where:
                recorded[text] = where
    if given.record:
        lines = [json.dumps([text, *where]) for text, where in recorded.items()]
        RECORD.write_text("[\n" + ",\n".join(lines) + "\n]\n")
    print(dict(sorted(counts.items())))
    harmless = {"a value fails", *(f"{room} taken" for room in (CONDITION, EXPRESSION))}
    harmless |= {f"{room} refused" for room in (CONDITION, EXPRESSION)}
    if 1000 * counts["a value, and Spark's fails"] <= evaluated.total():
        harmless.add("a value, and Spark's fails")
    return 1 if counts.keys() - harmless else 0


if __name__ == "__main__":
    sys.exit(main())

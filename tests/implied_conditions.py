"""Conditions of monotone functions at the edges of their steps, and what bounds say of them.

The truth comes from the rows: the evaluator decides each one alone. Spark decides the
evaluator, in `doors/test_expressions_in_spark.py`.
"""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa

from lakehouse_source.errors import InvalidExpressionError, InvalidPredicateError
from lakehouse_source.language import Expression, PredicateSet, Scope
from lakehouse_source.language.functions.rows import listed
from lakehouse_source.language.nodes import Literal
from lakehouse_source.language.row_filter import matching_mask
from lakehouse_source.model import ColumnBounds
from lakehouse_source.pruning.evaluate import evaluate
from lakehouse_source.schema.fields import leaves
from lakehouse_source.schema.merge import initial
from tests.expression_cases import Generator
from tests.strategies import true_bounds

ERROR = "error"


class Conditions(Generator):
    """Draws conditions, most of them on monotone expressions of one column."""

    def condition(self, depth: int, table: pa.Table, zone: str) -> str:
        if depth > 0 and self.random.random() < 0.4:
            a, b = (self.condition(depth - 1, table, zone) for _ in range(2))
            return self.pick(
                f"({a}) AND ({b})", f"({a}) OR ({b})", f"NOT ({a})", f"coalesce({a}, {b})",
                f"CASE WHEN {a} THEN {b} ELSE NOT ({a}) END", f"IF({a}, {b}, b)",
            )  # fmt: skip
        if self.random.random() < 0.15:
            return self.truth(2)
        left = self.monotone(self.random.randint(1, 3))
        values = [self.edge(left, table, zone) for _ in range(3)]
        if None in values:
            return self.truth(2)
        op = self.pick("=", "<=>", "!=", "<", "<=", ">", ">=")
        return self.pick(
            f"{left} {op} {values[0]}", f"{left} {op} {values[0]}", f"{values[0]} {op} {left}",
            f"{left} IN ({', '.join(values)})", f"{left} NOT IN ({values[0]}, NULL)",
            f"{left} BETWEEN {values[0]} AND {values[1]}", f"({left}) IS NULL",
            f"year({self.pick('t', 'z', 'k')}) = 2024 AND month(t) IN (2, 3) AND quarter(t) < 3",
            f"{self.pick(*'yhil')} {op} {self.pick(*'yhil')}", f"{self.pick(*'tzk')} {op} t",
            f"{self.pick('f', 'd')} {op} {self.pick('f', 'd')}", f"s {op} n",
            f"year(t) = 2024 AND {left} {op} {values[0]}",
        )  # fmt: skip

    def edge(self, text: str, table: pa.Table, zone: str) -> str | None:
        """A value of an expression on some row, or one near it, as SQL."""
        row = self.random.randrange(table.num_rows)
        try:
            found = Expression.parse(text).bind(Scope({"": table.schema}, zone))
            values = found.evaluate({"": table.slice(row, 1)}, 1).combine_chunks()
            value: Any = listed(values)[0]
        except InvalidExpressionError:
            return None
        if isinstance(value, bool) or value is None or pa.types.is_nested(found.type):
            return str(Literal(value, found.type)) if value is not None else "NULL"
        if isinstance(value, int):
            near = value + self.random.choice((-1, 0, 0, 1))
            width = 32 if pa.types.is_date(found.type) else found.type.bit_width
            value = near if -(1 << (width - 1)) <= near < 1 << (width - 1) else value
        return str(Literal(value, found.type))

    def monotone(self, depth: int) -> str:
        kind = self.pick("number", "number", "day", "clock", "clock", "text")
        return getattr(self, f"monotone_{kind}")(depth)

    def monotone_number(self, depth: int) -> str:
        if depth <= 0:
            return self.pick("y", "h", "i", "l", "f", "d", "c", "e", "w", "b")
        a = self.monotone_number(depth - 1)
        n = self.pick("1", "-3", "7L", "2.5", "0.10", "1e1", "100Y", "-0.5D", "1000000007L")
        return self.pick(
            f"({a} + {n})", f"({n} + {a})", f"({a} - {n})", f"({n} - {a})", f"({a} * {n})",
            f"({a} / {n})", f"({a} div {self.pick('2', '-3L', '0.7')})", f"floor({a})",
            f"ceil({a})", f"round({a}, {self.random.randint(-2, 3)})", f"- ({a})",
            f"CAST({a} AS {self.pick('TINYINT', 'INT', 'BIGINT', 'FLOAT', 'DOUBLE')})",
            f"CAST({a} AS {self.pick('DECIMAL(5,2)', 'DECIMAL(38,10)', 'DECIMAL(3,0)')})",
            f"coalesce({a}, {n})", f"nvl({a}, 3)", f"nullif({a}, {n})", f"year({self.day(depth)})",
            f"datediff({self.day(depth)}, DATE '2024-02-29')", f"TRY_CAST({a} AS INT)",
            f"CASE WHEN b THEN {a} ELSE {n} END", f"CAST({self.clock(depth)} AS BIGINT)",
            f"unix_date({self.day(depth)})",
        )  # fmt: skip

    def day(self, depth: int) -> str:
        return self.monotone_day(depth - 1)

    def clock(self, depth: int) -> str:
        return self.monotone_clock(depth - 1)

    def monotone_day(self, depth: int) -> str:
        if depth <= 0:
            return "t"
        a = self.day(depth)
        unit = self.pick("year", "QUARTER", "Mon", "week")
        n = self.random.randint(-40, 40)
        return self.pick(
            f"date_add({a}, {n})", f"date_sub({a}, {n})", f"({a} + {n})", f"to_date({a})",
            f"trunc({a}, '{unit}')", f"last_day({a})", f"CAST({self.clock(depth)} AS DATE)",
            "date_sub(DATE '2024-03-01', y)", f"coalesce({a}, DATE '2024-01-01')",
            f"({a} + INTERVAL '{n}' DAY)", f"to_date({self.clock(depth)})",
        )  # fmt: skip

    def monotone_clock(self, depth: int) -> str:
        if depth <= 0:
            return self.pick("z", "k")
        a = self.clock(depth)
        units = ("YEAR", "quarter", "month", "WEEK", "day", "HOUR", "minute", "SECOND")
        n = self.random.randint(-40, 40)
        return self.pick(
            f"date_trunc('{self.pick(*units, 'millisecond')}', {a})",
            f"date_trunc('{self.pick(*units)}', {a})", f"CAST({self.day(depth)} AS TIMESTAMP)",
            f"({a} + INTERVAL '{n}' {self.pick('DAY', 'HOUR', 'SECOND')})",
            f"CAST({a} AS TIMESTAMP)",
            f"CAST({a} AS TIMESTAMP_NTZ)", f"CAST({self.day(depth)} AS TIMESTAMP_NTZ)",
        )  # fmt: skip

    def monotone_text(self, depth: int) -> str:
        a = self.pick("s", "n", "m")
        n = self.random.randint(0, 4)
        return self.pick(
            f"substring({a}, 1, {n})", f"substring({a}, 0, {n})", f"left({a}, {n})",
            f"concat('a', {a})", f"('' || {a})", f"coalesce({a}, 'b')", a,
        )  # fmt: skip


def truths(text: str, table: pa.Table, zone: str) -> list[Any]:
    """TRUE, FALSE, NULL or ERROR for each row, decided one by one.

    Raises:
        InvalidExpressionError: it is no condition.
    """
    bound = Expression.parse(text).bind(Scope({"": table.schema}, zone))
    if not (pa.types.is_boolean(bound.type) or pa.types.is_null(bound.type)):
        raise InvalidExpressionError(reason="it is no condition")
    found = []
    for row in range(table.num_rows):
        try:
            found.append(bound.evaluate({"": table.slice(row, 1)}, 1)[0].as_py())
        except InvalidExpressionError:
            found.append(ERROR)
    return found


def check(text: str, table: pa.Table, zone: str, draw: random.Random) -> str | None:
    """Hold what bounds say against what rows say. Returns how the condition was understood.

    None: it is refused, or it is no condition.
    """
    try:
        expected = truths(text, table, zone)
    except InvalidExpressionError:
        return None
    table = table.cast(initial(table.schema))
    try:
        bound = PredicateSet.of(text).bind(table.schema, zone)
    except InvalidPredicateError:
        return None  # a part of it fails on every row, or it is no condition
    if ERROR not in expected:
        found = matching_mask(table, bound).to_pylist()
        assert found == [one is True for one in expected], text
    groups = [[row] for row in range(table.num_rows)]
    groups += [draw.sample(range(table.num_rows), draw.randint(2, 9)) for _ in range(6)]
    known = {leaf.id: leaf for leaf in leaves(table.schema)}
    for group in groups:
        rows = table.take(group)

        def look_up(column_id: int, rows: pa.Table = rows) -> ColumnBounds:
            leaf = known[column_id]
            values = rows.column(leaf.path[0]).combine_chunks()
            plain = values if not pa.types.is_temporal(leaf.type) else pa.array(listed(values))
            return true_bounds(plain.to_pylist(), leaf.type)

        outcome = evaluate(bound, look_up)
        for row in group:
            assert expected[row] == ERROR or expected[row] in outcome, (text, row, outcome)
        if bound.never_true:
            assert True not in expected, text
    whole = [one.whole for one in bound.meanings]
    return "whole" if all(whole) else "part" if not bound.unused else "rows"

"""Pure. Binds an expression to a scope: finds columns and types, and casts as in Spark's ANSI mode.

Source: Spark's `AnsiTypeCoercion` and `DecimalPrecisionTypeCoercion`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone, tzinfo

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.errors import InvalidExpressionError, InvalidPredicateError
from lakehouse_source.language import functions
from lakehouse_source.language.functions import casts, nested, numbers
from lakehouse_source.language.functions.comparison import (
    all_true,
    any_true,
    choice,
    compare,
    is_in,
    negation,
)
from lakehouse_source.language.functions.rows import (
    Bound,
    Key,
    Rows,
    each,
    fail,
    once,
    strict,
    unlisted,
)
from lakehouse_source.language.nodes import (
    COMPARISONS,
    Call,
    Case,
    Cast,
    Interval,
    Literal,
    Name,
    Node,
)
from lakehouse_source.language.types import (
    INSTANT,
    INTEGERS,
    WALL,
    common,
    common_of,
    decimal_for,
    decimal_for_literal,
    is_decimal,
    is_float,
    is_number,
    spark_name,
    spark_type,
    wider_decimal,
)
from lakehouse_source.language.values import DAY_US, Failure, instant_us, parse_zone, wall_us
from lakehouse_source.schema import fields as schemas
from lakehouse_source.schema.ordinal import wall_ns
from lakehouse_source.schema.paths import find_path
from lakehouse_source.schema.variant import VARIANT, is_variant

# --- The meaning of names in an expression: columns of tables side by side.


def _now() -> datetime:
    return datetime.now(timezone.utc)


@dataclass(frozen=True, slots=True)
class Scope:
    """The tables of a statement by their qualifiers, which are case-insensitive.

    `timezone` (an IANA name or an offset) is the session's time zone. `now` is what
    `current_timestamp()` gives, for every expression that is bound in this scope.

    >>> scope = Scope({"target": flights.schema, "source": changes.schema})
    """

    schemas: Mapping[str, pa.Schema]
    timezone: str = "UTC"
    now: datetime = field(default_factory=_now)

    def find(self, name: Name) -> Found:
        """The column that a name means.

        Raises:
            InvalidExpressionError: there is no such column, or there are several.
        """
        first, *rest = name.parts
        found = []
        if rest:
            found = [
                Found(qualifier, path)
                for qualifier, schema in self.schemas.items()
                if qualifier.lower() == first.lower()
                and (path := _path(name, schema, tuple(rest))) is not None
            ]
        if not found:
            found = [
                Found(qualifier, path)
                for qualifier, schema in self.schemas.items()
                if (path := _path(name, schema, name.parts)) is not None
            ]
        if len(found) == 1:
            return found[0]
        if found:
            several = " and ".join(one.qualifier for one in found)
            raise InvalidExpressionError(
                reason=f"{name} is a column of {several}: write the qualifier before it",
                text=str(name),
            )
        listed = "; ".join(
            f"{qualifier} has {', '.join(schema.names)}"
            for qualifier, schema in self.schemas.items()
        )
        raise InvalidExpressionError(reason=f"there is no column {name}: {listed}", text=str(name))


@dataclass(frozen=True, slots=True)
class Found:
    """A column, or a field inside it: the qualifier and the fields from the top level down."""

    qualifier: str
    path: tuple[pa.Field, ...]

    @property
    def type(self) -> pa.DataType:
        return self.path[-1].type

    @property
    def has_collation(self) -> bool:
        """Tell whether only Spark can compare the column's text."""
        return any(map(schemas.has_collation, self.path))

    @property
    def key(self) -> Key:
        """The place of the column in its table."""
        places = tuple(
            above.type.get_field_index(below.name) for above, below in zip(self.path, self.path[1:])
        )
        if -1 in places:
            raise InvalidExpressionError(
                reason=f"the name of a field in {self.path[0].name} stands there twice"
            )
        return self.qualifier, self.path[0].name, places


def _path(name: Name, schema: pa.Schema, parts: tuple[str, ...]) -> tuple[pa.Field, ...] | None:
    try:
        path = find_path(schemas.indexed(schema), parts, dotted=False)
    except InvalidPredicateError as exc:
        raise InvalidExpressionError(reason=exc.reason, text=str(name)) from exc
    if path is None:
        return None
    for above in path[:-1]:
        if not pa.types.is_struct(above.type):
            raise InvalidExpressionError(
                reason=f"{name} is inside {above.name}, a list or map", text=str(name)
            )
    return tuple(path)


# --- The binder.


DATE, BOOLEAN, NULL_TYPE = pa.date32(), pa.bool_(), pa.null()
_ARITHMETIC = frozenset({"+", "-", "*", "/", "%", "div"})
_BINARY = _ARITHMETIC.union(COMPARISONS)


class Binder:
    """Binds the nodes of one expression."""

    zone: tzinfo
    now_us: int

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        try:
            self.zone = parse_zone(scope.timezone)
        except ValueError as exc:
            raise InvalidExpressionError(reason=str(exc)) from exc
        offset = scope.now.utcoffset()
        if offset is None:
            raise InvalidExpressionError(reason="the scope's `now` has no time zone")
        self.now_us = wall_ns(scope.now - offset) // 1000
        self.columns: dict[tuple[str, str], None] = {}
        self._names_bound = 0

    def bind(self, node: Node) -> Bound:
        """The node with its type.

        Raises:
            InvalidExpressionError: a name or function is not known, or types do not fit.
        """
        if isinstance(node, Literal):
            return _literal(node)
        before = self._names_bound
        try:
            found = self._bind(node)
        except Failure as exc:
            fail(node, str(exc))
        return once(found) if self._names_bound == before and not found.constant else found

    def _bind(self, node: Node) -> Bound:
        if isinstance(node, Name):
            return self._column(node, self._scope.find(node))
        if isinstance(node, Cast):
            value = self.bind(node.value)
            of_variant = is_variant(value.type) and not is_variant(node.to)
            cast = nested.cast if of_variant else casts.cast
            return cast(node, value, node.to, self.zone, safe=node.safe)
        if isinstance(node, Case):
            return self._case(node)
        if isinstance(node, Interval):
            raise Failure("an interval is added to a date or timestamp, or subtracted")
        assert isinstance(node, Call)
        return self._call(node)

    def cast(self, value: Bound, to: pa.DataType) -> Bound:
        """The value, cast to the type for combining it with others."""
        found = casts.cast(value.node, value, to, self.zone)
        return once(found) if value.constant and found is not value else found

    def alike(self, values: Sequence[Bound]) -> list[Bound]:
        """The values in their common type."""
        found = common_of([value.type for value in values])
        if found is None:
            listed = ", ".join(spark_name(value.type) for value in values)
            raise Failure(f"there is no common type of {listed}")
        return [self.cast(value, found) for value in values]

    def chosen(self, values: Sequence[Bound]) -> list[Bound]:
        """The values of which a row takes one, in their common type; VARIANT has no other."""
        types = [value.type for value in values]
        if any(map(is_variant, types)) and all(is_variant(t) or t == NULL_TYPE for t in types):
            return [self.cast(value, VARIANT) for value in values]
        return self.alike(values)

    # --- columns ---

    def _column(self, node: Name, found: Found) -> Bound:
        if found.has_collation:
            raise Failure(f"column {node} has a collation: only Spark computes with it")
        self.columns[found.qualifier, found.path[0].name] = None
        self._names_bound += 1
        key, stored, type_ = found.key, found.type, spark_type(found.type)

        def run(rows: Rows) -> pa.Array:
            values = rows.column(key)
            if values.type != stored:
                fail(node, f"the column is {stored}, and the table given has {values.type}")
            if stored == type_:
                return values
            try:
                return values.cast(type_)
            except pa.ArrowInvalid as exc:
                fail(node, f"a value of type {stored} does not fit {spark_name(type_)}: {exc}")

        unit_changes = pa.types.is_timestamp(stored) and stored.unit != "us"
        return Bound(node, type_, run, bool(unit_changes))

    # --- calls ---

    def _call(self, node: Call) -> Bound:
        name = node.name
        arity = 1 if name in ("not", "negative") else 2 if name in _BINARY else None
        if arity is not None and len(node.arguments) != arity:
            raise Failure(f"{name} does not take {len(node.arguments)} arguments")
        if name in ("and", "or"):
            terms = [self._truth(self.bind(argument)) for argument in node.arguments]
            return (all_true if name == "and" else any_true)(node, terms)
        if name == "not":
            return negation(node, self._truth(self.bind(node.arguments[0])))
        if name in COMPARISONS:
            left, right = self.compared(*(self.bind(argument) for argument in node.arguments))
            return compare(node, name, left, right)
        if name == "in":
            value, *values = self.alike([self.bind(argument) for argument in node.arguments])
            return is_in(node, value, values)
        if name == "negative":
            value = self.bind(node.arguments[0])
            if not is_number(value.type):
                raise Failure(f"the minus sign does not apply to {spark_name(value.type)}")
            return numbers.negative(node, value)
        if name in _ARITHMETIC:
            return self._arithmetic(node)
        return functions.build(self, node)

    def _truth(self, value: Bound) -> Bound:
        if value.type != BOOLEAN and not pa.types.is_null(value.type):
            raise Failure(f"{value.node} is {spark_name(value.type)}, not BOOLEAN")
        return self.cast(value, BOOLEAN)

    def _case(self, node: Case) -> Bound:
        conditions = [self.bind(condition) for condition, _ in node.branches]
        if any(condition.type == NULL_TYPE for condition in conditions):
            raise Failure("a condition is NULL, which has no type")
        conditions = [self._truth(condition) for condition in conditions]
        results = [*(value for _, value in node.branches), node.otherwise]
        *values, otherwise = self.chosen([self.bind(value) for value in results])
        return choice(node, list(zip(conditions, values)), otherwise)

    def compared(self, left: Bound, right: Bound) -> tuple[Bound, Bound]:
        """Two values in the type in which they are compared."""
        type_ = self.comparison_type(left, right)
        return self.cast(left, type_), self.cast(right, type_)

    def comparison_type(self, left: Bound, right: Bound) -> pa.DataType:
        """The type in which two values are compared.

        Raises:
            Failure: there is no such type.
        """
        if is_decimal(left.type) != is_decimal(right.type):
            a, b = (_decimal_type(one) for one in (left, right))
            if a is not None and b is not None:
                return wider_decimal(a, b)
        found = common(left.type, right.type)
        if found is None:
            names = f"{spark_name(left.type)} and {spark_name(right.type)}"
            raise Failure(f"values of {names} are not compared")
        return found

    # --- arithmetic ---

    def _arithmetic(self, node: Call) -> Bound:
        op, (first, second) = node.name, node.arguments
        if isinstance(second, Interval) and op in ("+", "-"):
            return self._with_interval(node, self.bind(first), second, 1 if op == "+" else -1)
        if isinstance(first, Interval) and op == "+":
            return self._with_interval(node, self.bind(second), first, 1)
        left, right = self.bind(first), self.bind(second)
        if left.type == DATE and op in ("+", "-") and right.type in INTEGERS[:3]:
            function = "date_add" if op == "+" else "date_sub"
            return functions.build(self, Call(function, node.arguments))
        left, right = self._operands(op, left, right)
        return numbers.operate(node, op, left, right)

    def _operands(self, op: str, left: Bound, right: Bound) -> tuple[Bound, Bound]:
        type_ = common(left.type, right.type)
        if type_ is None or not is_number(type_):
            names = f"{spark_name(left.type)} and {spark_name(right.type)}"
            raise Failure(f"{op} does not apply to {names}")
        if is_decimal(left.type) or is_decimal(right.type):
            a, b = _decimal_type(left), _decimal_type(right)
            if a is not None and b is not None:
                return self.cast(left, a), self.cast(right, b)
        if op == "/" and not is_decimal(type_):
            type_ = pa.float64()
        if op == "div" and type_ in INTEGERS:
            type_ = pa.int64()
        return self.cast(left, type_), self.cast(right, type_)

    def _with_interval(self, node: Call, value: Bound, interval: Interval, sign: int) -> Bound:
        micros = sign * interval.microseconds
        if value.type == DATE and interval.whole_days:
            days = Call("date_add", (value.node, Literal(micros // DAY_US, pa.int32())))
            return functions.build(self, days)
        if value.type == DATE:
            value = self.cast(value, INSTANT)
        if value.type not in (INSTANT, WALL):
            raise Failure(f"an interval is not added to {spark_name(value.type)}")
        zoned, zone = value.type == INSTANT, self.zone
        # First days of the calendar, then a length of time: a day may have 23 or 25 hours.
        days_us = abs(micros) // DAY_US * DAY_US * (1 if micros >= 0 else -1)
        rest_us = micros - days_us

        def one(moment: int) -> int:
            if zoned and days_us:
                moment = instant_us(wall_us(moment, zone) + days_us, zone) + rest_us
            else:
                moment += micros
            if not -(1 << 63) <= moment < 1 << 63:
                raise Failure("overflow of a timestamp")
            return moment

        return strict(node, value.type, [value], each(one, value.type), can_fail=True)


def _decimal_type(value: Bound) -> pa.DataType | None:
    """The decimal type that an operand gets beside a decimal; None: it gets none."""
    if is_decimal(value.type):
        return value.type
    if value.type not in INTEGERS or is_float(value.type):
        return None
    if isinstance(value.node, Literal) and value.node.value is not None:
        return decimal_for_literal(value.node.value)
    return decimal_for(value.type)


def _literal(node: Literal) -> Bound:
    scalar = unlisted([node.value], node.type)[0]

    def run(rows: Rows) -> pa.Array:
        return pa.repeat(scalar, rows.count)

    return Bound(node, node.type, run, False, constant=True)


def load(values: pa.ChunkedArray, key: Key) -> pa.ChunkedArray:
    """The column or nested field that a key means; NULL where a struct above it is NULL."""
    for place in key[2]:
        values = pc.struct_field(values, [place])
    return values

"""Pure. When two keys are equal: the form to which both are brought before they are joined.

The rule is that of `=`: keys that the language finds equal have the same values in the form, so
any hash join finds them, and other keys have different ones. Two moments are compared to the
nanosecond, whatever their units, as conditions compare a column with a constant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timezone, tzinfo
from functools import partial
from operator import mul

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.errors import InvalidExpressionError, InvalidPredicateError
from lakehouse_source.language import values as constants
from lakehouse_source.language.bind import Binder, Scope
from lakehouse_source.language.expression import Expression, qualifiers
from lakehouse_source.language.functions.casts import cast_kernel, holds
from lakehouse_source.language.functions.numbers import normalised
from lakehouse_source.language.functions.rows import each
from lakehouse_source.language.nodes import Call, Cast, Node
from lakehouse_source.language.types import (
    INSTANT,
    is_compared,
    is_decimal,
    is_float,
    is_moment,
    spark_type,
)
from lakehouse_source.language.values import Failure, nanoseconds_below_micros
from lakehouse_source.schema.ordinal import domain

t = pa.types
Form = Callable[[pa.Array], list[pa.Array]]
_MICROSECOND_NS = 1000


@dataclass(frozen=True, slots=True)
class Side:
    """One side of an equality: the table that it reads, its value, and the form of the value.

    `value` is the side as it is written, `node`, or a cast of it.
    """

    qualifier: str
    node: Node
    value: Expression
    form: Form


@dataclass(frozen=True, slots=True)
class Equality:
    """`left = right`, or `left <=> right` if `null_safe`: each side reads one qualifier.

    A value's form is one array or several, all of them NULL where the value is NULL. NULL joins
    NULL only if `null_safe`. `type` is the type in which the language compares the two, in the time
    zone `zone`. The form of moments is counts of `units_ns`.
    """

    sides: tuple[Side, Side]
    null_safe: bool
    type: pa.DataType
    zone: tzinfo
    units_ns: tuple[int, int]

    def of(self, qualifier: str) -> Side:
        """The side that reads a table."""
        return next(side for side in self.sides if side.qualifier == qualifier)

    def sought(
        self, column: pa.DataType, side: Side, values: pa.Array
    ) -> list[constants.Literal] | None:
        """Constants that a stored column, one side, equals where it equals `values` of the other.

        None: there are none, because a cast makes different values of the column equal, or because
        Python has no such value.
        """
        try:
            if not is_moment(self.type):
                found = values.to_pylist() if _keeps_apart(column, self.type) else [None]
                literals = [constants.literal(value) for value in found]
                return None if None in literals else literals  # type: ignore[return-value]
            zoned, instants = domain(column).zoned, self.type == INSTANT
            if t.is_string(column) or (instants and not zoned and self.zone is not timezone.utc):
                return None
            parts = [part.to_pylist() for part in side.form(values)]
            counts = [sum(map(mul, one, self.units_ns)) for one in zip(*parts)]
            return [constants.Timestamp(nanoseconds, zoned) for nanoseconds in counts]
        except (ValueError, OverflowError, InvalidPredicateError):
            return None


def equality(expression: Expression, scope: Scope) -> Equality | None:
    """A conjunct as an equality whose two sides read one qualifier each, different ones.

    None: the conjunct is something else.

    Raises:
        InvalidExpressionError: a name or function is not known, or types are not compared.
    """
    root = expression.root
    if not isinstance(root, Call) or root.name not in ("=", "<=>"):
        return None
    values = [Expression(node, str(node)) for node in root.arguments]
    of = [qualifiers(value, scope) for value in values]
    if len(of[0]) != 1 or len(of[1]) != 1 or of[0] == of[1]:
        return None
    binder = Binder(scope)
    try:
        type_ = binder.comparison_type(*(binder.bind(value.root) for value in values))
    except Failure as exc:
        raise InvalidExpressionError(reason=str(exc), text=expression.text) from exc
    if not is_compared(type_):
        return None
    stored = [value.bind(scope).type for value in values]
    forms, units = _forms(stored, type_, binder.zone)
    sides = [
        Side(qualifier, value.root, value if form.of == own else _cast(value, form.of), form.run)
        for (qualifier,), value, own, form in zip(of, values, stored, forms)
    ]
    return Equality((sides[0], sides[1]), root.name == "<=>", type_, binder.zone, units)


def _cast(value: Expression, to: pa.DataType) -> Expression:
    node = Cast(value.root, to)
    return Expression(node, str(node))


@dataclass(frozen=True, slots=True)
class _Form:
    """`run` makes the form of values of the type `of`."""

    of: pa.DataType
    run: Form


def _forms(
    stored: Sequence[pa.DataType], type_: pa.DataType, zone: tzinfo
) -> tuple[list[_Form], tuple[int, int]]:
    """The forms of two sides of some types, which are compared in `type_`."""
    if is_moment(type_):
        return _moments(stored, type_, zone)
    if stored[0] == stored[1] and not t.is_floating(stored[0]):
        type_ = stored[0]  # such as unsigned integers, which the language widens
    return [_Form(type_, _plain)] * 2, (1, 1)


def _plain(values: pa.Array) -> list[pa.Array]:
    """Values in a type that Arrow joins as the language compares."""
    type_ = values.type
    if is_float(type_):  # Arrow's join finds NaN different from itself
        return [normalised(values).view(pa.int32() if type_.bit_width == 32 else pa.int64())]
    if t.is_boolean(type_):
        return [values.cast(pa.int8())]
    if t.is_temporal(type_):
        return [values.view(pa.int32() if type_.bit_width == 32 else pa.int64())]
    return [values.cast(pa.binary()) if t.is_fixed_size_binary(type_) else values]


def _keeps_apart(column: pa.DataType, type_: pa.DataType) -> bool:
    """Tell whether a cast to `type_` keeps values of a column different, or as conditions do."""
    own = spark_type(column)
    if t.is_string(own):
        return type_ in (pa.string(), pa.binary())
    if is_decimal(own) and is_decimal(type_):
        return holds(type_, own)
    numbers = domain(column).kind in ("int", "decimal", "float")
    return numbers or own == spark_type(type_)


# --- moments ----------------------------------------------------------------


def _moments(
    stored: Sequence[pa.DataType], type_: pa.DataType, zone: tzinfo
) -> tuple[list[_Form], tuple[int, int]]:
    """Counts of the coarser of two units, and of the finer one for the rest: both hold any year."""
    in_zone = type_ == INSTANT and zone is not timezone.utc
    to_nanosecond = any(t.is_timestamp(one) and one.unit == "ns" for one in stored)
    own = []
    for one in stored:
        kind = domain(one)
        moment = kind.zoned or (kind.kind in ("date", "timestamp") and not in_zone)
        own.append(one if moment or (to_nanosecond and t.is_string(one)) else type_)
    units = [_MICROSECOND_NS if t.is_string(one) else domain(one).unit_ns for one in own]
    both = max(units), min(units)
    of_text = partial(_of_text, type_, zone)
    forms = [_Form(one, of_text if t.is_string(one) else partial(_counts, *both)) for one in own]
    return forms, both


def _counts(coarse_ns: int, fine_ns: int, values: pa.Array) -> list[pa.Array]:
    counts = values.view(pa.int32() if t.is_date32(values.type) else pa.int64()).cast(pa.int64())
    if coarse_ns == fine_ns:
        return [counts]
    if domain(values.type).unit_ns == coarse_ns:
        return [counts, pc.multiply(counts, 0)]
    ratio = coarse_ns // fine_ns
    whole = pc.divide(counts, ratio)  # towards zero
    rest = pc.subtract(counts, pc.multiply(whole, ratio))
    below = pc.less(rest, 0)
    return [
        pc.if_else(below, pc.subtract(whole, 1), whole),
        pc.if_else(below, pc.add(rest, ratio), rest),
    ]


def _of_text(type_: pa.DataType, zone: tzinfo, values: pa.Array) -> list[pa.Array]:
    """Microseconds, as the language casts text, and the nanoseconds that the cast leaves out."""
    try:
        micros = cast_kernel(pa.string(), type_, zone)[0](values)
    except Failure as exc:
        raise InvalidExpressionError(reason=str(exc)) from exc
    return [micros.view(pa.int64()), each(nanoseconds_below_micros, pa.int64())(values)]

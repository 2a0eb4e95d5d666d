"""Pure. Casts among Spark's types with the errors of its ANSI mode, and its store assignment.

Source: Spark's `Cast` with ANSI mode, `UTF8String`, `Decimal` and `SparkDateTimeUtils`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timezone, tzinfo
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.errors import InvalidExpressionError, SchemaMismatchError
from lakehouse_source.language.functions.rows import Bound, Kernel, Rows, each, strict
from lakehouse_source.language.nodes import Node
from lakehouse_source.language.types import (
    INSTANT,
    INTEGERS,
    MAX_PRECISION,
    WALL,
    is_atomic,
    is_decimal,
    is_float,
    is_moment,
    is_number,
    spark_name,
    spark_type,
)
from lakehouse_source.language.values import (
    BLANKS,
    DAY_US,
    SECOND_US,
    Failure,
    Unsupported,
    days_of_text,
    instant_us,
    micros_of_text,
    parse_zone,
    wall_us,
)
from lakehouse_source.schema.fields import children, is_list_like
from lakehouse_source.schema.ordinal import EXACT
from lakehouse_source.schema.texts import cast_to_string, date_text, timestamp_text
from lakehouse_source.schema.types import Fit, fit

t = pa.types
STRING, BOOLEAN, DATE = pa.string(), pa.bool_(), pa.date32()


def cast(node: Node, value: Bound, to: pa.DataType, zone: tzinfo, *, safe: bool = False) -> Bound:
    """The value cast to another type. `safe`: values that have no result become NULL.

    Raises:
        Failure: Spark has no such cast, or it is not supported.
    """
    if value.type == to:
        return value
    if t.is_null(value.type):

        def run(rows: Rows) -> pa.Array:
            return pa.nulls(rows.count, to)

        return Bound(node, to, run, False)
    kernel, can_fail = cast_kernel(value.type, to, zone, safe=safe)
    return strict(node, to, [value], kernel, can_fail=can_fail)


def cast_kernel(
    from_: pa.DataType, to: pa.DataType, zone: tzinfo, *, safe: bool = False
) -> tuple[Kernel, bool]:
    """The kernel that casts, and whether it fails on some values.

    Raises:
        Failure: Spark has no such cast, or it is not supported.
    """
    kernel = _vectorised(from_, to, zone)
    if kernel is not None:
        return kernel, False
    if to in INTEGERS and from_ in INTEGERS:
        return _narrowing(to, safe), True
    if is_float(from_) and to == STRING:
        return _printed, True
    function = _one_value(from_, to, zone)
    if function is None:
        raise Failure(f"a cast from {spark_name(from_)} to {spark_name(to)} is not supported")

    def checked(value: Any) -> Any:
        try:
            return function(value)
        except Unsupported as exc:
            raise Failure(
                f"the cast of {value!r} to {spark_name(to)} is not supported: {exc}"
            ) from exc
        except (ValueError, ArithmeticError) as exc:
            if safe:
                return None
            shown = repr(value) if isinstance(value, str) else _shown(value, from_, zone)
            why = f": {exc}" if isinstance(exc, Failure) and str(exc) else ""
            raise Failure(f"{shown} cannot be cast to {spark_name(to)}{why}") from exc

    return each(checked, to), True


def _shown(value: Any, type_: pa.DataType, zone: tzinfo) -> str:
    if type_ == DATE:
        return date_text(value)
    if t.is_timestamp(type_):
        return timestamp_text(wall_us(value, zone) if type_ == INSTANT else value)
    return str(value)


# --- whole columns ----------------------------------------------------------


def _days(moments: pa.Array) -> pa.Array:
    """The days of moments in UTC; Arrow divides towards zero."""
    micros = moments.view(pa.int64())
    days = pc.divide(micros, DAY_US)
    before = pc.less(micros, pc.multiply(days, DAY_US)).cast(pa.int64())
    return pc.subtract(days, before).cast(pa.int32()).view(DATE)


def _vectorised(from_: pa.DataType, to: pa.DataType, zone: tzinfo) -> Kernel | None:
    """Casts that Arrow makes exactly and that have no errors."""
    if from_ in INTEGERS and (is_float(to) or (to in INTEGERS and to.bit_width >= from_.bit_width)):
        return lambda values: values.cast(to, safe=False)
    if from_ == BOOLEAN and (to in INTEGERS or is_float(to)):
        return lambda values: values.cast(pa.int8()).cast(to)
    if (from_ in INTEGERS or is_float(from_)) and to == BOOLEAN:
        return lambda values: pc.not_equal(values, pa.scalar(0, from_))
    if is_float(from_) and is_float(to):
        return lambda values: values.cast(to, safe=False)
    if to == STRING and (from_ in INTEGERS or from_ == BOOLEAN):
        return lambda values: values.cast(STRING)
    if to == STRING and is_decimal(from_):
        return lambda values: cast_to_string(pa.chunked_array([values]))
    if to == DATE and (from_ == WALL or (from_ == INSTANT and zone is timezone.utc)):
        return _days
    if from_ == STRING and to == pa.binary():
        return lambda values: values.cast(to)
    if is_decimal(from_) and is_decimal(to) and holds(to, from_):
        return lambda values: values.cast(to)
    if from_ in INTEGERS and is_decimal(to) and to.precision - to.scale >= 19:
        return lambda values: values.cast(to)
    return None


_LEAST_NORMAL = {pa.float32(): 2.0**-126, pa.float64(): 2.0**-1022}


def _printed(values: pa.Array) -> pa.Array:
    least = pa.scalar(_LEAST_NORMAL[values.type], values.type)
    zero = pa.scalar(0.0, values.type)
    odd = pc.and_(pc.less(pc.abs(values), least), pc.not_equal(values, zero))
    if pc.any(odd).as_py():
        first = values.filter(odd)[0].as_py()
        raise Failure(f"{first} is not cast to STRING: Java's versions print it differently")
    return cast_to_string(pa.chunked_array([values]))


def holds(wide: pa.DataType, narrow: pa.DataType) -> bool:
    """Tell whether a decimal has every value of another one."""
    whole = wide.precision - wide.scale >= narrow.precision - narrow.scale
    return bool(whole and wide.scale >= narrow.scale)


def _narrowing(to: pa.DataType, safe: bool) -> Kernel:
    bound = 1 << (to.bit_width - 1)

    def kernel(values: pa.Array) -> pa.Array:
        low, high = pa.scalar(-bound, values.type), pa.scalar(bound - 1, values.type)
        good = pc.and_(pc.greater_equal(values, low), pc.less_equal(values, high))
        if not safe and pc.any(pc.invert(good)).as_py():
            first = values.filter(pc.invert(good))[0].as_py()
            raise Failure(f"{first} is out of range of {spark_name(to)}")
        return pc.if_else(good, values, pa.scalar(None, values.type)).cast(to)

    return kernel


# --- one value --------------------------------------------------------------

Function = Callable[[Any], Any]


def _one_value(from_: pa.DataType, to: pa.DataType, zone: tzinfo) -> Function | None:
    if from_ == STRING:
        return _of_text(to, zone)
    if from_ == DATE or t.is_timestamp(from_):
        return _of_moment(from_, to, zone)
    if from_ == BOOLEAN:
        return (lambda value: to_decimal(Decimal(int(value)), to)) if is_decimal(to) else None
    if from_ == pa.binary() and to == STRING:
        return _decoded
    if is_decimal(to):
        if is_float(from_):
            return lambda value: _float_to_decimal(value, to)
        if from_ in INTEGERS or is_decimal(from_):
            return lambda value: to_decimal(Decimal(value), to)
        return None
    if to in INTEGERS and (is_float(from_) or is_decimal(from_)):
        return lambda value: to_integer(int(_finite(value)), to)
    if is_decimal(from_):
        if to == BOOLEAN:
            return lambda value: value != 0
        if to == pa.float64():
            return float
        return _to_single if to == pa.float32() else None
    if to == INSTANT and from_ in INTEGERS:
        low, high = -(1 << 63), (1 << 63) - 1  # as Java's TimeUnit.toMicros
        return lambda value: min(max(value * SECOND_US, low), high)
    return None


def _decoded(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise Unsupported("it is not UTF-8") from None


def to_integer(value: int, to: pa.DataType) -> int:
    """An integer, where it is in the range of `to`."""
    bound = 1 << (to.bit_width - 1)
    if not -bound <= value < bound:
        raise Failure("it is out of range")
    return value


def _finite(value: Any) -> Any:
    if value != value or value in (float("inf"), float("-inf")):
        raise Failure("it is out of range")
    return value


def to_decimal(value: Decimal, to: pa.DataType) -> Decimal:
    """A number rounded half up to the scale of `to`, where it is in its range."""
    found = value.quantize(Decimal(1).scaleb(-to.scale), "ROUND_HALF_UP", EXACT)
    if found and found.adjusted() >= to.precision - to.scale:
        raise Failure("it is out of range")
    return found


def _float_to_decimal(value: float, to: pa.DataType) -> Any:
    if value != value or value in (float("inf"), float("-inf")):
        return None  # Spark gives NULL, in ANSI mode too
    return to_decimal(Decimal(repr(value)), to)


def _to_single(value: Decimal) -> float:
    return _to_single_text(str(value))


# --- text -------------------------------------------------------------------

_WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_SPECIAL = {
    **dict.fromkeys(("inf", "+inf", "infinity", "+infinity"), float("inf")),
    **dict.fromkeys(("-inf", "-infinity"), float("-inf")),
    "nan": float("nan"),
}
_TRUTH = {
    **dict.fromkeys(("t", "true", "y", "yes", "1"), True),
    **dict.fromkeys(("f", "false", "n", "no", "0"), False),
}
# Java's String.trim.
_CONTROLS = "".join(map(chr, range(0x21)))


def _of_text(to: pa.DataType, zone: tzinfo) -> Function | None:
    if to in INTEGERS:
        return lambda text: to_integer(whole_of_text(text), to)
    if is_float(to):
        return lambda text: _text_to_float(text, to)
    if is_decimal(to):
        return lambda text: _text_to_decimal(text, to)
    if to == BOOLEAN:
        return truth_of_text
    if to == DATE:
        return lambda text: to_integer(days_of_text(text), pa.int32())
    if to in (INSTANT, WALL):
        zoned = to == INSTANT
        return lambda text: to_integer(micros_of_text(text, zone, zoned=zoned), pa.int64())
    return None


def _matched(pattern: re.Pattern[str], text: str) -> str:
    if pattern.fullmatch(text) is None:
        raise Failure
    return text


def whole_of_text(text: str) -> int:
    """Text as a whole number: no fraction and no exponent."""
    return int(_matched(_WHOLE, text.strip(BLANKS)))


def double_of_text(text: str) -> float:
    """Text as a DOUBLE."""
    return _text_to_float(text, pa.float64())


def _text_to_float(text: str, to: pa.DataType) -> float:
    bare = text.strip(_CONTROLS)
    special = _SPECIAL.get(bare.lower())
    if special is not None:
        return special
    if bare[-1:] in ("d", "D", "f", "F"):  # as in Java
        bare = bare[:-1]
    _matched(_NUMBER, bare)
    return float(bare) if t.is_float64(to) else _to_single_text(bare)


def _to_single_text(text: str) -> float:
    try:
        # A double between would round twice.
        return float(pa.array([text.lstrip("+")]).cast(pa.float32())[0].as_py())
    except pa.ArrowInvalid:  # Arrow refuses what is out of range
        return float(pa.scalar(float(text)).cast(pa.float32(), safe=False).as_py())


def _text_to_decimal(text: str, to: pa.DataType) -> Decimal:
    bare = text.strip(_CONTROLS)
    if not bare.isascii() and any(character.isdigit() for character in bare):
        raise Unsupported("Java knows digits of other scripts")
    value = Decimal(_matched(_NUMBER, bare))
    if value and not -1000 < value.adjusted() < MAX_PRECISION:
        if value.adjusted() < 0:
            return Decimal(0).scaleb(-to.scale)
        raise Failure("it is out of range")
    return to_decimal(value, to)


def truth_of_text(text: str) -> bool:
    """Text as a BOOLEAN."""
    found = _TRUTH.get(text.strip(BLANKS).lower())
    if found is None:
        raise Failure
    return found


# --- dates and timestamps ---------------------------------------------------


def _of_moment(from_: pa.DataType, to: pa.DataType, zone: tzinfo) -> Function | None:
    if from_ == DATE:
        return {
            STRING: date_text,
            WALL: lambda days: to_integer(days * DAY_US, pa.int64()),
            INSTANT: lambda days: to_integer(instant_us(days * DAY_US, zone), pa.int64()),
        }.get(to)
    if from_ == WALL:
        return {
            STRING: timestamp_text,
            DATE: lambda micros: micros // DAY_US,
            INSTANT: lambda micros: to_integer(instant_us(micros, zone), pa.int64()),
        }.get(to)
    if to in INTEGERS:
        return lambda micros: to_integer(micros // SECOND_US, to)
    return {
        STRING: lambda micros: timestamp_text(wall_us(micros, zone)),
        DATE: lambda micros: wall_us(micros, zone) // DAY_US,
        WALL: lambda micros: to_integer(wall_us(micros, zone), pa.int64()),
    }.get(to)


# --- Store assignment: values of one type into a column of another, by Spark's ANSI policy.
#
# Numbers go into every number, dates and timestamps into each other, all single values into
# strings. A value that does not fit is an error that names the column. A type that Spark lacks goes
# into one that holds all its values: a time of milliseconds into one of microseconds.
#
# Source: Spark's `Cast.canANSIStoreAssign` and `TableOutputResolver`.


def require_assignable(from_: pa.DataType, to: pa.Field) -> None:
    """Refuse a type whose values a column does not accept.

    Raises:
        SchemaMismatchError: the column does not take them.
    """
    if not _assignable(from_, to.type):
        raise SchemaMismatchError(
            column=to.name,
            expected=to.type,
            got=from_,
            reason=f"is {to.type} and the value assigned to it is {from_}",
            hint="Cast the value.",
        )


def _assignable(from_: pa.DataType, to: pa.DataType) -> bool:
    if from_ == to or t.is_null(from_):
        return True
    source, target = spark_type(from_), spark_type(to)
    if source == target:
        return not t.is_dictionary(to)
    if t.is_struct(source) and t.is_struct(target):
        mine, theirs = children(source), children(target)
        return [x.name for x in mine] == [x.name for x in theirs] and all(
            _assignable(x.type, y.type) for x, y in zip(mine, theirs)
        )
    if is_list_like(source) and is_list_like(target):
        return _assignable(source.value_type, target.value_type)
    if not (is_atomic(source) and is_atomic(target)):
        return fit(source, target) is not Fit.NONE
    return bool(
        (is_number(source) and is_number(target))
        or (is_moment(source) and is_moment(target))
        or target == pa.string()
    )


def assign(
    values: pa.Array | pa.ChunkedArray, to: pa.Field, timezone: str = "UTC"
) -> pa.ChunkedArray:
    """The values as the column `to` stores them.

    Raises:
        SchemaMismatchError: the column does not take the type or one of the values.
    """
    require_assignable(values.type, to)
    try:
        chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
        found = [_converted(chunk, to.type, timezone) for chunk in chunks]
    except (Failure, InvalidExpressionError, pa.ArrowInvalid) as exc:
        raise _refusal(to, values.type, f"cannot store a value: {exc}") from exc
    _require_values(pa.chunked_array(found, to.type), to, to.name)
    return pa.chunked_array(found, to.type)


def _refusal(to: pa.Field, got: pa.DataType, reason: str) -> SchemaMismatchError:
    hint = "Cast the value, or change the type of the column."
    return SchemaMismatchError(column=to.name, expected=to.type, got=got, reason=reason, hint=hint)


def _require_values(values: pa.ChunkedArray, to: pa.Field, name: str) -> None:
    if not to.nullable and values.null_count:
        raise SchemaMismatchError(
            column=name,
            expected=to.type,
            got=to.type,
            reason="is NOT NULL and a value assigned to it is NULL",
            hint="Give a value, by COALESCE for example.",
        )
    if t.is_struct(to.type):
        for place, child in enumerate(children(to.type)):
            inner = pc.struct_field(values.filter(values.is_valid()), [place])
            _require_values(inner, child, f"{name}.{child.name}")


def _converted(values: pa.Array, to: pa.DataType, timezone: str) -> pa.Array:
    if values.type == to:
        return values
    if t.is_null(values.type):
        return pa.nulls(len(values), to)
    source, target = spark_type(values.type), spark_type(to)
    if t.is_struct(source) and source != target:
        parts = [
            _converted(values.field(place), child.type, timezone)
            for place, child in enumerate(children(to))
        ]
        return pa.StructArray.from_arrays(parts, fields=children(to), mask=pc.is_null(values))
    if is_list_like(source) and source != target:
        if not (t.is_list(values.type) and t.is_list(to)):
            raise Failure(f"{values.type} is not converted to {to}")
        inner = _converted(values.values, to.value_type, timezone)
        return pa.ListArray.from_arrays(values.offsets, inner, type=to, mask=pc.is_null(values))
    if values.type != source:
        values = values.cast(source)
    if source != target and not (is_atomic(source) and is_atomic(target)):
        values = values.cast(target)
    elif source != target:
        kernel, _ = cast_kernel(source, target, parse_zone(timezone))
        values = kernel(values)
        if isinstance(values, pa.ChunkedArray):
            values = pa.concat_arrays(values.chunks)
    if target == to:
        return values
    try:
        return values.cast(to)  # a narrower or finer form of storage; Arrow checks the range
    except pa.ArrowNotImplementedError:
        raise Failure(f"{spark_name(target)} is not stored as {to}") from None

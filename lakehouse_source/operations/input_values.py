"""Verb. Values of CSV and JSON as columns of a type: each exactly, or refused.

JSON's numbers arrive as `int`, as `float` where they have at most 15 digits, which a double holds,
or else as `Decimal`. A text stands for a value of every type but numbers whose type was inferred.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from itertools import accumulate, chain
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.language.functions.casts import double_of_text, truth_of_text
from lakehouse_source.language.values import BLANKS, parse_any_year, parse_time
from lakehouse_source.schema.fields import children, is_list_like
from lakehouse_source.schema.ordinal import DAY_NS, EXACT, Domain, domain
from lakehouse_source.schema.variant import is_variant, variant

t = pa.types
SPECIAL = ("NaN", "Infinity", "-Infinity")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
# Texts with these forms stay what they are as a number; 01234 and +5 would not.
WHOLE_FORM = r"^(0|-?[1-9][0-9]*)$"
NUMBER_FORM = (
    r"^-?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$|^(NaN|nan|-?Infinity|-?inf)$"
)
TRUTH_FORM = r"^(?i:true|false)$"
# A decimal of so many characters, without an exponent, is one double's text and no other's.
_SHORT = 15
# Digits enough for the exact value of every double.
_DOUBLES = Context(prec=1200, Emax=10**6, Emin=-(10**6))


@dataclass
class Misfit(Exception):
    """A value that its column cannot hold. `row` counts from 0 in what was given."""

    row: int
    path: str
    value: Any
    type: pa.DataType | None
    why: str


# --- JSON -------------------------------------------------------------------


def _number(text: str) -> float | Decimal:
    short = len(text) <= _SHORT and "e" not in text and "E" not in text
    return float(text) if short else Decimal(text)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"an object has the key {twice!r} twice")
    return found


JSON = json.JSONDecoder(parse_float=_number, object_pairs_hook=_object)


# --- columns of JSON's values -----------------------------------------------


def column_of(
    values: Sequence[Any],
    type_: pa.DataType,
    path: str,
    rows: Sequence[int],
    *,
    inferred: bool = False,
) -> pa.Array:
    """Values of JSON as a column; each is in the row that `rows` has at its place.

    Raises:
        Misfit: a value is not of the type, or the type cannot hold it exactly.
    """
    if t.is_struct(type_):
        return _structs(values, type_, path, rows, inferred)
    if t.is_map(type_):
        return _maps(values, type_, path, rows, inferred)
    if is_list_like(type_):
        return _lists(values, type_, path, rows, inferred)
    if is_variant(type_):
        return _variants(values, type_, path, rows)
    kinds = set(map(type, values)) - {type(None)}
    if any(kinds <= known and fits(type_) for fits, known in _AS_THEY_ARE):
        try:
            return pa.array(values, type_)
        except (pa.ArrowException, UnicodeError, OverflowError):
            pass  # below, to name the value
    if kinds == {str} and t.is_temporal(type_):
        try:
            moments = _by_arrow(pa.array(values, pa.string()), type_)
        except UnicodeError:
            moments = None
        if moments is not None:
            return moments
    read, kind, found = _reader(type_), domain(type_), list[Any]()
    for row, value in zip(rows, values):
        try:
            if inferred and isinstance(value, str) and _is_number(type_) and value not in SPECIAL:
                raise ValueError("it is text")
            found.append(None if value is None else read(value, kind))
        except (ValueError, ArithmeticError, TypeError) as error:
            raise Misfit(row, path, value, type_, str(error) or "it is out of range") from error
    carrier = type_
    if kind.temporal:
        carrier = pa.int32() if type_.bit_width == 32 else pa.int64()
    elif t.is_float16(type_):
        carrier = pa.float32()
    return pa.array(found, carrier).cast(type_)


def _is_number(type_: pa.DataType) -> bool:
    return bool(
        t.is_integer(type_) or t.is_floating(type_) or t.is_decimal(type_) or t.is_boolean(type_)
    )


# Arrow takes these Python types exactly or not at all.
_AS_THEY_ARE: tuple[tuple[Callable[[pa.DataType], bool], set[type]], ...] = (
    (t.is_integer, {int}),
    (t.is_float64, {int, float}),
    (t.is_boolean, {bool}),
    (t.is_string, {str}),
    (t.is_null, set()),
)


def _structs(
    values: Sequence[Any], type_: pa.DataType, path: str, rows: Sequence[int], inferred: bool
) -> pa.Array:
    fields = children(type_)
    names = {field.name for field in fields}
    for row, value in zip(rows, values):
        if value is None:
            continue
        if not isinstance(value, dict):
            raise Misfit(row, path, value, type_, "an object is expected")
        if not names >= value.keys():
            other = next(name for name in value if name not in names)
            raise Misfit(row, f"{path}.{other}", value[other], None, "no such field is known")
    below = [
        column_of(
            [None if value is None else value.get(field.name) for value in values],
            field.type,
            f"{path}.{field.name}",
            rows,
            inferred=inferred,
        )
        for field in fields
    ]
    return pa.StructArray.from_arrays(below, fields=fields, mask=_mask(values))


def _variants(
    values: Sequence[Any], type_: pa.DataType, path: str, rows: Sequence[int]
) -> pa.Array:
    """Values of any kind; a null is NULL, and inside of another value JSON's null."""
    try:
        return variant(map(_with_decimals, values))
    except InvalidOptionError:
        pass  # below, to name the value
    for row, value in zip(rows, values):
        try:
            variant([_with_decimals(value)])
        except InvalidOptionError as error:
            raise Misfit(row, path, value, type_, error.reason.rstrip(".")) from error
    raise AssertionError("no value is refused alone")


def _with_decimals(value: Any) -> Any:
    """A value whose numbers with a point are DECIMAL, as far as 38 digits hold them."""
    if isinstance(value, dict):
        return {name: _with_decimals(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_with_decimals(part) for part in value]
    if isinstance(value, float) and math.isfinite(value):
        return Decimal(repr(value))
    if isinstance(value, Decimal):
        digits, exponent = len(value.as_tuple().digits), value.as_tuple().exponent
        assert isinstance(exponent, int)
        return value if -38 <= exponent <= 38 - digits and digits <= 38 else float(value)
    return value


def _mask(values: Sequence[Any]) -> pa.Array:
    return pa.array([value is None for value in values], pa.bool_())


def _flat(lists: Sequence[Any], rows: Sequence[int]) -> tuple[list[int], list[Any], list[int]]:
    """Where each list begins, all elements, and the row of each."""
    begins = [0, *accumulate(0 if one is None else len(one) for one in lists)]
    elements = list(chain.from_iterable(one for one in lists if one is not None))
    return begins, elements, [row for row, one in zip(rows, lists) for _ in one or ()]


def _lists(
    values: Sequence[Any], type_: pa.DataType, path: str, rows: Sequence[int], inferred: bool
) -> pa.Array:
    size = type_.list_size if t.is_fixed_size_list(type_) else None
    for row, value in zip(rows, values):
        if value is not None and not isinstance(value, list):
            raise Misfit(row, path, value, type_, "an array is expected")
        if size is not None and value is not None and len(value) != size:
            raise Misfit(row, path, value, type_, f"it has {len(value)} elements")
    given = values if size is None else [[None] * size if v is None else v for v in values]
    begins, elements, places = _flat(given, rows)
    below = column_of(elements, type_.value_type, f"{path}[]", places, inferred=inferred)
    if size is not None:
        return pa.FixedSizeListArray.from_arrays(below, type=type_, mask=_mask(values))
    offsets = pa.array(begins, pa.int32())
    return pa.ListArray.from_arrays(offsets, below, type=type_, mask=_mask(values))


def _maps(
    values: Sequence[Any], type_: pa.DataType, path: str, rows: Sequence[int], inferred: bool
) -> pa.Array:
    """Maps from pairs, or from objects, whose keys are texts."""
    pairs = list[list[Any] | None]()
    for row, value in zip(rows, values):
        entries = list(map(list, value.items())) if isinstance(value, dict) else value
        if entries is not None and not (
            isinstance(entries, list)
            and all(isinstance(one, list) and len(one) == 2 for one in entries)
        ):
            raise Misfit(row, path, value, type_, "an array of pairs or an object is expected")
        for key, _ in entries or ():
            if key is None:
                raise Misfit(row, path, value, type_, "a key is null")
        pairs.append(entries)
    begins, entries, places = _flat(pairs, rows)
    keys, items = (
        column_of([one[i] for one in entries], kind, f"{path}.{name}", places, inferred=inferred)
        for i, kind, name in ((0, type_.key_type, "key"), (1, type_.item_type, "value"))
    )
    offsets = pa.array(begins, pa.int32())
    return pa.MapArray.from_arrays(offsets, keys, items, type=type_, mask=_mask(values))


# --- one value --------------------------------------------------------------


def _reader(type_: pa.DataType) -> Callable[[Any, Domain], Any]:
    kind = domain(type_).kind
    if kind == "binary":
        size = type_.byte_width if t.is_fixed_size_binary(type_) else None
        return lambda value, _: _bytes(value, size)
    if kind == "float":
        return lambda value, _: _float(value, type_)
    return _READERS.get(kind, _nothing)


def _nothing(value: Any, kind: Domain) -> NoReturn:
    raise ValueError("the first rows had no value")


def _decimal(value: Any) -> Decimal:
    """A number of JSON, or a text of one."""
    if isinstance(value, str):
        bare = value.strip(BLANKS)
        if _NUMBER.fullmatch(bare) is None:
            raise ValueError("it is no number")
        return Decimal(bare)
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise ValueError("a number is expected")
    return Decimal(repr(value)) if isinstance(value, float) else Decimal(value)


def _whole(value: Any, kind: Domain) -> int:
    found = value if type(value) is int else _unscaled(_decimal(value), 0)
    if not kind.low <= found <= kind.high:
        raise ValueError("it is out of range")
    return int(found)


def _unscaled(value: Decimal, scale: int) -> int:
    if value and value.adjusted() > 80:  # an exponent that would make a number of any length
        raise ValueError("it is out of range")
    shifted = value.scaleb(scale, EXACT)
    if shifted != shifted.to_integral_value():
        raise ValueError("it would be rounded")
    return int(shifted)


def _exact_decimal(value: Any, kind: Domain) -> Decimal:
    found = _decimal(value)
    if not kind.low <= _unscaled(found, kind.scale) <= kind.high:
        raise ValueError("it is out of range")
    return found


def _float(value: Any, type_: pa.DataType) -> float:
    """A number whose digits are those of the float: its own, or fewer that are its rounding."""
    if isinstance(value, str) and not value.strip(BLANKS)[-1:].isdigit():
        special = double_of_text(value)
        if not math.isfinite(special):
            return special
    elif isinstance(value, float) and not math.isfinite(value):  # JSON's bare NaN
        return value
    number = _decimal(value)
    found = float(number)
    if not t.is_float64(type_):
        try:  # from the text: a double between would round twice
            single = pa.array([str(number)]).cast(pa.float32())
            found = single.cast(type_).cast(pa.float32())[0].as_py()
        except pa.ArrowInvalid:
            found = math.inf
    if math.isinf(found):
        raise ValueError("it is out of range")
    if Decimal(repr(found)) != number:
        digit = Decimal((0, (1,), int(number.as_tuple().exponent)))
        if Decimal(found).quantize(digit, context=_DOUBLES) != number:
            raise ValueError(f"the nearest value is {found!r}")
    return found


def _truth(value: Any, kind: Domain) -> bool:
    if isinstance(value, bool):
        return value
    if not isinstance(value, str):
        raise ValueError("true or false is expected")
    try:
        return truth_of_text(value)
    except ValueError:
        raise ValueError("true or false is expected") from None


def _text(value: Any, kind: Domain) -> str:
    if not isinstance(value, str):
        raise ValueError("text is expected")
    value.encode()
    return value


def _bytes(value: Any, size: int | None) -> bytes:
    try:
        found = base64.b64decode(value, validate=True)
    except (ValueError, TypeError):
        raise ValueError("bytes are written as base64") from None
    if size is not None and len(found) != size:
        raise ValueError(f"it has {len(found)} bytes")
    return found


def _moment(value: Any, kind: Domain) -> int:
    if not isinstance(value, str):
        raise ValueError("it is written as text: '2024-01-31 12:30:00'")
    found = parse_any_year(value)
    if kind.kind == "date" and (found.zoned or found.nanoseconds % DAY_NS):
        raise ValueError("it is more than a date")
    if kind.kind == "timestamp" and kind.zoned != found.zoned:
        raise ValueError("its zone is missing: write Z for UTC" if kind.zoned else "it has a zone")
    return _counted(found.nanoseconds, kind)


def _time(value: Any, kind: Domain) -> int:
    if not isinstance(value, str):
        raise ValueError("it is written as text: '12:30:00'")
    return _counted(parse_time(value), kind)


def _counted(nanoseconds: int, kind: Domain) -> int:
    count, finer = divmod(nanoseconds, kind.unit_ns)
    if finer:
        raise ValueError("it is finer than the column's unit")
    if not kind.low <= count <= kind.high:
        raise ValueError("it is out of range")
    return count


_READERS: dict[str, Callable[[Any, Domain], Any]] = {
    "int": _whole,
    "duration": _whole,
    "decimal": _exact_decimal,
    "bool": _truth,
    "string": _text,
    "date": _moment,
    "timestamp": _moment,
    "time": _time,
}


# --- columns of CSV's texts -------------------------------------------------


def text_column(
    texts: pa.Array, type_: pa.DataType, path: str, *, inferred: bool = False
) -> pa.Array:
    """Texts of CSV as a column of a type; nested values are JSON.

    Raises:
        Misfit: as `column_of`.
    """
    if t.is_string(type_):
        return texts
    if inferred:
        _check_form(texts, type_, path)
    found = _by_arrow(texts, type_)
    if found is not None:
        return found
    values = texts.to_pylist()
    if t.is_nested(type_) or is_variant(type_):
        for row, text in enumerate(values):
            try:
                values[row] = None if text is None else JSON.decode(text)
            except (ValueError, RecursionError) as error:
                raise Misfit(row, path, text, type_, f"JSON is expected: {error}") from error
    return column_of(values, type_, path, range(len(values)))


def _check_form(texts: pa.Array, type_: pa.DataType, path: str) -> None:
    """Refuse a number that would not keep its form in a column whose type was inferred."""
    if not _is_number(type_) or t.is_boolean(type_):
        return
    form = WHOLE_FORM if t.is_integer(type_) else NUMBER_FORM
    at = pc.index(pc.match_substring_regex(texts, form), False).as_py()
    if at >= 0:
        raise Misfit(at, path, texts[at].as_py(), type_, "the first rows were plain numbers")


def _by_arrow(texts: pa.Array, type_: pa.DataType) -> pa.Array | None:
    """The column where Arrow reads all texts exactly; None: each is to be looked at."""
    try:
        if t.is_float64(type_):
            return _doubles(texts)
        if t.is_integer(type_):
            plain = pc.match_substring_regex(texts, r"^-?[0-9]+$")  # Arrow takes 0x1F too
            return texts.cast(type_) if _all(plain) else None
        if t.is_date32(type_) or t.is_timestamp(type_):
            return texts.cast(type_)
    except (pa.ArrowException, ValueError, ArithmeticError):
        pass  # the value is found one by one
    return None


def _all(truths: pa.Array) -> bool:
    return pc.all(truths).as_py() is not False


def _doubles(texts: pa.Array) -> pa.Array:
    """Doubles; only those texts that are not the double's own are looked at one by one."""
    found = texts.cast(pa.float64())
    plain = pc.match_substring_regex(texts, r"^-?[0-9]+(\.[0-9]*)?$")
    short = pc.and_(plain, pc.less_equal(pc.binary_length(texts), _SHORT))
    known = pc.or_(short, pc.equal(found.cast(pa.string()), texts))
    for text in texts.filter(pc.invert(known)).to_pylist():
        _float(text, pa.float64())
    return found

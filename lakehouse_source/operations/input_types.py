"""Verb. The types that hold values of CSV and JSON exactly, where nobody said which."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.language.types import MAX_PRECISION
from lakehouse_source.operations.input_values import (
    NUMBER_FORM,
    SPECIAL,
    TRUTH_FORM,
    WHOLE_FORM,
    Misfit,
    column_of,
    text_column,
)

_DAY = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_CLOCK = r"[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,9})?)?"
_ZONE = r" ?(Z|[+-][0-9]{2}(:?[0-9]{2})?)"
_NANOSECONDS = r"\.[0-9]{7}"
_DEEPEST = 100


def text_type(texts: pa.Array) -> pa.DataType:
    """The type of a column of CSV: its texts fit exactly, and a number keeps its form.

    01234 stays text. Numbers that no double holds are decimals.
    """
    texts = texts.drop_null()
    if not len(texts):
        return pa.null()
    for form, types in _FORMS:
        if _all(texts, form):
            for type_ in types(texts):
                try:
                    text_column(texts, type_, "")
                    return type_
                except Misfit:
                    continue
    return pa.string()


def _all(texts: pa.Array, form: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(texts, form)).as_py())


def _wholes(texts: pa.Array) -> list[pa.DataType]:
    return [pa.int64(), pa.decimal128(MAX_PRECISION, 0)]


def _numbers(texts: pa.Array) -> list[pa.DataType]:
    if not pc.any(pc.match_substring_regex(texts, "[0-9]")).as_py():
        return []  # only words such as NaN
    return [pa.float64(), *(_decimals(texts) if _all(texts, "^-?[0-9.]+$") else [])]


def _decimals(texts: pa.Array) -> list[pa.DataType]:
    scale = max(len(text.partition(".")[2]) for text in texts.to_pylist())
    return [pa.decimal128(MAX_PRECISION, scale)] if scale <= MAX_PRECISION else []


def _unit(texts: pa.Array) -> str:
    return "ns" if pc.any(pc.match_substring_regex(texts, _NANOSECONDS)).as_py() else "us"


_FORMS: tuple[tuple[str, Callable[[pa.Array], list[pa.DataType]]], ...] = (
    (TRUTH_FORM, lambda _: [pa.bool_()]),
    (WHOLE_FORM, _wholes),
    (NUMBER_FORM, _numbers),
    (f"^{_DAY}$", lambda _: [pa.date32()]),
    (f"^{_DAY}[T ]{_CLOCK}{_ZONE}$", lambda texts: [pa.timestamp(_unit(texts), "UTC")]),
    (f"^{_DAY}([T ]{_CLOCK})?$", lambda texts: [pa.timestamp(_unit(texts))]),
    (f"^{_CLOCK}$", lambda texts: [pa.time64(_unit(texts))]),
)


def value_type(
    values: Sequence[Any], path: str, rows: Sequence[int], depth: int = 0
) -> pa.DataType:
    """The type of values of JSON; `rows` as in `column_of`.

    Raises:
        Misfit: no type holds them.
    """
    kinds = {type(value): row for row, value in zip(rows, values) if value is not None}
    if depth > _DEEPEST:
        raise Misfit(rows[0], path, ..., None, f"it is nested more than {_DEEPEST} levels deep")
    if not kinds:
        return pa.null()
    present = [(row, value) for row, value in zip(rows, values) if value is not None]
    if set(kinds) == {bool}:
        return pa.bool_()
    if set(kinds) == {dict}:
        names = dict.fromkeys(name for _, value in present for name in value)
        places = [row for row, _ in present]
        return pa.struct(
            [
                (
                    name,
                    value_type(
                        [value.get(name) for _, value in present],
                        f"{path}.{name}" if path else name,
                        places,
                        depth + 1,
                    ),
                )
                for name in names
            ]
        )
    if set(kinds) == {list}:
        elements = [(row, one) for row, value in present for one in value]
        places, below = [row for row, _ in elements], [one for _, one in elements]
        return pa.list_(value_type(below, f"{path}[]", places, depth + 1))
    texts = [value for _, value in present if isinstance(value, str)]
    if set(kinds) == {str}:
        try:
            found = text_type(pa.array(texts, pa.string()))
        except UnicodeError:
            return pa.string()  # reading them names the value
        return found if pa.types.is_temporal(found) else pa.string()
    if set(kinds) <= {int, float, Decimal, str} and set(texts) <= set(SPECIAL):
        for type_ in _types_of(present):
            try:
                column_of([value for _, value in present], type_, path, [row for row, _ in present])
                return type_
            except Misfit:
                continue
        row, value = present[0]
        raise Misfit(row, path, value, None, "no type holds all its numbers exactly")
    first = type(present[0][1])
    row, value = next((row, value) for row, value in present if type(value) is not first)
    raise Misfit(row, path, value, None, f"the first value, {present[0][1]!r}, is another kind")


def _types_of(present: Sequence[tuple[int, Any]]) -> list[pa.DataType]:
    numbers = [value for _, value in present if not isinstance(value, str)]
    if all(type(value) is int for value in numbers) and len(numbers) == len(present):
        return [pa.int64(), pa.decimal128(MAX_PRECISION, 0)]
    exact = [Decimal(repr(value) if type(value) is float else value) for value in numbers]
    # A bare NaN or Infinity has no digits.
    exponents = [int(one.as_tuple().exponent) for one in exact if one.is_finite()]
    scale = -min([0, *exponents])
    wide = [pa.decimal128(MAX_PRECISION, scale)] if scale <= MAX_PRECISION else []
    return [pa.float64(), *wide]

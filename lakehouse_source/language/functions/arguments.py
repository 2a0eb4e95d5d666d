"""Pure. The arguments of functions, in the types that Spark casts them to by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import tzinfo
from typing import Protocol

import pyarrow as pa

from lakehouse_source.language.functions.rows import Bound, Kernel, strict
from lakehouse_source.language.tree.failures import Failure
from lakehouse_source.language.tree.nodes import Call, Node, spark_name
from lakehouse_source.language.tree.types import INSTANT, INTEGERS, WALL, is_atomic, is_number

INT, STRING, DATE = pa.int32(), pa.string(), pa.date32()


class Context(Protocol):
    """What functions need of the binder."""

    zone: tzinfo
    now_us: int

    def bind(self, node: Node) -> Bound: ...

    def cast(self, value: Bound, to: pa.DataType) -> Bound: ...

    def alike(self, values: Sequence[Bound]) -> list[Bound]: ...


def text(context: Context, value: Bound) -> Bound:
    if value.type == pa.binary() or not (is_atomic(value.type) or pa.types.is_null(value.type)):
        raise Failure(f"{spark_name(value.type)} stands where text should")
    return context.cast(value, STRING)


def integer(context: Context, value: Bound) -> Bound:
    if value.type not in INTEGERS[:3] and not pa.types.is_null(value.type):
        raise Failure(f"{spark_name(value.type)} stands where an INT should: cast it")
    return context.cast(value, INT)


def number(context: Context, value: Bound) -> Bound:
    if not is_number(value.type):
        raise Failure(f"{spark_name(value.type)} stands where a number should: cast it")
    return value


def double(context: Context, value: Bound) -> Bound:
    if not pa.types.is_null(value.type):
        number(context, value)
    return context.cast(value, pa.float64())


def date(context: Context, value: Bound) -> Bound:
    if value.type not in (DATE, INSTANT, WALL) and not pa.types.is_null(value.type):
        raise Failure(f"{spark_name(value.type)} stands where a date should: cast it")
    return context.cast(value, DATE)


def only_date(context: Context, value: Bound) -> Bound:
    if value.type != DATE and not pa.types.is_null(value.type):
        raise Failure(f"{spark_name(value.type)} stands where a date should: cast it")
    return context.cast(value, DATE)


Argument = Callable[[Context, Bound], Bound]
Builder = Callable[[Context, Call, list[Bound]], Bound]


def function(
    kernel: Kernel, type_: pa.DataType, *converts: Argument, can_fail: bool = False
) -> Builder:
    """A function of arguments that are converted, NULL where one is NULL."""

    def build(context: Context, call: Call, given: list[Bound]) -> Bound:
        values = [convert(context, value) for convert, value in zip(converts, given)]
        return strict(call, type_, values, kernel, can_fail=can_fail)

    return build

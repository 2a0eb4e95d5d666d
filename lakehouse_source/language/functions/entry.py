"""Pure. The description of a function: its arguments, types, NULL, and what a comparison implies.

Spark's documentation defines each function: docs/latest/api/sql/index.html.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from lakehouse_source.language.functions.order import Order
from lakehouse_source.language.functions.rows import Bound, Kernel, each, strict
from lakehouse_source.language.tree.failures import Failure
from lakehouse_source.language.tree.nodes import Call, Literal, Node
from lakehouse_source.language.tree.types import (
    INSTANT,
    INTEGERS,
    WALL,
    is_atomic,
    is_moment,
    is_number,
    spark_name,
)

NULL_IN = "NULL where an argument is NULL"
NEVER = "never NULL"


class Context(Protocol):
    """The part of the binder that functions need."""

    zone: tzinfo
    now_us: int

    def bind(self, node: Node) -> Bound: ...

    def cast(self, value: Bound, to: pa.DataType) -> Bound: ...

    def alike(self, values: Sequence[Bound]) -> list[Bound]: ...


Builder = Callable[[Context, Call, list[Bound]], Bound]


@dataclass(frozen=True, slots=True)
class Function:
    """A function of expressions.

    It takes from `least` to `most` arguments; None: any number. `build` finds the types and makes
    the bound node. `takes` and `result` are the types, or describe them. `order` tells which
    argument the result follows, so that a comparison of it is a range of that argument. `nulls` is
    the rule for NULL. `prunes` says what else a comparison implies.
    """

    least: int
    most: int | None
    build: Builder
    takes: str
    result: str
    order: Order | None = None
    nulls: str = NULL_IN
    prunes: str = ""

    @property
    def is_strict(self) -> bool:
        """Tell whether the result is NULL exactly if an argument is NULL."""
        return self.nulls == NULL_IN


class Argument(NamedTuple):
    """An argument: its text in lists, its types, and the type to which Spark casts it.

    `to` None: there is no cast.
    """

    name: str
    what: str
    takes: Callable[[pa.DataType], bool]
    to: pa.DataType | None

    def of(self, context: Context, value: Bound) -> Bound:
        """A value as the argument.

        Raises:
            Failure: Spark does not cast the value's type implicitly.
        """
        if not self.takes(value.type) and not (
            self.to is not None and pa.types.is_null(value.type)
        ):
            raise Failure(f"{spark_name(value.type)} stands where {self.what} should: cast it")
        return value if self.to is None else context.cast(value, self.to)


def _is_text(type_: pa.DataType) -> bool:
    return is_atomic(type_) and type_ != pa.binary()


TEXT = Argument("STRING", "text", _is_text, pa.string())
INT = Argument("INT", "an INT", lambda type_: type_ in INTEGERS[:3], pa.int32())
NUMBER = Argument("a number", "a number", is_number, None)
DOUBLE = Argument("DOUBLE", "a number", is_number, pa.float64())
MOMENT = Argument("DATE or TIMESTAMP", "a date", is_moment, pa.date32())
DATE = Argument("DATE", "a date", lambda type_: type_ == pa.date32(), pa.date32())
CLOCK = Argument("TIMESTAMP", "a timestamp", lambda type_: type_ in (INSTANT, WALL), None)


def function(
    kernel: Kernel,
    result: pa.DataType,
    *takes: Argument,
    defaults: Sequence[Any] = (),
    can_fail: bool = False,
    order: Order | None = None,
    prunes: str = "",
) -> Function:
    """A function that is NULL if an argument is. `defaults` are for omitted last arguments."""

    def build(context: Context, call: Call, given: list[Bound]) -> Bound:
        left_out = zip(takes[len(given) :], defaults[len(given) - len(takes) :])
        given = [*given, *(context.bind(Literal(value, one.to)) for one, value in left_out)]
        values = [one.of(context, value) for one, value in zip(takes, given)]
        return strict(call, result, values, kernel, can_fail=can_fail)

    least, listed = len(takes) - len(defaults), ", ".join(one.name for one in takes)
    return Function(
        least, len(takes), build, listed, spark_name(result), order=order, prunes=prunes
    )


def by_row(one: Callable[..., Any], result: pa.DataType, *takes: Argument, **said: Any) -> Function:
    """The same for a Python function that is called for each row without NULL."""
    return function(each(one, result), result, *takes, **said)

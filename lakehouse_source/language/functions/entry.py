"""Pure. What is said of a function: its arguments, types, NULL, and what a comparison implies.

What a function means is what Spark says of that name: docs/latest/api/sql/index.html.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakehouse_source.language.functions.arguments import Builder
from lakehouse_source.language.functions.order import Order

NULL_IN = "NULL where an argument is NULL"
NEVER = "never NULL"


@dataclass(frozen=True, slots=True)
class Function:
    """A function of expressions.

    It takes from `least` to `most` arguments; None: any number. `build` gives types and makes it.
    `takes` and `result` are the types, or how they are found. `order` tells which argument the
    result follows, so that a comparison of it is a range of that argument. `nulls` is the rule for
    NULL. `prunes` says what else a comparison implies.
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
        """Tell whether the result is NULL where an argument is NULL, and nowhere else."""
        return self.nulls == NULL_IN

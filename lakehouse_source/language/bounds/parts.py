"""Pure. What is known of the parts of an SQL condition: constants, NULL, and failures."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from lakehouse_source.errors import InvalidExpressionError, InvalidPredicateError
from lakehouse_source.language.bounds.bound import (
    FALSE,
    TRUE,
    BoundNode,
    conjunction,
    disjunction,
)
from lakehouse_source.language.bounds.columns import Columns
from lakehouse_source.language.bounds.comparisons import Comparisons, NoComparison
from lakehouse_source.language.bounds.ranges import Session
from lakehouse_source.language.conditions.build import is_null, negated
from lakehouse_source.language.functions import order
from lakehouse_source.language.functions.rows import Bound, Rows, listed
from lakehouse_source.language.functions.table import FUNCTIONS
from lakehouse_source.language.rows.bind import Binder
from lakehouse_source.language.rows.scope import Scope
from lakehouse_source.language.tree.nodes import (
    COMPARISONS,
    Call,
    Case,
    Cast,
    Interval,
    Literal,
    Name,
    Node,
    below,
    names,
)
from lakehouse_source.language.tree.types import is_float

# Only the first argument is evaluated on every row; the others where a row needs them.
_LAZY = frozenset({"and", "or", "coalesce", "nvl", "ifnull", "nvl2"})
# Operators whose result is NULL exactly if an operand is NULL.
_STRICT = frozenset({*COMPARISONS, *order.OPERATORS, "%", "not"} - {"<=>"})
# NULL if an argument is NULL, and in other cases too.
_NULL_PASSES = frozenset({"trunc", "date_trunc"})


class Parts:
    """The parts of conditions over one schema."""

    def __init__(self, scope: Scope, comparisons: Comparisons, columns: Columns) -> None:
        self._scope, self._comparisons, self._columns = scope, comparisons, columns
        self._binder = Binder(scope)
        self._session = Session(scope.timezone, self._binder.zone, scope.now)

    def without_value(self, node: Node) -> str | None:
        """Why a part without columns, as `CAST('x' AS INT)`, fails on each row that evaluates it.

        Parts that a row may not evaluate are left alone.
        """
        if isinstance(node, (Literal, Name, Interval, Case)):
            return None
        if isinstance(node, Call) and node.name in _LAZY:
            return self.without_value(node.arguments[0])
        if not names(node):
            return self._failure(node)
        if isinstance(node, Call) and node.name in (*COMPARISONS, "in"):
            bound = [self._binder.bind(one) for one in node.arguments]
            type_ = (
                self._binder.alike(bound)[0].type
                if node.name == "in"
                else self._binder.comparison_type(*bound)
            )
            for one in node.arguments:
                failure = None if names(one) else self._failure(Cast(one, type_))
                if failure is not None:
                    return failure
        parts = (self.without_value(part) for part in below(node))
        return next((part for part in parts if part is not None), None)

    def _failure(self, node: Node) -> str | None:
        try:
            self._binder.bind(node).run(Rows(1, _no_column))
        except InvalidExpressionError as exc:
            return exc.reason
        return None

    def _plain(self, condition: Node) -> BoundNode | None:
        """A condition as tests of columns with constants; None: the condition is something else."""
        try:
            return self._comparisons.test(condition)
        except (NoComparison, InvalidPredicateError):  # it does not compare such values
            return None

    def _is_text(self, node: Node) -> bool:
        return isinstance(node, Name) and self._binder.bind(node).type == pa.string()

    # --- NULL ---

    def _null(self, node: Node) -> BoundNode:
        """A condition that holds wherever `node` is NULL."""
        if isinstance(node, Literal):
            return TRUE if node.value is None else FALSE
        if isinstance(node, Name):
            return self._tested(node, null=True)
        if not self._is_strict(node):
            return TRUE
        return disjunction([self._null(one) for one in below(node)])

    def _present(self, node: Node) -> BoundNode:
        """A condition that holds wherever `node` is not NULL."""
        if isinstance(node, Name):
            return self._tested(node, null=False)
        if isinstance(node, Call) and node.name == "in":
            return self._present(node.arguments[0])
        passes = isinstance(node, Cast) or (isinstance(node, Call) and node.name in _NULL_PASSES)
        if not passes and not self._is_strict(node):
            return TRUE
        return conjunction([self._present(one) for one in below(node)])

    def _tested(self, node: Name, null: bool) -> BoundNode:
        found = self._plain(is_null(node) if null else negated(is_null(node)))
        return TRUE if found is None else found

    def _is_strict(self, node: Node) -> bool:
        """Tell whether a node is NULL exactly where one of its parts is NULL."""
        if isinstance(node, Cast):
            from_ = self._binder.bind(node.value).type
            # NaN and infinity become NULL.
            return not node.safe and not (is_float(from_) and pa.types.is_decimal(node.to))
        if not isinstance(node, Call):
            return False
        known = FUNCTIONS.get(node.name)
        return node.name in _STRICT if known is None else known.is_strict

    # --- constants ---

    def _constant(self, node: Node) -> Any:
        """The value of a node without columns; UNKNOWN: it has no value that can be compared."""
        if isinstance(node, Interval):
            return node
        if names(node):
            return order.UNKNOWN
        try:
            bound: Bound = self._binder.bind(node)
            return listed(bound.run(Rows(1, _no_column)))[0]
        except (InvalidExpressionError, pa.ArrowException):
            return order.UNKNOWN


def _no_column(key: object) -> pa.Array:
    raise AssertionError(f"a constant reads the column {key}")

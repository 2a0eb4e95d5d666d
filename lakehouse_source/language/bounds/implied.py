"""Pure. What an SQL condition says about columns, as a condition that bounds can answer.

There are three cases. An expression equals a condition on columns (`year(day) = 2024` is a range of
`day`), it implies a condition (`year(day) = year(made)`: neither is NULL), or nothing is known, and
only rows can tell. Nothing is guessed: a part that is not understood implies nothing, which keeps
every file.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from lakehouse_source.errors import InvalidExpressionError
from lakehouse_source.language.bounds.bound import (
    NULL,
    TRUE,
    BoundColumns,
    BoundConstant,
    BoundExpression,
    BoundIsNull,
    BoundNode,
    BoundPredicate,
    IfPresent,
    conjunction,
    deciding,
    disjunction,
    negation,
)
from lakehouse_source.language.bounds.ranges import Parts, follow, range_of, with_cast
from lakehouse_source.language.expression import SqlRows
from lakehouse_source.language.functions import FUNCTIONS, entry
from lakehouse_source.language.functions.nested import steps
from lakehouse_source.language.nodes import (
    FLIPPED,
    OPPOSITE,
    Call,
    Case,
    Cast,
    Interval,
    Literal,
    Name,
    Node,
    any_of,
    below,
    compare,
    matches,
    names,
    negated,
    replaced,
    walk,
)
from lakehouse_source.language.types import INTEGERS, spark_type
from lakehouse_source.language.values import Failure, days_of
from lakehouse_source.schema.fields import find_field
from lakehouse_source.schema.ordinal import domain
from lakehouse_source.schema.variant import is_variant

_OPPOSITE = {**OPPOSITE, "isnull": "isnotnull", "isnotnull": "isnull"}
_COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<=>": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_WIDENED = {(one, to) for place, to in enumerate(INTEGERS) for one in INTEGERS[:place]}
# A longer IN list of an expression implies nothing, because each value takes a search.
_MOST_VALUES = 50


@dataclass(frozen=True, slots=True)
class Found:
    """A condition that holds wherever an expression is TRUE; if `exact`, both are equal."""

    condition: BoundNode
    exact: bool


class Implied(Parts):
    """Reads conditions over one schema."""

    @cached_property
    def _leaves(self) -> dict[int, tuple[Node, Found | None]]:
        """What was found of nodes, each of which is kept: `exact` and `when` ask for the same."""
        return {}

    def exact(self, node: Node) -> BoundNode | None:
        """The condition on columns that equals an expression on every row; None: there is none."""
        if isinstance(node, Call) and node.name in ("and", "or", "not"):
            parts = [self.exact(one) for one in node.arguments]
            known = [part for part in parts if part is not None]
            if len(known) < len(parts):
                return None
            if node.name == "not":
                return negation(known[0])
            return conjunction(known) if node.name == "and" else disjunction(known)
        found = self._leaf(node)
        return found.condition if found is not None and found.exact else None

    def when(self, node: Node, truth: bool) -> BoundNode:
        """A condition that holds wherever `node` is `truth`; TRUE: nothing is known."""
        if isinstance(node, Call) and node.name in ("and", "or"):
            parts = [self.when(one, truth) for one in node.arguments]
            if node.name == "and" and truth:
                parts.append(self.together(node.arguments))
            return conjunction(parts) if (node.name == "and") is truth else disjunction(parts)
        if isinstance(node, Call) and node.name == "not":
            return self.when(node.arguments[0], not truth)
        if isinstance(node, Case):
            branches = [
                conjunction([self.when(condition, True), self.when(value, truth)])
                for condition, value in node.branches
            ]
            return disjunction([*branches, self.when(node.otherwise, truth)])
        if truth:
            found = self._leaf(node)
        elif isinstance(node, Call) and node.name in _OPPOSITE:
            found = self._leaf(Call(_OPPOSITE[node.name], node.arguments))
        else:
            exact = self.exact(node)
            found = None if exact is None else Found(negation(exact), True)
        return self._present(node) if found is None else found.condition

    # --- tests ---

    def _leaf(self, node: Node) -> Found | None:
        known = self._leaves.get(id(node))
        if known is None:
            known = self._leaves[id(node)] = node, self._read_leaf(node)
        return known[1]

    def _read_leaf(self, node: Node) -> Found | None:
        try:
            if not names(node):
                return self._constant_truth(node)
            found = self._of_path(node)
            if found is not None:
                return found
            found = self._exactly(self._simplified(node))
            if found is not None:
                return found
            read = _READERS.get(node.name) if isinstance(node, Call) else None
            if read is not None and isinstance(node, Call):
                return read(self, node)
            return self._value(node, "=", Literal(True, pa.bool_()))
        except (InvalidExpressionError, Failure, pa.ArrowException):
            return None

    def _of_path(self, node: Node) -> Found | None:
        """A test of a path into VARIANT, which is cast: true in the type that the value has.

        Where the value is missing, or JSON's null, it is NULL in all types, as the cast is.
        """
        casts = [one for one in walk(node) if isinstance(one, Cast) and _is_path(one.value)]
        paths = [one for one in walk(node) if _is_path(one)]
        same = len(casts) == len(paths) and len({*paths}) == 1
        if not same or any(is_variant(one.to) for one in casts):
            return None
        column, path = below(paths[0])
        assert isinstance(column, Name)
        assert isinstance(path, Literal)
        names_ = tuple(steps(path.value))
        if not all(isinstance(one, str) for one in names_):
            return None
        terms = []
        for typed in self._columns.typed_paths(column, names_):  # type: ignore[arg-type]
            one = replaced(node, paths[0], typed)
            found = self._leaf(one)
            terms.append(self._present(one) if found is None else found.condition)
        if terms and all(isinstance(one, BoundIsNull) for one in terms):
            return Found(conjunction(terms), False)
        # A type in which the test is TRUE for no value adds nothing.
        left = [one for one in terms if not isinstance(one, IfPresent) or one.truth]
        return Found(disjunction(left or terms), False) if terms else None

    def _simplified(self, node: Node) -> Node:
        """The node with literals for its constant arguments, and without needless casts."""
        if not isinstance(node, Call):
            return node
        parts = [self._uncast(one) if names(one) else one for one in node.arguments]
        for place, part in enumerate(parts):
            if not names(part) and not isinstance(part, Literal):
                value = self._constant(part)
                if value is not entry.UNKNOWN and not isinstance(part, Interval):
                    parts[place] = Literal(value, self._binder.bind(part).type)
        return Call(node.name, tuple(parts))

    def _exactly(self, condition: Node) -> Found | None:
        found = self._plain(condition)
        return None if found is None else Found(found, True)

    def _constant_truth(self, node: Node) -> Found | None:
        value = self._constant(node)
        if value is None or isinstance(value, bool):
            return Found(BoundConstant(value), True)
        return None

    def comparison(self, node: Call) -> Found | None:
        op, (left, right) = node.name, node.arguments
        if names(left) and names(right):
            return self._two_columns(op, left, right)
        if names(right):
            left, right, op = right, left, FLIPPED[op]
        found = self._value(left, op, right)
        truth = self._constant(right)
        if found is None and isinstance(truth, bool) and op in ("=", "<=>"):
            return Found(self.when(left, truth), False)  # `(a < 1) <=> TRUE`
        return found

    def is_in(self, node: Call) -> Found | None:
        value, *listed_ = node.arguments
        if any(names(one) for one in listed_):
            return None
        constants = [self._constant(one) for one in listed_]
        if entry.UNKNOWN in constants:
            return None
        bound = self._binder.alike([self._binder.bind(one) for one in node.arguments])[0]
        if len(listed_) > _MOST_VALUES:
            return None
        each = [
            self._leaf(Call("=", (Cast(value, bound.type), one)))
            for one, constant in zip(listed_, constants)
            if constant is not None
        ]
        known = [one for one in each if one is not None]
        if len(known) < len(each):
            return None
        exact = None not in constants and all(one.exact for one in known)
        return Found(disjunction([one.condition for one in known]), exact)

    def null(self, node: Call) -> Found:
        of = self._uncast(node.arguments[0])
        found = self._null(of) if node.name == "isnull" else self._present(of)
        return Found(found, isinstance(of, Name))

    # --- an expression of columns, compared with a constant ---

    def _value(self, node: Node, op: str, other: Node) -> Found | None:
        """`node op other`, where `other` reads no column."""
        node, value = self._uncast(node), self._constant(other)
        if value is entry.UNKNOWN:
            return None
        if value is None:
            return self.null(Call("isnull", (node,))) if op == "<=>" else Found(NULL, False)
        if op == "!=":
            equal = self._value(node, "=", other)
            return Found(negation(equal.condition), True) if equal and equal.exact else None
        if op == "<=>":
            found = self._value(node, "=", other)
            return None if found is None else Found(found.condition, False)
        special = _SPECIAL.get(node.name) if isinstance(node, Call) else None
        if special is not None and isinstance(node, Call):
            return special(self, node, op, other)
        if isinstance(node, Case):
            return self._branches(node, op, other)
        return self._range(node, op, other)

    def _uncast(self, node: Node) -> Node:
        """The node without casts that change no value."""
        while isinstance(node, Cast):
            own = self._binder.bind(node.value).type
            wider = (own, node.to) in _WIDENED
            if own != node.to and not wider:
                break
            node = node.value
        return node

    def _range(self, node: Node, op: str, other: Node) -> Found | None:
        path = follow(node, self._step)
        if path is None:
            return None
        left, right = self._binder.bind(node), self._binder.bind(other)
        cast = entry.of_cast(left.type, self._binder.comparison_type(left, right))
        if cast is None:
            return None
        path = with_cast(path, cast.zoned)
        type_ = spark_type(self._scope.find(path.column).type)
        found = range_of(path, type_, node, op, other, self._session)
        if found is None:
            return None
        plain = self._exactly(found.condition)
        return None if plain is None else Found(plain.condition, found.exact)

    def _step(self, node: Node) -> tuple[Node, int, bool] | None:
        if isinstance(node, Cast):
            cast = entry.of_cast(self._binder.bind(node.value).type, node.to)
            return None if cast is None else (node.value, 1, cast.zoned)
        if not isinstance(node, Call):
            return None
        known = FUNCTIONS.get(node.name)
        follows = entry.OPERATORS.get(node.name) if known is None else known.order
        if follows is None:
            return None
        given = entry.Arguments(
            node.arguments,
            [
                pa.null() if isinstance(one, Interval) else self._binder.bind(one).type
                for one in node.arguments
            ],
            [entry.UNKNOWN if names(one) else self._constant(one) for one in node.arguments],
        )
        step = follows(given)
        return None if step is None else (node.arguments[step.argument], step.sign, step.zoned)

    def part(self, node: Call, op: str, other: Node) -> Found | None:
        """The first characters of a column: `left(c, 3) < 'abc'`."""
        column, *places = node.arguments
        known = [self._constant(one) for one in places]
        value = self._constant(other)
        if not self._is_text(column) or not isinstance(value, str) or not isinstance(column, Name):
            return None
        if node.name != "left" and known.pop(0) not in (0, 1):
            return None
        if len(known) != 1 or not isinstance(known[0], int) or known[0] < 1:
            return None
        begin = value[: known[0]]
        below_ = compare(column, "<", begin)
        if len(value) > known[0]:
            equal = compare(column, "<", "")  # FALSE where there is a value
            below_ = any_of((below_, matches("startswith", column, begin)))
        elif len(value) == known[0]:
            equal = matches("startswith", column, begin)
        else:
            equal = compare(column, "=", begin)
        return self._exactly(
            {
                "=": equal,
                "<": below_,
                "<=": any_of((below_, equal)),
                ">=": negated(below_),
                ">": negated(any_of((below_, equal))),
            }[op]
        )

    def joined(self, node: Call, op: str, other: Node) -> Found | None:
        """A text before a column: `concat('a-', c) = 'a-b'`."""
        *before, column = node.arguments
        begin = self._constant(Call("concat", tuple(before)))
        value = self._constant(other)
        if not self._is_text(column) or not isinstance(begin, str) or not isinstance(value, str):
            return None
        assert isinstance(column, Name)
        if value.startswith(begin):
            return self._exactly(compare(column, op, value[len(begin) :]))
        truth = _COMPARED[op](begin.encode(), value.encode())
        return self._exactly(compare(column, ">=" if truth else "<", ""))

    def first_value(self, node: Call, op: str, other: Node) -> Found | None:
        """`coalesce(a, b) op other`."""
        whole, last = self._binder.bind(node).type, len(node.arguments) - 1
        found: list[BoundNode] = []
        gone: list[BoundNode] = []
        exact = True
        for place, given in enumerate(node.arguments):
            one = self._combined(given, whole)
            part = None if one is None else self._leaf(Call(op, (one, other)))
            if one is None or part is None:
                return None
            plain = isinstance(one, Name) if names(one) else self._constant(one) is not None
            exact = exact and part.exact and plain
            present = TRUE if place == last else self._present(one)
            found.append(conjunction([*gone, part.condition, present]))
            gone.append(self._null(one))
        return Found(disjunction(found), exact)

    def _combined(self, node: Node, type_: pa.DataType) -> Node | None:
        """A value in the type for combining it with others; None: the cast may change it."""
        own = self._binder.bind(node).type
        if own == type_ or (own in INTEGERS and type_ in INTEGERS):
            return node
        return None if names(node) else Cast(node, type_)

    def _branches(self, node: Case, op: str, other: Node) -> Found | None:
        whole = self._binder.bind(node).type
        found = []
        for condition, given in (*node.branches, (None, node.otherwise)):
            value = self._combined(given, whole)
            if value is None:
                return None
            part = self._leaf(Call(op, (value, other)))
            if part is None or part.condition != NULL:
                chosen = TRUE if condition is None else self.when(condition, True)
                found.append(conjunction([chosen, TRUE if part is None else part.condition]))
        return Found(disjunction(found), False)

    def chosen(self, node: Call, op: str, other: Node) -> Found | None:
        """`nullif` and `nvl2`, which choose among their arguments."""
        first, *rest = node.arguments
        if node.name == "nullif":
            empty = Literal(None, pa.null())
            case = Case(((Call("=", (first, rest[0])), empty),), first)
        else:
            case = Case(((Call("isnotnull", (first,)), rest[0]),), rest[1])
        return self._branches(case, op, other)

    # --- two columns ---

    def _two_columns(self, op: str, left: Node, right: Node) -> Found | None:
        if not isinstance(left, Name) or not isinstance(right, Name):
            return None
        types = [self._binder.bind(one).type for one in (left, right)]
        if types[0] != types[1] and not all(one in INTEGERS for one in types):
            return None
        mine, theirs = (self._columns.find(one) for one in (left, right))
        a, b = domain(mine.type), domain(theirs.type)
        if not a.ordered or (a.kind, a.scale, a.unit_ns) != (b.kind, b.scale, b.unit_ns):
            return None
        compared = BoundColumns(mine, "=" if op == "<=>" else op, theirs)
        if op == "<=>":
            nulls = conjunction([self._null(left), self._null(right)])
            return Found(disjunction([compared, nulls]), False)
        return Found(compared, False)

    # --- months and quarters of a year ---

    def together(self, terms: tuple[Node, ...]) -> BoundNode:
        """What terms of one AND imply together: `year(e) = 2024 AND month(e) = 1` is a month."""
        found = []
        for term in terms:
            if not isinstance(term, Call) or term.name != "=":
                continue
            for left, right in (term.arguments, term.arguments[::-1]):
                year = self._constant(right) if not names(right) else None
                if not isinstance(year, int) or not 1 <= year <= 9999:
                    continue
                if isinstance(left, Call) and left.name == "year" and names(left):
                    found.append(self._months_of(left.arguments[0], year, terms))
        return conjunction(found)

    def _months_of(self, moment: Node, year: int, terms: tuple[Node, ...]) -> BoundNode:
        kept = set(range(1, 13))
        for term in terms:
            for name, months in (("month", 1), ("quarter", 3)):
                call = Call(name, (moment,))
                if names(replaced(term, call, NULL_LITERAL)) or not names(term):
                    continue
                for month in range(1, 13):
                    number = Literal((month - 1) // months + 1, pa.int32())
                    if self._constant(replaced(term, call, number)) in (False, None):
                        kept.discard(month)
        if len(kept) == 12:
            return TRUE
        ranges = []
        for first in sorted(month for month in kept if month - 1 not in kept):
            after = next(month for month in range(first, 14) if month not in kept)
            end = (year, after, 1) if after < 13 else (year + 1, 1, 1)
            sides = [
                self.when(Call(op, (Cast(moment, pa.date32()), _date(day))), True)
                for op, day in ((">=", (year, first, 1)), ("<", end))
            ]
            ranges.append(conjunction(sides))
        return disjunction(ranges)


NULL_LITERAL = Literal(None, pa.null())


def _date(day: tuple[int, int, int]) -> Literal:
    return Literal(days_of(*day), pa.date32())


def paths_read(predicate: BoundPredicate) -> dict[str, frozenset[tuple[str, ...]]]:
    """The columns of VARIANT of which a condition reads rows at some paths alone, by name."""
    names_, paths = Counter[str](), list[tuple[str, tuple[str, ...]]]()
    for term in deciding(predicate.root):
        if not isinstance(term, BoundExpression) or not isinstance(term.expression, SqlRows):
            names_.update({column.path[0] for column in BoundPredicate(term).leaves})
            continue
        fields = term.expression.fields
        for node in walk(term.expression.node):
            if isinstance(node, Name):
                parts = [part for name in node.parts for part in (name, *name.split("."))]
                found = {one.name for part in parts if (one := find_field(part, fields))}
                names_.update(found)
            elif _is_path(node):
                column, path = below(node)
                assert isinstance(column, Name)
                assert isinstance(path, Literal)
                field, way = find_field(column.parts[0], fields), steps(path.value)
                is_plain = len(column.parts) == 1 and all(isinstance(step, str) for step in way)
                if field is not None and is_plain:
                    paths.append((field.name, tuple(map(str, way))))
    read = Counter(name for name, _ in paths)
    return {
        name: frozenset(path for one, path in paths if one == name)
        for name, count in read.items()
        if count == names_[name]
    }


def _is_path(node: Node) -> bool:
    return (
        isinstance(node, Call)
        and node.name in ("variant_get", "try_variant_get")
        and len(node.arguments) == 2
        and isinstance(node.arguments[0], Name)
        and isinstance(node.arguments[1], Literal)
        and isinstance(node.arguments[1].value, str)
    )


_READERS: dict[str, Callable[[Implied, Call], Found | None]] = {
    **dict.fromkeys(_COMPARED, Implied.comparison),
    **dict.fromkeys(("isnull", "isnotnull"), Implied.null),
    "in": Implied.is_in,
}
_SPECIAL: dict[str, Callable[[Implied, Call, str, Node], Found | None]] = {
    **dict.fromkeys(("substring", "substr", "left"), Implied.part),
    **dict.fromkeys(("coalesce", "nvl", "ifnull"), Implied.first_value),
    **dict.fromkeys(("nullif", "nvl2"), Implied.chosen),
    "concat": Implied.joined,
}

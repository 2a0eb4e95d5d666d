"""Pure. A condition in any of its spellings, bound to a schema, and what of it can prune."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.errors import InvalidExpressionError, InvalidPredicateError
from lakehouse_source.language import nodes
from lakehouse_source.language.bounds.arrow_conditions import ArrowConditions
from lakehouse_source.language.bounds.bound import (
    TRUE,
    BoundAnd,
    BoundColumns,
    BoundExpression,
    BoundJoined,
    BoundNode,
    BoundNot,
    BoundPredicate,
    Meaning,
    conjunction,
    disjunction,
    negation,
    parts,
)
from lakehouse_source.language.bounds.comparisons import (
    Columns,
    Comparisons,
    NoComparison,
    missing_columns,
    with_paths,
)
from lakehouse_source.language.bounds.implied import Implied
from lakehouse_source.language.expression import (
    Expression,
    SqlRows,
    at_one_time,
    require_condition,
    scope_of,
)
from lakehouse_source.language.nodes import (
    COMPARISONS,
    NODES,
    Arrow,
    Call,
    Hint,
    Literal,
    Name,
    Node,
    Value,
    all_of,
    any_of,
    constant,
    names,
    walk,
)
from lakehouse_source.language.parse import read, refused_part
from lakehouse_source.language.values import literal, parse_zone

# --- Conditions given as `(column, op, value)` triples.


Builder = Callable[[Name, Any], Node]


def _compare(op: str) -> Builder:
    return lambda column, value: nodes.compare(column, op, literal(value))


def _text(form: str) -> Builder:
    return lambda column, value: nodes.matches(form, column, literal(value))  # type: ignore[arg-type]


def _not(positive: Builder) -> Builder:
    return lambda column, value: nodes.negated(positive(column, value))


def _like(column: Name, value: Any) -> Node:
    return nodes.like(column, literal(value))  # type: ignore[arg-type]


def _in(column: Name, values: Any) -> Node:
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise InvalidPredicateError(reason=f"IN on {column} takes a list of values, not {values!r}")
    return nodes.is_in(column, (literal(value) for value in values))


def _between(column: Name, value: Any) -> Node:
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise InvalidPredicateError(reason=f"BETWEEN on {column} takes two values, not {value!r}")
    ends = zip((">=", "<="), value)
    return nodes.all_of([nodes.compare(column, op, literal(end)) for op, end in ends])


def _null(column: Name, value: Any) -> Node:
    if value is not None:
        raise InvalidPredicateError(reason=f"IS NULL on {column} takes no value, not {value!r}")
    return nodes.is_null(column)


_BUILDERS: dict[str, Builder] = {
    **{op: _compare(op) for op in COMPARISONS},
    "==": _compare("="),
    "<>": _compare("!="),
    "in": _in,
    "not in": _not(_in),
    "between": _between,
    "not between": _not(_between),
    "is null": _null,
    "is not null": _not(_null),
    "is": _compare("<=>"),
    "is not": _not(_compare("<=>")),
    "like": _like,
    "not like": _not(_like),
    "startswith": _text("startswith"),
    "starts with": _text("startswith"),
    "endswith": _text("endswith"),
    "ends with": _text("endswith"),
    "contains": _text("contains"),
}


def _operator(text: Any) -> str | None:
    if not isinstance(text, str):
        return None
    return " ".join(text.lower().replace("_", " ").split())


def is_triple(value: Any) -> bool:
    """Tell a `(column, op, value)` triple from a list of conditions.

    A triple with a misspelt operator is a triple too, so that the error names the
    operator.
    """
    if not isinstance(value, (list, tuple)) or len(value) not in (2, 3):
        return False
    column, op = value[0], value[1]
    if _operator(op) in _BUILDERS:
        return isinstance(column, (str, Name)) or _is_path(column)
    # A list of texts is a list of SQL conditions, and so is a list that begins with a triple.
    texts = isinstance(value, list) and all(isinstance(part, str) for part in value)
    path = _is_path(column) and not is_triple(column)
    return isinstance(op, str) and not texts and (isinstance(column, (str, Name)) or path)


def _is_path(column: Any) -> bool:
    return (
        isinstance(column, (list, tuple))
        and bool(column)
        and all(isinstance(part, str) for part in column)
    )


def from_triple(triple: Any) -> Node:
    column = Name.of(triple[0])
    op = _operator(triple[1])
    build = _BUILDERS.get(op or "")
    if build is None or (len(triple) == 2 and op not in ("is null", "is not null")):
        raise InvalidPredicateError(
            reason=f"{triple!r} is not a (column, op, value) triple; operators: "
            + ", ".join(_BUILDERS)
        )
    return build(column, triple[2] if len(triple) == 3 else None)


# --- Binds conditions to a schema: as tests of columns if possible, else for evaluation on rows.
#
# A conjunct of SQL that tests columns with constants becomes those tests. The evaluator of rows
# decides any other conjunct, which also keeps what it implies about columns.


def bind(node: Node, schema: pa.Schema, zone: str = "UTC") -> BoundPredicate:
    """The condition over a schema with field ids.

    `zone` is the time zone of dates and wall clock times that are compared with
    instants.

    Raises:
        InvalidPredicateError: a column is missing, cannot be compared, or a
            literal does not fit its type.
    """
    try:
        binder = _Binder(schema, zone)
        root = binder.whole(node)
        return BoundPredicate(root, tuple(binder.meanings))
    except RecursionError:
        raise InvalidPredicateError(reason="it is nested too deeply") from None


class _Binder:
    def __init__(self, schema: pa.Schema, zone: str) -> None:
        self._schema, self._zone = schema, zone
        self._columns = Columns(schema)
        try:
            self._comparisons = Comparisons(self._columns, parse_zone(zone))
        except ValueError as exc:
            raise InvalidPredicateError(reason=str(exc)) from exc
        self.meanings: list[Meaning] = []

    def whole(self, node: Node) -> BoundNode:
        """The root of a condition. SQL conjuncts may imply more together than alone."""
        if not isinstance(node, Call) or node.name != "and":
            return self._bind(node)
        terms, roots = list[BoundNode](), list[Node]()
        for one in node.arguments:
            before = len(self.meanings)
            terms.append(self._bind(one))
            if len(self.meanings) > before and is_sql(one):
                roots.append(one)
        if len(roots) > 1:
            self._together(terms, roots)
        return conjunction(terms)

    def _bind(self, node: Node) -> BoundNode:
        if isinstance(node, Arrow):
            given = self._schema, self._zone, self._columns, self._comparisons
            return ArrowConditions(*given).bind(node.expression)
        if isinstance(node, Hint):
            return self._hint(node)
        if not is_sql(node):
            if isinstance(node, Call) and node.name in ("and", "or", "not"):
                terms = [self._bind(one) for one in node.arguments]
                if node.name == "not":
                    return negation(terms[0])
                return conjunction(terms) if node.name == "and" else disjunction(terms)
            try:
                return self._comparisons.test(node)
            except NoComparison:
                raise InvalidPredicateError(reason=f"{node} is not a condition") from None
        try:
            return self._comparisons.test(node)
        except NoComparison:
            return self._sql(node)
        except InvalidPredicateError as error:
            if missing_columns(node, self._schema):
                raise
            try:  # Spark casts values that do not compare directly
                return self._sql(node)
            except InvalidPredicateError:
                raise error from None

    # --- what only prunes ---

    def _hint(self, node: Hint) -> BoundNode:
        try:
            binder = _Binder(self._schema, node.zone)
            return binder._of_columns(binder.whole(node.condition))
        except (InvalidPredicateError, InvalidExpressionError, ValueError, RecursionError):
            return TRUE

    def _of_columns(self, bound: BoundNode) -> BoundNode:
        """What a condition says about columns, in place of the parts that rows decide."""
        if isinstance(bound, BoundJoined):
            terms = [self._of_columns(term) for term in bound.terms]
            return conjunction(terms) if isinstance(bound, BoundAnd) else disjunction(terms)
        if isinstance(bound, BoundExpression):
            implied = self._of_columns(bound.implied)
            if not any(self._columns.is_path(part) for part in parts(implied)):
                return implied
            # Rows have no paths of VARIANT as columns.
            rows = SqlRows(Literal(True, pa.bool_()), str(bound.expression), pa.schema([]), "UTC")
            return replace(bound, expression=rows, columns=(), implied=implied)
        if isinstance(bound, BoundColumns):  # rows decide it where it is a condition of its own
            return self._sql(Call(bound.op, (Name(bound.left.path), Name(bound.right.path))))
        if isinstance(bound, BoundNot) and isinstance(bound.term, (BoundColumns, BoundExpression)):
            term = bound.term
            return negation(self._of_columns(term)) if isinstance(term, BoundColumns) else TRUE
        return bound

    # --- what rows decide ---

    def _sql(self, node: Node) -> BoundNode:
        text = str(node)
        columns = [self._columns.find(name) for name in names(node)]
        top = dict.fromkeys(column.path[0] for column in columns)
        fields = pa.schema([self._schema.field(name) for name in top])
        scope = scope_of(fields, self._zone)
        try:
            root = at_one_time(node, scope)
            require_condition(Expression(root, text).bind(scope))
        except InvalidExpressionError as exc:
            raise InvalidPredicateError(reason=exc.reason, text=text) from exc
        reader = Implied(scope_of(with_paths(fields), self._zone), self._comparisons, self._columns)
        failing = reader.without_value(root)
        if failing is not None:
            raise InvalidPredicateError(reason=failing, text=text)
        exact = reader.exact(root)
        if exact is not None:
            self.meanings.append(Meaning(text, exact, True))
            return exact
        found = reader.when(root, True)
        self.meanings.append(Meaning(text, found, False))
        above = tuple(self._columns.find(Name((name,))) for name in top)
        rows = SqlRows(root, text, fields, self._zone)
        return BoundExpression(rows, above, found, (text,) if found == TRUE else ())

    def _together(self, terms: list[BoundNode], roots: list[Node]) -> None:
        """Adds what SQL conjuncts imply together to a conjunct that rows decide."""
        place = next((at for at, one in enumerate(terms) if isinstance(one, BoundExpression)), None)
        if place is None:
            return
        scope = scope_of(with_paths(self._schema), self._zone)
        reader = Implied(scope, self._comparisons, self._columns)
        found = reader.together(tuple(roots))
        if found != TRUE:
            rows = terms[place]
            assert isinstance(rows, BoundExpression)
            terms[place] = replace(rows, implied=conjunction([rows.implied, found]), unused=())
            text = " AND ".join(f"({one})" for one in roots)
            self.meanings.append(Meaning(text, found, False))


def is_sql(node: Node) -> bool:
    """Tell whether a condition is SQL alone: no part comes from Python or Arrow."""
    return not any(
        isinstance(one, Value | Arrow | Hint) or (isinstance(one, Name) and one.dotted)
        for one in walk(node)
    )


@dataclass(frozen=True, slots=True, repr=False)
class PredicateSet:
    """A condition that is not bound to a schema yet. `a & b` is both; `str` is SQL.

    >>> print(lake.PredicateSet.of("month = 3") & lake.PredicateSet.of(("miles", ">", 500)))
    month = 3 AND miles > 500
    """

    root: Node

    @classmethod
    def of(cls, condition: Any) -> PredicateSet:
        """A condition from any of its spellings.

        One condition is SQL text, a `(column, op, value)` triple, a node, a `PredicateSet` or an
        Arrow expression. None matches every row. Lists and tuples mean:

            [condition, condition]        AND
            [[condition, condition],      OR of ANDs, as PyArrow, pandas and Dask
             [condition]]                 read `filters`

        A list that holds both conditions and lists is refused, and so is an empty list
        among alternatives. A column is text (dotted for a nested one) or a tuple of
        names.

        Raises:
            InvalidPredicateError: the condition is none of these, or cannot be read.

        >>> either = [[("month", "=", 3), ("miles", ">", 500)], [("carrier", "=", "UA")]]
        >>> print(lake.PredicateSet.of(either))
        month = 3 AND miles > 500 OR carrier = 'UA'
        """
        return cls(_node(condition, _parse))

    @classmethod
    def of_change(cls, condition: Any) -> PredicateSet:
        """The same as `of`, for rows that are to be changed.

        A list that a program filled with no condition means every row to `of`. Here it is refused:
        every row would be deleted or replaced.

        Raises:
            InvalidPredicateError: as in `of`, or the list is empty.
        """
        if isinstance(condition, (list, tuple)) and not condition:
            raise InvalidPredicateError(
                reason=f"{condition!r} is empty, and would change every row: give None for that"
            )
        return cls.of(condition)

    def bind(self, schema: pa.Schema, timezone: str = "UTC") -> BoundPredicate:
        """The condition over a dataset's schema, field ids included.

        `timezone` (an IANA name or an offset) is the time zone of dates and wall clock
        times that are compared with instants.

        Raises:
            InvalidPredicateError: a column is missing or cannot be compared, or
                a literal does not fit its type.
        """
        return bind(self.root, schema, timezone)

    def __and__(self, other: PredicateSet) -> PredicateSet:
        return PredicateSet(
            all_of([root for root in (self.root, other.root) if root != constant(True)])
        )

    def __str__(self) -> str:
        return str(self.root)

    def __repr__(self) -> str:
        return f"PredicateSet({str(self)!r})"


def _node(condition: Any, parse: Callable[[str], Node]) -> Node:
    """A condition in any of its spellings as one node; `parse` reads SQL text."""
    if isinstance(condition, PredicateSet):
        return condition.root
    if condition is None:
        return constant(True)
    if isinstance(condition, str):
        return parse(condition)
    if isinstance(condition, NODES):
        return condition
    if isinstance(condition, pc.Expression):
        return Arrow(condition)
    if is_triple(condition):
        return from_triple(condition)
    if isinstance(condition, (list, tuple)):
        groups = [_is_group(term) for term in condition]
        if not any(groups):
            return all_of([_node(term, parse) for term in condition])
        if all(groups) and all(condition):
            return any_of([_alternative(group, parse) for group in condition])
        raise InvalidPredicateError(
            reason=f"{condition!r} is ambiguous: a list holds conditions, all of which must hold, "
            "or non-empty lists of conditions, one of which must hold, and not both"
        )
    raise InvalidPredicateError(
        reason=f"type {type(condition).__name__} is not a condition: give SQL text, a list of "
        "(column, op, value) triples, an Arrow expression or a PredicateSet"
    )


def _is_group(term: Any) -> bool:
    return isinstance(term, (list, tuple)) and not is_triple(term)


def _alternative(group: Any, parse: Callable[[str], Node]) -> Node:
    nested = next((term for term in group if _is_group(term)), None)
    if nested is not None:
        raise InvalidPredicateError(
            reason=f"{nested!r} is nested too deeply: a list of lists is an OR of ANDs, and its "
            "inner lists hold conditions"
        )
    return all_of([_node(term, parse) for term in group])


def _parse(text: str) -> Node:
    # Programs use the same text again and again, and nodes are immutable.
    return _read_before(text) if len(text) <= _LONGEST_KEPT_TEXT else _read_whole(text)


def _read_whole(text: str) -> Node:
    node = read(text)
    refused = refused_part(node)
    if refused is not None:
        raise InvalidPredicateError(reason=refused.reason, text=text, position=refused.position)
    return node


_LONGEST_KEPT_TEXT = 10_000
_read_before = lru_cache(maxsize=256)(_read_whole)


# --- conditions that only prune ---------------------------------------------


@dataclass(frozen=True, slots=True)
class NotUsed:
    """A conjunct of a condition that pruning left out, and why."""

    condition: str
    reason: str


@dataclass(frozen=True, slots=True)
class PruningConditions:
    """The conjuncts that prune, with their texts, and those that were left out."""

    used: tuple[tuple[str, BoundPredicate], ...]
    not_used: tuple[NotUsed, ...]

    @property
    def together(self) -> BoundPredicate:
        """All used conjuncts as one condition."""
        return BoundPredicate(conjunction([bound.root for _, bound in self.used]))


def for_pruning(
    condition: Any, schema: pa.Schema, unreadable: Collection[str] = ()
) -> PruningConditions:
    """The conjuncts of a condition that can be bound to a schema.

    For callers that only prune and do not filter rows: conjuncts that are left out prune nothing.
    `unreadable` names columns that exist but are not in the schema.

    Raises:
        InvalidPredicateError: this is not a condition, or names a column that does not exist.
    """
    left_out: list[NotUsed] = []

    used = []
    for conjunct in _conjuncts(_node(condition, read)):
        refused = refused_part(conjunct)
        if refused is not None:
            left_out.append(NotUsed(str(conjunct), refused.reason))
            continue
        try:
            bound = bind(conjunct, schema)
        except InvalidPredicateError as exc:
            if not missing_columns(conjunct, schema) <= set(unreadable):
                raise
            left_out.append(NotUsed(str(conjunct), exc.reason))
            continue
        left_out += [NotUsed(text, "only rows can tell") for text in bound.unused]
        used.append((str(conjunct), bound))
    return PruningConditions(tuple(used), tuple(left_out))


def _conjuncts(root: Node) -> Sequence[Node]:
    return root.arguments if isinstance(root, Call) and root.name == "and" else (root,)

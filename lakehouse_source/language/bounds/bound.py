"""Pure. Conditions bound to a schema: columns by id, literals as ordinals, normalised.

Every leaf names one column. NOT stands only before a leaf whose opposite is not a leaf. A literal
is always a value of its column: a comparison with any other literal (`tiny = 300`) has become an
`IfPresent`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.language.expression import SqlRows
from lakehouse_source.language.functions import text
from lakehouse_source.language.nodes import OPPOSITE, render_name
from lakehouse_source.language.values import Timestamp, render
from lakehouse_source.model import Ordinal
from lakehouse_source.schema.defaults import initial_ordinal
from lakehouse_source.schema.ordinal import domain, from_ordinal
from lakehouse_source.schema.texts import date_text


@dataclass(frozen=True, slots=True)
class BoundColumn:
    """A column of a schema, names as the schema spells them.

    `kind` is the kind of its `ordinal.Domain`, or "nested" for a struct, list or map.
    A nested column has no statistics, and only IS NULL applies to it. `default` is the
    value of rows in files that lack the column, None: NULL (`schema/defaults`).
    """

    id: int
    path: tuple[str, ...]
    type: pa.DataType
    kind: str
    default: Ordinal | None = None

    @property
    def is_float(self) -> bool:
        """Tell whether NaN may occur in the column."""
        return self.kind == "float"

    @classmethod
    def of(cls, id: int, path: tuple[str, ...], field: pa.Field) -> BoundColumn:
        """The column of a field with an id."""
        type_ = field.type
        kind = "nested" if pa.types.is_nested(type_) else domain(type_).kind
        return cls(id, path, type_, kind, initial_ordinal(field))


@dataclass(frozen=True, slots=True)
class BoundCompare:
    """`column op ordinal`, op one of = != < <= > >= <=>.

    With a NaN ordinal only `=`, `!=`, `<` and `<=>` occur.
    """

    column: BoundColumn
    op: str
    value: Ordinal


@dataclass(frozen=True, slots=True)
class BoundIn:
    """`column IN (values)`: ascending, distinct, without NaN; NaN and NULL are flags."""

    column: BoundColumn
    values: tuple[Ordinal, ...]
    has_nan: bool
    has_null: bool


@dataclass(frozen=True, slots=True)
class BoundIsNull:
    """`column IS NULL`."""

    column: BoundColumn


@dataclass(frozen=True, slots=True)
class BoundText:
    """`column` starts with, ends with or contains `text`; `form` is prefix, suffix or contains."""

    column: BoundColumn
    form: str
    text: bytes


@dataclass(frozen=True, slots=True)
class BoundLike:
    """The whole of `column` matches a pattern, taken apart by `functions/text.py`."""

    column: BoundColumn
    pieces: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class IfPresent:
    """`truth` where the column has a value, NULL where it is null."""

    column: BoundColumn
    truth: bool


@dataclass(frozen=True, slots=True)
class BoundColumns:
    """`left op right` of two columns whose ordinals compare. Occurs only in implied conditions."""

    left: BoundColumn
    op: str
    right: BoundColumn


@dataclass(frozen=True, slots=True, eq=False)
class BoundExpression:
    """An expression over the top-level columns `columns`, which is evaluated on rows.

    Arrow evaluates an Arrow expression, plake's evaluator an SQL expression. `implied` is TRUE on
    every row where the expression is true, and prunes in its place. `unused` are the conjuncts, as
    text, that `implied` does not cover.
    """

    expression: pc.Expression | SqlRows
    columns: tuple[BoundColumn, ...]
    implied: BoundNode
    unused: tuple[str, ...]

    def __eq__(self, other: object) -> bool:
        # `==` of expressions makes a new expression.
        return (
            isinstance(other, BoundExpression)
            and self.columns == other.columns
            and self.implied == other.implied
            and self.expression.equals(other.expression)
        )

    def __hash__(self) -> int:
        return hash((self.columns, self.implied))


@dataclass(frozen=True, slots=True)
class BoundNot:
    """The opposite of an IN, an IS NULL, a text match, a `<=>` or an expression."""

    term: (
        BoundIn
        | BoundIsNull
        | BoundText
        | BoundLike
        | BoundCompare
        | BoundExpression
        | BoundColumns
    )


@dataclass(frozen=True, slots=True)
class BoundJoined:
    """At least two terms, joined by AND or by OR."""

    terms: tuple[BoundNode, ...]


class BoundAnd(BoundJoined):
    __slots__ = ()


class BoundOr(BoundJoined):
    __slots__ = ()


@dataclass(frozen=True, slots=True)
class BoundConstant:
    """TRUE, FALSE or (None) NULL."""

    value: bool | None


BoundLeaf: TypeAlias = BoundCompare | BoundIn | BoundIsNull | BoundText | BoundLike | IfPresent
BoundNode: TypeAlias = (
    BoundLeaf | BoundExpression | BoundColumns | BoundNot | BoundAnd | BoundOr | BoundConstant
)

TRUE = BoundConstant(True)
FALSE = BoundConstant(False)
NULL = BoundConstant(None)


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a conjunct says about columns. If `whole`, the conjunct equals this condition."""

    text: str
    condition: BoundNode
    whole: bool


@dataclass(frozen=True, slots=True)
class BoundPredicate:
    """A condition over one schema, ready to prune and to filter.

    `meanings` are SQL conjuncts that are not plain comparisons, each with what it says about
    columns.
    """

    root: BoundNode
    meanings: tuple[Meaning, ...] = field(default=(), compare=False)

    @property
    def columns(self) -> tuple[str, ...]:
        """The top-level columns that the condition reads, in order of appearance."""
        return tuple(dict.fromkeys(column.path[0] for column in _columns(self.root)))

    @property
    def column_ids(self) -> tuple[int, ...]:
        """The ids of the fields that the condition names, in order of appearance."""
        return tuple(dict.fromkeys(column.id for column in self.leaves))

    @property
    def leaves(self) -> Iterator[BoundColumn]:
        """The fields that the condition names, in order of appearance and with repetitions."""
        return _columns(self.root)

    @property
    def unused(self) -> tuple[str, ...]:
        """The parts of expressions that filter rows and cannot prune, as text."""
        return tuple(_unused(self.root))

    @property
    def always_true(self) -> bool:
        """Tell whether every row matches, whatever its values are."""
        return self.root == TRUE

    @property
    def never_true(self) -> bool:
        """Tell whether no row can match, whatever its values are."""
        return _never(self.root)


def deciding(node: BoundNode) -> Iterator[BoundNode]:
    """The parts that join no others, in order, without what expressions imply."""
    if isinstance(node, BoundJoined):
        for term in node.terms:
            yield from deciding(term)
    elif isinstance(node, BoundNot):
        yield from deciding(node.term)
    else:
        yield node


def parts(node: BoundNode) -> Iterator[BoundNode]:
    """The parts that join no others, in order, each expression before what it implies."""
    for part in deciding(node):
        yield part
        if isinstance(part, BoundExpression):
            yield from parts(part.implied)


def _columns(node: BoundNode) -> Iterator[BoundColumn]:
    for part in parts(node):
        if isinstance(part, BoundExpression):
            yield from part.columns
        elif isinstance(part, BoundColumns):
            yield from (part.left, part.right)
        elif isinstance(part, BoundLeaf):
            yield part.column


def _unused(node: BoundNode) -> Iterator[str]:
    if isinstance(node, BoundJoined):
        for term in node.terms:
            yield from _unused(term)
    elif isinstance(node, BoundNot) and isinstance(node.term, BoundExpression):
        yield f"NOT {node.term.expression}"
    elif isinstance(node, BoundExpression):
        yield from node.unused


def _never(node: BoundNode) -> bool:
    if isinstance(node, BoundConstant):
        return node.value is not True
    if isinstance(node, IfPresent):
        return not node.truth
    if isinstance(node, BoundExpression):
        return _never(node.implied)
    if isinstance(node, BoundAnd):
        return any(_never(term) for term in node.terms)
    if isinstance(node, BoundOr):
        return all(_never(term) for term in node.terms)
    return False


def conjunction(terms: list[BoundNode]) -> BoundNode:
    """AND of normalised terms: flat, without TRUE and repetitions, FALSE if a term is FALSE."""
    return _gather(terms, BoundAnd, neutral=TRUE, absorbing=FALSE)


def disjunction(terms: list[BoundNode]) -> BoundNode:
    """OR of normalised terms: flat, without FALSE and repetitions, TRUE if a term is TRUE."""
    return _gather(terms, BoundOr, neutral=FALSE, absorbing=TRUE)


def _gather(
    terms: list[BoundNode],
    kind: type[BoundAnd] | type[BoundOr],
    neutral: BoundConstant,
    absorbing: BoundConstant,
) -> BoundNode:
    flat: dict[BoundNode, None] = {}
    for term in terms:
        for part in term.terms if isinstance(term, kind) else (term,):
            if part == absorbing:
                return absorbing
            if part != neutral:
                flat[part] = None
    if not flat:
        return neutral
    if len(flat) == 1:
        return next(iter(flat))
    return kind(tuple(flat))


def negation(node: BoundNode) -> BoundNode:
    """NOT of a normalised node, pushed inward (De Morgan holds in three-valued logic)."""
    if isinstance(node, BoundConstant):
        return node if node.value is None else BoundConstant(not node.value)
    if isinstance(node, BoundAnd):
        return disjunction([negation(term) for term in node.terms])
    if isinstance(node, BoundOr):
        return conjunction([negation(term) for term in node.terms])
    if isinstance(node, BoundNot):
        return node.term
    if isinstance(node, IfPresent):
        return IfPresent(node.column, not node.truth)
    if isinstance(node, BoundCompare) and node.op in OPPOSITE:
        if node.value == node.value or node.op in ("=", "!="):
            return BoundCompare(node.column, OPPOSITE[node.op], node.value)
        return BoundCompare(node.column, "=", node.value)  # NOT (x < NaN): x = NaN
    return BoundNot(node)


# --- Bound conditions as SQL for people, as `explain()` shows them.


# At most this many terms of a condition are shown.
_MOST_TERMS = 12
_FORMS = {"prefix": "startswith", "suffix": "endswith", "contains": "contains"}


def render_bound(node: BoundNode) -> str:
    """The condition as text. Long ones are cut."""
    if isinstance(node, BoundJoined):
        terms = [_inside(term, node) for term in node.terms[:_MOST_TERMS]]
        terms += ["…"] if len(node.terms) > _MOST_TERMS else []
        return (" AND " if isinstance(node, BoundAnd) else " OR ").join(terms)
    if isinstance(node, BoundNot):
        if isinstance(node.term, BoundIsNull):
            return f"{_name(node.term.column)} IS NOT NULL"
        return f"NOT ({render_bound(node.term)})"
    if isinstance(node, BoundConstant):
        return render(node.value)
    if isinstance(node, BoundExpression):
        return str(node.expression)
    if isinstance(node, BoundColumns):
        return f"{_name(node.left)} {node.op} {_name(node.right)}"
    column = _name(node.column)
    if isinstance(node, BoundIsNull):
        return f"{column} IS NULL"
    if isinstance(node, IfPresent):
        return f"{column} IS NOT NULL" if node.truth else "FALSE"
    if isinstance(node, BoundCompare):
        return f"{column} {node.op} {_value(node.value, node.column)}"
    if isinstance(node, BoundIn):
        values = [_value(one, node.column) for one in node.values[:_MOST_TERMS]]
        values += ["NaN"] if node.has_nan else []
        values += ["NULL"] if node.has_null else []
        values += ["…"] if len(node.values) > _MOST_TERMS else []
        return f"{column} IN ({', '.join(values)})"
    if isinstance(node, BoundText):
        return f"{_FORMS[node.form]}({column}, {_value(node.text, node.column)})"
    return f"{column} RLIKE {render(text.regex(node.pieces))}"


def _inside(node: BoundNode, above: BoundNode) -> str:
    mixed = isinstance(node, BoundJoined) and type(node) is not type(above)
    return f"({render_bound(node)})" if mixed else render_bound(node)


def _name(column: BoundColumn) -> str:
    if column.path[-1].startswith(":"):  # a path of VARIANT, in one type
        return render_name(column.path[:1]) + column.path[-1]
    return render_name(column.path)


def _value(ordinal: Ordinal, column: BoundColumn) -> str:
    kind = domain(column.type)
    if kind.kind == "date" and isinstance(ordinal, int) and pa.types.is_date32(column.type):
        return f"DATE '{date_text(ordinal)}'"
    if kind.kind == "timestamp" and isinstance(ordinal, int):
        return render(Timestamp(ordinal * kind.unit_ns, kind.zoned))
    value: Any = from_ordinal(ordinal, column.type)
    return render(value)

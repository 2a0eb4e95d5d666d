"""Pure. Tests of one column with constants, over a schema: places literals, normalises.

A literal is never narrowed to the type of a column. A comparison with a literal
that the column cannot hold is decided here: where the column has a value, `tiny = 300`
is FALSE and `tiny < 300` is TRUE; where the column is NULL, both are NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import date, datetime, timedelta, timezone, tzinfo
from typing import Any

import pyarrow as pa

from lakehouse_source.errors import InvalidExpressionError, InvalidPredicateError
from lakehouse_source.language import values as constants
from lakehouse_source.language.bind import Scope
from lakehouse_source.language.bounds.arrow_expressions import NotUnderstood, read, top_level_names
from lakehouse_source.language.bounds.bound import (
    FALSE,
    NULL,
    TRUE,
    BoundColumn,
    BoundCompare,
    BoundConstant,
    BoundIn,
    BoundIsNull,
    BoundLeaf,
    BoundLike,
    BoundNode,
    BoundText,
    IfPresent,
    conjunction,
    disjunction,
    negation,
)
from lakehouse_source.language.bounds.place import (
    Place,
    between,
    bounded,
    compare_nan,
    place,
    text_bytes,
)
from lakehouse_source.language.expression import Expression
from lakehouse_source.language.functions import text as like
from lakehouse_source.language.functions.casts import cast_kernel
from lakehouse_source.language.functions.rows import listed, unlisted
from lakehouse_source.language.nodes import (
    COMPARISONS,
    FLIPPED,
    Arrow,
    Call,
    Cast,
    Interval,
    Literal,
    Name,
    Node,
    Value,
    names,
    walk,
)
from lakehouse_source.language.types import WALL
from lakehouse_source.language.values import READ_TYPED, Timestamp, parse_timestamp
from lakehouse_source.model import Ordinal
from lakehouse_source.schema import fields as schemas
from lakehouse_source.schema.ordinal import DAY_NS, EPOCH_DATE, domain
from lakehouse_source.schema.paths import find_path
from lakehouse_source.schema.variant_paths import KINDS, paths_of
from lakehouse_source.schema.variant_storage import has_variant

CAST_PATHS = (
    '. A path into a VARIANT is cast in an SQL text ("event:user.id::int = 7") or an Arrow '
    'expression (pc.field("event", "user", "id").cast("int32") == 7)'
)

# --- The columns of a schema that conditions name.


def _paths(fields: Iterable[pa.Field]) -> Iterator[tuple[Name, pa.Field, schemas.Leaf]]:
    """The paths of VARIANT, one for each type, under names that no text of a condition has."""
    for field in fields:
        if paths_of(field):
            for leaf in schemas.leaves(pa.schema([field])):
                if leaf.column_id is not None:
                    name = "\n".join(leaf.path)
                    yield Name((name,)), pa.field(name, leaf.type), leaf


def with_paths(schema: pa.Schema) -> pa.Schema:
    """The schema, and each path of VARIANT in each type as a column."""
    paths = [field for _, field, _ in _paths(schema)]
    return pa.schema([*schema, *paths]) if paths else schema


class Columns:
    """Finds columns of one schema with field ids."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._found: dict[Name, BoundColumn] = {}
        self._collated: set[int] = set()
        self._ids_of_paths: set[int] = set()

    def find(self, name: Name) -> BoundColumn:
        """The column that a name means.

        Raises:
            InvalidPredicateError: there is no such column, or it is inside a list or map.
        """
        found = self._found.get(name)
        if found is None:
            found = self._found[name] = self._resolve(name)
        return found

    def typed_paths(self, column: Name, path: tuple[str, ...]) -> list[Name]:
        """A path into a column of VARIANT as columns, one for each type; none: it is not known."""
        variant = self._schema.field(self.find(column).path[0])
        first = paths_of(variant).get(path)
        if first is None:
            return []
        own = range(first, first + len(KINDS))
        typed = [one for one in _paths([variant]) if one[2].id in own]
        self._found |= {
            name: BoundColumn.of(leaf.id, leaf.path, field) for name, field, leaf in typed
        }
        self._ids_of_paths.update(own)
        return [name for name, _, _ in typed]

    def is_path(self, part: BoundNode) -> bool:
        """Tell whether a part of a condition is about a path of VARIANT."""
        return isinstance(part, BoundLeaf) and part.column.id in self._ids_of_paths

    def comparable(self, name: Name) -> BoundColumn:
        """A column whose values compare.

        Raises:
            InvalidPredicateError: there is no such column, or plake does not know its order.
        """
        column = self.find(name)
        if column.kind == "nested":
            raise InvalidPredicateError(
                reason=f"column {name} is {column.type}: only IS NULL and IS NOT NULL apply to it"
            )
        if column.kind == "other":
            raise InvalidPredicateError(
                reason=f"column {name} has type {column.type}, which has no order"
            )
        if column.id in self._collated:
            raise InvalidPredicateError(
                reason=f"column {name} has a collation: only Spark compares it, and only "
                "IS NULL and IS NOT NULL apply to it here"
            )
        return column

    def _resolve(self, name: Name) -> BoundColumn:
        fields = find_path(schemas.indexed(self._schema), name.parts, name.dotted)
        if fields is None:
            raise InvalidPredicateError(
                reason=f"there is no column {name}; the columns are "
                + ", ".join(field.name for field in self._schema)
                + (CAST_PATHS if ":" in str(name) and has_variant(self._schema) else "")
            )
        for above in fields[:-1]:
            if not pa.types.is_struct(above.type):
                raise InvalidPredicateError(
                    reason=f"column {name} is inside {above.name}, a list or map: "
                    "conditions on elements are not supported"
                )
        last = fields[-1]
        identity = schemas.field_id(last)
        if identity is None:
            raise InvalidPredicateError(reason=f"column {name} has no field id")
        column = BoundColumn.of(identity, tuple(field.name for field in fields), last)
        if column.kind == "string" and any(map(schemas.has_collation, fields)):
            self._collated.add(identity)
        return column


def missing_columns(node: Node, schema: pa.Schema) -> set[str]:
    """The top-level names of columns in a condition that the schema does not have."""
    known = schemas.indexed(schema)
    missing = {
        name.parts[0] for name in names(node) if find_path(known, name.parts, name.dotted) is None
    }
    for part in walk(node):
        if isinstance(part, Arrow):
            with suppress(NotUnderstood):
                missing |= set(top_level_names(read(part.expression))) - set(schema.names)
    return missing


Constant = constants.Literal | None
_FORMS = {"startswith": "prefix", "endswith": "suffix", "contains": "contains"}


class NoComparison(Exception):
    """A part of a condition is not a test of a column with constants."""


class Comparisons:
    """Reads conditions that test columns with constants. `zone`: of wall clocks."""

    def __init__(self, columns: Columns, zone: tzinfo) -> None:
        self._columns, self._zone = columns, zone

    def test(self, node: Node) -> BoundNode:
        """A condition whose parts are all such tests, joined by AND, OR and NOT.

        Raises:
            NoComparison: the condition has another part.
            InvalidPredicateError: a column is missing or does not compare with a constant.
        """
        if isinstance(node, Name):
            return self._compare(self._columns.comparable(node), "=", True)
        if isinstance(node, Call) and node.name in _READERS:
            return _READERS[node.name](self, node)
        if isinstance(node, Literal | Value) and isinstance(node.value, bool | None):
            return BoundConstant(node.value)
        raise NoComparison

    def joined(self, node: Call) -> BoundNode:
        terms = [self.test(term) for term in node.arguments]
        return conjunction(terms) if node.name == "and" else disjunction(terms)

    def negated(self, node: Call) -> BoundNode:
        return negation(self.test(node.arguments[0]))

    def null(self, node: Call) -> BoundNode:
        column = self._columns.find(_only_name(node.arguments))
        found = TRUE if column.kind == "null" else BoundIsNull(column)
        return found if node.name == "isnull" else negation(found)

    # --- comparisons ---

    def comparison(self, node: Call) -> BoundNode:
        op, (left, right) = node.name, node.arguments
        if not isinstance(left, Name):
            left, right, op = right, left, FLIPPED[op]
        if isinstance(left, Name):
            value = constant_of(right)
            return self._compare(self._columns.comparable(left), op, value)
        if not all(isinstance(side, Literal) for side in (left, right)):
            raise NoComparison
        try:  # such as the `1 = 1` of generated SQL
            found = Expression(node, str(node)).bind(Scope({})).evaluate({}, 1)
        except InvalidExpressionError:
            raise NoComparison from None
        return BoundConstant(found[0].as_py())

    def _compare(self, column: BoundColumn, op: str, value: Constant) -> BoundNode:
        if value is None and op == "<=>":
            return TRUE if column.kind == "null" else BoundIsNull(column)
        if column.kind == "null" and op == "<=>":
            return FALSE
        if value is None or column.kind == "null":
            return NULL
        if op == "!=":
            return negation(self._compare(column, "=", value))
        if column.is_float and _means_nan(value):
            return compare_nan(column, op)
        where = self._place(column, value)
        if op in ("=", "<=>"):
            equal = between(column, where)
            if isinstance(equal, BoundCompare):
                return BoundCompare(column, op, equal.value)
            if op == "=":
                return equal
            if isinstance(equal, IfPresent):
                return BoundConstant(False) if not equal.truth else negation(BoundIsNull(column))
            return conjunction([negation(BoundIsNull(column)), equal])
        if op in ("<", ">="):
            less = bounded(column, "<", where.ceiling)
            return less if op == "<" else negation(less)
        not_above = bounded(column, "<=", where.floor)
        return not_above if op == "<=" else negation(not_above)

    def _place(self, column: BoundColumn, value: constants.Literal) -> Place:
        try:
            return place(value, domain(column.type), self._zone)
        except ValueError as exc:
            raise _unfit(column, exc) from exc

    # --- lists ---

    def listed(self, node: Call) -> BoundNode:
        name, *given = node.arguments
        values: Sequence[Constant]
        if len(given) == 1 and isinstance(given[0], Value) and isinstance(given[0].value, tuple):
            values = [constants.literal(one) for one in given[0].value]
        else:
            values = [constant_of(one) for one in given]
        column = self._columns.comparable(_only_name((name,)))
        if not values:
            return FALSE
        if column.kind == "null":
            return NULL
        has_null = None in values
        has_nan = False
        single: set[Ordinal] = set()
        ranges: list[BoundNode] = []
        for value in _widened(column, values):
            if column.is_float and _means_nan(value):
                has_nan = True
                continue
            equal = between(column, self._place(column, value))
            if isinstance(equal, BoundCompare):
                single.add(equal.value)
            elif not isinstance(equal, IfPresent) or equal.truth:
                ranges.append(equal)
        found: BoundNode
        if len(single) + has_nan == 1 and not has_null:
            nan_or_value = float("nan") if has_nan else next(iter(single))
            found = BoundCompare(column, "=", nan_or_value)
        elif single or has_nan:
            found = BoundIn(column, tuple(sorted(single)), has_nan, has_null)
        else:
            found = NULL if has_null else IfPresent(column, False)
        return disjunction([found, *ranges]) if ranges else found

    # --- text ---

    def text(self, node: Call) -> BoundNode:
        if len(node.arguments) != 2:
            raise NoComparison
        name, text = _only_name(node.arguments[:1]), constant_of(node.arguments[1])
        if not isinstance(text, str | bytes | None):
            raise NoComparison
        column = self._text_column(name, "string", "null", "binary")
        if text is None or column.kind == "null":
            return NULL
        return self._text(column, _FORMS[node.name], text)

    def like(self, node: Call) -> BoundNode:
        name, pattern, escape = node.arguments
        text, mark = constant_of(pattern), constant_of(escape)
        column_name = _only_name((name,))
        if not isinstance(text, str | None) or not isinstance(mark, str):
            raise NoComparison
        column = self._text_column(column_name, "string", "null")
        if text is None or column.kind == "null":
            return NULL
        pieces = like.pieces(text, mark)
        wild = [piece for piece in pieces if piece in (like.ANY_TEXT, like.ONE_CHARACTER)]
        plain = [piece for piece in pieces if piece not in (like.ANY_TEXT, like.ONE_CHARACTER)]
        if not wild:
            return self._compare(column, "=", "".join(plain))
        if like.ONE_CHARACTER not in wild and len(plain) <= 1:
            if pieces[0] is not like.ANY_TEXT:
                return self._text(column, "prefix", "".join(plain))
            form = "suffix" if pieces[-1] is not like.ANY_TEXT else "contains"
            return self._text(column, form, "".join(plain))
        whole = BoundLike(column, tuple(pieces))
        if pieces[0] in (like.ANY_TEXT, like.ONE_CHARACTER):
            return whole
        # The text before the first wildcard is implied, and can be searched in the index.
        return conjunction([BoundText(column, "prefix", pieces[0].encode()), whole])

    def _text(self, column: BoundColumn, form: str, text: str | bytes) -> BoundNode:
        try:
            searched = text_bytes(text, domain(column.type))
        except ValueError as exc:
            raise _unfit(column, exc) from exc
        return BoundText(column, form, searched) if searched else IfPresent(column, True)

    def _text_column(self, name: Name, *kinds: str) -> BoundColumn:
        column = self._columns.comparable(name)
        if column.kind not in kinds:
            raise InvalidPredicateError(
                reason=f"column {'.'.join(column.path)} is {column.type}: "
                "only text can be searched in"
            )
        return column


_READERS: dict[str, Callable[[Comparisons, Call], BoundNode]] = {
    **dict.fromkeys(COMPARISONS, Comparisons.comparison),
    **dict.fromkeys(("and", "or"), Comparisons.joined),
    **dict.fromkeys(("isnull", "isnotnull"), Comparisons.null),
    **dict.fromkeys(_FORMS, Comparisons.text),
    "like": Comparisons.like,
    "not": Comparisons.negated,
    "in": Comparisons.listed,
}


def _only_name(arguments: Sequence[Node]) -> Name:
    if len(arguments) != 1 or not isinstance(arguments[0], Name):
        raise NoComparison
    return arguments[0]


def _unfit(column: BoundColumn, why: ValueError) -> InvalidPredicateError:
    return InvalidPredicateError(reason=f"column {'.'.join(column.path)} ({column.type}): {why}")


def _means_nan(value: constants.Literal) -> bool:
    return value != value or (isinstance(value, str) and value.strip().lower() == "nan")


def _widened(column: BoundColumn, values: Sequence[Constant]) -> list[constants.Literal]:
    """The values of a list in the one type that Spark finds for all of them."""
    present = [value for value in values if value is not None]
    if any(isinstance(value, float) for value in present):
        return [float(value) if type(value) is int else value for value in present]
    if column.kind == "date" and any(isinstance(v, (datetime, Timestamp)) for v in present):
        try:
            return [parse_timestamp(v) if isinstance(v, str) else v for v in present]
        except ValueError as exc:
            raise InvalidPredicateError(reason=str(exc)) from exc
    return present


# --- constants --------------------------------------------------------------


def constant_of(node: Node) -> Constant:
    """The value of a literal, or of casts of a literal, in the form for comparisons.

    Raises:
        NoComparison: the node is something else, or has no value.
    """
    if isinstance(node, Value) and not isinstance(node.value, tuple):
        return constants.literal(node.value)
    if isinstance(node, Interval):
        return timedelta(microseconds=node.microseconds)
    try:
        if isinstance(node, Cast) and node.to in READ_TYPED:
            return _moment(constant_of(node.value), node.to)
        found = _computed(node)
    except (ValueError, ArithmeticError):
        raise NoComparison from None
    if found.value is None:
        return None
    if pa.types.is_date(found.type):
        return Timestamp(found.value * DAY_NS, zoned=False)
    if pa.types.is_timestamp(found.type):
        return Timestamp(found.value * 1000, zoned=found.type.tz is not None)
    whole = pa.types.is_decimal(found.type) and not found.type.scale
    value: Any = int(found.value) if whole else found.value
    return value  # type: ignore[no-any-return]


def _computed(node: Node) -> Literal:
    """A literal, or the value of casts of a literal.

    Raises:
        NoComparison: the node is neither.
        Failure: the node has no value.
    """
    if isinstance(node, Literal):
        return node
    if not isinstance(node, Cast) or node.safe or node.to in READ_TYPED:
        raise NoComparison
    given = _computed(node.value)
    if given.value is None or given.type == node.to:
        return Literal(given.value, node.to)
    kernel, _ = cast_kernel(given.type, node.to, timezone.utc)
    values = kernel(unlisted([given.value], given.type))
    return Literal(listed(values)[0], node.to)


def _moment(value: Constant, to: pa.DataType) -> Constant:
    """A literal as a date, a time of day or a timestamp; its time zone may be that of a session.

    Raises:
        ValueError: the text is not such a value.
    """
    if value is None:
        return None
    if isinstance(value, str):
        found = READ_TYPED[to](value)
        if found is not None and not (to == WALL and found.zoned):
            return found  # type: ignore[no-any-return]
    elif pa.types.is_date(to):
        if isinstance(value, date) and not isinstance(value, datetime):
            return value
    elif pa.types.is_timestamp(to):
        if isinstance(value, date):
            return Timestamp((value - EPOCH_DATE).days * DAY_NS, False)
        if isinstance(value, Timestamp):
            return value
    raise NoComparison

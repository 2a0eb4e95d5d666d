"""Pure. Binds conditions to a schema: finds columns, places literals, normalises.

A literal is never narrowed to the type of a column. A comparison with a literal
that the column cannot hold is decided here: where the column has a value, `tiny = 300`
is FALSE and `tiny < 300` is TRUE; where the column is NULL, both are NULL.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, tzinfo

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.errors import InvalidExpressionError, InvalidPredicateError
from lakehouse_source.language.bounds.arrow_implied import Implied as ImpliedByArrow
from lakehouse_source.language.bounds.arrow_implied import implied as implied_by_arrow
from lakehouse_source.language.bounds.bound import (
    FALSE,
    NULL,
    TRUE,
    BoundColumn,
    BoundCompare,
    BoundConstant,
    BoundExpression,
    BoundIn,
    BoundIsNull,
    BoundLike,
    BoundNode,
    BoundPredicate,
    BoundText,
    IfPresent,
    Meaning,
    conjunction,
    disjunction,
    negation,
)
from lakehouse_source.language.bounds.equal_values import between, bounded, compare_nan
from lakehouse_source.language.bounds.implied import Implied
from lakehouse_source.language.bounds.place import Place, place, text_bytes
from lakehouse_source.language.conditions.arrow_expressions import (
    NotUnderstood,
    compute,
    has_line_breaks,
    read,
    top_level_names,
)
from lakehouse_source.language.conditions.nodes import (
    And,
    ArrowExpression,
    Column,
    Compare,
    Constant,
    Contains,
    EndsWith,
    In,
    IsNull,
    Like,
    Node,
    Not,
    Or,
    SqlExpression,
    StartsWith,
    missing_columns,
    origin,
)
from lakehouse_source.language.rows.expression import Expression, require_condition
from lakehouse_source.language.rows.sql_rows import SqlRows, at_one_time, scope_of
from lakehouse_source.language.tree import like
from lakehouse_source.language.tree import nodes as expressions
from lakehouse_source.language.tree.constants import Literal, Timestamp, literal
from lakehouse_source.language.tree.find_path import find_path
from lakehouse_source.language.tree.moments import parse_timestamp, parse_zone
from lakehouse_source.language.tree.nodes import names
from lakehouse_source.model import Ordinal
from lakehouse_source.schema import fields as schemas
from lakehouse_source.schema.ordinal import domain


def bind(node: Node, schema: pa.Schema, zone: str = "UTC") -> BoundPredicate:
    """The condition over a schema with field ids.

    `zone` is the time zone of dates and wall clock times that are compared with
    instants.

    Raises:
        InvalidPredicateError: a column is missing, cannot be compared, or a
            literal does not fit its type.
    """
    try:
        found = parse_zone(zone)
    except ValueError as exc:
        raise InvalidPredicateError(reason=str(exc)) from exc
    try:
        binder = _Binder(schema, found, zone)
        root = binder.whole(node)
        return BoundPredicate(root, tuple(binder.meanings))
    except RecursionError:
        raise InvalidPredicateError(reason="it is nested too deeply") from None


class _Binder:
    def __init__(self, schema: pa.Schema, zone: tzinfo, zone_name: str) -> None:
        self._schema = schema
        self._zone = zone
        self._zone_name = zone_name
        self.meanings: list[Meaning] = []
        self._columns: dict[Column, BoundColumn] = {}
        self._collated: set[int] = set()

    def whole(self, node: Node) -> BoundNode:
        """The root of a condition. Its conjuncts in SQL may need what Spark casts by itself."""
        if not isinstance(node, And):
            return self._term(node)
        terms = [self._term(one) for one in node.terms]
        roots = tuple(one.root for one in node.terms if isinstance(one, SqlExpression))
        if len(roots) > 1:
            terms.append(self._together(roots, terms))
        return conjunction(terms)

    def _term(self, node: Node) -> BoundNode:
        try:
            return self.bind(node)
        except InvalidPredicateError as error:
            source = origin(node)
            if source is None or missing_columns(node, self._schema):
                raise
            try:
                return self._sql(source)
            except InvalidPredicateError:
                raise error from None

    def bind(self, node: Node) -> BoundNode:
        if isinstance(node, SqlExpression):
            return self._sql(node)
        if isinstance(node, Constant):
            return BoundConstant(node.value)
        if isinstance(node, Not):
            return negation(self.bind(node.term))
        if isinstance(node, And):
            return conjunction([self.bind(term) for term in node.terms])
        if isinstance(node, Or):
            return disjunction([self.bind(term) for term in node.terms])
        if isinstance(node, ArrowExpression):
            return self._expression(node.expression)
        if isinstance(node, IsNull):
            column = self._find(node.column)
            return BoundConstant(True) if column.kind == "null" else BoundIsNull(column)
        column = self._comparable(node.column)
        if isinstance(node, Compare):
            return self._compare(column, node.op, literal(node.value))
        if isinstance(node, In):
            return self._in(column, [literal(value) for value in node.values])
        if isinstance(node, Like):
            return self._like(column, node)
        if isinstance(node, (StartsWith, EndsWith, Contains)):
            return self._text(column, node)
        raise InvalidPredicateError(reason=f"{node!r} is not a node of a condition")

    def _expression(self, expression: pc.Expression) -> BoundNode:
        empty = self._schema.empty_table()
        try:
            kind = compute(expression, empty).type if len(self._schema) else pa.null()
        except (pa.ArrowException, KeyError) as exc:
            raise InvalidPredicateError(
                reason=f"the Arrow expression {expression} does not fit the schema: {exc}"
            ) from exc
        if not pa.types.is_boolean(kind):
            raise InvalidPredicateError(
                reason=f"the Arrow expression {expression} is {kind}: a condition is bool"
            )
        try:
            if has_line_breaks(self._schema):
                raise NotUnderstood
            tree = read(expression)
        except NotUnderstood:
            top = tuple(self._schema.names)
            found = ImpliedByArrow(TRUE, (str(expression),))
        else:
            top = top_level_names(tree)
            if not top:  # the same on every row
                return BoundConstant(compute(expression, pa.table({"": [0]}))[0].as_py())
            found = implied_by_arrow(tree, self._schema, self.bind)
        columns = tuple(self._find(Column((name,))) for name in top)
        return BoundExpression(expression, columns, found.condition, found.unused)

    # --- SQL expressions ---

    def _sql(self, node: SqlExpression) -> BoundNode:
        columns = [self._find(Column(name.parts)) for name in names(node.root)]
        top = dict.fromkeys(column.path[0] for column in columns)
        fields = pa.schema([self._schema.field(name) for name in top])
        scope = scope_of(fields, self._zone_name)
        try:
            root = at_one_time(node.root, scope)
            require_condition(Expression(root, node.text).bind(scope))
        except InvalidExpressionError as exc:
            raise InvalidPredicateError(reason=exc.reason, text=node.text) from exc
        reader = Implied(scope, self.bind, self._find)
        failing = reader.without_value(root)
        if failing is not None:
            raise InvalidPredicateError(reason=failing, text=node.text)
        exact = reader.exact(root)
        if exact is not None:
            self.meanings.append(Meaning(node.text, exact, True))
            return exact
        found = reader.when(root, True)
        self.meanings.append(Meaning(node.text, found, False))
        above = tuple(self._find(Column((name,))) for name in top)
        rows = SqlRows(root, node.text, fields, self._zone_name)
        return BoundExpression(rows, above, found, (node.text,) if found == TRUE else ())

    def _together(self, roots: tuple[expressions.Node, ...], terms: list[BoundNode]) -> BoundNode:
        """What SQL conjuncts imply together, as part of one that rows decide."""
        place = next((at for at, one in enumerate(terms) if isinstance(one, BoundExpression)), None)
        if place is None:
            return TRUE
        reader = Implied(scope_of(self._schema, self._zone_name), self.bind, self._find)
        found = reader.together(roots)
        if found != TRUE:
            rows = terms[place]
            assert isinstance(rows, BoundExpression)
            terms[place] = replace(rows, implied=conjunction([rows.implied, found]), unused=())
            text = " AND ".join(f"({one})" for one in roots)
            self.meanings.append(Meaning(text, found, False))
        return TRUE

    # --- columns ---

    def _comparable(self, name: Column) -> BoundColumn:
        column = self._find(name)
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

    def _find(self, name: Column) -> BoundColumn:
        found = self._columns.get(name)
        if found is None:
            found = self._columns[name] = self._resolve(name)
        return found

    def _resolve(self, name: Column) -> BoundColumn:
        fields = find_path(schemas.indexed(self._schema), name.path, name.dotted)
        if fields is None:
            raise InvalidPredicateError(
                reason=f"there is no column {name}; the columns are "
                + ", ".join(field.name for field in self._schema)
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

    # --- comparisons ---

    def _place(self, column: BoundColumn, value: Literal) -> Place:
        try:
            return place(value, domain(column.type), self._zone)
        except ValueError as exc:
            raise InvalidPredicateError(
                reason=f"column {'.'.join(column.path)} ({column.type}): {exc}"
            ) from exc

    def _compare(self, column: BoundColumn, op: str, value: Literal | None) -> BoundNode:
        if value is None:
            return (
                BoundIsNull(column)
                if op == "<=>" and column.kind != "null"
                else (BoundConstant(True) if op == "<=>" else NULL)
            )
        if column.kind == "null":
            return FALSE if op == "<=>" else NULL
        if op == "!=":
            return negation(self._compare(column, "=", value))
        if column.is_float and self._means_nan(value):
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

    def _means_nan(self, value: Literal) -> bool:
        return value != value or (isinstance(value, str) and value.strip().lower() == "nan")

    def _in(self, column: BoundColumn, values: list[Literal | None]) -> BoundNode:
        if not values:
            return FALSE
        if column.kind == "null":
            return NULL
        has_null = None in values
        has_nan = False
        single: set[Ordinal] = set()
        ranges: list[BoundNode] = []
        for value in self._widened(column, values):
            if column.is_float and self._means_nan(value):
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
        elif has_null:
            found = NULL
        else:
            found = IfPresent(column, False)
        return disjunction([found, *ranges]) if ranges else found

    def _widened(self, column: BoundColumn, values: list[Literal | None]) -> list[Literal]:
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

    # --- text ---

    def _text(self, column: BoundColumn, node: StartsWith | EndsWith | Contains) -> BoundNode:
        self._require_text(column, bytes_too=True)
        value = literal(node.text)
        if value is None or column.kind == "null":
            return NULL
        try:
            text = text_bytes(value, domain(column.type))
        except ValueError as exc:
            raise InvalidPredicateError(
                reason=f"column {'.'.join(column.path)} ({column.type}): {exc}"
            ) from exc
        if text == b"":
            return IfPresent(column, True)
        form = {StartsWith: "prefix", EndsWith: "suffix", Contains: "contains"}[type(node)]
        return BoundText(column, form, text)

    def _like(self, column: BoundColumn, node: Like) -> BoundNode:
        self._require_text(column, bytes_too=False)
        if node.pattern is None or column.kind == "null":
            return NULL
        pieces = like.pieces(node.pattern, node.escape)
        wild = [piece for piece in pieces if piece in (like.ANY_TEXT, like.ONE_CHARACTER)]
        plain = [piece for piece in pieces if piece not in (like.ANY_TEXT, like.ONE_CHARACTER)]
        if not wild:
            return self._compare(column, "=", "".join(plain))
        if like.ONE_CHARACTER not in wild and len(plain) <= 1:
            text = "".join(plain)
            if not text:
                return IfPresent(column, True)
            name = Column(column.path)
            if pieces[0] is not like.ANY_TEXT:
                return self._text(column, StartsWith(name, text))
            if pieces[-1] is not like.ANY_TEXT:
                return self._text(column, EndsWith(name, text))
            return self._text(column, Contains(name, text))
        whole = BoundLike(column, tuple(pieces))
        if pieces[0] in (like.ANY_TEXT, like.ONE_CHARACTER):
            return whole
        # The text before the first wildcard is implied, and the index can be searched by it.
        return conjunction([BoundText(column, "prefix", pieces[0].encode()), whole])

    def _require_text(self, column: BoundColumn, *, bytes_too: bool) -> None:
        if column.kind in ("string", "null") or (bytes_too and column.kind == "binary"):
            return
        raise InvalidPredicateError(
            reason=f"column {'.'.join(column.path)} is {column.type}: only text can be searched in"
        )

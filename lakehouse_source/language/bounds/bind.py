"""Pure. Binds conditions to a schema: as tests of columns if possible, else for evaluation on rows.

A conjunct of SQL that tests columns with constants becomes those tests. The evaluator of rows
decides any other conjunct, which also keeps what it implies about columns.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from lakehouse_source.errors import InvalidExpressionError, InvalidPredicateError
from lakehouse_source.language.bounds.arrow_implied import Implied as ImpliedByArrow
from lakehouse_source.language.bounds.arrow_implied import implied as implied_by_arrow
from lakehouse_source.language.bounds.bound import (
    TRUE,
    BoundAnd,
    BoundColumns,
    BoundConstant,
    BoundExpression,
    BoundNode,
    BoundNot,
    BoundOr,
    BoundPredicate,
    Meaning,
    conjunction,
    disjunction,
    negation,
)
from lakehouse_source.language.bounds.columns import Columns, missing_columns
from lakehouse_source.language.bounds.comparisons import Comparisons, NoComparison
from lakehouse_source.language.bounds.implied import Implied
from lakehouse_source.language.conditions.arrow_expressions import (
    NotUnderstood,
    compute,
    read,
    top_level_names,
)
from lakehouse_source.language.rows.expression import Expression, require_condition
from lakehouse_source.language.rows.sql_rows import SqlRows, at_one_time, scope_of
from lakehouse_source.language.tree.moments import parse_zone
from lakehouse_source.language.tree.nodes import Arrow, Call, Hint, Name, Node, Value, names, walk
from lakehouse_source.schema.fields import names_hold


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
            return self._arrow(node)
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
        if isinstance(bound, (BoundAnd, BoundOr)):
            parts = [self._of_columns(term) for term in bound.terms]
            return conjunction(parts) if isinstance(bound, BoundAnd) else disjunction(parts)
        if isinstance(bound, BoundExpression):
            return self._of_columns(bound.implied)
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
        reader = Implied(scope, self._comparisons, self._columns)
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
        reader = Implied(scope_of(self._schema, self._zone), self._comparisons, self._columns)
        found = reader.together(tuple(roots))
        if found != TRUE:
            rows = terms[place]
            assert isinstance(rows, BoundExpression)
            terms[place] = replace(rows, implied=conjunction([rows.implied, found]), unused=())
            text = " AND ".join(f"({one})" for one in roots)
            self.meanings.append(Meaning(text, found, False))

    def _arrow(self, node: Arrow) -> BoundNode:
        expression = node.expression
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
            if names_hold(self._schema, "\n"):
                raise NotUnderstood
            tree = read(expression)
        except NotUnderstood:
            top = tuple(self._schema.names)
            found = ImpliedByArrow(TRUE, (str(expression),))
        else:
            top = top_level_names(tree)
            if not top:  # the same on every row
                return BoundConstant(compute(expression, pa.table({"": [0]}))[0].as_py())
            found = implied_by_arrow(tree, self._schema, self._comparisons.test)
        columns = tuple(self._columns.find(Name((name,))) for name in top)
        return BoundExpression(expression, columns, found.condition, found.unused)


def is_sql(node: Node) -> bool:
    """Tell whether a condition is SQL alone: no part comes from Python or Arrow."""
    return not any(
        isinstance(one, Value | Arrow | Hint) or (isinstance(one, Name) and one.dotted)
        for one in walk(node)
    )

"""Pure. Arrow expressions: read as trees, computed over tables, and what they imply for pruning."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.errors import InvalidPredicateError
from lakehouse_source.language.bounds.bound import (
    FALSE,
    TRUE,
    BoundConstant,
    BoundNode,
    conjunction,
    disjunction,
)
from lakehouse_source.language.nodes import (
    FLIPPED,
    OPPOSITE,
    Name,
    Node,
    all_of,
    any_of,
    compare,
    constant,
    is_in,
    is_null,
    matches,
    negated,
)
from lakehouse_source.language.values import check_depth, literal
from lakehouse_source.schema.fields import children
from lakehouse_source.schema.ordinal import Domain, domain
from lakehouse_source.schema.types import Fit, fit

# --- Reads Arrow expressions as trees and computes them over tables in memory.
#
# Arrow has no interface to take an expression apart. So the expression is read from its pickled
# form: a list of entries in the metadata of a batch whose columns hold the literals and options.


@dataclass(frozen=True, slots=True)
class FieldRef:
    """A column, by the names from the top level down."""

    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Scalar:
    """A literal."""

    value: pa.Scalar


@dataclass(frozen=True, slots=True)
class Call:
    """A compute function; `options` holds its options by name, None where it has none."""

    name: str
    terms: tuple[Tree, ...]
    options: pa.StructScalar | None


Tree: TypeAlias = FieldRef | Scalar | Call


class NotUnderstood(Exception):
    """The pickled form of an expression holds something unknown."""


_ENTRY = re.compile(r"^(call|end|field_ref|nested_field_ref|literal|options): '(.*)'$")
# Entries of an expression: what each is, and its name or number.
Entries: TypeAlias = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Pickled:
    """The pickled form of an expression.

    A column name with a line break in it can be misread: the entries are separated by
    line breaks. A caller excludes such names (`names_hold`), or builds the expression again and
    compares.
    """

    entries: Entries
    batch: pa.RecordBatch

    @classmethod
    def of(cls, expression: pc.Expression) -> Pickled:
        """The form of an expression.

        Raises:
            NotUnderstood: the expression cannot be pickled, or its form is unknown.
        """
        try:
            batch = pa.ipc.open_file(expression.__reduce__()[1][0]).get_batch(0)
        except (pa.ArrowException, LookupError, TypeError, ValueError) as exc:
            raise NotUnderstood from exc
        # The entries repeat keys: as a mapping they would lose all but one of each.
        text = batch.schema.to_string(
            show_field_metadata=False, show_schema_metadata=True, truncate_metadata=False
        )
        entries: list[tuple[str, str]] = []
        for line in text.partition("-- schema metadata --\n")[2].split("\n"):
            found = _ENTRY.match(line)
            if found is None:
                raise NotUnderstood
            entries.append((found[1], found[2]))
        return cls(entries, batch)

    def tree(self) -> Tree:
        """The tree of the expression.

        Raises:
            NotUnderstood: its form is unknown.
            InvalidPredicateError: it is nested too deep.
        """
        at = iter(self.entries)
        try:
            tree = _tree(at, next(at), self.batch, 0)
        except (StopIteration, ValueError, LookupError) as exc:
            raise NotUnderstood from exc
        if next(at, None) is not None:
            raise NotUnderstood
        return tree

    def expression(self, entries: Entries) -> pc.Expression:
        """The expression of other entries over the same literals and options."""
        sink = pa.BufferOutputStream()
        schema = self.batch.schema.with_metadata(pa.KeyValueMetadata(list(entries)))
        with pa.ipc.new_file(sink, schema) as file:
            file.write_batch(self.batch)
        return pc.Expression._deserialize(sink.getvalue())


def read(expression: pc.Expression) -> Tree:
    """The tree of an expression.

    Raises:
        NotUnderstood: the expression cannot be pickled, or its form is unknown.
        InvalidPredicateError: it is nested too deep.
    """
    return Pickled.of(expression).tree()


def _tree(
    entries: Iterator[tuple[str, str]], head: tuple[str, str], batch: pa.RecordBatch, depth: int
) -> Tree:
    check_depth(depth)
    kind, value = head
    if kind == "field_ref":
        return FieldRef((value,))
    if kind == "nested_field_ref":
        parts = [next(entries) for _ in range(int(value))]
        return FieldRef(tuple(name for _, name in parts))
    if kind == "literal":
        return Scalar(batch.column(int(value))[0])
    if kind != "call":
        raise NotUnderstood
    terms: list[Tree] = []
    options = None
    for entry in entries:
        if entry[0] == "end":
            return Call(value, tuple(terms), options)
        if entry[0] == "options":
            options = batch.column(int(entry[1]))[0]
        else:
            terms.append(_tree(entries, entry, batch, depth + 1))
    raise NotUnderstood


def top_level_names(tree: Tree) -> tuple[str, ...]:
    """The top-level columns that an expression names, in order of appearance."""
    return tuple(dict.fromkeys(_names(tree)))


def _names(tree: Tree) -> Iterator[str]:
    if isinstance(tree, FieldRef):
        yield tree.path[0]
    elif isinstance(tree, Call):
        for term in tree.terms:
            yield from _names(term)


def render(tree: Tree) -> str:
    """A tree as text for people."""
    if isinstance(tree, FieldRef):
        return ".".join(tree.path)
    if isinstance(tree, Scalar):
        try:
            return str(tree.value)
        except OverflowError:  # Python has no such moment
            return str(tree.value.cast(pa.string()))
    return f"{tree.name}({', '.join(render(term) for term in tree.terms)})"


def compute(expression: pc.Expression, table: pa.Table) -> pa.ChunkedArray:
    """The value of an expression on each row of a table that has at least one column.

    Raises:
        pa.ArrowException: the expression does not fit the table.
    """
    # Imported here: this loads Arrow's dataset module, which other conditions do not need.
    from pyarrow import acero

    rows = acero.Declaration("table_source", acero.TableSourceNodeOptions(table))
    values = acero.Declaration("project", acero.ProjectNodeOptions([expression], ["value"]), [rows])
    # One thread keeps the rows in order.
    return values.to_table(use_threads=False).column(0)


def on_rows(expression: pc.Expression, rows: pa.Table) -> pa.ChunkedArray:
    """The value of an expression that fits the rows, on each of them.

    Raises:
        InvalidPredicateError: it has no value on a row.
    """
    try:
        return compute(expression, rows)
    except pa.ArrowException as exc:
        # The rows are in memory, so only the expression can fail, by an overflow for example.
        raise InvalidPredicateError(
            reason=f"Arrow cannot evaluate it on a row ({exc})", text=str(expression)
        ) from exc


# --- What an Arrow expression implies in the condition language, for pruning.
#
# Arrow decides rows by its own rules: NaN equals nothing and is less than nothing, `is_in` is never
# NULL and tells -0.0 from 0.0. A translation holds on every row where the expression is true, and
# maybe on more rows. A part that has no translation implies nothing. Because of NOT, a part is
# translated for either truth value.


_OPERATORS = {
    "equal": "=",
    "not_equal": "!=",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}
AND = ("and_kleene", "and")
_OR = ("or_kleene", "or")
_NAN = float("nan")
_MATCH_NULL = 0  # of Arrow's SetLookupOptions: NULL in the list matches NULL


@dataclass(frozen=True, slots=True)
class Implied:
    """A condition that every row kept by an expression satisfies.

    `unused` are the conjuncts of the expression that the condition does not cover, as text.
    """

    condition: BoundNode
    unused: tuple[str, ...]


def implied(tree: Tree, schema: pa.Schema, bind: Callable[[Node], BoundNode]) -> Implied:
    """What an expression over `schema` implies. `bind` binds one node to the schema."""
    translator = _Translator(schema, bind)
    terms: list[BoundNode] = []
    unused: list[str] = []
    for conjunct in _conjuncts(tree):
        found = translator.when(conjunct, True)
        if found is None:
            unused.append(render(conjunct))
        else:
            terms.append(found)
    return Implied(conjunction(terms), tuple(unused))


def _conjuncts(tree: Tree) -> list[Tree]:
    """The terms of nested ANDs from left to right."""
    found: list[Tree] = []
    stack = [tree]
    while stack:
        top = stack.pop()
        if isinstance(top, Call) and top.name in AND:
            stack += reversed(top.terms)
        else:
            found.append(top)
    return found


@dataclass(frozen=True, slots=True)
class _Operand:
    """A column, or a column that is cast to a type in which every value stays the same."""

    column: Name
    stored: pa.DataType
    compared_as: pa.DataType


class _Translator:
    def __init__(self, schema: pa.Schema, bind: Callable[[Node], BoundNode]) -> None:
        self._schema = schema
        self._bind = bind

    def when(self, tree: Tree, truth: bool) -> BoundNode | None:
        """A condition that holds wherever `tree` is `truth`; None: nothing is known."""
        if isinstance(tree, Scalar):
            return _constant(tree.value.as_py() is truth)
        if isinstance(tree, FieldRef):
            operand = self._operand(tree)
            if operand is None or not pa.types.is_boolean(operand.stored):
                return None
            return self._leaf(compare(operand.column, "=", truth))
        if tree.name in AND or tree.name in _OR:
            return self._combined([self.when(t, truth) for t in tree.terms], tree.name, truth)
        if tree.name == "invert":
            return self.when(tree.terms[0], not truth)
        if tree.name == "if_else":
            return self._if_else(tree, truth)
        try:
            node = self._test(tree, truth)
        except InvalidPredicateError:  # a literal that the condition language does not have
            return None
        return None if node is None else self._leaf(node)

    def _combined(
        self, terms: Sequence[BoundNode | None], name: str, truth: bool
    ) -> BoundNode | None:
        # If an AND is true, both terms are true; if it is false, at least one term is false.
        if (name in AND) is truth:
            known = [term for term in terms if term is not None]
            return conjunction(known) if known else None
        alternatives = [term for term in terms if term is not None]
        return disjunction(alternatives) if len(alternatives) == len(terms) else None

    def _if_else(self, tree: Call, truth: bool) -> BoundNode | None:
        condition, then, otherwise = tree.terms
        branches = []
        for chosen, branch in ((True, then), (False, otherwise)):
            parts = [self.when(condition, chosen), self.when(branch, truth)]
            known = [part for part in parts if part is not None]
            if not known:
                return None
            branches.append(conjunction(known))
        return disjunction(branches)

    def _leaf(self, node: Node) -> BoundNode | None:
        try:
            return self._bind(node)
        except InvalidPredicateError:  # for example a column with a collation
            return None

    # --- operands ---

    def _operand(self, tree: Tree) -> _Operand | None:
        if isinstance(tree, FieldRef):
            type_ = self._type_of(tree)
            return None if type_ is None else _Operand(Name(tree.path), type_, type_)
        if isinstance(tree, Call) and tree.name == "cast" and tree.options is not None:
            inner = self._operand(tree.terms[0])
            to = tree.options["to_type"].type
            wraps = tree.options["allow_time_overflow"].as_py() and pa.types.is_temporal(to)
            if inner is not None and not wraps and _keeps_values(inner.compared_as, to):
                return _Operand(inner.column, inner.stored, to)
        return None

    def _type_of(self, tree: FieldRef) -> pa.DataType | None:
        fields = list(self._schema)
        type_ = None
        for name in tree.path:
            found = [field for field in fields if field.name == name]
            if len(found) != 1:
                return None
            type_ = found[0].type
            fields = children(type_)
        return type_

    # --- tests of one column ---

    def _test(self, tree: Call, truth: bool) -> Node | None:
        if tree.name in _OPERATORS and len(tree.terms) == 2:
            left, right = tree.terms
            op = _OPERATORS[tree.name]
            operand, value = self._operand(left), _folded(right)
            if operand is None:
                operand, value, op = self._operand(right), _folded(left), FLIPPED[op]
            if operand is None or value is None:
                return None
            return _comparison(operand, op, value, truth)
        operand = self._operand(tree.terms[0]) if tree.terms else None
        if operand is None:
            return None
        column, options = operand.column, tree.options
        is_float = pa.types.is_floating(operand.stored)
        if tree.name == "is_valid":
            return negated(is_null(column)) if truth else is_null(column)
        if tree.name == "is_null" and options is not None:
            nan_too = options["nan_is_null"].as_py() and is_float
            if truth:
                nan = compare(column, "=", _NAN)
                return any_of((is_null(column), nan)) if nan_too else is_null(column)
            return compare(column, "<", _NAN) if nan_too else negated(is_null(column))
        if tree.name == "is_nan" and is_float:
            return compare(column, "=" if truth else "<", _NAN)
        if tree.name == "is_in" and options is not None:
            return _is_in(operand, options, truth)
        if tree.name == "starts_with" and options is not None:
            return _starts_with(operand, options, truth)
        return None


def _constant(truth: bool) -> BoundConstant:
    return TRUE if truth else FALSE


def _folded(tree: Tree) -> pa.Scalar | None:
    """The value of a literal, or of a cast of one."""
    if isinstance(tree, Scalar):
        return tree.value
    if isinstance(tree, Call) and tree.name == "cast" and tree.options is not None:
        value = _folded(tree.terms[0])
        if value is not None:
            try:
                return value.cast(tree.options["to_type"].type)
            except pa.ArrowException:
                return None
    return None


def _comparison(operand: _Operand, op: str, value: pa.Scalar, truth: bool) -> Node | None:
    if not value.is_valid:
        return constant(False)  # a comparison with NULL is neither true nor false
    if not _compares_alike(domain(operand.compared_as), value):
        return None
    column, found = operand.column, literal(value)
    if found != found:  # NaN: in Arrow only != is true, on every value
        return negated(is_null(column)) if (op == "!=") is truth else constant(False)
    node = compare(column, op if truth else OPPOSITE[op], found)
    if not pa.types.is_floating(operand.stored):
        return node
    # In the condition language NaN is greater than every number.
    if truth and op in (">", ">="):
        return all_of((node, compare(column, "<", _NAN)))
    if not truth and op in (">", ">="):
        return any_of((node, compare(column, "=", _NAN)))
    return node


def _compares_alike(column: Domain, value: pa.Scalar) -> bool:
    """Tell whether Arrow compares a column and a literal by their exact values.

    Arrow finds a common type first. If this may round a value, or Arrow refuses the pair, nothing
    is implied.
    """
    other = domain(value.type)
    if {column.kind, other.kind} == {"date", "timestamp"}:
        return not (column.zoned or other.zoned)
    if column.kind == "int":
        if other.kind == "int":
            # Signed and unsigned integers of 64 bits have no common type.
            return bool(column.low <= value.as_py() or column.high <= 1 << 63)
        return other.kind in ("decimal", "float") and value.as_py() == value.as_py()
    if column.kind == "decimal":
        return other.kind in ("int", "decimal")
    if column.kind == "float" and column.bits > 16:
        exact = 1 << (24 if column.bits == 32 else 53)
        return other.kind == "float" or (other.kind == "int" and abs(value.as_py()) <= exact)
    alike = column.kind == other.kind and column.zoned == other.zoned
    return alike and column.ordered and column.kind != "float"


def _is_in(operand: _Operand, options: pa.StructScalar, truth: bool) -> Node | None:
    values = options["value_set"].values
    column = operand.column
    if not _lists_alike(operand.compared_as, values.type):
        return None
    matches_null = values.null_count > 0 and options["null_matching_behavior"].as_py() == (
        _MATCH_NULL
    )
    listed = [literal(value) for value in values.drop_null()]
    if truth:
        found = is_in(column, listed)
        return any_of((found, is_null(column))) if matches_null else found
    # Arrow tells -0.0 from 0.0, and may tell one NaN from another: such rows stay.
    missed = negated(is_in(column, (value for value in listed if not _has_twins(value))))
    return missed if matches_null else any_of((missed, is_null(column)))


def _lists_alike(column: pa.DataType, listed: pa.DataType) -> bool:
    """Tell whether Arrow looks a column's values up in a list by their exact values.

    Arrow casts the list to the column's type; if this may round, nothing is implied.
    """
    mine, other = domain(column), domain(listed)
    if column == listed:
        return mine.ordered
    if mine.kind != other.kind or mine.zoned != other.zoned:
        return False
    if mine.kind == "decimal":
        return mine.scale >= other.scale
    if mine.temporal and mine.kind != "date":
        return other.unit_ns % mine.unit_ns == 0
    return mine.kind in ("int", "string", "binary")


def _has_twins(value: Any) -> bool:
    """Tell whether several bit patterns are this value to the condition language."""
    return isinstance(value, float) and (value == 0 or value != value)


def _starts_with(operand: _Operand, options: pa.StructScalar, truth: bool) -> Node | None:
    if options["ignore_case"].as_py() or domain(operand.stored).kind not in ("string", "binary"):
        return None
    found = matches("startswith", operand.column, options["pattern"].as_py())
    return found if truth else negated(found)


def _keeps_values(stored: pa.DataType, to: pa.DataType) -> bool:
    """Tell whether Arrow's checked cast keeps each value, or raises.

    A finer unit of time has a shorter range. Arrow raises for a moment outside this range.
    """
    t = pa.types
    if t.is_temporal(to) and fit(stored, to) is Fit.CHECKED:
        return True
    for text, large in ((t.is_string, t.is_large_string), (t.is_binary, t.is_large_binary)):
        if text(stored) or large(stored):
            return bool(text(to) or large(to))
    return fit(stored, to) is Fit.EVERY

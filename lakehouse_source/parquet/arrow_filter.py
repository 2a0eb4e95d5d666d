"""Edge. Arrow expressions with the meaning of engines: NaN is the greatest number, IN knows NULL.

In Arrow's kernels NaN neither equals nor is less than any value, and `is_in` is false for NULL.
Polars and DataFusion translate their conditions to these kernels although they mean something else,
and do not check the rows again. So an expression is read, rebuilt to check the reading, and then
rewritten.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from lakehouse_source.errors import InvalidPredicateError
from lakehouse_source.language.conditions.arrow_expressions import (
    Call,
    FieldRef,
    NotUnderstood,
    Scalar,
    Tree,
    read,
    top_level_names,
)
from lakehouse_source.schema.fields import children

_COMPARISONS = {
    "equal": pc.equal,
    "not_equal": pc.not_equal,
    "less": pc.less,
    "less_equal": pc.less_equal,
    "greater": pc.greater,
    "greater_equal": pc.greater_equal,
}
_PLAIN = {
    "and_kleene": pc.and_kleene,
    "or_kleene": pc.or_kleene,
    # `pc.and_` and `pc.or_` build calls of `and_` and `or_`, which do not exist (PyArrow 26).
    "and": lambda *terms: pc.Expression._call("and", list(terms)),
    "or": lambda *terms: pc.Expression._call("or", list(terms)),
    "invert": pc.invert,
    "is_valid": pc.is_valid,
    "is_nan": pc.is_nan,
    "if_else": pc.if_else,
}


def names_any(expression: pc.Expression, schema: pa.Schema, names: frozenset[str]) -> bool:
    """Tell whether an expression over `schema` names one of the top-level columns `names`."""
    rest = pa.schema([field for field in schema if field.name not in names])
    try:
        ds.dataset(rest.empty_table()).scanner(filter=expression)
    except (pa.ArrowException, ValueError, KeyError):
        return True
    return False


def as_engines_mean(
    expression: pc.Expression, schema: pa.Schema
) -> tuple[pc.Expression, tuple[str, ...]]:
    """The expression rewritten, and the top-level columns that it names."""
    try:
        tree = read(expression)
        again = _build(tree, None)
        # A list with NaN is not equal to itself, but prints alike.
        if not again.equals(expression) and str(again) != str(expression):
            raise NotUnderstood
        return _build(tree, schema), top_level_names(tree)
    except (NotUnderstood, LookupError, ValueError, TypeError, pa.ArrowException) as exc:
        raise InvalidPredicateError(
            reason=f"the filter {expression} may concern NaN, which Arrow and other engines "
            "compare differently. Give the condition as predicates= when opening the dataset "
            "(with Polars: scan_pyarrow_dataset(…, allow_pyarrow_filter=False))"
        ) from exc


# --- building ---------------------------------------------------------------


def _build(node: Tree, schema: pa.Schema | None) -> pc.Expression:
    """The same expression; with a schema, floats are compared in the order of engines."""
    if isinstance(node, FieldRef):
        return pc.field(*node.path) if len(node.path) > 1 else pc.field(node.path)
    if isinstance(node, Scalar):
        return pc.scalar(node.value)
    terms = [_build(term, schema) for term in node.terms]
    if node.name in _PLAIN and node.options is None:
        return _PLAIN[node.name](*terms)
    if node.name == "is_null" and node.options is not None:
        return pc.is_null(terms[0], nan_is_null=node.options["nan_is_null"].as_py())
    if node.name == "is_in" and node.options is not None:
        return _is_in(node, terms[0], schema)
    if node.name not in _COMPARISONS or node.options is not None:
        raise NotUnderstood
    if schema is None or not any(_is_float(term, schema) for term in node.terms):
        return _COMPARISONS[node.name](*terms)
    return _compared(node.name, *terms, *(_nan(term, schema) for term in node.terms))


def _compared(
    op: str, a: pc.Expression, b: pc.Expression, a_nan: pc.Expression, b_nan: pc.Expression
) -> pc.Expression:
    """A comparison of floats; NULL stays NULL, because the test for NaN is NULL there too."""
    if op == "not_equal":
        return pc.invert(_compared("equal", a, b, a_nan, b_nan))
    if op in ("less", "less_equal"):
        return _compared(op.replace("less", "greater"), b, a, b_nan, a_nan)
    extra = {
        "equal": pc.and_kleene(a_nan, b_nan),
        "greater": pc.and_kleene(a_nan, pc.invert(b_nan)),
        "greater_equal": a_nan,
    }[op]
    # With a NULL on either side the kernel gives NULL, and the rest must be NULL too.
    both = pc.and_kleene(pc.is_valid(a), pc.is_valid(b))
    return pc.or_kleene(_COMPARISONS[op](a, b), pc.and_kleene(both, extra))


def _is_in(node: Call, term: pc.Expression, schema: pa.Schema | None) -> pc.Expression:
    options = node.options
    assert options is not None
    if options["null_matching_behavior"].as_py() != 0:
        raise NotUnderstood
    values = options["value_set"].values
    if schema is None:
        return pc.is_in(term, value_set=values)
    if pa.types.is_floating(values.type) and 0.0 in values.to_pylist():
        both = pa.array([0.0, -0.0], values.type)
        values = pa.concat_arrays([values, both])
    found = pc.is_in(term, value_set=values)
    if values.null_count:  # Arrow itself tests for NULL like this too
        return found
    return pc.if_else(pc.is_valid(term), found, pc.scalar(pa.scalar(None, pa.bool_())))


def _is_float(node: Tree, schema: pa.Schema) -> bool:
    if isinstance(node, Scalar):
        return bool(pa.types.is_floating(node.value.type))
    if isinstance(node, Call):
        raise NotUnderstood  # the type of a computed value is not known here
    return bool(pa.types.is_floating(_type_of(node, schema)))


def _type_of(node: FieldRef, schema: pa.Schema) -> pa.DataType:
    fields = list(schema)
    for name in node.path:
        (found,) = [field for field in fields if field.name == name]
        fields = children(found.type)
    return found.type


def _nan(node: Tree, schema: pa.Schema) -> pc.Expression:
    if isinstance(node, Scalar):
        value = node.value.as_py()
        return pc.scalar(isinstance(value, float) and value != value)
    if not _is_float(node, schema):
        return pc.scalar(False)
    return pc.is_nan(_build(node, None))

"""Pure. AND, OR, NOT, CASE and COALESCE, evaluated per row from left to right as in Spark."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.language.functions.rows import (
    Bound,
    Rows,
    indices_where,
    run_where,
    scatter,
    strict,
)
from lakehouse_source.language.tree.nodes import Node


def all_true(node: Node, terms: Sequence[Bound]) -> Bound:
    """`a AND b`: later terms are not evaluated on a row that is FALSE already."""
    return _chain(node, terms, stops_at=False)


def any_true(node: Node, terms: Sequence[Bound]) -> Bound:
    """`a OR b`: later terms are not evaluated on a row that is TRUE already."""
    return _chain(node, terms, stops_at=True)


def _chain(node: Node, terms: Sequence[Bound], *, stops_at: bool) -> Bound:
    combine = pc.or_kleene if stops_at else pc.and_kleene

    def run(rows: Rows) -> pa.Array:
        found = terms[0].run(rows)
        for term in terms[1:]:
            if term.can_fail:
                settled = found if stops_at else pc.invert(found)
                asks = pc.invert(pc.fill_null(settled, False))
                found = combine(found, run_where(term, rows, asks))
            else:
                found = combine(found, term.run(rows))
        return found

    return Bound(node, pa.bool_(), run, any(term.can_fail for term in terms))


def negation(node: Node, value: Bound) -> Bound:
    """NOT; NULL stays NULL."""
    return strict(node, pa.bool_(), [value], pc.invert, can_fail=False)


def choice(node: Node, branches: Sequence[tuple[Bound, Bound]], otherwise: Bound) -> Bound:
    """The value of the first branch whose condition is TRUE. Other branches are not evaluated."""
    parts = [part for branch in branches for part in branch]
    can_fail = any(part.can_fail for part in (*parts, otherwise))

    def run(rows: Rows) -> pa.Array:
        waiting = pa.array(range(rows.count), pa.int64())
        found: list[tuple[pa.Array, pa.Array]] = []
        left = rows
        for condition, value in branches:
            if not len(waiting):
                break
            hit = pc.fill_null(condition.run(left), False)
            taken = indices_where(hit)
            if len(taken) == len(waiting):
                return scatter([*found, (waiting, value.run(left))], value.type)
            if len(taken):
                found.append((waiting.take(taken), value.run(left.take(taken))))
                rest = indices_where(pc.invert(hit))
                waiting, left = waiting.take(rest), left.take(rest)
        if len(waiting):
            found.append((waiting, otherwise.run(left)))
        return scatter(found, otherwise.type)

    return Bound(node, otherwise.type, run, can_fail)


def first_valid(node: Node, values: Sequence[Bound]) -> Bound:
    """COALESCE: arguments after the first value that is not NULL are not evaluated."""

    def run(rows: Rows) -> pa.Array:
        found = values[0].run(rows)
        for value in values[1:]:
            missing = pc.is_null(found)
            if not found.null_count:
                break
            other = run_where(value, rows, missing) if value.can_fail else value.run(rows)
            found = pc.if_else(missing, other, found)
        return found

    return Bound(node, values[0].type, run, any(value.can_fail for value in values))

"""Pure. A condition as ranges of byte keys, for a search in a catalog's index.

The search finds a superset of the files that hold a matching row. A term that is not a range of one
column is left out of an AND, and an OR with such a term cannot be searched. `evaluate` then decides
the files that were found.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping

from lakehouse_source.language.bounds.bound import (
    BoundAnd,
    BoundColumn,
    BoundColumns,
    BoundCompare,
    BoundConstant,
    BoundExpression,
    BoundIn,
    BoundIsNull,
    BoundLike,
    BoundNode,
    BoundNot,
    BoundOr,
    BoundPredicate,
    BoundText,
    IfPresent,
)
from lakehouse_source.model import Ordinal
from lakehouse_source.pruning.keys import (
    ABOVE,
    KEY_LIMIT,
    KeyRange,
    Search,
    SearchAll,
    SearchAny,
    SearchRanges,
    Span,
    disjoint,
    encoding,
    key,
    one_per_column,
    prefix_range,
    upper_key,
)

# More ranges than this are joined across the smallest gaps between them.
MAX_RANGES = 65_536

# Below the lower end of the interval of all-null columns, above every key.
_HIGHEST = b"\xff" * 39
_ANY_VALUE = KeyRange(None, _HIGHEST)


class _Never:
    """No row can match, so the term adds nothing to an OR."""


_NEVER = _Never()


def search(
    predicate: BoundPredicate, indexed: Mapping[int, str | None] | Container[int]
) -> Search | None:
    """The search of the index for a condition; None: the index cannot narrow files.

    `indexed` holds the ids of the columns that have index rows. A mapping also gives
    the encoding (`keys.encoding`) of their keys, and a column whose current encoding
    differs is not searched. The result is also None for a condition that no row can match
    (`predicate.never_true`): then callers skip the search.
    """
    found = _search(predicate.root, indexed)
    if found is None or isinstance(found, _Never):
        return None
    defaults = {column.id: column for column in predicate.leaves if column.default is not None}
    return _without_defaults(found, defaults) if defaults else found


def _without_defaults(found: Search, defaults: Mapping[int, BoundColumn]) -> Search | None:
    """The search without terms that the default of a column satisfies.

    Files without the column have no row in its index.
    """
    if isinstance(found, SearchRanges):
        column = defaults.get(found.column_id)
        if column is None or column.default is None:
            return found
        lower, upper = key(column.default, column.type), upper_key(column.default, column.type)
        satisfied = any(
            (one.upper is None or lower <= one.upper) and (one.lower is None or one.lower <= upper)
            for one in found.ranges
        )
        return None if satisfied else found
    terms = [_without_defaults(term, defaults) for term in found.terms]
    left = tuple(term for term in terms if term is not None)
    if isinstance(found, SearchAny):
        return SearchAny(left) if len(left) == len(terms) else None
    if len(left) <= 1:
        return left[0] if left else None
    return SearchAll(left)


def _search(
    node: BoundNode, indexed: Mapping[int, str | None] | Container[int]
) -> Search | _Never | None:
    if isinstance(node, BoundAnd):
        return _all([_search(term, indexed) for term in node.terms])
    if isinstance(node, BoundOr):
        return _any([_search(term, indexed) for term in node.terms])
    if isinstance(node, BoundConstant):
        return None if node.value else _NEVER
    if isinstance(node, BoundExpression):
        return _search(node.implied, indexed)
    if isinstance(node, BoundColumns):
        return None
    if isinstance(node, BoundNot):
        if isinstance(node.term, BoundIsNull):
            return _ranges(node.term.column, [_ANY_VALUE], indexed)
        return None
    if isinstance(node, IfPresent):
        return _ranges(node.column, [_ANY_VALUE], indexed) if node.truth else _NEVER
    if isinstance(node, BoundCompare):
        return _ranges(node.column, _compare(node), indexed)
    if isinstance(node, BoundIn):  # a list may be long: make keys only if needed
        return _ranges(node.column, _in(node), indexed) if node.column.id in indexed else None
    if isinstance(node, BoundText) and node.form == "prefix":
        lower, upper = prefix_range(node.text, node.column.type)
        return _ranges(node.column, [KeyRange(lower, min(upper, _HIGHEST))], indexed)
    if isinstance(node, (BoundText, BoundLike)):
        return _ranges(node.column, [_ANY_VALUE], indexed)
    return None  # IS NULL: files that have no row in the index match too


def certain(predicate: BoundPredicate, indexed: Container[int]) -> Search | None:
    """The search whose ranges must *contain* a file's bounds, so that all rows match.

    Besides, no column of the search may have a NULL in the file. None: bounds in the index do not
    decide this.
    """
    found = _certain(predicate.root, indexed)
    return None if isinstance(found, _Never) else found


def _certain(node: BoundNode, indexed: Container[int]) -> Search | _Never | None:
    if isinstance(node, BoundAnd):
        terms = [_certain(term, indexed) for term in node.terms]
        return None if None in terms else _all(terms)
    if isinstance(node, BoundOr):
        terms = [_certain(term, indexed) for term in node.terms]
        return _any([term for term in terms if term is not None]) if any(terms) else None
    if isinstance(node, BoundNot) and isinstance(node.term, BoundIsNull):
        return _ranges(node.term.column, [_ANY_VALUE], indexed)
    if not isinstance(node, BoundCompare):
        return None
    value = node.value
    if isinstance(value, float) and not math.isfinite(value):
        return None  # `_after` and `_before` have no next value
    if isinstance(value, bytes) and (len(value) >= KEY_LIMIT or node.op == "<"):
        return None  # its key is cut, or the range holds the value itself
    return _ranges(node.column, _compare(node), indexed)


def _ranges(
    column: BoundColumn,
    ranges: list[KeyRange] | None,
    indexed: Mapping[int, str | None] | Container[int],
) -> Search | None:
    if ranges is None or column.id not in indexed or column.kind == "nested":
        return None
    name = encoding(column.type)
    if name is None:
        return None
    if isinstance(indexed, Mapping) and indexed[column.id] != name:
        return None
    return SearchRanges(column.id, merged(ranges))


def _compare(node: BoundCompare) -> list[KeyRange] | None:
    op, value, type_ = node.op, node.value, node.column.type
    if op == "!=":
        return None
    if op in ("=", "<=>"):
        return [KeyRange(key(value, type_), upper_key(value, type_))]
    if op in (">", ">="):
        return [KeyRange(key(_after(value) if op == ">" else value, type_), None)]
    if value != value:  # less than NaN: every number
        return [KeyRange(None, key(math.inf, type_))]
    return [KeyRange(None, upper_key(_before(value) if op == "<" else value, type_))]


def _after(value: Ordinal) -> Ordinal:
    """The next value above `value`."""
    if isinstance(value, bytes):
        return value + b"\x00"
    return value + 1 if isinstance(value, int) else math.nextafter(value, math.inf)


def _before(value: Ordinal) -> Ordinal:
    """The next value below `value`; for text and bytes, which have none, the value itself."""
    if isinstance(value, bytes):
        return value
    return value - 1 if isinstance(value, int) else math.nextafter(value, -math.inf)


def _in(node: BoundIn) -> list[KeyRange]:
    type_ = node.column.type
    values = list(node.values)
    if node.has_nan:
        values.append(math.nan)
    if values and isinstance(values[0], bytes):
        return [KeyRange(key(value, type_), upper_key(value, type_)) for value in values]
    return [KeyRange(only, only) for only in (key(value, type_) for value in values)]


# --- combining --------------------------------------------------------------


def merged(ranges: Iterable[KeyRange], most: int = MAX_RANGES) -> tuple[KeyRange, ...]:
    """The ranges in order, overlapping ones joined, at most `most` of them."""
    spans = disjoint(ranges)
    if len(spans) > most:
        spans = _joined(spans, most)
    if spans == [(b"", ABOVE)]:  # open on both sides, so that all-null files are left out
        return (_ANY_VALUE,)
    return tuple(
        KeyRange(lower or None, None if upper == ABOVE else upper) for lower, upper in spans
    )


def _joined(spans: list[Span], most: int) -> list[Span]:
    """At most `most` spans: only the widest gaps between them stay."""

    def number(key: bytes) -> int:
        return int.from_bytes(key.ljust(40, b"\x00"), "big")

    gaps = [number(spans[i + 1][0]) - number(spans[i][1]) for i in range(len(spans) - 1)]
    widest = sorted(range(len(gaps)), key=gaps.__getitem__, reverse=True)[: most - 1]
    result, start = [], 0
    for end in [*sorted(widest), len(spans) - 1]:
        result.append((spans[start][0], spans[end][1]))
        start = end + 1
    return result


def _any(found: list[Search | _Never | None]) -> Search | _Never | None:
    """OR: each branch must be searchable; the ranges of one column become one term."""
    if any(branch is None for branch in found):
        return None
    branches = [branch for branch in found if branch is not None]
    terms = one_per_column(branch for branch in branches if not isinstance(branch, _Never))
    if not terms:
        return _NEVER
    terms = [
        SearchRanges(term.column_id, merged(term.ranges))
        if isinstance(term, SearchRanges)
        else term
        for term in terms
    ]
    return terms[0] if len(terms) == 1 else SearchAny(tuple(terms))


def _all(found: list[Search | _Never | None]) -> Search | _Never | None:
    """AND: the searchable branches; the ranges of one column are intersected."""
    by_column: dict[int, tuple[KeyRange, ...]] = {}
    others: list[Search] = []
    for branch in found:
        if isinstance(branch, _Never):
            return _NEVER
        if isinstance(branch, SearchRanges):
            before = by_column.get(branch.column_id)
            ranges = branch.ranges if before is None else _cut(before, branch.ranges)
            if ranges:
                by_column[branch.column_id] = ranges
            else:  # disjoint ranges: files that overlap both may still match
                others.append(branch)
        elif isinstance(branch, SearchAll):
            others += branch.terms
        elif branch is not None:
            others.append(branch)
    terms: list[Search] = [SearchRanges(id, ranges) for id, ranges in by_column.items()]
    terms += others
    if not terms:
        return None
    return terms[0] if len(terms) == 1 else SearchAll(tuple(terms))


def _cut(left: tuple[KeyRange, ...], right: tuple[KeyRange, ...]) -> tuple[KeyRange, ...]:
    """The intersection of two ascending lists of ranges."""
    result: list[KeyRange] = []
    i = j = 0
    while i < len(left) and j < len(right):
        a, b = left[i], right[j]
        lower = max(a.lower or b"", b.lower or b"")
        uppers = [upper for upper in (a.upper, b.upper) if upper is not None]
        upper = min(uppers) if uppers else None
        if upper is None or lower <= upper:
            result.append(KeyRange(lower or None, upper))
        if a.upper is None or (b.upper is not None and b.upper <= a.upper):
            j += 1
        else:
            i += 1
    return tuple(result)

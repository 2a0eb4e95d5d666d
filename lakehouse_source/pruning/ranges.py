"""Pure. Puts ranges of byte keys in order, and flattens the terms of an OR."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import TypeAlias

from lakehouse_source.model import KeyRange, Search, SearchAny, SearchRanges
from lakehouse_source.pruning.index_levels import ABOVE

# The lowest and the highest key of a range; both belong to it.
Span: TypeAlias = tuple[bytes, bytes]


def disjoint(ranges: Iterable[KeyRange]) -> list[Span]:
    """The same keys as ranges that are ordered and do not overlap.

    A missing lower key becomes the empty key, which is below all others, and a missing
    upper key becomes `ABOVE`.
    """
    merged: list[Span] = []
    pairs = ((r.lower or b"", ABOVE if r.upper is None else r.upper) for r in ranges)
    for lower, upper in sorted(pairs, key=itemgetter(0)):
        if lower > upper:
            continue
        if merged and lower <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], upper))
        else:
            merged.append((lower, upper))
    return merged


def one_per_column(terms: Iterable[Search]) -> list[Search]:
    """The terms of an OR without ORs among them; ranges of one column become one term."""
    ranges: dict[int, list[KeyRange]] = {}
    others: list[Search] = []
    for term in _flat(terms):
        if isinstance(term, SearchRanges):
            ranges.setdefault(term.column_id, []).extend(term.ranges)
        else:
            others.append(term)
    return [*(SearchRanges(column, tuple(found)) for column, found in ranges.items()), *others]


def _flat(terms: Iterable[Search]) -> Iterator[Search]:
    for term in terms:
        if isinstance(term, SearchAny):
            yield from _flat(term.terms)
        else:
            yield term

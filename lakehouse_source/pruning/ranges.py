"""Pure. What the search index is asked: ranges of byte keys, and AND and OR of such terms."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import TypeAlias

from lakehouse_source.pruning.index_levels import ABOVE

# The lowest and the highest key of a range; both belong to it.
Span: TypeAlias = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Keys between `lower` and `upper`, both inclusive; None is unbounded."""

    lower: bytes | None
    upper: bytes | None


@dataclass(frozen=True, slots=True)
class SearchRanges:
    """Files whose bounds of `column_id` overlap at least one of `ranges`.

    A file that has no row in the index for that column does not match, because it holds
    no value of the column.
    """

    column_id: int
    ranges: tuple[KeyRange, ...]


@dataclass(frozen=True, slots=True)
class SearchAll:
    """Files that match every one of `terms` (at least one)."""

    terms: tuple[Search, ...]


@dataclass(frozen=True, slots=True)
class SearchAny:
    """Files that match at least one of `terms` (at least one)."""

    terms: tuple[Search, ...]


Search: TypeAlias = SearchRanges | SearchAll | SearchAny


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

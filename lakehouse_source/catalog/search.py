"""Turns a search tree into one SELECT of file ids over the bounds index.

The answer is exact with respect to the index: precisely the files whose keys
overlap what is asked for.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from lakehouse_source.catalog import statements as sql
from lakehouse_source.catalog.session import Row, Session
from lakehouse_source.model import KeyRange, Search, SearchAll, SearchAny, SearchRanges

# Up to here each range is an index scan of its own; above, one scan over all of
# them is cheaper, and a statement stays far from the limits on its parameters
# and on compound SELECTs.
_MOST_SCANS = 8
_MOST_TERMS = 50
# Up to so many files that one condition of an AND leaves, the other conditions are
# checked file by file.
_FEW_FILES = 1000


@dataclass(frozen=True, slots=True)
class Found:
    """A SELECT whose first column is `file_id`, and its values."""

    statement: str
    values: tuple[Any, ...]


def compile_search(session: Session, dataset_id: int, search: Search) -> Found:
    """The SELECT that finds the files of `search`; it may run queries of its own."""
    if isinstance(search, SearchRanges):
        return _ranges(session, dataset_id, search.column_id, disjoint(search.ranges))
    if isinstance(search, SearchAll):
        return _all(session, dataset_id, search.terms)
    return _combined(session, dataset_id, _one_per_column(search.terms), " UNION ")


def _all(session: Session, dataset_id: int, terms: Sequence[Search]) -> Found:
    """An AND. A condition that leaves few files spares the others their index scans.

    Which one that is cannot be known before: each is asked for its first files.
    """
    leaves = [term for term in terms if isinstance(term, SearchRanges)]
    others = [term for term in terms if not isinstance(term, SearchRanges)]
    leaves.sort(key=lambda leaf: len(leaf.ranges))
    few: list[int] | None = None
    checked_later: list[SearchRanges] = []
    for leaf in leaves:
        if few is not None:
            few = _those_overlapping(session, leaf, few)
            continue
        few = _first_files(session, dataset_id, leaf)
        if few is None:
            checked_later.append(leaf)
    if few is None:
        return _combined(session, dataset_id, [*checked_later, *others], " INTERSECT ")
    for leaf in checked_later:
        few = _those_overlapping(session, leaf, few)
    if not few:
        return Found(sql.NO_FILE, ())
    parts = [_compiled_ids(session, few)]
    parts += [compile_search(session, dataset_id, term) for term in others]
    return _merged(parts, " INTERSECT ")


def _first_files(session: Session, dataset_id: int, leaf: SearchRanges) -> list[int] | None:
    """The files of a condition where they are few, else None."""
    ranges = disjoint(leaf.ranges)
    if len(ranges) > _MOST_SCANS:
        found = _overlapping_any(session, dataset_id, leaf.column_id, ranges)
        return found if len(found) <= _FEW_FILES else None
    part = _ranges(session, dataset_id, leaf.column_id, ranges)
    statement = f"{part.statement} LIMIT {_FEW_FILES + 1}"
    rows = session.query(statement, part.values)
    return [row[0] for row in rows] if len(rows) <= _FEW_FILES else None


def _those_overlapping(session: Session, leaf: SearchRanges, ids: Sequence[int]) -> list[int]:
    if not ids:
        return []
    rows = session.query(sql.BOUNDS_OF_FILES, (session.id_list(ids), leaf.column_id))
    return _overlapping(rows, disjoint(leaf.ranges))


def _compiled_ids(session: Session, ids: Sequence[int]) -> Found:
    return Found(session.dialect.ids, (session.id_list(ids),))


def _combined(session: Session, dataset_id: int, terms: Sequence[Search], operator: str) -> Found:
    return _merged([compile_search(session, dataset_id, term) for term in terms], operator)


def _merged(parts: Sequence[Found], operator: str) -> Found:
    while len(parts) > 1:
        parts = [
            _joined(parts[start : start + _MOST_TERMS], operator)
            for start in range(0, len(parts), _MOST_TERMS)
        ]
    return parts[0]


def _joined(parts: Sequence[Found], operator: str) -> Found:
    if len(parts) == 1:
        return parts[0]
    # Nested and named, because compound SELECTs have no parentheses in SQLite.
    statement = operator.join(f"SELECT file_id FROM ({part.statement}) AS t" for part in parts)
    return Found(statement, tuple(value for part in parts for value in part.values))


def _one_per_column(terms: Iterable[Search]) -> list[Search]:
    """The terms of an OR, with those over one column made into one."""
    ranges: dict[int, list[KeyRange]] = {}
    others: list[Search] = []
    for term in _alternatives(terms):
        if isinstance(term, SearchRanges):
            ranges.setdefault(term.column_id, []).extend(term.ranges)
        else:
            others.append(term)
    return [*(SearchRanges(column, tuple(all_)) for column, all_ in ranges.items()), *others]


def _alternatives(terms: Iterable[Search]) -> Iterator[Search]:
    for term in terms:
        if isinstance(term, SearchAny):
            yield from _alternatives(term.terms)
        else:
            yield term


def disjoint(ranges: Iterable[KeyRange]) -> list[tuple[bytes, bytes | None]]:
    """The same keys as ranges that are ordered and do not overlap.

    No lower key becomes the empty one, which is below all others; only the last
    range can be without an upper key.
    """
    pairs = [
        (r.lower or b"", r.upper) for r in ranges if r.upper is None or (r.lower or b"") <= r.upper
    ]
    merged: list[tuple[bytes, bytes | None]] = []
    for lower, upper in sorted(pairs, key=lambda pair: pair[0]):
        if merged:
            below, last = merged[-1]
            if last is None:
                break
            if lower <= last:
                merged[-1] = (below, None if upper is None else max(last, upper))
                continue
        merged.append((lower, upper))
    return merged


def _ranges(
    session: Session,
    dataset_id: int,
    column_id: int,
    ranges: Sequence[tuple[bytes, bytes | None]],
) -> Found:
    if not ranges:
        return Found(sql.NO_FILE, ())
    if len(ranges) > _MOST_SCANS:
        ids = _overlapping_any(session, dataset_id, column_id, ranges)
        return _compiled_ids(session, ids)
    return _joined([_range(dataset_id, column_id, *pair) for pair in ranges], " UNION ")


def _range(dataset_id: int, column_id: int, lower: bytes, upper: bytes | None) -> Found:
    if upper is None:
        return Found(sql.OVERLAPPING_ABOVE, (dataset_id, column_id, lower))
    return Found(sql.OVERLAPPING, (dataset_id, column_id, lower, upper))


def _overlapping_any(
    session: Session,
    dataset_id: int,
    column_id: int,
    ranges: Sequence[tuple[bytes, bytes | None]],
) -> list[int]:
    """The files that overlap one of many ranges: one scan, a binary search per file."""
    whole = _range(dataset_id, column_id, ranges[0][0], ranges[-1][1])
    statement = sql.BOUNDS_ABOVE if ranges[-1][1] is None else sql.BOUNDS_WITHIN
    return _overlapping(session.query(statement, whole.values), ranges)


def _overlapping(bounds: Iterable[Row], ranges: Sequence[tuple[bytes, bytes | None]]) -> list[int]:
    """The ids among `bounds` (lower, upper, id) that overlap one of the disjoint ranges."""
    lowers = [lower for lower, _upper in ranges]
    found: list[int] = []
    for lower, upper, file_id in bounds:
        # The last range that starts at or below the file's upper key ends above
        # its lower key, or no range overlaps the file.
        nearest = bisect_right(lowers, upper) - 1
        if nearest >= 0:
            end = ranges[nearest][1]
            if end is None or end >= lower:
                found.append(file_id)
    return found

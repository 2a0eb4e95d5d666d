"""Turns a search tree into one SELECT of file ids over the bounds index.

The answer is exact with respect to the index: the files whose keys overlap the ranges of
the search, and no others. The cost grows with the answer, not with the table: each level of the
index (pruning/keys.py) is searched separately, from the first file that ends at or above
the start of a range to the last file that can begin in the range.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import and_
from typing import Any

from lakehouse_source.catalog.sql import statements as sql
from lakehouse_source.catalog.sql.statements import Row, Session
from lakehouse_source.pruning.keys import (
    Search,
    SearchAll,
    SearchRanges,
    Span,
    disjoint,
    one_per_column,
    spans,
)

# A condition of up to this many ranges is part of the statement. The files of a condition with more
# ranges are looked up before.
_MOST_RANGES = 8
# The same for the terms of an AND or OR, and for values: SQLite allows 32,766.
_MOST_TERMS = 50
_MOST_VALUES = 8000
# Spans of one statement: four values each, or four lists of values.
_SPANS_AT_ONCE = 200
_SPANS_IN_LISTS = 10_000
# Reading this many rows of the index takes as long as looking for one range in it.
_ROWS_PER_RANGE = 10
# If one condition of an AND matches at most this many files, the other conditions are checked file
# by file. The second number is used only if no condition matches at most the first number.
_FEW_FILES = (1000, 20_000)
# Checking a file takes as long as reading this many neighbouring rows of the index.
_ROWS_PER_FILE = 16
# The conditions of one search whose files are kept for its other terms: each has up to 20,001.
_MOST_KEPT = 50


@dataclass(frozen=True, slots=True)
class Found:
    """A SELECT whose first column is `file_id`, or another part of a statement, and its values.

    `ids`: what the SELECT gives, if that was looked up already.
    """

    statement: str
    values: tuple[Any, ...]
    ids: Sequence[int] | None = None


_NO_FILE = Found(sql.NO_FILE, (), ())


@dataclass(frozen=True, slots=True)
class _Index:
    """The index of one dataset, and what one search has read of it.

    The terms of an OR of ANDs often share a condition: `(a = 1 AND b = 1) OR (a = 1 AND b = 2)`.
    """

    session: Session
    dataset_id: int
    first_files: dict[tuple[SearchRanges, int], list[int]] = field(default_factory=dict)
    levels: dict[int, list[int]] = field(default_factory=dict)


def compile_search(session: Session, dataset_id: int, search: Search) -> Found:
    """The SELECT that finds the files of `search`; it may run queries of its own."""
    return _compiled(_Index(session, dataset_id), search)


def _compiled(index: _Index, search: Search) -> Found:
    if isinstance(search, SearchRanges):
        return _ranges(index, search.column_id, disjoint(search.ranges))
    if isinstance(search, SearchAll):
        return _all(index, search.terms)
    terms = one_per_column(search.terms)
    return _merged(index.session, [_compiled(index, term) for term in terms], "UNION")


def compile_certain(search: Search) -> Found | None:
    """A condition on files `f`: the bounds of each of its columns are within one range.

    It does not hold for a file that may have a NULL in one of the columns. None: there are too many
    ranges for one statement.
    """
    if isinstance(search, SearchRanges):
        spans = disjoint(search.ranges)
        if len(spans) > _MOST_RANGES:
            return None
        bounds = tuple(key for span in spans for key in span)
        return Found(sql.bounds_within(len(spans)), (search.column_id, *bounds))
    terms = [compile_certain(term) for term in search.terms]
    known = [term for term in terms if term is not None]
    if len(known) < len(terms) or len(terms) > _MOST_TERMS:
        return None
    operator = " AND " if isinstance(search, SearchAll) else " OR "
    text = operator.join(term.statement for term in known)
    return Found(f"({text})", tuple(value for term in known for value in term.values))


def _all(index: _Index, terms: Sequence[Search]) -> Found:
    """An AND. If one condition matches few files, the others are checked on these files alone.

    Which condition this is cannot be known before, so the first files of each are looked up.
    """
    leaves = list(dict.fromkeys(term for term in terms if isinstance(term, SearchRanges)))
    others = [term for term in terms if not isinstance(term, SearchRanges)]
    leaves.sort(key=lambda leaf: len(leaf.ranges))
    first, few = _fewest(index, leaves)
    if few is None:
        parts = [_compiled(index, term) for term in [*leaves, *others]]
        return _merged(index.session, parts, "INTERSECT")
    for leaf in leaves:
        if leaf is not first:
            few = _those_overlapping(index, leaf, few)
    if not few:
        return _NO_FILE
    parts = [_compiled_ids(index.session, few)]
    parts += [_compiled(index, term) for term in others]
    return _merged(index.session, parts, "INTERSECT")


def _fewest(
    index: _Index, leaves: Sequence[SearchRanges]
) -> tuple[SearchRanges | None, list[int] | None]:
    """A condition that few files match, and these files; None: each matches many."""
    for most in _FEW_FILES:
        for leaf in leaves:
            found = _first_files(index, leaf, most)
            if len(found) <= most:
                return leaf, found
    return None, None


def _first_files(index: _Index, leaf: SearchRanges, most: int) -> list[int]:
    """The files of one condition; if there are more than `most`, at least `most` + 1 of them."""
    # All files of many ranges are looked up, whatever `most` is.
    key = (leaf, 0 if len(leaf.ranges) > _MOST_RANGES else most)
    found = index.first_files.get(key)
    if found is None:
        found = _looked_up(index, leaf, most)
        if len(index.first_files) == _MOST_KEPT:
            index.first_files.clear()
        index.first_files[key] = found
    return found


def _looked_up(index: _Index, leaf: SearchRanges, most: int) -> list[int]:
    ranges = disjoint(leaf.ranges)
    if len(ranges) > _MOST_RANGES:
        return _overlapping_any(index, leaf.column_id, ranges)
    part = _ranges(index, leaf.column_id, ranges)
    rows = index.session.query(f"{part.statement} LIMIT {most + 1}", part.values)
    return [row[0] for row in rows]


def _those_overlapping(index: _Index, leaf: SearchRanges, ids: Sequence[int]) -> list[int]:
    """The files, of the given ones, that a condition matches."""
    if not ids:
        return []
    most = _ROWS_PER_FILE * len(ids)
    if len(ids) > _FEW_FILES[0]:
        # The given files lie anywhere in the index; the files that the condition matches lie
        # together.
        found = _first_files(index, leaf, most)
        if len(found) <= most:
            return sorted(set(ids).intersection(found))
    values = (index.session.id_list(ids), leaf.column_id)
    rows = index.session.query(sql.BOUNDS_OF_FILES, values)
    return _overlapping(rows, disjoint(leaf.ranges))


def _compiled_ids(session: Session, ids: Sequence[int]) -> Found:
    return Found(session.dialect.ids, (session.id_list(ids),), ids)


def _merged(session: Session, parts: Sequence[Found], operator: str) -> Found:
    """All parts (at least one) by UNION or INTERSECT."""
    known = [part.ids for part in parts if part.ids is not None]
    if len(known) > 1:
        one = _compiled_ids(session, sorted(_combined(known, operator)))
        parts = [one, *(part for part in parts if part.ids is None)]
    if len(parts) == 1:
        return parts[0]
    values = tuple(value for part in parts for value in part.values)
    if len(parts) <= _MOST_TERMS and len(values) <= _MOST_VALUES:
        # Nested and named, because compound SELECTs have no parentheses in SQLite.
        terms = (f"SELECT file_id FROM ({part.statement}) AS t" for part in parts)
        return Found(f" {operator} ".join(terms), values)
    found = (
        [row[0] for row in session.query(part.statement, part.values)]
        if part.ids is None
        else part.ids
        for part in parts
    )
    return _compiled_ids(session, sorted(_combined(found, operator)))


def _combined(found: Iterable[Sequence[int]], operator: str) -> set[int]:
    return set().union(*found) if operator == "UNION" else reduce(and_, map(set, found))


def _ranges(index: _Index, column_id: int, ranges: Sequence[Span]) -> Found:
    if not ranges:
        return _NO_FILE
    session = index.session
    if len(ranges) > _MOST_RANGES:
        return _compiled_ids(session, _overlapping_any(index, column_id, ranges))
    column = (index.dataset_id, column_id)
    if not session.dialect.levels:
        parts = [Found(sql.OVERLAPPING, (*column, *range_)) for range_ in ranges]
        return _merged(session, parts, "UNION")
    levels = _levels(index, column_id)
    wanted = [span for level in levels for one in ranges for span in spans([one], level)]
    if not wanted:
        return _NO_FILE
    bound = _bound(session, wanted)
    # A file may overlap two of the ranges.
    what = "b.file_id" if len(ranges) == 1 else "DISTINCT b.file_id"
    return Found(sql.in_spans(what, bound.statement), (*bound.values, *column))


def _levels(index: _Index, column_id: int) -> list[int]:
    found = index.levels.get(column_id)
    if found is None:
        column = (index.dataset_id, column_id)
        rows = index.session.query(index.session.dialect.levels, (*column, *column))
        found = index.levels[column_id] = [row[0] for row in rows]
    return found


def _bound(session: Session, wanted: Sequence[tuple[int, bytes, bytes, bytes]]) -> Found:
    """Spans as a relation."""
    if session.dialect.spans:
        return Found(session.dialect.spans, tuple(list(column) for column in zip(*wanted)))
    rows = ", ".join(["(?, ?, ?, ?)"] * len(wanted))
    return Found(f"VALUES {rows}", tuple(value for span in wanted for value in span))


def _overlapping_any(index: _Index, column_id: int, ranges: Sequence[Span]) -> list[int]:
    """The files that overlap one of many ranges, each once."""
    session = index.session
    column = (index.dataset_id, column_id)
    most = _ROWS_PER_RANGE * len(ranges)
    if (
        not session.dialect.levels
        or session.query(sql.COUNT_BOUNDS, (*column, most + 1))[0][0] <= most
    ):
        values = (*column, ranges[0][0], ranges[-1][1])
        return _overlapping(session.query(sql.BOUNDS_OVERLAPPING, values), ranges)
    wanted = [span for level in _levels(index, column_id) for span in spans(ranges, level)]
    at_once = _SPANS_IN_LISTS if session.dialect.spans else _SPANS_AT_ONCE
    found: list[int] = []
    for start in range(0, len(wanted), at_once):
        bound = _bound(session, wanted[start : start + at_once])
        statement = sql.in_spans("b.lower, b.upper, b.file_id", bound.statement)
        found += _overlapping(session.query(statement, (*bound.values, *column)), ranges)
    return found


def _overlapping(bounds: Iterable[Row], ranges: Sequence[Span]) -> list[int]:
    """The ids among `bounds` (lower, upper, id) that overlap one of the disjoint ranges."""
    lowers = [lower for lower, _upper in ranges]
    found: list[int] = []
    for lower, upper, file_id in bounds:
        # The last range that starts at or below the file's upper key ends above
        # its lower key, or no range overlaps the file.
        nearest = bisect_right(lowers, upper) - 1
        if nearest >= 0 and ranges[nearest][1] >= lower:
            found.append(file_id)
    return found

"""Door. Keys of a join that arrive while a query runs: many keys become few ranges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import nlargest
from typing import Any

from lakehouse_source.language.tree.types import INTEGERS, is_moment
from lakehouse_source.spark.protocol.vocabulary import Key, Node
from lakehouse_source.spark.reading.decode_conditions import named_type

# Ranges for each row group. Planning with 29,000 keys takes 0.4 s, and with 100 ranges 0.01 s.
_RANGES_OF_ROW_GROUP = 2
_FEWEST_RANGES = 64


def coarsened(terms: Sequence[Mapping[str, Any]], row_groups: int) -> list[Mapping[str, Any]]:
    """The terms, with ranges in place of an IN that has many more values than row groups.

    They are true for the same rows and for others: keys only choose what is read.
    """
    most = max(_FEWEST_RANGES, _RANGES_OF_ROW_GROUP * row_groups)
    return [_ranges(term, most) if _is_long(term, most) else term for term in terms]


def _is_long(term: Mapping[str, Any], most: int) -> bool:
    if term.get(Key.NAME) != "in" or len(term[Key.TERMS]) < 2:  # a list without keys
        return False
    _, listed = term[Key.TERMS]
    type_ = named_type(listed[Key.TYPE])
    whole = type_ in INTEGERS or is_moment(type_)  # their values travel as whole numbers
    return whole and len(listed[Key.VALUES]) > most and not listed[Key.NULL]


def _ranges(term: Mapping[str, Any], most: int) -> Mapping[str, Any]:
    """At most `most` ranges that hold all values, with the largest gaps between them."""
    column, listed = term[Key.TERMS]
    values = sorted({int(text) for text in listed[Key.VALUES]})
    gaps = range(1, len(values))
    ends = sorted(nlargest(most - 1, gaps, key=lambda place: values[place] - values[place - 1]))
    firsts, lasts = [0, *ends], [*(place - 1 for place in ends), len(values) - 1]

    def call(name: str, *terms: Mapping[str, Any]) -> dict[str, Any]:
        return {Key.OP: Node.CALL, Key.TYPE: "boolean", Key.NAME: name, Key.TERMS: terms}

    def end(place: int) -> Mapping[str, Any]:
        return {**listed, Key.VALUES: [str(values[place])]}

    ranges = (
        call("and", call(">=", column, end(first)), call("<=", column, end(last)))
        for first, last in zip(firsts, lasts)
    )
    return call("or", *ranges)

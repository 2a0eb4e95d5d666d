"""Checks histories of transactions for anomalies, as Elle does with lists that grow.

Each item is a list to which each transaction appends numbers that nobody else appends. The last
state of an item tells in which order its numbers were appended, so that a reader's list tells what
it has seen and what it has not. Source: Kingsbury and Alvaro, "Elle: Inferring Isolation Anomalies
from Experimental Observations", 2020; Adya, "Weak Consistency", 1999.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

Item = str


@dataclass(frozen=True)
class Done:
    """What one transaction did, in its order. `read`: the list that it saw; `append`: a number."""

    name: str
    committed: bool
    acts: Sequence[tuple[str, Item, Sequence[int] | int]] = field(default_factory=tuple)

    def appended(self, item: Item) -> list[int]:
        return [n for kind, i, n in self.acts if kind == "append" and i == item]  # type: ignore[misc]


Edges = dict[tuple[str, str], set[str]]


def anomalies(history: Iterable[Done], last: Mapping[Item, Sequence[int]]) -> set[str]:
    """The names of the anomalies in a history, given what each item is at its end.

    `internal`: a transaction did not see its own appends. `G1a`: it saw those of one that was
    aborted; `G1b`: some of those of another one. `lost update`: an append of a committed one is
    gone. Cycles: `G0` of writes alone, `G1c` of writes and of reads of what was written. With reads
    that missed a write: `write skew` where each of them was followed by another one, `G-single`
    where only one did. `G2-item` is any of the last two.
    """
    every = list(history)
    of = {(i, n): one for one in every for kind, i, n in one.acts if kind == "append"}
    found: set[str] = set()
    for one in every:
        if one.committed:
            found |= _seen_by(one, of)
            for kind, item, number in one.acts:
                if kind == "append" and number not in last[item]:
                    found.add("lost update")
    edges = _edges([one for one in every if one.committed], last, of)
    for wanted, name in (({"ww"}, "G0"), ({"ww", "wr"}, "G1c")):
        some = {pair for pair, kinds in edges.items() if kinds & wanted}
        if _has_cycle(some):
            found.add(name)
    certain = {pair for pair, kinds in edges.items() if kinds & {"ww", "wr"}}
    missed = {pair for pair, kinds in edges.items() if "rw" in kinds} - certain
    for reader, writer in missed:
        if _reaches(certain, writer, reader):
            found |= {"G-single", "G2-item"}
        elif _reaches(certain | missed, writer, reader):
            found |= {"write skew", "G2-item"}
    return found


def _seen_by(one: Done, of: Mapping[tuple[Item, int], Done]) -> set[str]:
    found, own = set(), dict[Item, list[int]]()
    for kind, item, value in one.acts:
        if kind == "append":
            assert isinstance(value, int)
            own.setdefault(item, []).append(value)
            continue
        assert not isinstance(value, int)
        mine = own.get(item, [])
        if mine != [n for n in value if of[item, n] is one]:
            found.add("internal")
        others = [of[item, n] for n in value if of[item, n] is not one]
        if any(not other.committed for other in others):
            found.add("G1a")
        for other in others:
            if not set(other.appended(item)) <= set(value):
                found.add("G1b")
    return found


def _edges(
    every: Sequence[Done],
    last: Mapping[Item, Sequence[int]],
    of: Mapping[tuple[Item, int], Done],
) -> Edges:
    edges: Edges = {}

    def edge(before: Done, after: Done, kind: str) -> None:
        if before is not after:
            edges.setdefault((before.name, after.name), set()).add(kind)

    for item, order in last.items():
        for one, two in pairwise(order):
            edge(of[item, one], of[item, two], "ww")
    for reader in every:
        for kind, item, value in reader.acts:
            if kind != "read":
                continue
            assert not isinstance(value, int)
            order = last[item]
            seen = [n for n in value if of[item, n] is not reader]
            if seen:
                edge(of[item, seen[-1]], reader, "wr")
            known = [order.index(n) for n in seen if n in order]
            for later in order[max(known, default=-1) + 1 :]:
                if of[item, later] is not reader:
                    edge(reader, of[item, later], "rw")
                    break
    return edges


def _has_cycle(edges: set[tuple[str, str]]) -> bool:
    return any(_reaches(edges, after, before) for before, after in edges)


def _reaches(edges: set[tuple[str, str]], start: str, end: str) -> bool:
    known, left = {start}, [start]
    while left:
        here = left.pop()
        if here == end:
            return True
        new = {after for before, after in edges if before == here} - known
        known |= new
        left += new
    return False

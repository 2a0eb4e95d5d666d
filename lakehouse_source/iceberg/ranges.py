"""Pure. Which manifests a version shares with an earlier version, and which are written again.

A manifest has the files that were added from one key to another one; a key is the version that
added a file and the file's id. A version shares the manifests of an earlier version, except those
with a removed file. Small neighbours are merged, as a log-structured tree merges its runs: so each
entry is written a few times, and a version has few manifests.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, TypeAlias

Key: TypeAlias = "tuple[int, int]"

MOST_ENTRIES = 2000
_FAN_OUT = 8


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest as the catalog records it, with each version that has the manifest.

    Sizes are in bytes. `version` wrote the manifest. `schemas` are the schema versions of its data
    files, `by_name` those of files without plake's field ids. `puffin` has its deletion vectors:
    each manifest has its own Puffin file, because PyIceberg treats every vector in an opened file
    as live.
    """

    path: str
    size_bytes: int
    first: Key
    last: Key
    entries: int
    rows: int
    added_entries: int
    added_rows: int
    version: int
    schema_version: int
    spec_id: int
    least_sequence: int
    first_row_id: int
    vectors: bool
    schemas: tuple[int, ...] = ()
    by_name: tuple[int, ...] = ()
    puffin: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Manifest:
        values = {one.name: document[one.name] for one in fields(cls)}
        for name in ("first", "last", "schemas", "by_name"):
            values[name] = tuple(values[name])
        return cls(**values)


@dataclass(frozen=True, slots=True)
class Range:
    """Files from one key to another one, both included. Without a manifest, it must be written."""

    first: Key
    last: Key
    entries: int
    manifest: Manifest | None = None


def next_ranges(
    manifests: Sequence[Manifest], gone: Sequence[Key], added: Sequence[Key]
) -> list[Range]:
    """The ranges of a version, from the manifests of an earlier one and what changed since.

    `gone` are keys that the manifests may have, `added` greater ones, in order.
    """
    ranges = [Range(one.first, one.last, one.entries, one) for one in manifests]
    ranges.sort(key=lambda one: one.first)
    starts = [one.first for one in ranges]
    for key in gone:
        at = bisect.bisect_right(starts, key) - 1
        if at >= 0 and key <= ranges[at].last:
            one = ranges[at]
            ranges[at] = replace(one, entries=one.entries - 1, manifest=None)
    ranges = [one for one in ranges if one.entries > 0]
    for start in range(0, len(added), MOST_ENTRIES):
        some = added[start : start + MOST_ENTRIES]
        ranges.append(Range(some[0], some[-1], len(some)))
    return _merged(ranges)


def _merged(ranges: list[Range]) -> list[Range]:
    """Merge runs of neighbours of one size class, until there is none."""
    at = 0
    while at + _FAN_OUT <= len(ranges):
        run = ranges[at : at + _FAN_OUT]
        entries = sum(one.entries for one in run)
        if entries <= MOST_ENTRIES and len({_size_class(one) for one in run}) == 1:
            ranges[at : at + _FAN_OUT] = [Range(run[0].first, run[-1].last, entries)]
            at = max(0, at - _FAN_OUT)
        else:
            at += 1
    return ranges


def _size_class(one: Range) -> int:
    size, count = 0, one.entries
    while count >= _FAN_OUT:
        size, count = size + 1, count // _FAN_OUT
    return size

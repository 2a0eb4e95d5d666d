"""Pure. Which files of a partition to sort together, so that few files hold the same value.

Files of one sort, whose ranges do not overlap, are a run. A value is in about one file of each run,
so the number of runs that hold the value counts. If more than `MOST_RUNS` runs hold it, the
smallest of them are sorted into one. A larger run is included if it is at most `SIZE_RATIO` times
as large as the smaller ones together: rows then move to growing runs, and are rewritten few times.
With 40 overlapping appends of equal size, each row is rewritten 2.6 times.

Source: for the trade between runs and rewrites, Mathieu, Staelin, Young, Yousefi, "Bigtable merge
compaction" (2014), and RocksDB's universal compaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

MOST_RUNS = 4
SIZE_RATIO = 1.5
# Runs are counted at values of this many files without a run, and of this many other files.
_POINTS = 500


@dataclass(frozen=True, slots=True)
class PlacedFiles:
    """Files of one partition, each with its bytes, run, and ranges of the clustering columns.

    `runs` are equal for files of one run, and negative for a file without a run. `lower` and
    `upper` have an array of integers for each column.
    """

    sizes: Sequence[int]
    runs: Sequence[int]
    lower: Sequence[pa.Array]
    upper: Sequence[pa.Array]

    def holding(self, point: Sequence[int]) -> pa.Array:
        """Whether each file's ranges hold a value of each column."""
        held = None
        for low, high, at in zip(self.lower, self.upper, point):
            both = pc.and_(pc.less_equal(low, at), pc.greater_equal(high, at))
            held = both if held is None else pc.and_(held, both)
        return held


def merges(files: PlacedFiles, most_runs: int = MOST_RUNS) -> Iterator[list[int]]:
    """Sets of files to sort together, as places; the deepest overlap comes first.

    The sets are disjoint. If they leave overlap, another look after the sort finds it.
    """
    bytes_of: dict[int, int] = {}
    members: dict[int, list[int]] = {}
    for place, run in enumerate(files.runs):
        bytes_of[run] = bytes_of.get(run, 0) + files.sizes[place]
        members.setdefault(run, []).append(place)
    counted = []
    for point in _points(files):
        count = pc.sum(files.holding(point)).as_py()
        if count > most_runs:
            counted.append((count, point))
    taken: set[int] = set()
    for _, point in sorted(counted, reverse=True):
        places = pc.indices_nonzero(files.holding(point)).to_pylist()
        runs = {files.runs[place] for place in places if place not in taken}
        if len(runs) <= most_runs:
            continue
        ascending = sorted(runs, key=lambda run: (bytes_of[run], run))
        chosen = _chosen(ascending, bytes_of, most_runs)
        found = _overlapping(files, chosen, members, taken)
        taken.update(found)
        yield found


def _chosen(ascending: Sequence[int], bytes_of: dict[int, int], most_runs: int) -> Sequence[int]:
    """The smallest runs, so that at most `most_runs` are left, and runs of similar size."""
    count = len(ascending) - most_runs + 1
    size = sum(bytes_of[run] for run in ascending[:count])
    while count < len(ascending) and bytes_of[ascending[count]] <= SIZE_RATIO * size:
        size += bytes_of[ascending[count]]
        count += 1
    return ascending[:count]


def _overlapping(
    files: PlacedFiles, chosen: Sequence[int], members: dict[int, list[int]], taken: set[int]
) -> list[int]:
    """The files of the chosen runs; of the largest run, only files that overlap the others."""
    *smaller, largest = chosen
    found = [place for run in smaller for place in members[run] if place not in taken]
    own = [place for place in members[largest] if place not in taken]
    inside = pa.repeat(pa.scalar(True), len(own))
    for low, high in zip(files.lower, files.upper):
        least, most = pc.min(low.take(found)).as_py(), pc.max(high.take(found)).as_py()
        beside = pc.and_(
            pc.less_equal(low.take(own), most), pc.greater_equal(high.take(own), least)
        )
        inside = pc.and_(inside, beside)
    return sorted([*found, *(place for place, is_in in zip(own, inside.to_pylist()) if is_in)])


def _points(files: PlacedFiles) -> list[tuple[int, ...]]:
    """The lower corner and the middle of files; files without a run, which overlap, come first."""
    single = [place for place, run in enumerate(files.runs) if run < 0]
    others = [place for place, run in enumerate(files.runs) if run >= 0]
    chosen = pa.array([*_spread(single), *_spread(others)], pa.int64())
    lower = [low.take(chosen) for low in files.lower]
    middle = [
        pc.shift_right(pc.add(low.take(chosen), high.take(chosen)), 1)
        for low, high in zip(files.lower, files.upper)
    ]
    corners = zip(*(one.to_pylist() for one in lower))
    return list(dict.fromkeys([*corners, *zip(*(one.to_pylist() for one in middle))]))


def _spread(places: Sequence[int]) -> list[int]:
    count = min(len(places), _POINTS)
    return [places[number * len(places) // count] for number in range(count)]

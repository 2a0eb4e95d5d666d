"""Damages a data file a thousand times: a read that verifies checksums says so, or is right.

    python integration/damage.py [--mutants 1000] [--first 0]

Each mutant is one file of a dataset, cut off at some byte or with one bit changed; its number
decides which. Even numbers damage the only file of one dataset, odd numbers a file of another
one that has many small files alike, which are read in another way. A child process reads all
rows with `verify_checksums=True`, and compares the file with the catalog by
`Dataset.verify(checksums=True)`. An error that plake reports is right, and so are the rows that
were written. The exit code is 1 when the rows are others, when a child died, or when an error
was no `PlakeError`.
"""

from __future__ import annotations

import argparse
import datetime
import decimal
import multiprocessing
import random
import sys
import tempfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

import lakehouse_source as lake

ROWS = 1500
SMALL_ROWS = 100
# What may come out, and what must not.
REPORTED, REFUSED, EQUAL = "verify reports it", "the read refuses it", "the rows are the same"
SILENT, UNKNOWN, DIED = "OTHER ROWS, SILENTLY", "NO ERROR OF PLAKE", "THE PROCESS DIED"
WRONG = (SILENT, UNKNOWN, DIED)


def table(number: range = range(ROWS)) -> pa.Table:
    """Rows of many types, in which each value differs from its neighbours."""
    noon = datetime.datetime(2020, 1, 1, 12)
    return pa.table(
        {
            "id": pa.array(number, pa.int64()),
            "small": pa.array([n % 100 for n in number], pa.int16()),
            "x": pa.array([None if n % 11 == 0 else n / 7 for n in number], pa.float64()),
            "day": pa.array([datetime.date(2000, 1, 1 + n % 28) for n in number]),
            "at": pa.array([noon + datetime.timedelta(seconds=n) for n in number]),
            "money": pa.array([decimal.Decimal(n) / 4 for n in number], pa.decimal128(12, 2)),
            "text": pa.array([f"text {n % 300}" for n in number]),
            "flag": pa.array([n % 3 == 0 for n in number]),
            "tags": pa.array([[n, n + 1] if n % 5 else None for n in number]),
        }
    )


@dataclass(frozen=True)
class Damage:
    """A dataset in a folder of its own, and the whole content of one of its files."""

    folder: str
    rows: pa.Table

    def outcome(self, number: int) -> str:
        """What plake makes of mutant `number`. Runs in a child process."""
        dataset = lake.open_dataset(self.folder)
        path = Path(self.folder) / dataset.files()[-1].path
        whole = Path(self.folder + ".whole").read_bytes()
        path.write_bytes(damaged(whole, number))
        try:
            try:
                rows = dataset.scan(verify_checksums=True).to_table()
            except lake.PlakeError:
                return REFUSED
            if not rows.sort_by("id").equals(self.rows):
                return SILENT
            return EQUAL if dataset.verify(checksums=True).ok else REPORTED
        except Exception as error:
            print(f"mutant {number}: {type(error).__name__}: {error}", file=sys.stderr)
            return UNKNOWN


def damaged(whole: bytes, number: int) -> bytes:
    """The content, cut off (one of five mutants) or with one bit changed."""
    chance = random.Random(number)
    at = chance.randrange(len(whole))
    if chance.random() < 0.2:
        return whole[:at]
    changed = bytearray(whole)
    changed[at] ^= 1 << chance.randrange(8)
    return bytes(changed)


def run(numbers: range, folder: Path) -> dict[int, str]:
    """The outcome of each mutant. A process that dies is replaced."""
    one, alike = str(folder / "one"), str(folder / "alike")
    rows = table(range(ROWS))
    lake.write_dataset(rows, one, row_group_rows=500, bloom_filter_columns=["id"])
    few = table(range(3 * SMALL_ROWS)).drop_columns(["tags"])
    for first in range(0, 3 * SMALL_ROWS, SMALL_ROWS):
        lake.write_dataset(few.slice(first, SMALL_ROWS), alike)
    for place in (one, alike):
        written = Path(place) / lake.open_dataset(place).files()[-1].path
        Path(place + ".whole").write_bytes(written.read_bytes())
    # Not forked: Arrow's threads do not survive a fork.
    context = multiprocessing.get_context("spawn")
    damages = Damage(one, rows), Damage(alike, few)
    found: dict[int, str] = {}
    while left := [number for number in numbers if number not in found]:
        with ProcessPoolExecutor(1, context) as pool:
            waiting = {number: pool.submit(damages[number % 2].outcome, number) for number in left}
            for number, outcome in waiting.items():
                try:
                    found[number] = outcome.result()
                except BrokenProcessPool:
                    found[number] = DIED
                    break
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--mutants", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = run(range(given.first, given.first + given.mutants), Path(folder))
    for outcome, count in Counter(found.values()).most_common():
        print(f"{count:6,} {outcome}")
    wrong = {number: outcome for number, outcome in found.items() if outcome in WRONG}
    for number, outcome in wrong.items():
        print(f"mutant {number}: {outcome}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

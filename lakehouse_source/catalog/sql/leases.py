"""Edge. What one holder at a time has: work for a catalog, and numbers of identity columns.

Whoever holds a lease adds one to its `beats` again and again. Whoever waits takes a lease whose
beats stay the same for `lease_seconds` by the waiter's own clock. So no two clocks are compared.

Lanes are ranges of numbers of identity columns, of which a write holds one:

    sequence   what numbers are counted by; `lane` is the number of a range of it, from 0
    next       how many numbers of the lane were used
    write_id   who holds it; NULL: nobody

A commit gives its lane back with what it used, and fails where another write got the lane. So a
lane whose holder was fenced, or is not known any more, is free: its numbers are not committed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lakehouse_source.catalog.sql.statements import Session
from lakehouse_source.catalog.sql.write_states import WriteState, WriteStatus

_FIND = "SELECT holder, beats, lease_seconds FROM catalog_leases WHERE name = ?"
_INSERT = (
    "INSERT INTO catalog_leases (name, holder, beats, lease_seconds) VALUES (?, ?, 1, ?) "
    "ON CONFLICT (name) DO NOTHING"
)
_BEAT = (
    "UPDATE catalog_leases SET holder = ?, beats = beats + 1, lease_seconds = ?, "
    "beat_at = {now} WHERE name = ? AND holder = ? AND beats = ?"
)
_RELEASE = "DELETE FROM catalog_leases WHERE name = ? AND holder = ?"


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease as the catalog has it."""

    holder: str
    beats: int
    lease_seconds: int


class LeaseReader:
    """The leases of a catalog, which one transaction reads."""

    _session: Session

    def lease(self, name: str) -> Lease | None:
        """Who holds a lease; None: nobody."""
        rows = self._session.query(_FIND, (name,))
        return Lease(*rows[0]) if rows else None


class LeaseChanges(LeaseReader):
    """The leases of a catalog, which one transaction may change."""

    def take_lease(
        self, name: str, seen: Lease | None, holder: str, lease_seconds: int
    ) -> Lease | None:
        """Take a lease, or keep it, if it still is as it was seen; None: it is not."""
        if seen is None:
            taken = self._session.execute(_INSERT, (name, holder, lease_seconds))
        else:
            values = (holder, lease_seconds, name, seen.holder, seen.beats)
            taken = self._session.execute(_BEAT, values)
        return self.lease(name) if taken else None

    def release_lease(self, name: str, holder: str) -> None:
        """Give a lease back, so that the next one need not wait."""
        self._session.execute(_RELEASE, (name, holder))


_FIRST = (
    "INSERT INTO identity_lanes (sequence, lane, next_number) VALUES (?, -1, 0) "
    "ON CONFLICT (sequence, lane) DO NOTHING"
)
_LOCK = "UPDATE identity_lanes SET next_number = 0 WHERE sequence = ? AND lane = -1"
_LANES = (
    "SELECT lane, next_number, write_id FROM identity_lanes "
    "WHERE sequence = ? AND lane >= 0 ORDER BY lane"
)
# As it was read: its holder may commit meanwhile, and give it back with more used.
_TAKE = (
    "UPDATE identity_lanes SET write_id = ? "
    "WHERE sequence = ? AND lane = ? AND next_number = ? AND coalesce(write_id, '') = ?"
)
_ADD = "INSERT INTO identity_lanes (sequence, lane, next_number, write_id) VALUES (?, ?, 0, ?)"
_SETTLE = (
    "UPDATE identity_lanes SET next_number = ?, write_id = NULL "
    "WHERE sequence = ? AND lane = ? AND write_id = ?"
)
_HELD = (WriteState.PENDING, WriteState.ABANDONED)


class LaneChanges:
    """The lanes of sequences, which one transaction changes."""

    _session: Session

    def write_states(self, write_ids: Iterable[str]) -> dict[str, WriteStatus]:
        """What became of writes."""
        raise NotImplementedError

    def take_lane(self, sequence: str, size: int, write_id: str) -> tuple[int, int]:
        """A lane for a write that begins, and how many of its `size` numbers were used."""
        for statement in (_FIRST, _LOCK):
            self._session.execute(statement, (sequence,))
        while True:
            lanes = self._session.query(_LANES, (sequence,))
            free = next((one for one in lanes if self._is_free(one[1], one[2], size)), None)
            if free is None:
                self._session.execute(_ADD, (sequence, len(lanes), write_id))
                return len(lanes), 0
            lane, used, holder = free
            if self._session.execute(_TAKE, (write_id, sequence, lane, used, holder or "")):
                return int(lane), int(used)

    def _is_free(self, used: int, holder: str | None, size: int) -> bool:
        known = {} if holder is None else self.write_states([holder])
        return used < size and not any(one.state in _HELD for one in known.values())

    def settle_lane(self, sequence: str, lane: int, write_id: str, used: int) -> bool:
        """Give back a lane with what was used of it; False: the write does not hold it."""
        return self._session.execute(_SETTLE, (used, sequence, lane, write_id)) == 1

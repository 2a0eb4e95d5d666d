"""Edge. Lanes: ranges of numbers of identity columns, of which a write holds one. All their SQL.

    sequence   what numbers are counted by; `lane` is the number of a range of it, from 0
    next       how many numbers of the lane were used
    write_id   who holds it; NULL: nobody

A commit gives its lane back with what it used, and fails where another write got the lane. So a
lane whose holder was fenced, or is not known any more, is free: its numbers are not committed.
"""

from __future__ import annotations

from collections.abc import Iterable

from lakehouse_source.catalog.sql.statements import Session
from lakehouse_source.catalog.sql.write_states import WriteState, WriteStatus

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

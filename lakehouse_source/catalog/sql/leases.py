"""Edge. Leases: work that one process at a time does for a whole catalog. All SQL about them.

Whoever holds a lease adds one to its `beats` again and again. Whoever waits takes a lease whose
beats stay the same for `lease_seconds` by the waiter's own clock. So no two clocks are compared.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakehouse_source.catalog.sql.statements import Session

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

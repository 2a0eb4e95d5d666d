"""Consumers: named readers of the change feed.

All SQL about them. A consumer keeps the version up to which its reader has processed changes, and
all later ones.
"""

from __future__ import annotations

from collections.abc import Mapping

from lakehouse_source.catalog.sql import to_rows
from lakehouse_source.catalog.sql.records import to_datetime
from lakehouse_source.catalog.sql.session import Session
from lakehouse_source.model import Consumer

_CONSUMERS = (
    "SELECT name, version, keep_seconds, created_at, advanced_at FROM dataset_consumers "
    "WHERE dataset_id = ? ORDER BY name"
)
_ADD = (
    "INSERT INTO dataset_consumers (dataset_id, name, version, keep_seconds) VALUES (?, ?, ?, ?) "
    "ON CONFLICT (dataset_id, name) DO NOTHING"
)
_ADVANCE = (
    "UPDATE dataset_consumers SET version = ?, advanced_at = {now} "
    "WHERE dataset_id = ? AND name = ?"
)
_DROP = "DELETE FROM dataset_consumers WHERE dataset_id = ? AND name = ?"


class ConsumerReader:
    """The consumers of change feeds, which one transaction reads."""

    _session: Session

    def consumers(self, dataset_id: int) -> Mapping[str, Consumer]:
        """The consumers of a dataset's change feed, by name."""
        return {
            name: Consumer(name, version, keep_seconds, to_datetime(created), to_datetime(advanced))
            for name, version, keep_seconds, created, advanced in self._session.query(
                _CONSUMERS, (dataset_id,)
            )
        }


class ConsumerChanges(ConsumerReader):
    """The consumers of change feeds, which one transaction may change."""

    def add_consumer(self, dataset_id: int, name: str, version: int, keep_seconds: int) -> bool:
        """Add a consumer of the change feed; False if the dataset has one of that name."""
        values = (dataset_id, to_rows.without_nul(name, "consumer"), version, keep_seconds)
        return self._session.execute(_ADD, values) == 1

    def advance_consumer(self, dataset_id: int, name: str, version: int) -> None:
        """Move a consumer to a version, and restart its time."""
        self._session.execute(_ADVANCE, (version, dataset_id, name))

    def drop_consumer(self, dataset_id: int, name: str) -> bool:
        """Remove a consumer; False if there is none."""
        return self._session.execute(_DROP, (dataset_id, name)) == 1

"""Tags: names of versions of one dataset. All SQL about them.

A version that has a tag can be read, even if the versions around it were expired.
"""

from __future__ import annotations

from collections.abc import Mapping

from lakehouse_source.catalog.sql import to_rows
from lakehouse_source.catalog.sql.session import Session

_TAGS = "SELECT name, version FROM dataset_tags WHERE dataset_id = ? ORDER BY version, name"
_SET = (
    "INSERT INTO dataset_tags (dataset_id, name, version) VALUES (?, ?, ?) "
    "ON CONFLICT (dataset_id, name) DO NOTHING"
)
_DROP = "DELETE FROM dataset_tags WHERE dataset_id = ? AND name = ?"


class TagReader:
    """The tags of datasets, which one transaction reads."""

    _session: Session

    def tags(self, dataset_id: int) -> Mapping[str, int]:
        """The versions that have a tag, by tag, the oldest version first."""
        return dict(self._session.query(_TAGS, (dataset_id,)))


class TagChanges(TagReader):
    """The tags of datasets, which one transaction may change."""

    def set_tag(self, dataset_id: int, name: str, version: int) -> bool:
        """Give a tag to a version; False if the dataset has that tag already."""
        values = (dataset_id, to_rows.without_nul(name, "tag"), version)
        return self._session.execute(_SET, values) == 1

    def drop_tag(self, dataset_id: int, name: str) -> bool:
        """Remove a tag; False if there is none."""
        return self._session.execute(_DROP, (dataset_id, name)) == 1

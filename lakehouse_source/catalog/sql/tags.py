"""Tags: names of versions of one dataset. All SQL about them.

A version that has a tag can be read, also where the versions around it were expired.
"""

from __future__ import annotations

from collections.abc import Mapping

from lakehouse_source.catalog.sql.session import Session

_TAGS = "SELECT name, version FROM dataset_tags WHERE dataset_id = ? ORDER BY version, name"
_SET = (
    "INSERT INTO dataset_tags (dataset_id, name, version) VALUES (?, ?, ?) "
    "ON CONFLICT (dataset_id, name) DO NOTHING"
)
_DROP = "DELETE FROM dataset_tags WHERE dataset_id = ? AND name = ?"


def tags(session: Session, dataset_id: int) -> Mapping[str, int]:
    """The versions that have a tag, by tag, the oldest version first."""
    return dict(session.query(_TAGS, (dataset_id,)))


def set_tag(session: Session, dataset_id: int, name: str, version: int) -> bool:
    """Give a tag to a version; False where the dataset has that tag already."""
    return session.execute(_SET, (dataset_id, name, version)) == 1


def drop_tag(session: Session, dataset_id: int, name: str) -> bool:
    """Remove a tag; False where there is none."""
    return session.execute(_DROP, (dataset_id, name)) == 1

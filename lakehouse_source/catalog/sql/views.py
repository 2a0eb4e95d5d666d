"""The views of a catalog: texts with a name, and all SQL about them.

The engine that made a text knows its meaning. A view and a dataset of one namespace have
different names.
"""

from __future__ import annotations

from lakehouse_source.catalog.qualified_names import QualifiedName, lookup
from lakehouse_source.catalog.sql.session import Session

_FIND = "SELECT document_json FROM dataset_views WHERE namespace = ? AND lookup = ?"
_LIST = "SELECT name FROM dataset_views WHERE namespace = ? ORDER BY lookup"
_CREATE = (
    "INSERT INTO dataset_views (namespace, lookup, name, document_json) VALUES (?, ?, ?, ?) "
    "ON CONFLICT (namespace, lookup) DO NOTHING"
)
_REMOVE = "DELETE FROM dataset_views WHERE namespace = ? AND lookup = ?"


def find(session: Session, name: QualifiedName) -> str | None:
    """The text of a view."""
    rows = session.query(_FIND, _key(name))
    return rows[0][0] if rows else None


def view_names(session: Session, namespace: str) -> list[str]:
    """The names of the views of a namespace, in their order."""
    return [row[0] for row in session.query(_LIST, (lookup(namespace),))]


def create(session: Session, name: QualifiedName, document: str) -> bool:
    """Make a view. False: there is one of this name."""
    return bool(session.execute(_CREATE, (*_key(name), name[1], document)))


def remove(session: Session, name: QualifiedName) -> bool:
    """Remove a view. Tells whether there was one."""
    return bool(session.execute(_REMOVE, _key(name)))


def _key(name: QualifiedName) -> QualifiedName:
    return lookup(name[0]), lookup(name[1])

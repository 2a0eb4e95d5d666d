"""Edge. The names of datasets and views, in namespaces: all SQL about them, and their rules.

A name is one namespace and one name in it. Both keep their case and are found in any case, as Spark
finds tables. The catalog has them in lower case too, so that a key of the database keeps names
unique.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lakehouse_source.catalog.qualified_names import (
    DEFAULT_NAMESPACE,
    QualifiedName,
    check_name,
    check_part,
    lookup,
    quoted,
)
from lakehouse_source.catalog.sql import records
from lakehouse_source.catalog.sql.statements import DATASET_LOCKED, Row, Session
from lakehouse_source.errors import (
    DatasetExistsError,
    DatasetNotFoundError,
    InvalidOptionError,
    NamespaceExistsError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
)

# --- The views of a catalog: texts with a name, and all SQL about them.
#
# The engine that made a text knows its meaning. A view and a dataset of one namespace have
# different names.


_FIND_VIEW = "SELECT document_json FROM dataset_views WHERE namespace = ? AND lookup = ?"
_LIST_VIEWS = "SELECT name FROM dataset_views WHERE namespace = ? ORDER BY lookup"
_CREATE = (
    "INSERT INTO dataset_views (namespace, lookup, name, document_json) VALUES (?, ?, ?, ?) "
    "ON CONFLICT (namespace, lookup) DO NOTHING"
)
_REMOVE_VIEW = "DELETE FROM dataset_views WHERE namespace = ? AND lookup = ?"


def find(session: Session, name: QualifiedName) -> str | None:
    """The text of a view."""
    rows = session.query(_FIND_VIEW, _view_key(name))
    return rows[0][0] if rows else None


def view_names(session: Session, namespace: str) -> list[str]:
    """The names of the views of a namespace, in their order."""
    return [row[0] for row in session.query(_LIST_VIEWS, (lookup(namespace),))]


def create(session: Session, name: QualifiedName, document: str) -> bool:
    """Make a view. False: there is one of this name."""
    return bool(session.execute(_CREATE, (*_view_key(name), name[1], document)))


def remove(session: Session, name: QualifiedName) -> bool:
    """Remove a view. Tells whether there was one."""
    return bool(session.execute(_REMOVE_VIEW, _view_key(name)))


def _view_key(name: QualifiedName) -> QualifiedName:
    return lookup(name[0]), lookup(name[1])


# What to do where a name is taken.
TAKEN = "Choose another name, or pass replace=True or exist_ok=True."

_NAMED = (
    "SELECT n.namespace_name, n.name, n.dataset_id, d.base_uri, d.current_version "
    "FROM (SELECT x.name, x.lookup, x.namespace, x.dataset_id, s.name AS namespace_name "
    "FROM dataset_names AS x JOIN dataset_namespaces AS s ON s.lookup = x.namespace) AS n "
    "JOIN datasets AS d ON d.id = n.dataset_id"
)
_FIND = f"{_NAMED} WHERE n.namespace = ? AND n.lookup = ?"
_FIND_BY_DATASET = f"{_NAMED} WHERE n.dataset_id = ?"
_LIST = f"{_NAMED} WHERE n.namespace = ? ORDER BY n.lookup"
_LIST_NAMES = "SELECT name FROM dataset_names WHERE namespace = ? ORDER BY lookup"
_LIST_ALL = f"{_NAMED} ORDER BY n.namespace, n.lookup"
_GIVE = (
    "INSERT INTO dataset_names (namespace, lookup, name, dataset_id) VALUES (?, ?, ?, ?) "
    "ON CONFLICT (namespace, lookup) DO NOTHING"
)
_REMOVE = "DELETE FROM dataset_names WHERE namespace = ? AND lookup = ?"
# If several datasets had a name, the dataset that was dropped last comes first.
_DROPPED = (
    "SELECT x.namespace, x.name, x.dataset_id, d.base_uri, d.current_version "
    "FROM dataset_drops AS x JOIN datasets AS d ON d.id = x.dataset_id "
    "WHERE d.dropped_at IS NULL AND d.current_version > 0 ORDER BY x.dropped_at DESC, d.id DESC"
)
# A dataset is left out if a commit to it, or to a branch of it, came after the drop of its name:
# somebody writes to it by its path. Times of commits in quick succession run ahead of the clock.
_ITS_BRANCHES = "(SELECT b.branch_id FROM dataset_branches AS b WHERE b.dataset_id = d.id)"
_LONG_DROPPED = (
    "SELECT x.namespace, x.name, x.dataset_id, d.base_uri, d.current_version "
    "FROM dataset_drops AS x JOIN datasets AS d ON d.id = x.dataset_id "
    "WHERE d.dropped_at IS NULL AND d.managed AND x.dropped_at <= {now} - ? "
    "AND NOT EXISTS (SELECT 1 FROM dataset_names AS n "
    f"WHERE n.dataset_id = d.id OR n.dataset_id IN {_ITS_BRANCHES}) "
    "AND NOT EXISTS (SELECT 1 FROM transactions AS t "
    f"WHERE (t.dataset_id = d.id OR t.dataset_id IN {_ITS_BRANCHES}) "
    "AND t.timestamp > x.dropped_at + 1000000) ORDER BY d.id"
)
_NOTE_DROP = "INSERT INTO dataset_drops (dataset_id, namespace, name) VALUES (?, ?, ?)"
_FORGET_DROP = "DELETE FROM dataset_drops WHERE dataset_id = ?"
_NAMESPACES = "SELECT name, properties_json FROM dataset_namespaces ORDER BY lookup"
_NAMESPACE = "SELECT name, properties_json FROM dataset_namespaces WHERE lookup = ?"
_NAMESPACE_LOCKED = f"{_NAMESPACE}{{lock}}"
_CREATE_NAMESPACE = (
    "INSERT INTO dataset_namespaces (lookup, name, properties_json) VALUES (?, ?, ?) "
    "ON CONFLICT (lookup) DO NOTHING"
)
_SET_NAMESPACE = "UPDATE dataset_namespaces SET properties_json = ? WHERE lookup = ?"
_DROP_NAMESPACE = "DELETE FROM dataset_namespaces WHERE lookup = ?"
_SETTING = "SELECT value FROM catalog_settings WHERE name = ?"
_FORGET_SETTING = "DELETE FROM catalog_settings WHERE name = ?"
_SET_SETTING = "INSERT INTO catalog_settings (name, value) VALUES (?, ?)"
_FIRST_SETTING = f"{_SET_SETTING} ON CONFLICT (name) DO NOTHING"


@dataclass(frozen=True, slots=True)
class NamedDataset:
    """A dataset that has a name. `base_uri` is its key in the catalog."""

    namespace: str
    name: str
    dataset_id: int
    base_uri: str
    version: int

    def __str__(self) -> str:
        return quoted((self.namespace, self.name))


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace and what its users noted about it."""

    name: str
    properties: Mapping[str, str]


class Names:
    """Reads names, in the snapshot of one transaction."""

    _one_namespace = _NAMESPACE

    def __init__(self, session: Session) -> None:
        self._session = session

    def find(self, name: QualifiedName) -> NamedDataset | None:
        """The dataset with a name."""
        rows = self._session.query(_FIND, (lookup(name[0]), lookup(name[1])))
        return NamedDataset(*rows[0]) if rows else None

    def get(self, name: QualifiedName) -> NamedDataset:
        """The dataset with a name."""
        found = self.find(name)
        if found is None:
            self.namespace(name[0])
            raise DatasetNotFoundError(dataset=quoted(name), catalog=self._session.redacted_url)
        return found

    def of_dataset(self, dataset_id: int) -> NamedDataset | None:
        """The name of a dataset, if it has one."""
        rows = self._session.query(_FIND_BY_DATASET, (dataset_id,))
        return NamedDataset(*rows[0]) if rows else None

    def datasets(self, namespace: str | None = None) -> list[NamedDataset]:
        """The datasets with a name, in the order of their names."""
        if namespace is None:
            rows = self._session.query(_LIST_ALL)
        else:
            self.namespace(namespace)
            rows = self._session.query(_LIST, (lookup(namespace),))
        return [NamedDataset(*row) for row in rows]

    def dropped(self) -> list[NamedDataset]:
        """Datasets that still exist but whose names were dropped, the last drop first.

        Each has its old name.
        """
        return [NamedDataset(*row) for row in self._session.query(_DROPPED)]

    def long_dropped(self, seconds: float) -> list[NamedDataset]:
        """Managed datasets that lost their names over `seconds` ago and were not changed since.

        Each has its old name.
        """
        rows = self._session.query(_LONG_DROPPED, (int(seconds * 1_000_000),))
        return [NamedDataset(*row) for row in rows]

    def dataset_names(self, namespace: str) -> list[str]:
        """The names in a namespace, in their order; a tenth of the time of `datasets`."""
        self.namespace(namespace)
        return [row[0] for row in self._session.query(_LIST_NAMES, (lookup(namespace),))]

    def view(self, name: QualifiedName) -> dict[str, Any] | None:
        """The stored text of the view with a name."""
        text = find(self._session, name)
        return None if text is None else records.document(text, self._session.redacted_url)

    def view_names(self, namespace: str) -> list[str]:
        """The names of the views in a namespace, in their order."""
        self.namespace(namespace)
        return view_names(self._session, namespace)

    def namespaces(self) -> list[Namespace]:
        """All namespaces, in the order of their names."""
        return [self._namespace(row) for row in self._session.query(_NAMESPACES)]

    def namespace(self, name: str) -> Namespace:
        """A namespace."""
        found = self.find_namespace(name)
        if found is None:
            raise NamespaceNotFoundError(namespace=name, catalog=self._session.redacted_url)
        return found

    def find_namespace(self, name: str) -> Namespace | None:
        """The namespace with a name."""
        rows = self._session.query(self._one_namespace, (lookup(name),))
        return self._namespace(rows[0]) if rows else None

    def setting(self, name: str) -> str | None:
        """A setting of the whole catalog, such as its warehouse."""
        rows = self._session.query(_SETTING, (name,))
        return rows[0][0] if rows else None

    def _namespace(self, row: Row) -> Namespace:
        name, text = row
        document = records.document(text, self._session.redacted_url)
        return Namespace(name, {str(key): str(value) for key, value in document.items()})


class NameChanges(Names):
    """Changes names, inside one transaction that writes."""

    # Nobody drops a namespace while a name is given in it.
    _one_namespace = _NAMESPACE_LOCKED

    def give(self, name: QualifiedName, dataset_id: int) -> None:
        """Give a name to a dataset. Nothing happens if it has that name already."""
        check_name(name)
        self.namespace(name[0])
        if self.view(name) is not None:
            raise DatasetExistsError(dataset=quoted(name), hint="A view has it: DROP VIEW.")
        other = self.of_dataset(dataset_id)
        if other is not None and _key((other.namespace, other.name)) != _key(name):
            raise InvalidOptionError(
                option="name",
                value=quoted(name),
                reason=f"cannot be given: the dataset is named {other} already.",
            )
        self._session.execute(_GIVE, (*_key(name), name[1], dataset_id))
        found = self.find(name)
        if found is None or found.dataset_id != dataset_id:
            raise DatasetExistsError(dataset=quoted(name), hint=TAKEN)
        self._session.execute(_FORGET_DROP, (dataset_id,))

    def rename(self, old: QualifiedName, new: QualifiedName) -> None:
        """Give another name to a dataset that has one."""
        found = self.get(old)
        self._session.execute(_REMOVE, _key(old))
        self.give(new, found.dataset_id)

    def remove(self, name: QualifiedName) -> NamedDataset:
        """Take a name away; the dataset stays."""
        found = self.get(name)
        self._session.execute(_REMOVE, _key(name))
        self._session.execute(_FORGET_DROP, (found.dataset_id,))
        self._session.execute(_NOTE_DROP, (found.dataset_id, found.namespace, found.name))
        return found

    def undrop(self, name: QualifiedName) -> NamedDataset:
        """Give a name back to the dataset that had it last."""
        for one in self.dropped():
            if _key((one.namespace, one.name)) == _key(name):
                # A vacuum may be deleting it, under this lock.
                if not self._session.query(DATASET_LOCKED, (one.base_uri,)):
                    continue
                self.give((one.namespace, one.name), one.dataset_id)
                return one
        raise DatasetNotFoundError(dataset=quoted(name), catalog=self._session.redacted_url)

    def put_view(
        self, name: QualifiedName, document: Mapping[str, Any], *, replace: bool = False
    ) -> None:
        """Make a view, or replace the text of a view."""
        check_name(name)
        self.namespace(name[0])
        text = _text(document, "view")
        if self.find(name) is not None:
            raise DatasetExistsError(dataset=quoted(name), hint="It is no view.")
        if replace:
            remove(self._session, name)
        if not create(self._session, name, text):
            raise DatasetExistsError(dataset=quoted(name), hint="Use CREATE OR REPLACE VIEW.")

    def remove_view(self, name: QualifiedName) -> bool:
        """Remove a view. Tells whether there was one."""
        return remove(self._session, name)

    def create_namespace(self, name: str, properties: Mapping[str, str] | None = None) -> None:
        """Make a namespace."""
        check_part(name, "namespace")
        made = self._session.execute(
            _CREATE_NAMESPACE, (lookup(name), name, _text(properties or {}))
        )
        if not made:
            raise NamespaceExistsError(namespace=name)

    def set_namespace_properties(self, name: str, properties: Mapping[str, str]) -> None:
        """Replace the properties of a namespace."""
        self.namespace(name)
        self._session.execute(_SET_NAMESPACE, (_text(properties), lookup(name)))

    def drop_namespace(self, name: str) -> None:
        """Remove a namespace in which no dataset and no view has a name."""
        if lookup(name) == DEFAULT_NAMESPACE:
            raise InvalidOptionError(
                option="namespace", value=name, reason="is always there and cannot be dropped."
            )
        inside = len(self.datasets(name)) + len(self.view_names(name))
        if inside:
            raise NamespaceNotEmptyError(namespace=name, datasets=inside)
        self._session.execute(_DROP_NAMESPACE, (lookup(name),))

    def first_setting(self, name: str, value: str) -> str:
        """Set a setting of the whole catalog if it has no value yet; returns its value."""
        self._session.execute(_FIRST_SETTING, (name, value))
        found = self.setting(name)
        assert found is not None  # the insert waited for another transaction, which committed
        return found

    def set_setting(self, name: str, value: str) -> None:
        """Replace a setting of the whole catalog."""
        self._session.execute(_FORGET_SETTING, (name,))
        self._session.execute(_SET_SETTING, (name, value))


def _key(name: QualifiedName) -> QualifiedName:
    return lookup(name[0]), lookup(name[1])


def _text(document: Mapping[str, Any], option: str = "properties") -> str:
    text = json.dumps(dict(document))
    if "\\u0000" in text:
        raise InvalidOptionError(option=option, reason="holds a NUL character.")
    return text

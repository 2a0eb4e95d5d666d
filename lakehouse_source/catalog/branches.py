"""Branches: datasets of their own, whose files are in the folder of another one. All SQL on them.

A branch has the files of one version of its dataset, its base, under rows of its own, and
the versions that were committed to it since. So all that reads or changes a dataset works on a
branch. Its key in the catalog is that of the dataset and its name (`storage.with_branch`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lakehouse_source.catalog.session import Session

_BRANCHES = (
    "SELECT b.name, b.branch_id, b.base_version, d.current_version FROM dataset_branches AS b "
    "JOIN datasets AS d ON d.id = b.branch_id WHERE b.dataset_id = ? AND d.dropped_at IS NULL "
    "ORDER BY b.branch_id"
)
_INSERT = (
    "INSERT INTO dataset_branches (branch_id, dataset_id, name, base_version) VALUES (?, ?, ?, ?)"
)
# The base is the oldest version that can be read.
_BEGIN = (
    "UPDATE datasets SET current_version = ?, oldest_version = ?, next_row_id = ?, "
    "properties_json = ? WHERE id = ?"
)
# The history of the dataset, so that streams and idempotency pairs go on. Ids of writes are unique.
_COPY_HISTORY = (
    "INSERT INTO transactions (dataset_id, version, timestamp, operation, metadata_json, "
    "summary_json, write_id, txn_app_id, txn_version) SELECT b.branch_id, t.version, t.timestamp, "
    "t.operation, t.metadata_json, t.summary_json, CAST(b.branch_id AS TEXT) || ':' || t.write_id, "
    "t.txn_app_id, t.txn_version FROM dataset_branches AS b "
    "JOIN transactions AS t ON t.dataset_id = b.dataset_id AND t.version <= b.base_version "
    "WHERE b.branch_id = ? ORDER BY t.version"
)
_SET_BASE = "UPDATE dataset_branches SET base_version = ? WHERE branch_id = ?"
_FORGET = "DELETE FROM dataset_branches WHERE branch_id = ?"


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch of a dataset.

    `dataset_id` is its own. Up to `base_version` its versions are those of the dataset, and
    `version` is its newest one.
    """

    name: str
    dataset_id: int
    base_version: int
    version: int


def branches(session: Session, dataset_id: int) -> Mapping[str, Branch]:
    """The branches of a dataset, by name, in the order in which they were made."""
    return {row[0]: Branch(*row) for row in session.query(_BRANCHES, (dataset_id,))}


def insert(
    session: Session,
    dataset_id: int,
    branch: Branch,
    next_row_id: int,
    properties_json: str,
) -> None:
    """Make a registered dataset a branch of another one, with the history up to its base."""
    base = branch.base_version
    session.execute(_INSERT, (branch.dataset_id, dataset_id, branch.name, base))
    session.execute(_BEGIN, (base, base, next_row_id, properties_json, branch.dataset_id))
    session.execute(_COPY_HISTORY, (branch.dataset_id,))


def set_base(session: Session, branch_id: int, version: int) -> None:
    """Say up to which version a branch and its dataset are the same."""
    session.execute(_SET_BASE, (version, branch_id))


def forget(session: Session, branch_id: int) -> None:
    """Remove the record of a branch; nothing happens where the dataset is none."""
    session.execute(_FORGET, (branch_id,))

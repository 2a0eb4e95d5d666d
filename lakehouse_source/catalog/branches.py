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
    "JOIN datasets AS d ON d.id = b.branch_id WHERE b.dataset_id = ? ORDER BY b.name"
)
_INSERT = (
    "INSERT INTO dataset_branches (branch_id, dataset_id, name, base_version) VALUES (?, ?, ?, ?)"
)
# The next commit makes the base version, which is the oldest one that can be read.
_BEGIN = (
    "UPDATE datasets SET current_version = ?, oldest_version = ?, next_row_id = ?, "
    "properties_json = ? WHERE id = ?"
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
    """The branches of a dataset, by name."""
    return {row[0]: Branch(*row) for row in session.query(_BRANCHES, (dataset_id,))}


def insert(
    session: Session,
    dataset_id: int,
    branch: Branch,
    next_row_id: int,
    properties_json: str,
) -> None:
    """Make a registered dataset a branch of another one, ready for the commit of its base."""
    base = branch.base_version
    session.execute(_INSERT, (branch.dataset_id, dataset_id, branch.name, base))
    values = (base - 1, base, next_row_id, properties_json, branch.dataset_id)
    session.execute(_BEGIN, values)


def set_base(session: Session, branch_id: int, version: int) -> None:
    """Say up to which version a branch and its dataset are the same."""
    session.execute(_SET_BASE, (version, branch_id))


def forget(session: Session, branch_id: int) -> None:
    """Remove the record of a branch; nothing happens where the dataset is none."""
    session.execute(_FORGET, (branch_id,))

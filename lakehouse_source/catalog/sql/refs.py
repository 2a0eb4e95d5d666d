"""Edge. What keeps versions: tags, branches, consumers of the change feed, and clones.

A clone is a dataset that began with the files of another one.
A file stays in the folder of the dataset that wrote it, its origin. The rows of a clone name it by
the origin's id (`storage.shared_folder`), and so do the rows of clones of the clone. The origin's
vacuum deletes a file only when no row of another dataset names it, whether a version that can be
read has it or not: when a clone's vacuum forgets an expired row, its own retention has passed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from lakehouse_source.catalog.sql import records
from lakehouse_source.catalog.sql import statements as sql
from lakehouse_source.catalog.sql.records import to_datetime
from lakehouse_source.catalog.sql.statements import FILE_IDS, INSERT_SCHEMA, Session
from lakehouse_source.model import Consumer, DatasetRecord
from lakehouse_source.properties import DatasetProperties
from lakehouse_source.storage import SHARED, is_of_transaction, shared_folder, split_shared

# --- Tags: names of versions of one dataset. All SQL about them.
#
# A version that has a tag can be read, even if the versions around it were expired.


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
        values = (dataset_id, records.without_nul(name, "tag"), version)
        return self._session.execute(_SET, values) == 1

    def drop_tag(self, dataset_id: int, name: str) -> bool:
        """Remove a tag; False if there is none."""
        return self._session.execute(_DROP, (dataset_id, name)) == 1


# --- Consumers: named readers of the change feed.
#
# All SQL about them. A consumer keeps the version up to which its reader has processed changes, and
# all later ones.


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
_DROP_CONSUMER = "DELETE FROM dataset_consumers WHERE dataset_id = ? AND name = ?"


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
        values = (dataset_id, records.without_nul(name, "consumer"), version, keep_seconds)
        return self._session.execute(_ADD, values) == 1

    def advance_consumer(self, dataset_id: int, name: str, version: int) -> None:
        """Move a consumer to a version, and restart its time."""
        self._session.execute(_ADVANCE, (version, dataset_id, name))

    def drop_consumer(self, dataset_id: int, name: str) -> bool:
        """Remove a consumer; False if there is none."""
        return self._session.execute(_DROP_CONSUMER, (dataset_id, name)) == 1


# --- Branches: datasets of their own, whose files are in the folder of another dataset.
#
# All SQL on them. A branch has its own rows for the files of one version of its dataset, the base,
# and has the versions that were committed to the branch. So all code that reads or changes a
# dataset works on a branch. Its key in the catalog is that of the dataset and its name
# (`storage.with_branch`).


_BRANCHES = (
    "SELECT b.name, b.branch_id, b.base_version, d.current_version FROM dataset_branches AS b "
    "JOIN datasets AS d ON d.id = b.branch_id WHERE b.dataset_id = ? AND d.dropped_at IS NULL "
    "ORDER BY b.branch_id"
)
# A dataset has files wherever another one may have files.
SHARE_AS = (
    "INSERT INTO dataset_clones (dataset_id, origin_id) SELECT CAST(? AS BIGINT), c.origin_id "
    "FROM dataset_clones AS c WHERE c.dataset_id = ?"
)
_INSERT = (
    "INSERT INTO dataset_branches (branch_id, dataset_id, name, base_version) VALUES (?, ?, ?, ?)"
)
# The base is the oldest version that can be read.
BEGIN = (
    "UPDATE datasets SET current_version = ?, oldest_version = ?, next_row_id = ?, "
    "properties_json = ? WHERE id = ?"
)
_OLD_BRANCHES = (
    "SELECT b.branch_id, b.name FROM dataset_branches AS b "
    "JOIN datasets AS d ON d.id = b.branch_id "
    "WHERE b.dataset_id = ? AND d.dropped_at IS NULL AND d.created_at < {now} - CAST(? AS BIGINT)"
)
# The branch gets the history of the dataset, so that streams and idempotency pairs continue. Ids of
# writes are unique: those of the copies begin with the id of the write that made the branch.
_COPY_HISTORY = (
    f"INSERT INTO transactions (dataset_id, {', '.join(sql.TRANSACTION_COLUMNS)}) "
    "SELECT b.branch_id, "
    + ", ".join(f"t.{one}" for one in sql.TRANSACTION_COLUMNS).replace(
        "t.write_id", "CAST(? AS TEXT) || ':' || t.write_id"
    )
    + " FROM dataset_branches AS b "
    "JOIN transactions AS t ON t.dataset_id = b.dataset_id AND t.version <= b.base_version "
    "WHERE b.branch_id = ? ORDER BY t.version"
)


# Of a clone: the folder that the files are in comes before the path, unless they are in the folder
# of another dataset already.
_COPIED = {
    "file_path": f"CASE WHEN substr(x.file_path, 1, {len(SHARED)}) = '{SHARED}' THEN x.file_path "
    "ELSE CAST(? AS TEXT) || x.file_path END"
}


def _copies(table: str, columns: tuple[str, ...], key: str = "file_id") -> str:
    """Copy the rows of files to other files: `m` has the old ids and the new ids."""
    names = ", ".join((key, *columns))
    values = ", ".join(("m.new_id", *(_COPIED.get(one, f"x.{one}") for one in columns)))
    return (
        f"INSERT INTO {table} ({names}) SELECT {values} FROM ({{id_pairs}}) AS m "
        f"JOIN {table} AS x ON x.{key} = m.old_id"
    )


def _of_dataset(statement: str) -> str:
    """The same statement for rows with a dataset, whose id is then the first value."""
    return statement.replace("x.dataset_id", "CAST(? AS BIGINT)")


_COPY_FILES = _of_dataset(_copies("files", sql.FILE_COLUMNS[1:], "id"))
_COPY_ROW_GROUPS = _copies("row_groups", sql.ROW_GROUP_COLUMNS[1:])
_COPY_PARTITIONS = _copies("partitions", sql.PARTITION_COLUMNS[1:])
# In the order of the primary key, so that neighbours are written to one page.
_COPY_BOUNDS = (
    _of_dataset(
        _copies("column_bounds", tuple(one for one in sql.BOUNDS_COLUMNS if one != "file_id"))
    )
    + " ORDER BY x.column_id, x.level, x.upper, x.lower"
)
COPY_VECTORS = (
    _of_dataset(
        _copies("deletion_vectors", tuple(one for one in sql.VECTOR_COLUMNS if one != "file_id"))
    )
    + f" WHERE {sql.LIVE_VECTOR}"
)


def _expire_again(table: str) -> str:
    """Expire again the expired files of a dataset that a readable version of its branch has."""
    return (
        f"UPDATE {table} SET expired_at = {{now}} WHERE dataset_id = ? "
        "AND expired_at IS NOT NULL AND file_path IN "
        f"(SELECT x.file_path FROM {table} AS x WHERE x.dataset_id = ? AND x.expired_at IS NULL)"
    )


def _insert_expired(table: str) -> str:
    """Insert files that only the branch has as files of an expired version 0 of its dataset."""
    of_branch = f"SELECT file_path FROM {table} WHERE dataset_id = ?"
    return (
        "INSERT INTO files (dataset_id, version, removed_version, schema_version, file_path, "
        "file_size_bytes, row_count, is_tombstoned, expired_at) "
        "SELECT CAST(? AS BIGINT), 0, 0, 0, x.file_path, max(x.file_size_bytes), 0, TRUE, "
        "CASE WHEN count(x.expired_at) < count(*) THEN {now} ELSE max(x.expired_at) END "
        f"FROM {table} AS x WHERE x.dataset_id = ? "
        f"AND x.file_path IN ({of_branch} EXCEPT {of_branch}) GROUP BY x.file_path"
    )


# Data files, and the files of deletion vectors.
_WITH_FILES = ("files", "deletion_vectors")
_EXPIRE_AGAIN = tuple(_expire_again(table) for table in _WITH_FILES)
_INSERT_EXPIRED = tuple(_insert_expired(table) for table in _WITH_FILES)
_SET_BASE = "UPDATE dataset_branches SET base_version = ? WHERE branch_id = ?"
FORGET_BRANCH = "DELETE FROM dataset_branches WHERE branch_id = ?"


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch of a dataset.

    `dataset_id` is the branch's own id. Up to `base_version` its versions are those of the dataset;
    `version` is its newest one.
    """

    name: str
    dataset_id: int
    base_version: int
    version: int


class BranchReader:
    """The branches of datasets, which one transaction reads."""

    _session: Session

    def branches(self, dataset_id: int) -> Mapping[str, Branch]:
        """The branches of a dataset, by name, in the order in which they were made."""
        return {row[0]: Branch(*row) for row in self._session.query(_BRANCHES, (dataset_id,))}


class BranchChanges(BranchReader):
    """The branches of datasets, which one transaction may change."""

    def insert_branch(self, dataset: DatasetRecord, branch: Branch, write_id: str) -> None:
        """Make a registered dataset a branch of another dataset, as of the branch's base.

        The branch gets the history up to its base, and the files and deletion vectors of that
        version. The schemas are not copied. `write_id` makes the ids of the copied history unique.
        """
        base, mine = branch.base_version, branch.dataset_id
        document = records.json_text(dataset.properties.to_json(), "properties")
        self._session.execute(_INSERT, (mine, dataset.id, branch.name, base))
        self._session.execute(BEGIN, (base, base, dataset.next_row_id, document, mine))
        self._session.execute(SHARE_AS, (mine, dataset.id))
        self._session.execute(_COPY_HISTORY, (write_id, mine))
        files = self._session.query(sql.FILE_IDS, (dataset.id, base, base))
        ids = self.copy_files(mine, (row[0] for row in files))
        if ids:
            self._session.execute(COPY_VECTORS, (mine, "", pairs(ids), base, base))

    def copy_files(
        self, dataset_id: int, file_ids: Iterable[int], folder: str = ""
    ) -> dict[int, int]:
        """Record files of one dataset for another one too; returns the new ids by the old ids.

        Versions, statistics and bounds are copied; deletion vectors are not. `folder` is where a
        clone finds the files, as `shared_folder` says it.
        """
        old = sorted(file_ids)
        if not old:
            return {}
        new = sorted(row[0] for row in self._session.query(sql.NEW_FILE_IDS, (len(old),)))
        ids = dict(zip(old, new))
        listed = pairs(ids)
        self._session.execute(_COPY_FILES, (dataset_id, folder, listed))
        self._session.execute(_COPY_ROW_GROUPS, (listed,))
        self._session.execute(_COPY_PARTITIONS, (listed,))
        self._session.execute(_COPY_BOUNDS, (dataset_id, listed))
        return ids

    def set_branch_base(self, branch_id: int, version: int) -> None:
        """Record the version up to which a branch and its dataset are the same."""
        self._session.execute(_SET_BASE, (version, branch_id))

    def abandoned_branches(self, dataset_id: int, seconds: float) -> list[int]:
        """The ids of a dataset's branches that a transaction made so long ago and did not end."""
        values = (dataset_id, int(seconds * 1_000_000))
        found = self._session.query(_OLD_BRANCHES, values)
        return [row[0] for row in found if is_of_transaction(row[1])]

    def expire_branch(self, dataset_id: int, branch_id: int) -> None:
        """Let the files of a branch expire now, in the catalog's rows of its dataset.

        After its retention, a vacuum of the dataset deletes the files that no other version needs.
        """
        for statement in _EXPIRE_AGAIN:
            self._session.execute(statement, (dataset_id, branch_id))
        for statement in _INSERT_EXPIRED:
            self._session.execute(statement, (dataset_id, branch_id, branch_id, dataset_id))


def pairs(ids: Mapping[int, int]) -> str:
    """Old and new ids as one bound value, for `{id_pairs}`."""
    return json.dumps(ids, separators=(",", ":"))


_ORIGINS = (
    "SELECT c.origin_id, d.base_uri FROM dataset_clones AS c "
    "JOIN datasets AS d ON d.id = c.origin_id WHERE c.dataset_id = ?"
)
# One statement is one snapshot: files that move from clone to clone are in one of them.
_NAMED = (
    "SELECT x.file_path, d.base_uri FROM dataset_clones AS c "
    "JOIN datasets AS d ON d.id = c.dataset_id JOIN {} AS x ON x.dataset_id = c.dataset_id "
    "WHERE c.origin_id = ? AND d.dropped_at IS NULL AND x.file_path LIKE ?"
)
_SHARED = f"{_NAMED.format('files')} UNION {_NAMED.format('deletion_vectors')}"
_INSERT_CLONE = "INSERT INTO dataset_clones (dataset_id, origin_id) VALUES (?, ?)"
_FOLDER_OF_BRANCH = "SELECT dataset_id FROM dataset_branches WHERE branch_id = ?"
_SET_PATH = "UPDATE files SET file_path = ? WHERE id = ?"


class CloneReader:
    """The clones of datasets, which one transaction reads."""

    _session: Session

    def origins(self, dataset_id: int) -> Mapping[int, str]:
        """The keys of the datasets, by id, in whose folders a dataset may have files."""
        return dict(self._session.query(_ORIGINS, (dataset_id,)))

    def shared_paths(self, dataset_id: int) -> Mapping[str, str]:
        """The files in the folder of a dataset that rows of other datasets name.

        The paths are relative to the folder. Each has the key of one of the datasets that name it.
        """
        folder = shared_folder(dataset_id)
        values = (dataset_id, f"{folder}%")
        found = self._session.query(_SHARED, (*values, *values))
        # LIKE has `_` for any character.
        return {split_shared(path)[1]: key for path, key in found if path.startswith(folder)}


class CloneChanges(BranchChanges, CloneReader):
    """The clones of datasets, which one transaction may change."""

    def insert_clone(
        self,
        source: DatasetRecord,
        mine: int,
        version: int,
        properties: DatasetProperties,
        schemas: Mapping[int, pa.Schema],
        *,
        shares: bool,
    ) -> dict[int, int]:
        """Let a registered dataset without a version begin as a version of another one.

        `mine` is its id. Returns the new ids of files by their ids in the source. Without `shares`
        the rows have the source's paths, for `set_paths`, and no deletion vectors.
        """
        folder = ""
        if shares:
            rows = self._session.query(_FOLDER_OF_BRANCH, (source.id,))
            origin = rows[0][0] if rows else source.id
            folder = shared_folder(origin)
            self._session.execute(SHARE_AS, (mine, source.id))
            self._session.execute(_INSERT_CLONE, (mine, origin))
            properties = replace(properties, origins=(*properties.origins, origin))
        document = records.json_text(properties.to_json(), "properties")
        self._session.execute(BEGIN, (version, version, source.next_row_id, document, mine))
        for number, schema in schemas.items():
            self._session.execute(INSERT_SCHEMA, (mine, number, schema.serialize().to_pybytes()))
        files = self._session.query(FILE_IDS, (source.id, version, version))
        ids = self.copy_files(mine, (row[0] for row in files), folder)
        if ids and shares:
            values = (mine, folder, pairs(ids), version, version)
            self._session.execute(COPY_VECTORS, values)
        return ids

    def set_paths(self, paths: Mapping[int, str]) -> None:
        """Let files that this transaction recorded, by id, be at other places."""
        for file_id, path in paths.items():
            self._session.execute(_SET_PATH, (path, file_id))

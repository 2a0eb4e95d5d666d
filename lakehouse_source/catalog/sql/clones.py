"""Edge. Clones: datasets that began with the files of another dataset. All SQL about them.

A file stays in the folder of the dataset that wrote it, its origin. The rows of a clone name it by
the origin's id (`storage.shared_folder`), and so do the rows of clones of the clone. The origin's
vacuum deletes a file only when no row of another dataset names it, whether a version that can be
read has it or not: when a clone's vacuum forgets an expired row, its own retention has passed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from lakehouse_source.catalog.sql import records
from lakehouse_source.catalog.sql.refs import BEGIN, COPY_VECTORS, SHARE_AS, BranchChanges, pairs
from lakehouse_source.catalog.sql.statements import FILE_IDS, INSERT_SCHEMA, Session
from lakehouse_source.model import DatasetRecord
from lakehouse_source.properties import DatasetProperties
from lakehouse_source.storage import shared_folder, split_shared

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
_INSERT = "INSERT INTO dataset_clones (dataset_id, origin_id) VALUES (?, ?)"
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
            self._session.execute(_INSERT, (mine, origin))
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

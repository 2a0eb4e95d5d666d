"""Verb. The one list of operations, by name."""

from __future__ import annotations

from collections.abc import Mapping

from lakehouse_source.operations import (
    catalog,
    files,
    maintenance,
    properties,
    queries,
    tables,
    versions,
)
from lakehouse_source.operations.entry import Operation

_ALL = (
    catalog.BACKUP,
    catalog.COPY,
    catalog.UNFENCE,
    catalog.INFO,
    catalog.DROPPED,
    catalog.UNDROP,
    files.ADD_FILES,
    files.CONVERT,
    files.FILES,
    files.IMPORT,
    maintenance.CLUSTER,
    maintenance.COMPACT,
    maintenance.ERASE,
    maintenance.EXPIRE_VERSIONS,
    maintenance.HEALTH,
    maintenance.MAINTAIN,
    maintenance.VACUUM,
    maintenance.VACUUM_CATALOG,
    maintenance.VERIFY,
    properties.PROPERTIES,
    properties.SET_PROPERTIES,
    properties.SET_INDEX_COLUMNS,
    queries.COUNT,
    queries.DIFF,
    queries.EXPLAIN,
    queries.EXPLAIN_ROW_GROUPS,
    queries.SUGGEST_LAYOUT,
    versions.ADD_CONSUMER,
    versions.ADVANCE_CONSUMER,
    tables.CREATE,
    tables.DESCRIBE,
    tables.DROP,
    tables.LIST,
    tables.RENAME,
    versions.CONSUMERS,
    versions.CREATE_BRANCH,
    versions.CREATE_TAG,
    versions.DROP_BRANCH,
    versions.DROP_CONSUMER,
    versions.DROP_TAG,
    versions.FAST_FORWARD,
    versions.HISTORY,
    versions.REFS,
    versions.RESTORE,
)
OPERATIONS: Mapping[str, Operation] = {one.name: one for one in sorted(_ALL, key=lambda o: o.name)}

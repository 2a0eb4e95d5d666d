"""The catalog's tables, as ordered migrations: the same ones for every backend.

A released migration is never edited: each change of format is a new entry. A catalog
with a format newer than the last entry is refused, because this release does not know its meaning.
"""

from __future__ import annotations

from collections.abc import Sequence

FORMAT_TABLE = "catalog_format"

# Tables in the order of their foreign keys.
TABLES = (
    "datasets",
    "schema_versions",
    "transactions",
    "files",
    "deletion_vectors",
    "row_groups",
    "partitions",
    "column_bounds",
    "pending_writes",
    "dataset_namespaces",
    "dataset_names",
    "dataset_tags",
    "dataset_branches",
    "catalog_settings",
    "dataset_views",
    "dataset_drops",
    "dataset_consumers",
    "iceberg_files",
    "dataset_clones",
    "catalog_leases",
    "identity_lanes",
)

_FIRST: Sequence[str] = (
    """CREATE TABLE catalog_format (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        version INTEGER NOT NULL,
        created_at BIGINT NOT NULL DEFAULT ({now})
    )""",
    """CREATE TABLE datasets (
        id {generated_key},
        name TEXT NOT NULL,
        base_uri TEXT NOT NULL UNIQUE,
        current_version BIGINT NOT NULL DEFAULT 0,
        properties_json TEXT NOT NULL DEFAULT '{}',
        created_at BIGINT NOT NULL DEFAULT ({now})
    )""",
    """CREATE TABLE schema_versions (
        id {generated_key},
        dataset_id BIGINT NOT NULL REFERENCES datasets (id),
        version BIGINT NOT NULL,
        arrow_schema {bytes_type} NOT NULL,
        created_at BIGINT NOT NULL DEFAULT ({now}),
        UNIQUE (dataset_id, version)
    )""",
    """CREATE TABLE transactions (
        id {generated_key},
        dataset_id BIGINT NOT NULL REFERENCES datasets (id),
        version BIGINT NOT NULL,
        timestamp BIGINT NOT NULL,
        operation TEXT NOT NULL,
        metadata_json TEXT NOT NULL,
        summary_json TEXT NOT NULL,
        write_id TEXT NOT NULL UNIQUE,
        txn_app_id TEXT,
        txn_version BIGINT,
        UNIQUE (dataset_id, version),
        UNIQUE (dataset_id, txn_app_id, txn_version)
    )""",
    "CREATE INDEX transactions_by_time ON transactions (dataset_id, timestamp)",
    """CREATE TABLE files (
        id {generated_key},
        dataset_id BIGINT NOT NULL REFERENCES datasets (id),
        version BIGINT NOT NULL,
        removed_version BIGINT,
        schema_version BIGINT NOT NULL,
        file_path TEXT NOT NULL,
        file_size_bytes BIGINT NOT NULL,
        row_count BIGINT NOT NULL,
        created_at BIGINT NOT NULL DEFAULT ({now}),
        is_tombstoned BOOLEAN NOT NULL DEFAULT FALSE,
        stats_complete BOOLEAN NOT NULL DEFAULT TRUE
    )""",
    "CREATE INDEX files_by_version ON files (dataset_id, version)",
    "CREATE INDEX files_by_removal ON files (dataset_id, removed_version)",
    """CREATE TABLE row_groups (
        id {generated},
        file_id BIGINT NOT NULL REFERENCES files (id) ON DELETE CASCADE,
        row_group_index INTEGER NOT NULL,
        row_count BIGINT NOT NULL,
        stats_min_json TEXT NOT NULL,
        stats_max_json TEXT NOT NULL,
        null_counts_json TEXT NOT NULL,
        nan_json TEXT NOT NULL,
        total_byte_size BIGINT NOT NULL,
        compressed_byte_size BIGINT NOT NULL,
        UNIQUE (file_id, row_group_index)
    )""",
    """CREATE TABLE partitions (
        file_id BIGINT NOT NULL REFERENCES files (id) ON DELETE CASCADE,
        key TEXT NOT NULL,
        value TEXT,
        PRIMARY KEY (file_id, key)
    ){without_rowid}""",
    """CREATE TABLE column_bounds (
        dataset_id BIGINT NOT NULL,
        column_id INTEGER NOT NULL,
        upper {bytes_type} NOT NULL,
        lower {bytes_type} NOT NULL,
        file_id BIGINT NOT NULL REFERENCES files (id) ON DELETE CASCADE,
        null_count BIGINT,
        row_count BIGINT NOT NULL,
        may_contain_nan BOOLEAN NOT NULL,
        PRIMARY KEY (dataset_id, column_id, upper, lower, file_id)
    ){without_rowid}""",
    "CREATE INDEX column_bounds_by_file ON column_bounds (file_id, column_id)",
    """CREATE TABLE pending_writes (
        write_id TEXT PRIMARY KEY,
        dataset_id BIGINT REFERENCES datasets (id),
        state TEXT NOT NULL DEFAULT 'pending',
        started_at BIGINT NOT NULL DEFAULT ({now}),
        heartbeat_at BIGINT NOT NULL DEFAULT ({now})
    ){without_rowid}""",
    "INSERT INTO catalog_format (id, version) VALUES (1, 1)",
)

# Versions below `oldest_version` cannot be read any more. `expired_at` is when the last
# version that has a file was expired.
_SECOND: Sequence[str] = (
    # Without NOT NULL: DuckDB 1 adds no column that has a constraint.
    "ALTER TABLE datasets ADD COLUMN oldest_version BIGINT DEFAULT 1",
    "ALTER TABLE files ADD COLUMN expired_at BIGINT",
)

_MOST_DIGITS = 80  # of a key


def _digits_in_common(fewest: int, most: int) -> str:
    """SQL: the length of the common prefix of `low` and `high`, two different texts."""
    if fewest == most:
        return str(fewest)
    middle = (fewest + most + 1) // 2
    return (
        f"CASE WHEN substr(low, 1, {middle}) = substr(high, 1, {middle}) "
        f"THEN {_digits_in_common(middle, most)} ELSE {_digits_in_common(fewest, middle - 1)} END"
    )


# The primary key of the search index begins with `level` (pruning/keys.py), so that no
# search reads all files above a key. A new table: not every database can change a primary key.
_THIRD: Sequence[str] = (
    """CREATE TABLE column_bounds_before AS
        SELECT *, {hex_lower} AS low, {hex_upper} AS high FROM column_bounds""",
    "DROP TABLE column_bounds",
    """CREATE TABLE column_bounds (
        dataset_id BIGINT NOT NULL,
        column_id INTEGER NOT NULL,
        level SMALLINT NOT NULL,
        upper {bytes_type} NOT NULL,
        lower {bytes_type} NOT NULL,
        file_id BIGINT NOT NULL REFERENCES files (id) ON DELETE CASCADE,
        null_count BIGINT,
        row_count BIGINT NOT NULL,
        may_contain_nan BOOLEAN NOT NULL,
        PRIMARY KEY (dataset_id, column_id, level, upper, lower, file_id)
    ){without_rowid}""",
    f"""INSERT INTO column_bounds (
            dataset_id, column_id, level, upper, lower, file_id, null_count, row_count,
            may_contain_nan)
        SELECT dataset_id, column_id,
            CASE WHEN low = high THEN length(low) ELSE {_digits_in_common(0, _MOST_DIGITS)} END,
            upper, lower, file_id, null_count, row_count, may_contain_nan
        FROM column_bounds_before ORDER BY 1, 2, 3, 4, 5, 6""",
    "DROP TABLE column_bounds_before",
    "CREATE INDEX column_bounds_by_file ON column_bounds (file_id, column_id)",
)

# No table changes. From this format on, a file's rows in `partitions` carry the names that the
# partition columns had in the file's own schema. A reader of an older format looks values up by the
# present names, and would read NULL for a renamed column. It does not find the columns of foreign
# files by name either. It has to be refused.
_FOURTH: Sequence[str] = ()

# No table changes. From this format on, a field of a schema may have a default value in its
# metadata (`schema/defaults`), which rows in files without the field have. A reader of an older
# format would show NULL in these rows. It has to be refused.
_FIFTH: Sequence[str] = ()

# From this format on, rows of a file may be deleted by a vector, and each row has an identity. A
# reader of an older format would show deleted rows. It has to be refused. Rows that exist get
# their identities in the order in which their files were recorded. A file that was restored has
# several rows in `files` and keeps the identities of the first one.
_SIXTH: Sequence[str] = (
    # Without NOT NULL: DuckDB 1 adds no column that has a constraint.
    "ALTER TABLE datasets ADD COLUMN next_row_id BIGINT DEFAULT 0",
    "ALTER TABLE files ADD COLUMN first_row_id BIGINT",
    """CREATE TABLE first_row_ids AS
        SELECT dataset_id, file_path,
            CAST(sum(row_count) OVER (PARTITION BY dataset_id ORDER BY first_id
                ROWS UNBOUNDED PRECEDING) AS BIGINT) - row_count AS first_row_id
        FROM (SELECT dataset_id, file_path, min(id) AS first_id, max(row_count) AS row_count
            FROM files GROUP BY dataset_id, file_path) AS each_file""",
    "CREATE INDEX first_row_ids_by_path ON first_row_ids (dataset_id, file_path)",
    """UPDATE files SET first_row_id = (SELECT f.first_row_id FROM first_row_ids AS f
        WHERE f.dataset_id = files.dataset_id AND f.file_path = files.file_path)""",
    """UPDATE datasets SET next_row_id = coalesce((SELECT max(f.first_row_id + f.row_count)
        FROM files AS f WHERE f.dataset_id = datasets.id), 0)""",
    "DROP TABLE first_row_ids",
    """CREATE TABLE deletion_vectors (
        dataset_id BIGINT NOT NULL,
        file_id BIGINT NOT NULL REFERENCES files (id) ON DELETE CASCADE,
        version BIGINT NOT NULL,
        removed_version BIGINT,
        file_path TEXT NOT NULL,
        file_size_bytes BIGINT NOT NULL,
        blob_offset BIGINT NOT NULL,
        blob_length BIGINT NOT NULL,
        cardinality BIGINT NOT NULL,
        small_blob {bytes_type},
        expired_at BIGINT,
        PRIMARY KEY (file_id, version)
    )""",
    "CREATE INDEX deletion_vectors_by_dataset ON deletion_vectors (dataset_id, removed_version)",
)

# From this format on, datasets have names, versions have tags, and a dataset may get other
# partition columns when all of it is replaced. A reader of an older format would read old versions
# of such a dataset with the new partition columns, and its expiry would ignore tags. It has to be
# refused. `dropped_at` is when a dataset was dropped whose files are still to be deleted. Without
# foreign keys: DuckDB changes no row that another one refers to.
_SEVENTH: Sequence[str] = (
    "ALTER TABLE datasets ADD COLUMN dropped_at BIGINT",
    """CREATE TABLE dataset_namespaces (
        lookup TEXT PRIMARY KEY,
        name TEXT NOT NULL,
        properties_json TEXT NOT NULL DEFAULT '{}',
        created_at BIGINT NOT NULL DEFAULT ({now})
    ){without_rowid}""",
    "INSERT INTO dataset_namespaces (lookup, name) VALUES ('default', 'default')",
    """CREATE TABLE dataset_names (
        namespace TEXT NOT NULL,
        lookup TEXT NOT NULL,
        name TEXT NOT NULL,
        dataset_id BIGINT NOT NULL UNIQUE,
        created_at BIGINT NOT NULL DEFAULT ({now}),
        PRIMARY KEY (namespace, lookup)
    ){without_rowid}""",
    """CREATE TABLE dataset_tags (
        dataset_id BIGINT NOT NULL,
        name TEXT NOT NULL,
        version BIGINT NOT NULL,
        created_at BIGINT NOT NULL DEFAULT ({now}),
        PRIMARY KEY (dataset_id, name)
    ){without_rowid}""",
    """CREATE TABLE catalog_settings (
        name TEXT PRIMARY KEY,
        value TEXT NOT NULL
    ){without_rowid}""",
)

# From this format on, a dataset may have branches: datasets of their own, with files in the folder
# of the dataset. A vacuum of an older format would delete these files. It has to be refused.
_EIGHTH: Sequence[str] = (
    """CREATE TABLE dataset_branches (
        branch_id BIGINT PRIMARY KEY,
        dataset_id BIGINT NOT NULL,
        name TEXT NOT NULL,
        base_version BIGINT NOT NULL,
        created_at BIGINT NOT NULL DEFAULT ({now}),
        UNIQUE (dataset_id, name)
    ){without_rowid}""",
)

# From this format on, a vacuum removes commits of expired versions from the history. An older
# format would check a slow write against the rest of the history, and miss conflicts. It has to be
# refused. The tables stay as they are.
_NINTH: Sequence[str] = ()

# From this format on, a file and a deletion vector may have the SHA-256 of their bytes (32 bytes,
# NULL where the release that wrote them did not compute it), and a commit tells who made it:
# `committed_by` is the login of the database, or the system user where it has none;
# `committer_json` says the rest (host, engine and its version, application, query). `claimed_at` is
# when a dataset's folder became this catalog's own; NULL: its owner is not checked yet. `managed`:
# plake chose the dataset's location, so that a vacuum of the catalog may delete it some time after
# its name was dropped; NULL: unknown, or a user chose it.
_TENTH: Sequence[str] = (
    # Without NOT NULL: DuckDB 1 adds no column that has a constraint.
    "ALTER TABLE files ADD COLUMN sha256 {bytes_type}",
    "ALTER TABLE deletion_vectors ADD COLUMN sha256 {bytes_type}",
    "ALTER TABLE transactions ADD COLUMN committed_by TEXT",
    "ALTER TABLE transactions ADD COLUMN committer_json TEXT",
    "ALTER TABLE datasets ADD COLUMN claimed_at BIGINT",
    "ALTER TABLE datasets ADD COLUMN managed BOOLEAN",
    # Dropped names of datasets that the catalog still has.
    """CREATE TABLE dataset_drops (
        dataset_id BIGINT PRIMARY KEY,
        namespace TEXT NOT NULL,
        name TEXT NOT NULL,
        dropped_at BIGINT NOT NULL DEFAULT ({now})
    ){without_rowid}""",
    # Versions from `version` on are kept for a reader of the change feed, `keep_seconds` long.
    """CREATE TABLE dataset_consumers (
        dataset_id BIGINT NOT NULL,
        name TEXT NOT NULL,
        version BIGINT NOT NULL,
        keep_seconds BIGINT NOT NULL,
        created_at BIGINT NOT NULL DEFAULT ({now}),
        advanced_at BIGINT NOT NULL DEFAULT ({now}),
        PRIMARY KEY (dataset_id, name)
    ){without_rowid}""",
    # A view is a text: the engine that made it reads `document_json`. It shares its namespace with
    # the names of datasets.
    """CREATE TABLE dataset_views (
        namespace TEXT NOT NULL,
        lookup TEXT NOT NULL,
        name TEXT NOT NULL,
        document_json TEXT NOT NULL,
        created_at BIGINT NOT NULL DEFAULT ({now}),
        PRIMARY KEY (namespace, lookup)
    ){without_rowid}""",
    # Metadata files by which readers of Iceberg find a version: `kind` is `snapshot` (a list of
    # manifests, which `document_json` names) or `metadata` (a whole table). `location` is where
    # the dataset was when the file was written: such files name others by absolute paths.
    """CREATE TABLE iceberg_files (
        dataset_id BIGINT NOT NULL,
        file_path TEXT NOT NULL,
        version BIGINT NOT NULL,
        kind TEXT NOT NULL,
        erased_version BIGINT NOT NULL,
        location TEXT NOT NULL,
        document_json TEXT NOT NULL,
        expired_at BIGINT,
        PRIMARY KEY (dataset_id, file_path)
    ){without_rowid}""",
)

# `login` is who registered a write, as the database knows the client: where PostgreSQL's roles are
# in force (backends/postgres/roles.sql), nobody else ends the write or commits it. NULL: unknown,
# or a database without users. From this format on, a catalog may also be fenced
# (`write_states.py`). An older format would write to it: it has to be refused.
_ELEVENTH: Sequence[str] = ("ALTER TABLE pending_writes ADD COLUMN login TEXT",)

# From this format on, a dataset may have files in the folder of another one, from which it was
# cloned (`refs.py`): a vacuum of an older format would delete these files. There may also be
# constraints (`properties.Check`): an older format would commit rows that break them. So an older
# format has to be refused.
_TWELFTH: Sequence[str] = (
    """CREATE TABLE dataset_clones (
        dataset_id BIGINT NOT NULL,
        origin_id BIGINT NOT NULL,
        created_at BIGINT NOT NULL DEFAULT ({now}),
        PRIMARY KEY (origin_id, dataset_id)
    ){without_rowid}""",
)

# Work that one process at a time does for the whole catalog (`leases.py`).
_LEASES: Sequence[str] = (
    """CREATE TABLE catalog_leases (
        name TEXT PRIMARY KEY,
        holder TEXT NOT NULL,
        beats BIGINT NOT NULL,
        lease_seconds BIGINT NOT NULL,
        beat_at BIGINT NOT NULL DEFAULT ({now})
    ){without_rowid}""",
)

# From this format on, columns may be computed (`schema/defaults.py`): an older format would commit
# rows without their values, or with others. It has to be refused.
_COMPUTED: Sequence[str] = (
    # Numbers of identity columns, which writes hold (`leases.py`).
    """CREATE TABLE identity_lanes (
        sequence TEXT NOT NULL,
        lane BIGINT NOT NULL,
        next_number BIGINT NOT NULL,
        write_id TEXT,
        PRIMARY KEY (sequence, lane)
    ){without_rowid}""",
)

# From this format on, a constraint may be a key, `PRIMARY KEY (a)` or `UNIQUE (a)`: an older format
# would take its text for a condition. So an older format has to be refused.
_THIRTEENTH: Sequence[str] = (*_LEASES, *_COMPUTED)

# MIGRATIONS[n] leads from format n to format n + 1.
MIGRATIONS: Sequence[Sequence[str]] = (
    *(_FIRST, _SECOND, _THIRD, _FOURTH, _FIFTH, _SIXTH),
    *(_SEVENTH, _EIGHTH, _NINTH, _TENTH, _ELEVENTH, _TWELFTH, _THIRTEENTH),
)
LATEST = len(MIGRATIONS)


def steps(found: int) -> list[str]:
    """The statements that lead from format `found` (0: no tables) to the latest."""
    result: list[str] = []
    for number in range(found, LATEST):
        result.extend(MIGRATIONS[number])
        if number > 0:
            result.append(f"UPDATE catalog_format SET version = {number + 1} WHERE id = 1")
    return result


def refusal(found: int) -> str | None:
    """Why a catalog of format `found` cannot be used, or None where it can."""
    if found > LATEST:
        return (
            f"it has format {found} and this version of plake knows formats up to {LATEST}. "
            "Upgrade plake"
        )
    return None

"""SQL text, written once for every backend; it opens no connection and decides nothing.

Placeholders are `?`. What the backends spell differently is a field of `Dialect`
and stands in braces. Every value is bound; names of columns and tables of the
catalog are the only identifiers there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

# --- What databases spell differently in the statements of the catalog.


@dataclass(frozen=True, slots=True)
class Dialect:
    """What one database spells differently from the others.

    `now` is the database's clock in microseconds since 1970 UTC; `login` is the client's user as
    the database knows it, NULL if the database has no users; `is_login` tells whether the client
    may act as the login that committed `t`, NULL if there is no such login; `greatest` is the name
    of the function that picks the larger of two numbers; `among` tests membership in a bound list
    of ids and `ids` is that list as a relation; `files_of_s` joins files to a relation `s` of ids
    that comes first, one look-up per id; `bounds_of_s` joins the search index to a relation `s` of
    spans in the same way. `spans` is a bound relation of spans, empty where each span is bound by
    itself; `levels` tells which levels a column has; it is empty if seeking in the index is slower
    than reading it. `hex_lower` and `hex_upper` are keys as hexadecimal text. `highest_id` is a
    query for the highest id that was ever given in `$table`. `join_texts` is the name of the
    function that joins the texts of all rows. `cascades`: rows that refer to deleted
    ones go with them. `keep_file_ids` keep ids up to a number where a file must be there to keep
    them. `new_file_ids` gives a number of ids (at least one) that no file has or had;
    `id_pairs` is a bound JSON object as a relation of `old_id`, its keys, and `new_id`.
    """

    placeholder: str
    now: str
    login: str
    is_login: str
    greatest: str
    among: str
    ids: str
    files_of_s: str
    lock: str
    new_file_ids: str
    id_pairs: str
    generated_key: str
    generated: str
    bytes_type: str
    without_rowid: str
    spans: str
    bounds_of_s: str
    levels: str
    hex_lower: str
    hex_upper: str
    highest_id: str
    join_texts: str
    cascades: bool = False
    keep_file_ids: tuple[str, ...] = ()

    def render(self, template: str) -> str:
        """The statement in this dialect, still with `?` for its values."""
        text = template
        for name in self.__slots__:
            text = text.replace("{" + name + "}", str(getattr(self, name)))
        return text


# A jump from each level to the next. No database's planner does this for DISTINCT.
LEVELS = (
    "WITH RECURSIVE found (level) AS (SELECT (SELECT level FROM column_bounds "
    "WHERE dataset_id = ? AND column_id = ? ORDER BY level LIMIT 1) UNION ALL "
    "SELECT (SELECT b.level FROM column_bounds AS b WHERE b.dataset_id = ? AND b.column_id = ? "
    "AND b.level > found.level ORDER BY b.level LIMIT 1) FROM found WHERE found.level IS NOT NULL"
    ") SELECT level FROM found WHERE level IS NOT NULL"
)
IN_SPAN = (
    "b.dataset_id = ? AND b.column_id = ? AND b.level = s.column1 "
    "AND b.upper >= s.column2 AND b.upper <= s.column3 AND b.lower <= s.column4"
)


# --- What readers and writers of the catalog ask of one open database transaction.


Row = tuple[Any, ...]
# Text with `?`, and its values.
Statement = tuple[str, Sequence[Any]]


class Session(Protocol):
    """One database transaction. Statements use `?` and the fragments of `dialect`.

    Every failure is raised as a `PlakeError` that says by its fields whether to try again.
    """

    dialect: Dialect
    redacted_url: str
    # The path of a catalog that may be in the folder of a dataset.
    catalog_path: str | None

    def query(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        """The rows that a statement gives."""

    def query_all(self, statements: Sequence[Statement]) -> list[list[Row]]:
        """The rows of each of several statements, which are run one after the other."""

    def columns(
        self, columns: Sequence[tuple[str, pa.DataType]], rest: str, values: Sequence[Any]
    ) -> list[pa.Array]:
        """Columns of many rows, in any order; `rest` is the statement after their names.

        They are integers and bytes, and never NULL.
        """

    def execute(self, statement: str, values: Sequence[Any] = ()) -> int:
        """Run a statement; return how many rows it changed."""

    def send(self, statement: str, values: Sequence[Any] = ()) -> None:
        """Run a statement whose result is not needed, now or later.

        It is run before any later statement and before COMMIT; its error is raised there.
        """

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        """Insert rows, few or many, as `send` does."""

    def flush(self) -> None:
        """Run what was sent and not run yet."""

    def id_list(self, ids: Iterable[int]) -> Any:
        """A list of ids as one bound value, for `Dialect.among` and `Dialect.ids`."""


# A column of a statement: the copy that the catalog's fence names (`write_states.py`), or NULL.
FENCED_FOR = "(SELECT value FROM catalog_settings WHERE name = 'fence') AS value_or_null"

# --- datasets and their history ----------------------------------------------

_DATASET = (
    "SELECT id, name, base_uri, current_version, properties_json, oldest_version, next_row_id "
    "FROM datasets"
)
DATASET = f"{_DATASET} WHERE base_uri = ? AND dropped_at IS NULL"
DATASET_LOCKED = f"{DATASET}{{lock}}"
DATASET_BY_ID = f"{_DATASET} WHERE id = ?"
# Only the key of a branch has a `#`.
_NO_BRANCH = "base_uri NOT LIKE '%#%'"
DATASETS = f"{_DATASET} WHERE dropped_at IS NULL AND {_NO_BRANCH} ORDER BY id"
LOCAL_DATASETS = (
    "SELECT base_uri FROM datasets WHERE base_uri LIKE 'file://%' AND dropped_at IS NULL "
    f"AND {_NO_BRANCH} ORDER BY id"
)
_SCHEMA_NOW = (
    "(SELECT {} FROM schema_versions AS s WHERE s.dataset_id = d.id "
    "AND s.version <= d.current_version ORDER BY s.version DESC LIMIT 1)"
)


_NEWEST_WRITE = (
    "(SELECT n.write_id FROM transactions AS n "
    "WHERE n.dataset_id = d.id AND n.version = d.current_version)"
)


def current(write_state: str) -> str:
    """A dataset, its schema and the state of a write: all that a write begins with.

    One statement is one round trip and one snapshot. `write_state` is a column with one `?`.
    """
    return (
        "SELECT d.id, d.name, d.base_uri, d.current_version, d.properties_json, "
        f"d.oldest_version, d.next_row_id, {_SCHEMA_NOW.format('s.version')} AS version_or_null, "
        f"{_SCHEMA_NOW.format('s.arrow_schema')} AS arrow_schema_or_null, {write_state}, "
        f"d.claimed_at IS NOT NULL, {_NEWEST_WRITE} "
        "FROM datasets AS d WHERE d.base_uri = ? AND d.dropped_at IS NULL"
    )


# Everything that opening a version needs, in one round trip: one row per schema.
DESCRIPTION = (
    "SELECT d.id, d.name, d.base_uri, d.current_version, d.properties_json, d.oldest_version, "
    "d.next_row_id, t.summary_json AS summary_json_or_null, s.version AS version_or_null, "
    "s.arrow_schema AS arrow_schema_or_null, "
    f"{_NEWEST_WRITE}, "
    "EXISTS (SELECT 1 FROM deletion_vectors AS x WHERE x.dataset_id = d.id), "
    "t.write_id AS write_id_or_null FROM datasets AS d "
    "LEFT JOIN transactions AS t ON t.dataset_id = d.id "
    "AND t.version = coalesce(CAST(? AS BIGINT), d.current_version) "
    "LEFT JOIN schema_versions AS s ON s.dataset_id = d.id "
    "WHERE d.base_uri = ? AND d.dropped_at IS NULL"
)

SCHEMA_AT = (
    "SELECT version, arrow_schema FROM schema_versions "
    "WHERE dataset_id = ? AND version <= ? ORDER BY version DESC LIMIT 1"
)
SCHEMA_AFTER = (
    "SELECT version, arrow_schema FROM schema_versions "
    "WHERE dataset_id = ? AND version > ? ORDER BY version DESC LIMIT 1"
)
SCHEMAS = "SELECT version, arrow_schema FROM schema_versions WHERE dataset_id = ? ORDER BY version"

# The columns of a commit, in the order of the fields of `TransactionRecord`: new ones come last.
TRANSACTION_COLUMNS = (
    *("version", "timestamp", "operation", "metadata_json", "summary_json", "write_id"),
    *("txn_app_id", "txn_version", "committed_by", "committer_json"),
)
_TRANSACTION = f"SELECT {', '.join(TRANSACTION_COLUMNS)} FROM transactions"
TRANSACTIONS = f"{_TRANSACTION} WHERE dataset_id = ? ORDER BY version DESC LIMIT ?"
TRANSACTIONS_SINCE = f"{_TRANSACTION} WHERE dataset_id = ? AND version > ? ORDER BY version"
FIRST_TRANSACTIONS_SINCE = f"{TRANSACTIONS_SINCE} LIMIT ?"
FIRST_VERSION_FROM = (
    "SELECT version FROM transactions WHERE dataset_id = ? AND timestamp >= ? "
    "ORDER BY timestamp LIMIT 1"
)
TRANSACTION = f"{_TRANSACTION} WHERE dataset_id = ? AND version = ?"
WRITE_ID_OF = "SELECT write_id FROM transactions WHERE dataset_id = ? AND version = ?"
TRANSACTION_BY_WRITE_ID = f"{_TRANSACTION} WHERE write_id = ?"
TRANSACTION_BY_TXN = f"{_TRANSACTION} WHERE dataset_id = ? AND txn_app_id = ? AND txn_version = ?"
LAST_OF_APPLICATION = (
    f"{_TRANSACTION} WHERE dataset_id = ? AND txn_app_id = ? ORDER BY txn_version DESC LIMIT 1"
)
# `is_login`: the client is that login, or a member of it; NULL: the login is no more.
LOGINS_OF_APPLICATION = (
    "SELECT DISTINCT t.committed_by, {is_login} FROM transactions AS t "
    "WHERE t.dataset_id = ? AND t.txn_app_id = ?"
)
PAIRS_AFTER = (
    "SELECT txn_app_id, max(txn_version) FROM transactions WHERE dataset_id = ? AND version > ? "
    "AND txn_app_id IS NOT NULL GROUP BY txn_app_id ORDER BY txn_app_id"
)
VERSION_AT = (
    "SELECT version FROM transactions WHERE dataset_id = ? AND timestamp <= ? "
    "ORDER BY timestamp DESC LIMIT 1"
)


NOW = "SELECT {now}"
NEW_FILE_IDS = "{new_file_ids}"

# --- files --------------------------------------------------------------------

_FILE = (
    "f.id, f.file_path, f.file_size_bytes, f.row_count, f.schema_version, f.version, "
    "f.stats_complete, f.first_row_id"
)
LIVE = (
    "f.dataset_id = ? AND f.version <= ? AND (f.removed_version IS NULL OR f.removed_version > ?)"
)
_ORDER = "ORDER BY f.version, f.id"
FILES = f"SELECT {_FILE} FROM files AS f WHERE {LIVE} {_ORDER}"
FIRST_FILES = f"{FILES} LIMIT ?"
# Files of the newest version, which the index of removals finds.
SMALL_FILES = (
    f"SELECT {_FILE} FROM files AS f WHERE f.dataset_id = ? AND f.removed_version IS NULL "
    f"AND f.file_size_bytes < ? {_ORDER}"
)
FILE_IDS = f"SELECT f.id FROM files AS f WHERE {LIVE} {_ORDER}"
LIVE_PATHS = f"SELECT f.file_path, f.id FROM files AS f WHERE {LIVE}"
FILES_BY_ID = f"SELECT {_FILE} FROM files AS f WHERE f.id {{among}} {_ORDER}"
FILES_ADDED_SINCE = (
    f"SELECT {_FILE} FROM files AS f WHERE f.dataset_id = ? AND f.version > ? {_ORDER}"
)
FILES_ADDED_BETWEEN = (
    f"SELECT {_FILE} FROM files AS f "
    f"WHERE f.dataset_id = ? AND f.version > ? AND f.version <= ? {_ORDER}"
)
# The files that follow a file, ordered by the version that added them and by id.
_FOLLOWING = (
    f"SELECT {_FILE} FROM files AS f WHERE f.dataset_id = ? AND f.version BETWEEN ? AND ? "
    "AND (f.version > ? OR f.id > ?)"
)
FILES_FOLLOWING = f"{_FOLLOWING} {_ORDER} LIMIT ?"
LIVE_FILES_FOLLOWING = (
    f"{_FOLLOWING} AND (f.removed_version IS NULL OR f.removed_version > ?) {_ORDER} LIMIT ?"
)
# The vectors that are live at a version: those of some files, and those of a whole dataset.
_VECTORS = (
    "SELECT x.file_id, x.version, x.file_path, x.file_size_bytes, x.blob_offset, x.blob_length, "
    "x.cardinality, x.small_blob, x.sha256 FROM deletion_vectors AS x"
)
LIVE_VECTOR = "x.version <= ? AND (x.removed_version IS NULL OR x.removed_version > ?)"
VECTORS_OF_FILES = f"{_VECTORS} WHERE x.file_id {{among}} AND {LIVE_VECTOR}"
VECTORS = f"{_VECTORS} WHERE x.dataset_id = ? AND {LIVE_VECTOR} ORDER BY x.file_id"
VECTORS_ADDED_BETWEEN = (
    f"{_VECTORS} WHERE x.dataset_id = ? AND x.version > ? AND x.version <= ? ORDER BY x.version"
)
VECTORS_SINCE = (
    f"{_VECTORS} WHERE x.file_id {{among}} AND x.version > ? ORDER BY x.file_id, x.version"
)
CHECKSUMS = "SELECT id, sha256 FROM files WHERE id {among} AND sha256 IS NOT NULL"
# The last column is the version that removed the file or vector. If a tagged version has it, it is
# readable, because a tagged version can be read, however old it is.
TAGGED = (
    "EXISTS (SELECT 1 FROM dataset_tags AS g WHERE g.dataset_id = {0}.dataset_id "
    "AND g.version >= {0}.version AND g.version < {0}.removed_version)"
)
_READABLE = (
    "{0}.dataset_id = ? AND ({0}.removed_version IS NULL OR {0}.removed_version > ? "
    f"OR {TAGGED})"
)
READABLE_FILES = (
    f"SELECT {_FILE}, f.removed_version FROM files AS f WHERE {_READABLE.format('f')} {_ORDER}"
)
READABLE_VECTORS = (
    _VECTORS.replace(" FROM ", ", x.removed_version FROM ", 1)
    + f" WHERE {_READABLE.format('x')} ORDER BY x.file_id, x.version"
)
LIVE_AMONG = "SELECT id FROM files WHERE removed_version IS NULL AND id {among}"
PARTITIONS = "SELECT file_id, key, value FROM partitions WHERE file_id {among}"
ROW_GROUPS = (
    "SELECT file_id, row_group_index, row_count, stats_min_json, stats_max_json, "
    "null_counts_json, nan_json, total_byte_size, compressed_byte_size "
    "FROM row_groups WHERE file_id {among} ORDER BY file_id, row_group_index"
)
# Without the statistics, which are most of a row: over half a kilobyte.
BARE_ROW_GROUPS = (
    "SELECT file_id, row_group_index, row_count, '{}', '{}', '{}', '{}', "
    "total_byte_size, compressed_byte_size "
    "FROM row_groups WHERE file_id {among} ORDER BY file_id, row_group_index"
)


def removed_files(paths: int) -> str:
    """The records of removed files at these paths, including files that a branch shares.

    The values are the dataset twice and the paths.
    """
    return (
        "SELECT f.file_path, f.first_row_id, f.row_count FROM files AS f "
        "WHERE f.removed_version IS NOT NULL AND f.row_count > 0 AND (f.dataset_id = ? OR EXISTS ("
        "SELECT 1 FROM dataset_branches AS b WHERE b.branch_id = ? "
        "AND b.dataset_id = f.dataset_id AND f.removed_version <= b.base_version)) "
        f"AND f.file_path IN ({', '.join('?' * paths)}) ORDER BY f.id"
    )


def rewritten_paths(moving: int, keeping: int) -> str:
    """The paths of files with rows that a rewrite removed, after which no commit removed rows.

    The values are the dataset and the names of `moving`, then the dataset and the names of
    `keeping`.
    """
    return (
        "SELECT f.file_path FROM files AS f JOIN transactions AS t "
        "ON t.dataset_id = f.dataset_id AND t.version = f.removed_version "
        f"WHERE f.dataset_id = ? AND t.operation IN ({', '.join('?' * moving)}) "
        "AND f.row_count > 0 AND f.removed_version > ("
        "SELECT COALESCE(MAX(r.version), 0) FROM transactions AS r WHERE r.dataset_id = ? "
        f"AND r.operation NOT IN ({', '.join('?' * keeping)}))"
    )


def files_found(search: str, condition: str = "TRUE") -> str:
    """The live files that `search`, a SELECT of file_id, finds and that meet `condition`."""
    return f"SELECT {_FILE} {_found(search, condition)} {_ORDER}"


def first_files_found(search: str, condition: str = "TRUE") -> str:
    """The first of the files that `files_found` gives."""
    return f"{files_found(search, condition)} LIMIT ?"


def file_ids_found(search: str, condition: str = "TRUE") -> str:
    """The ids of the files that `files_found` gives, in the same order."""
    return f"SELECT f.id {_found(search, condition)} {_ORDER}"


def count_found(search: str) -> str:
    """The number of live files that `search` finds."""
    return f"SELECT count(*) {_found(search, 'TRUE')}"


def sum_rows_found(search: str, condition: str) -> str:
    """The number of live rows in the files that `search` finds and that meet `condition`.

    The version comes first, twice.
    """
    deleted = (
        "coalesce((SELECT x.cardinality FROM deletion_vectors AS x "
        f"WHERE x.file_id = f.id AND {LIVE_VECTOR}), 0)"
    )
    return f"SELECT coalesce(sum(f.row_count - {deleted}), 0) {_found(search, condition)}"


def _found(search: str, condition: str) -> str:
    return f"FROM ({search}) AS s {{files_of_s}} WHERE {LIVE} AND {condition}"


# --- the search index ---------------------------------------------------------

# Led by `level` and `upper`, with `lower` in the same index entry: see pruning/keys.py.
_BOUNDS = "SELECT lower, upper, file_id FROM column_bounds WHERE dataset_id = ? AND column_id = ?"
BOUNDS_OVERLAPPING = f"{_BOUNDS} AND upper >= ? AND lower <= ?"
OVERLAPPING = BOUNDS_OVERLAPPING.replace("lower, upper, file_id", "file_id", 1)
COUNT_BOUNDS = (
    "SELECT count(*) FROM (SELECT 1 AS one FROM column_bounds "
    "WHERE dataset_id = ? AND column_id = ? LIMIT ?) AS b"
)


def in_spans(columns: str, spans: str) -> str:
    """`columns` of the index rows `b` in `spans`, a relation of (level, first, last, highest)."""
    return f"SELECT {columns} FROM ({spans}) AS s {{bounds_of_s}}"


def bounds_within(ranges: int) -> str:
    """A condition on files `f`: the bounds of a column are within one of `ranges` ranges.

    The column has no NULL in these files. A file with unknown bounds does not match.
    """
    spans = " OR ".join(["(c.lower >= ? AND c.upper <= ?)"] * ranges)
    return (
        "EXISTS (SELECT 1 FROM column_bounds AS c WHERE c.file_id = f.id AND c.column_id = ? "
        f"AND c.null_count = 0 AND ({spans}))"
    )


BOUNDS_OF_FILES = (
    "SELECT lower, upper, file_id FROM column_bounds WHERE file_id {among} AND column_id = ?"
)
FILE_BOUNDS = (
    "SELECT file_id, column_id, lower, upper, null_count, row_count, may_contain_nan "
    "FROM column_bounds WHERE file_id {among} AND column_id {among}"
)
NO_FILE = "SELECT 0 AS file_id WHERE 1 = 0"

# --- changes --------------------------------------------------------------------

REGISTER_DATASET = (
    "INSERT INTO datasets (name, base_uri) VALUES (?, ?) ON CONFLICT (base_uri) DO NOTHING"
)
SET_PROPERTIES = "UPDATE datasets SET properties_json = ? WHERE id = ?"
ADVANCE = (
    "UPDATE datasets SET current_version = ?, next_row_id = next_row_id + ? "
    "WHERE id = ? AND current_version = ?"
)
INSERT_SCHEMA = "INSERT INTO schema_versions (dataset_id, version, arrow_schema) VALUES (?, ?, ?)"
# Comes after ADVANCE, and does nothing if ADVANCE changed nothing.
INSERT_TRANSACTION = (
    f"INSERT INTO transactions (dataset_id, {', '.join(TRANSACTION_COLUMNS)}) SELECT ?, ?, "
    "{greatest}({now}, 1 + coalesce((SELECT timestamp FROM transactions WHERE dataset_id = ? "
    "ORDER BY timestamp DESC LIMIT 1), 0)), ?, ?, ?, ?, ?, ?, "
    "coalesce({login}, ?), ? "
    "WHERE EXISTS (SELECT 1 FROM datasets WHERE id = ? AND current_version = ?) "
    "AND NOT EXISTS (SELECT 1 FROM transactions WHERE dataset_id = ? AND version = ?)"
)
TIMESTAMP_OF = "SELECT timestamp FROM transactions WHERE write_id = ?"
MOVE_FILES = "UPDATE files SET version = ?, first_row_id = first_row_id + ? WHERE id {among}"
REMOVE_FILES = (
    "UPDATE files SET removed_version = ?, is_tombstoned = TRUE "
    "WHERE dataset_id = ? AND removed_version IS NULL AND id {among}"
)
REMOVE_VECTORS = (
    "UPDATE deletion_vectors SET removed_version = ? "
    "WHERE dataset_id = ? AND removed_version IS NULL AND file_id {among}"
)
SET_CLAIMED = "UPDATE datasets SET claimed_at = {now} WHERE id = ?"
SET_MANAGED = "UPDATE datasets SET managed = TRUE WHERE id = ?"
DROP_DATASET = "UPDATE datasets SET dropped_at = {now} WHERE id = ? AND dropped_at IS NULL"
DROPPED_DATASETS = f"{_DATASET} WHERE dropped_at IS NOT NULL ORDER BY id"
# A new dataset cannot be made here: there is one, or files of a dropped one are being deleted.
TAKEN_URIS = (
    "SELECT base_uri FROM datasets WHERE (current_version > 0 OR dropped_at IS NOT NULL) "
    "AND lower(substr(base_uri, 1, CAST(? AS INTEGER))) = lower(CAST(? AS TEXT))"
)
_ITS_FILES = "file_id IN (SELECT id FROM files WHERE dataset_id = ?)"
# Rows that refer to other rows come first: DuckDB has no cascades.
FORGET_DATASET = (
    "DELETE FROM deletion_vectors WHERE dataset_id = ?",
    "DELETE FROM column_bounds WHERE dataset_id = ?",
    f"DELETE FROM partitions WHERE {_ITS_FILES}",
    f"DELETE FROM row_groups WHERE {_ITS_FILES}",
    "DELETE FROM files WHERE dataset_id = ?",
    "DELETE FROM transactions WHERE dataset_id = ?",
    "DELETE FROM schema_versions WHERE dataset_id = ?",
    "DELETE FROM dataset_tags WHERE dataset_id = ?",
    "DELETE FROM dataset_consumers WHERE dataset_id = ?",
    "DELETE FROM dataset_drops WHERE dataset_id = ?",
    "DELETE FROM iceberg_files WHERE dataset_id = ?",
    "DELETE FROM dataset_clones WHERE dataset_id = ?",
    "DELETE FROM dataset_clones WHERE origin_id = ?",
)
FORGET_DATASET_ROW = "DELETE FROM datasets WHERE id = ? AND dropped_at IS NOT NULL"
# What the commits after a version, up to another version, took out of a dataset.
FILES_REMOVED_BETWEEN = (
    "SELECT removed_version, id FROM files WHERE dataset_id = ? AND removed_version > ? "
    "AND removed_version <= ? ORDER BY removed_version, id"
)
VECTORS_REMOVED_BETWEEN = (
    "SELECT removed_version, file_id FROM deletion_vectors WHERE dataset_id = ? "
    "AND removed_version > ? AND removed_version <= ? ORDER BY removed_version, file_id"
)
# Rows that refer to other rows come first: DuckDB has no cascades.
FORGET_FILES = (
    "DELETE FROM deletion_vectors WHERE file_id {among}",
    "DELETE FROM column_bounds WHERE file_id {among}",
    "DELETE FROM partitions WHERE file_id {among}",
    "DELETE FROM row_groups WHERE file_id {among}",
    "DELETE FROM files WHERE id {among}",
)
DELETE_BOUNDS = "DELETE FROM column_bounds WHERE dataset_id = ? AND column_id = ?"
INVALIDATE_BOUNDS = (
    "UPDATE column_bounds SET lower = ?, upper = ?, level = 0 "
    "WHERE dataset_id = ? AND column_id = ?"
)


FILE_COLUMNS = (
    "id", "dataset_id", "version", "schema_version", "file_path", "file_size_bytes",
    "row_count", "stats_complete", "first_row_id", "sha256",
)  # fmt: skip
VECTOR_COLUMNS = (
    "dataset_id", "file_id", "version", "file_path", "file_size_bytes", "blob_offset",
    "blob_length", "cardinality", "small_blob", "sha256",
)  # fmt: skip
ROW_GROUP_COLUMNS = (
    "file_id", "row_group_index", "row_count", "stats_min_json", "stats_max_json",
    "null_counts_json", "nan_json", "total_byte_size", "compressed_byte_size",
)  # fmt: skip
PARTITION_COLUMNS = ("file_id", "key", "value")
BOUNDS_COLUMNS = (
    "dataset_id", "column_id", "level", "upper", "lower", "file_id", "null_count", "row_count",
    "may_contain_nan",
)  # fmt: skip

"""What SQLite spells differently."""

from __future__ import annotations

from lakehouse_source.catalog.sql.dialect import IN_SPAN, LEVELS, Dialect

SQLITE = Dialect(
    placeholder="?",
    # strftime('%f') and julianday have milliseconds; rounding undoes the float's error.
    now="CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000",
    login="NULL",
    is_login="TRUE",
    greatest="max",
    among="IN (SELECT value FROM json_each(?))",
    ids="SELECT value AS file_id FROM json_each(?)",
    files_of_s="CROSS JOIN files AS f ON f.id = s.file_id",
    lock="",  # BEGIN IMMEDIATE took the only write lock of the file
    # Nobody else can write at that time. AUTOINCREMENT keeps the highest id ever given.
    new_file_ids="WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
    "SELECT i + coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'files'), 0) FROM n",
    id_pairs="SELECT CAST(key AS INTEGER) AS old_id, value AS new_id FROM json_each(?)",
    generated_key="INTEGER PRIMARY KEY AUTOINCREMENT",
    generated="INTEGER PRIMARY KEY",
    bytes_type="BLOB",
    without_rowid=" WITHOUT ROWID",
    spans="",
    bounds_of_s=f"CROSS JOIN column_bounds AS b ON {IN_SPAN}",
    levels=LEVELS,
    hex_lower="hex(lower)",
    hex_upper="hex(upper)",
    highest_id="SELECT seq FROM sqlite_sequence WHERE name = '$table'",
)

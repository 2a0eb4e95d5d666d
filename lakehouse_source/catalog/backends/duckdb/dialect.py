"""What DuckDB spells differently."""

from __future__ import annotations

from lakehouse_source.catalog.sql.dialect import Dialect

DUCKDB = Dialect(
    placeholder="?",
    # The time at which the transaction began: after it got its turn to write.
    now="epoch_us(current_timestamp)",
    login="NULL",
    is_login="TRUE",
    greatest="greatest",
    among="IN (SELECT unnest(CAST(? AS BIGINT[])))",
    ids="SELECT unnest(CAST(? AS BIGINT[])) AS file_id",
    files_of_s="JOIN files AS f ON f.id = s.file_id",
    lock="",  # writers take turns
    new_file_ids="SELECT nextval('plake_ids') FROM range(?)",
    id_pairs="SELECT CAST(key AS BIGINT) AS old_id, CAST(value AS BIGINT) AS new_id "
    "FROM json_each(CAST(? AS JSON))",
    generated_key="BIGINT PRIMARY KEY DEFAULT nextval('plake_ids')",
    generated="BIGINT DEFAULT nextval('plake_ids')",
    bytes_type="BLOB",
    without_rowid="",
    spans="",
    bounds_of_s="",
    levels="",
    hex_lower="hex(lower)",
    hex_upper="hex(upper)",
    highest_id="SELECT last_value FROM duckdb_sequences() WHERE sequence_name = 'plake_ids'",
)

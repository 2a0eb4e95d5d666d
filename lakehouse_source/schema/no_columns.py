"""Pure. Tables with rows but no columns: PyArrow often loses their number of rows."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa


def rows_alone(count: int) -> pa.Table:
    """A table of this many rows without columns."""
    return pa.table({"": pa.nulls(count)}).select([])


def concatenated(tables: Sequence[pa.Table], schema: pa.Schema) -> pa.Table:
    """The rows of tables with a schema, one after the other."""
    if not tables:
        return schema.empty_table()
    if not len(schema):
        return rows_alone(sum(table.num_rows for table in tables))
    return pa.concat_tables(tables)


def first(table: pa.Table, rows: int) -> pa.Table:
    """The first rows of a table. Arrow cuts columns, and there may be none."""
    return table.slice(0, rows) if table.num_columns else rows_alone(min(rows, table.num_rows))


def batches(table: pa.Table) -> list[pa.RecordBatch]:
    """The batches of a table."""
    if table.num_columns or not table.num_rows:
        return list(table.to_batches())
    return [pa.record_batch({"": pa.nulls(table.num_rows)}).select([])]

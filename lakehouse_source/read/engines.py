"""Door. Scans for engines that read Arrow: DuckDB, Polars, DataFusion.

Each engine gets exactly the matching rows and may filter them further. It gets them as
Arrow data and not as files: an engine that pushes its conditions down to Arrow's file
scanner loses rows with NaN there.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from lakehouse_source.errors import InvalidOptionError


def to_duckdb(table: pa.Table, connection: Any, name: str) -> Any:
    """Register rows as a view of a DuckDB connection; returns the relation."""
    connection.register(name, table)
    return connection.table(name)


def to_polars(table: pa.Table) -> Any:
    """A Polars DataFrame.

    Raises:
        InvalidOptionError: Polars is not installed.
    """
    try:
        import polars
    except ImportError as error:
        raise _missing("polars") from error
    return polars.from_arrow(table)


def to_datafusion(table: pa.Table, context: Any, name: str) -> Any:
    """Register rows as a table of a DataFusion session; returns the data frame."""
    context.register_record_batches(name, [table.to_batches()])
    return context.table(name)


def _missing(engine: str) -> InvalidOptionError:
    return InvalidOptionError(
        option="engine", value=engine, reason=f"is not installed: pip install 'plake[{engine}]'."
    )

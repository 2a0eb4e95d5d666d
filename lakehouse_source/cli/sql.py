"""Door. `plake sql`: a query by DuckDB over the catalog's tables by name.

DuckDB runs the text as it was given. Each table that the text names is a view. The view has those
files of the newest version that can hold rows for the query.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lakehouse_source.cli.build import Shared, common
from lakehouse_source.cli.rows import OUTPUTS, TO, write_batches
from lakehouse_source.errors import DatasetNotFoundError, InvalidOptionError, NamespaceNotFoundError

if TYPE_CHECKING:
    from lakehouse_source.datasets import DatasetCatalog


@click.command(short_help="Query the catalog's tables with DuckDB")
@click.argument("query")
@TO
@common(OUTPUTS)
def sql(shared: Shared, query: str, to: str | None) -> None:
    """Run a SELECT of DuckDB over the catalog's tables, which it names: orders, sales.orders.

    Only files that can hold rows for the conditions on a table are read.

    \b
    Example:
      plake sql "SELECT carrier, count(*) FROM flights WHERE month = 3 GROUP BY carrier"
    """
    try:
        import duckdb
    except ModuleNotFoundError as exc:
        raise InvalidOptionError(
            option="sql", reason="needs the package duckdb: pip install 'plake[duckdb]'."
        ) from exc
    import pyarrow as pa

    from lakehouse_source.schema.variant_storage import from_arrows

    target = shared.target()
    try:
        # Names of tables are not those of Python's variables.
        with (
            duckdb.connect(config={"python_enable_replacements": "false"}) as connection,
            target.names() as names,
        ):
            _check_select(duckdb, query)
            make_views(connection, query, names, target.storage_options())
            found = connection.sql(query).to_arrow_reader(10_000)
            schema = from_arrows(found.schema.empty_table()).schema
            if len(set(schema.names)) < len(schema.names):
                raise InvalidOptionError(
                    option="sql", reason="two columns have one name: rename one with AS."
                )
            tables = (from_arrows(pa.Table.from_batches([batch])) for batch in found)
            write_batches(schema, (b for t in tables for b in t.to_batches()), shared, to)
    except duckdb.Error as exc:
        raise InvalidOptionError(option="sql", reason=" ".join(str(exc).split())) from exc


def _check_select(duckdb: Any, query: str) -> None:
    kinds = [one.type for one in duckdb.extract_statements(query)]
    if kinds != [duckdb.StatementType.SELECT]:
        raise InvalidOptionError(option="sql", value=query, reason="must be one SELECT.")


def make_views(
    connection: Any, query: str, catalog: DatasetCatalog, storage: Any = None
) -> dict[str, int]:
    """Make the views that a query names, where the catalog has tables of these names.

    Returns how many files each view has, by the name in lower case.
    """
    from sqlglot.errors import SqlglotError

    from lakehouse_source.cli.sql_conditions import conditions, table_names
    from lakehouse_source.schema.texts import quoted

    try:
        names = table_names(query)
    except SqlglotError as exc:
        reason = f"cannot be read: {str(exc).splitlines()[0]}"
        raise InvalidOptionError(option="sql", reason=reason) from exc
    files = {}
    for number, name in enumerate(names):
        namespace = name[0] if len(name) == 2 else "default"
        try:
            dataset = catalog.dataset((namespace, name[-1]), storage_options=storage)
        except (DatasetNotFoundError, NamespaceNotFoundError):
            continue  # a file, or DuckDB says that there is none
        scan = dataset.scan(conditions(query, name, dataset.schema))
        view = f"plake {number}"
        scan.to_duckdb(connection, view)
        shown = ".".join(map(quoted, name))
        if len(name) == 2:
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(name[0])}")
        connection.execute(f"CREATE OR REPLACE VIEW {shown} AS SELECT * FROM temp.{quoted(view)}")
        files[".".join(name)] = len(scan.plan().tasks)
    return files

"""Door. The commands whose rows have the columns of datasets: scan, changes and sql.

For `plake sql`, DuckDB runs the text as it was given. Each table that the text names is a view. The
view has those files of the newest version that can hold rows for the query. Conditions found here
only leave files out, so a part that is not surely a condition on the rows of the table is ignored.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import date
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any

import click
import pyarrow as pa
from sqlglot import ErrorLevel, exp, parse_one
from sqlglot.errors import SqlglotError

from lakehouse_source.cli.build import Moment, Shared, common, listed
from lakehouse_source.cli.output import write_rows
from lakehouse_source.errors import (
    DatasetNotFoundError,
    InvalidOptionError,
    NamespaceNotFoundError,
    StorageError,
)
from lakehouse_source.pictures.markup import visible
from lakehouse_source.read.snapshot import version_number

if TYPE_CHECKING:
    from lakehouse_source.datasets import DatasetCatalog


OUTPUTS = ("table", "json", "jsonl", "csv", "parquet")
TO = click.option("--to", metavar="FILE", help="Write to a file, which must be new.")
_WHERE = click.option("--where", help="Which rows, as SQL.")
_LIMIT = click.option("--limit", type=click.IntRange(min=0), help="The most rows to show.")
_COLUMNS = click.option(
    "--columns", multiple=True, help="Which columns; by default all. With commas, or repeated."
)


@click.command(short_help="Show rows, or write them to a file")
@click.argument("dataset")
@_WHERE
@_COLUMNS
@_LIMIT
@click.option("--version", help="A version or a tag; by default the newest.")
@click.option("--timestamp", type=Moment(), help="Or a time: the version that was the newest then.")
@TO
@common(OUTPUTS)
def scan(
    shared: Shared,
    dataset: str,
    where: str | None,
    columns: tuple[str, ...],
    limit: int | None,
    to: str | None,
    **at: Any,
) -> None:
    """Show the rows that match a condition, or write them to a file.

    \b
    Example:
      plake scan flights --where "month = 3" --columns carrier,dep_delay --limit 10
    """
    opened = shared.target(dataset).dataset()
    names = listed(columns) or None
    found = opened.scan(where, names, limit=limit, **at)
    schema = opened.scan(None, names, **at).head(0).schema
    write_batches(schema, found.to_batches(), shared, to)


@click.command(short_help="Show what commits changed, row by row")
@click.argument("dataset")
@click.option("--start", required=True, help="The first version, or a tag.")
@click.option("--end", help="The last version, or a tag; by default the newest.")
@_WHERE
@_COLUMNS
@_LIMIT
@click.option("--net", is_flag=True, help="Only the differences from before --start to --end.")
@TO
@common(OUTPUTS)
def changes(
    shared: Shared,
    dataset: str,
    start: str,
    end: str | None,
    columns: tuple[str, ...],
    limit: int | None,
    to: str | None,
    **how: Any,
) -> None:
    """Show the rows that commits inserted, updated and deleted.

    \b
    Example:
      plake changes flights --start 2 --columns carrier --output jsonl
    """
    opened = shared.target(dataset).dataset()
    last = None if end is None else _bound(end)
    found = opened.changes(_bound(start), last, columns=listed(columns) or None, **how)
    write_batches(found.schema, _first(found.to_batches(), limit), shared, to)


def _first(batches: Iterable[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    """The first rows of batches, at most `limit`."""
    left = limit
    for batch in batches:
        if left is None:
            yield batch
        elif left > 0:
            yield batch.slice(0, left)
            left -= min(left, batch.num_rows)
        else:
            return


def _bound(text: str) -> int | str:
    number = version_number(text)
    return text if number is None else number


def write_batches(
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    shared: Shared,
    to: str | None,
) -> None:
    """Write batches of rows to standard output, or to a new file and then report the file.

    Raises:
        StorageError: the file cannot be written, or is there already.
    """
    if shared.output == "parquet":
        if to is None:
            raise click.UsageError("--output parquet needs --to FILE.")
        _write_parquet(schema, batches, to)
    elif to is None:
        write_rows(schema.names, _rows(batches), shared.output)
    else:
        with _new_file(to) as path, open(path, "w", encoding="utf-8", newline="") as sink:
            write_rows(schema.names, _rows(batches), shared.output, to=sink)
    if to is not None and not shared.quiet:
        click.echo(f"wrote {visible(to)}", err=True)


def _write_parquet(schema: pa.Schema, batches: Iterable[pa.RecordBatch], to: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from lakehouse_source.parquet.footer import annotate
    from lakehouse_source.schema.variant_storage import stored, stored_table, variant_paths

    with _new_file(to) as path:
        with pq.ParquetWriter(path, stored(schema)) as writer:
            for batch in batches:
                writer.write_table(stored_table(pa.Table.from_batches([batch])))
        annotate(path, [*variant_paths(schema)])


@contextmanager
def _new_file(to: str) -> Iterator[str]:
    """Where to write a file that gets its name only when it is complete."""
    part = f"{to}.{os.getpid()}.part"
    try:
        if os.path.lexists(to):
            raise FileExistsError(17, "it is there already")
        yield part
        os.link(part, to)  # unlike a rename, it replaces nothing
    except OSError as exc:
        raise StorageError(path=to, reason=f"cannot be written: {exc.strerror or exc}") from exc
    finally:
        with suppress(OSError):
            os.remove(part)


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[Sequence[Any]]:
    for batch in batches:
        yield from zip(*(_values(column) for column in batch.columns))


def _values(column: pa.Array) -> list[Any]:
    """The values of a column: moments as texts, durations as counts of their unit.

    Python has no nanoseconds, and no years above 9999.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    from lakehouse_source.schema.arrow_arrays import entries
    from lakehouse_source.schema.texts import moment_texts
    from lakehouse_source.schema.variant import is_variant

    t, kind = pa.types, column.type
    if isinstance(column, pa.ExtensionArray):
        if is_variant(kind):
            return [one.to_json() for one in column]
        return _values(column.storage)
    if t.is_duration(kind):
        return list(column.cast(pa.int64()).to_pylist())
    if t.is_temporal(kind):
        texts: list[Any] = moment_texts(pa.chunked_array([column])).to_pylist()
        if t.is_timestamp(kind):
            return [None if text is None else text.replace(" ", "T", 1) for text in texts]
        return texts
    if t.is_float16(kind):
        column = column.cast(pa.float32())
    if t.is_struct(kind):
        names = [field.name for field in kind]
        rows = zip(*map(_values, column.flatten())) if names else repeat((), len(column))
        valid = column.is_valid().to_pylist()
        return [dict(zip(names, row)) if is_value else None for row, is_value in zip(rows, valid)]
    if t.is_map(kind):  # pairs, as keys may be of any type
        return [
            None if pairs is None else [list(pair.values()) for pair in pairs]
            for pairs in _values(entries(column))
        ]
    if t.is_nested(kind):
        elements = iter(_values(column.flatten()))
        lengths = pc.list_value_length(column).to_pylist()
        return [None if size is None else list(islice(elements, size)) for size in lengths]
    found: list[Any] = column.to_pylist()
    return found


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


Triple = tuple[str, str, Any]
_OPERATORS: dict[Any, str] = {exp.EQ: "=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_MIRRORED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_JOINS = ("", "INNER", "CROSS")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


def table_names(query: str) -> list[tuple[str, ...]]:
    """The names of the tables of a query, in lower case, and of its CTEs too.

    Raises:
        SqlglotError: sqlglot cannot parse the text.
    """
    tree = parse_one(query, dialect="duckdb", error_level=ErrorLevel.RAISE)
    found = {tuple(part.name.lower() for part in one.parts) for one in tree.find_all(exp.Table)}
    return sorted(name for name in found if all(name) and len(name) <= 2)


def conditions(
    query: str, name: Sequence[str], schema: pa.Schema
) -> list[list[Triple]] | list[Triple] | None:
    """Conditions on a table: each row that the query needs satisfies one; None: it needs all rows.

    A table that is named several times needs the rows of each place.
    """
    try:
        tree = parse_one(query, dialect="duckdb", error_level=ErrorLevel.RAISE)
    except (SqlglotError, RecursionError):
        return None
    names = tuple(part.lower() for part in name)
    if any(one.alias.lower() == names[-1] for one in tree.find_all(exp.CTE)):
        return None  # only DuckDB knows which of the two a place means
    types = {field.name.lower(): field for field in schema}
    if len(types) < len(schema):
        return None
    found = []
    for table in tree.find_all(exp.Table):
        if table.name.lower() == names[-1]:
            parts = tuple(part.name.lower() for part in table.parts)
            triples = list(_of_place(table, types)) if parts == names else []
            if not triples:
                return None
            found.append(triples)
    return found or None


def _of_place(table: exp.Table, types: dict[str, pa.Field]) -> Iterator[Triple]:
    """The condition on the rows of a table at one place where a query names the table."""
    select = table.find_ancestor(exp.Select)
    if select is None or not _is_plain(table, select):
        return
    where = select.args.get("where")
    alone = not select.args.get("joins") and not select.args.get("laterals")
    for part in (
        where.this.flatten()
        if where and isinstance(where.this, exp.And)
        else ([where.this] if where else [])
    ):
        yield from _triples(part.unnest(), table.alias_or_name.lower(), alone, types)


def _is_plain(table: exp.Table, select: exp.Select) -> bool:
    """Tell whether the rows of a table reach the condition of the SELECT as they are."""
    if any(table.args.get(name) for name in ("sample", "pivots", "joins", "laterals", "when")):
        return False
    if select.args.get("laterals") or select.args.get("sample"):
        return False
    joins = select.args.get("joins") or []
    if any(
        join.args.get("method") or join.side or join.kind.upper() not in _JOINS for join in joins
    ):
        return False
    source = table.parent
    return source is select.args.get("from_", select.args.get("from")) or source in joins


def _triples(node: Any, alias: str, alone: bool, types: dict[str, pa.Field]) -> Iterator[Triple]:
    kind: Any = type(node)
    column = node.this
    if kind in _OPERATORS:
        left, right, operator = node.this, node.expression, _OPERATORS[kind]
        if isinstance(right, exp.Column):
            left, right, operator = right, left, _MIRRORED[operator]
        field = _field(left, alias, alone, types)
        value = None if field is None else _value(right, field.type)
        if field is not None and value is not None:
            yield field.name, operator, value
        return
    field = _field(column, alias, alone, types)
    if field is None:
        return
    if kind is exp.Between and not node.args.get("symmetric"):
        for operator, bound in ((">=", node.args["low"]), ("<=", node.args["high"])):
            value = _value(bound, field.type)
            if value is not None:
                yield field.name, operator, value
    elif kind is exp.In and node.expressions and not node.args.get("query"):
        values = [_value(one, field.type) for one in node.expressions]
        if all(value is not None for value in values):
            yield field.name, "in", values


def _field(node: Any, alias: str, alone: bool, types: dict[str, pa.Field]) -> pa.Field | None:
    """The column of the table that a node is."""
    if not isinstance(node, exp.Column) or node.args.get("db"):
        return None
    if node.table.lower() != alias and (node.table or not alone):
        return None
    return types.get(node.name.lower())


def _value(node: Any, type_: pa.DataType) -> int | str | date | None:
    """A literal, if DuckDB and plake compare it alike with a column of the type; else None."""
    if isinstance(node, exp.Neg):
        value = _value(node.this, type_)
        return -value if isinstance(value, int) else None
    if isinstance(node, exp.Cast) and node.to.this is exp.DataType.Type.DATE:
        node = node.this if pa.types.is_date32(type_) else None
    if not isinstance(node, exp.Literal):
        return None
    text = str(node.this)
    if not node.is_string:
        is_whole = pa.types.is_integer(type_) and text.isascii() and text.isdecimal()
        return int(text) if is_whole and len(text) < 19 else None
    if pa.types.is_string(type_):
        return text
    if pa.types.is_date32(type_) and _DATE.fullmatch(text):
        try:
            return date.fromisoformat(text)
        except ValueError:
            return None
    return None

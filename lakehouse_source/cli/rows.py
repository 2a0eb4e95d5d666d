"""Door. The commands whose rows have the columns of a dataset: scan and changes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any

import click

from lakehouse_source.cli.build import Moment, Shared, common, listed
from lakehouse_source.cli.output import write_rows
from lakehouse_source.errors import StorageError
from lakehouse_source.pictures.markup import visible
from lakehouse_source.read.snapshot import version_number

if TYPE_CHECKING:
    import pyarrow as pa

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

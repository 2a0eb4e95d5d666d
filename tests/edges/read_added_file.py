"""Adds a Parquet file to a dataset and compares its rows with PyArrow's, in another process."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

import lakehouse_source as lake
from tests import processes

T = pa.types
ADDRESS_SPACE_BYTES = 4 << 30
HANGS_SECONDS = 120  # the machine may be busy; `Outcome.cpu_seconds` is what a file is charged with


@dataclass(frozen=True, slots=True)
class Outcome:
    """`refused` is the text of the `PlakeError`; else `differences` from what PyArrow reads."""

    refused: str | None
    differences: list[str]
    cpu_seconds: float
    peak_bytes: int


def read_added_file(folder: Path, path: Path) -> Outcome:
    """Make a dataset of a folder that holds one file.

    Raises:
        AssertionError: the process ended without an answer, or hangs.
    """
    receiving, sending = processes.CONTEXT.Pipe(duplex=False)
    child = processes.CONTEXT.Process(target=_answer, args=(sending, str(folder), str(path)))
    child.start()
    sending.close()
    try:
        assert receiving.poll(HANGS_SECONDS), f"{path.name} hangs"
        found: Outcome = receiving.recv()
    except EOFError as error:
        child.join()
        raise AssertionError(f"{path.name} ended the process: {child.exitcode}") from error
    finally:
        child.kill()
        child.join()
    return found


def _answer(to: Connection, folder: str, path: str) -> None:
    # What the libraries reserve as they are imported differs from version to version.
    most = ADDRESS_SPACE_BYTES + _address_space_bytes()
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    begin = time.process_time()
    refused, differences = None, []
    try:
        differences = list(_differences(folder, path))
    except lake.PlakeError as error:
        refused = str(error)
    used = resource.getrusage(resource.RUSAGE_SELF)
    to.send(Outcome(refused, differences, time.process_time() - begin, used.ru_maxrss * 1024))


def _address_space_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _differences(folder: str, path: str) -> Iterator[str]:
    dataset = lake.convert(folder, partitioning=None)
    mine = dataset.scan().to_table()
    again = dataset.scan().to_dataset().to_table()
    theirs = pq.read_table(path, coerce_int96_timestamp_unit="us", partitioning=None)
    if mine.column_names != theirs.column_names:
        yield f"columns {mine.column_names}"
    for name in theirs.column_names:
        if not _text(mine, name) == _text(again, name) == _text(theirs, name):
            yield f"values of {name}"
    for field in theirs.schema:
        if (
            T.is_integer(field.type)
            or T.is_floating(field.type)
            or T.is_decimal(field.type)
            or T.is_string(field.type)
        ):
            yield from _wrong_counts(dataset, field, theirs.column(field.name))


def _text(table: pa.Table, name: str) -> str:
    column = table.column(name)
    return repr((column.cast(pa.int64()) if T.is_timestamp(column.type) else column).to_pylist())


def _wrong_counts(dataset: lake.Dataset, field: pa.Field, column: pa.ChunkedArray) -> Iterator[str]:
    """Conditions on two values of a column that keep more or fewer rows than they should."""
    values = [value for value in column.to_pylist() if value is not None]
    for value in values[:1] + values[len(values) // 2 :][:1]:
        for operator, holds in (("=", _equal), ("<", _less)):
            expected = sum(holds(one, value) for one in values)
            counts = [dataset.scan((field.name, operator, value)).count_rows()]
            if not _is_nan(value) and not T.is_float16(field.type):  # Arrow compares no half floats
                counts.append(_rows_that_arrow_keeps(dataset, field, operator, value))
            if counts != [expected] * len(counts):
                yield f"{field.name} {operator} {value!r}: {counts} and not {expected}"


def _rows_that_arrow_keeps(
    dataset: lake.Dataset, field: pa.Field, operator: str, value: Any
) -> int:
    left, right = ds.field(field.name), pa.scalar(value, field.type)
    kept = left == right if operator == "=" else left < right
    return int(dataset.scan().to_dataset().to_table(filter=kept).num_rows)


def _is_nan(value: Any) -> bool:
    return bool(value != value)


def _equal(one: Any, other: Any) -> bool:
    return bool(one == other or (_is_nan(one) and _is_nan(other)))


def _less(one: Any, other: Any) -> bool:
    return not _is_nan(one) and bool(_is_nan(other) or one < other)

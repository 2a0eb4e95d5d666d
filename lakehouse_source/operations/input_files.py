"""Verb. Rows of CSV, JSON and Parquet files that are to be imported, exactly as they are there.

The types that hold values of CSV and JSON exactly, where nobody said which.
"""

from __future__ import annotations

import codecs
import csv
import io
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import chain
from json import JSONDecodeError
from pathlib import PurePath
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.errors import InvalidOptionError, SchemaMismatchError, StorageError
from lakehouse_source.language.types import MAX_PRECISION
from lakehouse_source.operations.input_values import (
    JSON,
    NUMBER_FORM,
    SPECIAL,
    TRUTH_FORM,
    WHOLE_FORM,
    Misfit,
    column_of,
    text_column,
)
from lakehouse_source.schema.fields import find_field, nullable_field
from lakehouse_source.storage import Storage, StorageLocation

_DAY = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_CLOCK = r"[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,9})?)?"
_ZONE = r" ?(Z|[+-][0-9]{2}(:?[0-9]{2})?)"
_NANOSECONDS = r"\.[0-9]{7}"
_DEEPEST = 100


def text_type(texts: pa.Array) -> pa.DataType:
    """The type of a column of CSV: its texts fit exactly, and a number keeps its form.

    01234 stays text. Numbers that no double holds are decimals.
    """
    texts = texts.drop_null()
    if not len(texts):
        return pa.null()
    for form, types in _FORMS:
        if _all(texts, form):
            for type_ in types(texts):
                try:
                    text_column(texts, type_, "")
                    return type_
                except Misfit:
                    continue
    return pa.string()


def _all(texts: pa.Array, form: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(texts, form)).as_py())


def _wholes(texts: pa.Array) -> list[pa.DataType]:
    return [pa.int64(), pa.decimal128(MAX_PRECISION, 0)]


def _numbers(texts: pa.Array) -> list[pa.DataType]:
    if not pc.any(pc.match_substring_regex(texts, "[0-9]")).as_py():
        return []  # only words such as NaN
    return [pa.float64(), *(_decimals(texts) if _all(texts, "^-?[0-9.]+$") else [])]


def _decimals(texts: pa.Array) -> list[pa.DataType]:
    scale = max(len(text.partition(".")[2]) for text in texts.to_pylist())
    return [pa.decimal128(MAX_PRECISION, scale)] if scale <= MAX_PRECISION else []


def _unit(texts: pa.Array) -> str:
    return "ns" if pc.any(pc.match_substring_regex(texts, _NANOSECONDS)).as_py() else "us"


_FORMS: tuple[tuple[str, Callable[[pa.Array], list[pa.DataType]]], ...] = (
    (TRUTH_FORM, lambda _: [pa.bool_()]),
    (WHOLE_FORM, _wholes),
    (NUMBER_FORM, _numbers),
    (f"^{_DAY}$", lambda _: [pa.date32()]),
    (f"^{_DAY}[T ]{_CLOCK}{_ZONE}$", lambda texts: [pa.timestamp(_unit(texts), "UTC")]),
    (f"^{_DAY}([T ]{_CLOCK})?$", lambda texts: [pa.timestamp(_unit(texts))]),
    (f"^{_CLOCK}$", lambda texts: [pa.time64(_unit(texts))]),
)


def value_type(
    values: Sequence[Any], path: str, rows: Sequence[int], depth: int = 0
) -> pa.DataType:
    """The type of values of JSON; `rows` as in `column_of`.

    Raises:
        Misfit: no type holds them.
    """
    kinds = {type(value): row for row, value in zip(rows, values) if value is not None}
    if depth > _DEEPEST:
        raise Misfit(rows[0], path, ..., None, f"it is nested more than {_DEEPEST} levels deep")
    if not kinds:
        return pa.null()
    present = [(row, value) for row, value in zip(rows, values) if value is not None]
    if set(kinds) == {bool}:
        return pa.bool_()
    if set(kinds) == {dict}:
        names = dict.fromkeys(name for _, value in present for name in value)
        places = [row for row, _ in present]
        return pa.struct(
            [
                (
                    name,
                    value_type(
                        [value.get(name) for _, value in present],
                        f"{path}.{name}" if path else name,
                        places,
                        depth + 1,
                    ),
                )
                for name in names
            ]
        )
    if set(kinds) == {list}:
        elements = [(row, one) for row, value in present for one in value]
        places, below = [row for row, _ in elements], [one for _, one in elements]
        return pa.list_(value_type(below, f"{path}[]", places, depth + 1))
    texts = [value for _, value in present if isinstance(value, str)]
    if set(kinds) == {str}:
        try:
            found = text_type(pa.array(texts, pa.string()))
        except UnicodeError:
            return pa.string()  # reading them names the value
        return found if pa.types.is_temporal(found) else pa.string()
    if set(kinds) <= {int, float, Decimal, str} and set(texts) <= set(SPECIAL):
        for type_ in _types_of(present):
            try:
                column_of([value for _, value in present], type_, path, [row for row, _ in present])
                return type_
            except Misfit:
                continue
        row, value = present[0]
        raise Misfit(row, path, value, None, "no type holds all its numbers exactly")
    first = type(present[0][1])
    row, value = next((row, value) for row, value in present if type(value) is not first)
    raise Misfit(row, path, value, None, f"the first value, {present[0][1]!r}, is another kind")


def _types_of(present: Sequence[tuple[int, Any]]) -> list[pa.DataType]:
    numbers = [value for _, value in present if not isinstance(value, str)]
    if all(type(value) is int for value in numbers) and len(numbers) == len(present):
        return [pa.int64(), pa.decimal128(MAX_PRECISION, 0)]
    exact = [Decimal(repr(value) if type(value) is float else value) for value in numbers]
    # A bare NaN or Infinity has no digits.
    exponents = [int(one.as_tuple().exponent) for one in exact if one.is_finite()]
    scale = -min([0, *exponents])
    wide = [pa.decimal128(MAX_PRECISION, scale)] if scale <= MAX_PRECISION else []
    return [pa.float64(), *wide]


FORMATS = ("csv", "json", "parquet")
_SUFFIXES = {".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json"}
_BLOCK_BYTES = 8 * 1024 * 1024
# Characters of one JSON object, after which what was not understood is an error.
_LONGEST = 4 * _BLOCK_BYTES
_GAP = re.compile(r"[ \t\r\n]*")
_SHOWN = 100


@dataclass
class _Types:
    """Types of columns by name: as the caller gave them, of the dataset, and inferred ones."""

    given: Sequence[pa.Field]
    known: Sequence[pa.Field]
    inferred: dict[str, pa.DataType] = field(default_factory=dict)

    def of(self, name: str) -> pa.DataType | None:
        """The type of a column, None where nothing says it yet."""
        found = find_field(name, self.given) or find_field(name, self.known)
        return self.inferred.get(name) if found is None else nullable_field(found).type


def import_batches(
    paths: Sequence[str],
    beside: StorageLocation,
    *,
    format: str | None = None,
    known: pa.Schema | None = None,
    given: pa.Schema | None = None,
    delimiter: str | None = None,
) -> tuple[pa.Schema, Iterator[pa.RecordBatch], Mapping[str, pa.DataType]]:
    """The columns of files, which must be the same in all files, their rows, and inferred types.

    The options of `beside` are used for a store of the same kind. `known` are the types that
    columns have in the dataset, and `given` those that the caller asks for. The first block of the
    first file decides the types of other columns of CSV and JSON files.

    Raises:
        InvalidOptionError: the format of a file is unknown, or the file is not of it.
        SchemaMismatchError: a column does not hold a value exactly.
        StorageError: a file cannot be read.
    """
    files = [(path, format or _format_of(path)) for path in paths]
    types = _Types(list(given or ()), list(known or ()))
    first = _Rows(beside, *files[0], types, delimiter)
    schema = first.schema
    for one in types.given:
        if find_field(one.name, schema) is None:
            raise SchemaMismatchError(
                column=one.name,
                reason=f"has a type in schema, and {files[0][0]} has no such column",
                hint=f"It has {', '.join(schema.names)}.",
            )

    def batches() -> Iterator[pa.RecordBatch]:
        yield from first
        for path, kind in files[1:]:
            more = _Rows(beside, path, kind, types, delimiter)
            if set(more.schema.names) != set(schema.names):
                other = sorted(set(more.schema.names) ^ set(schema.names))[0]
                raise SchemaMismatchError(
                    column=other,
                    reason=f"is not in both files, {files[0][0]} and {path}",
                    hint="Import files of the same columns only.",
                )
            for batch in more:
                yield more.cast(batch, schema)

    return schema, batches(), types.inferred


def parquet_schema(path: str) -> pa.Schema:
    """The columns of a Parquet file."""
    here = StorageLocation.of(".")
    return _Rows(here, path, "parquet", _Types((), ()), None).schema.remove_metadata()


def _format_of(path: str) -> str:
    suffix = PurePath(path).suffix.lower()
    found = _SUFFIXES.get(suffix) or suffix.lstrip(".")
    if found not in FORMATS:
        raise InvalidOptionError(
            option="format", value=path, reason="cannot be told from the name.", known=FORMATS
        )
    return found


class _Rows:
    """The columns of one file, and its rows, which can be read once."""

    def __init__(
        self,
        beside: StorageLocation,
        path: str,
        format: str,
        types: _Types,
        delimiter: str | None,
    ) -> None:
        self._path, self._types, self._delimiter = path, types, delimiter or ","
        # Links are followed: the file is the user's own.
        place = path if "://" in path else os.path.realpath(path)
        folder, _, self._name = place.rpartition("/")
        self._storage = Storage(beside.sibling(folder or "/"))
        if self._storage.size(self._name) is None:
            raise StorageError(path=path, reason="there is no such file.")
        self._file = self._storage.open_input(self._name)
        with self._errors():
            self.schema, self._batches = {
                "csv": self._csv,
                "json": self._json,
                "parquet": self._parquet,
            }[format]()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        with self._file:
            while True:
                with self._errors():
                    batch = next(self._batches, None)
                if batch is None:
                    return
                yield batch

    @contextmanager
    def _errors(self) -> Iterator[None]:
        with self._storage.errors(self._name):
            try:
                yield
            except (pa.ArrowException, UnicodeDecodeError) as exc:
                self._refuse(" ".join(str(exc).split()), exc)

    def _refuse(self, why: str, cause: Exception | None = None) -> NoReturn:
        reason = f"cannot be imported: {why}"
        raise InvalidOptionError(option="paths", value=self._path, reason=reason) from cause

    def _misfit(self, found: Misfit, line: str) -> NoReturn:
        shown = repr(found.value)
        shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]} …"
        of = f"is {found.type} and " if found.type is not None else ""
        raise SchemaMismatchError(
            column=found.path,
            expected=found.type,
            reason=f"{of}does not hold {shown}, in {line} of {self._path}: {found.why}",
            hint="Correct the value, or give the column another type: --schema 'name TYPE'.",
        ) from found

    def cast(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """A batch with the columns and types of a schema."""
        with self._errors():
            return batch.select(schema.names).cast(schema)

    def _parquet(self) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        import pyarrow.parquet as pq

        if self._types.given:
            raise InvalidOptionError(
                option="schema",
                reason=f"is for CSV and JSON, and {self._path}, a Parquet file, has its own types.",
            )
        file = pq.ParquetFile(self._file)
        self._check_names(file.schema_arrow.names)
        return file.schema_arrow, file.iter_batches()

    def _check_names(self, names: Sequence[str]) -> None:
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise SchemaMismatchError(
                column=twice, reason=f"is in {self._path} twice", hint="Rename one of them."
            )

    # --- CSV ----------------------------------------------------------------

    def _csv(self) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        names = self._csv_reader(()).schema.names
        self._check_names(names)
        self._file = self._storage.open_input(self._name)
        reader = self._csv_reader(names)
        first = next(iter(reader), None)
        types = self._types
        for number, name in enumerate(names):
            if types.of(name) is None:
                types.inferred[name] = pa.null() if first is None else text_type(first[number])
        schema = pa.schema([(name, types.of(name)) for name in names])

        def batches() -> Iterator[pa.RecordBatch]:
            done = 0
            for batch in chain([] if first is None else [first], reader):
                try:
                    arrays = [
                        text_column(texts, one.type, one.name, inferred=one.name in types.inferred)
                        for texts, one in zip(batch.columns, schema)
                    ]
                except Misfit as found:
                    self._misfit(found, self._csv_line(done + found.row, len(names) == 1))
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)
                done += batch.num_rows

        return schema, batches()

    def _csv_reader(self, names: Sequence[str]) -> Any:
        """A reader of the columns `names` as texts; without names, only the header counts."""
        import pyarrow.csv as pc

        return pc.open_csv(
            self._file,
            read_options=pc.ReadOptions(block_size=_BLOCK_BYTES, use_threads=False),
            parse_options=pc.ParseOptions(
                delimiter=self._delimiter,
                newlines_in_values=True,
                # The NULL of an only column is an empty line.
                ignore_empty_lines=len(names) != 1,
            ),
            # Only an empty field is NULL, and "" is the empty text.
            convert_options=pc.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )

    def _csv_line(self, row: int, is_only: bool) -> str:
        """In which line a row begins; the file is read again for that."""
        with self._storage.open_input(self._name) as file:
            lines = io.TextIOWrapper(file, "utf-8-sig", "replace", newline="")
            reader = csv.reader(lines, delimiter=self._delimiter)
            line, left = 1, row + 1  # the header is a row here
            try:
                for cells in reader:
                    if (cells or is_only) and (left := left - 1) < 0:
                        return f"line {line}"
                    line = reader.line_num + 1
            except csv.Error:  # a field is longer than this reader takes
                pass
        return f"row {row + 1}"

    # --- JSON ---------------------------------------------------------------

    def _json(self) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        blocks, types = self._blocks(), self._types
        lines, rows = next(blocks, ((), ()))
        names = list(dict.fromkeys(name for row in rows for name in row))
        if not rows:
            names = [one.name for one in types.given or types.known]
        if not names:
            self._refuse("it has no columns.")
        for name in names:
            if types.of(name) is None:
                try:
                    values = [row.get(name) for row in rows]
                    types.inferred[name] = value_type(values, name, range(len(rows)))
                except Misfit as found:
                    self._misfit(found, f"line {lines[found.row]}")
        schema = pa.schema([(name, types.of(name)) for name in names])

        def batches() -> Iterator[pa.RecordBatch]:
            for lines_, rows_ in chain([(lines, rows)] if rows else [], blocks):
                try:
                    yield self._batch(rows_, schema)
                except Misfit as found:
                    self._misfit(found, f"line {lines_[found.row]}")

        return schema, batches()

    def _batch(self, rows: Sequence[dict[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
        names = set(schema.names)
        for number, row in enumerate(rows):
            if not names >= row.keys():
                other = next(name for name in row if name not in names)
                raise Misfit(number, other, row[other], None, "the first rows have no such key")
        arrays = [
            column_of(
                [row.get(one.name) for row in rows],
                one.type,
                one.name,
                range(len(rows)),
                inferred=one.name in self._types.inferred,
            )
            for one in schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _blocks(self) -> Iterator[tuple[Sequence[int], Sequence[dict[str, Any]]]]:
        """Objects of about one block, and the line in which each begins."""
        lines, rows, size = list[int](), list[dict[str, Any]](), 0
        for line, row, length in self._objects():
            lines.append(line)
            rows.append(row)
            size += length
            if size >= _BLOCK_BYTES:
                yield lines, rows
                lines, rows, size = [], [], 0
        if rows:
            yield lines, rows

    def _objects(self) -> Iterator[tuple[int, dict[str, Any], int]]:
        """The objects of the file, which stand side by side or in one array.

        Each with its line and its length.
        """
        decoder = codecs.getincrementaldecoder("utf-8-sig")()
        text, at, line, ended, is_array = "", 0, 1, False, False
        expected = "[{"  # which characters may come next; empty: only the end

        def more() -> None:
            nonlocal text, at, ended
            data = self._file.read(_BLOCK_BYTES)
            text, at, ended = text[at:] + decoder.decode(data, not data), 0, not data

        while True:
            gap = _GAP.match(text, at).end()  # type: ignore[union-attr]
            line += text.count("\n", at, gap)
            at = gap
            if at == len(text):
                if ended:
                    break
                more()
                continue
            character = text[at]
            if character not in expected:
                wanted = " or ".join(expected) or "the end"
                self._refuse(f"line {line}: {wanted} is expected, and {character!r} is there.")
            if character != "{":
                is_array, at = True, at + 1
                expected = {"[": "{]", ",": "{", "]": ""}[character]
                continue
            try:
                found, end = JSON.raw_decode(text, at)
            except JSONDecodeError as error:
                if not ended and len(text) - at < _LONGEST:
                    more()
                    continue
                line += text.count("\n", at, error.pos)
                self._refuse(f"line {line}: {error.msg}.", error)
            except (ValueError, RecursionError) as error:
                self._refuse(f"line {line}: {error}.", error)
            yield line, found, end - at
            line += text.count("\n", at, end)
            at = end
            expected = ",]" if is_array else "{"
        if is_array and expected:
            self._refuse("its array has no end.")

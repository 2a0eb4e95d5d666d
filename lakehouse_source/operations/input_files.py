"""Verb. Rows of CSV, JSON and Parquet files that are to be imported."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import PurePath

import pyarrow as pa

from lakehouse_source.errors import (
    CorruptDatasetError,
    InvalidOptionError,
    SchemaMismatchError,
    StorageError,
)
from lakehouse_source.storage import Storage, StorageLocation

FORMATS = ("csv", "json", "parquet")
_SUFFIXES = {".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json"}
_BLOCK_BYTES = 8 * 1024 * 1024


def import_batches(
    paths: Sequence[str],
    beside: StorageLocation,
    *,
    format: str | None = None,
    known: pa.Schema | None = None,
    delimiter: str | None = None,
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The columns of files, which must be the same in all files, and their rows.

    The options of `beside` are used for a store of the same kind. `known` are the types that
    columns of these names have in the dataset. Without `known`, the first block of the first file
    decides the types of CSV and JSON files.

    Raises:
        InvalidOptionError: the format of a file is unknown.
        CorruptDatasetError, StorageError: a file is not what its format says, or cannot be read.
    """
    files = [(path, format or _format_of(path)) for path in paths]
    types = {} if known is None else {field.name: field.type for field in known}
    first = _Rows(beside, *files[0], types, delimiter)
    schema = first.schema

    def batches() -> Iterator[pa.RecordBatch]:
        yield from first
        for path, kind in files[1:]:
            more = _Rows(
                beside, path, kind, {field.name: field.type for field in schema}, delimiter
            )
            if set(more.schema.names) != set(schema.names):
                other = sorted(set(more.schema.names) ^ set(schema.names))[0]
                raise SchemaMismatchError(
                    column=other,
                    reason=f"is not in both files, {files[0][0]} and {path}",
                    hint="Import files of the same columns only.",
                )
            for batch in more:
                yield more.cast(batch, schema)

    return schema, batches()


def parquet_schema(path: str) -> pa.Schema:
    """The columns of a Parquet file."""
    here = StorageLocation.of(".")
    return _Rows(here, path, "parquet", {}, None).schema.remove_metadata()


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
        types: Mapping[str, pa.DataType],
        delimiter: str | None,
    ) -> None:
        self._path = path
        # Links are followed: the file is the user's own.
        place = path if "://" in path else os.path.realpath(path)
        folder, _, self._name = place.rpartition("/")
        self._storage = Storage(beside.sibling(folder or "/"))
        if self._storage.size(self._name) is None:
            raise StorageError(path=path, reason="there is no such file.")
        self._file = self._storage.open_input(self._name)
        with self._errors():
            self.schema, self._batches = self._opened(format, types, delimiter)
        names = self.schema.names
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise SchemaMismatchError(
                column=twice, reason=f"is in {path} twice", hint="Rename one of them."
            )

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
                reason = f"cannot be imported: {' '.join(str(exc).split())}"
                raise CorruptDatasetError(path=self._path, reason=reason) from exc

    def cast(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """A batch with the columns and types of a schema."""
        with self._errors():
            return batch.select(schema.names).cast(schema)

    def _opened(
        self, format: str, types: Mapping[str, pa.DataType], delimiter: str | None
    ) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        if format == "parquet":
            import pyarrow.parquet as pq

            file = pq.ParquetFile(self._file)
            return file.schema_arrow, file.iter_batches()
        if format == "json":
            import pyarrow.json as pj

            wanted = pa.schema(list(types.items())) if types else None
            reader = pj.open_json(
                self._file,
                read_options=pj.ReadOptions(block_size=_BLOCK_BYTES),
                parse_options=pj.ParseOptions(explicit_schema=wanted),
            )
            return reader.schema, iter(reader)
        import pyarrow.csv as pc

        reader = pc.open_csv(
            self._file,
            read_options=pc.ReadOptions(block_size=_BLOCK_BYTES),
            parse_options=pc.ParseOptions(delimiter=delimiter or ",", newlines_in_values=True),
            # Only an empty field is NULL, and "" is the empty text.
            convert_options=pc.ConvertOptions(
                column_types=dict(types),
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
        return reader.schema, iter(reader)

"""Door. Files that tasks wrote, in the form for messages to the driver."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pyarrow as pa

from lakehouse_source.model import FileMetadata

_NO_COLUMNS = pa.schema([])


def shortened(files: Iterable[FileMetadata]) -> tuple[FileMetadata, ...]:
    """Files for a message, without schema and footer, which the driver knows or does not need."""
    return tuple(replace(file, schema=_NO_COLUMNS, parquet_metadata=None) for file in files)


def restored(files: Iterable[FileMetadata], schema: pa.Schema) -> list[FileMetadata]:
    """The files of messages, with the schema of the write."""
    return [replace(file, schema=schema) for file in files]

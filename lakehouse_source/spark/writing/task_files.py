"""Door. A write as its tasks know it, and the files that they wrote in messages to the driver."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakehouse_source.model import FileMetadata
from lakehouse_source.parquet.read_write_specs import WriteSpec

if TYPE_CHECKING:
    from lakehouse_source.write.commit.options import StagedWrite

_NO_COLUMNS = pa.schema([])


@dataclass(frozen=True, slots=True)
class BegunWrite:
    """A write on its way through tasks, which import only what `spec` needs."""

    spec: WriteSpec
    packed: bytes = field(repr=False)  # with the options of the store, which may be secret

    @classmethod
    def of(cls, staged: StagedWrite) -> BegunWrite:
        return cls(staged.spec, pickle.dumps(staged))

    @property
    def staged(self) -> StagedWrite:
        """The write, for its commit."""
        found: StagedWrite = pickle.loads(self.packed)
        return found


def shortened(files: Iterable[FileMetadata]) -> tuple[FileMetadata, ...]:
    """Files for a message, without schema and footer, which the driver knows or does not need."""
    return tuple(replace(file, schema=_NO_COLUMNS, parquet_metadata=None) for file in files)


def restored(files: Iterable[FileMetadata], schema: pa.Schema) -> list[FileMetadata]:
    """The files of messages, with the schema of the write."""
    return [replace(file, schema=schema) for file in files]

"""Verb. A dataset and its branches, with the files of all their readable versions.

Branches share files with their dataset, and a restored file has several rows in the catalog. So an
erasure changes a file for every row that names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from lakehouse_source.catalog import Catalog, CatalogReader
from lakehouse_source.model import DatasetRecord, FileRecord, VectorRecord
from lakehouse_source.read.address import Address
from lakehouse_source.read.snapshot import Snapshot, existing


class Identity(NamedTuple):
    """A stored file, in which all catalog rows see the same columns, identities and version.

    A restored file has rows of another version, and becomes a file of its own.
    """

    path: str
    schema_version: int
    first_row_id: int
    version: int

    @classmethod
    def of(cls, file: FileRecord) -> Identity:
        return cls(file.path, file.schema_version, file.first_row_id, file.version)


@dataclass(frozen=True, slots=True)
class Named:
    """A row of `files`. A version before `removed` has the file; None: the newest has it too."""

    file: FileRecord
    removed: int | None

    def is_in(self, first: int, after: int | None) -> bool:
        """Tell whether a version from `first` on and before `after` (None: any) has the file."""
        ends_later = self.removed is None or self.removed > first
        return ends_later and (after is None or self.file.version < after)


@dataclass(frozen=True, slots=True)
class Member:
    """A dataset of the family, with the files and the vectors of its readable versions."""

    snapshot: Snapshot
    files: tuple[Named, ...]
    vectors: tuple[tuple[VectorRecord, int | None], ...]
    tagged: tuple[int, ...] = ()

    @property
    def record(self) -> DatasetRecord:
        return self.snapshot.dataset

    @property
    def schemas(self) -> Mapping[int, pa.Schema]:
        return self.snapshot.file_schemas


def family(catalog: Catalog, reader: CatalogReader, address: Address) -> list[Member]:
    """The dataset, which is the first, and its branches."""
    record = existing(reader.dataset(address.key), address.uri, catalog.redacted_url)
    found = []
    for one in (address, *map(address.branch, reader.branches(record.id))):
        snapshot = one.snapshot(catalog, reader)
        dataset = snapshot.dataset
        found.append(
            Member(
                snapshot,
                tuple(Named(*named) for named in reader.readable_files(dataset)),
                tuple(reader.readable_vectors(dataset)),
                tuple(sorted(set(reader.tags(dataset.id).values()))),
            )
        )
    return found


def versions_of(members: list[Member]) -> dict[int, tuple[int, ...]]:
    """The newest and the oldest versions by dataset, and the tagged versions.

    If these are unchanged, everything is unchanged.
    """
    return {
        one.record.id: (one.record.current_version, one.record.oldest_version, *one.tagged)
        for one in members
    }

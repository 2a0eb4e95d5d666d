"""Verb. A stored file without some of its rows, and the vectors of the rows that stay.

The other rows keep their order: a row at position `p` moves to `p` minus the number of erased rows
before it. The hidden columns of the new file keep the rows' identities and versions.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import replace

import pyarrow as pa
import uuid6

from lakehouse_source.deletion.vector import Positions, encode
from lakehouse_source.erasure.family import Identity, Member
from lakehouse_source.erasure.find_rows import Matches
from lakehouse_source.failpoints import reach
from lakehouse_source.model import (
    DeletionVector,
    FileMetadata,
    FileRecord,
    ScanTask,
    VectorRecord,
)
from lakehouse_source.parquet.deleted_rows import deleted_rows
from lakehouse_source.parquet.names import own_name
from lakehouse_source.parquet.new_file import NewFile
from lakehouse_source.parquet.read_write_specs import ReadSpec, WriteSpec
from lakehouse_source.parquet.reader import read_task
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.schema.fields import field_id
from lakehouse_source.schema.partitions import partition_folder, partition_value
from lakehouse_source.storage import Storage
from lakehouse_source.write.commit.row_changes import write_vectors

# More rows than a row group can have: each row group stays one.
_ANY_NUMBER = 1 << 30


def write_others(
    spec: WriteSpec, snapshot: Snapshot, file: FileRecord, matches: Matches, storage: Storage
) -> FileMetadata | None:
    """Write the remaining rows of a file to a new file; None: no row remains.

    `snapshot` is of a dataset that has the file. The new file gets the same columns.
    """
    erased = matches.positions
    if len(erased) == file.row_count:
        return None
    schema = snapshot.file_schemas[file.schema_version]
    partitions = file.partitions
    spec = replace(
        spec,
        schema=schema,
        partition_by=tuple(partitions),
        row_group_rows=_ANY_NUMBER,
        sort_by=(),
        cluster_by=(),
        bloom_filter_columns=_named_in(schema, spec, partitions),
        must_match=None,
        moved_rows=True,
    )
    read = ReadSpec(
        uri=spec.uri,
        schema=spec.row_schema,
        columns=tuple(spec.file_schema.names),
        partition_by=(),
        file_schemas=snapshot.file_schemas,
    )
    blob = encode(erased)
    task = ScanTask.whole(file, (), DeletionVector("", 0, 0, len(blob), len(erased), blob))
    folder = file.path.rpartition("/")[0]
    if own_name(file.path) is None:
        # The folder that plake itself would choose, so that a vacuum knows it.
        folder = partition_folder(
            {
                name: None if (value := partition_value(text, schema.field(name).type)) is None
                else value.as_py()
                for name, text in partitions.items()
            }
        )  # fmt: skip
    name = f"{spec.write_id}-{uuid6.uuid7()}.parquet"
    path = f"{folder}/{name}" if folder else name
    new: NewFile | None = None
    try:
        for table in read_task(read, task, storage):
            rows = pa.Table.from_arrays(table.columns, schema=spec.file_schema)
            if new is None:
                new = NewFile(spec, storage, path, spec.file_schema, rows)
            new.write(rows)
            reach("rows to keep written")
    except BaseException:
        if new is not None:
            new.abandon()
        raise
    assert new is not None  # a row stays, and the reader checks the counts of the file
    written = new.close(partitions)
    storage.sync_folders([path])
    return written


def _named_in(
    schema: pa.Schema, spec: WriteSpec, partitions: Mapping[str, str | None]
) -> tuple[str, ...]:
    """The columns with bloom filters, by their names in the schema of a file."""
    ids = {field_id(spec.schema.field(name)) for name in spec.bloom_filter_columns}
    return tuple(
        field.name for field in schema if field_id(field) in ids and field.name not in partitions
    )


class Vectors:
    """The vectors of a family that an erasure changes, because files or positions change.

    A Puffin file names data files, and a folder's name can contain an erased value. So if a Puffin
    file has a vector of a rewritten file, all its vectors move to a new Puffin file.
    """

    def __init__(self, members: Iterable[Member], storage: Storage) -> None:
        self._members = list(members)
        self._storage = storage
        self._read: dict[tuple[str, int], Positions] = {}

    def before(self, file: FileRecord, vector: DeletionVector) -> Positions:
        """The positions that a vector marks now."""
        key = (vector.path, vector.offset)
        if key not in self._read:
            self._read[key] = deleted_rows(vector, file.path, file.row_count, self._storage)
        return self._read[key]

    def touched(self, found: Mapping[Identity, Matches]) -> dict[str, int]:
        """The sizes, by path, of the Puffin files that no version names any more."""
        paths: dict[str, int] = {}
        for member in self._members:
            rewritten = {one.file.id for one in member.files if Identity.of(one.file) in found}
            for record, _ in member.vectors:
                if record.file_id in rewritten:
                    paths[record.vector.path] = record.vector.size_bytes
        return paths

    def moved(
        self,
        found: Mapping[Identity, Matches],
        files: Mapping[Identity, FileMetadata | None],
        write_id: str,
    ) -> dict[int, list[tuple[VectorRecord, int | None]]]:
        """Rewrite the vectors of touched Puffin files; returns their catalog rows by dataset."""
        touched = self.touched(found)
        new: dict[int, tuple[FileRecord, Positions]] = {}
        number: dict[tuple[str, int, Identity], int] = {}
        rows: list[tuple[int, VectorRecord, int | None, int]] = []
        for member in self._members:
            by_id = {one.file.id: one.file for one in member.files}
            for record, removed in member.vectors:
                if record.vector.path not in touched or record.file_id not in by_id:
                    continue
                file = by_id[record.file_id]
                identity = Identity.of(file)
                positions = self.before(file, record.vector)
                if identity in found:
                    written = files[identity]
                    positions = without(positions, found[identity].positions)
                    if written is None or not positions:
                        continue
                    file = replace(file, path=written.path)
                key = (record.vector.path, record.vector.offset, identity)
                if key not in number:
                    number[key] = len(number)
                    new[number[key]] = (file, positions)
                rows.append((member.record.id, record, removed, number[key]))
        written_vectors = write_vectors(new, write_id, self._storage)
        result: dict[int, list[tuple[VectorRecord, int | None]]] = {}
        for dataset_id, record, removed, place in rows:
            vector = replace(record, vector=written_vectors[place])
            result.setdefault(dataset_id, []).append((vector, removed))
        return result


def without(positions: Positions, erased: Positions) -> Positions:
    """Positions in a file after the removal of the erased rows."""
    gone = list(erased)
    return Positions(one - bisect_left(gone, one) for one in positions - erased)

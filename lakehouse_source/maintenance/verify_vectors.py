"""Verb. Compares the deletion vectors of a version with the catalog's records."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence

from lakehouse_source.deletion.puffin import Blob, read_blobs
from lakehouse_source.deletion.vector import VectorError, decode
from lakehouse_source.errors import CorruptDatasetError, StorageError
from lakehouse_source.maintenance.reports import Difference
from lakehouse_source.model import DeletionVector, FileRecord
from lakehouse_source.storage import Storage


def differing_vectors(
    storage: Storage, path: str, vectors: Sequence[tuple[FileRecord, DeletionVector]]
) -> Iterator[Difference]:
    """The differences of one Puffin file, which has the vectors of these data files."""
    expected = vectors[0][1].size_bytes
    try:
        size = storage.size(path)
        if size is None:
            yield Difference(path, "file", "there", "missing")
            return
        if size != expected:
            yield Difference(path, "size in bytes", str(expected), str(size))
            return
        with storage.open_input(path) as source, storage.errors(path):
            content = source.read()
        sha256, known = hashlib.sha256(content).digest(), vectors[0][1].sha256
        if known is not None and sha256 != known:
            yield Difference(path, "SHA-256", known.hex(), sha256.hex())
        blobs = {blob.offset: blob for blob in read_blobs(content)}
    except (StorageError, CorruptDatasetError) as error:
        yield Difference(path, "file", "readable", error.reason)
        return
    except VectorError as error:
        yield Difference(path, "footer", "readable", str(error))
        return
    for file, vector in vectors:
        yield from _differences(path, file, vector, content, blobs)


def _differences(
    path: str,
    file: FileRecord,
    vector: DeletionVector,
    content: bytes,
    blobs: Mapping[int, Blob],
) -> Iterator[Difference]:
    what = f"deletion vector of {file.path}"
    described = blobs.get(vector.offset)
    wanted = Blob(file.path, vector.offset, vector.length, vector.cardinality)
    if described != wanted:
        yield Difference(path, what, str(wanted), str(described))
    blob = content[vector.offset : vector.offset + vector.length]
    try:
        decode(blob, vector.cardinality, file.row_count)
    except VectorError as error:
        yield Difference(path, what, "readable", str(error))
    if vector.blob is not None and vector.blob != blob:
        yield Difference(path, what, "the bytes in the catalog", "other bytes")

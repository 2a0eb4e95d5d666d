"""Verb. Compares the files and deletion vectors of a version with the catalog's records.

A file may be missing, have another size or footer, or contain pages that cannot be
decoded. Every difference is reported; none stops the comparison.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse_source.deletion import Blob, VectorError, decode, read_blobs
from lakehouse_source.errors import CorruptDatasetError, StorageError
from lakehouse_source.maintenance.reports import Difference, VerifyReport
from lakehouse_source.maintenance.vacuum import in_parallel
from lakehouse_source.model import DeletionVector, FileRecord, RowGroupMetadata
from lakehouse_source.parquet.checked_footer import CheckedFooter, open_footer
from lakehouse_source.parquet.names import is_foreign
from lakehouse_source.parquet.page_index import LARGEST_PAGE_BYTES, oversized_page
from lakehouse_source.read.address import Address
from lakehouse_source.schema.fields import is_metadata
from lakehouse_source.storage import Storage, sha256_of, split_shared

# --- Compares the deletion vectors of a version with the catalog's records.


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
        yield from _vector_differences(path, file, vector, content, blobs)


def _vector_differences(
    path: str,
    file: FileRecord,
    vector: DeletionVector,
    content: bytes,
    blobs: Mapping[int, Blob],
) -> Iterator[Difference]:
    what = f"deletion vector of {file.path}"
    described = blobs.get(vector.offset)
    wanted = Blob(split_shared(file.path)[1], vector.offset, vector.length, vector.cardinality)
    if described != wanted:
        yield Difference(path, what, str(wanted), str(described))
    blob = content[vector.offset : vector.offset + vector.length]
    try:
        decode(blob, vector.cardinality, file.row_count)
    except VectorError as error:
        yield Difference(path, what, "readable", str(error))
    if vector.blob is not None and vector.blob != blob:
        yield Difference(path, what, "the bytes in the catalog", "other bytes")


def verify(
    address: Address,
    version: int,
    files: Sequence[tuple[FileRecord, Sequence[RowGroupMetadata]]],
    *,
    checksums: bool,
    progress: bool | None = None,
    schemas: Mapping[int, pa.Schema] | None = None,
    vectors: Mapping[int, DeletionVector] | None = None,
    sha256: Mapping[int, bytes] | None = None,
) -> VerifyReport:
    """Compare stored files with the catalog's records of them and of their row groups.

    `vectors` are the deletion vectors by file id. Their positions and checksums are compared too.

    `schemas` are the schemas that files are recorded with, by schema version: a file that plake
    wrote has no other columns. Names and types are in the footer, which has no checksum.

    With `checksums`, the SHA-256 of a file is compared with its entry in `sha256`, by file id, if
    there is one. Every page is read too: its checksum, if the file has one, must be right, the page
    must decode, and each row group must have as many rows as the footer says.
    """
    storage = Storage(address.location)

    def inspect(item: tuple[FileRecord, Sequence[RowGroupMetadata]]) -> list[Difference]:
        file, groups = item
        try:
            schema = None if is_foreign(file.path) else (schemas or {}).get(file.schema_version)
            known = (sha256 or {}).get(file.id)
            return list(_differences(storage, file, groups, schema, checksums, known))
        except (StorageError, CorruptDatasetError) as error:
            return [Difference(file.path, "file", "readable", error.reason)]

    differences = list(_listed_twice([file for file, _groups in files]))
    for found in in_parallel(inspect, files, progress, "verifying"):
        differences += found
    puffins: dict[str, list[tuple[FileRecord, DeletionVector]]] = {}
    for file, _groups in files:
        vector = (vectors or {}).get(file.id)
        if vector is not None:
            puffins.setdefault(vector.path, []).append((file, vector))
    for path, some in puffins.items():
        differences += differing_vectors(storage, path, some)
    return VerifyReport(
        dataset=address.uri,
        version=version,
        files=len(files),
        size_bytes=sum(file.size_bytes for file, _groups in files),
        checksums=checksums,
        differences=tuple(differences),
    )


def _listed_twice(files: Sequence[FileRecord]) -> Iterator[Difference]:
    seen: set[str] = set()
    for file in files:
        if file.path in seen:
            yield Difference(file.path, "rows of the catalog", "1", "2")
        seen.add(file.path)


def _differences(
    storage: Storage,
    file: FileRecord,
    groups: Sequence[RowGroupMetadata],
    schema: pa.Schema | None,
    checksums: bool,
    sha256: bytes | None,
) -> Iterator[Difference]:
    size = storage.size(file.path)
    if size is None:
        yield Difference(file.path, "file", "there", "missing")
        return
    if size != file.size_bytes:
        yield Difference(file.path, "size in bytes", str(file.size_bytes), str(size))
    with storage.open_input(file.path) as stored:
        if checksums and sha256 is not None:
            with storage.errors(file.path):
                found_sha256 = sha256_of(stored)
            if found_sha256 != sha256:
                yield Difference(file.path, "SHA-256", sha256.hex(), found_sha256.hex())
        try:
            checked = open_footer(stored, file.path)
            footer = checked.metadata
        except CorruptDatasetError as error:
            yield Difference(file.path, "footer", "readable", _in_a_line(error.reason))
            return
        if schema is not None:
            yield from _other_columns(file.path, schema, checked)
        if footer.num_rows != file.row_count:
            yield Difference(file.path, "rows", str(file.row_count), str(footer.num_rows))
        if footer.num_row_groups != len(groups):
            found = str(footer.num_row_groups)
            yield Difference(file.path, "row groups", str(len(groups)), found)
        for group in groups[: footer.num_row_groups]:
            if not 0 <= group.index < footer.num_row_groups:
                yield Difference(file.path, "row groups", str(group.index), "none of this number")
                continue
            rows = footer.row_group(group.index).num_rows
            if rows != group.row_count:
                what = f"rows of row group {group.index}"
                yield Difference(file.path, what, str(group.row_count), str(rows))
        if checksums:
            parquet = pq.ParquetFile(stored, metadata=footer, page_checksum_verification=True)
            foreign = is_foreign(file.path)
            for index in range(footer.num_row_groups):
                # Other writers do not agree on the meaning of this size.
                known = 0 if foreign or index >= len(groups) else groups[index].total_byte_size
                try:
                    wrong = oversized_page(stored, checked, index, known or LARGEST_PAGE_BYTES)
                except CorruptDatasetError as error:
                    wrong = _in_a_line(error.reason)
                except (OSError, LookupError, TypeError, ValueError, OverflowError) as error:
                    wrong = _in_a_line(str(error))
                if wrong is not None:
                    what = f"pages of row group {index}"
                    yield Difference(file.path, what, "as large as committed", wrong)
                    continue
                yield from _unreadable_pages(parquet, file.path, index)


def _other_columns(path: str, schema: pa.Schema, footer: CheckedFooter) -> Iterator[Difference]:
    """Columns of a file that its schema lacks, by name or by type.

    A column that the file lacks is no difference: another commit may have added the column while
    the file was written.
    """
    fields = {field.name: field for field in schema}
    for field in footer.arrow_schema:
        if is_metadata(field):
            continue  # a hidden column
        expected = fields.get(field.name)
        if expected is None:
            known = _in_a_line(", ".join(schema.names))
            yield Difference(path, "column", f"one of {known}", field.name)
        elif (other := footer.other_type(expected)) is not None:
            yield Difference(path, f"type of {field.name}", str(expected.type), str(other))


def _unreadable_pages(parquet: pq.ParquetFile, path: str, index: int) -> Iterator[Difference]:
    expected = parquet.metadata.row_group(index).num_rows
    what = f"pages of row group {index}"
    try:
        # Without threads: files are compared in parallel already.
        table = parquet.read_row_group(index, use_threads=False)
        table.validate(full=True)
    except (OSError, ValueError, pa.ArrowException) as error:
        yield Difference(path, what, "readable", _in_a_line(str(error)))
        return
    if table.num_rows != expected:
        yield Difference(path, what, f"{expected} rows", f"{table.num_rows} rows")


def _in_a_line(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 160 else text[:157] + "..."

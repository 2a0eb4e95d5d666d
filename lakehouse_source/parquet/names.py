"""Edge. The names that plake gives to data files, and what a name says about its file.

    <write id>-<UUIDv7>.parquet         plake wrote the file: its columns have plake's field ids
    <write id>-<UUIDv7>.copy.parquet    plake copied the file: somebody else wrote it
    <write id>-<UUIDv7>.puffin          deletion vectors that a commit of plake wrote
    <write id>-<UUIDv7>.avro            a manifest, or a list of them, for readers of Iceberg
    <number>-<write id>-<UUIDv7>.metadata.json   a table for readers of Iceberg
    any other name                      a file that was added in place

Nothing else records who wrote a file. A file that plake did not write is read by the
names of its columns, and a file with a name that plake did not give is never deleted.
"""

from __future__ import annotations

import re
from uuid import UUID

import uuid6

_UUID7 = r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
_OWN_NAME = re.compile(
    rf"({_UUID7})-({_UUID7})(?:(\.copy)?\.parquet|\.puffin|\.avro)"
    rf"|[0-9]{{5,19}}-({_UUID7})-({_UUID7})\.metadata\.json"
)
# The folder, inside that of the dataset, where readers of Iceberg look for a table.
ICEBERG_FOLDER = "metadata"


def own_name(path: str) -> tuple[UUID, UUID] | None:
    """The write id and the second id in a name that plake gave; None for any other name."""
    match = _OWN_NAME.fullmatch(path.rpartition("/")[2])
    if match is None:
        return None
    return UUID(match[1] or match[4]), UUID(match[2] or match[5])


def is_foreign(path: str) -> bool:
    """Tell whether somebody else wrote the data file at a path."""
    match = _OWN_NAME.fullmatch(path.rpartition("/")[2])
    return match is None or match[3] is not None


def is_of_write(path: str, write_id: str) -> bool:
    """Tell whether a write gave a file its name, so that the write may delete it."""
    found = own_name(path)
    return found is not None and str(found[0]) == write_id


def is_vector_file(path: str) -> bool:
    """Tell whether plake wrote a file as one with deletion vectors."""
    return path.endswith(".puffin") and own_name(path) is not None


def vector_file_name(write_id: str) -> str:
    """A new name for a file with deletion vectors."""
    return f"{write_id}-{uuid6.uuid7()}.puffin"


def copy_name(write_id: str) -> str:
    """A new name for the copy of a file that somebody else wrote."""
    return f"{write_id}-{uuid6.uuid7()}.copy.parquet"


def is_iceberg_file(path: str) -> bool:
    """Tell whether plake wrote a file, at a path in the dataset, for readers of Iceberg."""
    folder, _, name = path.rpartition("/")
    ours = name.endswith((".avro", ".puffin", ".metadata.json")) and own_name(name) is not None
    return ours and folder == ICEBERG_FOLDER


def iceberg_path(write_id: str, kind: str) -> str:
    """A new path, relative to the dataset, for a manifest or a list (`avro`), or for `puffin`."""
    return f"{ICEBERG_FOLDER}/{write_id}-{uuid6.uuid7()}.{kind}"


def iceberg_metadata_path(write_id: str, version: int) -> str:
    """A new path, relative to the dataset, for the metadata of a table at a version."""
    return f"{ICEBERG_FOLDER}/{version:05d}-{write_id}-{uuid6.uuid7()}.metadata.json"

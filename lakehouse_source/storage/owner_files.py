"""Edge. The owner of a folder: a file in the folder names the catalog that may delete files there.

This needs no conditional write. A claimant lists the owner files, writes an empty file with a name
of its own, and lists again. If two claim at once, the one that lists last sees the other's file,
and deletes its own file. A claimant that sees no other file writes a text into its own. An empty
file of the same catalog may still be deleted, so it claims nothing for others. The store must show
a file to everybody once it is written (local disks, S3, Google's and Azure's stores do).
"""

from __future__ import annotations

import re
import secrets

import pyarrow.fs as pafs

from lakehouse_source.storage.files import Storage
from lakehouse_source.storage.uris import RESERVED_FOLDER

_NAME = re.compile(r"owner-([0-9a-f]{32})-[0-9a-f]{8}")


def owner_files(storage: Storage) -> dict[str, str]:
    """The files that name the owner of a folder: the catalog's id by the path of each file.

    Raises:
        CorruptDatasetError: a link leads out of the folder.
        StorageError: the folder cannot be listed.
    """
    return {path: owner for path, (owner, _) in _listed(storage).items()}


def _listed(storage: Storage) -> dict[str, tuple[str, bool]]:
    """The same files, each with whether its claim has succeeded."""
    return {
        f"{RESERVED_FOLDER}/{name}": (match[1], bool(size_bytes))
        for name, type_, size_bytes in storage.names_in(RESERVED_FOLDER)
        if type_ == pafs.FileType.File and (match := _NAME.fullmatch(name))
    }


def claim_folder(storage: Storage, catalog_id: str) -> str | None:
    """Claim a folder for a catalog, durably; returns the file of another catalog that owns it."""
    before = _listed(storage)
    other = _of_another(before, catalog_id)
    if other is not None or any(is_sure for _, is_sure in before.values()):
        return other
    mine = f"{RESERVED_FOLDER}/owner-{catalog_id}-{secrets.token_hex(4)}"
    _put(storage, mine, "")
    other = _of_another(_listed(storage), catalog_id)
    if other is not None:
        storage.delete(mine)
        return other
    text = (
        f"The files of plake here belong to the catalog {catalog_id}. No other catalog writes to "
        "this folder or deletes from it.\n"
    )
    _put(storage, mine, text)
    return None


def _put(storage: Storage, path: str, text: str) -> None:
    with storage.open_output(path) as sink, storage.errors(path):
        sink.write(text.encode())
    storage.sync_file(path)
    storage.sync_folders([path])


def release_folder(storage: Storage, catalog_id: str) -> None:
    """Release a folder."""
    for path, owner in owner_files(storage).items():
        if owner == catalog_id:
            storage.delete(path)
    storage.remove_local_folder(RESERVED_FOLDER)  # unless a catalog is in it


def _of_another(files: dict[str, tuple[str, bool]], catalog_id: str) -> str | None:
    return next((path for path, (owner, _) in sorted(files.items()) if owner != catalog_id), None)

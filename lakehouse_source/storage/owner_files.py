"""Edge. Whose a folder is: a file in it, named after the catalog that may delete files there.

No store needs a conditional write for it: who claims a folder looks, puts an empty file with a
name of its own, and looks again. Of two that do so at once each one that looks last sees the other,
and takes its file away. Who sees no other one writes a text into its file. An empty file of the
same catalog may still be taken away, and so claims nothing for others. A store that shows a file to
everybody once it is written (local disks, S3, Google's and Azure's) is all that it takes.
"""

from __future__ import annotations

import os
import re
import secrets
from contextlib import suppress

import pyarrow.fs as pafs

from lakehouse_source.storage.files import Storage
from lakehouse_source.storage.uris import RESERVED_FOLDER

_NAME = re.compile(r"owner-([0-9a-f]{32})-[0-9a-f]{8}")


def owner_files(storage: Storage) -> dict[str, str]:
    """The files that say whose a folder is: the id of the catalog by the path of each.

    Raises:
        CorruptDatasetError: a link leads out of the folder.
        StorageError: the folder cannot be listed.
    """
    return {path: owner for path, (owner, _) in _listed(storage).items()}


def _listed(storage: Storage) -> dict[str, tuple[str, bool]]:
    """The same, each with whether its claim has ended well."""
    folder = storage.path(f"{RESERVED_FOLDER}/owner").rpartition("/")[0]
    selector = pafs.FileSelector(folder, allow_not_found=True)
    with storage.errors(RESERVED_FOLDER):
        try:
            listed = storage.filesystem.get_file_info(selector)
        except FileNotFoundError:  # it was missing, and then it was there: somebody made it
            listed = storage.filesystem.get_file_info(selector)
    return {
        f"{RESERVED_FOLDER}/{info.base_name}": (match[1], bool(info.size))
        for info in listed
        if info.type == pafs.FileType.File and (match := _NAME.fullmatch(info.base_name))
    }


def claim_folder(storage: Storage, catalog_id: str) -> str | None:
    """Make a folder a catalog's own, durably; answers the file of another one that has it."""
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
    """Let a folder be nobody's again."""
    for path, owner in owner_files(storage).items():
        if owner == catalog_id:
            storage.delete(path)
    if storage.is_local:
        with suppress(OSError):  # other files are in it, such as a catalog
            os.rmdir(f"{storage.root}/{RESERVED_FOLDER}")


def _of_another(files: dict[str, tuple[str, bool]], catalog_id: str) -> str | None:
    return next((path for path, (owner, _) in sorted(files.items()) if owner != catalog_id), None)

"""Tells whether two paths lead to one file or folder of this machine.

A path has many spellings: symbolic links, `..` and doubled slashes in it. Files are compared, never
texts. No result is kept, because links change.
"""

from __future__ import annotations

import os

from lakehouse_source.storage import RESERVED_FOLDER, local_path

CATALOG_FILE = "catalog.db"
# The key of a dataset whose folder contains the catalog: such a dataset can be moved or copied as a
# whole.
OWN_KEY = "."


def default_catalog_path(folder: str) -> str:
    """The catalog file that a dataset in a local folder has by default."""
    return f"{folder}/{RESERVED_FOLDER}/{CATALOG_FILE}"


def same_place(path: str, other: str) -> bool:
    """Tell whether two paths lead to one file or folder, which may not exist yet."""
    if path == other:
        return True
    mine, theirs = _identity(path), _identity(other)
    if mine is None and theirs is None:
        try:
            return os.path.realpath(path) == os.path.realpath(other)
        except ValueError:  # the path has a NUL
            return False
    return mine == theirs


def is_dataset_at(registered: str, wanted: str, catalog_path: str | None) -> bool:
    """Tell whether two keys of a catalog mean one local folder.

    `catalog_path` is the file of a catalog that may be in the folder of a dataset.
    """
    folder = local_path(registered)
    if folder is None:
        return False
    if wanted == OWN_KEY:
        return catalog_path is not None and same_place(catalog_path, default_catalog_path(folder))
    path = local_path(wanted)
    return path is not None and same_place(folder, path)


def _identity(path: str) -> tuple[int, int] | None:
    """The identity of a file or folder on this machine; None: it does not exist."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino

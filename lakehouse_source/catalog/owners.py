"""Edge. A folder belongs to one catalog; no other catalog writes to it or deletes from it.

A catalog has a random id, which it keeps when it is copied or restored. The folder of a dataset
gets a file with that id before the first commit (`storage.owner_files`).
"""

from __future__ import annotations

import secrets

from lakehouse_source.catalog.base import Catalog, CatalogTransaction
from lakehouse_source.catalog.retry import in_transaction
from lakehouse_source.errors import ForeignFolderError
from lakehouse_source.storage import Storage, claim_folder, owner_files, redact_uri, release_folder

_SETTING = "catalog_id"


def check_owner(catalog: Catalog, storage: Storage) -> None:
    """Make a folder this catalog's own, if no catalog owns it yet.

    Raises:
        ForeignFolderError: the folder belongs to another catalog.
        CorruptDatasetError, StorageError: the folder cannot be read, or written to.
    """
    other = claim_folder(storage, catalog_id(catalog))
    if other is not None:
        raise _of_another(storage, other)


def check_not_foreign(catalog: Catalog | None, storage: Storage) -> None:
    """Check that no other catalog owns a folder. None: this catalog does not exist yet."""
    mine = None if catalog is None else catalog_id(catalog)
    for path, owner in owner_files(storage).items():
        if owner != mine:
            raise _of_another(storage, path)


def _of_another(storage: Storage, owner: str) -> ForeignFolderError:
    return ForeignFolderError(
        folder=redact_uri(storage.uri),
        reason=f"it belongs to another catalog, as {owner} in it says. Use that catalog (option "
        "'catalog', environment variable PLAKE_CATALOG), or another folder. If that catalog is "
        "lost for good, delete that file",
    )


def release_owner(catalog: Catalog, storage: Storage) -> None:
    """Release a folder, after its dataset was deleted."""
    release_folder(storage, catalog_id(catalog))


def catalog_id(catalog: Catalog) -> str:
    """The id of a catalog; the first call makes the id."""
    with catalog.read() as reader:
        found = reader.names.setting(_SETTING)
    if found is not None:
        return found

    def give(tx: CatalogTransaction) -> str:
        return tx.names.first_setting(_SETTING, secrets.token_hex(16))

    return in_transaction(catalog, catalog.redacted_url, "", give, resolve=False)

"""Verb. The metadata of a table beside its data, for readers of Iceberg without a server.

<dataset>/metadata/<version>-<write id>-<UUIDv7>.metadata.json
<dataset>/metadata/version-hint.text      the name of the newest one, without its suffix
"""

from __future__ import annotations

import json
import logging
from contextlib import suppress

import uuid6

from lakehouse_source.catalog import Catalog, CatalogTransaction
from lakehouse_source.catalog.owners import check_owner
from lakehouse_source.catalog.retry import in_transaction
from lakehouse_source.catalog.sql.iceberg import METADATA
from lakehouse_source.errors import InvalidOptionError, PlakeError, StorageError
from lakehouse_source.iceberg.metadata import NEWEST_VERSIONS, table_metadata
from lakehouse_source.iceberg.snapshots import base_path, put_file
from lakehouse_source.model import DatasetRecord
from lakehouse_source.parquet.names import (
    ICEBERG_FOLDER,
    iceberg_metadata_path,
    own_name,
)
from lakehouse_source.read.address import Address
from lakehouse_source.read.snapshot import existing
from lakehouse_source.storage import Storage, local_path

HINT = f"{ICEBERG_FOLDER}/version-hint.text"
_ENDING = ".metadata.json"
_LOG = logging.getLogger(__name__)


def export_iceberg(
    catalog: Catalog, address: Address, *, newest_versions: int = NEWEST_VERSIONS
) -> str:
    """Write the metadata of a table; returns the path or URI of the file.

    Raises:
        IcebergUnsupportedError: Iceberg cannot express the dataset.
        ForeignFolderError: the folder belongs to another catalog.
    """
    if address.is_branch:
        raise InvalidOptionError(
            option="path",
            value=address.uri,
            reason="is a branch. Export the dataset: its branches are references of the table.",
        )
    storage = Storage(address.location)
    check_owner(catalog, storage)
    _hinted(storage)
    document = table_metadata(catalog, address, newest_versions=newest_versions)
    version = document["current-snapshot-id"]
    write_id = str(uuid6.uuid7())
    path = iceberg_metadata_path(write_id, version)
    base = base_path(address)
    with catalog.read() as reader:
        record = existing(reader.dataset(address.key), address.uri, catalog.redacted_url)

    def register(tx: CatalogTransaction) -> None:
        tx.register_pending(write_id, record.id)

    def finish(tx: CatalogTransaction) -> None:
        tx.lock_dataset(address.key)
        tx.fence_write(write_id)
        tx.iceberg.insert(record, path, version, METADATA, base, {})
        # Under the lock, so that an export of an older version does not come last.
        if not _is_later(tx, record, _hinted(storage), version):
            _put_hint(storage, write_id, path)

    in_transaction(catalog, address.uri, "", register, resolve=False)
    put_file(storage, path, json.dumps(document).encode())
    storage.sync_folders([path])
    in_transaction(catalog, address.uri, "", finish, resolve=False)
    return base + path


def export_after(catalog: Catalog, address: Address) -> None:
    """Export the metadata of a table after a commit; an error does not undo the commit."""
    if address.is_branch:
        return
    try:
        export_iceberg(catalog, address)
    except PlakeError as error:
        _LOG.warning("Iceberg metadata of %s was not written: %s", address.uri, error)


def export_if_wanted(catalog: Catalog, address: Address) -> None:
    """Export the metadata after a commit, where the dataset's property says so."""
    if address.is_branch:
        return
    with suppress(PlakeError), catalog.read() as reader:
        record = reader.dataset(address.key)
        if record is None or not record.properties.layout.iceberg_metadata:
            return
    export_after(catalog, address)


def _is_later(tx: CatalogTransaction, record: DatasetRecord, hinted: str, version: int) -> bool:
    """Tell whether the hint names a file of a later version.

    If the catalog does not have the file, its version was lost when a backup was put back.
    """
    if not hinted or int(hinted.partition("-")[0]) <= version:
        return False
    path = f"{ICEBERG_FOLDER}/{hinted}{_ENDING}"
    return any(path == one.path for one in tx.iceberg.all(record.id))


def _hinted(storage: Storage) -> str:
    """The file that the hint names, as it names it; empty: there is no hint."""
    try:
        with storage.open_input(HINT) as hint:
            text = str(hint.read(1000).decode(errors="replace").strip())
    except StorageError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return ""
        raise
    if own_name(text + _ENDING) is None:
        raise InvalidOptionError(
            option="path",
            value=storage.display(HINT),
            reason="was not written by plake: the folder is another table of Iceberg, which "
            "would be hidden. Copy the dataset to another folder.",
        )
    return text


def _put_hint(storage: Storage, write_id: str, path: str) -> None:
    """Let the hint name a file. Readers see the old hint or the new one."""
    name = path.rpartition("/")[2].removesuffix(_ENDING).encode()
    root = local_path(storage.uri)
    if root is None:
        put_file(storage, HINT, name)
        return
    # Under a name that a vacuum knows, in case this process dies here.
    new = iceberg_metadata_path(write_id, 0)
    put_file(storage, new, name)
    storage.rename_local(new, HINT)
    storage.sync_folders([HINT])

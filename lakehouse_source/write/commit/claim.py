"""Verb. Before the first write to a folder: this catalog takes it, or refuses the write."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow.fs as pafs

from lakehouse_source.catalog.base import Catalog
from lakehouse_source.catalog.owners import check_not_foreign, check_owner
from lakehouse_source.errors import ForeignFolderError
from lakehouse_source.parquet.names import own_name
from lakehouse_source.read.address import refuse_what_reads_like_a_name
from lakehouse_source.storage import Storage, StorageLocation, redact_uri


def claim(catalog: Catalog, location: StorageLocation, *, is_new: bool) -> None:
    """Make the folder of a dataset this catalog's own. `is_new`: the catalog has no data there.

    Raises:
        InvalidOptionError: a new dataset would be made at `sales.orders`.
        ForeignFolderError: the folder belongs to another catalog, or has data of plake that this
            catalog does not know: the URL of the catalog is probably wrong.
    """
    storage = Storage(location)
    if is_new:
        refuse_what_reads_like_a_name(location.given)
        _refuse_unknown_data(catalog, storage)
    check_owner(catalog, storage)


def _refuse_unknown_data(catalog: Catalog, storage: Storage) -> None:
    found: dict[str, str] = {}
    for path in _data_files(storage, ""):
        ids = own_name(path)
        if ids is not None:
            found[str(ids[0])] = path
    if not found:
        return
    with catalog.read() as reader:
        # Other first writes may be running, or have crashed.
        known = reader.write_states(found)
    unknown = sorted(path for write_id, path in found.items() if write_id not in known)
    if unknown:
        check_not_foreign(catalog, storage)
        raise ForeignFolderError(
            folder=redact_uri(storage.uri),
            reason=f"plake wrote {unknown[0]} there for a dataset that catalog "
            f"{catalog.redacted_url} does not have. Check the catalog (option 'catalog', "
            "environment variable PLAKE_CATALOG), or choose another folder",
        )


def _data_files(storage: Storage, folder: str) -> Iterator[str]:
    """The files in a folder and in its partition folders, with their paths in the dataset.

    Files elsewhere may belong to datasets in folders of their own.
    """
    for name, type_, _size_bytes in storage.names_in(folder.rstrip("/")):
        if type_ == pafs.FileType.File:
            yield folder + name
        elif type_ == pafs.FileType.Directory and "=" in name:
            yield from _data_files(storage, f"{folder}{name}/")

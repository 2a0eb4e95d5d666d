"""Door. Names and tables of a catalog, and their metadata, kept while it is current."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lakehouse_source.catalog import Catalog
from lakehouse_source.catalog.locate import uri_of
from lakehouse_source.catalog.qualified_names import QualifiedName
from lakehouse_source.catalog.sql.iceberg import METADATA
from lakehouse_source.errors import DatasetNotFoundError, IcebergUnsupportedError
from lakehouse_source.iceberg.metadata import TableState, table_metadata, table_state
from lakehouse_source.iceberg.snapshots import base_path
from lakehouse_source.read.address import Address
from lakehouse_source.storage import StorageLocation

_MOST_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Settings:
    """What a server was started with. `vended` are settings that clients get with each table."""

    storage_options: Mapping[str, Any]
    vended: Mapping[str, str]
    newest_versions: int


class Tables:
    """The tables of one open catalog. Several threads use it."""

    def __init__(self, catalog: Catalog, settings: Settings) -> None:
        self.catalog = catalog
        self.settings = settings
        self._made: OrderedDict[str, bytes | IcebergUnsupportedError] = OrderedDict()
        self._lock = threading.Lock()
        self._making: dict[str, threading.Lock] = {}

    def namespaces(self) -> list[str]:
        with self.catalog.read() as reader:
            return [one.name for one in reader.names.namespaces()]

    def namespace(self, name: str) -> Mapping[str, str]:
        """What users noted about a namespace."""
        with self.catalog.read() as reader:
            return reader.names.namespace(name).properties

    def names(self, namespace: str) -> list[str]:
        """The names of all tables, ordered, also of those that Iceberg cannot express."""
        with self.catalog.read() as reader:
            reader.names.namespace(namespace)
            return [one.name for one in reader.names.datasets(namespace) if one.version > 0]

    def address(self, name: QualifiedName) -> Address:
        """The address of a table."""
        with self.catalog.read() as reader:
            found = reader.names.get(name)
        uri = uri_of(self.catalog, found.base_uri) or found.base_uri
        if found.version == 0:
            raise DatasetNotFoundError(dataset=str(found), catalog=self.catalog.redacted_url)
        is_local = uri.startswith("file:") or uri == "."
        options = None if is_local else self.settings.storage_options
        return Address.registered(StorageLocation.of(uri, options), found.base_uri, self.catalog)

    def state(self, address: Address) -> TableState:
        with self.catalog.read() as reader:
            return table_state(self.catalog, reader, address)

    def loaded(self, address: Address, state: TableState, *, refs_only: bool) -> bytes:
        """The answer to a request that loads a table, as JSON; made once for each state."""
        key = f"{address.key} {state.key} {refs_only}"
        with self._lock:
            lock = self._making.setdefault(address.key, threading.Lock())
        with lock:  # other requests for the same table wait for it
            with self._lock:
                found = self._made.get(key)
            if found is None:
                try:
                    found = self._load(address, state, refs_only)
                except IcebergUnsupportedError as error:
                    found = error
                self._keep(key, found)
        if isinstance(found, IcebergUnsupportedError):
            raise found.with_traceback(None)  # else the error keeps the frames of every request
        return found

    def _load(self, address: Address, state: TableState, refs_only: bool) -> bytes:
        newest = self.settings.newest_versions
        document = table_metadata(
            self.catalog, address, refs_only=refs_only, newest_versions=newest
        )
        answer: dict[str, Any] = {"metadata": document, "config": dict(self.settings.vended)}
        base = base_path(address)
        with self.catalog.read() as reader:
            exported = reader.iceberg.listed(state.record, METADATA, base)
        version = document["current-snapshot-id"]
        if version in exported:
            answer["metadata-location"] = base + exported[version][0]
        return json.dumps(answer, separators=(",", ":")).encode()

    def _keep(self, key: str, found: bytes | IcebergUnsupportedError) -> None:
        with self._lock:
            self._made[key] = found
            while sum(_size(one) for one in self._made.values()) > _MOST_BYTES:
                self._made.popitem(last=False)


def _size(made: bytes | IcebergUnsupportedError) -> int:
    return 1000 + (len(made) if isinstance(made, bytes) else 0)

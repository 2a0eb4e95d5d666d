"""Door. Tables of a catalog: names and metadata, kept while current, and plans of scans."""

from __future__ import annotations

import base64
import binascii
import json
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lakehouse_source.catalog import Catalog
from lakehouse_source.catalog.locate import uri_of
from lakehouse_source.catalog.qualified_names import QualifiedName
from lakehouse_source.catalog.sql.iceberg import METADATA
from lakehouse_source.errors import (
    CorruptDatasetError,
    DatasetNotFoundError,
    IcebergUnsupportedError,
    InvalidOptionError,
    InvalidPredicateError,
    VersionNotFoundError,
)
from lakehouse_source.iceberg.manifests import absolute_path, entries_of
from lakehouse_source.iceberg.metadata import TableState, table_metadata, table_state
from lakehouse_source.iceberg.snapshots import (
    BRANCH_STEP,
    VersionFiles,
    base_path,
    make_version,
    spec_id,
)
from lakehouse_source.iceberg.types import json_value
from lakehouse_source.language import PredicateSet
from lakehouse_source.model import ScanTask
from lakehouse_source.read.address import Address
from lakehouse_source.read.plan import plan
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.schema.fields import field_id
from lakehouse_source.schema.partitions import partition_ordinal
from lakehouse_source.schema.paths import walk
from lakehouse_source.schema.types import card
from lakehouse_source.server.filters import Filter, condition
from lakehouse_source.storage import Storage, StorageLocation

# --- Which clients read a plan of a table rightly, by what they say that they are.
#
# PyIceberg 0.12 keeps each partition value of a plan as the JSON value that it is: the text of a
# date equals no date, so files of rows that match are left out without an error. A NULL there ends
# in an error. Its own plans, by manifests, are right.


_CLIENT = "pyiceberg"
# Iceberg's types whose values JSON has.
_IN_JSON = ("boolean", "int", "long", "string")
_HINT = (
    "Let PyIceberg read the manifests, which is its default: load_catalog(…, "
    "**{'scan-planning-mode': 'client'})."
)


def check_client(client: str, snapshot: Snapshot, tasks: Iterable[ScanTask]) -> None:
    """Refuse a plan that the client would read wrongly.

    Raises:
        IcebergUnsupportedError
    """
    if _CLIENT not in client.lower() or not snapshot.partition_by:
        return
    for name in snapshot.partition_by:
        found = card(snapshot.schema.field(name).type).iceberg
        if found not in _IN_JSON:
            raise _refused(snapshot, name, f"is a partition column of type {found}")
    for task in tasks:
        for name, text in zip(snapshot.partition_by, task.partitions):
            if text is None:
                raise _refused(snapshot, name, "is NULL in a partition")


def _refused(snapshot: Snapshot, column: str, reason: str) -> IcebergUnsupportedError:
    return IcebergUnsupportedError(
        dataset=snapshot.uri,
        column=column,
        reason=f"{reason}, which PyIceberg reads wrongly in a plan of the server",
        hint=_HINT,
    )


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


# --- Plans of scans: the files of a version that may have rows of a condition.


# Larger plans are answered in pages, by `/tasks`: these are the most tasks of a page, and the most
# characters of its residuals.
PAGE = 5000
_MOST_RESIDUALS = 8 * 1024 * 1024
_MOST_FILTER = 1024 * 1024
# Each token has the filter: with a longer filter, a page has only the next page's token.
_SHORT_FILTER = 1000
_PLANS = 8


@dataclass(frozen=True, slots=True)
class Request:
    """The parts of a request for a plan that matter here."""

    snapshot_id: int | None
    filter: Any
    filter_bytes: int
    case_sensitive: bool
    snapshot_schema: bool

    @property
    def page(self) -> int:
        """How many tasks a page has."""
        return min(PAGE, _MOST_RESIDUALS // self.filter_bytes)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Request:
        """The request in a body."""
        if document.get("start-snapshot-id") is not None:
            raise InvalidOptionError(
                option="start-snapshot-id",
                reason="is not supported: read the change feed of plake for increments.",
            )
        try:
            filter_bytes = len(json.dumps(document.get("filter")))
        except RecursionError as error:
            raise InvalidPredicateError(reason="the filter is nested too deep") from error
        if filter_bytes > _MOST_FILTER:
            raise InvalidPredicateError(reason=f"the filter has more than {_MOST_FILTER} bytes")
        number = document.get("snapshot-id")
        if number is not None and type(number) is not int:
            raise InvalidOptionError(option="snapshot-id", value=number, reason="is no number.")
        flags = [document.get(name) for name in ("case-sensitive", "use-snapshot-schema")]
        if any(flag not in (None, True, False) for flag in flags):
            raise InvalidOptionError(option="case-sensitive", reason="must be true or false.")
        wanted = document.get("filter")
        return cls(number, wanted, filter_bytes, flags[0] is not False, flags[1] is True)


@dataclass(frozen=True, slots=True)
class _Planned:
    """`filter` is what readers apply to the rows; `is_exact`: plake's means the same to them."""

    snapshot: Snapshot
    files: VersionFiles
    tasks: Sequence[ScanTask]
    filter: Any
    is_exact: bool

    def needs_filter(self, task: ScanTask) -> bool:
        if self.filter is None:
            return False
        all_match = not task.filtered and task.row_count == task.file_row_count
        return not (all_match and self.is_exact)


class Plans:
    """Plans of the tables of one catalog. The vectors of a version are kept for later plans."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._lock = threading.Lock()
        self._vectors: OrderedDict[str, dict[str, dict[str, Any]]] = OrderedDict()
        self._files: OrderedDict[tuple[str, str, int], VersionFiles] = OrderedDict()
        self._plans: OrderedDict[str, _Planned] = OrderedDict()

    def plan(self, address: Address, request: Request, client: str) -> dict[str, Any]:
        """The first page of a plan, and tokens for the others.

        Raises:
            IcebergUnsupportedError: the client would read the plan wrongly.
        """
        return {"status": "completed", **self._of_start(address, request, 0, client)}

    def tasks(self, address: Address, token: Any, client: str) -> dict[str, Any]:
        """A later page of a plan.

        Raises:
            InvalidOptionError: this server did not make the token.
            IcebergUnsupportedError: the client would read the plan wrongly.
        """
        return self._of_start(address, *_of_token(token), client)

    def _of_start(
        self, address: Address, request: Request, start: int, client: str
    ) -> dict[str, Any]:
        address, base_version, version = self._target(address, request.snapshot_id)
        planned = self._planned(address, base_version, version, request)
        check_client(client, planned.snapshot, planned.tasks)
        size = request.page
        starts = range(start + size, len(planned.tasks), size)
        if request.filter_bytes > _SHORT_FILTER:
            starts = starts[:1]
        elif start:
            starts = range(0)  # the first page had them all
        tokens = [_token(planned.snapshot, request, one) for one in starts]
        return {"plan-tasks": tokens, **self._page(address, planned, start, start + size)}

    # --- which version

    def _target(
        self, address: Address, snapshot_id: int | None
    ) -> tuple[Address, int | None, int | None]:
        if snapshot_id is None or 0 < snapshot_id < BRANCH_STEP:
            return address, None, snapshot_id
        dataset_id, version = divmod(snapshot_id, BRANCH_STEP)
        for name, branch in self._tables.state(address).branches.items():
            if branch.dataset_id == dataset_id:
                return address.branch(name), branch.base_version, version
        raise VersionNotFoundError(
            dataset=address.uri, requested=f"snapshot {snapshot_id}", first=1, last=0
        )

    def _planned(
        self,
        address: Address,
        base_version: int | None,
        version: int | None,
        request: Request,
    ) -> _Planned:
        catalog = self._tables.catalog
        with catalog.read() as reader:
            snapshot = address.snapshot(catalog, reader, version)
        erased = snapshot.dataset.properties.erased_version
        key = json.dumps(
            [address.key, snapshot.dataset.id, snapshot.version, erased, request.filter,
             request.case_sensitive, request.snapshot_schema], sort_keys=True, default=str
        )  # fmt: skip
        with self._lock:
            known = self._plans.get(key)
        if known is not None:
            return known
        files = self._version(address, snapshot, base_version)
        condition = self._condition(snapshot, request)
        predicates = None if condition is None else PredicateSet(condition.node)
        with catalog.read() as reader:
            tasks = plan(reader, snapshot, predicates=predicates).tasks
        is_exact = condition is None or condition.is_exact
        tasks = tuple(task for task in tasks if task.file_row_count)
        found = _Planned(snapshot, files, tasks, request.filter, is_exact)
        if len(tasks) > request.page:
            with self._lock:
                _keep(self._plans, key, found, _PLANS)
        return found

    def _version(
        self, address: Address, snapshot: Snapshot, base_version: int | None
    ) -> VersionFiles:
        """The files of a version, checked: readers of Iceberg must read the version rightly."""
        key = (
            base_path(address),
            f"{snapshot.dataset.id} {snapshot.dataset.properties.erased_version}",
            snapshot.version,
        )
        with self._lock:
            found = self._files.get(key)
        if found is None:
            found = make_version(self._tables.catalog, address, snapshot, base_version)
            with self._lock:
                _keep(self._files, key, found, 256)
        return found

    def _condition(self, snapshot: Snapshot, request: Request) -> Filter | None:
        if request.filter is None:
            return None
        schemas = snapshot.file_schemas
        named = snapshot.schema if request.snapshot_schema else schemas[max(schemas)]
        # The names of the table's schema stand for ids, and these for columns of the version.
        paths = {field_id(field): (path, field.type) for path, field in walk(snapshot.schema)}
        ids: dict[str, int | None] = {}
        for path, field in walk(named):
            name = ".".join(path)
            name = name if request.case_sensitive else name.lower()
            # Two columns have the same dotted name: the name is ambiguous.
            ids[name] = None if name in ids else field_id(field)

        def find(name: str) -> tuple[tuple[str, ...], pa.DataType] | None:
            identity = ids.get(name if request.case_sensitive else name.lower())
            return None if identity is None else paths.get(identity)

        return condition(request.filter, find)

    # --- the answer

    def _page(self, address: Address, planned: _Planned, start: int, stop: int) -> dict[str, Any]:
        snapshot, storage = planned.snapshot, Storage(address.location)
        vectors = self._vectors_of(address, planned.files) if planned.files.has_vectors else {}
        types = [snapshot.schema.field(name).type for name in snapshot.partition_by]
        deletes: list[dict[str, Any]] = []
        found = []
        for task in planned.tasks[start:stop]:
            partition = [
                json_value(partition_ordinal(text, type_), type_)
                for text, type_ in zip(task.partitions, types)
            ]
            common = {"spec-id": spec_id(snapshot), "partition": partition}
            storage.path(task.path)  # refuses what leads out of the dataset
            path = absolute_path(storage.location, task.path)
            one: dict[str, Any] = {
                "data-file": {
                    **common,
                    "content": "data",
                    "file-path": path,
                    "file-format": "parquet",
                    "file-size-in-bytes": task.size_bytes,
                    "record-count": task.file_row_count,
                }
            }
            if planned.needs_filter(task):
                # Without it PyIceberg counts all rows of the file.
                one["residual-filter"] = planned.filter
            if task.deleted is not None:
                one["delete-file-references"] = [len(deletes)]
                deletes.append({**common, **vectors[path]})
            found.append(one)
        return {"file-scan-tasks": found, **({"delete-files": deletes} if deletes else {})}

    def _vectors_of(self, address: Address, files: VersionFiles) -> dict[str, dict[str, Any]]:
        """The deletion vectors of a version's data files, by path, from its manifests.

        Raises:
            CorruptDatasetError: a manifest is not the one that the catalog recorded.
        """
        storage = Storage(address.location)
        vectors: dict[str, dict[str, Any]] = {}
        for manifest in files.manifests:
            if not manifest.vectors:
                continue
            with self._lock:
                known = self._vectors.get(storage.uri + manifest.path)
            if known is None:
                with storage.open_input(manifest.path) as source:
                    content = source.read(manifest.size_bytes + 1)
                puffin = base_path(address) + manifest.puffin
                try:
                    is_same = len(content) == manifest.size_bytes
                    entries = entries_of(content) if is_same else []
                    known = dict(_vector(entry["data_file"]) for entry in entries)
                except (AttributeError, EOFError, LookupError, TypeError, ValueError) as error:
                    raise _not_recorded(storage, manifest.path) from error
                if not is_same or any(one["file-path"] != puffin for one in known.values()):
                    raise _not_recorded(storage, manifest.path)
                with self._lock:
                    _keep(self._vectors, storage.uri + manifest.path, known, 256)
            vectors |= known
        return vectors


def _not_recorded(storage: Storage, path: str) -> CorruptDatasetError:
    return CorruptDatasetError(
        path=storage.display(path), reason="it is not the manifest that the catalog recorded"
    )


def _vector(entry: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    return entry["referenced_data_file"], {
        "content": "position-deletes",
        "file-path": entry["file_path"],
        "file-format": "puffin",
        "file-size-in-bytes": entry["file_size_in_bytes"],
        "record-count": entry["record_count"],
        "referenced-data-file": entry["referenced_data_file"],
        "content-offset": entry["content_offset"],
        "content-size-in-bytes": entry["content_size_in_bytes"],
    }


def _keep(known: OrderedDict[Any, Any], key: Any, value: Any, most: int) -> None:
    known[key] = value
    while len(known) > most:
        known.popitem(last=False)


def _token(snapshot: Snapshot, request: Request, start: int) -> str:
    number = request.snapshot_id if request.snapshot_id is not None else snapshot.version
    document = {
        "snapshot-id": number,
        "filter": request.filter,
        "case-sensitive": request.case_sensitive,
        "use-snapshot-schema": request.snapshot_schema,
        "start": start,
    }
    return base64.urlsafe_b64encode(json.dumps(document).encode()).decode()


def _of_token(token: Any) -> tuple[Request, int]:
    try:
        document = json.loads(base64.b64decode(token, b"-_", validate=True))
        start = document["start"]
        if type(start) is not int or start < 0:
            raise ValueError("start")
    except (binascii.Error, ValueError, TypeError, KeyError, RecursionError) as error:
        raise InvalidOptionError(
            option="plan-task", reason="was not made by this server."
        ) from error
    return Request.of(document), start

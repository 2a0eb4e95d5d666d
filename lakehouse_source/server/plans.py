"""Door. Plans of scans: the files of a version that may have rows of a condition."""

from __future__ import annotations

import base64
import binascii
import io
import json
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lakehouse_source.errors import InvalidOptionError, VersionNotFoundError
from lakehouse_source.iceberg.snapshots import (
    BRANCH_STEP,
    VersionFiles,
    base_path,
    make_version,
    spec_id,
)
from lakehouse_source.iceberg.values import json_value
from lakehouse_source.language import PredicateSet
from lakehouse_source.model import ScanTask
from lakehouse_source.read.address import Address
from lakehouse_source.read.plan import plan
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.schema.fields import field_id
from lakehouse_source.schema.partitions import partition_ordinal
from lakehouse_source.schema.paths import walk
from lakehouse_source.server.filters import condition
from lakehouse_source.server.tables import Tables
from lakehouse_source.storage import Storage

# Larger plans are answered in pages, by `/tasks`.
PAGE = 5000
_PLANS = 8


@dataclass(frozen=True, slots=True)
class Request:
    """What of a request for a plan matters here."""

    snapshot_id: int | None
    filter: Any
    case_sensitive: bool
    snapshot_schema: bool

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Request:
        """The request in a body.

        Raises:
            InvalidOptionError
        """
        if document.get("start-snapshot-id") is not None:
            raise InvalidOptionError(
                option="start-snapshot-id",
                reason="is not supported: read the change feed of plake for increments.",
            )
        number = document.get("snapshot-id")
        if number is not None and type(number) is not int:
            raise InvalidOptionError(option="snapshot-id", value=number, reason="is no number.")
        flags = [document.get(name) for name in ("case-sensitive", "use-snapshot-schema")]
        if any(flag not in (None, True, False) for flag in flags):
            raise InvalidOptionError(option="case-sensitive", reason="must be true or false.")
        return cls(number, document.get("filter"), flags[0] is not False, flags[1] is True)


class Plans:
    """Plans of the tables of one catalog. What a version's vectors are is kept for later plans."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._lock = threading.Lock()
        self._vectors: OrderedDict[str, dict[str, dict[str, Any]]] = OrderedDict()
        self._files: OrderedDict[tuple[str, str, int], VersionFiles] = OrderedDict()
        self._plans: OrderedDict[str, tuple[Snapshot, VersionFiles, Sequence[ScanTask]]]
        self._plans = OrderedDict()

    def plan(self, address: Address, request: Request) -> dict[str, Any]:
        """The first page of a plan, and tokens for the others.

        Raises:
            VersionNotFoundError, InvalidPredicateError, IcebergUnsupportedError
        """
        address, base_version, version = self._target(address, request.snapshot_id)
        snapshot, files, tasks = self._planned(address, base_version, version, request)
        answer = self._page(address, snapshot, files, tasks[:PAGE])
        tokens = [_token(snapshot, request, start) for start in range(PAGE, len(tasks), PAGE)]
        return {"status": "completed", "plan-tasks": tokens, **answer}

    def tasks(self, address: Address, token: Any) -> dict[str, Any]:
        """A later page of a plan.

        Raises:
            InvalidOptionError: the token is none of this server's.
        """
        request, start = _of_token(token)
        address, base_version, version = self._target(address, request.snapshot_id)
        snapshot, files, tasks = self._planned(address, base_version, version, request)
        return self._page(address, snapshot, files, tasks[start : start + PAGE])

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
    ) -> tuple[Snapshot, VersionFiles, Sequence[ScanTask]]:
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
        predicates = self._predicates(snapshot, request)
        with catalog.read() as reader:
            tasks = plan(reader, snapshot, predicates=predicates).tasks
        found = (snapshot, files, tasks)
        if len(tasks) > PAGE:
            with self._lock:
                _keep(self._plans, key, found, _PLANS)
        return found

    def _version(
        self, address: Address, snapshot: Snapshot, base_version: int | None
    ) -> VersionFiles:
        """What is written of a version. It checks that readers of Iceberg read it rightly."""
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

    def _predicates(self, snapshot: Snapshot, request: Request) -> PredicateSet | None:
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
            # Two columns with one dotted name: nobody knows which is meant.
            ids[name] = None if name in ids else field_id(field)

        def find(name: str) -> tuple[tuple[str, ...], pa.DataType] | None:
            identity = ids.get(name if request.case_sensitive else name.lower())
            return None if identity is None else paths.get(identity)

        return PredicateSet(condition(request.filter, find))

    # --- the answer

    def _page(
        self,
        address: Address,
        snapshot: Snapshot,
        files: VersionFiles,
        tasks: Sequence[ScanTask],
    ) -> dict[str, Any]:
        base = base_path(address)
        vectors = self._vectors_of(address, files) if files.has_vectors else {}
        types = [snapshot.schema.field(name).type for name in snapshot.partition_by]
        deletes: list[dict[str, Any]] = []
        found = []
        for task in tasks:
            if not task.file_row_count:
                continue
            partition = [
                json_value(partition_ordinal(text, type_), type_)
                for text, type_ in zip(task.partitions, types)
            ]
            common = {"spec-id": spec_id(snapshot), "partition": partition}
            path = base + task.path
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
            if task.deleted is not None:
                one["delete-file-references"] = [len(deletes)]
                deletes.append({**common, **vectors[path]})
            found.append(one)
        return {"file-scan-tasks": found, **({"delete-files": deletes} if deletes else {})}

    def _vectors_of(self, address: Address, files: VersionFiles) -> dict[str, dict[str, Any]]:
        """The deletion vectors of a version's data files, by path, from its manifests."""
        import fastavro

        storage = Storage(address.location)
        vectors: dict[str, dict[str, Any]] = {}
        for manifest in files.manifests:
            if not manifest.vectors:
                continue
            with self._lock:
                known = self._vectors.get(storage.uri + manifest.path)
            if known is None:
                with storage.open_input(manifest.path) as source:
                    entries: Any = fastavro.reader(io.BytesIO(source.read()))
                    known = dict(_vector(entry["data_file"]) for entry in entries)
                with self._lock:
                    _keep(self._vectors, storage.uri + manifest.path, known, 256)
            vectors |= known
        return vectors


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
        document = json.loads(base64.urlsafe_b64decode(token))
        start = document["start"]
        if type(start) is not int or start < 0:
            raise ValueError("start")
    except (binascii.Error, ValueError, TypeError, KeyError, RecursionError) as error:
        raise InvalidOptionError(
            option="plan-task", reason="is none that this server gave."
        ) from error
    return Request.of(document), start

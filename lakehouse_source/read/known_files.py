"""Verb. What plans have read and decoded of files, kept in this process for later plans.

The catalog's rows of a committed file are read once: they never change, except those that say in
which versions the file is live. After an erasure, which rewrites files, everything is read again.
File ids mean nothing outside one history of one dataset: another catalog has the same ids, and so
has a catalog that was deleted and made again, or one that was restored from a backup and then got
other commits. A `History` therefore knows its commits by their write ids, which are unique.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lakehouse_source.catalog.sql.reader import CatalogReader
from lakehouse_source.catalog.sql.records import Description
from lakehouse_source.catalog.sql.writer import CatalogTransaction
from lakehouse_source.model import ColumnBounds, FileRecord, RowGroupMetadata, ScanTask

# About as much memory as 20,000 files with ten row groups each take.
MOST_BYTES = 64 * 1024 * 1024
_MOST_HISTORIES = 64
_MOST_COMMITS = 64  # of one history

# Approximate sizes in memory.
_FILE_BYTES = 900
_ROW_GROUP_BYTES = 220
_BOUNDS_BYTES = 200


@dataclass(slots=True)
class KnownColumns:
    """Bounds of columns in the types of one schema version, by column id.

    `whole` is over a file, `groups` over each of its row groups. `task` reads all of them.
    """

    whole: dict[int, ColumnBounds] = field(default_factory=dict)
    groups: dict[int, tuple[ColumnBounds, ...]] = field(default_factory=dict)
    task: ScanTask | None = None


@dataclass(slots=True)
class KnownFile:
    """What is known of one file. `row_groups` have no statistics; None: they are not read yet."""

    record: FileRecord
    row_groups: tuple[RowGroupMetadata, ...] | None = None
    columns: dict[int, KnownColumns] = field(default_factory=dict)

    def in_schema(self, version: int) -> KnownColumns:
        """What is known of columns in the types of a schema version."""
        found = self.columns.get(version)
        if found is None:
            found = self.columns[version] = KnownColumns()
        return found

    @property
    def has_empty_row_groups(self) -> bool:
        """Tell whether a row group has no rows; only other writers make such row groups."""
        return 0 in [group.row_count for group in self.row_groups or ()]

    @property
    def size_bytes(self) -> int:
        """About how much memory this takes."""
        groups = len(self.row_groups or ())
        size = _FILE_BYTES + groups * _ROW_GROUP_BYTES
        for columns in self.columns.values():
            size += _BOUNDS_BYTES * (1 + len(columns.whole) + groups * len(columns.groups))
        return size


class History:
    """The commits of one dataset that this process has seen, by version."""

    __slots__ = ("write_ids",)

    def __init__(self, version: int, write_id: str) -> None:
        self.write_ids = {version: write_id}

    def saw(self, version: int, write_id: str) -> None:
        """Add a commit that comes after those that are known."""
        self.write_ids[version] = write_id
        while len(self.write_ids) > _MOST_COMMITS:
            del self.write_ids[min(self.write_ids)]


class KnownFiles:
    """Known files of all histories, within `most_bytes`. Those used least recently go first."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self.forget()

    def forget(self) -> None:
        """Forget everything, and use a new lock that no thread holds."""
        self._lock = threading.Lock()
        self._histories: OrderedDict[tuple[str, int, int], History] = OrderedDict()
        self._files: OrderedDict[tuple[History, int], tuple[KnownFile, int]] = OrderedDict()
        self.size_bytes = 0

    def history(self, reader: CatalogReader, found: Description) -> History | None:
        """The history of a dataset in a catalog; None: nothing of it may be kept.

        A transaction that writes sees rows of its own, which may never be committed.
        """
        if found.write_id is None or isinstance(reader, CatalogTransaction):
            return None
        erased = found.dataset.properties.erased_version
        key = (reader.redacted_url, found.dataset.id, erased)
        version, write_id = found.dataset.current_version, found.write_id
        with self._lock:
            known = self._histories.get(key)
            seen = {} if known is None else dict(known.write_ids)
        if known is None or seen.get(version) != write_id:
            last = max(seen, default=0)
            if known is None or reader.write_id_of(found.dataset.id, last) != seen[last]:
                known = History(version, write_id)
            with self._lock:
                known.saw(version, write_id)
                self._histories[key] = known
                self._histories.move_to_end(key)
                if len(self._histories) > _MOST_HISTORIES:
                    self._histories.popitem(last=False)
        return known

    def records(self, history: History, file_ids: Sequence[int]) -> Mapping[int, FileRecord]:
        """The records of those of the files that are known, by id."""
        with self._lock:
            keys = ((history, id) for id in file_ids)
            return {key[1]: self._files[key][0].record for key in keys if key in self._files}

    def of(self, history: History | None, records: Iterable[FileRecord]) -> list[KnownFile]:
        """What is known of files; for a new file, only its record."""
        if history is None:
            return [KnownFile(record) for record in records]
        result = []
        with self._lock:
            for record in records:
                key = (history, record.id)
                found = self._files.get(key)
                if found is None:
                    result.append(KnownFile(record))
                else:
                    self._files.move_to_end(key)
                    result.append(found[0])
        return result

    def keep(self, history: History | None, files: Iterable[KnownFile]) -> None:
        """Keep what was learned of files."""
        if history is None:
            return
        with self._lock:
            for file in files:
                key, size = (history, file.record.id), file.size_bytes
                before = self._files.pop(key, None)
                self._files[key] = (file, size)
                self.size_bytes += size - (0 if before is None else before[1])
            while self.size_bytes > self._most_bytes and self._files:
                _key, (_file, size) = self._files.popitem(last=False)
                self.size_bytes -= size


known_files = KnownFiles()
if hasattr(os, "register_at_fork"):
    # The lock may be held by a thread that does not exist in the child.
    os.register_at_fork(after_in_child=known_files.forget)

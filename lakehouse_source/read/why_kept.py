"""Verb. Why each row group of a version is kept or left out: by which part of a condition.

The catalog tells why planning leaves row groups out. What a bloom filter, a page index or a
deletion vector rules out is only in the remaining files: their footers are opened.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa

from lakehouse_source.catalog.sql.reader import CatalogReader
from lakehouse_source.language import BoundPredicate
from lakehouse_source.language.bounds.bound import BoundAnd, BoundColumn, render_bound
from lakehouse_source.language.nodes import render_name
from lakehouse_source.model import ColumnBounds, FileRecord, Ordinal, RowGroupMetadata, ScanTask
from lakehouse_source.parquet.prune import Skip, skips
from lakehouse_source.pictures.scale import value_text
from lakehouse_source.pruning.evaluate import evaluate
from lakehouse_source.read.plan import ScanPlan, kept_by_partition, partition_ids
from lakehouse_source.read.row_group_decisions import PARTITION, STATISTICS, Details
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.storage import Storage

_AT_ONCE = 1000
_OPEN_FILES = 16


def details(reader: CatalogReader, snapshot: Snapshot, found: ScanPlan, where: Any) -> Details:
    """Say why a scan's plan keeps or leaves out each row group. `where` has the scan's files.

    Raises:
        StorageError, CorruptDatasetError: a file that is left cannot be opened.
    """
    return Details.of(_Decisions(reader, snapshot, found, Storage(where)).portions())


def conjuncts_of(bound: BoundPredicate) -> list[BoundPredicate]:
    """The parts of a condition all of which must hold."""
    root = bound.root
    return [BoundPredicate(term) for term in (root.terms if isinstance(root, BoundAnd) else [root])]


class _Decisions:
    def __init__(
        self, reader: CatalogReader, snapshot: Snapshot, found: ScanPlan, storage: Storage
    ) -> None:
        self._reader, self._snapshot, self._storage = reader, snapshot, storage
        self._spec = found.spec
        self._tasks = {task.path: task for task in found.tasks}
        bound = found.spec.predicate
        self._parts = [] if bound is None else conjuncts_of(bound)
        self._whole = "TRUE" if bound is None else render_bound(bound.root)
        self._texts = [render_bound(one.root) for one in self._parts]
        self._leaves = [_leaves(one) for one in self._parts]
        own = partition_ids(snapshot)
        self._of_partitions = [all(leaf.id in own for leaf in leaves) for leaves in self._leaves]
        self._in_partitions = None if bound is None else kept_by_partition(reader, snapshot, bound)

    def portions(self) -> Iterator[list[dict[str, Any]]]:
        """The rows of the table, for some files at a time."""
        snapshot = self._snapshot
        for some in self._reader.iter_files(snapshot.dataset.id, snapshot.version, None, _AT_ONCE):
            groups = self._reader.row_groups([file.id for file in some])
            opened = self._opened([file.path for file in some])
            yield [row for file in some for row in self._of_file(file, groups[file.id], opened)]

    def _opened(self, paths: Sequence[str]) -> dict[str, dict[int, Skip]]:
        """What readers skip in files that they do not simply read whole, by path and row group."""
        tasks = [self._tasks[path] for path in paths if path in self._tasks]
        tasks = [task for task in tasks if task.filtered or task.deleted is not None]

        def of(task: ScanTask) -> dict[int, Skip]:
            made = skips(self._spec, task, self._storage, self._parts)
            return {one.row_group: one for one in made}

        with ThreadPoolExecutor(_OPEN_FILES) as pool:  # remotely, a file costs some round trips
            return dict(zip((task.path for task in tasks), pool.map(of, tasks)))

    def _of_file(
        self,
        file: FileRecord,
        groups: Sequence[RowGroupMetadata],
        opened: dict[str, dict[int, Skip]],
    ) -> Iterator[dict[str, Any]]:
        task = self._tasks.get(file.path)
        left = opened.get(file.path, {})
        planned = () if task is None else task.row_groups or ()
        for group in groups:
            known = _Known(self._snapshot, file, group)
            skip = left.get(group.index)
            if group.index not in planned:
                row = self._pruned(file, known)
            elif skip is not None and skip.by is not None:
                row = self._part(skip.by, skip.conjunct, known)
            else:
                row = self._kept(known, group.row_count if skip is None else skip.rows)
            yield {
                "file_path": file.path,
                "row_group": group.index,
                "row_count": group.row_count,
                "size_bytes": group.compressed_byte_size,
                "is_kept": False,
                "rows_left": 0,
                **row,
            }

    def _pruned(self, file: FileRecord, known: _Known) -> dict[str, Any]:
        by_partition = self._in_partitions is not None and file.id not in self._in_partitions
        numbers = sorted(range(len(self._parts)), key=lambda n: not self._of_partitions[n])
        ruling = (n for n in numbers if not evaluate(self._parts[n], known).may_match)
        return self._part(PARTITION if by_partition else STATISTICS, next(ruling, None), known)

    def _part(self, by: str, number: int | None, known: _Known) -> dict[str, Any]:
        """What the condition's part with this number decided.

        None: only the whole condition decides.
        """
        if by == "deletion vector":
            return {"decided_by": by, "condition": None, "bounds": []}
        leaves: Iterable[BoundColumn] = (
            [leaf for some in self._leaves for leaf in some]
            if number is None
            else self._leaves[number]
        )
        text = self._whole if number is None else self._texts[number]
        return {"decided_by": by, "condition": text, "bounds": known.texts(leaves)}

    def _kept(self, known: _Known, rows: int) -> dict[str, Any]:
        open_ = [n for n, one in enumerate(self._parts) if not evaluate(one, known).always]
        certain = bool(self._parts) and not open_
        leaves = [
            leaf for n, some in enumerate(self._leaves) if certain or n in open_ for leaf in some
        ]
        return {
            "is_kept": True,
            "decided_by": STATISTICS if certain else None,
            "condition": " AND ".join(self._texts[n] for n in open_) or None,
            "bounds": known.texts(leaves),
            "rows_left": rows,
        }


def _leaves(part: BoundPredicate) -> list[BoundColumn]:
    """The columns, each once, of a part of a condition, if statistics of them may be known."""
    return list({leaf.id: leaf for leaf in part.leaves if leaf.kind != "nested"}.values())


class _Known:
    """The bounds of columns over a row group, by id."""

    def __init__(self, snapshot: Snapshot, file: FileRecord, group: RowGroupMetadata) -> None:
        self._look_up = snapshot.statistics().of(file, group)
        self._seen: dict[int, ColumnBounds] = {}

    def __call__(self, column_id: int) -> ColumnBounds:
        if column_id not in self._seen:
            self._seen[column_id] = self._look_up(column_id)
        return self._seen[column_id]

    def texts(self, leaves: Iterable[BoundColumn]) -> list[tuple[str, dict[str, Any]]]:
        """The bounds of columns as texts, None where they are not known."""
        found = {}
        for leaf in leaves:
            one = self(leaf.id)
            found[render_name(leaf.path)] = {
                "lower": _text(one.lower, leaf.type),
                "upper": _text(one.upper, leaf.type),
                "null_count": one.null_count,
                "may_contain_nan": one.may_contain_nan,
            }
        return list(found.items())


def _text(ordinal: Ordinal | None, type_: pa.DataType) -> str | None:
    return None if ordinal is None else value_text(ordinal, type_)

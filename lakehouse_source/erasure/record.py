"""Verb. One transaction: the catalog names the new files, and every version keeps its number.

Rows of `files` keep their ids, which streams use as positions, and their versions and identities.
The counts of each version are corrected. Each dataset that loses rows gets a commit. Writers that
began before this commit conflict with it: they have read erased rows, or positions that have moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import uuid6

from lakehouse_source.catalog import CatalogTransaction
from lakehouse_source.deletion.vector import Positions
from lakehouse_source.erasure.family import Identity, Member, Named
from lakehouse_source.erasure.find_rows import Matches
from lakehouse_source.erasure.rewritten import Vectors
from lakehouse_source.erasure.texts import without_texts
from lakehouse_source.failpoints import reach
from lakehouse_source.model import FileBounds, FileMetadata, VectorRecord
from lakehouse_source.parquet.names import own_name
from lakehouse_source.pruning import keys
from lakehouse_source.write.commit.evolution import encoded_anew
from lakehouse_source.write.commit.prerecord import compute_index_rows

OPERATION = "erase"


@dataclass(frozen=True, slots=True)
class Erased:
    """What is erased from the files of a family, and what replaces them.

    `files` has the new file of each file; None: no row is left. `vectors` are by dataset, and
    `puffins` has the sizes of their Puffin files, by path.
    """

    found: Mapping[Identity, Matches]
    files: Mapping[Identity, FileMetadata | None]
    vectors: Mapping[int, list[tuple[VectorRecord, int | None]]]
    puffins: Mapping[str, int]

    def of(self, member: Member) -> list[Named]:
        """The rows of `files` of a dataset that change."""
        return [one for one in member.files if Identity.of(one.file) in self.found]

    def rows(self, member: Member) -> Positions:
        """The identities of the rows of a dataset that are erased."""
        ids = Positions()
        for identity in {Identity.of(one.file) for one in self.of(member)}:
            ids |= self.found[identity].row_ids
        return ids


def record(
    tx: CatalogTransaction,
    members: list[Member],
    erased: Erased,
    vectors: Vectors,
    write_id: str,
    metadata: Mapping[str, Any],
) -> dict[int, int]:
    """Record an erasure; returns the new versions by dataset. The datasets are locked."""
    versions: dict[int, int] = {}
    known: set[int] = set()
    root = members[0].record.id
    old = dict(erased.puffins)
    for member in members:
        changing = erased.of(member)
        if not changing:
            continue
        dataset = member.record
        _correct_counts(tx, member, changing, erased, vectors)
        _replace(tx, member, changing, erased)
        tx.replace_vectors(dataset.id, erased.puffins, erased.vectors.get(dataset.id, ()))
        version = dataset.current_version + 1
        properties = replace(dataset.properties, erased_version=version)
        tx.set_properties(dataset.id, properties)
        last = tx.transaction(dataset.id, dataset.current_version)
        live = {} if last is None else last.summary
        counts = {name: count for name, count in live.items() if name.startswith("live_")}
        nothing = ("files_added", "files_removed", "rows_added", "rows_removed", "data_change")
        tx.insert_transaction(
            dataset.id,
            version,
            OPERATION,
            metadata,
            {
                **dict.fromkeys(nothing, 0),
                "rows_erased": len(erased.rows(member)),
                "files_rewritten": len({Identity.of(one.file) for one in changing}),
                **counts,
            },
            # Each commit has an id of its own. The files belong to the first commit.
            str(uuid6.uuid7()) if versions else write_id,
        )
        reach("transaction written")
        versions[dataset.id] = version
        known.update(one.file.id for one in changing)
        old |= {
            one.file.path: one.file.size_bytes
            for one in changing
            if own_name(one.file.path) is not None
        }
    tx.expire_paths(root, old)
    reach("files removed")
    return versions


def erase_texts(tx: CatalogTransaction, dataset_ids: Iterable[int], texts: list[str]) -> int:
    """Replace texts in the notes of commits; returns the number of changed commits."""
    count = 0
    for dataset_id in dataset_ids if texts else ():
        for commit in tx.transactions(dataset_id):
            metadata = without_texts(dict(commit.metadata), texts)
            if metadata != commit.metadata:
                tx.correct_metadata(dataset_id, commit.version, metadata)
                count += 1
    return count


def _replace(tx: CatalogTransaction, member: Member, changing: list[Named], erased: Erased) -> None:
    gone = [one.file.id for one in changing if erased.files[Identity.of(one.file)] is None]
    tx.forget_files(gone)
    by_schema: dict[int, dict[int, FileMetadata]] = {}
    for one in changing:
        new = erased.files[Identity.of(one.file)]
        if new is not None:
            by_schema.setdefault(one.file.schema_version, {})[one.file.id] = new
    # Searches with keys of several encodings must find index rows of such columns.
    unsearchable = set(encoded_anew(member.schemas.values()))
    indexed = frozenset(member.record.properties.indexed_columns)
    for version, files in by_schema.items():
        some = next(iter(files.values()))
        rows = compute_index_rows(
            list(files.values()), member.schemas[version], indexed, tuple(some.partitions)
        )
        bounds = [
            (file_id, _unbounded(row) if row.column_id in unsearchable else row)
            for file_id, file in files.items()
            for row in rows[file.path]
        ]
        tx.replace_files(member.record.id, files, bounds)


def _unbounded(row: FileBounds) -> FileBounds:
    return replace(row, lower=keys.UNBOUNDED_LOWER, upper=keys.UNBOUNDED_UPPER)


def _correct_counts(
    tx: CatalogTransaction,
    member: Member,
    changing: list[Named],
    erased: Erased,
    vectors: Vectors,
) -> None:
    """Correct what is counted as live in each readable version."""
    dataset = member.record
    groups = tx.row_groups([one.file.id for one in changing], statistics=False)
    # By version, the changes of live files, rows, row groups and bytes that begin there.
    begins: dict[int, list[int]] = {}

    def count(first: int, after: int | None, *changes: int) -> None:
        for version, sign in ((first, 1), (after, -1)):
            if version is not None:
                sums = begins.setdefault(version, [0, 0, 0, 0])
                sums[:] = (before + sign * change for before, change in zip(sums, changes))

    intervals = {one.file.id: one for one in changing}
    for one in changing:
        file, identity = one.file, Identity.of(one.file)
        new = erased.files[identity]
        count(
            file.version,
            one.removed,
            -1 if new is None else 0,
            -len(erased.found[identity].positions),
            (0 if new is None else len(new.row_groups)) - len(groups[file.id]),
            (0 if new is None else new.file_size_bytes) - file.size_bytes,
        )
    for found, removed in member.vectors:
        if found.file_id not in intervals:
            continue
        one = intervals[found.file_id]
        marked = vectors.before(one.file, found.vector)
        both = len(marked & erased.found[Identity.of(one.file)].positions)
        ends = [end for end in (removed, one.removed) if end is not None]
        count(found.version, min(ends, default=None), 0, both, 0, 0)
    totals = [0, 0, 0, 0]
    upcoming = sorted(begins)
    for commit in tx.transactions_since(dataset.id, 0):
        while upcoming and upcoming[0] <= commit.version:
            totals = [sum(pair) for pair in zip(totals, begins[upcoming.pop(0)])]
        is_old = commit.version < dataset.oldest_version
        if any(totals) and not (is_old and commit.version not in member.tagged):
            names = ("live_files", "live_rows", "live_row_groups", "live_bytes")
            if "live_rows" in commit.summary:
                corrected = {
                    name: commit.summary.get(name, 0) + change
                    for name, change in zip(names, totals)
                }
                tx.correct_summary(dataset.id, commit.version, {**commit.summary, **corrected})

"""Verb. Files without the erased rows, and the transaction by which the catalog names them."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import uuid6

from lakehouse_source.catalog import CatalogTransaction
from lakehouse_source.deletion import Positions, encode
from lakehouse_source.erasure.find_rows import Identity, Matches, Member, Named
from lakehouse_source.errors import InvalidExpressionError, InvalidPredicateError
from lakehouse_source.failpoints import reach
from lakehouse_source.language import Expression, PredicateSet
from lakehouse_source.language.nodes import Call, Literal, Node, Value, below
from lakehouse_source.model import (
    DeletionVector,
    FileBounds,
    FileMetadata,
    FileRecord,
    ScanTask,
    VectorRecord,
)
from lakehouse_source.parquet.names import own_name
from lakehouse_source.parquet.new_file import NewFile
from lakehouse_source.parquet.open_file import deleted_rows
from lakehouse_source.parquet.read_write_specs import ReadSpec, WriteSpec
from lakehouse_source.parquet.reader import read_task
from lakehouse_source.properties import Layout
from lakehouse_source.pruning import keys
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.storage import Storage
from lakehouse_source.write.add_files import folder_of_copy
from lakehouse_source.write.commit.evolution import encoded_anew
from lakehouse_source.write.commit.options import in_schema
from lakehouse_source.write.commit.prerecord import compute_index_rows
from lakehouse_source.write.commit.row_changes import write_vectors

# --- Texts in a condition, which notes of commits and defaults may repeat.


ERASED = "[erased]"


def texts_of(where: Any) -> list[str]:
    """The texts among the literals of a condition, the longest first. Numbers are too common."""
    found = {one for one in _values(where) if isinstance(one, str)}
    return sorted((one for one in found if one), key=len, reverse=True)


def numbers_of(where: Any) -> set[int | float | Decimal]:
    """The numbers among the literals of a condition, which notes of commits may repeat."""
    found = (one for one in _values(where) if isinstance(one, int | float | Decimal))
    return {one for one in found if not isinstance(one, bool)}


def repeats(value: Any, numbers: set[int | float | Decimal]) -> bool:
    """Tell whether a JSON value has one of the numbers, as a number or as a word of a text."""
    if isinstance(value, str):
        return not {str(one) for one in numbers}.isdisjoint(re.findall(r"[\w.+-]+", value))
    if isinstance(value, Mapping):
        return any(repeats(one, numbers) for pair in value.items() for one in pair)
    if isinstance(value, list):
        return any(repeats(one, numbers) for one in value)
    return isinstance(value, int | float) and not isinstance(value, bool) and value in numbers


def _values(where: Any) -> list[Any]:
    try:
        return list(_literals(PredicateSet.of(where).root))
    except InvalidPredicateError:
        try:
            return list(_literals(Expression.parse(where).root))
        except InvalidExpressionError:
            return []


def without_texts(value: Any, texts: list[str]) -> Any:
    """A JSON value in which a word replaces each of the texts."""
    if isinstance(value, str):
        for one in texts:
            value = value.replace(one, ERASED)
        return value
    if isinstance(value, Mapping):
        return {without_texts(key, texts): without_texts(one, texts) for key, one in value.items()}
    if isinstance(value, list):
        return [without_texts(one, texts) for one in value]
    return value


def _literals(node: Node) -> Iterator[Any]:
    if isinstance(node, Literal | Value):
        yield from node.value if isinstance(node.value, tuple) else (node.value,)
    if isinstance(node, Call) and node.name == "like":
        for text in _literals(node.arguments[1]):
            if isinstance(text, str):
                yield from text.replace("_", "%").split("%")
    for part in below(node):
        yield from _literals(part)


# --- A stored file without some of its rows, and the vectors of the rows that stay.
#
# The other rows keep their order: a row at position `p` moves to `p` minus the number of erased
# rows before it. The hidden columns of the new file keep the rows' identities and versions.


# More rows than a row group can have: each row group stays one.
_ANY_NUMBER = 1 << 30


def write_others(
    spec: WriteSpec, snapshot: Snapshot, file: FileRecord, matches: Matches, storage: Storage
) -> FileMetadata | None:
    """Write the remaining rows of a file to a new file; None: no row remains.

    `snapshot` is of a dataset that has the file. The new file gets the same columns.
    """
    erased = matches.positions
    if len(erased) == file.row_count:
        return None
    schema = snapshot.file_schemas[file.schema_version]
    partitions = file.partitions
    spec = replace(
        spec,
        schema=schema,
        partition_by=tuple(partitions),
        row_group_rows=_ANY_NUMBER,
        sort_by=(),
        cluster_by=(),
        bloom_filter_columns=_named_in(schema, spec, partitions),
        must_match=None,
        moved_rows=True,
    )
    read = ReadSpec(
        uri=spec.uri,
        schema=spec.row_schema,
        columns=tuple(spec.file_schema.names),
        partition_by=(),
        file_schemas=snapshot.file_schemas,
    )
    blob = encode(erased)
    task = ScanTask.whole(file, (), DeletionVector("", 0, 0, len(blob), len(erased), blob))
    folder = folder_of_copy(file, schema)
    name = f"{spec.write_id}-{uuid6.uuid7()}.parquet"
    path = f"{folder}/{name}" if folder else name
    new: NewFile | None = None
    try:
        for table in read_task(read, task, storage):
            rows = pa.Table.from_arrays(table.columns, schema=spec.file_schema)
            if new is None:
                new = NewFile(spec, storage, path, spec.file_schema, rows)
            new.write(rows)
            reach("rows to keep written")
    except BaseException:
        if new is not None:
            new.abandon()
        raise
    assert new is not None  # a row stays, and the reader checks the counts of the file
    written = new.close(partitions)
    storage.sync_folders([path])
    return written


def _named_in(
    schema: pa.Schema, spec: WriteSpec, partitions: Mapping[str, str | None]
) -> tuple[str, ...]:
    """The columns with bloom filters, by their names in the schema of a file."""
    layout = Layout(bloom_filter_columns=spec.bloom_filter_columns)
    names = in_schema(layout, spec.schema, schema).bloom_filter_columns or ()
    return tuple(name for name in names if name not in partitions)


class Vectors:
    """The vectors of a family that an erasure changes, because files or positions change.

    A Puffin file names data files, and a folder's name can contain an erased value. So if a Puffin
    file has a vector of a rewritten file, all its vectors move to a new Puffin file.
    """

    def __init__(self, members: Iterable[Member], storage: Storage) -> None:
        self._members = list(members)
        self._storage = storage
        self._read: dict[tuple[str, int], Positions] = {}

    def before(self, file: FileRecord, vector: DeletionVector) -> Positions:
        """The positions that a vector marks now."""
        key = (vector.path, vector.offset)
        if key not in self._read:
            self._read[key] = deleted_rows(vector, file.path, file.row_count, self._storage)
        return self._read[key]

    def touched(self, found: Mapping[Identity, Matches]) -> dict[str, int]:
        """The sizes, by path, of the Puffin files that no version names any more."""
        paths: dict[str, int] = {}
        for member in self._members:
            rewritten = {one.file.id for one in member.files if Identity.of(one.file) in found}
            for record, _ in member.vectors:
                if record.file_id in rewritten:
                    paths[record.vector.path] = record.vector.size_bytes
        return paths

    def moved(
        self,
        found: Mapping[Identity, Matches],
        files: Mapping[Identity, FileMetadata | None],
        write_id: str,
    ) -> dict[int, list[tuple[VectorRecord, int | None]]]:
        """Rewrite the vectors of touched Puffin files; returns their catalog rows by dataset."""
        touched = self.touched(found)
        new: dict[int, tuple[FileRecord, Positions]] = {}
        number: dict[tuple[str, int, Identity], int] = {}
        rows: list[tuple[int, VectorRecord, int | None, int]] = []
        for member in self._members:
            by_id = {one.file.id: one.file for one in member.files}
            for record, removed in member.vectors:
                if record.vector.path not in touched or record.file_id not in by_id:
                    continue
                file = by_id[record.file_id]
                identity = Identity.of(file)
                positions = self.before(file, record.vector)
                if identity in found:
                    written = files[identity]
                    positions = without(positions, found[identity].positions)
                    if written is None or not positions:
                        continue
                    file = replace(file, path=written.path)
                key = (record.vector.path, record.vector.offset, identity)
                if key not in number:
                    number[key] = len(number)
                    new[number[key]] = (file, positions)
                rows.append((member.record.id, record, removed, number[key]))
        written_vectors = write_vectors(new, write_id, self._storage)
        result: dict[int, list[tuple[VectorRecord, int | None]]] = {}
        for dataset_id, record, removed, place in rows:
            vector = replace(record, vector=written_vectors[place])
            result.setdefault(dataset_id, []).append((vector, removed))
        return result


def without(positions: Positions, erased: Positions) -> Positions:
    """Positions in a file after the removal of the erased rows."""
    gone = list(erased)
    return Positions(one - bisect_left(gone, one) for one in positions - erased)


# --- One transaction: the catalog names the new files, and every version keeps its number.
#
# Rows of `files` keep their ids, which streams use as positions, and their versions and identities.
# The counts of each version are corrected. Each dataset that loses rows gets a commit. Writers that
# began before this commit conflict with it: they have read erased rows, or positions that have
# moved.


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
            list(files.values()),
            member.schemas[version],
            indexed,
            tuple(some.partitions),
            others=member.schemas.values(),
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

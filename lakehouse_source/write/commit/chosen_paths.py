"""Verb. Paths of VARIANT that files chose for themselves become paths of their dataset in a commit.

Each file chooses for columns without paths, from its own first rows: tasks of Spark know nothing of
each other, and a stream of rows is not read twice. It has its statistics under ids of its own. The
commit takes the paths that most rows of its files have, under the lock, and gives them ids: so what
another commit did first decides, and no append conflicts over paths. Once a column has paths, all
later files follow them, as if they had been named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from lakehouse_source.catalog.base import CatalogTransaction
from lakehouse_source.model import DatasetRecord, FileBounds, FileMetadata, FileRecord
from lakehouse_source.properties import DatasetProperties
from lakehouse_source.pruning import bounds, keys
from lakehouse_source.schema.fields import Leaf, field_id, leaves, leaves_of_file, max_id
from lakehouse_source.schema.variant import is_variant
from lakehouse_source.schema.variant_paths import (
    KINDS,
    Path,
    collide,
    paths_of,
    texts_of,
    with_paths,
    without_paths,
)

# How many files' row groups are in memory while index rows are computed.
_AT_ONCE = 1000
# In a dataset of more live files no path is chosen: each path has index rows of all files.
_MOST_FILES = 1000


def with_chosen_paths(
    tx: CatalogTransaction,
    record: DatasetRecord,
    schema: pa.Schema,
    files: Sequence[FileMetadata],
    most: int,
) -> pa.Schema:
    """The schema with the paths that new files chose; the same one if there are none."""
    texts = list[str]()
    for field in without_paths(schema):
        counts = Counter[Path]()
        for file in files:
            own = next((one for one in file.schema if field_id(one) == field_id(field)), None)
            for path in () if own is None else paths_of(own):
                counts[path] += file.row_count
        texts += [f"{field.name}:{'.'.join(path)}" for path in _apart(counts, most)]
    if not texts or _live_files(tx, record) > _MOST_FILES:
        return schema
    first = max(record.properties.last_field_id, max_id(schema)) + 1
    found = with_paths(schema, [*texts_of(schema), *texts], first)
    return schema if found.equals(schema, check_metadata=True) else found


def _apart(counts: Counter[Path], most: int) -> list[Path]:
    """The paths of most rows, of which none leads into another or differs by case only."""
    found: list[Path] = []
    for path, _ in sorted(counts.items(), key=lambda one: (-one[1], one[0])):
        if not any(collide(one, path) for one in found):
            found.append(path)
    return sorted(found[:most])


def _live_files(tx: CatalogTransaction, record: DatasetRecord) -> int:
    last = tx.transaction(record.id, record.current_version) if record.current_version else None
    return 0 if last is None else last.summary.get("live_files", 0)


def with_ids_of(files: Sequence[FileMetadata], schema: pa.Schema) -> Sequence[FileMetadata]:
    """Files with the statistics of paths under the ids that they have in a schema.

    Statistics of other paths are left out: another commit may have given their ids to others.
    Returns `files` itself where nothing changes.
    """
    now = {field_id(field): paths_of(field) for field in schema if is_variant(field.type)}
    if not now:
        return files
    found = []
    for file in files:
        ids: dict[int, int | None] = {}
        for field in file.schema:
            theirs = now.get(field_id(field), {})
            for path, first in paths_of(field).items():
                to = theirs.get(path)
                if to != first:
                    ids |= {first + n: None if to is None else to + n for n in range(len(KINDS))}
        groups = (bounds.renumbered(group, ids) for group in file.row_groups)
        found.append(replace(file, row_groups=tuple(groups)) if ids else file)
    return files if all(one is other for one, other in zip(found, files)) else found


# --- the search index ------------------------------------------------------------------


def rebuild_index(
    tx: CatalogTransaction, record: DatasetRecord, schema: pa.Schema, properties: DatasetProperties
) -> None:
    """Make index rows for columns that join the index, and delete those of columns that leave.

    The rows are those of the files that the dataset has; `schema` is the one in force.
    """
    before, after = set(record.properties.indexed_columns), set(properties.indexed_columns)
    # A column that joins may have old index rows, if it left the index when its type had no keys.
    tx.delete_bounds(record.id, sorted(before ^ after))
    added = [leaf for leaf in leaves(schema) if leaf.id in after - before]
    # Partition columns are in the index from the beginning, or there is no file yet.
    added = [leaf for leaf in added if leaf.path[0] not in properties.partition_by]
    files = tx.files_added_since(record.id, 0) if added else []
    schemas = tx.schemas(record.id)
    since = {leaf.id: _same_keys_since(leaf, schemas) for leaf in added}
    for start in range(0, len(files), _AT_ONCE):
        some = files[start : start + _AT_ONCE]
        rows = list(_index_rows(tx, some, added, schemas, since))
        tx.insert_bounds(record.id, rows)


def _index_rows(
    tx: CatalogTransaction,
    files: Sequence[FileRecord],
    added: Sequence[Leaf],
    schemas: Mapping[int, pa.Schema],
    since: Mapping[int, int],
) -> Iterator[tuple[int, FileBounds]]:
    """The index rows of files for the columns that join the index, from their statistics."""
    types = {leaf.id: leaf.type for leaf in added}
    written = {
        version: [leaf for leaf in leaves_of_file(schemas[version], added) if leaf.id in types]
        for version in {file.schema_version for file in files}
    }
    groups = tx.row_groups([file.id for file in files])
    for file in files:
        counted = sum(group.row_count for group in groups[file.id]) == file.row_count
        columns = written[file.schema_version]
        for row in bounds.file_bounds(groups[file.id], columns, types):
            if not counted or file.version < since[row.column_id]:
                row = replace(row, lower=keys.UNBOUNDED_LOWER, upper=keys.UNBOUNDED_UPPER)
            yield file.id, row


def _same_keys_since(leaf: Leaf, schemas: Mapping[int, pa.Schema]) -> int:
    """The version since which a column's keys have the encoding that they have now.

    When an old version is read, files of earlier versions are searched with keys of another
    encoding too, so every search must find these files.
    """
    wanted = keys.encoding(leaf.type)
    differing = [
        version
        for version, schema in schemas.items()
        for one in leaves(schema)
        if one.id == leaf.id and keys.encoding(one.type) != wanted
    ]
    last = max(differing, default=0)
    return min(version for version in schemas if version > last)

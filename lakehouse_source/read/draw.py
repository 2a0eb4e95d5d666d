"""Verb. What a picture of a version's files shows, from the catalog alone."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from uuid import uuid4

import pyarrow as pa

from lakehouse_source.arguments import path_text
from lakehouse_source.catalog.sql.reader import CatalogReader
from lakehouse_source.errors import StorageError
from lakehouse_source.language import BoundPredicate
from lakehouse_source.model import Ordinal
from lakehouse_source.pictures.page import Group
from lakehouse_source.pictures.ranges import MOST_EACH, Column, Files
from lakehouse_source.pruning.keys import (
    UNBOUNDED_LOWER,
    UNBOUNDED_UPPER,
    SearchRanges,
    ordinal_of_key,
)
from lakehouse_source.pruning.search import search
from lakehouse_source.read.file_arrays import LiveFiles, ranges
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.schema.fields import Leaf
from lakehouse_source.schema.ordinal import Domain, domain


def files_of(
    reader: CatalogReader,
    snapshot: Snapshot,
    files: LiveFiles,
    groups: Sequence[Group],
    group_of: Mapping[int, int],
    other: int,
) -> Files:
    """The files of a picture. `group_of` has groups of files by id.

    All other files are in `other`.
    """
    ids = files.ids.to_pylist()
    names = None
    if len(ids) <= MOST_EACH:
        paths = {one.id: one.path for one in reader.files(snapshot.dataset.id, snapshot.version)}
        names = [paths[id] for id in ids]
    return Files(groups, [group_of.get(id, other) for id in ids], names)


def column_of(
    reader: CatalogReader,
    snapshot: Snapshot,
    files: LiveFiles,
    leaf: Leaf,
    bound: BoundPredicate | None = None,
) -> Column:
    """A column's ranges in the files, by the search index, and those that a condition asks for."""
    found = ranges(reader, snapshot, files, leaf.id)
    kind = domain(leaf.type)
    return Column(
        ".".join(leaf.path),
        leaf.type,
        found.files.to_pylist(),
        _ordinals(found.lower, kind),
        _ordinals(found.upper, kind),
        () if bound is None else _condition_ranges(bound, leaf),
    )


def _ordinals(keys: pa.Array, kind: Domain) -> list[Ordinal | None]:
    return [_ordinal(key, kind) for key in keys.to_pylist()]


def _ordinal(key: bytes | None, kind: Domain) -> Ordinal | None:
    if key is None or key in (UNBOUNDED_LOWER, UNBOUNDED_UPPER):
        return None
    return ordinal_of_key(key, kind)


def _condition_ranges(
    bound: BoundPredicate, leaf: Leaf
) -> list[tuple[Ordinal | None, Ordinal | None]]:
    """The ranges of a column that hold all rows of a condition; nothing where that is unknown."""
    found = None if bound.always_true or bound.never_true else search(bound, {leaf.id})
    if not isinstance(found, SearchRanges):
        return []
    kind = domain(leaf.type)
    both = [(_ordinal(one.lower, kind), _ordinal(one.upper, kind)) for one in found.ranges]
    return [one for one in both if one != (None, None)]


def write_page(text: str, path: str | os.PathLike[str]) -> None:
    """Write a page to a file; an existing file is replaced, and a pipe or a device written to."""
    to = path_text("path", path)
    real = os.path.realpath(to)
    part = f"{real}.{uuid4().hex}.part"
    try:
        if os.path.exists(to) and not os.path.isfile(to):
            with open(to, "w", encoding="utf-8") as sink:
                sink.write(text)
            return
        with open(part, "x", encoding="utf-8") as sink:
            sink.write(text)
        os.replace(part, real)
    except OSError as exc:
        with suppress(OSError):
            os.remove(part)
        raise StorageError(path=to, reason=f"cannot be written: {exc.strerror or exc}") from exc

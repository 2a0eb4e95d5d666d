"""Pure. Paths of VARIANT that files have as columns, and that the search index covers.

A path stands in the metadata of its column, with the first of the ids that it has: one for each
type in which a file may have its values. A file whose values have one type, as a column of its own,
has bounds for that id and no value for the others. Of another file nothing is known.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from lakehouse_source.schema.variant import METADATA, TYPED_VALUE, VALUE, is_variant

# How a path is written in the properties: `payload:user.id`.
Path: TypeAlias = "tuple[str, ...]"
PATHS = b"plake:variant_paths"
# The types, by their names in conditions. A decimal has the type that holds those of all files.
KINDS: Mapping[str, pa.DataType] = {
    "BIGINT": pa.int64(),
    "DECIMAL": pa.decimal128(38, 18),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "BOOLEAN": pa.bool_(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
    "TIMESTAMP_NTZ": pa.timestamp("us"),
}
MOST_PATHS = 64  # of a column
# Paths that a file has chosen have ids from here on, until the commit gives them ids.
CHOSEN_IDS = 1 << 40


@dataclass(frozen=True, slots=True)
class Choice:
    """Which paths of a column of VARIANT a file chooses from a sample of its first rows.

    At most `most` paths of up to `depth` names, which at least a share of the rows has, all of them
    in one type. Each path takes eight rows per file of the search index. A file of fewer rows than
    `FEWEST_ROWS` chooses none, because a path stays once it is chosen.
    """

    most: int = 16
    share: float = 0.2
    depth: int = 4


FEWEST_ROWS = 1000


def kind_of(type_: pa.DataType) -> str | None:
    """The name of the type in which a leaf of a file is indexed."""
    if pa.types.is_decimal(type_):
        return "DECIMAL"
    return next((kind for kind, one in KINDS.items() if one == type_), None)


def paths_of(field: pa.Field) -> dict[Path, int]:
    """The paths of a column, each with its first id."""
    if not is_variant(field.type):
        return {}
    text = (field.metadata or {}).get(PATHS)
    return {} if text is None else {tuple(path): id for path, id in json.loads(text)}


def last_id(field: pa.Field) -> int:
    """The highest id of a path of a column; 0 where it has none."""
    return max(paths_of(field).values(), default=1 - len(KINDS)) + len(KINDS) - 1


def split(text: str) -> tuple[str, Path] | None:
    """The column and the path of `payload:user.id`; None: the text is something else."""
    column, colon, path = text.partition(":")
    names = tuple(path.split("."))
    return (column, names) if colon and all(map(can_be_named, names)) else None


def without_paths(schema: pa.Schema) -> list[pa.Field]:
    """The columns of VARIANT for which no path was chosen."""
    return [field for field in schema if is_variant(field.type) and not paths_of(field)]


def can_be_named(name: str) -> bool:
    """Tell whether a path can have a name in it."""
    return bool(name) and name.isprintable() and not set(name) & set(".[]'\"` :")


def collide(one: Path, other: Path) -> bool:
    """Tell whether files cannot have two paths: one leads into the other, or is spelled alike.

    DuckDB gives another name to a field whose name differs by case only.
    """
    apart = next(((a, b) for a, b in zip(one, other) if a != b), None)
    return apart is None or apart[0].lower() == apart[1].lower()


def texts_of(schema: pa.Schema) -> list[str]:
    """All paths of the columns of a schema."""
    return [f"{field.name}:{'.'.join(path)}" for field in schema for path in paths_of(field)]


def with_paths(schema: pa.Schema, texts: Sequence[str], next_id: int) -> pa.Schema:
    """The schema whose columns of VARIANT have these paths; those that stay keep their ids."""
    wanted: dict[str, list[Path]] = {}
    for text in texts:
        found = split(text)
        if found is not None:
            wanted.setdefault(found[0], []).append(found[1])
    fields = []
    for field in schema:
        if is_variant(field.type):
            old, document = paths_of(field), []
            for path in wanted.get(field.name, ()):
                id = old.get(path, next_id)
                next_id += len(KINDS) * (id == next_id)
                document.append([path, id])
            kept = {k: v for k, v in (field.metadata or {}).items() if k != PATHS}
            if document:
                kept[PATHS] = json.dumps(document).encode()
            field = field.with_metadata(kept)
        fields.append(field)
    return pa.schema(fields, schema.metadata)


def places(stored: pa.DataType) -> Iterator[tuple[Path, int, int, pa.DataType]]:
    """The leaves of a shredded column as a file has it: path, places of both parts, type.

    Places count leaf columns from the first of the column.
    """
    at = 0

    def walk(group: pa.DataType, path: Path) -> Iterator[tuple[Path, int, int, pa.DataType]]:
        nonlocal at
        value = typed = None
        for field in group:
            if field.name == VALUE:
                value, at = at, at + 1
            elif field.name != TYPED_VALUE:
                at += 1
            elif pa.types.is_struct(field.type):
                for below in field.type:
                    yield from walk(below.type, (*path, below.name))
            else:
                typed, at = at, at + 1
                if value is not None and path:
                    yield path, value, typed, field.type

    yield from walk(stored, ())


def only(stored: pa.DataType, paths: Collection[Path]) -> pa.DataType:
    """The parts of a shredded column in a file that have what is at some paths.

    Without paths, or where the file does not have one of them apart, the whole column.
    """
    found = _only(stored, paths) if paths else None
    return stored if found is None else pa.struct([stored.field(METADATA), *found])


def _only(group: pa.DataType, paths: Collection[Path]) -> pa.DataType | None:
    if () in paths:
        return group
    place = group.get_field_index(TYPED_VALUE)
    typed = None if place < 0 else group.field(place)
    if typed is None or not pa.types.is_struct(typed.type):
        return None
    below = []
    for name in sorted({path[0] for path in paths}):
        inner = typed.type.get_field_index(name)
        if inner < 0:
            return None
        field = typed.type.field(inner)
        part = _only(field.type, [path[1:] for path in paths if path[0] == name])
        if part is None:
            return None
        below.append(field.with_type(part))
    return pa.struct([typed.with_type(pa.struct(below))])


@dataclass(frozen=True, slots=True)
class TypedPath:
    """A path of a column in a file: where its two parts are among the leaves, and its ids.

    `ids` has one id for each type; `id` is that of the type that the file has.
    """

    path: Path
    value: int
    typed: int
    type: pa.DataType
    ids: range
    id: int

    @property
    def indexed_type(self) -> pa.DataType:
        """The type in which its values are indexed."""
        return [*KINDS.values()][self.id - self.ids[0]]


def typed_paths(field: pa.Field, stored: pa.DataType, first: int) -> Iterator[TypedPath]:
    """The paths of a column that a file has as columns, and that have ids.

    `first` is the place of the first leaf of the column.
    """
    ids = paths_of(field)
    for path, value, typed, type_ in places(stored) if ids else ():
        kind = kind_of(type_)
        if path in ids and kind is not None:
            own = range(ids[path], ids[path] + len(KINDS))
            id = own[[*KINDS].index(kind)]
            yield TypedPath(path, first + value, first + typed, type_, own, id)

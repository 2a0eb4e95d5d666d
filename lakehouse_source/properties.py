"""Pure. What is decided for all later writes of a dataset, and the catalog's document of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, get_args, get_origin, get_type_hints


@dataclass(frozen=True, slots=True)
class Layout:
    """How writes lay out rows in files. None: nothing was chosen.

    `sort_by` and `bloom_filter_columns` are names of top-level columns, `cluster_by` dotted paths
    of one to four columns; each may also have paths of VARIANT that files have.
    `promote_to_string` allows a write to turn a column into strings. `rewrite_threshold` is
    the share of deleted rows, from 0 to 1, above which a file's other rows are written anew.
    `auto_compact` compacts small files after a commit, where a partition has as many of them as
    `auto_compact_min_files` says. `iceberg_metadata` writes metadata for readers of Iceberg after
    each commit. `variant_paths` are paths of VARIANT, as `payload:user.id`, that files have as
    columns; where none are chosen, the first file of many rows chooses for each column at most
    `variant_paths_most`, of at most `variant_paths_depth` names, which at least the share
    `variant_paths_share` of its rows has. `keep_versions` and `keep_versions_seconds` are limits by
    which upkeep expires versions.
    """

    target_file_size_bytes: int | None = None
    row_group_rows: int | None = None
    compression: str | None = None
    sort_by: tuple[str, ...] | None = None
    cluster_by: tuple[str, ...] | None = None
    bloom_filter_columns: tuple[str, ...] | None = None
    promote_to_string: bool | None = None
    rewrite_threshold: float | None = None
    auto_compact: bool | None = None
    auto_compact_min_files: int | None = None
    iceberg_metadata: bool | None = None
    variant_paths: tuple[str, ...] | None = None
    variant_paths_most: int | None = None
    variant_paths_share: float | None = None
    variant_paths_depth: int | None = None
    keep_versions: int | None = None
    keep_versions_seconds: int | None = None

    def over(self, other: Layout) -> Layout:
        """This layout, with the choices of `other` where this one has none."""
        unset = {name for name in KINDS if getattr(self, name) is None}
        return replace(self, **{name: getattr(other, name) for name in unset})

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Layout:
        """The layout in a parsed JSON document, whose other keys are ignored."""
        given = {name: document[name] for name in KINDS if document.get(name) is not None}
        for name, value in given.items():
            given[name] = _value(name, value, KINDS[name])
            if isinstance(value, int) and value.bit_length() > 63:
                raise TypeError(f"{name!r} has more than 64 bits")
        return cls(**given)

    def to_json(self) -> dict[str, Any]:
        """The choices that were made, as values that JSON can hold."""
        chosen = {name: getattr(self, name) for name in KINDS}
        return {name: _plain(value) for name, value in chosen.items() if value is not None}


# The properties of a layout, with the types of their values.
KINDS = {name: get_args(hint)[0] for name, hint in get_type_hints(Layout).items()}
COLUMNS = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Check:
    """A constraint: the text of a condition that is FALSE on no row, or of a key.

    It holds in each version from `since` on; rows of a version before may break it.
    """

    expression: str
    since: int

    @classmethod
    def all_of(cls, document: Any) -> Mapping[str, Check]:
        """The constraints in a parsed JSON document, by name."""
        found = {}
        for name, one in dict(document).items():
            expression, since = one["check"], one["since"]
            if not isinstance(expression, str) or type(since) is not int:
                raise TypeError(f"constraint {name!r} is not a text and a version")
            found[str(name)] = cls(expression, since)
        return found


@dataclass(frozen=True, slots=True)
class DatasetProperties:
    """What is decided for all later writes of a dataset, as the catalog stores it.

    `partition_by` are names of columns in the newest schema, in the order of the folders.
    `index_columns` are the names that were given for the search index, as the columns are
    named now (None: none were given);
    `indexed_columns` are the field ids of the columns that the index covers.
    `layout` is followed by every write, except where the write itself chooses otherwise.
    `last_field_id` is the highest field id ever given to a column. `partitioned_before` has,
    oldest first, versions at which a dataset that was replaced as a whole got other partition
    columns, and the field ids of those that the versions before it have. `table_properties`
    are texts that users noted about the dataset (`TBLPROPERTIES` in Spark); no rule of plake
    reads them. `erased_version` is the version of the last erasure (0: there was none): what
    processes remember of files is from before it or after it. `expire_rows` is a condition on rows
    that `maintain` deletes. `origins` are the ids of the datasets from which it was cloned, and of
    those from which they were. `constraints` are the constraints by name: all writers check them
    (`constraints.py`). `unknown` holds the keys that this release does not know; they are
    written back unchanged.
    """

    partition_by: tuple[str, ...] = ()
    index_columns: tuple[str, ...] | None = None
    indexed_columns: tuple[int, ...] = ()
    last_field_id: int = 0
    unknown: Mapping[str, Any] = field(default_factory=dict)
    layout: Layout = Layout()
    partitioned_before: tuple[tuple[int, tuple[int, ...]], ...] = ()
    table_properties: Mapping[str, str] = field(default_factory=dict)
    erased_version: int = 0
    expire_rows: str | None = None
    origins: tuple[int, ...] = ()
    constraints: Mapping[str, Check] = field(default_factory=dict)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> DatasetProperties:
        """The properties in a parsed JSON document."""
        given = {
            name: _value(name, document[name], kind)
            for name, kind in _DOCUMENT.items()
            if name in document
        }
        known = {*given, *KINDS, "constraints"}
        return cls(
            **given,
            layout=Layout.from_json(document),
            constraints=Check.all_of(document.get("constraints", {})),
            unknown={k: v for k, v in document.items() if k not in known},
        )

    def to_json(self) -> dict[str, Any]:
        """The document that `from_json` reads, made of values that JSON can hold."""
        own = {name: getattr(self, name) for name in _DOCUMENT}
        chosen = {
            name: _plain(value)
            for name, value in own.items()
            if value or name in _ALWAYS or (value is not None and name == "index_columns")
        }
        if self.constraints:
            chosen["constraints"] = {
                name: {"check": one.expression, "since": one.since}
                for name, one in self.constraints.items()
            }
        return {**self.unknown, **self.layout.to_json(), **chosen}


_DOCUMENT = {
    name: hint
    for name, hint in get_type_hints(DatasetProperties).items()
    if name not in ("layout", "constraints", "unknown")
}
_ALWAYS = ("partition_by", "indexed_columns", "last_field_id")


def _value(name: str, value: Any, kind: Any) -> Any:
    """A value of a document, which JSON holds, as its type in the class."""
    origin, parts = get_origin(kind), get_args(kind)
    if type(None) in parts:
        return None if value is None else _value(name, value, parts[0])
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise TypeError(f"{name!r} is not a list")
        each = parts[:1] * len(value) if parts[-1] is Ellipsis else parts
        return tuple(_value(name, one, part) for one, part in zip(value, each, strict=True))
    if origin is not None:  # texts by name
        if not isinstance(value, dict):
            raise TypeError(f"{name!r} is not an object")
        return {str(key): str(text) for key, text in value.items()}
    if type(value) is not kind:
        raise TypeError(f"{name!r} is not of type {kind.__name__}")
    return value


def _plain(value: Any) -> Any:
    """A value as JSON holds it: tuples as lists."""
    return [_plain(one) for one in value] if isinstance(value, tuple) else value

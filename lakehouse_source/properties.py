"""Pure. What is decided for all later writes of a dataset, and the catalog's document of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class Layout:
    """How writes lay out rows in files. None: nothing was chosen.

    `sort_by` and `bloom_filter_columns` are names of top-level columns; `cluster_by` are dotted
    paths of one to four columns.
    `promote_to_string` allows a write to turn a column into strings. `rewrite_threshold` is
    the share of deleted rows, from 0 to 1, above which a file's other rows are written anew.
    `auto_compact` compacts small files after a commit, where a partition has as many of them as
    `auto_compact_min_files` says. `iceberg_metadata` writes metadata for readers of Iceberg after
    each commit.
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

    def over(self, other: Layout) -> Layout:
        """This layout, with the choices of `other` where this one has none."""
        unset = {one.name for one in fields(self) if getattr(self, one.name) is None}
        return replace(self, **{name: getattr(other, name) for name in unset})

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Layout:
        """The layout in a parsed JSON document, whose other keys are ignored."""
        given = {one.name: document.get(one.name) for one in fields(cls)}
        for name, value in given.items():
            if value is None:
                continue
            if name in COLUMN_LISTS:
                given[name] = _items(value, str, name)
            elif type(value) is not _SCALARS[name]:
                raise TypeError(f"{name!r} is not of type {_SCALARS[name].__name__}")
            elif isinstance(value, int) and value.bit_length() > 63:
                raise TypeError(f"{name!r} has more than 64 bits")
        return cls(**given)

    def to_json(self) -> dict[str, Any]:
        """The choices that were made, as values that JSON can hold."""
        chosen = {one.name: getattr(self, one.name) for one in fields(self)}
        return {
            name: list(value) if name in COLUMN_LISTS else value
            for name, value in chosen.items()
            if value is not None
        }


# The keys of `Layout` that are lists of columns, and the types of the others.
COLUMN_LISTS = ("sort_by", "cluster_by", "bloom_filter_columns")
_SCALARS: Mapping[str, type] = {
    "target_file_size_bytes": int,
    "row_group_rows": int,
    "compression": str,
    "promote_to_string": bool,
    "rewrite_threshold": float,
    "auto_compact": bool,
    "auto_compact_min_files": int,
    "iceberg_metadata": bool,
}


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
    that `maintain` deletes. `origins` are
    the ids of the datasets from which it was cloned, and from which those were. `unknown` holds the
    keys that this release does not know; they are written back unchanged.
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

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> DatasetProperties:
        """The properties in a parsed JSON document."""
        unknown = dict(document)
        names = unknown.pop("index_columns", None)
        last_field_id = unknown.pop("last_field_id", 0)
        if not isinstance(last_field_id, int):
            raise TypeError("'last_field_id' is not an integer")
        erased_version = unknown.pop("erased_version", 0)
        if not isinstance(erased_version, int):
            raise TypeError("'erased_version' is not an integer")
        expire_rows = unknown.pop("expire_rows", None)
        if not isinstance(expire_rows, str | None):
            raise TypeError("'expire_rows' is not a text")
        past = unknown.pop("partitioned_before", ())
        texts = unknown.pop("table_properties", {})
        if not isinstance(texts, dict):
            raise TypeError("'table_properties' is not an object")
        layout = Layout.from_json(unknown)
        for one in fields(Layout):
            unknown.pop(one.name, None)
        return cls(
            partition_by=_items(unknown.pop("partition_by", ()), str, "partition_by"),
            index_columns=None if names is None else _items(names, str, "index_columns"),
            indexed_columns=_items(unknown.pop("indexed_columns", ()), int, "indexed_columns"),
            last_field_id=last_field_id,
            layout=layout,
            partitioned_before=tuple(
                (version, _items(ids, int, "partitioned_before")) for version, ids in past
            ),
            table_properties={str(key): str(value) for key, value in texts.items()},
            erased_version=erased_version,
            expire_rows=expire_rows,
            origins=_items(unknown.pop("origins", ()), int, "origins"),
            unknown=unknown,
        )

    def to_json(self) -> dict[str, Any]:
        """The document that `from_json` reads, made of values that JSON can hold."""
        document: dict[str, Any] = {
            **self.unknown,
            **self.layout.to_json(),
            "partition_by": list(self.partition_by),
            "indexed_columns": list(self.indexed_columns),
            "last_field_id": self.last_field_id,
        }
        if self.index_columns is not None:
            document["index_columns"] = list(self.index_columns)
        if self.partitioned_before:
            document["partitioned_before"] = [
                [version, list(ids)] for version, ids in self.partitioned_before
            ]
        if self.table_properties:
            document["table_properties"] = dict(self.table_properties)
        if self.erased_version:
            document["erased_version"] = self.erased_version
        if self.expire_rows is not None:
            document["expire_rows"] = self.expire_rows
        if self.origins:
            document["origins"] = list(self.origins)
        return document


def _items(values: Any, kind: type[_Item], key: str) -> tuple[_Item, ...]:
    if not isinstance(values, list | tuple) or not all(isinstance(v, kind) for v in values):
        raise TypeError(f"{key!r} is not a list of {kind.__name__}")
    return tuple(values)

"""Pure. What the caller asked a write to do, the layout of its files, and a write that began.

These are values that Spark sends from the driver to executors and back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from lakehouse_source.arguments import column_names, text, whole_number
from lakehouse_source.arguments import flag as checked_flag
from lakehouse_source.catalog.qualified_names import QualifiedName
from lakehouse_source.errors import CommitConflictError, InvalidOptionError, SchemaMismatchError
from lakehouse_source.language import PredicateSet
from lakehouse_source.layout import MOST_COLUMNS
from lakehouse_source.model import SeenVersion
from lakehouse_source.parquet.read_write_specs import WriteSpec
from lakehouse_source.properties import COLUMNS, KINDS, Layout
from lakehouse_source.pruning.keys import can_be_indexed
from lakehouse_source.schema.fields import field_id, find_field, leaves
from lakehouse_source.schema.ordinal import domain
from lakehouse_source.schema.paths import order_leaves
from lakehouse_source.schema.variant import is_variant
from lakehouse_source.schema.variant_paths import MOST_PATHS, collide, split, texts_of
from lakehouse_source.write.commit.conflicts import Change, Collision, conflict

# --- The layout of files: what callers give, what a schema allows, what a change renames.


# As in Delta.
AUTO_COMPACT_MIN_FILES = 50
CODECS = ("zstd", "snappy", "lz4", "gzip", "brotli", "none")
LAYOUT_KEYWORDS = tuple(KINDS)
# The keywords of `Dataset.set_properties`.
PROPERTIES = ("partition_by", *LAYOUT_KEYWORDS, "index_columns", "expire_rows")


def layout_of(given: Mapping[str, Any]) -> Layout:
    """The layout that keywords of these names choose; None chooses nothing.

    Raises:
        InvalidOptionError: a size, the codec or a flag is wrong.
    """
    chosen: dict[str, Any] = {
        name: column_names(name, value) if KINDS[name] == COLUMNS else value
        for name, value in given.items()
    }
    for name, value in chosen.items():
        if KINDS[name] is float and isinstance(value, int) and not isinstance(value, bool):
            chosen[name] = float(value)
    layout = Layout(**chosen)
    check_layout(layout)
    return layout


def check_layout(layout: Layout) -> None:
    """Check everything in a layout that needs no schema."""
    for name, kind in KINDS.items():
        value = getattr(layout, name)
        right, reason = True, "must be a bool."
        if value is None:
            continue
        if kind == COLUMNS:
            right, reason = all(isinstance(one, str) for one in value), "must be column names."
        elif kind is bool:
            right = value in (True, False)
        elif kind is float:
            right = isinstance(value, float) and 0 <= value <= 1
            reason = "must be a number from 0 to 1."
        elif kind is int:
            is_whole = isinstance(value, int) and not isinstance(value, bool)
            right = is_whole and value >= 1
            reason = "must be at least 1." if is_whole else "must be a whole number."
        if not right:
            raise InvalidOptionError(option=option_name(name), value=value, reason=reason)
    if len(layout.cluster_by or ()) > MOST_COLUMNS:
        raise InvalidOptionError(
            option="clusterBy",
            value=layout.cluster_by,
            reason=f"must be at most {MOST_COLUMNS} columns: each further one widens the others.",
        )
    codec = layout.compression
    if codec is None:
        return
    known = isinstance(codec, str) and codec.lower() in CODECS
    if not known or (codec.lower() != "none" and not pa.Codec.is_available(codec.lower())):
        raise InvalidOptionError(
            option="compression",
            value=codec,
            reason="is not a codec of this PyArrow.",
            known=CODECS,
        )


def option_name(name: str) -> str:
    """The name of a property among the options of Spark."""
    first, *others = name.removesuffix("_bytes").split("_")
    return first + "".join(map(str.title, others))


def fitted(layout: Layout, schema: pa.Schema) -> Layout:
    """The layout with its columns in the schema's spelling.

    Raises:
        InvalidOptionError: there is no such column, its values have no order, or it is nested.
    """
    paths = _variant_paths(schema, layout.variant_paths)
    known = texts_of(schema) if paths is None else paths
    return replace(
        layout,
        sort_by=_names(schema, layout.sort_by, "sortBy", _can_be_sorted, known),
        cluster_by=_paths(schema, layout.cluster_by, known),
        bloom_filter_columns=_names(
            schema, layout.bloom_filter_columns, "bloomFilterColumns", can_be_hashed, known
        ),
        variant_paths=paths,
    )


def _names(
    schema: pa.Schema,
    given: Sequence[str] | None,
    option: str,
    usable: Callable[[pa.DataType], bool],
    variant_paths: Sequence[str],
) -> tuple[str, ...] | None:
    if given is None:
        return None
    names: dict[str, None] = {}
    for name in given:
        found = find_field(name, schema)
        path = None if found is not None else _path_in(name, schema, option, variant_paths)
        if path is not None:
            names[path] = None
            continue
        if found is None:
            raise InvalidOptionError(
                option=option, value=name, reason="is not a column.", known=schema.names
            )
        if not usable(found.type):
            raise InvalidOptionError(
                option=option, value=name, reason=f"has type {found.type}, which it cannot have."
            )
        names[found.name] = None
    return tuple(names)


def _path_in(text: str, schema: pa.Schema, option: str, known: Sequence[str]) -> str | None:
    """A path of VARIANT with its column in the schema's spelling; None: it is no such path."""
    parts = split(text)
    field = None if parts is None else find_field(parts[0], schema)
    if parts is None or field is None or not is_variant(field.type):
        return None
    found = f"{field.name}:{'.'.join(parts[1])}"
    if found not in known:
        reason = "is no path that files have. Name it in variant_paths too."
        raise InvalidOptionError(option=option, value=text, reason=reason, known=known)
    return found


def _paths(
    schema: pa.Schema, given: Sequence[str] | None, variant_paths: Sequence[str]
) -> tuple[str, ...] | None:
    """Clustering columns as dotted paths in the schema's spelling."""
    if given is None:
        return None
    every = list(leaves(schema))
    known = {".".join(leaf.path).lower(): leaf for leaf in every if can_be_indexed(leaf)}
    paths: dict[str, None] = {}
    for name in given:
        leaf = known.get(name.lower())
        path = None if leaf else _path_in(name, schema, "clusterBy", variant_paths)
        if path is not None:
            paths[path] = None
            continue
        if leaf is None:
            there = find_field(name, schema) is not None or any(
                ".".join(one.path).lower() == name.lower() for one in every
            )
            reason = "has no values that can be ordered." if there else "is not a column."
            shown = [".".join(one.path) for one in known.values()]
            raise InvalidOptionError(option="clusterBy", value=name, reason=reason, known=shown)
        paths[".".join(leaf.path)] = None
    return tuple(paths)


def _variant_paths(schema: pa.Schema, given: Sequence[str] | None) -> tuple[str, ...] | None:
    if given is None:
        return None
    found: dict[str, dict[tuple[str, ...], None]] = {}
    for named in given:
        parts = split(named)
        field = None if parts is None else find_field(parts[0], schema)
        reason = "is no path such as payload:user.id."
        if parts is not None:
            reason = "begins with no column of VARIANT."
        if parts is None or field is None or not is_variant(field.type):
            raise InvalidOptionError(option="variantPaths", value=named, reason=reason)
        known = found.setdefault(field.name, {})
        for one in known:
            if one != parts[1] and collide(one, parts[1]):
                reason = (
                    f"leads into or out of {'.'.join(one)}, or differs from it by case only: "
                    "name one."
                )
                raise InvalidOptionError(option="variantPaths", value=named, reason=reason)
        known[parts[1]] = None
        if len(known) > MOST_PATHS:
            reason = f"is path {len(known)} of a column; at most {MOST_PATHS} are kept."
            raise InvalidOptionError(option="variantPaths", value=named, reason=reason)
    return tuple(f"{name}:{'.'.join(path)}" for name, paths in found.items() for path in paths)


def _can_be_sorted(type_: pa.DataType) -> bool:
    """Tell whether Arrow sorts values of a storage type."""
    return domain(type_).ordered and not pa.types.is_float16(type_)


def can_be_hashed(type_: pa.DataType) -> bool:
    """Tell whether a bloom filter of a storage type is possible: Parquet has none of booleans."""
    return domain(type_).ordered and not pa.types.is_boolean(type_)


def in_schema(layout: Layout, before: pa.Schema, after: pa.Schema) -> Layout:
    """The layout with the names that its columns have in another schema.

    A column that the other schema lacks leaves the lists.
    """
    names = {field_id(field): field.name for field in after}
    texts = texts_of(after)
    known = {*after.names, *texts}

    def now(given: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if given is None:
            return None
        found = (named(name) for name in given)
        return tuple(name for name in found if name is not None and name in known)

    def named(name: str) -> str | None:
        column = _column_of(name, before)
        now = names.get(field_id(before.field(column)))
        return None if now is None else now + name.removeprefix(column)

    def paths_now(given: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if given is None:
            return None
        were = order_leaves(before)
        paths = {leaf.id: name for name, leaf in order_leaves(after).items()}
        found = (paths.get(were[path].id) for path in given)
        return tuple(path for path in found if path is not None)

    return replace(
        layout,
        sort_by=now(layout.sort_by),
        cluster_by=paths_now(layout.cluster_by),
        bloom_filter_columns=now(layout.bloom_filter_columns),
        variant_paths=None if layout.variant_paths is None else tuple(texts),
    )


def _column_of(name: str, schema: pa.Schema) -> str:
    """The column that a name of the layout is, or in which it is a path of VARIANT."""
    return name if name in schema.names else name.partition(":")[0]


def check_sort_columns_stay(layout: Layout, before: pa.Schema, after: pa.Schema) -> None:
    """Check that a change of the schema drops no column that files are sorted or clustered by."""
    ids = {field_id(field) for field in after}
    for name in layout.sort_by or ():
        if field_id(before.field(_column_of(name, before))) not in ids:
            raise SchemaMismatchError(
                column=name,
                reason="is a column that the files are sorted by and cannot be dropped",
                hint="Choose other columns first: dataset.set_properties(sort_by=[...]).",
            )
    paths = {name: leaf.id for name, leaf in order_leaves(before).items()}
    left = {leaf.id for leaf in leaves(after)}
    for path in layout.cluster_by or ():
        if paths[path] not in left:
            raise SchemaMismatchError(
                column=path,
                reason="is a column that the dataset is clustered by and cannot be dropped",
                hint="Choose other columns first: dataset.set_properties(cluster_by=[...]).",
            )


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """What the caller asked for.

    The dataset's properties decide what `layout` does not choose. The layout of the first write
    becomes the dataset's. `index_columns` are the columns that the search index of a new
    dataset covers; a struct stands for all its fields. `row_change` is DELETE, UPDATE or MERGE
    where the write takes rows out of existing files, REWRITE where it moves rows to other
    files; then the mode is "append".

    `overwrite_schema`: with mode "overwrite", the schema and the partition columns are replaced
    like the rows; the new columns have new ids, even if they keep their names. `register_as` is a
    name (namespace and name) that the dataset gets in the same transaction. `managed`: plake chose
    the location of the dataset, which is made by this write. `table_properties` are those of a
    dataset that is created or whose schema is replaced, and `constraints` are its constraints
    by name; None: those that it has stay. `reads_own_rows`: the rows of an overwrite
    were computed from those of the base version. An overwrite of the whole dataset then conflicts
    with every later commit that changed rows. `must_exist`: a missing dataset is not made.
    `statement` is the name of the operation in the history, if it differs from that of the change.
    `committer` is what a door tells about the committer, besides what the process is.
    """

    mode: str = "append"
    partition_by: tuple[str, ...] | None = None
    schema_merge: bool = False
    overwrite_where: PredicateSet | None = None
    dynamic_partitions: bool = False
    expected_version: int | None = None
    txn_app_id: str | None = None
    txn_version: int | None = None
    commit_metadata: Mapping[str, Any] = field(default_factory=dict)
    writer: str = "pyarrow"
    layout: Layout = field(default_factory=Layout)
    index_columns: tuple[str, ...] | None = None
    row_change: Change | None = None
    overwrite_schema: bool = False
    register_as: QualifiedName | None = None
    managed: bool = False
    table_properties: Mapping[str, str] | None = None
    constraints: Mapping[str, str] | None = None
    statement: str | None = None
    committer: Mapping[str, str] = field(default_factory=dict)
    reads_own_rows: bool = False
    must_exist: bool = False

    def check(self) -> None:
        """Check the values and their combinations."""
        if self.mode not in ("append", "overwrite", "error"):
            raise InvalidOptionError(
                option="mode",
                value=self.mode,
                reason="is not a way to write.",
                known=("append", "overwrite", "error"),
            )
        if self.overwrite_where is not None and self.mode != "overwrite":
            raise InvalidOptionError(
                option="overwrite_where", reason="needs mode 'overwrite'.", value=self.mode
            )
        if self.dynamic_partitions and self.overwrite_where is not None:
            raise InvalidOptionError(
                option="partitionOverwriteMode",
                value="dynamic",
                reason="cannot be combined with overwriteWhere.",
            )
        if (
            checked_flag("overwrite_schema", self.overwrite_schema)
            and self.change is not Change.OVERWRITE
        ):
            raise InvalidOptionError(
                option="overwriteSchema",
                reason="replaces the whole dataset. It needs mode 'overwrite', and neither "
                "overwriteWhere nor partitionOverwriteMode 'dynamic'.",
            )
        check_layout(self.layout)
        if self.expected_version is not None:
            whole_number("expected_version", self.expected_version)
        if (self.txn_app_id is None) != (self.txn_version is None):
            raise InvalidOptionError(
                option="txnAppId", reason="and txnVersion go together: give both or none."
            )
        if self.txn_app_id is not None:
            text("txn_app_id", self.txn_app_id)
            whole_number("txn_version", self.txn_version)

    @property
    def change(self) -> Change:
        """What this write does to the dataset, for the conflict table."""
        if self.row_change is not None:
            return self.row_change
        if self.mode != "overwrite":
            return Change.APPEND
        partial = self.overwrite_where is not None or self.dynamic_partitions
        return Change.OVERWRITE_WHERE if partial else Change.OVERWRITE

    @property
    def operation(self) -> str:
        """The name of this write in the history."""
        if self.statement is not None:
            return self.statement
        if self.dynamic_partitions:
            return "overwrite partitions"
        return self.change.value


@dataclass(frozen=True, slots=True)
class StagedWrite:
    """A write that has begun. Picklable; knows no catalog and no password.

    `uri` is that of its dataset's address, `key` the dataset's key in the catalog, and
    `dataset_id` its id there: another dataset may get the key.
    `base` is the version that the write is based on, `incoming` the schema of its
    rows as the caller gave them.
    `indexed` are the field ids of the columns that the search index covers when the write
    commits, unless another commit changes them first. `compact_min_files` is the number of
    small files from which they are compacted after the commit; None: they never are.
    `iceberg_metadata`: metadata for readers of Iceberg is written after the commit.
    """

    uri: str
    key: str
    dataset_id: int
    base: SeenVersion
    incoming: pa.Schema
    options: WriteOptions
    spec: WriteSpec
    indexed: tuple[int, ...] = ()
    compact_min_files: int | None = None
    iceberg_metadata: bool = False

    @property
    def write_id(self) -> str:
        return self.spec.write_id

    @property
    def base_version(self) -> int:
        return self.base.version

    def conflict(self, current_version: int, what: Collision | str) -> CommitConflictError:
        """The error of this write if the version that it found does not allow the write."""
        return conflict(self.uri, self.base_version, current_version, what)

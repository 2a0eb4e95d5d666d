"""Pure. Bounds of columns over files and row groups, in the form of the catalog's records.

Recorded bounds may be wider than the data and are never narrower. A long lower bound is
cut; a long upper bound is cut and raised. A bound that cannot be recorded is left out and counts as
unknown.

Source: Parquet format, `Statistics` (NaN and signed zero in bounds).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeAlias

import pyarrow as pa

from lakehouse_source.errors import CorruptDatasetError
from lakehouse_source.model import ColumnBounds, FileBounds, FileRecord, Ordinal, RowGroupMetadata
from lakehouse_source.pruning.keys import (
    EMPTY_LOWER,
    EMPTY_UPPER,
    NAN_KEY,
    UNBOUNDED_LOWER,
    UNBOUNDED_UPPER,
    key_of,
    ordinal_of_key,
    upper_key_of,
)
from lakehouse_source.schema.defaults import initial_ordinals
from lakehouse_source.schema.fields import Leaf, leaves, leaves_of_file
from lakehouse_source.schema.json_values import JsonValue, json_of, ordinal_of
from lakehouse_source.schema.ordinal import Domain, domain
from lakehouse_source.schema.partitions import partition_ordinal

JSON_LIMIT = 64  # characters of text, bytes of binaries


# --- row groups -------------------------------------------------------------


def encode_row_group(
    columns: Iterable[tuple[Leaf, ColumnBounds]],
) -> tuple[str, str, str, str]:
    """One row group's minima, maxima, null counts and NaN marks as JSON documents.

    The keys of the documents are field ids. Unknown values are absent, and NaN is never
    a bound. Leaves inside lists are left out: their statistics count elements, not rows.
    """
    minima: dict[str, JsonValue] = {}
    maxima: dict[str, JsonValue] = {}
    null_counts: dict[str, int] = {}
    nans: dict[str, bool] = {}
    for leaf, bounds in columns:
        if leaf.in_list:
            continue
        kind, name = domain(leaf.type), str(leaf.id)
        if bounds.null_count is not None:
            null_counts[name] = bounds.null_count
        if kind.kind == "float":
            nan_bound = bounds.lower != bounds.lower or bounds.upper != bounds.upper
            nans[name] = bounds.may_contain_nan or nan_bound
            if nan_bound:
                continue
        if not kind.ordered:
            continue
        if bounds.lower is not None:
            low = json_of(bounds.lower, kind, False, JSON_LIMIT)
            if low is not None:
                minima[name] = low
        if bounds.upper is not None:
            high = json_of(bounds.upper, kind, True, JSON_LIMIT)
            if high is not None:
                maxima[name] = high
    return _dump(minima), _dump(maxima), _dump(null_counts), _dump(nans)


def _dump(document: Mapping[str, Any]) -> str:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def renumbered(group: RowGroupMetadata, ids: Mapping[int, int | None]) -> RowGroupMetadata:
    """The record of a row group in which columns have other ids; None: it is left out."""
    texts = {str(before): None if now is None else str(now) for before, now in ids.items()}

    def anew(text: str) -> str:
        moved = ((texts.get(name, name), value) for name, value in _document(text).items())
        return _dump({name: value for name, value in moved if name is not None})

    return replace(
        group,
        stats_min_json=anew(group.stats_min_json),
        stats_max_json=anew(group.stats_max_json),
        null_counts_json=anew(group.null_counts_json),
        nan_json=anew(group.nan_json),
    )


_scan_json = json.JSONDecoder().scan_once  # type: ignore[attr-defined]


@lru_cache(maxsize=64)
def _document(text: str) -> dict[str, Any]:
    """A parsed document, cached: columns of one row group are read one after another."""
    try:
        # The form that `encode_row_group` writes; this takes half the time of json.loads.
        document, end = _scan_json(text, 0)
    except (ValueError, StopIteration, RecursionError):
        end = -1
    if end != len(text):
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            return {}
    return document if isinstance(document, dict) else {}


def decode_row_group(
    group: RowGroupMetadata, leaf_id: int, file_type: pa.DataType, column_type: pa.DataType
) -> ColumnBounds:
    """The bounds of one column in a row group's record, as bounds of its current type.

    The file was written with `file_type`. Its bounds are converted to `column_type` if the
    promotion keeps their order; otherwise they are unknown.
    """
    source, name = domain(file_type), str(leaf_id)
    null_count = _document(group.null_counts_json).get(name)
    if type(null_count) is not int or not 0 <= null_count <= group.row_count:
        null_count = None
    may_be_nan = False
    if source.kind == "float":
        may_be_nan = _document(group.nan_json).get(name) is not False
    lower = upper = None
    low = _document(group.stats_min_json).get(name)
    if low is not None:
        lower = ordinal_of(low, source)
    high = _document(group.stats_max_json).get(name)
    if high is not None:
        upper = ordinal_of(high, source)
    if lower != lower or upper != upper:
        lower, upper, may_be_nan = None, None, source.kind == "float"
    if file_type is not column_type and file_type != column_type:
        return _promoted(
            lower, upper, null_count, group.row_count, may_be_nan, source, domain(column_type)
        )
    return ColumnBounds(lower, upper, null_count, group.row_count, may_be_nan)


def promoted(known: ColumnBounds, source: pa.DataType, target: pa.DataType) -> ColumnBounds:
    """Bounds of a column's type in its file as bounds of its current type.

    They are unknown if the promotion does not keep their order.
    """
    if source.equals(target):
        return known
    return _promoted(
        known.lower,
        known.upper,
        known.null_count,
        known.row_count,
        known.may_contain_nan,
        domain(source),
        domain(target),
    )


def _promoted(
    lower: Ordinal | None,
    upper: Ordinal | None,
    null_count: int | None,
    row_count: int,
    may_be_nan: bool,
    source: Domain,
    target: Domain,
) -> ColumnBounds:
    """Bounds of one type as bounds of the type that the column was promoted to."""
    low: Ordinal | None = None
    high: Ordinal | None = None
    if source.kind == target.kind and source.kind in ("int", "float", "bool", "string", "binary"):
        low, high = lower, upper
    elif source.kind in ("int", "decimal") and target.kind == "decimal":
        if target.scale >= source.scale:
            factor = 10 ** (target.scale - source.scale)
            low, high = _times(lower, factor), _times(upper, factor)
    elif source.kind == "float" and target.kind == "decimal":
        low, high = _float_to_decimal(lower, upper, source, target)
        if may_be_nan:  # a decimal cannot be NaN, so the value that a reader sees is not known
            low = high = null_count = None
    elif _carries(source, target) and source.unit_ns % target.unit_ns == 0:
        factor = source.unit_ns // target.unit_ns
        low, high = _times(lower, factor), _times(upper, factor)
        if not _fits(low, target) or not _fits(high, target):
            low = high = None  # the new type has no such value
    stays_nan = may_be_nan if source.kind == "float" else low is None and high is None
    return ColumnBounds(low, high, null_count, row_count, target.kind == "float" and stays_nan)


def _carries(source: Domain, target: Domain) -> bool:
    if source.kind == target.kind and source.temporal:
        return source.zoned == target.zoned
    return source.kind == "date" and target.kind == "timestamp" and not target.zoned


def _fits(ordinal: int | None, target: Domain) -> bool:
    return ordinal is None or target.low <= ordinal <= target.high


def _times(ordinal: Ordinal | None, factor: int) -> int | None:
    return ordinal * factor if isinstance(ordinal, int) else None


def _float_to_decimal(
    lower: Ordinal | None, upper: Ordinal | None, source: Domain, target: Domain
) -> tuple[int | None, int | None]:
    """Bounds that hold for every rounding of the source's values to decimals."""
    mantissa = {16: 11, 32: 24}.get(source.bits, 53)

    def scaled(value: Ordinal | None, outward: int) -> int | None:
        if not isinstance(value, float) or not math.isfinite(value):
            return None
        numerator, denominator = value.as_integer_ratio()
        whole: int = numerator * 10**target.scale // denominator
        return whole + outward * (2 + (abs(whole) >> (mantissa - 4)))

    return scaled(lower, -1), scaled(upper, 1)


def is_a_value(bound: Ordinal, bounds: ColumnBounds, type_: pa.DataType) -> bool:
    """Tell whether a recorded bound is certainly the value of some row.

    Text and bytes shorter than `JSON_LIMIT` were not cut. Bounds of floats leave NaN
    out and, as Parquet writes them, lose the sign of zero.
    """
    kind = domain(type_).kind
    if kind == "float":
        return bound != 0 and not bounds.may_contain_nan
    if isinstance(bound, bytes):
        return (len(bound.decode()) if kind == "string" else len(bound)) < JSON_LIMIT
    return True


# --- the search index -------------------------------------------------------


@dataclass(slots=True)
class _Merge:
    """One column's bounds over the row groups of a file that were added so far."""

    lower: Any = None
    upper: Any = None
    lower_known: bool = True
    upper_known: bool = True
    null_count: int | None = 0
    has_values: bool = False
    may_be_nan: bool = False

    def add(self, bounds: ColumnBounds) -> None:
        nulls = bounds.null_count
        if self.null_count is not None:
            self.null_count = None if nulls is None else self.null_count + nulls
        if nulls == bounds.row_count:
            return
        self.has_values = True
        self.may_be_nan = self.may_be_nan or bounds.may_contain_nan
        if bounds.lower is None:
            self.lower_known = False
        elif self.lower is None or bounds.lower < self.lower:
            self.lower = bounds.lower
        if bounds.upper is None:
            self.upper_known = False
        elif self.upper is None or bounds.upper > self.upper:
            self.upper = bounds.upper


def over_all(parts: Sequence[ColumnBounds]) -> ColumnBounds:
    """One column's bounds over the rows of all parts together."""
    merge, row_count = _Merge(), 0
    for part in parts:
        merge.add(part)
        row_count += part.row_count
    return ColumnBounds(
        merge.lower if merge.lower_known else None,
        merge.upper if merge.upper_known else None,
        merge.null_count,
        row_count,
        merge.may_be_nan,
    )


def file_bounds(
    row_groups: Sequence[RowGroupMetadata],
    leaves: Sequence[Leaf],
    types: Mapping[int, pa.DataType] | None = None,
) -> list[FileBounds]:
    """The index rows of a file: one for each leaf that can be indexed.

    `leaves` are the columns of the file, with the types that the file has them in.
    `types` gives, by id, the current types of promoted columns: keys are encoded for
    those. A column with unknown bounds gets the interval that every range overlaps. A
    column that is all null gets the interval that no range overlaps.
    """
    row_count = sum(group.row_count for group in row_groups)
    result = []
    for leaf in leaves:
        type_ = leaf.type if types is None else types.get(leaf.id, leaf.type)
        kind = domain(type_)
        if leaf.in_list or not kind.ordered:
            continue
        merge = _Merge()
        for group in row_groups:
            merge.add(decode_row_group(group, leaf.id, leaf.type, type_))
        result.append(_index_row(leaf.id, kind, merge, row_count))
    return result


def _index_row(leaf_id: int, kind: Domain, merge: _Merge, row_count: int) -> FileBounds:
    lower, upper = UNBOUNDED_LOWER, UNBOUNDED_UPPER
    if not merge.has_values:
        lower, upper = EMPTY_LOWER, EMPTY_UPPER
    else:
        if merge.lower_known:
            lower = key_of(merge.lower, kind)
        if merge.upper_known:
            # NaN is the greatest value of all.
            upper = NAN_KEY if merge.may_be_nan else upper_key_of(merge.upper, kind)
        if lower > upper:  # a record that contradicts itself is ignored
            lower, upper = UNBOUNDED_LOWER, UNBOUNDED_UPPER
    return FileBounds(leaf_id, lower, upper, merge.null_count, row_count, merge.may_be_nan)


def of_index_row(row: FileBounds, type_: pa.DataType, row_count: int) -> ColumnBounds:
    """The bounds of a column over a file of `row_count` rows, from its row of the index.

    `type_` is the type of the column, in the file and now.
    """
    kind = domain(type_)
    lower = upper = None
    if row.lower != EMPTY_LOWER:  # else the column is all null
        if row.lower != UNBOUNDED_LOWER:
            lower = ordinal_of_key(row.lower, kind)
        if row.upper != UNBOUNDED_UPPER:
            upper = ordinal_of_key(row.upper, kind)
    may_be_nan = kind.kind == "float" and row.may_contain_nan
    return ColumnBounds(lower, upper, row.null_count, row_count, may_be_nan)


def constant_bounds(
    leaf: Leaf, ordinal: Ordinal | None, row_count: int
) -> tuple[ColumnBounds, FileBounds]:
    """Bounds of a partition column: every row holds `ordinal`; None is NULL."""
    kind = domain(leaf.type)
    if ordinal is None:
        known = ColumnBounds(None, None, row_count, row_count, False)
        empty = FileBounds(leaf.id, EMPTY_LOWER, EMPTY_UPPER, row_count, row_count, False)
        return known, empty
    if ordinal != ordinal:
        known = ColumnBounds(None, None, 0, row_count, True)
        return known, FileBounds(leaf.id, NAN_KEY, NAN_KEY, 0, row_count, True)
    lower, upper = key_of(ordinal, kind), upper_key_of(ordinal, kind)
    known = ColumnBounds(ordinal, ordinal, 0, row_count, False)
    return known, FileBounds(leaf.id, lower, upper, 0, row_count, False)


# --- Bounds of a column over a row group: from statistics, or from partition values.


# Gets a row group, a column's id, its type in the file and its type now.
Decode: TypeAlias = Callable[[RowGroupMetadata, int, pa.DataType, pa.DataType], ColumnBounds]


class Statistics:
    """Looks up bounds of columns, converted to the types that they have in `schema`.

    `file_schemas` are the schemas that the files were written with, by schema version.
    """

    def __init__(
        self,
        schema: pa.Schema,
        file_schemas: Mapping[int, pa.Schema],
        partition_by: tuple[str, ...],
    ) -> None:
        self.partition_by = frozenset(partition_by)
        self.now = {leaf.id: leaf for leaf in leaves(schema)}
        self._defaults = initial_ordinals(schema)
        self.then: dict[int, dict[int, Leaf]] = {
            number: {leaf.id: leaf for leaf in leaves_of_file(one, self.now.values())}
            for number, one in file_schemas.items()
        }

    def of(
        self,
        file: FileRecord,
        group: RowGroupMetadata,
        decode: Decode = decode_row_group,
    ) -> Callable[[int], ColumnBounds]:
        """The bounds of columns, by id, over one row group.

        `decode` gives the bounds of a column that the file holds.
        """
        columns = self.then.get(file.schema_version)
        if columns is None:
            raise CorruptDatasetError(
                path=file.path, reason=f"there is no schema of version {file.schema_version}"
            )

        def look_up(column_id: int) -> ColumnBounds:
            leaf = self.now.get(column_id)
            if leaf is None or leaf.in_list:
                return ColumnBounds(None, None, None, group.row_count, True)
            written = columns.get(column_id)
            if leaf.path[0] in self.partition_by:
                # The catalog has the value under the name that the column had in the file.
                text = None if written is None else file.partitions.get(written.path[0])
                value = partition_ordinal(text, leaf.type)
                return constant_bounds(leaf, value, group.row_count)[0]
            if written is None:
                # The file was written before the column was added.
                return self._without_data(leaf, group.row_count)
            return decode(group, column_id, written.type, leaf.type)

        return look_up

    def of_file(
        self, file: FileRecord, index: Mapping[int, FileBounds]
    ) -> Callable[[int], ColumnBounds]:
        """The bounds of columns, by id, over a whole file; `index` has its rows of the index.

        They are at least as wide as those of all the file's row groups together.
        """

        def decode(
            whole: RowGroupMetadata, column_id: int, file_type: pa.DataType, type_: pa.DataType
        ) -> ColumnBounds:
            row = index.get(column_id)
            # The null count and the keys are for the column's type in the file.
            if row is None or not file_type.equals(type_):
                return ColumnBounds(None, None, None, whole.row_count, True)
            return of_index_row(row, type_, whole.row_count)

        return self.of(file, RowGroupMetadata(0, file.row_count, "", "", ""), decode)

    @property
    def partition_ids(self) -> frozenset[int]:
        """The ids of the partition columns."""
        return frozenset(id for id, leaf in self.now.items() if leaf.path[0] in self.partition_by)

    def _without_data(self, leaf: Leaf, row_count: int) -> ColumnBounds:
        """The bounds of a column over rows that lack it: they have its initial default or NULL."""
        known = constant_bounds(leaf, self._defaults.get(leaf.id), row_count)[0]
        if leaf.id in self._defaults and len(leaf.path) > 1:
            return replace(known, null_count=None)  # NULL where the struct is NULL
        return known

    def is_promoted(self, file: FileRecord, column_id: int) -> bool:
        """Tell whether a file holds a column in a type that is not its current one."""
        written = self.then[file.schema_version].get(column_id)
        return written is not None and not written.type.equals(self.now[column_id].type)

"""Pure. Bounds of columns as JSON (the catalog's record) and as byte keys (its search index).

Both only ever widen: a lower bound is shortened downward, an upper bound upward
or not at all, and what cannot be kept is left out, which means unknown.

Keys order as values do, byte by byte, in every database:

    int          9 bytes, big-endian, shifted: signed and unsigned share one
                 encoding, so widening an integer column keeps its keys
    bool         1 byte
    datetime     12 bytes, nanoseconds: dates and timestamps without zone;
    instant      the same for zoned timestamps; unit changes keep the keys
    time, duration   12 bytes, nanoseconds
    decimal128:s, decimal256:s   17 or 33 bytes, unscaled, per scale
    float        8 bytes, IEEE order of the double; -0.0 is 0.0; NaN comes last
    string, binary   the first bytes, up to `KEY_LIMIT`

Source: Parquet format, `Statistics` (NaN and signed zero in bounds).
"""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, TypeAlias

import pyarrow as pa

from lakehouse_source.model import ColumnBounds, FileBounds, Ordinal, RowGroupMetadata
from lakehouse_source.ordinal import (
    EPOCH,
    EPOCH_DATE,
    EXACT,
    Domain,
    domain,
    from_ordinal,
    to_ordinal,
)
from lakehouse_source.schema import Leaf

__all__ = [
    "EMPTY_LOWER",
    "EMPTY_UPPER",
    "JSON_LIMIT",
    "KEY_LIMIT",
    "UNBOUNDED_LOWER",
    "UNBOUNDED_UPPER",
    "constant_bounds",
    "decode_row_group",
    "encode_row_group",
    "encoding",
    "file_bounds",
    "from_json_value",
    "from_ordinal",
    "key",
    "over_all",
    "partition_bounds",
    "prefix_range",
    "to_json_value",
    "to_ordinal",
    "upper_key",
]

KEY_LIMIT = 32  # bytes
JSON_LIMIT = 64  # characters of text, bytes of binaries

UNBOUNDED_LOWER = b""
UNBOUNDED_UPPER = b"\xff" * 40
# The interval of a column that is all null: above everything and below everything.
EMPTY_LOWER = b"\xff" * 40
EMPTY_UPPER = b""

JsonValue: TypeAlias = "bool | int | float | str | dict[str, str]"


# --- keys -------------------------------------------------------------------

_NAN_KEY = b"\xff\xf8" + bytes(6)
_SIGN = 1 << 63


def encoding(type_: pa.DataType) -> str | None:
    """The name of the encoding of a type's keys; keys of one name compare.

    None: the type cannot be indexed.
    """
    kind = domain(type_)
    if not kind.ordered:
        return None
    if kind.kind == "decimal":
        return f"decimal{max(kind.bits, 128)}:{kind.scale}"
    if kind.kind == "timestamp":
        return "instant" if kind.zoned else "datetime"
    return "datetime" if kind.kind == "date" else kind.kind


def key(ordinal: Ordinal, type_: pa.DataType) -> bytes:
    """The key of a value, as a lower bound: text and bytes are cut."""
    return _key(ordinal, domain(type_))


def upper_key(ordinal: Ordinal, type_: pa.DataType) -> bytes:
    """The key of a value, as an upper bound: text and bytes are cut and raised."""
    return _upper_key(ordinal, domain(type_))


def _key(ordinal: Ordinal, kind: Domain) -> bytes:
    if isinstance(ordinal, bytes):
        return ordinal[:KEY_LIMIT]
    if isinstance(ordinal, float):
        return _float_key(ordinal)
    name = kind.kind
    if name == "int":
        return (ordinal + (1 << 71)).to_bytes(9, "big")
    if name == "bool":
        return ordinal.to_bytes(1, "big")
    if name == "float":
        return _float_key(float(ordinal))
    if name == "decimal":
        bits = max(kind.bits, 128) + 8
        return (ordinal + (1 << (bits - 1))).to_bytes(bits // 8, "big")
    return (ordinal * kind.unit_ns + (1 << 95)).to_bytes(12, "big")


def _upper_key(ordinal: Ordinal, kind: Domain) -> bytes:
    if isinstance(ordinal, bytes) and len(ordinal) > KEY_LIMIT:
        return _raised(ordinal[:KEY_LIMIT])
    return _key(ordinal, kind)


def _raised(cut: bytes) -> bytes:
    """A key above everything that begins with `cut`."""
    kept = cut.rstrip(b"\xff")
    return kept[:-1] + bytes((kept[-1] + 1,)) if kept else UNBOUNDED_UPPER


def _float_key(value: float) -> bytes:
    if value != value:
        return _NAN_KEY
    (bits,) = struct.unpack(">Q", struct.pack(">d", value + 0.0))
    # A negative double orders backwards by its bits.
    ordered = bits ^ (2 * _SIGN - 1) if bits & _SIGN else bits | _SIGN
    return int(ordered).to_bytes(8, "big")


def prefix_range(text: bytes, type_: pa.DataType) -> tuple[bytes, bytes]:
    """Keys between which everything lies that begins with `text`."""
    cut = text[:KEY_LIMIT]
    if domain(type_).kind == "string":
        return cut, cut + b"\xff"  # no byte of UTF-8 is 0xFF
    return cut, _raised(cut)


# --- JSON -------------------------------------------------------------------


def to_json_value(
    ordinal: Ordinal, type_: pa.DataType, *, upper: bool = False, limit: int | None = None
) -> JsonValue | None:
    """A value as JSON; with a `limit` a bound, or None where no bound can be kept.

    Text and bytes longer than `limit` are cut, an upper bound to something
    greater. Temporal values are ISO text, or counts of the unit where Python has
    no name for the year; decimals are text, bytes an object with base64 in it.
    """
    return _to_json(ordinal, domain(type_), upper, limit)


def _to_json(ordinal: Ordinal, kind: Domain, upper: bool, limit: int | None) -> JsonValue | None:
    if isinstance(ordinal, bytes):
        if kind.kind == "string":
            return _json_text(ordinal, upper, limit)
        return _json_bytes(ordinal, upper, limit)
    name = kind.kind
    if name == "float":
        return _json_float(float(ordinal))
    if isinstance(ordinal, float):
        return None
    if name == "int":
        return ordinal
    if name == "bool":
        return bool(ordinal)
    if name == "decimal":
        return f"{Decimal(ordinal).scaleb(-kind.scale, context=EXACT):f}"
    if name == "duration":
        return ordinal
    try:
        return _iso(ordinal, kind)
    except OverflowError:
        return ordinal


def _json_float(value: float) -> JsonValue | None:
    if math.isfinite(value):
        return value + 0.0
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _iso(ordinal: int, kind: Domain) -> str | int:
    if kind.kind == "date":
        return (EPOCH_DATE + timedelta(days=ordinal)).isoformat()
    seconds, rest = divmod(ordinal * kind.unit_ns, 10**9)
    fraction = f".{rest:09}".rstrip("0").rstrip(".")
    if kind.kind == "time":
        if not 0 <= seconds < 86_400:
            return ordinal
        return (EPOCH + timedelta(seconds=seconds)).time().isoformat() + fraction
    text = (EPOCH + timedelta(seconds=seconds)).isoformat() + fraction
    return text + "Z" if kind.zoned else text


def _json_text(ordinal: bytes, upper: bool, limit: int | None) -> str | None:
    try:
        text = ordinal.decode()
    except UnicodeDecodeError:  # cut in the middle of a character by its writer
        return None
    if limit is None or len(text) <= limit:
        return text
    return _raised_text(text[:limit]) if upper else text[:limit]


def _raised_text(cut: str) -> str | None:
    """Text above everything that begins with `cut`, as long as that; None: there is none."""
    last = ord(cut[-1]) + 1
    if last > 0x10FFFF:
        return None
    return cut[:-1] + chr(0xE000 if 0xD800 <= last < 0xE000 else last)


def _json_bytes(ordinal: bytes, upper: bool, limit: int | None) -> dict[str, str] | None:
    if limit is not None and len(ordinal) > limit:
        ordinal = ordinal[:limit]
        if upper:
            if ordinal[-1] == 0xFF:
                return None
            ordinal = ordinal[:-1] + bytes((ordinal[-1] + 1,))
    return {"base64": base64.b64encode(ordinal).decode("ascii")}


def from_json_value(value: Any, type_: pa.DataType) -> Ordinal | None:
    """The ordinal that `to_json_value` wrote; None where `value` is no such thing.

    Values written before a promotion are read too where they mean the same: an
    integer as a decimal, a date as its midnight.
    """
    return _from_json(value, domain(type_))


def _from_json(value: Any, kind: Domain) -> Ordinal | None:
    name = kind.kind
    try:
        if name == "int" or name == "duration":
            return value if type(value) is int else None
        if name == "float":
            if isinstance(value, str):
                return float(value)
            return float(value) + 0.0 if type(value) in (int, float) else None
        if name == "bool":
            return int(value) if isinstance(value, bool) else None
        if name == "string":
            return value.encode() if isinstance(value, str) else None
        if name == "binary":
            return base64.b64decode(value["base64"], validate=True)
        if name == "decimal":
            return _unscaled(value, kind.scale)
        if type(value) is int:
            return value if name in ("date", "timestamp", "time") else None
        return _from_iso(value, kind) if isinstance(value, str) else None
    except (ValueError, TypeError, KeyError, OverflowError, InvalidOperation):
        return None


def _unscaled(value: Any, scale: int) -> int | None:
    if type(value) is not int and not isinstance(value, str):
        return None
    shifted = Decimal(value).scaleb(scale, context=EXACT)
    whole = int(shifted)
    return whole if shifted == whole else None


_SECOND = timedelta(seconds=1)


def _from_iso(text: str, kind: Domain) -> int | None:
    if kind.kind == "date":
        return (datetime.fromisoformat(text) - EPOCH).days if len(text) == 10 else None
    text = text.removesuffix("Z")
    if kind.kind == "time":
        text = "1970-01-01T" + text
    elif len(text) == 10:
        text += "T00:00:00"
    gone = datetime.fromisoformat(text[:19]) - EPOCH
    rest = int(text[20:].ljust(9, "0")) if len(text) > 20 else 0
    count, finer = divmod((gone.days * 86_400 + gone.seconds) * 10**9 + rest, kind.unit_ns)
    return None if finer else count


# --- row groups -------------------------------------------------------------


def encode_row_group(
    columns: Iterable[tuple[Leaf, ColumnBounds]],
) -> tuple[str, str, str, str]:
    """One row group's minima, maxima, null counts and NaN marks as JSON documents.

    Their keys are field ids. What is unknown is absent; a NaN is never a bound.
    Leaves inside of lists are left out: their statistics count elements.
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
            low = _to_json(bounds.lower, kind, False, JSON_LIMIT)
            if low is not None:
                minima[name] = low
        if bounds.upper is not None:
            high = _to_json(bounds.upper, kind, True, JSON_LIMIT)
            if high is not None:
                maxima[name] = high
    return _dump(minima), _dump(maxima), _dump(null_counts), _dump(nans)


def _dump(document: Mapping[str, Any]) -> str:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


_scan_json = json.JSONDecoder().raw_decode


@lru_cache(maxsize=64)
def _document(text: str) -> dict[str, Any]:
    """A parsed document; several columns of one row group are read one after another."""
    try:
        # As `encode_row_group` writes it; half the time of json.loads.
        document, end = _scan_json(text)
    except ValueError:
        end = -1
    if end != len(text):
        try:
            document = json.loads(text)
        except ValueError:
            return {}
    return document if isinstance(document, dict) else {}


def decode_row_group(
    group: RowGroupMetadata, leaf_id: int, file_type: pa.DataType, column_type: pa.DataType
) -> ColumnBounds:
    """What a row group's record says of one column, as bounds of the column's type now.

    `file_type` is the type the file was written with; bounds are carried over to
    `column_type` where that promotion keeps their order, and unknown otherwise.
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
        lower = _from_json(low, source)
    high = _document(group.stats_max_json).get(name)
    if high is not None:
        upper = _from_json(high, source)
    if lower != lower or upper != upper:
        lower, upper, may_be_nan = None, None, source.kind == "float"
    if file_type is not column_type and file_type != column_type:
        return _promoted(
            lower, upper, null_count, group.row_count, may_be_nan, source, domain(column_type)
        )
    return ColumnBounds(lower, upper, null_count, group.row_count, may_be_nan)


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
        if may_be_nan:  # no decimal is NaN: how it is read is not ours to say
            low = high = null_count = None
    elif _carries(source, target) and source.unit_ns % target.unit_ns == 0:
        factor = source.unit_ns // target.unit_ns
        low, high = _times(lower, factor), _times(upper, factor)
        if not _fits(low, target) or not _fits(high, target):
            low = high = None  # such values cannot be carried over
    stays_nan = may_be_nan if source.kind == "float" else low is None and high is None
    return ColumnBounds(low, high, null_count, row_count, target.kind == "float" and stays_nan)


def _carries(source: Domain, target: Domain) -> bool:
    if source.kind == target.kind and source.kind in ("timestamp", "time", "duration"):
        return source.zoned == target.zoned
    return source.kind == "date" and target.kind == "timestamp" and not target.zoned


def _fits(ordinal: int | None, target: Domain) -> bool:
    return ordinal is None or target.low <= ordinal <= target.high


def _times(ordinal: Ordinal | None, factor: int) -> int | None:
    return ordinal * factor if isinstance(ordinal, int) else None


def _float_to_decimal(
    lower: Ordinal | None, upper: Ordinal | None, source: Domain, target: Domain
) -> tuple[int | None, int | None]:
    """Bounds wide enough for any way of rounding in the precision of the source."""
    mantissa = {16: 11, 32: 24}.get(source.bits, 53)

    def scaled(value: Ordinal | None, outward: int) -> int | None:
        if not isinstance(value, float) or not math.isfinite(value):
            return None
        numerator, denominator = value.as_integer_ratio()
        whole: int = numerator * 10**target.scale // denominator
        return whole + outward * (2 + (abs(whole) >> (mantissa - 4)))

    return scaled(lower, -1), scaled(upper, 1)


def is_a_value(bound: Ordinal, bounds: ColumnBounds, type_: pa.DataType) -> bool:
    """Tell whether a bound that was recorded for this type is the value of some row.

    Text and bytes shorter than `JSON_LIMIT` are whole: what is cut is as long as
    that. Floats hide NaN and, as Parquet writes them, the sign of zero.
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
    """One column's bounds over the row groups of a file that have been seen so far."""

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

    `leaves` are the columns that the file holds, with the types it holds them in;
    `types` gives, by id, the types that columns have been promoted to since, whose
    encoding the keys are to have. A column whose bounds are unknown gets the
    interval that every range meets; one that is all null the one that none does.
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
            lower = _key(merge.lower, kind)
        if merge.upper_known:
            # NaN is the greatest value of all.
            upper = _NAN_KEY if merge.may_be_nan else _upper_key(merge.upper, kind)
        if lower > upper:  # a record that contradicts itself says nothing
            lower, upper = UNBOUNDED_LOWER, UNBOUNDED_UPPER
    return FileBounds(leaf_id, lower, upper, merge.null_count, row_count, merge.may_be_nan)


def partition_bounds(leaf: Leaf, value: Any, row_count: int) -> tuple[ColumnBounds, FileBounds]:
    """What a partition value says of its column: every row of the file holds `value`.

    Raises:
        ValueError: the value is none of the column's type.
    """
    if value is None or (isinstance(value, pa.Scalar) and not value.is_valid):
        return constant_bounds(leaf, None, row_count)
    return constant_bounds(leaf, to_ordinal(value, leaf.type), row_count)


def constant_bounds(
    leaf: Leaf, ordinal: Ordinal | None, row_count: int
) -> tuple[ColumnBounds, FileBounds]:
    """`partition_bounds` of a value that is an ordinal already; None is NULL."""
    kind = domain(leaf.type)
    if ordinal is None:
        known = ColumnBounds(None, None, row_count, row_count, False)
        empty = FileBounds(leaf.id, EMPTY_LOWER, EMPTY_UPPER, row_count, row_count, False)
        return known, empty
    if ordinal != ordinal:
        known = ColumnBounds(None, None, 0, row_count, True)
        return known, FileBounds(leaf.id, _NAN_KEY, _NAN_KEY, 0, row_count, True)
    lower, upper = _key(ordinal, kind), _upper_key(ordinal, kind)
    known = ColumnBounds(ordinal, ordinal, 0, row_count, False)
    return known, FileBounds(leaf.id, lower, upper, 0, row_count, False)

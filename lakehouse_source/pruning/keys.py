"""Pure. The catalog's search index: byte keys of values, its columns, and what it is asked.

They order as values do, byte by byte, in every database:

    int          9 bytes, big-endian, shifted: signed and unsigned share one
                 encoding, so widening an integer column keeps its keys
    bool         1 byte
    datetime     12 bytes, nanoseconds: dates and timestamps without zone;
    instant      the same for zoned timestamps; unit changes keep the keys
    time, duration   12 bytes, nanoseconds
    decimal128:s, decimal256:s   17 or 33 bytes, unscaled, per scale
    float        8 bytes, IEEE order of the double; -0.0 is 0.0; NaN comes last
    string, binary   the first bytes, up to `KEY_LIMIT`

Keys of text and bytes are cut, but this never narrows a range: a cut key is a lower bound, and a
cut and raised key is an upper bound.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TypeAlias

import pyarrow as pa

from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.model import Ordinal
from lakehouse_source.properties import DatasetProperties
from lakehouse_source.schema.fields import Leaf, find_field, leaves
from lakehouse_source.schema.ordinal import Domain, domain

KEY_LIMIT = 32  # bytes

UNBOUNDED_LOWER = b""
UNBOUNDED_UPPER = b"\xff" * 40
# The interval of an all-null column, which no range of keys overlaps.
EMPTY_LOWER = b"\xff" * 40
EMPTY_UPPER = b""
NAN_KEY = b"\xff\xf8" + bytes(6)
_SIGN = 1 << 63


def encoding(type_: pa.DataType) -> str | None:
    """The name of the encoding of a type's keys; keys with the same name can be compared.

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
    return key_of(ordinal, domain(type_))


def upper_key(ordinal: Ordinal, type_: pa.DataType) -> bytes:
    """The key of a value, as an upper bound: text and bytes are cut and raised."""
    return upper_key_of(ordinal, domain(type_))


def key_of(ordinal: Ordinal, kind: Domain) -> bytes:
    """`key`, for a value of a domain."""
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


def upper_key_of(ordinal: Ordinal, kind: Domain) -> bytes:
    """`upper_key`, for a value of a domain."""
    if isinstance(ordinal, bytes) and len(ordinal) > KEY_LIMIT:
        return _raised(ordinal[:KEY_LIMIT])
    return key_of(ordinal, kind)


def _raised(cut: bytes) -> bytes:
    """A key above everything that begins with `cut`."""
    kept = cut.rstrip(b"\xff")
    return kept[:-1] + bytes((kept[-1] + 1,)) if kept else UNBOUNDED_UPPER


def _float_key(value: float) -> bytes:
    if value != value:
        return NAN_KEY
    (bits,) = struct.unpack(">Q", struct.pack(">d", value + 0.0))
    # A negative double orders backwards by its bits.
    ordered = bits ^ (2 * _SIGN - 1) if bits & _SIGN else bits | _SIGN
    return int(ordered).to_bytes(8, "big")


def ordinal_of_key(key: bytes, kind: Domain) -> Ordinal | None:
    """The value of a key; for text and bytes the key itself, which may be cut.

    None: the key is not that of a value of the domain, such as a key that means "unknown".
    """
    name = kind.kind
    if name in ("string", "binary"):
        return key if len(key) <= KEY_LIMIT else None
    number = int.from_bytes(key, "big")
    if name == "float":
        if len(key) != 8 or key == NAN_KEY:
            return None
        bits = number ^ _SIGN if number & _SIGN else number ^ (2 * _SIGN - 1)
        return float(struct.unpack(">d", struct.pack(">Q", bits))[0])
    if name == "bool":
        return number if len(key) == 1 else None
    if name == "int":
        return number - (1 << 71) if len(key) == 9 else None
    if name == "decimal":
        bits = max(kind.bits, 128) + 8
        return number - (1 << (bits - 1)) if len(key) == bits // 8 else None
    if len(key) != 12:
        return None
    count, finer = divmod(number - (1 << 95), kind.unit_ns)
    return None if finer else count


def prefix_range(text: bytes, type_: pa.DataType) -> tuple[bytes, bytes]:
    """Two keys between which all texts lie that begin with `text`."""
    cut = text[:KEY_LIMIT]
    if domain(type_).kind == "string":
        return cut, cut + b"\xff"  # no byte of UTF-8 is 0xFF
    return cut, _raised(cut)


# --- Which columns the search index covers.
#
# By default: the first 32 leaf columns whose values can be made into keys. The first write of a
# dataset, or `set_properties` later, can name other columns; a struct stands for all its fields.
# Partition columns are always covered. A column that is added joins the index or does not; every
# file that holds a covered column has keys of it.


DEFAULT_COUNT = 32


def can_be_indexed(leaf: Leaf) -> bool:
    """Tell whether keys can be made of a column: it has one ordered value per row."""
    return encoding(leaf.type) is not None and not leaf.in_list and leaf.column_id is None


def is_wanted(
    leaf: Leaf, names: Sequence[str] | None, indexed: int, partition_by: Sequence[str]
) -> bool:
    """Tell whether a new column joins the index, which already covers `indexed` columns."""
    if leaf.column_id is not None:
        return True  # a path of VARIANT, which was named
    if not can_be_indexed(leaf):
        return False
    if leaf.path[0] in partition_by:
        return True
    return indexed < DEFAULT_COUNT if names is None else any(_is_named(leaf, n) for n in names)


def _is_named(leaf: Leaf, name: str) -> bool:
    path, name = ".".join(leaf.path).lower(), name.lower()
    return path == name or path.startswith(name + ".")


def check_index_columns(
    schema: pa.Schema,
    names: Sequence[str] | None,
    properties: DatasetProperties | None,
    partition_by: Sequence[str],
    dataset: str,
) -> None:
    """Check that columns can be indexed, and that the dataset indexes them.

    `properties` is None for a new dataset.
    """
    if names is None:
        return
    every = list(leaves(schema))
    for name in names:
        named = [leaf for leaf in every if _is_named(leaf, name)]
        if named and any(can_be_indexed(leaf) for leaf in named):
            continue
        reason = "has no values that can be ordered." if named else "is not a column."
        if find_field(name, schema) is not None:
            reason = "has no values that can be ordered."
        known = [".".join(leaf.path) for leaf in every if can_be_indexed(leaf)]
        raise InvalidOptionError(option="indexColumns", value=name, reason=reason, known=known)
    if properties is None or same_index_columns(schema, names, properties, partition_by):
        return
    own = {leaf.id: ".".join(leaf.path) for leaf in every}
    has = [own[id] for id in properties.indexed_columns if id in own]
    raise InvalidOptionError(
        option="indexColumns",
        value=", ".join(names),
        reason=f"does not match the indexed columns of {dataset} ({', '.join(has) or 'none'}), "
        "which set_properties changes. Leave the option out.",
    )


def same_index_columns(
    schema: pa.Schema,
    names: Sequence[str],
    properties: DatasetProperties,
    partition_by: Sequence[str],
) -> bool:
    """Tell whether the index of a dataset covers exactly the columns in `names`."""
    first = properties.index_columns
    if first is not None and {n.lower() for n in first} == {n.lower() for n in names}:
        return True
    every = list(leaves(schema))
    wanted = {leaf.id for leaf in every if is_wanted(leaf, names, 0, partition_by)}
    return wanted == {leaf.id for leaf in every}.intersection(properties.indexed_columns)


# --- Levels of the search index: files grouped by how far apart their keys are.
#
# A file's level is the number of leading hexadecimal digits that its lower and upper keys share. If
# a file of a level has a lower key up to `highest`, its upper key begins with digits that are not
# above those of `highest`, and the search of the level stops there. A level below the true level is
# correct too, but makes a search read more files.
#
# Source: the relational interval tree (Kriegel, Poetke, Seidl, VLDB 2000), whose nodes have two
# children; with sixteen a search asks for a quarter of the levels.


# Above every key, because keys have at most 40 bytes. A prefix followed by this text is above all
# keys with the prefix.
ABOVE = b"\xff" * 48


def level(lower: bytes, upper: bytes) -> int:
    """The length in hexadecimal digits of the common prefix of two keys."""
    size = min(len(lower), len(upper))
    different = int.from_bytes(lower[:size], "big") ^ int.from_bytes(upper[:size], "big")
    return (8 * size - different.bit_length()) // 4


def last_of_level(highest: bytes, level: int) -> bytes:
    """The largest possible upper key of a file of a level whose lower key is up to `highest`."""
    whole, half = divmod(level, 2)
    if half and len(highest) > whole:
        return highest[:whole] + bytes((highest[whole] | 0x0F,)) + ABOVE
    return highest[:whole] + ABOVE


def spans(
    ranges: Sequence[tuple[bytes, bytes]], level: int
) -> list[tuple[int, bytes, bytes, bytes]]:
    """Where to find the files of a level that overlap one of the ascending, disjoint `ranges`.

    Each span is `(level, first, last, highest)`: the files wanted have an upper key from
    `first` to `last` and a lower key up to `highest`. Spans do not overlap.
    """
    result: list[tuple[int, bytes, bytes, bytes]] = []
    first, last, highest = b"", b"", b""
    for lower, upper in ranges:
        if last and lower <= last:
            last, highest = last_of_level(upper, level), upper
            continue
        if last:
            result.append((level, first, last, highest))
        first, last, highest = lower, last_of_level(upper, level), upper
    if last:
        result.append((level, first, last, highest))
    return result


# --- What the search index is asked: ranges of byte keys, and AND and OR of such terms.


# The lowest and the highest key of a range; both belong to it.
Span: TypeAlias = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Keys between `lower` and `upper`, both inclusive; None is unbounded."""

    lower: bytes | None
    upper: bytes | None


@dataclass(frozen=True, slots=True)
class SearchRanges:
    """Files whose bounds of `column_id` overlap at least one of `ranges`.

    A file that has no row in the index for that column does not match, because it holds
    no value of the column.
    """

    column_id: int
    ranges: tuple[KeyRange, ...]


@dataclass(frozen=True, slots=True)
class SearchAll:
    """Files that match every one of `terms` (at least one)."""

    terms: tuple[Search, ...]


@dataclass(frozen=True, slots=True)
class SearchAny:
    """Files that match at least one of `terms` (at least one)."""

    terms: tuple[Search, ...]


Search: TypeAlias = SearchRanges | SearchAll | SearchAny


def disjoint(ranges: Iterable[KeyRange]) -> list[Span]:
    """The same keys as ranges that are ordered and do not overlap.

    A missing lower key becomes the empty key, which is below all others, and a missing
    upper key becomes `ABOVE`.
    """
    merged: list[Span] = []
    pairs = ((r.lower or b"", ABOVE if r.upper is None else r.upper) for r in ranges)
    for lower, upper in sorted(pairs, key=itemgetter(0)):
        if lower > upper:
            continue
        if merged and lower <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], upper))
        else:
            merged.append((lower, upper))
    return merged


def one_per_column(terms: Iterable[Search]) -> list[Search]:
    """The terms of an OR without ORs among them; ranges of one column become one term."""
    ranges: dict[int, list[KeyRange]] = {}
    others: list[Search] = []
    for term in _flat(terms):
        if isinstance(term, SearchRanges):
            ranges.setdefault(term.column_id, []).extend(term.ranges)
        else:
            others.append(term)
    return [*(SearchRanges(column, tuple(found)) for column, found in ranges.items()), *others]


def _flat(terms: Iterable[Search]) -> Iterator[Search]:
    for term in terms:
        if isinstance(term, SearchAny):
            yield from _flat(term.terms)
        else:
            yield term

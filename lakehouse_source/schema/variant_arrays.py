"""Pure. Many values of VARIANT at once: where their parts are, and objects made of parts.

The bytes of all rows are one numpy array, and a step is made for all rows together. As in
`variant_bytes.py`, any bytes give a value or an error: each part has to lie inside of its row.

Source: Parquet format, VariantEncoding.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from lakehouse_source.schema.variant_bytes import BrokenValue, Names
from lakehouse_source.schema.variant_values import (
    ARRAY,
    BINARY,
    DECIMALS,
    EMPTY_METADATA,
    OBJECT,
    PRIMITIVE,
    SHORT_TEXT,
    SIZES,
    TEXT,
)

Numbers: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
Bytes: TypeAlias = "np.ndarray[Any, np.dtype[np.uint8]]"
Truths: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"

_LONG, _CONTAINER = -1, -2
_BINARY = pa.binary()
_IN_VIEW = 12


def _size_of_head(head: int) -> int:
    kind, type_ = head & 3, head >> 2
    if kind == SHORT_TEXT:
        return 1 + type_
    if kind != PRIMITIVE:
        return _CONTAINER
    if type_ in (TEXT, BINARY):
        return _LONG
    return 2 + DECIMALS[type_][0] if type_ in DECIMALS else 1 + SIZES.get(type_, 0)


_SIZE_OF_HEAD = np.array([_size_of_head(head) for head in range(256)], np.int64)


def truths(array: pa.Array) -> Truths:
    """An array of bool without NULL."""
    return np.asarray(array.to_numpy(zero_copy_only=False), np.bool_)


def unsigned(data: Bytes, at: Numbers, width: int) -> Numbers:
    """The unsigned number of some bytes at each place."""
    found = np.zeros(len(at), np.int64)
    for byte in range(width):
        found |= data[at + byte].astype(np.int64) << (8 * byte)
    return found


def _counted(counts: Numbers) -> tuple[Numbers, Numbers]:
    """For each of `counts` things of a row: the row, and the number of the thing in it."""
    rows = np.repeat(np.arange(len(counts)), counts)
    return rows, np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)


def gathered(data: Bytes, starts: Numbers, sizes: Numbers) -> Bytes:
    """The pieces, one after the other.

    Raises:
        BrokenValue: a piece lies outside of the data.
    """
    if ((sizes < 0) | (sizes > 0) & ((starts < 0) | (starts + sizes > len(data)))).any():
        raise BrokenValue("a part lies outside of it")
    total = int(sizes.sum())
    if len(data) >= 1 << 31:  # beyond the offsets of Arrow's views
        found = np.repeat(starts - (np.cumsum(sizes) - sizes), sizes)
        found += np.arange(total)
        return data.take(found)
    # Arrow copies piece by piece, and numpy byte by byte. A view of up to 12 bytes holds these.
    views = np.zeros((len(starts), 4), np.int32)
    views[:, 0], views[:, 3] = sizes, starts
    short = np.flatnonzero(sizes <= _IN_VIEW)
    if total and len(short):
        places = starts[short, None] + np.arange(_IN_VIEW)
        views.view(np.uint8)[short, 4:] = data.take(places, mode="clip")
    buffers = [None, pa.py_buffer(views), pa.py_buffer(data)]
    copied = pa.Array.from_buffers(pa.binary_view(), len(views), buffers).cast(pa.large_binary())
    content = copied.buffers()[2]
    return np.zeros(0, np.uint8) if content is None else np.frombuffer(content, np.uint8)[:total]


def value_sizes(data: Bytes, at: Numbers) -> Numbers:
    """The size of the value at each place."""
    heads = data[at]
    found = _SIZE_OF_HEAD[heads]
    long = np.flatnonzero(found == _LONG)
    if len(long):
        found[long] = 5 + unsigned(data, at[long] + 1, 4)
    rows = np.flatnonzero(found == _CONTAINER)
    for head in np.flatnonzero(np.bincount(heads[rows], minlength=256)):
        some = rows[heads[rows] == head]
        layout = _Layout.of(data, at[some], int(head))
        found[some] = layout.data - at[some] + layout.size
    return found


@dataclass(frozen=True, slots=True)
class _Layout:
    """The layout of objects, or of arrays, with the same first byte."""

    id_width: int
    offset_width: int
    count: Numbers
    ids: Numbers
    offsets: Numbers
    data: Numbers
    size: Numbers

    @classmethod
    def of(cls, data: Bytes, at: Numbers, head: int) -> _Layout:
        header, is_object = head >> 2, head & 3 == OBJECT
        large = header >> 4 & 1 if is_object else header >> 2 & 1
        id_width = (header >> 2 & 3) + 1 if is_object else 0
        width, size = (header & 3) + 1, 4 if large else 1
        count = unsigned(data, at + 1, size)
        ids = at + 1 + size
        offsets = ids + id_width * count
        end = unsigned(data, offsets + width * count, width)
        return cls(id_width, width, count, ids, offsets, offsets + width * (count + 1), end)


@dataclass(frozen=True, slots=True)
class Parts:
    """One value per row, somewhere in `data`; rows that are not `present` have none."""

    data: Bytes
    starts: Numbers
    sizes: Numbers
    present: Truths

    @classmethod
    def of(cls, array: pa.Array) -> Parts:
        """The values of a column of bytes or texts."""
        wide = pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type)
        _, offsets, data = array.buffers()
        kind = np.int64 if wide else np.int32
        if len(array) == 0 or offsets is None:
            nothing = np.zeros(0, np.int64)
            return cls(np.zeros(0, np.uint8), nothing, nothing, np.zeros(0, np.bool_))
        ends = np.frombuffer(offsets, kind)[array.offset : array.offset + len(array) + 1]
        ends = ends.astype(np.int64)
        content = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
        return cls(content, ends[:-1], np.diff(ends), truths(array.is_valid()))

    @classmethod
    def in_slots(cls, slots: Bytes, sizes: Numbers, present: Truths) -> Parts:
        """Values that begin at the places of a matrix with a line for each row."""
        starts = np.arange(len(slots)) * slots.shape[1]
        return cls(slots.reshape(-1), starts, sizes, present)

    @classmethod
    def none(cls, count: int) -> Parts:
        """No value in any row."""
        starts, sizes = np.zeros((2, count), np.int64)
        return cls(np.zeros(0, np.uint8), starts, sizes, np.zeros(count, np.bool_))

    def of_fields(self, fields: Fields, places: Numbers) -> Parts:
        """The parts of some fields of the objects of these rows, at most one of each.

        Raises:
            BrokenValue: an object has two of them.
        """
        rows = fields.rows[places]
        starts, sizes = np.zeros((2, len(self.starts)), np.int64)
        present = np.zeros(len(starts), np.bool_)
        starts[rows], sizes[rows], present[rows] = fields.starts[places], fields.sizes[places], True
        if np.count_nonzero(present) < len(rows):
            raise BrokenValue("an object has a key twice")
        return Parts(self.data, starts, sizes, present)

    @classmethod
    def together(cls, parts: Sequence[Parts]) -> list[Parts]:
        """The same parts, all in the same data."""
        data = np.concatenate([one.data for one in parts])
        moved = np.cumsum([0, *(len(one.data) for one in parts)])
        return [
            cls(data, one.starts + shift, one.sizes, one.present)
            for one, shift in zip(parts, moved)
        ]

    def array(self, type_: pa.DataType = _BINARY) -> pa.Array:
        """As a column of bytes, or of texts, which are checked.

        Raises:
            BrokenValue: a text is not UTF-8.
        """
        sizes = np.where(self.present, self.sizes, 0)
        ends = np.concatenate([[0], np.cumsum(sizes)])
        if ends[-1] >= 1 << 31:
            raise BrokenValue("more than 2 GiB of values are in one batch; write smaller batches")
        data = gathered(self.data, self.starts, sizes)
        mask = None if self.present.all() else pa.py_buffer(_bits(self.present))
        buffers = [mask, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(data)]
        found = pa.Array.from_buffers(type_, len(sizes), buffers)
        if pa.types.is_string(type_):
            try:
                found.validate(full=True)
            except pa.ArrowInvalid:
                raise BrokenValue("a text is not UTF-8") from None
        return found

    def heads(self) -> Bytes:
        """The first byte of each value; of rows without a value that of an unknown type."""
        found = np.full(len(self.starts), 0xFC, np.uint8)
        rows = np.flatnonzero(self.present)
        if len(rows) and int(self.sizes[rows].min()) < 1:
            raise BrokenValue("it is empty")
        found[rows] = self.data[self.starts[rows]]
        return found

    def where(self, mask: Truths, other: Parts) -> Parts:
        """The values of these parts where `mask` is, and else those of the other ones."""
        mine, others = Parts.together([self, other])
        pairs = ((mine.starts, others.starts), (mine.sizes, others.sizes))
        starts, sizes = (np.where(mask, one, two) for one, two in pairs)
        return Parts(mine.data, starts, sizes, np.where(mask, self.present, other.present))

    def or_json_null(self) -> Parts:
        """These values, and JSON's null in rows without one."""
        null, zeros = np.zeros(1, np.uint8), np.zeros_like(self.starts)
        every = np.ones_like(self.present)
        return self.where(self.present, Parts(null, zeros, zeros + 1, every))

    def only(self, mask: Truths) -> Parts:
        """These values, where `mask` is."""
        return Parts(self.data, self.starts, self.sizes, self.present & mask)


def _bits(mask: Truths) -> Bytes:
    return np.packbits(mask, bitorder="little")


def masked(type_: pa.DataType, values: Any, present: Truths) -> pa.Array:
    """An array of a type of fixed width from its memory; NULL where there is no value."""
    buffers = [pa.py_buffer(_bits(present)), pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(type_, len(present), buffers)


@dataclass(frozen=True, slots=True)
class Fields:
    """Fields of many objects: the row, the name and its number in the dictionary, the part."""

    rows: Numbers
    names: Numbers
    ids: Numbers
    starts: Numbers
    sizes: Numbers

    def taken(self, places: Any) -> Fields:
        """Some of the fields."""
        every = (self.rows, self.names, self.ids, self.starts, self.sizes)
        return Fields(*(one[places] for one in every))

    @classmethod
    def joined(cls, parts: Iterable[Fields]) -> Fields:
        """The fields of all parts."""
        columns = zip(*((one.rows, one.names, one.ids, one.starts, one.sizes) for one in parts))
        return cls(*(np.concatenate(column) for column in columns))


class Dictionaries:
    """The names of rows: rows share dictionaries, and each name has one number for all of them."""

    def __init__(self, metadata: pa.Array) -> None:
        encoded = metadata.dictionary_encode()
        known = encoded.dictionary.to_pylist() or [EMPTY_METADATA]
        self.names = [Names(one) for one in known]
        codes = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False)
        self.codes: Numbers = np.asarray(codes, np.int64)
        self._numbers: dict[str, int] = {}
        flat = [self.number(text) for one in self.names for text in one.texts]
        self._flat = np.array(flat, np.int64)
        counts = np.array([len(one.texts) for one in self.names], np.int64)
        self._counts, self._starts = counts, np.cumsum(counts) - counts

    def number(self, name: str) -> int:
        """The number of a name among those of all rows."""
        return self._numbers.setdefault(name, len(self._numbers))

    def text(self, number: int) -> str:
        """The name of a number."""
        return next(name for name, one in self._numbers.items() if one == number)

    def ids(self, name: str, codes: Numbers) -> Numbers:
        """The number of a name in each of some dictionaries, which it joins if it lacks."""
        table = np.zeros(len(self.names), np.int64)
        for code in np.flatnonzero(np.bincount(codes, minlength=len(self.names))):
            table[code] = self.names[code].id(name)
        return table[codes]

    def ranks(self) -> Numbers:
        """The place of each name in the order that objects have their fields in."""
        ordered = sorted(self._numbers, key=str.encode)
        found = np.empty(len(ordered), np.int64)
        found[[self._numbers[name] for name in ordered]] = np.arange(len(ordered))
        return found

    def metadata(self) -> pa.Array:
        """The dictionary of each row."""
        return pa.array([one.metadata for one in self.names], pa.binary()).take(
            pa.array(self.codes)
        )

    def fields(self, parts: Parts, codes: Numbers) -> Fields:
        """The fields of the rows that are objects.

        Raises:
            BrokenValue: a part lies outside of its object or in another part, or a name is unknown.
        """
        data, heads = parts.data, parts.heads()
        found = [Fields(*(np.zeros(0, np.int64) for _ in range(5)))]
        is_object = heads & 3 == OBJECT
        for head in np.flatnonzero(np.bincount(heads[is_object], minlength=256)):
            rows = np.flatnonzero(is_object & (heads == head))
            at, limit = parts.starts[rows], parts.starts[rows] + parts.sizes[rows]
            layout = _Layout.of(data, at, int(head))
            end = layout.data + layout.size
            if (end > limit).any():
                raise BrokenValue("it ends early")
            place, number = _counted(layout.count)
            ids = unsigned(data, layout.ids[place] + number * layout.id_width, layout.id_width)
            offsets = layout.offsets[place] + number * layout.offset_width
            starts = unsigned(data, offsets, layout.offset_width)
            if (starts >= layout.size[place]).any():
                raise BrokenValue("a part lies outside of it")
            starts += layout.data[place]
            sizes = value_sizes(data, starts)
            own = codes[rows][place]
            if (starts + sizes > end[place]).any():
                raise BrokenValue("a part lies outside of it")
            # Copies of one part in each field would take many times the bytes of the value.
            if (np.bincount(place, sizes, len(rows)) > layout.size).any():
                raise BrokenValue("its parts overlap, or it is empty")
            if (ids >= self._counts[own]).any():
                raise BrokenValue("it names a field that its dictionary lacks")
            names = self._flat[self._starts[own] + ids]
            found.append(Fields(rows[place], names, ids, starts, sizes))
        return Fields.joined(found)


def containers(data: Bytes, count: int, fields: Fields, *, is_object: bool) -> Parts:
    """An object or an array for each of `count` rows from its fields, in the order given.

    The fields of a row stand together, and the rows in their order. Widths are the least.
    """
    counts = np.bincount(fields.rows, minlength=count).astype(np.int64)
    bounds = np.concatenate([[0], np.cumsum(counts)])
    ends = np.concatenate([[0], np.cumsum(fields.sizes)])
    sizes = ends[bounds[1:]] - ends[bounds[:-1]]
    offsets = ends[:-1] - ends[bounds[:-1]][fields.rows]
    number = np.arange(len(fields.rows)) - bounds[:-1][fields.rows]
    large = (counts > 0xFF).astype(np.int64)
    width, id_width = _widths(sizes), np.zeros(count, np.int64)
    if is_object:
        most = np.zeros(count, np.int64)
        filled = np.flatnonzero(counts)
        most[filled] = np.maximum.reduceat(fields.ids, bounds[filled]) if len(filled) else 0
        id_width = _widths(most)
        heads = (large << 4 | (id_width - 1) << 2 | width - 1) << 2 | OBJECT
    else:
        heads = (large << 2 | width - 1) << 2 | ARRAY
    size = np.where(large, 4, 1)
    lengths = 1 + size + counts * id_width + (counts + 1) * width
    begins = np.cumsum(lengths) - lengths
    buffer = np.zeros(int(lengths.sum()), np.uint8)
    buffer[begins] = heads
    _put(buffer, begins + 1, counts, size)
    ids = begins + 1 + size
    own = fields.rows
    _put(buffer, ids[own] + number * id_width[own], fields.ids, id_width[own])
    starts = ids + counts * id_width
    _put(buffer, starts[own] + number * width[own], offsets, width[own])
    _put(buffer, starts + counts * width, sizes, width)
    # Each row is its head, and then its parts.
    pieces = np.zeros((2, count + len(own)), np.int64)
    at_head = np.arange(count) + bounds[:-1]
    pieces[:, at_head] = begins + len(data), lengths
    pieces[:, np.arange(len(own)) + own + 1] = fields.starts, fields.sizes
    whole = gathered(np.concatenate([data, buffer]), pieces[0], pieces[1])
    total = lengths + sizes
    return Parts(whole, np.cumsum(total) - total, total, np.ones(count, np.bool_))


def _widths(numbers: Numbers) -> Numbers:
    """The least number of bytes that a number takes."""
    return np.searchsorted([1 << bits for bits in (8, 16, 24)], numbers, side="right") + 1


def _put(buffer: Bytes, at: Numbers, numbers: Numbers, widths: Numbers) -> None:
    for byte in range(int(widths.max(initial=0))):
        rows = widths > byte
        buffer[at[rows] + byte] = numbers[rows] >> (8 * byte) & 0xFF

"""Pure. Values of VARIANT: the bytes of one value as Python objects and JSON, and paths into them.

The bytes may come from strangers. Each offset and each length is checked, and a value whose parts
overlap ends where it has more parts than bytes: any bytes give an object or an error.

Source: Parquet format, VariantEncoding.md.
"""

from __future__ import annotations

import base64
import json
import math
import struct
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

from lakehouse_source.errors import CorruptDatasetError
from lakehouse_source.schema.variant_values import (
    ARRAY,
    BINARY,
    DATE,
    DECIMALS,
    DIGITS,
    DOUBLE,
    EPOCH,
    EPOCH_DATE,
    FALSE,
    FLOAT,
    INTEGERS,
    MOMENTS,
    MOST_DEPTH,
    NULL,
    OBJECT,
    PRIMITIVE,
    SHORT_TEXT,
    SIZES,
    TEXT,
    TIME,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    TRUE,
    UUID,
    ZONED,
    metadata_bytes,
    primitive,
)


class BrokenValue(ValueError):
    """Bytes that are no value of VARIANT."""


def decode(metadata: bytes, value: bytes) -> Any:
    """The Python object of a value.

    Moments and dates for which Python has no object (years outside of 1 to 9999, parts of a
    microsecond) are texts, as in JSON.

    Raises:
        CorruptDatasetError: the bytes are no value of VARIANT.
    """
    with checked():
        return _Decoder(metadata, value).value(0, 0)


def decode_json(metadata: bytes, value: bytes) -> str:
    """The value as JSON text, as Spark's `to_json` has it; timestamps are in UTC.

    Raises:
        CorruptDatasetError: the bytes are no value of VARIANT.
    """
    found = decode(metadata, value)
    parts: list[str] = []
    _write_json(found, parts)
    return "".join(parts)


@contextmanager
def checked() -> Iterator[None]:
    """Raise what broken bytes cause as an error of the value.

    Raises:
        CorruptDatasetError: instead.
    """
    try:
        yield
    except (BrokenValue, IndexError, struct.error, UnicodeDecodeError, RecursionError) as error:
        reason = str(error) if isinstance(error, BrokenValue) else f"its bytes are broken ({error})"
        raise CorruptDatasetError(path="a value of VARIANT", reason=reason) from error


class _Decoder:
    def __init__(self, metadata: bytes, value: bytes) -> None:
        self.data = value
        # Each part takes a byte or more, unless parts overlap.
        self.left = len(value)
        head = metadata[0] if metadata else 0
        if head & 0x0F != 1:
            raise BrokenValue(f"its metadata has version {head & 0x0F}, not 1")
        width = (head >> 6) + 1
        self.names = _Numbers(metadata, 1, width, 1).at(0)
        start = 1 + width * (self.names + 2)
        self.name_offsets = _Numbers(metadata, 1 + width, width, self.names + 1)
        self.name_texts = metadata[start:]
        self.known: dict[int, str] = {}

    def name(self, id: int) -> str:
        if id not in self.known:
            if id >= self.names:
                raise BrokenValue(f"it names field {id} of a dictionary of {self.names}")
            first, end = self.name_offsets.at(id), self.name_offsets.at(id + 1)
            if not first <= end <= len(self.name_texts):
                raise BrokenValue("a name lies outside of its metadata")
            self.known[id] = self.name_texts[first:end].decode()
        return self.known[id]

    def take(self, at: int, size: int) -> bytes:
        if at + size > len(self.data):
            raise BrokenValue("it ends early")
        return self.data[at : at + size]

    def value(self, at: int, depth: int) -> Any:
        self.left -= 1
        if self.left < 0:
            raise BrokenValue("its parts overlap, or it is empty")
        if depth > MOST_DEPTH:
            raise BrokenValue(f"it is nested deeper than {MOST_DEPTH} levels")
        if at >= len(self.data):
            raise BrokenValue("it ends early")
        kind, header = self.data[at] & 3, self.data[at] >> 2
        if kind == SHORT_TEXT:
            return self.take(at + 1, header).decode()
        if kind == PRIMITIVE:
            return self.primitive(header, at + 1)
        if kind == OBJECT:
            numbers, parts = self.layout(at + 1, header >> 4 & 1, header & 3, (header >> 2 & 3) + 1)
            found = {self.name(id): self.value(part, depth + 1) for id, part in zip(numbers, parts)}
            if len(found) < len(parts):
                raise BrokenValue("an object has a key twice")
            return found
        _, parts = self.layout(at + 1, header >> 2 & 1, header & 3, 0)
        return [self.value(part, depth + 1) for part in parts]

    def end(self, at: int) -> int:
        """Where a part ends."""
        kind, header = self.take(at, 1)[0] & 3, self.data[at] >> 2
        if kind == SHORT_TEXT:
            return at + 1 + header
        if kind == PRIMITIVE:
            if header in (TEXT, BINARY):
                return at + 5 + int.from_bytes(self.take(at + 1, 4), "little")
            if header in DECIMALS:
                return at + 2 + DECIMALS[header][0]
            return at + 1 + SIZES.get(header, 0)
        is_large, id_width = header >> 2 & 1, 0
        if kind == OBJECT:
            is_large, id_width = header >> 4 & 1, (header >> 2 & 3) + 1
        size, width = 4 if is_large else 1, (header & 3) + 1
        count = int.from_bytes(self.take(at + 1, size), "little")
        offsets = _Numbers(self.data, at + 1 + size + id_width * count, width, count + 1)
        return offsets.start + width * (count + 1) + offsets.at(count)

    def part(self, at: int, step: int | frozenset[int]) -> int | None:
        """Where the part of an object or an array begins that a step of a path leads to."""
        kind, header = self.take(at, 1)[0] & 3, self.data[at] >> 2
        if kind != (ARRAY if isinstance(step, int) else OBJECT):
            return None
        is_large, id_width = header >> 2 & 1, 0
        if kind == OBJECT:
            is_large, id_width = header >> 4 & 1, (header >> 2 & 3) + 1
        size, width = 4 if is_large else 1, (header & 3) + 1
        count = int.from_bytes(self.take(at + 1, size), "little")
        ids = _Numbers(self.data, at + 1 + size, id_width, count)
        offsets = _Numbers(self.data, ids.start + id_width * count, width, count + 1)
        if isinstance(step, int):
            place = step if step < count else None
        else:
            place = next((n for n in range(count) if ids.at(n) in step), None) if step else None
        if place is None:
            return None
        start, end = offsets.start + width * (count + 1), offsets.at(count)
        if offsets.at(place) >= end or start + end > len(self.data):
            raise BrokenValue("a part lies outside of it")
        return start + offsets.at(place)

    def layout(
        self, at: int, is_large: int, offset: int, id_width: int
    ) -> tuple[list[int], list[int]]:
        """The ids of the fields, and where each part begins."""
        size, width = 4 if is_large else 1, offset + 1
        count = int.from_bytes(self.take(at, size), "little")
        ids = _Numbers(self.data, at + size, id_width, count)
        offsets = _Numbers(self.data, at + size + id_width * count, width, count + 1)
        start = at + size + id_width * count + width * (count + 1)
        end = offsets.at(count)
        if start + end > len(self.data):
            raise BrokenValue("it ends early")
        found = [offsets.at(n) for n in range(count)]
        if any(one >= end for one in found):
            raise BrokenValue("a part lies outside of it")
        return [ids.at(n) for n in range(count)] if id_width else [], [start + n for n in found]

    def primitive(self, type_: int, at: int) -> Any:
        if type_ <= FALSE:
            return (None, True, False)[type_]
        if type_ in INTEGERS:
            return int.from_bytes(self.take(at, INTEGERS[type_]), "little", signed=True)
        if type_ in DECIMALS:
            return self.decimal(type_, at)
        if type_ in (TEXT, BINARY):
            content = self.take(at + 4, int.from_bytes(self.take(at, 4), "little"))
            return content.decode() if type_ == TEXT else content
        if type_ in (DOUBLE, FLOAT):
            code, size = ("<d", 8) if type_ == DOUBLE else ("<f", 4)
            return struct.unpack(code, self.take(at, size))[0]
        if type_ == DATE:
            return _date(int.from_bytes(self.take(at, 4), "little", signed=True))
        if type_ in MOMENTS:
            count = int.from_bytes(self.take(at, 8), "little", signed=True)
            return _moment(count * MOMENTS[type_], type_ in ZONED)
        if type_ == TIME:
            count = int.from_bytes(self.take(at, 8), "little", signed=True)
            if not 0 <= count < 86_400 * 10**6:
                raise BrokenValue(f"a time of day has {count} microseconds")
            return (EPOCH + timedelta(microseconds=count)).time()
        if type_ == UUID:
            return uuid.UUID(bytes=self.take(at, 16))
        raise BrokenValue(f"it has a value of type {type_}, which this version does not know")

    def decimal(self, type_: int, at: int) -> Decimal:
        width, _ = DECIMALS[type_]
        scale = self.take(at, 1)[0]
        unscaled = int.from_bytes(self.take(at + 1, width), "little", signed=True)
        if scale > DIGITS or abs(unscaled) >= 10**DIGITS:
            raise BrokenValue(f"a decimal has more than {DIGITS} digits")
        digits = tuple(map(int, str(abs(unscaled))))
        return Decimal((int(unscaled < 0), digits, -scale))


class Finder:
    """Finds the bytes of what is at a path, in values that share few dictionaries."""

    def __init__(self, path: Sequence[str | int]) -> None:
        self._path = path
        # Of the last dictionary: per step of the path, the ids of its name.
        self._metadata: bytes | None = None
        self._decoder: _Decoder | None = None
        self._ids: list[frozenset[int]] = []

    def __call__(self, metadata: bytes, value: bytes) -> bytes | None:
        """The part at the path; None: there is none."""
        with checked():
            if metadata != self._metadata:
                texts = Names(metadata).texts
                self._ids = [
                    frozenset(id for id, text in enumerate(texts) if text == step)
                    for step in self._path
                ]
                self._metadata, self._decoder = metadata, _Decoder(metadata, b"")
            decoder, at = self._decoder, 0
            assert decoder is not None
            decoder.data = value
            for step, ids in zip(self._path, self._ids):
                found = decoder.part(at, step if isinstance(step, int) else ids)
                if found is None:
                    return None
                at = found
            return value[at : decoder.end(at)]


def is_json_null(value: bytes) -> bool:
    """Tell whether a value is JSON's null."""
    return value[:1] == primitive(NULL)


_LEAVES = {
    **dict.fromkeys(INTEGERS, "int"),
    **dict.fromkeys(DECIMALS, "decimal"),
    NULL: "null",
    TRUE: "bool",
    FALSE: "bool",
    DOUBLE: "double",
    FLOAT: "float",
    TEXT: "text",
    BINARY: "binary",
    DATE: "date",
    TIME: "time",
    UUID: "uuid",
    TIMESTAMP: "instant",
    TIMESTAMP_NTZ: "wall",
}


def leaf_of(metadata: bytes, value: bytes) -> tuple[str, Any]:
    """The kind of a value, and the value: dates and moments as counts, decimals without zeros.

    Raises:
        CorruptDatasetError: the bytes are no value of VARIANT.
    """
    with checked():
        decoder = _Decoder(metadata, value)
        head = decoder.take(0, 1)[0]
        kind, type_ = head & 3, head >> 2
        if kind in (OBJECT, ARRAY):
            return ("object" if kind == OBJECT else "array"), None
        name = "text" if kind == SHORT_TEXT else _LEAVES.get(type_, f"value of type {type_}")
        if name in ("date", "instant", "wall"):
            return name, int.from_bytes(decoder.take(1, SIZES[type_]), "little", signed=True)
        found = decoder.value(0, 0)
        return name, (_stripped(found) if name == "decimal" else found)


class Names:
    """The names of the dictionary of some values, which more names join."""

    def __init__(self, metadata: bytes) -> None:
        decoder = _Decoder(metadata, b"")
        self._given = metadata
        self._known = decoder.names
        self.texts = [decoder.name(id) for id in range(decoder.names)]
        self._ids = {text: id for id, text in enumerate(self.texts)}

    def id(self, name: str) -> int:
        """The number of a name."""
        if name not in self._ids:
            self._ids[name] = len(self.texts)
            self.texts.append(name)
        return self._ids[name]

    @property
    def metadata(self) -> bytes:
        """The dictionary, in which the first names keep their numbers."""
        if len(self.texts) == self._known:
            return self._given
        return metadata_bytes([text.encode() for text in self.texts], is_sorted=False)

    def fields(self, value: bytes) -> dict[str, bytes]:
        """The fields of an object, as bytes."""
        decoder = _Decoder(self._given, value)
        head = decoder.take(0, 1)[0]
        if head & 3 != OBJECT:
            raise BrokenValue("what is left of a shredded object is no object")
        head >>= 2
        ids, starts = decoder.layout(1, head >> 4 & 1, head & 3, (head >> 2 & 3) + 1)
        return {decoder.name(id): value[at : decoder.end(at)] for id, at in zip(ids, starts)}


class _Numbers:
    """Unsigned numbers of one width, one after the other."""

    def __init__(self, data: bytes, start: int, width: int, count: int) -> None:
        if start + width * count > len(data):
            raise BrokenValue("it ends early")
        self.data, self.start, self.width = data, start, width

    def at(self, place: int) -> int:
        first = self.start + place * self.width
        return int.from_bytes(self.data[first : first + self.width], "little")


def _date(days: int) -> date | str:
    from lakehouse_source.schema.texts import date_text

    try:
        return EPOCH_DATE + timedelta(days=days)
    except OverflowError:
        return date_text(days)


def _moment(nanoseconds: int, zoned: bool) -> datetime | str:
    from lakehouse_source.schema.texts import timestamp_text

    micros, rest = divmod(nanoseconds, 1000)
    try:
        if not rest:
            found = EPOCH + timedelta(microseconds=micros)
            return found.replace(tzinfo=timezone.utc) if zoned else found
    except OverflowError:
        pass
    return timestamp_text(nanoseconds, 1) + ("+00:00" if zoned else "")


# --- objects to JSON ------------------------------------------------------------------


def _write_json(value: Any, parts: list[str]) -> None:
    if isinstance(value, dict):
        for at, (name, part) in enumerate(value.items()):
            parts += ["," if at else "{", json.dumps(name, ensure_ascii=False), ":"]
            _write_json(part, parts)
        parts.append("}" if value else "{}")
    elif isinstance(value, list):
        for at, part in enumerate(value):
            parts.append("," if at else "[")
            _write_json(part, parts)
        parts.append("]" if value else "[]")
    else:
        parts.append(_json_leaf(value))


def _json_leaf(value: Any) -> str:
    from lakehouse_source.schema.texts import double_text

    if isinstance(value, Decimal):
        return f"{_stripped(value):f}"
    if isinstance(value, float):
        text = double_text(value)
        return text if math.isfinite(value) else f'"{text}"'
    if isinstance(value, datetime):
        text = value.replace(tzinfo=None).isoformat(" ")
        text = text.rstrip("0") if value.microsecond else text
        value = text + ("+00:00" if value.tzinfo else "")
    elif isinstance(value, bytes):
        value = base64.b64encode(value).decode()
    elif not isinstance(value, (str, bool, int, type(None))):
        value = str(value)
    return json.dumps(value, ensure_ascii=False)


def _stripped(value: Decimal) -> Decimal:
    """The number without zeros at its end."""
    if not value:
        return Decimal(0)
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    while exponent < 0 and digits[-1] == 0:
        digits, exponent = digits[:-1], exponent + 1
    return Decimal((sign, digits, exponent))

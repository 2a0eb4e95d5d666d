"""Reads mutants of Parquet files through plake: each gets an answer or a `PlakeError`.

    python integration/fuzz_parquet.py [--mutants 10000] [--first 0] [--verbose]

Mutants are made from valid files of every layout. Most change the footer as a
structure: it is parsed into a tree of Thrift fields; fields are changed, given
another type or number, duplicated, removed; the tree is written again with the
right length. Other mutants change page indexes, bloom filter headers, page
headers, random bytes, or the frame of the file. The number of a mutant decides
everything about it.

A forked child process reads the mutants one after the other under a limit of
memory and of seconds. When it dies, the death is counted, and the next child
continues with the next mutant. The exit code is 1 when a mutant ended in anything
but an answer or a `PlakeError` that names its file.
"""

from __future__ import annotations

import argparse
import datetime
import decimal
import os
import random
import resource
import signal
import struct
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse_source.errors import InvalidPredicateError, PlakeError
from lakehouse_source.language import PredicateSet
from lakehouse_source.maintenance.verify import verify
from lakehouse_source.model import ColumnBounds, FileRecord, ScanTask
from lakehouse_source.parquet import reader
from lakehouse_source.parquet.checked_footer import open_footer
from lakehouse_source.parquet.fragments import dataset
from lakehouse_source.parquet.page_reader import ChosenPages
from lakehouse_source.parquet.prune import prune_file
from lakehouse_source.parquet.read_write_specs import ReadSpec
from lakehouse_source.parquet.reader import read_task
from lakehouse_source.parquet.thrift import ThriftError, read_struct
from lakehouse_source.read.address import Address
from lakehouse_source.schema.fields import leaves
from lakehouse_source.schema.merge import initial
from lakehouse_source.storage import Storage

# For one reading of one mutant: a mutant may have a hundred row groups, and the machine others.
SECONDS = 30
MEMORY_BYTES = 1 << 30
ROWS = 40


# --- valid files of every layout -------------------------------------------------


@dataclass(frozen=True)
class Base:
    """A valid file. `schema` has field ids; `conditions` are asked of every mutant of it."""

    name: str
    data: bytes
    schema: pa.Schema
    conditions: tuple[str, ...]


def _columns() -> dict[str, pa.Array]:
    """A column of each type that Parquet can hold, with NULLs."""
    numbers = [None if i % 7 == 0 else i - 20 for i in range(ROWS)]
    days = [None if n is None else datetime.date(2000, 1, 1 + abs(n)) for n in numbers]
    columns = {
        str(type_): pa.array(numbers, pa.int32()).cast(type_)
        for type_ in (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64())
    }
    columns |= {
        str(type_): pa.array([None if n is None else abs(n) for n in numbers], type_)
        for type_ in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
    }
    whole = pa.array(numbers, pa.int64())
    columns |= {
        str(type_): whole.cast(type_)
        for type_ in (
            *(pa.timestamp(unit) for unit in ("ms", "us", "ns")),
            *(pa.timestamp("us", "UTC"), pa.duration("us")),
        )
    }
    columns |= {
        "date": pa.array(days, pa.date32()),
        "time32": pa.array([None if n is None else abs(n) for n in numbers], pa.time32("ms")),
        "time64": pa.array([None if n is None else abs(n) for n in numbers], pa.time64("ns")),
        "bool": pa.array([None if n is None else n % 2 == 0 for n in numbers]),
        "half": pa.array([None if n is None else float(n) for n in numbers], pa.float16()),
        "text": pa.array([None if n is None else f"text {n}" for n in numbers]),
        "bytes": pa.array([None if n is None else bytes([n + 20]) for n in numbers]),
        "fixed": pa.array(
            [None if n is None else bytes([n + 20]) * 3 for n in numbers], pa.binary(3)
        ),
        "nan": pa.array([float("nan") if n == 3 else n for n in numbers], pa.float64()),
    }
    for precision in (4, 12, 30):
        columns[f"decimal{precision}"] = pa.array(
            [None if n is None else decimal.Decimal(n) for n in numbers],
            pa.decimal128(precision, 1),
        )
    return columns


def _nested() -> dict[str, pa.Array]:
    return {
        "id": pa.array(range(ROWS), pa.int64()),
        "struct": pa.array(
            [None if i % 5 == 0 else {"a": i, "b": {"c": f"v{i}"}} for i in range(ROWS)]
        ),
        "list": pa.array([None if i % 6 == 0 else [i] * (i % 3) for i in range(ROWS)]),
        "map": pa.array([[(f"k{i}", i)] for i in range(ROWS)], pa.map_(pa.string(), pa.int32())),
        "deep": pa.array([[{"x": [i, None], "y": None}] for i in range(ROWS)]),
    }


def bases() -> list[Base]:
    """The valid files."""
    flat = pa.table(_columns())
    few = flat.select(["int64", "double", "text", "decimal12", "timestamp[us]"])
    nested = pa.table(_nested())
    flat_asks = ("int64 = 5 AND text = 'text 5'", "nan > 3 OR `uint32` < 2", "decimal12 IS NULL")
    few_asks = ("int64 = 5 AND text = 'text 5'", "double > 3 OR text IS NULL", "decimal12 = 4.0")
    nested_asks = ("id = 3", "struct.b.c = 'v7' OR struct.a IS NULL", "list IS NULL")
    blooms = {name: {"ndv": 20, "fpp": 0.01} for name in few.column_names}
    layouts: list[tuple[str, pa.Table, tuple[str, ...], dict[str, Any]]] = [
        ("flat", flat, flat_asks, {}),
        ("flat, page index", flat, flat_asks, {"write_page_index": True}),
        ("flat, v2 pages", flat, flat_asks, {"data_page_version": "2.0", "row_group_size": 20}),
        ("flat, plain", flat, flat_asks, {"use_dictionary": False, "compression": "none"}),
        ("integer decimals", flat, flat_asks, {"store_decimal_as_integer": True}),
        ("no Arrow schema", flat, flat_asks, {"store_schema": False}),
        ("INT96", flat, flat_asks, {"use_deprecated_int96_timestamps": True}),
        ("bloom filters", few, few_asks, {"bloom_filter_options": blooms, "row_group_size": 20}),
        (
            "bloom filters, page index",
            few,
            few_asks,
            {
                "bloom_filter_options": blooms,
                "write_page_index": True,
                "row_group_size": 20,
                "max_rows_per_page": 5,
            },
        ),
        ("many row groups", few, few_asks, {"row_group_size": 3, "write_page_index": True}),
        ("no statistics", few, few_asks, {"write_statistics": False}),
        ("page checksums", few, few_asks, {"write_page_checksum": True, "compression": "gzip"}),
        ("sorted", few, few_asks, {"sorting_columns": [pq.SortingColumn(0)]}),
        (
            "differences",
            few,
            few_asks,
            {
                "use_dictionary": False,
                "column_encoding": {
                    "int64": "DELTA_BINARY_PACKED",
                    "double": "BYTE_STREAM_SPLIT",
                    "text": "DELTA_BYTE_ARRAY",
                    "timestamp[us]": "DELTA_BINARY_PACKED",
                },
            },
        ),
        (
            "text lengths",
            few,
            few_asks,
            {"use_dictionary": False, "column_encoding": {"text": "DELTA_LENGTH_BYTE_ARRAY"}},
        ),
        ("nested", nested, nested_asks, {"write_page_index": True}),
        (
            "nested, many pages",
            nested,
            nested_asks,
            {"write_page_index": True, "max_rows_per_page": 7, "write_batch_size": 1},
        ),
        ("nested, v2 pages", nested, nested_asks, {"data_page_version": "2.0"}),
        ("nested, old lists", nested, nested_asks, {"use_compliant_nested_type": False}),
        ("no rows", few.slice(0, 0), few_asks, {}),
    ]
    codecs = ("snappy", "gzip", "brotli", "lz4", "zstd")
    layouts += [(codec, few, few_asks, {"compression": codec}) for codec in codecs]
    made = []
    for name, table, conditions, options in layouts:
        schema = initial(table.schema)
        sink = pa.BufferOutputStream()
        pq.write_table(table.cast(schema), sink, **options)
        made.append(Base(name, sink.getvalue().to_pybytes(), schema, conditions))
    return made


# --- Thrift as a tree ------------------------------------------------------------

# Compact protocol: kinds of a field. Maps do not occur in Parquet.
STOP, TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(13)
NUMBERS = (I16, I32, I64)


@dataclass
class Field:
    """A field of a structure, or an item of a list (`id` is 0 there)."""

    id: int
    kind: int
    # bool, int or bytes; of a structure list[Field]; of a list (kind of items, list[Field]).
    value: Any


class Reader:
    """Parses valid bytes; the mutants' own bytes are never parsed here."""

    def __init__(self, data: bytes, position: int = 0) -> None:
        self.data = data
        self.position = position

    def struct(self) -> list[Field]:
        fields: list[Field] = []
        number = 0
        while (head := self.byte()) != STOP:
            number = number + (head >> 4) if head >> 4 else unzigzag(self.varint())
            kind = head & 15
            fields.append(Field(number, kind, self.value(kind)))
        return fields

    def value(self, kind: int) -> Any:
        if kind in (TRUE, FALSE):
            return kind == TRUE
        if kind in NUMBERS:
            return unzigzag(self.varint())
        if kind == BINARY:
            return self.take(self.varint())
        if kind == BYTE:
            return self.byte()
        if kind == DOUBLE:
            return self.take(8)
        if kind == STRUCT:
            return self.struct()
        assert kind == LIST, kind
        head = self.byte()
        size, of = head >> 4, head & 15
        size = self.varint() if size == 15 else size
        if of in (TRUE, FALSE):
            return (of, [Field(0, of, self.byte() == TRUE) for _ in range(size)])
        return (of, [Field(0, of, self.value(of)) for _ in range(size)])

    def byte(self) -> int:
        return self.take(1)[0]

    def take(self, size: int) -> bytes:
        self.position += size
        return self.data[self.position - size : self.position]

    def varint(self) -> int:
        result = shift = 0
        while True:
            byte = self.byte()
            result |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return result


def unzigzag(value: int) -> int:
    return (value >> 1) ^ -(value & 1)


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def zigzag(value: int) -> bytes:
    return varint((value << 1) ^ (value >> 63))


def write_struct(fields: list[Field]) -> bytes:
    """The bytes of a structure, whatever its fields say."""
    out = bytearray()
    last = 0
    for field in fields:
        kind = field.kind
        if kind in (TRUE, FALSE):
            kind = TRUE if field.value else FALSE
        delta = field.id - last
        out += bytes([delta << 4 | kind]) if 0 < delta < 16 else bytes([kind]) + zigzag(field.id)
        last = field.id
        out += b"" if kind in (TRUE, FALSE) else write_value(kind, field.value)
    return bytes(out) + b"\x00"


def write_value(kind: int, value: Any) -> bytes:
    """A value as its kind is written; one of another kind is written as it comes."""
    if isinstance(value, tuple):
        of, items = value
        size = len(items)
        out = bytes([size << 4 | of]) if size < 15 else bytes([0xF0 | of]) + varint(size)
        return out + b"".join(write_value(of, item.value) for item in items)
    if isinstance(value, list):
        return write_struct(value)
    if isinstance(value, bool):
        return bytes([TRUE if value else FALSE])
    if isinstance(value, int):
        return bytes([value & 255]) if kind == BYTE else zigzag(value)
    return value if kind == DOUBLE else varint(len(value)) + value


# --- mutations -------------------------------------------------------------------

# Numbers at which something ends: enumerations, signs, widths, limits of memory.
ODD_NUMBERS = (
    *(-(2**63), -(2**31), -1000, -1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 20, 99, 127, 128, 1000),
    *(65_536, 10**6, 2**31 - 1, 2**31, 2**32, 2**40, 2**62, 2**63 - 1),
)
ODD_BYTES = (b"", b"\x00", b"\xff", b"\xff\xfe\xfd", b"\xc3\x28", b"a.b", b"\x00" * 7, b"x" * 5000)


def nodes(fields: list[Field]) -> Iterator[tuple[list[Field], int]]:
    """Every field and item, as its list and its place there."""
    for place, field in enumerate(fields):
        yield fields, place
        if field.kind == STRUCT and isinstance(field.value, list):
            yield from nodes(field.value)
        elif field.kind in (LIST, SET) and isinstance(field.value, tuple):
            yield from nodes(field.value[1])


def pick(tree: list[Field], rng: random.Random) -> tuple[list[Field], int] | None:
    """A place in the tree. Every depth is as likely as another: else most are in statistics."""
    found = None
    fields = tree
    while fields:
        place = rng.randrange(len(fields))
        found = (fields, place)
        value = fields[place].value
        fields = value if isinstance(value, list) else value[1] if isinstance(value, tuple) else []
        if rng.random() < 0.15:
            break
    return found


def mutate_tree(tree: list[Field], rng: random.Random) -> None:
    """One to three changes somewhere in the tree."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        place = pick(tree, rng) if rng.random() < 0.6 else rng.choice([*nodes(tree)] or [None])
        if place is not None:
            _change(*place, tree, rng)


def _change(fields: list[Field], place: int, tree: list[Field], rng: random.Random) -> None:
    field = fields[place]
    in_list = field.id == 0
    act = rng.random()
    if act < 0.5:
        _change_value(field, rng)
    elif act < 0.62:
        del fields[place]
    elif act < 0.72:
        for _ in range(rng.choice((1, 1, 2, 50))):
            fields.insert(rng.randrange(len(fields) + 1), Field(field.id, field.kind, field.value))
    elif act < 0.80 and not in_list:
        field.id = rng.choice((field.id + 1, field.id - 1, rng.randrange(1, 20), 32_000, -5))
    elif act < 0.90:
        # Another kind over the same value, or a value of another kind.
        field.kind = rng.choice((TRUE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT))
        if rng.random() < 0.5:
            field.value = {
                BINARY: b"abc", STRUCT: [Field(1, I32, 1)], LIST: (I32, [Field(0, I32, 1)]),
                SET: (I32, []), MAP: b"", DOUBLE: b"\x00" * 8, TRUE: True,
            }.get(field.kind, 1)  # fmt: skip
    else:
        # A value from elsewhere in the tree.
        other = rng.choice([*nodes(tree)])
        donor = other[0][other[1]]
        field.kind, field.value = donor.kind, donor.value
    # What a parent holds may now be its own child: give it up.
    if _depth(tree) > 100:
        field.kind, field.value = I32, 0


def _depth(tree: list[Field], depth: int = 0) -> int:
    if depth > 100:
        return depth
    deepest = depth
    for field in tree:
        value = field.value
        below = value if isinstance(value, list) else value[1] if isinstance(value, tuple) else []
        deepest = max(deepest, _depth(below, depth + 1))
    return deepest


def _change_value(field: Field, rng: random.Random) -> None:
    value = field.value
    if isinstance(value, bool):
        field.value = not value
    elif isinstance(value, int):
        near = (value + 1, value - 1, -value, value * 2, value ^ (1 << rng.randrange(63)))
        field.value = rng.choice((*near, rng.choice(ODD_NUMBERS), rng.choice(ODD_NUMBERS)))
    elif isinstance(value, bytes):
        shorter, longer = value[: rng.randrange(len(value) + 1)], value + rng.randbytes(3)
        flipped = bytearray(value)
        if flipped:
            flipped[rng.randrange(len(flipped))] ^= 1 << rng.randrange(8)
        field.value = rng.choice((shorter, longer, bytes(flipped), rng.choice(ODD_BYTES)))
    elif isinstance(value, tuple):
        items = list(value[1])
        how = rng.randrange(5)
        if how == 0:
            items = items[: rng.randrange(len(items) + 1)]
        elif how == 1:
            rng.shuffle(items)
        elif how == 2 and items:
            items = items + [rng.choice(items)] * rng.choice((1, 2, 100))
        elif how == 3:
            items = []
        of = rng.choice((TRUE, I32, BINARY, STRUCT)) if how == 4 else value[0]
        field.value = (of, items)
    elif isinstance(value, list):
        field.value = rng.choice(([], value[::-1], value[:1], value + value))


def footer_of(data: bytes) -> tuple[int, bytes]:
    """Where the footer of a valid file starts, and its bytes."""
    length = int.from_bytes(data[-8:-4], "little")
    return len(data) - 8 - length, data[-8 - length : -8]


def framed(body: bytes, footer: bytes) -> bytes:
    return body + footer + struct.pack("<I", len(footer)) + b"PAR1"


def mutant_of(base: Base, rng: random.Random) -> bytes:
    """A mutant of a valid file."""
    start, footer = footer_of(base.data)
    act = rng.random()
    if act < 0.72:
        tree = Reader(footer).struct()
        mutate_tree(tree, rng)
        return framed(base.data[:start], write_struct(tree))
    if act < 0.80:
        return framed(base.data[:start], _damaged(footer, rng))
    if act < 0.92:
        return _body_mutant(base.data, rng)
    return _frame_mutant(base.data, start, footer, rng)


def _damaged(data: bytes, rng: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 3, 20))):
        at = rng.randrange(len(out))
        how = rng.randrange(3)
        if how == 0:
            out[at] = rng.randrange(256)
        elif how == 1:
            del out[at : at + rng.randrange(1, 5)]
        else:
            out[at:at] = rng.randbytes(rng.randrange(1, 5))
        if not out:
            return b"\x00"
    return bytes(out)


def _body_mutant(data: bytes, rng: random.Random) -> bytes:
    """Damages what the footer points to: page headers, dictionaries, filters, indexes."""
    start, _ = footer_of(data)
    footer = pq.read_metadata(pa.BufferReader(data))
    places = [4 + rng.randrange(max(1, start - 4))]
    if footer.num_row_groups:
        group = footer.row_group(rng.randrange(footer.num_row_groups))
        chunk = group.column(rng.randrange(group.num_columns))
        places += [chunk.data_page_offset, chunk.dictionary_page_offset]
        places.append(getattr(chunk, "bloom_filter_offset", None))  # PyArrow 25 has it
        # Page indexes follow the row groups and end where the footer starts.
        places.append(start - rng.randrange(1, max(2, min(start - 4, 3000))))
    at = rng.choice([place for place in places if place is not None and 0 < place < start] or [4])
    out = bytearray(data)
    for _ in range(rng.choice((1, 2, 5))):
        out[min(start - 1, at + rng.randrange(24))] = rng.choice((0, 255, 127, rng.randrange(256)))
    return bytes(out)


def _frame_mutant(data: bytes, start: int, footer: bytes, rng: random.Random) -> bytes:
    """Damages what is around the footer: magic, length, the file's end."""
    body = data[:start]
    length = rng.choice((-1, -(2**31), 2**31 - 1, 0, 1, len(footer) - 1, len(data), len(data) + 1))
    empty = write_struct([Field(1, I32, 2)])
    return rng.choice(
        (
            data[: rng.randrange(len(data))],
            data[rng.randrange(len(data)) :],
            data[:-4] + rng.choice((b"PARE", b"PAR2", b"\x00" * 4)),
            b"PARE" + data[4:-4] + b"PARE",
            body + footer + struct.pack("<I", length & 0xFFFFFFFF) + b"PAR1",
            framed(body, b"\x19\xfc\xff\xff\xff\xff\x0f" + footer),
            framed(body, b"\x29\xfc\x80\x80\x40" + footer),
            framed(body, b"\x1c" * 100_000),
            framed(body, b"\x19" * 100_000),
            framed(body, empty),
            framed(b"PAR1", footer),
            framed(body, footer * 2),
            data + b"\x00",
            b"",
            b"PAR1",
            b"PAR1PAR1",
        )
    )


# --- what is done with a mutant --------------------------------------------------

Reading = Callable[[], Any]


def readings(base: Base, folder: str, name: str, data: bytes) -> Iterator[tuple[str, Reading]]:
    """Each way in which plake opens a file, by name."""
    path = os.path.join(folder, name)
    for condition in base.conditions:
        yield "prune_file", lambda condition=condition: prune_file(path, condition)
    storage, address = Storage(folder), Address(folder, None)
    try:
        footer = pq.read_metadata(pa.BufferReader(data))
    except Exception:
        # Arrow's own error, to whoever opens a footer with Arrow.
        footer = None
    if footer is not None and not _encrypted(data):
        yield "prune_file of a footer", lambda: prune_file(footer, base.conditions[0])
    try:
        with storage.open_input(name) as file:
            rows = open_footer(file, name).row_count
    except PlakeError:
        rows = ROWS
    task = ScanTask(
        path=name,
        size_bytes=len(data),
        file_row_count=rows,
        row_count=rows,
        byte_count=len(data),
        schema_version=1,
        row_groups=None,
        partitions=(),
        filtered=True,
    )
    specs = [
        ReadSpec(
            uri=storage.uri,
            schema=base.schema,
            columns=tuple(base.schema.names),
            partition_by=(),
            file_schemas={1: base.schema},
            predicate=None if condition is None else PredicateSet.of(condition).bind(base.schema),
        )
        for condition in (None, base.conditions[0])
    ]
    for spec in specs:
        yield "read_task", lambda spec=spec: list(read_task(spec, task, storage))
    record = FileRecord(1, name, len(data), rows, 1, 1, {}, True)
    yield "verify", lambda: verify(address, 1, [(record, ())], checksums=True)
    known = {leaf.id: ColumnBounds(None, None, None, rows, False) for leaf in leaves(base.schema)}
    yield "dataset", lambda: dataset(specs[0], [task], [known], storage).to_table()


def _encrypted(data: bytes) -> bool:
    """Tell whether a footer names an encryption algorithm; PyArrow does not tell."""
    try:
        return 8 in read_struct(footer_of(data)[1])[0]
    except ThriftError:
        return True


def outcome_of(reading: str, act: Reading, name: str) -> tuple[str, str]:
    """What came of one reading, and of a bad one its traceback."""
    try:
        act()
    except InvalidPredicateError:
        # The condition does not fit the types that this mutant's schema says.
        return "InvalidPredicateError", ""
    except PlakeError as error:
        if name in str(error) or reading == "prune_file of a footer":
            return "PlakeError", ""
        return "PlakeError without the file's name", traceback.format_exc()
    except (pa.ArrowException, OSError):
        # Arrow opens the files of a dataset by itself, and raises its own errors.
        if reading == "dataset":
            return "error of Arrow", ""
        return "other error", traceback.format_exc()
    except BaseException:
        return "other error", traceback.format_exc()
    return "answer", ""


def mutant(number: int, made: list[Base]) -> tuple[Base, bytes]:
    """The mutant of a number, and the file that it was made from."""
    rng = random.Random(number)
    base = made[number % len(made)]
    return base, mutant_of(base, rng)


def file_name(number: int) -> str:
    """Half of the mutants have names of plake's: a name tells who wrote a file."""
    if number // 7 % 2:
        return f"mutant-{number}.parquet"
    return f"00000000-0000-7000-8000-{number:012x}-00000000-0000-7000-8000-000000000000.parquet"


# --- child processes -------------------------------------------------------------


def _child(numbers: range, made: list[Base], folder: str, report: int) -> None:
    """Read mutants, and say of each what came of it. Never returns."""
    # The address space that is there already is no concern of the mutants.
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    whole = reader.FEWEST_ROWS_FOR_PAGES, ChosenPages.pays
    for number in numbers:
        name = file_name(number)
        file = Path(folder, name)
        base, data = mutant(number, made)
        file.write_bytes(data)
        os.write(report, f"{number} start {base.name}\n".encode())
        # Every second mutant is read by pages as far as it goes: the files are small.
        reader.FEWEST_ROWS_FOR_PAGES = 0 if number % 2 else whole[0]
        ChosenPages.pays = True if number % 2 else whole[1]  # type: ignore[assignment]
        for reading, act in readings(base, folder, name, data):
            signal.alarm(SECONDS)
            outcome, text = outcome_of(reading, act, name)
            shown = text.encode("unicode_escape").decode()[-3000:]
            os.write(report, f"{number} {reading}\t{outcome}\t{shown}\n".encode())
        signal.alarm(0)
        file.unlink()
        os.write(report, f"{number} end\n".encode())
    os._exit(0)


def run(numbers: range, folder: str, verbose: bool) -> Counter[str]:
    """Read the mutants of these numbers in child processes. Counts outcomes of readings."""
    made = bases()
    counts: Counter[str] = Counter()
    following = numbers.start
    while following < numbers.stop:
        receive, report = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(receive)
            try:
                _child(range(following, numbers.stop), made, folder, report)
            except BaseException:
                traceback.print_exc()
            os._exit(70)
        os.close(report)
        current, doing = following, ""
        with os.fdopen(receive, encoding="utf-8") as lines:
            for line in lines:
                number, _, rest = line.rstrip("\n").partition(" ")
                current = int(number)
                if rest.startswith("start"):
                    doing = rest
                elif rest == "end":
                    counts["mutants"] += 1
                    following = current + 1
                else:
                    reading, outcome, text = rest.split("\t", 2)
                    counts[f"{reading}: {outcome}"] += 1
                    if text and verbose:
                        print(f"--- mutant {number} ({doing}), {reading}: {outcome}")
                        print(text.encode().decode("unicode_escape"), flush=True)
        _, status = os.waitpid(child, 0)
        if status != 0:
            killed = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
            what = "timeout" if killed == signal.SIGALRM else "death"
            counts[what] += 1
            counts["mutants"] += 1
            print(f"--- mutant {current} ({doing}): {what}, status {status}", flush=True)
            following = current + 1
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--mutants", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="the number of the first mutant")
    parser.add_argument("--verbose", action="store_true", help="show the errors that must not be")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="plake-fuzz-") as folder:
        counts = run(range(given.first, given.first + given.mutants), folder, given.verbose)
    for what, count in sorted(counts.items()):
        print(f"{count:8,} {what}")
    bad = ("death", "timeout", "other error", "without the file's name")
    return int(any(what.endswith(bad) for what in counts))


if __name__ == "__main__":
    sys.exit(main())

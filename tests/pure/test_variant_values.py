"""Values of VARIANT: objects and JSON to bytes and back, and bytes of strangers."""

from __future__ import annotations

import random
import uuid
from contextlib import suppress
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import lakehouse_source as lake
from lakehouse_source.language.functions.rows import listed
from lakehouse_source.schema.variant import STORAGE
from lakehouse_source.schema.variant_arrays import gathered
from lakehouse_source.schema.variant_bytes import (
    BrokenValue,
    Finder,
    Names,
    checked,
    decode,
    decode_json,
    leaf_of,
)
from lakehouse_source.schema.variant_columns import by_type, parts_at
from lakehouse_source.schema.variant_paths import Choice
from lakehouse_source.schema.variant_shredding import chosen_paths, shredded, tree_of, whole
from lakehouse_source.schema.variant_values import MOST_DEPTH, encode

VALUES: list[Any] = [
    *(None, True, False, 0, -1, 127, 128, -129, 32768, 2**31, 2**63 - 1, -(2**63)),
    *(1.5, -0.0, float("inf"), "", "é" * 31, "é" * 32, "x" * 70_000, b"", b"\0\xff" * 200),
    *(Decimal("1.50"), Decimal("-1E-38"), Decimal(9 * 10**37), Decimal("123456789.01")),
    *(date(1, 1, 1), date(9999, 12, 31), datetime(1969, 12, 31, 23, 59, 59, 999_999)),
    *(datetime(2024, 2, 29, 1, tzinfo=timezone.utc), time(23, 59, 59, 1), uuid.UUID(int=2**127)),
    *([], {}, [[], {}, None], [1] * 256, [["x" * 300] * 300], {"": {"a": [{"é": None}]}}),
    *({str(n): n for n in range(300)}, {"k" * 300: 1, "a": "b" * 70_000}),
]
JSON = {
    ' {"b": 1.50, "a": [null, 1e3, -7]} ': '{"a":[null,1000.0,-7],"b":1.5}',
    "9223372036854775808": "9223372036854775808",
    "-9223372036854775808": "-9223372036854775808",
    "1" * 39: "1.111111111111111E38",
    "0.10": "0.1",
    "1E400": '"Infinity"',
    '"\\u00e9\\n\\""': '"é\\n\\""',
    "-0": "0",
}

# Each array has the next one twice: a thousand million values in 151 bytes.
ARRAYS_OF_ONE_ARRAY_TWICE = b"\0"
for _ in range(30):
    size = len(ARRAYS_OF_ONE_ARRAY_TWICE)
    ARRAYS_OF_ONE_ARRAY_TWICE = b"\x03\x02\0\0%c" % size + ARRAYS_OF_ONE_ARRAY_TWICE


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:30])
def test_an_object_comes_back_as_it_was(value: Any) -> None:
    found = decode(*encode(value))
    assert repr(found) == repr(dict(sorted(value.items())) if isinstance(value, dict) else value)


def test_an_integer_beyond_64_bits_becomes_a_decimal() -> None:
    assert repr(decode(*encode(2**63))) == repr(Decimal(2**63))


@pytest.mark.parametrize(("text", "shown"), JSON.items(), ids=lambda text: text[:20])
def test_json_becomes_what_sparks_parse_json_makes_of_it(text: str, shown: str) -> None:
    assert lake.variant([text], json=True)[0].to_json() == shown


def test_null_is_not_the_null_of_json() -> None:
    column = lake.variant(["null", None], json=True)
    assert (column.null_count, column.to_pylist()) == (1, [None, None])
    assert [one.to_json() for one in column] == ["null", None]


@pytest.mark.parametrize(
    ("value", "json", "words"),
    [
        ('{"a": 1, "b": 2, "a": 3}', True, "has the key 'a' twice"),
        ("{a: 1}", True, "is not JSON"),
        ("NaN", True, "NaN is no number of JSON"),
        ('"\\ud800"', True, "half of a surrogate pair"),
        ("[" * 100_000 + "]" * 100_000, True, "is not JSON"),
        ("[" * (MOST_DEPTH + 2) + "]" * (MOST_DEPTH + 2), True, "is nested deeper than 200"),
        (7, True, "has a int among JSON texts"),
        ({1: 2}, False, "key of Python's type int"),
        ({"a": object()}, False, "Python's type object"),
        (10**38, False, "more than 38 digits"),
        (Decimal("NaN"), False, "give a float"),
        ("x" * (1 << 24), False, r"takes 16,777,221 bytes; at most 16,777,216"),
    ],
)
def test_what_has_no_value_is_refused(value: Any, json: bool, words: str) -> None:
    with pytest.raises(lake.InvalidOptionError, match=words):
        lake.variant([value], json=json)


@pytest.mark.parametrize(
    ("metadata", "value", "words"),
    [
        (b"", b"\0", "version 0"),
        (b"\x02\0\0", b"\0", "version 2"),
        (b"\x01\xff\0", b"\0", "ends early"),
        (b"\x01\0\0", b"", "empty"),
        (b"\x01\0\0", b"\x0c", "ends early"),
        (b"\x01\0\0", b"\xfc", "type 63"),
        (b"\x01\0\0", b"\x02\x01\0\0\x01\0", "field 0 of a dictionary of 0"),
        (b"\x01\x01\0\x01a", b"\x02\x02\0\0\0\x01\x02\0\0", "key twice"),
        (b"\x01\0\0", b"\x20\x27\0\0\0\0", "more than 38 digits|broken"),
        (b"\x01\0\0", b"\x0bab", "ends early"),
        (b"\x01\0\0", b"\x05\xff", "broken"),
        (b"\x01\0\0", ARRAYS_OF_ONE_ARRAY_TWICE, "overlap"),
    ],
)
def test_broken_bytes_are_an_error(metadata: bytes, value: bytes, words: str) -> None:
    with pytest.raises(lake.CorruptDatasetError, match=f"a value of VARIANT.*({words})"):
        decode(metadata, value)


def _at_path(metadata: bytes, value: bytes) -> None:
    for path in ((), ("",), ("k" * 300,), ("a", 0), (0,), (255,), ("", "a", 0, "é")):
        part = Finder(path)(metadata, value)
        if part is not None:
            leaf_of(metadata, part)


def _in_columns(rows: list[tuple[bytes, bytes]]) -> None:
    """All rows at once give what each gives alone, or are left to be looked at alone."""
    column = pa.array([{"metadata": one, "value": two} for one, two in rows], STORAGE)
    for path in (("a",), ("", "a")):
        found = parts_at(column, path)
        for (metadata, value), part in zip(rows, [] if found is None else found.to_pylist()):
            with suppress(lake.CorruptDatasetError):
                assert Finder(path)(metadata, value) == (part and part["value"])
    for places, values in by_type(column) or ():
        for place, one in zip(places, [] if values is None else listed(values)):
            with suppress(lake.CorruptDatasetError):
                assert repr(leaf_of(*rows[place])[1]) == repr(one)
    with suppress(lake.CorruptDatasetError):
        chosen_paths(column, Choice(share=0.1))
        paths = [("a",), ("", "a")]
        whole(shredded(column, tree_of(column, paths)))


def _fuzz(mutants: int) -> int:
    dice, broken = random.Random(7), 0
    known = [encode(value) for value in VALUES if len(repr(value)) < 5000]
    for number in range(mutants):
        parts = [bytearray(part) for part in dice.choice(known)]
        for _ in range(dice.randint(1, 4)):
            part = dice.choice(parts)
            at = dice.randrange(len(part) + 1)
            change = dice.randrange(4)
            if change == 0:
                part[at : at + 1] = bytes((dice.randrange(256),))
            elif change == 1:
                del part[at : at + dice.randint(1, 8)]
            elif change == 2:
                part[at:at] = dice.randbytes(dice.randint(1, 8))
            elif at < len(part):
                part[at] ^= 1 << dice.randrange(8)
        metadata, value = map(bytes, parts)
        try:
            decode_json(metadata, value)
        except lake.CorruptDatasetError:
            broken += 1
        with suppress(lake.CorruptDatasetError):
            _at_path(metadata, value)
        with suppress(lake.CorruptDatasetError), checked():
            Names(metadata).fields(value)
        if number % 50 == 0:
            _in_columns([dice.choice(known), (metadata, value), dice.choice(known)])
    return broken


def test_mutants_give_a_value_or_an_error() -> None:
    assert 500 < _fuzz(2_000) < 2_000


@pytest.mark.long
def test_a_hundred_thousand_mutants_give_a_value_or_an_error() -> None:
    assert 25_000 < _fuzz(100_000) < 100_000


def test_pieces_are_copied_in_any_order_and_none_from_outside() -> None:
    dice, outside = random.Random(4), 0
    data = np.arange(60, dtype=np.uint8)
    for _ in range(1000):
        pieces = [(dice.randint(-3, 60), dice.randint(-1, 20)) for _ in range(dice.randrange(5))]
        starts, sizes = np.array(pieces, np.int64).reshape(-1, 2).T
        if any(size < 0 or (size and not 0 <= at <= 60 - size) for at, size in pieces):
            outside += 1
            with pytest.raises(BrokenValue, match="lies outside"):
                gathered(data, starts, sizes)
        else:
            copied = [one for at, size in pieces for one in range(at, at + size)]
            assert gathered(data, starts, sizes).tolist() == copied
    assert 300 < outside < 900


def test_a_column_survives_pickling_and_arrows_own_format() -> None:
    import pickle

    table = pa.table({"v": lake.variant([{"a": 1}, None])})
    assert pickle.loads(pickle.dumps(table)).equals(table)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    assert pa.ipc.open_stream(sink.getvalue()).read_all().equals(table)


def test_a_path_leads_to_what_decoding_shows() -> None:
    dice = random.Random(3)

    def drawn(depth: int = 0) -> Any:
        if depth == 3 or dice.random() < 0.3:
            return dice.choice(["x" * dice.randrange(300), 1, None, Decimal("1.5"), {}, []])
        if dice.random() < 0.6:
            names = dice.sample(["a", "b", *map(str, range(400))], dice.choice((1, 3, 300)))
            return {name: drawn(depth + 1) if len(names) < 9 else 1 for name in [*names, "a"]}
        return [drawn(depth + 1) for _ in range(dice.choice((0, 2, 3)))]

    for _ in range(300):
        value = drawn()
        metadata, content = encode(value)
        for path in (("a",), ("b", "a"), ("a", 1), (0, "a"), (2,), ("7",), ("a", "a", "a"), (9,)):
            wanted = [value]
            for step in path:
                kind = dict if isinstance(step, str) else list
                with suppress(LookupError):
                    wanted = [one[step] for one in wanted if isinstance(one, kind)]
                    continue
                wanted = []
            found = Finder(path)(metadata, content)
            assert [decode(metadata, one) for one in (found,) if one is not None] == wanted


def test_all_rows_at_once_are_what_each_is_alone() -> None:
    known = [encode(value) for value in VALUES]
    _in_columns(known)
    values = [Decimal("1.50"), Decimal("-0.10"), Decimal(0), Decimal("1E-18"), 7, "7", None, 1.5]
    _in_columns([encode(one) for one in values])
    _in_columns([encode({"a": one, "": {"a": one}}) for one in [*values, {}, [1]]])
    column = lake.variant(values).storage
    assert all(values is not None for _, values in [*(by_type(column) or ())][:-1])


def test_names_that_are_not_utf8_are_an_error_of_the_value() -> None:
    metadata, value = encode({"a": 1})
    column = pa.array([{"metadata": metadata[:-1] + b"\xd4", "value": value}], STORAGE)
    assert parts_at(column, ("a",)) is None


MOMENT = datetime(2024, 2, 29, 12, 30, 0, 5)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (np.datetime64(MOMENT, "us"), MOMENT),
        (np.datetime64(MOMENT, "ns"), MOMENT),
        (np.datetime64("2024-02-29T12:30:00.000005001", "ns"), "2024-02-29 12:30:00.000005001"),
        (np.datetime64("1969-12-31T23:59:59.999999999"), "1969-12-31 23:59:59.999999999"),
        (np.datetime64("2024-02-29", "D"), date(2024, 2, 29)),
        (np.datetime64("NaT", "ns"), None),
        (pd.NaT, None),
        (pd.NA, None),
        (np.float32(1.5), 1.5),
        (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        (np.array([{"a": np.array([MOMENT], "M8[ns]")}, None], object), [{"a": [MOMENT]}, None]),
        (np.array(7), 7),
    ],
    ids=repr,
)
def test_values_of_numpy_and_pandas_are_those_of_python(given: Any, kept: Any) -> None:
    assert lake.variant([given, {"a": given}]).to_pylist() == [kept, {"a": kept}]


def test_what_is_missing_in_pandas_is_null() -> None:
    values = [None, pd.NaT, pd.NA, np.datetime64("NaT"), "null"]
    assert lake.variant(values).is_null().to_pylist() == [True, True, True, True, False]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (np.timedelta64(5, "ns"), "timedelta64"),
        (np.datetime64("20000-01-01", "s"), "neither of the years 1 to 9999"),
        (np.datetime64(5, "ps"), "neither of the years 1 to 9999"),
        (datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1))), "outside of the years 1 to 9999"),
    ],
    ids=repr,
)
def test_moments_that_are_not_kept_are_refused_by_name(value: Any, reason: str) -> None:
    for given in (value, [value]):
        with pytest.raises(lake.InvalidOptionError, match=reason):
            lake.variant([given])

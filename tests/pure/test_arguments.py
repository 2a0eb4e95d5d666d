"""Checks of what callers give."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest

import lakehouse_source as lake
from lakehouse_source import arguments


class Numpy:
    """NumPy's truth values and numbers, without NumPy."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __bool__(self) -> bool:
        return bool(self.value)

    def __index__(self) -> int:
        return self.value


bool_ = type("bool_", (Numpy,), {})


@pytest.mark.parametrize("given", [True, False, 0, 1, bool_(1), bool_(0)])
def test_flags(given: Any) -> None:
    assert arguments.flag("f", given) is bool(given)


@pytest.mark.parametrize("given", ["false", "", None, 2, 1.0, [], Numpy(1)])
def test_what_is_no_flag(given: Any) -> None:
    with pytest.raises(lake.InvalidOptionError, match=r"option 'f'.*must be True or False"):
        arguments.flag("f", given)


def test_whole_numbers() -> None:
    assert [arguments.whole_number("n", given) for given in (0, -3, Numpy(7))] == [0, -3, 7]
    for given in (True, "1", 1.0, None):
        with pytest.raises(lake.InvalidOptionError, match=r"option 'n'.*whole number"):
            arguments.whole_number("n", given)


def test_numbers_of_seconds() -> None:
    assert [arguments.number_of_seconds("s", given, 9) for given in (0, 1.5, 9)] == [0, 1.5, 9]
    for given in (np.int64(5), np.float32(5), Decimal(5), Fraction(5)):
        assert timedelta(seconds=arguments.number_of_seconds("s", given, 9)).seconds == 5
    for given in (-1, 10, float("nan"), True, "1", None, np.int64(10), np.array([1, 2]), pd.NaT):
        with pytest.raises(lake.InvalidOptionError, match=r"option 's'.*number of seconds"):
            arguments.number_of_seconds("s", given, 9)


def test_column_names() -> None:
    assert arguments.column_names("c", None) is None
    assert arguments.column_names("c", "miles") == ("miles",)
    assert arguments.column_names("c", iter(["a", "b"])) == ("a", "b")
    for given in (1, b"ab", [1], [("a",)], [None]):
        with pytest.raises(lake.InvalidOptionError, match=r"option 'c'.*list of column names"):
            arguments.column_names("c", given)


def test_texts_mappings_and_moments() -> None:
    assert arguments.text("t", "x") == "x"
    assert arguments.mapping("m", {"a": 1}) == {"a": 1}
    assert arguments.moment("d", datetime(2026, 1, 1)) == datetime(2026, 1, 1)
    with pytest.raises(lake.InvalidOptionError, match=r"option 'd'.*datetime"):
        arguments.moment("d", pd.NaT)
    for check in (arguments.text, arguments.mapping, arguments.moment):
        with pytest.raises(lake.InvalidOptionError, match=r"option 'x' .given: 5."):
            check("x", 5)


@pytest.mark.parametrize("path", [None, 5, b"/data/flights", ["/data/flights"], {}])
@pytest.mark.parametrize(
    "door",
    [
        lake.read_dataset,
        lake.open_dataset,
        lake.convert,
        lambda path: lake.write_dataset({"id": [1]}, path),
        lambda path: lake.prune_file(path, "id = 1"),
    ],
    ids=["read", "open", "convert", "write", "prune_file"],
)
def test_what_is_no_path_is_refused_at_each_door(door: Callable[[Any], object], path: Any) -> None:
    with pytest.raises(lake.InvalidOptionError, match="must be a path or URI"):
        door(path)

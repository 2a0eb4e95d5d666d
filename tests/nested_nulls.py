"""Nested types with a NULL that has no type, as Polars, pandas and JSON make them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

NULL = pa.null()
_INNER: dict[str, tuple[pa.DataType, list[Any]]] = {
    "null": (NULL, [None, None, None]),
    "struct": (
        pa.struct([("a", pa.int64()), ("n", NULL)]),
        [{"a": 1, "n": None}, None, {"a": 2, "n": None}],
    ),
    "list": (pa.list_(NULL), [[None], None, [None, None]]),
    "large list": (pa.large_list(NULL), [[None], [], [None, None]]),
    "fixed list": (pa.list_(NULL, 2), [[None, None], None, [None, None]]),
    "list view": (pa.list_view(NULL), [[None], None, [None, None]]),
    "map": (pa.map_(pa.string(), NULL), [[("a", None)], None, [("b", None), ("c", None)]]),
}


def _around(type_: pa.DataType, values: list[Any]) -> Iterator[tuple[str, pa.DataType, list[Any]]]:
    yield (
        "struct",
        pa.struct([("x", type_), ("y", pa.int32())]),
        [{"x": value, "y": place} for place, value in enumerate(values)],
    )
    yield "list", pa.list_(type_), [values, None, values[:1]]
    yield "large list", pa.large_list(type_), [values, [], values[1:]]
    yield "fixed list", pa.list_(type_, 1), [[value] for value in values]
    yield "list view", pa.list_view(type_), [values, None, values[:2]]
    yield "map", pa.map_(pa.string(), type_), [[("k", value)] for value in values]


# Three rows each.
NESTED_NULLS: dict[str, pa.Array] = {
    **{name: pa.array(values, type_) for name, (type_, values) in _INNER.items()},
    **{
        f"{outer} of {name}": pa.array(made, whole)
        for name, (type_, values) in _INNER.items()
        for outer, whole, made in _around(type_, values)
    },
}

"""The checker of histories finds each anomaly, and none where there is none."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.histories import Done, anomalies

Acts = Sequence[tuple[str, str, "Sequence[int] | int"]]


def done(*every: Acts, aborted: Sequence[int] = ()) -> list[Done]:
    return [Done(f"T{i}", i not in aborted, acts) for i, acts in enumerate(every)]


@pytest.mark.parametrize(
    ("history", "last", "expected"),
    [
        (done([("read", "x", []), ("append", "x", 1)], [("read", "x", [1])]), {"x": [1]}, set()),
        (
            done(
                [("append", "x", 1), ("append", "y", 1)], [("append", "x", 2), ("append", "y", 2)]
            ),
            {"x": [1, 2], "y": [2, 1]},
            {"G0", "G1c"},
        ),
        (
            done(
                [("append", "x", 1), ("read", "y", [2])], [("append", "y", 2), ("read", "x", [1])]
            ),
            {"x": [1], "y": [2]},
            {"G1c"},
        ),
        (done([("append", "x", 1)], [("read", "x", [1])], aborted=[0]), {"x": [1]}, {"G1a"}),
        (
            done([("append", "x", 1), ("append", "x", 2)], [("read", "x", [1])]),
            {"x": [1, 2]},
            {"G1b", "G-single", "G2-item"},
        ),
        (done([("append", "x", 1), ("read", "x", [])]), {"x": [1]}, {"internal"}),
        (  # both read what was there before, and one of the two is gone
            done(
                [("read", "x", []), ("append", "x", 1)],
                [("read", "x", []), ("append", "x", 2)],
            ),
            {"x": [2]},
            {"lost update"},
        ),
        (
            done(
                [("read", "x", []), ("append", "x", 1)],
                [("read", "x", []), ("append", "x", 2)],
            ),
            {"x": [1, 2]},
            {"G-single", "G2-item"},
        ),
        (
            done(
                [("read", "x", []), ("append", "y", 1)],
                [("read", "y", []), ("append", "x", 2)],
            ),
            {"x": [2], "y": [1]},
            {"write skew", "G2-item"},
        ),
        (  # the second item was read after the other one had committed, the first before
            done(
                [("read", "x", []), ("read", "y", [2])],
                [("append", "x", 1), ("append", "y", 2)],
            ),
            {"x": [1], "y": [2]},
            {"G-single", "G2-item"},
        ),
        (  # a chain of missed reads is an order
            done(
                [("read", "x", []), ("append", "z", 3)],
                [("append", "x", 1), ("read", "y", [])],
                [("append", "y", 2), ("read", "x", [1])],
            ),
            {"x": [1], "y": [2], "z": [3]},
            set(),
        ),
    ],
)
def test_each_anomaly_is_told(
    history: list[Done], last: dict[str, list[int]], expected: set[str]
) -> None:
    assert anomalies(history, last) == expected

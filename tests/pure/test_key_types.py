"""Which keys a MERGE finds equal: every type against every type, against DuckDB."""

from __future__ import annotations

import pytest

import lakehouse_source as lake
from lakehouse_source.write.statements import merge_source
from tests.key_types import KEYS, compared, joined, matches, stored


@pytest.mark.parametrize("left", KEYS)
@pytest.mark.sampled(4)
def test_keys_are_equal_as_their_values_are(left: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for place, right in enumerate(KEYS):
        # Every other pair by Arrow's join, which large tables take.
        monkeypatch.setattr(merge_source, "_FEW_ROWS", 10_000 * (place % 2))
        sides = stored(KEYS[left][1]), stored(KEYS[right][1])
        may = compared(left, right)
        for number, op in enumerate(("=", "<=>")):
            if may:
                assert joined(*sides, op) == matches(left, right)[number], (left, op, right)
            elif may is False:
                with pytest.raises(lake.InvalidExpressionError, match="not compared"):
                    joined(*sides, op)

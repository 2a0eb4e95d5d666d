"""A second and a third Spark session in one process: each has the extension, or says that not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.doors.session_matrix import (
    CREATE,
    EQUIPPED,
    STOCK,
    is_equipped,
    run,
    sequences,
    table,
    wrong,
)

pytestmark = [pytest.mark.spark("own"), pytest.mark.slow]

# The sequence that was half equipped and said nothing, and the steps that showed it.
OFTEN = "enable stop configure"
SHOWED = ("read", "pruned", "setting", "insert", "delete")


def test_a_second_session_is_not_half_equipped(tmp_path: Path) -> None:
    (found,) = run(OFTEN, tmp_path, SHOWED)
    assert tuple(found) == SHOWED
    assert wrong(OFTEN, 1, found) == {}


@pytest.mark.long
@pytest.mark.parametrize("sequence", sequences())
def test_each_session_does_the_main_job_or_refuses_it(sequence: str, tmp_path: Path) -> None:
    found = list(enumerate(run(sequence, tmp_path), 1))
    assert len(found) == sequence.count(" ") // 2
    shown = table((sequence, at, one) for at, one in found)
    assert not any(wrong(sequence, at, one) for at, one in found), shown


def test_the_table_of_sessions_tells_what_is_wrong() -> None:
    """A session that is half equipped: it replaced all rows, and said nothing."""
    half = {**EQUIPPED, "setting": 1, "pruned": False, "delete": "Table does not support deletes"}
    assert wrong("enable stop configure", 1, half).keys() == {"setting", "pruned", "delete"}
    refused = {**STOCK, **dict.fromkeys(EQUIPPED.keys() - STOCK.keys(), "no such catalog")}
    assert wrong("enable keep create", 1, refused) == {"insert": "no such catalog"}
    assert "no such catalog" in table([("enable keep create", 1, refused)])


def test_which_sessions_should_be_equipped() -> None:
    asked = {one: is_equipped(one, one.count(" ") // 2) for one in sequences()}
    stock = {one for one, is_there in asked.items() if not is_there}
    assert stock == {
        *("plain stop plain stop plain", "plain stop enable stop plain"),
        *("enable stop plain stop plain", "enable stop enable stop plain"),
        *("plain keep plain", "plain keep newSession", "plain keep cloneSession"),
        *(f"{first} keep create" for first in ("plain", "enable") if CREATE),
    }

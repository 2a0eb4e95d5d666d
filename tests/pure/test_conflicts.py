"""The conflict table, cell by cell, in both orders."""

from __future__ import annotations

import itertools

import pytest

from lakehouse_source.write.commit.conflicts import (
    KEEP_ROWS,
    MOVE_ROWS,
    OPERATIONS,
    Change,
    Isolation,
    Verdict,
    change_of,
    checks_added,
    verdict,
)

A, O, W, S, R, D, U, M = Change  # noqa: E741 - the letters of the table
REBASE, SCHEMA = Verdict.REBASE, Verdict.REBASE_SCHEMA
ADDED, MINE, STOP = Verdict.CHECK_ADDED, Verdict.CHECK_MINE, Verdict.CONFLICT
ROWS, REPLACED = Verdict.CHECK_ROWS, Verdict.CHECK_REPLACED

# (mine, theirs): what must happen. Written out, not computed: this is the specification.
CELLS = {
    (A, A): REBASE, (A, O): REBASE, (A, W): REBASE, (A, S): SCHEMA, (A, R): REBASE,
    (O, A): REBASE, (O, O): REBASE, (O, W): REBASE, (O, S): SCHEMA, (O, R): REBASE,
    (W, A): ADDED, (W, O): STOP, (W, W): REPLACED, (W, S): STOP, (W, R): REPLACED,
    (S, A): REBASE, (S, O): REBASE, (S, W): REBASE, (S, S): STOP, (S, R): REBASE,
    (R, A): MINE, (R, O): STOP, (R, W): MINE, (R, S): STOP, (R, R): MINE,
    (A, D): REBASE, (A, U): REBASE, (A, M): REBASE,
    (O, D): REBASE, (O, U): REBASE, (O, M): REBASE,
    (W, D): REPLACED, (W, U): REPLACED, (W, M): REPLACED,
    (S, D): REBASE, (S, U): REBASE, (S, M): REBASE,
    (R, D): MINE, (R, U): MINE, (R, M): MINE,
    (D, A): ROWS, (D, O): STOP, (D, W): ROWS, (D, S): REBASE, (D, R): ROWS,
    (U, A): ROWS, (U, O): STOP, (U, W): ROWS, (U, S): STOP, (U, R): ROWS,
    (M, A): ROWS, (M, O): STOP, (M, W): ROWS, (M, S): STOP, (M, R): ROWS,
    (D, D): ROWS, (D, U): ROWS, (D, M): ROWS,
    (U, D): ROWS, (U, U): ROWS, (U, M): ROWS,
    (M, D): ROWS, (M, U): ROWS, (M, M): ROWS,
}  # fmt: skip


@pytest.mark.parametrize(("mine", "theirs"), list(itertools.product(Change, Change)))
def test_each_cell(mine: Change, theirs: Change) -> None:
    assert verdict(mine, theirs) is CELLS[mine, theirs]


def test_a_delete_and_a_compaction_of_the_same_files_never_both_land() -> None:
    """Whichever comes second gives up: rows would come back to life (iceberg#10720)."""
    assert verdict(W, R) is REPLACED
    for other in (W, R, D, U, M):
        assert verdict(R, other) is MINE
    for statement in (D, U, M):
        assert verdict(statement, R) is ROWS


def test_every_operation_of_the_history_is_a_change() -> None:
    assert {change_of(name) for name in OPERATIONS} == set(Change)
    assert change_of("an operation of a later release") is None


def test_which_operations_remove_no_row() -> None:
    assert set(MOVE_ROWS) == {"rewrite"}
    removing = {
        "replace",
        "overwrite",
        "overwrite where",
        "overwrite partitions",
        "restore",
        "erase",
    }
    assert set(OPERATIONS) - set(KEEP_ROWS) == removing | {"delete", "update", "merge"}


def test_which_statements_look_at_rows_that_others_added() -> None:
    looking = {(mine, one) for mine in (D, U, M) for one in Isolation if checks_added(mine, one)}
    assert looking == {
        (M, Isolation.WRITE_SERIALIZABLE),
        *((mine, Isolation.SERIALIZABLE) for mine in (D, U, M)),
    }

"""Pure. Which two changes of a dataset conflict: a table. Knows no SQL, retries or Parquet."""

from __future__ import annotations

from enum import Enum


class Change(Enum):
    """What a commit does to a dataset, as far as it matters to other commits."""

    APPEND = "append"
    OVERWRITE = "overwrite"
    OVERWRITE_WHERE = "overwrite where"
    SCHEMA = "schema change"
    REWRITE = "rewrite"


class Verdict(Enum):
    """What a commit has to do about another one that was committed after it began.

    REBASE: take the next version. REBASE_SCHEMA: the same, if the schemas can be merged
    again. CHECK_ADDED: rebase if no file that the other commit added can hold a row that
    this one replaces. CHECK_MINE: rebase if the other commit removed no file that this one
    rewrites. CONFLICT: raise an error.
    """

    REBASE = "rebase"
    REBASE_SCHEMA = "re-merge the schema"
    CHECK_ADDED = "check the files they added"
    CHECK_MINE = "check the files mine rewrites"
    CONFLICT = "conflict"


_A, _O, _W, _S, _R = Change
# Rows are this commit's change, columns the other one's. For a commit that only adds
# files, another commit's overwrite of a condition or of partitions is like any overwrite:
# it replaced rows that were there before. A rewrite changes no rows.
TABLE: dict[Change, dict[Change, Verdict]] = {
    _A: {
        _A: Verdict.REBASE,
        _O: Verdict.REBASE,
        _W: Verdict.REBASE,
        _S: Verdict.REBASE_SCHEMA,
        _R: Verdict.REBASE,
    },
    _O: {
        _A: Verdict.REBASE,
        _O: Verdict.REBASE,
        _W: Verdict.REBASE,
        _S: Verdict.REBASE_SCHEMA,
        _R: Verdict.REBASE,
    },
    _W: {
        _A: Verdict.CHECK_ADDED,
        _O: Verdict.CONFLICT,
        _W: Verdict.CONFLICT,
        _S: Verdict.CONFLICT,
        _R: Verdict.CONFLICT,
    },
    _S: {
        _A: Verdict.REBASE,
        _O: Verdict.REBASE,
        _W: Verdict.REBASE,
        _S: Verdict.CONFLICT,
        _R: Verdict.REBASE,
    },
    _R: {
        _A: Verdict.CHECK_MINE,
        _O: Verdict.CONFLICT,
        _W: Verdict.CONFLICT,
        _S: Verdict.CONFLICT,
        _R: Verdict.CONFLICT,
    },
}

# The names of operations in the history, and the change that each one is.
OPERATIONS: dict[str, Change] = {
    "append": Change.APPEND,
    "overwrite": Change.OVERWRITE,
    "overwrite where": Change.OVERWRITE_WHERE,
    "overwrite partitions": Change.OVERWRITE_WHERE,
    "restore": Change.OVERWRITE,
    "schema change": Change.SCHEMA,
    # A property can name columns, and can allow a change of their types.
    "set properties": Change.SCHEMA,
    "rewrite": Change.REWRITE,
}


def verdict(mine: Change, theirs: Change) -> Verdict:
    """What a commit that does `mine` must do about a newer one that did `theirs`."""
    return TABLE[mine][theirs]


def change_of(operation: str) -> Change | None:
    """The change of an operation; None for an operation of a later release."""
    return OPERATIONS.get(operation)

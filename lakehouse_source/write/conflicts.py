"""Pure. Which two changes collide: a table. Knows nothing of SQL, retries or Parquet."""

from __future__ import annotations

from enum import Enum


class Change(Enum):
    """What a commit does to a dataset, as far as other commits care."""

    APPEND = "append"
    OVERWRITE = "overwrite"
    OVERWRITE_WHERE = "overwrite where"
    SCHEMA = "schema change"
    REWRITE = "rewrite"


class Verdict(Enum):
    """What a commit has to do about one that came first.

    REBASE: nothing, take the next version. REBASE_SCHEMA: only if the schema can
    be merged again. CHECK_ADDED: only if none of the files they added can hold a
    row that mine replaces. CHECK_MINE: only if they removed no file that mine
    rewrites. CONFLICT: give up.
    """

    REBASE = "rebase"
    REBASE_SCHEMA = "re-merge the schema"
    CHECK_ADDED = "check the files they added"
    CHECK_MINE = "check the files mine rewrites"
    CONFLICT = "conflict"


_A, _O, _W, _S, _R = Change
# Mine by row, theirs by column. An overwrite of a condition or of partitions by
# others is, to a commit that only adds, like any overwrite: it replaced what was
# there before mine. A rewrite changes no rows.
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

# Names of operations in the history, with the change that each is.
OPERATIONS: dict[str, Change] = {
    "append": Change.APPEND,
    "overwrite": Change.OVERWRITE,
    "overwrite where": Change.OVERWRITE_WHERE,
    "overwrite partitions": Change.OVERWRITE_WHERE,
    "restore": Change.OVERWRITE,
    "schema change": Change.SCHEMA,
    "rewrite": Change.REWRITE,
}


def verdict(mine: Change, theirs: Change) -> Verdict:
    """What a commit that does `mine` must do about a newer one that did `theirs`."""
    return TABLE[mine][theirs]


def change_of(operation: str) -> Change | None:
    """The change behind an operation's name; None for one that this version does not know."""
    return OPERATIONS.get(operation)

"""Pure. Which two changes of a dataset conflict: a table. Knows no SQL, retries or Parquet."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from lakehouse_source.errors import CommitConflictError, InvalidOptionError


class Change(Enum):
    """What a commit does to a dataset, as far as it matters to other commits."""

    APPEND = "append"
    OVERWRITE = "overwrite"
    OVERWRITE_WHERE = "overwrite where"
    SCHEMA = "schema change"
    REWRITE = "rewrite"
    DELETE = "delete"
    UPDATE = "update"
    MERGE = "merge"


class Isolation(Enum):
    """Which commits since its base version conflict with a statement that changes rows.

    SNAPSHOT: those that changed a row that the statement changes too. WRITE_SERIALIZABLE, the
    default: for a MERGE also those that added rows that it may match. SERIALIZABLE: those that
    changed anything that the statement read. The commits then have the result of statements that
    run one after the other, in the order of versions.

    A statement reads the rows that satisfy its condition, and relies on there being no others. A
    DELETE and an UPDATE change every such row, so only rows that others added remain to be checked.
    A MERGE may leave such a row unchanged: a matched row prevents the insert of a source row,
    whether a clause changed the matched row or not. So under SERIALIZABLE
    - an added row conflicts if it satisfies the condition;
    - a change of a row conflicts if a MERGE with a clause for rows without a match matched the row;
    - where Spark does not tell what was read, as for the source of its MERGE, every change of a row
      conflicts if the row's file may hold rows of the condition.
    Other tables, and files that a source was made of, are not looked at.
    """

    SNAPSHOT = "snapshot"
    WRITE_SERIALIZABLE = "write-serializable"
    SERIALIZABLE = "serializable"


def isolation_of(name: str) -> Isolation:
    """The isolation with this name."""
    known = {one.value: one for one in Isolation}
    if name not in known:
        raise InvalidOptionError(
            option="isolation", value=name, reason="is not an isolation.", known=tuple(known)
        )
    return known[name]


class Verdict(Enum):
    """What a commit has to do about another commit that came after the first one began.

    REBASE: take the next version. REBASE_SCHEMA: the same, if the schemas can be merged
    again. CHECK_ADDED: rebase if no file that the other commit added can hold a row that
    this one replaces. CHECK_MINE: rebase if the other commit removed no file that this one
    rewrites, and no row of one. CHECK_REPLACED: both of these, and for an overwrite of partitions
    the other commit changed no row of them. CHECK_ROWS: rebase if the other commit changed no row
    that this one changes, and the isolation allows it. CONFLICT: raise an error.
    """

    REBASE = "rebase"
    REBASE_SCHEMA = "re-merge the schema"
    CHECK_ADDED = "check the files they added"
    CHECK_MINE = "check the files mine rewrites"
    CHECK_REPLACED = "check what mine replaces"
    CHECK_ROWS = "check the rows mine changes"
    CONFLICT = "conflict"


_REBASE, _SCHEMA, _ADDED, _MINE, _REPLACED, _ROWS, _STOP = Verdict
# Rows are this commit's change, columns the other one's, in the order of `Change`. For a commit
# that only adds files, another commit's overwrite of a condition or of partitions is like any
# overwrite: it replaced rows that were there before. A rewrite changes no rows.
TABLE: dict[Change, tuple[Verdict, ...]] = {
    Change.APPEND: (_REBASE, _REBASE, _REBASE, _SCHEMA, *[_REBASE] * 4),
    Change.OVERWRITE: (_REBASE, _REBASE, _REBASE, _SCHEMA, *[_REBASE] * 4),
    # The rows to keep were read before: a row that was deleted after this would return.
    Change.OVERWRITE_WHERE: (_ADDED, _STOP, _REPLACED, _STOP, *[_REPLACED] * 4),
    Change.SCHEMA: (_REBASE, _REBASE, _REBASE, _STOP, *[_REBASE] * 4),
    Change.REWRITE: (_MINE, _STOP, _MINE, _STOP, *[_MINE] * 4),
    # Positions mean the same under every schema. Values, which were computed before, do not.
    Change.DELETE: (_ROWS, _STOP, _ROWS, _REBASE, *[_ROWS] * 4),
    Change.UPDATE: (_ROWS, _STOP, _ROWS, _STOP, *[_ROWS] * 4),
    Change.MERGE: (_ROWS, _STOP, _ROWS, _STOP, *[_ROWS] * 4),
}

# The names of operations in the history, and the change that each one is.
OPERATIONS: dict[str, Change] = {
    "append": Change.APPEND,
    "create": Change.APPEND,
    "replace": Change.OVERWRITE,
    "overwrite": Change.OVERWRITE,
    "overwrite where": Change.OVERWRITE_WHERE,
    "overwrite partitions": Change.OVERWRITE_WHERE,
    "restore": Change.OVERWRITE,
    # Rows have other positions in their files afterwards, and rows that were read must not return.
    "erase": Change.OVERWRITE,
    "schema change": Change.SCHEMA,
    # A property can name columns, and can allow a change of their types.
    "set properties": Change.SCHEMA,
    "rewrite": Change.REWRITE,
    "delete": Change.DELETE,
    "update": Change.UPDATE,
    "merge": Change.MERGE,
}


def _operations(*changes: Change) -> tuple[str, ...]:
    return tuple(name for name, change in OPERATIONS.items() if change in changes)


@dataclass(frozen=True, slots=True)
class Collision:
    """What a commit collides with: facts, and a text that names the facts in braces.

    `version` and `operation` are the other commit's; None is a fact that is not known.
    """

    text: str
    version: int | None = None
    operation: str | None = None
    path: str | None = None
    columns: tuple[str, ...] = ()
    rows: int | None = None

    @property
    def facts(self) -> dict[str, Any]:
        """The keywords of a `CommitConflictError`."""
        facts = asdict(self)
        text = facts.pop("text")
        return {**facts, "reason": text.format(**{**facts, "columns": ", ".join(self.columns)})}


# A commit is refused if its base is so old that the commits after the base are unknown.
FORGOTTEN = Collision(
    "commits since then were expired, and a vacuum has removed them from the history"
)
# Another version has the number of the base.
PUT_BACK = Collision(
    "the version that was read is gone: the catalog was put back to a backup, or the dataset was "
    "dropped and made again"
)
# The schema is not the one that was read.
SCHEMA_CHANGED = Collision("the schema changed")


def schema_changed(why: object, *columns: str) -> Collision:
    """The schema is not the one that was read, and the change does not fit it."""
    text = str(why).replace("{", "{{").replace("}", "}}")
    return Collision(f"the schema changed: {text}", columns=columns)


def unchecked(name: str) -> str:
    """Rows would be committed that were not checked against a constraint."""
    return f"the constraint {name!r} was added, and the rows were not checked against it"


def conflict(
    uri: str, base_version: int, current_version: int, what: Collision | str
) -> CommitConflictError:
    """The error of a commit that was based on one version and found another one."""
    facts = {"reason": what} if isinstance(what, str) else what.facts
    return CommitConflictError(
        dataset=uri, base_version=base_version, current_version=current_version, **facts
    )


# The operations that move rows to other files, and all those that remove no row.
MOVE_ROWS = _operations(Change.REWRITE)
KEEP_ROWS = _operations(Change.APPEND, Change.SCHEMA, Change.REWRITE)
NO_ROWS = _operations(Change.SCHEMA)


def committed_first(version: int, operation: str, because: str = "") -> Collision:
    """The whole of another commit collides."""
    return Collision("version {version} did {operation!r}" + because, version, operation)


def verdict(mine: Change, theirs: Change) -> Verdict:
    """What a commit that does `mine` must do about a newer one that did `theirs`."""
    return dict(zip(Change, TABLE[mine]))[theirs]


def changes_rows(theirs: Change) -> bool:
    """Tell whether a change adds rows or takes rows out."""
    return theirs not in (Change.SCHEMA, Change.REWRITE)


def change_of(operation: str) -> Change | None:
    """The change of an operation; None for an operation of a later release."""
    return OPERATIONS.get(operation)


def checks_added(mine: Change, isolation: Isolation) -> bool:
    """Tell whether added files conflict if they may hold a row that a statement would match."""
    if isolation is Isolation.WRITE_SERIALIZABLE:
        return mine is Change.MERGE
    return isolation is Isolation.SERIALIZABLE

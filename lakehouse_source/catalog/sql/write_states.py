"""The life of a write: its states, who may change them, and all of their SQL.

    nothing ── register ──> PENDING ── abandon ──> ABANDONED
                               ^ └─<── heartbeat ──<──┘
    nothing, PENDING, ABANDONED ── commit ──> COMMITTED
    nothing, PENDING, ABANDONED ── fence ───> FENCED
             PENDING, ABANDONED ── forget ──> nothing

FENCED and COMMITTED are final, and exclude each other: a commit and a fence write the same
row first (`claim`), so one waits for the other and then sees the other's result.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from lakehouse_source.catalog.qualified_names import DEFAULT_NAMESPACE
from lakehouse_source.catalog.sql.names import NameChanges
from lakehouse_source.catalog.sql.records import without_nul
from lakehouse_source.catalog.sql.statements import FENCED_FOR, Row, Session, Statement
from lakehouse_source.errors import CatalogUnavailableError, CorruptDatasetError, InvalidOptionError

# --- A catalog that was copied has a fence: the copy is written to, and this catalog is not.
#
# Each commit asks for the fence in the statement that tells the state of its write, under the lock
# of its dataset; whoever fences takes the locks of all datasets first. So every commit is in the
# copy, or is refused. All SQL about it.


FENCED: Statement = (f"SELECT {FENCED_FOR}", ())
_WAIT_FOR_WRITERS = "UPDATE datasets SET claimed_at = claimed_at"
_SET = "INSERT INTO catalog_settings (name, value) VALUES ('fence', ?)"
_REMOVE = "DELETE FROM catalog_settings WHERE name = 'fence'"


def refuse_fenced(copy: str | None, catalog: str) -> None:
    """Refuse to write to a catalog whose fence names a copy."""
    if copy is not None:
        raise CatalogUnavailableError(
            catalog=catalog,
            reason=f"it was copied to {copy}, and only the copy is written to: use that catalog. "
            "To write to this one again, and not to the copy: plake catalog unfence "
            f"{catalog} {copy}",
        )


class FenceChanges:
    """The fence of a catalog, which one transaction sets or takes off."""

    _session: Session

    def set_fence(self, copy: str) -> bool:
        """Fence the catalog for a copy; False: it is fenced for this copy already.

        Running commits are waited for. `copy` is the shown URL of the copy.

        Raises:
            CatalogUnavailableError: it is fenced for another copy.
        """
        NameChanges(self._session).find_namespace(DEFAULT_NAMESPACE)  # new datasets wait here
        self._session.execute(_WAIT_FOR_WRITERS)
        found = self.fence()
        if found == copy:
            return False
        refuse_fenced(found, self._session.redacted_url)
        self._session.execute(_SET, (copy,))
        return True

    def fence(self) -> str | None:
        """The copy that the fence names; None: there is no fence."""
        ((found,),) = self._session.query(*FENCED)
        return found if found is None else str(found)

    def remove_fence(self, copy: str) -> None:
        """Take the fence off; `copy` is what it names.

        Raises:
            InvalidOptionError: there is no fence, or it names another copy.
        """
        found = self.fence()
        if found != copy:
            raise InvalidOptionError(
                option="copy",
                value=copy,
                reason="names no fence: the catalog has none."
                if found is None
                else f"is not what the fence names: {found}. Is that catalog written to no more?",
            )
        self._session.execute(_REMOVE)


class WriteState(Enum):
    """What became of a write. The values are those in the catalog, which never change.

    COMMITTED is a row of `transactions`; the others are rows of `pending_writes`. A write without
    either row is unknown to the catalog, or was forgotten.
    """

    PENDING = "pending"
    ABANDONED = "abandoned"
    FENCED = "closed"
    COMMITTED = "committed"

    @property
    def may_commit(self) -> bool:
        return self in COMMIT.before


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """A write's state, and its dataset, if the catalog knows it."""

    state: WriteState
    dataset_id: int | None


@dataclass(frozen=True, slots=True)
class Transition:
    """A transition from states to a state; None is a write that the catalog does not know."""

    name: str
    before: tuple[WriteState | None, ...]
    after: WriteState | None
    who: str
    why: str


_P, _A, _F, _C = WriteState

REGISTER = Transition(
    "register",
    (None,),
    _P,
    who="the writer, before its first byte",
    why="vacuum leaves the files of a registered write alone",
)
HEARTBEAT = Transition(
    "heartbeat",
    (_P, _A),
    _P,
    who="the writer, while it writes files",
    why="a write that was silent for too long and goes on after all is alive",
)
ABANDON = Transition(
    "abandon",
    (_P,),
    _A,
    who="whoever opens the catalog, and vacuum, after a time without a heartbeat",
    why="its process has probably died; it may still commit, so its files stay for now",
)
COMMIT = Transition(
    "commit",
    (None, _P, _A),
    _C,
    who="the writer, under the dataset's lock",
    why="its files are a version; None: a restore writes no files and does not register",
)
FENCE = Transition(
    "fence",
    (None, _P, _A, _F),
    _F,
    who="the writer that gives up, and vacuum before it deletes orphans",
    why="no commit that is still on its way can succeed, so its files may be deleted",
)
FORGET = Transition(
    "forget",
    (_P, _A),
    None,
    who="the writer that never began, or whose work another write has done",
    why="there are no files to protect; a fence stays for ever",
)
TRANSITIONS = (REGISTER, HEARTBEAT, ABANDON, COMMIT, FENCE, FORGET)


def described() -> str:
    """The table of transitions and its diagram, as the Markdown that `docs/formats.md` has."""

    def name(state: WriteState | None) -> str:
        return "unknown" if state is None else state.value

    drawn = [
        f"    {name(before)} --> {name(one.after)}: {one.name}"
        for one in TRANSITIONS
        for before in one.before
    ]
    rows = [
        f"| {one.name} | {', '.join(map(name, one.before))} | {name(one.after)} "
        f"| {one.who} | {one.why} |"
        for one in TRANSITIONS
    ]
    head = ["| transition | from | to | who | why |", "|---|---|---|---|---|"]
    return "\n".join(["```mermaid", "stateDiagram-v2", *drawn, "```", "", *head, *rows])


# --- SQL ------------------------------------------------------------------------


def _text(state: WriteState | None) -> str:
    assert state is not None
    return f"'{state.value}'"


def _stored(states: Iterable[WriteState | None]) -> str:
    """A condition: the row of `pending_writes` has one of these states."""
    rows = [state for state in states if state not in (None, WriteState.COMMITTED)]
    return f"state IN ({', '.join(_text(state) for state in rows)})"


_IS_COMMITTED = "EXISTS (SELECT 1 FROM transactions WHERE write_id = ?)"
_SILENT = "heartbeat_at <= {now} - ?"

# A column of another statement: the state of a write that is not committed.
STATE_OF = "(SELECT p.state FROM pending_writes AS p WHERE p.write_id = ?)"
# A condition of another statement: a running write began before the commit `t`.
BEGAN_BEFORE = (
    "EXISTS (SELECT 1 FROM pending_writes AS p WHERE p.dataset_id = t.dataset_id "
    f"AND p.state = {_text(_P)} AND p.started_at <= t.timestamp)"
)
_REGISTER = (
    "INSERT INTO pending_writes (write_id, dataset_id, state) "
    f"SELECT ?, ?, {_text(REGISTER.after)} WHERE NOT {_IS_COMMITTED} "
    "ON CONFLICT (write_id) DO NOTHING"
)
_HEARTBEAT = (
    f"UPDATE pending_writes SET heartbeat_at = {{now}}, state = {_text(HEARTBEAT.after)} "
    f"WHERE write_id = ? AND {_stored(HEARTBEAT.before)}"
)
_ABANDON = (
    f"UPDATE pending_writes SET state = {_text(ABANDON.after)} "
    f"WHERE {_stored(ABANDON.before)} AND {_SILENT}"
)
_FENCE = (
    f"UPDATE pending_writes SET state = {_text(FENCE.after)} "
    f"WHERE write_id = ? AND {_stored(FENCE.before)}"
)
_FORGET = f"DELETE FROM pending_writes WHERE write_id = ? AND {_stored(FORGET.before)}"
_FORGET_DATASET = "DELETE FROM pending_writes WHERE dataset_id = ?"
# Takes the row's lock whatever the state is, and changes no state.
_CLAIM = (
    f"INSERT INTO pending_writes (write_id, dataset_id, state) VALUES (?, ?, {_text(_P)}) "
    "ON CONFLICT (write_id) DO UPDATE SET heartbeat_at = pending_writes.heartbeat_at"
)
_STATE = "SELECT state, dataset_id FROM pending_writes WHERE write_id = ?"
_CLAIMED = f"SELECT state, {FENCED_FOR} FROM pending_writes WHERE write_id = ?"
_COMMITTED = "SELECT dataset_id FROM transactions WHERE write_id = ?"
_RECORDED = (
    "SELECT write_id FROM transactions WHERE dataset_id = ? "
    "UNION SELECT write_id FROM pending_writes WHERE dataset_id = ?"
)
_OF_BRANCH = (
    "FROM dataset_branches AS b JOIN datasets AS d ON d.id = b.dataset_id WHERE b.branch_id = ?"
)
_KEEP_COMMITTED = (
    "INSERT INTO pending_writes (write_id, dataset_id, state) "
    f"SELECT t.write_id, b.dataset_id, {_text(FENCE.after)} FROM transactions AS t "
    f"JOIN ({_OF_BRANCH.replace('FROM', 'SELECT b.branch_id, b.dataset_id FROM', 1)}) AS b "
    # The history that the branch began with has ids with a colon (catalog/sql/refs.py).
    "ON b.branch_id = t.dataset_id WHERE t.write_id NOT LIKE '%:%' "
    "ON CONFLICT (write_id) DO NOTHING"
)
_KEEP_PENDING = (
    f"UPDATE pending_writes SET dataset_id = (SELECT b.dataset_id {_OF_BRANCH}) "
    f"WHERE dataset_id = ? AND EXISTS (SELECT 1 {_OF_BRANCH})"
)
_SILENT_WRITES = (
    f"SELECT write_id, state FROM pending_writes WHERE {_stored(COMMIT.before)} AND {_SILENT}"
)


def claim(write_id: str, dataset_id: int | None) -> list[Statement]:
    """The statements to run, in this order, before a commit or a fence.

    Afterwards nobody else changes the write's state until the transaction ends. The second result
    is for `claimed`.
    """
    return [(_CLAIM, (write_id, dataset_id)), (_CLAIMED, (write_id,))]


def claimed(answer: Iterable[Row], catalog: str) -> WriteState:
    """The state of a claimed write, unless `transactions` has it: then it is committed.

    Raises:
        CatalogUnavailableError: the catalog is fenced, because it was copied.
    """
    ((state, fence),) = answer
    refuse_fenced(fence, catalog)
    return _stored_state(state)


class WriteStateReader:
    """The states of writes, which one transaction reads."""

    _session: Session

    def write_states(self, write_ids: Iterable[str]) -> dict[str, WriteStatus]:
        """What became of writes; those that this catalog does not know are left out."""
        found: dict[str, WriteStatus] = {}
        for write_id in write_ids:
            committed = self._session.query(_COMMITTED, (write_id,))
            if committed:
                found[write_id] = WriteStatus(WriteState.COMMITTED, committed[0][0])
                continue
            for state, dataset_id in self._session.query(_STATE, (write_id,)):
                found[write_id] = WriteStatus(_stored_state(state), dataset_id)
        return found

    def recorded_writes(self, dataset_id: int) -> set[str]:
        """The ids of all writes to a dataset that this catalog knows, in any state."""
        return {row[0] for row in self._session.query(_RECORDED, (dataset_id, dataset_id))}

    def silent_writes(self, seconds: float) -> dict[str, WriteState]:
        """Writes that may still commit and whose last heartbeat is older."""
        rows = self._session.query(_SILENT_WRITES, (_microseconds(seconds),))
        return {write_id: _stored_state(state) for write_id, state in rows}


class WriteStateChanges(WriteStateReader):
    """The states of writes, which one transaction may change. `TRANSITIONS` says who calls what."""

    def register_pending(self, write_id: str, dataset_id: int) -> None:
        """Register a write before its first byte: vacuum leaves its files alone.

        Nothing happens where the catalog knows it already.
        """
        without_nul(write_id, "write_id")
        self._session.send(_REGISTER, (write_id, dataset_id, write_id))

    def heartbeat(self, write_id: str) -> bool:
        """Say that a write goes on; False where it is committed, fenced or unknown."""
        return self._session.execute(_HEARTBEAT, (write_id,)) == 1

    def mark_abandoned(self, seconds: float) -> None:
        """Abandon pending writes whose last heartbeat is older, by the database's clock.

        A write that goes on after all may still commit, until it is fenced.
        """
        self._session.execute(_ABANDON, (_microseconds(seconds),))

    def finish_pending(self, write_id: str) -> None:
        """Forget a write that has no files, or that is committed. A fenced write stays fenced."""
        self._session.send(_FORGET, (write_id,))

    def fence_write(self, write_id: str) -> bool:
        """Fence a write: once this transaction is committed, the write never can be.

        Answers False, and does nothing, where it is committed already. A commit
        under way is waited for.
        """
        self._session.query_all(claim(without_nul(write_id, "write_id"), None))
        if self._session.query(_COMMITTED, (write_id,)):
            self.finish_pending(write_id)
            return False
        self._session.execute(_FENCE, (write_id,))
        return True

    def _end_writes(self, dataset_id: int) -> None:
        """Forget all writes to a dataset that was dropped: none can be committed any more.

        Those of a branch become its dataset's. Their files are in the dataset's folder, and a
        vacuum deletes only files whose write is recorded.
        """
        self._session.execute(_KEEP_COMMITTED, (dataset_id,))
        self._session.execute(_KEEP_PENDING, (dataset_id, dataset_id, dataset_id))
        self._session.execute(_FORGET_DATASET, (dataset_id,))


def _stored_state(text: str) -> WriteState:
    try:
        return WriteState(text)
    except ValueError as exc:
        raise CorruptDatasetError(
            path="the catalog",
            reason=f"column pending_writes.state has {text!r}, no state",
        ) from exc


def _microseconds(seconds: float) -> int:
    return round(seconds * 1_000_000)

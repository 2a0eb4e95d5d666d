"""Edge. Named points of a write at which a test can kill the process.

A crash must be harmless at every point of a write, and only killing a real process shows
it. `PLAKE_FAILPOINT=<name>` in the environment kills this process (SIGKILL: nothing is
flushed, no handler runs) when it reaches the point for the first time, `<name>:3` the
third time. Without the variable, a point costs one comparison.

With `PLAKE_FAILPOINT_HOLD=<path>` too, the process writes a line with its id to that file at the
point and waits. A test then kills the process together with its driver, before the driver's next
step.
"""

from __future__ import annotations

import os
import signal

VARIABLE = "PLAKE_FAILPOINT"
HOLD = "PLAKE_FAILPOINT_HOLD"

# In the order in which a write reaches them.
POINTS = (
    "begin",
    "pending written",
    "pending committed",
    "file opened",
    "row group written",
    "file closed",
    "file synced",
    "file verified",
    "files closed",
    "folders synced",
    "commit begun",
    "rows to keep found",
    "rows to keep written",
    "files checked",
    "changed files found",
    "rows written anew",
    "vectors written",
    "vectors synced",
    "transaction begun",
    "files recorded",
    "dataset locked",
    "conflicts checked",
    "schema written",
    "files moved",
    "transaction written",
    "files written",
    "files removed",
    "vectors recorded",
    "before COMMIT",
    "after COMMIT",
    "abort begun",
    "write fenced",
    "fence committed",
    "file deleted",
    "aborted",
)

_armed: str | None = None
_passes = 0


def arm(point: str | None) -> None:
    """Kill this process at a point (`name` or `name:count`); None switches that off."""
    global _armed, _passes
    name, _, count = (point or "").partition(":")
    if point and name not in POINTS:
        raise ValueError(f"{VARIABLE}: there is no point {name!r}. Known: {', '.join(POINTS)}")
    _armed, _passes = name or None, int(count or 1)


def reach(point: str) -> None:
    """Mark that the process is at a point; it is killed here if a test asked for that."""
    if _armed is not None and point == _armed:
        _die()


def _die() -> None:
    global _passes
    _passes -= 1
    if _passes == 0:
        hold = os.environ.get(HOLD)
        if hold is not None:
            with open(hold, "a") as file:
                file.write(f"{os.getpid()}\n")
            while True:
                signal.pause()
        os.kill(os.getpid(), signal.SIGKILL)


arm(os.environ.get(VARIABLE))

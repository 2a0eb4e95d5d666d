"""Edge. One line per plan, commit, retry, conflict and clean-up, by loggers named `plake.…`.

The loggers take no secret: catalogs and errors are redacted before they come here.
"""

from __future__ import annotations

import logging
import time

PLAN = logging.getLogger("plake.plan")
COMMIT = logging.getLogger("plake.commit")
COMPACT = logging.getLogger("plake.compact")
VACUUM = logging.getLogger("plake.vacuum")


def milliseconds(since: float) -> float:
    """The time since `time.perf_counter()` returned `since`."""
    return 1000 * (time.perf_counter() - since)

"""Door. Times in the options of reads.

A text without a zone is in the zone of Spark's session. The planner extension knows the zone, and
hands every time over as an instant (`SessionTimes.java`). Spark itself does not tell the zone to a
data source, so without the extension such a text is refused, and never taken for another instant.
"""

from __future__ import annotations

from datetime import datetime

from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.read.snapshot import parse_timestamp
from lakehouse_source.spark.session.options import Options


def moment_of(given: Options, option: str) -> datetime | None:
    """The instant that an option names; None: the option is absent.

    Raises:
        InvalidOptionError: the text is no time, or has no zone.
    """
    text = given.text(option)
    if text is None:
        return None
    found = parse_timestamp(text, option, zone=None)
    if found.tzinfo is None:
        raise InvalidOptionError(
            option=option,
            value=text,
            reason="has no zone, and Spark does not tell plake here which zone its session has. "
            f"Write it, such as '{text.strip()}+00:00'. Where tables are read by name, and in "
            "sessions that lakehouse_source.spark.configure made, it is the session's zone.",
        )
    return found

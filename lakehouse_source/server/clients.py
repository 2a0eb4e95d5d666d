"""Door. Which clients read a plan of a table rightly, by what they say that they are.

PyIceberg 0.12 keeps each partition value of a plan as the JSON value that it is: the text of a date
equals no date, so files of rows that match are left out without an error. A NULL there ends in an
error. Its own plans, by manifests, are right.
"""

from __future__ import annotations

from collections.abc import Iterable

from lakehouse_source.errors import IcebergUnsupportedError
from lakehouse_source.model import ScanTask
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.schema.types import card

_CLIENT = "pyiceberg"
# Iceberg's types whose values JSON has.
_IN_JSON = ("boolean", "int", "long", "string")
_HINT = (
    "Let PyIceberg read the manifests, which is its default: load_catalog(…, "
    "**{'scan-planning-mode': 'client'})."
)


def check_client(client: str, snapshot: Snapshot, tasks: Iterable[ScanTask]) -> None:
    """Refuse a plan that the client would read wrongly.

    Raises:
        IcebergUnsupportedError
    """
    if _CLIENT not in client.lower() or not snapshot.partition_by:
        return
    for name in snapshot.partition_by:
        found = card(snapshot.schema.field(name).type).iceberg
        if found not in _IN_JSON:
            raise _refused(snapshot, name, f"is a partition column of type {found}")
    for task in tasks:
        for name, text in zip(snapshot.partition_by, task.partitions):
            if text is None:
                raise _refused(snapshot, name, "is NULL in a partition")


def _refused(snapshot: Snapshot, column: str, reason: str) -> IcebergUnsupportedError:
    return IcebergUnsupportedError(
        dataset=snapshot.uri,
        column=column,
        reason=f"{reason}, which PyIceberg reads wrongly in a plan of the server",
        hint=_HINT,
    )

"""Pure. Positions of streams in a dataset, and what a stream reads of each commit.

A stream first reads the files of one version, its snapshot, and then the files that each
later commit appended. A position says which files were read: all files of versions before
`version`, and the files of `version` with ids up to `file`. Files have an order, by the version
that added them and then by id, which no later commit and no expiry changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from lakehouse_source.arguments import flag
from lakehouse_source.errors import StreamCheckpointError
from lakehouse_source.model import FileRecord, SeenVersion, TransactionRecord

# As in Delta: without any limit, a batch reads at most this many files.
MAX_FILES_PER_TRIGGER = 1000


# --- positions ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Position:
    """What a stream has read. `snapshot` is the version whose files it reads first.

    None: the snapshot was read, or there is none. Then the stream reads what commits append.
    """

    version: int
    file: int = 0
    snapshot: int | None = None

    @property
    def reached(self) -> int:
        """The last version of which something was read; 0: none."""
        if self.snapshot is not None:
            return self.snapshot
        return self.version if self.file else self.version - 1

    @property
    def is_start_of_snapshot(self) -> bool:
        """Tell whether the stream has a snapshot to read and nothing of it was read."""
        return self.snapshot is not None and (self.version, self.file) == (0, 0)

    def to_json(self, dataset: str, write_id: str | None, changes: bool = False) -> dict[str, Any]:
        """The offset that a checkpoint keeps for a stream of rows or of changes.

        `dataset` identifies the dataset, and `write_id` the version that is `reached`.
        """
        found = {
            "dataset": dataset,
            "version": self.version,
            "file": self.file,
            "snapshot": self.snapshot,
            "write": write_id,
        }
        return {**found, "changes": True} if changes else found


def position_of(
    offset: Mapping[str, Any],
    dataset: str,
    uri: str,
    newest: SeenVersion,
    write_id_of: Callable[[int], str | None],
    changes: bool = False,
) -> Position:
    """The position that an offset of a checkpoint means, for a stream of rows or of changes.

    `dataset` identifies the dataset at `uri`, and `write_id_of` its versions. An offset of an
    older release does not tell the write of its version.

    Raises:
        StreamCheckpointError: the offset is not one of this dataset.
    """
    version, file, snapshot = (offset.get(name) for name in ("version", "file", "snapshot"))
    numbers = all(type(number) is int and number >= 0 for number in (version, file))
    if not numbers or not (snapshot is None or type(snapshot) is int):
        raise StreamCheckpointError(dataset=uri, reason=f"it holds no offset of plake: {offset}")
    if offset.get("dataset") != dataset:
        raise StreamCheckpointError(
            dataset=uri,
            reason="it belongs to another dataset, or to one that was at this place before",
        )
    if bool(offset.get("changes")) != changes:
        kinds = ("rows that are added", "changes (readChangeFeed)")
        raise StreamCheckpointError(
            dataset=uri,
            reason=f"it is of a stream of {kinds[not changes]}, and this one is of "
            f"{kinds[changes]}",
        )
    assert isinstance(version, int)
    assert isinstance(file, int)
    position = Position(version, file, snapshot)
    reached = SeenVersion(position.reached, offset.get("write"))
    put_back = (
        "the catalog was put back to an older state. Begin with a new checkpoint location, and "
        "with startingVersion: the first version that was committed after that"
    )
    if reached.version > newest.version:
        raise StreamCheckpointError(
            dataset=uri,
            reason=f"it has read version {reached.version}, and the newest version is "
            f"{newest.version}: {put_back}",
        )
    if reached.is_replaced_by(write_id_of(reached.version)):
        raise StreamCheckpointError(
            dataset=uri,
            reason=f"it has read version {reached.version}, which is another version now: "
            f"{put_back}",
        )
    return position


def batch_start(start: Position, end: Position) -> Position:
    """The start of the batch that ends at `end`.

    A batch that is repeated after a crash gets the end that Spark noted. For the first batch, Spark
    asks for the start again, when the dataset may have newer versions. No batch reads both files of
    a snapshot and files of later commits, so the end tells the snapshot.
    """
    if not start.is_start_of_snapshot:
        return start
    if end.snapshot is not None:
        return Position(0, 0, end.snapshot)
    return Position(0, 0, end.version - 1)


# --- commits --------------------------------------------------------------------------


class Effect(Enum):
    """What a commit did to the rows of a dataset, as far as it matters to a stream.

    NOTHING: it changed the schema or properties, or moved rows to other files. APPENDS: it only
    added rows. DELETES: it only took rows out. CHANGES: it replaced or changed rows, or brought
    old ones back.
    """

    NOTHING = "nothing"
    APPENDS = "appends"
    DELETES = "deletes"
    CHANGES = "changes"


def effect_of(commit: TransactionRecord) -> Effect:
    """What a commit did, by the counts in its record.

    As in Delta, the effect of a commit counts, not its name: a MERGE that only
    inserted rows is an append, and so is an overwrite of a dataset without rows.
    """
    count = commit.summary.get
    if not count("data_change", 1):
        return Effect.NOTHING
    added = count("rows_added", 0)
    removed = count("rows_removed", 0) or count("files_removed", 0)
    if commit.operation == "restore" and added:
        return Effect.CHANGES
    if not removed:
        return Effect.APPENDS if added else Effect.NOTHING
    return Effect.CHANGES if added else Effect.DELETES


@dataclass(frozen=True, slots=True)
class Rules:
    """What a stream does about commits that do not only append.

    `ignore_deletes` skips commits that only take rows out, `skip_change_commits` these and all
    others that do not only append. Without `fail_on_data_loss` the stream goes on where files
    were deleted before it read them.
    """

    skip_change_commits: bool = False
    ignore_deletes: bool = False
    fail_on_data_loss: bool = True

    def __post_init__(self) -> None:
        for name in self.__slots__:
            flag(name, getattr(self, name))

    def refuses(self, effect: Effect) -> bool:
        """Tell whether a commit ends the stream."""
        if effect is Effect.DELETES:
            return not (self.ignore_deletes or self.skip_change_commits)
        return effect is Effect.CHANGES and not self.skip_change_commits


# --- limits ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one batch reads; None: no limit.

    `max_bytes` is soft: a batch ends with the file that reaches it. A batch always reads a file.
    """

    max_files: int | None = None
    max_bytes: int | None = None


class Admission:
    """Counts the files of one batch against its limits."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.files = 0
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Tell whether the batch has as much as it may have."""
        files, size = self._limits.max_files, self._limits.max_bytes
        return bool(self.files) and (
            (files is not None and self.files >= files)
            or (size is not None and self._bytes >= size)
        )

    def take(self, size_bytes: int, files: int = 1) -> None:
        """Add files to the batch."""
        self.files += files
        self._bytes += size_bytes

    def has_room_for(self, files: int) -> bool:
        """Tell whether this many files, which must stay together, still fit into the batch."""
        most = self._limits.max_files
        fits = most is None or self.files + files <= most
        return not files or not self.files or (fits and not self.is_full)


def admit(
    files: Iterable[FileRecord],
    wanted: Mapping[int, bool],
    admission: Admission,
    start: Position,
) -> tuple[Position, bool]:
    """How far a batch gets in files that follow `start`, and whether it is full.

    A file that is not `wanted`, because none of its rows can be read, does not count.
    """
    position = start
    for file in files:
        if wanted.get(file.id, True):
            if admission.is_full:
                return position, True
            admission.take(file.size_bytes)
        position = Position(file.version, file.id, start.snapshot)
    return position, False

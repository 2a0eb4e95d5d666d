"""Pure. The results of maintenance, as values that print as tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from lakehouse_source.model import CompactionResult
from lakehouse_source.result_tables import laid_out

# How many paths a report keeps of each kind of file, as examples.
PATHS_KEPT = 10


@dataclass(frozen=True, slots=True)
class ExpiryReport:
    """Versions that were expired, and the files that only they contained.

    `files` and `size_bytes` count files that vacuum deletes once its retention has passed.
    `consumers` names the consumers that keep versions which the limits would expire.
    """

    dataset: str
    expired: Annotated[tuple[int, ...], "the versions that were expired"]
    oldest_version: Annotated[int, "the oldest version that can be read"]
    newest_version: Annotated[int, "the newest version"]
    files: Annotated[int, "files that only expired versions have"]
    size_bytes: Annotated[int, "bytes of these files"]
    consumers: tuple[str, ...] = ()

    def __str__(self) -> str:
        readable = f"versions {self.oldest_version} to {self.newest_version} can be read"
        if self.consumers:
            readable += f" (kept for consumers: {', '.join(self.consumers)})"
        if not self.expired:
            return f"{self.dataset}: nothing to expire, {readable}"
        first, last = self.expired[0], self.expired[-1]
        return (
            f"{self.dataset}: expired versions {first} to {last}, {readable}; "
            f"{self.files:,} files ({self.size_bytes:,} bytes) wait for vacuum"
        )


@dataclass(frozen=True, slots=True)
class FileTally:
    """Files of one kind: why they were removed or kept, how many, and some of their paths."""

    what: str
    files: int
    size_bytes: int
    paths: tuple[str, ...]


class Tallies:
    """Counts files by kind; the kinds keep the order in which they first occurred."""

    def __init__(self) -> None:
        self._kinds: dict[str, tuple[int, int, list[str]]] = {}

    def add(self, what: str, path: str, size_bytes: int) -> None:
        files, total, paths = self._kinds.get(what, (0, 0, []))
        if len(paths) < PATHS_KEPT:
            paths.append(path)
        self._kinds[what] = (files + 1, total + size_bytes, paths)

    def done(self) -> tuple[FileTally, ...]:
        return tuple(
            FileTally(what, files, total, tuple(paths))
            for what, (files, total, paths) in self._kinds.items()
        )


@dataclass(frozen=True, slots=True)
class VacuumReport:
    """What a vacuum removed from one dataset, what it kept, and why. Prints as a table.

    With `dry_run` nothing was removed, and `removed` is what would have been removed.
    `folders_removed` counts empty partition folders, `rows_forgotten` the rows that were
    deleted from the catalog's table `files`, `commits_forgotten` those from the history.
    """

    dataset: str
    dry_run: bool
    removed: tuple[FileTally, ...]
    left: tuple[FileTally, ...]
    folders_removed: int
    rows_forgotten: int
    commits_forgotten: int = 0

    @property
    def files_removed(self) -> int:
        return sum(tally.files for tally in self.removed)

    @property
    def bytes_removed(self) -> int:
        return sum(tally.size_bytes for tally in self.removed)

    def __str__(self) -> str:
        did = "would remove" if self.dry_run else "removed"
        rows = [
            (action, f"{one.files:,}", f"{one.size_bytes:,}", one.what, "".join(one.paths[:1]))
            for action, tallies in ((did, self.removed), ("left", self.left))
            for one in tallies
        ]
        lines = [*laid_out(("", "files", "bytes", "what", "for example"), rows, right=(1, 2))]
        title = f"vacuum of {self.dataset}" + (" (dry run)" if self.dry_run else "")
        if self.folders_removed:
            lines.append(f"empty folders removed: {self.folders_removed:,}")
        if self.commits_forgotten:
            lines.append(f"commits removed from the history: {self.commits_forgotten:,}")
        return "\n".join([title, *lines])


@dataclass(frozen=True, slots=True)
class CatalogVacuumReport:
    """The reports of a catalog's datasets; dropped datasets, which are deleted, come first.

    `failed` has a pair (dataset, reason) for each dataset that could not be vacuumed.
    """

    reports: tuple[VacuumReport, ...]
    failed: tuple[tuple[str, str], ...] = ()

    @property
    def files_removed(self) -> int:
        return sum(report.files_removed for report in self.reports)

    @property
    def bytes_removed(self) -> int:
        return sum(report.bytes_removed for report in self.reports)

    def __str__(self) -> str:
        parts = [str(report) for report in self.reports]
        parts += [f"no vacuum of {dataset}: {reason}" for dataset, reason in self.failed]
        return "\n\n".join(parts)


@dataclass(frozen=True, slots=True)
class ErasureReport:
    """What an erasure removed, and what it could not.

    `rows` counts rows by their identity: a row that was in several files, or is changed on a
    branch, counts once for the dataset and once for the branch.
    """

    dataset: str
    version: Annotated[int, "the version that is the newest now"]
    rows: Annotated[int, "rows that were erased"]
    files_rewritten: Annotated[int, "files that were rewritten without them"]
    files_removed: Annotated[int, "files that were deleted"]
    notes_changed: Annotated[int, "commits in whose metadata a text of the condition was"] = 0
    left: Annotated[tuple[str, ...], "where values may still be"] = ()

    def __str__(self) -> str:
        title = (
            f"erased {self.rows:,} rows from every version of {self.dataset}, up to version "
            f"{self.version}; {self.files_rewritten:,} files rewritten, {self.files_removed:,} "
            f"deleted, notes of {self.notes_changed:,} commits changed"
        )
        return "\n".join([title, *(f"left: {one}" for one in self.left)])


@dataclass(frozen=True, slots=True)
class MaintenanceReport:
    """What `maintain` did, in its order; None: a step that was not asked for.

    `rows_expired` are the rows that `expire_rows` deleted. With `dry_run` nothing was done:
    `rows_expired` counts the rows that would be deleted, and `vacuum` has what would be removed.
    """

    dataset: str
    version: int
    dry_run: bool
    rows_expired: int | None
    compaction: CompactionResult | None
    expiry: ExpiryReport | None
    vacuum: VacuumReport

    def __str__(self) -> str:
        lines = [f"maintenance of {self.dataset}" + (" (dry run)" if self.dry_run else "")]
        if self.rows_expired is not None:
            verb = "would be deleted" if self.dry_run else "deleted"
            lines.append(f"rows by expire_rows: {self.rows_expired:,} {verb}")
        if self.compaction is not None:
            one = self.compaction
            lines.append(f"compaction: {one.files_removed:,} files became {one.files_added:,}")
        if self.expiry is not None:
            lines.append(str(self.expiry))
        return "\n".join([*lines, str(self.vacuum)])


@dataclass(frozen=True, slots=True)
class Difference:
    """One property of one file that is not what the catalog says."""

    path: str
    what: str
    expected: str
    found: str


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """A version's files compared with the catalog. Prints as a table."""

    dataset: str
    version: int
    files: int
    size_bytes: int
    checksums: bool
    differences: tuple[Difference, ...]

    @property
    def ok(self) -> bool:
        """Tell whether every file is what was committed."""
        return not self.differences

    def __str__(self) -> str:
        depth = "contents" if self.checksums else "sizes and footers"
        title = (
            f"{self.dataset} version {self.version}: {depth} of {self.files:,} files "
            f"({self.size_bytes:,} bytes), {len(self.differences):,} differences"
        )
        if self.ok:
            return title
        rows = [(d.path, d.what, d.expected, d.found) for d in self.differences]
        return "\n".join([title, *laid_out(("file", "what", "expected", "found"), rows)])

"""Verb. What upkeep has done and what is behind: as metrics of Prometheus, and as a page."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from lakehouse_source.pictures.markup import visible
from lakehouse_source.pictures.page import Listing, fragment, page
from lakehouse_source.upkeep.steps import Done

Samples = Iterator[tuple[Mapping[str, str], float]]


@dataclass(slots=True)
class Table:
    """A dataset that is looked after. `behind` has files and bytes by what is to be done."""

    name: str
    version: int = 0
    files: int = 0
    size_bytes: int = 0
    behind: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    waits_for: str | None = None
    did: Counter[str] = field(default_factory=Counter)
    failures: int = 0
    failed_in_a_row: int = 0
    error: str = ""  # the code; its text, which may name places, is in the log
    retry_at: float = 0.0
    looked_at: float = 0.0
    seen: tuple[int, int] = (-1, -1)


@dataclass(slots=True)
class State:
    """What one process knows. `other` holds the lease where this process does not."""

    catalog: str
    leads: bool = False
    other: str | None = None
    rounds: int = 0
    round_seconds: float = 0.0
    round_ended_at: float = 0.0
    vacuum_ended_at: float = 0.0
    vacuum_failures: int = 0
    commits: Counter[str] = field(default_factory=Counter)
    files: Counter[str] = field(default_factory=Counter)
    size_bytes: Counter[str] = field(default_factory=Counter)
    tables: dict[int, Table] = field(default_factory=dict)

    def add(self, done: Done, table: Table | None = None) -> None:
        """Count a step."""
        self.commits[done.step] += 1
        self.files[done.step] += done.files
        self.size_bytes[done.step] += done.size_bytes
        if table is not None:
            table.did[done.step] += done.files

    def rows(self) -> Iterator[tuple[str, str, int, str]]:
        """What was done to each table: table, step, files (or rows), and a note."""
        for one in sorted(self.tables.values(), key=lambda table: table.name):
            for step, files in one.did.items():
                yield one.name, step, files, ""
            if one.error:
                yield one.name, "failed", 0, one.error
        if self.files["vacuum"]:
            yield "", "vacuum", self.files["vacuum"], ""

    def metrics(self) -> str:
        """The text that Prometheus reads."""
        lines = []
        for name, kind, text, samples in self._families():
            lines += [f"# HELP plake_upkeep_{name} {text}", f"# TYPE plake_upkeep_{name} {kind}"]
            for labels, value in samples:
                inside = ",".join(f'{key}="{_label(one)}"' for key, one in labels.items())
                shown = f"{{{inside}}}" if inside else ""
                lines.append(f"plake_upkeep_{name}{shown} {value:.15g}")
        return "\n".join(lines) + "\n"

    def page(self) -> str:
        """A page for a browser: no script, no network."""
        rows: list[list[str | int | None]] = []
        for one in sorted(self.tables.values(), key=lambda table: table.name):
            behind = [f"{name}: {files:,} files" for name, (files, _) in one.behind.items()]
            notes = [f"waits for branch {one.waits_for}"] if one.waits_for else []
            notes += [f"failed {one.failed_in_a_row} times: {one.error}"] if one.error else []
            did = [f"{name}: {count:,}" for name, count in one.did.items()]
            rows.append(
                [
                    one.name,
                    one.version,
                    one.files,
                    one.size_bytes,
                    ", ".join(did),
                    ", ".join(behind),
                    ", ".join(notes),
                ]
            )
        whole: list[list[str | int | None]] = [
            [step, count, self.files[step], self.size_bytes[step]]
            for step, count in sorted(self.commits.items())
        ]
        who = "This process does it" if self.leads else f"{self.other or 'Nobody'} does it"
        moments = {"last round": self.round_ended_at, "last vacuum": self.vacuum_ended_at}
        notes = [f"{name}: {_moment(at)}" for name, at in moments.items() if at]
        body = fragment(
            f"Upkeep of {self.catalog}",
            f"{who}. {self.rounds:,} rounds, the last one took {self.round_seconds:.1f} s.",
            [
                Listing(
                    "Tables",
                    ("table", "version", "files", "bytes", "files done", "behind", "notes"),
                    rows,
                ),
                Listing("What was done", ("step", "times", "files", "bytes"), whole),
            ],
            notes=notes,
        )
        return page("plake upkeep", body)

    def _families(self) -> Iterator[tuple[str, str, str, Samples]]:
        def one(value: float) -> Samples:
            return iter([({}, value)])

        def by_step(counts: Mapping[str, int]) -> Samples:
            return (({"step": step}, count) for step, count in sorted(counts.items()))

        tables = self.tables.values()
        yield "leads", "gauge", "Whether this process holds the lease.", one(self.leads)
        yield "rounds_total", "counter", "Rounds over all tables.", one(self.rounds)
        yield "round_seconds", "gauge", "How long the last round took.", one(self.round_seconds)
        ended = self.round_ended_at
        yield "round_ended_timestamp_seconds", "gauge", "When the last round ended.", one(ended)
        ended = self.vacuum_ended_at
        yield "vacuum_ended_timestamp_seconds", "gauge", "When the last vacuum ended.", one(ended)
        count = self.vacuum_failures
        yield "vacuum_failures", "gauge", "Tables that the last vacuum left out.", one(count)
        yield "steps_total", "counter", "Steps that were done.", by_step(self.commits)
        yield "files_total", "counter", "Files (or rows) of these steps.", by_step(self.files)
        yield "bytes_total", "counter", "Bytes of these steps.", by_step(self.size_bytes)
        failures = (({"table": table.name}, table.failures) for table in tables if table.failures)
        yield "failures_total", "counter", "Failures by table.", failures
        failing = (({"table": t.name, "code": t.error}, 1) for t in tables if t.error)
        yield "failing", "gauge", "Tables whose last try failed.", failing
        files = (({"table": table.name}, table.files) for table in tables)
        yield "table_files", "gauge", "Files of the newest version.", files
        for name, text, place in (("files", "Files", 0), ("bytes", "Bytes", 1)):
            samples = (
                ({"table": table.name, "step": step}, counts[place])
                for table in tables
                for step, counts in table.behind.items()
            )
            yield f"behind_{name}", "gauge", f"{text} that wait for a step.", samples


def _label(text: str) -> str:
    return visible(text).replace("\\", r"\\").replace('"', r"\"")


def _moment(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at))

"""Runs all tests in two lanes side by side, for two cores.

    python integration/run_tests.py [PYTEST ARGUMENTS]

One lane has the tests that need Spark; the other has the type checks and the tests without
Spark. The lane that is done first takes parts of the other. The output of the first lane is shown
as it comes; the others write to files, which are shown when all are done. The last line counts
the tests of both, and the exit code is the worse one. Ctrl-C stops both: each pytest gets time to
stop its Spark, its PostgreSQL and its processes.

A pytest that hangs inside of a library cannot be ended by pytest-timeout: DuckDB 2.0.0 has waited
for ever. It is ended from here, with the stacks of its threads, and run once more. One that has
told its results and does not end is ended too, and its results count.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
PYTEST = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider")
GRACE_SECONDS = 60
POLL_SECONDS = 0.2
NO_TESTS = 5  # pytest's exit code where its arguments select none
MOST_SECONDS = 2100  # of one pytest: all take a third of it, half on a busy machine
SECONDS_TO_END = 120  # after its results are written
SILENT_SECONDS = 660  # a test that hangs in Python is ended after 600


@dataclass(frozen=True, slots=True)
class Lane:
    """Runs of pytest with the tests that some markers choose, after the commands of `checks`.

    Each of `parts` is the arguments of one pytest.
    """

    name: str
    markers: str
    checks: tuple[tuple[str, ...], ...] = ()
    parts: tuple[tuple[str, ...], ...] = ((),)


@dataclass(slots=True)
class Command:
    """What a lane runs: its arguments, and the file of its results where it is a pytest."""

    arguments: tuple[str, ...]
    log: Path | None = None  # where it writes; None is the terminal
    results: Path | None = None
    again: bool = False
    begin: float = 0.0

    def is_stuck(self) -> bool:
        """Tell whether it is a pytest that will not end by itself."""
        if self.results is None:
            return False
        ran = time.monotonic() - self.begin
        if self.log is not None:
            silent = time.time() - self.log.stat().st_mtime
            if min(silent, ran) > SILENT_SECONDS:
                return True
        try:
            return time.time() - self.results.stat().st_mtime > SECONDS_TO_END
        except FileNotFoundError:
            return ran > MOST_SECONDS


FIRST = Lane("with Spark", "spark and not long")
SECOND = Lane(
    "without Spark",
    "not spark and not long",
    checks=((sys.executable, "-m", "mypy"),),
    parts=(("tests/verbs",), ("--ignore=tests/verbs", "--ignore=tests/edges"), ("tests/edges",)),
)


class Runner:
    """Runs the commands of one lane, one after the other, and then those left of `helped`."""

    def __init__(
        self, lane: Lane, arguments: list[str], folder: Path, helped: Runner | None = None
    ) -> None:
        self.lane = lane
        self._helped = helped
        self.exit_code = 0
        self.seconds = 0.0
        self._begin = time.monotonic()
        # Arguments may name tests of one lane only.
        self._harmless = {0, NO_TESTS} if arguments else {0}
        self._commands: list[Command] = []
        self._results: list[Path] = []
        self.logs: list[Path] = []
        for check in lane.checks:
            self._commands.append(Command(check, self._new_log(folder)))
        for number, part in enumerate([arguments] if arguments else lane.parts):
            results = folder / f"{lane.name} {number}.xml"
            chosen = ("-m", lane.markers, f"--junit-xml={results}", *part)
            self._commands.append(Command((*PYTEST, *chosen), self._new_log(folder), results))
            self._results.append(results)
        self._command = Command(())
        self._running: subprocess.Popen[bytes] | None = None

    def _new_log(self, folder: Path) -> Path | None:
        if self._helped is not None:
            return None
        self.logs.append(folder / f"{len(self.logs)}.log")
        return self.logs[-1]

    def is_running(self) -> bool:
        """Begin the next command where one has ended; answer whether there is anything left."""
        if self._running is not None:
            code = self._running.poll()
            if code is None and self._command.is_stuck():
                code = self._end_stuck(self._running)
            if code is None:
                return True
            self._ended(code)
        if self._commands:
            self._command = self._commands.pop(0)
        elif self._helped is not None and self._helped._commands:
            self._command = self._helped._commands.pop()
        else:
            return False
        self._command.begin = time.monotonic()
        log = self._command.log
        with open(log, "ab") if log else nullcontext() as out:
            # A process group of its own: Ctrl-C reaches it once, through `interrupt`.
            self._running = subprocess.Popen(
                self._command.arguments,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out and subprocess.STDOUT,
                start_new_session=True,
            )
        return True

    def _end_stuck(self, running: subprocess.Popen[bytes]) -> int:
        """End a pytest that hangs; the exit code that counts for it."""
        command = self._command
        running.send_signal(signal.SIGABRT)  # pytest's faulthandler writes the stacks
        with suppress(subprocess.TimeoutExpired):
            running.wait(10)
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        code = running.wait()
        found = counts(command.results) if command.results else Counter[str]()
        told = f"hung for {time.monotonic() - command.begin:.0f} s and was killed"
        if command.results is not None and command.results.exists():
            code = 1 if found["failed"] or found["errors"] else 0
            told += f", after its results: {dict(found)}"
        elif not command.again:
            command.again, code = True, 0
            self._commands.insert(0, command)
            told += "; it runs once more"
        print(f"\n=== {self.lane.name}: a pytest {told}", flush=True)
        return code

    def _ended(self, code: int) -> None:
        self._running = None
        self.seconds = time.monotonic() - self._begin
        if code not in self._harmless:
            code = code if code > 0 else 128 - code  # killed by a signal: as shells say it
            print(f"\n=== {self.lane.name}: a command ended with {code}", flush=True)
            self.exit_code = max(self.exit_code, code)

    def interrupt(self) -> None:
        """Begin nothing more, and ask what is running to stop as for Ctrl-C."""
        self._commands.clear()
        if self._running is not None and self._running.poll() is None:
            self._running.send_signal(signal.SIGINT)

    def finish(self) -> None:
        """Wait for what was interrupted; kill what stays."""
        if self._running is None:
            return
        try:
            code = self._running.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self._running.pid, signal.SIGKILL)
            code = self._running.wait()
        self._ended(code)

    def counts(self) -> Counter[str]:
        """How many tests passed, failed and so on; a pytest that crashed is an error."""
        return sum(map(counts, self._results), Counter[str]())

    def seconds_by_module(self) -> Counter[str]:
        """How long the tests of each module took, their fixtures included."""
        found: Counter[str] = Counter()
        for results in self._results:
            with suppress(OSError, ElementTree.ParseError):
                for case in ElementTree.parse(results).getroot().iter("testcase"):
                    module = case.get("classname", "").split(".Test")[0]
                    found[module.removeprefix("tests.")] += round(float(case.get("time", 0)))
        return found


def counts(results: Path) -> Counter[str]:
    """How many tests of one pytest passed, failed and so on."""
    try:
        suites = list(ElementTree.parse(results).getroot())
    except (OSError, ElementTree.ParseError):
        return Counter(errors=1)
    found: Counter[str] = Counter()
    for suite in suites:
        all_, failed, errors, skipped = (
            int(suite.get(key, 0)) for key in ("tests", "failures", "errors", "skipped")
        )
        found += Counter(passed=all_ - failed - errors - skipped, failed=failed)
        found += Counter(skipped=skipped, errors=errors)
    return found


def slowest(runners: list[Runner], count: int = 12) -> str:
    """The modules of each lane that take longest, in seconds."""
    lines = []
    for runner in runners:
        named = (f"{name} {sec}" for name, sec in runner.seconds_by_module().most_common(count))
        lines.append(f"{runner.lane.name}: {', '.join(named)}")
    return "\n".join(lines)


def closing_line(runners: list[Runner], seconds: float) -> str:
    """The counts of all lanes in pytest's words, such as `5 passed, 0 failed, 1 skipped`."""
    total = sum((runner.counts() for runner in runners), Counter[str]())
    parts = [f"{total[word]} {word}" for word in ("passed", "failed", "skipped")]
    if total["errors"]:
        parts.append(f"{total['errors']} errors")
    lanes = ", ".join(f"{one.lane.name} {one.seconds:.0f} s" for one in runners)
    return f"{', '.join(parts)} in {seconds:.0f} s ({lanes})"


def terminated(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main(arguments: list[str]) -> int:
    # A shell that starts this in the background has SIGINT ignored, and pytest would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, terminated)
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="plake-tests-") as folder:
        second = Runner(SECOND, arguments, Path(folder))
        runners = [Runner(FIRST, arguments, Path(folder), second), second]
        interrupted = False
        try:
            while [runner for runner in runners if runner.is_running()]:
                time.sleep(POLL_SECONDS)
        except KeyboardInterrupt:
            interrupted = True
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            for runner in runners:
                runner.interrupt()
            for runner in runners:
                runner.finish()
        print("=== types, tests without Spark", flush=True)
        for log in second.logs:
            print(log.read_text(errors="replace") if log.exists() else "", flush=True)
        print(slowest(runners))
        print(closing_line(runners, time.monotonic() - begin), flush=True)
    if interrupted:
        return 130
    return max(runner.exit_code for runner in runners)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

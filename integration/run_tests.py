"""Runs all tests in two lanes side by side, for two cores.

    python integration/run_tests.py [PYTEST ARGUMENTS]

One lane has the tests that need Spark; the other has the type checks and the tests without
Spark. The output of the first lane is shown as it comes; the second writes to a file, which
is shown when both are done. The last line counts the tests of both, and the exit code is the
worse one. Ctrl-C stops both: each pytest gets time to stop its Spark, its PostgreSQL and its
processes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
PYTEST = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider")
GRACE_SECONDS = 60
POLL_SECONDS = 0.2
NO_TESTS = 5  # pytest's exit code where its arguments select none


@dataclass(frozen=True, slots=True)
class Lane:
    """A run of pytest with the tests that some markers choose. `checks` are commands before it."""

    name: str
    markers: str
    checks: tuple[tuple[str, ...], ...] = ()


FIRST = Lane("with Spark", "spark and not long")
SECOND = Lane(
    "without Spark",
    "not spark and not long",
    checks=((sys.executable, "-m", "mypy"),),
)


class Runner:
    """Runs the commands of one lane, one after the other."""

    def __init__(self, lane: Lane, arguments: list[str], folder: Path, out: IO[str] | None) -> None:
        self.lane = lane
        self.exit_code = 0
        self.seconds = 0.0
        self._begin = time.monotonic()
        self._counts = folder / f"{lane.name}.xml"
        # Arguments may name tests of one lane only.
        self._harmless = {0, NO_TESTS} if arguments else {0}
        self._commands = [
            *lane.checks,
            (*PYTEST, "-m", lane.markers, f"--junit-xml={self._counts}", *arguments),
        ]
        self._out = out
        self._running: subprocess.Popen[bytes] | None = None

    def is_running(self) -> bool:
        """Begin the next command where one has ended; answer whether there is anything left."""
        if self._running is not None:
            code = self._running.poll()
            if code is None:
                return True
            self._ended(code)
        if not self._commands:
            return False
        # A process group of its own: Ctrl-C reaches it once, through `interrupt`.
        self._running = subprocess.Popen(
            self._commands.pop(0),
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=self._out,
            stderr=self._out and subprocess.STDOUT,
            start_new_session=True,
        )
        return True

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
        try:
            suites = list(ElementTree.parse(self._counts).getroot())
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

    def seconds_by_module(self) -> Counter[str]:
        """How long the tests of each module took, their fixtures included."""
        found: Counter[str] = Counter()
        with suppress(OSError, ElementTree.ParseError):
            for case in ElementTree.parse(self._counts).getroot().iter("testcase"):
                module = case.get("classname", "").split(".Test")[0]
                found[module.removeprefix("tests.")] += round(float(case.get("time", 0)))
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
        with Path(folder, "log").open("w+") as log:
            runners = [
                Runner(FIRST, arguments, Path(folder), None),
                Runner(SECOND, arguments, Path(folder), log),
            ]
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
            log.seek(0)
            print("=== types, tests without Spark", flush=True)
            print(log.read(), flush=True)
        print(slowest(runners))
        print(closing_line(runners, time.monotonic() - begin), flush=True)
    if interrupted:
        return 130
    return max(runner.exit_code for runner in runners)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

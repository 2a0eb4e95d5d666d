"""Runs `plake` in a process of its own, forked from the warm server of `tests.processes`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from tests import processes


class Done(NamedTuple):
    """What a command answered."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> Any:
        """Its output as JSON."""
        return json.loads(self.out)


def plake(*arguments: object, folder: str = "/", **environment: str) -> Done:
    """Run a command in a folder to its end, with standard input closed and output into files."""
    given = [str(one) for one in arguments]
    with TemporaryDirectory() as shown:
        code = processes.run(_run, given, environment, folder, shown)
        texts = [(Path(shown) / name).read_text() for name in ("out", "err")]
    return Done(code, *texts)


def _run(arguments: list[str], environment: dict[str, str], folder: str, shown: str) -> None:
    from lakehouse_source import failpoints
    from lakehouse_source.cli.main import main

    os.chdir(folder)
    os.environ.pop("PLAKE_CATALOG", None)
    os.environ.update(environment)
    failpoints.arm(os.environ.get(failpoints.VARIABLE))
    for number, name in ((1, "out"), (2, "err")):
        file = os.open(f"{shown}/{name}", os.O_WRONLY | os.O_CREAT)
        os.dup2(file, number)
    sys.stdout = open(1, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8")  # noqa: SIM115
    sys.argv = ["plake", *arguments]
    try:
        main()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()

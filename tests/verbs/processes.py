"""Writers in processes of their own: forked from one warm server, so that each costs little."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from typing import Any

import pyarrow as pa

import lakehouse_source as lake
from lakehouse_source import failpoints

# The server imports these once; its children have no threads of the tests' process.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["pytest", "tests.verbs.processes", "pandas", "psycopg"])


def start(target: Callable[..., None], *arguments: Any) -> Any:
    """Run a function of a module in a process of its own."""
    process = CONTEXT.Process(target=target, args=arguments, daemon=True)
    process.start()
    return process


def run(target: Callable[..., None], *arguments: Any, seconds: float = 60) -> int:
    """Run a function in a process of its own; answer how that ended."""
    process = start(target, *arguments)
    process.join(seconds)
    if process.is_alive():
        process.kill()
        raise AssertionError(f"still running after {seconds} s")
    assert process.exitcode is not None
    code: int = process.exitcode
    process.close()
    return code


def write_once(
    url: str, uri: str, table: pa.Table, arguments: dict[str, Any], point: str | None, answers: Any
) -> None:
    """One write that may be killed on its way; what it was told goes to `answers`."""
    failpoints.arm(point)
    with lake.open_catalog(url) as catalog:
        try:
            result = lake.write_dataset(table, uri, catalog=catalog, **arguments)
        except lake.PlakeError as error:
            answers.send(error)
        else:
            answers.send(result.version)

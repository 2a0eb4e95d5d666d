"""Functions in processes of their own, forked from one warm server so that each starts fast."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

# The children have no threads of the tests' process.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.warm_imports"])


def start(target: Callable[..., None], *arguments: Any) -> Any:
    """Run a function of a module in a process of its own."""
    process = CONTEXT.Process(target=target, args=arguments, daemon=True)
    process.start()
    return process


def run(target: Callable[..., None], *arguments: Any, seconds: float = 60) -> int:
    """Run a function in a process of its own; answers its exit code."""
    process = start(target, *arguments)
    process.join(seconds)
    if process.is_alive():
        process.kill()
        raise AssertionError(f"still running after {seconds} s")
    assert process.exitcode is not None
    code: int = process.exitcode
    process.close()
    return code


@contextmanager
def forked(target: Callable[..., None], *arguments: Any) -> Iterator[Any]:
    """A child forked from the tests' process, whose threads may make it hang: it is killed then.

    Gives the queue of its answers, the last argument of `target`.
    """
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    child = context.Process(target=target, args=(*arguments, answers), daemon=True)
    child.start()
    try:
        yield answers
        child.join(30)
        assert child.exitcode == 0
    finally:
        child.kill()
        child.join()

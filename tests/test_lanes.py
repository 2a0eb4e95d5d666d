"""`make test` ends with all its results, whatever a test does to the process that it runs in."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path

import pytest

from tests.lanes import Lanes

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
CONFTEST = """
import pytest
from tests.conftest import pytest_collection_modifyitems, pytest_configure_node
from tests.conftest import pytest_handlecrashitem, pytest_xdist_make_scheduler
"""
# DuckDB has waited for a lock that it held, which no signal interrupts. PyDLL keeps Python's lock
# too: then no thread of Python can end the process.
HANGS = """
import ctypes, os, pytest
from tests.test_lanes import wait_for_ever
pytestmark = {marks}
@pytest.mark.parametrize("number", range(4))
def test_before(number): pass
def test_that_ends_its_process(): {what}
"""
AFTER = """
@pytest.mark.parametrize("number", range(4))
def test_after(number): assert number != 2
"""


def wait_for_ever(library: type) -> None:
    lock, functions = b"\0" * 128, library(None)
    for _ in range(2):
        functions.pthread_mutex_lock(lock)


@pytest.mark.skipif(sys.platform != "linux", reason="the size of a lock is that of Linux")
def test_a_test_that_hangs_in_a_library_fails_and_the_others_run(tmp_path: Path) -> None:
    spark, modules = "pytest.mark.spark", "[]"
    for name, marks, what, after in (
        ("spark", spark, "wait_for_ever(ctypes.PyDLL)", AFTER),
        ("modules", modules, "wait_for_ever(ctypes.CDLL)", AFTER),
        ("last", modules, "os._exit(3)", ""),
    ):
        text = HANGS.format(marks=marks, what=what) + after
        (tmp_path / f"test_{name}.py").write_text(text)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    spark: x\n    long: x\n")
    clean = {k: v for k, v in os.environ.items() if "XDIST" not in k and k != "PYTEST_ADDOPTS"}
    clean["CI"] = "true"
    limits = ("faulthandler_timeout=2", "faulthandler_exit_on_timeout=true")
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadscope"]
    done = subprocess.run(
        [*command, *(part for limit in limits for part in ("-o", limit))],
        cwd=tmp_path,
        env={**clean, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    failed = {line.split()[1] for line in lines if line.startswith("FAILED")}
    ended = {f"test_{name}.py::test_that_ends_its_process" for name in ("spark", "modules", "last")}
    assert failed == {*ended, "test_spark.py::test_after[2]", "test_modules.py::test_after[2]"}
    assert lines[-1].startswith("5 failed, 18 passed")
    told = [line for line in lines if line.startswith("FAILED") and "wait_for_ever (" in line]
    assert len(told) == 2


def test_two_jvms_take_modules_from_both_ends_and_no_third_one() -> None:
    lanes = object.__new__(Lanes)
    lanes._jvms, lanes.assigned_work = [], dict.fromkeys("abc")
    modules = ("spark: first", "spark: between", "spark: last", "without", "more")
    lanes.workqueue = OrderedDict.fromkeys(modules)
    assert lanes._next_for("a") == "spark: first"
    lanes._jvms = ["a"]
    assert [lanes._next_for(one) for one in "ab"] == ["spark: first", "spark: last"]
    lanes._jvms = ["a", "b"]
    wanted = ["spark: first", "spark: last", "without"]
    assert [lanes._next_for(one) for one in "abc"] == wanted
    del lanes.assigned_work["a"]  # it ended
    assert [lanes._next_for(one) for one in "bc"] == ["spark: first", "spark: last"]

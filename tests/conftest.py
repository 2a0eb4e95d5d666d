"""What tests of several floors share: one Spark session, one PostgreSQL server."""

from __future__ import annotations

import gc
import os
import re
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from shutil import disk_usage
from typing import Any
from zlib import crc32

import pytest
import uuid6

from tests import java_classes
from tests.postgres_server import PostgresServer
from tests.strategies import register_profiles

pytest.register_assert_rewrite("tests.catalog_contract")
register_profiles()

# What all child processes have: fast JVMs, and daemons of Spark that have imported what they need.
java_classes.set_options()
_FOLDERS = (str(Path(__file__).with_name("warm_workers")), os.environ.get("PYTHONPATH"))
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, _FOLDERS))

# Each commit and each file waits for the disk, 5 ms and more at a time; memory is at once durable.
# A container may have little of it there, or no right to run what is there.
MEMORY = "/dev/shm"
if (
    os.access(MEMORY, os.W_OK)
    and disk_usage(MEMORY).free > 4 << 30
    and not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC
):
    os.environ.setdefault("TMPDIR", MEMORY)
    tempfile.tempdir = None

# --- which cases `make test` runs ---------------------------------------------------------

# Matrices: `make test` runs some cases of a test, and `make integration` the others. The names of
# the cases choose, so that it is always the same ones. A case with Spark takes a second or more of
# both cores: one of each test, where the marker `cases` asks for no more.
FEW_CASES = 3
# How often each kind of catalog is the one: a new one of DuckDB takes the time of ten of SQLite.
SHARES = {"sqlite": 6, "postgres": 3, "duckdb": 1}


def _one_catalog(items: list[pytest.Item]) -> None:
    """Leave one kind of catalog to each case: `tests/catalog_contract.py` has shown every kind."""
    cases: dict[tuple[str, ...], list[tuple[int, pytest.Item]]] = {}
    for item in items:
        name, _, case = item.nodeid.rstrip("]").partition("[")
        parts = case.split("-")
        if contract := re.fullmatch(r".*::Test(\w+)Contract::(\w+)", name):
            parts.append(contract[1].lower())
            name = contract[2]
        others = [part for part in parts if part not in SHARES]
        if item.get_closest_marker("one_catalog") and len(others) < len(parts):
            share = min(SHARES[part] for part in parts if part in SHARES)
            place = crc32(item.nodeid.encode()) * share
            cases.setdefault((name, *others), []).append((place, item))
    for some in cases.values():
        some.sort(key=lambda placed: placed[0], reverse=True)
        for _, item in some[1:]:
            item.add_marker(pytest.mark.long)


def _kept_cases(test: pytest.Function, count: int) -> int:
    """How many of the cases of a test `make test` runs."""
    if test.get_closest_marker("spark") is not None:
        cases = test.get_closest_marker("cases")
        return cases.args[0] if cases else 1
    sampled = test.get_closest_marker("sampled")
    return -(-count // sampled.args[0]) if sampled and count > FEW_CASES else count


def _sample(items: list[pytest.Item]) -> None:
    """Mark the cases that `make test` leaves out as long."""
    cases: dict[tuple[str, bool], list[pytest.Function]] = {}
    for item in items:
        has_cases = isinstance(item, pytest.Function) and hasattr(item, "callspec")
        if has_cases and item.get_closest_marker("long") is None:
            assert isinstance(item, pytest.Function)
            # Cases of one test may be with Spark and without.
            spark = item.get_closest_marker("spark") is not None
            cases.setdefault((item.nodeid.partition("[")[0], spark), []).append(item)
    for some in cases.values():
        some.sort(key=lambda item: crc32(item.callspec.id.encode()))
        for item in some[_kept_cases(some[0], len(some)) :]:
            item.add_marker(pytest.mark.long)


@pytest.hookimpl(tryfirst=True)  # before `-m` selects by markers
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that use the Spark session, and those that `make test` omits."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
    _one_catalog(items)
    _sample(items)
    if hasattr(config, "workerinput"):
        from tests.lanes import Priority, Stacks, order

        lane, worker = Path(config.workerinput["lane"]), config.workerinput["workerid"]
        order(items, lane, worker)
        config.pluginmanager.register(Priority())
        config.pluginmanager.register(Stacks(lane, worker))


# --- workers side by side: see `tests/lanes.py` --------------------------------------------


@pytest.hookimpl(tryfirst=True, wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, Any, Any]:
    gc.disable()  # the tests and modules stay: a quarter of the time would go into looking at them
    if hasattr(session.config, "workerinput") and session.config.args == ["tests"]:
        from tests.lanes import compile_share

        compile_share(session.config)
    collected = yield
    gc.freeze()
    gc.enable()
    return collected


_LANE = Path(tempfile.gettempdir(), f"plake-lane-{os.getpid()}")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["lane"] = str(_LANE)


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(report: Any) -> None:
    from tests.lanes import stacks_of

    report.longrepr += f"; {stacks_of(_LANE, report.node.gateway.id)}"


def pytest_unconfigure() -> None:
    for file in _LANE.parent.glob(f"{_LANE.name}*.stacks"):
        file.unlink(missing_ok=True)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    if config.getvalue("dist") != "loadscope":
        return None
    from tests.lanes import Lanes

    return Lanes(config, log, _LANE)


@pytest.fixture(autouse=True)
def identifiers_follow_the_clock() -> None:
    """Let UUIDv7s begin at the present again: after a test with a future clock they would not."""
    uuid6._last_v7_timestamp = None


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A real PostgreSQL server, one for the whole test session; it starts when first used."""
    server = PostgresServer()
    yield server
    server.stop()


def _ask_for_java_names_once() -> None:
    """Keep what py4j asked the JVM, which seeks a class `org.apache` in all of 280 jars."""
    from py4j.java_gateway import JavaClass, JavaPackage, JVMView

    for kind in (JVMView, JavaPackage):

        def kept(self: Any, name: str, ask: Any = kind.__getattr__) -> Any:
            found = ask(self, name)
            # A class that is not there yet is a package to py4j.
            if isinstance(found, JavaClass) or (isinstance(found, JavaPackage) and name.islower()):
                vars(self)[name] = found
            return found

        kind.__getattr__ = kept


@pytest.fixture(scope="session")
def spark(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    """One local Spark session for all tests, without the planner extension."""
    if "not spark" in request.config.getoption("markexpr"):
        pytest.fail("a test asks for Spark at run time and lacks the marker `spark`")
    from pyspark.sql import SparkSession

    _ask_for_java_names_once()
    # The planning workers must be this Python, where the package is.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    warehouse = tmp_path_factory.mktemp("warehouse")
    # Its processes outlive the folder of the test that starts it.
    here = os.getcwd()
    os.chdir(Path(__file__).parents[1])
    session = (
        SparkSession.builder.master("local[2]")
        .appName("plake tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(warehouse))
        .config("spark.driver.memory", "2g")
        .getOrCreate()
    )
    os.chdir(here)
    yield session
    session.stop()

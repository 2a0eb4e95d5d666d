"""The rooms: imports go downward only, and stay inside a floor only where it is listed."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import lakehouse_source

PACKAGE = Path(lakehouse_source.__file__).parent
PURE, EDGE, VERB, DOOR, FRONT = range(5)

# The first word of a module's docstring, or of its package's, names its floor: no second
# list to keep.
FLOORS = {"Pure.": PURE, "Edge.": EDGE, "Verb.": VERB, "Door.": DOOR, "plake:": FRONT}

# Modules that hold no docstring rule of their own.
OUTSIDE_PURE = {"os", "socket", "sqlite3", "psycopg", "fsspec", "time", "random", "uuid6"}

# Sideways imports between rooms of one floor: who may use whom.
SIDEWAYS = {
    VERB: {
        "scan": {"snapshot"},
        "aggregates": {"scan", "snapshot"},
        "landing": {"recording", "scan", "snapshot"},
        "commit": {"attempts", "landing", "recording", "reservations", "scan", "snapshot"},
        "restoring": {"attempts", "landing", "recording", "snapshot"},
        "address": {"snapshot"},
        "query": {"address", "scan", "engines"},
        "maintenance": {"attempts"},
        "staging": {"address", "commit", "query"},
        "several": {"address", "attempts", "landing", "commit", "recording", "staging"},
        "dataset": {
            "address",
            "maintenance",
            "query",
            "snapshot",
            "commit",
            "restoring",
            "staging",
        },
    },
    EDGE: {"parquet": {"failpoints", "storage"}, "storage": set(), "catalog": set()},
}  # fmt: skip


def modules() -> list[Path]:
    return sorted(p for p in PACKAGE.rglob("*.py") if "planner" not in p.parts)


def name_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def floor_of(path: Path) -> int | None:
    for place in (path, path.parent / "__init__.py"):
        doc = ast.get_docstring(ast.parse(place.read_text()))
        if doc and doc.split()[0] in FLOORS:
            return FLOORS[doc.split()[0]]
    return None


def imports_of(path: Path) -> set[str]:
    """Names of the package's modules that a module imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    known = {name_of(p) for p in modules()}
    return {name for name in found if name in known and name != "lakehouse_source"}


def room(module: str) -> str:
    """The room of a module: `lakehouse_source.catalog.base` is in `catalog`."""
    return module.split(".")[1] if "." in module else module


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_every_module_says_on_which_floor_it_is(path: Path) -> None:
    assert floor_of(path) not in (None, FRONT) or path == PACKAGE / "__init__.py"


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_imports_go_downward_only(path: Path) -> None:
    by_name = {name_of(p): floor_of(p) for p in modules()}
    mine, floor = name_of(path), floor_of(path)
    if floor is None:
        return
    for other in imports_of(path):
        below = by_name[other]
        if below is None or room(other) == room(mine):
            continue
        if below == floor and floor in SIDEWAYS:
            allowed = SIDEWAYS[floor].get(room(mine), set())
            assert room(other) in allowed, f"{mine} imports {other} sideways"
        elif room(other) == "engines":
            assert room(mine) == "query"
        else:
            assert below <= floor, f"{mine} imports {other}, which is above it"


def test_pure_rooms_touch_nothing_outside() -> None:
    for path in modules():
        if floor_of(path) != PURE:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            for name in names:
                assert name.split(".")[0] not in OUTSIDE_PURE, f"{path} imports {name}"


def test_an_upward_import_would_be_caught() -> None:
    """The check itself: a pure module that imports a verb is above its floor."""
    by_name = {name_of(p): floor_of(p) for p in modules()}
    assert by_name["lakehouse_source.pruning.bounds"] == PURE
    assert by_name["lakehouse_source.dataset"] == VERB
    assert by_name["lakehouse_source.catalog.sqlite"] == EDGE
    assert by_name["lakehouse_source.spark.source"] == DOOR


def test_importing_the_package_never_imports_pyspark() -> None:
    code = (
        "import sys, lakehouse_source, lakehouse_source.spark\n"
        "assert not [m for m in sys.modules if m.split('.')[0] == 'pyspark']"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

"""The rooms of the package: imports go downward only. `FLOORS` is the one list of them."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

import lakehouse_source

PACKAGE = Path(lakehouse_source.__file__).parent

# From the bottom to the top. A room is a file or a folder of the package. It imports rooms of
# lower lines only; rooms of one line do not import each other.
FLOORS = (
    ("errors", "properties"),
    ("model",),
    ("arguments", "result_tables", "schema"),
    ("streaming",),
    ("language", "deletion"),
    ("constraints", "layout", "pictures", "pruning"),
    ("generated",),
    # --- above: rooms that touch something outside the process
    ("failpoints", "progress", "storage"),
    ("catalog", "parquet"),
    # --- above: rooms that combine edges
    ("engines",),
    ("read",),
    ("iceberg",),
    ("write", "maintenance"),
    ("erasure", "upkeep"),
    ("dataset",),
    ("functions", "datasets"),
    ("operations",),
    # --- above: what users import
    ("spark", "server", "__init__"),
    ("cli",),
)
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
PURE = {room for room in FLOOR if FLOOR[room] <= FLOOR["generated"]}
DOORS = {"cli", "server", "spark"}
EDGES = {"failpoints", "progress", "storage", "catalog", "parquet"}

# The wings of large rooms, from the bottom to the top, as FLOORS has the rooms. A file beside the
# wings is a wing of its own.
WINGS = {
    "catalog": (
        ("committer", "same_place", "qualified_names"),
        ("sql",),
        ("base",),
        ("backends",),
        ("locate",),
        ("copy",),
    ),
    "language": (
        ("values", "types"),
        ("nodes",),
        ("functions",),
        ("tokens",),
        ("parse",),
        ("bind",),
        ("expression",),
        ("keys",),
        ("bounds",),
        ("predicate_set", "row_filter"),
    ),
    "write": (
        ("commit",),
        ("rows",),
        ("found_files", "layout"),
        ("add_files",),
        ("delta",),
        ("statements",),
        ("metadata",),
    ),
    "spark": (
        ("protocol",),
        ("planner", "session", "types"),
        ("reading",),
        ("writing",),
        ("tables",),
        ("source",),
    ),
}
# The packages of the planner extension under `io.plake.spark`, from the bottom to the top. The last
# one is `io.plake.spark` itself: the classes whose names are in users' configurations.
JAVA = PACKAGE / "spark" / "planner" / "src"
JAVA_ROOT = "io.plake.spark"
JAVA_FLOORS = ("core", "scan", "reader", "catalog", "format", "statements", "")
# Imports that FLOORS forbids and that stay, with the reason. Empty is the aim.
EXCEPTIONS: dict[tuple[str, str], str] = {}

# Modules of these packages reach a disk, a network, a clock or chance.
OUTSIDE = {
    *("duckdb", "fsspec", "io", "os", "psycopg", "random", "secrets", "shutil", "socket"),
    *("sqlite3", "sqlite_utils", "subprocess", "tempfile", "threading", "time", "uuid6"),
    *("pyarrow.dataset", "pyarrow.fs", "pyarrow.parquet", "pyspark"),
}


class Module(NamedTuple):
    """What one source file says of itself and imports, wherever in the file."""

    path: Path
    docstring: str
    imports: frozenset[str]


@cache
def modules() -> dict[str, Module]:
    """Every module of the package by its dotted name. Each file is parsed once."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        if JAVA in path.parents:  # goes into the jar, and is of no room
            continue
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        tree = ast.parse(path.read_text())
        found[name] = Module(path, ast.get_docstring(tree) or "", frozenset(_imports(tree)))
    return found


def _imports(tree: ast.AST) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, "imports are absolute"
            for alias in node.names:
                # `from package import module` needs the module, not what the package lists.
                whole = f"{node.module}.{alias.name}"
                names.add(whole if _is_module(whole) else node.module)
    return names


def _is_module(name: str) -> bool:
    path = PACKAGE.parent / name.replace(".", "/")
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def room(module: str) -> str:
    """The room of a module: `lakehouse_source.catalog.base` is in `catalog`."""
    return (*module.split("."), "__init__")[1]


def inside(name: str) -> set[str]:
    """Modules of the package that a module imports, without the front page."""
    return {m for m in modules()[name].imports if m in modules()} - {"lakehouse_source", name}


def arrows() -> set[tuple[str, str]]:
    """Which room imports which."""
    pairs = {(room(name), room(other)) for name in modules() for other in inside(name)}
    return {(mine, other) for mine, other in pairs if mine != other}


def upward(pairs: set[tuple[str, str]]) -> set[tuple[str, str]]:
    return {(mine, other) for mine, other in pairs if FLOOR[other] >= FLOOR[mine]}


def test_every_room_has_one_floor() -> None:
    listed = [room for rooms in FLOORS for room in rooms]
    assert sorted(listed) == sorted({room(name) for name in modules()})


def test_rooms_import_rooms_below_them_only() -> None:
    assert upward(arrows()) == set(EXCEPTIONS)


def wing(module: str) -> str:
    """The wing of a module: `lakehouse_source.write.commit.apply` is in `commit`."""
    return (*module.split("."), "__init__", "__init__")[2]


def arrows_of_wings(parent: str) -> set[tuple[str, str]]:
    """Which wing of a room imports which."""
    mine = [name for name in modules() if room(name) == parent]
    pairs = {(wing(name), wing(other)) for name in mine for other in inside(name) & {*mine}}
    return {(one, other) for one, other in pairs if one != other}


@pytest.mark.parametrize("parent", WINGS)
def test_wings_import_wings_below_them_only(parent: str) -> None:
    floors = {wing: number for number, wings in enumerate(WINGS[parent]) for wing in wings}
    assert {wing(name) for name in modules() if room(name) == parent} == {*floors, "__init__"}
    upward = {
        (one, other)
        for one, other in arrows_of_wings(parent)
        if one != "__init__" and floors[other] >= floors[one]
    }
    assert upward == set()


def test_an_upward_and_a_sideways_import_would_be_caught() -> None:
    assert upward({("pruning", "read"), ("catalog", "parquet"), ("read", "schema")}) == {
        ("pruning", "read"),
        ("catalog", "parquet"),
    }


def test_modules_do_not_import_each_other_in_circles() -> None:
    try:
        TopologicalSorter({name: inside(name) for name in modules()}).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def floors_said(name: str) -> set[str]:
    """The first word of a docstring is the module's floor, or its package's where it has none."""
    package = name if modules()[name].path.name == "__init__.py" else name.rpartition(".")[0]
    said = {modules()[place].docstring.split()[0] for place in (name, package)}
    return said & {"Pure.", "Edge.", "Verb.", "Door.", "plake:"}


def floor(name: str) -> str:
    mine = room(name)
    return (
        "Pure." if mine in PURE else "Edge." if mine in EDGES else "Door." if mine in DOORS
        else "plake:" if mine == "__init__" else "Verb."
    )  # fmt: skip


def test_a_module_says_on_which_floor_it_is() -> None:
    """A pure module may stand in any room, not the other way round."""
    assert {name for name in modules() if floor(name) not in floors_said(name)} == set()


def test_pure_modules_touch_nothing_outside() -> None:
    pure = [name for name, module in modules().items() if module.docstring.startswith("Pure.")]
    assert len(pure) > 50
    touched = {
        (name, other)
        for name in pure
        for other in modules()[name].imports
        if OUTSIDE & {other, other.partition(".")[0]}
    }
    assert touched == set()


def test_executors_need_no_catalog() -> None:
    """Reading and writing files knows nothing of the catalog, so no task can need its password."""
    assert not {name for name in modules() if room(name) == "parquet"} & {
        name for name in modules() if any("catalog" in other for other in inside(name))
    }


def java_arrows() -> set[tuple[str, str]]:
    """Which package of the planner extension names a class of which other one."""
    found = set()
    for path in JAVA.rglob("*.java"):
        mine = path.parent.relative_to(JAVA).as_posix().replace("/", ".")
        code = re.sub(
            r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', "", path.read_text(), flags=re.DOTALL
        )
        package, *named = re.findall(rf"\b({JAVA_ROOT}(?:\.[a-z]\w*)*)\b", code)
        assert package == mine, path
        found |= {(mine, other) for other in named if other != mine}
    return found


def java_upward(pairs: set[tuple[str, str]]) -> set[tuple[str, str]]:
    floors = {f"{JAVA_ROOT}.{name}".rstrip("."): at for at, name in enumerate(JAVA_FLOORS)}
    return {(mine, other) for mine, other in pairs if floors[other] >= floors[mine]}


def test_java_packages_name_classes_of_packages_below_them_only() -> None:
    folders = {
        path.parent.relative_to(JAVA / "io" / "plake" / "spark") for path in JAVA.rglob("*.java")
    }
    assert {folder.as_posix().strip(".") for folder in folders} == set(JAVA_FLOORS)
    pairs = java_arrows()
    assert ("io.plake.spark.scan", "io.plake.spark.core") in pairs
    assert java_upward(pairs) == set()


def test_an_upward_import_in_java_would_be_caught() -> None:
    upward = ("io.plake.spark.scan", "io.plake.spark")
    assert java_upward({upward, ("io.plake.spark", "io.plake.spark.scan")}) == {upward}


def test_importing_the_package_never_imports_pyspark() -> None:
    code = (
        "import sys, lakehouse_source, lakehouse_source.spark\n"
        "assert not [m for m in sys.modules if m.split('.')[0] == 'pyspark']"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

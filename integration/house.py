"""Counts how heavy the package is, and compares it with its targets. `make house` runs it.

An import of a package counts as an import of the module that it names. Imports inside of functions
and of type checks count for the share of lines, not for circles.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import median

CHECKOUT = Path(__file__).resolve().parent.parent
TARGETS = {
    "lines": 70_000,
    "Python files": 240,
    "Java lines": 10_000,
    "circles": 0,
}


def lines_of(files: list[Path]) -> int:
    return sum(len(file.read_text().splitlines()) for file in files)


def module_name(file: Path, root: Path) -> str:
    parts = file.relative_to(root.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(node: ast.AST, names: set[str]) -> Iterator[str]:
    """The modules among `names` that an import statement loads."""
    if isinstance(node, ast.Import):
        found = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and node.module:
        found = [f"{node.module}.{alias.name}" for alias in node.names]
        found = [name if name in names else node.module for name in found]
    else:
        found = []
    return (name for name in found if name in names)


def circles(graph: dict[str, set[str]]) -> int:
    """How many modules reach themselves."""
    count = 0
    for start in graph:
        seen: set[str] = set()
        waiting = list(graph[start])
        while waiting:
            name = waiting.pop()
            if name not in seen:
                seen.add(name)
                waiting += graph[name]
        count += start in seen
    return count


def main() -> None:
    root = CHECKOUT / "lakehouse_source"
    python, java = sorted(root.rglob("*.py")), sorted(root.rglob("*.java"))
    trees = {module_name(file, root): ast.parse(file.read_text()) for file in python}
    names = set(trees)
    graph: dict[str, set[str]] = {}
    callers: Counter[str] = Counter()
    import_lines = 0
    for name, tree in trees.items():
        nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
        import_lines += sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in nodes)
        callers.update({found for node in nodes for found in imported(node, names)} - {name})
        graph[name] = {found for node in tree.body for found in imported(node, names)} - {name}
    python_lines, java_lines = lines_of(python), lines_of(java)
    counted: dict[str, float] = {
        "lines": python_lines + java_lines,
        "Python lines": python_lines,
        "Python files": len(python),
        "lines of a Python file, median": median(lines_of([file]) for file in python),
        "Java lines": java_lines,
        "Java files": len(java),
        "imports, % of the Python lines": round(100 * import_lines / python_lines, 1),
        "modules with one caller": sum(count == 1 for count in callers.values()),
        "circles": circles(graph),
    }
    for what, count in counted.items():
        target = f"(target {TARGETS[what]:,} at most)" if what in TARGETS else ""
        print(f"{what:32} {count:>10,} {target}")


if __name__ == "__main__":
    main()

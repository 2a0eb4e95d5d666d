"""Runs the tests with the oldest versions that pyproject.toml allows.

    python integration/oldest_versions.py [--venv FOLDER] [-- PYTEST ARGUMENTS]

The lower bounds of pyproject.toml are the only list: each becomes `==` in a new
virtual environment, so a bound has to be a version that exists. The checkout is
installed there as a wheel. First the tests of `make test` without Spark run, then a
sample of those with Spark. FOLDER keeps the environment for the next time.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10; pytest brings it
    import tomli as tomllib

CHECKOUT = Path(__file__).resolve().parent.parent
# Not `s3`: no test imports s3fs.
EXTRAS = ("test",)
PLANNER = "tests/doors/test_planner_build.py"
SPARK_SAMPLE = [
    f"tests/doors/test_{name}.py"
    for name in ("plain_parquet", "spark_write", "read_options", "damage")
]


def requirements(project: dict[str, Any], extras: tuple[str, ...]) -> Iterator[Requirement]:
    """What the project needs, and what its extras need; extras may name each other."""
    optional = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(text for extra in extras for text in optional[extra])]
    while wanted:
        requirement = Requirement(wanted.pop(0))
        if requirement.name == project["name"]:
            wanted += [text for extra in requirement.extras for text in optional[extra]]
        else:
            yield requirement


def pinned(requirement: Requirement) -> str:
    """The requirement with its lower bound as the only version: `a>=1,<3` becomes `a==1`."""
    bounds = [s.version for s in requirement.specifier if s.operator in (">=", "==")]
    if len(bounds) != 1:
        raise SystemExit(f"pyproject.toml: {requirement} needs one lower bound")
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    return f"{requirement.name}{extras}=={bounds[0]}"


def oldest() -> list[str]:
    """Every requirement at its lower bound, each once."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    return sorted({pinned(requirement) for requirement in requirements(project, EXTRAS)})


def environment(home: Path) -> Path:
    """The Python of an environment with the oldest versions and the checkout as it is now."""
    python = home / "bin" / "python"
    if not python.exists():
        venv.create(home, with_pip=True)
    pip = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", *oldest()], check=True)
    # The same version number may stand for other sources: put today's in.
    subprocess.run([*pip, "install", "--force-reinstall", "--no-deps", str(CHECKOUT)], check=True)
    subprocess.run([*pip, "check"], check=True)
    return python


def run_tests(python: Path, arguments: list[str]) -> bool:
    """Run pytest in a copy of the tests, where only the installed package can be imported."""
    with tempfile.TemporaryDirectory(prefix="plake-oldest-") as folder:
        ignored = shutil.ignore_patterns("__pycache__")
        for part in ("tests", "integration", "spark_conf", "docs"):  # all that tests read
            shutil.copytree(CHECKOUT / part, Path(folder, part), ignore=ignored)
        for name in ("pyproject.toml", "README.md"):
            shutil.copy(CHECKOUT / name, folder)
        command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
        # The tests turn warnings into errors; old versions have warnings of their own.
        command += ["-W", "default"]
        clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        return subprocess.run(command, cwd=folder, env=clean, check=False).returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--venv", type=Path, help="keep the environment here")
    parser.add_argument("pytest", nargs="*", help="arguments for pytest instead of the two runs")
    options = parser.parse_args()
    print(re.sub(r"(.{1,90})(?:\s|$)", r"  \1\n", " ".join(oldest())), end="", flush=True)
    # The mutants are texts of the checkout, which the tests cannot see here. The jar is made with
    # the newest PySpark.
    runs = [
        options.pytest
        or [
            *("-m", "not spark and not long", "--ignore=tests/test_mutants.py"),
            *("--deselect", f"{PLANNER}::test_a_new_build_gives_the_committed_jar"),
        ]
    ]
    runs += [] if options.pytest else [["-m", "spark and not long", *SPARK_SAMPLE]]
    with tempfile.TemporaryDirectory(prefix="plake-oldest-venv-") as scratch:
        python = environment((options.venv or Path(scratch)).resolve())
        passed = [run_tests(python, arguments) for arguments in runs]
    print("the oldest versions pass" if all(passed) else "the oldest versions FAIL")
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())

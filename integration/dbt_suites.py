"""Runs dbt's own suites, and plake's cases of dbt, against the adapter `type: plake`.

    python integration/dbt_suites.py [--venv FOLDER] [-- PYTEST ARGUMENTS]

A virtual environment gets this checkout as a wheel with the extra `dbt`, dbt-tests-adapter, and
the functional tests of dbt-spark, which are in its source package only. Its formats are `plake`
there; nothing else of these tests is changed. `dbt_cases/not_passed.py` names each test that
does not pass, with the reason. FOLDER keeps the environment for the next time.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
CASES = CHECKOUT / "integration" / "dbt_cases"
# The warnings of dbt's fixtures are about pytest 10.
TOOLS = ("dbt-tests-adapter>=1.19", "pytest>=8,<10", "hatchling>=1.27")


def environment(home: Path) -> Path:
    """The Python of an environment with dbt and the checkout as it is now."""
    python = home / "bin" / "python"
    if not python.exists():
        venv.create(home, with_pip=True)
    pip = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", f"{CHECKOUT}[cli,dbt]", *TOOLS], check=True)
    # The same version number may stand for other sources: put today's in.
    subprocess.run([*pip, "install", "--force-reinstall", "--no-deps", str(CHECKOUT)], check=True)
    return python


def tests_of_dbt_spark(python: Path, folder: Path) -> None:
    """Lay the functional tests of the installed dbt-spark into a folder, about the format plake."""
    about = "from dbt.adapters.spark.__version__ import version; print(version)"
    version = subprocess.check_output([str(python), "-c", about], text=True).strip()
    download = [str(python), "-m", "pip", "--quiet", "download", "--no-deps", "--dest", str(folder)]
    # Only unpacked, never built: its build asks for nothing that is not here.
    options = ["--no-binary", ":all:", "--no-build-isolation", f"dbt-spark=={version}"]
    subprocess.run([*download, *options], check=True)
    (package,) = folder.glob("dbt_spark-*.tar.gz")
    with tarfile.open(package) as unpacked:
        unpacked.extractall(folder, filter="data")
    shutil.move(folder / f"dbt_spark-{version}" / "tests", folder / "tests")
    for path in (folder / "tests").rglob("*.py"):
        text = path.read_text()
        for quote in "\"'":
            for name in ("delta", "parquet", "iceberg", "hudi"):
                text = text.replace(
                    f"file_format={quote}{name}{quote}", f"file_format={quote}plake{quote}"
                ).replace(
                    f"file_format{quote}: {quote}{name}{quote}",
                    f"file_format{quote}: {quote}plake{quote}",
                )
                text = text.replace(
                    f"file_format = {quote}{name}{quote}", f"file_format = {quote}plake{quote}"
                )
        path.write_text(text.replace("using delta", "using plake"))
    (folder / "tests" / "functional" / "conftest.py").unlink()


def run(python: Path, arguments: list[str]) -> bool:
    with tempfile.TemporaryDirectory(prefix="plake-dbt-") as scratch:
        folder = Path(scratch)
        tests_of_dbt_spark(python, folder)
        shutil.copytree(CASES, folder / "plake_cases", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(CASES / "conftest.py", folder)
        (folder / "pytest.ini").write_text("[pytest]\nmarkers = skip_profile\n")
        clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        clean["PYTHONPATH"] = f"{folder}:{folder / 'plake_cases'}"
        command = [str(python), "-m", "pytest", "-q", "-rxX", "--tb=short", "-W", "ignore"]
        command += ["-p", "no:cacheprovider", *(arguments or ["tests/functional", "plake_cases"])]
        return subprocess.run(command, cwd=folder, env=clean, check=False).returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--venv", type=Path, help="keep the environment here")
    given = sys.argv[1:]
    own, pytest_arguments = given, []
    if "--" in given:
        own, pytest_arguments = given[: given.index("--")], given[given.index("--") + 1 :]
    options = parser.parse_args(own)
    with tempfile.TemporaryDirectory(prefix="plake-dbt-venv-") as scratch:
        python = environment((options.venv or Path(scratch)).resolve())
        return 0 if run(python, pytest_arguments) else 1


if __name__ == "__main__":
    sys.exit(main())

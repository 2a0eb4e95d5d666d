"""Which Python Spark runs for plake, where the virtual environment is not activated."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lakehouse_source.spark.session.configure import use_this_python

JOBS = {
    "configure": "spark = lake.spark.configure(builder).getOrCreate()",
    "enable": "spark = lake.spark.enable(builder.getOrCreate())",
}
JOB = """
import sys
from pyspark.sql import SparkSession
import lakehouse_source as lake

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
{start}
before = spark.sparkContext.pythonExec
spark.range(10).write.format("plake").mode("append").save(sys.argv[1])
frame = spark.read.format("plake").load(sys.argv[1])
shown = frame.where("id > 6")._jdf.queryExecution().executedPlan().toString()
print("rows", frame.where("id > 6").count(), frame.count(), before)
is_pushed = "GreaterThan(id,6)" in shown.split("PushedFilters")[1]
print("planned by plake:", lake.spark.is_enabled(spark), is_pushed)
try:
    spark.newSession().read.format("plake").load(sys.argv[1])
except Exception as error:
    print("DATA_SOURCE_NOT_FOUND" if "DATA_SOURCE_NOT_FOUND" in str(error) else error)
"""


@pytest.fixture
def other_python(tmp_path: Path) -> Path:
    """A folder whose `python3` has no packages at all."""
    folder = tmp_path / "bin"
    folder.mkdir()
    python = folder / "python3"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    python.chmod(0o755)
    return folder


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("way", ["configure", pytest.param("enable", marks=pytest.mark.long)])
def test_a_job_of_an_environment_that_is_not_activated_finds_the_format(
    way: str, other_python: Path, tmp_path: Path
) -> None:
    job = tmp_path / "job.py"
    job.write_text(JOB.format(start=JOBS[way]))
    environment = {key: value for key, value in os.environ.items() if "PYSPARK" not in key}
    environment["PATH"] = f"{other_python}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(
        [sys.executable, str(job), str(tmp_path / "data")],
        capture_output=True, text=True, env=environment, check=False,
    )  # fmt: skip
    used = sys.executable if way == "configure" else "python3"
    assert f"rows 3 10 {used}" in done.stdout, done.stderr[-3000:]
    assert "planned by plake: True True" in done.stdout
    # The symptom is still there for sessions that were not enabled.
    assert ("DATA_SOURCE_NOT_FOUND" in done.stdout) == (way != "configure")


@pytest.fixture
def before_the_jvm(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A process in which nothing names a Python and no JVM runs."""
    for variable in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYSPARK_GATEWAY_PORT"):
        # So that what the test sets is undone.
        monkeypatch.setenv(variable, "")
        monkeypatch.delenv(variable)
    monkeypatch.setattr("pyspark.SparkContext._gateway", None)
    return monkeypatch


def test_a_python_that_is_named_is_kept(
    before_the_jvm: pytest.MonkeyPatch, other_python: Path
) -> None:
    before_the_jvm.setenv("PATH", str(other_python))
    for variable in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        with pytest.MonkeyPatch.context() as named:
            named.setenv(variable, "/named")
            use_this_python({"spark.pyspark.python": "/other"})
            assert os.environ.get("PYSPARK_PYTHON") == (
                "/named" if variable == "PYSPARK_PYTHON" else None
            )
    use_this_python({"spark.pyspark.python": "/other"})
    assert os.environ["PYSPARK_PYTHON"] == "/other"


def test_a_jvm_that_runs_already_changes_no_variable(
    before_the_jvm: pytest.MonkeyPatch, other_python: Path
) -> None:
    before_the_jvm.setenv("PATH", str(other_python))
    before_the_jvm.setenv("PYSPARK_GATEWAY_PORT", "1234")
    use_this_python({})
    assert "PYSPARK_PYTHON" not in os.environ


@pytest.mark.parametrize(
    ("path", "named"), [("mine", False), ("linked", False), ("other", True), ("none", True)]
)
def test_python3_on_the_path_keeps_its_name_where_it_is_this_python(
    path: str, named: bool, before_the_jvm: pytest.MonkeyPatch, other_python: Path, tmp_path: Path
) -> None:
    """The path of an activated environment is not fixed: executors may have another one."""
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "python3").symlink_to(Path(sys.executable).resolve())
    (mine / "python").symlink_to(mine / "python3")
    (tmp_path / "linked").symlink_to(mine)
    folders = {"mine": mine, "linked": tmp_path / "linked", "other": other_python}
    before_the_jvm.setenv("PATH", str(folders.get(path, tmp_path / "none")))
    before_the_jvm.setattr(sys, "executable", str(mine / "python"))
    use_this_python({})
    assert os.environ.get("PYSPARK_PYTHON") == (str(mine / "python") if named else None)


def test_the_python_that_an_environment_was_made_with_is_another_one(
    before_the_jvm: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Both are the same file: only one of them has the packages."""
    for name in ("base", "environment"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "python3").symlink_to(Path(sys.executable).resolve())
    before_the_jvm.setenv("PATH", str(tmp_path / "base"))
    before_the_jvm.setattr(sys, "executable", str(tmp_path / "environment" / "python3"))
    assert shutil.which("python3") == str(tmp_path / "base" / "python3")
    use_this_python({})
    assert os.environ["PYSPARK_PYTHON"] == str(tmp_path / "environment" / "python3")

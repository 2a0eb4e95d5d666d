"""How plake's Python workers of Spark start: by the `sitecustomize.py` that is in the jar."""

from __future__ import annotations

import ast
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from lakehouse_source.spark.planner.build import JAR, SOURCES, START
from lakehouse_source.spark.session.configure import _classes

HOME = Path(pyspark.__file__).parent
ZIP = HOME / "python" / "lib" / "pyspark.zip"
SHOWN = "import pyspark, sys; print(pyspark.__file__); print('sitecustomize' in sys.modules)"


@pytest.fixture(params=["jar", "folder"])
def place(request: pytest.FixtureRequest) -> Path:
    """Where the module is: `enable` takes the jar apart for a session that has begun."""
    return JAR if request.param == "jar" else Path(_classes(JAR, "0"))


def output(*path: Path, code: str = SHOWN, home: Path = HOME) -> list[str]:
    """What a new Python prints that begins as Spark's workers do."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, path)),
        "SPARK_HOME": str(home),
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert not done.stderr
    return done.stdout.splitlines()


def test_the_installed_pyspark_is_imported_and_not_the_zip_of_it(place: Path) -> None:
    assert output(ZIP) == [str(ZIP / "pyspark" / "__init__.py"), "False"]
    assert output(ZIP, place) == [pyspark.__file__, "True"]
    assert JAR.stem not in output(ZIP, place, code="import sys; print(sys.path)")[0]


def test_the_jar_of_sparks_classes_is_not_read(place: Path) -> None:
    """Python read the list of its 6,000 entries, and again in the first request of each worker."""
    (jar,) = (HOME / "jars").glob("spark-core_*.jar")
    shown = "import sys; print(*sys.path, *sys.path_importer_cache, sep='\\n')"
    assert str(jar) in output(ZIP, jar, code=shown)
    assert not {str(jar), str(ZIP)} & {*output(ZIP, jar, place, code=shown)}


def test_a_pyspark_of_another_home_stays_where_spark_put_it(tmp_path: Path) -> None:
    """A cluster's Spark, with another pyspark installed beside it."""
    other = tmp_path / "spark"
    (other / "python" / "lib").mkdir(parents=True)
    archive = other / "python" / "lib" / "pyspark.zip"
    archive.write_bytes(ZIP.read_bytes())
    expected = [str(archive / "pyspark" / "__init__.py"), "True"]
    assert output(archive, JAR, home=other) == expected
    (other / "__init__.py").touch()
    assert output(archive, JAR, home=other) == expected


def test_the_sitecustomize_of_the_machine_runs_too(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('of the machine')")
    shown = "import sitecustomize; print(sitecustomize.__file__)"
    assert output(ZIP, JAR, tmp_path, code=shown) == [
        "of the machine",
        str(tmp_path / "sitecustomize.py"),
    ]


def test_what_is_imported_ahead_is_there() -> None:
    """A module that is renamed would not be missed: the worker imports what it needs itself."""
    (needed,) = (
        ast.literal_eval(one.value)
        for one in ast.parse((SOURCES / START).read_text()).body
        if isinstance(one, ast.Assign)
    )
    for worker, modules in needed.items():
        for name in (worker, *modules):
            assert importlib.util.find_spec(name) is not None, name


@pytest.mark.spark
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="reads /proc")
def test_plakes_workers_start_by_the_jar(spark_auto: SparkSession, tmp_path: Path) -> None:
    """Those of sessions with the extension."""
    spark_auto.range(3).write.format("plake").mode("append").save(str(tmp_path))
    assert spark_auto.read.format("plake").load(str(tmp_path)).count() == 3
    by_jar = {name for name, paths in _daemons(spark_auto) if JAR.stem in paths}
    expected = {"plan_data_source_read", "write_into_data_source", "commit_data_source_write"}
    assert by_jar >= {"pyspark.worker", *(f"pyspark.sql.worker.{one}" for one in expected)}


def _daemons(spark: SparkSession) -> Iterator[tuple[str, str]]:
    """The workers whose daemons the JVM of a session has started, each with its path."""
    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
    for one in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (one / "cmdline").read_text().split("\0")
            parent = (one / "stat").read_text().rpartition(")")[2].split()[1]
            if "pyspark.daemon" in words and parent == str(jvm):
                lines = (one / "environ").read_text().split("\0")
                yield words[-2], next(x for x in lines if x.startswith("PYTHONPATH="))

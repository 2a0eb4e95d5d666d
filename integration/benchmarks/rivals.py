"""Rivals in environments of their own, where their dependencies clash with ours."""

from __future__ import annotations

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

from integration.benchmarks import commits

# Spark 3.5 hands out Arrow batches to PyArrow.
WITH = ("setuptools", "pyarrow", "pandas")
SPARK, RUNTIME = "3.5.6", "snowpark-connect-deps-iceberg==1.0.3"
JACKSON, SHADED = "com/fasterxml/jackson/", "org/apache/iceberg/shaded/"
# Bytes of a constant with its tag, but for texts.
CONSTANT_SIZES = {3: 5, 4: 5, 5: 9, 6: 9, 7: 3, 8: 3, 9: 5, 10: 5, 11: 5, 12: 5, 15: 4, 16: 3,
                  17: 5, 18: 5, 19: 3, 20: 3}  # fmt: skip


def ducklake_python() -> str:
    """The interpreter of the environment with DuckLake.

    Raises:
        RuntimeError: it cannot be installed.
    """
    python = commits.ducklake_python(Path(sys.prefix) / "ducklake")
    if python is None:
        raise RuntimeError("DuckLake cannot be installed here")
    return python


def pyiceberg_python() -> str:
    """The interpreter of the environment with PyIceberg.

    Raises:
        RuntimeError: it cannot be installed.
    """
    folder = Path(sys.prefix) / "pyiceberg"
    python, done = folder / "bin" / "python", folder / ".installed"
    if not done.exists():
        venv.create(folder, with_pip=True)
        command = [python, "-m", "pip", "install", "--quiet", "pyiceberg[pyarrow,sql-sqlite]"]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)
        except subprocess.CalledProcessError as error:
            reason = f"PyIceberg cannot be installed here: {error.stderr[-500:]}"
            raise RuntimeError(reason) from error
        done.touch()
    return str(python)


def iceberg_spark() -> tuple[str, str]:
    """The interpreter of an environment with Spark 3.5, and Iceberg's jars with commas between.

    The wheel has Iceberg's runtime without the Jackson that it was built with. That is made again
    from Spark's own jars: their classes get the package that the runtime looks for.

    Raises:
        RuntimeError: it cannot be installed.
    """
    folder = Path(sys.prefix) / "iceberg_spark"
    python, done = folder / "bin" / "python", folder / ".installed"
    if not done.exists():
        venv.create(folder, with_pip=True)
        pip = [python, "-m", "pip", "--quiet"]
        try:
            subprocess.run(
                [*pip, "install", f"pyspark=={SPARK}", *WITH],
                check=True, capture_output=True, text=True,
            )  # fmt: skip
            subprocess.run(
                [*pip, "install", "--no-deps", "--target", folder / "wheel", RUNTIME],
                check=True, capture_output=True, text=True,
            )  # fmt: skip
        except subprocess.CalledProcessError as error:
            reason = f"Iceberg's runtime cannot be installed here: {error.stderr[-500:]}"
            raise RuntimeError(reason) from error
        (spark,) = folder.glob("lib/python*/site-packages/pyspark/jars")
        for part in ("core", "databind", "annotations"):
            (jar,) = spark.glob(f"jackson-{part}-2*.jar")
            _moved(jar, folder / f"jackson-{part}.jar")
        done.touch()
    (runtime,) = folder.glob("wheel/*/jars/iceberg-spark-runtime-3.5_2.12-*.jar")
    return str(python), ",".join(map(str, [*sorted(folder.glob("jackson-*.jar")), runtime]))


def _moved(jar: Path, target: Path) -> None:
    """Give the classes of Jackson the package of Iceberg's copy."""
    with zipfile.ZipFile(jar) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            if name.startswith(JACKSON) and name.endswith(".class"):
                new.writestr(SHADED + name, _renamed(old.read(name)))


def _renamed(code: bytes) -> bytes:
    """A class file whose constants name Jackson's classes in the other package.

    The texts of a class are its constants of tag 1, each behind its length (JVM specification,
    4.4.7); the sizes of the others are in its table 4.4-A.
    """
    count = int.from_bytes(code[8:10], "big")
    parts, at, number = [code[:10]], 10, 1
    while number < count:
        tag = code[at]
        if tag == 1:
            end = at + 3 + int.from_bytes(code[at + 1 : at + 3], "big")
            text = code[at + 3 : end]
            for mark in (b"/", b"."):
                name, moved = (one.encode().replace(b"/", mark) for one in (JACKSON, SHADED))
                text = text.replace(name, moved + name)
            parts.append(b"\1" + len(text).to_bytes(2, "big") + text)
        else:
            end = at + CONSTANT_SIZES[tag]
            parts.append(code[at:end])
        number += 2 if tag in (5, 6) else 1  # a long or a double takes two places
        at = end
    return b"".join([*parts, code[at:]])

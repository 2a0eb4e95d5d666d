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
    done = folder / ".installed"
    if not done.exists():
        venv.create(folder, with_pip=True)
        _install(folder, "PyIceberg", "pyiceberg[pyarrow,sql-sqlite]")
        done.touch()
    return str(folder / "bin" / "python")


def iceberg_spark() -> tuple[str, str]:
    """The interpreter of an environment with Spark 3.5, and Iceberg's jars with commas between.

    The wheel has Iceberg's runtime without the Jackson that it was built with. That is made again
    from Spark's own jars: their classes get the package that the runtime looks for.

    Raises:
        RuntimeError: it cannot be installed.
    """
    folder = Path(sys.prefix) / "iceberg_spark"
    done = folder / ".installed"
    if not done.exists():
        venv.create(folder, with_pip=True)
        _install(folder, "Spark", f"pyspark=={SPARK}", *WITH)
        _install(folder, "Iceberg's runtime", "--no-deps", "--target", f"{folder}/wheel", RUNTIME)
        (spark,) = folder.glob("lib/python*/site-packages/pyspark/jars")
        for part in ("core", "databind", "annotations"):
            (jar,) = spark.glob(f"jackson-{part}-2*.jar")
            _moved(jar, folder / f"jackson-{part}.jar")
        done.touch()
    (runtime,) = folder.glob("wheel/*/jars/iceberg-spark-runtime-3.5_2.12-*.jar")
    return str(folder / "bin" / "python"), ",".join(
        map(str, [*sorted(folder.glob("jackson-*.jar")), runtime])
    )


def _install(folder: Path, what: str, *arguments: str) -> None:
    command = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", *arguments]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except subprocess.CalledProcessError as error:
        raise RuntimeError(f"{what} cannot be installed here: {error.stderr[-500:]}") from error


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

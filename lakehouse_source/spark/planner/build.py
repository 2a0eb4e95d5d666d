"""Door. Builds plake-planner.jar from the Java sources beside it.

    python -m lakehouse_source.spark.planner.build

This needs a JDK (17 or later) and the pyspark to compile against. Users need neither: the jar is in
the package. One source is not a file: `Vocabulary.java` is made from `vocabulary.py` here. The same
sources and a javac of the same feature version give the same classes, and the same javac and
pyspark give the same file: entries are sorted, have no time and are not compressed (deflate differs
between builds of zlib). Three entries record the SHA-256 of the sources, the javac and the pyspark.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from lakehouse_source.spark.protocol import vocabulary

HERE = Path(__file__).parent
SOURCES = HERE / "src"
JAR = HERE / "plake-planner.jar"
RELEASE = "17"
SERVICE = "META-INF/services/org.apache.spark.sql.SparkSessionExtensionsProvider"
EXTENSION = "io.plake.spark.PlakeExtension"
PROVIDER_SERVICE = "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"
PROVIDER = "io.plake.spark.format.PlakeProvider"
SOURCE_HASH = "META-INF/plake-sources.sha256"
BUILD_JDK = "META-INF/plake-javac.version"
BUILD_PYSPARK = "META-INF/plake-pyspark.version"
# Python's, for planning workers: not a class.
START = "sitecustomize.py"
VOCABULARY = "io/plake/spark/core/Vocabulary.java"

_EPOCH = (1980, 1, 1, 0, 0, 0)  # the first date that a zip entry can hold
_JVM_FOLDERS = ("/usr/lib/jvm", "/opt/homebrew/opt", "/usr/local/opt")


class BuildError(Exception):
    """The jar could not be built; the message has the tool's output."""


def source_files() -> list[Path]:
    """The Java sources beside this module, in the order in which they are compiled and hashed."""
    return sorted(SOURCES.rglob("*.java"))


def _text(file: Path) -> bytes:
    # Line ends differ between checkouts, but bytecode does not.
    return file.read_bytes().replace(b"\r\n", b"\n")


def source_hash() -> str:
    """SHA-256 over the names and contents of the sources, the target release and this layout."""
    digest = hashlib.sha256(f"release {RELEASE}\0{SERVICE}\0{EXTENSION}\0".encode())
    digest.update(f"{PROVIDER_SERVICE}\0{PROVIDER}\0".encode())
    for file in (*source_files(), *sorted(SOURCES.glob(START))):
        name = file.relative_to(SOURCES).as_posix().encode()
        digest.update(name + b"\0" + _text(file) + b"\0")
    digest.update(VOCABULARY.encode() + b"\0" + vocabulary_source().encode() + b"\0")
    return digest.hexdigest()


def vocabulary_source() -> str:
    """`Vocabulary.java`: the constants of `vocabulary.py` as Java's."""
    lines = [
        "package io.plake.spark.core;",
        "",
        "/** The names that Java and Python share, from {@code protocol/vocabulary.py}. */",
        "public final class Vocabulary {",
        "  private Vocabulary() {}",
    ]
    for group in vocabulary.GROUPS:
        lines += ["", f"  public static final class {group.__name__} {{"]
        lines += [
            f'    public static final String {name} = "{value}";'
            for name, value in vocabulary.names(group).items()
        ]
        lines += ["", f"    private {group.__name__}() {{}}", "  }"]
    return "\n".join([*lines, "}", ""])


def entries(jar: Path) -> dict[str, bytes]:
    """The entries of a jar, by name."""
    with zipfile.ZipFile(jar) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def recorded(jar: Path, entry: str) -> str:
    """The jar's record of its build: `SOURCE_HASH`, `BUILD_JDK` or `BUILD_PYSPARK`."""
    return entries(jar)[entry].decode().strip()


def feature(version: str) -> str:
    """The part of a version of Java that names its features: "17" of "17.0.12"."""
    return version.partition(".")[0]


def _javac_programs() -> Iterator[str]:
    """The javac programs of this machine: those of JAVA_HOME and of the PATH first."""
    home = os.environ.get("JAVA_HOME")
    found = [str(Path(home, "bin", "javac"))] if home else []
    found += filter(None, [shutil.which("javac")])
    for folder in _JVM_FOLDERS:
        found += map(str, sorted(Path(folder).glob("*/bin/javac")))
    return (javac for javac in found if os.access(javac, os.X_OK))


def javac_version(javac: str) -> str | None:
    """The version of a compiler ("17.0.12"); None: it does not run."""
    try:
        done = subprocess.run([javac, "-version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    found = re.search(r"javac (\S+)", done.stdout + done.stderr)
    return found.group(1) if found else None


def compilers() -> dict[str, tuple[str, str]]:
    """The path and the version of a compiler for each installed feature version from 17 on."""
    found: dict[str, tuple[str, str]] = {}
    for javac in _javac_programs():
        version = javac_version(javac)
        if version is not None and int(feature(version)) >= int(RELEASE):
            found.setdefault(feature(version), (javac, version))
    return found


def find_javac() -> tuple[str, str]:
    """The path and the version of a compiler: that of `RELEASE`, else the first one found.

    Raises:
        BuildError: there is no JDK of version 17 or later.
    """
    found = compilers()
    if not found:
        raise BuildError(
            "javac was not found: install a JDK, 17 or later (sh integration/java.sh does)"
        )
    return found.get(RELEASE) or next(iter(found.values()))


def build(target: Path = JAR, javac: str | None = None) -> Path:
    """Compile the sources and write the jar; returns its path.

    Raises:
        BuildError: no JDK, no pyspark, or the sources do not compile.
    """
    if javac is None:
        javac, version = find_javac()
    else:
        version = javac_version(javac) or "unknown"
    spark = importlib.util.find_spec("pyspark")
    if spark is None or spark.origin is None:
        raise BuildError("pyspark is not installed: the sources compile against its jars")
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as generated:
        words = Path(generated, VOCABULARY)
        words.parent.mkdir(parents=True)
        words.write_text(vocabulary_source())
        command = [
            javac, "-encoding", "UTF-8", "--release", RELEASE, "-proc:none", "-Werror",
            "-Xlint:all,-classfile,-options,-path,-processing", "-d", folder,
            "-classpath", str(Path(spark.origin).parent / "jars" / "*"),
            *map(str, source_files()), str(words),
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise BuildError(done.stdout + done.stderr)
        made = {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in Path(folder).rglob("*.class")
        }
    made[START] = _text(SOURCES / START)
    made[SERVICE] = f"{EXTENSION}\n".encode()
    made[PROVIDER_SERVICE] = f"{PROVIDER}\n".encode()
    made[SOURCE_HASH] = f"{source_hash()}\n".encode()
    made[BUILD_JDK] = f"{version}\n".encode()
    made[BUILD_PYSPARK] = f"{importlib.metadata.version('pyspark')}\n".encode()
    manifest = {"META-INF/MANIFEST.MF": b"Manifest-Version: 1.0\n"}  # first, as Java wants it
    _write(target, manifest | dict(sorted(made.items())))
    return target


def _write(target: Path, content: dict[str, bytes]) -> None:
    """A zip whose bytes depend on its entries alone."""
    with zipfile.ZipFile(target, "w") as archive:
        for name, data in content.items():
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.create_system = 3  # Unix, wherever this runs
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, data)


if __name__ == "__main__":
    try:
        path = build()
    except BuildError as failure:
        sys.exit(str(failure))
    print(f"{path} ({path.stat().st_size:,} bytes)")

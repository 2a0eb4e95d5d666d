"""Door. Builds plake-planner.jar from the Java sources beside it.

    python -m lakehouse_source.spark.planner.build

Needs a JDK (17 or later) and the pyspark to compile against; users need
neither, the jar is in the package. The same sources and the same javac give the
same bytes: entries are sorted, carry no time and are stored as they are (deflate
differs between builds of zlib). An entry holds the SHA-256 of the sources, so
that a jar can be told to belong to them without a JDK.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).parent
SOURCES = HERE / "src"
JAR = HERE / "plake-planner.jar"
RELEASE = "17"
SERVICE = "META-INF/services/org.apache.spark.sql.SparkSessionExtensionsProvider"
EXTENSION = "io.plake.spark.PlakeExtension"
SOURCE_HASH = "META-INF/plake-sources.sha256"
BUILD_JDK = "META-INF/plake-javac.version"

_EPOCH = (1980, 1, 1, 0, 0, 0)  # the first date that a zip entry can hold


class BuildError(Exception):
    """The jar could not be built; the message holds what the tool said."""


def source_files() -> list[Path]:
    """The Java sources, in the order in which they are compiled and hashed."""
    return sorted(SOURCES.rglob("*.java"))


def source_hash() -> str:
    """SHA-256 over the names and contents of the sources, the target release and this layout."""
    digest = hashlib.sha256(f"release {RELEASE}\0{SERVICE}\0{EXTENSION}\0".encode())
    for file in source_files():
        # Line ends differ between checkouts, bytecode does not.
        text = file.read_bytes().replace(b"\r\n", b"\n")
        digest.update(file.relative_to(SOURCES).as_posix().encode() + b"\0" + text + b"\0")
    return digest.hexdigest()


def recorded(jar: Path, entry: str) -> str:
    """What a jar says about its making: `SOURCE_HASH` or `BUILD_JDK`."""
    with zipfile.ZipFile(jar) as archive:
        return archive.read(entry).decode().strip()


def javac_version() -> str | None:
    """What the JDK's compiler calls itself ("17.0.12"), or None where there is no JDK."""
    try:
        done = subprocess.run(["javac", "-version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    found = re.search(r"javac (\S+)", done.stdout + done.stderr)
    return found.group(1) if found else None


def build(target: Path = JAR) -> Path:
    """Compile the sources and write the jar; returns its path.

    Raises:
        BuildError: no JDK, no pyspark, or the sources do not compile.
    """
    version = javac_version()
    if version is None:
        raise BuildError("there is no javac on the PATH: install a JDK, 17 or later")
    spark = importlib.util.find_spec("pyspark")
    if spark is None or spark.origin is None:
        raise BuildError("pyspark is not installed: the sources compile against its jars")
    with tempfile.TemporaryDirectory() as folder:
        command = [
            "javac", "-encoding", "UTF-8", "--release", RELEASE, "-proc:none", "-Werror",
            "-Xlint:all,-classfile,-options,-path,-processing", "-d", folder,
            "-classpath", str(Path(spark.origin).parent / "jars" / "*"),
            *map(str, source_files()),
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise BuildError(done.stdout + done.stderr)
        entries = {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in Path(folder).rglob("*.class")
        }
    entries[SERVICE] = f"{EXTENSION}\n".encode()
    entries[SOURCE_HASH] = f"{source_hash()}\n".encode()
    entries[BUILD_JDK] = f"{version}\n".encode()
    manifest = {"META-INF/MANIFEST.MF": b"Manifest-Version: 1.0\n"}  # first, as Java wants it
    _write(target, manifest | dict(sorted(entries.items())))
    return target


def _write(target: Path, entries: dict[str, bytes]) -> None:
    """A zip whose bytes follow from its entries alone."""
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in entries.items():
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.create_system = 3  # Unix, wherever this runs
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content)


if __name__ == "__main__":
    try:
        made = build()
    except BuildError as failure:
        sys.exit(str(failure))
    print(f"{made} ({made.stat().st_size:,} bytes)")

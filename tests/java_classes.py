"""JVMs of tests: their options, and one archive of Spark's classes, which halves their start.

    python -m tests.java_classes

makes the archive where there is none, with what the main job loads. `make setup` does: it takes
45 s of a processor, and each of the five JVMs of `make test` then needs 7 s less. Java ignores an
archive that is not of its own version and class path.
"""

from __future__ import annotations

import os
import sys
import tempfile
from importlib.metadata import distributions
from pathlib import Path
from shutil import which
from zlib import crc32

# JVMs of tests live too briefly for the second compiler to pay: without it, and with the simplest
# garbage collector, the same queries take half the processor time. `spark-submit` reads the
# variable, so it holds for Spark sessions in child processes too. The room for compiled code is
# that of both compilers: with the one's 48 MB, a third of the time went into making room again. A
# heap that begins with its whole size is collected seldom, and Spark's classes need no proof.
VARIABLE = "SPARK_SUBMIT_OPTS"
OPTIONS = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"
    " -Xms1g -Xmn400m -XX:MetaspaceSize=256m"
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)


def archive() -> Path:
    """Where the classes are kept of this Spark and this Java."""
    spark = [
        (found.version, jars.stat().st_mtime_ns)
        for found in distributions(name="pyspark")
        if (jars := Path(str(found.locate_file("pyspark/jars")))).exists()
    ]
    place = f"java-{crc32(sys.prefix.encode()):x}"
    key = f"{os.environ.get('JAVA_HOME') or which('java')} {spark}"
    return Path(__file__).parents[1] / f".pytest_cache/{place}-{crc32(key.encode()):x}.jsa"


def set_options() -> None:
    """Let the JVMs of this process and its children begin fast."""
    kept = f" -Xlog:disable -XX:SharedArchiveFile={archive()}" if archive().exists() else ""
    os.environ.setdefault(VARIABLE, OPTIONS + kept)


def main() -> None:
    if archive().exists() or " " in str(archive()):  # the options are divided at spaces
        return
    from tests.doors.session_matrix import EQUIPPED, job, made

    folder = archive().parent
    folder.mkdir(exist_ok=True)
    new = archive().with_suffix(f".{os.getpid()}")
    os.environ[VARIABLE] = f"{OPTIONS} -Xlog:disable -XX:ArchiveClassesAtExit={new}"
    with tempfile.TemporaryDirectory() as data:
        spark = made("configure", None, Path(data))
        job(spark, Path(data), EQUIPPED)
        jvm = spark.sparkContext._gateway.proc
        spark.stop()
        jvm.stdin.close()  # it ends, and writes the archive
        jvm.wait(300)
    # 190 MB each: those of another Spark or Java in the same virtual environment go.
    for old in folder.glob(f"{archive().name.rpartition('-')[0]}-*.jsa"):
        old.unlink(missing_ok=True)
    new.replace(archive())


if __name__ == "__main__":
    main()

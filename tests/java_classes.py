"""JVMs of tests: their options, and one archive of Spark's classes, which halves their start.

    python -m tests.java_classes

makes the archive where there is none. That takes the time of seven starts that it saves, more than
`make test` has, so `make integration` makes it. Java ignores an archive that is not of its own
version and class path.
"""

from __future__ import annotations

import os
import sys
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
    spark = [found.version for found in distributions(name="pyspark")]
    key = f"{os.environ.get('JAVA_HOME') or which('java')} {spark} {sys.prefix}"
    return Path(__file__).parents[1] / f".pytest_cache/java-{crc32(key.encode()):x}.jsa"


def set_options() -> None:
    """Let the JVMs of this process and its children begin fast."""
    kept = f" -Xlog:disable -XX:SharedArchiveFile={archive()}" if archive().exists() else ""
    os.environ.setdefault(VARIABLE, OPTIONS + kept)


def main() -> None:
    if archive().exists() or " " in str(archive()):  # the options are divided at spaces
        return
    from pyspark.sql import SparkSession

    archive().parent.mkdir(exist_ok=True)
    new = archive().with_suffix(f".{os.getpid()}")
    os.environ[VARIABLE] = f"{OPTIONS} -Xlog:disable -XX:ArchiveClassesAtExit={new}"
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.log.level", "OFF").getOrCreate()
    spark.createDataFrame([(1, "a")], ["n", "s"]).createOrReplaceTempView("t")
    spark.sql("SELECT s, count(*) FROM t JOIN t AS u USING (n, s) GROUP BY s ORDER BY s").collect()
    jvm = spark.sparkContext._gateway.proc
    spark.stop()
    jvm.stdin.close()  # it ends, and writes the archive
    jvm.wait(120)
    new.replace(archive())


if __name__ == "__main__":
    main()

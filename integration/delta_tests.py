"""Runs Delta Lake's own tests of its Python class and its SQL statements against `PlakeTable`.

    python integration/delta_tests.py FOLDER [--only REGEX]

FOLDER has Delta's `test_deltatable.py` and `test_sql.py` (`python/delta/tests` of its repository).
They are read there and not changed, but for what a notebook changes: the import, the name of the
format, the number of the first version, which is 1 here, and the feed's option. Prints which tests
pass, and why the others do not. The exit status is 1 where a test does otherwise than
`NOT_PASSED` says.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import re
import shutil
import sys
import tempfile
import types
import unittest
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parent.parent
FILES = ("test_deltatable.py", "test_sql.py")
# What a notebook changes.
CHANGED = (
    (r"""(format\(|Row\(\[?|\.format, )(['"])delta\2""", r"\1\2plake\2"),
    (r"\bdelta\.`", "plake.`"),
    (r"(?i)\bUSING delta\b", "USING plake"),
    (r"\bCONVERT TO DELTA\b", "CONVERT TO PLAKE"),
    (r"restoreToVersion\(0\)", "restoreToVersion(1)"),
    (r'"startingVersion", "1"', '"startingVersion", "2"'),
    ("readChangeData", "readChangeFeed"),
)
_PROTOCOL = "a table has all features of its release: Delta's protocol is not there"
_MANIFEST = "manifests are for readers of Delta: engines read the tables themselves"
_ITS_FILES = "deletes files of plake only, and answers what was deleted, not the path"
NOT_PASSED = {
    "test_deltatable.test_addFeatureSupport": _PROTOCOL,
    "test_deltatable.test_dropFeatureSupport": _PROTOCOL,
    "test_deltatable.test_protocolUpgrade": _PROTOCOL,
    "test_deltatable.test_generate": _MANIFEST,
    "test_sql.test_generate": _MANIFEST,
    "test_deltatable.test_vacuum": _ITS_FILES,
    "test_sql.test_vacuum": _ITS_FILES,
    "test_deltatable.test_create_table_geo_types": "geometry and geography are refused by name",
    "test_deltatable.test_merge": "Spark's MERGE adds a column that an assignment takes from the "
    "source's column of this name; the test sets a new column to a number",
    "test_deltatable.test_optimize_w_partition_filter": "the history keeps the columns of a "
    "condition, and no values: erasure would have to find them there",
    "test_deltatable.test_verify_paritionedBy_compatibility": "changes the builder's Java object",
    "test_sql.test_ddls": "wants the versions of Delta's protocol in SHOW TBLPROPERTIES",
}


def session(folder: str) -> Any:
    """A session of plake, whose names and paths are of one catalog."""
    from pyspark.sql import SparkSession

    import lakehouse_source as lake

    logging.disable()
    os.environ["PLAKE_CATALOG"] = catalog = f"sqlite:///{folder}/catalog.db"
    builder = SparkSession.builder.master("local[2]")
    for key, value in {
        "spark.log.level": "OFF",
        "spark.sql.defaultCatalog": "plake",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }.items():
        builder = builder.config(key, value)
    configured = lake.spark.configure(builder, catalog=catalog, warehouse=f"{folder}/tables")
    made = configured.getOrCreate()
    made.sql("CREATE NAMESPACE IF NOT EXISTS plake.default")
    return made


class DeltaTestCase(unittest.TestCase):
    """What Delta's own class of this name has."""

    spark: Any  # the session

    def setUp(self) -> None:
        self.tempPath = tempfile.mkdtemp(prefix="plake-delta-tests-")
        self.tempFile = f"{self.tempPath}/tempFile"

    def tearDown(self) -> None:
        shutil.rmtree(self.tempPath, ignore_errors=True)

    @contextlib.contextmanager
    def table(self, *names: str) -> Iterator[None]:
        try:
            yield
        finally:
            for name in names:
                self.spark.sql(f"DROP TABLE IF EXISTS {name}")

    @contextlib.contextmanager
    def tempTable(self) -> Iterator[str]:
        name = f"table_{uuid.uuid4().hex}"
        with self.table(name):
            yield name


def stand_in() -> None:
    """Modules with the names of Delta's, which have plake's classes."""
    from lakehouse_source import spark

    table: Any = spark.PlakeTable
    table.isDeltaTable, table.convertToDelta = table.isPlakeTable, table.convertToPlake
    contents: dict[str, dict[str, Any]] = {
        "delta": {},
        "delta.testing": {},
        "delta.testing.utils": {"DeltaTestCase": DeltaTestCase},
        "delta.tables": {
            "DeltaTable": table,
            "DeltaTableBuilder": spark.PlakeTableBuilder,
            "DeltaOptimizeBuilder": spark.PlakeOptimizeBuilder,
            "IdentityGenerator": spark.IdentityGenerator,
        },
    }
    for name, members in contents.items():
        module = types.ModuleType(name)
        module.__dict__.update(members)
        sys.modules[name] = module


def tests_of(path: Path) -> unittest.TestSuite:
    """The tests of a file, after the changes of a notebook."""
    text = path.read_text()
    for found, instead in CHANGED:
        text = re.sub(found, instead, text)
    module = types.ModuleType(path.stem)
    sys.modules[path.stem] = module
    exec(compile(text, str(path), "exec"), module.__dict__)
    return unittest.defaultTestLoader.loadTestsFromModule(module)


def each(suite: Any) -> Iterator[Any]:
    for one in suite:
        yield from each(one) if isinstance(one, unittest.TestSuite) else (one,)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="a regular expression for the names of tests")
    options = parser.parse_args()
    sys.path.insert(0, str(CHECKOUT))
    stand_in()
    tests = [one for name in FILES for one in each(tests_of(options.folder / name))]
    names = {one: ".".join(one.id().split(".")[::2]) for one in tests}
    chosen = [one for one in tests if re.search(options.only, names[one])]
    with tempfile.TemporaryDirectory(prefix="plake-delta-tests-") as folder:
        DeltaTestCase.spark = session(folder)
        runner = unittest.TextTestRunner(stream=sys.stdout, verbosity=0)
        result = runner.run(unittest.TestSuite(chosen))
        DeltaTestCase.spark.stop()
    failed = {names.get(test, str(test)) for test, _ in [*result.failures, *result.errors]}
    differs = False
    for name in (names[one] for one in chosen):
        reason = NOT_PASSED.get(name)
        if (name in failed) == (reason is not None):
            print(f"{name}: {reason or 'passed'}")
        else:
            print(f"{name}: {'FAILED' if name in failed else 'PASSED'}, which is not expected")
            differs = True
    print(f"{result.testsRun - len(failed)} of {len(chosen)} passed")
    return 1 if differs or result.testsRun < len(chosen) else 0


if __name__ == "__main__":
    sys.exit(main())

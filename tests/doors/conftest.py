"""Sessions with the planner extension, in the JVM of the plain `spark` session; ways to read."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession

from lakehouse_source.spark import enable
from lakehouse_source.spark.protocol.vocabulary import Reader, Setting
from tests.doors.frames import Read, load


def unshared_session(spark: SparkSession) -> SparkSession:
    """A session on the same SparkContext with extensions of its own.

    `newSession()` and `cloneSession()` share the extensions of their parent:
    enabling plake's planner in one of them would enable it in the plain session
    too, which could then no longer stand for Spark without it.
    """
    jvm, context = spark._jvm, spark.sparkContext
    options = jvm.java.util.HashMap()
    for key in ("spark.sql.session.timeZone", "spark.sql.shuffle.partitions"):
        options.put(key, spark.conf.get(key))
    session = jvm.org.apache.spark.sql.classic.SparkSession(context._jsc.sc(), options)
    return SparkSession(context, jsparkSession=session)


def activate(session: SparkSession) -> None:
    """Make it the session whose settings Spark takes where it is not told a session."""
    jvm = session._jvm
    assert jvm is not None
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session._jsparkSession)


@pytest.fixture(scope="session")
def spark_planner(spark: SparkSession) -> SparkSession:
    """A session whose queries are planned with the extension and read by Python.

    `spark` stays without. Spark's reader would be chosen for what tests read, as in `spark_auto`.
    """
    session = enable(unshared_session(spark))
    session.conf.set(Setting.READER, Reader.PYTHON)
    return session


@pytest.fixture(scope="session")
def spark_auto(spark: SparkSession) -> SparkSession:
    """A session with the extension as users have it: its reader is chosen for each scan."""
    return enable(unshared_session(spark))


@pytest.fixture(scope="session")
def spark_catalog(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    """A session with the extension and a catalog of Spark, whose plake catalog is a new file."""
    folder = tmp_path_factory.mktemp("named")
    url = f"sqlite://{folder}/catalog.db"
    return enable(unshared_session(spark), catalog=url, warehouse=f"{folder}/warehouse")


@pytest.fixture(scope="session")
def spark_reader(spark: SparkSession) -> SparkSession:
    """A session with the extension in which Spark reads all that it reads exactly."""
    session = enable(unshared_session(spark))
    session.conf.set(Setting.READER, Reader.SPARK)
    return session


@pytest.fixture(params=["plain", "planner", "reader"])
def read(request: pytest.FixtureRequest, spark: SparkSession) -> Read:
    """Reads a dataset, at a version if one is given."""
    session = spark
    if request.param != "plain":
        session = request.getfixturevalue(f"spark_{request.param}")

    def read(uri: str, version: int | None = None) -> DataFrame:
        return load(session, uri, **({} if version is None else {"versionAsOf": version}))

    return read

"""Door. Loads the planner extension into Spark sessions, new ones and running ones.

Without the extension plake's frames are right, and slow: Spark then gives a
Python source neither columns to leave out nor filters that are safe to use.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.spark.python_executable import register_if_missing, use_this_python

EXTENSION = "io.plake.spark.PlakeExtension"
RULE = "io.plake.spark.IsolateScans"
# Setting it to false turns the extension off for one session; Spark cannot unload a rule.
SWITCH = "spark.plake.planner.enabled"

_JARS = "spark.jars"
_REDACTION = "spark.sql.redaction.options.regex"
_REDACTION_DEFAULT = "(?i)url"

Builder = TypeVar("Builder")


def planner_jar() -> Path:
    """The jar of the planner extension, inside the installed package."""
    return Path(__file__).parent / "planner" / "plake-planner.jar"


def configure(builder: Builder) -> Builder:
    """Make the sessions of a `SparkSession.builder` load the planner extension.

    Adds the jar to `spark.jars`, which must be set before the JVM starts: for a
    session that runs already there is `enable`. Jars given to this builder stay;
    jars from a `spark-defaults.conf` do not, as for any setting made in code.
    Also keeps the option `catalog` out of plans and logs, where it may hold a
    password. `spark.sql.python.filterPushdown.enabled` is left alone: plake does
    not need it, and it makes other Python sources lose rows.

    Raises:
        InvalidOptionError: the builder is for a Spark Connect server that runs
            elsewhere; its administrator configures it (`spark_conf/README.md`).
    """
    options: dict[str, Any] = getattr(builder, "_options", {})
    remote = str(options.get("spark.remote", ""))
    if remote.startswith("sc://"):
        raise _connect_error(remote.split(";", maxsplit=1)[0])
    jars = [jar for jar in str(options.get(_JARS, "")).split(",") if jar]
    ours = str(planner_jar())
    if ours not in jars:
        jars.append(ours)
    settings = {
        _JARS: ",".join(jars),
        _REDACTION: _with_catalog(str(options.get(_REDACTION, _REDACTION_DEFAULT))),
    }
    for key, value in settings.items():
        builder.config(key, value)  # type: ignore[attr-defined]
    use_this_python(options)
    return builder


def enable(spark: Any) -> Any:
    """Load the planner extension into a session that runs already; returns it.

    Takes effect for queries that are planned from now on. Sessions that share
    this one's extensions (`spark.newSession()`) get it too; set
    `spark.plake.planner.enabled` to false in one to leave it out. Calling it
    again does nothing.

    Raises:
        InvalidOptionError: a Spark Connect session; its server is configured by
            its administrator (`spark_conf/README.md`).
    """
    session = _classic(spark)
    if not _has_rule(spark, session):
        _apply_extension(spark, session.extensions())
    _give_to_executors(spark)
    register_if_missing(spark)
    spark.conf.set(SWITCH, "true")
    spark.conf.set(_REDACTION, _with_catalog(spark.conf.get(_REDACTION, _REDACTION_DEFAULT)))
    return spark


def is_enabled(spark: Any) -> bool:
    """Tell whether queries of this session are planned with the extension.

    Raises:
        InvalidOptionError: a Spark Connect session, which cannot see its planner.
    """
    session = _classic(spark)
    switched_on = str(spark.conf.get(SWITCH, "true")).lower() == "true"
    return switched_on and _has_rule(spark, session)


def _connect_error(session: object) -> InvalidOptionError:
    return InvalidOptionError(
        option="spark",
        value=session,
        reason="a Spark Connect client cannot change its server's planner. Give the server "
        "the settings of spark_conf/spark-defaults.conf.",
    )


def _classic(spark: Any) -> Any:
    """The JVM's session object, which Connect clients do not have."""
    session = getattr(spark, "_jsparkSession", None) if is_classic(spark) else None
    if session is None:
        raise _connect_error(type(spark).__module__)
    return session


def is_classic(spark: Any) -> bool:
    """Tell a session whose JVM is in reach from one of a Spark Connect client."""
    # A Connect session raises on `_jsparkSession` instead of lacking it.
    return ".connect." not in f"{type(spark).__module__}."


def _has_rule(spark: Any, session: Any) -> bool:
    """Tell whether the session's planner has the rule, whoever put it there."""
    rules = session.extensions().buildPreCBORules(session)
    return any(rules.apply(i).ruleName() == RULE for i in range(rules.size()))


def _apply_extension(spark: Any, extensions: Any) -> None:
    """Load the extension from the packaged jar and let it add its rule."""
    jvm, gateway = spark._jvm, spark.sparkContext._gateway

    def array(kind: Any, *items: Any) -> Any:
        made = gateway.new_array(kind, len(items))
        for i, item in enumerate(items):
            made[i] = item
        return made

    url = jvm.java.io.File(str(planner_jar())).toURI().toURL()
    spark_loader = jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader()
    loader = jvm.java.net.URLClassLoader(array(jvm.java.net.URL, url), spark_loader)
    extension = loader.loadClass(EXTENSION)
    instance = extension.getConstructor(array(jvm.Class)).newInstance(array(jvm.Object))
    # Not `instance.apply(...)`: Py4J remembers methods by the name of their class and would call
    # that of an earlier loader, once a second session in this JVM is enabled.
    method = extension.getMethod("apply", array(jvm.Class, jvm.Class.forName("java.lang.Object")))
    method.invoke(instance, array(jvm.Object, extensions))


def _give_to_executors(spark: Any) -> None:
    """Add the jar to those of the application, as `spark.jars` does: executors need a class.

    Where that is forbidden, scans come as rows, and a line of Spark's log says so.
    """
    from py4j.protocol import Py4JError

    jar, context = planner_jar(), spark.sparkContext._jsc
    with suppress(Py4JError):
        listed = str(context.sc().listJars().mkString("\n")).splitlines()
        if not any(url.endswith(f"/{jar.name}") for url in listed):
            context.addJar(str(jar))


def _with_catalog(regex: str) -> str:
    """A redaction pattern that also covers the option `catalog`."""
    if "catalog" in regex:
        return regex
    if not regex:
        return "(?i)catalog"
    return f"{regex}|catalog" if regex.startswith("(?i)") else f"{regex}|(?i)catalog"

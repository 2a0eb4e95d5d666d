"""Door. Loads the planner extension into Spark sessions, new ones and running ones.

Without the extension plake's frames are right but slow: Spark then gives a Python source neither
the needed columns nor filters that are safe to use.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.spark.protocol.vocabulary import Entry, Setting
from lakehouse_source.spark.session.planner_status import (
    EXTENSION,
    add_missing,
    find_rule,
    is_classic,
    java_array,
    java_field,
    status,
)
from lakehouse_source.spark.session.secrets import remove_at_exit

# --- Makes Spark run the Python that runs now, unless the user names another.
#
# Spark finds the format `plake`, plans its scans and runs its tasks with one Python executable.
# When the JVM starts, it reads the executable's path from PYSPARK_DRIVER_PYTHON or PYSPARK_PYTHON,
# and otherwise uses the `python3` on the PATH (`defaultPythonExec` in Spark's `PythonUtils.scala`).
# The JVM ignores the setting `spark.pyspark.python` (tried on Spark 4.3, with and without
# `spark-submit`). So the Python of a virtual environment that is not activated is not used, and a
# read ends in DATA_SOURCE_NOT_FOUND.
#
# Executors start the same path as the driver. If a cluster has its Python elsewhere, the user must
# name it in PYSPARK_PYTHON.


_VARIABLES = ("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON")
_SETTING = "spark.pyspark.python"
# Spark sets it for the Python program that `spark-submit` starts: the JVM is older than we are.
_GATEWAY_PORT = "PYSPARK_GATEWAY_PORT"


def use_this_python(options: Mapping[str, Any]) -> None:
    """Set PYSPARK_PYTHON for a JVM that is not started yet. `options` are a builder's.

    Changes nothing if the JVM runs already, because it does not read the variable again.
    """
    from pyspark import SparkContext

    if SparkContext._gateway is None and _GATEWAY_PORT not in os.environ:
        python = _python_to_set(options.get(_SETTING))
        if python is not None:
            os.environ["PYSPARK_PYTHON"] = python


def _register_found(spark: Any) -> None:
    """Register format `plake` as Spark does with the formats that it finds.

    Spark finds them in a Python process that imports every package `pyspark_*`. The first statement
    of a session would wait for it. The manager's own method looks for them too, after it has put
    the format where it is put here.
    """
    utils = getattr(getattr(spark._jvm.org.apache.spark.api.python, "PythonUtils$"), "MODULE$")
    manager = spark._jsparkSession.sessionState().dataSourceManager()
    known = java_field(manager, "runtimeDataSourceBuilders").get(manager)
    if known.containsKey("plake") or not _is_this_python(shutil.which(utils.defaultPythonExec())):
        return
    pickled = f"c{Entry.MODULE}\nPlakeDataSource\n.".encode()
    v2 = spark._jvm.org.apache.spark.sql.execution.datasources.v2
    source = v2.python.UserDefinedPythonDataSource(utils.createPythonFunction(pickled))
    known.put("plake", source)
    _keep_found(spark)


def _keep_found(spark: Any) -> None:
    """Let copies of a session, which Spark makes for streams, have its formats without looking."""
    state = spark._jsparkSession.sessionState()
    formats = _loader(spark).loadClass(_FORMATS)
    kind, anything = spark._jvm.java.lang.Class, spark._jvm.java.lang.Object
    keep = formats.getMethod("keep", java_array(spark, kind, state.getClass()))
    keep.invoke(None, java_array(spark, anything, state))


def register_if_missing(spark: Any) -> None:
    """Register format `plake` for a session, also where its JVM runs a Python without plake.

    A registered source runs in the Python that the SparkContext names at that moment. This Python
    is named for this call only: functions of the user keep theirs.
    """
    from py4j.protocol import Py4JError

    python = _python_to_set(spark.conf.get(_SETTING, None))
    if python is None:
        with suppress(Py4JError, TypeError):  # then Spark looks for it
            _register_found(spark)
        return
    # This starts the other Python to look for data sources, as the first query would anyway.
    if spark._jsparkSession.sessionState().dataSourceManager().dataSourceExists("plake"):
        return
    from pyspark_plake import DefaultSource  # the name under which Spark itself finds the format

    context = spark.sparkContext
    before = context.pythonExec
    context.pythonExec = python
    try:
        spark.dataSource.register(DefaultSource)
    finally:
        context.pythonExec = before


def _python_to_set(named: str | None) -> str | None:
    """The executable that must be named to Spark; None: Spark runs the right one by itself.

    `named`: the value of `spark.pyspark.python`.
    """
    if any(os.environ.get(variable) for variable in _VARIABLES):
        return None
    if named:
        return named
    # A path that Spark finds by itself stays `python3`: executors may have it in another folder.
    return None if _is_this_python(shutil.which("python3")) else sys.executable or None


def _is_this_python(path: str | None) -> bool:
    """Tell whether an executable is the one that runs now.

    The folder counts too: in a virtual environment the file is a link to another Python, which
    lacks the packages.
    """
    if path is None or not sys.executable:
        return False
    mine, other = (os.path.realpath(os.path.dirname(one)) for one in (sys.executable, path))
    return mine == other and os.path.samefile(path, sys.executable)


_JARS = "spark.jars"
_REDACTION = "spark.sql.redaction.options.regex"
_REDACTION_DEFAULT = "(?i)url"

# Spark 4.1 lacks classes that the catalog with views needs.
_FORMATS = "io.plake.spark.core.KnownFormats"
_CATALOG_CLASS = "io.plake.spark.PlakeCatalog"
_CATALOG_WITH_VIEWS = "io.plake.spark.PlakeViewCatalog"
_MUTABLE_LOADER = "org.apache.spark.util.MutableURLClassLoader"
_IN_JAR_ONLY = "META-INF/plake-sources.sha256"  # and not among the classes that `enable` adds

Builder = TypeVar("Builder")


def planner_jar() -> Path:
    """The jar of the planner extension, inside the installed package.

    >>> lake.spark.planner_jar().name
    'plake-planner.jar'
    """
    return Path(__file__).parents[1] / "planner" / "plake-planner.jar"


def configure(
    builder: Builder,
    catalog: str | None = None,
    name: str = "plake",
    warehouse: str | None = None,
) -> Builder:
    """Make the sessions of a `SparkSession.builder` load the planner extension.

    Args:
        catalog: the URL of the plake catalog whose tables Spark's catalog `name` shows; `env:NAME`
            takes the URL from an environment variable of the driver. Without it Spark's catalog has
            datasets by their paths only.
        name: the name of the catalog in Spark: `SELECT * FROM plake.`/data/flights``.
        warehouse: the folder or URI of tables that are created without a location.

    Adds the jar to `spark.jars`. Spark reads this once in a JVM, so where one runs already, as
    after a session that was stopped, the builder's `getOrCreate` and `create` give it the jar, and
    they load the extension into a session that runs, as `enable` does. Jars of this builder are
    kept. Jars of a `spark-defaults.conf` are not, because a
    setting in code replaces the setting of the file. Also hides the option `catalog` in plans and
    logs, because the option may hold a password. Does not set
    `spark.sql.python.filterPushdown.enabled`: plake does not need this setting, and with it other
    Python sources lose rows.

    Raises:
        InvalidOptionError: the builder is for a Spark Connect server that runs
            elsewhere; its administrator configures it (`spark_conf/README.md`). `getOrCreate`
            raises it where a session that runs has a warehouse for another catalog.

    >>> from pyspark.sql import SparkSession
    >>> spark = lake.spark.configure(SparkSession.builder).getOrCreate()
    >>> spark.read.format("plake").load("/data/flights").where("month = 1").count()
    2
    >>> spark.sql("SELECT count(*) FROM plake.`/data/flights` WHERE month = 1").first()[0]
    2
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
        **_catalog_settings(catalog, name, warehouse),
    }
    for key, value in settings.items():
        builder.config(key, value)  # type: ignore[attr-defined]
    for method in ("getOrCreate", "create"):
        if make := getattr(builder, method, None):
            setattr(builder, method, _equipping(make, catalog, name, warehouse))
    use_this_python(options)
    remove_at_exit()
    return builder


def _equipping(
    make: Callable[[], Any], catalog: str | None, name: str, warehouse: str | None
) -> Callable[[], Any]:
    """A builder's method that ends with a session that has the extension."""

    @wraps(make)
    def make_equipped() -> Any:
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        running = SparkSession._instantiatedSession
        if SparkContext._active_spark_context is None:
            _add_jar(SparkContext._jvm)
        elif is_classic(running):
            _check_warehouse(running, _catalog_settings(catalog, name, warehouse), name)
        spark = make()
        context = SparkContext._active_spark_context
        if context is not None:  # none: a Connect server that is not in this process
            server = spark if is_classic(spark) else SparkSession(context)
            _load(server)
            _allow_hosts(server, catalog)
        return spark

    return make_equipped


def _add_jar(jvm: Any) -> None:
    """Add the jar to Spark's class loader in a JVM that runs, as `spark.jars` does when it starts.

    New sessions then find the extension by the services that the jar names.
    """
    if jvm is None:
        return
    mutable = _mutable_loader(jvm)
    if mutable is not None and mutable.getResource(_IN_JAR_ONLY) is None:
        mutable.addURL(jvm.java.io.File(str(planner_jar())).toURI().toURL())


def _catalog_settings(catalog: str | None, name: str, warehouse: str | None) -> dict[str, str]:
    """Spark's settings of the catalog. A URL with a password is concealed: Spark shows settings."""
    if not re.fullmatch(r"\w+", name) or name.lower() in ("spark_catalog", "system"):
        raise InvalidOptionError(
            option="name",
            value=name,
            reason="cannot name a catalog of Spark: use letters, digits and underscores.",
        )
    import pyspark

    has_views = tuple(map(int, pyspark.__version__.split(".")[:2])) >= (4, 2)
    kind = _CATALOG_WITH_VIEWS if has_views else _CATALOG_CLASS
    settings = {f"spark.sql.catalog.{name}": kind}
    if catalog is not None:
        # Imported here: it imports the catalog, which a session without one does not need.
        from lakehouse_source.spark.session.secrets import conceal

        settings[f"spark.sql.catalog.{name}.catalog"] = conceal(catalog) or ""
    if warehouse is not None:
        settings[f"spark.sql.catalog.{name}.warehouse"] = warehouse
    return settings


def enable(
    spark: Any, catalog: str | None = None, name: str = "plake", warehouse: str | None = None
) -> Any:
    """Load the planner extension into a session that runs already; returns it.

    `catalog`, `name` and `warehouse` are as in `configure`. Another `catalog` than before is used
    from the next statement on; frames and views that were made keep their tables.

    Takes effect for queries that are planned from now on. Sessions that share this one's
    extensions (`spark.newSession()`) get it too; set `spark.plake.planner.enabled` to false in a
    session to leave it out. A second call does nothing. `status(spark)` tells what works.

    Raises:
        InvalidOptionError: a Spark Connect session; the administrator configures its server
            (`spark_conf/README.md`). Or the session's warehouse was set for another catalog.

    >>> spark = lake.spark.enable(spark)
    >>> lake.spark.is_enabled(spark)
    True
    """
    _require_classic(spark)
    settings = _catalog_settings(catalog, name, warehouse)
    _check_warehouse(spark, settings, name)
    _load(spark)
    spark.conf.set(Setting.PLANNER, "true")
    for key, value in settings.items():
        spark.conf.set(key, value)
    _allow_hosts(spark, catalog)
    spark.conf.set(_REDACTION, _with_catalog(spark.conf.get(_REDACTION, _REDACTION_DEFAULT)))
    return spark


def _check_warehouse(spark: Any, settings: Mapping[str, str], name: str) -> None:
    """Refuse to create the tables of a catalog in the warehouse that was named with another one."""
    catalog, warehouse = (f"spark.sql.catalog.{name}.{one}" for one in ("catalog", "warehouse"))
    before = spark.conf.get(catalog, None)
    if before in (None, settings.get(catalog, before)) or warehouse in settings:
        return
    found = spark.conf.get(warehouse, None)
    if found is not None:
        raise InvalidOptionError(
            option="warehouse",
            value=found,
            reason="was given with another catalog. Give the warehouse of this catalog, or call "
            f"spark.conf.unset({warehouse!r}) first: then it is the one that the catalog stores.",
        )


def _load(spark: Any) -> None:
    """Load the extension into a session that does not have it, or has a part of it."""
    from py4j.protocol import Py4JError

    if find_rule(spark) is None:
        _apply_extension(spark, spark._jsparkSession.extensions())
        find_rule(spark)  # the rules are made: `spark_catalog` is plake's from the first query on
    with suppress(Py4JError):  # `status` tells where that is not possible
        add_missing(spark)
    _give_to_executors(spark)
    register_if_missing(spark)
    remove_at_exit()


def _allow_hosts(spark: Any, catalog: str | None) -> None:
    if catalog is not None:
        # Imported here: it imports the catalog, which a session without one does not need.
        from lakehouse_source.spark.session.secrets import allow_hosts_of

        allow_hosts_of(spark, catalog)


def is_enabled(spark: Any) -> bool:
    """Tell whether queries of this session push down, as `status(spark)` shows.

    Raises:
        InvalidOptionError: a Spark Connect session, which cannot see its planner.

    >>> spark.conf.set("spark.plake.planner.enabled", "false")
    >>> lake.spark.is_enabled(spark)
    False
    >>> spark.conf.set("spark.plake.planner.enabled", "true")
    """
    _require_classic(spark)
    return status(spark).is_enabled


def _connect_error(session: object) -> InvalidOptionError:
    return InvalidOptionError(
        option="spark",
        value=session,
        reason="a Spark Connect client cannot change its server's planner. Give the server "
        "the settings of spark_conf/spark-defaults.conf.",
    )


def _require_classic(spark: Any) -> None:
    if not is_classic(spark):
        raise _connect_error(type(spark).__module__)


def _apply_extension(spark: Any, extensions: Any) -> None:
    """Load the extension from the packaged jar and let it add its rules."""
    jvm = spark._jvm
    extension = _loader(spark).loadClass(EXTENSION)
    none = java_array(spark, jvm.java.lang.Class), java_array(spark, jvm.java.lang.Object)
    instance = extension.getConstructor(none[0]).newInstance(none[1])
    # Not `instance.apply(...)`: Py4J caches methods by the name of their class. Once a second
    # session in this JVM is enabled, it would call the method of an earlier loader.
    anything = java_array(spark, jvm.java.lang.Class, jvm.Class.forName("java.lang.Object"))
    arguments = java_array(spark, jvm.java.lang.Object, extensions)
    extension.getMethod("apply", anything).invoke(instance, arguments)


def _loader(spark: Any) -> Any:
    """A class loader of the driver that has the extension.

    Spark loads catalogs by their names from its own class loader, so the classes are added there.
    The services that the jar names are not added: they would load the extension into every new
    session of this JVM. If Spark's loader takes no classes, only the extension is loaded.
    """
    jvm, jar = spark._jvm, planner_jar()
    spark_loader = jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader()
    mutable = _mutable_loader(jvm)
    if mutable is not None:
        digest = hashlib.sha256(jar.read_bytes()).hexdigest()[:16]
        entry = EXTENSION.replace(".", "/") + ".class"
        if mutable.getResource(entry) is None:
            mutable.addURL(jvm.java.io.File(_classes(jar, digest)).toURI().toURL())
        found = str(mutable.getResource(entry).toString())
        if digest in found or jar.as_posix() in found:
            return spark_loader
        spark_loader = mutable.getParent()  # the loader has the classes of another plake
    url = jvm.java.io.File(str(jar)).toURI().toURL()
    return jvm.java.net.URLClassLoader(java_array(spark, jvm.java.net.URL, url), spark_loader)


def _classes(jar: Path, digest: str) -> str:
    """A folder with the classes of a jar, and what workers run first, until this process ends."""
    folder = tempfile.mkdtemp(prefix=f"plake-planner-{digest}-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with zipfile.ZipFile(jar) as archive:
        archive.extractall(
            folder, [one for one in archive.namelist() if one.endswith((".class", ".py"))]
        )
    return folder


def _mutable_loader(jvm: Any) -> Any:
    """Spark's class loader that accepts more classes, or None."""
    loader = jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader()
    while loader is not None and not _is_mutable(loader.getClass()):
        loader = loader.getParent()
    return loader


def _is_mutable(kind: Any) -> bool:
    """Tell whether a Java class is Spark's loader, which accepts more classes."""
    while kind is not None and kind.getName() != _MUTABLE_LOADER:
        kind = kind.getSuperclass()
    return kind is not None


def _give_to_executors(spark: Any) -> None:
    """Add the jar to those of the application, as `spark.jars` does: executors need one class.

    If this is forbidden, scans return rows instead of batches, and `status` says so.
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

"""Runs Spark's Declarative Pipelines in a classic session: SQL files, without a Connect server."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from tests.doors.conftest import activate


class _Events:
    """Takes the events of a run; Spark's JVM calls it."""

    class Java:
        implements: ClassVar = ["scala.Function1"]

    def __init__(self) -> None:
        self.failures: list[str] = []

    def apply(self, event: Any) -> None:
        if event.error().isDefined():
            self.failures.append(event.error().get().toString())

    def toString(self) -> str:
        return "events"


def run(
    spark: SparkSession,
    space: str,
    text: str,
    storage: Path,
    *,
    full_refresh: Iterable[str] | None = (),
    dry: bool = False,
) -> list[str]:
    """Run a pipeline whose default catalog is plake; its failures. `full_refresh` None: of all."""
    activate(spark)
    jvm: Any = spark._jvm
    graph = jvm.org.apache.spark.sql.pipelines.graph
    ensure_callback_server_started(spark.sparkContext._gateway)
    nothing = jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(jvm.java.util.HashMap())
    context = graph.GraphRegistrationContext("plake", space, nothing)
    graph.SqlGraphRegistrationContext(context).processSqlFile(
        text, "pipeline.sql", spark._jsparkSession
    )
    every, none = (
        getattr(getattr(graph, f"{name}$"), "MODULE$") for name in ("AllTables", "NoTables")
    )
    refreshed, anew = every, none
    if full_refresh is None:
        refreshed, anew = none, every
    elif names := list(full_refresh):
        some = jvm.java.util.ArrayList()
        for name in names:
            some.add(
                jvm.org.apache.spark.sql.catalyst.TableIdentifier(
                    name, jvm.scala.Some(space), jvm.scala.Some("plake")
                )
            )
        found = jvm.scala.jdk.javaapi.CollectionConverters.asScala(some).toSet()
        refreshed, anew = none, graph.SomeTables(found)
    events = _Events()
    update = graph.PipelineUpdateContextImpl(
        context.toDataflowGraph(), events, refreshed, anew, f"file://{storage}"
    )
    execution = update.pipelineExecution()
    (execution.dryRunPipeline if dry else execution.runPipeline)()
    execution.awaitCompletion()
    return events.failures

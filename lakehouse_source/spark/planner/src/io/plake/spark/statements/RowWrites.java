package io.plake.spark.statements;

import static scala.jdk.javaapi.CollectionConverters.asJava;

import io.plake.spark.core.Feature;
import io.plake.spark.core.PlakeSource;
import io.plake.spark.core.Relations;
import io.plake.spark.core.Rewrite;
import io.plake.spark.core.WriteCommands;
import io.plake.spark.reader.PlakeFiles;
import java.util.stream.Stream;
import org.apache.spark.sql.catalyst.plans.logical.AppendData;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.V2WriteCommand;
import org.apache.spark.sql.catalyst.plans.logical.WriteDelta;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.connector.write.RowLevelOperation;
import org.apache.spark.sql.execution.columnar.InMemoryRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import scala.Option;
import scala.collection.immutable.Map$;

/**
 * Hands the rows of a DELETE, UPDATE or MERGE to plake's writer in Python.
 *
 * <p>Spark has rewritten the statement into a {@code WriteDelta}, whose writer would be called row
 * by row in the JVM. The same query is appended to a {@link RowChangeTable} instead: each row tells
 * what happens to it and where it is stored. A MERGE that only inserts is an append already.
 */
public final class RowWrites extends Rule<LogicalPlan> {

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    return plan.transformUp(new Rewrite<>(RowWrites::changed));
  }

  private static LogicalPlan changed(LogicalPlan node) {
    if (node instanceof WriteDelta delta && delta.table() instanceof DataSourceV2Relation target) {
      RowOperation operation = RowOperation.of(target.table());
      return operation == null ? node : append(
          target, delta.query(), operation.table(), operation.command(), operation);
    }
    if (!(node instanceof V2WriteCommand write) // AppendData, InsertOnlyMerge from 4.3 on
        || !(write.table() instanceof DataSourceV2Relation target)) {
      return node;
    }
    if (target.table() instanceof StatementTable table) {
      return append(target, write.query(), table, RowLevelOperation.Command.MERGE, null);
    }
    return isStock(target) ? (LogicalPlan) write.withNewTable(withErrors(target)) : node;
  }

  /** How many scans of Python's sources, plake's among them, a query and its subqueries have. */
  private static long scans(LogicalPlan plan) {
    return Stream.of(plan.children(), plan.subqueries())
        .flatMap(plans -> asJava(plans).stream())
        .mapToLong(RowWrites::scans).sum() + (isScan(plan) ? 1 : 0);
  }

  private static boolean isScan(LogicalPlan plan) {
    return plan instanceof DataSourceV2ScanRelation scan
            && scan.relation().table() instanceof PythonTable
        || plan instanceof LogicalRelation files
            && files.relation() instanceof PlakeFiles.Relation
        || plan instanceof DataSourceV2Relation || plan instanceof InMemoryRelation; // unknown
  }

  /** Whether rows are written to a frame's path as Spark does it by itself. */
  private static boolean isStock(DataSourceV2Relation target) {
    try {
      return Relations.isFrame(target.table())
          && !(Relations.sourceOf((PythonTable) target.table()) instanceof PlakeSource);
    } catch (ReflectiveOperationException e) {
      Feature.STATEMENTS.failed(e);
      return false;
    }
  }

  /** The same target, whose errors are told by {@link PlakeSource}. */
  private static DataSourceV2Relation withErrors(DataSourceV2Relation target) {
    return Relations.copy(
        target, PlakeSource.table(((PythonTable) target.table()).schema()), target.options());
  }

  private static LogicalPlan append(
      DataSourceV2Relation target, LogicalPlan query, StatementTable table,
      RowLevelOperation.Command command, RowOperation operation) {
    RowChangeTable rows =
        new RowChangeTable(table, command, operation, query.schema(), scans(query) > 1);
    // By catalog and name Spark finds what it has cached of the table, and reads it anew.
    DataSourceV2Relation changes = DataSourceV2Relation.create(
        rows, target.catalog(), target.identifier(), target.options(), Option.empty());
    return WriteCommands.made(AppendData.class, false, changes, query, Map$.MODULE$.empty());
  }
}

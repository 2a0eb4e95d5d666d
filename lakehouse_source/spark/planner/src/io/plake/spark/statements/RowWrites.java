package io.plake.spark.statements;

import io.plake.spark.core.Part;
import io.plake.spark.core.PlakeSource;
import io.plake.spark.core.Relations;
import io.plake.spark.core.Rewrite;
import io.plake.spark.reader.PlakeFiles;
import java.lang.reflect.Constructor;
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
import scala.collection.Iterator;
import scala.collection.immutable.Map$;

/**
 * Hands the rows of a DELETE, UPDATE or MERGE to plake's writer in Python.
 *
 * <p>Spark has rewritten the statement into a {@code WriteDelta}, whose writer would be called row by
 * row in the JVM. The same query is appended to a {@link RowChangeTable} instead: each row tells what
 * happens to it and where it is stored. A MERGE that only inserts is an append already.
 */
public final class RowWrites extends Rule<LogicalPlan> {

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    return plan.transformUp(new Rewrite<>(RowWrites::changed));
  }

  /** Fails where Spark lacks what the rule needs. */
  public static void check() throws ReflectiveOperationException {
    constructor();
  }

  private static LogicalPlan changed(LogicalPlan node) {
    if (node instanceof WriteDelta delta && operationOf(delta.table()) != null) {
      RowOperation operation = operationOf(delta.table());
      return append(
          (DataSourceV2Relation) delta.table(), delta.query(),
          new RowChangeTable(
              operation.table(), operation.command(), operation, delta.query().schema(),
              scans(delta.query()) > 1));
    }
    if (!(node instanceof V2WriteCommand)) {
      return node;
    }
    V2WriteCommand write = (V2WriteCommand) node; // AppendData, InsertOnlyMerge from 4.3 on
    if (targetOf(write.table()) != null) {
      return append(
          (DataSourceV2Relation) write.table(), write.query(),
          new RowChangeTable(
              targetOf(write.table()), RowLevelOperation.Command.MERGE, null,
              write.query().schema(), scans(write.query()) > 1));
    }
    return isStock(write.table())
        ? (LogicalPlan) write.withNewTable(telling((DataSourceV2Relation) write.table())) : node;
  }

  /** How many scans of Python's sources, plake's among them, a query and its subqueries have. */
  private static int scans(LogicalPlan plan) {
    boolean python = plan instanceof DataSourceV2ScanRelation
        && ((DataSourceV2ScanRelation) plan).relation().table() instanceof PythonTable;
    boolean files = plan instanceof LogicalRelation
        && ((LogicalRelation) plan).relation() instanceof PlakeFiles.Relation;
    boolean unknown =
        plan instanceof DataSourceV2Relation || plan instanceof InMemoryRelation;
    int found = python || files || unknown ? 1 : 0;
    for (Iterator<LogicalPlan> it = plan.children().iterator(); it.hasNext(); ) {
      found += scans(it.next());
    }
    for (Iterator<LogicalPlan> it = plan.subqueries().iterator(); it.hasNext(); ) {
      found += scans(it.next());
    }
    return found;
  }

  private static RowOperation operationOf(LogicalPlan table) {
    return table instanceof DataSourceV2Relation
        ? RowStatements.operationOf(((DataSourceV2Relation) table).table()) : null;
  }

  private static RowOperation operationOf(Object table) {
    return operationOf((LogicalPlan) table);
  }

  /** Whether rows are written to a frame's path as Spark does it by itself. */
  private static boolean isStock(Object relation) {
    if (!(relation instanceof DataSourceV2Relation)
        || !Relations.isOurs((LogicalPlan) relation)) {
      return false;
    }
    Object table = ((DataSourceV2Relation) relation).table();
    try {
      return table.getClass() == PythonTable.class
          && !(Relations.sourceOf((PythonTable) table) instanceof PlakeSource);
    } catch (ReflectiveOperationException e) {
      Part.STATEMENTS.failed(e);
      return false;
    }
  }

  /** The same target, whose errors are told by {@link PlakeSource}. */
  private static DataSourceV2Relation telling(DataSourceV2Relation target) {
    PythonTable table = (PythonTable) target.table();
    return Relations.copy(
        target, new PythonTable(new PlakeSource(table.name()), table.name(), table.schema()),
        target.options());
  }

  private static StatementTable targetOf(Object table) {
    return table instanceof DataSourceV2Relation
            && ((DataSourceV2Relation) table).table() instanceof StatementTable
        ? (StatementTable) ((DataSourceV2Relation) table).table() : null;
  }

  private static LogicalPlan append(
      DataSourceV2Relation target, LogicalPlan query, RowChangeTable table) {
    // By catalog and name Spark finds what it has cached of the table, and reads it anew.
    DataSourceV2Relation changes = DataSourceV2Relation.create(
        table, target.catalog(), target.identifier(), target.options(), Option.empty());
    try {
      Constructor<?> found = constructor();
      Object[] arguments = new Object[found.getParameterCount()];
      arguments[0] = changes;
      arguments[1] = query;
      arguments[2] = Map$.MODULE$.empty();
      for (int i = 3; i < arguments.length; i++) {
        arguments[i] =
            found.getParameterTypes()[i] == boolean.class ? Boolean.FALSE : Option.empty();
      }
      return (LogicalPlan) found.newInstance(arguments);
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }

  /** The first three parameters are table, query and options; flags and options follow. */
  static Constructor<?> constructor() throws NoSuchMethodException {
    for (Constructor<?> found : AppendData.class.getConstructors()) {
      Class<?>[] types = found.getParameterTypes();
      boolean fits = types.length > 3 && types[0].isAssignableFrom(DataSourceV2Relation.class)
          && types[1] == LogicalPlan.class
          && types[2] == scala.collection.immutable.Map.class;
      for (int i = 3; i < types.length; i++) {
        fits &= types[i] == boolean.class || types[i] == Option.class;
      }
      if (fits) {
        return found;
      }
    }
    throw new NoSuchMethodException("AppendData(table, query, options, ...)");
  }
}

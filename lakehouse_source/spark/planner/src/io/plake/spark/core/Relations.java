package io.plake.spark.core;

import java.lang.reflect.Field;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.write.RowLevelOperationTable;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** Tells relations and tables of plake from others. */
public final class Relations {
  /** Name of the data source, as Python registers it. */
  public static final String SOURCE = "plake";

  /** Whether this session has not turned the extension off. */
  public static boolean isOn() {
    return "true".equalsIgnoreCase(SQLConf.get().getConfString(Vocabulary.Setting.PLANNER, "true"));
  }

  /** Whether a node reads a frame of plake in the way in which Spark would. */
  public static boolean isOurs(LogicalPlan node) {
    return node instanceof DataSourceV2Relation && isOurTable(((DataSourceV2Relation) node).table());
  }

  /** Whether a table is of Spark's catalog, or of a frame as Spark makes it. */
  public static boolean isOurTable(Object table) {
    return table instanceof NamedTable || isFrame(table);
  }

  /** Whether a table is of a frame as Spark makes it. */
  public static boolean isFrame(Object table) {
    return table instanceof PlacedFrame || table.getClass() == PythonTable.class
        && SOURCE.equalsIgnoreCase(((PythonTable) table).name());
  }

  /** Whether a table is the target of a statement, before or after Spark's rewrite. */
  public static boolean isTarget(Object table) {
    return table instanceof StatementTarget || table instanceof RowLevelOperationTable
        && ((RowLevelOperationTable) table).operation() instanceof StatementTarget;
  }

  /** What is below projections and filters. */
  public static LogicalPlan leaf(LogicalPlan plan) {
    LogicalPlan leaf = plan;
    while (leaf instanceof Project || leaf instanceof Filter) {
      leaf = leaf.children().head();
    }
    return leaf;
  }

  /** The relation with another table and other options. */
  public static DataSourceV2Relation copy(
      DataSourceV2Relation relation, Table table, CaseInsensitiveStringMap options) {
    return relation.copy(
        table, relation.output(), relation.catalog(), relation.identifier(), options,
        relation.timeTravelSpec());
  }

  /** The source that all scans of a table share. */
  public static PythonDataSourceV2 sourceOf(PythonTable table) throws ReflectiveOperationException {
    return (PythonDataSourceV2) SourceField.get().get(table);
  }

  /** Fails where this Spark has no such source. */
  public static void check() throws ReflectiveOperationException {
    SourceField.get();
  }

  /** A private field of Spark, looked up once. */
  private static final class SourceField {
    private static volatile Field found;

    static Field get() throws NoSuchFieldException {
      if (found == null) {
        Field field = PythonTable.class.getDeclaredField("ds");
        field.setAccessible(true);
        found = field;
      }
      return found;
    }
  }
}

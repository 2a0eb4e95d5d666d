package io.plake.spark.core;

import static scala.jdk.javaapi.CollectionConverters.asScala;

import java.lang.reflect.Field;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
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

  private static volatile Field source; // looked up once

  /** Whether this session has not turned the extension off. */
  public static boolean isOn() {
    return "true".equalsIgnoreCase(SQLConf.get().getConfString(Vocabulary.Setting.PLANNER, "true"));
  }

  /** Whether a node reads a frame of plake in the way in which Spark would. */
  public static boolean isOurs(LogicalPlan node) {
    return node instanceof DataSourceV2Relation relation && isOurTable(relation.table());
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
    return table instanceof StatementTarget || table instanceof RowLevelOperationTable target
        && target.operation() instanceof StatementTarget;
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

  /** The relation with other columns. */
  public static DataSourceV2Relation copy(
      DataSourceV2Relation relation, List<AttributeReference> output) {
    return relation.copy(
        relation.table(), asScala(output).toSeq(), relation.catalog(), relation.identifier(),
        relation.options(), relation.timeTravelSpec());
  }

  /** The source that all scans of a table share. */
  public static PythonDataSourceV2 sourceOf(PythonTable table) throws ReflectiveOperationException {
    check();
    return (PythonDataSourceV2) source.get(table);
  }

  /** Fails where this Spark has no such source. */
  public static void check() throws ReflectiveOperationException {
    if (source == null) {
      source = field(PythonTable.class, "ds");
    }
  }

  /** A private field of Spark. Scala puts the name of a class or a trait before some names. */
  public static Field field(Class<?> owner, String name) throws NoSuchFieldException {
    for (Field field : owner.getDeclaredFields()) {
      if (field.getName().equals(name) || field.getName().endsWith("$$" + name)) {
        field.setAccessible(true);
        return field;
      }
    }
    throw new NoSuchFieldException(name);
  }

  /** Marks what Spark sees of the target of a DELETE, UPDATE or MERGE. */
  public interface StatementTarget {}

  /** A table that Spark's catalog has found, at one version. */
  public interface NamedTable {
    /**
     * The frame that scans with some options read.
     *
     * @throws org.apache.spark.sql.AnalysisException plake has no such option, undeclared
     */
    PythonDataSourceV2 frameFor(CaseInsensitiveStringMap given);
  }
}

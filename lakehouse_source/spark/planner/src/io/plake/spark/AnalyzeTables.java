package io.plake.spark;

import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.analysis.ResolvedTable;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.plans.logical.AnalyzeColumn;
import org.apache.spark.sql.catalyst.plans.logical.AnalyzeTable;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.connector.catalog.Column;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * {@code ANALYZE TABLE} of a table of plake: nothing is left to do.
 *
 * <p>Every commit stores the counts and bounds of its files, and scans tell Spark how many rows they
 * give. Spark itself refuses the statement for tables of other catalogs than its own.
 */
final class AnalyzeTables extends Rule<LogicalPlan> {

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    if (plan instanceof AnalyzeTable && isOurs(((AnalyzeTable) plan).child())) {
      return nothing();
    }
    if (plan instanceof AnalyzeColumn && isOurs(((AnalyzeColumn) plan).child())) {
      AnalyzeColumn columns = (AnalyzeColumn) plan;
      if (columns.columnNames().isDefined()) {
        checkColumns(
            (ResolvedTable) columns.child(),
            CollectionConverters.asJava(columns.columnNames().get()));
      }
      return nothing();
    }
    return plan;
  }

  private static void checkColumns(ResolvedTable table, List<String> names) {
    for (String name : names) {
      boolean isThere = false;
      for (Column column : table.table().columns()) {
        isThere |= column.name().equalsIgnoreCase(name);
      }
      if (!isThere) {
        throw Refusal.because(table.table().name() + " has no column " + name + ".");
      }
    }
  }

  private static boolean isOurs(LogicalPlan table) {
    return table instanceof ResolvedTable
        && ((ResolvedTable) table).table() instanceof PlakeTable;
  }

  /** A command without rows. */
  static LogicalPlan nothing() {
    return new LocalRelation(
        CollectionConverters.asScala(List.<Attribute>of()).toSeq(),
        CollectionConverters.asScala(List.<InternalRow>of()).toSeq(),
        false, Option.empty());
  }
}

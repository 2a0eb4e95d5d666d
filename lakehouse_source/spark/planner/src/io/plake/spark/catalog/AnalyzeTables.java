package io.plake.spark.catalog;

import io.plake.spark.core.Refusal;
import java.util.List;
import org.apache.spark.sql.catalyst.analysis.ResolvedTable;
import org.apache.spark.sql.catalyst.plans.logical.AnalyzeColumn;
import org.apache.spark.sql.catalyst.plans.logical.AnalyzeTable;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.NoopCommand;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.connector.catalog.Column;
import scala.jdk.javaapi.CollectionConverters;

/**
 * {@code ANALYZE TABLE} of a table of plake: nothing is left to do.
 *
 * <p>Every commit stores the counts and bounds of its files, and scans tell Spark how many rows they
 * give. Spark itself refuses the statement for tables of other catalogs than its own.
 */
public final class AnalyzeTables extends Rule<LogicalPlan> {

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    if (plan instanceof AnalyzeTable && isOurs(((AnalyzeTable) plan).child())) {
      return nothing("ANALYZE TABLE");
    }
    if (plan instanceof AnalyzeColumn columns && isOurs(columns.child())) {
      if (columns.columnNames().isDefined()) {
        checkColumns(
            (ResolvedTable) columns.child(),
            CollectionConverters.asJava(columns.columnNames().get()));
      }
      return nothing("ANALYZE TABLE");
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

  static boolean isOurs(LogicalPlan table) {
    return table instanceof ResolvedTable
        && ((ResolvedTable) table).table() instanceof PlakeTable;
  }

  /** A command that does nothing. Connect counts on a command where the user gave one. */
  public static LogicalPlan nothing(String name) {
    return new NoopCommand(name, CollectionConverters.asScala(List.<String>of()).toSeq());
  }
}

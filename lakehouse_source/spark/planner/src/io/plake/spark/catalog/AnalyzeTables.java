package io.plake.spark.catalog;

import io.plake.spark.core.Refusal;
import io.plake.spark.core.Rewrite;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.sql.catalyst.analysis.ResolvedTable;
import org.apache.spark.sql.catalyst.plans.logical.AnalyzeColumn;
import org.apache.spark.sql.catalyst.plans.logical.AnalyzeTable;
import org.apache.spark.sql.catalyst.plans.logical.DescribeRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.NoopCommand;
import org.apache.spark.sql.catalyst.plans.logical.ShowCreateTable;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.connector.catalog.Table;
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
    if (plan instanceof AnalyzeColumn columns && isOurs(columns.child())
        && columns.columnNames().isDefined()) {
      checkColumns(
          ((ResolvedTable) columns.child()).table(),
          CollectionConverters.asJava(columns.columnNames().get()));
    }
    return plan instanceof AnalyzeTable table && isOurs(table.child())
        || plan instanceof AnalyzeColumn columns && isOurs(columns.child())
        ? nothing("ANALYZE TABLE") : plan.transformUp(new Rewrite<>(AnalyzeTables::shown));
  }

  /** {@code SHOW CREATE TABLE} would name {@code PARTITIONED BY (cluster_by(...))}. */
  private static LogicalPlan shown(LogicalPlan node) {
    if (isOurs(node)) {
      ((PlakeTable) ((ResolvedTable) node).table()).isOfStatement = true;
    }
    if (node instanceof DescribeRelation described && isOurs(described.relation())) {
      ((PlakeTable) ((ResolvedTable) described.relation()).table()).isDescribed = true;
    }
    return node instanceof ShowCreateTable created && isOurs(created.child())
        ? ComputedColumns.created(created, (ResolvedTable) created.child()) : node;
  }

  private static void checkColumns(Table table, List<String> names) {
    for (String name : names) {
      if (Arrays.stream(table.columns()).noneMatch(one -> one.name().equalsIgnoreCase(name))) {
        throw Refusal.because(table.name() + " has no column " + name + ".");
      }
    }
  }

  static boolean isOurs(LogicalPlan table) {
    return table instanceof ResolvedTable found && found.table() instanceof PlakeTable;
  }

  /** A command that does nothing. Connect counts on a command where the user gave one. */
  public static LogicalPlan nothing(String name) {
    return new NoopCommand(name, CollectionConverters.asScala(List.<String>of()).toSeq());
  }
}

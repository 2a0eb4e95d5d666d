package io.plake.spark.catalog;

import io.plake.spark.core.PlakeCatalogs;
import io.plake.spark.core.Rewrite;
import java.util.List;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.analysis.UnresolvedIdentifier;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.UnresolvedTableSpec;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.internal.SQLConf;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Takes Spark's default format away from a table of plake's catalog that a frame or a stream creates:
 * {@code saveAsTable}, {@code toTable} and {@code createTable} name it where the user names none. A
 * format that arrives is therefore one that somebody wrote, and plake refuses others than its own.
 */
public final class FrameFormats extends Rule<LogicalPlan> {
  private final SparkSession session;

  public FrameFormats(SparkSession session) {
    this.session = session;
  }

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    return plan.transformUp(new Rewrite<>(this::created));
  }

  private LogicalPlan created(LogicalPlan node) {
    if (node.origin().sqlText().isDefined() || node.children().isEmpty()
        || !(node.children().head() instanceof UnresolvedIdentifier name)) {
      return node;
    }
    List<String> parts = CollectionConverters.asJava(name.nameParts());
    if (!PlakeCatalogs.isOne(PlakeCatalogs.catalogOf(session, parts))) {
      return node;
    }
    return Rewrite.copy(node, part ->
        part instanceof UnresolvedTableSpec table ? withoutDefault(table) : part);
  }

  private static Expression withoutDefault(UnresolvedTableSpec table) {
    boolean isDefault = table.provider().exists(
        SQLConf.get().defaultDataSourceName()::equalsIgnoreCase);
    return isDefault
        ? Rewrite.<Expression>copy(
            table, part -> part == table.provider() ? Option.empty() : part) : table;
  }
}

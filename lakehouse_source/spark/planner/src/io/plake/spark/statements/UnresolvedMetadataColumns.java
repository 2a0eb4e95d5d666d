package io.plake.spark.statements;

import java.util.List;
import org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeIntoTable;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.internal.SQLConf;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Finds the names of metadata columns that Spark has not resolved in a statement.
 *
 * <p>A view hides these columns of its table. Spark resolves them when the target is no view any
 * more, and then refuses the statement by texts that do not name the cause.
 */
final class UnresolvedMetadataColumns {

  /** @param target what the statement changes, with its metadata columns */
  static boolean areNamed(LogicalPlan statement, DataSourceV2Relation target) {
    LogicalPlan source = statement instanceof MergeIntoTable merge ? merge.sourceTable() : null;
    if (source != null && !source.resolved()) {
      return false;
    }
    return CollectionConverters.asJava(statement.expressions()).stream().anyMatch(
        expression -> expression.exists(part -> part instanceof UnresolvedAttribute name
            && isPlace(name, target) && (source == null || source.resolve(
                name.nameParts().toSeq(), SQLConf.get().resolver()).isEmpty())));
  }

  private static boolean isPlace(UnresolvedAttribute name, DataSourceV2Relation target) {
    List<String> parts = CollectionConverters.asJava(name.nameParts());
    String last = parts.get(parts.size() - 1);
    return CollectionConverters.asJava(target.metadataOutput()).stream()
        .anyMatch(column -> column.name().equalsIgnoreCase(last));
  }
}

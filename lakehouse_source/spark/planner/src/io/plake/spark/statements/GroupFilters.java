package io.plake.spark.statements;

import io.plake.spark.core.Relations;
import io.plake.spark.core.Rewrite;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.WriteDelta;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import scala.Option;
import scala.Some;

/**
 * Takes the condition away by which Spark would look for the files that a MERGE changes.
 *
 * <p>From 4.3 on, a {@code WriteDelta} has such a condition: {@code EXISTS} over the source. plake does
 * not use it, as the scan of the target is pruned by the keys of the join. Spark refuses the whole
 * statement for it where the source is not deterministic, such as one with {@code uuid()}.
 */
final class GroupFilters {
  static LogicalPlan without(LogicalPlan node) {
    return node instanceof WriteDelta write
            && write.table() instanceof DataSourceV2Relation target
            && Relations.isTarget(target.table())
        ? Rewrite.copy(node, part -> isCondition(part) ? Option.empty() : part) : node;
  }

  private static boolean isCondition(Object part) {
    return part instanceof Some<?> given && given.value() instanceof Expression;
  }
}

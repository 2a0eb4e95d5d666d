package io.plake.spark.statements;

import io.plake.spark.core.Relations;
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
  private GroupFilters() {}

  static LogicalPlan without(LogicalPlan node) {
    if (!(node instanceof WriteDelta write) || placeOf(write) < 0) {
      return node;
    }
    Object[] arguments = new Object[write.productArity()];
    for (int i = 0; i < arguments.length; i++) {
      arguments[i] = write.productElement(i);
    }
    arguments[placeOf(write)] = Option.empty();
    return write.makeCopy(arguments);
  }

  /** The place of the condition among the arguments; -1 where there is none, or not plake's table. */
  private static int placeOf(WriteDelta write) {
    if (!(write.table() instanceof DataSourceV2Relation)
        || !Relations.isTarget(((DataSourceV2Relation) write.table()).table())) {
      return -1;
    }
    for (int i = 0; i < write.productArity(); i++) {
      Object argument = write.productElement(i);
      if (argument instanceof Some && ((Some<?>) argument).value() instanceof Expression) {
        return i;
      }
    }
    return -1;
  }
}

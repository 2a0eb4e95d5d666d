package io.plake.spark.statements;

import static scala.jdk.javaapi.CollectionConverters.asJava;

import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.OuterReference;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeIntoTable;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.internal.SQLConf;

/**
 * Moves the metadata columns that a statement names from one relation to its copy.
 *
 * <p>Each relation has ids of its own for them. Spark resolves a condition before or after the
 * target of the statement is replaced. A correlated subquery names them as outer references.
 */
final class MetadataColumns {

  private final Map<ExprId, Attribute> now = new HashMap<>();
  private boolean named;

  MetadataColumns(DataSourceV2Relation before, DataSourceV2Relation after) {
    for (Attribute old : asJava(before.metadataOutput())) {
      for (Attribute column : asJava(after.metadataOutput())) {
        if (column.name().equals(old.name())) {
          now.put(old.exprId(), column);
        }
      }
    }
  }

  /** Tells whether an expression named one of the columns. */
  boolean wereNamed() {
    return named;
  }

  /** The column that an expression is to name; null where it stays as it is. */
  private Attribute columnOf(Expression expression) {
    Object named = expression instanceof OuterReference outer ? outer.e() : expression;
    return named instanceof Attribute column && column.resolved() ? now.get(column.exprId()) : null;
  }

  Expression moved(Expression expression) {
    Attribute column = columnOf(expression);
    if (column == null) {
      return expression;
    }
    named = true;
    return expression instanceof OuterReference ? new OuterReference(column) : column;
  }

  /**
   * Whether a statement names metadata columns that Spark has not resolved.
   *
   * <p>A view hides these columns of its table. Spark resolves them when the target is no view any
   * more, and then refuses the statement by texts that do not name the cause.
   *
   * @param target what the statement changes, with its metadata columns
   */
  static boolean areNamed(LogicalPlan statement, DataSourceV2Relation target) {
    LogicalPlan source = statement instanceof MergeIntoTable merge ? merge.sourceTable() : null;
    if (source != null && !source.resolved()) {
      return false;
    }
    return asJava(statement.expressions()).stream().anyMatch(
        expression -> expression.exists(part -> part instanceof UnresolvedAttribute name
            && isPlace(name, target) && (source == null || source.resolve(
                name.nameParts().toSeq(), SQLConf.get().resolver()).isEmpty())));
  }

  private static boolean isPlace(UnresolvedAttribute name, DataSourceV2Relation target) {
    var parts = asJava(name.nameParts());
    String last = parts.get(parts.size() - 1);
    return asJava(target.metadataOutput()).stream()
        .anyMatch(column -> column.name().equalsIgnoreCase(last));
  }
}

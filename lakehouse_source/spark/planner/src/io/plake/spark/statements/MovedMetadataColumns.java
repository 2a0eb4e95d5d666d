package io.plake.spark.statements;

import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.OuterReference;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Moves the metadata columns that a statement names from one relation to its copy.
 *
 * <p>Each relation has ids of its own for them. Spark resolves a condition before or after the
 * target of the statement is replaced. A correlated subquery names them as outer references.
 */
final class MovedMetadataColumns {

  private final Map<ExprId, Attribute> now = new HashMap<>();
  private boolean named;

  MovedMetadataColumns(DataSourceV2Relation before, DataSourceV2Relation after) {
    for (Attribute old : CollectionConverters.asJava(before.metadataOutput())) {
      for (Attribute column : CollectionConverters.asJava(after.metadataOutput())) {
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
    Object named = expression instanceof OuterReference
        ? ((OuterReference) expression).e() : expression;
    return named instanceof Attribute && ((Attribute) named).resolved()
        ? now.get(((Attribute) named).exprId()) : null;
  }

  Expression moved(Expression expression) {
    Attribute column = columnOf(expression);
    if (column == null) {
      return expression;
    }
    named = true;
    return expression instanceof OuterReference ? new OuterReference(column) : column;
  }
}

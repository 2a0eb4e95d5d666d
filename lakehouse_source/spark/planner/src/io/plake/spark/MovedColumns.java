package io.plake.spark;

import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import scala.Function1;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractPartialFunction;

/**
 * Moves the metadata columns that a statement names from one relation to its copy.
 *
 * <p>Each relation has ids of its own for them. Spark resolves a condition before or after the
 * target of the statement is replaced.
 */
final class MovedColumns extends AbstractPartialFunction<Expression, Expression> {

  private final Map<ExprId, Attribute> now = new HashMap<>();
  private boolean named;

  MovedColumns(DataSourceV2Relation before, DataSourceV2Relation after) {
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

  @Override
  public boolean isDefinedAt(Expression expression) {
    return expression instanceof Attribute
        && expression.resolved()
        && now.containsKey(((Attribute) expression).exprId());
  }

  @Override
  @SuppressWarnings("unchecked")
  public <A1 extends Expression, B1> B1 applyOrElse(A1 expression, Function1<A1, B1> otherwise) {
    if (!isDefinedAt(expression)) {
      return otherwise.apply(expression);
    }
    named = true;
    return (B1) now.get(((Attribute) expression).exprId());
  }
}

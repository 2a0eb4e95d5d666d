package io.plake.spark.scan;

import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.KnownNullable;
import org.apache.spark.sql.catalyst.util.V2ExpressionBuilder;

/**
 * Keeps Spark from failing at conditions that it offers to no source of its own: its translation
 * asserts that a part of truth values inside of a function, as in {@code coalesce(a > 1, b > 2)}, is
 * a predicate.
 */
final class TranslatableConditions {
  private TranslatableConditions() {}

  /** The same condition, in which Spark does not offer the conjuncts that it cannot translate. */
  static Expression of(Expression condition) {
    if (condition instanceof And) {
      And and = (And) condition;
      Expression left = of(and.left());
      Expression right = of(and.right());
      return left == and.left() && right == and.right() ? and : new And(left, right);
    }
    try {
      new V2ExpressionBuilder(condition, true).build();
      return condition;
    } catch (AssertionError e) {
      return new KnownNullable(condition); // has the value of what is inside
    }
  }
}

package io.plake.spark.catalog;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.analysis.ResolvedFieldName;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.AlterColumnSpec;
import org.apache.spark.sql.catalyst.plans.logical.AlterColumns;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.types.StructField;
import scala.jdk.javaapi.CollectionConverters;

/**
 * {@code ALTER TABLE … ALTER COLUMN … SET NOT NULL} of a table of plake.
 *
 * <p>Spark refuses it for every column that may be NULL, because no rows are looked at. plake looks,
 * under the lock of the commit: its statistics must show that no live file has a NULL there. So the
 * statement gets a column that cannot be NULL for Spark's check, and the catalog is asked for the
 * change.
 */
public final class NotNullColumns extends Rule<LogicalPlan> {

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    if (!(plan instanceof AlterColumns) || !AnalyzeTables.isOurs(((AlterColumns) plan).table())) {
      return plan;
    }
    return plan.mapExpressions(NotNullColumns::passing);
  }

  private static Expression passing(Expression change) {
    if (!(change instanceof AlterColumnSpec spec)) {
      return change;
    }
    boolean isAsked =
        spec.newNullability().isDefined() && Boolean.FALSE.equals(spec.newNullability().get());
    if (!isAsked || !(spec.column() instanceof ResolvedFieldName column)) {
      return change;
    }
    StructField field = column.field();
    if (!field.nullable()) {
      return change;
    }
    List<Expression> children = new ArrayList<>(CollectionConverters.asJava(spec.children()));
    children.set(children.indexOf(column), new ResolvedFieldName(
        column.path(),
        new StructField(field.name(), field.dataType(), false, field.metadata())));
    return spec.withNewChildren(CollectionConverters.asScala(children).toSeq());
  }
}

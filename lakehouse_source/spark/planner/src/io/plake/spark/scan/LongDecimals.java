package io.plake.spark.scan;

import static scala.jdk.javaapi.CollectionConverters.asJava;
import static scala.jdk.javaapi.CollectionConverters.asScala;

import io.plake.spark.core.Feature;
import io.plake.spark.core.Relations;
import io.plake.spark.core.Rewrite;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.MakeDecimal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SparkStrategy;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DecimalType;
import scala.Option;
import scala.collection.immutable.Seq;

/**
 * Reads decimals of up to 18 digits as longs without their scale, and lets Spark's own code make
 * decimals of them.
 *
 * <p>Spark reads an Arrow decimal of 16 bytes through a {@code BigDecimal} for every value, which
 * is most of the cost of such a scan. Spark's Parquet reader makes decimals from longs too.
 *
 * <p>This is a strategy and not an optimizer rule, because it has to run after Spark has chosen
 * filters and columns. It hands a changed logical plan back to Spark's planner.
 */
public final class LongDecimals extends SparkStrategy {

  @Override
  public Seq<SparkPlan> apply(LogicalPlan plan) {
    LogicalPlan leaf = Relations.leaf(plan);
    List<SparkPlan> planned = List.of();
    if (leaf instanceof DataSourceV2ScanRelation relation && Relations.isOn()) {
      try {
        LogicalPlan changed = change(relation);
        if (changed != null) {
          planned = List.of(planLater(plan.transformUp(
              new Rewrite<>(node -> node == leaf ? changed : node))));
        }
      } catch (LinkageError | RuntimeException e) {
        Feature.DECIMALS.failed(e);
      }
    }
    return asScala(planned).toSeq();
  }

  /** Whether a type has decimals that a long can hold. */
  static boolean fits(DataType type) {
    return type instanceof DecimalType decimal && decimal.precision() <= 18;
  }

  private static LogicalPlan change(DataSourceV2ScanRelation relation) {
    IsolatedScan longs = relation.scan() instanceof IsolatedScan scan ? scan.withLongs() : null;
    if (longs == null) {
      return null;
    }
    List<AttributeReference> output = new ArrayList<>();
    List<NamedExpression> project = new ArrayList<>();
    for (AttributeReference column : asJava(relation.output())) {
      if (!fits(column.dataType())) {
        output.add(column);
        project.add(column);
        continue;
      }
      DecimalType type = (DecimalType) column.dataType();
      AttributeReference number = new AttributeReference(
          column.name(), DataTypes.LongType, column.nullable(), column.metadata(),
          NamedExpression.newExprId(), column.qualifier());
      output.add(number);
      project.add(new Alias(
          new MakeDecimal(number, type.precision(), type.scale(), true), column.name(),
          column.exprId(), column.qualifier(), Option.apply(column.metadata()),
          asScala(List.<String>of()).toSeq()));
    }
    Seq<AttributeReference> columns = asScala(output).toSeq();
    return new Project(
        asScala(project).toSeq(),
        Rewrite.<LogicalPlan>copy(relation, part ->
            part == relation.scan() ? longs : part == relation.output() ? columns : part));
  }
}

package io.plake.spark.scan;

import static scala.jdk.javaapi.CollectionConverters.asJava;
import static scala.jdk.javaapi.CollectionConverters.asScala;

import io.plake.spark.core.Feature;
import io.plake.spark.core.Relations;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation$;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SparkStrategy;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import scala.Option;
import scala.collection.immutable.Seq;

/**
 * Computes projections of a {@link AggregateResponse} on the driver, as Spark does for its own
 * local relations. Spark would start a job for them.
 *
 * <p>This is a strategy and not an optimizer rule: Spark's rule runs on local relations only, and
 * no rule of an extension runs between Spark's push-down of aggregates and that one.
 */
public final class ResponseRows extends SparkStrategy {

  @Override
  public Seq<SparkPlan> apply(LogicalPlan plan) {
    LogicalPlan leaf = Relations.leaf(plan);
    List<SparkPlan> planned = Collections.emptyList();
    if (leaf != plan && leaf instanceof DataSourceV2ScanRelation
        && ((DataSourceV2ScanRelation) leaf).scan() instanceof AggregateResponse) {
      try {
        LogicalPlan rows = over(plan, (DataSourceV2ScanRelation) leaf);
        if (rows instanceof LocalRelation) {
          planned = List.of(planLater(rows));
        }
      } catch (LinkageError e) {
        Feature.AGGREGATES.failed(e);
      } catch (RuntimeException e) {
        // An expression fails on these rows. Spark's job raises the error when the query is run.
        planned = Collections.emptyList();
      }
    }
    return asScala(planned).toSeq();
  }

  /** The rows after the same projections and filters, as far as Spark computes them by itself. */
  private static LogicalPlan over(LogicalPlan node, DataSourceV2ScanRelation relation) {
    if (node == relation) {
      List<Attribute> output = new ArrayList<>(asJava(relation.output()));
      List<InternalRow> rows = List.of(((AggregateResponse) relation.scan()).rows());
      return new LocalRelation(
          asScala(output).toSeq(), asScala(rows).toSeq(),
          false, Option.empty());
    }
    LogicalPlan below = over(node.children().head(), relation);
    return ConvertToLocalRelation$.MODULE$.apply(node instanceof Project
        ? new Project(((Project) node).projectList(), below)
        : new Filter(((Filter) node).condition(), below));
  }
}

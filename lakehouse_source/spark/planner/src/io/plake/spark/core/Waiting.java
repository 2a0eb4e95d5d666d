package io.plake.spark.core;

import static scala.jdk.javaapi.CollectionConverters.asScala;

import java.util.List;
import org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;

/**
 * Hides that a query is resolved, until a rule of an extension has seen its statement.
 *
 * <p>Spark's analyzer compares the columns of a query with those of a table before such a rule.
 */
public final class Waiting {
  /** No column has this name: what asks for it is not resolved. */
  private static final String NOBODY = "__plake_waiting__";

  public static LogicalPlan of(LogicalPlan query) {
    return new Project(
        asScala(
            List.<NamedExpression>of(UnresolvedAttribute.quoted(NOBODY))).toSeq(),
        query);
  }

  public static boolean is(LogicalPlan query) {
    return query instanceof Project project && project.projectList().size() == 1
        && project.projectList().head() instanceof UnresolvedAttribute only
        && NOBODY.equals(only.name());
  }

  /** The query that is hidden. */
  public static LogicalPlan query(LogicalPlan waiting) {
    return ((Project) waiting).child();
  }
}

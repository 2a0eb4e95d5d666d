package io.plake.spark.catalog;

import io.plake.spark.core.Rewrite;
import java.util.List;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.analysis.RelationTimeTravel;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.OneRowRelation;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.rules.Rule;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Lets {@code plake.`/path` TIMESTAMP AS OF current_timestamp()} be read.
 *
 * <p>Spark looks for the table once the moment is resolved. A function is resolved too late for a
 * path: by then Spark has taken it for a query on a file, which plake cannot answer. So the moment is
 * resolved here, before tables are.
 */
public final class TimesOfPaths extends Rule<LogicalPlan> {
  private final SparkSession session;

  public TimesOfPaths(SparkSession session) {
    this.session = session;
  }

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    return plan.transformUp(new Rewrite<>(this::changed));
  }

  private LogicalPlan changed(LogicalPlan node) {
    if (!(node instanceof RelationTimeTravel read)) {
      return node;
    }
    return read.timestamp().isDefined() && !read.timestamp().get().resolved()
        && read.relation() instanceof UnresolvedRelation
        && isPath((UnresolvedRelation) read.relation()) ? resolved(read) : read;
  }

  private static boolean isPath(UnresolvedRelation table) {
    List<String> parts = CollectionConverters.asJava(table.multipartIdentifier());
    return parts.size() == 2 && parts.get(1).contains("/");
  }

  /** With the moment as Spark's analyzer resolves it; where it cannot, Spark says so later. */
  private LogicalPlan resolved(RelationTimeTravel read) {
    NamedExpression moment = new Alias(
        read.timestamp().get(), "moment", NamedExpression.newExprId(),
        CollectionConverters.asScala(List.<String>of()).toSeq(), Option.empty(),
        CollectionConverters.asScala(List.<String>of()).toSeq());
    LogicalPlan query = new Project(
        CollectionConverters.asScala(List.of(moment)).toSeq(), new OneRowRelation());
    LogicalPlan analyzed = session.sessionState().analyzer().execute(query);
    if (!(analyzed instanceof Project) || !analyzed.resolved()) {
      return read;
    }
    NamedExpression found = ((Project) analyzed).projectList().head();
    if (!(found instanceof Alias)) {
      return read;
    }
    Expression known = ((Alias) found).child();
    return new RelationTimeTravel(read.relation(), Option.apply(known), read.version());
  }
}

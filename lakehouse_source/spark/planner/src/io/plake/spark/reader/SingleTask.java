package io.plake.spark.reader;

import io.plake.spark.core.Feature;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.UserDefinedExpression;
import org.apache.spark.sql.catalyst.plans.physical.SinglePartition$;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.execution.CoalesceExec;
import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.execution.FilterExec;
import org.apache.spark.sql.execution.GlobalLimitExec;
import org.apache.spark.sql.execution.LocalLimitExec;
import org.apache.spark.sql.execution.ProjectExec;
import org.apache.spark.sql.execution.SortExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.TakeOrderedAndProjectExec;
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec;
import org.apache.spark.sql.execution.aggregate.BaseAggregateExec;
import org.apache.spark.sql.execution.exchange.ENSURE_REQUIREMENTS$;
import org.apache.spark.sql.execution.exchange.Exchange;
import org.apache.spark.sql.execution.exchange.ShuffleExchangeExec;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Lets one task read a small scan and do what follows, without a shuffle.
 *
 * <p>Spark knows that a scan is small only when it has read it: it starts a task for each part of a
 * file, writes what they give as a shuffle and starts a second stage. plake knows how many rows are
 * left before that. A shuffle takes longer than the other processors could save (10 to 30 ms).
 *
 * <p>Spark runs these rules while a query can still be changed by what it has read
 * ({@code spark.sql.adaptive.enabled}); without that, nothing is changed.
 */
public final class SingleTask extends Rule<SparkPlan> {

  @Override
  public SparkPlan apply(SparkPlan plan) {
    try {
      return hasSmallScan(plan) ? changed(plan, true) : plan;
    } catch (LinkageError | RuntimeException e) {
      Feature.READER.failed(e);
      return plan;
    }
  }

  private static boolean hasSmallScan(SparkPlan plan) {
    for (Iterator<SparkPlan> it = plan.collectLeaves().iterator(); it.hasNext(); ) {
      if (isSmallScan(it.next())) {
        return true;
      }
    }
    return false;
  }

  private static boolean isSmallScan(SparkPlan leaf) {
    return leaf instanceof FileSourceScanExec scan
        && scan.relation() instanceof PlakeFiles.Relation
        && ((PlakeFiles) scan.relation().location()).isSmall();
  }

  /**
   * The plan with small scans in one task.
   *
   * @param isAlone nodes above, up to the next exchange, have one child each and cost little: none
   *     needs its rows divided as those of another child are. Where rows are shuffled into one
   *     partition, this does not matter.
   */
  private static SparkPlan changed(SparkPlan node, boolean isAlone) {
    boolean below = node instanceof Exchange || node instanceof AdaptiveSparkPlanExec
        || isAlone && isCheap(node);
    List<SparkPlan> children = new ArrayList<>();
    boolean isChanged = false;
    for (Iterator<SparkPlan> it = node.children().iterator(); it.hasNext(); ) {
      SparkPlan child = it.next();
      SparkPlan made = changed(child, below);
      children.add(made);
      isChanged |= made != child;
    }
    SparkPlan found = isChanged
        ? node.withNewChildren(CollectionConverters.asScala(children).toIndexedSeq()) : node;
    return found instanceof ShuffleExchangeExec shuffle
        && shuffle.shuffleOrigin() == ENSURE_REQUIREMENTS$.MODULE$
        && (isAlone || shuffle.outputPartitioning() == SinglePartition$.MODULE$)
        && isSmall(shuffle.child()) ? new CoalesceExec(1, shuffle.child()) : found;
  }

  /** Whether a node only passes on, filters or aggregates what a small scan gives. */
  private static boolean isSmall(SparkPlan node) {
    return isSmallScan(node)
        || (isCheap(node) || node instanceof CoalesceExec) && isSmall(node.children().head());
  }

  /** Whether a node gives few rows for few rows, and costs little for each of them. */
  private static boolean isCheap(SparkPlan node) {
    if (!(node instanceof ProjectExec || node instanceof FilterExec || node instanceof SortExec
        || node instanceof BaseAggregateExec || node instanceof LocalLimitExec
        || node instanceof GlobalLimitExec || node instanceof TakeOrderedAndProjectExec)) {
      return false;
    }
    for (Iterator<Expression> it = node.expressions().iterator(); it.hasNext(); ) {
      if (callsUser(it.next())) {
        return false;
      }
    }
    return true;
  }

  /** Whether an expression calls a function of a user, which may take any time. */
  private static boolean callsUser(Expression expression) {
    boolean found = expression instanceof UserDefinedExpression;
    for (Iterator<Expression> it = expression.children().iterator(); !found && it.hasNext(); ) {
      found = callsUser(it.next());
    }
    return found;
  }
}

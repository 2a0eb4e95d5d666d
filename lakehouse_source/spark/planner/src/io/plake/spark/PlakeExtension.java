package io.plake.spark;

import java.util.Collections;
import java.util.Set;
import java.util.WeakHashMap;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.SparkSessionExtensionsProvider;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.execution.SparkStrategy;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

/**
 * Where Spark meets plake: adds {@link IsolateScans} to the optimizer of a session.
 *
 * <p>Spark finds this class by the service entry in the jar, by {@code spark.sql.extensions}, or
 * is handed an instance by {@code lakehouse_source.spark.enable(spark)}. Two of the three at once
 * do no harm.
 */
public final class PlakeExtension extends AbstractFunction1<SparkSessionExtensions, BoxedUnit>
    implements SparkSessionExtensionsProvider {

  private static final Set<SparkSessionExtensions> EXTENDED =
      Collections.synchronizedSet(Collections.newSetFromMap(new WeakHashMap<>()));

  @Override
  public BoxedUnit apply(SparkSessionExtensions extensions) {
    if (EXTENDED.add(extensions)) {
      // The "Pre CBO" batch runs once per query, just before Spark turns relations into scans:
      // late enough that filters and projections sit on the relation, early enough that Spark's
      // own rule then does the pruning.
      extensions.injectPreCBORule(new RuleOfSession());
      extensions.injectPlannerStrategy(new StrategyOfSession());
    }
    return BoxedUnit.UNIT;
  }

  private static final class RuleOfSession
      extends AbstractFunction1<SparkSession, Rule<LogicalPlan>> {
    @Override
    public Rule<LogicalPlan> apply(SparkSession session) {
      return new IsolateScans();
    }
  }

  private static final class StrategyOfSession
      extends AbstractFunction1<SparkSession, SparkStrategy> {
    @Override
    public SparkStrategy apply(SparkSession session) {
      return new LongDecimals();
    }
  }
}

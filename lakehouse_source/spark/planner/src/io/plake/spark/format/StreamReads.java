package io.plake.spark.format;

import io.plake.spark.core.Refusal;
import io.plake.spark.core.Relations;
import io.plake.spark.core.Rewrite;
import io.plake.spark.core.StreamErrors;
import java.util.Set;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Lets streams that read plake tell plake's errors, and refuses those that name a version.
 *
 * <p>A version of a table that is streamed fails an assertion of Spark's analyzer.
 */
public final class StreamReads extends Rule<LogicalPlan> {

  private static final String[] VERSIONS = {"versionAsOf", "timestampAsOf", "version"};

  /** Names, not classes: 4.1 cannot load the catalog with views. */
  private static final Set<String> CATALOGS =
      Set.of("io.plake.spark.PlakeCatalog", "io.plake.spark.PlakeViewCatalog");

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    return Relations.isOn() ? plan.transformUp(new Rewrite<>(StreamReads::told)) : plan;
  }

  private static LogicalPlan told(LogicalPlan node) {
    if (!(node instanceof StreamingRelationV2 stream) || StreamErrors.areOf(stream.table())
        || !Relations.isOurTable(stream.table())) {
      return node;
    }
    checkNoVersion(stream.extraOptions());
    Table told = StreamErrors.of(stream.table());
    return Rewrite.<LogicalPlan>copy(stream, part -> part == stream.table() ? told : part);
  }

  private static void checkNoVersion(CaseInsensitiveStringMap options) {
    for (String option : VERSIONS) {
      if (options.containsKey(option)) {
        throw Refusal.because("[PLAKE_INVALID_OPTION] option '" + option + "' (given: "
            + options.get(option) + "): names one version, and a stream reads all that are committed"
            + " from its beginning on. Give the first one of them as startingVersion or"
            + " startingTimestamp, or read the version with spark.read.");
      }
    }
  }

  /** Refuses a stream of a table at a version, before Spark looks for the table. */
  public static final class Names extends Rule<LogicalPlan> {
    private final SparkSession session;

    public Names(SparkSession session) {
      this.session = session;
    }

    @Override
    public LogicalPlan apply(LogicalPlan plan) {
      return Relations.isOn() ? plan.transformUp(new Rewrite<>(this::checked)) : plan;
    }

    private LogicalPlan checked(LogicalPlan node) {
      if (node instanceof UnresolvedRelation table && table.isStreaming()) {
        String named = classOf(table.multipartIdentifier().head());
        String current = classOf(session.catalog().currentCatalog());
        if (CATALOGS.contains(named.isEmpty() ? current : named)) {
          checkNoVersion(table.options());
        }
      }
      return node;
    }

    private static String classOf(String catalog) {
      return SQLConf.get().getConfString("spark.sql.catalog." + catalog, "");
    }
  }
}

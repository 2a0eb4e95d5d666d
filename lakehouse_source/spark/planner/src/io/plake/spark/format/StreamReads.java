package io.plake.spark.format;

import io.plake.spark.core.PlakeCatalogs;
import io.plake.spark.core.Refusal;
import io.plake.spark.core.Relations;
import io.plake.spark.core.Rewrite;
import io.plake.spark.core.StreamErrors;
import java.util.List;
import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.catalog.SessionCatalog;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Some;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Lets streams that read plake tell plake's errors, and refuses those that name a version.
 *
 * <p>A version of a table that is streamed fails an assertion of Spark's analyzer.
 */
public final class StreamReads extends Rule<LogicalPlan> {

  private static final String[] VERSIONS = {"versionAsOf", "timestampAsOf", "version"};

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    return Relations.isOn() ? plan.transformUp(new Rewrite<>(StreamReads::withErrors)) : plan;
  }

  private static LogicalPlan withErrors(LogicalPlan node) {
    if (!(node instanceof StreamingRelationV2 stream) || StreamErrors.areOf(stream.table())
        || !Relations.isOurTable(stream.table())) {
      return node;
    }
    checkNoVersion(stream.extraOptions());
    Table withErrors = StreamErrors.of(stream.table());
    return Rewrite.<LogicalPlan>copy(stream, part -> part == stream.table() ? withErrors : part);
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
        List<String> parts = CollectionConverters.asJava(table.multipartIdentifier());
        String catalog = PlakeCatalogs.catalogOf(session, parts);
        boolean isNamed = parts.size() > 1 && catalog.equals(parts.get(0));
        List<String> name = parts.subList(isNamed ? 1 : 0, parts.size());
        if (PlakeCatalogs.isOne(catalog)
            || PlakeCatalogs.OF_SESSION.equals(catalog) && isInMetastore(name)) {
          checkNoVersion(table.options());
        }
      }
      return node;
    }

    private boolean isInMetastore(List<String> name) {
      SessionCatalog metastore =
          session.sessionState().catalog();
      String table = name.get(name.size() - 1);
      TableIdentifier known = name.size() == 1 ? new TableIdentifier(table)
          : new TableIdentifier(table, new Some<>(name.get(0)));
      try {
        return name.size() < 3 && !metastore.isTempView(known) && metastore.tableExists(known)
            && metastore.getTableMetadata(known).provider().exists(
                Relations.SOURCE::equalsIgnoreCase);
      } catch (AnalysisException e) { // dropped just now, which Spark will say
        return false;
      }
    }
  }
}

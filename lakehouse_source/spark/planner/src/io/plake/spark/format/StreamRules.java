package io.plake.spark.format;

import static scala.jdk.javaapi.CollectionConverters.asJava;

import io.plake.spark.catalog.SessionEntry;
import io.plake.spark.core.PlakeCatalogs;
import io.plake.spark.core.PlakeSource;
import io.plake.spark.core.Refusal;
import io.plake.spark.core.Relations;
import io.plake.spark.core.Rewrite;
import io.plake.spark.core.StreamErrors;
import java.util.List;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2;
import org.apache.spark.sql.catalyst.streaming.WriteToStream;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** Rules for streams that read plake, and for those that write it. */
public final class StreamRules {
  private static final String[] VERSIONS = {"versionAsOf", "timestampAsOf", "version"};

  private StreamRules() {}

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

  /**
   * Lets streams that read plake tell plake's errors, and refuses those that name a version.
   *
   * <p>A version of a table that is streamed fails an assertion of Spark's analyzer.
   */
  public static final class Reads extends Rule<LogicalPlan> {

    @Override
    public LogicalPlan apply(LogicalPlan plan) {
      return Relations.isOn() ? plan.transformUp(new Rewrite<>(Reads::withErrors)) : plan;
    }

    private static LogicalPlan withErrors(LogicalPlan node) {
      if (!(node instanceof StreamingRelationV2 stream) || StreamErrors.areOf(stream.table())
          || !Relations.isOurTable(stream.table())) {
        return node;
      }
      checkNoVersion(stream.extraOptions());
      var withErrors = StreamErrors.of(stream.table());
      return Rewrite.<LogicalPlan>copy(stream, part -> part == stream.table() ? withErrors : part);
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
        List<String> parts = asJava(table.multipartIdentifier());
        String catalog = PlakeCatalogs.catalogOf(session, parts);
        boolean isNamed = parts.size() > 1 && catalog.equals(parts.get(0));
        List<String> name = parts.subList(isNamed ? 1 : 0, parts.size());
        if (PlakeCatalogs.isOne(catalog)
            || PlakeCatalogs.OF_SESSION.equals(catalog)
                && SessionEntry.find(session, name) != null) {
          checkNoVersion(table.options());
        }
      }
      return node;
    }
  }

  /**
   * Lets streams into a path tell plake's errors as plake tells them, where the format {@code
   * plake} is the Python source and not {@link PlakeProvider}.
   */
  public static final class Writes extends Rule<LogicalPlan> {

    @Override
    @SuppressWarnings("deprecation") // schema() of a table
    public LogicalPlan apply(LogicalPlan plan) {
      if (!(plan instanceof WriteToStream write) || !Relations.isOn()
          || !Relations.isFrame(write.sink())) {
        return plan;
      }
      Sink sink = new Sink(write.sink().schema());
      return Rewrite.copy(write, part -> part == write.sink() ? sink : part);
    }

    private static final class Sink extends PlakeSource.Written {
      Sink(StructType schema) {
        super(new PlakeSource(), schema);
      }

      @Override
      public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
        return StreamErrors.of(NamedSinks.orPath(info, super::newWriteBuilder));
      }
    }
  }
}

package io.plake.spark.format;

import io.plake.spark.catalog.PlakeTable;
import io.plake.spark.core.Refusal;
import io.plake.spark.core.Relations;
import io.plake.spark.core.Rewrite;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.catalog.SessionCatalog;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2;
import org.apache.spark.sql.connector.catalog.MetadataColumn;
import org.apache.spark.sql.connector.catalog.SupportsMetadataColumns;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.internal.connector.SupportsMetadata;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;
import scala.Some;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Lets the streams of plake tell plake's errors as plake tells them, and refuses those that name a
 * version.
 *
 * <p>Spark's own source of streams puts a Python traceback into its message. A version of a table that
 * is streamed fails an assertion of Spark's analyzer.
 */
public final class StreamReads extends Rule<LogicalPlan> {

  private static final String[] VERSIONS = {"versionAsOf", "timestampAsOf", "version"};

  /** Names, not classes: 4.1 cannot load the catalog with views. */
  private static final Set<String> CATALOGS =
      Set.of("io.plake.spark.PlakeCatalog", "io.plake.spark.PlakeViewCatalog");

  private static final String OF_SESSION =
      "spark_catalog";

  /** The constructor's argument of a {@link StreamingRelationV2} that is its table. */
  private static final int TABLE = 2;

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    return Relations.isOn() ? plan.transformUp(new Rewrite<>(StreamReads::told)) : plan;
  }

  private static boolean namesVersion(CaseInsensitiveStringMap options) {
    return Arrays.stream(VERSIONS).anyMatch(options::containsKey);
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
      if (Relations.isOn()) {
        check(plan);
      }
      return plan;
    }

    private void check(LogicalPlan plan) {
      if (plan instanceof UnresolvedRelation table) {
        if (table.isStreaming() && namesVersion(table.options()) && isOurs(table)) {
          checkNoVersion(table.options());
        }
      }
      for (LogicalPlan child : CollectionConverters.asJava(plan.children())) {
        check(child);
      }
    }

    /** Whether the name is looked for in a catalog of plake. Spark's manager of them differs in 4.1. */
    private boolean isOurs(UnresolvedRelation table) {
      List<String> parts = CollectionConverters.asJava(table.multipartIdentifier());
      boolean isNamed = parts.size() > 1
          && (OF_SESSION.equals(parts.get(0)) || !classOf(parts.get(0)).isEmpty());
      String catalog = isNamed ? parts.get(0) : session.catalog().currentCatalog();
      return CATALOGS.contains(classOf(catalog))
          || OF_SESSION.equals(catalog) && isInMetastore(parts.subList(isNamed ? 1 : 0, parts.size()));
    }

    private boolean isInMetastore(List<String> name) {
      SessionCatalog metastore =
          ((org.apache.spark.sql.classic.SparkSession) session).sessionState().catalog();
      String table = name.get(name.size() - 1);
      TableIdentifier known = name.size() == 1 ? new TableIdentifier(table)
          : new TableIdentifier(table, new Some<>(name.get(0)));
      if (name.size() > 2 || metastore.isTempView(known) || !metastore.tableExists(known)) {
        return false;
      }
      try {
        Option<String> provider = metastore.getTableMetadata(known).provider();
        return provider.isDefined() && Relations.SOURCE.equalsIgnoreCase(provider.get());
      } catch (AnalysisException e) { // dropped just now, which Spark will say
        return false;
      }
    }

    private static String classOf(String catalog) {
      return SQLConf.get().getConfString("spark.sql.catalog." + catalog, "");
    }
  }

  private static LogicalPlan told(LogicalPlan node) {
    if (!(node instanceof StreamingRelationV2 stream)
        || !Relations.isOurTable(stream.table())) {
      return node;
    }
    checkNoVersion(stream.extraOptions());
    // The constructors of 4.1 and 4.3 have different arguments.
    Object[] arguments = CollectionConverters.asJava(stream.productIterator().toSeq()).toArray();
    arguments[TABLE] = new Source((SupportsRead) stream.table());
    return stream.makeCopy(arguments);
  }

  /** The table of a stream. */
  public static final class Source implements SupportsRead, SupportsMetadataColumns {
    private final SupportsRead table;

    Source(SupportsRead table) {
      this.table = table;
    }

    @Override
    public String name() {
      return table.name();
    }

    @Override
    @SuppressWarnings("deprecation") // columns() of Spark calls it
    public StructType schema() {
      return table.schema();
    }

    @Override
    public Set<TableCapability> capabilities() {
      return table.capabilities();
    }

    /** {@code RowStatements} refuses them in streams by name. */
    @Override
    public MetadataColumn[] metadataColumns() {
      return table instanceof PlakeTable
          ? ((PlakeTable) table).metadataColumns() : new MetadataColumn[0];
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      ScanBuilder stock = table.newScanBuilder(options); // nothing is pushed down in a stream
      return () -> new StreamScan(stock.build());
    }

    @Override
    public String toString() {
      return String.valueOf(table);
    }
  }

  private record StreamScan(Scan stock) implements Scan, SupportsMetadata {
    @Override
    public StructType readSchema() {
      return stock.readSchema();
    }

    @Override
    public String description() {
      return stock.description();
    }

    @Override
    public scala.collection.immutable.Map<String, String> getMetaData() {
      return ((SupportsMetadata) stock).getMetaData();
    }

    @Override
    public MicroBatchStream toMicroBatchStream(String checkpoint) {
      try {
        return ToldStream.of(stock.toMicroBatchStream(checkpoint));
      } catch (Exception e) {
        throw Refusal.toldInStream(e);
      }
    }
  }
}

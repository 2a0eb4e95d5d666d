package io.plake.spark;

import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.ServiceLoader;
import java.util.Set;
import java.util.WeakHashMap;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.SparkSessionExtensionsProvider;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.execution.ColumnarRule;
import org.apache.spark.sql.execution.SparkStrategy;
import org.apache.spark.sql.sources.DataSourceRegister;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

/**
 * The entry point: adds {@link RepinViews} and {@link RowStatements} to the analyzer of a session,
 * {@link IsolateScans} and {@link RowWrites} to its optimizer, {@link AnswerRows},
 * {@link ChooseReader} and {@link LongDecimals} to its planner, {@link FileScanMetrics} to its
 * physical plans.
 *
 * <p>Spark finds this class by the service entry in the jar or by {@code spark.sql.extensions}, or
 * {@code lakehouse_source.spark.enable(spark)} hands it an instance. Two of the three at once do no
 * harm.
 */
public final class PlakeExtension extends AbstractFunction1<SparkSessionExtensions, BoxedUnit>
    implements SparkSessionExtensionsProvider {

  private static final String PACKAGE = "io.plake.spark.";

  private static final Set<SparkSessionExtensions> EXTENDED =
      Collections.synchronizedSet(Collections.newSetFromMap(new WeakHashMap<>()));

  /** The classes that each part needs. A class that does not link lacks something of Spark. */
  private static final Map<Part, List<String>> CLASSES = Map.ofEntries(
      Map.entry(Part.PUSHDOWN, List.of(
          "IsolateScans", "IsolateScans$Swap", "IsolateScans$IsolatedTable", "IsolatedScanBuilder",
          "IsolatedSource", "IsolatedScan", "IsolatedScan$IsolatedBatch", "Pushdown",
          "ConditionData", "ScanStatistics", "PlakeSource", "PlakeSource$Telling", "Refusal")),
      Map.entry(Part.AGGREGATES, List.of("CatalogQuestion", "CatalogAnswer", "AnswerRows")),
      Map.entry(Part.FUNCTIONS, List.of("FunctionRanges")),
      Map.entry(Part.JOIN_KEYS, List.of("IsolatedScan$Column")),
      Map.entry(Part.BATCHES, List.of("BatchReads", "BatchReads$SparkReader", "BatchReads$Batches")),
      Map.entry(Part.DECIMALS, List.of("LongDecimals", "LongDecimals$Replace")),
      Map.entry(Part.VIEWS, List.of("RepinViews", "RepinViews$Change", "RepinViews$Pins", "CharPadding")),
      Map.entry(Part.STATEMENTS, List.of(
          "RowStatements", "RowStatements$Targets", "GroupFilters", "StructCasts", "OwnRows", "OwnRows$Writes",
          "MovedColumns", "TargetPlaces", "StatementTable", "CharPadding",
          "RowOperation", "RowWrites", "RowWrites$Writes", "RowChangeTable",
          "SchemaEvolution", "HiddenColumns", "HiddenColumns$Hidden", "WriteInfo", "RowChangeTable$Builder",
          "RowChangeTable$Clustered")),
      Map.entry(Part.CATALOG, List.of(
          "PlakeCatalog", "PlakeTable", "PlakeTable$Unpruned", "TableWrites", "Channel",
          "ChangesTable", "ChangesByName", "ChangesByName$Found", "ChangesByName$Resolve",
          "TableChanges", "HiddenColumns", "HiddenColumns$Hidden",
          "Channel$TaskTable", "Refusal",
          "TableQuestions", "ConstantDefaults", "TableToCreate", "TablePartitions", "PlakeProcedure",
          "PlakeProcedure$Bound", "PlakeSessionCatalog", "SessionEntry", "StagedBySpark",
          "MergeSchemaWrites", "MergeSchemaWrites$Wait", "MergeSchemaWrites$Widen",
          "AnalyzeTables", "NotNullColumns", "NotNullColumns$Pass", "TimesOfPaths",
          "TimesOfPaths$Resolve", "StreamReads", "StreamReads$Names", "StreamReads$Tell",
          "StreamReads$Source", "StreamReads$Builder", "StreamReads$StreamScan", "ToldStream",
          "ToldStream$Seeing", "ToldStream$Limited", "ToldStream$Ending", "StreamWrites",
          "StreamWrites$Sink", "ToldWrites", "ToldWrites$Told", "ToldWrites$Batches")),
      Map.entry(Part.CATALOG_VIEWS, List.of(
          "PlakeViewCatalog", "PlakeChangelog", "PlakeSessionChangelogs")),
      Map.entry(Part.PROVIDER, List.of(
          "PlakeProvider", "FormatWrites", "AnalyzeTables", "ToldWrites", "ToldWrites$Told",
          "ToldWrites$Batches")),
      Map.entry(Part.READER, List.of(
          "ChooseReader", "ChooseReader$Hide", "ReaderAnswer", "PlakeFiles", "PlakeFiles$Bind",
          "PlakeFiles$Relation", "PlakeParquet", "PlakeParquet$Layout", "PlakeParquet$Columns",
          "FileBatches", "FileBatches$Reader", "FileBatches$Batches", "FileBatches$Rows",
          "FileBatches$Source", "FileBatches$Stored", "FileBatches$Constant",
          "FileBatches$PathOfFile", "FileBatches$Position", "FileBatches$Moved",
          "FileBatches$LiveRows", "MovedRows", "DeletedRows")),
      Map.entry(Part.METRICS, List.of(
          "ScanMetric", "ScanCounts", "ScanCounts$Reported", "FileScanMetrics",
          "FileScanMetrics$Add")));

  @Override
  public BoxedUnit apply(SparkSessionExtensions extensions) {
    if (EXTENDED.add(extensions)) {
      extensions.injectHintResolutionRule(new WaitsOfSession()); // before tables are resolved
      extensions.injectHintResolutionRule(new TimesOfSession());
      extensions.injectHintResolutionRule(new NamesOfSession());
      extensions.injectHintResolutionRule(new ChangesOfSession());
      TableChanges.injectInto(extensions);
      extensions.injectResolutionRule(new WidensOfSession());
      extensions.injectResolutionRule(new ViewsOfSession());
      extensions.injectResolutionRule(new FormatsOfSession());
      extensions.injectResolutionRule(new AnalysesOfSession());
      extensions.injectResolutionRule(new ColumnsOfSession());
      extensions.injectResolutionRule(new StatementsOfSession()); // after views have their version
      extensions.injectPostHocResolutionRule(new ReadsOfSession()); // where queries are resolved
      extensions.injectPostHocResolutionRule(new StreamsOfSession());
      extensions.injectPostHocResolutionRule(new SinksOfSession());
      // The "Pre CBO" batch runs once per query, just before Spark turns relations into scans.
      // Filters and projections are then next to the relation, and the rule of Spark that pushes
      // them down has not run yet.
      extensions.injectPreCBORule(new RuleOfSession());
      extensions.injectPreCBORule(new WritesOfSession());
      extensions.injectPlannerStrategy(new AnswersOfSession());
      extensions.injectPlannerStrategy(new ReaderOfSession()); // before decimals are made longs
      extensions.injectPlannerStrategy(new StrategyOfSession());
      extensions.injectColumnar(new MetricsOfSession());
    }
    return BoxedUnit.UNIT;
  }

  /**
   * For each part by its label why it does not work, or the empty text where it does.
   *
   * <p>Looks for what a part needs, and tells of failures in this JVM's queries. Settings of a
   * session are not looked at. Python calls this.
   */
  public static Map<String, String> status() {
    Map<String, String> found = new LinkedHashMap<>();
    for (Part part : Part.values()) {
      String obstacle = obstacle(part);
      // Executors can get the jar later: for batches, the state of now is what counts.
      if (obstacle == null && part != Part.BATCHES) {
        obstacle = part.failure();
      }
      found.put(part.label, obstacle == null ? "" : obstacle);
    }
    return found;
  }

  private static String obstacle(Part part) {
    try {
      for (String name : CLASSES.get(part)) {
        Class<?> linked = Class.forName(
            PACKAGE + name, true, PlakeExtension.class.getClassLoader());
        checkSignatures(linked, part);
      }
      switch (part) {
        case PUSHDOWN:
          return IsolateScans.obstacle();
        case BATCHES:
          return BatchReads.obstacle();
        case DECIMALS:
          LongDecimals.check();
          return null;
        case VIEWS:
          RepinViews.check();
          return null;
        case STATEMENTS:
          RowWrites.check();
          return null;
        case METRICS:
          FileScanMetrics.check();
          return null;
        case PROVIDER:
          FormatWrites.check();
          return isAmongProviders() ? null : NOT_AMONG_PROVIDERS;
        default:
          return null;
      }
    } catch (LinkageError | ReflectiveOperationException | RuntimeException e) {
      return (part == Part.CATALOG_VIEWS ? "needs Spark 4.2" : "this Spark lacks what it needs")
          + ": " + e;
    }
  }

  private static final String NOT_AMONG_PROVIDERS = "the Python source writes, with the modes append"
      + " and overwrite: the jar is not in spark.jars";

  /** Whether Spark finds the format {@code plake} in the jar. */
  private static boolean isAmongProviders() {
    for (Object found : ServiceLoader.load(
        DataSourceRegister.class, Thread.currentThread().getContextClassLoader())) {
      if (found.getClass().getName().equals(PlakeProvider.class.getName())) {
        return true;
      }
    }
    return false;
  }

  /**
   * Sees that all types in the signatures of a class are there.
   *
   * <p>A class of another part that is missing is no obstacle: it is loaded when that part is used.
   */
  private static void checkSignatures(Class<?> linked, Part part) {
    try {
      linked.getDeclaredMethods();
    } catch (NoClassDefFoundError e) {
      String missing = String.valueOf(e.getMessage()).replace('/', '.');
      for (Map.Entry<Part, List<String>> other : CLASSES.entrySet()) {
        if (other.getKey() != part && missing.startsWith(PACKAGE)
            && other.getValue().contains(missing.substring(PACKAGE.length()))) {
          return;
        }
      }
      throw e;
    }
  }

  private static final class RuleOfSession
      extends AbstractFunction1<SparkSession, Rule<LogicalPlan>> {
    @Override
    public Rule<LogicalPlan> apply(SparkSession session) {
      PlakeSessionCatalog.useIn(session); // where the extension comes after the analyzer was made
      return new IsolateScans();
    }
  }

  private static final class WaitsOfSession
      extends AbstractFunction1<SparkSession, Rule<LogicalPlan>> {
    @Override
    public Rule<LogicalPlan> apply(SparkSession session) {
      return new MergeSchemaWrites.Wait();
    }
  }

  private static final class TimesOfSession
      extends AbstractFunction1<SparkSession, Rule<LogicalPlan>> {
    @Override
    public Rule<LogicalPlan> apply(SparkSession session) {
      return new TimesOfPaths(session);
    }
  }

  private static final class NamesOfSession
      extends AbstractFunction1<SparkSession, Rule<LogicalPlan>> {
    @Override
    public Rule<LogicalPlan> apply(SparkSession session) {
      return new StreamReads.Names(session);
    }
  }

  private static final class ChangesOfSession
      extends AbstractFunction1<SparkSession, Rule<LogicalPlan>> {
    @Override
    public Rule<LogicalPlan> apply(SparkSession session) {
      return new ChangesByName(session);
    }
  }

  private static final class StreamsOfSession
      extends AbstractFunction1<SparkSession, Rule<LogicalPlan>> {
    @Override
    public Rule<LogicalPlan> apply(SparkSession session) {
      return new StreamReads();
    }
  }

  private static final class SinksOfSession
      extends AbstractFunction1<SparkSession, Rule<LogicalPlan>> {
    @Override
    public Rule<LogicalPlan> apply(SparkSession session) {
      return new StreamWrites();
    }
  }

  private static final class ColumnsOfSession
      extends AbstractFunction1<SparkSession, Rule<LogicalPlan>> {
    @Override
    public Rule<LogicalPlan> apply(SparkSession session) {
      return new NotNullColumns();
    }
  }

  private static final class WidensOfSession
      extends AbstractFunction1<SparkSession, Rule<LogicalPlan>> {
    @Override
    public Rule<LogicalPlan> apply(SparkSession session) {
      return new MergeSchemaWrites.Widen();
    }
  }

  private static final class ViewsOfSession
      extends AbstractFunction1<SparkSession, Rule<LogicalPlan>> {
    @Override
    public Rule<LogicalPlan> apply(SparkSession session) {
      PlakeSessionCatalog.useIn(session);
      return new RepinViews();
    }
  }

  private static final class FormatsOfSession
      extends AbstractFunction1<SparkSession, Rule<LogicalPlan>> {
    @Override
    public Rule<LogicalPlan> apply(SparkSession session) {
      return new FormatWrites();
    }
  }

  private static final class AnalysesOfSession
      extends AbstractFunction1<SparkSession, Rule<LogicalPlan>> {
    @Override
    public Rule<LogicalPlan> apply(SparkSession session) {
      return new AnalyzeTables();
    }
  }

  private static final class StatementsOfSession
      extends AbstractFunction1<SparkSession, Rule<LogicalPlan>> {
    @Override
    public Rule<LogicalPlan> apply(SparkSession session) {
      return new RowStatements();
    }
  }

  private static final class ReadsOfSession
      extends AbstractFunction1<SparkSession, Rule<LogicalPlan>> {
    @Override
    public Rule<LogicalPlan> apply(SparkSession session) {
      return new OwnRows();
    }
  }

  private static final class WritesOfSession
      extends AbstractFunction1<SparkSession, Rule<LogicalPlan>> {
    @Override
    public Rule<LogicalPlan> apply(SparkSession session) {
      return new RowWrites();
    }
  }

  private static final class AnswersOfSession
      extends AbstractFunction1<SparkSession, SparkStrategy> {
    @Override
    public SparkStrategy apply(SparkSession session) {
      return new AnswerRows();
    }
  }

  private static final class ReaderOfSession
      extends AbstractFunction1<SparkSession, SparkStrategy> {
    @Override
    public SparkStrategy apply(SparkSession session) {
      return new ChooseReader();
    }
  }

  private static final class StrategyOfSession
      extends AbstractFunction1<SparkSession, SparkStrategy> {
    @Override
    public SparkStrategy apply(SparkSession session) {
      return new LongDecimals();
    }
  }

  private static final class MetricsOfSession
      extends AbstractFunction1<SparkSession, ColumnarRule> {
    @Override
    public ColumnarRule apply(SparkSession session) {
      return new FileScanMetrics();
    }
  }
}

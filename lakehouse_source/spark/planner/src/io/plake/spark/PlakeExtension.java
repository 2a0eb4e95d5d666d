package io.plake.spark;

import static scala.jdk.javaapi.CollectionConverters.asJava;

import io.plake.spark.catalog.ChangesByName;
import io.plake.spark.catalog.MergeSchemaWrites;
import io.plake.spark.catalog.ProcedureStatements;
import io.plake.spark.catalog.TableChanges;
import io.plake.spark.catalog.TableStatements;
import io.plake.spark.core.Feature;
import io.plake.spark.core.PlacedFrame;
import io.plake.spark.core.PythonTask;
import io.plake.spark.core.Refusal;
import io.plake.spark.core.WriteCommands;
import io.plake.spark.format.FormatWrites;
import io.plake.spark.format.PlakeProvider;
import io.plake.spark.format.RepinViews;
import io.plake.spark.format.StreamRules;
import io.plake.spark.reader.ChooseReader;
import io.plake.spark.reader.FileScanMetrics;
import io.plake.spark.reader.SingleTask;
import io.plake.spark.scan.FileMetadata;
import io.plake.spark.scan.IsolateScans;
import io.plake.spark.scan.LongDecimals;
import io.plake.spark.scan.ResponseRows;
import io.plake.spark.statements.BuiltStatements;
import io.plake.spark.statements.OverwriteReads;
import io.plake.spark.statements.RowStatements;
import io.plake.spark.statements.RowWrites;
import io.plake.spark.statements.StreamUpserts;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.ServiceLoader;
import java.util.Set;
import java.util.WeakHashMap;
import java.util.function.BiConsumer;
import java.util.function.Function;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.SparkSessionExtensionsProvider;
import org.apache.spark.sql.catalyst.parser.ParserInterface;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.sources.DataSourceRegister;
import scala.runtime.AbstractFunction1;
import scala.runtime.AbstractFunction2;
import scala.runtime.BoxedUnit;

/**
 * The entry point: adds {@link RepinViews} and {@link RowStatements} to the analyzer of a session,
 * {@link IsolateScans} and {@link RowWrites} to its optimizer, {@link ResponseRows},
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

  /**
   * The classes that each part needs, with those inside of them. A class that does not link lacks
   * something of Spark.
   */
  private static final Map<Feature, List<String>> CLASSES = Map.ofEntries(
      Map.entry(Feature.PUSHDOWN, List.of(
          "scan.IsolateScans", "scan.IsolatedScanBuilder", "scan.IsolatedSource",
          "scan.IsolatedScan", "scan.KnownPlans", "scan.Pushdown", "scan.ConditionData",
          "scan.FileMetadata", "core.FrameTable", "core.HiddenColumns", "core.LineageNames",
          "core.PlacedFrame", "core.PlakeSource", "core.Refusal")),
      Map.entry(Feature.AGGREGATES, List.of(
          "scan.AggregateRequest", "scan.AggregateResponse", "scan.ResponseRows")),
      Map.entry(Feature.FUNCTIONS, List.of("scan.ExpressionData")),
      Map.entry(Feature.JOIN_KEYS, List.of("scan.IsolatedScan")),
      Map.entry(Feature.BATCHES, List.of(
          "scan.BatchReads", "core.BatchWrites", "core.PythonTask")),
      Map.entry(Feature.DECIMALS, List.of("scan.LongDecimals")),
      Map.entry(Feature.VIEWS, List.of("format.RepinViews", "core.CharPadding")),
      Map.entry(Feature.STATEMENTS, List.of(
          "statements.RowStatements", "statements.Assignments", "statements.BuiltStatements",
          "statements.OverwriteReads", "statements.MetadataColumns", "statements.StatementTable",
          "core.CharPadding", "statements.RowOperation", "statements.RowWrites",
          "statements.StreamUpserts", "statements.RowChangeTable", "core.SchemaEvolution",
          "core.FrameTable", "core.HiddenColumns", "core.Waiting", "core.WriteCommands")),
      Map.entry(Feature.CATALOG, List.of(
          "PlakeCatalog", "catalog.PlakeTable", "core.LineageNames", "catalog.TableWrites",
          "core.Channel", "catalog.ChangesTable", "catalog.ChangesByName", "catalog.TableChanges",
          "core.FrameTable", "core.HiddenColumns", "core.PlakeCatalogs", "core.Refusal",
          "core.SessionTimes", "core.Waiting", "catalog.TableRequests", "catalog.ComputedColumns",
          "catalog.TableToCreate", "catalog.TablePartitions", "catalog.PlakeProcedure",
          "catalog.ProcedureStatements", "PlakeSessionCatalog", "catalog.SessionEntry",
          "catalog.StagedBySpark", "catalog.MergeSchemaWrites", "catalog.TableStatements",
          "format.StreamRules", "format.NamedSinks", "core.StreamErrors")),
      Map.entry(Feature.CATALOG_VIEWS, List.of(
          "PlakeViewCatalog", "catalog.EvolvingTable", "catalog.PlakeChangelog",
          "PlakeSessionChangelogs")),
      Map.entry(Feature.PROVIDER, List.of(
          "format.PlakeProvider", "format.FormatWrites", "core.WriteCommands",
          "catalog.TableStatements", "core.StreamErrors")),
      Map.entry(Feature.READER, List.of(
          "reader.ChooseReader", "reader.SingleTask", "scan.ReaderResponse",
          "reader.PlakeFiles", "reader.PlakeParquet", "reader.FileBatches", "reader.DeletedRows")),
      Map.entry(Feature.METRICS, List.of(
          "scan.ScanMetric", "scan.ScanCounts", "reader.FileScanMetrics")));

  @Override
  public BoxedUnit apply(SparkSessionExtensions extensions) {
    if (EXTENDED.add(extensions)) {
      extensions.injectParser(new AbstractFunction2<>() {
        @Override
        public ParserInterface apply(SparkSession session, ParserInterface parser) {
          try {
            return ProcedureStatements.before(session, parser);
          } catch (LinkageError e) {
            Feature.CATALOG.failed(e);
            return parser;
          }
        }
      });
      Rules hints = (part, made) ->
          extensions.injectHintResolutionRule(session -> rule(part, made, session));
      Rules resolution = (part, made) ->
          extensions.injectResolutionRule(session -> rule(part, made, session));
      Rules postHoc = (part, made) ->
          extensions.injectPostHocResolutionRule(session -> rule(part, made, session));
      // Before tables are resolved.
      hints.accept(Feature.CATALOG, session -> new TableStatements.ReplaceWhereByName(session));
      hints.accept(Feature.CATALOG, session -> new MergeSchemaWrites.Wait());
      hints.accept(Feature.CATALOG, session -> new TableStatements.TimesOfPaths(session));
      hints.accept(Feature.CATALOG, session -> new TableStatements.FrameFormats(session));
      hints.accept(Feature.CATALOG, session -> new StreamRules.Names(session));
      hints.accept(Feature.CATALOG, session -> new ChangesByName(session));
      hints.accept(Feature.STATEMENTS, session -> new BuiltStatements());
      hints.accept(Feature.STATEMENTS, session -> new RowStatements.Wait());
      TableChanges.injectInto(extensions);
      resolution.accept(Feature.CATALOG, session -> new MergeSchemaWrites.Widen());
      resolution.accept(Feature.VIEWS, session -> {
        PlakeSessionCatalog.useIn(session);
        return new RepinViews();
      });
      resolution.accept(Feature.PROVIDER, session -> new FormatWrites());
      resolution.accept(Feature.CATALOG, session -> new TableStatements.Analyze());
      resolution.accept(Feature.CATALOG, session -> new TableStatements.NotNullColumns());
      resolution.accept(Feature.PUSHDOWN, session -> new PlacedFrame.Places());
      // After views have their version.
      resolution.accept(Feature.STATEMENTS, session -> new RowStatements());
      postHoc.accept(Feature.STATEMENTS, session -> new OverwriteReads());
      postHoc.accept(Feature.CATALOG, session -> new StreamRules.Reads());
      postHoc.accept(Feature.STATEMENTS, session -> new StreamUpserts(session));
      postHoc.accept(Feature.CATALOG, session -> new StreamRules.Writes());
      extensions.injectOptimizerRule(
          session -> rule(Feature.PUSHDOWN, any -> new FileMetadata(), session));
      // The "Pre CBO" batch runs once per query, just before Spark turns relations into scans.
      // Filters and projections are then next to the relation, and the rule of Spark that pushes
      // them down has not run yet.
      extensions.injectPreCBORule(session -> {
        PlakeSessionCatalog.useIn(session); // where the extension comes after the analyzer was made
        return new IsolateScans();
      });
      extensions.injectPreCBORule(
          session -> rule(Feature.STATEMENTS, any -> new RowWrites(), session));
      extensions.injectPlannerStrategy(session -> new ResponseRows());
      // Before decimals are made longs.
      extensions.injectPlannerStrategy(session -> new ChooseReader());
      extensions.injectPlannerStrategy(session -> new LongDecimals());
      extensions.injectQueryStagePrepRule(
          session -> rule(Feature.READER, any -> new SingleTask(), session));
      extensions.injectColumnar(session -> new FileScanMetrics());
    }
    return BoxedUnit.UNIT;
  }

  /** Adds rules of one kind. */
  private interface Rules
      extends BiConsumer<Feature, Function<SparkSession, Rule<LogicalPlan>>> {}

  /** A rule; one that does nothing where Spark lacks what it needs. */
  private static <P extends TreeNode<?>> Rule<P> rule(
      Feature part, Function<SparkSession, Rule<P>> made, SparkSession session) {
    try {
      return made.apply(session);
    } catch (LinkageError e) {
      part.failed(e);
      return new Rule<>() {
        @Override
        public P apply(P plan) {
          return plan;
        }
      };
    }
  }

  /**
   * Refuses a session that has a catalog of plake and lacks the rules of this extension.
   *
   * <p>Its rows could be read and added, but not changed, and nothing would be pruned. Spark makes
   * the list of an analyzer's rules once in a session.
   *
   * @return true
   */
  static boolean require(SparkSession session) {
    String found = "is not loaded";
    for (Rule<?> rule : asJava(session.sessionState().analyzer().extendedResolutionRules())) {
      if (rule.getClass().getName().startsWith(PACKAGE)) {
        if (rule.getClass().getClassLoader() == PlakeExtension.class.getClassLoader()) {
          return true;
        }
        found = "is of another version";
      }
    }
    throw Refusal.because("[PLAKE_INVALID_OPTION] this session has a catalog of plake, whose planner"
        + " extension " + found + ": call lakehouse_source.spark.enable(spark), or put"
        + " plake-planner.jar into spark.jars before Spark starts.");
  }

  /**
   * For each part by its label why it does not work, or the empty text where it does.
   *
   * <p>Looks for what a part needs, and tells of failures in this JVM's queries. Settings of a
   * session are not looked at. Python calls this.
   */
  public static Map<String, String> status() {
    Map<String, String> found = new LinkedHashMap<>();
    for (Feature part : Feature.values()) {
      String obstacle = obstacle(part);
      // Executors can get the jar later: for batches, the state of now is what counts.
      if (obstacle == null && part != Feature.BATCHES) {
        obstacle = part.failure();
      }
      found.put(part.label, obstacle == null ? "" : obstacle);
    }
    return found;
  }

  private static String obstacle(Feature part) {
    try {
      for (String name : CLASSES.get(part)) {
        check(Class.forName(PACKAGE + name, true, PlakeExtension.class.getClassLoader()), part);
      }
      switch (part) {
        case VIEWS -> RepinViews.check();
        case STATEMENTS, PROVIDER -> WriteCommands.check();
        case METRICS -> FileScanMetrics.check();
        default -> { }
      }
      return switch (part) {
        case PUSHDOWN -> IsolateScans.obstacle();
        case BATCHES -> PythonTask.obstacle();
        case PROVIDER -> isAmongProviders() ? null : NOT_AMONG_PROVIDERS;
        default -> null;
      };
    } catch (LinkageError | ReflectiveOperationException | RuntimeException e) {
      return (part == Feature.CATALOG_VIEWS ? "needs Spark 4.2" : "this Spark lacks what it needs")
          + ": " + e;
    }
  }

  private static final String NOT_AMONG_PROVIDERS = "the Python source writes, with the modes append"
      + " and overwrite: the jar is not in spark.jars";

  /** Whether Spark finds the format {@code plake} in the jar. */
  private static boolean isAmongProviders() {
    return ServiceLoader.load(
        DataSourceRegister.class, Thread.currentThread().getContextClassLoader()).stream()
        .anyMatch(found -> found.type().getName().equals(PlakeProvider.class.getName()));
  }

  /**
   * Sees that all types in the signatures of a class, and of those inside of it, are there.
   *
   * <p>A class of another part that is missing is no obstacle: it is loaded when that part is used.
   */
  private static void check(Class<?> linked, Feature part) throws ClassNotFoundException {
    try {
      linked.getDeclaredMethods();
      for (Class<?> inside : linked.getDeclaredClasses()) {
        Class.forName(inside.getName(), true, PlakeExtension.class.getClassLoader());
        check(inside, part);
      }
    } catch (NoClassDefFoundError e) {
      String missing = String.valueOf(e.getMessage()).replace('/', '.');
      for (Map.Entry<Feature, List<String>> other : CLASSES.entrySet()) {
        for (String name : other.getValue()) {
          if (other.getKey() != part && (missing + "$").startsWith(PACKAGE + name + "$")) {
            return;
          }
        }
      }
      throw e;
    }
  }
}

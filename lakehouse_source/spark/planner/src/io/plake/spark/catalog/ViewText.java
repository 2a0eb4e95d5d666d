package io.plake.spark.catalog;

import static scala.jdk.javaapi.CollectionConverters.asJava;

import io.plake.spark.core.Refusal;
import io.plake.spark.core.Vocabulary;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.ServiceLoader;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.spark.sql.catalyst.analysis.UnresolvedFunction;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.ScriptTransformation;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.internal.SQLConf$;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.sources.DataSourceRegister;
import scala.Product;
import scala.collection.Iterable;

/**
 * Whether the text of a view may run.
 *
 * <p>A view is a text that somebody wrote into a catalog, and Spark runs it with the rights of who
 * reads it. So it may only query: it calls nothing that runs other code, and reads tables, not
 * files or databases by an address in the text. The text of a catalog that belongs to somebody else
 * does not run at all, unless the reader says so.
 */
public final class ViewText {

  private static final Set<String> CODE = Set.of("reflect", "java_method", "try_reflect");

  /** Where Spark looks up what a command shows or alters: it does not run it. */
  private static final String SHOWS = "lookupTableOrView";

  private static final String CATALOGS = "spark.sql.catalog.";
  private static final String SESSION_CATALOG = CATALOGS + "spark_catalog";

  private final String catalog;
  private final String view;

  /** {@code view} is its name, in the catalog of this name. */
  public ViewText(String catalog, String view) {
    this.catalog = catalog;
    this.view = catalog + "." + view;
  }

  /** Whether Spark looks for a view, or a table, of which it will only show what is stored. */
  public static boolean isShown() {
    return StackWalker.getInstance().walk(frames ->
        frames.limit(10).anyMatch(frame -> frame.getMethodName().contains(SHOWS)));
  }

  /** Refuses a view of somebody else's catalog. */
  public void checkOwner() {
    String allowed = SparkSession.active().sessionState().conf()
        .getConfString(Vocabulary.Setting.VIEWS_ALLOWED, "");
    if (Arrays.stream(allowed.split(",")).noneMatch(one -> one.strip().equals(catalog))) {
      throw Refusal.because("The catalog of the view " + view + " belongs to somebody else, and"
          + " the text of the view would run with your rights. Read it: SHOW CREATE TABLE " + view
          + ". If it may run: SET " + Vocabulary.Setting.VIEWS_ALLOWED + " = " + catalog);
    }
  }

  /**
   * The settings under which a view is read: those that Spark stores for views, of those that were
   * stored. Settings that name catalogs, and so classes, are the session's own.
   */
  public static Map<String, String> settings(Map<String, String> stored) {
    Map<String, String> found = new HashMap<>(stored);
    found.keySet().removeIf(name -> name.startsWith(CATALOGS)
        || !SQLConf$.MODULE$.containsConfigKey(name)
        || SQLConf$.MODULE$.isStaticConfigKey(name));
    SQLConf own = SparkSession.active().sessionState().conf();
    if (own.contains(SESSION_CATALOG)) {
      found.put(SESSION_CATALOG, own.getConfString(SESSION_CATALOG));
    }
    return found;
  }

  /** Refuses a text that does more than query tables. */
  public void check(String text) {
    if (text.contains("${")) { // Spark puts in settings and variables of the driver's environment
      throw refused("names a variable by ${…}");
    }
    LogicalPlan plan;
    try {
      plan = SparkSession.active().sessionState().sqlParser().parseQuery(text);
    } catch (ParseException e) {
      throw Refusal.undeclared(e);
    }
    parts(plan).forEach(this::check);
  }

  private void check(Object part) {
    if (part instanceof UnresolvedFunction function) {
      var names = asJava(function.nameParts());
      String name = names.get(names.size() - 1).toLowerCase(Locale.ROOT);
      if (CODE.contains(name)) {
        throw refused("calls " + name + ", which runs code");
      }
    } else if (part instanceof ScriptTransformation) {
      throw refused("runs a program by TRANSFORM");
    } else if (part instanceof UnresolvedRelation relation) {
      var names = asJava(relation.multipartIdentifier());
      if (names.size() == 2 && isSource(names.get(0))) {
        throw refused("reads " + String.join(".", names) + ", which is no table");
      }
    } else if (part.getClass().getSimpleName().endsWith("WithUnresolvedIdentifier")) {
      throw refused("makes a name by IDENTIFIER");
    }
  }

  /**
   * Whether Spark may take the first part of a name for a data source, and the second for a path.
   */
  private boolean isSource(String first) {
    return !first.equals(catalog) && (first.contains(".") || Sources.NAMES.contains(
        first.toLowerCase(Locale.ROOT)));
  }

  private RuntimeException refused(String does) {
    return Refusal.because("The view " + view + " " + does + ", so it does not run. SHOW CREATE"
        + " TABLE " + view + " shows its text.");
  }

  /** Everything in a plan that was parsed: plans below, expressions, and plans in these. */
  private static Stream<Object> parts(Object part) {
    var below = part instanceof Iterable<?> some ? some.iterator()
        : part instanceof Product one ? one.productIterator() : null;
    if (below == null) {
      return Stream.empty();
    }
    Stream.Builder<Object> found = Stream.builder();
    while (below.hasNext()) {
      found.add(below.next());
    }
    return Stream.concat(Stream.of(part), found.build().flatMap(ViewText::parts));
  }

  /** The short names of data sources, looked up once. */
  private static final class Sources {
    static final Set<String> NAMES = Stream.concat(
        Stream.of("parquet", "orc", "csv", "json", "text", "xml", "binaryfile", "avro", "jdbc",
            "kafka", "socket", "rate", "delta", "iceberg", "hudi", "libsvm", "image", "hive"),
        ServiceLoader.load(DataSourceRegister.class,
                org.apache.spark.util.Utils.getContextOrSparkClassLoader())
            .stream().map(Sources::name)).collect(Collectors.toUnmodifiableSet());

    private static String name(ServiceLoader.Provider<DataSourceRegister> source) {
      try {
        return source.get().shortName().toLowerCase(Locale.ROOT);
      } catch (RuntimeException | LinkageError | java.util.ServiceConfigurationError e) {
        return "";
      }
    }
  }
}

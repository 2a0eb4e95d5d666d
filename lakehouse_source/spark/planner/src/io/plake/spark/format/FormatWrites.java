package io.plake.spark.format;

import com.fasterxml.jackson.databind.node.ObjectNode;
import io.plake.spark.catalog.AnalyzeTables;
import io.plake.spark.core.Channel;
import io.plake.spark.core.OwnOptions;
import io.plake.spark.core.PlakeSource;
import io.plake.spark.core.Refusal;
import io.plake.spark.core.Relations;
import io.plake.spark.core.Vocabulary;
import java.lang.reflect.Constructor;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.apache.spark.sql.SaveMode;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.catalyst.plans.logical.AppendData;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.OverwriteByExpression;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.execution.datasources.DataSourceUtils;
import org.apache.spark.sql.execution.datasources.SaveIntoDataSourceCommand;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Plans the writes of {@link PlakeProvider} as Spark plans those of a Python source.
 *
 * <p>The mode {@code errorifexists} is an append that must create the dataset: plake checks it in the
 * transaction of the commit. {@code ignore} is the same, or nothing where there is a dataset.
 */
public final class FormatWrites extends Rule<LogicalPlan> {

  static final String PARTITION_BY = "partitionBy";
  private static final String CLUSTER_BY = "clusterBy";

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    if (plan instanceof SaveIntoDataSourceCommand command) {
      if (command.dataSource() instanceof PlakeProvider) {
        return planned(command.query(), command.mode(), command.options());
      }
    }
    return plan;
  }

  /** Fails where Spark lacks what the rule needs. */
  public static void check() throws ReflectiveOperationException {
    constructor(AppendData.class);
    constructor(OverwriteByExpression.class);
  }

  static LogicalPlan planned(
      LogicalPlan query, SaveMode mode, scala.collection.immutable.Map<String, String> given) {
    Map<String, String> options = new HashMap<>(CollectionConverters.asJava(given));
    String partitions = taken(options, DataSourceUtils.PARTITIONING_COLUMNS_KEY());
    String clusters = taken(options, DataSourceUtils.CLUSTERING_COLUMNS_KEY());
    choose(options, PARTITION_BY, decoded(partitions));
    choose(options, CLUSTER_BY, decoded(clusters));
    String path = new CaseInsensitiveStringMap(options).get(Vocabulary.Place.PATH);
    boolean creates = mode == SaveMode.ErrorIfExists || mode == SaveMode.Ignore;
    if (creates && path != null) { // Python says that a path is missing
      Channel channel = new Channel(Relations.SOURCE, options);
      ObjectNode question = Channel.about(
          Vocabulary.Ask.EXISTS, Identifier.of(new String[0], path));
      question.put(Vocabulary.Question.MUST_BE_NEW, mode == SaveMode.ErrorIfExists);
      if (channel.ask(question).told.get(Vocabulary.Answer.EXISTS).asBoolean()) {
        return AnalyzeTables.nothing("save");
      }
      OwnOptions.tell(options, Vocabulary.Told.MODE, Vocabulary.Mode.CREATE);
    }
    Channel.tellApplication(options);
    StructType schema = query.schema().asNullable();
    DataSourceV2Relation target = DataSourceV2Relation.create(
        new PythonTable(new PlakeSource(), Relations.SOURCE, schema), Option.empty(), Option.empty(),
        new CaseInsensitiveStringMap(options), Option.empty());
    return mode == SaveMode.Overwrite
        ? made(OverwriteByExpression.class, target, Literal$.MODULE$.TrueLiteral(), query, options)
        : made(AppendData.class, target, query, options);
  }

  private static String taken(Map<String, String> options, String key) {
    String found = null;
    for (String name : List.copyOf(options.keySet())) {
      if (name.equalsIgnoreCase(key)) {
        found = options.remove(name);
      }
    }
    return found;
  }

  /** Sets an option that names columns, where the user did not. */
  static void choose(Map<String, String> options, String name, List<String> columns) {
    for (String key : options.keySet()) {
      if (key.toLowerCase(Locale.ROOT).equals(name.toLowerCase(Locale.ROOT))) {
        if (!columns.isEmpty()) {
          throw Refusal.because("The option " + name + " and the method of that name are both given:"
              + " leave one out.");
        }
        return;
      }
    }
    if (!columns.isEmpty()) {
      List<String> quoted = new ArrayList<>();
      columns.forEach(column -> quoted.add(Refusal.quoted(column)));
      options.put(name, String.join(",", quoted));
    }
  }

  private static List<String> decoded(String columns) {
    return columns == null ? List.of()
        : CollectionConverters.asJava(DataSourceUtils.decodePartitioningColumns(columns));
  }

  /** A write by name. */
  private static LogicalPlan made(
      Class<?> command, DataSourceV2Relation target, Object... rest) {
    try {
      Constructor<?> found = constructor(command);
      Object[] arguments = new Object[found.getParameterCount()];
      arguments[0] = target;
      for (int i = 1; i < arguments.length; i++) {
        Class<?> type = found.getParameterTypes()[i];
        boolean byName = type == boolean.class && found.getParameterTypes()[i - 1] != type;
        arguments[i] = type == boolean.class ? (Object) byName : Option.empty();
        if (i <= rest.length) {
          arguments[i] = rest[i - 1] instanceof Map ? scala.collection.immutable.Map.from(
              CollectionConverters.asScala(texts(rest[i - 1]))) : rest[i - 1];
        }
      }
      return (LogicalPlan) found.newInstance(arguments);
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }

  @SuppressWarnings("unchecked")
  private static Map<String, String> texts(Object map) {
    return (Map<String, String>) map;
  }

  /** Up to the options of the write the parameters are alike; flags, first by name, follow. */
  private static Constructor<?> constructor(Class<?> command) throws NoSuchMethodException {
    for (Constructor<?> found : command.getConstructors()) {
      Class<?>[] types = found.getParameterTypes();
      int options = 0;
      while (options < types.length && types[options] != scala.collection.immutable.Map.class) {
        options++;
      }
      boolean fits = options >= 2 && options < types.length - 1
          && types[0].isAssignableFrom(DataSourceV2Relation.class)
          && types[options - 1] == LogicalPlan.class && types[options + 1] == boolean.class;
      for (int i = options + 1; i < types.length; i++) {
        fits &= types[i] == boolean.class || types[i] == Option.class;
      }
      if (fits) {
        return found;
      }
    }
    throw new NoSuchMethodException(command.getSimpleName() + "(table, ..., query, options, ...)");
  }
}

package io.plake.spark.format;

import static scala.jdk.javaapi.CollectionConverters.asJava;
import static scala.jdk.javaapi.CollectionConverters.asScala;

import io.plake.spark.catalog.TableStatements;
import io.plake.spark.core.Channel;
import io.plake.spark.core.PlakeSource;
import io.plake.spark.core.Refusal;
import io.plake.spark.core.Relations;
import io.plake.spark.core.SealedOptions;
import io.plake.spark.core.Vocabulary;
import io.plake.spark.core.WriteCommands;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
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
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;

/**
 * Plans the writes of {@link PlakeProvider} as Spark plans those of a Python source.
 *
 * <p>The mode {@code errorifexists} is an append that must create the dataset: plake checks it in
 * the transaction of the commit. {@code ignore} is the same, or nothing where there is a dataset.
 */
public final class FormatWrites extends Rule<LogicalPlan> {

  static final String PARTITION_BY = "partitionBy";
  private static final String CLUSTER_BY = "clusterBy";

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    return plan instanceof SaveIntoDataSourceCommand command
            && command.dataSource() instanceof PlakeProvider
        ? planned(command.query(), command.mode(), command.options()) : plan;
  }

  static LogicalPlan planned(
      LogicalPlan query, SaveMode mode, scala.collection.immutable.Map<String, String> given) {
    Map<String, String> options = new HashMap<>(asJava(given));
    choose(options, PARTITION_BY, taken(options, DataSourceUtils.PARTITIONING_COLUMNS_KEY()));
    choose(options, CLUSTER_BY, taken(options, DataSourceUtils.CLUSTERING_COLUMNS_KEY()));
    String path = new CaseInsensitiveStringMap(options).get(Vocabulary.Place.PATH);
    boolean creates = mode == SaveMode.ErrorIfExists || mode == SaveMode.Ignore;
    if (creates && path != null) { // Python says that a path is missing
      Channel channel = new Channel(Relations.SOURCE, options);
      var request = Channel.about(
          Vocabulary.RequestKind.EXISTS, Identifier.of(new String[0], path));
      request.put(Vocabulary.RequestKey.MUST_BE_NEW, mode == SaveMode.ErrorIfExists);
      if (channel.read(request).body().get(Vocabulary.ResponseKey.EXISTS).asBoolean()) {
        return TableStatements.nothing("save");
      }
      SealedOptions.put(options, Vocabulary.Message.MODE, Vocabulary.Mode.CREATE);
    }
    Channel.putClaims(options);
    var schema = query.schema().asNullable();
    DataSourceV2Relation target = DataSourceV2Relation.create(
        PlakeSource.table(schema), Option.empty(), Option.empty(),
        new CaseInsensitiveStringMap(options), Option.empty());
    Object all = scala.collection.immutable.Map.from(asScala(options));
    return mode == SaveMode.Overwrite
        ? WriteCommands.made(
            OverwriteByExpression.class, true, target, Literal$.MODULE$.TrueLiteral(), query, all)
        : WriteCommands.made(AppendData.class, true, target, query, all);
  }

  /** The columns that Spark tells in an option, which is removed. */
  private static List<String> taken(Map<String, String> options, String key) {
    String columns = new CaseInsensitiveStringMap(options).get(key);
    options.keySet().removeIf(key::equalsIgnoreCase);
    return columns == null ? List.of() : asJava(DataSourceUtils.decodePartitioningColumns(columns));
  }

  /** Sets an option that names columns, where the user did not. */
  static void choose(Map<String, String> options, String name, List<String> columns) {
    if (columns.isEmpty()) {
      return;
    }
    if (options.keySet().stream().anyMatch(name::equalsIgnoreCase)) {
      throw Refusal.because("The option " + name + " and the method of that name are both given:"
          + " leave one out.");
    }
    options.put(name, columns.stream().map(Refusal::quoted).collect(Collectors.joining(",")));
  }
}

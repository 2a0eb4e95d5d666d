package io.plake.spark.statements;

import static scala.jdk.javaapi.CollectionConverters.asJava;
import static scala.jdk.javaapi.CollectionConverters.asScala;

import io.plake.spark.catalog.PlakeTable;
import io.plake.spark.core.Refusal;
import io.plake.spark.core.Relations;
import io.plake.spark.core.Rewrite;
import io.plake.spark.core.Vocabulary;
import io.plake.spark.format.NamedSinks;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.AliasIdentifier;
import org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.encoders.ExpressionEncoder;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.Assignment;
import org.apache.spark.sql.catalyst.plans.logical.InsertAction;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeAction;
import org.apache.spark.sql.catalyst.plans.logical.MergeIntoTable;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.catalyst.plans.logical.UpdateAction;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.streaming.WriteToStream;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableWritePrivilege;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution;
import org.apache.spark.sql.execution.streaming.runtime.StreamingQueryWrapper;
import org.apache.spark.sql.execution.streaming.sources.ForeachBatchSink;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;
import scala.Tuple2;
import scala.collection.immutable.Seq;
import scala.runtime.AbstractFunction2;
import scala.runtime.BoxedUnit;

/**
 * Streams with the output mode {@code update}: each batch is one MERGE, by the primary key of the
 * table. As a batch that is appended, its commit has the id of the query and the number of the
 * batch.
 */
public final class StreamUpserts extends Rule<LogicalPlan> {
  private final SparkSession session;

  public StreamUpserts(org.apache.spark.sql.SparkSession session) {
    this.session = (SparkSession) session;
  }

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    if (!(plan instanceof WriteToStream write) || !write.outputMode().equals(OutputMode.Update())
        || !isPlakes(write.sink())) {
      return plan;
    }
    if (!Relations.isOn()) {
      throw refused("needs plake's planner extension, and " + Vocabulary.Setting.PLANNER
          + " turns it off. Use 'append', or 'complete'.");
    }
    if (write.sink() instanceof PlakeTable table) {
      checkKey(table.primaryKey(), write.catalogAndIdent().isEmpty() ? ""
          : " Spark creates a table that is missing before it asks: drop " + table.name()
              + " if you did not have it.");
    }
    Sink sink = new Sink(new Upserts(session, write), write);
    return Rewrite.copy(write, part -> part == write.sink() ? sink : part);
  }

  private static boolean isPlakes(Table sink) {
    return sink instanceof PlakeTable || sink instanceof PythonTable
        && Relations.SOURCE.equalsIgnoreCase(((PythonTable) sink).name());
  }

  private static void checkKey(List<String> key, String more) {
    if (key.isEmpty()) {
      throw refused("updates the rows of a primary key, and the table has none. Add one:"
          + " ALTER TABLE t ADD CONSTRAINT name PRIMARY KEY (columns). Or use 'append', 'complete',"
          + " or foreachBatch with MERGE." + more);
    }
  }

  private static RuntimeException refused(String reason) {
    return Refusal.because("[PLAKE_INVALID_OPTION] outputMode 'update': " + reason);
  }

  private static final class Sink extends ForeachBatchSink<Row> {
    Sink(Upserts upserts, WriteToStream write) {
      super(upserts, ExpressionEncoder.apply(write.inputQuery().schema()));
    }

    /** What the progress of a query shows. */
    @Override
    public String toString() {
      return Relations.SOURCE;
    }
  }

  private static final class Upserts
      extends AbstractFunction2<org.apache.spark.sql.Dataset<Row>, Object, BoxedUnit> {
    private static final String QUERY_ID = "sql.streaming.queryId";

    private final SparkSession session;
    private final Table sink;
    private final Option<Tuple2<TableCatalog, Identifier>> name;

    Upserts(SparkSession session, WriteToStream write) {
      this.session = session;
      this.sink = write.sink();
      this.name = write.catalogAndIdent();
    }

    @Override
    public BoxedUnit apply(org.apache.spark.sql.Dataset<Row> given, Object number) {
      Dataset<Row> batch = (Dataset<Row>) given;
      String query = batch.sparkSession().sparkContext().getLocalProperty(QUERY_ID);
      Map<String, String> options = new HashMap<>(options(query));
      options.put(Vocabulary.Statement.QUERY, query);
      options.put(Vocabulary.Statement.BATCH, String.valueOf(number));
      Dataset.ofRows(batch.sparkSession(), merge(batch, options));
      return BoxedUnit.UNIT;
    }

    private LogicalPlan merge(Dataset<Row> batch, Map<String, String> options) {
      LogicalPlan target;
      List<String> key;
      String table = new CaseInsensitiveStringMap(options).get(NamedSinks.TABLE);
      if (sink instanceof PlakeTable || table != null) {
        options.keySet().removeIf(NamedSinks.TABLE::equalsIgnoreCase);
        table = sink instanceof PlakeTable ? nameOf(name.get()) : table;
        target = written(
            (UnresolvedRelation) batch.sparkSession().table(table).queryExecution().logical());
        key = NamedSinks.table(table).primaryKey();
      } else {
        DataSourceV2Relation found = frame(batch.sparkSession(), options);
        target = found;
        key = RowStatements.primaryKey((PythonTable) found.table(), found.options());
      }
      checkKey(key, "");
      Expression condition = key.stream()
          .map(one -> (Expression) new EqualTo(column("target", one), column("source", one)))
          .reduce(And::new).orElseThrow();
      // Not UPDATE *, which wants all columns, computed ones too.
      Seq<Assignment> values = asScala(Arrays.stream(batch.columns())
          .map(one -> new Assignment(column("target", one), column("source", one))).toList())
          .toSeq();
      LogicalPlan made = new MergeIntoTable(
          named("target", target), named("source", batch.logicalPlan()), condition,
          seq(new UpdateAction(Option.empty(), values, false)),
          seq(new InsertAction(Option.empty(), values)), seq(), false);
      made.setTagValue(BuiltStatements.OPTIONS, options);
      return made;
    }

    /**
     * As the target of a statement, so that the catalog knows of it. In 4.1 Spark's own method
     * differs.
     */
    private static UnresolvedRelation written(UnresolvedRelation table) {
      Map<String, String> options = new HashMap<>(table.options().asCaseSensitiveMap());
      options.put(UnresolvedRelation.REQUIRED_WRITE_PRIVILEGES(),
          TableWritePrivilege.INSERT + "," + TableWritePrivilege.UPDATE);
      return table.copy(
          table.multipartIdentifier(), new CaseInsensitiveStringMap(options), table.isStreaming());
    }

    private static String nameOf(Tuple2<TableCatalog, Identifier> name) {
      return Stream.of(Stream.of(name._1().name()), Arrays.stream(name._2().namespace()),
          Stream.of(name._2().name())).flatMap(part -> part).map(Refusal::quoted)
          .collect(Collectors.joining("."));
    }

    /** The newest version at a path. Takes the options that say where it is. */
    private static DataSourceV2Relation frame(SparkSession now, Map<String, String> options) {
      Map<String, String> place = new HashMap<>(options);
      place.keySet().removeIf(one -> !isPlace(one.toLowerCase(Locale.ROOT)));
      options.keySet().removeAll(place.keySet());
      return (DataSourceV2Relation) now.read().format(Relations.SOURCE).options(place).load()
          .queryExecution().analyzed();
    }

    private static boolean isPlace(String option) {
      return option.startsWith("storage.")
          || List.of(Vocabulary.Place.PATH, Vocabulary.Place.CATALOG, PlakeTable.BRANCH)
              .contains(option);
    }

    /** The options of a query, which Spark gives to sinks of another kind alone. */
    @SuppressWarnings("unchecked") // as Spark declares the field
    private Map<String, String> options(String query) {
      try {
        Object found = Relations.field(MicroBatchExecution.class, "extraOptions").get(
            ((StreamingQueryWrapper) session.streams().get(query)).streamingQuery());
        return asJava((scala.collection.immutable.Map<String, String>) found);
      } catch (ReflectiveOperationException e) {
        throw new IllegalStateException(e);
      }
    }

    private static UnresolvedAttribute column(String table, String name) {
      return new UnresolvedAttribute(asScala(List.of(table, name)).toSeq());
    }

    private static SubqueryAlias named(String name, LogicalPlan plan) {
      return new SubqueryAlias(new AliasIdentifier(name), plan);
    }

    private static Seq<MergeAction> seq(MergeAction... all) {
      return asScala(List.of(all)).toSeq();
    }
  }
}

package io.plake.spark.catalog;

import static scala.jdk.javaapi.CollectionConverters.asJava;
import static scala.jdk.javaapi.CollectionConverters.asScala;

import io.plake.spark.core.CharPadding;
import io.plake.spark.core.PlakeSource;
import io.plake.spark.core.Refusal;
import io.plake.spark.core.Relations;
import io.plake.spark.core.Rewrite;
import io.plake.spark.core.SchemaEvolution;
import io.plake.spark.core.SessionTimes;
import io.plake.spark.core.Vocabulary;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.analysis.RelationChanges;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2;
import org.apache.spark.sql.catalyst.types.DataTypeUtils;
import org.apache.spark.sql.connector.catalog.ChangelogContext;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.collection.immutable.Seq;

/**
 * Reads the changes of a table where a query names it with the option {@code readChangeFeed}.
 *
 * <p>Spark would resolve the columns of the table itself. So the table is looked for here, before
 * Spark does, and its changes take its place.
 */
public final class ChangesByName extends Rule<LogicalPlan> {
  private final SparkSession session;

  public ChangesByName(SparkSession session) {
    this.session = session;
  }

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    return Relations.isOn() ? plan.transformUp(new Rewrite<>(this::changed)) : plan;
  }

  /**
   * The table of plake that a name means in a session, as Spark resolves it.
   *
   * @return null where there is none, or a table or a view of another kind
   */
  static Found find(SparkSession session, List<String> parts) {
    LogicalPlan plan = resolved(session, asScala(parts).toSeq(), false);
    SubqueryAlias alias = plan instanceof SubqueryAlias named ? named : null;
    return CharPadding.below(alias == null ? plan : alias.child())
            instanceof DataSourceV2Relation relation
        && relation.table() instanceof PlakeTable table ? new Found(alias, table) : null;
  }

  private static LogicalPlan resolved(
      SparkSession session, Seq<String> parts, boolean isStreaming) {
    return session.sessionState().analyzer().execute(
        new UnresolvedRelation(parts, CaseInsensitiveStringMap.empty(), isStreaming));
  }

  /** A table, and the name by which a query can mean it. */
  record Found(SubqueryAlias alias, PlakeTable table) {
    /** The plan that reads changes of the table. */
    LogicalPlan changes(Map<String, String> options) {
      LogicalPlan relation = table.changes(options).relation();
      return alias == null ? relation : new SubqueryAlias(alias.identifier(), relation);
    }

    /** The plan that streams changes of the table, from that which streams its rows. */
    LogicalPlan streamed(LogicalPlan rows, Map<String, String> options) {
      Map<String, String> all = new HashMap<>(options);
      all.put(Vocabulary.Changes.READ, "true");
      CaseInsensitiveStringMap given =
          SessionTimes.in(table.with(new CaseInsensitiveStringMap(all)));
      var source = new PlakeSource();
      var schema = source.inferSchema(given);
      var changes = new PythonTable(source, Relations.SOURCE, schema);
      return rows.transformUp(new Rewrite<>(node -> node instanceof StreamingRelationV2 stream
          ? Rewrite.<LogicalPlan>copy(stream, part -> part == stream.table() ? changes
              : part == stream.extraOptions() ? given
              : part == stream.output() ? DataTypeUtils.toAttributes(schema) : part)
          : node));
    }
  }

  private LogicalPlan changed(LogicalPlan node) {
    UnresolvedRelation named = node instanceof UnresolvedRelation table
        && table.options().containsKey(Vocabulary.Changes.READ) ? table : null;
    Map<String, String> options = named == null ? Map.of() : named.options().asCaseSensitiveMap();
    if (named == null && SchemaEvolution.IS_ASKED && StreamedChanges.areAsked(node)) {
      named = StreamedChanges.of(node);
      options = StreamedChanges.options(node);
    }
    Found found = named == null ? null : find(session, asJava(named.multipartIdentifier()));
    if (found == null) {
      return node;
    }
    return named.isStreaming()
        ? found.streamed(resolved(session, named.multipartIdentifier(), true), options)
        : found.changes(options);
  }

  /** {@code readStream.changes(t)}: a node that Spark has from 4.2 on. */
  private static final class StreamedChanges {
    static boolean areAsked(LogicalPlan node) {
      try {
        return node instanceof RelationChanges requested
            && requested.relation() instanceof UnresolvedRelation table && table.isStreaming();
      } catch (LinkageError e) { // this Spark has no such node
        return false;
      }
    }

    static UnresolvedRelation of(LogicalPlan node) {
      return (UnresolvedRelation) ((RelationChanges) node).relation();
    }

    static Map<String, String> options(LogicalPlan node) {
      ChangelogContext context = ((RelationChanges) node).changelogContext();
      Map<String, String> all = PlakeChangelog.options(context, of(node).options());
      if (context.deduplicationMode() == ChangelogContext.DeduplicationMode.NET_CHANGES) {
        throw Refusal.because("A stream of plake tells of each commit: leave "
            + Vocabulary.Changes.DEDUPLICATION + " out, or read the net changes with spark.read.");
      }
      all.remove(Vocabulary.Changes.DEDUPLICATION);
      all.remove(Vocabulary.Changes.ENDING_INCLUSIVE);
      return all;
    }
  }
}

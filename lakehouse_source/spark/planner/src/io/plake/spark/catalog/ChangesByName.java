package io.plake.spark.catalog;

import io.plake.spark.core.CharPadding;
import io.plake.spark.core.Refusal;
import io.plake.spark.core.Relations;
import io.plake.spark.core.Rewrite;
import io.plake.spark.core.SchemaEvolution;
import io.plake.spark.core.Vocabulary;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.analysis.RelationChanges;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.jdk.javaapi.CollectionConverters;

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
    LogicalPlan plan = session.sessionState().analyzer().execute(new UnresolvedRelation(
        CollectionConverters.asScala(parts).toSeq(), CaseInsensitiveStringMap.empty(), false));
    SubqueryAlias alias = plan instanceof SubqueryAlias ? (SubqueryAlias) plan : null;
    LogicalPlan below = CharPadding.below(alias == null ? plan : alias.child());
    if (!(below instanceof DataSourceV2Relation)
        || !(((DataSourceV2Relation) below).table() instanceof PlakeTable)) {
      return null;
    }
    return new Found(alias, (PlakeTable) ((DataSourceV2Relation) below).table());
  }

  /** A table, and the name by which a query can mean it. */
  record Found(SubqueryAlias alias, PlakeTable table) {
    /** The plan that reads changes of the table. */
    LogicalPlan changes(Map<String, String> options) {
      LogicalPlan relation = table.changes(options).relation();
      return named(relation);
    }

    private LogicalPlan named(LogicalPlan relation) {
      return alias == null ? relation : new SubqueryAlias(alias.identifier(), relation);
    }
  }

  private LogicalPlan changed(LogicalPlan node) {
    UnresolvedRelation named = node instanceof UnresolvedRelation table
        && table.options().containsKey(Vocabulary.Changes.READ) ? table : null;
    if (named == null && SchemaEvolution.IS_ASKED && StreamedChanges.areAsked(node)) {
      named = StreamedChanges.of(node);
    }
    Found found = named == null
        ? null : find(session, CollectionConverters.asJava(named.multipartIdentifier()));
    if (found == null) {
      return node;
    }
    if (named.isStreaming()) { // it would stream the rows of the table, or die in its first batch
      throw Refusal.because("Changes of a table are streamed by its path: spark.readStream"
          + ".format('plake').option('readChangeFeed', True).load(path).");
    }
    return found.changes(named.options().asCaseSensitiveMap());
  }

  /** {@code readStream.changes(t)}: a node that Spark has from 4.2 on. */
  private static final class StreamedChanges {
    static boolean areAsked(LogicalPlan node) {
      try {
        return node instanceof RelationChanges asked
            && asked.relation() instanceof UnresolvedRelation table && table.isStreaming();
      } catch (LinkageError e) { // this Spark has no such node
        return false;
      }
    }

    static UnresolvedRelation of(LogicalPlan node) {
      return (UnresolvedRelation) ((RelationChanges) node).relation();
    }
  }
}
